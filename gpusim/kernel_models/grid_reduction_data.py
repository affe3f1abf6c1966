"""How sums of a grid are divided among CTAs, and their data accesses, in fp32.

In: options of the kernel. Out: numbers of sums, parts and turns; accesses of ``workload/data_access.py``.

Registers "sum" have what a thread has added, "result" the sums that the first warps of a CTA have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusim.kernel_models.reduction_options import ReductionParams
from gpusim.kernel_models.rows import WORD_BYTES
from gpusim.kernel_models.stream_data import LOADED, loaded, of_warps, shared, stored
from gpusim.kernel_models.streaming import IntArray, ceil_div
from gpusim.units import WARP_SIZE
from gpusim.workload.data_access import Counter, GlobalElements, Registers, SharedElements
from gpusim.workload.dtypes import FP32, INT32
from gpusim.workload.tensor import MemRef

GROUP_WARPS = 4
"""Warps of a CTA that run in lockstep: one of each scheduler."""


class GridDivision:
    """Sums and parts of a grid. CTA c has part ``c // num_sums`` of a sum."""

    def __init__(self, params: ReductionParams) -> None:
        """Work out how rows, columns or the array are divided."""
        self.params = params
        self.num_warps = params.num_warps
        self.is_column = params.axis == "column"
        rows, columns = (1, params.rows * params.columns) if params.axis == "all" else (params.rows, params.columns)
        self.num_vectors = columns // params.vector_elements
        self.num_rows = rows
        self.num_parts = params.num_parts
        self.words = params.width if self.is_column else 1
        """Words of a part."""
        self.num_sums = columns // params.width if self.is_column else rows
        """Sums (or groups of columns), each divided into ``num_parts``."""
        self.lanes = WARP_SIZE if params.per == "warp" else params.threads
        self.stride = self.num_parts * (self.num_warps if self.is_column else self.lanes)
        """Rows, or vectors of a row, that all parts process in one turn."""
        self.num_turns = ceil_div(rows if self.is_column else self.num_vectors, self.stride)
        self.num_steps = self.num_turns * ceil_div(self.num_warps, GROUP_WARPS)
        self.is_torch = params.code == "torch" and self.is_column
        self.smem_bytes = 0 if params.per == "warp" else WORD_BYTES * (self.words if self.is_column else 1) * self.num_warps

    # -------------------------------------------------------------------------------------- tensors
    def tensors(self) -> tuple[MemRef, ...]:
        """Array, sums, parts of sums, and counters."""
        params, num_words = self.params, self.num_sums * self.words
        is_narrow = self.is_torch and (params.finish == "last_cta" or (params.finish == "atomic" and self.num_parts == 1))
        return (
            MemRef.row_major("in", (params.rows, params.columns), params.element),
            MemRef.row_major("out", (num_words,), params.element if is_narrow else FP32),
            MemRef.row_major("parts", (num_words * self.num_parts,), FP32),
            MemRef.row_major("counter", (self.num_sums,), INT32),
        )

    # -------------------------------------------------------------------------------------- accesses
    def _own_words(self, num_threads: int) -> IntArray:
        """Words of a part that each of the first threads has: int64[threads, words]; -1: none."""
        word = np.arange(num_threads)[:, None] + num_threads * np.arange(ceil_div(self.words, num_threads))
        return np.where(word < self.words, word, -1)

    def _lane_columns(self, thread: IntArray) -> IntArray:
        vector = self.params.vector_elements
        return thread % WARP_SIZE * vector + np.arange(vector)

    def load(self, cta_idx: int, turns: Sequence[int], first_warp: int, num_warps: int, _op: object) -> GlobalElements:
        """The load of some turns, whose elements are added to the sums."""
        part, of_sum = divmod(cta_idx, self.num_sums)
        thread = first_warp * WARP_SIZE + np.arange(num_warps * WARP_SIZE)[:, None]
        turn, vector = np.array(turns), self.params.vector_elements
        row_elements = self.num_vectors * vector
        if self.is_column:
            row = turn * self.stride + part * self.num_warps + thread // WARP_SIZE
            first = np.where(row < self.num_rows, row * row_elements + of_sum * self.words, -1)[:, :, None]
            index = np.where(first < 0, -1, first + self._lane_columns(thread)[:, None, :])
        else:
            is_warp = self.params.per == "warp"
            row = cta_idx * self.num_warps + thread // WARP_SIZE if is_warp else np.full_like(thread, of_sum)
            at = turn * self.stride + (thread % WARP_SIZE if is_warp else part * self.lanes + thread)
            is_inside = (at < self.num_vectors) & (row < self.num_rows)
            index = np.where(is_inside, row * row_elements + at * vector, -1)[:, :, None]
            index = np.where(index < 0, -1, index + np.arange(vector))
        return loaded("in", index.reshape(len(thread), -1), LOADED, self._add)

    def _add(self, registers: Registers) -> None:
        width = self.params.vector_elements if self.is_column else 1
        x = registers[LOADED]
        added = x.reshape(len(x), -1, width).sum(axis=1)
        registers["sum"] = registers["sum"] + added if "sum" in registers else added

    def _sum_of_warps(self, registers: Registers) -> None:
        registers["word"] = of_warps(registers.pop("sum"), np.sum)

    def store_rows(self, cta_idx: int, first_warp: int, num_warps: int, _op: object) -> GlobalElements:
        """The store of the sum of each warp's row."""
        thread = first_warp * WARP_SIZE + np.arange(num_warps * WARP_SIZE)[:, None]
        row = cta_idx * self.num_warps + thread // WARP_SIZE
        index = np.where((thread % WARP_SIZE == 0) & (row < self.num_rows), row, -1)
        return stored("out", index, "word", self._sum_of_warps)

    def left(self, first_warp: int, num_warps: int, _op: object) -> SharedElements:
        """The store of each warp's sums to shared memory. Further sums begin at 0."""
        thread = first_warp * WARP_SIZE + np.arange(num_warps * WARP_SIZE)[:, None]
        warp, num = thread // WARP_SIZE, self.params.vector_elements if self.is_column else 1

        def leave(registers: Registers) -> None:
            registers.setdefault("sum", np.zeros((len(thread), num), dtype=np.float32))
            if self.is_column:
                registers["word"] = registers.pop("sum")
            else:
                self._sum_of_warps(registers)

        if self.is_column:
            return shared(WORD_BYTES * (warp * self.words + self._lane_columns(thread)), FP32, "word", leave)
        return shared(np.where(thread % WARP_SIZE == 0, WORD_BYTES * warp, -1), FP32, "word", leave)

    def taken(self, num_warps: int, _op: object) -> SharedElements:
        """The load of all warps' sums from shared memory, by the first warps."""
        own, warps = self._own_words(num_warps * WARP_SIZE), np.arange(self.num_warps)
        offsets = np.where(own < 0, -1, own)[:, :, None] + (warps * self.words)

        def add(registers: Registers) -> None:
            registers["result"] = registers["words"].reshape(*own.shape, -1).sum(axis=2)

        words = np.where(own[:, :, None] < 0, -1, WORD_BYTES * offsets)
        return shared(words.reshape(len(own), -1), FP32, "words", add)

    def result(self, tensor: str, num: int, num_warps: int, _op: object) -> GlobalElements:
        """The store of a part, or of the ``num``-th result."""
        own = self._own_words(num_warps * WARP_SIZE)
        return stored(tensor, np.where(own < 0, -1, num * self.words + own), "result")

    def count(self, of_sum: int, is_last: bool, _op: object) -> Counter:
        """The increment of a sum's counter."""
        return Counter(tensor="counter", index=of_sum, awaited=self.num_parts if is_last else 0)

    def _part_words(self, part: IntArray, word: IntArray) -> IntArray:
        return np.where((part < self.num_parts) & (word >= 0), part * self.num_sums * self.words + word, -1)

    def parts(self, of_sum: int, begin: int, num: int, num_warps: int, _op: object) -> GlobalElements:
        """The load of ``num`` parts of a sum: a part a thread, or a word of each part."""
        own = self._own_words(num_warps * WARP_SIZE)
        if not self.is_column:
            part = np.arange(len(own))[:, None] + len(own) * np.arange(ceil_div(num, len(own)))
            return loaded("parts", self._part_words(part, np.full_like(part, of_sum)), LOADED, self._add)

        def add(registers: Registers) -> None:
            before = registers["result"] if begin else np.float32(0)
            registers["result"] = before + registers[LOADED].reshape(*own.shape, num).sum(axis=2)

        word = np.where(own < 0, -1, of_sum * self.words + own)[:, :, None]
        return loaded("parts", self._part_words(begin + np.arange(num), word).reshape(len(own), -1), LOADED, add)

    def part_of_warp(self, of_sum: int, begin: int, num_warps: int, _op: object) -> GlobalElements:
        """The load of a part by each warp, from part ``begin`` on."""
        thread = np.arange(num_warps * WARP_SIZE)[:, None]
        word = of_sum * self.words + self._lane_columns(thread)
        return loaded("parts", self._part_words(begin + thread // WARP_SIZE, word), LOADED, self._add)

    def second(self, cta_idx: int, per_cta: int, num_threads: int, begin: int, num: int, _op: object) -> GlobalElements:
        """The load of parts by the second launch: a thread a column, or a warp a row."""
        thread, turn = np.arange(num_threads)[:, None], begin + np.arange(num)
        lanes = 1 if self.is_column else WARP_SIZE
        word = cta_idx * per_cta + thread // lanes
        word = np.where(word < self.num_sums * self.words, word, -1)
        index = self._part_words(turn * lanes + thread % lanes, word)

        def add(registers: Registers) -> None:
            before = registers["sum"] if begin else np.float32(0)
            registers["sum"] = before + registers[LOADED].sum(axis=1, keepdims=True)

        return loaded("parts", index, LOADED, add)

    def second_result(self, cta_idx: int, per_cta: int, num_threads: int, _op: object) -> GlobalElements:
        """The store of the sums of the second launch."""
        thread, lanes = np.arange(num_threads)[:, None], 1 if self.is_column else WARP_SIZE
        word = cta_idx * per_cta + thread // lanes
        is_own = (thread % lanes == 0) & (word < self.num_sums * self.words)

        def finish(registers: Registers) -> None:
            registers["word"] = registers["sum"] if self.is_column else of_warps(registers["sum"], np.sum)

        return stored("out", np.where(is_own, word, -1), "word", finish)
