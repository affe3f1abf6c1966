"""Questions are answered once, here or elsewhere, and kept until what they come from changes; what was said first stays."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from gpusim.cli import main
from gpusim.errors import ConfigError, GpusimError
from gpusim.evidence.cases.case import Answer, Case, Config, Group, KernelLaunch, load_case
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.cases.validation_kernel import EXACT, EXACT_LIMIT, HIT_RATE, ctas_of_sm
from gpusim.evidence.validate import answers as judging
from gpusim.evidence.validate.accuracy_summary import document, exact_counts, families, held_out_families
from gpusim.evidence.validate.answers import Kept, Question, answers_to, questions_of, source_hash, sources
from gpusim.evidence.validate.blind_predictions import judge_first, read_first, with_floors
from gpusim.evidence.validate.judge import Judgement, judge, totals
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.report.accuracy import render_accuracy
from gpusim.report.plots.validate import plot_validation

TOY = load_gpu("toy")
NAMES = {"cycles": 6, HIT_RATE: 5, "single_us": 7, "sustained_us": 7, "sustained_power_w": 7}


def product(asked: list[frozenset[str]]) -> Case:
    """A whole kernel of two sizes, each a family, that answers 100 times the size, and notes what it was asked."""

    def predict(
        config: Config, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]
    ) -> dict[str, Answer]:
        del row, gpu
        asked.append(frozenset(names))
        return {name: Answer(value=100.0 * int(config["size"]), floor=0.5) for name in names}

    return Case(
        name="product", question="?", columns=("size",),
        groups={"all": Group(configs=lambda seed: [{"kernel": "p", "size": size} for size in "12"])},
        launch=lambda config, is_counted: KernelLaunch(kernel="p", arguments=(), block=(32, 1, 1)),
        check=lambda config, outputs: {}, values=dict.fromkeys(NAMES, "?"), predict_row=predict, tiers=NAMES,
        is_validation=True, families=lambda group, config: (f"product {config['size']}", "product, all"),
        problem=lambda config: "one", derived={"ctas_of_sm": ctas_of_sm},
    )  # fmt: skip


def table(folder: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    lines = [{"seed": "1", "group": "all", "kernel": "p", **row} for row in rows]
    Table.read(folder / "product.csv").append({"gpu": "toy"}, lines)
    return folder


ROW = {"size": "1", "cycles": "110", "single_us": "90", "sustained_us": "80", "sustained_power_w": ""}


def test_a_row_of_a_whole_kernel_is_a_question_for_each_simulation(tmp_path: Path) -> None:
    asked: list[frozenset[str]] = []
    case, folder = product(asked), table(tmp_path, [ROW])
    assert [item.names for item in questions_of(case, folder, TOY, [5, 6, 7])] == [
        ("cycles",), ("single_us",), ("sustained_us",),
    ]  # fmt: skip
    assert [item.names for item in questions_of(case, folder, TOY, [5])] == [("cycles",)]  # the same, for any tier
    assert judge([case], folder, TOY, [5]) == []
    assert [item.name for item in judge([case], folder, TOY, [7])] == ["single_us", "sustained_us"]
    assert asked == [frozenset(names) for names in (["cycles"], ["single_us"], ["sustained_us"])]


def test_what_was_answered_is_kept_until_the_row_the_gpu_or_the_sources_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[frozenset[str]] = []
    case = product(asked)
    questions = questions_of(case, table(tmp_path, [ROW]), TOY, [6])

    def again(gpu: GpuSpec = TOY, of: Sequence[Question] = questions) -> dict[str, Answer]:
        ((_, found),) = answers_to(of, gpu, {case.name: case}, kept=Kept.of(gpu, tmp_path / "kept"))
        return found

    assert again() == again() == {"cycles": Answer(value=100.0, floor=0.5)}
    assert len(asked) == 1
    again(of=[replace(questions[0], row={**questions[0].row, "cycles": "111"})])
    assert len(asked) == 2
    again(of=[replace(questions[0], row={**questions[0].row, "run": "7"})])  # which run measured it says nothing
    assert len(asked) == 2
    again(load_gpu("h200_sxm"))
    assert len(asked) == 3
    monkeypatch.setattr(judging, "source_hash", lambda: "another tree")
    again()
    assert len(asked) == 4


def test_a_line_that_was_cut_off_is_asked_again_and_old_files_are_forgotten(tmp_path: Path) -> None:
    asked: list[frozenset[str]] = []
    case = product(asked)
    questions = questions_of(case, table(tmp_path, [ROW]), TOY, [6])
    folder = tmp_path / "kept"
    folder.mkdir()
    for idx in range(judging.MOST_KEPT + 3):
        (folder / f"{idx}.jsonl").write_text("")
    kept = Kept.of(TOY, folder)
    list(answers_to(questions, TOY, {case.name: case}, kept=kept))
    assert len(list(folder.glob("*.jsonl"))) == judging.MOST_KEPT
    kept.path.write_text(kept.path.read_text()[:20])
    list(answers_to(questions, TOY, {case.name: case}, kept=Kept.of(TOY, folder)))
    assert len(asked) == 2


def test_without_a_folder_for_caches_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification says that it is invalid
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user without a home
    kept = Kept.of(TOY)
    kept.put(Question(case="k", path=Path("k.csv"), row={}, names=()), {})
    assert list(tmp_path.iterdir()) == []
    assert "set XDG_CACHE_HOME" in capsys.readouterr().err


def test_what_only_looks_on_is_no_source_of_answers() -> None:
    package = Path(judging.__file__).resolve().parents[2]
    assert len(source_hash()) == 64
    for name in judging.LOOK_ON:
        assert (package / name).exists(), name
    names = {path.relative_to(package.parent).as_posix() for path in sources()}
    assert {"gpusim/engine.wasm", "gpusim/simulate/run.py", "kernels/validation/gather/case.py"} <= names
    assert not names & {"gpusim/cli/validate.py", "gpusim/evidence/validate/answers.py"}


def test_processes_answer_as_this_one_does(tmp_path: Path) -> None:
    case = load_case("occupancy")
    folder = Path(judging.__file__).resolve().parents[3] / "validation" / "measured" / "h200_sxm"
    gpu = load_gpu("h200_sxm")
    questions = questions_of(case, folder, gpu, [3])[:3]
    here = {item.key: found for item, found in answers_to(questions, gpu, {case.name: case})}
    assert here == {item.key: found for item, found in answers_to(questions, gpu, num_processes=2)}
    assert len(here) == 3


# ---------------------------------------------------------------------------------------------- in all


def item(family: str, error: float, **rest: object) -> Judgement:
    fields: dict[str, object] = {
        "kernel": "product", "group": "g", "name": "sm__cycles_elapsed.max", "tier": 6, "config": {"n": family},
        "predicted": 100.0 + error, "measured": 100.0, "is_validation": True, "family": family,
    }  # fmt: skip
    return Judgement(**{**fields, **rest})  # type: ignore[arg-type]  # fields of the record


def test_families_are_parts_of_a_kernel_and_cuts_count_in_no_total() -> None:
    found = [item("a", 4.0, cuts=("all",)), item("b", -2.0, cuts=("all",)), item("b", 0.0)]
    found.append(item("", 1.0, is_validation=False))
    assert [(each.name, each.is_cut) for each in families(found)] == [("a", False), ("b", False), ("all", True)]
    assert families(found)[2].of["sm__cycles_elapsed.max"].mean_pct == pytest.approx(3.0)
    (whole,) = totals(found)
    assert (whole.num_families, whole.num_rows, whole.mean_pct) == (2, 3, pytest.approx(2.5))


def test_a_count_is_exact_or_it_is_not() -> None:
    counts = [item("a", error, name=EXACT[0], tier=5, limit=EXACT_LIMIT) for error in (0.0, 0.0, -1.0)]
    (found,) = exact_counts([*counts, item("a", 5.0)])
    assert (found.num_rows, found.num_exact, found.worst_pct) == (3, 2, 1.0)


def test_all_that_is_said_of_whole_kernels_is_printed_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        item(name, error, problem="p", config={"n": str(error)}) for name, error in (("a", 1.0), ("a", -2.0), ("b", 30.0))
    ]
    found.append(item("a", 1.0, name=EXACT[1], tier=5, limit=EXACT_LIMIT))
    first = [replace(each, predicted=90.0) for each in found[:3]]
    render_accuracy(found, Console(width=160), first)
    out = capsys.readouterr().out
    for text in ("FAIL", "Orders of configurations", "Counts that must be exact", "0 of 1 numbers", "Said first, and today"):
        assert text in out, text
    written = document(found)
    assert [each["name"] for each in written["families_of_whole_kernels"]] == ["a", "b"]
    assert written["ranks"][0]["num_rows"] == 3
    render_accuracy([item("", 1.0, is_validation=False)], Console())
    assert capsys.readouterr().out == ""


def test_the_readme_is_filled_from_a_report(tmp_path: Path) -> None:
    """Families a (errors 1 and 3 %, said first as 10 %) and sgemm (30 %, and held out): 16 % in the mean of both."""
    found = [item("a", 1.0), item("a", -3.0, config={"n": "2"}), item("sgemm", 30.0)]
    report = {"gpu": "toy", "rows": [row_of(each) for each in found], "first": [row_of(item("a", 10.0))]}
    readme = tmp_path / "README.md"
    short = "<!-- in short: written by scripts/trust.py --> old <!-- in short: end -->"
    readme.write_text(f"{short} before <!-- trust: written by scripts/trust.py --> old <!-- trust: end --> after")
    (tmp_path / "report.json").write_text(json.dumps(report))
    runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "trust.py"))["main"](
        str(tmp_path / "report.json"), str(readme), str(tmp_path)
    )
    text = readme.read_text()
    assert text.startswith("<!-- in short") and text.endswith("--> after") and "old" not in text
    assert "| GEMMs by mma.sync or FFMA | 1, 1 | 30.0 % | 30.0 % | 30.0 % |  |" in text
    assert "| other kernels | 2, 1 | 2.0 % | 3.0 % | 3.0 % |  |" in text
    assert "The mean over all 2 families is 16.0 %." in text
    assert "| a | 2 | 2.0 %, 3.0 %, 3.0 % |  |  | 10.0 % |" in text
    assert "| **sgemm** (held out) | 1 | 30.0 %, 30.0 %, 30.0 % |" in text
    assert "| **mean of 2 families** | 3 | 16.0 %, 30.0 %, 30.0 % |" in text


def row_of(each: Judgement) -> dict[str, object]:
    return {**asdict(each), "error_pct": each.error_pct}


def test_ctas_of_an_sm_are_the_least_of_its_limits() -> None:
    limits = {"launch__occupancy_limit_registers": "2", "launch__occupancy_limit_shared_mem": "3"}
    assert ctas_of_sm(limits) == 2.0
    assert ctas_of_sm({**limits, "launch__occupancy_limit_registers": ""}) == 3.0
    assert ctas_of_sm({}) is None


# ---------------------------------------------------------------------------------------------- first


def test_what_was_said_first_is_held_against_rows_that_came_later(tmp_path: Path) -> None:
    """One row was measured, 110 cycles and 90 us with 3 of an empty kernel, which takes the toy none; another was not."""
    (tmp_path / "first").mkdir()
    path = tmp_path / "first" / "said.csv"
    numbers = [(size, *said) for size in "12" for said in (("cycles", 6, 99), ("single_us", 7, 45))]
    lines = [f"product,all,kernel=p size={size},{name},{tier},{said}" for size, name, tier, said in numbers]
    path.write_text("\n".join(["kernel,group,config,name,tier,predicted", *lines]) + "\n")
    folder = table(tmp_path, [{**ROW, "empty_single_us": "3"}])
    case = product([])
    today = [replace(each, floor=220.0) for each in judge([case], folder, TOY, [6])] + judge([case], folder, TOY, [7])
    cycles, time = with_floors(judge_first(read_first(path.parent), [case], folder, TOY), today)
    assert (cycles.measured, cycles.predicted, cycles.error_pct) == (110.0, 99.0, pytest.approx(-5.0))  # of today's floor
    assert (time.measured, time.predicted) == (90.0, 48.0)
    path.write_text("kernel,group\n")
    with pytest.raises(ConfigError, match=r"said.csv: lacks config, name, predicted, tier"):
        read_first(path.parent)


def test_the_tables_of_first_words_can_be_read_and_name_configs_that_cases_have() -> None:
    said = read_first()
    for kernel in {each.kernel for each in said}:
        case = load_case(kernel)
        asked = {
            (group, " ".join(f"{name}={value}" for name, value in config.items()))
            for group in case.groups for config in case.configs(group, 1)
        }  # fmt: skip
        assert {(each.group, each.config) for each in said if each.kernel == kernel} <= asked, kernel


def test_families_that_are_held_out_are_families() -> None:
    names = {"sgemm", "sgemm_naive", "hgemm", "hopper_gemm"}
    found = {
        (case.families(group, config) or (case.name,))[0]
        for case in map(load_case, names) for group in case.groups for config in case.configs(group, 1)
    }  # fmt: skip
    assert held_out_families() and held_out_families() <= found


# ---------------------------------------------------------------------------------------------- the picture


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_picture_has_every_family(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"all.{suffix}"
    plot_validation([item("ours", 5.0), item("theirs", -5.0)], path, gpu="toy")
    written = path.read_bytes()
    assert written.startswith(b"\x89PNG") if suffix == "png" else b"ours: 1 rows, 5.0%" in written
    with pytest.raises(GpusimError, match="no row of a validation kernel"):
        plot_validation([item("ours", 5.0, is_validation=False)], path, gpu="toy")


def test_the_picture_draws_no_row_of_a_family_that_is_held_out() -> None:
    (held_out, *_) = sorted(held_out_families())
    ours, theirs = [item("ours", 5.0), item("ours", 7.0)], [item(held_out, 44.0), item(held_out, 55.0), item(held_out, 66.0)]
    drawn, alone = plot_validation([*ours, *theirs], gpu="toy"), plot_validation(ours, gpu="toy")
    assert f"Not drawn: 3 rows of {held_out}, held out" in drawn.svg
    assert drawn.alt == f"{alone.alt} Not drawn: 3 rows of {held_out}, held out: nobody looks at single ones."
    points = [re.findall(r'<use [^>]*y="([-\d.]+)" style="fill: #0072b2', picture.svg) for picture in (drawn, alone)]
    assert len(points[0]) == len(points[1]) > 0
    with pytest.raises(GpusimError, match="but of families that are held out"):
        plot_validation(theirs, gpu="toy")


@pytest.mark.parametrize(("arguments", "says"), [
    (["--processes", "0"], "--processes 0 wants a number from 1 on"),
    (["--plot", "x.pdf"], "wants a name that ends in .png or .svg"),
    (["--published", "--first"], "leave --first out"),
    (["--kernel", "occupancy", "--first"], "leave it out"),
    (["--kernel", "softmax", "--tier", "2", "--first"], "leave it out"),
])  # fmt: skip
def test_what_validate_is_asked_must_make_sense(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is refused before anything is simulated, which may take minutes."""
    monkeypatch.setattr("gpusim.cli.validate._judge_all", None)
    assert main(["validate", "--gpu", "h200_sxm", *arguments]) == 2
    assert says in capsys.readouterr().err
