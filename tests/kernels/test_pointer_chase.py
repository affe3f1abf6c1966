"""The chain is one cycle, ends where the host says; latencies are told apart; the loop times one load and nothing else."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import Config, Output, Scratch, kernel_folder, load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.evidence.validate.calibrate import parameter

CASE = load_case("pointer_chase")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
GPU = load_gpu("h200_sxm")
CYCLES = {"first": 550, "again": 270, "reference": 480}
OVERHEAD = 20


def test_nodes_lie_in_the_buffer_apart_from_what_empties_l2() -> None:
    for config in CONFIGS:
        footprint, stride = int(config["footprint_bytes"]), int(config["stride_bytes"])
        assert stride % 8 == 0 and footprint <= case.MOST_BYTES < case.MOST_BYTES + case.FLUSH_BYTES
        assert (case.num_nodes(config) - 1) * stride + 8 <= footprint
        assert case.num_nodes(config) < 2**26 and case.num_bits(config) <= 26


def test_a_cold_pass_sees_no_node_twice() -> None:
    for config in CONFIGS:
        count = case.num_samples(config)
        assert 1 <= count <= case.MOST_SAMPLES
        if config["warmed_by"] == "none" and case.num_nodes(config) < 2**20:
            visited = case.walk(config, 2 * count)
            assert len(set(visited)) == 2 * count


def test_the_sweep_goes_from_16_kib_to_4_gib_from_several_sms_in_l1_and_not_cold_and_warm() -> None:
    sweep = CASE.configs("footprint", 1)
    assert {int(config["footprint_bytes"]) for config in sweep} >= {16 << 10, 1 << 20, 60 << 20, 4 << 30}
    assert len({config["sm"] for config in sweep}) == 4
    kinds = {(config["kernel"], config["warmed_by"]) for config in sweep}
    assert kinds == {(kernel, state) for kernel in ("chase_ca", "chase_cg") for state in ("self", "none")}
    assert {config["sm"] for config in CASE.configs("side", 1)} == {str(sm) for sm in range(132)}


def links(num_nodes: int) -> list[int]:
    """Where each node points: as the kernel's threads write it, each for one value of the generator."""
    bits = (num_nodes - 1).bit_length()
    mask, half = (1 << bits) - 1, (bits + 1) // 2

    def node_of(x: int) -> int:
        x ^= x >> half
        x = x * 0x9E3779B1 & 0xFFFFFFFF & mask
        return x ^ x >> half

    pointers = [-1] * num_nodes
    for x in range(mask + 1):
        if node_of(x) < num_nodes:
            after = (x * 1664525 + 1013904223) % 2**32 & mask
            while node_of(after) >= num_nodes:
                after = (after * 1664525 + 1013904223) % 2**32 & mask
            pointers[node_of(x)] = node_of(after)
    return pointers


@given(num_nodes=st.integers(1, 3000))
@settings(max_examples=40, deadline=None)
def test_the_chain_is_one_cycle_through_all_nodes_and_the_walk_follows_it(num_nodes: int) -> None:
    config = case.Config("chase_cg", num_nodes * 128)
    pointers = links(num_nodes)
    assert sorted(pointers) == list(range(num_nodes))
    walked = case.walk(config, num_nodes)
    assert sorted(walked) == list(range(num_nodes))
    at = 0
    for node in walked:
        at = pointers[at]
        assert at == node


