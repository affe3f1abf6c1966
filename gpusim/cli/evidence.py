"""``calibrate``: GPU parameters from measured rows; and options that it shares with ``validate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.options import console_for, find_gpu, output_path, write_json
from gpusim.errors import ConfigError, full_gpu_name

if TYPE_CHECKING:
    from gpusim.evidence.cases.case import Case
    from gpusim.machine.config import GpuSpec

Gpu = Annotated[str, typer.Option("--gpu", metavar="NAME|TOML", help="a GPU's name or a TOML file")]
Measured = Annotated[
    str | None, typer.Option("--measured", metavar="DIR", help="its measured tables; validation/measured/<gpu> by default")
]
Kernels = Annotated[list[str] | None, typer.Option("--kernel", metavar="NAME", help="the rows of this kernel alone; repeat")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help="write the result as JSON; - is stdout")]


def calibrate_command(
    gpu_name: Gpu, measured: Measured = None, kernels: Kernels = None,
    writes: Annotated[bool, typer.Option("--write", help="write what is new into the GPU's description")] = False,
    json_path: Json = None,
) -> None:  # fmt: skip
    """Fit a GPU's parameters to measured rows; prints TOML lines for a person to take over, or writes them.

    Every second config of a sweep calibrates; a table on stderr has the values that the others would give. Ends with the
    parameters that no row settles yet, and the command that measures them.
    """
    from dataclasses import asdict

    from gpusim.evidence.validate.calibrate import calibrate, toml_lines
    from gpusim.evidence.validate.write_description import description_path, news, write
    from gpusim.report.parameters import unsettled
    from gpusim.report.validation import render_calibration, render_unsettled

    output = output_path(json_path, "--json")
    gpu, folder = find_gpu(gpu_name, "--gpu"), measured_folder(measured, gpu_name)
    lines = calibrate(cases_named(kernels, gpu), folder, gpu)
    if not lines and kernels:
        raise ConfigError(
            f"calibrate: {folder} has no rows of {', '.join(kernels)} that give a parameter; leave out --kernel to see all"
        )
    if not lines:
        raise ConfigError(f"calibrate: no table in {folder} holds a parameter; run gpusim measure --all on that GPU first")
    if output is not None:
        write_json([asdict(line) for line in lines], output)
    notes = console_for(Path("-"))
    render_calibration(lines, len(gpu.sources), notes)
    if writes:
        path, new = description_path(gpu_name, gpu), news(lines)
        write(path, new, gpu)
        kept = len(lines) - len(new)
        typer.echo(f"gpusim: {path}: {len(new)} parameters written, {kept} were there as the rows have them", err=True)
    else:
        console_for(output).print(toml_lines(lines, gpu), markup=False, soft_wrap=True)
    if not kernels:
        given = {".".join(line.parameter.split(".")[:2]) for line in lines}
        render_unsettled(unsettled(gpu, given), {path.stem for path in folder.glob("*.csv")}, notes)


def cases_named(names: Sequence[str] | None, gpu: GpuSpec) -> list[Case]:
    """Cases of ``--kernel``, all by default, made for ``gpu``."""
    from gpusim.evidence.cases.case import case_names, load_case
    from gpusim.evidence.cases.measured_gpu import MeasuredGpu

    return [load_case(name, gpu=MeasuredGpu.of(gpu)) for name in (dict.fromkeys(names) if names else case_names())]


def measured_folder(measured: str | None, gpu_name: str) -> Path:
    """Folder of the measured tables: ``--measured``, or that of ``--gpu``.

    Raises:
        ConfigError: there is no such folder.
    """
    from gpusim.evidence.cases.case import kernels_dir
    from gpusim.machine.config import gpu_names

    own = gpu_name.endswith(".toml")
    name = Path(gpu_name).stem if own else full_gpu_name(gpu_name, gpu_names())
    folder = Path(measured) if measured else kernels_dir().parent / "validation" / "measured" / name
    if not folder.is_dir():
        if not measured and own:
            raise ConfigError(f"--gpu {gpu_name!r} is a description of your own: say which rows judge it, --measured DIR")
        where = f"--measured {measured!r}" if measured else str(folder)
        raise ConfigError(f"{where} is no folder of measured tables; run gpusim measure --all on that GPU first")
    return folder
