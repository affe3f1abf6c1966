"""Tables of the L2 plan say of every panel and wave what the plan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import Launch, WarpRole, load_gpu
from gpusim.errors import LaunchError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.memory.l2 import L2
from gpusim.machine.memory.panels import Loss
from gpusim.machine.memory.residency import PlannedResidency
from gpusim.simulate import traffic_tables as module
from gpusim.simulate.engine import Engine
from gpusim.simulate.plan import LaunchPlan, plan_launch
from gpusim.simulate.traffic_tables import traffic_tables
from gpusim.units import Clock
from gpusim.workload.launch import Footprint
from tests.simulate.compiled_launches import ELSEWHERE, LAUNCHES
from tests.simulate.streams import stream

Tables = dict[str, NDArray[Any]]
MOST_LOOKED_UP = 400
"""Panels of a tensor."""


def walked(launch: Launch, num_passes: int) -> Launch:
    """The same whose tiles read their panels so often."""
    footprints = [replace(item, num_passes=num_passes) if item.access == "read" else item for item in launch.footprints]
    return replace(launch, footprints=tuple(footprints))


CASES: list[tuple[str, Launch]] = [
    *((gpu, KERNEL_MODELS[model].params(**params).launch(load_gpu(gpu))) for gpu, model, params in ELSEWHERE),
    *(("h200_sxm", KERNEL_MODELS[model].params(**params).launch(load_gpu("h200_sxm"))) for model, params in LAUNCHES),
    ("h200_sxm", KERNEL_MODELS["gemm"].params(m=16384, n=16384, k=16384, tile="128x256x64").launch(load_gpu("h200_sxm"))),
    ("h200_sxm", KERNEL_MODELS["strided_copy"].params(elements=1 << 22, stride=64).launch(load_gpu("h200_sxm"))),
    ("h200_sxm", walked(stream(1024.0, num_steps=512), 3)),
    ("h200_sxm", KERNEL_MODELS["elementwise"].params(op="copy", elements=1 << 26).launch(load_gpu("h200_sxm"))),
    ("toy", stream(4.0, num_inputs=2, num_steps=3)), ("a100_sxm_80gb", stream(64.0, shared_by=4)),
]  # fmt: skip


def losses_in(tables: Tables, walk: int, panel: int) -> dict[int, tuple[float, ...]]:
    """What a walk lacks of a panel, by wave, looked up as the engine does."""
    row = tables["walks"][walk]
    group = panel
    if row["num_panels"]:
        if not 0 <= panel < row["num_panels"]:
            return {}
        group = int(tables["panel_groups"][row["groups_begin"] + panel])
    if not 0 <= group < row["num_groups"]:
        return {}
    begin, end = tables["group_rows"][row["rows_begin"] + group : row["rows_begin"] + group + 2].tolist()
    rows = tables["loss_rows"][begin:end]
    assert rows["wave"].tolist() == sorted(rows["wave"].tolist())
    return {int(loss["wave"]): tuple(loss.tolist()[1:]) for loss in rows}


def as_row(loss: Loss) -> tuple[float, ...]:
    """The fields of ``loss_rows`` behind the wave."""
    both = [(*of_side, 0.0)[:2] for of_side in (loss.memory, loss.crossing)]
    return (*both[0], *both[1])


def check_walk(tables: Tables, walk: int, losses: Mapping[int, Mapping[int, Loss]], panels: list[int]) -> None:
    for panel in panels:
        expected = losses.get(panel) or {}
        assert losses_in(tables, walk, panel) == {wave: as_row(loss) for wave, loss in expected.items()}


def check_plan(plan: LaunchPlan, l2: L2) -> Tables:
    """All that the plan's residency and L2 say of each tensor."""
    residency = l2.residency
    assert isinstance(residency, PlannedResidency)
    names = (*(item.tensor for item in plan.launch.footprints), "nobody's")
    tables = traffic_tables(plan, names)
    for name, tensor in zip(names, tables["tensors"], strict=True):
        assert tensor["is_planned"] == residency.is_planned(name)
        assert tensor["fetch_scale"] == l2._fetch_scales.get(name, 1.0)
        assert tensor["piece_bytes"] == l2._piece_bytes_of(name)
        assert tensor["are_pieces_anywhere"] == l2._are_anywhere(name)
        of_waves = (("written_back", residency.written_back_fraction, 0.0), ("times_fetched", residency.times_fetched, 1.0))
        for field, of_wave, none in of_waves:
            begin, num = tensor[f"{field}_begin"], tensor[f"num_{field}"]
            shares = tables[field][begin : begin + num].tolist()
            for wave in (0, 1, plan.num_waves - 1, plan.num_waves + 5):
                assert (shares[min(wave, num - 1)] if num else none) == of_wave(name, wave)
        if name not in plan.traffic:
            assert tensor["num_walks"] == 0
            continue
        found, walk = plan.traffic[name], int(tensor["first_walk"])
        use = next(use for use in plan.uses.of_tensors if use.tensor == name)
        most = int(use.panel_of_tile.max())
        panels = [-2, -1, *np.unique(np.linspace(0, most + 3, MOST_LOOKED_UP).astype(np.int64)).tolist()]
        check_walk(tables, walk, found.losses, panels)
        again = residency._losses_again.get(name, ())
        assert tensor["num_walks"] == 1 + len(again)
        for idx, losses in enumerate(again):
            check_walk(tables, walk + 1 + idx, losses, panels)
    return tables


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1].kernel} {case[1].num_tiles}")
def test_tables_say_what_the_plan_says(case: tuple[str, Launch], is_warm: bool) -> None:
    gpu, launch = load_gpu(case[0]), case[1]
    plan = plan_launch(launch, gpu, is_warm=is_warm)
    engine = Engine(
        launch, gpu, clock=Clock(sm_mhz=1000.0), is_warm=is_warm, skips=False, recorded_sms=frozenset({0}),
        traffic=dict(plan.traffic), uses=plan.uses,
    )
    for field in ("num_slots", "num_ctas", "occupancy"):
        assert getattr(plan, field) == getattr(engine, field)
    assert plan.num_at_once == engine._num_at_once
    for field in ("miss_bytes_by_wave", "written_back_by_wave", "touched_bytes_by_wave"):
        assert np.array_equal(getattr(plan, field), getattr(engine, field))
    assert plan.num_steps == engine.steps_per_turn
    check_plan(plan, engine.machine.l2)


