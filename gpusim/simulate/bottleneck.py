"""What fills the time of a kernel, and what bounds it: the one answer of all commands, from one run.

In: a finished run. Out: shares of the time, one word, and a sentence about it.

Models:

* The time of a kernel is launch, fill, main loop, exposed epilogue and tail. The largest of them bounds the kernel.
* Within a main loop it is the busiest part, if it is busy at least 80 % of it. Below that it is the longest wait of the
  role that computes.
* The link between the L2 partitions is named where it is near saturation and busier than all else by 10 points. Most lines
  that cross it come from memory, and wait for memory, too.
* A role that waits while MMAs run is not stalled. The part of the main loop in which no MMA runs limits waits and epilogue.

Ignores:

* which waits of other roles a part's idle time has
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpusim.machine.exact_math import sum_in_order
from gpusim.simulate.timeline import WarpState

if TYPE_CHECKING:
    from gpusim.simulate.engine_run import Ran
    from gpusim.simulate.plan import LaunchPlan

NOTABLE = 0.10
"""Share of the main loop below which a wait is no bottleneck, and by which the link between L2's partitions must lead."""

SATURATED = 0.80
"""Busy share of the main loop from which on a part counts as the limit."""

LISTED = 0.005
"""Share of the time below which a sentence leaves it out."""

BUSY = {
    "tensor": "the tensor cores are", "fma": "the FMA pipe is", "smem": "shared memory is", "issue": "the issue slots are",
    "lsu": "the load/store unit is", "l2": "the L2 slices are", "l2_link": "the link between L2's partitions is",
    "sm_intake": "an SM's port from L2 is",
    "store": "the stores' way to L2 is", "hbm": "HBM is", "tma": "the TMA engine is",
}
"""Parts of the GPU, each as the subject of a sentence."""

MATH = ("tensor", "fma")
"""Parts that multiply."""

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

MAIN = "main_loop"
TIMES = {"launch": "launch", "fill": "fill", MAIN: "main loop", "epilogue": "epilogue", "tail": "tail"}
"""Shares of the time in order, with their names in sentences."""

WORK = "work of CTAs"
"""Name of the main loop of a kernel without MMAs: it is all that CTAs do."""

SENTENCES = {
    "launch": "launch, CTA start and drain take {share} of the time",
    "fill": "CTAs wait for their first tiles {share} of the time",
    "epilogue": "the epilogue takes {share} of the time, while no main loop runs",
    "tail": "SMs have no CTA {share} of the time, in {waves} waves",
    "latency": "role '{role}' waits for loads", "smem_latency": "role '{role}' waits for shared memory",
    "barrier": "role '{role}' waits at barriers", "store_latency": "role '{role}' waits for stores",
    "lsu_latency": "role '{role}' waits for the load/store unit or its queue of stores",
    "idle": "{wait}, and {part} idle {idle} of the main loop",
    "life": "{wait} {share} of its life; {part} busy {busy} of the time that CTAs run",
    "loop": "the main loop takes {share} of the time, and {part} busy {busy} of it",
    "run": "CTAs run {share} of the time, and {part} busy {busy} of it",
    "nothing": "{text}, and nothing else stands out",
    "times": "{text}; of the time: {times}",
}
"""Sentences about a bottleneck, by its word and otherwise by what they say."""


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
        "store": counted.xbar.write_bytes / (ran.shared.slices_bytes_per_cycle * cycles),
        "hbm": ran.hbm_share(cycles, *ran.dram_bytes()),
    }


