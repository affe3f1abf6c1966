"""``gpusim layout`` as somebody types it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gpusim import layout as cute
from gpusim.cli import main
from gpusim.cli.layout_operations import OPERATIONS, Unit, apply, parse_operand
from gpusim.errors import LayoutError
from gpusim.layout import Layout, Swizzle, parse_layout
from gpusim.layout.draw import COLORS
from gpusim.layout.int_tuple import show
from gpusim.report.layout_arguments import parse_any
from gpusim.report.layouts import facts_line, grid_lines, layout_facts

BAD: list[tuple[list[str], list[str]]] = [
    ([], ["EXPR is missing", "CuTe's notation"]),
    (["(4,8"], ["'(4,8'", "not closed"]),
    (["(4,8):(1)"], ["(4,8):(1)", "differ in profile"]),
    (["(4,x)"], ["no number at position 3"]),
    (["hello"], ["layout: 'hello': no layout at position 0", "use shape:stride"]),
    (["(8, 64):(64,1) o 4:2"], ["'(8, 64):(64,1) o 4:2': 'o 4:2' is left over at position 15: use --composition 4:2"]),
    (["(8,8):(8,1)o(2,4):(1,2)"], ["'o(2,4):(1,2)' is left over at position 11: use --composition '(2,4):(1,2)' of"]),
    (["8:1 o 0 o 8:1"], ["'o 0 o 8:1' is left over at position 4: use --composition LAYOUT"]),
    (["(64, 64) : (64, 1"], ["'(64, 64) : (64, 1': the parenthesis at position 11 is not closed"]),
    (["Sw<3,3,3> o 0 o (8, 8):(8, x)"], ["'Sw<3,3,3> o 0 o (8, 8):(8, x)': no number at position 27"]),
    (["Sw<3,4,3>_smem_ptr[16b] o 1 x o (8,8)"], ["the offset '1 x' is no number"]),
    (["(0,64):(64,1)"], ["gpusim: layout: shape (0,64): use one mode"]),
    (["(64,64):(64)"], ["gpusim: layout: (64,64):(64): shape and stride differ"]),
    (["(4,8)", "--composition", "<4:2, 8:x>"], ["--composition '<4:2, 8:x>': no number at position 8"]),
    (["(4,8)", "--composition", "(0, 4):(1, 2)"], ["--composition: shape (0,4): use"]),
    (["(4,8)", "--composition", "(4 8)"], ["--composition '(4 8)': '4 8' has a blank"]),
    (["(4,8)", "--coord", "(1,2,3)"], ["--coord (1,2,3) has 3 modes"]),
    (["(4,8)", "--tile-to-shape", "(8,8)", "--order", "(1, 0"], ["gpusim: --order '(1, 0': the parenthesis"]),
    (["Sw<3,3,3>"], ["is a swizzle alone", "o 0 o"]),
    (["Sw<3,3,3>", "--coalesce"], ["is a swizzle alone"]),
    (["Sw<3,3,2> o 0 o 64:1"], ["overlap"]),
    (["(4,8)", "--upcast", "x"], ["--upcast"]),
    (["(4,8)", "--upcast", "0"], ["--upcast '0' is no factor"]),
    (["(4,8)", "--zipped-divide"], ["--zipped-divide has no value"]),
    (["(4,8)", "--zipped-divid", "2"], ["did you mean '--zipped-divide'?"]),
    (["(4,8)", "--zipped-divide", "(2,2,2)"], ["3 modes"]),
    (["(4,8)", "--slice", "(1,2)"], ["fixes every mode", "offset 9"]),
    (["(8,8):(8,1)", "--slice", "(_,9)"], ["--slice (_,9) lies outside of (8,8):(8,1), wants coordinates below its shape"]),
    (["((2,4),8)", "--slice", "((_,4),_)"], ["--slice ((_,4),_) lies outside"]),
    (["Sw<3,3,3> o 0 o (8,64)", "--slice", "(8,_)"], ["--slice (8,_) lies outside"]),
    (["(16,16):(16,1)", "--slice", "(_,3)", "--upcast", "8"], ["starts at offset 3", "use --upcast before --slice"]),
    (["(4,8)", "--coord", "(5,1)"], ["--coord (5,1) lies outside"]),
    (["(4,8)", "--coalesce", "--complement", "24", "--complement", "3"], ["--complement is given 2 times"]),
    (["(4 8):(1 4)"], ["has a blank in a number"]),
    (["4:1@1000000000"], ["modes below 64"]),
    (["(" * 100 + "4" + ")" * 100], ["parentheses deep"]),
    (["9" * 3000 + ":1"], ["digits"]),
    (["Sw<3,3,3> o 0 o (4,8):(1@0,1@1)"], ["use integer strides"]),
    (["Sw<99,99,99> o 0 o 8:1"], ["use smaller numbers"]),
    (["Sw<3,3,3> o 999999999999999999 o (8,8):(999999999999999999,1)"], ["at most 62 bits"]),
    (["Sw<3,3,3> o 0 o 1000000000:1"], ["too many to look at each"]),
    (["(4,8):(8,1)", "--complement", "1@0"], ["use integers"]),
    (["(4,8)", "--rows", "1000000"], ["from 1 to 10000"]),
    (["(4,8)", "--rows", "0"], ["--rows 0"]),
    (["(4,8)", "--rows", "x"], ["--rows x wants a whole number from 1 to"]),
    (["(4.5,8):(8,1)"], ["4.5 is no integer"]),
    (["4,8:8,1"], ["parentheses are missing: use (4,8):(8,1)"]),
    (["64,64"], ["parentheses are missing: use (64,64)"]),
    (["(4,8)", "--zipped-divide", "2,4"], ["--zipped-divide '2,4'", "use (2,4)"]),
    (["Sw<3,3>o(8,64)"], ["'Sw<3,3>': a swizzle has three numbers"]),
    (["Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)", "--right-inverse"], ["counts bytes", "to_elements()"]),
    (["Sw<3,3,3> o 0 o (8,64)", "--composition", "Sw<3,3,3> o 0 o (8,64)"], ["Sw<3,3,3> o 0 o (8,64):(1,8): the right one"]),
    (["Sw<3,3,3> o 0 o (8,64)", "--composition", "Sw<3,3,3>"], ["goes before a plain layout"]),
    (["(4,8):(1@0,1@1)", "--composition", "Sw<1,0,2>"], ["yields coordinates"]),
    (["(8,64)", "--swizzle", "128B"], ["--swizzle 128B counts bytes", "--dtype"]),
    (["(8,64)", "--swizzle", "3,3"], ["--swizzle '3,3': use B,M,S"]),
    (["Sw<3,3,3> o 0 o (8,64):(64,1)", "--swizzle", "3,3,3"], ["has a swizzle already"]),
    (["(8,64)", "--order", "(1,0)"], ["--order (1,0) says how --tile-to-shape repeats"]),
    (["(8,64)", "--tile-to-shape", "(100,64)"], ["(8,64) does not divide (100,64)"]),
    (["(8,64)", "--swizze", "3,3,3"], ["did you mean '--swizzle'?"]),
    (["(8,64):(64,1)", "--dtype", "bf16", "--downcast", "3"], ["16 bits do not divide"]),
    (["Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)", "--downcast", "4"], ["no elements of full bytes", "at most 2"]),
    (["Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)", "--dtype", "fp32"], ["elements of 16 bits, --dtype 32"]),
    (["(4,8)", "--dtype", "bf17"], ["'bf17' is unknown", "did you mean 'bf16'?"]),
    (["(512,512)", "--plot", "x.svg"], ["262144 cells", "--slice"]),
    (["(4,8)", "--plot", "x.pdf"], ["--plot 'x.pdf' ends in '.pdf'"]),
    (["(4,8)", "(8,4)", "--plot", "x.svg"], ["draws one layout"]),
    (["(4,8)", "--thread-values", "(4,8)"], ["--thread-values (4,8) says what --plot and --latex draw"]),
    (["SM80_16x8x16_F32BF16BF16F32_NT"], ["is unknown; did you mean 'SM80_16x8x16_F32BF16BF16F32_TN'?"]),
    (["SM90_TMA_LOAD"], ["it moves boxes, and threads have no elements"]),
    (["ldmatrix_x4", "--coalesce"], ["--coalesce is of layouts, ldmatrix_x4 is an atom; leave it out"]),
    (["SM80_16x8x8_F32F16F16F32_TN", "--dtype", "bf16"], ["--dtype is of layouts"]),
    (["ldmatrix_x4", "(4,8)"], ["ldmatrix_x4 and (4,8): an atom is shown alone"]),
    (["wgmma_m64n256k16_bf16_ss", "--latex", "x.txt"], ["--latex 'x.txt' ends in '.txt'"]),
    (["(4,8)", "(2,2)", "--latex", "x.tex"], ["--latex draws one layout, 2 are given"]),
    (["(4,8)", "--thread-values", "(4,x)", "--plot", "x.svg"], ["--thread-values '(4,x)'"]),
    (["(4,8)", "--thread-values", "(4,_)", "--plot", "x.svg"], ["no shape of rows and columns, for example (16,8)"]),
    (["(4,8)", "--thread-values", "(2,4)", "--plot", "x.svg"], ["use its tile"]),
    (["(4,2,4)", "--thread-values", "(4,8)", "--plot", "x.svg"], ["wants two modes, and no swizzle"]),
    (["(4,8)", "--json", "x.svg", "--plot", "x.svg"], ["is the file of"]),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(arguments)[-40:] or "none" for arguments, _ in BAD])
def test_bad_input_costs_one_sentence_and_status_two(
    arguments: list[str], said: list[str], refuses: Callable[[Sequence[str], Sequence[str]], None]
) -> None:
    refuses(["layout", *arguments], said)


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["layout", *arguments, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def shown(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["layout", *arguments]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 120
    return out


ARGUMENTS = {
    "composition": "(2,4):(4,1)", "coalesce_by": "(1,1)", "complement": "64", "logical_divide": "(2,4)",
    "zipped_divide": "(2,4)", "tiled_divide": "(2,4)", "flat_divide": "(2,4)", "logical_product": "(3,4)",
    "zipped_product": "(3,4)", "tiled_product": "(3,4)", "flat_product": "(3,4)", "blocked_product": "(3,4):(1,3)",
    "raked_product": "(3,4):(1,3)", "upcast": "2", "downcast": "2", "slice": "(_,3)", "swizzle": "1,0,3",
    "tile_to_shape": "(8,16)",
}  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_gives_what_the_algebra_gives(operation: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = ARGUMENTS.get(operation.name)
    assert (text is None) == (operation.wants == "")
    found = document(["(4,8):(8,1)", operation.flag, *([] if text is None else [text])], capsys)
    layout = Layout((4, 8), (8, 1))
    if operation.name == "slice":
        expected = layout(None, 3)
    elif operation.name == "swizzle":
        expected = cute.composition(Swizzle(1, 0, 3), layout)
    elif text is None:
        expected = getattr(cute, operation.name)(layout)
    else:
        argument = parse_layout(text) if ":" in text else cute.parse_int_tuple(text)
        expected = getattr(cute, operation.name.removesuffix("_by"))(layout, argument)
    assert found["result"]["layout"] == str(expected)
    assert found["input"]["layout"] == "(4,8):(8,1)"
    assert found["operations"][0]["name"] == operation.name


def test_operations_are_done_in_the_order_in_which_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    first = document(["(8,8):(8,1)", "--upcast", "2", "--zipped-divide", "(2,2)"], capsys)
    second = document(["(8,8):(8,1)", "--zipped-divide", "(2,2)", "--upcast", "2"], capsys)
    layout = Layout((8, 8), (8, 1))
    assert first["result"]["layout"] == str(cute.zipped_divide(cute.upcast(layout, 2), (2, 2)))
    assert second["result"]["layout"] == str(cute.upcast(cute.zipped_divide(layout, (2, 2)), 2))
    assert first["result"]["layout"] != second["result"]["layout"]


def test_a_tiler_is_a_shape_a_layout_or_one_a_mode() -> None:
    assert parse_operand("(32,8)", "--x") == (32, 8)
    assert parse_operand("4", "--x") == 4
    assert parse_operand("4:2", "--x") == Layout(4, 2)
    assert parse_operand("(32,8):(8,1)", "--x") == Layout((32, 8), (8, 1))
    assert parse_operand("<4:2, (2,2):(1,8)>", "--x") == (Layout(4, 2), Layout((2, 2), (1, 8)))
    assert parse_operand("(4:2,_)", "--x") == (Layout(4, 2), None)
    assert parse_operand("Sw<3,3,3>", "--x") == Swizzle(3, 3, 3)


def test_a_layout_given_as_tiler_is_pointed_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(["(128,64):(64,1)", "--zipped-divide", "(32,8):(8,1)"], capsys, monkeypatch)
    assert "divides the flattened layout" in text
    assert "use the shape (32,8), which gives ((32,8),(4,8)):((64,1),(2048,8))" in text
    assert "gives (((16,2),8),32):(((512,1),64),2)" in text
    plain = shown(["(128,64):(64,1)", "--zipped-divide", "(32,8)"], capsys, monkeypatch)
    assert "gives ((32,8),(4,8)):((64,1),(2048,8))" in plain
    assert "flattened" not in plain


def test_facts_are_those_of_the_layout(capsys: pytest.CaptureFixture[str]) -> None:
    facts = document(["(4,(2,3)):(6,(3,1))"], capsys)["result"]
    assert (facts["size"], facts["cosize"], facts["rank"], facts["depth"]) == (24, 24, 2, 2)
    assert (facts["is_injective"], facts["is_compact"]) == (True, True)
    assert facts["offsets"] == [Layout((4, (2, 3)), (6, (3, 1)))(i) for i in range(24)]
    holes = document(["(4,8):(16,1)"], capsys)["result"]
    assert (holes["cosize"], holes["is_injective"], holes["is_compact"]) == (56, True, False)
    overlap = document(["(4,8):(1,2)"], capsys)["result"]
    assert (overlap["is_injective"], overlap["is_compact"]) == (False, False)


def test_a_swizzle_is_shown_in_both_units(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    in_elements = document(["Sw<3,3,3> o 0 o (8,64):(64,1)", "--dtype", "bf16"], capsys)["result"]
    in_bytes = document(["Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)"], capsys)["result"]
    assert in_elements["swizzle"] == in_bytes["swizzle"] == {"elements": "Sw<3,3,3>", "bytes": "Sw<3,4,3>"}
    assert (in_elements["cosize"], in_elements["unit"]) == (512, "elements")
    assert (in_bytes["cosize"], in_bytes["unit"]) == (1024, "bytes")
    assert in_elements["is_compact"] and in_bytes["is_compact"]
    assert [2 * offset for offset in in_elements["offsets"]] == in_bytes["offsets"]
    assert "in bytes: the same swizzle" in shown(["Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)"], capsys, monkeypatch)


def test_a_swizzle_of_bytes_is_said_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for layout in ("Sw<2,4,3> o 0 o (8,64):(64,1)", "Sw<2,4,3>_smem_ptr[8b] o (8,64):(64,1)"):
        text = shown([layout, "--dtype", "fp8"], capsys, monkeypatch)
        assert "swizzle      Sw<2,4,3>  in elements and in bytes" in text
        assert "the same swizzle" not in text


def test_what_is_said_of_injective_and_compact_is_the_case(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for layout in ("(4,8):(8,1)", "(4,8):(16,1)", "(4,8):(1,2)"):
        lines = [line.split(maxsplit=2) for line in shown([layout], capsys, monkeypatch).splitlines()]
        found[layout] = [f"{line[1]}: {line[2].strip()}" for line in lines if line and line[0] in ("injective", "compact")]
    assert found["(4,8):(8,1)"] == [
        "yes: no two coordinates share an offset", "yes: injective, and no offset below the cosize is free",
    ]  # fmt: skip
    assert found["(4,8):(16,1)"] == [
        "yes: no two coordinates share an offset", "no: some offset below the cosize is free",
    ]  # fmt: skip
    assert found["(4,8):(1,2)"] == ["no: some coordinates share an offset", "no: not injective"]


def test_the_usage_has_one_ellipsis(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["layout", "--help"]) == 0
    (usage,) = (line for line in capsys.readouterr().out.splitlines() if "Usage:" in line)
    assert usage.split() == ["Usage:", "gpusim", "layout", "[OPTIONS]", "{EXPR}..."]


def test_a_swizzle_on_the_right_says_how_it_is_put_on_the_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(["(8,64):(64,1)", "--composition", "Sw<3,3,3>"], capsys, monkeypatch)
    assert "gpusim layout 'Sw<3,3,3> o 0 o (8,64):(64,1)'" in text
    left = document(["Sw<3,3,3>", "--composition", "(8,64):(64,1)"], capsys)
    assert left["result"]["layout"] == "Sw<3,3,3> o 0 o (8,64):(64,1)"


def test_what_is_cut_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(["(128,64):(64,1)", "--rows", "4"], capsys, monkeypatch)
    assert "cut to 4 of 128 rows, 16 of 64 columns: --rows 128, a wider terminal or --slice shows more" in text
    assert "... and 8188 more coordinates: --rows 8192 shows all" in text
    whole = shown(["(4,8):(8,1)", "--rows", "32"], capsys, monkeypatch)
    assert "cut to" not in whole
    assert "more coordinates" not in whole
    huge = document(["(4096,4096)"], capsys)["result"]
    assert (huge["offsets"], huge["num_offsets_left_out"]) == (None, 4096 * 4096)


def test_after_upcast_bytes_captions_and_colours_are_those_of_the_wider_element(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """8 of bf16 are 16 bytes: every offset is a bank group of its own."""
    picture = tmp_path / "x.svg"
    wide = ["(8,64):(64,1)", "--dtype", "bf16", "--upcast", "8"]
    text = shown([*wide, "--plot", str(picture)], capsys, monkeypatch)
    assert "offsets in elements of 128 bits" in text
    assert "cosize       64     elements of 128 bits" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "(1,0)", "8", "128"] in rows
    svg = picture.read_text()
    assert "offsets in elements of 128 bits" in svg
    cells = [line for line in svg.splitlines() if line.startswith("<rect")]
    assert [cell.split('fill="')[1][:7] for cell in cells[:8]] == list(COLORS)
    facts = document(wide, capsys)["result"]
    assert (facts["element_bits"], facts["unit"]) == (128, "elements of 128 bits")
    back = document([*wide, "--downcast", "8"], capsys)["result"]
    assert (back["element_bits"], back["unit"], back["layout"]) == (16, "elements", "(8,64):(64,1)")
    assert document(["(8,64):(64,1)", "--upcast", "8"], capsys)["result"]["unit"] == "units of 8 elements"
    assert document([*wide[:3], "--downcast", "4"], capsys)["result"]["element_bits"] == 4
    inverse = document([*wide[:3], "--left-inverse"], capsys)["result"]
    assert (inverse["element_bits"], inverse["unit"]) == (None, "indices")


def test_a_swizzle_of_bytes_stays_when_its_elements_change(capsys: pytest.CaptureFixture[str]) -> None:
    tile = "Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)"
    assert document([tile, "--upcast", "8"], capsys)["result"]["layout"] == "Sw<3,4,3>_smem_ptr[128b] o (8,8):(8,1)"
    assert document([tile, "--downcast", "2"], capsys)["result"]["layout"] == "Sw<3,4,3>_smem_ptr[8b] o (8,128):(128,1)"


def test_a_swizzle_is_put_over_a_layout_by_numbers_or_by_mode(capsys: pytest.CaptureFixture[str]) -> None:
    tile = ["(8,64):(64,1)", "--dtype", "bf16"]
    for text in ("3,3,3", "128B"):
        found = document([*tile, "--swizzle", text], capsys)
        assert found["result"]["layout"] == "Sw<3,3,3> o 0 o (8,64):(64,1)"
        assert found["result"]["swizzle"] == {"elements": "Sw<3,3,3>", "bytes": "Sw<3,4,3>"}
        assert found["operations"][0]["remarks"] == []
    (remark,) = document([*tile, "--swizzle", "3,4,3"], capsys)["operations"][0]["remarks"]
    assert remark == cute.units_remark("3,4,3", 16)
    assert document([*tile, "--upcast", "8", "--swizzle", "128B"], capsys)["result"]["swizzle"] == {
        "elements": "Sw<3,0,3>", "bytes": "Sw<3,4,3>",
    }  # fmt: skip
    assert document([*tile, "--swizzle", "none"], capsys)["result"]["swizzle"] == {"elements": "none", "bytes": "none"}


def test_a_layout_is_tiled_to_a_shape_in_an_order(capsys: pytest.CaptureFixture[str]) -> None:
    block = ["(8,64):(64,1)", "--swizzle", "3,3,3", "--tile-to-shape", "(128,128)"]
    atom = parse_layout("Sw<3,3,3> o 0 o (8,64):(64,1)")
    for order, more in (((0, 1), []), ((0, 1), ["--order", "(0,1)"]), ((1, 0), ["--order", "(1,0)"])):
        expected = str(cute.tile_to_shape(atom, (128, 128), order))
        assert document([*block, *more], capsys)["result"]["layout"] == expected


def test_what_came_out_is_the_last_line_and_the_input_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(["(4,8):(8,1)", "--zipped-divide", "(2,4)", "--coord", "3"], capsys, monkeypatch).splitlines()
    assert lines[0] == "layout  (4,8):(8,1)  4 x 8 coordinates, cosize 32, injective, compact"
    assert lines[-1] == "Result: ((2,4),(2,2)):((8,1),(16,4))"
    assert sum(line.startswith(" 0 |") for line in lines) == 1  # one picture
    assert not any(line.startswith("Result") for line in shown(["(4,8)"], capsys, monkeypatch).splitlines())


def test_a_slice_says_where_it_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Column 3 of 16 x 16 in rows: 3, 19, 35, ..."""
    picture = tmp_path / "x.svg"
    column = ["(16,16):(16,1)", "--slice", "(_,3)"]
    text = shown([*column, "--dtype", "bf16", "--coord", "2", "--plot", str(picture)], capsys, monkeypatch)
    assert "slice (_,3) gives (16):(16) from offset 3 on" in text
    assert "Result: (16):(16) from offset 3 on" in text
    assert "2 lies at offset 35" in text
    rows = [line.split() for line in text.splitlines()]
    assert next(row for row in rows if row[1:2] == ["|"])[:8] == ["0", "|", "3", "|", "19", "|", "35", "|"]
    assert ["2", "(2)", "35", "70"] in rows
    svg = picture.read_text()
    assert "(16):(16) from offset 3 on" in svg
    assert [f">{offset}<" in svg for offset in (3, 19, 243, 16)] == [True, True, True, False]
    found = document(column, capsys)
    assert (found["operations"][0]["result"], found["operations"][0]["start_offset"]) == ("(16):(16)", 3)
    assert (found["result"]["layout"], found["result"]["start_offset"]) == ("(16):(16)", 3)
    assert found["result"]["offsets"] == [16 * row + 3 for row in range(16)]
    assert document(["(16,16):(16,1)", "--slice", "(_,0)"], capsys)["result"]["start_offset"] == 0
    assert document(["(4,8):(1@0,1@1)", "--slice", "(_,3)"], capsys)["result"]["offsets"][1] == "(1,3)"


