"""The gate: compares launches of an Nsight Compute profile with the predictions of their kernel models.

In: a profile, which kernel model (with which options) belongs to which launch, a GPU. Out: a :class:`Report` with a verdict
for each metric.

Cycles are predicted at the clock of the launch. Caches are flushed unless a model specifies warm, since Nsight Compute
flushes them before each pass unless ``--cache-control none`` is given. If one call of a model launches several kernels, each
is compared separately, as it is profiled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError, GpusimError, nearest
from gpusim.evidence.cases.validation_kernel import (
    CLOCK,
    CYCLES,
    DRAM,
    DURATION,
    FLOOR_SHARE,
    THREAD_NUMBERS,
    as_counted,
    touched_bytes,
)
from gpusim.evidence.gate.baseline import against
from gpusim.evidence.gate.models import Model, clock_of, kernels_of_call, model_for, state_of
from gpusim.evidence.gate.tolerances import tolerance_of
from gpusim.evidence.gate.verdicts import Comparison, LaunchCheck, Report
from gpusim.evidence.nsight.launches import ProfiledLaunch, ProfileFile
from gpusim.evidence.nsight.metrics import SAME, class_of, same_as
from gpusim.evidence.nsight.profiles import read_profile
from gpusim.evidence.nsight.units import Decimal
from gpusim.evidence.toolchain.cuda_toolkit import FOLDERS
from gpusim.machine.config import load_gpu
from gpusim.simulate.run import simulate

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec
    from gpusim.simulate.result import Result
    from gpusim.workload.launch import Launch

MOST_NAMES = 3
"""Kernel names in the remark on launches without a model."""

CLUSTER = "launch__cluster_size"
SMS, LAUNCH_SMS = "device__attribute_multiprocessor_count", "launch__sm_count"

SLOW_CLOCK, FAST_CLOCK, FAST_RATIO = 0.5, 1.05, 1.25
"""Multiples of the lowest and highest clock that no GPU exceeds.

