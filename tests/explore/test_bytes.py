"""The page of bytes shows what each step of a small kernel moves."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from gpusim import GemmParams, load_gpu
from gpusim.explore.bytes import KERNELS, MOST_STEPS, BytesQuestion
from gpusim.explore.forms import FORMS
from gpusim.explore.pages import form_page
from gpusim.functional.moves import moves_of


def test_a_swizzled_copy_moves_the_second_row_by_one_chunk() -> None:
    """128B: 16-byte chunk 0 of row r lies in chunk r of line r, for the first 8 rows."""
    params = GemmParams(m=64, n=64, k=64, tile="64x64x64", copy="tma", math="wgmma", schedule="warp_specialized", stages=1)
    a = np.arange(4096).reshape(64, 64) % 3
    moves, results = moves_of(params.launch(load_gpu("h200_sxm")), {"A": a, "B": a})
    assert np.array_equal(results["D"], a @ a)
    first = moves[0]
    assert (first.source.memory, first.target.memory, first.tensor) == ("A", "stage 0 of a", "A")
    begins = first.elements[:, 1] == 0
    assert first.target.at[begins][:9].tolist() == [*([row, 16 * row] for row in range(8)), [8, 0]]
    read = next(move for move in moves if move.target.kind == "tensor core")
    assert np.array_equal(read.elements, read.target.at)  # row and k of the operand are those of A


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_step_has_an_answer_and_copies_move_all_bytes(kernel: str) -> None:
    first = BytesQuestion.of({"kernel": kernel}).answer()
    last = int(first.verdict.split(" of ")[1].split(":")[0])
    assert last <= MOST_STEPS
    answers = [BytesQuestion.of({"kernel": kernel, "step": str(step)}).answer() for step in (*range(last + 1), MOST_STEPS)]
    assert [bool(answer.remarks) for answer in answers] == [False] * (last + 1) + [True]
    copies = [answer for answer in answers[:-1] if dict(answer.facts)["From"] in ("A", "B", "in")]
    assert sum(answer.figures[0].value for answer in copies) == 64 * 64 * 2 if kernel == "copy" else 2 * 64 * 128 * 2
    for answer in answers[:-1]:
        assert dict(answer.facts)["Result"] == "equals that of numpy"
        assert len(ElementTree.fromstring(answer.pictures[0].svg).findall("{*}rect")) > 64


def test_a_thread_of_ldmatrix_has_the_elements_of_its_fragment() -> None:
    """Thread 1 of a warp has columns 2 and 3 of row 0."""
    answer = BytesQuestion.of({"kernel": "cp_async", "step": "2"}).answer()
    assert "Ldmatrix" in answer.verdict
    words = {row[2]: row[:2] for row in answer.tables[0].rows}
    assert words["thread 1, value 0"] == ("A[0, 2]", "byte 4 of stage 0 of a (bank 1)")


@pytest.mark.parametrize(
    ("kernel", "named"),
    [
        ("tma", r"^D\[\d+, \d+\] is -?\d+, wants -?\d+: Wgmma.* byte \d+ of stage 0 of buffer 'a' \(bank \d+\), written by "
         r"TmaLoad of A"),
        ("cp_async", r"^D\[.*\(lane \d+, value \d+\).* \(bank \d+\), written by CpAsync of A"),
        ("copy", r"^out\[.*stored by GlobalStore of out, .*thread \d+, value \d+$"),
    ],
)  # fmt: skip
def test_a_fault_on_request_shows_the_first_wrong_element(kernel: str, named: str) -> None:
    result = dict(BytesQuestion.of({"kernel": kernel, "fault": "swizzle"}).answer().facts)["Result"]
    assert re.search(named, result.removeprefix("differs from that of numpy: ")), result


def test_the_slider_asks_anew() -> None:
    assert "data-asked" in form_page(FORMS["bytes"](), {})
    assert "data-asked" not in form_page(FORMS["pipeline"](), {})
