"""Where a kernel's time could be saved: changes of it that exist, and counterfactuals with one part of the GPU made free."""

from __future__ import annotations

import math
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpusim.analysis.changes import NOTHING, Change, Runs, StatedKernel, Watch, changes_of
from gpusim.analysis.choose import choose
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.report.number_format import count, option_words, percent, setting_words
from gpusim.simulate.idealize import IDEALS
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.simulate.wasm_module import LIBRARY_VARIABLE
from gpusim.workload.launch import Launch

CLEARLY_MORE = 0.02
"""Excess saving, as a fraction of the cycles, of another part over the one of ``bound_by`` that is remarked on."""

WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"

POINTS_AT: Mapping[str, tuple[str, ...]] = {
    "hbm": ("hbm",), "l2": ("l2",), "l2_link": ("l2",), "sm_intake": ("l2",), "store": ("l2",),
    "latency": ("latency",), "smem_latency": ("latency", "bank_conflicts"), "barrier": ("latency",),
    "smem": ("bank_conflicts",), "tma": ("tma",), "lsu": ("bank_conflicts",),
    "lsu_latency": ("latency", "bank_conflicts", "l2", "tma"), "epilogue": ("epilogue",), "fill": ("latency", "hbm", "l2"),
    "launch": ("launch",), "tail": ("tail",),
}
"""Counterfactuals by the ``bound_by`` of a prediction: the part made free, or what would hide its latency."""

