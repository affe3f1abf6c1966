"""What quick answers cost, and how far they are from full ones: drawn GEMMs, then the ranks of one problem's configurations.

Takes ten minutes of a core with compiled modules, twenty without. What a full answer needs longer
than PATIENCE_S for is left out, and counted.

    python benchmarks/quick.py
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from gpusim import GemmParams, load_gpu, simulate
from gpusim.errors import GpusimError
from gpusim.kernel_models.choices import choices
from gpusim.sweep import predict_one

CLOCK_MHZ = 1700.0
SETS = ((20261122, 48), (7, 40), (8, 40))
"""(seed, GEMMs)."""

EXTENTS = (1024, 1536, 2048, 3072, 4096, 5120, 6144, 8192)
TILES = (
    "64x64x64", "64x128x64", "128x64x64", "128x128x32", "128x128x64", "128x128x64", "64x256x64", "128x256x64",
    "128x256x64", "256x128x64", "256x128x64",
)
PATIENCE_S = 60.0
RANKED, RANKED_EXTENT = 40, 3072


def drawn(seed: int, count: int, gpu: Any) -> Iterator[GemmParams]:
    """``count`` GEMMs that the GPU can launch."""
    rng = random.Random(seed)
    while count:
        m, n, k = (rng.choice(EXTENTS) for _ in range(3))
        options: dict[str, Any] = {"m": m, "n": n, "k": k, "tile": rng.choice(TILES), "stages": rng.choice((2, 3, 4, 5))}
        options["schedule"] = rng.choice(("multistage", "warp_specialized", "cooperative", "pingpong"))
        options["cluster"] = rng.choice(("1x1", "1x1", "2x1", "1x2"))
        options["raster_group"] = rng.choice((1, 1, 4, 8))
        if rng.random() < 0.25:
            options["persistent"] = True
        if options["schedule"] == "multistage":
            options["math"] = rng.choice(("mma_sync", "wgmma"))
        try:
            params = GemmParams.model_validate(options).resolved(gpu)
            params.launch(gpu)
        except (GpusimError, ValueError):
            continue
        count -= 1
        yield params


def both(params: GemmParams, gpu: Any, **options: Any) -> tuple[float, float, float, float] | None:
    """(full us, quick us, seconds of each); None where the full answer takes too long."""
    began = time.process_time()
    full = predict_one(params, gpu, options, PATIENCE_S)
    took = time.process_time() - began
    if isinstance(full, str):
        return None
    began = time.process_time()
    quick = simulate(params.launch(gpu), gpu, quality="quick", **options)
    return full.time_us, quick.time_us, took, time.process_time() - began


def tau(pairs: list[tuple[float, float]], apart: float) -> float:
    """Kendall's, over pairs whose full times lie at least ``apart`` of the smaller one apart."""
    score = num = 0
    for idx, (full, quick) in enumerate(pairs):
        for other_full, other_quick in pairs[:idx]:
            if abs(full - other_full) >= apart * min(full, other_full):
                num += 1
                score += 1 if (full - other_full) * (quick - other_quick) > 0 else -1
    return score / num if num else 1.0


def tell(name: str, found: list[tuple[float, float, float, float]]) -> None:
    """A line: errors, seconds."""
    errors = sorted(abs(quick / full - 1.0) * 100.0 for full, quick, _, _ in found)
    num = len(errors)
    full_s, quick_s = (sum(item[idx] for item in found) for idx in (2, 3))
    print(
        f"{name}: {num} GEMMs, mean {sum(errors) / num:.1f} %, half within {errors[num // 2]:.1f} %, nine in ten within "
        f"{errors[int(0.9 * num)]:.1f} %, worst {errors[-1]:.1f} %; {full_s / num:.1f} s full, {quick_s / num:.2f} s quick"
    )


def main() -> None:
    """Print a line a set, and one for ranks."""
    gpu = load_gpu("h200_sxm")
    every: list[tuple[float, float, float, float]] = []
    for seed, count in SETS:
        found = [item for params in drawn(seed, count, gpu) if (item := both(params, gpu, clock=CLOCK_MHZ))]
        tell(f"seed {seed} ({count - len(found)} left out)", found)
        every += found
    tell("all", every)
    extent = RANKED_EXTENT
    options = {"m": extent, "n": extent, "k": extent, "tile": "auto", "stages": "2,3,4,5", "schedule": "auto",
               "cluster": "1x1,2x1"}
    legal = list(choices(GemmParams, options, gpu).legal)
    random.Random(5).shuffle(legal)
    found = [item for choice in legal[:RANKED] if (item := both(choice.params, gpu))]  # type: ignore[arg-type]  # of GEMMs
    tell(f"{extent} cubed, {RANKED} of {len(legal)} configurations, own clock", found)
    pairs = [item[:2] for item in found]
    best = min(pairs, key=lambda pair: pair[1])[0] / min(full for full, _ in pairs) - 1.0
    apart = tau(pairs, 0.1)
    print(f"ranks: tau {tau(pairs, 0.0):.2f}, of pairs 10 % apart {apart:.2f}; the quick best is {best:.1%} slower in full")


if __name__ == "__main__":
    main()
