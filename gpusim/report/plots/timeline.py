"""Pictures: the only room that knows matplotlib, and imports it when a picture is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.errors import GpusimError
from gpusim.report.number_format import count, percent
from gpusim.report.plots.figure import ink_on, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot
from gpusim.simulate.result import Result
from gpusim.simulate.timeline import RoleTimeline, Timeline, WarpState

Window = tuple[float, float]
"""First and last cycle to show."""

COPIES_SHOWN = 5
"""By default the window ends when the ring has been filled about so many times."""

MAX_CTAS = 2
"""CTAs of the SM that get lanes of their own: the first ones, and where no ring fills the picture as many of later on."""

WAITS_HATCH = "////"


@dataclass(frozen=True, slots=True)
class Look:
    """How one kind of bar is drawn: colours of Okabe and Ito, told apart by hatching as well."""

    label: str
    colour: str
    hatch: str = ""


COPY = Look("copy in flight", "#0072B2")
MMA = Look("tensor core busy", "#009E73")

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
    WarpState.SHORT_SCOREBOARD: Look("wait: shared load", "#F0E442", "...."),
}
"""Every state of a warp."""

NO_WAITS = frozenset({"start", "issue", "tensor"})
"""Names of the states in which a role does not wait."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Something drawn in a lane, in cycles."""

    start_cycle: float
    end_cycle: float
    look: Look


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the picture; lanes of a ``group`` lie together."""

    label: str
    group: str
    bars: Sequence[Bar]
    slot: tuple[int, str, int] | None = None
    """(CTA, buffer, stage) of a lane of copies."""


def plot_timeline(
    result: Result, path: str | Path | None = None, *, sm_idx: int | None = None, window: Window | None = None
) -> Picture:
    """The pipeline of one SM: copies in flight, tensor core, roles by state; written to ``path`` if there is one.

    By default the first recorded SM, and a window that starts with its first copy and ends when the ring has been
    filled a few times.

    Raises:
        GpusimError: another suffix, nowhere to write, or a result without a timeline.
        OSError: the file cannot be written.
    """
    check_plot(path)
    timeline = of_sm(result.timeline, sm_idx)
    if not timeline.roles:
        raise GpusimError("plot: this result has no timeline; simulate with recorded_sms='first'")
    start, end = window or opening_window(timeline)
    if not end > start:
        raise GpusimError(f"plot: the window is {start:g} to {end:g} cycles, wants a later end")
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


def of_sm(timeline: Timeline, sm_idx: int | None) -> Timeline:
    """What happened on one SM (the first recorded if None)."""
    if sm_idx is None:
        sm_idx = min((role.sm_idx for role in timeline.roles), default=0)
    return Timeline(
        roles=[item for item in timeline.roles if item.sm_idx == sm_idx],
        copies=[item for item in timeline.copies if item.sm_idx == sm_idx],
        mmas=[item for item in timeline.mmas if item.sm_idx == sm_idx],
        flips=[item for item in timeline.flips if item.sm_idx == sm_idx],
        reads=[item for item in timeline.reads if item.sm_idx == sm_idx],
    )


def opening_window(timeline: Timeline) -> Window:
    """From the first thing that happens after the launch gap until the ring has been filled ``COPIES_SHOWN`` times."""
    begun = [start for role in timeline.roles for state, start, _ in role.states if state is not WarpState.START]
    ends = [role.states[-1][2] for role in timeline.roles if role.states]
    first, last = min(begun, default=0.0), max(ends, default=1.0)
    first_cta = min(role.cta_idx for role in timeline.roles)
    of_ring: dict[tuple[str, int], list[float]] = {}
    for copy in timeline.copies:
        if copy.cta_idx == first_cta:
            of_ring.setdefault((copy.buffer, copy.stage), []).append(copy.end_cycle)
    shown = [sorted(landed)[COPIES_SHOWN - 1] for landed in of_ring.values() if len(landed) >= COPIES_SHOWN]
    end = min(last, max(shown)) if shown else last
    return max(0.0, first - 0.02 * (end - first)), end


def lanes_of(timeline: Timeline, window: Window) -> list[Lane]:
    """Rows from top to bottom: for each CTA its stages, then the tensor core, then the roles of each CTA.

    Of the CTAs that do something in ``window`` those of :func:`ctas_shown`.
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
        found.append(
            Lane("tensor core", "", [Bar(item.start_cycle, item.end_cycle, MMA) for item in timeline.mmas])
        )
    for cta_idx in ctas:
        prefix = f"CTA {cta_idx} " if len(ctas) > 1 else ""
        for role in timeline.roles:
            if role.cta_idx == cta_idx:
                found.append(Lane(f"{prefix}{role.role}", f"roles{cta_idx}", _states(role, timeline)))
    return found


