"""Common parts of kernels that process an array row by row: the partition of a row, and the cost of its sum or maximum.

A warp or a CTA processes a row. It reads the row once, with 16-byte loads that are all in flight at once, and holds it in
registers as floats. Two reductions follow: of a maximum or a mean, and of a sum.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.registers import launch_limit
from gpusim.kernel_models.streaming import MAX_ELEMENTS, MAX_THREADS, StreamParams, ceil_div, check_grid, passes, total
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.smem.access import AccessPattern

VECTOR_BYTES = 16
"""Bytes that a lane loads or stores with one instruction."""
WORD_BYTES = 4
MOST_VALUES = 128
"""Maximum number of values of a row in a lane's registers."""
WARP_STEPS = 5
"""Number of shuffles until all lanes of a warp have the reduction of 32 values."""

Count = Annotated[int, Field(ge=1, le=MAX_ELEMENTS)]
Columns = Annotated[int, Field(ge=1, le=1 << 26)]
"""Number of columns of a row. Its steps are separate ops."""


class RowParams(StreamParams):
    """Rows of columns, each row processed by a warp or by a CTA."""

    registers: ClassVar[Mapping[tuple[int, int], int]]
    """Registers of a thread as compiled, by the bytes of an element and the values that it holds."""
    other_registers: ClassVar[int]
    """Registers besides the values, for configurations that were not compiled."""

    rows: Count = Field(description="Rows of the array")
    columns: Columns = Field(description="Elements per row")
    per: Literal["warp", "block"] = Field("warp", description="Threads that reduce one row: a warp, or a CTA (thread block)")

    @property
    def lanes(self) -> int:
        """Number of threads that share a row."""
        return WARP_SIZE if self.per == "warp" else self.threads

    @property
    def rows_per_cta(self) -> int:
        """Number of rows that a CTA processes."""
        return self.threads // self.lanes

    @property
    def num_ctas(self) -> int:
        """Number of CTAs of the grid."""
        return ceil_div(self.rows, self.rows_per_cta)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.columns * self.element.num_bytes

    @property
    def values(self) -> int:
        """Number of elements of a row in one lane."""
        return self.columns // self.lanes

    def registers_of(self, values: int) -> int:
        """Registers of a thread that holds ``values`` values of a row: as compiled, or the values and some others."""
        return self.registers.get((self.element.num_bytes, values), values + self.other_registers)

    @property
    def vectors(self) -> int:
        """Number of loads of a lane for its row."""
        return self.row_bytes // (self.lanes * VECTOR_BYTES)

    def _check(self) -> None:
        """Refuse rows that lanes cannot share evenly or cannot hold, and grids that are too large."""
        kernel = self.row.name
        if not self._is_shared(self.columns, self.lanes):
            if self.columns % (self.lanes * VECTOR_BYTES // self.element.num_bytes):
                why = f"do not give {self.lanes} lanes whole vectors of {VECTOR_BYTES} bytes"
            elif self.values > MOST_VALUES:
                why = f"are {self.values} values a lane, which keeps at most {MOST_VALUES}"
            else:
                why = (
                    f"take {self.registers_of(self.values)} registers a lane, a CTA of {self.threads} threads has at most "
                    f"{launch_limit(self.threads // WARP_SIZE)}"
                )
            raise KernelError(f"{kernel}: {self.columns} columns {why}: use {self._flags_that_work()}")
        check_grid(kernel, self.num_ctas, use="use fewer --rows")

    def _is_shared(self, columns: int, lanes: int) -> bool:
        """Whether each lane has full vectors of a row, no more values than it can hold, and registers for them."""
        is_whole = columns % (lanes * VECTOR_BYTES // self.element.num_bytes) == 0
        return is_whole and self._is_kept(columns // lanes, self.threads if lanes == WARP_SIZE else lanes)

    def _is_kept(self, values: int, threads: int) -> bool:
        return values <= MOST_VALUES and self.registers_of(values) <= launch_limit(threads // WARP_SIZE)

    def _flags_that_work(self) -> str:
        """Flags that would work: for these columns, or else for the next number of columns with which any would."""
        if self._is_shared(self.columns, WARP_SIZE):
            return "--per warp"
        all_threads = sorted(range(WARP_SIZE, MAX_THREADS + 1, WARP_SIZE), key=lambda each: (each != self.threads, each))
        for threads in all_threads:
            if self._is_shared(self.columns, threads):
                return f"--per block --threads {threads}"
        step = self.lanes * VECTOR_BYTES // self.element.num_bytes
        if self._is_shared(ceil_div(self.columns, step) * step, self.lanes):
            return f"--columns {ceil_div(self.columns, step) * step}, or another multiple of {step}"
        fitting = []
        for threads in all_threads:
            step = threads * VECTOR_BYTES // self.element.num_bytes
            columns = ceil_div(self.columns, step) * step
            if self._is_kept(columns // threads, threads):
                fitting.append((columns, threads))
        if not fitting:
            step = VECTOR_BYTES // self.element.num_bytes
            columns, threads = max(
                (threads * values, threads)
                for threads in all_threads
                for values in range(0, MOST_VALUES + 1, step)
                if self._is_kept(values, threads)
            )
            return f"--columns {columns} --per block --threads {threads}, the most that a CTA keeps"
        columns, threads = min(fitting)
        return f"--columns {columns} --per block --threads {threads}"

    def rows_at_once(self, num_sms: int) -> int:
        """Rows of a CTA whose warps run in lockstep: one if no SM has two CTAs, because warps then run independently.

        With more CTAs an SM, other CTAs hide the waits of warps.
        """
        return 1 if self.num_ctas <= num_sms else self.rows_per_cta

    def accesses(self, step: int, rows: int) -> tuple[AccessPattern, AccessPattern]:
        """Loads or stores of ``rows`` rows, the ``step``-th group of that size in a CTA: of any CTA, and of the last one."""
        row, there = self.row_access(), self.rows - (self.num_ctas - 1) * self.rows_per_cta
        return row.scaled(rows), row.scaled(min(max(there - step * rows, 0), rows))

    def row_access(self) -> AccessPattern:
        """Loads or stores of the lanes of one row."""
        return total(passes(0, self.row_bytes // VECTOR_BYTES, self.lanes, VECTOR_BYTES))


def unpacking(width_bytes: int) -> float:
    """Integer instructions that convert an element of ``width_bytes`` to a float: PRMT and shifts. Source: SASS, sm_90a."""
    return 0.0 if width_bytes == WORD_BYTES else 1.5


def packing(width_bytes: int) -> float:
    """Instructions that convert a float to an element of ``width_bytes``: one F2FP for two."""
    return 0.0 if width_bytes == WORD_BYTES else 0.5


class Meeting:
    """Reduction of the values of all lanes of a row, with the result in all lanes: shuffles, and for a CTA one word a warp.

    Each warp of the CTA reads the words of all warps and shuffles them.
    """

    def __init__(self, num_warps: int, *, of_block: bool) -> None:
        """A reduction by ``num_warps`` warps of a CTA: within each warp, or (``of_block``) over all of them."""
        self._of_block = of_block
        self._own = ops.Shfl(WARP_STEPS, is_chain=True), ops.Alu(WARP_STEPS, is_chain=True)
        steps = max(1, (num_warps - 1).bit_length())
        self._others = ops.Shfl(steps, is_chain=True), ops.Alu(steps, is_chain=True)
        word = AccessPattern(num_requests=num_warps, num_wavefronts=num_warps, num_bytes=num_warps * WORD_BYTES)
        words = AccessPattern(num_requests=num_warps, num_wavefronts=num_warps, num_bytes=num_warps * WARP_SIZE * WORD_BYTES)
        self._leave, self._meet, self._take = ops.SharedStore(word), ops.Syncthreads(), ops.SharedLoad(words)

    def __call__(self) -> Generator[ops.Op, Any, None]:
        """The ops of the reduction."""
        yield from self._own
        if self._of_block:
            yield self._leave
            yield self._meet
            token = yield self._take
            yield ops.Use(token)
            yield from self._others
