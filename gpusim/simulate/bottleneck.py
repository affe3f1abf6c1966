"""Bottleneck of a kernel, from busy shares and wait states of one run; and the parameters that the prediction uses.

A wait counts in full, although the waiting role's asynchronous MMAs may run meanwhile. A pipeline with barely enough stages
waits for loads most of the time and loses little. The reason of each bottleneck therefore also has the busiest part's share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpusim.machine.exact_math import sum_in_order
from gpusim.simulate.timeline import WarpState

if TYPE_CHECKING:
    from gpusim.simulate.engine_run import Ran

NOTABLE = 0.10
"""Share of the time below which a loss is no bottleneck."""

SATURATED = 0.80
"""Busy share from which on a part counts as the limit."""

BUSY = {
    "tensor": "the tensor cores are", "fma": "the FMA pipe is", "smem": "shared memory is", "issue": "the issue slots are",
    "lsu": "the load/store unit is", "l2": "the L2 slices are", "l2_link": "the link between L2's partitions is",
    "sm_intake": "an SM's port from L2 is",
    "store": "the stores' way to L2 is", "hbm": "HBM is", "tma": "the TMA engine is",
}
"""Parts of the GPU, each as the subject of a sentence."""

WAITS_FOR = {
    "latency": (WarpState.WAIT_MBARRIER, WarpState.WAIT_CP_ASYNC, WarpState.LONG_SCOREBOARD),
    "smem_latency": (WarpState.SHORT_SCOREBOARD,),
    "barrier": (WarpState.WAIT_BARRIER, WarpState.WAIT_CLUSTER),
    "store_latency": (WarpState.WAIT_BULK,),
    "lsu_latency": (WarpState.LSU,),
}
"""Warp states that show the cause of a wait."""

COMPUTES = (WarpState.TENSOR, WarpState.WAIT_WGMMA, WarpState.MATH_PIPE)
"""Warp states that show that a role computes, the most certain one first. Later ones decide ties."""


def busy_shares(ran: Ran) -> dict[str, float]:
    """Share of the kernel's cycles in which each part was busy, averaged over the SMs.

    Only parts that the engine reports are included.
    """
    cycles = ran.end_cycle or 1.0
    total = cycles * ran.gpu.num_sms
    counted = ran.counted
    of_sms = {part: busy / total for part, busy in ran.busy.items()}
    of_link = {} if ran.link_busy_cycles is None else {"l2_link": ran.link_busy_cycles / cycles}
    return {
        "tensor": counted.tensor_core.busy_cycles / total, **of_sms, **of_link,
        "sm_intake": counted.xbar.read_bytes / (ran.gpu.xbar.sm_read_bytes_per_cycle * total),
        "l2": counted.slices_busy_bytes / (ran.shared.slices_bytes_per_cycle * cycles),
        "store": counted.xbar.write_bytes / (ran.shared.write_bytes_per_cycle * cycles),
        "hbm": ran.hbm_share(cycles, *ran.dram_bytes()),
    }


def at_most_all(busy: Mapping[str, float]) -> dict[str, float]:
    """Busy shares, each at most 1.

    >>> at_most_all({"l2": 1.07, "hbm": 0.5})
    {'l2': 1.0, 'hbm': 0.5}
    """
    return {name: min(1.0, share) for name, share in busy.items()}


def bound_by(ran: Ran, busy: dict[str, float]) -> tuple[str, str]:
    """Name of the bottleneck, and a sentence about it.

    The bottleneck is the busiest part if it is near saturation, otherwise the largest loss of time. Losses are: launch,
    start and drain; slots without a CTA; waits of the role that computes; the epilogue.

    The link between the L2 partitions is named where it is near saturation and memory is not. Most lines that cross it come
    from memory, and wait for memory, too.
    """
    part = max(busy, key=lambda name: busy[name])
    if part == "l2_link" and (busy["hbm"] >= SATURATED or busy[part] < SATURATED):
        part = max((name for name in busy if name != "l2_link"), key=lambda name: busy[name])
    share = busy[part]
    leader = f"{BUSY[part]} busy {at_most_all(busy)[part]:.1%} of the time"
    if share >= SATURATED:
        return part, leader
    losses = {"launch": _launch_share(ran), "tail": _empty_slots(ran), "epilogue": _epilogue_share(ran), **_wait_shares(ran)}
    word = max(losses, key=lambda name: losses[name])
    lost = losses[word]
    if lost < NOTABLE:
        return part, f"{leader}, and nothing else stands out"
    return word, f"{_sentence(ran, word, lost)}; {leader}"


def _sentence(ran: Ran, word: str, lost: float) -> str:
    waves = ran.launch.num_tiles / ran.plan.num_slots
    worker = _worker(ran)
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


def _worker(ran: Ran) -> str:
    """Name of the role that computes most."""
    return max(ran.role_totals, key=lambda name: [ran.role_totals[name][state] for state in COMPUTES])


def _launch_share(ran: Ran) -> float:
    spec = ran.gpu.dispatcher
    start = spec.cta_start_cycles + (0.0 if ran.plan.is_warm else spec.cold_start_cycles)
    return (spec.launch_cycles + start + spec.drain_cycles) / (ran.end_cycle or 1.0)


def _empty_slots(ran: Ran) -> float:
    waves = ran.launch.num_tiles / ran.plan.num_slots
    return 1.0 - waves / -(-ran.launch.num_tiles // ran.plan.num_slots)


def _epilogue_share(ran: Ran) -> float:
    """Share of the epilogue in the life of the roles that run it. 0 where roles take turns, which hides it."""
    roles = [role for role in ran.launch.roles if role.name in ran.epilogue_cycles]
    life = sum_in_order(sum_in_order(ran.role_totals[role.name]) for role in roles)
    hides = any(ring.name == "epilogue_turn" for ring in ran.launch.mbarriers)
    return 0.0 if not life or hides else sum_in_order(ran.epilogue_cycles.values()) / life


def _wait_shares(ran: Ran) -> dict[str, float]:
    totals = ran.role_totals[_worker(ran)]
    life = sum_in_order(totals) or 1.0
    return {word: sum_in_order(totals[state] for state in states) / life for word, states in WAITS_FOR.items()}


def sources_used(ran: Ran) -> tuple[dict[str, int], tuple[str, ...]]:
    """Number of parameters by class of source, and names of the guesses, for the parts that this launch used."""
    gpu, launch = ran.gpu, ran.launch
    has_wgmma, has_mma_sync = "wgmma" in ran.instructions, "mma_sync" in ran.instructions
    is_used = {
        "tensor_core": has_wgmma or has_mma_sync, "mbarrier": bool(launch.mbarriers), "dsmem": launch.cluster_size > 1,
        "tma": "tma" in ran.instructions | launch.features,
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
