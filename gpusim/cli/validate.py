"""``validate``: predictions against measured rows by tier, and totals over validation kernels."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.evidence import Gpu, Json, Kernels, Measured, cases_named, measured_folder
from gpusim.cli.options import MISMATCH, console_for, find_gpu, write_json
from gpusim.cli.parameters import output_paths
from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from gpusim.evidence.cases.case import Case
    from gpusim.evidence.validate.answers import Question
    from gpusim.evidence.validate.judge import Judgement
    from gpusim.machine.config import GpuSpec


SILENCE_S = 60.0
"""Seconds between progress lines where the output is a file or a pipe."""

COUNTED_S, TIMED_S, MICRO_S = 0.9, 1.6, 0.015
"""Core seconds of an average simulation: of a counted validation kernel, a timed one, and a microbenchmark."""
SLOW_S = {
    "copy_grains": 2.0, "piece_order": 1.0, "sharers_apart": 1.3, "power_tma": 1.5, "line_halves": 0.6,
    "multicast_rings": 0.7, "edges_beside_loads": 0.6, "copy_sharing": 0.6, "memory_bandwidth": 0.5,
    "loads_beside_stores": 0.4, "part_turns": 0.4, "l2_residency": 0.3, "own_copies": 0.3, "tile_sharing": 0.3,
    "launch_order": 0.1, "cold_tiles": 0.07,
}  # fmt: skip
"""Core seconds of microbenchmarks that take longer than ``MICRO_S``."""
SHORT_S = 10.0
"""Seconds below which no estimate of the run time is printed."""


def validate_command(
    gpu_name: Gpu,
    tiers: Annotated[
        str | None, typer.Option("--tier", metavar="N[,N...]", help="rungs of the ladder: 2 latency, 3 counts, 4 rates, 5 "
                                 "to 7 whole kernels; all by default")] = None,
    measured: Measured = None, kernels: Kernels = None,
    published: Annotated[bool, typer.Option("--published", help="against microbenchmarks that others published, instead "
                                            "of measured tables; --gpu all takes every GPU")] = False,
    first: Annotated[bool, typer.Option("--first", help="what was predicted before a row was measured (validation/first), "
                                        "beside today's model")] = False,
    worst: Annotated[int, typer.Option("--worst", metavar="N", help="show the N numbers that are furthest off")] = 0,
    processes: Annotated[int | None, typer.Option("--processes", metavar="N", help="simulate so many rows at once; as many "
                                                  "as there are cores by default")] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="simulate every row again; by default rows that this very "
                                           "tree has answered come from ~/.cache/gpusim/judged")] = False,
    plot_path: Annotated[str | None, typer.Option("--plot", metavar="FILE.png|svg", help="draw whole kernels' predicted "
                                                  "cycles over measured ones")] = None,
    json_path: Json = None,
) -> None:  # fmt: skip
    """Compare predictions with measured rows, tier by tier; status 1 if a family misses its tier.

    Rows that calibrated a parameter are not judged. With --published: number by number; status 1 if one that judges is more
    than 10 % off.
    """
    from gpusim.evidence.validate.accuracy_summary import document
    from gpusim.evidence.validate.blind_predictions import with_floors
    from gpusim.evidence.validate.judge import TIERS, not_judged, summaries, totals, unmeasured
    from gpusim.report.accuracy import render_accuracy
    from gpusim.report.validation import render_summaries, render_worst

    output, plot = output_paths({"json_path": json_path, "plot_path": plot_path}).values()
    wanted = _tiers(tiers or ",".join(map(str, TIERS)))
    if worst < 0:
        raise ConfigError(f"--worst {worst} is negative, wants a number of rows from 0 on")
    if processes is not None and processes < 1:
        raise ConfigError(f"--processes {processes} wants a number from 1 on")
    if published:
        asked = (
            ("--measured", measured), ("--tier", tiers), ("--kernel", kernels), ("--first", first), ("--plot", plot_path),
            ("--processes", processes), ("--no-cache", no_cache),
        )  # fmt: skip
        for flag, value in asked:
            if value:
                raise ConfigError(f"--published judges no measured tables, leave {flag} out")
        _validate_published(gpu_name, worst, output)
        return
    gpu, folder = find_gpu(gpu_name, "--gpu"), measured_folder(measured, gpu_name)
    cases = cases_named(kernels, gpu)
    for sentence in not_judged(cases, folder, wanted, gpu, knows_all=not kernels):
        typer.echo(f"gpusim: {sentence}", err=True)
    for sentence in unmeasured(cases, folder):
        typer.echo(f"gpusim: {sentence}", err=True)
    blind = _first(cases, folder, gpu, wanted) if first else []
    found = _judge_all(cases, folder, gpu, wanted, processes=processes, keeps=not no_cache)
    if not found:
        raise ConfigError(
            f"validate: no table in {folder} has rows of tier {tiers or 'any'}; run gpusim measure --all on that GPU first"
        )
    blind = with_floors(blind, found)
    families = summaries(found)
    if output is not None:
        write_json(_document(gpu, found, blind, document(found)), output)
    console = console_for(output)
    render_summaries(families, console, totals(found))
    render_accuracy(found, console, blind)
    if worst:
        render_worst(found, worst, console)
    if plot is not None:
        from gpusim.report.plots.validate import plot_validation

        plot_validation(found, plot, gpu=gpu.name)
    if not all(item.passes for item in families):
        raise typer.Exit(MISMATCH)


def _document(
    gpu: GpuSpec, found: Sequence[Judgement], blind: Sequence[Judgement], accuracy: dict[str, Any]
) -> dict[str, Any]:
    from gpusim.evidence.validate.judge import summaries

    def rows(items: Sequence[Judgement]) -> list[dict[str, Any]]:
        return [{**asdict(item), "error_pct": item.error_pct, "roofline_pct": item.roofline_pct} for item in items]

    families = [{**asdict(item), "passes": item.passes} for item in summaries(found)]
    return {"gpu": gpu.name, "families": families, **accuracy, "rows": rows(found), "first": rows(blind)}


def _first(cases: Sequence[Case], folder: Path, gpu: GpuSpec, tiers: Sequence[int]) -> list[Judgement]:
    """Judgements of blind predictions. That there is none is refused before anything is simulated."""
    from gpusim.evidence.validate.blind_predictions import judge_first, read_first

    found = [item for item in judge_first(read_first(), cases, folder, gpu) if item.tier in tiers]
    if not found:
        raise ConfigError("--first: no row of these tables was predicted before it was measured; leave it out")
    return found


def _validate_published(gpu_name: str, worst: int, output: Path | None) -> None:
    from rich.console import Console
    from rich.progress import track

    from gpusim.evidence.validate.microbenchmarks import judge_micro, read_micro, summaries
    from gpusim.evidence.validate.published import compare
    from gpusim.report.published import published_document, render_ladders, render_published

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
        render_ladders(name, compare(), console)
        render_published(name, verdicts, console, worst=worst)
    if any(summaries(verdicts)[0].num_far for verdicts in found.values()):
        raise typer.Exit(MISMATCH)


def _judge_all(
    cases: Sequence[Case], folder: Path, gpu: GpuSpec, tiers: Sequence[int], *, processes: int | None, keeps: bool
) -> list[Judgement]:
    """Judgements of every case's rows, in the order of the cases, on one process per core.

    Prints an estimate of the run time beforehand.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from gpusim.evidence.validate.answers import Kept, answers_to, questions_of
    from gpusim.evidence.validate.judge import judgements_of

    by_name = {case.name: case for case in cases}
    questions = [question for case in cases for question in questions_of(case, folder, gpu, tiers)]
    place = {id(question): idx for idx, question in enumerate(questions)}
    left = Counter(question.case for question in questions)
    num_tables = len(left)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = Console(stderr=True)
    found: list[list[Judgement]] = [[] for _ in questions]
    last_line = time.monotonic()
    is_short = not any(case.is_validation for case in cases) and num_tables < 2  # rows that need no long simulation
    order = sorted(questions, key=lambda question: not by_name[question.case].is_validation)
    kept = Kept.of(gpu) if keeps else None
    num_at_once = processes or os.cpu_count() or 1
    to_do = [question for question in order if kept is None or kept.get(question) is None]
    seconds = sum(_seconds(by_name[question.case], question) for question in to_do) / num_at_once
    if seconds > SHORT_S:
        estimate = f"about {seconds / 60:.0f} minutes" if seconds > 90 else f"about {seconds:.0f} s"
        typer.echo(f"gpusim: {len(to_do):,} simulations, {estimate} with {num_at_once} at once", err=True)
    with Progress(*columns, console=shown, transient=True) as progress:
        task = progress.add_task("judging", total=len(questions))
        answered = answers_to(order, gpu, by_name if is_short else None, kept=kept, num_processes=num_at_once)
        for question, answers in answered:
            found[place[id(question)]] = judgements_of(by_name[question.case], question, answers, tiers)
            progress.advance(task)
            left[question.case] -= 1
            if shown.is_terminal:
                continue
            if not left[question.case] and num_tables > 1:  # a file or a pipe has no progress bar
                done = sum(not num for num in left.values())
                typer.echo(f"gpusim: judged {question.case}, {done} of {num_tables} tables", err=True)
            elif time.monotonic() > last_line + SILENCE_S:
                last_line = time.monotonic()
                num_left = sum(left.values())
                typer.echo(f"gpusim: {len(questions) - num_left:,} of {len(questions):,} simulations", err=True)
    return [item for items in found for item in items]


def _seconds(case: Case, question: Question) -> float:
    """Estimated seconds of one answer."""
    if not case.is_validation:
        return SLOW_S.get(case.name, MICRO_S)
    return TIMED_S if any(name.startswith(("single", "sustained")) for name in question.names) else COUNTED_S


def _tiers(text: str) -> list[int]:
    from gpusim.evidence.validate.judge import TIERS

    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) in TIERS for part in parts):
        raise ConfigError(f"--tier {text!r} wants numbers of {', '.join(map(str, TIERS))} with commas, for example 2,3,4")
    return sorted({int(part) for part in parts})
