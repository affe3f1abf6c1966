"""The gate: compares launches of an Nsight Compute profile with the predictions of their kernel models.

In: a profile, which kernel model (with which options) belongs to which launch, a GPU. Out: a :class:`Report` with a verdict
for each metric. Without a model, two profiles are compared launch by launch.

Cycles are predicted at the clock of the launch. Caches are flushed unless a model specifies warm, since Nsight Compute
flushes them before each pass unless ``--cache-control none`` is given. If one call of a model launches several kernels, each
is compared separately, as it is profiled.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError, nearest
from gpusim.evidence.cases.validation_kernel import CYCLES, DRAM, DURATION, FLOOR_SHARE, HIT_RATE, touched_bytes
from gpusim.evidence.gate.baseline import against, paired
from gpusim.evidence.gate.gpu_refusals import (
    NotComparableError,
    on_gpu,
    refuse_clock,
    refuse_impossible,
    refuse_other_gpu,
    refuse_two_gpus,
)
from gpusim.evidence.gate.models import Model, clock_of, kernels_of_call, model_for, state_of
from gpusim.evidence.gate.predictions import SOURCE_WAVEFRONTS, is_shown_only, predictions, source_wavefronts, thread_numbers
from gpusim.evidence.gate.stall_reasons import P90_POINTS, stall_reasons
from gpusim.evidence.gate.throughputs import without_rule
from gpusim.evidence.gate.tolerances import Tolerance, tolerance_of
from gpusim.evidence.gate.verdicts import Comparison, LaunchCheck, Report
from gpusim.evidence.nsight.launches import ProfiledLaunch, ProfileFile
from gpusim.evidence.nsight.metrics import class_of, same_as
from gpusim.evidence.nsight.profiles import read_profile
from gpusim.evidence.nsight.units import Decimal
from gpusim.simulate.run import simulate

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec
    from gpusim.simulate.result import Result
    from gpusim.simulate.wasm_module import Progress
    from gpusim.workload.launch import Launch

MOST_NAMES = 3
"""Kernel names or metrics in a remark."""

CLUSTER = "launch__cluster_size"
ATTRIBUTES = ("device__attribute_", "launch__")
"""Beginnings of metrics that state what ran, and that no remark lists."""
EXPECTED = (*DRAM, HIT_RATE)
"""Metrics without which little is judged, besides cycles and time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits by metric or class, which override those of the models, and what else is requested of a check."""

    tolerances: Mapping[str, float] = field(default_factory=dict)
    """Allowed differences between prediction and measurement, in percent or points."""
    worse: Mapping[str, float] = field(default_factory=dict)
    """Allowed increases over the baseline, in percent or points."""
    clock_mhz: float | None = None
    """SM clock of launches for which the profile tells none."""
    match: str = ""
    """Expression of the kernel names that are compared where no model selects them."""
    is_strict: bool = False
    """Whether the report is "not comparable" if a model or launch has no counterpart, or a launch has no cycles and time."""
    on_progress: Progress | None = None
    """Function that is called during simulations, as that of ``simulate``."""


NO_LIMITS = Limits()


def check_profile(
    path: Path,
    *,
    gpu: GpuSpec | None,
    models: Sequence[Model],
    limits: Limits = NO_LIMITS,
    baseline: Path | None = None,
    decimal: Decimal | None = None,
) -> Report:
    """Compare every launch of a profile with its model, and with ``baseline``, an older profile.

    Without ``models``, all launches that ``limits`` select are compared with the baseline alone.

    Raises:
        NotComparableError: the profile is of another architecture, or has no launch of these kernels.
        GpusimError: the profile, the options or the models are refused.
    """
    profile = read_profile(path, decimal=decimal)
    old = None if baseline is None else read_profile(baseline, decimal=decimal)
    if old is None and not models:
        raise ConfigError("a check wants a kernel model or an older profile (--baseline)")
    if limits.match and old is not None and not models:
        profile, old = (_of_names(each, limits.match) for each in (profile, old))
    for launch in old.launches if old is not None else ():
        if _is_compared(launch, models):
            refuse_other_gpu(launch, gpu, baseline or path)
            refuse_impossible(launch, gpu, baseline or path)
    _refuse_mixture(profile, models)
    remarks = list(profile.remarks)
    if gpu is not None:
        refuse_clock(limits.clock_mhz, gpu)
        for stated in models:
            stated.refuse_expressions()
            if not stated.computed:
                stated.launch(gpu)  # refuses bad options even of models without a launch
    judged, unmodelled, met = _each_judged(profile, models, gpu, limits)
    if not judged:
        names = _some_names([item.kernel for item in profile.launches])
        how = "match of a [[model]] takes such a name whole, regex a part of it" if models[0].source else (
            "--match takes a part of such a name")
        raise NotComparableError(f"{path}: no model stands for any of its launches ({names}); {how}")
    if unmodelled:
        names = _some_names([launch.kernel for launch in unmodelled])
        remarks.append(f"{len(unmodelled)} launch{'es' * (len(unmodelled) > 1)} without a model, not judged: {names}")
    remarks += on_gpu([item.launch for item in judged], gpu, "the profile") + _on_metrics(judged)
    gone: tuple[str, ...] = ()
    if old is not None:
        older = [item for item in old.launches if _is_compared(item, models)]
        remarks += on_gpu(older, gpu, old.path.name)
        refuse_two_gpus([item.launch for item in judged], older, old.path)
        then = paired(profile.launches, old.launches)
        place = {id(launch): idx for idx, launch in enumerate(profile.launches)}
        judged = [against(item, then.get(place[id(item.launch)]), old.path.name, gpu, limits.worse) for item in judged]
        gone = _gone(profile, old, models)
        remarks += [
            f"{old.path.name} has {count} launch{'es' if count > 1 else ''} of {name} more than this profile, not compared"
            for name, count in Counter(gone).items()
        ]
    unmet = [model for model in models if id(model) not in met]
    remarks += _of_models(models, unmet, profile, has_baseline=old is not None)
    unused = _unused(limits.tolerances, judged)
    remarks += _several(judged)
    remarks += [_unmeasured(name, judged) for name in unused]
    return Report(
        profile=path, gpu="" if gpu is None else gpu.name, launches=tuple(judged), remarks=tuple(remarks),
        baseline=baseline, lacking=tuple(unused), gone=gone,
        not_worse=() if old is None else _not_worse(limits.worse, judged),
        unmet=tuple(item.awaited for item in unmet), unmodelled=tuple(unmodelled), is_strict=limits.is_strict,
        lost=tuple(name for name in profile.lost if _may_be_judged(name, models, judged)),
    )


def _each_judged(
    profile: ProfileFile, models: Sequence[Model], gpu: GpuSpec | None, limits: Limits
) -> tuple[list[LaunchCheck], list[ProfiledLaunch], set[int]]:
    """Launches held against their models, those without a model, and the ``id`` of each model that has a launch."""
    judged: list[LaunchCheck] = []
    unmodelled: list[ProfiledLaunch] = []
    simulated: dict[tuple[int, int, float], Result] = {}
    made: dict[tuple[int, str], Model] = {}
    for launch in profile.launches:
        model = model_for(launch, models)
        if model is None and models:
            unmodelled.append(launch)
            continue
        refuse_other_gpu(launch, gpu, profile.path)
        refuse_impossible(launch, gpu, profile.path)
        if model is None or gpu is None:
            judged.append(LaunchCheck(launch=launch, model=None, result=None, comparisons=(), clock=""))
        else:
            for_launch = model.of(launch)
            for_launch = made.setdefault((id(model), repr(for_launch.options)), for_launch)
            judged.append(_judged(launch, for_launch, gpu, limits, simulated))
    return judged, unmodelled, {idx for idx, _ in made}


def _of_names(profile: ProfileFile, match: str) -> ProfileFile:
    """Profile of the launches whose kernel names have an expression."""
    found = tuple(launch for launch in profile.launches if re.search(match, launch.kernel))
    if not found:
        names = _some_names([launch.kernel for launch in profile.launches])
        raise NotComparableError(f"{profile.path}: no launch's name has {match!r} ({names}); --match takes a part of a name")
    lost = tuple(name for name in profile.lost if re.search(match, name))
    return replace(profile, launches=found, lost=lost)


def _is_compared(launch: ProfiledLaunch, models: Sequence[Model]) -> bool:
    """Whether a launch has a model, or is compared without one."""
    return not models or model_for(launch, models) is not None


def _may_be_judged(name: str, models: Sequence[Model], judged: Sequence[LaunchCheck]) -> bool:
    """Whether a lost launch is of a kernel that is judged; the profiler's messages have names without templates."""
    kin = any(name in item.launch.kernel or item.launch.kernel in name for item in judged)
    return kin or not models or any(model.is_named(name) for model in models)


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
    then = Counter(launch.kernel for launch in old.launches if _is_compared(launch, models))
    if models and all(model.is_for_all for model in models):  # one model without a name is for this profile
        then = Counter({name: num for name, num in then.items() if name in now})
    return tuple((then - now).elements())


