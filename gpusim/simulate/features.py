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
    for kind, (what, capability) in _lacking(gpu).items():
        if kind in programs.kinds:
            with by_whom(launch, programs, kind):
                raise _lacks(launch, gpu, what, capability)
    if gpu.dsmem is None and OpKind.MBARRIER_ARRIVE in programs.kinds:
        is_far = (programs.ops["kind"] == OpKind.MBARRIER_ARRIVE) & (programs.ops["cost"] >= 0)
        if is_far.any():
            with named(*_issuer(launch, programs, is_far)):
                raise _lacks(launch, gpu, DSMEM, SINCE["dsmem"])


@contextmanager
def by_whom(launch: Launch, programs: Programs, kind: OpKind, cost: int | None = None) -> Iterator[None]:
    """Let a refusal name who first yields an op of ``kind``, or of ``kind`` and row ``cost``."""
    try:
        yield
    except LaunchError as error:
        is_it = programs.ops["kind"] == kind
        if cost is not None:
            is_it &= programs.ops["cost"] == cost
        with named(*_issuer(launch, programs, is_it)):
            raise error from None


def _lacking(gpu: GpuSpec) -> dict[OpKind, tuple[str, str]]:
    """Kinds of op that the GPU does not have: what they need, and from which compute capability on there is that."""
    found = {kind: (what, SINCE[part]) for kind, (part, what) in NEEDS.items() if gpu.component(part) is None}
    if gpu.compute_capability < HOPPER:
        found[OpKind.SET_MAX_NREG] = "setmaxnreg", "9.0a"
    return found


def _lacks(launch: Launch, gpu: GpuSpec, what: str, capability: str) -> LaunchError:
    return LaunchError(
        f"{launch.kernel}: {gpu.name} (compute capability {gpu.compute_capability}) has no {what}, which needs {capability}"
    )


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
