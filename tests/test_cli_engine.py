"""``--engine`` and ``--core-only``: what they go with, and what one is told while a simulation runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusim.cli import main
from gpusim.cli import options as shared

GEMM = ["gemm", "--m", "256", "--n", "256", "--k", "128", "--gpu", "toy"]

ENGINES = {"native": [], "reference": ["--engine", "reference", "--core-only"]}

ON_TOY = {
    "TMA and wgmma": "gemm --m 256 --n 256 --k 256",
    "TMA and wgmma, cooperative": "gemm --m 256 --n 256 --k 256 --tile 128x128x64 --schedule cooperative",
    "TMA and wgmma, pingpong": "gemm --m 256 --n 256 --k 256 --tile 64x128x64 --schedule pingpong --persistent",
    "cp.async and wgmma": "gemm --m 256 --n 256 --k 128 --tile 64x64x64 --schedule warp_specialized --copy cp_async",
    "cp.async and mma.sync": """gemm --m 256 --n 256 --k 256 --tile 64x64x64 --warps 2x2 --stages 3 --layout tn
        --schedule multistage --copy cp_async --math mma_sync""",
    "FMA": "gemm --m 256 --n 256 --k 64 --tile 64x32x32 --warps 2x1 --stages 10 --layout nt --dtype fp32 --math fma",
    "FMA without tiles": "sgemm_naive --m 64 --n 64 --k 64 --way naive",
    "copy": "elementwise --op copy --elements 65536",
    "copy by TMA": "smem_copy --m 256 --n 256 --copy tma",
    "gather in order": "gather --rows 512 --columns 256 --table-rows 4096 --index sequential",
    "layer norm": "layer_norm --rows 64 --columns 1024",
    "reduction": "reduction --rows 64 --columns 1024",
    "softmax": "softmax --rows 64 --columns 1024",
    "transpose": "transpose --m 256 --n 256",
}
"""Kernels that lie within the core."""

REFUSED_ON_TOY = {
    "gemm --m 128 --n 128 --k 64 --tile 128x128x64 --schedule multistage --copy cp_async --math mma_sync --layout tn":
        "role 'math' of CTA 0 loads 96 wavefronts at once, which is beyond the core",
    "gemm --m 128 --n 128 --k 64 --tile 64x64x32 --warps 2x2 --schedule multistage --copy cp_async --math mma_sync "
    "--layout tn": "role 'math' of CTA 0 yields CpAsync (rows off lines), wants an op of the core",
    "gemm --m 256 --n 256 --k 64 --tile 64x64x16 --warps 2x2 --stages 3 --register-stages 1 --dtype fp32 --math fma":
        "takes turns at the FMA pipe with CTAs of its SM, which is beyond the core",
    "transpose --m 64 --n 64 --smem naive": "loads 1024 wavefronts at once, which is beyond the core",
    "gather --rows 64 --columns 256 --table-rows 4096": "rows at random, single sectors, later walks are beyond the core",
    "strided_copy --elements 4096 --stride 4": "rows at random, single sectors, later walks are beyond the core",
}  # fmt: skip
"""Kernels that use a mechanism beyond the core whatever the GPU is, and what is said of them."""


@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_an_engine_that_is_none_names_the_nearest(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *GEMM, "--engine", "nativ"]) == 2
    assert capsys.readouterr().err == "gpusim: --engine 'nativ' is unknown; did you mean 'native'?\n"


@pytest.mark.parametrize("flag", ["--trace", "--plot", "--ring"])
def test_the_reference_records_no_timeline_and_writes_none(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"found.{'pftrace' if flag == '--trace' else 'png'}"
    assert main(["predict", *GEMM, "--engine", "reference", flag, str(path)]) == 2
    says = f"gpusim: {flag} needs a timeline, and --engine reference records none; use --engine native\n"
    assert capsys.readouterr().err == says and not path.exists()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_document_says_which_engine_it_is_from(engine: str, tmp_path: Path) -> None:
    assert main(["predict", *GEMM, *ENGINES[engine], "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["engine"] == engine
    assert found["num_events"] > 0 and found["wall_s"] > 0.0


def test_what_may_be_typed_next_has_options_that_the_command_knows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``explain`` makes parts free, which the reference does not; ``sweep`` has none of these options."""
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["predict", *GEMM, "--engine", "reference", "--core-only", "--max-events", "1000000"]) == 0
    told = " ".join(capsys.readouterr().out.replace("\\\n", "").split())
    assert "Next gpusim explain gemm --m 256 --n 256 --k 128 --gpu toy --core-only --max-events 1000000" in told
    assert main(["predict", *GEMM, "--max-events", "1000000"]) == 0
    assert capsys.readouterr().out.strip().endswith("gpusim advise gemm --m 256 --n 256 --k 128 --gpu toy")


