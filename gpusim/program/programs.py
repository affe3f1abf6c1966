"""Programs: what the roles of a launch do, as flat records; the costs of ops as tables of those that differ.

In: nothing. Out: the dataclass that tracing gives and packing takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim.program.records import OpKind, StoreKind
from gpusim.workload.access import AccessPattern
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.fetches import Fetches
from gpusim.workload.ops import Fma, LoopCode, TmaLoad, TmaStore, Wgmma

IntArray = NDArray[np.int32]
NONE = -1
"""A number in a row that names no other row."""


class StoreRow(NamedTuple):
    """A store to global memory by so many warps."""

    access: int
    num_warps: int
    kind: StoreKind


class AsyncCopyRow(NamedTuple):
    """The numbers of a ``cp.async`` op; fields as ``records.TABLES["async_copies"]`` has them."""

    access: int
    num_rows: float
    num_passes: float
    num_between: float
    new_fraction: float
    fetches: int
    neighbours_begin: int
    num_neighbours: int


class TmaLoadRow(NamedTuple):
    """TMA loads that cost alike: one of them, and where its neighbours and the ranks that receive it are listed."""

    op: TmaLoad
    neighbours_begin: int
    num_neighbours: int
    ranks_begin: int
    num_ranks: int
    fetches: int


class WgmmaRow(NamedTuple):
    """Batches of wgmma that cost alike: one of them, and who issues it."""

    op: Wgmma
    num_warpgroups: int
    num_warps: int


class FarCodeRow(NamedTuple):
    """A stretch of a kernel's code; ``name`` is its place in ``far_code_names``."""

    name: int
    begin_bytes: float
    end_bytes: float
    own_cycles: float


class AluRow(NamedTuple):
    """Integer work; fields as ``ops.Alu`` has them."""

    num_instructions: float
    num_beside: float
    num_more: float


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
    num_panels: int
    tensors: tuple[str, ...]
    """Names by number: those of the footprints in order, then others as they were met."""
    stages: tuple[tuple[str, int], ...]
    """(buffer, stage) of each place in a CTA's list of stages."""
    barriers: tuple[tuple[str, int], ...]
    """(ring, stage) of each place in a CTA's list of mbarriers."""
    named_barriers: tuple[str, ...]
    code_names: tuple[str, ...]
    far_code_names: tuple[str, ...]
    accesses: tuple[AccessPattern, ...]
    stores: tuple[StoreRow, ...]
    async_copies: tuple[AsyncCopyRow, ...]
    fetches: tuple[Fetches, ...]
    tma_loads: tuple[TmaLoadRow, ...]
    tma_stores: tuple[TmaStore, ...]
    wgmmas: tuple[WgmmaRow, ...]
    mma_syncs: tuple[MmaAtom, ...]
    far_codes: tuple[FarCodeRow, ...]
    loop_codes: tuple[LoopCode, ...]
    fmas: tuple[Fma, ...]
    alus: tuple[AluRow, ...]
    kinds: frozenset[OpKind]
    """Kinds of op that occur."""
    num_ops_traced: int
    """Ops that programs have yielded while they were traced, those of CTAs that were only compared included."""
