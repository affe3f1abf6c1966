"""Tensor maps and boxes: against what CuTe hands to the driver, as laws, and every limit from both sides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpusim.errors import LayoutError
from gpusim.layout import (
    SWIZZLE_MODES,
    ByteLayout,
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    group_modes,
    local_tile,
    parse_byte_layout,
    parse_int_tuple,
    parse_layout,
    span_bytes,
    swizzle_mode,
    take,
    tile_to_shape,
)
from gpusim.layout import int_tuple as it
from gpusim.workload.dtypes import BF16, DTYPES, FP8, FP16, FP32, FP64, INT8, TF32, DType
from gpusim.workload.operands import OperandTile, tma_boxes
from gpusim.workload.smem.wgmma_operands import Major, gmma_atom
from gpusim.workload.tma.boxes import TensorMap, TmaBox, row_pitch_bytes, tma_bank_writes, tma_fill, tma_wavefronts
from gpusim.workload.tma.make_tma_copy import TmaCopy, make_tma_copy, tensor_map, tma_partition

ORACLE = json.loads((Path(__file__).parent / "descriptor_oracle" / "descriptor_answers.json").read_text(encoding="utf-8"))
MAPS = [row[1:] for row in ORACLE if row[0] == "tensor map"]
PARTITIONS = [row[1:] for row in ORACLE if row[0] == "tma partition"]
CTYPES: dict[str, DType] = {
    "uint8_t": INT8,
    "float_e4m3_t": FP8,
    "half_t": FP16,
    "bfloat16_t": BF16,
    "float": FP32,
    "tfloat32_t": TF32,
    "double": FP64,
}

STRICTER = {
    ("Sw<3,4,3>_smem_ptr[16b] o (64,32):(32,1)", 1): "narrower than swizzle '128B'",
    ("Sw<0,4,3>_smem_ptr[16b] o (64,64):(72,1)", 1): "has gaps",
}
"""Where CuTe answers and we refuse: rows narrower than the swizzle's span, and padded rows, which CuTe takes one by one."""


def parse_smem(text: str) -> Layout | ByteLayout:
    return parse_byte_layout(text) if "smem_ptr" in text else cast("Layout", parse_layout(text))


def asked(ctype: str, gmem: str, address: int, smem: str, tiler: str, multicast: int) -> TmaCopy:
    return make_tma_copy(
        cast("Layout", parse_layout(gmem)),
        CTYPES[ctype],
        parse_smem(smem),
        tiler=parse_int_tuple(tiler) if tiler else None,
        num_multicast=multicast,
        global_address=address,
    )


# ---------------------------------------------------------------------- CuTe's answers


def test_the_table_holds_dozens_of_maps_with_and_without_multicast() -> None:
    answered = [row for row in MAPS if len(row) == 8]
    assert len(answered) >= 150
    assert {row[5] for row in answered} >= {1, 2, 4, 8, 16}
    assert {row[6][1] for row in answered} == {1, 2, 3, 4, 5}
    assert {row[6][8] for row in answered} == {0, 1, 2, 3}
    assert set(STRICTER) <= {(row[3], row[5]) for row in answered}


def starts_where_no_box_may(answer: list[Any], multicast: int) -> bool:
    """Whether CuTe's slices of a multicast start elsewhere than on 128 bytes: we refuse those."""
    element_bytes = {0: 1, 6: 2, 7: 4, 8: 8, 9: 2, 11: 4}[answer[0]]
    return multicast > 1 and int(np.prod(answer[5])) * element_bytes % 128 != 0


def name_of(row: list[Any]) -> str:
    return f"{row[0]} {row[1]} {row[3]} x{row[5]}"


@pytest.mark.parametrize("row", [row for row in MAPS if len(row) == 8], ids=name_of)
def test_a_tensor_map_is_cutes(row: list[Any]) -> None:
    *question, answer, basis = row
    reason = STRICTER.get((question[3], question[5]))
    if starts_where_no_box_may(answer, question[5]):
        reason = "use slices of whole 128s"
    if reason is not None:
        with pytest.raises(LayoutError, match=reason):
            asked(*question)
        return
    copy = asked(*question)
    assert json.loads(json.dumps(copy.tensor_map.arguments)) == answer
    assert str(copy.basis) == basis


@pytest.mark.parametrize("row", [row for row in MAPS if len(row) == 7], ids=name_of)
def test_what_cutes_assertions_refuse_is_refused(row: list[Any]) -> None:
    *question, answer = row
    assert answer.startswith("refused")
    with pytest.raises(LayoutError):
        asked(*question)


