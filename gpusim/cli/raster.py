"""``raster``: tiles and bytes of each wave, and the tile order that moves the fewest bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpusim.cli.kernel_command import Kernels, kernel_command, kernel_group
from gpusim.cli.options import check_choice, console_for, find_gpu, spinner, write_json
from gpusim.cli.parameters import (
    checked_params,
    given_options,
    gpu_option,
    json_option,
    kernel_parameters,
    option,
    output_paths,
    plot_option,
)
from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from gpusim.kernel_models import KernelModel

DEFAULT_GROUPS = "1,2,4,8,16"
DIRECTIONS = ("along_m", "along_n")
L2_STATES = ("cold", "warm")
MOST_GROUP, MOST_GROUPS = 4096, 16


class Rasters(Kernels):
    """One command for each kernel whose tiles can be taken in several orders."""

    noun = "kernel with an order of tiles to choose"

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of kernels with options for the order of tiles."""
        from gpusim.kernel_models import KERNEL_MODELS

        return [name for name, row in KERNEL_MODELS.items() if {"raster", "swizzle_size"} <= row.params.model_fields.keys()]

    def command_for(self, row: KernelModel, verb: str) -> Any:
        """``raster`` for one kernel."""
        def command(**values: Any) -> None:
            _raster(row, values)

        panel = "Raster"
        options = [
            gpu_option(panel),
            option("groups", "CTA rasterization swizzle sizes that are compared, in both directions.",
                   default=DEFAULT_GROUPS, metavar="N,N,...", panel=panel),
            option("wave", "Wave that is shown, from 0.", int, 0, metavar="W", panel=panel),
            option("l2_state", f"L2 before the launch: {' or '.join(L2_STATES)}.", default="cold",
                   metavar="|".join(L2_STATES), panel=panel),
            json_option("Write wave and orders as JSON."), plot_option("Draw the tiles by wave and by reuse."),
        ]  # fmt: skip
        text = f"Waves of tiles and orders of them: {row.summary}"
        return kernel_command(row, command, [*kernel_parameters(row), *options], text)


RASTER = kernel_group(
    Rasters, "Show who touches what when, without time: a wave's tiles, bytes at each level, the best order of tiles."
)


def _groups(text: str) -> list[int]:
    parts = text.split(",")
    if len(parts) > MOST_GROUPS or not all(
        part.isascii() and part.isdigit() and 1 <= int(part) <= MOST_GROUP for part in parts
    ):
        raise ConfigError(
            f"--groups {text!r} wants up to {MOST_GROUPS} numbers from 1 to {MOST_GROUP}, for example {DEFAULT_GROUPS}"
        )
    return sorted({int(part) for part in parts})


def _raster(row: KernelModel, values: Mapping[str, Any]) -> None:
    json_path, plot_path = output_paths(values).values()
    params: Any = checked_params(row, given_options(row, values))
    gpu, groups = find_gpu(values["gpu"], "--gpu"), _groups(values["groups"])
    is_warm = check_choice("--l2", values["l2_state"], L2_STATES) == "warm"

    from gpusim.analysis.choose import choose
    from gpusim.report.raster import render_comparison, render_raster
    from gpusim.report.tile_orders import Raster, compare_orders, comparison_as_dict

    with spinner(f"choosing a configuration of {row.name} for {gpu.name}"):
        resolved: Any = choose(params, gpu, l2="warm" if is_warm else "cold").params.resolved(gpu)
    shown = Raster(resolved.launch(gpu), gpu, is_warm=is_warm)
    shown.check_wave(values["wave"])

    def build(group: int, direction: str) -> Any:
        return resolved.model_copy(update={"swizzle_size": group, "raster": direction}).launch(gpu)

    with spinner(f"planning {2 * len(groups)} orders of {row.name} on {gpu.name}"):
        comparison = compare_orders(build, gpu, groups=groups, directions=DIRECTIONS, is_warm=is_warm)
    if json_path is not None:
        write_json({**shown.as_dict(values["wave"]), **comparison_as_dict(comparison)}, json_path)
    console = console_for(json_path)
    render_raster(shown, values["wave"], console)
    render_comparison(comparison, console)
    if plot_path is not None:
        from gpusim.report.plots.raster import plot_raster

        plot_raster(shown, values["wave"], plot_path)
        console.print(f"Plot: {plot_path}", soft_wrap=True)