def test_the_reference_refuses_what_it_lacks_and_takes_the_core_alone(capsys: pytest.CaptureFixture[str]) -> None:
    on_h200 = [*GEMM[:-1], "h200_sxm", "--engine", "reference"]
    assert main(["predict", *on_h200]) == 2
    assert "has the core of the model alone, h200_sxm has" in capsys.readouterr().err
    assert main(["predict", *on_h200, "--core-only"]) == 0
    assert "switched off, as beyond the core of the model: " in capsys.readouterr().out


def cycles_of(tmp_path: Path, *words: str) -> float:
    """What ``predict`` says."""
    assert main(["predict", *words, "--json", str(tmp_path / "found.json")]) == 0
    return float(json.loads((tmp_path / "found.json").read_text())["cycles"])


@pytest.mark.parametrize("name", ON_TOY)
def test_both_engines_answer_alike_where_a_gpu_has_the_core_alone(name: str, tmp_path: Path) -> None:
    words = [*ON_TOY[name].split(), "--gpu", "toy", "--core-only"]  # with which nothing is chosen by simulation
    native, reference = (cycles_of(tmp_path, *words, *engine) for engine in ENGINES.values())
    assert reference == pytest.approx(native, rel=0.0, abs=1e-6)


def test_both_engines_answer_alike_where_all_beyond_the_core_is_switched_off(tmp_path: Path) -> None:
    words = [*GEMM[:-1], "h200_sxm", "--clock", "1755", "--core-only"]
    native, reference = (cycles_of(tmp_path, *words, *engine) for engine in ([], ENGINES["reference"][:2]))
    assert reference == pytest.approx(native, rel=1e-9)


def test_nothing_is_switched_off_where_a_gpu_has_the_core_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *GEMM, "--core-only"]) == 0
    assert "switched off" not in capsys.readouterr().out


@pytest.mark.parametrize("words", REFUSED_ON_TOY)
def test_the_reference_names_what_a_kernel_uses_beyond_the_core(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *words.split(), "--gpu", "toy", "--engine", "reference"]) == 2
    assert REFUSED_ON_TOY[words] in capsys.readouterr().err


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
    for clock[0] in (0.9, 1.0, 2.9, 3.0, 4.0):
        tell(int(1000 * clock[0]), 8192, 1e6 * clock[0])
    assert status.told == [
        "simulating gemm on toy: 1,000 of 8,192 CTAs, cycle 1,000,000",
        "simulating gemm on toy: 2,900 of 8,192 CTAs, cycle 2,900,000, about 5 s left",
        "simulating gemm on toy: 3,000 of 8,192 CTAs, cycle 3,000,000, about 5 s left",
        "simulating gemm on toy: 4,000 of 8,192 CTAs, cycle 4,000,000, about 4 s left",
    ]
    spinner.update("simulating gemm on toy: no latency")
    tell(1, 8192, 2.0)
    assert status.told[4:] == ["simulating gemm on toy: no latency"]


def test_what_is_left_is_estimated_from_the_run_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds of planning, a part at 50 CTAs a second, then all at 100 a second behind a first wave of two seconds."""
    clock = [0.0]
    monkeypatch.setattr(shared.time, "perf_counter", lambda: clock[0])
    status: Any = Status()
    tell = shared.Spinner(status, "simulating").show_progress
    for clock[0], done, cycle in ((2.0, 0, 10.0), (4.0, 100, 20.0), (4.1, 0, 1.0), (6.1, 0, 2.0)):
        tell(done, 1000, cycle)
    assert all(text.endswith(f"cycle {cycle}") for text, cycle in zip(status.told, (10, 20, 1, 2), strict=True))
    for clock[0], left in ((7.1, ""), (8.1, "about 8 s left"), (9.1, "about 7 s left"), (11.1, "about 5 s left")):
        tell(round(100 * (clock[0] - 6.1)), 1000, 100 * clock[0])
        assert status.told[-1].endswith(left) and ("left" in status.told[-1]) == bool(left)


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


@pytest.mark.parametrize(("says_left", "rest"), [(False, ", about 30 s left"), (True, "")])
def test_many_answers_tell_how_many_are_left_where_no_terminal_is(
    says_left: bool, rest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(shared.time, "perf_counter", lambda: clock[0])
    with shared.progress(says_left=says_left) as tell:
        for done, clock[0] in ((100, 0.0), (101, 5.0), (120, 9.9), (121, 10.0), (130, 19.0), (240, 20.0)):
            tell("answers", done, 240)
    assert capsys.readouterr().err.splitlines() == [f"121 of 240: answers{rest}"]
