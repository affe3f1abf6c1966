"""Common parts of kernels that process an array row by row: options, the partition of a row, its passes, its reductions.

A warp or a CTA processes a row, in one to three passes (``row_passes``). A reduction follows each pass but the last: of a
maximum, a mean, or a sum. By default a row is read once, with 16-byte loads that are all in flight at once, and stays in
registers as floats.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.applicability import Needs, Rule
from gpusim.kernel_models.registers import launch_limit
from gpusim.kernel_models.streaming import (
    MAX_ELEMENTS,
    MAX_THREADS,
    StreamParams,
    VectorBytes,
    ceil_div,
    check_grid,
    check_vector,
)
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.data_access import Compute, Data
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tensor import MemRef

VECTOR_BYTES = 16
"""Bytes that a lane loads or stores with one instruction, unless an option says otherwise."""
WORD_BYTES = 4
MOST_VALUES = 128
"""Maximum number of values of a row in a lane's registers."""
WARP_STEPS = 5
"""Number of shuffles until all lanes of a warp have the reduction of 32 values."""
LOOP_REGISTERS, OTHER_REGISTERS = 32, 16
"""Registers of a thread that walks its row in a loop; and besides the values, where they stay in registers.
Source: ptxas of kernels/framework_rows, sm_90a."""

IN_REGISTERS = Needs(field="keep", values=("registers",))
ROW_RULES = (
    Rule("unroll", (Needs(field="keep", values=("smem", "reread")),), "a row in registers has all vectors in flight at once",
         "use --keep reread, or leave it out"),
    Rule("combine", (Needs(field="per", values=("block",)),), "a warp reduces its row alone",
         "use --per block, or leave it out"),
    Rule("pad", (IN_REGISTERS,), "a loop over a row has no further values", "use --keep registers, or leave it out"),
)  # fmt: skip

Count = Annotated[int, Field(ge=1, le=MAX_ELEMENTS)]
Columns = Annotated[int, Field(ge=1, le=1 << 26)]
"""Number of columns of a row. Its steps are separate ops."""


