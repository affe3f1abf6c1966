"""CuTe notation and layout algebra for the ``layout`` command, with one option per operation.

In: text of the command line. Out: layouts, and for each operation a step with the result, its unit and remarks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gpusim.errors import LayoutError
from gpusim.report.layout_arguments import any_layout, naming, without_layout

if TYPE_CHECKING:

    from gpusim.layout import Layout
    from gpusim.layout.notation import Notation


@dataclass(frozen=True, slots=True)
class Operation:
    """Operation of the algebra as an option: its name is CuTe's, ``wants`` is the placeholder of its argument."""

    name: str
    wants: str
    help: str

    @property
    def flag(self) -> str:
        """Option on the command line."""
        return f"--{self.name.replace('_', '-')}"


OPERATIONS = (
    Operation("composition", "LAYOUT", "the layout at the places of another: R(c) = EXPR(LAYOUT(c)); a tiler, too"),
    Operation("coalesce", "", "the same offsets in as few modes as possible"),
    Operation("coalesce_by", "PROFILE", "coalesce each mode of PROFILE, for example (1,1), by itself"),
    Operation("filter", "", "coalesce, without modes of stride 0 and size 1"),
    Operation("complement", "COSIZE", "what is left out, up to COSIZE; _ for the layout's own cosize"),
    Operation("right_inverse", "", "from offset to index, as far as offsets are contiguous"),
    Operation("left_inverse", "", "from offset to index, for injective layouts"),
    Operation("logical_divide", "TILER", "split each mode into (tile, rest)"),
    Operation("zipped_divide", "TILER", "((tile), (rest)): all of a tile in mode 0"),
    Operation("tiled_divide", "TILER", "((tile), rest, ...)"),
    Operation("flat_divide", "TILER", "(tile, ..., rest, ...)"),
    Operation("logical_product", "TILER", "(block, repeats)"),
    Operation("zipped_product", "TILER", "((block), (repeats))"),
    Operation("tiled_product", "TILER", "((block), repeats, ...)"),
    Operation("flat_product", "TILER", "(block, ..., repeats, ...)"),
    Operation("blocked_product", "LAYOUT", "copies of the block, each in one piece"),
    Operation("raked_product", "LAYOUT", "copies of the block, interleaved"),
    Operation("upcast", "N", "the same places in a unit N times as large"),
    Operation("downcast", "N", "the same places in a unit N times as small"),
    Operation("slice", "COORD", "fix some modes: (_,3) keeps mode 0 of column 3"),
    Operation("swizzle", "B,M,S|MODE", "a swizzle over the layout: B,M,S in elements; 32B, 64B or 128B with --dtype"),
    Operation("tile_to_shape", "SHAPE", "the layout repeated until it fills SHAPE; --order says along which mode first"),
)
"""Operations in the order of the help."""

