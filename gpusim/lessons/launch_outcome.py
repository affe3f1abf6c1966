"""Outcome of a simulated launch: it runs, hangs, corrupts data or is refused; and tables of warp states."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gpusim.errors import ConfigError, DeadlockError, GpusimError, HazardError
from gpusim.simulate.run import simulate
from gpusim.workload.launch import Launch

if TYPE_CHECKING:
    import pandas as pd

    from gpusim.machine.config import GpuSpec
    from gpusim.simulate.result import Result

RUNS, HANGS, CORRUPTS, REFUSED = "runs", "hangs", "corrupts", "refused"
"""Kinds of outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a launch with the simulator's explanation; Jupyter shows both."""

    kind: str
    """Kind of outcome: one of RUNS, HANGS, CORRUPTS and REFUSED."""
    sentence: str
    result: Result | None = None
    """Result of a launch that ran; None otherwise."""

    def __str__(self) -> str:
        """Kind and explanation."""
        return f"{self.kind}: {self.sentence}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p><b>{self.kind.capitalize()}.</b> {html.escape(self.sentence)}</p>"


class Launchable(Protocol):
    """Parameters of a kernel model."""

    def launch(self, gpu: Any) -> Launch:
        """Launch of the kernel on ``gpu``."""
        ...


def outcome(kernel: Launch | Launchable, gpu: GpuSpec, **simulate_options: Any) -> Outcome:
    """Simulate a launch and return its outcome; errors of the kernel are not raised.

    Args:
        kernel: a launch, or parameters that create one or are refused.
        gpu: GPU of the launch.
        simulate_options: of :func:`gpusim.simulate.run.simulate`.
    """
    try:
        launch = kernel if isinstance(kernel, Launch) else kernel.launch(gpu)
        result = simulate(launch, gpu, **simulate_options)
    except DeadlockError as error:
        return Outcome(kind=HANGS, sentence=str(error))
    except HazardError as error:
        return Outcome(kind=CORRUPTS, sentence=str(error))
    except GpusimError as error:
        return Outcome(kind=REFUSED, sentence=str(error))
    return Outcome(kind=RUNS, sentence=f"{result.cycles:,.0f} cycles; {result.reason}", result=result)


def refusal(asked: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Error text with which a call is refused.

    >>> from gpusim.machine.config import load_gpu
    >>> "h201_sxm" in refusal(load_gpu, "h201_sxm")
    True

    Raises:
        ConfigError: the call succeeds.
    """
    try:
        asked(*arguments, **options)
    except GpusimError as error:
        return str(error)
    raise ConfigError(f"{asked.__name__}: was answered, wants a question that is refused")


LEAST_SHARE = 0.005
"""Fraction of a role's life; states below it in every role are left out."""


def states(results: Result | Mapping[str, Result]) -> pd.DataFrame:
    """States of the warps of each role, in percent of their lives: a row per role, a column per state, the largest first.

    Args:
        results: one, or several by name; then rows are (name, role).
    """
    import pandas as pd

    named = dict(results) if isinstance(results, Mapping) else {"": results}
    shares = {(name, role): of for name, result in named.items() for role, of in result.states.items()}
    table = pd.DataFrame.from_dict({key: dict(of) for key, of in shares.items()}, orient="index").fillna(0.0)
    table.index = pd.MultiIndex.from_tuples(list(shares), names=["kernel", "role"])
    table = table.loc[:, table.max() >= LEAST_SHARE]
    table = 100.0 * table[table.sum().sort_values(ascending=False).index]
    table.columns = pd.Index([f"{name} (%)" for name in table.columns])
    return table if isinstance(results, Mapping) else table.droplevel("kernel")


def summary(results: Mapping[str, Result]) -> pd.DataFrame:
    """Row per result: cycles, percent of the peak at its clock, percent of time that tensor cores are busy, bottleneck."""
    import pandas as pd

    rows = {
        name: {
            "cycles": round(result.cycles), "peak at this clock (%)": round(result.pct_of_peak_at_clock, 1),
            "tensor cores busy (%)": round(100.0 * result.busy.get("tensor", 0.0), 1), "bound by": result.bound_by,
        }
        for name, result in results.items()
    }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index")
