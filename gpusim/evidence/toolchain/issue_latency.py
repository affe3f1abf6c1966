"""How long a lone warp takes to issue compiled code, in order.

In: a kernel's SASS and a way through it. Out: cycles. What a kernel's own instructions cost between the copies, waits and
products that a program tells of is read so, and told to the model as instructions that wait for one another.

Models: the compiler's own schedule (stalls of the control words), waits for what has no fixed latency, taken branches; of
mma.sync the tensor core's pace, where it is told.
Ignores: other warps of the sub-core; other full pipes; misses of the instruction caches.
Source: the control words as in :mod:`gpusim.evidence.toolchain.sass`; latencies by ``kernels/ring_math``, one warpgroup
that leaves a
group in flight, at even places: least squares over its steps, which the odd ones met within 2 % (when the twin had code
between wgmma behind the wait for room in their queue; not fitted anew since).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpusim.errors import ConfigError
from gpusim.evidence.toolchain.sass import MEMORY, Instruction, KernelSass

MOST_INSTRUCTIONS = 1 << 16
"""Of a way that ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Cycles from issue until a barrier of the warp is free again, by kind; and what some instructions take besides."""

    special_register_cycles: float = 31.2
    constant_cycles: float = 28.9
    copy_operands_cycles: float = 20.8
    """UTMALDG: until its operands are read."""
    barrier_operands_cycles: float = 5.0
    """SYNCS but for a try: until its operands are read."""
    try_wait_cycles: float = 0.0
    """SYNCS.PHASECHK.TRYWAIT of a phase that is complete: the program tells of it."""
    store_operands_cycles: float = 0.0
    """Stores, reductions and copies but UTMALDG: until their operands are read. The program tells of them."""
    other_cycles: float = 20.0
    """Conversions and reciprocals, the multi-function unit. Source: guess."""
    taken_branch_cycles: float = 6.6
    yield_cycles: float = 36.0
    """Source: guess, between two and three times a dependent try; some 40 in Nsight Compute's samples of such loops."""
    mma_interval_cycles: float = 0.0
    """From a HMMA to the next, at least, and then LDSM takes nothing, for the program tells of it; 0: as the compiler has
    both."""
    least_cycles: float = 0.0
    """From an instruction that reads or writes registers of lanes to the next, at least."""
    wide_cycles: float = 0.0
    """From a product of 64 bits (IMAD.WIDE, IMAD.HI) to the next instruction, at least."""

    def of(self, item: Instruction) -> float:
        """Of an instruction with a barrier."""
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
"""Beside another warpgroup's wgmma. Source: ``warp_scheduler.beside_interval_cycles`` and ``mad_wide_beside_cycles``, of
``kernels/turn_taking``, whose divisions take 375 and 633 cycles by this and 373 and 700 to 750 in fact."""
BESIDE_MMA = Latencies(mma_interval_cycles=6.017)
"""Of code around mma.sync of 16-bit types, 32 bytes of k deep. Source: the tensor core's rate, ``kernels/math_rate``."""


def way(
    kernel: KernelSass, begin: int, end: int, takes: Callable[[Instruction], bool]
) -> Iterator[tuple[Instruction, bool]]:
    """Instructions from address ``begin`` until ``end`` comes (again), each with whether it branches away.

    Waits for a phase succeed at once, one lane asks for a copy, warps do not diverge; all other conditional branches are
    ``takes``'.

    Raises:
        ConfigError: no instruction there, or a way that does not end.
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
"""Instructions that use none of the lanes' registers, or hardly; all of those whose names begin with U are such."""


def is_wide(item: Instruction) -> bool:
    """Whether it is a product of 64 bits, which takes turns with wgmma."""
    return item.opcode.startswith(("IMAD.WIDE", "IMAD.HI"))


def has_lanes(item: Instruction) -> bool:
    """Whether an instruction takes a turn of the registers of lanes."""
    return not item.name.startswith("U") and item.name not in WITHOUT_LANES


def issue_cycles(items: Sequence[tuple[Instruction, bool]], latencies: Latencies = LATENCIES) -> float:
    """Cycles from the first instruction's issue until what follows the last can be issued."""
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
    """The way through a turn of ``loop``: loops in it turn ``num_inner`` times, no other branch is taken."""
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
    """Cycles of a loop's turn that its mma.sync do not hide, ldmatrix and waits for it left out."""
    num = sum(item.name == "HMMA" for item, _ in items)
    return loop_cycles(items, latencies) - num * latencies.mma_interval_cycles


def loop_cycles(items: Sequence[tuple[Instruction, bool]], latencies: Latencies = LATENCIES) -> float:
    """The same of a loop's turn, behind another."""
    return issue_cycles([*items, *items], latencies) - issue_cycles(items, latencies)
