"""Encoders of ops as records: barriers, fences, arithmetic and ranges; and the table of all encoders.

In: a role's rows and its next op. Out: one more row, and the token that the program receives, if any. Refused are names that
the launch does not declare, and ops that no GPU could carry out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gpusim.errors import LaunchError
from gpusim.program.costs import AluRow, ColdCodeRow, WgmmaRow
from gpusim.program.encode_memory import MEMORY_ENCODERS, Encoder
from gpusim.program.programs import NONE
from gpusim.program.records import OpKind, Section
from gpusim.program.refusals import check_wgmma, not_below_none
from gpusim.program.role_rows import PACK, RoleRows
from gpusim.units import WARPGROUP_THREADS
from gpusim.workload import ops


def plain(word: Any) -> Encoder:
    """Encoder of an op that has flags, and at most one number.

    The number goes into ``number``. The flags go into ``flags``, the first into the lowest bit.
    """
    kind = OpKind[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word.__name__).upper()]
    flags = [item.name for item in fields(word) if item.type == "bool"]
    (number,) = [item.name for item in fields(word) if item.type == "float"] or [""]

    def encode(role: RoleRows, op: ops.Op) -> None:
        bits = sum(bool(getattr(op, name)) << place for place, name in enumerate(flags)) if flags else 0
        role.keep(op, PACK(kind, bits, 0, 0, 0, NONE, NONE, 0, not_below_none(getattr(op, number)) if number else 0.0))

    return encode


def is_plain(word: Any) -> bool:
    """Whether :func:`plain` can encode it: an op of flags and at most one number."""
    is_op = getattr(word, "__base__", None) is ops.Op
    types = [item.type for item in fields(word)] if is_op else []
    return is_op and types.count("float") <= 1 and set(types) <= {"bool", "float"}


def wait_groups(kind: OpKind) -> Encoder:
    """Encoder of a wait for all groups except the last few."""

    def encode(role: RoleRows, op: ops.CpAsyncWaitGroup | ops.BulkWaitGroup | ops.WgmmaWaitGroup) -> None:
        if op.num_pending < 0:
            raise LaunchError(f"{role.who} waits until {op.num_pending} groups are in flight, wants 0 or more")
        role.keep(op, PACK(kind, bool(getattr(op, "read", False)), 0, 0, 0, NONE, NONE, op.num_pending, 0.0))

    return encode


def mbarrier_init(role: RoleRows, op: ops.MbarrierInit) -> None:
    """Encode the initialization of a ring that the launch declares."""
    role.barrier(op.barrier, 0)
    role.keep(op, PACK(OpKind.MBARRIER_INIT, 0, 0, 0, 0, NONE, NONE, 0, 0.0))


def mbarrier_arrive(role: RoleRows, op: ops.MbarrierArrive) -> None:
    """Encode an arrival at an mbarrier of this CTA, or of another CTA of the cluster."""
    rank = NONE
    if op.cta_rank is not None and op.cta_rank != role.cta_rank:
        rank = role.check_rank(op.cta_rank)
    barrier = role.barrier(op.barrier, op.stage)
    role.keep(op, PACK(OpKind.MBARRIER_ARRIVE, 0, 0, rank, 0, NONE, barrier, op.count, 0.0))


def on_mbarrier(kind: OpKind, extra: str = "") -> Encoder:
    """Encoder of an op on an mbarrier of this CTA. ``extra``: the op's number that goes into the field ``extra``."""

    def encode(role: RoleRows, op: ops.MbarrierArriveExpectTx | ops.MbarrierWait | ops.CpAsyncMbarrierArrive) -> None:
        barrier = role.barrier(op.barrier, op.stage)
        by_lane = isinstance(op, ops.MbarrierWait) and bool(op.by_lane)
        if isinstance(op, ops.MbarrierWait) and op.parity not in (0, 1):
            raise LaunchError(f"{role.who} waits for parity {op.parity} of mbarrier {op.barrier}, wants 0 or 1")
        role.keep(op, PACK(kind, by_lane, 0, 0, 0, NONE, barrier, getattr(op, extra) if extra else 0, 0.0))

    return encode