class RowParams(StreamParams):
    """Rows of columns, each row processed by a warp or by a CTA."""

    rules: ClassVar[tuple[Rule, ...]] = ROW_RULES
    has_plain_program: ClassVar[bool] = False
    """Whether rows in registers have a separate program (``is_plain``)."""

    compiled_registers: ClassVar[Mapping[tuple[int, int], int]] = {}
    """Registers of a thread as compiled, by the bytes of an element and the values that it holds."""
    other_registers: ClassVar[int] = OTHER_REGISTERS
    """Registers besides the values, for configurations that were not compiled."""

    rows: Count = Field(description="Rows of the array")
    columns: Columns = Field(description="Elements per row")
    per: Literal["warp", "block"] = Field("warp", description="Threads that reduce one row: a warp, or a CTA (thread block)")
    vector_bytes: VectorBytes = Field(16, description="Vector width: bytes a lane loads or stores at once")
    keep: Literal["registers", "smem", "reread"] = Field(
        "registers", description="Where a row stays between passes: registers, shared memory, or nowhere (read again)"
    )
    combine: Literal["all_warps", "first_warp"] = Field(
        "all_warps", description="Warps that reduce the words of a CTA's warps: each for itself, or the first for all"
    )
    unroll: Annotated[int, Field(ge=1, le=16)] | None = Field(
        None, description="Vectors of a lane in flight in a loop over a row; none: as nvcc unrolls a plain loop"
    )
    pad: bool = Field(
        False, description="Compute as many values of a lane as columns up to a power of two would have"
    )
    in_place: bool = Field(False, description="Write the result over the input")
    ctas: Count | None = Field(None, description="CTAs of a persistent grid, each with several rows; none: no such grid")
    registers: Annotated[int, Field(ge=16, le=255)] | None = Field(
        None, description="Registers per thread, from ptxas; none: estimated"
    )

    @property
    def lanes(self) -> int:
        """Number of threads that share a row."""
        return WARP_SIZE if self.per == "warp" else self.threads

    @property
    def rows_per_cta(self) -> int:
        """Number of rows that a CTA processes at once."""
        return self.threads // self.lanes

    @property
    def num_tiles(self) -> int:
        """Number of work tiles: rows that a CTA processes at once."""
        return ceil_div(self.rows, self.rows_per_cta)

    @property
    def num_ctas(self) -> int:
        """Number of CTAs of the grid."""
        return min(self.ctas or self.num_tiles, self.num_tiles)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.columns * self.element.num_bytes

    @property
    def num_vectors(self) -> int:
        """Number of vectors of a row."""
        return self.row_bytes // self.vector_bytes

    @property
    def vectors(self) -> int:
        """Number of loads of a lane for its row. Vectors beyond the row are masked."""
        return ceil_div(self.num_vectors, self.lanes)

    @property
    def vector_elements(self) -> int:
        """Number of elements of a vector."""
        return self.vector_bytes // self.element.num_bytes

    @property
    def values(self) -> int:
        """Number of elements of a row in one lane."""
        return self.vectors * self.vector_elements

    @property
    def computed(self) -> int:
        """Number of elements of a row in registers that a lane computes with: those of its vectors, or more (``pad``)."""
        columns = 1 << (self.columns - 1).bit_length() if self.pad else self.columns
        return max(self.values, columns // self.lanes)

    @property
    def is_masked(self) -> bool:
        """Whether some lanes have fewer vectors of a row than others."""
        return self.num_vectors % self.lanes > 0

    @classmethod
    def family_of(cls, params: Mapping[str, Any]) -> str:
        """Family of measured rows that run the same program: the kernel's own, or that of kernels of frameworks."""
        if not {"rows", "columns"} <= set(params):
            return cls.row.name
        options = cls.model_validate(params)
        if options.is_plain:
            return cls.row.name
        return f"framework_rows {'in_place' if options.in_place else 'reread' if options.keep == 'reread' else 'kept'}"

    @property
    def is_plain(self) -> bool:
        """Whether each lane keeps full 16-byte vectors of its row in registers, and no option asks for another program."""
        if not self.has_plain_program:
            return False
        idle = {"pad": self.computed == self.values, "ctas": self.num_ctas == self.num_tiles}
        return not self.is_masked and all(
            getattr(self, name) == item.default or idle.get(name, False)
            for name, item in type(self).model_fields.items() if name not in PLAIN
        )

    @property
    def reduction_warps(self) -> int:
        """Warps for which shared memory has words of a reduction: those of the CTA; in kernels of frameworks, the most."""
        return self.threads // WARP_SIZE if self.is_plain else WARP_SIZE

    def registers_of(self, values: int) -> int:
        """Registers of a thread that holds ``values`` values of a row: as given, as compiled, or the values and others."""
        if self.registers is not None:
            return self.registers
        if self.keep != "registers":
            return min(LOOP_REGISTERS, launch_limit(self.threads // WARP_SIZE))
        return self.compiled_registers.get((self.element.num_bytes, values), values + self.other_registers)

    def _check(self) -> None:
        """Refuse rows that are no full vectors, rows that registers cannot hold, and too large grids."""
        kernel, width = self.row.name, self.element.num_bytes
        check_vector(kernel, self.vector_bytes, width)
        if self.row_bytes % self.vector_bytes:
            fitting = self.model_copy(update={"vector_bytes": gcd(self.row_bytes, VECTOR_BYTES)})
            raise KernelError(
                f"{kernel}: {self.columns} columns are no full vectors of {self.vector_bytes} bytes: use --vector-bytes "
                f"{fitting.vector_bytes}{'' if fitting.is_kept else f' {fitting.flags_that_work()}'}"
            )
        if not self.is_kept:
            if self.values > MOST_VALUES:
                why = f"are {self.values} values a lane, which keeps at most {MOST_VALUES}"
            else:
                why = (
                    f"take {self.registers_of(self.values)} registers a lane, a CTA of {self.threads} threads has at most "
                    f"{launch_limit(self.threads // WARP_SIZE)}"
                )
            raise KernelError(f"{kernel}: {self.columns} columns {why}: use {self.flags_that_work()}")
        check_grid(kernel, self.num_ctas, use="use fewer --rows")

    @property
    def is_kept(self) -> bool:
        """Whether registers hold a row, or need not."""
        limit = launch_limit(self.threads // WARP_SIZE)
        return self.keep != "registers" or (self.values <= MOST_VALUES and self.registers_of(self.values) <= limit)

    def flags_that_work(self) -> str:
        """Flags with which registers hold a row: a CTA of more threads for it. Otherwise flags that need no registers."""
        for threads in sorted(range(WARP_SIZE, MAX_THREADS + 1, WARP_SIZE), key=lambda each: (each != self.threads, each)):
            if self.model_copy(update={"per": "block", "threads": threads}).is_kept:
                return f"--per block --threads {threads}"
        return "--keep reread"

    def rows_at_once(self, num_sms: int) -> int:
        """Rows of a CTA whose warps run in lockstep: one if no SM has two CTAs, because warps then run independently.

        With more CTAs an SM, other CTAs hide the waits of warps.
        """
        return 1 if self.num_ctas <= num_sms else self.rows_per_cta

    def tensors(self, *weights: str) -> tuple[MemRef, ...]:
        """Input and output, and weights of an element a column."""
        refs = [MemRef.row_major(name, (self.rows, self.columns), self.element) for name in ("in", "out")]
        return (*refs, *(MemRef.row_major(name, (self.columns,), self.element) for name in weights))


PLAIN = ("rows", "columns", "per", "dtype", "threads", "registers")
"""Options that do not change what program a row kernel is."""


def unpacking(width_bytes: int) -> float:
    """Integer instructions that convert an element of ``width_bytes`` to a float: PRMT and shifts. Source: SASS, sm_90a."""
    return 0.0 if width_bytes == WORD_BYTES else 1.5


def packing(width_bytes: int) -> float:
    """Instructions that convert a float to an element of ``width_bytes``: one F2FP for two."""
    return 0.0 if width_bytes == WORD_BYTES else 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """How two partial results of a reduction become one: words of a result, and instructions of a lane to merge two.

    * ``alu``: dependent instructions. ``mufu``: MUFU instructions among or besides them.
    * ``data``: reduction of functional runs within each warp.
    """

    words: int = 1
    alu: float = 1.0
    mufu: float = 0.0
    data: Compute | None = None

    def steps(self, num_steps: int) -> Iterator[ops.Op]:
        """Ops of ``num_steps`` steps, each a shuffle of all words and a merge."""
        yield ops.Shfl(num_steps, is_chain=True)
        if self.words > 1:
            yield ops.Shfl(num_steps * (self.words - 1))
        yield ops.Alu(num_steps * self.alu, is_chain=True, data=self.data)
        if self.mufu:
            yield ops.Mufu(num_steps * self.mufu)


ONE_WORD = Merge()


class Meeting:
    """Reduction of the values of all lanes of a row, with the result in all lanes: shuffles, and for a CTA one word a warp.

    Each warp of the CTA reads the words of all warps and shuffles them. Or (``by_first``) the first warp does so. Then it
    leaves the result in shared memory for all.
    """

    def __init__(
        self, num_warps: int, *, of_block: bool, merge: Merge = ONE_WORD, by_first: bool = False,
        num_role_warps: int = 0, is_first: bool = True,
    ) -> None:
        """A reduction by ``num_warps`` warps of a CTA: within each warp, or (``of_block``) over all of them.

        ``num_role_warps``: warps of the role that yields the ops; 0: all. ``is_first``: whether the first warp is one of
        them.
        """
        num_own = num_role_warps or num_warps
        self._of_block, self._by_first, self._is_first = of_block, by_first, is_first
        self._own = tuple(merge.steps(WARP_STEPS))
        num_steps = WARP_STEPS if by_first else max(1, (num_warps - 1).bit_length())
        self._others = tuple(replace(merge, data=None).steps(num_steps))
        self._leave, self._take = self._word(num_own, merge, 1), self._word(num_own, merge, WARP_SIZE)
        self._leave_one, self._take_one = self._word(1, merge, 1), self._word(1, merge, WARP_SIZE)

    @staticmethod
    def _word(num_warps: int, merge: Merge, num_lanes: int) -> AccessPattern:
        num = num_warps * merge.words
        return AccessPattern(num_requests=num, num_wavefronts=num, num_bytes=num * num_lanes * WORD_BYTES)

    def __call__(
        self, leave: Data | None = None, take: Data | None = None, take_one: Data | None = None,
        leave_one: Data | None = None,
    ) -> Generator[ops.Op, Any, None]:
        """The ops of the reduction. ``leave``, ``take``: data accesses of the words of a CTA's warps.

        ``take_one``, ``leave_one``: those of the first warp, if it merges the words.
        """
        yield from self._own
        if not self._of_block:
            return
        if self._by_first:
            yield ops.Syncthreads()
        yield ops.SharedStore(self._leave, data=leave)
        yield ops.Syncthreads()
        if self._by_first:
            if self._is_first:
                yield ops.Use((yield ops.SharedLoad(self._take_one, data=take_one)))
                yield from self._others
                yield ops.SharedStore(self._leave_one, data=leave_one)
            yield ops.Syncthreads()
        yield ops.Use((yield ops.SharedLoad(self._take, data=take)))
        if not self._by_first:
            yield from self._others
