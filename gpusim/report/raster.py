"""Tile rasterization as text: the tile grid, a wave's bytes at L2 and DRAM, and orders in comparison."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.markup import escape

from gpusim.report.number_format import count, number, size
from gpusim.report.tables import plain_table
from gpusim.report.tile_orders import Comparison, Raster

MOST_ROWS, MOST_COLUMNS = 32, 96
"""Largest grid in the terminal; in a larger one a character stands for several tiles."""
SHADES = " ░▒▓█"
BEFORE, AFTER = "·", " "
EDGES_SHOWN = 4
"""Tiles of a wave that are listed at its beginning and at its end."""


def grid_lines(raster: Raster, wave: int) -> tuple[list[str], int, int]:
    """(lines, rows and columns of tiles per character) of the grid.

    A tile of the wave is the number of its L2 partition. A tile of an earlier wave is a dot, of a later one a blank. If a
    character stands for several tiles, its shade shows how many of them are in the wave.
    """
    tall, wide = (-(-num // most) for num, most in ((raster.num_rows, MOST_ROWS), (raster.num_columns, MOST_COLUMNS)))
    rows, columns = -(-raster.num_rows // tall), -(-raster.num_columns // wide)
    place = raster.row_of_tile // tall * columns + raster.column_of_tile // wide
    of_wave = raster.tiles_of_wave(wave)
    tiles_here = np.bincount(place, minlength=rows * columns)
    in_wave = np.bincount(place[of_wave], minlength=rows * columns)
    before = np.bincount(place[raster.wave_of_tile < wave], minlength=rows * columns)
    side = np.zeros(rows * columns, dtype=np.int64)
    side[place[of_wave]] = raster.partition_of_tile[of_wave]
    characters = []
    for idx in range(rows * columns):
        if in_wave[idx]:
            share = in_wave[idx] / tiles_here[idx]
            characters.append(str(side[idx]) if tall * wide == 1 else SHADES[max(1, round(share * (len(SHADES) - 1)))])
        else:
            characters.append(BEFORE if before[idx] else AFTER)
    return ["".join(characters[row * columns : (row + 1) * columns]) for row in range(rows)], tall, wide


def render_raster(raster: Raster, wave: int, console: Console) -> None:
    """Print a wave: its tiles in the grid, their CTAs and SMs, its bytes at each level."""
    launch = raster.launch
    console.print()
    console.print(
        f"[bold]{escape(launch.kernel)}[/] on [bold]{escape(raster.gpu.name)}[/]: "
        f"{count(launch.num_tiles, 'tile')} in {count(raster.num_rows, 'row')} and {count(raster.num_columns, 'column')}, "
        f"{number(raster.num_at_once)} at once: {count(raster.num_waves, 'wave')}; wave {wave}:",
    )
    lines, tall, wide = grid_lines(raster, wave)
    width = len(lines[0])
    console.print(f"┌{'─' * width}┐", soft_wrap=True)
    for line in lines:
        console.print(f"│{line}│", markup=False, soft_wrap=True)
    console.print(f"└{'─' * width}┘", soft_wrap=True)
    what = (
        "0, 1: a tile of the wave, by its SM's side of L2"
        if tall * wide == 1
        else f"a character is {tall} x {wide} tiles, darker the more of them are in the wave"
    )
    console.print(f"{what}; ·: an earlier wave", style="dim")
    console.print()
    _print_places(raster, wave, console)
    _print_bytes(raster, wave, console)


def _print_places(raster: Raster, wave: int, console: Console) -> None:
    places = raster.places(wave)
    table = plain_table("", "tile", "row", "column", "CTA", "SM", "GPC", "side", left=0)
    names = ("tile", "row", "column", "cta", "sm", "gpc", "side")
    shown = places if len(places) <= 2 * EDGES_SHOWN else [*places[:EDGES_SHOWN], *places[-EDGES_SHOWN:]]
    for idx, place in enumerate(shown):
        if idx == EDGES_SHOWN and len(shown) < len(places):
            table.add_row(*["..."] * len(names))
        table.add_row(*(number(place[name]) for name in names))
    console.print(table)
    console.print()


def _print_bytes(raster: Raster, wave: int, console: Console) -> None:
    table = plain_table("", "tensor", "SMs", "asked of L2", "if merged", "unique", "memory", "reuse")
    for item in raster.tensors(wave):
        table.add_row(
            f"{item.tensor}, {item.access}", size(item.asked), size(item.requested), size(item.merged), size(item.unique),
            size(item.memory), f"{item.reuse:.1f}",
        )  # fmt: skip
    console.print(table)
    console.print()


def render_comparison(found: Comparison, console: Console) -> None:
    """Print several orders of tiles in one table, and the best."""
    titles = ("order", "group", "from memory", "to memory", "SMs read", "hits", "hits if merged", "unique a wave")
    table = plain_table("", *titles)
    for order in found.orders:
        table.add_row(
            order.direction, number(order.group), size(order.dram_read_bytes), size(order.dram_written_bytes),
            size(order.asked_bytes), f"{order.hit_pct:.1f} %", f"{order.l2_hit_pct:.1f} %", size(order.wave_unique_bytes),
            style="bold" if order is found.best and not found.makes_no_difference else "",
        )  # fmt: skip
    console.print(table)
    console.print("hits if merged: of what is left at L2 where neighbours' requests merge", style="dim")
    console.print()
    best = found.best
    times = best.dram_read_bytes / found.least_bytes if found.least_bytes else 1.0
    once = "every line once" if abs(times - 1.0) < 1e-3 else f"every line {times:.2f} times"
    console.print(
        f"[bold]Best[/]: --raster {best.direction} --swizzle-size {best.group}: {escape(found.reason)} "
        f"({size(best.dram_read_bytes)} read, {once}).",
    )
