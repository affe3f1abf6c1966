"""Order check: accesses to shared memory that nothing orders, whatever the timing.

In: a launch and its programs. Out: findings, one for each pair of roles and each thing that is missing.

Models:

* Happens-before, by vector clocks. Program order; mbarrier phases; named barriers, ``__syncthreads``, cluster barriers;
  groups of cp.async, bulk copies and wgmma, with their commits and waits; ``fence.proxy.async``.
* A stage of a buffer as one thing. Writes of one fill touch different bytes, as long as all of them fit into the stage.
* Warps of one role. A ``cp.async.wait_group`` of one warp says nothing about copies of another.

Ignores:

* Scratch memory (an empty ``buffer``), global memory, and memory of other CTAs that ops name by bytes alone.
* Elements: which bytes of a stage an op touches.

**One replay is enough.** Each role's ops are carried out once, in some order that the barriers allow. The replay also
checks that this order decides nothing:

1. An arrival counts in phase n. Its role must know that phase n - 1 is complete, so it cannot count earlier. If phase n could
   complete without this arrival, there would be more arrivals than the barrier expects, which is refused.
2. A wait passes behind phase n. Its role must know that phase n - 1 is complete, or an older phase of the same parity could
   let it pass. And phase n + 1 must not complete before the wait has passed, or the wait could miss it (parity alias).
3. The same holds for generations of barriers of threads.

Take any other order, and its first arrival or wait that belongs to another phase than in the replay. Everything before it
agrees. By 1 to 3 it then belongs to the same phase: a contradiction. So every order gives the same pairs of arrivals and
waits, and the same happens-before. A pair of accesses that it leaves open occurs in either order in some run.

**Turns of a loop are left out.** The replay is a function of its state and of the ops to come. Suppose that two states are
equal, but for numbers that only grew, with every comparison of two numbers kept. Suppose that all roles then repeat the
ops between both states k times. Then each repetition ends in an equal state and finds what the first found. The replay goes
on behind the last repetition.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gpusim.program.order_findings import Finding, after_read, after_write, other, verb, where
from gpusim.program.order_state import FENCED, KNOWN, MOST_GROUPS, OPS, Access, Actor, Groups, Meeting, Phases, Stage
from gpusim.program.order_steps import SHARED_READS, SHARED_WRITES, STORES, Step, StepList, step_lists
from gpusim.program.programs import Programs
from gpusim.program.records import OpKind
from gpusim.units import WARP_SIZE
from gpusim.workload.launch import Launch

MOST_FINDINGS = 20
"""Findings of one launch, at most. The first wrong op of a ring brings many others."""
LEAST_TURNS = 3
"""Repetitions that are worth leaving out."""
COLUMNS_OF_ROLE = 4
WAITS = (OpKind.MBARRIER_WAIT, OpKind.BAR_SYNC, OpKind.SYNCTHREADS, OpKind.CLUSTER_WAIT)


def order_findings(launch: Launch, programs: Programs) -> list[Finding]:
    """What is wrong with the order of a launch's accesses, once for each class of CTAs, or of clusters.

    Empty for a launch in which barriers order all accesses.
    """
    size, steps_of = launch.cluster_size, step_lists(programs)
    found: dict[Hashable, Finding] = {}
    clusters = programs.cta_class[: len(programs.cta_class) // size * size].reshape(-1, size)
    kinds, firsts = np.unique(clusters, axis=0, return_index=True)
    seen: set[Hashable] = set()
    for classes, first in sorted(zip(kinds.tolist(), firsts.tolist(), strict=True), key=lambda pair: pair[1]):
        lists = [[steps_of(program) for program in programs.class_programs[number].tolist()] for number in classes]
        key = tuple((tuple(each.steps), each.codes.tobytes()) for each in chain.from_iterable(lists))
        if key in seen or len(found) >= MOST_FINDINGS:
            continue
        seen.add(key)
        replay = Replay(launch, programs, lists, first * size)
        replay.run()
        for key, finding in replay.found.items():
            found.setdefault(key, finding)
    return list(found.values())[:MOST_FINDINGS]


class Replay:
    """All roles of a CTA, or of the CTAs of a cluster, carried out once."""

    def __init__(self, launch: Launch, programs: Programs, lists: list[list[StepList]], first_cta: int):
        """Begin before the first op. ``lists``: the steps of each role, by cluster rank."""
        size, num_roles, self.launch = len(lists), len(launch.roles), launch
        num_actors, num_barriers = size * num_roles, len(programs.barriers)
        num_columns = num_actors * COLUMNS_OF_ROLE + size * num_barriers
        self.first_cta, self.found = first_cta, dict[Hashable, Finding]()
        self.actors = [
            Actor(first_cta + rank, rank * num_roles + idx, role.name, role.num_warps * WARP_SIZE, num_columns,
                  (rank * num_roles + idx) * COLUMNS_OF_ROLE, lists[rank][idx])
            for rank in range(size) for idx, role in enumerate(launch.roles)
        ]  # fmt: skip
        arrivals, of_buffer = {ring.name: ring.num_arrivals for ring in launch.mbarriers}, {}
        of_buffer = {buffer.name: buffer for buffer in launch.buffers}
        first_column = num_actors * COLUMNS_OF_ROLE
        self.phases = [
            [
                Phases(f"{ring}[{stage}]", first_cta + rank, arrivals[ring], num_columns, first_column + rank * num_barriers + idx)
                for idx, (ring, stage) in enumerate(programs.barriers)
            ]
            for rank in range(size)
        ]
        self.stages = [
            [
                Stage(f"{name}[{stage}]", of_buffer[name].stage_bytes, first_cta + rank, of_buffer[name].is_overlay)
                for name, stage in programs.stages
            ]
            for rank in range(size)
        ]
        threads = {item.name: item.num_threads for item in launch.named_barriers}
        self.meetings = [
            [
                *(Meeting(f"barrier {name!r}", threads[name], num_columns) for name in programs.named_barriers),
                Meeting("__syncthreads", launch.num_threads, num_columns),
            ]
            for rank in range(size)
        ]
        self.cluster = Meeting("the cluster barrier", launch.num_threads * size, num_columns)
        self.inits: list[list[Access]] = [[] for _ in range(size)]
        every = [step for of_rank in lists for each in of_rank for step in each.steps]
        self.has_inits = any(step.kind is OpKind.MBARRIER_INIT for step in every)
        self.is_overlaid = any(buffer.is_overlay for buffer in launch.buffers)
        read = {stage for step in every for stage in (*step.reads, *([step.stage] if step.kind in READS else []))}
        self.read_buffers = {programs.stages[stage][0] for stage in read if stage >= 0}
        self.operands = {programs.stages[stage][0] for step in every for stage in step.reads}
        self.remote: dict[tuple[int, int], Access] = {}
        """Latest access to another CTA, by that CTA's rank and the column at which the access ends."""
        self.states = States(self)

    # ---------------------------------------------------------------------------------- in which order
    def run(self) -> None:
        """Carry out all roles, each up to its next wait in turn, until all have ended or none can go on."""
        while any([self._advance(actor) for actor in self.actors]):
            if len(self.found) >= MOST_FINDINGS:
                return
            self.states.leave_out_turns()
        self._check_end()

    def _advance(self, actor: Actor) -> bool:
        """Carry out ops of a role up to and with its next wait. Returns whether it got on."""
        begin = actor.tick
        while actor.waits_for is None and (step := actor.step) is not None:
            actor.tick += 1
            actor.clocks[KNOWN, actor.column + OPS] = actor.tick
            self._carry_out(actor, step)
            if actor.waits_for is None:
                actor.pos += 1
            if step.kind in WAITS:
                break
        return actor.tick > begin

    def _carry_out(self, actor: Actor, step: Step) -> None:
        kind = step.kind
        if kind in READS or kind is OpKind.WGMMA:
            self._read(actor, step)
        elif kind in SHARED_WRITES or kind is OpKind.CP_ASYNC or kind is OpKind.TMA_LOAD:
            self._write(actor, step)
        elif kind in STORES:
            self._use_accumulators(actor)
        elif kind in GROUPS:
            groups = self._groups(actor, kind)
            if kind in COMMITS:
                groups.commit()
            else:
                groups.wait(actor.clocks, step.number)
        elif kind is OpKind.WGMMA_FENCE:
            actor.is_fenced = True
        elif kind is OpKind.FENCE_PROXY_ASYNC:
            np.maximum(actor.clocks[FENCED], actor.clocks[KNOWN], out=actor.clocks[FENCED])
        elif kind is OpKind.MBARRIER_INIT:
            self.inits[self._rank(actor)].append(self._access(actor, step))
        elif kind is OpKind.MBARRIER_WAIT:
            self._wait(actor, step)
        elif kind in ARRIVALS:
            self._arrive(actor, step)
        else:
            self._meet(actor, step)

    @staticmethod
    def _groups(actor: Actor, kind: OpKind) -> Groups:
        return actor.copies if kind in GROUPS[:2] else actor.bulk if kind in GROUPS[2:4] else actor.wgmma

    def _rank(self, actor: Actor) -> int:
        return actor.cta - self.first_cta

    def _access(self, actor: Actor, step: Step) -> Access:
        """A synchronous access of the generic proxy, which ends with its op."""
        return Access(actor, step, actor.place, actor.column + OPS, actor.tick, True, step.num_bytes)

    def _find(self, kind: str, key: Hashable, message: str, *, is_error: bool = True) -> None:
        finding = Finding(kind=kind, message=f"{self.launch.kernel}: {message}", is_error=is_error)
        self.found.setdefault((kind, key), finding)

    # ---------------------------------------------------------------------------------- stages
    def _read(self, actor: Actor, step: Step) -> None:
        kind, stages = step.kind, self.stages[self._rank(actor)]
        access = self._access(actor, step)
        if kind is OpKind.WGMMA:
            if not actor.is_fenced:
                self._find("fence", actor.name, f"{where(actor)} begins without wgmma.fence: registers of its accumulators "
                           "were written before", is_error=False)  # fmt: skip
                actor.is_fenced = True
            access = access._replace(column=actor.wgmma.column, end=actor.wgmma.issue(), is_generic=False)
        elif kind is OpKind.TMA_STORE:
            access = access._replace(column=actor.bulk.column, end=actor.bulk.issue(), is_generic=False)
        for stage in [stages[number] for number in (step.reads or (step.stage,)) if number >= 0]:
            self._check_read(actor, stage, access)
            Stage.add(stage.reads, access)

    def _check_read(self, actor: Actor, stage: Stage, access: Access) -> None:
        buffer = stage.name.partition("[")[0]
        if not stage.was_written and not stage.reads:
            self._find("race", ("never", buffer, actor.name), f"{where(actor)} reads {stage.name}, which nothing has written: "
                       "fill it first")  # fmt: skip
        for write in stage.writes:
            key = buffer, actor.name, write.actor.name, write.step.kind
            if not actor.knows(write):
                missing = after_write(write, actor, self._barrier_of(write))
                self._find("race", key, f"{where(actor)} reads {stage.name} while {other(write, actor)} may still write it: "
                           f"{missing} is missing")  # fmt: skip
            elif write.is_generic and not access.is_generic and actor.clocks[FENCED, write.column] < write.end:
                self._find("fence", key, f"{where(actor)} reads {stage.name} through the async proxy, {other(write, actor)} "
                           "wrote it through the generic one: fence.proxy.async is missing")  # fmt: skip

    def _write(self, actor: Actor, step: Step) -> None:
        rank, kind = self._rank(actor), step.kind
        access = self._access(actor, step)
        if kind is OpKind.CP_ASYNC:
            access = access._replace(column=actor.copies.column, end=actor.copies.issue())
        for to in step.ranks or (rank,):
            stage = self.stages[to][step.stage]
            if kind is OpKind.TMA_LOAD:
                phases = self.phases[to][step.barrier]
                self._check_init(actor, to, phases)
                access = access._replace(column=phases.column, end=phases.done + 1, is_generic=False)
                if to != rank:
                    self.remote[to, phases.column] = access
            self._check_write(actor, stage, access)
            if stage.reads:
                stage.writes, stage.reads = [], []
            Stage.add(stage.writes, access)
            stage.was_written = True
            if kind is OpKind.TMA_LOAD:
                np.maximum(phases.now, actor.released(), out=phases.now)
                self._deliver(phases, step.num_bytes)
        if kind in SHARED_WRITES and stage.name.partition("[")[0] not in self.operands:
            self._use_accumulators(actor)

    def _check_write(self, actor: Actor, stage: Stage, access: Access) -> None:
        buffer = stage.name.partition("[")[0]
        for read in stage.reads:
            if not actor.knows(read):
                self._find_write(actor, stage, read, after_read(read, actor))
        unread = stage.writes if not stage.reads else []
        if sum(write.num_bytes for write in unread) + access.num_bytes > stage.num_bytes:
            under_way = [write for write in stage.writes if not actor.knows(write, across=False)]
            if sum(write.num_bytes for write in under_way) + access.num_bytes > stage.num_bytes:
                for write in under_way:
                    self._find_write(actor, stage, write, after_write(write, actor, self._barrier_of(write)))
            elif buffer in self.read_buffers:
                self._find("unread", (buffer, actor.name), f"{where(actor)} writes {stage.name} again, and nothing has read "
                           f"what {other(stage.writes[0], actor)} wrote", is_error=False)  # fmt: skip
            stage.writes = under_way
        if self.is_overlaid:
            for shared in self.stages[stage.cta - self.first_cta]:
                if shared.is_overlay != stage.is_overlay:
                    for old in (*shared.reads, *shared.writes):
                        if not actor.knows(old):
                            missing = after_read(old, actor) if verb(old) == "read" else after_write(
                                old, actor, self._barrier_of(old))
                            self._find_write(actor, stage, old, missing, f"the memory of {shared.name}")

    def _find_write(self, actor: Actor, stage: Stage, old: Access, missing: str, what: str = "it") -> None:
        key = stage.name.partition("[")[0], actor.name, old.actor.name, old.step.kind, "write"
        does = "read" if verb(old) == "read" else "write"
        self._find("race", key, f"{where(actor)} writes {stage.name} while {other(old, actor)} may still {does} {what}: "
                   f"{missing} is missing")  # fmt: skip

    def _use_accumulators(self, actor: Actor) -> None:
        """A store of registers of a role that multiplies: its accumulators."""
        if actor.wgmma.is_in_flight(actor.clocks):
            self._find("accumulators", actor.name, f"{where(actor)} stores accumulators while wgmma in flight writes them: "
                       "wgmma.wait_group 0 is missing")  # fmt: skip
        actor.is_fenced = False

    def _barrier_of(self, write: Access) -> str:
        names = {phases.column: phases.name for phases in chain.from_iterable(self.phases)}
        return names.get(write.column, "")

    # ---------------------------------------------------------------------------------- mbarriers
    def _check_init(self, actor: Actor, rank: int, phases: Phases, *, across: bool = False) -> None:
        if self.has_inits and not any(actor.knows(init, across=across) for init in self.inits[rank]):
            self._find("barrier", ("init", actor.name), f"{where(actor)} uses mbarrier {phases.name} of CTA {phases.cta}, and "
                       "nothing orders it behind mbarrier.init: a barrier is missing")  # fmt: skip

    def _wait(self, actor: Actor, step: Step) -> None:
        rank = self._rank(actor)
        phases = self.phases[rank][step.barrier]
        self._check_init(actor, rank, phases, across=True)
        if phases.done & 1 != step.number:
            self._pass(actor, phases)
        else:
            actor.waits_for = phases

    def _pass(self, actor: Actor, phases: Phases) -> None:
        step = actor.step
        assert step is not None
        if not phases.is_known(actor, phases.done - 1):
            self._find("order", ("pass", phases.name.partition("[")[0], actor.name), f"{where(actor)} waits for parity "
                       f"{step.number} of mbarrier {phases.name}, which phase {phases.done - 3} has, too: nothing orders it "
                       f"behind phase {phases.done - 2}")  # fmt: skip
        phases.pass_to(actor, self._access(actor, step))

    def _arrive(self, actor: Actor, step: Step) -> None:
        kind, rank = step.kind, self._rank(actor)
        to = step.ranks[0] if step.ranks else rank
        if step.barrier < 0:  # bytes of another CTA alone
            self.remote[to, actor.column] = self._access(actor, step)
            return
        phases = self.phases[to][step.barrier]
        self._check_init(actor, to, phases)
        if to != rank:
            self.remote[to, actor.column] = self._access(actor, step)
        released = actor.released()
        if kind is OpKind.CP_ASYNC_MBARRIER_ARRIVE:
            released[:FENCED, actor.copies.column] = actor.copies.close()
        if kind is OpKind.ST_ASYNC:
            np.maximum(phases.now, released, out=phases.now)
            self._deliver(phases, step.num_bytes)
            return
        count = {OpKind.MBARRIER_ARRIVE: step.number, OpKind.CP_ASYNC_MBARRIER_ARRIVE: actor.num_threads}.get(kind, 1)
        name = phases.name.partition("[")[0]
        if not phases.is_known(actor, phases.done):
            self._find("order", ("arrive", name, actor.name), f"{where(actor)} arrives on mbarrier {phases.name} for phase "
                       f"{phases.done}, and nothing orders it behind phase {phases.done - 1}: a wait is missing")  # fmt: skip
        if count > phases.pending:
            self._find("barrier", ("count", name, actor.name), f"{where(actor)} arrives {count} times on mbarrier "
                       f"{phases.name}, whose phase misses {phases.pending} of {phases.num_arrivals} arrivals")  # fmt: skip
        np.maximum(phases.now, released, out=phases.now)
        phases.pending = max(0, phases.pending - count)
        if kind is OpKind.MBARRIER_ARRIVE_EXPECT_TX:
            phases.announced += step.number
        self._complete(phases)

    def _deliver(self, phases: Phases, num_bytes: int) -> None:
        phases.delivered += num_bytes
        phases.has_bytes = True
        self._complete(phases)

    def _complete(self, phases: Phases) -> None:
        if not phases.is_over:
            return
        for wait in phases.complete():
            self._find("order", ("lap", phases.name.partition("[")[0], wait.actor.name), f"role {wait.actor.name!r} of CTA "
                       f"{wait.actor.cta}, op {wait.place} waits for parity {wait.step.number} of mbarrier {phases.name}, and "
                       "may miss it: nothing holds up the next phase until then")  # fmt: skip
        for actor in self.actors:
            step = actor.step
            if actor.waits_for is phases and step is not None and phases.done & 1 != step.number:
                self._pass(actor, phases)
                actor.waits_for, actor.pos = None, actor.pos + 1

    # ---------------------------------------------------------------------------------- barriers of threads
    def _meet(self, actor: Actor, step: Step) -> None:
        kind, of_cta = step.kind, self.meetings[self._rank(actor)]
        is_cluster = kind in (OpKind.CLUSTER_ARRIVE, OpKind.CLUSTER_WAIT)
        meeting = self.cluster if is_cluster else of_cta[-1] if kind is OpKind.SYNCTHREADS else of_cta[step.barrier]
        if kind is OpKind.CLUSTER_WAIT:
            if meeting.done > actor.arrived_at:
                actor.acquire(meeting.last)
            else:
                actor.waits_for = meeting
            return
        if not actor.is_after(meeting.last):
            self._find("order", (meeting.name, actor.name), f"{where(actor)} arrives at {meeting.name}, and nothing orders it "
                       "behind the arrivals before: a wait is missing")  # fmt: skip
        if meeting.arrived + actor.num_threads > meeting.num_threads:
            self._find("barrier", (meeting.name, actor.name), f"{where(actor)}: {meeting.arrived + actor.num_threads} threads "
                       f"arrive at {meeting.name}, it was declared for {meeting.num_threads}")  # fmt: skip
        actor.arrived_at = meeting.done if is_cluster else actor.arrived_at
        has_completed = meeting.arrive(actor)
        if kind in (OpKind.BAR_SYNC, OpKind.SYNCTHREADS):
            actor.waits_for = meeting
        if has_completed:
            for waiting in self.actors:
                if waiting.waits_for is meeting:
                    waiting.acquire(meeting.last)
                    waiting.waits_for = None
                    waiting.pos += waiting is not actor  # the caller moves on the role that carries out the op

    # ---------------------------------------------------------------------------------- the end
    def _check_end(self) -> None:
        stuck = [actor for actor in self.actors if actor.step is not None]
        for phases in chain.from_iterable(self.phases):
            if phases.announced != phases.delivered:
                self._find("bytes", phases.name.partition("[")[0], f"mbarrier {phases.name} of CTA {phases.cta} never completes "
                           f"phase {phases.done}: {phases.announced} bytes announced, {phases.delivered} delivered")  # fmt: skip
        if stuck and not self.found:
            waits = "; ".join(f"{where(actor)} waits for {getattr(actor.waits_for, 'name', '')}" for actor in stuck[:3])
            self._find("deadlock", "", f"deadlock, whatever the timing: {waits}")
        if stuck:
            return
        for actor in self.actors:
            if actor.wgmma.is_in_flight(actor.clocks):
                self._find("accumulators", actor.name, f"{where(actor)} while its wgmma is in flight: wgmma.wait_group 0 is "
                           "missing")  # fmt: skip
            if actor.bulk.is_in_flight(actor.clocks):
                self._find("race", ("exit", actor.name), f"{where(actor)} while its TMA store may still read shared memory: "
                           "cp.async.bulk.wait_group.read 0 is missing")  # fmt: skip
        for (rank, column), access in self.remote.items():
            of_cta = [actor for actor in self.actors if self._rank(actor) == rank]
            if not any(actor.clocks[KNOWN, column] >= access.end for actor in of_cta):
                self._find("race", ("exit", access.actor.name), f"CTA {self.first_cta + rank} may exit before "
                           f"{other(access, of_cta[0])} reaches its shared memory: a cluster barrier at the end is missing")  # fmt: skip
        for stage in chain.from_iterable(self.stages):
            buffer = stage.name.partition("[")[0]
            if stage.writes and not stage.reads and buffer in self.read_buffers:
                write = stage.writes[-1]
                self._find("unread", buffer, f"{stage.name} is not read after {other(write, write.actor).replace('its own', 'the last')} "
                           f"of role {write.actor.name!r}: a turn is missing, or a copy too many", is_error=False)  # fmt: skip


