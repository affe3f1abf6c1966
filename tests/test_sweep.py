"""``gpusim sweep`` and ``gpusim.sweep``: everything is tried, the best is first, nothing ends the rest."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import gpusim
from gpusim import GemmParams, load_gpu, simulate
from gpusim.cli import main
from gpusim.errors import DeadlockError, KernelError
from gpusim.evidence.expected import expected_error
from gpusim.report.sweep import why, within_error
from gpusim.sweep import predict_one, run_sweep

TOY = load_gpu("toy")
GEMM = ["sweep", "gemm", "--gpu", "toy", "--m", "512", "--n", "512", "--k", "256", "--jobs", "1"]
VARIED = ["--tile", "64x64x64,128x128x32,100x1x1", "--stages", "2..3", "--schedule", "auto"]
OPTIONS: dict[str, Any] = {"m": 512, "n": 512, "k": 256, "tile": "64x64x64,128x128x32", "stages": "2..3"}

BAD: list[tuple[list[str], str]] = [
    (["sweep"], "kernel is missing"), (["sweep", "gem"], "did you mean 'gemm'?"),
    ([*GEMM[:2], *GEMM[4:]], "--gpu is missing"), ([*GEMM, "--stages", "6..2"], "--stages '6..2' is no range"),
    ([*GEMM, "--top", "0"], "--top 0 is too few"), ([*GEMM, "--jobs", "0"], "--jobs 0 is too few"),
    ([*GEMM, "--patience", "0"], "--patience 0 is too little"), ([*GEMM, "--clock", "fast"], "--clock 'fast'"),
    ([*GEMM, "--l2", "hot"], "--l2 'hot' is unknown"), ([*GEMM, "--csv", "x.txt"], "wants a name that ends in .csv"),
    ([*GEMM, "--plot", "x.pdf"], "wants a name that ends in .png or .svg"),
    ([*GEMM, "--tile", "7x7x7,9x9x9"], "none of 2 configurations can run"), ([*GEMM, "--tile", "7x7"], "--tile"),
    ([*GEMM, "--stages", "2,x"], "--stages is 'x', wants a whole number"),
    ([*GEMM, "--stages", "2-4"], "--stages '2-4' is no range; wants 2..4"),
    ([*GEMM, "--tile", "atuo"], "--tile 'atuo' is unknown; did you mean 'auto'?"),
    ([*GEMM, "--stages", "auto,4"], "--stages: auto stands for all usual values"),
    ([*GEMM, "--tile", "64x64x64,7x7"], "--tile is '7x7'"),
    ([*GEMM, "--swizzle", "128B,foo"], "--swizzle 'foo'"),
    ([*GEMM, "--patience", "nan"], "--patience nan is too little"),
    ([*GEMM, "--patience", "soon"], "--patience wants a number"),
    ([*GEMM, "--top", "few"], "--top wants a whole number"), ([*GEMM, "--jobs", "1.5"], "--jobs wants a whole number"),
    ([*GEMM, "--persistent", "yes"], "--persistent 'yes' is unknown"), ([*GEMM, "--clock", "99999"], "none of 1"),
]


@pytest.mark.parametrize(("arguments", "says"), BAD)
def test_bad_input_costs_one_sentence(arguments: list[str], says: str, refuses: Any) -> None:
    refuses(arguments, [says])


def test_it_ranks_and_says_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main([*GEMM, *VARIED, "--top", "3"]) == 0
    out = capsys.readouterr().out
    for word in ("24 configurations tried", "8 refused, such as: --tile 100x1x1", "bound by", "Best: --tile",
                 "Expected error", "Against the second", "Against the slowest", "Next: gpusim explain gemm --m 512"):
        assert word in out
    command = next(line for line in out.splitlines() if line.startswith("Next: "))[len("Next: gpusim ") :]
    assert main(command.split()) == 0


@pytest.mark.parametrize(
    ("arguments", "following"),
    [
        (
            ["elementwise", "--op", "add", "--elements", "65536"],
            "elementwise --op add --elements 65536 --dtype fp32 --gpu toy",
        ),
        (
            ["gemm", "--m", "256..256", "--n", "256", "--k", "512,512", "--tile", "64x64x32", "--stages", "2,3", "--layout",
             "nn", "--fence", "on", "--l2", "warm", "--clock", "900"],
            "gemm --m 256 --n 256 --k 512 --layout nn --tile 64x64x32 --fence --batch 1 --dtype bf16 --stages {} --gpu toy "
            "--clock 900 --l2 warm",
        ),
    ],
)  # fmt: skip
def test_what_was_given_once_is_in_the_command_that_follows(
    arguments: list[str], following: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *arguments, "--gpu", "toy", "--jobs", "1"]) == 0
    command = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Next: "))
    assert command in [f"Next: gpusim explain {following.format(stages)}" for stages in (2, 3)]
    assert main(command.removeprefix("Next: gpusim ").replace("explain", "predict", 1).split()) == 0


def test_json_csv_and_picture_hold_every_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("s.json", "s.csv", "s.png")]
    assert main([*GEMM, *VARIED, "--top", "3", "--json", files[0], "--csv", files[1], "--plot", files[2]]) == 0
    found = json.loads(Path(files[0]).read_text())
    assert found["num_tried"] == 24
    assert len(found["configurations"]) == found["num_legal"] == len(pd.read_csv(files[1])) == 16
    assert sum(item["num"] for item in found["refusals"]) == 8
    assert Path(files[2]).read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert main([*GEMM, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["num_legal"] == 1


def test_problems_are_not_ranked_against_one_another(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "s.svg"
    assert main(["sweep", "softmax", "--gpu", "toy", "--rows", "256", "--columns", "256..1024", "--per", "auto", "--jobs",
                 "1", "--plot", str(path)]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line[:7].strip().isdigit()][-3:] == ["256", "512", "1024"]
    assert path.read_bytes().startswith(b"<?xml")


def test_all_sms_of_all_is_what_simulate_says() -> None:
    table = gpusim.sweep("gemm", "toy", all_sms=True, top=99, **OPTIONS)
    assert set(table["status"]) == {"simulated"}
    assert list(table["time_us"]) == sorted(table["time_us"])
    for _, row in table.iterrows():
        params = GemmParams(m=512, n=512, k=256, tile=row["tile"], stages=row["stages"])
        assert simulate(params.launch(TOY), TOY).time_us == row["time_us"]


def test_leaving_out_never_changes_the_best() -> None:
    options = {**OPTIONS, "schedule": "auto", "stages": "1..4"}
    every = gpusim.sweep("gemm", "toy", all_sms=True, top=999, **options)
    some = gpusim.sweep("gemm", "toy", all_sms=True, top=3, **options)
    assert list(some["time_us"][:3]) == list(every["time_us"][:3])
    assert (every["status"] == "simulated").all()
    left = some[some["status"] == "left out"]
    assert (left["least_possible_us"] > some["time_us"][2]).all()


def test_two_processes_say_what_one_says() -> None:
    one, two = (gpusim.sweep("gemm", "toy", all_sms=True, top=99, jobs=jobs, **OPTIONS) for jobs in (1, 2))
    pd.testing.assert_frame_equal(one, two)


def test_one_that_fails_does_not_end_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_at_two(launch: Any, gpu: Any, **options: Any) -> Any:
        if launch.params["stages"] == 2:
            raise DeadlockError("everybody waits")
        return simulate(launch, gpu, **options)

    monkeypatch.setattr(sys.modules["gpusim.sweep"], "simulate", fails_at_two)
    table = gpusim.sweep("gemm", "toy", all_sms=True, **OPTIONS)
    assert list(table["status"]) == ["simulated", "simulated", "failed", "failed"]
    assert set(table["note"][2:]) == {"everybody waits"}


def test_ctrl_c_leaves_what_is_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []

    def until(launch: Any, gpu: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return simulate(launch, gpu, **options)

    monkeypatch.setattr(sys.modules["gpusim.sweep"], "simulate", until)
    assert main([*GEMM, *VARIED]) == 130
    out, err = capsys.readouterr()
    assert "2 sampled" in out
    assert "Interrupted" in out
    assert "Best: " in out
    assert err == "gpusim: interrupted, nothing more is written\n"


def test_ten_of_a_problem_are_simulated_in_full_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where full answers are slower than quick ones, others come up behind each."""
    real = simulate

    def off(launch: Any, gpu: Any, **options: Any) -> Any:
        found = real(launch, gpu, **{**options, "quality": "quick"})
        slower = 1.22 if options["quality"] == "full" else 1.0
        return replace(found, time_us=found.time_us * slower, settings={**found.settings, "quality": options["quality"]})

    monkeypatch.setattr(sys.modules["gpusim.sweep"], "simulate", off)
    given = {"m": 512, "n": 512, "k": 512, "tile": ["64x64x64", "64x128x64", "128x128x64"], "stages": [2, 3, 4, 5, 6]}
    h200 = load_gpu("h200_sxm")
    found = run_sweep("gemm", given, h200, top=12, jobs=1, all_sms=False, patience_s=60.0, simulate_options={})
    statuses = [entry.status for entry in found.entries]
    assert statuses.count("simulated") <= 10 < len(statuses)


