"""A launch packed for the engine in one buffer: programs, costs of ops, L2 traffic plan, constants of the machine.

In: a LaunchPlan, Programs, an SM clock and Settings. Out: bytes, as ``program/records.py`` names their sections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from gpusim.program.cta_classes import MAX_OPS, trace_launch
from gpusim.program.program_check import check_programs
from gpusim.program.programs import Programs
from gpusim.program.records import CONSTANTS, INPUT_SECTIONS, OpKind
from gpusim.simulate import constants, op_tables
from gpusim.simulate.buffers import write_buffer
from gpusim.simulate.constants import Numbers
from gpusim.simulate.features import by_whom, check_features
from gpusim.simulate.plan import LaunchPlan
from gpusim.simulate.settings import Settings
from gpusim.simulate.traffic_tables import traffic_tables
from gpusim.units import WARPGROUP_THREADS, Clock


def pack(plan: LaunchPlan, programs: Programs, clock: Clock, settings: Settings) -> bytes:
    """Input buffer of one run.

    Raises:
        LaunchError: programs have ops that the GPU lacks, or panel numbers that are too large.
        ConfigError: the GPU has more L2 partitions than the engine supports.
    """
    return write_buffer(sections_of(plan, programs, clock, settings), INPUT_SECTIONS)


def sections_of(plan: LaunchPlan, programs: Programs, clock: Clock, settings: Settings) -> dict[str, NDArray[Any]]:
    """Every section of the input buffer, by name. Raises LaunchError, ConfigError: as :func:`pack`."""
    launch = plan.launch
    check_features(launch, plan.gpu, programs)
    numbers: dict[str, Numbers] = {
        "launch": _launch_numbers(plan, programs, clock, settings),
        "ideals": {name: float(name in settings.ideals) for name in CONSTANTS["ideals"]},
        **constants.machine_numbers(plan, clock),
    }
    return {
        **{f"constants_{part}": constants.in_order(part, of_part) for part, of_part in numbers.items()},
        **constants.machine_tables(plan, clock, settings.recorded_sms),
        **op_sections(plan, programs, port_bytes_per_cycle=numbers["xbar"]["alone_bytes_per_cycle"]),
        **traffic_tables(plan, programs.tensors),
        "ops": programs.ops, "programs": programs.programs, "lists": programs.lists, "neighbours": programs.neighbours,
        "cta_class": programs.cta_class, "class_programs": programs.class_programs, "cta_panels": programs.cta_panels,
    }  # fmt: skip


def _launch_numbers(plan: LaunchPlan, programs: Programs, clock: Clock, settings: Settings) -> Numbers:
    launch, gpu = plan.launch, plan.gpu
    return {
        "num_ctas": plan.num_ctas, "num_at_once": plan.num_at_once,
        "cluster_size": launch.cluster_size, "ctas_per_sm": plan.occupancy.ctas_per_sm, "num_threads": launch.num_threads,
        "registers_per_thread": launch.registers_per_thread, "smem_bytes": launch.smem_bytes,
        "num_panels": programs.cta_panels.shape[1], "cluster_barrier_cycles": constants.cluster_barrier_cycles(plan),
        "has_traffic_plan": bool(plan.traffic), "is_warm": plan.is_warm,
        "is_stored": settings.l2 == "stored", "is_flushed": settings.l2 == "flushed",
        "code_latency_cycles": constants.code_latency_cycles(plan, clock),
        "max_events": settings.max_events, "keeps_trace": settings.keeps_trace, "num_stages": len(programs.stages),
        "partition_bytes": gpu.l2.capacity_bytes / gpu.l2.num_partitions,
        "dirty_bytes": max(0.0, gpu.l2_partitions.dirty_bytes * gpu.l2.num_partitions - plan.left_dirty_bytes),
    }


def op_sections(plan: LaunchPlan, programs: Programs, *, port_bytes_per_cycle: float) -> dict[str, NDArray[Any]]:
    """Roles and barriers of a CTA, and the tables that ops refer to by ``cost``.

    Raises:
        LaunchError: the GPU lacks a tensor-core instruction.
    """
    launch, gpu, costs = plan.launch, plan.gpu, programs.costs
    wgmmas, mma_syncs, tma_loads, tma_stores = [], [], [], []
    for row, batch in enumerate(costs.wgmmas.items):
        with by_whom(launch, programs, OpKind.WGMMA, row):
            wgmmas.append(op_tables.wgmma_row(launch, gpu, batch.op, batch.num_warpgroups, batch.num_warps))
    for row, atom in enumerate(costs.mma_syncs.items):
        with by_whom(launch, programs, OpKind.MMA_SYNC, row):
            mma_syncs.append(op_tables.mma_sync_row(launch, gpu, atom))
    if gpu.tma is not None:
        tma, port = gpu.tma, port_bytes_per_cycle
        tma_loads = [op_tables.tma_load_row(gpu, tma, row, port_bytes_per_cycle=port) for row in costs.tma_loads.items]
        tma_stores = [op_tables.tma_store_row(tma, op) for op in costs.tma_stores.items]
    torn = gpu.xbar.misaligned_coalesce_fraction
    rows: dict[str, Sequence[op_tables.Row]] = {
        "roles": [
            (role.num_warps, role.num_threads, max(1, role.num_threads // WARPGROUP_THREADS)) for role in launch.roles
        ],
        "mbarriers": [(ring.num_arrivals,) for ring in launch.mbarriers for _ in range(ring.num_stages)],
        "named_barriers": [(barrier.num_threads,) for barrier in launch.named_barriers],
        "accesses": [
            (item.num_requests, item.num_sectors, item.num_lines, item.num_wavefronts, item.num_bytes)
            for item in costs.accesses.items
        ],
        "stores": costs.stores.items, "async_copies": costs.async_copies.items, "cold_codes": costs.cold_codes.items,
        "alus": costs.alus.items, "wgmmas": wgmmas, "mma_syncs": mma_syncs,
        "tma_loads": tma_loads, "tma_stores": tma_stores,
        "fetches": [op_tables.fetches_row(item, misaligned_coalesce_fraction=torn) for item in costs.fetches.items],
        "fmas": [op_tables.fma_row(gpu, op) for op in costs.fmas.items],
        "loop_bodies": [op_tables.loop_body_row(gpu, op) for op in costs.loop_bodies.items],
    }  # fmt: skip
    return {name: op_tables.table_of(name, of_name) for name, of_name in rows.items()}


def trace_plan(plan: LaunchPlan, *, max_ops: int = MAX_OPS) -> Programs:
    """Programs of a planned launch, with at most ``max_ops`` ops for each role of a CTA.

    Raises:
        LaunchError: a program is refused.
        HazardError: copies overwrite one another, or nobody waits for an mbarrier.
    """
    of_tensors = zip(plan.launch.footprints, plan.footprints.of_tensors, strict=True)
    programs = trace_launch(
        plan.launch, num_ctas=plan.num_ctas, panels_of={row.tensor: row.panel_of_tile for row in plan.footprints.of_tensors},
        bytes_of={  # bytes of tiles, not of the memory blocks that they touch
            row.tensor: row.bytes_of_tile if item.block_bytes is None else item.panel_bytes(plan.footprints.tiles)
            for item, row in of_tensors
        },
        max_ops=max_ops,
    )  # fmt: skip
    check_programs(plan.launch, programs)
    return programs
