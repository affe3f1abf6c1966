"""Bank conflicts of a warp's access to a tile in shared memory: the lanes, banks and words that collide.

In: a warp's access to a tile (``tile_access``). Out: wavefronts of each phase, and the order in which lanes are served.
The module ``bank_conflict_fixes`` searches for fixes.

Models: see ``access``, for one instruction at a time.
Ignores: see ``access``.
Source: the rules of ``access``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gpusim.units import WARP_SIZE, WAVEFRONT_BYTES
from gpusim.workload.smem.access import data_wavefronts, lane_groups, loop_rounds, wavefronts
from gpusim.workload.smem.smem_ops import BANK_BYTES, SmemOp, smem_op
from gpusim.workload.smem.tile_access import Place, TileAccess

NUM_BANKS: Final = WAVEFRONT_BYTES // BANK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Collision:
    """Banks of a phase in which several lanes access different words, or, for atomics, the same word one by one."""

    first_bank: int
    last_bank: int
    lanes: tuple[int, ...]
    """Lanes in the order in which they are served, one for each word. A broadcast counts once."""
    words: tuple[tuple[int, ...], ...]
    """Words of each of these lanes in those banks, as byte address / 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Lanes that the hardware serves together."""

    lanes: tuple[int, ...]
    num_wavefronts: int
    num_ideal_wavefronts: int
    num_turns: int
    """Accesses that the busiest bank serves one after the other; for a loop, its rounds."""
    num_ideal_turns: int
    collisions: tuple[Collision, ...]

    @property
    def num_ways(self) -> float:
        """Conflict degree: turns of the busiest bank over the minimum for the phase's data."""
        return self.num_turns / self.num_ideal_turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One warp instruction: the addresses of its lanes, and the order in which their words are served."""

    places: tuple[Place | None, ...]
    """Coordinate of each lane's first element; None for inactive lanes."""
    addresses: tuple[int | None, ...]
    """Byte address of each lane; None for inactive lanes."""
    phases: tuple[Phase, ...]
    num_ideal_wavefronts: int
    """Minimum wavefronts of any layout of the same data. Less than the sum over phases if some phases could merge."""
    num_data_wavefronts: int
    """Wavefronts as the data stage counts them: the cost of the access, if the two counts differ."""
    turns: NDArray[np.int64]
    """Wavefront of its phase in which a bank serves a lane, int64[32 lanes, 32 banks], from 1; 0 if it does not serve it."""

    @property
    def num_wavefronts(self) -> int:
        """Wavefronts of all phases."""
        return sum(phase.num_wavefronts for phase in self.phases)

    @property
    def num_ways(self) -> float:
        """Conflict degree of the worst phase."""
        return max((phase.num_ways for phase in self.phases), default=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Wavefronts of an access at all of its positions in the tile, summed."""

    num_instructions: int
    num_wavefronts: int
    num_ideal_wavefronts: int
    num_tiles_with_conflicts: int

    @property
    def is_free(self) -> bool:
        """Whether no position has a bank conflict."""
        return self.num_wavefronts == self.num_ideal_wavefronts


def ideal_wavefronts(
    op: str, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Minimum wavefronts of an access over all layouts of its data, int64[...]. Arguments: see ``access.wavefronts``.

    The minimum is distinct bytes / 128, and at least one for each group of lanes that the hardware does not merge. Lanes of
    an atomic that access the same word are served one by one in any layout. For a loop, each word has a separate bank; in
    rare cases another layout takes one wavefront less.

    >>> lanes = np.arange(32)
    >>> [int(ideal_wavefronts("ld_shared_b32", 4 * stride * lanes)) for stride in (0, 1, 32)], int(
    ...     ideal_wavefronts("ld_shared_b128", 16 * lanes))
    ([1, 1, 1], 4)
    """
    groups, rule = lane_groups(op, addresses, active, is_free=True), smem_op(op)
    addresses = np.asarray(addresses, dtype=np.int64)
    if rule.is_loop:
        return np.minimum(
            wavefronts(op, _separated(rule, addresses, groups >= 0), groups >= 0), wavefronts(op, addresses, groups >= 0)
        )
    total = np.zeros(groups.shape[:-1], dtype=np.int64)
    for group in range(int(groups.max(initial=-1)) + 1):
        wanted = np.sort(np.where(groups == group, addresses, -1), axis=-1)
        is_first = wanted >= 0
        is_first[..., 1:] &= wanted[..., 1:] != wanted[..., :-1]
        needed = -(-is_first.sum(axis=-1) * rule.access_bytes // WAVEFRONT_BYTES)
        if not rule.is_broadcasting:
            same = (wanted[..., :, None] == wanted[..., None, :]) & (wanted >= 0)[..., None]
            needed = np.maximum(needed, same.sum(axis=-1).max(axis=-1))
        total += rule.num_passes * needed
    return total


def _separated(rule: SmemOp, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Addresses with the same equalities, and distinct words in distinct banks of each phase; int64[..., 32].

    If there are enough banks, words of different phases have distinct banks, too.
    """
    placed = np.zeros(addresses.shape, dtype=np.int64)
    num_banks = WAVEFRONT_BYTES // rule.access_bytes
    for warp in np.ndindex(addresses.shape[:-1]):
        unit_of: dict[int, int] = {}
        for phase in range(rule.num_phases):
            lanes = [lane for lane in range(phase * rule.lanes_per_phase, (phase + 1) * rule.lanes_per_phase)
                     if active[(*warp, lane)]]  # fmt: skip
            wanted = dict.fromkeys(int(addresses[(*warp, lane)]) for lane in lanes)
            here = {unit_of[word] % num_banks for word in wanted if word in unit_of}
            ever = {unit % num_banks for unit in unit_of.values()} - here
            untouched = set(range(num_banks)) - here - ever
            free = iter((*sorted(untouched), *sorted(ever)))
            for word in wanted:
                if word not in unit_of:
                    unit_of[word] = len(unit_of) * num_banks + next(free)
            for lane in lanes:
                placed[(*warp, lane)] = rule.access_bytes * unit_of[int(addresses[(*warp, lane)])]
    return placed


def copied_wavefronts(access: TileAccess) -> tuple[int, ...] | None:
    """Wavefronts of each cp.async of an access with conflicts where it reads, too; None without ``sources``.

    Raises:
        LayoutError: a source is misaligned or negative.
    """
    sources = access.source_addresses()
    if sources is None:
        return None
    addresses, active = access.addresses()
    return tuple(int(each) for each in wavefronts(access.op, addresses, active, sources))


def analyze(access: TileAccess) -> list[Instruction]:
    """Analyze each instruction of an access: phases, collisions, and the order in which lanes are served.

    >>> from gpusim.layout import Layout
    >>> from gpusim.workload.dtypes import BF16
    >>> from gpusim.workload.smem.tile_access import smem_tile
    >>> access = TileAccess(op="ldmatrix_x4", tile=smem_tile(Layout((64, 64), (64, 1)), BF16))
    >>> found = analyze(access)[0]
    >>> found.num_wavefronts, found.num_ideal_wavefronts, found.num_ways
    (32, 4, 8.0)
    """
    places, active = access.lane_places()
    addresses, _ = access.addresses()
    of_warp = None if access.rule.is_collective else active
    groups, ideal = lane_groups(access.op, addresses, of_warp), ideal_wavefronts(access.op, addresses, of_warp)
    served = data_wavefronts(access.op, addresses, of_warp)
    found = []
    for i in range(len(addresses)):
        turns = np.zeros((WARP_SIZE, NUM_BANKS), dtype=np.int64)
        phases = [
            _phase(access.rule, addresses[i], np.flatnonzero(groups[i] == group), turns)
            for group in range(int(groups[i].max()) + 1)
            if np.any(groups[i] == group)
        ]
        found.append(Instruction(
            places=tuple((int(p[0]), int(p[1])) if on else None for p, on in zip(places[i], active[i], strict=True)),
            addresses=tuple(int(a) if on else None for a, on in zip(addresses[i], active[i], strict=True)),
            phases=tuple(phases), num_ideal_wavefronts=int(ideal[i]), num_data_wavefronts=int(served[i]), turns=turns,
        ))
    return found


def _phase(rule: SmemOp, addresses: NDArray[np.int64], lanes: NDArray[np.intp], turns: NDArray[np.int64]) -> Phase:
    """One phase of lanes. Fills in their ``turns``."""
    if rule.is_loop:
        return _loop(rule, addresses, lanes, turns)
    queues: list[dict[Any, int]] = [{} for _ in range(NUM_BANKS)]  # per bank: words as served, first lanes
    for lane in map(int, lanes):
        first = int(addresses[lane]) // BANK_BYTES
        for word in range(first, first + max(1, rule.access_bytes // BANK_BYTES)):
            queue = queues[word % NUM_BANKS]
            asker: Any = word if rule.is_broadcasting else (word, lane)
            queue.setdefault(asker, lane)
            turns[lane, word % NUM_BANKS] = 1 + list(queue).index(asker)
    longest, ideal = max(len(queue) for queue in queues), _ideal_of_group(rule, addresses[lanes])
    return Phase(
        lanes=tuple(map(int, lanes)), num_wavefronts=rule.num_passes * longest, num_ideal_wavefronts=ideal,
        num_turns=longest, num_ideal_turns=ideal // rule.num_passes, collisions=tuple(_collisions(queues)),
    )


def _loop(rule: SmemOp, addresses: NDArray[np.int64], lanes: NDArray[np.intp], turns: NDArray[np.int64]) -> Phase:
    """A loop over all lanes as one phase. Turns are its rounds; lanes on one bank collide."""
    active = np.isin(np.arange(WARP_SIZE), lanes)
    rounds = loop_rounds(rule.name, addresses, active)
    separated = _separated(rule, addresses, active)
    queues: list[dict[Any, int]] = [{} for _ in range(NUM_BANKS)]
    for lane in sorted(map(int, lanes), key=lambda lane: (rounds[lane], lane)):
        first = int(addresses[lane]) // BANK_BYTES
        for word in range(first, first + rule.access_bytes // BANK_BYTES):
            queues[word % NUM_BANKS][word, lane] = lane
            turns[lane, word % NUM_BANKS] = rounds[lane]
    turn, ideal_turn = int(rounds.max()), int(loop_rounds(rule.name, separated, active).max())
    return Phase(
        lanes=tuple(map(int, lanes)), num_wavefronts=int(wavefronts(rule.name, addresses, active)),
        num_ideal_wavefronts=int(ideal_wavefronts(rule.name, addresses, active)), num_turns=turn,
        num_ideal_turns=min(ideal_turn, turn), collisions=tuple(_collisions(queues)),
    )


def _ideal_of_group(rule: SmemOp, addresses: NDArray[np.int64]) -> int:
    distinct, counts = np.unique(addresses, return_counts=True)
    needed = -(-len(distinct) * rule.access_bytes // WAVEFRONT_BYTES)
    return rule.num_passes * max(needed, 1 if rule.is_broadcasting else int(counts.max()))


def _collisions(queues: Sequence[dict[Any, int]]) -> Iterator[Collision]:
    """Banks that serve more than one word. Adjacent banks with the same lanes form one collision."""
    start = 0
    while start < NUM_BANKS:
        lanes = tuple(queues[start].values())
        end = start + 1
        while end < NUM_BANKS and tuple(queues[end].values()) == lanes:
            end += 1
        if len(lanes) > 1:
            columns = [[asker[0] if isinstance(asker, tuple) else asker for asker in queue] for queue in queues[start:end]]
            words = tuple(tuple(int(column[i]) for column in columns) for i in range(len(lanes)))
            yield Collision(first_bank=start, last_bank=end - 1, lanes=lanes, words=words)
        start = end


def census(access: TileAccess) -> Census:
    """Wavefronts of the access at all of its positions in the tile (``tile_origins``).

    >>> from gpusim.layout import Layout, Swizzle
    >>> from gpusim.workload.dtypes import BF16
    >>> from gpusim.workload.smem.tile_access import smem_tile
    >>> plain = Layout((64, 64), (64, 1))
    >>> [census(TileAccess(op="ldmatrix_x4", tile=smem_tile(plain, BF16, swizzle))).num_wavefronts
    ...  for swizzle in (None, Swizzle(2, 4, 3), Swizzle(3, 4, 3))]
    [512, 128, 64]
    """
    return census_at(access, access.tile_origins())


def census_at(access: TileAccess, shifts: NDArray[np.int64]) -> Census:
    """Wavefronts at positions given by their shifts, int64[num_tiles, 2], relative to the access's position."""
    addresses, active = all_addresses(access, shifts)
    rows, mask, which = distinct_rows(xor_first(addresses, active), active)
    of_warp = None if access.rule.is_collective else mask
    counted = wavefronts(access.op, rows, of_warp)[which].reshape(len(shifts), -1)
    ideal = ideal_wavefronts(access.op, rows, of_warp)[which].reshape(len(shifts), -1)
    bad = (counted > ideal).any(axis=-1)
    return Census(
        num_instructions=counted.size, num_wavefronts=int(counted.sum()), num_ideal_wavefronts=int(ideal.sum()),
        num_tiles_with_conflicts=int(bad.sum()),
    )


def all_addresses(access: TileAccess, shifts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Byte addresses, int64[num_tiles * num_instructions, 32], at these shifts, and the active lanes.

    Inactive lanes have address 0.
    """
    places, active = access.lane_places()
    where = np.where(active[..., None], places + shifts[:, None, None, :], 0)
    addresses = np.where(active, access.addresses_at(where), 0).reshape(-1, WARP_SIZE)
    return addresses, np.broadcast_to(active, (len(shifts), *active.shape)).reshape(-1, WARP_SIZE)


def xor_first(addresses: NDArray[np.int64], active: NDArray[np.bool_]) -> NDArray[np.int64]:
    """``addresses`` XOR the address of the first active lane, int64[n, 32].

    An XOR of all lanes with one aligned address permutes full banks and keeps equal words equal. It does not change the
    wavefronts, with any swizzle: swizzles are linear in XOR.
    """
    first = np.take_along_axis(addresses, active.argmax(axis=-1)[:, None], axis=-1)
    return np.where(active, addresses ^ first, 0)


def distinct_rows(
    rows: NDArray[np.int64], active: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.intp]]:
    """Distinct rows of int64[n, 32], their active lanes, and for each row the index of its equal."""
    found, which = np.unique(np.where(active, rows, -1), axis=0, return_inverse=True)
    return np.maximum(found, 0), found >= 0, which.reshape(-1)
