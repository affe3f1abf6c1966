"""Instructions of a functional run: the data accesses of each op are carried out.

In: a role and its next op. Out: changed registers, shared memory and tensors.

Models:

* Asynchronous copies and wgmma complete when they are waited for, or earlier (:class:`Delivery`).
* Loads change registers at the ``Use`` of their token.
* Atomics add. Ops that reach another CTA's shared memory have accesses that name a buffer.

Ignores: fences. Bytes are visible to all proxies once they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from gpusim.errors import LaunchError
from gpusim.functional.memory import LEFT_OUT, TAG, Array, GlobalTensor, SharedMemory, source_of
from gpusim.functional.mma import multiply, operand_values, to_matrices, to_registers
from gpusim.functional.number_format import decode, encode, storage
from gpusim.functional.role import CtaState, Delivery, Groups, Role, nothing
from gpusim.functional.shared_instructions import (
    cta_of,
    mbarrier_of,
    peer_of,
    shared_atomic,
    shared_load,
    shared_store,
    st_async,
    stored_values,
    tag,
)
from gpusim.workload import ops
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.data_access import Compute, Copy, Counter, GlobalElements, IntArray, MmaFragments, WgmmaOperands


def carry_out(role: Role, op: Any) -> None:
    """Carry out one op.

    Raises:
        DataError: an op that has no data access, or one that does not fit it.
    """
    handler = HANDLERS.get(type(op))
    if handler is not None:
        handler(role, op)
    elif type(op) not in WITHOUT_EFFECT:
        role.refuse(op, "which functional runs do not carry out")


# ---------------------------------------------------------------------------------------------- registers and global memory
def _global_load(role: Role, op: ops.GlobalLoad) -> None:
    loaded = []
    for access in role.accesses(op, GlobalElements):
        tensor, index, tags = role.tensor(access.tensor), _index(role, access), None
        if role.cta.watch:
            found = np.full((*index.shape, tensor.ref.dtype.num_bytes), -1, dtype=TAG)
            found["source"] = source_of(tensor.number, index)[..., None]
            found["writer"], tags = role.writer(op), found.reshape(len(found), -1)
        loaded.append((access, decode(tensor.read(index), tensor.ref.dtype), tags))

    def arrive() -> None:
        for access, values, tags in loaded:
            role.registers.pop(access.registers, None)
            role.set_registers(access.registers, 0, values, tags)
            if access.compute:
                access.compute(role.registers)

    role.give(arrive, [access.registers for access, *_ in loaded])


def _index(role: Role, access: GlobalElements) -> IntArray:
    return access.index(role.registers) if callable(access.index) else access.index


def _global_store(role: Role, op: ops.GlobalStore | ops.GlobalAtomic) -> None:
    for access in role.accesses(op, GlobalElements, Counter):
        tensor = role.tensor(access.tensor)
        if isinstance(access, Counter):
            _count(role, op, access, tensor)
            continue
        index = _index(role, access)
        bits = encode(stored_values(role, op, access, 0, index.shape[1]), tensor.ref.dtype)
        tensor.write(index, bits, adds=isinstance(op, ops.GlobalAtomic))
        if role.cta.watch:
            stored = np.stack([np.full_like(index, role.writer(op)), *np.indices(index.shape)], axis=-1)
            tensor.stored[index[index >= 0]] = stored[index >= 0]


def _count(role: Role, op: Any, access: Counter, tensor: GlobalTensor) -> None:
    place = np.array([access.index])
    if isinstance(op, ops.GlobalAtomic):
        tensor.write(place, np.ones(1, dtype=tensor.bits.dtype), adds=True)
        role.give(nothing)
        _await_count(role, access)
    else:
        tensor.write(place, np.zeros(1, dtype=tensor.bits.dtype))


# ---------------------------------------------------------------------------------------------- copies
def _width(role: Role, access: Copy) -> int:
    return role.tensor(access.tensor).ref.dtype.num_bytes


def _check_bytes(role: Role, op: Any, stated: int, accesses: tuple[Copy, ...]) -> None:
    """Refuse copies of other bytes than the op states. Copies of nothing, of an empty part of K, may state more."""
    found = sum(int(((access.index >= 0) & (access.offsets >= 0)).sum()) * _width(role, access) for access in accesses)
    if found and found != stated:
        role.refuse(op, f"with num_bytes={stated}; its elements have {found} bytes")


def _copied(role: Role, op: Any, access: Copy, memory: SharedMemory, writer: int) -> None:
    """Copy elements of a tensor to a stage of a CTA's shared memory."""
    tensor, index, offsets, width = role.tensor(access.tensor), access.index, access.offsets, _width(role, access)
    if offsets.min(initial=0) == LEFT_OUT:
        index, offsets = index[offsets >= 0], offsets[offsets >= 0]
    addresses = memory.addresses(op.buffer, op.stage, offsets, width)
    memory.write(addresses, tensor.read(index))
    if len(memory.tags):
        tag(memory, addresses, width, source_of(tensor.number, index)[..., None], writer)


