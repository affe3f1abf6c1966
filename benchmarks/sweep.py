"""What a sweep costs: seconds of a configuration, as a ratio to one plain prediction of the same run.

python benchmarks/sweep.py
"""

from __future__ import annotations

import time

from gpusim import GemmParams, load_gpu, simulate
from gpusim.kernel_models.choices import choices
from gpusim.simulate.bound import lower_bound
from gpusim.sweep import FINALISTS, run_sweep

EXTENT = 4096
OPTIONS = {
    "m": EXTENT, "n": EXTENT, "k": EXTENT, "tile": "128x128x64,128x256x64,256x128x64", "stages": "3,4",
    "schedule": "auto", "cluster": "1x1,2x1",
}


def main() -> None:
    """Print a line a part. In one process, by its own seconds."""
    gpu = load_gpu("h200_sxm")
    params = GemmParams(m=EXTENT, n=EXTENT, k=EXTENT, tile=(128, 256, 64), stages=4, schedule="cooperative")
    simulate(params.launch(gpu), gpu)
    began = time.process_time()
    simulate(params.launch(gpu), gpu)
    plain = time.process_time() - began
    began = time.process_time()
    found = choices(GemmParams, OPTIONS, gpu)
    listed = time.process_time() - began
    began = time.process_time()
    for choice in found.legal:
        lower_bound(choice.params.launch(gpu), gpu)
    bounded = time.process_time() - began
    began = time.process_time()
    sweep = run_sweep("gemm", OPTIONS, gpu, top=10, jobs=1, all_sms=False, simulate_options={})
    whole = time.process_time() - began
    num = len(sweep.entries)
    print(f"plain prediction (128x256x64, cooperative): {plain:.2f} s")
    for name, seconds, count in (
        ("listing", listed, found.num_tried), ("bound", bounded, num), (f"all, {FINALISTS} finalists", whole, num),
    ):
        print(f"{name}: {seconds / count / plain:.4f} plain predictions a configuration ({count}, {seconds:.1f} s)")


if __name__ == "__main__":
    main()
