"""Trains of wgmma: every shape is asked, the compiler adds no wait, sums are checked, and the twin follows the rule."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import Input, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.evidence.validate.calibrate import parameter
from gpusim.workload.atoms.mma import legal_wgmma_n
from gpusim.workload.dtypes import dtype
from gpusim.workload.smem.wgmma_operands import WgmmaDescriptor

from .known import remembering

Sass = Callable[[str, str], dict[str, KernelSass]]

CASE = remembering(load_case("wgmma_rate"))
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
WGMMAS = ("HGMMA", "QGMMA", "IGMMA")
TENSOR = {"bf16": "HGMMA", "fp16": "HGMMA", "tf32": "HGMMA", "fp8": "QGMMA", "int8": "IGMMA"}


@pytest.mark.parametrize("name", case.DTYPES)
def test_every_legal_n_of_every_type_is_streamed_from_smem_and_registers(name: str) -> None:
    streams = [config for config in CASE.configs("every_shape", 1) if config["question"] == "stream"]
    seen = {(c["source"], int(c["n"])) for c in streams if c["dtype"] == name and c["majors"] == "kk"}
    assert seen == {(source, n) for source in ("ss", "rs") for n in legal_wgmma_n(dtype(name))}


def test_launches_fit_the_sm() -> None:
    for config in CONFIGS:
        launch = CASE.launch(config, False)
        assert launch.smem_bytes <= 227 * 1024 and launch.block[0] <= 384
        images = [item.array for item in launch.arguments if isinstance(item, Input)][-3:-1]
        assert config["question"] in case.OTHERS or all(image.nbytes % 1024 == 0 for image in images)
        if config["question"] == "traffic":  # the loads beside stay in the part that is theirs
            assert 4 * int(config["traffic_ways"]) * 32 <= case.TRAFFIC_BYTES


# ---------------------------------------------------------------------------------------------- SASS


def bodies(kernel: KernelSass) -> list[KernelSass]:
    """The innermost loops that hold wgmma."""
    busy = [loop for loop in kernel.loops if loop.select(*WGMMAS)]
    spans = [{item.address for item in loop.instructions} for loop in busy]
    return [loop for loop, span in zip(busy, spans, strict=True) if not any(other < span for other in spans)]


def test_the_compiler_adds_no_wait_no_arrival_and_no_wgmma(sass: Sass) -> None:
    for name, kernel in sass("wgmma_rate", "sm_90a").items():
        assert kernel.num_spills == 0, name
        arrivals = sum(item.opcode == "WARPGROUP.ARRIVE" for item in kernel.instructions)
        kind, source, operand, _, n, *rest = (*name.split("_"), "", "", "", "")
        if kind in ("fences", "clocks"):
            continue
        shape = f"{TENSOR[operand]} 64x{n[1:]}x{32 // dtype(operand).num_bytes}"
        assert set(kernel.tensor_shapes) == {shape}, name
        if kind == "rate":
            has_one = (source, operand, name.split("_")[3], int(n[1:])) in case.ALONE
            assert kernel.wgmma_wait_depths == ((0, 0, 0) if has_one else (0,)), name
            assert arrivals == kernel.wgmma_wait_depths.count(0) // 2 + 1, name
            assert sorted(len(body.select(*WGMMAS)) for body in bodies(kernel)) == ([1, 4] if has_one else [4]), name
        elif kind == "wait":
            num, pending = (int(text[1:]) for text in rest[:2])
            assert kernel.wgmma_wait_depths == (pending, 0) and arrivals == 1, name
            assert [len(body.select(*WGMMAS)) for body in bodies(kernel)] == [num], name
        else:
            assert kernel.wgmma_wait_depths == (0,) and arrivals == 1, name
            assert len(kernel.select(*WGMMAS)) == case.NUM_ISSUED, name
        assert kernel.num_dummy_wgmmas == 0, name
        begins = [item for item in kernel.select(*WGMMAS) if "!UPT" in item.operands]
        assert len(begins) == (kind == "issue"), name  # the first of a row takes no sums


def test_a_loop_is_its_wgmmas_and_a_branch(sass: Sass) -> None:
    """Nothing that keeps the issuing warp busy: descriptors are worked out before."""
    for name, kernel in sass("wgmma_rate", "sm_90a").items():
        if name.startswith(("rate", "wait")):
            for body in bodies(kernel):
                assert len(body.instructions) - len(body.select(*WGMMAS)) <= 10, name
                assert not body.select("R2UR", "CS2R", "S2R", "LDG", "BAR", "MOV"), name


def test_commits_are_marks_on_the_wgmma_that_ends_a_group(sass: Sass) -> None:
    for name, kernel in sass("wgmma_rate", "sm_90a").items():
        marked = ["gsb0" in item.operands for item in kernel.select(*WGMMAS)]
        if name.endswith("_groups"):
            assert marked == [True] * case.NUM_ISSUED, name
        elif name.endswith("_group"):
            assert marked == [False] * (case.NUM_ISSUED - 1) + [True], name


def test_the_clock_is_read_between_each_two_wgmma_and_at_both_ends(sass: Sass) -> None:
    for name, kernel in sass("wgmma_rate", "sm_90a").items():
        if name.startswith("issue"):
            order = [
                "C" if item.opcode == "CS2R" else "W" if item.name in WGMMAS else "D" for item in kernel.instructions
                if item.name in WGMMAS or "SR_CLOCKLO" in item.operands or item.opcode.startswith("WARPGROUP.DEPBAR")
            ]  # fmt: skip
            assert "".join(order) == "C" + "WC" * case.NUM_ISSUED + "DC", name


def test_loads_beside_are_there_and_clocks_and_fences_too(sass: Sass) -> None:
    kernels = sass("wgmma_rate", "sm_90a")
    loads = max(len(loop.select("LDS")) for loop in kernels["rate_ss_bf16_kk_n64"].loops)
    assert loads == case.TRAFFIC_BATCH + 1
    fences = min(kernels["fences"].loops, key=lambda loop: len(loop.instructions))
    assert len(fences.select("WARPGROUP")) == case.NUM_FENCES
    places = [idx for idx, item in enumerate(kernels["clocks"].instructions) if "SR_CLOCKLO" in item.operands]
    assert places == list(range(places[0], places[0] + case.NUM_ISSUED + 2))


# ---------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("idx", range(0, len(list(case.shapes())), 23))
def test_the_descriptors_find_the_operands_of_every_step(idx: int) -> None:
    source, operand, majors, n = list(case.shapes())[idx]
    made = case.operands_of(source, operand, majors, n, "random")

    def read(name: str, rows: int, major: str, step: int) -> Any:
        places = WgmmaDescriptor.from_bits(made[f"{name}_descriptor"] + step * made[f"{name}_step"])
        found = made[name][places.core_matrices("K" if major == "k" else "MN", rows)[..., None] + np.arange(16)]
        if major == "k":
            raw = np.ascontiguousarray(found.transpose(0, 2, 1, 3).reshape(rows, 32))
            return case.decode(raw.view({8: "u1", 16: "<u2", 32: "<u4"}[dtype(operand).bits]), operand)
        values = case.decode(np.ascontiguousarray(found).view("<u2"), operand)
        return values.transpose(0, 3, 1, 2).reshape(rows, -1)

    for step in range(case.STREAM_WGMMAS):
        b = read("b", n, majors[1], step)
        a = case.decode(made["a_rows"].view({8: "u1", 16: "<u2", 32: "<u4"}[dtype(operand).bits]), operand)
        if source == "ss":
            a = read("a", 64, majors[0], step)
        assert np.allclose(a @ b.T, made["products"][step], rtol=1e-12)


@pytest.mark.parametrize("name", case.DTYPES)
def test_data_are_normal_numbers_that_the_type_has(name: str) -> None:
    values = case.draw(64, 128, name, 1)
    assert np.array_equal(case.decode(case.encode(values, name), name), values)
    scale = 40.0 if name == "int8" else 1.0
    assert abs(values.mean()) < 0.05 * scale and abs(values.std() - scale) < 0.1 * scale
    assert (values != 0).mean() > 0.95


def answers(config: dict[str, str]) -> dict[str, Any]:
    """What a launch must leave: sums added one product after the other, thread by thread."""
    lengths, num_groups = case.lengths_of(typed(config)), max(int(config["num_warpgroups"]), 1)
    outputs: dict[str, Any] = {}
    ends = 150 + 720 * np.repeat(lengths[:, None].astype(np.int64), 4 * num_groups, 1)
    outputs["times"] = np.stack([np.full_like(ends, 100), ends], -1)
    if config["question"] == "clocks":
        outputs["times"] = stamps_of(len(lengths), 4 * num_groups)
    if config["question"] in case.OTHERS:
        return outputs
    made = case.operands_of(*case.shape_of(config), config["data"])
    per_group = case.NUM_ISSUED if config["question"] == "issue" else int(config["wgmmas_per_group"])
    total = np.zeros(made["products"].shape[1:])
    for _ in range(int(lengths[-1])):
        for idx in range(per_group):
            total = total + made["products"][idx % 4]
    sums = np.empty((num_groups, 128, total.shape[1] // 2), dtype="<i4" if config["dtype"] == "int8" else "<f4")
    for thread in range(128):
        for register in range(sums.shape[-1]):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (register >> 1 & 1)
            sums[:, thread, register] = total[row, 8 * (register >> 2) + 2 * (thread % 4) + (register & 1)]
    outputs["d"] = sums
    outputs["traffic"] = np.tile(np.array([100, 10_000, 7], dtype=np.int64), (4, 1))
    if config["question"] == "issue":
        outputs["times"] = stamps_of(len(lengths))
    return outputs


def stamps_of(num_trains: int, num_warps: int = 4) -> Any:
    return np.broadcast_to(1000 + 10 * np.arange(case.NUM_ISSUED + 2), (num_trains, num_warps, case.NUM_ISSUED + 2)).copy()


SOME = [config for group in CASE.groups for config in CASE.configs(group, 1)[:: max(1, len(CASE.configs(group, 1)) // 8)]]


@pytest.mark.parametrize("config", SOME, ids=lambda config: f"{config['question']}-{config['kernel']}-{config['data']}")
def test_right_sums_pass_and_one_wrong_sum_does_not(config: dict[str, str]) -> None:
    outputs = answers(config)
    values = CASE.check(config, outputs)
    if config["question"] == "issue":
        assert values == {name: 10.0 * number for number, name in enumerate(case.STAMPS, 1)}
    elif config["question"] == "clocks":
        assert values == {"cycles_each": 10.0}
    elif config["num_warpgroups"] != "0":
        num = case.NUM_FENCES if config["question"] == "fences" else int(config["wgmmas_per_group"])
        assert values["cycles_each"] == pytest.approx(720 / num)
    if config["question"] == "traffic":
        rate = 4 * 100 * (case.TRAFFIC_BATCH * int(config["traffic_ways"]) + 1) / 10_000
        assert values["traffic_wavefronts_per_cycle"] == pytest.approx(rate)
    if "d" in outputs and config["num_warpgroups"] != "0":
        outputs["d"][-1, 77, 1] += outputs["d"].dtype.type(np.abs(outputs["d"]).max() * 2 + 1)
        with pytest.raises(WrongAnswer, match=r"thread 77 .* accumulator 1"):
            CASE.check(config, outputs)


def test_zeros_must_give_zeros() -> None:
    config = CASE.configs("zeros", 1)[0]
    outputs = answers(dict(config))
    assert not outputs["d"].any() and CASE.check(config, outputs)
    outputs["d"][0, 0, 0] = np.float32(1e-30)
    with pytest.raises(WrongAnswer):
        CASE.check(config, outputs)


def test_a_warpgroup_that_was_left_out_is_noticed() -> None:
    config = dict(CASE.configs("warpgroups", 1)[-1])
    outputs = answers(config)
    outputs["d"][1] = outputs["d"][1] * 0
    with pytest.raises(WrongAnswer, match="warpgroup 1"):
        CASE.check(config, outputs)


def test_a_clock_that_stands_still_is_refused() -> None:
    config = dict(CASE.configs("issue", 1)[0])
    outputs = answers(config)
    outputs["times"] = outputs["times"].copy()
    outputs["times"][4, 1, 3] = outputs["times"][4, 1, 2]
    with pytest.raises(WrongAnswer, match="stands still"):
        CASE.check(config, outputs)


# ---------------------------------------------------------------------------------------------- the simulator


GPU = load_gpu("h200_sxm")
OTHER = replace(
    GPU,
    warp_scheduler=replace(GPU.warp_scheduler, fence_cycles=21.0),
    tensor_core=replace(
        GPU.tensor_core, wgmma_flops_per_cycle={"16bit": 3000.0, "tf32": 1800.0, "fp8": 7000.0, "int8": 5000.0},
        wgmma_smem_wavefronts_per_cycle=0.8, wgmma_overhead_cycles=3.0, wgmma_latency_cycles=61.0, wgmma_max_groups=4,
        wgmma_min_interval_cycles=19.0, wgmma_smem_a_cycles=5.0, wgmma_register_a_cycles=2.0,
    ),
)  # fmt: skip
BOTH = pytest.mark.parametrize("gpu", [GPU, OTHER], ids=["h200", "other"])


def predicted(question: str, shape: Any, gpu: GpuSpec = GPU, **others: object) -> dict[str, float]:
    return CASE.predict(case._rate(question, shape, **others), gpu)


@BOTH
@pytest.mark.parametrize("shape", [
    ("ss", "bf16", "kk", 8), ("ss", "bf16", "kk", 64), ("ss", "bf16", "kk", 256), ("rs", "bf16", "kk", 32),
    ("ss", "fp8", "kk", 128), ("ss", "tf32", "kk", 128), ("rs", "int8", "kk", 128),
])  # fmt: skip
def test_a_stream_runs_at_the_larger_of_arithmetic_and_operands(shape: Any, gpu: GpuSpec) -> None:
    source, operand, _, n = shape
    core = gpu.tensor_core
    flops = 2 * 64 * n * 32 // dtype(operand).num_bytes
    rate = core.wgmma_flops_per_cycle["16bit" if operand in ("bf16", "fp16") else operand]
    wavefronts = (16 if source == "ss" else 0) + n / 4
    operands = wavefronts / core.wgmma_smem_wavefronts_per_cycle
    each = max(flops / rate, operands, core.wgmma_min_interval_cycles) + core.wgmma_overhead_cycles
    assert predicted("stream", shape, gpu)["cycles_each"] == pytest.approx(each)
    start = core.wgmma_smem_a_cycles if source == "ss" else core.wgmma_register_a_cycles
    turn = case.ROUND_CYCLES["one"][source]
    alone = max(start + flops / rate, operands) + core.wgmma_overhead_cycles + core.wgmma_latency_cycles
    assert predicted("one", shape, gpu)["cycles_each"] == pytest.approx(alone + gpu.warp_scheduler.fence_cycles + turn)


def test_two_warpgroups_share_the_tensor_cores() -> None:
    shape = ("ss", "bf16", "kk", 128)
    alone = predicted("stream", shape)["cycles_each"]
    for num in (2, 3):
        assert predicted("stream", shape, num_warpgroups=num)["cycles_each"] == pytest.approx(num * alone)


def test_groups_in_flight_behind_a_wait_never_cost() -> None:
    for shape in case.BEHIND[:4]:
        each = {
            (config["wgmmas_per_group"], config["num_pending"]): CASE.predict(config, GPU)["cycles_each"]
            for config in CASE.configs("waits", 1) if case.shape_of(config) == shape
        }  # fmt: skip
        for num in ("1", "2", "4"):
            assert each[num, "0"] >= each[num, "1"] - 1e-6 >= each[num, "2"] - 2e-6
        assert each["1", "0"] > each["2", "0"] > each["4", "0"] > each["8", "0"]


@BOTH
def test_the_issuing_warp_waits_where_too_many_groups_are_in_flight(gpu: GpuSpec) -> None:
    most = gpu.tensor_core.wgmma_max_groups
    for config in CASE.configs("issue", 1)[:8]:
        told = CASE.predict(config, gpu)
        steps = np.diff([told[name] for name in case.STAMPS[: case.NUM_ISSUED]])
        assert (steps >= -1e-6).all() and steps[: most - 1] == pytest.approx(0.0)
        assert (steps[most - 1 :].sum() > 0.0) == (config["wgmmas_per_group"] == "1")


@BOTH
def test_fences_are_as_the_description_says_and_warpgroups_do_not_share_them(gpu: GpuSpec) -> None:
    told = [CASE.predict(config, gpu) for config in CASE.configs("others", 1) if config["question"] == "fences"]
    branch = case.BRANCH_INSTRUCTIONS * gpu.warp_scheduler.dependent_cycles
    assert told == 2 * [{"cycles_each": pytest.approx(gpu.warp_scheduler.fence_cycles + branch / case.NUM_FENCES)}]


def test_nothing_is_said_where_loads_compete_of_clocks_and_where_there_is_no_wgmma() -> None:
    silent = [*CASE.configs("traffic", 1), *(config for config in CONFIGS if config["question"] == "clocks")]
    assert all(CASE.predict(config, GPU) == {} for config in silent)
    assert CASE.predict(case._rate("one", case.BEHIND[0]), load_gpu("a100_sxm_80gb")) == {}


def test_what_is_judged_is_predicted() -> None:
    some = (CASE.configs("issue", 1)[0], CASE.configs("waits", 1)[0])
    told = {name for config in some for name in CASE.predict(config, GPU)}
    assert set(CASE.tiers) <= told <= set(CASE.values)


def test_zeros_are_predicted_as_random_data() -> None:
    for config in CASE.configs("zeros", 1):
        assert CASE.predict(config, GPU) == CASE.predict({**config, "data": "random"}, GPU)


# ---------------------------------------------------------------------------------------------- parameters

FITTED = {
    *(f"tensor_core.wgmma_flops_per_cycle.{name}" for name in ("16bit", "tf32", "fp8", "int8")),
    "tensor_core.wgmma_smem_wavefronts_per_cycle", "tensor_core.wgmma_overhead_cycles",
    "tensor_core.wgmma_min_interval_cycles", "tensor_core.wgmma_smem_a_cycles", "tensor_core.wgmma_latency_cycles",
    "tensor_core.wgmma_register_a_cycles", "tensor_core.wgmma_max_groups",
}  # fmt: skip


def rows_of(gpu: GpuSpec, half: int) -> list[dict[str, str]]:
    """What the bench would have written of a GPU that is as described: the configs at even or odd places."""
    return [
        {**config, "group": group, **{name: str(number) for name, number in CASE.predict(config, gpu).items()}}
        for group in ("every_shape", "issue", "others") for config in CASE.configs(group, 1)[half::2]
    ]  # fmt: skip


@pytest.mark.parametrize(("gpu", "half"), [(GPU, 0), (OTHER, 1)], ids=["h200-even", "other-odd"])
def test_rows_of_a_machine_that_is_known_give_its_numbers_back(gpu: GpuSpec, half: int) -> None:
    rows = rows_of(gpu, half)
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted.keys() == FITTED - ({"tensor_core.wgmma_max_groups"} if half else set())  # the other half has one group
    for name, value in fitted.items():
        assert value == pytest.approx(parameter(gpu, name), rel=0.01), name
    for row in rows[::9]:
        for name in ("cycles_each", *case.STAMPS):
            if name in row and row["question"] != "fences":
                row[name] = str(2.0 * float(row[name]))
    for item in CASE.fit(rows):  # a few rows that are far off move no number much
        assert item.value == pytest.approx(parameter(gpu, item.parameter), rel=0.1), item.parameter


def test_looks_at_the_clock_are_no_wait_for_the_queue() -> None:
    """Each stamp is late by as much as the looks before it took."""
    rows = rows_of(GPU, 0)
    for row in rows:
        if row["question"] == "issue":
            row.update({name: str(float(row[name]) + 40.0 * idx) for idx, name in enumerate(case.STAMPS)})
        if row["question"] == "clocks":
            row["cycles_each"] = "40.0"
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted["tensor_core.wgmma_max_groups"] == GPU.tensor_core.wgmma_max_groups


def test_loads_beside_tell_what_goes_between_two_wgmma() -> None:
    rows = rows_of(GPU, 0)
    for config in CASE.configs("traffic", 1):
        if config["n"] in ("8", "32") and config["num_warpgroups"] == "1":
            each = predicted("stream", case.shape_of(config))["cycles_each"]
            told = {"cycles_each": str(each), "traffic_wavefronts_per_cycle": str(2.5 / each)}
            rows.append({**config, "group": "traffic", **told})
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted["tensor_core.wgmma_min_free_wavefronts"] == pytest.approx(2.5)


def test_rows_that_tell_nothing_fit_nothing() -> None:
    assert CASE.fit([]) == []
    assert CASE.fit([{**config, "group": group} for group in CASE.groups for config in CASE.configs(group, 1)]) == []
    without_fences = [row for row in rows_of(GPU, 0) if row["group"] == "every_shape"]
    assert {item.parameter for item in CASE.fit(without_fences)} == FITTED - {
        "tensor_core.wgmma_latency_cycles", "tensor_core.wgmma_smem_a_cycles", "tensor_core.wgmma_register_a_cycles",
        "tensor_core.wgmma_max_groups",
    }  # fmt: skip
