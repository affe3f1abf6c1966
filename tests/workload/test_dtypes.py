"""Element types occupy what memory says; the accumulator is PTX's; tensors add up."""

from __future__ import annotations

import pytest

from gpusim.errors import KernelError, LayoutError
from gpusim.workload.dtypes import (
    BF16,
    DTYPES,
    FP8,
    FP16,
    FP32,
    FP64,
    INT8,
    INT32,
    TF32,
    DType,
    accumulator_of,
    dtype,
)
from gpusim.workload.tensor import Tensor


def test_types_occupy_their_bits() -> None:
    occupied = {BF16: 2, FP16: 2, TF32: 4, FP32: 4, FP8: 1, INT8: 1, INT32: 4, FP64: 8}
    assert {d: d.num_bytes for d in DTYPES.values()} == occupied


def test_every_type_is_found_by_its_name() -> None:
    assert all(dtype(name) is d and d.name == name for name, d in DTYPES.items())


def test_an_unknown_type_is_refused_with_the_nearest() -> None:
    with pytest.raises(KernelError, match="did you mean 'bf16'"):
        dtype("bfloat16")


def test_floats_are_summed_in_fp32_and_int8_in_int32() -> None:
    assert {accumulator_of(d) for d in (BF16, FP16, TF32, FP32, FP8)} == {FP32}
    assert accumulator_of(INT8) is INT32
    assert accumulator_of(FP64) is FP64


def test_no_mma_takes_int32_operands() -> None:
    with pytest.raises(KernelError, match="int32"):
        accumulator_of(INT32)


def test_a_type_of_no_whole_bytes_is_refused() -> None:
    with pytest.raises(KernelError, match="no whole bytes"):
        DType("fp4", 4, "float")


def test_a_tensor_has_the_bytes_of_its_elements() -> None:
    assert Tensor(name="A", shape=(3, 5, 7), dtype=BF16).num_bytes == 3 * 5 * 7 * 2


def test_order_says_which_mode_is_contiguous() -> None:
    row_major = Tensor(name="A", shape=(3, 5, 7), dtype=BF16, order="row_major")
    column_major = Tensor(name="A", shape=(3, 5, 7), dtype=BF16, order="column_major")
    assert row_major.strides == (35, 7, 1)
    assert column_major.strides == (1, 3, 15)


@pytest.mark.parametrize("shape", [(), (4, 0)])
def test_a_tensor_without_elements_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LayoutError, match="tensor A"):
        Tensor(name="A", shape=shape, dtype=BF16)
