"""``gpusim sweep``: each configuration is simulated or excluded, the best is first, nothing ends the rest."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import gpusim
from gpusim import GemmParams, load_gpu, simulate
from gpusim.analysis.choose import choose
from gpusim.analysis.sweep import GivenUp, Progress, Sweep, SweepSettings, predict_one, run_sweep
from gpusim.cli import main
from gpusim.errors import DeadlockError, KernelError, SimulationError
from gpusim.evidence.validate.expected_error import expected_error
from gpusim.kernel_models.sweep_values import choices
from gpusim.report.sweep import clock_remark, why, within_error
from gpusim.simulate.lower_bound import Bound, lower_bound
from gpusim.simulate.result import Result
from gpusim.simulate.wasm_module import EngineRun
from gpusim.workers import MANY, workers_of

TOY = load_gpu("toy")
GEMM = ["sweep", "gemm", "--gpu", "toy", "--m", "512", "--n", "512", "--k", "256", "--jobs", "1"]
VARIED = ["--tile", "64x64x64,128x128x32,100x1x1", "--stages", "2..3", "--schedule", "auto"]
OPTIONS: dict[str, Any] = {"m": 512, "n": 512, "k": 256, "tile": "64x64x64,128x128x32", "stages": "2..3"}

BAD: list[tuple[list[str], str]] = [
    (["sweep"], "kernel is missing"), (["sweep", "gem"], "did you mean 'gemm'?"),
    ([*GEMM[:2], *GEMM[4:]], "--gpu is missing"), ([*GEMM, "--stages", "6..2"], "--stages '6..2' is no range"),
    ([*GEMM, "--top", "0"], "--top 0 is too few"), ([*GEMM, "--jobs", "0"], "--jobs 0 is too few"),
    ([*GEMM, "--clock", "fast"], "--clock 'fast'"), ([*GEMM, "--dask", "nowhere"], "--dask nowhere: no scheduler answers"),
    ([*GEMM, "--l2", "hot"], "--l2 'hot' is unknown"), ([*GEMM, "--csv", "x.txt"], "wants a name that ends in .csv"),
    ([*GEMM, "--plot", "x.pdf"], "wants a name that ends in .png or .svg"),
    ([*GEMM, "--tile", "7x7x7,9x9x9"], "none of 2 configurations can run"), ([*GEMM, "--tile", "7x7"], "--tile"),
    ([*GEMM, "--stages", "2,x"], "--stages is 'x', wants a whole number"),
    ([*GEMM, "--stages", "2-4"], "--stages '2-4' is no range; wants 2..4"),
    ([*GEMM, "--tile", "atuo"], "--tile 'atuo' is unknown; did you mean 'auto'?"),
    ([*GEMM, "--stages", "auto,4"], "--stages: auto stands for all usual values"),
    ([*GEMM, "--tile", "64x64x64,7x7"], "--tile is '7x7'"),
    ([*GEMM, "--swizzle", "128B,foo"], "--swizzle 'foo'"),
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
    for word in ("24 configurations tried", "8 refused, such as: --tile 100x1x1", "bound by",
                 "Best: gpusim predict gemm --m 512", "Expected error",
                 "Against the second", "Against the slowest", "Next: gpusim explain gemm --m 512"):
        assert word in out
    command = next(line for line in out.splitlines() if line.startswith("Next: "))[len("Next: gpusim ") :]
    assert main(command.split()) == 0


def test_it_says_at_which_clock_all_were_simulated() -> None:
    entries: list[Any] = [
        SimpleNamespace(result=SimpleNamespace(simulated_mhz=1725.0, sm_clock_mhz=mhz)) for mhz in (1750.0, 1752.0)
    ]
    assert clock_remark(entries).startswith("All were simulated at 1,725 MHz and rescaled to the clock in the table.")
    assert clock_remark(entries[:1]) == ""
    same: list[Any] = [SimpleNamespace(result=SimpleNamespace(simulated_mhz=1000.0, sm_clock_mhz=1000.0))] * 2
    assert clock_remark(same) == ""


@pytest.mark.parametrize(
    ("arguments", "following"),
    [
        (
            ["elementwise", "--op", "add", "--elements", "65536"],
            "elementwise --op add --elements 65536 --dtype fp32",
        ),
        (
            ["gemm", "--m", "256..256", "--n", "256", "--k", "512,512", "--tile", "64x64x32", "--stages", "2,3", "--layout",
             "nn", "--fence", "on", "--l2", "warm", "--clock", "900"],
            "gemm --m 256 --n 256 --k 512 --layout nn --tile 64x64x32 --fence --batch 1 --dtype bf16 --stages {}",
        ),
    ],
)  # fmt: skip
def test_what_was_given_once_is_in_the_command_that_follows(
    arguments: list[str], following: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *arguments, "--gpu", "toy", "--jobs", "1"]) == 0
    command = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Next: "))
    assert command.startswith(tuple(f"Next: gpusim explain {following.format(stages)}" for stages in (2, 3)))
    assert command.endswith("--gpu toy --clock 900 --l2 warm" if "--clock" in arguments else "--gpu toy")
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


def test_at_a_clock_that_is_told_all_is_what_simulate_says() -> None:
    entries = run_sweep("gemm", OPTIONS, TOY, SweepSettings(top=99, simulate_options={"clock": 1000.0})).entries
    assert {entry.status for entry in entries} == {"simulated"}
    assert [entry.time_us for entry in entries] == sorted(entry.time_us for entry in entries)
    for entry in entries:
        assert simulate(entry.choice.params.launch(TOY), TOY, clock=1000.0).time_us == entry.time_us


def test_at_the_clock_that_power_leaves_it_is_as_near_it_as_clocks_side_by_side_are() -> None:
    found = of_h200(top=99)
    assert {entry.status for entry in found.entries} == {"simulated"}
    assert len({entry.result.simulated_mhz for entry in found.entries if entry.result is not None}) == 1
    for entry in found.entries:
        assert entry.time_us == pytest.approx(simulate(entry.choice.params.launch(H200), H200).time_us, rel=0.03)


def test_one_alone_is_what_simulate_says() -> None:
    found = run_sweep("gemm", {"m": 1024, "n": 1024, "k": 512}, H200, SweepSettings(top=1))
    params = choose(GemmParams(m=1024, n=1024, k=512), H200).params
    assert found.entries[0].choice.params.tile == params.tile  # type: ignore[attr-defined]  # options of a GEMM
    assert found.entries[0].time_us == simulate(found.entries[0].choice.params.launch(H200), H200).time_us


def test_without_a_tile_auto_stands_for_the_configurations_of_a_library() -> None:
    found = choices(GemmParams, {"m": 512, "n": 512, "k": 8192, "tile": "auto"}, H200)
    assert not found.refusals
    varied = {"tile", "stages", "schedule", "cluster", "persistent", "raster", "swizzle_size", "split_k", "epilogue"}
    assert varied <= set(found.varied)
    narrow = choices(GemmParams, {"m": 16, "n": 4096, "k": 4096, "tile": "auto", "stages": 4}, H200)
    assert "swap_operands" in narrow.varied
    assert {choice.options.get("stages", 4) for choice in narrow.legal} == {4}


H200 = load_gpu("h200_sxm")
TILES = ["64x64x64", "64x128x64", "128x128x64"]
NARROW = ["64x16x64", "64x32x64", *TILES]
SOME = {"m": 1024, "n": 1024, "k": 1024, "tile": TILES, "schedule": "auto", "stages": [2, 4]}


def of_h200(
    *, tiles: Sequence[str] = TILES, progress: Progress = lambda what, done, total: None, **how: Any
) -> Sweep:
    return run_sweep("gemm", {**SOME, "tile": list(tiles)}, H200, SweepSettings(**how), progress=progress)


@pytest.mark.parametrize("clock", ["single", 1500.0])
def test_excluding_never_changes_the_best(clock: str | float) -> None:
    every, some = (of_h200(tiles=NARROW, top=top, simulate_options={"clock": clock}) for top in (999, 3))
    assert {entry.status for entry in every.entries} == {"simulated"}
    assert [entry.result for entry in some.entries[:3]] != []
    assert [entry.time_us for entry in some.entries[:3]] == [entry.time_us for entry in every.entries[:3]]
    times = {entry.choice.params: entry.time_us for entry in every.entries}
    excluded = [entry for entry in some.entries if entry.status == "excluded"]
    assert {entry.is_begun for entry in excluded} == {False, True}
    for entry in excluded:
        assert some.entries[2].time_us < entry.bound_us <= times[entry.choice.params] * (1 + 1e-6)


@cache
def best_three() -> Sweep:
    """Of one process."""
    return of_h200(top=3)


def test_two_processes_say_what_one_says() -> None:
    one, two = best_three(), of_h200(top=3, jobs=2)
    assert [entry.choice.options for entry in one.entries[:3]] == [entry.choice.options for entry in two.entries[:3]]
    assert [entry.time_us for entry in one.entries[:3]] == [entry.time_us for entry in two.entries[:3]]


def test_so_do_two_workers_of_a_cluster_one_of_which_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        lost = next(iter(cluster.workers.values())).process.pid
        has_begun = threading.Event()

        def progress(what: str, done: int, total: int) -> None:
            if what[0] in "123456789" and not has_begun.is_set():
                has_begun.set()
                os.kill(lost, signal.SIGKILL)

        found = of_h200(top=3, dask=cluster.scheduler_address, progress=progress)
    assert has_begun.is_set()
    assert found.num_jobs == 2
    assert [entry.time_us for entry in found.entries[:3]] == [entry.time_us for entry in best_three().entries[:3]]
    assert not any(entry.status in ("failed", "not reached") for entry in found.entries)
    del caplog  # takes what the cluster says about its loss


def test_a_process_that_is_ended_costs_one_sentence() -> None:
    with workers_of(2, None) as workers, pytest.raises(SimulationError, match="ended from outside"):
        workers.answer(workers.executor.submit(os._exit, 1))


def test_processes_list_what_one_lists() -> None:
    options = {**SOME, "stages": "1..6", "swizzle_size": "1,2,4,8", "raster_boustrophedon": "off,on", "cluster": "auto"}
    with workers_of(2, None) as workers:
        many = choices(GemmParams, options, H200, keep=partial(lower_bound, gpu=H200), mapped=workers.mapped)
    assert many == choices(GemmParams, options, H200, keep=partial(lower_bound, gpu=H200))
    assert many.num_tried > MANY


def test_a_run_that_cannot_end_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is watched after every 5,000 events at the latest, however long they take on a busy machine."""
    monkeypatch.setattr(sys.modules["gpusim.simulate.wasm_module"], "MOST_EVENTS", 5_000)
    params = GemmParams(m=2048, n=2048, k=2048, tile=(64, 64, 64), stages=2).resolved(H200)
    bound = lower_bound(params.launch(H200), H200)
    seen: list[float] = []

    def cycles_of(self: Bound, run: EngineRun) -> tuple[float, float]:
        seen.append(run.cycle)
        return real(self, run)

    real = Bound.cycles_of
    monkeypatch.setattr(Bound, "cycles_of", cycles_of)
    whole = predict_one(params, H200, {"clock": 1700.0}, 1700.0, bound, 1e12)
    assert isinstance(whole, Result)
    num_of_whole = len(seen)
    seen.clear()
    answer = predict_one(params, H200, {"clock": 1700.0}, 1700.0, bound, whole.cycles / 2)
    assert isinstance(answer, GivenUp)
    assert whole.cycles / 2 < answer.least_cycles <= whole.cycles
    assert seen[-1] < whole.cycles / 2 and len(seen) < num_of_whole / 2


