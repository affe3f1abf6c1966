"""What rows off a line or a sector fetch: counted by hand, and by laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import LayoutError
from gpusim.workload.fetches import Fetches, fetches, row_fetches

ROW = 16 * np.arange(8)


@pytest.mark.parametrize(("source", "destination", "pieces", "sectors", "lines"), [
    (0, 0, 4, 4, 1),
    (32, 0, 4, 4, 2),
    (16, 0, 8, 5, 2),  # every half sector goes where its other half does not
    (0, 16, 8, 4, 1),  # the same, seen from shared memory
    (16, 16, 5, 5, 2),
    (48, 16, 5, 5, 2),
])
def test_a_row_of_a_line_is_fetched_as_counted_by_hand(
    source: int, destination: int, pieces: int, sectors: int, lines: int
) -> None:
    assert fetches(ROW + source, ROW + destination) == Fetches(128, pieces, sectors, lines)


def test_a_box_whose_every_second_row_begins_in_mid_sector_crosses_one_and_a_half_times() -> None:
    found = row_fetches(4112 * np.arange(64), 128)
    assert found.crossings == 1.5 and found.num_sectors == 64 * 4.5 and found.num_lines == 64 * 15 / 8


def test_lanes_that_take_no_part_fetch_nothing() -> None:
    assert fetches(ROW, ROW, ROW < 64) == Fetches(64, 2, 2, 1) and Fetches().crossings == 1.0


@given(
    pitch=st.integers(8, 300), start=st.integers(0, 40), num_rows=st.integers(1, 40), chunks=st.integers(1, 8)
)
def test_no_byte_is_fetched_less_than_once_or_more_than_twice(pitch: int, start: int, num_rows: int, chunks: int) -> None:
    found = row_fetches(16 * (start + pitch * np.arange(num_rows)), 16 * chunks)
    assert found.num_bytes == 16 * chunks * num_rows
    assert found.num_bytes <= 32 * found.num_sectors <= 32 * found.num_pieces <= 2 * found.num_bytes
    assert num_rows <= found.num_lines <= 2 * num_rows


@given(rows=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=9))
def test_requests_add_up(rows: list[tuple[int, int]]) -> None:
    sources, destinations = (ROW + 16 * np.array(column)[:, None] for column in zip(*rows, strict=True))
    alone = [fetches(source, destination) for source, destination in zip(sources, destinations, strict=True)]
    assert fetches(sources, destinations) == sum(alone, Fetches())


def test_what_is_no_chunk_is_refused() -> None:
    with pytest.raises(LayoutError, match="multiple of 16"):
        fetches(ROW + 8, ROW)
    with pytest.raises(LayoutError, match="as many of both"):
        fetches(ROW, ROW[:4])
