"""Bias and activation: out = activation(in + bias), with an element of the bias for each column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.applicability import Rule
from gpusim.kernel_models.elementwise_data import FUNCTIONS
from gpusim.kernel_models.row_data import Array
from gpusim.kernel_models.row_passes import RowPass, row_launch
from gpusim.kernel_models.rows import ROW_RULES, RowParams
from gpusim.workload.data_access import Registers
from gpusim.workload.launch import Launch, Target

ACTIVATIONS: Mapping[str, tuple[float, float]] = {
    "none": (0.0, 0.0),
    "relu": (1.0, 0.0),
    "silu": (6.0, 2.0),
    "gelu": (7.0, 1.0),
}
"""FP32 and MUFU instructions of an element, besides the addition. ``gelu`` is the formula with tanh.
Source: SASS of kernels/framework_rows (gelu), sm_90a; the others by their formulas."""

OF_ELEMENT = {"none": "copy", "gelu": "gelu_tanh"}
"""Names in ``elementwise_data.FUNCTIONS``."""


class BiasActivationParams(RowParams):
    """out = activation(in + bias), in fp32 arithmetic. A warp or a CTA processes a row, vector by vector."""

    rules: ClassVar[tuple[Rule, ...]] = tuple(rule for rule in ROW_RULES if rule.field == "pad")

    bias: bool = Field(True, description="Add a bias vector with an element for each column")
    activation: Literal["none", "relu", "silu", "gelu"] = Field("gelu", description="Activation function")

    def _check(self) -> None:
        for option, value, why in (
            ("unroll", self.unroll, "each vector is stored before the next is loaded"),
            ("combine", self.combine if self.combine != "all_warps" else None, "no row is reduced"),
        ):
            if value is not None:
                raise KernelError(f"--{option} {value}: {why}; leave it out")
        if self.keep == "smem":
            raise KernelError("bias_activation: a row is used once, shared memory keeps nothing: use --keep reread")
        super()._check()


def bias_activation_launch(params: BiasActivationParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``. With ``--keep reread`` a row is a loop over vectors, with one in flight."""
    fma, mufu = ACTIVATIONS[params.activation]
    weights = ("bias",) if params.bias else ()

    def result(x: Array, kept: Registers) -> Array:
        return np.asarray(FUNCTIONS[OF_ELEMENT.get(params.activation, params.activation)](x + kept.get("bias", 0)))

    return row_launch(params, (RowPass(fma=fma + len(weights), mufu=mufu, weights=weights, result=result),), flops=8)
