from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from gpusim.report.perfetto import Slice, full_slots, lanes, trace_bytes, write_pftrace
from gpusim.simulate.result import Result
from gpusim.simulate.timeline import CopySpan, Timeline


def parsed(result: Result) -> Any:
    trace = Trace()
    trace.ParseFromString(trace_bytes(result))
    return trace


def tracks_of(trace: Any) -> dict[int, Any]:
    return {
        packet.track_descriptor.uuid: packet.track_descriptor
        for packet in trace.packet
        if packet.HasField("track_descriptor")
    }


def slices_of(trace: Any) -> dict[int, list[tuple[int, int, str]]]:
    """(start, end, name) by track; fails where ends do not match beginnings."""
    open_slices: dict[int, list[tuple[int, str]]] = defaultdict(list)
    found: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for packet in trace.packet:
        if packet.HasField("track_event"):
            event = packet.track_event
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                open_slices[event.track_uuid].append((packet.timestamp, event.name))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                start, name = open_slices[event.track_uuid].pop()
                found[event.track_uuid].append((start, packet.timestamp, name))
    assert not any(open_slices.values())
    return found


def names(trace: Any) -> list[str]:
    return [track.name or track.process.process_name for track in tracks_of(trace).values()]


def test_slices_of_a_track_nest_and_time_runs_forward(result: Result) -> None:
    trace = parsed(result)
    times = [packet.timestamp for packet in trace.packet if packet.HasField("track_event")]
    assert times == sorted(times)
    for slices in slices_of(trace).values():
        for start, end, _ in slices:
            assert start < end
            for other_start, other_end, _ in slices:
                is_disjoint = other_end <= start or other_start >= end
                is_inside = (start <= other_start and other_end <= end) or (other_start <= start and end <= other_end)
                assert is_disjoint or is_inside


def test_tracks_hang_from_the_gpu_by_sm_and_cta(result: Result) -> None:
    tracks = tracks_of(parsed(result))
    by_name = {track.name: track for track in tracks.values()}

    def path(name: str) -> list[str]:
        track, found = by_name[name], []
        while track.parent_uuid:
            track = tracks[track.parent_uuid]
            found.append(track.name or track.process.process_name)
        return found

    assert path("in flight A[2]") == ["CTA 0", "SM 0", "toy: gemm"]
    assert path("producer (1 warp)") == ["CTA 0", "SM 0", "toy: gemm"]
    assert path("tensor core") == ["SM 0", "toy: gemm"]


def test_all_packets_are_of_one_sequence(result: Result) -> None:
    packets = parsed(result).packet
    assert {packet.trusted_packet_sequence_id for packet in packets} == {1}
    assert packets[0].sequence_flags == packets[0].SEQ_INCREMENTAL_STATE_CLEARED


def test_a_slice_is_as_long_as_its_cycles_at_the_clock(make_result: Callable[..., Result]) -> None:
    trace = parsed(make_result(sm_clock_mhz=2000.0))
    tracks = tracks_of(trace)
    copies = [
        end - start
        for uuid, slices in slices_of(trace).items()
        if tracks[uuid].name.startswith("in flight")
        for start, end, _ in slices
    ]
    assert copies == [350] * 24  # 700 cycles at 2 GHz; 12 steps of A and of B


def test_an_arrow_goes_from_each_copy_to_its_flip_and_into_the_wait_that_this_ends(result: Result) -> None:
    stops: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    trace = parsed(result)
    for packet in trace.packet:
        event = packet.track_event
        for flow in (*event.flow_ids, *event.terminating_flow_ids):
            stops[flow].append((packet.timestamp, event.type, event.track_uuid))
    assert len(stops) == 24
    whole = [stop for stop in stops.values() if len(stop) == 3]
    assert len(whole) == 2 * 4  # the consumer waits once a turn of the ring of three stages
    consumer = next(uuid for uuid, track in tracks_of(trace).items() if track.name == "consumer0 (4 warps)")
    for (copied, began, _), (flipped, instant, _), (woken, ended, track) in whole:
        assert (began, instant, ended) == (
            TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_INSTANT, TrackEvent.TYPE_SLICE_END,
        )
        assert flipped - copied == 700
        assert woken - flipped == 20
        assert track == consumer


def test_bytes_in_flight_come_back_to_zero(result: Result) -> None:
    trace = parsed(result)
    (counter,) = [uuid for uuid, track in tracks_of(trace).items() if track.name == "bytes in flight"]
    values = [
        packet.track_event.double_counter_value
        for packet in trace.packet
        if packet.track_event.type == TrackEvent.TYPE_COUNTER and packet.track_event.track_uuid == counter
    ]
    assert max(values) == 3 * 2 * 16384.0
    assert values[-1] == 0.0
    assert min(values) >= 0.0


def test_copies_of_one_slot_that_overlap_get_a_track_each() -> None:
    spans = [Slice(0, 10, "a"), Slice(5, 15, "b"), Slice(10, 20, "c"), Slice(6, 8, "d")]
    assert [[item.name for item in lane] for lane in lanes(spans)] == [["a", "c"], ["b"], ["d"]]
    assert [[item.name for item in lane] for lane in lanes(spans, may_nest=True)] == [["a", "d", "c"], ["b"]]


def test_a_slot_is_full_from_its_last_copy_until_its_refill_is_issued() -> None:
    def copy(start: float, end: float) -> CopySpan:
        return CopySpan(0, 0, "A", 0, "A", start, end, 64.0)

    steps = full_slots([copy(0, 10), copy(2, 12), copy(30, 40)], end_cycle=50.0)
    assert steps == [(12, 1.0), (30, -1.0), (40, 1.0), (50.0, -1.0)]


def test_an_empty_timeline_is_a_trace_of_the_gpu_alone(make_result: Callable[..., Result]) -> None:
    assert names(parsed(make_result(timeline=Timeline()))) == ["toy: gemm"]


def test_the_file_is_written_whole_or_not_at_all(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.pftrace"
    path.write_bytes(b"before")

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="No space"):
            write_pftrace(result, path)
    assert path.read_bytes() == b"before"
    assert [item.name for item in tmp_path.iterdir()] == ["x.pftrace"]
    write_pftrace(result, path)
    assert path.read_bytes() == trace_bytes(result)
