"""Many configurations of one kernel, predicted and ranked; shared among processes, or among the workers of a dask cluster.

In: a kernel's name, its options with several values each, a GPU. Out: a :class:`Sweep`, or a pandas table of it.

Models:

* Each configuration is simulated whole, or excluded: its least time is above the times of as many others as are wanted.
* What is least is known before it runs, and better while it runs (:mod:`gpusim.simulate.lower_bound`).
* Those that are not excluded yet come in such an order that times near the best are known early: first where each option
  has a value that was in a quick one.
* All configurations of a problem are simulated at one SM clock, which the arithmetic of the lowest bound would leave. Bounds
  hold there. Times are at the clock that the power of each allows: its cycles change on the way there by the share of parts
  with clocks of their own.

Ignores:

* What a simulation at a configuration's own clock would change beyond that: some tenths of a percent.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from gpusim.errors import GpusimError, KernelError, nearest
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.options import KernelParams
from gpusim.kernel_models.sweep_values import Choice, Choices, choices
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.machine.dispatcher import GOLDEN
from gpusim.simulate.lower_bound import Bound, lower_bound
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.simulate.wasm_module import EngineRun
from gpusim.workers import HERE, Workers, workers_of

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["simulated", "excluded", "failed", "not reached"]
"""What became of one: simulated whole, cannot be among the best, went wrong while it ran, Ctrl-C came before; best first."""

Problem = tuple[tuple[str, Any], ...]
"""Options without a default (m, n, k; rows, columns), batch and dtype: only equal problems are compared."""

Progress = Callable[[str, int, int], None]
"""Hears what is done, how many of it, of how many."""

TELL_S = 0.5
"""Seconds between two words about progress."""

FEW = 8
"""Configurations for one process; it takes a second to start another."""

LOOKED_AT = 200
"""Configurations of which the most promising is asked for."""

TOLERANCE = 1e-6
"""Relative error of cycles that are looked for by halving."""

CURVE_POINTS = 129
"""Cycles whose least times are worked out; those between them lie on straight lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One configuration and what became of it."""

    choice: Choice
    problem: Problem
    bound: Bound
    bound_us: float = 0.0
    """No prediction of it is below this."""
    status: Status = "not reached"
    result: Result | None = None
    note: str = ""
    least_cycles: float = 0.0
    """The best bound that is known of its cycles, of a run that was ended among others."""
    is_begun: bool = False
    """Whether it was excluded while it ran."""

    @property
    def time_us(self) -> float:
        """The predicted time; infinite without one."""
        return self.result.time_us if self.result is not None else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All configurations, and how they were found; in each problem the fastest comes first."""

    kernel: str
    gpu: str
    choices: Choices
    entries: tuple[Entry, ...]
    wall_s: float
    num_jobs: int
    is_interrupted: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    """Options of the kernel as they were given, with one value or several."""
    simulate_options: Mapping[str, Any] = field(default_factory=dict)
    """What each was predicted with, of what a prediction may be told beside them."""

    def by_problem(self) -> dict[Problem, list[Entry]]:
        """Entries of each problem: those simulated by time, then those excluded by their least times, then the rest."""
        found: dict[Problem, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.problem, []).append(entry)
        return found

    def table(self) -> pd.DataFrame:
        """A row a configuration: varied options, then what was predicted."""
        import pandas as pd

        return pd.DataFrame([row_of(entry) for entry in self.entries])


def row_of(entry: Entry) -> dict[str, Any]:
    """One configuration as plain values; None where nothing was predicted."""
    result = entry.result
    row: dict[str, Any] = {**entry.choice.options, "status": entry.status, "least_possible_us": entry.bound_us}
    for name in ("time_us", "cycles", "sm_clock_mhz", "tflops", "waves", "energy_mj", "bound_by", "reason"):
        row[name] = None if result is None else getattr(result, name)
    row["ctas_per_sm"] = None if result is None else result.occupancy.ctas_per_sm
    for name in ("dram__bytes_read.sum", "dram__bytes_write.sum"):
        row[name] = None if result is None else result.counters.get(name)
    row["note"] = entry.note
    return row


