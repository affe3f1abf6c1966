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


def test_copies_that_wait_for_their_queue_do_not_keep_the_stage_busy_and_commits_do() -> None:
    smem = Smem(TOY.smem, counters=SmemCounters())
    smem.pass_rows(8.0, until=30.0, at_cycle=0.0, weight=1.0)
    assert smem.data.busy_cycles == 0.0
    smem.pass_commits(5.0, at_cycle=0.0, weight=1.0)
    assert smem.data.busy_cycles == 5.0
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
    smem.load(wavefronts * conflicts, registers_per_wavefront=1.0 / conflicts, at_cycle=0.0, weight=1.0)
    begin = smem.copy_rows(1.0, at_cycle=0.0, weight=1.0)
    assert begin == pytest.approx(wavefronts)
    smem.pass_rows(1.0, until=begin + until, at_cycle=0.0, weight=1.0)
    end, _ = smem.load(behind, registers_per_wavefront=1.0, at_cycle=0.0, weight=1.0)
    assert end == pytest.approx(max(wavefronts * conflicts, wavefronts + until) + behind)


@pytest.mark.parametrize("row_wavefronts", [0.0, 0.5])
def test_rows_take_their_part_of_the_stage_and_of_the_way_there(row_wavefronts: float) -> None:
    smem = Smem(replace(TOY.smem, copied_row_wavefronts=row_wavefronts), counters=SmemCounters())
    assert smem.copy_rows(8.0, at_cycle=0.0, weight=1.0) == 0.0
    assert smem.copy_rows(8.0, at_cycle=0.0, weight=1.0) == 8.0 * row_wavefronts
    end, _ = smem.load(8.0, registers_per_wavefront=1.0, at_cycle=0.0, weight=1.0)
    assert (end, smem.data.busy_cycles) == (8.0 + 16.0 * row_wavefronts, 8.0 + 16.0 * row_wavefronts)
