"""How many wavefronts does one cp.async of one warp take, by where it reads and where it writes?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases import access_patterns as draws
from gpusim.evidence.cases.access_patterns import LANES, SMEM_BYTES
from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Group, Input, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.machine.config import GpuSpec
from gpusim.workload.smem.access import wavefronts

OPS = ("cp_async_b32", "cp_async_b64", "cp_async_b128", "cp_async_cg_b128")
SOURCE_BYTES = 8192
DUMP, WARM = 1, 2
"""Modes of a launch: what kernel.cu does after and before the copy."""

COUNTED = "sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum"
METRICS = (
    COUNTED,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ldgsts.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts.sum",
)

ROW_BYTES = (32, 64, 128)
SOURCES = ("packed", "packed", "shifted", "spaced_16", "spaced_32", "spaced_64", "spaced_128", "same", "shuffled", "random")
"""Where lanes read: side by side as copies do, from some element on, so many bytes apart, all of one, in another order,
or anywhere."""

SIDE_BY_SIDE = ("packed", "shifted")
"""Lane i reads the i-th element of one run: here the rule is exact."""


def _data() -> NDArray[np.uint8]:
    return read_only((np.arange(SOURCE_BYTES // 4, dtype=np.uint64) * 0x9E3779B1 + 0x7F4A7C15).astype("<u4").view(np.uint8))


DATA = _data()
"""What the sources hold: a word of its own at every place; copied to the GPU once."""


def access_bytes(op: str) -> int:
    """Bytes a lane copies."""
    return int(op.rsplit("_b", 1)[1]) // 8


def sources(rng: np.random.Generator, kind: str, size: int) -> NDArray[np.int64]:
    """Byte addresses int64[32] of a kind in ``SOURCES``."""
    if kind == "random":
        return rng.integers(0, SOURCE_BYTES // size, 32) * size
    if kind == "same":
        return np.full(32, int(rng.integers(0, 64)) * 16)
    if kind.startswith("spaced"):
        return LANES * int(kind.removeprefix("spaced_"))
    offset = int(rng.integers(1, 128 // size)) * size if kind == "shifted" else int(rng.integers(0, 8)) * 512
    return (rng.permutation(32) if kind == "shuffled" else LANES) * size + offset


def _destinations(rng: np.random.Generator, idx: int, size: int) -> tuple[str, NDArray[np.int64]]:
    """Every third tile row by tile row, as copies write; the others drawn."""
    if idx % 3 == 0:
        width = int(rng.choice([4, 8, 32]))
        pitch = int(rng.choice([0, 16, 128, 256])) + width * size
        return "rows", LANES // width * pitch + LANES % width * size
    family = DESTINATIONS[idx % len(DESTINATIONS)]
    return family.__name__, family(rng, size)


DESTINATIONS: tuple[draws.Draw, ...] = (
    draws.random, draws.window, draws.strided, draws.swizzled, draws.broadcast, draws.paired, draws.phases, draws.few_banks,
)  # fmt: skip


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; addresses and sources of the lanes in bytes."""

    kernel: str
    pattern: int
    family: str
    source: str
    is_warm: bool
    turn: int
    active: str
    addresses: str
    sources: str


