"""A launch packed for the engine: programs, what ops cost, the L2 plan and the machine's constants, in one buffer.

In: a LaunchPlan, Programs, an SM clock and settings. Out: bytes, as ``program/records.py`` names their sections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from gpusim.program.classes import MAX_OPS, trace_launch
from gpusim.program.programs import Programs
from gpusim.program.records import INPUT_SECTIONS, Ideal, OpKind
from gpusim.simulate import constants, op_tables
from gpusim.simulate.buffers import write_buffer
from gpusim.simulate.constants import Numbers, Placement
from gpusim.simulate.features import by_whom, check_features
from gpusim.simulate.plan import LaunchPlan
from gpusim.simulate.traffic_tables import traffic_tables
from gpusim.units import WARPGROUP_THREADS, Clock
from gpusim.workload.launch import Launch

MOST_EVENTS = 1_000_000_000
"""Events of one run, unless another number is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a planned launch is to be run."""

    clock: Clock
    ideals: frozenset[str] = frozenset()
    """Names that the plan's GPU is idealized by; the engine carries out those of ``records.Ideal``."""
    is_flushed: bool = False
    """Whether caches of code were flushed, too (``ops.FarCode``)."""
    recorded_sms: frozenset[int] | Literal["first"] = frozenset()
    """SMs whose timelines come back; ``first``: the one that CTA 0 starts on."""
    max_events: int = MOST_EVENTS
    keeps_trace: bool = False
    """Whether the cycle of every event comes back."""


def pack(plan: LaunchPlan, programs: Programs, settings: RunSettings) -> bytes:
    """The input buffer of one run.

    Raises:
        LaunchError: programs have ops that the GPU lacks, or panels of too large numbers.
        ConfigError: the GPU has an L2 that the engine does not know.
    """
    return write_buffer(sections_of(plan, programs, settings), INPUT_SECTIONS)


def sections_of(plan: LaunchPlan, programs: Programs, settings: RunSettings) -> dict[str, NDArray[Any]]:
    """Every section of the input buffer, by name; as :func:`pack`."""
    launch, gpu, clock = plan.launch, plan.gpu, settings.clock
    check_features(launch, gpu, programs)
    at = placement_of(plan, settings)
    numbers: dict[str, Numbers] = {
        "launch": _launch_numbers(plan, programs, settings, at),
        "ideals": {ideal.name.lower(): float(ideal.name.lower() in settings.ideals) for ideal in Ideal},
        **constants.machine_numbers(gpu, clock, at),
    }
    found: dict[str, NDArray[Any]] = {
        f"constants_{part}": constants.in_order(part, of_part) for part, of_part in numbers.items()
    }
    found.update(constants.machine_tables(gpu, clock, at))
    found.update(op_sections(plan, programs, port_bytes_per_cycle=numbers["xbar"]["alone_bytes_per_cycle"]))
    found.update(_cta_tables(launch, programs))
    found.update(traffic_tables(plan, programs.tensors))
    found.update({
        "ops": programs.ops, "programs": programs.programs, "lists": programs.lists, "neighbours": programs.neighbours,
        "cta_class": programs.cta_class, "class_programs": programs.class_programs, "cta_panels": programs.cta_panels,
    })  # fmt: skip
    return found


def placement_of(plan: LaunchPlan, settings: RunSettings) -> Placement:
    """What of a plan the machine's numbers depend on."""
    launch = plan.launch
    return Placement(
        num_ctas=plan.num_ctas, cluster_size=launch.cluster_size, ctas_per_sm=plan.occupancy.ctas_per_sm,
        smem_bytes=launch.smem_bytes, num_warps=launch.num_warps, is_warm=plan.is_warm,
        recorded_sms=settings.recorded_sms,
    )


def _launch_numbers(plan: LaunchPlan, programs: Programs, settings: RunSettings, at: Placement) -> Numbers:
    launch, gpu = plan.launch, plan.gpu
    return {
        "num_ctas": plan.num_ctas, "num_sms": gpu.num_sms, "num_at_once": plan.num_at_once,
        "cluster_size": launch.cluster_size, "ctas_per_sm": plan.occupancy.ctas_per_sm, "num_threads": launch.num_threads,
        "registers_per_thread": launch.registers_per_thread, "smem_bytes": launch.smem_bytes,
        "num_panels": programs.num_panels, "cluster_barrier_cycles": constants.cluster_barrier_cycles(gpu, at),
        "has_traffic_plan": bool(plan.traffic), "is_warm": plan.is_warm, "is_flushed": settings.is_flushed,
        "code_latency_cycles": constants.code_latency_cycles(gpu, settings.clock, is_warm=plan.is_warm),
        "num_code_names": len(programs.code_names), "num_far_code_names": len(programs.far_code_names),
        "max_events": settings.max_events, "keeps_trace": settings.keeps_trace, "side_bytes": gpu.l2_sides.side_bytes,
        "compute_capability": gpu.compute_capability, "num_stages": len(programs.stages),
    }


