"""How far to trust predictions: whole kernels as they were judged, summed up by family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusim.errors import ConfigError
from gpusim.evidence.judged import read_judged
from gpusim.evidence.places import CYCLES

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
