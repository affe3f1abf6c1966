"""Studies: their rows judge nothing, and say what pages of validation/deviations quote of them."""

from __future__ import annotations

import csv
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from statistics import linear_regression, mean, median, pstdev
from typing import Any

import pytest

from gpusim import GemmParams, load_gpu, simulate
from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.simulate.plan import check, count_slots, plan_traffic
from gpusim.traffic.footprints import FootprintTable
from gpusim.workload.compiled_code import NO_CODE

VALIDATION = kernels_dir().parent / "validation"
CASE = load_case("hopper_gemm")
CYCLES = "sm__cycles_elapsed.max"


def _rows(name: str) -> list[dict[str, str]]:
    with (VALIDATION / "studies" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


ROWS = _rows("hopper_gemm_h200_sxm.csv")


def _off(row: Mapping[str, str]) -> float:
    return float(row["cycles_error_pct"])


def _stored_by(epilogue: str, least_mib: int, *, stages: str = "3") -> list[float]:
    return [
        _off(row) for row in ROWS
        if row["kernel"].startswith("ms2_128x128x64") and row["stages"] == stages and row["epilogue"] == epilogue
        and int(row["k"]) <= 1024 and int(row["m"]) * int(row["n"]) * 2 >= least_mib * 2**20
    ]  # fmt: skip


def test_no_row_of_a_study_judges_but_one_that_was_measured_again() -> None:
    names = ("kernel", *CASE.columns)
    judged = {tuple(config[name] for name in names) for group in CASE.groups for config in CASE.configs(group, 1)}
    of_study = [tuple(row[name] for name in names) for row in ROWS]
    assert len(set(of_study)) == len(of_study) == 167
    (again,) = judged & set(of_study)
    assert again[:4] == ("co2_128x256x128_c2x1_d1_regs_fp8", "64", "16384", "2048")
    assert not any(row["kernel"].startswith("co") and not row["kernel"].endswith("fp8") for row in ROWS)  # held out


def test_stores_out_of_registers_are_what_is_off_of_large_products() -> None:
    assert max(abs(error) for error in _stored_by("smem", 0)) < 4.0
    direct = _stored_by("direct", 48)
    assert min(direct) > -26.0
    assert max(direct) < -10.0


def test_rows_outside_take_longer_than_rows_inside() -> None:
    took: dict[tuple[str, str], dict[int, float]] = {}
    for row in ROWS:
        if row["n"] == "16384":
            took.setdefault((row["kernel"], row["stages"]), {})[int(row["m"])] = float(row[CYCLES])
    assert len(took) == 4
    for of_m in took.values():
        assert 1.06 < of_m[64] / of_m[128] < 1.23


def test_each_deviation_that_quotes_a_study_is_there() -> None:
    pages = [path.read_text(encoding="utf-8") for path in sorted((VALIDATION / "deviations").glob("[0-9]*.md"))]
    tables = {path.name for path in (VALIDATION / "studies").glob("*.csv")}
    assert len(re.findall(r"the study's sizes", "\n".join(pages))) >= 3
    assert any("validation/studies/hopper_gemm_h200_sxm.csv" in page for page in pages)
    readme = (VALIDATION / "deviations" / "README.md").read_text(encoding="utf-8")
    assert {name for name in re.findall(r"`([a-z0-9_]+\.csv)`", readme) if name in tables} == tables


# ---------------------------------------------------------------------- sgemm, on an H100

SGEMM_CASE = load_case("sgemm")
sgemm = sys.modules[SGEMM_CASE.launch.__module__]
SGEMM = _rows("sgemm_h100_sxm.csv")


def _steps(group: str, kernel: str) -> dict[int, float]:
    """Cycles of a k-step by CTAs of an SM: of products of 768 k less those of 256."""
    tile = [int(number) for number in kernel.split("_")[1].split("x")]
    took: dict[int, dict[int, float]] = {}
    for row in SGEMM:
        if (row["group"], row["kernel"]) == (group, kernel):
            took.setdefault(int(row["n"]) // (11 * tile[1]), {})[int(row["k"])] = float(row[CYCLES])
    return {num_ctas: (of_k[768] - of_k[256]) / (512 / tile[2]) for num_ctas, of_k in took.items()}


def test_no_build_and_no_shape_of_the_study_is_one_that_is_held_out() -> None:
    assert len(SGEMM) == 2717 and len({row["kernel"] for row in SGEMM}) == 85
    assert not {row["kernel"] for row in SGEMM} & {build.name for build in sgemm.builds()}
    assert not {tuple(int(row[name]) for name in "mnk") for row in SGEMM} & set(sgemm.SHAPES)


@pytest.mark.parametrize(
    ("kernel", "is_held"),
    [
        ("64x64x16_2x2_s1_nn", True), ("64x128x8_2x2_s1_nn", True),
        ("64x64x16_2x2_s1_nt", False), ("64x64x8_2x2_s1_nn", False),
    ],
)
def test_two_ctas_wait_for_memory_one_behind_the_other_where_they_copy_much(kernel: str, *, is_held: bool) -> None:
    """Ten copies a warp beside sixteen runs of FFMA are held, or nine beside eight; four and five are not."""
    cold, warm = (_steps(group, f"sgemm_{kernel}") for group in ("cold", "warm"))
    lost = [cold[num] - warm[num] for num in (1, 2)]
    assert (lost[1] > 0.6 * lost[0]) == is_held


def test_a_step_of_three_ctas_of_one_slot_is_what_was_measured() -> None:
    """Nine copies a warp: 27 % too fast when one CTA's stop let all copies go."""
    num_ctas = 3
    name, gpu = "sgemm_64x128x8_2x2_s1_nn", load_gpu("h100_sxm")
    options: dict[str, Any] = {
        "tile": (64, 128, 8), "warps": (2, 2), "stages": 1, "layout": "nn", "dtype": "fp32", "copy": "cp_async",
        "math": "fma", "schedule": "multistage", "epilogue": "direct", "prefetch": "before_mma", "raster": "along_n",
        "swizzle_size": 4, "registers": 128, "compiled_code": NO_CODE.replaced(
            mainloop={"fma_bank_reads": 1.3, "chain_cycles": 131.0, "instructions": 47.0}
        ),
    }  # fmt: skip
    launches = [GemmParams(m=768, n=1408 * num_ctas, k=k, **options).launch(gpu) for k in (256, 768)]
    cycles = [simulate(launch, gpu, clock=1970).cycles for launch in launches]
    assert (cycles[1] - cycles[0]) / 64 == pytest.approx(_steps("cold", name)[num_ctas], rel=0.15)


# ---------------------------------------------------------------------- when CTAs of an SM end

ENDS = _rows("cta_ends_h100_sxm.csv")


def _ends(kernel: str, m: int) -> list[float]:
    """Of an SM's first CTAs, over the last one's."""
    found = [float(row["end_ns"]) for row in ENDS if (row["kernel"], row["m"]) == (f"sgemm_{kernel}", str(m))]
    return [end / found[-1] for end in found]


def test_ctas_of_rings_end_by_age_and_those_of_one_slot_together() -> None:
    assert not {row["kernel"] for row in ENDS} & {build.name for build in sgemm.builds()}
    assert len(ENDS) == 52
    for kernel, m in {(row["kernel"].removeprefix("sgemm_"), int(row["m"])) for row in ENDS}:
        ends = _ends(kernel, m)
        assert ends == sorted(ends)
        if "_s1_" in kernel:
            assert ends[0] > 0.95, (kernel, m)
        elif len(ends) == 2:
            assert 0.64 < ends[0] < 0.68, (kernel, m)
        else:
            assert 0.51 < ends[0] < 0.73 and 0.59 < ends[1] < 0.78 and 0.79 < ends[2] < 0.88, (kernel, m)


def test_sms_whose_ctas_end_by_age_take_as_many_more_and_others_do_not() -> None:
    """800 CTAs on 528 places: six or seven for each SM; 1,600 of one slot: ten to fourteen."""
    counts = {row["kernel"]: row["sms_by_ctas"] for row in ENDS if row["m"] == "2560"}
    assert counts["sgemm_128x64x16_2x2_s3_tn"] == "6:124 7:8"
    assert counts["sgemm_64x64x16_2x2_s1_tn"].startswith("10:") and "14:" in counts["sgemm_64x64x16_2x2_s1_tn"]


def test_two_ctas_of_a_ring_end_as_was_measured() -> None:
    """128 x 64 x 16 by eight warps, two slots: before, both ended together and the SMs took 4 to 8 CTAs each."""
    options: dict[str, Any] = {
        "tile": (128, 64, 16), "warps": (4, 2), "stages": 2, "layout": "tn", "dtype": "fp32", "copy": "cp_async",
        "math": "fma", "schedule": "multistage", "epilogue": "direct", "prefetch": "before_mma", "raster": "along_n",
        "swizzle_size": 1, "registers": 96, "compiled_code": NO_CODE.replaced(
            mainloop={"fma_bank_reads": 1.29, "chain_cycles": 370.0, "instructions": 181.0}
        ),
    }  # fmt: skip
    gpu = load_gpu("h100_sxm")
    launch = GemmParams(m=1792, n=1984, k=1000, **options).launch(gpu)
    result = simulate(launch, gpu, clock=1980, recorded_sms=range(16, 18))
    for sm_idx in range(16, 18):
        roles = sorted((role for role in result.timeline.roles if role.sm_idx == sm_idx), key=lambda role: role.cta_idx)
        first, second = (max(end for _, _, end in role.states) for role in roles[:2])
        assert first / second == pytest.approx(_ends("128x64x16_4x2_s2_tn", 2560)[0], abs=0.05)


# ---------------------------------------------------------------------- CTAs of a tile compiler, wave by wave

WAVES = _rows("cta_waves_h100_sxm.csv")
DEEP_BYTES, LITTLE_BYTES = 144 * 1024, 96 * 1024


def _under_way(row: Mapping[str, str]) -> int:
    """Bytes that an SM has asked for ahead of its math."""
    m, n, k = map(int, row["tile"].split("x"))
    return (int(row["num_stages"]) - 1) * (m + n) * k * 2 * int(row["ctas_per_sm"])


def test_ctas_in_short_parts_live_shorter_in_later_waves_where_much_is_under_way() -> None:
    leads: dict[bool, list[float]] = {True: [], False: []}  # much, little: 96 KiB are tiles that L2 binds, too
    for row in WAVES:
        is_whole = row["m"] == "3072" and row["wave"] != "0" and row["num_ctas"] == str(132 * int(row["ctas_per_sm"]))
        if is_whole and (_under_way(row) >= DEEP_BYTES or _under_way(row) <= LITTLE_BYTES):
            lead = float(row["long_part_life_ns"]) / float(row["short_part_life_ns"])
            leads[_under_way(row) >= DEEP_BYTES].append(lead)
    assert (len(leads[True]), len(leads[False])) == (144, 68)
    assert min(leads[True]) > 1.03 and 1.2 < median(leads[True]) < 1.3 and max(leads[True]) < 1.43
    assert min(leads[False]) > 0.98 and max(leads[False]) < 1.06


def test_starts_of_ctas_drift_apart_from_wave_to_wave() -> None:
    """64 x 128 x 64, three stages, by cp.async, bands of four rows: a tenth of a life more with each wave."""
    found = [
        row for row in WAVES
        if (row["kernel"], row["tile"], row["num_stages"]) == ("by_pointers", "64x128x64", "3")
        and (row["m"], row["raster_group"]) == ("3072", "4")
    ]  # fmt: skip
    apart = [float(row["start_sd_ns"]) / float(row["life_ns"]) for row in found]
    assert apart[1] < 0.05
    for wave in range(2, 6):
        assert 0.04 < apart[wave] - apart[wave - 1] < 0.15, wave


# ---------------------------------------------------------------------- how unalike CTAs live, and what that costs

H100 = load_gpu("h100_sxm")
SHORT_SHARE = 24 / 132
"""Of an H100's SMs those in parts of two TPCs."""
TILE_GEMM = load_case("tile_gemm")
OF_BUILD = ("kernel", "tile", "num_stages", "num_warps", "raster_group")
BYTES = "dram__bytes_read.sum"


def _options(row: Mapping[str, str]) -> dict[str, Any]:
    """A study row's kernel to the model, with so many registers that an SM holds as many CTAs as it did."""
    held = next(
        int(wave["ctas_per_sm"]) for wave in WAVES
        if all(wave[name] == row[name] for name in OF_BUILD) and wave["m"] == row["m"] == "3072"
    )  # fmt: skip
    case = sys.modules[TILE_GEMM.launch.__module__]
    config = {name: row[name] for name in (*OF_BUILD, "m", "n", "k")}
    registers = min(255, 65536 // (held * 32 * int(row["num_warps"])) // 8 * 8)
    return {**case.options(config, {}, H100), "registers": registers}


def _deviation(row: Mapping[str, str]) -> float:
    """Of CTAs' lives in a wave, over their mean: without what SMs in short parts lead."""
    lead = 1.0 - float(row["short_part_life_ns"]) / float(row["long_part_life_ns"])
    square = (float(row["life_sd_ns"]) / float(row["life_ns"])) ** 2 - SHORT_SHARE * (1.0 - SHORT_SHARE) * lead**2
    return math.sqrt(max(0.0, square))


def test_ctas_live_as_unalike_as_the_description_has_it() -> None:
    """By hand: what slices take of a k-step for all its bytes, less what its arithmetic takes of 4096 FLOP a cycle."""
    last = {tuple(row[name] for name in OF_BUILD): row["wave"] for row in WAVES if row["m"] == "3072"}
    found = []
    for row in WAVES:
        if row["m"] != "3072" or row["wave"] == last[tuple(row[name] for name in OF_BUILD)]:
            continue
        m, n, k = map(int, row["tile"].split("x"))
        by_slices = 2 * (m + n) * k / (H100.l2.num_slices * H100.l2.slice_bytes_per_cycle * H100.l2.sustained_fraction / 132)
        found.append(_deviation(row) / (1.0 - 2 * m * n * k / 4096 / by_slices))
    assert len(found) == 328
    assert median(found) == pytest.approx(H100.l2.cta_lifetime_cv, rel=0.05)


def test_what_is_read_of_memory_is_nearer_with_ctas_that_come_apart() -> None:
    """44 grids of 3072 x 8192 x 8192, whose lives gave the number and whose bytes did not. In step 24 % off."""
    alike = replace(H100, l2=replace(H100.l2, cta_lifetime_cv=0.0))
    errors: dict[float, list[float]] = {}
    for row in _rows("tile_gemm_h100_sxm.csv"):
        launch = GemmParams(**_options(row)).launch(H100)
        for gpu in (H100, alike):
            held = check(launch, gpu)
            traffic = plan_traffic(
                launch, gpu, FootprintTable.of(launch, gpu), num_slots=count_slots(launch, gpu, held), is_warm=False
            )
            read = sum(item.read_miss_bytes for item in traffic.values())
            errors.setdefault(gpu.l2.cta_lifetime_cv, []).append(read / float(row[BYTES]) - 1.0)
    (apart, in_step) = errors.values()
    assert len(apart) == 44
    assert mean(map(abs, in_step)) == pytest.approx(0.242, abs=0.005)
    assert mean(map(abs, apart)) == pytest.approx(0.140, abs=0.01)
    assert mean(apart) == pytest.approx(0.0, abs=0.03)
    assert max(map(abs, apart)) < 0.53


def test_a_lone_loop_by_cp_async_goes_at_its_own_pace() -> None:
    """All CTAs walk one tile: steps of three and four stages, all places of an SM taken; in the model L2 has no limit."""
    lives = {
        (row["kernel"], row["tile"], row["num_stages"], row["num_warps"], row["ctas_per_sm"], row["k"]): row
        for row in _rows("tile_gemm_one_tile_h100_sxm.csv")
    }
    case, errors = sys.modules[TILE_GEMM.launch.__module__], []
    alike = replace(H100, warp_scheduler=replace(H100.warp_scheduler, imad_wide_sm_cv=0.0))  # the mean of all SMs
    for tile, stages, warps, held in (("64x128x64", "4", "4", 2), ("64x64x64", "3", "4", 4), ("128x128x64", "3", "8", 2)):
        rows = [lives["by_pointers", tile, stages, warps, str(held), k] for k in ("2048", "12288")]
        measured = (float(rows[1]["life_cycles"]) - float(rows[0]["life_cycles"])) / 160 / held
        cycles = []
        for k in (2048, 4096):
            config = {
                "kernel": "by_pointers", "tile": tile, "k": str(k),
                "m": str(int(tile.split("x")[0]) * 132 * held), "n": tile.split("x")[1],
                "num_stages": stages, "num_warps": warps, "raster_group": "1",
            }  # fmt: skip
            options = {**case.options(config, {}, H100), "registers": int(rows[0]["registers"])}
            launch = GemmParams(**options).launch(alike)
            cycles.append(simulate(launch, alike, clock=1755, ideals=("l2", "hbm")).cycles)
        errors.append((cycles[1] - cycles[0]) / 32 / held / measured - 1.0)
    assert max(map(abs, errors)) < 0.1


# ---------------------------------------------------------------------- paces of SMs, on an H200

PACES = _rows("paces_h200_sxm.csv")
H200 = load_gpu("h200_sxm")
PACED = (
    ("64x128x64", "3", "4"), ("64x128x64", "4", "4"), ("128x64x64", "3", "4"), ("128x64x64", "4", "4"),
    ("64x64x64", "3", "4"), ("64x64x64", "4", "4"), ("128x128x64", "3", "4"), ("128x128x64", "3", "8"),
)  # fmt: skip
"""Builds by cp.async of three stages and more of which two CTAs were measured on each SM."""


def _pace_pct(build: tuple[str, str, str], held: str) -> float:
    """How far SMs' paces lie apart, percent of their mean: what the deviation of their CTAs' lives grows by with them.

    By pointers; its square is a line over the square of the mean life, whose intercept is what does not grow (begins, first
    loads); nothing where it falls.
    """
    rows = [
        row for row in PACES
        if row["kernel"] == "by_pointers" and (row["tile"], row["num_stages"], row["num_warps"]) == build
        and row["ctas_per_sm"] == held
    ]  # fmt: skip
    lives = [float(row["life_cycles"]) for row in rows]
    apart = [float(row["of_sm_sd_pct"]) / 100.0 * life for row, life in zip(rows, lives, strict=True)]
    slope = linear_regression([life**2 for life in lives], [each**2 for each in apart]).slope
    return 100.0 * math.sqrt(max(0.0, slope))


def _ends_of_sms(build: tuple[str, str, str], k: int) -> list[float]:
    """In the model, L2 and memory without limit: mean end of the two CTAs of each SM."""
    case, (tile, stages, warps) = sys.modules[TILE_GEMM.launch.__module__], build
    m, n, _ = map(int, tile.split("x"))
    config = {
        "kernel": "by_pointers", "m": str(2 * m), "n": str(132 * n), "k": str(k), "tile": tile, "num_stages": stages,
        "num_warps": warps, "raster_group": "2",
    }  # fmt: skip
    launch = GemmParams(**{**case.options(config, {}, H200), "registers": 96}).launch(H200)
    roles = simulate(
        launch, H200, clock=1755, l2="warm", ideals=("l2", "hbm", "launch"), recorded_sms=range(H200.num_sms)
    ).timeline.roles
    ends: dict[int, list[float]] = {}
    for role in roles:
        ends.setdefault(role.sm_idx, []).append(role.states[-1][2])
    return [mean(ends[sm]) for sm in sorted(ends)]


def test_sms_keep_paces_of_their_own_as_far_apart_as_the_description_has_it() -> None:
    """What the number was worked out from: deviation of SMs, measured over predicted, median of the builds."""
    predicted: dict[tuple[str, str], float] = {}
    for tile, _, warps in PACED:
        if (tile, warps) not in predicted:  # how many stages is all the same where nothing is waited for
            short, long = (_ends_of_sms((tile, "3", warps), k) for k in (512, 1024))
            steps = [late - early for early, late in zip(short, long, strict=True)]
            assert len(steps) == 132
            predicted[tile, warps] = 100.0 * pstdev(steps) / mean(steps)
    found = [_pace_pct(build, "2") / predicted[build[0], build[2]] for build in PACED]
    assert median(found) == pytest.approx(1.0, abs=0.03)
    assert found.count(0.0) == 2 and max(found) < 2.8  # one number for all builds: tiles of 128 x 128 have no such pace


def test_a_lone_cta_of_an_sm_keeps_step_and_two_of_small_tiles_do_not() -> None:
    """Tiles of 128 x 128 keep step with two, too (validation/deviations/18_library_gemms.md)."""
    for build in PACED:
        is_small = "64" in build[0].split("x")[:2]
        assert _pace_pct(build, "1") < (0.05 if is_small else 0.5)
        assert (_pace_pct(build, "2") > 0.65) == is_small


def test_of_three_ctas_and_more_of_an_sm_the_older_ones_are_quicker() -> None:
    """No model has it (validation/deviations/18_library_gemms.md)."""
    rows = [row for row in PACES if row["kernel"] == "by_pointers" and row["k"] == "16384" and row["num_stages"] != "2"]
    three = [row for row in rows if int(row["ctas_per_sm"]) > 2]
    assert all(float(row["oldest_pct"]) < -4.0 and float(row["youngest_pct"]) > 4.0 for row in three) and len(three) >= 12
    two = [row for row in rows if row["ctas_per_sm"] == "2" and row["num_warps"] == "4"]
    assert all(abs(float(row["oldest_pct"])) < 0.6 for row in two)
    by_mma = {row["tile"] + " " + row["build"]: row for row in PACES if row["kernel"] == "hgemm" and row["k"] == "16384"
              and row["ctas_per_sm"] == "2"}
    assert float(by_mma["128x128x64 2x4 64B single"]["oldest_pct"]) < -9.0
    assert abs(float(by_mma["64x64x32 2x2 64B single"]["oldest_pct"])) < 0.5


# ---------------------------------------------------------------------- ping-pong by stages, on an H200


def test_kernels_that_nobody_had_looked_at_are_as_far_off_as_is_said_of_them() -> None:
    rows = _rows("pingpong_stages_h200_sxm.csv")
    errors = [_off(row) for row in rows]
    assert len(rows) == 53 and mean(map(abs, errors)) == pytest.approx(4.2, abs=0.05)
    assert mean(abs(float(row["sectors_error_pct"])) for row in rows) == pytest.approx(5.0, abs=0.05)
    assert sum(error < 0.0 for error in errors) == 48 and (min(errors), max(errors)) == (-12.1, 12.3)
    cycles = {(row["kernel"], row["m"], row["epilogue"], row["stages"]): float(row[CYCLES]) for row in rows}
    for kernel in sorted({kernel for kernel, *_ in cycles}):
        for side in ("2048", "3072", "4096"):
            three, four = (cycles[kernel, side, "tma_store", stages] for stages in "34")
            assert 0.65 < four / three < 0.79
