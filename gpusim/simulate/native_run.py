"""Run of the native engine: totals, counters and timelines from the buffer that it returns.

In: the plan of a launch, its programs and the sections of a result. Out: a :class:`gpusim.simulate.engine_run.Ran`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import ceil

from gpusim.machine.counters import COUNTERS, PartCounters
from gpusim.machine.exact_math import sum_in_order
from gpusim.program.programs import Programs
from gpusim.program.records import CONSTANTS, SM_TOTALS, TOTALS
from gpusim.simulate import timeline as spans
from gpusim.simulate.engine_run import Ran, Results
from gpusim.simulate.failures import failure_of
from gpusim.simulate.lower_bound import lower_bound
from gpusim.simulate.order_check import errors_and_remarks
from gpusim.simulate.pack import pack, trace_plan
from gpusim.simulate.plan import LaunchPlan
from gpusim.simulate.settings import Settings
from gpusim.simulate.wasm_module import EngineRun, Progress
from gpusim.units import SECTOR_BYTES, Clock
from gpusim.workload.launch import Launch
from gpusim.workload.ops import Section

STATES = tuple(spans.WarpState)
SECTIONS = tuple(section.value for section in (Section.PROLOGUE, Section.MAINLOOP, Section.EPILOGUE))
"""Names of sections, by the numbers of ``records.Section``."""

END_CYCLE, NUM_EVENTS = TOTALS.index("end_cycle"), TOTALS.index("num_events")
"""Indices of both numbers in the section of totals."""

Ends = Callable[[Ran], bool]
"""Function that decides, from a run that has only begun, whether it ends there."""


def native_ran(plan: LaunchPlan, programs: Programs, clock: Clock, results: Results, *, is_part: bool = False) -> Ran:
    """Outcome of a run, from the sections of its result.

    Sectors that L2 reads follow from the share of coalesced requests over the full run.
    """
    launch, costs = plan.launch, programs.costs
    totals = dict(zip(TOTALS, results["totals"].tolist(), strict=True))
    of_roles = results["role_totals"].reshape(-1, len(STATES)).tolist()
    epilogues = zip(launch.roles, results["epilogue_cycles"].tolist(), strict=True)
    counters = iter(results["counters"].tolist())
    counted = PartCounters.of({part: dict(zip(names, counters, strict=False)) for part, names in COUNTERS.items()})
    xbar = counted.xbar
    if xbar.asked_bytes:
        counted.l2.read_sectors = xbar.read_bytes * (xbar.served_bytes / xbar.asked_bytes) / SECTOR_BYTES
    of_sms = results["sm_totals"].reshape(-1, len(SM_TOTALS))
    sm_totals = {name: sum_in_order(of_sms[:, place].tolist()) for place, name in enumerate(SM_TOTALS)}
    kinds = (("tma", costs.tma_loads.items), ("mma_sync", costs.mma_syncs.items), ("wgmma", costs.wgmmas.items))
    return Ran(
        plan=plan, clock=clock, taking=partial(_taking, plan, programs, results), results=results, is_part=is_part,
        end_cycle=totals["end_cycle"], num_events=int(totals["num_events"]), counted=counted,
        role_totals={role.name: cycles for role, cycles in zip(launch.roles, of_roles, strict=True)},
        epilogue_cycles={role.name: cycles for role, cycles in epilogues if cycles >= 0.0},
        active_cycles=sm_totals["active_cycles"], fill_cycles=totals["fill_cycles"],
        link_busy_cycles=totals["link_busy_cycles"],
        busy={part: sm_totals[f"{part}_busy_cycles"] for part in ("fma", "issue", "smem", "lsu", "tma")},
        instructions=frozenset(name for name, rows in kinds if rows),
        wgmma_types=frozenset(row.op.atom.a_dtype.name for row in costs.wgmmas.items),
        met=frozenset(name for name in CONSTANTS["ideals"] if totals[f"has_{name}"]),
        timeline=timeline_of(launch, programs, results),
    )


def _taking(plan: LaunchPlan, programs: Programs, results: Results, cycles: float, clock: Clock) -> Ran:
    """Rescale a run, as :attr:`Ran.taking`: every interval of time grows by the same factor."""
    found = {name: item.copy() for name, item in results.items()}
    longer = cycles / float(found["totals"][END_CYCLE])
    found["totals"][END_CYCLE] = cycles
    found["sm_totals"][SM_TOTALS.index("active_cycles") :: len(SM_TOTALS)] *= longer
    for name in TIMELINES:
        for of_time in (each for each in found[name].dtype.names or () if each.endswith("cycle")):
            found[name][of_time] *= longer
    return native_ran(plan, programs, clock, found)


@contextmanager
def no_garbage() -> Iterator[None]:
    """Disable the garbage collector while many objects are made that all stay alive.

    The collector would scan all of them repeatedly.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@no_garbage()
