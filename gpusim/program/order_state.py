"""State of the order check: vector clocks of roles, phases of barriers, and who has accessed each stage.

A clock has a column for everything that makes progress. For each role these are its ops, and its groups of ``cp.async``,
bulk copies and wgmma. For each mbarrier they are its phases. An access ends at a number of one column. Who knows that number
comes after the access.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim.program.order_steps import Step, StepList
from gpusim.workload.launch import Buffer, WarpRole

Clocks = NDArray[np.int64]
MET, KNOWN, FENCED = 0, 1, 2
"""Rows of a role's clocks, int64[3, num_columns].

* ``KNOWN``: what each warp of the role knows to have ended.
* ``MET``: the part of it that is known of the role's other warps, too.
* ``FENCED``: what lies before a ``fence.proxy.async`` that is known.
"""
OPS, COPIES, BULK, WGMMA = range(4)
"""Columns of a role: its ops, and its groups of asynchronous ops."""
COLUMNS_OF_ROLE = 4
MOST_GROUPS = 256
"""Latest groups of a kind whose ends are kept."""
MOST_PARTS = 4
"""Latest accesses of one column to a stage that are kept separately."""


@dataclass(slots=True)
class Groups:
    """Groups of one kind of asynchronous op of a role."""

    column: int
    is_collective: bool
    """Whether a wait of one warp is a wait of all: of wgmma in a role of one warpgroup, to which its groups belong."""
    open: int = 1
    """Number of the open group."""
    has_ops: bool = False
    """Whether the open group has ops."""
    ends: list[int] = field(default_factory=list)
    """Number of the last op of each committed group, the latest last."""

    def issue(self) -> int:
        """Number at which an op that is issued now ends."""
        self.has_ops = True
        return self.open

    def close(self) -> int:
        """End the open group, so that later ops have another number; returns its number."""
        self.open, self.has_ops = self.open + 1, False
        return self.open - 1

    def commit(self) -> None:
        """Close the open group as one that waits count."""
        self.ends = [*self.ends[1 - MOST_GROUPS :], self.close()]

    def wait(self, clocks: Clocks, num_pending: int) -> None:
        """Put into ``clocks`` that all but the latest groups have ended."""
        if len(self.ends) > num_pending:
            rows = slice(MET if self.is_collective else KNOWN, KNOWN + 1)
            clocks[rows, self.column] = np.maximum(clocks[rows, self.column], self.ends[-1 - num_pending])

    def in_flight(self, clocks: Clocks) -> list[int]:
        """Numbers of the committed groups that may not have ended for their own role, the latest first."""
        found = []
        for end in reversed(self.ends):
            if clocks[KNOWN, self.column] >= end:
                break
            found.append(end)
        return found

    def is_in_flight(self, clocks: Clocks) -> bool:
        """Whether an op may not have ended for its own role."""
        return self.has_ops or bool(self.ends and clocks[KNOWN, self.column] < self.ends[-1])


class Actor:
    """A role of one CTA in the replay."""

    def __init__(self, cta: int, idx: int, role: WarpRole, program: StepList, num_columns: int):
        """Begin before the first op. ``idx``: number of the role among those of all CTAs."""
        self.cta, self.idx, self.name, self.num_threads = cta, idx, role.name, role.num_threads
        self.is_wide = role.num_warps > 1
        self.program = program
        self.codes: list[int] = program.codes.tolist()
        self.pos = 0
        self.tick = 0
        """Ops so far."""
        self.released_at = 0
        """Ops at the latest arrival."""
        self.clocks: Clocks = np.zeros((3, num_columns), dtype=np.int64)
        first = self.column = idx * COLUMNS_OF_ROLE
        self.copies, self.bulk = Groups(first + COPIES, False), Groups(first + BULK, False)
        self.wgmma = Groups(first + WGMMA, role.num_warps <= 4)
        self.is_fenced = False
        """Whether a ``wgmma.fence`` has come since accumulators were used otherwise."""
        self.waits_for: Phases | Meeting | None = None
        """Barrier at which the role waits."""
        self.arrived_at = -1
        """Generation of the cluster's barrier that the role has arrived for."""

    @property
    def step(self) -> Step | None:
        """Next step; None at the end."""
        return self.program.steps[self.codes[self.pos]] if self.pos < len(self.codes) else None

    @property
    def place(self) -> int:
        """Number of the op that comes next, among all ops of the role."""
        return int(self.program.places[self.pos]) if self.pos < len(self.codes) else len(self.codes)

    def released(self) -> Clocks:
        """Clocks that an arrival of the role hands over."""
        self.released_at = self.tick
        return self.clocks.take((KNOWN, KNOWN, FENCED), axis=0)

    def acquire(self, clocks: Clocks) -> None:
        """Take over clocks that were handed over."""
        np.maximum(self.clocks, clocks, out=self.clocks)

    def knows(self, access: Access, *, across: bool = True) -> bool:
        """Whether an access has ended before what the role does next.

        ``across``: whether all of its warps have to know.
        """
        is_own = access.actor is self
        row = MET if across and self.is_wide and is_own else KNOWN
        return bool(self.clocks[row, access.column] >= access.end)

    def is_after(self, clocks: Clocks) -> bool:
        """Whether everything in ``clocks`` is known."""
        return bool((clocks[KNOWN] <= self.clocks[KNOWN]).all())


