"""What a run has to say: activity, counters under their Nsight Compute names, the Result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpusim.machine.clock import Activity
from gpusim.machine.memory.l2 import looked_up_beside
from gpusim.simulate.door import peak_flops_per_cycle
from gpusim.simulate.engine import Engine
from gpusim.simulate.ideal import EVERY_LAUNCH_HAS, IDEALS
from gpusim.simulate.result import Result
from gpusim.simulate.timeline import WarpState
from gpusim.simulate.verdict import at_most_all, bound_by, busy_shares, sources_used
from gpusim.units import SECTOR_BYTES, WAVEFRONT_BYTES, Clock


def activity_of(engine: Engine) -> Activity:
    """What the launch did, for its power."""
    machine = engine.machine
    l2, tma, smem = machine.l2.counters, machine.sms[0].tma, machine.sms[0].smem.counters
    read, filled = l2.read_sectors * SECTOR_BYTES, tma.counters.load_bytes if tma is not None else 0.0
    bulk = min(read, filled)  # requests that merge are read once
    return Activity(
        cycles=engine.end_cycle, num_flops=float(engine.launch.num_flops), rate_class=_type_of(engine),
        l2_bytes=(read - bulk + l2.write_sectors * SECTOR_BYTES) * engine.scale, bulk_bytes=bulk * engine.scale,
        fill_bytes=filled * engine.scale, hbm_bytes=sum(engine.dram_bytes()),
        smem_bytes=(smem.load_wavefronts + smem.store_wavefronts) * WAVEFRONT_BYTES * engine.scale,
        is_mma_sync=bool(engine.op_costs.mma_sync),
        busy_fraction=min(1.0, engine.slots_to_run / engine.occupancy.ctas_per_sm / engine.gpu.num_sms),
    )


def _type_of(engine: Engine) -> str:
    """The launch's class of type; the type of its wgmma where that has an energy of its own."""
    types = {cost.op.atom.a_dtype.name for cost in engine.op_costs.wgmma.values()}
    own = types.pop() if len(types) == 1 else ""
    return own if own in engine.gpu.clock.tensor_pj_per_flop else engine.launch.math_class


def result_of(
    engine: Engine, activity: Activity, *, settings: Mapping[str, Any], mhz: float, simulated_mhz: float, mode: str,
    num_events: int, wall_s: float,
) -> Result:
    """Everything that a run has to say."""
    launch, gpu, machine = engine.launch, engine.gpu, engine.machine
    clock = Clock(sm_mhz=mhz)
    cycles = engine.end_cycle
    time_us = clock.time_us(cycles=cycles)
    at_once = min(engine.num_slots, engine.num_ctas)
    remarks = launch.remarks
    if engine.sample.fraction < 1.0:
        remarks = (*remarks, f"a sample of {gpu.num_sms} SMs was simulated, {engine.sample.fraction:.0%} of the device")
    if engine.alike:
        most = max(engine.alike.values())
        remarks = (*remarks, f"{len(engine.alike)} SMs were simulated, each of which stands for up to {most} of its GPC")
    hinted = [item.tensor for item in launch.footprints if item.cache_hint != "evict_normal"]
    if settings["l2"] == "warm" and (hinted or launch.set_aside_bytes):
        of_what = f"hints of {', '.join(dict.fromkeys(hinted))}" if hinted else "what is set aside of L2"
        remarks = (*remarks, f"what earlier launches have left in L2 (--l2 warm) is worked out without {of_what}")
    busy = busy_shares(engine)
    kind, reason = bound_by(engine, busy)
    states = {
        role: {
            state.label: total / sum(totals) for state, total in zip(WarpState, totals, strict=True) if total > 0.0
        }
        for role, totals in engine.role_totals.items()
    }
    sources, guesses = sources_used(engine)
    return Result(
        kernel=launch.kernel, gpu=gpu.name, params=dict(launch.params), settings=settings, cycles=cycles, sm_clock_mhz=mhz,
        clock_mode=mode, time_us=time_us, tflops=launch.num_flops / (time_us or math.inf) / 1e6,
        peak_tflops_at_clock=peak_flops_per_cycle(launch, gpu) / engine.sample.fraction * mhz / 1e6,
        peak_tflops_datasheet=gpu.device.peak_tflops.get(launch.math_class, 0.0),
        bound_by=kind, reason=reason, occupancy=engine.occupancy, num_ctas=engine.num_ctas,
        num_tiles=launch.num_tiles, ctas_at_once=at_once, waves=launch.num_tiles / engine.num_slots,
        registers_per_thread=launch.registers_per_thread, registers_source=launch.registers_source,
        smem_bytes=launch.smem_bytes,
        power_w=machine.power_limiter.power_w(activity, mhz=mhz, data=str(settings["data"])),
        power_limit_w=machine.power_limiter.spec.power_limit_w, activity=activity,
        counters=counters_of(engine, mhz), busy=at_most_all(busy), states=states, sources=sources, guesses=guesses,
        num_events=num_events, wall_s=wall_s, num_skipped_cycles=engine.offset_cycles, simulated_mhz=simulated_mhz,
        ideals=ideals_of(engine), remarks=remarks,
        peak_memory_gb_per_s=gpu.hbm.peak_gb_per_s / engine.sample.fraction,
        fill_wavefronts=machine.sms[0].smem.counters.fill_wavefronts * engine.scale, timeline=engine.timeline,
    )


