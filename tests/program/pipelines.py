"""Random pipelines that are right, each from a seed, and changes of one op that make them wrong.

A pipeline is a list of ops for each role and cluster rank. Roles, rings, copies, math and epilogue are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gpusim import Buffer, Launch, Mbarrier, NamedBarrier, WarpRole
from gpusim.workload import ops
from gpusim.workload.atoms import mma_sync, wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import Program, RoleContext
from gpusim.workload.smem.access import AccessPattern

BYTES = 4096
"""Of a stage of A or B, and of the staging buffer."""
MATH = wgmma(64, BF16)
ACCESS = AccessPattern(num_requests=4, num_sectors=128, num_lines=32, num_wavefronts=32, num_bytes=BYTES)
HALF = replace(ACCESS, num_bytes=BYTES // 2)
Ops = list[ops.Op]


@dataclass
class Pipeline:
    """A launch as lists of ops, by cluster rank and role."""

    roles: dict[str, tuple[int, list[Ops]]] = field(default_factory=dict)
    """Warps and, for each rank, the ops of each role."""
    mbarriers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Arrivals and stages of each ring."""
    named: dict[str, int] = field(default_factory=dict)
    num_stages: int = 1
    num_slots: int = 1
    cluster: int = 1
    operands: tuple[str, ...] = ("a", "b")
    """Rings of A and B; with one mbarrier for all stages: a buffer of one stage each."""

    def launch(self) -> Launch:
        """The launch that yields these ops."""
        return Launch(
            kernel="drawn", num_ctas=self.cluster, num_tiles=self.cluster, cluster_size=self.cluster,
            roles=tuple(
                WarpRole(name=name, num_warps=warps, program=yielding(lists)) for name, (warps, lists) in self.roles.items()
            ),
            buffers=(
                *(Buffer(name=name, stage_bytes=BYTES, num_stages=self.num_stages) for name in self.operands),
                Buffer(name="d", stage_bytes=BYTES, num_stages=self.num_slots),
            ),
            mbarriers=tuple(
                Mbarrier(name=name, num_arrivals=num, num_stages=stages) for name, (num, stages) in self.mbarriers.items()
            ),
            named_barriers=tuple(NamedBarrier(name=name, num_threads=num) for name, num in self.named.items()),
        )

    def copy(self) -> Pipeline:
        """The same with lists of its own."""
        roles = {name: (warps, [list(each) for each in lists]) for name, (warps, lists) in self.roles.items()}
        return replace(self, roles=roles)


def yielding(lists: list[Ops]) -> Program:
    """A program that yields the list of its cluster rank."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for op in lists[cta.cta_rank]:  # noqa: UP028  # tokens are sent, and a list takes none
            yield op

    return program


def math_ops(kind: str, stage: int) -> Ops:
    """Products of one stage."""
    if kind == "wgmma":
        return [ops.Wgmma(MATH, 4, (("a", stage), ("b", stage))), ops.WgmmaCommitGroup()]
    return [ops.Ldmatrix(ACCESS, "a", stage), ops.Ldmatrix(ACCESS, "b", stage), ops.MmaSync(mma_sync(BF16), 8)]


def epilogue(kind: str, slot: int, meet: ops.Op, turn: int) -> Ops:
    """Stores of a tile's accumulators, directly, through shared memory, or by TMA."""
    write, first = ops.Stmatrix(ACCESS, "d", slot), [meet] if turn else []
    if kind == "direct":
        return [ops.GlobalStore("D", (0, turn), ACCESS)]
    if kind == "smem":
        return [*first, write, meet, ops.SharedLoad(ACCESS, "d", slot), ops.GlobalStore("D", (0, turn), ACCESS)]
    store = ops.TmaStore("D", (0, turn), BYTES, 8, "d", slot)
    return [ops.BulkWaitGroup(0), *first, write, ops.FenceProxyAsync(), meet, store, ops.BulkCommitGroup()]


def loads(stage: int, k: int, copy: str, multicast: tuple[int, ...] = (), num_parts: int = 1) -> Ops:
    """Copies of A and B into a stage, or of one of equal parts of both."""
    if copy == "tma":
        size = BYTES // num_parts
        return [ops.TmaLoad(name.upper(), (0, k), size, size, 8, name, stage, "full", multicast) for name in "ab"]
    if copy == "parts":
        return [ops.CpAsync(name.upper(), (0, k), HALF, name, stage) for name in "aabb"]
    return [ops.CpAsync(name.upper(), (0, k), ACCESS, name, stage) for name in "ab"]