def test_the_start_of_a_slice_stays_through_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    """Plane 1 of (4,8,2):(8,1,32), then row 2 of it: 48 to 55."""
    tile = ["(4,8,2):(8,1,32)", "--slice", "(_,_,1)"]
    assert document([*tile, "--coalesce"], capsys)["result"]["offsets"][:2] == [32, 40]
    assert document([*tile, "--zipped-divide", "(2,4)"], capsys)["result"]["offsets"][:3] == [32, 40, 33]
    wide = document([*tile, "--upcast", "4"], capsys)["result"]
    assert (wide["layout"], wide["start_offset"], wide["offsets"][:2]) == ("(4,2):(2,1)", 8, [8, 10])
    over = document([*tile, "--swizzle", "1,0,5"], capsys)["result"]
    assert (over["layout"], over["start_offset"]) == ("Sw<1,0,5> o 32 o (4,8):(8,1)", 0)
    assert over["offsets"] == [offset ^ 1 for offset in document(tile, capsys)["result"]["offsets"]]
    inverse = document([*tile, "--right-inverse"], capsys)
    assert (inverse["result"]["start_offset"], inverse["result"]["offsets"][0]) == (0, 0)
    (remark,) = inverse["operations"][1]["remarks"]
    assert remark == "right_inverse is that of the layout alone: its start at offset 32 is left out"


