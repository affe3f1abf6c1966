"""Taus and regrets keep their laws."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim import GemmParams, load_gpu
from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import kernels_dir
from gpusim.evidence.cases.paths import CYCLES
from gpusim.evidence.validate.accuracy_summary import held_out_families, own_ranks, ranks
from gpusim.evidence.validate.expected_error import Expected, expected_error, unknown
from gpusim.evidence.validate.judge import Judgement
from gpusim.evidence.validate.ranking import kendall_tau, ranking, regret
from gpusim.kernel_models import KERNEL_MODELS

times = st.floats(1.0, 1e6)
rows = st.lists(st.tuples(times, times), min_size=1, max_size=12)
whole = st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 10_000)), min_size=1, max_size=12)


@given(rows, st.sampled_from((0.0, 0.1, 0.5)))
def test_tau_lies_between_its_ends_and_clear_pairs_are_pairs(of: list[tuple[float, float]], apart: float) -> None:
    predicted, measured = zip(*of, strict=True)
    tau, num = kendall_tau(predicted, measured, tie=apart)
    assert -1.0 <= tau <= 1.0
    assert 0 <= num <= kendall_tau(predicted, measured)[1] <= math.comb(len(of), 2)


@given(whole)
def test_only_the_order_of_predictions_counts(of: list[tuple[int, int]]) -> None:
    predicted, measured = zip(*of, strict=True)
    assert ranking([3.0 * p**3 + 7.0 for p in predicted], measured) == ranking(predicted, measured)


@given(st.lists(times, min_size=2, max_size=12, unique=True))
def test_the_right_order_is_one_and_its_reverse_minus_one(measured: list[float]) -> None:
    right = ranking(measured, measured)
    assert (right.tau, right.clear_tau, right.regret) == (1.0, 1.0, 0.0)
    tau, num = kendall_tau([-taken for taken in measured], measured)
    assert tau == -1.0
    assert num == math.comb(len(measured), 2)
    assert regret([-taken for taken in measured], measured) == max(measured) / min(measured) - 1.0 or math.isclose(
        regret([-taken for taken in measured], measured), max(measured) / min(measured) - 1.0, abs_tol=1e-12
    )


@given(rows, st.floats(0.5, 2.0))
def test_regret_is_no_gain_and_knows_no_unit(of: list[tuple[float, float]], factor: float) -> None:
    predicted, measured = zip(*of, strict=True)
    assert regret(predicted, measured) >= 0.0
    assert regret(predicted, [taken * factor for taken in measured]) == pytest.approx(regret(predicted, measured), abs=1e-9)


def test_pairs_by_hand() -> None:
    """Of 10, 10.5, 12, 20 predicted as 2, 1, 3, 4: five pairs right, one wrong, which is not clear."""
    found = ranking([2.0, 1.0, 3.0, 4.0], [10.0, 10.5, 12.0, 20.0])
    assert (found.num_pairs, found.num_clear_pairs) == (6, 5)
    assert found.tau == pytest.approx(4 / 6)
    assert found.clear_tau == 1.0
    assert found.regret == pytest.approx(0.05)


def test_a_pair_is_clear_from_a_tenth_of_the_slower_on() -> None:
    assert kendall_tau([1, 2], [90.0, 100.0], tie=0.1)[1] == 1
    assert kendall_tau([1, 2], [90.1, 100.0], tie=0.1)[1] == 0


def test_a_tie_of_predictions_is_half_right_and_costs_the_slower() -> None:
    assert kendall_tau([1, 1], [1.0, 2.0]) == (0.0, 1)
    assert regret([1, 1], [1.0, 2.0]) == 1.0


@pytest.mark.parametrize(("predicted", "measured"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_nothing_to_rank_is_refused(predicted: list[float], measured: list[float]) -> None:
    with pytest.raises(ConfigError, match="ranking: wants as many"):
        regret(predicted, measured)


def row(n: int, tile: str, predicted: float, measured: float, *, kernel: str = "k", name: str = "cycles") -> Judgement:
    return Judgement(
        kernel=kernel, group="g", name=name, tier=6, config={"n": str(n), "tile": tile}, predicted=predicted,
        measured=measured, is_validation=True, problem=n or None,
    )  # fmt: skip


FEW = [row(1, "a", 1, 10), row(1, "b", 2, 20), row(1, "c", 3, 15), row(2, "a", 1, 1), row(2, "b", 2, 2)]


def test_rows_of_one_problem_are_ranked_together() -> None:
    """Of problem 1 two pairs of three are right, all of them clearly apart; two rows of problem 2 are no order."""
    (found,) = ranks(FEW, "cycles")
    assert (found.scope, found.num_problems, found.num_rows, found.num_clear_pairs) == ("k", 1, 3, 3)
    assert found.tau == found.clear_tau == pytest.approx(1 / 3)
    assert (found.regret_pct, found.worst_regret_pct, found.passes) == (0.0, 0.0, False)
    assert ranks(FEW, "other") == ranks([row(0, tile, 1, 1) for tile in "abc"], "cycles") == []


def test_kernels_are_ranked_alone_and_all_together() -> None:
    """Another kernel's row, predicted to be the fastest and measured half as slow again as the best: a regret of 50 %."""
    of_k, of_all = ranks([*FEW, row(1, "a", 0.5, 15, kernel="l")], "cycles")
    assert (of_k.scope, of_all.scope, of_all.num_rows) == ("k", "all kernels", 4)
    assert (of_all.regret_pct, of_all.worst_regret_pct) == (50.0, 50.0)
    assert of_all.blind_regret_pct == pytest.approx(50.0)  # of 10, 20, 15, 15


