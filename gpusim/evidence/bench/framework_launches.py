"""Kernels that a framework launches, without times: names, grids, registers, so that predictions can come first.

In: a case whose GEMMs a framework launches, the profiler. Out: a CSV with one line per config: the launched kernels, as
text, without cycles, times or bytes. Child processes use the GPU; this module does not.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpusim.errors import ConfigError
from gpusim.evidence.bench.child_process import START_S, Ncu, run_child
from gpusim.evidence.bench.gpu import Plan
from gpusim.evidence.bench.runner import Chunk, config_s, counted_text, launch_facts, match_profiles
from gpusim.evidence.cases.case import Case, Config
from gpusim.evidence.cases.rows import number_text

METRICS = ("launch__registers_per_thread", "launch__shared_mem_per_block_dynamic", "sm__inst_executed_pipe_tensor.sum")
"""Metrics of a launch that do not depend on time. The tensor instructions make Nsight Compute profile the launch."""

OWN_COLUMNS = ("group", "kernel")


def launches_of(case: Case, group: str, configs: Sequence[Config], ncu: Ncu) -> list[dict[str, str]]:
    """Line for each of ``configs``: the config, ``launched``, grid, block, facts from the name, :data:`METRICS`.

    Configs with a wrong output have no line.

    Raises:
        ConfigError: no framework launches the case, a launch crashed, or the counted launches differ from those made.
    """
    if case.framework is None:
        raise ConfigError(f"{case.name}: its kernels are in kernel.cu, which tells their names; wants a framework's case")
    with tempfile.TemporaryDirectory(prefix="gpusim-") as name:
        plan, results, log = (Path(name) / file for file in ("plan.json", "results.jsonl", "ncu.csv"))
        Plan(case=case.name, cubin="", configs=list(configs), is_counted=True, results=str(results)).write(plan)
        most_s = START_S + len(configs) * config_s(case.groups[group], 1, is_counted=True)
        ended = run_child(ncu.command(METRICS, log, plan, is_marked=True), results, most_s=most_s, log=log)
        crash = next((answer["crash"] for answer in ended.answers if "crash" in answer), None)
        if crash is not None or len(ended.answers) != len(configs):
            raise ConfigError(f"{case.name} {group}: {crash or ended.sentence}: wants launches that all give an answer")
        chunk = Chunk(values={answer["idx"]: {} for answer in ended.answers if "values" in answer})
        match_profiles(counted_text(log, ended), METRICS, dict(enumerate(configs)), chunk, is_marked=True)
    facts = {answer["idx"]: answer.get("facts", {}) for answer in ended.answers}
    lines = []
    for idx, profile in sorted(chunk.profiles.items()):
        config = configs[idx]
        numbers = {metric: number_text(number) for metric, number in profile.metrics.items()}
        lines.append({"group": group, **config, **launch_facts(case, config, facts.get(idx, {}), profile), **numbers})
    return lines


def write_launches(path: Path, lines: Sequence[Mapping[str, str]]) -> None:
    """Write lines to a CSV at ``path``; missing fields are empty."""
    columns = list(dict.fromkeys(name for line in lines for name in line))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def read_launches(path: Path) -> list[dict[str, str]]:
    """Lines in a file of :func:`write_launches`.

    Raises:
        ConfigError: there is no such file, or it has no launches.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: is no file, wants what gpusim measure --names-only wrote")
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    if not lines or not {*OWN_COLUMNS, "launched"} <= set(lines[0]):
        raise ConfigError(f"{path}: holds no launches, wants what gpusim measure --names-only wrote")
    return lines
