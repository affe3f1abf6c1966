"""Kernels told in the vocabulary: parameters in, a Launch out. Knows no time and no machine.

One file (or folder) a kernel, one row here.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.kernel_models.elementwise import ElementwiseParams
from gpusim.kernel_models.gather import GatherParams
from gpusim.kernel_models.gemm import GemmParams
from gpusim.kernel_models.layer_norm import LayerNormParams
from gpusim.kernel_models.params import KernelParams
from gpusim.kernel_models.reduction import ReductionParams
from gpusim.kernel_models.sgemm_naive import SgemmNaiveParams
from gpusim.kernel_models.smem_copy import SmemCopyParams
from gpusim.kernel_models.softmax import SoftmaxParams
from gpusim.kernel_models.strided_copy import StridedCopyParams
from gpusim.kernel_models.transpose import TransposeParams


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """A row: a name, a line for ``--help``, and the parameters' type (a pydantic model)."""

    name: str
    summary: str
    params: type[KernelParams]
    also: tuple[str, ...] = ()
    """What else people call it, for hints."""


KERNEL_MODELS: dict[str, KernelModel] = {
    "gemm": KernelModel(
        name="gemm", summary="D = activation(alpha A B + beta C + bias), every schedule", params=GemmParams,
        also=("matmul", "mm", "linear", "addmm", "bmm"),
    ),
    "sgemm_naive": KernelModel(
        name="sgemm_naive", summary="D = A B in fp32, a thread an element of D", params=SgemmNaiveParams
    ),
    "elementwise": KernelModel(
        name="elementwise", summary="copy, scale, add or fill, a vector a load", params=ElementwiseParams,
        also=("copy", "scale", "add", "fill", "memcpy", "vector_add", "axpy", "stream"),
    ),
    "smem_copy": KernelModel(
        name="smem_copy", summary="a matrix copied through shared memory, tile by tile", params=SmemCopyParams
    ),
    "strided_copy": KernelModel(
        name="strided_copy", summary="every n-th element of a tensor, side by side", params=StridedCopyParams
    ),
    "transpose": KernelModel(name="transpose", summary="a matrix transposed in tiles of 32 x 32", params=TransposeParams),
    "reduction": KernelModel(
        name="reduction", summary="sum of every row, or of every column", params=ReductionParams, also=("sum", "reduce")
    ),
    "softmax": KernelModel(name="softmax", summary="softmax of every row, by a warp or a CTA", params=SoftmaxParams),
    "layer_norm": KernelModel(
        name="layer_norm", summary="layer normalization of every row, by a warp or a CTA", params=LayerNormParams,
        also=("layernorm", "norm"),
    ),
    "gather": KernelModel(
        name="gather", summary="rows of a table by their numbers", params=GatherParams, also=("embedding", "index_select")
    ),
}
"""Every kernel that can be predicted by name."""
