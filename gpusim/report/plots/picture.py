"""Result of every plot: one picture as SVG and PNG, with a description for readers who cannot see it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from gpusim.report.output import check_output, write_whole

SUFFIXES = (".png", ".svg")
"""Suffixes of a picture's file name."""

LARGE_SVG_BYTES = 1_500_000
"""Bytes of an SVG above which a notebook shows PNG: thousands of cells make a page slow."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """Picture that can be shown, saved, or taken as text or bytes. Each format is created on demand.

    A notebook shows it as SVG (a very large one as PNG), never as both.
    """

    alt: str
    """Description of the picture with its numbers, one or two sentences."""
    render: Callable[[str], bytes] = field(repr=False)
    """Function that renders the picture as "svg" or "png"."""
    _made: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)

    @property
    def svg(self) -> str:
        """SVG text of the picture, with ``alt`` for screen readers."""
        if "svg" not in self._made:
            self._made["svg"] = _described(self.render("svg").decode(), self.alt).encode()
        return self._made["svg"].decode()

    @property
    def png(self) -> bytes:
        """PNG bytes of the picture."""
        if "png" not in self._made:
            self._made["png"] = self.render("png")
        return self._made["png"]

    def save(self, path: str | Path) -> None:
        """Write the picture to ``path``, as PNG or SVG by suffix.

        Raises:
            GpusimError: the suffix is unknown, or ``path`` cannot be written.
            OSError: the file cannot be written.
        """
        path = Path(path)
        check_output(path, flag="plot", suffixes=SUFFIXES)
        write_whole(path, self.png if path.suffix.lower() == ".png" else self.svg.encode())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Representation for Jupyter and myst-nb: one format, and ``alt`` where it cannot be shown."""
        svg = self.svg
        if len(svg) > LARGE_SVG_BYTES:
            return {"image/png": self.png, "text/plain": self.alt}
        return {"image/svg+xml": svg, "text/plain": self.alt}


def check_plot(path: str | Path | None) -> None:
    """Check before the work that ``save`` would accept ``path``; None is no path.

    Raises:
        GpusimError: the suffix is not in SUFFIXES, or ``path`` cannot be written.
    """
    if path is not None:
        check_output(Path(path), flag="plot", suffixes=SUFFIXES)


def made(picture: Picture, path: str | Path | None) -> Picture:
    """``picture``, written to ``path`` if given.

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        OSError: the file cannot be written.
    """
    if path is not None:
        picture.save(path)
    return picture


def _described(svg: str, alt: str) -> str:
    """SVG document with its description for screen readers."""
    return re.sub(r"<svg\b", lambda found: f'{found.group()} role="img" aria-label="{escape(alt)}"', svg, count=1)
