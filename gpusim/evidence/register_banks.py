"""What compiled FFMAs take of a sub-core's register banks.

In: a loop's SASS. Out: cycles an FFMA. A register lies in one of two banks, by whether its number is even, and a bank gives one
register of a warp a cycle; what ptxas has marked ``.reuse`` is kept where the next FFMA wants it as the same operand, and is
read no more. So an FFMA of three registers takes more than its turn, unless others beside it take less.

Models: two banks, a read each a cycle; an instruction's reads may go on for some cycles while others issue behind it.
Ignores: what loads write, and read for their addresses; other warps' FFMAs between, behind which nothing is kept.
Source: kernels/math_rate, h200_sxm, 2026-11-20, whose SASS has one or two chains: FFMA of two odd registers and an even one takes
2.00 cycles, by turns with one of an odd register alone 1.51, HFMA2 of three each 1.75; this says 2.00, 1.50 and 1.75.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusim.evidence.sass import Instruction

NUM_BANKS = 2
WINDOW_CYCLES = 2.0
"""For how long an instruction's reads may go on. Source: the same HFMA2, which take 2.75 by 1 and 1.74 by 3."""

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


def cycles_each(items: Sequence[Instruction], name: str = "FFMA") -> float:
    """Cycles from one instruction called ``name`` of a loop to the next, as far as the banks have them wait.

    >>> of = lambda operands: Instruction(0, "", "FFMA", operands)
    >>> cycles_each([of("R15, R7, R15, R2")]), cycles_each([of("R13, R7.reuse, R13, R2.reuse"), of("R15, R7, R15, R2")])
    (2.0, 1.5)
    """
    reads = file_reads(items, name)
    if not reads:
        return 1.0
    free, cycle, begin = [0.0] * NUM_BANKS, 0.0, 0.0
    for _ in range(2):  # a turn of the loop behind another
        begin = cycle
        for wanted in reads:
            late = max(
                (max(at, cycle) + num - cycle - WINDOW_CYCLES for at, num in zip(free, wanted, strict=True) if num),
                default=0.0,
            )
            cycle += max(0.0, late)
            free = [max(at, cycle) + num if num else at for at, num in zip(free, wanted, strict=True)]
            cycle += 1.0
    return (cycle - begin) / len(reads)
