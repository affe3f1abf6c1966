"""A role while it runs: interprets the ops of its program and gives each its cost.

A role keeps a cursor, the cycle up to which its warps are accounted for. It may run ahead of the simulation's clock by
a few issue cycles; before it queues work on a shared pipe it lets the clock catch up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from simpy.events import Event, Timeout

from gpusim.errors import LaunchError
from gpusim.machine.component import MemoryRequest
from gpusim.machine.timing import Wake
from gpusim.simulate.cta import Cta, Stage, ThreadBarrier
from gpusim.simulate.loops import Loop, TileLoop
from gpusim.simulate.timeline import CopySpan, MmaSpan, PhaseFlip, RoleTimeline, Span, WarpState
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARPGROUP_THREADS, WAVEFRONT_BYTES
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.launch import WarpRole

if TYPE_CHECKING:
    from gpusim.machine.sm.mbarrier import Mbarrier
    from gpusim.simulate.engine import Engine

SYNC_CYCLES = 48.0
"""How far a role's cursor may run ahead of the clock before it queues work on something shared."""

Pause = Wake | ops.Token | None
"""What an op leaves: wait for an event, hand a token to the program, or go on."""

START, ISSUE, TENSOR = WarpState.START, WarpState.ISSUE, WarpState.TENSOR


class AsyncGroup:
    """Copies that were committed together: complete when the last of them is, and not before the group ``ahead``."""

    __slots__ = ("num_pending", "on_complete", "ready_at")

    def __init__(self, ahead: AsyncGroup | None = None) -> None:
        """An empty group is complete when the one ahead of it is."""
        self.num_pending = 0
        self.ready_at = 0.0
        self.on_complete: list[Callable[[float], None]] = []
        if ahead is not None:
            if ahead.num_pending:
                self.num_pending = 1
                ahead.on_complete.append(self.finish)
            else:
                self.ready_at = ahead.ready_at

    def add(self) -> None:
        """One more copy."""
        self.num_pending += 1

    def finish(self, cycle: float) -> None:
        """One copy will be complete at ``cycle``."""
        self.num_pending -= 1
        if cycle > self.ready_at:
            self.ready_at = cycle
        if not self.num_pending and self.on_complete:
            waiting, self.on_complete = self.on_complete, []
            for resume in waiting:
                resume(self.ready_at)


