"""A main loop without a GEMM: a kernel of one tile, written with ``mainloop`` alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpusim import load_gpu, simulate
from gpusim.kernel_models.mainloop.epilogue import Epilogue
from gpusim.kernel_models.mainloop.loader import Loader, slot
from gpusim.kernel_models.mainloop.output import Output, Staging
from gpusim.kernel_models.mainloop.ring import Ring
from gpusim.kernel_models.mainloop.shape import Coordinates, MainloopShape
from gpusim.kernel_models.mainloop.warp_partition import WarpPartition
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import Buffer, Launch, RoleContext, WarpRole
from gpusim.workload.ops import Op

SHAPE = MainloopShape(tile=(64, 128, 64), stages=2, element=BF16, math="wgmma", copy="tma")
NUM_STEPS = 6
GPU = load_gpu("h200_sxm")
AT = Coordinates(0, 0, 0, 0)


class OneTile:
    """The grid of a single tile."""

    extents = 64, 128, 64 * NUM_STEPS

    def panel(self, which: int, at: Coordinates) -> int:
        return at[which]

    def panel_of_d(self, at: Coordinates) -> int:
        return at.m

    def rows_inside(self, which: int, idx: int) -> int:
        return self.extents[which] * (idx == 0)

    def first_k_step(self, part: int) -> int:
        return part * NUM_STEPS

    def num_k_steps(self, part: int) -> int:
        return NUM_STEPS if part == 0 else 0


def toy_launch(shape: MainloopShape) -> Launch:
    grid, partition = OneTile(), WarpPartition(shape, warp_grid=(1, 1), num_math_warps=4, is_specialized=True)
    loader = Loader(shape, grid, num_threads=1)
    ring = Ring(shape.stages, loader.stage_bytes, polls_by_lane=True)
    epilogue = Epilogue(grid, shape.math, Output(element=BF16), Staging(), *partition.warp_tile, num_warps=4)

    def producer(cta: RoleContext) -> Iterator[Op]:
        panels = loader.panels(AT, cta.cta_rank)
        for k in cta.loop(NUM_STEPS):
            stage, parity = ring.place_of(k)
            yield ring.wait_empty[stage][parity ^ 1]
            yield ring.expect[stage]
            yield from (panel[slot(k, stage)] for panel in panels)

    def consumer(cta: RoleContext) -> Iterator[Op]:
        for k in cta.loop(NUM_STEPS):
            stage, parity = ring.place_of(k)
            yield ring.wait_full[stage][parity]
            yield ops.Wgmma(partition.atom, partition.num_wgmma, (("a", stage), ("b", stage)))
            yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(0)
            yield ops.MbarrierArrive("empty", stage)
        yield from epilogue.program(AT, 0)

    return Launch(
        kernel="toy", num_ctas=1, num_tiles=1, mbarriers=ring.mbarriers(1, 1),
        registers_per_thread=partition.launch_registers, num_flops=2 * 64 * 128 * 64 * NUM_STEPS, math_class="16bit",
        roles=tuple(WarpRole(name=each.__name__, num_warps=4, program=each) for each in (producer, consumer)),
        buffers=tuple(
            Buffer(name=name, stage_bytes=operand.padded_bytes, num_stages=shape.stages)
            for name, operand in zip("ab", shape.operands, strict=True)
        ),
    )  # fmt: skip


def test_a_main_loop_runs_without_a_gemm() -> None:
    counters = simulate(toy_launch(SHAPE), GPU, clock="max").counters
    assert SHAPE.stage_bytes == (64 + 128) * 64 * BF16.num_bytes
    assert counters["l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"] == NUM_STEPS * SHAPE.stage_bytes
    assert counters["sm__inst_executed_pipe_tensor_op_gmma.sum"] == 4 * NUM_STEPS * 64 // 16  # warps, k-steps, k of wgmma


def test_more_stages_hide_more_latency() -> None:
    few, many = (simulate(toy_launch(replace(SHAPE, stages=stages)), GPU, clock="max").cycles for stages in (1, 4))
    assert 0 < many < few
