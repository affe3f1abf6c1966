"""What does synchronizing cost? mbarriers, barriers, fences, distributed shared memory, setmaxnreg, shuffles, votes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Fitted, FittedConstant, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import KernelLaunch, Output, by_value
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted_constant, slopes_of_pairs
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.launch import Launch, Mbarrier, NamedBarrier, RoleContext, WarpRole

NUM_ROUNDS, NUM_WARM_UP = 48, 16
NUM_RESULTS = 16 * 1024
"""Threads of the largest cluster; behind the first 1024 of them, fences have a word a thread to store to."""
NUM_WORDS = 4096
CHAIN_STEP = 17
NUM_SMS = 132

Program = Iterator[ops.Op]

SHUFFLES = ("shfl_idx", "shfl_down", "shfl_bfly")
WARP_OPS = ("shfl_idx", "shfl_down", "shfl_bfly", "vote_ballot", "vote_any", "match_any", "redux_max", "syncwarp")
FENCES_80 = ("fence_cta", "fence_gpu", "fence_sys", "fence_sc_gpu")
FENCES_90 = ("fence_proxy_async_shared", "fence_proxy_async", "fence_mbarrier_init", "fence_cluster")
COUNTS = (1, 4, 8, 16)
"""Innermost in every sweep: even and odd positions each have two, from which a slope follows."""

FRAME_CYCLES = {
    "mbarrier_arrive": 16.0, "mbarrier_arrive_expect_tx": 31.5, "mbarrier_try_wait_done": 29.9,
    "mbarrier_self": 27.9, "bar_sync": 1.9, "bar_ping_pong": 21.5, "fence_proxy_async_shared": 13.7,
    "fence_gpu": 139.7, "fence_sc_gpu": 139.7, "fence_cluster": 139.7, "dsmem_chain": 16.3, "ping_pong": 22.0,
    "st_async": 23.6, "dsmem_load": 41.0, "shfl_idx": 24.7, "shfl_down": 24.7, "shfl_bfly": 24.7,
}  # fmt: skip
"""What a round takes beside its steps: readings of the clock, a branch, the store of the round before, on an H200."""
HIDDEN_CYCLES, HIDDEN_FRAME_CYCLES = 13.0, 7.0
"""The NOPs of ``fence_mbarrier_init`` hide behind a comparison, which takes so long; the rest of a round. From SASS."""
ARRIVE_QUEUE = 6
"""Arrivals that are issued before one waits: a guess, as one and eight steps tell only the interval behind it."""
CHECK_CYCLES = 101.2
"""``st_async`` looks whether the word has come, before it answers: S2UR, LDS, compare."""
BATCH_LOADS, BATCH_CYCLES = 4, 74.2
"""A stream's loads come in fours, with addresses before and sums behind."""

@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; what a probe does not have keeps its default."""

    kernel: str
    count: int = 1
    warps: int = 1
    lanes: int = 0
    partner: int = 0
    busy: int = 0
    hint_ns: int = 0
    loads: int = 0
    only_first: int = 0
    cluster: int = 1
    clusters: int = 1


FIELDS = Row.names()[1:]


def _counted(name: str, counts: tuple[int, ...] = COUNTS, **fields: int) -> list[Row]:
    return [Row(f"{name}_{count}", count=count, **fields) for count in counts]


def warp() -> list[Row]:
    """Chains of shuffles and votes, and nothing at all."""
    return [config for name in ("empty", *WARP_OPS) for config in _counted(name)]


def bar() -> list[Row]:
    """Thread barriers by warps that take part."""
    found = [
        config for warps in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32) for config in _counted("bar_sync", warps=warps)
    ]
    halves = (2, 4, 6, 8, 12, 16, 24, 32)
    found += [config for warps in halves for config in _counted("bar_ping_pong", warps=warps)]
    return found + [Row("bar_arrive_1", warps=warps) for warps in halves]


def fences() -> list[Row]:
    """Fences that every GPU has: alone, behind a store to shared and to global memory."""
    found = [config for fence in FENCES_80 for before in ("", "_after_st_shared") for config in _counted(fence + before)]
    return found + [config for fence in FENCES_80[:3] for config in _counted(f"{fence}_after_st_global")]


def fences_90() -> list[Row]:
    """Fences of Hopper."""
    return [config for fence in FENCES_90 for before in ("", "_after_st_shared") for config in _counted(fence + before)]


def mbarrier() -> list[Row]:
    """The CTA's own mbarriers."""
    found = [config for lanes in (1, 2, 4, 8, 16, 32) for config in _counted("mbarrier_arrive", lanes=lanes)]
    for name in ("arrive_expect_tx", "test_wait_done", "try_wait_done", "test_wait_pending", "self"):
        found += _counted(f"mbarrier_{name}")
    for name in ("mbarrier_ping_pong", "mbarrier_ping_pong_test"):
        for partner in (1, 2, 4):  # another sub-core, and the same
            found += _counted(name, warps=8, partner=partner)
    for busy in (3, 7, 15, 30):
        found += _counted("mbarrier_ping_pong", warps=busy + 2, partner=1, busy=busy)
    found.append(Row("mbarrier_try_wait_pending_1"))
    return found + [Row("mbarrier_try_wait_hint_1", hint_ns=hint_ns) for hint_ns in (0, 100, 1000, 10_000, 100_000)]


