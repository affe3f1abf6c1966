"""Plots of predictions, layouts and measurements. No other folder imports matplotlib.

In: results and layouts. Out: SVG or PNG files.

>>> from gpusim.report.plots import plot_timeline
"""

from importlib import import_module
from typing import Any

MODULES = {
    "plot_atom": "atoms", "plot_banks": "banks", "plot_joint": "banks", "plot_layout": "layouts",
    "plot_measured": "measured", "plot_occupancy": "occupancy", "plot_raster": "raster", "plot_roofline": "roofline",
    "plot_stage_ring": "ring",
    "plot_sweep": "sweep", "plot_thread_values": "threads", "plot_timeline": "timeline", "plot_validation": "validate",
    "plot_waterfall": "waterfall",
}  # fmt: skip
"""Module of each plot, imported when the plot is first asked for."""


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
