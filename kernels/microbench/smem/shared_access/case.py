"""How many wavefronts does one access of one warp to shared memory take? Addresses and masks, drawn by a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases import access_patterns as draws
from gpusim.evidence.cases.access_patterns import LANES, SMEM_BYTES
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.machine.config import GpuSpec
from gpusim.workload.smem.access import data_wavefronts, wavefronts

WIDE = ("ld_shared_b128", "ld_shared_b64")
NARROW = tuple(f"ld_shared_b{bits}" for bits in (8, 16, 32))
STORES = tuple(f"st_shared_b{bits}" for bits in (8, 16, 32, 64, 128))
LDMATRIX = tuple(f"ldmatrix_x{count}{trans}" for count in (1, 2, 4) for trans in ("", "_trans"))
STMATRIX = tuple(name.replace("ld", "st", 1) for name in LDMATRIX)
CP_ASYNC = tuple(f"cp_async_b{bits}" for bits in (32, 64, 128))
VERBS = ("add", "min", "max", "and", "or", "xor", "exch", "cas")
LOOPED_VERBS = VERBS[:6]
"""At 64 bits these are a loop of a load and a compare-and-swap in SASS."""
SINGLE_ATOMICS = (
    *(f"{kind}_shared_{verb}_b32" for kind in ("atom", "red") for verb in VERBS if kind == "atom" or verb in LOOPED_VERBS),
    "atom_shared_exch_b64", "atom_shared_cas_b64",
)  # fmt: skip
LOOPED_ATOMICS = tuple(f"{kind}_shared_{verb}_b64" for kind in ("atom", "red") for verb in LOOPED_VERBS)
VALUED_ATOMICS = tuple(op for op in LOOPED_ATOMICS if op.split("_")[2] in ("min", "max", "and", "or"))
"""Their loops end early where values say so, which the simulator is not told."""
ATOMICS = (*SINGLE_ATOMICS, *LOOPED_ATOMICS)
OPS = (*WIDE, *NARROW, *STORES, *LDMATRIX, *STMATRIX, *CP_ASYNC, *ATOMICS)

SOURCE_PITCH_BYTES = 16
"""From lane to lane of what cp.async reads."""
FILL, DUMP = 1, 2
"""Modes of a launch: what kernel.cu does before and after the access."""

COUNTED = "sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum"
DATA_LOADS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
METRICS = (
    COUNTED,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    DATA_LOADS,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
)
ATOMIC_METRICS = (
    COUNTED,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    DATA_LOADS,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__inst_executed_op_shared_atom.sum",
    "smsp__inst_executed_op_shared_ld.sum",
)

@dataclass(frozen=True, slots=True)
class Pattern:
    """One access: addresses int64[32] in bytes from the buffer's start, active bool[32]."""

    op: str
    family: str
    addresses: NDArray[np.int64]
    active: NDArray[np.bool_]


def access_bytes(op: str) -> int:
    """Bytes a lane moves; for matrices, of a row."""
    return 16 if "matrix" in op else int(op.rsplit("_b", 1)[1]) // 8


@cache
def patterns(op: str, *, count: int, seed: int) -> tuple[Pattern, ...]:
    """``count`` patterns of ``op``, families in turn; every second one of a wide load is *between* (see there).

    Atomics begin with the mixtures that read easily, the same for every seed.
    """
    rng = np.random.default_rng([seed, sorted(OPS).index(op)])
    families = FAMILIES["atomic" if op in ATOMICS else "wide" if op in WIDE else "plain"]
    fixed = _fixed(op)[:count] if op in ATOMICS else []
    drawn = [
        _draw(rng, op, families[idx % len(families)], wants_between=op in WIDE and idx % 2 == 1)
        for idx in range(count - len(fixed))
    ]
    return (*fixed, *drawn)


