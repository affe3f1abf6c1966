"""The bench: measures kernels on this GPU, chunk by chunk, with and without Nsight Compute.

A chunk is launched twice. The first run checks every output and takes the kernel's values and times. The second run is under
Nsight Compute, which counts one launch per config, matched by launch order. Rows are written only then, so an interrupted
run continues where it stopped.

In: cases, options. Out: tables under ``validation/measured``. Child processes use the GPU; this module does not.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gpusim.errors import ConfigError, nearest
from gpusim.evidence.bench.child_process import (
    COUNTED_S,
    PLAIN_S,
    START_S,
    WHOLE_S,
    Ended,
    Ncu,
    Progress,
    child_command,
    run_child,
)
from gpusim.evidence.bench.frameworks import MARK
from gpusim.evidence.bench.gpu import Plan
from gpusim.evidence.bench.timing import PROTOCOL, VALUES
from gpusim.evidence.cases.case import Case, Config, Group, key_of
from gpusim.evidence.cases.measured_gpu import MeasuredGpu
from gpusim.evidence.cases.rows import Table, number_text
from gpusim.evidence.nsight.ncu_command import Profile, added_up, available, between_marks, parse_profiles, with_followers
from gpusim.evidence.toolchain.cuda_toolkit import Cubin, GpuFound, gpu_state

CHUNK_CONFIGS = 400
"""Configs of a chunk: the most that an interruption loses. The start of two processes is spread over them."""

PROBE = "clock_probe"
"""Folder of ``kernels/`` with the kernels that a stopwatch launches."""

MOST_CRASHES = 8
"""Crashes of a job before it is abandoned."""

CYCLES = (
    "sm__cycles_elapsed.min", "sm__cycles_elapsed.avg", "sm__cycles_elapsed.max", "sm__cycles_active.avg",
    "sm__cycles_active.max",
)  # fmt: skip
"""Metrics counted with every row, whatever its group requests."""

MEANINGS = {
    "run": "index into runs, which say what was the same for these rows",
    "seed": "the seed that the config was drawn by",
    "group": "configs that are measured together",
    "kernel": "the entry point of kernel.cu, or what a framework is asked for",
}


@dataclass(frozen=True, slots=True)
class Job:
    """Configs of one group of one case that are still to be measured."""

    case: Case
    group: str
    configs: tuple[Config, ...]

    @property
    def rules(self) -> Group:
        """Group of the job's configs."""
        return self.case.groups[self.group]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a measurement."""

    out: Path
    """Folder of the GPU's tables."""
    seed: int = 1
    only: tuple[str, ...] = ()
    """Patterns of groups or entry points; empty: all."""
    has_counters: bool = True
    metrics: tuple[str, ...] = ()
    """Metrics that are counted in addition to those of a group."""
    retries: bool = False
    """Whether configs that were put aside are tried again."""
    chunk_configs: int = CHUNK_CONFIGS
    gpu: MeasuredGpu = field(default_factory=MeasuredGpu)
    """The GPU that the cases are loaded for."""

    def counted(self, group: Group) -> tuple[str, ...]:
        """Metrics that are counted of a group's rows, each once."""
        return tuple(dict.fromkeys((*group.metrics, *CYCLES, *self.metrics)))


def table_path(case: Case, options: Options) -> Path:
    """Path of a case's table."""
    return options.out / f"{case.name}.csv"


def jobs(cases: Iterable[Case], options: Options) -> tuple[list[Job], list[str]]:
    """(jobs, the most important first; a sentence for each group that this GPU cannot run).

    Raises:
        ConfigError: ``only`` matches nothing.
    """
    job_list: list[Job] = []
    skipped: list[str] = []
    names: set[str] = set()
    for case in cases:
        done = Table.read(table_path(case, options)).keys(case.columns, options.seed, has_aside=not options.retries)
        for name, group in case.groups.items():
            configs = case.configs(name, options.seed)
            names |= {name, *(config["kernel"] for config in configs)}
            wanted = [config for config in configs if _is_wanted(name, config, options.only)]
            if wanted and (lacks := group.lacks(options.gpu)):
                skipped.append(f"{case.name} {name}: {lacks}, skipped")
            elif wanted and (options.has_counters or case.values or group.times):
                left = tuple(config for config in wanted if (name, key_of(config)) not in done)
                job_list.append(Job(case, name, left))
    if options.only and not job_list and not skipped:
        raise ConfigError(f"--only {' '.join(options.only)} matches no group or kernel; {nearest(options.only[0], names)}")
    return sorted(job_list, key=lambda job: job.rules.rank), skipped


