"""GPU of a profile: whether its launches ran on the described one, at clocks that it has.

In: launches and a GPU. Out: refusals, and remarks on what is taken on trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError, GpusimError
from gpusim.evidence.cases.judged_metrics import CLOCK, CYCLES, DURATION
from gpusim.evidence.nsight.launches import ProfiledLaunch
from gpusim.evidence.nsight.metrics import SAME
from gpusim.evidence.toolchain.cuda_toolkit import FOLDERS
from gpusim.machine.config import load_gpu

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

SMS, LAUNCH_SMS = "device__attribute_multiprocessor_count", "launch__sm_count"

SLOW_CLOCK, FAST_CLOCK, FAST_RATIO = 0.5, 1.05, 1.25
"""Multiples of the lowest and highest clock that no GPU exceeds.

Cycles and time of different passes give up to 1.08 times the highest clock (1,896 measured launches)."""


class NotComparableError(GpusimError):
    """A profile and a model that cannot be compared: another architecture, or no common metric."""


def refuse_clock(mhz: float | None, gpu: GpuSpec) -> None:
    """Check that a GPU runs at a given clock."""
    if mhz is not None and not gpu.clock.min_mhz <= mhz <= gpu.clock.max_mhz:
        raise ConfigError(
            f"--clock {mhz:g}: {gpu.name} has {gpu.clock.min_mhz:,.0f} to {gpu.clock.max_mhz:,.0f} MHz, give such a clock"
        )


def refuse_two_gpus(now: Sequence[ProfiledLaunch], then: Sequence[ProfiledLaunch], old: Path) -> None:
    """Check that both profiles are of one GPU, as far as they say it."""
    for what in ("device", "capability"):
        names = [{name for launch in launches if (name := getattr(launch, what))} for launches in (now, then)]
        if all(names) and not names[0] & names[1]:
            raise NotComparableError(f"{old}: its launches ran on {min(names[1])}, those of the profile on {min(names[0])}")


def refuse_other_gpu(launch: ProfiledLaunch, gpu: GpuSpec | None, path: Path) -> None:
    """Check that a launch ran on ``gpu``, as far as the profile says it."""
    if gpu is None:
        return
    if launch.capability and launch.capability != f"{gpu.compute_capability:.1f}":
        raise NotComparableError(
            f"{path}: launch {launch.idx} ran at compute capability {launch.capability}, {gpu.name} has "
            f"{gpu.compute_capability}: give the GPU that it was profiled on"
        )
    ran_on = FOLDERS.get(launch.device, gpu.base_name)
    if gpu.base_name in FOLDERS.values() and ran_on != gpu.base_name:  # a user's description may stand for any GPU
        raise NotComparableError(
            f"{path}: launch {launch.idx} ran on {launch.device}, not on {gpu.name}: give --gpu {ran_on}"
        )
    for name in (SMS, LAUNCH_SMS):
        if launch.metrics.get(name, gpu.num_sms) != gpu.num_sms:
            raise NotComparableError(
                f"{path}: launch {launch.idx} ran on {launch.metrics[name]:.0f} SMs, {gpu.name} has {gpu.num_sms}: give the "
                "GPU that it was profiled on"
            )


def refuse_impossible(launch: ProfiledLaunch, gpu: GpuSpec | None, path: Path) -> None:
    """Check for cycles and times that no launch has: a wrong unit, or a number that was cut."""
    where = f"{path}: launch {launch.idx}"
    metrics = {SAME[name]: value for name, value in launch.metrics.items() if name in SAME} | dict(launch.metrics)
    for name in (CYCLES, DURATION, CLOCK):
        if metrics.get(name) == 0.0:
            raise ConfigError(f"{where}: {name} is 0, which no launch takes")
    if gpu is None:
        return
    spec = gpu.clock
    clocks = [(metrics[CLOCK] * 1e-6, FAST_CLOCK, CLOCK)] if CLOCK in metrics else []
    if CYCLES in metrics and DURATION in metrics:
        cycles, ns = metrics[CYCLES], metrics[DURATION]
        clocks.append((cycles / ns * 1e3, FAST_RATIO, f"{cycles:,.0f} cycles in {ns:,.0f} ns"))
    for mhz, most, what in clocks:
        if not SLOW_CLOCK * spec.min_mhz <= mhz <= most * spec.max_mhz:
            raise ConfigError(
                f"{where}: {what} {'is' if what == CLOCK else 'are'} {mhz:,.4g} MHz, and {gpu.name} runs at "
                f"{spec.min_mhz:,.0f} to {spec.max_mhz:,.0f}: is a unit wrong?"
            )


def on_gpu(launches: Sequence[ProfiledLaunch], gpu: GpuSpec | None, name: str) -> list[str]:
    """Remarks on a GPU that gpusim does not know, or that only the command line names."""
    if gpu is None or gpu.base_name not in FOLDERS.values():
        return []
    strange = dict.fromkeys(item.device for item in launches if item.device and item.device not in FOLDERS)
    if strange:
        return [f"{name} ran on {', '.join(strange)}, which gpusim does not know: it is held against {gpu.name}"]
    unnamed = [item for item in launches if item.capability and not item.device]
    if not unnamed:
        return []
    num_sms = [item.metrics[name] for item in unnamed for name in (SMS, LAUNCH_SMS) if name in item.metrics]
    kin = [
        other.name for other in map(load_gpu, FOLDERS.values()) if other.name != gpu.base_name
        and other.compute_capability == gpu.compute_capability and all(num == other.num_sms for num in num_sms)
    ]
    return [
        f"{name} does not name its GPU, and {', '.join(kin)} {'have' if len(kin) > 1 else 'has'} the same compute "
        f"capability: that it ran on {gpu.name} is taken on trust"
    ] if kin else []
