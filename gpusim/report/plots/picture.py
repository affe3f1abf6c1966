"""What every plot gives: one picture, as SVG and as PNG, with a sentence for those who cannot see it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from gpusim.report.output import check_output, write_whole

SUFFIXES = (".png", ".svg")
"""What a picture's name may end in."""

LARGE_SVG_BYTES = 1_500_000
"""A notebook shows larger ones as PNG: thousands of cells make a page slow."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture that can be shown, saved, or taken as text or bytes; each format is made when it is first asked for.

    A notebook shows it by itself, as SVG (a very large one as PNG), never as both.
    """

    alt: str
    """What it shows, with its numbers, in a sentence or two."""
    render: Callable[[str], bytes] = field(repr=False)
    """The picture as "svg" or "png"."""
    _made: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)

    @property
    def svg(self) -> str:
        """The picture as SVG, which carries ``alt`` for screen readers."""
        if "svg" not in self._made:
            self._made["svg"] = _described(self.render("svg").decode(), self.alt).encode()
        return self._made["svg"].decode()

    @property
    def png(self) -> bytes:
        """The picture as PNG."""
        if "png" not in self._made:
            self._made["png"] = self.render("png")
        return self._made["png"]

    def save(self, path: str | Path) -> None:
        """Write it to ``path``, as PNG or SVG by suffix.

        Raises:
            GpusimError: another suffix, or nowhere to write.
            OSError: the file cannot be written.
        """
        path = Path(path)
        check_output(path, flag="plot", suffixes=SUFFIXES)
        write_whole(path, self.png if path.suffix.lower() == ".png" else self.svg.encode())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What Jupyter and myst-nb show: one format, and ``alt`` where neither can be shown."""
        svg = self.svg
        if len(svg) > LARGE_SVG_BYTES:
            return {"image/png": self.png, "text/plain": self.alt}
        return {"image/svg+xml": svg, "text/plain": self.alt}


def check_plot(path: str | Path | None) -> None:
    """Refuse a path that ``save`` would refuse, before the work; None is no path.

    Raises:
        GpusimError: another suffix than SUFFIXES, or nowhere to write.
    """
    if path is not None:
        check_output(Path(path), flag="plot", suffixes=SUFFIXES)


def made(picture: Picture, path: str | Path | None) -> Picture:
    """The picture, written to ``path`` if there is one.

    Raises:
        GpusimError: another suffix, or nowhere to write.
        OSError: the file cannot be written.
    """
    if path is not None:
        picture.save(path)
    return picture


def _described(svg: str, alt: str) -> str:
    """An SVG document that says to screen readers what it shows."""
    return re.sub(r"<svg\b", lambda found: f'{found.group()} role="img" aria-label="{escape(alt)}"', svg, count=1)
