"""SVG minifier: matplotlib's SVG in a fifth of the bytes, with equal shapes to a tenth of a point."""

from __future__ import annotations

import re

_RECTANGLE = re.compile(r"M(\S+) (\S+)L(\S+) \2L\3 (\S+)L\1 \4z")

_CELL = r'<path d="M(?P<x>[-\d.]+) (?P<y>[-\d.]+)H(?P<to>[-\d.]+)V[-\d.]+H(?P=x)z" class="(?P<name>s\d+)"/>'
_ANY_CELL = r'<path d="M[-\d.]+ [-\d.]+H[-\d.]+V[-\d.]+H[-\d.]+z" class="s\d+"/>'

_GROUP = re.compile(r'<g id="[\w.]+"(?:/>|>((?:(?!</?g\b).)*)</g>)')
"""Pattern of a group that contains no other group and only names its contents."""

_CIRCLE = re.compile(r"M (\S+) (\S+) ((?:C(?: \S+){6} ){8})z")
"""Pattern of a circle in hatches: eight curves, half of them to the opposite point."""


def squeeze(svg: str) -> str:
    """Minified ``svg``: fewer digits and line breaks, no metadata; repeated styles are named once.

    >>> squeeze('<svg><path d="M 1.23456 2 L 3.5 2 L 3.5 4 L 1.23456 4 z" style="fill: red"/></svg>')
    '<svg><style>.s0{fill: red}</style><path d="M1.2 2H3.5V4H1.2z" class="s0"/></svg>'
    """
    svg = re.sub(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' d="([^"]*)"', lambda found: f' d="{_path(found[1])}"', svg)
    svg = re.sub(r'\b(x|y)="(-?\d+\.\d+)"', lambda found: f'{found[1]}="{_tenths(found[2])}"', svg)
    svg = re.sub(r">\s+<", "><", svg.replace(' transform="rotate(-0 ', ' transform="rotate(0 ')).strip()
    svg = re.sub(r' transform="rotate\(0 [^"]*"', "", svg)
    svg = _GROUP.sub(r"\1", _GROUP.sub(r"\1", svg.replace("\n", " ")))
    styles: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        clip = f"clip-path: {found['clip']}; " if found["clip"] else ""
        style = clip + found["style"]
        return f' class="{styles.setdefault(style, f"s{len(styles)}")}"'

    svg = re.sub(r'(?: clip-path="(?P<clip>[^"]*)")? style="(?P<style>[^"]*)"', name, svg)
    svg = re.sub(rf"(?:{_ANY_CELL}){{2,}}", _joined, svg)
    rules = "".join(f".{label}{{{style}}}" for style, label in styles.items())
    return re.sub(r"(<svg[^>]*>)", rf"\1<style>{rules}</style>", svg, count=1) if rules else svg


def _path(data: str) -> str:
    text = _CIRCLE.sub(_arcs, " ".join(data.split()))
    text = re.sub(r"-?\d+\.\d+", lambda found: _tenths(found[0]), text)
    text = re.sub(r"\s*([A-Za-z])\s*", r"\1", text)
    return _RECTANGLE.sub(r"M\1 \2H\3V\4H\1z", text)


def _joined(cells: re.Match[str]) -> str:
    """One path for rectangles of one style that follow one another from left to right without overlap, or in another row."""
    paths: list[str] = []
    last: tuple[str, str, float] | None = None
    for cell in re.finditer(_CELL, cells[0]):
        follows = last is not None and last[0] == cell["name"] and (last[1] != cell["y"] or float(cell["x"]) >= last[2])
        path = cell[0][: cell[0].index(' class="')].removeprefix('<path d="').removesuffix('"')
        if follows:
            paths[-1] += path
        else:
            if last is not None:
                paths[-1] += f'" class="{last[0]}"/>'
            paths.append(f'<path d="{path}')
        last = (cell["name"], cell["y"], float(cell["to"]))
    return "".join(paths) + (f'" class="{last[0]}"/>' if last is not None else "")


def _arcs(circle: re.Match[str]) -> str:
    curves = [[float(number) for number in curve.split()] for curve in circle[3].split("C")[1:]]
    (x, y), (across_x, across_y) = (float(circle[1]), float(circle[2])), curves[3][-2:]
    if max(abs(curves[-1][-2] - x), abs(curves[-1][-1] - y)) > 1e-3:  # it is not closed
        return circle[0]
    radius = f"{((x - across_x) ** 2 + (y - across_y) ** 2) ** 0.5 / 2:.1f}"
    start, across, half = f"{x:.6f} {y:.6f}", f"{across_x:.6f} {across_y:.6f}", f"A {radius} {radius} 0 1 0"
    return f"M {start} {half} {across} {half} {start} z"


def _tenths(number: str) -> str:
    return f"{float(number):.1f}".removesuffix(".0")
