"""Which tiles are in L2 when they are asked for: as was worked out before the run, or found while it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping

import numpy as np

from gpusim.machine.component import MemoryRequest
from gpusim.machine.memory.panels import FloatArray, Loss, PanelTraffic, whole_loss


class PlannedResidency:
    """Residency as :func:`panel_traffic` worked it out; tiles are (panel, step)."""

    def __init__(self, traffic: Mapping[str, PanelTraffic], *, num_sides: int = 1, others_fetch: bool = False) -> None:
        """``traffic``: one entry for each tensor; ``others_fetch``: SMs that are not simulated fetch their tiles, too."""
        self._others_fetch = others_fetch
        self._losses = {tensor: of_tensor.losses for tensor, of_tensor in traffic.items()}
        self._losses_again = {tensor: item.losses_again for tensor, item in traffic.items() if any(item.losses_again)}
        self._num_walks: dict[tuple[str, Hashable], int] = {}
        self._written_back = {
            tensor: shares_of_stores(of_tensor.written_back_by_wave, of_tensor.touched_bytes_by_wave)
            for tensor, of_tensor in traffic.items() if of_tensor.written_back_bytes
        }  # fmt: skip
        self._times_fetched = {
            tensor: of_tensor.times_fetched_by_wave.tolist()
            for tensor, of_tensor in traffic.items() if of_tensor.times_fetched_by_wave is not None
        }  # fmt: skip
        self._whole = whole_loss(num_sides)

    def loss(self, request: MemoryRequest, last_wave: int, side: int) -> Loss | None:
        """What is missing if nobody has asked for the tile since the wave began; None: nothing."""
        wave = request.wave
        if last_wave >= wave:
            return self._loss_again(request) if request.tensor in self._losses_again else None
        panels = self._losses.get(request.tensor)
        if panels is None:  # not in the plan (a bias vector): read once from memory
            return self._whole if last_wave < 0 else None
        waves = panels.get(request.tile[0])  # type: ignore[index]  # a tile is (panel, step)
        if waves is None:
            return None
        found = waves.get(wave)
        if found is None and last_wave < 0 and min(waves) <= wave and not self._others_fetch:
            return waves[min(waves)]  # waves that were skipped would have fetched it
        return found

    def _loss_again(self, request: MemoryRequest) -> Loss | None:
        """What is missing where a tile is asked for again within its wave: a second or later walk over its panel."""
        later, key = self._losses_again[request.tensor], (request.tensor, request.tile)
        walk = self._num_walks.get(key, 0)
        if walk >= len(later):
            return None
        self._num_walks[key] = walk + 1
        waves = later[walk].get(request.tile[0])  # type: ignore[index]  # a tile is (panel, step)
        return None if waves is None else waves.get(request.wave)

    def is_planned(self, tensor: str) -> bool:
        """Whether the plan knows what ``tensor`` costs."""
        return tensor in self._losses

    def times_fetched(self, tensor: str, wave: int) -> float:
        """How often what is missing comes from memory in ``wave``."""
        times = self._times_fetched.get(tensor)
        return 1.0 if times is None else times[min(wave, len(times) - 1)]

    def written_back_fraction(self, tensor: str, wave: int) -> float:
        """Bytes of ``tensor`` that leave L2 while ``wave`` runs, mostly of earlier ones, over what it stores."""
        shares = self._written_back.get(tensor)
        return 0.0 if shares is None else shares[min(wave, len(shares) - 1)]


class LruResidency:
    """Residency found while the kernel runs: on each side the least recently used tiles leave when its room is short.

    For launches that declare no footprint. A tile is on the side of a reader as a whole, and on another one half of it
    (with two sides), the lines at home there, which are touched only when they are fetched.
    """

    def __init__(self, *, side_bytes: float, num_sides: int = 1, is_warm: bool) -> None:
        """``side_bytes``: what a side holds; ``is_warm``: a tile that was never evicted hits."""
        self._side_bytes = side_bytes
        self._num_sides = num_sides
        self._is_warm = is_warm
        self._tiles: list[OrderedDict[tuple[str, Hashable], float]] = [OrderedDict() for _ in range(num_sides)]
        self._copied: list[set[tuple[str, Hashable]]] = [set() for _ in range(num_sides)]
        self._bytes = [0.0] * num_sides
        self._evicted: set[tuple[str, Hashable]] = set()

    def loss(self, request: MemoryRequest, last_wave: int, side: int) -> Loss | None:
        """What the tile lacks; it is there afterwards."""
        key = (request.tensor, request.tile)
        share = 1.0 / self._num_sides
        if self._is_warm and key not in self._evicted and all(key not in tiles for tiles in self._tiles):
            for each in range(self._num_sides):  # both sides have what was there before
                self._touch(key, each, request.num_bytes)
            return None
        has_copy = key in self._copied[side]
        memory = tuple(0.0 if key in tiles else share for tiles in self._tiles)
        if has_copy:
            memory = (0.0,) * self._num_sides
        else:
            for other in range(self._num_sides):
                if other != side:
                    self._touch(key, other, request.num_bytes * share, is_home=True)
        self._touch(key, side, request.num_bytes)
        if has_copy:
            return None
        return Loss(memory, (1.0 - share,) * self._num_sides, is_of_reader=True)

    def _touch(self, key: tuple[str, Hashable], side: int, num_bytes: float, *, is_home: bool = False) -> None:
        tiles = self._tiles[side]
        held = tiles.pop(key, 0.0)
        if not is_home:
            self._copied[side].add(key)
        tiles[key] = kept = max(held, num_bytes) if is_home else num_bytes
        self._bytes[side] += kept - held
        while self._bytes[side] > self._side_bytes and len(tiles) > 1:
            gone, left = tiles.popitem(last=False)
            self._copied[side].discard(gone)
            self._evicted.add(gone)
            self._bytes[side] -= left

    def is_planned(self, tensor: str) -> bool:
        """Nothing is."""
        return False

    def times_fetched(self, tensor: str, wave: int) -> float:
        """Once, each time that it is missed."""
        return 1.0

    def written_back_fraction(self, tensor: str, wave: int) -> float:
        """Nothing is written back before the end."""
        return 0.0


def shares_of_stores(written_back: FloatArray, stored: FloatArray) -> list[float]:
    """What leaves L2 while each wave runs over what it stores; what leaves while nobody stores waits for the next who does.

    Both float64[num_waves], bytes.

    >>> shares_of_stores(np.array([0.0, 2.0, 8.0, 6.0]), np.array([4.0, 4.0, 0.0, 8.0]))
    [0.0, 0.5, 0.0, 1.75]
    """
    waves = np.flatnonzero(stored > 0.0)
    shares = np.zeros(len(stored))
    if len(waves):
        until = np.cumsum(written_back)[waves]
        until[-1] = written_back.sum()
        shares[waves] = np.diff(until, prepend=0.0) / stored[waves]
    return [float(share) for share in shares]
