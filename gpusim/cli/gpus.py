"""``gpus``: lists the described GPUs, shows one, or compares two."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpusim.cli.options import console_for, find_gpu, output_path, write_json
from gpusim.errors import ConfigError


def gpus_command(
    names: Annotated[list[str] | None, typer.Argument(
        metavar="[A [B]]", help="None lists all, one shows it, two compares them.")] = None,
    json_path: Annotated[str | None, typer.Option(
        "--json", metavar="FILE", help="Write the table as JSON. - is stdout.")] = None,
    as_toml: Annotated[bool, typer.Option(
        "--toml", help="Print the description of one GPU as a TOML file that extends no other.")] = False,
    explained: Annotated[str | None, typer.Option(
        "--explain", metavar="PART[.NAME]", help="Meanings of parameters: hbm, or hbm.latency_ns.")] = None,
) -> None:  # fmt: skip
    """List the GPUs, show one with the source of every number, or compare two."""
    from gpusim.machine.config import gpu_names
    from gpusim.report import tables
    from gpusim.report.gpu_toml import gpu_toml

    names = names or []
    if len(names) > 2:
        raise ConfigError(f"gpus: {len(names)} names are given, wants none, one or two")
    if as_toml and (len(names) != 1 or json_path is not None):
        raise ConfigError("gpus: --toml prints one GPU and no JSON, wants one name and no --json")
    if explained is not None and (len(names) != 1 or as_toml):
        raise ConfigError("gpus: --explain is about one GPU, wants one name and no --toml")
    if as_toml:
        typer.echo(gpu_toml(find_gpu(names[0], "gpus:")), nl=False)
        return
    output = output_path(json_path, "--json")
    gpus = [find_gpu(name, "gpus:") for name in names or gpu_names()]
    console = console_for(output)
    if output is not None:
        document: Any = tables.compare_gpus(*gpus) if len(names) == 2 else tables.gpu_document(gpus[0])
        write_json(document if names else [tables.gpu_row(gpu) for gpu in gpus], output)
    if not names:
        tables.render_gpus_list(gpus, console)
    elif explained is not None:
        tables.render_meanings(gpus[0], explained, console)
    elif len(names) == 1:
        tables.render_gpu(gpus[0], console)
    else:
        tables.render_gpu_comparison(gpus[0], gpus[1], console)
