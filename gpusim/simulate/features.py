"""What programs ask of a GPU that it lacks, told before anything runs.

In: Programs and a GpuSpec. Out: nothing, or a refusal that names who yields the op.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.program.programs import Programs
from gpusim.program.records import OpKind
from gpusim.program.refusals import named
from gpusim.workload.launch import Launch

TMA, DSMEM = "cp.async.bulk.tensor (TMA)", "distributed shared memory"
NEEDS = {
    OpKind.MBARRIER_INIT: ("mbarrier", "mbarrier"), OpKind.MBARRIER_ARRIVE: ("mbarrier", "mbarrier"),
    OpKind.MBARRIER_ARRIVE_EXPECT_TX: ("mbarrier", "mbarrier"), OpKind.MBARRIER_WAIT: ("mbarrier", "mbarrier"),
    OpKind.CP_ASYNC_MBARRIER_ARRIVE: ("mbarrier", "mbarrier"), OpKind.TMA_LOAD: ("tma", TMA),
    OpKind.TMA_STORE: ("tma", TMA), OpKind.PREFETCH_TENSORMAP: ("tma", "prefetch.tensormap (TMA)"),
    OpKind.DSMEM_LOAD: ("dsmem", DSMEM), OpKind.DSMEM_STORE: ("dsmem", DSMEM), OpKind.ST_ASYNC: ("dsmem", DSMEM),
    OpKind.CLUSTER_ARRIVE: ("dsmem", "cluster barrier"),
}  # fmt: skip
"""Kinds of op that need a part of a GPU, and what the refusal calls what they lack."""

SINCE = {"mbarrier": "8.0", "tma": "9.0", "dsmem": "9.0"}
"""From which compute capability on GPUs have these parts."""

HOPPER = 9.0
"""Compute capability from which on there is setmaxnreg."""


def check_features(launch: Launch, gpu: GpuSpec, programs: Programs) -> None:
    """Refuse ops that the GPU does not have.

    Raises:
        LaunchError: one of them, named with its role and CTA.
    """
    for is_it, what, capability in _lacking(gpu, programs.ops):
        if is_it.any():
            with named(*_issuer(launch, programs, is_it)):
                raise LaunchError(
                    f"{launch.kernel}: {gpu.name} (compute capability {gpu.compute_capability}) has no {what}, which "
                    f"needs {capability}"
                )


@contextmanager
def by_whom(launch: Launch, programs: Programs, kind: OpKind, cost: int) -> Iterator[None]:
    """Let a refusal name who first yields an op of ``kind`` and row ``cost``."""
    try:
        yield
    except LaunchError as error:
        is_it = (programs.ops["kind"] == kind) & (programs.ops["cost"] == cost)
        with named(*_issuer(launch, programs, is_it)):
            raise error from None


def _lacking(gpu: GpuSpec, ops: NDArray[np.void]) -> Iterator[tuple[NDArray[np.bool_], str, str]]:
    """Which ops the GPU does not have, what these need, and from which compute capability on there is that."""
    for kind, (part, what) in NEEDS.items():
        if gpu.component(part) is None:
            yield ops["kind"] == kind, what, SINCE[part]
    if gpu.compute_capability < HOPPER:
        yield ops["kind"] == OpKind.SET_MAX_NREG, "setmaxnreg", "9.0a"
    if gpu.dsmem is None:  # arrivals on another CTA's mbarrier
        yield (ops["kind"] == OpKind.MBARRIER_ARRIVE) & (ops["cost"] >= 0), DSMEM, SINCE["dsmem"]


def _issuer(launch: Launch, programs: Programs, is_it: NDArray[np.bool_]) -> tuple[str, str]:
    """(role, who it is) that yields one of some ops: of the first CTA that does, the first role."""
    places = np.flatnonzero(is_it)
    begins = programs.programs["begin"]
    ends = begins + programs.programs["num_ops"]
    has_it = np.searchsorted(places, ends) > np.searchsorted(places, begins)
    of_class = has_it[programs.class_programs]
    cta_idx = int(np.argmax(of_class.any(axis=1)[programs.cta_class]))
    role = launch.roles[int(np.argmax(of_class[programs.cta_class[cta_idx]]))].name
    return role, f"{launch.kernel}: role {role!r} of CTA {cta_idx}"
