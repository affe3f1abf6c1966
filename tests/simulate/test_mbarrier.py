"""mbarriers: a phase completes at the n-th arrival and the last byte, not before; then parity turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim import Mbarrier, Result
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .kernels import ends_of, expect, load, role, run, wait


def arriver(num_cycles: int) -> Any:
    """A role that arrives after so many cycles of arithmetic."""

    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(num_cycles)
        yield ops.MbarrierArrive("full", 0)

    return program


def loader(chunks: list[int], pauses: list[int]) -> Any:
    """Announces all bytes and asks for them, part by part."""

    def program(cta: RoleContext) -> Iterator[Any]:
        yield expect(0, 16 * sum(chunks))
        for step, (chunk, pause) in enumerate(zip(chunks, pauses, strict=False)):
            yield ops.Alu(pause)
            yield load(0, 16 * chunk, step=step)

    return program


def waiter(cta: RoleContext) -> Iterator[Any]:
    yield wait(0)


def phase(arrivals: list[int], chunks: list[int], pauses: list[int]) -> Result:
    """Of a barrier that expects these arrivals and, with one more, these bytes."""
    roles = [role(arriver(cycle), f"arriver{idx}") for idx, cycle in enumerate(arrivals)]
    full = (Mbarrier(name="full", num_arrivals=len(arrivals) + 1),)
    return run(*roles, role(loader(chunks, pauses), "loader"), role(waiter, "waiter"), mbarriers=full)


@settings(max_examples=40)
@given(
    arrivals=st.lists(st.integers(1, 900), max_size=3), chunks=st.lists(st.integers(1, 500), max_size=4),
    pauses=st.lists(st.integers(0, 100), min_size=4, max_size=4),
)  # fmt: skip
def test_whatever_the_order_a_phase_completes_at_its_last_arrival_or_byte(
    arrivals: list[int], chunks: list[int], pauses: list[int]
) -> None:
    found = phase(arrivals, chunks, pauses)
    came = [span.end_cycle for span in found.timeline.copies]
    assert len(came) == len(chunks)
    arrived = [ends_of(found, f"arriver{idx}")[0] for idx in range(len(arrivals))]
    (flip,) = found.timeline.flips
    assert flip.cycle == ends_of(found, "waiter")[0] == max([*came, *arrived, 0.0])


@pytest.mark.parametrize("count", [1, 2, 128])
def test_one_arrive_may_count_for_many_and_parity_alternates(count: int) -> None:
    """A barrier of twice so many arrivals: two arrivals a phase, 100 cycles apart."""

    def arrives(cta: RoleContext) -> Iterator[Any]:
        for _ in range(10):
            yield ops.Fma(100)
            yield ops.MbarrierArrive("full", 0, count=count)

    def waits(cta: RoleContext) -> Iterator[Any]:
        for turn in range(5):
            yield wait(0, turn & 1)

    full = (Mbarrier(name="full", num_arrivals=2 * count),)
    found = run(role(arrives, "arrives"), role(waits, "waits"), mbarriers=full).timeline.flips
    assert [flip.cycle for flip in found] == [200.0, 400.0, 600.0, 800.0, 1000.0]
    assert [flip.parity for flip in found] in ([0, 1, 0, 1, 0], [1, 0, 1, 0, 1])


def test_bytes_may_come_before_they_are_announced() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield load(0, 1024)
        yield ops.Fma(2000)
        yield expect(0, 1024)
        yield wait(0)

    found = run(program)
    assert found.timeline.copies[0].end_cycle < 2000.0 <= ends_of(found)[0] == found.timeline.flips[0].cycle