def test_what_ranks_within_its_limits_passes() -> None:
    right = [row(1, tile, place, place) for place, tile in enumerate("abc", 1)]
    assert ranks(right, "cycles")[0].passes
    late = [row(1, "a", 1, 104), row(1, "b", 2, 100), row(1, "c", 3, 300)]  # in order, as those two are not clearly apart
    assert ranks(late, "cycles")[0].clear_tau == 1.0
    assert not ranks(late, "cycles")[0].passes  # a regret of 4 %
    assert ranks([*late, *(row(2, tile, place, place) for place, tile in enumerate("abc", 1))], "cycles")[0].passes


def test_the_measurement_ranks_itself_by_its_repetition() -> None:
    found = own_ranks([replace(each, again_us=taken) for each, taken in zip(FEW, (1.0, 3.0, 2.0), strict=False)], "cycles")
    assert found is not None
    assert (found.tau, found.regret_pct) == (1.0, 0.0)
    assert own_ranks(FEW, name="cycles") is None


def test_an_expected_error_is_what_held_out_rows_of_the_family_kept() -> None:
    with (kernels_dir().parent / "validation" / "held_out.toml").open("rb") as file:
        table = tomllib.load(file)
    for gpu, families in table.items():
        for kernel, limits in families.items():
            if kernel in KERNEL_MODELS and "sm__cycles_elapsed.max" in limits:
                found = expected_error(kernel, gpu)
                assert found is not None
                assert (found.p90_pct, found.gpu) == (limits["sm__cycles_elapsed.max"], gpu)
                assert (found.family, found.is_held_out) == (kernel, kernel in held_out_families())
    assert expected_error("nothing", "h200_sxm") is None
    assert unknown("nothing", "h200_sxm") == "not known: no measured row on h200_sxm is like it"


def test_no_gpus_errors_are_quoted_for_another() -> None:
    for gpu in ("h100_sxm", "h100_pcie", "a100_sxm_40gb", "a100_sxm_80gb", "toy"):
        assert expected_error("softmax", gpu) is None
        found = expected_error("gemm", gpu, {"math": "wgmma", "copy": "tma", "schedule": "cooperative"})
        beyond = {"math": "wgmma", "copy": "tma", "schedule": "cooperative", "m": 1, "n": 4096, "k": 4096, "dtype": "int8"}
        assert expected_error("gemm", gpu, beyond) is None
        if found is not None:
            assert f"of published ladders on {gpu} m is 1" in unknown("gemm", gpu, beyond)
        assert found is None or (found.gpu == gpu and found.num_published and f"ladders on {gpu}" in found.text)
        assert unknown("softmax", gpu) == f"outside of what was validated: no softmax was measured on {gpu}"


def test_published_steps_judge_the_gpu_that_they_ran_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "validation" / "published").mkdir(parents=True)
    (tmp_path / "validation" / "held_out.toml").write_text("")
    folder, keys = tmp_path / "validation" / "published", "ladder,step,m,n,k"
    steps = [("a", step, published, said) for step, (published, said) in enumerate([(100, 80), (100, 100), (90, 100)])]
    ladder = [f"l,{step},1,1,1,{gpu},{published}" for gpu, step, published, _ in [*steps, ("b", 7, 1, 0)]]
    (folder / "gemm_ladder_x.csv").write_text("\n".join([f"{keys},gpu,tflops", *ladder]))
    said = [f"l,{step},1,1,1,{2e-6 / tflops}" for _, step, _, tflops in steps]
    (folder / "predictions_1.csv").write_text("\n".join([f"{keys},time_us", *said]))
    monkeypatch.setattr("gpusim.evidence.validate.expected_error.kernels_dir", lambda: tmp_path / "kernels")
    found = expected_error("gemm", "a", {})
    assert found == Expected(p90_pct=25.0, gpu="a", family="gemm", num_published=3)  # 100 / 80: took a quarter longer
    assert found is not None and found.what == "time"
    assert expected_error("gemm", "b", {}) is None and expected_error("softmax", "a", {}) is None


