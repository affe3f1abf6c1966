"""What a prediction costs: seconds, memory, events. Prints the table that the README quotes.

Seconds are a core's own, the least of some repeats: who else runs on the machine then matters least. Ratios are taken in one
run, because absolute times move from machine to machine. Nothing is cached between repeats.

    python benchmarks/speed.py
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

import simpy
from streams import MIB, STREAMS

from gpusim import GemmParams, load_gpu, simulate
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.simulate.quick import Quality

REPEATS = 5
STREAM_REPEATS = 3
STREAM_SIZES = (MIB, 64 * MIB, 4096 * MIB)
COMMAND = [
    "predict", "gemm", "--gpu", "h200_sxm", "--m", "4096", "--n", "4096", "--k", "4096", "--tile", "128x256x64",
    "--stages", "4", "--schedule", "cooperative",
]


def bare_timeout_rate(num_processes: int = 100, num_events: int = 3000) -> float:
    """Events a second of simpy alone: processes that only time out."""
    env = simpy.Environment()

    def ticks():  # type: ignore[no-untyped-def]  # a bare simpy process
        for _ in range(num_events):
            yield env.timeout(1.5)

    for _ in range(num_processes):
        env.process(ticks())
    began = time.process_time()
    env.run()
    return num_processes * num_events / (time.process_time() - began)


def in_process(
    extent: int, *, raster_group: int = 1, repeats: int = REPEATS, quality: Quality = "full"
) -> tuple[float, int]:
    """(seconds, events) of a prediction, parameters to result."""
    gpu = load_gpu("h200_sxm")
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        params = GemmParams(
            m=extent, n=extent, k=extent, tile=(128, 256, 64), stages=4, schedule="cooperative", raster_group=raster_group
        )
        result = simulate(params.launch(gpu), gpu, quality=quality)
        seconds.append(time.process_time() - began)
    return min(seconds), result.num_events


def of_stream(name: str, num_bytes: int) -> tuple[float, int]:
    """(seconds, events) of a prediction of a kernel that is bound by memory, the GPU's description to result."""
    model, options = STREAMS[name](num_bytes)
    seconds = []
    for _ in range(STREAM_REPEATS):
        began = time.process_time()
        gpu = load_gpu("h200_sxm")
        result = simulate(KERNEL_MODELS[model].params.model_validate(dict(options)).launch(gpu), gpu)
        seconds.append(time.process_time() - began)
    return min(seconds), result.num_events


def of_transpose(extent: int) -> float:
    """Seconds of a transpose of a square matrix; sides that are no multiple of 32 have edge tiles."""
    gpu, seconds = load_gpu("h200_sxm"), []
    for _ in range(STREAM_REPEATS):
        began = time.process_time()
        simulate(KERNEL_MODELS["transpose"].params.model_validate({"m": extent, "n": extent}).launch(gpu), gpu)
        seconds.append(time.process_time() - began)
    return min(seconds)


def in_own_process(*, interpreted: bool) -> tuple[float, str]:
    """(seconds of the first prediction's kind, what the busiest modules were) where they may be compiled, or may not."""
    environment = {name: value for name, value in os.environ.items() if name != "GPUSIM_INTERPRETED"}
    if interpreted:
        environment["GPUSIM_INTERPRETED"] = "1"
    program = "import gpusim, speed; speed.in_process(1024); print(speed.in_process(4096)[0], gpusim.compiled_state)"
    words = [sys.executable, "-c", program]
    ran = subprocess.run(words, check=True, env=environment, cwd=os.path.dirname(__file__), capture_output=True, text=True)
    seconds, state = ran.stdout.split()
    return float(seconds), state


def as_command(*more: str) -> tuple[float, float]:
    """(seconds, largest MiB) of the command, start of Python included; modules are compiled, as when it runs again."""
    seconds = []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = [sys.executable, "-m", "gpusim", *COMMAND, *more]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    """Measure and print."""
    in_process(1024)  # imports
    small, num_events = in_process(4096)
    banded, num_events_banded = in_process(16384, raster_group=8)
    drifting, num_events_drifting = in_process(16384, repeats=1)
    large, num_events_large = in_process(8192, repeats=2)
    quick = [in_process(extent, quality="quick")[0] for extent in (4096, 8192, 16384)]
    rate = bare_timeout_rate()
    command, memory = as_command()
    quick_command, _ = as_command("--quality", "quick")
    print("| what | measured | goal |")
    print("|---|---|---|")
    print(f"| 4096 x 4096 x 4096 in process | {small:.2f} s | 0.2 s |")
    print(f"| the same with `--quality quick` | {quick[0]:.2f} s | 0.2 s |")
    print(f"| as a command, full and quick | {command:.1f} s, {quick_command:.1f} s | 0.5 s |")
    print(f"| its largest memory | {memory:.0f} MiB | 300 MB |")
    print(f"| 8192 x 8192 x 8192 ({num_events_large:,} events), full and quick | {large:.1f} s, {quick[1]:.2f} s | 0.2 s |")
    print(f"| 16384 x 16384 x 16384, quick | {quick[2]:.2f} s | 0.2 s |")
    print(f"| 16384 x 16384 x 16384 with `--raster-group 8`, of the 4096 one | {banded / small:.1f} | 1.5 |")
    print(f"| the same in row-major order, whose CTAs drift apart | {drifting:.1f} s | |")
    print(f"| events of these three | {num_events:,}, {num_events_banded:,}, {num_events_drifting:,} | |")
    print(f"| a transpose of 8191 x 8191, of one of 8192 x 8192 | {of_transpose(8191) / of_transpose(8192):.1f} | |")
    per_event = small / num_events
    plain, (compiled, state) = in_own_process(interpreted=True)[0], in_own_process(interpreted=False)
    said = f"{plain / compiled:.1f} ({plain:.2f} s over {compiled:.2f} s)" if state == "compiled" else state
    print(f"| the first as plain Python over `gpusim compile`'s | {said} | |")
    print(f"| an event of the first | {per_event * 1e6:.1f} us, {per_event * rate:.1f} bare simpy timeouts | |")
    print()
    print("| bound by memory, of the 4096 GEMM's time | 1 MiB | 64 MiB | 4 GiB | events | goal |")
    print("|---|---|---|---|---|---|")
    slowest = 0.0
    for name in STREAMS:
        took = [of_stream(name, num_bytes) for num_bytes in STREAM_SIZES]
        slowest = max(slowest, *(seconds for seconds, _ in took))
        shares = " | ".join(f"{seconds / small:.2f}" for seconds, _ in took)
        print(f"| {name} | {shares} | {', '.join(f'{events:,}' for _, events in took)} | {0.2 / small:.2f} |")
    print(f"| the slowest of them | {slowest:.2f} s | | | | 0.2 s |")


if __name__ == "__main__":
    main()
