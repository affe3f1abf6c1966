"""Plot of lanes and shared-memory banks: without the swizzle, as it is, and with a bank conflict fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from gpusim.layout import Swizzle
from gpusim.layout.int_tuple import show
from gpusim.report.banks import TURNS, swizzle_words, ways
from gpusim.report.number_format import count
from gpusim.report.plots.figure import ORANGE, PURPLE, SKY, YELLOW, headline, new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot
from gpusim.workload.smem.bank_conflict_fixes import Fix, JointStudy, Study
from gpusim.workload.smem.banks import NUM_BANKS, Instruction, analyze

WIDEST = 62
"""Letters of a line above a panel."""

PHASES = (SKY, ORANGE, PURPLE, YELLOW)
"""Colours of the phases' bands, in turn."""

NONE = Swizzle(0, 0, 0)

PANEL_INCHES = 5.6, 7.4

LETTERS_AN_INCH = 12
"""Letters per inch of the line above all panels."""

CELL = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)])

_FREE, _CONFLICTS = "#009E73", ("#F0E442", "#E69F00", "#D55E00", "#A02000")
"""Colours of Okabe and Ito: green is served at once, the others by the wavefronts that a lane waits (1, 2-3, 4-7, more)."""


def plot_banks(study: Study, path: str | Path | None = None) -> Picture:
    """Plot which bank serves which lane in which wavefront, before and after a fix; written to ``path`` if given.

    Before: a swizzled tile without its swizzle. After: the given tile, and if it has conflicts the tile with a fix.

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        OSError: the file cannot be written.
    """
    return _plot([study], best_fix(study), path)


def plot_joint(joint: JointStudy, path: str | Path | None = None) -> Picture:
    """Plot as ``plot_banks`` for several accesses to one tile: a row each, with the one layout that suits all.

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        OSError: the file cannot be written.
    """
    return _plot(joint.studies, joint.fix, path)


def _plot(studies: Sequence[Study], fix: Fix | None, path: str | Path | None) -> Picture:
    check_plot(path)
    rows, sentences = [], []
    for study in studies:
        here, name = study.instructions[study.worst], f"{study.access.op}, " if len(studies) > 1 else ""
        panels, plain = [], replace(study.access.tile, swizzle=NONE)
        if study.access.tile.swizzle.num_bits:
            before = analyze(replace(study.access, tile=plain))[study.worst]
            panels.append((_title(f"{name}without the swizzle", plain, before), before))
        panels.append((_title(f"{name}as it is", study.access.tile, here), here))
        if fix is not None:
            mended = analyze(replace(study.access, tile=fix.tile))[study.worst]
            panels.append((_title(f"{name}mended", fix.tile, mended), mended))
        rows.append(panels)
        words = [f"{study.access.op} takes {count(here.num_wavefronts, 'wavefront')} ({ways(here.num_ways)})"]
        if study.access.tile.swizzle.num_bits:
            words.append(f"without its swizzle {before.num_wavefronts} ({ways(before.num_ways)})")
        if fix is not None:
            words.append(f"mended {mended.num_wavefronts} ({ways(mended.num_ways)})")
        sentences.append(f"{', '.join(words)}, at best {here.num_ideal_wavefronts}")
    alt = f"Lanes by banks: {'; '.join(sentences)}."
    return picture_of(_draw(" and ".join(study.access.op for study in studies), rows), alt, path, dpi=120)


def best_fix(study: Study) -> Fix | None:
    """Swizzle that helps, else the padding; None if there are no conflicts, or nothing helps."""
    if study.census.is_free:
        return None
    swizzle = study.swizzle
    return swizzle if swizzle is not None and (swizzle.census.is_free or study.padding is None) else study.padding


def _title(what: str, tile: Any, found: Instruction) -> str:
    cost = f"{count(found.num_wavefronts, 'wavefront')}, {found.num_ideal_wavefronts} at best: {ways(found.num_ways)}"
    lines = (f"{what}: {cost}", f"layout {tile.inner}", f"swizzle {swizzle_words(tile)}")
    return "\n".join(fill(line, WIDEST) for line in lines)