def ctas_shown(timeline: Timeline, window: Window) -> tuple[list[int], int]:
    """CTAs that get lanes, and how many do something in ``window``: the first ones; without copies some of half-way, too."""
    live = sorted({
        role.cta_idx
        for role in timeline.roles
        if any(
            start < window[1] and end > window[0]
            for state, start, end in role.states if state is not WarpState.START
        )
    })  # fmt: skip
    first, rest = live[:MAX_CTAS], live[MAX_CTAS:]
    if timeline.copies or not rest:
        return first, len(live)
    middle = max(0, len(rest) // 2 - 1)
    return first + rest[middle : middle + MAX_CTAS], len(live)


def _states(role: RoleTimeline, timeline: Timeline) -> list[Bar]:
    return [Bar(start, end, LOOKS[state]) for state, start, end in role.states]


LANE_INCHES, PLOT_INCHES, LETTER_INCHES = 0.30, 9.0, 0.062
GAP = 0.45
"""Space between groups of lanes, in lanes."""


def _draw(result: Result, timeline: Timeline, lanes: Sequence[Lane], window: Window) -> Any:
    from matplotlib.figure import Figure

    positions = _positions(lanes)
    height = (positions[-1] + 1.0) * LANE_INCHES + 1.9
    with settings():
        figure = Figure(figsize=(10.5, height), layout="constrained")
        axes = figure.subplots()
        seen: dict[str, Look] = {}
        for lane, position in zip(lanes, positions, strict=True):
            _draw_lane(axes, lane, position, window, seen)
        for flip in timeline.flips:
            if window[0] <= flip.cycle <= window[1]:
                _mark_flip(axes, lanes, positions, timeline, flip)
        _decorate(axes, result, lanes, positions, window, shown=ctas_shown(timeline, window))
        _add_legend(figure, seen, bool(timeline.flips))
    return figure


def _positions(lanes: Sequence[Lane]) -> list[float]:
    """Height of each lane, from the top, with gaps between groups."""
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
        axes.broken_barh(
            spans, (position - 0.4, 0.8), facecolor=look.colour, hatch=look.hatch or None,
            edgecolor="white" if is_stage or look.hatch else "none", linewidth=0.4 if is_stage or look.hatch else 0.0,
            zorder=2,
        )
        seen[look.label] = look
        if lane.slot is None and look is not MMA:
            _name_widest(axes, look, spans, position, window)


def _name_widest(axes: Any, look: Look, spans: Sequence[tuple[float, float]], position: float, window: Window) -> None:
    """Write a state's name into its widest bar, where it has room."""
    left, width = max(spans, key=lambda span: span[1])
    if width / (window[1] - window[0]) * PLOT_INCHES > LETTER_INCHES * len(look.label) + 0.1:
        axes.text(
            left + width / 2, position, look.label, ha="center", va="center", fontsize=7, zorder=3,
            color="black" if look.hatch else ink_on(look.colour),
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0} if look.hatch else None,
        )  # fmt: skip


def _mark_flip(axes: Any, lanes: Sequence[Lane], positions: Sequence[float], timeline: Timeline, flip: Any) -> None:
    """A triangle at the end of the copies that this phase was waiting for."""
    filled = {
        (item.cta_idx, item.buffer, item.stage)
        for item in timeline.copies
        if (item.cta_idx, item.barrier, item.stage) == (flip.cta_idx, flip.barrier, flip.stage)
        and abs(item.end_cycle - flip.cycle) < 1e-6
    }
    for lane, position in zip(lanes, positions, strict=True):
        if lane.slot in filled:
            axes.plot([flip.cycle], [position], marker="<", markersize=4.5, color="black", zorder=3)


def _decorate(
    axes: Any, result: Result, lanes: Sequence[Lane], positions: Sequence[float], window: Window, *,
    shown: tuple[list[int], int],
) -> None:
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
    cycles = f"cycles {window[0]:,.0f} to {window[1]:,.0f} of {result.cycles:,.0f}"
    ctas, num_live = shown
    some = "" if len(ctas) == num_live else f"; {len(ctas)} of the {num_live} CTAs that it has meanwhile"
    axes.set_title(f"{result.kernel} on {result.gpu}: one SM, {cycles}{some}", loc="left", fontsize=10, fontweight="bold")


def _add_legend(figure: Any, seen: Mapping[str, Look], has_flips: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    order = [COPY.label, MMA.label, *(look.label for look in LOOKS.values())]
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
