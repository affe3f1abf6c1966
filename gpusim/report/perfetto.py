"""Perfetto traces of a simulated timeline, for ui.perfetto.dev.

The GPU is the process, each recorded SM a track, each CTA a track below it. Overlapping copies get separate tracks, since
slices of a track must nest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpusim.report.output import write_whole
from gpusim.simulate.result import Result
from gpusim.simulate.timeline import CopySpan, PhaseFlip, RoleTimeline, Timeline, WarpState

SEQUENCE_ID = 1
"""Trusted packet sequence: all packets come from one writer."""

LATEST_WAKE_CYCLES = 100.0
"""Most cycles from a phase flip to the end of a wait that it ended. Other events ended later ones."""

Ending = tuple[int, float]
"""(index of a role in the timeline, cycle at which its wait ends): the slice that an arrow points at."""


@dataclass(slots=True)
class Slice:
    """A slice of a track, in cycles."""

    start_cycle: float
    end_cycle: float
    name: str
    category: str = "range"
    notes: dict[str, Any] = field(default_factory=dict)
    flows_out: tuple[int, ...] = ()
    flows_in: tuple[int, ...] = ()


def write_pftrace(result: Result, path: Path) -> None:
    """Write ``result.timeline`` to ``path`` in one step.

    Raises:
        OSError: the file cannot be written.
    """
    write_whole(path, trace_bytes(result))


def trace_bytes(result: Result) -> bytes:
    """Trace of ``result.timeline`` as serialized protobuf."""
    writer = _Writer(mhz=result.sm_clock_mhz)
    timeline = result.timeline
    gpu = writer.process(f"{result.gpu}: {result.kernel}")
    flows = _Flows(timeline)
    sms = {item.sm_idx for item in timeline.roles} | {item.sm_idx for item in timeline.copies}
    for sm_idx in sorted(sms | {item.sm_idx for item in timeline.mmas}):
        _write_sm(writer, timeline, flows, gpu, sm_idx)
    return writer.serialized()


def _write_sm(writer: _Writer, timeline: Timeline, flows: _Flows, gpu: int, sm_idx: int) -> None:
    sm = writer.track(gpu, f"SM {sm_idx}")
    mmas = [
        Slice(item.start_cycle, item.end_cycle, f"mma x{item.num_issues}", notes={"role": item.role, "cta": item.cta_idx})
        for item in timeline.mmas
        if item.sm_idx == sm_idx
    ]
    if mmas:
        writer.slices(sm, "tensor core", mmas)
    copies = [item for item in timeline.copies if item.sm_idx == sm_idx]
    if copies:
        steps = [(item.start_cycle, item.num_bytes) for item in copies]
        steps += [(item.end_cycle, -item.num_bytes) for item in copies]
        writer.counter(sm, "bytes in flight", "bytes", steps)
    ctas = {item.cta_idx for item in timeline.roles if item.sm_idx == sm_idx}
    for cta_idx in sorted(ctas | {item.cta_idx for item in copies}):
        cta = writer.track(sm, f"CTA {cta_idx}")
        _write_copies(writer, flows, cta, [item for item in copies if item.cta_idx == cta_idx])
        flips = [item for item in timeline.flips if (item.sm_idx, item.cta_idx) == (sm_idx, cta_idx)]
        for barrier in sorted({item.barrier for item in flips}):
            marks = [
                Slice(
                    item.cycle, item.cycle, f"mark {barrier}[{item.stage}] phase flips", "mark",
                    flows_out=flows.of_flip.get(id(item), ()),
                )
                for item in flips
                if item.barrier == barrier
            ]
            writer.marks(cta, f"mbarrier {barrier}", marks)
        roles = [(idx, item) for idx, item in enumerate(timeline.roles) if (item.sm_idx, item.cta_idx) == (sm_idx, cta_idx)]
        for idx, role in roles:
            _write_role(writer, flows, cta, idx, role, timeline)
        life_ends = max((role.states[-1][2] for _, role in roles if role.states), default=None)
        for buffer in sorted({item.buffer for item in copies if item.cta_idx == cta_idx}):
            landed = [item for item in copies if item.cta_idx == cta_idx and item.buffer == buffer]
            writer.counter(cta, f"full slots of {buffer}", "slots", full_slots(landed, life_ends))


def _write_copies(writer: _Writer, flows: _Flows, cta: int, copies: Sequence[CopySpan]) -> None:
    lanes: dict[tuple[str, int], list[Slice]] = defaultdict(list)
    for item in copies:
        notes = {"tensor": item.tensor, "num_bytes": item.num_bytes}
        if item.barrier:
            notes["mbarrier"] = f"{item.barrier}[{item.stage}]"
        lanes[item.buffer, item.stage].append(
            Slice(
                item.start_cycle, item.end_cycle, f"{'TMA' if item.barrier else 'cp.async'} {item.tensor}", notes=notes,
                flows_out=flows.of_copy.get(id(item), ()),
            )
        )
    for (buffer, stage), slices in sorted(lanes.items()):
        writer.slices(cta, f"in flight {buffer}[{stage}]", slices)


def _write_role(writer: _Writer, flows: _Flows, cta: int, idx: int, role: RoleTimeline, timeline: Timeline) -> None:
    warps = f"{role.num_warps} warp{'s' if role.num_warps > 1 else ''}"
    states: list[Slice] = []
    for state, start, end in role.states:
        if states and states[-1].name == state.label and states[-1].end_cycle == start and not states[-1].flows_in:
            states[-1].end_cycle = end
        else:
            states.append(Slice(start, end, state.label))
        states[-1].flows_in = flows.into.get((idx, end), ())
    writer.slices(cta, f"{role.role} ({warps})", states)
    if role.sections:
        ranges = [Slice(item.start_cycle, item.end_cycle, item.name) for item in role.sections]
        writer.slices(cta, f"{role.role} range", ranges, may_nest=True)


def full_slots(copies: Sequence[CopySpan], end_cycle: float | None) -> list[tuple[float, float]]:
    """(cycle, change) steps of the number of slots whose copies have all arrived and whose refill is not yet issued."""
    steps: list[tuple[float, float]] = []
    for stage in sorted({item.stage for item in copies}):
        fills: list[list[float]] = []
        for item in sorted((item for item in copies if item.stage == stage), key=lambda item: item.start_cycle):
            if fills and item.start_cycle < fills[-1][1]:  # several copies fill a slot at once
                fills[-1][1] = max(fills[-1][1], item.end_cycle)
            else:
                fills.append([item.start_cycle, item.end_cycle])
        for (_, landed), refill in zip(fills, [*fills[1:], None], strict=True):
            emptied = end_cycle if refill is None else refill[0]
            steps.append((landed, 1.0))
            if emptied is not None:
                steps.append((max(landed, emptied), -1.0))
    return steps


class _Flows:
    """Arrows from each copy to the phase flip that it completed, and on to the waits that the flip ended."""

    def __init__(self, timeline: Timeline) -> None:
        self.of_copy: dict[int, tuple[int, ...]] = {}
        """Arrow that leaves a copy, by the copy's id."""
        self.of_flip: dict[int, tuple[int, ...]] = {}
        """Arrows that pass through a flip, by the flip's id."""
        self.into: dict[Ending, tuple[int, ...]] = {}
        """Arrows that arrive at the end of a role's state."""
        pending: dict[tuple[int, str, int], list[CopySpan]] = defaultdict(list)
        for copy in sorted(timeline.copies, key=lambda item: item.end_cycle):
            if copy.barrier:
                pending[copy.cta_idx, copy.barrier, copy.stage].append(copy)
        waits = _waits(timeline)
        for flip in sorted(timeline.flips, key=lambda item: item.cycle):
            queue = pending[flip.cta_idx, flip.barrier, flip.stage]
            done = [item for item in queue if item.end_cycle <= flip.cycle + 1e-6]
            del queue[: len(done)]
            flows = tuple(range(len(self.of_copy) + 1, len(self.of_copy) + 1 + len(done)))
            self.of_copy |= {id(copy): (number,) for copy, number in zip(done, flows, strict=True)}
            self.of_flip[id(flip)] = flows
            for ending in _waits_ended_by(flip, waits[flip.cta_idx]) if flows else ():
                self.into.setdefault(ending, flows)  # a wait is for one phase: the first that completes


