"""Register file: registers that a warp occupies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFileSpec:
    """Registers of one SM, of 32 bits each."""

    num_registers: int
    """Number of 32-bit registers of an SM (vendor)."""
    max_registers_per_thread: int
    """Most registers of a thread (vendor)."""
    allocation_unit: int
    """Granularity of a warp's register allocation, in registers of 32 bits (vendor)."""


def registers_per_warp(spec: RegisterFileSpec, registers_per_thread: int) -> int:
    """Registers allocated to a warp: ``registers_per_thread`` x 32, rounded up to the allocation unit."""
    unit = spec.allocation_unit
    return -(-registers_per_thread * 32 // unit) * unit
