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
from gpusim.simulate import traffic_tables as module
from gpusim.simulate.plan import plan_launch
from gpusim.simulate.traffic_tables import traffic_tables
from gpusim.traffic.panels import Loss, PanelTraffic
from gpusim.workload.launch import Footprint
from tests.engine import launches as of_engine

from .streams import stream

Tables = dict[str, NDArray[Any]]
MOST_LOOKED_UP = 400
"""Panels of a tensor."""


PLANNED = (
    "gemm_cooperative", "gemm_cooperative_persistent", "gemm_split_k", "gemm_edges_odd_pitch", "gemm_hgemm",
    "gemm_waves_apart", "strided_copy", "transpose_naive", "softmax_block", "gather_random", "h100_gemm",
    "a100_gemm", "toy_gemm",
)  # fmt: skip
CASES: list[tuple[str, Launch]] = [
    *((of_engine.CASES[name].gpu, of_engine.CASES[name].launch()) for name in PLANNED),
    ("h200_sxm", KERNEL_MODELS["gemm"].params(m=16384, n=16384, k=16384, tile="128x256x64").launch(load_gpu("h200_sxm"))),
    ("h200_sxm", KERNEL_MODELS["strided_copy"].params(elements=1 << 22, stride=64).launch(load_gpu("h200_sxm"))),
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


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1].kernel} {case[1].num_tiles}")
def test_tables_say_what_the_plan_says(case: tuple[str, Launch], is_warm: bool) -> None:
    plan = plan_launch(case[1], load_gpu(case[0]), is_warm=is_warm)
    names = (*(item.tensor for item in plan.launch.footprints), "nobody's")
    tables = traffic_tables(plan, names)
    for name, tensor in zip(names, tables["tensors"], strict=True):
        traffic = plan.traffic.get(name)
        assert tensor["is_planned"] == (traffic is not None)
        assert tensor["fetch_scale"] == plan.footprints.fetch_scales.get(name, 1.0)
        if traffic is None:
            assert not tensor["is_planned"]
            continue
        check_shares(tables, tensor, traffic)
        walk = int(tensor["first_walk"])
        use = next(use for use in plan.footprints.of_tensors if use.tensor == name)
        most = int(use.panel_of_tile.max())
        panels = [-2, -1, *np.unique(np.linspace(0, most + 3, MOST_LOOKED_UP).astype(np.int64)).tolist()]
        check_walk(tables, walk, traffic.losses, panels)


def check_shares(tables: Tables, tensor: Any, traffic: PanelTraffic) -> None:
    """By wave: how often a line is fetched, and as many bytes written back as the plan says."""
    begin, num = tensor["times_fetched_begin"], tensor["num_times_fetched"]
    times = traffic.times_fetched_by_wave
    assert tables["times_fetched"][begin : begin + num].tolist() == ([] if times is None else times.tolist())
    begin, num = tensor["written_back_begin"], tensor["num_written_back"]
    shares = tables["written_back"][begin : begin + num]
    assert (num > 0) == (traffic.written_back_bytes > 0.0)
    assert (shares >= 0.0).all()
    if num:
        assert (shares * traffic.touched_bytes_by_wave[:num]).sum() <= traffic.written_back_bytes * (1 + 1e-9)


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
            found |= {"pieces"} if tensors["piece_bytes"].any() else set()
            found |= {"near"} if not tensors["are_pieces_anywhere"].all() else set()
            found |= {"scaled"} if (tensors["fetch_scale"] > 1.0).any() else set()
            found |= {"times"} if len(tables["times_fetched"]) else set()
            found |= {"stored"} if len(tables["written_back"]) else set()
    assert found >= {"grouped", "own", "pieces", "scaled", "times", "stored"}


def test_maps_are_fetched_where_the_launch_names_them_and_the_gpu_takes_time_for_them() -> None:
    gpu = load_gpu("h200_sxm")
    launch = KERNEL_MODELS["gemm"].params(m=512, n=512, k=512, tile="128x128x64").launch(gpu)
    assert gpu.tma is not None
    free = replace(gpu, tma=replace(gpu.tma, tensormap_miss_cycles=0.0))
    for described, expected in ((gpu, [1, 1, 0]), (free, [0, 0, 0])):
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