Tried = Callable[[Result, ThreadPoolExecutor, Watch, Callable[[str, int], None]], tuple[Change, ...]]
"""Function that simulates changes of a kernel, from its prediction, threads, a watch, and a progress callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """One part made free."""

    name: str
    title: str
    cycles: float
    """Cycles of the kernel with the part free."""
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
    """A prediction with changes of the kernel and counterfactuals; of both the largest saving comes first."""

    result: Result
    counterfactuals: tuple[Counterfactual, ...]
    remarks: tuple[str, ...]
    wall_s: float
    together_cycles: float | None = None
    """Cycles with all parts free at once, with unchanged stages and wave tail; None: not simulated."""
    changes: tuple[Change, ...] = ()
    """Changes that were tried; those that cannot run come last."""

    @property
    def best_change(self) -> Change | None:
        """Change that saves most of those that were simulated to their end; None if none saves anything."""
        return next((item for item in self.changes if item.is_simulated and not item.saves_nothing), None)

    @property
    def best(self) -> Counterfactual | None:
        """Counterfactual that saves most; None if none saves anything."""
        first = next(iter(self.counterfactuals), None)
        return None if first is None or first.saves_nothing else first

    def as_dict(self) -> dict[str, Any]:
        """JSON document of the prediction and the counterfactuals."""
        return {
            **self.result.as_dict(), "changes": [item.as_dict() for item in self.changes],
            "counterfactuals": [
                {
                    "name": item.name, "title": item.title, "cycles": item.cycles, "saved_cycles": item.saved_cycles,
                    "saved_pct": 100.0 * item.share, "saves_nothing": item.saves_nothing,
                    "is_simulated": item.is_simulated, "note": item.note,
                }
                for item in self.counterfactuals
            ],
            "together_cycles": self.together_cycles,
            "explain_remarks": list(self.remarks), "explain_wall_s": self.wall_s,
        }


def explain(
    kernel: str, gpu: str | GpuSpec, *, simulate_options: Mapping[str, Any] | None = None, **options: Any
) -> Explanation:
    """Say what bounds a kernel, what each change of it would save, and what each part of the GPU costs it.

    >>> found = explain("transpose", "toy", m=256, n=256, smem="naive")
    >>> found.best_change.options
    {'smem': 'padded'}

    Args:
        kernel: a key of :data:`gpusim.KERNEL_MODELS`.
        gpu: a GPU's name, or the result of :func:`gpusim.load_gpu`.
        simulate_options: for :func:`gpusim.simulate` (clock, l2, data).
        options: options of the kernel. Without a tile a GEMM has the one that a library would choose.

    Raises:
        KernelError: there is no such kernel or option.
        LaunchError: the GPU cannot run it.
    """
    gpu, settings = load_gpu(gpu) if isinstance(gpu, str) else gpu, dict(simulate_options or {})
    first = KERNEL_MODELS[kernel].params(**options)
    choice = choose(first, gpu, l2=settings.get("l2", "cold"))

    def words(changed: Mapping[str, Any]) -> str:
        all_options = option_words({**options, **choice.decisions, **changed})
        return shlex.join(["gpusim", "predict", kernel, *all_options, "--gpu", gpu.name, *setting_words(settings)])

    stated = {**options, **choice.decisions}
    return explain_kernel(StatedKernel(first=first, asked=choice.params, stated=stated, words=words), gpu, **settings)


def explain_kernel(
    kernel: StatedKernel, gpu: GpuSpec, *, progress: Callable[[str], None] = lambda title: None, **simulate_options: Any
) -> Explanation:
    """Explain a kernel with its changes; arguments as of :func:`explain_launch`."""
    settings = {name: value for name, value in simulate_options.items() if name not in ("recorded_sms", "on_progress")}

    def tried(base: Result, cores: ThreadPoolExecutor, watch: Watch, tell: Callable[[str, int], None]) -> tuple[Change, ...]:
        return changes_of(kernel, base, gpu, Runs(cores=cores, watch=watch, settings=settings, progress=tell))

    launch = kernel.asked.resolved(gpu).launch(gpu)
    return explain_launch(launch, gpu, tried=tried, progress=progress, **simulate_options)


def explain_launch(
    launch: Launch, gpu: GpuSpec, *, tried: Tried | None = None,
    progress: Callable[[str], None] = lambda title: None, **simulate_options: Any,
) -> Explanation:
    """Simulate the launch plainly, with each applicable part of IDEALS free, with all of them free, and its changes.

    The wave tail is computed. Counterfactuals are at the clock of the plain run, so that cycles can be compared. Changes are
    each at its own clock, as predictions are. The runs after the plain one use all cores. ``progress`` gets the title of the
    current run; ``simulate_options`` go to :func:`gpusim.simulate.run.simulate`.

    Raises:
        LaunchError: the GPU cannot run it.
    """
    began = time.perf_counter()
    progress("as it is")
    result = simulate(launch, gpu, **simulate_options)
    mhz = result.simulated_mhz or result.sm_clock_mhz
    fixed = {**simulate_options, "clock": mhz, "recorded_sms": frozenset[int](), "on_progress": None}
    base, took = result, time.perf_counter() - began

    def tell(title: str, num_left: int) -> None:
        left_s = took * num_left / (os.cpu_count() or 1)
        progress(f"{title}, about {left_s:.0f} s left" if left_s > SILENT_S else title)

    # kernels of one launch have different clocks, and the cycles of one kernel may have been scaled to its final clock
    if result.simulated_mhz != result.sm_clock_mhz:
        tell("as it is, at one clock", len(result.ideals) + 2)
        base = simulate(launch, gpu, **fixed)
    found: list[Counterfactual] = []
    remarks: list[str] = []
    with _all_cores() as (cores, watch):
        fixed["watch"] = watch
        others = {name: cores.submit(simulate, launch, gpu, **fixed, ideals={name}) for name in result.ideals}
        at_once = cores.submit(simulate, launch, gpu, **fixed, ideals=result.ideals) if result.ideals else None
        for num, (name, running) in enumerate(others.items()):
            tell(f"{IDEALS[name]}, {num + 1} of {len(others) + 1}", len(others) + 1 - num)
            other = running.result()
            item = _compared(name, IDEALS[name], base, other.cycles)
            found.append(item)
            if name == "bank_conflicts":
                remarks += _hidden_conflicts(item, base, other)
        tell("all of it at once", 1)
        together = None if at_once is None else at_once.result().cycles
        changes = () if tried is None else tried(result, cores, watch, tell)
    found.append(wave_tail(base, gpu))
    found.sort(key=lambda item: -item.saved_cycles)
    remarks += [text] if (text := behind(result, found, together)) else []
    return Explanation(
        result=result, counterfactuals=tuple(found), changes=changes, remarks=tuple(remarks),
        wall_s=time.perf_counter() - began, together_cycles=together,
    )


SILENT_S = 3.0
"""Seconds below which the remaining time is not printed."""


@contextmanager
def _all_cores() -> Iterator[tuple[ThreadPoolExecutor, Watch]]:
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


def behind(result: Result, counterfactuals: list[Counterfactual], together_cycles: float | None = None) -> str:
    """Sentence if making free what bounds a kernel saves clearly less than another part; empty if not.

    A busy part may save little because another part limits the kernel almost as much. All parts free at once then save more
    than any part alone (``together_cycles``).
    """
    if result.bound_by == "tail" and result.waves < 1.0:
        return ""  # a grid that never fills the SMs has no last wave to fill
    best = max(counterfactuals, key=lambda item: item.saved_cycles, default=None)
    pointed = [item for item in counterfactuals if item.name in POINTS_AT.get(result.bound_by, ())]
    named = max(pointed, key=lambda item: item.saved_cycles, default=None)
    if best is None or named is None or best.share - named.share < CLEARLY_MORE:
        return ""
    saves = "saves nothing" if named.saves_nothing else f"saves {percent(named.share)}"
    at_once = 0.0 if together_cycles is None else 1.0 - together_cycles / result.cycles
    rest = f", and all parts at once {percent(at_once)}" if at_once - best.share >= CLEARLY_MORE else ""
    behind_it = f"{named.title!r} alone {saves}, as other parts stand right behind."
    return f"{behind_it} {best.title!r} saves {percent(best.share)}{rest}."
