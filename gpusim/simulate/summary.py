"""Result of a run: activity for the power model, counters under their Nsight Compute names, bottleneck."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.exact_math import sum_in_order
from gpusim.machine.memory.l2 import other_lookups
from gpusim.simulate.bottleneck import at_most_all, bottleneck_of, busy_shares, sources_used
from gpusim.simulate.engine_run import Ran
from gpusim.simulate.idealize import EVERY_LAUNCH_HAS, IDEALS
from gpusim.simulate.plan import peak_flops_per_cycle
from gpusim.simulate.result import Result
from gpusim.simulate.settings import IN_L2, Settings
from gpusim.simulate.timeline import WarpState
from gpusim.units import SECTOR_BYTES, WARP_SIZE, WAVEFRONT_BYTES, Clock

INTEGERS = frozenset({"int8", "uint8", "s8", "u8"})
"""Types whose wgmma Nsight Compute counts among the IMMA instructions."""


def activity_of(ran: Ran) -> Activity:
    """Activity of the launch for the power model: cycles, FLOP and bytes."""
    l2, smem = ran.counted.l2, ran.counted.smem
    read, filled = l2.read_sectors * SECTOR_BYTES, ran.counted.tma.load_bytes
    bulk = min(read, filled)  # coalesced requests are read once
    return Activity(
        cycles=ran.end_cycle, num_flops=float(ran.launch.num_flops), rate_class=_type_of(ran),
        l2_bytes=(read - bulk + l2.write_sectors * SECTOR_BYTES), bulk_bytes=bulk,
        fill_bytes=filled, hbm_bytes=sum_in_order(ran.dram_bytes()),
        smem_bytes=(smem.load_wavefronts + smem.store_wavefronts) * WAVEFRONT_BYTES,
        is_mma_sync="mma_sync" in ran.instructions,
        busy_fraction=min(1.0, ran.plan.num_slots / ran.plan.occupancy.ctas_per_sm / ran.gpu.num_sms),
    )


def _type_of(ran: Ran) -> str:
    """Math class of the launch, or the data type of its wgmma where that has a separate energy."""
    types = ran.wgmma_types
    own = next(iter(types)) if len(types) == 1 else ""
    return own if own in ran.gpu.clock.tensor_pj_per_flop else ran.launch.math_class


def result_of(ran: Ran, settings: Settings, *, mhz: float, simulated_mhz: float, num_events: int, wall_s: float) -> Result:
    """Result of a run at the SM clock ``mhz``."""
    launch, gpu, activity, cycles = ran.launch, ran.gpu, activity_of(ran), ran.end_cycle
    time_us = Clock(sm_mhz=mhz).time_us(cycles=cycles)
    at_once = min(ran.plan.num_slots, ran.plan.num_ctas)
    remarks = launch.remarks
    hinted = [item.tensor for item in launch.footprints if item.cache_hint != "evict_normal"]
    if settings.l2 in IN_L2 and (hinted or launch.set_aside_bytes):
        of_what = f"hints of {', '.join(dict.fromkeys(hinted))}" if hinted else "what is set aside of L2"
        remarks = (*remarks, f"what earlier launches have left in L2 (--l2 {settings.l2}) is worked out without {of_what}")
    remarks = (*remarks, *_remarks_on_footprints(ran, settings.l2))
    busy = busy_shares(ran)
    states = {
        role: {
            state.label: total / sum_in_order(totals) for state, total in zip(WarpState, totals, strict=True) if total > 0.0
        }
        for role, totals in ran.role_totals.items()
    }
    sources, guesses = sources_used(ran)
    return Result(
        kernel=launch.kernel, gpu=gpu.name, params=dict(launch.params), cycles=cycles, sm_clock_mhz=mhz,
        settings={"clock": settings.clock, "l2": settings.l2, "data": settings.data},
        clock_mode=settings.mode, time_us=time_us, tflops=launch.num_flops / (time_us or math.inf) / 1e6,
        peak_tflops_at_clock=peak_flops_per_cycle(launch, gpu) * mhz / 1e6,
        peak_tflops_datasheet=gpu.device.peak_tflops.get(launch.math_class, 0.0),
        bottleneck=bottleneck_of(ran, busy), occupancy=ran.plan.occupancy, num_ctas=ran.plan.num_ctas,
        num_tiles=launch.num_tiles, ctas_at_once=at_once, waves=launch.num_tiles / ran.plan.num_slots,
        registers_per_thread=launch.registers_per_thread, registers_source=launch.registers_source,
        smem_bytes=launch.smem_bytes, power_w=PowerLimiter(gpu.clock).power_w(activity, mhz=mhz, data=settings.data),
        power_limit_w=gpu.clock.power_limit_w, activity=activity,
        counters=counters_of(ran, mhz), busy=at_most_all(busy), states=states, sources=sources, guesses=guesses,
        num_events=num_events, wall_s=wall_s, simulated_mhz=simulated_mhz, ideals=ideals_of(ran), remarks=remarks,
        peak_memory_gb_per_s=gpu.hbm.peak_gb_per_s,
        fill_wavefronts=ran.counted.smem.fill_wavefronts, timeline=ran.timeline, engine=settings.engine,
    )


def ideals_of(ran: Ran) -> tuple[str, ...]:
    """Counterfactuals that apply to a launch: parts and instructions that it uses."""
    has = {*EVERY_LAUNCH_HAS, *ran.met}
    if "tma" in ran.instructions | ran.launch.features:
        has.add("tma")
    if ran.launch.smem_bytes:
        has.add("bank_conflicts")  # a launch without conflicts gets a report of none
    return tuple(name for name in IDEALS if name in has)


def _remarks_on_footprints(ran: Ran, l2: str) -> list[str]:
    """Remarks on L2 hits that do not follow from footprints."""
    found = []
    if not ran.plan.traffic:
        if ran.plan.is_warm:
            found.append(f"without a traffic plan each line is taken to be in L2 when it is first read (--l2 {l2})")
        unheard = [item.tensor for item in ran.launch.footprints if item.cache_hint != "evict_normal" or item.table_bytes]
        if unheard:
            found.append(f"with repeated walks, cache hints and rows at random of {', '.join(unheard)} have no effect")
    elif ran.counted.l2.unplanned_miss_bytes > ran.gpu.l2_partitions.partition_bytes:
        found.append(
            "tensors without footprints take more than L2 holds: each of their tiles is taken to be read from memory once"
        )
    return found


def counters_of(ran: Ran, mhz: float) -> dict[str, float]:
    """Counters under their Nsight Compute names."""
    launch, gpu, counted = ran.launch, ran.gpu, ran.counted
    cycles = ran.end_cycle
    counters: dict[str, float] = {
        "sm__cycles_elapsed.max": cycles,
        "gpu__time_duration.sum": cycles / mhz * 1e3,
        "sm__cycles_active.avg": min(cycles, ran.active_cycles / gpu.num_sms),
    }
    for part in counted:
        counters.update(part.named())
    counters["sm__inst_executed_pipe_tensor.sum"] = sum_in_order(
        counters[f"sm__inst_executed_pipe_tensor_op_{op}.sum"] for op in ("hmma", "imma", "gmma")
    )
    kind = "imma" if ran.wgmma_types & INTEGERS else "hmma"
    counters[f"sm__inst_executed_pipe_tensor_op_{kind}.sum"] += counted.tensor_core.gmma_instructions
    if ran.active_cycles:
        warps = sum_in_order(
            (role.num_warps - role.num_exiting_warps + role.num_idle_warps) * sum_in_order(ran.role_totals[role.name])
            for role in launch.roles
        )
        share = 100.0 * warps / ran.active_cycles / ran.plan.occupancy.max_warps_per_sm
        counters["sm__warps_active.avg.pct_of_peak_sustained_active"] = min(100.0, round(share, 9))  # whatever is recorded
    for op in ("tma_ld", "tma_st"):  # equal to the SASS-based counter
        if (name := f"smsp__sass_inst_executed_op_{op}.sum") in counters:
            counters[f"smsp__inst_executed_op_{op}.sum"] = counters[name]
    counters["dram__bytes_read.sum"], counters["dram__bytes_write.sum"] = ran.dram_bytes()
    promoted = _promoted_sectors(ran, counters["dram__bytes_read.sum"])
    counters["lts__t_sectors_srcunit_tex_op_read.sum"] += promoted
    counters.update(_lookups(ran, counters, promoted))
    elapsed = cycles or math.inf  # no rates for a launch of no cycles
    moved = (counters["dram__bytes_read.sum"] + counters["dram__bytes_write.sum"]) / (elapsed / mhz * 1e3)  # GB/s
    peak = gpu.hbm.peak_gb_per_s
    counters["dram__throughput.avg.pct_of_peak_sustained_elapsed"] = 100.0 * moved / peak
    busy = counted.tensor_core.busy_cycles
    name = "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active"
    counters[f"{name}.avg.pct_of_peak_sustained_elapsed"] = 100.0 * busy / gpu.num_sms / elapsed
    limits, num_idle_warps = ran.plan.occupancy.limits, sum(role.num_idle_warps for role in launch.roles)
    return counters | {
        "launch__registers_per_thread": launch.registers_per_thread,
        "launch__waves_per_multiprocessor": ran.plan.num_ctas / ran.plan.num_slots,
        "launch__grid_size": ran.plan.num_ctas, "launch__block_size": launch.num_threads + WARP_SIZE * num_idle_warps,
        "launch__cluster_size": launch.cluster_size,
        "launch__occupancy_limit_registers": limits["registers"], "launch__occupancy_limit_shared_mem": limits["smem"],
        "launch__occupancy_limit_warps": limits["warps"], "launch__occupancy_limit_blocks": limits["ctas"],
    }


def _promoted_sectors(ran: Ran, read_bytes: float) -> float:
    """Sectors that L2 reads in addition because lines are fetched with their neighbours (L2 promotion).

    All of them cross the link between the L2 partitions.

    Source: kernels/cold_tiles (``counted``), h200_sxm: a quarter of what memory delivers to SMs with separate tiles.

    Args:
        ran: a finished run.
        read_bytes: bytes that memory delivered.
    """
    counted, fraction = ran.counted.l2, ran.gpu.l2.promoted_read_fraction
    if not counted.miss_sectors:
        return 0.0
    return fraction * counted.promoted_sectors / counted.miss_sectors * read_bytes / SECTOR_BYTES


def _lookups(ran: Ran, counters: Mapping[str, float], promoted: float) -> dict[str, float]:
    """Counters of L2 lookups. An SM's own partition comes first, then the home partition of a line that the first one lacks.

    Models:

    * Half of the stored sectors are looked up in the other partition, too.
    * A store is a hit, and so is a read of a line that is in flight.
    * The counter of reductions counts both lookups.
    * Sectors that are fetched in addition to the requested ones count as misses of an SM. They are in no hit rate.
    * The ``promoted`` sectors, of lines with their neighbours, are read, cross and hit.
    * Lookups for other reasons (:func:`other_lookups`) hit.

    Source: kernels/cache_hints, l2_residency, half_stores (reductions), promoted_lookups (additional sectors), h200_sxm,
    2026-11-22. 1 less the misses without additional sectors over all lookups is within 0.1 points of the hit rate in 114 of
    120 rows.
    """
    reads = counters["lts__t_sectors_srcunit_tex_op_read.sum"]
    writes = counters["lts__t_sectors_srcunit_tex_op_write.sum"]
    reductions = counters["lts__t_sectors_op_red.sum"]
    writes += counters["lts__t_sectors_op_atom.sum"] + reductions
    planned, counted = ran.plan.traffic.values(), ran.counted.l2
    unplanned = counted.unplanned_miss_bytes if planned else counters["dram__bytes_read.sum"]
    unplanned += counted.unplanned_crossing_bytes - counted.unplanned_crossing_miss_bytes
    misses = (sum_in_order(item.lookup_miss_bytes for item in planned) + unplanned) / SECTOR_BYTES
    unasked = _unasked_fraction(ran) * max(0.0, misses - promoted)
    misses = min(misses - unasked, reads) + unasked
    far_share = 1.0 - 1.0 / ran.gpu.l2.num_partitions
    crossing = sum_in_order(item.crossing_bytes for item in planned) + counted.unplanned_crossing_bytes
    crossing = crossing / SECTOR_BYTES + far_share * writes + promoted
    crossing += ran.gpu.l2.dirty_fabric_fraction * _left_dirty_sectors(ran, counters)
    crossing_misses = sum_in_order(item.crossing_miss_bytes for item in planned) + counted.unplanned_crossing_miss_bytes
    crossing_misses /= SECTOR_BYTES
    crossing *= ran.gpu.l2.fabric_lookup_sectors
    num_sms = min(ran.gpu.num_sms, ran.plan.num_ctas)
    others, others_hits = other_lookups(ran.gpu.l2, reads + writes, num_sms)
    sectors = reads + writes + crossing + others
    hits = sectors - others + others_hits - (misses - unasked + crossing_misses)
    return {
        "lts__t_sectors_op_red.sum": reductions * (1.0 + far_share),
        "lts__t_sectors_srcunit_tex_lookup_miss.sum": misses,
        "lts__t_sectors_srcunit_tex.sum": reads + writes,
        "lts__t_sectors_srcunit_ltcfabric.sum": crossing,
        "lts__t_sector_hit_rate.pct": min(100.0, 100.0 * hits / sectors) if sectors else 0.0,
    }


def _left_dirty_sectors(ran: Ran, counters: Mapping[str, float]) -> float:
    """Sectors that a launch stores and does not write back, where it found L2 empty. 0 where another launch precedes it."""
    if ran.plan.is_warm:
        return 0.0
    if ran.plan.traffic:
        return ran.plan.left_dirty_bytes / SECTOR_BYTES
    return max(0.0, counters["lts__t_sectors_srcunit_tex_op_write.sum"] - counters["dram__bytes_write.sum"] / SECTOR_BYTES)


def _unasked_fraction(ran: Ran) -> float:
    """Share of sectors among the SMs' L2 misses that were not requested, but fetched with requested ones."""
    block_bytes, scales = ran.gpu.l2.fetch_bytes, ran.plan.footprints.fetch_scales
    missed = unasked = 0.0
    for item in ran.launch.footprints:
        found = ran.plan.traffic.get(item.tensor)
        if found is None or not found.lookup_miss_bytes:
            continue
        missed += found.lookup_miss_bytes
        if item.unasked is not None:
            unasked += item.unasked(block_bytes) * found.lookup_miss_bytes
        elif item.tensor in scales:
            unasked += (1.0 - 1.0 / scales[item.tensor]) * found.lookup_miss_bytes
    return unasked / missed if missed else 0.0


def one_after_the_other(first: Result, others: list[Result]) -> Result:
    """Result of several kernels that one call launches. Times, energies and sums add up; the rest is the first kernel's."""
    every = [first, *others]
    counters = dict(first.counters)
    for other in others:
        for name, value in other.counters.items():
            if name.endswith(".sum"):
                counters[name] = counters.get(name, 0.0) + value
    cycles, time_us = sum_in_order(item.cycles for item in every), sum_in_order(item.time_us for item in every)
    counters["sm__cycles_elapsed.max"] = cycles
    shares = ", ".join(f"{item.kernel} {item.cycles:.0f}" for item in every)
    return replace(
        first, simulated_mhz=0.0, ideals=tuple(name for name in IDEALS if any(name in item.ideals for item in every)),
        cycles=cycles, time_us=time_us, tflops=first.tflops * first.time_us / (time_us or math.inf),
        counters=counters, power_w=sum_in_order(item.energy_mj for item in every) / (time_us or math.inf) * 1e3,
        num_events=sum(item.num_events for item in every), wall_s=sum_in_order(item.wall_s for item in every),
        remarks=(*first.remarks, f"cycles of {len(every)} kernels, one after the other: {shares}"),
    )
