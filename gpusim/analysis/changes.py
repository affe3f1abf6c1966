"""Changes of one kernel that exist, simulated: what each would save, with the command that runs it.

In: options of a kernel with their decisions, its prediction, a GPU. Out: :class:`Change`, the largest saving first.

Method:

* Each change has one option with another value, and options that this needs. The kernel's row names changes. A refusal that
  advises a further option is followed.
* Of a GEMM, tiles are ranked by a closed estimate, and all changes by short simulations (:mod:`gpusim.analysis.trial`). The
  best are simulated completely.
* Changes of other kernels are all simulated. A run ends where it can no longer be faster than the kernel as it is.

Ignores:

* what two changes save together
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpusim.analysis.choose import choose
from gpusim.analysis.trial import Trial, quick_cycles, work_of
from gpusim.errors import GpusimError
from gpusim.kernel_models.gemm import GemmConfig, GemmOptions
from gpusim.kernel_models.options import KernelParams
from gpusim.machine.config import GpuSpec
from gpusim.report.advice import MOST_STEPS, options_in
from gpusim.simulate.plan import check
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.simulate.settings import IN_L2
from gpusim.simulate.wasm_module import EngineRun
from gpusim.workload.launch import Launch

NOTHING = 0.005
"""Fraction of the time below which a saving counts as none. CTAs that end in another order move it by as much."""

MOST_TILES = 4
"""Tiles of a GEMM that are tried."""

LEAST_SIMULATED, BUDGET = 4, 200_000.0
"""Changes of a GEMM that are simulated completely, and work units for more of them (:mod:`gpusim.analysis.trial`)."""

SLACK = 0.01
"""Fraction of the time that a change may lose in short simulations and still be simulated completely: their error."""

OF_ROWS = ("per", "threads", "vector_bytes", "unroll", "combine", "algorithm", "arithmetic", "keep", "recompute")
OTHER_SUMS: Mapping[str, Collection[str]] = {
    "gemm": ("split_k", "split_k_mode", "math"), "softmax": OF_ROWS, "layer_norm": OF_ROWS, "rms_norm": OF_ROWS,
    "reduction": (*OF_ROWS, "ctas_per_sum", "finish", "rows_per_cta"),
}
"""Options that change the order of sums or the rounding, by kernel."""

Words = Callable[[Mapping[str, Any]], str]
"""Command of a prediction with some options of the kernel changed."""

Watch = Callable[[EngineRun], None]


class NoGainError(Exception):
    """A run that can no longer be faster than the kernel as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One option of a kernel with another value, and what this needs."""

    options: Mapping[str, Any]
    """Options that change, as on the command line; the first is the one that is tried."""
    command: str
    """Command that predicts the changed kernel."""
    time_us: float | None = None
    """Time of the changed kernel in us; None where it cannot run, or was not simulated to its end."""
    cycles: float | None = None
    share: float = 0.0
    """Fraction of the time that it saves; negative where it is slower."""
    is_simulated: bool = False
    """Whether the kernel was simulated to its end. Otherwise ``share`` is an estimate from short simulations, or 0."""
    note: str = ""
    """Further differences; empty if none."""
    refusal: str = ""
    """Reason why it cannot run; empty if it can."""

    @property
    def saves_nothing(self) -> bool:
        """Whether the saving is within the error of a prediction."""
        return self.share < NOTHING

    def as_dict(self) -> dict[str, Any]:
        """Part of the JSON document."""
        return {
            "options": dict(self.options), "command": self.command, "time_us": self.time_us, "cycles": self.cycles,
            "saved_pct": 100.0 * self.share, "saves_nothing": self.saves_nothing, "is_simulated": self.is_simulated,
            "note": self.note, "refusal": self.refusal,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A change that can run."""

    options: Mapping[str, Any]
    params: KernelParams
    launch: Launch
    config: Any

    @property
    def group(self) -> tuple[str, str]:
        """Changes of which only the most promising are tried: all tiles; all tiles of another schedule."""
        name = next(iter(self.options))
        mode = self.options.get("split_k_mode", "")  # the closed estimate is equal for both modes
        return name, "" if name == "tile" else f"{self.options[name]} {mode}"

    def quick(self, gpu: GpuSpec) -> float:
        """Closed estimate of a GEMM's cycles; 0 for other kernels."""
        return quick_cycles(self.config, gpu) if isinstance(self.config, GemmConfig) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedKernel:
    """Options of a kernel in all their forms."""

    first: KernelParams
    """Options as given. Where they decide what a library chooses, its choice is one of the changes."""
    asked: KernelParams
    """Options with all decisions."""
    stated: Mapping[str, Any]
    """Values of ``asked`` as on the command line."""
    words: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Threads and settings of simulations."""

    cores: ThreadPoolExecutor
    watch: Watch
    """Function that is called in each run; its exception ends the run."""
    settings: Mapping[str, Any]
    """Arguments for :func:`gpusim.simulate`."""
    progress: Callable[[str, int], None]
    """Function of a title and the number of simulations that are left."""


def changes_of(kernel: StatedKernel, base: Result, gpu: GpuSpec, runs: Runs) -> tuple[Change, ...]:
    """Try the changes of a kernel. ``base``: its prediction."""
    asked, stated, words, settings = kernel.asked, kernel.stated, kernel.words, runs.settings
    runs.progress("changes of its options", 0)
    chosen = chosen_options(kernel.first, asked.resolved(gpu), gpu, settings)
    found, refused = _candidates(asked, stated, gpu, chosen)
    other_sums = OTHER_SUMS.get(asked.row.name, ())

    def change_of(item: _Candidate, **outcome: Any) -> Change:
        rest = {name: value for name, value in item.params.decided().items() if name not in stated}
        notes = ["what a library would choose"] if item.options == chosen else []
        notes += ["results differ in the last bits"] if any(name in other_sums for name in item.options) else []
        command = words({**rest, **item.options})
        return Change(options=item.options, command=command, note="; ".join([*outcome.pop("notes", []), *notes]), **outcome)

    shares = _screened(found, asked, gpu, settings, runs.cores)
    most = max(LEAST_SIMULATED, int(BUDGET / work_of(asked.row.resolve(asked, gpu)))) if shares else 0
    kept = sorted((num for num, share in shares.items() if share > -SLACK), key=lambda num: -shares[num])[:most]
    nums = kept if shares else list(range(len(found)))
    settings = {**settings, "watch": runs.watch}
    running = {num: runs.cores.submit(_time_of, found[num], gpu, base, settings) for num in nums}
    made = [change_of(found[num], share=share) for num, share in shares.items() if num not in running]
    for done, (num, future) in enumerate(running.items(), start=1):
        runs.progress(f"changes of its options, {done} of {len(running)}", len(running) + 1 - done)
        made.append(change_of(found[num], **_outcome(future, base)))
    made.sort(key=lambda item: (bool(item.refusal), -item.share))
    return *made, *(Change(options=options, command=words(options), refusal=reason) for options, reason in refused)


def _outcome(running: Future[Result | str], base: Result) -> dict[str, Any]:
    found = running.result()
    if isinstance(found, str):
        return {"refusal": found}
    if found is base:
        return {}
    held = found.occupancy.ctas_per_sm
    return {
        "time_us": found.time_us, "cycles": found.cycles, "share": 1.0 - found.time_us / base.time_us, "is_simulated": True,
        "notes": [f"{held} CTAs/SM"] if held != base.occupancy.ctas_per_sm else [],
    }


def _time_of(item: _Candidate, gpu: GpuSpec, base: Result, settings: Mapping[str, Any]) -> Result | str:
    """Prediction of a changed kernel; ``base`` where it is no faster; a reason where it cannot run."""
    outer, most_cycles = settings["watch"], base.time_us * gpu.clock.max_mhz

    def watch(run: EngineRun) -> None:
        outer(run)
        if run.cycle > most_cycles:
            raise NoGainError

    try:
        return simulate(item.launch, gpu, **{**settings, "watch": watch})
    except NoGainError:
        return base
    except GpusimError as error:
        return str(error)


# ------------------------------------------------------------------------------------------------ candidates
def _candidates(
    asked: KernelParams, stated: Mapping[str, Any], gpu: GpuSpec, chosen: Mapping[str, Any]
) -> tuple[list[_Candidate], list[tuple[Mapping[str, Any], str]]]:
    """Changes that can run, without repetition, and refused ones with their reasons. ``chosen``: one more change."""
    resolved = asked.resolved(gpu)
    seen, found = {resolved}, list[_Candidate]()
    refused: list[tuple[Mapping[str, Any], str]] = []
    named = asked.row.changes(asked, resolved, gpu)
    for options in (*named, *_more_ctas(asked, resolved, gpu), *([chosen] if chosen else [])):
        item = _accepted(asked, stated, options, gpu)
        if isinstance(item, str):
            refused.append((options, item))
        elif item.params not in seen:
            seen.add(item.params)
            found.append(item)
    kept: dict[tuple[str, str], int] = {}
    best = []
    for item in sorted(found, key=lambda each: each.quick(gpu)):
        kept[item.group] = kept.get(item.group, 0) + 1
        if kept[item.group] <= (MOST_TILES if item.group[0] == "tile" else 1) or item.quick(gpu) == 0.0:
            best.append(item)
    return best, refused


def _accepted(asked: KernelParams, stated: Mapping[str, Any], options: Mapping[str, Any], gpu: GpuSpec) -> _Candidate | str:
    """A change with what its refusals advise, or the reason why it cannot run."""
    row, changed, reason = asked.row, dict(options), ""
    for _ in range(MOST_STEPS):
        try:
            params = row.params(**{**stated, **changed})
            config = row.resolve(params, gpu)
            launch = replace(row.launch(config, gpu), params=params.chosen(config).as_options())
            check(launch, gpu)
            return _Candidate(options=changed, params=params.chosen(config), launch=launch, config=config)
        except GpusimError as error:
            reason = reason or str(error)
            _, _, advice = str(error).rpartition("use ")
            advised = options_in(f"use {advice}")
        more = {name: value for name, value in advised.items() if str(changed.get(name)) != str(value)}
        if not more or any(name in changed or name not in row.tuned for name in more):
            break
        changed |= more
    return reason


def _more_ctas(asked: KernelParams, resolved: KernelParams, gpu: GpuSpec) -> Iterator[Mapping[str, Any]]:
    """Most stages with which an SM holds one CTA more; none if no number does."""
    stages = getattr(resolved, "stages", None)
    if not isinstance(stages, int) or stages < 3:
        return
    now = check(resolved.launch(gpu), gpu).ctas_per_sm
    for fewer in range(stages - 1, 1, -1):
        try:
            held = check(asked.model_copy(update={"stages": fewer}).launch(gpu), gpu).ctas_per_sm
        except GpusimError:
            return
        if held > now:
            yield {"stages": fewer}
            return


def chosen_options(
    first: KernelParams, resolved: KernelParams, gpu: GpuSpec, settings: Mapping[str, Any],
    is_allowed: Callable[[GemmOptions], bool] | None = None,
) -> dict[str, Any]:
    """What a library would choose if none of its choices were given: options that differ from ``resolved``; else empty.

    ``is_allowed``: as of :func:`gpusim.analysis.choose.choose`.
    """
    given = first.as_given()
    kept = {name: value for name, value in given.items() if name not in first.row.deciding}
    if len(kept) == len(given) or settings.get("core_only"):
        return {}
    l2 = settings.get("l2", "cold")
    freed = choose(type(first)(**kept), gpu, l2=l2, is_allowed=is_allowed).params.resolved(gpu)
    before, after, usual = resolved.decided(), freed.decided(), freed.as_options()
    return {name: after.get(name, usual[name]) for name in (*after, *before) if after.get(name) != before.get(name)}


# ------------------------------------------------------------------------------------------------ short simulations
def _screened(
    found: list[_Candidate], asked: KernelParams, gpu: GpuSpec, settings: Mapping[str, Any], cores: ThreadPoolExecutor
) -> dict[int, float]:
    """Fraction of the time that each change of a GEMM saves in short simulations; empty for other kernels."""
    config = asked.row.resolve(asked, gpu)
    if not isinstance(config, GemmConfig) or settings.get("core_only"):
        return {}
    is_warm = settings.get("l2") in IN_L2
    trial = Trial.of(config, gpu, is_warm=is_warm)
    mhz = trial.clock_mhz()
    rate = partial(_rated, gpu=gpu, is_warm=is_warm, mhz=mhz)
    running = {num: cores.submit(rate, item.config) for num, item in enumerate(found)}
    before = trial.cycles(mhz)[0]
    rated = {num: each.result() for num, each in running.items()}
    return {num: 1.0 - cycles / before for num, cycles in rated.items() if cycles}


def _rated(config: GemmConfig, *, gpu: GpuSpec, is_warm: bool, mhz: float) -> float:
    """Estimated cycles; 0 where the kernel cannot run."""
    try:
        return Trial.of(config, gpu, is_warm=is_warm).cycles(mhz)[0]
    except GpusimError:
        return 0.0


def short_refusal(text: str) -> str:
    """A refusal without its advice and without the option that it is about.

    >>> short_refusal("--stages 5: with --tile 128x256x64 they need 255088 bytes; use at most --stages 4")
    'with --tile 128x256x64 they need 255088 bytes'
    >>> short_refusal("--no-persistent: pingpong takes turns over tiles; use --persistent")
    'pingpong takes turns over tiles'
    """
    return re.sub(r"^--[\w-]+( [^\s:]+)?: ", "", text).partition("; use ")[0]