class Access(NamedTuple):
    """One access to a stage, or one op on a barrier, and the number of a column at which it ends."""

    actor: Actor
    step: Step
    place: int
    column: int
    end: int
    is_generic: bool
    """Whether it belongs to the generic proxy, not to the async proxy."""
    num_bytes: int = 0
    bytes_behind: int = 0
    """Bytes that later writes have written to the stage."""


class Stage:
    """Who has written and read a stage, until later writes have filled all of it."""

    def __init__(self, buffer: Buffer, stage: int, rank: int):
        """Begin without accesses."""
        self.buffer, self.name, self.rank = buffer.name, f"{buffer.name}[{stage}]", rank
        self.num_bytes, self.is_overlay = buffer.stage_bytes, buffer.is_overlay
        self.writes: list[Access] = []
        self.reads: list[Access] = []
        self.early_reads: list[Access] = []
        """Reads before the first write."""
        self.was_written = False
        self.unread: Access | None = None
        """Writes since the latest read, as one."""

    def add(self, accesses: list[Access], access: Access) -> None:
        """Append an access, or put it in the place of an earlier one of its role that is known when it is. Bytes are added.

        An op of a role is known with the next one if no arrival lies between. Of many accesses the oldest two are made one.
        """
        like = [idx for idx, old in enumerate(accesses) if old.column == access.column and old.step.kind is access.step.kind]
        if like:
            latest = accesses[like[-1]]
            first = access.actor.released_at if access.column == access.actor.column + OPS else access.end - 1
            if latest.end > first:
                accesses.pop(like[-1])
                access = self._joined(latest, access)
            elif len(like) == MOST_PARTS:
                accesses[like[1]] = self._joined(accesses[like[0]], accesses[like[1]])
                accesses.pop(like[0])
        accesses.append(access)

    def _joined(self, old: Access, access: Access) -> Access:
        is_stated = old.num_bytes and access.num_bytes
        return access._replace(num_bytes=min(self.num_bytes, old.num_bytes + access.num_bytes) if is_stated else 0)

    def size(self, access: Access) -> int:
        """Bytes of the stage that an access touches, at most."""
        return access.num_bytes or self.num_bytes

    def fit(self, some: Access, other: Access) -> bool:
        """Whether two accesses may touch different bytes."""
        return self.size(some) + self.size(other) <= self.num_bytes

    def write(self, access: Access) -> None:
        """Add a write. Accesses are forgotten when the writes behind them fill the stage."""
        size = self.size(access)
        for accesses in (self.writes, self.reads):
            accesses[:] = [
                old._replace(bytes_behind=old.bytes_behind + size)
                for old in accesses
                if old.bytes_behind + size < self.num_bytes
            ]
        self.add(self.writes, access)
        self.was_written, self.unread = True, self._joined(self.unread, access) if self.unread else access


