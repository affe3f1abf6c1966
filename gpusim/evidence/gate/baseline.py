"""Nsight Compute profile against an older one: metrics that became worse, and their causes.

In: a judged launch, both profiles. Out: changes metric by metric, and sentences. Launches are paired by kernel name and by
their index among launches of that name.

Causes are counts that grew (each with its usual reasons), the clock, and the launch's shape. The model adds which part is
busy. If the options were different before (``was``), the model predicts both sets, and names the part that would win the
most back if made free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gpusim.analysis.explain import explain
from gpusim.errors import GpusimError
from gpusim.evidence.cases.validation_kernel import CYCLES, DURATION
from gpusim.evidence.gate.models import clock_of, kernels_of_call, state_of
from gpusim.evidence.gate.tolerances import Tolerance, class_of, same_as
from gpusim.evidence.gate.verdicts import Change, LaunchCheck
from gpusim.evidence.nsight.profiles import ProfiledLaunch, ProfileFile
from gpusim.simulate.run import simulate

if TYPE_CHECKING:
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


def against(
    item: LaunchCheck, profile: ProfileFile, old: ProfileFile, gpu: GpuSpec, asked: Mapping[str, float]
) -> LaunchCheck:
    """``item`` with its changes since the ``old`` profile and their causes; with a remark if that lacks the launch."""
    same = [launch for launch in profile.launches if launch.kernel == item.launch.kernel]
    then = [launch for launch in old.launches if launch.kernel == item.launch.kernel]
    place = same.index(item.launch)
    if place >= len(then):
        said = f"{old.path.name} has {len(then)} launches of {item.launch.kernel}, not this one: nothing to compare it with"
        return replace(item, remarks=(*item.remarks, said))
    found = changes(then[place], item.launch, {**item.model.worse, **asked})
    if not found:
        said = f"{old.path.name} has no metric in common with it"
        return replace(item, remarks=(*item.remarks, said))
    causes = explain_changes(found, item, then[place], gpu)
    lacking = tuple(
        name for name in then[place].metrics if name not in item.launch.metrics and class_of(name) is not None
    )
    remarks = item.remarks
    if lacking:
        remarks = (*remarks, f"{old.path.name} has {', '.join(lacking)}, this launch has not: not compared")
    is_other = any(old and new and old != new for old, new in _shapes(then[place], item.launch))
    return replace(
        item, changes=tuple(found), causes=tuple(causes), lacking=lacking, remarks=remarks, is_other_launch=is_other
    )


def changes(before: ProfiledLaunch, now: ProfiledLaunch, asked: Mapping[str, float]) -> list[Change]:
    """Changes of the classified metrics that both launches have; cycles and time first."""
    found = []
    for metric in sorted(now.metrics, key=lambda name: (same_as(name) != CYCLES, same_as(name) != DURATION, name)):
        kind = class_of(metric)
        if kind is None or metric not in before.metrics:
            continue
        tolerance = None
        limit = asked.get(metric, asked.get(kind.name, kind.baseline))
        if limit is not None:
            source = "asked for" if metric in asked or kind.name in asked else f"last time, {kind.name}"
            tolerance = Tolerance(limit=limit, is_points=kind.is_points, source=source)
        found.append(
            Change(
                metric=metric, before=before.metrics[metric], now=now.metrics[metric], tolerance=tolerance,
                is_better_high=kind.is_better_high,
            )
        )
    return found


def explain_changes(
    found: Sequence[Change], item: LaunchCheck, before: ProfiledLaunch, gpu: GpuSpec
) -> list[str]:
    """Sentences on the causes: counts that grew, the clock, and the model's view."""
    slower = [change for change in found if same_as(change.metric) in (CYCLES, DURATION) and change.is_worse]
    said = list(_launch_sentences(before, item.launch))
    clock = _clock_sentence(before, item.launch, gpu)
    if clock:
        said.append(clock)
    grown = [item for item in found if _meaning(item.metric) and item.factor > 1.0 + NOTABLE]
    grown.sort(key=lambda item: -item.factor)
    for change in grown:
        _, what, why = _meaning(change.metric) or ("", "", "")
        said.append(f"{what} grew {_grew(change.factor)} ({change.metric}): {why}{_busy(change.metric, item.result)}")
    if slower and not grown and not said:
        said.append(
            "no count that both profiles have grew, and the clock did not fall: what changed is waiting (latency, "
            f"occupancy, order); the model is bound by {item.result.bound_by}: {item.result.reason}"
        )
    if item.model.was:
        said += _by_model(item, gpu, is_slower=bool(slower))
    return said


