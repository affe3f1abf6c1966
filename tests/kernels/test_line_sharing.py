"""Readers of the same lines: what is launched, what counts as an answer, and what the simulator says of merging."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, Output, load_case
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.cases.tile_walk import sum_of_words
from gpusim.evidence.toolchain.cuda_toolkit import build, find_program
from gpusim.evidence.toolchain.sass import KernelSass, read_sass
from gpusim.evidence.validate.calibrate import halves

CASE = load_case("line_sharing")
case = sys.modules[CASE.launch.__module__]
GPU = load_gpu("h200_sxm")
MEASURED = Path(__file__).resolve().parents[2] / "validation/measured/h200_sxm/line_sharing.csv"
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]
Sass = Callable[[str, str], dict[str, KernelSass]]


def one(kernel: str = "load_1", sms: str = "0 1", skew: int = 0, state: str = "l2", **others: Any) -> Config:
    made: Config = case.Config(kernel, sms, state, "same", 2048, skew, 64 if state == "l2" else 3)
    return replace(made, **others)


def test_readers_are_on_sms_of_their_own() -> None:
    for config in ALL:
        if config["sms"] != "cluster":
            sms = [int(text) for text in config["sms"].split()]
            assert len(set(sms)) == len(sms) <= case.MOST_READERS and max(sms) < case.NUM_CTAS


def test_each_sweep_walks_all_skews_in_order_so_that_every_second_one_can_judge() -> None:
    skews = [int(config["skew_cycles"]) for config in CONFIGS["skew"]]
    assert len(skews) % len(case.SKEWS) == 0
    for start in range(0, len(skews), len(case.SKEWS)):
        assert tuple(skews[start : start + len(case.SKEWS)]) == case.SKEWS


def test_both_halves_of_the_distances_have_even_and_odd_sms_near_and_far() -> None:
    partners = [int(config["sms"].split()[1]) for config in CONFIGS["distance"] if config["sms"].startswith("0 ")]
    assert sorted(partners) == list(range(1, case.NUM_CTAS))
    for half in (partners[0::2], partners[1::2]):
        assert abs(sum(sm % 2 for sm in half) - len(half) / 2) <= 1
        assert abs(np.mean(half) - np.mean(partners)) < 2


def test_lines_lie_in_the_pool_and_what_is_warm_is_never_cold() -> None:
    for config in ALL:
        for reader in range(case.num_readers(config)):
            first = case.first_byte(config, reader)
            end = first + case.num_region_bytes(config)
            assert end <= 384 * case.MIB
            assert (first >= case.WARM_FIRST_BYTE) == (config["state"] == "l2")
            assert end <= case.WARM_FIRST_BYTE or config["state"] == "l2"


def test_lines_from_hbm_come_up_again_only_after_more_bytes_than_l2_holds() -> None:
    capacity_bytes = GPU.l2.capacity_bytes
    for configs in CONFIGS.values():
        cold = [config["region"] for config in configs if config["state"] == "hbm"]
        for idx, region in enumerate(cold):
            since = [other for other in cold[:idx] if other == region]
            if since:
                distance = idx - max(place for place in range(idx) if cold[place] == region)
                assert distance * case.REGION_BYTES >= 4 * capacity_bytes


def test_the_plan_has_a_word_for_each_field_and_time_between_two_shots() -> None:
    for config in ALL:
        launch = CASE.launch(config, False)
        plan = np.frombuffer(launch.arguments[0].tobytes(), dtype="<u4")
        assert len(plan) == 18
        num, shots, size, block, skew, period = (int(value) for value in plan[8:14])
        assert num == case.num_readers(config) and shots % block == 0
        assert shots * size % 16384 == 0  # what the warm-up reads at once
        assert period - (num - 1) * skew >= 4000
        most = {"load_1": 2048, "cp_async_1": 2048}.get(config["kernel"], 16384)  # 16 bytes a thread and load
        assert size % 512 == 0 and size <= most


@pytest.mark.parametrize(("first", "num_bytes"), [(0, 4), (4096, 1024), (256 << 20, 4 << 20)])
def test_the_expected_sum_is_that_of_the_pools_words(first: int, num_bytes: int) -> None:
    words = np.arange(first // 4, (first + num_bytes) // 4, dtype=np.uint64) * 0x9E3779B1 + 0x7F4A7C15
    assert sum_of_words(num_bytes, first) == int((words % 2**32).sum()) % 2**32


def outputs_of(config: dict[str, str], waits: tuple[int, ...]) -> dict[str, np.ndarray]:
    """What a launch must leave whose readers are on time and wait so long."""
    arrays = {item.name: item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)}
    arrays["shots"][:, :, 0] = 5
    for reader, wait in enumerate(waits):
        arrays["shots"][reader, :, 1] = wait
        checksum = sum_of_words(case.num_region_bytes(config), case.first_byte(config, reader))
        arrays["told"][reader] = (int(config["sms"].split()[reader]), checksum, 7 * reader, 0)
    return arrays


def test_a_right_answer_gives_waits_and_the_skew_that_there_was() -> None:
    config = one(skew=300, sms="3 70")
    values = CASE.check(config, outputs_of(config, (640, 410)))
    assert values["first_p50_cycles"] == 640 and values["second_p90_cycles"] == values["last_p10_cycles"] == 410
    assert values["skew_p50_cycles"] == 300 and values["drift_cycles"] == 7 and values["num_sm_distance"] == 67
    assert set(values) <= set(CASE.values)
    alone = CASE.check(one(sms="0"), outputs_of(one(sms="0"), (640,)))
    assert set(alone) == {"num_sm_distance", "first_p10_cycles", "first_p50_cycles", "first_p90_cycles"}


def reads(config: dict[str, str]) -> float:
    predicted = CASE.predict(config, GPU)
    return CASE.derive({**config, case.READ: str(predicted[case.READ])})["num_reads_of_a_line"]


def test_neighbours_merge_within_the_window_and_not_beyond_it_and_about_it_by_how_far_a_lines_slice_is() -> None:
    window, spread = GPU.xbar.coalesce_window_cycles, GPU.l2.slice_spread_cycles
    assert window > spread > 0.0
    for skew in (*case.SKEWS, *case.EDGES["l2"]):
        expected = 1.0 + min(1.0, max(0.0, (skew - window + spread) / (2.0 * spread)))
        assert reads(one(skew=skew)) == pytest.approx(expected, abs=0.01)


def test_what_must_not_merge_does_not() -> None:
    assert reads(one(sms="0 66")) == 2.0
    assert reads(one(lines="own")) == 2.0
    assert reads(one(sms="0")) == 1.0
    assert reads(one(kernel="multicast_4", sms="cluster")) == 1.0


def test_two_to_one_is_the_most() -> None:
    limit = GPU.xbar.coalesce_max_requests
    for num in range(1, 7):
        assert reads(one(kernel="bulk", sms=" ".join(map(str, case.OF_ONE_GPC[:num])))) == -(-num // limit)


def test_a_request_for_a_line_that_is_on_its_way_waits_for_the_rest_of_the_way() -> None:
    """The later it comes, the shorter it waits, down to a hit; nobody waits longer than the first."""
    waits = [CASE.predict(one(kernel="bulk", sms="0 2", state="hbm", skew=skew), GPU) for skew in (0, 100, 200, 400, 2000)]
    seconds = [wait["second_p50_cycles"] for wait in waits]
    assert seconds == sorted(seconds, reverse=True) and seconds[0] <= waits[0]["first_p50_cycles"]
    hit = CASE.predict(one(kernel="bulk", sms="2 0"), GPU)["first_p50_cycles"]  # of the same SM
    assert seconds[-1] == pytest.approx(hit)


def test_who_joins_a_line_waits_for_so_much_less_as_it_asks_later() -> None:
    """It comes to both at once, but for what their ways from L2 differ; who joins some lines waits for the others."""
    shots = {skew: one(kernel="bulk", sms="0 1", skew=skew, shot_bytes=16384) for skew in (10, 40, 90, 150)}
    found = {skew: CASE.predict(shot, GPU) for skew, shot in shots.items()}
    waits = {skew: predicted["second_p50_cycles"] for skew, predicted in found.items()}
    assert found[40][case.READ] == found[10][case.READ] < found[90][case.READ] < found[150][case.READ]
    assert waits[10] - waits[40] == pytest.approx(30.0, abs=1.0)
    assert waits[40] < waits[90] < waits[150]


def test_a_hit_costs_latency_and_bytes() -> None:
    """And the farthest slice, and the kernel's own code; the bytes move while the rest is looked up."""
    base, of_load = case.CODE_CYCLES["load"]
    for num_bytes in (8192, 16384):
        wait = CASE.predict(one(kernel="load_8", sms="0", shot_bytes=num_bytes), GPU)["first_p50_cycles"]
        moved, lines = num_bytes / GPU.xbar.sm_read_bytes_per_cycle, num_bytes / 128
        latency = GPU.l2.near_latency_cycles + GPU.l2.slice_spread_cycles * (lines - 1) / (lines + 1)
        issue = num_bytes / 512 / 4
        assert moved + latency <= wait - base - 8 * of_load <= issue + moved + latency + 1e-6


