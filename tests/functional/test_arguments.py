"""What a functional run cannot take is refused with a sentence, and a long one reports how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gpusim import Buffer, DataError, GemmParams, Launch, load_gpu, run_functional
from gpusim.errors import LaunchError
from gpusim.functional import progress
from gpusim.workload import ops, time_limit
from gpusim.workload.data_access import GlobalElements, SharedElements
from gpusim.workload.dtypes import FP16, FP32, INT8, DType
from gpusim.workload.launch import WarpRole
from gpusim.workload.tensor import MemRef

from .hand_written import ANY

THREAD = np.arange(32)[:, None]

Program = Callable[[Any], Any]


def of(program: Program, dtype: DType = FP32, num_ctas: int = 1) -> Launch:
    """CTAs of one warp, with 128 bytes of shared memory and two tensors of 32 elements."""
    return Launch(
        kernel="mine", num_ctas=num_ctas, num_tiles=num_ctas, buffers=(Buffer(name="tile", stage_bytes=128),),
        roles=(WarpRole(name="all", num_warps=1, program=program),),
        tensors=tuple(MemRef.row_major(name, (32,), dtype) for name in ("in", "out")),
    )


def copy(offsets: Any = 4 * THREAD, *, stage: int = 0, index: Any = THREAD, is_used: bool = True) -> Program:
    """Each thread moves its element through shared memory."""

    def program(cta: Any) -> Iterator[Any]:
        token = yield ops.GlobalLoad("in", (0, 0), ANY, data=GlobalElements(tensor="in", index=index, registers="x"))
        if is_used:
            yield ops.Use(token)
        write = SharedElements(offsets=offsets, dtype=FP32, registers="x", buffer="tile", stage=stage)
        yield ops.SharedStore(ANY, "tile", stage, data=write)
        read = SharedElements(offsets=4 * THREAD, dtype=FP32, registers="y")
        yield ops.Use((yield ops.SharedLoad(ANY, "tile", data=read)))
        yield ops.GlobalStore("out", (0, 0), ANY, data=GlobalElements(tensor="out", index=THREAD, registers="y"))

    return program


def raises(cta: Any) -> Iterator[Any]:
    yield ops.Alu(1)
    raise ValueError("mine")


IN = {"in": np.arange(32)}
ALL = r"^mine: role 'all' of CTA 0"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (raises, f"{ALL}: its program raises ValueError: mine before op 2"),
        (lambda cta: 5, f"{ALL} has a program that gives 5, wants a function that yields ops"),
        (copy(4 * THREAD - 4), rf"{ALL}: byte -4 of a stage of buffer 'tile', which has 128 bytes \(op 3 of the role\)"),
        (copy(4 * THREAD + 4), f"{ALL}: byte 131 of a stage of buffer 'tile'"),
        (copy(np.where(THREAD, 4 * THREAD, 2)), f"{ALL}: an element of 4 bytes at byte 2 of buffer 'tile' is not aligned"),
        (copy(stage=-1), f"{ALL}: data access to stage -1 of buffer 'tile', which has 1 stages"),
        (copy(index=THREAD - 2), f"{ALL}: element -2 of tensor in is beyond its 32 elements"),
        (copy(index=THREAD * 0.5), f"{ALL}: GlobalLoad, op 1: its data access raises "),
        (copy(is_used=False), "whose registers 'x' have been loaded without a Use of the load's token"),
    ],
)
def test_a_wrong_program_is_refused_with_its_role_and_op(program: Program, why: str) -> None:
    with pytest.raises((DataError, LaunchError), match=why):
        run_functional(of(program), IN)


@pytest.mark.parametrize(
    ("dtype", "values", "why"),
    [
        (FP32, np.full(32, 1j), "tensor in has data of type complex128, wants real numbers"),
        (FP32, np.full(32, "x"), "tensor in has data of type <U1, wants real numbers"),
        (FP32, [[1], [1, 2]], "tensor in is no array: its rows have different lengths"),
        (INT8, np.full(32, 300), r"tensor in is int8, and \[0\] of its data is 300: use integers from -128 to 127"),
        (INT8, np.full(32, 0.5), r"\[0\] of its data is 0.5"), (INT8, np.full(32, np.nan), r"\[0\] of its data is nan"),
        (FP16, np.full(32, 7e4), r"tensor in is fp16, and \[0\] of its data is 70000.0: use values up to 65504"),
    ],
)
def test_data_that_the_type_does_not_hold_are_refused(dtype: DType, values: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        run_functional(of(copy(), dtype), {"in": values})


@pytest.mark.parametrize(
    "wrong", [{"seed": "x"}, {"seed": -1}, {"seed": 1.5}, {"num_ctas": 0}, {"num_ctas": -2}, {"tolerance": -1.0},
              {"tolerance": float("nan")}],
)  # fmt: skip
def test_a_wrong_argument_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(LaunchError, match=f"^{next(iter(wrong))} is .*, wants a"):
        run_functional(of(copy()), IN, **wrong)


def test_options_in_place_of_a_launch_and_a_list_in_place_of_data_are_refused() -> None:
    with pytest.raises(LaunchError, match="got a GemmOptions, wants a Launch"):
        run_functional(GemmParams(m=8, n=8, k=8), {})  # type: ignore[arg-type]  # it is wrong
    with pytest.raises(DataError, match="data is a list, wants arrays by the names of tensors"):
        run_functional(of(copy()), [1])  # type: ignore[arg-type]  # it is wrong


def test_a_long_run_reports_ctas_and_the_seconds_left_or_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second at each look: a CTA of four waits takes as long as the others."""
    clock = iter(range(1000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    seen: list[tuple[int, int, float]] = []
    run_functional(of(copy(), num_ctas=20), IN, on_progress=lambda *now: seen.append(now))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert {num for _, num, _ in seen} == {20}
    assert all(left == pytest.approx(when * (20 - done) / done) for when, (done, _, left) in enumerate(seen, 1) if done)
    with pytest.warns(UserWarning, match=r"mine: the functional run takes about \d+ s more, \d+ of 20 CTAs have ended"):
        run_functional(of(copy(), num_ctas=20), IN)


def test_a_missing_barrier_between_warps_of_a_role_changes_no_number_and_is_found_by_the_order_check() -> None:
    thread = np.arange(64)[:, None]

    def reverse(cta: Any) -> Iterator[Any]:
        own = GlobalElements(tensor="in", index=thread, registers="x")
        yield ops.Use((yield ops.GlobalLoad("in", (0, 0), ANY, data=own)))
        yield ops.SharedStore(ANY, "tile", 0, data=SharedElements(offsets=4 * thread, dtype=FP32, registers="x"))
        read = SharedElements(offsets=252 - 4 * thread, dtype=FP32, registers="y")
        yield ops.Use((yield ops.SharedLoad(ANY, "tile", 0, data=read)))
        yield ops.GlobalStore("out", (0, 0), ANY, data=GlobalElements(tensor="out", index=thread, registers="y"))

    launch = Launch(
        kernel="mine", num_ctas=1, num_tiles=1, buffers=(Buffer(name="tile", stage_bytes=256),),
        roles=(WarpRole(name="all", num_warps=2, program=reverse),),
        tensors=tuple(MemRef.row_major(name, (64,), FP32) for name in ("in", "out")),
    )
    assert run_functional(launch, {"in": np.arange(64)}, seed=1)["out"].tolist() == [*range(63, -1, -1)]
    assert "missing: __syncthreads" in str(launch.check(load_gpu("h200_sxm"))[0])


def test_a_program_that_yields_nothing_for_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(cta: Any) -> Iterator[Any]:
        yield ops.Fma(1)
        while True:
            pass

    monkeypatch.setattr(time_limit, "LOOK_S", 0.02)
    with pytest.raises(LaunchError, match="mine: role 'all' of CTA 0 has yielded nothing for"):
        run_functional(of(endless), {"in": np.zeros(32, dtype=np.float32)})
