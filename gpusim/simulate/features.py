"""Admission check of a launch's ops: refuses ops that need a feature which the GPU lacks.

In: Programs and a GpuSpec. Out: nothing, or a refusal that names the role that yields the op.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.program.programs import Programs
from gpusim.program.records import OpKind
from gpusim.program.refusals import named
from gpusim.workload.launch import Feature, Launch

TMA, DSMEM = "cp.async.bulk.tensor (TMA)", "distributed shared memory"
NEEDS: Mapping[OpKind, tuple[Feature, str]] = {
    OpKind.MBARRIER_INIT: ("mbarrier", "mbarrier"), OpKind.MBARRIER_ARRIVE: ("mbarrier", "mbarrier"),
    OpKind.MBARRIER_ARRIVE_EXPECT_TX: ("mbarrier", "mbarrier"), OpKind.MBARRIER_WAIT: ("mbarrier", "mbarrier"),
    OpKind.CP_ASYNC_MBARRIER_ARRIVE: ("mbarrier", "mbarrier"), OpKind.TMA_LOAD: ("tma", TMA),
    OpKind.TMA_STORE: ("tma", TMA), OpKind.PREFETCH_TENSORMAP: ("tma", "prefetch.tensormap (TMA)"),
    OpKind.FENCE_PROXY_TENSORMAP: ("tma", "fence.proxy.tensormap (TMA)"),
    OpKind.DSMEM_LOAD: ("cluster", DSMEM), OpKind.DSMEM_STORE: ("cluster", DSMEM), OpKind.ST_ASYNC: ("cluster", DSMEM),
    OpKind.CLUSTER_ARRIVE: ("cluster", "cluster barrier"), OpKind.SET_MAX_NREG: ("setmaxnreg", "setmaxnreg"),
    OpKind.WGMMA: ("wgmma", "wgmma"), OpKind.MMA_SYNC: ("mma_sync", "mma.sync"), OpKind.STMATRIX: ("stmatrix", "stmatrix"),
    OpKind.CP_ASYNC: ("cp_async", "cp.async"),
}  # fmt: skip
"""Features that kinds of ops need, and the name of the missing instruction in the refusal."""


def check_features(launch: Launch, gpu: GpuSpec, programs: Programs) -> None:
    """Refuse ops that the GPU does not have. Raises LaunchError: one of them, named with its role and CTA."""
    kinds, features = programs.ops["kind"], gpu.features
    lacking = [(kinds == kind, what, feature) for kind, (feature, what) in NEEDS.items() if feature not in features]
    if "cluster" not in features:  # arrivals on another CTA's mbarrier
        lacking.append(((kinds == OpKind.MBARRIER_ARRIVE) & (programs.ops["cost"] >= 0), DSMEM, "cluster"))
    for is_it, what, feature in lacking:
        if is_it.any():
            with named(*_issuer(launch, programs, is_it)):
                raise LaunchError(f"{launch.kernel}: {gpu.name} has no {what}, which needs the feature {feature}")


@contextmanager
def by_whom(launch: Launch, programs: Programs, kind: OpKind, cost: int) -> Iterator[None]:
    """Add the first role that yields an op of ``kind`` and row ``cost`` to a refusal.

    Raises:
        LaunchError: the refusal, with role and CTA.
    """
    try:
        yield
    except LaunchError as error:
        is_it = (programs.ops["kind"] == kind) & (programs.ops["cost"] == cost)
        with named(*_issuer(launch, programs, is_it)):
            raise error from None


def _issuer(launch: Launch, programs: Programs, is_it: NDArray[np.bool_]) -> tuple[str, str]:
    """Name of a role that yields one of the ops in ``is_it``, and the role with its CTA in words.

    It is the first role of the first CTA that yields one.
    """
    places = np.flatnonzero(is_it)
    begins = programs.programs["begin"]
    ends = begins + programs.programs["num_ops"]
    has_it = np.searchsorted(places, ends) > np.searchsorted(places, begins)
    of_class = has_it[programs.class_programs]
    cta_idx = int(np.argmax(of_class.any(axis=1)[programs.cta_class]))
    role = launch.roles[int(np.argmax(of_class[programs.cta_class[cta_idx]]))].name
    return role, f"{launch.kernel}: role {role!r} of CTA {cta_idx}"
