"""Pictures of layouts: text as CuTe prints it, SVG, and tables of offsets. No third-party imports.

A layout is drawn as a grid: mode 0 extends downwards, mode 1 and further modes to the right. Cells show the offset, or
thread and value. Each picture names its unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from gpusim.errors import LayoutError
from gpusim.layout import int_tuple as it
from gpusim.layout.algebra import coalesce, complement, repeats_of, show_tiler
from gpusim.layout.divide import tiler_remark
from gpusim.layout.int_tuple import IntTuple, show
from gpusim.layout.layout import CarriesLayout, Layout, inner_layout
from gpusim.layout.swizzle import ByteLayout

MAX_CELLS: Final = 128 * 128
"""Maximum number of cells of a picture."""

GREYS: Final = ("#ffffff", "#ececec", "#d9d9d9", "#c6c6c6", "#b3b3b3", "#a0a0a0", "#8d8d8d", "#7a7a7a")
"""Colours by offset mod 8, as in CUTLASS."""

COLORS: Final = ("#ffffff", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#d55e00", "#cc79a7", "#999999")
"""Colours by thread mod 8, distinguishable without seeing red and green. Source: Okabe and Ito 2008."""

_CELL_WIDTH, _CELL_HEIGHT, _MARGIN, _LETTER = 20, 26, 36, 6.1


def by_offset(offset: int) -> str:
    """One of eight greys, by offset mod 8."""
    return GREYS[offset % 8]


def by_bank(bytes_per_offset: float) -> Callable[[int], str]:
    """Function from an offset to one of eight colours, one for each group of four banks.

    ``bytes_per_offset``: unit of the offset in bytes; it may be half a byte.

    >>> by_bank(2)(0) == by_bank(2)(7) != by_bank(2)(8)
    True
    """
    return lambda offset: COLORS[int(offset * bytes_per_offset) // 16 % 8]


def unit_of(layout: Any) -> str:
    """Unit of a layout's offsets: "bytes" with a swizzle of bytes, otherwise "elements"."""
    is_bytes = isinstance(layout, ByteLayout) or isinstance(getattr(layout, "layout", None), ByteLayout)
    return "bytes" if is_bytes else "elements"


def _grid(layout: Layout | CarriesLayout) -> list[list[Any]]:
    """Offsets by row and column."""
    rows = it.product_each(layout.shape)[0] if layout.rank > 1 else 1
    columns = layout.size // rows
    if layout.size > MAX_CELLS:
        raise LayoutError(f"draw: {layout.size} cells of {layout}: slice it down to at most {MAX_CELLS}")
    return [[layout(row + rows * column) for column in range(columns)] for row in range(rows)]


# Text


def layout_text(layout: Layout | CarriesLayout, unit: str | None = None) -> str:
    """The offsets as a grid, in the format of CuTe's ``print_layout``. ``unit``: unit of the offsets, if not elements.

    >>> print(layout_text(Layout((2, 4), (4, 1))))
    (2,4):(4,1), offsets in elements
         0   1   2   3
       +---+---+---+---+
     0 | 0 | 1 | 2 | 3 |
       +---+---+---+---+
     1 | 4 | 5 | 6 | 7 |
       +---+---+---+---+
    """
    cells = [[show(offset) for offset in row] for row in _grid(layout)]
    width = max(len(cell) for row in cells for cell in [*row, str(len(row) - 1)])
    head = " ".join(f"{column:>{width + 1}} " for column in range(len(cells[0])))
    line = "   " + "+".join(["", *["-" * (width + 2)] * len(cells[0]), ""])
    body = [f"{i:>2} | {' | '.join(f'{cell:>{width}}' for cell in row)} |" for i, row in enumerate(cells)]
    framed = [text for row in body for text in (line, row)]
    return "\n".join([f"{layout}, offsets in {unit or unit_of(layout)}", "    " + head.rstrip(), *framed, line])


def offset_table(layout: Layout | CarriesLayout, element_bits: int | None = None) -> list[tuple[IntTuple, Any, Any]]:
    """(coordinate, offset in elements, offset in bytes) of every coordinate; None for an unknown unit.

    >>> from gpusim.layout import ComposedLayout, Swizzle
    >>> for row in offset_table(ComposedLayout(Swizzle(1, 0, 1), 0, Layout((2, 2), (2, 1))), element_bits=16):
    ...     print(row)
    ((0, 0), 0, 0)
    ((1, 0), 3, 6)
    ((0, 1), 1, 2)
    ((1, 1), 2, 4)
    """
    in_bytes = isinstance(layout, ByteLayout)
    bits = layout.element_bits if isinstance(layout, ByteLayout) else element_bits

    def both(offset: Any) -> tuple[Any, Any]:
        if in_bytes:
            return offset * 8 // (bits or 8), offset
        return offset, offset * bits // 8 if bits else None

    return [(it.idx2crd(i, layout.shape), *both(layout(i))) for i in range(layout.size)]


