"""line_copies: parts and turns are checked word by word, and the model's counts follow from who holds a copy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.cases.rows import Table

CASE = load_case("line_copies")
case = sys.modules[CASE.launch.__module__]
PARTS = case.Config("parts", kib=16 * 1024, is_moving=False, is_stored=False)
TURNS = [case.Config("turns", kib=16, is_moving=True, is_stored=is_stored) for is_stored in (False, True)]
SMALL = [PARTS, *TURNS]
LINES = case.NUM_SMS * 16 * case.KIB * case.ROUNDS
"""Bytes that the turns read."""


def outputs_of(config: Any) -> dict[str, NDArray[Any]]:
    """What a right launch leaves."""
    config = case.Config.of(config)
    if config.kernel == "parts":
        of_cta = np.arange(case.WAVES * case.NUM_SLOTS) % (config.kib * case.KIB // case.PART_BYTES)
        ends = 1_000 + 100 * np.arange(len(of_cta), dtype="<u8")
        return {"sums": case.part_sums(int(of_cta.max()) + 1)[of_cta], "ends": ends}
    num_words = case.NUM_SMS * config.kib * case.KIB // 4
    return {
        "data": np.arange(num_words, dtype="<u4") + np.uint32(case.ROUNDS * config.is_stored),
        "flags": np.zeros(case.FLAG_WORDS, dtype="<u4"), "cycles": np.full(case.NUM_SMS, 2500, dtype="<u4"),
    }  # fmt: skip


def test_sums_of_parts_are_those_of_their_words() -> None:
    words = np.resize(case.words(), 3 * case.PART_BYTES // 4).astype(np.uint64)
    assert case.part_sums(3).tolist() == (words.reshape(3, -1).sum(axis=1) % 2**32).tolist()


def test_a_right_answer_gives_a_rate_or_the_cycles_of_a_round() -> None:
    assert CASE.check(PARTS, outputs_of(PARTS)) == {"gb_per_s": case.PART_BYTES / 100, "round_cycles": 0.0}
    assert CASE.check(TURNS[1], outputs_of(TURNS[1])) == {"gb_per_s": 0.0, "round_cycles": 2500.0}


@pytest.mark.parametrize(("config", "name", "place", "says"), [
    (PARTS, "sums", 7, "another sum"), (TURNS[0], "data", 3, "a word is not"), (TURNS[1], "data", -1, "a word is not"),
    (TURNS[0], "flags", 1, "a wait was given up"),
])  # fmt: skip
def test_a_wrong_answer_is_refused(config: Any, name: str, place: int, says: str) -> None:
    outputs = outputs_of(config)
    outputs[name][place] += 1
    with pytest.raises(WrongAnswer, match=says):
        CASE.check(config, outputs)


def test_a_quarter_of_what_another_sm_has_stored_crosses_again() -> None:
    gpu = load_gpu("h200_sxm")
    alone, stored = (CASE.predict(config, gpu)[case.CROSSED] / (LINES / 32) for config in TURNS)
    # half of the SMs are on the other partition, where half of the lines are at home
    assert 0.12 < stored - alone < 0.25


def test_measured_rows_say_so_too() -> None:
    table = Table.read(kernels_dir().parent / "validation" / "measured" / "h200_sxm" / "line_copies.csv")
    missed = {
        (row["kib"], row["is_moving"], row["is_stored"]): float(row[case.MISS]) / float(row[case.READ])
        for row in table.rows if row["kernel"] == "turns"
    }  # fmt: skip
    for kib in ("16", "48", "96"):
        assert 0.24 < missed[kib, "1", "1"] < 0.26
        assert max(missed[kib, *rest] for rest in (("0", "0"), ("0", "1"), ("1", "0"))) < 0.03
