"""``layout``: a layout in CuTe's notation as picture and table, and what CuTe's operations make of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gpusim.cli.options import console_for, output_path, refuse_same, write_json
from gpusim.cli.parameters import parameter
from gpusim.errors import ConfigError, LayoutError


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the algebra as an option: its name is CuTe's, ``wants`` says what the option takes."""

    name: str
    wants: str
    help: str

    @property
    def flag(self) -> str:
        """As it is typed."""
        return f"--{self.name.replace('_', '-')}"


OPERATIONS = (
    Operation("composition", "LAYOUT", "the layout at the places of another: R(c) = EXPR(LAYOUT(c)); a tiler, too"),
    Operation("coalesce", "", "the same offsets in as few modes as possible"),
    Operation("coalesce_by", "PROFILE", "coalesce each mode of PROFILE, such as (1,1), by itself"),
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
)
"""Every operation, in the order of the help."""

_EXPLAINED = ("composition", "divide", "product")
_DEFAULT_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operation that was done: with what, in words, and what came out."""

    operation: Operation
    argument: str
    explanation: str
    result: Any


# ---------------------------------------------------------------------------------------------- notation


def parse_any(text: str, flag: str) -> Any:
    """A layout in any of CuTe's forms: plain, swizzled in elements, swizzled in bytes (smem_ptr).

    Raises:
        LayoutError: no such notation; names the ``flag``.
    """
    from gpusim.layout import parse_byte_layout, parse_layout

    try:
        return parse_byte_layout(text) if "smem_ptr" in text else parse_layout(text)
    except LayoutError as error:
        sentence = str(error)
        raise LayoutError(sentence if sentence.startswith(flag) else f"{flag}: {sentence}") from None


def parse_operand(text: str, flag: str) -> Any:
    """A tiler or layout: a shape ``(32,8)``, a layout ``4:2``, one a mode ``<4:2,8:1>``, a swizzle, or ``_``.

    >>> parse_operand("(32,8)", "--zipped-divide"), parse_operand("<4:2,_>", "--composition")
    ((32, 8), (Layout(4, 2), None))

    Raises:
        LayoutError: no such notation; names the ``flag``.
    """
    from gpusim.layout import parse_int_tuple

    compact = "".join(text.split())
    swizzle = _bare_swizzle(compact)
    if swizzle is not None:
        return swizzle
    parts = _parts(compact)
    if parts is not None and (compact[0] == "<" or any(":" in part for part in parts)):
        return tuple(parse_operand(part, flag) for part in parts)
    if ":" in compact:
        return parse_any(compact, flag)
    try:
        return parse_int_tuple(compact)
    except LayoutError as error:
        raise LayoutError(f"{flag} {error}") from None


def _parts(text: str) -> list[str] | None:
    """What stands between commas of the bracket that encloses all of ``text``; None if none does."""
    closing = {"(": ")", "<": ">"}.get(text[:1])
    if closing is None or text[-1:] != closing:
        return None
    parts, depth = [""], 0
    for i, letter in enumerate(text):
        depth += (letter in "(<") - (letter in ")>")
        if depth == 0 and i < len(text) - 1:
            return None
        if letter == "," and depth == 1:
            parts.append("")
        elif 0 < i < len(text) - 1:
            parts[-1] += letter
    return parts


def _bare_swizzle(compact: str) -> Any:
    from gpusim.layout import Swizzle

    head, _, rest = compact.partition("<")
    numbers = rest.removesuffix(">").split(",")
    is_swizzle = head in ("S", "Sw", "Swizzle") and rest.endswith(">") and len(numbers) == 3
    if not is_swizzle or not all(number.removeprefix("-").isdecimal() for number in numbers):
        return None
    return Swizzle(*map(int, numbers))


def _argument(operation: Operation, text: str) -> Any:
    from gpusim.layout import parse_int_tuple

    if operation.wants in ("TILER", "LAYOUT"):
        return parse_operand(text, operation.flag)
    try:
        value = parse_int_tuple("".join(text.split()))
    except LayoutError as error:
        raise LayoutError(f"{operation.flag} {error}") from None
    if operation.wants == "N" and not (isinstance(value, int) and value >= 1):
        raise LayoutError(f"{operation.flag} {text!r} is no factor, wants a whole number from 1 on")
    return value


# ---------------------------------------------------------------------------------------------- operations


def apply(operation: Operation, layout: Any, text: str | bool) -> Step:
    """What an operation makes of a layout.

    Raises:
        LayoutError: an argument that is no tiler, layout or number, or an operation that has no result.
    """
    import gpusim.layout as cute
    from gpusim.layout import Layout, Swizzle
    from gpusim.layout.int_tuple import has_none

    argument = None if text is True else _argument(operation, str(text))
    if isinstance(layout, Swizzle) and operation.name != "composition":
        raise LayoutError(f"{operation.flag}: {layout} is a swizzle alone, use --composition LAYOUT first")
    if operation.name == "slice":
        if not has_none(argument):
            raise LayoutError(f"--slice {text} fixes every mode (offset {layout(argument)}), wants a _ for those to keep")
        return Step(operation=operation, argument=str(text), explanation="", result=layout(argument))
    function: Callable[..., Any] = getattr(cute, "coalesce" if operation.name == "coalesce_by" else operation.name)
    if operation.name in ("blocked_product", "raked_product") and not isinstance(argument, Layout):
        argument = Layout(argument) if isinstance(argument, int) else argument
    if text is True or argument is None:
        return Step(operation=operation, argument="", explanation="", result=function(layout))
    explanation = ""
    if operation.name.endswith(_EXPLAINED):
        explanation = "\n".join(cute.explain(function, layout, argument).splitlines()[1:-1])
        if isinstance(argument, Swizzle):
            explanation = (
                f"  {argument} on the right works on the index, before {layout}; to swizzle the offsets of a layout, write\n"
                f"  gpusim layout '{argument} o 0 o {layout}'"
            )
    result = function(layout, argument)
    return Step(operation=operation, argument=str(text), explanation=explanation, result=result)


# ---------------------------------------------------------------------------------------------- the command


def _run(
    expressions: list[str], operations: Sequence[tuple[Operation, Any]], coords: list[str], element_bits: int | None,
    max_rows: int, json_path: Path | None, plot_path: Path | None,
) -> None:
    from gpusim.layout import Swizzle
    from gpusim.layout.draw import by_bank, by_offset
    from gpusim.report.layouts import render_layout

    shown = []
    for text in expressions:
        layout = _bare_swizzle("".join(text.split())) or parse_any(text, "layout")
        if isinstance(layout, Swizzle) and not operations:
            raise LayoutError(
                f"layout: {layout} is a swizzle alone, wants a layout under it, such as '{layout} o 0 o (8,64):(64,1)'"
            )
        steps: list[Step] = []
        for operation, value in operations:
            argument = value[0] if isinstance(value, list) else value
            steps.append(apply(operation, steps[-1].result if steps else layout, argument))
        result = steps[-1].result if steps else layout
        shown.append((layout, steps, result, [(coord, _offset_at(result, coord)) for coord in coords]))
    if plot_path is not None:
        from gpusim.report.plots_layouts import plot_layout

        bits = getattr(shown[0][2], "element_bits", element_bits)
        unit_bytes = 1 if hasattr(shown[0][2], "element_bits") else (bits or 8) // 8
        plot_layout(shown[0][2], plot_path, by_bank(unit_bytes) if bits else by_offset)
    if json_path is not None:
        documents = [_document(*entry, element_bits) for entry in shown]
        write_json(documents[0] if len(documents) == 1 else documents, json_path)
    console = console_for(json_path)
    for layout, steps, result, found in shown:
        if steps and not isinstance(layout, Swizzle):
            render_layout(layout, console, element_bits=element_bits, max_rows=max_rows, title="layout")
        for step in steps:
            words = f"{step.operation.name.removesuffix('_by')} {step.argument}".rstrip()
            console.print(f"[bold]{words}[/] gives {step.result}", highlight=False, soft_wrap=True)
            for line in step.explanation.splitlines():
                console.print(line, markup=False, highlight=False, soft_wrap=True)
        if steps:
            console.print()
        title = "result" if steps else "layout"
        render_layout(result, console, element_bits=element_bits, max_rows=max_rows, title=title)
        for coord, offset in found:
            console.print(f"{coord} lies at offset {offset}", markup=False, highlight=False, soft_wrap=True)
    if plot_path is not None:
        console_for(Path("-")).print(f"Plot: {plot_path}", highlight=False, soft_wrap=True)


def _offset_at(layout: Any, text: str) -> Any:
    from gpusim.layout import parse_int_tuple, size
    from gpusim.layout.int_tuple import has_none

    try:
        coord = parse_int_tuple("".join(text.split()))
        if has_none(coord):
            raise LayoutError(f"{text!r} keeps a mode: use --slice")
        offset = layout(coord)
    except LayoutError as error:
        raise LayoutError(f"--coord {error}") from None
    from gpusim.layout import crd2idx

    if not 0 <= crd2idx(coord, layout.shape) < size(layout) or not _is_inside(coord, layout.shape):
        raise LayoutError(f"--coord {text} lies outside of {layout}, wants coordinates below its shape")
    return offset


def _is_inside(coord: Any, shape: Any) -> bool:
    from gpusim.layout import product

    if isinstance(coord, int):
        return 0 <= coord < int(product(shape))
    return all(_is_inside(part, extent) for part, extent in zip(coord, shape, strict=True))


def _document(layout: Any, steps: list[Step], result: Any, found: Any, element_bits: int | None) -> dict[str, Any]:
    from gpusim.layout import Swizzle
    from gpusim.report.layouts import layout_facts

    return {
        "input": str(layout) if isinstance(layout, Swizzle) else layout_facts(layout, element_bits),
        "operations": [
            {"name": step.operation.name, "argument": step.argument, "explanation": step.explanation.splitlines(),
             "result": str(step.result)}
            for step in steps
        ],
        "result": layout_facts(result, element_bits),
        "coordinates": [{"coordinate": coord, "offset": offset} for coord, offset in found],
    }


def _signature() -> inspect.Signature:
    output = "Output"
    own = [
        inspect.Parameter(
            "expressions", inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=Annotated[list[str], typer.Argument(metavar="EXPR...", help="a layout in CuTe's notation")],
        ),
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        parameter("dtype", str | None, typer.Option(
            "--dtype", help="element type (bf16, fp32, ...): adds bytes to the table, and colours banks in the plot",
            metavar="NAME"), None),
        parameter("coords", list[str] | None, typer.Option(
            "--coord", help="say the offset of a coordinate of the result", metavar="COORD"), None),
        parameter("max_rows", int, typer.Option(
            "--rows", help="show at most so many rows of the picture and of the table", metavar="N"), _DEFAULT_ROWS),
        parameter("json_path", str | None, typer.Option(
            "--json", help="write what is shown as JSON; - is stdout", metavar="FILE", rich_help_panel=output), None),
        parameter("plot_path", str | None, typer.Option(
            "--plot", help="draw the result", metavar="FILE.svg|png", rich_help_panel=output), None),
    ]
    panel = "Operations (done in the order in which they are typed)"
    for row in OPERATIONS:
        kind: Any = list[str] | None if row.wants else bool
        info = typer.Option(
            row.flag, help=row.help, rich_help_panel=panel, show_default=False, metavar=row.wants or None
        )
        own.append(parameter(row.name, kind, info, None if row.wants else False))
    return inspect.Signature(own)


def _as_typed(context: typer.Context) -> list[Operation]:
    """Operations in the order in which they were typed, which is that of the parser's results.

    Raises:
        ConfigError: one was typed twice: its second place is not known.
    """
    rows = {row.name: row for row in OPERATIONS}
    for name, given in context.params.items():
        if name in rows and isinstance(given, list) and len(given) > 1:
            raise ConfigError(f"{rows[name].flag} is given {len(given)} times; give its result to a second command")
    return [rows[name] for name in context.params if name in rows]


def layout_command(context: typer.Context, **values: Any) -> None:
    r"""Show a layout in CuTe's notation, or what an operation makes of it: facts, picture, table.

    Quote for the shell: gpusim layout '(4,(2,3)):(6,(3,1))'.
    Swizzled in elements: 'Sw<3,3,3> o 0 o (8,64):(64,1)';
    in bytes: 'Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)'.

    A TILER is a shape (32,8), which goes mode by mode; a layout a mode,
    <4:2,8:1>; or one layout 4:2, which divides the flattened layout as a list.
    For example: gpusim layout '(128,64):(64,1)' --zipped-divide '(32,8)'
    """
    from gpusim.workload.dtypes import dtype as dtype_of

    operations = [(row, values[row.name]) for row in _as_typed(context) if values[row.name]]
    if values["max_rows"] < 1:
        raise ConfigError(f"--rows {values['max_rows']} wants a number from 1 on, such as {_DEFAULT_ROWS}")
    outputs = {
        "--json": output_path(values["json_path"], "--json"),
        "--plot": output_path(values["plot_path"], "--plot", ".svg", ".png"),
    }
    refuse_same(outputs)
    expressions = values["expressions"]
    if outputs["--plot"] is not None and len(expressions) > 1:
        raise ConfigError(f"--plot draws one layout, {len(expressions)} are given; give one")
    bits = None if values["dtype"] is None else dtype_of(values["dtype"]).bits
    _run(expressions, operations, values["coords"] or [], bits, values["max_rows"], outputs["--json"], outputs["--plot"])


layout_command.__signature__ = _signature()  # type: ignore[attr-defined]  # typer reads options from it
