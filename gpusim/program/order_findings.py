"""Findings of the order check as sentences: both places, and what is missing.

In: accesses that nothing orders, or operands that do not fit. Out: parts of sentences, or findings.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpusim.program.order_state import KNOWN, Access, Actor
from gpusim.program.order_steps import SHARED_READS, Step
from gpusim.program.programs import Programs
from gpusim.program.records import OpKind
from gpusim.workload.finding import Finding, FindingKind
from gpusim.workload.launch import Launch

WORDS = {
    OpKind.CP_ASYNC: "cp.async", OpKind.TMA_LOAD: "TmaLoad", OpKind.TMA_STORE: "TmaStore", OpKind.SHARED_LOAD: "ld.shared",
    OpKind.SHARED_STORE: "st.shared", OpKind.LDMATRIX: "ldmatrix", OpKind.STMATRIX: "stmatrix", OpKind.WGMMA: "wgmma",
    OpKind.MBARRIER_ARRIVE: "mbarrier.arrive", OpKind.MBARRIER_ARRIVE_EXPECT_TX: "mbarrier.arrive.expect_tx",
    OpKind.MBARRIER_WAIT: "mbarrier.try_wait", OpKind.CP_ASYNC_MBARRIER_ARRIVE: "cp.async.mbarrier.arrive",
    OpKind.BAR_SYNC: "bar.sync", OpKind.BAR_ARRIVE: "bar.arrive", OpKind.SYNCTHREADS: "__syncthreads",
    OpKind.CLUSTER_ARRIVE: "barrier.cluster.arrive", OpKind.CLUSTER_WAIT: "barrier.cluster.wait",
    OpKind.GLOBAL_STORE: "st.global", OpKind.GLOBAL_ATOMIC: "red.global", OpKind.MBARRIER_INIT: "mbarrier.init",
    OpKind.ST_ASYNC: "st.async",
}  # fmt: skip
"""Instruction of each kind of op in a message."""


DELIVER = (
    "{at} brings {num} bytes to phase {phase} of mbarrier {barrier}, and phase {before}, for which expect_tx announced "
    "{announced}, may not be complete"
)
SENTENCES: Mapping[str, tuple[FindingKind, str]] = {
    "read": ("race", "{at} reads {stage} while {other} may still write it; missing: {missing}"),
    "write": ("race", "{at} writes {stage} while {other} may still {does} {what}; missing: {missing}"),
    "too_early": ("race", "{reader} may read {stage} before {other} writes it; missing: {missing}"),
    "never_written": ("race", "{reader} reads {stage}, which nothing has written"),
    "exit_of_reads": ("race", "{at} while its TMA store may still read; missing: cp.async.bulk.wait_group.read 0"),
    "exit_of_target": ("race", "CTA {cta} may exit before {other} has reached it; missing: a cluster barrier at the end"),
    "proxy": (
        "fence",
        "{at} reads {stage} by the async proxy, {other} wrote it by the generic proxy; missing: fence.proxy.async",
    ),
    "early": (
        "order",
        "{at} may pass mbarrier {barrier} early, by an older phase of parity {parity}; missing: a wait for phase {before}",
    ),
    "lap": (
        "order",
        "{waiter} waits for parity {parity} of mbarrier {barrier}, which may flip twice before; missing: an arrival "
        "behind it, and a wait for that before {at}",
    ),
    "arrive": (
        "order",
        "{at} arrives for phase {phase} of mbarrier {barrier}, and phase {before} may not be complete; missing: a wait",
    ),
    "meet": ("order", "{at} arrives at {barrier} again, and earlier arrivals may not be complete; missing: a wait"),
    "init": ("barrier", "{at} uses mbarrier {barrier} before mbarrier.init may be done; missing: a barrier of threads"),
    "count": ("barrier", "{at} arrives {count} times on mbarrier {barrier}, which misses {pending} of {wanted} arrivals"),
    "threads": ("barrier", "{at}: {count} threads arrive at {barrier}, it was declared for {wanted}"),
    "deliver": ("order", f"{DELIVER}; missing: a wait for it, or bytes of expect_tx"),
    "surplus": ("bytes", f"{DELIVER}; missing: bytes of expect_tx"),
    "bytes": ("bytes", "mbarrier {barrier} keeps phase {phase} open: {announced} bytes announced, {delivered} delivered"),
    "deadlock": ("deadlock", "deadlock, whatever the timing: {waits}"),
    "accumulators": ("accumulators", "{at} while wgmma in flight writes accumulators; missing: wgmma.wait_group 0"),
    "first_wgmma": ("wgmma_fence", "{at} begins while its accumulators may be written; missing: wgmma.fence"),
    "overwritten": ("unread", "{at} writes {stage} again, and nothing has read what {other} wrote"),
    "unread": ("unread", "nothing reads what op {place} of role {role!r} has written to {stage}"),
}
"""Kind and sentence of each finding."""


def where(actor: Actor) -> str:
    """Role and CTA of the op that a role executes next, with its number.

    Numbers count the ops that the role yields for its CTA, from 0.
    """
    return f"role {actor.name!r} of CTA {actor.cta}, {_op(actor.place, actor.step)}"


def where_was(access: Access) -> str:
    """Role and CTA of an access, with the number of its op."""
    return f"role {access.actor.name!r} of CTA {access.actor.cta}, {_op(access.place, access.step)}"


def _op(place: int, step: Step | None) -> str:
    return "at its end" if step is None else f"op {place} ({WORDS[step.kind]})"


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
        has_waited = access.actor.clocks[KNOWN, access.column] >= access.end
        return "__syncthreads behind cp.async.wait_group, since other warps copied" if has_waited else "cp.async.wait_group"
    if kind is OpKind.CP_ASYNC:
        return "an arrival behind the other role's cp.async.wait_group, and a wait for it"
    return _between_warps(kind) if is_own else "a barrier between both roles"


def after_read(access: Access, actor: Actor) -> str:
    """What is missing between a read and a write behind it."""
    is_own, kind = access.actor is actor, access.step.kind
    group = {OpKind.WGMMA: "wgmma.wait_group", OpKind.TMA_STORE: "cp.async.bulk.wait_group.read"}.get(kind)
    if is_own and group and actor.clocks[KNOWN, access.column] < access.end:
        return group
    if is_own:
        return _between_warps(kind)
    behind = f"behind its {group}" if group else "behind its read"
    return f"an arrival of role {access.actor.name!r} {behind}, and a wait for it"


def _between_warps(kind: OpKind) -> str:
    by_thread = kind in (OpKind.SHARED_LOAD, OpKind.SHARED_STORE)
    more = '; or state buffer="" if each thread reads back only what it wrote' if by_thread else ""
    return f"__syncthreads or bar.sync between its warps{more}"


def is_read(access: Access) -> bool:
    """Whether an access reads its stage."""
    return access.step.kind in (*SHARED_READS, OpKind.WGMMA, OpKind.TMA_STORE)


def operand_findings(launch: Launch, programs: Programs) -> list[Finding]:
    """Swizzles of one buffer that differ, and stages that are smaller than one operand of wgmma."""
    found, first = [], dict[str, tuple[str, str]]()
    for (buffer, swizzle), role in programs.costs.swizzles.items():
        known, by = first.setdefault(buffer, (swizzle, role))
        if known != swizzle:
            message = f"{launch.kernel}: role {by!r} states swizzle {known} for buffer {buffer!r}, role {role!r} {swizzle}"
            found.append(Finding(kind="swizzle", message=message))
    sizes = {buffer.name: buffer.stage_bytes for buffer in launch.buffers}
    for row in programs.costs.wgmmas.items:
        atom, held = row.op.atom, sorted(sizes[buffer] for buffer, _ in row.op.reads)
        wanted = sorted((atom.a_bytes, atom.b_bytes))
        if len(held) == len(wanted) and any(has < wants for has, wants in zip(held, wanted, strict=True)):
            message = f"{launch.kernel}: {atom.name} reads operands of {wanted} bytes, its stages hold {held}"
            found.append(Finding(kind="bytes", message=message))
    return found