def sweep(
    kernel: str, gpu: str | GpuSpec, *, top: int = 10, jobs: int = 1, dask: str | None = None,
    simulate_options: Mapping[str, Any] | None = None, **options: Any,
) -> pd.DataFrame:
    """Predict every legal combination of a kernel's options; a row each, the fastest first.

    Args:
        kernel: a name of :data:`gpusim.KERNEL_MODELS`.
        gpu: a GPU's name, or what :func:`gpusim.load_gpu` gives.
        top: how many of each problem are wanted: what cannot be among them is excluded.
        jobs: processes; with more than one a script wants ``if __name__ == "__main__"``.
        dask: address of a dask scheduler, whose workers simulate then.
        simulate_options: for :func:`gpusim.simulate` (clock, l2, data).
        options: one value, a list of them, or text as the command line takes it (``"2..6"``, ``"auto"``).

    Raises:
        KernelError: no such kernel, option or value, or no legal combination.
        ConfigError: no such cluster.
    """
    settings = SweepSettings(top=top, jobs=jobs, dask=dask, simulate_options=simulate_options or {})
    return run_sweep(kernel, options, load_gpu(gpu) if isinstance(gpu, str) else gpu, settings).table()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """Arguments of :func:`sweep` that are no options of a kernel."""

    top: int = 10
    jobs: int = 1
    dask: str | None = None
    simulate_options: Mapping[str, Any] = field(default_factory=dict)


def run_sweep(
    kernel: str, options: Mapping[str, Any], gpu: GpuSpec, settings: SweepSettings, *,
    progress: Progress = lambda what, done, total: None,
) -> Sweep:
    """See :func:`sweep`; ``progress`` hears how far it is. Ctrl-C keeps what there is.

    Raises:
        KernelError: no such kernel, option or value, or no legal combination.
        ConfigError: no such cluster.
        SimulationError: a process was ended from outside.
    """
    if kernel not in KERNEL_MODELS:
        raise KernelError(f"{kernel!r} is no kernel; {nearest(kernel, KERNEL_MODELS)}")
    for name, value in (("top", settings.top), ("jobs", settings.jobs)):
        if value < 1:
            raise KernelError(f"--{name} {value} is too few, wants 1 or more")
    began = time.perf_counter()
    kind = KERNEL_MODELS[kernel].params
    options = kind.in_our_words(options)
    keep = partial(lower_bound, gpu=gpu, is_cold=settings.simulate_options.get("l2", "cold") != "warm")
    fields = [
        (option, name) for option, name in kind.options().items()
        if kind.model_fields[name].is_required() or option in ("batch", "dtype")
    ]
    problems: dict[Problem, _Contest] = {}
    is_interrupted = False
    with workers_of(settings.jobs, settings.dask) as workers:
        found = choices(
            kind, options, gpu, keep=keep, mapped=workers.mapped,
            progress=lambda done, total: progress("combinations looked at", done, total),
        )
        for choice in found.legal:
            problem = tuple((option, getattr(choice.params, name)) for option, name in fields)
            contest = problems.setdefault(problem, _Contest(gpu, dict(settings.simulate_options), settings.top))
            contest.entries.append(Entry(choice=choice, problem=problem, bound=choice.kept))
        is_small = settings.dask is None and len(found.legal) <= FEW
        try:
            _simulate_all(list(problems.values()), HERE if is_small else workers, progress)
        except KeyboardInterrupt:
            is_interrupted = True
            workers.drop()
    entries = tuple(entry for contest in problems.values() for entry in contest.ranked())
    if not is_interrupted and all(entry.status == "failed" for entry in entries):
        raise KernelError(f"none of {len(entries)} configurations could be simulated: {entries[0].note}")
    return Sweep(
        kernel=kernel, gpu=gpu.name, choices=found, entries=entries, wall_s=time.perf_counter() - began,
        num_jobs=workers.num, is_interrupted=is_interrupted, given=dict(options),
        simulate_options=dict(settings.simulate_options),
    )


# ---------------------------------------------------------------------------------------------- one problem


