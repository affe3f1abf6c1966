"""Whole kernels: data larger than the host holds, rows judged at their own clock, errors that mean something near zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.errors import ConfigError
from gpusim.evidence.cases import validation_kernel
from gpusim.evidence.cases.case import Answer, Case, Config, KernelLaunch, Limit, Outputs, Repeated, Windows, case_names
from gpusim.evidence.cases.paths import kernel_folder
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.cases.validation_kernel import (
    CLOCK,
    COUNTED,
    CTAS_OF_SM,
    CYCLES,
    DRAM,
    DURATION,
    ESTIMATED_CYCLES,
    EXACT,
    FLOOR_SHARE,
    GEMM_LIMITS,
    HIT_RATE,
    LIMITS,
    POWER,
    REGISTERS,
    SHARED,
    SINGLE,
    SUSTAINED,
    THREAD_NUMBERS,
    TIERS,
    TIMED_WAVEFRONTS,
    answers,
    as_counted,
    empty_us,
    pattern,
    roofline_us,
    row_clock_mhz,
    touched_bytes,
    validation_case,
    whole_group,
    windows,
)
from gpusim.evidence.validate.judge import Judgement, summaries
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import load_gpu
from gpusim.simulate.run import simulate

MEASURED = Path(__file__).resolve().parents[2] / "validation" / "measured"
GPU = load_gpu("h200_sxm")
OPTIONS = {"m": 1024, "n": 512, "k": 256}


def nothing_launched(config: Config, is_counted: bool) -> KernelLaunch:
    del is_counted
    return KernelLaunch(kernel=config["kernel"], arguments=(), block=(32, 1, 1))


def nothing_checked(config: Config, outputs: Outputs) -> dict[str, float]:
    del config, outputs
    return {}


def configs(seed: int) -> list[Config]:
    del seed
    return [{"kernel": "gemm", **{name: str(value) for name, value in OPTIONS.items()}}]


def case() -> Case:
    return validation_case(
        Case(
            name="a_gemm",
            question="How fast?",
            columns=tuple(OPTIONS),
            groups={"all": whole_group(configs)},
            launch=nothing_launched,
            check=nothing_checked,
        ),
        model="gemm",
        options=lambda config: {name: config[name] for name in OPTIONS},
    )  # fmt: skip


def row(**numbers: float) -> Mapping[str, str]:
    named = {CYCLES: 15_000.0, DURATION: 10_000.0} | numbers
    return {"group": "all", **configs(1)[0], **{name: str(number) for name, number in named.items()}}


# ---------------------------------------------------------------------------------------------- data


def test_a_repeated_array_begins_anew_at_its_end() -> None:
    repeated = Repeated(np.arange(6, dtype="<u2"), 1000)
    whole = np.tile(repeated.array, 84).view(np.uint8)[:1000]
    for offset, num_bytes in ((0, 4), (10, 2), (10, 4), (11, 1), (500, 500), (997, 3)):
        assert repeated.window(offset, num_bytes).tolist() == whole[offset : offset + num_bytes].tolist()


@pytest.mark.parametrize("window", [(-1, 2), (0, 0), (9, 2), (10, 1)])
def test_a_window_outside_of_its_output_is_refused(window: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="outside of its 10"):
        Windows("out", 10, ((0, 10), window))


def test_a_large_output_is_looked_at_from_its_first_to_its_last_byte() -> None:
    found = windows(2**32, unit_bytes=512, seed=3)
    assert found[0][0] == 0 and sum(found[-1]) == 2**32 and len(found) == 12
    assert all(offset % 512 == 0 and size % 512 == 0 for offset, size in found)
    assert windows(2**32, unit_bytes=512, seed=4) != found == windows(2**32, unit_bytes=512, seed=3)
    assert windows(2**20) == ((0, 2**20),)
    with pytest.raises(ConfigError, match="no multiple of 512"):
        windows(1000, unit_bytes=512)


def test_patterns_are_normal_numbers_that_stay_as_they_are() -> None:
    made = pattern("bf16")
    assert made.dtype == np.uint16 and made.nbytes == 64 * 2**20 and not made.flags.writeable
    some = (made[:100_000].astype(np.uint32) << 16).view(np.float32)
    assert abs(float(some.mean())) < 0.02 and abs(float(some.std()) - 1.0) < 0.02
    assert pattern("bf16") is made and not np.array_equal(pattern("fp16", 1)[:9], pattern("fp16", 2)[:9])


# ---------------------------------------------------------------------------------------------- what is predicted


def test_what_is_judged_is_counted_or_timed() -> None:
    assert set(TIERS) <= {*COUNTED, *EXACT, *TIMED_WAVEFRONTS, *SINGLE, *SUSTAINED, POWER}
    assert not case().calibrates
    assert case().groups["all"].is_cold and case().groups["all"].times == ("single", "sustained")
    assert set(case().tiers) == {*set(TIERS) - {*EXACT, *TIMED_WAVEFRONTS}, REGISTERS, CTAS_OF_SM, ESTIMATED_CYCLES}


def test_a_group_that_is_not_timed_is_not_judged_by_times() -> None:
    counted = validation_case(
        Case(
            name="a",
            question="?",
            columns=tuple(OPTIONS),
            groups={"all": replace(whole_group(configs), times=())},
            launch=nothing_launched,
            check=nothing_checked,
        ),
        model="gemm",
        options=lambda config: OPTIONS,
    )  # fmt: skip
    assert set(counted.tiers) == {*set(TIERS) & set(counted.metrics), REGISTERS, CTAS_OF_SM, ESTIMATED_CYCLES}
    assert set(counted.tiers).isdisjoint({*SINGLE, *SUSTAINED, POWER})


def test_a_rows_cycles_are_predicted_at_its_own_clock_in_one_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks: list[Any] = []

    def counted(*arguments: Any, **settings: Any) -> Any:
        clocks.append((settings["clock"], settings["l2"]))
        return simulate(*arguments, **settings)

    monkeypatch.setattr(validation_kernel, "simulate", counted)
    said = case().answers(configs(1)[0], row(**{DRAM[0]: 1e6}), GPU, {CYCLES, *DRAM, *SINGLE})
    assert clocks == [(1500.0, "flushed")]
    params = KERNEL_MODELS["gemm"].params.model_validate(OPTIONS).resolved(GPU)
    assert said[CYCLES].value == simulate(params.launch(GPU), GPU, clock=1500.0).cycles
    assert set(said) == {CYCLES, DRAM[0]}  # what the row has


def test_times_are_predicted_with_the_models_clock_warm_where_launches_follow() -> None:
    launch = KERNEL_MODELS["gemm"].params.model_validate(OPTIONS).resolved(GPU).launch(GPU)
    said = answers(launch, row(single_us=9.0, sustained_us=8.0), GPU, {*SINGLE, *SUSTAINED})
    assert said["single_us"].value == simulate(launch, GPU, clock="single").time_us
    assert said["sustained_us"].value == simulate(launch, GPU, clock="sustained", l2="warm").time_us
    assert said["sustained_us"].value < said["single_us"].value
    assert said[POWER].value == simulate(launch, GPU, clock="sustained", l2="warm").power_w


def test_what_events_take_around_nothing_they_take_around_a_kernel() -> None:
    launch = KERNEL_MODELS["gemm"].params.model_validate(OPTIONS).resolved(GPU).launch(GPU)
    bare = answers(launch, row(single_us=9.0), GPU, {"single_us"})["single_us"].value
    told = answers(launch, row(single_us=9.0, empty_single_us=4.0), GPU, {"single_us"})["single_us"].value
    roof = answers(launch, row(single_us=9.0, empty_single_us=4.0), GPU, {"single_us"})["single_us"].roofline
    assert roof == pytest.approx((roofline_us(launch, GPU) or 0.0) + told - bare)  # it is spared nothing that we add
    assert told - bare == pytest.approx(4.0 - empty_us(GPU))
    more = empty_us(GPU) - empty_us(GPU, l2="warm")
    assert more == pytest.approx(GPU.dispatcher.cold_start_cycles / GPU.clock.max_mhz)
    dispatcher = GPU.dispatcher
    assert empty_us(GPU) > (dispatcher.launch_cycles + dispatcher.drain_cycles) / GPU.clock.max_mhz


def test_a_clock_beyond_what_the_gpu_runs_at_is_its_highest() -> None:
    assert row_clock_mhz(row(**{CYCLES: 20_000.0}), GPU) == GPU.clock.max_mhz
    assert row_clock_mhz(row(), GPU) == 1500.0
    assert row_clock_mhz(row(**{CLOCK: 1.25e9}), GPU) == 1250.0  # of one pass: it goes before
    with pytest.raises(ConfigError, match=DURATION):
        row_clock_mhz({CYCLES: "5"}, GPU)


def test_the_roofline_is_each_tensor_once_or_the_arithmetic() -> None:
    launch = KERNEL_MODELS["gemm"].params.model_validate(OPTIONS).resolved(GPU).launch(GPU)
    num_bytes = 2 * (1024 * 256 + 512 * 256 + 1024 * 512)
    assert touched_bytes(launch) == num_bytes
    assert roofline_us(launch, GPU) == pytest.approx(num_bytes / GPU.hbm.peak_gb_per_s * 1e-3)
    deep = KERNEL_MODELS["gemm"].params.model_validate(OPTIONS | {"m": 8192, "n": 8192, "k": 8192}).resolved(GPU).launch(GPU)
    assert roofline_us(deep, GPU) == pytest.approx(2 * 8192**3 / 989.4e6)


def test_a_table_that_is_read_at_random_is_touched_once() -> None:
    launch = KERNEL_MODELS["gemm"].params.model_validate(OPTIONS).resolved(GPU).launch(GPU)
    a, *others = launch.footprints
    gathered = replace(launch, footprints=(replace(a, table_bytes=1000), *others))
    assert touched_bytes(launch) - touched_bytes(gathered) == 1024 * 256 * 2 - 1000


def test_a_roofline_reads_operands_once_and_writes_the_product_once() -> None:
    """The product of 1024 x 512 x 256 in bf16."""
    launch = KERNEL_MODELS["gemm"].params.model_validate(OPTIONS).resolved(GPU).launch(GPU)
    m, n, k = (int(OPTIONS[name]) for name in "mnk")
    said = answers(launch, row(**dict.fromkeys(DRAM, 1e6)), GPU, DRAM)
    assert said[DRAM[0]].roofline == touched_bytes(launch, ("read",)) == (m + n) * k * 2
    assert said[DRAM[1]].roofline == touched_bytes(launch, ("write",)) == m * n * 2


def test_a_warp_takes_a_wavefront_that_is_no_access() -> None:
    """As one-warp launches were counted: kernels/shared_access."""
    counters = {SHARED: 64.0, "launch__grid_size": 10.0, "launch__block_size": 96.0, "n": 5.0}
    assert as_counted(counters) == counters | {SHARED: 64.0 + 30.0}
    assert as_counted(counters, 2) == counters | {SHARED: 64.0 + 60.0}
    rows = Table.read(MEASURED / "h200_sxm" / "shared_access.csv").rows
    loads = [row for row in rows if row["kernel"].startswith(("ld_", "st_shared"))]
    of = [f"{SHARED.removesuffix('.sum')}_op_{op}.sum" for op in ("ld", "st")]
    assert len(loads) >= 3000
    assert {float(row[SHARED]) - sum(float(row[op]) for op in of) for row in loads} == {float(THREAD_NUMBERS)}


def test_an_unknown_model_is_refused_by_name() -> None:
    broken = validation_case(
        Case(
            name="a",
            question="?",
            columns=tuple(OPTIONS),
            groups={},
            launch=nothing_launched,
            check=nothing_checked,
        ),
        model="gem",
        options=lambda config: {},
    )  # fmt: skip
    with pytest.raises(ConfigError, match="did you mean 'gemm'"):
        broken.predict(configs(1)[0], GPU)


# ---------------------------------------------------------------------------------------------- errors


def judged(predicted: float, measured: float, **rest: Any) -> Judgement:
    return Judgement(
        kernel="k", group="g", name="n", tier=5, config={}, predicted=predicted, measured=measured, **rest
    )  # fmt: skip


def test_next_to_nothing_measured_is_an_error_of_what_the_kernel_moves() -> None:
    """A copy of 1 MiB whose writes stay in L2: 40 KB were written back, none predicted."""
    floor = FLOOR_SHARE * 2 * 2**20
    assert judged(0.0, 40_000.0, floor=floor).error_pct == pytest.approx(-100 * 40_000 / 2**19)
    assert judged(2.0**20, 40_000.0, floor=floor).error_pct > 100.0  # all of them predicted: no floor excuses that
    assert judged(1.1e9, 1.0e9, floor=FLOOR_SHARE * 2e9).error_pct == pytest.approx(10.0)  # beyond it, the measured counts
    assert judged(0.0, 0.0, floor=floor).error_pct == 0.0


def test_only_memorys_bytes_have_a_floor() -> None:
    launch = KERNEL_MODELS["gemm"].params.model_validate(OPTIONS).resolved(GPU).launch(GPU)
    said = answers(launch, row(**(dict.fromkeys(TIERS, 1.0) | {CYCLES: 15e3})), GPU, set(TIERS))
    assert {name for name, answer in said.items() if answer.floor} == set(DRAM)
    assert said[DRAM[1]].floor == 0.25 * touched_bytes(launch)


def test_rates_in_percent_are_judged_in_points() -> None:
    limit = case().limits[HIT_RATE]
    assert judged(83.0, 80.0, limit=limit).error_pct == 3.0
    assert summaries([judged(83.0, 80.0, limit=limit)])[0].passes
    assert not summaries([judged(76.9, 80.0, limit=limit)])[0].passes
    assert summaries([judged(0.5, 0.0, limit=limit)])[0].passes


def test_clocks_must_be_within_four_percent_each() -> None:
    limit = case().limits["single_clock_mhz"]
    assert summaries([judged(1560.0, 1500.0, limit=limit), judged(1440.0, 1500.0, limit=limit)])[0].passes
    assert not summaries([judged(1500.0, 1500.0, limit=limit), judged(1561.0, 1500.0, limit=limit)])[0].passes


def test_a_kernel_may_have_limits_of_its_own() -> None:
    other = Limit(mean_pct=8.0)
    assert replace(case(), limits={DRAM[0]: other}).limits[DRAM[0]] is other
    assert summaries([judged(107.0, 100.0, limit=other)])[0].passes and not summaries([judged(107.0, 100.0)])[0].passes


def test_products_have_limits_of_their_own_for_what_their_tiles_share() -> None:
    assert {name for name in GEMM_LIMITS if GEMM_LIMITS[name] == Limit(mean_pct=8.0)} == {
        *DRAM, "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum",
    }  # fmt: skip
    assert {name: GEMM_LIMITS[name] for name in LIMITS} == dict(LIMITS)


def test_a_roofline_stands_beside_and_spreads_are_averaged() -> None:
    (family,) = summaries([
        judged(11.0, 10.0, roofline=5.0, spread_pct=1.0), judged(10.0, 10.0, roofline=8.0, spread_pct=2.0), judged(1.0, 1.0),
    ])  # fmt: skip
    assert family.roofline_pct == pytest.approx(35.0) and family.spread_pct == pytest.approx(1.5)
    assert summaries([judged(1.0, 1.0)])[0].roofline_pct is None


def test_without_a_row_of_its_own_a_case_answers_as_before() -> None:
    plain = replace(case(), predict_row=None, predict=lambda config, gpu: {"n": 7.0})
    assert plain.answers(configs(1)[0], row(), GPU, {"n"}) == {"n": Answer(value=7.0)}


def test_a_folder_that_holds_a_cache_alone_is_no_kernel(tmp_path: Path) -> None:
    """Python's cache stays behind when a kernel moves to another shelf."""
    (tmp_path / "chase" / "__pycache__").mkdir(parents=True)
    moved = tmp_path / "microbench" / "l2" / "chase"
    moved.mkdir(parents=True)
    (moved / "case.py").write_text("", encoding="utf-8")
    assert kernel_folder("chase", tmp_path) == moved
    assert case_names(tmp_path) == ["chase"]