def test_a_family_that_has_rows_goes_before_all_of_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    validation = tmp_path / "validation"
    (validation / "first").mkdir(parents=True)
    (validation / "first" / "held_out.toml").write_text('families = ["sgemm"]\n')
    name = '"sm__cycles_elapsed.max"'
    (validation / "held_out.toml").write_text(f"[a.gemm]\n{name} = 9.0\n[b.gemm]\n{name} = 7.0\n[a.sgemm]\n{name} = 3.0\n")
    for module in ("validate.expected_error", "cases.paths"):
        monkeypatch.setattr(f"gpusim.evidence.{module}.kernels_dir", lambda: tmp_path / "kernels")
    fma, other = {"math": "fma"}, {"math": "mma_sync"}
    of_b = Expected(p90_pct=7.0, gpu="b", family="gemm", counters={CYCLES: 7.0})
    assert expected_error("gemm", "b", fma) == of_b
    assert expected_error("gemm", "a", fma) == Expected(
        p90_pct=3.0, gpu="a", family="sgemm", is_held_out=True, counters={CYCLES: 3.0}
    )
    assert expected_error("gemm", "b", other) == of_b
    assert expected_error("mine", "b", {}) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""), ({"m": 8192, "dtype": "fp16"}, ""), ({"m": 1}, "m is 1, rows have 128 to 16384"),
        ({"stages": 1}, "stages is 1, rows have 2 to 6"),
        ({"batch": 64}, "batch is 64, rows have 1"),
        ({"cluster": "4x2"}, ""), ({"cluster": "2x1"}, ""),
        ({"tile": "256x192x64"}, ""), ({"tile": "64x256x64"}, "tile is 64x256x64, rows have 128x64x64 to 256x256x128"),
        ({"swizzle": "none"}, "swizzle is none, rows have 128B"),
        ({"alpha": 2.0, "layout": "nn"}, "layout is nn, rows have tn"), ({"alpha": 4.0}, "alpha is 4.0, rows have 1.0"),
        ({"mbarrier_arrive": "thread"}, "mbarrier_arrive is thread, rows have warpgroup"),
        ({"out_dtype": "fp32"}, "out_dtype is fp32, rows have bf16"),
        ({"consumer_split": "n"}, "consumer_split is n, rows have m"),
        ({"activation": "silu"}, "activation is silu, rows have none"),
    ],
    ids=str,
)
def test_nothing_is_expected_of_what_no_row_is_like(changes: dict[str, object], says: str) -> None:
    gpu = load_gpu("h200_sxm")
    options = {"m": 4096, "n": 4096, "k": 4096, "schedule": "cooperative", **changes}
    told = GemmParams.model_validate(options).resolved(gpu).as_options()
    found = expected_error("gemm", "h200_sxm", told)
    assert (found is None) == bool(says)
    if found is None:
        assert unknown("gemm", "h200_sxm", told).endswith(f"of the family hopper_gemm cooperative on h200_sxm {says}")
    else:
        assert found.counters["dram__bytes_read.sum"] > 0.0 and "rows" not in found.counters


@pytest.mark.parametrize(
    ("changes", "family"),
    [
        ({"alpha": 2.0}, "epilogues"), ({"beta": 1.0, "epilogue": "tma_reduce"}, "epilogues"),
        ({"bias": True, "activation": "gelu"}, "epilogues"), ({"dtype": "int8"}, "types"), ({"layout": "nt"}, "layouts"),
        ({"m": 1024, "n": 1024, "k": 512, "batch": 8}, "batches"), ({"k": 4092, "schedule": None}, "unaligned"),
    ],
    ids=str,
)
def test_a_knob_has_the_error_of_the_rows_that_set_it(changes: dict[str, object], family: str) -> None:
    options = {"m": 4096, "n": 4096, "k": 4096, "schedule": "cooperative", **changes}
    told = GemmParams.model_validate(options).resolved(load_gpu("h200_sxm")).as_options()
    found = expected_error("gemm", "h200_sxm", told)
    assert found is not None
    assert found.family == f"library_knobs {family}"


