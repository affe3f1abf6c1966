"""Programs of a launch as flat records: the ops of its roles, and the tables that they refer to.

In: nothing. Out: the dataclass that tracing returns and packing takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusim.program.costs import Costs

IntArray = NDArray[np.int32]
NONE = -1
"""Index in a row that refers to no other row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """All programs of a launch, and the tables that their ops refer to by index."""

    ops: NDArray[np.void]
    """Records of ``records.OPS``: the programs, one after the other."""
    lists: IntArray
    """Numbers that ops and rows refer to by begin and length."""
    neighbours: IntArray
    """Pairs (column of ``cta_panels``, step), int32[num_neighbours, 2]; begins count pairs."""
    programs: NDArray[np.void]
    """Records of ``records.TABLES["programs"]``: begin, number of ops and number of token slots of each program."""
    cta_class: IntArray
    """Class of each CTA, int32[num_ctas]."""
    class_programs: IntArray
    """Program of each role, by class: int32[num_classes, num_roles]."""
    cta_panels: IntArray
    """Panel of each column, by CTA: int32[num_ctas, num_panels]; 0 where a CTA's programs do not use the column."""
    tensors: tuple[str, ...]
    """Names of tensors by index: footprints in order, then others in the order of first occurrence."""
    stages: tuple[tuple[str, int], ...]
    """Pair (buffer, stage) of each index in a CTA's list of stages."""
    barriers: tuple[tuple[str, int], ...]
    """Pair (ring, stage) of each index in a CTA's list of mbarriers."""
    named_barriers: tuple[str, ...]
    code_names: tuple[str, ...]
    cold_code_names: tuple[str, ...]
    costs: Costs
    num_ops_traced: int
    """Ops that programs yielded during tracing, including CTAs that were only compared."""
