"""Elementwise kernels: copies, casts, sums, fills and activation functions."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.elementwise_data import ElementwiseData
from gpusim.kernel_models.registers import launch_limit
from gpusim.kernel_models.rows import packing, unpacking
from gpusim.kernel_models.streaming import (
    Elements,
    IntArray,
    StreamParams,
    ceil_div,
    check_grid,
    check_vector,
    dense_access,
    lanes_access,
    share_footprint,
    total,
)
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.dtypes import DType, dtype
from gpusim.workload.launch import Footprint, Launch, RoleContext, Target, WarpRole
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tensor import MemRef

Op = Literal["copy", "scale", "add", "fill", "relu", "exp", "silu", "gelu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Instructions of an operation for each element, in fp32."""

    fma: float = 0.0
    alu: float = 0.0
    mufu: float = 0.0


ARITHMETIC: Mapping[str, Arithmetic] = {
    "copy": Arithmetic(), "fill": Arithmetic(), "scale": Arithmetic(fma=1), "add": Arithmetic(fma=1),
    "relu": Arithmetic(alu=1), "exp": Arithmetic(fma=6, alu=1, mufu=1), "silu": Arithmetic(fma=11, alu=5, mufu=2),
    "gelu": Arithmetic(fma=13, alu=11, mufu=1), "gelu_tanh": Arithmetic(fma=16, alu=4, mufu=2),
}  # fmt: skip
"""Source: SASS of kernels/elementwise_shapes, sm_90a: expf, erff, tanhf and a division, without fast-math options."""

BEFORE_LOADS, BEFORE_STORES, EACH_ELEMENT = 20, 2, 8
"""Integer instructions of a thread: before its first load, before its first store, and for each element of a last CTA with
``tail="elements"``. Source: SASS of kernels/elementwise, sm_90a."""
EACH_BOUND = 4
"""Instructions of a masked element besides its load, store and arithmetic: comparison and branch. Source: SASS of
kernels/elementwise_shapes, sm_90a, mean over its entry points."""
HALF_SECTOR_STORES = 1.44
"""L2 write sectors for each sector whose halves a warp writes by two stores in a row. All SMs store. Source: measured:
kernels/half_stores (store_2_0, 8 warps, 132 CTAs), h200_sxm."""
MOST_ROLE_WARPS = 8
"""Warps that run in lockstep in the model. Those of larger CTAs overlap the arithmetic of some with the waits of others."""
LEAST_REGISTERS, OTHER_REGISTERS = 14, 8
"""Registers of a thread: at least, and besides the data. Source: SASS of kernels/elementwise, sm_90a."""
REGISTER_BYTES = 4
MAX_ACCESS_BYTES = 16


