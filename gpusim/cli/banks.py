"""``banks``: conflicts of a warp's access to a tile in shared memory, and what mends them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.layout import parse_any
from gpusim.cli.options import console_for, output_path, refuse_same, write_json
from gpusim.errors import ConfigError, KernelError, LayoutError, nearest

if TYPE_CHECKING:
    from gpusim.layout import Layout, Swizzle
    from gpusim.workload.bank_mends import Study
    from gpusim.workload.dtypes import DType



def banks_command(
    layout: Annotated[str, typer.Option(
        "--layout", metavar="LAYOUT", help="the tile in shared memory, in CuTe's notation; with a swizzle, too")],
    dtype: Annotated[str, typer.Option("--dtype", metavar="NAME", help="element type: bf16, fp32, fp8, ...")],
    access: Annotated[str, typer.Option(
        "--access", metavar="NAME", help="the instruction: ldmatrix_x4, ld_shared_b128, st_shared_b32, cp_async_b128, ...")],
    swizzle: Annotated[str | None, typer.Option(
        "--swizzle", metavar="B,M,S|MODE",
        help="a swizzle over the layout: B,M,S in elements, or 32B, 64B, 128B of TMA and wgmma (in bytes)")] = None,
    threads: Annotated[str | None, typer.Option(
        "--threads", metavar="LAYOUT",
        help="where the first element of each lane's vector lies: a layout from lane to the index in the tile (mode 0 "
        "counts first), or to a coordinate, such as 32:1@0 for one lane a row; 33rd and later lanes are those of a second "
        "instruction: (32,2) is (lane,instruction)")] = None,
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
    (0,0), (8,0), (0,8), (8,8), for 16-bit elements that lie in rows.
    Of loads, stores, cp.async and atomics, lane i has the i-th vector along
    the contiguous mode, row after row.

    For example:
    gpusim banks --layout '(64,64):(64,1)' --dtype bf16 --access ldmatrix_x4
    """
    outputs = {"--json": output_path(json_path, "--json"), "--plot": output_path(plot_path, "--plot", ".png", ".svg")}
    refuse_same(outputs)
    from gpusim.workload.bank_mends import remarks, study

    found = study(_access(layout, _dtype(dtype), access, swizzle, threads, at))
    in_elements = "smem_ptr" not in layout and (swizzle is None or "," in swizzle)
    said = remarks(found.access, is_in_elements=in_elements)
    following = _next(found, dtype, access, threads, at)
    _write(found, dtype, said, following, outputs["--json"], outputs["--plot"])


def _write(
    found: Study, dtype: str, said: list[str], following: str | None, json_path: Path | None, plot_path: Path | None
) -> None:
    from gpusim.report.banks import banks_document, render_banks

    if plot_path is not None:
        from gpusim.report.plots_banks import plot_banks

        plot_banks(found, plot_path)
    if json_path is not None:
        write_json(banks_document(found, dtype_name=dtype, remarks=said), json_path)
    render_banks(found, console_for(json_path), dtype_name=dtype, remarks=said, next_command=following)
    if plot_path is not None:
        console_for(Path("-")).print(f"Plot: {plot_path}", highlight=False, soft_wrap=True)


# ---------------------------------------------------------------------------------------------- what was typed


def _dtype(name: str) -> DType:
    from gpusim.workload.dtypes import dtype

    try:
        return dtype(name)
    except KernelError as error:
        raise KernelError(f"--{error}".replace("dtype: ", "dtype ")) from None


def _access(
    layout: str, dtype: DType, access: str, swizzle: str | None, threads: str | None, at: str | None
) -> Any:
    from gpusim.layout import ByteLayout, Layout
    from gpusim.workload.access import SMEM_OPS
    from gpusim.workload.banks import TileAccess, smem_tile

    if access not in SMEM_OPS:
        raise LayoutError(f"--access {access!r} is unknown; {_nearest_access(access, SMEM_OPS)}")
    tile = parse_any(layout, "--layout")
    if swizzle is not None and not isinstance(tile, Layout):
        kind = "in bytes" if isinstance(tile, ByteLayout) else "in elements"
        raise ConfigError(f"--swizzle {swizzle!r} and a swizzle {kind} in --layout are two; give one of them")
    wanted = None if swizzle is None else _swizzle(swizzle, dtype)
    return TileAccess(
        op=access, tile=smem_tile(tile, dtype, wanted), threads=None if threads is None else _threads(threads),
        at=(0, 0) if at is None else _place(at, tile.rank),
    )


def _nearest_access(name: str, known: Any) -> str:
    """A hint without a list of sixty."""
    hint = nearest(name, known)
    if hint.startswith("did you"):
        return hint
    families = sorted({re.sub(r"_(b\d+|x\d).*$", "", row) for row in known if not re.search(r"shared_[a-z]+_b", row)})
    return f"known: {', '.join(families)}, with their widths, such as ld_shared_b128 and ldmatrix_x4"


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


def _next(found: Study, dtype: str, access: str, threads: str | None, at: str | None) -> str | None:
    """The same access mended, as a line to type; None if there is nothing to mend, or no way."""
    mend = found.padding
    if found.swizzle is not None and (found.swizzle.census.is_free or mend is None):
        mend = found.swizzle
    if found.census.is_free or mend is None:
        return None
    asked, tile = mend.swizzle_elements, mend.tile
    words = ["gpusim", "banks", "--layout", str(tile.inner), "--dtype", dtype, "--access", access]
    if tile.offset:
        words[3] = str(tile)
    words += ["--threads", threads] if threads is not None else []
    words += ["--at", at] if at is not None else []
    if not tile.offset and asked is not None and asked.num_bits:
        words += ["--swizzle", f"{asked.num_bits},{asked.base},{asked.shift}"]
    return shlex.join(words)