_EXPLAINED = ("composition", "divide", "product")
_MAY_LACK_ARGUMENT = ("complement", "coalesce_by")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Unit of a layout's offsets: elements, wider or narrower elements, or (of an inverse) indices; and the start offset.

    >>> Unit(bits=16).after("upcast", 8).words, Unit().after("upcast", 8).words, Unit().after("downcast", 2).words
    ('elements of 128 bits', 'units of 8 elements', 'units of 1/2 element')
    """

    bits: int | None = None
    """Bits of the unit, if it is known and has a width."""
    factor: Fraction = Fraction(1)
    """Elements in the unit."""
    is_index: bool = False
    start: Any = 0
    """Offset of the first coordinate, which the layout does not contain: that of what a slice fixed."""

    @property
    def words(self) -> str | None:
        """Unit for captions; None where none is needed."""
        if self.is_index:
            return "indices"
        if self.factor == 1:
            return None
        if self.bits is not None:
            return f"elements of {self.bits} bits"
        return f"units of {self.factor} element{'s' if self.factor > 1 else ''}"

    @property
    def element_bits(self) -> int | None:
        """Bits of the unit; None if it is an index."""
        return None if self.is_index else self.bits

    def after(self, operation: str, argument: Any) -> Unit:
        """Unit of an operation's result.

        Raises:
            LayoutError: elements do not divide into that many parts, or the start lies within a wider one.
        """
        from gpusim.layout.int_tuple import show

        if operation in ("right_inverse", "left_inverse"):
            return replace(self, is_index=not self.is_index, start=0)
        if operation == "complement":
            return replace(self, start=0)
        if operation not in ("upcast", "downcast"):
            return self
        change = Fraction(argument) if operation == "upcast" else Fraction(1, argument)
        bits = None if self.bits is None else self.bits * change
        if bits is not None and bits.denominator != 1:
            raise LayoutError(f"--{operation} {argument}: {self.bits} bits do not divide so; use a divisor of {self.bits}")
        start = self.start / change if isinstance(self.start, int) else None
        if start is None or start.denominator != 1:
            raise LayoutError(
                f"--{operation} {argument}: the slice starts at offset {show(self.start)}, which is no whole number of such "
                f"units; use --{operation} before --slice"
            )
        return replace(self, bits=None if bits is None else int(bits), factor=self.factor * change, start=int(start))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Operation that was applied: its argument, an explanation, the result, and its unit."""

    operation: Operation
    argument: str
    explanation: str
    result: Any
    unit: Unit
    remarks: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------------- notation
def parse_operand(text: str, flag: str) -> Any:
    """Tiler or layout: a shape ``(32,8)``, a layout ``4:2``, one per mode ``<4:2,8:1>``, a swizzle, or ``_``.

    >>> parse_operand("(32,8)", "--zipped-divide"), parse_operand("<4:2,_>", "--composition")
    ((32, 8), (Layout(4, 2), None))

    Raises:
        LayoutError: the notation is unknown; the text names the ``flag``.
    """
    from gpusim.layout.notation import Notation

    try:
        return _operand(Notation.of(text))
    except LayoutError as error:
        sentence = without_layout(error)
        raise LayoutError(f"{flag}{' ' if sentence.startswith(repr(text)) else ': '}{sentence}") from None


def _operand(text: Notation) -> Any:
    from gpusim.layout import parse_int_tuple

    bare = text.bare
    swizzle = bare_swizzle(bare)
    if swizzle is not None:
        return swizzle
    parts = _parts(text)
    if parts is not None and (bare[0] == "<" or any(":" in part.bare for part in parts)):
        return tuple(_operand(part) for part in parts)
    if ":" in bare or bare.startswith("S"):
        return any_layout(text)
    return parse_int_tuple(text)


def _parts(text: Notation) -> list[Notation] | None:
    """Parts between commas of the bracket that encloses all of ``text``; None if none does."""
    bare = text.bare
    closing = {"(": ")", "<": ">"}.get(bare[:1])
    if closing is None or bare[-1:] != closing:
        return None
    cuts, depth = [0], 0
    for i, letter in enumerate(bare):
        depth += (letter in "(<") - (letter in ")>")
        if depth == 0 and i < len(bare) - 1:
            return None
        if letter == "," and depth == 1:
            cuts.append(i)
    return [text.piece(before + 1, after) for before, after in pairwise([*cuts, len(bare) - 1])]


def bare_swizzle(bare: str) -> Any:
    """Swizzle without a layout, for example ``Sw<3,3,3>``; None if it is none."""
    from gpusim.layout import Swizzle

    head, _, rest = bare.partition("<")
    numbers = rest.removesuffix(">").split(",")
    is_swizzle = head in ("S", "Sw", "Swizzle") and rest.endswith(">") and len(numbers) == 3
    if not is_swizzle or not all(number.removeprefix("-").isdecimal() for number in numbers):
        return None
    return Swizzle(*map(int, numbers))


