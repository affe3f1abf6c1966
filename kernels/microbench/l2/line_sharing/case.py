"""When several SMs read the same lines, one a little after the other: how long does each wait, and what reaches L2?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from gpusim import Buffer, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
    Fitted,
    FittedConstant,
    Group,
    KernelLaunch,
    Output,
    Outputs,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import grid_include, shot_quantiles, start_cycle, sum_of_words
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import first_sms
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

MEASURED = measured_gpu()
NUM_CTAS = MEASURED.num_sms
"""One an SM; where SMs have other numbers the launch gives itself up."""
NUM_THREADS = 128
ONE_CTA_BYTES = 120 * 1024
"""Of shared memory, so that two CTAs find no room on one SM."""
MIB = 1 << 20
REGION_BYTES = 4 * MIB
NUM_COLD_REGIONS = 64
WARM_FIRST_BYTE = 256 * MIB
"""Behind the regions that are read from HBM, each of which comes up again after 256 MiB of others."""
MOST_SHOTS = 2048
SHOTS_PER_BLOCK = 256
NUM_ROUNDS = 64
MOST_READERS = 8
SLACK_CYCLES = 4500
"""From a shot's last request to the next shot: a miss of HBM, and the bookkeeping between two shots."""
FLAG_WORDS = 32 + 32 + 64 + 256

OF_ONE_GPC = (0, 1, 16, 17, 32, 33, 48, 49)
"""SMs that merge with SM 0, on two H200."""