def _is_wanted(group: str, config: Config, only: Sequence[str]) -> bool:
    return not only or any(fnmatchcase(name, pattern) for pattern in only for name in (group, config["kernel"]))


@dataclass(slots=True)
class Chunk:
    """Results of several configs."""

    values: dict[int, dict[str, float]] = field(default_factory=dict)
    facts: dict[int, dict[str, str]] = field(default_factory=dict)
    """Text columns, by index of the config."""
    profiles: dict[int, Profile] = field(default_factory=dict)
    put_aside: dict[int, str] = field(default_factory=dict)
    """Reasons, by index of the config."""
    skipped_kernels: set[str] = field(default_factory=set)
    """Entry points that crashed, whose other configs are skipped."""
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Bench:
    """Measures jobs on one GPU.

    Args:
        gpu: properties of the GPU.
        options: options of the measurement.
        cubins: by case; with the stopwatch's if groups are timed.
        ncu: the profiler, or None to take times only.
        progress: called as configs are done.
        state: returns the GPU's state; called before and after a chunk.
    """

    gpu: GpuFound
    options: Options
    cubins: dict[str, Cubin]
    ncu: Ncu | None
    progress: Progress
    state: Callable[[], dict[str, float]] = gpu_state
    crashed: set[str] = field(default_factory=set)
    """Entry points that are not launched again."""

    def run(self, job: Job, until: float) -> Iterator[list[str]]:
        """Measure a job chunk by chunk until ``time.monotonic()`` is past ``until``; yields sentences about each chunk.

        Raises:
            ConfigError: the GPU, the profiler or the table cannot be used.
        """
        table = Table.read(table_path(job.case, self.options))
        self._check_source(table, job.case)
        size = self.options.chunk_configs
        for start in range(0, len(job.configs), size):
            if time.monotonic() >= until:
                return
            configs = [config for config in job.configs[start : start + size] if config["kernel"] not in self.crashed]
            if configs:
                yield self._measure(table, job, configs)

    def _check_source(self, table: Table, case: Case) -> None:
        """Check that a table holds rows of this kernel source only."""
        digest = self.cubins[case.name].source_hash
        if others := {str(run["source_hash"]) for run in table.runs} - {digest}:
            raise ConfigError(
                f"{table.path}: was measured with kernel source {', '.join(sorted(others))}, this one is {digest}: "
                "use another --out, or move the two files away"
            )

    def _measure(self, table: Table, job: Job, configs: Sequence[Config]) -> list[str]:
        before = self.state()
        chunk = Chunk()
        self._launch(job, configs, chunk, list(range(len(configs))), ncu=None)  # checks outputs, takes values
        if self.ncu is not None and job.rules.metrics:
            self._launch_counted(job, configs, chunk, self.ncu)
        else:
            self.progress(len(configs))
        rows = []
        for idx in sorted(chunk.values):
            config = configs[idx]
            numbers = {**(chunk.profiles[idx].metrics if idx in chunk.profiles else {}), **chunk.values[idx]}
            texts = launch_facts(job.case, config, chunk.facts.get(idx, {}), chunk.profiles.get(idx))
            texts |= {name: number_text(number) for name, number in numbers.items()}
            rows.append({"seed": str(self.options.seed), "group": job.group, **config, **texts})
        aside = [
            {"seed": self.options.seed, "group": job.group, "config": dict(configs[idx]), "reason": reason}
            for idx, reason in chunk.put_aside.items()
        ]
        table.about = about(job.case)
        table.append(self._run_record(job, before, chunk), rows, aside)
        self.crashed |= chunk.skipped_kernels
        reasons = dict.fromkeys(f"{job.case.name} {configs[i]['kernel']}: {why}" for i, why in chunk.put_aside.items())
        return list(reasons)

    def _run_record(self, job: Job, before: dict[str, float], chunk: Chunk) -> dict[str, Any]:
        cubin = self.cubins[job.case.name]
        return {
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "gpu": self.gpu.name, "capability": list(self.gpu.capability), "driver": self.gpu.driver, "uuid": self.gpu.uuid,
            "nvcc": cubin.compiler, "arch": self.gpu.arch, "source_hash": cubin.source_hash,
            "ncu": self.ncu.version if self.ncu else None, "seed": self.options.seed, "group": job.group,
            "num_repeats": job.case.num_repeats, "is_cold": job.rules.is_cold, "state_before": before,
            "probe_hash": self.cubins[PROBE].source_hash if job.rules.times else None,
            "times_protocol": PROTOCOL if job.rules.times else None, "state_after": self.state(),
            **chunk.about,
        }  # fmt: skip

    # ------------------------------------------------------------------------------------------ launching
    def _launch_counted(self, job: Job, configs: Sequence[Config], chunk: Chunk, ncu: Ncu) -> None:
        """Count the configs whose outputs were right."""
        self.progress(len(configs) - len(chunk.values))
        right = sorted(chunk.values)
        self._launch(job, configs, chunk, right, ncu=ncu)
        for idx in right:
            if idx not in chunk.profiles:
                del chunk.values[idx]

    def _launch(self, job: Job, configs: Sequence[Config], chunk: Chunk, wanted: list[int], *, ncu: Ncu | None) -> None:
        """Launch the ``wanted`` configs; after a crash continue after it, without the entry point that crashed."""
        for _ in range(MOST_CRASHES):
            wanted = [idx for idx in wanted if configs[idx]["kernel"] not in chunk.skipped_kernels]
            if not wanted:
                return
            with tempfile.TemporaryDirectory(prefix="gpusim-") as folder:
                wanted = self._launch_once(job, configs, chunk, wanted, Path(folder), ncu)
        if wanted:
            raise ConfigError(f"measure: {job.case.name} {job.group}: {MOST_CRASHES} kernels crashed: look at put_aside")

    def _launch_once(
        self, job: Job, configs: Sequence[Config], chunk: Chunk, wanted: list[int], folder: Path, ncu: Ncu | None
    ) -> list[int]:
        """Configs still to be launched after one process, which may have crashed on the way."""
        plan, results, log = folder / "plan.json", folder / "results.jsonl", folder / "ncu.csv"
        Plan(
            case=job.case.name, cubin=str(self.cubins[job.case.name].path), configs=[dict(configs[idx]) for idx in wanted],
            is_counted=ncu is not None, results=str(results), times=() if ncu else job.rules.times,
            probe=str(self.cubins[PROBE].path) if job.rules.times else "", gpu=self.options.gpu,
        ).write(plan)  # fmt: skip
        most_s = START_S + len(wanted) * config_s(job.rules, job.case.num_repeats, is_counted=ncu is not None)
        if ncu is None:
            ended = run_child(child_command(plan), results, most_s=most_s)
        else:
            metrics, lacking = available(self.options.counted(job.rules), set(ncu.known))
            is_marked = job.case.framework is not None
            command = ncu.command(metrics, log, plan, is_cold=job.rules.is_cold, is_marked=is_marked)
            ended = run_child(command, results, most_s=most_s, progress=self.progress, log=log)
            chunk.about |= {"metrics_lacking": lacking}
        chunk.about |= ended.device
        is_ours = job.case.framework is None
        left = self._take(ended, configs, chunk, wanted, is_counted=ncu is not None, skips_kernels=is_ours)
        if ncu is not None and not left:
            match_profiles(
                counted_text(log, ended), metrics, {idx: configs[idx] for idx in wanted}, chunk, is_marked=not is_ours,
                followers=job.case.followers,
            )
        return left

    def _take(
        self, ended: Ended, configs: Sequence[Config], chunk: Chunk, wanted: list[int], *, is_counted: bool,
        skips_kernels: bool = True,
    ) -> list[int]:
        """Configs that must be launched again, after the answers of a child are recorded in ``chunk``.

        ``skips_kernels``: the entry point that crashed is not launched again; a framework's kernels differ by config.
        """
        if not ended.device:
            raise ConfigError(ended.sentence)
        answers = ended.answers
        for answer in answers:
            idx = wanted[answer["idx"]]
            if "wrong" in answer:
                chunk.values.pop(idx, None)
                chunk.put_aside[idx] = f"wrong answer: {answer['wrong']}"
            elif "values" in answer and not is_counted:
                chunk.values[idx] = answer["values"]
                chunk.facts[idx] = answer.get("facts", {})
        is_crash = bool(answers) and "crash" in answers[-1]
        if len(answers) == len(wanted) and not is_crash:
            return []
        culprit = wanted[len(answers) - 1 if is_crash else len(answers)]
        chunk.values.pop(culprit, None)
        chunk.put_aside[culprit] = f"crash: {answers[-1]['crash'] if is_crash else ended.sentence}"
        if skips_kernels:
            chunk.skipped_kernels.add(configs[culprit]["kernel"])
        # counts come only with a process that ends well, so all that it launched is launched again
        if is_counted:
            return [idx for idx in wanted if idx in chunk.values]
        return wanted[wanted.index(culprit) + 1 :]