Cycles and time of different passes give up to 1.08 times the highest clock (1,896 measured launches)."""


class NotComparableError(GpusimError):
    """A profile and a model that cannot be compared: another architecture, or no common metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits by metric or class, which override those of the models."""

    tolerances: Mapping[str, float] = field(default_factory=dict)
    """Allowed differences between prediction and measurement, in percent or points."""
    worse: Mapping[str, float] = field(default_factory=dict)
    """Allowed increases over the baseline, in percent or points."""
    is_strict: bool = False
    """Whether the report is "not comparable" if a model or launch has no counterpart, or a launch has no cycles and time."""


NO_LIMITS = Limits()


def check_profile(
    path: Path,
    *,
    gpu: GpuSpec,
    models: Sequence[Model],
    limits: Limits = NO_LIMITS,
    baseline: Path | None = None,
    decimal: Decimal | None = None,
) -> Report:
    """Compare every launch of a profile with its model, and with ``baseline``, an older profile.

    Raises:
        NotComparableError: the profile is of another architecture, or has no launch of these kernels.
        GpusimError: the profile, the options or the models are refused.
    """
    profile = read_profile(path, decimal=decimal)
    old = None if baseline is None else read_profile(baseline, decimal=decimal)
    for launch in old.launches if old is not None else ():
        if model_for(launch, models) is not None:
            _refuse_other_gpu(launch, gpu, baseline or path)
            _refuse_impossible(launch, gpu, baseline or path)
    _refuse_mixture(profile, models)
    remarks = list(profile.remarks)
    for stated in models:
        stated.params(gpu)  # refuses bad options even of models without a launch
    judged: list[LaunchCheck] = []
    unmodelled: list[ProfiledLaunch] = []
    simulated: dict[tuple[int, int, float], Result] = {}
    for launch in profile.launches:
        model = model_for(launch, models)
        if model is None:
            unmodelled.append(launch)
            continue
        _refuse_other_gpu(launch, gpu, path)
        _refuse_impossible(launch, gpu, path)
        judged.append(_judged(launch, model, gpu, {**model.tolerances, **limits.tolerances}, simulated))
    if not judged:
        names = ", ".join(dict.fromkeys(item.kernel for item in profile.launches))
        how = "match of a [[model]] takes such a name whole, regex a part of it" if models[0].source else (
            "--match takes a part of such a name")
        raise NotComparableError(f"{path}: no model stands for any of its launches ({names}); {how}")
    if unmodelled:
        names = _some_names([launch.kernel for launch in unmodelled])
        remarks.append(f"{len(unmodelled)} launch{'es' * (len(unmodelled) > 1)} without a model, not judged: {names}")
    remarks += _on_trust([item.launch for item in judged], gpu, "the profile")
    gone: tuple[str, ...] = ()
    if old is not None:
        remarks += _on_trust([item for item in old.launches if model_for(item, models)], gpu, old.path.name)
        judged = [against(item, profile, old, gpu, limits.worse) for item in judged]
        gone = _gone(profile, old, models)
        remarks += [
            f"{old.path.name} has {count} launch{'es' if count > 1 else ''} of {name} more than this profile, not compared"
            for name, count in Counter(gone).items()
        ]
    unmet = [model for model in models if not any(item.model is model for item in judged)]
    remarks += _of_models(models, unmet, profile, has_baseline=old is not None)
    unused = _unused(limits.tolerances, judged)
    remarks += _several(judged)
    remarks += [_unmeasured(name, judged) for name in unused]
    return Report(
        profile=path, gpu=gpu.name, launches=tuple(judged), remarks=tuple(remarks), baseline=baseline, lacking=tuple(unused),
        gone=gone, not_worse=() if old is None else _not_worse(limits.worse, judged),
        unmet=tuple(item.awaited for item in unmet), unmodelled=tuple(unmodelled), is_strict=limits.is_strict,
    )


def _some_names(kernels: Sequence[str]) -> str:
    """The first three names, each once, and the number of further ones."""
    names = list(dict.fromkeys(kernels))
    more = f" and {len(names) - MOST_NAMES} more (--json FILE lists all)" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _of_models(models: Sequence[Model], unmet: Sequence[Model], profile: ProfileFile, *, has_baseline: bool) -> list[str]:
    """Remarks on a file's models, or parts of them, that nothing is compared with."""
    sentences, kernels = [], [launch.kernel for launch in profile.launches]
    for model in unmet:
        hint = f"; {nearest(model.match, kernels)}" if get_close_matches(model.match, kernels) else ""
        sentences.append(f"no launch is of {model.awaited}: nothing is held against that model, {model.kernel}{hint}")
    if not has_baseline:
        sentences += [
            f"worse and was of {model.awaited} go with --baseline, an older profile: not looked at"
            for model in models if model.source and (model.worse or model.was)
        ]
    return sentences


def _gone(profile: ProfileFile, old: ProfileFile, models: Sequence[Model]) -> tuple[str, ...]:
    """Kernel names of launches that the ``old`` profile has and the new one lacks, of those that belong to a model."""
    now = Counter(launch.kernel for launch in profile.launches)
    then = Counter(launch.kernel for launch in old.launches if model_for(launch, models) is not None)
    if not any(model.match or model.regex for model in models):  # one model without a name is for this profile
        then = Counter({name: num for name, num in then.items() if name in now})
    return tuple((then - now).elements())


def _refuse_mixture(profile: ProfileFile, models: Sequence[Model]) -> None:
    """Check that a single model without a name has launches of one kernel only."""
    names = list(dict.fromkeys(launch.kernel for launch in profile.launches))
    if len(names) > 1 and any(not model.match and not model.regex for model in models):
        raise ConfigError(
            f"{profile.path}: holds launches of {len(names)} kernels ({', '.join(names[:4])}): say which with --match NAME, "
            "or give --models FILE"
        )


def _refuse_other_gpu(launch: ProfiledLaunch, gpu: GpuSpec, path: Path) -> None:
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


