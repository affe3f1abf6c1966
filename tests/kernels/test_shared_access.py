"""The patterns that are to be measured: drawn alike every time, legal, as varied as the README says, and checked."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest

from gpusim.evidence.cases.case import Output, WrongAnswer, load_case
from gpusim.machine.config import load_gpu
from gpusim.workload.smem.smem_ops import SMEM_OPS

from . import warp

CASE = load_case("shared_access")
TOY = load_gpu("toy")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of


def test_every_op_is_in_a_group_of_sixty_and_wide_loads_of_four_hundred() -> None:
    halves = ("half", "halves", "asleep")
    counts = Counter(config["kernel"] for group in CASE.groups if group not in halves for config in CASE.configs(group, 1))
    assert set(counts) == set(case.OPS) and len(case.OPS) == 53
    assert all(count == (400 if op in case.WIDE else 60) for op, count in counts.items())
    assert {config["kernel"] for group in halves for config in CASE.configs(group, 1)} == {"ld_shared_b128"}


def test_half_warps_are_asked_alone_together_and_with_sleepers() -> None:
    masks = {
        group: [case.pattern_of(typed(config)).active for config in CASE.configs(group, 1)] for group in ("half", "halves")
    }
    assert {(bool(mask[:16].any()), bool(mask[16:].any())) for mask in masks["half"]} == {(True, False), (False, True)}
    assert all(mask[:16].any() and mask[16:].any() for mask in masks["halves"])
    asleep = [case.pattern_of(typed(config)) for config in CASE.configs("asleep", 1)]
    assert {bool(pattern.active[31]) for pattern in asleep} == {True, False}
    for pattern in asleep:  # both lanes of a pair that are awake agree, so that sleepers alone decide
        assert not pattern.active[:16].all()
        lanes = np.arange(16)
        assert any(
            all(
                pattern.addresses[lane] == pattern.addresses[lane ^ d] or not pattern.active[[lane, lane ^ d]].all()
                for lane in lanes
            )
            for d in (1, 2)
        )
        for half in (slice(0, 16), slice(16, 32)):
            vectors = np.unique(pattern.addresses[half][pattern.active[half]] // 16)
            assert len(set((vectors % 8).tolist())) == len(vectors)


def test_the_simulator_knows_every_op() -> None:
    assert set(case.OPS) <= set(SMEM_OPS)


@pytest.mark.parametrize("op", case.OPS)
def test_patterns_are_aligned_inside_the_buffer_and_drawn_alike(op: str) -> None:
    size = case.access_bytes(op)
    drawn = case.patterns(op, count=40, seed=7)
    for pattern, again in zip(drawn, case.patterns.__wrapped__(op, count=40, seed=7), strict=True):
        assert np.array_equal(pattern.addresses, again.addresses) and np.array_equal(pattern.active, again.active)
        assert (pattern.addresses % size == 0).all()
        assert pattern.addresses.min() >= 0 and pattern.addresses.max() + size <= case.SMEM_BYTES
        assert pattern.active.any()
        assert pattern.active.all() or "matrix" not in op
    others = case.patterns(op, count=40, seed=8)
    assert any((one.addresses != two.addresses).any() for one, two in zip(drawn, others, strict=True))


@pytest.mark.parametrize("op", case.WIDE)
@pytest.mark.parametrize("seed", [1, 2])
def test_half_of_the_wide_loads_could_merge_in_part(op: str, seed: int) -> None:
    """Neither the least nor the plain rule's count is the only answer that one could think of."""
    drawn = case.patterns(op, count=400, seed=seed)
    assert sum(case.is_between(pattern) for pattern in drawn) >= 200
    for pattern in drawn[1::2]:
        assert case.is_between(pattern)


