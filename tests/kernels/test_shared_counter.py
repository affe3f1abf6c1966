"""shared_counter: kernels hold what their names say, answers are checked, and the twin counts what it has words for."""

from __future__ import annotations

import sys

import pytest

from gpusim.evidence.cases.case import load_case
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("shared_counter")
case = sys.modules[CASE.launch.__module__]
OPCODES = {
    "shuffle_idx": "SHFL", "shuffle_bfly": "SHFL", "vote": "VOTE", "match": "MATCH", "redux": "REDUX",
    "barrier": "BAR", "load": "LDS", "store": "STS", "atomic": "ATOMS", "global_load": "LDG", "global_store": "STG",
    "cp4": "LDGSTS", "cp16": "LDGSTS", "bulk1k": "UBLKCP", "bulk8k": "UBLKCP", "tile1k": "UTMALDG", "tile8k": "UTMALDG",
}  # fmt: skip


def test_kernels_have_as_many_instructions_of_a_kind_as_they_say(sass: Sass) -> None:
    found = sass("shared_counter", "sm_90a")
    for kind, opcode in OPCODES.items():
        few, many = (len(found[f"{kind}_{times}"].select(opcode)) for times in case.TIMES)
        assert many - few == case.TIMES[1] - case.TIMES[0], kind


def test_a_rotation_of_a_warp_gives_each_lane_another_ones_word() -> None:
    found = case.expected(case.Config("shuffle_idx_8", "256x1x1", 1))
    assert found[0] == 8 + case.MORE + 8  # lane 8's word, eight times one more
    assert found[31] == 7 + case.MORE + 8
    assert found[32] == 40 + case.MORE + 8  # of its own warp


def test_sums_of_words_that_others_stored() -> None:
    found = case.expected(case.Config("load_8", "256x1x1", 1))
    assert found[0] == case.MORE + sum(range(8)) + 8 * case.MORE  # threads 0 to 7


def test_loads_are_counted_one_a_warp_each() -> None:
    found = CASE.predict({"kernel": "load_32", "block": "256x1x1", "num_ctas": "1056"}, load_gpu("h200_sxm"))
    assert found[case.LOADS] == 32 * 8 * 1056


def test_shuffles_are_counted_and_votes_are_not() -> None:
    gpu = load_gpu("h200_sxm")
    found = {
        kind: CASE.predict({"kernel": f"{kind}_8", "block": "256x1x1", "num_ctas": "1"}, gpu)[case.SHARED]
        for kind in ("shuffle_idx", "vote", "cp4", "cp16")
    }
    # a thread number each; eight shuffles; a commit of three and a load; eight copies through L1 beside that
    assert found == {"shuffle_idx": 9 * 8, "vote": 8, "cp4": (1 + 3 + 1 + 8) * 8, "cp16": (1 + 3 + 1) * 8}


@pytest.mark.parametrize(
    ("name", "num_dimensions"),
    [("transpose", 2), *((name, 1) for name in ("softmax", "layer_norm", "reduction", "smem_copy", "elementwise"))],
)
def test_whole_kernels_ask_for_as_many_numbers_of_threads_as_is_said(sass: Sass, name: str, num_dimensions: int) -> None:
    for kernel in sass(name, "sm_90a").values():
        asked = {item.operands.split(",")[-1].strip() for item in kernel.select("S2R") if "SR_TID" in item.operands}
        assert len(asked) == num_dimensions