def place(tensor: Tensor) -> tuple[Any, Layout]:
    """Where a tensor starts, and its layout without its swizzle; strides of modes of size 1 are 0."""
    layout, start = tensor.inner, tensor.offset
    if isinstance(tensor.layout, ByteLayout):
        start += tensor.layout.offset
    return start, Layout(layout.shape, it.map_leaves(lambda s, d: 0 if s == 1 else d, layout.shape, layout.stride))


@pytest.mark.parametrize("row", PARTITIONS, ids=lambda row: f"{row[0]} {row[1]} x{row[3]} {row[4]}")
def test_what_a_cta_copies_of_each_tile_is_cutes(row: list[Any]) -> None:
    gmem, text, tiler_text, num_ctas, cta_idx, *answer = row
    tensor, smem, tiler = parse_layout(gmem), parse_smem(text), parse_int_tuple(tiler_text)
    num_modes = len(tiler) if isinstance(tiler, tuple) else 1
    stage = smem.with_inner(take(smem.layout, 0, num_modes)) if isinstance(smem, ByteLayout) else smem
    copy = make_tma_copy(cast("Layout", tensor), FP16, stage, tiler=tiler, num_multicast=num_ctas)
    tiles = local_tile(copy.get_tma_tensor(tensor.shape), tiler, (None,) * num_modes)
    part, stages = copy.get_slice(cta_idx), Tensor(smem)
    grouped = [group_modes(each, 0, num_modes) for each in (stages, tiles)]
    ours = [
        copy.get_tma_tensor(tensor.shape),
        part.partition_S(tiles),
        part.partition_D(stages),
        *tma_partition(copy, cta_idx, Layout(num_ctas), *grouped),
    ]
    start = it.show((0,) * copy.tensor_map.rank)
    theirs = [each.split(" o ") for each in (f"{start} o {answer[0]}", *answer[1:])]
    assert [place(each) for each in ours] == [
        place(Tensor(cast("Layout", parse_layout(layout)), parse_int_tuple(offset))) for offset, layout in theirs
    ]


def test_the_ctas_of_a_multicast_start_at_the_slices_that_they_load() -> None:
    smem = tile_to_shape(gmma_atom("K", "128B", element_bits=16), (128, 64))
    copy = make_tma_copy(Layout((1024, 512), (512, 1)), BF16, smem, num_multicast=4)
    starts = [copy.get_slice(cta).partition_S(copy.get_tma_tensor((1024, 512))).offset for cta in range(4)]
    assert starts == [(0, 32 * cta) for cta in range(4)]  # boxes of 64 x 32
    with pytest.raises(LayoutError, match="no CTA 4: use 0 to 3"):
        copy.get_slice(4)
    with pytest.raises(LayoutError, match="use its modes"):
        copy.get_tma_tensor((1024, 512, 2))
    with pytest.raises(LayoutError, match="use tiles of one size"):
        tma_partition(copy, 0, Layout(4), Tensor(group_modes(smem, 0, 2)), Tensor(Layout((64, 2))))


# ---------------------------------------------------------------------- laws


Ints = np.ndarray[Any, np.dtype[np.int64]]


def coordinates(bases: Layout, index: Ints) -> Ints:
    """int64[..., 2]: the places in a matrix that a layout of bases yields, by division with the extents."""
    places = np.zeros((*index.shape, 2), dtype=np.int64)
    left = index
    for extent, step in bases.modes:
        if extent > 1:
            places[..., step.modes[0]] += left % extent * step.value
            left = left // extent
    return places


def landed(copy: TmaCopy, slice_idx: int) -> tuple[Ints, Ints]:
    """Where the hardware puts the elements of one CTA's slice: int64[instruction, element, 2] places and their bytes.

    A box is written row after row, its first dimension fastest; then the swizzle moves chunks by their address.
    """
    described, num_slices = copy.tensor_map, copy.num_multicast
    box = np.indices(described.box_dim[::-1]).reshape(described.rank, -1)[::-1]  # its first dimension fastest
    starts = np.unravel_index(slice_idx * box.shape[1], [mode.size for mode in copy.basis], order="F")
    place = np.zeros((box.shape[1], 2), dtype=np.int64)
    for dimension, start, mode in zip(box, starts, copy.basis, strict=True):
        place += coordinates(mode, dimension + start)
    instruction = np.arange(copy.num_instructions)
    element = (instruction[:, None] * num_slices + slice_idx) * box.shape[1] + np.arange(box.shape[1])
    byte = swizzle_mode(described.swizzle)(described.dtype.num_bytes * element)
    return coordinates(copy.rest, instruction)[:, None] + place, byte


