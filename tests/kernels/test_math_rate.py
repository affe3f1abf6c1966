"""Chains of arithmetic: what is timed is the chain, what it ends with is worked out, and full pipes are the simulator's."""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.evidence.cases.parameters import median_line
from gpusim.evidence.cases.timing import train_cycles
from gpusim.evidence.toolchain.sass import Instruction, KernelSass
from gpusim.evidence.validate.calibrate import parameter
from gpusim.workload.atoms.mma import MMA_ATOMS

from .known import remembering

Sass = Callable[[str, str], dict[str, KernelSass]]

CASE = remembering(load_case("math_rate"))
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
GPU = load_gpu("h200_sxm")
OTHER = replace(
    GPU,
    warp_scheduler=replace(GPU.warp_scheduler, fp32_lanes=64, int32_lanes=32, mufu_lanes=8),
    tensor_core=replace(
        GPU.tensor_core, mma_sync_latency_cycles=33.0, mma_sync_step_latency_cycles=9.0, mma_sync_min_interval_cycles=8.0,
        mma_sync_flops_per_cycle={"16bit": 1200.0, "tf32": 640.0, "fp8": 1500.0, "int8": 2500.0},
    ),
)  # fmt: skip
NUM_FP8 = 128
"""Instructions of four chains in a body."""


def inner_loop(kernel: KernelSass) -> KernelSass:
    return min(kernel.loops, key=lambda loop: len(loop.instructions))


def test_every_mma_sync_that_is_known_is_asked() -> None:
    asked = {config["op"] for group in ("mma_sync", "mma_sync_fp8") for config in CASE.configs(group, 1)}
    sums = {name for name, atom in MMA_ATOMS.items() if atom.kind == "mma_sync" and atom.a_dtype.name != "fp64"}
    assert asked == sums


def test_as_many_threads_take_part_as_fit_and_all_of_them_tell() -> None:
    for config in CONFIGS:
        launch = CASE.launch(config, False)
        (num_warps,) = {item.array.shape[1] for item in launch.arguments if getattr(item, "name", "") == "times"}
        assert num_warps == int(config["warps_per_partition"]) * int(config["num_partitions"])
        assert 32 * num_warps <= launch.block[0] <= 1024


# ---------------------------------------------------------------------------------------------- SASS


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_body_is_the_chains_steps_and_a_branch(sass: Sass, arch: str) -> None:
    for name, kernel in sass("math_rate", arch).items():
        op_name, num_chains = name.rsplit("_c", 1)
        op = case.OPS[op_name]
        num_steps = case.steps_of_body(op, int(num_chains)) * int(num_chains)
        loop = inner_loop(kernel)
        assert kernel.num_spills == 0, name
        assert not loop.select("CS2R", "S2R", "LDG", "STG", "BAR"), name
        if "_fp8_" in name or arch == "sm_80":
            continue  # told below; and on sm_80 conversions are several instructions
        found = Counter(item.opcode for item in loop.instructions)
        for wanted, times in Counter(op.sass).items():
            seen = sum(number for opcode, number in found.items() if opcode.startswith(wanted))
            extra = 1 if wanted == "ISETP" else 0  # the loop's own
            spared = int(num_chains) if op_name == "cvt_f16x2_e4m3x2" and wanted == "PRMT" else 0
            assert times * num_steps - spared <= seen <= times * num_steps + extra, (name, wanted)
        assert len(loop.instructions) <= len(op.sass) * num_steps + 12, name


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_every_instruction_of_a_single_chain_reads_what_the_one_before_it_wrote(sass: Sass, arch: str) -> None:
    for name, kernel in sass("math_rate", arch).items():
        op = case.OPS[name.rsplit("_c", 1)[0]]
        if not name.endswith("_c1") or len(set(op.sass)) > 1 or "_fp8_" in name:
            continue
        links = [item for item in inner_loop(kernel).instructions if item.opcode.startswith(op.sass[0])]
        breaks = [link for link, after in itertools.pairwise(links) if registers(link)[0] not in registers(after)[1:]]
        assert not breaks, name


def registers(instruction: Instruction) -> list[str]:
    found = re.findall(r"\bR\d+\b", instruction.operands)
    return [*found, *found[:1]] if len(found) == 1 else found


def test_independent_chains_have_accumulators_of_their_own(sass: Sass) -> None:
    kernel = sass("math_rate", "sm_90a")["mma_sync_m16n8k16_bf16_fp32_c8"]
    assert len({registers(item)[0] for item in inner_loop(kernel).select("HMMA")}) == 8


