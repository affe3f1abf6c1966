"""What a prediction of a kernel that is bound by memory costs: a core's seconds, parameters to result, in process.

What it leaves to the youngest generation of the garbage collector is part of that.

For each stream and size the least of some repeats, after a prediction of another kernel (imports, the GPU's description);
then how many are within the goal, and the slowest. Whole GEMMs follow, for comparison. ``--dump`` writes the cycles too, and
``--against`` says how far they are from those of such a file: who makes predictions cheaper must not change them.

    python benchmarks/price.py [--sizes 1,4,16,64,256,1024] [--only copy,add] [--dump FILE] [--against FILE]
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from left_out import GEMMS
from speed import bare_timeout_rate
from streams import MIB, STREAMS, Options

import gpusim
from gpusim import load_gpu, simulate
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.simulate.result import Result

GOAL_S = 0.2
"""What a kernel that memory bounds may take: an answer while one looks at the screen, and several a second in a sweep."""
REPEATS = 3
NOTABLE = 1e-3
"""A change of cycles that is told."""


def price(model: str, options: Options, repeats: int = REPEATS) -> tuple[float, Result]:
    """(a core's seconds, result) of a prediction, parameters to result."""
    gpu, seconds = load_gpu("h200_sxm"), []
    for _ in range(repeats):
        began = time.process_time()
        result = simulate(KERNEL_MODELS[model].params.model_validate(dict(options)).launch(gpu), gpu)
        gc.collect(0)
        seconds.append(time.process_time() - began)
    return min(seconds), result


def read_cycles(path: str) -> dict[str, float]:
    """Cycles by kernel, as ``--dump`` writes them."""
    with Path(path).open(encoding="utf-8", newline="") as rows:
        return {row["kernel"]: float(row["cycles"]) for row in csv.DictReader(rows)}


def changes(found: Mapping[str, tuple[float, Result]], before: Mapping[str, float]) -> list[tuple[float, str]]:
    """(change of the cycles, kernel), the greatest first."""
    told = [(result.cycles / before[name] - 1.0, name) for name, (_, result) in found.items() if name in before]
    return sorted(told, key=lambda each: -abs(each[0]))


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
    out.write(f"A core's seconds, modules {gpusim.compiled_state}; the goal is {GOAL_S} s.\n\n")
    out.write(f"| bound by memory | {' | '.join(f'{size} MiB' for size in sizes)} | events |\n")
    out.write(f"{'|---' * (len(sizes) + 2)}|\n")
    found: dict[str, tuple[float, Result]] = {}
    for name in asked:
        row = [price(*STREAMS[name](size * MIB), told.repeats) for size in sizes]
        found.update((f"{name}; {size} MiB", each) for size, each in zip(sizes, row, strict=True))
        events = max(result.num_events for _, result in row)
        out.write(f"| {name} | {' | '.join(f'{seconds:.2f}' for seconds, _ in row)} | up to {events:,} |\n")
        out.flush()
    if found:
        within = sum(seconds <= GOAL_S for seconds, _ in found.values())
        slowest = max(found, key=lambda name: found[name][0])
        out.write(f"\nwithin {GOAL_S} s: {within} of {len(found)}; the slowest {found[slowest][0]:.2f} s, {slowest}\n")
        bare_us = 1e6 / max(bare_timeout_rate() for _ in range(REPEATS))
        out.write(f"a bare simpy timeout takes {bare_us:.2f} us of this core\n")
    if told.against:
        apart = changes(found, before)
        out.write(f"\ncycles against {told.against}: {len(apart)} kernels, changes above {NOTABLE:.1%}:\n")
        out.writelines(f"| {name} | {change:+.2%} |\n" for change, name in apart if abs(change) > NOTABLE)
    if told.dump:
        with Path(told.dump).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["kernel", "seconds", "cycles", "events"])
            for name, (seconds, result) in found.items():
                writer.writerow([name, f"{seconds:.4f}", f"{result.cycles:.3f}", result.num_events])
    if not told.no_gemms:
        out.write("\n| GEMM of 4096 x 4096 x 4096 | seconds | events |\n|---|---|---|\n")
        for name, options in GEMMS.items():
            seconds, result = price("gemm", {"m": 4096, "n": 4096, "k": 4096, **options}, told.repeats)
            out.write(f"| {name} | {seconds:.2f} | {result.num_events:,} |\n")
            out.flush()


if __name__ == "__main__":
    main()
