"""Timeline plot of one SM's pipeline: copies, loads and stores in flight, tensor core, warp states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.errors import GpusimError
from gpusim.report.number_format import count, percent
from gpusim.report.plots.figure import PURPLE, SKY, ink_on, new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot
from gpusim.report.plots.window import Window, batches, check_window, lives_of, of_sm, steady_window
from gpusim.simulate.result import Result
from gpusim.simulate.timeline import RoleTimeline, Timeline, WarpState

MAX_CTAS = 2
"""CTAs of the SM with lanes: the first ones. If there are no copies, also that many later ones."""

LEAST_OF_LIFE = 0.8
"""Smallest time in the window, relative to the longest of a CTA, for a CTA to get lanes."""

WAITS_HATCH = "////"


@dataclass(frozen=True, slots=True)
class Look:
    """Style of one kind of bar: colours of Okabe and Ito, also distinguished by hatching."""

    label: str
    colour: str
    hatch: str = ""


COPY = Look("copy in flight", "#0072B2")
MMA = Look("tensor core busy", "#009E73")
OWN_MMA = Look("below a role: its math runs in the tensor core", "#009E73")
LOADS = Look("loads in flight", SKY)
STORES = Look("stores in flight", PURPLE, "....")
OF_MEMORY = (LOADS, STORES)
"""Styles of loads and stores, indexed by whether a span is a store."""

LOOKS: Mapping[WarpState, Look] = {
    WarpState.START: Look("start", "#E8E8E8"),
    WarpState.ISSUE: Look("issues other instructions", "#4D4D4D"),
    WarpState.TENSOR: Look("issues math", "#009E73"),
    WarpState.NO_INSTRUCTION: Look("wait: instructions", "#4D4D4D", WAITS_HATCH),
    WarpState.MATH_PIPE: Look("math pipe", "#009E73", "...."),
    WarpState.LSU: Look("load/store unit", "#0072B2", "\\\\\\\\"),
    WarpState.WAIT_MBARRIER: Look("wait: mbarrier", "#E69F00"),
    WarpState.WAIT_CP_ASYNC: Look("wait: cp.async", "#E69F00", WAITS_HATCH),
    WarpState.WAIT_WGMMA: Look("wait: wgmma", "#56B4E9", "xxxx"),
    WarpState.WAIT_BULK: Look("wait: bulk store", "#56B4E9", "++++"),
    WarpState.WAIT_BARRIER: Look("wait: barrier", "#CC79A7", "----"),
    WarpState.WAIT_CLUSTER: Look("wait: cluster", "#CC79A7", "||||"),
    WarpState.WAIT_REGISTERS: Look("wait: registers", "#CC79A7", "oo"),
    WarpState.LONG_SCOREBOARD: Look("wait: global load", "#D55E00", WAITS_HATCH),
    WarpState.SHORT_SCOREBOARD: Look("wait: shared load or shuffle", "#F0E442", "...."),
}
"""Style of every warp state."""

NO_WAITS = frozenset({"start", "issue", "tensor"})
"""Names of the states in which a role does not wait."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a lane, in cycles."""

    start_cycle: float
    end_cycle: float
    look: Look


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the picture; lanes of a ``group`` are adjacent."""

    label: str
    group: str
    bars: Sequence[Bar]
    slot: tuple[int, str, int] | None = None
    """(CTA, buffer, stage) of a lane of copies."""
    own_math: Sequence[Bar] = ()
    """Bars for the time in which a role's math runs in the tensor core, whatever state the role is in."""


def plot_timeline(
    result: Result, path: str | Path | None = None, *, sm_idx: int | None = None, window: Window | None = None
) -> Picture:
    """Plot the pipeline of one SM: copies, loads and stores in flight, tensor core, roles by state; written to ``path``.

    By default the first recorded SM, and the window of :func:`steady_window`.

    Raises:
        GpusimError: the suffix is unknown, ``path`` cannot be written, there is no timeline, or the window is empty.
        OSError: the file cannot be written.
    """
    check_plot(path)
    timeline = of_sm(result.timeline, sm_idx)
    if not timeline.roles:
        raise GpusimError("plot: this result has no timeline; simulate with recorded_sms='first'")
    start, end = window or steady_window(timeline)
    check_window(timeline, (start, end))
    lanes = lanes_of(timeline, (start, end))
    return picture_of(_draw(result, timeline, lanes, (start, end)), _alt(result, timeline, (start, end)), path)


