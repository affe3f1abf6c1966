"""Kernel models in the public vocabulary: options in, a Launch out. Knows no time and no machine.

Each kernel is one file (or folder), and one row in ``KERNEL_MODELS``.
"""

from __future__ import annotations

from gpusim.errors import KernelError, nearest
from gpusim.kernel_models.bias_activation import BiasActivationParams, bias_activation_launch
from gpusim.kernel_models.elementwise import ElementwiseParams, elementwise_family, elementwise_launch
from gpusim.kernel_models.gather import GatherParams, gather_family, gather_launch
from gpusim.kernel_models.gemm import (
    DECIDING,
    STATED,
    TUNED,
    GemmParams,
    changes,
    configurations,
    family_of,
    gemm_launch,
    knobs_of,
    resolve,
    usual,
    usual_values,
)
from gpusim.kernel_models.layer_norm import LayerNormParams, RmsNormParams, layer_norm_launch, rms_norm_launch
from gpusim.kernel_models.options import KernelModel
from gpusim.kernel_models.reduction import reduction_launch
from gpusim.kernel_models.reduction_options import ReductionParams
from gpusim.kernel_models.sgemm_naive import SgemmNaiveParams, sgemm_naive_launch
from gpusim.kernel_models.smem_copy import SmemCopyParams, smem_copy_launch
from gpusim.kernel_models.softmax import SoftmaxParams, softmax_launch
from gpusim.kernel_models.strided_copy import StridedCopyParams, strided_copy_launch
from gpusim.kernel_models.transpose import TransposeParams, transpose_family, transpose_launch

__all__ = ["KERNEL_MODELS", "KernelModel", "KernelModels"]


class KernelModels(dict[str, KernelModel]):
    """Rows by name. An unknown name is refused with the nearest known one."""

    def __missing__(self, name: str) -> KernelModel:
        """Refuse an unknown name.

        Raises:
            KernelError: always.
        """
        raise KernelError(f"{name!r} is no kernel; {nearest(str(name), self)}")


THREADS = (64, 128, 256, 512, 1024)
ROWS = {
    "per": ("warp", "block"), "vector_bytes": (2, 4, 8, 16), "threads": THREADS, "keep": ("registers", "smem", "reread"),
    "combine": ("all_warps", "first_warp"), "unroll": (1, 2, 4, 8),
}
"""Usual values of options of all kernels that reduce rows; ``THREADS``: of a CTA."""

_ROWS = (
    KernelModel(
        name="gemm", summary="D = activation(alpha A B + beta C + bias), every schedule", params=GemmParams,
        resolve=resolve, launch=gemm_launch, sweep_values=usual_values, configurations=configurations, usual=usual,
        tuned=TUNED, changes=changes, stated=STATED, deciding=DECIDING, family=family_of, knobs=knobs_of,
        also=("matmul", "mm", "linear", "addmm", "bmm"),
    ),
    KernelModel(
        name="sgemm_naive", summary="D = A B in fp32, a thread an element of D", params=SgemmNaiveParams,
        launch=sgemm_naive_launch, tuned={"way": ("naive", "coalesced", "tiled")},
    ),
    KernelModel(
        name="elementwise", summary="copy, scale, add or fill, a vector a load", params=ElementwiseParams,
        launch=elementwise_launch, family=elementwise_family,
        tuned={"vector_bytes": (2, 4, 8, 16, 32), "items_per_thread": (1, 2, 4, 8), "threads": THREADS,
               "loads": ("batched", "serial")},
        also=("copy", "scale", "add", "fill", "memcpy", "vector_add", "axpy", "stream"),
    ),
    KernelModel(
        name="smem_copy", summary="a matrix copied through shared memory, tile by tile", params=SmemCopyParams,
        launch=smem_copy_launch,
        tuned={"copy": ("scalar", "vectorized", "cp_async", "tma"), "swizzle": ("none", "32B", "64B", "128B"),
               "raster": ("along_n", "along_m"), "tile": ("32x32", "64x64", "128x64", "128x128"), "threads": THREADS},
    ),
    KernelModel(
        name="strided_copy", summary="every n-th element of a tensor, side by side", params=StridedCopyParams,
        launch=strided_copy_launch, tuned={"items_per_thread": (1, 2, 4, 8), "threads": THREADS},
    ),
    KernelModel(
        name="transpose", summary="a matrix transposed in tiles of 32 x 32", params=TransposeParams,
        launch=transpose_launch, family=transpose_family,
        tuned={"smem": ("naive", "padded", "swizzled", "none"), "coalesced": ("tile", "stores")},
    ),
    KernelModel(
        name="reduction", summary="sum of every row, or of every column", params=ReductionParams,
        launch=reduction_launch, family=ReductionParams.family_of, also=("sum", "reduce"),
        tuned={"per": ("warp", "block"), "vector_bytes": (2, 4, 8, 16), "threads": THREADS, "unroll": (1, 2, 4, 8),
               "ctas_per_sum": (1, 2, 4, 8, 16, 32, 64), "finish": ("atomic", "last_cta", "second_launch"),
               "rows_per_cta": (16, 32, 64, 128, 256)},
    ),
    KernelModel(
        name="softmax", summary="softmax of every row, by a warp or a CTA", params=SoftmaxParams, launch=softmax_launch,
        family=SoftmaxParams.family_of,
        tuned={**ROWS, "algorithm": ("two_pass", "online"), "arithmetic": ("fast", "ieee"), "recompute": (False, True)},
    ),
    KernelModel(
        name="layer_norm", summary="layer normalization of every row, by a warp or a CTA", params=LayerNormParams,
        launch=layer_norm_launch, family=LayerNormParams.family_of, also=("layernorm", "norm"),
        tuned={**ROWS, "weight_loads": ("vector", "element"), "algorithm": ("two_pass", "welford")},
    ),
    KernelModel(
        name="rms_norm", summary="RMS norm of every row, with or without a residual", params=RmsNormParams,
        launch=rms_norm_launch, family=RmsNormParams.family_of, also=("rmsnorm", "fused_add_rms_norm"),
        tuned={**ROWS, "weight_loads": ("vector", "element")},
    ),
    KernelModel(
        name="bias_activation", summary="activation of an array plus a bias for each column", params=BiasActivationParams,
        launch=bias_activation_launch, family=BiasActivationParams.family_of, tuned=ROWS,
        also=("bias_gelu", "gelu", "silu", "relu", "bias"),
    ),
    KernelModel(
        name="gather", summary="rows of a table by their numbers", params=GatherParams, launch=gather_launch,
        family=gather_family, also=("embedding", "index_select"), tuned={"per": ("warp", "block"), "threads": THREADS},
    ),
)  # fmt: skip

KERNEL_MODELS = KernelModels({row.name: row for row in _ROWS})
"""Kernels that can be predicted by name."""