def _refuse_mixture(profile: ProfileFile, models: Sequence[Model]) -> None:
    """Check that a single model without a name has launches of one kernel only."""
    names = list(dict.fromkeys(launch.kernel for launch in profile.launches))
    if len(names) > 1 and any(model.is_for_all for model in models):
        raise ConfigError(
            f"{profile.path}: holds launches of {len(names)} kernels ({', '.join(names[:4])}): say which with --match NAME, "
            "or give --models FILE"
        )


def _unmeasured(name: str, judged: Sequence[LaunchCheck]) -> str:
    """Sentence on a tolerance whose metric no launch has, with the metric that may have been meant."""
    sentence = f"--tolerance {name}: no launch has that metric measured and predicted"
    known = {part.metric for item in judged for part in item.comparisons}
    same = (metric for metric in known if metric.partition(".")[0] == name.partition(".")[0])
    meant = sorted(same, key=lambda each: (each != CYCLES, each)) or get_close_matches(
        name, known, n=1)
    return f"{sentence}; did you mean {meant[0]!r}?" if meant else sentence


def _judged(
    launch: ProfiledLaunch, model: Model, gpu: GpuSpec, limits: Limits, simulated: dict[tuple[int, int, float], Result]
) -> LaunchCheck:
    mhz, clock = clock_of(launch, gpu, limits.clock_mhz)
    asked = {**model.tolerances, **limits.tolerances}
    kernels = kernels_of_call(model.launch(gpu))
    measured = {**_shape(launch), **launch.metrics}
    kernel_idx = _which(kernels, measured) if model.kernel_idx is None else model.kernel_idx
    kernel = kernels[kernel_idx]
    key = (id(model), kernel_idx, mhz or 0.0)
    if key not in simulated:
        simulated[key] = simulate(
            kernel, gpu, clock=mhz or "single", l2=state_of(model), data="random", on_progress=limits.on_progress
        )
    result = simulated[key]
    if measured.get(CLUSTER) == 0.0:
        measured[CLUSTER] = 1.0  # a launch without clusters
    predicted = predictions(result, measured, gpu=gpu, thread_numbers=thread_numbers(launch))
    predicted |= {name: share for name, share in stall_reasons(result, kernel).items() if name in P90_POINTS}
    if SOURCE_WAVEFRONTS & set(measured):
        without = simulate(kernel, gpu, clock=result.sm_clock_mhz, l2=state_of(model), ideals=("bank_conflicts",))
        predicted |= source_wavefronts(result, without)
    floor = FLOOR_SHARE * touched_bytes(kernel)
    comparisons, remarks, unpredicted = [], [], []
    for metric, value in measured.items():
        if metric not in predicted:
            unpredicted.append(metric)
            continue
        if metric.endswith("_rate.pct") and value > 100.0:
            remarks.append(f"{metric} is {value:g}, no rate: its parts were counted in different passes, not compared")
            continue
        if not mhz and metric.startswith("gpu__time_duration"):
            remarks.append(f"{metric} is not compared: the profile tells no clock; give --clock MHZ")
            continue
        comparisons.append(
            Comparison(
                metric=metric, measured=value, predicted=predicted[metric], floor=floor if same_as(metric) in DRAM else 0.0,
                tolerance=_tolerance(metric, kernel.kernel if kernel_idx else model.kernel, gpu, asked, result),
            )
        )
    if len(kernels) > 1:
        remarks.append(
            f"a call of the model launches {len(kernels)} kernels: this launch is held against number {kernel_idx + 1} "
            f"alone, {kernel.kernel} of {kernel.num_ctas or 'as many as fit'} CTAs"
        )
    remarks += [*_remarks(launch, comparisons), *filter(None, [model.doubt])]
    order = sorted(comparisons, key=lambda item: (same_as(item.metric) not in (CYCLES, DURATION), item.passes is None))
    return LaunchCheck(
        launch=launch, model=model, comparisons=tuple(order), clock=clock, result=result, kernel_idx=kernel_idx,
        remarks=tuple(remarks), unpredicted=tuple(name for name in unpredicted if not name.startswith(ATTRIBUTES)),
        absent=tuple(name for name in EXPECTED if predicted.get(name) and name not in {same_as(each) for each in measured}),
    )


