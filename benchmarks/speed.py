"""What a prediction costs: seconds and events of whole simulations. Prints the table that the README quotes.

Seconds are a core's own, parameters to result, the least of some repeats: who else runs on the machine then matters least.
What an event takes is told over a bare simpy timeout of the same run, since absolute times move from machine to machine.
At a fixed clock a launch is simulated once; with the default clock again where its activity settles at another one.
Memory is what the whole process has held at most so far, in order of the table.

    python benchmarks/speed.py [--only copy] [--repeats 3]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator, Mapping
from typing import Any

import simpy

from gpusim import load_gpu, simulate
from gpusim.kernel_models import KERNEL_MODELS

GPU, MIB, FIXED_MHZ = "h200_sxm", 1 << 20, 1700.0
LONG_S = 5.0
"""What takes longer is not repeated."""
COOPERATIVE = {"tile": "128x256x64", "stages": 4, "schedule": "cooperative"}
BY_CP_ASYNC = {"tile": "64x64x32", "stages": 3, "schedule": "multistage", "copy": "cp_async", "math": "mma_sync"}
BY_FMA = {"tile": "128x128x8", "stages": 2, "dtype": "fp32", "math": "fma", "schedule": "multistage", "copy": "cp_async"}


def gemm(m: int, n: int, k: int, **options: Any) -> tuple[str, Mapping[str, Any]]:
    """Of a GEMM: model and options."""
    return "gemm", {"m": m, "n": n, "k": k, **options}


def copy(mib: int) -> tuple[str, Mapping[str, Any]]:
    """Of a copy of fp32, by the size of its input."""
    return "elementwise", {"op": "copy", "elements": mib * MIB // 4}


KERNELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "GEMM 4096 x 4096 x 4096": gemm(4096, 4096, 4096, **COOPERATIVE),
    "GEMM 8192 x 28672 x 8192": gemm(8192, 28672, 8192, **COOPERATIVE),
    "GEMM 16384 x 16384 x 16384": gemm(16384, 16384, 16384, **COOPERATIVE),
    "GEMM 4096 x 4096 x 4096, tiles of 64 x 64 by cp.async": gemm(4096, 4096, 4096, **BY_CP_ASYNC),
    "GEMM 4096 x 4096 x 4096, fp32 by FFMA": gemm(4096, 4096, 4096, **BY_FMA),
    "copy of 16 MiB": copy(16),
    "copy of 256 MiB": copy(256),
    "copy of 4 GiB": copy(4096),
}


def bare_timeout_s(num_processes: int = 100, num_events: int = 3000) -> float:
    """Seconds of an event of simpy alone: processes that only time out."""
    env = simpy.Environment()

    def ticks() -> Iterator[simpy.Event]:
        for _ in range(num_events):
            yield env.timeout(1.5)

    for _ in range(num_processes):
        env.process(ticks())  # type: ignore[arg-type]  # an iterator is enough
    began = time.process_time()
    env.run()
    return (time.process_time() - began) / num_processes / num_events


def predicted(model: str, options: Mapping[str, Any], repeats: int, clock: Any) -> tuple[float, int]:
    """(seconds, events) of a prediction."""
    gpu, seconds, num_events = load_gpu(GPU), [], 0
    for _ in range(repeats):
        began = time.process_time()
        launch = KERNEL_MODELS[model].params.model_validate(dict(options)).launch(gpu)
        num_events = simulate(launch, gpu, clock=clock).num_events
        seconds.append(time.process_time() - began)
        if seconds[-1] > LONG_S:
            break
    return min(seconds), num_events


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a word that a kernel's name holds")
    parser.add_argument("--repeats", type=int, default=3)
    told = parser.parse_args()
    predicted(*gemm(1024, 1024, 1024), 1, FIXED_MHZ)  # imports, and the module's compilation
    bare = min(bare_timeout_s() for _ in range(told.repeats))
    print(f"| kernel on {GPU} | seconds at {FIXED_MHZ:.0f} MHz | events | an event over a bare simpy timeout "
          "| default clock over that | memory so far |\n|---|---|---|---|---|---|")  # fmt: skip
    for name, (model, options) in KERNELS.items():
        if told.only in name:
            seconds, num_events = predicted(model, options, told.repeats, FIXED_MHZ)
            settled, _ = predicted(model, options, told.repeats, "single")
            mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(f"| {name} | {seconds:.3f} | {num_events:,} | {seconds / num_events / bare:.2f} "
                  f"| {settled / seconds:.2f} | {mib} MiB |", flush=True)  # fmt: skip
    print(f"\nA bare simpy timeout took {1e6 * bare:.2f} us.")


if __name__ == "__main__":
    main()
