"""``sweep``: predicts and ranks many configurations of one kernel."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.main import get_command

from gpusim.cli.kernel_command import command_of
from gpusim.cli.kernels import CLOCKS, DATA, L2_HELP, L2_STATES, Kernels, parse_clock
from gpusim.cli.options import (
    GPU_HELP,
    INTERRUPTED,
    check_choice,
    console_for,
    find_gpu,
    name_of,
    output_path,
    progress,
    refuse_same,
    write_json,
)
from gpusim.cli.parameters import given_options, kernel_parameters, parameter
from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from gpusim.kernel_models import KernelModel


class Sweeps(Kernels):
    """One command per kernel."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Command ``sweep`` for one kernel."""
        from gpusim.kernel_models import KERNEL_MODELS

        row = KERNEL_MODELS.get(cmd_name)
        return None if row is None else _kernel_command(row)


SWEEP = typer.Typer(
    cls=Sweeps, rich_markup_mode="rich",
    help="Predict many configurations and rank them: every option takes a,b,c, a range (2..6, 1024..4096+512; long ones "
    "double) or auto.",
)


def _kernel_command(row: KernelModel) -> Any:
    def command(**values: Any) -> None:
        _sweep(row, values)

    panel, output = "Sweep", "Output"
    own = [
        parameter("gpu", str, typer.Option(
            "--gpu", help=GPU_HELP, metavar="NAME|TOML",
            rich_help_panel=panel), inspect.Parameter.empty),
        parameter("top", int, typer.Option(
            "--top", help="Configurations wanted. One that cannot be among them is not simulated.",
            metavar="N", rich_help_panel=panel), 10),
        parameter("jobs", int | None, typer.Option(
            "--jobs", help="Processes. By default one per core.", metavar="N", rich_help_panel=panel), None),
        parameter("dask", str | None, typer.Option(
            "--dask", help="Dask scheduler whose workers simulate instead of --jobs (pip install 'gpusim\\[cluster]').",
            metavar="ADDRESS", rich_help_panel=panel), None),
        parameter("clock", str, typer.Option(
            "--clock", help=f"SM clock: {', '.join(CLOCKS)}, or MHz.", metavar="MODE|MHZ", rich_help_panel=panel), "single"),
        parameter("l2_state", str, typer.Option(
            "--l2", help=L2_HELP, metavar="|".join(L2_STATES),
            rich_help_panel=panel), "cold"),
        parameter("data", str, typer.Option(
            "--data", help=f"Values of the operands, for the power that they draw: {' or '.join(DATA)}.",
            metavar="|".join(DATA), rich_help_panel=panel), "random"),
        parameter("json_path", str | None, typer.Option(
            "--json", help="Write everything as JSON. - is stdout, tables then go to stderr.", metavar="FILE",
            rich_help_panel=output), None),
        parameter("csv_path", str | None, typer.Option(
            "--csv", help="Write one line per configuration.", metavar="FILE.csv", rich_help_panel=output), None),
        parameter("plot_path", str | None, typer.Option(
            "--plot", help="Draw time over the option with most values.", metavar="FILE.png|svg",
            rich_help_panel=output), None),
    ]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # typer reads options from it
        [*kernel_parameters(row, takes_lists=True), *own]
    )
    single = typer.Typer(add_completion=False, rich_markup_mode="rich",
                         context_settings={"help_option_names": ["-h", "--help"]})
    single.command(name=row.name, help=f"Rank configurations: {row.summary}", cls=command_of(row))(command)
    return get_command(single)


def _sweep(row: KernelModel, values: Mapping[str, Any]) -> None:
    given = given_options(row, values)
    outputs = {
        "--json": output_path(values["json_path"], "--json"),
        "--csv": output_path(values["csv_path"], "--csv", ".csv"),
        "--plot": output_path(values["plot_path"], "--plot", ".png", ".svg"),
    }
    refuse_same(outputs)
    top, jobs = values["top"], values["jobs"] if values["jobs"] is not None else os.cpu_count() or 1
    for flag, number in (("--top", top), ("--jobs", jobs)):
        if number < 1:
            raise ConfigError(f"{flag} {number} is too few, wants 1 or more")
    options = {
        "clock": parse_clock(values["clock"]), "l2": check_choice("--l2", values["l2_state"], L2_STATES),
        "data": check_choice("--data", values["data"], DATA),
    }
    gpu = find_gpu(values["gpu"], "--gpu")

    from gpusim.analysis.sweep import SweepSettings, run_sweep
    from gpusim.report.sweep import render_sweep, sweep_document

    with progress(says_left=True) as tell:
        settings = SweepSettings(top=top, jobs=jobs, dask=values["dask"], simulate_options=options)
        found = run_sweep(row.name, given, gpu, settings, progress=tell)
    json_path, csv_path, plot_path = outputs.values()
    if json_path is not None:
        write_json(sweep_document(found, gpu_name=name_of(values["gpu"], gpu)), json_path)
    console = console_for(json_path)
    if csv_path is not None:
        from gpusim.report.output import write_whole

        write_whole(csv_path, found.table().to_csv(index=False).encode())
    render_sweep(found, console, top=top, gpu_name=name_of(values["gpu"], gpu))
    for word, path in (("Table", csv_path), ("Plot", plot_path)):
        if path is not None:
            if word == "Plot":
                _plot(found, path)
            console.print(f"{word}: {path}", highlight=False, soft_wrap=True)
    if found.is_interrupted:
        raise typer.Exit(INTERRUPTED)


def _plot(found: Any, path: Path) -> None:
    from gpusim.report.plots.sweep import plot_sweep

    plot_sweep(found, path)
