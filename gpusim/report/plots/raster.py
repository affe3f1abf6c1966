"""Plot of a launch's tiles: by wave, and by the number of tiles of a wave that share what a tile reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gpusim.report.number_format import count, size
from gpusim.report.plots.figure import new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot
from gpusim.report.tile_orders import Raster

MOST_OUTLINED = 2048
"""Most tiles of a wave that are outlined one by one."""
MOST_NAMED, MOST_SIDE = 300, 40
"""Most tiles of a wave that get their number, and the largest height and width of such a grid."""
FEW_WAVES = 16
"""Most waves that get separate colours instead of a scale."""


def plot_raster(raster: Raster, wave: int = 0, path: str | Path | None = None) -> Picture:
    """Plot the grid of tiles twice, with the tiles of ``wave`` outlined; written to ``path`` if given.

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        LaunchError: there is no such wave.
        OSError: the file cannot be written.
    """
    check_plot(path)
    raster.check_wave(wave)
    reuse = raster.reuse_of_tile()[raster.tiles_of_wave(wave)]
    alt = (
        f"{raster.num_rows} x {raster.num_columns} tiles of {raster.launch.kernel} on {raster.gpu.name} in "
        f"{count(raster.num_waves, 'wave')} of {raster.num_at_once}; in wave {wave} a tile's bytes are read by "
        f"{reuse.mean():.1f} tiles in the mean, {reuse.min():.1f} to {reuse.max():.1f}."
    )
    with settings():
        return picture_of(_draw(raster, wave), alt, path, dpi=120)


def _draw(raster: Raster, wave: int) -> Any:
    figure = new_figure(10.5, 5.4)
    left, right = figure.subplots(1, 2)
    _panel(
        figure, left, raster, wave, raster.wave_of_tile.astype(np.float64), "wave", "which wave takes a tile", is_wave=True,
    )
    _panel(
        figure, right, raster, wave, raster.reuse_of_tile(), "tiles that share its bytes in its wave (mean)",
        "reuse within a wave", is_wave=False,
    )
    unique = sum(item.unique for item in raster.tensors(wave) if item.access == "read")
    figure.suptitle(
        f"{raster.launch.kernel} on {raster.gpu.name}: {count(raster.num_waves, 'wave')} of {raster.num_at_once} tiles; "
        f"outlined: wave {wave}, which reads {size(unique)} of different lines",
        fontsize=10, fontweight="bold",
    )
    return figure


def _panel(figure: Any, axes: Any, raster: Raster, wave: int, values: Any, label: str, title: str, *, is_wave: bool) -> None:
    from matplotlib import colormaps
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    grid = np.full((raster.num_rows, raster.num_columns), np.nan)
    grid[raster.row_of_tile, raster.column_of_tile] = values
    cmap = colormaps["cividis"].resampled(raster.num_waves) if is_wave and raster.num_waves <= FEW_WAVES else "cividis"
    limits = {"vmin": -0.5, "vmax": raster.num_waves - 0.5} if is_wave else {}
    image = axes.imshow(grid, cmap=cmap, interpolation="nearest", aspect="auto", **limits)
    tiles = raster.tiles_of_wave(wave)[:MOST_OUTLINED].tolist()
    is_fine = max(raster.num_rows, raster.num_columns) > MOST_SIDE
    outlines = [Rectangle((raster.column_of_tile[tile] - 0.5, raster.row_of_tile[tile] - 0.5), 1, 1) for tile in tiles]
    axes.add_collection(PatchCollection(outlines, facecolor="none", edgecolor="#D55E00", linewidth=0.4 if is_fine else 1.0))
    bar = figure.colorbar(image, ax=axes, label=label)
    if is_wave:
        bar.set_ticks(range(0, raster.num_waves, max(1, -(-raster.num_waves // 8))))
        if len(tiles) <= MOST_NAMED and not is_fine:
            title += "; numbers: the order within the outlined one"
            for order, tile in enumerate(tiles):
                shade = float(image.norm(values[tile]))
                axes.text(
                    raster.column_of_tile[tile], raster.row_of_tile[tile], str(order), ha="center", va="center", fontsize=7,
                    color="white" if shade < 0.5 else "black",
                )  # fmt: skip
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("column of tiles (N)")
    axes.set_ylabel("row of tiles (M)")
