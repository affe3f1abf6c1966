"""Programs of published microbenchmarks that no kernel of this project measures, in the simulator's ops.

In: a row's parameters, a GPU. Out: cycles, bytes per cycle, or the unit that the function states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.atoms.mma import wgmma
from gpusim.workload.dtypes import dtype as dtype_named
from gpusim.workload.gmem.global_access import global_access, tag_hash_of, tag_wavefronts
from gpusim.workload.launch import Buffer, Footprint, Launch, Mbarrier, RoleContext, WarpRole
from gpusim.workload.smem.access import AccessPattern

Params = Mapping[str, str]
KIB = 1 << 10

Steps = Generator[Any, Any, None]
Program = Callable[[RoleContext], Steps]


@dataclass(frozen=True, slots=True)
class At:
    """Answer at a specific clock, in the unit of its number."""

    value: float
    mhz: float


SHORT, LONG = 6, 18
"""Steps (waves) of the two launches whose difference gives a rate."""


def _cycles(launch: Launch, gpu: GpuSpec, *, l2: Literal["cold", "warm"] = "warm") -> float:
    return simulate(launch, gpu, clock="max", l2=l2).cycles


def _lone(program: Program, num_warps: int, **fields: Any) -> Launch:
    """Launch of one CTA with one role."""
    role = WarpRole(name="all", num_warps=num_warps, program=program)
    return Launch(kernel="micro", num_ctas=1, num_tiles=1, roles=(role,), **fields)


NUM_LUMPS, NUM_WALKS, EVERY = 1024, 3, 32
"""Parts of a chain, its walks, and the distance of timed parts.

