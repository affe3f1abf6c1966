"""What is in L2: by reuse distance, before a run."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.machine.memory.l2_capacity import L2Partitions
from gpusim.traffic.l2_plan import panel_traffic
from gpusim.traffic.panels import FootprintRow, Loss, Order, PanelTraffic, Touches

KIB = 1024
ALL = Loss((1.0,), (0.0,))
"""All lines are in memory alone."""


def traffic(
    panels: list[int],
    waves: list[int],
    *,
    panel_bytes: int = KIB,
    capacity: float,
    is_warm: bool = False,
    is_write: bool = False,
) -> PanelTraffic:
    """One tensor's traffic: tile i walks panel ``panels[i]`` in wave ``waves[i]``."""
    row = FootprintRow(
        tensor="a",
        is_write=is_write,
        panel_of_tile=np.array(panels),
        bytes_of_tile=np.full(len(panels), panel_bytes),
    )
    l2 = L2Partitions(num=1, partition_bytes=capacity, spread=0.0)
    return panel_traffic([row], np.array(waves), l2=l2, is_warm=is_warm)["a"]


def missed(result: PanelTraffic) -> dict[int, set[int]]:
    """For each panel the waves that find all of it missing."""
    assert all(loss == Loss((1.0,), (0.0,)) for waves in result.losses.values() for loss in waves.values())
    return {panel: set(waves) for panel, waves in result.losses.items()}


def test_a_first_touch_comes_from_memory() -> None:
    result = traffic([0, 1], [0, 0], capacity=1e9)
    assert missed(result) == {0: {0}, 1: {0}}
    assert result.read_miss_bytes == 2 * KIB


def test_what_a_wave_shares_comes_from_memory_once() -> None:
    result = traffic([0, 0, 0, 0], [0, 0, 0, 0], capacity=1e9)
    assert result.read_miss_bytes == KIB


def test_a_second_wave_hits_when_it_fits() -> None:
    result = traffic([0, 1, 0, 1], [0, 0, 1, 1], capacity=2 * KIB)
    assert result.read_miss_bytes == 2 * KIB
    assert result.miss_bytes_by_wave.tolist() == [2 * KIB, 0]


def test_a_second_wave_misses_when_a_byte_is_lacking() -> None:
    result = traffic([0, 1, 0, 1], [0, 0, 1, 1], capacity=2 * KIB - 1)
    assert result.read_miss_bytes == 4 * KIB
    assert missed(result) == {0: {0, 1}, 1: {0, 1}}


def test_between_two_touches_lie_the_bytes_of_the_waves_between() -> None:
    """Panel 0 in waves 0 and 2; waves 0 and 1 touch 3 KiB."""
    panels, waves = [0, 1, 2, 0], [0, 1, 1, 2]
    assert missed(traffic(panels, waves, capacity=3 * KIB))[0] == {0}
    assert missed(traffic(panels, waves, capacity=3 * KIB - 1))[0] == {0, 2}


def test_a_warm_cache_holds_what_fits_as_a_whole() -> None:
    assert traffic([0, 1], [0, 0], capacity=2 * KIB, is_warm=True).read_miss_bytes == 0
    assert traffic([0, 1], [0, 0], capacity=2 * KIB - 1, is_warm=True).read_miss_bytes == 2 * KIB


def test_stores_leave_for_what_capacity_lacks_and_are_never_fetched() -> None:
    result = traffic([0, 1, 2, 3], [0, 0, 1, 1], capacity=3 * KIB, is_write=True)
    assert (result.read_miss_bytes, result.written_back_fraction) == (0.0, 0.25)
    assert traffic([0, 1, 2, 3], [0, 0, 1, 1], capacity=4 * KIB, is_write=True).written_back_fraction == 0.0


@pytest.mark.parametrize("waves", [[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3]])
def test_a_warm_launch_s_stores_leave_alike_however_many_waves_it_has(waves: list[int]) -> None:
    for capacity, left in ((4 * KIB, 0.0), (3.9 * KIB, 1.0)):
        assert traffic([0, 1, 2, 3], waves, capacity=capacity, is_write=True, is_warm=True).written_back_fraction == left


