"""What bounds a kernel, from busy shares and wait states of the one run; and which parameters it rests on.

A wait counts whole, though asynchronous products of the role that waits may run meanwhile: a ring at its knee waits for
loads most of its life and loses little by it. The busiest part's share, which each sentence has, says what can be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpusim.simulate.timeline import WarpState

if TYPE_CHECKING:
    from gpusim.simulate.engine import Engine

NOTABLE = 0.10
"""A loss below this share is not what bounds a kernel."""

SATURATED = 0.80
"""From this busy share on a part counts as the limit."""

BUSY = {
    "tensor": "the tensor cores are", "fma": "the FMA pipe is", "smem": "shared memory is", "issue": "the issue slots are",
    "lsu": "the load/store unit is", "l2": "the L2 slices are", "l2_link": "the link between L2's sides is",
    "sm_intake": "an SM's port from L2 is",
    "store": "the stores' way to L2 is", "hbm": "HBM is", "tma": "the TMA engine is",
}
"""Each part as the subject of a sentence."""

WAITS_FOR = {
    "latency": (WarpState.WAIT_MBARRIER, WarpState.WAIT_CP_ASYNC, WarpState.LONG_SCOREBOARD),
    "smem_latency": (WarpState.SHORT_SCOREBOARD,),
    "barrier": (WarpState.WAIT_BARRIER, WarpState.WAIT_CLUSTER),
    "store_latency": (WarpState.WAIT_BULK,),
    "lsu_latency": (WarpState.LSU,),
}
"""States of a role that show what it waits for."""

COMPUTES = (WarpState.TENSOR, WarpState.WAIT_WGMMA, WarpState.MATH_PIPE)
"""States that show that a role computes, the surest first; the others decide where that is equal."""


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
        "lsu": sum(sm.l1.unit.busy_cycles for sm in sms) / total,
        "tma": sum(sm.tma.engine.busy_cycles for sm in sms if sm.tma is not None) / total,
        "sm_intake": xbar.counters.read_bytes / (xbar.spec.sm_read_bytes_per_cycle * total),
        "l2": xbar.busy_bytes / (xbar.slices_bytes_per_cycle * cycles),
        "l2_link": _link_share(engine, cycles),
        "store": xbar.counters.write_bytes / (xbar.stores.total * cycles),
        "hbm": machine.hbm.busy_share(cycles, *(num_bytes * engine.sample.fraction for num_bytes in engine.dram_bytes())),
    }
    return shares


def at_most_all(busy: Mapping[str, float]) -> dict[str, float]:
    """The same shares, none above the whole: steps that stand for others, and samples, add a few percent to full parts.

    >>> at_most_all({"l2": 1.07, "hbm": 0.5})
    {'l2': 1.0, 'hbm': 0.5}
    """
    return {name: min(1.0, share) for name, share in busy.items()}


def _link_share(engine: Engine, cycles: float) -> float:
    """Of the busier link between L2's sides; where steps were skipped no more than what crosses in all, by footprints.

    A step that stands for skipped ones asks for lines that these would have brought across before, so that its crossings
    count too often then. What footprints tell leaves out what stores cost reads on a link, and lines that come beside: of
    products of 2048, 4096 and 6144 cubed (h200_sxm, step by step) the link was busy for 38, 18 and 9 % longer.
    """
    l2 = engine.machine.l2
    share = l2.link_busy_cycles / cycles
    planned, rate = engine.traffic.values(), l2.links_bytes_per_cycle
    if not engine.timeline.skips or not planned or not rate:
        return share
    stored = (1.0 - 1.0 / engine.gpu.l2.num_partitions) * engine.machine.xbar.counters.write_bytes * engine.scale
    crossing = sum(item.crossing_bytes for item in planned) + stored
    return min(share, crossing * engine.sample.fraction / (rate * cycles))


def bound_by(engine: Engine, busy: dict[str, float]) -> tuple[str, str]:
    """(word, sentence): the busiest part if it is near saturation, else what most of the time is lost to.

    The link between L2's sides is named where it is near saturation and memory is not: most lines that cross it come from
    there, and wait for it, too.
    What can be lost: launch, start and drain; slots without a CTA; what the role that computes waits for; the epilogue.
    """
    part = max(busy, key=lambda name: busy[name])
    if part == "l2_link" and (busy["hbm"] >= SATURATED or busy[part] < SATURATED):
        part = max((name for name in busy if name != "l2_link"), key=lambda name: busy[name])
    share = busy[part]
    leader = f"{BUSY[part]} busy {at_most_all(busy)[part]:.1%} of the time"
    if share >= SATURATED:
        return part, leader
    losses = {
        "launch": _launch_share(engine), "tail": _empty_slots(engine), "epilogue": _epilogue_share(engine),
        **_wait_shares(engine),
    }
    word = max(losses, key=lambda name: losses[name])
    lost = losses[word]
    if lost < NOTABLE:
        return part, f"{leader}, and nothing else stands out"
    return word, f"{_sentence(engine, word, lost)}; {leader}"


def _sentence(engine: Engine, word: str, lost: float) -> str:
    waves = engine.launch.num_tiles / engine.num_slots
    worker = _worker(engine)
    if word == "tail" and waves < 1.0:
        return f"the grid fills only {waves:.1%} of the slots"
    return {
        "launch": f"launch, CTA start and drain take {lost:.1%} of the cycles",
        "tail": f"the last of {waves:.2f} waves leaves {lost:.1%} of all slots' time empty",
        "epilogue": f"the epilogue takes {lost:.1%} of the life of role {worker!r}",
        "latency": f"role {worker!r} waits for loads {lost:.1%} of its life",
        "smem_latency": f"role {worker!r} waits for shared memory {lost:.1%} of its life",
        "barrier": f"role {worker!r} waits at barriers {lost:.1%} of its life",
        "store_latency": f"role {worker!r} waits for stores {lost:.1%} of its life",
        "lsu_latency": f"role {worker!r} waits for the load/store unit or its queue of stores {lost:.1%} of its life",
    }[word]


def _worker(engine: Engine) -> str:
    """The role that computes most."""
    return max(engine.role_totals, key=lambda name: [engine.role_totals[name][state] for state in COMPUTES])


def _launch_share(engine: Engine) -> float:
    spec = engine.gpu.dispatcher
    start = spec.cta_start_cycles + engine.cold_start_cycles
    return (spec.launch_cycles + start + spec.drain_cycles) / (engine.end_cycle or 1.0)


def _empty_slots(engine: Engine) -> float:
    waves = engine.launch.num_tiles / engine.num_slots
    return 1.0 - waves / -(-engine.launch.num_tiles // engine.num_slots)


def _epilogue_share(engine: Engine) -> float:
    """The epilogue's part of the life of the roles that run it; none where roles take turns and so hide it."""
    roles = [role for role in engine.launch.roles if role.name in engine.epilogue_cycles]
    life = sum(sum(engine.role_totals[role.name]) for role in roles)
    hides = any(ring.name == "epilogue_turn" for ring in engine.launch.mbarriers)
    return 0.0 if not life or hides else sum(engine.epilogue_cycles.values()) / life


