"""Plot of the pipeline stages of one CTA over time: copies into each stage, reads from it, mbarrier phase flips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpusim.errors import GpusimError, nearest
from gpusim.report.number_format import count
from gpusim.report.plots.figure import BLUE, GREEN, YELLOW, ink_on, new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot
from gpusim.report.plots.timeline import Look
from gpusim.report.plots.window import Window, check_window, of_sm, opening_window
from gpusim.simulate.result import Result
from gpusim.simulate.timeline import CopySpan, PhaseFlip, Timeline

CLOSE_CYCLES = 1e-6
"""Cycles below which two times count as equal."""


GIVEN_BACK = 0.9
"""Fraction of rounds in which a barrier must free a stage to count as one that does. Skipped iterations may hide some."""


class StageState(Enum):
    """State of a pipeline stage; it is in one at any time."""

    EMPTY = "empty: no copy issued yet"
    FILLING = "filling: copies in flight"
    FULL = "full: waits to be read"
    READ = "being read"


LOOKS: Mapping[StageState, Look] = {
    StageState.EMPTY: Look(StageState.EMPTY.value, "#FFFFFF"),
    StageState.FILLING: Look(StageState.FILLING.value, BLUE, "////"),
    StageState.FULL: Look(StageState.FULL.value, YELLOW, "...."),
    StageState.READ: Look(StageState.READ.value, GREEN),
}
"""Colour and hatching of each state."""


@dataclass(frozen=True, slots=True)
class Fill:
    """One round of a stage in cycles: its copies, and the reads of their data."""

    start_cycle: float
    full_cycle: float | None
    """Cycle at which all copies were complete; None: not recorded."""
    read_cycle: float | None
    """Cycle at which the first read began; None: no read."""
    end_cycle: float | None
    """Cycle at which the last read ended; None: no read."""
    parity: int | None
    """Parity of the full barrier's phase; None where there is no barrier (cp.async)."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Stages of one CTA that are filled together."""

    cta_idx: int
    buffers: tuple[str, ...]
    barrier: str
    """Mbarrier on which the copies complete; empty for cp.async."""
    fills: Mapping[int, Sequence[Fill]]
    """Rounds of each stage, in order."""
    freed: Sequence[PhaseFlip]
    """Flips of the barriers that free a stage, after the last read of a round and before the next round's first copy."""

    @property
    def num_stages(self) -> int:
        """Number of stages that were filled."""
        return len(self.fills)


def plot_stage_ring(
    result: Result, path: str | Path | None = None, *, cta_idx: int | None = None, buffer: str | None = None,
    window: Window | None = None,
) -> Picture:
    """Plot a row for each stage, coloured by its state, with the parity of its phase and the flips of its mbarriers.

    Args:
        result: simulated with ``recorded_sms="first"``.
        path: PNG or SVG by suffix.
        cta_idx: the CTA; by default the first that copies.
        buffer: only the ring of this buffer; by default every ring with several stages.
        window: first and last cycle; by default the beginning, until each stage has been filled a few times.

    Raises:
        GpusimError: there is no timeline, asynchronous copy, CTA or buffer of that name. Also for an empty window or an
            invalid ``path``.
        OSError: the file cannot be written.
    """
    check_plot(path)
    timeline = of_sm(result.timeline, None)
    if not timeline.roles:
        raise GpusimError("plot: this result has no timeline; simulate with recorded_sms='first'")
    if not timeline.copies:
        raise GpusimError(f"plot: {result.kernel} has no asynchronous copies (TMA, cp.async), and so no ring of stages")
    ctas = sorted({item.cta_idx for item in timeline.copies})
    if cta_idx is not None and cta_idx not in ctas:
        raise GpusimError(f"plot: CTA {cta_idx} was not recorded; use one of {', '.join(map(str, ctas[:8]))}")
    rings = rings_of(timeline, ctas[0] if cta_idx is None else cta_idx)
    if buffer is not None:
        known = [name for ring in rings for name in ring.buffers]
        if buffer not in known:
            raise GpusimError(f"plot: no copy goes to a buffer {buffer!r}; {nearest(buffer, known)}")
        rings = [ring for ring in rings if buffer in ring.buffers]
    else:
        rings = [ring for ring in rings if ring.num_stages > 1] or rings
    start, end = window or opening_window(timeline)
    check_window(timeline, (start, end))
    with settings():
        figure = _draw(result, timeline, rings, (start, end))
        return picture_of(figure, _alt(result, rings, (start, end)), path)


