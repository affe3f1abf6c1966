"""What cannot run is refused while it is traced, in the words of the engine that runs generators."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

from gpusim import Launch, WarpRole, simulate
from gpusim.errors import HazardError, LaunchError
from gpusim.program.classes import trace_launch
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.atoms import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.token import Token

from .launches import ACCESS, TOY, arguments, launch, of_ops, traced

MATH = wgmma(64, BF16)
LESS = AccessPattern(num_requests=-1)


def load(*numbers: int, buffer: str = "a", stage: int = 0, barrier: str = "full", **more: Any) -> ops.TmaLoad:
    num_bytes, num_fetched, num_rows = numbers or (64, 64, 1)
    return ops.TmaLoad("A", (0, 0), num_bytes, num_fetched, num_rows, buffer, stage, barrier, **more)


REFUSED: list[tuple[Any, ...]] = [
    (load(buffer="aa"),),
    (load(stage=9),),
    (load(barrier="ful"),),
    (load(multicast=(0, 5)),),
    (load(multicast=(-1,)),),
    (load(65536, 64, 1),),
    (load(0, 0, 1),),
    (load(64, 65, 1),),
    (load(64, 64, 0),),
    (load(64, 64, 1, num_boxes=0),),
    (load(64, 64, 4, num_zero_rows=1, num_outside_rows=2),),
    (load(64, 64, 4, num_zero_rows=1),),
    (ops.TmaStore("D", (0, 0), 64, 1, "b", 0),),
    (ops.TmaStore("D", (0, 0), 64, 1, "a", 4),),
    (ops.CpAsync("A", (0, 0), ACCESS, "a", 4),),
    (ops.CpAsync("A", (0, 0), ACCESS, "", 0),),
    (ops.CpAsync("A", (0, 0), ACCESS, "a", 0, num_between=-2.0),),
    (ops.CpAsync("A", (0, 0), LESS, "a", 0),),
    (ops.CpAsyncMbarrierArrive("done", 0),),
    (ops.MbarrierInit("fill"),),
    (ops.MbarrierWait("full", 4, 0),),
    (ops.MbarrierWait("empt", 0, 0),),
    (ops.MbarrierArriveExpectTx("full", 7, 64),),
    (ops.MbarrierArrive("fulll", 0),),
    (ops.MbarrierArrive("full", 0, cta_rank=3),),
    (ops.SharedLoad(ACCESS, "z", 0),),
    (ops.SharedLoad(ACCESS, num_parts=0),),
    (ops.SharedLoad(LESS),),
    (ops.SharedStore(ACCESS, "a", 4),),
    (ops.Ldmatrix(ACCESS, "a", 4),),
    (ops.Stmatrix(ACCESS, "b", 0),),
    (ops.SharedAtomic(LESS),),
    (ops.GlobalLoad("A", (0, 0), LESS),),
    (ops.GlobalStore("A", (0, 0), LESS),),
    (ops.GlobalAtomic("A", (0, 0), LESS, returns=True),),
    (ops.Wgmma(MATH, 1, (("b", 0),)),),
    (ops.Wgmma(MATH, 1, (("a", 4),)),),
    (ops.Wgmma(MATH, 0),),
    (ops.Wgmma(MATH, 1, num_between=-1.0),),
    (ops.BarSync("maths"),),
    (ops.BarArrive("maths"),),
    (ops.DsmemLoad(1, 64),),
    (ops.DsmemStore(-1, 64),),
    (ops.StAsync(2, 64, "full", 0),),
    (ops.StAsync(0, 64, "fool", 0),),
    (ops.ClusterWait(),),
    (ops.ClusterArrive(), ops.ClusterWait(), ops.ClusterWait()),
    (ops.RangeEnd(),),
    (ops.RangeStart(ops.Section.MAINLOOP), ops.RangeEnd(), ops.RangeEnd()),
    (ops.CpAsyncWaitGroup(-1),),
    (ops.BulkWaitGroup(-2),),
    (ops.WgmmaWaitGroup(-1),),
    (ops.Code("loop", 0),),
    (ops.Code("loop", 64), ops.Code("loop", 128)),
    (ops.Fma(8, by_age=True),),
    (ops.Fma(-1),),
    (ops.Alu(-1.5),),
    (ops.Alu(-1.5, is_chain=True),),
    (ops.Alu(4, is_chain=True, num_more=-2),),
    (ops.MadWide(-3),),
    (ops.Mufu(-1),),
    (ops.Shfl(-1),),
    (ops.SetMaxNReg(20, "dec"),),
    (ops.SetMaxNReg(100, "inc"),),
    (ops.SetMaxNReg(40, "dec"),),
    (ops.SetMaxNReg(24, "inc"),),
    (ops.SetMaxNReg(24, "dec"), ops.SetMaxNReg(32, "dec")),
    (ops.Use("token"),),  # type: ignore[arg-type]  # that is what is refused
    (ops.Use(None),),  # type: ignore[arg-type]
    (ops.Use([1]),),  # type: ignore[arg-type]
    ("wgmma",),
    (None,),
    (ops.Fma,),
    (3,),
]


def refusal(of: Launch, *, by_engine: bool, **more: Any) -> tuple[type[Exception], str]:
    """How the engine that runs generators, or tracing, refuses a launch."""
    try:
        if by_engine:
            simulate(of, TOY, engine="python")
        else:
            traced(of, **more)
    except Exception as error:  # noqa: BLE001  # programs raise what they like
        return type(error), str(error)
    raise AssertionError("nothing was refused")


def yields(*some: Any) -> Any:
    """A program that yields just these."""

    def program(cta: RoleContext) -> Iterator[Any]:
        yield from some

    return program


@pytest.mark.parametrize("some", REFUSED, ids=str)
@pytest.mark.parametrize("name", ["worker", "a"])  # a name that sentences may have in them, too
def test_an_op_is_refused_in_the_same_words(some: tuple[Any, ...], name: str) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for op in some:  # noqa: UP028  # the engine sends tokens
            yield op

    of = launch(WarpRole(name=name, num_warps=4, program=program))
    kind, said = refusal(of, by_engine=False)
    assert (kind, said) == refusal(of, by_engine=True)
    assert kind is LaunchError


def test_wgmma_of_part_of_a_warpgroup_is_refused_in_the_same_words() -> None:
    of = launch(yields(ops.Wgmma(MATH, 1)), num_warps=2)
    assert refusal(of, by_engine=False) == refusal(of, by_engine=True)


def test_a_launch_without_named_barriers_says_that_it_has_none() -> None:
    of = launch(yields(ops.BarSync("math")), named_barriers=())
    assert refusal(of, by_engine=False) == refusal(of, by_engine=True)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda cta: 3, "gives 3, wants a function that yields ops"),
        (lambda cta: [ops.Fma(1)], "wants a function that yields ops"),
        (lambda cta: iter([ops.Fma(1)]), "wants a function that yields ops"),
        (lambda cta: None, "gives None, wants"),
    ],
)
def test_a_program_that_is_no_generator_is_refused_in_the_same_words(program: Any, said: str) -> None:
    kind, message = refusal(launch(program), by_engine=False)
    other_kind, other = refusal(launch(program), by_engine=True)
    assert kind is other_kind is LaunchError
    assert re.sub("0x[0-9a-f]+", "", message) == re.sub("0x[0-9a-f]+", "", other)
    assert said in message


def test_a_generator_of_another_class_is_one() -> None:
    class Steps(Generator[Any, Any, None]):
        def __init__(self) -> None:
            self.left = [ops.Fma(1), ops.Fma(2)]

        def send(self, value: Any) -> Any:
            if not self.left:
                raise StopIteration
            return self.left.pop()

        def throw(self, *of: Any) -> Any:
            raise AssertionError

    assert traced(launch(lambda cta: Steps())).num_ops_traced == 2


class OwnError(Exception):
    """A program's own."""


