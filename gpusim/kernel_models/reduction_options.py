"""Options of sums of an array, and what columns' warps exchange through shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.applicability import Needs, Rule
from gpusim.kernel_models.rows import WORD_BYTES, Columns, Count
from gpusim.kernel_models.streaming import StreamParams, VectorBytes, ceil_div, check_grid, check_vector
from gpusim.units import WARP_SIZE
from gpusim.workload.smem.access import AccessPattern, wavefronts

UNROLLED = 4
"""Number of loads of a thread in flight, unless an option says otherwise."""
REGISTERS: Mapping[tuple[str, int], int] = {("row", 4): 24, ("row", 2): 26, ("column", 4): 32, ("column", 2): 32}
"""Registers of a thread, by axis and bytes of an element."""
MOST_PARTS = 1024
"""Most CTAs that share the sum of all elements, unless an option says otherwise."""


class ReductionParams(StreamParams):
    """Sums of each row, of each column, or of all elements.

    * ``row``: threads of a CTA alternate over a row's vectors. Then come shuffles, one word a warp through shared memory,
      and one store. ``ctas_per_sum`` CTAs may share a row, or a warp may have it alone (``per``).
    * ``all``: as one row that ``ctas_per_sum`` CTAs share.
    * ``column``: a CTA processes ``rows_per_cta`` rows of as many columns as a warp reads at once. Its warps alternate over
      rows and exchange sums in shared memory. One fp32 atomic a column adds them to the result, which was zero.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("ctas_per_sum", (Needs(field="axis", values=("row", "all")),), "a CTA sums --rows-per-cta rows of its columns",
             "use --rows-per-cta, or leave it out"),
        Rule("rows_per_cta", (Needs(field="axis", values=("column",)),), "a CTA sums one row, or a part of it",
             "use --ctas-per-sum, or leave it out"),
    )  # fmt: skip

    rows: Count = Field(description="Rows of the array")
    columns: Columns = Field(description="Elements per row")
    axis: Literal["row", "column", "all"] = Field("row", description="Sum of each row, of each column, or of all elements")
    per: Literal["warp", "block"] = Field("block", description="Threads that sum one row: a warp, or a CTA (thread block)")
    vector_bytes: VectorBytes = Field(16, description="Vector width: bytes a thread loads at once")
    rows_per_cta: Annotated[int, Field(ge=1, le=65536)] = Field(
        64, description="Rows per CTA where columns are summed"
    )
    ctas_per_sum: Annotated[int, Field(ge=1, le=65535)] = Field(
        1, description="CTAs that share a row, or all elements"
    )
    finish: Literal["atomic", "last_cta", "second_launch"] = Field(
        "atomic", description="How parts are summed: atomics, the last CTA (by a counter), or a second launch"
    )
    unroll: Annotated[int, Field(ge=1, le=16)] = Field(UNROLLED, description="Vectors of a thread in flight at once")
    overhead: Annotated[int, Field(ge=0, le=4096)] = Field(
        0, description="Further instructions of a thread besides loads and sums, of loops for any shape (read from SASS)"
    )
    code: Literal["plain", "torch"] = Field(
        "plain", description="Code of sums of columns: the last CTA has 16 parts in flight (plain), or one a warp (torch)"
    )
    registers: Annotated[int, Field(ge=16, le=255)] | None = Field(
        None, description="Registers per thread, from ptxas; none: estimated"
    )

    @property
    def vector_elements(self) -> int:
        """Elements of a vector."""
        return self.vector_bytes // self.element.num_bytes

    @property
    def num_warps(self) -> int:
        """Number of warps of a CTA."""
        return self.threads // WARP_SIZE

    @property
    def width(self) -> int:
        """Number of columns that a warp reads at once."""
        return WARP_SIZE * self.vector_elements

    @property
    def num_ctas(self) -> int:
        """Number of CTAs of the grid."""
        if self.axis == "column":
            return self.num_parts * ceil_div(self.columns, self.width)
        if self.per == "warp":
            return ceil_div(self.rows, self.num_warps)
        return (1 if self.axis == "all" else self.rows) * self.num_parts

    @property
    def num_parts(self) -> int:
        """Number of CTAs that share a sum."""
        return ceil_div(self.rows, self.rows_per_cta) if self.axis == "column" else self.ctas_per_sum

    @property
    def is_in_steps(self) -> bool:
        """Whether ``grid_reduction`` has the program: CTAs that share a row, counters, a second launch, a warp a row."""
        is_divided = self.axis == "all" or self.ctas_per_sum > 1 or self.finish != "atomic"
        is_other = self.per == "warp" or self.unroll != UNROLLED or self.overhead > 0 or self.code == "torch"
        return is_divided or is_other

    @classmethod
    def family_of(cls, params: Mapping[str, Any]) -> str:
        """Family of measured rows that run the same program."""
        if not {"rows", "columns"} <= set(params) or not cls.model_validate(params).is_in_steps:
            return "reduction"
        return f"grid_reduction {'columns' if params.get('axis') == 'column' else 'rows'}"

    @property
    def registers_per_thread(self) -> int:
        """Registers of a thread: as given, as compiled, or with those of the vectors in flight."""
        if self.registers is not None:
            return self.registers
        compiled = REGISTERS["column" if self.axis == "column" else "row", min(self.element.num_bytes, 4)]
        return compiled + (self.unroll * self.vector_bytes // WORD_BYTES if self.is_in_steps else 0)

    def checked(self) -> Self:
        """The options, checked. Unless given, the CTAs of a sum of all elements are as many as have full threads."""
        if self.axis != "all" or "ctas_per_sum" in self.model_fields_set:
            return super().checked()
        full = self.threads * self.vector_elements * self.unroll
        parts = max(1, min(MOST_PARTS, self.rows * self.columns // full))
        return super(ReductionParams, self.model_copy(update={"ctas_per_sum": parts})).checked()

    def _check(self) -> None:
        check_vector("reduction", self.vector_bytes, self.element.num_bytes)
        if self.columns % self.vector_elements:
            raise KernelError(
                f"reduction: {self.columns} columns are no full vectors of {self.vector_elements} elements: use a multiple "
                f"or fewer --vector-bytes"
            )
        if self.per == "warp" and (self.axis != "row" or self.num_parts > 1 or self.finish != "atomic"):
            raise KernelError(
                "reduction: a warp sums a row alone: use --axis row, --ctas-per-sum 1 and --finish atomic, or --per block"
            )
        if self.axis == "column":
            self._check_columns()
        check_grid("reduction", self.num_ctas, use="use fewer --rows")

    def _check_columns(self) -> None:
        for name, has, unit, why in (
            ("columns", self.columns, self.width, "what a warp reads at once"),
            ("rows", self.rows, self.rows_per_cta, "the rows of a CTA"),
            ("rows per CTA", self.rows_per_cta, self.num_warps, "a row for each warp"),
        ):
            if has % unit and (name == "columns" or not self.is_in_steps):
                raise KernelError(f"reduction: {has} {name} are no multiple of {unit} ({why}): use one")
        if self.threads < self.width:
            raise KernelError(
                f"reduction: {self.threads} threads finish {self.width} columns, wants one each: use more --threads or "
                f"fewer --vector-bytes"
            )


def left_words(params: ReductionParams, num_warps: int) -> AccessPattern:
    """Stores of the sums of each lane's columns to shared memory by ``num_warps`` warps, in vectors of four."""
    lanes = np.arange(WARP_SIZE)
    at_once = min(4, params.vector_elements)
    stores = [
        int(wavefronts(f"st_shared_b{32 * at_once}", WORD_BYTES * (lanes * params.vector_elements + first)))
        for first in range(0, params.vector_elements, at_once)
    ]
    return AccessPattern(
        num_requests=len(stores) * num_warps,
        num_wavefronts=sum(stores) * num_warps,
        num_bytes=num_warps * params.width * WORD_BYTES,
    )


def taken_words(params: ReductionParams) -> AccessPattern:
    """Loads of the sums of all warps from shared memory, by one thread for each column."""
    num = params.num_warps * ceil_div(params.width, WARP_SIZE)
    return AccessPattern(num_requests=num, num_wavefronts=num, num_bytes=params.num_warps * params.width * WORD_BYTES)
