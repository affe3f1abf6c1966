"""Advice on a GEMM: ranked configurations, what fills their time, how far the best is from its bound, and what to change.

In: a kernel, its options of which some may be open, a GPU. Out: an :class:`Advice`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpusim.analysis.changes import NOTHING, chosen_options
from gpusim.analysis.choose import Rated, choose
from gpusim.errors import KernelError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.gemm import GemmOptions
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.report.library_words import LIBRARIES, library_gap, library_words
from gpusim.simulate.lower_bound import lower_bound
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.simulate.settings import IN_L2


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Ranked configurations of one problem, and facts on the best of them."""

    params: GemmOptions
    """Resolved options of the best configuration."""
    result: Result
    """Prediction of the best configuration."""
    rated: tuple[Rated, ...]
    """Configurations that were rated, the fastest first; empty if all options were given."""
    bound_us: float
    """Lower bound of the time at the clock of the prediction, in us."""
    bound_path: str
    """Chain of the lower bound: math, hbm, tma, ctas or launch."""
    change: Mapping[str, Any]
    """Given options to change, with their better values; empty if none is known to be better."""
    saves: float = 0.0
    """Fraction of the time that ``change`` saves."""

    @property
    def distance(self) -> float:
        """Time beyond the lower bound, as a fraction of the bound."""
        return self.result.time_us / self.bound_us - 1.0

    @property
    def words(self) -> dict[str, list[str]]:
        """The best configuration in the words of other tools."""
        return library_words(self.params)

    def as_dict(self, *, top: int = 10) -> dict[str, Any]:
        """JSON document for tuners."""
        best = self.rated[0].cycles if self.rated else 1.0
        return {
            "kernel": self.result.kernel, "gpu": self.result.gpu, "best": dict(self.params.decided()),
            "time_us": self.result.time_us, "cycles": self.result.cycles, "bound_us": self.bound_us,
            "bound_path": self.bound_path, "distance_pct": 100.0 * self.distance, "bound_by": self.result.bound_by,
            "first_reason": self.result.reason, "next_change": dict(self.change), "saves_pct": 100.0 * self.saves,
            "words": self.words,
            "ranked": [
                {
                    "options": item.params.decided(), "slower_pct": 100.0 * (item.cycles / best - 1.0),
                    "is_exact": item.is_exact, "busy": dict(item.busy),
                }
                for item in self.rated[:top]
            ],
        }


def advise(
    kernel: str, gpu: str | GpuSpec, *, library: str | None = None, simulate_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Advice:
    """Rank the configurations of a kernel, and say what limits the best.

    Args:
        kernel: ``gemm``; no other kernel has a choice of configurations.
        gpu: a GPU's name, or the result of :func:`gpusim.load_gpu`.
        library: ``cutlass``, ``triton`` or ``cute_dsl``: rank only configurations that it has; by default all.
        simulate_options: for :func:`gpusim.simulate` (clock, l2, data).
        options: options of the kernel. Those that are given stay, and ``change`` says what would be better.

    Raises:
        KernelError: there is no such kernel, option or library, or a kernel without a choice; the library has none.
        LaunchError: the GPU cannot run it.
    """
    row = KERNEL_MODELS[kernel]
    if not row.stated:
        known = ", ".join(name for name, each in KERNEL_MODELS.items() if each.stated)
        raise KernelError(f"advise: {kernel} has no choice of configurations; known: {known}")
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    asked: Any = row.params(**options)
    if library not in (None, *LIBRARIES):
        raise KernelError(f"advise: library is {library!r}, wants one of {', '.join(LIBRARIES)}")
    settings = dict(simulate_options or {})
    is_allowed = None if library is None else partial(_has, library)
    chosen = choose(asked, gpu, l2=settings.get("l2", "cold"), is_allowed=is_allowed)
    config = row.resolve(chosen.params, gpu)
    resolved: Any = chosen.params.chosen(config)
    if library is not None and (gap := library_gap(library, resolved)):
        raise KernelError(f"advise: {library} has none of the configurations: {gap}")
    launch = resolved.launch(gpu)
    result = simulate(launch, gpu, **settings)
    bound = lower_bound(launch, gpu, is_cold=settings.get("l2") not in IN_L2)
    path = max(bound.paths, key=lambda name: bound.paths[name].at(result.sm_clock_mhz))
    change, saves = _change(asked, resolved, result, gpu, settings, is_allowed)
    return Advice(
        params=resolved, result=result, rated=chosen.rated, bound_path=path, change=change, saves=saves,
        bound_us=bound.cycles(result.sm_clock_mhz) / result.sm_clock_mhz,
    )


def _has(library: str, params: GemmOptions) -> bool:
    return not library_gap(library, params)


def _change(
    asked: GemmOptions, resolved: GemmOptions, result: Result, gpu: GpuSpec, settings: Mapping[str, Any],
    is_allowed: Callable[[GemmOptions], bool] | None,
) -> tuple[dict[str, Any], float]:
    """Given options to change and the fraction of the time that this saves: the choice with all of them open."""
    change = chosen_options(asked, resolved, gpu, settings, is_allowed)
    if not change:
        return {}, 0.0
    changed = type(resolved)(**{**asked.as_given(), **resolved.decided(), **change})
    saves = 1.0 - simulate(changed.launch(gpu), gpu, **settings).time_us / result.time_us
    return (change, saves) if saves >= NOTHING else ({}, 0.0)
