"""The gate: which model stands for which launch, what it is held against, what became worse and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import JUnitXml

from gpusim import load_gpu, simulate
from gpusim.errors import ConfigError, GpusimError, KernelError
from gpusim.evidence.cases.paths import ESTIMATED_CYCLES
from gpusim.evidence.cases.validation_kernel import CYCLES, DURATION
from gpusim.evidence.gate.baseline import changes, explain_changes
from gpusim.evidence.gate.check import Limits, check_profile
from gpusim.evidence.gate.gpu_refusals import NotComparableError
from gpusim.evidence.gate.models import Model, clock_of, model_for, read_models
from gpusim.evidence.gate.predictions import predictions, thread_numbers
from gpusim.evidence.gate.tolerances import HELD_OUT_NAMES, Tolerance, parse_tolerance, tolerance_of
from gpusim.evidence.gate.verdicts import FAIL, NOT_COMPARABLE, PASS, Change, Comparison, Report
from gpusim.evidence.nsight.launches import ProfiledLaunch
from gpusim.evidence.nsight.metrics import CLASSES, SAME, class_of
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import configs_dir
from gpusim.report.check import check_document, difference_text, junit_bytes

DATA = Path(__file__).parent / "data"
pytestmark = pytest.mark.usefixtures("runs_once")

TOY = load_gpu("toy")
COPY = Model(kernel="elementwise", options={"op": "copy", "elements": 65536})
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"


def launch_of(kernel: str = "copy", **metrics: float) -> ProfiledLaunch:
    named = {name.replace("__dot__", "."): value for name, value in metrics.items()}
    return ProfiledLaunch(idx="0", kernel=kernel, metrics=MappingProxyType(named))


def profile(path: Path, metrics: Mapping[str, float], *, kernel: str = "copy", cc: str = "9.0", launches: int = 1) -> Path:
    """A raw page in base units."""
    lines = [",".join(f'"{name}"' for name in ("ID", "Kernel Name", "CC", *metrics))]
    lines += [
        ",".join(f'"{value}"' for value in (idx, kernel, cc, *(f"{number:.4f}" for number in metrics.values())))
        for idx in range(launches)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def predicted() -> Mapping[str, float]:
    """What the model itself says at 1000 MHz, for profiles that are right by construction."""
    result = simulate(COPY.params(TOY).launch(TOY), TOY, clock=1000.0)
    told = predictions(result, (), gpu=TOY)
    names = (CYCLES, DURATION, "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sector_hit_rate.pct", SHARED)
    return {name: told[name] for name in names}


# ---------------------------------------------------------------------------------------------- the verdict


def test_a_profile_that_says_what_the_model_says_passes(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    path = profile(tmp_path / "p.csv", predicted, cc=f"{TOY.compute_capability:.1f}")
    report = check_profile(path, gpu=TOY, models=[COPY])
    (item,) = report.launches
    assert report.status == PASS and report.verdict.startswith("PASS")
    assert item.num_judged == len(predicted)
    assert all(part.difference == pytest.approx(0.0, abs=0.02) for part in item.comparisons)
    assert "1,000 MHz" in item.clock


@pytest.mark.parametrize(
    ("metric", "limit"), [(CYCLES, 15.0), ("dram__bytes_read.sum", 10.0), ("lts__t_sector_hit_rate.pct", 3.0), (SHARED, 1.0)]
)
def test_a_metric_passes_at_its_tolerance_and_fails_beyond(
    tmp_path: Path, predicted: Mapping[str, float], metric: str, limit: float
) -> None:
    for share, status in ((0.99, PASS), (1.01, FAIL)):
        value = predicted[metric]
        off = value + share * limit if metric.endswith(".pct") else value / (1.0 - share * limit / 100.0)
        told = {**predicted, metric: off}
        if metric == CYCLES:  # the clock stays
            told[DURATION] = off
        path = profile(tmp_path / "p.csv", told, cc=f"{TOY.compute_capability:.1f}")
        report = check_profile(path, gpu=TOY, models=[COPY])
        assert report.status == status, metric
        failed = {part.metric for part in report.launches[0].comparisons if part.passes is False}
        assert failed <= {metric, DURATION}


def test_all_launches_that_a_model_stands_for_are_judged(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    path = profile(tmp_path / "p.csv", predicted, cc="", launches=3)
    report = check_profile(path, gpu=TOY, models=[COPY])
    assert [item.launch.idx for item in report.launches] == ["0", "1", "2"]
    assert "one model, elementwise, stands for launches 0, 1, 2: all of them are judged" in report.remarks


def test_another_architecture_is_not_comparable(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    path = profile(tmp_path / "p.csv", predicted, cc="1.3")
    with pytest.raises(NotComparableError, match=r"capability 1\.3"):
        check_profile(path, gpu=TOY, models=[COPY])
    path = profile(tmp_path / "p.csv", {**predicted, "device__attribute_multiprocessor_count": 7.0}, cc="")
    with pytest.raises(NotComparableError, match="7 SMs"):
        check_profile(path, gpu=TOY, models=[COPY])


def test_a_gpu_of_another_name_is_not_comparable(tmp_path: Path) -> None:
    text = (DATA / "copy_raw.csv").read_text(encoding="utf-8")
    path = tmp_path / "p.csv"
    for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200"):
        path.write_text(text.replace('"NVIDIA H200"', f'"{name}"'), encoding="utf-8")
        model = replace(COPY, options={"op": "copy", "elements": 67108864})
        if "H200" in name:
            assert check_profile(path, gpu=load_gpu("h200_sxm"), models=[model]).status == PASS
        else:
            with pytest.raises(NotComparableError, match="give --gpu h100_sxm"):
                check_profile(path, gpu=load_gpu("h200_sxm"), models=[model])


def test_a_changed_description_of_a_gpu_is_still_that_gpu(tmp_path: Path) -> None:
    described = (configs_dir() / "h200_sxm.toml").read_text(encoding="utf-8")
    described = described.replace("imad_wide_lanes = 32", "imad_wide_lanes = 16", 1)
    (tmp_path / "mine.toml").write_text(described, encoding="utf-8")
    gpu = load_gpu(tmp_path / "mine.toml")
    assert gpu.name == "h200_sxm (changed)"
    text = (DATA / "copy_raw.csv").read_text(encoding="utf-8")
    path = tmp_path / "p.csv"
    path.write_text(text.replace("NVIDIA H200", "NVIDIA H100 80GB HBM3"), encoding="utf-8")
    with pytest.raises(NotComparableError, match="give --gpu h100_sxm"):
        check_profile(path, gpu=gpu, models=[COPY])
    path.write_text(text.replace("display_name", "x"), encoding="utf-8")
    report = check_profile(path, gpu=gpu, models=[COPY], baseline=path)
    assert [said.split(" does")[0] for said in report.remarks if "on trust" in said] == ["the profile", "p.csv"]


def test_no_metric_in_common_is_not_comparable(tmp_path: Path) -> None:
    path = profile(tmp_path / "p.csv", {"no__such.sum": 1.0}, cc="")
    report = check_profile(path, gpu=TOY, models=[COPY])
    assert report.status == NOT_COMPARABLE
    assert any("no metric" in said for said in report.launches[0].remarks)


def test_how_a_launch_is_laid_out_alone_is_not_comparable(tmp_path: Path) -> None:
    path = profile(tmp_path / "p.csv", {"launch__grid_size": 1e9}, cc="")
    wrong = check_profile(path, gpu=TOY, models=[COPY])
    assert wrong.status == FAIL
    (part,) = wrong.launches[0].comparisons
    path = profile(tmp_path / "p.csv", {part.metric: part.predicted}, cc="")
    report = check_profile(path, gpu=TOY, models=[COPY])
    assert report.status == NOT_COMPARABLE and "nothing that the profile counted" in report.verdict


def test_nothing_is_called_within_tolerance_where_nothing_was_counted(tmp_path: Path) -> None:
    report = check_profile(profile(tmp_path / "p.csv", {"launch__block_size": 256.0}, cc=""), gpu=TOY, models=[COPY])
    assert report.status == NOT_COMPARABLE
    assert report.verdict == "NOT COMPARABLE: nothing that the profile counted is predicted"


def test_a_verdict_says_where_it_says_nothing_of_cycles(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    said = []
    for lacking in ((), (CYCLES,), (CYCLES, DURATION)):
        told = {name: value for name, value in predicted.items() if name not in lacking}
        report = check_profile(profile(tmp_path / "p.csv", told, cc=""), gpu=TOY, models=[COPY])
        assert report.status == PASS
        said.append("neither cycles nor time are compared" in report.verdict)
    assert not said[0] and said[-1]


def test_a_baseline_without_a_launch_of_these_is_not_comparable(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    now, then = (profile(tmp_path / f"{name}.csv", predicted, kernel=name, cc="") for name in ("copy", "other"))
    model = replace(COPY, match="copy")
    report = check_profile(now, gpu=TOY, models=[model], baseline=then)
    assert report.status == NOT_COMPARABLE and "other.csv has no launch of these" in report.verdict
    assert check_profile(now, gpu=TOY, models=[model], baseline=now).status == PASS
    twice = {name: 2 * predicted[name] for name in (CYCLES, DURATION)}
    off = profile(tmp_path / "off.csv", {**predicted, **twice}, cc="")
    assert check_profile(off, gpu=TOY, models=[model], baseline=then).status == FAIL


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({CYCLES: 2.0}, "2,000 MHz, and toy runs at 100 to 1,000: is a unit wrong?"), ({DURATION: 1e6}, "is a unit wrong?"),
        ({DURATION: 1e-6}, "is a unit wrong?"), ({CYCLES: 0.0}, f"{CYCLES} is 0, which no launch takes"),
        ({CYCLES: -1.0}, "wants 0 or more"),
    ],
)
def test_cycles_and_times_that_no_launch_has_are_refused_now_and_in_a_baseline(
    tmp_path: Path, predicted: Mapping[str, float], change: Mapping[str, float], says: str
) -> None:
    good = profile(tmp_path / "good.csv", predicted, cc="")
    off = profile(tmp_path / "off.csv", {name: value * change.get(name, 1.0) for name, value in predicted.items()}, cc="")
    for path, baseline in ((off, None), (good, off)):
        with pytest.raises(ConfigError, match=r"off\.csv") as error:
            check_profile(path, gpu=TOY, models=[COPY], baseline=baseline)
        assert says in str(error.value)


def test_a_baseline_that_was_launched_otherwise_is_told_of_in_the_verdict(tmp_path: Path) -> None:
    text = (DATA / "copy_raw.csv").read_text(encoding="utf-8")
    model, then = replace(COPY, options={"op": "copy", "elements": 2**26}), tmp_path / "then.csv"
    assert '"(65536, 1, 1)"' in text
    then.write_text(text.replace('"(65536, 1, 1)"', '"(32768, 1, 1)"'), encoding="utf-8")
    for is_strict, status in ((False, PASS), (True, NOT_COMPARABLE)):
        report = check_profile(
            DATA / "copy_raw.csv", gpu=load_gpu("h200_sxm"), models=[model], baseline=then,
            limits=Limits(is_strict=is_strict),
        )
        assert report.status == status and "grid or block" in report.verdict and "were others in" in report.verdict


def test_a_profile_without_a_launch_of_the_kernel_is_not_comparable(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    path = profile(tmp_path / "p.csv", predicted, kernel="other", cc="")
    with pytest.raises(NotComparableError, match="other"):
        check_profile(path, gpu=TOY, models=[replace(COPY, match="copy")])


def test_a_rate_above_all_is_told_of_and_not_compared(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    path = profile(tmp_path / "p.csv", {**predicted, "lts__t_sector_hit_rate.pct": 104.0}, cc="")
    (item,) = check_profile(path, gpu=TOY, models=[COPY]).launches
    assert "lts__t_sector_hit_rate.pct" not in {part.metric for part in item.comparisons}
    assert any("different passes" in said for said in item.remarks)


def test_missing_cycles_and_clock_are_told_of(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    told = {name: predicted[name] for name in ("dram__bytes_read.sum", DURATION)}
    (item,) = check_profile(profile(tmp_path / "p.csv", told, cc=""), gpu=TOY, models=[COPY]).launches
    assert "tells none" in item.clock
    assert {part.metric for part in item.comparisons} == {"dram__bytes_read.sum"}
    assert any(CYCLES in said and "missing" in said for said in item.remarks)
    assert any(DURATION in said and "no clock" in said for said in item.remarks)


def test_a_launch_of_another_shape_is_told_of(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    path = profile(tmp_path / "p.csv", {**predicted, "launch__grid_size": 1.0}, cc="")
    report = check_profile(path, gpu=TOY, models=[COPY])
    assert report.status == FAIL
    assert any("launched otherwise" in said for said in report.launches[0].remarks)


def test_the_clock_is_cycles_over_duration_or_as_counted() -> None:
    gpu = load_gpu("h200_sxm")
    told = {CYCLES: 1_500_000.0, DURATION: 1_000_000.0}
    assert clock_of(launch_of(**told), gpu)[0] == pytest.approx(1500.0)
    assert clock_of(launch_of(**told, **{"sm__cycles_elapsed.avg.per_second": 1.6e9}), gpu)[0] == pytest.approx(1600.0)


def test_a_metric_under_another_name_is_judged_alike(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    for other, same in SAME.items():
        if same not in predicted:
            continue
        told = {name: value for name, value in predicted.items() if name != same}
        path = profile(tmp_path / "p.csv", {**told, other: predicted[same]}, cc="")
        (item,) = check_profile(path, gpu=TOY, models=[COPY]).launches
        assert item.passes and "1,000 MHz" in item.clock, other
        assert not any("missing" in said for said in item.remarks), other
        tolerances = [tolerance_of(name, "transpose", "h200_sxm", {}) for name in (other, same)]
        assert [each and each.limit for each in tolerances] == [tolerances[0] and tolerances[0].limit] * 2


def test_rates_follow_from_sums_and_time(predicted: Mapping[str, float]) -> None:
    result = simulate(COPY.params(TOY).launch(TOY), TOY, clock=1000.0)
    name = "dram__bytes_read.sum.per_second"
    told = predictions(result, [name], gpu=TOY)
    assert told[name] * told[DURATION] * 1e-9 == pytest.approx(told["dram__bytes_read.sum"])
    assert told["dram__bytes.sum"] == told["dram__bytes_read.sum"] + told["dram__bytes_write.sum"]


# ---------------------------------------------------------------------------------------------- tolerances


@given(measured=st.floats(1.0, 1e12), share=st.floats(-0.9, 10.0))
def test_a_difference_is_what_the_measured_must_change_by(measured: float, share: float) -> None:
    item = Comparison(metric="a__b.sum", measured=measured, predicted=measured * (1.0 + share), tolerance=None)
    assert item.difference == pytest.approx(100.0 * share, abs=1e-9)
    assert item.passes is None


def test_nothing_measured_is_held_against_the_floor_or_fails() -> None:
    tolerance = Tolerance(limit=10.0)
    told = {"metric": "dram__bytes_write.sum", "measured": 0.0, "predicted": 5.0, "tolerance": tolerance}
    assert Comparison(**told, floor=100.0).passes is True
    assert Comparison(**told).difference == math.inf and Comparison(**told).passes is False
    assert Comparison(**{**told, "predicted": 0.0}).passes is True


def test_a_difference_of_the_floor_says_so() -> None:
    told = {"metric": "dram__bytes_write.sum", "predicted": 5.0, "tolerance": Tolerance(limit=10.0), "floor": 100.0}
    assert difference_text(Comparison(**told, measured=1.0)) == "+4.00 % of floor"
    assert difference_text(Comparison(**told, measured=100.0)) == "-95.00 %"
    assert not Comparison(**told, measured=5.0).is_of_floor


def test_kernels_of_one_call_are_held_against_their_models_one_by_one(tmp_path: Path) -> None:
    gpu = load_gpu("h200_sxm")
    options = {"m": 256, "n": 256, "k": 2048, "split_k": 4, "split_k_mode": "second_kernel"}
    model = Model(kernel="gemm", options=options, regex="gemm")
    whole = model.params(gpu).launch(gpu)
    for idx, launch in enumerate((replace(whole, following=()), *whole.following)):
        told = predictions(simulate(launch, gpu, clock=1755.0), (), gpu=gpu)  # flushed, as by a profiler
        names = (CYCLES, DURATION, "dram__bytes_read.sum", "launch__grid_size", "launch__block_size")
        path = profile(tmp_path / "p.csv", {name: told[name] for name in names}, kernel="my_gemm", cc="9.0")
        (item,) = check_profile(path, gpu=gpu, models=[model]).launches
        assert item.kernel_idx == idx and item.passes
        assert all(part.difference == pytest.approx(0.0, abs=0.02) for part in item.comparisons)
        assert any(f"held against number {idx + 1} alone" in said for said in item.remarks)


def test_what_is_asked_for_wins_and_a_metric_wins_over_its_class() -> None:
    asked = {"bytes": 4.0, "dram__bytes_read.sum": 2.0}
    found = [tolerance_of(f"dram__bytes_{way}.sum", "gemm", "toy", asked) for way in ("read", "write")]
    assert [item.limit for item in found if item] == [2.0, 4.0]
    assert all(item and "asked for" in item.source for item in found)


def test_cycles_have_the_p90_of_their_family_where_it_is_known_and_15_percent_elsewhere() -> None:
    of = {(gpu, model): tolerance_of(CYCLES, model, gpu, {}) for gpu in ("h200_sxm", "toy") for model in KERNEL_MODELS}
    assert all(item is not None and item.limit == 15.0 for (gpu, _), item in of.items() if gpu == "toy")
    known = of["h200_sxm", "transpose"]
    assert known is not None and "P90 of transpose" in known.source
    for model in KERNEL_MODELS:
        time, cycles = tolerance_of(DURATION, model, "h200_sxm", {}), of["h200_sxm", model]
        assert time is not None and cycles is not None and time.limit == cycles.limit


def test_every_p90_is_of_a_known_model_and_metric() -> None:
    import tomllib

    from gpusim.evidence.cases.case import kernels_dir, load_case

    names = ("hopper_gemm", "hgemm", "sgemm", "library_gemm", "tile_gemm", "library_knobs", "hopper_knobs")
    products = [load_case(name) for name in names]
    families_of_products = {
        family for case in products for group in case.groups for config in case.configs(group, 1)
        for family in case.families(group, config)
    }  # fmt: skip
    document = tomllib.loads((kernels_dir().parent / "validation" / "held_out.toml").read_text(encoding="utf-8"))
    others = (
        "elementwise_shapes", "gather_block", "transpose_rowwise", "framework_rows", "grid_reduction", "framework_ops",
        "device_descriptors",
    )  # fmt: skip
    for gpu, families in document.items():
        load_gpu(gpu)
        assert families.pop("source")
        of_others = {family for family in families if family.split(" ")[0] in others}
        assert {family.split(" ")[0] for family in of_others} == set(others)
        known = set(KERNEL_MODELS) | families_of_products | {case.name for case in products}
        assert set(families) - of_others <= known
        for found in families.values():
            rows = found.pop("rows", {})
            assert all(isinstance(told, list) and told for told in rows.values())
            found.pop(ESTIMATED_CYCLES, None)  # of predictions, no tolerance
            assert set(found) <= HELD_OUT_NAMES
            assert all(class_of(name) is not None and limit >= 0.0 for name, limit in found.items())


def test_no_tolerance_is_so_wide_that_nothing_fails() -> None:
    for gpu in ("h200_sxm", "toy"):
        for model in KERNEL_MODELS:
            for metric in HELD_OUT_NAMES:
                found = tolerance_of(metric, model, gpu, {})
                assert found is not None and (found.limit <= 25.0 or math.isinf(found.limit))


@pytest.mark.parametrize("text", ["cycles", "cycles=", "cycles=-1", "cycles=ten", "cycels=10%", "=3", "cycles=nan"])
def test_a_tolerance_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--tolerance"):
        parse_tolerance(text)


NAMES = st.sampled_from([item.name for item in CLASSES])


@given(name=NAMES, limit=st.integers(0, 1000), unit=st.sampled_from(["", "%", " %"]))
def test_a_tolerance_is_read_as_it_is_written(name: str, limit: int, unit: str) -> None:
    assert parse_tolerance(f"{name}={limit}{unit}") == (name, float(limit))


# ---------------------------------------------------------------------------------------------- models


def test_a_whole_name_wins_over_an_expression_and_two_expressions_are_refused() -> None:
    exact, one, other = (replace(COPY, match="copy"), replace(COPY, regex="^co"), replace(COPY, regex="py$"))
    assert model_for(launch_of("copy"), [one, exact]) is exact
    assert model_for(launch_of("cop"), [exact, one, other]) is one
    assert model_for(launch_of("scale"), [exact, one, other]) is None
    with pytest.raises(ConfigError, match="two models"):
        model_for(launch_of("copy"), [one, other])


def test_a_profile_of_several_kernels_wants_a_name() -> None:
    with pytest.raises(ConfigError, match=r"3 kernels .*--match"):
        check_profile(DATA / "transposes_raw.csv", gpu=load_gpu("h200_sxm"), models=[COPY])


MODELS = """
[[model]]
match = "transpose_padded"
kernel = "transpose"
options = { m = 8192, n = 8192 }
tolerance = { cycles = "10%", hit_rate = 2 }

