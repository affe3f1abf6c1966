"""``gpusim check`` as somebody types it: statuses, refusals, what is printed where, and the fixture that does the same."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from junitparser import JUnitXml

from gpusim.cli import main
from gpusim.cli.check import CheckCommand, check_command
from gpusim.kernel_models import KERNEL_MODELS

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("runs_once")

DATA = Path(__file__).parent / "evidence" / "data"
COPY, DETAILS, THREE = (str(DATA / name) for name in ("copy_raw.csv", "transpose_details.csv", "transposes_raw.csv"))
PADDED, NAIVE = (str(DATA / name) for name in ("padded_raw.csv", "naive_raw.csv"))
H200 = ["--gpu", "h200_sxm"]
OF_COPY = ["--kernel", "elementwise", "--op", "copy", "--elements", "67108864"]
OF_TRANSPOSE = ["--kernel", "transpose", "--m", "8192", "--n", "8192"]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal: lines are as long as they are."""
    monkeypatch.delenv("COLUMNS", raising=False)


# ---------------------------------------------------------------------------------------------- statuses


def test_status_0_says_what_was_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", COPY, *H200, *OF_COPY]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines() if "__" in line.split(" ")[0]}
    cycles = lines["sm__cycles_elapsed.max"]
    notes = {words[0]: words[1] for line in out.splitlines() if len(words := line.split(" ", 1)) > 1 and line[0] == "["}
    assert "pass" in cycles and "P90 of elementwise's judged rows" in notes[cycles.split()[-1]] and "Nine in ten" in out
    for metric, source in (("dram__bytes_read.sum", "default of bytes"), ("sm__cycles_active.avg", "shown only")):
        assert source in notes[lines[metric].split()[-1]]
    assert "L2 flushed" in out and "MHz" in out
    assert "Verdict: PASS: 0 of" in out


@pytest.mark.parametrize(("columns", "most"), [(100, 1), (80, 2)])
def test_a_row_of_the_table_is_one_line_at_100_columns(
    columns: int, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["check", COPY, *H200, *OF_COPY]) == 0
    _, _, table = capsys.readouterr().out.partition("metric  ")
    table, _, _ = table.partition("\n[1] ")
    rows = [line for line in table.splitlines()[1:] if line.rstrip().endswith("]")]
    assert len(rows) > 5 and len(table.splitlines()) - 1 <= most * len(rows)


