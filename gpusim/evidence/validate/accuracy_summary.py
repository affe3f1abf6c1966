"""Accuracy of validation kernels: errors by family, ranking of configurations, and exact Nsight Compute counts.

In: judgements. Out: records that ``report`` prints and ``--json`` writes. A family is a kernel, or a part of one that its
case separates (a schedule). Cuts go across families (all with clusters) and count in no total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from gpusim.evidence.cases.case import Limit
from gpusim.evidence.cases.paths import CYCLES, held_out_families
from gpusim.evidence.cases.validation_kernel import EXACT_LIMIT, SINGLE, SUSTAINED
from gpusim.evidence.validate.judge import Judgement, Summary, summaries, totals
from gpusim.evidence.validate.ranking import Ranking, ranking

HEADLINES = (CYCLES, SINGLE[0], SUSTAINED[0])
"""Numbers that have a separate table, with P90 and worst."""

RANK_LIMIT = Limit(mean_pct=3.0, worst_pct=10.0)
"""Limits of the regret of the configuration that is predicted to be the best, in percent."""
LEAST_TAU = 0.9
"""Smallest allowed Kendall's tau over pairs whose times clearly differ."""
LEAST_ROWS = 3
"""Configurations that a problem needs to be ranked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Judged numbers of a family or a cut."""

    name: str
    is_cut: bool
    is_held_out: bool
    """Whether the family was held out: named before the model had seen a row of it, and predicted before it was measured."""
    of: Mapping[str, Summary]
    """Summaries by the number's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Ranking scores of configurations, summarized over the problems of one scope."""

    scope: str
    by: str
    """Name of the ranked number."""
    num_problems: int
    num_rows: int
    tau: float
    """Kendall's tau over all pairs of all problems."""
    num_clear_pairs: int
    clear_tau: float
    """Kendall's tau over pairs that clearly differ."""
    regret_pct: float
    """Mean regret over the problems, in percent."""
    worst_regret_pct: float
    blind_regret_pct: float
    """Mean excess of all configurations over the best, in percent: the regret of a roofline, which ranks none."""

    @property
    def passes(self) -> bool:
        """Whether the scores keep the limits."""
        return (
            self.clear_tau >= LEAST_TAU
            and self.regret_pct <= (RANK_LIMIT.mean_pct or 0.0)
            and self.worst_regret_pct <= (RANK_LIMIT.worst_pct or 0.0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """Rows of a family whose count of one name is exact."""

    family: str
    name: str
    num_rows: int
    num_exact: int
    worst_pct: float


def families(judgements: Iterable[Judgement]) -> list[Family]:
    """Validation kernels by family, in the order of their first row, then cuts."""
    held_out = held_out_families()
    own: dict[str, list[Judgement]] = {}
    cut: dict[str, list[Judgement]] = {}
    for item in judgements:
        if item.is_validation:
            own.setdefault(item.family or item.kernel, []).append(item)
            for name in item.cuts:
                cut.setdefault(name, []).append(item)
    return [
        Family(
            name=name, is_cut=found is cut, is_held_out=name in held_out,
            of={each.name: each for each in summaries(replace(item, kernel=name, group="") for item in items)},
        )
        for found in (own, cut) for name, items in found.items()
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- ranking
def ranks(judgements: Iterable[Judgement], name: str) -> list[Ranks]:
    """Ranking of the configurations of one problem by the number ``name``: for each kernel, then over all kernels."""
    ranked = [item for item in judgements if item.name == name and item.problem is not None]
    scopes = {item.kernel: [each for each in ranked if each.kernel == item.kernel] for item in ranked}
    if len(scopes) > 1:
        scopes["all kernels"] = ranked
    scores = (
        _ranks(scope, name, [[(item.predicted, item.measured) for item in of] for of in _by_problem(items)])
        for scope, items in scopes.items()
    )
    return [item for item in scores if item is not None]


def own_ranks(judgements: Iterable[Judgement], name: str = CYCLES) -> Ranks | None:
    """Ranking score of the measurement against itself: times of other launches replace predictions of ``name``.

    None where no problem has enough rows that were measured twice.
    """
    ranked = [item for item in judgements if item.name == name and item.problem is not None and item.again_us is not None]
    orders = [[(item.again_us or 0.0, item.measured) for item in of] for of in _by_problem(ranked)]
    return _ranks("all kernels", "other launches, measured", orders)


def _by_problem(items: Iterable[Judgement]) -> list[list[Judgement]]:
    problems: dict[Any, list[Judgement]] = {}
    for item in items:
        problems.setdefault(item.problem, []).append(item)
    return list(problems.values())


def _ranks(scope: str, by: str, orders: Iterable[Sequence[tuple[float, float]]]) -> Ranks | None:
    """Ranking scores over problems. ``orders``: pairs (predicted, measured) of each problem."""
    worth = [of for of in orders if len(of) >= LEAST_ROWS]
    scores: list[Ranking] = [ranking([guess for guess, _ in of], [taken for _, taken in of]) for of in worth]
    if not scores:
        return None
    blind = (fmean(taken for _, taken in of) / min(taken for _, taken in of) - 1.0 for of in worth)

    def pooled(tau: Callable[[Ranking], float], num: Callable[[Ranking], int]) -> float:
        pairs = sum(num(item) for item in scores)
        return sum(tau(item) * num(item) for item in scores) / pairs if pairs else 1.0

    return Ranks(
        scope=scope, by=by, num_problems=len(scores), num_rows=sum(item.num for item in scores),
        tau=pooled(lambda item: item.tau, lambda item: item.num_pairs),
        num_clear_pairs=sum(item.num_clear_pairs for item in scores),
        clear_tau=pooled(lambda item: item.clear_tau, lambda item: item.num_clear_pairs),
        regret_pct=100.0 * fmean(item.regret for item in scores), blind_regret_pct=100.0 * fmean(blind),
        worst_regret_pct=100.0 * max(item.regret for item in scores),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- counts
def exact_counts(judgements: Iterable[Judgement]) -> list[Exact]:
    """Counts that must be exact, by family and name."""
    errors_by_count: dict[tuple[str, str], list[float]] = {}
    for item in judgements:
        if item.is_validation and item.limit == EXACT_LIMIT:
            errors_by_count.setdefault((item.family or item.kernel, item.name), []).append(abs(item.error_pct))
    return [
        Exact(family=family, name=name, num_rows=len(errors), num_exact=errors.count(0.0), worst_pct=max(errors))
        for (family, name), errors in errors_by_count.items()
    ]


# ---------------------------------------------------------------------------------------------- JSON
def document(judgements: Sequence[Judgement]) -> dict[str, Any]:
    """JSON document for ``--json``: families, totals, ranking and exact counts."""
    itself = own_ranks(judgements)
    return {
        "families_of_whole_kernels": [
            {
                "name": item.name, "is_cut": item.is_cut, "is_held_out": item.is_held_out,
                "of": {name: {**asdict(each), "passes": each.passes} for name, each in item.of.items()},
            }
            for item in families(judgements)
        ],
        "whole_kernels": [{**asdict(item), "passes": item.passes} for item in totals(judgements)],
        "ranks": [
            {**asdict(item), "passes": item.passes} for name in HEADLINES[:2] for item in ranks(judgements, name)
        ],
        "own_ranks": None if itself is None else asdict(itself),
        "exact_counts": [asdict(item) for item in exact_counts(judgements)],
    }  # fmt: skip
