"""Tables of what a GPU has several of, as the engine takes them: SMs, links, partitions of L2, slots of CTAs.

In: a GpuSpec (as :func:`gpusim.simulate.ideal.idealize` gives it), a Clock, the few facts of a launch that matter.
Out: tables of ``program/records.py``. No part of the machine is built.

What depends on hashable Specs alone is kept from call to call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import GOLDEN
from gpusim.machine.floorplan import Floorplan
from gpusim.machine.memory.links import parts_of_gpcs, side_shares
from gpusim.machine.numeric import sum_in_order
from gpusim.machine.sm.warp_scheduler import own_paces
from gpusim.program.records import TABLES
from gpusim.simulate.constants import KEPT, Placement, Shared, links_of, slots_of, weights_of
from gpusim.units import Clock

Table = NDArray[np.void]
Scalar = TypeVar("Scalar", bound=np.generic)


def machine_tables(gpu: GpuSpec, clock: Clock, at: Placement) -> dict[str, NDArray[Any]]:
    """The tables ``partitions``, ``gpc_links``, ``write_links`` and ``sms``, and the array ``slots``."""
    shared, floorplan = Shared.of(gpu, clock), gpu.floorplan
    slots = slots_of(gpu.dispatcher, floorplan, at.cluster_size, at.ctas_per_sm, at.num_ctas)
    sms = _sms(
        floorplan, gpu.xbar.merge_scope, gpu.xbar.num_gpc_parts, gpu.xbar.sm_distance_cycles,
        gpu.instruction_cache.loop_bytes_per_cycle, tuple(gpu.instruction_cache.loop_paces.items()),
    ).copy()
    shares_schedulers = at.ctas_per_sm > 1 and at.num_ctas > gpu.num_sms
    sms["pace"] = _paces(gpu.num_sms, gpu.warp_scheduler.mad_wide_spread_fraction if shares_schedulers else 0.0)
    if at.cluster_size > 1:  # SMs that no cluster fills at first
        sms["num_free_ctas"] = at.ctas_per_sm
        sms["num_free_ctas"][slots] = 0
    recorded = slots[:1].tolist() if at.recorded_sms == "first" else sorted(at.recorded_sms)
    sms["is_recorded"][recorded] = 1
    return {
        "partitions": _partitions(gpu, shared), "gpc_links": _gpc_links(floorplan, shared),
        "write_links": _write_links(floorplan, gpu.xbar.num_gpc_parts, shared), "sms": sms, "slots": slots,
    }


def _partitions(gpu: GpuSpec, shared: Shared) -> Table:
    """A row for each partition; what passes a link that there is not is infinite.

    Link k is that of row k, so that links stand in a row where a partition has no SMs.
    """
    links, num = links_of(gpu, shared), gpu.l2.num_partitions
    shares = side_shares(gpu.floorplan.side_of_sm, gpu.l2.side_lead_fraction)
    found = np.zeros(num, dtype=TABLES["partitions"])
    for side, weight in enumerate(weights_of(gpu)):
        stores = shared.link_bytes_per_cycle * weight / (1.0 - 1.0 / num) if links else inf
        link = links[side] if side < len(links) else inf
        found[side] = shared.slices_bytes_per_cycle * shares.get(side, 0.0), link, stores
    return found


def _gpc_links(plan: Floorplan, shared: Shared) -> Table:
    """A row for each GPC, in the order of their first SMs."""
    gpcs = plan.gpc_of_sm
    found = np.zeros(len(set(gpcs)), dtype=TABLES["gpc_links"])
    for row, gpc_idx in enumerate(dict.fromkeys(gpcs)):
        whole = shared.slices_bytes_per_cycle * gpcs.count(gpc_idx) / len(gpcs)
        found[row] = plan.side_of_sm[gpcs.index(gpc_idx)], shared.gpc_read_bytes_per_cycle, whole
    return found


def _write_links(plan: Floorplan, num_parts: int, shared: Shared) -> Table:
    """A row for each part of a GPC, in the order of their first SMs."""
    gpcs = plan.gpc_of_sm
    rows = {gpc_idx: row for row, gpc_idx in enumerate(dict.fromkeys(gpcs))}
    parts = list(dict.fromkeys(parts_of_gpcs(gpcs, num_parts)))
    found = np.zeros(len(parts), dtype=TABLES["write_links"])
    found["gpc"] = [rows[gpc_idx] for gpc_idx, _ in parts]
    found["width"], found["bytes_per_cycle"] = 1.0, shared.gpc_write_bytes_per_cycle / num_parts
    return found


@lru_cache(maxsize=KEPT)
def _sms(
    plan: Floorplan, merge_scope: str, num_parts: int, sm_distance_cycles: float, loop_bytes_per_cycle: float,
    loop_paces: tuple[tuple[str, float], ...],
) -> Table:
    """A row for each SM, without what depends on the launch."""
    found = np.zeros(plan.num_sms, dtype=TABLES["sms"])
    found["partition"] = plan.side_of_sm
    found["gpc"] = _renumbered(plan.gpc_of_sm)
    found["write_link"] = _renumbered(parts_of_gpcs(plan.gpc_of_sm, num_parts))
    found["merge_region"] = plan.groups(merge_scope)
    found["is_lone"][list(plan.lone)] = 1
    for place, sm_idx in enumerate(plan.in_order()):
        found["distance_cycles"][sm_idx] = sm_distance_cycles * ((place * GOLDEN + 0.5) % 1.0 - 0.5)
    paces = dict(loop_paces)
    mean = sum_in_order(paces.values()) / len(paces)
    found["loop_bytes_per_cycle"] = [loop_bytes_per_cycle * paces.get(str(tpc), mean) for tpc in plan.tpc_of_sm]
    found["cluster_place"] = _renumbered(plan.cluster_groups())
    return _kept(found)


@lru_cache(maxsize=KEPT)
def _paces(num_sms: int, spread: float) -> NDArray[np.float64]:
    return _kept(np.array(own_paces(num_sms, spread), dtype=np.float64))


def _renumbered(names: Sequence[object]) -> list[int]:
    """Numbers from 0 up in place of names, in the order in which they come first.

    >>> _renumbered([7, -1, 7, 3])
    [0, 1, 0, 2]
    """
    numbers: dict[object, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]


def _kept(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """An array that a cache hands out: nobody may change it."""
    array.setflags(write=False)
    return array
