"""What cannot run is refused while it is traced: who yields what, what was found, and what would do."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

from gpusim import Launch, Mbarrier, WarpRole
from gpusim.errors import GpusimError, HazardError, LaunchError
from gpusim.program.cta_classes import trace_launch
from gpusim.workload import ops, time_limit
from gpusim.workload.atoms import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.token import Token

from .launches import ACCESS, arguments, launch, of_ops, ops_of, traced

MATH = wgmma(64, BF16)
LESS = AccessPattern(num_requests=-1)


def load(*numbers: int, buffer: str = "a", stage: int = 0, barrier: str = "full", **more: Any) -> ops.TmaLoad:
    num_bytes, num_fetched, num_rows = numbers or (64, 64, 1)
    return ops.TmaLoad("A", (0, 0), num_bytes, num_fetched, num_rows, buffer, stage, barrier, **more)


REFUSED: list[tuple[tuple[Any, ...], str]] = [
    ((load(buffer="aa"),), "buffer 'aa' is not declared in the launch; did you mean 'a'?"),
    ((load(stage=9),), "mbarrier 'full' has 4 stages, stage 9 was used"),
    ((load(barrier="ful"),), "mbarrier 'ful' is not declared in the launch; did you mean 'full'?"),
    ((load(multicast=(0, 5)),), "{who} names cluster rank 5, the cluster has ranks 0 to 0"),
    ((load(multicast=(-1,)),), "{who} names cluster rank -1, the cluster has ranks 0 to 0"),
    (
        (load(65536, 64, 1),),
        "a TmaLoad of 65536 bytes, 64 of them fetched, into 'a', whose stages hold 32768; wants no more than that",
    ),
    (
        (load(0, 0, 1),),
        "a TmaLoad of 0 bytes, 0 of them fetched, into 'a', whose stages hold 32768; wants no more than that",
    ),
    (
        (load(64, 65, 1),),
        "a TmaLoad of 64 bytes, 65 of them fetched, into 'a', whose stages hold 32768; wants no more than that",
    ),
    ((ops.MbarrierWait("full", 0, 2),), "{who} waits for parity 2 of mbarrier full, wants 0 or 1"),
    ((load(64, 64, 0),), "a TmaLoad of 0 rows in 1 boxes, wants 1 or more of each"),
    ((load(64, 64, 1, num_boxes=0),), "a TmaLoad of 1 rows in 0 boxes, wants 1 or more of each"),
    (
        (load(64, 64, 4, num_zero_rows=1, num_outside_rows=2),),
        "a TmaLoad of 4 rows, 1 of them outside of its tensor, 2 in boxes all outside, wants no more than all",
    ),
    (
        (load(64, 64, 4, num_zero_rows=1),),
        "a TmaLoad of 4 rows and 64 bytes fetches 64, wants no more than rows inside have: 1 lie outside",
    ),
    ((ops.TmaStore("D", (0, 0), 64, 1, "b", 0),), "buffer 'b' is not declared in the launch; known: a"),
    ((ops.TmaStore("D", (0, 0), 64, 1, "a", 4),), "buffer 'a' has 4 stages, stage 4 was used"),
    ((ops.CpAsync("A", (0, 0), ACCESS, "a", 4),), "buffer 'a' has 4 stages, stage 4 was used"),
    ((ops.CpAsync("A", (0, 0), ACCESS, "", 0),), "buffer '' is not declared in the launch; known: a"),
    ((ops.CpAsync("A", (0, 0), LESS, "a", 0),), "-0.25 instructions were issued, wants 0 or more"),
    ((ops.CpAsyncMbarrierArrive("done", 0),), "mbarrier 'done' is not declared in the launch; known: empty, full"),
    ((ops.MbarrierInit("fill"),), "mbarrier 'fill' is not declared in the launch; did you mean 'full'?"),
    ((ops.MbarrierWait("full", 4, 0),), "mbarrier 'full' has 4 stages, stage 4 was used"),
    ((ops.MbarrierWait("empt", 0, 0),), "mbarrier 'empt' is not declared in the launch; did you mean 'empty'?"),
    ((ops.MbarrierArriveExpectTx("full", 7, 64),), "mbarrier 'full' has 4 stages, stage 7 was used"),
    ((ops.MbarrierArrive("fulll", 0),), "mbarrier 'fulll' is not declared in the launch; did you mean 'full'?"),
    ((ops.MbarrierArrive("full", 0, cta_rank=3),), "{who} names cluster rank 3, the cluster has ranks 0 to 0"),
    ((ops.SharedLoad(ACCESS, "z", 0),), "buffer 'z' is not declared in the launch; known: a"),
    ((ops.SharedLoad(ACCESS, num_parts=0),), "{who} reads 0 parts, wants 1 or more"),
    ((ops.SharedLoad(LESS),), "-0.25 instructions were issued, wants 0 or more"),
    ((ops.SharedStore(ACCESS, "a", 4),), "buffer 'a' has 4 stages, stage 4 was used"),
    ((ops.Ldmatrix(ACCESS, "a", 4),), "buffer 'a' has 4 stages, stage 4 was used"),
    ((ops.Stmatrix(ACCESS, "b", 0),), "buffer 'b' is not declared in the launch; known: a"),
    ((ops.SharedAtomic(LESS),), "-0.25 instructions were issued, wants 0 or more"),
    ((ops.GlobalLoad("A", (0, 0), LESS),), "-0.25 instructions were issued, wants 0 or more"),
    ((ops.GlobalStore("A", (0, 0), LESS),), "-0.25 instructions were issued, wants 0 or more"),
    ((ops.GlobalAtomic("A", (0, 0), LESS, returns=True),), "-0.25 instructions were issued, wants 0 or more"),
    ((ops.Wgmma(MATH, 1, (("b", 0),)),), "buffer 'b' is not declared in the launch; known: a"),
    ((ops.Wgmma(MATH, 1, (("a", 4),)),), "buffer 'a' has 4 stages, stage 4 was used"),
    ((ops.Wgmma(MATH, 0),), "0 wgmma by 4 warps, wants 1 or more by full warpgroups of 4"),
    ((ops.Wgmma(MATH, 1, num_between=-1.0),), "-1.0 instructions between wgmma, wants 0 or more"),
    ((ops.BarSync("maths"),), "{who} uses barrier 'maths', the launch declares math"),
    ((ops.BarArrive("maths"),), "{who} uses barrier 'maths', the launch declares math"),
    ((ops.DsmemLoad(1, 64),), "{who} names cluster rank 1, the cluster has ranks 0 to 0"),
    ((ops.DsmemStore(-1, 64),), "{who} names cluster rank -1, the cluster has ranks 0 to 0"),
    ((ops.StAsync(2, 64, "full", 0),), "{who} names cluster rank 2, the cluster has ranks 0 to 0"),
    ((ops.StAsync(0, 64, "fool", 0),), "mbarrier 'fool' is not declared in the launch; known: empty, full"),
    ((ops.ClusterWait(),), "{who} waits on the cluster barrier and has not arrived; arrive first"),
    (
        (ops.ClusterArrive(), ops.ClusterWait(), ops.ClusterWait(),),
        "{who} waits on the cluster barrier and has not arrived; arrive first",
    ),
    ((ops.RangeEnd(),), "{who} ends a range that it never started; yield RangeStart first"),
    (
        (ops.RangeStart(ops.Section.MAINLOOP), ops.RangeEnd(), ops.RangeEnd(),),
        "{who} ends a range that it never started; yield RangeStart first",
    ),
    ((ops.CpAsyncWaitGroup(-1),), "{who} waits until -1 groups are in flight, wants 0 or more"),
    ((ops.BulkWaitGroup(-2),), "{who} waits until -2 groups are in flight, wants 0 or more"),
    ((ops.WgmmaWaitGroup(-1),), "{who} waits until -1 groups are in flight, wants 0 or more"),
    ((ops.FetchCode("loop", 0),), "code 'loop' has 0 bytes and had 0, wants one length above 0"),
    (
        (ops.FetchCode("loop", 64), ops.FetchCode("loop", 128),),
        "code 'loop' has 128 bytes and had 64, wants one length above 0",
    ),
    ((ops.Fma(8, by_age=True),), "{who} multiplies by age and takes no turns, wants num_runs of 1 or more"),
    ((ops.Fma(-1),), "-1 instructions were issued, wants 0 or more"),
    ((ops.Alu(-1.5),), "-1.5 instructions were issued, wants 0 or more"),
    ((ops.Alu(-1.5, is_chain=True),), "-1.5 instructions were issued, wants 0 or more"),
    ((ops.Alu(4, is_chain=True, num_more=-2),), "-2 instructions were issued, wants 0 or more"),
    ((ops.ImadWide(-3),), "-3 instructions were issued, wants 0 or more"),
    ((ops.Mufu(-1),), "-1 instructions were issued, wants 0 or more"),
    ((ops.Shfl(-1),), "-1 instructions were issued, wants 0 or more"),
    ((ops.SetMaxNReg(20, "dec"),), "{who}: setmaxnreg 20, wants a multiple of 8 from 24 to 256"),
    ((ops.SetMaxNReg(100, "inc"),), "{who}: setmaxnreg 100, wants a multiple of 8 from 24 to 256"),
    ((ops.SetMaxNReg(40, "dec"),), "{who}: setmaxnreg.dec 40 from 32 registers, wants the other direction"),
    ((ops.SetMaxNReg(24, "inc"),), "{who}: setmaxnreg.inc 24 from 32 registers, wants the other direction"),
    (
        (ops.SetMaxNReg(24, "dec"), ops.SetMaxNReg(32, "dec"),),
        "{who}: setmaxnreg.dec 32 from 24 registers, wants the other direction",
    ),
    (
        (ops.Use("token"),),
        "{who} uses 'token', wants the token that a load has given",
    ),  # type: ignore[arg-type]  # that is what is refused
    (
        (ops.Use(None),),
        "{who} uses None, wants the token that a load has given",
    ),  # type: ignore[arg-type]  # that is what is refused
    (
        (ops.Use([1]),),
        "{who} uses [1], wants the token that a load has given",
    ),  # type: ignore[arg-type]  # that is what is refused
    (("wgmma",), "{who} yields 'wgmma', wants an op of the vocabulary"),
    ((None,), "{who} yields None, wants an op of the vocabulary"),
    ((ops.Fma,), "{who} yields <class 'gpusim.workload.ops.Fma'>, wants an op of the vocabulary"),
    ((3,), "{who} yields 3, wants an op of the vocabulary"),
]
"""Ops, and what refuses the last of them; who yields it, and a colon, come before a sentence that does not name the role."""


def refusal(of: Launch, **more: Any) -> str:
    """The sentence that refuses a launch."""
    with pytest.raises(LaunchError) as caught:
        traced(of, **more)
    assert type(caught.value) is LaunchError
    return str(caught.value)


def yields(*some: Any) -> Any:
    """A program that yields just these."""

    def program(cta: RoleContext) -> Iterator[Any]:
        yield from some

    return program


@pytest.mark.parametrize(("some", "said"), REFUSED, ids=str)
@pytest.mark.parametrize("name", ["worker", "a"])
def test_an_op_is_refused(some: tuple[Any, ...], said: str, name: str) -> None:
    """Whatever the role's name: it may be in the sentence already."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for op in some:  # noqa: UP028  # tokens are sent
            yield op

    of = launch(WarpRole(name=name, num_warps=4, program=program))
    who = f"test: role {name!r} of CTA 0"
    sentence = said.format(who=who, role=name)
    sentence = sentence if f"role {name!r}" in sentence else f"{who}: {sentence}"
    assert refusal(of) == f"{sentence} (op {len(some)} of the role)"


