"""load_turns: right sums pass, wrong ones do not; kernels hold what their names say; eights of the twin keep step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpusim import GpuSpec, Launch, Result, WarpRole, load_gpu, simulate
from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.kernel_models.streaming import share_footprint
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

from .conftest import Sass

CASE = load_case("load_turns")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
ALL = [*CASE.configs("rounds", 1), *CASE.configs("ctas", 1)]


def outputs_of(config: Config) -> dict[str, np.ndarray]:
    """What a launch leaves whose CTAs take 100 cycles a round, the last one's last warp 120."""
    (near, _), (ways, num_warps, num_ctas) = case.parts(typed(config)), map(int, list(config.values())[1:])
    times = np.zeros(max(1, case.NUM_SMS * num_ctas), dtype=case.TIMES)
    times["sm"] = np.arange(len(times)) % case.NUM_SMS
    times["begin"] = 50
    times["end"] = 50 + 100 * case.NUM_ROUNDS
    times["end"][-case.NUM_SMS :, num_warps - 1] += 20 * case.NUM_ROUNDS
    of_shared = sum(np.arange(32, dtype=np.int64) * ways + load for load in range(near))
    of_lines = case.lines().astype(np.int64).sum(axis=1)
    times["sum"] = ((case.NUM_ROUNDS * of_shared + case.NUM_ROUNDS // case.LINES * of_lines) % (1 << 32)).reshape(-1)
    return {"lines": case.lines(), "times": times}


def test_ctas_that_do_not_share_sms_as_they_should_are_no_answer() -> None:
    config = {"kernel": "loads_4_all", "ways": "1", "warps": "8", "ctas": "2"}
    outputs = outputs_of(config)
    outputs["times"]["sm"] = np.arange(len(outputs["times"])) // 3
    with pytest.raises(WrongAnswer, match="0 SMs have 2 CTAs"):
        CASE.check(config, outputs)


def test_configs_are_there_once() -> None:
    assert len({tuple(config.values()) for config in ALL}) == len(ALL) == 144 + 144


def test_kernels_hold_what_their_names_say(sass: Sass) -> None:
    kernels = sass("load_turns", "sm_90a")
    for name in {config["kernel"] for config in ALL}:
        near, meets, *_ = case.parts(typed({"kernel": name, "ways": "1", "warps": "8", "ctas": "0"}))
        kernel = kernels[name]
        assert kernel.num_spills == 0
        names = [item.name for item in kernel.instructions]
        assert names.count("LDS") == near, name
        assert names.count("LDG") == 1, name
        assert names.count("BAR") == (1 if meets == "apart" else 2), name
        first = names.index("LDS")
        if meets != "walk":
            assert names[first : first + near].count("LDS") > near // 2, name  # back to back, but for an address


def cycles(gpu: GpuSpec, kernel: str, ways: int, warps: int, ctas: int = 0) -> float:
    """Of a round of the twin."""
    config = {"kernel": kernel, "ways": str(ways), "warps": str(warps), "ctas": str(ctas)}
    return CASE.predict(config, gpu)["cycles_per_round"]


@pytest.mark.parametrize("ways", [1, 4, 32])
def test_eights_of_the_twin_keep_step_and_lone_warps_do_not(ways: int) -> None:
    gpu = load_gpu("h200_sxm")
    of_stage = 32 * 32 * ways
    assert cycles(gpu, "loads_32_apart", ways, 32) == pytest.approx(of_stage, rel=0.12)
    lost = cycles(gpu, "loads_32_meet", ways, 8) - of_stage / 4  # what one eight waits for beside its loads
    again = cycles(gpu, "loads_32_meet", ways, 32) - of_stage
    assert 0.75 * lost < again < 1.05 * lost


def two_ctas(gpu: GpuSpec, num_rounds: int) -> Result:
    """Two CTAs on each SM whose long loads from shared memory share it."""
    loads = AccessPattern(num_requests=64, num_wavefronts=1024, num_bytes=128 * 64)

    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in cta.loop(num_rounds):
            yield ops.Alu(40, is_chain=True)
            yield ops.Use((yield ops.SharedLoad(loads)))

    num = 2 * gpu.num_sms
    role = WarpRole(name="all", num_warps=4, program=program)
    launched = Launch(
        kernel="turns", num_ctas=num, num_tiles=num, roles=(role,), extra_smem_bytes=gpu.device.smem_per_sm_bytes // 4,
        footprints=(share_footprint("in", "read", num_bytes=128 * num, share_bytes=128, num_steps=num_rounds),),
    )
    return simulate(launched, gpu, clock="max", l2="warm", recorded_sms="first")


def test_of_two_ctas_the_one_that_came_first_goes_first() -> None:
    result = two_ctas(load_gpu("toy"), 8)
    elder, younger = sorted(max(until for _, _, until in role.states) for role in result.timeline.roles)
    assert elder < 0.75 * younger  # one behind the other, they would end a load apart
    assert younger > 16 * 1024  # and the stage serves both


def test_a_load_of_which_no_instructions_are_told_is_served_and_one_that_nobody_uses_is_counted() -> None:
    gpu = load_gpu("toy")

    def program(cta: RoleContext) -> Iterator[Any]:
        del cta
        yield ops.Use((yield ops.SharedLoad(AccessPattern(num_wavefronts=1024, num_bytes=8192))))
        yield ops.SharedLoad(AccessPattern(num_requests=128, num_wavefronts=4096, num_bytes=128 * 128))

    role = WarpRole(name="all", num_warps=4, program=program)
    result = simulate(Launch(kernel="turns", num_ctas=1, num_tiles=1, roles=(role,)), gpu, clock="max", l2="warm")
    assert result.counters["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == 1024 + 4096
