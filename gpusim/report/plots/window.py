"""Cycle windows of plots over time: requested ones, the beginning of a run, or its steady part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from gpusim.errors import GpusimError
from gpusim.simulate.timeline import CopySpan, MmaSpan, Timeline, WarpState

Window = tuple[float, float]
"""First and last cycle to show."""

COPIES_SHOWN = 5
"""Times that the stages of a ring are filled in an opening window."""

ROUNDS_SHOWN = 4.0
"""Rounds of the ring in a steady window."""

LIVES_SHOWN = 2.5
"""Lives of a CTA in the steady window of a kernel without a ring of stages."""

LOADS_SHOWN = 10.0
"""Most batches of loads of a CTA in the steady window of such a kernel: a CTA may load in a loop."""

NEARLY_ALL = 1.5
"""Longest run, in windows, that is shown from its start to its end."""

MARGIN = 0.02
"""Fraction of a window that lies before the first event that it shows."""


def of_sm(timeline: Timeline, sm_idx: int | None) -> Timeline:
    """Timeline of one SM (the first recorded if None)."""
    if sm_idx is None:
        sm_idx = min((role.sm_idx for role in timeline.roles), default=0)
    return Timeline(
        roles=[item for item in timeline.roles if item.sm_idx == sm_idx],
        copies=[item for item in timeline.copies if item.sm_idx == sm_idx],
        mmas=[item for item in timeline.mmas if item.sm_idx == sm_idx],
        flips=[item for item in timeline.flips if item.sm_idx == sm_idx],
        reads=[item for item in timeline.reads if item.sm_idx == sm_idx],
        memory=[item for item in timeline.memory if item.sm_idx == sm_idx],
    )


def check_window(timeline: Timeline, window: Window) -> None:
    """Check that a window shows something.

    Raises:
        GpusimError: its end is not after its start, or it begins after the run.
    """
    start, end = window
    if not end > start:
        raise GpusimError(f"plot: the window is {start:g} to {end:g} cycles, wants a later end")
    last = _run_of(timeline)[1]
    if start >= last:
        raise GpusimError(f"plot: the window begins at cycle {start:,.0f}, and nothing happens after {last:,.0f}")


def opening_window(timeline: Timeline) -> Window:
    """Window from the first event after the launch gap until a ring has been filled ``COPIES_SHOWN`` times.

    If the first CTA has several rings, the one that is filled soonest counts: another may be filled once per tile.
    """
    first, last = _run_of(timeline)
    first_cta = min(role.cta_idx for role in timeline.roles)
    by_slot: dict[tuple[str, int], list[float]] = {}
    for copy in timeline.copies:
        if copy.cta_idx == first_cta:
            by_slot.setdefault((copy.buffer, copy.stage), []).append(copy.end_cycle)
    by_buffer: dict[str, list[float]] = {}
    for (buffer, _), landed in by_slot.items():
        if len(landed) >= COPIES_SHOWN:
            by_buffer.setdefault(buffer, []).append(sorted(landed)[COPIES_SHOWN - 1])
    end = min([last, *(max(cycles) for cycles in by_buffer.values())])
    return max(0.0, first - MARGIN * (end - first)), end


def steady_window(timeline: Timeline) -> Window:
    """Window of a few rounds of the ring, or lives of a CTA, mid-run; a short run from start to end.

    The CTA that lives in the middle of the run decides. If several of its roles use the tensor core, each does so in the
    window. For a ping-pong kernel it shows how one takes over from the other.
    """
    first, last = _run_of(timeline)
    cta_idx, begins, ends = _middle_cta(timeline, (first + last) / 2)
    copies = [item for slot in _by_slot(timeline.copies, cta_idx) for item in slot]
    gaps = [
        median(after.start_cycle - before.start_cycle for before, after in pairwise(slot))
        for slot in _by_slot(timeline.copies, cta_idx) if len(slot) > 1
    ]  # fmt: skip
    if any(gap > 0.0 for gap in gaps):
        length = ROUNDS_SHOWN * min(gap for gap in gaps if gap > 0.0)
        middle = (min(item.start_cycle for item in copies) + max(item.start_cycle for item in copies)) / 2
        start = _all_at_work([item for item in timeline.mmas if item.cta_idx == cta_idx], middle, length) - length / 2
    else:
        life = ends - begins
        loaded = batches([
            (item.start_cycle, item.end_cycle) for item in timeline.memory if item.cta_idx == cta_idx and not item.is_store
        ])  # fmt: skip
        length = min(LIVES_SHOWN, LOADS_SHOWN / max(1, len(loaded))) * life
        inside = 0.0 if length > life else (life - length) / 2
        start = begins + inside - MARGIN * length
    if not length > 0.0 or last - first <= NEARLY_ALL * length:
        return max(0.0, first - MARGIN * (last - first)), last
    start = max(first - MARGIN * length, min(start, last - length))
    return start, start + length


def _run_of(timeline: Timeline) -> Window:
    """Cycle at which the first role has started, and cycle at which the last one ends."""
    begun = [start for role in timeline.roles for state, start, _ in role.states if state is not WarpState.START]
    ends = [role.states[-1][2] for role in timeline.roles if role.states]
    return min(begun, default=0.0), max(ends, default=1.0)


def _by_slot(copies: Iterable[CopySpan], cta_idx: int) -> list[list[CopySpan]]:
    """Copies of a CTA by buffer and stage, in the order in which they start; of overlapping ones only the first."""
    slots: dict[tuple[str, int], list[CopySpan]] = {}
    for item in sorted(copies, key=lambda item: item.start_cycle):
        if item.cta_idx == cta_idx:
            slot = slots.setdefault((item.buffer, item.stage), [])
            if not slot or item.start_cycle >= slot[-1].end_cycle:
                slot.append(item)
    return list(slots.values())


def lives_of(timeline: Timeline) -> dict[int, Window]:
    """First and last cycle of each CTA's life, without its start."""
    found: dict[int, Window] = {}
    for role in timeline.roles:
        for state, start, end in role.states:
            if state is not WarpState.START:
                before = found.get(role.cta_idx, (start, end))
                found[role.cta_idx] = min(before[0], start), max(before[1], end)
    return found