def test_fp8_is_unpacked_and_multiplied_by_two_hmma_on_hopper(sass: Sass) -> None:
    """What mma.sync of fp8 costs there: two HMMA, the unpacking of B that changes, and the sums by themselves."""
    for k in (16, 32):
        loop = inner_loop(sass("math_rate", "sm_90a")[f"mma_sync_m16n8k{k}_fp8_fp32_c4"])
        opcodes = loop.opcodes
        assert opcodes["HMMA"] == 2 * NUM_FP8 and opcodes["FADD"] == 4 * NUM_FP8
        assert opcodes["F2FP"] >= k // 8 * NUM_FP8 and not opcodes["QMMA"]


# ---------------------------------------------------------------------------------------------- answers


def answers(config: dict[str, str]) -> dict[str, Any]:
    num_warps = int(config["warps_per_partition"]) * int(config["num_partitions"])
    end = case.expected(config["op"], int(config["num_chains"]))
    lengths = case.train_lengths(case.SHORT, case.LONG)
    times = np.stack([np.full((len(lengths), num_warps), 100), 150 + 1000 * np.repeat(lengths[:, None], num_warps, 1)], -1)
    return {"end": np.broadcast_to(end, (num_warps, *end.shape)).copy(), "times": times.astype(np.int64)}


@pytest.mark.parametrize("op", list(case.OPS))
def test_chains_that_end_right_pass_and_a_wrong_bit_does_not(op: str) -> None:
    config = next(dict(config) for config in CONFIGS if config["op"] == op and config["warps_per_partition"] == "2")
    outputs = answers(config)
    values = CASE.check(config, outputs)
    assert values["long_cycles"] - values["short_cycles"] == 1000 * (case.LONG - case.SHORT)
    per_step = 1000 / case.steps_of_body(case.OPS[op], int(config["num_chains"]))
    assert values["cycles_per_step"] == pytest.approx(per_step)
    outputs["end"][-1, -1, 0, 31] ^= outputs["end"].dtype.type(1 << 24)
    with pytest.raises(WrongAnswer, match="lane 31"):
        CASE.check(config, outputs)


def test_a_train_that_no_warp_timed_or_that_took_no_longer_is_refused() -> None:
    config = CONFIGS[0]
    outputs = answers(dict(config))
    outputs["times"][3, 0, 1] = -1
    with pytest.raises(WrongAnswer, match="started and ended"):
        CASE.check(config, outputs)
    outputs = answers(dict(config))
    outputs["times"][:, :, 1] = 500
    with pytest.raises(WrongAnswer, match="long trains"):
        CASE.check(config, outputs)


def test_spans_are_from_the_first_start_to_the_last_end_without_the_first_train() -> None:
    lengths = case.train_lengths(1, 3, 2)
    warming = [[[100, 9000], [100, 200]], [[100, 9000], [100, 200]]]
    counted = [
        [[100, 140], [110, 150]], [[200, 300], [205, 310]], [[400, 440], [402, 452]], [[500, 590], [501, 620]]
    ]
    times = np.array([*warming, *counted])
    values = train_cycles(times, lengths)
    assert (values["short_cycles"], values["long_cycles"]) == (51.0, 115.0)
    assert (values["long_least_cycles"], values["long_most_cycles"]) == (110.0, 120.0)


def test_no_chain_ends_where_it_began_by_doing_nothing() -> None:
    for name, op in case.OPS.items():
        if name not in ("shfl", "prmt"):  # an even number of exchanges, and turns by four
            assert (case.expected(name, 1)[0] != op.begin).any(), name


@pytest.mark.parametrize("name", [name for name in case.OPS if name.startswith("mma_sync")])
def test_accumulators_hold_the_product_as_often_as_it_was_added(name: str) -> None:
    """Sums over all of the matrix need no fragment: ones times so many steps, turned or not."""
    atom, num_steps = MMA_ATOMS[name], case.LONG * case.MMA_STEPS
    a, b = case._mma_operands(name)
    held = np.ascontiguousarray(case.expected(name, 1)[0].T)
    dtype = {"fp32": "<f4", "fp16": "<f2", "int32": "<i4"}[atom.acc_dtype.name]
    if case.OPS[name].num_turned:
        b = b.reshape(len(b), -1, 4).mean(-1, keepdims=True).repeat(4, -1).reshape(b.shape)
    assert held.view(dtype).astype(float).sum() == pytest.approx(num_steps * (a @ b.T).sum())
    assert np.sort(held.view(dtype).astype(float).ravel()) == pytest.approx(np.sort(num_steps * (a @ b.T).ravel()))


# ---------------------------------------------------------------------------------------------- the simulator