@st.composite
def copies(draw: st.DrawFn) -> tuple[TmaCopy, ByteLayout]:
    major: Major = draw(st.sampled_from(("K", "MN")))
    dtype = draw(st.sampled_from((BF16, FP8, TF32))) if major == "K" else BF16
    mode = draw(st.sampled_from(list(SWIZZLE_MODES)))
    atom = gmma_atom(major, mode, element_bits=dtype.bits)
    mn, k = (atom.layout[mode_idx].size for mode_idx in (0, 1))
    shape = (mn * draw(st.sampled_from((1, 2, 4))), k * draw(st.integers(1, 3)))
    smem = cast("ByteLayout", tile_to_shape(atom, shape, draw(st.sampled_from([(0, 1), (1, 0)]))))
    rows, columns = 256, 512
    tensor = Layout((rows, columns), (columns, 1) if major == "K" else (1, rows))
    num_multicast = draw(st.sampled_from((1, 1, 2, 4, 16)))
    try:
        return make_tma_copy(tensor, dtype, smem, num_multicast=num_multicast), smem
    except LayoutError:
        assume(num_multicast == 1)  # slices that start off 128 bytes, or no whole ones
        raise


@settings(deadline=None)
@given(copies(), st.data())
def test_boxes_write_the_bytes_that_the_layout_says(copy_and_smem: tuple[TmaCopy, ByteLayout], data: st.DataObject) -> None:
    copy, smem = copy_and_smem
    slice_idx = data.draw(st.integers(0, copy.num_multicast - 1))
    places, byte = landed(copy, slice_idx)
    assert np.array_equal(byte, smem(places[..., 0], places[..., 1]))
    assert byte.size * copy.num_multicast == smem.size
    assert copy.num_bytes == smem.size * copy.tensor_map.dtype.num_bytes


@settings(deadline=None)
@given(copies())
def test_a_copy_of_a_canonical_tile_has_rows_as_wide_as_the_swizzle(copy_and_smem: tuple[TmaCopy, ByteLayout]) -> None:
    tensor_map = copy_and_smem[0].tensor_map
    assert tensor_map.box.inner_bytes == span_bytes(tensor_map.swizzle)
    assert tensor_map.box_dim[0] * tensor_map.dtype.num_bytes == span_bytes(tensor_map.swizzle)


def test_a_swizzle_in_elements_is_the_same_map_as_in_bytes() -> None:
    tensor, layout = Layout((1024, 512), (512, 1)), Layout((64, 64), (64, 1))
    in_elements = ComposedLayout(Swizzle(3, 3, 3), 0, layout)
    assert tensor_map(tensor, BF16, in_elements) == tensor_map(tensor, BF16, ByteLayout(Swizzle(3, 4, 3), layout, 16))


def test_a_box_in_the_tensors_modes_is_the_map_of_the_tile() -> None:
    tensor = Layout((1024, 512, 6), (512, 1, 1024 * 512))
    tile = tile_to_shape(gmma_atom("K", "128B", element_bits=16), (128, 64))
    assert tensor_map(tensor, BF16, (128, 64, 1), swizzle="128B") == tensor_map(tensor, BF16, tile, tiler=(128, 64))


def test_element_strides_of_a_box_are_in_the_order_of_its_extents() -> None:
    described = tensor_map(Layout((1024, 512), (512, 1)), BF16, (128, 64), element_strides=(2, 1))
    assert described.element_strides == (1, 2)
    assert described.box.outer == (64,)


def test_stages_share_the_map_of_one() -> None:
    tensor = Layout((1024, 512), (512, 1))
    stages = cast("ByteLayout", tile_to_shape(gmma_atom("K", "64B", element_bits=16), (128, 64, 4)))
    first, third = (tensor_map(tensor, BF16, stages(None, None, stage)) for stage in (0, 2))
    assert first == third
    assert first.box_dim == (32, 128)