def _fixed(op: str) -> list[Pattern]:
    """Mixtures of same words and same banks that read easily: so many lanes a word, words side by side or in one bank."""
    size = max(4, access_bytes(op))
    made = [LANES * size, np.where(LANES == 1, 0, LANES) * size]  # none shares; two lanes do
    for lanes_per_word in (2, 4, 8, 16, 32):
        made += [LANES // lanes_per_word * size, LANES // lanes_per_word * 128]
    made += [LANES * 128, LANES % 4 * 128, np.where(LANES < 8, 0, LANES) * 128, LANES % 2 * size + LANES // 2 * 128]
    return [Pattern(op, "fixed", addresses.astype(np.int64), np.ones(32, dtype=bool)) for addresses in made]


def _draw(rng: np.random.Generator, op: str, family: draws.Draw, *, wants_between: bool) -> Pattern:
    for _ in range(200):
        addresses = np.asarray(family(rng, access_bytes(op)) % SMEM_BYTES, dtype=np.int64)
        active = np.ones(32, dtype=bool)
        if "matrix" not in op and rng.random() < 0.4:
            active = draws.mask(rng)
        pattern = Pattern(op, family.__name__, addresses, active)
        if not wants_between or is_between(pattern):
            return pattern
    return _draw(rng, op, draws.window, wants_between=wants_between)  # a family that has none


def is_between(pattern: Pattern) -> bool:
    """Whether merging could be partial: fewer wavefronts than the plain rule's by two or more, and still more than one.

    The plain rule (the stores') counts phase by phase; the least is what the warp needs if all of its lanes were served
    together: the words of its busiest bank.
    """
    words = access_bytes(pattern.op) // 4
    distinct = np.unique(pattern.addresses[pattern.active])
    touched = np.concatenate([distinct // 4 + word for word in range(words)])
    least = int(np.bincount(touched % 32).max())
    plain = int(wavefronts(pattern.op.replace("ld_", "st_"), pattern.addresses, pattern.active))
    return 1 < least <= plain - 2 and plain < int(pattern.active.sum())


FAMILIES: dict[str, tuple[draws.Draw, ...]] = {
    "plain": (draws.random, draws.window, draws.strided, draws.swizzled, draws.broadcast, draws.paired, draws.phases,
              draws.few_banks),
    "wide": (draws.partly_alike, draws.random, draws.phases, draws.window, draws.partly_alike, draws.strided, draws.paired,
             draws.swizzled, draws.partly_alike, draws.broadcast, draws.phases, draws.few_banks, draws.paired),
    "atomic": (draws.same_words, draws.same_bank, draws.mixed, draws.two_of_them, draws.mixed, draws.window, draws.strided,
               draws.random),
}  # fmt: skip


def halves(num_halves: int, *, count: int, seed: int) -> list[Pattern]:
    """16-byte loads of one half-warp, or of two: drawn apart, or the second as the first in other rows."""
    rng = np.random.default_rng([seed, 100 + num_halves])
    made = []
    for idx in range(count):
        addresses, active = np.zeros(32, dtype=np.int64), np.zeros(32, dtype=bool)
        first = (idx % 2 if num_halves == 1 else 0) * 16
        addresses[first : first + 16], active[first : first + 16] = draws.half(rng)
        if num_halves == 2:
            if rng.random() < 0.5:
                addresses[16:], active[16:] = draws.half(rng)
            else:
                shift = int(rng.integers(0, 8)) * 16
                addresses[16:], active[16:] = (addresses[:16] ^ shift) + 2048, active[:16]
        made.append(Pattern("ld_shared_b128", "half" if num_halves == 1 else "halves", addresses, active))
    return made


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """A pattern as one config; every second compare-and-swap finds what it compares with."""

    kernel: str
    pattern: int
    family: str
    is_filled: int
    active: str
    addresses: str


def configs(ops: Sequence[str], count: int) -> Callable[[int], list[Row]]:
    """``count`` configs of each of ``ops``, op after op."""
    return lambda seed: [
        config_of(pattern, idx) for op in ops for idx, pattern in enumerate(patterns(op, count=count, seed=seed))
    ]


def half_configs(num_halves: int, count: int) -> Callable[[int], list[Row]]:
    """``count`` configs of ``halves``."""
    return lambda seed: [config_of(pattern, idx) for idx, pattern in enumerate(halves(num_halves, count=count, seed=seed))]


def asleep_configs(seed: int) -> list[Row]:
    """16-byte loads whose lower half is paired, with lanes of it asleep."""
    rng = np.random.default_rng([seed, 200])
    return [config_of(Pattern("ld_shared_b128", "asleep", *draws.asleep(rng)), idx) for idx in range(120)]


def config_of(pattern: Pattern, idx: int) -> Row:
    """A pattern as a config."""
    is_filled = int("cas_" in pattern.op and idx % 2 == 0)
    addresses = " ".join(map(str, pattern.addresses))
    return Row(pattern.op, idx, pattern.family, is_filled, draws.mask_text(pattern.active), addresses)


def pattern_of(config: Row) -> Pattern:
    """The pattern of a config."""
    addresses = np.array(config.addresses.split(), dtype=np.int64)
    return Pattern(config.kernel, config.family, addresses, draws.mask_of(config.active))


# ---------------------------------------------------------------------------------------------- launch and check
def words_at(addresses: NDArray[np.int64]) -> NDArray[np.uint32]:
    """What the fill writes at byte addresses, multiples of 4."""
    return ((addresses.astype(np.uint64) >> 2) * 0x9E3779B1 + 0x7F4A7C15).astype(np.uint32)


def filled() -> NDArray[np.uint8]:
    """The buffer after the fill, byte by byte."""
    return words_at(np.arange(0, SMEM_BYTES, 4)).astype("<u4").view(np.uint8)


def launch(config: Row, is_counted: bool) -> KernelLaunch:
    """The access alone where it is counted; with a fill and a dump around it where it is checked."""
    pattern = pattern_of(config)
    reads = not pattern.op.startswith(("st", "cp"))
    writes = not pattern.op.startswith("ld")
    mode = FILL * reads + DUMP * writes
    if is_counted:
        mode = FILL * config.is_filled
    out = np.full((32, 16), 0xA5, dtype=np.uint8)
    if pattern.op in CP_ASYNC:
        out = draws.lane_values().copy()
    return KernelLaunch(
        kernel=pattern.op,
        arguments=(
            by_value(pattern.addresses.astype("<u4")), np.uint32(int(config.active, 16)), np.uint32(mode),
            Output("out", out), Output("dump", np.full(SMEM_BYTES, 0xA5, dtype=np.uint8)),
        ),
        block=(32, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Refuse wrong data; there are no values.

    Raises:
        WrongAnswer: says the first lane or byte that is wrong.
    """
    pattern = pattern_of(config)
    if pattern.op in ATOMICS:
        _check_atomic(pattern, outputs)
    elif pattern.op.startswith("ldmatrix"):
        _check_lanes(outputs["out"], _matrix_fragments(pattern))
    elif pattern.op.startswith("ld"):
        size = access_bytes(pattern.op)
        wanted = np.zeros((32, 16), dtype=np.uint8)
        lanes = np.flatnonzero(pattern.active)
        wanted[lanes, :size] = filled()[pattern.addresses[lanes, None] + np.arange(size)]
        _check_lanes(outputs["out"], wanted)
    elif pattern.op.startswith("stmatrix"):
        _check_written(pattern.addresses[: len(_stored_rows(pattern.op))], _stored_rows(pattern.op), outputs["dump"])
    else:
        values = draws.lane_values()[pattern.active, : access_bytes(pattern.op)]
        _check_written(pattern.addresses[pattern.active], values, outputs["dump"])
    return {}


def _check_lanes(found: NDArray[np.uint8], wanted: NDArray[np.uint8]) -> None:
    wrong = np.flatnonzero((found != wanted).any(axis=1))
    if len(wrong):
        lane = wrong[0]
        raise WrongAnswer(f"lane {lane} loaded {found[lane].tobytes().hex()}, not {wanted[lane].tobytes().hex()}")


def _check_written(addresses: NDArray[np.int64], values: NDArray[np.uint8], dump: NDArray[np.uint8]) -> None:
    """Every address holds what one of its writers wrote."""
    for address in np.unique(addresses):
        found = dump[address : address + values.shape[1]]
        if not (values[addresses == address] == found).all(axis=1).any():
            raise WrongAnswer(f"address {address} holds {found.tobytes().hex()}, which no lane on it wrote")


def _matrices(rows: NDArray[np.uint8], is_transposed: bool) -> NDArray[np.uint8]:
    """Fragments uint8[lanes, 4 * matrices] of rows uint8[8 * matrices, 16]: lane i has elements 2i and 2i + 1, by rows."""
    halves = np.ascontiguousarray(rows).view("<u2").reshape(-1, 8, 8)
    if is_transposed:
        halves = halves.transpose(0, 2, 1)
    words = np.ascontiguousarray(halves.reshape(-1, 32, 2).transpose(1, 0, 2))
    return words.view(np.uint8).reshape(32, -1)


def _num_rows(op: str) -> int:
    return 8 * int(op.split("_x")[1][0])


def _matrix_fragments(pattern: Pattern) -> NDArray[np.uint8]:
    rows = filled()[pattern.addresses[: _num_rows(pattern.op), None] + np.arange(16)]
    fragments = _matrices(rows, pattern.op.endswith("_trans"))
    wanted = np.zeros((32, 16), dtype=np.uint8)
    wanted[:, : fragments.shape[1]] = fragments
    return wanted


def _stored_rows(op: str) -> NDArray[np.uint8]:
    """The rows that stmatrix writes: uint8[8 * matrices, 16], from the lanes' values."""
    num_rows = _num_rows(op)
    words = np.ascontiguousarray(draws.lane_values()).view("<u4")[:, : num_rows // 8]
    halves = np.ascontiguousarray(words.T).view("<u2").reshape(-1, 8, 8)
    if op.endswith("_trans"):
        halves = halves.transpose(0, 2, 1)
    return np.ascontiguousarray(halves).view(np.uint8).reshape(num_rows, 16)


def _integers(rows: NDArray[np.uint8], size: int) -> NDArray[np.uint64]:
    return np.ascontiguousarray(rows[:, :size]).view(f"<u{size}")[:, 0].astype(np.uint64)


def _check_atomic(pattern: Pattern, outputs: Outputs) -> None:
    kind, _, verb, _ = pattern.op.split("_")
    size = access_bytes(pattern.op)
    lanes = np.flatnonzero(pattern.active)
    values, olds = _integers(draws.lane_values(), size), _integers(outputs["out"], size)
    for address in np.unique(pattern.addresses[lanes]):
        here = lanes[pattern.addresses[lanes] == address]
        first = int(_integers(filled()[None, address : address + size], size)[0])
        last = int(_integers(outputs["dump"][None, address : address + size], size)[0])
        mine = [int(value) for value in values[here]]
        was = [int(old) for old in olds[here]] if kind == "atom" else None
        if not _is_history(verb, first, mine, was, last, 8 * size):
            raise WrongAnswer(f"address {address} went from {first:#x} to {last:#x}, which its lanes do not explain")


def _is_history(verb: str, first: int, values: list[int], olds: list[int] | None, last: int, bits: int) -> bool:
    """Whether a word can go from ``first`` to ``last`` by these lanes, who saw ``olds`` on the way."""
    if verb == "exch":
        return sorted([*(olds or []), last]) == sorted([first, *values])
    if verb == "cas":
        won = [value for value, old in zip(values, olds or [], strict=True) if old == first]
        return won == [last] and all(old in (first, last) for old in olds or [])
    apply = {
        "add": lambda x, y: (x + y) & ((1 << bits) - 1), "min": min, "max": max,
        "and": int.__and__, "or": int.__or__, "xor": int.__xor__,
    }[verb]  # fmt: skip
    total = first
    for value in values:
        total = apply(total, value)
    alone = olds is None or len(olds) > 1 or olds[0] == first
    return total == last and alone and (olds is None or first in olds)


def predict(config: Row, _gpu: GpuSpec) -> dict[str, float]:
    """The counts by the simulator's rules; of wide loads also the data stage's, which is another.

    A fill is 64 stores of 512 consecutive bytes.
    Loops of values (``VALUED_ATOMICS``) take the simulator's count at most. Banks are the same on every GPU.
    """
    pattern = pattern_of(config)
    if pattern.op in VALUED_ATOMICS:
        return {}
    asked = pattern.op, pattern.addresses, pattern.active
    sources = SOURCE_PITCH_BYTES * LANES if pattern.op in CP_ASYNC else None
    found = {COUNTED: float(wavefronts(*asked, sources)) + config.is_filled * SMEM_BYTES // 128}
    return found | ({DATA_LOADS: float(data_wavefronts(*asked))} if pattern.op in WIDE else {})


CASE = Case(
    name="shared_access",
    question="How many wavefronts does one access of one warp to shared memory take?",
    config_type=Row, launch=launch, check=check, checks_counted=False, predict=predict,
    groups={
        "wide": Group(configs=configs(WIDE, 400), metrics=METRICS, rank=0),
        "atomic": Group(configs=configs(SINGLE_ATOMICS, 60), metrics=ATOMIC_METRICS, rank=1),
        "matrix": Group(configs=configs(LDMATRIX, 60), metrics=METRICS, rank=4),
        "stmatrix": Group(configs=configs(STMATRIX, 60), metrics=METRICS, rank=4, least_capability=(9, 0)),
        "narrow": Group(configs=configs((*NARROW, *STORES, *CP_ASYNC), 60), metrics=METRICS, rank=5),
        "half": Group(configs=half_configs(1, 600), metrics=METRICS, rank=6),
        "halves": Group(configs=half_configs(2, 400), metrics=METRICS, rank=6),
        "asleep": Group(configs=asleep_configs, metrics=METRICS, rank=6),
        "atomic_loop": Group(configs=configs(LOOPED_ATOMICS, 60), metrics=ATOMIC_METRICS, rank=8),
    },
    tiers={COUNTED: 3, DATA_LOADS: 3},
)  # fmt: skip
