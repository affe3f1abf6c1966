"""What must hold of streams, whatever a machine's numbers are."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import GpuSpec
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate

MIB = 1 << 20


def result_of(name: str, gpu: GpuSpec, **options: Any) -> Result:
    return simulate(KERNEL_MODELS[name].params.model_validate(options).launch(gpu), gpu, clock="max")


def test_no_copy_is_faster_than_memory(every_gpu: GpuSpec) -> None:
    found = result_of("elementwise", every_gpu, elements=4 * MIB)
    seconds = found.cycles / (every_gpu.clock.max_mhz * 1e6)
    assert 16 * MIB / seconds <= every_gpu.hbm.peak_gb_per_s * 1e9
    assert found.counters["dram__bytes_read.sum"] == 16 * MIB


def test_a_longer_stream_takes_longer_and_a_launch_is_paid_once(h200: GpuSpec) -> None:
    short, middle, long = (result_of("elementwise", h200, op="fill", elements=size * MIB).cycles for size in (1, 2, 4))
    assert short < middle < long
    assert middle < 2 * short and long < 2 * middle


def test_two_inputs_are_read_for_a_sum_and_none_for_a_fill(h200: GpuSpec) -> None:
    reads = {op: result_of("elementwise", h200, op=op, elements=MIB).counters for op in ("fill", "copy", "add")}
    sectors = [found["lts__t_sectors_srcunit_tex_op_read.sum"] for found in reads.values()]
    assert sectors == [0, 4 * MIB / 32, 8 * MIB / 32]


def test_conflicts_cost_a_transpose_and_padding_mends_them(h200: GpuSpec) -> None:
    ways = ("naive", "padded", "swizzled")
    cycles = {smem: result_of("transpose", h200, m=1024, n=1024, smem=smem).cycles for smem in ways}
    assert cycles["naive"] > 1.3 * cycles["padded"]
    assert cycles["swizzled"] == pytest.approx(cycles["padded"], rel=0.02)


def test_a_stride_of_a_sector_reads_all_sectors_for_an_eighth_of_the_elements(h200: GpuSpec) -> None:
    found = result_of("strided_copy", h200, elements=MIB, stride=8).counters
    assert found["dram__bytes_read.sum"] == 32 * MIB
    assert found["lts__t_sectors_srcunit_tex_op_write.sum"] == 4 * MIB / 32


@pytest.mark.parametrize("extents", [{"m": 64, "n": 8192}, {"m": 8192, "n": 64}])
def test_a_row_or_column_of_tiles_is_the_same_in_either_order(extents: dict[str, int], h200: GpuSpec) -> None:
    along_n, along_m = (result_of("smem_copy", h200, **extents, raster=raster) for raster in ("along_n", "along_m"))
    assert along_n.cycles == along_m.cycles and along_n.counters == along_m.counters


def test_short_pieces_of_rows_cost_more_where_tiles_of_a_column_come_first(h200: GpuSpec) -> None:
    along_n, along_m = (result_of("smem_copy", h200, m=2048, n=2048, raster=raster) for raster in ("along_n", "along_m"))
    assert along_m.cycles > along_n.cycles
    assert along_m.counters["dram__bytes_read.sum"] == along_n.counters["dram__bytes_read.sum"]


@pytest.mark.parametrize("copy", ["scalar", "vectorized", "cp_async", "tma"])
def test_every_way_through_shared_memory_moves_the_same_bytes(copy: str, h200: GpuSpec) -> None:
    found = result_of("smem_copy", h200, m=1024, n=1024, copy=copy).counters
    assert found["dram__bytes_read.sum"] == 2 * MIB
    assert found["lts__t_sectors_srcunit_tex_op_write.sum"] == 2 * MIB / 32
