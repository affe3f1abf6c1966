"""A footprint read over and over: what is launched, what counts as an answer, what the simulator's rule says of it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, Output, WrongAnswer, load_case
from gpusim.evidence.toolchain.cuda_toolkit import build, find_program
from gpusim.evidence.toolchain.sass import KernelSass, read_sass

CASE = load_case("l2_residency")
case = sys.modules[CASE.launch.__module__]
GPU = load_gpu("h200_sxm")
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]
Sass = Callable[[str, str], dict[str, KernelSass]]


def one(mib: int = 24, readers: str = "split", writes: int = 0, **hints: str) -> Config:
    made: Config = replace(case.Config(mib, readers, writes), **hints)
    return made


def test_footprints_grow_within_a_sweep_up_to_what_the_pool_holds() -> None:
    for group, sizes in (("footprint", case.FOOTPRINTS_MIB), ("writes", case.FEWER_MIB), ("hints", case.FEWER_MIB)):
        found = [int(config["footprint_mib"]) for config in CONFIGS[group]]
        assert len(found) % len(sizes) == 0
        assert all(tuple(found[at : at + len(sizes)]) == sizes for at in range(0, len(found), len(sizes)))
        assert max(found) <= 64 and sizes == tuple(sorted(sizes))


def test_lines_that_are_to_stay_come_last_so_that_they_can_disturb_nobody() -> None:
    assert CASE.groups["hints"].rank == max(group.rank for group in CASE.groups.values())
    assert all(config["read_hint"] == "evict_normal" for group in ("footprint", "writes") for config in CONFIGS[group])


def test_the_plan_has_a_word_for_each_field() -> None:
    for config in ALL:
        plan = np.frombuffer(CASE.launch(config, False).arguments[0].tobytes(), dtype="<u4")
        assert len(plan) == 6 and plan[0] == case.footprint_bytes(config) and plan[0] % 4096 == 0
        assert case.READERS[plan[2]] == config["readers"] and case.HINTS[plan[3]] == config["read_hint"]


def test_the_expected_sum_is_that_of_the_pools_words() -> None:
    words = np.arange(1024, dtype=np.uint64) * 0x9E3779B1 + 0x7F4A7C15
    assert case.sum_of_words(4096) == int((words % 2**32).sum()) % 2**32


def outputs_of(config: dict[str, str], *, num_of_side_0: int = 66) -> dict[str, np.ndarray]:
    """What a launch must leave: two sides, 5000 cycles a round, near lines for side 0 and a quarter of misses for side 1."""
    arrays = {item.name: item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)}
    sides = (np.arange(case.NUM_CTAS) >= num_of_side_0).astype(int)
    homes = np.random.default_rng(3).integers(0, 2, case.NUM_PROBES)
    arrays["probed"][:] = np.where(sides[:, None] == homes, 650, 850)
    arrays["sides"][:] = sides
    arrays["rounds"][:] = 5000
    arrays["rounds"][:, 7] = np.arange(case.NUM_ROUNDS) + 6000
    arrays["sampled"][0], arrays["sampled"][1] = 290, np.where(np.arange(case.NUM_SAMPLES) % 4, 470, 900)
    if num_of_side_0 == case.NUM_CTAS:
        arrays["sampled"][1] = 0
    arrays["told"][:, 0] = sides
    total = case.NUM_ROUNDS * case.num_readings(config) * case.sum_of_words(case.footprint_bytes(config))
    arrays["told"][:, 2] = total // case.NUM_CTAS  # the sums of SMs only count together
    arrays["told"][0, 2] += total % case.NUM_CTAS
    return arrays


def test_a_right_answer_gives_the_settled_rounds_and_both_sides_latencies() -> None:
    values = CASE.check(one(readers="both_sides"), outputs_of(one(readers="both_sides")))
    assert values["round_cycles"] == 6005.5 and values["first_round_cycles"] == 6000
    assert values["num_sms_of_side_0"] == 66 and values["side_correlation"] == pytest.approx(1.0)
    assert (values["side_0_p50_cycles"], values["side_0_far_fraction"], values["side_0_miss_fraction"]) == (290, 0, 0)
    assert (values["side_1_p50_cycles"], values["side_1_far_fraction"], values["side_1_miss_fraction"]) == (470, 0.75, 0.25)
    assert set(values) <= set(CASE.values)


def test_a_gpu_with_one_side_gives_nothing_for_the_other() -> None:
    values = CASE.check(one(), outputs_of(one(), num_of_side_0=case.NUM_CTAS))
    assert values["num_sms_of_side_0"] == 132 and not any(name.startswith("side_1") for name in values)


@pytest.mark.parametrize(
    ("name", "place", "value", "match"),
    [
        ("flags", 1, 1, "given up"), ("told", (5, 0), -1, "never came"), ("rounds", (3, 9), -1, "never came"),
        ("told", (0, 2), 17, "sum up to"), ("told", (3, 0), 1, "other side"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_refused(name: str, place: object, value: int, match: str) -> None:
    outputs = outputs_of(one())
    outputs[name][place] = value  # type: ignore[index]  # an index of numpy's
    with pytest.raises(WrongAnswer, match=match):
        CASE.check(one(), outputs)


def fetched(config: dict[str, str]) -> float:
    """Share of the footprint that comes from HBM again in each round."""
    num_bytes = case.miss_bytes(case.footprint_bytes(config), config["readers"], int(config["writes_of_8"]), GPU)
    return CASE.derive({**config, case.DRAM_READ: str(num_bytes)})["refetched_fraction"]


SIDE_MIB = GPU.l2_partitions.partition_bytes / case.MIB
"""What a side holds; the share lost is a logistic curve around it."""


def lost(pressure: float) -> float:
    return float(GPU.l2_partitions.lost_share(pressure * GPU.l2_partitions.partition_bytes))


@pytest.mark.parametrize("mib", [8, 28, 32, 36, 40, 44, 56, 64])
def test_what_is_lost_follows_what_each_reader_puts_on_a_side(mib: int) -> None:
    """Both sides hold all; one reader's side all and the other half, whose loss counts too; split, three quarters."""
    of_both, of_one = lost(mib / SIDE_MIB), lost(mib / 2 / SIDE_MIB)
    assert fetched(one(mib, "both_sides")) == pytest.approx(of_both, abs=0.01)
    assert fetched(one(mib, "one_side")) == pytest.approx((of_both + min(of_both, of_one)) / 2, abs=0.01)
    assert fetched(one(mib, "split")) == pytest.approx(lost(0.75 * mib / SIDE_MIB), abs=0.03)


