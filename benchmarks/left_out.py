"""What is left out of a simulation, and what that changes: SMs that others stand for, waves and iterations.

For each kernel the cycles of a run of all SMs without a skip; how far off of it is one in which SMs stand for others; how
far off of that one with skips, too, which is the default; and both. At fixed clocks, so that nothing else differs; at
several side by side, since which SMs have the last wave of a GEMM is a lottery (validation/deviations.md, 2): mean and worst
of them; cycles, events and seconds are those of the last.

    python benchmarks/left_out.py [--sizes 16,256] [--only copy,add] [--clocks 1700,1800]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

from streams import MIB, STREAMS, Options

from gpusim import load_gpu, simulate
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.simulate.result import Result

CLOCKS_MHZ = {"gemm": (1690.0, 1695.0, 1700.0, 1705.0, 1710.0)}
"""Of what keeps tensor cores busy, under the power limit."""
STREAM_CLOCKS_MHZ = (1960.0, 1970.0, 1980.0)
"""Of what memory bounds."""


GEMMS: dict[str, Options] = {
    "cooperative": {"schedule": "cooperative", "tile": "128x256x64", "stages": 4},
    "pingpong": {"schedule": "pingpong", "tile": "64x256x64", "stages": 4},
    "warp_specialized": {"schedule": "warp_specialized", "tile": "128x128x64", "stages": 4},
    "multistage": {"schedule": "multistage", "tile": "128x128x32", "stages": 3},
    "persistent": {"schedule": "cooperative", "tile": "128x256x64", "stages": 4, "persistent": True},
    "cluster 2x1": {"schedule": "cooperative", "tile": "128x256x64", "stages": 4, "cluster": "2x1"},
    "split-K 4": {"schedule": "cooperative", "tile": "128x128x64", "stages": 4, "split_k": 4},
}
"""GEMMs of 4096 x 4096 x 4096."""


def kernels(sizes: list[int]) -> Iterator[tuple[str, str, Options]]:
    """(what, model, options), at each of ``sizes`` in MiB."""
    for name, options in GEMMS.items():
        yield f"gemm {name}", "gemm", {"m": 4096, "n": 4096, "k": 4096, **options}
    for name, of_size in STREAMS.items():
        for mib in sizes:
            yield f"{name}, {mib} MiB", *of_size(mib * MIB)


def run(model: str, options: Options, clock: float, **how: Any) -> tuple[Result, float]:
    """(result, a core's seconds) of a prediction, parameters to result."""
    gpu = load_gpu("h200_sxm")
    began = time.process_time()
    result = simulate(KERNEL_MODELS[model].params.model_validate(dict(options)).launch(gpu), gpu, clock=clock, **how)
    return result, time.process_time() - began


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="16,256", help="MiB of the main input of a stream")
    parser.add_argument("--only", default="", help="words, one of which a kernel's name holds")
    parser.add_argument("--clocks", default="", help="MHz; by default some side by side, which go with the kernel")
    told = parser.parse_args()
    words = [word for word in told.only.split(",") if word]
    num_sms = load_gpu("h200_sxm").num_sms
    out = sys.stdout
    out.write(
        "| kernel | cycles | SMs left out: mean, worst | waves left out | both | events | seconds of a core |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    for name, model, options in kernels([int(size) for size in told.sizes.split(",")]):
        if model not in KERNEL_MODELS or (words and not any(word in name for word in words)):
            continue
        clocks = [float(clock) for clock in told.clocks.split(",") if clock] or CLOCKS_MHZ.get(model, STREAM_CLOCKS_MHZ)
        found = []
        for clock in clocks:
            whole = run(model, options, clock, num_sampled_sms=num_sms, skips=False)
            some = run(model, options, clock, skips=False)
            found.append((whole, some, run(model, options, clock)))
        off = []
        for later, sooner in ((1, 0), (2, 1), (2, 0)):
            shares = [runs[later][0].cycles / runs[sooner][0].cycles - 1.0 for runs in found]
            off.append(f"{sum(shares) / len(shares):+.2%}, {max(shares, key=abs):+.2%}")
        (whole, whole_s), _, (part, part_s) = found[-1]
        out.write(
            f"| {name} | {whole.cycles:,.0f} | {' | '.join(off)} | {whole.num_events:,} to {part.num_events:,} | "
            f"{whole_s:.1f} to {part_s:.2f} |\n"
        )
        out.flush()


if __name__ == "__main__":
    main()
