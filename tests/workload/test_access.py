"""Wavefronts, sectors and boxes: laws, answers worked out by hand, and refusals."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpusim.errors import KernelError, LayoutError
from gpusim.evidence.validate.microbenchmark_programs import strided_addresses
from gpusim.layout import Swizzle, swizzle_mode
from gpusim.workload.atoms import mma_sync, wgmma
from gpusim.workload.dtypes import BF16, FP8, FP32, INT8, TF32, DType
from gpusim.workload.gmem.global_access import TAG_HASHES, global_access, tag_hash_of, tag_wavefronts
from gpusim.workload.operands import OperandTile, cp_async_fill, epilogue_store, ldmatrix_reads, stmatrix_writes, tma_boxes
from gpusim.workload.smem.access import AccessPattern, data_wavefronts, lane_groups, loop_rounds, wavefronts
from gpusim.workload.smem.smem_ops import SMEM_OPS
from gpusim.workload.smem.wgmma_operands import wgmma_wavefronts
from gpusim.workload.tma.boxes import TmaBox, tma_fill

VALIDATION = Path(__file__).resolve().parents[2] / "validation"
LANES = np.arange(32)
LOADS = {4: "ld_shared_b32", 8: "ld_shared_b64", 16: "ld_shared_b128"}
BY_LANE_OPS = sorted(name for name, rule in SMEM_OPS.items() if not rule.is_collective)


def words_of(op: str, address: int) -> set[int]:
    return {byte // 4 for byte in range(address, address + SMEM_OPS[op].access_bytes)}


def are_paired(addresses: list[int], active: list[bool], lanes: range, distance: int, sleepers: str) -> bool:
    """Every lane and the one ``distance`` away want the same; inactive ones ``agree`` with any, or ``sleep together``."""
    def agree(lane: int, other: int) -> bool:
        if active[lane] and active[other]:
            return addresses[lane] == addresses[other]
        return sleepers == "agree" or active[lane] == active[other]

    return sleepers == "any" or all(agree(lane, lane ^ distance) for lane in lanes)


def queue_of(op: str, addresses: list[int], lanes: list[int]) -> int:
    """What the busiest bank serves: distinct words, or words of all lanes of an atomic."""
    banks: dict[int, list[int]] = {}
    for lane in lanes:
        for word in words_of(op, addresses[lane]):
            banks.setdefault(word % 32, []).append(word)
    queues = op.startswith(("atom_shared", "red_shared", "cp_async"))
    return max((len(words) if queues else len(set(words)) for words in banks.values()), default=0)


def loop_rule(size: int, addresses: list[int], active: list[bool]) -> int:
    """A loop: all load; of each phase the first lane of each bank swaps; a word that has just changed is tried again."""
    left, total, width = [lane for lane in range(32) if active[lane]], 0, min(32, 128 // size)
    while left:
        total += bank_rule(LOADS[size], addresses, [lane in left for lane in range(32)])
        changed: set[int] = set()
        for first in range(0, 32, width):
            tries: dict[int, int] = {}
            for lane in [lane for lane in range(first, first + width) if lane in left]:
                tries.setdefault(addresses[lane] // size % width, lane)
            total += 2 * bool(tries)
            won = [lane for lane in tries.values() if addresses[lane] not in changed]
            changed |= {addresses[lane] for lane in won}
            left = [lane for lane in left if lane not in won]
    return total


def bank_rule(op: str, addresses: list[int], active: list[bool]) -> int:
    """The published definition, by the word: NVIDIA developer forum 260900; merged wide loads, atomics that queue or loop
    and compare-and-swaps that pass twice as an H200 counts them.
    """
    rule = SMEM_OPS[op]
    if rule.is_loop:
        return loop_rule(rule.access_bytes, addresses, active)
    width, total = rule.lanes_per_phase, 0
    firsts = range(0, rule.num_lanes, width)
    asked = {first: [lane for lane in range(first, first + width) if active[lane]] for first in firsts}
    is_wide = op in ("ld_shared_b64", "ld_shared_b128")
    for first in range(0, rule.num_lanes, 2 * width if is_wide else width):
        if not is_wide:
            total += queue_of(op, addresses, asked[first])
            continue
        lanes = range(first, first + 2 * width)
        merged = queue_of(op, addresses, asked[first] + asked[first + width])
        sleepers = "agree" if first + 2 * width == 32 else "any" if not active[31] else "sleep together"
        if merged <= 1 and any(are_paired(addresses, active, lanes, d, sleepers) for d in (1, 2)):
            total += merged
        else:
            total += queue_of(op, addresses, asked[first]) + queue_of(op, addresses, asked[first + width])
    return 2 * total if "_cas_" in op else total


@st.composite
def accesses(draw: st.DrawFn) -> tuple[str, list[int]]:
    """An op and 32 addresses, aligned for it, sometimes crowded and sometimes spread."""
    op = draw(st.sampled_from(sorted(SMEM_OPS)))
    top = draw(st.sampled_from((3, 40, 2000)))
    units = draw(st.lists(st.integers(0, top), min_size=32, max_size=32))
    pair = draw(st.sampled_from((0, 0, 1, 2)))
    units = [units[lane & ~pair] for lane in range(32)]
    return op, [unit * SMEM_OPS[op].access_bytes for unit in units]


@given(access=accesses(), active=st.lists(st.booleans(), min_size=32, max_size=32))
def test_wavefronts_are_those_of_the_bank_rule(access: tuple[str, list[int]], active: list[bool]) -> None:
    op, addresses = access
    if SMEM_OPS[op].is_collective:
        active = [True] * 32
    assert wavefronts(op, np.array(addresses), np.array(active)) == bank_rule(op, addresses, active)


@given(access=accesses())
def test_wavefronts_lie_between_one_a_phase_and_one_a_lane(access: tuple[str, list[int]]) -> None:
    op, addresses = access
    rule = SMEM_OPS[op]
    fewest = rule.num_phases // (2 if rule.merges_phases else 1)
    rounds = 32 * (32 + 2 * rule.num_phases) if rule.is_loop else rule.num_passes * rule.num_lanes
    assert fewest <= wavefronts(op, np.array(addresses)) <= rounds


@given(access=accesses(), data=st.data())
def test_lanes_of_a_phase_may_change_places(access: tuple[str, list[int]], data: st.DataObject) -> None:
    """Unless pairs make phases merge: then only whole quads may; in a loop, the first lane of a bank swaps first."""
    op, addresses = access
    assume(not SMEM_OPS[op].is_loop)
    block = 4 if SMEM_OPS[op].merges_phases else 1
    width = SMEM_OPS[op].lanes_per_phase
    order = [
        lane
        for phase in range(0, 32, width)
        for first in data.draw(st.permutations(range(phase, phase + width, block)))
        for lane in range(first, first + block)
    ]
    assert wavefronts(op, np.array(addresses)[order]) == wavefronts(op, np.array(addresses))


@given(access=accesses(), rows=st.integers(0, 1000))
def test_moving_all_lanes_by_whole_rows_of_banks_changes_nothing(
    access: tuple[str, list[int]], rows: int
) -> None:
    op, addresses = access
    assert wavefronts(op, np.array(addresses) + 128 * rows) == wavefronts(op, np.array(addresses))


@given(batch=st.lists(accesses(), min_size=1, max_size=4))
def test_a_batch_is_counted_warp_by_warp(batch: list[tuple[str, list[int]]]) -> None:
    op = "ld_shared_b128"
    addresses = np.array([lanes for _, lanes in batch]).reshape(-1, 1, 32) // 16 * 16
    counted = wavefronts(op, addresses)
    assert counted.shape == (len(batch), 1)
    assert counted.dtype == np.int64
    assert counted[:, 0].tolist() == [int(wavefronts(op, lanes)) for lanes in addresses[:, 0]]


def test_a_batch_larger_than_one_step_is_counted_whole() -> None:
    strides = np.arange(40_000) % 32 + 1
    counted = wavefronts("ld_shared_b32", 4 * strides[:, None] * LANES)
    assert np.array_equal(counted, np.gcd(strides, 32))


def test_an_empty_batch_has_no_wavefronts() -> None:
    assert wavefronts("ld_shared_b32", np.empty((0, 32), dtype=np.int64)).shape == (0,)
    assert wavefronts("ldmatrix_x4", np.empty((0, 32), dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("stride", range(1, 65))
def test_floats_at_stride_s_conflict_gcd_of_s_and_32_ways(stride: int) -> None:
    assert wavefronts("ld_shared_b32", 4 * stride * LANES) == math.gcd(stride, 32)


@pytest.mark.parametrize("op", BY_LANE_OPS)
def test_one_address_for_all_lanes_is_the_least_that_an_op_can_take_and_the_most_for_atomics(op: str) -> None:
    rule = SMEM_OPS[op]
    if rule.is_loop:
        # a lane a round; two wavefronts for each phase that is left
        expected = 32 + 2 * (2 * 16 + 16 if rule.access_bytes == 8 else 32)
    elif not rule.is_broadcasting:
        expected = 32 * rule.num_passes
    elif rule.merges_phases:
        expected = rule.num_phases // 2
    else:
        expected = rule.num_phases
    assert wavefronts(op, np.full(32, 64)) == expected


@pytest.mark.parametrize("op", BY_LANE_OPS)
def test_neighbouring_lanes_use_every_wavefront_fully(op: str) -> None:
    rule = SMEM_OPS[op]
    fewest = max(1, 32 * rule.access_bytes // 128)
    assert wavefronts(op, rule.access_bytes * LANES) == (3 * fewest if rule.is_loop else rule.num_passes * fewest)


def test_bytes_of_one_word_do_not_conflict() -> None:
    assert wavefronts("st_shared_b8", LANES) == 1
    assert wavefronts("st_shared_b8", 128 * LANES) == 32
    assert (
        wavefronts("ld_shared_b16", 64 * LANES) == 16
    )  # two rows of banks apart, so 16 words in each of two banks


@pytest.mark.parametrize("size", [8, 16])
def test_wide_accesses_conflict_inside_a_phase_only(size: int) -> None:
    lanes_per_phase = 128 // size
    same_bank_in_different_phases = LANES % lanes_per_phase * size + LANES // lanes_per_phase * 128
    assert wavefronts(LOADS[size], same_bank_in_different_phases) == size // 4
    assert wavefronts(LOADS[size], 128 * LANES) == 32


PUBLISHED = [
    row
    for row in csv.DictReader((VALIDATION / "published" / "shared_wavefronts.csv").read_text().splitlines())
    if row["says"] == "counted"
]


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["case"])
def test_published_counts_of_wide_loads_are_ours(row: dict[str, str]) -> None:
    lanes = [int(text) for text in row["lanes"].split()] if row["lanes"] != "all" else list(range(32))
    addresses = np.zeros(32, dtype=np.int64)
    addresses[lanes] = SMEM_OPS[row["op"]].access_bytes * np.array([int(text) for text in row["vectors"].split()])
    assert data_wavefronts(row["op"], addresses, np.isin(LANES, lanes)) == int(row["wavefronts"])


@given(access=accesses(), active=st.lists(st.booleans(), min_size=32, max_size=32))
def test_both_counters_agree_but_for_wide_loads(access: tuple[str, list[int]], active: list[bool]) -> None:
    op, addresses = access
    mask = np.array([True] * 32 if SMEM_OPS[op].is_collective else active)
    rule = SMEM_OPS[op]
    assume(not rule.merges_phases and not (rule.is_loop and rule.access_bytes == 8))
    assert data_wavefronts(op, np.array(addresses), mask) == wavefronts(op, np.array(addresses), mask)


def test_the_data_stage_merges_with_conflicts_where_the_whole_warp_is_paired() -> None:
    crowded = 1024 * (LANES // 2 % 4) + 16 * (LANES // 8)
    assert wavefronts("ld_shared_b128", crowded) == 16
    assert data_wavefronts("ld_shared_b128", crowded) == 8
    mixed = 16 * np.where(LANES < 16, LANES // 2 % 8, LANES // 4 * 2 % 8 + LANES % 2)  # a half by i ^ 1, the other by i ^ 2
    assert wavefronts("ld_shared_b128", mixed) == 2
    assert data_wavefronts("ld_shared_b128", mixed) == 4


def test_lanes_of_cp_async_queue_where_they_read_and_where_they_write() -> None:
    side_by_side, columns = 8 * LANES, 128 * (LANES % 4) + 8 * (LANES // 4)
    assert wavefronts("cp_async_b64", side_by_side) == 2
    assert wavefronts("cp_async_b64", side_by_side, None, side_by_side + 40) == 2
    assert wavefronts("cp_async_b64", side_by_side, None, 128 * LANES) == 32
    assert wavefronts("cp_async_b64", columns, None, side_by_side) == 8
    assert wavefronts("cp_async_b64", side_by_side, LANES < 4, 128 * LANES) == 4
    batch = wavefronts("cp_async_b64", np.stack([side_by_side] * 3)[:, None], None, np.stack([128 * LANES] * 3)[:, None])
    assert batch.tolist() == [[32]] * 3
    with pytest.raises(LayoutError, match=r"ld_shared_b64: is given sources, which only cp\.async has: leave them out"):
        wavefronts("ld_shared_b64", side_by_side, None, side_by_side)
    with pytest.raises(LayoutError, match=r"cp_async_b64, sources: lane 1 has byte address 4: use a multiple of 8"):
        wavefronts("cp_async_b64", side_by_side, None, 4 * LANES)
    with pytest.raises(LayoutError, match=r"sources have shape \(2, 32\): use \(32,\)"):
        wavefronts("cp_async_b64", side_by_side, None, np.stack([side_by_side] * 2))


@given(access=accesses(), active=st.lists(st.booleans(), min_size=32, max_size=32))
def test_groups_hold_the_lanes_that_ask_and_their_wavefronts_add_up(
    access: tuple[str, list[int]], active: list[bool]
) -> None:
    op, addresses = access
    rule = SMEM_OPS[op]
    mask = np.array([True] * 32 if rule.is_collective else active)
    groups = lane_groups(op, np.array(addresses), mask)
    assert ((groups >= 0) == (mask & (rule.num_lanes > LANES))).all()
    if rule.is_loop:
        assert set(groups.tolist()) <= {0, -1}
        rounds = loop_rounds(op, np.array(addresses), mask)
        assert ((rounds > 0) == mask).all()
        return
    total = 0
    for group in set(groups[groups >= 0].tolist()):
        banks: dict[int, list[int]] = {}
        for lane in np.flatnonzero(groups == group):
            for word in words_of(op, addresses[lane]):
                banks.setdefault(word % 32, []).append(word)
        total += max(len(set(words)) if rule.is_broadcasting else len(words) for words in banks.values())
    assert rule.num_passes * total == wavefronts(op, np.array(addresses), mask)


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize("distance", [1, 2])
def test_either_kind_of_pair_merges_phases_and_no_other_does(size: int, distance: int) -> None:
    op, full = LOADS[size], 32 * size // 128
    paired = LANES // (2 * distance) * distance + LANES % distance  # sixteen neighbouring vectors, each for two lanes
    assert wavefronts(op, size * paired) == full // 2
    assert wavefronts(op, size * (LANES // 8 * 4 + LANES % 4)) == full
    one_off = size * paired
    one_off[distance] += size
    assert wavefronts(op, one_off) > full // 2
    one_off = np.roll(one_off, 16)
    alone = np.ones(32, dtype=bool)
    alone[16 + distance] = False  # and the lane that differs is switched off, in the last lanes that merge
    assert wavefronts(op, one_off, alone) == full // 2


def test_pairs_of_the_lower_half_sleep_together_or_lane_31_sleeps() -> None:
    """Counted on an H200: what keeps the lanes 0 to 15 of a 16-byte load from being served at once."""
    paired, apart = 16 * (LANES // 2 % 8), 16 * (LANES % 8)
    awake = np.ones(32, dtype=bool)
    assert wavefronts("ld_shared_b128", paired) == 2
    assert wavefronts("ld_shared_b128", paired, awake & (LANES != 3)) == 3
    assert wavefronts("ld_shared_b128", paired, awake & (LANES // 2 != 3)) == 2
    assert wavefronts("ld_shared_b128", apart, awake & (LANES != 31)) == 3
    assert wavefronts("ld_shared_b128", apart, LANES < 16) == 1
    assert wavefronts("ld_shared_b128", apart, LANES >= 16) == 2


@given(bit=st.integers(0, 34), other=st.integers(0, 34), tag_hash=st.sampled_from(sorted(TAG_HASHES)))
def test_every_bit_of_a_line_number_moves_its_tag_bank(bit: int, other: int, tag_hash: str) -> None:
    lanes = np.zeros(32, dtype=np.int64)
    lanes[1] = 128 << bit
    assert tag_wavefronts(lanes, tag_hash=tag_hash) == 1  # another bank than line 0
    moves = [TAG_HASHES[tag_hash][i] if i < 14 else 1 + i % 2 for i in (bit, other)]
    lanes[1] ^= 128 << other
    assert tag_wavefronts(lanes, tag_hash=tag_hash) == (1 if bit == other or moves[0] != moves[1] else 2)


def test_a_tag_hash_is_known_by_its_gpu_or_refused() -> None:
    assert (tag_hash_of(8.0), tag_hash_of(9.0)) == ("ampere", "hopper")
    with pytest.raises(LayoutError, match=r"compute capability 10.0 is not known: use 8.0 or 9.0"):
        tag_hash_of(10.0)
    with pytest.raises(LayoutError, match=r"'hoper' is unknown; did you mean 'hopper'"):
        tag_wavefronts(LANES, tag_hash="hoper")


def test_stores_do_not_merge_phases() -> None:
    assert wavefronts("st_shared_b128", np.zeros(32, dtype=np.int64)) == 4
    assert wavefronts("ld_shared_b128", np.zeros(32, dtype=np.int64)) == 2


@pytest.mark.parametrize(("op", "ways"), [("red_shared_b32", (4, 32, 8)), ("atom_shared_exch_b64", (4, 32, 8))])
def test_lanes_of_an_atomic_that_want_one_word_queue(op: str, ways: tuple[int, int, int]) -> None:
    size = SMEM_OPS[op].access_bytes
    quads, all_lanes, pairs_of_rows = ways
    halves = 1 if size == 4 else 2
    assert wavefronts(op, size * (LANES // 4)) == quads * halves
    assert wavefronts(op, np.zeros(32, dtype=np.int64)) == all_lanes
    assert wavefronts(op, 128 * (LANES % 8) + size * (LANES // 8)) == pairs_of_rows * halves


def test_the_verbless_atomic_is_the_add() -> None:
    assert SMEM_OPS["red_shared_b32"].access_bytes == SMEM_OPS["red_shared_add_b32"].access_bytes
    assert "red_shared_exch_b32" not in SMEM_OPS


def test_addresses_of_either_width_count_alike() -> None:
    few = 16 * np.random.default_rng(0).integers(0, 500, (50, 32))
    far = few + (1 << 40)
    for op in ("ld_shared_b32", "ld_shared_b128", "atom_shared_b64"):
        assert np.array_equal(wavefronts(op, few.astype(np.int32)), wavefronts(op, few))
        assert np.array_equal(wavefronts(op, far), wavefronts(op, few))


TAG_ROWS = list(csv.DictReader((VALIDATION / "published" / "tag_wavefronts.csv").read_text().splitlines()))


@pytest.mark.parametrize(("gpu", "tag_hash", "num_rows"), [("a100", "ampere", 144), ("h200", "hopper", 46)])
def test_tag_wavefronts_are_the_published_counters_to_the_last_digit(gpu: str, tag_hash: str, num_rows: int) -> None:
    rows = [row for row in TAG_ROWS if row["gpu"] == gpu]
    assert len(rows) == num_rows
    for row in rows:
        addresses, counted = strided_addresses(row, tag_hash), row["tag_wavefronts"]
        said = float(tag_wavefronts(addresses, tag_hash=tag_hash).mean())
        assert abs(said - float(counted)) <= 0.5 * 10.0 ** -len(counted.partition(".")[2]) + 1e-9, row


@given(lines=st.lists(st.integers(0, 1 << 20), min_size=32, max_size=32), row=st.integers(0, 1 << 20))
def test_tags_of_different_banks_go_together_and_those_of_one_queue(lines: list[int], row: int) -> None:
    addresses = 128 * np.array(lines)
    distinct = len(set(lines))
    found = int(tag_wavefronts(addresses))
    assert math.ceil(distinct / 4) <= found <= distinct
    one_aligned_quad = 128 * (4 * row + LANES % 4)
    assert tag_wavefronts(one_aligned_quad) == 1


def test_every_rule_says_what_it_rests_on() -> None:
    for rule in SMEM_OPS.values():
        assert rule.evidence.split(":")[0] in ("guess", "published", "measured", "inferred") or "seen exact" in rule.evidence


def test_inactive_lanes_cost_nothing_and_may_hold_any_address() -> None:
    addresses = np.where(LANES < 8, 128 * LANES, -3)
    assert wavefronts("ld_shared_b32", addresses, LANES < 8) == 8
    assert wavefronts("ld_shared_b128", 16 * LANES, LANES < 8) == 1
    assert wavefronts("ld_shared_b32", addresses, np.zeros(32, dtype=bool)) == 0


def test_one_mask_serves_a_batch() -> None:
    addresses = np.stack([4 * LANES, 128 * LANES])
    assert wavefronts("ld_shared_b32", addresses, LANES < 2).tolist() == [1, 2]


def test_ldmatrix_looks_at_the_lanes_of_its_matrices_only() -> None:
    rows = np.where(LANES < 8, 16 * LANES, 7)
    assert wavefronts("ldmatrix_x1", rows) == 1
    with pytest.raises(LayoutError, match="lane 8 has byte address 7"):
        wavefronts("ldmatrix_x2", rows)


@pytest.mark.parametrize("verb", ["ldmatrix", "stmatrix"])
@pytest.mark.parametrize("trans", ["", "_trans"])
@pytest.mark.parametrize("num_matrices", [1, 2, 4])
def test_each_matrix_costs_the_conflicts_of_its_own_rows(verb: str, trans: str, num_matrices: int) -> None:
    one_matrix_at_each_degree = np.concatenate([16 * degree * np.arange(8) for degree in (1, 2, 4, 8)])
    expected = sum((1, 2, 4, 8)[:num_matrices])
    assert wavefronts(f"{verb}_x{num_matrices}{trans}", one_matrix_at_each_degree) == expected


def worst_matrix(row_bytes: int, swizzle: Swizzle, unit_bytes: int) -> int:
    """The most wavefronts of any 8 x 16-byte matrix; the swizzle counts in units of ``unit_bytes``."""
    first_rows, columns = np.meshgrid(8 * np.arange(16), 16 * np.arange(row_bytes // 16))
    plain = (first_rows.reshape(-1, 1) + np.arange(8)) * row_bytes + columns.reshape(-1, 1)
    swizzled = swizzle(plain // unit_bytes) * unit_bytes
    lanes = np.concatenate([swizzled, np.zeros((len(swizzled), 24), dtype=np.int64)], axis=1)
    return int(wavefronts("ldmatrix_x1", lanes).max())


@pytest.mark.parametrize(
    ("row_bytes", "swizzle", "unit_bytes", "ways"),
    [
        (32, Swizzle(0, 3, 3), 2, 2),
        (32, Swizzle(1, 3, 3), 2, 1),
        (32, Swizzle(2, 3, 3), 2, 1),
        (32, Swizzle(3, 3, 3), 2, 1),
        (64, Swizzle(0, 3, 3), 2, 4),
        (64, Swizzle(2, 3, 3), 2, 1),
        (64, Swizzle(3, 3, 3), 2, 1),
        (64, Swizzle(3, 4, 3), 2, 2),
        (128, Swizzle(0, 3, 3), 2, 8),
        (128, Swizzle(2, 3, 3), 2, 2),
        (128, Swizzle(3, 3, 3), 2, 1),
        (128, Swizzle(3, 4, 3), 2, 2),
        (128, Swizzle(3, 4, 3), 1, 1),
        (256, Swizzle(0, 3, 3), 2, 8),
        (256, Swizzle(3, 3, 3), 2, 2),
        (256, Swizzle(3, 3, 4), 2, 1),
    ],
)
def test_ldmatrix_conflicts_are_those_of_the_facts(
    row_bytes: int, swizzle: Swizzle, unit_bytes: int, ways: int
) -> None:
    """Facts 7.4: 16-bit elements; the unit is 2 where the swizzle counts elements, 1 where bytes."""
    assert worst_matrix(row_bytes, swizzle, unit_bytes) == ways


@pytest.mark.parametrize(
    ("op", "addresses", "active", "sentence"),
    [
        ("ld_shared_b33", LANES, None, "did you mean"),
        ("ld_shared_b64", 4 * LANES, None, "lane 1 has byte address 4: use a multiple of 8"),
        ("ld_shared_b32", -4 * LANES, None, "lane 1 has byte address -4"),
        ("ld_shared_b32", np.arange(31), None, "give 32 lanes"),
        ("ld_shared_b32", np.array(4), None, "give 32 lanes"),
        ("ld_shared_b32", 4.0 * LANES, None, "use integers"),
        ("ld_shared_b32", 4 * LANES, np.ones(31, dtype=bool), "active has shape"),
        ("ldmatrix_x1", 16 * LANES, LANES < 8, "all 32 lanes"),
        ("stmatrix_x4_trans", 16 * LANES, LANES < 31, "all 32 lanes"),
    ],
)
def test_an_access_that_no_warp_can_make_is_refused(
    op: str, addresses: NDArray[Any], active: NDArray[np.bool_] | None, sentence: str
) -> None:
    with pytest.raises(LayoutError, match=sentence):
        wavefronts(op, addresses, active)


@given(
    units=st.lists(st.integers(0, 500), min_size=32, max_size=32),
    size=st.sampled_from((1, 2, 4, 8, 16)),
    active=st.lists(st.booleans(), min_size=32, max_size=32),
)
def test_sectors_and_lines_are_the_distinct_ones_of_the_active_lanes(
    units: list[int], size: int, active: list[bool]
) -> None:
    seen = global_access(np.array(units) * size, size, np.array(active))
    touched = [unit * size for unit, is_on in zip(units, active, strict=True) if is_on]
    assert seen.num_sectors == len({address // 32 for address in touched})
    assert seen.num_lines == len({address // 128 for address in touched})
    assert seen.num_bytes == size * len(touched)
    assert seen.num_requests == any(active)


def test_a_sector_that_two_warps_want_counts_for_both() -> None:
    assert global_access(np.zeros((2, 32), dtype=np.int64), 4).num_sectors == 2


def test_a_warp_without_active_lanes_asks_for_nothing() -> None:
    active = np.array([[True] * 32, [False] * 32])
    assert global_access(np.stack([4 * LANES] * 2), 4, active) == global_access(4 * LANES, 4)
    assert global_access(4 * LANES, 4, active[1]) == AccessPattern()


def test_a_scattered_warp_touches_a_line_a_lane() -> None:
    assert global_access(4096 * LANES, 4) == AccessPattern(
        num_requests=1, num_sectors=32, num_lines=32, num_wavefronts=32, num_bytes=128
    )


def test_no_lane_loads_three_bytes() -> None:
    with pytest.raises(LayoutError, match="3 bytes a lane"):
        global_access(3 * LANES, 3)


def test_patterns_add_and_scale_field_by_field() -> None:
    one = AccessPattern(num_requests=1, num_sectors=2, num_lines=3, num_wavefronts=4, num_bytes=5)
    assert one + one + one == one.scaled(3)
    assert one.scaled(0) == AccessPattern()
    with pytest.raises(LayoutError, match="-1 times"):
        one.scaled(-1)


def test_the_largest_128b_box_has_256_rows() -> None:
    box = TmaBox(inner_elements=64, outer=(256,), dtype=BF16, swizzle="128B")
    assert (box.inner_bytes, box.num_rows, box.num_bytes) == (128, 256, 32 * 1024)


def test_a_box_may_have_no_outer_dimension_and_at_most_four() -> None:
    assert TmaBox(inner_elements=256, outer=(), dtype=FP32).num_bytes == 1024
    assert TmaBox(inner_elements=8, outer=(2, 3, 4, 5), dtype=BF16).num_rows == 120
    with pytest.raises(LayoutError, match="6 dimensions: use at most 5"):
        TmaBox(inner_elements=8, outer=(1,) * 5, dtype=BF16)


@pytest.mark.parametrize(
    ("inner", "outer", "dtype", "swizzle", "sentence"),
    [
        (257, (1,), FP8, "none", "257 elements: use 1 to 256"),
        (64, (257,), BF16, "128B", "257 elements: use 1 to 256"),
        (64, (0,), BF16, "128B", "0 elements: use 1 to 256"),
        (12, (8,), BF16, "none", "24 bytes is no multiple of 16: use 16 elements of bf16"),
        (72, (8,), BF16, "128B", "144 bytes is wider than swizzle '128B': use at most 64 elements of bf16"),
        (40, (8,), BF16, "64B", "use at most 32 elements"),
        (24, (8,), BF16, "32B", "use at most 16 elements"),
        (64, (8,), BF16, "256B", "unknown"),
    ],
)
def test_a_box_that_the_hardware_refuses_is_refused(
    inner: int, outer: tuple[int, ...], dtype: DType, swizzle: str, sentence: str
) -> None:
    with pytest.raises(LayoutError, match=sentence):
        TmaBox(inner_elements=inner, outer=outer, dtype=dtype, swizzle=swizzle)


@pytest.mark.parametrize(("swizzle", "widest"), [("32B", 16), ("64B", 32), ("128B", 64), ("none", 256)])
def test_a_box_as_wide_as_its_swizzle_is_taken(swizzle: str, widest: int) -> None:
    assert TmaBox(inner_elements=widest, outer=(8,), dtype=BF16, swizzle=swizzle).inner_elements == widest


@st.composite
def tiles(draw: st.DrawFn) -> OperandTile:
    dtype = draw(st.sampled_from((BF16, FP8, TF32)))
    swizzle = draw(st.sampled_from(("none", "32B", "64B", "128B")))
    is_interleaved = swizzle == "none" and draw(st.booleans())
    contiguous = draw(st.integers(1, 2)) * 128 // dtype.num_bytes
    strided = 8 * draw(st.integers(1, 40))
    is_k_major = draw(st.booleans())
    return OperandTile(
        rows=strided if is_k_major else contiguous,
        k=contiguous if is_k_major else strided,
        dtype=dtype,
        is_k_major=is_k_major,
        swizzle=swizzle,
        is_interleaved=is_interleaved,
    )


def offsets_of_all_chunks(tile: OperandTile) -> NDArray[np.int64]:
    strided, column = np.meshgrid(np.arange(tile.num_strided), np.arange(tile.contiguous_bytes // 16))
    return tile.byte_offsets(strided.reshape(-1), 16 * column.reshape(-1))


@given(tile=tiles())
def test_a_tile_fills_its_stage_exactly_once(tile: OperandTile) -> None:
    assert np.array_equal(np.sort(offsets_of_all_chunks(tile)), np.arange(0, tile.num_bytes, 16))


@given(tile=tiles())
def test_boxes_bring_the_bytes_of_the_tile(tile: OperandTile) -> None:
    boxes = tma_boxes(tile)
    assert len(set(boxes)) == 1
    assert sum(box.num_bytes for box in boxes) == tile.num_bytes == tma_fill(boxes).num_bytes
    assert boxes[0].inner_bytes == tile.panel_bytes
    assert tile.num_strided % boxes[0].num_rows == 0


@pytest.mark.parametrize(
    ("rows", "swizzle", "num_boxes", "inner", "height"),
    [
        (128, "128B", 1, 64, 128),
        (384, "128B", 2, 64, 192),
        (264, "128B", 3, 64, 88),
        (128, "64B", 2, 32, 128),
    ],
)
def test_boxes_split_panels_and_tall_tiles(
    rows: int, swizzle: str, num_boxes: int, inner: int, height: int
) -> None:
    """264 rows: 132 divides and fits, but would start a box amid the swizzle's repeat of eight rows."""
    boxes = tma_boxes(OperandTile(rows=rows, k=64, dtype=BF16, is_k_major=True, swizzle=swizzle))
    assert (len(boxes), boxes[0].inner_elements, boxes[0].outer) == (num_boxes, inner, (height,))


