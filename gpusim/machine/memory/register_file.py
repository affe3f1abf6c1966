"""The register file: how many registers a warp takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFileSpec:
    """Registers of one SM, 32 bits each."""

    num_registers: int
    max_registers_per_thread: int
    allocation_unit: int
    """Registers that a warp is given at a time."""
    num_partitions: int
    """Sub-cores, each with its share of the file."""


def registers_per_warp(spec: RegisterFileSpec, registers_per_thread: int) -> int:
    """Registers that a warp is given: ``registers_per_thread`` x 32, rounded up to the allocation unit."""
    unit = spec.allocation_unit
    return -(-registers_per_thread * 32 // unit) * unit
