"""``calibrate`` and ``validate``: parameters from measured rows, and predictions beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.options import MISMATCH, console_for, find_gpu, output_path, write_json
from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from gpusim.evidence.case import Case

Gpu = Annotated[str, typer.Option("--gpu", metavar="NAME|TOML", help="a GPU's name or a TOML file")]
Measured = Annotated[
    str | None, typer.Option("--measured", metavar="DIR", help="its measured tables; validation/measured/<gpu> by default")
]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help="write the result as JSON; - is stdout")]


def calibrate_command(gpu_name: Gpu, measured: Measured = None, json_path: Json = None) -> None:
    """Fit a GPU's parameters to measured rows; prints TOML lines for a person to take over.

    Every second config of a sweep calibrates; what the others say stands beside it.
    """
    from dataclasses import asdict

    from gpusim.evidence.calibrate import calibrate
    from gpusim.report.evidence import render_calibration

    output = output_path(json_path, "--json")
    gpu, folder = find_gpu(gpu_name, "--gpu"), _folder(measured, gpu_name)
    lines = calibrate(_cases(), folder, gpu)
    if not lines:
        raise ConfigError(f"calibrate: no table in {folder} holds a parameter; run gpusim measure --all on that GPU first")
    if output is not None:
        write_json([asdict(line) for line in lines], output)
    render_calibration(lines, len(gpu.sources), console_for(output))


def validate_command(
    gpu_name: Gpu,
    tiers: Annotated[
        str, typer.Option("--tier", metavar="N[,N...]", help="rungs of the ladder: 2 latency, 3 counts, 4 rates, 5 to 7 "
                          "whole kernels")] = "2,3,4,5,6,7",
    measured: Measured = None,
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

    from gpusim.evidence.validate import judge, summaries
    from gpusim.report.evidence import render_summaries, render_worst

    output = output_path(json_path, "--json")
    wanted = _tiers(tiers)
    if worst < 0:
        raise ConfigError(f"--worst {worst} is negative, wants a number of rows from 0 on")
    if published:
        if measured:
            raise ConfigError("--published judges no measured tables, leave --measured out")
        _validate_published(gpu_name, worst, output)
        return
    gpu, folder = find_gpu(gpu_name, "--gpu"), _folder(measured, gpu_name)
    found = judge(_cases(), folder, gpu, wanted)
    if not found:
        raise ConfigError(f"validate: no table in {folder} has rows of tier {tiers}; run gpusim measure --all there first")
    families = summaries(found)
    if output is not None:
        write_json(
            {
                "gpu": gpu.name,
                "families": [{**asdict(item), "passes": item.passes} for item in families],
                "rows": [{**asdict(item), "error_pct": item.error_pct} for item in found],
            },
            output,
        )
    console = console_for(output)
    render_summaries(families, console)
    if worst:
        render_worst(found, worst, console)
    if not all(item.passes for item in families):
        raise typer.Exit(MISMATCH)


def _validate_published(gpu_name: str, worst: int, output: Path | None) -> None:
    from gpusim.evidence.micro import judge_micro, read_micro, summaries
    from gpusim.report.published import published_document, render_published

    rows = read_micro()
    names = sorted({row.gpu for row in rows}) if gpu_name == "all" else [gpu_name]
    found = {gpu.name: judge_micro(rows, gpu) for gpu in (find_gpu(name, "--gpu") for name in names)}
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


def _cases() -> list[Case]:
    from gpusim.evidence.case import case_names, load_case

    return [load_case(name) for name in case_names()]


def _folder(measured: str | None, gpu_name: str) -> Path:
    from gpusim.evidence.case import kernels_dir

    folder = Path(measured) if measured else kernels_dir().parent / "validation" / "measured" / Path(gpu_name).stem
    if not folder.is_dir():
        where = f"--measured {measured!r}" if measured else str(folder)
        raise ConfigError(f"{where} is no folder of measured tables; run gpusim measure --all on that GPU first")
    return folder


def _tiers(text: str) -> list[int]:
    from gpusim.evidence.validate import TIERS

    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) in TIERS for part in parts):
        raise ConfigError(f"--tier {text!r} wants numbers of {', '.join(map(str, TIERS))} joined by commas, such as 2,3,4")
    return sorted({int(part) for part in parts})