def _draw(op: str, rows: Sequence[Sequence[tuple[str, Instruction]]]) -> Any:
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with settings():
        layout = ConstrainedLayoutEngine(w_pad=0.1)  # inches, for phase labels at the right and lane labels at the left
        width = PANEL_INCHES[0] * max(map(len, rows))
        figure = new_figure(width, PANEL_INCHES[1] * len(rows), layout)
        areas = figure.subplots(len(rows), max(map(len, rows)), squeeze=False)
        for panels, axes in zip(rows, areas, strict=True):
            for (title, found), area in zip(panels, axes, strict=False):
                _draw_panel(area, title, found)
            for area in axes[len(panels) :]:
                area.set_axis_off()
            axes[0].set_ylabel("lane, and where its first element lies")  # of its neighbour, too, beyond the phases
        most = max(int(found.turns.max()) for panels in rows for _, found in panels)
        letters = f" ({TURNS[10]} is the 10th, {TURNS[11]} the 11th, ...)" if most > 9 else ""
        title = f"{op}: the wavefront of its phase in which a bank serves a lane{letters}"
        headline(figure, fill(title, int(LETTERS_AN_INCH * width)))
    return figure


def _draw_panel(axes: Any, title: str, found: Instruction) -> None:
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path as Shape

    rows = [lane for phase in found.phases for lane in phase.lanes]
    cells: dict[str, list[tuple[int, int]]] = {}
    for row, lane in enumerate(rows):
        for bank in range(NUM_BANKS):
            turn = int(found.turns[lane, bank])
            cells.setdefault(_color(turn), []).append((bank, row))
            if turn:
                ink = "#FFFFFF" if _color(turn) == _CONFLICTS[-1] else "#000000"
                axes.text(
                    bank + 0.5, row + 0.52, TURNS[turn], ha="center", va="center", fontsize=7, color=ink, in_layout=False
                )
    for color, places in cells.items():  # one shape per colour: a thousand are slow to draw and to show
        corners = (CELL + np.array(places)[:, None, :]).reshape(-1, 2)
        codes = [Shape.MOVETO, *[Shape.LINETO] * 3, Shape.CLOSEPOLY] * len(places)
        shape = Shape(corners, codes)
        axes.add_artist(PathPatch(shape, facecolor=color, edgecolor="#DDDDDD", linewidth=0.4, snap=True))
    start = 0
    for i, phase in enumerate(found.phases):
        axes.plot([0, NUM_BANKS + 1.2], [start, start], color="#000000", linewidth=1.2, clip_on=False)
        axes.add_patch(Rectangle(
            (NUM_BANKS + 0.2, start), 1.0, len(phase.lanes), facecolor=PHASES[i % len(PHASES)], linewidth=0, clip_on=False
        ))  # fmt: skip
        label = f"phase {i}: {count(phase.num_wavefronts, 'wavefront')}"
        axes.text(NUM_BANKS + 1.6, start + len(phase.lanes) / 2, label, va="center", ha="left", fontsize=8, rotation=270)
        start += len(phase.lanes)
    axes.set(xlim=(0, NUM_BANKS), ylim=(len(rows), 0), xlabel="bank (4 bytes)")
    axes.set_xticks([bank + 0.5 for bank in range(0, NUM_BANKS, 4)], [str(bank) for bank in range(0, NUM_BANKS, 4)])
    labels = [f"{lane}  {show(place) if (place := found.places[lane]) is not None else ''}" for lane in rows]
    axes.set_yticks([row + 0.5 for row in range(len(rows))], labels, fontsize=7)
    axes.set_title(title, fontsize=8.5, loc="left")
    axes.tick_params(length=0)
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)


def _color(turn: int) -> str:
    if turn <= 1:
        return _FREE + "AA" if turn else "#FFFFFF"
    return _CONFLICTS[min((turn - 1).bit_length() - 1, len(_CONFLICTS) - 1)]