def test_sums_averages_and_maxima_that_agree_share_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("sm__cycles_elapsed.max", *(f"gpu__time_duration.{how}" for how in ("avg", "max", "sum")))
    header = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", *names))
    launches = "".join(f'"{idx}","{name}","200,000","100","100","100"\n' for idx, name in enumerate(["copy", *"abcdea"]))
    path = tmp_path / "p.csv"
    path.write_text(f'{header}\n"","","cycle","us","us","us"\n{launches}', encoding="utf-8")
    words = ["check", str(path), *H200, *OF_COPY, "--match", "copy", "--tolerance", "cycles=90%", "--tolerance", "time=90%"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert sum("gpu__time_duration.avg .max .sum" in line for line in out.splitlines()) == 1
    assert "6 launches without a model, not judged: a, b, c and 2 more (--json FILE lists all)" in out
    assert main([*words, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [item["kernel"] for item in document["launches_without_a_model"]] == [*"abcdea"]
    assert len(document["launches"][0]["metrics"]) == len(names)


def test_status_3_says_which_metrics_have_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path(DETAILS).read_text(encoding="utf-8").splitlines(keepends=True)
    cut = tmp_path / "cut.csv"
    cut.write_text("".join(line for line in lines if "dram__bytes" not in line), encoding="utf-8")
    whole = [*H200, *OF_TRANSPOSE, "--smem", "padded"]
    assert main(["check", str(cut), *whole]) == 0
    assert main(["check", str(cut), *whole, "--baseline", DETAILS]) == 3
    out = capsys.readouterr().out
    assert "NOT COMPARABLE: the profile lacks dram__bytes_read.sum, dram__bytes_write.sum; the rest" in out
    assert main(["check", str(cut), *whole, "--tolerance", "dram__bytes_read.sum=5%"]) == 3
    assert "lacks dram__bytes_read.sum" in capsys.readouterr().out
    cut.write_text("".join(line for line in lines if "Elapsed Cycles" not in line), encoding="utf-8")
    assert main(["check", str(cut), *whole, "--tolerance", "cycles=10%"]) == 3
    assert "lacks cycles;" in capsys.readouterr().out


def test_status_1_names_what_is_out_of_tolerance(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", COPY, *H200, *OF_COPY, "--tolerance", "hit_rate=0.1", "--tolerance", "registers=0%"]) == 1
    out = capsys.readouterr().out
    failed = [line.split()[0] for line in out.splitlines() if "FAIL" in line and "__" in line]
    assert failed == ["lts__t_sector_hit_rate.pct", "launch__registers_per_thread"]
    assert "Verdict: FAIL: 2 of" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([COPY, "--gpu", "a100_sxm_80gb", *OF_COPY], "compute capability 9.0"),
        ([COPY, *H200, *OF_COPY, "--match", "nvjet"], "stands for any of its launches (copy_b16_i1); --match takes"),
        ([COPY, "--gpu", "h100_sxm", *OF_COPY], "ran on NVIDIA H200, not on h100_sxm: give --gpu h200_sxm"),
    ],
)
def test_status_3_is_one_sentence(arguments: Sequence[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments]) == 3
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("gpusim: ")
    assert says in err


BAD: list[tuple[list[str], list[str]]] = [
    (["check"], ["PROFILE is missing"]),
    (["check", COPY, *OF_COPY], ["--gpu is missing"]),
    (["check", COPY, *H200], ["one of --kernel NAME", "--models FILE", "none is given"]),
    (["check", COPY, *H200, *OF_COPY, "--models", COPY], ["one of --kernel NAME", "--models and --kernel are given"]),
    (["check", COPY, *H200, "--op", "copy"], ["--op is an option of elementwise; say which", "--kernel elementwise"]),
    (["check", COPY, *H200, "--m", "3"], ["--m is an option of", "kernels; say which kernel, as --kernel gemm"]),
    (["check", COPY, *H200, "--kernel", "gem"], ["'gem' is no kernel model", "gemm"]),
    (["check", COPY, *H200, "--kernel"], ["--kernel has no value"]),
    (["check", COPY, *H200, "--nope", "3"], ["--nope is unknown"]),
    (["check", COPY, *H200, *OF_COPY, "--elments", "3"], ["--elments is unknown", "did you mean '--elements'?"]),
    (["check", COPY, *H200, "--kernel", "elementwise"], ["--elements is missing"]),
    (["check", COPY, *H200, *OF_COPY, "--op", "copi"], ["--op 'copi' is unknown", "did you mean 'copy'?"]),
    (["check", "no.csv", *H200, *OF_COPY], ["PROFILE 'no.csv' is no file"]),
    (["check", COPY, *H200, *OF_COPY, "--baseline", "no.csv"], ["--baseline 'no.csv' is no file"]),
    (["check", str(DATA / "README.md"), *H200, *OF_COPY], ["README.md", "no table of Nsight Compute"]),
    (["check", COPY, *H200, *OF_COPY, "--tolerance", "cycels=1"], ["--tolerance 'cycels'", "did you mean 'cycles'?"]),
    (["check", COPY, *H200, *OF_COPY, "--tolerance", "cycles"], ["--tolerance 'cycles' wants NAME=LIMIT"]),
    (["check", COPY, *H200, *OF_COPY, "--tolerance", "cycles=0.1"], ["wants its unit: cycles=10% or cycles=0.1%"]),
    (["check", COPY, *H200, *OF_COPY, "--tolerance", "cycles=9%,time=5%"], ["several limits", "--tolerance once for each"]),
    (["check", COPY, *H200, *OF_COPY, "--tolerance", "sm__cycles_elapsed=9%"],
     ["lacks how it is summed up", "did you mean 'sm__cycles_elapsed.max'?"]),
    (["check", COPY, *H200, *OF_COPY, "--tolerance", "smsp__nothing=9%"], ["such as smsp__nothing.sum"]),
    (["check", COPY, *H200, *OF_COPY, "--threads", "128,256"], ["--threads", "for gpusim sweep"]),
    (["check", COPY, *H200, *OF_COPY, "--worse", "cycles=1%"], ["--worse goes with --baseline"]),
    (["check", COPY, *H200, *OF_COPY, "--was", "op=add"], ["--was goes with --baseline"]),
    (["check", COPY, *H200, *OF_COPY, "--baseline", COPY, "--was", "oop=add"], ["--was 'oop' is no option"]),
    (["check", COPY, *H200, *OF_COPY, "--baseline", COPY, "--was", "op=ad"], ["'ad' is unknown", "'add'"]),
    (["check", COPY, *H200, *OF_COPY, "--l2", "wram"], ["--l2 'wram' is unknown", "did you mean 'warm'?"]),
    (["check", COPY, *H200, *OF_COPY, "--decimal", "dot"], ["--decimal 'dot' is unknown"]),
    (["check", COPY, *H200, *OF_COPY, "--clock", "9000"], ["--clock 9000: h200_sxm has 345 to 1,980 MHz"]),
    (["check", COPY, *H200, *OF_COPY, "--launch", "k.py:launch"], ["one of --kernel", "--launch and --kernel are given"]),
    (["check", COPY, *H200, "--kernel", "gemm", "--m", "1", "--problem=1x1x1"], ["--problem and --kernel are given"]),
    (["check", COPY, *H200, "--launch", "k.py:launch"], ["--launch 'k.py' is no file"]),
    (["check", COPY, *H200, "--launch", "k.py"], ["--launch 'k.py' wants FILE.py:NAME"]),
    (["check", COPY, *H200, "--problem", "64x64"], ["--problem '64x64' wants MxNxK"]),
    (["check", COPY, *H200, "--problem", "64x64x64"], ["--problem: no kernel of the profile is a library's GEMM"]),
    (["check", COPY, "--problem", "64x64x64"], ["--gpu is missing"]),
    (["check", COPY, "--baseline", COPY, "--match", "("], ["--match '(' is no regular expression"]),
    (["check", COPY, "--baseline", COPY, "--tolerance", "cycles=50%"], ["--tolerance limits errors", "use --worse"]),
    (["check", COPY, "--baseline", COPY, "--clock", "1500"], ["--clock is of predictions", "leave it out"]),
    (["check", COPY, "--baseline", COPY, "--l2", "warm"], ["--l2 goes with --kernel"]),
    (["check", COPY, *H200, *OF_COPY, "--match", "("], ["--match '(' is no regular expression"]),
    (["check", COPY, *H200, *OF_COPY, "--junit", "x.json"], ["--junit 'x.json' ends in '.json'", ".xml"]),
    (["check", COPY, *H200, *OF_COPY, "--json", "x.xml", "--junit", "x.xml"], ["is the file of --json"]),
    (["check", COPY, *H200, *OF_COPY, "--json", COPY], ["--json", "is the file of PROFILE, too"]),
    (["check", COPY, *H200, *OF_COPY, "--baseline", DETAILS, "--json", DETAILS], ["is the file of --baseline, too"]),
    (["check", THREE, *H200, *OF_COPY], ["launches of 3 kernels", "--match NAME"]),
    (["check", COPY, *H200, "--models", "no.toml"], ["--models 'no.toml' is no file"]),
    (["check", COPY, *H200, "--models", COPY, "--match", "a"], ["--match goes with --kernel"]),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(words)[-30:] for words, _ in BAD])
def test_bad_input_costs_one_sentence_and_status_2(
    arguments: list[str], said: list[str], refuses: Callable[[Sequence[str], Sequence[str]], None]
) -> None:
    refuses(arguments, said)


def test_no_kernel_has_an_option_of_the_same_name_as_one_of_check() -> None:
    import inspect

    from gpusim.pytest_plugin import check

    ours = set(inspect.signature(check_command).parameters) | {"gpu", "l2", "tolerance", "json", "junit"}
    ours |= {item.name for item in inspect.signature(check).parameters.values() if item.name != "options"}
    for row in KERNEL_MODELS.values():
        assert ours.isdisjoint(row.params.options()), row.name


def test_help_has_the_options_of_the_kernel_that_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["check", "--help"]) == 0
    assert "--baseline" in capsys.readouterr().out
    for name, row in KERNEL_MODELS.items():
        assert main(["check", "--kernel", name, "--help"]) == 0
        text = capsys.readouterr().out
        assert "--baseline" in text
        for option in row.params.options():
            flag = option.replace("_", "-")
            assert f"--{flag}" in text or f"--no-{flag}" in text
    assert CheckCommand.__doc__


