"""Register bank conflicts of compiled FFMAs in a sub-core.

In: a loop's SASS. Out: issue cycles per FFMA. A register lies in one of two banks, by whether its number is even. A bank
gives one register of a warp per cycle. ptxas marks operands ``.reuse``; they are kept and not read again if the next FFMA
has them in the same position. So an FFMA of three registers takes more than its issue cycle, unless neighbouring FFMAs take
less.

Models:

* two banks with one read per cycle each
* reads of an instruction that continue for some cycles while others issue after it

Ignores:

* registers that loads write, or read for their addresses
* that FFMAs of other warps in between may prevent the reuse

Source: kernels/math_rate, h200_sxm, 2026-11-20, whose SASS has one or two chains. FFMA of two odd registers and an even one
takes 2.00 cycles. Alternating with an FFMA of an odd register alone it takes 1.51, and HFMA2 of three takes 1.75 each. This
module computes 2.00, 1.50 and 1.74.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusim.evidence.toolchain.sass import Instruction

NUM_BANKS = 2
WINDOW_CYCLES = 3.0
"""Cycles for which an instruction's reads may continue.

Source: kernels/fma_loops, h200_sxm, 2026-11-23. Math of 16 x 8 sums by two warps per scheduler takes 1.13 cycles per FFMA.
This module computes 1.12; a window of two cycles gives 1.18 and more."""
WARM_INSTRUCTIONS = 64
"""Minimum number of instructions before those that count."""
NUM_DISTANCES = 16
"""Distances between two warps that are tried."""

_REGISTER = re.compile(r"[-|]*R(\d+)")


def file_reads(items: Sequence[Instruction], name: str = "FFMA") -> list[tuple[int, ...]]:
    """Registers that each instruction called ``name`` reads from each bank."""
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
    """Issue cycles per instruction called ``name`` of a loop, mean, with one read per cycle and bank.

    ``num_warps`` of the scheduler alternate; the mean is over their distance in the loop.

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
    """Issue cycles per instruction in a loop iteration that follows others; ``distance``: instructions between warps."""
    num = len(reads)
    order = [reads[(idx + warp * distance) % num] for idx in range(num) for warp in range(num_warps)]
    even = odd = cycle = begin = 0.0  # when a bank is free; named banks and no max(): a million calls
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
