"""How far apart do CTAs walk that share tiles, step by step, and what sets them apart or draws them together?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import load_gpu, simulate
from gpusim.evidence.cases.case import (
    Case,
    Group,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    Repeated,
    Scratch,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import (
    code_of,
    grid_include,
    operand_map,
    random_words,
    read_fraction,
    ring_launch,
    sms_by_gpc,
    start_waits,
    sum_of_random_words,
)
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import first_sms
from gpusim.machine.memory.gpc_ports import parts_of_gpcs
from gpusim.units import LINE_BYTES
from gpusim.workload import ops
from gpusim.workload.atoms.mma import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.gmem.line_fetches import Fetches, row_fetches
from gpusim.workload.launch import Buffer, RoleContext

GPU = "h200_sxm"
"""Whose GPCs the patterns are made for; others merge elsewhere."""
NUM_CTAS, NUM_THREADS, MOST_PLACES = 132, 64, 256
ROW_BYTES = 128
TENSOR_BYTES = 128 << 20
"""Of words that look random; a larger tensor has them again and again."""
MOST_TOUCHED_BYTES = 16 << 20
"""What all walks together touch, where they stay in L2."""
NUM_NOTED, NUM_BEHIND, NUM_LEAD = 256, 24, 64
"""Steps whose clocks are kept; behind them, which keep the machine as full; of those that are noted, before rates count."""
MEMORY_PITCH_BYTES = 288 * ROW_BYTES
FLUSH_BYTES = 128 << 20
NUM_TICKS, FLAG_WORDS = 32, 32 + 32 + 64 + 256
LEAST_SMEM_BYTES = 120 * 1024
"""So that two CTAs find no room on one SM."""
MOST_SMEM_BYTES = 224 * 1024
BAND_CTAS, WAVE_COLUMNS = 16, 12
NUM_PARTS = 3
"""Of a GPC: CPCs."""

READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (READ, "lts__t_requests_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum")

# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    size: int = 1
    pattern: str = "near"
    sharers: int = 0
    a_rows: int = 64
    b_rows: int = 128
    stages: int = 4
    pitch_bytes: int = 2048
    source: str = "l2"
    math_cycles: int = 0
    skew: str = "none"
    skew_cycles: int = 0

    @property
    def kernel(self) -> str:
        """Entry point."""
        return f"walk_{self.size}"


def _fitting(configs: Sequence[Config]) -> list[Config]:
    return [config for config in configs if stage_bytes(config) * config.stages <= MOST_SMEM_BYTES]


def own() -> list[Config]:
    """Tiles of each SM's own, by bytes under way."""
    return _fitting(Config.sweep(
        b_rows=(64, 96, 128, 192, 256), stages=range(1, 9), pattern="own", a_rows=0, skew="drawn", skew_cycles=1000
    ))  # fmt: skip


def near() -> list[Config]:
    """SMs of a GPC that walk the same tiles of B, each beside tiles of A of its own or alone; begun at once or anywhere."""
    return _fitting([
        Config(sharers=num, a_rows=a, b_rows=b, stages=stages, math_cycles=math, skew=skew, skew_cycles=cycles)
        for num in (1, 2, 4, 8, 16, NUM_CTAS) for a, b in ((0, 64), (0, 128), (64, 128), (64, 256))
        for skew, cycles in (("none", 0), ("drawn", 2000)) for math in (0, 512) for stages in (1, 2, 3, 4)
        if (b >= 128 or (num in (1, 4, 16) and not math))
        and (stages > 1 or not math)  # a stage is kept until the next is full
    ])  # fmt: skip


def late() -> list[Config]:
    """Pairs of which one begins so much later than the other."""
    return Config.sweep(
        a_rows=(0, 64), stages=(2, 4), math_cycles=(0, 512), skew_cycles=(50, 100, 200, 400, 800, 1600), sharers=2,
        skew="second"
    )  # fmt: skip


