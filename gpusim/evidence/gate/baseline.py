"""Nsight Compute profile against an older one: metrics that became worse, and their causes.

In: a judged launch, and the one of the older profile that it is compared with. Out: changes metric by metric, and sentences.

Causes are counts that grew (each with its usual reasons), the clock, and the launch's shape. The model adds which part is
busy. If the options were different before (``was``), the model predicts both sets, and names the part that would win the
most back if made free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gpusim.analysis.explain import explain_launch
from gpusim.errors import GpusimError
from gpusim.evidence.cases.validation_kernel import CLOCK, CYCLES, DURATION
from gpusim.evidence.gate.models import kernels_of_call, state_of
from gpusim.evidence.gate.tolerances import Tolerance
from gpusim.evidence.gate.verdicts import Change, LaunchCheck
from gpusim.evidence.nsight.launches import ProfiledLaunch
from gpusim.evidence.nsight.metrics import SAME, class_of, same_as
from gpusim.simulate.run import simulate

if TYPE_CHECKING:
    from gpusim.evidence.gate.models import Model
    from gpusim.machine.config import GpuSpec
    from gpusim.simulate.result import Result
    from gpusim.workload.launch import Launch

MEANINGS: tuple[tuple[str, str, str], ...] = (
    ("l1tex__data_pipe_lsu_wavefronts", "wavefronts of shared memory", "bank conflicts, or more accesses"),
    ("dram__bytes_read", "bytes read from memory", "less is reused in L2, or more is asked for"),
    ("dram__bytes_write", "bytes written to memory", "more is stored, or evicted before it is overwritten"),
    ("dram__bytes", "bytes of memory", "less is reused in L2, or more is asked for"),
    ("lts__t_sectors_srcunit_tex_op_read", "sectors read from L2", "accesses that coalesce less, or tiles shared less"),
    ("lts__t_sectors_srcunit_tex_op_write", "sectors written to L2", "stores that coalesce less, or more of them"),
    ("l1tex__t_sectors", "sectors that L1 is asked for", "accesses that coalesce less"),
    ("l1tex__t_requests", "requests to L1", "more or narrower loads and stores"),
    ("smsp__inst_executed", "instructions", "more work by each thread, less unrolled, or spills"),
    ("sm__inst_executed", "instructions", "more work by each thread, less unrolled, or spills"),
)
"""Rows of (beginning of a metric, what it counts, why it grows)."""

PARTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "l1tex__data_pipe_lsu_wavefronts": ("smem", "shared memory"), "dram__bytes": ("hbm", "HBM"),
        "lts__t_sectors": ("l2", "the L2 slices"), "smsp__inst_executed": ("issue", "the issue slots"),
        "sm__inst_executed": ("issue", "the issue slots"),
    }
)
"""Part of the model that processes a count, with its name."""

NOTABLE = 0.02
"""Relative change below which a count explains nothing."""
FALLEN = 0.01
"""Relative decrease from which a lower clock is mentioned."""


def paired(now: Sequence[ProfiledLaunch], old: Sequence[ProfiledLaunch]) -> dict[int, ProfiledLaunch]:
    """Older launch of each launch, by the index of the latter: of equal name, grid and block, or else of its name.

    Launches that are equal so are paired in their order. One without an older launch has no entry.
    """
    found: dict[int, ProfiledLaunch] = {}
    ways: tuple[Callable[[ProfiledLaunch], Hashable], ...] = (
        lambda launch: (launch.kernel, launch.grid, launch.block), lambda launch: launch.kernel,
    )  # fmt: skip
    left = list(old)
    for key_of in ways:
        for idx, launch in enumerate(now):
            same = (place for place, then in enumerate(left) if key_of(then) == key_of(launch))
            if idx not in found and (place := next(same, None)) is not None:
                found[idx] = left.pop(place)
    return found


def against(
    check: LaunchCheck, then: ProfiledLaunch | None, name: str, gpu: GpuSpec | None, asked: Mapping[str, float]
) -> LaunchCheck:
    """``check`` with its changes since the launch ``then`` of the profile ``name``, and their causes."""
    now, remarks = check.launch, check.remarks
    if then is None:
        return replace(check, remarks=(*remarks, f"launch {now.idx} is compared with nothing: {name} has fewer launches of "
                                                 f"{now.kernel} than this profile"))
    new_changes = changes(then, now, {**(check.model.worse if check.model else {}), **asked})
    if not new_changes:
        return replace(check, remarks=(*remarks, f"{name} has no metric in common with it"))
    lacking = tuple(metric for metric in then.metrics if metric not in now.metrics and class_of(metric) is not None)
    if lacking:
        remarks = (*remarks, f"{name} has {', '.join(lacking)}, this launch has not: not compared")
    return replace(
        check, changes=tuple(new_changes), causes=tuple(explain_changes(new_changes, check, then, gpu)), lacking=lacking,
        remarks=remarks, is_other_launch=bool(_new_shapes(then, now)),
    )


def changes(before: ProfiledLaunch, now: ProfiledLaunch, asked: Mapping[str, float]) -> list[Change]:
    """Changes of the classified metrics that both launches have; cycles and time first."""
    compared = []
    for metric in sorted(now.metrics, key=lambda name: (same_as(name) != CYCLES, same_as(name) != DURATION, name)):
        kind = class_of(metric)
        if kind is None or metric not in before.metrics:
            continue
        tolerance = None
        limit = asked.get(metric, asked.get(kind.name, kind.baseline))
        if limit is not None:
            source = "asked for" if metric in asked or kind.name in asked else f"last time, {kind.name}"
            tolerance = Tolerance(
                limit=limit, is_points=kind.is_points, source=source, absolute=getattr(limit, "absolute", 0.0)
            )
        compared.append(
            Change(
                metric=metric, before=before.metrics[metric], now=now.metrics[metric], tolerance=tolerance,
                is_better_high=kind.is_better_high,
            )
        )
    return compared


def explain_changes(
    new_changes: Sequence[Change], check: LaunchCheck, before: ProfiledLaunch, gpu: GpuSpec | None
) -> list[str]:
    """Sentences on the causes: counts that grew, the clock, and the model's view."""
    slower = [change for change in new_changes if same_as(change.metric) in (CYCLES, DURATION) and change.is_worse]
    sentences = _launch_sentences(before, check.launch)
    old, new = _clock_mhz(before), _clock_mhz(check.launch)
    if old is not None and new is not None and new < old * (1.0 - FALLEN):
        sentences.append(f"the SM clock fell from {old:,.0f} to {new:,.0f} MHz: time grew {_grew(old / new)} by that alone")
    grown = [(change, meaning) for change in new_changes if change.factor > 1.0 + NOTABLE
             if (meaning := next((row[1:] for row in MEANINGS if change.metric.startswith(row[0])), None))]
    for change, (what, why) in sorted(grown, key=lambda pair: -pair[0].factor):
        sentences.append(f"{what} grew {_grew(change.factor)} ({change.metric}): {why}{_busy(change.metric, check.result)}")
    if slower and not grown and not sentences:
        sentences.append(
            "no count that both profiles have grew"
            + (", and the clock did not fall" if old is not None and new is not None else "; the clock is not known")
            + ": what changed is waiting (latency, occupancy, order)" + (
                "" if check.result is None else f"; the model is bound by {check.result.bound_by}: {check.result.reason}"
            )
        )
    if check.model is not None and check.result is not None and gpu is not None and check.model.was:
        sentences += _by_model(check, check.model, check.result, gpu, is_slower=bool(slower))
    return sentences


