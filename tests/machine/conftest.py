"""Machines that parts are taken out of."""

from __future__ import annotations

from gpusim.machine.build import Machine
from gpusim.machine.config import GpuSpec
from gpusim.machine.memory.residency import LruResidency
from gpusim.machine.timing import RingingEnvironment
from gpusim.units import Clock


def warm_machine(env: RingingEnvironment, gpu: GpuSpec) -> Machine:
    """All SMs of ``gpu`` at its highest clock, a CTA on each, everything in L2."""
    sides = gpu.l2_sides
    residency = LruResidency(side_bytes=sides.side_bytes, num_sides=sides.num, is_warm=True)
    return Machine(
        env, gpu, Clock(sm_mhz=gpu.clock.max_mhz), residency, cluster_size=1, ctas_per_sm=1, smem_bytes_per_sm=0
    )  # fmt: skip
