"""Accuracy of predictions for validation kernels: by family, by metric, as a ranking, and row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusim.errors import ConfigError
from gpusim.evidence.cases.paths import CYCLES
from gpusim.evidence.validate.expected_error import expected_error
from gpusim.evidence.validate.judged_rows import read_judged
from gpusim.report.predictions import error_words

if TYPE_CHECKING:
    import pandas as pd


def families(metric: str = CYCLES, *, kernel: str | None = None, gpu: str = "h200_sxm") -> pd.DataFrame:
    """Errors of validation kernels by family, in percent: mean, P90, worst, mean of the roofline, mean of blind predictions.

    A family is a kernel, or a schedule of one. ``held out`` means that nobody has looked for mechanisms in its rows.

    >>> list(families(kernel="softmax").columns)
    ['rows', 'held out', 'mean (%)', 'P90 (%)', 'worst (%)', 'roofline (%)', 'said first (%)']

    Args:
        metric: Nsight Compute metric; cycles by default.
        kernel: beginning of the families' names.
        gpu: GPU of the rows.

    Raises:
        ConfigError: no row of the GPU was judged, or no such family has the metric.
    """
    import pandas as pd

    table = read_judged(gpu)
    rows = table.frame()
    rows = rows[rows["metric"] == metric]
    blind = rows["first_error_pct"].abs().groupby(rows["family"]).mean()
    found = {
        item["name"]: {
            "rows": item["of"][metric]["num_rows"], "held out": item["is_held_out"],
            "mean (%)": item["of"][metric]["mean_pct"], "P90 (%)": item["of"][metric]["p90_pct"],
            "worst (%)": item["of"][metric]["worst_pct"], "roofline (%)": item["of"][metric]["roofline_pct"],
            "said first (%)": blind[item["name"]],
        }
        for item in table.document()["families_of_whole_kernels"]
        if not item["is_cut"] and metric in item["of"] and item["name"].startswith(kernel or "")
    }  # fmt: skip
    if not found:
        raise ConfigError(f"families: no family of whole kernels on {gpu} that begins with {kernel!r} has {metric}")
    return pd.DataFrame.from_dict(found, orient="index").rename_axis("family")


def metrics(gpu: str = "h200_sxm") -> pd.DataFrame:
    """Errors of every judged number of validation kernels, over all families: rows, mean, P90, worst, mean of the roofline.

    In percent; hit rates in points. The mean is over the families' means.

    Raises:
        ConfigError: no row of the GPU was judged.
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
    """Ranking of the configurations of one problem by cycles, over all kernels.

    ``right order (%)``: pairs in the right order, of pairs measured to differ by a tenth or more; ties count half. ``regret
    (%)``: mean excess of the best predicted configuration over the best measured one. ``worst regret (%)``: its maximum over
    the problems. ``blind regret (%)``: mean excess of a random configuration.

    Raises:
        ConfigError: no row of the GPU was judged, or too few of each problem.
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
    """Judged rows of a family: ``config``, ``predicted``, ``measured``, ``error (%)``, the largest error first.

    Raises:
        ConfigError: there is no such family or metric, or it is held out, so that nobody may look at single rows.
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


def expected_error_text(kernel: str, gpu: str, **params: Any) -> str:
    """Expected error of a prediction, in the text that ``gpusim predict --all`` prints.

    >>> expected_error_text("softmax", "toy")
    'outside of what was validated: no softmax was measured on toy'

    Args:
        kernel: name of a kernel model.
        gpu: name of a GPU.
        params: parameters of the prediction that determine its family.
    """
    return error_words(expected_error(kernel, gpu, params), kernel, gpu, params)
