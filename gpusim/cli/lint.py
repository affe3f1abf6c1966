"""``lint``: races, missing fences and wrong barriers of launches in a Python file, whatever the timing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.options import BAD_INPUT, GPU_HELP, MISMATCH, OK, console_for, find_gpu, output_path, write_json
from gpusim.errors import ConfigError, GpusimError, say

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec
    from gpusim.workload.launch import Launch

REFUSED = "refused"
"""Kind of a launch that cannot be checked."""


def lint_command(
    target: Annotated[str, typer.Argument(
        metavar="FILE.py[:LAUNCH]", help="a Python file, and a launch in it or a function that returns one")],
    gpu_name: Annotated[str, typer.Option("--gpu", metavar="NAME", help=GPU_HELP)] = "h200_sxm",
    json_path: Annotated[str | None, typer.Option(
        "--json", metavar="FILE", help="Write the findings as JSON. - is stdout.")] = None,
) -> None:  # fmt: skip
    """Find races in shared memory, missing fences and wrong barriers of your own launches, whatever the timing.

    Status 0: nothing found, or remarks alone; 1: findings that simulate refuses; 2: a file or a launch is refused.
    """
    output, gpu = output_path(json_path, "--json"), find_gpu(gpu_name, "--gpu")
    with redirect_stdout(sys.stderr) if str(output) == "-" else nullcontext():  # the file may print
        makers = launch_makers(target)
        rows = [row for name, make in makers.items() for row in rows_of(name, make, gpu)]
    console = console_for(output)
    if output is not None:
        write_json(rows, output)
    for row in rows:
        line = f"{row['launch']}: {'' if row['is_error'] else 'remark: '}{row['kind']}: {row['message']}"
        say(line) if row["kind"] == REFUSED else console.print(line, soft_wrap=True, markup=False)
    kinds = [REFUSED if row["kind"] == REFUSED else "finding" if row["is_error"] else "remark" for row in rows]
    refused, findings, remarks = map(kinds.count, (REFUSED, "finding", "remark"))
    parts = [_number(findings, "finding"), *([_number(remarks, "remark")] if remarks else [])]
    rest = f", {refused} refused" if refused else ""
    console.print(f"{' and '.join(parts)} in {_number(len(makers), 'launch', 'es')}{rest}")
    raise typer.Exit(BAD_INPUT if refused else MISMATCH if findings else OK)


def _number(num: int, word: str, plural: str = "s") -> str:
    return f"{num} {word}{plural * (num != 1)}"


def rows_of(name: str, make: Callable[[GpuSpec], Launch], gpu: GpuSpec) -> list[dict[str, Any]]:
    """Findings of a launch as JSON has them, or the sentence with which it is refused."""
    try:
        found: list[tuple[str, bool, str]] = [(each.kind, each.is_error, each.message) for each in make(gpu).check(gpu)]
    except GpusimError as error:
        found = [(REFUSED, True, str(error))]
    return [{"launch": name, "kind": kind, "is_error": is_error, "message": text} for kind, is_error, text in found]


def launch_makers(target: str) -> dict[str, Callable[[GpuSpec], Launch]]:
    """Functions of the launches that ``FILE.py[:LAUNCH]`` names, by name.

    Without a name these are all launches in the file, or else the function ``launch``.

    Raises:
        ConfigError: the file cannot be read or run, or it has no such launch.
    """
    from gpusim.evidence.gate.launch_file import launch_maker, made_launch, names_of
    from gpusim.workload.launch import Launch

    if ".py:" in target:
        return {target.rpartition(":")[2]: launch_maker(target, "lint")}
    names = names_of(Path(target), "lint")
    held = {name: item for name, item in names.items() if isinstance(item, Launch)}
    found = held or {name: item for name, item in names.items() if name == "launch" and callable(item)}
    if not found:
        raise ConfigError(f"lint: {target} has no Launch and no function launch; name one, as {target}:NAME")
    return {name: partial(made_launch, item, where=f"lint: {target}:{name}") for name, item in found.items()}
