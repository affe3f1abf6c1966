"""Replay of the order check: all roles of a CTA or cluster, op by op, with what each of them knows.

In: the steps of each role. Out: findings. :mod:`gpusim.program.order` says why one replay is enough.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain
from typing import Any

import numpy as np

from gpusim.program.order_findings import SENTENCES, after_read, after_write, is_read, other, where, where_was
from gpusim.program.order_loops import States
from gpusim.program.order_state import COLUMNS_OF_ROLE, FENCED, KNOWN, OPS, Access, Actor, Groups, Meeting, Phases, Stage
from gpusim.program.order_steps import SHARED_READS, SHARED_WRITES, STORES, Step, StepList
from gpusim.program.programs import Programs
from gpusim.program.records import OpKind
from gpusim.workload.finding import Finding
from gpusim.workload.launch import Launch

MOST_FINDINGS = 20
"""Findings of one launch, at most. The first wrong op of a ring brings many others."""
WAITS = (OpKind.MBARRIER_WAIT, OpKind.BAR_SYNC, OpKind.SYNCTHREADS, OpKind.CLUSTER_WAIT)
READS = (*SHARED_READS, OpKind.TMA_STORE)
GROUPS = (
    OpKind.CP_ASYNC_COMMIT_GROUP, OpKind.CP_ASYNC_WAIT_GROUP, OpKind.BULK_COMMIT_GROUP, OpKind.BULK_WAIT_GROUP,
    OpKind.WGMMA_COMMIT_GROUP, OpKind.WGMMA_WAIT_GROUP,
)  # fmt: skip
ARRIVALS = (
    OpKind.MBARRIER_ARRIVE, OpKind.MBARRIER_ARRIVE_EXPECT_TX, OpKind.CP_ASYNC_MBARRIER_ARRIVE, OpKind.ST_ASYNC,
)  # fmt: skip

OF_BYTES = OpKind.MBARRIER_ARRIVE_EXPECT_TX, OpKind.TMA_LOAD, OpKind.ST_ASYNC


class Replay:
    """All roles of a CTA, or of the CTAs of a cluster, carried out once."""

    def __init__(self, launch: Launch, programs: Programs, lists: list[list[StepList]], first_cta: int):
        """Begin before the first op. ``lists``: the steps of each role, by cluster rank."""
        size, num_roles, num_barriers = len(lists), len(launch.roles), len(programs.barriers)
        first_column = size * num_roles * COLUMNS_OF_ROLE
        num_columns, ranks = first_column + size * num_barriers, range(size)
        self.kernel, self.first_cta, self.found = launch.kernel, first_cta, dict[tuple[Hashable, ...], Finding]()
        self.actors = [
            Actor(first_cta + rank, rank * num_roles + idx, role, lists[rank][idx], num_columns)
            for rank in ranks for idx, role in enumerate(launch.roles)
        ]  # fmt: skip
        arrivals = {ring.name: ring.num_arrivals for ring in launch.mbarriers}
        buffers = {buffer.name: buffer for buffer in launch.buffers}
        threads = {item.name: item.num_threads for item in launch.named_barriers}
        self.phases = [
            [
                Phases(ring, stage, arrivals[ring], num_columns, first_column + rank * num_barriers + idx)
                for idx, (ring, stage) in enumerate(programs.barriers)
            ]
            for rank in ranks
        ]
        self.stages = [[Stage(buffers[name], stage, rank) for name, stage in programs.stages] for rank in ranks]
        self.meetings = [
            [
                *(Meeting(f"barrier {name!r}", threads[name], num_columns) for name in programs.named_barriers),
                Meeting("__syncthreads", launch.num_threads, num_columns),
            ]
            for _ in ranks
        ]
        self.cluster = Meeting("the cluster barrier", launch.num_threads * size, num_columns)
        self.inits: list[list[Access]] = [[] for _ in ranks]
        every = [step for of_rank in lists for each in of_rank for step in each.steps]
        self.has_inits = any(step.kind is OpKind.MBARRIER_INIT for step in every)
        self.is_overlaid = any(buffer.is_overlay for buffer in launch.buffers)
        self.operands = {programs.stages[stage][0] for step in every for stage in step.reads}
        self.read_buffers = self.operands | {
            programs.stages[step.stage][0] for step in every if step.kind in READS and step.stage >= 0
        }
        self.remote: dict[tuple[int, int], Access] = {}
        """Latest access to another CTA, by that CTA's rank and the column at which the access ends."""

    @property
    def num_ops(self) -> int:
        """Ops that have been carried out."""
        return sum(actor.tick for actor in self.actors)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What has been found. Phases that may end too early come last, since another finding often names the cause."""
        return tuple(finding for _, finding in sorted(self.found.items(), key=lambda item: item[0][0] == "lap"))

    def run(self, most_ops: int | None = None) -> bool:
        """Carry out all roles, each up to its next wait in turn, until all have ended or none can go on.

        Returns whether ``most_ops`` ops have sufficed.
        """
        states = States()
        while sum(self._advance(actor) for actor in self.actors):  # all of them, whoever gets on
            if len(self.found) >= MOST_FINDINGS:
                return True
            if most_ops is not None and self.num_ops >= most_ops:
                return False
            states.leave_out_turns(self)
        self._check_end()
        return True

    def _advance(self, actor: Actor) -> bool:
        """Carry out ops of a role up to and with its next wait. Returns whether there was one."""
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
            place = GROUPS.index(kind)
            groups = (actor.copies, actor.bulk, actor.wgmma)[place // 2]
            if place % 2:
                groups.wait(actor.clocks, step.number)
            else:
                groups.commit()
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
        elif kind in (*WAITS, OpKind.BAR_ARRIVE, OpKind.CLUSTER_ARRIVE):
            self._meet(actor, step)

    def _rank(self, actor: Actor) -> int:
        return actor.cta - self.first_cta

    @staticmethod
    def _access(actor: Actor, step: Step, groups: Groups | None = None, *, is_generic: bool = True) -> Access:
        """An access of the next op. It ends with the op itself, or with its group."""
        column, end = (actor.column + OPS, actor.tick) if groups is None else (groups.column, groups.issue())
        return Access(actor, step, actor.place, column, end, is_generic, step.num_bytes)

    def _find(self, name: str, actor: Actor | None, *key: Hashable, **words: Any) -> None:
        """Keep the first finding of a sentence, a role and a key. ``words``: what the sentence names."""
        kind, sentence = SENTENCES[name]
        at = "" if actor is None else where(actor)
        message = f"{self.kernel}: {sentence.format(at=at, **words)}"
        self.found.setdefault((name, actor and actor.name, *key), Finding(kind=kind, message=message))

    # ---------------------------------------------------------------------------------- stages
    def _read(self, actor: Actor, step: Step) -> None:
        if step.kind is OpKind.WGMMA:
            if not actor.is_fenced:
                self._find("first_wgmma", actor)
                actor.is_fenced = True
            access = self._access(actor, step, actor.wgmma, is_generic=False)
        elif step.kind is OpKind.TMA_STORE:
            access = self._access(actor, step, actor.bulk, is_generic=False)
        else:
            access = self._access(actor, step)
        for number in step.reads or (step.stage,):
            if number >= 0:
                stage = self.stages[self._rank(actor)][number]
                self._check_read(actor, stage, access)
                stage.add(stage.reads if stage.was_written else stage.early_reads, access)
                stage.unread = None

    def _check_read(self, actor: Actor, stage: Stage, access: Access) -> None:
        for write in stage.writes:
            is_known = actor.knows(write)
            if is_known and (access.is_generic or not write.is_generic or actor.clocks[FENCED, write.column] >= write.end):
                continue
            if not is_known and stage.fit(access, write):
                known_bytes = sum(stage.size(each) for each in stage.writes if actor.knows(each))
                if stage.size(access) <= known_bytes:
                    continue
            key, words = (stage.buffer, write.actor.name), {"stage": stage.name, "other": other(write, actor)}
            if is_known:
                self._find("proxy", actor, *key, **words)
            else:
                self._find("read", actor, *key, missing=after_write(write, actor, self._name_of(write)), **words)

    def _write(self, actor: Actor, step: Step) -> None:
        rank, kind = self._rank(actor), step.kind
        access = self._access(actor, step, actor.copies if kind is OpKind.CP_ASYNC else None)
        for to in step.ranks or (rank,):
            stage, phases = self.stages[to][step.stage], self.phases[to][step.barrier] if step.barrier >= 0 else None
            if phases is not None:  # TMA, whose bytes complete a phase
                self._check_init(actor, to, phases)
                access = access._replace(column=phases.column, end=phases.done + 1, is_generic=False)
                if to != rank:
                    self.remote[to, phases.column] = access
            self._check_write(actor, stage, access)
            stage.write(access)
            for read in stage.early_reads:
                missing = after_write(access, read.actor, self._name_of(access))
                self._find("too_early", None, stage.buffer, read.actor.name, actor.name, reader=where_was(read),
                           stage=stage.name, other=where_was(access), missing=missing)  # fmt: skip
            stage.early_reads = []
            if phases is not None:
                self._deliver(actor, phases, step.num_bytes)
        if kind in SHARED_WRITES and stage.buffer not in self.operands:
            self._use_accumulators(actor)

    def _check_write(self, actor: Actor, stage: Stage, access: Access) -> None:
        late = [read for read in stage.reads if not (actor.knows(read) or stage.fit(read, access))]
        if not late and stage.buffer in self.read_buffers:
            late = [write for write in stage.writes if not actor.knows(write, across=False)]
            if sum(write.num_bytes for write in late) + access.num_bytes <= stage.num_bytes:
                late = []
                if stage.unread and stage.unread.num_bytes + access.num_bytes > stage.num_bytes:
                    self._find("overwritten", actor, stage.buffer, stage=stage.name, other=other(stage.unread, actor))
                    stage.unread = None
        for old in late:
            self._race(actor, stage, old, "it")
        if self.is_overlaid:
            for shared in self.stages[stage.rank]:
                if shared.is_overlay != stage.is_overlay:
                    for old in (*shared.reads, *shared.writes):
                        if not actor.knows(old):
                            self._race(actor, stage, old, f"the memory of {shared.name}")

    def _race(self, actor: Actor, stage: Stage, old: Access, what: str) -> None:
        """A write that nothing puts behind an older access of the same memory."""
        missing = after_read(old, actor) if is_read(old) else after_write(old, actor, self._name_of(old))
        self._find("write", actor, stage.buffer, old.actor.name, old.step.kind, stage=stage.name, other=other(old, actor),
                   does="read" if is_read(old) else "write", what=what, missing=missing)  # fmt: skip

    def _use_accumulators(self, actor: Actor) -> None:
        """A store of registers, which are accumulators in a role that multiplies."""
        if actor.wgmma.is_in_flight(actor.clocks):
            self._find("accumulators", actor)
        actor.is_fenced = False

    def _name_of(self, write: Access) -> str:
        """Name of the mbarrier on which a write completes; empty for other writes."""
        return next((item.name for item in chain.from_iterable(self.phases) if item.column == write.column), "")

    # ---------------------------------------------------------------------------------- mbarriers
    def _check_init(self, actor: Actor, rank: int, phases: Phases, *, across: bool = False) -> None:
        if self.has_inits and not any(actor.knows(init, across=across) for init in self.inits[rank]):
            self._find("init", actor, barrier=phases.name)

    def _wait(self, actor: Actor, step: Step) -> None:
        phases = self.phases[self._rank(actor)][step.barrier]
        self._check_init(actor, self._rank(actor), phases, across=True)
        if phases.done & 1 != step.number:
            self._pass(actor, phases, step)
        else:
            actor.waits_for = phases

    def _pass(self, actor: Actor, phases: Phases, step: Step) -> None:
        if not phases.is_known(actor, phases.done - 1):
            self._find("early", actor, phases.ring, barrier=phases.name, parity=step.number, before=phases.done - 2)
        phases.pass_to(actor, self._access(actor, step))

    def _arrive(self, actor: Actor, step: Step) -> None:
        kind, rank = step.kind, self._rank(actor)
        to = step.ranks[0] if step.ranks else rank
        if to != rank:
            self.remote[to, actor.column] = self._access(actor, step)
        phases = self.phases[to][step.barrier]
        self._check_init(actor, to, phases)
        if kind is OpKind.ST_ASYNC:
            self._deliver(actor, phases, step.num_bytes)
            return
        if not phases.is_known(actor, phases.done):
            self._find("arrive", actor, phases.ring, barrier=phases.name, phase=phases.done, before=phases.done - 1)
        count = {OpKind.MBARRIER_ARRIVE: step.number, OpKind.CP_ASYNC_MBARRIER_ARRIVE: actor.num_threads}.get(kind, 1)
        if count > phases.pending:
            self._find("count", actor, phases.ring, barrier=phases.name, count=count, pending=phases.pending,
                       wanted=phases.num_arrivals)  # fmt: skip
        released = actor.released()
        if kind is OpKind.CP_ASYNC_MBARRIER_ARRIVE:
            released[:FENCED, actor.copies.column] = actor.copies.close()
        np.maximum(phases.now, released, out=phases.now)
        phases.pending = max(0, phases.pending - count)
        if kind is OpKind.MBARRIER_ARRIVE_EXPECT_TX:
            phases.announced += step.number
            phases.announcers |= 1 << actor.idx
        self._complete(phases, actor)

    def _deliver(self, actor: Actor, phases: Phases, num_bytes: int) -> None:
        if not phases.is_known(actor, phases.done) and ("arrive", actor.name, phases.ring) not in self.found:
            name = "surplus" if phases.last_announcers >> actor.idx & 1 else "deliver"
            self._find(name, actor, phases.ring, num=num_bytes, phase=phases.done, barrier=phases.name,
                       before=phases.done - 1, announced=phases.last_announced)  # fmt: skip
        np.maximum(phases.now, actor.released(), out=phases.now)
        phases.delivered += num_bytes
        phases.has_bytes = True
        phases.deliverers |= 1 << actor.idx
        self._complete(phases, actor)

    def _complete(self, phases: Phases, by: Actor) -> None:
        """Complete the open phase if it misses nothing, and let roles go on that wait for it."""
        if not phases.is_over:
            return
        for wait in phases.complete():
            self._find("lap", by, phases.ring, wait.actor.name, waiter=where_was(wait), parity=wait.step.number,
                       barrier=phases.name)  # fmt: skip
        for actor in self.actors:
            if actor.waits_for is phases and (step := actor.step) is not None and phases.done & 1 != step.number:
                self._pass(actor, phases, step)
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
            self._find("meet", actor, meeting.name, barrier=meeting.name)
        if (count := meeting.arrived + actor.num_threads) > meeting.num_threads:
            self._find("threads", actor, meeting.name, barrier=meeting.name, count=count, wanted=meeting.num_threads)
        actor.arrived_at = meeting.done if is_cluster else actor.arrived_at
        if kind in WAITS:
            actor.waits_for = meeting
        if meeting.arrive(actor):
            for waiting in self.actors:
                if waiting.waits_for is meeting:
                    waiting.acquire(meeting.last)
                    waiting.waits_for = None
                    waiting.pos += waiting is not actor  # the caller moves the role on that carries out the op

    # ---------------------------------------------------------------------------------- the end
    def _has_bytes_to_come(self, phases: Phases, stuck: list[Actor]) -> bool:
        """Whether the next bytes of a phase are those of a role that waits for something else."""
        return any(
            self.phases[to][step.barrier] is phases
            for actor in stuck
            if not (phases.announcers | phases.deliverers) >> actor.idx & 1
            for step in (actor.program.steps[code] for code in set(actor.codes[actor.pos :]))
            if step.kind in OF_BYTES
            for to in step.ranks or (self._rank(actor),)
        )

    def _check_end(self) -> None:
        explained = {key[2] for key in self.found if key[0] in ("deliver", "surplus")}
        stuck = [actor for actor in self.actors if actor.step is not None]
        for phases in chain.from_iterable(self.phases):
            if phases.announced == phases.delivered or phases.ring in explained:
                continue
            if not self._has_bytes_to_come(phases, stuck):
                self._find("bytes", None, phases.ring, barrier=phases.name, phase=phases.done, announced=phases.announced,
                           delivered=phases.delivered)  # fmt: skip
        if stuck:
            if not self.found:
                waits = [f"{where(actor)} waits for {getattr(actor.waits_for, 'name', '')}" for actor in stuck[:2]]
                self._find("deadlock", None, waits="; ".join(waits))
            return
        for stage in chain.from_iterable(self.stages):
            for read in stage.early_reads:
                self._find("never_written", None, stage.buffer, read.actor.name, reader=where_was(read), stage=stage.name)
        for actor in self.actors:
            if actor.wgmma.is_in_flight(actor.clocks):
                self._find("accumulators", actor)
            if actor.bulk.is_in_flight(actor.clocks):
                self._find("exit_of_reads", actor)
        for (rank, column), access in self.remote.items():
            of_cta = [actor for actor in self.actors if self._rank(actor) == rank]
            if not any(actor.clocks[KNOWN, column] >= access.end for actor in of_cta):
                words = {"cta": self.first_cta + rank, "other": other(access, of_cta[0])}
                self._find("exit_of_target", None, access.actor.name, **words)
        for stage in chain.from_iterable(self.stages):
            if (write := stage.unread) and stage.buffer in self.read_buffers:
                self._find("unread", None, stage.buffer, stage=stage.name, role=write.actor.name, place=write.place)
