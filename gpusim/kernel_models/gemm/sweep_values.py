"""Values that a sweep tries for ``auto``, for each option of a GEMM: those of kernels in use.

Other modules check whether they are valid. ``--tile auto`` stands for the configurations of
:mod:`gpusim.kernel_models.gemm.candidates`, with all options that decide the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.kernel_models.gemm.applicability import PRODUCERS
from gpusim.kernel_models.gemm.candidates import CLUSTERS
from gpusim.kernel_models.gemm.changes import TUNED
from gpusim.workload.launch import Target


def usual_values(option: str, given: Mapping[str, Any], gpu: Target) -> Sequence[Any] | None:
    """Usual values of ``option`` on ``gpu``; None if there are none."""
    del given
    if option == "schedule":
        return ("multistage", *PRODUCERS) if "wgmma" in gpu.features else ("multistage",)
    if option == "cluster":
        known = CLUSTERS if "cluster" in gpu.features else CLUSTERS[:1]
        return tuple("x".join(map(str, cluster)) for cluster in known)
    return TUNED.get(option)
