"""The register file: how many registers a warp takes, and the pool that setmaxnreg moves."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.machine.component import Component


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFileSpec:
    """Registers of one SM, 32 bits each."""

    num_registers: int
    max_registers_per_thread: int
    allocation_unit: int
    """Registers that a warp is given at a time."""
    num_partitions: int
    """Sub-cores, each with its share of the file."""


class RegisterFile(Component):
    """What ``setmaxnreg`` trades between the warpgroups of one CTA.

    Models: the CTA's pool; ``inc`` waits until enough has been given back.
    Ignores: banks, the operand collector, the reuse cache.
    Source: cuda_occupancy.h (allocation); PTX ISA, setmaxnreg.
    """

    kind = "register_file"

    def __init__(self, spec: RegisterFileSpec, *, num_pool_registers: int) -> None:
        """A pool that starts with nothing free: all ``num_pool_registers`` belong to the warps."""
        self.spec = spec
        self.num_pool_registers = num_pool_registers
        self.num_free = 0


def registers_per_warp(spec: RegisterFileSpec, registers_per_thread: int) -> int:
    """Registers that a warp is given: ``registers_per_thread`` x 32, rounded up to the allocation unit."""
    unit = spec.allocation_unit
    return -(-registers_per_thread * 32 // unit) * unit
