"""Issue in order: stalls, waits for barriers, branches; by hand."""

from __future__ import annotations

import pytest

from gpusim.errors import ConfigError
from gpusim.evidence.toolchain.issue_latency import BESIDE_WGMMA, Latencies, issue_cycles, loop_cycles, way
from gpusim.evidence.toolchain.sass import Instruction, KernelSass
from gpusim.machine.config import load_gpu

ROUND = Latencies(
    special_register_cycles=30, constant_cycles=20, copy_operands_cycles=8, taken_branch_cycles=5, yield_cycles=40
)  # fmt: skip


def kernel(*items: Instruction) -> KernelSass:
    return KernelSass("k", items)


def item(address: int, opcode: str, operands: str = "", *, stall: int = 1, **others: object) -> Instruction:
    return Instruction(address, str(others.pop("predicate", "")), opcode, operands, stall, **others)  # type: ignore[arg-type]


LOOP = kernel(
    item(0x00, "S2UR", "UR4, SR_CgaCtaId", write_barrier=0),
    item(0x10, "UMOV", "UR5, 0x400", stall=2),
    item(0x20, "ULEA", "UR4, UR4, UR5, 0x18", stall=4, waits_for=frozenset({0})),
    item(0x30, "BRA", "0x50", stall=5, predicate="P0"),
    item(0x40, "UTMALDG.2D", "[UR4], [UR6]", read_barrier=1),
    item(0x50, "BRA", "0x0", stall=5, predicate="P1", waits_for=frozenset({1})),
    item(0x60, "EXIT"),
)


def taking(*answers: bool) -> list[tuple[Instruction, bool]]:
    left = list(answers)
    return list(way(LOOP, 0, 0, lambda _: left.pop(0)))


def test_a_way_stalls_waits_and_branches() -> None:
    # S2UR at 0 is there at 30; ULEA 4, BRA 5: the copy at 39, its operands are read at 47; BRA 5, and 5 as it is taken
    assert issue_cycles(taking(False, True), ROUND) == 30 + 4 + 5 + 8 + 5 + 5
    # past the copy: nobody waits for operands
    assert issue_cycles(taking(True, True), ROUND) == 30 + 4 + 5 + 5 + 5 + 5


def test_a_turn_behind_another_costs_the_same_where_nothing_is_left_over() -> None:
    assert loop_cycles(taking(False, True), ROUND) == issue_cycles(taking(False, True), ROUND)


def test_a_warp_that_yields_is_away() -> None:
    assert issue_cycles([(item(0, "YIELD"), False), (item(0x10, "NOP", stall=2), False)], ROUND) == 40 + 1 + 2


def test_a_wait_for_a_phase_succeeds_at_once_and_is_the_programs() -> None:
    tried = kernel(
        item(0x00, "SYNCS.PHASECHK.TRANS64.TRYWAIT", "P0, [UR4], R5", stall=2, write_barrier=0),
        item(0x10, "BRA", "0x30", stall=5, predicate="P0", waits_for=frozenset({0})),
        item(0x20, "BPT.TRAP", "0x1"),
        item(0x30, "EXIT"),
    )
    found = list(way(tried, 0, 0x30, lambda _: False))
    assert [(one.address, is_taken) for one, is_taken in found] == [(0, False), (0x10, True)]
    assert issue_cycles(found, ROUND) == 2 + 5 + 5


def test_ways_that_lead_nowhere_are_refused() -> None:
    with pytest.raises(ConfigError, match="no instruction at 0x8"):
        list(way(LOOP, 8, 0, lambda _: False))
    with pytest.raises(ConfigError, match="never comes to 0x70"):
        list(way(LOOP, 0, 0x70, lambda _: False))


def test_code_beside_wgmma_goes_at_the_paces_that_the_description_has() -> None:
    spec = load_gpu("h200_sxm").warp_scheduler
    assert BESIDE_WGMMA.least_cycles == spec.math_interval_during_wgmma_cycles
    assert BESIDE_WGMMA.wide_cycles == spec.imad_wide_during_wgmma_cycles
