"""A time that no prediction of a launch can beat, from a launch and a GPU alone: nothing is simulated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpusim.machine.config import GpuSpec
from gpusim.machine.numeric import sum_in_order
from gpusim.simulate.door import check, peak_flops_per_cycle
from gpusim.simulate.uses import Uses
from gpusim.units import Clock
from gpusim.workload.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a launch cannot be faster than, and what that rests on."""

    time_us: float
    part: str
    """The part whose work takes so long: ``tensor``, ``sm_intake``, ``l2``, ``hbm`` or ``launch``."""


def lower_bound(launch: Launch, gpu: GpuSpec, *, is_cold: bool = True) -> Bound:
    """The least time of ``launch`` on ``gpu``, at any clock; never above what :func:`gpusim.simulate` answers.

    Models: each part's whole work at its peak rate and the highest clock, nothing in the way: the SM with the most tiles
    multiplies its tiles (where all tiles are alike, else the mean); an SM takes in what TMA brings to it; slices of L2 serve
    every request that cannot merge; memory gives every line that is read once, if L2 is cold. Launch and drain come on top.
    Ignores: latencies, waits, epilogues, what is written; loads of threads, of which L1 may hold some; arithmetic beside the
    tensor cores.

    Raises:
        LaunchError: the GPU cannot run it.
    """
    check(launch, gpu)
    uses = Uses.of(launch, gpu)
    clock = Clock(sm_mhz=gpu.clock.max_mhz)
    size = launch.cluster_size
    num_sms = gpu.floorplan.num_clusters(size) * size
    alike = bool(uses.of_tensors) and uses.are_even() and not uses.has_ragged_end()
    most_tiles = -(-launch.num_tiles // num_sms) if alike else launch.num_tiles / num_sms
    cycles = {"launch": 0.0}
    peak = peak_flops_per_cycle(launch, gpu) / gpu.num_sms
    if peak and launch.features & {"wgmma", "mma_sync"}:
        cycles["tensor"] = launch.num_flops / launch.num_tiles * most_tiles / peak
    reads = [use for use in uses.of_tensors if not use.is_write]
    if "tma" in launch.features:
        asked = float(sum(use.bytes_of_tile.sum() for use in reads if use.tensor not in uses.fetch_scales))
        l2, xbar = gpu.l2, gpu.xbar
        most_merged = max(1, xbar.merge_limit if xbar.merge_scope != "sm" else 1) * size
        slices = l2.num_slices * l2.slice_bytes_per_cycle * l2.sustained_fraction
        cycles["l2"] = asked / most_merged / slices
        cycles["sm_intake"] = asked / num_sms / size / xbar.sm_read_bytes_per_cycle
    if is_cold and reads:
        once = sum_in_order(_bytes_once(use.panel_of_tile, use.bytes_of_tile) for use in reads if not use.table_bytes)
        cycles["hbm"] = once / clock.bytes_per_cycle(gb_per_s=max(gpu.hbm.peak_gb_per_s, gpu.hbm.sustained_read_gb_per_s))
    part = max(cycles, key=lambda name: cycles[name])
    fixed = gpu.dispatcher.launch_cycles + gpu.dispatcher.drain_cycles
    return Bound(time_us=clock.time_us(cycles=cycles[part] + fixed), part=part)


def _bytes_once(panels: np.typing.NDArray[np.int64], num_bytes: np.typing.NDArray[np.int64]) -> float:
    """Bytes of all panels, each taken once.

    >>> _bytes_once(np.array([0, 1, 0]), np.array([8, 4, 8]))
    12.0
    """
    _, first = np.unique(panels, return_index=True)
    return float(num_bytes[first].sum())
