"""What counting bank conflicts costs: a million warp accesses, random and as bad as can be, and a sort of as many numbers.

Run it with ``python benchmarks/wavefronts.py``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from gpusim.workload.smem.access import wavefronts
from gpusim.workload.smem.smem_ops import SMEM_OPS

NUM_WARPS = 1_000_000
REPEATS = 3
OPS = ("ld_shared_b8", "ld_shared_b32", "ld_shared_b64", "ld_shared_b128", "ldmatrix_x4", "red_shared_b32")


def seconds_of(work: Callable[[], object]) -> float:
    """Median wall seconds."""
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 8192, (NUM_WARPS, 32))
    sort = seconds_of(lambda: np.sort(numbers, axis=-1))
    print(f"{NUM_WARPS} warp accesses; sorting as many 64-bit numbers by rows takes {sort:.2f} s")
    print(f"{'op':16}{'random s':>10}{'masked s':>10}{'worst s':>10}{'random / sort':>15}")
    for op in OPS:
        size = SMEM_OPS[op].access_bytes
        addresses = rng.integers(0, 32768 // size, (NUM_WARPS, 32)) * size
        worst = np.broadcast_to(128 * np.arange(32), (NUM_WARPS, 32))
        mask = None if SMEM_OPS[op].is_collective else rng.random((NUM_WARPS, 32)) < 0.8
        times = [
            seconds_of(lambda a=a, m=m, op=op: wavefronts(op, a, m))
            for a, m in ((addresses, None), (addresses, mask), (worst, None))
        ]
        print(f"{op:16}" + "".join(f"{t:10.2f}" for t in times) + f"{times[0] / sort:15.1f}")


if __name__ == "__main__":
    main()
