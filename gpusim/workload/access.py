"""Byte addresses to sectors, lines and wavefronts: pure functions of where the bytes lie.

In: addresses of warps. Out: ``AccessPattern`` records and counts.

Models: 32 banks of 4 bytes; groups of lanes that are served together (32, 16 or 8); one wavefront for each distinct word
of the busiest bank of a group; the same word is a broadcast, but not for atomics and 16-byte
cp.async, whose lanes queue; compare-and-swaps that pass twice; two groups of a 64- or 128-bit load that merge where lanes
share addresses in pairs and nothing conflicts;
ldmatrix and stmatrix by matrices of 8 rows; sectors of 32 and lines of 128 bytes.
Ignores: what else makes groups of a 128-bit load merge, or not (7 of 400 accesses counted on an H200); cycles lost to
arbitration; the L1 tag stage's own time; merging of partial sectors of several stores in L2; 64-bit add,
min, max, and, or and xor on shared memory are a loop of a load and a compare-and-swap in SASS: one round is counted.
Source: ``SmemOp.evidence`` says it rule by rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError, nearest
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE, WAVEFRONT_BYTES

BANK_BYTES = 4
MATRIX_ROWS = 8
MATRIX_ROW_BYTES = 16
"""A matrix of ldmatrix and stmatrix, and wgmma's core matrix: 8 rows of 16 bytes. Source: PTX ISA."""

