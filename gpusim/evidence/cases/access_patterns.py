"""Random shared-memory accesses of one warp: addresses of 32 lanes, and the mask of active lanes.

In: a generator, bytes per lane. Out: byte addresses int64[32], masks bool[32]. Microbenchmarks of single accesses draw from
this module, each family by its name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SMEM_BYTES = 32768
"""Upper end of the addresses; families that exceed it are wrapped around."""

LANES = np.arange(32)

Draw = Callable[[np.random.Generator, int], NDArray[np.int64]]
"""Function from (generator, bytes per lane) to addresses, multiples of those bytes."""


def mask_text(active: NDArray[np.bool_]) -> str:
    """Mask as eight hexadecimal digits, lane 0 the lowest bit.

    >>> mask_text(LANES < 4)
    '0000000f'
    """
    return f"{int(np.packbits(active, bitorder='little').view('<u4')[0]):08x}"


def mask_of(text: str) -> NDArray[np.bool_]:
    """Mask from the text of :func:`mask_text`.

    >>> int(mask_of("0000000f").sum())
    4
    """
    words = np.array([int(text, 16)], dtype="<u4").view(np.uint8)
    return np.unpackbits(words, bitorder="little").astype(bool)


def lane_values() -> NDArray[np.uint8]:
    """uint8[32, 16]: bytes that each lane stores, the kernels' ``value_of``, words that differ between lanes."""
    words = (np.arange(128, dtype=np.uint64) * 0x85EBCA6B + 0xC2B2AE35).astype("<u4")
    return words.reshape(32, 4).view(np.uint8)


