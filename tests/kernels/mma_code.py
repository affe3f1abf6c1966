"""What loops of mma.sync and of fma take in their own instructions, read off SASS."""

from __future__ import annotations

import re

from gpusim.evidence.toolchain.issue_latency import BESIDE_MMA, beyond_math, issue_cycles, loop_cycles, turn, way
from gpusim.evidence.toolchain.sass import KernelSass

AT_ONCE = 8
"""Vectors of D that a thread of hgemm reads before it stores them."""


def k_loop(kernel: KernelSass, *, is_single: bool) -> KernelSass:
    """The loop over k-steps: around that over slices where fragments are single."""
    return loops_with(kernel, "HMMA")[1 if is_single else 0]


def loops_with(kernel: KernelSass, opcode: str) -> list[KernelSass]:
    """Those with such an instruction, inner ones first."""
    return sorted((loop for loop in kernel.loops if loop.select(opcode)), key=lambda loop: len(loop.instructions))


def step_code(kernel: KernelSass, num_slices: int, *, is_single: bool) -> float:
    """Cycles of a k-step that math does not hide; fragments are told of by themselves."""
    items = turn(kernel, k_loop(kernel, is_single=is_single), num_slices if is_single else 1)
    return beyond_math(items, BESIDE_MMA)


def math_places(kernel: KernelSass, num_slices: int) -> tuple[float | None, float | None, float | None]:
    """Slices of a turn's mma.sync before its copies (mean), its barrier, the first use of what is read behind the copies.

    None for what it has none of.
    """
    loop = k_loop(kernel, is_single=False)
    each = len(loop.select("HMMA")) / num_slices
    copies, left, late = [], len(loop.select("LDGSTS")), set()
    num_math, meeting, use = 0, None, None
    for item in loop.instructions:
        if item.name == "HMMA":
            _, a, b, _ = (int(found) for found in re.findall(r"\bR(\d+)", item.operands))
            if use is None and late & {a, a + 1, a + 2, a + 3, b, b + 1}:
                use = num_math / each
            num_math += 1
        elif item.name == "LDGSTS":
            copies.append(num_math / each)
            left -= 1
        elif item.name == "LDSM" and not left:
            first = int(re.findall(r"\bR(\d+)", item.operands)[0])
            late |= {first, first + 1, first + 2, first + 3}
        elif item.name == "BAR":
            meeting = num_math / each
    return sum(copies) / len(copies) if copies else None, meeting, use if copies else None


HELD_WITHIN = 12
"""Instructions of fragments and math behind a step's copies, before which a warp waits for these if it does at all."""


def is_held(kernel: KernelSass, num_slices: int, *, is_single: bool) -> bool:
    """Whether a step's warps wait until the addresses of its last copies have been read before they read and multiply on."""
    items = [item for item, _ in turn(kernel, k_loop(kernel, is_single=is_single), num_slices if is_single else 1)]
    pending: set[int] = set()
    since = 0
    for item in [*items, *items]:
        if pending & item.waits_for and item.name != "BRA":
            return since <= HELD_WITHIN
        if item.name == "LDGSTS":
            pending, since = ({item.read_barrier} if item.read_barrier is not None else pending), 0
        elif pending and item.name in ("HMMA", "LDSM"):
            since += 1
    return False


def code_around(kernel: KernelSass, num_slices: int, num_vectors: int, *, is_single: bool) -> tuple[float, float, float]:
    """Cycles of hgemm before its k-loop; behind it to the end from fragments; the same through shared memory."""
    loop = k_loop(kernel, is_single=is_single)
    begin, end = loop.instructions[0].address, loop.instructions[-1].address
    pairs = list(zip(kernel.instructions, kernel.instructions[1:], strict=False))
    jumps = [(item, to) for item, to in pairs if item.name == "BRA" and not item.predicate]
    past = {to.address for item, to in jumps if (item.branch_target or 0) > end}
    leaving = {
        item.address for item, to in pairs
        if to.name == "BRA" and not to.predicate and to.branch_target is not None and to.branch_target < to.address
    }  # fmt: skip
    behind = [item for item in kernel.instructions if item.address > end]
    parting = next(item for item in behind if item.predicate and (item.branch_target or 0) > item.address)
    assert parting.branch_target is not None
    before = way(kernel, kernel.instructions[0].address, begin, lambda item: item.branch_target in past)
    direct = way(kernel, behind[0].address, kernel.instructions[-1].address, lambda item: item is parting)
    staged = way(kernel, behind[0].address, parting.branch_target, lambda item: item.address in leaving)
    more = sum(
        (num_vectors // AT_ONCE - 1) * loop_cycles(turn(kernel, other)) for other in kernel.loops
        if other.instructions[0].address > end and other.select("STG") and not other.select("STSM")
    )  # fmt: skip
    return issue_cycles(list(before)), issue_cycles(list(direct)), issue_cycles(list(staged)) * num_slices + more


FFMA_TOLD = ("FFMA", "LDS", "LDGSTS")
"""What the model tells of an fma kernel's k-step, each an instruction."""


def fma_step_code(kernel: KernelSass, num_ks: int = 1) -> float:
    """Cycles of a k-step beside what is told of it; ``num_ks``: turns of a loop over k's in it, if it has one."""
    items = turn(kernel, loops_with(kernel, "FFMA")[num_ks > 1], num_ks)
    return loop_cycles(items) - sum(item.name in FFMA_TOLD for item, _ in items)


def fma_step_instructions(kernel: KernelSass) -> int:
    """Instructions of a k-step beside what is told of it."""
    return sum(item.name not in FFMA_TOLD for item, _ in turn(kernel, loops_with(kernel, "FFMA")[0], 1))


def fma_code(kernel: KernelSass) -> tuple[float, float, float]:
    """Cycles of a k-step beside what is told of it, of all before the k-steps, and of all behind."""
    loop = loops_with(kernel, "FFMA")[0]
    begin, end = loop.instructions[0].address, loop.instructions[-1].address
    behind = next(item.address for item in kernel.instructions if item.address > end)
    before = way(kernel, kernel.instructions[0].address, begin, lambda _: False)
    after = way(kernel, behind, kernel.instructions[-1].address, lambda _: False)
    return fma_step_code(kernel), issue_cycles(list(before)), issue_cycles(list(after))