_TAG_BANKS = 4
_FEW_WAYS = 8  # conflicts up to so many ways are found by comparing neighbours
_MANY_UNITS = 1 << 28  # below, a unit's bank and row go into 31 bits
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
    """How one shared-memory instruction falls into groups of lanes: a row of ``SMEM_OPS``.

    ``access_bytes`` go with each address; the first ``num_lanes`` lanes give addresses; ``is_collective`` ones need all 32
    lanes of the warp active. ``is_merging``: two neighbouring groups become one where lanes share addresses in pairs and no
    two words conflict. ``is_broadcasting``: lanes of a group that want the same word share a wavefront. ``num_passes``:
    how often each wavefront is made. ``evidence`` says what the rule rests on.
    """

    name: str
    access_bytes: int
    num_lanes: int = WARP_SIZE
    is_collective: bool = False
    is_merging: bool = False
    is_broadcasting: bool = True
    num_passes: int = 1
    evidence: str

    @property
    def lanes_per_phase(self) -> int:
        """Lanes that are served together: as many as one wavefront of 128 bytes can hold, at most a warp."""
        return min(WARP_SIZE, WAVEFRONT_BYTES // self.access_bytes)

    @property
    def num_phases(self) -> int:
        """Groups of lanes before any merge."""
        return self.num_lanes // self.lanes_per_phase


_COUNTED = "measured: H200, validation/measured/h200_sxm/shared_access.csv"
_SEEN = f"{_COUNTED}; the plain bank rule; 60 of 60 accesses exact"
_MERGED = {
    8: f"{_COUNTED}; 400 of 400 accesses exact",
    16: f"{_COUNTED}; 393 of 400 accesses exact, 7 off by one wavefront",
}
_STORE_LIKE = "guess: the rule of stores; an H200 counts more in four of five accesses (validation/deviations.md, 8)"
_COPY = f"{_COUNTED}; lanes on one vector queue; 60 of 60 accesses exact"
_ATOMIC = f"{_COUNTED}; lanes on one word queue; 60 of 60 accesses exact"
_SWAP = f"{_COUNTED}; as other atomics, twice over; 60 of 60 accesses exact"
_LOOP = "guess: one round of a loop of a load and a compare-and-swap, its wavefronts as those of an atomic"
ATOMIC_VERBS = ("add", "min", "max", "and", "or", "xor", "exch", "cas")
"""What ``atom.shared`` does; ``red.shared`` lacks the last two, which are nothing without their result."""

_SMEM_OP_ROWS = (
    *(
        SmemOp(
            name=f"{verb}_shared_b{8 * n}", access_bytes=n, is_merging=verb == "ld" and n > 4,
            evidence=_MERGED[n] if verb == "ld" and n > 4 else _SEEN,
        )
        for verb in ("ld", "st")
        for n in (1, 2, 4, 8, 16)
    ),
    *(SmemOp(name=f"cp_async_b{8 * n}", access_bytes=n, evidence=_STORE_LIKE) for n in (4, 8)),
    SmemOp(name="cp_async_b128", access_bytes=16, is_broadcasting=False, evidence=_COPY),
    *(
        SmemOp(
            name=f"{verb}_x{n}{trans}", access_bytes=MATRIX_ROW_BYTES, num_lanes=MATRIX_ROWS * n, is_collective=True,
            evidence=_SEEN,
        )
        for verb in ("ldmatrix", "stmatrix")
        for n in (1, 2, 4)
        for trans in ("", "_trans")
    ),
    *(
        SmemOp(
            name=f"{kind}_shared_{verb}_b{8 * n}", access_bytes=n, is_broadcasting=False,
            num_passes=2 if verb == "cas" else 1,
            evidence=_SWAP if verb == "cas" else _ATOMIC if n == 4 or verb == "exch" else _LOOP,
        )
        for kind in ("atom", "red")
        for verb in (ATOMIC_VERBS if kind == "atom" else ATOMIC_VERBS[:-2])
        for n in (4, 8)
    ),
    *(
        SmemOp(
            name=f"{kind}_shared_b{8 * n}", access_bytes=n, is_broadcasting=False, evidence=_ATOMIC if n == 4 else _LOOP,
        )
        for kind in ("atom", "red")
        for n in (4, 8)
    ),
)

SMEM_OPS: Mapping[str, SmemOp] = MappingProxyType({op.name: op for op in _SMEM_OP_ROWS})
"""Every shared-memory instruction whose wavefronts are known, by name; ``CopyAtom.smem_op`` names one. An atomic without a
verb is the add."""


def smem_op(name: str) -> SmemOp:
    """The row of ``SMEM_OPS`` called ``name``.

    >>> smem_op("ldmatrix_x4").num_phases
    4

    Raises:
        LayoutError: no such instruction.
    """
    if name not in SMEM_OPS:
        raise LayoutError(f"wavefronts: {name!r} is unknown; {smem_op_hint(name)}")
    return SMEM_OPS[name]


def smem_op_families() -> dict[str, str]:
    """The names of ``SMEM_OPS`` by what they begin with, widths drawn together; of atomics, verbs too.

    >>> families = smem_op_families()
    >>> families["ld_shared"], families["ldmatrix"]
    ('ld_shared_b8|b16|b32|b64|b128', 'ldmatrix_x1|x2|x4[_trans]')
    >>> families["red_shared"]
    'red_shared[_add|_min|_max|_and|_or|_xor]_b32|b64'
    """
    widths: dict[str, dict[str, None]] = {}
    verbs: dict[str, dict[str, None]] = {}
    for name in SMEM_OPS:
        stem, _, width = name.removesuffix("_trans").rpartition("_")
        family = next((kind for kind in ("atom_shared", "red_shared") if stem.startswith(kind)), stem)
        widths.setdefault(family, {})[width] = None
        if stem != family:
            verbs.setdefault(family, {})[stem.removeprefix(family)] = None
    told = {}
    for family, found in widths.items():
        of_atomics = f"[{'|'.join(verbs[family])}]" if family in verbs else ""
        transposed = "[_trans]" if f"{family}_{next(iter(found))}_trans" in SMEM_OPS else ""
        told[family] = f"{family}{of_atomics}_{'|'.join(found)}{transposed}"
    return told


def smem_op_hint(name: str) -> str:
    """What an unknown name of ``SMEM_OPS`` may mean: the family that it names, the nearest names, or all families.

    >>> smem_op_hint("ld_shared"), smem_op_hint("atom_shared_add")
    ('use ld_shared_b8|b16|b32|b64|b128', 'use atom_shared_add_b32|b64')
    >>> smem_op_hint("ld_shred_b32")
    "did you mean 'ld_shared_b32'?"
    """
    families, stem = smem_op_families(), name.lower().rstrip("_")
    if stem in families:
        return f"use {families[stem]}"
    widths = [op.removeprefix(f"{stem}_") for op in SMEM_OPS if op.startswith(f"{stem}_b")]
    if widths:
        return f"use {stem}_{'|'.join(widths)}"
    begun = [family for family in families if stem and family.startswith(stem)]
    if begun:
        return f"use {' or '.join(families[family] for family in begun)}"
    hint = nearest(name, SMEM_OPS)
    return hint if hint.startswith("did you") else f"known: {', '.join(families.values())}"


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

    Models, Ignores, Source: see the module and ``SmemOp.evidence``.

    >>> lanes = np.arange(32)
    >>> [int(wavefronts("ld_shared_b32", 4 * stride * lanes)) for stride in (0, 1, 2, 32, 33)]
    [1, 1, 2, 32, 1]
    >>> int(wavefronts("ld_shared_b128", 16 * lanes)), int(wavefronts("ld_shared_b128", 16 * (lanes // 2)))
    (4, 2)

    Raises:
        LayoutError: unknown op, wrong shape, an address misaligned or negative, or a lane inactive in
            ldmatrix or stmatrix.
    """
    rule = smem_op(op)
    addresses, mask = _checked_access(rule, addresses, active)
    rows = addresses.reshape(-1, WARP_SIZE)[:, : rule.num_lanes]
    masks = None if mask is None else mask.reshape(-1, WARP_SIZE)[:, : rule.num_lanes]
    counted = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _CHUNK_WARPS):
        step = np.s_[start : start + _CHUNK_WARPS]
        counted[step] = _count(rule, rows[step], None if masks is None else masks[step])
    return counted.reshape(addresses.shape[:-1])


def lane_groups(
    op: str, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Which lanes are served together, int64[..., 32]: groups numbered from 0; -1 for lanes that ask for nothing.

    The wavefronts of an access are those of its groups, added up, ``num_passes`` times; a merged group has the
    number of its first part. Arguments and errors as ``wavefronts`` has them.

    >>> lanes = np.arange(32)
    >>> [lane_groups("ld_shared_b128", 16 * (lanes // pair))[::8].tolist() for pair in (1, 2)]
    [[0, 1, 2, 3], [0, 0, 2, 2]]
    """
    rule = smem_op(op)
    addresses, mask = _checked_access(rule, addresses, active)
    group = np.broadcast_to(np.arange(WARP_SIZE) // rule.lanes_per_phase, addresses.shape)
    if rule.is_merging:
        rows = addresses.reshape(-1, WARP_SIZE)
        masks = None if mask is None else mask.reshape(-1, WARP_SIZE)
        one, _ = _merged(rule, rows, masks, _units(rule, rows, masks))
        by_lane = one.repeat(2 * rule.lanes_per_phase, axis=-1).reshape(addresses.shape)
        group = np.where(by_lane, group & ~1, group)
    counts = np.zeros(addresses.shape, dtype=np.bool_)
    counts[..., : rule.num_lanes] = True
    return np.where(counts if mask is None else counts & mask, group, -1)


def _checked_access(
    rule: SmemOp, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None
) -> tuple[NDArray[np.integer[Any]], NDArray[np.bool_] | None]:
    if rule.is_collective and active is not None and not np.all(active):
        raise LayoutError(f"{rule.name}: a lane is inactive: all {WARP_SIZE} lanes must execute it together")
    return _checked(rule.name, addresses, active, rule.access_bytes, rule.num_lanes)


def _is_paired(
    rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_] | None, num_lanes: int
) -> NDArray[np.bool_]:
    """Whether of each ``num_lanes`` all lanes i have the address of lane i ^ 1, or all that of i ^ 2, bool[num_warps, ...].

    Inactive lanes agree with any. A pair needs one result, so that a wavefront returns two registers of all those lanes.
    """
    found = np.zeros((len(rows), WARP_SIZE // num_lanes), dtype=np.bool_)
    for distance in (1, 2):
        shape = (*found.shape, num_lanes // (2 * distance), 2, distance)
        pairs = rows.reshape(shape)
        agrees = pairs[..., 0, :] == pairs[..., 1, :]
        if mask is not None:
            both = mask.reshape(shape)
            agrees |= ~(both[..., 0, :] & both[..., 1, :])
        found |= agrees.all(axis=(-1, -2))
    return found


def _merged(
    rule: SmemOp, rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_] | None, units: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which two neighbouring phases are one, bool[num_warps, num_phases / 2], and the wavefronts of those that are."""
    width = 2 * rule.lanes_per_phase
    found = _is_paired(rows, mask, width)
    fewest = np.zeros(found.shape, dtype=np.int64)
    num_banks = WAVEFRONT_BYTES // rule.access_bytes
    fewest[found] = _busiest(units.reshape(*found.shape, width)[found], num_banks, is_broadcasting=True)
    found &= fewest <= 1
    return found, np.where(found, fewest, 0)


def _count(rule: SmemOp, rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Wavefronts of each row of int[num_warps, num_lanes]."""
    units = _units(rule, rows, mask)
    by_phase = _by_phase(rule, units)
    if rule.is_merging:
        is_merged, fewest = _merged(rule, rows, mask, units)
        by_two = by_phase.reshape(*is_merged.shape, 2).sum(axis=-1)
        by_phase = np.where(is_merged, fewest, by_two)
    return np.asarray(rule.num_passes * by_phase.sum(axis=-1), dtype=np.int64)


def _by_phase(rule: SmemOp, units: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """The units of the busiest bank of each phase, int64[num_warps, num_phases]."""
    by_phase = units.reshape(len(units), rule.num_phases, rule.lanes_per_phase)
    num_banks = WAVEFRONT_BYTES // max(BANK_BYTES, rule.access_bytes)
    return np.asarray(_busiest(by_phase, num_banks, is_broadcasting=rule.is_broadcasting), dtype=np.int64)


def _units(
    rule: SmemOp, rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_] | None
) -> NDArray[np.integer[Any]]:
    """Words, or whole vectors, that lanes want; -1 for no lane. In 32 bits where they fit: sorting those is quicker.

    An aligned unit fills all of its banks, so units conflict as their words do.
    """
    units = _narrow(rows // max(BANK_BYTES, rule.access_bytes))
    return units if mask is None else np.where(mask, units, -1)


def _narrow(units: NDArray[np.integer[Any]], factor: int = 1) -> NDArray[np.integer[Any]]:
    """``units`` in 32 bits where ``factor`` times as many go with their banks into 31, which sort quicker; else in 64."""
    fits = not units.size or units.max() < _MANY_UNITS // factor
    return units.astype(np.int32 if fits else np.int64, copy=False)


def global_access(
    addresses: NDArray[np.integer[Any]], access_bytes: int, active: NDArray[np.bool_] | None = None
) -> AccessPattern:
    """Merge the lanes of each warp into sectors and lines, and sum over warps.

    Args:
        addresses: int[..., 32], bytes.
        access_bytes: 1, 2, 4, 8 or 16 for each lane.
        active: bool[..., 32], or None for all; a warp without active lanes makes no request.

    ``num_wavefronts`` is the data stage's by the plain bank rule, as for loads that hit in L1 (which shares the data
    array with smem, but does not merge phases: a double at stride 0 takes 2, te42kyfo/gpu-benches @1c36d50); for stores
    that rule is not validated.
    Ignores: the tag stage, which ``tag_wavefronts`` counts; sectors asked for in several phases count once.

    >>> global_access(8 * np.arange(32), 4)  # every second float
    AccessPattern(num_requests=1, num_sectors=8, num_lines=2, num_wavefronts=2, num_bytes=128)

    Raises:
        LayoutError: wrong shape or access size, an address misaligned or negative.
    """
    if access_bytes not in (1, 2, 4, 8, 16):
        raise LayoutError(f"global access: {access_bytes} bytes a lane: use 1, 2, 4, 8 or 16")
    addresses, given = _checked("global access", addresses, active, access_bytes, WARP_SIZE)
    rows = addresses.reshape(-1, WARP_SIZE)
    mask = np.ones(rows.shape, dtype=np.bool_) if given is None else given.reshape(-1, WARP_SIZE)
    plain = smem_op(f"st_shared_b{8 * access_bytes}")
    num_sectors = num_lines = num_wavefronts = 0
    for start in range(0, len(rows), _CHUNK_WARPS):
        asked = mask[start : start + _CHUNK_WARPS]
        if asked.any():
            near = _from_first_line(rows[start : start + _CHUNK_WARPS], asked)
            num_sectors += _num_distinct(near, asked, SECTOR_BYTES)
            num_lines += _num_distinct(near, asked, LINE_BYTES)
            num_wavefronts += int(_count(plain, near, asked).sum())
    return AccessPattern(
        num_requests=int(mask.any(axis=-1).sum()),
        num_sectors=num_sectors,
        num_lines=num_lines,
        num_wavefronts=num_wavefronts,
        num_bytes=access_bytes * int(mask.sum()),
    )


def _from_first_line(rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_]) -> NDArray[np.integer[Any]]:
    """Addresses less the first line's, 0 for lanes that ask for nothing: as a rule 32 bits hold them, and banks stay."""
    first = int(np.where(mask, rows, np.iinfo(rows.dtype).max).min()) // LINE_BYTES * LINE_BYTES
    return _narrow(np.where(mask, rows - first, 0))


def tag_wavefronts(
    addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """L1 tag-stage wavefronts of each warp access to global memory, int64[...] over the leading axes.

    Args:
        addresses: int[..., 32], bytes; no lane crosses a line.
        active: bool[..., 32], or None for all; no active lane, no wavefront.

    Models: four banks of tags, each of which looks up one line at a time; a line's bank is the XOR of all two-bit digits
    of its number (address / 128), so that rows of a power of two apart spread.
    Ignores: up to a quarter of a wavefront more that accesses of three or four lines take now and then.
    Source: found in the counters of te42kyfo/gpu-benches @0a45416, gpu-strides (validation/published/tag_wavefronts.csv): of
    all pairs of XOR masks over nine bits this fits best; mean error 2.2 % on an A100, 3.4 % on an H200, nothing else fitted.

    >>> lanes = np.arange(32)
    >>> [int(tag_wavefronts(4 * stride * lanes)) for stride in (1, 8, 16, 32, 40, 64)]
    [1, 2, 4, 8, 9, 8]

    Raises:
        LayoutError: wrong shape, or a negative address.
    """
    addresses, mask = _checked("tag wavefronts", addresses, active, 1, WARP_SIZE)
    rows = addresses.reshape(-1, WARP_SIZE)
    masks = None if mask is None else mask.reshape(-1, WARP_SIZE)
    found = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _CHUNK_WARPS):
        step = np.s_[start : start + _CHUNK_WARPS]
        lines = rows[step].astype(np.int64) // LINE_BYTES
        bank = lines
        for shift in (32, 16, 8, 4, 2):
            bank = bank ^ bank >> shift
        # 58 bits are left for a line's number above the two that say its bank; addresses have 49.
        keyed = _narrow(lines - lines.min(), _TAG_BANKS) * _TAG_BANKS + (bank & (_TAG_BANKS - 1)).astype(np.int32)
        keyed = keyed if masks is None else np.where(masks[step], keyed, -1)
        found[step] = _busiest(keyed, _TAG_BANKS, is_broadcasting=True)
    return found.reshape(addresses.shape[:-1])


def _checked(
    where: str,
    addresses: NDArray[np.integer[Any]],
    active: NDArray[np.bool_] | None,
    access_bytes: int,
    num_lanes: int,
) -> tuple[NDArray[np.integer[Any]], NDArray[np.bool_] | None]:
    """Addresses, and the mask of active lanes in the same shape (None for all); refuses bad ones.

    Addresses are given back as they are, so lanes that are not looked at may hold anything.
    """
    addresses = np.asarray(addresses)
    if addresses.ndim == 0 or addresses.shape[-1] != WARP_SIZE:
        raise LayoutError(
            f"{where}: addresses have shape {addresses.shape}: give {WARP_SIZE} lanes along the last axis"
        )
    if not np.issubdtype(addresses.dtype, np.integer):
        raise LayoutError(f"{where}: addresses are {addresses.dtype}: use integers, in bytes")
    if addresses.dtype not in (np.int32, np.int64):
        addresses = addresses.astype(np.int64)
    bad = (addresses[..., :num_lanes] & (access_bytes - 1)) != 0
    bad |= addresses[..., :num_lanes] < 0
    mask = None
    if active is not None:
        if np.shape(active) not in (addresses.shape, (WARP_SIZE,)):
            raise LayoutError(
                f"{where}: active has shape {np.shape(active)}: use {addresses.shape}, as the addresses have"
            )
        mask = np.broadcast_to(np.asarray(active, dtype=np.bool_), addresses.shape)
        bad &= mask[..., :num_lanes]
    if bad.any():
        first = tuple(np.argwhere(bad)[0])
        raise LayoutError(
            f"{where}: lane {first[-1]} has byte address {addresses[first]}: "
            f"use a multiple of {access_bytes}, 0 or more"
        )
    return addresses, mask


def _num_distinct(addresses: NDArray[np.integer[Any]], mask: NDArray[np.bool_], unit_bytes: int) -> int:
    """Distinct units of ``unit_bytes`` along the last axis, summed over the others."""
    ordered = np.sort(np.where(mask, addresses // unit_bytes, -1), axis=-1)
    is_first = ordered >= 0
    is_first[..., 1:] &= ordered[..., 1:] != ordered[..., :-1]
    return int(is_first.sum())


def _busiest(
    units: NDArray[np.integer[Any]], num_banks: int, *, is_broadcasting: bool
) -> NDArray[np.integer[Any]]:
    """For each row of the last axis the most units, distinct ones if ``is_broadcasting``, in any one of ``num_banks`` banks.

    Sorted by bank, units of one bank stand together: a bank has k or more exactly if some unit and the one k - 1 places
    on share it. Most rows drop out after a few k; of the others, runs are measured.
    """
    if not is_broadcasting:
        ordered = _by_bank(units, num_banks)
    else:
        ordered = np.sort(_by_bank(units, num_banks), axis=-1)
        again = ordered[..., 1:] == ordered[..., :-1]
        if again.any():
            ordered[..., 1:][again] = -1
    banks = np.where(ordered >= 0, ordered >> _row_bits(ordered), -1)
    banks = np.sort(banks, axis=-1).reshape(-1, units.shape[-1])
    counted = (banks[:, -1] >= 0).astype(np.int64)
    alive = np.flatnonzero(counted)
    banks = banks[alive]
    for reach in range(1, min(_FEW_WAYS, units.shape[-1])):
        shared = ((banks[:, reach:] == banks[:, :-reach]) & (banks[:, reach:] >= 0)).any(axis=-1)
        alive, banks = alive[shared], banks[shared]
        counted[alive] = reach + 1
    if not len(alive) or units.shape[-1] <= _FEW_WAYS:
        return counted.reshape(units.shape[:-1])
    place = np.arange(banks.shape[-1])
    begins = np.ones(banks.shape, dtype=np.bool_)
    begins[:, 1:] = banks[:, 1:] != banks[:, :-1]
    runs = place - np.maximum.accumulate(np.where(begins, place, 0), axis=-1) + 1
    counted[alive] = np.where(banks >= 0, runs, 0).max(axis=-1, initial=0)
    return counted.reshape(units.shape[:-1])


def _row_bits(units: NDArray[np.integer[Any]]) -> int:
    """Bits for the row of a unit, below those for its bank (at most 32 of them)."""
    return 8 * units.dtype.itemsize - 6


def _by_bank(units: NDArray[np.integer[Any]], num_banks: int) -> NDArray[np.integer[Any]]:
    """A number for each unit that orders by bank first; -1 stays."""
    shift = num_banks.bit_length() - 1
    keyed = ((units & (num_banks - 1)) << _row_bits(units)) | (units >> shift)
    return np.where(units >= 0, keyed, -1)