def _refuse_impossible(launch: ProfiledLaunch, gpu: GpuSpec, path: Path) -> None:
    """Check for cycles and times that no launch has: a wrong unit, or a number that was cut."""
    where = f"{path}: launch {launch.idx}"
    metrics = {SAME[name]: value for name, value in launch.metrics.items() if name in SAME} | dict(launch.metrics)
    for name in (CYCLES, DURATION, CLOCK):
        if metrics.get(name) == 0.0:
            raise ConfigError(f"{where}: {name} is 0, which no launch takes")
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


def _on_trust(launches: Sequence[ProfiledLaunch], gpu: GpuSpec, name: str) -> list[str]:
    """Remark that only the command line names the GPU, out of several with one compute capability."""
    unnamed = [item for item in launches if item.capability and not item.device]
    if not unnamed or gpu.base_name not in FOLDERS.values():
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


def _unmeasured(name: str, judged: Sequence[LaunchCheck]) -> str:
    """Sentence on a tolerance whose metric no launch has, with the metric that may have been meant."""
    sentence = f"--tolerance {name}: no launch has that metric measured and predicted"
    known = {part.metric for item in judged for part in item.comparisons}
    meant = sorted(metric for metric in known if metric.partition(".")[0] == name.partition(".")[0]) or get_close_matches(
        name, known, n=1)
    return f"{sentence}; did you mean {meant[0]!r}?" if meant else sentence


def _judged(
    launch: ProfiledLaunch, model: Model, gpu: GpuSpec, limits: Mapping[str, float],
    simulated: dict[tuple[int, int, float], Result],
) -> LaunchCheck:
    mhz, clock = clock_of(launch, gpu)
    kernels = kernels_of_call(model.params(gpu).launch(gpu))
    kernel_idx = _which(kernels, {**_shape(launch), **launch.metrics})
    kernel = kernels[kernel_idx]
    key = (id(model), kernel_idx, mhz or 0.0)
    if key not in simulated:
        simulated[key] = simulate(kernel, gpu, clock=mhz or "single", l2=state_of(model), data="random")
    result = simulated[key]
    measured = {**_shape(launch), **launch.metrics}
    if measured.get(CLUSTER) == 0.0:
        measured[CLUSTER] = 1.0  # a launch without clusters
    predicted = predictions(result, measured, thread_numbers=thread_numbers(launch))
    floor = FLOOR_SHARE * touched_bytes(kernel)
    comparisons, remarks = [], []
    for metric, value in measured.items():
        if metric not in predicted:
            continue
        if metric.endswith("_rate.pct") and value > 100.0:
            remarks.append(f"{metric} is {value:g}, no rate: its parts were counted in different passes, not compared")
            continue
        if not mhz and metric.startswith("gpu__time_duration"):
            remarks.append(f"{metric} is not compared: the profile tells no clock")
            continue
        comparisons.append(
            Comparison(
                metric=metric, measured=value, predicted=predicted[metric], floor=floor if same_as(metric) in DRAM else 0.0,
                tolerance=tolerance_of(metric, model.kernel, gpu.name, limits),
            )
        )
    if len(kernels) > 1:
        remarks.append(
            f"a call of the model launches {len(kernels)} kernels: this launch is held against number {kernel_idx + 1} "
            f"alone, {kernel.kernel} of {kernel.num_ctas or 'as many as fit'} CTAs"
        )
    remarks += _remarks(launch, comparisons)
    order = sorted(comparisons, key=lambda item: (same_as(item.metric) not in (CYCLES, DURATION), item.passes is None))
    return LaunchCheck(
        launch=launch, model=model, comparisons=tuple(order), clock=clock, result=result, kernel_idx=kernel_idx,
        remarks=tuple(remarks),
    )


def _which(kernels: Sequence[Launch], measured: Mapping[str, float]) -> int:
    """Index of the kernel whose CTAs and threads equal those of ``measured``; 0 if none does."""
    for idx, kernel in enumerate(kernels):
        shape = {"launch__grid_size": kernel.num_ctas, "launch__block_size": kernel.num_threads}
        if all(measured.get(name) == value for name, value in shape.items()):
            return idx
    return 0


