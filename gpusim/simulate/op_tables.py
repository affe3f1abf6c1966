"""Cost rows of ops on a GPU, independent of place and time: TMA, wgmma, mma.sync, FMA, code of loops, fetches.

In: ops as a trace has them, a launch, a GPU and its constants. Out: tables of ``program/records.py``.

Models:

* A copy's cycles in its TMA engine, its latency and its rows of zeros.
* A wgmma as the larger of arithmetic, operand reads and a minimal interval.
* A mma.sync as the larger of arithmetic and a minimal interval.

Ignores:

* Costs that depend on the time of an op, or on concurrent ops: the engine computes these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.machine.memory.tma import TmaSpec
from gpusim.machine.sm.tensor_core import K_STEP_BYTES
from gpusim.program.costs import TmaLoadRow
from gpusim.program.records import TABLES
from gpusim.units import LINE_BYTES, SECTOR_BYTES
from gpusim.workload import ops
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.gmem.line_fetches import Fetches
from gpusim.workload.launch import Launch
from gpusim.workload.smem.wgmma_operands import wgmma_wavefronts

Table = NDArray[np.void]
Row = tuple[float, ...]
"""Fields of a record, in order."""

FIRST_ZERO_ROWS = 64
"""Rows outside of a tensor, of a box partly inside, that cost more than further ones.

