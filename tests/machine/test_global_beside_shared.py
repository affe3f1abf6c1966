"""Global accesses pass shared memory's data stage: beside its own accesses one by one, for nothing where it idles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.machine.config import load_gpu
from gpusim.machine.memory.smem import Smem, SmemCounters

TOY = load_gpu("toy")


def ready(passing: float, *, at_cycle: float) -> float:
    """When 100 wavefronts that begin at ``at_cycle`` are read, behind global accesses at cycle 0."""
    smem = Smem(TOY.smem, counters=SmemCounters())
    if passing:
        smem.pass_global(passing, at_cycle=0.0, weight=1.0)
    end, left = smem.load(100.0, registers_per_wavefront=0.01, at_cycle=at_cycle, weight=1.0)
    assert not left
    return smem.ready(end, wavefronts_per_warp=0.0, at_cycle=at_cycle)


@pytest.mark.parametrize(
    ("passing", "at_cycle", "by_hand"), [(0, 0, 100), (50, 0, 150), (50, 20, 130), (50, 60, 100), (300, 0, 200)]
)
def test_a_busy_stage_lets_one_pass_beside_each_wavefront(passing: float, at_cycle: float, by_hand: float) -> None:
    rate = TOY.smem.wavefronts_per_cycle
    assert rate == 1.0
    assert ready(passing, at_cycle=at_cycle) - at_cycle - (ready(0, at_cycle=0) - 100) == pytest.approx(by_hand)


def test_they_are_no_accesses_of_shared_memory() -> None:
    counters = SmemCounters()
    Smem(TOY.smem, counters=counters).pass_global(5.0, at_cycle=0.0, weight=1.0)
    assert counters.wavefronts == 0.0


@pytest.mark.parametrize("until", [-5.0, 0.0, 1.0, 40.0])
def test_loads_wait_until_copies_ahead_of_them_are_in_their_queue_and_not_for_those_behind(until: float) -> None:

    def end_of(is_before: bool) -> float:
        smem = Smem(TOY.smem, counters=SmemCounters())
        if is_before:
            smem.pass_rows(8.0, until=until, at_cycle=0.0, weight=1.0)
        end, _ = smem.load(8.0, registers_per_wavefront=1.0, at_cycle=0.0, weight=1.0)
        if not is_before:
            smem.pass_rows(8.0, until=until, at_cycle=0.0, weight=1.0)
        return end

    assert end_of(is_before=True) - end_of(is_before=False) == max(0.0, until)


def test_copies_that_wait_for_their_queue_and_commits_hold_back_what_is_behind_and_do_not_keep_the_stage_busy() -> None:
    smem = Smem(TOY.smem, counters=SmemCounters())
    smem.pass_rows(8.0, until=30.0, at_cycle=0.0, weight=1.0)
    smem.pass_commits(5.0, at_cycle=0.0, weight=1.0)
    assert smem.data.busy_cycles == 0.0
    assert smem.load(1.0, registers_per_wavefront=1.0, at_cycle=0.0, weight=1.0) == (36.0, 0.0)


@given(
    wavefronts=st.floats(1.0, 64.0), conflicts=st.integers(1, 8), until=st.floats(0.0, 200.0), behind=st.floats(1.0, 64.0)
)
def test_copies_come_while_the_stage_replays_conflicts_and_hold_back_what_is_behind_no_longer_for_them(
    wavefronts: float, conflicts: int, until: float, behind: float
) -> None:
    """Reads of so many wavefronts, each of them with so many ways of conflict; copies behind them; reads behind these."""
    smem = Smem(TOY.smem, counters=SmemCounters())
    smem.copy_rows(0.0, at_cycle=0.0, weight=1.0)
    smem.load(
        wavefronts * conflicts, registers_per_wavefront=1.0 / conflicts, at_cycle=0.0, weight=1.0, way_wavefronts=wavefronts
    )
    begin = smem.copy_rows(1.0, at_cycle=0.0, weight=1.0)
    assert begin == pytest.approx(wavefronts)
    smem.pass_rows(1.0, until=begin + until, at_cycle=0.0, weight=1.0)
    end, _ = smem.load(behind, registers_per_wavefront=1.0, at_cycle=0.0, weight=1.0)
    assert end == pytest.approx(max(wavefronts * conflicts, wavefronts + until) + behind)
    assert smem.data.busy_cycles <= smem.data.free_at + 1e-6


@pytest.mark.parametrize("row_wavefronts", [0.0, 0.5])
def test_rows_take_their_part_of_the_stage_and_of_the_way_there(row_wavefronts: float) -> None:
    smem = Smem(replace(TOY.smem, copied_row_wavefronts=row_wavefronts), counters=SmemCounters())
    assert smem.copy_rows(8.0, at_cycle=0.0, weight=1.0) == 0.0
    assert smem.copy_rows(8.0, at_cycle=0.0, weight=1.0) == 8.0 * row_wavefronts
    end, _ = smem.load(8.0, registers_per_wavefront=1.0, at_cycle=0.0, weight=1.0)
    assert (end, smem.data.busy_cycles) == (8.0 + 16.0 * row_wavefronts, 8.0 + 16.0 * row_wavefronts)


@pytest.mark.parametrize("is_store", [False, True])
def test_the_first_copy_finds_the_way_as_busy_as_the_stage_and_its_gaps_free(is_store: bool) -> None:
    """Ten wavefronts at 500 and, before the copy or behind it, four at 10."""

    def end_of(is_before: bool) -> float:
        smem = Smem(replace(TOY.smem, copied_row_wavefronts=0.5), counters=SmemCounters())
        smem.load(10.0, registers_per_wavefront=1.0, at_cycle=500.0, weight=1.0)
        if not is_before:
            assert smem.copy_rows(2.0, at_cycle=505.0, weight=1.0) == 510.0
        if is_store:
            return smem.store(4.0, at_cycle=10.0, weight=1.0)[0]
        return smem.load(4.0, registers_per_wavefront=1.0, at_cycle=10.0, weight=1.0)[0]

    assert end_of(is_before=True) == end_of(is_before=False) == 14.0


@pytest.mark.parametrize("is_store", [False, True])
def test_what_asks_again_beside_operand_reads_takes_the_way_once(is_store: bool) -> None:
    """As long as if no copy had ever come."""

    def end_of(is_way_watched: bool) -> float:
        smem = Smem(replace(TOY.smem, operand_store_wavefronts_per_cycle=1.0), counters=SmemCounters())
        if is_way_watched:
            smem.copy_rows(0.0, at_cycle=0.0, weight=1.0)
        end, left, is_again = 0.0, 200.0, False
        for turn in range(100):
            smem.read_operands(0.25, 0.25, 100.0 * (turn + 1))
            if is_store:
                end, left = smem.store(left, at_cycle=end, weight=1.0, is_again=is_again)
            else:
                end, left = smem.load(
                    left, registers_per_wavefront=1.0, at_cycle=end, weight=1.0, way_wavefronts=0.0 if is_again else None
                )
            if not left:
                return end
            is_again = True
        raise AssertionError

    assert end_of(is_way_watched=True) == pytest.approx(end_of(is_way_watched=False))
