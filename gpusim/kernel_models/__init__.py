"""Kernels told in the vocabulary: parameters in, a Launch out. Knows no time and no machine.

One file (or folder) a kernel, one row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpusim.kernel_models.gemm import GemmParams
from gpusim.workload.launch import Launch, Target


class KernelParams(Protocol):
    """Parameters of a kernel model: a frozen pydantic model."""

    def resolved(self, gpu: Target) -> KernelParams:
        """The same with every default that depends on the GPU filled in."""
        ...

    def launch(self, gpu: Target) -> Launch:
        """The kernel as it is launched on ``gpu``."""
        ...

    def answer_to(self, ideal: str) -> Mapping[str, Any]:
        """Options to try where making ``ideal`` free saves most; empty where none is known."""
        ...

    def as_options(self) -> Mapping[str, Any]:
        """Every parameter as the command line spells it, in its order (``{"tile": "128x256x64", ...}``)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """A row: a name, a line for ``--help``, and the parameters' type (a pydantic model)."""

    name: str
    summary: str
    params: type[GemmParams]


KERNEL_MODELS: dict[str, KernelModel] = {
    "gemm": KernelModel(
        name="gemm", summary="D = activation(alpha A B + beta C + bias), every schedule", params=GemmParams
    ),
}
"""Every kernel that can be predicted by name."""