def test_tensors_take_room_from_one_another() -> None:
    footprints = [
        FootprintRow(
            tensor=name,
            is_write=name == "d",
            panel_of_tile=np.array([0, 0]),
            bytes_of_tile=np.array([KIB, KIB]),
        )
        for name in ("a", "b", "d")
    ]
    for capacity, waves in ((3 * KIB, {0}), (3 * KIB - 1, {0, 1})):
        l2 = L2Partitions(num=1, partition_bytes=capacity, spread=0.0)
        result = panel_traffic(footprints, np.array([0, 1]), l2=l2, is_warm=False)
        assert missed(result["a"])[0] == missed(result["b"])[0] == waves


tiles = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=30)


@given(tiles=tiles, capacity=st.integers(1, 12), is_warm=st.booleans())
def test_misses_lie_between_each_panel_once_and_each_touch(
    tiles: list[tuple[int, int]], capacity: int, is_warm: bool
) -> None:
    panels, waves = [panel for panel, _ in tiles], sorted(wave for _, wave in tiles)
    result = traffic(panels, waves, capacity=capacity * KIB, is_warm=is_warm)
    touched = len(set(zip(panels, waves, strict=True)))
    assert (0 if is_warm else len(set(panels))) * KIB <= result.read_miss_bytes <= touched * KIB
    assert result.miss_bytes_by_wave.sum() == result.read_miss_bytes
    assert sum(len(waves) for waves in missed(result).values()) * KIB == result.read_miss_bytes
    assert (result.miss_bytes_by_wave <= result.touched_bytes_by_wave).all()


@given(tiles=tiles, capacity=st.integers(1, 12))
def test_a_larger_cache_never_misses_more(tiles: list[tuple[int, int]], capacity: int) -> None:
    panels, waves = [panel for panel, _ in tiles], sorted(wave for _, wave in tiles)
    small, large = (traffic(panels, waves, capacity=size * KIB) for size in (capacity, capacity + 1))
    assert large.read_miss_bytes <= small.read_miss_bytes


@pytest.mark.parametrize(("capacity", "is_there"), [(4 * KIB, True), (4 * KIB - 1, False)])
def test_recency_counts_from_the_touch_and_not_from_the_launch(capacity: int, is_there: bool) -> None:
    """Panel 7 comes in wave 2 and again in wave 4: what waves 0 and 1 touched does not lie between."""
    result = traffic([0, 1, 2, 3, 4, 7, 5, 6, 8, 7], [0, 0, 0, 1, 1, 2, 3, 3, 3, 4], capacity=capacity)
    assert missed(result)[7] == ({2} if is_there else {2, 4})


@pytest.mark.parametrize(("capacity", "is_there"), [(5 * KIB, True), (5 * KIB - 1, False)])
def test_what_is_touched_over_and_over_counts_once(capacity: int, is_there: bool) -> None:
    """Panel 0 comes in waves 0 and 3; between lie itself, panel 9 of each wave, and three that come once."""
    result = traffic([0, 9, 1, 9, 2, 9, 3, 0], [0, 0, 0, 1, 1, 2, 2, 3], capacity=capacity)
    assert missed(result)[0] == ({0} if is_there else {0, 3})
    assert missed(result)[9] == {0}


@given(tiles=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5)), min_size=1, max_size=40), capacity=st.integers(1, 9))
def test_panels_are_lost_as_the_least_recently_used_are(tiles: list[tuple[int, int]], capacity: int) -> None:
    """A panel is there if the different panels touched from its own wave up to this one have room."""
    by_wave = sorted({(wave, panel) for panel, wave in tiles})
    result = traffic([panel for _, panel in by_wave], [wave for wave, _ in by_wave], capacity=capacity * KIB)
    found = missed(result)
    for wave, panel in by_wave:
        before = [each for each, other in by_wave if other == panel and each < wave]
        between = {other for each, other in by_wave if before and before[-1] <= each < wave}
        assert (wave in found.get(panel, set())) == (not before or len(between) > capacity)


# ---------------------------------------------------------------------- streams: a panel belongs to one tile


