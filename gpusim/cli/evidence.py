"""``calibrate`` and ``validate``: parameters from measured rows, and predictions beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.options import MISMATCH, console_for, find_gpu, output_path, write_json
from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from gpusim.evidence.case import Case
    from gpusim.evidence.validate import Judgement
    from gpusim.machine.config import GpuSpec

WHOLE_PARTS = 8
"""Into how many pieces the rows of a whole kernel are cut, as each of them is a few simulations: for as many cores."""

Gpu = Annotated[str, typer.Option("--gpu", metavar="NAME|TOML", help="a GPU's name or a TOML file")]
Measured = Annotated[
    str | None, typer.Option("--measured", metavar="DIR", help="its measured tables; validation/measured/<gpu> by default")
]
Kernels = Annotated[
    list[str] | None, typer.Option("--kernel", metavar="NAME", help="the rows of this kernel alone; repeat")
]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help="write the result as JSON; - is stdout")]


def calibrate_command(
    gpu_name: Gpu, measured: Measured = None, kernels: Kernels = None, json_path: Json = None
) -> None:
    """Fit a GPU's parameters to measured rows; prints TOML lines for a person to take over.

    Every second config of a sweep calibrates; a table on stderr says what the others would have given.
    """
    from dataclasses import asdict

    from gpusim.evidence.calibrate import calibrate, toml_lines
    from gpusim.report.evidence import render_calibration

    output = output_path(json_path, "--json")
    gpu, folder = find_gpu(gpu_name, "--gpu"), _folder(measured, gpu_name)
    lines = calibrate(_cases(kernels), folder, gpu)
    if not lines:
        raise ConfigError(f"calibrate: no table in {folder} holds a parameter; run gpusim measure --all on that GPU first")
    if output is not None:
        write_json([asdict(line) for line in lines], output)
    render_calibration(lines, len(gpu.sources), console_for(Path("-")))
    console_for(output).print(toml_lines(lines, gpu), highlight=False, markup=False, soft_wrap=True)


def validate_command(
    gpu_name: Gpu,
    tiers: Annotated[
        str | None, typer.Option("--tier", metavar="N[,N...]", help="rungs of the ladder: 2 latency, 3 counts, 4 rates, 5 "
                                 "to 7 whole kernels; all by default")] = None,
    measured: Measured = None,
    kernels: Kernels = None,
    published: Annotated[bool, typer.Option("--published", help="against microbenchmarks that others published, instead "
                                            "of measured tables; --gpu all takes every GPU")] = False,
    worst: Annotated[int, typer.Option("--worst", metavar="N", help="show the N numbers that are furthest off")] = 0,
    json_path: Json = None,
) -> None:  # fmt: skip
    """Hold predictions against measured rows, tier by tier; status 1 if a family misses its tier.

    Rows that calibrated are not judged. With --published: number by number; status 1 if one that judges is more than 10 %
    off.
    """
    from dataclasses import asdict

    from gpusim.evidence.validate import TIERS, not_judged, summaries, totals
    from gpusim.report.evidence import render_summaries, render_worst

    output = output_path(json_path, "--json")
    wanted = _tiers(tiers or ",".join(map(str, TIERS)))
    if worst < 0:
        raise ConfigError(f"--worst {worst} is negative, wants a number of rows from 0 on")
    if published:
        for flag, value in (("--measured", measured), ("--tier", tiers), ("--kernel", kernels)):
            if value:
                raise ConfigError(f"--published judges no measured tables, leave {flag} out")
        _validate_published(gpu_name, worst, output)
        return
    gpu, folder = find_gpu(gpu_name, "--gpu"), _folder(measured, gpu_name)
    cases = _cases(kernels)
    for sentence in not_judged(cases, folder, wanted, gpu, knows_all=not kernels):
        typer.echo(f"gpusim: {sentence}", err=True)
    found = _judge_all(cases, folder, gpu, wanted)
    if not found:
        raise ConfigError(
            f"validate: no table in {folder} has rows of tier {tiers or 'any'}; run gpusim measure --all on that GPU first"
        )
    families, in_all = summaries(found), totals(found)
    if output is not None:
        write_json(
            {
                "gpu": gpu.name,
                "families": [{**asdict(item), "passes": item.passes} for item in families],
                "whole_kernels": [{**asdict(item), "passes": item.passes} for item in in_all],
                "rows": [
                    {**asdict(item), "error_pct": item.error_pct, "roofline_pct": item.roofline_pct} for item in found
                ],
            },
            output,
        )
    console = console_for(output)
    render_summaries(families, console, in_all)
    if worst:
        render_worst(found, worst, console)
    if not all(item.passes for item in families):
        raise typer.Exit(MISMATCH)


def _validate_published(gpu_name: str, worst: int, output: Path | None) -> None:
    from rich.console import Console
    from rich.progress import track

    from gpusim.evidence.micro import judge_micro, read_micro, summaries
    from gpusim.report.published import published_document, render_published

    rows = read_micro()
    names = sorted({row.gpu for row in rows}) if gpu_name == "all" else [gpu_name]
    found = {}
    for gpu in [find_gpu(name, "--gpu") for name in names]:
        mine = [row for row in rows if row.gpu == gpu.name]
        shown = Console(stderr=True)
        found[gpu.name] = judge_micro(track(mine, gpu.name, console=shown, transient=True), gpu)
    for name, verdicts in found.items():
        if not verdicts:
            known = ", ".join(sorted({row.gpu for row in rows}))
            raise ConfigError(f"--gpu {name}: no microbenchmark of it is in the table, wants one of {known} or all")
    if output is not None:
        write_json([published_document(name, verdicts) for name, verdicts in found.items()], output)
    console = console_for(output)
    for name, verdicts in found.items():
        render_published(name, verdicts, console, worst=worst)
    if any(summaries(verdicts)[0].num_far for verdicts in found.values()):
        raise typer.Exit(MISMATCH)


def _judge_all(cases: Sequence[Case], folder: Path, gpu: GpuSpec, tiers: Sequence[int]) -> list[Judgement]:
    """Every case's rows, a process for each core; in the order of the cases. Minutes, for all tables of a GPU."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from gpusim.evidence.validate import judge_case

    here = [case for case in cases if (folder / f"{case.name}.csv").exists() and set(case.tiers.values()) & set(tiers)]
    here.sort(key=lambda case: (not case.is_whole, -(folder / f"{case.name}.csv").stat().st_size))
    parts = [
        (case.name, (idx, num)) for case in here for num in [WHOLE_PARTS if case.is_whole else 1] for idx in range(num)
    ]
    if len(parts) == 1:
        return judge_case(here[0].name, folder, gpu, tiers)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    context = multiprocessing.get_context("spawn")
    found: dict[tuple[str, tuple[int, int]], list[Judgement]] = {}
    shown = Console(stderr=True)
    with (
        Progress(*columns, console=shown, transient=True) as progress,
        ProcessPoolExecutor(min(len(parts), os.cpu_count() or 1) or 1, mp_context=context) as pool,
    ):
        task = progress.add_task("judging", total=len(parts))
        futures = {pool.submit(judge_case, name, folder, gpu, tiers, part): (name, part) for name, part in parts}
        try:
            for future in as_completed(futures):
                found[futures[future]] = future.result()
                progress.advance(task)
                if not shown.is_terminal:  # a file or a pipe has no bar
                    name, (idx, num) = futures[future]
                    part = f" {idx + 1} of {num}" if num > 1 else ""
                    typer.echo(f"gpusim: judged {name}{part}, {len(found)} of {len(parts)} parts", err=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [item for case in cases for key in parts if key[0] == case.name for item in found[key]]


def _cases(names: Sequence[str] | None) -> list[Case]:
    from gpusim.evidence.case import case_names, load_case

    return [load_case(name) for name in (dict.fromkeys(names) if names else case_names())]


def _folder(measured: str | None, gpu_name: str) -> Path:
    from gpusim.evidence.case import kernels_dir

    folder = Path(measured) if measured else kernels_dir().parent / "validation" / "measured" / Path(gpu_name).stem
    if not folder.is_dir():
        if not measured and gpu_name.endswith(".toml"):
            raise ConfigError(f"--gpu {gpu_name!r} is a description of your own: say which rows judge it, --measured DIR")
        where = f"--measured {measured!r}" if measured else str(folder)
        raise ConfigError(f"{where} is no folder of measured tables; run gpusim measure --all on that GPU first")
    return folder


def _tiers(text: str) -> list[int]:
    from gpusim.evidence.validate import TIERS

    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) in TIERS for part in parts):
        raise ConfigError(f"--tier {text!r} wants numbers of {', '.join(map(str, TIERS))} joined by commas, such as 2,3,4")
    return sorted({int(part) for part in parts})
