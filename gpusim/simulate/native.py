"""A run of the native engine, as a summary reads it: totals, counters and timelines out of the buffer that came back.

In: the plan of a launch, its programs and the sections of a result. Out: what :class:`.ran.Ran` asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import ceil
from typing import Any, Literal

from numpy.typing import NDArray

from gpusim.machine.numeric import sum_in_order
from gpusim.program.programs import Programs
from gpusim.program.records import COUNTERS, SM_TOTALS, TOTALS
from gpusim.simulate.bound import lower_bound
from gpusim.simulate.constants import Numbers
from gpusim.simulate.failures import Declared, failure_of
from gpusim.simulate.module import EngineRun, Progress, Watch
from gpusim.simulate.pack import RunSettings, pack, trace_plan
from gpusim.simulate.plan import LaunchPlan
from gpusim.simulate.ran import BusyCycles, OpsRun, PartCounters, Ran
from gpusim.simulate.timeline import (
    CopySpan,
    MmaSpan,
    PhaseFlip,
    ReadSpan,
    RoleTimeline,
    Span,
    Timeline,
    WarpState,
)
from gpusim.units import SECTOR_BYTES, Clock
from gpusim.workload.ops import Section

Results = Mapping[str, NDArray[Any]]
"""Sections of a result, by name."""

STATES = tuple(WarpState)
SECTIONS = tuple(section.value for section in (Section.PROLOGUE, Section.MAINLOOP, Section.EPILOGUE))
"""Names of sections, by the numbers of ``records.Section``."""

END_CYCLE, NUM_EVENTS = TOTALS.index("end_cycle"), TOTALS.index("num_events")
"""Where totals have them."""

MET = ("own_code", "mad_wide", "bank_conflicts", "prologue", "mainloop", "epilogue")
"""Counterfactuals of which the engine says whether the launch has what they make free."""

Ends = Callable[["NativeRun"], bool]
"""Asked of a run that has only begun whether it ends there."""



@dataclass(frozen=True, kw_only=True)
class NativeRun(Ran):
    """One launch that the native engine has run to its end: every SM, every iteration."""

    programs: Programs
    results: Results

    def taking(self, cycles: float, clock: Clock) -> NativeRun:
        """The same at a clock near by, where it takes so many cycles: each stretch of time is so much longer."""
        longer, found = cycles / self.end_cycle, {name: item.copy() for name, item in self.results.items()}
        found["totals"][END_CYCLE] = cycles
        found["sm_totals"][SM_TOTALS.index("active_cycles") :: len(SM_TOTALS)] *= longer
        for name in TIMELINES:
            for of_time in (each for each in found[name].dtype.names or () if each.endswith("cycle")):
                found[name][of_time] *= longer
        return replace(self, clock=clock, results=found)

    # ------------------------------------------------------------------------------------------ totals

    @cached_property
    def totals(self) -> Mapping[str, float]:
        """Sums of the run, by the names of ``records.TOTALS``."""
        return dict(zip(TOTALS, self.results["totals"].tolist(), strict=True))

    @property
    def end_cycle(self) -> float:
        """Cycles of the launch."""
        return self.totals["end_cycle"]

    @property
    def num_events(self) -> int:
        """Events that it took."""
        return int(self.totals["num_events"])

    @cached_property
    def met(self) -> set[str]:
        """What a counterfactual could make free of it."""
        return {name for name in MET if self.totals[f"has_{name}"]}

    @cached_property
    def role_totals(self) -> Mapping[str, list[float]]:
        """Cycles of each role in each :class:`WarpState`."""
        table = self.results["role_totals"].reshape(-1, len(STATES)).tolist()
        return {role.name: cycles for role, cycles in zip(self.launch.roles, table, strict=True)}

    @cached_property
    def epilogue_cycles(self) -> Mapping[str, float]:
        """Cycles in sections called epilogue, of each role that has one."""
        every = zip(self.launch.roles, self.results["epilogue_cycles"].tolist(), strict=True)
        return {role.name: cycles for role, cycles in every if cycles >= 0.0}

    @cached_property
    def counted(self) -> PartCounters:
        """Counters of each part; sectors that L2 reads follow from what merges, at the end."""
        values = self.results["counters"].tolist()
        parts: dict[str, Numbers] = {}
        for part, names in COUNTERS.items():
            parts[part], values = dict(zip(names, values, strict=False)), values[len(names) :]
        found = PartCounters.of(parts)
        xbar = found.xbar
        if xbar.asked_bytes:
            found.l2.read_sectors = xbar.read_bytes * (xbar.served_bytes / xbar.asked_bytes) / SECTOR_BYTES
        return found

    @cached_property
    def _sm_totals(self) -> Mapping[str, float]:
        """Sums over the SMs, in order, by the names of ``records.SM_TOTALS``."""
        table = self.results["sm_totals"].reshape(-1, len(SM_TOTALS))
        return {name: sum_in_order(table[:, place].tolist()) for place, name in enumerate(SM_TOTALS)}

    @property
    def busy(self) -> BusyCycles:
        """How long parts were busy."""
        cycles = {part: self._sm_totals[f"{part}_busy_cycles"] for part in ("fma", "issue", "smem", "lsu", "tma")}
        return BusyCycles(**cycles, l2_link=self.totals["link_busy_cycles"])

    @property
    def active_cycles(self) -> float:
        """Cycles in which SMs held a CTA, summed over the SMs."""
        return self._sm_totals["active_cycles"]

    @property
    def ops_run(self) -> OpsRun:
        """Which kinds of instructions ran."""
        programs = self.programs
        return OpsRun(
            has_tma=bool(programs.tma_loads), has_mma_sync=bool(programs.mma_syncs), has_wgmma=bool(programs.wgmmas),
            wgmma_types=frozenset(row.op.atom.a_dtype.name for row in programs.wgmmas),
        )

    # ------------------------------------------------------------------------------------------ timelines

    @cached_property
    def timeline(self) -> Timeline:
        """Of the SMs that were recorded, in the order in which things happened."""
        roles, programs = self.launch.roles, self.programs
        stages, barriers, tensors = programs.stages, programs.barriers, programs.tensors
        rows = {name: self.results[name].tolist() for name in TIMELINES}
        found = Timeline()
        by_place: dict[tuple[int, int], RoleTimeline] = {}
        for cta, role, sm in rows["role_begins"]:
            begun = by_place[cta, role] = RoleTimeline(roles[role].name, cta, sm, roles[role].num_warps)
            found.roles.append(begun)
        for cta, role, state, start, end in rows["role_states"]:
            by_place[cta, role].states.append((STATES[state], start, end))
        for cta, role, section, start, end in rows["role_sections"]:
            by_place[cta, role].sections.append(Span(start, end, SECTIONS[section]))
        for cta, sm, stage, tensor, start, end, num_bytes, barrier in rows["copy_spans"]:
            (buffer, place), name = stages[stage], "" if barrier < 0 else barriers[barrier][0]
            found.copies.append(CopySpan(cta, sm, buffer, place, tensors[tensor], start, end, num_bytes, name))
        for cta, sm, role, stage, start, end in rows["read_spans"]:
            buffer, place = stages[stage]
            found.reads.append(ReadSpan(cta, sm, roles[role].name, buffer, place, start, end))
        for cta, sm, role, start, end, num_issues in rows["mma_spans"]:
            found.mmas.append(MmaSpan(cta, sm, roles[role].name, start, end, num_issues))
        for cta, sm, barrier, cycle, parity in rows["phase_flips"]:
            ring, place = barriers[barrier]
            found.flips.append(PhaseFlip(cta, sm, ring, place, cycle, parity))
        return found


def native_runs(
    plan: LaunchPlan, *, ideals: frozenset[str], is_flushed: bool, recorded_sms: frozenset[int] | Literal["first"],
    max_ops: int, max_events: int, on_progress: Progress | None, watch: Watch | None = None,
) -> Callable[[Clock, Ends | None], NativeRun]:
    """What runs a planned launch at a clock: its programs are traced once.

    It may be told who ends a run early.

    Raises:
        LaunchError: a program that is none, or asks for what the launch or the GPU has not.
    """
    launch = plan.launch
    programs = trace_plan(plan, max_ops=max_ops)
    declared = Declared.of(launch, programs)

    def run(clock: Clock, ends: Ends | None = None) -> NativeRun:
        packed = pack(plan, programs, RunSettings(
            clock=clock, ideals=ideals, is_flushed=is_flushed, recorded_sms=recorded_sms, max_events=max_events,
        ))  # fmt: skip
        engine = EngineRun(packed, kernel=launch.kernel, num_ctas=plan.num_ctas)
        ran = partial(NativeRun, plan=plan, programs=programs, clock=clock, ideals=ideals)
        if ends is not None and (results := part_of(engine, plan)) is not None:
            part = ran(results=results, is_part=True)
            if ends(part):
                return part
        results = engine.run(on_progress, watch)
        failure = failure_of(results, declared, kernel=launch.kernel, num_ctas=plan.num_ctas)
        if failure is not None:
            raise failure
        return ran(results=results)

    return run


STRETCH = 0.08, 0.14
"""Of a launch's math, what tells how it goes on: its first waves find memory cold, and ask for it together."""

