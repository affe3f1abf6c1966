"""Random programs for engines alone, each from a seed: on the toy GPU, on an H200, on small GPUs with all that one has.

In: a seed. Out: a :class:`Drawn`, a launch, the GPU that it runs on and its clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from gpusim import GpuSpec, Launch, load_gpu
from tests.reference.programs import TWEAKS, Draw, case, with_tweaks

from . import kernels

OWN_SIZE = {"two SMs", "six SMs"}
"""Tweaks that the toy GPU alone can have."""

L2_SIZES = (50 << 20, 1 << 20, 16384, 6144)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A launch, and where it runs."""

    launch: Launch
    gpu: GpuSpec
    mhz: float
    is_warm: bool


@cache
def small(name: str, num_gpcs: int = 2) -> GpuSpec:
    """A GPU with so many GPCs of four SMs, on both sides by turns."""
    gpu = load_gpu(name)
    sides = tuple(idx % 2 for idx in range(num_gpcs))
    device = replace(gpu.device, num_sms=4 * num_gpcs, gpcs={"4": num_gpcs}, singleton_tpc_sms=0, gpc_l2_partition=sides)
    return replace(gpu, name=f"small {name}", device=device)


def drawn(seed: int) -> Drawn:
    """The launch of a seed, and where it runs."""
    draw = Draw(f"fuzz {seed}")
    found = case(seed, is_core=False)
    mhz = draw.choice((1000.0, 1755.0, 345.0))
    which = seed % 8
    if which < 3:
        return Drawn(launch=found.launch, gpu=found.gpu, mhz=mhz, is_warm=found.is_warm)
    if which == 3:
        launch = kernels.drawn(seed, draw.randint(1, 24), num_roles=draw.randint(1, 4), num_ops=draw.randint(2, 30))
        return Drawn(launch=launch, gpu=small("h200_sxm"), mhz=mhz, is_warm=found.is_warm)
    if which == 4:
        return Drawn(launch=found.launch, gpu=load_gpu("h200_sxm"), mhz=mhz, is_warm=found.is_warm)
    tweaks = draw.sample(sorted(set(TWEAKS) - OWN_SIZE), draw.randint(0, 3))
    gpu = with_tweaks(small(draw.choice(("h200_sxm", "h200_sxm", "h100_sxm", "h100_pcie")), draw.randint(1, 4)), tweaks)
    gpu = replace(gpu, l2=replace(gpu.l2, capacity_bytes=draw.choice(L2_SIZES)))
    return Drawn(launch=found.launch, gpu=gpu, mhz=mhz, is_warm=found.is_warm)