class Role:
    """The warps of one role of one CTA, in lockstep. Implements ``workload.launch.RoleContext``."""

    __slots__ = (
        "async_cp", "blocked_on", "blocked_since", "bulk_groups", "bulk_open", "count", "cp_groups", "cp_open", "cta",
        "engine", "env", "handlers", "is_done", "iteration_weight", "last_store", "loops", "must_retry", "num_warpgroups",
        "num_warps", "record", "registers", "sections", "sm", "spec", "t", "tile_loop", "totals", "turn_weight",
        "wait_state", "wave", "wgmma_groups", "wgmma_open",
    )

    def __init__(self, engine: Engine, cta: Cta, spec: WarpRole, start_cycle: float, created_cycle: float) -> None:
        """A role that starts at ``start_cycle``; it has existed since ``created_cycle``."""
        self.engine = engine
        self.env = engine.env
        self.cta = cta
        self.sm = cta.sm
        self.spec = spec
        self.num_warps = spec.num_warps
        self.num_warpgroups = max(1, spec.num_threads // WARPGROUP_THREADS)
        self.wave = cta.wave
        self.iteration_weight = 1.0
        self.turn_weight = 1.0
        self.count = cta.weight
        self.t = created_cycle
        self.totals = [0.0] * len(WarpState)
        self.loops: list[Loop] = []
        self.tile_loop: TileLoop | None = None
        self.cp_groups: deque[AsyncGroup] = deque()
        self.cp_open = AsyncGroup()
        self.bulk_groups: deque[tuple[AsyncGroup, AsyncGroup]] = deque()
        self.bulk_open = (AsyncGroup(), AsyncGroup())
        self.wgmma_groups: deque[float] = deque()
        self.wgmma_open = 0.0
        self.last_store: AsyncGroup | None = None
        self.registers = engine.launch.registers_per_thread
        self.blocked_on: str | ops.MbarrierWait | None = None
        self.blocked_since = 0.0
        self.must_retry = False
        self.wait_state = WarpState.ISSUE
        self.is_done = False
        self.handlers = HANDLERS
        self.sections: list[tuple[str, float]] = []
        self.record: RoleTimeline | None = None
        if cta.sm.idx in engine.recorded_sms:
            self.record = RoleTimeline(spec.name, cta.idx, cta.sm.idx, spec.num_warps)
            engine.timeline.roles.append(self.record)
        self.spend(START, start_cycle)

    # ------------------------------------------------------------------------------------------ RoleContext

    @property
    def cta_idx(self) -> int:
        """Linear index of the CTA in the grid."""
        return self.cta.idx

    @property
    def num_ctas(self) -> int:
        """Number of CTAs in the grid."""
        return self.engine.num_ctas

    @property
    def cta_rank(self) -> int:
        """Rank of the CTA in its cluster."""
        return self.cta.rank

    def loop(self, num_iterations: int) -> Loop:
        """A loop that the engine may move ahead."""
        loop = Loop(self, num_iterations)
        self.loops.append(loop)
        self.engine.steady.watch(loop)
        return loop

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> TileLoop:
        """The turns of a persistent CTA."""
        self.tile_loop = loop = TileLoop(self, num_tiles, first, step)
        self.engine.steady.watch_tiles(loop)
        return loop

    # ------------------------------------------------------------------------------------------ bookkeeping

    def update_count(self) -> None:
        """How many times an op counts, after a weight has changed."""
        self.count = self.cta.weight * self.turn_weight * self.iteration_weight

    def spend(self, state: WarpState, until: float) -> None:
        """Be in ``state`` from the cursor to ``until``."""
        since = self.t
        if until > since:
            self.totals[state] += (until - since) * self.count
            if self.record is not None:
                offset = self.engine.offset_cycles
                self.record.states.append((state, since + offset, until + offset))
            self.t = until

    def step(self, num_cycles: float) -> None:
        """Issue for ``num_cycles``."""
        if self.record is None:
            self.totals[1] += num_cycles * self.count  # ISSUE
            self.t += num_cycles
        else:
            self.spend(ISSUE, self.t + num_cycles)

    def block(self, state: WarpState, what: str | ops.MbarrierWait) -> Wake:
        """Give up the processor until somebody calls :meth:`resume`."""
        self.wait_state = state
        self.blocked_on = what
        self.blocked_since = self.t
        return Wake(self.env)

    def run(self) -> Generator[Event, Any, None]:
        """The simpy process: one op after the other."""
        env = self.env
        if self.t > env._now:
            yield Timeout(env, self.t - env._now)
        program: Iterator[ops.Op] = iter(self.spec.program(self))
        send = program.send  # type: ignore[attr-defined]  # a program is a generator
        value: ops.Token | None = None
        try:
            while True:
                op = send(value)
                value = None
                kind = type(op)
                ahead = self.t - env._now  # simpy's clock itself: the property costs a tenth of a run
                if ahead > SYNC_CYCLES and kind not in LAZY:
                    yield Timeout(env, ahead)
                pause = self.handlers[kind](self, op)
                while pause is not None:
                    if isinstance(pause, ops.Token):
                        value = pause
                        break
                    yield pause
                    self.blocked_on = None
                    self.spend(self.wait_state, env._now)
                    if not self.must_retry:
                        break
                    self.must_retry = False
                    pause = self.handlers[kind](self, op)
        except StopIteration:
            pass
        self.is_done = True
        self.engine.role_ended(self)

    def who(self) -> str:
        """For errors: kernel, role and CTA."""
        return f"{self.engine.launch.kernel}: role {self.spec.name!r} of CTA {self.cta.idx}"

    # ------------------------------------------------------------------------------------------ helpers of handlers

    def issue(self, num_instructions: float) -> float:
        """Issue instructions of every warp; returns the cursor afterwards."""
        if num_instructions:
            end = self.sm.warp_scheduler.issue(
                num_instructions, num_warps=self.num_warps, at_cycle=self.t, weight=self.count
            )
            self.spend(ISSUE, end)
        return self.t

    def request(self, tensor: str, tile: ops.Tile, num_bytes: float) -> MemoryRequest:
        """What is asked of the memory below L1."""
        return MemoryRequest(self.sm.idx, tensor, tile, num_bytes, self.wave, self.t, self.count)

    def wavefronts(self, access: AccessPattern) -> float:
        """Wavefronts of ``access``; the fewest possible where bank conflicts are idealized."""
        if self.engine.is_ideal("bank_conflicts"):
            return min(access.num_wavefronts, -(-access.num_bytes // WAVEFRONT_BYTES))
        return access.num_wavefronts

    def stage(self, buffer: str, stage: int) -> Stage | None:
        """The declared slot, or None for scratch."""
        return self.cta.stage(buffer, stage) if buffer else None

    def wait_group(self, group: AsyncGroup, state: WarpState, what: str) -> Pause:
        """Wait until ``group`` is complete."""
        if group.num_pending:
            wake = self.block(state, what)
            group.on_complete.append(_Resume(self, wake))
            return wake
        self.spend(state, group.ready_at)
        return None

    # ------------------------------------------------------------------------------------------ handlers: memory

    def _global_load(self, op: ops.GlobalLoad) -> Pause:
        access, sm = op.access, self.sm
        counters = sm.l1.counters
        counters.load_requests += access.num_requests * self.count
        counters.load_sectors += access.num_sectors * self.count
        self.issue(access.num_requests / self.num_warps)
        end = sm.l1.accept(access.num_requests, access.num_lines, at_cycle=self.t, weight=self.count)
        self.spend(WarpState.LSU, max(self.t, end - LSU_QUEUE_CYCLES))
        token = ops.Token(is_long=True)
        request = self.request(op.tensor, op.tile, access.num_sectors * SECTOR_BYTES)
        sm.l1.read(request, _TokenReady(token), allocates=op.allocates_in_l1)
        return token

    def _global_store(self, op: ops.GlobalStore) -> Pause:
        previous = self.last_store
        if previous is not None and previous.num_pending:  # the store queue is full until the last one has left
            self.must_retry = True
            return self.wait_group(previous, WarpState.LSU, "the store queue")
        access, sm = op.access, self.sm
        counters = sm.l1.counters
        counters.store_requests += access.num_requests * self.count
        counters.store_sectors += access.num_sectors * self.count
        self.issue(access.num_requests / self.num_warps)
        end = sm.l1.accept(access.num_requests, access.num_lines, at_cycle=self.t, weight=self.count)
        self.spend(WarpState.LSU, max(self.t, end - LSU_QUEUE_CYCLES))
        group = AsyncGroup()
        group.add()
        self.last_store = group
        self.engine.store_began()
        request = self.request(op.tensor, op.tile, access.num_sectors * SECTOR_BYTES)
        sm.l1.below.write(request, _Stored(self.engine, group))
        return None

    def _global_atomic(self, op: ops.GlobalAtomic) -> Pause:
        access, sm = op.access, self.sm
        self.issue(access.num_requests / self.num_warps)
        end = sm.l1.accept(access.num_requests, access.num_lines, at_cycle=self.t, weight=self.count)
        self.spend(WarpState.LSU, max(self.t, end - LSU_QUEUE_CYCLES))
        group = AsyncGroup()
        group.add()
        self.engine.store_began()
        request = self.request(op.tensor, op.tile, access.num_sectors * SECTOR_BYTES)
        sm.l1.below.write(request, _Stored(self.engine, group))
        if not op.returns:
            return None
        token = ops.Token(is_long=True)
        latency = self.engine.machine.l2.hit_latency_cycles
        group.on_complete.append(lambda cycle: _TokenReady(token)(cycle + latency))
        return token

    def _use(self, op: ops.Use) -> Pause:
        token = op.token
        state = WarpState.LONG_SCOREBOARD if token.is_long else WarpState.SHORT_SCOREBOARD
        if token.ready_cycle is not None:
            self.spend(state, token.ready_cycle)
            return None
        wake = self.block(state, "a load")
        token.on_ready = _Resume(self, wake)
        return wake

    def _cp_async(self, op: ops.CpAsync) -> Pause:
        access, sm, count = op.access, self.sm, self.count
        self.issue(access.num_requests / self.num_warps)
        lines = access.num_lines
        end = sm.l1.accept(access.num_requests, lines, at_cycle=self.t, weight=count)
        self.spend(WarpState.LSU, max(self.t, end - LSU_QUEUE_CYCLES))
        stage = self.cta.stage(op.buffer, op.stage)
        stage.begin_write(self.t, self.who() if stage.read_until > self.t else "")
        group = self.cp_open
        group.add()
        request = self.request(op.tensor, op.tile, access.num_sectors * SECTOR_BYTES)
        done = _Filled(self, stage, group, self.wavefronts(access), request, op.buffer, op.stage)
        sm.l1.read(request, done, allocates=op.allocates_in_l1)
        return None

    def _cp_commit(self, op: ops.CpAsyncCommitGroup) -> Pause:
        self.cp_groups.append(self.cp_open)
        self.cp_open = AsyncGroup(self.cp_open)
        return None

    def _cp_wait(self, op: ops.CpAsyncWaitGroup) -> Pause:
        groups = self.cp_groups
        latest: AsyncGroup | None = None
        while len(groups) > op.num_pending:
            latest = groups.popleft()
        if latest is None:
            return None
        return self.wait_group(latest, WarpState.WAIT_CP_ASYNC, f"cp.async.wait_group {op.num_pending}")

    def _cp_mbarrier(self, op: ops.CpAsyncMbarrierArrive) -> Pause:
        barrier = self._mbarrier(op.barrier, op.stage)
        group = self.cp_open
        num_threads = self.spec.num_threads
        if group.num_pending:
            group.on_complete.append(lambda cycle: barrier.arrive(num_threads, cycle))
        else:
            barrier.arrive(num_threads, max(self.t, group.ready_at))
        self.cp_open = AsyncGroup(group)
        return None

    # ------------------------------------------------------------------------------------------ handlers: TMA

    def _tma_load(self, op: ops.TmaLoad) -> Pause:
        tma = self.sm.tma
        if tma is None:
            raise self._lacks("cp.async.bulk.tensor (TMA)", "9.0")
        cost = self.engine.tma_costs.get(id(op))
        if cost is None:
            cost = self.engine.cost_of_tma(op, tma)
        count = self.count
        self.step(tma.spec.issue_cycles)
        cost.times += count
        latency = cost.latency_cycles
        at = tma.engine.reserve(cost.cycles, at_cycle=self.t, weight=count) - cost.cycles  # when the engine comes to it
        num_bytes = op.num_fetched_bytes
        if not op.multicast:
            done = _TmaArrived(self, self.cta, op, latency)
            if num_bytes:
                request = MemoryRequest(self.sm.idx, op.tensor, op.tile, num_bytes, self.wave, at, count)
                self.sm.l1.below.read(request, done, group=done.barrier)
            else:
                done(at)
            return None
        receivers = []
        for rank in op.multicast:
            cta = self._peer(rank)
            receivers.append((cta.sm.idx, _TmaArrived(self, cta, op, latency)))
        if num_bytes:
            request = MemoryRequest(self.sm.idx, op.tensor, op.tile, num_bytes, self.wave, at, count)
            self.sm.l1.below.multicast(request, receivers)
        else:
            for _, done in receivers:
                done(at)
        return None

    def _tma_store(self, op: ops.TmaStore) -> Pause:
        tma = self.sm.tma
        if tma is None:
            raise self._lacks("cp.async.bulk.tensor (TMA)", "9.0")
        self.spend(ISSUE, self.t + tma.spec.issue_cycles)
        tma.counters.store_instructions += op.num_boxes * self.count
        cycles, lag = tma.walk_cycles(op.num_bytes, num_boxes=op.num_boxes, num_rows=op.num_rows)
        at = tma.engine.reserve(cycles, at_cycle=self.t, weight=self.count) - cycles  # when the engine comes to it
        stage = self.stage(op.buffer, op.stage)
        read, whole = self.bulk_open
        read.add()
        whole.add()
        if stage is not None:
            stage.begin_read(self.t, "" if stage.is_full(self.t) else self.who())
        self.engine.store_began()
        request = MemoryRequest(self.sm.idx, op.tensor, op.tile, op.num_bytes, self.wave, at, self.count)
        self.sm.l1.below.write(request, _BulkStored(self, read, whole, stage, lag))
        return None

    def _bulk_commit(self, op: ops.BulkCommitGroup) -> Pause:
        read, whole = self.bulk_open
        self.bulk_groups.append(self.bulk_open)
        self.bulk_open = (AsyncGroup(read), AsyncGroup(whole))
        return None

    def _bulk_wait(self, op: ops.BulkWaitGroup) -> Pause:
        groups = self.bulk_groups
        if len(groups) <= op.num_pending:
            return None
        group = groups[len(groups) - 1 - op.num_pending][0 if op.read else 1]
        if not op.read:
            while len(groups) > op.num_pending:
                groups.popleft()
        return self.wait_group(group, WarpState.WAIT_BULK, f"cp.async.bulk.wait_group {op.num_pending}")

    def _prefetch_tensormap(self, op: ops.PrefetchTensormap) -> Pause:
        self.issue(op.num_descriptors)
        return None

    # ------------------------------------------------------------------------------------------ handlers: barriers

    def _mbarrier(self, name: str, stage: int) -> Mbarrier:
        if self.engine.mbarrier_spec is None:
            raise self._lacks("mbarrier", "8.0")
        return self.cta.mbarrier(name, stage)

    def _peer(self, rank: int) -> Cta:
        ctas = self.cta.cluster.ctas
        if not 0 <= rank < len(ctas):
            raise LaunchError(f"{self.who()} names cluster rank {rank}, the cluster has ranks 0 to {len(ctas) - 1}")
        return ctas[rank]

    def _lacks(self, what: str, capability: str) -> LaunchError:
        gpu = self.engine.gpu
        return LaunchError(
            f"{self.engine.launch.kernel}: {gpu.name} (compute capability {gpu.compute_capability}) has no {what}, "
            f"which needs {capability}"
        )

    def _mbarrier_init(self, op: ops.MbarrierInit) -> Pause:
        self._mbarrier(op.barrier, 0)
        self.issue(1)
        return None

    def _mbarrier_arrive(self, op: ops.MbarrierArrive) -> Pause:
        spec = self.engine.mbarrier_spec
        if spec is None:
            raise self._lacks("mbarrier", "8.0")
        rank = op.cta_rank
        if rank is None or rank == self.cta.rank:
            try:
                barrier = self.cta.mbarriers[op.barrier][op.stage]
            except (KeyError, IndexError):
                barrier = self.cta.mbarrier(op.barrier, op.stage)  # says what is wrong
            self.step(spec.arrive_cycles)
            barrier.arrive(op.count, self.t)
        else:
            dsmem = self.sm.dsmem
            if dsmem is None:
                raise self._lacks("distributed shared memory", "9.0")
            barrier = self._peer(rank).mbarrier(op.barrier, op.stage)
            self.step(spec.arrive_cycles)
            barrier.arrive(op.count, self.t + dsmem.spec.latency_cycles)
        return None

    def _arrive_expect_tx(self, op: ops.MbarrierArriveExpectTx) -> Pause:
        spec = self.engine.mbarrier_spec
        if spec is None:
            raise self._lacks("mbarrier", "8.0")
        try:
            barrier = self.cta.mbarriers[op.barrier][op.stage]
        except (KeyError, IndexError):
            barrier = self.cta.mbarrier(op.barrier, op.stage)  # says what is wrong
        barrier.tx_bytes += op.num_bytes
        barrier.announced_bytes += op.num_bytes
        self.step(spec.arrive_cycles)
        barrier.arrive(1, self.t)
        return None

    def _mbarrier_wait(self, op: ops.MbarrierWait) -> Pause:
        spec = self.engine.mbarrier_spec
        if spec is None:
            raise self._lacks("mbarrier", "8.0")
        try:
            barrier = self.cta.mbarriers[op.barrier][op.stage]
        except (KeyError, IndexError):
            barrier = self.cta.mbarrier(op.barrier, op.stage)  # says what is wrong
        if barrier.parity != op.parity:
            completed_at = barrier.completed_at
            if completed_at <= self.t:
                self.step(spec.try_wait_cycles)
            else:
                self.spend(WarpState.WAIT_MBARRIER, max(completed_at + spec.wake_cycles, self.t + spec.try_wait_cycles))
            return None
        wake = self.block(WarpState.WAIT_MBARRIER, op)
        barrier.waiters.append(_WakeAfterPhase(self, wake, spec.wake_cycles, spec.try_wait_cycles))
        return wake

    def _thread_barrier(self, barrier: ThreadBarrier, state: WarpState, *, waits: bool) -> Pause:
        release = barrier.arrive(self.spec.num_threads, self.t)
        if not waits:
            return None
        if release is not None:
            self.spend(state, release)
            return None
        wake = self.block(state, f"barrier {barrier.name!r}")
        barrier.wait(_Resume(self, wake))
        return wake

    def _named_barrier(self, name: str) -> ThreadBarrier:
        try:
            return self.cta.barriers[name]
        except KeyError:
            declared = ", ".join(self.cta.barriers) or "none"
            raise LaunchError(f"{self.who()} uses barrier {name!r}, the launch declares {declared}") from None

    def _bar_sync(self, op: ops.BarSync) -> Pause:
        return self._thread_barrier(self._named_barrier(op.barrier), WarpState.WAIT_BARRIER, waits=True)

    def _bar_arrive(self, op: ops.BarArrive) -> Pause:
        self.issue(1)
        return self._thread_barrier(self._named_barrier(op.barrier), WarpState.WAIT_BARRIER, waits=False)

    def _syncthreads(self, op: ops.Syncthreads) -> Pause:
        return self._thread_barrier(self.cta.syncthreads, WarpState.WAIT_BARRIER, waits=True)

    def _cluster_arrive(self, op: ops.ClusterArrive) -> Pause:
        if self.sm.dsmem is None:
            raise self._lacks("cluster barrier", "9.0")
        self.issue(1)
        cluster = self.cta.cluster
        release = cluster.barrier.arrive(self.spec.num_threads, self.t)
        cluster.last_release[id(self)] = -1.0 if release is None else release
        if release is not None:
            for key in cluster.last_release:
                cluster.last_release[key] = release
        return None

    def _cluster_wait(self, op: ops.ClusterWait) -> Pause:
        cluster = self.cta.cluster
        release = cluster.last_release.get(id(self))
        if release is None:
            raise LaunchError(f"{self.who()} waits on the cluster barrier and has not arrived; arrive first")
        if release >= 0.0:
            del cluster.last_release[id(self)]
            self.spend(WarpState.WAIT_CLUSTER, release)
            return None
        wake = self.block(WarpState.WAIT_CLUSTER, "the cluster barrier")

        def resume(cycle: float) -> None:
            del cluster.last_release[id(self)]
            _Resume(self, wake)(cycle)

        cluster.barrier.wait(resume)
        return wake

    def _fence(self, op: ops.Op) -> Pause:
        self.spend(ISSUE, self.t + FENCE_CYCLES)
        return None

    # ------------------------------------------------------------------------------------------ handlers: shared memory

    def _shared_load(self, op: ops.SharedLoad | ops.Ldmatrix) -> Pause:
        access, sm = op.access, self.sm
        self.issue(access.num_requests / self.num_warps)
        stage = self.stage(op.buffer, op.stage)
        wavefronts = self.wavefronts(access)
        ready = sm.smem.load(
            wavefronts, wavefronts_per_warp=wavefronts / self.num_warps, at_cycle=self.t, weight=self.count
        )
        if stage is not None:
            until = ready - sm.smem.spec.load_latency_cycles
            stage.read(self.t, until, "" if stage.is_full(self.t) else self.who())
        token = ops.Token(is_long=False)
        token.ready_cycle = ready
        return token

    def _shared_store(self, op: ops.SharedStore | ops.Stmatrix) -> Pause:
        access = op.access
        self.issue(access.num_requests / self.num_warps)
        stage = self.stage(op.buffer, op.stage)
        end = self.sm.smem.store(self.wavefronts(access), at_cycle=self.t, weight=self.count)
        if stage is not None:
            stage.begin_write(self.t, self.who() if stage.read_until > self.t else "")
            stage.end_write(end)
        self.spend(WarpState.LSU, end)
        return None

    def _shared_atomic(self, op: ops.SharedAtomic) -> Pause:
        access, sm = op.access, self.sm
        self.issue(access.num_requests / self.num_warps)
        end = sm.smem.store(self.wavefronts(access), at_cycle=self.t, weight=self.count)
        token = ops.Token(is_long=False)
        token.ready_cycle = end + sm.smem.spec.atomic_latency_cycles
        return token

    def _dsmem_load(self, op: ops.DsmemLoad) -> Pause:
        dsmem = self.sm.dsmem
        if dsmem is None:
            raise self._lacks("distributed shared memory", "9.0")
        self._peer(op.cta_rank)
        self.issue(1)
        token = ops.Token(is_long=True)
        token.ready_cycle = dsmem.read(op.num_bytes, at_cycle=self.t, weight=self.count)
        return token

    def _dsmem_store(self, op: ops.DsmemStore) -> Pause:
        dsmem = self.sm.dsmem
        if dsmem is None:
            raise self._lacks("distributed shared memory", "9.0")
        self._peer(op.cta_rank)
        self.issue(1)
        dsmem.write(op.num_bytes, at_cycle=self.t, weight=self.count)
        return None

    def _st_async(self, op: ops.StAsync) -> Pause:
        dsmem = self.sm.dsmem
        if dsmem is None:
            raise self._lacks("distributed shared memory", "9.0")
        barrier = self._peer(op.cta_rank).mbarrier(op.barrier, op.stage)
        self.issue(1)
        arrived = dsmem.write(op.num_bytes, at_cycle=self.t, weight=self.count)
        barrier.complete_tx(op.num_bytes, arrived)
        return None

    # ------------------------------------------------------------------------------------------ handlers: arithmetic

    def _mma_sync(self, op: ops.MmaSync) -> Pause:
        core = self.sm.tensor_core
        interval = self.engine.mma_sync_interval(op.atom)
        scheduler = self.sm.warp_scheduler
        scheduler.counters.instructions += op.num_issues * self.num_warps * self.count
        scheduler.issue_slots.reserve(op.num_issues * self.num_warps, at_cycle=self.t, weight=self.count)
        start = self.t
        issued, done = core.run_mma_sync(
            op.num_issues, interval, num_warps=self.num_warps, is_integer=op.atom.rate_class == "int8",
            at_cycle=self.t, weight=self.count,
        )
        self._record_mma(start, done, op.num_issues)
        self.spend(TENSOR, max(issued, self.t))
        return None

    def _wgmma(self, op: ops.Wgmma) -> Pause:
        cost = self.engine.wgmma_costs.get(id(op))
        if cost is None:
            cost = self.engine.cost_of_wgmma(op, self.num_warpgroups, self.num_warps)
        pipe = self.sm.tensor_core.pipe
        at = self.t
        begin = pipe.free_at
        if begin < at:
            begin = at
        pipe.free_at = end = begin + cost.cycles
        cost.times += self.count
        stages = self.cta.buffers
        for buffer, stage_idx in op.reads:
            try:
                stage = stages[buffer][stage_idx]
            except (KeyError, IndexError):
                stage = self.cta.stage(buffer, stage_idx)  # says what is wrong
            if stage.num_writes_pending or stage.full_at > at + 1e-6 or not stage.num_fills:
                stage.read(at, end, self.who())
            elif end > stage.read_until:
                stage.read_until = end
        if self.record is not None:
            self._record_mma(begin, end, op.num_issues * self.num_warpgroups)
        if end > self.wgmma_open:
            self.wgmma_open = end
        issued = end - cost.queue_cycles
        if issued > at:
            self.spend(TENSOR, issued)
        return None

    def _record_mma(self, start: float, end: float, num_issues: int) -> None:
        if self.record is not None:
            offset = self.engine.offset_cycles
            self.engine.timeline.mmas.append(
                MmaSpan(self.cta.idx, self.sm.idx, self.spec.name, start + offset, end + offset, num_issues)
            )

    def _wgmma_commit(self, op: ops.WgmmaCommitGroup) -> Pause:
        self.wgmma_groups.append(self.wgmma_open)
        return None

    def _wgmma_wait(self, op: ops.WgmmaWaitGroup) -> Pause:
        groups = self.wgmma_groups
        end = -1.0
        while len(groups) > op.num_pending:
            end = groups.popleft()
        if end >= 0.0:
            self.spend(WarpState.WAIT_WGMMA, end + self.engine.wgmma_latency_cycles)
        return None

    def _fma(self, op: ops.Fma) -> Pause:
        scheduler = self.sm.warp_scheduler
        scheduler.counters.fma_instructions += op.num_instructions * self.num_warps * self.count
        end = scheduler.execute(
            scheduler.fma_pipe, op.num_instructions, num_warps=self.num_warps, at_cycle=self.t, weight=self.count
        )
        self.spend(WarpState.MATH_PIPE, end)
        return None

    def _alu(self, op: ops.Alu) -> Pause:
        scheduler = self.sm.warp_scheduler
        end = scheduler.execute(
            scheduler.alu_pipe, op.num_instructions, num_warps=self.num_warps, at_cycle=self.t, weight=self.count
        )
        self.spend(ISSUE, end)
        return None

    def _mufu(self, op: ops.Mufu) -> Pause:
        scheduler = self.sm.warp_scheduler
        end = scheduler.execute(
            scheduler.mufu_pipe, op.num_instructions, num_warps=self.num_warps, at_cycle=self.t, weight=self.count
        )
        self.spend(WarpState.MATH_PIPE, end)
        return None

    def _set_max_nreg(self, op: ops.SetMaxNReg) -> Pause:
        if self.engine.gpu.compute_capability < 9.0:
            raise self._lacks("setmaxnreg", "9.0a")
        self.issue(1)
        cta, threads = self.cta, self.spec.num_threads
        needed = (op.num_registers - self.registers) * threads
        if op.direction == "dec" or needed <= 0:
            self.registers = op.num_registers
            cta.free_registers -= needed
            self._hand_out_registers()
            return None
        if cta.free_registers >= needed:
            cta.free_registers -= needed
            self.registers = op.num_registers
            return None
        wake = self.block(
            WarpState.WAIT_REGISTERS, f"{needed} registers of the CTA's pool (setmaxnreg.inc {op.num_registers})"
        )
        self.registers = op.num_registers
        cta.register_waiters.append((needed, _Resume(self, wake)))
        return wake

    def _hand_out_registers(self) -> None:
        cta = self.cta
        while cta.register_waiters and cta.free_registers >= cta.register_waiters[0][0]:
            needed, resume = cta.register_waiters.pop(0)
            cta.free_registers -= needed
            resume(self.t)

    # ------------------------------------------------------------------------------------------ handlers: marks

    def _range_start(self, op: ops.RangeStart) -> Pause:
        self.sections.append((op.section.value, self.t + self.engine.offset_cycles))
        if self.engine.is_ideal(op.section.value):
            self.handlers = FREE_HANDLERS
        return None

    def _range_end(self, op: ops.RangeEnd) -> Pause:
        if not self.sections:
            raise LaunchError(f"{self.who()} ends a range that it never started; yield RangeStart first")
        name, start = self.sections.pop()
        self.handlers = HANDLERS
        self.engine.section_ended(self, name, self.t + self.engine.offset_cycles - start)
        if self.record is not None:
            self.record.sections.append(Span(start, self.t + self.engine.offset_cycles, name))
        return None


LSU_QUEUE_CYCLES = 32.0
"""How far the load/store unit may lag behind the warps that feed it before they stall. guess: a queue of some 32."""

FENCE_CYCLES = 8.0
"""What a proxy fence costs where nothing is outstanding. guess: a few issue cycles."""


class _Resume:
    """Wakes a role at a cycle."""

    __slots__ = ("_role", "_wake")

    def __init__(self, role: Role, wake: Wake) -> None:
        self._role = role
        self._wake = wake

    def __call__(self, cycle: float) -> None:
        role = self._role
        now = role.env._now
        until = cycle if cycle > role.t else role.t
        self._wake.fire(until - now if until > now else 0.0)


class _WakeAfterPhase:
    """Wakes a role some cycles after an mbarrier's phase has completed."""

    __slots__ = ("_role", "_try", "_wake", "_wake_cycles")

    def __init__(self, role: Role, wake: Wake, wake_cycles: float, try_cycles: float) -> None:
        self._role = role
        self._wake = wake
        self._wake_cycles = wake_cycles
        self._try = try_cycles

    def __call__(self, completed_at: float) -> None:
        role = self._role
        now = role.env._now
        until = completed_at + self._wake_cycles
        earliest = role.t + self._try
        if until < earliest:
            until = earliest
        self._wake.fire(until - now if until > now else 0.0)


class _TokenReady:
    """A load's data are there."""

    __slots__ = ("_token",)

    def __init__(self, token: ops.Token) -> None:
        self._token = token

    def __call__(self, cycle: float) -> None:
        token = self._token
        token.ready_cycle = cycle
        if token.on_ready is not None:
            token.on_ready(cycle)  # type: ignore[operator]  # _use stores a _Resume


class _Filled:
    """A cp.async batch has come from memory: it is written into shared memory, wavefront by wavefront."""

    __slots__ = ("_buffer", "_group", "_request", "_role", "_stage", "_stage_idx", "_wavefronts")

    def __init__(
        self, role: Role, stage: Stage, group: AsyncGroup, wavefronts: float, request: MemoryRequest, buffer: str,
        stage_idx: int,
    ) -> None:
        self._role = role
        self._stage = stage
        self._group = group
        self._wavefronts = wavefronts
        self._request = request
        self._buffer = buffer
        self._stage_idx = stage_idx

    def __call__(self, cycle: float) -> None:
        role, request = self._role, self._request
        now = role.env._now  # queued now, though they come at ``cycle``: what is reserved ahead nobody can overtake
        queued = role.sm.smem.store(self._wavefronts, at_cycle=now, weight=request.num_alike) - now
        # wavefronts that arrive while the transfer is under way hide behind it; only the excess shows
        hidden = request.num_bytes / LINE_BYTES
        end = cycle + max(0.0, queued - min(self._wavefronts, hidden))
        self._stage.end_write(end)
        self._group.finish(end)
        role.engine.copy_cycles += end - request.issued_at
        role.engine.num_copies += 1
        if role.record is not None:
            offset = role.engine.offset_cycles
            role.engine.timeline.copies.append(
                CopySpan(
                    role.cta.idx, role.sm.idx, self._buffer, self._stage_idx, request.tensor,
                    request.issued_at + offset, end + offset, request.num_bytes,
                )
            )


class _TmaArrived:
    """A TMA copy is complete in one CTA."""

    __slots__ = ("_cta", "_latency", "_op", "_role", "_stage", "_started", "barrier")

    def __init__(self, role: Role, cta: Cta, op: ops.TmaLoad, latency_cycles: float) -> None:
        self._role = role
        self._cta = cta
        self._op = op
        self._latency = latency_cycles
        self._started = role.t
        try:
            self.barrier = cta.mbarriers[op.barrier][op.stage]
            self._stage = stage = cta.buffers[op.buffer][op.stage]
        except (KeyError, IndexError):
            self.barrier = cta.mbarrier(op.barrier, op.stage)  # one of the two says what is wrong
            self._stage = stage = cta.stage(op.buffer, op.stage)
        if stage.read_until > role.t:
            stage.begin_write(role.t, role.who())
        else:
            stage.num_writes_pending += 1
            stage.num_fills += 1

    def __call__(self, cycle: float) -> None:
        op, cta = self._op, self._cta
        at = cycle + self._latency
        stage = self._stage
        stage.num_writes_pending -= 1
        if at > stage.full_at:
            stage.full_at = at
        barrier = self.barrier
        phase = barrier.num_phases
        barrier.complete_tx(op.num_bytes, at)
        engine = self._role.engine
        engine.copy_cycles += at - self._started
        engine.num_copies += 1
        if cta.sm.idx in engine.recorded_sms:
            offset = engine.offset_cycles
            engine.timeline.copies.append(
                CopySpan(
                    cta.idx, cta.sm.idx, op.buffer, op.stage, op.tensor, self._started + offset, at + offset,
                    op.num_bytes, op.barrier,
                )
            )
            if barrier.num_phases != phase:
                engine.timeline.flips.append(
                    PhaseFlip(cta.idx, cta.sm.idx, op.barrier, op.stage, barrier.completed_at + offset)
                )


class _Stored:
    """A store has left the SM."""

    __slots__ = ("_engine", "_group")

    def __init__(self, engine: Engine, group: AsyncGroup) -> None:
        self._engine = engine
        self._group = group

    def __call__(self, cycle: float) -> None:
        self._group.finish(cycle)
        self._engine.store_ended(cycle)


class _BulkStored:
    """A TMA store has read its source; it is complete one L2 latency later."""

    __slots__ = ("_lag", "_read", "_role", "_stage", "_whole")

    def __init__(self, role: Role, read: AsyncGroup, whole: AsyncGroup, stage: Stage | None, lag_cycles: float) -> None:
        self._role = role
        self._read = read
        self._whole = whole
        self._stage = stage
        self._lag = lag_cycles

    def __call__(self, cycle: float) -> None:
        engine = self._role.engine
        assert engine.gpu.tma is not None  # the store was issued
        read_at = cycle + self._lag + engine.gpu.tma.store_latency_cycles
        if self._stage is not None:
            self._stage.end_read(read_at)
        self._read.finish(read_at)
        self._whole.finish(read_at + engine.machine.l2.hit_latency_cycles)
        engine.store_ended(cycle + self._lag)


Handler = Callable[[Any, Any], Pause]

def _no_op(role: Role, op: object) -> Pause:
    raise LaunchError(
        f"{role.engine.launch.kernel}: role {role.spec.name!r} yields {op!r}, wants an op of the vocabulary"
    )


class Handlers(dict[type[ops.Op], Handler]):
    """What to do for each op; anything else is refused."""

    def __missing__(self, kind: type) -> Handler:
        """Something that is no op."""
        return _no_op


HANDLERS = Handlers({
    ops.GlobalLoad: Role._global_load,
    ops.GlobalStore: Role._global_store,
    ops.GlobalAtomic: Role._global_atomic,
    ops.Use: Role._use,
    ops.CpAsync: Role._cp_async,
    ops.CpAsyncCommitGroup: Role._cp_commit,
    ops.CpAsyncWaitGroup: Role._cp_wait,
    ops.CpAsyncMbarrierArrive: Role._cp_mbarrier,
    ops.TmaLoad: Role._tma_load,
    ops.TmaStore: Role._tma_store,
    ops.BulkCommitGroup: Role._bulk_commit,
    ops.BulkWaitGroup: Role._bulk_wait,
    ops.PrefetchTensormap: Role._prefetch_tensormap,
    ops.MbarrierInit: Role._mbarrier_init,
    ops.MbarrierArrive: Role._mbarrier_arrive,
    ops.MbarrierArriveExpectTx: Role._arrive_expect_tx,
    ops.MbarrierWait: Role._mbarrier_wait,
    ops.BarSync: Role._bar_sync,
    ops.BarArrive: Role._bar_arrive,
    ops.Syncthreads: Role._syncthreads,
    ops.ClusterArrive: Role._cluster_arrive,
    ops.ClusterWait: Role._cluster_wait,
    ops.FenceProxyAsync: Role._fence,
    ops.FenceMbarrierInit: Role._fence,
    ops.SharedLoad: Role._shared_load,
    ops.SharedStore: Role._shared_store,
    ops.SharedAtomic: Role._shared_atomic,
    ops.Ldmatrix: Role._shared_load,
    ops.Stmatrix: Role._shared_store,
    ops.DsmemLoad: Role._dsmem_load,
    ops.DsmemStore: Role._dsmem_store,
    ops.StAsync: Role._st_async,
    ops.MmaSync: Role._mma_sync,
    ops.WgmmaFence: Role._fence,
    ops.Wgmma: Role._wgmma,
    ops.WgmmaCommitGroup: Role._wgmma_commit,
    ops.WgmmaWaitGroup: Role._wgmma_wait,
    ops.Fma: Role._fma,
    ops.Alu: Role._alu,
    ops.Mufu: Role._mufu,
    ops.SetMaxNReg: Role._set_max_nreg,
    ops.RangeStart: Role._range_start,
    ops.RangeEnd: Role._range_end,
})
"""What each op costs: the one place beside ``workload/ops.py`` that a new op needs."""

LAZY: frozenset[type[ops.Op]] = frozenset(
    {
        ops.WgmmaCommitGroup, ops.WgmmaWaitGroup, ops.MbarrierWait, ops.CpAsyncCommitGroup, ops.CpAsyncWaitGroup,
        ops.BulkCommitGroup, ops.BulkWaitGroup, ops.Use, ops.RangeStart, ops.RangeEnd,
    }
)
"""Ops that touch nothing shared, so that the clock need not catch up first."""

WHEN_FREE: frozenset[type[ops.Op]] = frozenset(
    {
        ops.MbarrierArrive, ops.MbarrierArriveExpectTx, ops.MbarrierWait, ops.BarSync, ops.BarArrive, ops.Syncthreads,
        ops.ClusterArrive, ops.ClusterWait, ops.SetMaxNReg, ops.RangeStart, ops.RangeEnd, ops.Use, ops.TmaLoad,
        ops.CpAsync, ops.CpAsyncCommitGroup, ops.CpAsyncWaitGroup,
    }
)
"""Ops that are carried out even in a section that a counterfactual makes free: others depend on them."""

GIVES_TOKEN: frozenset[type[ops.Op]] = frozenset(
    {ops.GlobalLoad, ops.SharedLoad, ops.SharedAtomic, ops.Ldmatrix, ops.DsmemLoad, ops.GlobalAtomic}
)
"""Ops whose program receives a token."""


def _for_nothing(role: Role, op: ops.Op) -> Pause:
    """An op in a section that a counterfactual makes free."""
    if type(op) in GIVES_TOKEN:
        token = ops.Token(is_long=False)
        token.ready_cycle = role.t
        return token
    return None


FREE_HANDLERS = Handlers(
    {kind: handler if kind in WHEN_FREE else _for_nothing for kind, handler in HANDLERS.items()}
)
"""The same for a section that is free."""