def _alt(result: Result, timeline: Timeline, window: Window) -> str:
    first_cta = min((item.cta_idx for item in timeline.copies), default=0)
    num_stages = len({(item.buffer, item.stage) for item in timeline.copies if item.cta_idx == first_cta})
    found = [f"Timeline of {result.kernel} on one SM of {result.gpu}, cycles {window[0]:,.0f} to {window[1]:,.0f}"]
    found += [f"copies into {count(num_stages, 'stage')} of shared memory"] if num_stages else []
    for role, shares in result.states.items():
        waits = {name: share for name, share in shares.items() if name not in NO_WAITS}
        most = max(waits, key=lambda name: waits[name], default="")
        if most and waits[most] > 0.0:
            found.append(f"{role} spends most of its waiting, {percent(waits[most])} of its life, in {most}")
    return "; ".join(found) + "."


def lanes_of(timeline: Timeline, window: Window) -> list[Lane]:
    """Rows from top to bottom: stages of each CTA, the tensor core, then loads, stores and roles of each CTA.

    The CTAs are those of :func:`ctas_shown`.
    """
    found: list[Lane] = []
    ctas, _ = ctas_shown(timeline, window)
    for cta_idx in ctas:
        prefix = f"CTA {cta_idx} " if len(ctas) > 1 else ""
        keys = sorted({(item.buffer, item.stage) for item in timeline.copies if item.cta_idx == cta_idx})
        for buffer, stage in keys:
            bars = [
                Bar(item.start_cycle, item.end_cycle, COPY)
                for item in timeline.copies
                if (item.cta_idx, item.buffer, item.stage) == (cta_idx, buffer, stage)
            ]
            found.append(Lane(f"{prefix}{buffer}[{stage}]", f"{prefix}{buffer}", bars, (cta_idx, buffer, stage)))
    if timeline.mmas:
        found.append(Lane("tensor core", "", [Bar(item.start_cycle, item.end_cycle, MMA) for item in timeline.mmas]))
    for cta_idx in ctas:
        prefix = f"CTA {cta_idx} " if len(ctas) > 1 else ""
        for look in OF_MEMORY:
            in_flight = batches(
                (item.start_cycle, item.end_cycle)
                for item in timeline.memory if item.cta_idx == cta_idx and OF_MEMORY[item.is_store] is look
            )  # fmt: skip
            if any(start < window[1] and end > window[0] for start, end in in_flight):
                bars = [Bar(start, end, look) for start, end in in_flight]
                found.append(Lane(f"{prefix}{look.label.split()[0]}", f"roles{cta_idx}", bars))
        for role in timeline.roles:
            if role.cta_idx == cta_idx:
                own = [
                    Bar(item.start_cycle, item.end_cycle, OWN_MMA)
                    for item in timeline.mmas if (item.cta_idx, item.role) == (cta_idx, role.role)
                ]  # fmt: skip
                found.append(Lane(f"{prefix}{role.role}", f"roles{cta_idx}", _states(role), own_math=own))
    return found


