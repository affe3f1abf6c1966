"""Which lines that are read over and over stay in L2: over the footprint, by who reads them, beside stores, with hints?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import grid_include, sum_of_words
from gpusim.machine.config import GpuSpec
from gpusim.simulate.plan import partition_of_cta
from gpusim.traffic.l2_plan import panel_traffic
from gpusim.traffic.panels import FootprintRow
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, RoleContext
from gpusim.workload.smem.access import AccessPattern

NUM_CTAS = measured_gpu().num_sms
"""One an SM; where SMs have other numbers the launch gives itself up."""
NUM_THREADS = 512
ONE_CTA_BYTES = 120 * 1024
"""Of shared memory, so that two CTAs find no room on one SM."""
MIB = 1 << 20
NUM_ROUNDS = 8
NUM_SETTLED = 4
"""Of these the last ones, whose time counts."""
NUM_PROBES = 64
NUM_SAMPLES = 512
CHUNKS_IN_FLIGHT = 8
CHUNK_BYTES = 4096
STORED_BYTES = 128 * MIB
"""Before the rounds, so that nothing of the footprint is in L2."""
FLAG_WORDS = 32 + 32 + 64 + 256
FAR_CYCLES, MISS_CYCLES = 380, 600
"""Latencies from which on a line counts as read from the far side, or from HBM: between the published levels of 260 to 310,
410 to 480 and 650 on; the quantiles beside the shares show where the levels really are."""

FOOTPRINTS_MIB = (8, 12, 16, 20, 24, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 52, 56, 60, 64)
FEWER_MIB = (8, 16, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60)
READERS = ("split", "one_side", "both_sides", "all")
HINTS = ("evict_normal", "evict_first", "evict_last")

COPIED = 1.5
"""Places that a line takes which one SM reads, on average."""
DRAM_READ = "dram__bytes_read.sum"
METRICS = (
    "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
    "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum", "lts__t_sectors_srcunit_ltcfabric.sum", DRAM_READ,
    "dram__bytes_write.sum",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    footprint_mib: int
    readers: str
    writes_of_8: int = 0
    read_hint: str = "evict_normal"
    write_hint: str = "evict_normal"
    kernel: str = "reread"


def footprint() -> list[Config]:
    """Reads alone."""
    return Config.sweep(readers=READERS, footprint_mib=FOOTPRINTS_MIB)


def writes() -> list[Config]:
    """Beside a stream of stores that never come to the same line again soon."""
    return Config.sweep(readers=("split", "both_sides"), writes_of_8=(1, 4, 8), footprint_mib=FEWER_MIB)


def hints() -> list[Config]:
    """With cache hints on the reads, on the stores, on both."""
    plans = (
        (0, "evict_first", "evict_normal"), (0, "evict_last", "evict_normal"), (4, "evict_first", "evict_normal"),
        (4, "evict_normal", "evict_first"), (4, "evict_last", "evict_normal"), (4, "evict_last", "evict_first"),
    )  # fmt: skip
    return [Config(size, "split", *plan) for plan in plans for size in FEWER_MIB]


# ---------------------------------------------------------------------------------------------- launch and check
def footprint_bytes(config: Config) -> int:
    """Bytes that are read over and over."""
    return config.footprint_mib * MIB


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    plan = [
        footprint_bytes(config), NUM_ROUNDS, READERS.index(config.readers), HINTS.index(config.read_hint),
        HINTS.index(config.write_hint), config.writes_of_8,
    ]  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")),
            Output("sides", np.full(NUM_CTAS, 0xFFFFFFFF, dtype="<u4")),
            Output("probed", np.zeros((NUM_CTAS, NUM_PROBES), dtype="<u4")),
            Output("rounds", np.full((NUM_ROUNDS, NUM_CTAS), -1, dtype="<i4")),
            Output("sampled", np.zeros((2, NUM_SAMPLES), dtype="<u4")),
            Output("told", np.full((NUM_CTAS, 4), -1, dtype="<i8")),
        ),
        grid=(NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=ONE_CTA_BYTES,
    )  # fmt: skip


def num_readings(config: Config) -> int:
    """How often a line is asked for in one round."""
    return {"split": 1, "one_side": 1, "both_sides": 2, "all": NUM_CTAS}[config.readers]


def side_correlations(probed: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Of each SM's latencies with those of SM 0, float64[num_sms]."""
    away = probed.astype(np.float64)
    away -= away.mean(axis=1, keepdims=True)
    norms = np.sqrt((away**2).sum(axis=1))
    return np.asarray((away @ away[0]) / np.maximum(norms * norms[0], 1e-9))


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Time of the settled rounds, and latencies of single lines from both sides."""
    wrong_if(outputs["flags"][1], f"a wait was given up: an SM has a number from {NUM_CTAS} on, or a CTA never came")
    told, rounds = outputs["told"], outputs["rounds"].astype(np.float64)
    wrong_if((told[:, 0] < 0).any() or (rounds < 0).any(), "an SM never came")
    correlations = side_correlations(outputs["probed"])
    if ((correlations < 0) != (told[:, 0] == 1)).any():
        raise WrongAnswer("an SM took itself to be on the other side than its latencies say")
    total = int(told[:, 2].sum()) % 2**32
    wanted = NUM_ROUNDS * num_readings(config) * sum_of_words(footprint_bytes(config)) % 2**32
    wrong_if(total != wanted, f"all SMs together read words that sum up to {total}, not {wanted}")
    longest = rounds.max(axis=1)
    values = {
        "round_cycles": float(np.median(longest[-NUM_SETTLED:])), "first_round_cycles": float(longest[0]),
        "num_sms_of_side_0": float((told[:, 0] == 0).sum()), "side_correlation": float(np.median(np.abs(correlations))),
    }  # fmt: skip
    for side in range(2):
        latencies = outputs["sampled"][side].astype(np.float64)
        if (latencies == 0).any():
            continue  # nobody is on that side
        for pct in (10, 50, 90):
            values[f"side_{side}_p{pct}_cycles"] = float(np.quantile(latencies, pct / 100))
        values[f"side_{side}_far_fraction"] = float(((latencies >= FAR_CYCLES) & (latencies < MISS_CYCLES)).mean())
        values[f"side_{side}_miss_fraction"] = float((latencies >= MISS_CYCLES).mean())
    return values


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Bytes that came from HBM in a round after the first, of the footprint; what all SMs took in."""
    num_bytes = footprint_bytes(Config.of(row))
    derived = {}
    if row.get(DRAM_READ):
        derived["refetched_fraction"] = (float(row[DRAM_READ]) - num_bytes) / (NUM_ROUNDS - 1) / num_bytes
    if row.get("round_cycles"):
        derived["bytes_per_cycle"] = num_readings(Config.of(row)) * num_bytes / float(row["round_cycles"])
    return derived