def named_barrier(kind: OpKind) -> Encoder:
    """Encoder of an arrival at a named barrier. Raises LaunchError: a barrier that the launch does not declare."""

    def encode(role: RoleRows, op: ops.BarSync | ops.BarArrive) -> None:
        declared = role.tables.named_barriers
        barrier = declared.get(op.barrier)
        if barrier is None:
            names = ", ".join(declared) or "none"
            raise LaunchError(f"{role.who} uses barrier {op.barrier!r}, the launch declares {names}")
        role.keep(op, PACK(kind, 0, 0, 0, 0, NONE, barrier, 0, 0.0))

    return encode


def cluster_arrive(role: RoleRows, op: ops.ClusterArrive) -> None:
    """Encode ``barrier.cluster.arrive``."""
    role.has_arrived = True
    role.add(PACK(OpKind.CLUSTER_ARRIVE, 0, 0, 0, 0, NONE, NONE, 0, 0.0))


def cluster_wait(role: RoleRows, op: ops.ClusterWait) -> None:
    """Encode ``barrier.cluster.wait``. Raises LaunchError: no ``barrier.cluster.arrive`` before it."""
    if not role.has_arrived:
        raise LaunchError(f"{role.who} waits on the cluster barrier and has not arrived; arrive first")
    role.has_arrived = False
    role.add(PACK(OpKind.CLUSTER_WAIT, 0, 0, 0, 0, NONE, NONE, 0, 0.0))


def mma_sync(role: RoleRows, op: ops.MmaSync) -> None:
    """Encode a batch of mma.sync."""
    cost = role.tables.costs.mma_syncs.number(op.atom)
    role.keep(op, PACK(OpKind.MMA_SYNC, 0, 0, cost, 0, NONE, NONE, op.num_issues, 0.0))


