"""Byte addresses to sectors, lines and wavefronts: pure functions of where the bytes lie.

In: addresses of warps. Out: ``AccessPattern`` records and counts.

Models: 32 banks of 4 bytes; phases of 32, 16 or 8 lanes; one wavefront for each distinct word of the busiest
bank of a phase; the same word is a broadcast; ldmatrix and stmatrix by phases of 8 rows; sectors of 32 and
lines of 128 bytes.
Ignores: merging of 64- and 128-bit loads across phases; atomics; cycles lost to arbitration; the L1 tag
stage's own time; merging of partial sectors of several stores in L2.
Source: NVIDIA developer forum 260900 (phases of wide accesses) and 278716 (ldmatrix); equal to all 162 stride rows of
te42kyfo/gpu-benches @1c36d50, gpu-strides; 8- to 32-bit accesses, stores, ldmatrix and stmatrix seen exact on an H200.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import KernelError, LayoutError, nearest
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE, WAVEFRONT_BYTES
from gpusim.workload.atoms.mma import MmaAtom

BANK_BYTES = 4
MATRIX_ROWS = 8
MATRIX_ROW_BYTES = 16
"""A matrix of ldmatrix and stmatrix, and wgmma's core matrix: 8 rows of 16 bytes. Source: PTX ISA."""