def cluster() -> list[Row]:
    """Arrivals, words and loads between two CTAs of a cluster, and barriers of all of it."""
    found = []
    for size in (2, 4, 8):
        for partner in range(size):
            for name in ("remote_arrive", "dsmem_chain", "ping_pong", "st_async"):
                if partner or name == "dsmem_chain":
                    found += _clustered(name, COUNTS, cluster=size, partner=partner, warps=4)
    for size in (1, 2, 4, 8):
        for warps in (1, 4, 8, 12, 32):
            for clusters in (1, max_clusters(size)):
                for name in ("cluster_barrier", "cluster_barrier_relaxed"):
                    found += _clustered(name, COUNTS, cluster=size, warps=warps, clusters=clusters)
    for size in (2, 4, 8):
        for warps in (1, 4, 8, 12, 32):
            for name in ("cluster_arrive", "cluster_arrive_relaxed"):
                found += _clustered(name, (1,), cluster=size, warps=warps)
    return found


def _clustered(name: str, counts: tuple[int, ...], *, cluster: int, **fields: int) -> list[Row]:
    return [Row(f"{name}_{count}_c{cluster}", count=count, cluster=cluster, **fields) for count in counts]


def max_clusters(size: int) -> int:
    """Clusters of ``size`` that surely run at once with one CTA an SM."""
    return {1: NUM_SMS, 2: 66, 4: 30, 8: 15, 16: 4}[size]


def dsmem() -> list[Row]:
    """Streams of 16 bytes a thread to and from a neighbour's shared memory."""
    found = []
    for size in (2, 4, 8):
        for name in ("dsmem_load", "dsmem_store"):
            for warps in (1, 2, 4, 8, 16, 32):
                kinds = [(1, 1), (0, 1)] + ([(0, max_clusters(size))] if warps in (8, 32) else [])
                for only_first, clusters in kinds:
                    found += Row.sweep(
                        kernel=f"{name}_c{size}", cluster=size, partner=1, warps=warps, only_first=only_first,
                        clusters=clusters, loads=(4, 8, 16, 32),
                    )  # fmt: skip
    return found


def cluster_16() -> list[Row]:
    """Barriers of sixteen CTAs, which the launch must allow as a size that is not portable."""
    return [
        config for warps in (1, 4, 12) for name in ("cluster_barrier", "cluster_barrier_relaxed")
        for config in _clustered(name, (1, 4), cluster=16, warps=warps)
    ]  # fmt: skip


def registers() -> list[Row]:
    """Give and take registers by setmaxnreg: where they are free, and where another warpgroup must give them first."""
    return [Row("setmaxnreg_alone", warps=12), Row("setmaxnreg_hand_over", warps=12)]


# ---------------------------------------------------------------------------------------------- launch and check
def launch(config: Row) -> KernelLaunch:
    """One launch of all rounds."""
    probe = [config.lanes, config.partner, config.busy, config.hint_ns, config.loads, config.only_first]
    num_samples = NUM_ROUNDS * max(2, config.clusters)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(probe, dtype="<u4")), Output("samples", np.full(num_samples, -1, dtype="<i8")),
            Output("result", np.full(NUM_RESULTS, 0xFFFFFFFF, dtype="<u4")),
        ),
        grid=(config.cluster * config.clusters, 1, 1), block=(32 * config.warps, 1, 1), has_large_cluster=config.cluster > 8,
    )  # fmt: skip


def stem(config: Mapping[str, str]) -> str:
    """The probe's name, without its count and cluster: ``remote_arrive`` of ``remote_arrive_4_c2``."""
    name = config["kernel"]
    if name.startswith("setmaxnreg"):
        return name
    name = name.removesuffix(f"_c{config['cluster']}")
    return name if name.startswith("dsmem_") and "chain" not in name else name.removesuffix(f"_{config['count']}")


