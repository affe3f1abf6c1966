"""How long is it from a CTA's last work to the next one's first, and what do stores at its end add?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Outputs, Repeated, Windows, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import check_windows
from gpusim.evidence.cases.validation_kernel import windows
from gpusim.kernel_models.streaming import dense_access, lanes_access
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

NUM_SMS = measured_gpu().num_sms
SMEM_PER_SM_BYTES = measured_gpu().smem_per_sm_bytes
NUM_SLOTS = 1024
"""CTAs that buffers have room for, as in kernel.cu."""
WARP_SIZE, VECTOR_BYTES, WORD_BYTES = 32, 16, 4
SPINS, LOADS = ("nothing", "word", "words", "vector", "early"), ("load", "load_loop")
THREADS, CTAS_PER_SM, TURNS, SPIN_CYCLES = (32, 256, 1024), (1, 2), (200, 400), (1000, 3000)
PLACES = ((256, 1), (32, 1), (256, 2), (1024, 1), (32, 2), (1024, 2))
"""Threads of a CTA, CTAs an SM, of CTAs that spin: one CTA of 256 threads, which calibrates, stands at an even place."""
NO_WORD, NO_THREAD = 0xFFFF_FFFF, 0xFFFF_FFFF
STORED_BY = {"word": (NO_THREAD, 0), "words": (WARP_SIZE - 1, 0), "vector": (0, 0)}
"""(mask, what is left of a thread's index under it) of the threads that store at the end; no thread where nothing stands."""
CYCLES = "sm__cycles_elapsed.max"
METRICS = (CYCLES, "sm__cycles_elapsed.avg", "sm__cycles_active.max", "sm__cycles_active.avg", "gpu__time_duration.sum")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    threads: int
    ctas_per_sm: int
    spin_cycles: int
    turns: int


def spins() -> list[Config]:
    """CTAs that spin: by what they store, how long they stay, how many there are."""
    return [
        Config(kernel, *place, cycles, turns)
        for kernel in SPINS for cycles in SPIN_CYCLES for turns in TURNS for place in PLACES
    ]  # fmt: skip


def loads() -> list[Config]:
    """CTAs that load and leave, and CTAs that stay and load as often."""
    return Config.sweep(kernel=LOADS, threads=THREADS, ctas_per_sm=CTAS_PER_SM, turns=TURNS, spin_cycles=0)


def smem_bytes(ctas_per_sm: int) -> int:
    """Dynamic shared memory of which so many CTAs fit on an SM, and no more.

    >>> smem_bytes(1), smem_bytes(2)
    (229376, 114176)
    """
    return (SMEM_PER_SM_BYTES - 3 * 1024) // ctas_per_sm - 1024


def num_ctas(config: Config) -> int:
    """Of the grid: as many a place as there are turns; of the loop one."""
    at_once = NUM_SMS * config.ctas_per_sm
    return at_once if config.kernel == "load_loop" else at_once * config.turns


@cache
def words(num: int) -> NDArray[np.uint32]:
    """The input."""
    made = np.random.default_rng(47).integers(0, 2**31, num, dtype=np.uint32)
    made.setflags(write=False)
    return made


def _out(config: Config) -> Windows:
    size = NUM_SLOTS * config.threads * VECTOR_BYTES
    return Windows("out", size, windows(size))


def launch(config: Config) -> KernelLaunch:
    """So many CTAs a place."""
    out = _out(config)
    mask, match = STORED_BY.get(config.kernel, (NO_THREAD, NO_THREAD))
    plan = np.array([config.spin_cycles, config.turns, mask, match, NO_WORD, 0], dtype="<u4")
    return KernelLaunch(
        kernel=config.kernel, arguments=(Repeated(words(out.num_bytes // WORD_BYTES), out.num_bytes), out, by_value(plan)),
        grid=(num_ctas(config), 1, 1), block=(config.threads, 1, 1), smem_bytes=smem_bytes(config.ctas_per_sm),
    )  # fmt: skip


def expected(config: Config, offset: int, num_bytes: int) -> NDArray[np.uint8]:
    """What lies in a window of the output: the vectors' numbers, and what follows from them, where they were stored."""
    at = np.arange(offset // VECTOR_BYTES, (offset + num_bytes) // VECTOR_BYTES, dtype=np.uint32)
    found = np.full((len(at), VECTOR_BYTES // WORD_BYTES), NO_WORD, dtype=np.uint32)
    if config.kernel in ("vector", "early"):
        found[:] = np.stack([at, ~at, at + np.uint32(7), at + np.uint32(9)], axis=1)
    elif config.kernel in STORED_BY:
        stride = config.threads if config.kernel == "word" else WARP_SIZE
        found[at % stride == 0, 0] = at[at % stride == 0]
    return found.reshape(-1).view(np.uint8)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Windows of what was stored, every byte; nothing where nothing is."""
    check_windows(_out(config), outputs["out"], partial(expected, config), config.kernel)
    return {}


# ---------------------------------------------------------------------------------------------- the simulator's answer

BEFORE_SPIN, AFTER_SPIN = 2, 6
"""Instructions of a thread until it looks at the clock, and from its last look to its store or exit. Source: SASS."""
BEFORE_LOAD, AFTER_LOAD = {"load": 10, "load_loop": 14}, 3
"""Instructions until the load (of the loop: until its first turn), and from what it has given to the exit. Source: SASS."""
BEFORE_LOAD_OF_TURN, AFTER_LOAD_OF_TURN = 3, 6
"""The same of a turn of the loop. Source: SASS, sm_90a."""
REGISTERS = {**dict.fromkeys(SPINS, 10), "early": 12, "load": 14, "load_loop": 16}
"""Of a thread. Source: ptxas, sm_90a."""


def stored(config: Config) -> AccessPattern | None:
    """What a CTA stores at its end, or at its beginning; None: nothing."""
    threads = config.threads
    accesses = {
        "word": lanes_access(0, 1, WORD_BYTES, WORD_BYTES),
        "words": lanes_access(0, 1, WORD_BYTES, WORD_BYTES).scaled(threads // WARP_SIZE),
        "vector": dense_access(0, threads, VECTOR_BYTES), "early": dense_access(0, threads, VECTOR_BYTES),
    }  # fmt: skip
    return accesses.get(config.kernel)


def staying(config: Config, gpu: GpuSpec) -> GpuSpec:
    """The GPU whose ``__syncthreads`` takes a spin's cycles: there is no word for staying, and nothing else meets."""
    scheduler = replace(gpu.warp_scheduler, barrier_base_cycles=float(config.spin_cycles), barrier_warp_cycles=0.0)
    return replace(gpu, warp_scheduler=scheduler)


def twin(config: Config) -> Launch:
    """The launch in the simulator's words."""
    kernel, threads, grid = config.kernel, config.threads, num_ctas(config)
    num_tiles = NUM_SMS * config.ctas_per_sm * config.turns
    access, store = dense_access(0, threads, VECTOR_BYTES), stored(config)

    def spin(cta: RoleContext) -> Iterator[Any]:
        yield ops.Alu(BEFORE_SPIN, is_chain=True)
        if store and kernel == "early":
            yield ops.GlobalStore("out", (cta.cta_idx % NUM_SLOTS, 0), store)
        yield ops.Syncthreads()
        yield ops.Alu(AFTER_SPIN, is_chain=True)
        if store and kernel != "early":
            yield ops.GlobalStore("out", (cta.cta_idx % NUM_SLOTS, 0), store)

    def load(cta: RoleContext) -> Any:
        yield ops.Alu(BEFORE_LOAD[kernel], is_chain=True)
        if kernel == "load":
            token = yield ops.GlobalLoad("in", (cta.cta_idx % NUM_SLOTS, 0), access, allocates_in_l1=False)
            yield ops.Use(token)
            yield ops.Alu(AFTER_LOAD, is_chain=True)
            return
        for _, idx in cta.tiles(num_tiles):
            yield ops.Alu(BEFORE_LOAD_OF_TURN, is_chain=True)
            token = yield ops.GlobalLoad("in", (idx % NUM_SLOTS, 0), access, allocates_in_l1=False)
            yield ops.Use(token)
            yield ops.Alu(AFTER_LOAD_OF_TURN, is_chain=True)

    program = load if kernel in LOADS else spin
    return Launch(
        kernel=kernel, num_ctas=grid, num_tiles=num_tiles, registers_per_thread=REGISTERS[kernel],
        extra_smem_bytes=smem_bytes(config.ctas_per_sm),
        roles=(WarpRole(name="all", num_warps=threads // WARP_SIZE, program=program),),
    )  # fmt: skip


FEW_TURNS = (8, 24)
"""That are simulated: turns are alike."""


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Cycles of the launch, by the slope of two shorter ones.

    Nothing for a GPU of another number of SMs, for which the grids are not made.
    """
    if gpu.num_sms != NUM_SMS:
        return {}
    machine = gpu if config.kernel in LOADS else staying(config, gpu)
    few, more = (simulate(twin(replace(config, turns=turns)), machine, clock="max", l2="warm").cycles for turns in FEW_TURNS)
    return {CYCLES: few + (config.turns - FEW_TURNS[0]) * (more - few) / (FEW_TURNS[1] - FEW_TURNS[0])}


# ---------------------------------------------------------------------------------------------- parameters
def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What a CTA that stores at its end takes more than one that does not, of one CTA of 256 threads an SM."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        if row["threads"] == "256" and row["ctas_per_sm"] == "1" and row.get(CYCLES):
            by_turns = found.setdefault((row["spin_cycles"], row["kernel"]), {})
            by_turns.setdefault(int(row["turns"]), []).append(float(row[CYCLES]))
    cycles = {who: slope for who, by_turns in found.items() if (slope := _slope(by_turns)) is not None}
    more = [
        cycles[spin, kernel] - cycles[spin, "nothing"]
        for spin, kernel in cycles if kernel in ("word", "vector") and (spin, "nothing") in cycles
    ]  # fmt: skip
    how = (
        "cycles of a CTA that stores a word or 16 bytes a thread at its end (elapsed over two numbers of CTAs, slope) less "
        "those of one that stores nothing, one CTA of 256 threads an SM, median"
    )
    return Fitted.median("dispatcher.store_exit_cycles", more, how)


def _slope(by_turns: Mapping[int, Sequence[float]]) -> float | None:
    """Cycles a turn, from the fewest turns to the most; None where there is one number of them."""
    fewest, most = min(by_turns), max(by_turns)
    if fewest == most:
        return None
    return float(np.median(by_turns[most]) - np.median(by_turns[fewest])) / (most - fewest)


CASE = Case(
    name="cta_turnover",
    question="How long is it from a CTA's last work to the next one's first, and what do stores at its end add?",
    config_type=Config,
    groups={
        "spins": Group(configs=spins, metrics=METRICS, rank=3),
        "loads": Group(configs=loads, metrics=METRICS, rank=3),
    },
    launch=launch, check=check, predict=predict, fit=fit, tiers={CYCLES: 6},
)  # fmt: skip