def rings_of(timeline: Timeline, cta_idx: int) -> list[Ring]:
    """Rings of a CTA's buffers. Buffers whose copies complete on the same mbarriers, or on none, share a ring."""
    copies = [item for item in timeline.copies if item.cta_idx == cta_idx]
    flips = [item for item in timeline.flips if item.cta_idx == cta_idx]
    filled_by = {item.barrier for item in copies}
    found = []
    for barrier in sorted(filled_by):
        own = [item for item in copies if item.barrier == barrier]
        buffers = tuple(sorted({item.buffer for item in own}))
        stages = sorted({item.stage for item in own})
        fills = {stage: _fills(timeline, cta_idx, buffers, [item for item in own if item.stage == stage],
                               [item for item in flips if (item.barrier, item.stage) == (barrier, stage)])
                 for stage in stages}  # fmt: skip
        others = {item.barrier for item in flips} - filled_by
        freed = [
            item
            for name in sorted(others)
            if barrier and _gives_back(fills, at := [item for item in flips if item.barrier == name])
            for item in at
        ]
        found.append(Ring(cta_idx, buffers, barrier, fills, freed))
    return found


def _gives_back(fills: Mapping[int, Sequence[Fill]], flips: Sequence[PhaseFlip]) -> bool:
    """Whether one barrier flips between the last read of a round and the first copy of the next, nearly always."""
    tried = met = 0
    for stage, rounds in fills.items():
        cycles = [item.cycle for item in flips if item.stage == stage]
        for before, after in pairwise(rounds):
            if before.end_cycle is not None:
                tried += 1
                met += any(before.end_cycle - CLOSE_CYCLES <= at <= after.start_cycle + CLOSE_CYCLES for at in cycles)
    return tried > 0 and met >= GIVEN_BACK * tried and {item.stage for item in flips} == set(fills)


def _fills(
    timeline: Timeline, cta_idx: int, buffers: Sequence[str], copies: list[CopySpan], flips: list[PhaseFlip]
) -> list[Fill]:
    """Rounds of one stage: copies up to a flip of its full barrier; without a barrier, copies until something is read."""
    reads = sorted(
        (item.start_cycle, item.end_cycle)
        for item in timeline.reads
        if item.cta_idx == cta_idx and item.buffer in buffers and copies and item.stage == copies[0].stage
    )
    rounds: list[list[CopySpan]] = []
    ends = sorted(item.cycle for item in flips)
    parities = {item.cycle: item.parity for item in flips}
    if ends:
        by_flip: dict[int, list[CopySpan]] = {}
        for copy in copies:
            turn = sum(end < copy.end_cycle - CLOSE_CYCLES for end in ends)
            by_flip.setdefault(turn, []).append(copy)
        rounds = [by_flip[turn] for turn in sorted(by_flip)]
        full_at: list[float | None] = [ends[turn] if turn < len(ends) else None for turn in sorted(by_flip)]
    else:
        for copy in sorted(copies, key=lambda item: item.start_cycle):
            begun = rounds[-1][0].start_cycle if rounds else 0.0
            if not rounds or any(begun <= start < copy.start_cycle for start, _ in reads):
                rounds.append([])
            rounds[-1].append(copy)
        full_at = [max(item.end_cycle for item in of) for of in rounds]
    starts = [min(item.start_cycle for item in of) for of in rounds]
    found = []
    for start, full, after in zip(starts, full_at, [*starts[1:], float("inf")], strict=True):
        own = [read for read in reads if start <= read[0] < after]
        found.append(Fill(
            start_cycle=start, full_cycle=full, read_cycle=own[0][0] if own else None,
            end_cycle=max(end for _, end in own) if own else None, parity=None if full is None else parities.get(full),
        ))  # fmt: skip
    return found


@dataclass(frozen=True, slots=True)
class Spell:
    """Stage in one state, from cycle to cycle."""

    state: StageState
    start_cycle: float
    end_cycle: float
    parity: int | None = None
    """Parity of the phase that brought the data being read."""


def spells(fills: Sequence[Fill], window: Window) -> list[Spell]:
    """States of a stage from the beginning of ``window`` to its end, in order."""
    start, end = window
    edges: list[tuple[float, StageState, int | None]] = [(start, StageState.EMPTY, None)]
    for fill in fills:
        edges.append((fill.start_cycle, StageState.FILLING, None))
        if fill.full_cycle is not None:
            edges.append((fill.full_cycle, StageState.FULL, None))
        if fill.read_cycle is not None:
            edges.append((max(fill.read_cycle, fill.full_cycle or fill.read_cycle), StageState.READ, fill.parity))
        if fill.end_cycle is not None:
            edges.append((fill.end_cycle, StageState.EMPTY, None))
    found = []
    ends = [*(at for at, _, _ in edges[1:]), end]
    for (at, state, parity), until in zip(edges, ends, strict=True):
        left, right = max(at, start), min(until, end)
        if right > left:
            found.append(Spell(state, left, right, parity))
    return found


