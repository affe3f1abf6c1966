"""Launch of a GEMM: roles, buffers and barriers of the chosen schedule, and the check that it fits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from gpusim.kernel_models.gemm.defaults import widest_swizzle
from gpusim.kernel_models.gemm.epilogue import Epilogue
from gpusim.kernel_models.gemm.fragments import Fragments
from gpusim.kernel_models.gemm.least_work import tile_work
from gpusim.kernel_models.gemm.loader import Loader
from gpusim.kernel_models.gemm.multistage import Multistage
from gpusim.kernel_models.gemm.options import GemmOptions
from gpusim.kernel_models.gemm.registers import launch_registers
from gpusim.kernel_models.gemm.smem_budget import ALIGNMENT_BYTES, Staging, staging_of
from gpusim.kernel_models.gemm.splitk_reduce import reduction_launch
from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.gemm.uniform_tiles import are_tiles_alike
from gpusim.kernel_models.gemm.warp_partition import PRODUCER_WARPS, Shares, consumer_registers
from gpusim.kernel_models.gemm.warp_specialized import Consumer, Producer
from gpusim.layout.notation import units_remark
from gpusim.units import WAVEFRONT_BYTES
from gpusim.workload.launch import Buffer, Feature, Launch, Mbarrier, NamedBarrier, Program, RoleContext, Target, WarpRole


def gemm_launch(params: GemmOptions, gpu: Target) -> Launch:
    """The Launch of resolved ``params`` on ``gpu``.

    Raises:
        LaunchError: the staging buffer of D does not fit in shared memory.
    """
    plan, staging = TilePlan(params), staging_of(params, gpu)
    has_stmatrix = "stmatrix" in gpu.features
    if params.is_specialized:
        parts = _specialized(params, plan, staging, has_stmatrix=has_stmatrix)
    else:
        parts = _multistage(params, plan, staging, has_stmatrix=has_stmatrix)
    roles: tuple[WarpRole, ...] = parts["roles"]
    num_math_roles = sum(role.name != "producer" for role in roles)
    registers, story = _registers(params)
    by_tma = params.copy_ == "tma"
    is_second = params.split_k > 1 and params.split_k_mode == "second_kernel"
    return Launch(
        kernel="gemm",
        num_ctas=None if params.persistent else plan.num_tiles,
        num_tiles=plan.num_tiles,
        buffers=_buffers(params, plan, staging, num_slots=num_math_roles),
        cluster_size=params.num_cluster_ctas,
        registers_per_thread=registers,
        registers_source=story,
        extra_smem_bytes=ALIGNMENT_BYTES if params.math == "wgmma" or params.copy_ == "tma" else 0,
        footprints=plan.footprints(num_math_roles),
        num_flops=2 * params.m * params.n * params.k * params.batch,
        math_class="16bit" if params.element.bits == 16 else params.dtype,
        tensor_maps=tuple(
            name for name, is_used in (("A", by_tma), ("B", by_tma), ("D", params.epilogue == "tma_store")) if is_used
        ),
        params=params.as_options(),
        remarks=_remarks(params, plan),
        following=(reduction_launch(params),) if is_second else (),
        has_uniform_programs=are_tiles_alike(plan),
        work=tile_work(plan, staging),
        **parts,
    )


def _when_run(make: Callable[[], Program]) -> Program:
    """The program that ``make`` returns. It is built at its first run, because reading a launch needs no program."""
    made = cache(make)

    def program(cta: RoleContext) -> Any:
        return made()(cta)

    return program


def _multistage(
    params: GemmOptions, plan: TilePlan, staging: Staging, *, has_stmatrix: bool
) -> dict[str, Any]:
    tile_m, tile_n, _ = plan.tile
    shares, num = Shares(params), Shares(params).num_teams
    num_warps, loader = shares.num_warps // num, Loader(plan, num_threads=shares.num_warps * 32)
    drained = "drained" if num > 1 and staging.num_bytes and staging.overlays_stages else ""
    barriers = [f"epilogue{idx}" for idx in range(num)] if num > 1 else [""]
    epilogues = [
        Epilogue(
            plan, staging, tile_m // num, tile_n, num_warps, first_m=idx * (tile_m // num), barrier=barriers[idx],
            drained=drained, slot=idx, has_stmatrix=has_stmatrix,
        )
        for idx in range(num)
    ]  # fmt: skip
    assert params.stages is not None  # resolved
    full = Mbarrier(name="full", num_arrivals=1, num_stages=params.stages)
    named = [NamedBarrier(name=name, num_threads=32 * num_warps) for name in barriers if name]
    if drained:
        named.append(NamedBarrier(name=drained, num_threads=32 * num_warps * num))
    return {
        "roles": tuple(
            WarpRole(
                name=f"math{idx}" if num > 1 else "math", num_warps=num_warps,
                program=_when_run(partial(Multistage, plan, loader, epilogue, team=idx)),
            )
            for idx, epilogue in enumerate(epilogues)
        ),
        "mbarriers": (full,) if params.copy_ == "tma" else (),
        "named_barriers": tuple(named),
        "features": _features(params, epilogues[0]),
    }  # fmt: skip


def _specialized(
    params: GemmOptions, plan: TilePlan, staging: Staging, *, has_stmatrix: bool
) -> dict[str, Any]:
    assert params.stages is not None  # resolved
    assert params.consumer_warpgroups is not None
    consumers, is_pingpong, by_tma = params.consumer_warpgroups, params.schedule == "pingpong", params.copy_ == "tma"
    shares = Shares(params)
    (share_m, share_n), (ways_m, ways_n) = shares.share, shares.ways
    loader = Loader(plan, num_threads=PRODUCER_WARPS * 32)
    all_drain = "drained" if consumers > 1 and staging.num_bytes and staging.overlays_stages else ""
    epilogues = [
        Epilogue(
            plan, staging, share_m, share_n, 4, first_m=idx % ways_m * share_m,
            first_n=idx % ways_n * share_n, barrier=f"epilogue{idx}", drained=all_drain, slot=idx,
            has_stmatrix=has_stmatrix,
        )
        for idx in range(consumers)
    ]
    num_releasing = (1 if is_pingpong else consumers) * len(loader.feeders(0))
    num_filling = 1 if by_tma else PRODUCER_WARPS * 32
    if params.mbarrier_arrive == "thread":
        num_releasing = consumers * 128 + 1
        num_filling = consumers * 128 + 1
    mbarriers = [
        Mbarrier(name="full", num_arrivals=num_filling, num_stages=params.stages),
        Mbarrier(name="empty", num_arrivals=num_releasing, num_stages=params.stages),
    ]
    if is_pingpong:
        turns = ("math_turn", "epilogue_turn")
        mbarriers += [Mbarrier(name=name, num_arrivals=1, num_stages=2) for name in turns]
    producer = _when_run(partial(Producer, plan, loader, tuple(ring.name for ring in mbarriers)))
    named = [NamedBarrier(name=f"epilogue{idx}", num_threads=128) for idx in range(consumers)]
    if all_drain:
        named.append(NamedBarrier(name=all_drain, num_threads=128 * consumers))
    return {
        "roles": (
            WarpRole(name="producer", num_warps=PRODUCER_WARPS, program=producer),
            *(
                WarpRole(
                    name=f"consumer{idx}", num_warps=4,
                    program=_when_run(partial(Consumer, plan, loader, epilogue, idx=idx)),
                )
                for idx, epilogue in enumerate(epilogues)
            ),
        ),
        "mbarriers": tuple(mbarriers),
        "named_barriers": tuple(named),
        "features": _features(params, epilogues[0]),
    }


def _buffers(params: GemmOptions, plan: TilePlan, staging: Staging, *, num_slots: int) -> tuple[Buffer, ...]:
    assert params.stages is not None  # resolved
    found = [
        Buffer(name=name, stage_bytes=operand.padded_bytes, num_stages=params.stages)
        for name, operand in zip("ab", plan.operands, strict=True)
    ]
    if staging.num_bytes:
        found.append(
            Buffer(
                name="epilogue", stage_bytes=staging.num_bytes // num_slots, num_stages=num_slots,
                is_overlay=staging.overlays_stages,
            )
        )
    return tuple(found)


def _features(params: GemmOptions, epilogue: Epilogue) -> frozenset[Feature]:
    found: set[Feature] = {"tma" if params.copy_ == "tma" else "cp_async"}
    if params.copy_ == "tma" or params.is_specialized:
        found.add("mbarrier")
    if params.math == "wgmma":
        found.add("wgmma")
    if params.math == "mma_sync":
        found.add("mma_sync")
    if params.num_cluster_ctas > 1:
        found.add("cluster")
    if params.setmaxnreg != "none":
        found.add("setmaxnreg")
    if epilogue.staging.num_bytes and epilogue.uses_stmatrix:
        found.add("stmatrix")
    if params.dtype == "fp8":
        found.add("fp8")
    return frozenset(found)


def _registers(params: GemmOptions) -> tuple[int, str]:
    """(registers per thread of the launch, explanation)."""
    shares, of_consumer = Shares(params), consumer_registers(params)
    if params.registers is not None:
        return params.registers, f"{params.registers}, as given"
    registers = launch_registers(
        shares.need, math=params.math or "", num_warps=shares.num_warps, of_consumer=of_consumer
    )
    if of_consumer is None:
        return registers, shares.need.story
    return registers, f"{shares.need.story}; launched with {registers}, setmaxnreg {params.setmaxnreg}"


def _conflicts(params: GemmOptions, plan: TilePlan) -> list[str]:
    """Remark on the factor by which bank conflicts multiply fragment loads; empty without conflicts."""
    if params.math != "mma_sync":
        return []
    reads = Fragments(plan).slices
    times = sum(read.num_wavefronts for read in reads) * WAVEFRONT_BYTES / sum(read.num_bytes for read in reads)
    if times < 1.01:
        return []
    better = widest_swizzle(params) + (" --pad 0" if params.pad else "")
    mend = f"; --swizzle {better} has none or fewer" if better != params.swizzle else ""
    return [f"bank conflicts: fragment reads take {times:.3g} times the wavefronts of their bytes{mend}"]


def _remarks(params: GemmOptions, plan: TilePlan) -> tuple[str, ...]:
    remarks = []
    assert params.swizzle is not None  # resolved
    mixed_up = units_remark(params.swizzle, params.element.bits)
    if mixed_up is not None:
        remarks.append(mixed_up)
    remarks += _conflicts(params, plan)
    area = plan.num_m * plan.tile[0] * plan.num_n * plan.tile[1]
    outside = area - params.m * params.n
    if outside:
        share = outside / area
        remarks.append(f"{share:.1%} of the tiles' area lies outside of D and is computed for nothing")
    if params.swizzle == "none" and params.math == "wgmma" and params.copy_ == "tma":
        remarks.append("without a swizzle TMA fills core matrices 16 bytes wide, which it does slowly")
    padded = [
        name for name, extent, num_bytes in (
            ("A", params.k if params.is_a_k_major else params.m, params.element.num_bytes),
            ("B", params.k if params.is_b_k_major else params.n, params.element.num_bytes),
            ("D", params.n, params.out_element.num_bytes),
        )
        if extent * num_bytes % 16
    ]
    if padded:
        remarks.append(f"rows of {', '.join(padded)} are taken as padded to 16 bytes, as their copies want")
    return tuple(remarks)