def _tolerance(
    metric: str, family: str, gpu: GpuSpec, asked: Mapping[str, float], result: Result
) -> Tolerance | None:
    """Tolerance of a metric; None or infinite where it is only shown."""
    if metric in P90_POINTS and metric not in asked:
        error = f"nine in ten measured GEMMs were within {P90_POINTS[metric]:g} points"
        return Tolerance(limit=math.inf, source=f"shown only: {error}")
    if metric not in asked and is_shown_only(metric, result):
        return None
    return tolerance_of(metric, family, gpu.name, asked)


def _which(kernels: Sequence[Launch], measured: Mapping[str, float]) -> int:
    """Index of the kernel whose CTAs and threads equal those of ``measured``; 0 if none does."""
    for idx, kernel in enumerate(kernels):
        shape = {"launch__grid_size": kernel.num_ctas, "launch__block_size": kernel.num_threads}
        if all(measured.get(name) == value for name, value in shape.items()):
            return idx
    return 0


def _on_metrics(judged: Sequence[LaunchCheck]) -> list[str]:
    """Remarks on metrics of the profile that are not predicted, and on those that it lacks, a line each."""
    lines = []
    unpredicted = [name for item in judged for name in item.unpredicted]
    if unpredicted:
        lines.append(f"not predicted, and so not compared: {_some_names(unpredicted)}")
    if parts := without_rule({part.metric for item in judged for part in item.comparisons}):
        lines.append(parts)
    absent = [name for item in judged for name in item.absent]
    if absent:
        lines.append(f"judged where a profile has it, and not in this one: {_some_names(absent)}")
    return lines