@pytest.mark.parametrize(("mib", "writes"), [(24, 8), (36, 4), (32, 8), (44, 4), (52, 1), (16, 4)])
def test_stores_take_as_much_room_as_split_lines(mib: int, writes: int) -> None:
    assert fetched(one(mib, writes=writes)) == pytest.approx(lost(0.75 * mib * (1 + writes / 8) / SIDE_MIB), abs=0.03)


def rate_of(config: dict[str, str]) -> float:
    """Bytes a cycle that all SMs take in, in a settled round."""
    return CASE.derive({**config, "round_cycles": str(CASE.predict(config, GPU)["round_cycles"])})["bytes_per_cycle"]


def test_a_round_that_fits_runs_at_the_rate_of_the_slices() -> None:
    l2 = GPU.l2
    of_side = l2.num_slices * l2.slice_bytes_per_cycle * l2.sustained_fraction / 2
    turn = of_side * (1.0 - l2.partition0_lead_fraction) / 4  # of the four GPCs of the side that does not lead
    most = GPU.num_sms * turn / 18  # all wait for SMs of its GPC of 18
    free = replace(GPU, l2=replace(l2, queue_cycles=0.0), xbar=replace(GPU.xbar, sm_distance_cycles=0.0))
    cycles = CASE.predict(one(24), free)["round_cycles"]
    assert CASE.derive({**one(24), "round_cycles": str(cycles)})["bytes_per_cycle"] == pytest.approx(most, rel=0.05)
    assert 0.8 * most < rate_of(one(24)) < most  # lines wait at their slices


def test_a_round_that_does_not_fit_runs_at_the_rate_of_hbm() -> None:
    """But for what few bytes under way leave of it (an H200's 2,264)."""
    wire = GPU.hbm.sustained_read_gb_per_s * 1e3 / GPU.clock.max_mhz
    assert 0.92 * 2264.0 < rate_of(one(64)) < wire


@pytest.mark.parametrize(("readers", "links"), [("one_side", 2), ("both_sides", 4)])
def test_a_round_beyond_what_a_side_holds_brings_half_across(readers: str, links: int) -> None:
    """Less what is lost as lanes are unlike (an H200's 1,250 and 2,400 B a cycle)."""
    link = links * GPU.l2.fabric_bytes_per_cycle
    assert 0.93 * link < rate_of(one(52, readers)) < link


