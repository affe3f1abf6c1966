"""Instructions and wavefronts by opcode, under Nsight Compute's names: what a program asks for, worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gpusim import Buffer, GemmParams, Launch, WarpRole, load_gpu, simulate
from gpusim.simulate.order_check import without_order_check
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

H200 = load_gpu("h200_sxm")
SASS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op"
BOTH = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op"


def test_each_opcode_has_its_instructions_and_wavefronts() -> None:
    """Two CTAs of four warps: each warp loads 3 times (2 wavefronts each), reads 5 matrices (4), stores 2 (6) and 1 (8)."""

    def access(wavefronts: int) -> AccessPattern:
        return AccessPattern(num_requests=4, num_wavefronts=4 * wavefronts, num_bytes=4 * 128 * wavefronts)

    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.SharedStore(access(6), "room", 0)
        yield ops.SharedStore(access(6), "room", 0)
        yield ops.Stmatrix(access(8), "room", 0)
        for _ in range(3):
            yield ops.Use((yield ops.SharedLoad(access(2), "room", 0)))
        for _ in range(5):
            yield ops.Use((yield ops.Ldmatrix(access(4), "room", 0)))

    launch = Launch(
        kernel="opcodes", num_ctas=2, num_tiles=2, buffers=(Buffer(name="room", stage_bytes=4096),),
        roles=(WarpRole(name="warps", num_warps=4, program=program),),
    )  # fmt: skip
    found = simulate(without_order_check(launch), H200, clock="max").counters
    warps = 2 * 4
    assert found["smsp__inst_executed_op_shared_ld.sum"] == 3 * warps
    assert found["smsp__inst_executed_op_ldsm.sum"] == 5 * warps
    assert found["smsp__inst_executed_op_shared_st.sum"] == 2 * warps
    assert found["sm__inst_executed_op_shared_stsm.sum"] == 1 * warps
    assert found[f"{SASS}_ld.sum"] == 3 * 2 * warps
    assert found[f"{SASS}_ldsm.sum"] == 5 * 4 * warps
    assert found[f"{SASS}_st.sum"] == 2 * 6 * warps
    assert found[f"{SASS}_stsm.sum"] == 8 * warps
    assert found[f"{BOTH}_ld.sum"] == (3 * 2 + 5 * 4) * warps
    assert found[f"{BOTH}_st.sum"] == (2 * 6 + 8) * warps


MMA_SYNC = {
    "math": "mma_sync", "copy": "cp_async", "schedule": "multistage", "stages": 3, "tile": "128x128x32", "warps": "2x2",
}  # fmt: skip
TMA = {"math": "wgmma", "copy": "tma", "schedule": "cooperative", "stages": 3, "tile": "128x128x64", "epilogue": "tma_store"}


@pytest.mark.parametrize(("options", "wanted"), [
    # warps of 64 x 64: each step of 16 k is 4 x 8 mma.sync m16n8k16, and 4 + 4 ldmatrix.x4; 16 CTAs of 4 warps, 32 steps
    ({**MMA_SYNC, "epilogue": "direct"}, {
        "sm__inst_executed_pipe_tensor_op_hmma.sum": 16 * 4 * 32 * 4 * 8, "smsp__inst_executed_op_ldsm.sum": 16 * 4 * 32 * 8,
        "sm__inst_executed_op_shared_stsm.sum": 0, f"{SASS}_ld.sum": 0,
    }),
    # D through shared memory: an stmatrix.x4 leaves 16 x 16 of D, a warp's 16-byte load 256 elements of bf16 in 4 wavefronts
    ({**MMA_SYNC, "epilogue": "smem", "swizzle": "64B"}, {
        "sm__inst_executed_op_shared_stsm.sum": 512 * 512 // 256, "smsp__inst_executed_op_shared_ld.sum": 512 * 512 // 256,
        f"{SASS}_ld.sum": 512 * 512 // 64, f"{SASS}_ldsm.sum": 16 * 4 * 32 * 8 * 4,
    }),
    # wgmma 64 x 128 x 16 of four warps; boxes of 64 of k by 128 rows, one of A and one of B a step; D leaves in 64 x 64
    (TMA, {
        "sm__inst_executed_pipe_tensor_op_gmma.sum": 4 * (512 // 64) * (512 // 128) * (512 // 16),
        "smsp__inst_executed_op_tma_ld.sum": 16 * 8 * 2, "smsp__inst_executed_op_tma_st.sum": (512 // 64) ** 2,
        "sm__inst_executed_pipe_tensor_op_hmma.sum": 4 * (512 // 64) * (512 // 128) * (512 // 16),  # counts wgmma, too
    }),
    # clusters of two along m share B: each CTA brings its own A, and half of B for both
    ({**TMA, "cluster": "2x1"}, {"smsp__inst_executed_op_tma_ld.sum": 16 * 8 * 2}),
])  # fmt: skip
def test_a_products_counts_follow_from_its_tiles(options: Mapping[str, Any], wanted: Mapping[str, int]) -> None:
    params = GemmParams.model_validate({"m": 512, "n": 512, "k": 512, **options})
    found = simulate(params.launch(H200), H200, clock="max").counters
    assert {name: round(found[name], 6) for name in wanted} == dict(wanted)
