"""Verdicts of the gate: compared metrics, launches, the report, and its exit status.

In: numbers and tolerances. Out: a verdict for each, and one sentence for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.evidence.cases.validation_kernel import CYCLES, DURATION
from gpusim.evidence.gate.tolerances import Tolerance
from gpusim.evidence.nsight.launches import ProfiledLaunch
from gpusim.evidence.nsight.metrics import class_of, in_points, same_as

if TYPE_CHECKING:
    from gpusim.evidence.gate.models import Model
    from gpusim.simulate.result import Result

PASS, FAIL, BAD_INPUT, NOT_COMPARABLE = 0, 1, 2, 3
"""Exit status of a check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A metric, measured and predicted, or measured now and in the baseline."""

    metric: str
    measured: float
    predicted: float
    tolerance: Tolerance | None
    floor: float = 0.0
    """Smallest reference for the relative difference."""

    @property
    def difference(self) -> float:
        """Predicted minus measured, in percent of the measured value or the floor; in points if the metric is in percent.

        >>> Comparison(metric="a.sum", measured=10.0, predicted=9.0, tolerance=None).difference
        -10.0
        """
        if self.predicted == self.measured:
            return 0.0
        if self.is_points:
            return self.predicted - self.measured
        reference = max(abs(self.measured), self.floor)
        return 100.0 * (self.predicted - self.measured) / reference if reference else math.inf

    @property
    def is_of_floor(self) -> bool:
        """Whether the difference is relative to the floor, because the measured value is smaller."""
        return self.floor > abs(self.measured) and self.difference != 0.0

    @property
    def is_points(self) -> bool:
        """Whether differences are in points."""
        return in_points(self.metric)

    @property
    def passes(self) -> bool | None:
        """Whether the difference is within the tolerance; None where it is not judged."""
        if self.tolerance is None or math.isinf(self.tolerance.limit):
            return None
        is_near = abs(self.predicted - self.measured) <= self.tolerance.absolute
        return is_near or abs(self.difference) <= self.tolerance.limit + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A metric in the baseline and now."""

    metric: str
    before: float
    now: float
    tolerance: Tolerance | None
    """Largest allowed increase; None: only shown."""
    is_better_high: bool = False

    @property
    def difference(self) -> float:
        """Change since the baseline, in percent or points; see :class:`Comparison`.

        >>> Change(metric="a.sum", before=10.0, now=12.0, tolerance=None).difference
        20.0
        """
        return Comparison(metric=self.metric, measured=self.before, predicted=self.now, tolerance=None).difference

    @property
    def is_worse(self) -> bool:
        """Whether the metric is beyond the tolerance in the direction that costs."""
        grown = -self.difference if self.is_better_high else self.difference
        if self.tolerance is None or abs(self.now - self.before) <= self.tolerance.absolute:
            return False
        return grown > self.tolerance.limit + 1e-9

    @property
    def factor(self) -> float:
        """Ratio of now to the baseline."""
        return self.now / self.before if self.before else math.inf if self.now else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCheck:
    """A launch and its model."""

    launch: ProfiledLaunch
    model: Model | None
    """Model of the launch; None where it is compared with the baseline alone."""
    comparisons: tuple[Comparison, ...]
    clock: str
    """Clock of the prediction, in words."""
    result: Result | None
    kernel_idx: int = 0
    """Index among the kernels that a call of the model launches."""
    remarks: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    """Changes since the baseline."""
    causes: tuple[str, ...] = ()
    """Causes of the changes, a sentence each."""
    lacking: tuple[str, ...] = ()
    """Metrics that the baseline has and this launch lacks."""

    unpredicted: tuple[str, ...] = ()
    """Metrics of the launch that are not predicted."""
    absent: tuple[str, ...] = ()
    """Metrics that would be judged, and that the launch lacks."""
    is_other_launch: bool = False
    """Whether grid or block differ from the baseline."""

    @property
    def num_judged(self) -> int:
        """Number of metrics with a verdict."""
        return sum(item.passes is not None for item in self.comparisons)

    @property
    def limited_changes(self) -> tuple[Change, ...]:
        """Changes that have a limit; others are shown and never fail."""
        return tuple(change for change in self.changes if change.tolerance is not None)

    @property
    def is_timed(self) -> bool:
        """Whether its cycles or time have a verdict, against the prediction or the baseline."""
        judged = [part.metric for part in self.comparisons if part.passes is not None]
        judged += [change.metric for change in self.limited_changes]
        return any(same_as(name) in (CYCLES, DURATION) for name in judged)

    @property
    def passes(self) -> bool:
        """Whether all metrics are within tolerance, and none is worse than in the baseline."""
        return not any(item.passes is False for item in self.comparisons) and not any(item.is_worse for item in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All comparisons of a profile."""

    profile: Path
    gpu: str
    launches: tuple[LaunchCheck, ...]
    remarks: tuple[str, ...]
    baseline: Path | None = None
    lacking: tuple[str, ...] = ()
    """Metrics and classes with a tolerance that no launch has."""
    gone: tuple[str, ...] = ()
    """Kernels of launches that only the baseline has, one name per launch."""
    not_worse: tuple[str, ...] = ()
    """Metrics and classes with a limit on increases that no launch has both now and in the baseline."""
    unmet: tuple[str, ...] = ()
    """Models without a launch, by the name or expression that they match."""
    unmodelled: tuple[ProfiledLaunch, ...] = ()
    """Launches without a model."""
    lost: tuple[str, ...] = ()
    """Kernels of launches that were profiled and are not in the profile, one name per launch."""
    is_strict: bool = False
    """Whether models without launches, and launches without models, cycles or time, make it not comparable."""

    @property
    def status(self) -> int:
        """Exit status: 0 if all is within tolerance, 1 if not, 3 if nothing or only a part of the request was comparable."""
        if not any(item.num_judged or item.limited_changes for item in self.launches):
            return NOT_COMPARABLE
        if not all(item.passes for item in self.launches):
            return FAIL
        return NOT_COMPARABLE if self.not_compared else PASS

    @property
    def has_no_counter(self) -> bool:
        """Whether no counted metric is compared: the launch parameters alone say nothing about the run."""
        names = [part.metric for item in self.launches for part in item.comparisons if part.passes is not None]
        names += [part.metric for item in self.launches for part in item.limited_changes]
        return all(name.startswith("launch__") for name in names)

    @property
    def has_no_last_time(self) -> bool:
        """Whether there is a baseline that has none of these launches."""
        return self.baseline is not None and not any(item.changes for item in self.launches)

    @property
    def missing(self) -> tuple[str, ...]:
        """Metrics that the baseline has or a tolerance names, and that the profile lacks."""
        return tuple(dict.fromkeys([*self.lacking, *(name for item in self.launches for name in item.lacking)]))

    @property
    def verdict(self) -> str:
        """Verdict of the report in one sentence."""
        judged = sum(item.num_judged for item in self.launches)
        if self.status == NOT_COMPARABLE:
            rest = "; the rest is within tolerance" if judged and not self.has_no_counter else ""
            return f"NOT COMPARABLE: {'; '.join(self.not_compared)}{rest}"
        out = sum(part.passes is False for item in self.launches for part in item.comparisons)
        worse = sum(part.is_worse for item in self.launches for part in item.changes)
        last = "" if self.baseline is None else f", {worse} worse than {self.baseline.name}"
        if not any(item.model for item in self.launches) and self.baseline is not None:
            compared = sum(len(item.limited_changes) for item in self.launches)
            last = f" worse than {self.baseline.name}, without a model"
            judged, out, tolerance = compared, worse, ""
        else:
            tolerance = " out of tolerance"
        return (
            f"{'PASS' if self.status == PASS else 'FAIL'}: {out} of {judged} metrics of {len(self.launches)} "
            f"launch{'es' if len(self.launches) > 1 else ''}{tolerance}{last}{self._restrictions}"
        )

    @property
    def not_compared(self) -> tuple[str, ...]:
        """Requested comparisons that were not possible, a sentence each; empty if all were."""
        lines = []
        measured = {name for item in self.launches for name in item.launch.metrics}
        kinds = {kind.name for kind in map(class_of, measured) if kind is not None}
        here = [name for name in self.lacking if name in measured or name in kinds]
        absent = [name for name in self.missing if name not in here]
        if self.lost:
            lines.append(f"the profile lacks launches of {', '.join(dict.fromkeys(self.lost))} that were profiled")
        if here:
            lines.append(f"{', '.join(here)}: counted, and nothing to compare it with")
        if absent:
            lines.append(f"the profile lacks {', '.join(absent)}")
        if self.has_no_last_time and self.baseline is not None:
            lines.append(f"{self.baseline.name} has no launch of these")
        elif self.baseline is not None:
            new = [item.launch.kernel for item in self.launches if not item.changes]
            for word, names in (("fewer", new), ("more", self.gone)):
                if names:
                    lines.append(f"{self.baseline.name} has {word} launches of {', '.join(dict.fromkeys(names))}")
            if self.not_worse:
                lines.append(f"nothing to hold --worse {', '.join(self.not_worse)} against in {self.baseline.name} and now")
        if self.is_strict:
            lines += self._strictly()
        if self.has_no_counter:
            is_predicted = any(item.model for item in self.launches)
            lines.append("nothing that the profile counted is predicted" if is_predicted or self.has_no_last_time else
                         "no metric that both profiles have has a limit: give one, for example --worse occupancy=5")
        return tuple(lines)

    def _strictly(self) -> list[str]:
        """Sentences on what is missing in a strict check."""
        lines = [f"no launch of {', '.join(self.unmet)}"] if self.unmet else []
        if self.unmodelled:
            lines.append(f"no model stands for {', '.join(dict.fromkeys(launch.kernel for launch in self.unmodelled))}")
        others = [item.launch.idx for item in self.launches if item.is_other_launch and not (item.model and item.model.was)]
        if others and self.baseline is not None:
            which = f"launch{'es' * (len(others) > 1)} {', '.join(others)}"
            lines.append(f"grid or block of {which} were others in {self.baseline.name}")
        timeless = [item.launch.idx for item in self.launches if not item.is_timed]
        if timeless:
            lines.append(f"neither cycles nor time are judged of launch{'es' * (len(timeless) > 1)} {', '.join(timeless)}")
        return lines

    @property
    def _restrictions(self) -> str:
        """Restrictions of the verdict: models without a launch, launches of another shape, and uncompared cycles."""
        unmet = f"; no launch of {', '.join(self.unmet)}" if self.unmet else ""
        if self.baseline is not None and any(item.is_other_launch for item in self.launches):
            unmet += f"; grid or block were others in {self.baseline.name}"
        return unmet + ("" if any(item.is_timed for item in self.launches) else "; neither cycles nor time are compared")
