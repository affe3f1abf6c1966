"""``--engine`` and ``--core-only``: what they go with, and what one is told while a simulation runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusim.cli import main
from gpusim.cli import options as shared

GEMM = ["gemm", "--m", "256", "--n", "256", "--k", "128", "--gpu", "toy"]

OF_CORE = {"native": ["--core-only"], "reference": ["--core-only", "--engine", "reference"]}


@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_an_engine_that_is_none_names_the_nearest(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *GEMM, "--engine", "nativ"]) == 2
    assert capsys.readouterr().err == "gpusim: --engine 'nativ' is unknown; did you mean 'native'?\n"


@pytest.mark.parametrize("engine", OF_CORE)
def test_a_document_says_which_engine_it_is_from(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *GEMM, *OF_CORE[engine], "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["engine"] == engine
    assert found["num_events"] > 0 and found["wall_s"] > 0.0
    assert ("--engine reference" in capsys.readouterr().out) == (engine == "reference")  # in what may be typed next


def test_the_reference_refuses_what_it_lacks_and_takes_the_core_alone(capsys: pytest.CaptureFixture[str]) -> None:
    on_h200 = [*GEMM[:-1], "h200_sxm", "--engine", "reference"]
    assert main(["predict", *on_h200]) == 2
    assert "has the core of the model alone, h200_sxm has" in capsys.readouterr().err
    assert main(["predict", *on_h200, "--core-only"]) == 0
    assert "switched off, as beyond the core of the model: " in capsys.readouterr().out


def test_both_engines_answer_alike_where_a_gpu_has_the_core_alone(tmp_path: Path) -> None:
    cycles = []
    for words in OF_CORE.values():
        assert main(["predict", *GEMM, *words, "--json", str(tmp_path / "found.json")]) == 0
        cycles.append(json.loads((tmp_path / "found.json").read_text())["cycles"])
    assert cycles[0] == pytest.approx(cycles[1], rel=1e-9)


class Status:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def update(self, text: str) -> None:
        """One more text."""
        self.told.append(text)


def test_a_long_simulation_tells_how_far_it_is_and_a_short_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(shared.time, "perf_counter", lambda: clock[0])
    status: Any = Status()
    spinner = shared.Spinner(status, "simulating gemm on toy")
    tell = spinner.show_progress
    for clock[0] in (1.0, 2.9, 3.0, 4.0):
        tell(int(1000 * clock[0]), 8192, 1e6 * clock[0])
    assert status.told == [
        "simulating gemm on toy: 3,000 of 8,192 CTAs, cycle 3,000,000, about 5 s left",
        "simulating gemm on toy: 4,000 of 8,192 CTAs, cycle 4,000,000, about 4 s left",
    ]
    spinner.update("simulating gemm on toy: no latency")
    tell(1, 8192, 2.0)
    assert status.told[2:] == ["simulating gemm on toy: no latency"]


def test_where_no_terminal_is_lines_tell_it_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(shared.time, "perf_counter", lambda: clock[0])
    with shared.spinner("simulating gemm on toy") as told:
        for clock[0] in (1.0, 2.9, 4.0, 5.0, 13.9, 14.0):
            told.show_progress(int(100 * clock[0]), 2000, 1e6)
    assert capsys.readouterr().err.splitlines() == [
        "gpusim: simulating gemm on toy: 400 of 2,000 CTAs, cycle 1,000,000, about 16 s left",
        "gpusim: simulating gemm on toy: 1,400 of 2,000 CTAs, cycle 1,000,000, about 6 s left",
    ]


@pytest.mark.parametrize(("says_left", "rest"), [(False, ", about 25 s left"), (True, "")])
def test_many_answers_tell_how_many_are_left_where_no_terminal_is(
    says_left: bool, rest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(shared.time, "perf_counter", lambda: clock[0])
    with shared.progress(says_left=says_left) as tell:
        for done, clock[0] in ((100, 0.0), (140, 9.9), (140, 10.0), (150, 19.0), (240, 20.0)):
            tell("answers", done, 240)
    assert capsys.readouterr().err.splitlines() == [f"140 of 240: answers{rest}"]
