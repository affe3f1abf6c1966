"""What a prediction of a kernel that is bound by memory costs: a core's seconds, parameters to result, in process.

What it leaves to the youngest generation of the garbage collector is part of that.

A core's seconds depend on the machine, and on who else uses its caches and its power just then, by half and more. So each
prediction stands between two short runs of simpy alone, processes that only time out, which share its minute: seconds *at
1.0 us* are those measured over the microseconds that such a bare timeout took around them, and the goal is one of these. It
is no cure: what others do to a cache of a prediction's they do not do to a timeout's. The seconds as measured stand beside.

For each stream and size, after a prediction of another kernel (imports, the GPU's description): of some repeats the median
of the seconds at 1.0 us, and (in brackets) the least of the seconds as measured; then how many are within the goal, and the
slowest. Whole GEMMs follow, for comparison. ``--dump`` writes the cycles too, and ``--against`` says how far they are from
those of such a file: who makes predictions cheaper must not change them.

    python benchmarks/price.py [--sizes 1,4,16,64,256,1024] [--only copy,add] [--dump FILE] [--against FILE]
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TextIO

from speed import BY_CP_ASYNC, COOPERATIVE, bare_timeout_s
from streams import MIB, STREAMS, Options

from gpusim import load_gpu, simulate
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.simulate.result import Result

GOAL_S = 0.2
"""What a kernel that memory bounds may take, at 1.0 us: an answer while one looks at the screen, and several a second in a
sweep."""
REPEATS = 5
BARE_EVENTS = 300
"""Of each of a hundred processes that only time out, before a prediction and behind it: some tens of milliseconds."""
NOTABLE = 1e-3
"""A change of cycles that is told."""
GEMMS: Mapping[str, Options] = {
    "cooperative": COOPERATIVE,
    "pingpong": {"schedule": "pingpong", "tile": "64x256x64", "stages": 4},
    "warp_specialized": {"schedule": "warp_specialized", "tile": "128x128x64", "stages": 4},
    "persistent": {**COOPERATIVE, "persistent": True},
    "cluster 2x1": {**COOPERATIVE, "cluster": "2x1"},
    "split-K 4": {**COOPERATIVE, "tile": "128x128x64", "split_k": 4},
    "tiles of 64 x 64 by cp.async": BY_CP_ASYNC,
}
"""GEMMs of 4096 x 4096 x 4096."""


@dataclass(frozen=True)
class Price:
    """Of a prediction, parameters to result."""

    seconds: float
    """A core's, as measured: the least."""
    seconds_at_1us: float
    """Where a bare timeout takes 1.0 us: the median."""
    bare_us: float
    """What one took around it: the median."""
    result: Result

    def __str__(self) -> str:
        return f"{self.seconds_at_1us:.3f} ({self.seconds:.2f})"


def bare_us() -> float:
    """Microseconds of a bare timeout, now."""
    return 1e6 * bare_timeout_s(num_events=BARE_EVENTS)


def price(model: str, options: Options, repeats: int = REPEATS) -> Price:
    """What a prediction costs."""
    gpu, seconds, bare = load_gpu("h200_sxm"), [], []
    for _ in range(repeats):
        before = bare_us()
        began = time.process_time()
        result = simulate(KERNEL_MODELS[model].params.model_validate(dict(options)).launch(gpu), gpu)
        gc.collect(0)
        seconds.append(time.process_time() - began)
        bare.append((before + bare_us()) / 2)
    at_1us = [taken / each for taken, each in zip(seconds, bare, strict=True)]
    return Price(min(seconds), median(at_1us), median(bare), result)


def read_cycles(path: str) -> dict[str, float]:
    """Cycles by kernel, as ``--dump`` writes them."""
    with Path(path).open(encoding="utf-8", newline="") as rows:
        return {row["kernel"]: float(row["cycles"]) for row in csv.DictReader(rows)}


def changes(found: Mapping[str, Price], before: Mapping[str, float]) -> list[tuple[float, str]]:
    """(change of the cycles, kernel), the greatest first."""
    told = [(each.result.cycles / before[name] - 1.0, name) for name, each in found.items() if name in before]
    return sorted(told, key=lambda each: -abs(each[0]))