def table_text(layout: Layout | CarriesLayout, element_bits: int | None = None) -> str:
    """``offset_table`` as text.

    >>> print(table_text(Layout((2, 2), (2, 1)), element_bits=16))
    coordinate  elements  bytes
    (0,0)              0      0
    (1,0)              2      4
    (0,1)              1      2
    (1,1)              3      6
    """
    rows = [tuple(map(show, row)) for row in offset_table(layout, element_bits)]
    width = max(len("coordinate"), *(len(row[0]) for row in rows))
    lines = [f"{coord:<{width}}{elements:>10}{num_bytes:>7}" for coord, elements, num_bytes in rows]
    return "\n".join([f"{'coordinate':<{width}}{'elements':>10}{'bytes':>7}", *lines])


# SVG


def layout_svg(layout: Layout | CarriesLayout, color: Callable[[int], str] = by_offset, unit: str | None = None) -> str:
    """The offsets as a grid, in SVG. ``color``: function from an offset to its colour; ``unit``: unit of the offsets.

    >>> layout_svg(Layout((2, 4), (4, 1))).count("<rect")
    8
    """
    cells = [[((show(offset),), _fill(offset, color)) for offset in row] for row in _grid(layout)]
    return _svg(f"{layout}, offsets in {unit or unit_of(layout)}", cells)


def _fill(offset: Any, color: Callable[[int], str]) -> str:
    return color(offset) if isinstance(offset, int) else color(sum(it.leaves(offset)))


def tv_svg(layout_tv: Layout, tile: IntTuple, color: Callable[[int, int], str] | None = None) -> str:
    """Thread and value at each position of a tile, in SVG: ``layout_tv`` maps (thread, value) to a position.

    A position that several threads hold shows the first. A position that no thread holds stays empty.

    >>> svg = tv_svg(Layout((4, 2), (2, 1)), (2, 4))
    >>> ">T3<" in svg, ">V1<" in svg
    (True, True)

    Raises:
        LayoutError: ``layout_tv`` is no layout of threads and values, or leaves the tile.
    """
    rows, columns = (*it.product_each(tile), 1)[:2]
    held = holders(layout_tv, rows * columns)
    pick = color or (lambda thread, _value: COLORS[thread % 8])
    cells = [[_tv_cell(held.get(row + rows * column), pick) for column in range(columns)] for row in range(rows)]
    return _svg(f"{layout_tv}, (thread, value) of a tile of {show(tile)}", cells)


def _tv_cell(holder: tuple[int, int] | None, color: Callable[[int, int], str]) -> tuple[tuple[str, ...], str]:
    if holder is None:
        return (), "none"
    return (f"T{holder[0]}", f"V{holder[1]}"), color(*holder)


def holders(layout_tv: Layout, num_places: int) -> dict[int, tuple[int, int]]:
    """(thread, value) of each position: the inverse of a thread-value layout.

    >>> holders(Layout((2, 2), (2, 1)), 4)
    {0: (0, 0), 1: (0, 1), 2: (1, 0), 3: (1, 1)}

    Raises:
        LayoutError: no layout of threads and values, or positions outside of the tile.
    """
    if layout_tv.rank != 2 or layout_tv.cosize > num_places:
        raise LayoutError(f"draw: {layout_tv} is no layout of (thread, value) into {num_places} places: use its tile")
    num_threads, num_values = it.product_each(layout_tv.shape)
    found: dict[int, tuple[int, int]] = {}
    for thread in range(num_threads):
        for value in range(num_values):
            found.setdefault(layout_tv(thread, value), (thread, value))
    return dict(sorted(found.items()))


def _svg(title: str, cells: Sequence[Sequence[tuple[tuple[str, ...], str]]]) -> str:
    texts = [*(line for row in cells for lines, _ in row for line in lines), str(len(cells[0]) - 1)]
    wide = max(_CELL_WIDTH, math.ceil(_LETTER * max(map(len, texts))) + 6)
    high = _CELL_HEIGHT if any(len(lines) > 1 for row in cells for lines, _ in row) else _CELL_WIDTH
    width = max(_MARGIN + wide * len(cells[0]) + 1, math.ceil(_LETTER * len(title)) + 4)
    height = 2 * _MARGIN + high * len(cells) + 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="monospace" font-size="10" text-anchor="middle">',
        f"<title>{escape(title)}</title>",
        f'<text x="2" y="14" text-anchor="start">{escape(title)}</text>',
        *(_label(_MARGIN + wide * (j + 0.5), 2 * _MARGIN - 6, str(j)) for j in range(len(cells[0]))),
    ]
    for i, row in enumerate(cells):
        top = 2 * _MARGIN + high * i
        parts.append(_label(_MARGIN / 2, top + high / 2 + 4, str(i)))
        parts += [_cell(_MARGIN + wide * j, top, wide, high, lines, fill) for j, (lines, fill) in enumerate(row)]
    return "\n".join([*parts, "</svg>", ""])


