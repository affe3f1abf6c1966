"""Kernel models in the public vocabulary: parameters in, a Launch out. Knows no time and no machine.

Each kernel is one file (or folder), and one row in ``KERNEL_MODELS``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import cast

from gpusim.errors import KernelError, nearest
from gpusim.kernel_models.options import KernelParams


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """A row: the kernel's name, which is also its module's, a line for ``--help``, and the name of its parameters' class."""

    name: str
    summary: str
    kind: str
    also: tuple[str, ...] = ()
    """Alternative names, for hints."""

    @property
    def params(self) -> type[KernelParams]:
        """Class of the parameters (a pydantic model). It is imported at first use: a prediction needs one kernel only."""
        return cast("type[KernelParams]", getattr(import_module(f"{__name__}.{self.name}"), self.kind))


class KernelModels(dict[str, KernelModel]):
    """Rows by name. An unknown name is refused with the nearest known one."""

    def __missing__(self, name: str) -> KernelModel:
        """Refuse an unknown name.

        Raises:
            KernelError: always.
        """
        raise KernelError(f"{name!r} is no kernel; {nearest(str(name), self)}")


KERNEL_MODELS = KernelModels({
    "gemm": KernelModel(
        name="gemm", summary="D = activation(alpha A B + beta C + bias), every schedule", kind="GemmParams",
        also=("matmul", "mm", "linear", "addmm", "bmm"),
    ),
    "sgemm_naive": KernelModel(
        name="sgemm_naive", summary="D = A B in fp32, a thread an element of D", kind="SgemmNaiveParams"
    ),
    "elementwise": KernelModel(
        name="elementwise", summary="copy, scale, add or fill, a vector a load", kind="ElementwiseParams",
        also=("copy", "scale", "add", "fill", "memcpy", "vector_add", "axpy", "stream"),
    ),
    "smem_copy": KernelModel(
        name="smem_copy", summary="a matrix copied through shared memory, tile by tile", kind="SmemCopyParams"
    ),
    "strided_copy": KernelModel(
        name="strided_copy", summary="every n-th element of a tensor, side by side", kind="StridedCopyParams"
    ),
    "transpose": KernelModel(name="transpose", summary="a matrix transposed in tiles of 32 x 32", kind="TransposeParams"),
    "reduction": KernelModel(
        name="reduction", summary="sum of every row, or of every column", kind="ReductionParams", also=("sum", "reduce")
    ),
    "softmax": KernelModel(name="softmax", summary="softmax of every row, by a warp or a CTA", kind="SoftmaxParams"),
    "layer_norm": KernelModel(
        name="layer_norm", summary="layer normalization of every row, by a warp or a CTA", kind="LayerNormParams",
        also=("layernorm", "norm"),
    ),
    "gather": KernelModel(
        name="gather", summary="rows of a table by their numbers", kind="GatherParams", also=("embedding", "index_select")
    ),
})
"""Kernels that can be predicted by name."""