def _argument(operation: Operation, text: str) -> Any:
    from gpusim.layout import parse_int_tuple
    from gpusim.layout.int_tuple import has_none

    if operation.wants in ("TILER", "LAYOUT"):
        return parse_operand(text, operation.flag)
    if operation.name == "swizzle":
        return text
    with naming(operation.flag):
        value = parse_int_tuple(text)
    if operation.wants in ("COSIZE", "SHAPE") and isinstance(value, tuple) and has_none(value):
        raise LayoutError(f"{operation.flag} {text!r} has a _, wants integers and tuples of them")
    if operation.wants == "N" and not (isinstance(value, int) and value >= 1):
        raise LayoutError(f"{operation.flag} {text!r} is no factor, wants a whole number from 1 on")
    return value


# ---------------------------------------------------------------------------------------------- operations
def apply(operation: Operation, layout: Any, text: str | bool, unit: Unit | None = None, order: str | None = None) -> Step:
    """Result of an operation on a layout whose offsets count ``unit``; ``order`` is that of ``tile_to_shape``.

    Raises:
        LayoutError: the argument is no tiler, layout or number, or the operation has no result.
    """
    from gpusim.layout import Layout, Swizzle
    from gpusim.layout.int_tuple import add, leaves

    argument = None if text is True else _argument(operation, str(text))
    unit = unit or Unit()
    step = partial(Step, operation=operation, argument="" if text is True else str(text), explanation="")
    if isinstance(layout, Swizzle) and operation.name != "composition":
        raise LayoutError(f"{operation.flag}: {layout} is a swizzle alone, use --composition LAYOUT first")
    if operation.name == "slice":
        result, start = _sliced(layout, argument, str(text))
        start = add(unit.start, start)
        return step(result=result, unit=replace(unit, start=start if any(leaves(start)) else 0))
    if operation.name == "swizzle":
        result, remarks = _swizzled(layout, str(text), unit)
        return step(result=result, unit=replace(unit, start=0), remarks=remarks)
    if operation.name in ("blocked_product", "raked_product") and isinstance(argument, int):
        argument = Layout(argument)
    arguments = () if text is True or (argument is None and operation.name in _MAY_LACK_ARGUMENT) else (argument,)
    if operation.name == "tile_to_shape" and order is not None:
        return step(result=_tiled(layout, argument, order), unit=unit)
    function = _function(operation)
    after = unit.after(operation.name, argument)
    explanation = _explanation(operation, layout, argument) if arguments and argument is not None else ""
    return step(
        result=function(layout, *arguments), unit=after, explanation=explanation,
        remarks=tuple(_remarks(operation, layout, argument, unit, after)),
    )


def _remarks(operation: Operation, layout: Any, argument: Any, before: Unit, after: Unit) -> Iterator[str]:
    """Remarks on a result that a reader may not expect."""
    from gpusim.layout import Layout, Swizzle
    from gpusim.layout.int_tuple import show
    from gpusim.layout.layout import inner_layout

    if before.start != 0 and after.start == 0:
        yield f"{operation.name} is that of the layout alone: its start at offset {show(before.start)} is left out"
    if operation.name.endswith("divide"):
        yield from _past_end(inner_layout(layout), argument, "the tile ")
    elif operation.name == "composition" and not isinstance(layout, Swizzle) and isinstance(argument, int | tuple | Layout):
        yield from _past_end(inner_layout(layout), argument, "")


def _past_end(layout: Layout, tiler: Any, what: str, mode: tuple[int, ...] = ()) -> Iterator[str]:
    """Remark for each part of a tiler that exceeds its mode, where the layout runs on.

    >>> from gpusim.layout import Layout
    >>> next(_past_end(Layout((8, 64), (64, 1)), (16, 8), "the tile "))
    "the tile 16 is larger than mode 0, which has 8: offsets run on past its end, as CuTe's do"
    """
    from gpusim.layout import Layout

    if isinstance(tiler, tuple):
        for i, (piece, part) in enumerate(zip(layout, tiler, strict=False)):
            yield from _past_end(piece, part, what, (*mode, i))
        return
    is_number = isinstance(tiler, int)
    reach = tiler if is_number else tiler.cosize if isinstance(tiler, Layout) and not tiler.has_basis else 0
    if reach > layout.size:
        where = f"mode {','.join(map(str, mode))}" if mode else "the layout"
        how = "is larger than" if is_number else f"reaches {reach - 1}, beyond"
        yield f"{what}{tiler} {how} {where}, which has {layout.size}: offsets run on past its end, as CuTe's do"