def test_the_interleaved_tile_is_loaded_in_boxes_16_bytes_wide() -> None:
    tile = OperandTile(rows=128, k=64, dtype=BF16, is_k_major=True, swizzle="none", is_interleaved=True)
    boxes = tma_boxes(tile)
    assert len(boxes) == 64 * 2 // 16
    assert tma_fill(boxes).num_lines == 8 * 128  # every row of every box asks for its line anew


def test_a_plain_tile_wider_than_a_box_is_refused() -> None:
    with pytest.raises(LayoutError, match="512 elements: use 1 to 256"):
        tma_boxes(OperandTile(rows=8, k=512, dtype=BF16, is_k_major=True, swizzle="none"))


def test_a_tile_that_panels_do_not_divide_is_refused_with_what_would_do() -> None:
    with pytest.raises(
        LayoutError, match=r"64 contiguous bytes .* use 64 elements of bf16, or swizzle '64B'"
    ):
        OperandTile(rows=128, k=32, dtype=BF16, is_k_major=True, swizzle="128B")
    with pytest.raises(LayoutError, match=r"8 contiguous bytes .* use 8 elements of bf16$"):
        OperandTile(rows=128, k=4, dtype=BF16, is_k_major=True, swizzle="none")
    with pytest.raises(LayoutError, match=r"panels of 12 rows .* use 16 rows"):
        OperandTile(rows=12, k=64, dtype=BF16, is_k_major=True, swizzle="128B")
    with pytest.raises(LayoutError, match="use swizzle 'none'"):
        OperandTile(rows=64, k=64, dtype=BF16, is_k_major=True, swizzle="128B", is_interleaved=True)
    with pytest.raises(LayoutError, match="use 1 or more"):
        OperandTile(rows=0, k=64, dtype=BF16, is_k_major=True)