def _remarks(launch: ProfiledLaunch, comparisons: Sequence[Comparison]) -> list[str]:
    lines = []
    for item in comparisons:
        if item.is_of_floor:
            lines.append(
                f"{item.metric}: less was measured than {item.floor:,.0f} bytes, {FLOOR_SHARE:.0%} of what the kernel "
                "touches: its difference is in percent of these bytes"
            )
    if not any(item.passes is not None for item in comparisons):
        lines.append("no metric of it is judged: profile with --metrics sm__cycles_elapsed.max,dram__bytes_read.sum, ...")
    elif not {CYCLES, DURATION} & {same_as(item.metric) for item in comparisons}:
        lines.append(f"{CYCLES} is missing: cycles are not compared")
    if any(item.metric.startswith("launch__") and item.passes is False and "size" in item.metric for item in comparisons):
        lines.append("it is launched otherwise than the model: are these its options?")
    if not launch.capability:
        lines.append("the profile does not tell on what it ran")
    return lines


def _shape(launch: ProfiledLaunch) -> dict[str, float]:
    shapes = {"launch__grid_size": launch.grid, "launch__block_size": launch.block}
    return {name: float(math.prod(shape)) for name, shape in shapes.items() if shape}


def _several(judged: Sequence[LaunchCheck]) -> list[str]:
    """Remarks on models of more than one launch, and on their tolerances for metrics that none of these has."""
    names: dict[int, list[str]] = {}
    models = {id(item.model): item.model for item in judged if item.model is not None}
    for item in judged:
        names.setdefault(id(item.model), []).append(item.launch.idx)
    sentences = [
        f"one model, {model.kernel}, stands for launches {', '.join(idxs)}: all of them are judged"
        for key, model in models.items() if len(idxs := names[key]) > 1
    ]  # fmt: skip
    for first in models.values():
        of_model = [item for item in judged if item.model is first]
        sentences += [
            f"tolerance {name} of {first.kernel}: no launch of it has that metric measured and predicted"
            for name in _unused(first.tolerances, of_model)
        ]
    return sentences


def _not_worse(worse: Mapping[str, float], judged: Sequence[LaunchCheck]) -> tuple[str, ...]:
    """Names in ``worse`` that no launch has both now and in the baseline."""
    seen = {change.metric for item in judged for change in item.changes}
    names = {kind.name for kind in map(class_of, seen) if kind is not None}
    return tuple(name for name in worse if name not in seen | names)


def _unused(tolerances: Mapping[str, float], judged: Sequence[LaunchCheck]) -> list[str]:
    """Metrics and classes in ``tolerances`` that no launch has."""
    seen = {part.metric for item in judged for part in item.comparisons}
    names = {kind.name for kind in map(class_of, seen) if kind is not None}
    return [name for name in tolerances if name not in seen | names]
