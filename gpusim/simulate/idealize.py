"""Counterfactuals: a GPU with one part idealized. The metadata of each Spec field (``idealized``) has its ideal value."""

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
    "overhead_code": "integer code in a chain for nothing (addresses, code of its own)",
    "imad_wide": "no IMAD.WIDE beside wgmma",
    "launch": "launch and CTA start for nothing",
}
"""Names of the counterfactuals, and their descriptions in reports."""


EVERY_LAUNCH_HAS = ("l2", "hbm", "latency", "launch")
"""Names of counterfactuals that apply to every launch. The others need certain instructions or parts."""


def idealize(gpu: GpuSpec, ideals: frozenset[str]) -> GpuSpec:
    """``gpu`` with the parts named in ``ideals`` made free.

    The engine itself carries out ``bank_conflicts``, ``epilogue``, ``overhead_code`` and ``imad_wide``.
    """
    if "l2" in ideals:  # stored lines are written back as before
        dirty = gpu.l2.dirty_fraction * gpu.l2.capacity_bytes / INFINITE
        gpu = replace(gpu, l2=replace(gpu.l2, dirty_fraction=dirty))
    for part, kind in COMPONENT_KINDS.items():
        numbers = {item.name: item.metadata.get("idealized", {}) for item in fields(kind)}
        found = {name: of_ideal[ideal] for name, of_ideal in numbers.items() for ideal in ideals & of_ideal.keys()}
        spec = gpu.component(part)
        if found and spec is not None:
            gpu = replace(gpu, **{part: replace(spec, **found)})
    return gpu
