"""Element types occupy what memory says; the accumulator is PTX's; tensors have their bytes where their layouts say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import KernelError, LayoutError
from gpusim.layout import ByteLayout, Layout, make_identity_layout, swizzle_mode
from gpusim.workload.atoms import mma_sync, wgmma
from gpusim.workload.dtypes import (
    ALIASES,
    BF16,
    DTYPES,
    FP8,
    FP16,
    FP32,
    FP64,
    INT8,
    INT32,
    STORED_DTYPES,
    TF32,
    DType,
    accumulator_of,
    dtype,
    dtype_in_memory,
)
from gpusim.workload.tensor import MemRef


def test_types_occupy_their_bits() -> None:
    occupied = {BF16: 2, FP16: 2, TF32: 4, FP32: 4, FP8: 1, INT8: 1, INT32: 4, FP64: 8}
    assert {d: d.num_bytes for d in DTYPES.values()} == occupied


def test_every_type_is_found_by_its_name() -> None:
    assert all(dtype(name) is d and d.name == name for name, d in DTYPES.items())


def test_a_type_is_found_in_any_case_and_by_what_others_call_it() -> None:
    called = {
        FP32: ("FP32", "float32", "float", "Float"), FP16: ("float16", "half"), BF16: ("BF16", "bfloat16"),
        FP64: ("float64", "double"), FP8: ("e4m3", "float8"), INT8: ("s8", "i8"), INT32: ("s32", "i32"), TF32: ("TF32",),
    }  # fmt: skip
    assert {d: {dtype(name) for name in names} for d, names in called.items()} == {d: {d} for d in called}
    assert not ALIASES.keys() & (DTYPES.keys() | STORED_DTYPES.keys())
    assert set(ALIASES.values()) <= DTYPES.keys()


def test_where_only_the_width_counts_more_types_are_known_which_nothing_computes_with() -> None:
    assert {name: dtype_in_memory(name).bits for name in ("uint8", "int16", "UINT16", "e5m2", "uint32", "uint64")} == {
        "uint8": 8, "int16": 16, "UINT16": 16, "e5m2": 8, "uint32": 32, "uint64": 64,
    }  # fmt: skip
    assert all(dtype_in_memory(name) is d for name, d in DTYPES.items())
    for stored in STORED_DTYPES.values():
        with pytest.raises(KernelError, match="is unknown"):
            dtype(stored.name)
        with pytest.raises(KernelError, match="no MMA"):
            accumulator_of(stored)


def test_an_unknown_type_is_refused_with_the_nearest_or_with_all() -> None:
    with pytest.raises(KernelError, match="'bf17' is unknown; did you mean 'bf16'"):
        dtype("bf17")
    with pytest.raises(KernelError, match="'int4' is unknown; did you mean 'int8'"):
        dtype("int4")
    with pytest.raises(KernelError, match="'complex64' is unknown; known: bf16, fp16, tf32, fp32, fp8, int8, int32, fp64"):
        dtype("complex64")


@pytest.mark.parametrize(
    "make",
    [lambda: wgmma(128, "bf16"), lambda: mma_sync("bf16"), lambda: mma_sync(FP16, "bf16"),
     lambda: MemRef(name="A", layout=Layout(8), dtype="bf16"), lambda: MemRef.row_major("A", (8, 8), "bf16")],
)  # fmt: skip
def test_the_name_of_a_type_in_its_place_is_pointed_out(make: Callable[[], object]) -> None:
    with pytest.raises(KernelError, match=r"'bf16' is no DType: use dtype\('bf16'\)"):
        make()


def test_floats_are_summed_in_fp32_and_int8_in_int32() -> None:
    assert {accumulator_of(d) for d in (BF16, FP16, TF32, FP32, FP8)} == {FP32}
    assert accumulator_of(INT8) is INT32
    assert accumulator_of(FP64) is FP64


def test_no_mma_takes_int32_operands() -> None:
    with pytest.raises(KernelError, match="int32"):
        accumulator_of(INT32)


def test_a_type_of_no_whole_bytes_is_refused() -> None:
    with pytest.raises(KernelError, match="no full bytes"):
        DType("fp4", 4, "float")


# ---------------------------------------------------------------------- tensors in memory


def test_a_dense_tensor_has_the_bytes_of_its_elements() -> None:
    for make in (MemRef.row_major, MemRef.column_major):
        tensor = make("A", (3, 5, 7), BF16)
        assert (tensor.num_bytes, tensor.num_elements, tensor.shape) == (3 * 5 * 7 * 2, 105, (3, 5, 7))


def test_order_says_which_mode_is_contiguous() -> None:
    assert MemRef.row_major("A", (3, 5, 7), BF16).layout == Layout((3, 5, 7), (35, 7, 1))
    assert MemRef.column_major("A", (3, 5, 7), BF16).layout == Layout((3, 5, 7), (1, 3, 15))


def test_padding_counts_up_to_the_last_element() -> None:
    """Eight rows of 64, 72 apart: the last row has no padding after it."""
    padded = MemRef(name="A", layout=Layout((8, 64), (72, 1)), dtype=FP32, space="smem")
    assert padded.num_bytes == (7 * 72 + 64) * 4
    assert padded.byte_addresses((7, 63)) + 4 == padded.num_bytes


@given(
    rows=st.sampled_from([8, 16, 64]),
    mode=st.sampled_from(["none", "32B", "64B", "128B"]),
    base_bytes=st.integers(0, 4).map(lambda n: 1024 * n),
    element=st.sampled_from([BF16, FP8, FP32]),
)
def test_a_swizzle_of_addresses_is_that_of_offsets_where_the_base_is_aligned(
    rows: int, mode: str, base_bytes: int, element: DType
) -> None:
    """Both kinds of layout address the same bytes, each element's once, and end where the tile ends."""
    columns = 128 // element.num_bytes
    of_bytes = ByteLayout(swizzle_mode(mode), Layout((rows, columns), (columns, 1)), element_bits=element.bits)
    ours, other = (
        MemRef(name="sA", layout=layout, dtype=element, space="smem", base_bytes=base_bytes)
        for layout in (of_bytes, of_bytes.to_elements())
    )
    assert ours.num_bytes == other.num_bytes == 128 * rows
    everywhere = (np.arange(rows)[:, None], np.arange(columns))
    addresses = ours.byte_addresses(everywhere)
    assert np.array_equal(addresses, other.byte_addresses(everywhere))
    linear = base_bytes + 128 * everywhere[0] + element.num_bytes * everywhere[1]
    assert np.array_equal(addresses, swizzle_mode(mode)(linear))  # as hardware does it
    assert sorted(addresses.ravel()) == list(range(base_bytes, base_bytes + 128 * rows, element.num_bytes))