def test_before_the_swizzle_a_slice_has_its_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 1 of 8 x 64 starts at 64, and the swizzle moves that to 72."""
    text = shown(["Sw<3,3,3> o 0 o (8,64):(64,1)", "--slice", "(1,_)"], capsys, monkeypatch)
    assert ["0", "(0)", "64", "72"] in [line.split() for line in text.splitlines()]


@pytest.mark.parametrize(("arguments", "remark"), [
    (["--zipped-divide", "(16,8)"], "the tile 16 is larger than mode 0, which has 8"),
    (["--logical-divide", "(_,128)"], "the tile 128 is larger than mode 1, which has 64"),
    (["--flat-divide", "<8:1,16:8>"], "the tile 16:8 reaches 120, beyond mode 1, which has 64"),
    (["--tiled-divide", "1024"], "the tile 1024 is larger than the layout, which has 512"),
    (["--composition", "1024:1"], "1024:1 reaches 1023, beyond the layout, which has 512"),
])  # fmt: skip
def test_a_tile_larger_than_its_mode_is_remarked(
    arguments: list[str], remark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(["(8,64):(64,1)", *arguments], capsys)["operations"][0]
    assert found["remarks"] == [f"{remark}: offsets run on past its end, as CuTe's do"]


@pytest.mark.parametrize("arguments", [
    ["--zipped-divide", "(8,64)"], ["--logical-divide", "(_,64)"], ["--flat-divide", "<8:1,8:8>"],
    ["--composition", "512:1"], ["--composition", "<8,32:2>"], ["--logical-product", "(16,16)"],
])  # fmt: skip
def test_a_tile_as_large_as_its_mode_is_not_remarked(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert document(["(8,64):(64,1)", *arguments], capsys)["operations"][0]["remarks"] == []


def test_a_swizzle_that_moves_nothing_is_remarked(capsys: pytest.CaptureFixture[str]) -> None:
    """128B of bf16 reads bits 6 to 8 of the offset in elements: 64 offsets have none of them, one more has."""
    for layout, is_remarked in (("(8,8):(8,1)", True), ("65:1", False), ("(8,64):(64,1)", False)):
        found = document([layout, "--dtype", "bf16", "--swizzle", "128B"], capsys)
        offsets = found["result"]["offsets"]
        assert (offsets == document([layout], capsys)["result"]["offsets"]) == is_remarked
        remark = "Sw<3,3,3> moves nothing here: it reads bits of offsets from 64 on, and the largest offset is 63"
        assert found["operations"][0]["remarks"] == ([remark] if is_remarked else [])
    assert document(["(8,8)", "--dtype", "bf16", "--swizzle", "none"], capsys)["operations"][0]["remarks"] == []
    row = ["(8,64):(64,1)", "--dtype", "bf16", "--slice", "(1,_)", "--swizzle", "128B"]
    assert document(row, capsys)["operations"][1]["remarks"] == []


CARRIERS = [
    "(8,64):(64,1)", "Sw<3,3,3> o 0 o (8,64):(64,1)", "Sw<3,3,3> o 64 o (8,64):(64,1)", "(4,8):(1@0,1@1)",
    "Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)", "Sw<0,4,3>_smem_ptr[8b] o ((8,2),16):((16,128),1)",
]  # fmt: skip


LARGE = "(8,60):(1,999999999999999999)"
"""Its offsets fit no array's integers."""