def test_published_ladders_promise_nothing_of_options_that_no_step_has() -> None:
    gpu = load_gpu("h100_sxm")
    for changes, is_known in (({}, True), ({"cluster": "4x2"}, False), ({"alpha": 2.0}, False), ({"batch": 2}, False)):
        given = {"m": 4096, "n": 4096, "k": 4096, "wgmma_depth": 0, **changes}
        options = GemmParams.model_validate(given).resolved(gpu).as_options()
        assert (expected_error("gemm", "h100_sxm", options) is not None) == is_known
    assert "of published ladders on h100_sxm batch is 2, rows have 1" in unknown("gemm", "h100_sxm", options)


@pytest.mark.parametrize(
    ("kernel", "options", "says"),
    [
        ("gather", {"rows": 4096, "columns": 1024, "table_rows": 65536, "threads": 128}, "threads is 128, rows have 256"),
        ("softmax", {"rows": 4096, "columns": 2048, "threads": 512}, "threads is 512, rows have 256"),
        ("strided_copy", {"elements": 1 << 22, "stride": 64}, "stride is 64, rows have 2 to 32"),
        ("softmax", {"rows": 4096, "columns": 2048, "ctas": 4096}, "ctas is 4096, no row sets it"),
        (
            "softmax", {"rows": 4096, "columns": 32768, "per": "block", "keep": "reread", "unroll": 4},
            "unroll is 4, no row sets it",
        ),
        ("bias_activation", {"rows": 4096, "columns": 2048}, "rows have layer_norm, rms_norm, softmax"),
        ("reduction", {"rows": 4096, "columns": 2048, "unroll": 8, "threads": 512}, "unroll is 8, rows have 1 to 4"),
    ],
)
def test_other_kernels_promise_nothing_of_options_that_no_row_has(kernel: str, options: dict[str, Any], says: str) -> None:
    gpu = load_gpu("h200_sxm")
    told = KERNEL_MODELS[kernel].params.model_validate(options).resolved(gpu).as_options()
    assert expected_error(kernel, "h200_sxm", told) is None
    assert unknown(kernel, "h200_sxm", told).endswith(says)


@pytest.mark.parametrize(
    ("kernel", "options", "family"),
    [
        ("softmax", {"columns": 1024}, "softmax"), ("softmax", {"columns": 1000}, "framework_rows kept"),
        ("layer_norm", {"columns": 1024, "ctas": 264}, "framework_rows kept"),
        ("rms_norm", {"columns": 2048}, "framework_rows kept"),
        ("softmax", {"columns": 16384, "per": "block", "keep": "reread"}, "framework_rows reread"),
        ("softmax", {"columns": 4096, "per": "block", "in_place": True}, "framework_rows in_place"),
        ("reduction", {"columns": 1024}, "reduction"), ("reduction", {"columns": 1024, "axis": "column"}, "reduction"),
        ("reduction", {"columns": 4096, "threads": 512, "finish": "last_cta"}, "grid_reduction rows"),
        ("reduction", {"columns": 1024, "axis": "column", "finish": "last_cta"}, "grid_reduction columns"),
    ],
    ids=str,
)
def test_rows_have_the_error_of_the_program_that_they_run(kernel: str, options: dict[str, Any], family: str) -> None:
    gpu = load_gpu("h200_sxm")
    told = KERNEL_MODELS[kernel].params.model_validate({"rows": 4096, **options}).resolved(gpu).as_options()
    found = expected_error(kernel, "h200_sxm", told)
    assert found is not None and found.family == family


def test_a_loop_with_tensor_descriptors_has_the_error_of_tritons() -> None:
    options = {
        "m": 4096, "n": 4096, "k": 4096, "tile": "128x128x64", "stages": 3, "schedule": "multistage", "copy": "tma",
        "prefetch": "after_wait", "epilogue": "tma_store", "prefetch_tensormap": False, "wgmma_depth": 1,
    }  # fmt: skip
    told = GemmParams.model_validate(options).resolved(load_gpu("h200_sxm")).as_options()
    found = expected_error("gemm", "h200_sxm", told)
    assert found is not None and found.family == "tile_gemm by_descriptors"


def test_a_cut_off_file_of_expected_errors_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (kernels_dir().parent / "validation" / "held_out.toml").read_text(encoding="utf-8")
    (tmp_path / "validation").mkdir()
    cut = tmp_path / "validation" / "held_out.toml"
    cut.write_text(whole[: whole.index("=", 1000) + 1], encoding="utf-8")
    monkeypatch.setattr("gpusim.evidence.validate.expected_error.kernels_dir", lambda: tmp_path / "kernels")
    with pytest.raises(ConfigError, match=r"held_out\.toml: cut off, or no TOML"):
        expected_error("softmax", "h200_sxm")
