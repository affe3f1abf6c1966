"""What is left out of a simulation, and what that changes: SMs that others stand for, waves and iterations.

For each kernel the cycles of a run of all SMs without a skip; how far off of it is one in which SMs stand for others; how
far off of that one with skips, too, which is the default; and both. At a fixed clock, so that nothing else differs.

    python benchmarks/left_out.py [--sizes 16,256] [--only copy,add]
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

CLOCK_MHZ = 1700.0


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


def run(model: str, options: Options, **how: Any) -> tuple[Result, float]:
    """(result, a core's seconds) of a prediction, parameters to result."""
    gpu = load_gpu("h200_sxm")
    began = time.process_time()
    result = simulate(KERNEL_MODELS[model].params.model_validate(dict(options)).launch(gpu), gpu, clock=CLOCK_MHZ, **how)
    return result, time.process_time() - began


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="16,256", help="MiB of the main input of a stream")
    parser.add_argument("--only", default="", help="words, one of which a kernel's name holds")
    told = parser.parse_args()
    words = [word for word in told.only.split(",") if word]
    num_sms = load_gpu("h200_sxm").num_sms
    out = sys.stdout
    out.write(
        "| kernel | cycles | SMs left out | waves left out | both | events | seconds of a core |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    for name, model, options in kernels([int(size) for size in told.sizes.split(",")]):
        if model not in KERNEL_MODELS or (words and not any(word in name for word in words)):
            continue
        whole, whole_s = run(model, options, num_sampled_sms=num_sms, skips=False)
        part, part_s = run(model, options)
        some = run(model, options, skips=False)[0]
        pairs = ((some, whole), (part, some), (part, whole))
        off = [f"{found.cycles / wanted.cycles - 1.0:+.2%}" for found, wanted in pairs]
        out.write(
            f"| {name} | {whole.cycles:,.0f} | {' | '.join(off)} | {whole.num_events:,} to {part.num_events:,} | "
            f"{whole_s:.1f} to {part_s:.2f} |\n"
        )
        out.flush()


if __name__ == "__main__":
    main()
