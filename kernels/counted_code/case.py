"""What do flushed caches cost a counted launch for each byte of its code?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from gpusim.evidence.case import Case, Config, Group, KernelLaunch, Outputs, kernels_dir, load_case
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, WarpRole

straight = sys.modules[load_case("cold_code").launch.__module__]
"""The kernel and what is launched of it are those of kernels/cold_code."""

CYCLES = "sm__cycles_elapsed.max"
METRICS = (CYCLES, "sm__cycles_elapsed.avg", "sm__cycles_active.avg", "dram__bytes_read.sum")
SIZES_KIB = (4, 6, 8, 12, 16, 20, 24, 32, 48)
"""Most of which the first level holds, so that three of four runs wait for nothing; an odd number of them."""
COLUMNS = ("caches", "kib", "sms", "warps")


def config_of(caches: str, kib: int, sms: int, warps: int) -> Config:
    """A config as text."""
    return {"kernel": "straight", "caches": caches, "kib": str(kib), "sms": str(sms), "warps": str(warps)}


def _sweep(caches: str) -> Callable[[int], list[Config]]:
    def configs(seed: int) -> list[Config]:
        del seed  # a sweep, the same for every seed
        return [
            config_of(caches, kib, sms, warps) for sms in (1, straight.NUM_SMS) for warps in (1, 4) for kib in SIZES_KIB
        ]

    configs.__doc__ = f"Every size, one SM and all: counted with caches {caches}."
    return configs


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The code as a launch finds it."""
    found: KernelLaunch = straight.launch({**config, "state": "launched"}, is_counted)
    return found


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of the first and of the last time, in a launch that is not counted.

    Raises:
        WrongAnswer: as cold_code's.
    """
    found = straight.check({**config, "state": "launched"}, outputs)
    return {name: found[name] for name in ("first_cycles", "warm_cycles")}


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same code, out of memory where caches are flushed and at hand where they are not."""
    is_flushed = config["caches"] == "flushed"
    num_bytes, num_warps = int(config["kib"]) * 1024, int(config["warps"])

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        if cta.cta_idx >= int(config["sms"]):
            return
        for idx in range(straight.NUM_ROUNDS):
            if is_flushed or idx:
                yield ops.Code("straight", num_bytes)
            yield ops.Fma(num_bytes / straight.INSTRUCTION_BYTES)

    launched = Launch(
        kernel="straight", num_ctas=straight.NUM_SMS, num_tiles=straight.NUM_SMS,
        roles=(WarpRole(name="all", num_warps=num_warps, program=program),),
    )
    result = simulate(launched, gpu, clock="max", l2="cold" if is_flushed else "warm", skips=False)
    return {CYCLES: float(result.counters[CYCLES])}


def first_run_cycles(rows: Sequence[Mapping[str, str]], *, sms: int, warps: int) -> dict[int, float]:
    """By KiB: what a counted launch takes more with caches flushed than without."""
    found: dict[tuple[str, int], float] = {
        (row["caches"], int(row["kib"])): float(row[CYCLES]) for row in rows
        if (int(row["sms"]), int(row["warps"])) == (sms, warps) and row.get(CYCLES)
    }  # fmt: skip
    return {
        kib: value - found["kept", kib] for (caches, kib), value in sorted(found.items())
        if caches == "flushed" and ("kept", kib) in found
    }  # fmt: skip


def price(more: Mapping[int, float]) -> float:
    """Cycles of a KiB, by least squares over what each size takes more."""
    slope, _ = np.polyfit(list(more), list(more.values()), 1)
    return float(slope)


def includes() -> dict[str, str]:
    """The kernel."""
    return {"straight.cuh": (kernels_dir() / "cold_code" / "kernel.cu").read_text(encoding="utf-8")}


def _group(caches: str) -> Group:
    return Group(
        configs=_sweep(caches), metrics=METRICS, rank=2, least_capability=(9, 0), is_cold=caches == "flushed"
    )


CASE = Case(
    name="counted_code",
    question=__doc__,
    columns=COLUMNS,
    groups={"flushed": _group("flushed"), "kept": _group("kept")},
    launch=launch,
    check=check,
    values={
        "first_cycles": "SM cycles of the first run, a launch that is not counted, median of the SMs",
        "warm_cycles": "SM cycles of the fourth run, the same",
    },
    predict=predict,
    tiers={CYCLES: 6},
    includes=includes,
)
