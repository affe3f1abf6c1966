"""Sweep over kernel configurations: predicts and ranks them, in processes or on the workers of a dask cluster.

In: a kernel's name, its options with several values each, a GPU. Out: a :class:`Sweep`, or a pandas table of it.

Models:

* Each configuration is simulated completely or excluded. It is excluded if its lower bound is above as many times as are
  requested.
* A lower bound is known before a run, and a better one during it (:mod:`gpusim.simulate.lower_bound`).
* The order of runs finds times near the best early. Configurations come first if each of their options has a value that a
  fast one had.
* All configurations of a problem are simulated at one SM clock, which the arithmetic of the lowest bound would allow. Bounds
  hold at that clock.
* Times are at the clock that the power of each configuration allows. From one clock to the other its cycles change by the
  share of parts with separate clocks.

Ignores:

* further changes of a simulation at a configuration's own clock, some tenths of a percent
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

from gpusim.analysis.choose import with_tile
from gpusim.errors import GpusimError, KernelError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.options import KernelParams
from gpusim.kernel_models.sweep_values import Choice, Choices, choices
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.machine.dispatcher import GOLDEN
from gpusim.simulate.lower_bound import Bound, lower_bound
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.simulate.settings import IN_L2
from gpusim.simulate.wasm_module import EngineRun
from gpusim.workers import HERE, Workers, workers_of

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["simulated", "excluded", "failed", "not reached"]
"""Outcome of a configuration, best first; ``excluded``: by its bound, ``not reached``: interrupted by Ctrl-C."""

Problem = tuple[tuple[str, Any], ...]
"""Options without a default (m, n, k; rows, columns), batch and dtype: only equal problems are compared."""

Progress = Callable[[str, int, int], None]
"""Callback with (description, number done, total number)."""

TELL_S = 0.5
"""Seconds between two calls of the progress callback."""

FEW = 8
"""Most configurations that run in this process; another process takes a second to start."""

LOOKED_AT = 200
"""Configurations among which the most promising one is chosen."""

TOLERANCE = 1e-6
"""Relative tolerance of bisections over cycles."""

CURVE_POINTS = 129
"""Points of the curve from cycles to least times; values in between are interpolated linearly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One configuration and its outcome."""

    choice: Choice
    problem: Problem
    bound: Bound
    bound_us: float = 0.0
    """Lower bound of its time in us."""
    status: Status = "not reached"
    result: Result | None = None
    note: str = ""
    least_cycles: float = 0.0
    """Highest known lower bound of its cycles, also from a run that was stopped."""
    is_begun: bool = False
    """Whether it was excluded during its run."""

    @property
    def time_us(self) -> float:
        """Predicted time in us; infinite without a prediction."""
        return self.result.time_us if self.result is not None else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All configurations with their outcomes; in each problem the fastest comes first."""

    kernel: str
    gpu: str
    choices: Choices
    entries: tuple[Entry, ...]
    wall_s: float
    num_jobs: int
    is_interrupted: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    """Options of the kernel as the caller gave them, with one value or several."""
    simulate_options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of :func:`gpusim.simulate` that each configuration was predicted with."""

    def by_problem(self) -> dict[Problem, list[Entry]]:
        """Entries of each problem: simulated ones by time, then excluded ones by their lower bounds, then the rest."""
        found: dict[Problem, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.problem, []).append(entry)
        return found

    def table(self) -> pd.DataFrame:
        """Table with a row per configuration: varied options, then predictions."""
        import pandas as pd

        return pd.DataFrame([row_of(entry) for entry in self.entries])


def row_of(entry: Entry) -> dict[str, Any]:
    """Plain values of one configuration; None where there is no prediction."""
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
    """Predict every legal combination of a kernel's options; one row each, the fastest first.

    Args:
        kernel: a key of :data:`gpusim.KERNEL_MODELS`.
        gpu: a GPU's name, or the result of :func:`gpusim.load_gpu`.
        top: number of best configurations per problem; those that cannot be among them are excluded.
        jobs: processes; with more than one a script needs ``if __name__ == "__main__"``.
        dask: address of a dask scheduler, whose workers then simulate.
        simulate_options: for :func:`gpusim.simulate` (clock, l2, data).
        options: one value, a list of values, or text as on the command line (``"2..6"``, ``"auto"``).

    Raises:
        KernelError: there is no such kernel, option or value, or no legal combination.
        ConfigError: there is no such cluster.
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
    """Sweep with ``progress`` calls, see :func:`sweep`. Ctrl-C keeps the finished configurations.

    Raises:
        KernelError: there is no such kernel, option or value, or no legal combination.
        ConfigError: there is no such cluster.
        SimulationError: another program ended a process.
    """
    kind = KERNEL_MODELS[kernel].params  # an unknown kernel is refused
    for name, value in (("top", settings.top), ("jobs", settings.jobs)):
        if value < 1:
            raise KernelError(f"--{name} {value} is too few, wants 1 or more")
    began = time.perf_counter()
    options = with_tile(kind, kind.in_our_words(options), gpu, settings.simulate_options)
    keep = partial(lower_bound, gpu=gpu, is_cold=settings.simulate_options.get("l2") not in IN_L2)
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
    """Configurations of one problem: chooses the next one to simulate, and excludes those that cannot be among the best."""

    def __init__(self, gpu: GpuSpec, options: dict[str, Any], top: int) -> None:
        """Start without configurations."""
        self.entries: list[Entry] = []
        self.gpu, self.options = gpu, options
        self.mhz = 0.0
        """SM clock of all simulations in MHz; 0 until they begin."""
        self._top = top
        self._times: list[float] = []
        self._waiting: list[int] = []
        """Indices of entries without an outcome, by their bounds."""
        self._bounds: list[float] = []
        self._kinds: list[int] = []
        """Index of one entry for each amount and type of arithmetic, which decide the cycles that a time allows."""
        self._num_asked = 0
        self._best_with: dict[tuple[str, Any], float] = {}
        """Best time in us with each value of an option."""
        self._most: dict[tuple[float, str], tuple[float, float]] = {}
        self._least: dict[tuple[float, str], LeastTime] = {}

    @property
    def is_alone(self) -> bool:
        """Whether there is only one configuration. Its clock is then found as for a single prediction."""
        return len(self.entries) == 1

    def begin(self) -> None:
        """Choose the clock of all simulations, which the lowest bound would allow, and order the entries by their bounds."""
        first = min((entry.bound for entry in self.entries), key=lambda bound: bound.cycles(self.gpu.clock.max_mhz))
        self.mhz = mhz = self._least_time(first).mhz(first.cycles(self.gpu.clock.max_mhz))
        self._least.clear()
        self.entries = [replace(entry, least_cycles=entry.bound.cycles(mhz)) for entry in self.entries]
        self._waiting = sorted(range(len(self.entries)), key=lambda idx: self.entries[idx].least_cycles)
        self._bounds = [self.entries[idx].least_cycles for idx in self._waiting]
        self._kinds = list({entry.bound.arithmetic: idx for idx, entry in enumerate(self.entries)}.values())

    def next(self) -> int | None:
        """Index of another entry that may be among the best; None if none is left, and all others are excluded."""
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
        """Sum of the best times with each of its options' values; the lowest goes first. New values count as the best."""
        known, best = self._best_with, self._times[0] if self._times else 0.0
        return sum(known.get(item, best) for item in self.entries[idx].choice.options.items())

    def _exclude(self, idx: int) -> None:
        note = f"its least time is above {self._whose}"
        self.entries[idx] = replace(self.entries[idx], status="excluded", note=note)

    def most_cycles(self, idx: int) -> float:
        """Cycles above which an entry cannot be among the best."""
        bound, limit_us = self.entries[idx].bound, self._times[self._top - 1] if len(self._times) >= self._top else inf
        known = self._most.get(bound.arithmetic)
        if known is None or known[0] != limit_us:
            known = self._most[bound.arithmetic] = limit_us, self._least_time(bound).cycles(limit_us)
        return known[1]

    def take(self, idx: int, answer: Answer) -> None:
        """Record the outcome of an entry."""
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
        """Number of entries that are not excluded by the current bounds."""
        if not self._waiting:
            return 0
        return bisect_right(self._bounds, max(self.most_cycles(idx) for idx in self._kinds))

    @property
    def _whose(self) -> str:
        return "the best time" if self._top == 1 else f"the times of the best {self._top}"

    def ranked(self) -> list[Entry]:
        """All entries with their lower bounds, the fastest first."""
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
    """Lower bound on the time of launches with a given number of cycles at ``simulated_mhz``.

    * A launch that does nothing but its arithmetic has the highest clock that a mode allows for its cycles. Anything else
      takes power, too. More cycles never take less time.
    * If a launch's own clock is above ``simulated_mhz``, its cycles increase on the way there, or stay equal.
    * If it is below, its cycles decrease, but by no more than the ratio of the clocks. The time is at least that at
      ``simulated_mhz``.

    So the bound is the time at the higher of both clocks.
    """

    limiter: PowerLimiter
    clock: str | float
    """Mode of the limiter, or MHz."""
    data: str
    num_flops: float
    rate_class: str
    simulated_mhz: float = 0.0

    def mhz(self, cycles: float) -> float:
        """Clock in MHz at which that many cycles take the least time."""
        if not isinstance(self.clock, str):
            return float(self.clock)
        activity = Activity(
            cycles=cycles, num_flops=self.num_flops, rate_class=self.rate_class, l2_bytes=0.0, hbm_bytes=0.0,
            busy_fraction=0.0,
        )  # fmt: skip
        return max(self.simulated_mhz, self.limiter.clock_mhz(activity, mode=self.clock, data=self.data))

    def us(self, cycles: float) -> float:
        """Least time in us of that many cycles."""
        return cycles / self.mhz(cycles)

    def cycles(self, time_us: float) -> float:
        """Most cycles that take at most ``time_us`` us, within :data:`TOLERANCE`; infinite for an infinite time."""
        if time_us == inf:
            return inf
        low, high = time_us * self.limiter.spec.min_mhz, time_us * self.limiter.spec.max_mhz
        while high - low > TOLERANCE * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.us(middle) > time_us else (middle, high)
        return high