def tell_goal(out: TextIO, found: Mapping[str, Price]) -> None:
    """How many are within the goal, and the slowest; in which minutes."""
    within = sum(each.seconds_at_1us <= GOAL_S for each in found.values())
    measured = sum(each.seconds <= GOAL_S for each in found.values())
    slowest = max(found, key=lambda name: found[name].seconds_at_1us)
    out.write(f"\nwithin {GOAL_S} s: {within} of {len(found)} at 1.0 us, {measured} as measured; the slowest ")
    out.write(f"{found[slowest]}, {slowest}\n")
    bare = [each.bare_us for each in found.values()]
    out.write(f"a bare simpy timeout took {min(bare):.2f} to {max(bare):.2f} us of this core, {median(bare):.2f} mostly\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="1,4,16,64,256,1024", help="MiB of the main input of a stream")
    parser.add_argument("--only", default="", help="words, one of which a kernel's name holds")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--no-gemms", action="store_true", help="streams alone")
    parser.add_argument("--dump", default="", help="a file to write seconds and cycles to")
    parser.add_argument("--against", default="", help="such a file, of an earlier state")
    told = parser.parse_args()
    try:
        before = read_cycles(told.against) if told.against else {}
    except (OSError, KeyError, ValueError) as error:
        parser.error(f"--against {told.against}: cannot be read as what --dump writes ({error})")
    words, sizes = [word for word in told.only.split(",") if word], [int(size) for size in told.sizes.split(",")]
    out = sys.stdout
    asked = [name for name in STREAMS if not words or any(word in name for word in words)]
    if told.against and not any(f"{name}; {size} MiB" in before for name in asked for size in sizes):
        parser.error(f"--against {told.against}: has none of these kernels")
    price("gemm", {"m": 1024, "n": 1024, "k": 1024}, 1)  # imports
    out.write(
        f"A core's seconds at 1.0 us a bare simpy timeout (as measured); the goal is {GOAL_S} s at 1.0 us.\n\n"
    )
    out.write(f"| bound by memory | {' | '.join(f'{size} MiB' for size in sizes)} | events |\n")
    out.write(f"{'|---' * (len(sizes) + 2)}|\n")
    found: dict[str, Price] = {}
    for name in asked:
        row = [price(*STREAMS[name](size * MIB), told.repeats) for size in sizes]
        found.update((f"{name}; {size} MiB", each) for size, each in zip(sizes, row, strict=True))
        events = max(each.result.num_events for each in row)
        out.write(f"| {name} | {' | '.join(str(each) for each in row)} | up to {events:,} |\n")
        out.flush()
    if found:
        tell_goal(out, found)
    if told.against:
        apart = changes(found, before)
        out.write(f"\ncycles against {told.against}: {len(apart)} kernels, the greatest change {abs(apart[0][0]):.0e}; ")
        out.write(f"above {NOTABLE:.1%}:\n")
        out.writelines(f"| {name} | {change:+.2%} |\n" for change, name in apart if abs(change) > NOTABLE)
    if told.dump:
        with Path(told.dump).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["kernel", "seconds", "seconds_at_1us", "bare_us", "cycles", "events"])
            for name, each in found.items():
                measured_row = [f"{each.seconds:.4f}", f"{each.seconds_at_1us:.4f}", f"{each.bare_us:.3f}"]
                writer.writerow([name, *measured_row, repr(each.result.cycles), each.result.num_events])
    if not told.no_gemms:
        out.write("\n| GEMM of 4096 x 4096 x 4096 | seconds at 1.0 us (as measured) | events |\n|---|---|---|\n")
        for name, options in GEMMS.items():
            of_gemm = price("gemm", {"m": 4096, "n": 4096, "k": 4096, **options}, told.repeats)
            out.write(f"| {name} | {of_gemm} | {of_gemm.result.num_events:,} |\n")
            out.flush()


if __name__ == "__main__":
    main()
