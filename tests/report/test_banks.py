"""What is printed and drawn of bank conflicts says what was counted."""

from __future__ import annotations

import io
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpusim.errors import GpusimError
from gpusim.layout import Layout, Swizzle
from gpusim.report.banks import TURNS, banks_document, picture_lines, render_banks, swizzle_words, verdict_of
from gpusim.report.plots import banks as plots_banks
from gpusim.report.plots.banks import best_fix, plot_banks
from gpusim.report.plots.layouts import plot_layout
from gpusim.workload.dtypes import BF16, FP8, FP32
from gpusim.workload.smem.bank_conflict_fixes import Study, study
from gpusim.workload.smem.tile_access import TileAccess, smem_tile

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml"}


def ldmatrix(columns: int = 64, swizzle: Swizzle | None = None) -> Study:
    return study(TileAccess(op="ldmatrix_x4", tile=smem_tile(Layout((64, columns), (columns, 1)), BF16, swizzle)))


def printed(found: Study, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    render_banks(found, console, dtype_name="bf16", remarks=(), next_command=None)
    return console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


def test_the_picture_has_a_row_for_each_lane_and_a_digit_for_each_bank() -> None:
    found = ldmatrix().instructions[0]
    lines = [line.plain for line in picture_lines(found)]
    rows = {int(line.split()[0]): line[-39:].replace(" ", "") for line in lines[1:] if "phase" not in line}
    assert list(rows) == list(range(32))
    for lane, cells in rows.items():
        assert cells == "".join(TURNS[turn] for turn in found.turns[lane])
    assert sum("phase" in line for line in lines) == len(found.phases)
    header = lines[0]
    assert header.index("28") == lines[1].rindex(lines[1].split()[-1])


@pytest.mark.parametrize("columns", [64, 72])
def test_everything_fits_in_a_hundred_columns(columns: int) -> None:
    assert max(map(len, printed(ldmatrix(columns)).splitlines())) <= 100


def test_a_conflict_names_lanes_words_and_banks_and_what_mends_it() -> None:
    text = " ".join(printed(ldmatrix()).split())
    assert "8-way banks 0-3: lanes 0-7 want 4 words each, from 0, 32, .., 224" in text
    assert "Sw<3,3,3> in elements, Sw<3,4,3> in bytes (the 128B mode of TMA and wgmma): free at all 16 places" in text
    assert "8 elements more a row, (64,64):(72,1): free at all 16 places, 1,008 bytes more (12.3 %)" in text
    assert "32 wavefronts where 4 would do (8-way conflict)" in text


def test_colliding_groups_beyond_the_first_two_are_counted() -> None:
    """Rows of 32 bytes: 8 of them take every second 16 bytes, so that 4 groups of banks are wanted twice."""
    found = ldmatrix(16)
    assert [len(phase.collisions) for phase in found.instructions[0].phases] == [4] * 4
    assert printed(found).count("and 2 more groups of banks") == 4
    assert "more group" not in printed(ldmatrix(64))


def test_free_is_said_of_the_places_that_were_counted_and_of_no_others() -> None:
    lanes = Layout.parse("(4,8):(1@0,2@1)")
    tile = smem_tile(Layout((32, 64), (64, 1)), FP8)
    text = " ".join(printed(study(TileAccess(op="ld_shared_b16", tile=tile, threads=lanes))).split())  # type: ignore[arg-type]  # plain
    assert "32 places side by side: 64 wavefronts, 32 at best, so 32 bank conflicts at 32 of them" in text
    assert "Sw<1,4,3> in elements and in bytes (the 32B mode of TMA and wgmma): free at all 32 places" in text
    assert "everywhere" not in text


def test_what_runs_down_is_called_a_column() -> None:
    tile = smem_tile(Layout((64, 64), (1, 64)), BF16)
    text = " ".join(printed(study(TileAccess(op="ldmatrix_x4_trans", tile=tile))).split())
    assert "8 elements more a column, (64,64):(1,72)" in text
    assert "B and S from the column" in text


def test_the_rule_says_what_it_rests_on() -> None:
    found = ldmatrix()
    assert " ".join(found.access.rule.evidence.split()) in " ".join(printed(found).split())


def test_what_is_free_needs_no_swizzle_and_no_picture_of_a_mend() -> None:
    found = ldmatrix(72)
    assert verdict_of(found) == "ldmatrix_x4 takes 4 wavefronts, as few as it can: no swizzle needed"
    assert best_fix(found) is None
    assert verdict_of(ldmatrix(swizzle=Swizzle(3, 4, 3))).endswith("thanks to the swizzle")


def test_lanes_that_queue_for_a_word_are_not_blamed_on_the_layout() -> None:
    access = TileAccess(op="red_shared_add_b32", tile=smem_tile(Layout(64), FP32), threads=Layout(32, 0))
    assert verdict_of(study(access)).endswith("lanes queue for the same word, which no layout changes")


def test_a_swizzle_without_a_form_in_elements_says_so() -> None:
    assert "in elements none" in swizzle_words(smem_tile(Layout((8, 64), (64, 1)), BF16, Swizzle(1, 0, 5)))


def test_the_document_counts_as_the_study_does() -> None:
    found = ldmatrix()
    document = banks_document(found, dtype_name="bf16", remarks=["r"])
    (instruction,) = document["instructions"]
    assert instruction["num_wavefronts"] == sum(phase["num_wavefronts"] for phase in instruction["phases"]) == 32
    assert document["mends"]["swizzle"]["swizzle"] == {"elements": "Sw<3,3,3>", "bytes": "Sw<3,4,3>"}
    assert document["mends"]["padding"]["num_extra_bytes"] == 63 * 8 * 2


@pytest.mark.parametrize("suffix", MAGIC)
def test_banks_are_drawn_by_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    plot_banks(ldmatrix(), path)
    assert path.read_bytes().startswith(MAGIC[suffix])
    if suffix == ".svg":
        text = path.read_text()
        assert "as it is: 32 wavefronts, 4 at best: 8-way" in text
        assert "mended: 4 wavefronts, 4 at best: free" in text


def test_the_words_of_a_panel_do_not_touch_those_of_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(plots_banks, "picture_of", lambda figure, alt, path, dpi: drawn.append(figure))
    plot_banks(ldmatrix())
    (figure,) = drawn
    figure.draw_without_rendering()
    left, right = figure.axes
    phases = [words.get_window_extent().x1 for words in left.texts if words.get_text().startswith("phase")]
    places = [*right.get_yticklabels(), right.yaxis.label]
    gap = min(words.get_window_extent().x0 for words in places if words.get_text()) - max(phases)
    assert gap > figure.dpi / 72 * 10, "ten points"


def test_a_lane_is_drawn_in_the_colour_of_how_long_it_waits(tmp_path: Path) -> None:
    """A column of words: one lane is served at once, 1 waits for one wavefront, 2 for 2 or 3, 4 for 4 to 7, 24 for more."""
    access = TileAccess(op="ld_shared_b32", tile=smem_tile(Layout((32, 32), (32, 1)), FP32), threads=Layout(32, 1))
    found = replace(study(access), swizzle=None, padding=None)
    plot_banks(found, tmp_path / "x.svg")
    fills: Counter[str] = Counter()  # cells of a colour are one shape
    cells = re.compile(r'd="([^"]*)"[^>]*fill: (#[0-9a-f]{6})[^"]*stroke: #dddddd')
    for data, fill in cells.findall((tmp_path / "x.svg").read_text()):
        fills[fill] += data.count("z")
    fills.pop("#ffffff", None)
    assert sorted(fills.values()) == [1, 1, 2, 4, 24]


def test_layouts_are_drawn_by_suffix_and_large_ones_refused(tmp_path: Path) -> None:
    plot_layout(Layout((8, 8)), tmp_path / "x.png")
    plot_layout(Layout((8, 8)), tmp_path / "x.svg")
    assert (tmp_path / "x.png").read_bytes().startswith(MAGIC[".png"])
    assert (tmp_path / "x.svg").read_text().count("<rect") == 64
    with pytest.raises(GpusimError, match="use --slice"):
        plot_layout(Layout((512, 512)), tmp_path / "y.svg")
    assert not (tmp_path / "y.svg").exists()
