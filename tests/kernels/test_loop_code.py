"""Loops of the lengths that are asked, on the SMs that are asked, and what they give."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.validate.calibrate import parameter
from gpusim.machine.sm.instruction_cache import INSTRUCTION_BYTES

from .conftest import Sass
from .mma_code import loops_with

CASE = load_case("loop_code")
case = sys.modules[CASE.launch.__module__]
GPU = load_gpu("h100_sxm")
LENGTHS, PLACES = (CASE.configs(group, 1) for group in ("lengths", "places"))


def find(**fields: object) -> Config:
    return next(
        config for config in (*LENGTHS, *PLACES) if all(config[name] == str(value) for name, value in fields.items())
    )


def outputs_of(config: Config, turn_cycles: int, *, num_sms: int) -> dict[str, np.ndarray]:
    """What a launch leaves on whose first SMs a turn takes so long; clocks come round."""
    warps = int(config["warps"])
    begin = np.full((case.NUM_SMS, warps, 2), (1 << 32) - 500, dtype=np.int64)
    spans = np.stack([begin, begin + 30 + turn_cycles * np.array(case.TURNS)], axis=-1) % (1 << 32)
    sums = np.zeros((case.NUM_SMS, warps), dtype="<f4")
    sums[:num_sms] = 120 + case.num_fma(config) * sum(case.TURNS)
    return {"spans": spans.astype("<u4"), "sums": sums}


def test_loops_hold_what_is_asked_of_them(sass: Sass) -> None:
    kernels = sass("loop_code", "sm_90a")
    for config in (*LENGTHS, *PLACES):
        loop = loops_with(kernels[config["kernel"]], "FFMA")[0]
        num, fma = int(config["instructions"]), case.num_fma(config)
        assert (len(loop.select("FFMA")), len(loop.select("LDS"))) == (fma, num - fma)
        assert len(loop.instructions) == num + case.LOOP_CODE
        assert case.code_bytes(config) == INSTRUCTION_BYTES * len(loop.instructions)


def test_one_warp_a_sub_core_has_every_length_and_every_tpc_is_asked_alone() -> None:
    alone = {(int(config["instructions"]), config["reads"]) for config in LENGTHS if config["warps"] == "4"}
    assert alone == {(num, "none") for num in case.PLAIN} | {(num, "each_16") for num in case.READS}
    for reads, nums in case.OF_PLACES.items():
        for num in nums:
            sms = {config["sm"] for config in PLACES if config["reads"] == reads and config["instructions"] == str(num)}
            assert sms == {"all", *map(str, range(0, 132, 2))}


@pytest.mark.parametrize(("config", "num_sms"), [(LENGTHS[0], 1), (PLACES[-1], 132)], ids=["alone", "all"])
def test_right_sums_pass_and_wrong_ones_or_too_many_sms_do_not(config: Config, num_sms: int) -> None:
    outputs = outputs_of(config, 700, num_sms=num_sms)
    assert CASE.check(config, outputs) == {"turn_cycles": 700.0, "most_cycles": 700.0, "least_cycles": 700.0}
    outputs["sums"][0, 1] += 1
    with pytest.raises(WrongAnswer, match="a sum is"):
        CASE.check(config, outputs)
    with pytest.raises(WrongAnswer, match="SMs ran the loop"):
        CASE.check(config, outputs_of(config, 700, num_sms=num_sms - 1))
    with pytest.raises(WrongAnswer, match="take no longer"):
        CASE.check(config, outputs_of(config, 0, num_sms=num_sms))


def test_a_loop_that_is_kept_takes_its_ffma_and_a_long_one_what_the_place_of_the_sm_gives() -> None:
    spec = GPU.instruction_cache
    assert CASE.predict(find(instructions=1024, warps=4), GPU)["turn_cycles"] == pytest.approx(1024)
    for sm, tpc in ((0, 0), (32, 2), (124, 4)):
        config = find(instructions=3072, sm=sm)
        wanted = case.code_bytes(config) / (spec.loop_bytes_per_cycle * spec.loop_fetch_rate_by_tpc[str(tpc)])
        own = 3072 + case.LOOP_CODE
        assert CASE.predict(config, GPU)["turn_cycles"] == pytest.approx(3072 + wanted - own)
    for warps in (8, 16):  # what they lose is not told
        assert CASE.predict(find(instructions=3072, warps=warps), GPU)["turn_cycles"] == pytest.approx(3072 * warps / 4)
    apart = CASE.predict(find(instructions=3072, sm="all"), GPU)
    assert apart["least_cycles"] < apart["turn_cycles"] < apart["most_cycles"]
    assert CASE.predict(next(config for config in LENGTHS if config["late_cycles"] != "0"), GPU) == {}
    assert CASE.predict(find(reads="each_16"), GPU) == {}


PACES = {str(tpc): 1 - 0.02 * (tpc - case.FIRST_PLACE) for tpc in range(9)}
OTHER = replace(GPU, instruction_cache=replace(
    GPU.instruction_cache, loop_kept_bytes=32000.0, loop_bytes_per_cycle=7.0, loop_fetch_rate_by_tpc=PACES,
))  # fmt: skip


@pytest.mark.parametrize("gpu", [GPU, OTHER], ids=["h100", "other"])
def test_rows_of_a_machine_that_is_known_give_its_numbers_back(gpu: GpuSpec) -> None:
    rows = []
    for group, configs in (("lengths", LENGTHS), ("places", PLACES)):
        asked = [
            config for config in configs
            if config["warps"] == "4" and config["reads"] == "none" and config["sm"] != "all"
        ]  # fmt: skip
        rows += [
            {**config, "group": group, "turn_cycles": str(CASE.predict(config, gpu)["turn_cycles"])} for config in asked
        ]
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    paces = {f"instruction_cache.loop_fetch_rate_by_tpc.{tpc}" for tpc in range(9)}
    assert fitted.keys() == {"instruction_cache.loop_kept_bytes", *paces}
    for name, value in fitted.items():
        assert value == pytest.approx(parameter(gpu, name), rel=0.01), name
    assert CASE.fit([]) == []
