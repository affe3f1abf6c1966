"""Which tiles are in L2 when they are asked for: worked out before the run, or found while it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.component import MemoryRequest

CERTAIN = 1e-3
"""A share below counts as none, one above 1 less this as all."""
MOST_PASSES = 64
"""Launches before a warm one, at most; it is enough that one more would change nothing."""
LONG_AGO = -1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelUse:
    """Who touches what of one tensor: panel_of_tile int64[num_tiles], bytes_of_tile int64[num_tiles] (its panel's)."""

    tensor: str
    is_write: bool
    panel_of_tile: NDArray[np.int64]
    bytes_of_tile: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Loss:
    """What of a tile's lines is not where it would be near, by side; shares of all its lines."""

    memory: tuple[float, ...]
    """Of the lines at home on each side: L2 has them nowhere."""
    crossing: tuple[float, ...]
    """For readers of each side: lines at home on the other one of which theirs has no copy."""
    is_of_reader: bool = False
    """Whether it was worked out for the reader's side alone, and readers of another one have what they had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The sides of L2, each of which keeps the lines at home on it and copies of those that its SMs read.

    Args:
        num: how many; with two, half of the lines are at home on each.
        side_bytes: what one holds.
        spread: how gradually lines are lost around that; 0: all at once.
    """

    num: int
    side_bytes: float
    spread: float

    def lost_share(self, between_bytes: Any) -> Any:
        """Part of the lines lost where ``between_bytes`` (one or an array) were touched on their side since.

        The least recently used leave, and ``spread`` says how evenly lines fall on sets.

        >>> Sides(num=1, side_bytes=100.0, spread=0.0).lost_share(np.array([100.0, 101.0])).tolist()
        [0.0, 1.0]
        >>> Sides(num=2, side_bytes=100.0, spread=0.05).lost_share(np.array([50.0, 95.0, 100.0, 200.0])).round(3).tolist()
        [0.0, 0.269, 0.5, 1.0]
        """
        beyond = np.asarray(between_bytes) / self.side_bytes - 1.0
        if not self.spread:
            return (beyond > 0.0).astype(np.float64)
        share = 1.0 / (1.0 + np.exp(-np.clip(beyond / self.spread, -50.0, 50.0)))
        return np.where(share < CERTAIN, 0.0, np.where(share > 1.0 - CERTAIN, 1.0, share))


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelTraffic:
    """What one tensor costs below L2."""

    losses: Mapping[int, Mapping[int, Loss]]
    """For each panel the waves whose first request for it finds lines missing, and which."""
    read_miss_bytes: float
    written_back_fraction: float
    written_back_bytes: float
    """Of distinct bytes stored, those that leave L2 before the end."""
    miss_bytes_by_wave: NDArray[np.float64]
    """Bytes from memory, float64[num_waves]."""
    touched_bytes_by_wave: NDArray[np.float64]
    """Bytes of distinct panels that each wave touches, float64[num_waves]."""


def panel_traffic(
    uses: Sequence[PanelUse],
    wave_of_tile: NDArray[np.int64],
    *,
    sides: Sides,
    side_of_tile: NDArray[np.int64] | None = None,
    is_warm: bool,
) -> dict[str, PanelTraffic]:
    """Classify the first request of each wave for each panel: what of it is near, across, or in memory only.

    A wave is what runs at once; its tiles walk their panels slice by slice together, so between two waves that
    touch the same slice lie all bytes that the waves between them touch on that side: what its SMs read or store, and
    the home places of what the other side reads. A store takes the home place, and one on its own side where it goes
    across. A home place that only copies are read of ages slowly: within a launch it keeps its room, but earlier
    launches (``is_warm``) have worn it out, and it is renewed only by readers that have lost their copy.

    Args:
        uses: one entry for each tensor; arrays int64[num_tiles].
        wave_of_tile: int64[num_tiles].
        sides: what L2 holds.
        side_of_tile: int64[num_tiles], whose SMs a tile runs on; needed where there are two.
        is_warm: earlier launches have done the same, until one more changes nothing; between two launches' touches of a
            line lie all bytes of one.
    """
    num_waves = int(wave_of_tile.max()) + 1
    if side_of_tile is None:
        side_of_tile = np.zeros_like(wave_of_tile)
    tables = [_Table.of(use, wave_of_tile, side_of_tile, num_waves, sides.num) for use in uses]
    now = np.zeros(sides.num)
    before = -1.0
    for _ in range(MOST_PASSES if is_warm else 0):
        begun = now
        now = _walk(tables, sides, now, num_waves, is_warm)
        missed = sum(float(table.missed.sum()) for table in tables) + float((now - begun).sum())
        if abs(missed - before) <= CERTAIN * missed:
            break
        before = missed
    begun = now
    now = _walk(tables, sides, now, num_waves, is_warm)
    total = float((now - begun).mean())
    return {table.use.tensor: table.traffic(sides, total) for table in tables}


@dataclass(slots=True, kw_only=True)
class _Table:
    """One tensor's touches, wave by wave, and when its lines were touched last."""

    use: PanelUse
    waves: list[tuple[NDArray[np.int64], NDArray[np.float64], list[NDArray[np.bool_]]]]
    """For each wave its panels, their bytes, and for each side whether its SMs touch them."""
    touched_at: list[list[NDArray[np.float64]]]
    """By home, by side, by panel: bytes touched on that side before the lines were touched there last."""
    own: NDArray[np.float64]
    missed: NDArray[np.float64]
    losses: dict[int, dict[int, Loss]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, use: PanelUse, wave_of_tile: NDArray[np.int64], side_of_tile: NDArray[np.int64], num_waves: int, num_sides: int
    ) -> _Table:
        """Nothing of it has been touched."""
        span = int(use.panel_of_tile.max()) + 1
        pairs, first, of_tile = np.unique(
            wave_of_tile * span + use.panel_of_tile, return_index=True, return_inverse=True
        )
        waves, panels, num_bytes = pairs // span, pairs % span, use.bytes_of_tile[first].astype(np.float64)
        by_side = []
        for side in range(num_sides):
            touches = np.zeros(len(pairs), dtype=np.bool_)
            touches[of_tile[side_of_tile == side]] = True
            by_side.append(touches)
        bounds = np.searchsorted(waves, np.arange(num_waves + 1)).tolist()
        return cls(
            use=use,
            waves=[
                (panels[a:b], num_bytes[a:b], [touches[a:b] for touches in by_side])
                for a, b in pairwise(bounds)
            ],
            touched_at=[[np.full(span, LONG_AGO) for _ in range(num_sides)] for _ in range(num_sides)],
            own=np.bincount(waves, weights=num_bytes, minlength=num_waves).astype(np.float64),
            missed=np.zeros(num_waves),
        )

    def touch(
        self, wave: int, began: NDArray[np.float64], now: NDArray[np.float64], sides: Sides, *, wears_out: bool
    ) -> NDArray[np.float64]:
        """Look at what is lost, and touch it; returns the bytes touched on each side.

        ``began``: those touched before the launch. ``wears_out``: a home place is not renewed by readers of copies.
        """
        panels, num_bytes, by_side = self.waves[wave]
        of_home = num_bytes / sides.num
        added = np.zeros(sides.num)
        memory: list[NDArray[np.float64]] = []
        crossing = [np.zeros(len(panels)) for _ in range(sides.num)]
        for home in range(sides.num):
            at_home, here = self.touched_at[home][home], by_side[home]
            lost = sides.lost_share(_between(at_home[panels], began[home], now[home]))
            fetched = here.astype(np.float64)  # part of the home places that is touched
            missing = np.where(here, lost, 0.0)
            for other in range(sides.num):
                if other == home:
                    continue
                there, copies = by_side[other], self.touched_at[home][other]
                if self.use.is_write:
                    across = there.astype(np.float64)
                else:
                    across = sides.lost_share(_between(copies[panels], began[other], now[other]))
                    crossing[other] = crossing[other] + np.where(there, across, 1.0) / sides.num
                    missing = np.where(here, missing, np.maximum(missing, np.where(there, np.minimum(lost, across), 0.0)))
                    across = np.where(there, across if wears_out else 1.0, 0.0)
                fetched = np.maximum(fetched, across)
                copies[panels[there]] = now[other]
                added[other] += float(of_home[there].sum())
            memory.append(missing / sides.num)
            at_home[panels] += fetched * (now[home] - at_home[panels])
            added[home] += float((of_home * fetched).sum())
        if self.use.is_write:
            return added
        share = np.sum(memory, axis=0)
        self.missed[wave] = float((share * num_bytes).sum())
        asked = [np.where(touches, part, 0.0) for touches, part in zip(by_side, crossing, strict=True)]
        worst = np.max([share, *asked], axis=0)
        for idx in np.flatnonzero(worst > 0.0).tolist():
            self.losses.setdefault(int(panels[idx]), {})[wave] = Loss(
                tuple(float(part[idx]) for part in memory), tuple(float(part[idx]) for part in crossing)
            )
        return added

    def traffic(self, sides: Sides, total: float) -> PanelTraffic:
        """What the last launch has found; ``total`` bytes were touched on each side."""
        stored = float(self.own.sum()) if self.use.is_write else 0.0
        leaving = max(0.0, 1.0 - sides.side_bytes / total) if stored else 0.0
        return PanelTraffic(
            losses=self.losses, read_miss_bytes=float(self.missed.sum()), written_back_fraction=leaving,
            written_back_bytes=leaving * stored, miss_bytes_by_wave=self.missed, touched_bytes_by_wave=self.own,
        )


def _walk(
    tables: Sequence[_Table], sides: Sides, now: NDArray[np.float64], num_waves: int, is_warm: bool
) -> NDArray[np.float64]:
    """One launch, from ``now`` on: bytes touched on each side; returns where it ends."""
    began = now
    for table in tables:
        table.losses = {}
    for wave in range(num_waves):
        now = now + sum((table.touch(wave, began, now, sides, wears_out=is_warm) for table in tables), np.zeros(sides.num))
    for table in tables:
        for of_home in table.touched_at:
            for of_side, at in zip(of_home, began.tolist(), strict=True):
                np.minimum(of_side, at, out=of_side)
    return now


def _between(touched_at: NDArray[np.float64], began: float, now: float) -> NDArray[np.float64]:
    """Bytes since lines were touched last; up to the launch's begin where that was before it."""
    return np.where(touched_at < began, began, now) - touched_at


class PlannedResidency:
    """Residency as :func:`panel_traffic` worked it out; tiles are (panel, step)."""

    def __init__(self, traffic: Mapping[str, PanelTraffic], *, num_sides: int = 1) -> None:
        """``traffic``: one entry for each tensor."""
        self._losses = {tensor: dict(of_tensor.losses) for tensor, of_tensor in traffic.items()}
        self._written_back = {tensor: of_tensor.written_back_fraction for tensor, of_tensor in traffic.items()}
        self._whole = whole_loss(num_sides)

    def loss(self, request: MemoryRequest, last_wave: int, side: int) -> Loss | None:
        """What is missing if nobody has asked for the tile since the wave began; None: nothing."""
        wave = request.wave
        if last_wave >= wave:
            return None
        panels = self._losses.get(request.tensor)
        if panels is None:  # not in the plan (a bias vector): read once from memory
            return self._whole if last_wave < 0 else None
        waves = panels.get(request.tile[0])  # type: ignore[index]  # a tile is (panel, step)
        if waves is None:
            return None
        found = waves.get(wave)
        if found is None and last_wave < 0 and min(waves) <= wave:  # waves that were skipped would have fetched it
            return waves[min(waves)]
        return found

    def is_planned(self, tensor: str) -> bool:
        """Whether the plan knows what ``tensor`` costs."""
        return tensor in self._losses

    def written_back_fraction(self, tensor: str) -> float:
        """Part of the stored bytes that leaves L2 before the end."""
        return self._written_back.get(tensor, 0.0)


def whole_loss(num_sides: int) -> Loss:
    """All lines are in memory alone."""
    return Loss((1.0 / num_sides,) * num_sides, (1.0 - 1.0 / num_sides,) * num_sides)


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

    def written_back_fraction(self, tensor: str) -> float:
        """Nothing is written back before the end."""
        return 0.0
