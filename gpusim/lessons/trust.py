"""How far to trust predictions: whole kernels as they were judged, by family, by metric, in order, and one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusim.errors import ConfigError
from gpusim.evidence.cases.paths import CYCLES
from gpusim.evidence.validate.expected_error import expected_error, unknown
from gpusim.evidence.validate.judged_rows import read_judged

if TYPE_CHECKING:
    import pandas as pd


def families(metric: str = CYCLES, *, kernel: str | None = None, gpu: str = "h200_sxm") -> pd.DataFrame:
    """Errors of whole kernels by family, in percent: mean, nine in ten, worst, a roofline's mean, what was said first.

    A family is a kernel, or a schedule of one; ``held out`` says that nobody has looked for mechanisms in its rows.

    >>> list(families(kernel="softmax").columns)
    ['rows', 'held out', 'mean (%)', 'P90 (%)', 'worst (%)', 'roofline (%)', 'said first (%)']

    Args:
        metric: of Nsight Compute; cycles by default.
        kernel: only families that begin so.
        gpu: whose rows.

    Raises:
        ConfigError: no row of a GPU was judged, or none of such a family has that metric.
    """
    import pandas as pd

    table = read_judged(gpu)
    rows = table.frame()
    rows = rows[rows["metric"] == metric]
    said = rows["first_error_pct"].abs().groupby(rows["family"]).mean()
    found = {
        item["name"]: {
            "rows": item["of"][metric]["num_rows"], "held out": item["is_held_out"],
            "mean (%)": item["of"][metric]["mean_pct"], "P90 (%)": item["of"][metric]["p90_pct"],
            "worst (%)": item["of"][metric]["worst_pct"], "roofline (%)": item["of"][metric]["roofline_pct"],
            "said first (%)": said[item["name"]],
        }
        for item in table.document()["families_of_whole_kernels"]
        if not item["is_cut"] and metric in item["of"] and item["name"].startswith(kernel or "")
    }  # fmt: skip
    if not found:
        raise ConfigError(f"families: no family of whole kernels on {gpu} that begins with {kernel!r} has {metric}")
    return pd.DataFrame.from_dict(found, orient="index").rename_axis("family")


def metrics(gpu: str = "h200_sxm") -> pd.DataFrame:
    """Every number that whole kernels were judged by, over all families: rows, mean, P90, worst, a roofline's mean.

    In percent; hit rates in points. The mean is that of the families' means.

    Raises:
        ConfigError: no row of a GPU was judged.
    """
    import pandas as pd

    found = {
        item["name"]: {
            "rows": item["num_rows"], "families": item["num_families"], "mean": item["mean_pct"], "P90": item["p90_pct"],
            "worst": item["worst_pct"], "roofline": item["roofline_pct"],
            "unit": "points" if item["limit"]["is_points"] else "%",
        }
        for item in read_judged(gpu).document()["whole_kernels"]
    }  # fmt: skip
    return pd.DataFrame.from_dict(found, orient="index").rename_axis("metric")


def order_of_configurations(gpu: str = "h200_sxm") -> pd.Series:
    """How well configurations of one problem are ordered by cycles, over all kernels.

    ``right order (%)``: of pairs that were measured a tenth apart or more; ties count half. ``regret (%)``: what the best
    predicted one takes more than the best measured one, the mean over the problems; ``worst regret (%)``, and
    ``blind regret (%)`` of a configuration taken at random.

    Raises:
        ConfigError: no row of a GPU was judged, or too few of a problem.
    """
    import pandas as pd

    found = [item for item in read_judged(gpu).document()["ranks"] if item["by"] == CYCLES]
    if not found:
        raise ConfigError(f"order: no problem on {gpu} has three judged configurations")
    of = next((item for item in found if item["scope"] == "all kernels"), found[0])
    return pd.Series({
        "problems": of["num_problems"], "configurations": of["num_rows"], "clear pairs": of["num_clear_pairs"],
        "right order (%)": 50.0 * (1.0 + of["clear_tau"]), "regret (%)": of["regret_pct"],
        "worst regret (%)": of["worst_regret_pct"], "blind regret (%)": of["blind_regret_pct"],
    })  # fmt: skip


def rows_of(family: str, metric: str = CYCLES, *, gpu: str = "h200_sxm") -> pd.DataFrame:
    """The judged rows of a family: ``config``, ``predicted``, ``measured``, ``error (%)``, the largest error first.

    Raises:
        ConfigError: no such family or metric, or one that is held out, of which nobody looks at single rows.
    """
    frame = read_judged(gpu).frame()
    found = frame[(frame["family"] == family) & (frame["metric"] == metric)]
    if found.empty:
        known = ", ".join(sorted(set(frame["family"][~frame["held_out"]])))
        raise ConfigError(f"rows: no row of a family {family!r} has {metric}; wants one of {known}")
    if found["held_out"].any():
        raise ConfigError(f"rows: {family} is held out: nobody looks at its single rows; ask families() for its sums")
    found = found.rename(columns={"error_pct": "error (%)"})[["config", "predicted", "measured", "error (%)"]]
    return found.sort_values("error (%)", key=abs, ascending=False).reset_index(drop=True)


def said_of_itself(kernel: str, gpu: str, **params: Any) -> str:
    """How far a prediction says that it may be off, as ``gpusim predict --all`` prints it.

    >>> said_of_itself("softmax", "toy")
    'outside of what was validated: no softmax was measured on toy'

    Args:
        kernel: a kernel model.
        gpu: its machine.
        params: of the prediction, as far as they tell which family it is like.
    """
    told = expected_error(kernel, gpu, params)
    return unknown(kernel, gpu, params) if told is None else f"within {told.p90_pct:g} % of the {told.what}: {told.text}"