def test_cases_have_walks_again_groups_and_panels_of_their_own() -> None:
    """The net has no hole: every kind of table occurs."""
    found: set[str] = set()
    for name, launch in CASES:
        for is_warm in (False, True):
            plan = plan_launch(launch, load_gpu(name), is_warm=is_warm)
            tables = traffic_tables(plan, [item.tensor for item in launch.footprints])
            walks, tensors = tables["walks"], tables["tensors"]
            found |= {"grouped"} if (walks["num_panels"] > 0).any() else set()
            found |= {"own"} if ((walks["num_panels"] == 0) & (walks["num_groups"] > 0)).any() else set()
            found |= {"again"} if (tensors["num_walks"] > 1).any() else set()
            found |= {"pieces"} if tensors["piece_bytes"].any() else set()
            found |= {"near"} if not tensors["are_pieces_anywhere"].all() else set()
            found |= {"scaled"} if (tensors["fetch_scale"] > 1.0).any() else set()
            found |= {"times"} if len(tables["times_fetched"]) else set()
            found |= {"stored"} if len(tables["written_back"]) else set()
    assert found >= {"grouped", "own", "again", "pieces", "scaled", "times", "stored"}


def test_maps_are_fetched_where_the_launch_names_them_and_the_gpu_takes_time_for_them() -> None:
    gpu = load_gpu("h200_sxm")
    launch = KERNEL_MODELS["gemm"].params(m=512, n=512, k=512, tile="128x128x64").launch(gpu)
    assert gpu.tma is not None
    for described, expected in ((gpu, [1, 1, 0]), (replace(gpu, tma=replace(gpu.tma, map_miss_cycles=0.0)), [0, 0, 0])):
        plan = plan_launch(replace(launch, tensor_maps=("A", "B")), described, is_warm=False)
        assert traffic_tables(plan, ["A", "B", "D"])["tensors"]["has_map"].tolist() == expected


def test_panels_of_large_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def panel_of(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return 1000 + tiles // 2

    def panel_bytes(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full_like(tiles, 128)

    footprint = Footprint(tensor="a", access="read", panel_of=panel_of, panel_bytes=panel_bytes)
    launch = Launch(
        kernel="far", num_ctas=4, num_tiles=4, footprints=(footprint,),
        roles=(WarpRole(name="worker", num_warps=1, program=iter),),
    )
    plan = plan_launch(launch, load_gpu("toy"), is_warm=False)
    assert len(traffic_tables(plan, ["a"])["group_rows"]) == 1003
    monkeypatch.setattr(module, "MOST_PANELS", 1001)
    with pytest.raises(LaunchError, match=r"far: a has panels up to number 1001, wants numbers below 1001"):
        traffic_tables(plan, ["a"])
