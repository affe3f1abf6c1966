"""What a sweep costs: seconds of ten thousand configurations, and what becomes of them.

Each is simulated whole or excluded by a bound. Prints seconds of a core that listing and bounds take for one, and the wall
time of a sweep of all of them, by processes. Wants a machine that does nothing else; seconds of cores say what it would be
there, about. Plain predictions of the same run are the unit of the last line, since seconds move from machine to machine.

Two grids: tiles of many sizes, most of which fill waves badly; and with --orders usual tiles in eight orders, whose bounds
are alike.

    python benchmarks/sweep.py [--jobs 2] [--top 10] [--orders] [--few]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections import Counter

from gpusim import GemmParams, load_gpu, simulate
from gpusim.analysis.sweep import SweepSettings, run_sweep
from gpusim.kernel_models.sweep_values import choices
from gpusim.simulate.lower_bound import lower_bound

EXTENT, GOAL_S, GOAL_NUM = 2048, 60.0, 10_000
TILES = ",".join(f"{rows}x{columns}x64" for rows in (64, 128, 192, 256) for columns in range(32, 257, 16))
COMMON = {
    "m": EXTENT, "n": EXTENT, "k": EXTENT, "stages": "2..6", "schedule": "auto", "cluster": "auto", "epilogue": "auto",
}  # fmt: skip
SIZES = {**COMMON, "tile": TILES, "swizzle_size": "1,8"}
ORDERS = {**COMMON, "tile": "auto", "raster": "auto", "swizzle_size": "1,2,4,8"}


def seconds_of_cores() -> float:
    """What this process and those that it has ended have used."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--orders", action="store_true", help="usual tiles in eight orders")
    parser.add_argument("--few", action="store_true", help="in one order alone")
    told = parser.parse_args()
    options, gpu = ORDERS if told.orders else SIZES, load_gpu("h200_sxm")
    if told.few:
        options = {**options, "raster": "along_n", "swizzle_size": "8"}
    params = GemmParams(m=EXTENT, n=EXTENT, k=EXTENT, tile=(128, 256, 64), stages=4, schedule="cooperative")
    plain = []
    for _ in range(5):
        began = time.process_time()
        simulate(params.launch(gpu), gpu, clock=1740.0)
        plain.append(time.process_time() - began)
    began = time.process_time()
    found = choices(GemmParams, options, gpu, keep=lambda launch: launch)
    listed = time.process_time() - began
    num = len(found.legal)
    began = time.process_time()
    for choice in found.legal:
        lower_bound(choice.kept, gpu)
    bounded = time.process_time() - began
    del found
    before = seconds_of_cores()
    sweep = run_sweep("gemm", options, gpu, SweepSettings(top=told.top, jobs=told.jobs))
    of_cores = seconds_of_cores() - before
    became = Counter((entry.status, entry.is_begun) for entry in sweep.entries)
    print(f"plain prediction (128x256x64, cooperative): {min(plain) * 1e3:.0f} ms")
    tried = sweep.choices.num_tried
    print(f"listing: {listed / tried * 1e3:.3f} ms a combination ({tried} tried, {num} legal)")
    print(f"bound: {bounded / num * 1e3:.3f} ms a configuration")
    for (status, is_begun), count in became.items():
        print(f"{status}{' as it ran' if is_begun else ''}: {count}")
    for what, seconds in (("wall time", sweep.wall_s), (f"seconds of cores over {told.jobs}", of_cores / told.jobs)):
        print(f"{what}: {seconds:.1f} s, {seconds / num * GOAL_NUM:.1f} s for {GOAL_NUM:,} (goal {GOAL_S:.0f})")
    print(f"a configuration: {of_cores / num / min(plain):.3f} plain predictions")


if __name__ == "__main__":
    main()