def test_neighbours_in_a_random_chain_are_no_neighbours_in_memory() -> None:
    walked = np.array(case.walk(case.Config("chase_cg", 1 << 20), 4096))
    distances = np.abs(np.diff(walked))
    assert np.mean(distances <= 2) < 0.01 and np.median(distances) > 8192 / 8
    assert len(np.unique(walked[:256] // 32)) > 128  # spread over pages of 4 KiB


def outputs_of(config: Config, cycles: dict[str, int] | None = None) -> dict[str, Any]:
    """What a launch leaves where loads of each pass take so many cycles."""
    cycles = cycles or CYCLES
    state, times = (item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output))
    count = case.num_samples(config)
    visited = case.walk(config, 2 * count)
    state["whole_cycles"] = count * cycles["first"]
    state["whole_ns"] = count * cycles["first"] / 1.9
    state["ends"][0][:] = [node * int(config["stride_bytes"]) for node in (visited[count - 1], *3 * [visited[-1]])]
    state["ctas_on_sm"][0][:132] = 1
    for idx, name in enumerate(("first", "again", "reference")):
        times[idx, :count] = cycles[name] + OVERHEAD
    times[3, :count] = OVERHEAD
    return {"state": state, "times": times}


SIDE = CASE.configs("side", 1)[5]


def test_two_sides_show_as_two_heaps_and_in_the_correlation() -> None:
    outputs = outputs_of(SIDE)
    rng = np.random.default_rng(7)
    is_far = rng.random(case.MOST_SAMPLES) < 0.5
    for idx, sides in ((1, is_far), (2, ~is_far)):
        outputs["times"][idx] = OVERHEAD + np.where(sides, 470, 290) + rng.integers(-9, 10, case.MOST_SAMPLES)
    values = CASE.check(SIDE, outputs)
    assert abs(values["again_centre0_cycles"] - 290) <= 3 and abs(values["again_centre1_cycles"] - 470) <= 3
    assert abs(values["again_share0"] - 0.5) < 0.03 and "again_centre2_cycles" not in values
    assert values["correlation"] < -0.95


@given(
    centres=st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True),
    width=st.integers(0, 12),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_heaps_far_enough_apart_are_told_apart_whatever_they_weigh(centres: list[int], width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wanted = sorted(40 + 90 * centre for centre in centres)
    heaps = [centre + rng.integers(-width, width + 1, 100 * (1 + idx)) for idx, centre in enumerate(wanted)]
    found = case.clusters(rng.permutation(np.concatenate(heaps)).astype(float))
    assert len(found) == len(wanted)
    assert all(abs(centre - right) <= width for (centre, _), right in zip(found, wanted, strict=True))
    assert sum(share for _, share in found) == pytest.approx(1.0)


def test_the_room_is_large_enough_and_the_structures_are_the_kernels() -> None:
    (room,) = [item for item in CASE.launch(SIDE, False).arguments if isinstance(item, Scratch)]
    assert room.num_bytes == case.MOST_BYTES + case.FLUSH_BYTES
    assert case.STATE.itemsize == 88 + 4 * 256 and case.STATE.fields["arrived"][1] == 64
    assert len(CASE.launch(SIDE, False).arguments[0].tobytes()) == 56


# ---------------------------------------------------------------------------------------------- the simulator


def predicted(kernel: str, size: int, warmed_by: str) -> float:
    return CASE.predict(case.Config(kernel, size, warmed_by=warmed_by), GPU)["whole_cycles"]


def test_plateaus_are_the_latencies_of_the_description() -> None:
    of_memory = GPU.hbm.latency_ns * GPU.clock.max_mhz / 1e3
    assert predicted("chase_ca", 64 << 10, "self") == pytest.approx(GPU.l1.hit_latency_cycles, abs=2)
    assert predicted("chase_cg", 4 << 20, "self") == pytest.approx(GPU.l2.near_latency_cycles, abs=3)
    assert predicted("chase_cg", 64 << 20, "none") == pytest.approx(of_memory, abs=3)


def test_a_larger_footprint_is_never_quicker() -> None:
    cycles = [predicted("chase_ca", size, "self") for size in case.FOOTPRINTS[::4]]
    assert cycles == sorted(cycles) and cycles[0] < cycles[-1]


def test_another_latency_in_the_description_moves_its_plateau_and_no_other() -> None:
    slower = replace(GPU, l1=replace(GPU.l1, hit_latency_cycles=GPU.l1.hit_latency_cycles + 10))
    in_l1, in_l2 = (case.Config(kernel, 64 << 10, warmed_by="self") for kernel in ("chase_ca", "chase_cg"))
    assert case.latency_cycles(in_l1, slower) == pytest.approx(case.latency_cycles(in_l1, GPU) + 10)
    assert case.latency_cycles(in_l2, slower) == pytest.approx(case.latency_cycles(in_l2, GPU))


def test_nothing_is_said_of_sides_pages_and_fills() -> None:
    for group in ("side", "page", "order"):
        answered = [config for config in CASE.configs(group, 1) if CASE.predict(config, GPU)]
        assert all(config["order"] == "random" and config["stride_bytes"] == "128" for config in answered)
        assert len(answered) == (1 if group == "order" else 0)


# ---------------------------------------------------------------------------------------------- parameters

OTHER = replace(
    GPU, l1=replace(GPU.l1, hit_latency_cycles=52.0), hbm=replace(GPU.hbm, latency_ns=390.0),
    l2=replace(GPU.l2, near_latency_cycles=210.0, far_latency_cycles=333.0),
)  # fmt: skip


def near_of(gpu: GpuSpec, seed: int) -> dict[str, float]:
    """What a pass over one side of L2 gives, which the simulator answers by its mean alone: slices lie evenly."""
    rng = np.random.default_rng(seed)
    spread = gpu.l2.slice_spread_cycles / 0.98
    times = np.full((4, case.MOST_SAMPLES), OVERHEAD, dtype=np.int64)
    times[:3] += np.rint(gpu.l2.near_latency_cycles + rng.uniform(-spread, spread, times[:3].shape)).astype(np.int64)
    found: dict[str, float] = case.values_of(0.0, times, case.PASSES)
    return {name: value for name, value in found.items() if name != "whole_cycles"}


def memory_of(gpu: GpuSpec) -> dict[str, float]:
    """Quantiles of a cold pass: some wait for a refresh, evenly long."""
    longest = gpu.hbm.refresh_ns * gpu.clock.max_mhz / 1e3
    waits = {pct: longest * (1 - (1 - pct / 100) / gpu.hbm.refresh_fraction) for pct in (90, 99)}
    return {"first_p75_cycles": 700.0} | {f"first_p{pct}_cycles": 700.0 + wait for pct, wait in waits.items()}


def far_row(gpu: GpuSpec) -> dict[str, str]:
    """An SM that reads what one of the other side has brought: every second line is far at first."""
    near, far = gpu.l2.near_latency_cycles, gpu.l2.far_latency_cycles
    mean = (near + far) / 2
    numbers = {"whole_cycles": mean + 1, "first_mean_cycles": mean, "again_mean_cycles": near}
    return {**SIDE, "group": "side", **{name: str(number) for name, number in numbers.items()}}


def is_read(config: Config) -> bool:
    """Whether a latency is read off a row: of L1, of L2, of memory, where footprints end in none other."""
    least, most = {"chase_ca": (0, 1 / 8), "chase_cg": (1, 16)}[config["kernel"]]
    if config["warmed_by"] == "none":
        least, most = 64, 256
    return least <= int(config["footprint_bytes"]) / case.MIB <= most


@pytest.mark.parametrize(("gpu", "half"), [(GPU, 0), (OTHER, 1)], ids=["h200-even", "other-odd"])
def test_rows_of_a_machine_that_is_known_give_its_latencies_back(gpu: GpuSpec, half: int) -> None:
    rows = []
    for idx, config in enumerate(CASE.configs("footprint", 1)[half::2]):
        if is_read(config):
            numbers = CASE.predict(config, gpu)
        else:
            numbers = {"whole_cycles": 1e6, "sm_clock_mhz": gpu.clock.max_mhz}  # of no plateau
        if config["kernel"] == "chase_cg" and config["warmed_by"] == "self":
            numbers |= near_of(gpu, idx)
        if config["warmed_by"] == "none":
            numbers |= memory_of(gpu)
        rows.append({**config, "group": "footprint", **{name: str(number) for name, number in numbers.items()}})
    fitted = {item.parameter: item.value for item in CASE.fit([*rows, far_row(gpu)])}
    assert fitted.keys() == {
        "l1.hit_latency_cycles", "l2.near_latency_cycles", "l2.far_latency_cycles", "l2.slice_spread_cycles",
        "hbm.latency_ns", "hbm.refresh_fraction", "hbm.refresh_ns",
    }  # fmt: skip
    for name, value in fitted.items():
        assert value == pytest.approx(parameter(gpu, name), rel=0.02), name


def test_rows_that_tell_nothing_fit_nothing() -> None:
    assert CASE.fit([]) == []
    assert CASE.fit([{**config, "group": group} for group in CASE.groups for config in CASE.configs(group, 1)]) == []
    one_heap = {**case.Config("chase_cg", 2 << 20, warmed_by="self"), "again_centre0_cycles": "280", "again_share0": "1"}
    assert CASE.fit([{**one_heap, "group": "footprint"}]) == []


# ---------------------------------------------------------------------------------------------- the compiled kernel


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_timed_load_has_a_clock_before_it_and_one_behind_what_needs_its_value(
    sass: Callable[[str, str], dict[str, KernelSass]], arch: str
) -> None:
    for name, kernel in sass("pointer_chase", arch).items():
        assert kernel.num_spills == 0 and kernel.stack_bytes == 0
        timed = [loop for loop in kernel.loops if len(loop.select("CS2R", "S2UR")) == 2 and loop.select("STS")]
        with_load = [loop for loop in timed if loop.select("LDG")]
        assert len(timed) == 2 and len(with_load) == 1, name
        clocks = [item for item in with_load[0].instructions if "CLOCK" in item.operands]
        order = [item for item in with_load[0].instructions if item.name in ("LDG", "STS") or item in clocks]
        first = "CS2R" if arch == "sm_90a" else "S2UR"  # a slower way to the clock; the loop without a load has it too
        assert [item.name for item in order] == [first, "LDG", "STS", "CS2R", "STS"]
        between = [item for item in with_load[0].instructions if clocks[0].address < item.address < clocks[1].address]
        assert len(between) <= 3, "only the load and what needs it lie between the clocks"
        loaded, stored = order[1].operands.split(",")[0], order[2].operands.split(",")[-1].strip()
        assert loaded == stored, "the store needs the loaded value"
        assert order[1].opcode == {"chase_ca": "LDG.E.64", "chase_cg": "LDG.E.64.STRONG.GPU"}[name]


def test_the_bare_chain_is_loads_that_wait_for_one_another(sass: Callable[[str, str], dict[str, KernelSass]]) -> None:
    for kernel in sass("pointer_chase", "sm_90a").values():
        chains = [loop for loop in kernel.loops if len(loop.select("LDG")) == 8]
        assert chains
        loads = chains[-1].select("LDG")
        for before, after in pairwise(loads):
            assert f"[{before.operands.split(',')[0]}.64]" in after.operands


def test_fields_stand_in_the_order_of_the_kernels_structure() -> None:
    source = (kernel_folder("pointer_chase") / "kernel.cu").read_text(encoding="utf-8")
    body = re.search(r"struct State \{(.*?)\};", source, re.DOTALL)
    assert body is not None
    code = re.sub(r"//.*", "", body[1])
    names = [re.sub(r"\[.*", "", name) for line in re.findall(r"\w+_t ([^;]+);", code) for name in line.split(", ")]
    assert names == list(case.STATE.names)
