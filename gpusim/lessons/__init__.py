"""What notebooks call: measured rows, a reader's prediction held against the answer, the studies that lessons show.

In: what a cell asks. Out: tables, comparisons, studies; pictures come from ``report``. It has no numbers of its own: each
comes from the simulator or from ``validation/measured``. Nobody in gpusim imports this room.
"""

from __future__ import annotations

from gpusim.lessons.answers import Comparison, beside, claims, compare
from gpusim.lessons.rows import judged, measured

__all__ = ["Comparison", "beside", "claims", "compare", "judged", "measured"]
