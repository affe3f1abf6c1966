"""Elementwise kernels: copy, scale, add, fill."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Any, Literal

from pydantic import Field

from gpusim.kernel_models.streaming import (
    Elements,
    StreamParams,
    VectorBytes,
    all_passes,
    ceil_div,
    check_grid,
    check_vector,
    passes,
    share_footprint,
)
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, Target, WarpRole

INPUTS = {"copy": ("in",), "scale": ("in",), "add": ("a", "b"), "fill": ()}
"""Input tensors of each operation."""

BEFORE_LOADS, BEFORE_STORES, EACH_ELEMENT = 20, 2, 8
"""Integer instructions of a thread: before its first load, before its first store, and for each element of a partial last
CTA.
Source: SASS of kernels/elementwise, sm_90a."""
LEAST_REGISTERS, OTHER_REGISTERS = 14, 8
"""Registers of a thread: at least, and besides the data. Source: SASS of kernels/elementwise, sm_90a."""
REGISTER_BYTES = 4


class ElementwiseParams(StreamParams):
    """out = in, factor * in, a + b, or a value.

    Thread t of a CTA processes its vectors t, t + threads, ... All loads of a thread are issued before its first store. A
    CTA with a partial share processes it element by element.
    """

    op: Literal["copy", "scale", "add", "fill"] = Field(
        "copy", description="Operation: out = in, factor * in, a + b, or a constant"
    )
    elements: Elements = Field(description="Elements of each tensor")
    vector_bytes: VectorBytes = Field(16, description="Vector width: bytes a thread loads or stores at once")
    items_per_thread: Annotated[int, Field(ge=1, le=32)] = Field(1, description="Vectors per thread")

    @property
    def share_bytes(self) -> int:
        """Bytes of each tensor that a CTA processes."""
        return self.threads * self.items_per_thread * self.vector_bytes

    @property
    def num_ctas(self) -> int:
        """Number of CTAs of the grid."""
        return ceil_div(self.elements * self.element.num_bytes, self.share_bytes)

    def _check(self) -> None:
        check_vector("elementwise", self.vector_bytes, self.element.num_bytes)
        check_grid("elementwise", self.num_ctas, use="use more --items-per-thread, --threads or --vector-bytes")


def registers_of(params: ElementwiseParams) -> int:
    """Registers of a thread: all loaded data, and a few more. A fill's value is copied for each vector."""
    data = params.items_per_thread * params.vector_bytes // REGISTER_BYTES * max(1, len(INPUTS[params.op]))
    return max(LEAST_REGISTERS, min(255, data + OTHER_REGISTERS))


def elementwise_launch(params: ElementwiseParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``.

    All loads of a thread from one tensor are one op, and so are its stores: they follow one another without a wait.

    Ignores:
    * That a thread stores its first vector as soon as it has arrived, not when all have.
    * The latency of the parameters in the constant cache.
    * That the compiler, to save registers, may add the first vectors before it loads the last (``add`` of four 16-byte
      vectors).
    """
    inputs, width, threads = INPUTS[params.op], params.element.num_bytes, params.threads
    share, num_bytes = params.share_bytes, params.elements * params.element.num_bytes
    full = all_passes(0, share // params.vector_bytes, threads, params.vector_bytes)
    has_math = params.op in ("scale", "add")
    math = ops.Fma(params.items_per_thread * max(1, params.vector_bytes // REGISTER_BYTES))
    before, between, each = ops.Alu(BEFORE_LOADS, is_chain=True), ops.Alu(BEFORE_STORES), ops.Alu(EACH_ELEMENT)

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        panel = cta.cta_idx
        yield before
        if (panel + 1) * share > num_bytes:
            yield from last(panel)
            return
        tokens: list[ops.Token] = []
        for name in inputs:
            tokens.append((yield ops.GlobalLoad(name, (panel, 0), full)))
        yield between
        for token in tokens:
            yield ops.Use(token)
        if has_math:
            yield math
        yield ops.GlobalStore("out", (panel, 0), full)

    def last(panel: int) -> Generator[ops.Op, Any, None]:
        """Process elements t, t + threads, ... in thread t, one by one."""
        for step, access in enumerate(passes(0, (num_bytes - panel * share) // width, threads, width)):
            tokens: list[ops.Token] = []
            for name in inputs:
                tokens.append((yield ops.GlobalLoad(name, (panel, step), access)))
            for token in tokens:
                yield ops.Use(token)
            yield ops.GlobalStore("out", (panel, step), access)
            yield each

    return Launch(
        kernel="elementwise",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=(WarpRole(name=params.op, num_warps=threads // WARP_SIZE, program=program),),
        registers_per_thread=registers_of(params),
        registers_source="SASS of kernels/elementwise",
        footprints=tuple(
            share_footprint(name, "write" if name == "out" else "read", num_bytes=num_bytes, share_bytes=share)
            for name in (*inputs, "out")
        ),
        num_flops=params.elements if has_math else 0,
        math_class="fp32" if has_math else "",
        has_uniform_programs=True,
    )
