"""Copies out of memory: the last row's data come memory's latency after it has passed, out of L2 they do not."""

from __future__ import annotations

import pytest

from gpusim import load_gpu, simulate
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.memory.l2 import L2

GPU = load_gpu("h200_sxm")
PRODUCT = GemmParams.model_validate({
    "m": 256, "n": 128, "k": 512, "dtype": "bf16", "tile": (256, 128, 32), "warps": (2, 4), "stages": 1, "pad": 8,
    "swizzle": "none", "fragments": "single", "copy": "cp_async", "math": "mma_sync", "schedule": "multistage",
    "epilogue": "direct",
})  # fmt: skip


def cycles(l2: str) -> float:
    """Of one tile, step by step."""
    return simulate(PRODUCT.launch(GPU), GPU, clock="max", l2=l2, skips=False).cycles


def test_rows_that_ask_late_come_late_out_of_memory_and_only_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed, warm = cycles("flushed"), cycles("warm")
    monkeypatch.setattr(L2, "was_coming", lambda self, request: False)
    assert cycles("warm") == warm
    steps = 512 // 32
    assert 40.0 * steps < flushed - cycles("flushed") < 300.0 * steps
