"""Many configurations of one kernel, predicted and ranked; shared among processes.

In: a kernel's name, its options with several values each, a GPU. Out: a :class:`Sweep`, or a pandas table of it. What is
legal ``kernel_models/choices`` says, what cannot win ``simulate/bound``; this file spends the time.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gpusim.errors import GpusimError, KernelError, LaunchError, nearest
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.choices import Choice, Choices, choices, option_names
from gpusim.kernel_models.params import KernelParams
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.bound import lower_bound
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["simulated", "sampled", "left out", "too long", "failed", "not reached"]
"""What became of one: in full, a quick answer, cannot be among the best, longer than patience, refused late, Ctrl-C."""

SAMPLE_MARGIN = 1.15
"""Nine in ten quick answers are nearer than this factor; what is left out beside them must be slower by it."""

PATIENCE_S = 4.0
"""Seconds of a core that one configuration may take in a first look, unless told otherwise."""

FINALISTS = (5, 10)
"""How many of a problem are simulated in full after the first look, at most, which takes ten times as long: the quickest of
it, then who is among the quickest beside their full answers. Quick answers of neighbours are off alike."""

POLL_S = 0.01


class _PatienceError(Exception):
    """A simulation has used up its seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One configuration and what became of it."""

    choice: Choice
    problem: tuple[tuple[str, Any], ...]
    """Options without a default (m, n, k; rows, columns): only equal problems are compared."""
    bound_us: float
    """No prediction is below this."""
    is_cheap: bool
    """Whether all SMs are simulated at once."""
    status: Status = "not reached"
    result: Result | None = None
    note: str = ""

    @property
    def time_us(self) -> float:
        """The predicted time; infinite without one."""
        return self.result.time_us if self.result is not None else float("inf")


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

    def by_problem(self) -> dict[tuple[tuple[str, Any], ...], list[Entry]]:
        """Entries of each problem: those simulated with all SMs first, then sampled ones, each by time, then the rest."""
        found: dict[tuple[tuple[str, Any], ...], list[Entry]] = {}
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
    kernel: str, gpu: str | GpuSpec, *, top: int = 10, jobs: int = 1, all_sms: bool = False,
    patience_s: float = PATIENCE_S, simulate_options: Mapping[str, Any] | None = None, **options: Any,
) -> pd.DataFrame:
    """Predict every legal combination of a kernel's options; a row each, the fastest first.

    Args:
        kernel: a name of :data:`gpusim.KERNEL_MODELS`.
        gpu: a GPU's name, or what :func:`gpusim.load_gpu` gives.
        top: how many are wanted: what cannot be among them may be left out. The first five of a first look, which takes
            quick answers, are simulated in full.
        jobs: processes; with more than one a script wants ``if __name__ == "__main__"``.
        all_sms: simulate all SMs of every configuration, and leave out nothing for its cost.
        patience_s: seconds of a core that one may take in the first look.
        simulate_options: for :func:`gpusim.simulate` (clock, l2, data, engine).
        options: one value, a list of them, or text as the command line takes it (``"2..6"``, ``"auto"``).

    Raises:
        KernelError: no such kernel, option or value, or no legal combination.
    """
    return run_sweep(
        kernel, options, load_gpu(gpu) if isinstance(gpu, str) else gpu, top=top, jobs=jobs, all_sms=all_sms,
        patience_s=patience_s, simulate_options=simulate_options or {},
    ).table()


def run_sweep(
    kernel: str, options: Mapping[str, Any], gpu: GpuSpec, *, top: int, jobs: int, all_sms: bool,
    patience_s: float = PATIENCE_S, simulate_options: Mapping[str, Any],
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Sweep:
    """See :func:`sweep`; ``progress`` hears what is done, how many of it, of how many. Ctrl-C keeps what there is.

    Raises:
        KernelError: no such kernel, option or value, or no legal combination.
    """
    if kernel not in KERNEL_MODELS:
        raise KernelError(f"{kernel!r} is no kernel; {nearest(kernel, KERNEL_MODELS)}")
    for name, value in (("top", top), ("jobs", jobs)):
        if value < 1:
            raise KernelError(f"--{name} {value} is too few, wants 1 or more")
    if not patience_s > 0.0:
        raise KernelError(f"--patience {patience_s:g} is too little, wants seconds above 0")
    began = time.perf_counter()
    kind = KERNEL_MODELS[kernel].params
    found = choices(kind, options, gpu)
    work = _Work(gpu=gpu, options=dict(simulate_options), patience_s=patience_s, progress=progress, top=top)
    entries = [_entry(kind, choice, gpu, is_cold=simulate_options.get("l2", "cold") == "cold") for choice in found.legal]
    is_interrupted = False
    try:
        with _hands(min(jobs, len(entries))) as hands:
            work.first_look(entries, hands, all_sms=all_sms)
            if not all_sms:
                work.finalists(entries, hands)
    except KeyboardInterrupt:
        is_interrupted = True
    if not is_interrupted and all(entry.status == "failed" for entry in entries):
        raise KernelError(f"none of {len(entries)} configurations could be simulated: {entries[0].note}")
    rank = {"simulated": 0, "sampled": 1, "left out": 2, "too long": 3, "failed": 4, "not reached": 5}
    problems = {problem: idx for idx, problem in enumerate(dict.fromkeys(entry.problem for entry in entries))}
    entries.sort(key=lambda item: (problems[item.problem], rank[item.status], item.time_us, item.bound_us))
    return Sweep(
        kernel=kernel, gpu=gpu.name, choices=found, entries=tuple(entries), wall_s=time.perf_counter() - began,
        num_jobs=jobs, is_interrupted=is_interrupted, given=dict(options), simulate_options=dict(simulate_options),
    )


def _entry(kind: type[KernelParams], choice: Choice, gpu: GpuSpec, *, is_cold: bool) -> Entry:
    told = choice.params.as_options()
    problem = tuple(
        (option, told[name.rstrip("_")]) for option, name in option_names(kind).items()
        if kind.model_fields[name].is_required() or option in ("batch", "dtype")
    )
    try:
        bound = lower_bound(choice.params.launch(gpu), gpu, is_cold=is_cold)
    except LaunchError as error:
        return Entry(choice=choice, problem=problem, bound_us=0.0, is_cheap=True, status="failed", note=str(error))
    return Entry(choice=choice, problem=problem, bound_us=bound.time_us, is_cheap=bound.is_of_strangers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What is spent where."""

    gpu: GpuSpec
    options: dict[str, Any]
    patience_s: float
    progress: Callable[[str, int, int], None]
    top: int

    def first_look(self, entries: list[Entry], hands: _Hands, *, all_sms: bool) -> None:
        """Simulate in the order of the least possible times, until no more can be among the best of its problem."""
        queue = sorted((idx for idx, entry in enumerate(entries) if entry.status != "failed"),
                       key=lambda idx: (entries[idx].bound_us, idx))
        queue.reverse()
        num, done = len(queue), 0
        running: dict[int, Any] = {}
        while queue or running:
            while queue and len(running) < hands.num:
                idx = queue.pop()
                entry = entries[idx]
                is_exact = all_sms or self.is_native
                if self._cannot_win(entry, entries, margin=1.0 if is_exact else SAMPLE_MARGIN):
                    why = "cannot be among the best: its least possible time is above theirs"
                    entries[idx] = replace(entry, status="left out", note=why)
                    done += 1
                    continue
                is_full = is_exact or entry.is_cheap
                patience = float("inf") if all_sms else self.patience_s
                options = self._with("full" if is_full else "quick")
                running[idx] = hands.ask((entry.choice.params, self.gpu, options, patience))
            for idx, answer in hands.answers(running):
                entries[idx] = _answered(entries[idx], answer)
                done += 1
            self.progress("configurations", done, num)

    def finalists(self, entries: list[Entry], hands: _Hands) -> None:
        """All SMs of the best of each problem, and of those that are among the best once these are known in full."""
        for most in FINALISTS:
            self._in_full(min(self.top, most), entries, hands)

    def _in_full(self, most: int, entries: list[Entry], hands: _Hands) -> None:
        of_problem: dict[Any, list[int]] = {}
        for idx, entry in enumerate(entries):
            if entry.result is not None:
                of_problem.setdefault(entry.problem, []).append(idx)
        queue: list[int] = []
        for of in of_problem.values():
            left = max(FINALISTS) - sum(entries[idx].status == "simulated" and not entries[idx].is_cheap for idx in of)
            best = sorted(of, key=lambda at: entries[at].time_us)[:most]
            queue += [idx for idx in best if entries[idx].status == "sampled"][:left]
        num, done = len(queue), 0
        running: dict[int, Any] = {}
        while queue or running:
            while queue and len(running) < hands.num:
                idx = queue.pop(0)
                running[idx] = hands.ask((entries[idx].choice.params, self.gpu, self._with("full"), float("inf")))
            for idx, answer in hands.answers(running):
                entries[idx] = _answered(entries[idx], answer)
                done += 1
            self.progress("finalists, all SMs", done, num)

    @property
    def is_native(self) -> bool:
        """Whether every answer is one in full."""
        return self.options.get("engine") == "native"

    def _with(self, quality: str) -> dict[str, Any]:
        return {**self.options, "quality": quality}

    def _cannot_win(self, entry: Entry, entries: list[Entry], *, margin: float) -> bool:
        """Whether as many of its problem as are wanted are faster than it can be."""
        rivals = sorted(item.time_us for item in entries if item.result is not None and item.problem == entry.problem)
        return len(rivals) >= self.top and entry.bound_us > rivals[self.top - 1] * margin