class ElementwiseParams(StreamParams):
    """Output = in, factor * in, a + b, a constant, or an activation function of in.

    Thread t of a CTA processes its vectors t, t + threads, ...
    """

    op: Op = Field(
        "copy", description="Operation: out = in, factor * in, a + b, a constant, or a function of in (gelu: with erf)"
    )
    elements: Elements = Field(description="Elements of the output")
    out_dtype: Literal["fp32", "bf16", "fp16"] | None = Field(
        None, description="Element type of the output. By default --dtype. Another one is a cast"
    )
    vector_bytes: Literal[2, 4, 8, 16, 32] = Field(
        16, description="Vector width: bytes of an input that a thread loads at once. 32 bytes take two instructions"
    )
    items_per_thread: Annotated[int, Field(ge=1, le=32)] = Field(1, description="Vectors per thread")
    loads: Literal["batched", "serial"] = Field(
        "batched", description="Order of a thread's vectors: all loads before the first store, or each stored before the "
        "next is loaded. serial is what a compiler makes of pointers that may overlap"
    )
    tail: Literal["masked", "elements"] = Field(
        "masked", description="Last CTA that is not full: a bounds check for each element, all in flight at once, or "
        "element by element in a loop"
    )
    registers: Annotated[int, Field(ge=16, le=255)] | None = Field(
        None, description="Registers a thread, as ptxas -v reports. By default estimated from the vectors in flight"
    )
    broadcast: Literal["none", "row", "column"] = Field(
        "none", description="Second input of add: as large as the first, one row of --columns elements (a bias), or one "
        "element per row"
    )
    columns: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Elements per row, with --broadcast row or column"
    )
    in_place: bool = Field(False, description="The output overwrites the first input")
    address_instructions: Annotated[float, Field(ge=0, le=1000)] = Field(
        0.0, description="ALU and branch instructions of a thread for each vector, besides bounds checks. They compute "
        "offsets of tensors that are not contiguous, or convert types known at run time"
    )

    @property
    def out_element(self) -> DType:
        """Type of the output's elements."""
        return dtype(self.out_dtype or self.dtype)

    @property
    def vector_elements(self) -> int:
        """Elements of a vector."""
        return self.vector_bytes // self.element.num_bytes

    @property
    def share_elements(self) -> int:
        """Elements that a CTA processes."""
        return self.threads * self.items_per_thread * self.vector_elements

    @property
    def num_ctas(self) -> int:
        """Number of CTAs of the grid."""
        return ceil_div(self.elements, self.share_elements)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Input tensors."""
        return {"fill": (), "add": ("a", "b")}.get(self.op, ("in",))

    def _check(self) -> None:
        check_vector("elementwise", self.vector_bytes, self.element.num_bytes)
        check_grid("elementwise", self.num_ctas, use="use more --items-per-thread, --threads or --vector-bytes")
        if self.broadcast != "none" and self.op != "add":
            raise KernelError(f"elementwise: --op {self.op} has no second input to broadcast: use --op add")
        if (self.broadcast != "none") != (self.columns is not None):
            raise KernelError("elementwise: --columns and --broadcast row or column belong together: use both or none")
        if self.columns is not None and (self.elements % self.columns or self.columns % self.vector_elements):
            raise KernelError(
                f"elementwise: rows of {self.columns} elements do not divide {self.elements} elements into full vectors of "
                f"{self.vector_elements}: use another --columns or a smaller --vector-bytes"
            )
        if self.in_place and self.op == "fill":
            raise KernelError("elementwise: --op fill has no input to overwrite: leave out --in-place")
        if self.in_place and self.out_element.num_bytes != self.element.num_bytes:
            raise KernelError("elementwise: a cast to another width cannot be in place: leave out --in-place or --out-dtype")
        most = launch_limit(self.threads // WARP_SIZE)
        if registers_of(self) > most:
            raise KernelError(
                f"elementwise: {self.items_per_thread} vectors take {registers_of(self)} registers a thread, a CTA of "
                f"{self.threads} threads has at most {most}: use fewer --items-per-thread or --threads"
            )


def registers_of(params: ElementwiseParams) -> int:
    """Registers of a thread: the loaded data that is held at once, and a few more. A fill's value counts as data."""
    if params.registers is not None:
        return params.registers
    at_once = params.items_per_thread if params.loads == "batched" else 1
    words = ceil_div(params.vector_bytes, REGISTER_BYTES) * max(1, len(params.inputs))
    return max(LEAST_REGISTERS, min(255, at_once * words + OTHER_REGISTERS))


def vector_access(elements: int, threads: int, vector: int, width: int) -> tuple[AccessPattern, ...]:
    """Instructions that load or store one vector of each thread, as far as there are ``elements``, ``vector`` a thread.

    A vector wider than 16 bytes takes several instructions, each of which touches all sectors. L1 combines a part of such
    stores.

    >>> [access.num_sectors for access in vector_access(256, 32, 8, 4)]
    [32, 32]
    """
    num_threads = max(0, min(ceil_div(elements, vector), threads))
    parts = ceil_div(vector * width, MAX_ACCESS_BYTES)
    size = vector * width // parts
    return tuple(lanes_access(part * size, num_threads, size, vector * width) for part in range(parts))


def masked_access(elements: int, threads: int, vector: int, width: int) -> tuple[AccessPattern, ...]:
    """Instructions that load or store each element of a vector of each thread on its own, as far as there are elements.

    The first one touches all sectors. Loads of the others hit in L1, in sectors in flight.
    """
    return tuple(
        lanes_access(place * width, max(0, min(ceil_div(elements - place, vector), threads)), width, vector * width)
        for place in range(vector)
    )


def elementwise_family(params: Mapping[str, Any]) -> str:
    """Family of measured rows that run the same program."""
    return "elementwise_shapes" if params.get("tail") == "masked" else "elementwise"