def _function(operation: Operation) -> Callable[..., Any]:
    import gpusim.layout as cute

    function: Callable[..., Any] = getattr(cute, operation.name.removesuffix("_by"))
    return function


def _explanation(operation: Operation, layout: Any, argument: Any) -> str:
    from gpusim.layout import Layout, Swizzle, explain

    if not operation.name.endswith(_EXPLAINED):
        return ""
    if isinstance(argument, Swizzle) and isinstance(layout, Layout):
        return (
            f"  {argument} on the right works on the index, before {layout}; to swizzle the offsets of a layout, write\n"
            f"  gpusim layout '{argument} o 0 o {layout}'"
        )
    return "\n".join(explain(_function(operation), layout, argument).splitlines()[1:-1])


def _sliced(layout: Any, coord: Any, text: str) -> tuple[Any, Any]:
    """(slice, offset of its start, where its notation does not contain it)."""
    from gpusim.layout import Layout
    from gpusim.layout.int_tuple import has_none
    from gpusim.layout.layout import slice_and_offset

    if not has_none(coord):
        raise LayoutError(f"--slice {text} fixes every mode (offset {layout(coord)}), wants a _ for those to keep")
    kept, start = slice_and_offset(coord, layout) if isinstance(layout, Layout) else (layout(coord), 0)
    if not is_inside(coord, layout.shape):
        raise LayoutError(f"--slice {text} lies outside of {layout}, wants coordinates below its shape")
    return kept, start


def _swizzled(layout: Any, text: str, unit: Unit) -> tuple[Any, tuple[str, ...]]:
    """(swizzle over a plain layout, in the unit of its offsets; remarks on its numbers)."""
    from gpusim.layout import SWIZZLE_MODES, ComposedLayout, Layout, parse_swizzle, units_remark

    if not isinstance(layout, Layout):
        raise LayoutError(f"--swizzle {text}: {layout} has a swizzle already; start from its plain layout, {layout.inner}")
    if layout.has_basis or not isinstance(unit.start, int):
        raise LayoutError(f"--swizzle {text}: {layout} yields coordinates, wants a layout with integer strides")
    bits = unit.element_bits
    if text in SWIZZLE_MODES and bits is None:
        raise LayoutError(f"--swizzle {text} counts bytes, wants the element type: add --dtype, for example --dtype bf16")
    with naming("--swizzle", "swizzle "):
        swizzle = parse_swizzle(text, bits or 8).to_units((bits or 8) // 8)
        remark = units_remark(text, bits or 8)
    remarks = [] if remark is None else [remark]
    lowest, last = swizzle.source_mask & -swizzle.source_mask, unit.start + layout.cosize - 1
    if lowest > last:
        remarks.append(
            f"{swizzle} moves nothing here: it reads bits of offsets from {lowest} on, and the largest offset is {last}"
        )
    return ComposedLayout(swizzle, unit.start, layout), tuple(remarks)


def _tiled(layout: Any, shape: Any, order: str) -> Any:
    from gpusim.layout import parse_int_tuple, tile_to_shape

    with naming("--order"):
        places = parse_int_tuple(order)
    with naming(f"--tile-to-shape with --order {order}:"):
        return tile_to_shape(layout, shape, places)


def is_inside(coord: Any, shape: Any) -> bool:
    """Whether every part of a coordinate is below its extent; a mode that is kept counts as inside."""
    from gpusim.layout import product
    from gpusim.layout.int_tuple import wrap

    if coord is None:
        return True
    if isinstance(coord, int):
        return 0 <= coord < int(product(shape))
    return all(is_inside(part, extent) for part, extent in zip(coord, wrap(shape), strict=True))
