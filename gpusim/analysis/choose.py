"""Choice of the configuration that a good library would run: the model ranks a library's configurations, in a second.

In: options of a kernel, of which some may be open, and a GPU. Out: options with all choices made, and the ranked rest.

Method:

* A closed estimate orders the configurations by tile: waves of tiles, times the longest of arithmetic, operand reads and
  copies of a k-step. The first ones are simulated, as far as the budget goes.
* Variants of the best in schedule, cluster, persistence and order of tiles follow, and last the two best once more.
* A small problem is simulated as it is. A larger one is simulated with fewer k-steps, twice. The difference is the cost of a
  k-step, and cycles are linear in their number.
* A problem of more than two waves is simulated with two, whose data are in L2. The cost of a wave follows, without what a
  launch costs once (:mod:`gpusim.simulate.lower_bound`). A wave takes at least as long as memory needs for its misses, which
  the traffic plan of the problem has.
* The last wave counts as a full one.
* All runs are at one SM clock. Budgets are work units, not seconds, so that the choice is always the same.

Ignores:

* differences of power, and so of clocks, between configurations
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any

from gpusim.analysis.trial import RUN_WORK, Trial, quick_cycles, work_of
from gpusim.errors import GpusimError
from gpusim.kernel_models.gemm import GemmConfig, GemmOptions
from gpusim.kernel_models.gemm.candidates import DECIDING, Space, is_decided, stated
from gpusim.kernel_models.options import KernelParams
from gpusim.kernel_models.sweep_values import AUTO, values_of
from gpusim.machine.config import GpuSpec
from gpusim.report.number_format import option_words
from gpusim.simulate.settings import IN_L2

FIRST_BUDGET, VARIANT_BUDGET, LAST_BUDGET = 80_000.0, 45_000.0, 45_000.0
"""Work units for tiles, for variants of the best tiles, and for the last comparison."""

NUM_VARIED = 2
"""Tiles whose variants are simulated."""

@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A configuration with its estimated cycles."""

    params: GemmOptions
    config: GemmConfig
    cycles: float
    """Estimated SM cycles at the clock of the choice."""
    is_exact: bool = False
    """Whether the problem was simulated as it is."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Share of the cycles in which each part was busy, in the last of its runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A choice: options with all decisions made, and all configurations that were simulated, the fastest first."""

    params: KernelParams
    rated: tuple[Rated, ...] = ()
    given: frozenset[str] = frozenset()
    """Options that were given."""

    @property
    def second(self) -> Rated | None:
        """The second best configuration with another tile, schedule, cluster or number of parts; None without one."""
        if not self.rated:
            return None
        names = ("tile", "schedule", "cluster", "split_k", "swap_operands")
        best = [getattr(self.rated[0].params, name) for name in names]
        others = (item for item in self.rated if [getattr(item.params, name) for name in names] != best)
        return next(others, None)

    @property
    def decisions(self) -> dict[str, Any]:
        """Options that decide the time and were not given, with their values as on the command line."""
        decided = self.params.decided() if self.rated else {}
        return {name: value for name, value in decided.items() if name not in self.given}

    @property
    def second_words(self) -> str:
        """The second best in words: options that differ from the best's, and the additional time; empty without one."""
        second = self.second
        if second is None:
            return ""
        best, other = _decisions(self.rated[0].params, self.given), _decisions(second.params, self.given)
        differing = {name: value for name, value in other.items() if value != best[name]}
        words = shlex.join(option_words(differing))
        return f"{100.0 * self.margin:+.1f} % time, of {len(self.rated)} rated: {words}"

    @property
    def second_best(self) -> dict[str, Any] | None:
        """The second best for a JSON document: its options, and its additional time in percent."""
        second = self.second
        if second is None:
            return None
        return {"options": _decisions(second.params, self.given), "slower_pct": 100.0 * self.margin}

    @property
    def margin(self) -> float:
        """Additional time of the second best, as a fraction of the best's."""
        second = self.second
        return 0.0 if second is None else second.cycles / self.rated[0].cycles - 1.0


def _decisions(params: KernelParams, given: frozenset[str]) -> dict[str, Any]:
    options = params.as_options()
    return {name: options[name] for name in DECIDING if name not in given}


def choose(
    params: KernelParams, gpu: GpuSpec, *, l2: str = "cold", is_allowed: Callable[[GemmOptions], bool] | None = None
) -> Chosen:
    """Fill in what a library chooses by the shape; given options are kept.

    >>> from gpusim import GemmParams, load_gpu
    >>> chosen = choose(GemmParams(m=16, n=8192, k=8192), load_gpu("h200_sxm")).params
    >>> chosen.swap_operands, chosen.tile
    (True, (128, 8, 64))

    Args:
        params: options of a kernel; a kernel other than a GEMM has no such choices, and keeps its options.
        gpu: the GPU.
        l2: ``warm`` or ``stored`` for data that are in L2 when the launch begins.
        is_allowed: whether a configuration with all options resolved may be chosen; by default all may.

    Raises:
        KernelError, LaunchError: no configuration suits the given options; the text is that of the options as they are.
    """
    if not isinstance(params, GemmOptions):
        return Chosen(params=params)
    if is_decided(params):
        return Chosen(params=params)
    if is_allowed is not None:
        return _Choice(params, gpu, is_warm=l2 in IN_L2, is_allowed=is_allowed).made()
    return _made(params, frozenset(stated(params)), _HashedGpu(gpu), l2 in IN_L2)


