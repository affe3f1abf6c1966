"""CuTe's names of atoms mean the instructions that CuTe's headers give them."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.errors import KernelError
from gpusim.layout import Layout
from gpusim.workload.atoms import atom_of, copy_atom, is_atom_name, mma_atom
from gpusim.workload.dtypes import BF16
from gpusim.workload.gmem.coalescing import global_op
from gpusim.workload.smem.access import wavefronts
from gpusim.workload.smem.tile_access import TileAccess, smem_tile
from gpusim.workload.tiled import tiled_copy, tiled_mma

NAMES = [
    ("SM80_16x8x16_F32BF16BF16F32_TN", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    ("SM80_16x8x16_F16F16F16F16_TN", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"),
    ("SM80_16x8x4_F32TF32TF32F32_TN", "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"),
    ("SM80_16x8x32_S32S8S8S32_TN_SATURATE", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"),
    ("SM89_16x8x32_F32E4M3E4M3F32_TN", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"),
    ("MMA_Atom<SM80_16x8x8_F32F16F16F32_TN>", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"),
    ("SM90_64x128x16_F32F16F16_SS", "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"),
    ("cute::SM90_64x8x16_F16F16F16_RS<GMMA::Major::K, GMMA::Major::MN>",
     "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16"),
    ("SM90::GMMA::MMA_64x256x32_F32E4M3E4M3_SS_TN<>", "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3"),
    ("SM90_64x64x8_F32TF32TF32_RS_TN", "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32"),
    ("SM75_U32x4_LDSM_N", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
    ("SM75_U16x4_LDSM_T", "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"),
    ("Copy_Atom<SM90_U32x2_STSM_N, half_t>", "stmatrix.sync.aligned.m8n8.x2.shared.b16"),
    ("SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>", "cp.async.cg.shared.global [dst], [src], 16"),
    ("Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL<cute::uint128_t>, cute::half_t>", "cp.async.cg.shared.global [dst], [src], 16"),
    ("SM80_CP_ASYNC_CACHEALWAYS_ZFILL<float>", "cp.async.ca.shared.global [dst], [src], 4"),
    ("SM90_TMA_LOAD_MULTICAST",
     "cp.async.bulk.tensor.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"),
    ("SM90_TMA_STORE_2D", "cp.async.bulk.tensor.global.shared::cta.bulk_group"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ptx"), NAMES)
def test_a_name_of_cute_is_its_instruction(name: str, ptx: str) -> None:
    assert atom_of(name).ptx == ptx
    assert is_atom_name(name)


def test_the_case_of_a_name_does_not_count() -> None:
    assert atom_of("sm80_16x8x16_f32bf16BF16F32_TN") is atom_of("SM80_16x8x16_F32BF16BF16F32_TN")
    assert is_atom_name("sm80_16x8x16_F32BF16BF16F32_TN")
    with pytest.raises(KernelError, match="did you mean 'SM80_16x8x16_F32BF16BF16F32_TN'"):
        atom_of("sm80_16x8x16_F32BF16BF16F32_NT")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SM80_16x8x16_F32BF16BF16F32_NT", "did you mean 'SM80_16x8x16_F32BF16BF16F32_TN'"),
        ("SM90_64x129x16_F32F16F16_SS", "did you mean 'SM90_64x12"),
        ("SM75_U32x3_LDSM_N", "did you mean 'SM75_U32x"),
        ("SM80_CP_ASYNC_CACHEGLOBAL<uint64_t>", "is unknown; did you mean 'SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>'"),
        ("SM80_CP_ASYNC_CACHEALWAYS", "wants the type of a vector, for example SM80_CP_ASYNC_CACHEALWAYS<uint128_t>"),
        ("UniversalCopy<uint128_t>", "follows from where tensors lie"),
        ("SM100_MMA_F16BF16_SS", "CuTe's are like SM80_16x8x16_F32BF16BF16F32_TN"),
        ("ldmatrix_x5", "did you mean 'ldmatrix_x1'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(KernelError) as refused:
        atom_of(name)
    assert said in str(refused.value)


def test_a_copy_is_no_mma_nor_the_other_way_round() -> None:
    with pytest.raises(KernelError, match="is an MMA: use mma_atom"):
        copy_atom("SM80_16x8x16_F32BF16BF16F32_TN")
    with pytest.raises(KernelError, match="is a copy: use copy_atom"):
        mma_atom("SM75_U32x4_LDSM_N")
    assert mma_atom("wgmma_m64n128k16_fp16_ss") == mma_atom("SM90_64x128x16_F32F16F16_SS")


@pytest.mark.parametrize("text", ["(4,8):(8,1)", "Sw<3,3,3> o 0 o (8,64):(64,1)", "32:1@0", "smem_ptr[16b] o 8:1", "4"])
def test_a_layout_is_no_name(text: str) -> None:
    assert not is_atom_name(text)


def test_wavefronts_tiles_and_coalescing_take_cutes_names() -> None:
    lanes = 16 * np.arange(32)
    for theirs, ours in (("SM75_U32x4_LDSM_N", "ldmatrix_x4"), ("SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>", "cp_async_b128")):
        assert wavefronts(theirs, lanes) == wavefronts(ours, lanes)
        tile = smem_tile(Layout((64, 64), (64, 1)), BF16)
        assert TileAccess(op=theirs, tile=tile) == TileAccess(op=ours, tile=tile)
    assert global_op("SM80_CP_ASYNC_CACHEALWAYS<float>") == global_op("ld_global_b32")
    by_name = tiled_copy("SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>", BF16, Layout((16, 8), (8, 1)), Layout((1, 8)))
    assert by_name == tiled_copy(copy_atom("cp_async_cg_b128"), BF16, Layout((16, 8), (8, 1)), Layout((1, 8)))
    assert tiled_mma("SM80_16x8x16_F32BF16BF16F32_TN") == tiled_mma(mma_atom("mma_sync_m16n8k16_bf16_fp32"))
