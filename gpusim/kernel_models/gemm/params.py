"""Parameters of a GEMM kernel: its options, their values on a GPU, and the launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.kernel_models.gemm.advice import TileRefused, advised, with_tile
from gpusim.kernel_models.gemm.applicability import applies_when
from gpusim.kernel_models.gemm.compatibility import check_gpu, check_kinds, check_places, check_shape
from gpusim.kernel_models.gemm.defaults import widest_swizzle, with_instructions, with_places, with_shape
from gpusim.kernel_models.gemm.launch import gemm_launch
from gpusim.kernel_models.gemm.option_panels import panel_of
from gpusim.kernel_models.gemm.options import GemmOptions
from gpusim.kernel_models.gemm.smem_budget import check_room
from gpusim.kernel_models.gemm.sweep_values import usual_values
from gpusim.workload.launch import Launch, Target


class GemmParams(GemmOptions):
    """D = activation(alpha A B + beta C + bias), m x n x k. None: chosen for the GPU by :meth:`resolved`.

    Rows that are no multiple of 16 bytes count as padded to it, because TMA and cp.async require it.
    """

    @classmethod
    def panel_of(cls, option: str) -> str:
        """Panel of ``--help`` for an option; see :mod:`gpusim.kernel_models.gemm.option_panels`."""
        return panel_of(option)

    @classmethod
    def applies_when(cls, option: str) -> Mapping[str, str]:
        """Conditions on other options, by the option's values; see :mod:`gpusim.kernel_models.gemm.applicability`."""
        return applies_when(cls.options()[option])

    def resolved(self, gpu: Target) -> GemmParams:
        """Fill in all defaults for ``gpu``, and check the result.

        Raises:
            KernelError: incompatible options.
            LaunchError: the GPU lacks instructions or shared memory for the kernel.
        """
        try:
            return self._checked(gpu)
        except TileRefused as refused:
            raise advised(refused, lambda tile: with_tile(self, tile)._checked(gpu)) from None

    def _checked(self, gpu: Target) -> GemmParams:
        """Implement :meth:`resolved`; a refusal may still propose a tile.

        Raises:
            TileRefused: proposes a tile.
            KernelError: see :meth:`resolved`.
            LaunchError: see :meth:`resolved`.
        """
        check_gpu(self, gpu)
        placed = with_places(self, gpu)
        check_places(self, placed, gpu)
        params = with_instructions(placed, gpu)
        check_kinds(params)
        params = with_shape(params, gpu)
        check_shape(params)
        check_room(params, gpu)
        return params

    def launch(self, gpu: Target) -> Launch:
        """The kernel's Launch on ``gpu``.

        Raises:
            KernelError: options that no kernel can have.
            LaunchError: a kernel that does not fit on this GPU.
        """
        return self.planned(gpu)[1]

    def planned(self, gpu: Target) -> tuple[GemmParams, Launch]:
        """The options with all defaults filled in and checked, and the kernel's Launch.

        Raises:
            KernelError: see :meth:`resolved`.
            LaunchError: see :meth:`resolved`.
        """
        params = self.resolved(gpu)
        return params, gemm_launch(params, gpu)

    @classmethod
    def usual(cls, option: str, given: Mapping[str, Any], gpu: Target) -> Sequence[Any] | None:
        """Values of ``option`` that a sweep tries for ``auto``; see :mod:`gpusim.kernel_models.gemm.sweep_values`."""
        return usual_values(option, given, gpu) or super().usual(option, given, gpu)

    def answer_to(self, ideal: str) -> Mapping[str, Any]:
        """Options to try if the counterfactual ``ideal`` saves the most time; empty if none is known."""
        if ideal == "stage" and self.stages is not None:
            return {"stages": self.stages + 1}
        if ideal == "imad_wide" and self.wide_per_copy:
            return {"wide_per_copy": 0}
        if ideal in ("bank_conflicts", "tma") and self.math != "fma" and self.swizzle != widest_swizzle(self):
            return {"swizzle": widest_swizzle(self), **({"pad": 0} if self.pad else {})}
        return {}
