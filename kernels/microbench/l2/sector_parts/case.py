"""What do parts of sectors and of lines cost, read or stored: bytes of memory, sectors of L2, cycles?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Argument,
    Case,
    Group,
    KernelLaunch,
    Output,
    Outputs,
    Repeated,
    Windows,
    WrongAnswer,
    by_value,
)  # fmt: skip
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.rows import number_in
from gpusim.evidence.cases.validation_kernel import windows
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import Footprint, RoleContext
from gpusim.workload.smem.access import AccessPattern

MIB = 1 << 20
THREADS, AT_ONCE, NUM_SUMS = 256, 4, 4096
LINE_BYTES, SECTOR_BYTES, WORD_BYTES = 128, 32, 4
MOST_CTAS, ONE_EACH = 1024, 128
"""CTAs that fill an H200, and that have an SM each: powers of two, so that a round is whole turns of all threads."""
IN_L2, IN_HBM = 16 * MIB, 256 * MIB
ROUNDS_IN_L2 = 8
WALK = np.dtype([(name, "<u4") for name in ("sectors", "log_words", "log_sectors", "stride", "accesses", "rounds")])
"""Structure of kernel.cu."""

CYCLES = "sm__cycles_elapsed.max"
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
SECTORS = ("lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum")
MISSES = "lts__t_sectors_srcunit_tex_lookup_miss.sum"
METRICS = (*DRAM, *SECTORS, MISSES, "lts__t_sectors_srcunit_ltcfabric.sum", CYCLES)
ALU_OF_LOADS, ALU_OF_STORES = 64, 62
"""Integer instructions of a turn, four accesses. Source: SASS, sm_90a."""


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True, kw_only=True)
class Config(ConfigRow):
    """``sectors``: 1 for those of a line that are taken, the first on the left."""

    kernel: str = field(kw_only=False)
    sectors: str
    words: int
    stride_lines: int = 1
    span_bytes: int
    num_ctas: int
    num_rounds: int = 1


def fetch_configs() -> list[Config]:
    """A word of some sectors of each line, or each second or eighth, out of memory; all SMs."""
    return [
        Config(kernel, sectors=sectors, words=1, span_bytes=span_of(stride), stride_lines=stride, num_ctas=MOST_CTAS)
        for sectors in ("1000", "0100", "0010", "0001", "1100", "0110", "0011", "1010", "1001", "1111")
        for stride in (1, 2, 8) for kernel in ("read_ca", "read_cg")
    ]  # fmt: skip


def store_configs() -> list[Config]:
    """Parts of sectors stored over and over in L2, by one SM and by all; and once to memory."""
    shapes = [(sectors, words) for sectors in ("1000", "1100", "1111") for words in (1, 2, 4, 8)]
    return [
        *(
            Config("store", sectors=sectors, words=words, span_bytes=MIB, num_ctas=1, num_rounds=4)
            for sectors, words in shapes
        ),
        *(
            Config("store", sectors=sectors, words=words, span_bytes=IN_L2, num_ctas=ONE_EACH, num_rounds=ROUNDS_IN_L2)
            for sectors, words in shapes
        ),
        *(
            Config(
                "store", sectors=sectors, words=words, span_bytes=span_of(stride), stride_lines=stride, num_ctas=MOST_CTAS
            )
            for sectors, words in shapes for stride in (1, 8)
        ),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- what is launched
def taken(config: Config) -> list[int]:
    """Sectors of a line that are walked over.

    >>> taken(Config("store", sectors="1010", words=1, span_bytes=MIB, num_ctas=1))
    [0, 2]
    """
    return [idx for idx, is_taken in enumerate(config.sectors) if is_taken == "1"]


def span_of(stride: int) -> int:
    """Bytes out of memory in which such a stride leaves whole turns."""
    return max(stride // 2, 1) * IN_HBM


def num_accesses(config: Config) -> int:
    """Of a round."""
    num_lines = config.span_bytes // LINE_BYTES // config.stride_lines
    return num_lines * len(taken(config)) * config.words


def words_of(config: Config, accesses: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which word of the buffer each access takes."""
    words, sectors = config.words, np.array(taken(config))
    line = accesses // (words * len(sectors)) * config.stride_lines
    return line * 32 + sectors[accesses // words % len(sectors)] * 8 + accesses % words


def walk(config: Config) -> NDArray[Any]:
    """The structure that says how."""
    sectors, words = taken(config), config.words
    packed = sum(sector << 2 * idx for idx, sector in enumerate(sectors))
    fields = (
        packed, words.bit_length() - 1, len(sectors).bit_length() - 1, config.stride_lines, num_accesses(config),
        config.num_rounds,
    )  # fmt: skip
    return np.array([fields], dtype=WALK)


def source(config: Config) -> Repeated:
    """What loads find."""
    held = np.random.default_rng(7).integers(0, 1 << 32, MIB, dtype=np.uint32)
    held.setflags(write=False)
    return Repeated(held, config.span_bytes)


def target(config: Config) -> Windows:
    """What is stored into."""
    num_bytes = config.span_bytes
    return Windows("buffer", num_bytes, windows(num_bytes))


def launch(config: Config) -> KernelLaunch:
    """All threads of so many CTAs."""
    first: tuple[Argument, ...] = (target(config),)
    if config.kernel != "store":
        first = (source(config), Output("sums", np.zeros(NUM_SUMS, dtype=np.uint32)))
    return KernelLaunch(
        kernel=config.kernel, arguments=(*first, by_value(walk(config))), grid=(config.num_ctas, 1, 1),
        block=(THREADS, 1, 1),
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Loads add up to what lies there; stores have changed what they should and nothing else."""
    if config.kernel != "store":
        held = source(config).array
        words = words_of(config, np.arange(num_accesses(config), dtype=np.int64))
        wanted = int(held[words % len(held)].sum(dtype=np.uint64)) * config.num_rounds % (1 << 32)
        found = int(outputs["sums"].sum(dtype=np.uint64)) % (1 << 32)
        if found != wanted:
            raise WrongAnswer(f"{config.kernel}: what was read adds up to {found}, wants {wanted}")
        return {}
    out, sectors, num_words = target(config), taken(config), config.words
    for (offset, num_bytes), came in zip(out.windows, out.split(outputs["buffer"]), strict=True):
        word = offset // WORD_BYTES + np.arange(num_bytes // WORD_BYTES, dtype=np.int64)
        line, sector, within = word // 32, word // 8 % 4, word % 8
        is_stored = (line % config.stride_lines == 0) & np.isin(sector, sectors) & (within < num_words)
        wanted = np.where(is_stored, word * 0x9E3779B1 % (1 << 32), 0xFFFFFFFF)
        wrong = np.flatnonzero(came.view("<u4") != wanted)
        if len(wrong):
            raise WrongAnswer(f"store: word {int(word[wrong[0]])} is {came.view('<u4')[wrong[0]]}, wants {wanted[wrong[0]]}")
    return {}


# ---------------------------------------------------------------------------------------------- the twin
def turn_of(config: Config) -> AccessPattern:
    """What the threads of a CTA ask for at a time: four accesses each, a grid's threads apart."""
    num_threads = config.num_ctas * THREADS
    first = np.arange(AT_ONCE)[:, None] * num_threads + np.arange(THREADS)
    words = words_of(config, first.reshape(-1))
    return global_access(WORD_BYTES * words.reshape(-1, 32), WORD_BYTES)


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """All CTAs walk their turns; memory fetches or keeps whole sectors."""
    num_ctas, is_store = config.num_ctas, config.kernel == "store"
    access = turn_of(config)
    of_round = max(1, num_accesses(config) // (AT_ONCE * THREADS * num_ctas))
    rounds = config.num_rounds
    alu = ops.Alu(ALU_OF_STORES if is_store else ALU_OF_LOADS)

    def program(cta: RoleContext) -> Iterator[Any]:
        for turn in cta.loop(of_round * rounds):
            yield alu
            tile = (cta.cta_idx, turn % of_round)
            if is_store:
                yield ops.GlobalStore("buffer", tile, access)
            else:
                token = yield ops.GlobalLoad("buffer", tile, access, allocates_in_l1=config.kernel == "read_ca")
                yield ops.Use(token)

    touched = of_round * access.num_sectors * SECTOR_BYTES

    def panel_bytes(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full_like(tiles, touched)

    launched = Launch(
        kernel="sector_parts", num_ctas=num_ctas, num_tiles=num_ctas, registers_per_thread=32,
        roles=(WarpRole(name="walk", num_warps=THREADS // 32, program=program),),
        footprints=(
            Footprint(
                tensor="buffer", access="write" if is_store else "read", panel_of=lambda tiles: tiles,
                panel_bytes=panel_bytes, num_steps=of_round,
            ),
        ),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max")
    return {name: float(result.counters[name]) for name in (*DRAM, *SECTORS, CYCLES) if name in result.counters}


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Bytes of memory for each sector that was asked for."""
    sectors = num_accesses(Config.of(row)) / int(row["words"]) * int(row["num_rounds"])
    names = {"read_bytes_per_sector": DRAM[0], "written_bytes_per_sector": DRAM[1]}
    return {name: number_in(row, metric) / sectors for name, metric in names.items() if row.get(metric)}


CASE = Case(
    name="sector_parts",
    question="What do parts of sectors and of lines cost, read or stored: bytes of memory, sectors of L2, cycles?",
    config_type=Config,
    groups={
        "fetch": Group(configs=fetch_configs, metrics=METRICS, rank=3, is_cold=True),
        "store": Group(configs=store_configs, metrics=METRICS, rank=3, is_cold=True),
    },
    launch=launch, check=check, predict=predict, derive=derive, tiers={**dict.fromkeys((*DRAM, *SECTORS), 5), CYCLES: 6},
)  # fmt: skip
