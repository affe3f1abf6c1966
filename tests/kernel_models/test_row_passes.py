"""Row kernels as frameworks write them: what each pass touches, where a row stays, what reductions exchange."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpusim.errors import KernelError, LaunchError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.row_passes import RowPass
from gpusim.kernel_models.rows import RowParams
from gpusim.machine.config import GpuSpec
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.workload import ops

from .conftest import bytes_by_panel, footprint_bytes, ops_of

KERNELS: list[tuple[str, dict[str, Any]]] = [
    ("softmax", {"rows": 13, "columns": 1000, "threads": 128}),
    ("softmax", {"rows": 13, "columns": 257, "vector_bytes": 2, "dtype": "bf16", "threads": 128}),
    ("softmax", {"rows": 5, "columns": 9000, "per": "block", "threads": 1024, "keep": "smem", "combine": "first_warp"}),
    ("softmax", {"rows": 3, "columns": 32000, "per": "block", "threads": 1024, "keep": "reread"}),
    ("softmax", {"rows": 3, "columns": 131072, "per": "block", "keep": "reread", "algorithm": "online", "dtype": "bf16"}),
    ("softmax", {"rows": 40, "columns": 4096, "per": "block", "ctas": 7}),
    ("layer_norm", {"rows": 6, "columns": 4100, "per": "block", "threads": 128, "keep": "reread", "algorithm": "welford"}),
    ("layer_norm", {"rows": 9, "columns": 1032, "dtype": "bf16", "ctas": 2, "threads": 64}),
    ("rms_norm", {"rows": 6, "columns": 5120, "per": "block", "threads": 512, "dtype": "bf16", "residual": True}),
    ("rms_norm", {"rows": 6, "columns": 5120, "per": "block", "threads": 512, "keep": "reread", "residual": True}),
    ("rms_norm", {"rows": 9, "columns": 768, "in_place": True}),
    ("bias_activation", {"rows": 6, "columns": 4096, "per": "block", "keep": "reread", "dtype": "bf16"}),
]  # fmt: skip


def params_of(kernel: str, options: dict[str, Any]) -> RowParams:
    found = KERNEL_MODELS[kernel].params.model_validate(options)
    assert isinstance(found, RowParams)
    return found


def ran(kernel: str, gpu: GpuSpec, **options: Any) -> Result:
    return simulate(params_of(kernel, options).launch(gpu), gpu, clock="max", l2="flushed")


@pytest.mark.parametrize(("kernel", "options"), KERNELS, ids=str)
def test_footprints_are_what_ctas_touch(h200: GpuSpec, kernel: str, options: dict[str, Any]) -> None:
    params = params_of(kernel, options)
    launch = params.launch(h200)
    for access, kind in (("read", ops.GlobalLoad), ("write", ops.GlobalStore)):
        live = bytes_by_panel(launch, kind)
        if access == "read":
            live.pop("sum", None)  # which is stored first
        assert live == footprint_bytes(launch, access)
        arrays = [panels for name, panels in live.items() if name not in ("gamma", "beta", "bias")]
        assert [sum(panels.values()) for panels in arrays] == [params.rows * params.row_bytes] * len(arrays)


def test_a_row_that_is_read_again_names_the_same_lines_in_every_pass(h200: GpuSpec) -> None:
    block = {"rows": 1, "columns": 32000, "per": "block", "threads": 1024, "keep": "reread"}
    launch = params_of("softmax", block).launch(h200)
    tiles = [op.tile for _, op in ops_of(launch, ops.GlobalLoad)]
    assert len(tiles) == 3 * len(set(tiles)) and launch.footprints[0].num_passes == 3
    online = params_of("softmax", {"rows": 1, "columns": 32000, "keep": "reread", "algorithm": "online"}).launch(h200)
    tiles = [op.tile for _, op in ops_of(online, ops.GlobalLoad)]
    assert len(tiles) == 2 * len(set(tiles))


def test_l1_serves_a_row_that_is_read_again_as_far_as_it_has_room(h200: GpuSpec) -> None:
    """Two CTAs of 1,024 threads share an SM: rows of 64 KiB stay but for what stores take, of 512 KiB not."""
    for columns, least, most in ((16384, 0.99, 1.02), (131072, 2.9, 3.01)):
        result = ran("softmax", h200, rows=264, columns=columns, per="block", threads=1024, keep="reread")
        sectors = 264 * columns * 4 / 32
        assert result.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == pytest.approx(3 * sectors)
        assert least < result.counters["lts__t_sectors_srcunit_tex_op_read.sum"] / sectors < most


def test_a_row_in_shared_memory_is_fetched_once(h200: GpuSpec) -> None:
    result = ran("softmax", h200, rows=264, columns=8192, per="block", threads=512, keep="smem")
    sectors = 264 * 8192 * 4 / 32
    assert result.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == pytest.approx(sectors)
    launch = params_of("softmax", {"rows": 1, "columns": 8192, "per": "block", "keep": "smem"}).launch(h200)
    assert launch.smem_bytes == 8192 * 4 + 2 * 32 * 4
    with pytest.raises(LaunchError, match="shared memory"):
        ran("softmax", h200, rows=264, columns=131072, per="block", keep="smem")


def test_the_first_warp_alone_combines_what_warps_leave(h200: GpuSpec) -> None:
    def counts(combine: str) -> tuple[int, int]:
        options = {"rows": 1, "columns": 4096, "per": "block", "vector_bytes": 4, "combine": combine}
        launch = params_of("softmax", options).launch(h200)
        return len(ops_of(launch, ops.Syncthreads)), len(ops_of(launch, ops.SharedStore))

    assert counts("all_warps") == (2, 2) and counts("first_warp") == (6, 4)


@pytest.mark.parametrize(("num", "sizes"), [
    (7, [1, 1, 1, 4]), (8, [4, 4]), (21, [1, 4, 16]), (29, [1, 4, 8, 16]),
])  # fmt: skip
def test_remaining_iterations_come_first_as_nvcc_unrolls(num: int, sizes: list[int]) -> None:
    unrolled = RowPass(chain=1.0).unrolled(4) if num > 8 else RowPass(chain=1.0).unrolled(8)
    found: list[int] = []
    for each in unrolled:
        found += [each] * ((num - sum(found)) // each)
    assert sorted(found) == sizes


def test_persistent_ctas_take_every_row_once(h200: GpuSpec) -> None:
    launch = params_of("softmax", {"rows": 40, "columns": 4096, "per": "block", "ctas": 7}).launch(h200)
    assert launch.num_ctas == 7 and launch.num_tiles == 40
    assert sorted(op.tile[0] for _, op in ops_of(launch, ops.GlobalStore)) == list(range(40))
    few, many = (ran("softmax", h200, rows=8192, columns=4096, per="block", ctas=ctas) for ctas in (132, 528))
    assert many.cycles < few.cycles


def test_what_is_written_in_place_takes_no_more_of_l2(h200: GpuSpec) -> None:
    """An array of 24 MiB and its result: side by side more of the result leaves L2 before the end."""
    shape = {"rows": 6144, "columns": 1024, "per": "warp"}
    both, one = (ran("rms_norm", h200, **shape, in_place=in_place) for in_place in (False, True))
    assert one.counters["dram__bytes_write.sum"] < both.counters["dram__bytes_write.sum"]
    assert one.counters["dram__bytes_read.sum"] == pytest.approx(both.counters["dram__bytes_read.sum"], rel=1e-3)


def test_a_residual_is_read_and_written_beside_the_row(h200: GpuSpec) -> None:
    shape = {"rows": 4096, "columns": 4096, "per": "block", "dtype": "bf16"}
    alone, both = (ran("rms_norm", h200, **shape, residual=residual).counters for residual in (False, True))
    name = "lts__t_sectors_srcunit_tex_op_write.sum"
    assert both[name] == pytest.approx(2 * alone[name])
    assert both["dram__bytes_read.sum"] == pytest.approx(2 * alone["dram__bytes_read.sum"], rel=0.01)


@pytest.mark.parametrize("in_place", [False, True])
def test_rows_with_a_residual_that_are_read_again_miss_l2_as_often_as_those_without(h200: GpuSpec, in_place: bool) -> None:
    """396 rows of 640 KB, three of them an SM: what runs at once is four times what a partition keeps."""
    options = {"rows": 396, "columns": 320_000, "dtype": "bf16", "per": "block", "threads": 512, "keep": "reread"}
    alone, beside = (ran("rms_norm", h200, **options, residual=has, in_place=in_place) for has in (False, True))
    row_bytes = 396 * 320_000 * 2
    again = [result.counters["dram__bytes_read.sum"] / row_bytes - num for result, num in ((alone, 1), (beside, 2))]
    assert again[0] > 0.9 and again[1] == pytest.approx(again[0], abs=0.1)


@pytest.mark.parametrize(("kernel", "options", "says"), [
    ("softmax", {"rows": 8, "columns": 1024, "algorithm": "online"}, "use --algorithm two_pass or --keep reread"),
    ("softmax", {"rows": 8, "columns": 1024, "vector_bytes": 2}, "vectors of 2 bytes hold no element of 4"),
    ("bias_activation", {"rows": 8, "columns": 1024, "keep": "smem"}, "use --keep reread"),
    ("rms_norm", {"rows": 8, "columns": 200000}, "use --keep reread"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(h200: GpuSpec, kernel: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError, match=re.escape(says)):
        params_of(kernel, options).launch(h200)


ROWS = {"rows": 100, "columns": 1024}


@pytest.mark.parametrize(("kernel", "options", "says"), [
    ("softmax", {"unroll": 4}, "--unroll 4: a row in registers has all vectors in flight at once; use --keep"),
    ("softmax", {"combine": "first_warp"}, "--combine first_warp: a warp reduces its row alone; use --per block"),
    ("softmax", {"pad": True, "keep": "reread"}, "--pad: a loop over a row has no further values; use --keep registers"),
    ("softmax", {"recompute": True, "keep": "smem"}, "--recompute: exponentials of a row that is not in registers"),
    ("rms_norm", {"unroll": 4, "keep": "reread", "residual": True}, "--unroll 4: the pass that adds the residual"),
    ("layer_norm", {"unroll": 4, "keep": "smem", "residual": True, "algorithm": "welford"}, "--unroll 4: the pass that"),
    ("bias_activation", {"unroll": 4, "keep": "reread"}, "--unroll 4: each vector is stored before the next is loaded"),
    ("bias_activation", {"combine": "first_warp", "per": "block"}, "--combine first_warp: no row is reduced"),
])  # fmt: skip
def test_an_option_without_effect_is_refused(h200: GpuSpec, kernel: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError, match=re.escape(says)):
        params_of(kernel, ROWS | options).launch(h200)


@pytest.mark.parametrize(("kernel", "options"), [
    ("softmax", {"unroll": 2, "keep": "reread"}), ("softmax", {"combine": "first_warp", "per": "block"}),
    ("softmax", {"pad": True, "columns": 1016}), ("softmax", {"recompute": True}),
    ("rms_norm", {"unroll": 2, "keep": "reread"}), ("layer_norm", {"unroll": 2, "keep": "reread", "residual": True}),
])  # fmt: skip
def test_an_option_that_is_not_refused_changes_the_program(h200: GpuSpec, kernel: str, options: dict[str, Any]) -> None:
    """The other side of each refusal. With fewer options the program is another one of the same kind."""
    (name, *_) = options
    plain = {"vector_bytes": 8, "rows": 1, "columns": 1024}  # narrow vectors: never the program of ``is_plain``
    with_it, without = (
        params_of(kernel, plain | given).launch(h200)
        for given in (options, {key: value for key, value in options.items() if key != name})
    )
    programs = [[op for _, op in ops_of(launch, ops.Op)] for launch in (with_it, without)]
    assert str(programs[0]) != str(programs[1])


@pytest.mark.parametrize("kernel", ["softmax", "layer_norm"])
@pytest.mark.parametrize("idle", [{"pad": True}, {"ctas": 25}, {"ctas": 1000}])
def test_what_changes_nothing_for_a_shape_leaves_the_program(h200: GpuSpec, kernel: str, idle: dict[str, Any]) -> None:
    """A power of two needs no padding, and a CTA for all its rows is no persistent grid."""
    plain, same = (params_of(kernel, ROWS | given) for given in ({}, idle))
    assert plain.is_plain and same.is_plain
    cycles = [simulate(params.launch(h200), h200, clock="max").cycles for params in (plain, same)]
    assert cycles[0] == cycles[1]
    assert not params_of(kernel, ROWS | {"ctas": 12}).is_plain


def test_narrow_loads_and_more_passes_take_longer(h200: GpuSpec) -> None:
    wide, narrow = (ran("softmax", h200, rows=2112, columns=1024, vector_bytes=size).cycles for size in (16, 4))
    assert wide < narrow
    block = {"rows": 1056, "columns": 16384, "per": "block", "threads": 1024, "dtype": "bf16"}
    once, again = (ran("softmax", h200, **block, keep=keep).cycles for keep in ("registers", "reread"))
    assert once < again


def test_a_persistent_grid_of_more_ctas_than_run_at_once_fetches_every_row(h200: GpuSpec) -> None:
    """54 registers leave room for two CTAs of 512 threads an SM: the last 132 of 396 CTAs run alone, and take longer."""
    shape = {"rows": 3960, "columns": 8192, "per": "block", "threads": 512, "dtype": "bf16", "registers": 54}
    two, three = (ran("rms_norm", h200, **shape, ctas=ctas).cycles for ctas in (264, 396))
    assert two < three
    one_grid = ran("rms_norm", h200, **shape)
    assert two > 0.95 * one_grid.cycles


def test_rows_off_the_sectors_share_them(h200: GpuSpec) -> None:
    """Rows of 982 floats begin at every fourth of a sector: requests touch more sectors than L2 delivers."""
    result = ran("softmax", h200, rows=4096, columns=982, vector_bytes=4, threads=128)
    size = 4096 * 982 * 4 / 32
    assert result.counters["lts__t_sectors_srcunit_tex_op_read.sum"] == pytest.approx(size, rel=0.01)
    assert result.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == pytest.approx(4096 * 146, rel=0.01)


def test_arithmetic_as_compiled_without_fast_math_takes_longer(h200: GpuSpec) -> None:
    shape = {"rows": 2112, "columns": 900, "vector_bytes": 4, "threads": 128}
    fast = ran("softmax", h200, **shape).cycles
    ieee = ran("softmax", h200, **shape, arithmetic="ieee").cycles
    padded = ran("softmax", h200, **shape, arithmetic="ieee", pad=True).cycles
    assert fast < ieee < padded, "1,024 columns are computed where there are 900"


def test_norms_as_libraries_compile_them_load_weights_by_elements(h200: GpuSpec) -> None:
    shape = {"rows": 264, "columns": 4096, "per": "block", "threads": 128, "keep": "reread", "vector_bytes": 16}
    by_vectors, by_elements = (ran("rms_norm", h200, **shape, weight_loads=loads) for loads in ("vector", "element"))
    name, sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 264 * 4096 * 4 / 32
    assert by_vectors.counters[name] == pytest.approx(3 * sectors)
    assert by_elements.counters[name] == pytest.approx(6 * sectors)
    assert ran("rms_norm", h200, **shape, unroll=1).cycles > by_vectors.cycles
