"""Tile rasterization orders: tiles of a wave, bytes of each tensor at L2 and DRAM, and a comparison of orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.machine.exact_math import sum_in_order
from gpusim.simulate.constants import slots_of
from gpusim.simulate.plan import at_slots, plan_launch, waves_of_tiles
from gpusim.traffic.footprints import first_of
from gpusim.workload.launch import Footprint, Launch

IntArray = NDArray[np.int64]
TIE = 5e-3
"""Relative difference in bytes below which two orders are equally good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBytes:
    """Bytes of one tensor in one wave."""

    tensor: str
    access: str
    asked: int
    """Bytes that all work tiles request: what SMs receive or store."""
    requested: int
    """Bytes requested from L2, where the CTAs of a cluster multicast to one another."""
    merged: int
    """Bytes requested from L2 after the coalescer.

    It joins as many requests of a group of SMs for one line as it can."""
    unique: int
    """Bytes of all touched lines, each once."""
    memory: float
    """Bytes read from DRAM; for a stored tensor, bytes written to it at the launch's mean."""

    @property
    def reuse(self) -> float:
        """Requests per line."""
        return self.asked / self.unique if self.unique else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOfTiles:
    """L2 and DRAM bytes of one order of tiles."""

    group: int
    direction: str
    dram_read_bytes: float
    dram_written_bytes: float
    asked_bytes: float
    """Bytes that all SMs read."""
    l2_read_bytes: float
    """Bytes read at L2, with as many requests coalesced as possible."""
    wave_unique_bytes: float
    """Bytes of all lines read in a full wave, each line once; mean over the full waves."""

    @property
    def hit_pct(self) -> float:
        """Percent of the bytes that SMs read that do not come from DRAM."""
        return 100.0 * (1.0 - self.dram_read_bytes / self.asked_bytes) if self.asked_bytes else 0.0

    @property
    def l2_hit_pct(self) -> float:
        """Percent of the bytes read at L2 that do not come from DRAM, if neighbours' requests are coalesced."""
        return 100.0 * (1.0 - self.dram_read_bytes / self.l2_read_bytes) if self.l2_read_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Orders of tiles, and the best of them."""

    orders: tuple[OrderOfTiles, ...]
    best: OrderOfTiles
    least_bytes: float
    """Bytes of all lines that are read, each line once."""
    makes_no_difference: bool
    reason: str


class Raster:
    """Tiles of a launch: position in the grid, wave, SM, and the panels that a wave touches.

    Rows of the grid are panels of the first tensor that is read (A), columns are those of the second (B).
    """

    def __init__(self, launch: Launch, gpu: GpuSpec, *, is_warm: bool = False) -> None:
        """Plan the L2 and DRAM traffic.

        Raises:
            LaunchError: this GPU cannot run the launch, or the launch has no footprints.
        """
        if not launch.footprints:
            raise LaunchError(f"{launch.kernel}: its launch has no footprints, so nobody knows what its tiles touch")
        plan = plan_launch(launch, gpu, is_warm=is_warm)
        self.launch, self.gpu, self.num_at_once, self.traffic = launch, gpu, plan.num_at_once, plan.traffic
        self.ctas_per_sm = plan.occupancy.ctas_per_sm
        self.tiles = tiles = plan.footprints.tiles
        self.wave_of_tile = waves_of_tiles(launch.num_tiles, self.num_at_once)
        self.num_waves = int(self.wave_of_tile[-1]) + 1
        sm_of_slot = slots_of(gpu.dispatcher, gpu.floorplan, launch.cluster_size, self.ctas_per_sm, plan.num_ctas)
        self.sm_of_tile: IntArray = at_slots(launch, sm_of_slot[: self.num_at_once].astype(np.int64))
        self.partition_of_tile: IntArray = np.asarray(gpu.partition_of_sm, dtype=np.int64)[self.sm_of_tile]
        self.panels = {item.tensor: item.panel_of(tiles) for item in launch.footprints}
        self.bytes = {item.tensor: item.panel_bytes(tiles) for item in launch.footprints}
        reads = [item.tensor for item in launch.footprints if item.access == "read"]
        one_row = np.zeros_like(tiles)
        self.row_of_tile = self.panels[reads[0]] if len(reads) > 1 else one_row
        self.column_of_tile = self.panels[reads[1]] if len(reads) > 1 else self.panels[reads[0]] if reads else tiles

    @property
    def num_rows(self) -> int:
        """Rows of the grid of tiles."""
        return int(self.row_of_tile.max()) + 1

    @property
    def num_columns(self) -> int:
        """Columns of the grid of tiles."""
        return int(self.column_of_tile.max()) + 1

    def check_wave(self, wave: int) -> None:
        """Check that the launch has a wave of that number.

        Raises:
            LaunchError: it has fewer waves.
        """
        if not 0 <= wave < self.num_waves:
            better = f"0 to {self.num_waves - 1}" if self.num_waves > 1 else "0"
            raise LaunchError(
                f"--wave {wave}: {self.launch.kernel} has up to {self.num_at_once} tiles at once, and its last wave is "
                f"{self.num_waves - 1}; use {better}"
            )

    def tiles_of_wave(self, wave: int) -> IntArray:
        """Work tiles of a wave, int64."""
        begin, end = np.searchsorted(self.wave_of_tile, (wave, wave + 1))
        return self.tiles[begin:end]

    def places(self, wave: int) -> list[dict[str, int]]:
        """For each tile of a wave its CTA (or the slot of a persistent CTA), SM, GPC, L2 partition, row and column."""
        gpc_of_sm = self.gpu.floorplan.gpc_of_sm
        return [
            {
                "tile": tile, "cta": tile if self.launch.num_ctas == self.launch.num_tiles else tile % self.num_at_once,
                "sm": int(self.sm_of_tile[tile]), "gpc": gpc_of_sm[int(self.sm_of_tile[tile])],
                "side": int(self.partition_of_tile[tile]), "row": int(self.row_of_tile[tile]),
                "column": int(self.column_of_tile[tile]),
            }
            for tile in self.tiles_of_wave(wave).tolist()
        ]  # fmt: skip

    def tensors(self, wave: int) -> list[TensorBytes]:
        """Bytes of each tensor in a wave."""
        tiles = self.tiles_of_wave(wave)
        return [self._tensor(item, tiles, wave) for item in self.launch.footprints]

    def _tensor(self, item: Footprint, tiles: IntArray, wave: int) -> TensorBytes:
        planned = self.traffic[item.tensor]
        asked, requested, merged = (int(num) for num in self._at_each_level(item, tiles))
        unique = int(planned.touched_bytes_by_wave[wave])
        is_write = item.access == "write"
        memory = planned.written_back_fraction * unique if is_write else float(planned.miss_bytes_by_wave[wave])
        return TensorBytes(
            tensor=item.tensor, access=item.access, asked=asked, requested=requested, merged=merged, unique=unique,
            memory=memory,
        )

    def _at_each_level(self, item: Footprint, tiles: IntArray) -> tuple[float, float, float]:
        """Bytes that ``tiles`` request, that reach L2 after multicast, and that remain there after coalescing."""
        panels, num_bytes = self.panels[item.tensor][tiles], self.bytes[item.tensor][tiles]
        asked = float(num_bytes.sum()) * item.num_passes
        if item.access == "write":
            return asked, asked, asked
        is_first = first_of(self.wave_of_tile[tiles], tiles // self.launch.cluster_size, panels)
        requested = float(num_bytes[is_first].sum()) * item.num_passes
        xbar = self.gpu.xbar
        scope = np.asarray(self.gpu.floorplan.groups(xbar.coalesce_scope), dtype=np.int64)
        groups = scope[self.sm_of_tile[tiles[is_first]]]
        keys = np.stack((self.wave_of_tile[tiles[is_first]], groups, panels[is_first]))
        _, first, counts = np.unique(keys, axis=1, return_index=True, return_counts=True)
        each = num_bytes[is_first][first]
        limit = max(1, xbar.coalesce_max_requests)
        return asked, requested, float((-(-counts // limit) * each).sum()) * item.num_passes

    def order(self, group: int, direction: str) -> OrderOfTiles:
        """Bytes of this launch, labelled with the name of its order."""
        reads = [item for item in self.launch.footprints if item.access == "read"]
        levels = [self._at_each_level(item, self.tiles) for item in reads]
        whole = max(1, self.launch.num_tiles // self.num_at_once)
        unique = sum_in_order(self.traffic[item.tensor].touched_bytes_by_wave[:whole].mean() for item in reads)
        return OrderOfTiles(
            group=group, direction=direction,
            dram_read_bytes=sum_in_order(self.traffic[item.tensor].read_miss_bytes for item in reads),
            dram_written_bytes=sum_in_order(item.written_back_bytes for item in self.traffic.values()),
            asked_bytes=sum_in_order(asked for asked, _, _ in levels),
            l2_read_bytes=sum_in_order(merged for _, _, merged in levels), wave_unique_bytes=float(unique),
        )

    def least_read_bytes(self) -> float:
        """Bytes of all lines that are read, each line once."""
        total = 0.0
        for item in self.launch.footprints:
            if item.access == "read":
                of_tile = self.bytes[item.tensor]
                touching = np.flatnonzero(of_tile)
                _, first = np.unique(self.panels[item.tensor][touching], return_index=True)
                total += float(of_tile[touching[first]].sum())
        return total

    def reuse_of_tile(self) -> NDArray[np.float64]:
        """For each tile, how many tiles of its wave read its panels, averaged over its bytes: float64[num_tiles]."""
        shared, total = np.zeros(len(self.tiles)), np.zeros(len(self.tiles))
        for item in self.launch.footprints:
            if item.access == "read":
                panels, num_bytes = self.panels[item.tensor], self.bytes[item.tensor]
                keys = self.wave_of_tile * (int(panels.max()) + 1) + panels
                _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
                shared += counts[inverse] * num_bytes
                total += num_bytes
        return np.asarray(np.divide(shared, total, out=np.zeros_like(shared), where=total > 0))

    def as_dict(self, wave: int) -> dict[str, Any]:
        """JSON document of one wave."""
        return {
            "kernel": self.launch.kernel, "gpu": self.gpu.name, "num_tiles": self.launch.num_tiles,
            "num_waves": self.num_waves, "tiles_at_once": self.num_at_once, "num_rows": self.num_rows,
            "num_columns": self.num_columns, "wave": wave, "tiles": self.places(wave),
            "bytes": [{**asdict(item), "reuse": item.reuse} for item in self.tensors(wave)],
        }  # fmt: skip


def compare_orders(
    build: Callable[[int, str], Launch], gpu: GpuSpec, *, groups: Iterable[int], directions: Iterable[str],
    is_warm: bool = False,
) -> Comparison:
    """Comparison of the orders that ``build(group, direction)`` makes.

    The best has the fewest DRAM bytes, then the fewest bytes of a wave.

    Raises:
        LaunchError: this GPU cannot run one of them.
    """
    orders, least = [], 0.0
    for direction in directions:
        for group in groups:
            raster = Raster(build(group, direction), gpu, is_warm=is_warm)
            orders.append(raster.order(group, direction))
            least = raster.least_read_bytes()
    return judge(tuple(orders), least)


def judge(orders: tuple[OrderOfTiles, ...], least_bytes: float) -> Comparison:
    """Comparison with the best of ``orders``, and the reason."""
    totals = {order: order.dram_read_bytes + order.dram_written_bytes for order in orders}
    fewest = min(totals.values())
    tied = [order for order in orders if totals[order] <= fewest * (1.0 + TIE)]
    smallest = min(order.wave_unique_bytes for order in tied)
    best = next(order for order in tied if order.wave_unique_bytes <= smallest * (1.0 + TIE))
    is_tie = len(tied) == len(orders)
    if is_tie and best.dram_read_bytes <= least_bytes * (1.0 + TIE):
        reason = "it makes no difference to memory: whatever the order, all that is read again is still in L2"
    elif is_tie:
        reason = "it makes no difference to memory: all orders fetch as much"
    elif len(tied) > 1:
        reason = "of those with the fewest bytes of memory its waves touch the fewest bytes"
    else:
        reason = "it moves the fewest bytes of memory"
    return Comparison(orders=orders, best=best, least_bytes=least_bytes, makes_no_difference=is_tie, reason=reason)


def comparison_as_dict(found: Comparison) -> Mapping[str, Any]:
    """JSON document of a comparison."""
    return {
        "orders": [{**asdict(order), "hit_pct": order.hit_pct, "l2_hit_pct": order.l2_hit_pct} for order in found.orders],
        "best": {"group": found.best.group, "direction": found.best.direction}, "reason": found.reason,
        "makes_no_difference": found.makes_no_difference, "least_read_bytes": found.least_bytes,
    }  # fmt: skip
