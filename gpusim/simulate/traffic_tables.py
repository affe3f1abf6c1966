"""L2 traffic plan as tables for the engine: lost shares of each panel in each wave, and write-backs.

In: a LaunchPlan and the tensors that programs name. Out: tables and arrays of ``program/records.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.program.records import TABLES, dtype_of
from gpusim.simulate.plan import LaunchPlan
from gpusim.traffic.l2_plan import shares_of_stores
from gpusim.traffic.panels import Loss, PanelLosses
from gpusim.workload.launch import Footprint

MOST_PANELS = 1 << 26
"""Upper bound of panel numbers of one tensor, shared ones included. Each takes four bytes of the packed launch."""

Losses = Mapping[int, Mapping[int, Loss]]


def traffic_tables(plan: LaunchPlan, tensors: Sequence[str]) -> dict[str, NDArray[Any]]:
    """All sections of the traffic plan. ``tensors``: names in the order of their numbers.

    Raises:
        LaunchError: panel numbers of ``MOST_PANELS`` or more.
    """
    tables = _Tables(plan)
    footprints = {item.tensor: item for item in plan.launch.footprints}
    rows = [tables.tensor(name, footprints.get(name)) for name in tensors]
    return {"tensors": np.array(rows, dtype=TABLES["tensors"]), **tables.joined()}


class _Tables:
    """Sections that grow tensor by tensor."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = plan
        names = ("loss_rows", "panel_groups", "group_rows", "written_back", "times_fetched")
        self._parts: dict[str, list[NDArray[Any]]] = {name: [np.zeros(0, dtype=dtype_of(name))] for name in names}
        self._sizes = dict.fromkeys(self._parts, 0)
        self._walks: list[tuple[int, ...]] = []
        self._groups: dict[int, tuple[int, int, int]] = {}
        """Length, begin and number of groups of an array of groups, by its identity."""

    def joined(self) -> dict[str, NDArray[Any]]:
        """Every section except ``tensors``."""
        joined = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        return {"walks": np.array(self._walks, dtype=TABLES["walks"]), **joined}

    def tensor(self, name: str, footprint: Footprint | None) -> tuple[float, ...]:
        """Fields of ``tensors``."""
        plan, gpu = self._plan, self._plan.gpu
        has_map = gpu.tma is not None and gpu.tma.tensormap_miss_cycles > 0.0 and name in plan.launch.tensor_maps
        found = plan.traffic.get(name)
        written_back = times_fetched = (0, 0)
        first_walk, has_own_panels = len(self._walks), False
        if found is not None:
            has_own_panels = isinstance(found.losses, PanelLosses) and found.losses.touches.has_own_panels
            if found.written_back_bytes:
                shares = shares_of_stores(found.written_back_by_wave, found.touched_bytes_by_wave)
                written_back = self._add("written_back", np.array(shares))
            if found.times_fetched_by_wave is not None:
                times_fetched = self._add("times_fetched", found.times_fetched_by_wave)
            self._walk(name, found.losses)
        return (
            int(found is not None), int(has_map), plan.footprints.fetch_scales.get(name, 1.0), piece_bytes(gpu, footprint),
            int(are_pieces_anywhere(gpu, footprint)), *written_back, *times_fetched, first_walk, int(has_own_panels),
        )  # fmt: skip

    def _add(self, name: str, array: NDArray[Any]) -> tuple[int, int]:
        """Append to a section; returns the begin in it, and the length."""
        begin = self._sizes[name]
        self._parts[name].append(array)
        self._sizes[name] = begin + len(array)
        return begin, len(array)

    def _walk(self, tensor: str, losses: Losses) -> None:
        """Add a row of ``walks``, and all rows that it names."""
        if not isinstance(losses, PanelLosses) or not len(losses.panels):
            self._walks.append((0, 0, 0, 0))
            return
        rows = _loss_rows(losses)
        num_panels, groups_begin, num_groups = self._groups_of(losses)
        if num_groups > MOST_PANELS or num_panels > MOST_PANELS:
            raise LaunchError(
                f"{self._plan.launch.kernel}: {tensor} has panels up to number {max(num_groups, num_panels) - 1}, "
                f"wants numbers below {MOST_PANELS}: number them from 0 on"
            )
        first_row, _ = self._add("loss_rows", rows)
        of_group = np.bincount(losses.panels, minlength=num_groups)
        bounds = np.full(num_groups + 1, first_row, dtype=np.int32)
        bounds[1:] += np.cumsum(of_group, dtype=np.int32)
        rows_begin, _ = self._add("group_rows", bounds)
        self._walks.append((num_panels, groups_begin, rows_begin, num_groups))

    def _groups_of(self, losses: PanelLosses) -> tuple[int, int, int]:
        """Number of panels, begin of their groups, and number of groups. 0 panels where each is a separate group."""
        groups = losses.touches.slot_of_panel
        if groups is None:
            return 0, 0, int(losses.panels[-1]) + 1
        found = self._groups.get(id(groups))
        if found is None:
            begin, num = self._add("panel_groups", groups.astype(np.int32))
            found = self._groups[id(groups)] = num, begin, int(groups.max(initial=-1)) + 1
        return found


def piece_bytes(gpu: GpuSpec, footprint: Footprint | None) -> float:
    """Bytes of each contiguous piece of a tensor in memory, at least one fetch of memory. 0: accesses are contiguous."""
    if footprint is None or not footprint.piece_bytes:
        return 0.0
    return float(max(footprint.piece_bytes, gpu.l2.fetch_bytes))


def are_pieces_anywhere(gpu: GpuSpec, footprint: Footprint | None) -> bool:
    """Whether the distance of pieces exceeds the bytes of one memory channel; also true for a distance of 0.

    Closer pieces take all channels in turn, as contiguous bytes do.
    """
    stride = 0 if footprint is None else footprint.piece_stride_bytes
    return not stride or stride > gpu.hbm.channel_bytes


def _loss_rows(losses: PanelLosses) -> NDArray[np.void]:
    """Rows of ``loss_rows``, sorted by group and wave. A missing second partition loses nothing."""
    found = np.zeros(len(losses.panels), dtype=TABLES["loss_rows"])
    found["wave"] = losses.waves
    for idx in range(losses.memory.shape[1]):
        found[f"memory_{idx}"], found[f"crossing_{idx}"] = losses.memory[:, idx], losses.crossing[:, idx]
    return found
