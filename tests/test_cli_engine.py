"""``--engine``: what it goes with, and what one is told while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusim.cli import main
from gpusim.cli import options as shared
from gpusim.cli.kernels import _progress
from gpusim.simulate.module import MODULE

GEMM = ["gemm", "--m", "256", "--n", "256", "--k", "128", "--gpu", "toy"]

needs_module = pytest.mark.skipif(not MODULE.is_file(), reason="the engine's module is not built")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "nativ"], "--engine 'nativ' is unknown; did you mean 'native'?"),
        (
            ["--engine", "native", "--quality", "quick"],
            "--quality quick: --engine native simulates every SM in full; leave out one of the two",
        ),
        (
            ["--engine", "native", "--sample-sms", "2"],
            "--sample-sms 2: --engine native simulates every SM in full; leave out one of the two",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_what_does_not_go_together_is_refused_by_name(
    verb: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *GEMM, *words]) == 2
    assert capsys.readouterr().err == f"gpusim: {said}\n"


def test_a_document_says_which_engine_it_is_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *GEMM, "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["engine"] == "python"
    assert found["num_events"] > 0 and found["wall_s"] > 0.0
    assert "native" not in capsys.readouterr().out


@needs_module
def test_the_native_engine_answers_predict_explain_and_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *GEMM, "--engine", "native", "--json", str(tmp_path / "found.json")]) == 0
    out = capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["engine"] == "native" and found["settings"]["skips"] is False and found["num_skipped_cycles"] == 0.0
    assert "events of the native engine in" in out
    assert "gpusim explain gemm" in out and "--engine native" in out
    assert main(["explain", *GEMM, "--engine", "native"]) == 0
    assert main(["sweep", *GEMM, "--stages", "2,3", "--engine", "native", "--jobs", "1"]) == 0
    assert "2 simulated" in capsys.readouterr().out


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
    tell = _progress(spinner)
    assert tell is not None
    for clock[0] in (1.0, 2.9, 3.0, 4.0):
        tell(int(1000 * clock[0]), 8192, 1e6 * clock[0])
    assert status.told == [
        "simulating gemm on toy: 3,000 of 8,192 CTAs, cycle 3,000,000",
        "simulating gemm on toy: 4,000 of 8,192 CTAs, cycle 4,000,000",
    ]
    spinner.update("simulating gemm on toy: no latency")
    tell(1, 8192, 2.0)
    assert status.told[2:] == ["simulating gemm on toy: no latency"]


def test_where_no_spinner_is_to_be_seen_nobody_is_told() -> None:
    with shared.spinner("simulating") as status:
        assert status is None
        assert _progress(status) is None
