"""Epilogue of a split-K kernel: partial sums, which the last part or a second kernel completes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.mainloop.epilogue import Epilogue, Program
from gpusim.kernel_models.mainloop.instruction_fetch import cold_code
from gpusim.kernel_models.mainloop.output import SUM_BYTES
from gpusim.kernel_models.mainloop.shape import Coordinates
from gpusim.workload import ops
from gpusim.workload.data_access import Data
from gpusim.workload.ops import Op
from gpusim.workload.smem.access import AccessPattern

PART_COLUMNS = 32
"""Columns of a block in the direct epilogue of a split-K part. Its overhead instructions and stores alternate, as in
SASS."""


@dataclass(frozen=True, kw_only=True)
class SplitKEpilogue(Epilogue):
    """Epilogue of one math role for its part of a tile whose K is divided among CTAs."""

    plan: TilePlan

    @property
    def _num_chunks(self) -> int:
        return max(super()._num_chunks, self.share_n // PART_COLUMNS)

    @cached_property
    def _last_part_code(self) -> list[list[Op]]:
        """Cold instruction fetch of the last part: of each column block's zeros, then of D."""
        config, num = self.plan.config, 2 * self._num_chunks
        compiled = config.compiled_code
        return cold_code("last part", compiled.layout.last_part, 2 * compiled.epilogue.chain_cycles, num_parts=num)

    def _cold_code_of_d(self) -> list[list[Op]]:
        return self._last_part_code[-self._num_chunks :]

    def _store(self, at: Coordinates, rows: int, columns: int, turn: int) -> Program:
        if self.plan.is_serial:
            yield from super()._store(at, rows, columns, turn)
            yield from self._count(self.plan.panel_of_d(at), is_last=False)
        elif self.plan.is_inside(at):
            yield from self._split_k(at, rows, columns)

    def _begin(self, at: Coordinates) -> Data | None:
        """A part of a serial split waits for the part before."""
        if self.data and self.plan.is_serial:
            return self.data.begin, self.data.count(self.plan.panel_of_d(at), self.slot, at.part, None)
        return super()._begin(at)

    def _added(self, at: Coordinates) -> str:
        """C, or the D of the part before where the split is serial: that part is taken to have stored it."""
        return "D" if self.plan.is_serial and at.part else super()._added(at)

    def _split_k(self, at: Coordinates, rows: int, columns: int) -> Program:
        """Split-K epilogue: partial sums, added in L2 by red, or stored for a second kernel.

        In the kernel, each part adds its accumulators to a workspace with ``red.global.add`` and waits until they have
        arrived. Its threads meet at a barrier, and one of them increments a counter. The last part (here: the one with the
        highest index) resets the counter, loads the complete sum and stores zeros in its place. It stores D once the sum has
        arrived. Each pass over the accumulators takes the epilogue's code.
        """
        plan, config = self.plan, self.plan.config
        chunks = self._chunks(columns) if rows else []
        sums = [(idx, self._stores(rows, inside, SUM_BYTES)) for idx, inside in chunks]
        width = self._chunk_width
        panel = plan.panel_of_d(at)
        walk, far = self._walk(len(chunks)), self._cold_code(self._num_chunks)
        if config.split_k_mode == "second_kernel":
            panel = plan.panel_of_part(at)
            for idx, access in sums:
                yield from far[idx]
                yield from walk
                data = self._data("store_sums", at, idx * width, width, False)
                yield ops.GlobalStore("workspace", (panel, self._step(idx)), access, data=data)
            return
        for idx, access in sums:
            yield from far[idx]
            yield from walk
            data = self._data("store_sums", at, idx * width, width, False)
            yield ops.GlobalAtomic("workspace", (panel, self._step(idx)), access, data=data)
        is_last = at.part == config.split_k - 1
        yield from self._count(panel, is_last=is_last)
        if not is_last:
            return
        yield ops.FenceAcqRel()
        tokens = []
        for idx, inside in chunks:
            access = self._loads(rows, inside, SUM_BYTES)
            yield from walk
            data, tile = self._data("load_sums", at, idx * width, width), (panel, self._step(idx))
            tokens.append((yield ops.GlobalLoad("workspace", tile, access, allocates_in_l1=False, data=data)))
        far = self._last_part_code
        for idx, access in sums:  # zeros, for the next launch
            yield from far[idx]
            yield from walk
            data = self._data("store_sums", at, idx * width, width, True)
            yield ops.GlobalStore("workspace", (panel, self._step(idx)), access, data=data)
        for token in tokens:
            yield ops.Use(token)
        if chunks:
            yield from self._direct(at, rows, columns)

    def _count(self, panel: int, *, is_last: bool) -> Program:
        """Wait until the sums have arrived, then let one thread increment the tile's counter. The last part resets it."""
        meet: Op = ops.BarSync(self.barrier) if self.barrier else ops.Syncthreads()
        yield ops.FenceAcqRel()
        yield meet
        one = AccessPattern(num_requests=1, num_sectors=1, num_lines=1, num_bytes=SUM_BYTES)
        num = self.plan.config.split_k if is_last else 0
        data = self._data("count", panel, self.slot, num)
        counted = yield ops.GlobalAtomic("counters", (panel, self.slot), one, returns=True, data=data)
        yield ops.Use(counted)
        if is_last:
            yield ops.GlobalStore("counters", (panel, self.slot), one, data=data)
        yield meet
