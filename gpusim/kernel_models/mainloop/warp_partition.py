"""Partition of a tile among math warps, and the registers of a part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gpusim.kernel_models.mainloop.registers import (
    RegisterNeed,
    launch_registers,
    most_accumulators,
    register_need,
    widest_wgmma_n,
)
from gpusim.kernel_models.mainloop.shape import MainloopShape
from gpusim.kernel_models.registers import launch_limit
from gpusim.workload.atoms import MmaAtom, legal_wgmma_n, wgmma

PRODUCER_WARPS = 4
"""Warps of the producer: a warpgroup, because setmaxnreg requires one, of which one thread works."""

MAX_WGMMA_N = 256
GROUP_WARPS = 4
"""Warps of a warp group: one of each sub-core."""

UNITS = {"mma_sync": (16, 8), "fma": (16, 32)}
"""(rows, columns) that a warp's part is a multiple of; fma: 4 x 8 lanes with vectors of 4 along both."""


@dataclass(frozen=True)
class WarpPartition:
    """Parts of a tile: of consumer warpgroups with wgmma, else of warps."""

    shape: MainloopShape
    warp_grid: tuple[int, int]
    """Number of parts along M and N."""
    num_math_warps: int
    """Number of warps that execute MMAs or FFMA."""
    is_specialized: bool = False
    """Whether a producer copies."""
    register_stages: int = 2
    """Register stages of fragments."""
    setmaxnreg: int = 0
    """Registers that setmaxnreg gives a math thread; 0: none."""
    may_split: bool = True
    """Whether warp groups of mma.sync may run independently."""

    @property
    def warp_tile(self) -> tuple[int, int]:
        """Rows and columns of a part."""
        return self.shape.tile[0] // self.warp_grid[0], self.shape.tile[1] // self.warp_grid[1]

    @property
    def num_warps(self) -> int:
        """Number of warps of the CTA."""
        return self.num_math_warps + (PRODUCER_WARPS if self.is_specialized else 0)

    @property
    def warp_groups(self) -> tuple[int, int]:
        """Parts along M and N of the warps of mma.sync: independent warp groups, each with one warp of each sub-core.

        One group loads or copies while another executes MMAs. (1, 1) if the warps cannot be divided in this way.
        """
        num, rest = divmod(self.num_math_warps, GROUP_WARPS)
        if self.shape.math != "mma_sync" or not self.may_split or rest or self.shape.tile[0] % (16 * num):
            return 1, 1
        return (1, num) if self.warp_grid[1] % num == 0 else (num, 1) if self.warp_grid[0] % num == 0 else (1, 1)

    @property
    def num_warp_groups(self) -> int:
        """Number of independent warp groups."""
        return self.warp_groups[0] * self.warp_groups[1]

    # -------------------------------------------------------------------------------------- registers
    @property
    def sums(self) -> int:
        """Number of sums of a math thread."""
        rows, columns = self.warp_tile
        return rows * columns // (128 if self.shape.math == "wgmma" else 32)

    @property
    def accumulators(self) -> int:
        """Registers of a math thread's sums: one each, or one for two of fp16."""
        return self.sums * self.shape.sum_bits // 32

    @property
    def fragments(self) -> int:
        """Registers of a thread's fragments; 0 for wgmma, which reads shared memory."""
        (rows, columns), math = self.warp_tile, self.shape.math
        if math == "wgmma":
            return 0
        return self.register_stages * (rows // 16 * 4 + columns // 8 * 2 if math == "mma_sync" else rows // 4 + columns // 8)

    @property
    def need(self) -> RegisterNeed:
        """Registers that a math thread needs."""
        (tile_m, tile_n, tile_k), shape = self.shape.tile, self.shape
        num_bytes = (tile_m + tile_n) * tile_k * shape.element.num_bytes
        copies = 0 if self.is_specialized else -(-num_bytes // (16 * 32 * self.num_warps))
        return register_need(
            is_specialized=self.is_specialized, math=shape.math, copy=shape.copy, accumulators=self.accumulators,
            fragments=self.fragments, copies_per_thread=copies,
        )

    @property
    def launch_registers(self) -> int:
        """Registers of a thread at launch."""
        return launch_registers(self.need, math=self.shape.math, num_warps=self.num_warps, setmaxnreg=self.setmaxnreg)

    @property
    def ceiling(self) -> int:
        """Maximum registers of a math thread: those of setmaxnreg, or the limit of the launch."""
        return self.setmaxnreg or launch_limit(self.num_warps)

    @property
    def fits_registers(self) -> bool:
        """Whether ptxas neither spills registers nor serializes wgmma."""
        if self.shape.math == "wgmma" and self.atom_or_none is None:
            return False
        return self.accumulators <= most_accumulators(self.need, math=self.shape.math, ceiling=self.ceiling)

    # -------------------------------------------------------------------------------------- instructions
    @property
    def atom_or_none(self) -> MmaAtom | None:
        """The widest wgmma that divides a part and for which the launch has registers."""
        widest = min(MAX_WGMMA_N, widest_wgmma_n(self.num_warps) * 32 // self.shape.sum_bits)
        columns, element = self.warp_tile[1], self.shape.element
        dividing = [n for n in legal_wgmma_n(element) if n <= widest and columns > 0 and columns % n == 0]
        return wgmma(dividing[-1], element, accumulator=self.shape.accumulator) if dividing else None

    @cached_property
    def atom(self) -> MmaAtom:
        """The wgmma of a partition that fits in registers."""
        atom = self.atom_or_none
        assert atom is not None  # checked
        return atom

    @property
    def num_wgmma(self) -> int:
        """Number of wgmma instructions of one warpgroup in one k-step."""
        (rows, columns), atom = self.warp_tile, self.atom
        return (rows // atom.m) * (columns // atom.n) * (self.shape.tile[2] // atom.k)

    @property
    def units(self) -> tuple[int, int]:
        """Rows and columns of which the tile must be a multiple."""
        math, (parts_m, parts_n) = self.shape.math, self.warp_grid
        rows, columns = (64, min(legal_wgmma_n(self.shape.element))) if math == "wgmma" else UNITS[math]
        return rows * parts_m, columns * parts_n

    @property
    def is_divisible(self) -> bool:
        """Whether the tile is a multiple of its instructions."""
        return all(extent % unit == 0 for extent, unit in zip(self.shape.tile[:2], self.units, strict=True))

    @property
    def is_valid(self) -> bool:
        """Whether a kernel can have the partition."""
        return self.is_divisible and self.fits_registers
