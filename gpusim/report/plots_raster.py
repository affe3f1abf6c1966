"""Tiles of a launch as a picture: by wave, and by how many of a wave share what a tile reads."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.report.output import check_output, write_whole
from gpusim.report.words import count, size
from gpusim.simulate.raster import Raster

SUFFIXES = (".png", ".svg")
"""What a picture's name may end in."""
MOST_OUTLINED = 2048
"""Tiles of a wave that are outlined one by one."""


def plot_raster(raster: Raster, wave: int, path: str | Path) -> None:
    """Draw the grid of tiles twice, to PNG or SVG by suffix; the tiles of ``wave`` are outlined.

    Raises:
        GpusimError: another suffix, or nowhere to write.
        OSError: the file cannot be written.
    """
    path = Path(path)
    check_output(path, flag="plot", suffixes=SUFFIXES)
    write_whole(path, _draw(raster, wave, path.suffix.lower()[1:]))


def _draw(raster: Raster, wave: int, suffix: str) -> bytes:
    from matplotlib import rc_context
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
    written = BytesIO()
    metadata = {"Date": None} if suffix == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "gpusim", "svg.fonttype": "none"}):
        figure.savefig(written, format=suffix, dpi=120, metadata=metadata)
    return written.getvalue()


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