Each part stays in a cache or leaves it as one. The last walk is timed. In it one line of every ``EVERY``-th part is timed
for all; the other parts are loaded without timing."""

PAUSE = ops.Alu(1 << 14)
"""Pause before a timed line, so that the parts before it delay nothing."""


def load_latency(params: Params, gpu: GpuSpec) -> float:
    """Cycles of a load in a dependent chain through ``footprint_kib``, line after line.

    The chain was walked before in this order, or never.
    """
    in_l1, is_warmed = params["cached"] == "l1", params["warmed"] == "yes"
    sectors = max(1, int(params["footprint_kib"]) * KIB // NUM_LUMPS // SECTOR_BYTES)
    lump = AccessPattern(num_requests=1, num_sectors=sectors, num_lines=1, num_bytes=SECTOR_BYTES * sectors)
    node = AccessPattern(num_requests=1, num_sectors=1, num_lines=1, num_bytes=8)
    timed = range((NUM_WALKS - 1) * NUM_LUMPS, NUM_WALKS * NUM_LUMPS, EVERY)

    def launch(is_timed: bool) -> Launch:
        def program(_: RoleContext) -> Steps:
            for step in range(0 if is_warmed else timed.start, NUM_WALKS * NUM_LUMPS):
                if step in timed:
                    yield PAUSE
                if is_timed or step not in timed:
                    asked = node if step in timed else lump
                    token = yield ops.GlobalLoad("nodes", (0, step % NUM_LUMPS), asked, allocates_in_l1=in_l1)
                    yield ops.Use(token)

        return _lone(program, 1)

    return (_cycles(launch(True), gpu, l2="cold") - _cycles(launch(False), gpu, l2="cold")) / len(timed)


def _access(num_warps: int, access_bytes: int, times: int = 1) -> AccessPattern:
    """Access of warps that each load one contiguous piece of memory."""
    size = WARP_SIZE * access_bytes * num_warps * times
    lines = max(1, size // LINE_BYTES)
    return AccessPattern(
        num_requests=num_warps * times, num_sectors=max(1, size // SECTOR_BYTES), num_lines=lines, num_wavefronts=lines,
        num_bytes=size,
    )  # fmt: skip


def _l1_stream_cycles(access: AccessPattern, gpu: GpuSpec) -> float:
    """Cycles per repetition of ``access`` by all warps of a CTA, from L1, with four in flight."""

    def launch(num: int) -> Launch:
        def program(_: RoleContext) -> Steps:
            tokens: list[Any] = []
            for _step in range(num):
                tokens.append((yield ops.GlobalLoad("data", (0, 0), access)))
                if len(tokens) > 4:
                    yield ops.Use(tokens.pop(0))
            for token in tokens:
                yield ops.Use(token)

        return _lone(program, 32)

    return (_cycles(launch(80), gpu) - _cycles(launch(16), gpu)) / 64


def l1_read_bandwidth(params: Params, gpu: GpuSpec) -> float:
    """Bytes per cycle and SM of coalesced loads by 32 warps that hit in L1."""
    access = _access(32, int(params["access_bytes"]))
    return access.num_bytes / _l1_stream_cycles(access, gpu)


PITCH = 4098
"""Elements from row to row of a block."""
OFFSETS: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("hopper", "stride"): (0, 4, 8, 12, 16, 20, 28, 32),
    ("hopper", "block"): (4, 8, 12, 16, 20, 24, 28, 32),
    ("ampere", "stride"): (0, 3, 5, 10, 12, 15, 17, 20, 22, 24, 26, 30, 32, 35, 38, 40, 43, 45),
    ("ampere", "block"): (0, 3, 5, 10, 12, 15, 17, 20, 22, 24, 26, 30, 32, 35, 38, 40, 43, 45),
}
"""Offsets in elements between the loads of a thread, by tag hash and pattern. They reproduce the published counts of tag
wavefronts exactly. The version of the benchmark that counted them is lost."""


def strided_addresses(params: Params, tag_hash: str) -> NDArray[np.int64]:
    """int64[loads, 32 warps, 32 lanes]: byte addresses that gpu-strides loads, strided over four warps, or in blocks."""
    thread, parameter = np.arange(1024), int(params["parameter"])
    if params["pattern"] == "block":
        element = thread % parameter % 64 + (thread // parameter % 32 + 1) * PITCH
    else:
        element = thread % 128 * parameter
    offsets = np.array(OFFSETS[tag_hash, params["pattern"]])
    return np.asarray((element.reshape(1, 32, 32) + offsets.reshape(-1, 1, 1)) * int(params["element_bytes"]))


def l1_load_cycles(params: Params, gpu: GpuSpec) -> float:
    """Cycles of a warp's load from L1 by its pattern, with 32 warps at once."""
    tag_hash = tag_hash_of(gpu.compute_capability)
    addresses = strided_addresses(params, tag_hash)
    asked = global_access(addresses[0], int(params["element_bytes"]))
    tags = tag_wavefronts(addresses, tag_hash=tag_hash).sum() / len(addresses)
    access = AccessPattern(
        num_requests=asked.num_requests, num_sectors=asked.num_sectors,
        num_lines=round(tags * gpu.l1.tag_lines_per_cycle), num_wavefronts=asked.num_wavefronts, num_bytes=asked.num_bytes,
    )  # fmt: skip
    return _l1_stream_cycles(access, gpu) / asked.num_requests


def _constant(num_bytes: int) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    return lambda tiles: np.full_like(tiles, num_bytes)


