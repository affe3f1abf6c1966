"""Shared parts of all plots: colours, fonts, and the conversion of a matplotlib figure to a Picture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from threading import RLock
from typing import Any

from gpusim.report.plots.picture import Picture, made

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
"""Colours that colour-blind readers can distinguish. Source: Okabe and Ito 2008."""

SMALLEST_PT = 7.0
"""Points of the smallest text, at the size at which a picture is made."""

DPI = 130

SETTINGS: dict[Any, Any] = {
    "font.size": 9.0, "axes.titlesize": 10.0, "axes.labelsize": 9.0, "xtick.labelsize": 8.0, "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0, "hatch.linewidth": 0.6, "svg.hashsalt": "gpusim", "svg.fonttype": "none",
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip
"""Settings of matplotlib. Text stays text, and equal input gives an equal file, whatever a user has set."""


ONE_AT_A_TIME = RLock()
"""Lock for matplotlib's settings, which belong to the process. A second thread would draw with the first one's."""


@contextmanager
def settings() -> Iterator[None]:
    """Context in which figures are drawn and rendered: SETTINGS on matplotlib's defaults, one thread at a time."""
    import matplotlib as mpl

    with ONE_AT_A_TIME, mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


def new_figure(width: float, height: float, layout: Any = "constrained") -> Any:
    """Empty matplotlib figure of that size in inches; ``layout``: how its parts are placed, None for by hand."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def headline(figure: Any, text: str) -> None:
    """Title of all panels."""
    figure.suptitle(text, fontsize=10, fontweight="bold", x=0.01, ha="left")


def picture_of(figure: Any, alt: str, path: str | Path | None = None, *, dpi: int = DPI) -> Picture:
    """Picture of a matplotlib figure, written to ``path`` if given. Its parts are placed once, for both formats.

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with settings():
        figure.set_dpi(dpi)  # hinting makes words as wide as they will be in the PNG
        if (layout := figure.get_layout_engine()) is not None:
            layout.execute(figure)
        figure.set_layout_engine("none")

    def render(kind: str) -> bytes:
        written = BytesIO()
        with settings():
            if kind == "svg":  # savefig would draw it twice
                canvas: Any = FigureCanvasSVG(figure)
                canvas.print_svg(written, metadata={"Date": None})
            else:
                canvas = FigureCanvasAgg(figure)
                canvas.print_png(written, metadata={"Software": None, "Description": alt})
        return written.getvalue()

    return made(Picture(alt, render), path)


def name_right(axes: Any, x: float, y: float, words: str, **looks: Any) -> None:
    """Write ``words`` to the right of a point, by an offset, since browsers drop leading spaces."""
    axes.annotate(words, (x, y), xytext=(4.0, 0.0), textcoords="offset points", va="center", fontsize=8, **looks)


def luminance(colour: str) -> float:
    """Luminance of ``#RRGGBB`` from 0 (black) to 1. Source: ITU-R BT.709, on linear light.

    >>> round(luminance("#FFFFFF"), 3), round(luminance("#0072B2"), 2), round(luminance("#E69F00"), 2)
    (1.0, 0.15, 0.42)
    """
    parts = (int(colour[1 + 2 * idx : 3 + 2 * idx], 16) / 255.0 for idx in range(3))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on ``#RRGGBB``.

    >>> ink_on("#0072B2"), ink_on("#F0E442")
    ('#FFFFFF', '#000000')
    """
    return "#000000" if luminance(colour) > 0.18 else "#FFFFFF"
