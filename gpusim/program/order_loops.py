"""Turns of loops that the order check leaves out, because the replay has passed an equal state before.

In: the state of a replay. Out: the places of its roles, moved on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpusim.program.order_state import MOST_GROUPS, OPS, Access, Actor, Meeting, Phases, Stage

LEAST_TURNS = 3
"""Repetitions that are worth leaving out."""


class ReplayState(Protocol):
    """What the next ops of a replay depend on."""

    actors: list[Actor]
    phases: list[list[Phases]]
    stages: list[list[Stage]]
    meetings: list[list[Meeting]]
    cluster: Meeting
    inits: list[list[Access]]
    remote: dict[tuple[int, int], Access]


class States:
    """States that a replay has passed, by which repeated turns of its loops are left out."""

    def __init__(self) -> None:
        """Begin without states."""
        self._rough: dict[Hashable, list[int]] = {}
        """Places of all roles, by the part of a state that is cheap to compare."""
        self._exact: dict[Hashable, tuple[Hashable, list[int]]] = {}
        """Full state and places, by the same part."""

    def leave_out_turns(self, replay: ReplayState) -> None:
        """Move all roles behind the repetitions of what they have done since an equal state."""
        actors, rough = replay.actors, _rough_state(replay)
        now = [actor.pos for actor in actors]
        before, self._rough[rough] = self._rough.get(rough), now
        if before is None or _times(replay, before) < LEAST_TURNS:
            return
        exact = _exact_state(replay)
        known, then = self._exact.get(rough, (None, now))
        self._exact[rough] = exact, now
        if known == exact and (times := _times(replay, then)):
            for actor, begin in zip(actors, then, strict=True):
                actor.pos += times * (actor.pos - begin)
            self._rough.clear()
            self._exact.clear()


def _times(replay: ReplayState, before: list[int]) -> int:
    """How often all roles repeat the ops that they have carried out since they were at ``before``.

    A role that waits has arrived already, so its op must be the same behind the last repetition.
    """
    times = []
    for actor, then in zip(replay.actors, before, strict=True):
        if length := actor.pos - then:
            codes = actor.program.codes
            same = codes[actor.pos :] == codes[then : len(codes) - length]
            agreed = len(same) if same.all() else int(same.argmin())
            times.append((agreed - (actor.waits_for is not None)) // length)
    return max(0, min(times, default=0))


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
    for access in _accesses(replay, flags):
        columns.append(access.column)
        ends_of.append(access.end)
        flags.append((access.actor.idx, access.step.kind, access.num_bytes, access.is_generic, access.column))
    numbers = np.zeros((len(rows[0]), len(rows) + len(columns)), dtype=np.int32)
    numbers[:, : len(rows)] = np.array(rows, dtype=np.int32).T
    numbers[columns, np.arange(len(rows), numbers.shape[1])] = ends_of
    return tuple(flags), _ranks(numbers).tobytes()


def _accesses(replay: ReplayState, flags: list[Hashable]) -> Iterator[Access]:
    for stage in chain.from_iterable(replay.stages):
        flags.append((len(stage.writes), len(stage.reads), len(stage.early_reads), stage.was_written))
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