@given(tile=tiles(), num_warps=st.integers(1, 8))
def test_cp_async_asks_for_every_byte_once_however_many_threads_there_are(
    tile: OperandTile, num_warps: int
) -> None:
    filled = cp_async_fill(tile, 32 * num_warps)
    assert filled.num_bytes == tile.num_bytes
    assert filled.num_sectors == tile.num_bytes // 32
    assert filled.num_requests == math.ceil(tile.num_bytes / 512)
    assert filled.num_wavefronts >= tile.num_bytes // 128


@pytest.mark.parametrize("swizzle", ["none", "128B"])
def test_cp_async_along_full_rows_writes_without_conflict(swizzle: str) -> None:
    tile = OperandTile(rows=128, k=64, dtype=BF16, is_k_major=True, swizzle=swizzle)
    filled = cp_async_fill(tile, 128)
    assert filled.num_wavefronts == tile.num_bytes // 128
    assert filled.num_lines == 128


def test_cp_async_into_core_matrices_conflicts_eight_ways() -> None:
    """Eight lanes walk along a row, so into eight panels that are a multiple of 128 bytes apart."""
    tile = OperandTile(rows=128, k=64, dtype=BF16, is_k_major=True, swizzle="none", is_interleaved=True)
    assert cp_async_fill(tile, 128).num_wavefronts == 8 * tile.num_bytes // 128