def _middle_cta(timeline: Timeline, middle: float) -> tuple[int, float, float]:
    """CTA that lives at a cycle, the youngest of several, else the nearest one: (CTA, begin, end)."""
    lives = lives_of(timeline) or {timeline.roles[0].cta_idx: (0.0, 0.0)}

    def rank(cta_idx: int) -> tuple[float, float, int]:
        begins, ends = lives[cta_idx]
        return max(begins - middle, middle - ends, 0.0), -begins, cta_idx

    cta_idx = min(lives, key=rank)
    return cta_idx, *lives[cta_idx]


def _all_at_work(mmas: Sequence[MmaSpan], middle: float, length: float) -> float:
    """Cycle nearest to ``middle`` whose window has math of every role that has some.

    ``middle`` where there is none.
    """
    roles = {item.role for item in mmas}
    spans = sorted(mmas, key=lambda item: item.start_cycle)
    changes = [after.start_cycle for before, after in pairwise(spans) if before.role != after.role]
    for at in [middle, *sorted(changes, key=lambda at: abs(at - middle))]:
        seen = {item.role for item in spans if item.start_cycle < at + length / 2 and item.end_cycle > at - length / 2}
        if seen == roles:
            return at
    return middle


def batches(spans: Iterable[Window]) -> list[Window]:
    """Spans with touching or overlapping ones joined.

    >>> batches([(5.0, 9.0), (0.0, 2.0), (2.0, 3.0), (6.0, 7.0)])
    [(0.0, 3.0), (5.0, 9.0)]
    """
    found: list[Window] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found