def test_no_time_is_predicted_with_hints_nor_where_the_twin_would_merge() -> None:
    for config in (one(read_hint="evict_last"), one(writes=4, write_hint="evict_first"), one(readers="all")):
        assert set(CASE.predict(config, GPU)) == {case.DRAM_READ}


def test_what_a_full_l2_is_read_with_evict_first_does_not_stay() -> None:
    plain, first = (CASE.predict(one(16, read_hint=hint), GPU)[case.DRAM_READ] for hint in ("evict_normal", "evict_first"))
    assert plain == pytest.approx(16 * 2**20, rel=1e-3)
    assert first == pytest.approx(8 * 16 * 2**20, rel=0.01)


def test_what_is_predicted_is_what_is_measured() -> None:
    for configs in CONFIGS.values():
        for config in configs[:: max(1, len(configs) // 3)]:
            assert set(CASE.predict(config, GPU)) <= {*CASE.values, *CASE.metrics}


def as_measured(configs: list[dict[str, str]]) -> list[dict[str, str]]:
    """Rows of a GPU whose L2 keeps what the rule says."""
    return [
        {**config, "group": "footprint", case.DRAM_READ: str(case.miss_bytes(case.footprint_bytes(config), readers, 0, GPU))}
        for config in configs for readers in [config["readers"]]
    ]


def test_the_machines_own_side_is_found_in_rows_that_it_made() -> None:
    held, spread = CASE.fitted(as_measured(CONFIGS["footprint"]), GPU)
    assert (held.parameter, spread.parameter) == ("l2.partition_capacity_fraction", "l2.eviction_width_fraction")
    step_bytes = 2 * case.MIB  # between two footprints
    assert held.value == pytest.approx(GPU.l2.partition_capacity_fraction, abs=step_bytes / GPU.l2.capacity_bytes)
    assert spread.value == pytest.approx(GPU.l2.eviction_width_fraction, rel=0.25)


def test_rows_without_a_knee_settle_nothing() -> None:
    assert CASE.fitted([], GPU) == []
    assert CASE.fitted(as_measured([one(mib, "both_sides") for mib in (8, 16, 24)]), GPU) == []
    assert CASE.fitted([{**one(mib, "both_sides"), "group": "footprint"} for mib in (8, 64)], GPU) == []


# ---------------------------------------------------------------------------------------------- SASS


def test_eight_chunks_are_under_way_before_the_first_is_used(sass: Sass) -> None:
    (kernel,) = sass("l2_residency", "sm_90a").values()
    loads = [item for item in kernel.select("LDG") if "128" in item.opcode and "STRONG" in item.opcode]
    assert len(loads) == 8 and len({item.operands.split(",")[0] for item in loads}) == 8
    begin, end = (kernel.instructions.index(loads[idx]) for idx in (0, -1))
    registers = {item.operands.split(",")[0] for item in loads}
    assert not any("CLOCK" in item.operands for item in kernel.instructions[begin:end])
    behind = next(item for item in kernel.instructions[end:] if "CLOCK" in item.operands)
    between = kernel.instructions[end + 1 : kernel.instructions.index(behind)]
    assert not any(register in item.operands.split(",")[1:] for item in between for register in registers)
    assert kernel.num_spills == 0


def test_single_lines_are_waited_for_before_the_clock_is_read(sass: Sass) -> None:
    (kernel,) = sass("l2_residency", "sm_90a").values()
    (single,) = [item for item in kernel.select("LDG") if "128" not in item.opcode and "STRONG" in item.opcode]
    at = kernel.instructions.index(single)
    assert [kernel.instructions[at + step].name for step in (1, 2)] == ["STS", "CS2R"]
    register = single.operands.split(",")[0]
    assert kernel.instructions[at + 1].operands.endswith(register)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH: nothing can be built here")
@pytest.mark.skipif(find_program("cuobjdump") is None, reason="there is no cuobjdump: SASS cannot be read here")
def test_it_is_built_for_the_a100_too(tmp_path: Path) -> None:
    (kernel,) = read_sass(build(CASE, "sm_80", tmp_path).path).values()
    assert kernel.name == "reread" and kernel.num_spills == 0
