"""How many wavefronts does one access of one warp to shared memory take? Addresses and masks, drawn by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LOADS = tuple(f"ld_shared_b{bits}" for bits in (8, 16, 32, 64, 128))
STORES = tuple(f"st_shared_b{bits}" for bits in (8, 16, 32, 64, 128))
MATRICES = tuple(
    f"{kind}_x{count}{trans}" for kind in ("ldmatrix", "stmatrix") for count in (1, 2, 4) for trans in ("", "_trans")
)
CP_ASYNC = tuple(f"cp_async_b{bits}" for bits in (32, 64, 128))
ATOMICS = tuple(
    f"{kind}_shared_{what}_b{bits}"
    for kind in ("atom", "red")
    for what in ("add", "min", "max", "and", "or", "xor", "exch", "cas")
    for bits in (32, 64)
    if not (kind == "red" and what in ("exch", "cas"))
)
OPS = (*LOADS, *STORES, *MATRICES, *CP_ASYNC, *ATOMICS)
GROUPS = {"plain": (*LOADS, *STORES, *MATRICES, *CP_ASYNC), "atomic": ATOMICS}
WIDE = ("ld_shared_b64", "ld_shared_b128")

SMEM_BYTES = 32768
LANES = np.arange(32)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One access: addresses int32[32] in bytes from the buffer's start, active bool[32]."""

    op: str
    family: str
    addresses: NDArray[np.int32]
    active: NDArray[np.bool_]


def access_bytes(op: str) -> int:
    """Bytes a lane moves; for matrices, of a row."""
    return 16 if "matrix" in op else int(op.rsplit("_b", 1)[1]) // 8


def patterns(op: str, *, count: int, seed: int) -> list[Pattern]:
    """``count`` patterns of ``op``: random, strided, swizzled, broadcast, paired, phases alike, partly inactive."""
    rng = np.random.default_rng([seed, OPS.index(op)])
    families = (_random, _window, _strided, _swizzled, _broadcast, _paired, _phases, _few_banks)
    made = []
    for idx in range(count):
        family = families[idx % len(families)]
        addresses = family(rng, access_bytes(op))
        active = np.ones(32, dtype=bool)
        if "matrix" not in op and rng.random() < 0.4:
            active = _mask(rng)
        made.append(Pattern(op, family.__name__.lstrip("_"), addresses.astype(np.int32), active))
    return made


def all_patterns(group: str, *, seed: int, count: int = 60, wide_count: int = 400) -> Iterator[Pattern]:
    """Patterns of all ops of a group, ``wide_count`` of each load whose phases can merge."""
    for op in GROUPS[group]:
        yield from patterns(op, count=wide_count if op in WIDE else count, seed=seed)


def _mask(rng: np.random.Generator) -> NDArray[np.bool_]:
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


def _random(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    return rng.integers(0, SMEM_BYTES // size, 32) * size


def _window(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    span = int(rng.choice([64, 128, 256, 512, 1024]))
    return rng.integers(0, max(1, span // size), 32) * size + int(rng.integers(0, 8)) * 128


def _strided(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    stride = int(rng.integers(0, 41))
    return LANES * stride * size % SMEM_BYTES


def _swizzled(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    row_bytes = int(rng.choice([32, 64, 128, 256]))
    offset = LANES * row_bytes + int(rng.integers(0, max(1, row_bytes // size))) * size
    bits = int(rng.integers(0, 4))
    base, shift = int(rng.integers(3, 5)), int(rng.integers(3, 5))
    swizzled = offset ^ (((offset >> (base + shift)) & ((1 << bits) - 1)) << base)
    return swizzled // size * size % SMEM_BYTES


def _broadcast(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    group = int(rng.choice([2, 4, 8, 16, 32]))
    which = LANES // group if rng.random() < 0.5 else LANES % group
    return (rng.integers(0, 2048 // size, 32) * size)[which]


def _paired(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    distance = int(rng.choice([1, 2, 4, 8, 16]))
    addresses = rng.integers(0, 2048 // size, 32) * size
    paired = addresses[LANES & ~distance]
    if rng.random() < 0.4:  # most pairs only
        lane = int(rng.integers(32))
        paired[lane] = int(rng.integers(0, 2048 // size)) * size
    return paired


def _phases(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Phases (of 8 or 16 lanes) that touch the same words, in the same or another order, or only some of them."""
    length = int(rng.choice([4, 8, 16]))
    words = rng.integers(0, 1024 // size, length) * size
    if rng.random() < 0.5:
        words = np.arange(length) * size
    parts = []
    for _ in range(32 // length):
        kind = rng.integers(3)
        part = words.copy()
        if kind == 1:
            part = rng.permutation(part)
        elif kind == 2:
            part = part + 128 * length * int(rng.integers(1, 4))
        parts.append(part)
    return np.concatenate(parts) % SMEM_BYTES


def _few_banks(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    num_banks = int(rng.choice([1, 2, 4, 8]))
    slots = rng.integers(0, max(1, num_banks * 4 // size) if num_banks * 4 >= size else 1, 32) * size
    return rng.integers(0, 16, 32) * 128 + slots + int(rng.integers(0, 4)) * 16 // size * size