def bands() -> list[Config]:
    """16 CTAs across a band with the same B, those along it with the same A, as in a GEMM's wave."""
    return _fitting([
        Config(
            size=size, pattern="bands", a_rows=a, b_rows=b, stages=stages, math_cycles=math, skew=skew, skew_cycles=cycles
        )
        for size in (1, 2) for a, b in ((64, 128), (64, 256), (128, 128)) for skew, cycles in (("none", 0), ("drawn", 2000))
        for math in (0, 384, 640) for stages in (2, 3, 4)
    ])  # fmt: skip


def wave() -> list[Config]:
    """11 x 12 tiles of a GEMM, whose rows lie on lines or off them."""
    return _fitting([
        Config(pattern="wave", a_rows=a, b_rows=b, stages=stages, pitch_bytes=pitch, math_cycles=math, skew=skew,
                  skew_cycles=cycles)
        for a, b in ((128, 128), (64, 256)) for pitch in (2048, 2080, 2064)
        for skew, cycles in (("none", 0), ("drawn", 2000)) for math in (0, 640) for stages in (2, 4)
    ])  # fmt: skip


def memory() -> list[Config]:
    """Tiles that are read once, out of memory: of each CTA or cluster, and of bands."""
    return _fitting([
        Config(size=size, pattern=pattern, sharers=sharers, a_rows=a, b_rows=b, stages=stages, math_cycles=math,
                  source="memory", pitch_bytes=MEMORY_PITCH_BYTES, skew="drawn", skew_cycles=1000)
        for size in (1, 2) for pattern, sharers in (("own", 0), ("bands", 0))
        for a, b in ((64, 128), (64, 256), (128, 128), (256, 64)) for math in (0, 640) for stages in (2, 3, 4)
    ])  # fmt: skip


# ---------------------------------------------------------------------------------------------- who walks what
def stage_bytes(config: Config) -> int:
    """A's rows and B's."""
    return (config.a_rows + config.b_rows) * ROW_BYTES


def drawn(place: int, most: int) -> int:
    """A number up to ``most`` that looks random."""
    x = (place * 0x9E3779B1 + 0x7F4A7C15) % 2**32
    x ^= x >> 15
    x = x * 0x2C1B3C6D % 2**32
    return (x * (most + 1)) >> 32


@dataclass(frozen=True, slots=True)
class Walk:
    """Tiles that one CTA walks: numbers among A's and B's; how late it begins."""

    a_tile: int
    b_tile: int
    delay_cycles: int


def is_by_cta(config: Config) -> bool:
    """Whether CTAs walk by their own number, wherever they are; otherwise by their SM's."""
    return config.pattern != "near"


