"""``gpusim coalesce`` as somebody types it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.cli import main

FLOATS = ["coalesce", "--layout", "(64,64):(64,1)", "--dtype", "fp32", "--access", "ld_global_b32"]
OFFSETS = ["coalesce", "--access", "ld_global_b32", "--offsets"]

BAD: list[tuple[list[str], list[str]]] = [
    (["coalesce"], ["--access is missing"]),
    (["coalesce", "--access", "ld_global_b32"], ["a tile wants --layout and --dtype; --offsets takes"]),
    ([*FLOATS[:-1], "ld_global_b12"], ["--access 'ld_global_b12' is unknown; did you mean 'ld_global_b128'?"]),
    ([*FLOATS[:-1], "ld_global_b8"], ["coalesce: ld_global_b8 moves 1 byte, less than an element of 4 bytes"]),
    ([*FLOATS[:-1], "UniversalCopy<float>"], ["--access 'UniversalCopy<float>' follows from where tensors lie"]),
    ([*FLOATS[:-1], "SM75_U32x4_LDSM_N"], ["--access lanes of 'SM75_U32x4_LDSM_N' address no global memory"]),
    ([*FLOATS, "--threads", "64:1@5"], ["coalesce: threads"]),
    ([*FLOATS, "--at", "(64,0)"], ["coalesce: the start (64,0) lies outside"]),
    (["coalesce", "--layout", "Sw<3,3,3> o 0 o (8,64):(64,1)", *FLOATS[3:]], ["has a swizzle, global memory has none"]),
    (["coalesce", "--layout", "(8,64):(-64,1)", *FLOATS[3:]], ["no offsets in memory"]),
    ([*FLOATS, "--offsets", "32:4"], ["--offsets are bytes of lanes, --layout is of a tile"]),
    ([*OFFSETS, "2"], ["--offsets: global access: lane 0 has byte address 2: use a multiple of 4"]),
    ([*OFFSETS, "32:-4"], ["lane 1 has byte address -4"]),
    ([*OFFSETS, "33:4"], ["--offsets '33:4' wants a layout from up to 32 lanes"]),
    ([*OFFSETS, "(2"], ["--offsets '(2' wants up to 32 bytes like 0,4,8"]),
    ([*OFFSETS, "9999999999999999999"], ["beyond 2^59"]),
    ([*OFFSETS, "Sw<1,3,3> o 0 o 32:1"], ["has a swizzle, wants a plain layout"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(arguments)[-40:] for arguments, _ in BAD])
def test_bad_input_costs_one_sentence_and_status_two(
    arguments: list[str], said: list[str], refuses: Callable[[Sequence[str], Sequence[str]], None]
) -> None:
    refuses(arguments, said)


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*arguments, "--json", "-"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("arguments", "sectors", "lines", "share"),
    [
        (FLOATS, 4, 1, 1.0),
        ([*FLOATS, "--threads", "32:1"], 32, 32, 0.125),  # a float of each sector
        ([*FLOATS, "--threads", "(32,2):(1@1,1@0)"], 8, 2, 1.0),  # two instructions, a row each
        ([*FLOATS[:-1], "ld_global_b128"], 16, 4, 1.0),
        ([*OFFSETS, "32:8"], 8, 2, 0.5),
        ([*OFFSETS, "32:0"], 1, 1, 0.125),  # a broadcast
        ([*OFFSETS, "4,8,12"], 1, 1, 0.375),
        ([*OFFSETS, "28,32"], 2, 1, 0.125),
    ],
)
def test_sectors_lines_and_bytes_used_are_those_worked_out_by_hand(
    arguments: list[str], sectors: int, lines: int, share: float, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(arguments, capsys)
    assert (found["num_sectors"], found["num_lines"], found["used_fraction"]) == (sectors, lines, share)
    assert found["num_requests"] == (2 if "(32,2):(1@1,1@0)" in arguments else 1)


def test_the_next_command_is_coalesced(capsys: pytest.CaptureFixture[str]) -> None:
    for more in (["--threads", "32:1"], ["--threads", "32:1@0", "--at", "(0,3)"]):
        assert main([*FLOATS, *more]) == 0
        last = capsys.readouterr().out.strip().splitlines()[-1]
        assert last.startswith("Next: gpusim coalesce ")
        mended = document(shlex.split(last)[2:], capsys)
        assert mended["num_sectors"] == mended["num_fewest_sectors"] == 4
        assert mended["changes"] == []


@pytest.mark.parametrize("lanes", ["128:1", "96:1@0", "16:1", "(4,8):(0,1)"])
def test_a_change_moves_as_many_bytes(lanes: str, capsys: pytest.CaptureFixture[str]) -> None:
    large = ["coalesce", "--layout", "(128,32):(32,1)", *FLOATS[3:]]
    now = document([*large, "--threads", lanes], capsys)
    assert now["num_sectors"] > now["num_fewest_sectors"]
    assert now["changes"][0]["num_sectors"] == now["num_fewest_sectors"]
    assert {change["num_used_bytes"] for change in now["changes"]} == {now["num_used_bytes"]}


def test_an_access_that_starts_inside_a_sector_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    shifted = ",".join(str(4 + 4 * lane) for lane in range(32))
    assert main([*OFFSETS, shifted]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "128 used of 160: 80.0 %" in text
    assert "5 sectors where 4 would hold the bytes; start at a multiple of 128 bytes: 4 sectors." in text


def test_the_front_door_counts_the_same() -> None:
    found = gpusim.coalescing(128 * np.arange(32), 4)
    assert (found.pattern.num_sectors, found.num_fewest_sectors, found.used_fraction) == (32, 4, 0.125)
    assert found.num_tag_wavefronts == {"ampere": 8, "hopper": 8}