SKEWS = (0, 25, 50, 100, 150, 200, 250, 300, 350, 400, 500, 600, 800, 1200, 2000)
EDGES = {"l2": range(40, 120, 5), "hbm": range(300, 700, 25)}
"""Skews around that at which the second request no longer joins the first."""
READ = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (
    READ, "lts__t_requests_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum", "l1tex__m_xbar2l1tex_read_bytes.sum", "dram__bytes_read.sum",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    sms: str
    state: str
    lines: str
    shot_bytes: int
    skew_cycles: int
    region: int = NUM_COLD_REGIONS


def _config(kernel: str, sms: Sequence[int] | str, state: str, shot_bytes: int, skew: int, lines: str = "same") -> Config:
    return Config(kernel, sms if isinstance(sms, str) else " ".join(map(str, sms)), state, lines, shot_bytes, skew)


def _runs(config: Config) -> bool:
    """Whether the GPU has the SMs, and the copies."""
    has_sms = config.sms == "cluster" or max(map(int, config.sms.split())) < NUM_CTAS
    return has_sms and (MEASURED.has_clusters or config.kernel.startswith(("load", "cp_async")))


def _placed(configs: Sequence[Config]) -> list[Config]:
    """Each config that reads from HBM with a region of the pool that no other near it has read."""
    placed, num_cold = [], 0
    for config in filter(_runs, configs):
        is_cold = config.state == "hbm"
        placed.append(replace(config, region=num_cold % NUM_COLD_REGIONS) if is_cold else config)
        num_cold += is_cold
    return placed


def skew() -> list[Config]:
    """Pairs of SMs over the time between their requests; every second skew judges."""
    tpc, near, mid, far = (0, 1), (0, 2), (0, 16), (0, 66)
    plans = [
        *product(("load_1", "bulk"), (tpc, near, mid, far), ("l2",), (2048,)),
        *product(("cp_async_1",), (tpc, near), ("l2",), (2048,)),
        *product(("load_1", "bulk"), (tpc, near, far), ("hbm",), (2048,)),
        *product(("load_8", "bulk"), (tpc, near), ("l2",), (16384,)), *product(("bulk",), (near,), ("hbm",), (16384,)),
    ]  # fmt: skip
    return _placed([_config(kernel, sms, state, size, skew) for kernel, sms, state, size in plans for skew in SKEWS])


def edge() -> list[Config]:
    """Pairs of one GPC around the time at which they no longer merge; every second skew judges."""
    ways = (("load_1", 2048), ("bulk", 2048), ("bulk", 16384))
    plans = [(*way, pair, state) for way in ways for pair in ((0, 1), (0, 16)) for state in EDGES]
    return _placed([_config(kernel, sms, state, size, skew) for kernel, size, sms, state in plans for skew in EDGES[state]])


def _turned(sms: Sequence[int]) -> list[int]:
    """The first, then two after two, every second two in turned order, so that of both SMs of a TPC one is in each half.

    >>> _turned(range(1, 8))
    [1, 2, 3, 5, 4, 6, 7]
    """
    pairs = [sms[at : at + 2] for at in range(1, len(sms), 2)]
    return [sms[0], *(sm for idx, pair in enumerate(pairs) for sm in (reversed(pair) if idx % 2 else pair))]


def distance() -> list[Config]:
    """SM 0 with every other SM, and SM 67 with every third, at the same time: who merges with whom.

    Even and odd SMs are in both halves, those that calibrate and those that judge.
    """
    pairs = [(0, other) for other in _turned(range(1, NUM_CTAS))]
    pairs += [(67, other) for other in _turned(range(0, NUM_CTAS, 3)) if other != 67]
    kernel = "bulk" if MEASURED.has_clusters else "load_1"
    return _placed([_config(kernel, pair, "l2", 2048, 0) for pair in pairs])


def readers() -> list[Config]:
    """Three to six readers: neighbours, every second SM, SMs from all over the chip; three to eight that merge with SM 0."""
    ways = (("bulk", "l2"), ("bulk", "hbm"), ("load_1", "l2"))
    plans = [(way, range(0, 6 * step, step)) for way in ways for step in (1, 2, 22)] + [(way, OF_ONE_GPC) for way in ways]
    return _placed([
        _config(kernel, sms[:num], state, 2048, skew)
        for (kernel, state), sms in plans for num in range(3, len(sms) + 1) for skew in (0, 100, 400)
    ])  # fmt: skip


def multicast() -> list[Config]:
    """One request for all CTAs of a cluster."""
    return _placed([
        _config(f"multicast_{size}", "cluster", state, shot_bytes, 0)
        for size in (2, 4, 8) for state in ("l2", "hbm") for shot_bytes in (512, 2048, 8192, 16384)
    ])  # fmt: skip


def control() -> list[Config]:
    """What must not merge: a reader alone, two on lines of their own, two that come long after one another."""
    found = []
    for kernel, size in (("load_1", 2048), ("load_8", 16384), ("cp_async_1", 2048), ("cp_async_8", 16384), ("bulk", 2048),
                         ("bulk", 16384)):  # fmt: skip
        found += [_config(kernel, (0,), state, size, 0) for state in ("l2", "hbm")]
        found += [_config(kernel, (0, 1), "l2", size, 0, "own"), _config(kernel, (0, 1), "l2", size, 20000)]
    found += [_config("load_1", (0,), state, 512, 0) for state in ("l2", "hbm")]
    return _placed(found)


# ---------------------------------------------------------------------------------------------- launch and check
def num_readers(config: Config) -> int:
    """SMs that read."""
    kernel = config.kernel
    return int(kernel.split("_")[1]) if kernel.startswith("multicast") else len(config.sms.split())


def num_shots(config: Config) -> int:
    """Shots that each reader reads: 4 MiB together, or as many as there is patience for."""
    return min(MOST_SHOTS, REGION_BYTES // config.shot_bytes)


def num_region_bytes(config: Config) -> int:
    """Bytes that a reader reads."""
    return num_shots(config) * config.shot_bytes


def first_byte(config: Config, reader: int = 0) -> int:
    """Where in the pool a reader's lines begin."""
    own = REGION_BYTES if config.lines == "own" else 0
    region = config.region
    return (WARM_FIRST_BYTE if region == NUM_COLD_REGIONS else region * REGION_BYTES) + reader * own


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    num = num_readers(config)
    is_cluster = config.sms == "cluster"
    sms = [0] * MOST_READERS if is_cluster else [int(text) for text in config.sms.split()]
    skew_cycles = config.skew_cycles
    shots = num_shots(config)
    plan = [
        *(sms + [0xFFFFFFFF] * MOST_READERS)[:MOST_READERS], num, shots, config.shot_bytes,
        min(SHOTS_PER_BLOCK, shots), skew_cycles, SLACK_CYCLES + (num - 1) * skew_cycles, first_byte(config),
        REGION_BYTES if config.lines == "own" else 0, config.state == "l2", NUM_ROUNDS,
    ]  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")),
            Output("shots", np.full((num, shots, 2), -1, dtype="<i4")), Output("told", np.full((num, 4), -1, dtype="<i8")),
        ),
        grid=(num if is_cluster else NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=ONE_CTA_BYTES,
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Waits of the first, the second and the last reader, and how far apart their requests really were."""
    wrong_if(outputs["flags"][1], "a wait was given up: an SM that is named has no CTA, or a shot never came")
    for reader, (sm, checksum, _, _) in enumerate(outputs["told"].tolist()):
        if config.sms != "cluster" and sm != int(config.sms.split()[reader]):
            raise WrongAnswer(f"reader {reader} was on SM {sm}, not on those of {config.sms!r}")
        wanted = sum_of_words(num_region_bytes(config), first_byte(config, reader))
        wrong_if(checksum != wanted, f"reader {reader} read words that sum up to {checksum}, not {wanted}")
    late, wait = (outputs["shots"][:, :, idx].astype(np.int64) for idx in range(2))
    wrong_if((wait <= 0).any(), "a shot came in no time, or not at all")
    values = {"num_sm_distance": float(outputs["told"][-1, 0] - outputs["told"][0, 0])}
    for name, reader in (("first", 0), ("second", 1), ("last", -1)):
        if len(wait) > abs(reader) or name == "first":
            values |= shot_quantiles(name, wait[reader])
    if len(wait) > 1:
        values |= shot_quantiles("skew", config.skew_cycles + late[1] - late[0])
        values["drift_cycles"] = float(outputs["told"][:, 2].max())
    return values


def warm_sectors(config: Config) -> float:
    """Sectors of the warm-up, in which nothing can merge."""
    return num_readers(config) * num_region_bytes(config) / 32 if config.state == "l2" else 0.0


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """How often a line was read from L2 for one shot of all readers: 1 where all merge, the number of readers at worst."""
    if not row.get(READ):
        return {}
    return {"num_reads_of_a_line": (float(row[READ]) - warm_sectors(Config.of(row))) * 32 / num_region_bytes(Config.of(row))}


# ---------------------------------------------------------------------------------------------- the simulator's answer
def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """One shot of all readers, simulated; the sectors for all shots. Nothing for a GPU whose SMs have other numbers."""
    if gpu.num_sms != NUM_CTAS or gpu.mbarrier is None:
        return {}
    cycles, sectors = _twin(config, gpu)
    values = {READ: sectors * num_shots(config) + warm_sectors(config), "first_p50_cycles": cycles[0]}
    if len(cycles) > 1:
        values |= {"second_p50_cycles": cycles[1], "last_p50_cycles": cycles[-1]}
    return values


def _twin(config: Config, gpu: GpuSpec) -> tuple[tuple[float, ...], float]:
    """Wait of each reader, and sectors at the slices."""
    kernel, sms, num = config.kernel, config.sms, num_readers(config)
    shot_bytes, skew_cycles = config.shot_bytes, config.skew_cycles
    is_cluster, has_lines_of_its_own = sms == "cluster", config.lines == "own"
    arrive_cycles = gpu.mbarrier.arrive_cycles if gpu.mbarrier else 0.0
    of_cta = {idx: idx for idx in range(num)} if is_cluster else {
        cta_on(int(text), gpu): reader for reader, text in enumerate(sms.split())
    }  # fmt: skip
    last_start = cluster_start_cycle(num, gpu) if is_cluster else max(start_cycle(cta, gpu) for cta in of_cta)
    when = {cta: last_start + 100.0 + (0 if is_cluster else reader * skew_cycles) for cta, reader in of_cta.items()}
    access = _access(shot_bytes)

    def program(cta: RoleContext) -> Iterator[Any]:
        reader = of_cta.get(cta.cta_idx)
        if reader is None:
            return
        tile = (reader if has_lines_of_its_own else 0, 0)
        begin = last_start if is_cluster else start_cycle(cta.cta_idx, gpu)
        if not kernel.startswith(("load", "cp")):
            yield ops.MbarrierArriveExpectTx("full", 0, shot_bytes)
            begin += arrive_cycles
        yield ops.Alu((when[cta.cta_idx] - begin) * alu_per_cycle(gpu))
        if kernel.startswith("load"):
            yield ops.Use((yield ops.GlobalLoad("lines", tile, access, allocates_in_l1=False)))
        elif kernel.startswith("cp"):
            yield ops.CpAsync("lines", tile, access, "landing", 0)
            yield ops.CpAsyncCommitGroup()
            yield ops.CpAsyncWaitGroup(0)
        else:
            if not is_cluster or cta.cta_rank == 0:
                ranks = tuple(range(num)) if is_cluster else ()
                yield ops.TmaLoad("lines", tile, shot_bytes, shot_bytes, 1, "landing", 0, "full", multicast=ranks)
            yield ops.MbarrierWait("full", 0, 0)

    of_all = num if is_cluster else gpu.num_sms
    launched = Launch(
        kernel="line_sharing", num_ctas=of_all, num_tiles=of_all, cluster_size=num if is_cluster else 1,
        roles=(WarpRole(name="reader", num_warps=NUM_THREADS // 32, program=program),),
        buffers=(Buffer(name="landing", stage_bytes=ONE_CTA_BYTES),), mbarriers=(Mbarrier(name="full", num_arrivals=1),),
    )  # fmt: skip
    found_code = replace(gpu, dispatcher=replace(gpu.dispatcher, cold_start_cycles=0.0))  # the lines are cold, no more
    result = simulate(
        launched,
        found_code,
        clock="max",
        l2="warm" if config.state == "l2" else "cold",
        recorded_sms=range(gpu.num_sms),
    )
    ends = {role.cta_idx: role.states[-1][2] for role in result.timeline.roles if role.cta_idx in of_cta}
    waits = {reader: ends[cta] - when[cta] + code_cycles(kernel) for cta, reader in of_cta.items()}
    return tuple(waits[reader] for reader in range(num)), result.counters[READ]


CODE_CYCLES = {"load": (29.8, 10.0), "cp_async": (25.4, 0.0), "bulk": (94.7, 0.0), "multicast": (149.4, 0.0)}
"""What lies between the clock's two readings beside the reads themselves, (in all, for each load of a thread): sums, a store
that waits for them, election."""


def way_of(kernel: str) -> tuple[str, int]:
    """What ``CODE_CYCLES`` knows a kernel by, and the loads of its threads; CTAs of a multicast are no loads."""
    way, _, number = kernel.rpartition("_")
    return (way, int(number)) if way in ("load", "cp_async") else (way or kernel, 0)


def code_cycles(kernel: str) -> float:
    """Cycles of a shot that are none of the reads'."""
    way, num_loads = way_of(kernel)
    base, of_load = CODE_CYCLES[way]
    return base + of_load * num_loads


def _access(num_bytes: int) -> AccessPattern:
    """Warps that read so many bytes in a row, 512 of them at once."""
    return AccessPattern(
        num_requests=num_bytes // 512, num_sectors=num_bytes // 32, num_lines=num_bytes // 128,
        num_wavefronts=num_bytes // 128, num_bytes=num_bytes,
    )  # fmt: skip


def cta_on(sm: int, gpu: GpuSpec) -> int:
    """The CTA that the simulator's dispatcher starts on an SM, one an SM."""
    return first_sms(gpu.dispatcher, gpu.floorplan).index(sm)


def cluster_start_cycle(num_ctas: int, gpu: GpuSpec) -> float:
    """When the first instructions of a grid of one cluster are issued."""
    spec = gpu.dispatcher
    dispatched = spec.launch_cycles + num_ctas * spec.dispatch_cycles_per_cta
    return dispatched + spec.cta_start_cycles + (spec.cluster_start_cycles if num_ctas > 1 else 0.0)


def alu_per_cycle(gpu: GpuSpec) -> float:
    """Instructions that each of four warps, one a scheduler, issues in a cycle: what a wait of given length is made of."""
    return gpu.warp_scheduler.int32_lanes / 32 / gpu.warp_scheduler.num_schedulers


# ---------------------------------------------------------------------------------------------- what the rows settle
def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Where merging ends in time and in number; among SMs it ends at the GPC, as ``distance`` shows."""
    window = "skew at which a line is read 1.5 times: median of pairs"
    limit = "most readers for one read of a line, at no skew"
    return [
        *Fitted.median("xbar.coalesce_window_cycles", _windows(rows), window),
        *Fitted.median("xbar.coalesce_max_requests", _limits(rows), limit),
    ]


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What a shot's code takes: the first reader's wait out of L2 without skew, less the twin's reads."""
    left: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["state"] == "l2" and row["skew_cycles"] == "0" and row.get("first_p50_cycles") and gpu.num_sms == NUM_CTAS:
            way, num_loads = way_of(row["kernel"])
            reads = _twin(Config.of(row), gpu)[0][0] - code_cycles(row["kernel"])
            left.setdefault(way, []).append((float(num_loads), float(row["first_p50_cycles"]) - reads))
    how = "first readers out of L2 without skew, cycles beyond the twin's reads"
    found = []
    for way, points in left.items():
        by_loads = {num: float(np.median([y for x, y in points if x == num])) for num, _ in points}
        if way == "load" and len(by_loads) > 1:  # whose results are added up
            slope, base = (float(value) for value in np.polyfit(list(by_loads), list(by_loads.values()), 1))
            found.append(FittedConstant(name="CODE_CYCLES", key=(way, 0), value=base, how=f"{how}: line over loads"))
            found.append(FittedConstant(name="CODE_CYCLES", key=(way, 1), value=slope, how=f"{how}: its slope"))
        else:
            base = float(np.median([value for _, value in points]))
            found.append(FittedConstant(name="CODE_CYCLES", key=(way, 0), value=base, how=f"{how}: median"))
    return found


def _reads(row: Mapping[str, str]) -> float:
    return derive(row).get("num_reads_of_a_line", float("nan"))


def _windows(rows: Sequence[Mapping[str, str]]) -> list[float]:
    """Of each pair that merges at no skew and does not at the largest: the skew between, by straight lines."""
    series: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in rows:
        if row["group"] in {"skew", "edge"} and row["state"] == "l2" and row.get("skew_p50_cycles") and row.get(READ):
            of_pair = series.setdefault((row["kernel"], row["sms"], row["shot_bytes"]), [])
            of_pair.append((float(row["skew_p50_cycles"]), _reads(row)))
    found = []
    for of_pair in series.values():
        skews, reads = np.array(sorted(of_pair)).T
        if reads[0] < 1.25 and reads[-1] > 1.75:
            found.append(float(np.interp(1.5, np.maximum.accumulate(reads), skews)))
    return found


def _limits(rows: Sequence[Mapping[str, str]]) -> list[float]:
    """The most readers for one read, of those that ask at the same time: where seven take two reads, one is for four."""
    found = [
        math.ceil(num_readers(Config.of(row)) / max(1, round(_reads(row))))
        for row in rows
        if row["group"] == "readers" and row["skew_cycles"] == "0" and row["sms"].startswith("0 1 ") and row.get(READ)
    ]
    return [float(max(found))] if found else []


CASE = Case(
    name="line_sharing",
    question="When several SMs read the same lines, one a little after the other: how long does each wait, what reaches L2?",
    config_type=Config,
    groups={
        "skew": Group(configs=skew, metrics=METRICS, rank=3),
        "distance": Group(configs=distance, metrics=METRICS, rank=3),
        "readers": Group(configs=readers, metrics=METRICS, rank=4),
        "multicast": Group(configs=multicast, metrics=METRICS, rank=4, least_capability=(9, 0)),
        "edge": Group(configs=edge, metrics=METRICS, rank=3),
        "control": Group(configs=control, metrics=METRICS, rank=3),
    },
    launch=launch, check=check,
    values={
        "num_sm_distance": "number of the last reader's SM less the first one's",
        **{
            f"{name}_p{pct}_cycles": f"SM cycles from request to last byte of the {name} reader, P{pct} of all shots"
            for name in ("first", "second", "last") for pct in (10, 50, 90)
        },
        **{f"skew_p{pct}_cycles": f"SM cycles from the first to the second reader's request, P{pct} of all shots"
           for pct in (10, 50, 90)},
        "drift_cycles": "largest change of a reader's clock against the first one's between two comparisons, error included",
    },
    predict=predict, tiers={READ: 5, "first_p50_cycles": 2, "second_p50_cycles": 2}, fit=fit,
    fitted_constants=fitted_constants, derive=derive, includes=grid_include,
)  # fmt: skip
