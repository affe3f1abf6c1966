"""Counterfactual simulations: cycles that each fix would save, with one part of the GPU made free at a time."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from gpusim.errors import GpusimError, LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.report.number_format import count, duration, percent
from gpusim.report.predictions import verdict_of
from gpusim.report.tables import plain_table, print_command
from gpusim.simulate.idealize import IDEALS
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.simulate.wasm_module import LIBRARY_VARIABLE
from gpusim.workload.launch import Launch

NOTHING = 0.005
"""Fraction of the cycles below which a saving counts as none. CTAs that end in another order move them by as much."""

CLEARLY_MORE = 0.02
"""Excess saving, as a fraction of the cycles, of another fix over the one of ``bound_by`` that counts as a disagreement."""

UNEXPECTED = 0.15
"""Saving, as a fraction of the cycles, that counts as a disagreement if no counterfactual frees the unit in ``bound_by``."""

WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"

POINTS_AT: Mapping[str, tuple[str, ...]] = {
    "hbm": ("hbm",), "l2": ("l2",), "l2_link": ("l2",), "sm_intake": ("l2",), "store": ("l2",),
    "latency": ("latency", "stage"), "smem_latency": ("latency", "bank_conflicts"), "barrier": ("latency",),
    "smem": ("bank_conflicts",), "tma": ("tma",), "lsu": ("bank_conflicts",),
    "lsu_latency": ("latency", "bank_conflicts", "l2", "tma"), "epilogue": ("epilogue",),
    "launch": ("launch",), "tail": ("tail",),
}
"""Counterfactuals by the ``bound_by`` of a plain prediction: the part made free, or what would hide its latency."""

Build = Callable[[int], Launch | None]
"""Function from a number of further stages to the launch; None where the kernel has no stages to add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """One part made free."""

    name: str
    title: str
    cycles: float | None
    """Cycles of the kernel with the part free; None where it could not run."""
    saved_cycles: float
    """Cycles saved, 0 or more; 0 also where the kernel would become slower."""
    share: float
    """Saved cycles over the cycles of the plain run."""
    is_simulated: bool
    """False where the number is computed from the plain run."""
    note: str = ""

    @property
    def saves_nothing(self) -> bool:
        """Whether the saving is within the error of a prediction."""
        return self.share < NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A prediction with its counterfactuals; the largest saving comes first."""

    result: Result
    counterfactuals: tuple[Counterfactual, ...]
    disagreement: str
    """Sentence if the counterfactuals contradict ``bound_by`` of the plain run; empty if not."""
    remarks: tuple[str, ...]
    wall_s: float
    together_cycles: float | None = None
    """Cycles with all parts free at once, with unchanged stages and wave tail; None: not simulated."""

    @property
    def best(self) -> Counterfactual | None:
        """Fix that saves most; None if none saves anything."""
        first = next(iter(self.counterfactuals), None)
        return None if first is None or first.saves_nothing else first

    def as_dict(self) -> dict[str, Any]:
        """JSON document of the prediction and the counterfactuals."""
        return {
            **self.result.as_dict(),
            "counterfactuals": [
                {
                    "name": item.name, "title": item.title, "cycles": item.cycles, "saved_cycles": item.saved_cycles,
                    "saved_pct": 100.0 * item.share, "saves_nothing": item.saves_nothing,
                    "is_simulated": item.is_simulated, "note": item.note,
                }
                for item in self.counterfactuals
            ],
            "together_cycles": self.together_cycles, "disagreement": self.disagreement,
            "explain_remarks": list(self.remarks), "explain_wall_s": self.wall_s,
        }


def explain(
    build: Build, gpu: GpuSpec, *, progress: Callable[[str], None] = lambda title: None, **simulate_options: Any,
) -> Explanation:
    """Simulate the launch plainly, with each applicable part of IDEALS free, with all of them free, and with one more stage.

    The wave tail is computed. All runs are at the clock of the plain run, so that cycles can be compared. The runs after the
    plain one use all cores. ``progress`` gets the title of the current run; ``simulate_options`` go to
    :func:`gpusim.simulate.run.simulate`.

    Raises:
        LaunchError: there is no plain launch, or the GPU cannot run it.
    """
    began = time.perf_counter()
    launch = build(0)
    if launch is None:
        raise LaunchError("explain: build(0) gives no launch, wants the plain one")
    progress("as it is")
    result = simulate(launch, gpu, **simulate_options)
    mhz = result.simulated_mhz or result.sm_clock_mhz
    fixed = {**simulate_options, "clock": mhz, "recorded_sms": frozenset[int](), "on_progress": None}
    base, took = result, time.perf_counter() - began
    # kernels of one launch have different clocks, and the cycles of one kernel may have been scaled to its final clock
    if result.simulated_mhz != result.sm_clock_mhz:
        progress("as it is, at one clock")
        since = time.perf_counter()
        base, took = simulate(launch, gpu, **fixed), time.perf_counter() - since
    found: list[Counterfactual] = []
    remarks: list[str] = []
    with _all_cores() as (cores, watch):
        fixed["watch"] = watch
        others = {name: cores.submit(simulate, launch, gpu, **fixed, ideals={name}) for name in result.ideals}
        at_once = cores.submit(simulate, launch, gpu, **fixed, ideals=result.ideals) if result.ideals else None
        stage = cores.submit(_one_more_stage, build, gpu, base, fixed)
        for num, (name, running) in enumerate(others.items()):
            left_s = took * (len(others) + 2 - num) / (os.cpu_count() or 1)
            left = f", about {left_s:.0f} s left" if left_s > SILENT_S else ""
            progress(f"{IDEALS[name]}, {num + 1} of {len(others) + 2}{left}")
            other = running.result()
            item = _compared(name, IDEALS[name], base, other.cycles)
            found.append(item)
            if name == "bank_conflicts":
                remarks += _hidden_conflicts(item, base, other)
        progress("all of it at once")
        together = None if at_once is None else at_once.result().cycles
        progress("one more stage")
        found += stage.result()
    if _is_lone_wave(result):
        remarks.append(
            f"The grid fills {percent(result.waves)} of the slots. Nothing here shows what more CTAs would do (smaller "
            "tiles, parts of k): ask predict."
        )
    found.append(wave_tail(base, gpu))
    found.sort(key=lambda item: -item.saved_cycles)
    return Explanation(
        result=result, counterfactuals=tuple(found), disagreement=disagreement(result, found, together),
        remarks=tuple(remarks), wall_s=time.perf_counter() - began, together_cycles=together,
    )


SILENT_S = 3.0
"""Seconds below which the remaining time is not printed."""


@contextmanager
def _all_cores() -> Iterator[tuple[ThreadPoolExecutor, Callable[[object], None]]]:
    """(thread per core, function that ends their simulations once nobody waits for them).

    The compiled engine runs in parallel to Python. Its shared library allows one run at a time.
    """
    is_over = threading.Event()

    def watch(run: object) -> None:
        del run
        if is_over.is_set():
            raise CancelledError

    pool = ThreadPoolExecutor(1 if LIBRARY_VARIABLE in os.environ else os.cpu_count())
    try:
        yield pool, watch
    finally:
        is_over.set()
        pool.shutdown(cancel_futures=True)


def _compared(
    name: str, title: str, base: Result, cycles: float, *, is_simulated: bool = True, note: str = ""
) -> Counterfactual:
    saved = base.cycles - cycles
    if saved < -NOTHING * base.cycles and not note:
        note = f"{-saved:,.0f} cycles slower"
    return Counterfactual(
        name=name, title=title, cycles=cycles, saved_cycles=max(0.0, saved), share=max(0.0, saved) / base.cycles,
        is_simulated=is_simulated, note=note,
    )


def _one_more_stage(build: Build, gpu: GpuSpec, base: Result, fixed: Mapping[str, Any]) -> list[Counterfactual]:
    """Counterfactual of one more stage; empty if the kernel has no stages."""
    title = "one more stage"
    try:
        launch = build(1)
        return [] if launch is None else [_compared("stage", title, base, simulate(launch, gpu, **fixed).cycles)]
    except GpusimError as error:
        reason = f"cannot run: {error}"
    return [
        Counterfactual(name="stage", title=title, cycles=None, saved_cycles=0.0, share=0.0, is_simulated=True, note=reason)
    ]


def _is_lone_wave(result: Result) -> bool:
    """Whether the grid does not fill the slots of one wave, and this bounds the kernel."""
    return result.bound_by == "tail" and result.waves < 1.0


def wave_tail(base: Result, gpu: GpuSpec) -> Counterfactual:
    """Saving of a full last wave, computed: ``waves`` of equal time instead of ``ceil(waves)``.

    Launch and drain stay. The work stays too. No part can be busier than all the time, so the busy cycles of the busiest
    part are a floor.
    """
    fixed = min(base.cycles, gpu.dispatcher.launch_cycles + gpu.dispatcher.drain_cycles)
    started = max(1, math.ceil(base.waves - 1e-9))
    without = fixed + (base.cycles - fixed) * min(1.0, base.waves / started)
    floor = max(base.busy.values(), default=0.0) * base.cycles
    note = f"{base.waves:.2f} waves take the time of {started}"
    if base.waves < 1.0:  # there is no wave after the first
        note = f"the grid fills {percent(base.waves)} of the slots, in one wave"
        return _compared("tail", "no wave tail", base, base.cycles, is_simulated=False, note=note)
    if floor > without:
        note += ", but the busiest part has that work anyway"
    return _compared("tail", "no wave tail", base, min(base.cycles, max(without, floor)), is_simulated=False, note=note)


def _hidden_conflicts(item: Counterfactual, base: Result, other: Result) -> list[str]:
    every = [item.counters.get(WAVEFRONTS, 0.0) + item.fill_wavefronts for item in (base, other)]
    extra = every[0] - every[1]
    if extra < 0.5:
        return ["There are no bank conflicts."] if item.saves_nothing else []
    wavefronts = count(round(extra), "wavefront")
    if item.saves_nothing:
        return [f"Bank conflicts cost {wavefronts}, which hide behind other work: removing them saves nothing."]
    return [f"Bank conflicts cost {wavefronts}."]


def disagreement(result: Result, counterfactuals: list[Counterfactual], together_cycles: float | None = None) -> str:
    """Sentence if the counterfactuals contradict ``result.bound_by``, else empty.

    A busy part may save little because another part limits the kernel almost as much. Then all parts free at once
    (``together_cycles``) save more than any part alone, and ``bound_by`` is right.
    """
    if _is_lone_wave(result):  # slots without a CTA are no part that can be made free
        return ""
    best = max(counterfactuals, key=lambda item: item.saved_cycles, default=None)
    if best is None:
        return ""
    pointed = [item for item in counterfactuals if item.name in POINTS_AT.get(result.bound_by, ())]
    named = max(pointed, key=lambda item: item.saved_cycles, default=None)
    if named is None:
        if best.share >= UNEXPECTED:
            return (
                f"The plain run says that {result.bound_by} bounds this kernel, yet {best.title!r} would save "
                f"{percent(best.share)} of its cycles; believe the counterfactual."
            )
        return ""
    if best.name == named.name or best.share - named.share < CLEARLY_MORE:
        return ""
    saves = "saves nothing" if named.saves_nothing else f"saves {percent(named.share)}"
    at_once = 0.0 if together_cycles is None else 1.0 - together_cycles / result.cycles
    if result.bound_by in result.busy and at_once - best.share >= CLEARLY_MORE:
        return (
            f"The plain run says that {result.bound_by} bounds this kernel, and it is busy "
            f"{percent(result.busy[result.bound_by])} of the time, yet {named.title!r} alone {saves}: another part stands "
            f"right behind it. All parts free at once save {percent(at_once)}; alone {best.title!r} saves most, "
            f"{percent(best.share)}."
        )
    return (
        f"The plain run says that {result.bound_by} bounds this kernel, yet {named.title!r} {saves} and {best.title!r} "
        f"saves {percent(best.share)}; believe the counterfactual."
    )


def render_explanation(explanation: Explanation, console: Console, *, next_command: str = "") -> None:
    """Print the saving of each fix, the largest first."""
    result = explanation.result
    console.print()
    console.print(
        f"[bold]{escape(result.kernel)}[/] on [bold]{escape(result.gpu)}[/]: {result.cycles:,.0f} cycles, "
        f"{duration(result.time_us * 1e-6)} at {result.sm_clock_mhz:,.0f} MHz",
    )
    if "compiled_code" in result.params:
        console.print(f"Code: {escape(str(result.params['compiled_code']))}")
    console.print(f"The plain run says: bound by {escape(result.bound_by)}: {escape(result.reason)}.")
    console.print()
    table = plain_table("", "if there were", "cycles", "saves", "share", "", ends=1)
    for item in explanation.counterfactuals:
        note = item.note if item.is_simulated else f"computed: {item.note}"
        if item.cycles is None:
            table.add_row(item.title, "-", "-", "-", escape(note), style="dim")
        elif item.saves_nothing:
            table.add_row(item.title, f"{item.cycles:,.0f}", "saves nothing", "", escape(note), style="dim")
        else:
            table.add_row(item.title, f"{item.cycles:,.0f}", f"{item.saved_cycles:,.0f}", percent(item.share), escape(note))
    console.print(table)
    console.print()
    console.print(f"Each alone, at the same SM clock; savings do not add up, and below {percent(NOTHING)} count as nothing.")
    if explanation.together_cycles is not None:
        console.print(f"With all parts free at once {explanation.together_cycles:,.0f} cycles would remain.")
    for remark in explanation.remarks:
        console.print(escape(remark))
    if explanation.disagreement:
        console.print(f"[yellow]Disagreement[/]: {escape(explanation.disagreement)}")
    num_simulated = sum(item.is_simulated and item.cycles is not None for item in explanation.counterfactuals)
    console.print(f"{count(num_simulated, 'counterfactual')} simulated in {duration(explanation.wall_s)}.")
    console.print()
    console.print(f"[bold]Verdict[/]: {escape(verdict_of_explanation(explanation))}")
    if next_command:
        console.print("Next: ", end="")
        print_command(next_command, console)


def verdict_of_explanation(explanation: Explanation) -> str:
    """Verdict of the explanation in one sentence."""
    best = explanation.best
    if best is None:
        return f"no single fix would save anything: {verdict_of(explanation.result)}"
    return (
        f"{best.title!r} would save most, {best.saved_cycles:,.0f} of {explanation.result.cycles:,.0f} cycles "
        f"({percent(best.share)})."
    )
