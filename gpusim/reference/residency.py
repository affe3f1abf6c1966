"""What L2 holds: known beforehand, where a launch says what its tiles touch, or found while it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.machine.memory.panels import PanelTraffic, PanelUse
from gpusim.machine.memory.traffic import panel_traffic
from gpusim.workload.launch import Launch
from gpusim.workload.ops import Tile


@dataclass(slots=True)
class Request:
    """What one SM asks of memory at once: a tile, or the part of one that a role's warps want."""

    sm_idx: int
    tensor: str
    tile: Tile
    num_bytes: float
    wave: int
    """How many-th work tile of its slot asks."""
    issued_at: float
    """When the first byte is asked for: the present, or later."""
    come_along: tuple[Tile, ...] = ()
    """Tiles of the same tensor that L2 fetches together with this one."""
    num_loads: int = 0
    """Of each thread; 0: it is asked for as a whole."""
    asked_until: float = 0.0
    """When the last of these loads is issued."""


class Residency(Protocol):
    """Says what L2 has."""

    def lacks(self, request: Request, last_wave: int) -> bool:
        """Whether a tile has to come from memory that was fetched in ``last_wave`` (-1: never)."""
        ...

    def is_planned(self, tensor: str) -> bool:
        """Whether a plan knows of ``tensor``."""
        ...

    def leaving_fraction(self, tensor: str, wave: int) -> float:
        """What of ``tensor`` goes back to memory while ``wave`` runs, over what the wave stores to it."""
        ...


def residency(launch: Launch, gpu: GpuSpec, *, num_at_once: int, is_warm: bool) -> Residency:
    """That of a launch of which so many CTAs run at once."""
    if launch.footprints:
        return Planned(traffic_plan(launch, gpu, num_at_once=num_at_once, is_warm=is_warm))
    return LeastRecentlyUsed(gpu.l2_sides.side_bytes, is_warm=is_warm)


def traffic_plan(launch: Launch, gpu: GpuSpec, *, num_at_once: int, is_warm: bool) -> dict[str, PanelTraffic]:
    """What of each tensor is missing when each wave asks for it: the machine's plan, which knows no time."""
    tiles = np.arange(launch.num_tiles, dtype=np.int64)
    uses = []
    for item in launch.footprints:
        if item.table_bytes or item.block_bytes is not None:
            raise LaunchError(
                f"{launch.kernel}: {item.tensor} is read at random or by single sectors, which is beyond the core; "
                "use another engine"
            )
        uses.append(
            PanelUse(
                tensor=item.tensor, is_write=item.access == "write", panel_of_tile=item.panel_of(tiles),
                bytes_of_tile=item.panel_bytes(tiles), num_passes=item.num_passes, cache_hint=item.cache_hint,
            )
        )
    sides = gpu.l2_sides
    if launch.set_aside_bytes:
        sides = replace(sides, last_bytes=float(launch.set_aside_bytes))
    return panel_traffic(uses, tiles // num_at_once, sides=sides, is_warm=is_warm)


class Planned:
    """As a plan says. Tiles are (panel, step); a tensor that it does not know comes from memory once."""

    def __init__(self, plan: Mapping[str, PanelTraffic]) -> None:
        """One entry for each tensor."""
        self._plan = plan
        self._num_walks: dict[tuple[str, Tile], int] = {}
        self._leaving = {tensor: leaving_fractions(item) for tensor, item in plan.items() if item.written_back_bytes}

    def lacks(self, request: Request, last_wave: int) -> bool:
        """Whether the first of a wave, or a later walk over its panel, finds it missing."""
        item = self._plan.get(request.tensor)
        if item is None:
            return last_wave < 0
        panel, wave = request.tile[0], request.wave
        if last_wave >= wave:
            walk = self._num_walks.get((request.tensor, request.tile), 0)
            if walk >= len(item.losses_again) or not any(item.losses_again):
                return False
            self._num_walks[request.tensor, request.tile] = walk + 1
            return wave in item.losses_again[walk].get(panel, {})
        waves = item.losses.get(panel, {})
        return wave in waves or (last_wave < 0 and bool(waves) and min(waves) <= wave)

    def is_planned(self, tensor: str) -> bool:
        """Whether the plan knows of it."""
        return tensor in self._plan

    def leaving_fraction(self, tensor: str, wave: int) -> float:
        """As planned."""
        shares = self._leaving.get(tensor, [0.0])
        return shares[min(wave, len(shares) - 1)]


def leaving_fractions(item: PanelTraffic) -> list[float]:
    """What of a tensor leaves L2 while each wave runs, over what the wave stores to it.

    What leaves while nobody stores leaves with the next who does, and at last with the last who did.
    """
    stored, leaving = item.touched_bytes_by_wave.tolist(), item.written_back_by_wave.tolist()
    storing = [wave for wave, num_bytes in enumerate(stored) if num_bytes > 0.0]
    found, begin = [0.0] * len(stored), 0
    for wave in storing:
        end = len(stored) if wave == storing[-1] else wave + 1
        found[wave] = sum(leaving[begin:end]) / stored[wave]
        begin = end
    return found


class LeastRecentlyUsed:
    """Tiles that were asked for last stay. What is stored goes back to memory after the kernel's end."""

    def __init__(self, capacity_bytes: float, *, is_warm: bool) -> None:
        """``is_warm``: what has never left is there."""
        self._capacity, self._is_warm = capacity_bytes, is_warm
        self._held: OrderedDict[tuple[str, Tile], float] = OrderedDict()
        self._left: set[tuple[str, Tile]] = set()
        self._num_bytes = 0.0

    def lacks(self, request: Request, last_wave: int) -> bool:
        """It is there afterwards."""
        key = (request.tensor, request.tile)
        is_held = key in self._held or (self._is_warm and key not in self._left)
        self._num_bytes += request.num_bytes - self._held.pop(key, 0.0)
        self._held[key] = request.num_bytes
        while self._num_bytes > self._capacity and len(self._held) > 1:
            gone, num_bytes = self._held.popitem(last=False)
            self._num_bytes -= num_bytes
            self._left.add(gone)
        return not is_held

    def is_planned(self, tensor: str) -> bool:
        """Nothing is."""
        return False

    def leaving_fraction(self, tensor: str, wave: int) -> float:
        """Nothing leaves."""
        return 0.0
