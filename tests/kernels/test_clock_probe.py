"""The stopwatch's kernels: what is timed does what it says, and a CTA that lies is found out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass

CASE = load_case("clock_probe")
NOTHING, BUSY = CASE.configs("launches", 1)[0], CASE.configs("launches", 1)[-1]


def done(us: float = 1000.0, mhz: float = 1500.0) -> np.ndarray:
    rows = np.zeros((132, 4), dtype="<u8")
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = us * mhz, us * 1000, np.arange(132), 1
    return rows


@pytest.mark.parametrize(("change", "says"), [
    (lambda rows: rows.__setitem__((5, 1), 10), "ended after 10 ns"), (lambda rows: rows.__setitem__((5, 2), 6), "one SM"),
])  # fmt: skip
def test_work_that_was_not_done_is_a_wrong_answer(change: Callable[[np.ndarray], None], says: str) -> None:
    rows = done()
    change(rows)
    with pytest.raises(WrongAnswer, match=says):
        CASE.check(BUSY, {"done": rows})
    with pytest.raises(WrongAnswer, match="the mark is 0x0"):
        CASE.check(NOTHING, {"mark": np.zeros(1, dtype="<u4")})


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_probe_stores_both_clocks_at_once_and_a_sweep_keeps_its_loads(
    sass: Callable[[str, str], dict[str, KernelSass]], arch: str
) -> None:
    found = sass("clock_probe", arch)
    assert set(found) == {"probe", "spin", "sweep", "nothing", "busy"}
    (store,) = found["probe"].select("STG")
    assert ".128" in store.opcode
    assert all(".128" in load.opcode for load in found["sweep"].select("LDG")) and found["sweep"].select("LDG")
    loop = found["busy"].main_loop
    assert loop is not None and len(loop.select("FFMA")) >= 64