def test_wgmma_of_part_of_a_warpgroup_is_refused() -> None:
    of = launch(yields(ops.Wgmma(MATH, 1)), num_warps=2)
    assert refusal(of).endswith("of CTA 0: 1 wgmma by 2 warps, wants 1 or more by full warpgroups of 4 (op 1 of the role)")


def test_a_launch_without_named_barriers_says_that_it_has_none() -> None:
    of = launch(yields(ops.BarSync("math")), named_barriers=())
    assert refusal(of).endswith("of CTA 0 uses barrier 'math', the launch declares none (op 1 of the role)")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda cta: 3, "gives 3, wants a function that yields ops"),
        (lambda cta: [ops.Fma(1)], "wants a function that yields ops"),
        (lambda cta: iter([ops.Fma(1)]), "wants a function that yields ops"),
        (lambda cta: None, "gives None, wants"),
    ],
)
def test_a_program_that_is_no_generator_is_refused(program: Any, said: str) -> None:
    sentence = refusal(launch(program))
    assert sentence.startswith("test: role 'role0' of CTA 0 has a program that gives ")
    assert said in sentence


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


WHO = "test: role 'role0' of CTA 0"
RAISES = f"{WHO}: its program raises"


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (OwnError("no"), LaunchError, f"{RAISES} OwnError: no before op {{op}}"),
        (TypeError("unlike"), LaunchError, f"{RAISES} TypeError: unlike before op {{op}}"),
        (LaunchError("bad"), LaunchError, f"{WHO}: bad (op {{op}} of the role)"),
        (LaunchError("role0 is bad"), LaunchError, f"{WHO}: role0 is bad (op {{op}} of the role)"),
        (LaunchError("role 'role0' is bad"), LaunchError, "role 'role0' is bad (op {op} of the role)"),
        (HazardError("read"), HazardError, f"{WHO}: read (op {{op}} of the role)"),
        (KeyError("a"), LaunchError, f"{RAISES} KeyError: 'a' before op {{op}}"),
        (RecursionError(), LaunchError, f"{RAISES} RecursionError before op {{op}}"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("when", ["at once", "behind an op", "behind a token"])
def test_a_programs_own_exception_and_a_refusal_say_who_and_at_which_op(
    error: Exception, kind: type[Exception], said: str, when: str
) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        if when == "behind an op":
            yield ops.Fma(1)
        if when == "behind a token":
            yield ops.SharedLoad(ACCESS)
        raise error

    with pytest.raises(kind) as caught:
        traced(launch(program))
    assert type(caught.value) is kind
    assert str(caught.value) == said.format(op=1 if when == "at once" else 2)
    assert isinstance(error, GpusimError) or caught.value.__cause__ is error


@pytest.mark.parametrize("error", [OwnError("no"), TypeError("numpy"), LaunchError("bad")], ids=repr)
def test_what_is_raised_before_there_is_a_generator_says_who(error: Exception) -> None:
    def called(cta: RoleContext) -> Any:
        raise error

    with pytest.raises(LaunchError, match=r"test: role 'role0' of CTA 0: .*op 1"):
        traced(launch(called))


@pytest.mark.parametrize("number", [1, 3])
def test_a_generator_that_ctas_share_is_refused(number: int) -> None:
    """Whether or not a role looks at its CTA."""
    shared = (ops.Fma(1) for _ in range(number))

    def looking(cta: RoleContext) -> Any:
        return shared if cta.cta_idx >= 0 else None

    for program in (lambda cta: shared, looking):
        with pytest.raises(LaunchError, match="gives a generator which has begun before"):
            traced(launch(program, num_ctas=2))


def test_a_program_that_takes_no_context_is_refused() -> None:
    assert refusal(launch(lambda: iter(()))).startswith("test: role 'role0' of CTA 0 has a program that does not take")


def test_a_program_that_yields_nothing_for_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(1)
        while True:
            pass

    monkeypatch.setattr(time_limit, "LOOK_S", 0.02)
    assert "role 'role0' of CTA 0 has yielded nothing for" in refusal(launch(endless))
    assert traced(launch(yields(ops.Fma(1)))).num_ops_traced == 1  # nothing comes late


# ---------------------------------------------------------------------- who is named


def test_a_refusal_names_the_cta_and_the_role() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(1)
        if cta.cta_idx == 2:
            yield ops.MbarrierWait("full", 4, 0)

    of = launch(yields(ops.Fma(1)), program, num_ctas=4)
    assert refusal(of) == "test: role 'role1' of CTA 2: mbarrier 'full' has 4 stages, stage 4 was used (op 2 of the role)"


def test_a_rank_outside_of_the_cluster_is_refused_with_those_there_are() -> None:
    of = launch(yields(ops.DsmemStore(2, 64)), num_ctas=2, cluster_size=2)
    assert refusal(of).endswith("of CTA 0 names cluster rank 2, the cluster has ranks 0 to 1 (op 1 of the role)")


def test_another_roles_token_is_none_of_this_roles() -> None:
    kept: list[Token] = []

    def gives(cta: RoleContext) -> Iterator[Any]:
        kept.append((yield ops.SharedLoad(ACCESS)))

    def takes(cta: RoleContext) -> Iterator[Any]:
        yield ops.Use(kept[-1])

    said = refusal(launch(gives, takes))
    assert re.match(r"test: role 'role1' of CTA 0 uses <.*Token object.*>, wants the token that a load has given", said)


@pytest.mark.parametrize("op", [ops.MbarrierArrive("a", -1), ops.SharedStore(ACCESS, "a", -4)], ids=str)
def test_a_negative_stage_does_not_count_from_the_end(op: ops.Op) -> None:
    of = launch(yields(op), mbarriers=(Mbarrier(name="a", num_arrivals=1, num_stages=4),))
    assert re.search("'a' has 4 stages, stage -[14] was used", refusal(of))


def test_a_program_that_asks_for_the_time_is_told_where_times_are() -> None:
    def program(cta: Any) -> Iterator[Any]:
        yield ops.Fma(1)
        if cta.cta_idx == 1 and cta.t > 100.0:
            yield ops.Fma(1)

    said = refusal(launch(program, num_ctas=2))
    assert said == (
        "test: role 'role0' of CTA 1 reads cta.t: programs are traced before they run and know no time; "
        "yield RangeStart, RangeEnd, read the timeline (op 2 of the role)"
    )


# ---------------------------------------------------------------------- limits


def test_an_endless_program_ends_with_a_sentence_that_says_the_limit_and_how_to_raise_it() -> None:
    num_yielded = 0

    def program(cta: RoleContext) -> Iterator[Any]:
        nonlocal num_yielded
        while True:
            num_yielded += 1
            yield ops.Fma(1)

    said = refusal(launch(program), max_ops=1000)
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
        assert "more than" in refusal(of, max_ops=num_ops - 1)


def test_endless_turns_end_too() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in cta.tiles(4, step=0):
            yield ops.Fma(1)

    assert "more than 50 ops" in refusal(launch(program), max_ops=50)


def test_the_default_limit_is_a_million() -> None:
    assert trace_launch.__kwdefaults__["max_ops"] == 1_000_000


def test_too_many_panels_are_refused() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for panel in range((1 << 16) + 1):
            yield ops.GlobalStore("out", (panel, 0), ACCESS)

    assert "names more than 65536 panels" in refusal(launch(program))


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
    (row,) = ops_of(traced(launch(yields(op))), 0, 0)
    assert row[field] == number


def test_numbers_that_are_too_large_are_refused() -> None:
    assert "wants integers below 2**31" in refusal(launch(yields(ops.MbarrierArriveExpectTx("full", 0, 1 << 40))))


def test_a_sentence_does_not_depend_on_how_many_ctas_are_traced() -> None:
    of = launch(yields(ops.MbarrierInit("fill")), num_ctas=8, has_uniform_programs=True)
    with pytest.raises(LaunchError, match="CTA 0: mbarrier 'fill' is not declared"):
        trace_launch(of, **arguments(of))


def test_ops_are_refused_by_their_class_and_not_by_their_name() -> None:
    class Fma(ops.Fma):
        """No word of the vocabulary."""

    assert "wants an op of the vocabulary" in refusal(launch(yields(Fma(1))))
    assert traced(launch(of_ops(ops.Fma(1)))).num_ops_traced == 1