def stream(num_tiles: int, *, per_wave: int, partition: float, order: np.ndarray | None = None) -> dict[str, PanelTraffic]:
    """A copy: each tile reads 1 KiB of x and stores 1 KiB of y, on two partitions in turn."""
    tiles = np.arange(num_tiles)
    panels = tiles if order is None else order
    footprints = [
        FootprintRow(tensor=name, is_write=name == "y", panel_of_tile=panels, bytes_of_tile=np.full(num_tiles, KIB))
        for name in ("x", "y")
    ]
    l2 = L2Partitions(num=2, partition_bytes=partition * KIB, spread=0.0)
    return panel_traffic(footprints, tiles // per_wave, l2=l2, partition_of_tile=tiles % 2, is_warm=False)


@given(num_tiles=st.integers(1, 60), per_wave=st.integers(1, 9), seed=st.integers(0, 5))
def test_a_stream_reads_each_byte_once_in_whatever_order(num_tiles: int, per_wave: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(num_tiles)
    result = stream(num_tiles, per_wave=per_wave, partition=4, order=order)["x"]
    assert result.read_miss_bytes == num_tiles * KIB
    whole = Loss((0.5, 0.5), (0.5, 0.5))
    assert result.losses == {int(panel): {tile // per_wave: whole} for tile, panel in enumerate(order)}


def test_what_a_stream_stores_last_stays() -> None:
    """A copy of 1 KiB takes 1.5 KiB of the two partitions' 2 x 12 for x, as much for y: the last 8 of y stay of any more."""
    assert stream(8, per_wave=2, partition=12)["y"].written_back_bytes == 0.0
    assert stream(80, per_wave=2, partition=12)["y"].written_back_bytes == pytest.approx(72 * KIB)


def test_a_stream_of_a_million_tiles_takes_as_many_rows_as_waves_have_sides() -> None:
    num, per_wave = 1 << 20, 1056
    tiles = np.arange(num)
    row = FootprintRow(tensor="x", is_write=False, panel_of_tile=tiles, bytes_of_tile=np.full(num, KIB))
    order = Order.of(tiles // per_wave, tiles % 2, num_partitions=2)
    assert len(Touches.of(row, order).panel) == 2 * -(-num // per_wave)


def test_rows_that_all_read_come_from_memory_once_beside_a_stream() -> None:
    tiles = np.arange(40)
    footprints = [
        FootprintRow(tensor="x", is_write=False, panel_of_tile=tiles, bytes_of_tile=np.full(40, KIB)),
        FootprintRow(
            tensor="gamma", is_write=False, panel_of_tile=np.zeros(40, dtype=np.int64), bytes_of_tile=np.full(40, KIB)
        ),
    ]
    for partition, fetched in ((5.0, 1), (4.99, 10)):  # a wave of four tiles touches 4 KiB of x and 1 of gamma
        result = panel_traffic(
            footprints, tiles // 4, l2=L2Partitions(num=1, partition_bytes=partition * KIB, spread=0.0), is_warm=False
        )["gamma"]
        assert result.read_miss_bytes == fetched * KIB


@pytest.mark.parametrize("num_rows", [300, 800, 1600, 6400])
def test_rows_at_random_are_found_as_often_as_the_least_recently_used_of_a_table_are(num_rows: int) -> None:
    """Against a cache of 500 rows that sees them one by one, beside a stream of as many bytes."""
    num_tiles, per_tile, per_wave, room = 1200, 10, 4, 500
    rows = np.random.default_rng(1).integers(0, num_rows, num_tiles * per_tile)
    held: OrderedDict[tuple[str, int], None] = OrderedDict()
    num_missed = 0
    for idx, row in enumerate(rows.tolist()):
        for key in (("t", row), ("x", idx)):
            num_missed += key[0] == "t" and key not in held
            held.pop(key, None)
            held[key] = None
            if len(held) > room:
                held.popitem(last=False)
    tiles = np.arange(num_tiles)
    each = np.full(num_tiles, per_tile)
    footprints = [
        FootprintRow(tensor="t", is_write=False, panel_of_tile=tiles, bytes_of_tile=each, table_bytes=num_rows),
        FootprintRow(tensor="x", is_write=False, panel_of_tile=tiles, bytes_of_tile=each),
    ]
    l2 = L2Partitions(num=1, partition_bytes=room, spread=0.0)
    result = panel_traffic(footprints, tiles // per_wave, l2=l2, is_warm=False)["t"]
    assert result.read_miss_bytes == pytest.approx(num_missed, rel=0.06)
    assert result.losses[5][1].memory[0] == pytest.approx(1.0, abs=0.2)  # hardly any row was there before


def test_a_table_that_stays_is_read_once_by_both_sides() -> None:
    tiles = np.arange(4000)
    row = FootprintRow(
        tensor="t", is_write=False, panel_of_tile=tiles, bytes_of_tile=np.full(4000, KIB), table_bytes=200 * KIB
    )
    for is_warm, fetched in ((False, 200 * KIB), (True, 0.0)):
        l2 = L2Partitions(num=2, partition_bytes=400 * KIB, spread=0.0)
        result = panel_traffic([row], tiles // 8, l2=l2, partition_of_tile=tiles % 2, is_warm=is_warm)["t"]
        assert result.read_miss_bytes == pytest.approx(fetched, rel=0.03, abs=KIB)


def test_tiles_that_touch_nothing_have_no_panel() -> None:
    row = FootprintRow(tensor="x", is_write=False, panel_of_tile=np.array([0, 9, 9]), bytes_of_tile=np.array([KIB, 0, 0]))
    l2 = L2Partitions(num=1, partition_bytes=KIB, spread=0.0)
    result = panel_traffic([row], np.array([0, 0, 1]), l2=l2, is_warm=False)["x"]
    assert (list(result.losses), result.losses.get(9), result.losses.get(0)) == ([0], None, {0: ALL})


# ---------------------------------------------------------------------- dirty lines, hints


def set_and_stream(
    *, set_hint: str = "evict_normal", stream_hint: str = "evict_normal", is_write: bool = False, set_kib: int = 4,
    stream_kib: int = 12, partition: float = 8.0, dirty: float = 100.0, first: float = 2.0, last: float = 0.0,
) -> dict[str, PanelTraffic]:
    """A set, a stream of other lines a KiB a wave, the set again; one partition of 8 KiB."""
    num_waves = stream_kib + 2
    waves = np.repeat(np.arange(num_waves), set_kib)
    tiles = np.arange(len(waves))
    is_set = (waves == 0) | (waves == num_waves - 1)
    footprints = [
        FootprintRow(
            tensor="set", is_write=False, panel_of_tile=tiles % set_kib, bytes_of_tile=np.where(is_set, KIB, 0),
            cache_hint=set_hint,
        ),
        FootprintRow(
            tensor="stream", is_write=is_write, panel_of_tile=tiles, cache_hint=stream_hint,
            bytes_of_tile=np.where(~is_set & (tiles % set_kib == 0), KIB, 0),
        ),
    ]
    l2 = L2Partitions(
        num=1, partition_bytes=partition * KIB, spread=0.0, dirty_bytes=dirty * KIB, first_bytes=first * KIB,
        last_bytes=last * KIB,
    )
    return panel_traffic(footprints, waves, l2=l2, is_warm=False)


def again_kib(result: dict[str, PanelTraffic]) -> float:
    """Of the set, what the second reading fetches."""
    return float(result["set"].miss_bytes_by_wave[-1]) / KIB


@pytest.mark.parametrize(("stream_kib", "fetched"), [(4, 0), (5, 4), (50, 4)])
def test_a_stream_without_hints_drives_a_set_out(stream_kib: int, fetched: int) -> None:
    assert again_kib(set_and_stream(stream_kib=stream_kib)) == fetched


def test_a_stream_read_with_evict_first_takes_no_room() -> None:
    assert again_kib(set_and_stream(stream_hint="evict_first", stream_kib=100)) == 0


@pytest.mark.parametrize(("dirty", "fetched"), [(4.0, 0), (4.5, 4)])
def test_a_stream_stored_with_evict_first_takes_what_may_be_dirty(dirty: float, fetched: int) -> None:
    result = set_and_stream(stream_hint="evict_first", stream_kib=100, is_write=True, dirty=dirty)
    assert again_kib(result) == fetched


@pytest.mark.parametrize(("set_kib", "stream_kib", "fetched"), [(2, 6, 0), (2, 7, 2), (4, 12, 4)])
def test_what_was_read_with_evict_first_leaves_once_l2_is_full(set_kib: int, stream_kib: int, fetched: int) -> None:
    assert again_kib(set_and_stream(set_hint="evict_first", set_kib=set_kib, stream_kib=stream_kib)) == fetched


@pytest.mark.parametrize(("last", "fetched"), [(4.0, 0), (3.0, 4), (0.0, 4)])
def test_evict_last_stays_while_it_has_room(last: float, fetched: int) -> None:
    assert again_kib(set_and_stream(set_hint="evict_last", stream_kib=100, last=last)) == fetched


def test_what_is_kept_for_evict_last_others_lack() -> None:
    """4 KiB of the 8 are kept: of a stream that is read twice, 4 stay and 5 do not."""
    for stream_kib, fetched in ((4, 0), (5, 5)):
        panels = np.array([0] * 1 + list(range(stream_kib)) * 2)
        waves = np.array([0] + [1] * stream_kib + [2] * stream_kib)
        is_set = waves == 0
        footprints = [
            FootprintRow(
                tensor="kept", is_write=False, panel_of_tile=np.zeros(len(waves), dtype=np.int64),
                bytes_of_tile=np.where(is_set, 4 * KIB, 0), cache_hint="evict_last",
            ),
            FootprintRow(tensor="x", is_write=False, panel_of_tile=panels, bytes_of_tile=np.where(is_set, 0, KIB)),
        ]
        l2 = L2Partitions(num=1, partition_bytes=8 * KIB, spread=0.0, last_bytes=4 * KIB)
        result = panel_traffic(footprints, waves, l2=l2, is_warm=False)["x"]
        assert result.miss_bytes_by_wave[2] == fetched * KIB


@pytest.mark.parametrize(("stored", "written"), [(3, 0), (4, 1), (40, 37)])
def test_more_than_may_be_dirty_is_written_back(stored: int, written: int) -> None:
    row = FootprintRow(
        tensor="y", is_write=True, panel_of_tile=np.arange(stored), bytes_of_tile=np.full(stored, KIB)
    )
    l2 = L2Partitions(num=1, partition_bytes=8 * KIB, spread=0.0, dirty_bytes=3 * KIB)
    result = panel_traffic([row], np.arange(stored), l2=l2, is_warm=False)["y"]
    assert result.written_back_bytes == pytest.approx(written * KIB)


@pytest.mark.parametrize(
    ("stored", "cold", "warm"),
    [(2, 0, 0), (3, 0, 0), (4, 1, 4), (12, 9, 12)],
)
def test_what_a_launch_leaves_dirty_the_next_one_writes_back_unless_it_stores_that_anew(
    stored: int, cold: int, warm: int
) -> None:
    """3 KiB may wait, and lie between two stores to the same line as many bytes as a launch stores."""
    row = FootprintRow(tensor="y", is_write=True, panel_of_tile=np.arange(stored), bytes_of_tile=np.full(stored, KIB))
    l2 = L2Partitions(num=1, partition_bytes=100.0 * KIB, spread=0.0, dirty_bytes=3.0 * KIB)
    for is_warm, written in ((False, cold), (True, warm)):
        result = panel_traffic([row], np.arange(stored), l2=l2, is_warm=is_warm)["y"]
        assert result.written_back_bytes == pytest.approx(written * KIB)
        assert result.written_back_by_wave.sum() == pytest.approx(written * KIB)
        if is_warm and written:  # each wave pushes out what was stored 3 KiB ago, by this launch or the one before
            assert result.written_back_by_wave.tolist() == pytest.approx([KIB] * stored)


def test_a_launch_that_reads_pushes_out_what_the_one_before_has_stored() -> None:
    """4 KiB are read, then 2 stored: between two stores to a line lie 5 KiB and a part of its own wave's."""
    footprints = [
        FootprintRow(tensor=name, is_write=name == "y", panel_of_tile=np.arange(6), bytes_of_tile=np.array(sizes) * KIB)
        for name, sizes in (("x", [1, 1, 1, 1, 0, 0]), ("y", [0, 0, 0, 0, 1, 1]))
    ]
    for partition, written in ((5.0, 2), (6.0, 0)):
        l2 = L2Partitions(num=1, partition_bytes=partition * KIB, spread=0.0)
        result = panel_traffic(footprints, np.arange(6), l2=l2, is_warm=True)["y"]
        assert result.written_back_bytes == pytest.approx(written * KIB)


def test_a_line_that_both_sides_read_is_missed_once_and_a_half() -> None:
    """Each asks its own partition first; half of the lines are at home on the other, and looked up there too."""
    result = two_partitions([(0, 0), (0, 1)], 1, partition=8)
    assert (result.lookup_miss_bytes, result.crossing_bytes, result.crossing_miss_bytes) == (1.5 * KIB, KIB, KIB / 2)
    result = two_partitions([(0, 0)], 1, partition=8)
    assert (result.lookup_miss_bytes, result.crossing_bytes, result.crossing_miss_bytes) == (KIB, KIB / 2, KIB / 2)


# ---------------------------------------------------------------------- two partitions


def two_partitions(
    readers: list[tuple[int, int]],
    num_waves: int,
    *,
    partition: float,
    spread: float = 0.0,
    stores: float = 0.0,
    is_warm: bool = False,
) -> PanelTraffic:
    """Each wave the same tiles, (panel, partition) of each; panels of 1 KiB; a tile stores ``stores`` KiB to new lines."""
    panels, partitions = (np.array(column * num_waves) for column in map(list, zip(*readers, strict=True)))
    waves = np.repeat(np.arange(num_waves), len(readers))
    tiles = np.arange(len(panels))
    footprints = [
        FootprintRow(tensor="a", is_write=False, panel_of_tile=panels, bytes_of_tile=np.full(len(panels), KIB)),
        FootprintRow(
            tensor="d", is_write=True, panel_of_tile=tiles, bytes_of_tile=np.full(len(tiles), int(stores * KIB))
        ),
    ]
    held = L2Partitions(num=2, partition_bytes=partition * KIB, spread=spread)
    return panel_traffic(footprints, waves, l2=held, partition_of_tile=partitions, is_warm=is_warm)["a"]


def test_a_first_reading_brings_half_across() -> None:
    result = two_partitions([(0, 0)], 1, partition=8)
    assert result.losses == {0: {0: Loss((0.5, 0.5), (0.5, 0.5))}}


@pytest.mark.parametrize(("partition", "refetched"), [(4, 0.0), (3.99, 1.0)])
def test_each_side_holds_all_that_both_read(partition: float, refetched: float) -> None:
    readers = [(panel, of_side) for panel in range(4) for of_side in range(2)]
    result = two_partitions(readers, 2, partition=partition)
    assert result.miss_bytes_by_wave.tolist() == [4 * KIB, refetched * 4 * KIB]


@pytest.mark.parametrize(("partition", "refetched"), [(4, 0.0), (3.99, 0.5), (2, 0.5), (1.99, 1.0)])
def test_what_one_side_cannot_hold_is_half_in_memory_and_half_across_until_that_fills_up_too(
    partition: float, refetched: float
) -> None:
    result = two_partitions([(panel, 0) for panel in range(4)], 2, partition=partition)
    assert result.miss_bytes_by_wave.tolist() == [4 * KIB, refetched * 4 * KIB]
    if refetched == 0.5:
        assert result.losses[0][1] == Loss((0.5, 0.0), (0.5, 0.5))


@pytest.mark.parametrize(("partition", "refetched"), [(3, 0.0), (2.99, 1.0)])
def test_lines_of_one_reader_take_a_home_and_half_a_copy(partition: float, refetched: float) -> None:
    """Of four panels two are read on each partition: two and the homes of half of the others' lines."""
    result = two_partitions([(panel, panel % 2) for panel in range(4)], 2, partition=partition)
    assert result.miss_bytes_by_wave.tolist() == [4 * KIB, refetched * 4 * KIB]


@pytest.mark.parametrize(("partition", "refetched"), [(6, 0.0), (5.99, 1.0)])
def test_stores_take_as_much(partition: float, refetched: float) -> None:
    result = two_partitions([(panel, panel % 2) for panel in range(4)], 2, partition=partition, stores=1)
    assert result.miss_bytes_by_wave.tolist() == [4 * KIB, refetched * 4 * KIB]


def test_homes_of_copies_are_worn_out_by_earlier_launches() -> None:
    """Only half as many lines lie on each partition then; a partition that loses all of them loses them in each launch."""
    readers = [(panel, panel % 2) for panel in range(4)]
    assert two_partitions(readers, 1, partition=3, is_warm=True).read_miss_bytes == 0
    assert two_partitions(readers, 1, partition=2.9, spread=0.05, is_warm=True).read_miss_bytes < KIB / 100
    assert two_partitions(readers, 1, partition=2.9, is_warm=True).read_miss_bytes == 4 * KIB
    assert two_partitions(readers, 1, partition=1.9, spread=0.05, is_warm=True).read_miss_bytes > 3 * KIB


def test_lines_leave_one_by_one() -> None:
    readers = [(panel, partition) for panel in range(4) for partition in range(2)]
    shares = [two_partitions(readers, 2, partition=size, spread=0.1).miss_bytes_by_wave[1] / 4 / KIB for size in (5, 4, 3.5)]
    assert 0 < shares[0] < shares[1] < shares[2] < 1
    assert shares[1] == pytest.approx(0.5)
