"""Launch of a GEMM: roles, buffers and barriers of the chosen schedule, and the check that it fits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from gpusim.kernel_models.gemm.config import GemmConfig
from gpusim.kernel_models.gemm.least_work import tile_work
from gpusim.kernel_models.gemm.multistage import Multistage
from gpusim.kernel_models.gemm.options import GemmOptions
from gpusim.kernel_models.gemm.smem_budget import ALIGNMENT_BYTES, staging_of
from gpusim.kernel_models.gemm.splitk_epilogue import SplitKEpilogue
from gpusim.kernel_models.gemm.splitk_reduce import reduction_launch
from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.gemm.warp_specialized import Consumer, Producer
from gpusim.kernel_models.mainloop.epilogue import Epilogue
from gpusim.kernel_models.mainloop.epilogue_data import EpilogueData
from gpusim.kernel_models.mainloop.fragments import Fragments
from gpusim.kernel_models.mainloop.loader import Loader
from gpusim.kernel_models.mainloop.operand_data import MathData
from gpusim.kernel_models.mainloop.output import Staging
from gpusim.kernel_models.mainloop.ring import Ring
from gpusim.kernel_models.mainloop.warp_partition import PRODUCER_WARPS, WarpPartition
from gpusim.layout.notation import units_remark
from gpusim.units import WAVEFRONT_BYTES
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES
from gpusim.workload.launch import Buffer, Feature, Launch, Mbarrier, NamedBarrier, Program, RoleContext, Target, WarpRole

ADDRESS = 3.0
"""Address instructions (additions and moves) for each cp.async of warps that also run wgmma. Source: SASS of 25 GEMMs of
Triton 3.6: two additions each, and up to two moves if registers are scarce. Mean: 3.2 in all."""



def gemm_launch(config: GemmConfig, gpu: Target) -> Launch:
    """The Launch of ``config`` on ``gpu``.

    Raises:
        LaunchError: the staging buffer of D does not fit in shared memory.
    """
    plan, staging = TilePlan(config), staging_of(config, gpu)
    epilogues, named_barriers = epilogues_of(plan, staging, has_stmatrix="stmatrix" in gpu.features)
    loader = Loader(
        plan.shape, plan, num_threads=32 * (PRODUCER_WARPS if config.is_specialized else config.partition.num_warps),
        wide_per_copy=config.compiled_code.mainloop.imad_wide_per_copy,
        num_between=ADDRESS if config.math == "wgmma" and not config.is_specialized else 0.0,
    )
    roles, mbarriers = (_specialized if config.is_specialized else _multistage)(plan, loader, epilogues)
    is_second = config.split_k > 1 and config.split_k_mode == "second_kernel"
    maps = {"A": loader.by_tma, "B": loader.by_tma, "D": config.stores_by_tma}
    return Launch(
        kernel=GemmOptions.row.name,
        num_ctas=None if config.persistent else plan.num_tiles,
        num_tiles=plan.num_tiles,
        roles=roles,
        buffers=_buffers(plan, staging, num_slots=len(epilogues)),
        mbarriers=mbarriers,
        named_barriers=named_barriers,
        cluster_size=config.num_cluster_ctas,
        registers_per_thread=config.registers,
        registers_source=config.registers_source,
        extra_smem_bytes=ALIGNMENT_BYTES if config.math == "wgmma" or loader.by_tma else 0,
        features=_features(config, epilogues[0]),
        footprints=plan.footprints(len(epilogues)),
        num_flops=2 * config.m * config.n * config.k * config.batch,
        math_class="16bit" if config.element.bits == 16 else config.dtype,
        tensor_maps=tuple(name for name, is_used in maps.items() if is_used and name not in config.made_tensor_maps),
        remarks=_remarks(config, plan),
        following=(reduction_launch(config),) if is_second else (),
        has_uniform_programs=plan.has_uniform_programs,
        work=tile_work(plan, staging),
        tensors=partial(plan.tensors, len(epilogues)),
    )


def _when_run(make: Callable[[], Program]) -> Program:
    """The program that ``make`` returns. It is built at its first run, because reading a launch needs no program."""
    made = cache(make)

    def program(cta: RoleContext) -> Any:
        return made()(cta)

    return program


def epilogues_of(plan: TilePlan, staging: Staging, *, has_stmatrix: bool) -> tuple[list[Epilogue], tuple[NamedBarrier, ...]]:
    """Epilogue of each math role, and the named barriers of their threads."""
    config, partition = plan.config, plan.config.partition
    if config.is_specialized:
        num, num_warps, grid, (rows, columns) = config.consumer_warpgroups, 4, config.warp_grid, partition.warp_tile
    else:
        num, columns = partition.num_warp_groups, plan.tile[1]
        num_warps, grid, rows = partition.num_warps // num, (num, 1), plan.tile[0] // num
    drained = "drained" if num > 1 and staging.num_bytes and staging.overlays_stages else ""
    names = [f"epilogue{idx}" for idx in range(num)] if config.is_specialized or num > 1 else [""]
    kind = partial(SplitKEpilogue, plan=plan) if config.split_k > 1 else Epilogue
    epilogues = [
        kind(
            plan, config.math, config.output, staging, rows, columns, num_warps, first_m=idx % grid[0] * rows,
            first_n=idx % grid[1] * columns, barrier=name, drained=drained, slot=idx, has_stmatrix=has_stmatrix,
            data=_data(plan, partition, idx, len(names), (rows, columns)),
        )
        for idx, name in enumerate(names)
    ]
    named = [NamedBarrier(name=name, num_threads=32 * num_warps) for name in names if name]
    if drained:
        named.append(NamedBarrier(name=drained, num_threads=32 * num_warps * num))
    return epilogues, tuple(named)


def _data(
    plan: TilePlan, partition: WarpPartition, idx: int, num_roles: int, share: tuple[int, int]
) -> EpilogueData | None:
    """Data accesses of the ``idx``-th math role; None: not known.

    Not known are warp groups that divide N, at edges of D and with a staging buffer: the epilogue has blocks of rows.
    """
    config, (rows, columns), (num_m, num_n) = plan.config, partition.warp_tile, partition.warp_grid
    divides_n = config.math == "mma_sync" and num_m % num_roles > 0
    if divides_n and (config.output.path != "direct" or config.m % plan.tile[0]):
        return None
    if divides_n:
        first, each = (0, 0), partition.num_math_warps // num_roles
        warps = range(idx * each, (idx + 1) * each)
        parts: tuple[tuple[int, int], ...] = tuple((warp % num_m * rows, warp // num_m * columns) for warp in warps)
    elif config.is_specialized:
        first = idx % num_m * rows, idx % num_n * columns
        parts = (first,)
    else:
        first, each = (idx * share[0], 0), num_m // num_roles
        units = partition.num_math_warps // 4 if config.math == "wgmma" else each * num_n
        parts = tuple((first[0] + unit % each * rows, unit // each * columns) for unit in range(units))
    math = MathData(plan.shape, parts, (rows, columns), partition.atom if config.math == "wgmma" else None)
    return EpilogueData(
        math, config.finish, plan.tile[:2], first, share, plan.extents[:2], plan.pitch_of_d, plan.num_sum_planes,
        config.batch, num_roles, config.split_k if plan.is_serial else 1, config.bias_along == "m",
    )


Roles = tuple[tuple[WarpRole, ...], tuple[Mbarrier, ...]]


def _multistage(plan: TilePlan, loader: Loader, epilogues: list[Epilogue]) -> Roles:
    num = len(epilogues)
    roles = tuple(
        WarpRole(
            name=f"math{idx}" if num > 1 else "math", num_warps=epilogue.num_warps,
            program=_when_run(partial(Multistage, plan, loader, epilogue, warp_group=idx)),
        )
        for idx, epilogue in enumerate(epilogues)
    )
    return roles, Ring(plan.config.stages).mbarriers(1) if loader.by_tma else ()


def _specialized(plan: TilePlan, loader: Loader, epilogues: list[Epilogue]) -> Roles:
    config, num = plan.config, len(epilogues)
    is_pingpong = config.schedule == "pingpong"
    num_releasing = (1 if is_pingpong else num) * len(loader.feeders(0))
    num_filling = 1 if loader.by_tma else PRODUCER_WARPS * 32
    if config.mbarrier_arrive == "thread":
        num_releasing = num_filling = num * 128 + 1
    mbarriers = Ring(config.stages).mbarriers(num_filling, num_releasing)
    if is_pingpong:
        turns = ("math_turn", "epilogue_turn")
        mbarriers += tuple(Mbarrier(name=name, num_arrivals=1, num_stages=2) for name in turns)
    producer = _when_run(partial(Producer, plan, loader, tuple(ring.name for ring in mbarriers)))
    consumers = (
        WarpRole(
            name=f"consumer{idx}", num_warps=epilogue.num_warps,
            program=_when_run(partial(Consumer, plan, loader, epilogue, idx=idx)),
        )
        for idx, epilogue in enumerate(epilogues)
    )
    waits_for_cluster = config.num_cluster_ctas > 1 and config.cluster_sync != "relaxed"
    leaving = 0 if waits_for_cluster or not loader.by_tma else PRODUCER_WARPS - 1
    first = WarpRole(name="producer", num_warps=PRODUCER_WARPS, program=producer, num_exiting_warps=leaving)
    return (first, *consumers), mbarriers


def _buffers(plan: TilePlan, staging: Staging, *, num_slots: int) -> tuple[Buffer, ...]:
    buffers = [
        Buffer(name=name, stage_bytes=operand.padded_bytes, num_stages=plan.config.stages)
        for name, operand in zip("ab", plan.shape.operands, strict=True)
    ]
    if staging.num_bytes:
        slot_bytes = staging.num_bytes // num_slots
        buffers.append(
            Buffer(name="epilogue", stage_bytes=slot_bytes, num_stages=num_slots, is_overlay=staging.overlays_stages)
        )
    return tuple(buffers)


def _features(config: GemmConfig, epilogue: Epilogue) -> frozenset[Feature]:
    by_tma = config.copy_ == "tma"
    uses: dict[Feature, bool] = {
        "tma": by_tma, "cp_async": config.copy_ == "cp_async", "mbarrier": by_tma or config.is_specialized,
        "wgmma": config.math == "wgmma", "mma_sync": config.math == "mma_sync", "cluster": config.num_cluster_ctas > 1,
        "setmaxnreg": config.setmaxnreg != "none", "fp8": config.dtype == "fp8",
        "stmatrix": epilogue.staging.num_bytes > 0 and epilogue.uses_stmatrix,
    }  # fmt: skip
    return frozenset(feature for feature, is_used in uses.items() if is_used)


def _conflicts(config: GemmConfig) -> list[str]:
    """Remark on the factor by which bank conflicts multiply fragment loads; empty without conflicts."""
    if config.math != "mma_sync":
        return []
    reads = Fragments(config.partition).slices
    times = sum(read.num_wavefronts for read in reads) * WAVEFRONT_BYTES / sum(read.num_bytes for read in reads)
    if times < 1.01:
        return []
    better = config.widest_swizzle + (" --pad 0" if config.pad else "")
    mend = f"; --swizzle {better} has none or fewer" if better != config.swizzle else ""
    return [f"bank conflicts: fragment reads take {times:.3g} times the wavefronts of their bytes{mend}"]


def _remarks(config: GemmConfig, plan: TilePlan) -> tuple[str, ...]:
    remarks = []
    mixed_up = units_remark(config.swizzle, config.element.bits)
    if mixed_up is not None:
        remarks.append(mixed_up)
    remarks += _conflicts(config)
    area = plan.num_m * plan.tile[0] * plan.num_n * plan.tile[1]
    outside = area - config.m * config.n
    if outside and config.raster_order != "full_bands":
        share = outside / area
        remarks.append(f"{share:.1%} of the tiles' area lies outside of D and is computed for nothing")
    if config.swizzle == "none" and config.math == "wgmma" and config.copy_ == "tma":
        remarks.append("without a swizzle TMA fills core matrices 16 bytes wide, which it does slowly")
    for which, name in enumerate("AB"):
        num = config.cluster[1 - which]
        if plan.shape.num_sharing(which) < num:
            remarks.append(
                f"--cluster {config.cluster[0]}x{config.cluster[1]}: {name}'s tile does not part into {num} boxes of whole "
                "swizzle repeats, so that each CTA loads all of it, without multicast"
            )
    if config.copy_bytes < CHUNK_BYTES:
        width = config.copy_bytes
        remarks.append(f"rows of A and B are aligned to {width} bytes: copies of {width} bytes a lane")
    if config.stored_bytes < CHUNK_BYTES:
        width = config.stored_bytes
        remarks.append(f"rows of D are aligned to {width} bytes: stores of at most {width} bytes a lane")
    return tuple(remarks)