@st.composite
def operand_tiles(draw: st.DrawFn) -> OperandTile:
    mode = draw(st.sampled_from([*SWIZZLE_MODES, "3,4,3"]))
    dtype = draw(st.sampled_from((FP8, BF16, FP32)))
    width = span_bytes(mode) if mode in SWIZZLE_MODES else 1024
    contiguous, strided = width // dtype.num_bytes * draw(st.integers(1, 4)), 8 * draw(st.integers(1, 32))
    is_k_major = draw(st.booleans())
    rows, k = (strided, contiguous) if is_k_major else (contiguous, strided)
    is_interleaved = mode == "none" and draw(st.booleans())
    return OperandTile(rows=rows, k=k, dtype=dtype, is_k_major=is_k_major, swizzle=mode, is_interleaved=is_interleaved)


@settings(deadline=None)
@given(operand_tiles())
def test_an_operand_tiles_layout_is_its_bytes(tile: OperandTile) -> None:
    row, k = np.indices((tile.rows, tile.k))
    strided, contiguous = (row, k) if tile.is_k_major else (k, row)
    assert np.array_equal(tile.smem_layout(row, k), tile.byte_offsets(strided, contiguous * tile.dtype.num_bytes))


@settings(deadline=None)
@given(operand_tiles().filter(lambda tile: tile.is_in_panels))
def test_an_operand_tile_is_loaded_by_the_boxes_of_its_layout(tile: OperandTile) -> None:
    tensor = Layout((4096, 4096), (4096, 1) if tile.is_k_major else (1, 4096))
    copy = make_tma_copy(tensor, tile.dtype, tile.smem_layout)
    assert tma_boxes(tile) == (copy.tensor_map.box,) * copy.num_instructions


# ---------------------------------------------------------------------- limits, from both sides

PLAIN = TensorMap(
    dtype=BF16, global_address=4096, global_dim=(512, 1024), global_strides_bytes=(1024,), box_dim=(64, 128), swizzle="128B"
)
INTERLEAVED = TensorMap(
    dtype=BF16,
    global_dim=(8, 64, 64),
    global_strides_bytes=(32, 2048),
    box_dim=(8, 16, 16),
    interleave="16B",
)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"global_address": 4096 + 8}, "use a multiple of 16"),
        ({"global_address": -16}, "use a multiple of 16"),
        ({"global_dim": (512, 0)}, "use 1 to 2"),
        ({"global_dim": (512, (1 << 32) + 1)}, "use 1 to 2"),
        ({"global_strides_bytes": (1032,)}, "pad the tensor's rows"),
        ({"global_strides_bytes": (-16,)}, "use a multiple of 16 below"),
        ({"global_strides_bytes": (1 << 40,)}, "use a multiple of 16 below"),
        ({"global_strides_bytes": ()}, "0 numbers for 2 dimensions: use 1"),
        ({"global_strides_bytes": (1024, 2048)}, "2 numbers for 2 dimensions: use 1"),
        ({"box_dim": (64,)}, "1 numbers for 2 dimensions: use 2"),
        ({"box_dim": (64, 257)}, "use 1 to 256"),
        ({"box_dim": (64, 0)}, "use 1 to 256"),
        ({"box_dim": (72, 128)}, "wider than swizzle '128B': use at most 64"),
        ({"box_dim": (60, 128)}, "no multiple of 16"),
        ({"element_strides": (1, 9)}, "use 1 to 8"),
        ({"element_strides": (1, 0)}, "use 1 to 8"),
        ({"element_strides": (1,)}, "1 numbers for 2 dimensions"),
        ({"interleave": "16B"}, "2 dimensions with interleave '16B': use 3 to 5"),
        ({"swizzle": "256B"}, "did you mean '128B'|known: "),
        ({"l2_promotion": "512B"}, "L2 promotion '512B' is unknown"),
        ({"oob_fill": "one"}, "fill 'one' is unknown"),
        ({"dtype": replace(BF16, name="bf8")}, "data type 'bf8' is unknown"),
        ({"dtype": INT8, "oob_fill": "nan"}, "have no nan"),
        ({"dtype": FP8, "oob_fill": "nan"}, "have no nan"),
        ({"global_dim": (1,) * 6, "global_strides_bytes": (16,) * 5, "box_dim": (8, 1, 1, 1, 1, 1)}, "6 dimensions"),
    ],
)
def test_a_map_that_the_driver_refuses_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        replace(PLAIN, **({"element_strides": None} | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"global_address": 4096 + 16},
        {"global_dim": (512, 1 << 32)},
        {"global_dim": (1, 1)},
        {"global_strides_bytes": ((1 << 40) - 16,)},
        {"global_strides_bytes": (16,)},
        {"global_strides_bytes": (0,)},
        {"box_dim": (64, 256)},
        {"box_dim": (8, 1)},
        {"element_strides": (1, 8)},
        {"oob_fill": "nan"},
        {"l2_promotion": "none"},
        {"swizzle": "none", "box_dim": (256, 1)},
    ],
)
def test_a_map_at_the_limit_is_taken(changes: dict[str, Any]) -> None:
    assert replace(PLAIN, **changes).rank == 2


