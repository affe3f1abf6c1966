"""``banks``: conflicts of a warp's access to a tile in shared memory, and what mends them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from gpusim.cli.layout_operations import find_dtype, parse_any
from gpusim.cli.options import console_for, output_path, refuse_same, write_json
from gpusim.errors import ConfigError, LayoutError

if TYPE_CHECKING:
    from gpusim.layout import Layout, Swizzle
    from gpusim.workload.bank_mends import Mend
    from gpusim.workload.dtypes import DType
    from gpusim.workload.tile_access import TileAccess


class BanksCommand(TyperCommand):
    """The command, whose help lists the instructions that there are; they are looked up only then."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        from gpusim.workload.smem_ops import smem_op_families

        families = ", ".join(smem_op_families().values()).replace("[", r"\[")
        for param in self.params:
            if param.name == "access":
                param.help = f"{param.help}. Known: {families}"  # type: ignore[attr-defined]  # it is an option
        super().format_help(ctx, formatter)


def banks_command(
    layout: Annotated[str, typer.Option(
        "--layout", metavar="LAYOUT", help="the tile in shared memory, in CuTe's notation; with a swizzle, too")],
    dtype: Annotated[str, typer.Option("--dtype", metavar="NAME", help="element type: bf16, fp32, fp8, ...")],
    access: Annotated[list[str], typer.Option(
        "--access", metavar="NAME", help="the instruction; given several times, accesses to the same tile, all of which one "
        "swizzle or padding is to free")],
    swizzle: Annotated[str | None, typer.Option(
        "--swizzle", metavar="B,M,S|MODE",
        help="a swizzle over the layout: B,M,S in elements, or 32B, 64B, 128B of TMA and wgmma (in bytes)")] = None,
    threads: Annotated[list[str] | None, typer.Option(
        "--threads", metavar="LAYOUT",
        help="where the first element of each lane's vector lies: a layout from lane to the index in the tile (mode 0 "
        "counts first), or to a coordinate, such as 32:1@0 for one lane a row; 33rd and later lanes are those of a second "
        "instruction: (32,2) is (lane,instruction). With several --access, one each in the same order, _ for the usual "
        "lanes")] = None,
    at: Annotated[str | None, typer.Option(
        "--at", metavar="COORD", help="where the access starts in the tile, such as (0,16)")] = None,
    json_path: Annotated[str | None, typer.Option(
        "--json", metavar="FILE", help="write the result as JSON; - is stdout", rich_help_panel="Output")] = None,
    plot_path: Annotated[str | None, typer.Option(
        "--plot", metavar="FILE.png|svg", help="draw lanes and banks, as they are and mended",
        rich_help_panel="Output")] = None,
) -> None:
    """Count bank conflicts of a warp's access to shared memory, and find the swizzle or padding that mends them.

    Without --threads, ldmatrix and stmatrix read at --at what a fragment of A
    wants: lanes 8i to 8i+7 give the 8 rows of matrix i, and matrices start at
    (0,0), (8,0), (0,8), (8,8), for 16-bit elements.
    Of loads, stores, cp.async and atomics, lane i has the i-th vector along
    the contiguous mode, row after row.

    For example:
    gpusim banks --layout '(64,64):(64,1)' --dtype bf16 --access ldmatrix_x4
    """
    outputs = {"--json": output_path(json_path, "--json"), "--plot": output_path(plot_path, "--plot", ".png", ".svg")}
    refuse_same(outputs)
    from gpusim.workload.bank_mends import remarks

    lanes = _lanes(access, threads)
    element = find_dtype(dtype)
    accesses = _accesses(layout, element, access, swizzle, lanes, at)
    in_elements = "smem_ptr" not in layout and (swizzle is None or "," in swizzle)
    said = list(dict.fromkeys(
        sentence for one in accesses for sentence in remarks(one, is_in_elements=in_elements)
    ))
    said += _stride_remark(layout, accesses[0])
    asked = _Asked(dtype=element.name, access=tuple(access), threads=lanes, at=at, remarks=tuple(said))
    if len(accesses) == 1:
        _write_one(accesses[0], asked, outputs["--json"], outputs["--plot"])
    else:
        _write_joint(accesses, asked, outputs["--json"], outputs["--plot"])
    if outputs["--plot"] is not None:
        console_for(Path("-")).print(f"Plot: {outputs['--plot']}", highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What was typed, and what is to be remarked about it."""

    dtype: str
    access: tuple[str, ...]
    threads: tuple[str | None, ...]
    at: str | None
    remarks: tuple[str, ...]


def _write_one(access: TileAccess, asked: _Asked, json_path: Path | None, plot_path: Path | None) -> None:
    from gpusim.report.banks import banks_document, render_banks
    from gpusim.workload.bank_mends import study

    found = study(access)
    if plot_path is not None:
        from gpusim.report.plots_banks import plot_banks

        plot_banks(found, plot_path)
    if json_path is not None:
        write_json(banks_document(found, dtype_name=asked.dtype, remarks=asked.remarks), json_path)
    mend = found.padding
    if found.swizzle is not None and (found.swizzle.census.is_free or mend is None):
        mend = found.swizzle
    following = None if found.census.is_free or mend is None else _next(mend, asked)
    render_banks(found, console_for(json_path), dtype_name=asked.dtype, remarks=asked.remarks, next_command=following)


def _write_joint(accesses: list[TileAccess], asked: _Asked, json_path: Path | None, plot_path: Path | None) -> None:
    from gpusim.report.banks import joint_document, render_joint
    from gpusim.workload.bank_mends import study_jointly

    found = study_jointly(accesses)
    if plot_path is not None:
        from gpusim.report.plots_banks import plot_joint

        plot_joint(found, plot_path)
    if json_path is not None:
        write_json(joint_document(found, dtype_name=asked.dtype, remarks=asked.remarks), json_path)
    following = None if found.mend is None else _next(found.mend, asked)
    render_joint(found, console_for(json_path), dtype_name=asked.dtype, remarks=asked.remarks, next_command=following)


# ---------------------------------------------------------------------------------------------- what was typed


def _lanes(access: list[str], threads: list[str] | None) -> tuple[str | None, ...]:
    """``--threads`` of each ``--access``; None for the usual lanes."""
    if not threads:
        return (None,) * len(access)
    if len(threads) != len(access):
        lanes, accesses = ("once" if len(given) == 1 else f"{len(given)} times" for given in (threads, access))
        raise ConfigError(
            f"--threads is given {lanes}, --access {accesses}; give one for each, _ for the usual lanes"
        )
    return tuple(None if text.strip() == "_" else text for text in threads)


def _stride_remark(text: str, access: TileAccess) -> list[str]:
    """What to know where a layout of several modes has no strides."""
    from gpusim.layout import Layout, LayoutRight

    inner = access.tile.inner
    if ":" in text or "," not in text.rpartition("o")[2]:
        return []
    rows = Layout(inner.shape, LayoutRight)
    return [f"the layout is typed without strides, so that CuTe's column-major ones are taken: {inner}; for rows use {rows}"]


def _accesses(
    layout: str, dtype: DType, names: list[str], swizzle: str | None, lanes: tuple[str | None, ...], at: str | None
) -> list[TileAccess]:
    from gpusim.layout import ByteLayout, Layout
    from gpusim.workload.smem_ops import SMEM_OPS, smem_op_hint
    from gpusim.workload.tile_access import TileAccess, smem_tile

    for name in names:
        if name not in SMEM_OPS:
            raise LayoutError(f"--access {name!r} is unknown; {smem_op_hint(name)}")
        _check_number(name, dtype)
    tile = parse_any(layout, "--layout")
    if swizzle is not None and not isinstance(tile, Layout):
        kind = "in bytes" if isinstance(tile, ByteLayout) else "in elements"
        raise ConfigError(f"--swizzle {swizzle!r} and a swizzle {kind} in --layout are two; give one of them")
    in_smem = smem_tile(tile, dtype, None if swizzle is None else _swizzle(swizzle, dtype))
    start = (0, 0) if at is None else _place(at, tile.rank)
    return [
        TileAccess(op=name, tile=in_smem, threads=None if text is None else _threads(text), at=start)
        for name, text in zip(names, lanes, strict=True)
    ]


def _check_number(name: str, dtype: DType) -> None:
    """Refuse arithmetic on numbers of another kind than the instruction's."""
    verb, _, width = name.removeprefix("atom_shared_").removeprefix("red_shared_").rpartition("_")
    if not name.startswith(("atom_shared", "red_shared")) or verb not in ("", "add", "min", "max"):
        return
    if dtype.kind == "float" and width == "b32":
        kind = name.partition("_")[0]
        raise LayoutError(
            f"--access {name}: is of integers, --dtype {dtype.name} is not; use {kind}_shared_add_f32, which is a loop, or "
            "an integer type"
        )
    if width == "f32" and dtype.name != "fp32":
        raise LayoutError(f"--access {name}: is of fp32, --dtype is {dtype.name}; use --dtype fp32")


def _swizzle(text: str, dtype: DType) -> Swizzle:
    from gpusim.layout import parse_swizzle

    try:
        return parse_swizzle(text, dtype.bits)
    except LayoutError as error:
        raise LayoutError(f"--swizzle {str(error).removeprefix('swizzle ')}") from None


def _threads(text: str) -> Layout:
    from gpusim.layout import Layout

    layout = parse_any(text, "--threads")
    if not isinstance(layout, Layout):
        raise LayoutError(f"--threads {text!r} has a swizzle, wants a plain layout; give the tile's with --swizzle")
    return layout


def _place(text: str, rank: int) -> tuple[int, int]:
    numbers = re.findall(r"-?\d+", text)
    if not re.fullmatch(r"\(?\s*-?\d+\s*(,\s*-?\d+\s*)?\)?", text) or len(numbers) != rank:
        wanted = "two numbers such as (0,16)" if rank > 1 else "one number, as the layout has one mode"
        raise ConfigError(f"--at {text!r} is no coordinate of the layout, wants {wanted}")
    return (int(numbers[0]), int(numbers[1])) if rank > 1 else (0, int(numbers[0]))


def _next(mend: Mend, asked: _Asked) -> str:
    """The same accesses mended, as a line to type."""
    swizzle, tile = mend.swizzle_elements, mend.tile
    words = ["gpusim", "banks", "--layout", str(tile if tile.offset else tile.inner), "--dtype", asked.dtype]
    for access, threads in zip(asked.access, asked.threads, strict=True):
        words += ["--access", access]
        if any(asked.threads):
            words += ["--threads", threads or "_"]
    words += ["--at", asked.at] if asked.at is not None else []
    if not tile.offset and swizzle is not None and swizzle.num_bits:
        words += ["--swizzle", f"{swizzle.num_bits},{swizzle.base},{swizzle.shift}"]
    return shlex.join(words)