def _meaning(metric: str) -> tuple[str, str, str] | None:
    return next((row for row in MEANINGS if metric.startswith(row[0])), None)


def _grew(factor: float) -> str:
    """Growth by a factor, in words.

    >>> _grew(8.0), _grew(1.12), _grew(float("inf"))
    ('8x', 'by 12 %', 'from nothing')
    """
    if math.isinf(factor):
        return "from nothing"
    return f"{factor:.3g}x" if factor >= 1.995 else f"by {100.0 * (factor - 1.0):.2g} %"


def _busy(metric: str, result: Result) -> str:
    """Remark on how busy the part that processes a count is in the model."""
    for start, (part, name) in PARTS.items():
        if metric.startswith(start) and part in result.busy:
            return f"; in the model {name} is busy {result.busy[part]:.0%} of the time" + (
                ", and bounds the kernel" if result.bound_by == part else ""
            )
    return ""


def _shapes(before: ProfiledLaunch, now: ProfiledLaunch) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """(then, now) of grid and block."""
    return (before.grid, now.grid), (before.block, now.block)


def _launch_sentences(before: ProfiledLaunch, now: ProfiledLaunch) -> list[str]:
    said = []
    for what, (old, new) in zip(("grid", "block"), _shapes(before, now), strict=True):
        if old and new and old != new:
            said.append(f"the {what} was {'x'.join(map(str, old))}, now {'x'.join(map(str, new))}: another launch")
    name = "launch__registers_per_thread"
    if name in before.metrics and name in now.metrics and before.metrics[name] != now.metrics[name]:
        said.append(f"registers of a thread were {before.metrics[name]:.0f}, now {now.metrics[name]:.0f}")
    return said


def _clock_sentence(before: ProfiledLaunch, now: ProfiledLaunch, gpu: GpuSpec) -> str:
    """Sentence if the SM clock fell, which cycles do not show."""
    old, new = clock_of(before, gpu)[0], clock_of(now, gpu)[0]
    if old is None or new is None or new >= old * (1.0 - FALLEN):
        return ""
    return f"the SM clock fell from {old:,.0f} to {new:,.0f} MHz: time grew {_grew(old / new)} by that alone"


def _by_model(item: LaunchCheck, gpu: GpuSpec, *, is_slower: bool) -> list[str]:
    """Sentences on the model's predictions for both sets of options, at one clock."""
    model, now, l2 = item.model, item.result, state_of(item.model)

    def kernel_of(changes: Mapping[str, Any]) -> Launch:
        kernels = kernels_of_call(model.params(gpu, changes).launch(gpu))
        return kernels[min(item.kernel_idx, len(kernels) - 1)]

    then = simulate(kernel_of(model.was), gpu, clock=now.sm_clock_mhz, l2=l2)
    options = {**dict.fromkeys(model.was), **{name: model.options.get(name) for name in model.was}}
    told = ", ".join(f"{name} {_text(model.was[name])} to {_text(options[name])}" for name in model.was)
    share = 100.0 * (now.cycles / then.cycles - 1.0)
    bound = f"bound by {then.bound_by} before and now" if then.bound_by == now.bound_by else (
        f"bound by {then.bound_by} before, by {now.bound_by} now"
    )
    said = [f"the model predicts {share:+.1f} % cycles for {told}: {bound}: {now.reason}"]
    if is_slower:
        try:
            found = explain(lambda more: None if more else kernel_of({}), gpu, clock=now.sm_clock_mhz, l2=l2)
        except GpusimError as error:
            return [*said, f"what would win it back is not known: {error}"]
        if found.best is not None:
            said.append(
                f"in the model {found.best.title!r} would save most, {found.best.share:.0%} of the cycles of now"
            )
    return said


def _text(value: Any) -> str:
    return "its default" if value is None else str(value)