@pytest.mark.parametrize(
    "error",
    [
        OwnError("no"), ValueError("numpy"), TypeError("unlike"), TypeError("numpy.int64 is no int"), LaunchError("bad"),
        LaunchError("role0 is bad"), HazardError("read"), KeyError("a"), RuntimeError("odd"),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("when", ["at once", "behind an op", "behind a token", "when called"])
def test_a_programs_own_exception_passes_as_it_does_when_it_runs(error: Exception, when: str) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        if when == "behind an op":
            yield ops.Fma(1)
        if when == "behind a token":
            yield ops.SharedLoad(ACCESS)
        raise error

    def called(cta: RoleContext) -> Any:
        raise error

    of = launch(called if when == "when called" else program)
    assert refusal(of, by_engine=False) == refusal(of, by_engine=True)


def test_what_a_program_raises_is_the_very_same_exception() -> None:
    error = OwnError("no")

    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(1)
        raise error

    with pytest.raises(OwnError) as caught:
        traced(launch(program))
    assert caught.value is error


# ---------------------------------------------------------------------- who is named


def test_a_refusal_names_the_cta_and_the_role() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(1)
        if cta.cta_idx == 2:
            yield ops.MbarrierWait("full", 4, 0)

    of = launch(yields(ops.Fma(1)), program, num_ctas=4)
    kind, said = refusal(of, by_engine=False)
    assert said == "test: role 'role1' of CTA 2: mbarrier 'full' has 4 stages, stage 4 was used"
    assert (kind, said) == refusal(of, by_engine=True)


def test_a_rank_outside_of_the_cluster_is_refused_with_those_there_are() -> None:
    of = launch(yields(ops.DsmemStore(2, 64)), num_ctas=2, cluster_size=2)
    kind, said = refusal(of, by_engine=False)
    assert "names cluster rank 2, the cluster has ranks 0 to 1" in said
    assert (kind, said) == refusal(of, by_engine=True)


def test_another_roles_token_is_none_of_this_roles() -> None:
    kept: list[Token] = []

    def gives(cta: RoleContext) -> Iterator[Any]:
        kept.append((yield ops.SharedLoad(ACCESS)))

    def takes(cta: RoleContext) -> Iterator[Any]:
        yield ops.Use(kept[-1])

    _, said = refusal(launch(gives, takes), by_engine=False)
    assert re.match(r"test: role 'role1' of CTA 0 uses <.*Token object.*>, wants the token that a load has given", said)


def test_a_negative_stage_counts_from_the_end_as_it_does_when_it_runs() -> None:
    programs = traced(launch(yields(ops.MbarrierArrive("empty", -1), ops.SharedStore(ACCESS, "a", -4))))
    arrive, store = programs.ops_of(0, 0)
    assert programs.barriers[arrive["barrier"]] == ("empty", 3)
    assert programs.stages[store["stage"]] == ("a", 0)
    of = launch(yields(ops.MbarrierArrive("empty", -5)))
    assert refusal(of, by_engine=False) == refusal(of, by_engine=True)


# ---------------------------------------------------------------------- limits


def test_an_endless_program_ends_with_a_sentence_that_says_the_limit_and_how_to_raise_it() -> None:
    num_yielded = 0

    def program(cta: RoleContext) -> Iterator[Any]:
        nonlocal num_yielded
        while True:
            num_yielded += 1
            yield ops.Fma(1)

    kind, said = refusal(launch(program), by_engine=False, max_ops=1000)
    assert kind is LaunchError
    assert said.startswith("test: role 'role0' of CTA 0 yields more than 1000 ops")
    assert said.endswith("raise max_ops")
    assert num_yielded == 1001


@pytest.mark.parametrize("num_ops", [0, 1, 9, 10])
@pytest.mark.parametrize("has_token", [False, True])
def test_the_limit_is_the_number_of_ops_of_one_role_of_one_cta(num_ops: int, has_token: bool) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in range(num_ops):
            yield ops.SharedLoad(ACCESS) if has_token else ops.Fma(1)

    of = launch(program, program, num_ctas=3)
    assert traced(of, max_ops=10).num_ops_traced == 6 * num_ops
    if num_ops:
        assert "more than" in refusal(of, by_engine=False, max_ops=num_ops - 1)[1]


def test_endless_turns_end_too() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in cta.tiles(4, step=0):
            yield ops.Fma(1)

    assert "more than 50 ops" in refusal(launch(program), by_engine=False, max_ops=50)[1]


def test_the_default_limit_is_a_million() -> None:
    assert trace_launch.__kwdefaults__["max_ops"] == 1_000_000


def test_too_many_panels_are_refused() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for panel in range((1 << 16) + 1):
            yield ops.GlobalStore("out", (panel, 0), ACCESS)

    assert "names more than 65536 panels" in refusal(launch(program), by_engine=False)[1]


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("op", "field", "number"),
    [
        (ops.MbarrierArrive("full", np.int64(1), np.int32(3)), "extra", 3),
        (ops.MbarrierArrive("full", np.float64(1), 3.0), "extra", 3),
        (ops.MbarrierArriveExpectTx("full", 0, np.float32(4096)), "extra", 4096),
        (ops.MbarrierWait("full", 0, np.bool_(True)), "extra", 1),
        (ops.Mufu(np.float32(1.5)), "number", 1.5),
        (ops.Mufu(np.int64(7)), "number", 7.0),
        (ops.GlobalStore("out", (np.int64(5), np.int64(6)), ACCESS), "step", 6),
        (ops.Wgmma(MATH, np.int64(2)), "barrier", 2),
        (ops.SetMaxNReg(np.int64(24), "dec"), "extra", 24),
    ],
    ids=str,
)  # fmt: skip
def test_numpys_numbers_are_taken_for_what_they_are(op: ops.Op, field: str, number: float) -> None:
    (row,) = traced(launch(yields(op))).ops_of(0, 0)
    assert row[field] == number


@pytest.mark.parametrize(
    "op", [ops.MbarrierArrive("full", 0, 2.5), ops.MbarrierArriveExpectTx("full", 0, 1 << 40)],  # type: ignore[arg-type]
    ids=str,
)  # fmt: skip
def test_numbers_that_are_not_whole_or_too_large_are_refused(op: ops.Op) -> None:
    kind, said = refusal(launch(yields(op)), by_engine=False)
    assert kind is LaunchError
    assert "wants whole numbers below 2**31" in said


def test_a_sentence_does_not_depend_on_how_many_ctas_are_traced() -> None:
    of = launch(yields(ops.MbarrierInit("fill")), num_ctas=8, has_uniform_programs=True)
    with pytest.raises(LaunchError, match="CTA 0: mbarrier 'fill' is not declared"):
        trace_launch(of, **arguments(of))


def test_ops_are_refused_by_their_class_and_not_by_their_name() -> None:
    class Fma(ops.Fma):
        """No word of the vocabulary."""

    of = launch(yields(Fma(1)))
    assert refusal(of, by_engine=False) == refusal(of, by_engine=True)
    assert traced(launch(of_ops(ops.Fma(1)))).num_ops_traced == 1
