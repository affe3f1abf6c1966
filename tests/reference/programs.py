"""Random programs for a small GPU, each from a seed: rings of copies, streams, barriers, clusters, and faults.

In: a seed. Out: a :class:`Case`, a launch and the GPU that it runs on. It knows no engine and no reference, takes well below
a millisecond, and gives the same for the same seed.

A launch has two to four roles, and some acts in a row. Each act is played by some of the roles, which come to the acts in
the same order, so that nobody waits for ever; but for the fault that some launches are given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, NamedBarrier, WarpRole, load_gpu
from gpusim.workload import ops
from gpusim.workload.atoms import mma_sync, wgmma
from gpusim.workload.dtypes import BF16, FP8, INT8, TF32
from gpusim.workload.launch import Footprint, RoleContext
from gpusim.workload.smem.access import AccessPattern

Ops = Iterator[Any]

LINE, SECTOR = 128, 32

WGMMA_ATOMS = [wgmma(n, dtype) for dtype in (BF16, TF32, FP8, INT8) for n in (8, 64, 128, 256)]
MMA_ATOMS = [mma_sync(dtype) for dtype in (BF16, TF32, INT8)]


class Draw(Random):
    """Numbers of a seed, drawn quickly."""

    def choice(self, seq: Any) -> Any:
        return seq[int(self.random() * len(seq))]

    def randint(self, a: int, b: int) -> int:
        return a + int(self.random() * (b - a + 1))


@dataclass(frozen=True, slots=True)
class Case:
    """A launch, and where it runs."""

    seed: int
    launch: Launch
    gpu: GpuSpec
    is_warm: bool
    acts: tuple[str, ...]
    """What it is made of."""
    fault: str
    """What was done wrong; empty if nothing was."""


# ---------------------------------------------------------------------------------------------- GPUs

TWEAKS: dict[str, dict[str, dict[str, Any]]] = {
    "launch costs": {
        "dispatcher": {
            "launch_cycles": 1000.0, "dispatch_cycles_per_cta": 9.5, "cta_start_cycles": 40.0, "cta_exit_cycles": 33.0,
            "retire_cycles_per_cta": 7.0, "cluster_retire_cycles_per_cta": 11.0, "cluster_start_cycles": 25.0,
            "drain_cycles": 500.0, "store_end_cycles": 77.0,
        },
    },
    "mbarriers cost": {
        "mbarrier": {"arrive_cycles": 5.0, "try_wait_cycles": 7.0, "wake_cycles": 11.0, "one_lane_try_wait_cycles": 13.0},
    },
    "TMA costs": {
        "tma": {
            "issue_cycles": 3.0, "latency_cycles": 70.0, "row_cycles": 2.0, "store_box_cycles": 9.0,
            "store_latency_cycles": 17.0, "group_wait_cycles": 4.0,
        },
    },
    "short queues": {
        "tma": {"max_queued_boxes": 2, "row_cycles": 5.0},
        "tensor_core": {"wgmma_max_groups": 2},
        "l1": {"queue_cycles": 3.0, "outstanding_bytes": 4096.0},
        "l2": {"write_back_queue_bytes": 1024.0},
    },
    "slow memory": {"hbm": {"sustained_read_gb_per_s": 24.0, "sustained_write_gb_per_s": 16.0, "sm_gb_per_s": 16.0}},
    "wide L2": {
        "l2": {"slice_bytes_per_cycle": 96.0},
        "xbar": {"sm_read_bytes_per_cycle": 40.0, "sm_write_bytes_per_cycle": 36.0},
    },
    "small caches": {"l2": {"capacity_bytes": 6144, "write_back_queue_bytes": 2048.0}, "l1": {"unified_bytes": 238_000}},
    "smaller caches": {"l2": {"capacity_bytes": 1536, "write_back_queue_bytes": 512.0}, "l1": {"unified_bytes": 235_000}},
    "narrow SM": {
        "warp_scheduler": {
            "num_schedulers": 2, "fp32_lanes": 48, "int32_lanes": 32, "mufu_lanes": 8, "shuffle_lanes": 16,
            "bank_reads_per_cycle": 1.5,
        },
        "smem": {"wavefronts_per_cycle": 0.75, "load_latency_cycles": 23.0},
        "l1": {"tag_lines_per_cycle": 0.5, "requests_per_cycle": 0.25},
    },
    "tensor costs": {
        "tensor_core": {
            "wgmma_latency_cycles": 25.0, "wgmma_overhead_cycles": 3.0, "mma_sync_latency_cycles": 37.0,
            "mma_sync_min_interval_cycles": 5.5,
        },
    },
    "network costs": {
        "dsmem": {
            "latency_cycles": 180.0, "one_way_cycles": 95.0, "bytes_per_cycle": 24.0, "serve_fraction": 0.5,
            "cluster_barrier_cycles": 60.0, "cluster_barrier_cta_cycles": 10.0,
        },
    },
    "two SMs": {"device": {"num_sms": 2, "gpcs": {"2": 1}}},
    "six SMs": {"device": {"num_sms": 6, "gpcs": {"6": 1}}},
}
"""Numbers of the toy GPU that are other than round: mechanisms of the core, all of them."""


BEYOND: dict[str, dict[str, Any]] = {
    "tensor_core": {"wgmma_min_free_wavefronts": 1.0},
    "warp_scheduler": {"math_interval_during_wgmma_cycles": 1.0},
    "instruction_cache": {
        "l0_bytes": 1024.0, "l1_bytes": 4096.0, "prefetched_bytes": 64.0, "loop_kept_bytes": 1024.0,
        "launch_fetched_bytes": 4096.0,
    },
}
"""Numbers of the toy GPU that switch mechanisms beyond the core on, of those that programs meet."""


@cache
def toy(*, is_core: bool) -> GpuSpec:
    """Read once: that takes longer than to draw a program."""
    gpu = load_gpu("toy")
    return gpu if is_core else with_numbers(gpu, BEYOND)


@cache
def gpu_with(tweaks: frozenset[str], *, is_core: bool = True) -> GpuSpec:
    """The toy GPU, or one with more than the core, with these."""
    return with_tweaks(toy(is_core=is_core), tweaks)


def with_tweaks(gpu: GpuSpec, tweaks: Iterable[str]) -> GpuSpec:
    """A GPU with these."""
    for name in sorted(tweaks):
        gpu = with_numbers(gpu, TWEAKS[name])
    return gpu


def with_numbers(gpu: GpuSpec, numbers: Mapping[str, Mapping[str, Any]]) -> GpuSpec:
    """A GPU with other numbers, by part and parameter."""
    return replace(gpu, **{part: replace(gpu.component(part), **values) for part, values in numbers.items()})


# ---------------------------------------------------------------------------------------------- what acts are made of


@dataclass(slots=True)
class Actor:
    """A role, as acts know it."""

    idx: int
    name: str
    num_warps: int

    @property
    def num_threads(self) -> int:
        return 32 * self.num_warps


@dataclass(slots=True)
class Stage:
    """What is declared for a launch while its acts are drawn."""

    draw: Draw
    actors: list[Actor]
    cluster_size: int
    is_core: bool
    """Whether all that is done lies within the core of the model."""
    buffers: list[Buffer] = field(default_factory=list)
    mbarriers: list[Mbarrier] = field(default_factory=list)
    named: list[NamedBarrier] = field(default_factory=list)
    tensors: dict[str, tuple[str, int, int, int]] = field(default_factory=dict)
    """Read or write, steps of a panel, bytes of a step, and how often a tile walks its panel."""
    panels: dict[str, str] = field(default_factory=dict)
    num_names: int = 0

    def name(self, word: str) -> str:
        """A new one."""
        self.num_names += 1
        return f"{word}{self.num_names}"

    def buffer(self, stage_bytes: int, num_stages: int = 1) -> str:
        name = self.name("buffer")
        self.buffers.append(Buffer(name=name, stage_bytes=stage_bytes, num_stages=num_stages))
        return name

    def mbarrier(self, num_arrivals: int, num_stages: int = 1) -> str:
        name = self.name("mbarrier")
        self.mbarriers.append(Mbarrier(name=name, num_arrivals=num_arrivals, num_stages=num_stages))
        return name

    def barrier(self, actors: list[Actor]) -> str:
        name = self.name("barrier")
        num_threads = sum(actor.num_threads for actor in actors)
        self.named.append(NamedBarrier(name=name, num_threads=num_threads))
        return name

    def tensor(self, way: str, step_bytes: int, num_steps: int, num_walks: int = 1) -> str:
        name = self.name("tensor")
        self.tensors[name] = (way, num_steps, step_bytes, num_walks)
        is_own = way == "write" or num_walks > 1
        self.panels[name] = "own" if is_own else self.draw.choice(("own", "own", "all", "pairs", "thirds"))
        return name

    def some(self, least: int = 1) -> list[Actor]:
        """Some of the roles, in order."""
        num = self.draw.randint(least, len(self.actors))
        return sorted(self.draw.sample(self.actors, num), key=lambda actor: actor.idx)

    def access(self, actor: Actor, *, most_each: int = 4) -> AccessPattern:
        """Of a role to global memory: whole lines, or sectors that lie apart."""
        num = actor.num_warps * self.draw.randint(1, most_each)
        if self.draw.random() < 0.6:
            width = self.draw.choice((1, 1, 2, 4))
            return AccessPattern(
                num_requests=num, num_sectors=4 * width * num, num_lines=width * num, num_wavefronts=width * num,
                num_bytes=LINE * width * num,
            )
        lines = self.draw.randint(2, 16)
        return AccessPattern(
            num_requests=num, num_sectors=lines * num, num_lines=lines * num, num_wavefronts=self.draw.randint(1, 8) * num,
            num_bytes=LINE * num,
        )

    def stored(self, actor: Actor) -> AccessPattern:
        """What a role stores to shared memory, or swaps there, with conflicts or without."""
        num, ways = actor.num_warps * self.draw.randint(1, 3), self.draw.choice((1, 1, 2, 3, 4, 16))
        return AccessPattern(num_requests=num, num_wavefronts=ways * num, num_bytes=LINE * self.draw.choice((1, 2, 4)) * num)

    def loaded(self, actor: Actor) -> AccessPattern:
        """What a role loads from it: in the core so little that loads take no turns."""
        is_long = not self.is_core and self.draw.random() < 0.4
        num = actor.num_warps * (self.draw.randint(3, 14) if is_long else self.draw.randint(1, 3))
        ways = self.draw.randint(8, 40) if is_long else min(self.draw.choice((1, 1, 2, 3, 4, 8)), 32 // num)
        return AccessPattern(num_requests=num, num_wavefronts=ways * num, num_bytes=LINE * self.draw.choice((1, 2, 4)) * num)


PANEL_OF: dict[str, Callable[[Any], Any]] = {
    "own": lambda tile: tile,
    "all": lambda tile: tile * 0,
    "pairs": lambda tile: tile // 2,
    "thirds": lambda tile: tile % 3,
}
"""Which panel each work tile touches."""


@dataclass(slots=True)
class Player:
    """A role of a CTA while it plays: what it has done so far in acts that are played again for each tile."""

    actor: Actor
    cta: RoleContext
    tile: int = 0
    num_rounds: dict[int, int] = field(default_factory=dict)

    def rounds(self, act: object, num: int) -> Iterator[int]:
        """``num`` rounds more of an act, counted on from earlier tiles."""
        begin = self.num_rounds.get(id(act), 0)
        self.num_rounds[id(act)] = begin + num
        for idx in self.cta.loop(num):
            yield begin + idx


class Act(ABC):
    """Something that roles do together, or one of them alone."""

    least_roles = 1
    faults: tuple[str, ...] = ()
    """What may be done wrong."""
    fault = ""
    """What is."""

    @abstractmethod
    def ops(self, player: Player) -> Ops:
        """What one role does of it."""


# ---------------------------------------------------------------------------------------------- arithmetic


class Math(Act):
    """Instructions of all pipes."""

    def __init__(self, stage: Stage) -> None:
        draw = stage.draw
        self.actors = stage.some()
        self.of_role = {actor.idx: [self._one(stage, actor) for _ in range(draw.randint(2, 7))] for actor in self.actors}

    def _one(self, stage: Stage, actor: Actor) -> ops.Op:
        draw = stage.draw
        num = draw.randint(1, 40)
        if not stage.is_core and draw.random() < 0.3:
            return draw.choice((
                ops.ImadWide(num, is_interleaved=draw.random() < 0.5), ops.Alu(num, is_chain=True, num_beside=2.0 * num),
                ops.Fma(num, num_runs=draw.randint(1, 3)),
            ))  # fmt: skip
        return draw.choice((
            lambda: ops.Fma(num, is_chain=draw.random() < 0.3, bank_reads=draw.choice((1.0, 1.0, 2.5))),
            lambda: ops.Alu(num),
            lambda: ops.Alu(num, is_chain=True, num_more=draw.choice((0.0, 3.0))),
            lambda: ops.Mufu(draw.randint(1, 8)),
            lambda: ops.Shfl(num, is_chain=draw.random() < 0.5, num_warps=draw.choice((None, 1))),
            lambda: ops.MmaSync(draw.choice(MMA_ATOMS), draw.randint(1, 6)),
            lambda: ops.MmaSync(draw.choice(MMA_ATOMS), draw.randint(1, 6)),
        ))()

    def ops(self, player: Player) -> Ops:
        yield from self.of_role.get(player.actor.idx, ())


class Registers(Act):
    """One role gives registers to the CTA's pool, and another takes them, which may have to wait."""

    least_roles = 2
    faults = ("registers that nobody gives are waited for",)

    def __init__(self, stage: Stage) -> None:
        self.giver, self.taker = stage.draw.sample(stage.actors, 2)
        given = 8 * self.giver.num_warps
        taken = 8 * self.taker.num_warps
        self.num_given = 8 * stage.draw.randint(1, 5)
        self.num_taken = min(8 * (given * self.num_given // 8 // taken), 192)
        self.is_last = stage.draw.random() < 0.5
        self.work = ops.Fma(stage.draw.randint(1, 60))

    def ops(self, player: Player) -> Ops:
        if self.num_taken < 8 or player.num_rounds.get(id(self)):
            return  # once: registers are not given back
        player.num_rounds[id(self)] = 1
        if player.actor is self.giver and not self.fault:
            if self.is_last:
                yield self.work
            yield ops.SetMaxNReg(64 - self.num_given, "dec")
        if player.actor is self.taker:
            yield ops.SetMaxNReg(64 + self.num_taken, "inc")


# ---------------------------------------------------------------------------------------------- barriers, marks


class Meeting(Act):
    """Barriers of threads, with some work before them."""

    least_roles = 2
    faults = ("more threads come to a named barrier than it is declared for", "fewer threads come to a named barrier")

    def __init__(self, stage: Stage) -> None:
        draw = stage.draw
        self.actors = stage.some(2)
        self.barrier = stage.barrier(self.actors)
        self.arrives = {actor.idx for actor in self.actors[:-1] if draw.random() < 0.4}
        self.work = {actor.idx: ops.Alu(draw.randint(1, 30)) for actor in stage.actors}
        self.has_syncthreads = draw.random() < 0.6

    def ops(self, player: Player) -> Ops:
        idx, fault = player.actor.idx, self.fault
        yield self.work[idx]
        if idx in self.arrives:
            yield ops.BarArrive(self.barrier)
        elif player.actor in self.actors and not (fault.startswith("fewer") and player.actor is self.actors[-1]):
            if fault.startswith("more") and player.actor is self.actors[-1]:
                yield ops.BarArrive(self.barrier)
            yield ops.BarSync(self.barrier)
        if self.has_syncthreads:
            yield self.work[idx]
            yield ops.Syncthreads()


class Marks(Act):
    """What takes little or no time, around some work."""

    def __init__(self, stage: Stage) -> None:
        draw = stage.draw
        self.actors = {actor.idx for actor in stage.some()}
        self.section = draw.choice((*ops.Section, ops.Section.EPILOGUE, ops.Section.EPILOGUE))
        self.barrier = stage.mbarrier(1)
        num_bytes = 16 * draw.randint(1, 400)
        name = stage.name("code")
        self.before = draw.sample(
            [
                ops.MbarrierInit(self.barrier), ops.FenceMbarrierInit(), ops.WgmmaFence(), ops.FenceAcqRel(),
                ops.PrefetchTensormap(("a", "b")), ops.FetchCode(name, num_bytes), ops.LoopBody(40.0, 3.0),
                ops.FetchColdCode(name, 4096, 4096 + num_bytes, 10.0), ops.FenceProxyAsync(),
                ops.FenceProxyTensormap(("a",)),
            ],
            7,
        )
        self.work = ops.MmaSync(draw.choice(MMA_ATOMS), draw.randint(1, 4))

    def ops(self, player: Player) -> Ops:
        if player.actor.idx in self.actors:
            yield from self.before[:3]
            yield self.work
            yield ops.RangeStart(self.section)
            yield from self.before[3:]
            yield ops.RangeEnd()


# ---------------------------------------------------------------------------------------------- shared memory


class Exchange(Act):
    """Roles write into a stage, meet, and read it."""

    def __init__(self, stage: Stage) -> None:
        draw = stage.draw
        self.actors = stage.some()
        self.buffer = stage.buffer(4096) if draw.random() < 0.7 else ""
        self.faults = ("a stage is read that was never written",) if self.buffer else ()
        self.barrier = stage.barrier(self.actors)
        self.of_role = {actor.idx: self._words(stage, actor) for actor in self.actors}

    def _words(self, stage: Stage, actor: Actor) -> tuple[list[ops.Op], list[ops.Op], bool]:
        draw, buffer = stage.draw, self.buffer
        write = draw.choice((ops.SharedStore, ops.Stmatrix))
        read = draw.choice((ops.SharedLoad, ops.Ldmatrix))
        writes: list[ops.Op] = [write(stage.stored(actor), buffer, 0, has_token=draw.random() < 0.4)]
        reads: list[ops.Op] = [read(stage.loaded(actor), buffer, 0)]
        if read is ops.SharedLoad and draw.random() < 0.4:
            reads = [ops.SharedLoad(stage.loaded(actor), buffer, 0, num_parts=draw.randint(2, 4))]
        if draw.random() < 0.5:
            reads.append(ops.SharedAtomic(stage.stored(actor)))
        while draw.random() < 0.4:
            reads.append(read(stage.loaded(actor), buffer, 0))
        return writes, reads, draw.random() < 0.5

    def ops(self, player: Player) -> Ops:
        words = self.of_role.get(player.actor.idx)
        if words is None:
            return
        writes, reads, is_fenced = words
        tokens = []
        for op in () if self.fault else writes:
            token = yield op
            tokens += [token] if token is not None else []
        if is_fenced:
            yield ops.FenceProxyAsync()
        yield ops.BarSync(self.barrier)
        for op in reads:
            token = yield op
            tokens.append(token)
        for token in tokens:
            yield ops.Use(token)
        yield ops.BarSync(self.barrier)  # who writes next finds the stage read


# ---------------------------------------------------------------------------------------------- global memory


class Stream(Act):
    """Loads, arithmetic, and stores or atomics, for some steps."""

    def __init__(self, stage: Stage) -> None:
        draw = stage.draw
        self.actors = stage.some()
        self.num_steps, self.num_walks = draw.randint(1, 4), 1 if stage.is_core else draw.choice((1, 2))
        self.of_role = {}
        for actor in self.actors:
            loads = [stage.access(actor) for _ in range(draw.randint(1, 3))]
            num_bytes = max(access.num_sectors for access in loads) * SECTOR
            read = stage.tensor("read", num_bytes, self.num_steps * len(loads), self.num_walks)
            stored = stage.access(actor, most_each=2)
            write = stage.tensor("write", stored.num_bytes, self.num_steps)
            self.of_role[actor.idx] = (
                loads, read, draw.random() < 0.6, draw.random() < 0.5, stored, write,
                draw.choice(("store", "store", "red", "atom", "none")), draw.random() < 0.4,
            )
        self.panels = stage.panels

    def ops(self, player: Player) -> Ops:
        if player.actor.idx not in self.of_role:
            return
        loads, read, allocates, is_again, stored, write, ends, is_fenced = self.of_role[player.actor.idx]
        panel = PANEL_OF[self.panels[read]](player.tile)
        for number in player.cta.loop(self.num_steps * self.num_walks):
            step, tokens = number % self.num_steps, []
            for idx, access in enumerate(loads):
                tile = (panel, 0 if is_again else step * len(loads) + idx)
                token = yield ops.GlobalLoad(read, tile, access, allocates)
                tokens.append(token)
            for token in tokens:
                yield ops.Use(token)
                yield ops.Fma(5)
            tile = (player.tile, step)
            if ends == "store":
                yield ops.GlobalStore(write, tile, stored)
            elif ends != "none":
                token = yield ops.GlobalAtomic(write, tile, stored, returns=ends == "atom")
                if token is not None:
                    yield ops.Use(token)
        if is_fenced:
            yield ops.FenceAcqRel()


class Multistage(Act):
    """cp.async into a ring by groups: all copy, meet, and read what has come."""

    faults = ("a stage is read before its copies are waited for",)

    def __init__(self, stage: Stage) -> None:
        draw = stage.draw
        self.actors = stage.some()
        self.num_stages, self.num_steps = draw.randint(1, 5), draw.randint(1, 7)
        self.barrier = stage.barrier(self.actors)
        access = {actor.idx: stage.access(actor, most_each=3) for actor in self.actors}
        tensors = {
            actor.idx: stage.tensor("read", access[actor.idx].num_sectors * SECTOR, self.num_steps) for actor in self.actors
        }
        self.buffer = stage.buffer(2048, self.num_stages)
        self.allocates, self.is_again = draw.random() < 0.6, draw.random() < 0.5
        self.num_between = draw.choice((0.0, 0.0, 2.0))
        self.copies = {idx: (access[idx], tensor) for idx, tensor in tensors.items()}
        self.reads = {
            actor.idx: draw.choice((ops.Ldmatrix, ops.SharedLoad))(
                stage.loaded(actor), self.buffer, 0
            )
            for actor in self.actors
        }
        self.work = {
            actor.idx: draw.choice((ops.Fma(draw.randint(1, 60)), ops.MmaSync(draw.choice(MMA_ATOMS), draw.randint(1, 4))))
            for actor in self.actors
        }
        self.panels = stage.panels

    def _copy(self, player: Player, step: int, begin: int) -> ops.CpAsync:
        access, tensor = self.copies[player.actor.idx]
        panel = PANEL_OF[self.panels[tensor]](player.tile)
        return ops.CpAsync(
            tensor, (panel, 0 if self.is_again else step), access, self.buffer, (begin + step) % self.num_stages,
            self.allocates, num_between=self.num_between,
        )

    def ops(self, player: Player) -> Ops:
        idx, ahead = player.actor.idx, self.num_stages - 1
        if idx not in self.copies:
            return
        begin = player.num_rounds.get(id(self), 0)
        player.num_rounds[id(self)] = begin + self.num_steps
        for step in range(ahead):
            if step < self.num_steps:
                yield self._copy(player, step, begin)
            yield ops.CpAsyncCommitGroup()
        for step in player.cta.loop(self.num_steps):
            if not ahead:
                yield self._copy(player, step, begin)
                yield ops.CpAsyncCommitGroup()
            yield ops.CpAsyncWaitGroup(ahead + 1 if self.fault else max(0, ahead - 1))
            yield ops.BarSync(self.barrier)
            read = self.reads[idx]
            token = yield replace(read, stage=(begin + step) % self.num_stages)
            if ahead:
                if step + ahead < self.num_steps:
                    yield self._copy(player, step + ahead, begin)
                yield ops.CpAsyncCommitGroup()
            yield ops.Use(token)
            yield self.work[idx]
            if not ahead:
                yield ops.BarSync(self.barrier)
        yield ops.CpAsyncWaitGroup(0)
        yield ops.BarSync(self.barrier)


# ---------------------------------------------------------------------------------------------- rings of mbarriers


class Ring(Act):
    """A producer fills stages, consumers read them, both told by mbarriers. Copies go by TMA, or by cp.async."""

    least_roles = 2

    def __init__(self, stage: Stage) -> None:
        draw = stage.draw
        players = stage.some(2)
        self.producer, self.consumers = players[0], players[1:]
        self.is_tma = draw.random() < 0.75
        self.num_stages, self.num_steps = draw.randint(1, 8), draw.randint(1, 10)
        self.size = stage.cluster_size
        self.is_multicast = self.is_tma and self.size > 1 and draw.random() < 0.6
        self.num_receivers = self.size if self.is_multicast else 1
        self.copies = [self._copy(stage) for _ in range(draw.choice((1, 2, 2, 3)))]
        most = {actor.idx: 32 if stage.is_core else actor.num_threads for actor in self.consumers}
        self.counts = {idx: draw.choice((1, 3, num)) for idx, num in most.items()}
        self.waits_for_clock = stage.is_core
        """Before it arrives. The unit for arrivals remembers a dozen; where more lie ahead of the clock it delays others,
        which is beyond the core."""
        self.empty = stage.mbarrier(sum(self.counts.values()) * self.num_receivers, self.num_stages)
        self.full = stage.mbarrier(1 if self.is_tma else self.producer.num_threads, self.num_stages)
        self.work = {actor.idx: self._work(stage, actor) for actor in self.consumers}
        self.by_lane, self.is_fenced = draw.random() < 0.3, draw.random() < 0.3
        self.panels = stage.panels
        self.faults = ("consumers arrive twice", "consumers wait for the wrong parity", "consumers do not wait")
        if self.num_steps > self.num_stages:
            self.faults += ("consumers do not arrive", "the producer does not wait for readers")
        if self.is_tma:
            self.faults += ("more bytes are announced than come", "bytes are announced that nobody waits for")

    def _copy(self, stage: Stage) -> tuple[Any, ...]:
        draw = stage.draw
        if not self.is_tma:
            access = stage.access(self.producer, most_each=3)
            tensor = stage.tensor("read", access.num_sectors * SECTOR, self.num_steps)
            return stage.buffer(2048, self.num_stages), tensor, access, draw.random() < 0.4
        num_rows, row_bytes = draw.choice((1, 8, 16, 64)), draw.choice((32, 64, 128))
        num_bytes = num_rows * row_bytes
        fetched = draw.choice((num_bytes, num_bytes, num_bytes, num_bytes // 2, 0))
        tensor = stage.tensor("read", max(fetched, 1), self.num_steps)
        brings_next = draw.random() < 0.3
        buffer = stage.buffer(num_bytes, self.num_stages)
        return buffer, tensor, num_bytes, fetched, num_rows, draw.randint(1, 3), brings_next

    def _work(self, stage: Stage, actor: Actor) -> tuple[Any, ...]:
        draw = stage.draw
        if actor.num_warps % 4 == 0 and draw.random() < 0.8:
            atom, num = draw.choice(WGMMA_ATOMS), draw.randint(1, 4)
            return "wgmma", atom, num, draw.choice((0, 1, 2, 5)), draw.choice((0.0, 0.0, 9.0)), draw.random() < 0.5
        read = draw.choice((ops.Ldmatrix, ops.SharedLoad))
        then = draw.choice((ops.Fma(draw.randint(1, 60)), ops.MmaSync(draw.choice(MMA_ATOMS), draw.randint(1, 5))))
        return "read", [read(stage.loaded(actor), copy[0], 0) for copy in self.copies], then

    def ops(self, player: Player) -> Ops:
        if player.actor is self.producer:
            yield from self._produce(player)
        elif player.actor.idx in self.work:
            yield from self._consume(player)

    def _produce(self, player: Player) -> Ops:
        stages, announced, slot = self.num_stages, 0, 0
        if self.is_tma:
            announced = sum(copy[2] for copy in self.copies) * self.num_receivers
            announced += 128 if self.fault.startswith("more bytes") else 0
        for number in player.rounds(self, self.num_steps):
            slot, turn = number % stages, number // stages
            if turn:
                awaited = self.full if self.fault.startswith("the producer") else self.empty
                yield ops.MbarrierWait(awaited, slot, (turn - 1) % 2, by_lane=self.by_lane)
            if self.is_tma:
                yield ops.MbarrierArriveExpectTx(self.full, slot, announced)
            for copy in self.copies:
                tile = (PANEL_OF[self.panels[copy[1]]](player.tile), number % self.num_steps)
                yield self._issue(copy, tile, slot, player.cta.cta_rank)
            if not self.is_tma:
                yield ops.CpAsyncMbarrierArrive(self.full, slot)
        if self.fault.startswith("bytes are announced"):
            yield ops.MbarrierWait(self.full, slot, (self.num_steps - 1) // stages % 2)
            yield ops.MbarrierArriveExpectTx(self.full, slot, 256)

    def _issue(self, copy: tuple[Any, ...], tile: tuple[int, int], slot: int, rank: int) -> ops.Op:
        if not self.is_tma:
            buffer, tensor, access, allocates = copy
            return ops.CpAsync(tensor, tile, access, buffer, slot, allocates, num_rows=access.num_requests)
        buffer, tensor, num_bytes, fetched, num_rows, num_boxes, brings_next = copy
        ranks = tuple(range(self.size)) if self.is_multicast else ()
        if self.is_multicast:
            tile = (tile[0], tile[1] * self.size + rank)
        return ops.TmaLoad(
            tensor, tile, num_bytes, fetched, num_rows, buffer, slot, self.full, ranks, num_boxes,
            promoted_tiles=((tile[0], (tile[1] + 1) % self.num_steps),) if brings_next else (),
        )

    def _release(self, player: Player, slot: int) -> Ops:
        count = self.counts[player.actor.idx]
        if self.waits_for_clock:
            yield ops.Alu(1)
        if self.fault != "consumers do not arrive":
            for rank in range(self.size) if self.is_multicast else (None,):
                yield ops.MbarrierArrive(self.empty, slot, count, rank)
                if self.fault == "consumers arrive twice":
                    yield ops.MbarrierArrive(self.empty, slot, count, rank)

    def _consume(self, player: Player) -> Ops:
        work, stages = self.work[player.actor.idx], self.num_stages
        held: list[int] = []
        for number in player.rounds(self, self.num_steps):
            slot, parity = number % stages, number // stages % 2
            if self.fault != "consumers do not wait":
                yield ops.MbarrierWait(self.full, slot, parity ^ self.fault.endswith("wrong parity"))
            held.append(slot)
            if work[0] == "wgmma":
                _, atom, num, num_pending, num_between, has_fence = work
                if has_fence:
                    yield ops.WgmmaFence()
                reads = tuple((copy[0], slot) for copy in self.copies)
                yield ops.Wgmma(atom, num, reads, num_between)
                yield ops.WgmmaCommitGroup()
                num_kept = min(num_pending, stages - 1)
                yield ops.WgmmaWaitGroup(num_kept)
            else:
                num_kept, tokens = 0, []
                for read in work[1]:
                    token = yield replace(read, stage=slot)
                    tokens.append(token)
                for token in tokens:
                    yield ops.Use(token)
                yield work[2]
            if self.is_fenced:
                yield ops.FenceProxyAsync()
            while len(held) > num_kept:
                yield from self._release(player, held.pop(0))
        if work[0] == "wgmma":
            yield ops.WgmmaWaitGroup(0)
        for slot in held:
            yield from self._release(player, slot)


# ---------------------------------------------------------------------------------------------- TMA stores, clusters


class Epilogue(Act):
    """Roles write a stage, and one of them stores it by TMA, piece by piece."""

    def __init__(self, stage: Stage) -> None:
        draw = stage.draw
        self.actors = stage.some()
        self.num_stages, self.num_pieces = draw.randint(1, 3), draw.randint(1, 5)
        num_rows = draw.choice((8, 32))
        self.num_bytes, self.num_rows = num_rows * draw.choice((48, 64, 128)), num_rows
        self.buffer = stage.buffer(self.num_bytes, self.num_stages)
        self.tensor = stage.tensor("write", self.num_bytes, self.num_pieces)
        self.barriers = stage.barrier(self.actors), stage.barrier(self.actors)
        self.writes = {
            actor.idx: draw.choice((ops.SharedStore, ops.Stmatrix))(stage.stored(actor), self.buffer, 0)
            for actor in self.actors
        }
        self.reduce, self.num_boxes, self.is_whole = draw.random() < 0.6, draw.randint(1, 2), draw.random() < 0.5
        self.faults = ("a stage is written while TMA reads it",) if self.num_pieces > self.num_stages else ()

    def ops(self, player: Player) -> Ops:
        idx = player.actor.idx
        if idx not in self.writes:
            return
        is_first = player.actor is self.actors[0]
        for piece in player.rounds(self, self.num_pieces):
            slot = piece % self.num_stages
            if is_first and not self.fault:
                yield ops.BulkWaitGroup(self.num_stages - 1)
            yield ops.BarSync(self.barriers[0])
            yield replace(self.writes[idx], stage=slot)
            yield ops.FenceProxyAsync()
            yield ops.BarSync(self.barriers[1])
            if is_first:
                yield ops.TmaStore(
                    self.tensor, (player.tile, piece % self.num_pieces), self.num_bytes, self.num_rows, self.buffer, slot,
                    self.num_boxes, self.reduce,
                )
                yield ops.BulkCommitGroup()
        if is_first:
            yield ops.BulkWaitGroup(0, read=not self.is_whole)


class Neighbours(Act):
    """CTAs of a cluster meet, read and write one another's shared memory, and arrive at one another's mbarriers."""

    faults = ("bytes for another CTA's mbarrier are not sent",)

    def __init__(self, stage: Stage) -> None:
        draw = stage.draw
        self.size, self.writer = stage.cluster_size, draw.choice(stage.actors)
        self.num_bytes = 16 * draw.randint(1, 40)
        self.barrier = stage.mbarrier(2)
        self.loads = {
            actor.idx: [16 * draw.randint(1, 60) for _ in range(draw.randint(0, 3))] for actor in stage.actors
        }
        self.stores = {actor.idx: [16 * draw.randint(1, 60)] * draw.randint(0, 2) for actor in stage.actors}
        self.is_fenced = draw.random() < 0.5

    def ops(self, player: Player) -> Ops:
        idx, far = player.actor.idx, (player.cta.cta_rank + 1) % self.size
        yield ops.ClusterArrive()
        if self.loads[idx]:
            yield ops.Alu(7)
        yield ops.ClusterWait()
        tokens = []
        for num_bytes in self.loads[idx]:
            token = yield ops.DsmemLoad(far, num_bytes)
            tokens.append(token)
        for num_bytes in self.stores[idx]:
            yield ops.DsmemStore(far, num_bytes)
        if self.is_fenced:
            yield ops.FenceAcqRel()
        if player.actor is self.writer:
            for number in player.rounds(self, 1):
                yield ops.MbarrierArriveExpectTx(self.barrier, 0, self.num_bytes)
                if not self.fault:
                    yield ops.StAsync(far, self.num_bytes, self.barrier, 0)
                yield ops.MbarrierArrive(self.barrier, 0, 1, far)
                yield ops.MbarrierWait(self.barrier, 0, number % 2)
        for token in tokens:
            yield ops.Use(token)


class Farewell(Act):
    """CTAs of a cluster leave together."""

    def __init__(self, stage: Stage) -> None:
        del stage

    def ops(self, player: Player) -> Ops:
        yield ops.ClusterArrive()
        yield ops.ClusterWait()


# ---------------------------------------------------------------------------------------------- launches

ACTS: tuple[tuple[type[Act], int], ...] = (
    (Ring, 9), (Multistage, 4), (Stream, 5), (Exchange, 3), (Epilogue, 3), (Math, 3), (Meeting, 5), (Marks, 3),
    (Registers, 3),
)
"""And how often each is drawn."""


def case(seed: int, *, is_core: bool = True) -> Case:
    """The launch of a seed, and where it runs.

    With ``is_core`` false also what the core of the model lacks, on a toy GPU with more than the core.
    """
    draw = Draw(seed)
    tweaks = frozenset(draw.sample(sorted(TWEAKS), draw.choice((0, 2, 3, 4, 5))))
    if {"two SMs", "six SMs"} <= tweaks:
        tweaks -= {"two SMs"}
    gpu = gpu_with(tweaks, is_core=is_core)
    num_roles = draw.choice((1, 2, 2, 2, 3, 3, 4))
    actors = [Actor(idx, f"role{idx}", draw.choice((1, 1, 2, 4, 4, 8))) for idx in range(num_roles)]
    size = draw.choice((1, 1, 1, 2, 2, 3, 4)) if gpu.num_sms >= 4 else draw.choice((1, 2))
    stage = Stage(draw, actors, size, is_core)
    kinds, weights = zip(*(item for item in ACTS if item[0].least_roles <= num_roles), strict=True)
    chosen = draw.choices(kinds, weights, k=draw.randint(2, 5))
    if chosen.count(Registers) > 1:  # a role would have to know what it has
        chosen = [Registers, *(kind for kind in chosen if kind is not Registers), Math]
    if size > 1 and draw.random() < 0.8:
        chosen.insert(draw.randint(0, len(chosen)), Neighbours)
    acts = [kind(stage) for kind in chosen]
    fault = set_fault(draw, acts) if draw.random() < 0.4 else ""
    if size > 1:
        acts.append(Farewell(stage))
    is_persistent = draw.random() < 0.2
    wanted = draw.choice((1, 1, 1, 2, 2, 3))
    num_tiles = max(1, round(draw.choice((0.3, 0.6, 1.0, 1.0, 1.5, 2.3)) * wanted * (gpu.num_sms // size))) * size
    turns_of = num_tiles if is_persistent else 0
    roles = tuple(
        WarpRole(name=actor.name, num_warps=actor.num_warps, program=program(acts, actor, turns_of)) for actor in actors
    )
    held = sum(buffer.num_bytes for buffer in stage.buffers) + sum(8 * ring.num_stages for ring in stage.mbarriers)
    room = gpu.device.smem_per_sm_bytes // wanted - gpu.device.smem_reserved_per_cta_bytes - 127
    launch = Launch(
        kernel=f"seed {seed}", num_ctas=None if is_persistent else num_tiles, num_tiles=num_tiles, roles=roles,
        buffers=tuple(stage.buffers), mbarriers=tuple(stage.mbarriers), named_barriers=tuple(stage.named), cluster_size=size,
        registers_per_thread=64 if Registers in chosen else 40,
        extra_smem_bytes=max(0, min(room, gpu.device.smem_per_cta_bytes) - held),
        footprints=footprints(stage) if draw.random() < 0.6 else (), set_aside_bytes=draw.choice((0, 0, 0, 1024)),
    )
    return Case(seed, launch, gpu, draw.random() < 0.3, tuple(kind.__name__ for kind in chosen), fault)


OFTEN = {
    "the producer does not wait for readers": 5, "a stage is written while TMA reads it": 4, "consumers arrive twice": 3,
    "bytes are announced that nobody waits for": 3, "consumers do not arrive": 3, "more bytes are announced than come": 3,
    "more threads come to a named barrier than it is declared for": 4,
}
"""Faults that are drawn so many times as often as others: they show more seldom."""


def set_fault(draw: Draw, acts: list[Act]) -> str:
    """Let one of the acts go wrong, if any can."""
    found = {fault: act for act in acts for fault in act.faults}
    if not found:
        return ""
    fault = draw.choice([fault for fault in found for _ in range(OFTEN.get(fault, 1))])
    found[fault].fault = fault
    return fault


def program(acts: list[Act], actor: Actor, num_tiles: int) -> Callable[[RoleContext], Ops]:
    """What a role does: all acts, for each of its tiles."""

    def of_role(cta: RoleContext) -> Ops:
        player = Player(actor, cta, cta.cta_idx)
        if not num_tiles:
            for act in acts:
                yield from act.ops(player)
            return
        for _, tile in cta.tiles(num_tiles):
            player.tile = tile
            for act in acts:
                yield from act.ops(player)

    return of_role


def footprints(stage: Stage) -> tuple[Footprint, ...]:
    """What each tile touches; one tensor in ten is left out, and comes from memory once."""
    draw = stage.draw
    return tuple(
        Footprint(
            tensor=name, access="write" if way == "write" else "read", panel_of=PANEL_OF[stage.panels[name]],
            panel_bytes=partial(full, num_bytes=num_steps * step_bytes), num_steps=num_steps, num_passes=num_walks,
            cache_hint=draw.choice(("evict_normal", "evict_normal", "evict_normal", "evict_first", "evict_last")),
        )
        for name, (way, num_steps, step_bytes, num_walks) in stage.tensors.items() if draw.random() < 0.9
    )


def full(tiles: Any, num_bytes: int) -> Any:
    """As many bytes for each tile."""
    return np.full(len(tiles), num_bytes, dtype=np.int64)
