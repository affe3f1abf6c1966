"""Maps that are told right, SASS of each step, boxes that new maps bring, and what is predicted."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Input, MappedTensor, Output, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass

Sass = Callable[[str, str], dict[str, KernelSass]]
CASE = load_case("tensor_map")
case = sys.modules[CASE.launch.__module__]
GPU = load_gpu("h200_sxm")
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]


def test_launches_fit_and_maps_lie_on_their_alignment() -> None:
    for config in ALL:
        launch = CASE.launch(config, False)
        assert 48 * 1024 < launch.smem_bytes <= 200 * 1024
        assert int(config["map_stride_bytes"]) % 128 == 0
        inputs = [item.array for item in launch.arguments if isinstance(item, Input)]
        maps = inputs[1]
        assert maps.flags.writeable and not maps.any()  # a fresh copy for every launch: no map was there before
        if config["kernel"] == "turns":
            assert maps.nbytes == int(config["num_maps"]) * int(config["map_stride_bytes"])
            assert int(config["num_maps"]) <= case.MOST_MAPS
            assert inputs[2].nbytes == ((128 << 20) if config["flushes"] == "1" else 16)


def test_the_hosts_map_and_the_kernels_data_are_the_same_copy_on_the_gpu() -> None:
    """Fields that are not replaced still say the host's tensor."""
    for config in CONFIGS["build"]:
        arguments = CASE.launch(config, False).arguments
        (mapped,) = [item for item in arguments if isinstance(item, MappedTensor)]
        (first, *_) = [item for item in arguments if isinstance(item, Input)]
        assert mapped.array is first.array and not first.array.flags.writeable


# ---------------------------------------------------------------------------------------------- SASS


def rounds(kernel: KernelSass) -> list[KernelSass]:
    """The loop over rounds for each number of fields; code for diverged warps, which lies elsewhere, left out."""
    found: dict[int, KernelSass] = {}
    for loop in kernel.loops:
        if len(copies := loop.select("UTMALDG")) == 3:
            shortest = found.get(copies[0].address, loop)
            found[copies[0].address] = min(loop, shortest, key=lambda item: len(item.instructions))
    return list(found.values())


def test_a_map_is_made_released_acquired_and_used_three_times_with_the_clock_between(sass: Sass) -> None:
    kernels = sass("tensor_map", "sm_90a")
    for name in ("build_shared", "build_global"):
        kernel = kernels[name]
        loops = rounds(kernel)
        assert len(loops) == 7, name  # one for each number of fields
        for loop in loops:
            opcodes = [item.opcode for item in loop.select("UTMACCTL")]
            assert opcodes == ["UTMACCTL.IV", "UTMACCTL.PF"], name
            assert len(loop.select("CS2R")) >= 12, name  # six steps, three copies, and the idling
            is_released = "ATOMG" in loop.opcodes if name == "build_shared" else "MEMBAR" in loop.opcodes
            assert is_released, name
        assert kernel.num_spills == 0


def test_replacing_a_field_is_a_store_and_of_a_box_extent_a_load_too(sass: Sass) -> None:
    loops = rounds(sass("tensor_map", "sm_90a")["build_shared"])
    stores = sorted(len(loop.select("STS")) for loop in loops)
    assert stores[0] == 1  # the copy alone
    assert stores[-1] > stores[1] >= 2


def test_maps_in_turn_are_used_one_at_a_time(sass: Sass) -> None:
    kernel = sass("tensor_map", "sm_90a")["turns"]
    (load,) = kernel.select("UTMALDG")
    inner = min((loop for loop in kernel.loops if load in loop.instructions), key=lambda loop: len(loop.instructions))
    assert any("TRYWAIT" in item.opcode for item in inner.instructions) and len(inner.select("CS2R")) == 2
    assert not any("ANY" in item.opcode for item in inner.select("BRA"))  # one thread, no loop over lanes
    assert kernel.num_spills == 0


# ---------------------------------------------------------------------------------------------- check


def element(config: dict[str, str], round_idx: int, row: int, column: int) -> bytes:
    """What the new map brings for an element of its box, field by field as replaced."""
    num = int(config["num_fields"])
    begin = round_idx * 4096 if num >= 1 else 0
    width, height = 48 if num >= 2 else 64, 6 if num >= 3 else 8
    at = begin + row * (256 if num >= 4 else 128) + 2 * column
    return bytes(case.data()[at : at + 2]) if column < width and row < height else b"\0\0"


