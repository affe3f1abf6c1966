"""``layout``: picture and table of a layout in CuTe's notation, and results of CuTe's layout operations."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.layout_operations import OPERATIONS, Operation, Step, Unit, apply, bare_swizzle, is_inside
from gpusim.cli.options import console_for, write_json
from gpusim.cli.parameters import json_option, option, output_paths, parameter, plot_option
from gpusim.errors import ConfigError, LayoutError
from gpusim.report.layout_arguments import find_dtype, naming, parse_any

if TYPE_CHECKING:
    from rich.console import Console

_DEFAULT_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """One expression: the layout, the operations applied to it, and requested offsets."""

    layout: Any
    steps: tuple[Step, ...]
    found: tuple[tuple[str, Any], ...]
    input_unit: Unit

    @property
    def result(self) -> Any:
        return self.steps[-1].result if self.steps else self.layout

    @property
    def unit(self) -> Unit:
        return self.steps[-1].unit if self.steps else self.input_unit

    @property
    def caption(self) -> str | None:
        """Unit of the result's offsets; None where the layout shows it: bytes, or plain elements."""
        return None if hasattr(self.result, "element_bits") else self.unit.words

    @property
    def start(self) -> Any:
        """Offset at which the result starts, where its notation does not contain it."""
        return self.unit.start


def _evaluated(
    text: str, operations: Sequence[tuple[Operation, Any]], coords: list[str], unit: Unit, order: str | None
) -> _Shown:
    from gpusim.layout import Swizzle
    from gpusim.layout.int_tuple import add
    from gpusim.layout.notation import compact

    layout = bare_swizzle(compact(text)) or parse_any(text, "layout")
    own_bits = getattr(layout, "element_bits", unit.bits)
    if unit.bits not in (None, own_bits):
        raise LayoutError(f"layout: {layout} has elements of {own_bits} bits, --dtype {unit.bits}; leave --dtype out")
    unit = replace(unit, bits=own_bits)
    steps: list[Step] = []
    for operation, value in operations:
        argument = value[0] if isinstance(value, list) else value
        before, of_before = (steps[-1].result, steps[-1].unit) if steps else (layout, unit)
        steps.append(apply(operation, before, argument, of_before, order))
    result = steps[-1].result if steps else layout
    if isinstance(result, Swizzle):
        raise LayoutError(
            f"layout: {result} is a swizzle alone, wants a layout under it, for example '{result} o 0 o (8,64):(64,1)'"
        )
    first = steps[-1].unit.start if steps else 0
    found = tuple((coord, add(first, _offset_at(result, coord))) for coord in coords)
    return _Shown(layout=layout, steps=tuple(steps), found=found, input_unit=unit)


def _plot(shown: _Shown, path: Path, tile: Any) -> None:
    if tile is not None:
        from gpusim.report.plots.threads import plot_thread_values

        plot_thread_values(shown.result, tile, path)
        return
    from gpusim.layout.draw import by_bank, by_offset
    from gpusim.report.layouts import Window, grid_of
    from gpusim.report.plots.layouts import plot_layout

    bits = 8 if hasattr(shown.result, "element_bits") else shown.unit.element_bits
    whole = Window(shown.result, *grid_of(shown.result), shown.start)
    plot_layout(whole, path, by_bank(bits / 8) if bits else by_offset, shown.caption)


def _print(shown: _Shown, console: Console, max_rows: int) -> None:
    from gpusim.layout import Swizzle
    from gpusim.report.layouts import Offsets, facts_line, render_layout, with_start

    steps, result = shown.steps, shown.result
    if steps and not isinstance(shown.layout, Swizzle):
        console.print(f"[bold]layout[/]  {facts_line(shown.layout)}", soft_wrap=True)
    for step in steps:
        words = f"{step.operation.name.removesuffix('_by')} {step.argument}".rstrip()
        console.print(f"[bold]{words}[/] gives {with_start(step.result, step.unit.start)}", soft_wrap=True)
        for line in step.explanation.splitlines():
            console.print(line, markup=False, soft_wrap=True)
        for remark in step.remarks:
            console.print(f"[yellow]Remark[/]: {remark}")
    if steps:
        console.print()
    title = "result" if steps else "layout"
    render_layout(
        result, console, element_bits=shown.unit.element_bits, title=title, max_rows=max_rows,
        offsets=Offsets(shown.caption, shown.start),
    )
    for coord, offset in shown.found:
        console.print(f"{coord} lies at offset {offset}", markup=False, soft_wrap=True)
    if steps:
        console.print(f"[bold]Result[/]: {with_start(result, shown.start)}", soft_wrap=True)


