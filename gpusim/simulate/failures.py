"""Failures of the native engine as sentences: who, what, when.

In: the sections ``failure`` and ``blocked_roles`` of a run, and names of its launch. Out: the error to raise.

What each kind of failure fills in, beside ``kind`` and ``cycle`` (-1: does not apply, 0: nothing). ``cta`` and ``role`` are
whose op was being carried out, -1 where none was, as when a copy arrives; ``op`` is its place in the role's program.

=====================  =======================================  ===================  ===============  ==================
kind                   barrier or stage                         first                second           third
=====================  =======================================  ===================  ===============  ==================
DEADLOCK
REFILLED_WHILE_READ    stage                                    cycle of the write   read until       CTA of the stage
READ_NEVER_WRITTEN     stage                                    cycle of the read                     CTA of the stage
READ_BEFORE_FULL       stage                                    cycle of the read    full at          CTA of the stage
TOO_MANY_ARRIVALS      barrier: mbarrier                        arrivals             arrivals wanted  CTA of the mbarrier
BARRIER_THREADS        barrier: row of ``named_barriers``,      threads              threads wanted
                       -1 ``__syncthreads``, -2 the cluster's
EXIT_WITH_BYTES        barrier: mbarrier of the CTA ``cta``     bytes announced      bytes delivered
CLUSTER_NOT_ARRIVED
RANGE_NOT_STARTED
SETMAXNREG_DIRECTION                                            registers asked for  registers held   1 ``inc``, 0 ``dec``
CODE_LENGTH                                                     number of its name   its bytes        its bytes before
NO_SUCH_RANK                                                    rank                 CTAs in cluster
EVENT_LIMIT                                                     limit                CTAs exited
OUT_OF_MEMORY
=====================  =======================================  ===================  ===============  ==================

Stages and mbarriers are places in the flat lists of a CTA's, in the order in which the launch declares them.

In ``blocked_roles`` arrivals and bytes are those of the mbarrier. Of a wait for registers ``pending`` is what it wants of
the pool of the CTA. ``number`` is how many groups may be in flight, or how many registers a thread asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from gpusim.errors import DeadlockError, GpusimError, HazardError, LaunchError, SimulationError
from gpusim.program.programs import Programs
from gpusim.program.records import FAILURE, Failure, Wait
from gpusim.workload.launch import Launch

MOST_NAMED = 4
"""Roles that a deadlock names; the rest is counted."""

SYNCTHREADS, CLUSTER = -1, -2
"""Barriers that a launch does not declare."""

WAITS: Mapping[Wait, str] = {
    Wait.NOTHING: "None",
    Wait.SYNCTHREADS: "barrier '__syncthreads'",
    Wait.CLUSTER_BARRIER: "the cluster barrier",
    Wait.STORE_QUEUE: "the store queue",
    Wait.ITS_STORES: "its stores",
    Wait.DATA_STAGE: "the data stage of shared memory",
    Wait.A_LOAD: "a load",
    Wait.ITS_COPIES: "its copies to be on their way",
    Wait.OWN_CODE: "its own instructions",
    Wait.PRODUCTS_TURN: "the products' turn",
    Wait.TENSOR_CORES: "the tensor cores",
    Wait.FMA_PIPE: "the FMA pipe",
    Wait.SCHEDULERS_TURN: "its turn at the schedulers",
    Wait.PLACE_BEFORE_DATA_STAGE: "a place before the data stage of shared memory",
}
"""What a role waits for, where that is nothing with a name or a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Names of what a launch has, by the numbers that the engine knows them by."""

    roles: tuple[str, ...]
    barriers: tuple[tuple[str, int], ...]
    """(ring, stage) of each mbarrier of a CTA."""
    stages: tuple[tuple[str, int], ...]
    """(buffer, stage) of each stage of a CTA."""
    named_barriers: tuple[str, ...] = ()
    code_names: tuple[str, ...] = ()
    """Of ``Code`` ops."""

    @classmethod
    def of(cls, launch: Launch, programs: Programs) -> Declared:
        """Of a launch that was traced."""
        return cls(
            roles=tuple(role.name for role in launch.roles), barriers=programs.barriers, stages=programs.stages,
            named_barriers=programs.named_barriers, code_names=programs.code_names,
        )

    def mbarrier(self, place: int) -> str:
        """``full[1]``."""
        name, stage = self.barriers[place]
        return f"{name}[{stage}]"

    def stage(self, place: int) -> str:
        """``a[1]``."""
        name, stage = self.stages[place]
        return f"{name}[{stage}]"

    def thread_barrier(self, place: int) -> str:
        """The name of what ``bar.sync`` and the like count on."""
        return {SYNCTHREADS: "__syncthreads", CLUSTER: "cluster"}.get(place) or self.named_barriers[place]


def failure_of(
    results: Mapping[str, NDArray[Any]], declared: Declared, *, kernel: str, num_ctas: int
) -> GpusimError | None:
    """The error that a run ended with; None if it ended well."""
    values = dict(zip(FAILURE, results["failure"].tolist(), strict=True)) if len(results["failure"]) else {}
    kind = Failure(int(values.get("kind", Failure.NONE)))
    if kind is Failure.NONE:
        return None
    if kind is Failure.DEADLOCK:
        return DeadlockError(f"{kernel}: deadlock: {who_waits(results['blocked_roles'], declared)}")
    if kind is Failure.EVENT_LIMIT:
        return SimulationError(
            f"{kernel}: {values['first']:.0f} events have not been enough: at cycle {values['cycle']:.0f} "
            f"{values['second']:.0f} of {num_ctas} CTAs have exited; wants a larger max_events (--max-events)"
        )
    if kind is Failure.OUT_OF_MEMORY:
        return SimulationError(f"{kernel}: the engine is out of memory at cycle {values['cycle']:.0f}")
    return _of_an_op(kind, values, declared, kernel)


def who_waits(blocked: NDArray[Any], declared: Declared) -> str:
    """Which roles wait, for what, since when: some by name, the rest by their number."""
    lines = [
        f"role {declared.roles[row['role']]!r} of CTA {row['cta']} waits for {_what(row, declared)} since cycle "
        f"{row['since_cycle']:.0f}"
        for row in blocked[:MOST_NAMED]
    ]
    return "; ".join(lines) + (f"; and {len(blocked) - len(lines)} more" if len(blocked) > len(lines) else "")


def _what(row: Any, declared: Declared) -> str:
    """What a row of ``blocked_roles`` waits for, and what of it never arrived."""
    wait, number = Wait(int(row["wait"])), row["number"]
    if wait is Wait.MBARRIER:
        missing = [f"{row['pending']} of {row['num_arrivals']} arrivals missing"] if row["pending"] else []
        if row["tx_bytes"]:
            missing.append(f"{row['announced_bytes']} bytes announced, {row['delivered_bytes']} delivered")
        return f"mbarrier {declared.mbarrier(row['barrier'])} parity {row['parity']} ({', '.join(missing)})"
    if wait is Wait.NAMED_BARRIER:
        return f"barrier {declared.named_barriers[row['barrier']]!r}"
    if wait is Wait.CP_ASYNC_GROUP:
        return f"cp.async.wait_group {number}"
    if wait is Wait.BULK_GROUP:
        return f"cp.async.bulk.wait_group {number}"
    if wait is Wait.REGISTERS:
        return f"{row['pending']} registers of the CTA's pool (setmaxnreg.inc {number})"
    return WAITS[wait]


def _of_an_op(kind: Failure, values: Mapping[str, float], declared: Declared, kernel: str) -> GpusimError:
    """The error of a failure that an op, a copy or an exit has found."""
    whole = {name: int(value) for name, value in values.items() if name not in ("first", "second", "third")}
    first, second, third = (values[name] for name in ("first", "second", "third"))
    role = declared.roles[whole["role"]] if whole["role"] >= 0 else ""
    who = f"{kernel}: role {role!r} of CTA {whole['cta']}"
    if kind in (Failure.REFILLED_WHILE_READ, Failure.READ_NEVER_WRITTEN, Failure.READ_BEFORE_FULL):
        return HazardError(f"{who}: {_of_a_stage(kind, declared.stage(whole['stage']), first, second)}")
    if kind is Failure.EXIT_WITH_BYTES:
        return HazardError(
            f"{kernel}: CTA {whole['cta']} exits while mbarrier {declared.mbarrier(whole['barrier'])} has "
            f"{first:.0f} bytes announced and {second:.0f} delivered"
        )
    if kind is Failure.CLUSTER_NOT_ARRIVED:
        return LaunchError(f"{who} waits on the cluster barrier and has not arrived; arrive first")
    if kind is Failure.RANGE_NOT_STARTED:
        return LaunchError(f"{who} ends a range that it never started; yield RangeStart first")
    if kind is Failure.NO_SUCH_RANK:
        return LaunchError(f"{who} names cluster rank {first:.0f}, the cluster has ranks 0 to {second - 1.0:.0f}")
    if kind is Failure.SETMAXNREG_DIRECTION:
        direction = "inc" if third else "dec"
        return LaunchError(
            f"{who}: setmaxnreg.{direction} {first:.0f} from {second:.0f} registers, wants the other direction"
        )
    if kind is Failure.TOO_MANY_ARRIVALS:
        said = (
            f"mbarrier {declared.mbarrier(whole['barrier'])} got {first:.0f} arrivals in a phase that expects {second:.0f}"
        )
        return HazardError(_by(who, role, said))
    if kind is Failure.BARRIER_THREADS:
        name = declared.thread_barrier(whole["barrier"])
        said = f"barrier {name!r}: {first:.0f} threads arrived, it was declared for {second:.0f}"
        return HazardError(_by(who, role, said))
    if kind is Failure.CODE_LENGTH:
        said = f"code {declared.code_names[int(first)]!r} has {second:g} bytes and had {third:g}, wants one length above 0"
        return LaunchError(_by(who, role, said))
    return SimulationError(f"{kernel}: the engine failed ({kind.name}) at cycle {values['cycle']:.0f}")


def _of_a_stage(kind: Failure, stage: str, at_cycle: float, until_cycle: float) -> str:
    if kind is Failure.REFILLED_WHILE_READ:
        return (
            f"{stage} is refilled at cycle {at_cycle:.0f} while it is read until {until_cycle:.0f}; wait for its readers "
            "first"
        )
    if kind is Failure.READ_NEVER_WRITTEN:
        return f"{stage} is read at cycle {at_cycle:.0f} and was never written"
    return f"{stage} is read at cycle {at_cycle:.0f} before it is full; wait for its barrier first"


def _by(who: str, role: str, said: str) -> str:
    """A sentence with who has caused it, unless it names the role already or nobody's op was carried out."""
    return said if not role or role in said else f"{who}: {said}"
