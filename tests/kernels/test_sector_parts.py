"""sector_parts: rounds are whole turns, a wrong word is refused, and the twin moves whole sectors."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, load_case
from gpusim.machine.config import load_gpu

CASE = load_case("sector_parts")
case = sys.modules[CASE.launch.__module__]
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]


@pytest.mark.parametrize("config", ALL, ids=str)
def test_a_round_is_whole_turns_of_all_threads_inside_the_buffer(config: Config) -> None:
    num = case.num_accesses(config)
    assert num % (case.AT_ONCE * case.THREADS * int(config["num_ctas"])) == 0
    last = case.words_of(config, np.arange(num - 4096, num)).max()
    assert last < int(config["span_bytes"]) // 4
    assert len(case.taken(config)) in (1, 2, 4)  # powers of two, as the kernel divides by shifts


def test_words_are_those_that_the_shifts_of_the_kernel_give() -> None:
    config = case.Config("store", sectors="1010", words=2, span_bytes=1 << 20, stride_lines=2, num_ctas=1)
    fields = {name: int(case.walk(config)[name][0]) for name in case.WALK.names}
    accesses = np.arange(300)
    which = accesses >> fields["log_words"] & ((1 << fields["log_sectors"]) - 1)
    line = (accesses >> fields["log_words"] + fields["log_sectors"]) * fields["stride"]
    words = line * 32 + (fields["sectors"] >> 2 * which & 3) * 8 + (accesses & 1)
    assert words.tolist() == case.words_of(config, accesses).tolist()


def test_the_twin_reads_the_sectors_that_are_asked_for() -> None:
    config = case.Config("read_cg", sectors="1100", words=1, span_bytes=8 << 20, num_ctas=16)
    found = CASE.predict(config, load_gpu("h200_sxm"))
    assert found["lts__t_sectors_srcunit_tex_op_read.sum"] == 2 * (8 << 20) / 128
