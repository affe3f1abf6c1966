"""copies_beside_reads: right bytes and sums pass, wrong ones do not; loops hold what their names say; the twin answers."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.machine.config import load_gpu
from gpusim.simulate.timeline import Span
from gpusim.workload import ops

from .conftest import Sass

CASE = load_case("copies_beside_reads")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def outputs_of(config: Config) -> dict[str, np.ndarray]:
    """What a launch leaves in which each round, or stream, takes 100 cycles and each turn of a stream 10 of them."""
    clocks = np.zeros((case.ROUNDS, case.MOST_WARPS, 3), dtype="<u4")
    clocks[:, :, 0], clocks[:, :, 1], clocks[:, :, 2] = 0xFFFFFFF0, 24, 84  # the clock turns over
    if config["kernel"] == "streams":
        clocks[:, :, 1] = 10
    return {
        "clocks": clocks, "sums": case.sums(typed(config)).astype("<u4"),
        "copied": case.copied(typed(config)).reshape(-1).copy(),
    }  # fmt: skip


def test_configs_are_there_once_and_fit() -> None:
    assert len({tuple(config.values()) for config in ALL}) == len(ALL) == 156 + 20
    for config in ALL:
        launched = CASE.launch(config, False)
        assert launched.smem_bytes <= 160 * 1024 and launched.block[0] == 32 * int(config["warps"]) <= 512


def test_rounds_hold_what_their_names_say_in_that_order(sass: Sass) -> None:
    kernels = sass("copies_beside_reads", "sm_90a")
    for config in CASE.configs("rounds", 1):
        kernel = kernels[config["kernel"]]
        assert kernel.num_spills == 0
        (loop,) = [loop for loop in kernel.loops if loop.select("LDSM")]
        names = [
            "CLOCK" if "SR_CLOCKLO" in item.operands else item.name for item in loop.instructions
            if item.name in ("LDSM", "LDGSTS", "LDGDEPBAR", "STS") or "SR_CLOCKLO" in item.operands
        ]  # fmt: skip
        ahead, copies, behind = (int(config[name]) for name in ("ahead", "copies", "behind"))
        wanted = ["CLOCK", *["LDSM"] * ahead, *["LDGSTS"] * copies, *["LDGDEPBAR"] * (copies > 0), "CLOCK"]
        assert names == [*wanted, *["LDSM"] * behind, "STS", "CLOCK"], config["kernel"]


def test_the_twin_of_reads_alone_takes_the_data_stage_and_copies_never_speed_it_up() -> None:
    gpu = load_gpu("h200_sxm")

    def config(**options: str) -> Config:
        wanted = {"warps": "8", "row_bytes": "64", "ahead": "0", "copies": "0", "behind": "4"} | options
        (found,) = [item for item in CASE.configs("rounds", 1) if wanted.items() <= item.items()]
        return found

    alone = CASE.predict(config(), gpu)["read_cycles"]
    wavefronts = 8 * 4 * 4
    assert alone >= wavefronts / gpu.smem.wavefronts_per_cycle
    for options in ({"copies": "4"}, {"copies": "4", "row_bytes": "128"}, {"ahead": "8"}):
        assert CASE.predict(config(**options), gpu)["read_cycles"] >= alone


def test_copiers_get_turns_until_they_outlast_readers_and_count_until_then() -> None:
    """Readers of 60 turns of 20 and 25 cycles; copiers whose turns take 10 and 12."""
    asked = []

    def marked(roles: case.Roles) -> case.Marks:
        paces = {"read0": 20.0, "read1": 25.0, "copy0": 10.0, "copy1": 12.0}
        ops_of = {name: list(program(None)) for name, (_, program) in roles.items()}  # type: ignore[arg-type]  # asks nothing
        nums = {name: sum(isinstance(op, ops.RangeEnd) for op in of) for name, of in ops_of.items()}
        asked.append(nums["copy0"])
        return {
            name: [Span(idx * paces[name], (idx + 1) * paces[name], "mainloop") for idx in range(num)]
            for name, num in nums.items()
        }

    read, copied = case.stream_paces(2, 2, ops.Alu(1), lambda which, turn: ops.Alu(which + turn), marked)
    assert asked == [60, 120, 240]
    assert read == pytest.approx(1 / 20 + 1 / 25) and copied == pytest.approx(1 / 10 + 1 / 12)


def test_what_rows_take_is_read_off_readers_that_alone_take_the_whole_stage() -> None:
    """Copies of four rows every 20 cycles and 0.9 wavefronts a cycle: half a wavefront a row, the median of three.

    Fewer readers say nothing, nor do readers alone.
    """
    told = [
        {
            "group": "streams", "warps": "16", "readers": readers, "row_bytes": "128", "ahead": "0", "copies": "4",
            "behind": "8",
            "copies_per_cycle": rate,
            "read_wavefronts_per_cycle": reads,
        }
        for readers, rate, reads in (
            ("8", "0.05", "0.9"), ("8", "0.05", "0.2"), ("8", "0.05", "0.95"), ("4", "0.05", "0.2"), ("8", "", "1.0")
        )
    ]  # fmt: skip
    (found,) = case.fit(told)
    assert (found.parameter, found.value) == ("smem.cp_async_row_wavefronts", pytest.approx(0.5))
    assert case.fit(told[3:]) == []
