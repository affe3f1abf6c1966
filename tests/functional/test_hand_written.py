"""Launches written by hand equal numpy, and a wrong step in them is found and named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import DataError, DeadlockError, HazardError, Launch, run_functional
from gpusim.workload import ops
from gpusim.workload.launch import WarpRole
from gpusim.workload.smem.access import AccessPattern

from .hand_written import TMA_SHAPE, by_cp_async, by_tma, operands, tensors

Operands = dict[str, NDArray[np.float32]]
BY_TMA, BY_CP_ASYNC = operands(*TMA_SHAPE), operands(64, 64, 160)


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize(("make", "data"), [(by_tma, BY_TMA), (by_cp_async, BY_CP_ASYNC)])
def test_a_pipeline_equals_numpy(make: Callable[[], Launch], data: Operands, seed: int | None) -> None:
    assert np.array_equal(run_functional(make(), data, seed=seed)["D"], data["A"] @ data["B"])


@pytest.mark.parametrize(
    ("make", "data", "mutation", "named"),
    [
        (by_tma, BY_TMA, "wrong swizzle", r"Wgmma.*operand A, row \d+, k \d+ is A\[\d+, \d+\], byte \d+ of stage 0 of "
         r"buffer 'a' \(bank \d+\), written by TmaLoad of A, op 3 of role 'producer'"),
        (by_tma, BY_TMA, "transposed", r"operand B, row 1, k 0 is B\[1, 0\], byte 2 of stage 0 of buffer 'b' \(bank 0\), "
         r"written by TmaLoad of B.*; other rows have index 0 along the contracted mode"),
        (by_tma, BY_TMA, "wrong stage", r"A\[0, 128\], byte 0 of stage 0 of buffer 'a'.*it was multiplied before"),
        (by_tma, BY_TMA, "short box", r"operand A, row 56, k 0, byte 7168 of stage 0 of buffer 'a' \(bank 0\); nobody"),
        (by_cp_async, BY_CP_ASYNC, "wrong swizzle", r"MmaSync.*operand A, row 4, k 0 \(lane 16, value 0\) is A\[4, 16\], "
         r"byte 256 of stage 0 of buffer 'a' \(bank 0\), written by CpAsync of A, op 1 of role 'math'"),
        (by_cp_async, BY_CP_ASYNC, "transposed", r"operand A, row 1, k 0 \(lane 4, value 0\) is A\[0, 1\], byte 2 of stage "
         r"0 of buffer 'a' \(bank 0\), written by CpAsync"),
        (by_cp_async, BY_CP_ASYNC, "an element too few", r"operand B, row 3, k 15 \(lane 15, value 3\), byte 1230 of stage "
         r"0 of buffer 'b' \(bank 19\); nobody wrote it"),
        (by_cp_async, BY_CP_ASYNC, "no wait", r"row 0, k 0 \(lane 0, value 0\), byte 0 of stage 0 of buffer 'a' \(bank 0\); "
         r"nobody wrote it"),
    ],
)  # fmt: skip
def test_the_copy_of_the_first_wrong_element_is_named(
    make: Callable[[str], Launch], data: Operands, mutation: str, named: str
) -> None:
    with pytest.raises(DataError, match=rf"^D\[\d+, \d+\] is -?\d+, wants -?\d+: .*({named})"):
        run_functional(make(mutation), data, expected={"D": data["A"] @ data["B"]})


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("mutation", ["no full wait", "no wgmma wait", "no empty wait", "too few bytes"])
def test_a_missing_wait_is_found_in_a_random_order(mutation: str, seed: int) -> None:
    with pytest.raises((DataError, DeadlockError, HazardError)):
        run_functional(by_tma(mutation), BY_TMA, expected={"D": BY_TMA["A"] @ BY_TMA["B"]}, seed=seed)


def test_a_store_to_a_wrong_element_is_named() -> None:
    expected = BY_TMA["A"] @ BY_TMA["B"]
    expected[5, 9] += 1
    with pytest.raises(DataError, match=r"^D\[5, 9\] is .*stored by GlobalStore of D, op \d+ of role 'consumer' of CTA 0, "
                                        r"thread 20, value 5$"):
        run_functional(by_tma(), BY_TMA, expected={"D": expected})


def one_op(op: ops.Op) -> Launch:
    return Launch(
        kernel="mine", num_ctas=1, num_tiles=1, tensors=tensors(8, 8, 8),
        roles=(WarpRole(name="all", num_warps=1, program=lambda cta: (each for each in [op])),),
    )


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (ops.GlobalStore("D", (0, 0), AccessPattern()), "GlobalStore as its op 1, which has no data access"),
        (ops.DsmemStore(0, 16), "DsmemStore as its op 1, which has no data access"),
    ],
)
def test_an_op_without_a_data_access_is_refused(op: ops.Op, why: str) -> None:
    with pytest.raises(DataError, match=f"^mine: role 'all' of CTA 0 yields {why}"):
        run_functional(one_op(op), {})


def test_wrong_data_are_refused() -> None:
    with pytest.raises(DataError, match="no tensor 'X', it declares A, B, D"):
        run_functional(by_tma(), {"X": BY_TMA["A"]})
    with pytest.raises(DataError, match=r"tensor A has shape \(3,\), the launch declares \(64, 296\)"):
        run_functional(by_tma(), {"A": np.zeros(3)})
    with pytest.raises(DataError, match="tensor B is read, and data has no values for it"):
        run_functional(by_tma(), {"A": BY_TMA["A"]})