LATE = 0.25
"""Where it ends so late, one may as well wait for the end."""

LOOK_EVENTS = 10_000
"""After which one looks how far a run has come."""


def part_of(engine: EngineRun, plan: LaunchPlan) -> Results | None:
    """What a run would come to if it went on as in a stretch, which is run; the last wave takes as long as a full one.

    None where it is over too soon, or where nobody knows how far it has come.
    """
    bound = lower_bound(plan.launch, plan.gpu)
    before = done = 0.0 if bound.math_cycles else 1.0
    then: Results = {}
    while done < STRETCH[1]:
        if done < STRETCH[0] or not then:
            before, then = done, engine.results()
        if engine.run_slice(LOOK_EVENTS):
            return None
        done = bound.done(engine)
    if done > LATE:
        return None
    now, more = engine.results(), (1.0 - done) / (done - before)
    found = {name: now[name] + more * (now[name] - then[name]) for name in ("totals", "counters", "sm_totals")}
    waves = plan.launch.num_tiles / plan.num_slots
    found["totals"][END_CYCLE] *= ceil(waves) / waves
    found["totals"][NUM_EVENTS] = now["totals"][NUM_EVENTS]
    return {**now, **found}


TIMELINES = ("role_begins", "role_states", "role_sections", "copy_spans", "read_spans", "mma_spans", "phase_flips")
"""Sections that a timeline is made of."""
