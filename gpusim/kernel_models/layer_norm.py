"""Layer norm and RMS norm of each row: mean, variance, weights. A row is written once, and read once or in each pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.row_data import Array, Reduction
from gpusim.kernel_models.row_passes import RowPass, row_launch
from gpusim.kernel_models.rows import ONE_WORD, Merge, RowParams
from gpusim.workload import ops
from gpusim.workload.data_access import Registers
from gpusim.workload.launch import Launch, Target

BEFORE_LOADS = {"warp": 16, "block": 9}
"""Instructions of a thread before its first load. Source of this and the next constants: SASS of kernels/layer_norm,
sm_90a."""
SCALE = 6
"""Number of dependent instructions around the one MUFU.RSQ of a lane."""
REGISTERS: Mapping[tuple[int, int], int] = {(4, 16): 44, (4, 32): 65, (2, 16): 40, (2, 32): 64}
"""Registers of a thread, by the bytes of an element and the values that it holds."""
OTHER_REGISTERS = 33
"""Registers besides the values, for configurations that were not compiled."""
EPSILON = 1e-5
"""Number that functional runs add to the variance."""
TRIPS: Mapping[tuple[str, int, int], tuple[tuple[int, int], ...]] = {
    ("block", 4, 16): ((3, 0), (1, 4)), ("warp", 4, 32): ((3, 3), (3, 0), (2, 5)),
}  # fmt: skip
"""Trips of the last pass, by ``per``, the bytes of an element and the values of a lane. Others have one."""
DIVIDE = 14
"""Dependent instructions around the MUFU.RCP of a division by the number of columns. Source of this and the next: SASS of
kernels/framework_rows, sm_90a."""
MOMENTS = Merge(words=3, alu=23.0, mufu=1.0)
"""Merge of two triples (mean, sum of squared distances, number of elements)."""
WELFORD_ELEMENTS = 8
"""Elements of a lane in flight with Welford's algorithm."""
WELFORD = 6.0
"""Dependent instructions of an element besides its eight of FP32: the branch around the slow path of a division."""


def _moments(words: Array) -> Array:
    """Merge of triples: mean, sum of squared distances, number of elements."""
    means, squares, nums = np.moveaxis(words, -1, 0)
    num = np.maximum(nums.sum(axis=-1), 1)
    mean = (means * nums).sum(axis=-1) / num
    distances = squares.sum(axis=-1) + (nums * (means - mean[..., None]) ** 2).sum(axis=-1)
    return np.stack([mean, distances, num], axis=-1)


MEAN = Reduction(words=lambda x, _: (x,), keep=lambda word, num: {"mean": word / np.float32(num)})
"""Reductions of functional runs. Their results have the square root of ``VARIANCE``."""
VARIANCE = Reduction(
    words=lambda x, kept: ((x - kept["mean"]) ** 2,), keep=lambda word, num: {"variance": word / np.float32(num)}
)
SQUARES = Reduction(words=lambda x, _: (x**2,), keep=VARIANCE.keep)
MEAN_AND_VARIANCE = Reduction(
    words=lambda x, _: (x, np.zeros_like(x), np.ones_like(x)), merge=_moments, identity=(0.0, 0.0, 0.0),
    keep=lambda words, num: {"mean": words[:, :1], "variance": words[:, 1:2] / np.float32(num)},
)


def _root_of(kept: Registers) -> Array:
    return np.asarray(np.sqrt(kept["variance"] + np.float32(EPSILON)))


def _normed(x: Array, kept: Registers) -> Array:
    return np.asarray((x - kept["mean"]) / _root_of(kept) * kept["gamma"] + kept["beta"])


class NormParams(RowParams):
    """Common options of layer norm and RMS norm."""

    residual: bool = Field(False, description="Add a second array first, and store the sum as well")
    weight_loads: Literal["vector", "element"] = Field(
        "vector", description="Loads of weights: by vectors, or element by element (where nvcc sees that stores may alias)"
    )

    @property
    def has_one_loop(self) -> bool:
        """Whether one pass precedes the one that stores the result."""
        return True

    def _check(self) -> None:
        if self.unroll is not None and self.residual and self.has_one_loop:
            raise KernelError(
                f"--unroll {self.unroll}: the pass that adds the residual stores each vector before it loads the next; "
                f"use --no-residual, or leave it out"
            )
        super()._check()

    @property
    def loads_of_weight(self) -> int:
        """Loads of each weight for a vector of the row."""
        return self.vector_elements if self.weight_loads == "element" else 1