def ideals_of(engine: Engine) -> tuple[str, ...]:
    """What counterfactuals can make free of a launch: parts and instructions that it has."""
    has = {*EVERY_LAUNCH_HAS, *engine.met}
    if engine.op_costs.tma or "tma" in engine.launch.features:
        has.add("tma")
    if engine.launch.smem_bytes:
        has.add("bank_conflicts")  # who has none is told so
    return tuple(name for name in IDEALS if name in has)


def counters_of(engine: Engine, mhz: float) -> dict[str, float]:
    """Counters under their Nsight Compute names."""
    launch, gpu, machine = engine.launch, engine.gpu, engine.machine
    cycles = engine.end_cycle
    counters: dict[str, float] = {
        "sm__cycles_elapsed.max": cycles,
        "gpu__time_duration.sum": cycles / mhz * 1e3,
        "sm__cycles_active.avg": min(cycles, sm_active_cycles(engine)),
    }
    for part in machine.counters:
        counters.update({name: value * engine.scale for name, value in part.named()})
    counters["sm__inst_executed_pipe_tensor.sum"] = sum(
        counters[f"sm__inst_executed_pipe_tensor_op_{op}.sum"] for op in ("hmma", "imma", "gmma")
    )
    for op in ("tma_ld", "tma_st"):  # the same under the name of another way to count
        if (name := f"smsp__sass_inst_executed_op_{op}.sum") in counters:
            counters[f"smsp__inst_executed_op_{op}.sum"] = counters[name]
    counters["dram__bytes_read.sum"], counters["dram__bytes_write.sum"] = engine.dram_bytes()
    promoted = _promoted_sectors(engine, counters["dram__bytes_read.sum"])
    counters["lts__t_sectors_srcunit_tex_op_read.sum"] += promoted
    counters.update(_lookups(engine, counters, promoted))
    elapsed = cycles or math.inf  # what takes no time has no rates
    moved = (counters["dram__bytes_read.sum"] + counters["dram__bytes_write.sum"]) / (elapsed / mhz * 1e3)  # GB/s
    peak = gpu.hbm.peak_gb_per_s / engine.sample.fraction
    counters["dram__throughput.avg.pct_of_peak_sustained_elapsed"] = 100.0 * moved / peak
    busy = machine.tensor_counters.busy_cycles
    name = "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active"
    counters[f"{name}.avg.pct_of_peak_sustained_elapsed"] = 100.0 * busy / gpu.num_sms / elapsed
    counters["launch__registers_per_thread"] = launch.registers_per_thread
    counters["launch__waves_per_multiprocessor"] = engine.num_ctas / engine.num_slots
    counters["launch__grid_size"] = engine.num_ctas
    counters["launch__block_size"] = launch.num_threads
    counters["launch__cluster_size"] = launch.cluster_size
    limits = engine.occupancy.limits
    counters["launch__occupancy_limit_registers"] = limits["registers"]
    counters["launch__occupancy_limit_shared_mem"] = limits["smem"]
    counters["launch__occupancy_limit_warps"] = limits["warps"]
    counters["launch__occupancy_limit_blocks"] = limits["ctas"]
    return counters


def _promoted_sectors(engine: Engine, read_bytes: float) -> float:
    """Sectors that L2 reads more because lines come with their neighbours, of ``read_bytes`` that memory gave; all cross.

    Source: kernels/cold_tiles (``counted``), h200_sxm: a quarter of what memory gives to SMs with tiles of their own.
    """
    counted, fraction = engine.machine.l2.counters, engine.gpu.l2.promoted_read_fraction
    if not counted.miss_sectors:
        return 0.0
    return fraction * counted.promoted_sectors / counted.miss_sectors * read_bytes / SECTOR_BYTES


