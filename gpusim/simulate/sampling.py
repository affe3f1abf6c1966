"""A sample of the SMs instead of all: whole GPCs, with what they share scaled down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import GOLDEN, Dispatcher
from gpusim.machine.memory.panels import distinct
from gpusim.machine.sm.occupancy import Occupancy
from gpusim.workload.launch import Launch

RUN, RUNS_MIXED = 4, 3
"""Clusters that fall to one GPC of RUNS_MIXED times as many that follow each other, where slots are filled again.

Source: all SMs simulated, 14 drawn GEMMs: a third of the CTAs one to four numbers apart run in one GPC, an eighth of those
sixteen apart."""

MIXED_SEED = 1
"""How they are mixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Which CTAs are simulated, on what."""

    gpu: GpuSpec
    """The GPU with as many SMs as are simulated, and its shared parts scaled to them."""
    order: NDArray[np.int64] | None
    """CTAs in the order in which they are dispatched; None: all, as numbered."""
    fraction: float
    """SMs simulated, of all."""
    fill_scales: Mapping[str, Sequence[float]]
    """For each tensor and wave the part of a fill's bytes that the sample pays for: fewer SMs share each fill than would."""


def sample_sms(
    launch: Launch, gpu: GpuSpec, held: Occupancy, *, num_sms: int | None, num_slots: int, num_ctas: int
) -> Sample:
    """So many SMs, or more: whole GPCs of both sides of L2, those whose size is nearest the mean; None takes all.

    Models: CTAs keep the places that they have on the whole device, later ones lie as if slots of other GPCs fell free, too;
    links of GPCs have their rates; slices, stores, HBM and the dispatch rate are scaled to the share of SMs; a fill is as
    long as it is, and pays what its share of all the CTAs that use it is; what others have read in an earlier wave is there.
    Ignores: that CTAs beyond the sample fetch tiles for it early; that GPCs of other sizes read at another pace, and that
    the slowest ends a persistent grid; that SMs of several GPCs keep what they share busier than those of one in step.

    Raises:
        LaunchError: a launch without footprints, or a number of SMs that makes no sense.
    """
    if num_sms is None or num_sms == gpu.num_sms:
        return Sample(gpu=gpu, order=None, fraction=1.0, fill_scales={})
    if not 1 <= num_sms <= gpu.num_sms:
        raise LaunchError(f"sample of {num_sms} SMs, wants 1 to {gpu.num_sms}")
    if not launch.footprints:
        raise LaunchError(f"{launch.kernel}: a launch without footprints cannot be sampled; simulate all SMs")
    size = launch.cluster_size
    floorplan = gpu.floorplan
    taken = frozenset(floorplan.sample(num_sms, has_clusters=size > 1))
    sms_taken = frozenset(sm_idx for sm_idx, gpc_idx in enumerate(floorplan.gpc_of_sm) if gpc_idx in taken)
    count = len(sms_taken)
    if count == gpu.num_sms:
        return Sample(gpu=gpu, order=None, fraction=1.0, fill_scales={})
    fraction = count / gpu.num_sms
    whole = Dispatcher(
        gpu.dispatcher, floorplan=floorplan, cluster_size=size, ctas_per_sm=held.ctas_per_sm, num_ctas=num_ctas
    )
    places = [idx for idx, sms in enumerate(whole.slots) if sms_taken.issuperset(sms)]
    first_ctas = (np.array(places, dtype=np.int64)[:, None] * size + np.arange(size)).ravel()
    order = _order(launch, first_ctas, num_slots=num_slots, num_ctas=num_ctas)
    xbar, l2, hbm, dispatcher = gpu.xbar, gpu.l2, gpu.hbm, gpu.dispatcher
    scaled = replace(
        gpu,
        device=replace(
            gpu.device, num_sms=count, lone_sms=0,
            gpc_sides=tuple(gpu.device.gpc_sides[gpc_idx] for gpc_idx in sorted(taken)),
            gpcs=Counter(str(floorplan.gpc_of_sm.count(gpc_idx)) for gpc_idx in taken),
        ),
        l2=replace(
            l2, slice_bytes_per_cycle=l2.slice_bytes_per_cycle * fraction,
            link_bytes_per_cycle=l2.link_bytes_per_cycle * fraction,
        ),
        xbar=replace(xbar, write_bytes_per_cycle=xbar.write_bytes_per_cycle * fraction),
        hbm=replace(
            hbm, peak_gb_per_s=hbm.peak_gb_per_s * fraction, sustained_read_gb_per_s=hbm.sustained_read_gb_per_s * fraction,
            sustained_write_gb_per_s=hbm.sustained_write_gb_per_s * fraction,
        ),
        dispatcher=replace(
            dispatcher, dispatch_cycles_per_cta=dispatcher.dispatch_cycles_per_cta / fraction,
            retire_cycles_per_cta=dispatcher.retire_cycles_per_cta / fraction,
            cluster_retire_cycles_per_cta=dispatcher.cluster_retire_cycles_per_cta / fraction,
        ),
    )
    scales = _fill_scales(launch, order, at_once=min(num_slots, num_ctas))
    return Sample(gpu=scaled, order=order, fraction=fraction, fill_scales=scales)