def test_a_request_of_half_rows_touches_a_line_a_row() -> None:
    tile = OperandTile(rows=16, k=32, dtype=BF16, is_k_major=True, swizzle="64B")
    assert cp_async_fill(tile, 32) == AccessPattern(
        num_requests=2, num_sectors=32, num_lines=16, num_wavefronts=8, num_bytes=1024
    )


def test_cp_async_takes_whole_warps_only() -> None:
    tile = OperandTile(rows=16, k=64, dtype=BF16, is_k_major=True)
    with pytest.raises(LayoutError, match="100 threads are no full warps: use 96"):
        cp_async_fill(tile, 100)


@pytest.mark.parametrize("is_k_major", [True, False])
@pytest.mark.parametrize(
    ("swizzle", "k", "ways"), [("none", 64, 8), ("128B", 64, 1), ("64B", 32, 1), ("none", 32, 4)]
)
def test_ldmatrix_of_a_tile_conflicts_as_the_rows_of_its_layout_do(
    is_k_major: bool, swizzle: str, k: int, ways: int
) -> None:
    rows, depth = (128, k) if is_k_major else (k, 64)
    tile = OperandTile(rows=rows, k=depth, dtype=BF16, is_k_major=is_k_major, swizzle=swizzle)
    read = ldmatrix_reads(tile, rows_per_warp=32)
    assert read == AccessPattern(num_requests=2, num_wavefronts=8 * ways, num_bytes=32 * 32)


