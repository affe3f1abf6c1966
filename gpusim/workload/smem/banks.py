"""Bank conflicts of a warp's access to a tile in shared memory: who collides with whom.

In: a warp's access to a tile (``tile_access``). Out: wavefronts phase by phase, and who is served when. What would mend it
is found by ``bank_mends``.

Models: what ``access`` models, for one instruction at a time.
Ignores: what ``access`` ignores.
Source: the rules are those of ``access``.
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
    """Banks of a phase that several lanes want different words of (or, for atomics, the same word one by one)."""

    first_bank: int
    last_bank: int
    lanes: tuple[int, ...]
    """One lane for each word, in the order in which they are served; broadcasts count once."""
    words: tuple[tuple[int, ...], ...]
    """For each of these lanes, its words in those banks: byte address over 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Lanes that the hardware serves together."""

    lanes: tuple[int, ...]
    num_wavefronts: int
    num_ideal_wavefronts: int
    num_turns: int
    """What the busiest bank serves one after the other; of a loop, rounds."""
    num_ideal_turns: int
    collisions: tuple[Collision, ...]

    @property
    def num_ways(self) -> float:
        """Turns over the fewest that its data could take."""
        return self.num_turns / self.num_ideal_turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One warp instruction: where its lanes point and in which order their words are served."""

    places: tuple[Place | None, ...]
    """First element of each lane; None for lanes that take no part."""
    addresses: tuple[int | None, ...]
    """The same in bytes."""
    phases: tuple[Phase, ...]
    num_ideal_wavefronts: int
    """The fewest that any placement of the same data could take; less than the phases' own if some of them would merge."""
    num_data_wavefronts: int
    """As the data stage counts them: what the access costs, where that is another number."""
    turns: NDArray[np.int64]
    """int64[32 lanes, 32 banks]: in which wavefront of its phase the bank serves the lane, from 1; 0 if it does not."""

    @property
    def num_wavefronts(self) -> int:
        """Of all phases."""
        return sum(phase.num_wavefronts for phase in self.phases)

    @property
    def num_ways(self) -> float:
        """Of the worst phase."""
        return max((phase.num_ways for phase in self.phases), default=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Wavefronts of an access at the places of the tile side by side, added up."""

    num_instructions: int
    num_wavefronts: int
    num_ideal_wavefronts: int
    num_tiles_with_conflicts: int

    @property
    def is_free(self) -> bool:
        """No conflict at any of these places."""
        return self.num_wavefronts == self.num_ideal_wavefronts


def ideal_wavefronts(
    op: str, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """The fewest wavefronts of an access whose data lay anywhere, int64[...]; arguments as ``access.wavefronts`` has them.

    Distinct bytes over 128, and one for each group of lanes that the hardware does not merge; lanes of an atomic that
    want the same word come one by one wherever it lies. Of a loop, what words in banks of their own take: rarely, another
    placement takes a wavefront less.

    >>> lanes = np.arange(32)
    >>> [int(ideal_wavefronts("ld_shared_b32", 4 * stride * lanes)) for stride in (0, 1, 32)], int(
    ...     ideal_wavefronts("ld_shared_b128", 16 * lanes))
    ([1, 1, 1], 4)
    """
    groups, rule = lane_groups(op, addresses, active, is_free=True), smem_op(op)
    addresses = np.asarray(addresses, dtype=np.int64)
    if rule.is_loop:
        return np.minimum(
            wavefronts(op, _apart(rule, addresses, groups >= 0), groups >= 0), wavefronts(op, addresses, groups >= 0)
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


def _apart(rule: SmemOp, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Addresses that are equal where these are, and else in banks of their own: in each phase, and in all if they suffice.

    int64[..., 32].
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


def analyze(access: TileAccess) -> list[Instruction]:
    """Each instruction of an access: phases, collisions, and who is served when.

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
            phases=tuple(phases), num_ideal_wavefronts=int(ideal[i]), num_data_wavefronts=int(served[i]),
            turns=turns,
        ))
    return found


def _phase(rule: SmemOp, addresses: NDArray[np.int64], lanes: NDArray[np.intp], turns: NDArray[np.int64]) -> Phase:
    """One group of lanes; fills in their ``turns``."""
    if rule.is_loop:
        return _loop(rule, addresses, lanes, turns)
    queues: list[dict[Any, int]] = [{} for _ in range(NUM_BANKS)]  # of each bank: who is served, and its first lane
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
    """A loop over all lanes: their turns are its rounds, and those of one bank collide."""
    active = np.isin(np.arange(WARP_SIZE), lanes)
    rounds = loop_rounds(rule.name, addresses, active)
    apart = _apart(rule, addresses, active)
    queues: list[dict[Any, int]] = [{} for _ in range(NUM_BANKS)]
    for lane in sorted(map(int, lanes), key=lambda lane: (rounds[lane], lane)):
        first = int(addresses[lane]) // BANK_BYTES
        for word in range(first, first + rule.access_bytes // BANK_BYTES):
            queues[word % NUM_BANKS][word, lane] = lane
            turns[lane, word % NUM_BANKS] = rounds[lane]
    turn, ideal_turn = int(rounds.max()), int(loop_rounds(rule.name, apart, active).max())
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
    """Banks in which more than one is served, neighbours with the same lanes together."""
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
    """Wavefronts of the access at its own and the other places of the tile side by side (``tile_origins``).

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
    """As ``census``, at places given by their shifts int64[num_tiles, 2] from the access's own."""
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
    """Byte addresses int64[num_tiles * num_instructions, 32] at these shifts, and which lanes take part (others have 0)."""
    places, active = access.lane_places()
    where = np.where(active[..., None], places + shifts[:, None, None, :], 0)
    addresses = np.where(active, access.addresses_at(where), 0).reshape(-1, WARP_SIZE)
    return addresses, np.broadcast_to(active, (len(shifts), *active.shape)).reshape(-1, WARP_SIZE)


def xor_first(addresses: NDArray[np.int64], active: NDArray[np.bool_]) -> NDArray[np.int64]:
    """int64[n, 32]: ``addresses`` XOR that of the first lane that takes part.

    An XOR of all lanes with one aligned address moves whole banks and keeps equal words equal: wavefronts stay, under any
    swizzle, too, as that is linear.
    """
    first = np.take_along_axis(addresses, active.argmax(axis=-1)[:, None], axis=-1)
    return np.where(active, addresses ^ first, 0)


def distinct_rows(
    rows: NDArray[np.int64], active: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.intp]]:
    """The different ones of int64[n, 32], which of their lanes take part, and for each row the one that it equals."""
    found, which = np.unique(np.where(active, rows, -1), axis=0, return_inverse=True)
    return np.maximum(found, 0), found >= 0, which.reshape(-1)
