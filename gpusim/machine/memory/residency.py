"""Which tiles are in L2 when they are asked for: worked out before the run, or found while it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.component import MemoryRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelUse:
    """Who touches what of one tensor: panel_of_tile int64[num_tiles], bytes_of_tile int64[num_tiles] (its panel's)."""

    tensor: str
    is_write: bool
    panel_of_tile: NDArray[np.int64]
    bytes_of_tile: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelTraffic:
    """What one tensor costs below L2."""

    missed_waves: Mapping[int, frozenset[int]]
    """For each panel the waves whose first request for it goes to memory."""
    read_miss_bytes: float
    written_back_fraction: float
    written_back_bytes: float
    """Of distinct bytes stored, those that leave L2 before the end."""
    miss_bytes_by_wave: NDArray[np.float64]
    """Bytes from memory, float64[num_waves]."""
    touched_bytes_by_wave: NDArray[np.float64]
    """Bytes of distinct panels that each wave touches, float64[num_waves]."""
    num_sharers: float
    """Work tiles of one wave that walk the same panel, on average."""


def panel_traffic(
    uses: Sequence[PanelUse],
    wave_of_tile: NDArray[np.int64],
    *,
    capacity_bytes: float,
    shared_capacity_bytes: float,
    is_warm: bool,
) -> dict[str, PanelTraffic]:
    """Classify the first request of each wave for each panel: from memory, or still resident.

    A wave is what runs at once; its tiles walk their panels slice by slice together, so between two waves that
    touch the same slice lie all bytes that the waves between them touch. A slice is resident when these fit. Panels
    that several tiles of a wave share are kept on both sides of L2 and see ``shared_capacity_bytes``.

    Args:
        uses: one entry for each tensor; arrays int64[num_tiles].
        wave_of_tile: int64[num_tiles].
        capacity_bytes: what L2 holds of lines that one side reads.
        shared_capacity_bytes: what it holds of lines that both sides read.
        is_warm: an earlier launch has touched everything, the last bytes last.
    """
    num_waves = int(wave_of_tile.max()) + 1
    touched = np.zeros(num_waves, dtype=np.float64)  # bytes that each wave touches
    touches: list[tuple[PanelUse, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    for use in uses:
        span = int(use.panel_of_tile.max()) + 1
        pairs, first = np.unique(wave_of_tile * span + use.panel_of_tile, return_index=True)
        waves, panels, num_bytes = pairs // span, pairs % span, use.bytes_of_tile[first]
        np.add.at(touched, waves, num_bytes)
        touches.append((use, waves, panels, num_bytes))
    before = np.concatenate([[0.0], np.cumsum(touched)])  # bytes touched before each wave
    total = float(before[-1])
    traffic: dict[str, PanelTraffic] = {}
    for use, all_waves, all_panels, all_bytes in touches:
        sharers = len(wave_of_tile) / len(all_waves)
        own = _by_wave(all_waves, all_bytes, num_waves)
        limit = shared_capacity_bytes if sharers > 1.5 else capacity_bytes
        if use.is_write:
            stored = float(use.bytes_of_tile.sum())
            leaving = max(0.0, 1.0 - capacity_bytes / total) if total else 0.0
            traffic[use.tensor] = PanelTraffic(
                missed_waves={}, read_miss_bytes=0.0, written_back_fraction=leaving if stored else 0.0,
                written_back_bytes=leaving * float(own.sum()),
                miss_bytes_by_wave=np.zeros(num_waves), touched_bytes_by_wave=own, num_sharers=sharers,
            )
            continue
        order = np.lexsort((all_waves, all_panels))
        waves, panels, num_bytes = all_waves[order], all_panels[order], all_bytes[order]
        is_first = np.concatenate([[True], panels[1:] != panels[:-1]])
        previous = np.concatenate([[0], waves[:-1]])
        distance = before[waves] - before[previous]
        first_misses = total > limit if is_warm else True
        is_miss = np.where(is_first, first_misses, distance > limit)
        missed: dict[int, set[int]] = {}
        for panel, wave in zip(panels[is_miss].tolist(), waves[is_miss].tolist(), strict=True):
            missed.setdefault(panel, set()).add(wave)
        traffic[use.tensor] = PanelTraffic(
            missed_waves={panel: frozenset(of_panel) for panel, of_panel in missed.items()},
            read_miss_bytes=float(num_bytes[is_miss].sum()), written_back_fraction=0.0, written_back_bytes=0.0,
            miss_bytes_by_wave=_by_wave(waves[is_miss], num_bytes[is_miss], num_waves),
            touched_bytes_by_wave=own, num_sharers=sharers,
        )
    return traffic


def _by_wave(waves: NDArray[np.int64], num_bytes: NDArray[np.int64], num_waves: int) -> NDArray[np.float64]:
    """Bytes summed for each wave."""
    return np.bincount(waves, weights=num_bytes, minlength=num_waves).astype(np.float64)


class PlannedResidency:
    """Residency as :func:`panel_traffic` worked it out; tiles are (panel, step)."""

    def __init__(self, traffic: Mapping[str, PanelTraffic]) -> None:
        """``traffic``: one entry for each tensor."""
        self._missed = {tensor: dict(of_tensor.missed_waves) for tensor, of_tensor in traffic.items()}
        self._written_back = {tensor: of_tensor.written_back_fraction for tensor, of_tensor in traffic.items()}

    def misses(self, request: MemoryRequest, last_wave: int) -> bool:
        """Whether nobody has fetched the tile since the wave began, and it did not stay from before."""
        wave = request.wave
        if last_wave >= wave:
            return False
        panels = self._missed.get(request.tensor)
        if panels is None:  # not in the plan (a bias vector): read once from memory
            return last_wave < 0
        waves = panels.get(request.tile[0])  # type: ignore[index]  # a tile is (panel, step)
        if waves is None:
            return False
        if wave in waves:
            return True
        return last_wave < 0 and min(waves) <= wave  # waves that were skipped would have fetched it

    def is_planned(self, tensor: str) -> bool:
        """Whether the plan knows what ``tensor`` costs."""
        return tensor in self._missed

    def written_back_fraction(self, tensor: str) -> float:
        """Part of the stored bytes that leaves L2 before the end."""
        return self._written_back.get(tensor, 0.0)


class LruResidency:
    """Residency found while the kernel runs: the least recently used tiles leave when capacity is short.

    For launches that declare no footprint.
    """

    def __init__(self, *, capacity_bytes: float, is_warm: bool) -> None:
        """``capacity_bytes``: what is resident at most; ``is_warm``: a tile that was never evicted hits."""
        self._capacity = capacity_bytes
        self._is_warm = is_warm
        self._tiles: OrderedDict[tuple[str, Hashable], float] = OrderedDict()
        self._evicted: set[tuple[str, Hashable]] = set()
        self._bytes = 0.0

    def misses(self, request: MemoryRequest, last_wave: int) -> bool:
        """Whether the tile is not resident; it is afterwards."""
        key = (request.tensor, request.tile)
        held = self._tiles.pop(key, None)
        self._tiles[key] = request.num_bytes
        self._bytes += request.num_bytes - (held or 0.0)
        while self._bytes > self._capacity and len(self._tiles) > 1:
            gone, num_bytes = self._tiles.popitem(last=False)
            self._evicted.add(gone)
            self._bytes -= num_bytes
        if held is not None:
            return False
        return not self._is_warm or key in self._evicted

    def is_planned(self, tensor: str) -> bool:
        """Nothing is."""
        return False

    def written_back_fraction(self, tensor: str) -> float:
        """Nothing is written back before the end."""
        return 0.0
