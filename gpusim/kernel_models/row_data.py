"""Data accesses and arithmetic of rows in passes, in fp32.

In: options of the kernel, reductions of its passes. Out: accesses of ``workload/data_access.py``.

Registers "x t" have the elements of a thread's vector t, "NAME t" those of another tensor. A reduction exchanges "word".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.kernel_models.rows import WORD_BYTES, RowParams
from gpusim.kernel_models.stream_data import loaded, shared, stored
from gpusim.units import WARP_SIZE
from gpusim.workload.data_access import Computation, Compute, Data, GlobalElements, IntArray, Registers, SharedElements
from gpusim.workload.dtypes import FP32

Array = NDArray[Any]
Result = Callable[[Array, Registers], Array]
"""Function from elements, and what reductions have kept or weights have for them, to the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """What a reduction does with the elements of a row.

    * ``words``: words of each element, from elements and what earlier reductions have kept.
    * ``merge``: words [..., elements, words] as those of one, [..., words]. ``identity``: words of no element.
    * ``keep``: values that later passes use, by name, from merged words and the number of columns.
    """

    words: Callable[[Array, Registers], tuple[Array, ...]]
    keep: Callable[[Array, int], dict[str, Array]]
    merge: Callable[[Array], Array] = lambda words: words.sum(axis=-2)
    identity: tuple[float, ...] = (0.0,)


