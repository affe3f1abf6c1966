"""Bank conflicts of tiles: phases add up to the instruction's wavefronts, and what is said to fix them does."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from gpusim.errors import LayoutError
from gpusim.layout import (
    ByteLayout,
    ComposedLayout,
    E,
    Layout,
    Swizzle,
    make_tiled_copy_A,
    mode_of,
    parse_byte_layout,
    swizzle_mode,
)
from gpusim.report.banks import joint_verdict_of
from gpusim.workload.atoms import copy_atom, mma_sync
from gpusim.workload.dtypes import BF16, FP8, FP32, FP64, TF32, DType
from gpusim.workload.smem.access import wavefronts
from gpusim.workload.smem.bank_conflict_fixes import (
    closed_form_swizzle,
    extra_bytes,
    find_padding,
    find_swizzle,
    remarks,
    study,
    study_jointly,
    with_swizzle,
)
from gpusim.workload.smem.banks import NUM_BANKS, analyze, census, census_at, ideal_wavefronts
from gpusim.workload.smem.smem_ops import SMEM_OPS
from gpusim.workload.smem.tile_access import MAX_COUNTED, TileAccess, in_elements, smem_tile
from gpusim.workload.tensor import MemRef
from gpusim.workload.tiled import tiled_mma, warp_addresses


def row_major(rows: int, columns: int, pitch: int = 0) -> Layout:
    return Layout((rows, columns), (pitch or columns, 1))


def ldmatrix(layout: Any, dtype: DType = BF16, swizzle: Swizzle | None = None, **options: Any) -> TileAccess:
    return TileAccess(op="ldmatrix_x4", tile=smem_tile(layout, dtype, swizzle), **options)


# ---------------------------------------------------------------------- counted against what is known


@pytest.mark.parametrize(
    ("row_bytes", "swizzle", "num_ways"),
    [
        (32, None, 2), (32, (1, 3, 3), 1), (32, (2, 3, 3), 1), (32, (3, 3, 3), 1),
        (64, None, 4), (64, (2, 3, 3), 1), (64, (3, 3, 3), 1), (64, (3, 4, 3), 2),
        (128, None, 8), (128, (2, 3, 3), 2), (128, (3, 3, 3), 1), (128, (3, 4, 3), 2),
        (256, None, 8), (256, (3, 3, 3), 2), (256, (3, 3, 4), 1),
    ],
)  # fmt: skip
def test_ldmatrix_of_16_bit_rows_conflicts_as_worked_out(
    row_bytes: int, swizzle: tuple[int, int, int] | None, num_ways: int
) -> None:
    plain = row_major(64, row_bytes // 2)
    layout = plain if swizzle is None else ComposedLayout(Swizzle(*swizzle), 0, plain)
    assert analyze(ldmatrix(layout))[0].num_ways == num_ways


def test_the_modes_of_tma_free_rows_of_their_width() -> None:
    for name, columns in (("32B", 16), ("64B", 32), ("128B", 64)):
        assert census(ldmatrix(row_major(64, columns), swizzle=swizzle_mode(name))).is_free


def test_a_column_of_floats_is_served_one_lane_after_the_other() -> None:
    access = TileAccess(op="ld_shared_b32", tile=smem_tile(row_major(32, 32), FP32), threads=Layout(32, 1))
    found = analyze(access)[0]
    (phase,) = found.phases
    assert (phase.num_wavefronts, phase.num_ideal_wavefronts) == (32, 1)
    (collision,) = phase.collisions
    assert (collision.first_bank, collision.last_bank) == (0, 0)
    assert collision.lanes == tuple(range(32))
    assert collision.words == tuple((32 * lane,) for lane in range(32))
    assert found.turns[:, 0].tolist() == list(range(1, 33))
    assert not found.turns[:, 1:].any()


def test_lanes_of_one_word_share_a_wavefront_unless_they_are_atomics() -> None:
    tile = smem_tile(Layout(64), FP32)
    same = Layout(32, 0)
    load = analyze(TileAccess(op="ld_shared_b32", tile=tile, threads=same))[0]
    atomic = analyze(TileAccess(op="atom_shared_add_b32", tile=tile, threads=same))[0]
    assert (load.num_wavefronts, load.num_ideal_wavefronts) == (1, 1)
    assert (atomic.num_wavefronts, atomic.num_ideal_wavefronts, atomic.num_ways) == (32, 32, 1.0)


# ---------------------------------------------------------------------- laws


@st.composite
def accesses(draw: st.DrawFn) -> TileAccess:
    """An access of any instruction to a tile of rows, its lanes anywhere."""
    op = draw(st.sampled_from(sorted(SMEM_OPS)))
    rule = SMEM_OPS[op]
    dtype = draw(st.sampled_from([d for d in (FP8, BF16, FP32, FP64) if d.num_bytes <= rule.access_bytes]))
    vector = rule.access_bytes // dtype.num_bytes
    pitch = vector * draw(st.integers(64, 70))
    kinds = st.sampled_from([E(0) * row for row in range(9)] + [E(1) * (vector * step) for step in range(9)])
    steps = [draw(kinds) for _ in range(3)]
    threads = Layout((2, 4, 4), tuple(steps))
    if draw(st.booleans()) and not rule.is_collective:
        threads = Layout(draw(st.integers(1, 31)), steps[0])
    base = vector.bit_length() - 1 + draw(st.integers(0, 2))
    swizzle = Swizzle(draw(st.integers(0, 3)), base, draw(st.integers(3, 5))).downcast(dtype.num_bytes)
    rows = 1 << 8 if rule.access_bytes < 16 else 1 << 6
    tile = smem_tile(Layout((rows, 64 * vector), (pitch, 1)), dtype, swizzle)
    try:
        return TileAccess(op=op, tile=tile, threads=threads)
    except LayoutError:  # lanes beyond the tile
        reject()


@given(access=accesses())
def test_phases_add_up_to_the_instructions_wavefronts(access: TileAccess) -> None:
    addresses, active = access.addresses()
    counted = wavefronts(access.op, addresses, None if access.rule.is_collective else active)
    found = analyze(access)
    assert [instruction.num_wavefronts for instruction in found] == counted.tolist()
    ideal = ideal_wavefronts(access.op, addresses, None if access.rule.is_collective else active)
    assert [instruction.num_ideal_wavefronts for instruction in found] == ideal.tolist()


@given(access=accesses())
def test_every_lane_is_served_by_the_banks_of_its_words_within_its_phase(access: TileAccess) -> None:
    num_words = max(1, access.rule.access_bytes // 4)
    for instruction in analyze(access):
        served = [lane for phase in instruction.phases for lane in phase.lanes]
        assert served == [i for i, address in enumerate(instruction.addresses) if address is not None]
        for phase in instruction.phases:
            if access.rule.is_loop:
                assert instruction.turns[list(phase.lanes)].max() < phase.num_wavefronts  # loads and swaps of each round
                continue
            assert access.rule.num_passes * instruction.turns[list(phase.lanes)].max() == phase.num_wavefronts
            one_pass = max((len(c.lanes) for c in phase.collisions), default=1)
            assert access.rule.num_passes * one_pass == phase.num_wavefronts
            for lane in phase.lanes:
                address = instruction.addresses[lane]
                assert address is not None
                banks = sorted((address // 4 + i) % NUM_BANKS for i in range(num_words))
                assert np.flatnonzero(instruction.turns[lane]).tolist() == banks


@given(access=accesses(), num_bits=st.integers(0, 3), shift=st.integers(3, 6))
def test_no_placement_beats_the_ideal_and_a_swizzle_leaves_it(access: TileAccess, num_bits: int, shift: int) -> None:
    addresses, active = access.addresses()
    mask = None if access.rule.is_collective else active
    ideal = ideal_wavefronts(access.op, addresses, mask)
    assert np.all(ideal <= wavefronts(access.op, addresses, mask))
    moved = Swizzle(num_bits, 4, shift)(addresses)
    assert access.rule.is_loop or np.array_equal(ideal, ideal_wavefronts(access.op, np.asarray(moved), mask))


@st.composite
def small_accesses(draw: st.DrawFn) -> TileAccess:
    """An access to a small tile, whose rows may be misaligned."""
    op = draw(st.sampled_from(["ld_shared_b8", "ld_shared_b16", "st_shared_b64", "atom_shared_add_b32", "ldmatrix_x4"]))
    dtype = draw(st.sampled_from([FP8, BF16] if op != "ld_shared_b8" else [FP8]))
    vector = SMEM_OPS[op].access_bytes // dtype.num_bytes
    steps = st.sampled_from([E(0) * row for row in range(3)] + [E(1) * (vector * step) for step in range(3)])
    threads = Layout((8, 4), (draw(steps), draw(steps)))
    swizzle = Swizzle(draw(st.integers(0, 2)), 4, 3)
    pitch = 4 * vector + draw(st.integers(0, 3))
    try:
        return TileAccess(op=op, tile=smem_tile(Layout((20, 4 * vector), (pitch, 1)), dtype, swizzle), threads=threads)
    except LayoutError:  # lanes beyond the tile, or not aligned
        reject()


@settings(deadline=None, max_examples=20)
@given(access=small_accesses())
def test_a_census_adds_up_every_place_side_by_side_that_is_aligned(access: TileAccess) -> None:
    """Against every legal shift of the access, tried one by one."""
    places, active = access.lane_places()
    mask = None if access.rule.is_collective else active
    box = places[active].max(axis=0) - places[active].min(axis=0) + 1
    box[1] += access.vector_elements - 1
    legal = {}
    for shift in product(range(0, access.extents[0], box[0]), range(0, access.extents[1], box[1])):
        try:
            legal[shift] = replace(access, at=shift).addresses()[0]
        except LayoutError:
            continue
    assert {(int(a), int(b)) for a, b in access.tile_origins()} == set(legal)
    counted = census(access)
    assert counted.num_wavefronts == sum(int(wavefronts(access.op, one, mask).sum()) for one in legal.values())
    ideal = [ideal_wavefronts(access.op, one, mask) for one in legal.values()]
    assert counted.num_ideal_wavefronts == sum(int(one.sum()) for one in ideal)
    bad = [np.any(wavefronts(access.op, one, mask) > few) for one, few in zip(legal.values(), ideal, strict=True)]
    assert counted.num_tiles_with_conflicts == sum(bad)


def test_what_is_free_side_by_side_may_conflict_between() -> None:
    tile = smem_tile(row_major(32, 64), FP8, Swizzle(1, 4, 3))
    access = TileAccess(op="ld_shared_b16", tile=tile, threads=Layout.parse("(4,8):(1@0,2@1)"))  # type: ignore[arg-type]  # plain
    assert census(access).is_free
    between = replace(access, at=(0, 2))
    assert analyze(between)[0].num_ways == 2
    assert not any((shift == (0, 2)).all() for shift in access.tile_origins())
    assert not census(between).is_free


# ---------------------------------------------------------------------- what mends it


TILES = [
    (row_major(64, 16), BF16), (row_major(64, 32), BF16), (row_major(64, 64), BF16), (row_major(32, 128), BF16),
    (Layout((64, 64), (1, 64)), BF16), (row_major(64, 128), FP8), (row_major(32, 32), TF32), (row_major(64, 160), BF16),
    (Layout((64, (64, 2)), (64, (1, 4096))), BF16), (row_major(64, 40), BF16),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "dtype"), TILES, ids=str)
def test_the_smallest_swizzle_frees_every_tile_and_no_smaller_one_does(layout: Layout, dtype: DType) -> None:
    access = ldmatrix(layout, dtype)
    fix = find_swizzle(access)
    assert fix is not None
    assert fix.census.is_free
    swizzle, step = fix.swizzle_bytes, 16 // dtype.num_bytes
    rows, columns = access.extents if access.contiguous_mode == 1 else access.extents[::-1]
    lanes = np.arange(32)
    for row, column in product(range(0, rows, 16), range(0, columns, 2 * step)):
        across, along = row + lanes % 16, column + step * (lanes // 16)
        where = (across, along) if access.contiguous_mode == 1 else (along, across)
        offsets = np.asarray(layout(where)) * dtype.num_bytes
        assert int(wavefronts("ldmatrix_x4", swizzle(offsets))) == 4
    smaller = [Swizzle(b, m, s) for b in range(swizzle.num_bits) for m in range(4, 7) for s in range(max(b, 1), 9)]
    origin = access.tile_origins()
    assert not any(census_at(with_swizzle(access, trial), origin).is_free for trial in smaller)


SMALL = [
    ("ld_shared_b32", FP32, row_major(16, 8), "16:1@0"), ("ld_shared_b32", FP8, row_major(32, 16), "(16,2):(2@0,4@1)"),
    ("ld_shared_b16", FP8, row_major(16, 16), "(4,8):(4@0,2@1)"), ("ld_shared_b8", FP8, row_major(32, 16, 17), "32:1@0"),
    ("ldmatrix_x1", BF16, row_major(24, 8, 24), None), ("ld_shared_b64", BF16, row_major(16, 16), "16:1@0"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "dtype", "layout", "threads"), SMALL, ids=str)
def test_no_swizzle_at_all_of_whole_words_leaves_fewer_wavefronts(
    op: str, dtype: DType, layout: Layout, threads: str | None
) -> None:
    """Negative shifts and bits above those of banks as well."""
    lanes = None if threads is None else Layout.parse(threads)
    access = TileAccess(op=op, tile=smem_tile(layout, dtype), threads=lanes)  # type: ignore[arg-type]  # plain
    least = (max(access.rule.access_bytes, 4)).bit_length() - 1
    found = [census(access).num_wavefronts]
    for num_bits, base, shift in product(range(1, 6), range(least, 9), range(-8, 9)):
        if abs(shift) >= num_bits:
            trial = with_swizzle(access, Swizzle(num_bits, base, shift))
            found += [] if extra_bytes(trial.tile) else [census(trial).num_wavefronts]
    fix = find_swizzle(access)
    assert min(found) == (found[0] if fix is None else fix.census.num_wavefronts)
    assert fix is None or fix.tile == access.tile or fix.census.num_wavefronts < found[0] or fix.census.is_free


def test_a_swizzle_that_takes_more_memory_is_no_mend() -> None:
    access = ldmatrix(Layout((16, 12), (16, 1)), FP32)
    freeing = with_swizzle(access, Swizzle(2, 4, 3))
    assert census(freeing).is_free
    assert extra_bytes(freeing.tile) == 16
    assert find_swizzle(access) is None


def test_a_tile_with_an_offset_is_freed_by_a_swizzle_and_keeps_its_offset() -> None:
    tile = replace(smem_tile(row_major(16, 64), BF16), offset=64 * 63)
    access = TileAccess(op="ldmatrix_x4", tile=tile)
    fix = find_swizzle(access)
    assert fix is not None and fix.census.is_free
    assert fix.tile.offset == tile.offset


def test_a_swizzle_that_mends_only_the_first_tile_mends_nothing() -> None:
    access = ldmatrix(row_major(64, 160))
    first_only = with_swizzle(access, Swizzle(2, 4, 4))
    assert census_at(first_only, access.tile_origins()[:1]).is_free
    assert not census(first_only).is_free
    fix = find_swizzle(access)
    assert fix is not None
    assert fix.census.is_free
    assert fix.swizzle_bytes != Swizzle(2, 4, 4)


def test_fragments_of_an_accumulator_are_stored_free_under_chunks_wider_than_their_vectors() -> None:
    tile = smem_tile(row_major(64, 64), BF16)
    access = TileAccess(op="st_shared_b32", tile=tile, threads=Layout.parse("(4,8):(2@1,1@0)"))  # type: ignore[arg-type]  # plain
    assert analyze(access)[0].num_ways == 8
    fix = find_swizzle(access)
    assert fix is not None
    assert str(fix.swizzle_elements) == "Sw<3,3,3>"
    assert fix.census.is_free


@pytest.mark.parametrize(("layout", "dtype"), TILES, ids=str)
def test_the_padding_is_the_smallest_that_keeps_vectors_aligned(layout: Layout, dtype: DType) -> None:
    access = ldmatrix(layout, dtype)
    fix = find_padding(access)
    assert fix is not None
    assert fix.census.is_free
    assert fix.padding_elements % access.vector_elements == 0
    assert fix.num_extra_bytes == (fix.tile.inner.cosize - layout.cosize) * dtype.num_bytes
    assert find_padding(ldmatrix(fix.tile.inner, dtype)).padding_elements == 0  # type: ignore[union-attr]  # found above
    plain_is_free = census(access).is_free
    assert (fix.padding_elements == 0) == plain_is_free
    if fix.padding_elements > access.vector_elements:
        pytest.fail("one vector a row frees every row that is a power of two")


def test_a_padding_may_be_less_than_a_vector_where_every_touched_row_stays_aligned() -> None:
    """Every fourth row is touched: 2 elements a row are 16 bytes from one to the next."""
    access = ldmatrix(row_major(64, 64), threads=Layout.parse("(16,2):(4@0,16@1)"))
    fix = find_padding(access)
    assert fix is not None
    assert (fix.padding_elements, str(fix.tile.inner)) == (2, "(64,64):(66,1)")
    assert fix.census.is_free and census(replace(access, tile=fix.tile)).is_free
    with pytest.raises(LayoutError, match="no multiple of 16"):
        replace(access, tile=smem_tile(row_major(64, 64, 65), BF16))
    assert find_padding(replace(access, at=(1, 0))) is None  # rows 1, 5, ...: whole vectors only, 64 or 128 bytes apart


def test_a_padding_that_frees_the_first_place_only_is_passed_over() -> None:
    access = TileAccess(
        op="ld_shared_b8", tile=smem_tile(row_major(8, 16, 17), FP8),
        threads=Layout.parse("(8,4):(1@0,2@1)"),  # type: ignore[arg-type]  # plain
    )
    by_three = replace(access, tile=smem_tile(row_major(8, 16, 20), FP8))
    assert census_at(by_three, access.tile_origins()[:1]).is_free
    assert not census(by_three).is_free
    fix = find_padding(access)
    assert fix is not None and fix.padding_elements == 6
    trials = [census(replace(access, tile=smem_tile(row_major(8, 16, 17 + more), FP8))).is_free for more in range(7)]
    assert trials == [False] * 6 + [True]


@settings(deadline=None, max_examples=20)
@given(access=small_accesses())
def test_the_padding_is_the_first_that_frees_all_places_when_each_number_of_elements_is_tried(access: TileAccess) -> None:
    rows, columns = access.extents
    asked = access.tile_origins()
    found = None
    for padding in range(128 // access.element_bytes + 1):
        layout = row_major(rows, columns, int(access.row_pitch or 0) + padding)
        tile = replace(access.tile, swizzle=Swizzle(0, 4, 3), layout=layout)
        try:
            each = [replace(access, tile=tile, at=(int(a), int(b))) for a, b in asked]
        except LayoutError:  # a place that is no longer aligned
            continue
        if census(each[0]).is_free:
            found = padding
            break
    fix = find_padding(access)
    assert found == (None if fix is None else fix.padding_elements)


def test_a_padding_frees_the_places_as_well_that_it_aligns() -> None:
    """Rows of 65 bytes: every other place is misaligned; with one byte more none is, and those between conflict."""
    lanes = Layout.parse("(2,2):(4@0,6@1)")
    access = TileAccess(op="ld_shared_b16", tile=smem_tile(row_major(16, 64, 65), FP8), threads=lanes)  # type: ignore[arg-type]  # plain
    by_one = replace(access, tile=smem_tile(row_major(16, 64, 66), FP8))
    assert census_at(by_one, access.tile_origins()).is_free
    assert by_one.num_tiles > access.num_tiles and not census(by_one).is_free
    fix = find_padding(access)
    assert fix is None or census(replace(access, tile=fix.tile)).is_free


def test_a_padding_that_no_shared_memory_holds_is_not_proposed() -> None:
    access = TileAccess(op="ld_shared_b8", tile=smem_tile(row_major(512, 512), FP8), threads=Layout(32, 1))
    assert find_padding(access) is None
    shorter = TileAccess(op="ld_shared_b8", tile=smem_tile(row_major(256, 512), FP8), threads=Layout(32, 1))
    fix = find_padding(shorter)
    assert fix is not None and fix.padding_elements == 4


@pytest.mark.parametrize(
    "layout",
    [Layout((4, 64), (32, 1)), Layout(((4, 4), 64), ((64, 1000), 1)), Layout((64, 64), (0, 1))],
    ids=["overlapping", "uneven", "one row"],
)
def test_rows_without_a_single_pitch_are_not_padded_and_have_no_formula(layout: Layout) -> None:
    tile = smem_tile(layout, BF16)
    access = TileAccess(op="ld_shared_b32", tile=tile, threads=Layout.parse("4:1@0"))  # type: ignore[arg-type]  # plain
    assert access.row_pitch is None
    assert find_padding(access) is None
    assert closed_form_swizzle(access) is None


def test_the_worst_instruction_is_the_one_with_the_most_to_mend() -> None:
    """Rows 0 to 7 lie 144 bytes apart; rows 4 to 7 and 8 to 11 use the same banks."""
    tile = smem_tile(Layout(((8, 8), 64), ((72, 608), 1)), BF16)
    threads = Layout.parse("(8,4,2):(1@0,0,4@0)")
    found = study(TileAccess(op="ldmatrix_x1", tile=tile, threads=threads))  # type: ignore[arg-type]  # plain
    assert [one.num_wavefronts for one in found.instructions] == [1, 2]
    assert found.worst == 1


def test_the_closed_formula_moves_no_parts_of_words() -> None:
    access = TileAccess(op="ld_shared_b8", tile=smem_tile(row_major(64, 128), FP8), threads=Layout.parse("32:1@0"))  # type: ignore[arg-type]  # plain
    assert closed_form_swizzle(access) == Swizzle(5, 2, 5)
    assert study(access).formula.census.is_free  # type: ignore[union-attr]  # rows of a power of two


def test_what_is_free_needs_nothing() -> None:
    found = study(ldmatrix(row_major(64, 72)))
    assert found.census.is_free
    assert found.swizzle is not None
    assert found.swizzle.swizzle_bytes.num_bits == 0
    assert found.padding is not None
    assert found.padding.padding_elements == 0


@pytest.mark.parametrize(
    ("columns", "dtype", "said"),
    [(16, BF16, "Sw<3,3,3>"), (64, BF16, "Sw<3,3,3>"), (128, BF16, "Sw<3,3,4>"), (32, TF32, "Sw<3,2,3>"),
     (128, FP8, "Sw<3,4,3>")],
)
def test_the_closed_formula_frees_rows_of_a_power_of_two(columns: int, dtype: DType, said: str) -> None:
    access = ldmatrix(row_major(64, columns), dtype)
    swizzle = closed_form_swizzle(access)
    assert swizzle is not None
    trial = with_swizzle(access, swizzle)
    assert str(in_elements(trial.tile)) == said
    assert census(trial).is_free


def test_the_closed_formula_is_silent_of_other_rows() -> None:
    assert closed_form_swizzle(ldmatrix(row_major(64, 72))) is None


# ---------------------------------------------------------------------- units


def test_byte_numbers_on_elements_are_remarked_and_only_those() -> None:
    fallen = ldmatrix(ComposedLayout(Swizzle(3, 4, 3), 0, row_major(64, 64)))
    (said,) = remarks(fallen, is_in_elements=True)
    assert "not the 128B mode" in said
    assert "use 3,3,3 or 128B" in said
    assert remarks(ldmatrix(row_major(64, 64), swizzle=Swizzle(3, 4, 3)), is_in_elements=False) == []
    assert remarks(ldmatrix(ComposedLayout(Swizzle(3, 3, 3), 0, row_major(64, 64))), is_in_elements=True) == []
    assert remarks(ldmatrix(row_major(64, 128), FP8, Swizzle(3, 4, 3)), is_in_elements=True) == []


def test_rows_wider_than_a_modes_span_are_remarked_with_the_layout_of_boxes() -> None:
    (said,) = remarks(ldmatrix(row_major(64, 128), swizzle=swizzle_mode("128B")), is_in_elements=False)
    assert "(64,(64,2)):(64,(1,4096))" in said
    boxes = ldmatrix(Layout.parse("(64,(64,2)):(64,(1,4096))"), swizzle=swizzle_mode("128B"))
    assert census(boxes).is_free
    assert remarks(boxes, is_in_elements=False) == []


@given(
    num_bits=st.integers(0, 3), base=st.integers(0, 6), shift=st.integers(3, 9), sign=st.sampled_from([1, -1]),
    bits=st.sampled_from([8, 16, 32, 64]), offset=st.integers(0, 1 << 17), rows=st.integers(1, 64),
)
def test_what_a_layout_in_bytes_prints_is_read_as_that_layout(
    num_bits: int, base: int, shift: int, sign: int, bits: int, offset: int, rows: int
) -> None:
    tile = ByteLayout(Swizzle(num_bits, base, sign * shift), row_major(rows, 64), element_bits=bits, offset=offset)
    assert parse_byte_layout(str(tile)) == tile


@pytest.mark.parametrize(
    "text",
    ["Sw<3,4,3>_smem_ptr[16b]", "Sw<3,4,3>_smem_ptr[16b] o 0 o 0 o 8:1", "Sw<3,4,3>_smem_ptr[16b] o x o 8:1",
     "Sw<3,4,3>_smem_ptr[16b] 0 o 8:1", "Sw<3,4,3> o 0 o 8:1"],
)  # fmt: skip
def test_what_is_no_layout_in_bytes_is_refused(text: str) -> None:
    with pytest.raises(LayoutError, match="use "):
        parse_byte_layout(text)


def test_elements_and_bytes_give_the_same_tile() -> None:
    in_element_units = ComposedLayout(Swizzle(3, 3, 3), 0, row_major(64, 64))
    assert smem_tile(in_element_units, BF16) == smem_tile(row_major(64, 64), BF16, swizzle_mode("128B"))
    assert [mode_of(swizzle_mode(name)) for name in ("none", "32B", "64B", "128B")] == ["none", "32B", "64B", "128B"]


# ---------------------------------------------------------------------- where lanes point


def test_ldmatrix_takes_matrices_as_fragments_of_a_lie() -> None:
    places = analyze(ldmatrix(row_major(64, 64), at=(16, 32)))[0].places
    assert [places[lane] for lane in (0, 7, 8, 16, 24, 31)] == [
        (16, 32), (23, 32), (24, 32), (16, 40), (24, 40), (31, 40),
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "make"), [("ldmatrix_x4", MemRef.row_major), ("ldmatrix_x4_trans", MemRef.column_major)])
def test_ldmatrix_reads_a_fragment_of_a_as_a_tiled_copy_of_its_mma_does(name: str, make: Any) -> None:
    tile = make("sA", (64, 64), BF16, "smem")
    copy = make_tiled_copy_A(copy_atom(name).tv(BF16), tiled_mma(mma_sync(BF16)))
    access = TileAccess(op=name, tile=smem_tile(tile.layout, BF16))
    assert np.array_equal(access.addresses()[0][0], warp_addresses(copy, tile, "src")[0, 0])
    places = analyze(access)[0].places
    assert [places[lane] for lane in (0, 8, 16, 24)] == [(0, 0), (8, 0), (0, 8), (8, 8)]


def test_what_hands_out_the_transpose_is_remarked() -> None:
    def said(op: str, layout: Layout, dtype: DType = BF16) -> list[str]:
        return remarks(TileAccess(op=op, tile=smem_tile(layout, dtype)), is_in_elements=True)

    rows, columns = row_major(64, 64), Layout((64, 64), (1, 64))
    assert said("ldmatrix_x4", rows) == said("ldmatrix_x4_trans", columns) == said("ld_shared_b128", columns) == []
    (plain,) = said("ldmatrix_x4", columns)
    assert "ldmatrix_x4 along mode 0 hands out the transpose" in plain
    assert "use ldmatrix_x4_trans" in plain
    (transposed,) = said("stmatrix_x2_trans", rows)
    assert "use stmatrix_x2;" in transposed
    (of_bytes,) = said("ldmatrix_x4_trans", columns, FP8)
    assert "transposes units of 16 bits: elements of 8 bits" in of_bytes
    (no_way,) = said("ldmatrix_x4", columns, TF32)
    assert "use a tile that is contiguous along mode 1" in no_way


# ---------------------------------------------------------------------- several accesses


def transpose(*, columns: int = 32, pitch: int = 0) -> tuple[TileAccess, TileAccess]:
    """Stored along rows, loaded down columns."""
    tile = smem_tile(row_major(32, columns, pitch), FP32)
    store, load = (TileAccess(op=f"{verb}_shared_b32", tile=tile, threads=lanes) for verb, lanes in (
        ("st", Layout(32, 32)), ("ld", Layout(32, 1))))
    return store, load


def test_a_transpose_tile_is_freed_for_both_by_one_swizzle_and_by_one_more_element() -> None:
    joint = study_jointly(transpose())
    assert [one.census.is_free for one in joint.studies] == [True, False]
    assert joint.swizzle is not None and joint.padding is not None
    assert str(joint.swizzle.swizzle_elements) == "Sw<5,0,5>"
    assert joint.padding.padding_elements == 1
    assert joint.fix == joint.swizzle
    for fix in (joint.swizzle, joint.padding):
        alone = [census(replace(access, tile=fix.tile)) for access in transpose()]
        assert all(one.is_free for one in alone)
        assert fix.census.num_wavefronts == sum(one.num_wavefronts for one in alone)


def test_a_mend_of_one_that_breaks_the_other_is_none() -> None:
    """Vectors of 16 bytes leave three bits to a swizzle, a column of words wants five."""
    tile = smem_tile(row_major(32, 32), FP32)
    wide = TileAccess(op="st_shared_b128", tile=tile)
    column = TileAccess(op="ld_shared_b32", tile=tile, threads=Layout(32, 1))
    joint = study_jointly([wide, column])
    assert joint.swizzle is not None and joint.padding is not None and joint.fix is not None
    assert not joint.swizzle.census.is_free and not joint.padding.census.is_free
    fewest = min(joint.swizzle.census.num_wavefronts, joint.padding.census.num_wavefronts)
    assert joint.fix.census.num_wavefronts == fewest < joint.census.num_wavefronts
    assert joint.swizzle.tile.swizzle.base >= 4
    assert joint.padding.padding_elements % 4 == 0
    assert "does best" in joint_verdict_of(joint)


def test_what_is_free_for_all_has_no_mend_and_accesses_to_two_tiles_none_in_common() -> None:
    joint = study_jointly(transpose(pitch=33))
    assert joint.census.is_free and joint.fix is None
    with pytest.raises(LayoutError, match="use one tile"):
        study_jointly([transpose()[0], transpose(pitch=33)[1]])


def test_threads_by_index_and_by_coordinate_are_the_same_places() -> None:
    tile = smem_tile(row_major(64, 64), BF16)
    by_index = TileAccess(op="st_shared_b32", tile=tile, threads=Layout((4, 8), (128, 1)))
    by_coordinate = TileAccess(op="st_shared_b32", tile=tile, threads=Layout.parse("(4,8):(2@1,1@0)"))  # type: ignore[arg-type]  # plain
    assert analyze(by_index)[0].places == analyze(by_coordinate)[0].places


def test_the_33rd_lane_is_the_first_of_a_second_instruction() -> None:
    tile = smem_tile(row_major(64, 64), BF16)
    both = analyze(TileAccess(op="ld_shared_b128", tile=tile, threads=Layout((32, 2), (1, 512))))
    assert [found.places[0] for found in both] == [(0, 0), (0, 8)]
    partly = analyze(TileAccess(op="ld_shared_b128", tile=tile, threads=Layout(40, 1)))
    assert [sum(place is not None for place in found.places) for found in partly] == [32, 8]


def test_origins_bring_the_access_to_every_tile_once() -> None:
    access = ldmatrix(row_major(64, 64), at=(16, 16))
    shifts = {(int(a), int(b)) for a, b in access.tile_origins() + np.asarray(access.at)}
    assert shifts == set(product(range(0, 64, 16), range(0, 64, 16)))


def test_a_basis_that_goes_deeper_counts_along_that_part_of_a_mode() -> None:
    tile = smem_tile(Layout.parse("((8,8),64):((1,512),8)"), BF16)  # type: ignore[arg-type]  # plain

    def rows(threads: str) -> list[Any]:
        access = TileAccess(op="ld_shared_b16", tile=tile, threads=Layout.parse(threads))  # type: ignore[arg-type]  # plain
        return [place for place in analyze(access)[0].places if place is not None]

    assert rows("8:1@1@0") == [(8 * i, 0) for i in range(8)]
    assert rows("8:1@0@0") == [(i, 0) for i in range(8)]
    assert rows("(8,2):(1@1@0,1@1)") == [(8 * i, j) for j in range(2) for i in range(8)]
    assert rows("8:9@0") == [(9 * i, 0) for i in range(8) if 9 * i < 64]


def test_places_that_are_not_aligned_are_left_out_and_counted() -> None:
    """Rows of 136 bytes: only even ones hold aligned vectors of 16 bytes."""
    tile = smem_tile(row_major(128, 64, 68), BF16)
    access = TileAccess(op="ld_shared_b128", tile=tile, threads=Layout.parse("32:2@0"))  # type: ignore[arg-type]  # plain
    assert (access.num_tiles, access.num_tiles_unaligned, access.num_tiles_beyond) == (8, 8, 0)
    assert all(shift[0] == 0 for shift in access.tile_origins())
    with pytest.raises(LayoutError, match="byte 136, which is no multiple of 16"):
        replace(access, at=(1, 0))


def test_a_stride_of_0_is_no_contiguous_mode() -> None:
    access = ldmatrix(Layout((64, 64), (0, 1)))
    assert access.contiguous_mode == 1
    assert census(access).is_free


def test_of_very_many_places_the_nearest_are_counted() -> None:
    tile = smem_tile(row_major(512, 512), FP8)
    access = TileAccess(op="ld_shared_b8", tile=tile, threads=Layout(1, 0), at=(100, 100))
    assert access.num_tiles == MAX_COUNTED
    assert access.num_tiles + access.num_tiles_beyond == 512 * 512
    distances = np.abs(access.tile_origins()).sum(axis=-1)
    assert distances[0] == 0 and np.all(np.diff(distances) >= 0)


# ---------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ldmatrix(row_major(8, 64)), r"lane 8 .* outside of a tile of \(8,64\)"),
        (lambda: ldmatrix(row_major(64, 64), at=(64, 0)), r"start \(64,0\) lies outside"),
        (lambda: ldmatrix(row_major(64, 64), at=(56, 0)), "lane 8 .* outside"),
        (lambda: ldmatrix(row_major(64, 64), at=(0, 4)), "byte 8, which is no multiple of 16"),
        (lambda: ldmatrix(row_major(64, 64, 68)), "byte 136, which is no multiple of 16"),
        (lambda: ldmatrix(Layout((64, 64), (128, 2))), "do not follow one another"),
        (lambda: TileAccess(op="ld_shared_b64", tile=smem_tile(Layout.parse("(64,((2,2),16)):(64,((2,1),4))"), BF16)),
         "4 elements from .* do not follow one another"),  # the last lies where it would, those between do not
        (lambda: ldmatrix(row_major(64, 64), threads=Layout((32, 33), (1, 0))), "has 1056 lanes: use at most 1024"),
        (lambda: ldmatrix(row_major(64, 64), threads=Layout.parse("(8,4):(1@0@0,8@0)")), "no such part in 64"),
        (lambda: TileAccess(op="ld_shared_b16", tile=smem_tile(Layout.parse("((8,8),64):((1,512),8)"), BF16),
                            threads=Layout.parse("9:1@0@0")), "reaches 8 in a part of 8"),
        (lambda: ldmatrix(row_major(64, 64), threads=Layout.parse("32:1@2")), "use those of two modes"),
        (lambda: smem_tile(Layout((10**8, 64), (0, 1)), BF16), "6400000000 coordinates"),
        (lambda: smem_tile(ComposedLayout(Swizzle(0, 3, 3), 10**9, row_major(64, 64)), BF16), "element 1000000000 on takes"),
        (lambda: smem_tile(ComposedLayout(Swizzle(0, 3, 3), -8, row_major(64, 64)), BF16), "8 elements before its start"),
        (lambda: ldmatrix(ComposedLayout(Swizzle(3, 0, 6), 0, row_major(64, 64))), "in bytes tears apart"),
        (lambda: ldmatrix(row_major(64, 64), swizzle=Swizzle(3, 3, 3)), "tears apart: .* M >= 4 in bytes"),
        (lambda: ldmatrix(row_major(64, 64), threads=Layout(8)), "addresses of 32 lanes, .* use a layout of 32 lanes"),
        (lambda: ldmatrix(row_major(64, 64), threads=Layout(32, 1000)), "index 5000 of a tile of 4096"),
        (lambda: TileAccess(op="ldmatrix_x5", tile=smem_tile(row_major(64, 64), BF16)), "did you mean .*'ldmatrix_x4'"),
        (lambda: TileAccess(op="ld_shared_b8", tile=smem_tile(row_major(64, 64), BF16)), "less than an element"),
        (lambda: TileAccess(op="ld_shared_b128", tile=smem_tile(row_major(2, 64), BF16)), "fewer than 32 vectors"),
        (lambda: smem_tile(Layout((8, 8, 8)), BF16), "3 modes"),
        (lambda: smem_tile(Layout((1024, 1024)), BF16), "more than any SM has"),
        (lambda: smem_tile(Layout.parse("(8,8):(1@0,1@1)"), BF16), "use integer strides"),
        (lambda: smem_tile(ComposedLayout(Swizzle(1, 3, 3), 0, row_major(8, 8)), BF16, swizzle_mode("128B")), "use one of"),
        (lambda: smem_tile(smem_tile(row_major(8, 64), BF16), FP32), "elements of 16 bits"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(make: Any, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        make()


def test_the_ideal_of_a_wide_load_merges_what_would_be_one_without_conflicts() -> None:
    """Lanes share vectors in pairs: eight to each half-warp, four of them in one bank, or each in its own."""
    lanes = np.arange(32)
    crowded = 1024 * (lanes // 2 % 4) + 16 * (lanes // 8)
    assert int(wavefronts("ld_shared_b128", crowded)) == 16
    assert int(ideal_wavefronts("ld_shared_b128", crowded)) == 2
    assert int(wavefronts("ld_shared_b128", 16 * (lanes // 2))) == 2


@given(
    units=st.lists(st.integers(0, 40), min_size=32, max_size=32),
    active=st.lists(st.booleans(), min_size=32, max_size=32).filter(any),
)
def test_a_loop_over_words_in_banks_of_their_own_is_the_least_that_their_sharing_allows(
    units: list[int], active: list[bool]
) -> None:
    addresses, mask = 8 * np.array(units), np.array(active)
    least = int(ideal_wavefronts("atom_shared_add_b64", addresses, mask))
    assert least <= int(wavefronts("atom_shared_add_b64", addresses, mask))
    rounds = max(sum(unit == word for unit, on in zip(units, active, strict=True) if on) for word in set(units))
    assert least >= 3 * rounds


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_addresses_have_the_ideal_of_signed_ones(dtype: type[np.unsignedinteger[Any]]) -> None:
    lanes = np.arange(32)
    for op, places in (("ld_shared_b128", 4 * (lanes // 4 % 16) // 4 * 16), ("atom_shared_b32", 4 * (lanes // 8))):
        assert ideal_wavefronts(op, places.astype(dtype)) == ideal_wavefronts(op, places)
        assert wavefronts(op, places.astype(dtype)) == wavefronts(op, places)


def test_rows_with_padding_are_said_to_be_none_that_tma_writes() -> None:
    (said,) = remarks(ldmatrix(Layout((64, 64), (72, 1)), swizzle=swizzle_mode("128B")), is_in_elements=False)
    assert said == "TMA writes no padding: it lays rows of 128 bytes one behind the other, these are 144 apart"