@pytest.mark.parametrize(("width", "left_out"), [
    (200, ""), (80, "Too wide for 80 columns: waves (--json has all)"),
    (50, "Too wide for 50 columns: waves, MHz, from memory, cycles (--json has all)"),
])  # fmt: skip
def test_a_narrow_screen_leaves_columns_out_and_cuts_no_number(
    width: int, left_out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    size = ["--m", "256", "--n", "256", "--k", "512", "--tile", "128x128x64", "--jobs", "1"]
    assert main(["sweep", "gemm", "--gpu", "toy", *size, "--schedule", "multistage", "--stages", "1,2"]) == 0
    said = capsys.readouterr().out
    (head, *rows) = re.findall(r"^(   .*stages.*|\d  .*)$", said, re.MULTILINE)
    assert left_out in said and ("Too wide" in said) == bool(left_out)
    assert len(rows) == 2 and len({len(line) - len(line.lstrip()) for line in rows}) == 1
    for line in rows:
        cells = re.split(r"  +", line.strip())
        assert cells[-1] and re.fullmatch(r"[\d.,]+ (us|ms)", cells[2]) and re.fullmatch(r"[\d.]+ %", cells[3]), line
        assert len(cells) == len(re.split(r"  +", head.strip())) + 1


def test_one_that_fails_does_not_end_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_at_two(launch: Any, gpu: Any, **options: Any) -> Any:
        if launch.params["stages"] == 2:
            raise DeadlockError("everybody waits")
        return simulate(launch, gpu, **options)

    monkeypatch.setattr(sys.modules["gpusim.analysis.sweep"], "simulate", fails_at_two)
    table = gpusim.sweep("gemm", "toy", **OPTIONS)
    assert list(table["status"]) == ["simulated", "simulated", "failed", "failed"]
    assert set(table["note"][2:]) == {"everybody waits"}


@pytest.mark.parametrize("at", ["choices", "simulate"])
def test_ctrl_c_says_where_nothing_is_done(
    at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def until(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["gpusim.analysis.sweep"], at, until)
    assert main([*GEMM, *VARIED, "--json", str(tmp_path / "a.json")]) == 130
    assert capsys.readouterr().err == "gpusim: interrupted before a configuration was simulated; nothing is written\n"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_what_is_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []

    def until(launch: Any, gpu: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return simulate(launch, gpu, **options)

    monkeypatch.setattr(sys.modules["gpusim.analysis.sweep"], "simulate", until)
    assert main([*GEMM, *VARIED]) == 130
    out, err = capsys.readouterr()
    assert "2 simulated" in out
    assert "not reached" in " ".join(out.split())
    assert "Interrupted" in out
    assert "Best: " in out
    assert err == "gpusim: interrupted; what was finished is above\n"


def test_how_sure_the_first_is_follows_from_its_expected_error() -> None:
    gpu = load_gpu("h200_sxm")
    options = {**OPTIONS, "k": 512, "tile": "128x64x64,128x128x64", "schedule": "cooperative", "cluster": "1x1"}
    found = run_sweep("gemm", {**options, "epilogue": "direct", "persistent": False}, gpu, SweepSettings(top=99))
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
    found = run_sweep("gemm", OPTIONS, TOY, SweepSettings(top=99))
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
    import gpusim.analysis.sweep as room  # noqa: F401  # the import itself is what might hide the name

    assert callable(gpusim.sweep)
    names: Sequence[str] = gpusim.__all__
    assert "sweep" in names
