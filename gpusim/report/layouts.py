"""CuTe layouts as text and JSON: properties, a grid of offsets, a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from gpusim.errors import LayoutError
from gpusim.layout import ByteLayout, ComposedLayout, Layout, Swizzle, idx2crd, is_injective, product_each
from gpusim.layout.draw import MAX_CELLS, layout_text, unit_of
from gpusim.layout.int_tuple import IntTuple, add, leaves, show
from gpusim.layout.layout import MAX_WALKED, CarriesLayout, inner_layout

AnyLayout = Layout | ComposedLayout | ByteLayout

_CHUNK = 1 << 20  # offsets of one array
_MOST_IN_ARRAYS = 1 << 48  # times the bytes of an element, this fits an array's integers

MOST_ROWS = 10_000
"""Most rows of a table that are printed."""


@dataclass(frozen=True, slots=True)
class Window(CarriesLayout):
    """First rows and columns of a layout's grid, drawn in its place.

    >>> window = Window(Layout((128, 64), (64, 1)), num_rows=2, num_columns=3)
    >>> [window(index) for index in range(window.size)], str(window)
    ([0, 64, 1, 65, 2, 66], '(128,64):(64,1)')
    """

    layout: AnyLayout
    num_rows: int
    num_columns: int
    start: Any = 0
    """Offset that is added to each offset."""

    @property
    def inner(self) -> Layout:
        """Layout of the window's coordinates."""
        return Layout((self.num_rows, self.num_columns))

    def with_inner(self, inner: Layout) -> Window:
        """Refused, since a window is for drawing only.

        Raises:
            LayoutError: always.
        """
        raise LayoutError(f"window of {self.layout} cannot become {inner}: use the layout itself")

    def __call__(self, *coord: Any) -> Any:
        """Offset at a coordinate of the window."""
        row, column = idx2crd(self.inner(*coord), self.inner.shape)
        return add(self.start, self.layout(row + column * grid_of(self.layout)[0]))

    def __str__(self) -> str:
        return with_start(self.layout, self.start)


def with_start(layout: AnyLayout, start: Any) -> str:
    """Notation of a layout, with the start of its offsets if it is not 0.

    >>> with_start(Layout(16, 16), 3), with_start(Layout(16, 16), 0)
    ('16:16 from offset 3 on', '16:16')
    """
    return f"{layout} from offset {show(start)} on" if any(leaves(start)) else str(layout)


def grid_of(layout: AnyLayout | Window) -> tuple[int, int]:
    """(rows, columns) of a layout's picture: mode 0 goes down, all others go right; a single mode goes right.

    >>> grid_of(Layout((4, (2, 3)))), grid_of(Layout(8)), grid_of(Layout((2, 3, 5)))
    ((4, 6), (1, 8), (2, 15))
    """
    num_rows = product_each(layout.shape)[0] if layout.rank > 1 else 1
    return num_rows, layout.size // num_rows


def _offset_chunks(layout: AnyLayout) -> Iterator[Any]:
    import numpy as np

    for start in range(0, layout.size, _CHUNK):
        yield layout(np.arange(start, min(start + _CHUNK, layout.size)))


