"""``gpusim banks`` as somebody types it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpusim.cli import main
from gpusim.workload.smem.smem_ops import smem_op_families

TILE = ["banks", "--layout", "(64,64):(64,1)", "--dtype", "bf16"]
LDMATRIX = [*TILE, "--access", "ldmatrix_x4"]

BAD: list[tuple[list[str], list[str]]] = [
    (["banks"], ["--layout is missing"]),
    (TILE, ["--access is missing"]),
    (["banks", "--layout", "(64,64", "--dtype", "bf16", "--access", "ldmatrix_x4"], ["--layout:", "not closed"]),
    (["banks", "--layout", "(64,64):(64,1", "--dtype", "bf16", "--access", "ldmatrix_x4"],
     ["gpusim: --layout: '(64,64):(64,1': the parenthesis at position 8 is not closed"]),
    (["banks", "--layout", "(0,64):(64,1)", "--dtype", "bf16", "--access", "ldmatrix_x4"],
     ["gpusim: --layout: shape (0,64): use one mode or more"]),
    (["banks", "--layout", "(64,64):(64)", "--dtype", "bf16", "--access", "ldmatrix_x4"],
     ["gpusim: --layout: (64,64):(64): shape and stride differ"]),
    ([*LDMATRIX, "--threads", "32 : 1)"], ["gpusim: --threads: '32 : 1)': ')' is left over at position 6: remove it"]),
    ([*TILE[:-1], "bf17", "--access", "ldmatrix_x4"], ["'bf17' is unknown", "did you mean 'bf16'?"]),
    ([*TILE, "--access", "ldmatrix_x5"], ["--access 'ldmatrix_x5' is unknown", "did you mean", "'ldmatrix_x4'?"]),
    ([*TILE, "--access", "ld_shared"], ["--access 'ld_shared' is unknown; use ld_shared_b8|b16|b32|b64|b128"]),
    ([*TILE, "--access", "red_shared_add_b32"], ["is of integers, --dtype bf16 is not; use red_shared_add_f32"]),
    ([*TILE, "--access", "atom_shared_add_f32"], ["is of fp32, --dtype is bf16; use --dtype fp32"]),
    ([*TILE, "--access", "atom_shared_add"], ["use atom_shared_add_b32|b64|f32"]),
    ([*LDMATRIX, "--swizzle", "3,2,3"], ["Sw<3,2,3> in elements, Sw<3,3,3> in bytes tears apart", "M >= 3 in elements"]),
    ([*LDMATRIX, "--threads", "16:1"], ["use a layout of 32 lanes"]),
    ([*LDMATRIX, "--access", "ldmatrix_x2", "--threads", "32:1"], ["--threads is given once, --access 2 times"]),
    ([*LDMATRIX, "--threads", "32:1", "--threads", "32:1"], ["--threads is given 2 times, --access once"]),
    ([*LDMATRIX, "--threads", "(32,1000000):(1,0)"], ["32000000 lanes", "use at most 1024"]),
    ([*LDMATRIX, "--threads", "32:1@1000000000"], ["--threads"]),
    (["banks", "--layout", "(100000000,64):(0,1)", *LDMATRIX[3:]], ["6400000000 coordinates", "use a tile"]),
    (["banks", "--layout", "Sw<0,3,3> o 1000000000 o (64,64):(64,1)", *LDMATRIX[3:]], ["more than any SM has"]),
    ([*LDMATRIX, "--gpu", "toy"], ["--gpu is unknown; --help lists the options"]),
    ([*TILE, "--access", "zzz"], ["--access 'zzz' is unknown", "ldmatrix", "ld_shared"]),
    ([*LDMATRIX, "--swizzle", "3,3"], ["--swizzle '3,3': use B,M,S", "3,3,3"]),
    ([*LDMATRIX, "--swizzle", "128"], ["--swizzle '128': use B,M,S", "did you mean '128B'?"]),
    ([*LDMATRIX, "--swizzle", "3,3,1"], ["--swizzle", "overlap"]),
    ([*LDMATRIX, "--swizzle", "3,0,3"], ["tears apart"]),
    ([*LDMATRIX, "--at", "(0,4)"], ["byte 8", "no multiple of 16"]),
    ([*LDMATRIX, "--at", "(64,0)"], ["start (64,0) lies outside"]),
    ([*LDMATRIX, "--at", "(0,-8)"], ["outside"]),
    ([*LDMATRIX, "--at", "0"], ["--at '0' is no coordinate", "(0,16)"]),
    ([*LDMATRIX, "--at", "(a,b)"], ["--at '(a,b)' is no coordinate"]),
    ([*LDMATRIX, "--threads", "32:64:1"], ["--threads: '32:64:1': ':1' is left over at position 5"]),
    ([*LDMATRIX, "--threads", "8:1"], ["8", "32 lanes"]),
    ([*LDMATRIX, "--threads", "Sw<1,3,3> o 0 o 32:1"], ["--threads", "has a swizzle"]),
    (["banks", "--layout", "Sw<3,3,3> o 0 o (64,64):(64,1)", "--dtype", "bf16", "--access", "ldmatrix_x4", "--swizzle",
      "128B"], ["two", "give one"]),
    (["banks", "--layout", "(8,64):(64,1)", "--dtype", "bf16", "--access", "ldmatrix_x4"], ["outside of a tile"]),
    ([*TILE, "--access", "ld_shared_b8"], ["ld_shared_b8 moves 1 byte, less than an element of 2 bytes"]),
    (["banks", "--layout", "(64,64):(64,1)", "--dtype", "fp8", "--access", "ldmatrix_x4", "--swizzle", "3,3,3"],
     ["which Sw<3,3,3> in bytes tears apart: use a swizzle that keeps 16 bytes whole: M >= 4 in bytes"]),
    ([*LDMATRIX, "--sources", "32:8"], ["ldmatrix_x4 is given sources, which only cp.async has"]),
    ([*TILE, "--access", "cp_async_b128", "--sources", "16:8"], ["sources 16:8 are no elements of 32 lanes"]),
    ([*TILE, "--access", "cp_async_b128", "--sources", "32:1"], ["sources: lane 1 has byte address 2"]),
    ([*TILE, "--access", "cp_async_b128", "--sources", "32:8", "--sources", "_"], ["--sources is given 2 times"]),
    ([*TILE, "--access", "SM75_U32x3_LDSM_N"], ["--access 'SM75_U32x3_LDSM_N' is unknown; did you mean 'SM75_U32x"]),
    ([*TILE, "--access", "SM90_TMA_LOAD"], ["is tma_load, whose lanes address no shared memory"]),
    ([*LDMATRIX, "--json", "no/such/x.json"], ["--json"]),
    ([*LDMATRIX, "--plot", "x.pdf"], ["--plot 'x.pdf' ends in '.pdf'"]),
    ([*LDMATRIX, "--plot", "x.png", "--json", "x.png"], ["is the file of"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(arguments)[-40:] for arguments, _ in BAD])
def test_bad_input_costs_one_sentence_and_status_two(
    arguments: list[str], said: list[str], refuses: Callable[[Sequence[str], Sequence[str]], None]
) -> None:
    refuses(arguments, said)


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main([*arguments, "--json", "-"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_three_ways_to_say_the_128_byte_mode_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    ways = [
        [*LDMATRIX, "--swizzle", "3,3,3"], [*LDMATRIX, "--swizzle", "128B"], [*LDMATRIX, "--swizzle", "Sw<3,3,3>"],
        ["banks", "--layout", "Sw<3,3,3> o 0 o (64,64):(64,1)", *LDMATRIX[3:]],
        ["banks", "--layout", "Sw<3,4,3>_smem_ptr[16b] o (64,64):(64,1)", *LDMATRIX[3:]],
    ]  # fmt: skip
    found = [document(way, capsys) for way in ways]
    assert all(one == found[0] for one in found)
    assert found[0]["swizzle"] == {"elements": "Sw<3,3,3>", "bytes": "Sw<3,4,3>"}
    assert found[0]["remarks"] == []


def test_bytes_typed_as_elements_are_counted_as_asked_and_remarked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LDMATRIX, "--swizzle", "3,4,3"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "2-way" in text
    assert "Remark: Sw<3,4,3> counts elements here and is Sw<3,5,3> in bytes: it is not the 128B mode" in text


def test_a_swizzle_of_bytes_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    tile = ["banks", "--layout", "(64,64):(64,1)", "--dtype", "fp8", "--access", "ld_shared_b8"]
    assert main([*tile, "--swizzle", "2,4,3"]) == 0
    said = capsys.readouterr().out
    assert "Sw<2,4,3> in elements and in bytes (the 64B mode of TMA and wgmma)" in said
    assert "ld_shared_b8: 1 byte (1 element) with each address" in said


def test_the_next_command_is_free_of_conflicts(capsys: pytest.CaptureFixture[str]) -> None:
    odd = ["banks", "--layout", "(32,32):(32,1)", "--dtype", "fp32", "--access", "ld_shared_b32", "--threads", "32:1@0"]
    for arguments in (LDMATRIX, [*LDMATRIX, "--at", "(16,16)"], odd):
        assert main(arguments) == 0
        following = capsys.readouterr().out.strip().splitlines()[-1]
        assert following.startswith("Next: gpusim banks ")
        found = document(shlex.split(following)[2:], capsys)
        assert found["side_by_side"]["num_tiles_with_conflicts"] == 0  # type: ignore[index]  # a document


def following(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(arguments) == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("Next: gpusim banks ")
    return shlex.split(last)[2:]


def test_the_next_command_asks_for_the_same_lanes_and_start_mended(capsys: pytest.CaptureFixture[str]) -> None:
    column = ["banks", "--layout", "(64,32):(32,1)", "--dtype", "fp32", "--access", "ld_shared_b32", "--threads", "32:1@0"]
    assert following([*column, "--at", "(32,8)"], capsys) == [*column, "--at", "(32,8)", "--swizzle", "5,0,5"]
    assert following(column, capsys) == [*column, "--swizzle", "5,0,5"]


def test_the_next_command_pads_where_no_swizzle_frees_the_tile(capsys: pytest.CaptureFixture[str]) -> None:
    lanes = ["--access", "ld_shared_b8", "--threads", "(8,4):(1@0,2@1)"]
    odd = ["banks", "--layout", "(8,16):(17,1)", "--dtype", "fp8", *lanes]
    padded = following(odd, capsys)
    assert padded == [odd[0], "--layout", "(8,16):(23,1)", *odd[3:]]
    mended = document(padded, capsys)
    assert mended["side_by_side"]["num_tiles_with_conflicts"] == 0  # type: ignore[index]  # a document


def test_a_swizzled_tiles_offset_is_shown_kept_and_typed_back(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["banks", "--layout", "Sw<0,3,3> o 64 o (64,64):(64,1)", *LDMATRIX[3:]]
    assert main(asked) == 0
    assert "from element 64 on" in " ".join(capsys.readouterr().out.split())
    mended = following(asked, capsys)
    assert mended == ["banks", "--layout", "Sw<3,4,3>_smem_ptr[16b] o 64 o (64,64):(64,1)", *LDMATRIX[3:]]
    found = document(mended, capsys)
    assert found["offset_elements"] == 64
    assert found["instructions"][0]["addresses"][0] == 128 ^ 1 << 4  # type: ignore[index]  # a document
    assert found["side_by_side"]["num_tiles_with_conflicts"] == 0  # type: ignore[index]  # a document
    assert document(LDMATRIX, capsys)["offset_elements"] == 0


def test_places_that_are_left_out_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["banks", "--layout", "(128,64):(68,1)", "--dtype", "bf16", "--access", "ld_shared_b128", "--threads", "32:2@0"]
    assert main(rows) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "8 places side by side: 32 wavefronts, 32 at best, free of conflicts; 8 more left out" in text
    counted = document(rows, capsys)["side_by_side"]
    assert (counted["num_tiles"], counted["num_tiles_unaligned"]) == (8, 8)  # type: ignore[index]  # a document


def test_what_is_free_has_no_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LDMATRIX, "--swizzle", "128B"]) == 0
    out = capsys.readouterr().out
    assert "Verdict: ldmatrix_x4 takes 4 wavefronts" in out
    assert "Next:" not in out


def test_json_and_plot_are_written_and_json_on_stdout_is_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "x.svg"
    assert main([*LDMATRIX, "--json", "-", "--plot", str(plot)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["instructions"][0]["num_wavefronts"] == 32
    assert "Verdict" in err
    assert plot.read_text().startswith("<?xml")


def test_help_says_which_tile_ldmatrix_reads(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["banks", "--help"]) == 0
    assert "(0,0), (8,0), (0,8), (8,8)" in " ".join(capsys.readouterr().out.split())


def test_every_instruction_is_named_in_the_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert main(["banks", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert ", ".join(smem_op_families().values()) in text


def test_element_types_are_taken_as_others_call_them_where_only_their_width_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, called in (("BF16", "bf16"), ("half", "fp16"), ("uint16", "uint16")):
        arguments = ["banks", "--layout", "(64,64):(64,1)", "--dtype", name, "--access", "ldmatrix_x4"]
        found = document(arguments, capsys)
        assert found["dtype"] == called
        assert found["side_by_side"] == document(LDMATRIX, capsys)["side_by_side"]


def test_strides_that_were_not_typed_are_remarked(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["banks", "--layout", "(64,64)", "--dtype", "bf16", "--access", "ldmatrix_x4_trans"]
    (remark,) = document(columns, capsys)["remarks"]  # type: ignore[misc]  # a document
    assert "column-major ones are taken: (64,64):(1,64); for rows use (64,64):(64,1)" in remark
    assert main(columns) == 0
    assert "Remark: the layout is typed without strides" in capsys.readouterr().out
    assert document(LDMATRIX, capsys)["remarks"] == []


TRANSPOSE = [
    "banks", "--layout", "(32,32):(32,1)", "--dtype", "fp32", "--access", "st_shared_b32", "--access", "ld_shared_b32",
    "--threads", "_", "--threads", "32:1",
]  # fmt: skip


def test_accesses_to_one_tile_are_counted_each_and_mended_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = document(TRANSPOSE, capsys)
    store, load = found["accesses"]  # type: ignore[misc]  # a document
    assert [one["access"] for one in (store, load)] == ["st_shared_b32", "ld_shared_b32"]
    assert [one["instructions"][0]["num_wavefronts"] for one in (store, load)] == [1, 32]
    assert found["side_by_side"] == {"num_wavefronts": 32 + 32 * 32, "num_ideal_wavefronts": 64}
    assert found["mends"]["best"]["is_free"]  # type: ignore[index]  # a document
    monkeypatch.setenv("COLUMNS", "140")
    assert main(TRANSPOSE) == 0
    text = capsys.readouterr().out
    assert "frees both" in text
    following = shlex.split(text.strip().splitlines()[-1])[2:]
    mended = document(following, capsys)
    assert mended["side_by_side"] == {"num_wavefronts": 64, "num_ideal_wavefronts": 64}
    assert [one["threads"] for one in mended["accesses"]] == [None, "32:1"]  # type: ignore[attr-defined]  # a document


def test_several_accesses_are_drawn_one_below_the_other(tmp_path: Path) -> None:
    assert main([*TRANSPOSE, "--plot", str(tmp_path / "x.svg")]) == 0
    text = (tmp_path / "x.svg").read_text()
    assert all(f"{op}, {state}" in text for op in ("st_shared_b32", "ld_shared_b32") for state in ("as it is", "mended"))


def test_no_swizzle_is_none_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(LDMATRIX, capsys)
    assert found["swizzle"] == {"elements": "none", "bytes": "none"}
    assert found["mends"]["padding"]["swizzle"] == {"elements": "none", "bytes": "none"}  # type: ignore[index]  # a document


COPIES = ["banks", "--layout", "(1,256):(256,1)", "--dtype", "fp16", "--access", "cp_async_b128"]


def test_copies_count_conflicts_where_they_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COPIES, "--sources", "(16,2):(16,8)"]) == 0  # 16 bytes of each 32, 16 lanes a half
    text = " ".join(capsys.readouterr().out.split())
    assert "lane i reads from element (16,2):(16,8) of global memory on: 8 wavefronts with them" in text
    assert "Verdict: cp_async_b128 takes 8 wavefronts where 4 would do: lanes conflict where they read" in text
    assert "left out" not in text
    found = document([*COPIES, "--sources", "(16,2):(16,8)"], capsys)
    assert found["sources"] == {"layout": "(16,2):(16,8)", "num_wavefronts": [8]}
    adjacent = document([*COPIES, "--sources", "32:8"], capsys)
    assert adjacent["sources"] == {"layout": "32:8", "num_wavefronts": [4]}
    assert "as few as it can" in adjacent["verdict"]  # type: ignore[operator]  # a document


def test_without_sources_a_remark_says_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(COPIES, capsys)
    assert found["sources"] is None
    assert found["remarks"] == [
        "conflicts where the copies read from global memory are left out; --sources LAYOUT counts them"
    ]


def test_the_next_command_keeps_the_sources(capsys: pytest.CaptureFixture[str]) -> None:
    column = ["banks", "--layout", "(64,64):(64,1)", "--dtype", "fp16", "--access", "cp_async_b128", "--threads", "32:1@0"]
    mended = following([*column, "--sources", "32:8"], capsys)
    assert mended[-4:] == ["--sources", "32:8", "--swizzle", "3,3,3"]
    assert document(mended, capsys)["sources"] == {"layout": "32:8", "num_wavefronts": [4]}


def test_instructions_may_have_cutes_names(capsys: pytest.CaptureFixture[str]) -> None:
    found = document([*TILE, "--access", "SM75_U32x4_LDSM_N"], capsys)
    assert found == document(LDMATRIX, capsys)
