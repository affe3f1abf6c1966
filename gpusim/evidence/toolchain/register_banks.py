"""What compiled FFMAs take of a sub-core's register banks.

In: a loop's SASS. Out: turns an FFMA. A register lies in one of two banks, by whether its number is even, and a bank gives
one register of a warp a cycle; what ptxas has marked ``.reuse`` is kept where the next FFMA wants it as the same operand,
and is read no more. So an FFMA of three registers takes more than its turn, unless others beside it take less.

Models: two banks, a read each a cycle; an instruction's reads may go on for some cycles while others issue behind it.
Ignores: what loads write, and read for their addresses; that nothing might be kept behind other warps' FFMAs.
Source: kernels/math_rate, h200_sxm, 2026-11-20, whose SASS has one or two chains: FFMA of two odd registers and an even one
takes 2.00 cycles, by turns with one of an odd register alone 1.51, HFMA2 of three each 1.75; this says 2.00, 1.50 and 1.74.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusim.evidence.toolchain.sass import Instruction

NUM_BANKS = 2
WINDOW_CYCLES = 3.0
"""For how long an instruction's reads may go on. Source: kernels/fma_loops, h200_sxm, 2026-11-23: math of 16 x 8 sums by two
warps a scheduler takes 1.13 turns; this says 1.12, a window of two cycles 1.18 and more."""
WARM_INSTRUCTIONS = 64
"""Before those that count, at least."""
NUM_DISTANCES = 16
"""Between two warps, that are tried."""

_REGISTER = re.compile(r"[-|]*R(\d+)")


def file_reads(items: Sequence[Instruction], name: str = "FFMA") -> list[tuple[int, ...]]:
    """Registers that each instruction called ``name`` wants of each bank."""
    kept: dict[int, int] = {}
    found = []
    for item in items:
        if item.name != name:
            continue
        wanted, keeps = set(), {}
        for position, operand in enumerate(item.operands.split(",")[1:4]):
            match = _REGISTER.match(operand.strip())
            if match is None:
                continue
            register = int(match[1])
            if ".reuse" in operand:
                keeps[position] = register
            if kept.get(position) != register:
                wanted.add(register)
        kept = keeps
        found.append(tuple(sum(register % NUM_BANKS == bank for register in wanted) for bank in range(NUM_BANKS)))
    return found


def bank_reads(items: Sequence[Instruction], name: str = "FFMA", *, num_warps: int = 1) -> float:
    """What an instruction called ``name`` of a loop takes of its scheduler's turns, on the mean, a read a cycle and bank.

    ``num_warps`` of the scheduler, which take turns: the mean over how far they are apart in the loop.

    >>> of = lambda operands: Instruction(0, "", "FFMA", operands)
    >>> bank_reads([of("R15, R7, R15, R2")]), bank_reads([of("R13, R7.reuse, R13, R2.reuse"), of("R15, R7, R15, R2")])
    (2.0, 1.5)
    """
    reads = file_reads(items, name)
    if not reads:
        return 1.0
    distances = range(0, len(reads), max(1, len(reads) // NUM_DISTANCES)) if num_warps > 1 else (0,)
    return sum(_turns(reads, num_warps, distance) for distance in distances) / len(distances)


def _turns(reads: Sequence[tuple[int, ...]], num_warps: int, distance: int) -> float:
    """Of an instruction in a turn of a loop behind others, by warps so many instructions one behind the other."""
    num = len(reads)
    order = [reads[(idx + warp * distance) % num] for idx in range(num) for warp in range(num_warps)]
    even = odd = cycle = begin = 0.0  # when a bank is free; banks by name and no max(), since this is done a million times
    for _ in range(1 + -(-WARM_INSTRUCTIONS // num)):
        begin = cycle
        for of_even, of_odd in order:
            late = 0.0
            if of_even:
                wait = (even if even > cycle else cycle) + of_even - cycle - WINDOW_CYCLES
                if wait > late:
                    late = wait
            if of_odd:
                wait = (odd if odd > cycle else cycle) + of_odd - cycle - WINDOW_CYCLES
                if wait > late:
                    late = wait
            cycle += late
            if of_even:
                even = (even if even > cycle else cycle) + of_even
            if of_odd:
                odd = (odd if odd > cycle else cycle) + of_odd
            cycle += 1.0
    return (cycle - begin) / (num * num_warps)