def mask(rng: np.random.Generator) -> NDArray[np.bool_]:
    """bool[32]: random lanes, the first few, every n-th, or blocks of them are active."""
    kind = rng.integers(4)
    if kind == 0:
        active = rng.random(32) < rng.choice([0.1, 0.3, 0.5, 0.8])
    elif kind == 1:
        active = rng.integers(1, 33) > LANES
    elif kind == 2:
        active = LANES % int(rng.choice([2, 4, 8])) == 0
    else:
        active = (LANES // int(rng.choice([4, 8, 16]))) % 2 == int(rng.integers(2))
    if not active.any():
        active[int(rng.integers(32))] = True
    return np.asarray(active)


def random(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Random addresses."""
    return rng.integers(0, SMEM_BYTES // size, 32) * size


def window(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Random addresses within 64 to 1024 bytes."""
    span = int(rng.choice([64, 128, 256, 512, 1024]))
    return rng.integers(0, max(1, span // size), 32) * size + int(rng.integers(0, 8)) * 128


def strided(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Addresses with a stride of 0 to 40 elements."""
    return LANES * int(rng.integers(0, 41)) * size


def swizzled(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Column of a tile with rows of 32 to 256 bytes and a random swizzle."""
    row_bytes = int(rng.choice([32, 64, 128, 256]))
    offset = LANES * row_bytes + int(rng.integers(0, max(1, row_bytes // size))) * size
    bits = int(rng.integers(0, 4))
    base, shift = int(rng.integers(3, 5)), int(rng.integers(3, 5))
    places = offset ^ (((offset >> (base + shift)) & ((1 << bits) - 1)) << base)
    return np.asarray(places // size * size, dtype=np.int64)


def broadcast(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Addresses that 2 to 32 lanes share, neighbours or every n-th."""
    group = int(rng.choice([2, 4, 8, 16, 32]))
    which = LANES // group if rng.random() < 0.5 else LANES % group
    return (rng.integers(0, 2048 // size, 32) * size)[which]


def paired(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Addresses shared by pairs of lanes at a distance; sometimes by all pairs but one."""
    distance = int(rng.choice([1, 2, 4, 8, 16]))
    addresses = rng.integers(0, 2048 // size, 32) * size
    alike: NDArray[np.int64] = addresses[LANES & ~distance]
    if rng.random() < 0.4:
        alike[int(rng.integers(32))] = int(rng.integers(0, 2048 // size)) * size
    return alike


def phases(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Groups of 4, 8 or 16 lanes that touch the same words in the same or another order, or rows further on."""
    length = int(rng.choice([4, 8, 16]))
    words = rng.integers(0, 1024 // size, length) * size
    if rng.random() < 0.5:
        words = np.arange(length) * size
    return np.concatenate([_turned(rng, words, int(rng.integers(3))) for _ in range(32 // length)])


def _turned(rng: np.random.Generator, words: NDArray[np.int64], kind: int) -> NDArray[np.int64]:
    if kind == 1:
        return rng.permutation(words)
    return words + 128 * len(words) * int(rng.integers(1, 4)) if kind == 2 else words


def partly_alike(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Phases in pairs: equal, disjoint in their banks, or with a few collisions, so that some may merge and some not."""
    length = 128 // size
    parts: list[NDArray[np.int64]] = []
    while len(parts) * length < 32:
        first = rng.integers(0, 512 // size, length) * size
        kind = int(rng.integers(4))
        if kind == 0:
            second = first[rng.permutation(length)]
        elif kind == 1:  # lower half of the banks, then upper half
            first, second = first // 128 * 128 + first % 64, first // 128 * 128 + first % 64 + 64
        elif kind == 2:  # some words shared
            second = np.where(rng.random(length) < 0.5, first, rng.integers(0, 512 // size, length) * size)
        else:
            second = first + 128 * int(rng.integers(1, 8))
        parts += [first, second]
    return np.concatenate(parts)[:32]


def few_banks(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Up to 16 rows, few of their banks."""
    width = max(size, 4 * int(rng.choice([1, 2, 4, 8])))
    slots = rng.integers(0, width // size, 32) * size
    return rng.integers(0, 16, 32) * 128 + slots + int(rng.integers(0, 4)) * 16 // size * size


def same_words(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """2, 4, 8, 16 or 32 lanes per word, words in different banks; lanes in order or shuffled."""
    lanes_per_word = int(rng.choice([2, 4, 8, 16, 32]))
    words = rng.permutation(128 // size)[: max(1, 32 // lanes_per_word)] + int(rng.integers(0, 8)) * (128 // size)
    addresses = np.resize(np.repeat(words, lanes_per_word), 32) * size
    return rng.permutation(addresses) if rng.random() < 0.5 else addresses


def same_bank(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """1, 2, 4 or 8 banks, with a different word for every lane."""
    num_banks = int(rng.choice([1, 2, 4, 8]))
    rows = rng.permutation(SMEM_BYTES // 128)[:32]
    return rows * 128 + (LANES % num_banks) * max(size, 4)


def mixed(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """A few words in a few banks with random lanes: lanes share words and banks."""
    rows, banks = int(rng.choice([2, 3, 4, 8])), int(rng.choice([1, 2, 4, 8]))
    return rng.integers(0, rows, 32) * 128 + rng.integers(0, banks, 32) * size


def two_of_them(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Two, or a few, lanes on one word; all others in different banks."""
    addresses = LANES * max(size, 4)
    sharers = rng.permutation(32)[: int(rng.choice([2, 2, 3, 5]))]
    addresses[sharers] = addresses[sharers[0]]
    return addresses + int(rng.integers(0, 8)) * 256


def half(rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Addresses int64[16] and a mask of 16 lanes that load 16 bytes: few vectors, usually in different banks.

    Lanes are assigned at random, in pairs at a distance, in pairs but for one lane, or quad by quad in pairs of either kind.
    """
    lanes = np.arange(16)
    num_vectors = int(rng.choice([2, 3, 4, 5, 6, 8]))
    vectors = rng.permutation(8)[:num_vectors] + 8 * rng.integers(0, 16, num_vectors)
    if rng.random() < 0.15:
        vectors[0] = vectors[-1] + 8 * int(rng.integers(1, 4))  # these two conflict
    which = rng.integers(0, num_vectors, 16)
    kind = int(rng.integers(5))
    if kind in (1, 2):
        which = which[lanes & ~int(rng.choice([1, 2, 4, 8]))]
        if kind == 2:
            which[int(rng.integers(16))] = int(rng.integers(num_vectors))
    elif kind == 3:
        distance = np.repeat(rng.choice([1, 2], 4), 4)
        which = which[lanes & ~distance]
    elif kind == 4:
        which = np.resize(rng.permutation(num_vectors), 16)
    active = np.ones(16, dtype=bool)
    if rng.random() < 0.5:
        active = rng.random(16) < rng.choice([0.2, 0.4, 0.6, 0.9])
        active[int(rng.integers(16))] = True
    return vectors[which] * 16, active


def asleep(rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Addresses int64[32] and a mask of 16-byte loads without conflicts in a half; active lower lanes are paired.

    Pairs are inactive, or single lanes. Partners of single inactive lanes load the vector of lane 31, or another one. Lane
    31 is mostly active.
    """
    lanes = np.arange(16)
    lower, upper = rng.permutation(8), rng.permutation(8) + 8 * rng.integers(0, 16, 8)
    distance, kind = int(rng.choice([1, 2])), int(rng.integers(4))
    which = lower[rng.integers(0, 6, 16)][lanes & ~distance]
    active = np.ones(32, dtype=bool)
    partner = int(rng.integers(16))
    if kind < 2:  # inactive pairs, at their own distance or at the other
        other = distance if kind == 0 else 3 - distance
        for lane in rng.choice(16, int(rng.choice([1, 2, 4])), replace=False):
            active[[lane, lane ^ other]] = False
    else:
        active[partner] = False
    above = upper[rng.integers(0, 6, 16)]
    if rng.random() < 0.4:
        above = above[lanes & ~int(rng.choice([1, 2]))]
    if kind == 3:
        above[15] = which[partner ^ distance]
        above[:15][above[:15] % 8 == above[15] % 8] = above[15]  # so that the upper half has no conflict
    addresses = np.concatenate([which, above]) * 16
    active[16:] = rng.random(16) < float(rng.choice([0.3, 0.7, 1.0]))
    active[31] = rng.random() < 0.85
    return addresses, active
