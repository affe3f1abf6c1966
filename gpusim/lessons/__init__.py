"""Functions for lesson notebooks: measured rows, comparison of a reader's prediction with the answer, studies.

In: arguments of a cell. Out: tables, comparisons, studies; pictures come from ``report``. Each number comes from the
simulator or from ``validation/measured``. No other package of gpusim imports this one.
"""

from __future__ import annotations

from gpusim.lessons.answers import Comparison, compare, error_table
from gpusim.lessons.rows import judged, measured

__all__ = ["Comparison", "compare", "error_table", "judged", "measured"]
