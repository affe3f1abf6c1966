"""Memory bursts: the check refuses wrong words and crowded SMs, quantiles are of those who did it, the twin answers."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, Repeated, WrongAnswer, load_case
from gpusim.evidence.cases.validation_kernel import windows

GPU = load_gpu("h200_sxm")
CASE = load_case("memory_bursts")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("bursts", 1)


def _one(way: str) -> Config:
    return next(item for item in CONFIGS if item["way"] == way and item["threads"] == "1024" and item["rounds"] == "2")


def outputs(config: Config) -> dict[str, NDArray[np.uint32]]:
    """What a right launch leaves, vector by vector, CTA c on SM c modulo their number."""
    reads, writes, split, _, warms_writes = case.WAYS[config["way"]]
    threads, unrolled, ctas = int(config["threads"]), int(config["unrolled"]), case.num_ctas(config)
    size = case.num_bytes(config)
    given = Repeated(case.words(), size).window(0, size).view(np.uint32).reshape(-1, 4)
    out = np.full((size // 16, 4), 0xFFFFFFFF, dtype=np.uint32)
    times = np.zeros((ctas * threads // 32, 8), dtype=np.uint32)
    for cta in range(ctas):
        role = (cta // 132 % 2, cta // 2 % 2)[split - 1] if split else 2
        warps = slice(cta * threads // 32, (cta + 1) * threads // 32)
        times[warps, 4], times[warps, 5] = cta % 132, role
        times[warps, :3] = 10, 20, 30
        for number in range(int(config["rounds"])):
            at = (number * ctas + cta) * threads * unrolled + np.arange(threads * unrolled, dtype=np.uint32)
            if reads and role != 1:
                sums = given[at].reshape(unrolled, threads // 32, -1).sum(axis=(0, 2), dtype=np.uint32)
                times[warps, 3] += sums
            if warms_writes:
                out[at] = np.stack([at, *(np.full_like(at, value) for value in (1, 2, 3))], axis=1)
            if writes and role != 0:
                number_of = np.stack([at, *(np.full_like(at, value) for value in (5, 6, 7))], axis=1)
                out[at] = given[at] if reads and role == 2 else number_of
    parts = [out.reshape(-1).view(np.uint8)[start : start + num] for start, num in windows(size)]
    return {"out": np.concatenate(parts), "times": times, "state": np.zeros(4, dtype=np.uint32)}


@pytest.mark.parametrize("way", case.WAYS)
def test_a_right_launch_passes_and_wrong_words_do_not(way: str) -> None:
    config = _one(way)
    right = outputs(config)
    values = CASE.check(config, right)
    assert set(values) == set(CASE.values)
    assert values["cycles"] == 30.0 and values["loaded_p100_cycles"] == (0.0 if way.startswith("write") else 10.0)
    for name in ("out", "times"):
        wrong = {key: item.copy() for key, item in right.items()}
        flat = wrong[name].reshape(-1)
        flat[-1 if name == "out" else 3] ^= 1
        with pytest.raises(WrongAnswer):
            CASE.check(config, wrong)
    crowded = {**right, "times": np.where(np.arange(8) == 4, 0, right["times"])}
    with pytest.raises(WrongAnswer, match="spread"):
        CASE.check(config, crowded)


def test_bursts_fit_into_a_side_of_l2_and_reads_take_longer_together_with_writes() -> None:
    assert len(CONFIGS) == 212 and max(map(case.num_bytes, CONFIGS)) <= 20 * 2**20
    gpu = GPU
    cycles = {way: CASE.predict(_one(way), gpu)["cycles"] for way in ("read", "write", "copy")}
    assert max(cycles["read"], cycles["write"]) < cycles["copy"] <= cycles["read"] + cycles["write"]
    assert CASE.predict(_one("read_warm"), gpu) == {}


@pytest.mark.parametrize("half", [0, 1])
def test_copies_along_a_line_give_the_link_turnaround_back(half: int) -> None:
    l2 = GPU.l2

    def cycles(size: int) -> float:
        return 1000.0 + size * 2.25 / (4 * l2.fabric_bytes_per_cycle) + case.late_cycles(size, l2)

    rows = [
        {**config, "middle_sm_cycles": str(cycles(case.num_bytes(config)))}
        for config in CONFIGS[half::2] if config["way"] in case.COPIES
    ]  # fmt: skip
    (fitted,) = CASE.fitted(rows, GPU)
    assert fitted.parameter == "l2.fabric_turnaround_fraction" and fitted.value == pytest.approx(0.25)


def test_rows_that_tell_nothing_fit_nothing() -> None:
    assert CASE.fitted([], GPU) == []
    reads = [{**config, "middle_sm_cycles": "9000.0"} for config in CONFIGS if config["way"] == "read"]
    assert CASE.fitted(reads, GPU) == []
    assert CASE.fitted([{**_one("copy"), "middle_sm_cycles": "9000.0"}], GPU) == []
