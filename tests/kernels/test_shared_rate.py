"""Chains and streams of accesses: addresses conflict as asked, every access is there, and what they leave is worked out."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.evidence.validate.calibrate import parameter
from gpusim.workload.smem.access import wavefronts

from . import warp

Sass = Callable[[str, str], dict[str, KernelSass]]

CASE = load_case("shared_rate")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
MEMORY = ("LDS", "STS", "LDSM", "STSM", "ATOMS")


@pytest.mark.parametrize("op", case.OPS.values(), ids=lambda op: op.name)
def test_addresses_conflict_as_often_as_asked_and_stay_in_their_part(op: Any) -> None:
    for ways, sharing in case._conflicts(op):
        addresses = case.lane_addresses(op, ways, sharing)
        rule = case.smem_op(op.rule)
        num_phases = rule.num_phases if rule.access_bytes >= 4 else 1
        phases = num_phases if sharing == "bank" else max(1, 32 * rule.access_bytes // 128)
        most = ways if sharing == "bank" else min(ways, 32 // phases)
        assert int(wavefronts(op.rule, addresses)) == rule.num_passes * phases * most, (ways, sharing)
        assert addresses.max() + 16 + 31 * op.offset_bytes <= case.SECOND_BYTES


def test_wavefronts_of_a_mixture_are_those_of_both() -> None:
    for config in CASE.configs("mixed", 1):
        first, second = case.wavefronts_of(typed(config))
        assert first and second and case.addresses_of(typed(config))[1].min() >= case.SECOND_BYTES


# ---------------------------------------------------------------------------------------------- SASS


def bodies(kernel: KernelSass) -> list[KernelSass]:
    """The loops of accesses: innermost ones, without those that fill and dump the buffer."""
    busy = [loop for loop in kernel.loops if len(loop.select(*MEMORY)) > 4]
    spans = [{item.address for item in loop.instructions} for loop in busy]
    return [loop for loop, span in zip(busy, spans, strict=True) if not any(other < span for other in spans)]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_body_holds_every_access_and_hardly_anything_else(sass: Sass, arch: str) -> None:
    for name, kernel in sass("shared_rate", arch).items():
        question, rest = name.split("_", 1)
        assert kernel.num_spills == 0, name
        assert not any(loop.select("CS2R", "BAR", "LDG", "STG") for loop in bodies(kernel)), name
        if question == "mixed":
            continue
        op = case.OPS[rest]
        (body,) = bodies(kernel)
        num = case.CHAIN if question == "chase" else op.accesses_per_round
        counts = body.select(op.sass.split(".")[0])
        assert len(counts) == num, name
        assert all(op.sass in item.opcode and "POPC" not in item.opcode for item in counts), name
        assert len(body.select(*MEMORY)) == num * (2 if rest == "st_ld_b32" else 1), name
        if question == "stream":
            assert len(body.instructions) <= 2 * num + 22, name


def test_a_mixture_has_both_by_turns_and_each_by_itself(sass: Sass) -> None:
    for first, second in case.MIXTURES:
        kernel = sass("shared_rate", "sm_90a")[f"mixed_{first}_{second}"]
        names = [case.OPS[name].sass.split(".")[0] for name in (first, second)]
        num = case.OPS[first].accesses_per_round
        found = sorted(tuple(len(body.select(name)) for name in names) for body in bodies(kernel))
        assert found == [(0, num), (num, 0), (num, num)], first


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_every_load_of_a_chain_is_where_the_one_before_it_said(sass: Sass, arch: str) -> None:
    for name, kernel in sass("shared_rate", arch).items():
        if name.startswith(("chase_ld", "chase_atom_add")):
            (body,) = bodies(kernel)
            links = body.select("LDS", "LDSM", "ATOMS")
            for link, following in itertools.pairwise(links):
                wrote, read = re.findall(r"R\d+", link.operands)[0], re.findall(r"\[(R\d+)\]", following.operands)
                assert read == [wrote], name


# ---------------------------------------------------------------------------------------------- answers


def slow_warp(config: dict[str, str]) -> dict[str, Any]:
    """One lone warp, lane after lane, access after access."""
    op, values = case.OPS[config["op"]], case.values_of(typed(config))
    addresses = case.addresses_of(typed(config))[0].tolist()
    memory = bytearray(case.random_image().tobytes())
    lengths = case.train_lengths(case.SHORT, case.LONG)
    size = case.smem_op(op.rule).access_bytes
    sums = [0] * 32
    for length in lengths:
        if op.kind == "ldmatrix":
            half = op.accesses_before
            order = [*range(half, 2 * half), *(list(range(2 * half)) * int(length))]
            for access in order:
                out = [bytearray(16) for _ in range(32)]
                warp._matrix(op.rule, [at + access * op.offset_bytes for at in addresses], memory, out)
                for lane in range(32):
                    sums[lane] += sum(np.frombuffer(bytes(out[lane]), dtype="<u4")[: op.num_results].tolist())
        elif op.kind == "ld":
            for _ in range(op.accesses_before):  # the last ones alone are used
                for lane, at in enumerate(addresses):
                    word = bytes(memory[at : at + size]).ljust(4, b"\0")
                    sums[lane] += sum(np.frombuffer(word, dtype="<u4").tolist())
        elif op.kind == "st":
            for lane, at in enumerate(addresses):
                memory[at : at + size] = b"".join(values[i, lane].tobytes() for i in range(4))[:size]
        elif "_add_" in op.name:
            for lane, at in enumerate(addresses):
                times = int(length) * op.accesses_per_round + op.accesses_before
                old = int.from_bytes(memory[at : at + 4], "little")
                memory[at : at + 4] = ((old + times * int(values[0, lane])) % 2**32).to_bytes(4, "little")
        elif "_exch_" in op.name:
            for lane, at in enumerate(addresses):
                memory[at : at + 4] = values[0, lane].tobytes()
    dump = np.frombuffer(bytes(memory), dtype="<u4").copy()
    return {"out": np.array([[total % 2**32 for total in sums]], dtype="<u4"), "dump": dump, "times": times_of(1)}


def times_of(num_warps: int) -> Any:
    lengths = case.train_lengths(case.SHORT, case.LONG)
    ends = 150 + 640 * np.repeat(lengths[:, None], num_warps, 1)
    return np.stack([np.full_like(ends, 100), ends], -1).astype(np.int64)


LONE = [
    config for config in CONFIGS
    if config["question"] == "stream" and config["num_partitions"] == config["warps_per_partition"] == "1"
    and not config["op"].startswith("stmatrix")
]  # fmt: skip


@pytest.mark.parametrize("config", LONE[::2], ids=lambda config: f"{config['op']}-{config['ways']}-{config['sharing']}")
def test_what_a_slow_warp_leaves_passes_and_a_wrong_byte_does_not(config: dict[str, str]) -> None:
    outputs = slow_warp(config)
    values = CASE.check(config, outputs)
    num = case.OPS[config["op"]].accesses_per_round
    assert values["cycles_per_access"] == pytest.approx(640 / num)
    assert values["wavefronts_per_cycle"] == pytest.approx(case.wavefronts_of(typed(config))[0] * num / 640)
    word = int(case.addresses_of(typed(config))[0][7] // 4)
    name, place = ("out", (0, 7)) if config["op"].startswith("ld") else ("dump", word)
    outputs[name][place] ^= np.uint32(0x10000 if "b8" not in config["op"] else 1)
    with pytest.raises(WrongAnswer):
        CASE.check(config, outputs)


@pytest.mark.parametrize("name", [name for name in case.OPS if name.startswith("stmatrix")])
def test_stmatrix_is_undone_by_ldmatrix(name: str) -> None:
    """What the slow warp reads back is what the lanes put in."""
    op, values = case.OPS[name], case.values_of(case.Row("stream", name, "", 1, "bank", 4, 1, case.EACH))
    for ways in case.ways_of(op):
        addresses = case.lane_addresses(op, ways, "bank")
        image = case.random_image().copy()
        case.stored(op, addresses.astype("<u4"), values, image)
        out = [bytearray(16) for _ in range(32)]
        warp._matrix(name.replace("st", "ld", 1), addresses.tolist(), bytearray(image.tobytes()), out)
        got = np.array([np.frombuffer(bytes(lane), dtype="<u4") for lane in out]).T
        assert np.array_equal(got[: op.num_values], values[: op.num_values])


@pytest.mark.parametrize("op", [op for op in case.CHASED if op.kind in ("ld", "ldmatrix", "atom")], ids=lambda op: op.name)
def test_every_lane_of_a_chain_finds_its_own_address(op: Any) -> None:
    for ways, sharing in case._conflicts(op):
        addresses = case.lane_addresses(op, ways, sharing).astype("<u4")
        memory = bytearray(case.chain_image(op, addresses).tobytes())
        if op.kind == "ldmatrix":
            out = [bytearray(16) for _ in range(32)]
            warp._matrix(op.rule, addresses.tolist(), memory, out)
            assert [int.from_bytes(lane[:4], "little") for lane in out] == addresses.tolist()
        else:
            found = [int.from_bytes(memory[at : at + 4], "little") for at in addresses.tolist()]
            assert found == addresses.tolist()


def test_a_chain_that_went_astray_is_refused() -> None:
    config = CASE.configs("chase", 1)[0]
    outputs = {"out": case.addresses_of(typed(config))[:1].copy(), "dump": None, "times": times_of(1)}
    assert CASE.check(config, outputs)["cycles_per_access"] == pytest.approx(640 / case.CHAIN)
    outputs["out"][0, 3] += 4
    with pytest.raises(WrongAnswer, match="lane ends"):
        CASE.check(config, outputs)


# ---------------------------------------------------------------------------------------------- the simulator


GPU = load_gpu("h200_sxm")
OTHER = replace(
    GPU,
    smem=replace(
        GPU.smem, wavefronts_per_cycle=0.5, load_latency_cycles=41.0, warp_cycles_per_wavefront=3.5,
        vector_word_cycles=2.5, atomic_latency_cycles=90.0,
    ),
)  # fmt: skip
BOTH = pytest.mark.parametrize("gpu", [GPU, OTHER], ids=["h200", "other"])


def chained(gpu: GpuSpec, name: str, ways: int) -> float:
    cycles: float = CASE.predict(case.Row("chase", name, "", ways, "bank", 1, 1, case.EACH), gpu)["cycles_per_access"]
    return cycles


@BOTH
def test_a_lone_warps_chain_grows_by_its_wavefronts(gpu: GpuSpec) -> None:
    ways = case.ways_of(case.OPS["ld_b32"])
    cycles = [chained(gpu, "ld_b32", each) for each in ways]
    assert np.diff(cycles) / np.diff(ways) == pytest.approx(gpu.smem.warp_cycles_per_wavefront)
    assert cycles[0] == pytest.approx(gpu.smem.load_latency_cycles + 1.0)  # and its issue


@BOTH
def test_many_warps_fill_the_data_stage_and_no_more(gpu: GpuSpec) -> None:
    most = gpu.smem.wavefronts_per_cycle
    for name in ("ld_b32", "ld_b128", "ldmatrix_x4", "atom_add_b32"):
        for ways in (1, 4):
            rate = CASE.predict(case.Row("stream", name, "", ways, "bank", 4, 8, case.EACH), gpu)["wavefronts_per_cycle"]
            assert rate <= most * (1 + 1e-9), name
            assert rate >= 0.9 * most, name


def test_a_store_then_a_load_is_no_shorter_than_the_load() -> None:
    assert all(chained(GPU, "st_ld_b32", ways) > chained(GPU, "ld_b32", ways) for ways in (1, 8))


def test_nothing_is_said_of_streams_on_some_sub_partitions() -> None:
    for config in CONFIGS[::11]:
        answer = CASE.predict(config, GPU)
        is_chain = config["question"] == "chase"
        assert bool(answer) == (is_chain or config["num_partitions"] == "4")
        assert set(answer) <= {"cycles_per_access" if is_chain else "wavefronts_per_cycle"} <= set(CASE.tiers)


# ---------------------------------------------------------------------------------------------- parameters


def rows_of(gpu: GpuSpec, half: int) -> list[dict[str, str]]:
    """What the bench would have written of a GPU that is as described: the configs at even or odd places."""
    return [
        {**config, "group": group, **{name: str(number) for name, number in CASE.predict(config, gpu).items()}}
        for group in CASE.groups for config in CASE.configs(group, 1)[half::2]
        if config["op"] in ("ld_b32", "ld_b128", *case.ATOMICS)
    ]  # fmt: skip


@pytest.mark.parametrize(("gpu", "half"), [(GPU, 0), (OTHER, 1)], ids=["h200-even", "other-odd"])
def test_rows_of_a_machine_that_is_known_give_its_numbers_back(gpu: GpuSpec, half: int) -> None:
    fitted = {item.parameter: item.value for item in CASE.fit(rows_of(gpu, half))}
    names = ("load_latency_cycles", "warp_cycles_per_wavefront", "vector_word_cycles", "wavefronts_per_cycle",
             "atomic_latency_cycles")  # fmt: skip
    assert fitted.keys() == {f"smem.{name}" for name in names}
    for name, value in fitted.items():
        assert value == pytest.approx(parameter(gpu, name), rel=0.01), name


def test_streams_of_stores_give_the_queue_back() -> None:
    """Rows of a queue of 7 places a scheduler, 12 or 2560 bytes for all, free 40 cycles later."""
    rows = []
    for config in CASE.configs("stream", 1) + CASE.configs("stream_stmatrix", 1):
        num_words = case.STORED_WORDS.get(config["op"])
        if num_words is None or config["warps_per_partition"] != "1":
            continue
        partitions, (num_wavefronts, _) = int(config["num_partitions"]), case.wavefronts_of(typed(config))
        each = num_wavefronts * max(partitions, 2.0)  # a lone warp at its own pace
        places = 7 + min(12, 2560 / 128 / num_words) / partitions
        took = {name: num * each - places * each + 40 for name, num in (("short_cycles", 64), ("long_cycles", 192))}
        told = {**took, "wavefronts_per_cycle": num_wavefronts * partitions / each}
        rows.append({**config, "group": config["question"], **{name: str(value) for name, value in told.items()}})
    found = {name: float(np.median(values)) for name, (values, _) in case.store_queue(rows).items()}
    assert found == pytest.approx({
        "l1.max_queued_stores": 12.0, "l1.store_queue_bytes": 2560.0, "l1.max_queued_scheduler_stores": 7.0,
        "l1.store_release_cycles": 40.0,
    })  # fmt: skip


def test_rows_that_tell_nothing_fit_nothing() -> None:
    assert CASE.fit([]) == []
    assert CASE.fit([{**config, "group": config["question"]} for config in CONFIGS]) == []
    one = {**case.Row("chase", "ld_b32", "", 1, "bank", 1, 1, case.EACH), "group": "chase", "cycles_per_access": "29"}
    assert CASE.fit([one]) == []  # no line goes through one point
