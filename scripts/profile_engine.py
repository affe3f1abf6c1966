"""Writes ``engine/engine.profdata``: how often the engine's branches are taken, for the compiler of the module.

Runs an instrumented build of the engine on launches of every family. Needs ``clang++`` and ``llvm-profdata`` of one LLVM.
Changed functions lose their counts, not their correctness. Run it again where ``benchmarks/speed.py`` has become slower.

    python scripts/profile_engine.py && python scripts/build_engine.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from build_engine import PROFILE, SOURCES, build_native

GPU, FIXED_MHZ = "h200_sxm", 1700.0
LARGE = {"m": 4096, "n": 4096, "k": 4096, "tile": "128x256x64", "stages": 4}
SMALL = {"m": 2048, "n": 2048, "k": 2048}
BY_CP_ASYNC = {"schedule": "multistage", "copy": "cp_async", "math": "mma_sync"}
TRAINED_ON: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("gemm", {**LARGE, "schedule": "cooperative"}),
    ("gemm", {**LARGE, "tile": "64x256x64", "schedule": "pingpong", "persistent": True, "epilogue": "tma_store"}),
    ("gemm", {**LARGE, "schedule": "cooperative", "cluster": "2x1", "persistent": True}),
    ("gemm", {**SMALL, "tile": "128x128x64", "stages": 4, "schedule": "warp_specialized", "split_k": 4}),
    ("gemm", {**SMALL, "tile": "128x128x64", "stages": 3, "schedule": "multistage"}),
    ("gemm", {**SMALL, "tile": "64x64x32", "stages": 3, **BY_CP_ASYNC}),
    ("gemm", {**SMALL, "tile": "128x128x32", "stages": 4, **BY_CP_ASYNC}),
    ("gemm", {**SMALL, "tile": "128x128x8", "stages": 2, **BY_CP_ASYNC, "dtype": "fp32", "math": "fma"}),
    ("elementwise", {"op": "copy", "elements": 64 << 20}),
    ("elementwise", {"op": "add", "elements": 16 << 20}),
    ("smem_copy", {"m": 4096, "n": 4096}),
    ("transpose", {"m": 4096, "n": 4096, "smem": "padded"}),
    ("softmax", {"rows": 8192, "columns": 4096}),
    ("layer_norm", {"rows": 8192, "columns": 4096}),
    ("reduction", {"rows": 8192, "columns": 4096}),
    ("gather", {"rows": 65536, "columns": 1024, "table_rows": 65536}),
)
"""Kernel models and options, of all families; none is a measured row."""


def train() -> None:
    """Simulate all of :data:`TRAINED_ON`, with the engine that the environment names."""
    from gpusim import load_gpu, simulate
    from gpusim.kernel_models import KERNEL_MODELS

    gpu = load_gpu(GPU)
    for name, options in TRAINED_ON:
        result = simulate(KERNEL_MODELS[name].params.model_validate(dict(options)).launch(gpu), gpu, clock=FIXED_MHZ)
        print(f"{name}: {result.num_events} events")


def main() -> int:
    """Build, train, merge; returns the exit status."""
    if len(sys.argv) > 1:
        train()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        library, raw = Path(folder) / "engine.so", Path(folder) / "engine.profraw"
        build_native(library, compiler="clang++", flags=("-fprofile-instr-generate",))
        names = {"GPUSIM_ENGINE_LIBRARY": str(library), "LLVM_PROFILE_FILE": str(raw)}
        subprocess.run([sys.executable, __file__, "train"], env={**os.environ, **names}, check=True)
        subprocess.run(["llvm-profdata", "merge", "-sparse", str(raw), "-o", str(SOURCES / PROFILE)], check=True)
    print(f"{SOURCES / PROFILE}: {(SOURCES / PROFILE).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