def _grew(factor: float) -> str:
    """Growth by a factor, in words.

    >>> _grew(8.0), _grew(1.12), _grew(float("inf"))
    ('8x', 'by 12 %', 'from nothing')
    """
    if math.isinf(factor):
        return "from nothing"
    return f"{factor:.3g}x" if factor >= 1.995 else f"by {100.0 * (factor - 1.0):.2g} %"


def _busy(metric: str, result: Result | None) -> str:
    """Remark on how busy the part that processes a count is in the model; empty without a model."""
    if result is None:
        return ""
    for start, (part, name) in PARTS.items():
        if metric.startswith(start) and part in result.busy:
            return f"; in the model {name} is busy {result.busy[part]:.0%} of the time" + (
                ", and bounds the kernel" if result.bound_by == part else ""
            )
    return ""


def _new_shapes(before: ProfiledLaunch, now: ProfiledLaunch) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """(name, then, now) of grid and block, where they are known and differ."""
    shapes = (("grid", before.grid, now.grid), ("block", before.block, now.block))
    return [(name, old, new) for name, old, new in shapes if old and new and old != new]


def _launch_sentences(before: ProfiledLaunch, now: ProfiledLaunch) -> list[str]:
    sentences = [
        f"the {name} was {'x'.join(map(str, old))}, now {'x'.join(map(str, new))}: another launch"
        for name, old, new in _new_shapes(before, now)
    ]
    old, new = (launch.metrics.get("launch__registers_per_thread") for launch in (before, now))
    if old is not None and new is not None and old != new:
        sentences.append(f"registers of a thread were {old:.0f}, now {new:.0f}")
    return sentences


def _clock_mhz(launch: ProfiledLaunch) -> float | None:
    """SM clock of a launch: as counted, or cycles over time; None where the profile has neither."""
    metrics = {SAME[name]: value for name, value in launch.metrics.items() if name in SAME} | dict(launch.metrics)
    if metrics.get(CLOCK):
        return metrics[CLOCK] * 1e-6
    return metrics[CYCLES] / metrics[DURATION] * 1e3 if metrics.get(CYCLES) and metrics.get(DURATION) else None


def _by_model(check: LaunchCheck, model: Model, now: Result, gpu: GpuSpec, *, is_slower: bool) -> list[str]:
    """Sentences on the model's predictions for both sets of options, at one clock."""
    l2 = state_of(model)

    def kernel_of(changes: Mapping[str, Any]) -> Launch:
        kernels = kernels_of_call(model.launch(gpu, changes))
        return kernels[min(check.kernel_idx, len(kernels) - 1)]

    then = simulate(kernel_of(model.was), gpu, clock=now.sm_clock_mhz, l2=l2)
    changed = ", ".join(f"{name} {_text(old)} to {_text(model.options.get(name))}" for name, old in model.was.items())
    share = 100.0 * (now.cycles / then.cycles - 1.0)
    bound = f"bound by {then.bound_by} before and now" if then.bound_by == now.bound_by else (
        f"bound by {then.bound_by} before, by {now.bound_by} now"
    )
    sentences = [f"the model predicts {share:+.1f} % cycles for {changed}: {bound}: {now.reason}"]
    if is_slower:
        try:
            fixes = explain_launch(kernel_of({}), gpu, clock=now.sm_clock_mhz, l2=l2)
        except GpusimError as error:
            return [*sentences, f"what would win it back is not known: {error}"]
        if fixes.best is not None:
            sentences.append(
                f"in the model {fixes.best.title!r} would save most, {fixes.best.share:.0%} of the cycles of now"
            )
    return sentences


def _text(value: Any) -> str:
    return "its default" if value is None else str(value)