class Phases:
    """An mbarrier: its open phase, and the clocks that the phases before it handed over."""

    def __init__(self, ring: str, stage: int, num_arrivals: int, num_columns: int, column: int):
        """Begin in phase 0. ``column``: its own in the clocks."""
        self.ring, self.name, self.num_arrivals, self.column = ring, f"{ring}[{stage}]", num_arrivals, column
        self.done = 0
        """Phases that have completed."""
        self.pending, self.announced, self.delivered, self.last_announced = num_arrivals, 0, 0, 0
        self.announcers, self.deliverers, self.last_announcers = 0, 0, 0
        """Roles that have announced or delivered bytes of the open phase, and announced those of the latest, as bits."""
        self.now: Clocks = np.zeros((3, num_columns), dtype=np.int64)
        self.last, self.before = np.zeros_like(self.now), np.zeros_like(self.now)
        """Clocks of the latest phase, and of the phase before it."""
        self.has_bytes, self.had_bytes, self.had_bytes_before = False, False, False
        self.waits: dict[int, Access] = {}
        """Latest wait of each role that has passed since the latest phase."""

    def is_known(self, actor: Actor, num_phases: int) -> bool:
        """Whether a role knows that the first phases have completed, by a wait or by all that completes them."""
        if num_phases <= 0 or actor.clocks[KNOWN, self.column] >= num_phases:
            return True
        clocks, has_bytes = self.last, self.had_bytes
        if num_phases == self.done - 1:
            clocks, has_bytes = self.before, self.had_bytes_before
        return not has_bytes and actor.is_after(clocks)

    @property
    def is_over(self) -> bool:
        """Whether the open phase has all arrivals and bytes."""
        return not self.pending and self.announced == self.delivered

    def complete(self) -> list[Access]:
        """Begin the next phase. Returns waits that may miss the phase before, because nothing orders them before its end."""
        lapped = [wait for wait in self.waits.values() if self.now[KNOWN, wait.column] < wait.end]
        self.waits = {}
        self.before, self.had_bytes_before = self.last, self.had_bytes
        self.last, self.had_bytes = self.now, self.has_bytes
        self.now, self.has_bytes = np.zeros_like(self.now), False
        self.done += 1
        self.last_announced, self.last_announcers = self.announced, self.announcers
        self.announcers = self.deliverers = 0
        self.pending, self.announced, self.delivered = self.num_arrivals, 0, 0
        return lapped

    def pass_to(self, actor: Actor, wait: Access) -> None:
        """Let a role go on behind the latest phase."""
        actor.acquire(self.last)
        actor.clocks[:FENCED, self.column] = np.maximum(actor.clocks[:FENCED, self.column], self.done)
        self.waits[actor.idx] = wait


class Meeting:
    """A barrier of threads: a named barrier, ``__syncthreads`` or the cluster's."""

    def __init__(self, name: str, num_threads: int, num_columns: int):
        """Begin in generation 0."""
        self.name, self.num_threads = name, num_threads
        self.done, self.arrived = 0, 0
        """Generations that have completed, and threads that have arrived for the next."""
        self.now: Clocks = np.zeros((3, num_columns), dtype=np.int64)
        self.last: Clocks = np.zeros_like(self.now)

    def arrive(self, actor: Actor) -> bool:
        """Arrive with all threads of a role; returns whether a generation has completed."""
        np.maximum(self.now, actor.released(), out=self.now)
        self.arrived += actor.num_threads
        if self.arrived < self.num_threads:
            return False
        self.last, self.now = self.now, np.zeros_like(self.now)
        self.done, self.arrived = self.done + 1, 0
        return True
