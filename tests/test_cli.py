"""The command line as somebody types it: what it prints where, what it leaves with, what it refuses and how."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from gpusim.cli import main
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.report.advice import options_in
from gpusim.simulate.idealize import IDEALS

SIZE = ["--m", "256", "--n", "256", "--k", "512"]
GEMM = ["predict", "gemm", *SIZE, "--tile", "128x64x64", "--gpu", "toy"]


def typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gpusim", *arguments], capture_output=True, text=True, check=False)


# ---------------------------------------------------------------------------------------------- what is bad


BAD: list[tuple[list[str], list[str]]] = [
    (["predikt"], ["'predikt'", "did you mean 'predict'?"]),
    (["predict"], ["predict: a kernel is missing", "gemm"]),
    (["predict", "gem"], ["'gem' is no kernel", "did you mean 'gemm'?"]),
    (["predict", "copy"], ["'copy' is no kernel", "did you mean 'elementwise'?"]),
    (["--foo"], ["--foo is unknown"]),
    (["predict", "gemm", *SIZE], ["--gpu is missing"]),
    (["predict", "gemm", "--n", "1", "--k", "1", "--gpu", "toy"], ["--m is missing", "rows of A and D"]),
    (["predict", "gemm", *SIZE, "--gpu", "h300"], ["--gpu 'h300' is unknown", "known: a100_sxm_40gb"]),
    (["predict", "gemm", *SIZE, "--gpu", "nofile.toml"], ["--gpu 'nofile.toml' is no file"]),
    ([*GEMM, "--max-events", "0"], ["--max-events"]),
    ([*GEMM, "--max-events", "10"], ["10 events have not been enough", "wants a larger max_events (--max-events)"]),
    (["measure", "pointer_chas"], ["did you mean 'pointer_chase'? (gpusim measure lists them)"]),
    (["sass", "register_probe"], ["kernels/probes/register_probe has no case.py", "probe.py"]),
    (["predict", "gemm", *SIZE, "--gpu", "a/b"], ["--gpu 'a/b' is unknown"]),
    ([*GEMM, "--stagse", "3"], ["--stagse is unknown", "did you mean '--stages'?"]),
    ([*GEMM, "--schedule", "pingpng"], ["--schedule 'pingpng' is unknown", "did you mean 'pingpong'?"]),
    ([*GEMM, "--tile", "128x256"], ["--tile", "'128x256'", "such as 128x256x64"]),
    ([*GEMM, "--tile", "axbxc"], ["--tile", "'axbxc'", "such as 128x256x64"]),
    ([*GEMM, "--tile", "0x64x64"], ["--tile", "0x64x64"]),
    ([*GEMM, "--m", "0"], ["--m is 0, wants 1 or more"]),
    ([*GEMM, "--m", "-5"], ["--m is -5, wants 1 or more"]),
    ([*GEMM, "--m", "many"], ["--m is 'many', wants a whole number"]),
    ([*GEMM, "--m", ""], ["--m is '', wants a whole number"]),
    ([*GEMM, "--alpha", "x"], ["--alpha is 'x', wants a number"]),
    ([*GEMM, "--alpha", "nan"], ["--alpha is 'nan', wants a finite number"]),
    ([*GEMM, "--copy", "tmaa"], ["--copy 'tmaa' is unknown", "did you mean 'tma'?"]),
    ([*GEMM, "--bias=3"], ["--bias takes no value"]),
    ([*GEMM, "more"], ["unexpected extra argument", "more"]),
    ([*GEMM, "--clock", "maxx"], ["--clock 'maxx'", "did you mean 'max'?"]),
    ([*GEMM, "--clock", "-3"], ["--clock '-3'", "MHz"]),
    ([*GEMM, "--clock", "nan"], ["--clock 'nan'", "MHz"]),
    ([*GEMM, "--l2", "cool"], ["--l2 'cool' is unknown", "known: cold, flushed, stored, warm"]),
    ([*GEMM, "--data", "zero"], ["--data 'zero' is unknown", "did you mean 'zeros'?"]),
    ([*GEMM, "--json"], ["--json has no value"]),
    ([*GEMM, "--json", "--plot"], ["--json '--plot' looks like an option"]),
    ([*GEMM, "--json", "no/such/x.json"], ["--json 'no/such/x.json'", "no directory"]),
    ([*GEMM, "--json", "."], ["--json '.' is a directory", "gpusim.json"]),
    ([*GEMM, "--trace", "x.json"], ["--trace 'x.json' ends in '.json'", ".pftrace"]),
    ([*GEMM, "--plot", "x.pdf"], ["--plot 'x.pdf' ends in '.pdf'", ".png or .svg"]),
    ([*GEMM, "--plot", "x"], ["--plot 'x' has no suffix", ".png or .svg"]),
    ([*GEMM, "--ring", "x.gif"], ["--ring 'x.gif' ends in '.gif'", ".png or .svg"]),
    ([*GEMM, "--ring", "x.svg", "--roofline", "x.svg"], ["--roofline 'x.svg' is the file of --ring"]),
    ([*GEMM, "--waterfall", "x.svg"], ["--waterfall"]),
    ([*GEMM, "--plot", "x.svg", "--window", "5000"], ["--window '5000' wants two numbers of cycles"]),
    ([*GEMM, "--plot", "x.svg", "--window", "a,b"], ["--window 'a,b' wants two numbers of cycles"]),
    ([*GEMM, "--plot", "x.svg", "--window", "1,2,3"], ["--window '1,2,3' wants two numbers of cycles"]),
    ([*GEMM, "--plot", "x.svg", "--window", "nan,9"], ["--window 'nan,9' wants a first cycle from 0 on"]),
    ([*GEMM, "--plot", "x.svg", "--window", "900,900"], ["--window '900,900' wants a first cycle"]),
    ([*GEMM, "--ring", "x.svg", "--window", "-9,900"], ["--window '-9,900' wants a first cycle"]),
    ([*GEMM, "--plot", "x.svg", "--window", "1e9,2e9"], ["--plot: the window begins at cycle 1,000,000,000, and nothing"]),
    ([*GEMM, "--window", "5000,9000"], ["--window is of pictures over time, and none is drawn"]),
    (["predict", "transpose", "--m", "64", "--n", "64", "--gpu", "toy", "--ring", "x.svg"],
     ["--ring: transpose copies nothing"]),
    (["explain", "transpose", "--m", "64", "--n", "64", "--gpu", "toy", "--roofline", "x.svg"],
     ["--roofline: transpose has no arithmetic"]),
    ([*GEMM, "--json", "x.png", "--plot", "x.png"], ["--plot 'x.png' is the file of --json"]),
    ([*GEMM, "--stages", "60"], ["stages"]),
    ([*GEMM, "--max-events", "some"], ["--max-events wants a whole number"]),
    ([*GEMM, "--tile", "100x33x7"], ["--tile 100x33x7", "use --tile"]),
    ([*GEMM, "--cluster", "1x1", "--raster-order", "gpc"], ["--raster-order gpc", "without clusters"]),
    ([*GEMM, "--l2-promotion", "100"], ["--l2-promotion '100' is unknown", "known: 64, 128, 256"]),
    (["measure", "elementwise", "--minutes", "soon"], ["--minutes wants a number"]),
    (["check", "README.md", "--gpu", "toy", "--kernel", "softmax", "--rows", "1", "--columns", "1"], ["README.md"]),
    (["gpus", "a", "b", "c"], ["3 names"]),
    (["gpus", "--toml"], ["--toml prints one GPU", "wants one name"]),
    (["gpus", "toy", "h200_sxm", "--toml"], ["--toml prints one GPU"]),
    (["gpus", "toy", "--toml", "--json", "-"], ["--toml prints one GPU and no JSON"]),
    (["gpus", "--explain", "hbm"], ["--explain is about one GPU", "wants one name"]),
    (["gpus", "toy", "--toml", "--explain", "hbm"], ["--explain is about one GPU"]),
    (["gpus", "toy", "--explain", "hbn"], ["toy has no parameter 'hbn'", "did you mean 'hbm'"]),
    (["gpus", "h300"], ["'h300' is unknown", "known: a100_sxm_40gb"]),
    (["gpus", "--json", "no/such/x.json"], ["--json"]),
]


@pytest.mark.parametrize(
    "wrong",
    [
        "--math fma --tile 1x128x128", "--schedule cooperative --dtype fp32 --tile 16x8x32", "--cluster 4x4 --tile 8x100x64",
        "--split-k 5 --persistent --k 64 --tile 100x33x48", "--tile 1000x1000x64", "--tile 100x33x7 --stages 40",
        "--math wgmma --dtype fp32 --copy tma --swizzle 128B --tile 64x7x7",
    ],
)
def test_advice_is_accepted_when_it_is_followed(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", "gemm", "--gpu", "h200_sxm", *SIZE, *wrong.split()]
    assert main(arguments) == 2
    changes = options_in("use " + capsys.readouterr().err.strip().rpartition("use ")[2])
    words = [[f"--no-{name}"] if value is False else [f"--{name}", str(value)] for name, value in changes.items()]
    typed = [word.replace("_", "-") if word.startswith("--") else word for pair in words for word in pair]
    dropped = {f"--{name}" for name, value in changes.items() if value is False}
    assert main([*(word for word in arguments if word not in dropped), *typed]) == 0, changes


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(arguments)[-40:] or "none" for arguments, _ in BAD])
def test_bad_input_costs_one_sentence_and_status_two(
    arguments: list[str], said: list[str], refuses: Callable[[Sequence[str], Sequence[str]], None]
) -> None:
    refuses(arguments, said)


def test_bad_outputs_are_refused_before_anything_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusim.simulate import run

    monkeypatch.setattr(run, "simulate", lambda *arguments, **options: pytest.fail("simulated"))
    assert main([*GEMM, "--plot", "/no/such/folder/x.png"]) == 2


def test_a_gpu_that_lacks_wgmma_refuses_it_before_anything_is_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpusim.simulate import run

    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\ntitle = "Mine"\nextends = "h200_sxm"\n[device]\ncompute_capability = 10.0\n'
        'features = ["cp_async", "mbarrier", "mma_sync", "fp8", "tma", "cluster", "stmatrix"]\n[device.source]\n'
        'compute_capability = "guess: a label; settled by a device"\n',
        encoding="utf-8",
    )
    monkeypatch.setattr(run, "simulate", lambda *arguments, **options: pytest.fail("simulated"))
    assert main([*GEMM, "--math", "wgmma", "--gpu", str(path)]) == 2
    assert capsys.readouterr().err.strip().splitlines() == ["gpusim: --math wgmma: mine has no wgmma; use --math mma_sync"]


def test_a_description_with_a_wrong_key_is_refused_by_file_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpusim.machine.config import configs_dir

    path = tmp_path / "mine.toml"
    text = (configs_dir() / "h100_sxm.toml").read_text(encoding="utf-8")
    path.write_text(text.replace("\npeak_gb_per_s", "\npeek_gb_per_s", 1), encoding="utf-8")
    assert main(["predict", "gemm", *SIZE, "--gpu", str(path)]) == 2
    err = capsys.readouterr().err
    assert "mine.toml" in err
    assert "peek_gb_per_s" in err
    assert "did you mean 'peak_gb_per_s'?" in err


def test_no_traceback_and_no_usage_in_a_process_of_its_own() -> None:
    done = typed("predict", "gemm", "--gpu")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "gpusim: --gpu has no value, wants one\n"


def test_an_interruption_is_one_line_and_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpusim.simulate import run

    def interrupt(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "simulate", interrupt)
    assert main(GEMM) == 130
    assert capsys.readouterr().err == "gpusim: interrupted, nothing more is written\n"


# ---------------------------------------------------------------------------------------------- what is good


KEYS = (
    "kernel", "gpu", "params", "cycles", "time_us", "sm_clock_mhz", "tflops", "bound_by", "occupancy", "counters",
    "num_events", "wall_s", "sources",
)


def test_an_interruption_while_the_command_line_is_imported_is_quiet_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    from gpusim.__main__ import run

    monkeypatch.setitem(sys.modules, "gpusim.cli", Interrupted("gpusim.cli"))
    assert run() == 130
    assert capsys.readouterr().err == "gpusim: interrupted\n"


def test_tables_in_a_pipe_have_a_line_a_row_however_long(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["validate", "--gpu", "h200_sxm", "--kernel", "occupancy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head, rows = lines[1].split(), [line.split() for line in lines[2:-2]]
    assert head[:3] == ["kernel", "group", "what"]
    assert len(rows) == 22
    assert {len(words) for words in rows[:-1]} == {8}
    assert all(words[0] == "occupancy" and words[-1] == "pass" for words in rows[:-1])


@pytest.mark.parametrize("words", [
    "gpus", "predict gemm --m 256 --n 256 --k 128 --gpu toy --all", "raster gemm --m 512 --n 512 --k 512 --gpu toy",
    "layout (4,8):(8,1)",
])  # fmt: skip
@pytest.mark.parametrize("columns", [None, "90"])
def test_tables_in_a_pipe_have_no_blanks_at_the_end_of_a_line(
    words: str, columns: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert main(words.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5 and lines == [line.rstrip(" ") for line in lines]


def test_validate_tells_a_pipe_how_far_it_is_and_speaks_of_no_other_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--gpu", "h200_sxm", "--kernel", "occupancy", "--kernel", "tensor_map"]) in (0, 1)
    told = [line for line in capsys.readouterr().err.splitlines() if "judged" in line]
    assert sorted(line.split(",")[0] for line in told) == ["gpusim: judged occupancy", "gpusim: judged tensor_map"]
    assert told[-1].endswith("2 of 2 tables")


def test_validate_says_beforehand_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpusim.cli.validate.MICRO_S", 60.0)
    assert main(["validate", "--gpu", "h200_sxm", "--kernel", "occupancy", "--no-cache", "--processes", "2"]) == 0
    told = capsys.readouterr().err.splitlines()[0]
    words = told.split()
    assert told == f"gpusim: {words[1]} simulations, about {words[4]} minutes with 2 at once"
    assert int(words[1]) == 2 * int(words[4])


def test_a_prediction_writes_json_trace_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, trace, plot = tmp_path / "x.json", tmp_path / "x.pftrace", tmp_path / "x.svg"
    assert main([*GEMM, "--json", str(document), "--trace", str(trace), "--plot", str(plot)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Verdict    ") and "gemm --m 256 --n 256 --k 512" in out.splitlines()[1]
    assert "ui.perfetto.dev" in err
    found = json.loads(document.read_text())
    assert all(key in found for key in KEYS)
    assert found["params"]["tile"] == "128x64x64"
    parsed = Trace()
    parsed.ParseFromString(trace.read_bytes())
    assert {"SM 0", "tensor core"} <= {packet.track_descriptor.name for packet in parsed.packet}
    assert plot.read_bytes().startswith(b"<?xml")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["x.json", "x.pftrace", "x.svg"]


def test_a_window_is_that_of_the_pictures_over_time(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.svg" for name in ("plot", "ring")}
    drawn = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    assert main([*GEMM, *drawn, "--window", "3000, 4e3"]) == 0
    assert all("cycles 3,000 to 4,000" in path.read_text() for path in paths.values())


def test_every_picture_goes_to_its_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("plot", "ring", "roofline", "occupancy", "waterfall")
    drawn = [word for name in names for word in (f"--{name}", str(tmp_path / f"{name}.svg"))]
    assert main(["explain", *GEMM[1:], *drawn]) == 0
    told = capsys.readouterr().err
    shows = ("Timeline of", "Ring of", "Roofline of", "An SM of", "Where the")
    for name, words in zip(names, shows, strict=True):
        assert f"{name.capitalize()}: {tmp_path / name}.svg" in told
        assert f'aria-label="{words}' in (tmp_path / f"{name}.svg").read_text()


def test_json_on_stdout_is_alone_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GEMM, "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["kernel"] == "gemm"
    assert err.startswith("Verdict    ")


def test_the_next_command_explains_the_same_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GEMM, "--l2", "warm", "--clock", "900"]) == 0
    following = " ".join(capsys.readouterr().out.rpartition("\n")[0].partition("\nNext")[2].replace("\\\n", "").split())
    assert following == (
        "gpusim explain gemm --m 256 --n 256 --k 512 --tile 128x64x64 --gpu toy --clock 900 --l2 warm"
    )
    assert main([*following.split()[1:], "--json", "-"]) == 0
    counterfactuals = json.loads(capsys.readouterr().out)["counterfactuals"]
    assert len(counterfactuals) == len(IDEALS) + 1  # and the tail


def test_a_prediction_is_the_same_in_predict_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for command in ("predict", "explain"):
        assert main([command, *GEMM[1:], "--json", "-"]) == 0
        found.append(json.loads(capsys.readouterr().out)["cycles"])
    assert found[0] == found[1]


def test_a_gpu_is_printed_as_a_flat_toml_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gpusim import load_gpu

    assert main(["gpus", "a100_sxm_40gb", "--toml"]) == 0
    path = tmp_path / "a100_sxm_40gb.toml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert "extends" not in path.read_text(encoding="utf-8")
    assert load_gpu(path) == load_gpu("a100_sxm_40gb")


def test_a_gpu_is_taken_from_a_toml_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gpusim.machine.config import configs_dir

    path = tmp_path / "toy.toml"
    path.write_bytes((configs_dir() / "toy.toml").read_bytes())
    assert main([*GEMM[:-1], str(path), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["gpu"] == "toy"


@pytest.mark.parametrize("names", [[], ["toy"], ["toy", "h100_sxm"]])
def test_gpus_are_shown_and_written(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", *names]) == 0
    assert "toy" in capsys.readouterr().out
    assert main(["gpus", *names, "--json", "-"]) == 0
    json.loads(capsys.readouterr().out)


def test_every_field_of_every_kernel_is_an_option(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for name, row in KERNEL_MODELS.items():
        assert main(["predict", name, "--help"]) == 0
        text = capsys.readouterr().out
        for option in row.params.options():
            flag = option.replace("_", "-")
            assert f"--{flag}" in text or f"--no-{flag}" in text


def test_help_puts_predict_first_and_has_no_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert text.index("predict ") < text.index("explain ") < text.index("gpus ")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gpusim ")


def test_output_to_a_pipe_has_no_colour() -> None:
    done = typed(*GEMM)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    code = (
        "import sys, gpusim.cli; "
        "print([n for n in ('numpy', 'pandas', 'matplotlib', 'simpy', 'pydantic', 'perfetto') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_front_door_wins_over_the_room_of_the_same_name() -> None:
    code = (
        "import gpusim.simulate.timeline, gpusim; from gpusim import simulate; import gpusim.simulate.run; "
        "assert callable(simulate) and gpusim.simulate is simulate; "
        "assert all(getattr(gpusim, name) is not None for name in gpusim.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_long_list_leaves_room_and_what_none_stands_for_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--gpu", "h200_sxm", "--m", "256", "--n", "256", "--k", "64", "--tile", "128x128x64", "--cluster", "2x1"]
    assert main(["predict", "gemm", *arguments, "--raster-order", "gpc", "--all"]) == 0
    lines = {words[0]: words[1:] for line in capsys.readouterr().out.splitlines() if (words := line.split())}
    assert "(66" in lines["--raster-order"]  # places, of which the first are listed
    assert lines["--l2-promotion"] == ["a", "k-step's", "rows", "default"]
    assert lines["--registers"] == ["worked", "out", "default"]
    assert lines["--warps"] == ["n/a", "default"]
