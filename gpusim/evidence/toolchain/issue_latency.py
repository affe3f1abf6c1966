"""Issue time of SASS: cycles that a single warp takes to issue compiled code in order.

In: a kernel's SASS and a path through it. Out: cycles. This measures the instructions that a kernel executes between the
copies, waits and MMAs of its model. The model gets them as instructions that depend on each other.

Models:

* the compiler's schedule: stall counts of the control words
* scoreboard waits for instructions without a fixed latency
* taken branches
* the tensor core's rate for mma.sync, if ``mma_interval_cycles`` is given

Ignores:

* other warps of the sub-core
* other full pipes
* instruction cache misses

Source: control words as in :mod:`gpusim.evidence.toolchain.sass`. Latencies come from ``kernels/ring_math``, one warpgroup
that leaves a group in flight: least squares over the steps of configs at even positions. Those at odd positions met the fit
within 2 %. That was when the microbenchmark's model had code between wgmma, after the wait for space in their queue. It was
not fitted again since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpusim.errors import ConfigError
from gpusim.evidence.toolchain.sass import MEMORY, Instruction, KernelSass

MOST_INSTRUCTIONS = 1 << 16
"""Instructions after which a path counts as endless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Cycles from issue until a scoreboard of the warp is free again, by kind, and extra cycles of some instructions."""

    special_register_cycles: float = 31.2
    constant_cycles: float = 28.9
    copy_operands_cycles: float = 20.8
    """Cycles until UTMALDG has read its operands."""
    barrier_operands_cycles: float = 5.0
    """Cycles until SYNCS has read its operands; tries of a wait are excluded."""
    try_wait_cycles: float = 0.0
    """Cycles of SYNCS.PHASECHK.TRYWAIT on a complete phase. The program models this wait itself."""
    store_operands_cycles: float = 0.0
    """Cycles until stores, reductions and copies other than UTMALDG have read their operands. The program models these."""
    other_cycles: float = 20.0
    """Cycles of conversions and reciprocals in the multi-function unit. Source: guess."""
    taken_branch_cycles: float = 6.6
    yield_cycles: float = 36.0
    """Cycles of YIELD. Source: guess, between two and three times a dependent try.

    Samples of such loops in Nsight Compute show some 40."""
    mma_interval_cycles: float = 0.0
    """Minimum cycles from one HMMA to the next; 0: the compiler's schedule decides.

    If it is given, LDSM takes no cycles, because the program models it."""
    least_cycles: float = 0.0
    """Minimum cycles from an instruction that uses per-lane registers to the next instruction."""
    wide_cycles: float = 0.0
    """Minimum cycles from a 64-bit multiply (IMAD.WIDE, IMAD.HI) to the next instruction."""

    def of(self, item: Instruction) -> float:
        """Cycles until the scoreboard of ``item`` is free."""
        if item.name in ("S2R", "S2UR"):
            return self.special_register_cycles
        if item.name == "LDC":
            return self.constant_cycles
        if item.name == "UTMALDG":
            return self.copy_operands_cycles
        if item.name == "SYNCS":
            return self.try_wait_cycles if "PHASECHK" in item.opcode else self.barrier_operands_cycles
        return self.store_operands_cycles if item.name in MEMORY else self.other_cycles


LATENCIES = Latencies()
BESIDE_WGMMA = Latencies(least_cycles=4.0, wide_cycles=25.39)
"""Latencies while another warpgroup's wgmma runs.

Source: ``warp_scheduler.math_interval_during_wgmma_cycles`` and ``imad_wide_during_wgmma_cycles``, from
``kernels/turn_taking``. Its divisions take 375 and 633 cycles with these latencies, and were
measured at 373 and 700 to 750."""
BESIDE_MMA = Latencies(mma_interval_cycles=6.017)
"""Latencies of code around mma.sync of 16-bit types whose k extent is 32 bytes.

Source: the tensor core's rate, ``kernels/math_rate``."""