def config_s(group: Group, num_repeats: int, *, is_counted: bool) -> float:
    """Most seconds that a config of ``group`` may take.

    >>> config_s(Group(configs=list), 3, is_counted=False), config_s(Group(configs=list, is_cold=True), 3, is_counted=True)
    (1.5, 32.0)
    """
    plain = COUNTED_S if is_counted else PLAIN_S * num_repeats
    return plain + (WHOLE_S if group.is_cold or group.times else 0.0)


def counted_text(log: Path, ended: Ended) -> str:
    """Text that Nsight Compute wrote to its log file; without a file, the text that its process printed."""
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ended.output


def match_profiles(
    text: str, metrics: Sequence[str], wanted: Mapping[int, Config], chunk: Chunk,
    *, is_marked: bool = False, followers: Collection[str] = (),
) -> None:
    """Assign to each config its profile, by launch order.

    Profiles of ``followers`` are added to it. With ``is_marked`` a config gets the sum of the profiles after its mark.
    ``wanted``: the launched configs, by their index in the chunk.

    Raises:
        ConfigError: the counted launches differ from those that were made.
    """
    profiles = parse_profiles(text, metrics)
    kernels = [config["kernel"] for config in wanted.values()]
    names = ", ".join(dict.fromkeys(profile.kernel for profile in profiles))[:400]
    if is_marked:
        groups = between_marks(profiles, MARK)
        is_right = len(groups) == len(wanted) and all(groups)
        profiles = [added_up(group) for group in groups if group]
    else:
        leading = [profile.kernel for profile in profiles if profile.kernel not in followers]
        is_right = leading == kernels and not (profiles and profiles[0].kernel in followers)
        profiles = with_followers(profiles, followers)
    if not is_right:
        raise ConfigError(
            f"Nsight Compute: counted {len(profiles)} launches of {len(kernels)}, or in another order ({names}): none of "
            "them is kept"
        )
    for idx, profile in zip(wanted, profiles, strict=True):
        if idx in chunk.values:  # the output of a counted launch may have been wrong
            chunk.profiles[idx] = profile


def launch_facts(case: Case, config: Config, facts: Mapping[str, str], profile: Profile | None) -> dict[str, str]:
    """Text columns of a row that a framework has launched; empty for other rows."""
    if case.framework is None:
        return {}
    texts = dict(facts)
    if profile is not None:
        shapes = {"grid": profile.grid, "block": profile.block}
        texts |= {"launched": profile.kernel, **{name: "x".join(map(str, shape)) for name, shape in shapes.items()}}
    return {**texts, **case.text_columns(config, texts)}


def about(case: Case) -> dict[str, Any]:
    """Description of a table: what its rows answer, and every column that is neither a metric nor part of a config."""
    ends = (("min", "least"), ("max", "most")) if case.num_repeats > 1 else ()
    spread = {f"{name}_{end}": f"the {word} of the repeats" for name in case.values for end, word in ends}
    timed = {name: meaning for name, meaning in VALUES.items() if name in case.names}
    return {
        "kernel": case.name,
        "question": case.question,
        "columns": {**MEANINGS, **case.values, **spread, **timed},
        "metrics": "columns with a dot are Nsight Compute's metrics, of one launch",
    }