def elementwise_launch(params: ElementwiseParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``.

    With ``loads="batched"`` all loads of a thread from one tensor are one op, and so are its stores: they follow one another
    without a wait.

    Ignores:
    * That a thread stores its first vector as soon as it has arrived, not when all have.
    * The latency of the parameters in the constant cache.
    * That the compiler, to save registers, may compute the first vectors before it loads the last.
    """
    num_warps = params.threads // WARP_SIZE
    num_roles = next(num for num in range(ceil_div(num_warps, MOST_ROLE_WARPS), num_warps + 1) if num_warps % num == 0)
    out_width = params.out_element.num_bytes
    num_steps = num_roles * (1 if params.loads == "batched" else params.items_per_thread)
    num_fma = params.elements * bool(ARITHMETIC[params.op].fma)
    return Launch(
        kernel="elementwise",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=tuple(_role(params, idx, num_roles) for idx in range(num_roles)),
        registers_per_thread=registers_of(params),
        registers_source="given" if params.registers is not None else "SASS of kernels/elementwise",
        footprints=(
            *(_footprint(params, name, num_steps) for name in params.inputs),
            replace(
                share_footprint(
                    "out", "write", num_bytes=params.elements * out_width, share_bytes=params.share_elements * out_width,
                    num_steps=num_steps,
                ),
                is_in_place=params.in_place,
            ),
        ),
        num_flops=num_fma,
        math_class="fp32" if num_fma else "",
        has_uniform_programs=True,
        tensors=_tensors(params),
    )


Accesses = tuple[list[tuple[str, AccessPattern]], AccessPattern]
"""Loads of the inputs, by tensor, and stores of a group of vectors."""


def _accesses(params: ElementwiseParams, elements: int, first_thread: int, threads: int, groups: int) -> list[Accesses]:
    """Loads and stores of ``threads`` threads of a CTA that has so many elements, by group of vectors."""
    vector, width, each = params.vector_elements, params.element.num_bytes, params.items_per_thread // groups
    out_width, made = params.out_element.num_bytes, []
    for group in range(groups):
        begins = [((group * each + item) * params.threads + first_thread) * vector for item in range(each)]
        here = [max(0, elements - begin) for begin in begins]
        access_of = masked_access if elements < params.share_elements else vector_access
        vectors = [access_of(num, threads, vector, width) for num in here]
        first, *others = (total(part) for part in zip(*vectors, strict=True))
        parts = [part for part in (first, total(others)) if part.num_requests]
        stores = total(part for num in here for part in access_of(num, threads, vector, out_width))
        if elements >= params.share_elements and vector * out_width > MAX_ACCESS_BYTES:
            stores = replace(stores, num_sectors=round(HALF_SECTOR_STORES / 2 * stores.num_sectors))
        loads = [(name, _narrowed(params, part) if name == "b" else part) for name in params.inputs for part in parts]
        made.append((loads, stores))
    return made


def _role(params: ElementwiseParams, idx: int, num_roles: int) -> WarpRole:
    """Warps of a CTA that run in lockstep: the ``idx``-th of ``num_roles`` groups of neighbouring threads."""
    vector, share, items = params.vector_elements, params.share_elements, params.items_per_thread
    width, out_width, threads = params.element.num_bytes, params.out_element.num_bytes, params.threads // num_roles
    groups = 1 if params.loads == "batched" else items
    each = items // groups
    before, between = ops.Alu(BEFORE_LOADS, is_chain=True), ops.Alu(BEFORE_STORES)
    each_element, bounds = ops.Alu(EACH_ELEMENT), ops.Alu(EACH_BOUND * each * vector)
    address = ops.Alu(each * params.address_instructions)
    math, data = _math(params, each * vector), ElementwiseData(params, threads, idx * threads, each)
    first_thread = idx * threads

    @cache
    def accesses(elements: int) -> list[Accesses]:
        return _accesses(params, elements, first_thread, threads, groups)

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        panel = cta.cta_idx
        elements = min(share, params.elements - panel * share)
        yield before
        if elements < share and params.tail == "elements":
            yield from last(panel, elements)
            return
        for group, (loads, stores) in enumerate(accesses(elements)):
            if not stores.num_requests:
                return
            if params.address_instructions:
                yield address
            if elements < share:
                yield bounds
            tokens: list[ops.Token] = []
            numbers = {name: count() for name in params.inputs}
            for name, access in loads:
                of_load = partial(data.load, panel, group, name, next(numbers[name]))
                at = panel if name != "b" or params.columns is None else int(_second_panel(params, np.array(panel)))
                tokens.append((yield ops.GlobalLoad(name, (at, group * num_roles + idx), access, data=of_load)))
            yield between
            for token in tokens:
                yield ops.Use(token)
            yield from math
            yield ops.GlobalStore("out", (panel, group * num_roles + idx), stores, data=partial(data.store, panel, group))

    def last(panel: int, elements: int) -> Generator[ops.Op, Any, None]:
        """Process elements t, t + threads, ... in thread t, one by one."""
        for step, begin in enumerate(range(first_thread, elements, params.threads)):
            num, at = min(threads, elements - begin), step * num_roles + idx
            tokens: list[ops.Token] = []
            for name in params.inputs:
                of_one = partial(data.one, panel, begin, name)
                tokens.append((yield ops.GlobalLoad(name, (panel, at), dense_access(0, num, width), data=of_one)))
            for token in tokens:
                yield ops.Use(token)
            of_one = partial(data.one, panel, begin, "out")
            yield ops.GlobalStore("out", (panel, at), dense_access(0, num, out_width), data=of_one)
            yield each_element

    name = params.op if num_roles == 1 else f"{params.op} {idx}"
    return WarpRole(name=name, num_warps=threads // WARP_SIZE, program=program)


def _tensors(params: ElementwiseParams) -> tuple[MemRef, ...]:
    num_b = {"none": params.elements, "row": params.columns or 1, "column": params.elements // (params.columns or 1)}
    sizes = {name: num_b[params.broadcast] if name == "b" else params.elements for name in params.inputs}
    refs = [MemRef.row_major(name, (size,), params.element) for name, size in sizes.items()]
    return (*refs, MemRef.row_major("out", (params.elements,), params.out_element))


def _math(params: ElementwiseParams, num: int) -> list[ops.Op]:
    """Arithmetic of a thread on ``num`` elements, with the conversions of narrow types."""
    cost, width, out_width = ARITHMETIC[params.op], params.element.num_bytes, params.out_element.num_bytes
    converts = cost != Arithmetic() or params.out_element != params.element
    alu = cost.alu + converts * (len(params.inputs) * unpacking(width) + packing(out_width))
    made = (
        (ops.Fma, cost.fma * num if params.op not in ("scale", "add") else max(cost.fma * num, 1)),
        (ops.Mufu, cost.mufu * num), (ops.Alu, alu * num),
    )  # fmt: skip
    return [op(count) for op, count in made if count]


def _narrowed(params: ElementwiseParams, loads: AccessPattern) -> AccessPattern:
    """Loads of the second input of ``add``: with a column broadcast each lane loads one element, mostly the same."""
    if params.broadcast != "column":
        return loads
    requests = loads.num_requests
    return AccessPattern(
        num_requests=requests, num_sectors=requests, num_lines=requests, num_wavefronts=requests,
        num_bytes=requests * WARP_SIZE * params.element.num_bytes,
    )


def _second_panel(params: ElementwiseParams, tiles: IntArray) -> IntArray:
    """Panel of the second input of a broadcast that each CTA reads: its part of the row, or its rows' elements."""
    columns, share = params.columns or 1, params.share_elements
    if params.broadcast == "column":
        return tiles * share // max(columns, share)
    return tiles % (columns // share) if columns % share == 0 else np.zeros_like(tiles)


def _footprint(params: ElementwiseParams, name: str, num_steps: int) -> Footprint:
    """Footprint of an input."""
    width, share = params.element.num_bytes, params.share_elements
    if name != "b" or params.columns is None:
        return share_footprint(
            name, "read", num_bytes=params.elements * width, share_bytes=share * width, num_steps=num_steps
        )
    if params.broadcast == "column":
        panel = max(1, share // params.columns)
    else:
        panel = share if params.columns % share == 0 else params.columns
    return Footprint(
        tensor=name, access="read", panel_of=lambda tiles: _second_panel(params, tiles),
        panel_bytes=lambda tiles: np.full_like(tiles, panel * width), num_steps=num_steps,
    )
