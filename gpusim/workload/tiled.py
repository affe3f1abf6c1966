"""Atoms spread over a tile: how many instructions each warp, or warpgroup, issues for it."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.errors import KernelError, nearest_multiple
from gpusim.workload.atoms.copy import CopyAtom
from gpusim.workload.atoms.mma import MmaAtom
from gpusim.workload.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledCopy:
    """A tile of ``num_strided`` rows by ``num_contiguous`` elements, copied by ``num_threads`` with one atom.

    >>> from gpusim.workload.atoms import copy_atom
    >>> from gpusim.workload.dtypes import BF16
    >>> atom = copy_atom("cp_async_cg_b128")
    >>> tiled = TiledCopy(atom=atom, dtype=BF16, num_threads=128, num_strided=128, num_contiguous=64)
    >>> tiled.num_instructions_per_warp
    8

    Raises:
        KernelError: an atom that moves boxes, threads that are no whole atoms, or a tile that they do not
            divide.
    """

    atom: CopyAtom
    dtype: DType
    num_threads: int
    num_strided: int
    num_contiguous: int

    def __post_init__(self) -> None:
        where = f"tiled copy of {self.atom.name}"
        if self.atom.bits_per_thread is None:
            raise KernelError(f"{where}: it moves boxes, not threads' shares: use access.tma_boxes")
        if self.num_threads < 1 or self.num_threads % self.atom.num_threads:
            close = nearest_multiple(self.num_threads, self.atom.num_threads)
            raise KernelError(f"{where}: {self.num_threads} threads are no whole warps: use {close}")
        # A row of ldmatrix has 16 bytes, however many a lane receives.
        share_bytes = min(self.atom.bytes_per_thread, 16)
        row_bytes = self.num_contiguous * self.dtype.num_bytes
        if row_bytes < 1 or row_bytes % share_bytes:
            close = nearest_multiple(row_bytes, share_bytes) // self.dtype.num_bytes
            raise KernelError(
                f"{where}: rows of {self.num_contiguous} {self.dtype.name} are no whole vectors: use {close}"
            )
        round_bytes = self.num_threads * self.atom.bytes_per_thread
        if self.num_strided < 1 or self.num_bytes % round_bytes:
            close = nearest_multiple(self.num_bytes, round_bytes)
            raise KernelError(
                f"{where}: {self.num_threads} threads move {round_bytes} bytes at a time, which do not "
                f"divide a tile of {self.num_bytes}: the nearest that works has {close}"
            )

    @property
    def num_bytes(self) -> int:
        """Bytes of the tile."""
        return self.num_strided * self.num_contiguous * self.dtype.num_bytes

    @property
    def num_instructions_per_warp(self) -> int:
        """Instructions that each warp issues for the whole tile."""
        return self.num_bytes // (self.num_threads * self.atom.bytes_per_thread)


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledMma:
    """A tile of ``tile_m`` x ``tile_n`` x ``tile_k``, split among ``units_m`` x ``units_n`` units.

    A unit is what executes one atom: a warp, or a warpgroup for wgmma.

    >>> from gpusim.workload.atoms import mma_sync
    >>> from gpusim.workload.dtypes import BF16
    >>> tiled = TiledMma(atom=mma_sync(BF16), tile_m=128, tile_n=128, tile_k=32, units_m=2, units_n=2)
    >>> tiled.num_instructions_per_unit, tiled.num_threads, tiled.accumulator_registers
    (64, 128, 128)

    Raises:
        KernelError: a tile that the atom and its units do not divide.
    """

    atom: MmaAtom
    tile_m: int
    tile_n: int
    tile_k: int
    units_m: int = 1
    units_n: int = 1

    def __post_init__(self) -> None:
        if self.units_m < 1 or self.units_n < 1:
            raise KernelError(f"tiled MMA: {self.units_m} x {self.units_n} units: use 1 or more of each")
        for what, size, atom_size, num_units in (
            ("tile_m", self.tile_m, self.atom.m, self.units_m),
            ("tile_n", self.tile_n, self.atom.n, self.units_n),
            ("tile_k", self.tile_k, self.atom.k, 1),
        ):
            step = atom_size * num_units
            if size < 1 or size % step:
                raise KernelError(
                    f"tiled MMA: {what}={size} is no multiple of {step}, the {atom_size} of {self.atom.name} "
                    f"times {num_units}: use {nearest_multiple(size, step)}"
                )

    @property
    def num_threads(self) -> int:
        """Threads of all units."""
        return self.units_m * self.units_n * self.atom.num_threads

    @property
    def unit_m(self) -> int:
        """Rows of one unit's part of the tile."""
        return self.tile_m // self.units_m

    @property
    def unit_n(self) -> int:
        """Columns of one unit's part of the tile."""
        return self.tile_n // self.units_n

    @property
    def num_k_steps(self) -> int:
        """Atoms along k."""
        return self.tile_k // self.atom.k

    @property
    def num_accumulators(self) -> int:
        """Accumulators of one atom's shape that each unit keeps: its instructions for one k-step."""
        return (self.unit_m // self.atom.m) * (self.unit_n // self.atom.n)

    @property
    def num_instructions_per_unit(self) -> int:
        """Instructions that each warp, or warpgroup, issues for the whole tile."""
        return self.num_accumulators * self.num_k_steps

    @property
    def accumulator_registers(self) -> int:
        """32-bit registers that each thread keeps for accumulators."""
        return self.num_accumulators * self.atom.accumulator_registers

    @property
    def num_flops(self) -> int:
        """2 m n k of the whole tile."""
        return 2 * self.tile_m * self.tile_n * self.tile_k
