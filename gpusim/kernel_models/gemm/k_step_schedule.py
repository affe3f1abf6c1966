"""Where copies, meeting and reads of fragments lie in a k-step's mma.sync, with fragments that are read a slice ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpusim.kernel_models.gemm.fragments import Fragments
from gpusim.kernel_models.gemm.options import GemmOptions
from gpusim.workload import ops
from gpusim.workload.atoms import mma_sync

What = Literal["copies", "read", "meet", "read_next", "use", "use_rest", "math"]
ORDER: tuple[What, ...] = ("copies", "read", "meet", "read_next", "use", "use_rest")
"""Of what lies at one place."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that a k-step does."""

    what: What
    slice_idx: int = 0
    """Of a read or a use."""
    math: ops.MmaSync | None = None


def deeds(params: GemmOptions, fragments: Fragments) -> list[Deed]:
    """What a k-step does, in order.

    As the source has it, a slice's fragments are read before the math of the slice before; the copies stand before all math
    (or behind the first slice's), the meeting before the last slice's. Compilers move them: copies into the first slice's
    math, and what is read behind these with them; the meeting up; the first use of the second slice up into the first's.
    An instruction's rows and columns come first (``Fragments.halves``), and math goes on as the others do.
    """
    halves = fragments.halves[0]
    rests = [parts[1][1].num_issues if len(parts) > 1 else 0 for parts in halves]
    each, num = sum(math.num_issues for _, math in halves[0]), len(halves)

    def place(slices: float | None, default: int) -> int:
        return round(min(num, default if slices is None else slices) * each)

    copies = place(params.math_before_copies, 0 if params.prefetch == "before_mma" or num == 1 else 1)
    meeting = max(place(params.math_before_meeting, num - 1), copies, (num - 2) * each)
    found: list[tuple[int, What, int]] = [
        (copies, "copies", 0), (meeting, "meet", 0), (max(meeting, (num - 1) * each), "read_next", 0),
    ]  # fmt: skip
    for idx in range(num):
        begin = idx * each if idx != 1 else max(place(params.math_before_use, 1), copies)
        found += [(begin, "use", idx), (max(begin, (idx + 1) * each - rests[idx]), "use_rest", idx)]
        if idx:
            found.append((copies if idx == 1 else (idx - 1) * each, "read", idx))
    atom, done, made = mma_sync(params.element), 0, []
    for at, what, idx in sorted(found, key=lambda deed: (deed[0], ORDER.index(deed[1]))):
        if at > done:
            made.append(Deed("math", math=ops.MmaSync(atom, at - done)))
            done = at
        made.append(Deed(what, idx))
    if done < num * each:
        made.append(Deed("math", math=ops.MmaSync(atom, num * each - done)))
    return made