@pytest.mark.parametrize("text", [*CARRIERS, LARGE, "7", "(4,8):(-3,20)", "Sw<3,3,3> o 0 o (8,8):(1,99999999999999999)"])
def test_offsets_are_those_of_each_coordinate(text: str) -> None:
    layout = parse_any(text, "layout")
    one_by_one = [layout(index) for index in range(layout.size)]
    found = layout_facts(layout)["offsets"]
    assert found == (list(map(show, one_by_one)) if "@" in text else one_by_one)
    assert {type(offset) for offset in found} == {str if "@" in text else int}


ANY_ARGUMENT = [
    "2", "_", "(2,4)", "4:2", "<4:2,_>", "(_,3)", "(_,(9,_))", "(2,4):(4,1)", "(2,4):(1@1,1@0)", "Sw<3,3,3>", "(8,64,2)",
    "Sw<3,3,3> o 0 o (8,64)", "Sw<3,4,3>_smem_ptr[16b] o (8,8)", "(1,(1,1))", "1,2", "128B", "1,0,3", "Sw<1,0,2>", "0",
]  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_on_any_kind_of_layout_answers_or_refuses_in_one_sentence(operation: Any) -> None:
    refused: list[str] = []
    for carrier, bits in product(CARRIERS, (None, 16)):
        for argument in ANY_ARGUMENT if operation.wants else (True,):
            layout = parse_any(carrier, "layout")
            try:
                step = apply(operation, layout, argument, Unit(bits=bits))
            except LayoutError as error:
                refused.append(str(error))
                continue
            facts = layout_facts(step.result, step.unit.element_bits, step.unit.words)
            assert facts["size"] == step.result.size
            assert facts_line(step.result).startswith(str(step.result))
            assert grid_lines(step.result, max_rows=2, width=80)
    assert not [sentence for sentence in refused if any(word in sentence for word in ("Layout(", "Swizzle(", "E("))]


