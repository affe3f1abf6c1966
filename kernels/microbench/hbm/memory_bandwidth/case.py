"""How many bytes move, by footprint, bytes in flight, access and live SMs, and how long does a load take meanwhile?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
    Fitted,
    Group,
    Input,
    KernelLaunch,
    Output,
    Outputs,
    Scratch,
    WrongAnswer,
    by_value,
)  # fmt: skip
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.machine.dispatcher import first_sms
from gpusim.simulate.result import Result
from gpusim.units import SECTOR_BYTES
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, RoleContext
from gpusim.workload.smem.access import AccessPattern

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
NUM_SMS = measured_gpu().num_sms
"""Of the H200; the grid has as many CTAs, times those an SM."""
BUFFER_BYTES = 4 * GIB
SECOND_AT = 2 * GIB
"""The half that copies, mixes and chases use beside the first."""
TABLE_WORDS = 1 << 20
RESIDENT_BYTES = 130 * MIB
"""Footprints up to here are walked once before the clock is read, larger ones hardly."""
SM_BYTES = 30_000_000
"""What an SM moves at most while the clock runs, about a quarter of a millisecond at 64 bytes a cycle."""
STEPS_AT_LEAST, STEPS_WANTED = 8, 1000
STREAM_CYCLES = 4_000_000
MOST_SAMPLES = 4096
NODE_BYTES = 128
SMEM_BYTES = {1: 200 * KIB, 2: 110 * KIB, 4: 55 * KIB}
"""Dynamic shared memory with which just so many CTAs fit on an SM of 228 KiB, each of which takes 1 KiB more."""
NUM_CLUSTERS, CLUSTER_SMEM_BYTES = 600, 110 * KIB
MASK_BITS = 44
NOBODY = 0xFFFFFFFF

ROUND_BYTES = NUM_SMS * 32 * KIB
"""What all SMs move in a step of the footprint group."""
ROUNDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 24, 30)
LARGE = (256 * MIB, 512 * MIB, GIB, 2 * GIB, 4 * GIB)
FOOTPRINTS = (*(rounds * ROUND_BYTES for rounds in ROUNDS), *LARGE)
MIB_OF_ALL = NUM_SMS * 8 * KIB
"""About a megabyte that all SMs share out evenly."""
IN_L2, IN_HBM = 4 * ROUND_BYTES, 2 * GIB

PLAN_FIELDS = ("chunk_bytes", "num_chunks", "stride_chunks", "num_rounds", "first_factor", "turn", "num_warm", "num_steps")
STREAM_FIELDS = (
    "num_live", "ctas_per_sm", *PLAN_FIELDS, "write_quarters", "num_stages", "probe_sm", "num_nodes", "num_bits", "is_warm",
    "num_samples", "stream_cycles",
)  # fmt: skip
STREAM = np.dtype([("fill_bytes", "<u8", 2), ("second_at", "<u8"), ("live", "<u4", 8), *((f, "<u4") for f in STREAM_FIELDS)])
STATE = np.dtype([
    ("arrived", "<u4", 4), ("has_failed", "<u4"), ("read_sum", "<u4"), ("written_sum", "<u4"), ("num_sampled", "<u4"),
    ("probe_end", "<u8"), ("ctas_on_sm", "<u4", 256),
])  # fmt: skip
WORKER = np.dtype([("begin_ns", "<i8"), ("end_ns", "<i8"), ("cycles", "<i8"), ("sm", "<u4"), ("num_steps", "<u4")])
"""Structures of kernel.cu."""


# ---------------------------------------------------------------------------------------------- configs
SHARINGS = ("own", "turned", "blocked", "all", "together")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    footprint_bytes: int = 0
    sharing: str = "own"
    placement: str = "all"
    count: int = NUM_SMS
    ctas_per_sm: int = 1
    threads: int = 128
    box_bytes: int = 0
    stages: int = 0
    write_quarters: int = 0
    chase_bytes: int = 0
    sm: int = 0
    turn: int = 0


def topology_configs() -> list[Config]:
    """Clusters of several sizes, four times each; then what is known of each SM."""
    return discovery(4) + Config.sweep(sm=range(NUM_SMS), kernel="clusters_of_5", turn=99)


def discovery(num_turns: int) -> list[Config]:
    """Launches that find out which SMs share a GPC."""
    return [Config(f"clusters_of_{size}", turn=turn) for turn in range(num_turns) for size in (2, 3, 5, 7, 8)]


def footprint_configs() -> list[Config]:
    """Every footprint: reads by sharing, writes, copies, mixtures, TMA."""
    threads = {"threads": 512}
    boxes = {"threads": 64, "box_bytes": 16 * KIB, "stages": 8}
    sweeps: list[tuple[str, dict[str, Any]]] = [
        *(("read_cg_b128_u4", {"sharing": sharing, **threads}) for sharing in SHARINGS),
        ("read_ca_b128_u4", threads), ("write_b128_u4", threads), ("copy_b128_u4", threads),
        *(("mix_b128_u4", {"write_quarters": quarters, **threads}) for quarters in (1, 2, 3)),
        ("tma_load", boxes), ("tma_load", {"sharing": "all", **boxes}), ("tma_store", boxes),
    ]  # fmt: skip
    large = [
        Config(kernel, footprint_bytes=size, **columns) for kernel, columns in sweeps for size in FOOTPRINTS
        if size <= (SECOND_AT if kernel.startswith("mix") else BUFFER_BYTES)
    ]  # fmt: skip
    small = [
        Config("read_cg_b128_u1", footprint_bytes=times * MIB_OF_ALL, sharing=sharing, threads=256, ctas_per_sm=ctas)
        for sharing in ("own", "all", "together") for ctas, sizes in ((2, (1, 2, 4, 16)), (4, (2, 4, 16))) for times in sizes
    ]  # fmt: skip
    return large + small


def in_flight_configs() -> list[Config]:
    """Bytes in flight an SM: CTAs, threads, loads of each, their width; boxes of TMA; all SMs live, and one."""
    everywhere: list[tuple[str, dict[str, Any]]] = [
        *((f"read_cg_b128_u{u}", {"threads": n}) for u in (1, 2, 4, 8) for n in (32, 64, 128, 256, 512, 1024)),
        *((f"write_b128_u{u}", {"threads": n}) for u in (1, 4) for n in (32, 64, 128, 256, 512, 1024)),
        *((kernel, {"box_bytes": box, "stages": stages}) for kernel in ("tma_load", "tma_store")
          for box in (KIB << i for i in range(6)) for stages in (1, 2, 4, 8) if box * stages <= 192 * KIB),
    ]  # fmt: skip
    on_all: list[tuple[str, dict[str, Any]]] = [
        *((f"read_cg_b128_u{u}", {"threads": n, "ctas_per_sm": ctas})
          for ctas, sizes in ((2, (64, 256, 512)), (4, (32, 128, 256))) for u in (1, 4) for n in sizes),
        *((f"read_cg_b{bits}_u{u}", {"threads": n}) for bits in (32, 64) for u in (1, 4) for n in (128, 512, 1024)),
        *((f"write_b32_u{u}", {"threads": n}) for u in (1, 4) for n in (128, 1024)),
        *((f"read_{tag}_b128_u4", {"threads": n}) for tag in ("ca", "na") for n in (128, 512, 1024)),
    ]  # fmt: skip
    found = []
    first: dict[str, Any] = {"placement": "first", "count": 1}
    for kernels, place, resident in ((everywhere + on_all, {}, IN_L2), (everywhere, first, 4 * MIB)):
        for size in (resident, IN_HBM):
            found += [Config(kernel, footprint_bytes=size, **place, **columns) for kernel, columns in kernels]
    return found


STREAMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_cg_b128_u4", {"threads": 512}), ("write_b128_u4", {"threads": 512}),
    ("tma_load", {"box_bytes": 16 * KIB, "stages": 8}), ("tma_store", {"box_bytes": 16 * KIB, "stages": 8}),
)  # fmt: skip
PLACES = (
    *(("spread", count) for count in (1, 2, 4, 8, 16, 32, 64)), *(("tpc", count) for count in (2, 4, 8, 16, 32, 64)),
    *(("gpc", count) for count in (2, 4, 8, 12, 16)), *(("whole_gpcs", count) for count in (1, 2, 3, 4, 6)),
    ("all", NUM_SMS),
)  # fmt: skip


def live_configs() -> list[Config]:
    """Which SMs are live: one by one over GPCs, whole TPCs, within a GPC, whole GPCs; after launches that find them out."""
    return discovery(3) + [
        Config(kernel, footprint_bytes=size, placement=placement, count=count, **columns) for kernel, columns in STREAMS
        for size in (IN_L2, IN_HBM) for placement, count in PLACES
    ]  # fmt: skip


def loaded_configs() -> list[Config]:
    """A chase on one SM beside streams on the others, at many rates: both in memory, both in L2, and one in each."""
    rates = [
        *(("chase_beside_read_u1", n, 131) for n in (32, 64, 128, 256, 512, 1024)),
        *(("chase_beside_read_u4", n, 131) for n in (512, 1024)),
        *(("chase_beside_write_u1", n, 131) for n in (32, 128, 512, 1024)),
        *(("chase_beside_read_u4", 1024, count) for count in (0, 8, 32, 64)),
    ]
    return [
        Config(kernel, footprint_bytes=size, placement="others", count=count, threads=n, chase_bytes=chase, sm=sm)
        for sm in (0, 65) for size, chase in ((IN_HBM, GIB), (IN_L2, 4 * MIB), (IN_L2, GIB)) for kernel, n, count in rates
    ]  # fmt: skip


def counted_configs() -> list[Config]:
    """A few of the others, counted: how many bytes the slices and memory move for those that were asked for."""
    threads, boxes = {"threads": 512}, {"threads": 64, "box_bytes": 16 * KIB, "stages": 8}
    kinds: list[tuple[str, dict[str, Any]]] = [
        *(("read_cg_b128_u4", {"sharing": sharing, **threads}) for sharing in ("own", "turned", "all", "together")),
        *((f"read_{tag}_b128_u4", threads) for tag in ("ca", "na")),
        ("write_b128_u4", threads), ("copy_b128_u4", threads), ("mix_b128_u4", {"write_quarters": 2, **threads}),
        ("tma_load", boxes), ("tma_load", {"sharing": "together", **boxes}), ("tma_store", boxes),
    ]  # fmt: skip
    return [
        Config(kernel, footprint_bytes=size, **columns) for kernel, columns in kinds
        for size in (IN_L2, 12 * ROUND_BYTES, IN_HBM)
    ]  # fmt: skip


METRICS = (
    "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum",
    "lts__t_sectors_srcunit_tex_lookup_miss.sum", "lts__t_sectors_srcunit_ltcfabric.sum", "dram__bytes_read.sum",
    "dram__bytes_write.sum", "l1tex__m_xbar2l1tex_read_bytes.sum", "l1tex__m_l1tex2xbar_write_bytes.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- which SMs share a GPC
@dataclass(slots=True)
class Neighbours:
    """SMs that were seen in one cluster, and so are of one GPC; sets grow together as more is seen.

    >>> seen = Neighbours()
    >>> for cluster in ([0, 1], [4, 5], [1, 4], [7, 8]):
    ...     seen.meet(cluster)
    >>> seen.groups()
    [[0, 1, 4, 5], [7, 8]]
    """

    parent: dict[int, int] = field(default_factory=dict)

    def first_of(self, sm: int) -> int:
        """The least SM that is known to share the GPC of ``sm``."""
        self.parent.setdefault(sm, sm)
        while self.parent[sm] != sm:
            sm = self.parent[sm]
        return sm

    def meet(self, sms: Iterable[int]) -> None:
        """These ran as one cluster."""
        roots = sorted({self.first_of(sm) for sm in sms})
        for root in roots[1:]:
            self.parent[root] = roots[0]

    def groups(self) -> list[list[int]]:
        """The sets, the largest first, each in order."""
        found: dict[int, list[int]] = {}
        for sm in sorted(self.parent):
            found.setdefault(self.first_of(sm), []).append(sm)
        return sorted(found.values(), key=lambda group: (-len(group), group))


@cache
def seen() -> Neighbours:
    """What launches of this process have found out; GPUs of one name differ, so it is asked of the one that is measured."""
    return Neighbours()


def tpc_first(sms: Iterable[int]) -> list[int]:
    """One SM of each TPC, and then the others; SMs 2i and 2i + 1 are a TPC.

    >>> tpc_first(range(6))
    [0, 2, 4, 1, 3, 5]
    """
    return sorted(sms, key=lambda sm: (sm % 2, sm))


def in_turn(groups: list[list[int]]) -> list[int]:
    """One of each group, then the next of each.

    >>> in_turn([[0, 2, 4], [1]])
    [0, 1, 2, 4]
    """
    longest = max((len(group) for group in groups), default=0)
    return [group[idx] for idx in range(longest) for group in groups if idx < len(group)]


def live_sms(config: Config, found: Neighbours | None = None) -> list[int]:
    """The SMs that work, in order; empty where it is not known which, or where there are not enough.

    ``found``: which SMs share a GPC; what launches of this process have seen if it is not given.
    """
    placement, count = config.placement, config.count
    every = list(range(NUM_SMS))
    groups = (found or seen()).groups()
    if placement == "whole_gpcs":
        return sorted(sm for group in groups[:count] for sm in group) if len(groups) >= count else []
    if placement == "all":
        order = every
    elif placement == "first":
        order = tpc_first(every)
    elif placement == "others":
        probe = config.sm
        order = [sm for sm in tpc_first(every) if sm // 2 != probe // 2] + [probe ^ 1]
    elif placement == "gpc":
        order = tpc_first(groups[0]) if groups else []
    elif placement == "spread":
        order = in_turn([tpc_first(group) for group in groups])
    else:
        pairs = in_turn([sorted({sm // 2 for sm in group}) for group in groups])
        order = [sm for pair in pairs for sm in (2 * pair, 2 * pair + 1)]
    return sorted(order[:count]) if len(order) >= count else []


# ---------------------------------------------------------------------------------------------- what a launch does
def access_bytes(kernel: str) -> int:
    """Bytes of one load or store of a thread."""
    found = re.search(r"_b(\d+)_", kernel)
    return int(found[1]) // 8 if found else 16


def chunk_bytes(config: Config) -> int:
    """What a CTA moves in a step."""
    if config.kernel.startswith("tma"):
        return config.box_bytes
    unroll = int(config.kernel.rsplit("_u", 1)[1])
    return config.threads * access_bytes(config.kernel) * unroll


def in_flight_bytes(config: Config) -> int:
    """The most bytes that an SM has asked for and not got."""
    return config.ctas_per_sm * chunk_bytes(config) * max(1, config.stages)


def is_loaded(config: Config) -> bool:
    """Whether a chase goes on beside the streams."""
    return config.kernel.startswith("chase")


@dataclass(frozen=True, slots=True)
class Plan:
    """Who moves which chunks, step by step."""

    num_workers: int
    chunk_bytes: int
    num_chunks: int
    stride_chunks: int
    num_rounds: int
    first_factor: int
    turn: int
    num_warm: int
    num_steps: int

    def firsts(self, passes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Chunk at which each worker begins each pass, int64[len(passes), num_workers]."""
        workers = np.arange(self.num_workers)
        return (workers + passes[:, None] * self.turn) % self.num_workers * self.first_factor

    def chunks(self, first: int, last: int) -> NDArray[np.int64]:
        """Chunks of steps ``first`` to ``last - 1``, int64[steps, num_workers]."""
        steps = np.arange(first, last)
        found = self.firsts(steps // self.num_rounds) + (steps % self.num_rounds)[:, None] * self.stride_chunks
        return np.asarray(found % self.num_chunks)

    @property
    def used_bytes(self) -> int:
        """What the chunks cover, of each half."""
        return self.num_chunks * self.chunk_bytes


def plan_of(config: Config, num_live: int) -> Plan:
    """The plan where ``num_live`` SMs work."""
    size, sharing = chunk_bytes(config), config.sharing
    workers = max(1, num_live * config.ctas_per_sm)
    footprint = config.footprint_bytes // (2 if config.kernel.startswith("copy") else 1)
    rounds = max(1, footprint // (workers * size))
    factor, stride, chunks = 1, workers, rounds * workers
    if sharing in ("all", "together"):
        rounds = chunks = max(workers, footprint // size)
        factor, stride = (chunks // workers if sharing == "all" else 0), 1
    elif sharing == "blocked":
        factor, stride = rounds, 1
    per_worker = min(SM_BYTES, STEPS_WANTED * in_flight_bytes(config)) // config.ctas_per_sm
    steps = max(STEPS_AT_LEAST, config.stages, -(-per_worker // size))
    is_small = config.footprint_bytes <= RESIDENT_BYTES
    if is_small:
        steps = max(steps, rounds if stride == 1 and sharing != "blocked" else 2 * rounds)
    warm = rounds if is_small else min(STEPS_AT_LEAST, rounds)
    return Plan(
        num_workers=workers, chunk_bytes=size, num_chunks=chunks, stride_chunks=stride, num_rounds=rounds,
        first_factor=factor, turn=37 if sharing == "turned" else 0, num_warm=warm, num_steps=steps,
    )  # fmt: skip


@cache
def table() -> NDArray[np.uint32]:
    """Random normal numbers, as the words that hold them."""
    words = np.random.default_rng(1).standard_normal(TABLE_WORDS).astype("<f4").view("<u4")
    words.setflags(write=False)
    return words


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The launch; where it is counted nothing is filled, so that counts are of the steps alone."""
    if config.kernel.startswith("clusters"):
        size = int(config.kernel.rsplit("_", 1)[1])
        seed = np.uint32(config.turn * 1000 + config.sm)
        sms = Output("sms", np.full(size * NUM_CLUSTERS, 0xFFFF, dtype="<u2"))
        return KernelLaunch(
            kernel=config.kernel, arguments=(seed, sms), grid=(size * NUM_CLUSTERS, 1, 1), block=(128, 1, 1),
            smem_bytes=CLUSTER_SMEM_BYTES, carveout_pct=100,
        )  # fmt: skip
    sms_live = live_sms(config)
    ctas, plan = config.ctas_per_sm, plan_of(config, len(sms_live))
    stream = np.zeros(1, dtype=STREAM)
    for name in PLAN_FIELDS:
        stream[name] = getattr(plan, name)
    stream["second_at"], stream["num_live"], stream["ctas_per_sm"] = SECOND_AT, len(sms_live), ctas
    for sm in sms_live:
        stream["live"][0, sm // 32] |= np.uint32(1 << sm % 32)
    stream["write_quarters"], stream["num_stages"] = config.write_quarters, config.stages
    uses_second = config.kernel.startswith(("copy", "mix"))
    if not is_counted:
        stream["fill_bytes"] = [plan.used_bytes, plan.used_bytes if uses_second else 0]
    stream["probe_sm"] = NOBODY
    if is_loaded(config):
        nodes = config.chase_bytes // NODE_BYTES
        stream["probe_sm"], stream["num_nodes"], stream["num_bits"] = config.sm, nodes, nodes.bit_length() - 1
        stream["is_warm"], stream["num_samples"] = config.chase_bytes <= RESIDENT_BYTES, MOST_SAMPLES
        stream["stream_cycles"] = STREAM_CYCLES
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(stream.view(np.uint8)), Input(table()), Scratch("room", BUFFER_BYTES),
            Output("state", np.zeros(1, dtype=STATE)), Output("workers", np.zeros(plan.num_workers, dtype=WORKER)),
            Output("times", np.zeros(MOST_SAMPLES, dtype="<u2")),
        ),
        grid=(NUM_SMS * ctas, 1, 1), block=(config.threads, 1, 1), smem_bytes=SMEM_BYTES[ctas], carveout_pct=100,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- what must come out
@cache
def _prefix() -> NDArray[np.uint64]:
    return np.concatenate([[0], np.cumsum(table(), dtype=np.uint64)]).astype(np.uint64)


def sum_before(words: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Sum of the first so many words of the filled buffer, modulo 2 ** 64."""
    periods, rest = (words // TABLE_WORDS).astype(np.uint64), words % TABLE_WORDS
    period = np.uint64(TABLE_WORDS)
    more = period * (periods * (periods - np.uint64(1)) // np.uint64(2)) * (periods > 0)
    return np.asarray(periods * _prefix()[-1] + more + _prefix()[rest] + rest.astype(np.uint64) * periods)


def sums_of(chunks: NDArray[np.int64], size: int, begin_bytes: int = 0) -> NDArray[np.uint64]:
    """Sum of the words of each filled chunk of ``size`` bytes, the first of which lies at ``begin_bytes``."""
    words, start = size // 4, begin_bytes // 4
    return np.asarray(sum_before(start + (chunks + 1) * words) - sum_before(start + chunks * words))


@cache
def expected(config: Config, num_live: int) -> tuple[int, int]:
    """(sum of what is read, sum of what was written to), modulo 2 ** 32; 0 where a kernel has no such thing."""
    kernel, plan = config.kernel, plan_of(config, num_live)
    size, last = plan.chunk_bytes, plan.num_warm + plan.num_steps
    if kernel == "tma_load":
        return _folded(sums_of(plan.chunks(last - config.stages, last), size)), 0
    chunks = plan.chunks(0, last)
    if kernel.startswith("read"):
        return _folded(sums_of(chunks, size)), 0
    steps = np.broadcast_to(np.arange(last)[:, None], chunks.shape)
    writes = np.ones(chunks.shape, dtype=np.bool_)
    read = 0
    if kernel.startswith("mix"):
        phase = plan.firsts(np.arange(last) // plan.num_rounds) + steps % plan.num_rounds
        writes = phase % 4 < config.write_quarters
        read = _folded(sums_of(chunks[~writes], size))
    latest = np.full(plan.num_chunks, -1)
    np.maximum.at(latest, chunks[writes], steps[writes])
    written = np.flatnonzero(latest >= 0)
    begin = SECOND_AT if kernel.startswith(("copy", "mix")) else 0
    whole = sums_of(np.zeros(1, dtype=np.int64), plan.used_bytes, begin)[0]
    gone = sums_of(written, size, begin).sum(dtype=np.uint64)
    come = _content(config, plan, written, latest[written]).sum(dtype=np.uint64)
    return read, (int(whole) - int(gone) + int(come)) & 0xFFFFFFFF


def _content(config: Config, plan: Plan, chunks: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Sum of the words of each chunk that a step has written."""
    words = plan.chunk_bytes // 4
    if config.kernel.startswith("copy"):
        return sums_of(chunks, plan.chunk_bytes)
    if config.kernel == "tma_store":
        stages = np.where(steps >= plan.num_warm, steps - plan.num_warm, steps) % config.stages
        return sums_of(stages, plan.chunk_bytes)
    passes = (steps // plan.num_rounds).astype(np.uint64)
    return np.asarray(_prefix()[words] + np.uint64(words) * passes)


def _folded(sums: NDArray[np.uint64]) -> int:
    return int(sums.sum(dtype=np.uint64)) & 0xFFFFFFFF


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Rates, where all that was read and written is what it must be."""
    if config.kernel.startswith("clusters"):
        return _check_clusters(config, outputs["sms"])
    sms, state, workers = live_sms(config), outputs["state"][0], outputs["workers"]
    if not sms and config.count != 0:
        raise WrongAnswer(
            f"no {config.count} SMs are known for placement {config.placement}: "
            "launches of clusters must come before, in the same process"
        )
    wrong_if(state["has_failed"], "the CTAs did not meet, as not all were there at once")
    values = _check_chase(config, state, outputs["times"]) if is_loaded(config) else _check_sums(config, state, len(sms))
    return values | (rates(config, workers, sms) if sms else {"gb_per_s": 0.0, "bytes_per_cycle": 0.0})


def _check_sums(config: Config, state: Any, num_live: int) -> dict[str, float]:
    for name, found, wanted in zip(
        ("read", "written"), (int(state["read_sum"]), int(state["written_sum"])), expected(config, num_live), strict=True
    ):
        if found != wanted:
            raise WrongAnswer(f"what was {name} sums up to {found:#010x}, not to {wanted:#010x}")
    plan = plan_of(config, num_live)
    moved = plan.num_workers * plan.chunk_bytes * (2 if config.kernel.startswith("copy") else 1)
    return {
        "used_bytes": float(plan.used_bytes * (2 if config.kernel.startswith("copy") else 1)),
        "moved_bytes": float(moved * plan.num_steps),
        "all_bytes": float(moved * (plan.num_warm + plan.num_steps)),
    }


def _check_chase(config: Config, state: Any, times: NDArray[np.uint16]) -> dict[str, float]:
    count, cycles = int(state["num_sampled"]), times[: int(state["num_sampled"])].astype(np.float64)
    wrong_if(not 0 < count <= MOST_SAMPLES or not cycles.all(), f"the chase made {count} loads, or the clock stood still")
    wanted = NODE_BYTES * last_node(config.chase_bytes // NODE_BYTES, count)
    if int(state["probe_end"]) != wanted:
        raise WrongAnswer(f"the chase ended at byte {int(state['probe_end'])}, not at {wanted}")
    values = {"num_samples": float(count), "chase_mean_cycles": float(cycles.mean())}
    for name, share in QUANTILES.items():
        values[f"chase_{name}_cycles"] = float(np.quantile(cycles, share, method="nearest"))
    return values


QUANTILES = {"min": 0.0, "p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def last_node(num_nodes: int, num_steps: int) -> int:
    """Where a chase along a power of two of nodes ends, as kernel.cu links them."""
    bits = num_nodes.bit_length() - 1
    mask, half = num_nodes - 1, (bits + 1) // 2
    x = 0
    for _ in range(num_steps):
        x = (x * 1664525 + 1013904223) & mask
    node = (x ^ (x >> half)) * 0x9E3779B1 & mask
    return node ^ (node >> half)


def rates(config: Config, workers: NDArray[Any], sms: list[int]) -> dict[str, float]:
    """Rates from what each CTA says of its time.

    Raises:
        WrongAnswer: CTAs ran elsewhere, made other steps, or the clock stood still.
    """
    plan = plan_of(config, len(sms))
    where = np.bincount(workers["sm"], minlength=256)
    if sorted(np.flatnonzero(where)) != sms or (where[sms] != config.ctas_per_sm).any():
        raise WrongAnswer(f"CTAs ran on {np.count_nonzero(where)} SMs, not {config.ctas_per_sm} on each of {len(sms)}")
    spans = workers["end_ns"] - workers["begin_ns"]
    wrong_if((workers["cycles"] <= 0).any() or (spans <= 0).any(), "the clock stood still")
    if not is_loaded(config) and (workers["num_steps"] != plan.num_steps).any():
        raise WrongAnswer(f"a CTA made other than {plan.num_steps} steps")
    moved = workers["num_steps"].astype(np.float64) * plan.chunk_bytes * (2 if config.kernel.startswith("copy") else 1)
    if is_loaded(config):  # there each warp counts its own steps
        moved /= config.threads // 32
    of_sm = np.bincount(workers["sm"], weights=moved / workers["cycles"], minlength=256)[sms]
    whole_ns = float(workers["end_ns"].max() - workers["begin_ns"].min())
    mask = sum(1 << sm for sm in sms)
    pieces = {f"live_sms_{i}": float(mask >> MASK_BITS * i & (1 << MASK_BITS) - 1) for i in range(3)}
    groups = [group for group in seen().groups() if set(group) & set(sms)]
    return {
        "gb_per_s": float(moved.sum()) / whole_ns, "bytes_per_cycle": float(np.median(of_sm)),
        "slowest_bytes_per_cycle": float(of_sm.min()), "fastest_bytes_per_cycle": float(of_sm.max()),
        "summed_bytes_per_cycle": float(of_sm.sum()), "cycles": float(np.median(workers["cycles"])),
        "sm_clock_mhz": float(np.median(workers["cycles"] / spans)) * 1e3, "num_live_sms": float(len(sms)),
        "num_live_tpcs": float(len({sm // 2 for sm in sms})), "num_live_gpcs": float(len(groups)), **pieces,
    }  # fmt: skip


def _check_clusters(config: Config, sms: NDArray[np.uint16]) -> dict[str, float]:
    size = int(config.kernel.rsplit("_", 1)[1])
    clusters = sms.reshape(-1, size).astype(np.int64)
    wrong_if((clusters >= 256).any(), "a CTA did not say where it ran")
    found = seen()
    for cluster in clusters.tolist():
        found.meet(cluster)
    groups, sm = found.groups(), config.sm
    mine = next((group for group in groups if sm in group), [])
    return {
        "gpc_first_sm": float(mine[0] if mine else -1), "num_gpc_sms": float(len(mine)), "num_gpcs": float(len(groups)),
        "num_seen_sms": float(sum(map(len, groups))),
        "is_pair_always_together": float(all(len({sm, sm ^ 1} & set(group)) != 1 for group in groups for sm in group)),
        "num_pairs": float(np.mean([len(set(cluster)) - len({sm // 2 for sm in cluster}) for cluster in clusters.tolist()])),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- the simulator's answer

SHORT_STEPS, LONG_STEPS = 6, 18
"""Steps of the two launches whose difference is a rate."""
FEW_SHORT_STEPS, FEW_LONG_STEPS = 2, 6
"""The same of reads out of L2, where all SMs are simulated though each moves chunks of its own: they get unlike shares."""
FILLING_BYTES = 8 * KIB
"""In flight an SM, from which on all SMs together may want more than L2 serves: some 32 B a cycle, for its latency."""
NUM_CHASED = 16
PLACES_BY_GPC = ("spread", "tpc", "gpc", "whole_gpcs")
"""Which SMs are live depends on which share a GPC."""
SECTORS, MEMORY = METRICS[:2], METRICS[4:6]
"""Of the predicted counters, those that the steps make, and those that the plan has for the whole footprint at once."""
LOAD_CHAIN, STORE_CHAIN, BULK_LOAD_CHAIN, BULK_STORE_CHAIN, LONE_STORE_CHAIN = 5, 4, 41, 70, 53
"""Instructions of the loops, each of which waits for the one before: what the kernel's own arithmetic adds. Of each load and
store of a thread, for its address; of a bulk copy, where the compiler loops over lanes that could differ (a wait that leaves
groups pending takes longer than one that leaves none)."""
LOADS_CHAIN, STORES_CHAIN = 4, 8
"""... and of a step with loads or with stores of threads: sums, and which chunk is next."""


def _roles(config: Config) -> int:
    """Into so many roles the warps of a CTA fall, each of which waits for its own loads."""
    warps = config.threads // 32
    return 1 if config.kernel.startswith("tma") else max(1, min(warps, 4 // config.ctas_per_sm))


def access(config: Config, num_roles: int) -> AccessPattern:
    """What one of ``num_roles`` roles asks for in a step."""
    size = chunk_bytes(config) // num_roles
    requests = size // (32 * access_bytes(config.kernel))
    return AccessPattern(num_requests=requests, num_sectors=size // 32, num_lines=size // 128, num_wavefronts=size // 128,
                         num_bytes=size)  # fmt: skip


def _steps_of(
    config: Config, role_idx: int, num_steps: int, plan: Plan, live: frozenset[int] | None, workers: Sequence[int]
) -> Callable[[RoleContext], Iterator[Any]]:
    """One role's loads and stores, chunk by chunk; a panel is a CTA's, or everybody's.

    ``workers``: for each CTA which of the workers it is; they are numbered by SM.
    """
    kernel, quarters = config.kernel, config.write_quarters
    asked, in_l1 = access(config, _roles(config)), "_ca_" in kernel
    one_load = access(replace(config, kernel=f"{kernel.rsplit('_u', 1)[0]}_u1"), _roles(config))
    sharing, unroll = config.sharing, int(kernel.rsplit("_u", 1)[1])

    def program(cta: RoleContext) -> Iterator[Any]:
        if live is not None and cta.cta_idx not in live:
            return
        panel = 0 if sharing in ("all", "together") else cta.cta_idx
        first = cta.cta_idx * plan.first_factor if sharing == "all" else 0
        yield ops.RangeStart(ops.Section.MAINLOOP)
        for step in range(num_steps):
            tile = (panel, (first + step) * 8 + role_idx)
            phase = workers[cta.cta_idx] + step % plan.num_rounds if kernel.startswith("mix") else 0
            writes = "write" in kernel or (kernel.startswith("mix") and phase % 4 < quarters)
            if not writes:
                yield ops.Alu(LOADS_CHAIN, is_chain=True)
                tokens = []
                for idx in range(unroll):
                    yield ops.Alu(LOAD_CHAIN, is_chain=True)
                    part = panel, -1 - (tile[1] * unroll + idx)  # no step that is stored as a whole
                    tokens.append((yield ops.GlobalLoad("first", part, one_load, allocates_in_l1=in_l1)))
                for token in tokens:
                    yield ops.Use(token)
            if writes or kernel.startswith("copy"):
                yield ops.Alu(STORES_CHAIN * writes + unroll * STORE_CHAIN, is_chain=True)
                yield ops.GlobalStore("first" if "write" in kernel else "second", tile, asked)
        yield ops.RangeEnd()  # the last warp of so few steps is farther behind than of as many as the kernel's

    return program


def _boxes_of(
    config: Config, num_steps: int, plan: Plan, live: frozenset[int] | None
) -> Callable[[RoleContext], Iterator[Any]]:
    """The thread that keeps boxes in flight."""
    size, stages = plan.chunk_bytes, config.stages
    is_load, sharing = config.kernel == "tma_load", config.sharing

    def program(cta: RoleContext) -> Iterator[Any]:
        if live is not None and cta.cta_idx not in live:
            return
        panel = 0 if sharing in ("all", "together") else cta.cta_idx
        first = cta.cta_idx * plan.first_factor if sharing == "all" else 0
        if not is_load:
            for stage in range(stages):
                whole = AccessPattern(num_requests=1, num_wavefronts=size // 128, num_bytes=size)
                yield ops.SharedStore(whole, "boxes", stage)
        for step in range(num_steps):
            stage, tile = step % stages, (panel, (first + step) * 8)
            if is_load:
                if step >= stages:
                    yield ops.MbarrierWait("full", stage, step // stages - 1 & 1, by_lane=True)
                yield ops.MbarrierArriveExpectTx("full", stage, size)
                yield ops.TmaLoad("first", tile, size, size, 1, "boxes", stage, "full")
                yield ops.Alu(BULK_LOAD_CHAIN, is_chain=True)
            else:
                yield ops.TmaStore("first", tile, size, 1, "boxes", stage)
                yield ops.BulkCommitGroup()
                yield ops.BulkWaitGroup(stages - 1)
                yield ops.Alu(BULK_STORE_CHAIN if stages > 1 else LONE_STORE_CHAIN, is_chain=True)
        if is_load:
            for step in range(max(0, num_steps - stages), num_steps):
                yield ops.MbarrierWait("full", step % stages, step // stages & 1, by_lane=True)
        else:
            yield ops.BulkWaitGroup(0, read=False)

    return program


def twin(
    config: Config,
    num_steps: int,
    *,
    num_live: int,
    num_passes: float = 1.0,
    live: frozenset[int] | None = None,
    workers: Sequence[int] | None = None,
) -> Launch:
    """The kernel in the simulator's words: ``num_steps`` steps of each CTA, of a footprint as large as the kernel's.

    ``live``: the CTAs of a grid on all SMs that work, where it matters on which SMs; else the grid has ``num_live`` SMs'.
    ``workers``: which of the workers each CTA is; in order if not given.
    ``num_passes``: how often all of it is stored to, where L2 keeps nothing from one pass to the next.
    """
    plan = plan_of(config, num_live)
    ctas = (num_live if live is None else NUM_SMS) * config.ctas_per_sm
    is_tma = config.kernel.startswith("tma")
    count = _roles(config)
    order = range(ctas) if workers is None else workers
    roles = tuple(
        WarpRole(
            name=f"mover{idx}", num_warps=1 if is_tma else max(1, config.threads // 32 // count),
            program=_boxes_of(config, num_steps, plan, live) if is_tma
            else _steps_of(config, idx, num_steps, plan, live, order),
        )
        for idx in range(count)
    )  # fmt: skip
    stages = config.stages
    return Launch(
        kernel=config.kernel, num_ctas=ctas, num_tiles=ctas, roles=roles,
        footprints=_footprints(config, plan, num_passes, live),
        buffers=(Buffer(name="boxes", stage_bytes=plan.chunk_bytes, num_stages=stages),) if is_tma else (),
        mbarriers=(Mbarrier(name="full", num_arrivals=1, num_stages=stages),) if is_tma else (),
        extra_smem_bytes=0 if is_tma else SMEM_BYTES[config.ctas_per_sm],
    )  # fmt: skip


def _itself(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
    return tiles


def _footprints(config: Config, plan: Plan, num_passes: float, live: frozenset[int] | None) -> tuple[Footprint, ...]:
    """Which half is read and which written, each as large as the kernel's; one panel a CTA, or one for all."""
    kernel = config.kernel
    is_shared = config.sharing in ("all", "together")
    panel_bytes = plan.used_bytes if is_shared else plan.used_bytes // plan.num_workers
    working = None if live is None else np.array(sorted(live))

    def bytes_of(tiles: NDArray[np.int64], num_bytes: int) -> NDArray[np.int64]:
        return np.full_like(tiles, num_bytes) if working is None else np.where(np.isin(tiles, working), num_bytes, 0)

    def footprint(tensor: str, kind: Any, fraction: float) -> Footprint:
        num_bytes = int(panel_bytes * fraction * (num_passes if kind == "write" else 1))
        return Footprint(
            tensor=tensor, access=kind, panel_of=np.zeros_like if is_shared else _itself,
            panel_bytes=lambda tiles: bytes_of(tiles, num_bytes),
        )  # fmt: skip

    writes = config.write_quarters / 4
    if kernel.startswith("copy"):
        return (footprint("first", "read", 1.0), footprint("second", "write", 1.0))
    if kernel.startswith("mix"):
        return (footprint("first", "read", 1.0 - writes), footprint("second", "write", writes))
    return (footprint("first", "write" if kernel in ("tma_store",) or "write" in kernel else "read", 1.0),)


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Rates, and sectors and bytes of memory; nothing where there is no such mechanism, or another number of SMs."""
    kernel = config.kernel
    if gpu.num_sms != NUM_SMS or (kernel.startswith("tma") and gpu.tma is None):
        return {}
    if kernel.startswith("clusters") or config.sharing == "turned":
        return {}
    if is_loaded(config):
        return loaded_answer(config, gpu)
    return steady_answer(config, gpu)


def neighbours(gpu: GpuSpec) -> Neighbours:
    """What launches of clusters would find out of the simulated GPU."""
    found = Neighbours()
    by_group: dict[int, list[int]] = {}
    for sm, group in enumerate(gpu.floorplan.cluster_groups()):
        by_group.setdefault(group, []).append(sm)
    for sms in by_group.values():
        found.meet(sms)
    return found


def steady_answer(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """What the steps between a short launch and a long one take, and move: the median CTA's, and until the last is done."""
    num_live, ctas_per_sm = config.count, config.ctas_per_sm
    first = first_sms(gpu.dispatcher, gpu.floorplan)
    live = None
    if config.placement in PLACES_BY_GPC:
        sms = frozenset(live_sms(config, neighbours(gpu)))
        live, num_live = frozenset(cta for cta, sm in enumerate(first) if sm in sms), len(sms)
    plan = plan_of(config, num_live)
    stages = config.stages
    is_alike = num_live == NUM_SMS and config.sharing in ("own", "blocked")
    in_l2 = config.footprint_bytes <= gpu.l2.capacity_bytes
    fills_l2 = is_alike and in_l2 and in_flight_bytes(config) >= FILLING_BYTES  # where not all SMs get as much
    reads_l2 = fills_l2 and config.kernel.startswith("read")
    goes_on = config.kernel.startswith("read") and not in_l2
    stores = is_alike and not config.kernel.startswith(("read", "tma_load"))  # SMs of a slow part of a GPC are last
    differ = reads_l2 or (fills_l2 and config.kernel == "tma_load") or stores or live is not None
    short, long = (FEW_SHORT_STEPS, FEW_LONG_STEPS) if reads_l2 else (SHORT_STEPS, LONG_STEPS)
    all_steps = plan.num_warm + plan.num_steps
    times = 2 if config.kernel.startswith("copy") else 1
    used_bytes = plan.used_bytes * times
    passes = 1.0 if _is_kept(config, used_bytes, gpu) else max(1.0, all_steps / plan.num_rounds)
    ends = [
        simulate(
            twin(config, steps + 2 * stages, num_live=num_live, num_passes=passes, live=live, workers=first * ctas_per_sm),
            gpu, clock="max", l2="warm", recorded_sms=range(NUM_SMS) if differ or goes_on else (),
        )
        for steps in (short, long)
    ]  # fmt: skip
    of_cta = (long - short) * plan.chunk_bytes * times
    moved = of_cta * plan.num_workers
    cycles = ends[1].cycles - ends[0].cycles
    if goes_on:
        cycles = float(_last_steps(ends[1]).max() - _last_steps(ends[0]).max())
    spans = np.full(plan.num_workers, cycles)
    if differ:
        spans = _end_cycles(ends[1], live) - _end_cycles(ends[0], live)
    answer = {
        "bytes_per_cycle": of_cta * ctas_per_sm / float(np.median(spans)),
        "summed_bytes_per_cycle": float((of_cta / spans).sum()), "gb_per_s": moved / cycles * gpu.clock.max_mhz / 1e3,
    }  # fmt: skip
    scale = plan.num_workers * plan.chunk_bytes * times * all_steps / moved
    answer |= {name: scale * (ends[1].counters[name] - ends[0].counters[name]) for name in SECTORS}
    read_back = 0 if config.kernel.startswith(("read", "tma_load")) else plan.used_bytes
    answer[SECTORS[0]] += read_back / SECTOR_BYTES
    if config.sharing == "all":  # where everybody begins elsewhere, a part of a pass reads more than that part
        return answer
    parts = dict(zip(MEMORY, (all_steps / plan.num_rounds, all_steps / plan.num_rounds / passes), strict=True))
    answer |= {name: ends[1].counters[name] * part for name, part in parts.items()}
    answer[MEMORY[0]] += 0.0 if passes == 1.0 else read_back
    return answer


READ_PLACES, WRITE_PLACES = 0.5, 0.75
"""What a line takes of each side's room: a copy or its home, whichever is read; its home, and half of the time a copy."""


def _is_kept(config: Config, used_bytes: int, gpu: GpuSpec) -> bool:
    """Whether L2 has room for all of it, so that stores stay from one pass to the next."""
    kernel = config.kernel
    writes = 0.5 if kernel.startswith("copy") else config.write_quarters / 4 if kernel.startswith("mix") else 1.0
    places = READ_PLACES * (1.0 - writes) + WRITE_PLACES * writes
    return used_bytes * places <= gpu.l2_partitions.partition_bytes


def _end_cycles(result: Result, live: frozenset[int] | None) -> NDArray[np.float64]:
    """When each CTA that was simulated, and is live, is done, in order of number."""
    ends: dict[int, float] = {}
    for role in result.timeline.roles:
        if live is None or role.cta_idx in live:
            ends[role.cta_idx] = max(ends.get(role.cta_idx, 0.0), role.states[-1][2])
    return np.array([ends[cta_idx] for cta_idx in sorted(ends)])


def _last_steps(result: Result) -> NDArray[np.float64]:
    """When most warps of each role that was recorded have their last step behind them."""
    return np.array([role.sections[-1].end_cycle for role in result.timeline.roles if role.sections])


def loaded_answer(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Latency of a chase on SM 0 beside streams on the others, and what those move meanwhile."""
    num_live = config.count
    size, count = chunk_bytes(config), _roles(config)
    asked = access(config, count)
    node = AccessPattern(num_requests=1, num_sectors=1, num_lines=1, num_bytes=8)
    is_write = "write" in config.kernel
    sizes = {"footprint": config.footprint_bytes, "chase": config.chase_bytes}
    in_l2 = {name: size <= gpu.l2.capacity_bytes for name, size in sizes.items()}
    num_warps = max(1, min(31, config.threads // 32) // count)  # one of 32 is the chaser's
    num_steps = 4 + int(16_000 / (600 + size / 16))

    def chaser(cta: RoleContext) -> Iterator[Any]:
        if cta.cta_idx == 0:
            for step in range(NUM_CHASED):
                token = yield ops.GlobalLoad("nodes", (0, step), node, allocates_in_l1=False)
                yield ops.Use(token)

    def streamer(idx: int) -> Callable[[RoleContext], Iterator[Any]]:
        def program(cta: RoleContext) -> Iterator[Any]:
            for step in range(num_steps if cta.cta_idx else 0):
                tile = (cta.cta_idx, step * 8 + idx)
                if is_write:
                    yield ops.GlobalStore("stream", tile, asked)
                else:
                    token = yield ops.GlobalLoad("stream", tile, asked, allocates_in_l1=False)
                    yield ops.Use(token)

        return program

    def panel(tensor: str, kind: Any, num_bytes: int) -> Footprint:
        return Footprint(tensor=tensor, access=kind, panel_of=_itself,
                         panel_bytes=lambda tiles: np.full_like(tiles, num_bytes // len(tiles)))  # fmt: skip

    ctas = num_live + 1
    stream_bytes = 0 if in_l2["footprint"] else config.footprint_bytes
    twin_launch = Launch(
        kernel=config.kernel, num_ctas=ctas, num_tiles=ctas,
        roles=(WarpRole(name="chaser", num_warps=1, program=chaser),
               *(WarpRole(name=f"mover{i}", num_warps=num_warps, program=streamer(i)) for i in range(count))),
        footprints=(panel("nodes", "read", 0 if in_l2["chase"] else config.chase_bytes),
                    panel("stream", "write" if is_write else "read", stream_bytes)),
        extra_smem_bytes=SMEM_BYTES[1],
    )  # fmt: skip
    result = simulate(twin_launch, gpu, clock="max", l2="warm", recorded_sms=range(NUM_SMS))
    (record,) = [role for role in result.timeline.roles if role.role == "chaser" and role.cta_idx == 0]
    spans = [(begin, end) for state, begin, end in record.states if state.name == "LONG_SCOREBOARD"]
    return {"chase_mean_cycles": (spans[-1][1] - spans[0][0]) / NUM_CHASED}


# ---------------------------------------------------------------------------------------------- parameters

READS, WRITES = ("read_cg_b128_u4", "tma_load"), ("write_b128_u4", "tma_store")
NUM_TOP = 3
FULL_GPC = 12
"""SMs of a GPC, and more, that together read as much as all of its 18."""


def fit(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[Fitted]:
    """Plateaus: of all SMs in memory and in L2, by footprint; of one SM, by bytes in flight."""
    in_l2 = (8 * MIB, 30 * MIB)
    reads = _plateau(rows, READS, "summed_bytes_per_cycle", in_l2)
    writes = _plateau(rows, WRITES, "bytes_per_cycle", in_l2)
    by_threads, by_tma = (_plateau(rows, (kernel,), "summed_bytes_per_cycle", in_l2) for kernel in READS)
    all_sms = "own chunks on all SMs, median, the faster of threads and TMA"
    of_gpcs = f"SMs of whole GPCs, or {FULL_GPC} and more of one,"
    found = {
        "l2.sustained_fraction": (
            None if reads is None else reads / (gpu.l2.num_slices * gpu.l2.slice_bytes_per_cycle),
            "reads of 8 to 30 MiB over what slices serve at most, own chunks, all SMs together, the faster of "
            "threads and TMA"
        ),
        "l2.fabric_bytes_per_cycle": (
            None if writes is None else writes * NUM_SMS / 4,
            f"writes of 8 to 30 MiB, of which half cross, half of these each way, {all_sms}"
        ),
        "xbar.gpc_read_bytes_per_cycle": (_of_gpcs(rows, READS), f"{of_gpcs} read out of L2: the most for each GPC"),
        "xbar.gpc_write_bytes_per_cycle": (_of_gpcs(rows, WRITES), f"{of_gpcs} write to L2: the most for each GPC"),
        "xbar.bulk_read_fraction": (
            None if by_tma is None or by_threads is None else min(1.0, by_tma / by_threads),
            "reads of 8 to 30 MiB, own chunks, all SMs together, by bulk copies without a tensor map over by threads"
        ),
        "xbar.sm_write_bytes_per_cycle": (
            _top(rows, "bytes_per_cycle", 4 * MIB, ("write", "tma_store")),
            f"writes of 4 MiB, one SM, median of the {NUM_TOP} fastest ways"
        ),
        "hbm.queue_wait_at_half_load_ns": (
            _queue_ns(rows, gpu), "what a chase in memory waits beside reads of memory beyond what it waits beside next to "
            "none, over what those take of the peak rate over what they leave: median"
        ),
        "hbm.read_behind_write_wait_ns": (
            _write_wait_ns(rows, gpu), "what a chase in memory waits beside writes of memory at less than "
            f"{MUCH_TAKEN:.0%} of their rate, beyond its latency and its queue, over their part of the peak: median"
        ),
        "l1.outstanding_bytes": (
            _outstanding_bytes(rows, gpu), "fastest reads of 4 MiB or 2 GiB by threads of one SM, by latency"
        ),
    }  # fmt: skip
    return [
        Fitted(parameter=name, value=value, how=how) for name, (value, how) in found.items() if value is not None
    ]  # fmt: skip


LITTLE_TAKEN, MUCH_TAKEN = 0.1, 0.4
"""Of the peak rate: below, a chase has memory to itself; above, its wait is seen."""


def _queue_ns(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> float | None:
    """How long a read waits where half of the peak rate is taken."""
    told = _chases(rows, "read", gpu.hbm.peak_gb_per_s)
    alone = [ns for share, ns in told if share < LITTLE_TAKEN]
    waits = [(ns - min(alone)) * (1.0 - share) / share for share, ns in told if share > MUCH_TAKEN] if alone else []
    return float(np.median(waits)) if waits else None


def _write_wait_ns(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> float | None:
    """What a read waits for writes where no others read, over the part of the peak rate that they take."""
    hbm = gpu.hbm
    waits = []
    for share, ns in _chases(rows, "write", hbm.sustained_write_gb_per_s):
        if share < MUCH_TAKEN:
            of_peak = share * hbm.sustained_write_gb_per_s / hbm.peak_gb_per_s
            queued = hbm.queue_wait_at_half_load_ns * of_peak / (1.0 - of_peak)
            waits.append((ns - hbm.latency_ns - queued) / of_peak)
    return float(np.median(waits)) if waits else None


def _chases(rows: Sequence[Mapping[str, str]], beside: str, gb_per_s: float) -> list[tuple[float, float]]:
    """(share of ``gb_per_s`` taken, ns of a load) of chases in memory beside streams in memory."""
    return [
        (float(row["gb_per_s"]) / gb_per_s, float(row["chase_mean_cycles"]) / float(row["sm_clock_mhz"]) * 1e3)
        for row in rows
        if row["group"] == "loaded" and beside in row["kernel"] and row.get("chase_mean_cycles") and row.get("sm_clock_mhz")
        and int(row["chase_bytes"]) >= GIB and int(row["footprint_bytes"]) >= GIB
    ]  # fmt: skip


def _plateau(rows: Sequence[Mapping[str, str]], kernels: Iterable[str], name: str, between: tuple[int, int]) -> float | None:
    """The highest of the kernels' medians over footprints."""
    medians = []
    for kernel in kernels:
        found = [
            float(row[name]) for row in rows
            if row["group"] == "footprint" and row["kernel"] == kernel and row["sharing"] == "own"
            and between[0] <= int(row["footprint_bytes"]) <= between[1] and row.get(name)
        ]  # fmt: skip
        if found:
            medians.append(float(np.median(found)))
    return max(medians, default=None)


def _of_gpcs(rows: Sequence[Mapping[str, str]], kernels: Iterable[str]) -> float | None:
    """The most that a GPC's SMs move together, out of L2 or to it."""
    found = [
        float(row["summed_bytes_per_cycle"]) / float(row["num_live_gpcs"]) for row in rows
        if row["group"] == "live" and row["kernel"] in kernels and row["placement"] in ("gpc", "whole_gpcs")
        and row["footprint_bytes"] == str(IN_L2) and row.get("summed_bytes_per_cycle")
        and float(row["num_live_sms"]) >= FULL_GPC * float(row["num_live_gpcs"])
    ]  # fmt: skip
    return max(found, default=None)


def _outstanding_bytes(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> float | None:
    """By Little's law: the fastest reads by the latency of one load, out of L2 or out of memory, whatever is more."""
    latencies = {4 * MIB: gpu.l2.near_latency_cycles, IN_HBM: gpu.hbm.latency_ns * gpu.clock.max_mhz / 1e3}
    rates = [(_top(rows, "bytes_per_cycle", size, ("read",), num=1), cycles) for size, cycles in latencies.items()]
    found = [rate * cycles for rate, cycles in rates if rate is not None]
    return max(found) if len(found) == len(rates) else None


def _top(
    rows: Sequence[Mapping[str, str]], name: str, footprint_bytes: int, kernels: tuple[str, ...], *, num: int = NUM_TOP
) -> float | None:
    """What one SM moves at most: the median of the ``num`` fastest."""
    found = sorted(
        float(row[name]) for row in rows
        if row["group"] == "in_flight" and row["placement"] == "first" and row["count"] == "1" and row.get(name)
        and row["footprint_bytes"] == str(footprint_bytes) and row["kernel"].startswith(kernels)
    )  # fmt: skip
    return float(np.median(found[-num:])) if len(found) >= num else None


def _values() -> Mapping[str, str]:
    """What the values mean, by name."""
    found = {
        "gb_per_s": "10^9 bytes a second of all live SMs, by %globaltimer from the first CTA's start to the last one's end",
        "bytes_per_cycle": "bytes an SM cycle of a live SM, by its own clock: the median SM",
        "slowest_bytes_per_cycle": "the same of the slowest SM",
        "fastest_bytes_per_cycle": "the same of the fastest SM",
        "summed_bytes_per_cycle": "the same of all SMs together",
        "cycles": "SM cycles that the median CTA took",
        "sm_clock_mhz": "SM cycles over %globaltimer, median CTA",
        "used_bytes": "what the chunks cover: the footprint in whole steps of all CTAs",
        "moved_bytes": "bytes read and written while the clock ran",
        "all_bytes": "those and the ones moved before to warm L2: what a counted launch moves",
        "num_live_sms": "SMs that worked", "num_live_tpcs": "their TPCs",
        "num_live_gpcs": "their GPCs, as far as this process has found them out; 0 where it has not asked",
        "num_samples": "loads of the chase",
        "chase_mean_cycles": "SM cycles of a load of the chase with both clock reads, mean",
        "gpc_first_sm": "the least SM seen in a cluster with SM sm, or with one of those, and so on; -1: never seen",
        "num_gpc_sms": "SMs of that set",
        "num_gpcs": "such sets",
        "num_seen_sms": "SMs that ran any cluster so far",
        "is_pair_always_together": "1: no set holds one of SMs 2i and 2i + 1 without the other",
        "num_pairs": "pairs of SMs 2i and 2i + 1 in a cluster of this launch, mean",
    }  # fmt: skip
    for piece in range(3):
        found[f"live_sms_{piece}"] = f"the live SMs from {piece * MASK_BITS} on, as bits: SM {piece * MASK_BITS} is 1"
    for name, share in QUANTILES.items():
        found[f"chase_{name}_cycles"] = f"SM cycles of a load of the chase with both clock reads, quantile {share:g}"
    return found


def _group(configs: Callable[..., list[Config]], rank: int, metrics: tuple[str, ...] = ()) -> Group:
    return Group(configs=configs, rank=rank, metrics=metrics, least_capability=(9, 0))


CASE = Case(
    name="memory_bandwidth",
    question="How many bytes move, by footprint, bytes in flight, access and live SMs; how long does a load take meanwhile?",
    config_type=Config,
    groups={
        "topology": _group(topology_configs, 4), "footprint": _group(footprint_configs, 1),
        "in_flight": _group(in_flight_configs, 1), "live": _group(live_configs, 4), "loaded": _group(loaded_configs, 4),
        "counted": _group(counted_configs, 5, METRICS),
    },
    launch=launch, check=check, values=_values(), checks_counted=False, num_repeats=3, predict=predict,
    tiers={"gb_per_s": 4, "bytes_per_cycle": 4, **dict.fromkeys((*SECTORS, *MEMORY), 5)}, fit=fit,
)  # fmt: skip
