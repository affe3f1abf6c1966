"""What a framework launches, told before anything is timed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpusim.cli import main
from gpusim.errors import ConfigError
from gpusim.evidence.bench import framework_launches as launches
from gpusim.evidence.bench.child_process import Ended, Ncu
from gpusim.evidence.bench.framework_launches import launches_of, read_launches, write_launches
from gpusim.evidence.cases.case import load_case

LIBRARY = load_case("library_gemm")
FILL = "void at::vectorized_elementwise_kernel<4, at::FillFunctor<float>>"
NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
METRICS = ("launch__registers_per_thread", "launch__shared_mem_per_block_dynamic")


def profiler(monkeypatch: pytest.MonkeyPatch, answers: Sequence[dict[str, Any]]) -> list[list[str]]:
    """In the place of a child under Nsight Compute: one mark and one product a config; what was asked is kept."""
    asked: list[list[str]] = []

    def run(command: Sequence[str], results: Path, *, most_s: float, log: Path) -> Ended:
        asked.append(list(command))
        columns = ("ID", "Kernel Name", "Grid Size", "Block Size", *METRICS)
        lines = [columns, ("",) * len(columns)]
        for idx in range(len(answers)):
            lines += [(str(2 * idx), FILL, "(1, 1, 1)", "(128, 1, 1)", "16", "0"),
                      (str(2 * idx + 1), NVJET, "(2, 66, 1)", "(384, 1, 1)", "168", "213188")]  # fmt: skip
        log.write_text("\n".join(",".join(f'"{field}"' for field in line) for line in lines), encoding="utf-8")
        return Ended([{"device": {}}, *answers], 0, "")

    monkeypatch.setattr(launches, "run_child", run)
    return asked


NCU = Ncu("ncu", "2025.3", frozenset())


def test_names_and_launches_come_without_cycles_or_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configs = LIBRARY.configs("more", 1)[:2]
    asked = profiler(monkeypatch, [{"idx": idx, "values": {"error_share": 0.1}} for idx in range(2)])
    found = launches_of(LIBRARY, "more", configs, NCU)
    (command,) = asked
    assert "--profile-from-start" in command and not any("cycles" in word or "duration" in word for word in command)
    assert [{name: line[name] for name in config} for config, line in zip(configs, found, strict=True)] == configs
    assert (found[0]["launched"], found[0]["grid"], found[0]["block"]) == (NVJET, "2x66x1", "384x1x1")
    assert found[0]["library_tile"] == "256x128x64" and found[1]["launch__registers_per_thread"] == "168"
    assert not any("cycles" in name or name.endswith("_us") or name == "error_share" for name in found[0])
    write_launches(tmp_path / "of" / "library_gemm.launches.csv", found)
    assert read_launches(tmp_path / "of" / "library_gemm.launches.csv") == found


@pytest.mark.parametrize("last", [{"idx": 1, "crash": "illegal address"}, None])
def test_a_launch_without_an_answer_is_refused(monkeypatch: pytest.MonkeyPatch, last: dict[str, Any] | None) -> None:
    profiler(monkeypatch, [{"idx": 0, "values": {}}, *([last] if last else [])])
    with pytest.raises(ConfigError, match="wants launches that all give an answer"):
        launches_of(LIBRARY, "more", LIBRARY.configs("more", 1)[:2], NCU)


def test_a_wrong_answer_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    profiler(monkeypatch, [{"idx": 0, "wrong": "lane 3"}, {"idx": 1, "values": {}}])
    configs = LIBRARY.configs("more", 1)[:2]
    (line,) = launches_of(LIBRARY, "more", configs, NCU)
    assert line["m"] == configs[1]["m"] and line["launched"] == NVJET


def test_kernels_of_our_own_are_refused() -> None:
    case = load_case("gather")
    with pytest.raises(ConfigError, match="wants a framework's case"):
        launches_of(case, next(iter(case.groups)), [], NCU)


def test_what_is_no_table_of_launches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no file"):
        read_launches(tmp_path / "none.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds no launches"):
        read_launches(tmp_path / "other.csv")


def test_names_alone_want_a_folder_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "library_gemm", "--names-only"]) == 2
    assert "give --out DIR" in capsys.readouterr().err
