"""Softmax of each row: maximum, exponentials, sum, scale. A row is read once and written once."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from gpusim.kernel_models.rows import WORD_BYTES, Meeting, RowParams, packing, unpacking
from gpusim.kernel_models.streaming import share_footprint
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, Target, WarpRole

BEFORE_LOADS = {"warp": 14, "block": 7}
"""Instructions of a thread before its first load. Source of this and the next constants: SASS of kernels/softmax, sm_90a."""
RECIPROCAL = 8
"""Number of dependent integer instructions and multiplications around the one MUFU.RCP of a lane."""
REGISTERS: Mapping[tuple[int, int], int] = {(4, 16): 31, (4, 32): 47, (2, 16): 32, (2, 32): 47}
"""Registers of a thread, by the bytes of an element and the values that it holds."""
OTHER_REGISTERS = 16
"""Registers besides the values, for configurations that were not compiled."""


class SoftmaxParams(RowParams):
    """out = exp(in - max) / sum, row by row, in fp32 arithmetic."""

    registers: ClassVar[Mapping[tuple[int, int], int]] = REGISTERS
    other_registers: ClassVar[int] = OTHER_REGISTERS


def softmax_launch(params: SoftmaxParams, gpu: Target) -> Launch:
    """The Launch of checked ``params``.

    Ignores:
    * That a warp's exponentials overlap with their sum.
    * Warps of a CTA that run ahead of others on SMs with more than one CTA.
    """
    per_cta = params.rows_per_cta
    rows = params.rows_at_once(gpu.num_sms)
    share, num_bytes = params.row_bytes * per_cta, params.row_bytes * params.rows
    num_steps = per_cta // rows
    return Launch(
        kernel="softmax",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=tuple(_role(params, step, rows) for step in range(num_steps)),
        registers_per_thread=params.registers_of(params.values),
        registers_source="ptxas of kernels/softmax, or the values and 16 more",
        extra_smem_bytes=2 * WORD_BYTES * params.threads // WARP_SIZE if params.per == "block" else 0,
        footprints=(
            share_footprint("in", "read", num_bytes=num_bytes, share_bytes=share, num_steps=num_steps),
            share_footprint("out", "write", num_bytes=num_bytes, share_bytes=share, num_steps=num_steps),
        ),
        num_flops=4 * params.rows * params.columns,
        math_class="fp32",
        has_uniform_programs=True,
    )


def _role(params: SoftmaxParams, step: int, rows: int) -> WarpRole:
    """The warps of ``rows`` rows of a CTA, the ``step``-th group of that size."""
    values, width = params.values, params.element.num_bytes
    accesses = params.accesses(step, rows)
    num_warps = rows * params.lanes // WARP_SIZE
    meeting = Meeting(num_warps, of_block=params.per == "block")
    before, unpack = ops.Alu(BEFORE_LOADS[params.per], is_chain=True), ops.Alu(values * unpacking(width))
    most, shift, exponents = ops.Alu(values, is_chain=True), ops.Fma(1 + values), ops.Mufu(values)
    add, one, rest_of_one = ops.Fma(values), ops.Mufu(1), ops.Alu(RECIPROCAL, is_chain=True)
    scale, pack = ops.Fma(values), ops.Alu(values * packing(width))

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        access = accesses[cta.cta_idx == params.num_ctas - 1]
        if not access.num_requests:
            return
        yield before
        token = yield ops.GlobalLoad("in", (cta.cta_idx, step), access)
        yield ops.Use(token)
        yield unpack
        yield most
        yield from meeting()
        yield shift
        yield exponents
        yield add
        yield from meeting()
        yield one
        yield rest_of_one
        yield scale
        yield pack
        yield ops.GlobalStore("out", (cta.cta_idx, step), access)

    return WarpRole(name=f"rows {step}" if rows < params.rows_per_cta else "softmax", num_warps=num_warps, program=program)