# ---------------------------------------------------------------------------------------------- outputs


def test_json_on_stdout_is_alone_there_and_junit_in_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit = tmp_path / "check.xml"
    assert main(["check", DETAILS, *H200, *OF_TRANSPOSE, "--json", "-", "--junit", str(junit)]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["status"] == 0 and "Verdict: PASS" in err
    (suite,) = JUnitXml.fromfile(str(junit))
    judged = [row for row in document["launches"][0]["metrics"] if row["passes"] is not None]
    assert suite.tests == len(judged) > 5 and suite.failures == 0


EXITS = """
import sys
from gpusim import Launch, WarpRole

def program(cta):
    sys.exit(0)
    yield

launch = Launch(kernel="k", num_ctas=1, num_tiles=1, roles=(WarpRole(name="all", num_warps=1, program=program),))
"""


def test_bad_input_is_an_error_in_junit_and_json_and_no_earlier_result_stands_for_it(tmp_path: Path) -> None:
    junit, document = tmp_path / "check.xml", tmp_path / "check.json"
    written = ["--junit", str(junit), "--json", str(document)]
    assert main(["check", COPY, *H200, *OF_COPY, *written]) == 0
    assert json.loads(document.read_text())["status"] == 0
    launch = tmp_path / "exits.py"
    launch.write_text(EXITS, encoding="utf-8")
    wrong = [str(DATA / "README.md"), *H200, *OF_COPY], [COPY, *H200, *OF_COPY, "--was", "op=add"]
    for words, says in (*zip(wrong, ("README.md", "--was goes"), strict=True),
                        ([COPY, *H200, "--launch", f"{launch}:launch"], "raises SystemExit")):
        assert main(["check", *words, *written]) == 2
        (suite,) = JUnitXml.fromfile(str(junit))
        assert suite.errors == suite.tests == 1
        found = json.loads(document.read_text())
        assert found["status"] == 2 and found["verdict"].startswith("BAD INPUT: ") and says in found["verdict"]


@pytest.mark.parametrize(("raised", "status"), [(KeyboardInterrupt(), 130), (ValueError("x"), 70)])
def test_no_earlier_result_stands_for_an_end_from_outside_or_a_fault(
    raised: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("gpusim.evidence.gate.check.check_profile", ends)
    document = tmp_path / "check.json"
    document.write_text('{"status": 0}', encoding="utf-8")
    assert main(["check", COPY, *H200, *OF_COPY, "--json", str(document)]) == status
    assert json.loads(document.read_text())["status"] == status


def test_junit_without_its_library_is_refused_before_anything_is_simulated(
    monkeypatch: pytest.MonkeyPatch, refuses: Callable[[Sequence[str], Sequence[str]], None]
) -> None:
    monkeypatch.setitem(sys.modules, "junitparser", None)
    refuses(["check", COPY, *H200, *OF_COPY, "--junit", "x.xml"], ["--junit wants", "gpusim[ci]"])


def test_a_baseline_says_what_grew(capsys: pytest.CaptureFixture[str]) -> None:
    wide = [*OF_TRANSPOSE, "--smem", "naive", "--tolerance", "cycles=25%", "--tolerance", "time=25%"]
    words = ["check", NAIVE, *H200, *wide, "--tolerance", "wavefronts=25%"]
    assert main(words) == 0
    capsys.readouterr()
    assert main([*words, "--baseline", PADDED]) == 1
    out = capsys.readouterr().out
    assert "Against padded_raw.csv" in out and "grew 13x" in out and "4 worse than padded_raw.csv" in out
    lax = [part for name in ("cycles", "time", "wavefronts") for part in ("--worse", f"{name}=2000%")]
    assert main([*words, "--baseline", PADDED, *lax]) == 0


def test_numbers_and_flags_of_options_become_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", COPY, *H200, *OF_COPY, "--threads", "256", "--json", "-"]) == 0
    options = json.loads(capsys.readouterr().out)["launches"][0]["options"]
    assert options == {"op": "copy", "elements": 67108864, "threads": 256}


# ---------------------------------------------------------------------------------------------- the fixture


def run_plugin(pytester: pytest.Pytester, body: str, files: Mapping[str, str]) -> pytest.RunResult:
    for name, source in files.items():
        shutil.copy(source, pytester.path / name)
    pytester.makepyfile(body)
    return pytester.runpytest_subprocess("-p", "gpusim.pytest_plugin", "-p", "no:cacheprovider")


def test_the_fixture_passes_fails_and_refuses(pytester: pytest.Pytester) -> None:
    found = run_plugin(
        pytester,
        """
        import pytest
        from gpusim.errors import GpusimError

        OLD = dict(kernel=None, baseline="copy.csv", op=None, elements=None)
        COPY = dict(gpu="h200_sxm", kernel="elementwise", op="copy", elements=2**26)

        def test_pass(gpusim_check):
            report = gpusim_check("copy.csv", **COPY, baseline="copy.csv")
            assert report.status == 0 and report.launches[0].changes

        def test_an_older_profile_alone(gpusim_check):
            assert gpusim_check("copy.csv", baseline="copy.csv").launches[0].model is None

        def test_a_launch(gpusim_check):
            from gpusim.kernel_models.elementwise import ElementwiseParams
            made = lambda gpu: ElementwiseParams(op="copy", elements=2**26).resolved(gpu).launch(gpu)
            report = gpusim_check("copy.csv", gpu="h200_sxm", launch=made, tolerance={"registers": "0%,16"})
            assert report.launches[0].model.kernel == "launch"

        def test_out_of_tolerance(gpusim_check):
            gpusim_check("copy.csv", **COPY, tolerance={"hit_rate": 0.1})

        def test_not_comparable(gpusim_check):
            gpusim_check("copy.csv", **{**COPY, "gpu": "a100_sxm_80gb"})

        def test_bad_input(gpusim_check):
            for wrong in (
                dict(elements=0), dict(kernel=None), dict(l2="cool"), dict(elments=3), dict(worse={"x": 1}),
                dict(tolerance="cycles=10%"), dict(tolerance=0), dict(baseline="copi.csv"), dict(was={"elements": 3}),
                dict(kernel=None, models="models.toml"), dict(match="("), dict(worse={"cycles": 1}),
                dict(OLD, tolerance={"cycles": 1}), dict(OLD, clock=1500.0),
            ):
                with pytest.raises(GpusimError):
                    gpusim_check("copy.csv", **{**COPY, **wrong})

        def test_no_such_file(gpusim_check):
            gpusim_check("copi.csv", **COPY)
        """,
        {"copy.csv": COPY},
    )
    found.assert_outcomes(passed=4, failed=3)
    text = found.stdout.str()
    assert "another exception" not in text
    missing = text.partition("_ test_no_such_file _")[2].partition("= short test summary")[0]
    assert "copi.csv" in missing
    assert "gpusim/" not in missing, "frames of the plugin and below say nothing to who wrote the test"
    found.stdout.fnmatch_lines(["*lts__t_sector_hit_rate.pct*FAIL*", "*Verdict*: FAIL: 1 of*", "*compute capability 9.0*"])


def test_a_gemm_of_a_library_is_checked_by_the_options_that_its_name_tells(capsys: pytest.CaptureFixture[str]) -> None:
    told = "--m 2048 --n 2048 --k 2048 --tile 256x128x64 --stages 4 --schedule cooperative --no-persistent"
    told += " --cluster 1x2 --cluster-sync relaxed --epilogue tma_store"
    told_of = ("l2_sectors=100%", "hit_rate=10", "cycles=5%", "time=5%")  # deviations/18_library_gemms.md
    loose = [word for each in told_of for word in ("--tolerance", each)]
    words = ["check", str(DATA / "gemm_raw.csv"), *H200, "--kernel", "gemm", *told.split(), *loose, "--json", "-"]
    assert main(words) == 0
    (launch,) = json.loads(capsys.readouterr().out)["launches"]
    exact = {row["metric"]: row["difference"] for row in launch["metrics"]}
    for name in ("launch__grid_size", "launch__block_size", "l1tex__m_xbar2l1tex_read_bytes.sum"):
        assert exact[name] == 0.0
    assert launch["options"]["persistent"] is False and launch["options"]["tile"] == "256x128x64"


def test_an_option_that_a_file_gives_is_refused_with_the_files_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "models.toml"
    text = '[[model]]\nregex = "copy"\nkernel = "elementwise"\noptions = { op = "copyy", elements = 67108864 }\n'
    models.write_text(text, encoding="utf-8")
    assert main(["check", COPY, *H200, "--models", str(models)]) == 2
    assert f"{models}: [[model]] of elementwise: --op 'copyy' is unknown" in capsys.readouterr().err
