"""Counters of all parts of the machine: the engine writes them, a summary reads them.

A field that a Spec's module defines by ``ncu("...")``, for example in :mod:`gpusim.machine.memory.l1`, has that name in
``result.counters``. ``docs/extend.md`` says how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple, get_type_hints

from gpusim.machine.component import Counters
from gpusim.machine.memory.dsmem import DsmemCounters
from gpusim.machine.memory.hbm import HbmCounters
from gpusim.machine.memory.l1 import L1Counters
from gpusim.machine.memory.l2 import L2Counters
from gpusim.machine.memory.smem import SmemCounters
from gpusim.machine.memory.tma import TmaCounters
from gpusim.machine.memory.xbar import XbarCounters
from gpusim.machine.sm.tensor_core import TensorCoreCounters
from gpusim.machine.sm.warp_scheduler import WarpSchedulerCounters


class PartCounters(NamedTuple):
    """Counters of each part, over all SMs."""

    hbm: HbmCounters
    l2: L2Counters
    xbar: XbarCounters
    l1: L1Counters
    smem: SmemCounters
    tma: TmaCounters
    dsmem: DsmemCounters
    warp_scheduler: WarpSchedulerCounters
    tensor_core: TensorCoreCounters

    @classmethod
    def of(cls, parts: Mapping[str, Mapping[str, float]]) -> PartCounters:
        """From the numbers of each part, by name; 0 for those that are not there."""
        made: Any = {name: kind(**parts.get(name, {})) for name, kind in KINDS.items()}
        return cls(**made)

    @property
    def slices_busy_bytes(self) -> float:
        """Bytes that the slices could have served in the time that they took for reads."""
        xbar = self.xbar
        return xbar.read_bytes * xbar.carried_bytes / xbar.asked_bytes if xbar.asked_bytes else 0.0


KINDS: Mapping[str, type[Counters]] = get_type_hints(PartCounters)

COUNTERS: Mapping[str, tuple[str, ...]] = {part: tuple(item.name for item in fields(kind)) for part, kind in KINDS.items()}
"""Names of the counters of each part, in the order in which the engine has them."""