def _cta_tables(launch: Launch, programs: Programs) -> dict[str, NDArray[Any]]:
    """Roles and barriers of a CTA."""
    arrivals = {ring.name: ring.num_arrivals for ring in launch.mbarriers}
    threads = {barrier.name: barrier.num_threads for barrier in launch.named_barriers}
    return {
        "roles": op_tables.table_of("roles", [
            (role.num_warps, role.num_threads, max(1, role.num_threads // WARPGROUP_THREADS)) for role in launch.roles
        ]),
        "mbarriers": op_tables.table_of("mbarriers", [(arrivals[ring],) for ring, _ in programs.barriers]),
        "named_barriers": op_tables.table_of("named_barriers", [(threads[name],) for name in programs.named_barriers]),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- what ops cost


def op_sections(plan: LaunchPlan, programs: Programs, *, port_bytes_per_cycle: float) -> dict[str, NDArray[Any]]:
    """Tables that ops refer to by ``cost``.

    Raises:
        LaunchError: the GPU has no such tensor-core instruction.
    """
    launch, gpu = plan.launch, plan.gpu
    wgmmas, mma_syncs, tma_loads, tma_stores = [], [], [], []
    for row, batch in enumerate(programs.wgmmas):
        with by_whom(launch, programs, OpKind.WGMMA, row):
            wgmmas.append(op_tables.wgmma_row(launch, gpu, batch.op, batch.num_warpgroups, batch.num_warps))
    for row, atom in enumerate(programs.mma_syncs):
        with by_whom(launch, programs, OpKind.MMA_SYNC, row):
            mma_syncs.append(op_tables.mma_sync_row(launch, gpu, atom))
    if gpu.tma is not None:
        port, tma = port_bytes_per_cycle, gpu.tma
        tma_loads = [op_tables.tma_load_row(gpu, tma, load, port_bytes_per_cycle=port) for load in programs.tma_loads]
        tma_stores = [op_tables.tma_store_row(tma, op) for op in programs.tma_stores]
    torn = gpu.xbar.torn_merge_fraction
    rows: dict[str, Sequence[op_tables.Row]] = {
        "accesses": [
            (item.num_requests, item.num_sectors, item.num_lines, item.num_wavefronts, item.num_bytes)
            for item in programs.accesses
        ],
        "stores": programs.stores, "async_copies": programs.async_copies, "far_codes": programs.far_codes,
        "alus": programs.alus, "wgmmas": wgmmas, "mma_syncs": mma_syncs, "tma_loads": tma_loads, "tma_stores": tma_stores,
        "fetches": [op_tables.fetches_row(item, torn_merge_fraction=torn) for item in programs.fetches],
        "fmas": [op_tables.fma_row(gpu, op) for op in programs.fmas],
        "loop_codes": [op_tables.loop_code_row(gpu, op) for op in programs.loop_codes],
    }  # fmt: skip
    return {name: op_tables.table_of(name, of_name) for name, of_name in rows.items()}


def trace_plan(plan: LaunchPlan, *, max_ops: int = MAX_OPS) -> Programs:
    """Programs of a planned launch, of at most ``max_ops`` ops for a role of one CTA.

    Raises:
        LaunchError: a program is refused.
    """
    of_tensors = zip(plan.launch.footprints, plan.uses.of_tensors, strict=True)
    return trace_launch(
        plan.launch, num_ctas=plan.num_ctas, panels_of={use.tensor: use.panel_of_tile for use in plan.uses.of_tensors},
        bytes_of={  # of tiles, not of the blocks of memory that they touch
            use.tensor: use.bytes_of_tile if item.block_bytes is None else item.panel_bytes(plan.uses.tiles)
            for item, use in of_tensors
        },
        max_ops=max_ops,
    )  # fmt: skip