def expected(config: Row) -> NDArray[np.int64]:
    """What each thread of a launch must leave in ``result``, int64[threads]; -1 where anything will do."""
    name, count, warps = stem(config), config.count, config.warps
    size, partner = config.cluster, config.partner
    lanes = np.arange(32 * warps)
    all_of = np.full(32 * warps * size, -1, dtype=np.int64)
    steps = NUM_ROUNDS * count
    if name in ("empty", "syncwarp"):
        return lanes if name == "syncwarp" else np.zeros_like(lanes)
    if name in WARP_OPS:
        return _after_chain(name, steps)
    if name.startswith("fence"):
        return np.where(lanes < 32, steps, 0) if warps > 1 else np.full(32, steps)
    if name in ("bar_sync", "setmaxnreg_hand_over"):
        return np.full_like(lanes, count)
    if name == "setmaxnreg_alone":
        return np.where(lanes < 128, NUM_ROUNDS, 0)
    if name.startswith("bar_"):
        return np.full_like(lanes, NUM_ROUNDS)
    if name.startswith("cluster_"):
        all_of[:] = size
    elif name.startswith("mbarrier_ping_pong") or name == "mbarrier_self":
        all_of[:32] = steps
        if "ping_pong" in name:
            all_of[32 * partner :][:32] = steps
    elif name.startswith("mbarrier"):
        all_of[0] = NUM_ROUNDS
    elif name == "remote_arrive":
        all_of[0] = all_of[32 * warps * partner] = NUM_ROUNDS
    elif name in ("ping_pong", "st_async"):
        all_of[:32] = all_of[32 * warps * partner :][:32] = steps
    elif name == "dsmem_chain":
        all_of[0] = CHAIN_STEP * steps % NUM_WORDS
    else:
        all_of = _after_stream(config)
    return all_of


def _after_chain(name: str, steps: int) -> NDArray[np.int64]:
    values = np.arange(32, dtype=np.int64)
    for _ in range(steps):
        if name == "shfl_idx":
            values = np.full(32, values[5])
        elif name == "shfl_down":
            values = np.append(values[1:], values[31])
        elif name == "shfl_bfly":
            values = values[np.arange(32) ^ 1]
        elif name == "vote_ballot":
            values = np.full(32, 0xFFFFFFFF)
        elif name == "vote_any":
            values = np.ones(32, dtype=np.int64)
        elif name == "match_any":
            values = np.array([sum(1 << lane for lane in range(32) if values[lane] == value) for value in values])
        else:
            values = np.full(32, values.max())
    return values


def _after_stream(config: Row) -> NDArray[np.int64]:
    """Sums of what was loaded; of stores, how many words hold what the neighbour has written."""
    warps, size, partner = config.warps, config.cluster, config.partner
    num_threads, num_loads = 32 * warps, config.loads
    threads = np.arange(num_threads)
    sums = np.zeros((size, num_threads), dtype=np.int64)
    for rank in range(size):
        if stem(config) == "dsmem_store":
            sums[rank] = len(range(0, 8192, num_threads)) if 8192 % num_threads == 0 else -1
        elif not config.only_first or rank == 0:
            owner = (rank + partner) % size * 0x10000
            for idx in range(num_loads):
                first = owner + (idx * num_threads + threads) * 4 % 8192
                words = first[:, None] + np.arange(4)
                sums[rank] += np.bitwise_xor.reduce(words, axis=1)
            sums[rank] *= NUM_ROUNDS
    return np.asarray(sums.reshape(-1) & 0xFFFFFFFF)


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Quantiles of the rounds after the first ones, of all clusters.

    Raises:
        WrongAnswer: a thread has counted something else than it must, or a round took no time.
    """
    wanted = expected(config)
    got = outputs["result"][: len(wanted)].astype(np.int64)
    wrong = np.flatnonzero((wanted >= 0) & (got != wanted))
    if len(wrong):
        thread = int(wrong[0])
        raise WrongAnswer(f"thread {thread} counts {got[thread]}, not {wanted[thread]}; {len(wrong)} threads are wrong")
    samples = outputs["samples"].astype(np.int64)
    if config.kernel == "setmaxnreg_hand_over":
        gave, *got_them = (float(cycles) for cycles in samples[:3])
        return _values(np.array(got_them)) | {"second_cycles": gave}
    if config.kernel == "setmaxnreg_alone":
        gave, took = (samples[NUM_ROUNDS * idx + NUM_WARM_UP : NUM_ROUNDS * (idx + 1)] for idx in (0, 1))
        return _values(took) | {"second_cycles": float(np.median(gave))}
    rows = samples[: NUM_ROUNDS * config.clusters].reshape(-1, NUM_ROUNDS)
    return long_too(config, _values(rows[:, NUM_WARM_UP:].reshape(-1)))


def _values(samples: NDArray[Any]) -> dict[str, float]:
    wrong_if(samples.min() < 0 or samples.max() <= 0, f"the clock says {samples.min()} to {samples.max()} cycles")
    return {
        "cycles": float(np.median(samples)), "least_cycles": float(samples.min()),
        "p90_cycles": float(np.quantile(samples, 0.9)), "most_cycles": float(samples.max()),
    }  # fmt: skip


def long_too(config: Row, values: dict[str, float]) -> dict[str, float]:
    """``cycles`` by a second name where they are of a stream or of as many steps as there are: the readings weigh least."""
    is_long = config.count == COUNTS[-1] or num_bytes(config) > 0
    return {**values, "long_cycles": values["cycles"]} if is_long else values


def num_bytes(config: Mapping[str, str]) -> int:
    """Bytes that one CTA moves in a round of a stream; 0 of other probes."""
    return 16 * 32 * int(config["warps"]) * int(config["loads"])


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Cycles of a step, the readings' share included; bytes a cycle of a stream."""
    if not row.get("cycles"):
        return {}
    cycles = float(row["cycles"])
    if num_bytes(row):
        return {"bytes_per_cycle": num_bytes(row) / cycles}
    return {"cycles_per_step": cycles / int(row["count"])}


