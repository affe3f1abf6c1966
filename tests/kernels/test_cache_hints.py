"""kernels/cache_hints: its answers are checked, its configs differ, the twin asks the traffic pass."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import WrongAnswer, load_case

CASE = load_case("cache_hints")
MODULE = __import__("sys").modules[CASE.launch.__module__]


def config(group: str, **columns: str) -> dict[str, str]:
    """The first config of a group with these columns."""
    return next(each for each in CASE.configs(group, 1) if columns.items() <= each.items())


@pytest.mark.parametrize(("group", "num"), [("hints", 100), ("persisting", 30), ("written", 40), ("fetched", 28)])
def test_its_groups_have_so_many_configs_and_each_can_be_launched(group: str, num: int) -> None:
    configs = CASE.configs(group, 1)
    assert len(configs) == num
    for each in configs:
        found = CASE.launch(each, False)
        assert found.grid[0] > 0
        assert (found.window is not None) == (each["has_window"] == "1")


@pytest.mark.parametrize(("num_bytes", "stride"), [("4", "32"), ("16", "64"), ("32", "512")])
def test_a_store_to_part_of_a_sector_leaves_the_rest(num_bytes: str, stride: str) -> None:
    each = config("fetched", stream_op="store", stream_mib="128", access_bytes=num_bytes, stride_bytes=stride)
    num, step, size = int(num_bytes), int(stride), 128 * 2**20
    parts = []
    for begin in (0, size - 4096):
        part = np.full(4096, 0xFF, dtype=np.uint8)
        for at in range(0, 4096, step):
            place = (begin + at) // step
            first = place if num == 4 else place * num // 4
            part[at : at + num] = MODULE.word_at(np.arange(first, first + num // 4, dtype=np.uint32)).view(np.uint8)
        parts.append(part)
    CASE.check(each, {"stored": np.concatenate(parts), "sums": np.zeros(1024, dtype="<u4")})
    with pytest.raises(WrongAnswer):
        CASE.check(each, {"stored": np.zeros(8192, dtype=np.uint8), "sums": np.zeros(1024, dtype="<u4")})


def test_the_twin_finds_a_small_set_again_and_a_large_one_not() -> None:
    gpu = load_gpu("h200_sxm")
    mib = 2**20
    small = CASE.predict(config("hints", set_mib="8", stream_mib="16"), gpu)["dram__bytes_read.sum"]
    large = CASE.predict(config("hints", set_mib="32", stream_mib="128"), gpu)["dram__bytes_read.sum"]
    assert small == pytest.approx(24 * mib, rel=1e-3)
    assert large == pytest.approx(192 * mib, rel=1e-3)


def test_the_twin_writes_back_what_l2_cannot_hold() -> None:
    gpu = load_gpu("h200_sxm")
    written = [
        CASE.predict(config("written", kernel="fill", stream_mib=size), gpu)["dram__bytes_write.sum"] / 2**20
        for size in ("1", "24", "1024")
    ]
    assert written[0] == 0.0
    assert written[1] < 1.0
    assert 960 < written[2] < 1000
