"""``raster``: tiles and bytes of each wave, and the tile order that moves the fewest bytes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer
from typer.main import get_command

from gpusim.cli.kernel_command import command_of
from gpusim.cli.options import (
    GPU_HELP,
    Commands,
    check_choice,
    console_for,
    find_gpu,
    output_path,
    refuse_same,
    spinner,
    write_json,
)
from gpusim.cli.parameters import checked_params, given_options, kernel_parameters, parameter
from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from gpusim.kernel_models import KernelModel

DEFAULT_GROUPS = "1,2,4,8,16"
DIRECTIONS = ("along_m", "along_n")
L2_STATES = ("cold", "warm")
MOST_GROUP, MOST_GROUPS = 4096, 16


class Rasters(Commands):
    """One command for each kernel whose tiles can be taken in several orders."""

    noun = "kernel with an order of tiles to choose"

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of kernels with options for the order of tiles."""
        from gpusim.kernel_models import KERNEL_MODELS

        return [name for name, row in KERNEL_MODELS.items() if {"raster", "swizzle_size"} <= row.params.model_fields.keys()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Command ``raster`` for one kernel."""
        from gpusim.kernel_models import KERNEL_MODELS

        return _kernel_command(KERNEL_MODELS[cmd_name]) if cmd_name in self.list_commands(ctx) else None


RASTER = typer.Typer(
    cls=Rasters, rich_markup_mode="rich",
    help="Show who touches what when, without time: a wave's tiles, bytes at each level, the best order of tiles.",
)


def _kernel_command(row: KernelModel) -> Any:
    def command(**values: Any) -> None:
        _raster(row, values)

    panel, output = "Raster", "Output"
    own = [
        parameter("gpu", str, typer.Option(
            "--gpu", help=GPU_HELP, metavar="NAME|TOML",
            rich_help_panel=panel), inspect.Parameter.empty),
        parameter("groups", str, typer.Option(
            "--groups", help="CTA rasterization swizzle sizes that are compared, in both directions.", metavar="N,N,...",
            rich_help_panel=panel), DEFAULT_GROUPS),
        parameter("wave", int, typer.Option(
            "--wave", help="Wave that is shown, from 0.", metavar="W", rich_help_panel=panel), 0),
        parameter("l2_state", str, typer.Option(
            "--l2", help=f"L2 before the launch: {' or '.join(L2_STATES)}.", metavar="|".join(L2_STATES),
            rich_help_panel=panel), "cold"),
        parameter("json_path", str | None, typer.Option(
            "--json", help="Write wave and orders as JSON. - is stdout, tables then go to stderr.", metavar="FILE",
            rich_help_panel=output), None),
        parameter("plot_path", str | None, typer.Option(
            "--plot", help="Draw the tiles by wave and by reuse.", metavar="FILE.png|svg", rich_help_panel=output), None),
    ]  # fmt: skip
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # typer reads options from it
        [*kernel_parameters(row), *own]
    )
    single = typer.Typer(add_completion=False, rich_markup_mode="rich",
                         context_settings={"help_option_names": ["-h", "--help"]})
    single.command(name=row.name, help=f"Waves of tiles and orders of them: {row.summary}", cls=command_of(row))(command)
    return get_command(single)


def _groups(text: str) -> list[int]:
    parts = text.split(",")
    if len(parts) > MOST_GROUPS or not all(
        part.isascii() and part.isdigit() and 1 <= int(part) <= MOST_GROUP for part in parts
    ):
        raise ConfigError(
            f"--groups {text!r} wants up to {MOST_GROUPS} numbers from 1 to {MOST_GROUP}, such as {DEFAULT_GROUPS}"
        )
    return sorted({int(part) for part in parts})


def _raster(row: KernelModel, values: Mapping[str, Any]) -> None:
    given = given_options(row, values)
    outputs = {
        "--json": output_path(values["json_path"], "--json"),
        "--plot": output_path(values["plot_path"], "--plot", ".png", ".svg"),
    }
    refuse_same(outputs)
    params: Any = checked_params(row, given)
    gpu, groups = find_gpu(values["gpu"], "--gpu"), _groups(values["groups"])
    is_warm = check_choice("--l2", values["l2_state"], L2_STATES) == "warm"

    from gpusim.report.raster import render_comparison, render_raster
    from gpusim.report.tile_orders import Raster, compare_orders, comparison_as_dict

    resolved = params.resolved(gpu)
    shown = Raster(resolved.launch(gpu), gpu, is_warm=is_warm)
    shown.check_wave(values["wave"])

    def build(group: int, direction: str) -> Any:
        return resolved.model_copy(update={"swizzle_size": group, "raster": direction}).launch(gpu)

    with spinner(f"planning {2 * len(groups)} orders of {row.name} on {gpu.name}"):
        found = compare_orders(build, gpu, groups=groups, directions=DIRECTIONS, is_warm=is_warm)
    json_path, plot_path = outputs["--json"], outputs["--plot"]
    if json_path is not None:
        write_json({**shown.as_dict(values["wave"]), **comparison_as_dict(found)}, json_path)
    console = console_for(json_path)
    render_raster(shown, values["wave"], console)
    render_comparison(found, console)
    if plot_path is not None:
        from gpusim.report.plots.raster import plot_raster

        plot_raster(shown, values["wave"], plot_path)
        console.print(f"Plot: {plot_path}", highlight=False, soft_wrap=True)
