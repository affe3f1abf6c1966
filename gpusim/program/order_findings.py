"""Findings of the order check as sentences: both places, and what is missing.

In: accesses that nothing orders, or an op that cannot be right. Out: :class:`Finding`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.program.order_state import KNOWN, Access, Actor
from gpusim.program.order_steps import SHARED_READS, SHARED_WRITES
from gpusim.program.records import OpKind

WORDS = {
    OpKind.CP_ASYNC: "cp.async", OpKind.TMA_LOAD: "TmaLoad", OpKind.TMA_STORE: "TmaStore", OpKind.SHARED_LOAD: "ld.shared",
    OpKind.SHARED_STORE: "st.shared", OpKind.LDMATRIX: "ldmatrix", OpKind.STMATRIX: "stmatrix", OpKind.WGMMA: "wgmma",
    OpKind.MBARRIER_ARRIVE: "mbarrier.arrive", OpKind.MBARRIER_ARRIVE_EXPECT_TX: "mbarrier.arrive.expect_tx",
    OpKind.MBARRIER_WAIT: "mbarrier.try_wait", OpKind.CP_ASYNC_MBARRIER_ARRIVE: "cp.async.mbarrier.arrive",
    OpKind.BAR_SYNC: "bar.sync", OpKind.BAR_ARRIVE: "bar.arrive", OpKind.SYNCTHREADS: "__syncthreads",
    OpKind.CLUSTER_ARRIVE: "barrier.cluster.arrive", OpKind.CLUSTER_WAIT: "barrier.cluster.wait",
    OpKind.GLOBAL_STORE: "st.global", OpKind.GLOBAL_ATOMIC: "red.global", OpKind.MBARRIER_INIT: "mbarrier.init",
    OpKind.ST_ASYNC: "st.async", OpKind.DSMEM_LOAD: "ld.shared::cluster", OpKind.DSMEM_STORE: "st.shared::cluster",
}  # fmt: skip
"""Instruction of each kind of op in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a launch, whatever its timing. As text it is its sentence."""

    kind: str
    """``race``, ``order``, ``barrier``, ``bytes``, ``deadlock``, ``fence``, ``accumulators``, ``swizzle`` or ``unread``."""
    message: str
    is_error: bool = True
    """Whether ``simulate`` refuses the launch. Otherwise its result has a remark."""

    def __str__(self) -> str:
        return self.message


def where(actor: Actor) -> str:
    """Role and CTA of the op that a role executes next, with its number.

    Numbers count the ops that the role yields for its CTA, from 0.
    """
    step = actor.step
    word = "ends" if step is None else f"op {actor.place} ({WORDS.get(step.kind, step.kind.name.lower())})"
    return f"role {actor.name!r} of CTA {actor.cta}, {word}"


def other(access: Access, actor: Actor) -> str:
    """The other access of a pair, as seen by ``actor``."""
    who = "its own" if access.actor is actor else f"role {access.actor.name!r}'s"
    if access.actor.cta != actor.cta:
        who = f"role {access.actor.name!r}'s (CTA {access.actor.cta})"
    return f"{who} op {access.place} ({WORDS[access.step.kind]})"


def after_write(access: Access, actor: Actor, barrier: str) -> str:
    """What is missing between a write and a read or write behind it."""
    is_own, kind = access.actor is actor, access.step.kind
    if kind is OpKind.TMA_LOAD:
        return f"a wait for this phase of mbarrier {barrier}"
    if kind is OpKind.CP_ASYNC and is_own:
        has_waited = actor.clocks[KNOWN, access.column] >= access.end
        return "__syncthreads behind cp.async.wait_group, since other warps copied" if has_waited else "cp.async.wait_group"
    if kind is OpKind.CP_ASYNC:
        return "an arrival behind the other role's cp.async.wait_group, and a wait for it"
    return "__syncthreads or bar.sync between its warps" if is_own else "a barrier between both roles"


def after_read(access: Access, actor: Actor) -> str:
    """What is missing between a read and a write behind it."""
    is_own, kind = access.actor is actor, access.step.kind
    group = {OpKind.WGMMA: "wgmma.wait_group", OpKind.TMA_STORE: "cp.async.bulk.wait_group.read"}.get(kind)
    if is_own and group and actor.clocks[KNOWN, access.column] < access.end:
        return group
    if is_own:
        return "__syncthreads or bar.sync between its warps"
    behind = f"behind its {group}" if group else "behind its read"
    return f"an arrival of role {access.actor.name!r} {behind}, and a wait for it"


def verb(access: Access) -> str:
    """What an access does to a stage."""
    return "read" if access.step.kind in (*SHARED_READS, OpKind.WGMMA, OpKind.TMA_STORE) else "written"


assert set(SHARED_READS + SHARED_WRITES) <= WORDS.keys()
