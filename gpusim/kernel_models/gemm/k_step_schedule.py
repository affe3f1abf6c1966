"""Schedule of copies, barriers and fragment loads in a k-step of mma.sync with two register stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpusim.kernel_models.gemm.config import GemmConfig
from gpusim.kernel_models.mainloop.fragments import Fragments
from gpusim.workload import ops

What = Literal["copies", "read", "meet", "read_next", "use", "use_rest", "math"]
ORDER: tuple[What, ...] = ("copies", "read", "meet", "read_next", "use", "use_rest")
"""Order of actions at the same position."""


@dataclass(frozen=True, slots=True)
class IssueSlot:
    """One action of a k-step."""

    what: What
    slice_idx: int = 0
    """Index of the slice of a read or a use."""
    math: ops.MmaSync | None = None


def k_step_schedule(config: GemmConfig, fragments: Fragments) -> list[IssueSlot]:
    """Actions of a k-step, in order.

    In source code, a slice's fragments are loaded before the math of the slice before. Copies precede all math, or follow
    that of the first slice. The barrier precedes the last slice. Compilers move copies into the first slice's math, together
    with later fragment loads. They also move the barrier up, and the first use of the second slice into the math of the
    first.

    An instruction's rows and columns are loaded first (``Fragments.halves``). Math continues as the others arrive.
    """
    halves = fragments.halves[0]
    rests = [parts[1][1].num_issues if len(parts) > 1 else 0 for parts in halves]
    each, num = sum(math.num_issues for _, math in halves[0]), len(halves)

    def place(slices: float | None, default: int) -> int:
        return round(min(num, default if slices is None else slices) * each)

    places = config.compiled_code.mainloop
    copies = place(places.math_before_copies, 0 if config.prefetch == "before_mma" or num == 1 else 1)
    meeting = max(place(places.math_before_barrier, num - 1), copies, (num - 2) * each)
    actions: list[tuple[int, What, int]] = [
        (copies, "copies", 0), (meeting, "meet", 0), (max(meeting, (num - 1) * each), "read_next", 0),
    ]  # fmt: skip
    for idx in range(num):
        begin = idx * each if idx != 1 else max(place(places.math_before_use, 1), copies)
        actions += [(begin, "use", idx), (max(begin, (idx + 1) * each - rests[idx]), "use_rest", idx)]
        if idx:
            actions.append((copies if idx == 1 else (idx - 1) * each, "read", idx))
    atom, done, slots, ready = config.mainloop.mma_sync, 0, [], list[int]()  # slices whose fragments have arrived
    for position, what, idx in sorted(actions, key=lambda action: (action[0], ORDER.index(action[1]))):
        if position > done:
            slots.append(IssueSlot("math", math=ops.MmaSync(atom, position - done, data=fragments.math_of(ready))))
            done, ready = position, []
        slots.append(IssueSlot(what, idx))
        if what == ("use_rest" if rests[idx] else "use"):
            ready.append(idx)
    if done < num * each:
        slots.append(IssueSlot("math", math=ops.MmaSync(atom, num * each - done, data=fragments.math_of(ready))))
    return slots