def _cell(left: float, top: float, wide: float, high: float, lines: tuple[str, ...], fill: str) -> str:
    box = f'<rect x="{left:g}" y="{top:g}" width="{wide:g}" height="{high:g}" fill="{fill}" stroke="#000"/>'
    first = top + high / 2 + 4 - _LETTER * (len(lines) - 1)
    texts = (_label(left + wide / 2, first + 2 * _LETTER * i, line) for i, line in enumerate(lines))
    return box + "".join(texts)


def _label(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}">{escape(text)}</text>'


# Files


def draw_layout(layout: Layout | CarriesLayout, filename: str | Path | None = None, **options: Any) -> str:
    """The picture of a layout. It is written to ``filename`` if given, whose suffix (.svg, .txt) selects the format.

    >>> draw_layout(Layout((2, 4))).startswith("<svg")
    True

    Raises:
        LayoutError: another suffix, or too many cells.
    """
    suffix = Path(filename).suffix if filename is not None else ".svg"
    if suffix not in (".svg", ".txt"):
        raise LayoutError(f"draw: {filename}: use a name that ends in .svg or .txt")
    return _written(layout_svg(layout, **options) if suffix == ".svg" else layout_text(layout), filename)


def draw_tv(layout_tv: Layout, tile: IntTuple, filename: str | Path | None = None, **options: Any) -> str:
    """The picture of a thread-value layout in SVG. It is written to ``filename`` if given.

    >>> draw_tv(Layout((2, 2), (2, 1)), (2, 2)).count(">T1<")
    2
    """
    return _written(tv_svg(layout_tv, tile, **options), filename)


def _written(picture: str, filename: str | Path | None) -> str:
    if filename is not None:
        Path(filename).write_text(picture, encoding="utf-8")
    return picture


# In words


def explain(operation: Callable[..., Any], layout: Any, other: Any) -> str:
    """The steps of a composition, divide or product in words, with a remark on its tiler.

    >>> from gpusim.layout import composition, zipped_divide
    >>> print(explain(composition, Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))))
    composition of (6,2):(8,2) with (4,3):(3,1)
      mode 4:3 picks 0, 3, 6, 9 and lands on 0, 24, 2, 26: (2,2):(24,2)
      mode 3:1 picks 0, 1, 2 and lands on 0, 8, 16: 3:8
    result: ((2,2),3):((24,2),8)
    >>> print(explain(zipped_divide, Layout((4, 8), (8, 1)), Layout((2, 4), (4, 1))).splitlines()[1])
      the tiler (2,4):(4,1) is a Layout: it divides the flattened layout, as a list of 8 places in one dimension; for
    """
    result = operation(layout, other)
    name = operation.__name__
    lines = [f"{name} of {layout} with {_show_any(other)}"]
    inner = inner_layout(layout) if isinstance(layout, Layout | CarriesLayout) else None
    if name.endswith("divide") and inner is not None:
        lines += [f"  {line}" for line in (tiler_remark(inner, other) or "").splitlines()]
    if name.endswith(("divide", "product")) and inner is not None and isinstance(other, Layout):
        lines.append(_rest_of(name, inner, other))
    if name == "composition" and isinstance(other, Layout) and inner is not None and isinstance(result, Layout):
        lines += _modes_of(inner, other, result)
    return "\n".join([*lines, f"result: {result}"])


def _show_any(thing: Any) -> str:
    return show_tiler(thing) if isinstance(thing, tuple) else show(thing)


def _rest_of(name: str, layout: Layout, other: Layout) -> str:
    if name.endswith("divide"):
        return f"  tiles repeat at {complement(other, coalesce(layout).shape)}, the complement of {other}"
    return f"  copies fit at {repeats_of(layout, layout.size * other.cosize)}, the complement of {layout}"


def _modes_of(layout: Layout, other: Layout, result: Layout) -> list[str]:
    modes = zip(other, result, strict=True) if isinstance(other.shape, tuple) else [(other, result)]
    return [f"  mode {mode} picks {_first(mode)} and lands on {_first(piece)}: {piece}" for mode, piece in modes]


def _first(layout: Layout, most: int = 8) -> str:
    shown = ", ".join(show(layout(i)) for i in range(min(layout.size, most)))
    return shown + (", ..." if layout.size > most else "")
