"""Turns of loops that the order check leaves out, because the replay has passed an equal state before.

In: the state of a replay. Out: the places of its roles, moved on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gpusim.program.order_state import OPS, Access, Actor, Meeting, Phases, Stage

LEAST_TURNS = 3
"""Repetitions that are worth leaving out."""
MOST_AGE = 64
"""Looks after which a state that has not come again is given up."""


class ReplayState(Protocol):
    """What the next ops of a replay depend on."""

    actors: list[Actor]
    phases: list[list[Phases]]
    stages: list[list[Stage]]
    meetings: list[list[Meeting]]
    cluster: Meeting
    inits: list[list[Access]]
    remote: dict[tuple[int, int], Access]


class Turn(NamedTuple):
    """A state, and the ops of each role from there to an equal state."""

    state: Hashable
    begins: list[int]
    lengths: list[int]

    def times(self, replay: ReplayState) -> int:
        """How often all roles repeat these ops from where they are.

        A role that waits has arrived already, so its op must be the same behind the last repetition.
        """
        found = []
        for actor, begin, length in zip(replay.actors, self.begins, self.lengths, strict=True):
            if length:
                codes = actor.program.codes
                ahead, turn = codes[actor.pos :], codes[begin : begin + length]
                agreed = _agreed(ahead, turn)
                if agreed == length:
                    agreed += _agreed(ahead[length:], ahead)
                found.append((agreed - (actor.waits_for is not None)) // length)
        return max(0, min(found, default=0))

    def leave_out(self, replay: ReplayState) -> None:
        """Move all roles behind the repetitions."""
        times = self.times(replay)
        for actor, length in zip(replay.actors, self.lengths, strict=True):
            actor.pos += times * length


def _agreed(some: NDArray[np.int64], others: NDArray[np.int64]) -> int:
    """Number of equal entries at the beginning."""
    length = min(len(some), len(others))
    same = some[:length] == others[:length]
    return length if same.all() else int(same.argmin())


class States:
    """States that a replay has passed, by which repeated turns of its loops are left out."""

    def __init__(self) -> None:
        """Begin without states."""
        self._places: dict[Hashable, list[int]] = {}
        """Places of all roles when they were last in a state, by the part of it that is cheap to compare."""
        self._anchor: tuple[Hashable, Hashable, list[int]] | None = None
        """One state of a loop: its cheap part, all of it, and the places of the roles then."""
        self._age = 0
        """Looks since the anchor was last seen."""
        self._turns: dict[Hashable, list[Turn]] = {}
        """Turns of loops that ended in an equal state, by the cheap part of the state."""

    def leave_out_turns(self, replay: ReplayState) -> None:
        """Move all roles behind the repetitions of what they have done since an equal state."""
        rough, now = _rough_state(replay), [actor.pos for actor in replay.actors]
        before, self._places[rough] = self._places.get(rough, now), now
        self._age += 1
        turns = [turn for turn in self._turns.get(rough, ()) if turn.times(replay) >= LEAST_TURNS]
        is_anchor = self._anchor is not None and self._anchor[0] == rough
        is_free = self._anchor is None or self._age > MOST_AGE
        since = Turn(None, before, [place - then for place, then in zip(now, before, strict=True)])
        if not turns and not ((is_anchor or is_free) and since.times(replay) >= LEAST_TURNS):
            self._anchor = None if is_anchor else self._anchor
            return
        exact = _exact_state(replay)
        if is_anchor and self._anchor is not None and self._anchor[1] == exact:
            begins = self._anchor[2]
            turns = [Turn(exact, begins, [place - then for place, then in zip(now, begins, strict=True)])]
            self._turns.setdefault(rough, []).extend(turns)
        for turn in turns:
            if turn.state == exact:
                turn.leave_out(replay)
                self._places.clear()
                self._anchor = None
                return
        if is_anchor or is_free:
            self._anchor, self._age = (rough, exact, now), 0


def _rough_state(replay: ReplayState) -> Hashable:
    """What is cheap to compare: next ops, and what barriers miss."""
    return (
        *(actor.codes[actor.pos] if actor.pos < len(actor.codes) else -1 for actor in replay.actors),
        *((phases.done & 1, phases.pending) for of_cta in replay.phases for phases in of_cta),
    )


def _exact_state(replay: ReplayState) -> Hashable:
    """The full state. Numbers of a column are replaced by their ranks, which keeps all comparisons."""
    rows: list[NDArray[np.int64]] = []
    flags: list[Hashable] = []
    for actor in replay.actors:
        rows.extend(actor.clocks)
        groups_of = actor.copies, actor.bulk, actor.wgmma
        in_flight = [groups.in_flight(actor.clocks) for groups in groups_of]
        ends = np.zeros((2 + max(map(len, in_flight)), actor.clocks.shape[1]), dtype=np.int64)
        ends[:2, actor.column + OPS] = actor.tick, actor.released_at
        for groups, latest in zip(groups_of, in_flight, strict=True):
            ends[0, groups.column], ends[1, groups.column] = groups.open, groups.open - 1
            ends[2 : 2 + len(latest), groups.column] = latest
            flags.append((groups.has_ops, len(latest)))
        rows.extend(ends)
        flags.append((actor.is_fenced, actor.waits_for is None, replay.cluster.done - actor.arrived_at))
    for phases in chain.from_iterable(replay.phases):
        for clocks in (phases.now, phases.last, phases.before):
            rows.extend(clocks)
        done = np.zeros((3, len(rows[0])), dtype=np.int64)
        done[:, phases.column] = phases.done - 1, phases.done, phases.done + 1
        rows.extend(done)
        flags.append((min(phases.done, 3), phases.pending, phases.announced, phases.delivered))
        flags.append((phases.announcers, phases.deliverers, phases.last_announcers))
        flags.append((phases.has_bytes, phases.had_bytes, phases.had_bytes_before))
    for meeting in (*chain.from_iterable(replay.meetings), replay.cluster):
        rows.extend((*meeting.now, *meeting.last))
        flags.append(meeting.arrived)
    columns, ends_of = [], []
    for access in _accesses(replay, flags):
        columns.append(access.column)
        ends_of.append(access.end)
        flags.append((access.actor.idx, access.step.kind, access.is_generic, *access[-2:], access.column))
    numbers = np.zeros((len(rows[0]), len(rows) + len(columns)), dtype=np.int32)
    numbers[:, : len(rows)] = np.array(rows, dtype=np.int32).T
    numbers[columns, np.arange(len(rows), numbers.shape[1])] = ends_of
    return tuple(flags), _ranks(numbers).tobytes()


def _accesses(replay: ReplayState, flags: list[Hashable]) -> Iterator[Access]:
    for stage in chain.from_iterable(replay.stages):
        flags.append((len(stage.writes), len(stage.reads), len(stage.early_reads), stage.was_written))
        flags.append(stage.unread and stage.unread.num_bytes)
        yield from chain(stage.writes, stage.reads, stage.early_reads)
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
