"""Coalescing of a warp's access to global memory, and what would make it use all bytes of its sectors.

In: a tile in global memory with the elements that lanes access, or byte offsets. Out: counts by ``global_access`` and
``tag_wavefronts``, and the counts of each change that moves fewer sectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import KernelError, LayoutError, nearest
from gpusim.layout import ByteLayout, Layout, Swizzle, make_layout
from gpusim.layout.int_tuple import E, compact_col_major
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload.atoms import CopyAtom, atom_of, is_atom_name
from gpusim.workload.dtypes import DType
from gpusim.workload.gmem.global_access import TAG_HASHES, global_access, tag_wavefronts
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.smem.smem_ops import SmemOp
from gpusim.workload.smem.tile_access import TileAccess

_SOURCE = "sectors and lines: arithmetic; tag wavefronts: measured, see gpusim.workload.gmem.global_access"

GLOBAL_OPS: Mapping[str, SmemOp] = MappingProxyType({
    f"{verb}_global_b{8 * n}": SmemOp(name=f"{verb}_global_b{8 * n}", access_bytes=n, evidence=_SOURCE)
    for verb in ("ld", "st") for n in (1, 2, 4, 8, 16)
})  # fmt: skip
"""Loads and stores of global memory by name."""


def global_op(name: str) -> SmemOp:
    """The row of ``GLOBAL_OPS`` with this name. CuTe's cp.async atoms read as the load of the same width does.

    >>> global_op("ld_global_b128").access_bytes, global_op("SM80_CP_ASYNC_CACHEALWAYS<uint32_t>").name
    (16, 'ld_global_b32')

    Raises:
        LayoutError: no such instruction.
        KernelError: CuTe has no such atom, or its lanes address no global memory.
    """
    if is_atom_name(name) and name not in GLOBAL_OPS and not name.startswith(("ld_", "st_")):
        try:
            atom = atom_of(name)
        except KernelError as error:
            raise KernelError(str(error).replace("atom:", "coalesce:", 1)) from None
        if not isinstance(atom, CopyAtom) or atom.source != "global" or atom.bits_per_thread is None:
            raise KernelError(f"coalesce: lanes of {name!r} address no global memory; use ld_global_b128 or the like")
        return GLOBAL_OPS[f"ld_global_b{atom.bits_per_thread}"]
    if name not in GLOBAL_OPS:
        raise LayoutError(f"coalesce: {name!r} is unknown; {nearest(name, GLOBAL_OPS)}")
    return GLOBAL_OPS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalTileAccess(TileAccess):
    """A warp's load or store of a tile in global memory, whose lanes are those of :class:`TileAccess`.

    >>> from gpusim.workload.dtypes import FP32
    >>> access = GlobalTileAccess(op="ld_global_b32", tile=global_tile(Layout((64, 64), (64, 1)), FP32))
    >>> access.addresses()[0][0, :4].tolist()
    [0, 4, 8, 12]

    Raises:
        LayoutError: see :class:`TileAccess`.
    """

    command: ClassVar[str] = "coalesce"

    @property
    def rule(self) -> SmemOp:
        """Rule of the instruction."""
        return global_op(self.op)


def global_tile(layout: Layout, dtype: DType) -> ByteLayout:
    """A tile in global memory as a layout of byte addresses from its start on.

    Raises:
        LayoutError: a swizzle, strides that are bases or negative, or more modes than two.
    """
    if not isinstance(layout, Layout):
        raise LayoutError(f"coalesce: {layout} has a swizzle, global memory has none: use the plain layout")
    if layout.has_basis or any(step < 0 for _, step in layout.modes):
        raise LayoutError(f"coalesce: {layout} has strides that are no offsets in memory: use integers, 0 or more")
    if layout.rank > 2:
        raise LayoutError(f"coalesce: {layout} has {layout.rank} modes: use two, for example ((8,2),64) for (8,2,64)")
    two = layout if layout.rank == 2 else make_layout(Layout(1, 0), layout)
    return ByteLayout(Swizzle(0, 4, 3), two, element_bits=dtype.bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coalescing:
    """Sectors, lines and requests of warp accesses, and how well they use their sectors.

    * ``pattern``: counts of :func:`global_access`, summed over the instructions.
    * ``num_used_bytes``: distinct bytes that the lanes of each instruction access.
    * ``num_fewest_sectors``: sectors that hold as many adjacent bytes, summed over the instructions.
    * ``num_tag_wavefronts``: look-ups of lines by L1's tag stage, for each architecture whose tag banks are known.
    """

    pattern: AccessPattern
    num_used_bytes: int
    num_fewest_sectors: int
    num_tag_wavefronts: Mapping[str, int]

    @property
    def used_fraction(self) -> float:
        """Share of the bytes of its sectors that the access uses."""
        return self.num_used_bytes / (self.pattern.num_sectors * SECTOR_BYTES)

    @property
    def is_coalesced(self) -> bool:
        """Whether as many bytes cannot lie in fewer sectors."""
        return self.pattern.num_sectors == self.num_fewest_sectors


def coalescing(
    addresses: NDArray[np.integer[Any]], access_bytes: int, active: NDArray[np.bool_] | None = None
) -> Coalescing:
    """Count how warps' accesses to global memory coalesce; arguments are those of :func:`global_access`.

    >>> found = coalescing(8 * np.arange(32), 4)  # every second float
    >>> found.pattern.num_sectors, found.num_fewest_sectors, found.used_fraction
    (8, 4, 0.5)

    Raises:
        LayoutError: wrong shape or access size, an address misaligned or negative, or no active lane.
    """
    pattern = global_access(addresses, access_bytes, active)
    rows = np.asarray(addresses).reshape(-1, 32)
    mask = np.ones(rows.shape, dtype=np.bool_) if active is None else np.broadcast_to(active, rows.shape)
    if not mask.any():
        raise LayoutError("coalesce: no lane takes part: use at least one")
    used = [access_bytes * len(np.unique(row[asked])) for row, asked in zip(rows, mask, strict=True)]
    return Coalescing(
        pattern=pattern, num_used_bytes=sum(used), num_fewest_sectors=sum(-(-each // SECTOR_BYTES) for each in used),
        num_tag_wavefronts={name: int(tag_wavefronts(rows, mask, tag_hash=name).sum()) for name in TAG_HASHES},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of an access that moves fewer sectors; ``access`` is the changed one, None where only offsets are known."""

    words: str
    found: Coalescing
    access: GlobalTileAccess | None = None