Source: kernels/edges_beside_loads (l2), h100_sxm, 2026-11-25. With 128 SMs and four stages: 10 to 12 cycles each up to 64
rows, 1 to 9 beyond. With two stages: 8 to 13 each, without such a limit."""


def table_of(name: str, rows: Sequence[Row]) -> Table:
    """Table of complete records."""
    return np.array([tuple(row) for row in rows], dtype=TABLES[name])  # numpy would turn named tuples into rows of one field


def tma_load_row(gpu: GpuSpec, spec: TmaSpec, row: TmaLoadRow, *, port_bytes_per_cycle: float) -> Row:
    """Fields of ``tma_loads``. ``port_bytes_per_cycle``: rate at which an SM reads when it has the L2 slices alone."""
    op = row.op
    num_requests = op.num_rows if op.fetches is None else max(op.num_rows, op.fetches.num_requests)
    walked = max(num_requests * spec.row_cycles, op.num_bytes / spec.bytes_per_cycle)
    more = max(0.0, walked - op.num_bytes / port_bytes_per_cycle)
    lines = op.num_bytes / LINE_BYTES
    if lines < op.num_rows:  # narrow rows lie in separate lines
        more += _spread_cycles(gpu, op.num_rows) - _spread_cycles(gpu, lines)
    num_lines = max(op.num_fetched_bytes / LINE_BYTES, float(num_requests - op.num_zero_rows))
    zero_bytes, carried_bytes = oob_row_bytes(op, spec)
    counted = zero_bytes + (op.num_fetched_bytes if op.fetches is None else op.fetches.num_crossing * SECTOR_BYTES)
    return (
        walked, spec.latency_cycles + more, num_lines, op.num_bytes,
        op.num_fetched_bytes, op.num_rows, op.num_boxes, zero_bytes, carried_bytes, int(op.num_zero_rows > 0),
        op.new_fraction, row.fetches, row.ranks_begin, row.num_ranks, row.neighbours_begin, row.num_neighbours,
        counted * max(1, len(op.multicast)),
    )  # fmt: skip


def _spread_cycles(gpu: GpuSpec, num_lines: float) -> float:
    """Cycles that the last of ``num_lines`` takes beyond the mean."""
    return gpu.l2.slice_spread_cycles * (num_lines - 1.0) / (num_lines + 1.0) if num_lines > 1.0 else 0.0


def tma_store_row(spec: TmaSpec, op: ops.TmaStore) -> Row:
    """Fields of ``tma_stores``."""
    more_bytes = op.num_boxes * spec.store_header_bytes + mask_bytes(op)
    return op.num_bytes, op.num_boxes, op.num_boxes * spec.store_box_cycles, more_bytes, int(op.reduce)


def oob_row_bytes(op: ops.TmaLoad, spec: TmaSpec) -> tuple[float, float]:
    """Bytes of a copy's rows outside of its tensor, and the bytes that take as much of the slices' time."""
    if not op.num_zero_rows:
        return 0.0, 0.0
    num_bytes = op.num_bytes / op.num_rows * op.num_zero_rows
    in_part = op.num_zero_rows - op.num_outside_rows if op.num_fetched_bytes else 0
    num_boxes = op.num_boxes * (1.0 - op.num_outside_rows / op.num_rows)
    first = min(in_part, FIRST_ZERO_ROWS * num_boxes)
    carried = spec.oob_row_bytes * first + spec.oob_box_row_bytes * (op.num_zero_rows - first)
    return num_bytes, max(num_bytes, carried)


def mask_bytes(op: ops.TmaStore) -> float:
    """Bytes of port time that partly stored sectors, one in each row, take beyond their data."""
    num_rows = max(op.num_rows, 1)
    rest = op.num_bytes / num_rows % SECTOR_BYTES
    return num_rows * (2 * SECTOR_BYTES - rest) if rest else 0.0


def fetches_row(fetches: Fetches, *, misaligned_coalesce_fraction: float) -> Row:
    """Fields of ``fetches``: bytes of a tile that cross, are read and can be coalesced, relative to its requested bytes."""
    less = 1.0 - misaligned_coalesce_fraction
    if not (fetches.num_bytes and fetches.num_crossing and fetches.num_reads and fetches.num_requests):
        return 1.0, 1.0, 1.0, 0.0, 1.0, fetches.num_sectors, fetches.num_bytes  # no request
    return (
        fetches.num_crossing * SECTOR_BYTES / fetches.num_bytes, fetches.num_reads / fetches.num_crossing,
        (fetches.num_shared - less * fetches.num_torn) / fetches.num_reads, fetches.num_requests,
        (fetches.num_shared_requests - less * fetches.num_torn_requests) / fetches.num_requests, fetches.num_sectors,
        fetches.num_bytes,
    )  # fmt: skip


def wgmma_row(launch: Launch, gpu: GpuSpec, op: ops.Wgmma, num_warpgroups: int, num_warps: int) -> Row:
    """Fields of ``wgmmas``. Raises LaunchError: an instruction that the GPU lacks."""
    spec, atom = gpu.tensor_core, op.atom
    _check_rate(launch, gpu, atom, spec.wgmma_flops_per_cycle, "states no wgmma rate")
    wavefronts, rate = float(wgmma_wavefronts(atom)), spec.wgmma_smem_wavefronts_per_cycle
    arithmetic = atom.num_flops / spec.wgmma_flops_per_cycle[atom.rate_class]
    each = spec.wgmma_cycles(rate_class=atom.rate_class, num_flops=atom.num_flops, num_wavefronts=wavefronts)
    start = spec.wgmma_register_a_cycles if atom.a_source == "registers" else spec.wgmma_smem_a_cycles
    tail = max(start + arithmetic, wavefronts / rate) + spec.wgmma_overhead_cycles - each
    free = max(each - wavefronts / rate, spec.wgmma_min_free_wavefronts / rate) / each
    num_issues = op.num_issues * num_warpgroups
    return (
        num_issues * each, tail, spec.wgmma_max_queued * each, free, num_issues * wavefronts,
        op.num_issues * num_warps, op.num_between,
    )  # fmt: skip


def _check_rate(launch: Launch, gpu: GpuSpec, atom: MmaAtom, rates: Mapping[str, float], lacks: str) -> None:
    if atom.rate_class not in rates:
        raise LaunchError(f"{launch.kernel}: {gpu.name} {lacks} for {atom.rate_class}, it has {', '.join(rates)}")


def mma_sync_row(launch: Launch, gpu: GpuSpec, atom: MmaAtom) -> Row:
    """Fields of ``mma_syncs``. Raises LaunchError: a data type that the GPU's mma.sync does not take."""
    spec = gpu.tensor_core
    _check_rate(launch, gpu, atom, spec.mma_sync_flops_per_cycle, "has no mma.sync")
    per_sub_core = spec.mma_sync_flops_per_cycle[atom.rate_class] / gpu.warp_scheduler.num_schedulers
    added = atom.accumulator_registers * spec.mma_sync_accumulate_cycles.get(atom.rate_class, 0.0)
    interval = max(atom.num_flops / per_sub_core + added, spec.mma_sync_min_interval_cycles)
    k_bytes = atom.k * atom.a_dtype.bits / 8
    shallow = (1.0 - k_bytes / K_STEP_BYTES) * 2.0 * spec.mma_sync_step_latency_cycles
    return interval, spec.mma_sync_latency_cycles - shallow, int(atom.rate_class == "int8")


def fma_row(gpu: GpuSpec, op: ops.Fma) -> Row:
    """Fields of ``fmas``: an FFMA takes more issue slots where its registers lie in one bank."""
    turns = op.bank_reads / gpu.warp_scheduler.bank_reads_per_cycle
    return op.num_instructions, turns if turns > 1.0 else 1.0, op.num_runs


def loop_body_row(gpu: GpuSpec, op: ops.LoopBody) -> Row:
    """Fields of ``loop_bodies``: instructions of one iteration, and the cycles in which a scheduler issues them."""
    turns = max(1.0, op.bank_reads / gpu.warp_scheduler.bank_reads_per_cycle)
    return op.num_fma + op.num_others, op.num_fma * turns + op.num_others