class RowData:
    """Data accesses of some warps of a CTA, from ``first_thread`` on. ``reductions``: those of all passes."""

    def __init__(
        self, params: RowParams, reductions: Sequence[Reduction | None], first_thread: int, num_threads: int
    ) -> None:
        self._params, self._reductions = params, reductions
        self._first, self._num_threads = first_thread, num_threads
        row_bytes = params.row_bytes * params.rows_per_cta if params.keep == "smem" else 0
        sizes = (WORD_BYTES * params.reduction_warps * len(each.identity) if each else 0 for each in reductions)
        self._begins = list(accumulate(sizes, initial=row_bytes))
        """Byte of the words of each reduction in shared memory, behind the rows."""

    @property
    def _thread(self) -> IntArray:
        return self._first + np.arange(self._num_threads)[:, None]

    def _columns(self, turn: int) -> IntArray:
        """Columns of each thread's vector; -1: beyond the row."""
        params = self._params
        vector = turn * params.lanes + self._thread % params.lanes
        columns = vector * params.vector_elements + np.arange(params.vector_elements)
        return np.where(vector < params.num_vectors, columns, -1)

    def _index(self, tile: int, turn: int) -> IntArray:
        params, columns = self._params, self._columns(turn)
        row = tile * params.rows_per_cta + self._thread // params.lanes
        return np.where((row < params.rows) & (columns >= 0), row * params.columns + columns, -1)

    # -------------------------------------------------------------------------------------- elements
    def load(self, tensor: str, name: str, tile: int, turns: Sequence[int], _op: Any) -> tuple[GlobalElements, ...]:
        """The load of some vectors, to registers ``name``."""
        return tuple(loaded(tensor, self._index(tile, turn), f"{name} {turn}") for turn in turns)

    def weight(self, tensor: str, turns: Sequence[int], _op: Any) -> tuple[GlobalElements, ...]:
        """The load of some vectors of weights."""
        return tuple(loaded(tensor, self._columns(turn), f"{tensor} {turn}") for turn in turns)

    @staticmethod
    def add(turns: Sequence[int]) -> Compute:
        """The sum of the row and a second array."""

        def add(registers: Registers) -> None:
            for turn in turns:
                registers[f"x {turn}"] = registers[f"in {turn}"] + registers[f"residual {turn}"]

        return Compute(function=add)

    def store(
        self, tensor: str, tile: int, turns: Sequence[int], result: Result | None, weights: Sequence[str], _op: Any
    ) -> tuple[GlobalElements, ...]:
        """The store of some vectors: of the elements, or of their ``result``."""

        def finish(turn: int, registers: Registers) -> None:
            of = {**registers, **{name: registers[f"{name} {turn}"] for name in weights}}
            x = registers[f"x {turn}"]
            registers["result"] = x if result is None else result(x, of)

        return tuple(stored(tensor, self._index(tile, turn), "result", partial(finish, turn)) for turn in turns)

    def kept(self, turns: Sequence[int], _op: Any) -> tuple[SharedElements, ...]:
        """The store of some vectors to shared memory, or the load from there."""
        params, row = self._params, self._thread // self._params.lanes
        found = []
        for turn in turns:
            columns = self._columns(turn)
            offsets = row * params.row_bytes + columns * params.element.num_bytes
            found.append(shared(np.where(columns < 0, -1, offsets), params.element, f"x {turn}"))
        return tuple(found)

    # -------------------------------------------------------------------------------------- reductions
    def of_warp(self, idx: int) -> Compute | None:
        """The reduction of a pass within each warp."""
        reduction, params = self._reductions[idx], self._params
        if reduction is None:
            return None

        def reduce(registers: Registers) -> None:
            merged = []
            for turn in range(params.vectors):
                if f"x {turn}" in registers:
                    is_inside = self._columns(turn) >= 0
                    words = zip(reduction.words(registers[f"x {turn}"], registers), reduction.identity, strict=True)
                    merged.append(np.stack([np.where(is_inside, word, none) for word, none in words], axis=-1))
            num_words = len(reduction.identity)
            merged = merged or [np.tile(np.array(reduction.identity), (self._num_threads, 1, 1))]
            of_warps = np.concatenate(merged, axis=1).reshape(self._num_threads // WARP_SIZE, -1, num_words)
            word = reduction.merge(of_warps).astype(np.float32)
            registers["word"] = np.repeat(word, WARP_SIZE, axis=0)
            if params.per == "warp":
                registers.update(reduction.keep(registers["word"], params.columns))

        return Compute(function=reduce)

    def words(self, idx: int, *, by_first: bool) -> tuple[Data, ...]:
        """Data accesses of the words of a CTA's warps: stored by warps, loaded by all, and those of the first warp."""
        return (
            partial(self._leave, idx), partial(self._take, idx, 1 if by_first else self._params.threads // WARP_SIZE),
            partial(self._take_one, idx), partial(self._leave_one, idx),
        )  # fmt: skip

    def _words(self, idx: int, warp: IntArray) -> IntArray:
        """Bytes of the words of warps, int64[threads, warps * words]."""
        reduction = self._reductions[idx]
        num = len(reduction.identity) if reduction else 0
        offsets = self._begins[idx] + WORD_BYTES * (num * warp[:, :, None] + np.arange(num))
        return offsets.reshape(len(warp), -1)

    def _leave(self, idx: int, _op: Any) -> SharedElements:
        is_first = self._thread % WARP_SIZE == 0
        return shared(np.where(is_first, self._words(idx, self._thread // WARP_SIZE), -1), FP32, "word")

    def _merged(self, idx: int, num: int, *, keeps: bool) -> Computation:
        def merge(registers: Registers) -> None:
            reduction = self._reductions[idx]
            assert reduction is not None
            word = reduction.merge(registers[f"words {idx} {num}"].reshape(self._num_threads, num, -1))
            registers["word"] = word
            if keeps:
                registers.update(reduction.keep(word, self._params.columns))

        return merge

    def _take(self, idx: int, num: int, _op: Any) -> SharedElements:
        words = self._words(idx, np.tile(np.arange(num), (self._num_threads, 1)))
        return shared(words, FP32, f"words {idx} {num}", self._merged(idx, num, keeps=True))

    def _take_one(self, idx: int, _op: Any) -> SharedElements:
        num = self._params.threads // WARP_SIZE
        words = self._words(idx, np.tile(np.arange(num), (self._num_threads, 1)))
        words = np.where(self._thread < WARP_SIZE, words, -1)
        return shared(words, FP32, f"words {idx} {num}", self._merged(idx, num, keeps=False))

    def _leave_one(self, idx: int, _op: Any) -> SharedElements:
        return shared(np.where(self._thread == 0, self._words(idx, 0 * self._thread), -1), FP32, "word")
