"""The GPU that a case's configs are made for: its number of SMs, its shared memory, its compute capability.

``case.py`` asks for it while it is loaded (:func:`measured_gpu`), so that its constants, configs and launches fit that GPU.
Without another one it is an H200, which has the 132 SMs of an H100 SXM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGpu:
    """What grids and configs follow from."""

    capability: tuple[int, int] = (9, 0)
    num_sms: int = 132
    smem_per_sm_bytes: int = 233_472
    smem_per_cta_bytes: int = 232_448

    @classmethod
    def of(cls, gpu: GpuSpec) -> MeasuredGpu:
        """GPU of a description.

        >>> from gpusim import load_gpu
        >>> MeasuredGpu.of(load_gpu("h200_sxm")) == MeasuredGpu(), MeasuredGpu.of(load_gpu("a100_sxm_80gb")).num_sms
        (True, 108)
        """
        major, minor = divmod(round(10 * gpu.compute_capability), 10)
        device = gpu.device
        return cls(
            capability=(major, minor), num_sms=device.num_sms, smem_per_sm_bytes=device.smem_per_sm_bytes,
            smem_per_cta_bytes=device.smem_per_cta_bytes,
        )  # fmt: skip

    @property
    def description(self) -> str:
        """Name of the GPU in ``configs/`` whose capacities and rates fits of its rows take.

        >>> MeasuredGpu().description, MeasuredGpu(capability=(8, 0)).description
        ('h200_sxm', 'a100_sxm_80gb')
        """
        of_hopper = "h100_pcie" if self.num_sms == 114 else "h200_sxm"
        return of_hopper if self.has_clusters else "a100_sxm_80gb"

    @property
    def has_clusters(self) -> bool:
        """Whether it has what came with compute capability 9.0: clusters, TMA, bulk copies and wgmma."""
        return self.capability >= (9, 0)


_CURRENT: ContextVar[MeasuredGpu | None] = ContextVar("measured_gpu", default=None)


def measured_gpu() -> MeasuredGpu:
    """GPU for which a case is being loaded, for its constants; its functions run later, when there is none.

    Raises:
        ConfigError: no case is being loaded.
    """
    if (gpu := _CURRENT.get()) is None:
        raise ConfigError("measured_gpu() is asked by a case's function, wants a constant of case.py that keeps it")
    return gpu


def gpu_of_the_case_or(default: MeasuredGpu) -> MeasuredGpu:
    """GPU of the case that loads another one; ``default`` if none is being loaded."""
    return _CURRENT.get() or default


@contextmanager
def loading_for(gpu: MeasuredGpu) -> Iterator[None]:
    """Load cases for ``gpu``."""
    token = _CURRENT.set(gpu)
    try:
        yield
    finally:
        _CURRENT.reset(token)