@pytest.mark.parametrize("op", case.WIDE)
def test_lanes_of_wide_loads_are_alike_in_pairs_in_many_patterns_and_unlike_in_many(op: str) -> None:
    lanes = np.arange(32)
    paired = sum(
        any(
            ((drawn.addresses == drawn.addresses[lanes ^ d]) | ~(drawn.active & drawn.active[lanes ^ d])).all()
            for d in (1, 2)
        )
        for drawn in case.patterns(op, count=400, seed=1)
    )
    assert 30 <= paired <= 370


@pytest.mark.parametrize("op", ["atom_shared_add_b32", "atom_shared_cas_b64", "red_shared_max_b32"])
def test_atomics_meet_same_words_same_banks_and_both(op: str) -> None:
    seen: Counter[str] = Counter()
    words_of: Counter[tuple[int, int]] = Counter()
    for pattern in case.patterns(op, count=60, seed=1):
        active = pattern.addresses[pattern.active] // 4
        words, lanes = np.unique(active, return_counts=True)
        shares_word = lanes.max() > 1
        shares_bank = np.bincount(words % 32).max() > 1
        seen[f"{shares_word}{shares_bank}"] += 1
        if pattern.active.all() and (lanes == lanes[0]).all():
            words_of[len(words), int(lanes[0])] += 1
    assert all(seen[kind] >= 4 for kind in ("TrueFalse", "FalseTrue", "TrueTrue")) and seen["FalseFalse"] >= 1
    assert any(lanes == 8 for _, lanes in words_of) and any(lanes == 1 for _, lanes in words_of)


def test_some_patterns_have_just_two_lanes_on_a_word() -> None:
    found = 0
    for pattern in case.patterns("atom_shared_add_b32", count=60, seed=1):
        _, lanes = np.unique(pattern.addresses[pattern.active], return_counts=True)
        found += int(lanes.max() == 2 and (lanes == 2).sum() == 1)
    assert found >= 1


@pytest.mark.parametrize("op", case.OPS)
def test_a_config_says_the_whole_pattern(op: str) -> None:
    for idx, pattern in enumerate(case.patterns(op, count=10, seed=3)):
        again = case.pattern_of(typed(case.config_of(pattern, idx)))
        assert again.op == op and np.array_equal(again.addresses, pattern.addresses)
        assert np.array_equal(again.active, pattern.active)


@pytest.mark.parametrize("op", case.OPS)
def test_right_answers_pass_in_any_order_of_lanes_and_one_wrong_byte_does_not(op: str) -> None:
    for idx, pattern in enumerate(case.patterns(op, count=8, seed=5)):
        config = case.config_of(pattern, idx)
        for order in (1, 2):
            outputs = warp.run_shared(config, order)
            assert CASE.check(config, outputs) == {}
        lane = int(np.flatnonzero(pattern.active)[0])
        name, place = ("out", (lane, 0)) if op.startswith("ld") else ("dump", int(pattern.addresses[lane]))
        outputs[name][place] ^= 0x40
        with pytest.raises(WrongAnswer):
            CASE.check(config, outputs)


def test_the_counted_launch_touches_nothing_else_but_where_a_compare_must_succeed() -> None:
    for group in CASE.groups:
        for config in CASE.configs(group, 1)[::17]:
            mode = int(CASE.launch(config, True).arguments[2])
            assert mode == (case.FILL if config["is_filled"] == "1" else 0)
            assert config["is_filled"] == "0" or "_cas_" in config["kernel"]
            assert int(CASE.launch(config, False).arguments[2]) != 0


def test_a_fill_is_in_the_predicted_count() -> None:
    plain, filled = (
        {**case.config_of(case.patterns("atom_shared_cas_b32", count=2, seed=1)[0], 0), "is_filled": flag} for flag in "01"
    )
    assert CASE.predict(filled, TOY)[case.COUNTED] - CASE.predict(plain, TOY)[case.COUNTED] == 32768 / 128


def test_outputs_are_poisoned_so_that_what_is_not_written_shows() -> None:
    config = CASE.configs("wide", 1)[0]
    poisons = [item.array for item in CASE.launch(config, False).arguments if isinstance(item, Output)]
    assert all((array == 0xA5).all() for array in poisons)