def _wait_shares(engine: Engine) -> dict[str, float]:
    totals = engine.role_totals[_worker(engine)]
    life = sum(totals) or 1.0
    return {word: sum(totals[state] for state in states) / life for word, states in WAITS_FOR.items()}


def sources_used(engine: Engine) -> tuple[dict[str, int], tuple[str, ...]]:
    """(count of parameters by class of source, names of the guesses) of the parts that this launch used."""
    gpu, launch = engine.gpu, engine.launch
    has_wgmma, has_mma_sync = bool(engine.op_costs.wgmma), bool(engine.op_costs.mma_sync)
    is_used = {
        "tensor_core": has_wgmma or has_mma_sync, "mbarrier": bool(launch.mbarriers), "dsmem": launch.cluster_size > 1,
        "tma": bool(engine.op_costs.tma) or "tma" in launch.features,
    }
    counts = dict.fromkeys(("measured", "published", "inferred", "guess"), 0)
    guesses: list[str] = []
    for parameter in gpu.parameters():
        names = parameter.split(".")
        if not is_used.get(names[0], True):
            continue
        is_by_class = len(names) == 3 and names[1].endswith(("_flops_per_cycle", "_per_flop", "tflops"))
        if is_by_class and names[2] != launch.math_class:
            continue
        if names[0] == "tensor_core" and names[1].startswith("wgmma") and not has_wgmma:
            continue
        if names[0] == "tensor_core" and names[1].startswith("mma_sync") and not has_mma_sync:
            continue
        kind = gpu.source_class(parameter)
        counts[kind] = counts.get(kind, 0) + 1
        if kind == "guess":
            guesses.append(parameter)
    return counts, tuple(guesses)
