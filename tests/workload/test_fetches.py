"""What rows off a line or a sector fetch: counted by hand, and by laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import LayoutError
from gpusim.workload.gmem.line_fetches import Fetches, fetches, row_fetches, unasked_fraction

ROW = 16 * np.arange(8)


@pytest.mark.parametrize(("source", "destination", "sectors", "crossing", "reads", "requests", "shared"), [
    (0, 0, 4, 4, 4, 1, 4),
    (32, 0, 4, 4, 4, 2, 4),  # two lines of memory
    (16, 0, 5, 8, 8, 3, 0),  # every half sector goes where its other half does not
    (0, 16, 4, 8, 8, 3, 0),  # the same, seen from shared memory: the last half is alone in its line
    (16, 16, 5, 5, 5, 3, 0),  # half a sector, three whole ones, half a sector of the next line
    (64, 64, 4, 4, 4, 2, 4),
])
def test_a_row_of_a_line_is_fetched_as_counted_by_hand(
    source: int, destination: int, sectors: int, crossing: int, reads: int, requests: int, shared: int
) -> None:
    found = fetches(ROW + source, ROW + destination)
    assert (found.num_sectors, found.num_crossing, found.num_reads) == (sectors, crossing, reads)
    assert (found.num_requests, found.num_shared) == (requests, shared)


def test_two_requests_for_the_same_sectors_of_a_line_become_one() -> None:
    assert fetches(ROW[:4], ROW[:4] + 16) == Fetches(64, 2, 4, 2, 1, 2, 1)


def test_a_box_whose_every_second_row_begins_in_mid_sector_asks_for_halves_apart() -> None:
    found = row_fetches(4112 * np.arange(64), 128)
    assert found.num_crossing == found.num_reads == 64 * 4.5
    assert found.num_requests == 64 * 21 / 8  # 1, 3, 2, 4, 2, 4, 2, 3 in turn
    assert found.num_shared == found.num_shared_requests == 0  # one that asks for halves shares nothing


def test_rows_that_straddle_lines_are_torn_and_those_on_lines_are_not() -> None:
    found = row_fetches(4128 * np.arange(64), 128)  # begin 0, 32, 64, 96 bytes behind a line in turn
    assert (found.num_shared, found.num_shared_requests) == (64 * 4, 64 * 7 / 4)
    assert (found.num_torn, found.num_torn_requests) == (48 * 4, 48 * 2)
    inside = row_fetches(4128 * np.arange(64), 32)
    assert inside.num_shared == 64 and inside.num_torn == 0  # no row of a sector lies on two lines


def test_lanes_that_take_no_part_fetch_nothing() -> None:
    assert fetches(ROW, ROW, ROW < 64) == Fetches(64, 2, 2, 2, 1, 2, 1)


@given(
    pitch=st.integers(8, 300), start=st.integers(0, 40), num_rows=st.integers(1, 40), chunks=st.integers(1, 8)
)
def test_no_byte_is_fetched_less_than_once_or_more_than_twice(pitch: int, start: int, num_rows: int, chunks: int) -> None:
    found = row_fetches(16 * (start + pitch * np.arange(num_rows)), 16 * chunks)
    assert found.num_bytes == 16 * chunks * num_rows
    assert found.num_bytes <= 32 * found.num_sectors <= 2 * found.num_bytes
    assert num_rows <= found.num_requests <= 4 * num_rows and found.num_shared <= found.num_reads


@given(
    row=st.integers(0, 7), pitch=st.integers(8, 300), pad=st.integers(0, 4), start=st.integers(0, 40),
    chunks=st.sampled_from((4, 8)),
)
def test_no_sector_crosses_more_often_than_its_halves(row: int, pitch: int, pad: int, start: int, chunks: int) -> None:
    rows, byte = row + np.arange(32 // chunks)[:, None], 16 * np.arange(chunks)
    found = fetches((16 * (start + pitch * rows) + byte).reshape(-1), ((chunks + pad) * 16 * rows + byte).reshape(-1))
    assert found.num_bytes == 512 and 16 <= found.num_sectors <= found.num_reads <= found.num_crossing <= 32
    assert found.num_shared <= found.num_reads and found.num_shared_requests <= found.num_requests


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


# ---------------------------------------------------------------------- what comes beside what is asked for


@given(
    begins=st.lists(st.integers(0, 40).map(lambda sector: 32 * sector), min_size=1, max_size=4),
    pieces=st.lists(st.integers(1, 12).map(lambda sectors: 32 * sectors), min_size=1, max_size=6),
    block_bytes=st.sampled_from((32, 64, 128)),
)  # fmt: skip
def test_who_asks_first_for_any_of_a_block_brings_the_rest(begins: list[int], pieces: list[int], block_bytes: int) -> None:
    """Rows far apart, piece by piece: a block is fetched by the first piece that wants any of it."""
    edges = np.concatenate(([0], np.cumsum(pieces)))
    starts = sorted({begin % block_bytes for begin in begins})
    fetched, unasked = 0, 0
    for begin in starts:
        there: set[int] = set()
        for first, end in zip((begin + edges[:-1]).tolist(), (begin + edges[1:]).tolist(), strict=True):
            for block in range(first // block_bytes, (end - 1) // block_bytes + 1):
                if block not in there:
                    there.add(block)
                    wanted = min(end, (block + 1) * block_bytes) - max(first, block * block_bytes)
                    fetched, unasked = fetched + block_bytes, unasked + block_bytes - wanted
    assert unasked_fraction(np.array(begins), edges, block_bytes) == pytest.approx(unasked / fetched)


def test_pieces_that_fill_their_blocks_bring_nothing_unasked() -> None:
    assert unasked_fraction(np.array([0, 128]), np.arange(0, 1025, 128), 128) == 0.0
    assert unasked_fraction(np.array([48]), np.array([0, 16]), 32) == 0.0  # half a sector is a sector
