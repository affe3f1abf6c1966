"""The end of a tile: accumulators become D. Straight from registers, through shared memory, or by TMA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from gpusim.kernel_models.gemm.tiles import TilePlan
from gpusim.workload import ops
from gpusim.workload.access import (
    AccessPattern,
    OperandTile,
    epilogue_store,
    stmatrix_writes,
    tma_boxes,
)
from gpusim.workload.launch import RoleContext
from gpusim.workload.ops import Op, RangeEnd, RangeStart, Section

NUM_CHUNKS = 2
"""Pieces in which a direct epilogue alternates conversion and stores."""

ACTIVATION_COST = {"none": (0, 0), "relu": (1, 0), "gelu": (8, 1), "silu": (3, 2)}
"""(ALU or FMA, MUFU) instructions an element. Source: relu is one FMNMX; gelu by tanh.approx; silu by ex2 and rcp."""

SECTOR = 32


@dataclass(frozen=True)
class Epilogue:
    """What one math role does with its share of the tile: ``share_m`` x ``share_n``, held by ``num_warps`` warps."""

    plan: TilePlan
    share_m: int
    share_n: int
    num_warps: int
    slice_n: int
    """Columns that one slice of the staging buffer holds (shared memory and TMA store)."""
    barrier: str
    """Named barrier of the role's threads, for the staging buffer; empty: ``__syncthreads``."""
    buffer: str = "epilogue"
    slot: int = 0
    """This role's slot of the staging buffer."""

    @property
    def _out_bytes(self) -> int:
        params = self.plan.params
        return 4 if params.split_k > 1 else params.out_element.num_bytes

    @property
    def _elements_per_thread(self) -> float:
        return self.share_m * self.share_n / (self.num_warps * 32)

    def _arithmetic(self, num_slices: int) -> list[Op]:
        """Scaling, bias, activation and conversion of a slice, as instructions of each warp."""
        params = self.plan.params
        elements = self._elements_per_thread / num_slices
        alu, mufu = ACTIVATION_COST[params.activation]
        per_element = float(alu)
        if params.alpha != 1.0 or params.beta != 0.0:
            per_element += 1.0
        if params.beta != 0.0:
            per_element += 0.5  # C's 16-bit pairs are unpacked
        if params.bias:
            per_element += 1.0
        packing = 0.5 if self._out_bytes == 2 else 1.0 if self._out_bytes == 1 else 0.0
        found: list[Op] = [ops.Alu(elements * (per_element + packing))]
        if mufu:
            found.append(ops.Mufu(elements * mufu))
        return found

    def _clipped(self, access: AccessPattern, m: int, n: int) -> AccessPattern:
        """``access`` of a whole share, cut to what lies inside of D."""
        plan = self.plan
        rows, columns = plan.rows_of_a(m), plan.rows_of_b(n)
        if rows == plan.tile[0] and columns == plan.tile[1]:
            return access
        share = rows * columns / (plan.tile[0] * plan.tile[1])
        return replace(
            access, num_requests=round(access.num_requests * share), num_sectors=round(access.num_sectors * share),
            num_lines=round(access.num_lines * share), num_bytes=round(access.num_bytes * share),
        )

    @cached_property
    def _direct_access(self) -> AccessPattern:
        kind = self.plan.params.math
        assert kind is not None  # resolved
        return epilogue_store(self.share_m, self.share_n, self._out_bytes, kind)

    @cached_property
    def _staged_writes(self) -> AccessPattern:
        """Fragments into the staging buffer: stmatrix for 16-bit outputs, st.shared of vectors otherwise."""
        params = self.plan.params
        row_bytes = self.slice_n * self._out_bytes
        mode = "128B" if row_bytes % 128 == 0 else "64B" if row_bytes % 64 == 0 else "32B" if row_bytes % 32 == 0 else "none"
        if self._out_bytes == 2 and self.share_m % 8 == 0 and self.slice_n % 8 == 0:
            return stmatrix_writes(self.share_m, self.slice_n, params.out_element, mode)
        num_bytes = self.share_m * self.slice_n * self._out_bytes
        return AccessPattern(
            num_requests=-(-num_bytes // (8 * 32)), num_wavefronts=-(-num_bytes // 128), num_bytes=num_bytes
        )

    @cached_property
    def _staged_stores(self) -> AccessPattern:
        """The staging buffer to global memory, 16 bytes a thread, whole rows."""
        num_bytes = self.share_m * self.slice_n * self._out_bytes
        return AccessPattern(
            num_requests=-(-num_bytes // 512), num_sectors=num_bytes // SECTOR,
            num_lines=max(1, num_bytes // 128), num_wavefronts=num_bytes // 128, num_bytes=num_bytes,
        )

    def program(self, cta: RoleContext, tile: tuple[int, int, int, int], turn: int) -> Iterator[Op]:
        """The epilogue of tile (m, n, batch, part)."""
        yield RangeStart(Section.EPILOGUE)
        m, n, batch, part = tile
        plan, params = self.plan, self.plan.params
        if plan.rows_of_a(m) and plan.rows_of_b(n):
            where = ((batch * plan.num_m + m) * plan.num_n + n, self.slot)
            if params.beta != 0.0 and part == 0:
                token = yield ops.GlobalLoad("C", (where[0], 0), self._clipped(self._direct_access, m, n))
                yield ops.Use(token)
            if params.bias and part == 0:
                columns = self.share_n
                token = yield ops.GlobalLoad(
                    "bias", (n, 0),
                    AccessPattern(
                        num_requests=self.num_warps, num_sectors=max(1, columns * 4 // SECTOR),
                        num_lines=max(1, columns * 4 // 128), num_bytes=columns * 4,
                    ),
                )
                yield ops.Use(token)
            if params.split_k > 1:
                yield from self._split_k(where, m, n, part)
            elif params.epilogue == "direct":
                yield from self._direct(where, m, n)
            else:
                yield from self._staged(where, m, n, turn)
        yield RangeEnd()

    def _direct(self, where: ops.Tile, m: int, n: int) -> Iterator[Op]:
        access = self._clipped(self._direct_access, m, n).scaled(1 / NUM_CHUNKS)
        arithmetic = self._arithmetic(NUM_CHUNKS)
        for chunk in range(NUM_CHUNKS):
            yield from arithmetic
            yield ops.GlobalStore("D", (where[0], chunk), access)

    def _staged(self, where: ops.Tile, m: int, n: int, turn: int) -> Iterator[Op]:
        params = self.plan.params
        num_slices = -(-self.share_n // self.slice_n)
        arithmetic = self._arithmetic(num_slices)
        sync: Op = ops.BarSync(self.barrier) if self.barrier else ops.Syncthreads()
        by_tma = params.epilogue == "tma_store"
        for idx in range(num_slices):
            if by_tma:  # the slice's last reader was the TMA engine
                yield ops.BulkWaitGroup(0, read=True)
            if idx or turn or by_tma:
                yield sync
            yield from arithmetic
            yield ops.Stmatrix(self._staged_writes, self.buffer, self.slot)
            if by_tma:
                yield ops.FenceProxyAsync()
                yield sync
                yield self._tma_store(where, m, n, idx)
                yield ops.BulkCommitGroup()
            else:
                yield sync
                access = self._clipped(self._staged_stores, m, n)
                token = yield ops.SharedLoad(
                    AccessPattern(
                        num_requests=access.num_requests, num_wavefronts=self._staged_stores.num_wavefronts,
                        num_bytes=access.num_bytes,
                    ),
                    self.buffer, self.slot,
                )
                yield ops.Use(token)
                yield ops.GlobalStore("D", (where[0], idx), access)
        if by_tma:
            yield ops.BulkWaitGroup(0, read=True)

    def _tma_store(self, where: ops.Tile, m: int, n: int, idx: int) -> ops.TmaStore:
        params, plan = self.plan.params, self.plan
        row_bytes = self.slice_n * self._out_bytes
        mode = "128B" if row_bytes % 128 == 0 else "64B" if row_bytes % 64 == 0 else "32B" if row_bytes % 32 == 0 else "none"
        boxes = tma_boxes(
            OperandTile(rows=self.share_m, k=self.slice_n, dtype=params.out_element, is_k_major=True, swizzle=mode)
        )
        inside = plan.rows_of_a(m) * plan.rows_of_b(n) / (plan.tile[0] * plan.tile[1])
        return ops.TmaStore(
            "D", (where[0], idx), round(sum(box.num_bytes for box in boxes) * inside),
            sum(box.num_rows for box in boxes), self.buffer, self.slot, num_boxes=len(boxes),
        )

    def _split_k(self, where: ops.Tile, m: int, n: int, part: int) -> Iterator[Op]:
        """Parts of K: fp32 partial sums, added in L2 by red, or written for a second kernel to add.

        In the kernel: every part adds its accumulators to an fp32 workspace with ``red.global.add``, fences and counts
        itself; the last part (here: the one with the highest index) reads the sum back and writes D.
        """
        params = self.plan.params
        access = self._clipped(self._direct_access, m, n).scaled(1 / NUM_CHUNKS)
        if params.split_k_mode == "second_kernel":
            for chunk in range(NUM_CHUNKS):
                yield ops.GlobalStore("D", (where[0], chunk), access)
            return
        for chunk in range(NUM_CHUNKS):
            yield ops.GlobalAtomic("workspace", (where[0], chunk), access)
        one = AccessPattern(num_requests=1, num_sectors=1, num_lines=1, num_bytes=4)
        counted = yield ops.GlobalAtomic("workspace", (where[0], NUM_CHUNKS), one, returns=True)
        yield ops.Use(counted)
        if part == params.split_k - 1:
            token = yield ops.GlobalLoad("workspace", (where[0], self.slot), self._clipped(self._direct_access, m, n), False)
            yield ops.Use(token)
            narrow = epilogue_store(self.share_m, self.share_n, params.out_element.num_bytes, params.math or "fma")
            for chunk in range(NUM_CHUNKS):
                yield from self._arithmetic(NUM_CHUNKS)
                yield ops.GlobalStore("D", (where[0], chunk), self._clipped(narrow, m, n).scaled(1 / NUM_CHUNKS))