def _row(
    op: str, idx: int, family: str, source: str, active: NDArray[np.bool_],
    places: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> Row:
    """A config; ``places``: destinations and sources of the lanes."""
    landed, origins = (" ".join(map(str, numbers)) for numbers in places)
    return Row(op, idx, family, source, False, 0, draws.mask_text(active), landed, origins)


def drawn(op: str, *, count: int, seed: int, kinds: Sequence[str] = SOURCES, stream: tuple[int, ...] = ()) -> list[Row]:
    """``count`` copies of an op from these kinds of sources in turn; neither warm nor repeated. Streams differ."""
    rng = np.random.default_rng([seed, OPS.index(op), *stream])
    size = access_bytes(op)
    made = []
    for idx in range(count):
        family, destinations = _destinations(rng, idx, size)
        kind = kinds[idx % len(kinds)]
        active = np.ones(32, dtype=bool) if rng.random() < 0.6 else draws.mask(rng)
        places = destinations % SMEM_BYTES, sources(rng, kind, size) % SOURCE_BYTES
        made.append(_row(op, idx, family, kind, active, places))
    return made


def configs(count: int, *, is_warm: bool = False, turns: int = 1) -> Callable[[int], list[Row]]:
    """``count`` copies of each op, each ``turns`` times over."""
    return lambda seed: [
        replace(config, is_warm=is_warm, turn=turn)
        for op in OPS for turn in range(turns) for config in drawn(op, count=count, seed=seed)
    ]


def side_by_side(count: int) -> Callable[[int], list[Row]]:
    """``count`` copies of each op through L1 from one run."""
    return lambda seed: [
        config for op in OPS[:3]
        for config in drawn(op, count=count, seed=seed, kinds=SIDE_BY_SIDE, stream=(1,))
    ]


def tiles(count: int) -> Callable[[int], list[Row]]:
    """``count`` copies of each op through L1 of rows of 32, 64 and 128 bytes, a pitch apart in global memory.

    They land row behind row, padded or under a swizzle of TMA's, as copies of a GEMM's tiles do.
    """

    def made(seed: int) -> list[Row]:
        found = []
        for op in OPS[:3]:
            rng, size = np.random.default_rng([seed, OPS.index(op), 2]), access_bytes(op)
            for idx in range(count):
                row_bytes = ROW_BYTES[idx % len(ROW_BYTES)]
                row, column = LANES * size // row_bytes, LANES * size % row_bytes
                pitch = row_bytes + int(rng.choice([0, 16, 128, 192, 224]))
                landed = row * (row_bytes + int(rng.choice([0, 0, 16]))) + column
                bits = int(rng.integers(0, 4)) if rng.random() < 0.5 else 0
                landed ^= ((landed >> 7) & ((1 << bits) - 1)) << 4
                start = int(rng.integers(0, 16)) * 16
                active = np.ones(32, dtype=bool) if rng.random() < 0.8 else draws.mask(rng)
                places = landed // size * size, (row * pitch + column + start) % SOURCE_BYTES
                found.append(_row(op, idx, "tile", f"rows_{row_bytes}", active, places))
        return found

    return made


def lanes_of(config: Row) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Destinations and sources int64[32] in bytes, active bool[32]."""
    destinations, origins = (np.array(text.split(), dtype=np.int64) for text in (config.addresses, config.sources))
    return destinations, origins, draws.mask_of(config.active)


def launch(config: Row, is_counted: bool) -> KernelLaunch:
    """The copy alone where it is counted; with a dump behind it where it is checked."""
    destinations, origins, _ = lanes_of(config)
    mode = WARM * config.is_warm + (0 if is_counted else DUMP)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.concatenate([origins, destinations]).astype("<u4")), np.uint32(int(config.active, 16)),
            np.uint32(mode), np.uint32(0), Input(DATA), Output("dump", np.full(SMEM_BYTES, 0xA5, dtype=np.uint8)),
        ),
        block=(32, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Refuse wrong data; there are no values.

    Raises:
        WrongAnswer: says the first address that is wrong.
    """
    destinations, origins, active = lanes_of(config)
    size = access_bytes(config.kernel)
    for address in np.unique(destinations[active]):
        found = outputs["dump"][address : address + size]
        wanted = DATA[origins[active & (destinations == address), None] + np.arange(size)]
        if not (wanted == found).all(axis=1).any():
            raise WrongAnswer(f"address {address} holds {found.tobytes().hex()}, which no lane on it copied")
    return {}


def predict(config: Row, _gpu: GpuSpec) -> dict[str, float]:
    """The count by the simulator's rules, for copies through L1."""
    if config.kernel == "cp_async_cg_b128":
        return {}
    destinations, origins, active = lanes_of(config)
    return {COUNTED: float(wavefronts(config.kernel, destinations, active, origins))}


CASE = Case(
    name="cp_async_access",
    question="How many wavefronts does one cp.async of one warp take, by where it reads and where it writes?",
    config_type=Row, launch=launch, check=check, checks_counted=False, predict=predict,
    groups={
        "warm": Group(configs=configs(90, is_warm=True), metrics=METRICS, rank=6),
        "cold": Group(configs=configs(90), metrics=METRICS, rank=6),
        "side_by_side": Group(configs=side_by_side(60), metrics=METRICS, rank=5),
        "tiles": Group(configs=tiles(60), metrics=METRICS, rank=5),
        "again": Group(configs=configs(15, turns=3), metrics=METRICS, rank=6),
    },
    tiers={COUNTED: 3},
)  # fmt: skip
