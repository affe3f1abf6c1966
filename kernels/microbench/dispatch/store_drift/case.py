"""How far do the stores of an epilogue set CTAs apart that began together, and how far those that follow on their SMs?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole, load_gpu, simulate
from gpusim.evidence.cases.case import (
    Case,
    Group,
    Input,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    Repeated,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import (
    check_tile_sums,
    code_of,
    gaps_between,
    grid_include,
    grouped_tile,
    num_reads,
    operand_map,
    random_words,
    read_fraction,
    sum_of_box,
    times_of_sharers,
)
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tma.boxes import TensorMap

GPU = "h200_sxm"
"""Whose GPCs SMs are sorted by."""
NUM_SMS = 132
NUM_THREADS = 256
KIB, MIB = 1024, 1 << 20
ROW_BYTES, TILE_ROWS, PITCH_BYTES = 128, 128, 8192
"""Of boxes; of a tile that is stored, and of the matrix that it is stored to."""
PIECE_BYTES = 8192
"""Of a bulk copy that is no box."""
LEAST_SMEM_BYTES = {1: 120 * KIB, 2: 80 * KIB}
"""So that no further CTA finds room on an SM."""
FLAG_WORDS = 32 + 32 + 64 + 256
PATTERN_BYTES = 4 * 1000036
"""Of the words that tensors repeat: no power of two, so that no two tiles are alike."""
MATRIX_BYTES = 96 * MIB
WAYS = ("none", "bulk", "box", "wide", "fragment", "pair")
"""Bulk copies of 8 KiB; boxes of 128 bytes by 128 rows; 16 bytes a lane in a row; fragments, 4 and 8 bytes a lane."""
BULK = ("bulk", "box")
FIELDS = (
    "sm", "is_well", "checksum", "zero", "start", "full", "middle", "walked", "begin", "issued", "read", "done", "exit",
    "ns",
)  # fmt: skip
"""What each CTA tells, as kernel.cu has it."""
OF_CTA = {
    "start": "its start", "full": "its first full stage", "middle": "its middle one", "begin": "its first store",
    "exit": "its exit",
}  # fmt: skip
"""What rows with ``tells`` say of each CTA."""
WINDOWS = (50, 100, 200, 400, 800)
"""Cycles."""
LAGS = (1, 2, 4, 8)
MOST_WAVES = 5

READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (READ, "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum", "dram__bytes_read.sum", "dram__bytes_write.sum")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str = "drift"
    m_tiles: int = 32
    n_tiles: int = 16
    raster_group: int = 4
    b_rows: int = 256
    stages: int = 4
    ctas_per_sm: int = 1
    steps: int = 0
    wrap: int = 64
    math_cycles: int = 0
    work_cycles: int = 0
    way: str = "none"
    store_kib: int = 0
    waits: int = 0
    place: str = "cta"
    live: str = "all"
    ctas: int = 132
    tells: int = 0


def bursts() -> list[Config]:
    """One wave that stores at once, by way and size: one SM, those of a GPC, all."""
    ways = [way for way in WAYS if way != "none"]
    return [
        Config(way=way, store_kib=kib, live=live, waits=1, work_cycles=8000)
        for way in ways for live in ("all", "gpc_0", "gpc_1", "one")
        for kib in ((16, 32, 64, 128) if live == "all" else (16, 64))
    ]  # fmt: skip


def refills() -> list[Config]:
    """Five waves without loads: by way and size, to the same places and to others, with and without the wait for arrival."""
    nothing = Config.sweep(work_cycles=(4000, 16000), ctas=NUM_SMS * MOST_WAVES)
    return nothing + [
        Config(way=way, store_kib=kib, waits=waits, place=place, work_cycles=16000, ctas=NUM_SMS * MOST_WAVES)
        for way in ("bulk", "box", "wide", "fragment") for kib in (16, 64, 128)
        for waits, place in ((0, "cta"), (1, "cta"), (0, "sm"))
    ]  # fmt: skip


def walks() -> list[Config]:
    """Four waves that walk tiles as a GEMM's CTAs do, with math: by raster group, way and size; two CTAs an SM."""
    ways = (("none", 0), ("bulk", 16), ("bulk", 64), ("box", 64), ("wide", 64), ("fragment", 64))
    wide = [
        Config(raster_group=group, steps=64, math_cycles=1024, way=way, store_kib=kib, ctas=32 * 16, tells=int(group == 4))
        for group in (4, 8, 1) for way, kib in ways
    ]  # fmt: skip
    waiting = Config.sweep(raster_group=(4, 8), steps=64, math_cycles=1024, way="bulk", store_kib=64, waits=1, ctas=32 * 16)
    square = [
        Config(
            raster_group=group, m_tiles=32, n_tiles=32, b_rows=128, steps=32, wrap=32, math_cycles=512, way=way,
            store_kib=kib, ctas=32 * 32, ctas_per_sm=ctas, stages=5 - ctas,
        )
        for ctas in (1, 2) for group in (4, 8) for way, kib in (("none", 0), ("bulk", 32), ("wide", 32))
    ]  # fmt: skip
    return wide + waiting + square


