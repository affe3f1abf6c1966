"""``gpusim raster``: tables, JSON and picture; bad input costs a sentence and status 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusim.cli import main

GEMM = ["raster", "gemm", "--m", "512", "--n", "512", "--k", "256", "--tile", "64x64x64", "--gpu", "toy"]

BAD: list[tuple[list[str], str]] = [
    (["raster"], "a kernel with an order of tiles to choose is missing, known: gemm"),
    (["raster", "gem"], "did you mean 'gemm'?"),
    (GEMM[:-2], "--gpu is missing"),
    ([*GEMM, "--groups", "1,x"], "--groups '1,x' wants up to 16 numbers"),
    ([*GEMM, "--groups", ""], "--groups '' wants up to 16 numbers"),
    ([*GEMM, "--groups", "0"], "--groups '0' wants up to 16 numbers"),
    ([*GEMM, "--wave", "99"], "--wave 99: gemm has"),
    ([*GEMM, "--wave", "-1"], "--wave -1: gemm has"),
    ([*GEMM, "--l2", "hot"], "--l2 'hot' is unknown"),
    ([*GEMM, "--plot", "x.pdf"], "wants a name that ends in .png or .svg"),
    ([*GEMM, "--tile", "7"], "--tile"),
]


@pytest.mark.parametrize(("arguments", "says"), BAD)
def test_bad_input_costs_one_sentence(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err


def test_it_prints_grid_bytes_and_the_best_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main([*GEMM, "--groups", "1,2", "--wave", "1"]) == 0
    out = capsys.readouterr().out
    for word in ("wave 1:", "unique", "from memory", "along_m", "along_n", "Best: --raster "):
        assert word in out
    drawn = [line for line in out.splitlines() if line.startswith("│")]
    assert len(drawn) == 8
    assert all(len(line) == 10 for line in drawn)
    assert sum(character in "01" for line in drawn for character in line) == sum(line.count("·") for line in drawn)


def test_json_holds_tiles_bytes_and_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "raster.json"
    assert main([*GEMM, "--groups", "1,4", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert len(found["tiles"]) == found["tiles_at_once"]
    assert {item["tensor"] for item in found["bytes"]} == {"A", "B", "D"}
    assert [(item["direction"], item["group"]) for item in found["orders"]] == [
        ("along_m", 1), ("along_m", 4), ("along_n", 1), ("along_n", 4),
    ]  # fmt: skip
    capsys.readouterr()
    assert main([*GEMM, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["num_tiles"] == 64


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_picture_is_written_by_suffix(suffix: str, magic: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"raster{suffix}"
    assert main([*GEMM, "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(magic)


def test_a_large_grid_is_drawn_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([
        "raster", "gemm", "--m", "16384", "--n", "32768", "--k", "1024", "--gpu", "h200_sxm", "--groups", "8",
    ]) == 0  # fmt: skip
    drawn = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert len(drawn) <= 32
    assert max(map(len, drawn)) <= 98