# ---------------------------------------------------------------------------------------------- simulation

class GivenUp(NamedTuple):
    """Outcome of a run that was stopped: a lower bound of its cycles, which is too high, and an estimate of its cycles."""

    least_cycles: float
    cycles: float


Answer = Result | GivenUp | str
"""Prediction, reason for stopping, or error text."""


class _TooSlow(Exception):  # noqa: N818  # a result, no error
    """A run cannot end in time."""


def predict_one(
    params: KernelParams, gpu: GpuSpec, options: Mapping[str, Any], mhz: float | None = None, bound: Bound | None = None,
    most_cycles: float = inf,
) -> Answer:
    """Simulate one configuration at an SM clock, until its lower bound exceeds ``most_cycles``."""
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
    """Simulate all problems, one after the other."""
    running: dict[Future[Any], tuple[_Contest, int]] = {}
    began, last_call, asked, done, total = time.monotonic(), 0.0, 0, 0, sum(len(contest.entries) for contest in contests)
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
        if now - last_call > TELL_S or not running:
            last_call = now
            became = [entry.status for each in contests for entry in each.entries]
            to_come = sum(each.num_to_come for each in contests) + len(running)
            done = total - to_come
            left = f", about {(now - began) / asked * to_come:.0f} s" if asked and to_come else ""
            progress(
                f"{became.count('simulated')} simulated, {done - became.count('simulated') - became.count('failed')} "
                f"excluded, {to_come} to come{left}", done, total,
            )
