"""``sweep``: predicts and ranks many configurations of one kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpusim.cli.kernel_command import Kernels, kernel_command, kernel_group
from gpusim.cli.options import PartOfResult, console_for, find_gpu, name_of, part_path, progress, write_json
from gpusim.cli.parameters import (
    given_options,
    json_option,
    kernel_parameters,
    option,
    output_paths,
    plot_option,
    simulation_options,
    simulation_settings,
)
from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from gpusim.kernel_models import KernelModel


class Sweeps(Kernels):
    """``sweep``."""

    def command_for(self, row: KernelModel, verb: str) -> Any:
        """``sweep`` for one kernel."""
        def command(**values: Any) -> None:
            _sweep(row, values)

        panel, output = "Sweep", "Output"
        options = [
            *simulation_options(panel),
            option("top", "Configurations wanted. One that cannot be among them is not simulated.", int, 10, metavar="N",
                   panel=panel),
            option("jobs", "Processes. By default one per core.", int, metavar="N", panel=panel),
            option("dask", "Dask scheduler whose workers simulate instead of --jobs (pip install 'gpusim\\[cluster]').",
                   metavar="ADDRESS", panel=panel),
            json_option("Write everything as JSON."),
            option("csv_path", "Write one line per configuration.", metavar="FILE.csv", panel=output),
            plot_option("Draw time over the option with most values."),
        ]  # fmt: skip
        own = kernel_parameters(row, takes_lists=True)
        return kernel_command(row, command, [*own, *options], f"Rank configurations: {row.summary}")


SWEEP = kernel_group(
    Sweeps, "Predict many configurations and rank them: every option takes a,b,c, a range (2..6, 1024..4096+512; long ones "
    "double) or auto.",
)


NONE_FINISHED = PartOfResult("interrupted before a configuration was simulated; nothing is written")


def _sweep(row: KernelModel, values: Mapping[str, Any]) -> None:
    given, outputs = given_options(row, values), output_paths(values)
    top, jobs = values["top"], values["jobs"] if values["jobs"] is not None else os.cpu_count() or 1
    for flag, number in (("--top", top), ("--jobs", jobs)):
        if number < 1:
            raise ConfigError(f"{flag} {number} is too few, wants 1 or more")
    options = simulation_settings(values)
    gpu = find_gpu(values["gpu"], "--gpu")
    gpu_name = name_of(values["gpu"], gpu)

    from gpusim.analysis.sweep import SweepSettings, run_sweep
    from gpusim.report.sweep import render_sweep, sweep_document

    with progress(says_left=True) as tell:
        settings = SweepSettings(top=top, jobs=jobs, dask=values["dask"], simulate_options=options)
        try:
            sweep = run_sweep(row.name, given, gpu, settings, progress=tell)
        except KeyboardInterrupt:
            raise NONE_FINISHED from None
    if sweep.is_interrupted:
        if all(entry.status == "not reached" for entry in sweep.entries):
            raise NONE_FINISHED
        outputs = {flag: path and part_path(path) for flag, path in outputs.items()}
    json_path, csv_path, plot_path = outputs.values()
    if json_path is not None:
        write_json(sweep_document(sweep, gpu_name=gpu_name), json_path)
    console = console_for(json_path)
    if csv_path is not None:
        from gpusim.report.output import write_whole

        write_whole(csv_path, sweep.table().to_csv(index=False).encode())
    render_sweep(sweep, console, top=top, gpu_name=gpu_name)
    if plot_path is not None:
        from gpusim.report.plots.sweep import plot_sweep

        plot_sweep(sweep, plot_path)
    for word, path in (("Table", csv_path), ("Plot", plot_path)):
        if path is not None:
            console.print(f"{word}: {path}", soft_wrap=True)
    if sweep.is_interrupted:
        files = [str(path) for path in outputs.values() if path is not None and str(path) != "-"]
        raise PartOfResult(f"interrupted; what was finished is {'in ' + ', '.join(files) if files else 'above'}")
