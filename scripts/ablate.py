"""Switch mechanisms off, one at a time, and write how far judged predictions move: `validation/ablations.csv`.

    python scripts/ablate.py [GPU] [--all-rows] [--only PARAMETER ...]

A mechanism is off at the value that `OFF` has. Of each family of whole kernels seven rows are simulated, spread over its
kernels' lengths, or all with `--all-rows`. A minute of a core a mechanism, and fifteen with all rows. Lines of
other mechanisms stay as they are.

Asked are the mechanisms that no microbenchmark of tiers 0 to 4 judges: others stay whatever they move.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.paths import CYCLES
from gpusim.evidence.cases.rows import config_of
from gpusim.evidence.validate.answers import Question, answer, questions_of
from gpusim.evidence.validate.judge import Judgement
from gpusim.evidence.validate.judged_rows import read_judged
from gpusim.machine.config import GpuSpec, load_gpu

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = (
    "parameter", "off_value", "rows", "largest_row_move_pct", "family_made_better", "its_points", "family_made_worse",
    "points_worse", "mean_points", "counters_moved", "decision",
)  # fmt: skip
OFF: Mapping[str, float] = {
    "hbm.read_write_turnaround_wait_ns": 0.0, "hbm.write_burst_ns": 0.0, "xbar.coalesce_wait_fraction": 0.0,
    "xbar.num_gpc_store_ports": 1, "xbar.misaligned_coalesce_fraction": 1.0, "xbar.request_wait_per_efold_fraction": 0.0,
    "l2.fabric_turnaround_fraction": 0.0, "l2.cta_lifetime_cv": 0.0, "l2.dirty_fabric_fraction": 0.0,
    "l2.slice_lookup_sectors": 0.0, "l2.write_back_queue_bytes": 1e12, "l1.queue_cycles": 1e6,
    "dispatcher.cold_start_cycles": 0.0, "dispatcher.store_exit_cycles": 0.0, "dispatcher.store_end_cycles": 0.0,
    "instruction_cache.launch_fetched_bytes": 1e9, "warp_scheduler.imad_wide_sm_cv": 0.0,
    "mbarrier.max_queued_arrivals": 1000,
}  # fmt: skip
"""Parameters of mechanisms that tiers 0 to 4 do not judge, and where each does nothing."""

PLACES = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75)
"""Of a family's rows in order of their cycles."""

MOST_POINTS = 0.2
"""By which a mechanism may move a family's mean error, and go."""

MOVED = 1e-3
"""Part of what was measured by which a counter has moved."""

Key = tuple[str, str, str]
"""Kernel, group and configuration of a row."""

Answers = Mapping[Key, Mapping[str, float]]
"""Numbers of rows, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What judged rows say without a mechanism, less what they say with it."""

    rows: int
    largest_pct: float
    families: Mapping[str, float]
    """Points by which each family's mean error of cycles grows."""
    counters: int
    """Judged counters of rows that move."""

    def goes(self) -> bool:
        """Whether the mechanism pays no rent."""
        return not self.counters and max(map(abs, self.families.values())) < MOST_POINTS


def key_of(item: Judgement) -> Key:
    """The row of a judgement."""
    return item.kernel, item.group, " ".join(f"{name}={value}" for name, value in item.config.items())


def chosen(judged: Iterable[Judgement]) -> list[Key]:
    """Rows of all families, spread over their lengths."""
    families: dict[str, list[tuple[float, Key]]] = defaultdict(list)
    for item in judged:
        if item.name == CYCLES:
            families[item.family or item.kernel].append((item.predicted, key_of(item)))
    found = []
    for rows in families.values():
        rows.sort()
        found += [rows[place][1] for place in sorted({int(part * len(rows)) for part in PLACES})]
    return found


def without(gpu: GpuSpec, parameter: str) -> GpuSpec:
    """``gpu`` with a mechanism off; nothing of it changes where ``parameter`` is empty."""
    if not parameter:
        return gpu
    part, _, name = parameter.partition(".")
    return replace(gpu, **{part: replace(gpu.component(part), **{name: OFF[parameter]})})


