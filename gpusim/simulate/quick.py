"""What a quick answer leaves out, and how far from the full one that has been found to be."""

from __future__ import annotations

from typing import Literal

from gpusim.machine.config import GpuSpec
from gpusim.machine.sm.occupancy import Occupancy
from gpusim.simulate.representatives import are_strangers
from gpusim.simulate.uses import Uses
from gpusim.workload.launch import Launch

Quality = Literal["full", "quick"]
"""``full``: all SMs, and waves until they repeat. ``quick``: one GPC, the mean of two waves for those that follow, paces
that may swing five times as much, and a clock of two simulations at most."""

FEW_STEPS = 4096
"""Steps of CTAs' loops that a launch may have for a quick answer to take all SMs: half a second at most."""

HALF_WITHIN_PCT, NINE_IN_TEN_WITHIN_PCT, NUM_HELD = 1.9, 9.6, 128
"""Of so many drawn GEMMs how far quick answers were from full ones, at one clock.

Source: benchmarks/quick.py, h200_sxm, 2026-11-22 (mean 3.5 %, worst 29 %; validation/deviations.md, 3)."""


def quick_sms(launch: Launch, gpu: GpuSpec, uses: Uses, held: Occupancy) -> int | None:
    """SMs that a quick answer takes: a GPC (the least that a sample has); None, all: of what is cheap, or cannot be sampled.

    A GPC was as near to all SMs as two were, at half the price.
    """
    if not launch.footprints or are_strangers(launch, gpu, held, uses):
        return None
    num_steps = max((item.num_steps for item in launch.footprints if item.access == "read"), default=1)
    return None if launch.num_tiles * num_steps <= FEW_STEPS else 1


def quick_remark() -> str:
    """How sure a quick answer is."""
    return (
        f"a quick answer: of {NUM_HELD} GEMMs half came within {HALF_WITHIN_PCT:g} % of the full one, nine in ten within "
        f"{NINE_IN_TEN_WITHIN_PCT:g} % (--quality full takes all SMs and waves)"
    )