def _offset_at(layout: Any, text: str) -> Any:
    from gpusim.layout import parse_int_tuple, size
    from gpusim.layout.int_tuple import has_none

    with naming("--coord", "crd2idx: "):
        coord = parse_int_tuple(text)
        if has_none(coord):
            raise LayoutError(f"{text!r} keeps a mode: use --slice")
        offset = layout(coord)
    from gpusim.layout import crd2idx

    if not 0 <= crd2idx(coord, layout.shape) < size(layout) or not is_inside(coord, layout.shape):
        raise LayoutError(f"--coord {text} lies outside of {layout}, wants coordinates below its shape")
    return offset


def _document(shown: _Shown) -> dict[str, Any]:
    from gpusim.layout import Swizzle
    from gpusim.report.layouts import layout_facts

    layout, bits = shown.layout, shown.input_unit.element_bits
    return {
        "input": str(layout) if isinstance(layout, Swizzle) else layout_facts(layout, bits),
        "operations": [
            {"name": step.operation.name, "argument": step.argument, "explanation": step.explanation.splitlines(),
             "remarks": list(step.remarks), "result": str(step.result), "start_offset": step.unit.start}
            for step in shown.steps
        ],
        "result": layout_facts(shown.result, shown.unit.element_bits, shown.caption, shown.start),
        "coordinates": [{"coordinate": coord, "offset": offset} for coord, offset in shown.found],
    }


def _signature() -> inspect.Signature:
    own = [
        inspect.Parameter(
            "expressions", inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=Annotated[list[str], typer.Argument(
                metavar="EXPR", help="a layout in CuTe's notation, or an atom by our name or CuTe's")],
        ),
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        option("dtype", "Element type (bf16, fp32, ...): adds bytes to the table, and colours banks in the plot.",
               metavar="NAME"),
        option("coords", "Offset of a coordinate of the result.", list[str], metavar="COORD", flag="--coord"),
        option("max_rows", "Most rows of the picture and of the table.", default=str(_DEFAULT_ROWS), metavar="N",
               flag="--rows"),
        option("order", "For --tile-to-shape: the places of the modes, (1,0) to repeat along mode 1 first.",
               metavar="ORDER"),
        json_option("Write what is shown as JSON."), plot_option("Draw the result."),
        option("latex_path", "Write the result as LaTeX, as CuTe's print_latex does.", metavar="FILE.tex", panel="Output"),
        option("thread_values", "Draw a tile of this shape with the thread and the value of each element. The result maps "
               "(thread, value) to row + rows x column.", metavar="(ROWS,COLUMNS)", panel="Output"),
    ]  # fmt: skip
    panel = "Operations (done in the order in which they are typed)"
    for row in OPERATIONS:
        kind: Any = list[str] | None if row.wants else bool
        info = typer.Option(row.flag, help=row.help, rich_help_panel=panel, show_default=False, metavar=row.wants or None)
        own.append(parameter(row.name, kind, info, None if row.wants else False))
    return inspect.Signature(own)


def _as_typed(context: typer.Context) -> list[Operation]:
    """Operations in the order in which they were typed, which is that of the parser's results.

    Raises:
        ConfigError: one was typed twice, so that its second position is unknown.
    """
    rows = {row.name: row for row in OPERATIONS}
    for name, given in context.params.items():
        if name in rows and isinstance(given, list) and len(given) > 1:
            raise ConfigError(f"{rows[name].flag} is given {len(given)} times; give its result to a second command")
    return [rows[name] for name in context.params if name in rows]


def _tile(text: str | None, *, is_drawn: bool) -> Any:
    """Shape of --thread-values; None without it.

    Raises:
        GpusimError: it is no shape, or there is nothing to draw.
    """
    from gpusim.layout import parse_int_tuple
    from gpusim.layout.int_tuple import flatten, has_none

    if text is None:
        return None
    with naming("--thread-values"):
        shape = parse_int_tuple(text)
    sizes = flatten(shape) if isinstance(shape, tuple) else (shape,)
    if has_none(shape) or not all(isinstance(size, int) and size > 0 for size in sizes) or len(sizes) > 2:
        raise ConfigError(f"--thread-values {text} is no shape of rows and columns, for example (16,8)")
    if not is_drawn:
        raise ConfigError(f"--thread-values {text} says what --plot and --latex draw; give one of them, too")
    return shape


