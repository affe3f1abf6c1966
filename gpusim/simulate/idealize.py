"""Counterfactuals: a GPU with one part idealized. What each number becomes, its field says itself (``idealized``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from gpusim.machine.component import INFINITE
from gpusim.machine.config import COMPONENT_KINDS, GpuSpec

IDEALS: Mapping[str, str] = {
    "bank_conflicts": "no bank conflicts",
    "l2": "L2 and crossbar without limit",
    "hbm": "HBM without limit",
    "tma": "a TMA engine without limit",
    "latency": "no latency",
    "epilogue": "epilogue for nothing",
    "own_code": "integer code in a chain for nothing (addresses, code of its own)",
    "mad_wide": "no IMAD.WIDE beside wgmma",
    "launch": "launch and CTA start for nothing",
}
"""What can be made free, and how a report calls it."""


EVERY_LAUNCH_HAS = ("l2", "hbm", "latency", "launch")
"""What is free of any launch; the others are where the launch has such instructions or parts."""


def idealize(gpu: GpuSpec, ideals: frozenset[str]) -> GpuSpec:
    """``gpu`` with the parts named in ``ideals`` free.

    ``bank_conflicts``, ``epilogue``, ``own_code`` and ``mad_wide`` are the engine's business.
    """
    full = gpu
    for part, kind in COMPONENT_KINDS.items():
        found = {
            item.name: number for item in fields(kind) for ideal, number in item.metadata.get("idealized", {}).items()
            if ideal in ideals
        }
        spec = gpu.component(part)
        if found and spec is not None:
            gpu = replace(gpu, **{part: replace(spec, **found)})
    if "l2" in ideals:  # what is stored leaves as before
        dirty = full.l2.dirty_fraction * full.l2.capacity_bytes / INFINITE
        gpu = replace(gpu, l2=replace(gpu.l2, dirty_fraction=dirty))
    return gpu