def test_one_integer_counts_through_all_modes_as_a_layout_does() -> None:
    tensor = MemRef.row_major("A", (4, 8), BF16, base_bytes=512)
    assert tensor.byte_addresses(np.arange(32)).tolist() == [512 + 2 * tensor.layout(i) for i in range(32)]
    assert tensor.byte_addresses(np.int32(9)) == 512 + 2 * tensor.layout(9)


@pytest.mark.parametrize("shape", [(), (4, 0)])
def test_a_tensor_without_elements_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LayoutError, match="use one mode or more"):
        MemRef.row_major("A", shape, BF16)


@pytest.mark.parametrize("coords", [4, -1, (0, 2, 0), (2, 0), (0, np.array([0, 2])), (0, -1), 0.5])
def test_a_coordinate_outside_of_a_tensor_is_refused(coords: object) -> None:
    tensor = MemRef.row_major("A", (2, 2), BF16)
    assert tensor.byte_addresses((1, 1)) == 6
    with pytest.raises(LayoutError, match="memref A"):
        tensor.byte_addresses(coords)


def test_a_base_is_aligned_to_elements_and_to_a_swizzle_of_addresses() -> None:
    layout = ByteLayout(swizzle_mode("128B"), Layout((8, 64), (64, 1)), element_bits=16)
    MemRef(name="sA", layout=layout, dtype=BF16, space="smem", base_bytes=1024)
    with pytest.raises(LayoutError, match="base 512: use a multiple of 1024"):
        MemRef(name="sA", layout=layout, dtype=BF16, space="smem", base_bytes=512)
    MemRef.row_major("A", (8,), FP32, base_bytes=12)
    for base_bytes in (14, -4):
        with pytest.raises(LayoutError, match="use a multiple of 4 bytes"):
            MemRef.row_major("A", (8,), FP32, base_bytes=base_bytes)


def test_layouts_that_give_no_addresses_of_the_type_are_refused() -> None:
    of_bytes = ByteLayout(swizzle_mode("64B"), Layout(64), element_bits=16)
    with pytest.raises(LayoutError, match="elements of 16 bits, fp32 has 32: use element_bits=32"):
        MemRef(name="A", layout=of_bytes, dtype=FP32)
    for layout in (make_identity_layout((4, 4)), Layout((4, 4), (-1, 4))):
        with pytest.raises(LayoutError, match="use strides that are integers of 0 or more"):
            MemRef(name="A", layout=layout, dtype=FP32)