class _Contest:
    """The configurations of one problem: who comes next, who cannot win."""

    def __init__(self, gpu: GpuSpec, options: dict[str, Any], top: int) -> None:
        """No configuration yet."""
        self.entries: list[Entry] = []
        self.gpu, self.options = gpu, options
        self.mhz = 0.0
        """The clock that all are simulated at; 0 until they begin."""
        self._top = top
        self._times: list[float] = []
        self._waiting: list[int] = []
        """Those that nothing has become of yet, by their bounds."""
        self._bounds: list[float] = []
        self._kinds: list[int] = []
        """One of each amount and type of arithmetic: these differ in the cycles that a time leaves them."""
        self._num_asked = 0
        self._best_with: dict[tuple[str, Any], float] = {}
        """The best time with a value of an option."""
        self._most: dict[tuple[float, str], tuple[float, float]] = {}
        self._least: dict[tuple[float, str], LeastTime] = {}

    @property
    def is_alone(self) -> bool:
        """Whether there is nothing to compare: then its clock is found as a prediction finds it."""
        return len(self.entries) == 1

    def begin(self) -> None:
        """Order them by their bounds at the clock that all are simulated at: what the lowest of them would leave."""
        first = min((entry.bound for entry in self.entries), key=lambda bound: bound.cycles(self.gpu.clock.max_mhz))
        self.mhz = mhz = self._least_time(first).mhz(first.cycles(self.gpu.clock.max_mhz))
        self._least.clear()
        self.entries = [replace(entry, least_cycles=entry.bound.cycles(mhz)) for entry in self.entries]
        self._waiting = sorted(range(len(self.entries)), key=lambda idx: self.entries[idx].least_cycles)
        self._bounds = [self.entries[idx].least_cycles for idx in self._waiting]
        self._kinds = list({entry.bound.arithmetic: idx for idx, entry in enumerate(self.entries)}.values())

    def next(self) -> int | None:
        """Another one that may be among the best; None where none is left, and all others are excluded."""
        while num := self.num_to_come:
            step = -(-num // LOOKED_AT)
            places = range(int(step * (self._num_asked * GOLDEN % 1.0)), num, step)
            place = min(places, key=lambda place: self._promise(self._waiting[place]))
            self._num_asked += 1
            idx = self._waiting.pop(place)
            self._bounds.pop(place)
            if self.entries[idx].least_cycles <= self.most_cycles(idx):
                return idx
            self._exclude(idx)
        for idx in self._waiting:
            self._exclude(idx)
        self._waiting, self._bounds = [], []
        return None

    def _note(self, entry: Entry, time_us: float) -> None:
        for item in entry.choice.options.items():
            self._best_with[item] = min(self._best_with.get(item, inf), time_us)

    def _promise(self, idx: int) -> float:
        """The less, the sooner one is asked: best times with each of its options' values, of a new one the best of all."""
        known, best = self._best_with, self._times[0] if self._times else 0.0
        return sum(known.get(item, best) for item in self.entries[idx].choice.options.items())

    def _exclude(self, idx: int) -> None:
        note = f"its least time is above {self._whose}"
        self.entries[idx] = replace(self.entries[idx], status="excluded", note=note)

    def most_cycles(self, idx: int) -> float:
        """Cycles beyond which one cannot be among the best."""
        bound, limit_us = self.entries[idx].bound, self._times[self._top - 1] if len(self._times) >= self._top else inf
        known = self._most.get(bound.arithmetic)
        if known is None or known[0] != limit_us:
            known = self._most[bound.arithmetic] = limit_us, self._least_time(bound).cycles(limit_us)
        return known[1]

    def take(self, idx: int, answer: Answer) -> None:
        """What became of one."""
        entry = self.entries[idx]
        if isinstance(answer, Result):
            insort(self._times, answer.time_us)
            self._note(entry, answer.time_us)
            self.entries[idx] = replace(entry, status="simulated", result=answer)
        elif isinstance(answer, GivenUp):
            note = f"while it ran, its least time came to be above {self._whose}"
            least = answer.least_cycles
            self.entries[idx] = replace(entry, status="excluded", note=note, least_cycles=least, is_begun=True)
            self._note(entry, answer.cycles / self.mhz)
        else:
            self.entries[idx] = replace(entry, status="failed", note=answer)

    @property
    def num_to_come(self) -> int:
        """Those that are not excluded by what is known now."""
        if not self._waiting:
            return 0
        return bisect_right(self._bounds, max(self.most_cycles(idx) for idx in self._kinds))

    @property
    def _whose(self) -> str:
        return "the best time" if self._top == 1 else f"the times of the best {self._top}"

    def ranked(self) -> list[Entry]:
        """All of them, the fastest first, with their least times."""
        if not self.mhz:
            self.begin()
        ends = [entry.least_cycles for entry in self.entries]
        cycles = np.geomspace(min(ends), max(ends), CURVE_POINTS)
        curves: dict[tuple[float, str], list[float]] = {}
        found = []
        for entry in self.entries:
            if entry.bound.arithmetic not in curves:
                least = self._least_time(entry.bound)
                curves[entry.bound.arithmetic] = [least.us(each) for each in cycles.tolist()]
            bound_us = float(np.interp(entry.least_cycles, cycles, curves[entry.bound.arithmetic]))
            found.append(replace(entry, bound_us=bound_us))
        rank = get_args(Status)
        return sorted(found, key=lambda item: (rank.index(item.status), item.time_us, item.bound_us))

    def _least_time(self, bound: Bound) -> LeastTime:
        if bound.arithmetic not in self._least:
            self._least[bound.arithmetic] = LeastTime(
                limiter=PowerLimiter(self.gpu.clock), clock=self.options.get("clock", "single"),
                data=self.options.get("data", "random"), num_flops=bound.num_flops, rate_class=bound.rate_class,
                simulated_mhz=self.mhz,
            )  # fmt: skip
        return self._least[bound.arithmetic]


# ---------------------------------------------------------------------------------------------- cycles and time


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTime:
    """The least time of launches that take so many cycles where all are simulated, at ``simulated_mhz``.

    * A launch that does nothing but its arithmetic has the highest clock that a mode leaves so many cycles: whatever else it
      does takes power, too. More cycles take no less time.
    * Where a launch's own clock is above ``simulated_mhz``, its cycles become more on the way there, or stay.
    * Where it is below, they become fewer, but by no more than the clocks differ: the time is no less than at
      ``simulated_mhz``.

    So the least time is that at the higher one of both clocks.
    """

    limiter: PowerLimiter
    clock: str | float
    """A mode of the limiter, or MHz."""
    data: str
    num_flops: float
    rate_class: str
    simulated_mhz: float = 0.0

    def mhz(self, cycles: float) -> float:
        """The clock at which so many cycles take the least time."""
        if not isinstance(self.clock, str):
            return float(self.clock)
        activity = Activity(
            cycles=cycles, num_flops=self.num_flops, rate_class=self.rate_class, l2_bytes=0.0, hbm_bytes=0.0,
            busy_fraction=0.0,
        )  # fmt: skip
        return max(self.simulated_mhz, self.limiter.clock_mhz(activity, mode=self.clock, data=self.data))

    def us(self, cycles: float) -> float:
        """Microseconds of so many cycles."""
        return cycles / self.mhz(cycles)

    def cycles(self, time_us: float) -> float:
        """The most cycles that take no longer than ``time_us``, but for :data:`TOLERANCE`; infinite for an infinite time."""
        if time_us == inf:
            return inf
        low, high = time_us * self.limiter.spec.min_mhz, time_us * self.limiter.spec.max_mhz
        while high - low > TOLERANCE * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.us(middle) > time_us else (middle, high)
        return high


# ---------------------------------------------------------------------------------------------- who simulates

class GivenUp(NamedTuple):
    """Why a run was ended: cycles that it cannot end before, too many; and about how many it would have taken."""

    least_cycles: float
    cycles: float


Answer = Result | GivenUp | str
"""A prediction; or why there is none."""


class _TooSlow(Exception):  # noqa: N818  # no error: an answer
    """A run cannot end in time."""


def predict_one(
    params: KernelParams, gpu: GpuSpec, options: Mapping[str, Any], mhz: float | None = None, bound: Bound | None = None,
    most_cycles: float = inf,
) -> Answer:
    """Simulate one configuration at an SM clock, for as long as it may end within so many cycles."""
    found = GivenUp(0.0, 0.0)

    def watch(run: EngineRun, of: Bound) -> None:
        nonlocal found
        found = GivenUp(*of.cycles_of(run))
        if found.least_cycles > most_cycles:
            raise _TooSlow

    how: dict[str, Any] = {} if bound is None or most_cycles == inf else {"watch": partial(watch, of=bound)}
    if mhz is not None and isinstance(options.get("clock", "single"), str):
        how["simulated_mhz"] = mhz
    try:
        return simulate(params.launch(gpu), gpu, **options, **how)
    except _TooSlow:
        return found
    except GpusimError as error:
        return " ".join(str(error).split())


def _simulate_all(contests: list[_Contest], workers: Workers, progress: Progress) -> None:
    """All problems, one after the other."""
    running: dict[Future[Any], tuple[_Contest, int]] = {}
    began, told, asked, done, total = time.monotonic(), 0.0, 0, 0, sum(len(contest.entries) for contest in contests)
    for contest in contests:
        contest.begin()
    waiting = iter(contests)
    current = next(waiting, None)
    while current is not None or running:
        while current is not None and len(running) < workers.num_asked:
            idx = current.next()
            if idx is None:
                current = next(waiting, None)
                continue
            entry = current.entries[idx]
            mhz = None if current.is_alone else current.mhz
            task = entry.choice.params, current.gpu, current.options, mhz, entry.bound, current.most_cycles(idx)
            running[workers.executor.submit(predict_one, *task)] = current, idx
        over, _ = wait(running, timeout=TELL_S, return_when=FIRST_COMPLETED)
        for future in over:
            of, idx = running.pop(future)
            of.take(idx, workers.answer(future))
            asked += 1
        now = time.monotonic()
        if now - told > TELL_S or not running:
            told = now
            became = [entry.status for each in contests for entry in each.entries]
            to_come = sum(each.num_to_come for each in contests) + len(running)
            done = total - to_come
            left = f", about {(now - began) / asked * to_come:.0f} s" if asked and to_come else ""
            progress(
                f"{became.count('simulated')} simulated, {done - became.count('simulated') - became.count('failed')} "
                f"excluded, {to_come} to come{left}", done, total,
            )