@pytest.mark.parametrize("gpu", [GPU, OTHER], ids=["h200", "other"])
@pytest.mark.parametrize("op", ["ffma", "iadd3", "mufu_ex2", "mma_sync_m16n8k16_bf16_fp32"])
def test_full_pipes_run_at_the_rate_of_the_description(op: str, gpu: GpuSpec) -> None:
    scheduler = gpu.warp_scheduler
    flops_per_cycle = gpu.tensor_core.mma_sync_flops_per_cycle["16bit"]
    rates = {
        "ffma": scheduler.fp32_lanes / 32, "iadd3": scheduler.int32_lanes / 32, "mufu_ex2": scheduler.mufu_lanes / 32,
        "mma_sync_m16n8k16_bf16_fp32": flops_per_cycle / (2 * 16 * 8 * 16),
    }  # fmt: skip
    told = CASE.predict(case.Row(op, 8, 4), gpu)
    assert told.keys() == {"instructions_per_cycle"}
    loop = 64 / 65.5 if op in ("ffma", "iadd3") else 1.0  # three integer instructions in 256
    assert loop * rates[op] * (1 - 1e-6) <= told["instructions_per_cycle"] <= rates[op] * (1 + 1e-6)


@pytest.mark.parametrize("gpu", [GPU, OTHER], ids=["h200", "other"])
def test_a_chain_of_mma_sync_takes_its_latency_a_step(gpu: GpuSpec) -> None:
    config = case.Row("mma_sync_m16n8k16_bf16_fp32", 1, 1, 1)
    assert CASE.predict(config, gpu) == {"cycles_per_step": pytest.approx(gpu.tensor_core.mma_sync_latency_cycles)}


def test_nothing_is_said_of_latencies_and_units_that_the_simulator_does_not_have() -> None:
    assert CASE.predict(case.Row("ffma", 1, 1, 1), GPU) == {}
    assert CASE.predict(case.Row("hfma2", 8, 8), GPU) == {}
    assert all(CASE.predict(config, GPU) == {} for config in CASE.configs("partitions", 1))
    ampere = load_gpu("a100_sxm_80gb")
    assert all(CASE.predict(config, ampere) == {} for config in CASE.configs("mma_sync_fp8", 1))


def test_what_is_judged_is_predicted() -> None:
    told = {name for config in CONFIGS for name in CASE.predict(config, GPU)}
    assert told == set(CASE.tiers) <= set(CASE.values)


# ---------------------------------------------------------------------------------------------- parameters

FITTED = {
    "warp_scheduler.fp32_lanes", "warp_scheduler.int32_lanes", "warp_scheduler.mufu_lanes",
    "warp_scheduler.shuffle_lanes", "warp_scheduler.bank_reads_per_cycle",
    "tensor_core.mma_sync_min_interval_cycles", "tensor_core.mma_sync_latency_cycles",
    "tensor_core.mma_sync_step_latency_cycles",
    *(f"tensor_core.mma_sync_flops_per_cycle.{name}" for name in ("16bit", "tf32", "fp8", "int8")),
    "tensor_core.mma_sync_accumulate_cycles.fp8",
}  # fmt: skip


def rows_of(gpu: GpuSpec, half: int) -> list[dict[str, str]]:
    """What the bench would have written of a GPU that is as described: the configs at even or odd places."""
    return [
        {**config, "group": group, **{name: str(number) for name, number in CASE.predict(config, gpu).items()}}
        for group in CASE.groups for config in CASE.configs(group, 1)[half::2]
    ]  # fmt: skip


@pytest.mark.parametrize(("gpu", "half"), [(GPU, 0), (OTHER, 1)], ids=["h200-even", "other-odd"])
def test_rows_of_a_machine_that_is_known_give_its_numbers_back(gpu: GpuSpec, half: int) -> None:
    fitted = {item.parameter: item.value for item in CASE.fit(rows_of(gpu, half))}
    assert fitted.keys() == FITTED
    for name, value in fitted.items():
        assert value == pytest.approx(parameter(gpu, name), rel=1e-6), name


def test_a_few_rows_that_are_far_off_move_no_number_much() -> None:
    rows = rows_of(GPU, 0)
    for row in rows[::9]:
        for name in CASE.tiers:
            if name in row:
                row[name] = str(3.0 * float(row[name]))
    for item in CASE.fit(rows):
        assert item.value == pytest.approx(parameter(GPU, item.parameter), rel=0.02), item.parameter


def test_lanes_are_whole_where_a_branch_costs_a_little_and_as_measured_where_something_else_does() -> None:
    row = {**case.Row("ffma", 8, 8), "group": "plain"}
    assert case.fit([{**row, "instructions_per_cycle": str(4 * 256 / 259)}])[0].value == 128.0
    assert case.fit([{**row, "instructions_per_cycle": str(0.98 * 4 * 256 / 259)}])[0].value == 128.0
    assert case.fit([{**row, "instructions_per_cycle": "3.0"}])[0].value == pytest.approx(96.0)


def test_a_line_through_points_of_which_some_are_far_off_is_that_of_the_others() -> None:
    x = list(range(9))
    y = [3.0 * value + 7.0 for value in x]
    y[4] = 500.0
    assert median_line(list(zip(x, y, strict=True))) == pytest.approx((3.0, 7.0))
    assert np.isnan(median_line([(2.0, 1.0), (2.0, 5.0)])).all()
