"""Plots of lesson tables: measured points over predicted lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from gpusim.errors import ConfigError
from gpusim.report.plots.measured import plot_measured

if TYPE_CHECKING:
    from gpusim.report.plots.picture import Picture

KINDS = ("predicted", "measured")


def plot_errors(
    tables: pd.DataFrame | pd.Series | Mapping[str, pd.DataFrame | pd.Series], x: str, y: str, *, title: str = "",
    log_x: bool = False, log_y: bool = False, is_joined: bool = True,
) -> Picture:
    """Plot a table of :func:`judged` or :func:`error_table`: points for measurements, lines for predictions, and the errors.

    >>> from gpusim.lessons import error_table
    >>> picture = plot_errors(error_table({1: 9.0, 2: 4.0}, {1: 8.0, 2: 4.0}, "us", index="stages"), "stages", "time_us")
    >>> "stages" in picture.alt
    True

    Args:
        tables: a table with columns ``predicted (unit)`` and ``measured (unit)``, or one of them. Or predictions alone, by
            index. Or several of these by name.
        x: column, or index, of the horizontal axis.
        y: name of the plotted quantity, which ends in its unit (``time_us``).
        title: title of the picture.
        log_x: logarithmic to base 2.
        log_y: logarithmic.
        is_joined: whether predicted values are joined by lines; False if no values of ``x`` lie in between.

    Raises:
        ConfigError: a table has neither column.
        GpusimError: as in ``plot_measured``.
    """
    several = dict(tables) if isinstance(tables, Mapping) else {"": tables}
    frames = {}
    for name, table in several.items():
        frame = table.to_frame("predicted") if isinstance(table, pd.Series) else table
        flat = frame.reset_index() if x in frame.index.names else frame
        found = {column: kind for column in flat.columns for kind in KINDS if str(column).partition(" (")[0] == kind}
        if x not in flat.columns or not found:
            raise ConfigError(f"plot: {name or 'the table'} has {list(flat.columns)}, wants {x}, and predicted or measured")
        frames[name] = flat[[x, *found]].rename(columns=found)
    return plot_measured(frames, x=x, y=y, title=title, log_x=log_x, log_y=log_y, is_joined=is_joined)
