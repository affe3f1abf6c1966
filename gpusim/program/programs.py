"""Programs: what the roles of a launch do, as flat records; what their ops refer to.

In: nothing. Out: the dataclass that tracing gives and packing takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusim.program.costs import Costs

IntArray = NDArray[np.int32]
NONE = -1
"""A number in a row that names no other row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """All programs of a launch, and what their ops refer to by number."""

    ops: NDArray[np.void]
    """Records of ``records.OPS``: the programs, one behind the other."""
    lists: IntArray
    """Numbers that ops and rows refer to by begin and length."""
    neighbours: IntArray
    """Pairs (column of ``cta_panels``, step), int32[num_neighbours, 2]; begins count pairs."""
    programs: NDArray[np.void]
    """Records of ``records.TABLES["programs"]``: where each begins, how many ops and token slots it has."""
    cta_class: IntArray
    """The class of each CTA, int32[num_ctas]."""
    class_programs: IntArray
    """For each class the program of each role, int32[num_classes, num_roles]."""
    cta_panels: IntArray
    """For each CTA the panel of each column, int32[num_ctas, num_panels]; 0 where its programs do not use the column."""
    tensors: tuple[str, ...]
    """Names by number: those of the footprints in order, then others as they were met."""
    stages: tuple[tuple[str, int], ...]
    """(buffer, stage) of each place in a CTA's list of stages."""
    barriers: tuple[tuple[str, int], ...]
    """(ring, stage) of each place in a CTA's list of mbarriers."""
    named_barriers: tuple[str, ...]
    code_names: tuple[str, ...]
    far_code_names: tuple[str, ...]
    costs: Costs
    num_ops_traced: int
    """Ops that programs have yielded while they were traced, those of CTAs that were only compared included."""
