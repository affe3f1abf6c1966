"""Tiled copies and tiled MMAs of real instructions: counts of instructions, and the addresses of their lanes.

In: atoms, layouts of threads, values and atoms, tensors in memory. Out: :class:`gpusim.layout.TiledCopy` and
:class:`gpusim.layout.TiledMma`, counts of instructions, byte addresses of lanes for ``smem.access.wavefronts`` and
``gmem.global_access``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import KernelError, LayoutError, nearest_multiple
from gpusim.layout import Layout, TiledCopy, TiledMma, evenly_divides, make_tiled_copy, size
from gpusim.units import WARP_SIZE
from gpusim.workload.atoms.copy import CopyAtom
from gpusim.workload.atoms.cute_names import copy_atom, mma_atom
from gpusim.workload.atoms.mma import MmaAtom
from gpusim.workload.dtypes import DType
from gpusim.workload.tensor import MemRef


def tiled_copy(
    atom: CopyAtom | str, dtype: DType, thr_layout: Layout, val_layout: Layout = Layout(1)  # noqa: B008 - layouts are frozen
) -> TiledCopy:
    """A tiled copy: ``atom``, or one of that name, distributed over threads by ``thr_layout``; values by ``val_layout``.

    ``thr_layout`` maps (m, n) to a thread, ``val_layout`` maps (m, n) to a value. For copies between shared memory and MMA
    fragments, pass ``atom.tv(dtype)`` to ``layout.make_tiled_copy_A`` (or ``_B``, ``_C``) instead.

    >>> from gpusim.workload.atoms import copy_atom
    >>> from gpusim.workload.dtypes import BF16
    >>> copy = tiled_copy(copy_atom("cp_async_cg_b128"), BF16, Layout((16, 8), (8, 1)), Layout((1, 8)))
    >>> copy.tiler, num_copy_instructions(copy, (128, 64))
    ((16, 64), 8)

    Raises:
        KernelError: an atom that copies boxes, elements that do not fit it, or threads that do not fill their warps.
        LayoutError: fewer threads or values than the atom needs.
    """
    atom = copy_atom(atom) if isinstance(atom, str) else atom
    if thr_layout.size % WARP_SIZE:
        close = nearest_multiple(thr_layout.size, WARP_SIZE)
        raise KernelError(f"tiled copy of {atom.name}: {thr_layout.size} threads are no full warps: use {close}")
    return make_tiled_copy(atom.tv(dtype), thr_layout, val_layout)


def tiled_mma(
    atom: MmaAtom | str,
    atom_layout_mnk: Layout = Layout((1, 1, 1)),  # noqa: B008 - layouts are frozen
    permutation_mnk: tuple[Any, Any, Any] = (None, None, None),
) -> TiledMma:
    """A tiled MMA: ``atom``, or one of that name, repeated over warps or warpgroups; CuTe's ``make_tiled_mma``.

    >>> from gpusim.workload.atoms import wgmma
    >>> from gpusim.workload.dtypes import BF16
    >>> mma = tiled_mma(wgmma(256, BF16), Layout((2, 1, 1)))
    >>> mma.num_threads, mma.tile_shape
    (256, (128, 256, 16))
    >>> tiled_mma("SM80_16x8x16_F16F16F16F16_TN", Layout((2, 2, 1))).tile_shape
    (32, 16, 16)
    """
    atom = mma_atom(atom) if isinstance(atom, str) else atom
    return TiledMma(atom.tv, atom_layout_mnk, permutation_mnk)


def num_copy_instructions(tiled: TiledCopy, shape: tuple[int, ...]) -> int:
    """Number of instructions that each warp issues to copy a tile of ``shape``.

    >>> from gpusim.layout import make_tiled_copy_C
    >>> from gpusim.workload.atoms import copy_atom, wgmma
    >>> from gpusim.workload.dtypes import BF16
    >>> store = make_tiled_copy_C(copy_atom("stmatrix_x4").tv(BF16), tiled_mma(wgmma(128, BF16)))
    >>> num_copy_instructions(store, (64, 128))
    8

    Raises:
        LayoutError: a shape that the tiled copy does not divide.
    """
    parts = _parts(tiled, Layout(shape), "src")
    return size(parts, 1, 1) * size(parts, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaCounts:
    """MMA instructions of each unit (a warp, or a warpgroup for wgmma) for one tile.

    >>> MmaCounts(num_accumulators=16, num_k_steps=4).num_instructions
    64
    """

    num_accumulators: int
    """Number of accumulator fragments in each unit, which is its number of instructions for one k-step."""
    num_k_steps: int
    """Number of atoms along k in each unit."""

    @property
    def num_instructions(self) -> int:
        """Number of instructions that each unit issues for the tile."""
        return self.num_accumulators * self.num_k_steps


def mma_counts(tiled: TiledMma, tile_mnk: tuple[int, int, int]) -> MmaCounts:
    """Instructions and accumulators of each unit of ``tiled`` for a tile of m x n x k.

    >>> from gpusim.workload.atoms import mma_sync
    >>> from gpusim.workload.dtypes import BF16
    >>> mma_counts(tiled_mma(mma_sync(BF16), Layout((2, 2, 1))), (128, 128, 32))
    MmaCounts(num_accumulators=32, num_k_steps=2)

    Raises:
        LayoutError: a tile that is no multiple of the tiled MMA's.
    """
    for what, have, step in zip("mnk", tile_mnk, tiled.tile_shape, strict=True):
        if have < 1 or have % step:
            raise LayoutError(
                f"tiled MMA: tile_{what}={have} is no multiple of its {step}: use {nearest_multiple(have, step)}"
            )
    m, n, k = tile_mnk
    return MmaCounts(
        num_accumulators=size(tiled.thrfrg_c(Layout((m, n))), 1, 1),
        num_k_steps=size(tiled.thrfrg_a(Layout((m, k))), 1, 1, 1),
    )


def warp_addresses(tiled: TiledCopy, tensor: MemRef, side: Literal["src", "dst"]) -> NDArray[np.int64]:
    """Byte addresses of the lanes for each instruction, int64[num_instructions, num_warps, 32].

    For ldmatrix and stmatrix these are the addresses of rows; surplus lanes repeat the first ones. Instructions are ordered
    within a tile, then through the tiles of ``tensor``.

    Args:
        tiled: a tiled copy of a real instruction; its atom's layouts are for elements of ``tensor.dtype``.
        tensor: the tensor that is read or written: a multiple of the tile.
        side: "src" for reads, "dst" for writes.

    >>> from gpusim.workload.smem.access import wavefronts
    >>> from gpusim.workload.atoms import copy_atom, mma_sync
    >>> from gpusim.workload.dtypes import BF16
    >>> from gpusim.layout import make_tiled_copy_A
    >>> atom = copy_atom("ldmatrix_x4")
    >>> copy = make_tiled_copy_A(atom.tv(BF16), tiled_mma(mma_sync(BF16)))
    >>> a = MemRef.row_major("sA", (16, 64), BF16, "smem")
    >>> warp_addresses(copy, a, "src").shape
    (4, 1, 32)
    >>> wavefronts(atom.smem_op, warp_addresses(copy, a, "src")).ravel().tolist()  # all rows in the same banks
    [32, 32, 32, 32]

    Raises:
        LayoutError: threads that do not fill their warps, or a tensor that is no multiple of the tile. Also: operands in
            registers, or values of an instruction that are not contiguous in memory.
    """
    if tiled.num_threads % WARP_SIZE:
        close = nearest_multiple(tiled.num_threads, WARP_SIZE)
        raise LayoutError(f"warp addresses: {tiled.num_threads} threads are no full warps: use {close}")
    atom = tiled.atom
    if atom.src != atom.dst and getattr(atom, side) == atom.ref:
        other = "dst" if side == "src" else "src"
        raise LayoutError(f"warp addresses: {side} of this atom is in registers, without addresses: use {other!r}")
    parts = _parts(tiled, tensor.layout, side)
    num_values, num_atoms, num_tiles = size(parts, 1, 0), size(parts, 1, 1), size(parts, 2)
    thread, value, atom_idx, tile = np.ogrid[: tiled.num_threads, :num_values, :num_atoms, :num_tiles]
    addresses = replace(tensor, layout=parts).byte_addresses((thread, (value, atom_idx), tile))
    first = addresses[:, :1]
    if np.any(addresses != first + tensor.dtype.num_bytes * value):
        raise LayoutError(
            f"warp addresses: an instruction's {num_values} values do not lie one after the other in {tensor.name} "
            f"{tensor.layout}: use values along its contiguous mode, or a narrower atom"
        )
    by_instruction = first[:, 0].transpose(2, 1, 0)  # tile, atom, thread
    return by_instruction.reshape(num_tiles * num_atoms, -1, WARP_SIZE)


def _parts(tiled: TiledCopy, layout: Any, side: Literal["src", "dst"]) -> Any:
    """The layout as (thread, (values of an instruction, instructions), tiles)."""
    if not evenly_divides(layout.shape, tiled.tiler):
        raise LayoutError(f"tiled copy: tiles of {tiled.tiler} do not divide {layout.shape}: use full tiles")
    return tiled.tidfrg_s(layout) if side == "src" else tiled.tidfrg_d(layout)