def _cp_async(role: Role, op: ops.CpAsync) -> None:
    accesses, writer = role.accesses(op, Copy), role.writer(op)
    if op.access.num_bytes:
        _check_bytes(role, op, op.access.num_bytes, accesses)

    def arrive() -> None:
        for access in accesses:
            _copied(role, op, access, role.cta.memory, writer)

    _launch(role, role.copies, Delivery(arrive))


def _launch(role: Role, groups: Groups, delivery: Delivery) -> None:
    groups.open.append(delivery)
    role.cta.in_flight.append(delivery)


def _tma_load(role: Role, op: ops.TmaLoad) -> None:
    accesses, writer = role.accesses(op, Copy), role.writer(op)
    num_bytes = sum(access.index.size * role.tensor(access.tensor).ref.dtype.num_bytes for access in accesses)
    if num_bytes != op.num_bytes:
        role.refuse(op, f"with num_bytes={op.num_bytes}; its boxes have {num_bytes} bytes")

    def arrive(cta: CtaState) -> None:
        for access in accesses:
            _copied(role, op, access, cta.memory, writer)
        mbarrier_of(role, cta, op).deliver(num_bytes)

    for rank in op.multicast or (role.cta.rank,):
        peer = peer_of(role, rank)
        role.cta.in_flight.append(Delivery(partial(arrive, peer), signals=mbarrier_of(role, peer, op)))


def _tma_store(role: Role, op: ops.TmaStore) -> None:
    accesses, writer, memory = role.accesses(op, Copy), role.writer(op), role.cta.memory
    _check_bytes(role, op, op.num_bytes, accesses)

    def leave() -> None:
        for access in accesses:
            tensor = role.tensor(access.tensor)
            addresses = memory.addresses(op.buffer, op.stage, access.offsets, _width(role, access))
            tensor.write(access.index, memory.read(addresses, storage(tensor.ref.dtype)), adds=op.reduce)
            if role.cta.watch:
                tensor.stored[access.index[access.index >= 0], 0] = writer

    _launch(role, role.stores, Delivery(leave))


def _arrive_after_copies(role: Role, op: ops.CpAsyncMbarrierArrive) -> None:
    barrier, num, earlier = mbarrier_of(role, role.cta, op), role.spec.num_threads, role.copies.take()
    role.cta.in_flight.append(Delivery(lambda: barrier.arrive(num), earlier, signals=barrier))


def _mbarrier_arrive(role: Role, op: ops.MbarrierArrive) -> None:
    mbarrier_of(role, cta_of(role, op), op).arrive(op.count)


def _mbarrier_wait(role: Role, op: ops.MbarrierWait) -> None:
    barrier, parity = mbarrier_of(role, role.cta, op), op.parity
    role.wait(lambda: barrier.has_passed(parity), barrier)


def _thread_barrier(role: Role, name: str, *, waits: bool) -> None:
    if name not in role.cta.barriers:
        raise LaunchError(f"{role.who} uses barrier {name!r}, which the launch does not declare")
    barrier = role.cta.barriers[name]
    waited = barrier.arrive(role.spec.num_threads)
    if waits:
        role.wait(lambda: barrier.generation >= waited, barrier)


# ---------------------------------------------------------------------------------------------- arithmetic
def _operand(role: Role, op: Any, name: str) -> Array:
    if name not in role.registers:
        role.refuse(op, role.unset(name))
    return role.registers[name]


@lru_cache(maxsize=256)
def _independent(issues: tuple[tuple[int, int, int], ...]) -> tuple[tuple[list[int], ...], ...]:
    """Instructions in order, in groups in which no two add to the same sums: fragments of A, of B, of the sums."""
    lists: list[list[tuple[int, int, int]]] = [[]]
    for issue in issues:
        if any(issue[2] == other[2] for other in lists[-1]):
            lists.append([])
        lists[-1].append(issue)
    return tuple(tuple(map(list, zip(*group, strict=True))) for group in lists)


def _mma_sync(role: Role, op: ops.MmaSync) -> None:
    for access in role.accesses(op, MmaFragments):
        if not access.issues:
            continue
        atom = op.atom
        a = to_matrices(operand_values(_operand(role, op, access.a), atom.a_dtype), atom, "a")
        b = to_matrices(operand_values(_operand(role, op, access.b), atom.a_dtype), atom, "b")
        sums = role.sums(access.sums, atom, access.num_sums)
        for of_a, of_b, fragments in _independent(access.issues):
            sums[:, fragments] = multiply(a[:, of_a], b[:, of_b], sums[:, fragments], atom.acc_dtype)
        role.registers[access.sums] = to_registers(sums, atom, "c")
        if role.cta.watch:
            width = atom.a_dtype.num_bytes
            tags_of_a = to_matrices(role.tags[access.a][:, ::width], atom, "a")
            tags_of_b = to_matrices(role.tags[access.b][:, ::width], atom, "b")
            for warp in range(role.spec.num_warps):
                for a_of, b_of, fragment in access.issues:
                    role.cta.watch.check(
                        f"{role.named(op)}, warp {warp}", atom, (tags_of_a[warp, a_of], tags_of_b[warp, b_of]),
                        access.contracted, (role, access.sums, warp, fragment), role.cta.memory,
                    )