def _itself(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
    return tiles


def _read_rate(
    gpu: GpuSpec, *, threads: int, ctas_per_sm: int, access_bytes: int, in_flight: int, footprint_bytes: int
) -> float:
    """Bytes per cycle that all SMs read; CTAs are persistent, and each reads its private part."""
    ctas, warps = gpu.num_sms * ctas_per_sm, threads // WARP_SIZE
    num_roles = min(4, warps)
    access = _access(warps // num_roles, access_bytes, in_flight)

    def launch(num: int) -> Launch:
        panel_bytes = _constant(footprint_bytes // ctas)
        footprint = Footprint(tensor="data", access="read", panel_of=_itself, panel_bytes=panel_bytes)
        return Launch(
            kernel="read", num_ctas=ctas, num_tiles=ctas, footprints=(footprint,),
            roles=_readers(access, num_roles, warps, lambda cta: (cta, range(num))),
            extra_smem_bytes=_smem_bytes(gpu, ctas_per_sm),
        )  # fmt: skip

    moved = (LONG - SHORT) * ctas * num_roles * access.num_bytes
    return moved / (_cycles(launch(LONG), gpu) - _cycles(launch(SHORT), gpu))


def _readers(
    access: AccessPattern, num_roles: int, num_warps: int, work: Callable[[int], tuple[int, range]]
) -> tuple[WarpRole, ...]:
    """Roles that share ``num_warps``; ``work`` gives the panel that a CTA reads, and its steps."""

    def role(idx: int) -> Program:
        def program(cta: RoleContext) -> Steps:
            panel, steps = work(cta.cta_idx)
            for step in steps:
                token = yield ops.GlobalLoad("data", (panel, step * num_roles + idx), access, allocates_in_l1=False)
                yield ops.Use(token)

        return program

    return tuple(
        WarpRole(name=f"reader{idx}", num_warps=num_warps // num_roles, program=role(idx)) for idx in range(num_roles)
    )


PASSES, LEAST_STEPS = 3, 16
"""Passes over the footprint and steps of an SM slot before the measurement, which is as long: L2 has settled by then."""


def parts_launch(gpu: GpuSpec, asked: Mapping[str, int], *, waves: int, footprint_bytes: int, part_bytes: int) -> Launch:
    """A long grid whose CTAs read parts of one footprint in turn, each CTA one part.

    The first wave is staggered evenly: a CTA that begins earlier has less left to read. The waves do not run in step, so L2
    hits are found during the run. ``asked``: threads, ctas_per_sm, access_bytes and in_flight.
    """
    ctas_per_sm, warps = asked["ctas_per_sm"], asked["threads"] // WARP_SIZE
    slots, num_roles = gpu.num_sms * ctas_per_sm, min(2, warps)
    access = _access(warps // num_roles, asked["access_bytes"], asked["in_flight"])
    num_parts, num_steps = max(1, footprint_bytes // part_bytes), max(1, part_bytes // (num_roles * access.num_bytes))

    def work(cta: int) -> tuple[int, range]:
        return cta % num_parts, range(num_steps - (cta + 1) * num_steps // slots if cta < slots else 0, num_steps)

    return Launch(
        kernel="read", num_ctas=slots * waves, num_tiles=slots * waves, roles=_readers(access, num_roles, warps, work),
        extra_smem_bytes=_smem_bytes(gpu, ctas_per_sm),
    )  # fmt: skip


def _parted_read_rate(gpu: GpuSpec, asked: Mapping[str, int], *, footprint_bytes: int, part_bytes: int) -> At:
    """Bytes per cycle in the middle of such a grid, at the clock that back-to-back launches of milliseconds sustain.

    Requests do not merge. A large access of a few warps would merge as one, whereas single lines seldom do.
    """
    slots, step_bytes = gpu.num_sms * asked["ctas_per_sm"], asked["threads"] * asked["access_bytes"] * asked["in_flight"]
    num_steps = max(1, part_bytes // step_bytes)
    waves = max(math.ceil(LEAST_STEPS / num_steps), math.ceil(PASSES * max(1, footprint_bytes // part_bytes) / slots))
    alone = replace(gpu, xbar=replace(gpu.xbar, coalesce_max_requests=1))
    launch = parts_launch(
        gpu, asked, waves=2 * waves + 1, footprint_bytes=footprint_bytes, part_bytes=part_bytes
    )  # fmt: skip
    result = simulate(launch, alone, clock="sustained", l2="cold", recorded_sms=range(gpu.num_sms))
    ends: dict[int, float] = {}
    for role in result.timeline.roles:
        ends[role.cta_idx] = max(ends.get(role.cta_idx, 0.0), role.states[-1][2])
    in_order = sorted(ends.values())
    cycles = in_order[2 * waves * slots - 1] - in_order[waves * slots - 1]
    return At(waves * slots * num_steps * step_bytes / cycles, result.sm_clock_mhz)


def _smem_bytes(gpu: GpuSpec, ctas_per_sm: int) -> int:
    """Shared memory in bytes with which exactly ``ctas_per_sm`` CTAs fit on an SM."""
    device = gpu.device
    most = device.smem_per_sm_bytes // ctas_per_sm // device.smem_allocation_bytes * device.smem_allocation_bytes
    return int(min(device.smem_per_cta_bytes, most - device.smem_reserved_per_cta_bytes))


def l2_read_bandwidth(params: Params, gpu: GpuSpec) -> At:
    """Bytes per cycle that all SMs read of a footprint, in parts that CTAs read in turn, or a private part per CTA."""
    names = ("threads", "ctas_per_sm", "access_bytes", "in_flight")
    asked = {name: int(params[name]) for name in names}
    num_bytes, part_bytes = int(params["footprint_kib"]) * KIB, int(params["part_kib"]) * KIB
    if part_bytes:
        return _parted_read_rate(gpu, asked, footprint_bytes=num_bytes, part_bytes=part_bytes)
    return At(_read_rate(gpu, footprint_bytes=num_bytes, **asked), gpu.clock.max_mhz)


def sm_read_bandwidth(params: Params, gpu: GpuSpec) -> float:
    """Bytes per cycle and SM while all SMs read private parts from L2."""
    asked = {"threads": "1024", "ctas_per_sm": "1", "access_bytes": "16", "in_flight": "4", "part_kib": "0"}
    return l2_read_bandwidth({**asked, **params}, gpu).value / gpu.num_sms


IN_HBM = 1 << 31
STREAMS = MappingProxyType({"init": (0, 1), "read": (1, 0), "scale": (1, 1), "triad": (2, 1)})
"""Loads and stores of a thread of gpu-stream."""
ADDRESS, ADDRESS_CHAIN = 30, 8
"""Other instructions of such a thread, and those of them in a dependent chain: index, bounds check, addresses.

Counted in nvcc 13's code for such kernels, 28 to 39 and 8."""


def hbm_read_bandwidth(params: Params, gpu: GpuSpec) -> float:
    """Bytes per cycle that all SMs read of two GiB."""
    return _read_rate(
        gpu, threads=int(params["threads"]), ctas_per_sm=int(params["ctas_per_sm"]),
        access_bytes=int(params["access_bytes"]), in_flight=4, footprint_bytes=IN_HBM,
    )  # fmt: skip


def hbm_write_bandwidth(params: Params, gpu: GpuSpec) -> float:
    """Bytes per cycle that all SMs write, CTA after CTA."""
    return stream_bandwidth({"kernel": "init", "threads": params["threads"]}, gpu)


def stream_bandwidth(params: Params, gpu: GpuSpec) -> float:
    """Bytes per cycle of CTAs, two per SM, whose threads each load and store one double and end."""
    num_loads, num_stores = STREAMS[params["kernel"]]
    warps = int(params["threads"]) // WARP_SIZE
    access = _access(warps, 8)

    def launch(num_waves: int) -> Launch:
        def program(cta: RoleContext) -> Steps:
            tokens: list[Any] = []
            yield ops.Alu(ADDRESS_CHAIN, is_chain=True)
            yield ops.Alu(ADDRESS - ADDRESS_CHAIN)
            for idx in range(num_loads):
                tokens.append((yield ops.GlobalLoad(f"from{idx}", (cta.cta_idx, 0), access)))
            for token in tokens:
                yield ops.Use(token)
            for idx in range(num_stores):
                yield ops.GlobalStore(f"to{idx}", (cta.cta_idx, 0), access)

        ctas = 2 * gpu.num_sms * num_waves
        size = _constant(IN_HBM // ctas)
        footprints = [
            *(Footprint(tensor=f"from{i}", access="read", panel_of=_itself, panel_bytes=size) for i in range(num_loads)),
            *(Footprint(tensor=f"to{i}", access="write", panel_of=_itself, panel_bytes=size) for i in range(num_stores)),
        ]
        return Launch(
            kernel="stream", num_ctas=ctas, num_tiles=ctas, footprints=tuple(footprints),
            roles=(WarpRole(name="all", num_warps=warps, program=program),), extra_smem_bytes=_smem_bytes(gpu, 2),
        )  # fmt: skip

    moved = (LONG - SHORT) * 2 * gpu.num_sms * access.num_bytes * (num_loads + num_stores)
    return moved / (_cycles(launch(LONG), gpu, l2="cold") - _cycles(launch(SHORT), gpu, l2="cold"))


L2_OF: Mapping[str, Literal["cold", "warm"]] = MappingProxyType({"l2": "warm", "hbm": "cold"})


def tma_latency(params: Params, gpu: GpuSpec) -> float:
    """Cycles of a TMA box and the wait for it, one box after the other."""
    size, rows = int(params["bytes"]), max(1, int(params["bytes"]) // int(params["row_bytes"]))

    def launch(num: int) -> Launch:
        def program(_: RoleContext) -> Steps:
            for step in range(num):
                yield ops.MbarrierArriveExpectTx("full", 0, size)
                yield ops.TmaLoad("T", (0, step), size, size, rows, "box", 0, "full")
                yield ops.MbarrierWait("full", 0, step & 1)

        return _lone(
            program, 1, buffers=(Buffer(name="box", stage_bytes=size),), mbarriers=(Mbarrier(name="full", num_arrivals=1),)
        )

    level = L2_OF[params["level"]]
    return (_cycles(launch(24), gpu, l2=level) - _cycles(launch(8), gpu, l2=level)) / 16


RING_STEPS = 24, 72
"""Boxes of the two launches; a ring takes some to settle."""


def tma_read_bandwidth(params: Params, gpu: GpuSpec) -> float:
    """Bytes per cycle of all SMs, each CTA with a ring of TMA boxes in flight."""
    size, stages, per_sm = int(params["box_bytes"]), int(params["stages"]), int(params["ctas_per_sm"])
    rows, ctas = max(1, size // int(params["row_bytes"])), gpu.num_sms * per_sm

    def launch(num_steps: int) -> Launch:
        def program(cta: RoleContext) -> Steps:
            for step in range(num_steps + stages):
                if step >= stages:
                    yield ops.MbarrierWait("full", step % stages, step // stages - 1 & 1)
                if step < num_steps:
                    yield ops.MbarrierArriveExpectTx("full", step % stages, size)
                    yield ops.TmaLoad("T", (cta.cta_idx, step), size, size, rows, "boxes", step % stages, "full")

        rest = max(0, _smem_bytes(gpu, per_sm) - size * stages - KIB)
        return Launch(
            kernel="tma", num_ctas=ctas, num_tiles=ctas, roles=(WarpRole(name="all", num_warps=1, program=program),),
            buffers=(Buffer(name="boxes", stage_bytes=size, num_stages=stages),), extra_smem_bytes=rest,
            mbarriers=(Mbarrier(name="full", num_arrivals=1, num_stages=stages),),
        )  # fmt: skip

    first, last = RING_STEPS
    cycles = [_cycles(launch(num), gpu, l2=L2_OF[params["level"]]) for num in (first, last)]
    return (last - first) * ctas * size / (cycles[1] - cycles[0])


NUM_GROUPS, GROUP = 256, 4
"""Groups of wgmma of one warpgroup, and wgmma per group."""


def wgmma_rate(params: Params, gpu: GpuSpec) -> float:
    """TFLOP/s of a warpgroup on each SM, at the clock of one launch."""
    source: Literal["smem", "registers"] = "smem" if params["a"] == "ss" else "registers"
    atom = wgmma(int(params["n"]), dtype_named(params["dtype"]), a_source=source)

    def program(cta: RoleContext) -> Steps:
        for _ in cta.loop(NUM_GROUPS):
            yield ops.WgmmaFence()
            yield ops.Wgmma(atom, GROUP)
            yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(1)
        yield ops.WgmmaWaitGroup(0)

    num_flops = gpu.num_sms * NUM_GROUPS * GROUP * atom.num_flops
    launch = Launch(
        kernel="wgmma", num_ctas=gpu.num_sms, num_tiles=gpu.num_sms, registers_per_thread=168,
        roles=(WarpRole(name="multiply", num_warps=4, program=program),), extra_smem_bytes=_smem_bytes(gpu, 1),
        num_flops=num_flops, math_class=atom.rate_class,
    )  # fmt: skip
    data: Literal["random", "zeros"] = "zeros" if params["data"] == "zeros" else "random"
    short = simulate(launch, gpu, clock="single", l2="warm", data=data)
    return num_flops / (short.cycles / short.sm_clock_mhz) / 1e6


def null_kernel(_: Params, gpu: GpuSpec) -> float:
    """Cycles of a kernel of one warp that does nothing."""
    def program(_: RoleContext) -> Steps:
        yield from ()

    return _cycles(_lone(program, 1), gpu)
