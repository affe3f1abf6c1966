"""Loops of a compiled GEMM, and paths through its SASS.

In: a kernel's SASS. Out: its main loop, the loop around it, instructions on the way from one address to another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpusim.errors import ConfigError
from gpusim.evidence.toolchain.sass import TENSOR, WARPGROUP_TENSOR, Instruction, KernelSass

Items = list[tuple[Instruction, bool]]
"""Instructions, each with whether its branch is taken."""

WAITS_OR_COPIES = ("SYNCS", "DEPBAR", "LDGDEPBAR", "BAR", "LDGSTS", "UTMALDG")
GROUP_BYTES = 0x300
"""Bytes of code between two groups of instructions."""


def math_of(kernel: KernelSass) -> tuple[str, ...]:
    """Opcodes of a kernel's math: wgmma, other MMAs or FFMA; empty without any in a loop."""
    for names in (WARPGROUP_TENSOR, TENSOR, ("FFMA",)):
        if any(loop.select(*names) for loop in kernel.loops):
            return names
    return ()


def is_of(math: Sequence[str], names: Sequence[str]) -> bool:
    """Whether opcodes of math are these."""
    return tuple(math) == tuple(names)


def main_loop(kernel: KernelSass, math: tuple[str, ...]) -> KernelSass:
    """The smallest loop that has the math and waits or copies.

    Raises:
        ConfigError: there is none.
    """
    loops = [loop for loop in kernel.loops if math and loop.select(*math) and loop.select(*WAITS_OR_COPIES)]
    if not loops:
        raise ConfigError(
            f"SASS: {kernel.name} has no loop with MMA or FFMA, and copies or waits, wants a kernel like a GEMM"
        )
    most = max(len(loop.select(*math)) for loop in loops)
    return min((loop for loop in loops if 2 * len(loop.select(*math)) >= most), key=lambda loop: len(loop.instructions))


def loop_around(kernel: KernelSass, inner: KernelSass) -> KernelSass | None:
    """The smallest loop around another, which repeats it for each tile."""
    begin, end = inner.instructions[0].address, inner.instructions[-1].address
    found = [
        loop for loop in kernel.loops
        if loop.instructions[0].address < begin and end < loop.instructions[-1].address and loop.instructions[-1].predicate
    ]  # fmt: skip
    return min(found, key=lambda loop: len(loop.instructions), default=None)


def path_to(
    kernel: KernelSass, begin: int, end: int | None, avoids: Collection[int] = (), *, falls_through: bool = True
) -> Items:
    """Instructions from ``begin`` until ``end`` is reached, or an EXIT where it is None; none of them in ``avoids``.

    A branch falls through (or is taken, without ``falls_through``) where the path then still arrives. A wait for a phase
    succeeds at once.

    Raises:
        ConfigError: no path arrives.
    """
    at = {item.address: idx for idx, item in enumerate(kernel.instructions)}
    seen: set[int] = set()
    stack: list[tuple[int, int, str, bool]] = [(at[begin], 0, "", False)]
    found: Items = []
    while stack:
        idx, length, tried, was_taken = stack.pop()
        del found[length:]
        if was_taken and found:
            found[-1] = (found[-1][0], True)
        if idx >= len(kernel.instructions):
            continue
        item = kernel.instructions[idx]
        if found and item.address == end:
            return found
        if idx in seen or item.address in avoids:
            continue
        seen.add(idx)
        found.append((item, False))
        if item.name == "EXIT" and not item.predicate:
            if end is None:
                return found
            continue
        if "PHASECHK" in item.opcode:
            tried = item.operands.split(",")[0].strip()
        target = item.branch_target if "DIV" not in item.opcode else None
        if target is None or target not in at:
            stack.append((idx + 1, len(found), tried, False))
            continue
        ahead, aside = (idx + 1, len(found), "", False), (at[target], len(found), "", True)
        if not item.predicate and "U" not in item.opcode.split(".")[1:]:
            stack.append(aside)
        elif target == end or (tried and item.predicate == tried):
            stack += [ahead, aside]
        else:
            stack += [aside, ahead] if falls_through else [ahead, aside]
    raise ConfigError(f"SASS: {kernel.name}: no path from 0x{begin:x} to {'its end' if end is None else hex(end)}")


def addresses_of(kernel: KernelSass, *names: str) -> set[int]:
    """Addresses of instructions with one of these opcodes."""
    return {item.address for item in kernel.select(*names)}


def groups_of(items: Sequence[Instruction]) -> list[list[int]]:
    """Addresses of instructions that lie together."""
    groups: list[list[int]] = []
    for item in items:
        if groups and item.address - groups[-1][-1] < GROUP_BYTES:
            groups[-1].append(item.address)
        else:
            groups.append([item.address])
    return groups