def specialized(draw: random.Random) -> Pipeline:
    """One or two producers, and one or two consumers that share each stage.

    Two producers fill parts of each stage, and so do CTAs that multicast. The first consumer may expect the bytes. Then all
    stages may complete on one mbarrier, each in a phase of its own.
    """
    copy, math = draw.choice(("tma", "tma", "cp_async", "parts")), draw.choice(("wgmma", "mma_sync"))
    stages, num_tiles, num_consumers = draw.randint(1, 4), draw.randint(1, 3), draw.randint(1, 2)
    steps, path = draw.randint(1, 9), draw.choice(("direct", "smem", "tma_store"))
    cluster = draw.choice((1, 1, 2)) if copy == "tma" else 1
    depth = draw.randint(0, min(1, stages - 1)) if math == "wgmma" else 0
    is_multicast, has_init = cluster == 2 and draw.random() < 0.7, cluster == 2 or draw.random() < 0.7
    ranks = tuple(range(cluster))
    num_producers, has_parts = draw.randint(1, 2) if copy == "tma" else 1, is_multicast and draw.random() < 0.5
    consumer_expects = copy == "tma" and draw.random() < 0.3
    is_one = consumer_expects and not is_multicast and num_consumers == 1 and draw.random() < 0.7
    num_filling = 32 if copy != "tma" else 1 if consumer_expects else num_producers
    num_parts = num_producers * (2 if has_parts else 1)
    made = Pipeline(num_stages=stages, num_slots=num_consumers, cluster=cluster)
    made.mbarriers = {
        "full": (num_filling, stages), "empty": (num_consumers * (cluster if is_multicast else 1), stages),
    }
    made.named = {f"own{idx}": 128 for idx in range(num_consumers)}
    meet: Ops = [ops.ClusterArrive(), ops.ClusterWait()] if cluster > 1 else [ops.Syncthreads()]
    producers, consumers = [list[Ops]() for _ in range(num_producers)], [list[Ops]() for _ in range(num_consumers)]
    for rank in ranks:
        for idx in range(num_producers):
            inits = [ops.MbarrierInit("full"), ops.MbarrierInit("empty")] if has_init and not idx else []
            producer: Ops = [*inits, *meet]
            for k in range(steps * num_tiles):
                stage, parity = k % stages, k // stages & 1
                producer += [ops.MbarrierWait("full", 0, k & 1 ^ 1)] if is_one and k else []
                producer.append(ops.MbarrierWait("empty", stage, parity ^ 1))
                if copy == "tma":
                    if not consumer_expects:
                        producer.append(ops.MbarrierArriveExpectTx("full", stage, 2 * BYTES // num_producers))
                    both = loads(stage, k, copy, ranks if is_multicast else (), num_parts)
                    producer += [both[rank]] if is_multicast and not has_parts else both
                else:
                    producer += [*loads(stage, k, copy), ops.CpAsyncMbarrierArrive("full", stage)]
            producers[idx].append([*producer, *(meet if cluster > 1 else [])])
        for idx in range(num_consumers):
            own: Ops = [*meet]
            arrive_at = [None if to == rank else to for to in ranks] if is_multicast else [None]

            def release(stage: int, arrive_at: list[int | None] = arrive_at) -> Ops:
                return [ops.MbarrierArrive("empty", stage, 1, to) for to in arrive_at]

            for tile in range(num_tiles):
                own += [ops.WgmmaFence()] if math == "wgmma" else []
                for step in range(steps):
                    k = tile * steps + step
                    full, parity = (0, k & 1) if is_one else (k % stages, k // stages & 1)
                    own += [ops.MbarrierArriveExpectTx("full", full, 2 * BYTES)] if consumer_expects and not idx else []
                    own.append(ops.MbarrierWait("full", full, parity))
                    own += [ops.FenceProxyAsync()] if math == "wgmma" and copy != "tma" else []
                    own += math_ops(math, k % stages)
                    own += [ops.WgmmaWaitGroup(depth)] if math == "wgmma" else []
                    own += release((k - depth) % stages) if step >= depth else []
                if depth:
                    own += [ops.WgmmaWaitGroup(0), *release((tile * steps + steps - 1) % stages)]
                own += epilogue(path, idx, ops.BarSync(f"own{idx}"), tile)
            own += [ops.BulkWaitGroup(0)] if path == "tma_store" else []
            consumers[idx].append([*own, *(meet if cluster > 1 else [])])
    made.roles = {f"producer{idx}": (1, lists) for idx, lists in enumerate(producers)}
    made.roles |= {f"consumer{idx}": (4, lists) for idx, lists in enumerate(consumers)}
    return on_one_mbarrier(made) if is_one else made


def on_one_mbarrier(ring: Pipeline) -> Pipeline:
    """The same with a buffer for each stage of A and B, whose copies all complete on ``full[0]``."""
    made = replace(ring.copy(), num_stages=1, operands=tuple(f"{name}{k}" for name in "ab" for k in range(ring.num_stages)))
    made.mbarriers["full"] = made.mbarriers["full"][0], 1

    def moved(op: Any) -> ops.Op:
        if isinstance(op, ops.Wgmma):
            return replace(op, reads=tuple((f"{name}{stage}", 0) for name, stage in op.reads))
        is_operand = isinstance(op, ops.TmaLoad | ops.Ldmatrix)
        return replace(op, buffer=f"{op.buffer}{op.stage}", stage=0) if is_operand else op

    for _, lists in made.roles.values():
        lists[:] = [[moved(op) for op in own] for own in lists]
    return made


def multistage(draw: random.Random) -> Pipeline:
    """One role whose warps copy and multiply."""
    copy, math = draw.choice(("tma", "cp_async", "parts")), draw.choice(("wgmma", "mma_sync"))
    stages, num_tiles, steps = draw.randint(1, 5), draw.randint(1, 3), draw.randint(1, 9)
    path, has_init = draw.choice(("direct", "smem", "tma_store")), draw.random() < 0.7
    ahead, meet, made = max(0, stages - 1), ops.Syncthreads(), Pipeline(num_stages=stages)
    made.mbarriers = {"full": (1, stages)}
    own: Ops = [ops.MbarrierInit("full"), meet] if copy == "tma" and has_init else []

    def fill(tile: int, step: int) -> Ops:
        stage = (tile * steps + step) % stages
        if step >= steps:
            return [] if copy == "tma" else [ops.CpAsyncCommitGroup()]
        if copy == "tma":
            return [ops.MbarrierArriveExpectTx("full", stage, 2 * BYTES), *loads(stage, step, copy)]
        return [*loads(stage, step, copy), ops.CpAsyncCommitGroup()]

    for tile in range(num_tiles):
        own += [meet] if tile else []
        own += [op for step in range(ahead) for op in fill(tile, step)]
        own += [ops.WgmmaFence()] if math == "wgmma" else []
        for step in range(steps):
            k = tile * steps + step
            own += fill(tile, step) if stages == 1 else []
            if copy == "tma":
                own.append(ops.MbarrierWait("full", k % stages, k // stages & 1))
            else:
                own.append(ops.CpAsyncWaitGroup(max(0, ahead - 1)))
                own += [ops.FenceProxyAsync()] if math == "wgmma" else []
            own.append(meet)
            own += fill(tile, step + ahead) if stages > 1 else []
            own += math_ops(math, k % stages)
            own += [ops.WgmmaWaitGroup(0)] if math == "wgmma" else []
            own += [meet] if stages == 1 else []
        own += epilogue(path, 0, meet, tile)
    own += [ops.BulkWaitGroup(0)] if path == "tma_store" else []
    made.roles = {"math": (4, [own])}
    return made


def drawn(seed: int) -> Pipeline:
    """The pipeline of a seed."""
    draw = random.Random(seed)
    return draw.choice((specialized, specialized, multistage))(draw)


# ---------------------------------------------------------------------- changes of one op

Change = Callable[[ops.Op], list[ops.Op]]


def dropped(op: ops.Op) -> Ops:
    """Nothing in its place."""
    return []


def other_parity(op: Any) -> Ops:
    """The wait with the other parity."""
    return [replace(op, parity=op.parity ^ 1)]


def is_kind(*kinds: type[ops.Op], **fields: Any) -> Callable[[Any], bool]:
    """Whether an op has one of these types and these fields."""
    return lambda op: isinstance(op, kinds) and all(getattr(op, name) == value for name, value in fields.items())


CHANGES: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Ops]]] = {
    "no wait for full": (is_kind(ops.MbarrierWait, barrier="full"), dropped),
    "no wait for empty": (is_kind(ops.MbarrierWait, barrier="empty"), dropped),
    "wrong parity of full": (is_kind(ops.MbarrierWait, barrier="full"), other_parity),
    "wrong parity of empty": (is_kind(ops.MbarrierWait, barrier="empty"), other_parity),
    "no arrival on empty": (is_kind(ops.MbarrierArrive, barrier="empty"), dropped),
    "an arrival too many": (is_kind(ops.MbarrierArrive, barrier="empty"), lambda op: [op, op]),
    "no cp.async arrival": (is_kind(ops.CpAsyncMbarrierArrive), dropped),
    "no expect_tx": (is_kind(ops.MbarrierArriveExpectTx), dropped),
    "too few bytes expected": (is_kind(ops.MbarrierArriveExpectTx), lambda op: [replace(op, num_bytes=op.num_bytes // 2)]),
    "too many bytes expected": (is_kind(ops.MbarrierArriveExpectTx), lambda op: [replace(op, num_bytes=op.num_bytes * 2)]),
    "no load": (is_kind(ops.TmaLoad), dropped),
    "no cp.async.wait_group": (is_kind(ops.CpAsyncWaitGroup), dropped),
    "one cp.async group too many in flight": (
        is_kind(ops.CpAsyncWaitGroup), lambda op: [replace(op, num_pending=op.num_pending + 1)],
    ),
    "no cp.async.commit_group": (is_kind(ops.CpAsyncCommitGroup), dropped),
    "no __syncthreads": (is_kind(ops.Syncthreads), dropped),
    "no __syncthreads behind cp.async.wait_group": (is_kind(ops.Syncthreads), dropped),
    "no bar.sync": (is_kind(ops.BarSync), dropped),
    "no barrier behind stmatrix": (is_kind(ops.BarSync, ops.Syncthreads), dropped),
    "no wgmma.fence": (is_kind(ops.WgmmaFence), dropped),
    "no wgmma.wait_group": (is_kind(ops.WgmmaWaitGroup), dropped),
    "one wgmma group too many in flight": (
        is_kind(ops.WgmmaWaitGroup), lambda op: [replace(op, num_pending=op.num_pending + 1)],
    ),
    "no wgmma.commit_group": (is_kind(ops.WgmmaCommitGroup), dropped),
    "no fence.proxy.async": (is_kind(ops.FenceProxyAsync), dropped),
    "no bulk wait_group": (is_kind(ops.BulkWaitGroup), dropped),
    "no bulk commit_group": (is_kind(ops.BulkCommitGroup), dropped),
}  # fmt: skip
"""Which op is changed, and into what, by name of the change."""

FOR_ANOTHER_CTA = "an arrival for another CTA"

BEHIND = {
    "no __syncthreads behind cp.async.wait_group": ops.CpAsyncWaitGroup, "no barrier behind stmatrix": ops.Stmatrix,
}  # fmt: skip
"""Type of the op that the changed one follows, but for a fence."""


def follows(own: Ops, idx: int, kind: type[ops.Op]) -> bool:
    """Whether an op of this type is the last one before ``idx``, but for a fence."""
    before = [op for op in own[max(0, idx - 2) : idx] if not isinstance(op, ops.FenceProxyAsync)]
    return bool(before) and isinstance(before[-1], kind)



def for_another_cta(pipeline: Pipeline, draw: random.Random) -> Pipeline | None:
    """A consumer's arrival at another CTA is left out, and the consumer there arrives once more. So all counts are right."""
    fitting = [
        (role, rank, idx, op)
        for role, (_, lists) in pipeline.roles.items()
        for rank, own in enumerate(lists)
        for idx, op in enumerate(own)
        if isinstance(op, ops.MbarrierArrive) and op.cta_rank is not None
    ]
    if not fitting:
        return None
    role, rank, idx, op = draw.choice(fitting)
    made = pipeline.copy()
    lists = made.roles[role][1]
    number = sum(each == op for each in lists[rank][:idx])
    own = replace(op, cta_rank=None)
    places = [place for place, each in enumerate(lists[op.cta_rank]) if each == own]
    lists[op.cta_rank][places[number]] = replace(own, count=2)
    del lists[rank][idx]
    return made


def changed(pipeline: Pipeline, name: str, draw: random.Random) -> Pipeline | None:
    """The pipeline with one op changed, drawn of those that fit; None where none fits."""
    if name == FOR_ANOTHER_CTA:
        return for_another_cta(pipeline, draw)
    is_fitting, change = CHANGES[name]
    fitting = [
        (role, rank, idx)
        for role, (_, lists) in pipeline.roles.items()
        for rank, own in enumerate(lists)
        for idx, op in enumerate(own)
        if is_fitting(op) and (name not in BEHIND or follows(own, idx, BEHIND[name]))
    ]
    if not fitting:
        return None
    role, rank, idx = draw.choice(fitting)
    made = pipeline.copy()
    own = made.roles[role][1][rank]
    own[idx : idx + 1] = change(own[idx])
    return made
