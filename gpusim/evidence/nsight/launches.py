"""Launches of a profile: metrics by name in base units, grid, block and GPU.

In: nothing. Out: the types that readers of profiles return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEVICE = "device__attribute_display_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledLaunch:
    """One launch in an Nsight Compute profile."""

    idx: str
    """ID of the launch in the profile."""
    kernel: str
    """Kernel name in the profile, without arguments."""
    metrics: Mapping[str, float]
    """Metrics by name, in base units: bytes, ns, Hz, percent."""
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    capability: str = ""
    """Compute capability, for example 9.0; empty where the profile has none."""
    device: str = ""
    """Name of the GPU; empty where the profile has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFile:
    """Launches of a file, with remarks on how it was read or profiled."""

    path: Path
    launches: tuple[ProfiledLaunch, ...]
    remarks: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    """Kernels of launches that were profiled and are not in the file, one name per launch."""


def short_name(kernel: str) -> str:
    """Name of a kernel without its arguments.

    >>> short_name("void copy<float, (int)4>(float *, int)"), short_name("scale(float)"), short_name("nvjet_sm90_tst")
    ('void copy<float, (int)4>', 'scale', 'nvjet_sm90_tst')
    """
    depth = 0
    for place, letter in enumerate(kernel):
        if letter == "(" and not depth and place:
            return kernel[:place]
        depth += (letter == "<") - (letter == ">")
    return kernel
