"""What bounds a kernel, from busy shares and wait states of the one run; and which parameters it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusim.simulate.timeline import WarpState
from gpusim.units import SECTOR_BYTES

if TYPE_CHECKING:
    from gpusim.simulate.run import Engine

SATURATED = 0.80
"""From this busy share on a part counts as the limit."""

NAMES = {
    "tensor": "the tensor cores", "fma": "the FMA pipe", "smem": "shared memory", "issue": "issue slots",
    "lsu": "the load/store unit", "l2": "the L2 slices", "sm_intake": "what one SM takes in from L2",
    "store": "stores to L2", "hbm": "HBM", "tma": "the TMA engine",
}


def busy_shares(engine: Engine) -> dict[str, float]:
    """Share of the kernel's cycles in which each part was busy, averaged over the SMs."""
    machine = engine.machine
    cycles = engine.end_cycle or 1.0
    sms = machine.sms
    total = cycles * len(sms)
    xbar = machine.xbar
    shares = {
        "tensor": machine.tensor_counters.busy_cycles / total,
        "fma": sum(sm.warp_scheduler.fma_pipe.busy_cycles for sm in sms) / total,
        "issue": sum(sm.warp_scheduler.issue_slots.busy_cycles for sm in sms) / total,
        "smem": sum(sm.smem.data.busy_cycles for sm in sms) / total,
        "lsu": sum(sm.l1.tags.busy_cycles for sm in sms) / total,
        "tma": sum(sm.tma.engine.busy_cycles for sm in sms if sm.tma is not None) / total,
        "sm_intake": xbar.counters.read_bytes / (xbar.spec.sm_read_bytes_per_cycle * total),
        "l2": machine.l2.counters.read_sectors * SECTOR_BYTES / (xbar.slices.total * cycles),
        "store": xbar.counters.write_bytes / (xbar.stores.total * cycles),
        "hbm": machine.hbm.busy_share(cycles),
    }
    return shares


def bound_by(engine: Engine, busy: dict[str, float]) -> tuple[str, str]:
    """(word, sentence): the busiest part if it is near saturation, else what the workers wait for."""
    part = max(busy, key=lambda name: busy[name])
    share = busy[part]
    if share >= SATURATED:
        return part, f"{NAMES[part]} are busy {share:.0%} of the time" if part in ("tensor", "issue", "l2", "store") else (
            f"{NAMES[part]} is busy {share:.0%} of the time"
        )
    spec = engine.gpu.dispatcher
    cycles = engine.end_cycle
    overhead = spec.launch_cycles + spec.cta_start_cycles + spec.drain_cycles
    if overhead > 0.5 * cycles:
        return "launch", f"launch, CTA start and drain take {overhead / cycles:.0%} of {cycles:.0f} cycles"
    waves = engine.launch.num_tiles / engine.num_slots
    lost = 1.0 - waves / -(-engine.launch.num_tiles // engine.num_slots)
    worker = max(engine.role_totals, key=lambda name: engine.role_totals[name][WarpState.TENSOR])
    totals = engine.role_totals[worker]
    life = sum(totals) or 1.0
    waits = {
        "latency": totals[WarpState.WAIT_MBARRIER] + totals[WarpState.WAIT_CP_ASYNC]
        + totals[WarpState.LONG_SCOREBOARD],
        "smem_latency": totals[WarpState.SHORT_SCOREBOARD],
        "barrier": totals[WarpState.WAIT_BARRIER] + totals[WarpState.WAIT_CLUSTER],
        "epilogue": engine.section_cycles.get("epilogue", 0.0) / max(
            1, sum(1 for role in engine.launch.roles if role.num_warps >= 4)
        ),
    }
    word = max(waits, key=lambda name: waits[name])
    fraction = waits[word] / life
    if lost > fraction and lost > 1.0 - share - 0.5:
        return "tail", f"the last wave is {waves % 1:.0%} full, so {lost:.0%} of the slots' time is lost"
    sentences = {
        "latency": f"role {worker!r} waits for loads {fraction:.0%} of its life; {NAMES[part]} come next at {share:.0%}",
        "smem_latency": f"role {worker!r} waits for shared memory {fraction:.0%} of its life",
        "barrier": f"role {worker!r} waits at barriers {fraction:.0%} of its life",
        "epilogue": f"the epilogue takes {fraction:.0%} of the life of {worker!r}; {NAMES[part]} are busy {share:.0%}",
    }
    if fraction < 0.1:
        return part, f"{NAMES[part]} lead with {share:.0%} busy; nothing else stands out"
    return word, sentences[word]


def sources_used(engine: Engine) -> tuple[dict[str, int], tuple[str, ...]]:
    """(count of parameters by class of source, names of the guesses) of the parts that this launch used."""
    gpu, launch = engine.gpu, engine.launch
    features = launch.features
    parts = {"device", "hbm", "l2", "xbar", "l1", "smem", "register_file", "warp_scheduler", "dispatcher", "clock"}
    if features & {"wgmma", "mma_sync"}:
        parts.add("tensor_core")
    parts.update(name for name in ("tma", "mbarrier") if name in features)
    if "cluster" in features:
        parts.add("dsmem")
    counts = dict.fromkeys(("measured", "published", "inferred", "guess"), 0)
    guesses: list[str] = []
    for parameter in gpu.parameters():
        names = parameter.split(".")
        if names[0] not in parts:
            continue
        if len(names) == 3 and names[1].endswith(("_flops_per_cycle", "_per_flop", "tflops")) and names[2] != launch.math_class:
            continue
        if names[0] == "tensor_core" and names[1].startswith("wgmma") and "wgmma" not in features:
            continue
        if names[0] == "tensor_core" and names[1].startswith("mma_sync") and "mma_sync" not in features:
            continue
        kind = gpu.source_class(parameter)
        counts[kind] = counts.get(kind, 0) + 1
        if kind == "guess":
            guesses.append(parameter)
    return counts, tuple(guesses)