def test_interleaved_maps_have_limits_of_their_own() -> None:
    assert INTERLEAVED.arguments[7] == 1
    wide = replace(INTERLEAVED, interleave="32B", swizzle="32B")
    assert wide.arguments[7:9] == (2, 1)
    with pytest.raises(LayoutError, match="use swizzle '32B'"):
        replace(wide, swizzle="64B")
    with pytest.raises(LayoutError, match="starts at 4112: use a multiple of 32"):
        replace(wide, global_address=4112)
    with pytest.raises(LayoutError, match="use a multiple of 32 below"):
        replace(wide, global_strides_bytes=(48, 2048))
    with pytest.raises(LayoutError, match="brings no plain box"):
        _ = wide.box


@given(extent=st.integers(1, 256), step=st.integers(1, 8))
def test_an_element_stride_of_n_takes_every_nth_element(extent: int, step: int) -> None:
    strided = replace(PLAIN, box_dim=(64, extent), element_strides=(1, step))
    assert strided.box.outer == (len(range(0, extent, step)),)
    assert strided.box.num_bytes == 128 * len(range(0, extent, step))


def test_the_contiguous_dimension_has_no_element_stride() -> None:
    assert replace(PLAIN, element_strides=(2, 1)).box == PLAIN.box


@pytest.mark.parametrize(("mode", "alignment"), [("none", 128), ("32B", 256), ("64B", 512), ("128B", 1024)])
def test_a_box_starts_on_128_bytes_or_on_the_repeat(mode: str, alignment: int) -> None:
    described = replace(PLAIN, swizzle=mode, box_dim=(max(8, span_bytes(mode) // 2), 64))
    described.check_smem_address(3 * alignment)
    with pytest.raises(LayoutError, match=f"use a multiple of {alignment}"):
        described.check_smem_address(3 * alignment + alignment // 2)


@pytest.mark.parametrize("changes", [{"box_dim": (64, 1.5)}, {"global_dim": (64.0, 64)}, {"global_address": True}])
def test_numbers_of_a_map_are_integers(changes: dict[str, Any]) -> None:
    with pytest.raises(LayoutError, match="use integers"):
        replace(PLAIN, **changes)


def test_enumerations_are_those_of_cuda_h() -> None:
    """CU_TENSOR_MAP_DATA_TYPE_*: UINT8 0, INT32 3, FLOAT16 6, FLOAT32 7, FLOAT64 8, BFLOAT16 9, TFLOAT32 11."""
    maps = {name: replace(PLAIN, dtype=dtype, box_dim=(16 // dtype.num_bytes, 1)) for name, dtype in DTYPES.items()}
    numbers = {"fp8": 0, "int8": 0, "int32": 3, "fp16": 6, "fp32": 7, "fp64": 8, "bf16": 9, "tf32": 11}
    assert {name: described.arguments[0] for name, described in maps.items()} == numbers
    assert [replace(PLAIN, l2_promotion=name).arguments[9] for name in ("none", "64B", "128B", "256B")] == [0, 1, 2, 3]
    assert replace(PLAIN, oob_fill="nan").arguments[10] == 1


# ---------------------------------------------------------------------- tiles that no box makes


def test_a_tile_that_no_box_makes_is_refused_with_the_reason() -> None:
    tensor, tile = Layout((1024, 512), (512, 1)), gmma_atom("K", "128B", element_bits=16)
    with pytest.raises(LayoutError, match="elements of 16 bits: use 32"):
        make_tma_copy(tensor, FP32, tile)
    with pytest.raises(LayoutError, match="none of TMA's"):
        make_tma_copy(tensor, BF16, ByteLayout(Swizzle(2, 4, 4), Layout((8, 64), (64, 1)), 16))
    with pytest.raises(LayoutError, match="use as many elements"):
        make_tma_copy(tensor, BF16, tile, tiler=(16, 64))
    with pytest.raises(LayoutError, match="has gaps, only 64 of its 512"):
        make_tma_copy(tensor, BF16, Layout((8, 64), (72, 1)))
    with pytest.raises(LayoutError, match="not walked mode by mode"):
        make_tma_copy(tensor, BF16, Layout((8, (2, 32)), (64, (32, 1))))
    with pytest.raises(LayoutError, match="use a tile of its major mode"):
        make_tma_copy(tensor, BF16, gmma_atom("MN", "128B", element_bits=16))
    with pytest.raises(LayoutError, match="leave swizzle and element_strides out"):
        tensor_map(tensor, BF16, tile, swizzle="128B")
    with pytest.raises(LayoutError, match="use 2 extents"):
        tensor_map(tensor, BF16, (64,))
    with pytest.raises(LayoutError, match="leave tiler and num_multicast out"):
        tensor_map(tensor, BF16, (8, 64), num_multicast=2)
    with pytest.raises(LayoutError, match="use 2"):
        tensor_map(tensor, BF16, (8, 64), element_strides=(1,))
    with pytest.raises(LayoutError, match="no contiguous mode"):
        tensor_map(Layout((64, 64), (128, 2)), BF16, (8, 64))


def test_multicast_divides_a_box_into_slices_that_start_where_boxes_do() -> None:
    tensor = Layout((1024, 512), (512, 1))
    smem = cast("ByteLayout", tile_to_shape(gmma_atom("K", "128B", element_bits=16), (64, 64)))
    assert make_tma_copy(tensor, BF16, smem, num_multicast=8).tensor_map.box_dim == (64, 8)
    assert make_tma_copy(tensor, BF16, smem, num_multicast=16).tensor_map.box_dim == (64, 4)  # half of a repeat
    narrow = cast("ByteLayout", tile_to_shape(gmma_atom("K", "32B", element_bits=16), (64, 16)))
    with pytest.raises(LayoutError, match="boxes of 64 bytes side by side: use slices of whole 128s"):
        make_tma_copy(tensor, BF16, narrow, num_multicast=32)
    with pytest.raises(LayoutError, match="use one that divides it"):
        make_tma_copy(tensor, BF16, smem, num_multicast=3)
    with pytest.raises(LayoutError, match="for 8192 CTAs: use at most 4096"):
        make_tma_copy(tensor, BF16, smem, num_multicast=8192)


def test_a_tile_starts_where_boxes_do() -> None:
    tensor, layout = Layout((1024, 512), (512, 1)), Layout((8, 64), (64, 1))
    assert make_tma_copy(tensor, BF16, ByteLayout(Swizzle(3, 4, 3), layout, 16, offset=512)).num_instructions == 1
    with pytest.raises(LayoutError, match="at shared-memory address 512: use a multiple of 1024"):
        make_tma_copy(tensor, BF16, ByteLayout(Swizzle(3, 4, 3), layout, 16, offset=256))


# ---------------------------------------------------------------------- wavefronts


@given(
    mode=st.sampled_from(list(SWIZZLE_MODES)),
    num_rows=st.integers(1, 256),
    dtype=st.sampled_from((FP8, BF16, FP32)),
    plain_chunks=st.integers(1, 16),
)
def test_each_row_of_a_box_is_written_alone_line_by_line(mode: str, num_rows: int, dtype: DType, plain_chunks: int) -> None:
    inner_bytes = span_bytes(mode) if mode != "none" else 16 * plain_chunks
    box = TmaBox(inner_elements=inner_bytes // dtype.num_bytes, outer=(num_rows,), dtype=dtype, swizzle=mode)
    rows = [range(row * inner_bytes, (row + 1) * inner_bytes, 16) for row in range(num_rows)]
    halves = [(row[: len(row) // 2 * 2], row[len(row) // 2 * 2 :]) if len(row) > 1 else (row,) for row in rows]
    assert tma_wavefronts(box) == sum(len({chunk // 128 for chunk in part}) for parts in halves for part in parts)
    assert tma_fill([box, box]).num_wavefronts == 2 * tma_wavefronts(box)


def test_rows_narrower_than_the_span_lie_a_span_apart_and_cost_no_more() -> None:
    box = TmaBox(inner_elements=32, outer=(8,), dtype=BF16, swizzle="64B")
    assert [row_pitch_bytes(replace(box, swizzle=mode)) for mode in ("none", "64B", "128B")] == [64, 64, 128]
    assert [tma_wavefronts(box, mode) for mode in ("none", "64B", "128B")] == [8, 8, 8]
    assert tma_bank_writes(box) == 8 * 64 // 4
    with pytest.raises(LayoutError, match="wider than swizzle"):
        tma_wavefronts(box, "32B")