def ctas_shown(timeline: Timeline, window: Window) -> tuple[list[int], int]:
    """(CTAs with lanes, number of CTAs that are active in ``window``).

    The first CTAs that are active nearly as long as any; without copies some from the middle, too.
    """
    seen = {cta: min(end, window[1]) - max(start, window[0]) for cta, (start, end) in lives_of(timeline).items()}
    live = sorted(cta for cta, cycles in seen.items() if cycles > 0.0)
    longest = max((seen[cta] for cta in live), default=0.0)
    found = [cta for cta in live if seen[cta] >= LEAST_OF_LIFE * longest]
    first, rest = found[:MAX_CTAS], found[MAX_CTAS:]
    if timeline.copies or not rest:
        return first, len(live)
    middle = max(0, len(rest) // 2 - 1)
    return first + rest[middle : middle + MAX_CTAS], len(live)


def in_flight(timeline: Timeline, look: Look, window: Window) -> list[tuple[float, float]]:
    """(cycle, bytes from then on): bytes of loads or stores that the SM has in flight, over a window."""
    spans = [item for item in timeline.memory if OF_MEMORY[item.is_store] is look]
    steps = sorted([
        *((item.start_cycle, item.num_bytes) for item in spans), *((item.end_cycle, -item.num_bytes) for item in spans),
    ])  # fmt: skip
    found = [(window[0], 0.0)]
    total = 0.0
    for cycle, change in steps:
        total += change
        at = max(cycle, window[0])
        if at > window[1]:
            break
        if at == found[-1][0]:
            found[-1] = at, max(0.0, total)
        else:
            found.append((at, max(0.0, total)))
    return [*found, (window[1], found[-1][1])]


def _states(role: RoleTimeline) -> list[Bar]:
    """State bars of a role; adjacent bars of equal state are joined."""
    found: list[Bar] = []
    for state, start, end in role.states:
        goes_on = bool(found) and found[-1].look is LOOKS[state] and found[-1].end_cycle == start
        found.append(Bar(found.pop().start_cycle if goes_on else start, end, LOOKS[state]))
    return found


LANE_INCHES, PLOT_INCHES, LETTER_INCHES = 0.30, 9.0, 0.062
BYTES_INCHES = 1.1
OWN_MATH_HEIGHT = 0.3
"""Fraction of a lane, below a role's states, that shows when its math runs."""
GAP = 0.45
"""Space between groups of lanes, in lanes."""


def _draw(result: Result, timeline: Timeline, lanes: Sequence[Lane], window: Window) -> Any:
    positions = _positions(lanes)
    has_bytes = bool(timeline.memory) and not timeline.copies
    lanes_inches, bytes_inches = (positions[-1] + 1.0) * LANE_INCHES, BYTES_INCHES * has_bytes
    with settings():
        figure = new_figure(10.5, lanes_inches + bytes_inches + 1.9)
        heights = [bytes_inches, lanes_inches] if has_bytes else [lanes_inches]
        *above, axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        seen: dict[str, Look] = {}
        for area in above:
            _draw_bytes(area, timeline, window, seen)
        for lane, position in zip(lanes, positions, strict=True):
            _draw_lane(axes, lane, position, window, seen)
            _draw_own_math(axes, lane, position, window, seen)
        for flip in timeline.flips:
            if window[0] <= flip.cycle <= window[1]:
                _mark_flip(axes, lanes, positions, timeline, flip)
        _decorate(axes, result, lanes, positions, window)
        _title((*above, axes)[0], result, window, ctas_shown(timeline, window))
        _add_legend(figure, seen, bool(timeline.flips))
    return figure


def _positions(lanes: Sequence[Lane]) -> list[float]:
    """Position of each lane, from the top, with gaps between groups."""
    found: list[float] = []
    at, group = 0.0, None
    for lane in lanes:
        if group is not None and lane.group != group:
            at += GAP
        found.append(at)
        group = lane.group
        at += 1.0
    return found


def _draw_lane(axes: Any, lane: Lane, position: float, window: Window, seen: dict[str, Look]) -> None:
    start, end = window
    axes.axhspan(position - 0.4, position + 0.4, facecolor="#F7F7F7", linewidth=0, zorder=0)
    by_look: dict[Look, list[tuple[float, float]]] = {}
    for bar in lane.bars:
        left, right = max(bar.start_cycle, start), min(bar.end_cycle, end)
        if right > left:
            by_look.setdefault(bar.look, []).append((left, right - left))
    for look, spans in by_look.items():
        is_stage = look is COPY or look is MMA
        height = 0.8 - OWN_MATH_HEIGHT if lane.own_math else 0.8
        axes.broken_barh(
            spans, (position - 0.4, height), facecolor=look.colour, hatch=look.hatch or None,
            edgecolor="white" if is_stage or look.hatch else "none", linewidth=0.4 if is_stage or look.hatch else 0.0,
            zorder=2,
        )
        seen[look.label] = look
        if lane.slot is None and look not in (MMA, *OF_MEMORY):
            _name_widest(axes, look, spans, position - 0.4 + height / 2, window)


def _draw_own_math(axes: Any, lane: Lane, position: float, window: Window, seen: dict[str, Look]) -> None:
    """Draw the time in which a role's math runs, below its states."""
    shown = batches(
        (max(bar.start_cycle, window[0]), min(bar.end_cycle, window[1]))
        for bar in lane.own_math if bar.start_cycle < window[1] and bar.end_cycle > window[0]
    )  # fmt: skip
    if shown:
        spans = [(start, end - start) for start, end in shown]
        place = position + 0.4 - OWN_MATH_HEIGHT + 0.04, OWN_MATH_HEIGHT - 0.04
        axes.broken_barh(spans, place, facecolor=OWN_MMA.colour, linewidth=0.0, zorder=2)
        seen[OWN_MMA.label] = OWN_MMA


def _draw_bytes(axes: Any, timeline: Timeline, window: Window, seen: dict[str, Look]) -> None:
    """Draw the bytes in flight of the SM's loads and stores over time."""
    for look in OF_MEMORY:
        steps = in_flight(timeline, look, window)
        if max(num_bytes for _, num_bytes in steps) > 0.0:
            cycles, kib = [at for at, _ in steps], [num_bytes / 1024.0 for _, num_bytes in steps]
            axes.fill_between(
                cycles, kib, step="post", facecolor=look.colour, alpha=0.75, hatch=look.hatch or None,
                edgecolor="white" if look.hatch else "none", linewidth=0.0,
            )  # fmt: skip
            axes.step(cycles, kib, where="post", color="#303030", linewidth=0.8)
            seen[look.label] = look
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("in flight (KiB)")
    axes.grid(color="#D0D0D0", linewidth=0.5)
    axes.tick_params(axis="x", length=0, labelbottom=False)


def _name_widest(axes: Any, look: Look, spans: Sequence[tuple[float, float]], position: float, window: Window) -> None:
    """Write a state's name into its widest bar, if it fits."""
    left, width = max(spans, key=lambda span: span[1])
    if width / (window[1] - window[0]) * PLOT_INCHES > LETTER_INCHES * len(look.label) + 0.1:
        axes.text(
            left + width / 2, position, look.label, ha="center", va="center", fontsize=7, zorder=3,
            color="black" if look.hatch else ink_on(look.colour),
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0} if look.hatch else None,
        )  # fmt: skip


