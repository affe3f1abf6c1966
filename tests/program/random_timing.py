"""A pipeline under random timing: roles and copies in flight go on in a drawn order, and what goes wrong is noted.

It knows nothing of clocks or of the order check. It moves counters, as the hardware does, and sees one order a run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from gpusim.workload import ops

from .pipelines import BYTES, Pipeline


class WrongError(Exception):
    """What a run shows."""


class Run:
    """One run of a pipeline."""

    def __init__(self, pipeline: Pipeline, draw: random.Random, fills: dict[Any, int]) -> None:
        self.pipeline, self.draw = pipeline, draw
        self.fills = fills
        """Number of the fill that each read of earlier runs has seen."""
        self.lists = {
            (rank, role): lists[rank] for role, (_, lists) in pipeline.roles.items() for rank in range(pipeline.cluster)
        }
        self.places = dict.fromkeys(self.lists, 0)
        self.speeds = {key: 10.0 ** draw.uniform(-1.5, 1.5) for key in self.lists}
        self.flying: list[tuple[float, Any, Callable[[], None]]] = []
        """Copies and products in flight: speed, queue (those of one queue end in order), and what their end does."""
        self.phase: Counter[Any] = Counter()
        self.arrived: Counter[Any] = Counter()
        self.bytes: Counter[Any] = Counter()
        self.writing: Counter[Any] = Counter()
        self.written: Counter[Any] = Counter()
        self.reading: Counter[Any] = Counter()
        self.meeting: dict[Any, set[Any]] = {}
        self.met: Counter[Any] = Counter()
        self.waits_for: dict[Any, tuple[Any, int]] = {}
        self.groups: dict[Any, list[list[int]]] = {}
        self.open: dict[Any, list[int]] = {}
        self.inits: set[int] = set()
        self.has_inits = any(isinstance(op, ops.MbarrierInit) for own in self.lists.values() for op in own)

    def wrong(self) -> str:
        """What goes wrong; empty for nothing."""
        try:
            while left := [key for key, own in self.lists.items() if self.places[key] < len(own)]:
                choices: list[tuple[float, Any]] = [(self.speeds[key], key) for key in left if self.can_go(key)]
                first = {queue: idx for idx, (_, queue, _) in reversed(list(enumerate(self.flying)))}
                choices += [(self.flying[idx][0], idx) for idx in first.values()]
                if not choices:
                    raise WrongError("deadlock")
                chosen = self.draw.choices([what for _, what in choices], [weight for weight, _ in choices])[0]
                if isinstance(chosen, int):
                    self.flying.pop(chosen)[2]()
                else:
                    self.go(chosen, self.lists[chosen][self.places[chosen]])
            if any(self.pending(key, kind) for key in self.lists for kind in ("wgmma", "bulk")):
                raise WrongError("ends in flight")
        except WrongError as error:
            return str(error)
        return ""

    def pending(self, key: Any, kind: str) -> bool:
        """Whether groups of a role, or ops that no group has, are in flight."""
        return any(group[0] for group in self.groups.get((key, kind), [])) or any(self.open.get((key, kind), []))

    def can_go(self, key: Any) -> bool:
        rank = key[0]
        op: Any = self.lists[key][self.places[key]]
        if isinstance(op, ops.MbarrierWait):
            return self.phase[rank, op.barrier, op.stage] & 1 != op.parity
        if isinstance(op, ops.CpAsyncWaitGroup | ops.WgmmaWaitGroup | ops.BulkWaitGroup):
            kind = {ops.CpAsyncWaitGroup: "copy", ops.WgmmaWaitGroup: "wgmma"}.get(type(op), "bulk")
            groups = self.groups.get((key, kind), [])
            return not any(group[0] for group in groups[: max(0, len(groups) - op.num_pending)])
        if isinstance(op, ops.Syncthreads | ops.BarSync | ops.ClusterWait):
            name = self.name_of(key, op)
            if key not in self.waits_for and not isinstance(op, ops.ClusterWait):
                self.waits_for[key] = name, self.met[name]
                self.meet(key, name)
            return self.met[name] > self.waits_for[key][1]
        return True

    def name_of(self, key: Any, op: Any) -> Any:
        if isinstance(op, ops.ClusterWait | ops.ClusterArrive):
            return "cluster"
        return key[0], getattr(op, "barrier", "")

    def meet(self, key: Any, name: Any) -> None:
        if name == "cluster":
            wanted = len(self.lists)
        else:
            wanted = len(self.pipeline.roles) if name[1] == "" else self.pipeline.named[name[1]] // 128
        here = self.meeting.setdefault(name, set())
        here.add(key)
        if len(here) == wanted:
            here.clear()
            self.met[name] += 1

    def fly(self, queue: Any, ends: Callable[[], None], *, in_order: bool = True) -> None:
        speed = 10.0 ** self.draw.uniform(-1.5, 1.0)
        self.flying.append((speed, queue if in_order else (queue, object()), ends))

    def arrive(self, barrier: Any, count: int, announced: int = 0) -> None:
        if self.has_inits and barrier[0] not in self.inits:
            raise WrongError("before mbarrier.init")
        wanted = self.pipeline.mbarriers[barrier[1]][0]
        if self.arrived[barrier] + count > wanted:
            raise WrongError(f"too many arrivals on {barrier}")
        self.arrived[barrier] += count
        self.bytes[barrier] -= announced
        self.complete(barrier)

    def complete(self, barrier: Any) -> None:
        if self.arrived[barrier] == self.pipeline.mbarriers[barrier[1]][0] and not self.bytes[barrier]:
            self.phase[barrier] += 1
            self.arrived[barrier] = 0

    def begin_write(self, stage: Any, num_bytes: int) -> None:
        if self.reading[stage]:
            raise WrongError(f"{stage} is written while it is read")
        if self.writing[stage] + num_bytes > BYTES:
            raise WrongError(f"{stage} is written twice at once")
        self.writing[stage] += num_bytes

    def end_write(self, stage: Any, num_bytes: int) -> None:
        self.writing[stage] -= num_bytes
        self.written[stage] += num_bytes

    def read(self, key: Any, stage: Any) -> None:
        if self.writing[stage]:
            raise WrongError(f"{stage} is read while it is written")
        fill = self.fills.setdefault((key, self.places[key], stage), self.written[stage])
        if fill != self.written[stage] or not fill or fill % BYTES:
            raise WrongError(f"{stage} is read with another fill")

    def go(self, key: Any, op: Any) -> None:
        rank = key[0]
        self.waits_for.pop(key, None) if not isinstance(op, ops.ClusterArrive) else None
        if isinstance(op, ops.MbarrierInit):
            self.inits.add(rank)
        elif isinstance(op, ops.MbarrierArrive):
            self.arrive((rank if op.cta_rank is None else op.cta_rank, op.barrier, op.stage), op.count)
        elif isinstance(op, ops.MbarrierArriveExpectTx):
            self.arrive((rank, op.barrier, op.stage), 1, op.num_bytes)
        elif isinstance(op, ops.TmaLoad):
            for to in op.multicast or (rank,):
                self.load(op, to)
        elif isinstance(op, ops.CpAsync):
            self.copy(key, op)
        elif isinstance(op, ops.CpAsyncMbarrierArrive):
            self.fly((key, "copy"), lambda: self.arrive((rank, op.barrier, op.stage), 32))
        elif isinstance(op, ops.Wgmma):
            self.in_group(key, "wgmma", [(rank, *stage) for stage in op.reads])
        elif isinstance(op, ops.TmaStore):
            self.in_group(key, "bulk", [(rank, op.buffer, op.stage)])
        elif isinstance(op, ops.CpAsyncCommitGroup | ops.WgmmaCommitGroup | ops.BulkCommitGroup):
            kind = {ops.CpAsyncCommitGroup: "copy", ops.WgmmaCommitGroup: "wgmma"}.get(type(op), "bulk")
            self.groups.setdefault((key, kind), []).append(self.open.pop((key, kind), [0]))
        elif isinstance(op, ops.Ldmatrix | ops.SharedLoad):
            self.read(key, (rank, op.buffer, op.stage))
        elif isinstance(op, ops.Stmatrix | ops.GlobalStore):
            if self.pending(key, "wgmma"):
                raise WrongError("accumulators in flight")
            if isinstance(op, ops.Stmatrix):
                self.begin_write((rank, op.buffer, op.stage), BYTES)
                self.end_write((rank, op.buffer, op.stage), BYTES)
        elif isinstance(op, ops.ClusterArrive):
            self.waits_for[key] = "cluster", self.met["cluster"]
            self.meet(key, "cluster")
        self.places[key] += 1

    def load(self, op: Any, to: int) -> None:
        stage, barrier = (to, op.buffer, op.stage), (to, op.barrier, op.stage)
        if self.has_inits and to not in self.inits:
            raise WrongError("before mbarrier.init")
        if all(self.places[key] == len(own) for key, own in self.lists.items() if key[0] == to):
            raise WrongError("the other CTA has exited")
        self.begin_write(stage, op.num_bytes)

        def ends() -> None:
            self.end_write(stage, op.num_bytes)
            self.bytes[barrier] += op.num_bytes
            self.complete(barrier)

        self.fly(("tma", stage), ends, in_order=False)

    def copy(self, key: Any, op: Any) -> None:
        stage, group = (key[0], op.buffer, op.stage), self.open.setdefault((key, "copy"), [0])
        self.begin_write(stage, op.access.num_bytes)
        group[0] += 1

        def ends() -> None:
            self.end_write(stage, op.access.num_bytes)
            group[0] -= 1

        self.fly((key, "copy"), ends)

    def in_group(self, key: Any, kind: str, stages: list[Any]) -> None:
        group = self.open.setdefault((key, kind), [0])
        for stage in stages:
            self.read(key, stage)
            self.reading[stage] += 1
        group[0] += 1

        def ends() -> None:
            group[0] -= 1
            for stage in stages:
                self.reading[stage] -= 1

        self.fly((key, kind), ends)


def shown(pipeline: Pipeline, num_runs: int, seed: int = 0) -> str:
    """What the first of some runs shows that goes wrong; empty where all are right."""
    fills: dict[Any, int] = {}
    return next((said for idx in range(num_runs) if (said := Run(pipeline, random.Random(seed + idx), fills).wrong())), "")