def wgmma(role: RoleRows, op: ops.Wgmma) -> None:
    """Encode a batch of wgmma, and the stages that it reads."""
    tables = role.tables
    check_wgmma(tables.launch.kernel, op, role.num_warps)
    reads = tuple(role.stage(buffer, stage) for buffer, stage in op.reads)
    for buffer, _ in op.reads if op.swizzle else ():
        tables.costs.swizzles.setdefault((buffer, op.swizzle), role.spec.name)
    num_warpgroups = max(1, role.spec.num_threads // WARPGROUP_THREADS)
    key = tables.costs.atoms.number(op.atom), op.num_issues, op.num_between, num_warpgroups, role.num_warps
    cost = tables.costs.wgmmas.number(key, WgmmaRow(op, num_warpgroups, role.num_warps))
    num_issues = op.num_issues * num_warpgroups
    role.keep(op, PACK(OpKind.WGMMA, 0, 0, cost, len(reads), NONE, num_issues, tables.list_of(reads), 0.0))


def fetch_code(role: RoleRows, op: ops.FetchCode) -> None:
    """Encode a block of code, of equal length each time."""
    codes, name, num_bytes = role.tables.codes, op.name, op.num_bytes
    number, before = codes.get(name, (len(codes), None))
    if num_bytes <= 0 or before not in (None, num_bytes):
        raise LaunchError(f"code {name!r} has {num_bytes:g} bytes and had {before or 0:g}, wants one length above 0")
    codes[name] = number, num_bytes
    role.keep(op, PACK(OpKind.FETCH_CODE, 0, 0, number, 0, NONE, NONE, 0, float(num_bytes)))


def loop_body(role: RoleRows, op: ops.LoopBody) -> None:
    """Encode the code of one loop iteration."""
    cost = role.tables.costs.loop_bodies.number((op.num_fma, op.num_others, op.bank_reads), op)
    role.keep(op, PACK(OpKind.LOOP_BODY, 0, 0, cost, 0, NONE, NONE, 0, 0.0))


def fetch_cold_code(role: RoleRows, op: ops.FetchColdCode) -> None:
    """Encode a range of code that lies far from the kernel's beginning."""
    tables, names = role.tables, role.tables.cold_code_names
    name = names.setdefault(op.name, len(names))
    row = ColdCodeRow(name, float(op.begin_bytes), float(op.end_bytes), float(op.overhead_cycles))
    role.keep(op, PACK(OpKind.FETCH_COLD_CODE, 0, 0, tables.costs.cold_codes.number(row, row), 0, NONE, NONE, 0, 0.0))


def fma(role: RoleRows, op: ops.Fma) -> None:
    """Encode FP32 instructions. Raises LaunchError: a negative number of instructions, or issue by age without runs."""
    if op.by_age and not op.num_runs:
        raise LaunchError(f"{role.who} multiplies by age and takes no turns, wants num_runs of 1 or more")
    not_below_none(op.num_instructions)
    cost = role.tables.costs.fmas.number((op.num_instructions, op.bank_reads, op.num_runs), op)
    role.keep(op, PACK(OpKind.FMA, bool(op.is_chain) | bool(op.by_age) << 1, 0, cost, 0, NONE, NONE, 0, 0.0))


def alu(role: RoleRows, op: ops.Alu) -> None:
    """Encode integer instructions. Raises LaunchError: a negative number of instructions."""
    not_below_none(op.num_instructions)
    not_below_none(op.num_more if op.is_chain else 0.0)
    row = AluRow(float(op.num_instructions), float(op.num_beside), float(op.num_more))
    role.keep(op, PACK(OpKind.ALU, bool(op.is_chain), 0, role.tables.costs.alus.number(row, row), 0, NONE, NONE, 0, 0.0))


def shfl(role: RoleRows, op: ops.Shfl) -> None:
    """Encode shuffles of some or all warps."""
    num, num_warps = not_below_none(op.num_instructions), op.num_warps or role.num_warps
    role.keep(op, PACK(OpKind.SHFL, bool(op.is_chain), 0, 0, 0, NONE, NONE, num_warps, num))


def set_max_nreg(role: RoleRows, op: ops.SetMaxNReg) -> None:
    """Encode setmaxnreg: registers given to the CTA's pool, or taken from it."""
    num, before = op.num_registers, role.registers
    if not 24 <= num <= 256 or num % 8:
        raise LaunchError(f"{role.who}: setmaxnreg {num}, wants a multiple of 8 from 24 to 256")
    if (num > before and op.direction == "dec") or (num < before and op.direction == "inc"):
        raise LaunchError(f"{role.who}: setmaxnreg.{op.direction} {num} from {before} registers, wants the other direction")
    row = PACK(OpKind.SET_MAX_NREG, op.direction == "inc", 0, 0, 0, NONE, NONE, num, 0.0)
    role.registers = num
    role.add(row)


def range_start(role: RoleRows, op: ops.RangeStart) -> None:
    """Encode the begin of a section."""
    role.num_sections += 1
    role.add(PACK(OpKind.RANGE_START, 0, 0, 0, 0, NONE, NONE, Section[op.section.name], 0.0))


def range_end(role: RoleRows, op: ops.RangeEnd) -> None:
    """Encode the end of the section that began last. Raises LaunchError: no section is open."""
    if not role.num_sections:
        raise LaunchError(f"{role.who} ends a range that it never started; yield RangeStart first")
    role.num_sections -= 1
    role.add(PACK(OpKind.RANGE_END, 0, 0, 0, 0, NONE, NONE, 0, 0.0))


ENCODERS: Mapping[type[ops.Op], Encoder] = {
    **{word: plain(word) for word in vars(ops).values() if is_plain(word)},
    **MEMORY_ENCODERS,
    ops.CpAsyncWaitGroup: wait_groups(OpKind.CP_ASYNC_WAIT_GROUP),
    ops.CpAsyncMbarrierArrive: on_mbarrier(OpKind.CP_ASYNC_MBARRIER_ARRIVE),
    ops.BulkWaitGroup: wait_groups(OpKind.BULK_WAIT_GROUP),
    ops.MbarrierInit: mbarrier_init,
    ops.MbarrierArrive: mbarrier_arrive,
    ops.MbarrierArriveExpectTx: on_mbarrier(OpKind.MBARRIER_ARRIVE_EXPECT_TX, "num_bytes"),
    ops.MbarrierWait: on_mbarrier(OpKind.MBARRIER_WAIT, "parity"),
    ops.BarSync: named_barrier(OpKind.BAR_SYNC),
    ops.BarArrive: named_barrier(OpKind.BAR_ARRIVE),
    ops.ClusterArrive: cluster_arrive,
    ops.ClusterWait: cluster_wait,
    ops.MmaSync: mma_sync,
    ops.Wgmma: wgmma,
    ops.WgmmaWaitGroup: wait_groups(OpKind.WGMMA_WAIT_GROUP),
    ops.FetchCode: fetch_code,
    ops.FetchColdCode: fetch_cold_code,
    ops.LoopBody: loop_body,
    ops.Fma: fma,
    ops.Alu: alu,
    ops.Shfl: shfl,
    ops.SetMaxNReg: set_max_nreg,
    ops.RangeStart: range_start,
    ops.RangeEnd: range_end,
}
"""Encoder of each op. Any other object is no op."""
