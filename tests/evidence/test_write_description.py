"""``calibrate --write``: numbers and sources get into a description, and nothing else of it changes."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from gpusim.cli import main
from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import Fitted
from gpusim.evidence.validate.calibrate import Line, calibrate
from gpusim.evidence.validate.judge import unmeasured
from gpusim.evidence.validate.write_description import description_path, news, with_statements, write
from gpusim.machine.config import load_gpu
from gpusim.report.parameters import unsettled

from .test_calibrate_validate import ALTERNATING, TOY, chase, measured

TEXT = '''\
# A card.
name = "mine"
title = "A card"
extends = "h100_sxm"

[component.hbm]
latency_ns = 300.0  # kept

[component.hbm.source]
latency_ns = """\\
  guess: a text of \\
  two rows"""
'''


def line(name: str, after: float, source: str = "measured: kernels/chase, mine, 2026-01-31: median") -> Line:
    return Line(parameter=name, before=300.0, after=after, judged=after, source_before="guess: x", source=source)


@pytest.fixture
def described(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_number_and_its_source_of_several_rows_are_replaced(described: Path) -> None:
    write(described, [line("hbm.latency_ns", 345.678)], load_gpu(described))
    text = described.read_text(encoding="utf-8")
    assert text.startswith(TEXT[: TEXT.index("latency_ns")]) and "two rows" not in text
    gpu = load_gpu(described)
    assert gpu.hbm.latency_ns == 345.7
    assert gpu.source_of("hbm.latency_ns") == "measured: kernels/chase, mine, 2026-01-31: median"


def test_a_part_that_the_file_lacks_gets_its_sections(described: Path) -> None:
    write(described, [line("l1.hit_latency_cycles", 33.0), line("hbm.refresh_ns", 12.0)], load_gpu(described))
    gpu = load_gpu(described)
    assert (gpu.l1.hit_latency_cycles, gpu.hbm.refresh_ns, gpu.hbm.latency_ns) == (33.0, 12.0, 300.0)
    assert gpu.source_class("l1.hit_latency_cycles") == gpu.source_class("hbm.refresh_ns") == "measured"
    assert "latency_ns = 300.0  # kept" in described.read_text(encoding="utf-8")


def test_a_long_source_is_the_same_text_over_several_rows() -> None:
    long = "measured: " + " ".join(["quite"] * 60)
    text = with_statements("", "component.hbm.source", {"latency_ns": f'"{long}"'})
    assert max(map(len, text.splitlines())) <= 125
    assert tomllib.loads(text)["component"]["hbm"]["source"]["latency_ns"] == long


def test_what_cannot_be_read_back_is_not_written(described: Path) -> None:
    text = TEXT.replace("latency_ns = 300.0", '"latency_ns" = 300.0')  # a quoted key, which --write does not look for
    described.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        write(described, [line("hbm.latency_ns", 345.678)], load_gpu(described))
    assert described.read_text(encoding="utf-8") == text
    assert [path.name for path in described.parent.iterdir()] == ["mine.toml"]


def test_only_other_numbers_and_those_of_other_sources_are_news() -> None:
    same = replace(line("hbm.latency_ns", 300.0), source_before="measured: earlier")
    assert news([same, replace(same, source_before="inferred: h200_sxm"), replace(same, after=301.0)]) == [
        replace(same, source_before="inferred: h200_sxm"), replace(same, after=301.0)
    ]  # fmt: skip


def test_a_description_of_the_checkout_is_found_by_name() -> None:
    assert description_path("h100", load_gpu("h100_sxm")).parts[-2:] == ("configs", "h100_sxm.toml")


def test_a_second_write_finds_nothing_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The H100's own rows, of one kernel: its description is restored from that of the H200."""
    path = tmp_path / "mine.toml"
    path.write_text('name = "h100_sxm"\ntitle = "x"\nextends = "h200_sxm"\n\n[component.l2]\nnum_slices = 80\n\n'
                    '[component.l2.source]\nnum_slices = "inferred: h100_sxm"\n', encoding="utf-8")  # fmt: skip
    folder = Path(__file__).resolve().parents[2] / "validation" / "measured" / "h100_sxm"
    command = ["calibrate", "--gpu", str(path), "--measured", str(folder), "--kernel", "barriers", "--write"]
    assert main(command) == 0
    assert "2 parameters written, 0 were there" in capsys.readouterr().err.replace("\n", " ")
    assert load_gpu(path).warp_scheduler.gpu_fence_cycles == load_gpu("h100_sxm").warp_scheduler.gpu_fence_cycles
    assert main(command) == 0
    assert "0 parameters written, 2 were there" in capsys.readouterr().err.replace("\n", " ")


def test_a_fit_on_a_gpu_is_given_that_gpu(tmp_path: Path) -> None:
    """A share of the peak: half of the peak of each GPU gives 2.0 on both."""
    case = replace(chase(), fit=lambda rows, gpu: [
        Fitted(parameter="l1.hit_latency_cycles", value=float(rows[0]["cycles"]) / gpu.hbm.peak_gb_per_s, how="x")
    ] if rows else [])  # fmt: skip
    assert case.calibrates
    (found,) = calibrate([case], measured(tmp_path, ALTERNATING), TOY)
    assert found.after == 290.0 / TOY.hbm.peak_gb_per_s


def test_kernels_without_rows_are_named_with_the_command(tmp_path: Path) -> None:
    (sentence,) = unmeasured([chase()], tmp_path)
    assert sentence.endswith("no rows of 1 microbenchmarks, so nothing judges these; on that GPU: gpusim measure chase")
    assert unmeasured([chase()], measured(tmp_path, ALTERNATING)) == []


def test_what_nothing_settles_is_named_by_what_would() -> None:
    gpu = load_gpu("h100_sxm")
    found = unsettled(gpu)
    assert "hbm.latency_ns" in found["pointer_chase"] and "clock.fp32_pj_per_flop" in found["power_mma"]
    assert "hbm.latency_ns" not in unsettled(gpu, ["hbm.latency_ns"])["pointer_chase"]
    assert all(gpu.source_class(name) in ("inferred", "guess") for names in found.values() for name in names)


def test_a_plan_needs_no_gpu_and_counts_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is measured there yet: 162 configs of kernel_end, 0.1 s each."""
    assert main(["measure", "kernel_end", "--plan", "h100_sxm", "--out", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "kernel_end 162 0.3" in said and "h100_sxm: 162 configs are left to measure, about 0 minutes" in said