def test_coordinates_are_evaluated_and_several_layouts_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert document(["(4,8):(8,1)", "--coord", "(1,2)", "--coord", "9"], capsys)["coordinates"] == [
        {"coordinate": "(1,2)", "offset": 10}, {"coordinate": "9", "offset": 10},
    ]  # fmt: skip
    assert [one["result"]["layout"] for one in document(["(4,8)", "8:2"], capsys)] == ["(4,8):(1,4)", "8:2"]


@pytest.mark.parametrize(("suffix", "magic"), [(".svg", b"<svg"), (".png", b"\x89PNG")])
def test_the_result_is_drawn_by_suffix(suffix: str, magic: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    assert main(["layout", "Sw<2,3,3> o 0 o (8,32):(32,1)", "--dtype", "bf16", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(magic)


def test_threads_and_values_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    assert main(["layout", "((4,8),(2,2)):((32,1),(16,8))", "--thread-values", "(16,8)", "--plot", str(path)]) == 0
    assert "Which of 32 threads holds which element of a tile of 16 x 8" in path.read_text()


@pytest.mark.parametrize("text", ["100000000:0", "(10000,10000):(1,2)", "(2000,2000):(1,2)", "(1000,1000,1000)"])
def test_large_layouts_are_answered_by_rule(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", text]) == 0
    assert "--slice shows others" in capsys.readouterr().out


CUTE_PRINTS = {
    "SM80_16x8x16_F32BF16BF16F32_TN": "9bf526c62b2a1747", "SM80_8x8x4_F64F64F64F64_TN": "0eeadaeb75a86d3b",
    "(4,8):(8,1)": "11b248a1b1ef001d", "8:1": "8ed1d86bfe556821",
}  # fmt: skip
"""The first digits of SHA-256 of the sorted lines, but comments, that ``print_latex`` of CUTLASS 4.2 prints."""


@pytest.mark.parametrize(("text", "digest"), CUTE_PRINTS.items())
def test_the_lines_of_a_latex_picture_are_those_of_cute(text: str, digest: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tex"
    assert main(["layout", text, "--latex", str(path)]) == 0
    lines = sorted(line for line in path.read_text().splitlines() if line and not line.startswith("%"))
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] == digest


def test_an_atom_is_shown_with_threads_and_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.svg"
    assert main(["layout", "SM80_16x8x16_F32BF16BF16F32_TN", "--rows", "2", "--plot", str(path)]) == 0
    text = capsys.readouterr().out
    assert "C: thread and value of 16 x 8 elements, by ((4,8),(2,2)):((32,1),(16,8))" in text
    assert "B: thread and value of 16 x 8 elements" in text
    assert "Threads and values of C: 16 x 8, A: 16 x 16, B: 16 x 8" in path.read_text()
    found = document(["mma_sync_m16n8k16_bf16_fp32"], capsys)
    c, a, b = found["operands"]
    assert [len(one["cells"]) for one in (c, a, b)] == [128, 256, 128]
    assert [9, 3, 5, 3] in c["cells"]  # row 9, column 3: lane 5 has it as its last value
    assert [3, 7, 29, 1] in b["cells"]  # k 3, column 7


def test_operands_of_wgmma_in_shared_memory_are_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", "SM90_64x128x16_F32F16F16_SS", "--rows", "1"]) == 0
    text = capsys.readouterr().out
    assert "B: each thread accesses all 16 x 128 elements in shared memory" in text
    assert "63 more rows, 112 more columns" in text