def layout_command(context: typer.Context, **values: Any) -> None:
    r"""Show a layout in CuTe's notation, or the result of an operation on it: facts, picture, table.

    Quote for the shell: gpusim layout '(4,(2,3)):(6,(3,1))'.
    Swizzled in elements: 'Sw<3,3,3> o 0 o (8,64):(64,1)';
    in bytes: 'Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)'.

    A TILER is a shape (32,8) or a layout per mode, <4:2,8:1>, applied mode by
    mode. Or it is one layout 4:2, which divides the flattened layout.
    For example: gpusim layout '(128,64):(64,1)' --zipped-divide '(32,8)'

    An atom shows which thread holds which value of A, B and C:
    gpusim layout SM80_16x8x16_F32BF16BF16F32_TN --plot mma.svg --latex mma.tex
    """
    operations = [(row, values[row.name]) for row in _as_typed(context) if values[row.name]]
    from gpusim.report.layouts import MOST_ROWS
    from gpusim.report.output import write_whole
    from gpusim.workload.atoms.cute_names import is_atom_name

    typed_rows = values["max_rows"].strip()
    if not typed_rows.isdecimal() or not 1 <= int(typed_rows[:9]) <= MOST_ROWS:
        raise ConfigError(f"--rows {typed_rows[:20]} wants a whole number from 1 to {MOST_ROWS}; 16 by default")
    if values["order"] is not None and not values["tile_to_shape"]:
        raise ConfigError(f"--order {values['order']} says how --tile-to-shape repeats; give that, too")
    outputs = output_paths(values)
    expressions = values["expressions"]
    drawn = [flag for flag in ("--plot", "--latex") if outputs[flag] is not None]
    if drawn and len(expressions) > 1:
        raise ConfigError(f"{drawn[0]} draws one layout, {len(expressions)} are given; give one")
    if any(map(is_atom_name, expressions)):
        _show_atom(expressions, values, outputs, extra=[row.flag for row, _ in operations])
        return
    tile = _tile(values["thread_values"], is_drawn=bool(drawn))
    unit = Unit(bits=None if values["dtype"] is None else find_dtype(values["dtype"]).bits)
    shown = [_evaluated(text, operations, values["coords"] or [], unit, values["order"]) for text in expressions]
    if outputs["--plot"] is not None:
        _plot(shown[0], outputs["--plot"], tile)
    if outputs["--latex"] is not None:
        from gpusim.layout.latex import layout_latex, tv_latex

        result = shown[0].result
        write_whole(outputs["--latex"], (layout_latex(result) if tile is None else tv_latex(result, tile)).encode())
    if outputs["--json"] is not None:
        documents = [_document(one) for one in shown]
        write_json(documents[0] if len(documents) == 1 else documents, outputs["--json"])
    for one in shown:
        _print(one, console_for(outputs["--json"]), int(typed_rows))
    _name_files(outputs)


def _show_atom(
    expressions: list[str], values: dict[str, Any], outputs: dict[str, Path | None], extra: Sequence[str]
) -> None:
    """Show an atom: A, B and C of an MMA, or source and destination of a copy.

    Raises:
        GpusimError: an unknown atom, a second expression, or an option that only layouts have.
    """
    from gpusim.layout.latex import grids_latex
    from gpusim.report.atoms import atom_document, atom_grids, render_atom
    from gpusim.report.output import write_whole
    from gpusim.workload.atoms import MmaAtom, atom_of

    if len(expressions) > 1:
        raise ConfigError(f"{expressions[0]} and {expressions[1]}: an atom is shown alone; give one")
    given = {"--coord": values["coords"], "--thread-values": values["thread_values"]}
    atom = atom_of(expressions[0])
    extra = [*extra, *(flag for flag, value in given.items() if value)]
    if isinstance(atom, MmaAtom) and values["dtype"] is not None:
        extra.append("--dtype")
    if extra:
        raise ConfigError(f"{extra[0]} is of layouts, {atom.name} is an atom; leave it out")
    grids = atom_grids(atom, None if values["dtype"] is None else find_dtype(values["dtype"]))
    if outputs["--plot"] is not None:
        from gpusim.report.plots.atoms import plot_atom

        plot_atom(grids, outputs["--plot"], title=atom.name)
    if outputs["--latex"] is not None:
        write_whole(outputs["--latex"], grids_latex(grids).encode())
    if outputs["--json"] is not None:
        write_json(atom_document(atom, grids), outputs["--json"])
    render_atom(atom, grids, console_for(outputs["--json"]), int(values["max_rows"]))
    _name_files(outputs)


def _name_files(outputs: dict[str, Path | None]) -> None:
    for flag, word in (("--plot", "Plot"), ("--latex", "LaTeX")):
        if outputs[flag] is not None:
            console_for(Path("-")).print(f"{word}: {outputs[flag]}", soft_wrap=True)


layout_command.__signature__ = _signature()  # type: ignore[attr-defined]  # typer reads options from it
