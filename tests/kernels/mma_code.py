"""What loops of mma.sync and of fma take in their own instructions, read off SASS."""

from __future__ import annotations

from gpusim.evidence.issue import BESIDE_MMA, beyond_math, issue_cycles, loop_cycles, turn, way
from gpusim.evidence.sass import KernelSass

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


def fma_code(kernel: KernelSass) -> tuple[float, float, float]:
    """Cycles of a k-step beside what is told of it, of all before the k-steps, and of all behind."""
    loop = loops_with(kernel, "FFMA")[0]
    items = turn(kernel, loop)
    begin, end = loop.instructions[0].address, loop.instructions[-1].address
    behind = next(item.address for item in kernel.instructions if item.address > end)
    told = sum(item.name in FFMA_TOLD for item, _ in items)
    before = way(kernel, kernel.instructions[0].address, begin, lambda _: False)
    after = way(kernel, behind, kernel.instructions[-1].address, lambda _: False)
    return loop_cycles(items) - told, issue_cycles(list(before)), issue_cycles(list(after))