def coalescing_of(access: GlobalTileAccess) -> Coalescing:
    """Counts of an access to a tile.

    Raises:
        LayoutError: see :func:`coalescing`.
    """
    return coalescing(*_of_tile(access))


def _of_tile(access: GlobalTileAccess) -> tuple[NDArray[np.int64], int, NDArray[np.bool_]]:
    addresses, active = access.addresses()
    return addresses, access.rule.access_bytes, active


def changes_of_tile(access: GlobalTileAccess) -> list[Change]:
    """Changes of lanes or of the tile that move as many bytes in fewer sectors, the fewest first.

    >>> from gpusim.workload.dtypes import FP32
    >>> column = GlobalTileAccess(
    ...     op="ld_global_b32", tile=global_tile(Layout((64, 64), (64, 1)), FP32), threads=Layout(32))
    >>> [(change.words, change.found.pattern.num_sectors) for change in changes_of_tile(column)][0]
    ('let lane i take the i-th vector along mode 1', 4)
    """
    inner = access.tile.inner
    along = f"mode {access.contiguous_mode}"
    tried: list[tuple[str, dict[str, Any]]] = [
        (f"let lane i take the i-th vector along {along}", {"threads": _adjacent_lanes(access)})
    ]
    for order, words in ((0, "store mode 0 contiguously"), (1, "store mode 1 contiguously")):
        shape = inner.shape if isinstance(inner.shape, tuple) else (inner.shape,)
        strides: Any = compact_col_major(shape if order == 0 else shape[::-1])
        tile = replace(access.tile, layout=Layout(shape, strides if order == 0 else strides[::-1]))
        tried.append((words, {"tile": tile}))
    tried.append(("start at the first element of the tile", {"at": (0, 0)}))
    now = coalescing_of(access)
    found = []
    for words, fields in tried:
        try:
            changed = replace(access, **fields)
        except LayoutError:  # it has too few vectors, or tears them
            continue
        found.append(Change(words=words, found=coalescing_of(changed), access=changed))
    return _fewer([change for change in found if change.found.num_used_bytes == now.num_used_bytes], now)


def _adjacent_lanes(access: GlobalTileAccess) -> Layout | None:
    """As many lanes, of which lane i takes the i-th vector; None for a warp, whose usual lanes these are."""
    num_lanes = WARP_SIZE if access.threads is None else access.threads.size
    along, vector = access.contiguous_mode, access.vector_elements
    num_in_row = min(num_lanes, access.extents[along] // vector)
    if num_lanes == WARP_SIZE or num_in_row == 0 or num_lanes % num_in_row:
        return None
    return Layout((num_in_row, num_lanes // num_in_row), (vector * E(along), E(1 - along)))


def changes_of_offsets(offsets: NDArray[np.int64], access_bytes: int) -> list[Change]:
    """Changes of byte offsets that move fewer sectors: an aligned start, adjacent lanes.

    >>> [(change.words, change.found.pattern.num_sectors) for change in changes_of_offsets(4 + 4 * np.arange(32), 4)]
    [('start at a multiple of 128 bytes', 4)]
    """
    aligned = offsets - offsets.min()
    order = np.unique(offsets, return_inverse=True)[1].reshape(offsets.shape)
    tried = (
        (f"start at a multiple of {LINE_BYTES} bytes", aligned),
        (f"put the lanes' {access_bytes} bytes next to each other", order * access_bytes),
    )
    active = np.arange(32) < len(offsets)
    now = coalescing(_padded(offsets), access_bytes, active)
    return _fewer(
        [Change(words=words, found=coalescing(_padded(each), access_bytes, active)) for words, each in tried], now
    )


def coalescing_of_offsets(offsets: NDArray[np.int64], access_bytes: int) -> Coalescing:
    """Counts of one warp whose lane i accesses ``access_bytes`` at byte ``offsets[i]``; lanes without offset are off.

    Raises:
        LayoutError: no offset, more than 32, or one that is misaligned or negative.
    """
    if not 1 <= len(offsets) <= 32:
        raise LayoutError(f"coalesce: {len(offsets)} offsets are given: use one for each of up to 32 lanes")
    return coalescing(_padded(offsets), access_bytes, np.arange(32) < len(offsets))


def _padded(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.pad(offsets, (0, 32 - len(offsets)))


def _fewer(changes: list[Change], now: Coalescing) -> list[Change]:
    """Changes that move fewer sectors than ``now``, the fewest first, each count once."""
    better = [change for change in changes if change.found.pattern.num_sectors < now.pattern.num_sectors]
    ordered = sorted(better, key=lambda change: change.found.pattern.num_sectors)
    seen: set[int] = set()
    kept = []
    for change in ordered:
        if change.access is not None or change.found.pattern.num_sectors not in seen:
            kept.append(change)
        seen.add(change.found.pattern.num_sectors)
    return kept
