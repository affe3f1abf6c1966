"""One SM for several of its kind, where CTAs have nothing to do with one another: streams of a million CTAs in a moment."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.config import GpuSpec
from gpusim.machine.dispatcher import GOLDEN, Dispatcher
from gpusim.machine.memory.links import like_gpcs, like_parts, parts_of_gpcs
from gpusim.machine.sm.occupancy import Occupancy
from gpusim.simulate.uses import Uses
from gpusim.workload.launch import Launch

MOST_LIVE_STEPS = 6000
"""Steps of the whole grid up to which all SMs are simulated: that takes some tenth of a second."""

MOST_STEPS = 2700
"""Steps that are simulated, about, where SMs stand for others."""

MOST_WAVES = 12
"""Waves of a grid that are simulated, about, before others are left out."""

MOST_STOOD_FOR = 18
"""SMs that one stands for at most: a GPC."""

MOST_OF_GPCS = 36
"""The same in a grid of many CTAs that store, whose GPCs would have two each: two like GPCs of one side."""

MANY_CTAS = 320
"""CTAs an SM of such a grid: how its last ones end, in smaller lumps or larger ones, is little then."""

BEGIN_AND_END = 2
"""Steps' worth of work that a CTA's begin and end are."""

MOST_KINDS = 16
"""Kinds of CTAs, by what they touch, that are drawn in proportion: insides, edges and corners of some matrices."""

MOST_EDGES = 0.1
"""Of the CTAs, those that are not of the kind of most."""

MANY_WAVES = 100
"""Waves from which on they may be more: some thousand cycles of a grid's end, where edges come last, are little then."""

COMMON_SHARE = 0.25
"""Of L1, what panels that all CTAs read may take: each SM then fetches them once."""


def are_strangers(launch: Launch, gpu: GpuSpec, held: Occupancy, uses: Uses) -> bool:
    """Whether CTAs have nothing in common but what fits into L1: nobody waits for, or merges with, another's request."""
    room_bytes = COMMON_SHARE * (gpu.l1.unified_bytes - launch.smem_bytes * held.ctas_per_sm)
    return launch.cluster_size == 1 and uses.common_bytes() <= room_bytes


def representatives(
    launch: Launch, gpu: GpuSpec, held: Occupancy, uses: Uses, *, num_slots: int, num_ctas: int
) -> Mapping[int, int]:
    """SMs to simulate, and for how many each stands: of a large grid of strangers with equal shares; else none.

    The last CTA's share may be another: nobody stands for it, so it must not be of the first wave. Other shares, of edge
    tiles, are drawn in proportion: see :class:`Draw`.

    Models: an SM's own parts as they are; of what SMs share (slices, links, HBM, stores, dispatch and exits) each takes the
    turns of all for whom it stands: neighbours in the order of dispatch, of one GPC and, where they store, of parts of it
    with as many SMs, with as many CTAs in the first wave. In a grid of many CTAs that store like GPCs of one side are one.
    Ignores: how those for whom one stands drift apart; what links of GPCs that are one leave each other.
    """
    if not are_strangers(launch, gpu, held, uses):
        return {}
    if not uses.are_even() and not _are_edges_few(uses.kinds(), num_ctas / num_slots):
        return {}
    if uses.has_ragged_end() and num_ctas <= num_slots:
        return {}
    steps = BEGIN_AND_END + sum(item.num_steps for item in launch.footprints)
    if steps * launch.num_tiles <= MOST_LIVE_STEPS:
        return {}
    floorplan = gpu.floorplan
    slots = Dispatcher(
        gpu.dispatcher, floorplan=floorplan, cluster_size=1, ctas_per_sm=held.ctas_per_sm, num_ctas=num_ctas
    ).slots[: min(num_slots, num_ctas)]
    num_first = np.bincount([sms[0] for sms in slots], minlength=gpu.num_sms).tolist()
    steps_of_waves = steps * len(slots) * min(launch.num_tiles / len(slots), MOST_WAVES)
    stores = any(item.access != "read" for item in launch.footprints)
    are_one = stores and launch.num_tiles >= MANY_CTAS * gpu.num_sms
    most = min(MOST_OF_GPCS if are_one else MOST_STOOD_FOR, ceil(steps_of_waves / MOST_STEPS))
    lone = frozenset(floorplan.lone)
    parts, _ = like_parts(
        parts_of_gpcs(floorplan.gpc_of_sm, gpu.xbar.num_gpc_parts if stores else 1),
        like_gpcs(floorplan) if are_one else floorplan.gpc_of_sm,
    )
    kinds: dict[tuple[tuple[int, int], bool, int], list[int]] = {}
    for sm_idx in dict.fromkeys(sms[0] for sms in slots):
        kinds.setdefault((parts[sm_idx], sm_idx in lone, num_first[sm_idx]), []).append(sm_idx)
    alike: dict[int, int] = {}
    for sms_of_kind in kinds.values():
        for group in np.array_split(sms_of_kind, -(-len(sms_of_kind) // most)):
            members = group.tolist()
            first = slots[0][0]  # CTA 0's, whose timeline is kept
            alike[first if first in members else members[len(members) // 2]] = len(members)
    return alike if max(alike.values()) > 1 else {}


def _are_edges_few(kinds: NDArray[np.int64], num_waves: float) -> bool:
    """Whether so many kinds of CTAs can be drawn in proportion.

    >>> _are_edges_few(np.array([0] * 9 + [1]), 4.0), _are_edges_few(np.array([0] * 8 + [1] * 2), 4.0)
    (True, False)
    """
    counts = np.bincount(kinds)
    share = 1.0 - int(counts.max()) / len(kinds)
    return len(counts) <= MOST_KINDS and (share <= MOST_EDGES + 1e-9 or num_waves >= MANY_WAVES)


class Draw:
    """Which CTA an SM runs that stands for several of different kinds: over some draws each kind as often as it is there.

    An SM takes the kind of which most are owed: that have come, and nobody stood for.
    """

    def __init__(self, kinds: NDArray[np.int64]) -> None:
        """``kinds``: int64[num_ctas], from 0 up."""
        self._kinds = kinds
        self._owed = np.zeros(int(kinds.max()) + 1)
        self._waiting: list[list[int]] = [[] for _ in self._owed]
        self._num_draws = 0

    def pass_over(self, first: int, num: int) -> None:
        """CTAs ``first`` and following, ``num`` in all, are left out: others stand for them."""
        self._owed += np.bincount(self._kinds[first : first + num], minlength=len(self._owed))

    def draw(self, first: int, num: int, weight: float) -> int:
        """A CTA that stands for ``weight``, where the turn is at CTAs ``first`` and following, ``num`` in all; none twice.

        >>> draw = Draw(np.array([0, 0, 0, 1] * 4))
        >>> [draw.draw(first, 4, 4.0) % 4 == 3 for first in (0, 4, 8, 12)]
        [False, False, True, False]
        """
        kinds = self._kinds[first : first + num]
        self.pass_over(first, num)
        for kind in np.unique(kinds).tolist():
            found = np.flatnonzero(kinds == kind)
            place = int(self._num_draws * GOLDEN % 1.0 * len(found))  # not always the same, lest it meet a matrix' width
            self._waiting[kind] = [first + int(found[place])]
        self._num_draws += 1
        most = max((kind for kind, waiting in enumerate(self._waiting) if waiting), key=lambda kind: float(self._owed[kind]))
        self._owed[most] -= weight
        return self._waiting[most].pop()