def lone() -> list[Config]:
    """One wave that stores nothing: out of memory and out of L2, by shape, stages, math."""
    return [
        Config(
            m_tiles=m, n_tiles=n, raster_group=1, stages=stages, steps=64, wrap=wrap, math_cycles=math, ctas=m * n, tells=1,
        )
        for wrap in (64, 8) for stages in (2, 4) for math in (0, 512) for m, n in ((33, 4), (11, 12))
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check
def store_bytes(config: Config) -> int:
    """Of a CTA's tile."""
    return config.store_kib * KIB


def stage_bytes(config: Config) -> int:
    """A's box and B's."""
    return (TILE_ROWS + config.b_rows) * ROW_BYTES


def num_smem_bytes(config: Config) -> int:
    """Of the ring, or of what is stored."""
    ring = stage_bytes(config) * config.stages if config.steps else 0
    return max(LEAST_SMEM_BYTES[config.ctas_per_sm], ring, store_bytes(config))


@cache
def gpc_of_sm() -> tuple[int, ...]:
    """The GPC of each SM."""
    return tuple(load_gpu(GPU).floorplan.gpc_of_sm)


def live_sms(config: Config) -> list[int]:
    """SMs whose CTAs store."""
    live = config.live
    if live == "all":
        return list(range(NUM_SMS))
    if live == "one":
        return [0]
    return [sm for sm in range(NUM_SMS) if gpc_of_sm()[sm] == int(live.removeprefix("gpc_"))]


def tile_of(config: Config, cta: int) -> tuple[int, int]:
    """(row, column) of a CTA's tile, in Triton's grouped order.

    >>> [tile_of(Config(m_tiles=3, n_tiles=2, raster_group=2), cta) for cta in range(6)]
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    return grouped_tile(cta, m_tiles=config.m_tiles, n_tiles=config.n_tiles, raster_group=config.raster_group)


@cache
def matrix() -> NDArray[np.uint8]:
    """Where tiles go: the kernel gets a pointer to it and a map of it. It lies on the GPU once, for all launches."""
    made = np.zeros(MATRIX_BYTES, dtype=np.uint8)
    made.setflags(write=False)
    return made


def num_rows(config: Config, operand: str) -> int:
    """Of A or B."""
    return config.m_tiles * TILE_ROWS if operand == "a" else config.n_tiles * config.b_rows


def tensor_map(config: Config, operand: str) -> TensorMap:
    """The map of an operand, as a GEMM has it, or of the matrix, ``d``."""
    if operand == "d":
        return TensorMap(
            dtype=BF16, global_dim=(PITCH_BYTES // 2, MATRIX_BYTES // PITCH_BYTES), global_strides_bytes=(PITCH_BYTES,),
            box_dim=(ROW_BYTES // 2, TILE_ROWS), swizzle="none",
        )  # fmt: skip
    return operand_map(config.wrap * ROW_BYTES, num_rows(config, operand), TILE_ROWS if operand == "a" else config.b_rows)


def salt_of(config: Config) -> int:
    """What words are mixed with, so that what an earlier launch left is none of this one."""
    return crc32(repr(sorted(config.items())).encode())


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The same launch under the profiler as without, but that nobody looks at what it has stored."""
    live = live_sms(config)
    bits = [sum(1 << sm % 32 for sm in live if sm // 32 == word) for word in range(5)]
    num_first = NUM_SMS * config.ctas_per_sm
    plan = by_value(np.array([
        config.m_tiles, config.n_tiles, config.raster_group, TILE_ROWS, config.b_rows, config.stages, config.steps,
        config.wrap, config.math_cycles, config.work_cycles, WAYS.index(config.way), store_bytes(config), config.waits,
        config.place == "sm", num_first, len(live) * config.ctas_per_sm, salt_of(config), *bits,
    ], dtype="<u4"))  # fmt: skip
    words = random_words(PATTERN_BYTES)
    operands = [
        MappedTensor(Repeated(words, num_rows(config, name) * config.wrap * ROW_BYTES), tensor_map(config, name))
        for name in "ab"
    ]  # fmt: skip
    num_ctas = config.ctas
    look = KernelLaunch(
        kernel="look", arguments=(plan, Input(matrix()), Output("wrong", np.zeros(1, dtype="<u4"))),
        grid=(num_ctas if config.place == "cta" else NUM_SMS, 1, 1), block=(NUM_THREADS, 1, 1),
    )  # fmt: skip
    can_look = store_bytes(config) > 0 and config.live == "all"
    return KernelLaunch(
        kernel="drift",
        arguments=(
            plan, Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")), *operands, Input(matrix()),
            MappedTensor(matrix(), tensor_map(config, "d")),
            Output("told", np.full((num_ctas, len(FIELDS)), -1, dtype="<i8")),
        ),
        grid=(num_ctas, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=num_smem_bytes(config),
        following=(look,) if can_look and not is_counted else (),
    )  # fmt: skip


def sum_of_last_stage(config: Config, operand: str, panel: int) -> int:
    """The sum, modulo 2^32, of the words of an operand that the last stage holds."""
    rows, step = TILE_ROWS if operand == "a" else config.b_rows, (config.steps - 1) % config.wrap
    words, pitch_bytes = random_words(PATTERN_BYTES), config.wrap * ROW_BYTES
    return sum_of_box(words, panel * rows, rows, pitch_bytes=pitch_bytes, column=step) % 2**32


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """When stores are out, how CTAs follow one another, how far apart those are that share tiles."""
    told = {name: outputs["told"][:, idx] for idx, name in enumerate(FIELDS)}
    if outputs["flags"][1] or (told["is_well"] != 1).any():
        raise WrongAnswer("a wait was given up: an SM has no CTA, or a stage never came")
    if "wrong" in outputs and outputs["wrong"][0]:
        raise WrongAnswer(f"{outputs['wrong'][0]} words of the matrix are not what was stored")
    if config.steps:
        tiles = [tile_of(config, cta) for cta in range(len(told["sm"]))]
        check_tile_sums(tiles, told["checksum"].tolist(), partial(sum_of_last_stage, config), "the last stages of tile")
    zeros: dict[int, int] = {}
    for sm, zero in zip(told["sm"].tolist(), told["zero"].tolist(), strict=True):
        if zero >= 0:
            zeros.setdefault(sm, zero)
    live = live_sms(config)
    wrong_if(set(zeros) != set(live), "SMs had their first CTAs where others should")
    ran = np.isin(told["sm"], live)
    zero = np.array([zeros.get(sm, 0) for sm in told["sm"].tolist()])
    times = {name: (told[name] - zero)[ran].astype(np.float64) for name in FIELDS[4:13]}
    return values_of(config, told["sm"][ran].tolist(), times)


def values_of(config: Config, sms: list[int], times: dict[str, NDArray[np.float64]]) -> dict[str, float]:
    """Of CTAs in order: their SMs, and cycles from the first wave's begin, by what they tell."""
    values: dict[str, float] = {}
    waves = np.arange(len(sms)) // max(1, len(set(sms)) * config.ctas_per_sm)
    first = waves == 0
    for when, of in (("first", first), ("later", ~first)):
        if not of.any() or (when == "later" and waves[-1] == 0):
            continue
        begin = times["begin"][of]
        for name in ("issued", "read", "done"):
            took = times[name][of] - begin
            values |= {f"{when}_{name}_p{pct}_cycles": float(np.percentile(took, pct)) for pct in (0, 10, 50, 90, 100)}
    values |= spreads(sms, times, waves)
    if waves[-1] > 0:
        values |= following(sms, times)
    gpc_of = gpc_of_sm()
    if waves[-1] == 0:
        took = times["read"] - times["begin"]
        for gpc in sorted({gpc_of[sm] for sm in sms}):
            of_gpc = [time for time, sm in zip(took, sms, strict=True) if gpc_of[sm] == gpc]
            values[f"gpc_{gpc}_read_cycles"] = float(np.median(of_gpc))
        values |= {f"sm_{sm}_read_cycles": float(t) for sm, t in zip(sms, took.tolist(), strict=True)}
    if config.steps:
        values["cycles_per_step"] = float(((times["middle"] - times["full"]) / (config.steps // 2)).mean())
        values["asked_bytes"] = float(len(sms) * config.steps * stage_bytes(config))
        values |= apart(config, sms, times["middle"])
    if config.tells == 1:
        for cta, sm in enumerate(sms):
            values[f"sm_of_cta_{cta}"] = float(sm)
            values |= {f"{name}_of_cta_{cta}": float(times[name][cta]) for name in OF_CTA}
    return values


def p10_to_p90(times: NDArray[np.float64]) -> float:
    """How far apart the first tenth and the last are."""
    return float(np.subtract(*np.percentile(times, (90, 10))))


def spreads(sms: list[int], times: dict[str, NDArray[np.float64]], waves: NDArray[np.int64]) -> dict[str, float]:
    """P90 less P10 of starts, stores' begins and exits of each wave; the same of SMs of a GPC, mean of the GPCs."""
    gpcs = np.array([gpc_of_sm()[sm] for sm in sms])
    values = {}
    for wave in range(min(int(waves[-1]) + 1, MOST_WAVES)):
        of = waves == wave
        for name in ("start", "begin", "exit"):
            values[f"wave_{wave}_{name}_spread_cycles"] = p10_to_p90(times[name][of])
            values[f"wave_{wave}_{name}_in_gpc_cycles"] = float(
                np.mean([p10_to_p90(times[name][of & (gpcs == gpc)]) for gpc in sorted(set(gpcs[of].tolist()))])
            )
    return values


def following(sms: list[int], times: dict[str, NDArray[np.float64]]) -> dict[str, float]:
    """From an exit to the next start on the SM, and how often a CTA is in the GPC of one before it."""
    by_sm: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for sm, start, exit_ in zip(sms, times["start"].tolist(), times["exit"].tolist(), strict=True):
        by_sm[sm].append((start, exit_))
    gaps = []
    for spans in by_sm.values():
        starts, exits = sorted(start for start, _ in spans), sorted(exit_ for _, exit_ in spans)
        num_slots = sum(start <= exits[0] for start in starts)
        gaps += [start - exit_ for exit_, start in zip(exits, starts[num_slots:], strict=False)]
    values = {f"gap_p{pct}_cycles": float(np.percentile(gaps, pct)) for pct in (0, 10, 50, 90)}
    gpcs = np.array([gpc_of_sm()[sm] for sm in sms])[len(by_sm) :]
    for lag in LAGS:
        values[f"same_gpc_{lag}_pct"] = 100.0 * float(np.mean(gpcs[lag:] == gpcs[:-lag]))
    return values


def apart(config: Config, sms: list[int], middle: NDArray[np.float64]) -> dict[str, float]:
    """How far apart CTAs of a GPC are that share tiles, half through, and what would merge if nothing but that decided."""
    shares = {"a": TILE_ROWS * ROW_BYTES / stage_bytes(config)}
    shares["b"] = 1.0 - shares["a"]
    values = {f"within_{window}_cycles": 0.0 for window in WINDOWS}
    for place, (operand, share) in enumerate(shares.items()):
        panels = [tile_of(config, cta)[place] for cta in range(len(sms))]
        groups = times_of_sharers(GPU, sms, panels, middle)
        gaps = gaps_between(groups)
        for pct in (25, 50, 75):
            values[f"middle_{operand}_p{pct}_cycles"] = float(np.percentile(gaps, pct)) if gaps else -1.0
        for window in WINDOWS:
            values[f"within_{window}_cycles"] += share * num_reads(groups, window) / len(sms)
    return values


# ---------------------------------------------------------------------------------------------- the simulator's answer

ISSUE_CYCLES, NEXT_CYCLES, CONSUMER_CYCLES = 66.9, 192.9, 147.7
"""What the loops take beside waits and copies. Source: kernels/tile_sharing, whose loops these are."""
MOST_TWIN_STEPS = 40000
"""CTAs times steps of a twin; larger launches are not answered."""
ALU_OF_STORE = 2.0
"""Integer instructions beside a store. Source: SASS, sm_90a."""


def accesses(config: Config) -> AccessPattern:
    """Of a tile that threads store."""
    size, lane = store_bytes(config), np.arange(32)
    if config.way == "wide":
        return global_access((np.arange(size // 512)[:, None] * 512 + lane * 16).reshape(-1, 32), 16)
    each = 4 if config.way == "fragment" else 8
    rows = np.arange(NUM_THREADS // 32)[:, None, None, None] * 16 + 8 * np.arange(2)[None, None, :, None] + lane // 4
    columns = np.arange(size // TILE_ROWS // (4 * each))[None, :, None, None] * 4 * each + lane % 4 * each
    return global_access((rows * PITCH_BYTES + columns).reshape(-1, 32), each)


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same grid, simulated in full; nothing for a GPU of other SMs and large grids."""
    steps, count = config.steps, config.ctas
    if gpu.num_sms != NUM_SMS or gpu.mbarrier is None or count * steps > MOST_TWIN_STEPS or config.live != "all":
        return {}
    result = simulate(twin(config, gpu), gpu, clock="max", l2="cold", recorded_sms=range(NUM_SMS))
    found = sorted(
        (role.cta_idx, role.sm_idx, role.states[0][1], role.states[-1][2], *(span.start_cycle for span in role.sections),
         role.sections[-1].end_cycle)
        for role in result.timeline.roles if role.sections
    )  # fmt: skip
    table = np.array([times for _, _, *times in found], dtype=np.float64).T
    start, exit_, *marks = table
    begin, end = marks[-2:]
    zero = start[0]
    full, middle = (marks[0], marks[1]) if steps else (start, start)
    times = {
        "start": start, "full": full, "middle": middle, "walked": begin, "begin": begin, "issued": begin, "read": end,
        "done": end, "exit": exit_,
    }  # fmt: skip
    values = values_of(config, [int(sm) for _, sm, *_ in found], {name: time - zero for name, time in times.items()})
    return values | {name: result.counters[name] for name in (READ, "dram__bytes_read.sum") if steps}


def twin(config: Config, gpu: GpuSpec) -> Launch:
    """The kernel in the simulator's words."""
    steps, count, stages, wrap = config.steps, config.ctas, config.stages, config.wrap
    math_cycles, work_cycles = config.math_cycles, config.work_cycles
    rows = {"A": TILE_ROWS, "B": config.b_rows}
    whole = stage_bytes(config)
    before, after, consumed = (code_of(cycles, gpu) for cycles in (ISSUE_CYCLES, NEXT_CYCLES, CONSUMER_CYCLES))
    num_warps = NUM_THREADS // 32 if config.way not in ("none", *BULK) else 1
    per_cycle = gpu.warp_scheduler.int32_lanes / 32 / max(gpu.warp_scheduler.num_schedulers, num_warps)

    def produce(cta: RoleContext) -> Iterator[Any]:
        panels = dict(zip("AB", tile_of(config, cta.cta_idx), strict=True))
        for step in range(steps):
            stage = step % stages
            yield ops.MbarrierWait("empty", stage, step // stages & 1 ^ 1)
            yield before
            yield ops.MbarrierArriveExpectTx("full", stage, whole)
            for name, panel in panels.items():
                num = rows[name] * ROW_BYTES
                yield ops.TmaLoad(name, (panel, step % wrap), num, num, rows[name], "ring", stage, "full")
            yield after

    def consume(cta: RoleContext) -> Iterator[Any]:
        for step in range(steps):
            yield ops.MbarrierWait("full", step % stages, step // stages & 1)
            if step == steps // 2:
                yield ops.RangeEnd()
            if step in {0, steps // 2}:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            yield consumed
            if math_cycles:
                yield ops.Alu(math_cycles * per_cycle)
            yield ops.MbarrierArrive("empty", step % stages)
        if steps:
            yield ops.RangeEnd()
        if work_cycles:
            yield ops.Alu(work_cycles * per_cycle)
        yield from stored(config, cta.cta_idx)

    ring = whole * stages if steps else 0
    buffers = (
        *((Buffer(name="ring", stage_bytes=whole, num_stages=stages),) if steps else ()),
        Buffer(name="staging", stage_bytes=max(num_smem_bytes(config) - ring, 16)),
    )  # fmt: skip
    roles = [WarpRole(name="consumer", num_warps=num_warps, program=consume)]
    if steps:
        roles.insert(0, WarpRole(name="producer", num_warps=1, program=produce))
    return Launch(
        kernel="store_drift", num_ctas=count, num_tiles=count, roles=tuple(roles), buffers=buffers,
        mbarriers=tuple(Mbarrier(name=name, num_arrivals=1, num_stages=stages) for name in ("full", "empty") if steps),
        tensor_maps=("A", "B", "D") if config.way == "box" else ("A", "B"),  # other bulk stores have none
    )  # fmt: skip


def stored(config: Config, cta_idx: int) -> Iterator[Any]:
    """What a CTA does behind its last step: its stores, in a range of their own."""
    way, size = config.way, store_bytes(config)
    tile = (cta_idx if config.place == "cta" else cta_idx % NUM_SMS, 0)
    if way in BULK:
        whole = AccessPattern(num_requests=size // 512, num_wavefronts=size // 128, num_bytes=size)
        yield ops.SharedStore(whole, "staging", 0)
    yield ops.RangeStart(ops.Section.EPILOGUE)
    if way in BULK:
        piece = PIECE_BYTES if way == "bulk" else TILE_ROWS * ROW_BYTES
        for _ in range(size // piece):
            yield ops.TmaStore("D", tile, piece, 1 if way == "bulk" else TILE_ROWS, "staging", 0)
        yield ops.BulkCommitGroup()
        yield ops.BulkWaitGroup(0, read=config.waits == 0)
    elif way != "none":
        access = accesses(config)
        yield ops.Alu(ALU_OF_STORE * access.num_requests / (NUM_THREADS // 32))
        yield ops.GlobalStore("D", tile, access)
        if config.waits == 1:
            yield ops.FenceAcqRel()
    yield ops.RangeEnd()


def meanings() -> dict[str, str]:
    """Of all values; SM cycles, by the SM's own clock, from where all CTAs of the first wave begin."""
    found = {}
    for when in ("first", "later"):
        for name, text in (("issued", "all is issued"), ("read", "its source is read"), ("done", "all waits are over")):
            for pct in (0, 10, 50, 90, 100):
                found[f"{when}_{name}_p{pct}_cycles"] = f"from a CTA's first store until {text}, {when} wave(s), P{pct}"
    for wave in range(MOST_WAVES):
        for name, text in (("start", "starts"), ("begin", "first stores"), ("exit", "exits")):
            found[f"wave_{wave}_{name}_spread_cycles"] = f"{text} of wave {wave}: P90 less P10"
            found[f"wave_{wave}_{name}_in_gpc_cycles"] = "the same of SMs of a GPC, mean of the GPCs"
    found |= {f"gap_p{pct}_cycles": f"from an exit to the next start on the SM, P{pct}" for pct in (0, 10, 50, 90)}
    found |= {f"same_gpc_{lag}_pct": f"of later CTAs, those in the GPC of the one {lag} before" for lag in LAGS}
    found |= {f"gpc_{gpc}_read_cycles": f"from first store to source read, median of GPC {gpc}" for gpc in range(8)}
    found |= {f"sm_{sm}_read_cycles": f"the same of SM {sm}" for sm in range(NUM_SMS)}
    found |= {
        "cycles_per_step": "from the first full stage to the middle one, a step, mean", "asked_bytes": "bytes of all steps",
    }  # fmt: skip
    for operand in "ab":
        for pct in (25, 50, 75):
            found[f"middle_{operand}_p{pct}_cycles"] = (
                f"half through, from the one before of a GPC and panel of {operand}, P{pct}"
            )
    for window in WINDOWS:
        found[f"within_{window}_cycles"] = "what would be read of what is asked for if all so near merged, four at most"
    for cta in range(32 * 16):
        found[f"sm_of_cta_{cta}"] = f"SM of CTA {cta}"
        found |= {f"{name}_of_cta_{cta}": text for name, text in OF_CTA.items()}
    return found


def _group(configs: Any, rank: int, *, is_counted: bool = False) -> Group:
    metrics = METRICS if is_counted else ()
    return Group(configs=configs, metrics=metrics, rank=rank, least_capability=(9, 0), num_sms=132, is_cold=is_counted)


CASE = Case(
    name="store_drift",
    question=__doc__,
    config_type=Config,
    groups={"bursts": _group(bursts, 3), "refills": _group(refills, 3), "walks": _group(walks, 2, is_counted=True),
        "lone": _group(lone, 2, is_counted=True)},
    launch=launch, check=check, values=meanings(), predict=predict, tiers={READ: 5}, derive=read_fraction,
    includes=grid_include, followers=("look",),
)  # fmt: skip