def _wgmma(role: Role, op: ops.Wgmma) -> None:
    accesses, name = role.accesses(op, WgmmaOperands), role.named(op)

    def complete() -> None:
        for access in accesses:
            _multiply_stages(role, op.atom, access, name)

    _launch(role, role.math, role.follow(complete))


def _multiply_stages(role: Role, atom: MmaAtom, access: WgmmaOperands, name: str) -> None:
    memory, width = role.cta.memory, atom.a_dtype.num_bytes
    sums = role.sums(access.sums, atom, access.num_sums)
    for group, issues in enumerate(access.issues):
        for issue in issues:
            places = [memory.addresses(*stage, at, width) for stage, at in ((access.a, issue.a), (access.b, issue.b))]
            a, b = (decode(memory.read(place, storage(atom.a_dtype)), atom.a_dtype) for place in places)
            before = sums[group, issue.fragment]
            sums[group, issue.fragment] = multiply(a, b, before, atom.acc_dtype)
            if role.cta.watch:
                tags = memory.tags[places[0]], memory.tags[places[1]]
                role.cta.watch.check(
                    f"{name}, warpgroup {group}", atom, tags, access.contracted,
                    (role, access.sums, group, issue.fragment), memory,
                )
    role.registers[access.sums] = to_registers(sums, atom, "c")


def _compute(role: Role, op: Any) -> None:
    for access in () if op.data is None else role.accesses(op, Compute, Counter):
        if isinstance(access, Counter):
            _await_count(role, access)
        else:
            access.function(role.registers)


def _await_count(role: Role, access: Counter) -> None:
    bits = role.tensor(access.tensor).bits
    role.wait(lambda: int(bits[access.index]) >= access.awaited, f"{access.awaited} counts in {access.tensor}")


HANDLERS: Mapping[type, Callable[[Role, Any], None]] = MappingProxyType({
    ops.GlobalLoad: _global_load, ops.GlobalStore: _global_store, ops.GlobalAtomic: _global_store,
    ops.Use: lambda role, op: role.use(op.token),
    ops.CpAsync: _cp_async, ops.CpAsyncMbarrierArrive: _arrive_after_copies,
    ops.CpAsyncCommitGroup: lambda role, op: role.copies.commit(),
    ops.CpAsyncWaitGroup: lambda role, op: role.copies.wait(op.num_pending),
    ops.TmaLoad: _tma_load, ops.TmaStore: _tma_store,
    ops.BulkCommitGroup: lambda role, op: role.stores.commit(),
    ops.BulkWaitGroup: lambda role, op: role.stores.wait(op.num_pending),
    ops.MbarrierArrive: _mbarrier_arrive, ops.MbarrierWait: _mbarrier_wait,
    ops.MbarrierArriveExpectTx: lambda role, op: mbarrier_of(role, role.cta, op).arrive(1, op.num_bytes),
    ops.BarSync: lambda role, op: _thread_barrier(role, op.barrier, waits=True),
    ops.BarArrive: lambda role, op: _thread_barrier(role, op.barrier, waits=False),
    ops.Syncthreads: lambda role, op: _thread_barrier(role, "__syncthreads", waits=True),
    ops.ClusterArrive: lambda role, op: role.arrive_at_cluster(),
    ops.ClusterWait: lambda role, op: role.wait_for_cluster(),
    ops.SharedLoad: shared_load, ops.Ldmatrix: shared_load,
    ops.SharedStore: shared_store, ops.Stmatrix: shared_store, ops.SharedAtomic: shared_atomic,
    ops.DsmemLoad: shared_load, ops.DsmemStore: shared_store, ops.StAsync: st_async,
    ops.MmaSync: _mma_sync, ops.Wgmma: _wgmma,
    ops.WgmmaCommitGroup: lambda role, op: role.math.commit(),
    ops.WgmmaWaitGroup: lambda role, op: role.math.wait(op.num_pending),
    ops.RangeStart: _compute, ops.Fma: _compute, ops.Alu: _compute,
})  # fmt: skip
"""Function that carries out an op, by its class."""

WITHOUT_EFFECT = frozenset({
    ops.PrefetchTensormap, ops.FenceProxyTensormap, ops.MbarrierInit, ops.FenceProxyAsync, ops.FenceMbarrierInit,
    ops.FenceAcqRel, ops.WgmmaFence, ops.FetchCode, ops.LoopBody, ops.FetchColdCode, ops.ImadWide, ops.Mufu, ops.Shfl,
    ops.SetMaxNReg, ops.RangeEnd,
})  # fmt: skip
"""Ops that change neither memory nor registers."""
