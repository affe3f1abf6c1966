"""Occupancy: CTAs that fit on an SM, and the resource that limits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpusim.errors import LaunchError
from gpusim.machine.memory.register_file import registers_per_warp

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

Limit = Literal["registers", "smem", "threads", "warps", "ctas", "grid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Resident CTAs and warps of one SM, and the resource that runs out first."""

    ctas_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    limited_by: Limit
    limits: Mapping[Limit, int]
    """Most CTAs by each resource alone."""

    @property
    def pct(self) -> float:
        """Resident warps in percent of the SM's maximum."""
        return 100.0 * self.warps_per_sm / self.max_warps_per_sm


def l1_bytes(gpu: GpuSpec, *, smem_bytes: int, ctas_per_sm: int) -> int:
    """Capacity of L1 in bytes: what the smallest shared memory that holds ``ctas_per_sm`` CTAs leaves.

    A CTA has ``smem_bytes``. Where the sizes of shared memory are known, the bytes that CUDA reserves in each CTA count.
    """
    device = gpu.device
    sizes = device.smem_carveout_bytes
    needed = ctas_per_sm * (smem_bytes + (device.smem_reserved_per_cta_bytes if sizes else 0))
    return max(0, gpu.l1.unified_bytes - next((size for size in sizes if size >= needed), needed))


def occupancy(gpu: GpuSpec, *, kernel: str, num_threads: int, registers_per_thread: int, smem_bytes: int) -> Occupancy:
    """Resident CTAs of ``num_threads`` threads on one SM of ``gpu``.

    Registers are allocated to warps in units, from the sub-core that the warp runs on. The number of warps is therefore
    rounded down in each sub-core. Source: cuda_occupancy.h of CUDA 13.0.

    Raises:
        LaunchError: no CTA fits.
    """
    limits, registers = gpu.device, gpu.register_file
    num_warps = -(-num_threads // 32)
    if num_threads > 1024:
        raise LaunchError(f"{kernel}: a CTA of {num_threads} threads, a CTA has at most 1024")
    if registers_per_thread > registers.max_registers_per_thread:
        raise LaunchError(
            f"{kernel}: {registers_per_thread} registers a thread, a thread has at most {registers.max_registers_per_thread}"
        )
    if smem_bytes > limits.smem_per_cta_bytes:
        raise LaunchError(f"{kernel}: {smem_bytes} bytes of shared memory, a CTA has at most {limits.smem_per_cta_bytes}")
    unit = limits.smem_allocation_bytes
    cta_smem = -(-(smem_bytes + limits.smem_reserved_per_cta_bytes) // unit) * unit
    sub_cores = gpu.warp_scheduler.num_schedulers
    warps_each = registers.num_registers // sub_cores // registers_per_warp(registers, registers_per_thread)
    # a lone CTA must fit with its warps rounded up to all sub-cores; several CTAs are counted by warps
    fits_alone = -(-num_warps // sub_cores) <= warps_each
    admitted: dict[Limit, int] = {
        "registers": warps_each * sub_cores // num_warps if fits_alone else 0,
        "smem": limits.smem_per_sm_bytes // cta_smem,
        "threads": limits.max_threads_per_sm // num_threads,
        "warps": limits.max_warps_per_sm // num_warps,
        "ctas": limits.max_ctas_per_sm,
    }
    limited_by = min(admitted, key=lambda name: admitted[name])
    ctas = admitted[limited_by]
    if ctas < 1:
        raise LaunchError(
            f"{kernel}: no CTA of {num_threads} threads with {registers_per_thread} registers and {smem_bytes} bytes "
            f"of shared memory fits on an SM; {limited_by} run out"
        )
    return Occupancy(
        ctas_per_sm=ctas, warps_per_sm=ctas * num_warps, max_warps_per_sm=limits.max_warps_per_sm, limited_by=limited_by,
        limits=admitted,
    )
