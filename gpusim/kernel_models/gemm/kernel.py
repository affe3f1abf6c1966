"""A GEMM's Launch: roles, buffers and barriers of the chosen schedule, and the check that it fits."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.errors import KernelError, LaunchError
from gpusim.kernel_models.gemm.epilogue import Epilogue
from gpusim.kernel_models.gemm.params import GemmParams
from gpusim.kernel_models.gemm.reduction import reduction_launch
from gpusim.kernel_models.gemm.registers import launch_limit, register_need, rounded
from gpusim.kernel_models.gemm.schedules import Consumer, Loader, MathShare, Multistage, Producer, fragment_registers
from gpusim.kernel_models.gemm.tiles import TilePlan
from gpusim.workload.launch import Buffer, Feature, Launch, Mbarrier, NamedBarrier, Target, WarpRole

ALIGNMENT_BYTES = 1024
"""What a CTA adds so that its stages begin where a 128-byte swizzle repeats."""

PRODUCER_WARPS = 4
"""The producer is a warpgroup, of which one thread works, as setmaxnreg wants it."""


def stage_bytes(params: GemmParams) -> int:
    """Shared memory of one stage."""
    assert params.tile is not None  # resolved
    tile_m, tile_n, tile_k = params.tile
    return (tile_m + tile_n) * tile_k * params.element.num_bytes


def staging_bytes(params: GemmParams) -> int:
    """Shared memory of a whole tile of D."""
    assert params.tile is not None  # resolved
    return params.tile[0] * params.tile[1] * params.out_element.num_bytes


def _spare_bytes(params: GemmParams, gpu: Target) -> int:
    """Shared memory that a CTA has for stages and staging."""
    return gpu.max_smem_per_cta_bytes - ALIGNMENT_BYTES - 512


def _least_staging(params: GemmParams) -> int:
    """Shared memory that the staging of D needs beside the stages, in the smallest slices."""
    if params.epilogue == "direct" or not params.persistent:
        return 0
    assert params.tile is not None  # resolved
    return params.tile[0] * min(32, params.tile[1]) * params.out_element.num_bytes


def most_stages(params: GemmParams, gpu: Target) -> int:
    """Stages that fit in a CTA's shared memory."""
    return max(0, (_spare_bytes(params, gpu) - _least_staging(params)) // stage_bytes(params))


@dataclass(frozen=True)
class Staging:
    """The staging buffer of an epilogue: how wide a slice is."""

    slice_n: int
    num_bytes: int
    overlays_stages: bool


def staging_of(params: GemmParams, gpu: Target, *, share_n: int, share_m: int, num_roles: int) -> Staging:
    """The widest slices of D that fit: over the drained stages, or beside them in a persistent kernel."""
    assert params.stages is not None  # resolved
    if params.epilogue == "direct" or params.split_k > 1:
        return Staging(slice_n=share_n, num_bytes=0, overlays_stages=True)
    column_bytes = share_m * num_roles * params.out_element.num_bytes
    used = params.stages * stage_bytes(params)
    room = _spare_bytes(params, gpu) - used if params.persistent else max(used, _spare_bytes(params, gpu))
    slice_n = share_n
    while slice_n > 8 and (slice_n * column_bytes > room or share_n % slice_n):
        slice_n -= 8
    return Staging(
        slice_n=slice_n,
        num_bytes=slice_n * column_bytes,
        overlays_stages=not params.persistent and slice_n * column_bytes <= used,
    )


def _check_room(params: GemmParams, gpu: Target) -> None:
    assert params.stages is not None and params.tile is not None  # resolved
    most = most_stages(params, gpu)
    if params.stages <= most:
        return
    need = params.stages * stage_bytes(params) + _least_staging(params) + ALIGNMENT_BYTES
    tile = "x".join(str(part) for part in params.tile)
    advice = f"use at most {most} stages" if most else "use a smaller tile"
    raise LaunchError(
        f"--stages {params.stages}: with --tile {tile} they need {need} bytes of shared memory, {gpu.name} has "
        f"{gpu.max_smem_per_cta_bytes} a CTA; {advice}"
    )


def gemm_launch(params: GemmParams, gpu: Target) -> Launch:
    """The Launch of resolved ``params`` on ``gpu``.

    Raises:
        KernelError: the accumulators do not fit in registers.
        LaunchError: the stages do not fit in shared memory, or the GPU lacks what the kernel needs.
    """
    _check_features(params, gpu)
    _check_room(params, gpu)
    plan = TilePlan(params)
    if params.schedule == "multistage":
        launch = _multistage(params, plan, gpu)
    else:
        launch = _specialized(params, plan, gpu)
    return launch


def _check_features(params: GemmParams, gpu: Target) -> None:
    if gpu.compute_capability >= 9.0:
        return
    for flag, value, is_used in (
        ("--copy", "tma", params.copy_ == "tma"), ("--math", "wgmma", params.math == "wgmma"),
        ("--cluster", "x".join(map(str, params.cluster)), params.cluster != (1, 1)),
        ("--schedule", str(params.schedule), params.schedule != "multistage"),
    ):
        if is_used:
            better = {"--copy": "cp_async", "--math": "mma_sync", "--cluster": "1x1", "--schedule": "multistage"}[flag]
            raise LaunchError(
                f"{flag} {value}: needs compute capability 9.0, {gpu.name} has {gpu.compute_capability}; use {flag} {better}"
            )
    if params.dtype == "fp8":
        raise LaunchError(f"--dtype fp8: needs compute capability 8.9, {gpu.name} has {gpu.compute_capability}; use bf16")


def _features(params: GemmParams) -> frozenset[Feature]:
    found: set[Feature] = {"tma" if params.copy_ == "tma" else "cp_async"}
    if params.copy_ == "tma" or params.schedule != "multistage":
        found.add("mbarrier")
    if params.math == "wgmma":
        found.add("wgmma")
    if params.math == "mma_sync":
        found.add("mma_sync")
    if params.cluster != (1, 1):
        found.add("cluster")
    if params.setmaxnreg != "none":
        found.add("setmaxnreg")
    return frozenset(found)


def _num_flops(params: GemmParams) -> int:
    return 2 * params.m * params.n * params.k * params.batch


def _math_class(params: GemmParams) -> str:
    return {"bf16": "16bit", "fp16": "16bit"}.get(params.dtype, params.dtype)


def _remarks(params: GemmParams, plan: TilePlan) -> tuple[str, ...]:
    remarks = []
    edge = plan.num_m * plan.tile[0] * plan.num_n * plan.tile[1] - params.m * params.n
    if edge:
        share = edge / (plan.num_m * plan.tile[0] * plan.num_n * plan.tile[1])
        remarks.append(f"{share:.1%} of the tiles' area lies outside of D and is computed for nothing")
    if params.swizzle == "none" and params.math == "wgmma" and params.copy_ == "tma":
        remarks.append("without a swizzle TMA fills core matrices 16 bytes wide, which the engine does slowly")
    return tuple(remarks)


def _registers(params: GemmParams, *, accumulators: int, copies: int, num_warps: int) -> tuple[int, str]:
    """(registers that the launch asks for, how they come about)."""
    assert params.math is not None and params.schedule is not None and params.copy_ is not None  # resolved
    need = register_need(
        schedule=params.schedule, math=params.math, copy=params.copy_, accumulators=accumulators,
        fragments=fragment_registers(params), copies_per_thread=copies,
    )
    limit = launch_limit(num_warps)
    story = f"{need.accumulators} accumulators + {need.fragments} fragments + {need.overhead} overhead"
    if params.setmaxnreg != "none":
        of_consumer = int(params.setmaxnreg.split("/")[1])
        if need.total > of_consumer:
            raise KernelError(
                f"--setmaxnreg {params.setmaxnreg}: consumers need {need.total} registers ({story}); use a smaller tile or "
                f"more consumers"
            )
        return limit, f"{story}; launched with {limit}, setmaxnreg {params.setmaxnreg}"
    # fma kernels that come near the limit are squeezed by ptxas without spilling
    squeezable = need.overhead // 2 if params.math == "fma" else 0
    if need.total - squeezable > limit:
        raise KernelError(
            f"--tile: {need.total} registers a thread ({story}), a CTA of {num_warps} warps has {limit}; it would spill, "
            f"use a smaller tile or more warps"
        )
    return min(limit, rounded(need.total)), story


def _multistage(params: GemmParams, plan: TilePlan, gpu: Target) -> Launch:
    assert params.stages is not None and params.epilogue is not None  # resolved
    tile_m, tile_n, _ = plan.tile
    if params.math == "wgmma":
        consumers = params.consumers or 1
        num_warps = 4 * consumers
        share_m = tile_m // consumers if params.split == "m" else tile_m
        share_n = tile_n if params.split == "m" else tile_n // consumers
    else:
        assert params.warps is not None  # resolved
        num_warps = params.warps[0] * params.warps[1]
        share_m, share_n = tile_m, tile_n
    loader = Loader(plan, num_threads=num_warps * 32)
    staging = staging_of(params, gpu, share_n=tile_n, share_m=tile_m, num_roles=1)
    epilogue = Epilogue(plan, tile_m, tile_n, num_warps, staging.slice_n, barrier="")
    role = Multistage(plan, loader, MathShare(plan, share_m, share_n), epilogue, num_warps=num_warps)
    copies = -(-stage_bytes(params) // 16 // (num_warps * 32))
    registers, story = _registers(
        params, accumulators=tile_m * tile_n // (num_warps * 32), copies=copies, num_warps=num_warps
    )
    return Launch(
        kernel="gemm",
        num_ctas=plan.num_tiles,
        num_tiles=plan.num_tiles,
        roles=(WarpRole(name="math", num_warps=num_warps, program=role),),
        buffers=_buffers(params, plan, staging, num_slots=1),
        mbarriers=(Mbarrier(name="full", num_arrivals=1, num_stages=params.stages),) if params.copy_ == "tma" else (),
        registers_per_thread=registers,
        registers_source=story,
        extra_smem_bytes=ALIGNMENT_BYTES if params.math == "wgmma" or params.copy_ == "tma" else 0,
        features=_features(params),
        footprints=plan.footprints(),
        num_flops=_num_flops(params),
        math_class=_math_class(params),
        params=params.as_options(),
        remarks=_remarks(params, plan),
        following=_following(params, plan),
    )


def _buffers(params: GemmParams, plan: TilePlan, staging: Staging, *, num_slots: int) -> tuple[Buffer, ...]:
    assert params.stages is not None  # resolved
    found = [
        Buffer(name="a", stage_bytes=plan.operand_a.num_bytes, num_stages=params.stages),
        Buffer(name="b", stage_bytes=plan.operand_b.num_bytes, num_stages=params.stages),
    ]
    if params.epilogue != "direct" and params.split_k == 1:
        found.append(
            Buffer(
                name="epilogue", stage_bytes=-(-staging.num_bytes // num_slots), num_stages=num_slots,
                is_overlay=staging.overlays_stages,
            )
        )
    return tuple(found)


def _specialized(params: GemmParams, plan: TilePlan, gpu: Target) -> Launch:
    assert params.stages is not None and params.consumers is not None  # resolved
    tile_m, tile_n, _ = plan.tile
    consumers = params.consumers
    is_pingpong = params.schedule == "pingpong"
    share_m = tile_m // consumers if params.split == "m" and not is_pingpong else tile_m
    share_n = tile_n // consumers if params.split == "n" and not is_pingpong else tile_n
    num_warps = PRODUCER_WARPS + 4 * consumers
    of_producer = of_consumer = None
    if params.setmaxnreg != "none":
        of_producer, of_consumer = (int(part) for part in params.setmaxnreg.split("/"))
        pool = launch_limit(num_warps) * num_warps * 32
        wanted = (of_producer * PRODUCER_WARPS + of_consumer * 4 * consumers) * 32
        if wanted > pool:
            most = (pool // 32 - of_producer * PRODUCER_WARPS) // (4 * consumers) // 8 * 8
            raise KernelError(
                f"--setmaxnreg {params.setmaxnreg}: producer and {consumers} consumers want {wanted} registers, the CTA is "
                f"launched with {pool}; use {of_producer}/{most}"
            )
    loader = Loader(plan, num_threads=PRODUCER_WARPS * 32)
    share = MathShare(plan, share_m, share_n)
    staging = staging_of(params, gpu, share_n=share_n, share_m=share_m, num_roles=consumers)
    roles = [WarpRole(name="producer", num_warps=PRODUCER_WARPS, program=Producer(plan, loader, registers=of_producer))]
    for idx in range(consumers):
        epilogue = Epilogue(
            plan, share_m, share_n, 4, staging.slice_n, barrier=f"epilogue{idx}", slot=idx
        )
        program = Consumer(
            plan, loader, share, epilogue, idx=idx, num_consumers=consumers, registers=of_consumer
        )
        roles.append(WarpRole(name=f"consumer{idx}", num_warps=4, program=program))
    num_releasing = (1 if is_pingpong else consumers) * len(loader.feeders(0))
    by_tma = params.copy_ == "tma"
    mbarriers = [
        Mbarrier(name="full", num_arrivals=1 if by_tma else PRODUCER_WARPS * 32, num_stages=params.stages),
        Mbarrier(name="empty", num_arrivals=num_releasing, num_stages=params.stages),
    ]
    if is_pingpong:
        mbarriers += [
            Mbarrier(name="math_turn", num_arrivals=1, num_stages=2),
            Mbarrier(name="epilogue_turn", num_arrivals=1, num_stages=2),
        ]
    registers, story = _registers(params, accumulators=share.accumulators, copies=0, num_warps=num_warps)
    return Launch(
        kernel="gemm",
        num_ctas=None if params.persistent else plan.num_tiles,
        num_tiles=plan.num_tiles,
        roles=tuple(roles),
        buffers=_buffers(params, plan, staging, num_slots=consumers),
        mbarriers=tuple(mbarriers),
        named_barriers=tuple(NamedBarrier(name=f"epilogue{idx}", num_threads=128) for idx in range(consumers)),
        cluster_size=params.cluster[0] * params.cluster[1],
        registers_per_thread=registers,
        registers_source=story,
        extra_smem_bytes=ALIGNMENT_BYTES,
        features=_features(params),
        footprints=plan.footprints(),
        num_flops=_num_flops(params),
        math_class=_math_class(params),
        params=params.as_options(),
        remarks=_remarks(params, plan),
        following=_following(params, plan),
    )


def _following(params: GemmParams, plan: TilePlan) -> tuple[Launch, ...]:
    if params.split_k > 1 and params.split_k_mode == "second_kernel":
        return (reduction_launch(params, plan),)
    return ()