@dataclass(frozen=True, slots=True)
class _HashedGpu:
    """A GPU as part of a key: equal if all parameters are."""

    gpu: GpuSpec

    def __hash__(self) -> int:
        return hash(self.gpu.name)


@lru_cache(maxsize=64)
def _made(options: GemmOptions, given: frozenset[str], of: _HashedGpu, is_warm: bool) -> Chosen:
    """The choice; kept, because callers that explain or compare a problem ask for it again.

    ``given``: options with a value. Equal options may differ in it, and so in what is open.
    """
    del given
    return _Choice(options, of.gpu, is_warm=is_warm, is_allowed=None).made()


class _Choice:
    """One choice, with the work units that it has spent."""

    def __init__(
        self, options: GemmOptions, gpu: GpuSpec, *, is_warm: bool, is_allowed: Callable[[GemmOptions], bool] | None
    ) -> None:
        """Start without ratings."""
        self.options, self.gpu, self.is_warm, self.is_allowed = options, gpu, is_warm, is_allowed
        self.space = Space(options, gpu)
        self.mhz = 0.0
        """SM clock of all runs in MHz."""
        self.rated: dict[GemmOptions, Rated] = {}

    def made(self) -> Chosen:
        """Rate bases, then variants, then the best once more."""
        bases = self._built(self.space.bases())
        if not bases:
            self.options.planned(self.gpu)  # raises the error of the options as they are
            return Chosen(params=self.options)
        bases.sort(key=lambda built: quick_cycles(built[1], self.gpu))
        if self.space.math != "wgmma":
            bases = one_of_each_size_first(bases)
        if len(bases) > 1 or next(self.space.variants(bases[0][0]), None) is not None:
            self._rate(bases, FIRST_BUDGET)
            best = self.ranked()[:NUM_VARIED]
            self._rate(self._built(variant for item in best for variant in self.space.variants(item.params)), VARIANT_BUDGET)
            best = self.ranked()[:NUM_VARIED]
            orders = (order for item in best[:1] for order in self.space.orders(item.params))
            self._rate(self._built(orders), VARIANT_BUDGET / 2)
            self._compare()
        ranked = self.ranked()
        params = ranked[0].params if ranked else bases[0][0]
        return Chosen(params=params, rated=tuple(ranked), given=frozenset(stated(self.options)))

    def ranked(self) -> list[Rated]:
        """Ratings, the fastest first."""
        return sorted(self.rated.values(), key=lambda item: item.cycles)

    def _built(self, candidates: Iterable[GemmOptions]) -> list[tuple[GemmOptions, GemmConfig]]:
        found = [built for candidate in candidates if (built := self.space.built(candidate)) is not None]
        if self.is_allowed is None:
            return found
        return [built for built in found if self.is_allowed(built[0].chosen(built[1]))]

    def _rate(self, built: Sequence[tuple[GemmOptions, GemmConfig]], budget: float) -> None:
        for params, config in built:
            if budget <= 0.0:
                return
            if params in self.rated:
                continue
            try:
                trial = Trial.of(config, self.gpu, is_warm=self.is_warm)
                self.mhz = self.mhz or trial.clock_mhz()
                cycles, busy = trial.cycles(self.mhz)
            except GpusimError:
                continue
            budget -= trial.work
            self.rated[params] = Rated(params=params, config=config, cycles=cycles, busy=busy, is_exact=trial.is_exact)

    def _compare(self) -> None:
        """Simulate the two best as they are, if the budget allows it."""
        best = self.ranked()[:2]
        work = sum(0.0 if item.is_exact else RUN_WORK + work_of(item.config) for item in best)
        if work > LAST_BUDGET or not work:
            return
        for item in best:
            if not item.is_exact:
                trial = replace(Trial.of(item.config, self.gpu, is_warm=self.is_warm), is_exact=True)
                cycles, busy = trial.cycles(self.mhz)
                self.rated[item.params] = replace(item, cycles=cycles, busy=busy, is_exact=True)


def one_of_each_size_first(bases: Sequence[tuple[GemmOptions, GemmConfig]]) -> list[tuple[GemmOptions, GemmConfig]]:
    """Configurations in an order in which none comes before the first of another tile's size.

    Tiles of mma.sync and FFMA that differ only in their orientation take almost the same time.
    """
    seen: Counter[tuple[int, int]] = Counter()
    ranks = []
    for _, config in bases:
        size = prod(config.tile), config.split_k
        ranks.append(seen[size])
        seen[size] += 1
    return [base for _, base in sorted(zip(ranks, bases, strict=True), key=lambda pair: pair[0])]


def with_tile(
    kind: type[KernelParams], options: Mapping[str, Any], gpu: GpuSpec, simulate_options: Mapping[str, Any]
) -> dict[str, Any]:
    """Options with the tile that a library would choose for the first value of each, where none is given."""
    name = next(iter(kind.row.stated), None)
    if name is None or options.get(name) is not None:
        return dict(options)
    firsts = {key: value[0] if isinstance(value, list | tuple) else value for key, value in options.items() if value != AUTO}
    try:
        firsts = {
            key: values_of(kind, key, value, fixed={}, gpu=gpu)[0] if isinstance(value, str) else value
            for key, value in firsts.items()
        }
        chosen = choose(kind(**firsts), gpu, l2=simulate_options.get("l2", "cold")).params.resolved(gpu)
    except (GpusimError, IndexError):
        return dict(options)  # refused later, with all values
    return {**options, name: chosen.as_options()[name]}
