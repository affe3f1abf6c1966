"""Loads, stores and atomics of shared memory, of the role's CTA or of another one of its cluster.

In: a role and its op. Out: changed registers, shared memory and mbarriers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpusim.errors import LaunchError
from gpusim.functional.barriers import MbarrierState
from gpusim.functional.memory import COMPUTED, LEFT_OUT, Array, SharedMemory, numbers
from gpusim.functional.number_format import encode, storage
from gpusim.functional.role import CtaState, Delivery, Role, nothing
from gpusim.workload import ops
from gpusim.workload.data_access import GlobalElements, IntArray, SharedElements
from gpusim.workload.dtypes import DType

UNIT = DType("b16", 16, "int")
"""Units of ldmatrix, whose type is not known."""


def cta_of(role: Role, op: Any) -> CtaState:
    """The CTA of the cluster that an op names; the role's own, if it names none.

    Raises:
        LaunchError: the cluster has no such CTA.
    """
    rank = getattr(op, "cta_rank", None)
    return role.cta if rank is None else peer_of(role, rank)


def peer_of(role: Role, rank: int) -> CtaState:
    """A CTA of the role's cluster.

    Raises:
        LaunchError: the cluster has no such CTA.
    """
    if not 0 <= rank < len(role.cta.peers):
        raise LaunchError(f"{role.who} names CTA {rank} of its cluster, which has {len(role.cta.peers)} CTAs")
    found: CtaState = role.cta.peers[rank]
    return found


def mbarrier_of(role: Role, cta: CtaState, op: Any) -> MbarrierState:
    """The mbarrier of a CTA that an op names.

    Raises:
        LaunchError: the launch does not declare it.
    """
    found = cta.mbarriers.get((op.barrier, op.stage))
    if found is None:
        raise LaunchError(f"{role.who} names stage {op.stage} of mbarrier {op.barrier!r}, which the launch does not declare")
    return found


def stored_values(role: Role, op: Any, access: GlobalElements | SharedElements, first: int, num: int) -> Array:
    """Values of the registers that a store stores: ``num`` of each thread, from value ``first`` on."""
    if access.compute:
        access.compute(role.registers)
    values = role.registers.get(access.registers)
    if values is None or values.shape[1] < first + num:
        role.refuse(op, role.unset(access.registers))
    return values[:, first : first + num]


def _addresses(role: Role, op: Any, access: SharedElements) -> Array:
    is_here = not access.buffer and hasattr(op, "buffer")
    buffer, stage = (op.buffer, op.stage) if is_here else (access.buffer, access.stage)
    offsets = access.offsets
    if offsets.min(initial=0) == LEFT_OUT:
        offsets = np.maximum(offsets, 0)
    return cta_of(role, op).memory.addresses(buffer, stage, offsets, (access.dtype or UNIT).num_bytes)


def shared_load(role: Role, op: ops.SharedLoad | ops.Ldmatrix | ops.DsmemLoad) -> None:
    """Load elements, which arrive at the use of the token."""
    loaded, memory = [], cta_of(role, op).memory
    for access in role.accesses(op, SharedElements):
        addresses, kind = _addresses(role, op, access), storage(access.dtype or UNIT)
        bits = memory.read(addresses, kind)
        bits[access.offsets < 0] = 0
        tags = memory.tags_of(addresses, kind.itemsize).reshape(len(addresses), -1) if role.cta.watch else None
        loaded.append((access, numbers(bits, access.dtype), tags))

    def arrive() -> None:
        for access, values, tags in loaded:
            role.set_registers(access.registers, access.first, values, tags)
            if access.compute:
                access.compute(role.registers)

    role.give(arrive, [access.registers for access, *_ in loaded])


def shared_store(role: Role, op: ops.SharedStore | ops.Stmatrix | ops.DsmemStore) -> None:
    """Store elements at once."""
    for write in _writes(role, op):
        write()
    if getattr(op, "has_token", False):
        role.give(nothing)


def st_async(role: Role, op: ops.StAsync) -> None:
    """Store elements later, and complete their bytes on an mbarrier."""
    writes, mbarrier = _writes(role, op), mbarrier_of(role, cta_of(role, op), op)
    each = ((access.offsets >= 0, access.dtype or UNIT) for access in role.accesses(op, SharedElements))
    num_bytes = sum(int(inside.sum()) * dtype.num_bytes for inside, dtype in each)
    if num_bytes != op.num_bytes:
        role.refuse(op, f"with num_bytes={op.num_bytes}; its elements have {num_bytes} bytes")

    def arrive() -> None:
        for write in writes:
            write()
        mbarrier.deliver(num_bytes)

    role.cta.in_flight.append(Delivery(arrive, signals=mbarrier))


def shared_atomic(role: Role, op: ops.SharedAtomic) -> None:
    """Add elements at once."""
    for access in role.accesses(op, SharedElements):
        inside, dtype = access.offsets >= 0, access.dtype or UNIT
        values = stored_values(role, op, access, access.first, inside.shape[1])[inside]
        addresses = _addresses(role, op, access)[inside]
        role.cta.memory.add(addresses, values, dtype)
        if role.cta.watch:
            tag(role.cta.memory, addresses, dtype.num_bytes, COMPUTED, role.writer(op))
    role.give(nothing)


def _writes(role: Role, op: Any) -> list[Callable[[], None]]:
    """Effects of a store to shared memory, with the registers' values of now."""
    memory, found = cta_of(role, op).memory, list[Callable[[], None]]()
    for access in role.accesses(op, SharedElements):
        inside = access.offsets >= 0
        values = stored_values(role, op, access, access.first, inside.shape[1])
        addresses = _addresses(role, op, access)[inside]
        bits = values[inside] if access.dtype is None else encode(values[inside], access.dtype)
        if bits.dtype != storage(access.dtype or UNIT):
            role.refuse(op, f"whose registers {access.registers!r} are {values.dtype}, no units of 16 bits: state dtype")
        found.append(partial(memory.write, addresses, bits))
        if role.cta.watch:
            width, tags = bits.itemsize, role.tags.get(access.registers)
            begin, end = access.first * width, (access.first + access.offsets.shape[1]) * width
            is_copy = tags is not None and tags.shape[1] >= end and access.compute is None
            source: Any = COMPUTED
            if tags is not None and is_copy:
                source = tags["source"][:, begin:end].reshape(*inside.shape, width)[inside]
            found.append(partial(tag, memory, addresses, width, source, role.writer(op)))
    return found


def tag(memory: SharedMemory, addresses: IntArray, width: int, source: Any, writer: int) -> None:
    """Tag the bytes of elements of ``width`` bytes with their source and writer."""
    places = addresses[..., None] + np.arange(width)
    memory.tags["source"][places], memory.tags["writer"][places] = source, writer
