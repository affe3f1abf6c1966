"""Shared parts of kernels whose SMs walk over tiles: data to read, SMs by GPC, the grid-wide barrier.

In: number of bytes, name of a GPU. Out: arrays, lists of SMs, text of ``kernels/common/grid.cuh``.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import kernels_dir
from gpusim.machine.config import load_gpu
from gpusim.machine.dispatcher import first_sms

MULTIPLIER, ADDEND = 0x9E3779B1, 0x7F4A7C15


@cache
def random_words(num_bytes: int) -> NDArray[np.uint32]:
    """Pseudo-random uint32 words, read-only: index times ``MULTIPLIER`` plus ``ADDEND``. Copied to the GPU once.

    >>> [hex(word) for word in random_words(8).tolist()]
    ['0x7f4a7c15', '0x1d81f5c6']
    """
    made = np.arange(num_bytes // 4, dtype=np.uint32)
    made *= np.uint32(MULTIPLIER)
    made += np.uint32(ADDEND)
    made.setflags(write=False)
    return made


@cache
def sms_by_gpc(gpu_name: str) -> list[list[int]]:
    """SMs of each GPC, in ascending order.

    >>> [len(sms) for sms in sms_by_gpc("toy")]
    [4]
    """
    floorplan = load_gpu(gpu_name).floorplan
    found: list[list[int]] = [[] for _ in floorplan.members]
    for sm, gpc in enumerate(floorplan.gpc_of_sm):
        found[gpc].append(sm)
    return found


@cache
def dealt_as_clusters(gpu_name: str) -> list[int]:
    """For each CTA of a simulated grid without clusters, one per SM: the CTA of a kernel with clusters of one on that SM.

    A kernel with ``__cluster_dims__(1)`` is distributed over GPCs in turn, one without fills one GPC after the other.

    >>> dealt_as_clusters("h200_sxm")[:10]
    [0, 12, 1, 13, 2, 14, 3, 15, 4, 16]
    """
    gpu = load_gpu(gpu_name)
    cta_of = {sm: cta for cta, sm in enumerate(gpu.floorplan.singles())}
    return [cta_of[sm] for sm in first_sms(gpu.dispatcher, gpu.floorplan)]


def grid_include() -> dict[str, str]:
    """Text of ``grid.cuh``, the barrier of all CTAs of a grid."""
    return {"grid.cuh": (kernels_dir() / "common" / "grid.cuh").read_text(encoding="utf-8")}
