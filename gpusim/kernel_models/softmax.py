"""Softmax of every row: maximum, exponentials, sum, scale. A row is read once and written once."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from gpusim.kernel_models.rows import Meeting, RowParams, packing, unpacking
from gpusim.kernel_models.streams import share_footprint
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, Target, WarpRole

BEFORE_LOADS = {"warp": 14, "block": 7}
"""Instructions of a thread until its first load. Source of this and what follows: SASS of kernels/softmax, sm_90a."""
RECIPROCAL = 8
"""Integer instructions and multiplications about the one MUFU.RCP of a lane, each of which waits for the one before."""
REGISTERS: Mapping[tuple[int, int], int] = {(4, 16): 31, (4, 32): 47, (2, 16): 32, (2, 32): 47}
"""Of a thread, by the bytes of an element and the values that it keeps."""
OTHER_REGISTERS = 16
"""Beside the values, where nothing was compiled."""


class SoftmaxParams(RowParams):
    """out = exp(in - max) / sum, row by row, in fp32 arithmetic."""

    def resolved(self, gpu: Target) -> SoftmaxParams:
        """Checked; nothing depends on the GPU.

        Raises:
            KernelError: parameters that do not go together.
        """
        del gpu
        self.check_rows("softmax")
        return self

    def launch(self, gpu: Target) -> Launch:
        """The kernel on ``gpu``.

        Raises:
            KernelError: parameters that no kernel can have.
        """
        return softmax_launch(self.resolved(gpu))


def softmax_launch(params: SoftmaxParams) -> Launch:
    """The Launch of checked ``params``.

    Ignores: that exponentials and their sum overlap; warps of a CTA that run ahead of others.
    """
    num_warps, per_cta = params.threads // WARP_SIZE, params.rows_per_cta
    row, values, width = params.row_access(), params.values, params.element.num_bytes
    full = row.scaled(per_cta)
    rest = params.rows % per_cta
    last, last_idx = (row.scaled(rest), params.num_ctas - 1) if rest else (full, -1)
    meeting = Meeting(num_warps, of_block=params.per == "block")
    before, unpack = ops.Alu(BEFORE_LOADS[params.per], is_chain=True), ops.Alu(values * unpacking(width))
    most, shift, exponents = ops.Alu(values, is_chain=True), ops.Fma(1 + values), ops.Mufu(values)
    add, one, rest_of_one = ops.Fma(values), ops.Mufu(1), ops.Alu(RECIPROCAL, is_chain=True)
    scale, pack = ops.Fma(values), ops.Alu(values * packing(width))

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        access = last if cta.cta_idx == last_idx else full
        yield before
        token = yield ops.GlobalLoad("in", (cta.cta_idx, 0), access)
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
        yield ops.GlobalStore("out", (cta.cta_idx, 0), access)

    share, num_bytes = params.row_bytes * per_cta, params.row_bytes * params.rows
    return Launch(
        kernel="softmax",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=(WarpRole(name="softmax", num_warps=num_warps, program=program),),
        registers_per_thread=REGISTERS.get((width, values), values + OTHER_REGISTERS),
        registers_source="ptxas of kernels/softmax, or the values and 16 more",
        extra_smem_bytes=2 * 4 * num_warps if params.per == "block" else 0,
        footprints=(
            share_footprint("in", "read", num_bytes=num_bytes, share_bytes=share),
            share_footprint("out", "write", num_bytes=num_bytes, share_bytes=share),
        ),
        num_flops=4 * params.rows * params.columns,
        math_class="fp32",
        params=params.as_options(),
    )