def build_times(steps: tuple[int, ...], uses: tuple[int, ...]) -> np.ndarray:
    times = np.zeros(4 + 4 * case.MOST_MAPS, dtype="<u4")
    for idx in range(case.NUM_ROUNDS):
        at, row = 2**32 - 100_000 + 20_000 * idx, []
        row.append(at)
        for step in steps:
            at += step + (1000 if idx < case.WARM_ROUNDS else 0)
            row.append(at)
        for use in uses:
            row += [at, at + use]
            at += use
        times[4 + 12 * idx : 16 + 12 * idx] = np.array(row, dtype=np.uint64) % 2**32
    return times


@pytest.mark.parametrize("num", range(7))
def test_boxes_as_the_new_fields_say_pass_and_those_of_the_old_ones_do_not(num: int) -> None:
    config = next(dict(config) for config in CONFIGS["build"] if config["num_fields"] == str(num))
    smem = np.full((case.NUM_ROUNDS, 1024), 0xFF, dtype=np.uint8)
    box_width, box_height = 32 if num >= 5 else 64, 4 if num >= 6 else 8
    for idx in range(case.NUM_ROUNDS):
        box = b"".join(element(config, idx, row, column) for row in range(box_height) for column in range(box_width))
        smem[idx, : len(box)] = np.frombuffer(box, dtype=np.uint8)
    outputs = {"smem": smem.reshape(-1), "times": build_times((40, 10, 300, 60, 8), (1200, 650, 640))}
    values = CASE.check(config, outputs)
    assert [values[f"{name}_cycles"] for name in (*case.STEPS, *case.USES)] == [40, 10, 300, 60, 8, 1200, 650, 640]
    with pytest.raises(WrongAnswer, match="not what its map says"):
        CASE.check({**config, "num_fields": str(num - 1 if num else 1)}, outputs)


def test_turns_are_told_apart_and_rows_are_checked() -> None:
    config = next(dict(config) for config in CONFIGS["turns"] if config["num_maps"] == "24")
    smem = np.array(case.data()[: 24 * 128])
    times = np.zeros(4 + 4 * case.MOST_MAPS, dtype="<u4")
    stamps = times[4:].reshape(2, case.MOST_MAPS, 2)
    stamps[0, :24, 1], stamps[1, :24, 1] = 1100 + np.arange(24), 640
    values = CASE.check(config, {"smem": smem, "times": times})
    assert (values["min_first_turn_cycles"], values["max_first_turn_cycles"]) == (1100, 1123)
    assert values["last_turn_cycles"] == 640
    with pytest.raises(WrongAnswer, match="the clock says"):
        CASE.check({**config, "num_maps": "24"}, {"smem": smem, "times": np.zeros_like(times)})
    smem[24 * 128 - 1] ^= 1
    with pytest.raises(WrongAnswer, match="not what its map says"):
        CASE.check(config, {"smem": smem, "times": times})


def test_a_copy_that_never_came_is_no_answer() -> None:
    config = CONFIGS["build"][0]
    outputs = {item.name: item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)}
    with pytest.raises(WrongAnswer, match="given up"):
        CASE.check(config, outputs)


# ---------------------------------------------------------------------------------------------- predictions


def predict(config: dict[str, str]) -> dict[str, float]:
    return CASE.predict(config, GPU)


def test_a_copy_through_a_known_map_costs_what_any_copy_does() -> None:
    gpu = GPU
    assert gpu.tma is not None and gpu.mbarrier is not None
    (config,) = [config for config in CONFIGS["turns"] if config["num_maps"] == "1" and config["map_stride_bytes"] == "128"
                 and config["prefetches"] == "0"]  # fmt: skip
    wanted = gpu.tma.issue_cycles + 128 / gpu.tma.bytes_per_cycle + gpu.l2.near_latency_cycles
    wanted += gpu.tma.latency_cycles + gpu.mbarrier.wake_cycles  # the row hides behind its bytes
    wanted += case.CODE_CYCLES["turns"]
    assert predict(config)["last_turn_cycles"] == pytest.approx(wanted)


def test_first_uses_cost_a_fetch_that_a_prefetch_hides() -> None:
    assert GPU.tma is not None
    for config in ALL:
        if config["kernel"] == "turns":
            continue
        predicted, delay = predict(config), float(config["delay_cycles"])
        late = predicted["first_cycles"] - predicted["second_cycles"]
        if config["prefetches"] == "0":
            assert late == pytest.approx(GPU.tma.tensormap_miss_cycles)
        else:
            left = GPU.tma.tensormap_prefetch_cycles - delay - case.PREFETCH_CYCLES
            assert late == pytest.approx(max(0.0, left), abs=2 * GPU.tma.issue_cycles)


def test_many_maps_are_not_predicted() -> None:
    for config in ALL:
        predicted = predict(config)
        assert "first_turn_cycles" not in predicted
        if config["kernel"] == "turns" and config["num_maps"] != "1":
            assert predicted == {}
