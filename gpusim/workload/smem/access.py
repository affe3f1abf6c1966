"""Wavefronts of shared-memory accesses, as pure functions of their byte addresses.

In: addresses of warps. Out: ``AccessPattern`` records and counts.

Models:
* 32 banks of 4 bytes.
* Phases: groups of 32, 16 or 8 lanes that are served together, depending on the access width.
* One wavefront for each distinct word in the busiest bank of a phase.
* Broadcasts of a word to several lanes, but not for atomics and cp.async, whose lanes queue.
* For cp.async, queues at the banks that lanes read from, too.
* Compare-and-swaps that pass twice.
* Two phases of a 64- or 128-bit load that merge if lanes share addresses in pairs and nothing conflicts.
* 64-bit add, min, max, and, or, xor as SASS implements them: a loop of a load and a compare-and-swap until all lanes have
  swapped.
* ldmatrix and stmatrix by matrices of 8 rows.

Ignores:
* Cycles lost to arbitration.
* Values, which may shorten a loop: a minimum that is smaller already is not swapped. An "and" that changes nothing lets a
  later swap succeed.
* The order of lanes if both sources and destinations of cp.async conflict, which may take more wavefronts.
* cp.async around L1 (.cg), whose writes no wavefront counter shows.

Source: ``SmemOp.evidence``, for each rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError
from gpusim.units import WARP_SIZE, WAVEFRONT_BYTES
from gpusim.workload.smem.lanes import CHUNK_WARPS, busiest, checked_lanes, narrowed
from gpusim.workload.smem.smem_ops import BANK_BYTES, SmemOp, smem_op


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPattern:
    """Requests of a batch of warp instructions to the memory system, summed.

    A field that does not apply to a kind of access is 0: shared-memory accesses have no sectors or lines.

    >>> AccessPattern(num_requests=1, num_sectors=4).scaled(3) + AccessPattern(num_requests=2)
    AccessPattern(num_requests=5, num_sectors=12, num_lines=0, num_wavefronts=0, num_bytes=0)
    """

    num_requests: int = 0
    """Number of warp instructions."""
    num_sectors: int = 0
    """Distinct 32-byte sectors of each request, summed."""
    num_lines: int = 0
    """Distinct 128-byte lines of each request, summed."""
    num_wavefronts: int = 0
    """Wavefronts in the data stage of L1 and shared memory."""
    num_bytes: int = 0
    """Bytes that active lanes transfer; a broadcast counts once for each lane."""

    def scaled(self, times: int) -> AccessPattern:
        """The access repeated ``times`` times.

        Raises:
            LayoutError: ``times`` is negative.
        """
        if times < 0:
            raise LayoutError(f"access pattern: cannot happen {times} times: use 0 or more")
        return AccessPattern(
            num_requests=times * self.num_requests, num_sectors=times * self.num_sectors, num_lines=times * self.num_lines,
            num_wavefronts=times * self.num_wavefronts, num_bytes=times * self.num_bytes,
        )

    def __add__(self, other: AccessPattern) -> AccessPattern:
        """The sum of both accesses."""
        return AccessPattern(
            num_requests=self.num_requests + other.num_requests, num_sectors=self.num_sectors + other.num_sectors,
            num_lines=self.num_lines + other.num_lines, num_wavefronts=self.num_wavefronts + other.num_wavefronts,
            num_bytes=self.num_bytes + other.num_bytes,
        )


def wavefronts(
    op: str, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None,
    sources: NDArray[np.integer[Any]] | None = None,
) -> NDArray[np.int64]:
    """Shared-memory wavefronts of each warp access, int64[...] over the leading axes.

    The counts equal those of Nsight Compute for an instruction (``sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared``).
    ``data_wavefronts`` gives those that the data stage counts: fewer or more for some wide loads.

    Args:
        op: a name in ``gpusim.workload.smem.smem_ops.SMEM_OPS``.
        addresses: int[..., 32], bytes; lane i's address at [..., i]. For ldmatrix and stmatrix, lanes 8i to 8i + 7 give the
            rows of matrix i, and lanes beyond the last matrix are ignored.
        active: bool[..., 32], or None for all; inactive lanes are ignored. No active lane, no wavefront.
        sources: for cp.async, byte addresses in global memory, in the shape of ``addresses``; None: contiguous.

    Models, Ignores, Source: see the module and ``SmemOp.evidence`` of ``smem_ops``.

    >>> lanes = np.arange(32)
    >>> [int(wavefronts("ld_shared_b32", 4 * stride * lanes)) for stride in (0, 1, 2, 32, 33)]
    [1, 1, 2, 32, 1]
    >>> int(wavefronts("ld_shared_b128", 16 * lanes)), int(wavefronts("ld_shared_b128", 16 * (lanes // 2)))
    (4, 2)

    Raises:
        LayoutError: unknown op, wrong shape, an address misaligned or negative, or a lane inactive in
            ldmatrix or stmatrix.
    """
    if sources is None:
        return _counted(op, addresses, active, is_data=False)
    rule = smem_op(op)
    if not op.startswith("cp_async"):
        raise LayoutError(f"{op}: is given sources, which only cp.async has: leave them out")
    addresses, mask = _checked_access(rule, addresses, active)
    sources, _ = checked_lanes(f"{op}, sources", sources, active, rule.access_bytes, WARP_SIZE)
    if sources.shape != addresses.shape:
        raise LayoutError(f"{op}: sources have shape {sources.shape}: use {addresses.shape}, as the addresses have")
    masks = None if mask is None else mask.reshape(-1, WARP_SIZE)
    written, read = (_units(rule, of.reshape(-1, WARP_SIZE), masks) for of in (addresses, sources))
    return np.asarray(_copied(rule, written, read).sum(axis=-1).reshape(addresses.shape[:-1]), dtype=np.int64)


def data_wavefronts(
    op: str, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Wavefronts as L1's data stage counts them (``l1tex__data_pipe_lsu_wavefronts_mem_shared``), int64[...].

    They equal ``wavefronts`` except for 64- and 128-bit loads, and for the loads of loops. There, two neighbouring phases
    are one, including conflicts, if all lanes share addresses in pairs. Pairs are i and i ^ 1, or i and i ^ 2. An inactive
    lane pairs with any lane. Arguments and errors: see ``wavefronts``.

    Source: NVIDIA developer forum 260900, validation/published/shared_wavefronts.csv.
    Measured: H200, validation/measured/h200_sxm/shared_access.csv: all 3,720 wide loads exact in ``..._op_ld``.

    >>> lanes = np.arange(32)
    >>> pairs = 16 * (lanes // 2 % 4) * 8  # eight vectors, all in one bank
    >>> int(wavefronts("ld_shared_b128", pairs)), int(data_wavefronts("ld_shared_b128", pairs))
    (16, 8)
    """
    return _counted(op, addresses, active, is_data=True)


def _counted(
    op: str, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None, *, is_data: bool
) -> NDArray[np.int64]:
    rule = smem_op(op)
    addresses, mask = _checked_access(rule, addresses, active)
    rows = addresses.reshape(-1, WARP_SIZE)[:, : rule.num_lanes]
    masks = None if mask is None else mask.reshape(-1, WARP_SIZE)[:, : rule.num_lanes]
    counted = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), CHUNK_WARPS):
        step = np.s_[start : start + CHUNK_WARPS]
        counted[step] = _count(rule, rows[step], None if masks is None else masks[step], is_data=is_data)
    return counted.reshape(addresses.shape[:-1])


def loop_rounds(op: str, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Round of an atomic's loop in which each lane succeeds, int64[..., 32], from 1; 0 for inactive lanes.

    Arguments and errors: see ``wavefronts``.

    >>> lanes = np.arange(32)
    >>> loop_rounds("atom_shared_add_b64", 8 * (lanes // 2))[:6].tolist()
    [1, 2, 1, 2, 1, 2]

    Raises:
        LayoutError: an instruction that is no loop.
    """
    rule = smem_op(op)
    if not rule.is_loop:
        raise LayoutError(f"loop rounds: {op} is one instruction: use a 64-bit atomic other than exch and cas")
    addresses, mask = _checked_access(rule, addresses, active)
    rows = addresses.reshape(-1, WARP_SIZE)
    rounds, _ = _looped(rule, rows, None if mask is None else mask.reshape(rows.shape))
    return rounds.reshape(addresses.shape)


def lane_groups(
    op: str, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None = None, *, is_free: bool = False
) -> NDArray[np.int64]:
    """Group of lanes that are served together, int64[..., 32]: groups numbered from 0; -1 for inactive lanes.

    The wavefronts of an access are the sum over its groups, times ``num_passes``. A merged group has the number of its first
    phase. A loop is one group.

    Args:
        op: see ``wavefronts``.
        addresses: see ``wavefronts``.
        active: see ``wavefronts``.
        is_free: merge phases that would merge without bank conflicts.

    >>> lanes = np.arange(32)
    >>> [lane_groups("ld_shared_b128", 16 * (lanes // pair))[::8].tolist() for pair in (1, 2)]
    [[0, 1, 2, 3], [0, 0, 2, 2]]
    """
    rule = smem_op(op)
    addresses, mask = _checked_access(rule, addresses, active)
    lanes_per_group = WARP_SIZE if rule.is_loop else rule.lanes_per_phase
    group = np.broadcast_to(np.arange(WARP_SIZE) // lanes_per_group, addresses.shape)
    if rule.is_merging:
        rows = addresses.reshape(-1, WARP_SIZE)
        masks = None if mask is None else mask.reshape(-1, WARP_SIZE)
        if is_free:
            one = _may_merge(rows, masks, 2 * rule.lanes_per_phase)
        else:
            one, _ = _merged(rule, rows, masks, _units(rule, rows, masks))
        by_lane = one.repeat(2 * rule.lanes_per_phase, axis=-1).reshape(addresses.shape)
        group = np.where(by_lane, group & ~1, group)
    counts = np.zeros(addresses.shape, dtype=np.bool_)
    counts[..., : rule.num_lanes] = True
    return np.where(counts if mask is None else counts & mask, group, -1)


def _checked_access(
    rule: SmemOp, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None
) -> tuple[NDArray[np.integer[Any]], NDArray[np.bool_] | None]:
    if rule.is_collective and active is not None and not np.all(active):
        raise LayoutError(f"{rule.name}: a lane is inactive: all {WARP_SIZE} lanes must execute it together")
    return checked_lanes(rule.name, addresses, active, rule.access_bytes, rule.num_lanes)


def _is_paired(rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_] | None, num_lanes: int) -> NDArray[np.bool_]:
    """Whether lanes share addresses in pairs (i, i ^ 1) or (i, i ^ 2) in each group of ``num_lanes``; bool[num_warps, ...].

    An inactive lane pairs with any lane. A pair needs one result, so a wavefront returns two registers of all lanes.
    """
    found = np.zeros((len(rows), rows.shape[-1] // num_lanes), dtype=np.bool_)
    for distance in (1, 2):
        shape = (*found.shape, num_lanes // (2 * distance), 2, distance)
        pairs = rows.reshape(shape)
        agrees = pairs[..., 0, :] == pairs[..., 1, :]
        if mask is not None:
            both = mask.reshape(shape)
            agrees |= ~(both[..., 0, :] & both[..., 1, :])
        found |= agrees.all(axis=(-1, -2))
    return found


def _merged(
    rule: SmemOp, rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_] | None, units: NDArray[np.integer[Any]],
    *, is_data: bool = False,
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Pairs of neighbouring phases that merge, bool[num_warps, num_phases / 2], and the wavefronts of the merged ones."""
    width = 2 * rule.lanes_per_phase
    found = np.empty((len(rows), WARP_SIZE // width), dtype=np.bool_)
    found[:] = _is_paired(rows, mask, WARP_SIZE) if is_data else _may_merge(rows, mask, width)
    fewest = np.zeros(found.shape, dtype=np.int64)
    num_banks = WAVEFRONT_BYTES // rule.access_bytes
    fewest[found] = busiest(units.reshape(*found.shape, width)[found], num_banks, is_broadcasting=True)
    if not is_data:
        found &= fewest <= 1
    return found, np.where(found, fewest, 0)


def _may_merge(rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_] | None, width: int) -> NDArray[np.bool_]:
    """Whether the lanes of each ``width`` permit their two phases to merge if there is no conflict, bool[num_warps, ...].

    The last ``width`` lanes permit it if they are paired; an inactive lane pairs with any. Earlier groups permit it if they
    are paired and in each pair either both lanes or none are active. They also do, for any addresses, if lane 31 is
    inactive.
    """
    found = _is_paired(rows, mask, width)
    if mask is not None and width < WARP_SIZE:
        before = np.s_[:, : WARP_SIZE - width]
        found[:, :-1] = _is_paired(np.where(mask[before], rows[before], -1), None, width) | ~mask[:, -1:]
    return found


def _count(
    rule: SmemOp, rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_] | None, *, is_data: bool = False
) -> NDArray[np.int64]:
    """Wavefronts of each row of int[num_warps, num_lanes]. ``is_data``: as the data stage counts them."""
    if rule.is_loop:
        return _looped(rule, rows, mask, is_data=is_data)[1]
    units = _units(rule, rows, mask)
    by_phase = _by_phase(rule, units)
    if rule.is_merging:
        is_merged, fewest = _merged(rule, rows, mask, units, is_data=is_data)
        by_two = by_phase.reshape(*is_merged.shape, 2).sum(axis=-1)
        by_phase = np.where(is_merged, fewest, by_two)
    return np.asarray(rule.num_passes * by_phase.sum(axis=-1), dtype=np.int64)


def _looped(
    rule: SmemOp, rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_] | None, *, is_data: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rounds in which the lanes of int[num_warps, 32] succeed, from 1, and the wavefronts of all rounds.

    Inactive lanes have round 0. In a round, all remaining lanes load. Then in each phase the first lane of each bank swaps,
    in two wavefronts a phase. A lane does not succeed if an earlier phase of the round has changed its word.
    """
    load, swap = smem_op(f"ld_shared_b{8 * rule.access_bytes}"), smem_op(f"atom_shared_cas_b{8 * rule.access_bytes}")
    rounds, total = np.zeros(rows.shape, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    left = np.ones(rows.shape, dtype=np.bool_) if mask is None else mask.copy()
    units = rows // rule.access_bytes
    at = np.flatnonzero(left.any(axis=-1))
    num = 0
    while len(at):
        num += 1
        asking = left[at].reshape(len(at), swap.num_phases, swap.lanes_per_phase)
        total[at] += _count(load, rows[at], left[at], is_data=is_data) + swap.num_passes * asking.any(axis=-1).sum(axis=-1)
        won = _swapped(units[at].reshape(asking.shape), asking).reshape(len(at), WARP_SIZE)
        rounds[at] += num * won
        left[at] &= ~won
        at = at[left[at].any(axis=-1)]
    return rounds, total


def _swapped(units: NDArray[np.integer[Any]], asking: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Lanes whose swaps succeed in one round, bool[num_warps, num_phases, lanes]."""
    num_lanes = units.shape[-1]
    bank = units % num_lanes  # the number of lanes in a phase equals the number of banks of their width
    earlier = np.tril(np.ones((num_lanes, num_lanes), dtype=np.bool_), -1)
    queues = (bank[..., :, None] == bank[..., None, :]) & asking[..., None, :] & earlier
    won: NDArray[np.bool_] = asking & ~queues.any(axis=-1)
    for phase in range(1, units.shape[1]):
        before = won[:, :phase].reshape(len(won), -1)
        words = units[:, :phase].reshape(len(won), -1)
        changed = (units[:, phase, :, None] == words[:, None, :]) & before[:, None, :]
        won[:, phase] &= ~changed.any(axis=-1)
    return won


def _by_phase(rule: SmemOp, units: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Units in the busiest bank of each phase, int64[num_warps, num_phases]."""
    by_phase = units.reshape(len(units), rule.num_phases, rule.lanes_per_phase)
    num_banks = WAVEFRONT_BYTES // max(BANK_BYTES, rule.access_bytes)
    return np.asarray(busiest(by_phase, num_banks, is_broadcasting=rule.is_broadcasting), dtype=np.int64)


def _copied(rule: SmemOp, written: NDArray[np.integer[Any]], read: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Wavefronts of each phase of copies of units ``read`` to units ``written``, int64[num_warps, num_phases].

    If lanes queue only at the source or only at the destination, that queue counts. Otherwise each wavefront serves some of
    the remaining lanes: the last lane on each destination bank and, among these, the first on each source bank. Source: the
    order with the fewest inexact rows of kernels/cp_async_access, h200_sxm.
    """
    queues = np.maximum(_by_phase(rule, written), _by_phase(rule, read))
    shape = (-1, rule.lanes_per_phase)
    both = ((_by_phase(rule, written) > 1) & (_by_phase(rule, read) > 1)).reshape(-1)
    num_banks = WAVEFRONT_BYTES // max(BANK_BYTES, rule.access_bytes)
    to, of = written.reshape(shape)[both], read.reshape(shape)[both]
    to_banks, of_banks = to % num_banks, of % num_banks
    left, counted = to >= 0, np.zeros(len(to), dtype=np.int64)
    lane = np.arange(rule.lanes_per_phase)
    alike_to = to_banks[:, :, None] == to_banks[:, None, :]
    alike_of = of_banks[:, :, None] == of_banks[:, None, :]
    while left.any():
        counted += left.any(axis=1)
        is_last = left & ~(alike_to & left[:, None, :] & (lane[None, None, :] > lane[None, :, None])).any(axis=2)
        left &= ~(is_last & ~(alike_of & is_last[:, None, :] & (lane[None, None, :] < lane[None, :, None])).any(axis=2))
    found = queues.reshape(-1)
    found[both] = counted
    return np.asarray(found.reshape(queues.shape), dtype=np.int64)


def _units(rule: SmemOp, rows: NDArray[np.integer[Any]], mask: NDArray[np.bool_] | None) -> NDArray[np.integer[Any]]:
    """Words or full vectors that lanes access; -1 for inactive lanes. 32-bit integers if the values fit, for faster sorting.

    An aligned unit fills all of its banks, so units conflict exactly if their words do.
    """
    units = narrowed(rows // max(BANK_BYTES, rule.access_bytes))
    return units if mask is None else np.where(mask, units, -1)