def way(
    kernel: KernelSass, begin: int, end: int, takes: Callable[[Instruction], bool]
) -> Iterator[tuple[Instruction, bool]]:
    """Instructions from address ``begin`` until ``end`` is reached (again), each with whether its branch is taken.

    Waits for a phase succeed at once. One lane issues a copy. Warps do not diverge. ``takes`` decides all other conditional
    branches.

    Raises:
        ConfigError: there is no instruction at ``begin``, or the path does not end.
    """
    at = {item.address: idx for idx, item in enumerate(kernel.instructions)}
    if begin not in at:
        raise ConfigError(f"SASS: {kernel.name} has no instruction at 0x{begin:x}, wants where a way begins")
    idx, tried = at[begin], False
    for num in range(MOST_INSTRUCTIONS):
        if idx >= len(kernel.instructions):
            break
        item = kernel.instructions[idx]
        if num and item.address == end:
            return
        is_taken = False
        if item.name == "BRA" and item.branch_target is not None and "." not in item.opcode:
            is_taken = not item.predicate or tried or takes(item)
            tried = False
        tried = tried or "PHASECHK" in item.opcode
        yield item, is_taken
        if is_taken and item.branch_target == end:
            return
        idx = at[item.branch_target] if is_taken and item.branch_target is not None else idx + 1
    raise ConfigError(f"SASS: {kernel.name}: the way from 0x{begin:x} never comes to 0x{end:x}")


WITHOUT_LANES = ("BRA", "BSSY", "BSYNC", "WARPSYNC", "WARPGROUP", "DEPBAR", "BAR", "NOP", "R2UR", "S2UR", "VOTEU", "SYNCS")
"""Instructions that use no per-lane registers, or hardly any. All instructions whose names begin with U belong here too."""


def is_wide(item: Instruction) -> bool:
    """Whether the instruction is a 64-bit multiply, which does not overlap with wgmma."""
    return item.opcode.startswith(("IMAD.WIDE", "IMAD.HI"))


def has_lanes(item: Instruction) -> bool:
    """Whether the instruction uses per-lane registers."""
    return not item.name.startswith("U") and item.name not in WITHOUT_LANES


def issue_cycles(items: Sequence[tuple[Instruction, bool]], latencies: Latencies = LATENCIES) -> float:
    """Cycles from the issue of the first instruction until the instruction after the last can issue."""
    cycle, free, math_free = 0.0, dict.fromkeys(range(6), 0.0), 0.0
    for item, is_taken in items:
        cycle = max([cycle, *(free[barrier] for barrier in item.waits_for)])
        if item.name == "YIELD":
            cycle += latencies.yield_cycles
        ready = cycle + latencies.of(item)
        if item.name == "HMMA":
            cycle = max(cycle, math_free)
            math_free = cycle + latencies.mma_interval_cycles
        for barrier in (item.write_barrier, item.read_barrier):
            if barrier is not None:
                free[barrier] = max(free[barrier], ready)
        if item.name == "LDSM" and latencies.mma_interval_cycles:
            continue
        stall = max(1.0, item.stall_cycles)
        if stall < latencies.least_cycles and has_lanes(item):
            stall = latencies.least_cycles
        if stall < latencies.wide_cycles and is_wide(item):
            stall = latencies.wide_cycles
        cycle += stall + (latencies.taken_branch_cycles if is_taken else 0.0)
    return cycle


def turn(kernel: KernelSass, loop: KernelSass, num_inner: int = 1) -> list[tuple[Instruction, bool]]:
    """Path through one iteration of ``loop``. Inner loops run ``num_inner`` times, and no other branch is taken."""
    begin, end = loop.instructions[0].address, loop.instructions[-1].address
    left = {
        other.instructions[-1].address: num_inner - 1 for other in kernel.loops
        if begin <= other.instructions[0].address and other.instructions[-1].address < end
    }  # fmt: skip

    def takes(item: Instruction) -> bool:
        if item.address in left:
            left[item.address] -= 1
            return left[item.address] >= 0
        return item.address == end

    return list(way(kernel, begin, begin, takes))


def beyond_math(items: Sequence[tuple[Instruction, bool]], latencies: Latencies) -> float:
    """Cycles of a loop iteration that its mma.sync do not hide, without ldmatrix and the waits for it."""
    num = sum(item.name == "HMMA" for item, _ in items)
    return loop_cycles(items, latencies) - num * latencies.mma_interval_cycles


def loop_cycles(items: Sequence[tuple[Instruction, bool]], latencies: Latencies = LATENCIES) -> float:
    """Cycles of one loop iteration that follows another iteration."""
    return issue_cycles([*items, *items], latencies) - issue_cycles(items, latencies)