@pytest.mark.parametrize("dtype", [BF16, FP8, TF32, INT8])
def test_every_warp_and_k_step_of_a_swizzled_tile_reads_without_conflict(dtype: DType) -> None:
    tile = OperandTile(rows=64, k=256 // dtype.num_bytes, dtype=dtype, is_k_major=True, swizzle="128B")
    for first_row in (0, 32):
        for k_step_idx in range(256 // 32):
            read = ldmatrix_reads(tile, rows_per_warp=32, first_row=first_row, k_step_idx=k_step_idx)
            assert read.num_wavefronts * 128 == read.num_bytes == 32 * 32


def test_eight_rows_are_read_by_an_x2() -> None:
    tile = OperandTile(rows=64, k=64, dtype=BF16, is_k_major=True)
    assert ldmatrix_reads(tile, rows_per_warp=8).num_requests == 1
    assert ldmatrix_reads(tile, rows_per_warp=24) == AccessPattern(
        num_requests=2, num_wavefronts=6, num_bytes=768
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rows_per_warp": 12}, "rows_per_warp=12: use a multiple of 8"),
        ({"rows_per_warp": 0}, "rows_per_warp=0"),
        ({"rows_per_warp": 8, "first_row": 4}, "first_row=4"),
        ({"rows_per_warp": 64, "first_row": 8}, "use rows_per_warp <= 56"),
        ({"rows_per_warp": 8, "k_step_idx": 4}, "4 full k-steps of 16"),
        ({"rows_per_warp": 8, "k_step_idx": -1}, "k-step -1"),
    ],
)
def test_fragments_outside_of_the_tile_are_refused(arguments: dict[str, int], sentence: str) -> None:
    tile = OperandTile(rows=64, k=64, dtype=BF16, is_k_major=True)
    with pytest.raises(LayoutError, match=sentence):
        ldmatrix_reads(tile, **arguments)


def test_ldmatrix_transposes_16_bit_elements_only() -> None:
    tile = OperandTile(rows=128, k=64, dtype=FP8, is_k_major=False)
    with pytest.raises(LayoutError, match="cannot transpose fp8"):
        ldmatrix_reads(tile, rows_per_warp=32)


@pytest.mark.parametrize(("swizzle", "ways"), [("none", 8), ("128B", 1)])
def test_stmatrix_writes_the_tile_in_fragments_of_16_by_16(swizzle: str, ways: int) -> None:
    """Rows of 256 bytes: plain, eight of them start in one bank group; in swizzled panels, in eight."""
    written = stmatrix_writes(64, 128, BF16, swizzle)
    assert written == AccessPattern(
        num_requests=4 * 8, num_wavefronts=ways * 64 * 128 * 2 // 128, num_bytes=64 * 128 * 2
    )


def test_stmatrix_refuses_what_it_cannot_store() -> None:
    with pytest.raises(LayoutError, match="fp32 has 32 bits"):
        stmatrix_writes(64, 64, FP32)
    with pytest.raises(LayoutError, match="tile_m=40 is no multiple of 16: use 48"):
        stmatrix_writes(40, 64, BF16)


def test_a_fragment_store_uses_half_of_each_sector_at_16_bits_and_all_at_32() -> None:
    """8 x 8 elements a request: eight rows, each of 16 or 32 bytes in a sector of its own."""
    num_requests = 64 * 128 // 64
    for kind in ("mma_sync", "wgmma"):
        for out_bytes in (1, 2, 4):
            stored = epilogue_store(64, 128, out_bytes, kind)
            assert (stored.num_requests, stored.num_sectors) == (num_requests, 8 * num_requests)
            assert stored.num_bytes == 64 * 128 * out_bytes


def test_an_fma_epilogue_of_floats_writes_whole_lines() -> None:
    stored = epilogue_store(64, 128, 4, "fma")
    assert stored.num_lines * 128 == stored.num_sectors * 32 == stored.num_bytes == 64 * 128 * 4


def test_an_epilogue_that_the_atom_does_not_divide_is_refused() -> None:
    with pytest.raises(KernelError, match="tile_m=32 is no multiple of wgmma's 64: use 64"):
        epilogue_store(32, 128, 2, "wgmma")
    with pytest.raises(KernelError, match="tile_n=12 is no multiple of mma_sync's 8: use 16"):
        epilogue_store(32, 12, 2, "mma_sync")
    with pytest.raises(KernelError, match="8 bytes: use 1, 2 or 4"):
        epilogue_store(32, 16, 8, "mma_sync")
    with pytest.raises(KernelError, match="did you mean 'wgmma'"):
        epilogue_store(64, 16, 2, "wgmm")  # type: ignore[arg-type]  # the refusal is what is tested


@pytest.mark.parametrize(
    ("n", "measured_cycles"),
    [(8, 18.9), (16, 20.7), (32, 24.7), (64, 32.8), (96, 48.7), (128, 65.0), (192, 97.1), (256, 129.3)],
)
def test_operand_wavefronts_explain_the_measured_cycles_of_wgmma(n: int, measured_cycles: float) -> None:
    """Facts 6.3, H100: the slower of tensor core (4096 FLOP a cycle) and operand reads, plus 0.8."""
    atom = wgmma(n, BF16)
    assert wgmma_wavefronts(atom) == 16 + n // 4
    assert abs(max(atom.num_flops / 4096, wgmma_wavefronts(atom)) + 0.8 - measured_cycles) <= 0.5


def test_a_in_registers_leaves_b_alone_to_be_read() -> None:
    assert wgmma_wavefronts(wgmma(64, BF16, "registers")) == 64 * 32 // 128


def test_only_wgmma_reads_operands_from_smem_by_itself() -> None:
    with pytest.raises(KernelError, match="use a wgmma atom"):
        wgmma_wavefronts(mma_sync(BF16))


def test_the_byte_swizzle_of_a_tile_is_the_mode_on_its_offsets() -> None:
    tile = OperandTile(rows=64, k=64, dtype=BF16, is_k_major=True, swizzle="128B")
    rows = np.arange(64)
    assert np.array_equal(tile.byte_offsets(rows, np.full(64, 32)), swizzle_mode("128B")(128 * rows + 32))
