"""``measure``: measures kernels on the GPU of this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.options import console_for
from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from gpusim.evidence.bench.runner import Bench, Job, Options
    from gpusim.evidence.cases.case import Case
    from gpusim.evidence.toolchain.cuda_toolkit import Cubin

COUNTS = 3
"""Tier that is judged at once, since it needs no simulation."""

OLDEST = (8, 0)
"""Lowest compute capability of a GPU that can be measured."""

LAUNCH_S = 0.1
"""Seconds of a counted launch, seen on an H200; used for the estimate only."""

TIMES_S = 1.3
"""Seconds of the timing protocols."""


def measure_command(
    names: Annotated[list[str] | None, typer.Argument(
        metavar="[KERNEL...]", help="Folders of kernels/. None lists them.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every kernel, the most important ones first.")] = False,
    out: Annotated[str | None, typer.Option(
        "--out", metavar="DIR", help="Folder of the tables, with a folder per GPU. By default validation/measured.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed by which configs are drawn, to confirm.")] = 1,
    only: Annotated[list[str] | None, typer.Option(
        "--only", metavar="PATTERN", help="These groups or entry points alone, as ld_shared_b*. Repeatable.")] = None,
    minutes: Annotated[float | None, typer.Option(
        "--minutes", metavar="M", help="Begin nothing new after M minutes.")] = None,
    no_counters: Annotated[bool, typer.Option("--no-counters", help="Times alone, without Nsight Compute.")] = False,
    names_only: Annotated[bool, typer.Option(
        "--names-only", help="What a framework launches, without times: <gpu>/<kernel>.launches.csv, in --out.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what was put aside.")] = False,
    plan: Annotated[str | None, typer.Option(
        "--plan", metavar="GPU", help="Say what is left to measure there, and how long it takes. Needs no GPU.")] = None,
    build_only: Annotated[bool, typer.Option("--build-only", help="Build the cubins and stop. Needs no GPU.")] = False,
    arch: Annotated[str | None, typer.Option("--arch", metavar="SM", help="With --build-only: sm_80 or sm_90a.")] = None,
    build_dir: Annotated[str | None, typer.Option("--build-dir", metavar="DIR", help="Folder of the cubins.")] = None,
    launch_only: Annotated[str | None, typer.Option("--launch-only", metavar="PLAN", hidden=True)] = None,
) -> None:  # fmt: skip
    """Measure kernels on the GPU of this machine, with Nsight Compute; continues where an earlier run stopped.

    Rows go to validation/measured/<gpu>/<kernel>.csv, chunk by chunk; kernels with a wrong output give none.
    """
    from gpusim.evidence.bench.runner import Options
    from gpusim.evidence.cases.case import case_names, load_case

    if launch_only is not None:
        from gpusim.evidence.bench.gpu import launch_plan

        launch_plan(Path(launch_only))
        return
    if every and names:
        raise ConfigError("measure: --all and kernels are given, wants one or the other")
    if not every and not names:
        if plan is not None:
            raise ConfigError(f"--plan {plan} wants names of kernels, or --all for every one")
        _list()
        return
    if minutes is not None and not (math.isfinite(minutes) and minutes > 0):
        raise ConfigError(f"--minutes {minutes} is no time, wants a number above 0")
    if arch is not None and not build_only:
        raise ConfigError("--arch goes with --build-only; what is measured is built for the GPU that is here")
    if seed < 0:
        raise ConfigError(f"--seed {seed} is negative, wants a whole number from 0 on")
    cases = [load_case(name) for name in (case_names() if every else dict.fromkeys(names or []))]
    folder = Path(build_dir) if build_dir else None
    if (every or build_only) and plan is None:
        cases = _without_frameworks(cases, build_only=build_only)
    if build_only:
        if only:
            raise ConfigError("--only goes with measuring; --build-only builds whole kernels")
        _build(cases, arch, folder, is_launched=False)
        return
    options = Options(
        out=Path(out) if out else _measured_dir(), seed=seed, only=tuple(only or ()), has_counters=not no_counters,
        retries=retry,
    )  # fmt: skip
    if plan is not None:
        _plan(cases, options, plan)
        return
    if names_only:
        if out is None:
            raise ConfigError("--names-only writes no measured rows: give --out DIR, where its tables go")
        _tell_names(cases, options)
        return
    measure(cases, options, folder, math.inf if minutes is None else time.monotonic() + 60.0 * minutes)


def _measured_dir() -> Path:
    """Folder ``validation/measured`` of the checkout.

    Raises:
        ConfigError: gpusim is installed without a checkout; the next installation would overwrite the tables.
    """
    import gpusim
    from gpusim.evidence.cases.case import kernels_dir

    if kernels_dir().parent == Path(gpusim.__file__).resolve().parent:
        raise ConfigError(
            "measure: gpusim is installed without its checkout, where rows belong: give --out DIR, or install it with "
            "pip install -e in the checkout"
        )
    return kernels_dir().parent / "validation" / "measured"


def _list() -> None:
    from rich.table import Table

    from gpusim.evidence.cases.case import case_names, load_case

    table = Table("kernel", "question", "groups: configs", box=None)
    for name in case_names():
        case = load_case(name)
        table.add_row(name, case.question, ", ".join(f"{group}: {len(case.configs(group, 1))}" for group in case.groups))
    console_for(None).print(table)


def _plan(cases: Sequence[Case], options: Options, gpu_name: str) -> None:
    """Print what is left of each case, about how long it takes, and what the GPU cannot measure."""
    from rich.table import Table

    from gpusim.cli.options import find_gpu
    from gpusim.evidence.bench.runner import jobs
    from gpusim.evidence.cases.case import load_case
    from gpusim.evidence.cases.measured_gpu import MeasuredGpu

    gpu = find_gpu(gpu_name, "--plan")
    sizes = MeasuredGpu.of(gpu)
    options = replace(options, out=options.out / gpu.base_name, gpu=sizes)
    cases = [load_case(case.name, gpu=sizes) for case in cases]
    work = [job for job in jobs(cases, options)[0] if job.configs]
    table = Table("kernel", "configs left", "minutes", box=None)
    for name in dict.fromkeys(job.case.name for job in work):
        mine = [job for job in work if job.case.name == name]
        table.add_row(name, str(sum(len(job.configs) for job in mine)), f"{_seconds(mine) / 60:.1f}")
    console = console_for(None)
    console.print(table)
    for case in cases:
        left_out: dict[str, list[str]] = {}
        for name, group in case.groups.items():
            if lacks := group.lacks(sizes):
                left_out.setdefault(lacks, []).append(name)
        if left_out and sum(map(len, left_out.values())) == len(case.groups):
            typer.echo(f"{case.name}: nothing, for it {' and '.join(left_out)}")
        elif left_out:
            reasons = (f"without {', '.join(names)}, for it {lacks}" for lacks, names in left_out.items())
            typer.echo(f"{case.name}: {'; '.join(reasons)}")
    num, minutes = sum(len(job.configs) for job in work), _seconds(work) / 60
    console.print(f"{gpu.name}: {num:,} configs are left to measure, about {minutes:.0f} minutes, into {options.out}")


def _seconds(work: Sequence[Job]) -> float:
    """Estimated seconds of a measurement."""
    return sum(len(job.configs) * (LAUNCH_S + (TIMES_S if job.rules.times else 0.0)) for job in work)


def _without_frameworks(cases: Sequence[Case], *, build_only: bool) -> list[Case]:
    """Cases that can be built here, or launched; prints the reason for each other one."""
    from gpusim.evidence.bench.frameworks import has_source, lacking

    found = []
    for case in cases:
        why = lacking(case)
        if build_only and has_source(case):
            found.append(case)
        elif build_only and case.framework is not None:
            typer.echo(f"{case.name}: is launched by {case.framework}, there is nothing to build", err=True)
        elif why is not None:
            typer.echo(f"{why}, skipped", err=True)
        else:
            found.append(case)
    return found


def _build(cases: Sequence[Case], arch: str | None, folder: Path | None, *, is_launched: bool = True) -> dict[str, Cubin]:
    """Cubins by case, of cases with kernels for the architecture. Building alone needs no framework."""
    from gpusim.evidence.bench.frameworks import built
    from gpusim.evidence.toolchain.cuda_toolkit import build, capability_of, find_gpu

    arch = arch or find_gpu().arch
    capability = capability_of(arch)
    if capability < OLDEST:
        raise ConfigError(f"--arch {arch} is older than what gpusim measures, wants sm_80 or later")
    cubins = {}
    for case in cases:
        if case.framework is not None and is_launched:
            cubins[case.name] = built(case, arch, folder)
            typer.echo(f"{case.name}: launched by {cubins[case.name].compiler}", err=True)
        elif any(group.least_capability <= capability for group in case.groups.values()):
            cubins[case.name] = build(case, arch, folder)
            typer.echo(f"{case.name}: {cubins[case.name].path}", err=True)
        else:
            typer.echo(f"{case.name}: has nothing for {arch}, skipped", err=True)
    return cubins


def _tell_names(cases: Sequence[Case], options: Options) -> None:
    """Write a CSV for each case with the kernels that are launched for its configs."""
    from gpusim.evidence.bench.child_process import find_ncu
    from gpusim.evidence.bench.framework_launches import launches_of, write_launches
    from gpusim.evidence.bench.frameworks import built
    from gpusim.evidence.bench.runner import jobs
    from gpusim.evidence.toolchain.cuda_toolkit import find_gpu

    gpu = find_gpu()
    ncu = find_ncu()
    for case in cases:
        versions = built(case).compiler if case.framework else ""
        work, _ = jobs([case], replace(options, out=options.out / "none"))
        lines = [line for job in work for line in launches_of(case, job.group, job.configs, ncu)]
        path = options.out / gpu.folder / f"{case.name}.launches.csv"
        write_launches(path, [{**line, "gpu": gpu.name, "versions": versions} for line in lines])
        typer.echo(f"{case.name}: {len(lines)} launches told, nothing timed: {path}", err=True)


def measure(cases: Sequence[Case], options: Options, folder: Path | None, until: float) -> None:
    """Measure ``cases`` until ``time.monotonic()`` is past ``until``. ``folder``: cubins; None: the default folder."""
    from importlib.util import find_spec

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from gpusim.evidence.bench.child_process import find_ncu
    from gpusim.evidence.bench.runner import PROBE, Bench, jobs
    from gpusim.evidence.cases.case import load_case
    from gpusim.evidence.toolchain.cuda_toolkit import find_gpu, sizes_of

    gpu = find_gpu()
    if find_spec("pycuda") is None:
        raise ConfigError("measure: PyCUDA is missing, wants pip install -e '.[cuda]' in the checkout")
    options = replace(options, out=options.out / gpu.folder, gpu=sizes_of(gpu))
    cases = [load_case(case.name, gpu=options.gpu) for case in cases]
    work, skipped = jobs(cases, options)
    console = Console(stderr=True)
    for sentence in skipped:
        console.print(sentence, highlight=False, markup=False)
    ncu = find_ncu() if options.has_counters and any(job.rules.metrics and job.configs for job in work) else None
    wanted = [case for case in cases if any(job.case is case for job in work)]
    if any(job.rules.times for job in work) and not any(case.name == PROBE for case in wanted):
        wanted.append(load_case(PROBE))
    cubins = _build(wanted, gpu.arch, folder)
    num = sum(len(job.configs) for job in work)
    console.print(f"{gpu.name}: {num} configs to measure, about {_seconds(work) / 60:.0f} minutes, into {options.out}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("measuring", total=num)

        def tell(count: int) -> None:
            progress.advance(task, count)

        bench = Bench(gpu, options, cubins, ncu, tell)
        for job in work:
            progress.update(task, description=f"{job.case.name} {job.group}")
            _run(bench, job, until, console)
    _finish(cases, options, console)


def _run(bench: Bench, job: Job, until: float, console: Console) -> None:
    for sentences in bench.run(job, until):
        for sentence in sentences:
            console.print(sentence, highlight=False, markup=False)


def _finish(cases: Sequence[Case], options: Options, console: Console) -> None:
    """Print how the simulator's rules match the measurements, and what is left."""
    from gpusim.evidence.bench.runner import jobs
    from gpusim.evidence.validate.judge import judge, summaries
    from gpusim.machine.config import gpu_names, load_gpu
    from gpusim.report.validation import render_summaries

    if options.out.name in gpu_names():
        found = summaries(judge(cases, options.out, load_gpu(options.out.name), tiers=[COUNTS]))
        if found:
            render_summaries(found, console)
    left = sum(len(job.configs) for job in jobs(cases, options)[0])
    console.print(f"{left} configs are left: the same command goes on with them" if left else "all configs are done")