def timeline_of(launch: Launch, programs: Programs, results: Results) -> spans.Timeline:
    """Timeline of the recorded SMs, in the order of the events."""
    roles, stages, barriers, tensors = launch.roles, programs.stages, programs.barriers, programs.tensors
    rows = {name: results[name].tolist() for name in TIMELINES}
    found = spans.Timeline()
    by_place: dict[tuple[int, int], spans.RoleTimeline] = {}
    for cta, role, sm in rows["role_begins"]:
        begun = by_place[cta, role] = spans.RoleTimeline(roles[role].name, cta, sm, roles[role].num_warps)
        found.roles.append(begun)
    for cta, role, state, start, end in rows["role_states"]:
        by_place[cta, role].states.append((STATES[state], start, end))
    for cta, role, section, start, end in rows["role_sections"]:
        by_place[cta, role].sections.append(spans.Span(start, end, SECTIONS[section]))
    for cta, sm, stage, tensor, start, end, num_bytes, barrier in rows["copy_spans"]:
        (buffer, place), name = stages[stage], "" if barrier < 0 else barriers[barrier][0]
        found.copies.append(spans.CopySpan(cta, sm, buffer, place, tensors[tensor], start, end, num_bytes, name))
    for cta, sm, role, stage, start, end in rows["read_spans"]:
        buffer, place = stages[stage]
        found.reads.append(spans.ReadSpan(cta, sm, roles[role].name, buffer, place, start, end))
    for cta, sm, role, is_store, start, end, num_bytes in rows["memory_spans"]:
        found.memory.append(spans.MemorySpan(cta, sm, roles[role].name, bool(is_store), start, end, num_bytes))
    for cta, sm, role, start, end, num_issues in rows["mma_spans"]:
        found.mmas.append(spans.MmaSpan(cta, sm, roles[role].name, start, end, num_issues))
    for cta, sm, barrier, cycle, parity in rows["phase_flips"]:
        ring, place = barriers[barrier]
        found.flips.append(spans.PhaseFlip(cta, sm, ring, place, cycle, parity))
    return found


def native_runs(plan: LaunchPlan, settings: Settings) -> Callable[[Clock, Ends | None], Ran]:
    """Function that runs a planned launch at a clock. Its programs are traced once.

    The function takes a second argument, which decides whether a run ends early. It raises the error that a run ends with.

    Raises:
        LaunchError: a program that is no generator, or an op that the launch or the GPU does not support.
    """
    programs = trace_plan(plan, max_ops=settings.max_ops)
    unordered, remarks = errors_and_remarks(plan.launch, programs) if settings.checks_order else (None, ())
    if remarks:
        plan = replace(plan, launch=replace(plan.launch, remarks=(*plan.launch.remarks, *remarks)))

    def run(clock: Clock, ends: Ends | None = None) -> Ran:
        engine = EngineRun(pack(plan, programs, clock, settings), kernel=plan.launch.kernel, num_ctas=plan.num_ctas)
        if ends is not None and (results := part_of(engine, plan, settings.on_progress)) is not None:
            part = native_ran(plan, programs, clock, results, is_part=True)
            if ends(part):
                return part
        results = engine.run(settings.on_progress, settings.watch)
        failure = failure_of(results, plan, programs)
        if failure is not None:
            raise failure
        if unordered is not None:
            raise unordered
        return native_ran(plan, programs, clock, results)

    return run


STRETCH = 0.08, 0.14
"""Interval of a launch's math, as fractions, from which its end is extrapolated.

Earlier waves find memory cold, and request it all at once."""

LATE = 0.25
"""Fraction of a launch's math from which on the run continues to its end."""

LOOK_EVENTS = 10_000
"""Events between two checks of a run's progress."""


def part_of(engine: EngineRun, plan: LaunchPlan, on_progress: Progress | None) -> Results | None:
    """Run a launch up to the end of an interval, and extrapolate its result. The last wave takes as long as a full one.

    None where the run has ended or is close to its end by then, or where its progress is unknown.
    """
    bound = lower_bound(plan.launch, plan.gpu)
    before = done = 0.0 if bound.math_cycles else 1.0
    then: Results = {}
    while done < STRETCH[1]:
        if done < STRETCH[0] or not then:
            before, then = done, engine.results()
        if engine.run_slice(LOOK_EVENTS):
            return None
        if on_progress is not None:
            on_progress(engine.num_ctas_done, plan.num_ctas, engine.cycle)
        done = bound.done(engine)
    if done > LATE:
        return None
    now, more = engine.results(), (1.0 - done) / (done - before)
    found = {name: now[name] + more * (now[name] - then[name]) for name in ("totals", "counters", "sm_totals")}
    waves = plan.launch.num_tiles / plan.num_slots
    found["totals"][END_CYCLE] *= ceil(waves) / waves
    found["totals"][NUM_EVENTS] = now["totals"][NUM_EVENTS]
    return {**now, **found}


TIMELINES = (
    "role_begins", "role_states", "role_sections", "copy_spans", "read_spans", "mma_spans", "phase_flips", "memory_spans",
)
"""Sections that a timeline is built from."""
