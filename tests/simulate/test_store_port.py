"""Copies' requests behind an SM's stores, against closed forms: what is in the way, turns with packets, the last of many."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

import pytest

from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .kernels import LINE, changed, contiguous, expect, load, role, run, wait

RATE, HELD = 16.0, 1024.0
"""Bytes a cycle that leave an SM, bytes in the way; packets of stores are lines."""
TURN = LINE / RATE - LINE / 64.0
"""What a request waits for a packet, less what its line takes of the SM's port."""


def copy_cycles(
    stored_bytes: int, num_lines: int = 1, *, held: float = HELD, turns: float = 1.0, more: float = 0.0
) -> float:
    """Of a TMA load of so many lines that L2 has, behind a store that another role has begun."""
    gpu = changed(xbar={
        "store_in_flight_bytes": held, "sm_write_bytes_per_cycle": RATE,
        "request_interval_packets": turns, "request_wait_per_efold_fraction": more,
    })  # fmt: skip

    def storer(cta: RoleContext) -> Iterator[Any]:
        if stored_bytes:
            yield ops.GlobalStore("D", (0, 0), contiguous(stored_bytes))

    def loader(cta: RoleContext) -> Iterator[Any]:
        yield ops.Alu(40)
        yield expect(0, LINE * num_lines)
        yield load(0, LINE * num_lines, num_rows=num_lines)
        yield wait(0)

    (span,) = run(role(storer, "storer"), role(loader, "loader"), gpu=gpu).timeline.copies
    return span.end_cycle - span.start_cycle


def waited(stored_bytes: int, num_lines: int = 1, **told: float) -> float:
    return copy_cycles(stored_bytes, num_lines, **told) - copy_cycles(0, num_lines, **told)


@pytest.mark.parametrize("num_lines", [1, 10, 100])
def test_requests_wait_for_what_is_in_the_way_and_then_for_their_turns_with_packets(num_lines: int) -> None:
    assert waited(100_000, num_lines) == pytest.approx(HELD / RATE + num_lines * TURN, abs=0.5)


def test_nobody_waits_once_all_have_left() -> None:
    assert waited(256) == 0.0


def test_no_more_turns_are_waited_for_than_packets_are_left() -> None:
    """A store of 8 KiB is 64 of them, some of which have left when the copy asks; the way could hold more."""
    some, many = waited(8192, 64, held=1e5), waited(8192, 256, held=1e5)
    assert some == many < 8192 / RATE + 64 * TURN


def test_where_packets_pass_sooner_than_lines_come_turns_cost_nothing() -> None:
    assert waited(100_000, 100, turns=0.2) == pytest.approx(HELD / RATE, abs=0.5)


def test_the_last_of_many_waits_longer_by_the_logarithm() -> None:
    assert waited(100_000, 128, turns=0.2, more=0.2) == pytest.approx(HELD / RATE * (1.0 + 0.2 * log(128)), abs=0.5)


def test_a_way_that_holds_nothing_costs_nothing() -> None:
    assert waited(100_000, 8, held=0.0, turns=0.0, more=0.5) == 0.0