def _answered(entry: Entry, answer: Result | str) -> Entry:
    if isinstance(answer, Result):
        status: Status = "simulated" if answer.settings["quality"] == "full" else "sampled"
        return replace(entry, result=answer, status=status, note="")
    if answer:
        return replace(entry, result=None, status="failed", note=answer)
    return replace(entry, status="too long", note="simulating it takes longer than --patience")


def predict_one(params: KernelParams, gpu: GpuSpec, options: Mapping[str, Any], patience_s: float) -> Result | str:
    """A prediction; why there is none; or an empty text where it takes more of a core than ``patience_s``."""
    try:
        with _patience(patience_s):
            return simulate(params.launch(gpu), gpu, **options)
    except _PatienceError:
        return ""
    except GpusimError as error:
        return " ".join(str(error).split())


LONGEST_S = 1e6
"""Patience from here on is without end: timers have no room for more."""


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """Ends what runs within after so many seconds of this process; no limit where signals cannot be had."""
    if seconds > LONGEST_S or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        del number, frame
        raise _PatienceError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


class _Hands:
    """Who simulates: this process, when it is asked for answers."""

    num = 1

    def ask(self, task: tuple[Any, ...]) -> Any:
        """Something to be answered later."""
        return task

    def answers(self, running: dict[int, Any]) -> Iterator[tuple[int, Result | str]]:
        """Answers that are there, each taken out of ``running``."""
        for idx in list(running):
            yield idx, predict_one(*running.pop(idx))


class _Processes(_Hands):
    """Who simulates: a pool of processes."""

    def __init__(self, pool: Any, num: int) -> None:
        self._pool = pool
        self.num = 2 * num  # none waits for the next

    def ask(self, task: tuple[Any, ...]) -> Any:
        return self._pool.apply_async(predict_one, task)

    def answers(self, running: dict[int, Any]) -> Iterator[tuple[int, Result | str]]:
        time.sleep(POLL_S)
        for idx in [idx for idx, handle in running.items() if handle.ready()]:
            yield idx, running.pop(idx).get()


@contextmanager
def _hands(num: int) -> Iterator[_Hands]:
    if num == 1:
        yield _Hands()
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(num, initializer=_deaf) as pool:  # leaving it ends the processes
        yield _Processes(pool, num)


def _deaf() -> None:
    """Ctrl-C is for who asks, not for those who simulate."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