# ---------------------------------------------------------------------------------------------- the simulator's answer
def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Bytes from HBM by the rule of residency, and without hints a settled round's time.

    Nothing for a GPU whose SMs have other numbers.
    """
    if gpu.num_sms != NUM_CTAS:
        return {}
    num_bytes, readers, num_writes = footprint_bytes(config), config.readers, config.writes_of_8
    hints = (config.read_hint, config.write_hint)
    values = {DRAM_READ: miss_bytes(num_bytes, readers, num_writes, gpu, hints)}
    if readers != "all" and set(hints) == {HINTS[0]}:  # all would walk in lockstep, the kernel's begin at other places
        values["round_cycles"] = _round_cycles(num_bytes, readers, num_writes, gpu)
    return values


def panel_of_cta(readers: str, gpu: GpuSpec) -> NDArray[np.int64]:
    """The part of the footprint that each CTA reads in each round, int64[num_ctas]; -1 for one that reads nothing.

    Where sides count, as many SMs of each read as the smaller one has.
    """
    if readers in ("split", "all"):
        return np.arange(NUM_CTAS) if readers == "split" else np.zeros(NUM_CTAS, dtype=np.int64)
    sides = partition_of_cta(gpu)[:NUM_CTAS]
    panels = np.full(NUM_CTAS, -1)
    num_panels = int(np.bincount(sides, minlength=2).min())
    for side in range(2 if readers == "both_sides" else 1):
        panels[np.flatnonzero(sides == side)[:num_panels]] = np.arange(num_panels)
    return panels


def miss_bytes(
    num_bytes: int, readers: str, num_writes: int, gpu: GpuSpec, hints: tuple[str, str] = (HINTS[0], HINTS[0])
) -> float:
    """By :func:`gpusim.traffic.l2_plan.panel_traffic`, a wave a round; before them stores over all of L2."""
    of_cta = panel_of_cta(readers, gpu)
    num_panels = int(of_cta.max()) + 1
    tiles = np.arange((NUM_ROUNDS + 1) * NUM_CTAS, dtype=np.int64)
    is_before = tiles < NUM_CTAS
    panels = np.where(is_before, -1, of_cta[tiles % NUM_CTAS])
    panel_bytes = np.where(panels >= 0, num_bytes // num_panels + (panels < num_bytes % num_panels), 0)
    nobodys = np.where(panels >= 0, panels, num_panels)
    before = np.where(is_before, STORED_BYTES // NUM_CTAS, 0)
    footprints = [
        FootprintRow(tensor="before", is_write=True, panel_of_tile=tiles, bytes_of_tile=before),
        FootprintRow(tensor="A", is_write=False, panel_of_tile=nobodys, bytes_of_tile=panel_bytes, cache_hint=hints[0]),
    ]
    if num_writes:
        stores = panel_bytes * num_writes // CHUNKS_IN_FLIGHT
        stored = FootprintRow(tensor="D", is_write=True, panel_of_tile=tiles, bytes_of_tile=stores, cache_hint=hints[1])
        footprints.append(stored)
    partitions = partition_of_cta(gpu)[tiles % NUM_CTAS]
    traffic = panel_traffic(footprints, tiles // NUM_CTAS, l2=gpu.l2_partitions, partition_of_tile=partitions, is_warm=False)
    return traffic["A"].read_miss_bytes


NUM_HALVES = 2
"""Of a CTA: each asks for eight chunks, and then waits for all of them."""
CHUNKS_AT_ONCE = 8
"""Of these the twin asks for so many with one word."""
ADDRESS_INSTRUCTIONS, SUM_INSTRUCTIONS = 90, 60
"""Of a step, before its last load and behind it: its SASS."""
TWIN_ROUNDS, TWIN_SETTLED = 4, 2
"""Rounds that are simulated, and of these the last ones, whose mean counts."""
CHAIN_CYCLES = 4
"""Of an instruction that waits for the one before."""


def chunks_of_half(num_bytes: int, half_of_cta: NDArray[np.int64], num_panels: int) -> NDArray[np.int64]:
    """How many chunks each half of a CTA reads in a round: those of one remainder by the number of halves; 0 below 0."""
    stride = NUM_HALVES * num_panels
    left = num_bytes // CHUNK_BYTES - half_of_cta
    return np.asarray(np.where(half_of_cta < 0, 0, np.maximum(0, -(-left // stride))))


def _round_cycles(num_bytes: int, readers: str, num_writes: int, gpu: GpuSpec) -> float:
    """A settled round of a launch in which each half of a CTA walks its chunks, eight at a time.

    All meet before each round: who has come looks at a counter in L2 until the last has. A program knows no counter, so each
    CTA rests for as many looks as it takes by a run of the rounds before, which go the same way each time.
    """
    of_cta = panel_of_cta(readers, gpu)
    num_panels = int(of_cta.max()) + 1
    halves = np.where(of_cta[:, None] < 0, -1, of_cta[:, None] * NUM_HALVES + np.arange(NUM_HALVES))
    counts = chunks_of_half(num_bytes, halves, num_panels)
    num_steps = -(-counts // CHUNKS_IN_FLIGHT)
    most_steps = int(num_steps.max())
    loads = {num: _access(num * CHUNK_BYTES) for num in range(1, CHUNKS_AT_ONCE + 1)}
    stores = _access(num_writes * CHUNK_BYTES) if num_writes else None

    rests = np.zeros((1, NUM_CTAS))
    """Of each CTA before each round that is run."""

    def meeting(cta: RoleContext) -> Iterator[Any]:
        for rest in rests[:, cta.cta_idx]:
            yield ops.Syncthreads()
            yield ops.Alu(float(rest) / CHAIN_CYCLES, is_chain=True)
            yield ops.Syncthreads()

    def half(idx: int) -> Callable[[RoleContext], Iterator[Any]]:
        def program(cta: RoleContext) -> Iterator[Any]:
            for _, tile in cta.tiles(len(rests) * NUM_CTAS):
                yield ops.Syncthreads()
                yield ops.Syncthreads()
                of_tile, count = int(of_cta[tile % NUM_CTAS]), int(counts[tile % NUM_CTAS, idx])
                yield ops.RangeStart(ops.Section.MAINLOOP)
                for done in range(0, count, CHUNKS_IN_FLIGHT):
                    yield ops.Alu(ADDRESS_INSTRUCTIONS)
                    tokens = []
                    for first in range(done, min(count, done + CHUNKS_IN_FLIGHT), CHUNKS_AT_ONCE):
                        access = loads[min(CHUNKS_AT_ONCE, count - first)]
                        place = (of_tile, idx + NUM_HALVES * first)
                        tokens.append((yield ops.GlobalLoad("A", place, access, allocates_in_l1=False)))
                    if stores is not None:
                        yield ops.GlobalStore("D", (tile, idx + NUM_HALVES * done), stores)
                    for token in tokens:
                        yield ops.Use(token)
                    yield ops.Alu(SUM_INSTRUCTIONS)
                yield ops.RangeEnd()

        return program

    def panels(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        found = of_cta[tiles % NUM_CTAS]
        return np.asarray(np.where(found >= 0, found, num_panels))

    read_bytes, written_bytes = (each.sum(axis=1) * CHUNK_BYTES for each in (counts, num_steps * num_writes))
    footprints = [Footprint(
        tensor="A", access="read", panel_of=panels, panel_bytes=lambda tiles: read_bytes[tiles % NUM_CTAS],
        num_steps=NUM_HALVES * most_steps,
    )]  # fmt: skip
    if stores is not None:
        footprints.append(Footprint(
            tensor="D", access="write", panel_of=lambda tiles: tiles,
            panel_bytes=lambda tiles: written_bytes[tiles % NUM_CTAS], num_steps=NUM_HALVES * most_steps,
        ))  # fmt: skip
    launched = Launch(
        kernel="l2_residency", num_ctas=NUM_CTAS, num_tiles=TWIN_ROUNDS * NUM_CTAS,
        roles=(
            *(WarpRole(name=f"half{idx}", num_warps=NUM_THREADS // 32 // NUM_HALVES, program=half(idx))
              for idx in range(NUM_HALVES)),
            WarpRole(name="meeting", num_warps=1, program=meeting),
        ),
        buffers=(Buffer(name="rest", stage_bytes=ONE_CTA_BYTES),), footprints=tuple(footprints),
    )  # fmt: skip
    while True:
        result = simulate(launched, gpu, clock="max", l2="cold", recorded_sms=range(gpu.num_sms))
        spans = np.zeros((2, NUM_HALVES, NUM_CTAS, len(rests)))
        for role in result.timeline.roles:
            if role.sections:
                of_half = int(role.role.removeprefix("half"))
                spans[:, of_half, role.cta_idx] = np.array([(mark.start_cycle, mark.end_cycle) for mark in role.sections]).T
        if len(rests) == TWIN_ROUNDS:
            break
        ends, look = spans[1, ..., -1].max(axis=0), gpu.l2.near_latency_cycles
        rests = np.vstack([rests, np.ceil((ends.max() - ends) / look) * look])
    return float((spans[1] - spans[0]).max(axis=(0, 1))[-TWIN_SETTLED:].mean())


def _access(num_bytes: int) -> AccessPattern:
    """Warps that touch so many bytes in a row, 512 of them at once."""
    return AccessPattern(
        num_requests=-(-num_bytes // 512), num_sectors=num_bytes // 32, num_lines=-(-num_bytes // 128),
        num_wavefronts=-(-num_bytes // 128), num_bytes=num_bytes,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- what the rows settle
def fit(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[Fitted]:
    """What a side holds, of all that L2 holds, and how gradually lines leave around that."""
    first = _first_bytes([row for row in rows if row["group"] == "hints" and row["read_hint"] == "evict_first"])
    rows = [row for row in rows if row["group"] == "footprint" and row["readers"] == "both_sides"]
    quarter, half, most = (knee_bytes(rows, share) for share in (0.25, 0.5, 0.75))
    if quarter is None or half is None or most is None:
        return []
    shares_apart = 2.0 * np.log(3.0)  # a logistic curve goes from a quarter to three quarters over so many of its widths
    return [
        Fitted(
            parameter="l2.partition_capacity_fraction", value=half / gpu.l2.capacity_bytes,
            how="footprint of which both sides fetch half again in each round, over the capacity",
        ),
        Fitted(
            parameter="l2.eviction_width_fraction", value=float((most - quarter) / half / shares_apart),
            how="footprints of which both sides fetch a quarter and three quarters again: between them, over 2.2 times the "
            "one of which they fetch half",
        ),
        *([] if first is None else [Fitted(
            parameter="l2.evict_first_fraction", value=first / gpu.l2.capacity_bytes,
            how="reads hinted evict_first in an L2 that is full: of the two smallest footprints, where the line through "
            "the logits of what is fetched again passes one half; with copies, over the capacity",
        )]),
    ]  # fmt: skip


def _first_bytes(rows: Sequence[Mapping[str, str]]) -> float | None:
    """Bytes on both sides, each line with a copy for half of its readers, that evict_first leaves half of."""
    found = sorted(
        (footprint_bytes(Config.of(row)), derive(row)["refetched_fraction"]) for row in rows
        if row.get(DRAM_READ) and row["writes_of_8"] == "0"
    )[:2]  # fmt: skip
    if len(found) < 2:
        return None
    (least, few), (most, many) = ((num_bytes, float(np.log(share / (1.0 - share)))) for num_bytes, share in found)
    return COPIED * (least - few * (most - least) / (many - few))


def knee_bytes(rows: Sequence[Mapping[str, str]], share: float = 0.5) -> float | None:
    """The footprint of which ``share`` is fetched again in each round, by straight lines between those measured."""
    told = [row for row in rows if row.get(DRAM_READ)]
    found = sorted((footprint_bytes(Config.of(row)), derive(row)["refetched_fraction"]) for row in told)
    if not found:
        return None
    sizes, fractions = np.array(found).T
    if fractions[0] >= share or fractions[-1] <= share:
        return None
    return float(np.interp(share, np.maximum.accumulate(fractions), sizes))


def _of_side(side: int) -> dict[str, str]:
    who = f"single lines of the footprint, read behind the last round by an SM of side {side}"
    return {
        **{f"side_{side}_p{pct}_cycles": f"latency of {who}, SM cycles, P{pct}" for pct in (10, 50, 90)},
        f"side_{side}_far_fraction": f"share of {who}, that took {FAR_CYCLES} to {MISS_CYCLES} SM cycles",
        f"side_{side}_miss_fraction": f"share of {who}, that took {MISS_CYCLES} SM cycles or more",
    }


CASE = Case(
    name="l2_residency",
    question="Which lines that are read over and over stay in L2: over the footprint, by who reads them, beside stores?",
    config_type=Config,
    groups={
        "footprint": Group(configs=footprint, metrics=METRICS, rank=3),
        "writes": Group(configs=writes, metrics=METRICS, rank=4),
        "hints": Group(configs=hints, metrics=METRICS, rank=6),
    },
    launch=launch, check=check,
    values={
        "round_cycles": f"SM cycles of the slowest SM's part of a round, the median of the last {NUM_SETTLED} rounds",
        "first_round_cycles": "the same of the first round, which finds nothing in L2",
        "num_sms_of_side_0": "SMs on the side of SM 0",
        "side_correlation": "how clearly sides differ: correlation of latencies with SM 0's, its size, median of the SMs",
        **_of_side(0), **_of_side(1),
    },
    predict=predict, tiers={DRAM_READ: 5, "round_cycles": 4}, fit=fit, derive=derive, includes=grid_include,
)  # fmt: skip