def walks(config: Config) -> dict[int, Walk]:
    """By CTA, or by SM.

    >>> found = walks(Config(sharers=2, skew="second", skew_cycles=50))
    >>> found[0], found[1]
    (Walk(a_tile=0, b_tile=0, delay_cycles=0), Walk(a_tile=1, b_tile=0, delay_cycles=50))
    >>> found[16]
    Walk(a_tile=2, b_tile=1, delay_cycles=0)
    """
    size, num, most = config.size, config.sharers, config.skew_cycles
    tiles: list[tuple[int, int, int, int]] = []  # place, tile of A, of B, rank among those that share B
    if config.pattern == "near":
        gpcs = sms_by_gpc(GPU)
        rows = [[sm for sms in gpcs for sm in sms]] if num == NUM_CTAS else gpcs
        groups = [row[at : at + num] for row in rows for at in range(0, len(row), num)]
        for b_tile, group in enumerate(groups):
            for rank, sm in enumerate(group):
                tiles.append((sm, len(tiles), b_tile, rank))
    elif config.pattern == "own":
        tiles = [(cta, cta, cta // size, cta % size) for cta in range(NUM_CTAS)]
    elif config.pattern == "bands":
        tiles = [(cta, cta % BAND_CTAS, cta // BAND_CTAS, 0) for cta in range(NUM_CTAS)]
    else:
        tiles = [(cta, cta // WAVE_COLUMNS, cta % WAVE_COLUMNS, 0) for cta in range(NUM_CTAS)]
    delays = {
        "none": lambda place, rank: 0, "drawn": lambda place, rank: drawn(place // size, most),
        "second": lambda place, rank: rank * most,
    }[config.skew]  # fmt: skip
    return {place: Walk(a_tile, b_tile, delays(place, rank)) for place, a_tile, b_tile, rank in tiles}


def num_tiles(config: Config) -> tuple[int, int]:
    """Of A and of B."""
    found = walks(config).values()
    return max(walk.a_tile for walk in found) + 1, max(walk.b_tile for walk in found) + 1


def num_rows(config: Config) -> tuple[int, int]:
    """Of A and of B; B's lie behind A's."""
    num_a, num_b = num_tiles(config)
    return num_a * config.a_rows, num_b * config.b_rows


def is_cold(config: Config) -> bool:
    """Whether tiles come out of memory, each once."""
    return config.source == "memory"


def num_warm(config: Config) -> int:
    """Steps before the CTAs meet: all tiles out of L2 at least once."""
    return 8 if is_cold(config) else 16


def num_all_steps(config: Config) -> int:
    """Of a CTA."""
    return num_warm(config) + NUM_NOTED + NUM_BEHIND


def num_steps(config: Config) -> int:
    """Steps before a walk begins again: as many as rows have room for, so few that all fit in L2."""
    steps = config.pitch_bytes // ROW_BYTES
    while steps > 2 and not is_cold(config) and sum(num_rows(config)) * ROW_BYTES * steps > MOST_TOUCHED_BYTES:
        steps //= 2
    return steps


# ---------------------------------------------------------------------------------------------- launch and check
def tensor() -> NDArray[np.uint32]:
    """What all walk over, or what that repeats."""
    return random_words(TENSOR_BYTES)


def first_row_of_b(config: Config) -> int:
    """Behind A's, where they are one tensor."""
    return 0 if is_cold(config) else num_rows(config)[0]


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The same launch under the profiler as without, which empties L2 itself."""
    size, a_rows, b_rows = config.size, config.a_rows, config.b_rows
    places = np.zeros((MOST_PLACES, 4), dtype="<u4")
    found, first_b, pitch = walks(config), first_row_of_b(config), config.pitch_bytes
    for place, walk in found.items():
        places[place] = 1, walk.a_tile * a_rows, first_b + walk.b_tile * b_rows, walk.delay_cycles
    flush_lines = FLUSH_BYTES // (NUM_CTAS * NUM_THREADS * 16) if is_cold(config) and not is_counted else 0
    plan = [
        len(found), is_by_cta(config), config.stages, a_rows, b_rows, num_steps(config), num_warm(config), NUM_NOTED,
        NUM_BEHIND, config.math_cycles, flush_lines,
    ]  # fmt: skip
    heights = num_rows(config)
    if is_cold(config):
        rooms = [Repeated(tensor(), max(1, height) * pitch) for height in heights]
    else:  # one below the other
        rooms, heights = [tensor(), tensor()], (sum(heights), sum(heights))
    boxes = (a_rows or b_rows, b_rows // size)
    maps = [
        MappedTensor(room, operand_map(pitch, max(1, height), box))
        for room, height, box in zip(rooms, heights, boxes, strict=True)
    ]  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("places", places),
            Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")), *maps, Scratch("flush", FLUSH_BYTES),
            Output("told", np.full((MOST_PLACES, 2 + 4 * NUM_TICKS), -1, dtype="<i8")),
            Output("steps", np.zeros((MOST_PLACES, 2, NUM_NOTED), dtype="<u4")),
        ),
        grid=(NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1),
        smem_bytes=max(LEAST_SMEM_BYTES, config.stages * stage_bytes(config)),
    )  # fmt: skip


def sum_of_box(pitch_bytes: int, first_row: int, rows: int, column: int) -> int:
    """The sum, modulo 2^32, of the words of a box."""
    each = ROW_BYTES // 4
    in_order = np.arange(first_row, first_row + rows)
    starts = (in_order * (pitch_bytes // 4) + column * each) % (TENSOR_BYTES // 4)
    return sum_of_random_words(starts, each)


def sum_of_last_stages(config: Config, walk: Walk) -> int:
    """The sum, modulo 2^32, of the words of what the ring holds in the end."""
    steps, last, pitch, total = num_steps(config), num_all_steps(config), config.pitch_bytes, 0
    for rows, tile, first in ((config.a_rows, walk.a_tile, 0), (config.b_rows, walk.b_tile, first_row_of_b(config))):
        for number in range(last - config.stages, last):
            total += sum_of_box(pitch, first + tile * rows, rows, number % steps)
    return total % 2**32


@dataclass(frozen=True, slots=True)
class Noted:
    """What the CTAs of a launch noted, in cycles of one clock that all share, float64[CTAs, steps].

    ``asked``: when a step's copies were asked for, ``full``: when they had come; ``error_cycles``: by how much clocks laid
    side by side before and behind differ from one another at most.
    """

    places: tuple[int, ...]
    sms: tuple[int, ...]
    asked: NDArray[np.float64]
    full: NDArray[np.float64]
    error_cycles: float


def noted(config: Config, outputs: Outputs) -> Noted:
    """Clocks of all CTAs on one scale: each is laid beside the GPU's time where it was seen soonest after it had changed."""
    places = tuple(walks(config))
    told, steps = outputs["told"][list(places)], outputs["steps"][list(places)].astype(np.int64)
    ticks = told[:, 2:].reshape(len(places), 2, 2, NUM_TICKS)  # ns or cycles, before or behind
    ns, cycles = ticks[:, 0].astype(np.float64), ticks[:, 1].astype(np.float64)
    zero_ns = ns.min()
    ns = ns - zero_ns
    rates = (cycles[:, 1].mean(axis=1) - cycles[:, 0].mean(axis=1)) / (ns[:, 1].mean(axis=1) - ns[:, 0].mean(axis=1))
    rate = float(np.median(rates))
    behind = (cycles - rate * ns).min(axis=2)  # CTAs, before or behind: this clock when the GPU's time was zero
    drift = behind[:, 1] - behind[:, 0]
    offset = behind[:, 0]
    begin = cycles[:, 0, -1].astype(np.int64)[:, None, None]
    whole = begin + (steps - begin) % 2**32  # 32 bits of the clock, none of them before the CTAs met
    aligned = whole - offset[:, None, None]
    return Noted(
        places, tuple(told[:, 0].tolist()), aligned[:, 0], aligned[:, 1], float(np.abs(drift - np.median(drift)).max())
    )  # fmt: skip


def sms_by_part() -> dict[str, list[int]]:
    """SMs by the size of their part of a GPC: of 4 SMs, of 6 beside such a part, of 6 beside others of 6.

    >>> {name: len(sms) for name, sms in sms_by_part().items()}
    {'small': 24, 'large': 72, 'even': 36}
    """
    floorplan = load_gpu(GPU).floorplan
    part_of = dict(enumerate(parts_of_gpcs(floorplan.gpc_of_sm, NUM_PARTS)))
    sizes = Counter(part_of.values())
    least = {gpc: min(size for (other, _), size in sizes.items() if other == gpc) for gpc, _ in sizes}
    found: dict[str, list[int]] = {"small": [], "large": [], "even": []}
    for sm, part in sorted(part_of.items()):
        name = "small" if sizes[part] < 6 else "large" if least[part[0]] < 6 else "even"
        found[name].append(sm)
    return found


def sharers(config: Config, sms: Sequence[int]) -> list[list[int]]:
    """Those of one GPC that walk the same tile of B, by number in ``walks``; where nobody shares, those of one GPC."""
    gpc_of = {sm: gpc for gpc, members in enumerate(sms_by_gpc(GPU)) for sm in members}
    found: dict[tuple[int, int], list[int]] = {}
    are_apart = config.pattern == "own" or config.sharers == 1
    for idx, (sm, walk) in enumerate(zip(sms, walks(config).values(), strict=True)):
        found.setdefault((gpc_of[sm], 0 if are_apart else walk.b_tile), []).append(idx)
    return [group for group in found.values() if len(group) > 1]


def apart_cycles(noted: Noted, groups: Sequence[Sequence[int]], first: int, last: int) -> float:
    """Standard deviation of when those of a group had a step, mean of the steps and groups."""
    return float(np.mean([noted.full[group, first:last].std(axis=0, ddof=1).mean() for group in groups]))


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a step, of a copy, and how far apart sharers are."""
    found = walks(config)
    wrong_if(outputs["flags"][1], "a wait was given up, or two CTAs were on one SM")
    sums: dict[tuple[int, int], int] = {}
    for place, walk in found.items():
        key = walk.a_tile, walk.b_tile
        if key not in sums:
            sums[key] = sum_of_last_stages(config, walk)
        if int(outputs["told"][place, 1]) != sums[key]:
            raise WrongAnswer(f"the stages of place {place} have words that sum up to {int(outputs['told'][place, 1])}")
    mine = noted(config, outputs)
    steps = np.diff(mine.full[:, NUM_LEAD:], axis=1)
    each = steps.mean(axis=1)
    wrong_if(len(set(mine.sms)) < len(mine.sms) or (each <= 0).any(), "two CTAs were on one SM, or a clock stood still")
    moved, latency = steps - each[:, None], (mine.full - mine.asked)[:, NUM_LEAD:]
    groups, size, parts = sharers(config, mine.sms), config.size, sms_by_part()
    of_sm = dict(zip(mine.sms, each, strict=True))
    bytes_each = (config.a_rows + config.b_rows / size) * ROW_BYTES
    spans = {"first": (0, 8), "early": (24, 40), "middle": (112, 144), "last": (NUM_NOTED - 32, NUM_NOTED)}
    return {
        "cycles_per_step": float(each.mean()), "slowest_cycles": float(each.max()), "fastest_cycles": float(each.min()),
        **{f"{name}_part_cycles": float(np.mean([of_sm[sm] for sm in sms])) for name, sms in parts.items()},
        "step_dev_cycles": float(steps.std(axis=1).mean()),
        "step_echo": float(((moved[:, 1:] * moved[:, :-1]).mean(axis=1) / np.maximum(steps.var(axis=1), 1e-9)).mean()),
        "copy_cycles": float(latency.mean()), "copy_p10_cycles": float(np.percentile(latency, 10)),
        "copy_p90_cycles": float(np.percentile(latency, 90)),
        **{f"apart_{name}_cycles": apart_cycles(mine, groups, *span) for name, span in spans.items()},
        "clock_error_cycles": mine.error_cycles, "asked_bytes": len(found) * num_all_steps(config) * bytes_each,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_TIMED, TWIN_BEHIND = NUM_NOTED - NUM_LEAD, NUM_BEHIND
WGMMA_CYCLES_PER_COLUMN = 0.5
"""Of wgmma 64 x n x 16 of bf16, by which the twin paces itself."""
# Code that takes a warp so long. Source: that of multicast_rings' loops (its SASS), less or more what rows of this kernel
# say where nothing but code takes time: 374 cycles a step with one copy, 430 with two (434 in clusters), 1,031 paced with
# two stages.
ISSUE_CYCLES, BETWEEN_CYCLES, NEXT_CYCLES = {1: 121.8, 2: 149.7}, 39.0, {1: 195.0, 2: 155.0}
KEEP_CYCLES, GIVE_CYCLES, REST_CYCLES = 42.5, {1: 132.0, 2: 137.0}, 90.1
FREE_CYCLES, LEAVE_CYCLES = {1: 160.2, 2: 165.2}, 67.5


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same rings, simulated; nothing for a GPU of other SMs."""
    if gpu.num_sms != NUM_CTAS or gpu.mbarrier is None:
        return {}
    full, sectors = twin(config, gpu, NUM_LEAD + TWIN_TIMED)
    each = np.diff(full[:, NUM_LEAD:], axis=1).mean(axis=1)
    dealt, size = gpu.floorplan.singles(), config.size
    of_clusters = [sm for cluster in gpu.floorplan.clusters(size) for sm in cluster] if size > 1 else dealt
    sms = [of_clusters[place] if is_by_cta(config) else place for place in walks(config)]
    of_sm = dict(zip(sms, each, strict=True))
    parts = {f"{name}_part_cycles": float(np.mean([of_sm[sm] for sm in of])) for name, of in sms_by_part().items()}
    return {"cycles_per_step": float(each.mean()), **parts, READ: sectors * num_all_steps(config)}


def fetched(config: Config, rows: int) -> Fetches | None:
    """What a box of so many rows fetches; None where all begin on lines."""
    pitch = config.pitch_bytes
    return row_fetches(np.arange(rows) * pitch, ROW_BYTES) if pitch % LINE_BYTES and rows else None


def code_cycles(size: int) -> tuple[float, ...]:
    """Of the pieces of both loops, in clusters of ``size``."""
    return (
        ISSUE_CYCLES[size], BETWEEN_CYCLES, NEXT_CYCLES[size], KEEP_CYCLES, GIVE_CYCLES[size], REST_CYCLES,
        FREE_CYCLES[size], LEAVE_CYCLES,
    )  # fmt: skip


def twin(  # noqa: PLR0915 - one launch, told from its begin to its end
    config: Config, gpu: GpuSpec, num_steps_noted: int
) -> tuple[NDArray[np.float64], float]:
    """When each CTA had each step (float64[CTAs, steps], in the order of ``walks``), and sectors read for a step."""
    size, stages, math, steps = config.size, config.stages, config.math_cycles, num_steps(config)
    a_rows, b_rows, whole = config.a_rows, config.b_rows, stage_bytes(config)
    order, found, dealt = first_sms(gpu.dispatcher, gpu.floorplan), walks(config), gpu.floorplan.singles()
    place_of = {sm: dealt.index(sm) if is_by_cta(config) and size == 1 else sm for sm in order}
    of_cta = {cta: found[cta if is_by_cta(config) and size > 1 else place_of[sm]] for cta, sm in enumerate(order)}
    waits = start_waits(NUM_CTAS, gpu, cluster_size=size)
    count = num_steps_noted + 1 + TWIN_BEHIND
    per_cycle = gpu.warp_scheduler.int32_lanes / 32 / gpu.warp_scheduler.num_schedulers
    issue, between, behind, keep, give, rest, give_at_once, leave = (code_of(cycles, gpu) for cycles in code_cycles(size))
    a_bytes, part_bytes = a_rows * ROW_BYTES, b_rows * ROW_BYTES // size
    per_step = 8 if math > 512 else 4
    columns = round(math / WGMMA_CYCLES_PER_COLUMN) // per_step
    paced = [ops.Wgmma(wgmma(columns, BF16), per_step, (("ring", stage),)) for stage in range(stages)] if math else []
    of_a, of_b = fetched(config, a_rows), fetched(config, b_rows // size)
    empty, filled = (
        [[ops.MbarrierWait(ring, stage, parity) for parity in range(2)] for stage in range(stages)]
        for ring in ("empty", "full")
    )  # fmt: skip
    announced = [ops.MbarrierArriveExpectTx("full", stage, whole) for stage in range(stages)]
    freed = [
        [ops.MbarrierArrive("empty", stage, cta_rank=rank if size > 1 else None) for rank in range(size)]
        for stage in range(stages)
    ]  # fmt: skip
    begun, ended = ops.RangeStart(ops.Section.MAINLOOP), ops.RangeEnd()

    def produce(cta: RoleContext) -> Iterator[Any]:
        rank, walk = cta.cta_idx % size, of_cta[cta.cta_idx]
        yield ops.Alu((waits[cta.cta_idx] + walk.delay_cycles) * per_cycle)
        for step in range(count):
            stage = step % stages
            yield empty[stage][step // stages & 1 ^ 1]
            yield issue
            yield announced[stage]
            if a_bytes:
                tile_a = walk.a_tile, step % steps
                yield ops.TmaLoad("A", tile_a, a_bytes, a_bytes, a_rows, "ring", stage, "full", fetches=of_a)
                yield between
            tile_b = walk.b_tile, step % steps * size + rank
            yield ops.TmaLoad(
                "B", tile_b, part_bytes, part_bytes, b_rows // size, "ring", stage, "full",
                multicast=tuple(range(size)) if size > 1 else (), fetches=of_b,
            )  # fmt: skip
            yield behind

    def consume(cta: RoleContext) -> Iterator[Any]:
        del cta
        for step in range(count):
            stage = step % stages
            yield filled[stage][step // stages & 1]
            yield begun
            yield ended
            if not math:
                yield give_at_once
                yield from freed[stage]
                yield leave
                continue
            yield keep
            yield paced[stage]
            yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(1)
            if step:
                yield give
                yield from freed[(step - 1) % stages]
            yield rest
        if math:
            yield ops.WgmmaWaitGroup(0)

    ring = Buffer(name="ring", stage_bytes=whole, num_stages=stages)
    launched = ring_launch(
        "sharers_apart", (produce, consume), ring, num_ctas=NUM_CTAS,
        least_smem_bytes=LEAST_SMEM_BYTES, cluster_size=size,
    )  # fmt: skip
    producer, consumer = launched.roles
    launched = replace(launched, roles=(producer, replace(consumer, num_warps=4)))
    result = simulate(launched, gpu, clock="max", l2="cold" if is_cold(config) else "warm", recorded_sms=range(NUM_CTAS))
    at = {role.cta_idx: [span.start_cycle for span in role.sections] for role in result.timeline.roles if role.sections}
    full = np.array([at[cta] for cta in sorted(at)])[:, :num_steps_noted]
    places = [cta if is_by_cta(config) and size > 1 else place_of[sm] for cta, sm in enumerate(order)]
    full = full[[places.index(place) for place in found]]
    return full, result.counters[READ] / count


CASE = Case(
    name="sharers_apart",
    question=__doc__,
    config_type=Config,
    groups={
        name: Group(configs=configs, metrics=METRICS, rank=3, least_capability=(9, 0), num_sms=132, is_cold=name == "memory")
        for name, configs in (
            ("own", own), ("near", near), ("late", late), ("bands", bands), ("wave", wave), ("memory", memory),
        )
    },
    launch=launch, check=check,
    values={
        "cycles_per_step": "SM cycles from a full stage to the next, mean of the SMs",
        "slowest_cycles": "the same of the slowest SM",
        "fastest_cycles": "the same of the fastest SM",
        "small_part_cycles": "the same, mean of SMs whose part of a GPC has 4 SMs (every third TPC of eight)",
        "large_part_cycles": "the same of the other SMs of these GPCs",
        "even_part_cycles": "the same of GPCs whose three parts have 6 SMs each",
        "step_dev_cycles": "standard deviation of single steps of an SM, mean of the SMs",
        "step_echo": "correlation of a step's cycles with the next one's, mean of the SMs",
        "copy_cycles": "SM cycles from before a step's copies are asked for until its stage is seen to be full, mean",
        "copy_p10_cycles": "the same, a tenth take less",
        "copy_p90_cycles": "the same, a tenth take more",
        "apart_first_cycles": "standard deviation of when those of a GPC who share B had a step; steps 0 to 7, mean",
        "apart_early_cycles": "the same, steps 24 to 39",
        "apart_middle_cycles": "the same, steps 112 to 143",
        "apart_last_cycles": "the same, steps 224 to 255",
        "clock_error_cycles": "how far SMs' clocks came apart from before the walk until behind it, at most",
        "asked_bytes": "bytes of all steps of all CTAs, a multicast once",
    },
    predict=predict, tiers={"cycles_per_step": 4, "small_part_cycles": 4, "large_part_cycles": 4, READ: 5},
    derive=read_fraction, includes=grid_include,
)  # fmt: skip
