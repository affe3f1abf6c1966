"""Softmax of each row: maximum, exponentials, sum, scale. A row is written once, and read once or once in each pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.applicability import Rule
from gpusim.kernel_models.row_data import Array, Reduction
from gpusim.kernel_models.row_passes import RowPass, row_launch
from gpusim.kernel_models.rows import IN_REGISTERS, ONE_WORD, ROW_RULES, Merge, RowParams
from gpusim.workload import ops
from gpusim.workload.data_access import Registers
from gpusim.workload.launch import Launch, Target

BEFORE_LOADS = {"warp": 14, "block": 7}
"""Instructions of a thread before its first load. Source of this and the next constants: SASS of kernels/softmax, sm_90a."""
SCALE = (ops.Mufu(1), ops.Alu(8, is_chain=True))
"""One MUFU.RCP of a lane, and the dependent integer instructions and multiplications around it."""
REGISTERS: Mapping[tuple[int, int], int] = {(4, 16): 31, (4, 32): 47, (2, 16): 32, (2, 32): 47}
"""Registers of a thread, by the bytes of an element and the values that it holds."""
OTHER_REGISTERS = 16
"""Registers besides the values, for configurations that were not compiled."""


MAX_AND_SUM = Merge(words=2, alu=11.0, mufu=2.0)
"""Merge of two pairs: a maximum, and the sum of powers less that maximum. Source of this and the next constant: SASS of
kernels/framework_rows, sm_90a."""
EXP_FMA, DIVISION_FMA, DIVISION_ALU = 7.0, 6.0, 4.0
"""FP32 instructions of ``expf`` with its subtraction, and of a division; integer instructions and branches of a division.
Source: SASS that nvcc makes for sm_90 without fast math."""
CHECK_ALU = 9.0
"""Dependent instructions before each element that a warp stores: it reads the lane's number, compares, and branches."""
def _most_and_sum(words: Array) -> Array:
    """Merge of pairs: a maximum, and the sum of powers less that maximum; the sum of no element is 0."""
    most, sums = words[..., 0].max(axis=-1), words[..., 1]
    less = np.where(sums > 0, words[..., 0] - most[..., None], -np.inf)
    return np.stack([most, (sums * np.exp(less)).sum(axis=-1)], axis=-1)


MOST = Reduction(
    words=lambda x, _: (x,), merge=lambda words: words.max(axis=-2), identity=(-np.inf,),
    keep=lambda word, _: {"most": word},
)
"""Reductions of functional runs."""
POWERS = Reduction(words=lambda x, kept: (np.exp(x - kept["most"]),), keep=lambda word, _: {"sum": word})
MOST_AND_POWERS = Reduction(
    words=lambda x, _: (x, np.ones_like(x)), merge=_most_and_sum, identity=(-np.inf, 0.0),
    keep=lambda words, _: {"most": words[:, :1], "sum": words[:, 1:]},
)
ONLINE_ELEMENTS = 16
"""Elements of a lane in flight where each changes maximum and sum."""


class SoftmaxParams(RowParams):
    """out = exp(in - max) / sum, row by row, in fp32 arithmetic."""

    has_plain_program: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule, ...]] = (
        *ROW_RULES,
        Rule("recompute", (IN_REGISTERS,), "exponentials of a row that is not in registers are always computed again",
             "use --keep registers, or leave it out"),
    )  # fmt: skip
    compiled_registers: ClassVar[Mapping[tuple[int, int], int]] = REGISTERS
    other_registers: ClassVar[int] = OTHER_REGISTERS

    algorithm: Literal["two_pass", "online"] = Field(
        "two_pass", description="Maximum and sum: one after the other, or both in one pass (online)"
    )
    arithmetic: Literal["fast", "ieee"] = Field(
        "fast", description="Exponentials and division: by fast math, or as nvcc compiles them without it"
    )
    recompute: bool = Field(False, description="Compute exponentials again for the result, also where a row is in registers")

    def _check(self) -> None:
        if self.algorithm == "online" and self.keep == "registers":
            raise KernelError(
                "softmax: an online softmax of a row in registers saves no read: use --algorithm two_pass or --keep reread"
            )
        if self.algorithm == "online" and self.arithmetic == "ieee":
            raise KernelError("softmax: no online softmax without fast math is modelled: use --arithmetic fast")
        super()._check()


def softmax_launch(params: SoftmaxParams, gpu: Target) -> Launch:
    """The Launch of checked ``params``.

    Ignores:
    * That a warp's exponentials overlap with their sum.
    * Warps of a CTA that run ahead of others on SMs with more than one CTA.
    """
    if not params.is_plain:
        return row_launch(params, softmax_passes(params), flops=4)
    row_passes = (
        RowPass(alu_chain=1.0, merge=ONE_WORD, reduction=MOST),
        RowPass(fma=2.0, mufu=1.0, merge=ONE_WORD, after=SCALE, reduction=POWERS), RowPass(fma=1.0, result=_scaled),
    )  # fmt: skip
    return row_launch(
        params, row_passes, flops=4, group_threads=params.rows_at_once(gpu.num_sms) * params.lanes,
        before_loads=BEFORE_LOADS[params.per],
    )


def softmax_passes(params: SoftmaxParams) -> tuple[RowPass, ...]:
    """Passes over a row. Only registers may keep exponentials; otherwise the last pass computes them again.

    Without fast math each element is divided, and an exponential takes more instructions. A division's branch keeps it from
    overlapping with the next one.
    """
    is_kept = params.keep == "registers" and not params.recompute
    if params.arithmetic == "ieee" and params.algorithm == "two_pass":
        last = RowPass(
            chain=DIVISION_FMA, alu_chain=DIVISION_ALU + (CHECK_ALU if params.per == "warp" else 0.0),
            fma=0.0 if is_kept else EXP_FMA, alu=0.0 if is_kept else 1.0, mufu=1.0 if is_kept else 2.0, result=_scaled,
        )  # fmt: skip
        sums = RowPass(fma=EXP_FMA, alu=1.0, mufu=1.0, chain=1.0, merge=ONE_WORD, reduction=POWERS)
        return RowPass(alu_chain=1.0, merge=ONE_WORD, reduction=MOST), sums, last
    again = RowPass(fma=1.0, result=_scaled) if is_kept else RowPass(fma=2.0, mufu=1.0, result=_scaled)
    if params.algorithm == "online":
        both = RowPass(
            alu_chain=1.0, fma=4.0, mufu=2.0, chain=1.0, unrolled_elements=ONLINE_ELEMENTS, merge=MAX_AND_SUM, after=SCALE,
            reduction=MOST_AND_POWERS,
        )
        return both, again
    return (
        RowPass(alu_chain=1.0, merge=ONE_WORD, reduction=MOST),
        RowPass(fma=1.0, mufu=1.0, chain=1.0, merge=ONE_WORD, after=SCALE, reduction=POWERS), again,
    )  # fmt: skip


def _scaled(x: Array, kept: Registers) -> Array:
    return np.asarray(np.exp(x - kept["most"]) / kept["sum"])
