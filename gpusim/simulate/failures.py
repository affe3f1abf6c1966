"""Failures of the native engine as error messages: deadlocks, shared-memory races, wrong barriers.

In: the sections ``failure`` and ``blocked_roles`` of a run, and names of its launch. Out: the error to raise.

Each kind of failure has ``kind`` and ``cycle`` and fills in the columns below. -1 means that a column does not apply, 0
means nothing. ``cta`` and ``role`` are those of the op that failed. They are -1 where no op failed, for example when a copy
arrives. ``op`` is the op's index in the role's program::

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

Stages and mbarriers are indices into the flat lists of a CTA, in the order in which the launch declares them.

In ``blocked_roles`` arrivals and bytes are those of the mbarrier. For a wait for registers, ``pending`` is the number of
registers wanted from the CTA's pool. ``number`` is how many groups may be in flight, or how many registers a thread asks
for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from gpusim.errors import DeadlockError, GpusimError, HazardError, LaunchError, SimulationError
from gpusim.program.programs import Programs
from gpusim.program.records import FAILURE, Failure, Wait
from gpusim.simulate.plan import LaunchPlan
from gpusim.workload.launch import Launch

MOST_NAMED = 4
"""Number of roles that a deadlock names, all of the first CTA that waits. Other roles are counted."""

UNDECLARED = {-1: "__syncthreads", -2: "cluster"}
"""Names of thread barriers that a launch does not declare."""

WAITS: Mapping[Wait, str] = {
    Wait.NOTHING: "None",
    Wait.SYNCTHREADS: "barrier '__syncthreads'",
    Wait.CLUSTER_BARRIER: "the cluster barrier",
    Wait.STORE_QUEUE: "the store queue",
    Wait.ITS_STORES: "its stores",
    Wait.DATA_STAGE: "the data stage of shared memory",
    Wait.A_LOAD: "a load",
    Wait.ITS_COPIES: "its copies to be on their way",
    Wait.OVERHEAD_CODE: "its own instructions",
    Wait.PRODUCTS_TURN: "the products' turn",
    Wait.TENSOR_CORES: "the tensor cores",
    Wait.FMA_PIPE: "the FMA pipe",
    Wait.SCHEDULERS_TURN: "its turn at the schedulers",
    Wait.PLACE_BEFORE_DATA_STAGE: "a place before the data stage of shared memory",
}
"""Causes of a wait that have no name or number of their kind."""


SENTENCES: Mapping[Failure, tuple[type[GpusimError], str]] = {
    Failure.DEADLOCK: (DeadlockError, "{kernel}: deadlock: {waits}"),
    Failure.REFILLED_WHILE_READ: (
        HazardError,
        "{who}: {stage} is refilled at cycle {first:.0f} while it is read until {second:.0f}; wait for its readers "
        "first",
    ),
    Failure.READ_NEVER_WRITTEN: (HazardError, "{who}: {stage} is read at cycle {first:.0f} and was never written"),
    Failure.READ_BEFORE_FULL: (
        HazardError, "{who}: {stage} is read at cycle {first:.0f} before it is full; wait for its barrier first",
    ),
    Failure.TOO_MANY_ARRIVALS: (
        HazardError,
        "{who}: mbarrier {mbarrier} got {first:.0f} arrivals in a phase that expects {second:.0f}, at cycle {cycle:.0f}",
    ),
    Failure.BARRIER_THREADS: (
        HazardError,
        "{who}: barrier {barrier!r}: {first:.0f} threads arrived by cycle {cycle:.0f}, it was declared for {second:.0f}",
    ),
    Failure.EXIT_WITH_BYTES: (
        HazardError,
        "{kernel}: CTA {cta} exits at cycle {cycle:.0f} while mbarrier {mbarrier} has {first:.0f} bytes announced and "
        "{second:.0f} delivered",
    ),
    Failure.CLUSTER_NOT_ARRIVED: (LaunchError, "{who} waits on the cluster barrier and has not arrived; arrive first"),
    Failure.RANGE_NOT_STARTED: (LaunchError, "{who} ends a range that it never started; yield RangeStart first"),
    Failure.SETMAXNREG_DIRECTION: (
        LaunchError, "{who}: setmaxnreg.{direction} {first:.0f} from {second:.0f} registers, wants the other direction",
    ),
    Failure.CODE_LENGTH: (
        LaunchError, "{who}: code {code!r} has {second:g} bytes and had {third:g}, wants one length above 0",
    ),
    Failure.NO_SUCH_RANK: (
        LaunchError, "{who} names cluster rank {first:.0f}, the cluster has ranks 0 to {last_rank:.0f}",
    ),
    Failure.EVENT_LIMIT: (
        SimulationError,
        "{kernel}: {first:.0f} events have not been enough: at cycle {cycle:.0f} {second:.0f} of {num_ctas} CTAs have "
        "exited; wants a larger max_events (--max-events)",
    ),
    Failure.OUT_OF_MEMORY: (SimulationError, "{kernel}: the engine is out of memory at cycle {cycle:.0f}"),
}  # fmt: skip
"""Error and message of each kind of failure. ``who`` is the kernel alone where no role's op failed."""

