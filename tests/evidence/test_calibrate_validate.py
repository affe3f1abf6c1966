"""Half of the rows calibrates, the other half judges; what is printed can be taken over; tiers pass or fail as they say."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from rich.console import Console

from gpusim.cli import main
from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import Case, Config, Fitted, Group, KernelLaunch, Limit, case_names, load_case
from gpusim.evidence.cases.rows import Table, number_in
from gpusim.evidence.validate.calibrate import calibrate, halves, parameter, toml_lines
from gpusim.evidence.validate.judge import TIERS, Judgement, judge, not_judged, quantile, summaries, totals
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.report.validation import render_summaries

TOY = load_gpu("toy")
SIZES = tuple(range(1, 11))


def chase(predicted: float = 300.0, tier: int = 2, parameters: Sequence[str] = ("l1.hit_latency_cycles",)) -> Case:
    """A chase that says the same of every size."""

    def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
        cycles = [float(row["cycles"]) for row in rows]
        return [Fitted(parameter=name, value=median(cycles), how="median") for name in parameters] if cycles else []

    def answer(config: Config, gpu: GpuSpec) -> dict[str, float]:
        del config, gpu
        return {"cycles": predicted, "nobody_asked": 1.0}

    def configs(seed: int) -> list[Config]:
        return [{"kernel": "chase", "size": str(size * seed)} for size in SIZES]

    return Case(
        name="chase", question="How long?", columns=("size",), groups={"all": Group(configs=configs)},
        launch=lambda config, is_counted: KernelLaunch(kernel="chase", arguments=(), block=(32, 1, 1)),
        check=lambda config, outputs: {}, values={"cycles": "SM cycles"}, predict=answer, tiers={"cycles": tier}, fit=fit,
    )  # fmt: skip


def measured(folder: Path, cycles: Sequence[float], seed: int = 1) -> Path:
    rows = [
        {"seed": str(seed), "group": "all", "kernel": "chase", "size": str(size * seed), "cycles": str(number)}
        for size, number in zip(SIZES, cycles, strict=True)
    ]
    Table.read(folder / "chase.csv").append({"date": "2026-01-31T10:00:00Z", "gpu": "toy"}, rows)
    return folder


ALTERNATING = [290.0, 310.0] * 5
"""What calibrates says 290, what judges 310."""


def test_every_second_config_calibrates_and_the_others_judge(tmp_path: Path) -> None:
    table = Table.read(measured(tmp_path, ALTERNATING) / "chase.csv")
    fitting, judging = halves(chase(), table)
    assert {row["cycles"] for row in fitting} == {"290.0"}
    assert {row["cycles"] for row in judging} == {"310.0"}
    assert len(fitting) == len(judging) == 5


def test_the_order_is_the_cases_and_not_the_tables(tmp_path: Path) -> None:
    table = Table.read(measured(tmp_path, ALTERNATING) / "chase.csv")
    table.rows.reverse()
    assert {row["cycles"] for row in halves(chase(), table)[0]} == {"290.0"}


def test_a_config_that_is_asked_no_longer_does_not_calibrate(tmp_path: Path) -> None:
    table = Table.read(measured(tmp_path, ALTERNATING) / "chase.csv")
    for row in table.rows:
        row["size"] = "1000"
    assert halves(chase(), table)[0] == []


def test_without_anything_to_calibrate_all_rows_judge(tmp_path: Path) -> None:
    case = load_case("shared_access")
    assert not case.calibrates
    table = Table.read(measured(tmp_path, ALTERNATING) / "chase.csv")
    assert halves(case, table) == ([], table.rows)


def test_parameters_stand_beside_what_was_before_and_what_the_judges_say(tmp_path: Path) -> None:
    (line,) = calibrate([chase()], measured(tmp_path, ALTERNATING), TOY)
    assert (line.parameter, line.after, line.judged) == ("l1.hit_latency_cycles", 290.0, 310.0)
    assert line.before == parameter(TOY, "l1.hit_latency_cycles")
    assert line.judged_pct == pytest.approx(100 * (290 / 310 - 1))
    assert line.source == "measured: kernels/chase, toy, 2026-01-31: median"


def test_printed_lines_are_toml_with_a_source_for_every_number(tmp_path: Path) -> None:
    names = ("l1.hit_latency_cycles", "hbm.latency_ns", "device.peak_tflops.16bit")
    text = toml_lines(calibrate([chase(parameters=names)], measured(tmp_path, ALTERNATING), TOY))
    document = tomllib.loads(text)
    assert document["component"]["l1"]["hit_latency_cycles"] == 290.0
    assert document["device"]["peak_tflops"]["16bit"] == 290.0
    for section in (*document["component"].values(), document["device"]):
        assert set(section) - {"source"} == set(section["source"])


def test_printed_lines_override_what_a_description_inherits(tmp_path: Path) -> None:
    names = ("l1.hit_latency_cycles", "hbm.latency_ns", "device.peak_tflops.16bit")
    lines = toml_lines(calibrate([chase(parameters=names)], measured(tmp_path, ALTERNATING), TOY), TOY)
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\ntitle = "Mine"\nextends = "toy"\n\n{lines}\n', encoding="utf-8")
    gpu = load_gpu(path)
    assert (gpu.l1.hit_latency_cycles, gpu.hbm.latency_ns) == (290.0, 290.0)
    assert gpu.device.peak_tflops == {**TOY.device.peak_tflops, "16bit": 290.0}
    assert gpu.l1 == replace(TOY.l1, hit_latency_cycles=290.0)
    assert gpu.source_of("l1.hit_latency_cycles") == "measured: kernels/chase, toy, 2026-01-31: median"
    assert gpu.source_of("l1.unified_bytes").startswith("inferred: toy (toy: ")


@pytest.mark.parametrize("name", ["l1.hit_latency", "l3.size", "device.peak_tflops.17bit", "device.peak_tflops"])
def test_what_the_gpu_does_not_have_cannot_be_fitted(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        calibrate([chase(parameters=(name,))], measured(tmp_path, ALTERNATING), TOY)


def test_two_kernels_may_not_fit_the_same(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="let one of them do it"):
        calibrate([chase(parameters=("hbm.latency_ns",) * 2)], measured(tmp_path, ALTERNATING), TOY)


def test_only_judging_rows_and_named_numbers_are_judged(tmp_path: Path) -> None:
    found = judge([chase()], measured(tmp_path, ALTERNATING), TOY, tiers=[2])
    assert [item.measured for item in found] == [310.0] * 5
    assert {item.name for item in found} == {"cycles"}
    assert judge([chase()], tmp_path, TOY, tiers=[3, 4]) == []


@pytest.mark.parametrize(
    ("tier", "predicted", "passes"),
    [(2, 105.0, True), (2, 105.1, False), (3, 100.0, True), (3, 100.001, False), (4, 97.0, True), (4, 96.9, False),
     (7, 107.0, True), (7, 92.9, False)],
)  # fmt: skip
def test_a_tier_passes_up_to_its_limit(tier: int, predicted: float, passes: bool, tmp_path: Path) -> None:
    found = judge([chase(predicted, tier)], measured(tmp_path, [100.0] * 10), TOY, tiers=[tier])
    (family,) = summaries(found)
    assert family.passes == passes
    assert (family.num_rows, family.mean_pct) == (5, pytest.approx(abs(predicted - 100)))


def test_mean_p90_and_worst_have_limits_of_their_own() -> None:
    def family(errors: Sequence[float]) -> bool:
        rows = [
            Judgement(kernel="k", group="g", name="n", tier=6, config={}, predicted=100 + error, measured=100.0)
            for error in errors
        ]
        return summaries(rows)[0].passes

    assert family([6.0] * 10)
    assert not family([6.1] * 10)  # the mean
    assert family([0.0] * 9 + [25.0])
    assert not family([0.0] * 9 + [25.1])  # the worst
    assert not family([0.0] * 8 + [12.1] * 2)  # the 90th percentile
    assert family([0.0] * 8 + [-12.0] * 2)


def test_nothing_measured_and_something_predicted_is_infinitely_wrong() -> None:
    assert Judgement(kernel="k", group="g", name="n", tier=3, config={}, predicted=1, measured=0).error_pct == float("inf")
    assert Judgement(kernel="k", group="g", name="n", tier=3, config={}, predicted=0, measured=0).error_pct == 0.0


def test_the_ninetieth_percentile_is_a_row() -> None:
    assert quantile([1.0], 0.9) == 1.0
    assert quantile(map(float, range(1, 101)), 0.9) == 90.0


def test_every_case_judges_what_it_predicts_or_measures() -> None:
    for name in case_names():
        case = load_case(name)
        assert set(case.tiers) <= case.names, name
        assert set(case.tiers.values()) <= set(TIERS), name


def counts(folder: Path, off: int) -> Path:
    """Rows of shared_access as the simulator counts them, the first ``off`` of them by one more."""
    case = load_case("shared_access")
    configs = case.configs("matrix", 1)[:6]
    rows = []
    for idx, config in enumerate(configs):
        (metric, number), = case.predict(config, TOY).items()
        rows.append({"seed": "1", "group": "matrix", **config, metric: str(int(number) + (idx < off))})
    Table.read(folder / "shared_access.csv").append({"date": "2026-01-31"}, rows)
    return folder


@pytest.mark.parametrize(("off", "status"), [(0, 0), (1, 1)])
def test_validate_leaves_with_one_where_a_family_misses_its_tier(
    off: int, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts(tmp_path, off)
    assert main(["validate", "--gpu", "toy", "--measured", str(tmp_path), "--tier", "3", "--worst", "2"]) == status
    out = capsys.readouterr().out
    assert ("FAIL" in out) == bool(status)
    assert "Tier 3" in out and "shared_access" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["validate", "--gpu", "toy", "--measured", "no_such"], ["'no_such' is no folder"]),
        (["validate", "--gpu", "toy", "--tier", "1"], ["--tier '1'", "2, 3, 4"]),
        (["validate", "--gpu", "toy", "--worst", "-1"], ["--worst -1"]),
        (["calibrate", "--gpu", "toy", "--measured", "no_such"], ["'no_such' is no folder"]),
        (["calibrate"], ["--gpu"]),
    ],
)
def test_bad_input_costs_one_sentence(arguments: list[str], said: list[str], refuses: object) -> None:
    refuses(arguments, said)  # type: ignore[operator]  # the fixture's type lives in conftest


def test_a_folder_without_parameters_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--gpu", "toy", "--measured", str(tmp_path)]) == 2
    assert "holds a parameter" in capsys.readouterr().err


def test_a_kernel_that_gives_no_parameter_is_told_of_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--gpu", "h200_sxm", "--kernel", "part_sums"]) == 2
    said = capsys.readouterr().err
    assert "no rows of part_sums that give a parameter" in said and "measure --all" not in said


def test_a_whole_number_of_the_description_stays_one(tmp_path: Path) -> None:
    names = ("device.num_sms", "hbm.latency_ns")
    text = toml_lines(calibrate([chase(parameters=names)], measured(tmp_path, ALTERNATING), TOY))
    document = tomllib.loads(text)
    assert isinstance(document["device"]["num_sms"], int)
    assert isinstance(document["component"]["hbm"]["latency_ns"], float)


def spoilt(folder: Path, old: str, new: str) -> Path:
    path = measured(folder, ALTERNATING) / "chase.csv"
    path.write_text(path.read_text().replace(old, new))
    return folder


@pytest.mark.parametrize(("old", "new", "says"), [
    ("size", "extent", "a row lacks the column 'size'"),
    ("310.0\n", "abc\n", "the column 'cycles' holds 'abc', wants a number"),
    ("0,1,all,chase,10,310.0\n", "", "holds 9 rows of run 0, wants the 10"),
    ("0,1,all,chase,10,310.0\n", "0,1,all,chase,10,310.0\n" * 2, "holds 11 rows of run 0, wants the 10"),
])  # fmt: skip
def test_a_spoilt_table_is_refused_by_name(old: str, new: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"chase.csv: {says}"):
        judge([chase()], spoilt(tmp_path, old, new), TOY, tiers=[2])


def test_a_run_whose_rows_never_came_harms_nobody(tmp_path: Path) -> None:
    table = Table.read(measured(tmp_path, ALTERNATING) / "chase.csv")
    rows, again_asked = table.path.read_text(), {name: text for name, text in table.rows[0].items() if name != "run"}
    table.append({"date": "2026-02-01"}, [again_asked])
    table.path.write_text(rows)  # the JSON file goes first
    again = Table.read(table.path)
    again.append({"date": "2026-02-02"}, [again_asked])
    assert [run["num_rows"] for run in Table.read(table.path).runs] == [10, 0, 1]


def test_what_ought_to_be_judged_and_is_not_there_is_said(tmp_path: Path) -> None:
    folder = spoilt(tmp_path, "cycles", "duration")
    (folder / "chas.csv").write_text("run\n")
    assert judge([chase()], folder, TOY, tiers=[2]) == []
    assert not_judged([chase()], folder, [2]) == [
        "chas.csv: no kernel has that name, not judged", "chase.csv: has no column cycles, not judged",
    ]  # fmt: skip
    assert not_judged([chase()], folder, [2], knows_all=False) == ["chase.csv: has no column cycles, not judged"]
    assert not_judged([chase()], measured(tmp_path / "whole", ALTERNATING), [2]) == []


def test_a_case_that_fails_is_named_with_the_line(tmp_path: Path) -> None:
    def answer(config: Config, gpu: GpuSpec) -> dict[str, float]:
        del gpu
        return {"cycles": float(config["depth"])}

    case = replace(chase(), predict=answer)
    with pytest.raises(ConfigError, match=r"kernels/chase/case.py: predict fails: KeyError 'depth' at test_calibrate"):
        judge([case], measured(tmp_path, ALTERNATING), TOY, tiers=[2])


def test_a_class_that_is_fitted_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    lines = calibrate([chase(parameters=("device.peak_tflops.16bit",))], measured(tmp_path, ALTERNATING), TOY)
    kept = tomllib.loads(toml_lines(lines, TOY))["device"]["peak_tflops"]
    assert kept == {**TOY.device.peak_tflops, "16bit": 290.0}


@pytest.mark.parametrize(("arguments", "says"), [
    (["--published", "--tier", "2"], "leave --tier out"),
    (["--kernel", "kernels/occupancy"], "wants its name alone"),
    (["--kernel", "ocupancy"], "did you mean 'occupancy'?"),
])  # fmt: skip
def test_what_validate_is_asked_must_make_sense(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "--gpu", "h200_sxm", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_kernels_can_be_judged_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    arguments = ["--kernel", "occupancy", "--kernel", "wgmma_operands", "--tier", "3", "--json", str(path)]
    assert main(["validate", "--gpu", "h200_sxm", *arguments]) == 0
    assert {row["kernel"] for row in json.loads(path.read_text())["rows"]} == {"occupancy", "wgmma_operands"}
    assert "occupancy" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------- whole kernels


def off_by(kernel: str, errors: Sequence[float], tier: int = 6, **rest: object) -> list[Judgement]:
    return [
        Judgement(
            kernel=kernel, group="g", name="cycles", tier=tier, config={}, predicted=100 + error, measured=100.0,
            is_validation=True, **rest,  # type: ignore[arg-type]  # fields of the record
        )
        for error in errors
    ]  # fmt: skip


def test_whole_kernels_in_all_are_the_mean_of_their_families_and_the_worst_of_their_rows() -> None:
    few, many = off_by("copy", [10.0, 2.0], roofline=150.0), off_by("softmax", [-1.0] * 18, roofline=110.0)
    other = replace(off_by("chase", [90.0])[0], is_validation=False)
    (found,) = totals([*few, *many, other])
    assert (found.num_rows, found.num_families) == (20, 2)
    assert found.mean_pct == pytest.approx((6.0 + 1.0) / 2) and found.roofline_pct == pytest.approx((50 + 10) / 2)
    assert (found.p90_pct, found.worst_pct) == (pytest.approx(1.0), pytest.approx(10.0))


def test_the_table_of_whole_kernels_says_what_a_roofline_and_a_repeat_would_be_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rate = replace(off_by("copy", [2.5])[0], tier=5, name="hit_rate", limit=Limit(mean_pct=3.0, is_points=True))
    found = [*off_by("copy", [10.0], roofline=150.0, spread_pct=0.7), *off_by("softmax", [1.0]), rate]
    render_summaries(summaries(found), Console(width=160), totals(found))
    rates, cycles = capsys.readouterr().out.split("Tier 6")
    assert "2.50" in rates and "pass, points" in rates and "hit_rate: mean 3 points" in rates and "roofline" not in rates
    lines = [line.split() for line in cycles.splitlines()]
    assert ["copy", "g", "cycles", "1", "10.00", "10.00", "10.00", "50.00", "0.70", "FAIL"] in lines
    assert ["softmax", "g", "cycles", "1", "1.00", "1.00", "1.00", "pass"] in lines
    whole = next(line for line in lines if line[:2] == ["whole", "kernels"])
    assert whole[2:] == ["2", "families", "cycles", "2", "5.50", "10.00", "10.00", "50.00", "0.70", "pass"]


def test_rows_that_a_case_does_not_ask_for_are_told_and_not_judged(tmp_path: Path) -> None:
    rows = [
        {"seed": "1", "group": group, "kernel": "chase", "size": size, "cycles": "310"}
        for group, size in (("all", "2"), ("all", "99"), ("others", "4"))
    ]
    Table.read(tmp_path / "chase.csv").append({"date": "2026-01-31"}, rows)
    assert [item.config["size"] for item in judge([chase()], tmp_path, TOY, tiers=[2])] == ["2"]
    (said,) = not_judged([chase()], tmp_path, [2])
    assert said == "chase.csv: holds 2 rows of configs that chase does not have, not judged"
    assert not_judged([chase()], tmp_path, [3]) == []


def test_a_rate_of_more_than_all_is_told_and_not_judged(tmp_path: Path) -> None:
    name = "lts__t_sector_hit_rate.pct"
    case = replace(chase(), tiers={name: 2}, predict=lambda config, gpu: {name: 90.0})
    rows = [
        {"seed": "1", "group": "all", "kernel": "chase", "size": size, name: rate}
        for size, rate in (("2", "100"), ("4", "100.5"))
    ]
    Table.read(tmp_path / "chase.csv").append({"date": "2026-01-31"}, rows)
    assert [item.measured for item in judge([case], tmp_path, TOY, tiers=[2])] == [100.0]
    assert not_judged([case], tmp_path, [2]) == [
        f"chase.csv: holds 1 values of {name} above 100 %, which is no rate, not judged"
    ]  # fmt: skip


def test_the_repeats_of_a_number_give_its_spread(tmp_path: Path) -> None:
    row = {"seed": "1", "group": "all", "kernel": "chase", "size": "2", "cycles": "300", "cycles_min": "294"}
    Table.read(tmp_path / "chase.csv").append({"date": "2026-01-31"}, [{**row, "cycles_max": "306"}])
    (found,) = judge([chase()], tmp_path, TOY, tiers=[2])
    assert found.spread_pct == pytest.approx(2.0)


def test_a_whole_kernel_calibrates_nothing() -> None:
    with pytest.raises(ConfigError, match="chase: is a whole kernel, whose rows judge"):
        replace(chase(), is_validation=True)


def test_a_column_that_was_renamed_is_asked_for_by_name(tmp_path: Path) -> None:
    folder = spoilt(tmp_path, "cycles", "duration")
    with pytest.raises(ConfigError, match=r"fit fails: KeyError 'cycles' at .*: nothing of that name is there"):
        calibrate([chase()], folder, TOY)
    with pytest.raises(ConfigError, match="a row has no column 'cycles': was it renamed"):
        number_in(Table.read(folder / "chase.csv").rows[0], "cycles")