def cosize_of(layout: AnyLayout) -> int:
    """One more than the largest offset, swizzle included; in elements, or in bytes up to the end of the last element.

    >>> cosize_of(ByteLayout(Swizzle(3, 4, 3), Layout((8, 64), (64, 1)), element_bits=16))
    1024
    """
    if isinstance(layout, Layout):
        return layout.cosize
    if layout.size > MAX_WALKED:
        raise LayoutError(
            f"{layout}: {layout.size} coordinates under a swizzle, too many to look at each: use at most {MAX_WALKED}"
        )
    last = max(int(chunk.max()) for chunk in _offset_chunks(layout))
    return last + (layout.element_bits // 8 if isinstance(layout, ByteLayout) else 1)


def is_one_to_one(layout: AnyLayout) -> bool:
    """Whether no two coordinates share an offset. A swizzle, a bijection, does not change that."""
    if isinstance(layout, ComposedLayout) and not isinstance(layout.layout_a, Swizzle):
        import numpy as np

        return len(np.unique(np.concatenate([*_offset_chunks(layout)]))) == layout.size
    return is_injective(inner_layout(layout))


def layout_facts(
    layout: AnyLayout, element_bits: int | None = None, unit: str | None = None, start: Any = 0
) -> dict[str, Any]:
    """Properties of a layout as a JSON document; ``unit``: unit of offsets and cosize, if not elements (or bytes).

    ``start`` is added to each offset; the cosize is that of the layout alone.

    >>> facts = layout_facts(Layout((4, (2, 3)), (6, (3, 1))))
    >>> facts["size"], facts["cosize"], facts["rank"], facts["depth"], facts["is_compact"]
    (24, 24, 2, 2, True)
    """
    bits = layout.element_bits if isinstance(layout, ByteLayout) else element_bits
    inner = inner_layout(layout)
    size_in_unit = layout.size * (layout.element_bits // 8 if isinstance(layout, ByteLayout) else 1)
    cosize, one_to_one = cosize_of(layout), is_one_to_one(layout)
    facts: dict[str, Any] = {
        "layout": str(layout), "shape": show(inner.shape), "stride": show(inner.stride),
        "start_offset": start, "size": layout.size, "cosize": cosize, "unit": unit or unit_of(layout),
        "rank": layout.rank, "depth": layout.depth,
        "is_injective": one_to_one, "is_compact": one_to_one and cosize == size_in_unit, "element_bits": bits,
    }
    facts |= {"swizzle": swizzle_units(layout, bits)} if not isinstance(layout, Layout) else {"swizzle": None}
    if layout.size <= MAX_CELLS:
        offsets = [add(start, offset) for offset in _all_offsets(layout)]
        return {**facts, "offsets": list(map(show, offsets)) if inner.has_basis else offsets}
    return {**facts, "offsets": None, "num_offsets_left_out": layout.size}


def _all_offsets(layout: AnyLayout) -> list[Any]:
    inner = inner_layout(layout)
    is_small = not inner.has_basis and inner.cosize + abs(getattr(layout, "offset", 0)) <= _MOST_IN_ARRAYS
    if not is_small or isinstance(getattr(layout, "layout_a", None), Layout):  # coordinates, or large offsets
        return [layout(index) for index in range(layout.size)]
    return [offset for chunk in _offset_chunks(layout) for offset in chunk.tolist()]


def swizzle_units(layout: AnyLayout, element_bits: int | None) -> Mapping[str, str | None] | None:
    """Swizzle of a layout in elements and in bytes; None for a unit in which it has no form.

    >>> swizzle_units(ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1))), element_bits=16)
    {'elements': 'Sw<3,3,3>', 'bytes': 'Sw<3,4,3>'}
    """
    swizzle = layout.swizzle if isinstance(layout, ByteLayout) else getattr(layout, "layout_a", None)
    if isinstance(swizzle, Swizzle) and not swizzle.num_bits:
        return {"elements": "none", "bytes": "none"}
    if isinstance(layout, ByteLayout):
        return {"elements": _try(lambda: layout.to_elements().layout_a), "bytes": str(layout.swizzle)}
    if isinstance(layout, ComposedLayout) and isinstance(layout.layout_a, Swizzle):
        in_bytes = None if element_bits is None else _try(lambda: layout.to_bytes(element_bits).swizzle)
        return {"elements": str(layout.layout_a), "bytes": in_bytes}
    return None


def _try(convert: Callable[[], Any]) -> str | None:
    try:
        return str(convert())
    except LayoutError:  # a swizzle that moves parts of an element has no form in elements
        return None


# ---------------------------------------------------------------------------------------------- text
def facts_line(layout: AnyLayout) -> str:
    """Properties of a layout in one line.

    >>> facts_line(Layout((4, 8), (16, 1)))
    '(4,8):(16,1)  4 x 8 coordinates, cosize 56, injective, not compact'
    """
    facts = layout_facts(layout)
    words = [f"{' x '.join(map(str, product_each(layout.shape)))} coordinates", f"cosize {facts['cosize']}"]
    words += [f"{'' if facts[f'is_{word}'] else 'not '}{word}" for word in ("injective", "compact")]
    return f"{layout}  {', '.join(words)}"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Unit and start of the offsets to show."""

    unit: str | None = None
    """Unit: elements, bytes or another; None: the layout's."""
    start: Any = 0
    """Offset of the first coordinate."""


AS_IT_IS = Offsets()


def render_layout(
    layout: AnyLayout, console: Console, *, element_bits: int | None, title: str, max_rows: int, offsets: Offsets = AS_IT_IS
) -> None:
    """Print a layout's properties, grid and table, at most ``max_rows`` rows of each and what fits the console."""
    unit, start = offsets.unit, offsets.start
    facts = layout_facts(layout, element_bits, unit, start)
    console.print(f"[bold]{title}[/]  {with_start(layout, start)}", soft_wrap=True)
    console.print(_facts_table(layout, facts))
    console.print()
    for line in grid_lines(layout, max_rows=max_rows, width=console.width, unit=unit, start=start):
        console.print(line, markup=False, soft_wrap=True)
    console.print()
    console.print(_offsets_table(layout, element_bits, max_rows, start))
    if layout.size > max_rows:
        left = layout.size - max_rows
        how = f"--rows {layout.size} shows all" if layout.size <= MOST_ROWS else "--slice shows others"
        console.print(f"... and {left} more coordinates: {how}", soft_wrap=True)
    console.print()


def _facts_table(layout: AnyLayout, facts: Mapping[str, Any]) -> Table:
    unit, num_bits = facts["unit"], facts["element_bits"]
    is_coordinates = inner_layout(layout).has_basis
    stride_unit = "elements" if isinstance(layout, ByteLayout) else unit
    of_elements = f", of elements of {num_bits} bits" if num_bits and stride_unit == "elements" else ""
    has_start = facts["start_offset"] != 0
    from_start = ", counted from the start" if has_start else ""
    rows = [
        ("shape", facts["shape"], f"{' x '.join(map(str, product_each(layout.shape)))} coordinates"),
        ("stride", facts["stride"], "n@m is n along mode m" if is_coordinates else f"in {stride_unit}{of_elements}"),
        *([("start", show(facts["start_offset"]), "the offset of the first coordinate")] if has_start else []),
        ("size", str(facts["size"]), "coordinates"),
        ("cosize", str(facts["cosize"]), "coordinates below the largest of each mode, and it" if is_coordinates else
         f"{unit}: one more than the largest offset{from_start}"),
        ("rank, depth", f"{facts['rank']}, {facts['depth']}", "modes, and levels of nesting"),
        ("injective", _yes(facts["is_injective"]),
         f"{'no two' if facts['is_injective'] else 'some'} coordinates share an offset"),
        ("compact", _yes(facts["is_compact"]), _compact_words(facts)),
    ]
    if facts["swizzle"] is not None:
        in_elements, in_bytes = (facts["swizzle"][name] for name in ("elements", "bytes"))
        if in_elements == "none":
            rows.append(("swizzle", in_elements, ""))
        elif in_bytes is None:
            rows.append(("swizzle", f"{in_elements}", f"in {stride_unit} (--dtype says what that is in bytes)"))
        elif in_elements == in_bytes:
            rows.append(("swizzle", in_elements, "in elements and in bytes"))
        else:
            rows.append(("swizzle", in_elements or "-", f"in {stride_unit}" if in_elements else
                         "in elements it has no form: it moves parts of one"))
            rows.append(("", in_bytes, "in bytes: the same swizzle"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for row in rows:
        table.add_row("  " + row[0], *row[1:])
    return table


def _compact_words(facts: Mapping[str, Any]) -> str:
    if facts["is_compact"]:
        return "injective, and no offset below the cosize is free"
    return "some offset below the cosize is free" if facts["is_injective"] else "not injective"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def grid_lines(layout: AnyLayout, *, max_rows: int, width: int, unit: str | None = None, start: Any = 0) -> list[str]:
    r"""The grid in at most ``max_rows`` rows and ``width`` characters, with a last line that says what was cut.

    >>> print("\n".join(grid_lines(Layout((128, 64), (64, 1)), max_rows=2, width=40)))
    (128,64):(64,1), offsets in elements
          0    1    2    3    4    5
       +----+----+----+----+----+----+
     0 |  0 |  1 |  2 |  3 |  4 |  5 |
       +----+----+----+----+----+----+
     1 | 64 | 65 | 66 | 67 | 68 | 69 |
       +----+----+----+----+----+----+
    cut to 2 of 128 rows, 6 of 64 columns: --rows 128, a wider terminal or --slice shows more
    """
    num_rows, num_columns = grid_of(layout)
    shown_rows = min(num_rows, max_rows)
    shown_columns = min(num_columns, MAX_CELLS // shown_rows)
    while True:
        drawn = layout_text(Window(layout, shown_rows, shown_columns, start), unit).splitlines()
        if shown_columns == 1 or len(drawn[2]) <= width:
            break
        cell = (len(drawn[2]) - 4) // shown_columns
        shown_columns = max(1, min(shown_columns - 1, (width - 4) // cell))
    if (shown_rows, shown_columns) == (num_rows, num_columns):
        return drawn
    hints = [f"--rows {num_rows}"] if shown_rows < num_rows else []
    hints += ["a wider terminal"] if shown_columns < num_columns else []
    rows = f"{shown_rows} of {num_rows} rows" if shown_rows < num_rows else ""
    columns = f"{shown_columns} of {num_columns} columns" if shown_columns < num_columns else ""
    cut = ", ".join(part for part in (rows, columns) if part)
    return [*drawn, f"cut to {cut}: {', '.join(hints)} or --slice shows more"]


def _offsets_table(layout: AnyLayout, element_bits: int | None, max_rows: int, start: Any) -> Table:
    bits = layout.element_bits if isinstance(layout, ByteLayout) else element_bits
    inner = inner_layout(layout)
    is_swizzled = not isinstance(layout, Layout)
    headers = ["index", "coordinate", *(["before the swizzle"] if is_swizzled else []), "offset"]
    headers += ["byte"] if bits and bits % 8 == 0 and not inner.has_basis else []
    table = Table(box=None, padding=(0, 2), header_style="bold", pad_edge=True)
    for header in headers:
        table.add_column(header, justify="left" if header == "coordinate" else "right", no_wrap=True)
    for index in range(min(layout.size, max_rows)):
        coord: IntTuple = idx2crd(index, layout.shape)
        before = [show(getattr(layout, "offset", 0) + inner(index))] if is_swizzled else []
        elements, num_bytes = _both_units(add(start, layout(index)), isinstance(layout, ByteLayout), bits)
        row = [str(index), show(coord), *before, show(elements), show(num_bytes)]
        table.add_row(*row[: len(headers)])
    return table


def _both_units(offset: Any, is_bytes: bool, bits: int | None) -> tuple[Any, Any]:
    if is_bytes and bits:
        return offset * 8 // bits, offset
    return offset, offset * bits // 8 if bits and isinstance(offset, int) else None