def test_what_is_predicted_is_what_is_measured() -> None:
    for configs in CONFIGS.values():
        for config in configs[:: max(1, len(configs) // 3)]:
            assert set(CASE.predict(config, GPU)) <= {*CASE.values, *CASE.metrics}


def as_measured(configs: list[dict[str, str]], group: str) -> list[dict[str, str]]:
    """Rows of a GPU that does what the simulator says."""
    return [
        {**config, "group": group, "skew_p50_cycles": config["skew_cycles"]}
        | {name: str(value) for name, value in CASE.predict(config, GPU).items()}
        for config in configs
    ]


def test_the_machines_own_numbers_are_found_in_rows_that_it_made() -> None:
    rows = as_measured([config for config in CONFIGS["skew"] if config["kernel"] == "load_1"], "skew")
    rows += as_measured(CONFIGS["distance"], "distance") + as_measured(CONFIGS["readers"][::3], "readers")
    found = {fitted.parameter: fitted.value for fitted in CASE.fit(rows)}
    below = max(skew for skew in case.SKEWS if skew <= GPU.xbar.coalesce_window_cycles)
    above = min(skew for skew in case.SKEWS if skew > GPU.xbar.coalesce_window_cycles)
    assert below <= found["xbar.coalesce_window_cycles"] <= above
    assert found["xbar.coalesce_max_requests"] == GPU.xbar.coalesce_max_requests


def test_who_merges_is_of_one_gpc_and_who_sends_more_across_l2_of_another_side() -> None:
    """Every calibrating row of ``distance``: the floorplan that the description has is the one that was measured."""
    rows, _ = halves(CASE, Table.read(MEASURED))
    plan = GPU.floorplan
    rows = [row for row in rows if row["group"] == "distance"]
    assert len(rows) > 80
    for row in rows:
        first, second = map(int, row["sms"].split())
        merges = case.derive(row)["num_reads_of_a_line"] < 1.5
        assert merges == (plan.gpc_of_sm[first] == plan.gpc_of_sm[second])
        if first or second > 1:  # the very first launch of all has to cross anyway
            crosses = float(row["lts__t_sectors_srcunit_ltcfabric.sum"]) > 1e5
            assert crosses == (plan.partition_of_sm[first] != plan.partition_of_sm[second])


def test_rows_without_counters_or_merging_settle_nothing() -> None:
    assert CASE.fit([]) == []
    bare = {**one(), "group": "skew", "skew_p50_cycles": "0"}
    assert CASE.fit([bare, {**one(sms="0 1 2"), "group": "readers"}, {**one(), "group": "distance"}]) == []
    apart = as_measured([config for config in CONFIGS["skew"] if config["sms"] == "0 66"], "skew")
    assert CASE.fit(apart) == []


# ---------------------------------------------------------------------------------------------- SASS




def test_all_loads_of_a_shot_are_under_way_before_the_first_is_used(sass: Sass) -> None:
    kernels = sass("line_sharing", "sm_90a")
    for name, num in (("load_1", 1), ("load_8", 8)):
        kernel = kernels[name]
        assert kernel.num_spills == 0
        plain = [item for item in kernel.select("LDG") if "128" in item.opcode and "STRONG" not in item.opcode]
        assert len(plain) == num and len({item.operands.split(",")[0] for item in plain}) == num
        begin, end = (kernel.instructions.index(plain[idx]) for idx in (0, -1))
        assert end - begin < 2 * num
        behind = [item for item in kernel.instructions[end:] if "CLOCK" in item.operands or item.name == "STS"]
        assert ["CLOCK" in item.operands for item in behind[:3]] == [True, False, True]  # clock, last use, clock


def test_a_group_is_waited_for_between_two_clock_reads(sass: Sass) -> None:
    kernels = sass("line_sharing", "sm_90a")
    for name, num in (("cp_async_1", 1), ("cp_async_8", 8)):
        kernel = kernels[name]
        copies = kernel.select("LDGSTS")
        assert len(copies) == num and all("BYPASS" in item.opcode and "128" in item.opcode for item in copies)
        assert kernel.cp_async_wait_depths == (0,) and kernel.num_spills == 0
        wait = kernel.instructions.index(kernel.select("DEPBAR")[0])
        assert "CLOCK" in kernel.instructions[wait + 1].operands


def test_one_bulk_copy_a_shot_and_flags_are_read_by_atomics_alone(sass: Sass) -> None:
    kernels = sass("line_sharing", "sm_90a")
    assert set(kernels) == {config["kernel"] for config in ALL}
    for name, kernel in kernels.items():
        if name.startswith(("bulk", "multicast")):
            (copy,) = kernel.select("UBLKCP")
            assert ("MULTICAST" in copy.opcode) == name.startswith("multicast")
        assert kernel.num_spills == 0
        strong = [item for item in kernel.select("LDG") if "STRONG" in item.opcode]
        assert len(strong) == 8 and all("128" in item.opcode for item in strong), name  # the warm-up's, eight in flight


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH: nothing can be built here")
@pytest.mark.skipif(find_program("cuobjdump") is None, reason="there is no cuobjdump: SASS cannot be read here")
def test_what_the_a100_can_do_is_built_for_it(tmp_path: Path) -> None:
    assert set(read_sass(build(CASE, "sm_80", tmp_path).path)) == {"load_1", "load_8", "cp_async_1", "cp_async_8"}