def _waits(timeline: Timeline) -> dict[int, list[list[tuple[float, float, int]]]]:
    """Mbarrier waits of each CTA and each role that waits for copies, as (end, start, role) in order.

    The roles are those that compute, or all if none does.
    """
    computing = {(item.cta_idx, item.role) for item in timeline.mmas}
    found: dict[int, list[list[tuple[float, float, int]]]] = defaultdict(list)
    ctas_computing = {cta_idx for cta_idx, _ in computing}
    for idx, role in enumerate(timeline.roles):
        if role.cta_idx in ctas_computing and (role.cta_idx, role.role) not in computing:
            continue
        waits = [(end, start, idx) for state, start, end in role.states if state is WarpState.WAIT_MBARRIER]
        found[role.cta_idx].append(waits)
    return found


def _waits_ended_by(flip: PhaseFlip, waiters: Iterable[list[tuple[float, float, int]]]) -> list[Ending]:
    """Wait of each waiter that was open at the flip and ended at once after it."""
    endings: list[Ending] = []
    for waits in waiters:
        at = bisect_left(waits, (flip.cycle,))
        if at < len(waits):
            end, start, idx = waits[at]
            if start <= flip.cycle and end <= flip.cycle + LATEST_WAKE_CYCLES:
                endings.append((idx, end))
    return endings


