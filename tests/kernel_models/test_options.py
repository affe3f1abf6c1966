"""Each option is accepted, and changes what it should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.launch import Launch

from .conftest import ops_of

BASE: dict[str, Any] = {"m": 512, "n": 512, "k": 256}


def total(launch: Launch, kind: type[ops.Op], of: Callable[[Any], float]) -> float:
    return sum(of(op) for _, op in ops_of(launch, kind, num_ctas=2))


def num_ops(kind: type[ops.Op]) -> Callable[[Launch], float]:
    return lambda launch: total(launch, kind, lambda op: 1)


def num_alu(launch: Launch) -> float:
    return total(launch, ops.Alu, lambda op: op.num_instructions)


def buffer_bytes(launch: Launch) -> dict[str, tuple[int, int]]:
    return {buffer.name: (buffer.stage_bytes, buffer.num_stages) for buffer in launch.buffers}


def wgmma_shape(launch: Launch) -> tuple[int, int, int]:
    atom = ops_of(launch, ops.Wgmma, num_ctas=2)[0][1].atom
    return atom.m, atom.n, atom.k


def panels_in_order(launch: Launch) -> list[int]:
    return [op.tile[0] for _, op in ops_of(launch, ops.TmaLoad) if op.tensor == "A" and op.tile[1] == 0]


def registers_of_roles(launch: Launch) -> set[int]:
    return {op.num_registers for _, op in ops_of(launch, ops.SetMaxNReg, num_ctas=1)}


EFFECTS: list[tuple[dict[str, Any], Callable[[Launch], Any], Any]] = [
    ({}, lambda launch: launch.num_ctas, 4 * 2),
    ({"m": 1024}, lambda launch: launch.num_ctas, 8 * 2),
    ({"n": 1024}, lambda launch: launch.num_ctas, 4 * 4),
    ({"k": 512}, lambda launch: total(launch, ops.Wgmma, lambda op: 1), 8 * 2 * (512 // 64)),
    ({"batch": 3}, lambda launch: launch.num_ctas, 3 * 4 * 2),
    ({"batch": 3}, lambda launch: launch.num_flops, 3 * 2 * 512 * 512 * 256),
    ({"dtype": "fp8"}, wgmma_shape, (64, 256, 32)),
    ({"dtype": "tf32"}, wgmma_shape, (64, 256, 8)),
    ({"dtype": "int8"}, lambda launch: launch.math_class, "int8"),
    ({"dtype": "fp16"}, lambda launch: launch.math_class, "16bit"),
    ({}, lambda launch: launch.params["out_dtype"], "bf16"),
    ({"dtype": "fp16"}, lambda launch: launch.params["out_dtype"], "fp16"),
    ({"dtype": "fp8"}, lambda launch: launch.params["out_dtype"], "bf16"),
    ({"dtype": "int8"}, lambda launch: launch.params["out_dtype"], "int32"),
    (
        {"out_dtype": "fp32", "epilogue": "tma_store"},
        lambda launch: total(launch, ops.TmaStore, lambda op: op.num_bytes), 512 * 512 * 4,
    ),
    # K-major: one box a tile; MN-major: one a panel of 64 elements
    ({"layout": "tn"}, lambda launch: {op.num_boxes for _, op in ops_of(launch, ops.TmaLoad)}, {1}),
    ({"layout": "nn"}, lambda launch: {op.num_boxes for _, op in ops_of(launch, ops.TmaLoad)}, {2, 1}),
    ({"layout": "tt"}, lambda launch: {op.num_boxes for _, op in ops_of(launch, ops.TmaLoad)}, {1, 4}),
    ({"layout": "nt"}, lambda launch: {op.num_boxes for _, op in ops_of(launch, ops.TmaLoad)}, {2, 4}),
    ({"tile": "128x64x32"}, buffer_bytes, {"a": (128 * 64, 4), "b": (64 * 64, 4)}),
    ({"stages": 2}, buffer_bytes, {"a": (128 * 128, 2), "b": (256 * 128, 2)}),
    ({"copy": "cp_async"}, num_ops(ops.TmaLoad), 0),
    ({"copy": "cp_async"}, lambda launch: "cp_async" in launch.features and "tma" not in launch.features, True),
    ({"math": "mma_sync"}, num_ops(ops.Wgmma), 0),
    ({"math": "mma_sync"}, lambda launch: num_ops(ops.Ldmatrix)(launch) > 0, True),
    ({"schedule": "multistage"}, lambda launch: [role.name for role in launch.roles], ["math"]),
    (
        {"schedule": "warp_specialized"}, lambda launch: [role.name for role in launch.roles],
        ["producer", "consumer0"],
    ),
    (
        {"schedule": "cooperative", "consumer_warpgroups": 3, "tile": "192x128x64"},
        lambda launch: [role.num_warps for role in launch.roles], [4, 4, 4, 4],
    ),
    ({"schedule": "pingpong"}, lambda launch: launch.num_ctas, None),
    (
        {"schedule": "pingpong"},
        lambda launch: {ring.name for ring in launch.mbarriers},
        {"full", "empty", "math_turn", "epilogue_turn"},
    ),
    ({"math": "mma_sync", "warps": "4x2", "tile": "128x128x32"}, lambda launch: launch.num_threads, 256),
    ({"schedule": "multistage", "consumer_warpgroups": 1}, lambda launch: launch.num_threads, 128),
    ({"tile": "128x256x64", "consumer_split": "m"}, wgmma_shape, (64, 256, 16)),
    ({"tile": "128x256x64", "consumer_split": "n"}, wgmma_shape, (64, 128, 16)),
    ({"cluster": "2x1"}, lambda launch: launch.cluster_size, 2),
    ({"cluster": "2x2"}, lambda launch: "cluster" in launch.features, True),
    ({"persistent": True}, lambda launch: launch.num_ctas, None),
    ({"raster": "along_n"}, panels_in_order, [0, 0, 1, 1, 2, 2, 3, 3]),
    ({"raster": "along_m"}, panels_in_order, [0, 1, 2, 3, 0, 1, 2, 3]),
    ({"swizzle_size": 2}, panels_in_order, [0, 1, 0, 1, 2, 3, 2, 3]),
    (
        {"schedule": "multistage", "tile": "128x128x64", "swizzle_size": 3, "raster_order": "full_bands"},
        lambda launch: launch.num_ctas, 6 * 4,
    ),
    ({"raster": "along_m", "raster_boustrophedon": True}, panels_in_order, [0, 1, 2, 3, 3, 2, 1, 0]),
    ({"raster": "along_m", "raster_order": "0,2,1,3"}, panels_in_order, [0, 2, 1, 3, 0, 2, 1, 3]),
    ({"split_k": 2}, lambda launch: launch.num_ctas, 2 * 4 * 2),
    ({"split_k": 2}, lambda launch: num_ops(ops.GlobalAtomic)(launch) > 0, True),
    ({"split_k": 2}, lambda launch: len(launch.following), 0),
    ({"split_k": 2, "split_k_mode": "second_kernel"}, num_ops(ops.GlobalAtomic), 0),
    (
        {"split_k": 2, "split_k_mode": "second_kernel"},
        lambda launch: [after.kernel for after in launch.following], ["gemm_reduction"],
    ),
    ({"swizzle": "64B"}, lambda launch: {op.num_rows for _, op in ops_of(launch, ops.TmaLoad)}, {256, 512}),
    ({"epilogue": "direct"}, lambda launch: set(buffer_bytes(launch)), {"a", "b"}),
    ({"epilogue": "smem"}, lambda launch: num_ops(ops.Stmatrix)(launch) > 0, True),
    ({"epilogue": "smem"}, num_ops(ops.TmaStore), 0),
    ({"epilogue": "smem"}, lambda launch: "stmatrix" in launch.features, True),
    ({"epilogue": "tma_store"}, num_ops(ops.GlobalStore), 0),
    ({"epilogue": "smem", "out_dtype": "fp32"}, lambda launch: num_ops(ops.SharedStore)(launch) > 0, True),
    ({"bias": True}, lambda launch: total(launch, ops.GlobalLoad, lambda op: op.access.num_bytes), 16 * 256 * 4),
    (
        {"bias": True, "bias_along": "m"},
        lambda launch: total(launch, ops.GlobalLoad, lambda op: op.access.num_bytes), 16 * 64 * 4,
    ),
    ({"activation": "sigmoid"}, lambda launch: num_ops(ops.Mufu)(launch) > 0, True),
    ({"beta": 1.0}, lambda launch: total(launch, ops.GlobalLoad, lambda op: op.access.num_bytes), 512 * 512 * 2),
    ({"activation": "silu"}, lambda launch: num_ops(ops.Mufu)(launch) > 0, True),
    ({"activation": "relu"}, num_ops(ops.Mufu), 0),
    ({"setmaxnreg": "none"}, registers_of_roles, set()),
    ({"setmaxnreg": "auto"}, registers_of_roles, {40, 232}),
    ({"setmaxnreg": "24/240"}, registers_of_roles, {24, 240}),
    ({"wgmma_depth": 0}, lambda launch: {op.num_pending for _, op in ops_of(launch, ops.WgmmaWaitGroup)}, {0}),
    ({"wgmma_depth": 2}, lambda launch: {op.num_pending for _, op in ops_of(launch, ops.WgmmaWaitGroup)}, {0, 2}),
]


@pytest.mark.parametrize(
    ("options", "measure", "expected"), EFFECTS, ids=lambda value: str(value) if isinstance(value, dict) else ""
)
def test_an_option_changes_what_it_should(
    h200: GpuSpec, options: dict[str, Any], measure: Callable[[Launch], Any], expected: Any
) -> None:
    assert measure(GemmParams(**{**BASE, **options}).launch(h200)) == expected


@pytest.mark.parametrize("option", [{"alpha": 2.0}, {"beta": 0.5}, {"bias": True}, {"activation": "gelu"}, {"clamp": "0,6"}])
def test_more_to_do_in_the_epilogue_is_more_arithmetic(h200: GpuSpec, option: dict[str, Any]) -> None:
    plain = num_alu(GemmParams(**BASE).launch(h200))
    assert num_alu(GemmParams(**BASE, **option).launch(h200)) > plain
    assert num_alu(GemmParams(**BASE, alpha=1.0, beta=0.0).launch(h200)) == plain


def test_registers_that_are_given_are_those_of_the_launch(h200: GpuSpec) -> None:
    launch = GemmParams(**BASE, setmaxnreg="none", registers=96).launch(h200)
    assert launch.registers_per_thread == 96
    assert launch.registers_per_thread != GemmParams(**BASE, setmaxnreg="none").launch(h200).registers_per_thread


@pytest.mark.parametrize("prefetch", ["before_mma", "after_mma"])
def test_prefetch_is_an_option_of_multistage(h200: GpuSpec, prefetch: str) -> None:
    for math in ("wgmma", "mma_sync"):
        params = GemmParams(**BASE, schedule="multistage", math=math, prefetch=prefetch)
        assert params.launch(h200).params["prefetch"] == prefetch


def test_a_staging_buffer_that_does_not_fit_beside_the_ring_is_cut_into_slices(h200: GpuSpec) -> None:
    options: dict[str, Any] = {**BASE, "tile": "128x256x64", "stages": 4, "persistent": True}
    launch = GemmParams(**options, epilogue="tma_store").launch(h200)
    staging = next(buffer for buffer in launch.buffers if buffer.name == "epilogue")
    assert not staging.is_overlay
    assert staging.stage_bytes == 64 * 128 * 2  # of 64 x 256: two of 32 kB do not fit beside 4 x 48 kB
    assert launch.smem_bytes <= h200.max_smem_per_cta_bytes
    stores = ops_of(launch, ops.TmaStore, num_ctas=1)
    assert len(stores) == 8 * 2 * 2  # tiles, consumers, slices


def test_options_come_back_as_the_command_line_spells_them(h200: GpuSpec) -> None:
    options = GemmParams(**BASE, tile="128x128x64", cluster="2x1").resolved(h200).as_options()
    assert options["tile"] == "128x128x64"
    assert options["cluster"] == "2x1"
    assert options["copy"] == "tma"
    known = {name: value for name, value in options.items() if value is not None}
    assert GemmParams(**known).resolved(h200).as_options() == options


def test_the_row_of_the_table_names_the_model() -> None:
    row = KERNEL_MODELS["gemm"]
    assert row.params is GemmParams
    assert all(field.description for field in row.params.model_fields.values())


def test_remarks_say_what_is_wasted_or_assumed(h200: GpuSpec) -> None:
    assert GemmParams(**BASE).launch(h200).remarks == ()
    edges = GemmParams(m=500, n=500, k=333).launch(h200).remarks
    assert any("outside of D" in remark for remark in edges)
    assert "rows of A and B are aligned to 2 bytes: copies of 2 bytes a lane" in edges
    assert "rows of D are aligned to 8 bytes: stores of at most 8 bytes a lane" in edges
    unparted = GemmParams(**BASE, tile="128x8x64", cluster="2x1").launch(h200).remarks
    assert any("B's tile does not part into 2 boxes" in remark for remark in unparted)
    slow = GemmParams(**BASE, swizzle="none").launch(h200).remarks
    assert any("core matrices" in remark for remark in slow)
