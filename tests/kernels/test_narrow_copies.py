"""narrow_copies: right bytes and sums pass, wrong ones do not; loops hold what their names say; rows, and the twin."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, WrongAnswer, load_case
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.toolchain.sass import Instruction
from gpusim.evidence.validate.calibrate import halves
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("narrow_copies")
case = sys.modules[CASE.launch.__module__]


def typed(columns: Mapping[str, str]) -> Any:
    """A config of these columns; others do not count where they are left out."""
    return case.Row.of({"warps": "4", "ahead": "0", "copies": "4", "behind": "1", "readers": "4", **columns})


ALL = [config for group in ("rounds", "streams") for config in CASE.configs(group, 1)]
GPU = load_gpu("h200_sxm")
TABLE = kernels_dir().parent / "validation" / "measured" / "h100_sxm" / "narrow_copies.csv"
COUNTED = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"
WAYS, NO_WAY = (
    [dict(zip(("row_bytes", "landing", "source"), map(str, way), strict=True)) for way in case.ways(has_copies)]
    for has_copies in (True, False)
)
OUT_OF_L1 = [way for way in WAYS if way["source"] == "l1"]


def named(way: Mapping[str, str]) -> str:
    return "-".join(way[name] for name in ("row_bytes", "landing", "source"))


def config_of(group: str, **options: str) -> Config:
    (found,) = [config for config in CASE.configs(group, 1) if options.items() <= config.items()]
    return found


def round_of(copies: int, *, ahead: int = 0, **way: str) -> Config:
    """Of four warps that load once behind their copies; the same way for rounds without these."""
    way = way if copies else NO_WAY[0]
    return config_of("rounds", warps="4", ahead=str(ahead), copies=str(copies), behind="1", **way)


CHECKED = [
    *(config_of("rounds", warps="8", ahead="8", copies="4", behind="4", **way) for way in WAYS),
    *(config_of("streams", warps="8", readers="4", **way) for way in WAYS),
    *(config_of("streams", warps="16", readers="0", **way) for way in WAYS[:4]),
    round_of(0), config_of("streams", warps="8", readers="8"),
]  # fmt: skip


def bytes_of(config: Config, round_idx: int) -> np.ndarray:
    """Shared memory with what each copier has copied when it has come so far along its rows, and zeros."""
    is_stream = config["kernel"] == "streams"
    of = slice(int(config["readers"]) if is_stream else 0, int(config["warps"]))
    row, column, to = (each[of, : 8 if is_stream else int(config["copies"])] for each in case.places(typed(config)))
    along = round_idx * int(config["row_bytes"]) // 4 if config["source"] == "l2" else 0
    found = np.zeros(case.COPIED_BYTES // 4, dtype="<u4")
    found[to] = case.tensor()[row, column + along]
    return found


def outputs_of(config: Config) -> dict[str, np.ndarray]:
    """What a launch leaves in which a round takes 120 cycles, a stream 100, and each turn of a stream 10 of them."""
    clocks = np.zeros((case.ROUNDS, case.MOST_WARPS, case.MARKS), dtype="<u4")
    clocks[:, :] = 0xFFFFFFF0, 24, 84, 104  # the clock turns over
    if config["kernel"] == "streams":
        clocks[:, :, 1] = 10
    return {"clocks": clocks, "sums": case.sums(typed(config)).astype("<u4"), "copied": bytes_of(config, case.ROUNDS - 1)}


def test_copies_land_where_no_other_does() -> None:
    for way in WAYS:
        _, _, to = case.places(typed(way))
        assert len(np.unique(to)) == to.size and to.max() < case.COPIED_BYTES // 4
        is_packed = way["landing"] == "packed"
        assert (to.reshape(-1) == np.arange(to.size)).all() == is_packed
        # elements of a row, side by side in global memory, lie all rows and PAD further where they are turned
        rows = to.size * 4 // int(way["row_bytes"])
        assert to[0, 0, 1] - to[0, 0, 0] == (1 if is_packed else rows + case.PAD)


@pytest.mark.parametrize("config", CHECKED, ids=lambda config: f"{config['kernel']}-{config['warps']}-{named(config)}")
def test_right_bytes_pass_and_wrong_ones_do_not(config: Config) -> None:
    outputs = outputs_of(config)
    found, is_stream = CASE.check(config, outputs), config["kernel"] == "streams"
    if is_stream:
        copiers = int(config["warps"]) - int(config["readers"])
        assert found.get("copies_per_cycle", 0.0) == pytest.approx(copiers * 4 * 10 / 100)
        assert found.get("read_wavefronts_per_cycle", 0.0) == pytest.approx(int(config["readers"]) * 32 * 10 / 100)
    else:
        copied = {"copied_cycles": 120.0} if config["copies"] != "0" else {}
        assert found == {"issued_cycles": 40.0, "read_cycles": 100.0} | copied
    last = case.places(typed(config))[2][int(config["warps"]) - 1, 0]  # of the last warp, which copies, if one does
    for word in (last[0], last[-1], -1):  # and where nobody copies to
        outputs["copied"][word] ^= 1
        with pytest.raises(WrongAnswer, match="other bytes"):
            CASE.check(config, outputs)
        outputs["copied"][word] ^= 1
    outputs["sums"][0, 3] += 1
    with pytest.raises(WrongAnswer, match="add up"):
        CASE.check(config, outputs)
    outputs["sums"][0, 3] -= 1
    outputs["clocks"][:] = 0
    with pytest.raises(WrongAnswer, match="the clock says"):
        CASE.check(config, outputs)


@pytest.mark.parametrize("way", [way for way in WAYS if way["source"] == "l2"], ids=named)
def test_copies_out_of_l2_are_those_of_the_last_round_and_a_stream_s_of_any_one_place(way: dict[str, str]) -> None:
    of_round = config_of("rounds", warps="4", ahead="0", copies="8", behind="1", **way)
    stale = outputs_of(of_round) | {"copied": bytes_of(of_round, case.ROUNDS - 2)}
    with pytest.raises(WrongAnswer, match="other bytes"):
        CASE.check(of_round, stale)
    stream = config_of("streams", warps="8", readers="4", **way)
    early, late = bytes_of(stream, 3), bytes_of(stream, 7)
    for copied in (early, late):
        CASE.check(stream, outputs_of(stream) | {"copied": copied})
    torn = early.copy()
    _, _, to = case.places(typed(stream))
    torn[to[4, 0, 16:]] = late[to[4, 0, 16:]]
    with pytest.raises(WrongAnswer, match="other bytes"):
        CASE.check(stream, outputs_of(stream) | {"copied": torn})


def test_configs_are_there_once_and_fit() -> None:
    sizes = {group: len(CASE.configs(group, 1)) for group in CASE.groups}
    assert sizes == {"rounds": 444, "streams": 86, "lines": 50, "counted": 13}
    assert len({tuple(config.values()) for config in ALL}) == len(ALL) == 444 + 86
    for config in ALL:
        launched = CASE.launch(config, False)
        assert launched.smem_bytes <= 48 * 1024 and launched.block[0] == 32 * int(config["warps"]) <= 512
    steps = case.ROUNDS * max(case.ROW_BYTES)
    assert steps <= case.PITCH_BYTES and all(case.PITCH_BYTES % row_bytes == 0 for row_bytes in case.ROW_BYTES)


# ---------------------------------------------------------------------------------------------- SASS


def told(instructions: tuple[Instruction, ...]) -> list[str]:
    """Opcodes of those that wait for one another; never executed ones, with which ptxas fills, left out."""
    real = [item for item in instructions if item.predicate != "!PT"]
    opcodes = ["CLOCK" if "SR_CLOCKLO" in item.operands else item.opcode for item in real]
    return [opcode for opcode in opcodes if opcode == "CLOCK" or opcode.startswith(("LDS", "LDG", "STS", "DEPBAR"))]


def test_rounds_hold_what_their_names_say_in_that_order(sass: Sass) -> None:
    kernels = sass("narrow_copies", "sm_90a")
    for name in {config["kernel"] for config in CASE.configs("rounds", 1)}:
        kernel = kernels[name]
        assert kernel.num_spills == 0
        loops = [told(loop.instructions) for loop in kernel.loops]
        (found,) = [opcodes for opcodes in loops if "CLOCK" in opcodes]
        ahead, copies, behind = (int(part[1:]) for part in name.split("_")[1:])
        issued = ["CLOCK", *["LDS.128"] * ahead, *["LDGSTS.E"] * copies, *["LDGDEPBAR"] * (copies > 0), "CLOCK"]
        assert found == [*issued, *["LDS.128"] * behind, "STS", "CLOCK", "DEPBAR.LE", "CLOCK"], name


def test_streams_load_and_copy_in_each_turn(sass: Sass) -> None:
    """Loads that are not volatile ptxas takes out of the loop, and readers read nothing."""
    kernel = sass("narrow_copies", "sm_90a")["streams"]
    assert kernel.num_spills == 0
    loops = [told(loop.instructions) for loop in kernel.loops]
    (reads,) = [opcodes for opcodes in loops if "LDS.128" in opcodes]
    (copies,) = [opcodes for opcodes in loops if "LDGSTS.E" in opcodes]
    assert reads == ["LDS.128"] * case.UNROLLED
    assert copies == [*["LDGSTS.E"] * case.GROUP, "LDGDEPBAR", "DEPBAR.LE"] * 2 + ["LDS"]


# ---------------------------------------------------------------------------------------------- measured rows


def test_wavefronts_of_copies_are_those_that_were_counted() -> None:
    rows = [row for row in Table.read(TABLE).rows if row["group"] == "counted"]
    (without,) = [float(row[COUNTED]) for row in rows if row["copies"] == "0"]
    num_copies = case.ROUNDS * 4 * 8
    counted = {named(row): (float(row[COUNTED]) - without) / num_copies for row in rows if row["copies"] == "8"}
    assert counted == {named(way): case.access(typed(way)).num_wavefronts for way in WAYS}


def test_what_copies_out_of_l2_take_at_first_is_what_the_rows_say() -> None:
    table = Table.read(TABLE)
    fitting, _ = halves(CASE, table)
    for rows, value in ((table.rows, 0.786), (fitting, load_gpu("h100_sxm").l1.cp_async_miss_first_pass_fraction)):
        (found,) = case.fit(rows)
        assert (found.parameter, found.value) == ("l1.cp_async_miss_first_pass_fraction", pytest.approx(value, abs=0.001))


def test_the_fraction_is_read_off_what_four_copies_more_cost_few_warps() -> None:
    """Copies of two wavefronts that cost 1.887 cycles each: half of these; the median of three.

    Many warps say nothing, nor do copies out of L1, nor rounds that load before.
    """
    made = [
        {
            "group": "rounds", "warps": warps, "row_bytes": "64", "landing": "packed", "source": source, "ahead": ahead,
            "behind": "1", "readers": readers, "copies": str(copies),
            "read_cycles": str(100 + int(warps) * copies * each),
        }
        for warps, source, ahead, readers, each in (
            ("4", "l2", "0", "1", 1.887), ("4", "l2", "0", "2", 0.9), ("4", "l2", "0", "3", 9.0),
            ("16", "l2", "0", "1", 9.0), ("4", "l1", "0", "1", 9.0), ("4", "l2", "8", "1", 9.0),
        )
        for copies in (4, 8)
    ]  # fmt: skip
    (found,) = case.fit(made)
    assert (found.parameter, found.value) == ("l1.cp_async_miss_first_pass_fraction", pytest.approx(0.5))
    assert case.fit(made[6:]) == []


# ---------------------------------------------------------------------------------------------- the twin


@pytest.mark.parametrize("way", OUT_OF_L1, ids=named)
def test_loads_behind_copies_wait_for_all_that_these_take_of_the_data_stage(way: dict[str, str]) -> None:
    """A cycle a wavefront and ``l1.cp_async_cycles``; behind loads of their own no more, else issue, a cycle each."""
    no_more = replace(GPU, l1=replace(GPU.l1, cp_async_cycles=0.0))
    num, each = 4 * 8, case.access(typed(way)).num_wavefronts / GPU.smem.wavefronts_per_cycle
    for gpu in (GPU, no_more):
        all_cycles = num * (each + gpu.l1.cp_async_cycles)
        for ahead, within in ((0, 8.0), (8, 1e-6)):
            begin = CASE.predict(round_of(0, ahead=ahead), gpu)["read_cycles"]
            waited = CASE.predict(round_of(8, ahead=ahead, **way), gpu)["read_cycles"] - begin
            assert all_cycles - 1e-6 <= waited <= all_cycles + within
    assert GPU.l1.cp_async_cycles > 0


@pytest.mark.parametrize("way", OUT_OF_L1, ids=named)
def test_readers_lose_what_copies_beside_them_take_of_the_data_stage(way: dict[str, str]) -> None:
    alone = CASE.predict(config_of("streams", warps="8", readers="8"), GPU)["read_wavefronts_per_cycle"]
    beside = CASE.predict(config_of("streams", warps="16", readers="8", **way), GPU)
    taken = beside["copies_per_cycle"] * (case.access(typed(way)).num_wavefronts + GPU.l1.cp_async_cycles)
    assert beside["read_wavefronts_per_cycle"] + taken == pytest.approx(alone, abs=0.01) and taken > 0.2


@pytest.mark.parametrize("way", OUT_OF_L1, ids=named)
def test_copies_out_of_l2_are_there_a_way_to_it_later(way: dict[str, str]) -> None:
    """Those that L1 has are there before an answer of L2 could be."""
    out_of_l1, out_of_l2 = (
        CASE.predict(round_of(2, **way | {"source": source}), GPU)["copied_cycles"] for source in case.SOURCES
    )
    assert out_of_l1 < GPU.l2.near_latency_cycles <= out_of_l2


@pytest.mark.parametrize("way", [way for way in WAYS if way["source"] == "l2"], ids=named)
def test_of_copies_that_miss_a_part_passes_before_the_loads_behind_them(way: dict[str, str]) -> None:
    """Four warps' loads go before the copies' data can have come, and wait for the part that passes first alone.

    And for as much of the rest as they have wavefronts, 16, since it takes its time when it is known to come.
    """

    def read_cycles(copies: int, fraction: float) -> float:
        free_lines = {"requests_per_cycle": 100.0}
        gpu = replace(GPU, l1=replace(GPU.l1, cp_async_miss_first_pass_fraction=fraction, **free_lines))
        return CASE.predict(round_of(copies, ahead=8, **(way if copies else {})), gpu)["read_cycles"]

    num, each = 4 * 8, case.access(typed(way)).num_wavefronts / GPU.smem.wavefronts_per_cycle
    none, quarter, half = (read_cycles(8, fraction) for fraction in (0.0, 0.25, 0.5))
    assert (quarter - none, half - none) == pytest.approx((0.25 * num * each, 0.5 * num * each))
    assert none - read_cycles(0, 0.0) >= num * GPU.l1.cp_async_cycles