@cache
def asked(kernel: str, gpu_name: str) -> dict[Key, list[Question]]:
    """What a kernel's rows are asked."""
    case = load_case(kernel)
    found: defaultdict[Key, list[Question]] = defaultdict(list)
    for question in questions_of(case, ROOT / "validation" / "measured" / gpu_name, load_gpu(gpu_name), (5, 6)):
        config = " ".join(f"{key}={value}" for key, value in config_of(question.row, case.columns).items())
        names = tuple(name for name in question.names if case.tiers.get(name) in (5, 6))
        found[kernel, question.row["group"], config].append(replace(question, names=names))
    return dict(found)


def predicted(key: Key, gpu_name: str, parameter: str) -> dict[str, float]:
    """Numbers of a row, by name."""
    gpu, case = without(load_gpu(gpu_name), parameter), load_case(key[0])
    return {
        name: found.value for question in asked(key[0], gpu_name)[key] for name, found in answer(case, question, gpu).items()
    }


def moves(judged: Iterable[Judgement], with_it: Answers, off: Answers) -> Moves:
    """Both predictions of the rows of ``off``, held against what was measured."""
    largest, counters = 0.0, Counter[str]()
    errors: defaultdict[str, list[float]] = defaultdict(list)
    for item in judged:
        key = key_of(item)
        if key not in off or item.name not in off[key]:
            continue
        before, after = with_it[key][item.name], off[key][item.name]
        if item.name != CYCLES:
            counters[item.name] += abs(after - before) > MOVED * max(abs(item.measured), item.floor)
            continue
        largest = max(largest, after / before - 1.0, key=abs)
        change = abs(after - item.measured) - abs(before - item.measured)
        errors[item.family or item.kernel].append(100.0 * change / item.measured)
    means = {family: fmean(values) for family, values in errors.items()}
    return Moves(rows=len(off), largest_pct=100.0 * largest, families=means, counters=counters.total())


def steps(gpu_name: str, parameters: Iterable[str], *, all_rows: bool) -> Iterator[tuple[str, Moves]]:
    """Each mechanism's moves."""
    judged = read_judged(gpu_name).rows
    keys = [key_of(item) for item in judged if item.name == CYCLES] if all_rows else chosen(judged)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:

        def ask(parameter: str) -> Answers:
            how = partial(predicted, gpu_name=gpu_name, parameter=parameter)
            return dict(zip(keys, pool.map(how, keys, chunksize=4), strict=True))

        with_all = ask("")
        for parameter in parameters:
            yield parameter, moves(judged, with_all, ask(parameter))


def line_of(parameter: str, found: Moves) -> tuple[object, ...]:
    """A line of the table."""
    best, worst = (pick(found.families, key=found.families.__getitem__) for pick in (min, max))
    return (
        parameter, OFF[parameter], found.rows, f"{found.largest_pct:.2f}", best, f"{found.families[best]:.2f}", worst,
        f"{found.families[worst]:.2f}", f"{fmean(found.families.values()):.3f}", found.counters,
        "goes" if found.goes() else "stays",
    )  # fmt: skip


def main(arguments: list[str]) -> int:
    """As the module's docstring says."""
    all_rows = "--all-rows" in arguments
    words = [text for text in arguments if text != "--all-rows"]
    place = words.index("--only") if "--only" in words else len(words)
    parameters = words[place + 1 :] or list(OFF)
    unknown = [parameter for parameter in parameters if parameter not in OFF]
    if unknown:
        print(f"{unknown[0]} is unknown; one of {', '.join(OFF)}", file=sys.stderr)
        return 2
    path = ROOT / "validation" / "ablations.csv"
    known = {line[0]: line for line in csv.reader(path.open(encoding="utf-8"))} if path.exists() else {}
    known.pop(COLUMNS[0], None)
    for parameter, found in steps((words[:place] or ["h200_sxm"])[0], parameters, all_rows=all_rows):
        known[parameter] = [str(each) for each in line_of(parameter, found)]
        print(*known[parameter], flush=True)
    lines = sorted(known.values(), key=lambda line: abs(float(line[3])))
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