def _shares(rings: Sequence[Ring], window: Window) -> dict[StageState, float]:
    totals = dict.fromkeys(StageState, 0.0)
    for ring in rings:
        for fills in ring.fills.values():
            for item in spells(fills, window):
                totals[item.state] += item.end_cycle - item.start_cycle
    total_cycles = sum(totals.values()) or 1.0
    return {state: total / total_cycles for state, total in totals.items()}


def _alt(result: Result, rings: Sequence[Ring], window: Window) -> str:
    shares = _shares(rings, window)
    named = "; ".join(f"{count(ring.num_stages, 'stage')} of {' and '.join(ring.buffers)}" for ring in rings)
    parts = ", ".join(f"{state.value.partition(':')[0]} {100.0 * share:.0f} %" for state, share in shares.items())
    return (
        f"Ring of {named} in CTA {rings[0].cta_idx} of {result.kernel} on {result.gpu}, cycles {window[0]:,.0f} to "
        f"{window[1]:,.0f}: a stage is {parts} of the time."
    )


ROW_INCHES = 0.42


def _draw(result: Result, timeline: Timeline, rings: Sequence[Ring], window: Window) -> Any:
    rows = [(ring, stage) for ring in rings for stage in sorted(ring.fills)]
    figure = new_figure(10.0, ROW_INCHES * len(rows) + 1.9)
    axes = figure.subplots()
    for position, (ring, stage) in enumerate(rows):
        _draw_stage(axes, position, ring.fills[stage], window)
        _mark_flips(axes, position, ring, stage, window)
    labels = [f"{', '.join(ring.buffers)} [{stage}]" for ring, stage in rows]
    axes.set_yticks(range(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(*window)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(
        f"SM cycles since the launch (1,000 cycles = {1e6 / result.sm_clock_mhz:,.0f} ns at {result.sm_clock_mhz:,.0f} MHz)"
    )
    axes.set_title(
        f"{result.kernel} on {result.gpu}: ring of stages in CTA {rings[0].cta_idx}", loc="left", fontweight="bold"
    )
    _add_legend(figure, rings)
    return figure


def _draw_stage(axes: Any, position: int, fills: Sequence[Fill], window: Window) -> None:
    found = spells(fills, window)
    for state, look in LOOKS.items():
        spans = [(item.start_cycle, item.end_cycle - item.start_cycle) for item in found if item.state is state]
        axes.broken_barh(
            spans, (position - 0.34, 0.68), facecolor=look.colour, hatch=look.hatch or None,
            edgecolor="white" if state is StageState.FILLING else "#606060", linewidth=0.5, zorder=2,
        )  # fmt: skip
    least = 0.015 * (window[1] - window[0])
    for item in found:
        if item.parity is not None and item.end_cycle - item.start_cycle > least:
            axes.text(
                (item.start_cycle + item.end_cycle) / 2, position + 0.02, str(item.parity), ha="center", va="center",
                fontsize=9, fontweight="bold", color=ink_on(LOOKS[item.state].colour), zorder=3,
            )  # fmt: skip


def _mark_flips(axes: Any, position: int, ring: Ring, stage: int, window: Window) -> None:
    full = [fill.full_cycle for fill in ring.fills[stage] if fill.full_cycle is not None and ring.barrier]
    freed = [item.cycle for item in ring.freed if item.stage == stage]
    for cycles, offset, marker, face in ((full, -0.40, "v", "black"), (freed, 0.40, "^", "white")):
        shown = [cycle for cycle in cycles if window[0] <= cycle <= window[1]]
        axes.plot(
            shown, [position + offset] * len(shown), linestyle="", marker=marker, markersize=5.5, color="black",
            markerfacecolor=face, markeredgewidth=0.9, zorder=3, clip_on=False,
        )  # fmt: skip


def _add_legend(figure: Any, rings: Sequence[Ring]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(
            facecolor=look.colour, hatch=look.hatch or None, label=look.label,
            edgecolor="white" if state is StageState.FILLING else "#606060",
        )
        for state, look in LOOKS.items()
    ]  # fmt: skip
    marker: Mapping[str, Any] = {"color": "black", "linestyle": "", "markersize": 5.5}
    names = sorted({ring.barrier for ring in rings if ring.barrier})
    if names:
        handles.append(Line2D([], [], marker="v", label=f"mbarrier {', '.join(names)} flips", **marker))
        handles.append(Line2D([], [], marker="$0$", label="parity of its phase", **marker))
    freed = sorted({item.barrier for ring in rings for item in ring.freed})
    if freed:
        handles.append(
            Line2D([], [], marker="^", markerfacecolor="white", label=f"mbarrier {', '.join(freed)} flips", **marker)
        )
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