class RmsNormParams(NormParams):
    """out = in / sqrt(mean of squares + epsilon) * gamma, row by row, in fp32 arithmetic."""


class LayerNormParams(NormParams):
    """out = (in - mean) / sqrt(variance + epsilon) * gamma + beta, row by row, in fp32 arithmetic."""

    has_plain_program: ClassVar[bool] = True
    compiled_registers: ClassVar[Mapping[tuple[int, int], int]] = REGISTERS
    other_registers: ClassVar[int] = OTHER_REGISTERS

    algorithm: Literal["two_pass", "welford"] = Field(
        "two_pass", description="Mean and variance: one after the other, or both in one pass (Welford)"
    )

    @property
    def has_one_loop(self) -> bool:
        """Whether one pass precedes the one that stores the result."""
        return self.algorithm == "welford"


def rms_norm_launch(params: RmsNormParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``."""
    last = RowPass(
        fma=2.0, weights=("gamma",), weight_loads=params.loads_of_weight,
        result=lambda x, kept: x / _root_of(kept) * kept["gamma"],
    )
    row_passes = (RowPass(chain=1.0, merge=ONE_WORD, after=_root(), reduction=SQUARES), last)
    return row_launch(params, row_passes, flops=4, has_residual=params.residual)


def _root() -> tuple[ops.Op, ...]:
    """Mean of squares, and the reciprocal of its root."""
    return ops.Mufu(2), ops.Alu(DIVIDE + SCALE, is_chain=True)


def layer_norm_passes(params: LayerNormParams) -> tuple[RowPass, ...]:
    """Passes over a row."""
    last = RowPass(
        fma=3.0, weights=("gamma", "beta"), weight_loads=params.loads_of_weight, result=_normed,
    )
    if params.algorithm == "welford":
        return RowPass(
            alu_chain=WELFORD, chain=8.0, mufu=1.0, unrolled_elements=WELFORD_ELEMENTS, merge=MOMENTS, after=_root(),
            reduction=MEAN_AND_VARIANCE,
        ), last  # fmt: skip
    mean = (ops.Mufu(1), ops.Alu(DIVIDE, is_chain=True))
    squares = RowPass(fma=1.0, chain=1.0, merge=ONE_WORD, after=_root(), reduction=VARIANCE)
    return RowPass(chain=1.0, merge=ONE_WORD, after=mean, reduction=MEAN), squares, last


def layer_norm_launch(params: LayerNormParams, gpu: Target) -> Launch:
    """The Launch of checked ``params``.

    The warps of the first row request lines of gamma and beta that L1 may lack. The other warps hit these lines in L1 or in
    flight. Only a few of the vectors have registers at once, so loads wait for one another.

    Ignores:
    * Warps of a CTA that run ahead of others on SMs with more than one CTA.
    * That a load waits until a store has read the registers that it overwrites.
    * That the first vectors of gamma and beta are loaded before the variance is known.
    """
    if not params.is_plain:
        return row_launch(params, layer_norm_passes(params), flops=7, has_residual=params.residual)
    trips = TRIPS.get((params.per, params.element.num_bytes, params.values), ())
    root = (ops.Mufu(1), ops.Alu(SCALE, is_chain=True))
    row_passes = (
        RowPass(chain=1.0, merge=ONE_WORD, reduction=MEAN),
        RowPass(fma=1.0, chain=1.0, merge=ONE_WORD, after=root, reduction=VARIANCE),
        RowPass(fma=2.0, weights=("gamma", "beta"), trips=trips, result=_normed),
    )
    return row_launch(
        params, row_passes, flops=7, group_threads=params.rows_at_once(gpu.num_sms) * params.lanes,
        before_loads=BEFORE_LOADS[params.per],
    )