def test_patience_ends_and_is_told() -> None:
    params = GemmParams(m=4096, n=4096, k=4096, tile=(64, 64, 64), stages=2)
    assert predict_one(params, load_gpu("h200_sxm"), {}, 0.05) == ""
    found = run_sweep("gemm", {"m": 2048, "n": 2048, "k": 2048, "tile": ["64x64x64", "64x128x64"]}, load_gpu("h200_sxm"),
                      top=1, jobs=1, all_sms=False, patience_s=0.01, simulate_options={})
    assert {entry.status for entry in found.entries} == {"too long"}


def test_how_sure_the_first_is_follows_from_its_expected_error() -> None:
    gpu = load_gpu("h200_sxm")
    found = run_sweep("gemm", {**OPTIONS, "schedule": "auto"}, gpu, top=99, jobs=1, all_sms=True, simulate_options={})
    entries = list(found.entries)
    near = within_error(found, entries)
    best = entries[0].result
    assert best is not None
    error = expected_error("gemm", "h200_sxm", best.params)
    assert error is not None
    assert near == [entry for entry in entries if entry.time_us <= (1.0 + error.p90_pct / 100.0) * entries[0].time_us]
    said = " ".join(why(found, entries))
    assert f"{len(near) - 1} other" in said or "no other" in said


def test_where_nothing_was_measured_only_the_first_stands_for_itself() -> None:
    found = run_sweep("gemm", OPTIONS, TOY, top=99, jobs=1, all_sms=True, simulate_options={})
    entries = list(found.entries)
    assert within_error(found, entries)[0] is entries[0]
    assert all(entry.time_us == entries[0].time_us for entry in within_error(found, entries))
    assert "outside of what was validated: no gemm was measured on toy" in " ".join(why(found, entries))


@pytest.mark.parametrize(("kernel", "options", "says"), [
    ("gem", {}, "did you mean 'gemm'"), ("gemm", {"m": 1, "n": 1, "k": 1, "tiel": 2}, "--tiel is unknown"),
    ("gemm", {"m": 1}, "--n"), ("softmax", {"rows": "auto", "columns": 256}, "nothing is usual"),
])
def test_python_refuses_too(kernel: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError, match=says):
        gpusim.sweep(kernel, "toy", **options)


def test_a_name_of_the_front_door_stays_a_function() -> None:
    import gpusim.sweep as room  # noqa: F401  # the import itself is what might hide the name

    assert callable(gpusim.sweep)
    names: Sequence[str] = gpusim.__all__
    assert "sweep" in names