READS = (*SHARED_READS, OpKind.TMA_STORE)
GROUPS = (
    OpKind.CP_ASYNC_COMMIT_GROUP, OpKind.CP_ASYNC_WAIT_GROUP, OpKind.BULK_COMMIT_GROUP, OpKind.BULK_WAIT_GROUP,
    OpKind.WGMMA_COMMIT_GROUP, OpKind.WGMMA_WAIT_GROUP,
)  # fmt: skip
COMMITS = GROUPS[::2]
ARRIVALS = (
    OpKind.MBARRIER_ARRIVE, OpKind.MBARRIER_ARRIVE_EXPECT_TX, OpKind.CP_ASYNC_MBARRIER_ARRIVE, OpKind.ST_ASYNC,
    OpKind.DSMEM_LOAD, OpKind.DSMEM_STORE,
)  # fmt: skip


class States:
    """States that a replay has passed, by which repeated turns of its loops are left out."""

    def __init__(self, replay: Replay):
        """Begin without states."""
        self.replay = replay
        self._rough: dict[Hashable, list[int]] = {}
        """Places of all roles, by the part of a state that is cheap to compare."""
        self._exact: dict[Hashable, tuple[Hashable, list[int]]] = {}
        """Full state and places, by the same part."""

    def leave_out_turns(self) -> None:
        """Move all roles behind the repetitions of what they have done since an equal state."""
        actors, rough = self.replay.actors, self._rough_state()
        now = [actor.pos for actor in actors]
        before, self._rough[rough] = self._rough.get(rough), now
        if before is None or self._times(before) < LEAST_TURNS:
            return
        exact = self._exact_state()
        known, then = self._exact.get(rough, (None, now))
        self._exact[rough] = exact, now
        if known == exact and (times := self._times(then)):
            for actor, begin in zip(actors, then, strict=True):
                actor.pos += times * (actor.pos - begin)
            self._rough.clear()
            self._exact.clear()

    def _times(self, before: list[int]) -> int:
        """How often all roles repeat the ops that they have carried out since they were at ``before``.

        A role that waits has arrived already, so its op must be the same behind the last repetition.
        """
        times = []
        for actor, then in zip(self.replay.actors, before, strict=True):
            if length := actor.pos - then:
                codes = actor.program.codes
                same = codes[actor.pos :] == codes[then : len(codes) - length]
                agreed = len(same) if same.all() else int(same.argmin())
                times.append((agreed - (actor.waits_for is not None)) // length)
        return max(0, min(times, default=0))

    def _rough_state(self) -> Hashable:
        """What is cheap to compare: next ops, and what barriers miss."""
        replay = self.replay
        return (
            *(actor.codes[actor.pos] if actor.pos < len(actor.codes) else -1 for actor in replay.actors),
            *((phases.done & 1, phases.pending) for of_cta in replay.phases for phases in of_cta),
        )

    def _exact_state(self) -> Hashable:
        """The full state. Numbers of a column are replaced by their ranks, which keeps all comparisons."""
        replay = self.replay
        rows: list[NDArray[np.int64]] = []
        flags: list[Hashable] = []
        for actor in replay.actors:
            rows.extend(actor.clocks)
            ends = np.zeros((MOST_GROUPS + 2, actor.clocks.shape[1]), dtype=np.int64)
            ends[0, actor.column + OPS] = actor.tick
            for groups in (actor.copies, actor.bulk, actor.wgmma):
                ends[0, groups.column], ends[1, groups.column] = groups.open, groups.open - 1
                ends[2 : 2 + len(groups.ends), groups.column] = groups.ends[::-1]
                flags.append((groups.has_ops, len(groups.ends)))
            rows.extend(ends)
            flags.append((actor.is_fenced, actor.waits_for is None, replay.cluster.done - actor.arrived_at))
        for phases in chain.from_iterable(replay.phases):
            for clocks in (phases.now, phases.last, phases.before):
                rows.extend(clocks)
            done = np.zeros((3, len(rows[0])), dtype=np.int64)
            done[:, phases.column] = phases.done - 1, phases.done, phases.done + 1
            rows.extend(done)
            flags.append((min(phases.done, 3), phases.pending, phases.announced, phases.delivered))
            flags.append((phases.has_bytes, phases.had_bytes, phases.had_bytes_before))
        for meeting in (*chain.from_iterable(replay.meetings), replay.cluster):
            rows.extend((*meeting.now, *meeting.last))
            flags.append(meeting.arrived)
        columns, ends_of = [], []
        for access in self._accesses(flags):
            columns.append(access.column)
            ends_of.append(access.end)
            flags.append((access.actor.idx, access.step.kind, access.num_bytes, access.is_generic, access.column))
        numbers = np.zeros((len(rows[0]), len(rows) + len(columns)), dtype=np.int32)
        numbers[:, : len(rows)] = np.array(rows, dtype=np.int32).T
        numbers[columns, np.arange(len(rows), numbers.shape[1])] = ends_of
        return tuple(flags), _ranks(numbers).tobytes()

    def _accesses(self, flags: list[Hashable]) -> Iterator[Access]:
        replay = self.replay
        for stage in chain.from_iterable(replay.stages):
            flags.append((len(stage.writes), len(stage.reads), stage.was_written))
            yield from stage.writes
            yield from stage.reads
        for phases in chain.from_iterable(replay.phases):
            flags.append(tuple(phases.waits))
            yield from phases.waits.values()
        for inits in replay.inits:
            flags.append(len(inits))
            yield from inits
        flags.append(tuple(replay.remote))
        yield from replay.remote.values()


def _ranks(values: NDArray[np.int32]) -> NDArray[np.int16]:
    """Rank of each number among the distinct numbers of its row.

    >>> _ranks(np.array([[5, 9, 5], [1, 1, 0]], dtype=np.int32)).tolist()
    [[0, 1, 0], [1, 1, 0]]
    """
    order = np.argsort(values, axis=1)
    rows = np.arange(len(values))[:, None]
    ranked = values[rows, order]
    found = np.zeros(values.shape, dtype=np.int16)
    found[rows, order[:, 1:]] = (ranked[:, 1:] != ranked[:, :-1]).cumsum(axis=1)
    return found