def _remarks(launch: ProfiledLaunch, comparisons: Sequence[Comparison]) -> list[str]:
    lines = []
    for item in comparisons:
        if item.is_of_floor:
            lines.append(
                f"{item.metric}: its difference is in percent of {item.floor:,.0f} bytes, the floor: {FLOOR_SHARE:.0%} of "
                "what the kernel touches, as less was measured (errors of next to nothing would be endless)"
            )
    if not any(item.passes is not None for item in comparisons):
        lines.append("no metric of it is judged: profile with --metrics sm__cycles_elapsed.max,dram__bytes_read.sum, ...")
    elif CYCLES not in {same_as(item.metric) for item in comparisons}:
        lines.append(f"{CYCLES} is missing: cycles are not compared")
    if any(item.metric.startswith("launch__") and item.passes is False and "size" in item.metric for item in comparisons):
        lines.append("it is launched otherwise than the model: are these its options?")
    if not launch.capability:
        lines.append("the profile does not tell on what it ran")
    return lines


def _shape(launch: ProfiledLaunch) -> dict[str, float]:
    shapes = {"launch__grid_size": launch.grid, "launch__block_size": launch.block}
    return {name: float(math.prod(shape)) for name, shape in shapes.items() if shape}


def thread_numbers(launch: ProfiledLaunch) -> int:
    """Reads of ``SR_TID`` by each warp: one per dimension along which a block has more than one thread."""
    return max(THREAD_NUMBERS, sum(extent > 1 for extent in launch.block))


def predictions(result: Result, wanted: Iterable[str], *, thread_numbers: int = THREAD_NUMBERS) -> dict[str, float]:
    """Predicted numbers by metric: counters as Nsight Compute counts them, with sums and bytes per second."""
    numbers = as_counted(result.counters, thread_numbers)
    read, written = (numbers[name] for name in DRAM)
    numbers["dram__bytes.sum"] = read + written
    for name in ("read", "write"):
        numbers[f"dram__sectors_{name}.sum"] = numbers[f"dram__bytes_{name}.sum"] / 32.0
    numbers |= {name: numbers[same] for name, same in SAME.items() if same in numbers}
    for name in wanted:
        base = name.removesuffix(".per_second")
        if base != name and base in numbers and base.endswith(".sum") and result.time_us:
            numbers[name] = numbers[base] / result.time_us * 1e6
    return numbers


def _several(judged: Sequence[LaunchCheck]) -> list[str]:
    """Remarks on models of more than one launch, and on their tolerances for metrics that none of these has."""
    names: dict[int, list[str]] = {}
    for item in judged:
        names.setdefault(id(item.model), []).append(item.launch.idx)
    sentences = [
        f"one model, {item.model.kernel}, stands for launches {', '.join(idxs)}: all of them are judged"
        for item in judged if len(idxs := names[id(item.model)]) > 1 and item.launch.idx == idxs[0]
    ]  # fmt: skip
    for first in {id(item.model): item.model for item in judged}.values():
        of_model = [item for item in judged if item.model is first]
        sentences += [
            f"tolerance {name} of {first.kernel}: no launch of it has that metric measured and predicted"
            for name in _unused(first.tolerances, of_model)
        ]
    return sentences


def _not_worse(worse: Mapping[str, float], judged: Sequence[LaunchCheck]) -> tuple[str, ...]:
    """Names in ``worse`` that no launch has both now and in the baseline."""
    seen = {change.metric for item in judged for change in item.changes}
    names = {kind.name for kind in map(class_of, seen) if kind is not None and kind.baseline is not None}
    return tuple(name for name in worse if name not in seen | names)


def _unused(tolerances: Mapping[str, float], judged: Sequence[LaunchCheck]) -> list[str]:
    """Metrics and classes in ``tolerances`` that no launch has."""
    seen = {part.metric for item in judged for part in item.comparisons}
    names = {kind.name for kind in map(class_of, seen) if kind is not None}
    return [name for name in tolerances if name not in seen | names]
