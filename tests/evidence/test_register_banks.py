"""Turns that FFMAs take of their scheduler: a read a cycle of each of two banks, what is kept is not read."""

from __future__ import annotations

import pytest

from gpusim.evidence.toolchain.register_banks import bank_reads, file_reads
from gpusim.evidence.toolchain.sass import Instruction


def ffmas(*operands: str) -> list[Instruction]:
    """In order."""
    return [Instruction(0, "", "FFMA", each) for each in operands]


def test_what_is_marked_is_kept_for_the_next_ffma_in_the_same_place_alone() -> None:
    items = ffmas("R8, R0.reuse, R2, R8", "R9, R0, R3, R9", "R10, R0, R4, R10", "R11, R4.reuse, R0, R11", "R12, R1, R4, R12")
    assert file_reads(items) == [(3, 0), (0, 2), (3, 0), (2, 1), (2, 1)]


def test_what_stands_between_is_left_out_and_a_register_twice_is_read_once() -> None:
    items = [*ffmas("R8, R1.reuse, R3, R5"), Instruction(0, "", "LDS.128", "R16, [R20]"), *ffmas("R8, R1, R2, R2")]
    assert file_reads(items) == [(0, 3), (1, 0)]


@pytest.mark.parametrize(("operands", "turns"), [
    (("R9, R0, R1, RZ",), 1.0),  # one of each bank
    (("R9, R0, R2, R1",), 2.0), (("R9, R0, R2, R4",), 3.0),
    (("R8, R0, R2, R1", "R9, R1, R3, R0"), 1.5),  # three of each bank by two
    (("R8, R2, R4, RZ", "R9, R3, R5, RZ"), 1.0),  # in turn, within their window
])  # fmt: skip
def test_the_fuller_bank_sets_the_pace(operands: tuple[str, ...], turns: float) -> None:
    assert bank_reads(ffmas(*operands)) == pytest.approx(turns)


def test_without_ffmas_nothing_is_read_more_than_once() -> None:
    assert bank_reads([]) == 1.0


def test_two_warps_take_as_many_turns_as_one_where_all_ffmas_are_alike() -> None:
    items = ffmas("R9, R0, R2, R1")
    assert bank_reads(items, num_warps=2) == pytest.approx(bank_reads(items))