_CHUNK_WARPS = 1 << 14  # keeps the temporaries of one step within a few MB, that is, in cache


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPattern:
    """What a batch of warp instructions asks of the memory system, summed over its requests.

    ``num_bytes`` is what active lanes move, a broadcast counted once for each lane. A field that a kind of
    access does not have is 0: shared-memory accesses have no sectors or lines.

    >>> AccessPattern(num_requests=1, num_sectors=4).scaled(3) + AccessPattern(num_requests=2)
    AccessPattern(num_requests=5, num_sectors=12, num_lines=0, num_wavefronts=0, num_bytes=0)
    """

    num_requests: int = 0
    """Warp instructions."""
    num_sectors: int = 0
    """Distinct 32-byte sectors, request by request."""
    num_lines: int = 0
    """Distinct 128-byte lines, request by request."""
    num_wavefronts: int = 0
    """Passes of the L1 and shared-memory data stage."""
    num_bytes: int = 0

    def scaled(self, times: int) -> AccessPattern:
        """The same access ``times`` over.

        Raises:
            LayoutError: ``times`` is negative.
        """
        if times < 0:
            raise LayoutError(f"access pattern: cannot happen {times} times: use 0 or more")
        return AccessPattern(
            num_requests=times * self.num_requests,
            num_sectors=times * self.num_sectors,
            num_lines=times * self.num_lines,
            num_wavefronts=times * self.num_wavefronts,
            num_bytes=times * self.num_bytes,
        )

    def __add__(self, other: AccessPattern) -> AccessPattern:
        """Both accesses, one after the other."""
        return AccessPattern(
            num_requests=self.num_requests + other.num_requests,
            num_sectors=self.num_sectors + other.num_sectors,
            num_lines=self.num_lines + other.num_lines,
            num_wavefronts=self.num_wavefronts + other.num_wavefronts,
            num_bytes=self.num_bytes + other.num_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemOp:
    """How one shared-memory instruction falls into phases: a row of ``SMEM_OPS``.

    ``access_bytes`` go with each address; the first ``num_lanes`` lanes give addresses; ``is_collective``
    ones need all 32 lanes of the warp active.
    """

    name: str
    access_bytes: int
    num_lanes: int = WARP_SIZE
    is_collective: bool = False

    @property
    def lanes_per_phase(self) -> int:
        """Lanes that are served together: as many as one wavefront of 128 bytes can hold, at most a warp."""
        return min(WARP_SIZE, WAVEFRONT_BYTES // self.access_bytes)


_SMEM_OP_ROWS = (
    *(
        SmemOp(name=f"{verb}_shared_b{8 * n}", access_bytes=n)
        for verb in ("ld", "st")
        for n in (1, 2, 4, 8, 16)
    ),
    *(SmemOp(name=f"cp_async_b{8 * n}", access_bytes=n) for n in (4, 8, 16)),
    *(
        SmemOp(
            name=f"{verb}_x{n}{trans}",
            access_bytes=MATRIX_ROW_BYTES,
            num_lanes=MATRIX_ROWS * n,
            is_collective=True,
        )
        for verb in ("ldmatrix", "stmatrix")
        for n in (1, 2, 4)
        for trans in ("", "_trans")
    ),
)

SMEM_OPS: Mapping[str, SmemOp] = MappingProxyType({op.name: op for op in _SMEM_OP_ROWS})
"""Every shared-memory instruction whose wavefronts are known, by name; ``CopyAtom.smem_op`` names one."""


def wavefronts(
    op: str, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Shared-memory wavefronts of each warp access, int64[...] over the leading axes.

    Args:
        op: a name in ``SMEM_OPS``.
        addresses: int[..., 32], bytes; lane i's address at [..., i]. For ldmatrix and stmatrix, lanes 8i to
            8i + 7 give the rows of matrix i, and lanes beyond the last matrix are not looked at.
        active: bool[..., 32], or None for all; inactive lanes are not looked at. No active lane, no
            wavefront.

    Models, Ignores, Source: see the module. In particular **Ignores** merging of 64- and 128-bit loads across
    phases, which makes some of them cheaper than counted here, and atomics.

    >>> lanes = np.arange(32)
    >>> [int(wavefronts("ld_shared_b32", 4 * stride * lanes)) for stride in (0, 1, 2, 32, 33)]
    [1, 1, 2, 32, 1]

    Raises:
        LayoutError: unknown op, wrong shape, an address misaligned or negative, or a lane inactive in
            ldmatrix or stmatrix.
    """
    if op not in SMEM_OPS:
        raise LayoutError(f"wavefronts: {op!r} is unknown: {nearest(op, SMEM_OPS)}")
    rule = SMEM_OPS[op]
    addresses, mask = _checked(op, addresses, active, rule.access_bytes, rule.num_lanes)
    if rule.is_collective and active is not None and not np.all(active):
        raise LayoutError(f"{op}: a lane is inactive: all {WARP_SIZE} lanes must execute it together")
    # An aligned unit fills all of its banks, so units conflict as their words do.
    unit_bytes = max(BANK_BYTES, rule.access_bytes)
    units = np.where(mask, addresses // unit_bytes, -1)[..., : rule.num_lanes]
    phases = units.reshape(-1, rule.num_lanes // rule.lanes_per_phase, rule.lanes_per_phase)
    counted = np.empty(len(phases), dtype=np.int64)
    for start in range(0, len(phases), _CHUNK_WARPS):
        chunk = phases[start : start + _CHUNK_WARPS]
        counted[start : start + len(chunk)] = _busiest(chunk, WAVEFRONT_BYTES // unit_bytes).sum(axis=-1)
    return counted.reshape(addresses.shape[:-1])


def global_access(
    addresses: NDArray[np.integer[Any]], access_bytes: int, active: NDArray[np.bool_] | None = None
) -> AccessPattern:
    """Merge the lanes of each warp into sectors and lines, and sum over warps.

    Args:
        addresses: int[..., 32], bytes.
        access_bytes: 1, 2, 4, 8 or 16 for each lane.
        active: bool[..., 32], or None for all; a warp without active lanes makes no request.

    ``num_wavefronts`` is the data stage's by the rule of ``wavefronts``, as for loads that hit in L1 (which
    shares the data array with smem); for stores that rule is not validated.
    Ignores: the tag stage's time, near ``max(1, lines / 4 + 0.5)`` (facts 7.7); sectors asked for in several
    phases count once.

    >>> global_access(8 * np.arange(32), 4)  # every second float
    AccessPattern(num_requests=1, num_sectors=8, num_lines=2, num_wavefronts=2, num_bytes=128)

    Raises:
        LayoutError: wrong shape or access size, an address misaligned or negative.
    """
    op = f"ld_shared_b{8 * access_bytes}"
    if op not in SMEM_OPS:
        raise LayoutError(f"global access: {access_bytes} bytes a lane: use 1, 2, 4, 8 or 16")
    addresses, mask = _checked("global access", addresses, active, access_bytes, WARP_SIZE)
    return AccessPattern(
        num_requests=int(mask.any(axis=-1).sum()),
        num_sectors=_num_distinct(addresses, mask, SECTOR_BYTES),
        num_lines=_num_distinct(addresses, mask, LINE_BYTES),
        num_wavefronts=int(wavefronts(op, addresses, mask).sum()),
        num_bytes=access_bytes * int(mask.sum()),
    )


def _checked(
    where: str,
    addresses: NDArray[np.integer[Any]],
    active: NDArray[np.bool_] | None,
    access_bytes: int,
    num_lanes: int,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Addresses as int64, and the mask of the lanes that count in the same shape; refuses bad ones."""
    addresses = np.asarray(addresses)
    if addresses.ndim == 0 or addresses.shape[-1] != WARP_SIZE:
        raise LayoutError(
            f"{where}: addresses have shape {addresses.shape}: give {WARP_SIZE} lanes along the last axis"
        )
    if not np.issubdtype(addresses.dtype, np.integer):
        raise LayoutError(f"{where}: addresses are {addresses.dtype}: use integers, in bytes")
    mask = np.ones(addresses.shape, dtype=np.bool_)
    if active is not None:
        if np.shape(active) not in (addresses.shape, (WARP_SIZE,)):
            raise LayoutError(
                f"{where}: active has shape {np.shape(active)}: use {addresses.shape}, as the addresses have"
            )
        mask &= np.asarray(active, dtype=np.bool_)
    mask[..., num_lanes:] = False
    bad = mask & ((addresses < 0) | (addresses % access_bytes != 0))
    if bad.any():
        first = tuple(np.argwhere(bad)[0])
        raise LayoutError(
            f"{where}: lane {first[-1]} has byte address {addresses[first]}: "
            f"use a multiple of {access_bytes}, 0 or more"
        )
    return addresses.astype(np.int64), mask


def _first_of_each(units: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Units sorted along the last axis, and a mask of the first of each kind; -1 stands for no unit."""
    ordered = np.sort(units, axis=-1)
    is_first = ordered >= 0
    is_first[..., 1:] &= ordered[..., 1:] != ordered[..., :-1]
    return ordered, is_first


def _num_distinct(addresses: NDArray[np.int64], mask: NDArray[np.bool_], unit_bytes: int) -> int:
    """Distinct units of ``unit_bytes`` along the last axis, summed over the others."""
    return int(_first_of_each(np.where(mask, addresses // unit_bytes, -1))[1].sum())


def _busiest(units: NDArray[np.int64], num_groups: int) -> NDArray[np.int64]:
    """For each row of the last axis, the most distinct units in any one of ``num_groups`` bank groups."""
    ordered, is_first = _first_of_each(units)
    rows = np.arange(math.prod(units.shape[:-1])).reshape(*units.shape[:-1], 1)
    slots = rows * num_groups + ordered % num_groups
    counts = np.bincount(slots[is_first], minlength=rows.size * num_groups)
    return np.asarray(counts.reshape(*units.shape[:-1], num_groups).max(axis=-1), dtype=np.int64)


def wgmma_wavefronts(atom: MmaAtom) -> int:
    """Shared-memory wavefronts in which one wgmma reads its operands: all of B, and A unless in registers.

    Any of the canonical layouts is free of conflicts, so it is bytes over 128: 16 for A, n / 4 for B.
    Source: revollllt/flash-vla @7b15868: the larger of this and the arithmetic fits eight H100 points within half a cycle.

    >>> from gpusim.workload.atoms.mma import wgmma
    >>> from gpusim.workload.dtypes import BF16
    >>> wgmma_wavefronts(wgmma(64, BF16))
    32

    Raises:
        KernelError: the atom is no wgmma.
    """
    if atom.kind != "wgmma":
        raise KernelError(f"{atom.name}: reads no operand from smem by itself: use a wgmma atom")
    a_bytes = atom.a_bytes if atom.a_source == "smem" else 0
    return (a_bytes + atom.b_bytes) // WAVEFRONT_BYTES