# ---------------------------------------------------------------------------------------------- the simulator's answer
def twin(config: Row, num_steps: int) -> Launch | None:
    """The probe in the simulator's words, ``num_steps`` steps long; None where it has no word for it."""
    name, size, threads = stem(config), config.cluster, 32 * config.warps
    roles = _roles_of(name, config, num_steps)
    if roles is None:
        return None
    arrivals = max(1, config.lanes * max(num_steps, 1)) if name == "mbarrier_arrive" else 1
    return Launch(
        kernel=config.kernel, num_ctas=size, num_tiles=size, cluster_size=size, roles=tuple(roles),
        mbarriers=(
            Mbarrier(name="many", num_arrivals=max(arrivals, num_steps, 1)), Mbarrier(name="one", num_arrivals=1),
            Mbarrier(name="two", num_arrivals=1),
        ),
        named_barriers=(NamedBarrier(name="to", num_threads=threads), NamedBarrier(name="back", num_threads=threads)),
    )  # fmt: skip


def _role(name: str, num_warps: int, program: Any, *arguments: Any) -> WarpRole:
    return WarpRole(name=name, num_warps=num_warps, program=partial(program, *arguments))


def _roles_of(name: str, config: Row, num_steps: int) -> list[WarpRole] | None:
    warps, partner = config.warps, config.partner
    simple: dict[str, tuple[ops.Op, ...]] = {
        "bar_sync": (ops.Syncthreads(),), "fence_proxy_async_shared": (ops.FenceProxyAsync(),),
        "fence_mbarrier_init": (ops.FenceMbarrierInit(),), "mbarrier_arrive": (ops.MbarrierArrive("many", 0),),
        "mbarrier_try_wait_done": (ops.MbarrierWait("many", 0, 1),),
        "mbarrier_arrive_expect_tx": (ops.MbarrierArrive("many", 0),),
        "cluster_barrier": (ops.FenceAcqRel(), ops.ClusterArrive(), ops.ClusterWait()),
        "cluster_barrier_relaxed": (ops.ClusterArrive(), ops.ClusterWait()),
    } | dict.fromkeys(("fence_gpu", "fence_sc_gpu", "fence_cluster"), (ops.FenceAcqRel(),))  # fmt: skip
    simple |= dict.fromkeys(SHUFFLES, (ops.Shfl(1, is_chain=True),))
    if name in simple:
        return [_role("all", warps, _each, simple[name] * num_steps)]
    of_one: dict[str, tuple[Any, ...]] = {
        "remote_arrive": (_remote_arrivals, num_steps, partner), "mbarrier_self": (_self_rounds, num_steps),
        "ping_pong": (_between_ctas, num_steps, partner), "st_async": (_words, num_steps, partner),
    } | ({"dsmem_chain": (_chain, num_steps, partner)} if partner else {})  # fmt: skip
    if name in of_one:
        return [_role("all", 1, *of_one[name])]
    if name == "mbarrier_ping_pong":
        return [_role("asks", 1, _asks, num_steps), _role("answers", 1, _answers, num_steps)]
    if name == "bar_ping_pong":
        half = max(1, warps // 2)
        return [_role("asks", half, _bar_asks, num_steps), _role("answers", half, _bar_answers, num_steps)]
    if name == "dsmem_load":
        return [_role(f"warp_{warp}", 1, _stream, num_steps, config) for warp in range(warps)]
    return None


def _each(steps: tuple[ops.Op, ...], _cta: RoleContext) -> Program:
    yield from steps


def _remote_arrivals(num_steps: int, partner: int, cta: RoleContext) -> Program:
    for _ in range(0 if cta.cta_rank else num_steps):
        yield ops.FenceAcqRel()
        yield ops.MbarrierArrive("many", 0, cta_rank=partner)


def _chain(num_steps: int, partner: int, cta: RoleContext) -> Any:
    for _ in range(0 if cta.cta_rank else num_steps):
        yield ops.Use((yield ops.DsmemLoad(partner, 8)))


def _self_rounds(num_steps: int, _cta: RoleContext) -> Program:
    for step in range(num_steps):
        yield ops.MbarrierArrive("one", 0)
        yield ops.MbarrierWait("one", 0, step & 1)


def _asks(num_steps: int, _cta: RoleContext) -> Program:
    for step in range(num_steps):
        yield ops.MbarrierArrive("one", 0)
        yield ops.MbarrierWait("two", 0, step & 1)


def _answers(num_steps: int, _cta: RoleContext) -> Program:
    for step in range(num_steps):
        yield ops.MbarrierWait("one", 0, step & 1)
        yield ops.MbarrierArrive("two", 0)


def _between_ctas(num_steps: int, partner: int, cta: RoleContext) -> Program:
    for step in range(num_steps):
        if cta.cta_rank == 0:
            yield ops.FenceAcqRel()
            yield ops.MbarrierArrive("one", 0, cta_rank=partner)
            yield ops.MbarrierWait("one", 0, step & 1)
        elif cta.cta_rank == partner:
            yield ops.MbarrierWait("one", 0, step & 1)
            yield ops.FenceAcqRel()
            yield ops.MbarrierArrive("one", 0, cta_rank=0)


def _words(num_steps: int, partner: int, cta: RoleContext) -> Program:
    if num_steps and cta.cta_rank in (0, partner):
        yield ops.MbarrierArriveExpectTx("one", 0, 4)
    yield ops.ClusterArrive()
    yield ops.ClusterWait()
    for step in range(num_steps):
        if cta.cta_rank == 0:
            yield ops.StAsync(partner, 4, "one", 0)
        if cta.cta_rank in (0, partner):
            yield ops.MbarrierWait("one", 0, step & 1)
            if step < num_steps - 1:
                yield ops.MbarrierArriveExpectTx("one", 0, 4)
            yield _rest(CHECK_CYCLES)
        if cta.cta_rank == partner:
            yield ops.StAsync(0, 4, "one", 0)


def _rest(cycles: float) -> ops.Op:
    """Integer instructions of one warp that take so long: one in two cycles on a scheduler of 16 lanes."""
    return ops.Alu(cycles / 2)


def _bar_asks(num_steps: int, _cta: RoleContext) -> Program:
    for _ in range(num_steps):
        yield ops.BarArrive("to")
        yield ops.BarSync("back")


def _bar_answers(num_steps: int, _cta: RoleContext) -> Program:
    for _ in range(num_steps):
        yield ops.BarSync("to")
        yield ops.BarArrive("back")


def _stream(num_steps: int, config: Row, cta: RoleContext) -> Any:
    """A warp's loads, in batches; all meet at the end."""
    num_batches = config.loads // BATCH_LOADS * num_steps
    for _ in range(0 if cta.cta_rank and config.only_first else num_batches):
        yield _rest(BATCH_CYCLES)
        yield ops.Use((yield ops.DsmemLoad((cta.cta_rank + config.partner) % config.cluster, 16 * 32 * BATCH_LOADS)))
    yield ops.Syncthreads()


def life_cycles(of: Launch, gpu: GpuSpec) -> float:
    """Cycles of the first CTA's first role, from its start to its end."""
    result = simulate(of, gpu, clock="max", l2="warm", recorded_sms=range(gpu.num_sms))
    (record, *_) = [item for item in result.timeline.roles if item.cta_idx == 0]
    states = [(start, end) for state, start, end in record.states if state.name != "START"]
    return states[-1][1] - states[0][0] if states else 0.0


def _is_known(config: Row, gpu: GpuSpec) -> bool:
    """Whether the GPU has what the probe asks for, and the simulator a word for it."""
    name, size = stem(config), config.cluster
    if config.busy or size > max(1, gpu.device.max_cluster_size):
        return False
    if size > 1 or name.startswith(("cluster", "dsmem", "remote", "ping_pong", "st_async")):
        return gpu.dsmem is not None and gpu.mbarrier is not None
    return gpu.mbarrier is not None or not name.startswith(("mbarrier", "fence_proxy", "fence_mbarrier"))


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """Cycles of a round, where the simulator has a word for the probe, and of what the kernel does beside it."""
    cycles = step_cycles(config, gpu)
    if cycles is None:
        return {}
    if stem(config) == "fence_mbarrier_init":
        return long_too(config, {"cycles": HIDDEN_FRAME_CYCLES + max(HIDDEN_CYCLES, cycles)})
    return long_too(config, {"cycles": cycles + FRAME_CYCLES.get(stem(config), 0.0)})


def step_cycles(config: Row, gpu: GpuSpec) -> float | None:
    """Cycles of a round's steps as the simulator has them; None where it has no word for them."""
    made = twin(config, config.count) if _is_known(config, gpu) else None
    if made is None:
        return None
    cycles = life_cycles(made, gpu)
    if stem(config) == "st_async":  # begins with an announcement and a barrier of all, which are not measured
        before = twin(config, 0)
        assert before is not None  # it was made above
        cycles -= life_cycles(before, gpu)
    return cycles


# ---------------------------------------------------------------------------------------------- parameters

Rows = Sequence[Mapping[str, str]]


def slopes(
    rows: Rows, *, over: str, is_wanted: Callable[[Mapping[str, str]], bool]
) -> list[tuple[Mapping[str, str], float]]:
    """(a row of it, cycles for one more of ``over``) of each sweep whose rows differ in ``over`` alone; by least squares."""
    sweeps: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        if row.get("cycles") and is_wanted(row):
            others = [row[name] for name in FIELDS if name != over]
            sweeps.setdefault((stem(row), *others), []).append(row)
    found = []
    for sweep in sweeps.values():
        line = _line([(float(row[over]), float(row["cycles"])) for row in sweep])
        if line is not None:
            found.append((sweep[0], line[1]))
    return found


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """(intercept, slope) through points; None of fewer than two abscissas."""
    x, y = np.array(points, dtype=np.float64).reshape(-1, 2).T
    if len(np.unique(x)) < 2:
        return None
    slope, intercept = np.polyfit(x, y, 1)
    return float(intercept), float(slope)


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def median_slope(rows: Rows, *names: str, over: str = "count", **fields: str) -> float | None:
    """The median over the sweeps of probes ``names`` whose columns are ``fields``; None where there is none."""
    found = slopes(
        rows, over=over,
        is_wanted=lambda row: stem(row) in names and all(row[name] == value for name, value in fields.items()),
    )  # fmt: skip
    return _median([slope for _, slope in found])


def fit(rows: Rows) -> list[Fitted]:
    """What an arrival, a wait, a barrier, a fence and the network of a cluster take: slopes, so that no clock is in them."""
    interval, try_wait = _arrive_interval(rows), median_slope(rows, "mbarrier_try_wait_done")
    there_and_back = median_slope(rows, "mbarrier_ping_pong", busy="0")
    wake = there_and_back / 2 - interval if interval is not None and there_and_back is not None else None
    found = {
        "mbarrier.arrive_interval_cycles": (interval, f"eight arrivals, of which {ARRIVE_QUEUE} take a cycle each"),
        "mbarrier.try_wait_cycles": (try_wait, "slope over try_waits of a phase that is complete"),
        "mbarrier.wake_cycles": (
            wake, "half of what there and back takes, median of the partners, less an arrival's interval"
        ),
        "warp_scheduler.fence_cycles": (
            median_slope(rows, "fence_proxy_async_shared"), "slope over fence.proxy.async.shared::cta with nothing under way"
        ),
    }  # fmt: skip
    shuffle = median_slope(rows, *SHUFFLES)
    if shuffle is not None and shuffle > 1.0:  # more than an issue slot
        found["warp_scheduler.shuffle_cycles"] = (shuffle, "slope over chains of shuffles, median")
    line = _barrier_line(rows)
    if line is not None:
        how = "line through the slopes over count, by warps"
        found["warp_scheduler.barrier_base_cycles"] = (line[0], f"{how}: intercept")
        found["warp_scheduler.barrier_warp_cycles"] = (line[1], f"{how}: slope")
        found["warp_scheduler.bar_arrive_cycles"] = (
            _bar_arrive(rows, *line), "half of what bar.arrive and bar.sync take there and back, less the barrier, median"
        )
    found |= _fit_network(rows, None if line is None else line[1], wake)
    return [Fitted(parameter=name, value=value, how=how) for name, (value, how) in found.items() if value is not None]


def _fit_network(rows: Rows, warp_cycles: float | None, wake: float | None) -> dict[str, tuple[float | None, str]]:
    """Fences of scope gpu and what the CTAs of a cluster say to one another."""
    fence = median_slope(rows, "fence_gpu", "fence_sc_gpu", "fence_cluster")
    there_and_back = _remote(rows, "dsmem_chain")
    of_pair = _remote(rows, "dsmem_chain", is_pair=True)
    saving = (there_and_back - of_pair) / 2 if there_and_back is not None and of_pair is not None else None
    round_trip = _remote(rows, "ping_pong")
    one_way = None
    if round_trip is not None and fence is not None and wake is not None:
        one_way = round_trip / 2 - fence - 1.0 - wake
    found: dict[str, tuple[float | None, str]] = {
        "warp_scheduler.gpu_fence_cycles": (fence, "slope over fences of scope gpu and cluster, nothing under way, median"),
        "warp_scheduler.gpu_fence_warp_cycles": (
            None if fence is None else _fence_warp(rows, fence),
            "cluster barriers that release, less relaxed ones and a warp's fence, over the warps beyond four, median",
        ),
        "dsmem.latency_cycles": (there_and_back, "slope of a chain of loads, median of the partners in clusters of 4 and 8"),
        "dsmem.same_tpc_saving_cycles": (saving, "half of what a chain of loads takes less in a cluster of two"),
        "dsmem.one_way_cycles": (
            one_way, "half of what arrivals take there and back in clusters of 4 and 8, less fence, issue and wake, median"
        ),
        "dsmem.bytes_per_cycle": (_stream_rate(rows), "loads of one CTA from 8 warps on: bytes over cycles, median slope"),
        "dsmem.serve_fraction": (
            _serve_fraction(rows), "loads of all CTAs over loads of one, from 8 warps on, less one: median"
        ),
    }  # fmt: skip
    if warp_cycles is not None:
        line = _cluster_barrier(rows, warp_cycles)
        if line is not None:
            how = "slopes over relaxed barriers, less warps and issue, by size"
            found["dsmem.cluster_barrier_cycles"] = (line[0], f"{how}: intercept")
            found["dsmem.cluster_barrier_cta_cycles"] = (line[1], f"{how}: slope")
    return found


def _arrive_interval(rows: Rows) -> float | None:
    """Of one lane's arrivals: the first ones take a cycle each, the rest the interval."""
    points = sorted(
        (int(row["count"]), float(row["cycles"])) for row in rows
        if stem(row) == "mbarrier_arrive" and row["lanes"] == "1" and row.get("cycles")
    )  # fmt: skip
    if not points or points[-1][0] <= ARRIVE_QUEUE:
        return None
    (few, least), (many, most) = points[0], points[-1]
    queued = min(many, ARRIVE_QUEUE) - min(few, ARRIVE_QUEUE)
    return (most - least - queued) / (many - max(few, ARRIVE_QUEUE))


def _bar_arrive(rows: Rows, base_cycles: float, warp_cycles: float) -> float | None:
    found = [
        slope / 2 - base_cycles - warp_cycles * float(row["warps"]) / 2
        for row, slope in slopes(rows, over="count", is_wanted=lambda row: stem(row) == "bar_ping_pong")
    ]
    return max(0.0, float(np.median(found))) if found else None


def _remote(rows: Rows, name: str, *, is_pair: bool = False) -> float | None:
    """The median slope over the partners, in clusters of two or in larger ones."""
    found = slopes(
        rows, over="count",
        is_wanted=lambda row: stem(row) == name and row["partner"] != "0" and (row["cluster"] == "2") == is_pair,
    )  # fmt: skip
    return _median([slope for _, slope in found])


def _fence_warp(rows: Rows, fence_cycles: float) -> float | None:
    by_kind: dict[str, dict[tuple[str, str], float]] = {"cluster_barrier": {}, "cluster_barrier_relaxed": {}}
    for row, slope in slopes(rows, over="count", is_wanted=lambda row: stem(row) in by_kind and row["clusters"] == "1"):
        by_kind[stem(row)][row["cluster"], row["warps"]] = slope
    relaxed = by_kind["cluster_barrier_relaxed"]
    found = [
        (slope - relaxed[key] - fence_cycles) / (int(key[1]) - 4)
        for key, slope in by_kind["cluster_barrier"].items() if key in relaxed and int(key[1]) > 4
    ]  # fmt: skip
    return _median(found)


def _barrier_line(rows: Rows) -> tuple[float, float] | None:
    """bar.sync of none, and each warp more: robust, by the median slope of all pairs of warps."""
    points = [
        (float(row["warps"]), slope)
        for row, slope in slopes(rows, over="count", is_wanted=lambda row: stem(row) == "bar_sync")
    ]
    pairs = slopes_of_pairs(points)
    if not pairs:
        return None
    each = float(np.median(pairs))
    return float(np.median([cycles - each * warps for warps, cycles in points])), each


def _cluster_barrier(rows: Rows, warp_cycles: float) -> tuple[float, float] | None:
    """Relaxed cluster barriers: of no CTA, and each more; by the median slope of all pairs of sizes."""
    found = slopes(
        rows, over="count",
        is_wanted=lambda row: stem(row) == "cluster_barrier_relaxed" and row["cluster"] in ("2", "4", "8"),
    )  # fmt: skip
    points = [
        (
            float(row["cluster"]), slope - int(row["warps"]) * warp_cycles - math.ceil(int(row["warps"]) / 4),
            (row["warps"], row["clusters"] == "1"),
        )
        for row, slope in found
    ]
    pairs = [(b - a) / (y - x) for x, a, of in points for y, b, other in points if y > x and of == other]
    if not pairs:
        return None
    each = float(np.median(pairs))
    return float(np.median([cycles - each * size for size, cycles, _ in points])), each


def _serve_fraction(rows: Rows) -> float | None:
    """What loads of all CTAs take longer than loads of one, of as many bytes each."""
    by_kind: dict[str, dict[tuple[str, str], float]] = {"0": {}, "1": {}}
    for row, slope in slopes(
        rows, over="loads",
        is_wanted=lambda row: stem(row) == "dsmem_load" and row["clusters"] == "1" and int(row["warps"]) >= 8,
    ):
        by_kind[row["only_first"]][row["cluster"], row["warps"]] = slope
    found = [slope / by_kind["1"][key] - 1.0 for key, slope in by_kind["0"].items() if by_kind["1"].get(key, 0.0) > 0.0]
    return max(0.0, float(np.median(found))) if found else None


def _stream_rate(rows: Rows) -> float | None:
    """Bytes a cycle that one CTA takes in from a neighbour."""
    found = slopes(
        rows, over="loads",
        is_wanted=lambda row: (
            stem(row) == "dsmem_load" and row["only_first"] == "1" and row["clusters"] == "1" and int(row["warps"]) >= 8
        ),
    )  # fmt: skip
    rates = [16 * 32 * int(row["warps"]) / slope for row, slope in found if slope > 0]
    return _median(rates)


def fitted_constants(rows: Rows, gpu: GpuSpec) -> list[FittedConstant]:
    """What rounds take beside their steps, and what steps take that no row measures alone.

    The twin is linear in them, so that what stands in the code now cancels.
    """
    idle = [row for row in rows if row.get("cycles") and row["clusters"] == "1" and row["warps"] != "0"]
    left: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for row in idle:
        config = Row.of(row)
        is_lone = row["warps"] == row["only_first"] == "1"
        steps = step_cycles(config, gpu) if stem(row) in FRAME_CYCLES and (is_lone or not num_bytes(row)) else None
        if steps is not None:
            left.setdefault(stem(row), []).append((row, float(row["cycles"]) - steps))
    batches = _excess(left.get("dsmem_load", ()), "loads", 1.0 / BATCH_LOADS)
    checks = _excess(left.get("st_async", ()), "count", 2.0)
    how = "loads of a lone warp beyond the twin's, slope over batches, median of the sizes"
    found = fitted_constant("BATCH_CYCLES", [BATCH_CYCLES + value for value in batches], how)
    how = "half of what a step takes beyond the twin's, slope over count, median of the partners"
    found += fitted_constant("CHECK_CYCLES", [CHECK_CYCLES + value for value in checks], how)
    how = "cycles beyond the twin's steps, median of one cluster's rows of 1 and 8 steps (of loads: a lone warp's)"
    for name, values in left.items():
        found += fitted_constant("FRAME_CYCLES", [value for _, value in values], how, name)
    return found


def _excess(left: Sequence[tuple[Mapping[str, str], float]], over: str, per_unit: float) -> list[float]:
    """The median slope of what is left over a column, by sweeps that differ in it alone, for ``per_unit`` of each step."""
    sweeps: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row, value in left:
        sweeps.setdefault(tuple(row[name] for name in FIELDS if name != over), []).append((float(row[over]), value))
    lines = [line[1] / per_unit for line in map(_line, sweeps.values()) if line is not None]
    return [float(np.median(lines))] if lines else []


CASE = Case(
    name="barriers",
    question="What does synchronizing cost, within a warp, a CTA and a cluster?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, fitted_constants=fitted_constants,
    derive=derive,
    groups={
        "mbarrier": Group(configs=mbarrier, rank=1, least_capability=(9, 0)),
        "bar": Group(configs=bar, rank=1),
        "cluster": Group(configs=cluster, rank=2, least_capability=(9, 0), num_sms=132),
        "dsmem": Group(configs=dsmem, rank=3, least_capability=(9, 0), num_sms=132),
        "fences_90": Group(configs=fences_90, rank=2, least_capability=(9, 0)),
        "registers": Group(configs=registers, rank=4, least_capability=(9, 0)),
        "fences": Group(configs=fences, rank=5),
        "warp": Group(configs=warp, rank=5),
        "cluster_16": Group(configs=cluster_16, rank=9, least_capability=(9, 0)),
    },
    values={
        "cycles": "median SM cycles of a round, the two readings of the clock included; setmaxnreg: of inc",
        "long_cycles": "cycles once more, of 16 steps and of streams alone: there the readings of the clock weigh least",
        "least_cycles": "the least of 32 rounds, of every cluster",
        "p90_cycles": "of 32 rounds, of every cluster",
        "most_cycles": "the most of 32 rounds, of every cluster",
        "second_cycles": "SM cycles of setmaxnreg.dec",
    },
    tiers={"long_cycles": 2},
)  # fmt: skip
