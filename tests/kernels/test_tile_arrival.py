"""Tiles on their way into shared memory: which are asked for, what counts as an answer, what the simulator says."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Input, MappedTensor, Output, WrongAnswer, load_case
from gpusim.evidence.toolchain.cuda_toolkit import build, find_program
from gpusim.evidence.toolchain.sass import KernelSass, read_sass

CASE = load_case("tile_arrival")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
GPU = load_gpu("h200_sxm")
whole_tensor = case.tensor
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]
Sass = Callable[[str, str], dict[str, KernelSass]]


def one(
    way: str = "tma", source: str = "l2", kib: int = 16, num_live: int = 2, in_flight: int = 1, watched: int = 0
) -> dict[str, str]:
    return {
        "kernel": "tma" if way == "tma" else f"cp_async_{in_flight}", "source": source, "tile_bytes": str(1024 * kib),
        "num_live": str(num_live), "in_flight": str(in_flight), "is_watched": str(watched),
    }  # fmt: skip


@pytest.fixture(autouse=True)
def _small_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test but that of its words needs all 264 MiB of the tensor."""
    row = np.zeros((1, case.PITCH_BYTES // 4), dtype=np.uint32)
    monkeypatch.setattr(case, "tensor", lambda: np.broadcast_to(row, (case.NUM_CTAS * case.PANEL_ROWS, row.shape[1])))


def test_stages_fit_and_boxes_are_legal() -> None:
    for config in ALL:
        launch = CASE.launch(config, False)
        assert 114 * 1024 < launch.smem_bytes <= 225 * 1024  # one CTA an SM, with room for the barriers
        assert typed(config).num_rows % typed(config).num_boxes == 0
        (source,) = [item for item in launch.arguments if isinstance(item, MappedTensor | Input)]
        assert isinstance(source, MappedTensor) == (config["kernel"] == "tma")
        if isinstance(source, MappedTensor):
            box = source.tensor_map.box
            assert box.num_bytes * typed(config).num_boxes == int(config["tile_bytes"])
            assert int(config["tile_bytes"]) // typed(config).num_boxes % source.tensor_map.smem_alignment_bytes == 0
        assert config["kernel"] == "tma" or config["kernel"].endswith(config["in_flight"])


def test_only_one_tile_is_in_flight_where_all_ask_together_or_lines_are_watched() -> None:
    for config in ALL:
        if config["is_watched"] == "1" or config["source"] in ("shared_l2", "pending"):
            assert config["in_flight"] == "1"


def test_the_plan_has_a_word_for_each_field() -> None:
    for config in ALL:
        plan = np.frombuffer(CASE.launch(config, False).arguments[0].tobytes(), dtype="<u4")
        assert len(plan) == 11
        assert plan[3] == int(config["tile_bytes"]) and plan[0] == int(config["num_live"])


def tiles_of(config: dict[str, str], rank: int) -> list[tuple[int, int]]:
    """(first row, column in bytes) of each tile that an SM loads, as the kernel reckons."""
    num = case.num_ahead(typed(config)) + case.num_tiles(typed(config))
    steps, rows = case.num_steps(typed(config)), typed(config).num_rows
    panel = 0 if config["source"] in ("shared_l2", "pending") else case.PANEL_ROWS
    return [(rank * panel + tile % steps // 32 * rows, tile % steps % 32 * 128) for tile in range(num)]


def test_what_comes_from_hbm_is_read_once_and_what_stays_in_l2_is_read_before() -> None:
    capacity_bytes = GPU.l2.capacity_bytes
    for config in ALL:
        tiles = tiles_of(config, 0)
        assert max(row for row, _ in tiles) + typed(config).num_rows <= case.PANEL_ROWS
        if config["source"] in ("hbm", "pending"):
            assert len(set(tiles)) == len(tiles)
        else:
            ahead = case.num_ahead(typed(config))
            assert set(tiles[ahead:]) <= set(tiles[:ahead])
            assert len(set(tiles)) * int(config["tile_bytes"]) * case.NUM_CTAS <= 0.3 * capacity_bytes


@pytest.mark.parametrize("num_live", [1, 2, 4, 16, 33, 66, 99, 132])
def test_live_sms_are_as_many_as_asked_for_and_spread_evenly(num_live: int) -> None:
    sms = case.live_sms(num_live)
    assert len(sms) == num_live
    gaps = np.diff([*sms, sms[0] + case.NUM_CTAS])
    assert gaps.max() - gaps.min() <= 1
    assert [sm * num_live // case.NUM_CTAS for sm in sms] == list(range(num_live))  # the kernel's rank


def test_the_expected_sum_is_that_of_the_tensors_words() -> None:
    words = whole_tensor()
    assert (words % 2 == 0).all()  # so that none is what untouched shared memory holds
    for config, rank in ((one(kib=64, source="hbm"), 1), (one(kib=8, num_live=132), 131), (one(source="pending"), 1)):
        row, column = tiles_of(config, rank)[-1]
        tile = words[row : row + typed(config).num_rows, column // 4 : column // 4 + 32]
        assert case.sum_of_last_tile(typed(config), rank) == int(tile.sum(dtype=np.uint64)) % 2**32
    whole_tensor.cache_clear()


def outputs_of(config: dict[str, str]) -> dict[str, np.ndarray]:
    """What a launch must leave whose tiles take 1000 cycles on the first SM, 10 more on each that follows."""
    arrays = {item.name: item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)}
    for rank, sm in enumerate(case.live_sms(int(config["num_live"]))):
        arrays["times"][rank] = (700, 950, 1000 + 10 * rank)
        arrays["told"][rank] = (sm, case.sum_of_last_tile(typed(config), rank), 900 * case.num_tiles(typed(config)), 0)
    num_lines = typed(config).num_rows * arrays["times"][:, :, 0].size
    arrays["lines"][25], arrays["lines"][700 // case.BIN_CYCLES] = num_lines // 4, num_lines - num_lines // 4
    return arrays


def test_a_right_answer_gives_quantiles() -> None:
    values = CASE.check(one(num_live=33), outputs_of(one(num_live=33)))
    assert (values["best_sm_cycles"], values["complete_p50_cycles"], values["worst_sm_cycles"]) == (1000, 1160, 1320)
    assert values["tile_cycles"] == 900 and "first_line_p50_cycles" not in values
    assert CASE.derive({**one(num_live=33), "tile_cycles": "900"}) == {"bytes_per_cycle": 16384 / 900}
    watched = CASE.check(one(watched=1), outputs_of(one(watched=1)))
    seen = [watched[f"{name}_p50_cycles"] for name in ("first_line", "last_line", "spread")]
    assert seen == [700, 950, 250]
    assert watched["line_p50_cycles"] == (700 // 32 + 0.5) * 32 and watched["line_p90_cycles"] == 25.5 * 32
    assert "tile_cycles" not in watched
    assert set(values) | set(watched) <= set(CASE.values)


@pytest.mark.parametrize(
    ("name", "place", "value", "match"),
    [
        ("flags", 1, 1, "given up"), ("told", (1, 0), 5, "was on SM 5"), ("told", (0, 1), 1, "sum up to 1"),
        ("times", (1, 3, 2), -1, "no time"), ("times", (1, 3, 1), 600, "before its tile"),
        ("lines", 400, 1, "lines were seen"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_refused(name: str, place: object, value: int, match: str) -> None:
    outputs = outputs_of(one(watched=1))
    outputs[name][place] = value  # type: ignore[index]  # an index of numpy's
    with pytest.raises(WrongAnswer, match=match):
        CASE.check(one(watched=1), outputs)


def median(config: dict[str, str]) -> float:
    return CASE.predict(config, GPU)["complete_p50_cycles"]


@pytest.mark.parametrize("way", ["tma", "cp_async"])
def test_a_larger_tile_from_l2_takes_its_bytes_longer(way: str) -> None:
    port = GPU.xbar.sm_read_bytes_per_cycle
    waits = np.array([median(one(way, kib=kib, num_live=1)) for kib in case.SIZES])
    assert (np.diff(waits) >= 0).all()  # small ones hide behind the kernel's own code
    assert np.diff(waits)[-1] >= 1024 * np.diff(case.SIZES)[-1] / port * (1 - 1e-6)


@pytest.mark.parametrize("way", ["tma", "cp_async"])
def test_hbm_is_later_than_l2_and_a_loaded_machine_than_an_idle_one(way: str) -> None:
    assert median(one(way, "hbm", 32, 1)) > median(one(way, "l2", 32, 1))
    for source in ("l2", "hbm"):
        alike = replace(GPU, xbar=replace(GPU.xbar, sm_distance_cycles=0.0))  # who is alone may be nearer than others else
        waits = [CASE.predict(one(way, source, 32, num_live), alike)["complete_p90_cycles"] for num_live in (1, 33, 132)]
        assert all(earlier <= later + 1e-6 for earlier, later in pairwise(waits))
        assert waits[0] < waits[-1] or source == "l2"  # SMs that drift apart leave L2 idle for one tile each


def test_the_machine_takes_in_what_hbm_gives_when_all_sms_have_three_tiles_in_flight() -> None:
    config = one(source="hbm", kib=32, num_live=132, in_flight=3)
    rate = 132 * CASE.derive({**config, "tile_cycles": str(CASE.predict(config, GPU)["tile_cycles"])})["bytes_per_cycle"]
    wire = GPU.hbm.sustained_read_gb_per_s * 1e3 / GPU.clock.max_mhz
    assert 0.85 * wire < rate < 1.02 * wire


def test_the_interval_is_told_only_where_nothing_lies_between_two_tiles() -> None:
    for config in (one(watched=1), one(source="pending"), one(source="shared_l2")):
        assert "tile_cycles" not in CASE.predict(config, GPU)
    assert "tile_cycles" in CASE.predict(one(), GPU)


def test_what_is_predicted_is_what_is_measured() -> None:
    for configs in CONFIGS.values():
        for config in configs[:: max(1, len(configs) // 3)]:
            assert set(CASE.predict(config, GPU)) <= {*CASE.values, *CASE.metrics}


# ---------------------------------------------------------------------------------------------- SASS


def test_a_box_is_loaded_by_one_instruction_and_chunks_by_groups_of_the_depth_asked_for(sass: Sass) -> None:
    kernels = sass("tile_arrival", "sm_90a")
    assert set(kernels) == {config["kernel"] for config in ALL}
    (box,) = kernels["tma"].select("UTMALDG")
    assert box.opcode == "UTMALDG.2D" and any(box in loop.instructions for loop in kernels["tma"].loops)
    for name, depth in (("cp_async_1", 0), ("cp_async_3", 2)):
        copies = kernels[name].select("LDGSTS")
        assert copies and all("BYPASS" in item.opcode and "128" in item.opcode for item in copies)
        assert kernels[name].cp_async_wait_depths == (depth,)
        wait = kernels[name].instructions.index(kernels[name].select("DEPBAR")[0])
        assert "CLOCK" in kernels[name].instructions[wait + 1].operands
    assert all(kernel.num_spills == 0 for kernel in kernels.values())


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH: nothing can be built here")
@pytest.mark.skipif(find_program("cuobjdump") is None, reason="there is no cuobjdump: SASS cannot be read here")
def test_what_the_a100_can_do_is_built_for_it(tmp_path: Path) -> None:
    assert set(read_sass(build(CASE, "sm_80", tmp_path).path)) == {"cp_async_1", "cp_async_3"}


def test_tiles_from_memory_of_a_machine_that_is_known_tell_what_one_sm_draws() -> None:
    """A GPU whose SMs draw so little from memory that it shows; its slowest row is waited for beside the bytes.

    Its quick and slow fills lie half as far again apart as ours.
    """
    slow = replace(GPU, hbm=replace(GPU.hbm, sm_gb_per_s=60.0, fill_spread_ns=200.0))
    rows = [
        {**config, "group": "idle", **{name: str(value) for name, value in CASE.predict(config, slow).items()}}
        for config in CONFIGS["idle"][::2] if config["source"] == "hbm" and config["is_watched"] == "0"
    ]  # fmt: skip
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted["hbm.sm_gb_per_s"] == pytest.approx(60.0, rel=0.1)
    assert fitted["hbm.fill_spread_ns"] == pytest.approx(200.0, rel=0.15)
    assert list(CASE.fit([])) == []


def test_copies_that_are_watched_end_with_the_watching() -> None:
    watched = next(
        config for config in CONFIGS["idle"]
        if config["kernel"] == "cp_async_1" and config["source"] == "l2" and config["is_watched"] == "1"
    )  # fmt: skip
    alone = CASE.predict({**watched, "is_watched": "0"}, GPU)["complete_p50_cycles"]
    assert CASE.predict(watched, GPU)["complete_p50_cycles"] == pytest.approx(alone + case.WATCH_CYCLES)
