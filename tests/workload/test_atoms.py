"""Atoms say what PTX says. Which thread holds what: test_atom_layouts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import KernelError
from gpusim.workload.atoms import COPY_ATOMS, FFMA, MMA_ATOMS, copy_atom, largest_wgmma_n, legal_wgmma_n, mma_sync, wgmma
from gpusim.workload.dtypes import BF16, FP8, FP16, FP32, FP64, INT8, INT32, TF32, DType
from gpusim.workload.smem.smem_ops import SMEM_OPS

TENSOR_DTYPES = (BF16, FP16, TF32, FP8, INT8)

PTX_INT8_N = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
"""Source: PTX ISA, wgmma shapes, .m64nNk32 for integers."""


def test_every_copy_atom_that_touches_smem_by_lanes_names_its_wavefront_rule() -> None:
    for atom in COPY_ATOMS.values():
        by_lanes = atom.bits_per_thread is not None and "smem" in (atom.source, atom.target)
        assert (atom.smem_op is not None) == by_lanes, atom.name
        assert atom.smem_op is None or atom.smem_op in SMEM_OPS


def test_every_wavefront_rule_belongs_to_an_atom() -> None:
    """Save for the rules of atomics, which move nothing."""
    copies = {name for name in SMEM_OPS if not name.startswith(("atom_", "red_"))}
    assert {atom.smem_op for atom in COPY_ATOMS.values()} - {None} == copies


def test_an_atom_moves_what_its_rule_addresses() -> None:
    for atom in COPY_ATOMS.values():
        if atom.smem_op is not None:
            rule = SMEM_OPS[atom.smem_op]
            assert atom.num_bytes == rule.num_lanes * rule.access_bytes


def test_only_the_cached_cp_async_has_small_sizes() -> None:
    assert {name for name in COPY_ATOMS if name.startswith("cp_async")} == {
        "cp_async_ca_b32",
        "cp_async_ca_b64",
        "cp_async_ca_b128",
        "cp_async_cg_b128",
    }


def test_how_much_tma_moves_is_asked_of_its_box() -> None:
    with pytest.raises(KernelError, match="TmaBox"):
        _ = copy_atom("tma_load").num_bytes


def test_an_unknown_copy_atom_is_refused_with_the_nearest() -> None:
    with pytest.raises(KernelError, match="did you mean 'ldmatrix_x4'"):
        copy_atom("ldmatrix.x4")


@pytest.mark.parametrize(
    ("operand", "k", "ptx"),
    [
        (BF16, 16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        (FP16, 16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        (TF32, 8, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
        (FP8, 32, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"),
        (INT8, 32, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"),
    ],
)
def test_the_default_mma_sync_is_the_deepest(operand: DType, k: int, ptx: str) -> None:
    atom = mma_sync(operand)
    assert (atom.m, atom.n, atom.k, atom.ptx) == (16, 8, k, ptx)
    assert all(other.k <= k for other in MMA_ATOMS.values() if other.a_dtype is operand)


def test_an_mma_sync_keeps_four_accumulator_registers_or_two_in_fp16() -> None:
    assert mma_sync(BF16).accumulator_registers == 4
    assert MMA_ATOMS["mma_sync_m16n8k16_fp16_fp16"].accumulator_registers == 2


MMA_SYNC_K = {
    (FP16, FP32): {8, 16},
    (FP16, FP16): {8, 16},
    (BF16, FP32): {8, 16},
    (TF32, FP32): {4, 8},
    (INT8, INT32): {16, 32},
    (FP8, FP32): {16, 32},
    (FP8, FP16): {16, 32},
}
"""Each k of m16n8 that ptxas 13.0 assembles for sm_90a; it refuses k32 at 16 bits, k16 for tf32, k8 and k64 at 8 bits, and
bf16 and tf32 summed in fp16."""


def test_there_is_every_m16n8_shape_that_the_assembler_takes() -> None:
    found: dict[tuple[DType, DType], set[int]] = {}
    for atom in MMA_ATOMS.values():
        if atom.kind == "mma_sync":
            found.setdefault((atom.a_dtype, atom.acc_dtype), set()).add(atom.k)
    assert found == MMA_SYNC_K | {(FP64, FP64): {4, 8, 16}}


@pytest.mark.parametrize("operand", TENSOR_DTYPES)
def test_only_fp16_and_fp8_are_also_summed_in_fp16(operand: DType) -> None:
    """In half as many registers; any other accumulator but the default is refused."""
    default = wgmma(128, operand)
    assert wgmma(128, operand, accumulator=default.acc_dtype) == default
    assert mma_sync(operand, default.acc_dtype) == mma_sync(operand)
    if operand in (FP16, FP8):
        half = wgmma(128, operand, accumulator=FP16)
        assert (half.acc_dtype, half.accumulator_registers) == (FP16, default.accumulator_registers // 2)
        assert half.name != default.name
        assert mma_sync(operand, FP16).ptx.endswith(".f16")
    else:
        for refused in (wgmma, mma_sync):
            with pytest.raises(KernelError, match=f"no atom sums {operand.name} in fp16: use {default.acc_dtype.name}$"):
                refused(*((128, operand) if refused is wgmma else (operand,)), accumulator=FP16)


def test_a_warp_of_ffma_does_two_operations_a_lane_into_one_register() -> None:
    assert FFMA.num_flops == 2 * 32
    assert FFMA.accumulator_registers == 1


def test_rate_classes_join_the_16_bit_types_and_nothing_else() -> None:
    classes = {d.name: mma_sync(d).rate_class for d in TENSOR_DTYPES} | {"fp32": FFMA.rate_class}
    assert classes == {
        "bf16": "16bit",
        "fp16": "16bit",
        "tf32": "tf32",
        "fp8": "fp8",
        "int8": "int8",
        "fp32": "fp32",
    }


@given(operand=st.sampled_from(TENSOR_DTYPES), data=st.data())
def test_every_wgmma_takes_32_bytes_of_k_and_spreads_its_accumulator_over_a_warpgroup(
    operand: DType, data: st.DataObject
) -> None:
    atom = wgmma(data.draw(st.sampled_from(legal_wgmma_n(operand))), operand)
    assert (atom.m, atom.a_bytes, atom.b_bytes) == (64, 64 * 32, atom.n * 32)
    assert atom.num_threads == 128
    assert atom.accumulator_registers == atom.n // 2
    assert atom.num_flops == 2 * 64 * atom.n * atom.k


def test_float_wgmma_has_every_multiple_of_8_and_int8_those_of_ptx() -> None:
    for operand in (BF16, FP16, TF32, FP8):
        assert legal_wgmma_n(operand) == tuple(range(8, 257, 8))
    assert legal_wgmma_n(INT8) == PTX_INT8_N


@pytest.mark.parametrize(
    ("n", "operand", "close"),
    [(100, BF16, 104), (7, BF16, 8), (264, BF16, 256), (56, INT8, 64), (41, INT8, 48)],
)
def test_an_illegal_n_is_refused_with_the_nearest(n: int, operand: DType, close: int) -> None:
    with pytest.raises(KernelError, match=f"nearest legal n is {close}$"):
        wgmma(n, operand)


@pytest.mark.parametrize("operand", [FP32, FP64, INT32])
def test_tensor_cores_refuse_types_that_have_no_atom(operand: DType) -> None:
    with pytest.raises(KernelError, match=operand.name):
        wgmma(64, operand)
    with pytest.raises(KernelError, match=operand.name):
        mma_sync(operand)


@given(operand=st.sampled_from(TENSOR_DTYPES), eighths=st.integers(1, 64))
def test_the_largest_n_is_legal_divides_and_has_no_larger_rival(operand: DType, eighths: int) -> None:
    tile_n = 8 * eighths
    n = largest_wgmma_n(tile_n, operand)
    assert n in legal_wgmma_n(operand)
    assert tile_n % n == 0
    assert all(tile_n % rival for rival in legal_wgmma_n(operand) if rival > n)


@pytest.mark.parametrize("tile_n", [-8, 0, 4, 100])
def test_columns_that_no_n_divides_are_refused(tile_n: int) -> None:
    with pytest.raises(KernelError, match="nearest tile that works"):
        largest_wgmma_n(tile_n, BF16)


def test_a_of_wgmma_comes_from_smem_or_registers() -> None:
    with pytest.raises(KernelError, match="use 'smem' or 'registers'"):
        wgmma(64, BF16, "foo")  # type: ignore[arg-type]  # what is tested