def _mark_flip(axes: Any, lanes: Sequence[Lane], positions: Sequence[float], timeline: Timeline, flip: Any) -> None:
    """Draw a triangle at the end of the copies that complete this phase."""
    filled = {
        (item.cta_idx, item.buffer, item.stage)
        for item in timeline.copies
        if (item.cta_idx, item.barrier, item.stage) == (flip.cta_idx, flip.barrier, flip.stage)
        and abs(item.end_cycle - flip.cycle) < 1e-6
    }
    for lane, position in zip(lanes, positions, strict=True):
        if lane.slot in filled:
            axes.plot([flip.cycle], [position], marker="<", markersize=4.5, color="black", zorder=3)


def _decorate(axes: Any, result: Result, lanes: Sequence[Lane], positions: Sequence[float], window: Window) -> None:
    axes.set_xlim(*window)
    axes.set_ylim(positions[-1] + 0.7, -0.7)
    axes.set_yticks(positions, [lane.label for lane in lanes])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(
        f"SM cycles since the launch (1,000 cycles = {1e3 / result.sm_clock_mhz * 1e3:,.0f} ns at "
        f"{result.sm_clock_mhz:,.0f} MHz)"
    )
    axes.grid(axis="x", color="#D0D0D0", linewidth=0.5, zorder=1)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _title(axes: Any, result: Result, window: Window, shown: tuple[list[int], int]) -> None:
    cycles = f"cycles {window[0]:,.0f} to {window[1]:,.0f} of {result.cycles:,.0f}"
    ctas, num_live = shown
    some = "" if len(ctas) == num_live else f"; {len(ctas)} of the {num_live} CTAs that it has meanwhile"
    axes.set_title(f"{result.kernel} on {result.gpu}: one SM, {cycles}{some}", loc="left", fontsize=10, fontweight="bold")


def _add_legend(figure: Any, seen: Mapping[str, Look], has_flips: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    order = [COPY.label, LOADS.label, STORES.label, MMA.label, OWN_MMA.label, *(look.label for look in LOOKS.values())]
    handles: list[Any] = [
        Patch(
            facecolor=seen[label].colour, hatch=seen[label].hatch or None,
            edgecolor="white" if seen[label].hatch else "none", label=label,
        )
        for label in order
        if label in seen
    ]
    if has_flips:
        label = "mbarrier phase flips"
        handles.append(Line2D([], [], color="black", marker="<", linestyle="", markersize=4.5, label=label))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)), frameon=False, fontsize=8)
