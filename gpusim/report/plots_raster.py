"""Tiles of a launch as a picture: by wave, and by how many of a wave share what a tile reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gpusim.report.pictures import Picture, check_plot
from gpusim.report.plots_figure import picture_of, settings
from gpusim.report.words import count, size
from gpusim.simulate.raster import Raster

MOST_OUTLINED = 2048
"""Tiles of a wave that are outlined one by one."""


def plot_raster(raster: Raster, wave: int = 0, path: str | Path | None = None) -> Picture:
    """The grid of tiles twice, the tiles of ``wave`` outlined; written to ``path`` if there is one.

    Raises:
        GpusimError: another suffix, or nowhere to write.
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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 6.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _panel(figure, left, raster, wave, raster.wave_of_tile.astype(np.float64), "wave (a number)", "which wave takes a tile")
    _panel(
        figure, right, raster, wave, raster.reuse_of_tile(), "tiles that share its bytes in its wave (mean)",
        "reuse within a wave",
    )
    unique = sum(item.unique for item in raster.tensors(wave) if item.access == "read")
    figure.suptitle(
        f"{raster.launch.kernel} on {raster.gpu.name}: {count(raster.num_waves, 'wave')} of {raster.num_at_once} tiles; "
        f"outlined: wave {wave}, which reads {size(unique)} of different lines",
        fontsize=11,
    )
    return figure


def _panel(figure: Any, axes: Any, raster: Raster, wave: int, values: Any, label: str, title: str) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    grid = np.full((raster.num_rows, raster.num_columns), np.nan)
    grid[raster.row_of_tile, raster.column_of_tile] = values
    image = axes.imshow(grid, cmap="cividis", interpolation="nearest", aspect="auto")
    tiles = raster.tiles_of_wave(wave)[:MOST_OUTLINED].tolist()
    outlines = [Rectangle((raster.column_of_tile[tile] - 0.5, raster.row_of_tile[tile] - 0.5), 1, 1) for tile in tiles]
    axes.add_collection(PatchCollection(outlines, facecolor="none", edgecolor="#D55E00", linewidth=1.0))
    figure.colorbar(image, ax=axes, label=label)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("column of tiles (N)")
    axes.set_ylabel("row of tiles (M)")