def at_most_all(busy: Mapping[str, float]) -> dict[str, float]:
    """Busy shares, each at most 1.

    >>> at_most_all({"l2": 1.07, "hbm": 0.5})
    {'l2': 1.0, 'hbm': 0.5}
    """
    return {name: min(1.0, share) for name, share in busy.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """What bounds a kernel."""

    bound_by: str
    """One word: a part in :data:`BUSY`, a wait in :data:`WAITS_FOR`, or a share of the time in :data:`TIMES`."""
    reason: str
    """A sentence about it, and what the time is spent on."""
    time_shares: Mapping[str, float] = field(default_factory=dict)
    """Shares of the time by the names in :data:`TIMES`. They add up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Facts on a launch that its run does not change."""

    ends_cycles: float
    """Cycles of launch and drain."""
    start_cycles: float
    """Cycles of the start of the first CTAs."""
    waves: float
    hides_epilogue: bool
    """Whether roles take turns, so that one multiplies in the epilogue of the other."""
    has_main_loop: bool
    """Whether it multiplies tiles: by tensor cores, or by FFMA with its work stated."""

    @classmethod
    def of(cls, plan: LaunchPlan, instructions: Collection[str] = ()) -> Fixed:
        """Facts of a plan. ``instructions``: those of :class:`Ran`, for launches without stated work."""
        spec, launch = plan.gpu.dispatcher, plan.launch
        return cls(
            ends_cycles=spec.launch_cycles + spec.drain_cycles, waves=launch.num_tiles / plan.num_slots,
            start_cycles=spec.cta_start_cycles + (0.0 if plan.is_warm else spec.cold_start_cycles),
            hides_epilogue=any(ring.name == "epilogue_turn" for ring in launch.mbarriers),
            has_main_loop=launch.work is not None or not {"wgmma", "mma_sync"}.isdisjoint(instructions),
        )


def time_shares(ran: Ran, busy: Mapping[str, float]) -> dict[str, float]:
    """Shares of the time by the names in :data:`TIMES`, which add up to 1.

    * ``launch``: launch, the start of the first CTAs, and drain.
    * ``tail``: SMs have no CTA.
    * ``fill``: from a CTA's dispatch to its first MMA, less the start of the first CTAs.
    * ``epilogue``: as far as no MMA can run meanwhile. Roles that take turns hide it.
    * ``main_loop``: the rest, and at least the time in which MMAs run.
    """
    fixed, cycles = Fixed.of(ran.plan, ran.instructions), ran.end_cycle or 1.0
    start, ends = fixed.start_cycles / cycles, fixed.ends_cycles / cycles
    launch = min(1.0, ends + start)
    tail = max(0.0, 1.0 - max(launch, ends + ran.active_cycles / (ran.gpu.num_sms * cycles)))
    runs = 1.0 - launch - tail
    fill = epilogue = 0.0
    if fixed.has_main_loop:
        life = max(sum_in_order(totals) for totals in ran.role_totals.values()) or 1.0
        fill = max(0.0, ran.fill_cycles / life * (runs + start) - start)
        epilogue = 0.0 if fixed.hides_epilogue else _epilogue_share(ran) * runs
        most = max(0.0, runs - max(busy.get(part, 0.0) for part in MATH))
        if fill + epilogue > most:
            fill, epilogue = (share * most / (fill + epilogue) for share in (fill, epilogue))
    return {"launch": launch, "fill": fill, MAIN: runs - fill - epilogue, "epilogue": epilogue, "tail": tail}


def _epilogue_share(ran: Ran) -> float:
    """Share of the epilogue in the life of the roles that run it."""
    life = sum_in_order(sum_in_order(ran.role_totals[name]) for name in ran.epilogue_cycles)
    return sum_in_order(ran.epilogue_cycles.values()) / life if life else 0.0


def bottleneck_of(ran: Ran, busy: Mapping[str, float]) -> Bottleneck:
    """What bounds a kernel. ``gpusim/explore/page/pipeline.js`` has the same rule."""
    times = time_shares(ran, busy)
    fixed = Fixed.of(ran.plan, ran.instructions)
    runs = sum_in_order(times[name] for name in ("fill", MAIN, "epilogue")) or 1.0
    shares = {part: min(1.0, share / ((times[MAIN] if part in MATH else runs) or 1.0)) for part, share in busy.items()}
    word, text = _named(ran, fixed, times, shares)
    names = {**TIMES, **({} if fixed.has_main_loop else {MAIN: WORK})}
    listed = sorted((name for name in TIMES if times[name] >= LISTED), key=lambda name: -times[name])
    words = ", ".join(f"{names[name]} {times[name]:.1%}" for name in listed)
    reason = SENTENCES["times"].format(text=text, times=words)
    return Bottleneck(bound_by=word, reason=reason, time_shares=times)


def _named(ran: Ran, fixed: Fixed, times: Mapping[str, float], shares: Mapping[str, float]) -> tuple[str, str]:
    """Word and first part of the sentence. ``shares``: how busy parts are while CTAs run."""
    most = max((MAIN, *TIMES), key=lambda name: times[name])  # the main loop where two are equal
    if most != MAIN:
        return most, SENTENCES[most].format(share=f"{times[most]:.1%}", waves=f"{fixed.waves:.2f}")
    part = max((name for name in shares if name != "l2_link"), key=lambda name: shares[name])
    if shares.get("l2_link", 0.0) >= max(SATURATED, shares[part] + NOTABLE):
        part = "l2_link"
    leader = SENTENCES["loop" if fixed.has_main_loop else "run"].format(
        part=BUSY[part], busy=f"{shares[part]:.1%}", share=f"{times[MAIN]:.1%}"
    )
    if shares[part] >= SATURATED:
        return part, leader
    worker = max(ran.role_totals, key=lambda name: [ran.role_totals[name][state] for state in COMPUTES])
    totals = ran.role_totals[worker]
    life = sum_in_order(totals) or 1.0
    waits = {name: sum_in_order(totals[state] for state in states) / life for name, states in WAITS_FOR.items()}
    word = max(waits, key=lambda name: waits[name])
    math = max(MATH, key=lambda name: shares.get(name, 0.0))
    idle = 1.0 - shares.get(math, 0.0)
    if min(waits[word], idle) < NOTABLE:
        return part, SENTENCES["nothing"].format(text=leader)
    wait = SENTENCES[word].format(role=worker)
    if fixed.has_main_loop:
        return word, SENTENCES["idle"].format(wait=wait, part=BUSY[math], idle=f"{idle:.1%}")
    return word, SENTENCES["life"].format(
        wait=wait, share=f"{waits[word]:.1%}", part=BUSY[part], busy=f"{shares[part]:.1%}"
    )


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