class _Writer:
    """Collects tracks and events, and serializes them in the order of time."""

    def __init__(self, *, mhz: float) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder

        self._builder = TraceProtoBuilder()
        self._event_types = TrackEvent
        self._explicit = TrackDescriptor.EXPLICIT
        self._mhz = mhz
        self._num_tracks = 0
        self._events: list[tuple[int, int, Any]] = []
        self._is_first = True

    def ns(self, cycle: float) -> int:
        """Timestamp in ns of a cycle."""
        return round(cycle * 1e3 / self._mhz)

    # ------------------------------------------------------------------------------------------ tracks
    def process(self, name: str) -> int:
        """Root track."""
        track, uuid = self._new_track()
        track.process.pid = 1
        track.process.process_name = name
        return uuid

    def track(self, parent: int, name: str) -> int:
        """Track below ``parent``."""
        track, uuid = self._new_track()
        track.parent_uuid = parent
        track.name = name
        track.sibling_order_rank = uuid
        return uuid

    def _new_track(self) -> tuple[Any, int]:
        self._num_tracks += 1
        packet = self._packet()
        packet.track_descriptor.uuid = self._num_tracks
        packet.track_descriptor.child_ordering = self._explicit
        return packet.track_descriptor, self._num_tracks

    def _packet(self) -> Any:
        packet = self._builder.add_packet()
        packet.trusted_packet_sequence_id = SEQUENCE_ID
        if self._is_first:
            packet.sequence_flags = packet.SEQ_INCREMENTAL_STATE_CLEARED
            self._is_first = False
        return packet

    # ------------------------------------------------------------------------------------------ events
    def slices(self, parent: int, name: str, slices: Sequence[Slice], *, may_nest: bool = False) -> None:
        """Track of ``slices``; overlapping ones go to further tracks of the same name, unless they may nest."""
        visible = [item for item in slices if self.ns(item.end_cycle) > self.ns(item.start_cycle)]
        for lane in lanes(visible, self.ns, may_nest=may_nest):
            uuid = self.track(parent, name)
            for item in lane:
                self._event(item.start_cycle, BEGIN, self._begin(uuid, item))
                self._event(item.end_cycle, END, self._end(uuid, item))

    def marks(self, parent: int, name: str, marks: Sequence[Slice]) -> None:
        """Track of instants."""
        uuid = self.track(parent, name)
        for item in marks:
            event = self._begin(uuid, item)
            event.type = self._event_types.TYPE_INSTANT
            self._event(item.start_cycle, INSTANT, event)

    def counter(self, parent: int, name: str, unit: str, steps: Iterable[tuple[float, float]]) -> None:
        """Counter from its steps (cycle, change)."""
        uuid = self.track(parent, name)
        descriptor = self._builder.trace.packet[-1].track_descriptor
        descriptor.counter.unit_name = unit
        total = 0.0
        values: dict[int, tuple[float, float]] = {}
        for cycle, change in sorted(steps):
            total += change
            values[self.ns(cycle)] = (cycle, total)
        for cycle, value in values.values():
            event = self._event_types(track_uuid=uuid, type=self._event_types.TYPE_COUNTER, double_counter_value=value)
            self._event(cycle, INSTANT, event)

    def _begin(self, uuid: int, item: Slice) -> Any:
        event = self._event_types(
            track_uuid=uuid, type=self._event_types.TYPE_SLICE_BEGIN, name=item.name, categories=[item.category],
            flow_ids=item.flows_out,
        )
        notes = {"start_cycle": item.start_cycle, "num_cycles": item.end_cycle - item.start_cycle, **item.notes}
        for name, value in notes.items():
            if isinstance(value, str):
                event.debug_annotations.add(name=name, string_value=value)
            else:
                event.debug_annotations.add(name=name, double_value=float(value))
        return event

    def _end(self, uuid: int, item: Slice) -> Any:
        return self._event_types(track_uuid=uuid, type=self._event_types.TYPE_SLICE_END, terminating_flow_ids=item.flows_in)

    def _event(self, cycle: float, order: int, event: Any) -> None:
        self._events.append((self.ns(cycle), order, event))

    def serialized(self) -> bytes:
        """Serialized trace; at one instant marks come first, then ends, then beginnings."""
        for timestamp, _, event in sorted(self._events, key=lambda item: item[:2]):
            packet = self._packet()
            packet.timestamp = timestamp
            packet.track_event.CopyFrom(event)
        content: bytes = self._builder.serialize()
        return content


INSTANT, END, BEGIN = range(3)
"""Order of events at one timestamp."""


def lanes(slices: Iterable[Slice], ns: Callable[[float], int] = round, *, may_nest: bool = False) -> list[list[Slice]]:
    """Lanes of slices that follow each other (or nest), as few as possible; sorted by start, the longer first."""
    found: list[list[Slice]] = []
    open_ends: list[list[int]] = []
    for item in sorted(slices, key=lambda item: (ns(item.start_cycle), -ns(item.end_cycle))):
        start, end = ns(item.start_cycle), ns(item.end_cycle)
        for lane, stack in zip(found, open_ends, strict=True):
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or (may_nest and end <= stack[-1]):
                lane.append(item)
                stack.append(end)
                break
        else:
            found.append([item])
            open_ends.append([end])
    return found
