"""Register fragments of mma.sync and fma kernels: what each slice of a k-step reads, the math it feeds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gpusim.kernel_models.gemm.shares import Shares
from gpusim.kernel_models.gemm.tiles import TilePlan
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.atoms import mma_sync
from gpusim.workload.operand import ldmatrix_reads, shared_vector_reads
from gpusim.workload.ops import Op

MOST_KS = 4
"""Of a slice of an fma k-step: fewer are simulated for longer, and move a kernel's time by some percent."""


def doubling(num_ks: int) -> list[int]:
    """One, two, four, four, ... of ``num_ks``, as far as they go, and the last alone.

    >>> doubling(8), doubling(12), doubling(2), doubling(1)
    ([1, 2, 4, 1], [1, 2, 4, 4, 1], [1, 1], [1])
    """
    found: list[int] = []
    left = num_ks - 1
    while left:
        found.append(min(2 ** len(found), left, MOST_KS))
        left -= found[-1]
    return [*found, 1]


@dataclass(frozen=True)
class Fragments:
    """Slices of a k-step, of all warps together: one MMA deep for mma.sync; for fma one k, two, fours, the last k alone.

    An fma kernel's registers hold the vectors of two k, and each k's are read behind the math of the one before: so the
    first math of a slot waits for one k's vectors alone, and the wait for the next slot stands before the last k's math.
    Ignores: that what lies between is read k by k, too.
    """

    plan: TilePlan
    teams: tuple[int, int] = (1, 1)
    """Parts of the warps along M and N, of which one is meant; all of them read alike."""

    @cached_property
    def slices(self) -> list[AccessPattern]:
        """Fragment reads of each slice."""
        if self.plan.params.math != "mma_sync":
            return self._vector_slices()
        rows = Shares(self.plan.params).share[0]
        return [self._ldmatrix(idx, 0, rows) for idx in range(self._num_slices)]

    @property
    def _num_slices(self) -> int:
        return self.plan.tile[2] // mma_sync(self.plan.params.element).k

    def _ldmatrix(self, idx: int, first: int, num_rows: int) -> AccessPattern:
        """Of slice ``idx``: ``num_rows`` rows of A of each warp, its row ``first`` and those behind; with row 0 all of B."""
        shares, found = Shares(self.plan.params), AccessPattern()
        ways = [all_ways // teams for all_ways, teams in zip(shares.ways, self.teams, strict=True)]
        for which, operand in enumerate(self.plan.operands):
            share = shares.share[which]
            begin, num = (0, share) if which else (first, num_rows)
            for warp in range(0 if which and first else ways[which]):
                read = ldmatrix_reads(operand, rows_per_warp=num, first_row=warp * share + begin, k_step_idx=idx)
                found += read.scaled(ways[1 - which])
        return found

    def _vector_slices(self) -> list[AccessPattern]:
        """ld.shared of the thread tiles' rows of A and columns of B, 16 bytes at a time."""
        shares = Shares(self.plan.params)
        rows, columns = shares.share
        of_a = shared_vector_reads(num_coords=4, lanes_per_coord=8, elements_per_thread=rows // 4)
        of_b = shared_vector_reads(
            num_coords=8, lanes_per_coord=1, elements_per_thread=columns // 8, is_blocked=False
        )
        return [(of_a + of_b).scaled(shares.num_math_warps * num_ks) for num_ks in self._depths]

    @cached_property
    def _depths(self) -> list[int]:
        """K's of each slice of an fma k-step."""
        return doubling(self.plan.tile[2])

    @cached_property
    def reads(self) -> list[list[Op]]:
        """For each stage the reads of its slices; each yields a token."""
        num_stages = self.plan.params.stages
        assert num_stages is not None  # resolved
        kind = ops.Ldmatrix if self.plan.params.math == "mma_sync" else ops.SharedLoad
        return [[kind(access, "a", stage) for access in self.slices] for stage in range(num_stages)]

    @cached_property
    def pieces(self) -> list[list[list[tuple[Op, Op]]]]:
        """For each stage and slice of mma.sync what is read and then multiplied, in the order in which it is read.

        All of B and an instruction's rows of A first, then one, two, four, ... instructions' rows.
        Source: SASS of ``kernels/hgemm`` with ``--fragments single``.
        """
        (rows, columns), atom = Shares(self.plan.params).share, mma_sync(self.plan.params.element)
        starts = [0, *(2**idx for idx in range((rows // atom.m - 1).bit_length()))]
        spans = [(first, min(end, rows // atom.m)) for first, end in pairwise([*starts, rows // atom.m]) if first < end]
        num_stages = self.plan.params.stages
        assert num_stages is not None  # resolved
        found: list[list[tuple[AccessPattern, Op]]] = [
            [
                (self._ldmatrix(idx, first * atom.m, (end - first) * atom.m),
                 ops.MmaSync(atom, (end - first) * (columns // atom.n)))
                for first, end in spans
            ]
            for idx in range(self._num_slices)
        ]  # fmt: skip
        return [
            [[(ops.Ldmatrix(access, "a", stage), math) for access, math in pieces] for pieces in found]
            for stage in range(num_stages)
        ]

    @cached_property
    def math(self) -> list[Op]:
        """The math of each slice."""
        rows, columns = Shares(self.plan.params).share
        if self.plan.params.math == "mma_sync":
            atom = mma_sync(self.plan.params.element)
            return [ops.MmaSync(atom, (rows // atom.m) * (columns // atom.n))] * len(self.slices)
        return [ops.Fma(rows * columns // 32 * num_ks) for num_ks in self._depths]