def _order(launch: Launch, first_ctas: NDArray[np.int64], *, num_slots: int, num_ctas: int) -> NDArray[np.int64]:
    """CTAs of the slots of ``first_ctas``: later ones as they fall on slots; of a last wave that is not full one cluster."""
    if launch.num_ctas is None:
        return first_ctas[first_ctas < num_ctas]
    is_taken = np.zeros(num_slots, dtype=np.bool_)
    is_taken[first_ctas] = True
    order = np.flatnonzero(is_taken[slots_of_ctas(launch.cluster_size, num_slots=num_slots, num_ctas=num_ctas)])
    last = num_ctas // num_slots * num_slots
    if num_ctas > max(last, num_slots) and order[-1] < last:
        order = np.append(order, np.arange(last, last + launch.cluster_size))
    return order


def slots_of_ctas(size: int, *, num_slots: int, num_ctas: int) -> NDArray[np.int64]:
    """The slot of each CTA, int64[num_ctas], of clusters of ``size``.

    The first wave's lie in the order in which SMs are filled. SMs of one GPC that wait for the same lines end together, and
    so do those of others: of some following clusters a run falls to each of some GPCs, mixed, and which GPCs these are goes
    by multiples of the golden section.
    """
    found = np.arange(num_ctas, dtype=np.int64) % num_slots
    num_clusters = num_slots // size
    run = gcd(RUN, num_clusters)
    num_runs = num_clusters // run
    if num_ctas <= num_slots or num_runs < 2:
        return found
    step = max(1, round(num_runs * GOLDEN))
    while gcd(step, num_runs) > 1:
        step += 1
    cluster, rank = np.divmod(np.arange(num_slots, num_ctas, dtype=np.int64), size)
    num_mixed = RUNS_MIXED * run
    windows = np.arange(-(-len(cluster) // (size * num_mixed)) + 1)
    keys = np.random.default_rng(MIXED_SEED).random((len(windows), num_mixed))
    places = np.argsort(keys, axis=1)
    window, idx = np.divmod(cluster - num_clusters, num_mixed)
    turn = (window * RUNS_MIXED + places[window, idx] // run) % num_runs
    of_run = turn * pow(step, -1, num_runs) % num_runs  # neighbours' turns are a golden section of a wave apart
    found[num_slots:] = (of_run * run + places[window, idx] % run) * size + rank
    return found


def _fill_scales(launch: Launch, order: NDArray[np.int64], *, at_once: int) -> dict[str, list[float]]:
    """For each tensor that is read and each wave: CTAs that share a panel in the sample, over those of all."""
    tiles = np.arange(launch.num_tiles, dtype=np.int64)
    num_waves = -(-launch.num_tiles // at_once)
    is_seen = np.zeros(launch.num_tiles, dtype=np.bool_)
    if launch.num_ctas is None:
        is_seen[:] = np.isin(tiles % at_once, order)
    else:
        is_seen[order] = True
    wave = tiles // at_once
    of_wave, seen_of_wave = (np.bincount(part, minlength=num_waves) for part in (wave, wave[is_seen]))
    scales: dict[str, list[float]] = {}
    for item in launch.footprints:
        if item.access == "read":
            panels = item.panel_of(tiles)
            keys = wave * (int(panels.max()) + 1) + panels
            width = int(panels.max()) + 1
            all_panels, seen_panels = (
                np.bincount(distinct(part) // width, minlength=num_waves) for part in (keys, keys[is_seen])
            )
            share = seen_of_wave / of_wave * all_panels / np.maximum(seen_panels, 1)
            scales[item.tensor] = np.minimum(1.0, share).tolist()
    return scales
