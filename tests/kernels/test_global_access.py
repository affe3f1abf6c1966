"""The patterns of global accesses: legal, alike by seed, of every kind that the README names, and checked."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest

from gpusim.evidence.cases.case import Input, WrongAnswer, load_case
from gpusim.machine.config import load_gpu

CASE = load_case("global_access")
TOY = load_gpu("toy")
case = sys.modules[CASE.launch.__module__]


def test_each_width_of_load_has_its_patterns_cold_and_again_in_l1() -> None:
    counts = Counter(config["kernel"] for group in CASE.groups for config in CASE.configs(group, 1))
    for bits in (32, 64, 128):
        assert counts[f"ld_global_b{bits}"] == 300 and counts[f"ld_global_b{bits}_twice"] == 150
    for bits in (8, 16):
        assert counts[f"ld_global_b{bits}"] == 60 and counts[f"ld_global_b{bits}_twice"] == 30
    assert all(counts[op] == 60 for op in case.STORES)


def test_a_load_done_twice_has_a_cold_one_to_be_held_against() -> None:
    cold = {(config["kernel"], config["addresses"], config["active"]) for config in CASE.configs("load", 1)}
    for config in CASE.configs("load_twice", 1):
        assert (config["kernel"].removesuffix("_twice"), config["addresses"], config["active"]) in cold


@pytest.mark.parametrize("op", case.OPS)
def test_patterns_are_aligned_inside_the_buffer_and_drawn_alike(op: str) -> None:
    room, size = (case.STORE_BYTES if op in case.STORES else case.BUFFER_BYTES), case.access_bytes(op)
    drawn = case.draw(op, count=60, seed=7)
    assert drawn == case.draw(op, count=60, seed=7) != case.draw(op, count=60, seed=8)
    for config in drawn:
        addresses, active = case.lanes_of(config)
        assert (addresses % size == 0).all() and addresses.min() >= 0 and addresses.max() + size <= room
        assert active.any()


@pytest.mark.parametrize("op", case.LOADS)
def test_patterns_have_few_lines_and_many_and_every_number_of_sectors_a_line(op: str) -> None:
    num_lines, per_line, partly = set(), set(), 0
    for config in case.draw(op, count=300, seed=1):
        addresses, active = case.lanes_of(config)
        lines = len(np.unique(addresses[active] // 128))
        num_lines.add(lines)
        per_line.add(round(len(np.unique(addresses[active] // 32)) / lines))
        partly += int(not active.all())
    assert {1, 2, 4, 8, 16, 32} <= num_lines and per_line == {1, 2, 3, 4}
    assert 80 <= partly <= 160


def outputs_of(config: dict[str, str]) -> dict[str, np.ndarray]:
    """What the kernel must leave, lane after lane."""
    addresses, active = case.lanes_of(config)
    size = case.access_bytes(config["kernel"])
    out, buffer = np.zeros((32, 16), dtype=np.uint8), np.full(case.STORE_BYTES, 0xA5, dtype=np.uint8)
    if config["kernel"].startswith("st"):
        out[:] = 0xA5
    for lane in range(32):
        if active[lane] and config["kernel"].startswith("ld"):
            first = addresses[lane] // 4
            words = [(int(first + word) * 0x9E3779B1 + 0x7F4A7C15) % 2**32 for word in range(5)]
            found = b"".join(word.to_bytes(4, "little") for word in words)[addresses[lane] % 4 :][:size]
            out[lane, :size] = list(found)
        elif active[lane]:
            words = [((4 * lane + word) * 0x85EBCA6B + 0xC2B2AE35) % 2**32 for word in range(4)]
            buffer[addresses[lane] : addresses[lane] + size] = list(b"".join(w.to_bytes(4, "little") for w in words)[:size])
    return {"out": out, "buffer": buffer}


@pytest.mark.parametrize("op", case.OPS)
def test_right_answers_pass_and_one_wrong_byte_does_not(op: str) -> None:
    for config in case.draw(op, count=6, seed=5):
        outputs = outputs_of(config)
        assert CASE.check(config, outputs) == {}
        addresses, active = case.lanes_of(config)
        lane = int(np.flatnonzero(active)[0])
        if op in case.LOADS:
            outputs["out"][lane, 0] ^= 1
        else:
            outputs["buffer"][addresses[lane]] ^= 0x40
        with pytest.raises(WrongAnswer):
            CASE.check(config, outputs)


def test_a_store_beside_its_place_is_found() -> None:
    config = next(c for c in case.draw("st_global_b32", count=9, seed=1) if case.lanes_of(c)[0].min() >= 4)
    outputs = outputs_of(config)
    free = int(np.flatnonzero(outputs["buffer"] == 0xA5)[0])
    outputs["buffer"][free] = 0
    with pytest.raises(WrongAnswer, match=f"byte {free} "):
        CASE.check(config, outputs)


def test_what_loads_find_is_copied_once() -> None:
    arrays = [item.array for item in CASE.launch(CASE.configs("load", 1)[0], True).arguments if isinstance(item, Input)]
    assert len(arrays) == 1 and not arrays[0].flags.writeable


def test_a_row_of_neighbours_is_four_sectors_of_one_line() -> None:
    config = {"kernel": "ld_global_b32_twice", "pattern": "0", "family": "", "active": "ffffffff",
              "addresses": " ".join(str(4 * lane) for lane in range(32))}  # fmt: skip
    assert sorted(CASE.predict(config, TOY).values()) == [2.0, 2.0, 8.0]
    assert CASE.derive(config) == {"num_lines": 1.0, "num_plain_wavefronts": 1.0}