UNFORESEEN = SimulationError, "{kernel}: the engine failed ({kind}) at cycle {cycle:.0f}"


def failure_of(results: Mapping[str, NDArray[Any]], plan: LaunchPlan, programs: Programs) -> GpusimError | None:
    """Error that a run ended with; None if it ended without one."""
    values = dict(zip(FAILURE, results["failure"].tolist(), strict=True)) if len(results["failure"]) else {}
    kind = Failure(int(values.get("kind", Failure.NONE)))
    if kind is Failure.NONE:
        return None
    launch, first, second = plan.launch, values["first"], values["second"]
    cta, number, barrier, stage = (int(values[name]) for name in ("cta", "role", "barrier", "stage"))
    role = launch.roles[number].name if number >= 0 else ""
    who = f"{launch.kernel}: role {role!r} of CTA {cta}" if role else launch.kernel
    error, sentence = SENTENCES.get(kind, UNFORESEEN)
    return error(sentence.format(
        kernel=launch.kernel, who=who, kind=kind.name, cta=cta, num_ctas=plan.num_ctas, cycle=values["cycle"],
        first=first, second=second, third=values["third"], last_rank=second - 1.0,
        direction="inc" if values["third"] else "dec",
        stage=_name(programs.stages, stage), mbarrier=_name(programs.barriers, barrier),
        barrier=UNDECLARED.get(barrier) or _name(programs.named_barriers, barrier),
        code=_name(programs.code_names, first), waits=who_waits(results["blocked_roles"], launch, programs),
    ))  # fmt: skip


def who_waits(blocked: NDArray[Any], launch: Launch, programs: Programs) -> str:
    """Waiting roles of the first CTA, the cause and begin of their waits, and the number of other waiting roles."""
    lines = [
        f"role {launch.roles[row['role']].name!r} of CTA {row['cta']} waits for {_what(row, programs)} since cycle "
        f"{row['since_cycle']:.0f}"
        for row in blocked[:MOST_NAMED] if row["cta"] == blocked[0]["cta"]
    ]
    return "; ".join(lines) + (f"; and {len(blocked) - len(lines)} more" if len(blocked) > len(lines) else "")


def _what(row: Any, programs: Programs) -> str:
    """Cause of the wait in a row of ``blocked_roles``, and the arrivals or bytes that are missing."""
    wait, number = Wait(int(row["wait"])), row["number"]
    if wait is Wait.MBARRIER:
        missing = [f"{row['pending']} of {row['num_arrivals']} arrivals missing"] if row["pending"] else []
        if row["tx_bytes"]:
            missing.append(f"{row['announced_bytes']} bytes announced, {row['delivered_bytes']} delivered")
        return f"mbarrier {_name(programs.barriers, row['barrier'])} parity {row['parity']} ({', '.join(missing)})"
    if wait is Wait.NAMED_BARRIER:
        return f"barrier {programs.named_barriers[row['barrier']]!r}"
    if wait is Wait.CP_ASYNC_GROUP:
        return f"cp.async.wait_group {number}"
    if wait is Wait.BULK_GROUP:
        return f"cp.async.bulk.wait_group {number}"
    if wait is Wait.REGISTERS:
        return f"{row['pending']} registers of the CTA's pool (setmaxnreg.inc {number})"
    return WAITS[wait]


def _name(names: Sequence[str | tuple[str, int]], place: float) -> str:
    """Name at an index, or ring and stage, for example ``a[1]``; empty for an index outside of ``names``."""
    if not 0 <= place < len(names):
        return ""
    found = names[int(place)]
    return found if isinstance(found, str) else f"{found[0]}[{found[1]}]"