def _lookups(engine: Engine, counters: Mapping[str, float], promoted: float) -> dict[str, float]:
    """What L2 looks up: for SMs on their own side first, and on the other where it lacks a line at home there.

    Half of what is stored is looked up there, too. A store, and a read of a line on its way, is a hit. The counter of
    reductions counts both look-ups. What comes beside the sectors that were asked for is counted as missed by an SM, and is
    in no hit rate; ``promoted`` sectors, of lines with their neighbours, are read, cross and hit. What is looked up besides
    (:func:`looked_up_beside`) hits.
    Source: kernels/cache_hints, l2_residency, half_stores (reductions), promoted_lookups (what comes besides: 1 less the
    misses without it over all look-ups is within 0.1 points of the hit rate in 114 of 120 rows), h200_sxm, 2026-11-22.
    """
    reads = counters["lts__t_sectors_srcunit_tex_op_read.sum"]
    writes = counters["lts__t_sectors_srcunit_tex_op_write.sum"]
    reductions = counters["lts__t_sectors_op_red.sum"]
    writes += counters["lts__t_sectors_op_atom.sum"] + reductions
    planned = engine.traffic.values()
    unplanned = counters["dram__bytes_read.sum"]
    if planned:
        unplanned = engine.machine.l2.counters.unplanned_miss_bytes * engine.scale
    misses = (sum(item.lookup_miss_bytes for item in planned) + unplanned) / SECTOR_BYTES
    unasked = _unasked_fraction(engine) * max(0.0, misses - promoted)
    misses = min(misses - unasked, reads) + unasked
    far_share = 1.0 - 1.0 / engine.gpu.l2.num_partitions
    crossing = sum(item.crossing_bytes for item in planned) / SECTOR_BYTES + far_share * writes + promoted
    crossing += engine.gpu.l2.dirty_crossing_fraction * _left_dirty_sectors(engine, counters)
    crossing_misses = sum(item.crossing_miss_bytes for item in planned) / SECTOR_BYTES
    num_sms = min(round(engine.gpu.num_sms / engine.sample.fraction), engine.num_ctas)  # sums are of all, sampled or not
    others, others_hits = looked_up_beside(engine.gpu.l2, reads + writes, num_sms)
    sectors = reads + writes + crossing + others
    hits = sectors - others + others_hits - (misses - unasked + crossing_misses)
    return {
        "lts__t_sectors_op_red.sum": reductions * (1.0 + far_share),
        "lts__t_sectors_srcunit_tex_lookup_miss.sum": misses,
        "lts__t_sectors_srcunit_tex.sum": reads + writes,
        "lts__t_sectors_srcunit_ltcfabric.sum": crossing,
        "lts__t_sector_hit_rate.pct": min(100.0, 100.0 * hits / sectors) if sectors else 0.0,
    }


def _left_dirty_sectors(engine: Engine, counters: Mapping[str, float]) -> float:
    """What a launch stores and does not write back, where it found L2 empty; none behind another launch."""
    if engine.is_warm:
        return 0.0
    stored = sum(
        float(found.touched_bytes_by_wave.sum())
        for item in engine.launch.footprints if item.access == "write" and (found := engine.traffic.get(item.tensor))
    )  # fmt: skip
    return max(0.0, stored - counters["dram__bytes_write.sum"]) / SECTOR_BYTES


def _unasked_fraction(engine: Engine) -> float:
    """Of what SMs miss in L2, the sectors that come with those that were asked for."""
    block_bytes, scales = engine.gpu.l2.fetch_bytes, engine.uses.fetch_scales
    missed = unasked = 0.0
    for item in engine.launch.footprints:
        found = engine.traffic.get(item.tensor)
        if found is None or not found.lookup_miss_bytes:
            continue
        missed += found.lookup_miss_bytes
        if item.unasked is not None:
            unasked += item.unasked(block_bytes) * found.lookup_miss_bytes
        elif item.tensor in scales:
            unasked += (1.0 - 1.0 / scales[item.tensor]) * found.lookup_miss_bytes
    return unasked / missed if missed else 0.0


def sm_active_cycles(engine: Engine) -> float:
    """Cycles in which an SM held a CTA, on average over the SMs."""
    active = sum(sm.active_cycles * engine.alike.get(sm.idx, 1) for sm in engine.machine.sms)
    return active * engine.scale / engine.gpu.num_sms


def one_after_the_other(first: Result, others: list[Result]) -> Result:
    """The result of several kernels that one call launches: times, energies and sums add up, the rest is the first's."""
    every = [first, *others]
    counters = dict(first.counters)
    for other in others:
        for name, value in other.counters.items():
            if name.endswith(".sum"):
                counters[name] = counters.get(name, 0.0) + value
    cycles, time_us = sum(item.cycles for item in every), sum(item.time_us for item in every)
    counters["sm__cycles_elapsed.max"] = cycles
    shares = ", ".join(f"{item.kernel} {item.cycles:.0f}" for item in every)
    return replace(
        first, simulated_mhz=0.0, ideals=tuple(name for name in IDEALS if any(name in item.ideals for item in every)),
        cycles=cycles, time_us=time_us, tflops=first.tflops * first.time_us / (time_us or math.inf),
        counters=counters, power_w=sum(item.energy_mj for item in every) / (time_us or math.inf) * 1e3,
        num_events=sum(item.num_events for item in every), wall_s=sum(item.wall_s for item in every),
        remarks=(*first.remarks, f"cycles of {len(every)} kernels, one after the other: {shares}"),
    )