[[model]]
regex = "^copy_"
kernel = "elementwise"
options = { op = "copy", elements = 67108864 }
"""


def test_a_file_of_models_judges_each_kernel_by_its_own(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(MODELS, encoding="utf-8")
    report = check_profile(DATA / "transposes_raw.csv", gpu=load_gpu("h200_sxm"), models=read_models(path))
    assert [(item.launch.kernel, item.model.kernel) for item in report.launches] == [
        ("transpose_padded", "transpose"), ("copy_b16_i1", "elementwise"),
    ]  # fmt: skip
    assert "1 launch without a model, not judged: transpose_none" in report.remarks
    cycles = [part.tolerance for part in report.launches[0].comparisons if part.metric == CYCLES]
    assert cycles == [Tolerance(limit=10.0, source="asked for, cycles")]
    assert not any("nothing is held against that model" in said for said in report.remarks)


def test_a_model_of_a_file_that_stands_for_no_launch_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(MODELS.replace("^copy_", "^copies_"), encoding="utf-8")
    report = check_profile(DATA / "transposes_raw.csv", gpu=load_gpu("h200_sxm"), models=read_models(path))
    assert len(report.launches) == 1
    assert report.verdict.startswith("PASS: ") and report.verdict.endswith("; no launch of ^copies_")
    assert "no launch is of ^copies_: nothing is held against that model, elementwise" in report.remarks
    assert b'skipped="1"' in junit_bytes(report)
    path.write_text(MODELS.replace("_padded", "_paded"), encoding="utf-8")
    report = check_profile(DATA / "transposes_raw.csv", gpu=load_gpu("h200_sxm"), models=read_models(path))
    assert any(said.endswith("that model, transpose; did you mean 'transpose_padded'?") for said in report.remarks)
    path.write_text(MODELS.replace("^copy_", "^copies_").replace('"elementwise"', '"elementwize"'), encoding="utf-8")
    with pytest.raises(ConfigError, match="did you mean 'elementwise'"):
        check_profile(DATA / "transposes_raw.csv", gpu=load_gpu("h200_sxm"), models=read_models(path))


def test_where_everything_has_to_be_compared_what_has_no_counterpart_is_not_comparable(tmp_path: Path) -> None:
    path, h200 = tmp_path / "models.toml", load_gpu("h200_sxm")
    path.write_text(MODELS, encoding="utf-8")
    strictly = check_profile(DATA / "transposes_raw.csv", gpu=h200, models=read_models(path), limits=Limits(is_strict=True))
    assert strictly.status == 3 and strictly.not_compared == ("no model stands for transpose_none",)
    path.write_text(MODELS.replace("_padded", "_(padded|none)").replace("match", "regex"), encoding="utf-8")
    whole = check_profile(DATA / "transposes_raw.csv", gpu=h200, models=read_models(path), limits=Limits(is_strict=True))
    assert not whole.not_compared and whole.status != 3
    path.write_text(MODELS.replace("^copy_", "^copies_"), encoding="utf-8")
    strictly = check_profile(DATA / "transposes_raw.csv", gpu=h200, models=read_models(path), limits=Limits(is_strict=True))
    assert strictly.not_compared == ("no launch of ^copies_", "no model stands for transpose_none, copy_b16_i1")
    assert b"<error" in junit_bytes(strictly)


def test_a_launch_without_cycles_and_time_passes_unless_everything_has_to_be_compared(tmp_path: Path) -> None:
    text = (DATA / "copy_raw.csv").read_text(encoding="utf-8")
    path = tmp_path / "bytes.csv"
    path.write_text(text.replace("sm__cycles_elapsed", "sm__cycles_el").replace("gpu__time_duration", "gpu__time"))
    model = replace(COPY, options={"op": "copy", "elements": 2**26})
    loose, strictly = (
        check_profile(path, gpu=load_gpu("h200_sxm"), models=[model], limits=Limits(is_strict=is_strict))
        for is_strict in (False, True)
    )
    assert loose.status == 0 and loose.verdict.endswith("neither cycles nor time are compared")
    assert strictly.status == 3 and strictly.not_compared == ("neither cycles nor time are judged of launch 0",)


def test_a_profile_that_does_not_name_its_gpu_is_taken_on_trust_and_that_is_said(tmp_path: Path) -> None:
    text = (DATA / "copy_raw.csv").read_text(encoding="utf-8")
    path = tmp_path / "unnamed.csv"
    for changed, kin in (
        (text.replace("display_name", "x"), "h100_sxm has"),
        (text.replace("display_name", "x").replace("multiprocessor_count", "y"), "h100_sxm, h100_pcie have"),
    ):
        path.write_text(changed, encoding="utf-8")
        report = check_profile(path, gpu=load_gpu("h200_sxm"), models=[COPY])
        assert any(f"does not name its GPU, and {kin} the same compute capability" in said for said in report.remarks)
    named = check_profile(DATA / "copy_raw.csv", gpu=load_gpu("h200_sxm"), models=[COPY])
    assert not any("on trust" in said for said in named.remarks)


def test_a_tolerance_of_a_metric_that_is_summed_up_otherwise_is_told_which_one_is_there() -> None:
    asked = {"sm__cycles_elapsed.min": 10.0}
    report = check_profile(DATA / "copy_raw.csv", gpu=load_gpu("h200_sxm"), models=[COPY], limits=Limits(tolerances=asked))
    assert any(said.endswith("did you mean 'sm__cycles_elapsed.max'?") for said in report.remarks)


def test_a_warp_asks_for_a_number_of_its_threads_along_each_side_of_the_block() -> None:
    sides = [(), (256, 1, 1), (32, 8, 1), (8, 8, 4), (1, 1, 1)]
    assert [thread_numbers(replace(launch_of(), block=block)) for block in sides] == [1, 1, 2, 3, 1]


@pytest.mark.parametrize(("kernel", "smem"), [("transpose_padded", "padded"), ("transpose_none", "none")])
def test_wavefronts_of_the_examples_transposes_pass(kernel: str, smem: str) -> None:
    model = Model(kernel="transpose", options={"m": 8192, "n": 8192, "smem": smem}, regex=f"^{kernel}$")
    report = check_profile(DATA / "transposes_raw.csv", gpu=load_gpu("h200_sxm"), models=[model])
    (counted,) = [part for part in report.launches[0].comparisons if part.metric == SHARED]
    assert counted.passes
    if smem == "none":  # nothing is in shared memory: two numbers a warp, and that is all
        assert counted.measured == counted.predicted == 2 * 8192 * 8192 / 4 / 32


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = ", "not valid TOML"), ("", "wants tables"), ("model = 3", "wants tables"),
        ('gpu = "x"\n[[model]]', "wants tables"),
        ("[[model]]", "lacks kernel"), ('[[model]]\nkernel = "gemm"', "either match"),
        ('[[model]]\nkernel = "gemm"\nmatch = "a"\nregex = "b"', "either match"),
        ('[[model]]\nkernel = "gemm"\nregex = "("', "no regular expression"),
        ('[[model]]\nkernel = "gemm"\nmatch = "a"\nl2 = "wram"', "did you mean 'warm'?"),
        ('[[model]]\nkernel = "gemm"\nmatch = "a"\noption = 3', "did you mean 'options'?"),
        ('[[model]]\nkernel = "gemm"\nmatch = "a"\noptions = 3', "wants a table"),
        ('[[model]]\nkernel = "gemm"\nmatch = "a"\ntolerance = {cycels = 3}', "cycels"),
    ],
)  # fmt: skip
def test_a_file_that_has_no_models_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "models.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_models(path)
    assert says in str(error.value) and "models.toml" in str(error.value)


def test_options_that_a_model_refuses_are_refused() -> None:
    with pytest.raises(KernelError, match="elements"):
        replace(COPY, options={"elements": 0}).params(TOY)
    with pytest.raises(GpusimError):
        replace(COPY, options={"elments": 65536}).params(TOY)
    with pytest.raises(ConfigError, match="did you mean 'gather'"):
        replace(COPY, kernel="gathr").params(TOY)
    with pytest.raises(ConfigError, match="--elements is true, wants a value: it is no flag"):
        replace(COPY, options={"op": "copy", "elements": True}).params(TOY)
    with pytest.raises(ConfigError, match="--persistent is 1, wants true or false"):
        Model(kernel="gemm", options={"m": 128, "n": 128, "k": 128, "persistent": 1}).params(load_gpu("h200_sxm"))
    gemm = {"m": 128, "n": 128, "k": 128, "persistent": True}  # is a flag
    assert Model(kernel="gemm", options=gemm).params(load_gpu("h200_sxm"))


# ---------------------------------------------------------------------------------------------- last time


@given(before=st.floats(1.0, 1e9), limit=st.floats(0.0, 50.0), share=st.floats(0.0, 2.0))
def test_a_change_is_worse_beyond_its_limit_in_the_direction_that_costs(before: float, limit: float, share: float) -> None:
    tolerance = Tolerance(limit=limit)
    now = before * (1.0 + share * limit / 100.0)
    is_beyond = share * limit > limit + 1e-6
    is_near = abs(share * limit - limit) <= 1e-6
    if not is_near:
        assert Change(metric="a__b.sum", before=before, now=now, tolerance=tolerance).is_worse == is_beyond
    assert not Change(metric="a__b.sum", before=now, now=before, tolerance=tolerance).is_worse


def test_a_hit_rate_is_worse_when_it_falls() -> None:
    low, high = (launch_of(**{"lts__t_sector_hit_rate.pct": rate}) for rate in (50.0, 60.0))
    assert [item.is_worse for item in changes(high, low, {})] == [True]
    assert [item.is_worse for item in changes(low, high, {})] == [False]


@pytest.fixture(scope="module")
def lost_padding() -> Report:
    model = Model(kernel="transpose", options={"m": 8192, "n": 8192, "smem": "naive"}, was={"smem": "padded"})
    return check_profile(
        DATA / "naive_raw.csv", gpu=load_gpu("h200_sxm"), models=[model], baseline=DATA / "padded_raw.csv"
    )


def test_lost_padding_is_found_and_explained_by_bank_conflicts(lost_padding: Report) -> None:
    (item,) = lost_padding.launches
    assert lost_padding.status == FAIL
    assert {part.metric for part in item.changes if part.is_worse} == {CYCLES, "sm__cycles_elapsed.avg", DURATION, SHARED}
    told = "\n".join(item.causes)
    assert "wavefronts of shared memory grew 13x" in told and "bank conflicts" in told
    assert "smem padded to naive" in told and "by smem now" in told
    assert "'no bank conflicts' would save most" in told


def test_the_same_profile_is_no_worse() -> None:
    model = Model(kernel="transpose", options={"m": 8192, "n": 8192})
    path = DATA / "padded_raw.csv"
    (item,) = check_profile(path, gpu=load_gpu("h200_sxm"), models=[model], baseline=path).launches
    assert item.changes and not any(part.is_worse or part.difference for part in item.changes)
    assert item.causes == ()


def test_a_launch_that_last_time_lacked_is_told_of(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    now = profile(tmp_path / "now.csv", predicted, cc="", launches=2)
    then = profile(tmp_path / "then.csv", predicted, cc="")
    report = check_profile(now, gpu=TOY, models=[COPY], baseline=then)
    assert report.launches[0].changes and not report.launches[1].changes
    assert any("then.csv has fewer launches of copy" in said for said in report.launches[1].remarks)
    assert report.status == NOT_COMPARABLE and report.not_compared == ("then.csv has fewer launches of copy",)


def test_a_limit_of_getting_worse_that_meets_nothing_is_no_pass(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    now = profile(tmp_path / "now.csv", predicted, cc="")
    for name in ("sm__cycles_elapsed", "launch", "wavefronts"):
        told = check_profile(now, gpu=TOY, models=[COPY], baseline=now, limits=Limits(worse={name: 1.0}))
        assert told.status == (PASS if name == "wavefronts" else NOT_COMPARABLE), name
    assert told.not_worse == ()
    then = profile(tmp_path / "then.csv", {name: value for name, value in predicted.items() if name != CYCLES}, cc="")
    report = check_profile(now, gpu=TOY, models=[COPY], baseline=then, limits=Limits(worse={"cycles": 1.0}))
    assert report.not_compared == ("nothing to hold --worse cycles against in then.csv and now",)


def test_a_launch_that_only_last_time_had_is_no_pass(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    now = profile(tmp_path / "now.csv", predicted, cc="")
    then = profile(tmp_path / "then.csv", predicted, cc="", launches=3)
    report = check_profile(now, gpu=TOY, models=[COPY], baseline=then)
    assert report.gone == ("copy", "copy") and report.status == NOT_COMPARABLE
    assert "then.csv has 2 launches of copy more than this profile, not compared" in report.remarks
    assert report.verdict == "NOT COMPARABLE: then.csv has more launches of copy; the rest is within tolerance"
    limits = Limits(tolerances={"dram__sectors_read.sum": 1.0})
    both = check_profile(now, gpu=TOY, models=[COPY], baseline=then, limits=limits)
    assert both.not_compared == ("the profile lacks dram__sectors_read.sum", "then.csv has more launches of copy")
    assert b'errors="2"' in junit_bytes(both) and check_document(both)["not_compared"] == list(both.not_compared)
    other = profile(tmp_path / "other.csv", predicted, kernel="else", cc="")
    assert check_profile(now, gpu=TOY, models=[COPY], baseline=other).gone == (), "a model without a name is of what is here"


def test_who_lacks_what_was_asked_for_is_told(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    unknown, absent = "smsp__inst_executed.sum", "dram__sectors_read.sum"
    now = profile(tmp_path / "now.csv", {**predicted, unknown: 5.0}, cc="")
    report = check_profile(now, gpu=TOY, models=[COPY], limits=Limits(tolerances={unknown: 1.0, absent: 1.0}))
    assert f"{unknown}: counted, and nothing to compare it with; the profile lacks {absent};" in report.verdict


def test_a_baseline_of_another_architecture_is_not_comparable(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    now, then = (profile(tmp_path / f"{cc}.csv", predicted, cc=cc) for cc in ("", "1.3"))
    with pytest.raises(NotComparableError, match=r"1\.3\.csv"):
        check_profile(now, gpu=TOY, models=[COPY], baseline=then)


def test_a_lower_clock_and_nothing_at_all_are_explanations(tmp_path: Path, predicted: Mapping[str, float]) -> None:
    gpu = load_gpu("h200_sxm")
    path = profile(tmp_path / "p.csv", {CYCLES: 1.5e6, DURATION: 1e6}, cc="")
    (item,) = check_profile(path, gpu=gpu, models=[COPY]).launches
    then = launch_of(**{CYCLES: 1.5e6, DURATION: 0.8e6})
    said = explain_changes(changes(then, item.launch, {}), item, then, gpu)
    assert len(said) == 1 and "clock fell from 1,875 to 1,500 MHz" in said[0]
    then = launch_of(**{CYCLES: 1.2e6, DURATION: 0.8e6})
    said = explain_changes(changes(then, item.launch, {}), item, then, gpu)
    assert len(said) == 1 and "waiting" in said[0]


# ---------------------------------------------------------------------------------------------- documents


def test_junit_has_a_case_a_judged_metric_and_a_failure_a_miss(lost_padding: Report) -> None:
    (item,) = lost_padding.launches
    (suite,) = JUnitXml.fromstring(junit_bytes(lost_padding))
    cases = list(suite)
    judged = [part for part in item.comparisons if part.passes is not None]
    assert len(cases) == len(judged) + sum(part.tolerance is not None for part in item.changes)
    missed = sum(not part.passes for part in judged) + sum(part.is_worse for part in item.changes)
    assert sum(bool(case.result) for case in cases) == missed > 0


def test_the_document_says_what_the_report_says(lost_padding: Report) -> None:
    document = check_document(lost_padding)
    (launch,) = document["launches"]
    assert document["status"] == FAIL and document["baseline"].endswith("padded_raw.csv")
    assert launch["passes"] is False and launch["causes"] == list(lost_padding.launches[0].causes)
    wanted = {"measured", "predicted", "difference", "tolerance", "tolerance_from"}
    assert all(wanted <= set(row) for row in launch["metrics"])
