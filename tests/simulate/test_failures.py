"""A failure that the engine records reads as what is raised, and every kind and wait has its words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from gpusim import GpusimError, Mbarrier, NamedBarrier
from gpusim.errors import DeadlockError, HazardError, LaunchError, SimulationError
from gpusim.program.records import FAILURE, Failure, Wait, dtype_of
from gpusim.simulate.failures import failure_of
from gpusim.simulate.pack import trace_plan
from gpusim.simulate.plan import LaunchPlan, plan_launch
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .kernels import TOY, contiguous, expect, launch, load, role, run, shared, wait
from .test_errors import FILL, MULTIPLY, of_ops

BARRIER = (NamedBarrier(name="math", num_threads=64),)


def plan_of(name: str = "worker") -> LaunchPlan:
    """Of a launch that declares what those of these tests do."""
    return plan_launch(
        launch(of_ops(ops.FetchCode("loop", 16), name=name), named_barriers=BARRIER, num_ctas=12), TOY, is_warm=True
    )


def said(*roles: Any, **fields: Any) -> tuple[type[GpusimError], str]:
    """What is raised."""
    with pytest.raises(GpusimError) as caught:
        run(*roles, **fields)
    return type(caught.value), str(caught.value)


def sentence(
    kind: Failure, plan: LaunchPlan | None = None, blocked: list[Mapping[str, Any]] | None = None, **values: float
) -> tuple[type[GpusimError], str]:
    """What a record gives; fields that are not told do not apply."""
    every = {**dict.fromkeys(("cta", "role", "op", "barrier", "stage"), -1.0), "kind": float(kind), **values}
    rows = np.zeros(len(blocked or []), dtype=dtype_of("blocked_roles"))
    for row, fields in zip(rows, blocked or [], strict=True):
        for name, value in fields.items():
            row[name] = value
    sections = {"failure": np.array([every.get(name, 0.0) for name in FAILURE]), "blocked_roles": rows}
    plan = plan or plan_of()
    found = failure_of(sections, plan, trace_plan(plan))
    assert found is not None
    return type(found), str(found)


def numbers(text: str, pattern: str) -> list[float]:
    """What groups of a pattern hold."""
    found = re.search(pattern, text)
    assert found is not None, text
    return [float(part) for part in found.groups()]


# ---------------------------------------------------------------------- hazards


def test_no_failure_is_none() -> None:
    nothing = {"blocked_roles": np.zeros(0, dtype=dtype_of("blocked_roles"))}
    for values in ([], [0.0] * len(FAILURE)):
        assert failure_of({**nothing, "failure": np.array(values)}, plan_of(), trace_plan(plan_of())) is None


def test_a_stage_that_is_refilled_while_it_is_read() -> None:
    again = (expect(0), load(0, step=1))
    kind, text = said(of_ops(*FILL, wait(0), MULTIPLY, ops.WgmmaCommitGroup(), *again, num_warps=4))
    first, second = numbers(text, r"at cycle (\d+) while it is read until (\d+)")
    assert kind is HazardError
    assert sentence(Failure.REFILLED_WHILE_READ, cta=0, role=0, stage=0, first=first, second=second) == (kind, text)


def test_a_stage_that_is_refilled_while_nobody_knows_until_when_it_is_read() -> None:
    store = (ops.SharedStore(shared(1), "a", 2), ops.TmaStore("D", (0, 0), 4096, 1, "a", 2), ops.BulkCommitGroup())
    kind, text = said(of_ops(*store, ops.SharedStore(shared(1), "a", 2)))
    [first] = numbers(text, r"at cycle (\d+) while it is read until inf")
    assert sentence(Failure.REFILLED_WHILE_READ, cta=0, role=0, stage=2, first=first, second=np.inf) == (kind, text)


@pytest.mark.parametrize(("before", "failure"), [(FILL, Failure.READ_BEFORE_FULL), ((), Failure.READ_NEVER_WRITTEN)])
def test_a_stage_that_is_read_too_early(before: tuple[ops.Op, ...], failure: Failure) -> None:
    kind, text = said(of_ops(*before, MULTIPLY, num_warps=4))
    [first] = numbers(text, r"is read at cycle (\d+)")
    assert sentence(failure, cta=0, role=0, stage=0, first=first, second=1e9) == (kind, text)


@pytest.mark.parametrize("name", ["worker", "full"])
def test_too_many_arrivals_name_the_role_and_the_cycle(name: str) -> None:
    kind, text = said(of_ops(ops.MbarrierArrive("full", 2, count=2), name=name))
    [cycle] = numbers(text, r"at cycle (\d+)$")
    assert text.startswith(f"test: role '{name}' of CTA 0: mbarrier full[2] got 2 arrivals")
    values = {"cta": 0, "role": 0, "barrier": 2, "first": 2, "second": 1, "cycle": cycle}
    assert sentence(Failure.TOO_MANY_ARRIVALS, plan_of(name), **values) == (kind, text)


def test_too_many_arrivals_of_copies_that_come_later_name_nobody() -> None:
    copies = (ops.CpAsync("A", (0, 1), contiguous(128), "a", 0), ops.CpAsyncMbarrierArrive("full", 0), wait(0))
    kind, text = said(of_ops(*copies))
    [cycle] = numbers(text, r"at cycle (\d+)$")
    assert text.startswith("test: mbarrier full[0] got 32 arrivals in a phase that expects 1, at cycle ")
    assert sentence(Failure.TOO_MANY_ARRIVALS, barrier=0, first=32, second=1, cycle=cycle) == (kind, text)


def test_too_many_threads_at_a_barrier() -> None:
    kind, text = said(of_ops(ops.BarSync("math"), num_warps=4), named_barriers=BARRIER)
    assert sentence(Failure.BARRIER_THREADS, cta=0, role=0, barrier=0, first=128, second=64) == (kind, text)
    assert "barrier '__syncthreads': 3" in sentence(Failure.BARRIER_THREADS, cta=0, role=0, barrier=-1, first=3)[1]
    twice = of_ops(ops.ClusterArrive(), ops.ClusterArrive(), num_warps=2)
    kind, text = said(twice, of_ops(ops.Fma(1000.0), name="other"))
    assert sentence(Failure.BARRIER_THREADS, cta=0, role=0, barrier=-2, first=128, second=96) == (kind, text)


def test_a_cta_that_exits_with_bytes_on_their_way() -> None:
    kind, text = said(of_ops(expect(1, 4096)), mbarriers=(Mbarrier(name="full", num_arrivals=2, num_stages=4),))
    announced, delivered = numbers(text, r"has (\d+) bytes announced and (\d+) delivered")
    found = sentence(Failure.EXIT_WITH_BYTES, cta=0, barrier=1, first=announced, second=delivered)
    assert found == (kind, text)
    assert (announced, delivered) == (4096.0, 0.0)


# ---------------------------------------------------------------------- what tracing refuses before


@pytest.mark.parametrize(
    ("op", "failure", "values"),
    [
        (ops.ClusterWait(), Failure.CLUSTER_NOT_ARRIVED, {}),
        (ops.RangeEnd(), Failure.RANGE_NOT_STARTED, {}),
        (ops.MbarrierArrive("full", 0, cta_rank=3), Failure.NO_SUCH_RANK, {"first": 3, "second": 1}),
        (ops.SetMaxNReg(24, "inc"), Failure.SETMAXNREG_DIRECTION, {"first": 24, "second": 168, "third": 1}),
        (ops.SetMaxNReg(232, "dec"), Failure.SETMAXNREG_DIRECTION, {"first": 232, "second": 168}),
        (ops.FetchCode("loop", 0), Failure.CODE_LENGTH, {"first": 0, "second": 0, "third": 0}),
    ],
    ids=str,
)
def test_what_needs_no_time_reads_the_same(op: ops.Op, failure: Failure, values: dict[str, float]) -> None:
    kind, text = said(of_ops(op), registers_per_thread=168)
    assert kind is LaunchError
    assert sentence(failure, cta=0, role=0, **values) == (kind, text.removesuffix(" (op 1 of the role)"))


# ---------------------------------------------------------------------- deadlocks


def waits(*some: Any, name: str = "worker", num_warps: int = 1, **fields: Any) -> tuple[str, str]:
    """(what is waited for, since when) by the one role that a deadlock names."""
    kind, text = said(of_ops(*some, name=name, num_warps=num_warps), **fields)
    assert kind is DeadlockError
    found = re.fullmatch(rf"test: deadlock: role '{name}' of CTA 0 waits for (.*) since cycle (\d+)", text)
    assert found is not None, text
    return found[1], found[2]


@pytest.mark.parametrize(
    ("some", "fields", "row"),
    [
        (
            (ops.Fma(50), wait(1)), {"mbarriers": (Mbarrier(name="full", num_arrivals=3, num_stages=2),)},
            {"wait": Wait.MBARRIER, "barrier": 1, "pending": 3, "num_arrivals": 3},
        ),
        (
            (expect(0, 4096), load(0, 2048), wait(0)), {},
            {
                "wait": Wait.MBARRIER, "barrier": 0, "num_arrivals": 1, "tx_bytes": 2048, "announced_bytes": 4096,
                "delivered_bytes": 2048,
            },
        ),
        (
            (ops.MbarrierArriveExpectTx("full", 0, 64), wait(0)),
            {"mbarriers": (Mbarrier(name="full", num_arrivals=2, num_stages=2),)},
            {
                "wait": Wait.MBARRIER, "barrier": 0, "pending": 1, "num_arrivals": 2, "tx_bytes": 64,
                "announced_bytes": 64,
            },
        ),
        ((ops.BarSync("math"),), {"named_barriers": BARRIER}, {"wait": Wait.NAMED_BARRIER, "barrier": 0}),
        (
            (ops.SetMaxNReg(232, "inc"),), {"registers_per_thread": 168},
            {"wait": Wait.REGISTERS, "pending": 2048, "number": 232},
        ),
    ],
)  # fmt: skip
def test_a_wait_reads_the_same(some: tuple[ops.Op, ...], fields: dict[str, Any], row: dict[str, Any]) -> None:
    what, since = waits(*some, **fields)
    kind, text = sentence(Failure.DEADLOCK, blocked=[{"since_cycle": float(since), **row}])
    assert (kind, text) == (DeadlockError, f"test: deadlock: role 'worker' of CTA 0 waits for {what} since cycle {since}")


@pytest.mark.parametrize(
    ("some", "row", "what"),
    [
        (ops.Syncthreads(), {"wait": Wait.SYNCTHREADS}, "barrier '__syncthreads'"),
        (None, {"wait": Wait.CLUSTER_BARRIER}, "the cluster barrier"),
        (None, {"wait": Wait.CP_ASYNC_GROUP, "number": 2}, "cp.async.wait_group 2"),
        (None, {"wait": Wait.BULK_GROUP, "number": 0}, "cp.async.bulk.wait_group 0"),
        (None, {"wait": Wait.NOTHING}, "None"),
        (None, {"wait": Wait.SCHEDULERS_TURN}, "its turn at the schedulers"),
    ],
    ids=str,
)
def test_every_wait_has_words(some: ops.Op | None, row: dict[str, Any], what: str) -> None:
    assert f" waits for {what} since cycle 7" in sentence(Failure.DEADLOCK, blocked=[{"since_cycle": 7.4, **row}])[1]
    if some is not None:
        other = role(lambda cta: iter_of(ops.Fma(1)), "other")
        assert f" waits for {what} since" in said(of_ops(some), other)[1]


def iter_of(*some: ops.Op) -> Iterator[ops.Op]:
    """A program of these."""
    yield from some


def test_no_wait_is_without_words() -> None:
    for wait_for in Wait:
        assert sentence(Failure.DEADLOCK, blocked=[{"wait": wait_for}])[1].count(" waits for ") == 1


def test_a_deadlock_of_many_names_some_and_counts_the_rest() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield wait(0)

    kind, text = said(role(program, "worker"), num_ctas=12, buffers=())
    ctas = [int(cta) for cta in re.findall(r"of CTA (\d+) waits", text)]
    since = numbers(text, r"since cycle (\d+)")[0]
    row = {"since_cycle": since, "wait": Wait.MBARRIER, "barrier": 0, "pending": 1, "num_arrivals": 1}
    num_more = int(numbers(text, r"and (\d+) more$")[0])
    assert len(ctas) == 1  # the roles of one CTA are named
    rows = [{**row, "cta": cta} for cta in [*ctas, *range(100, 100 + num_more)]]
    assert sentence(Failure.DEADLOCK, blocked=rows) == (kind, text)


# ---------------------------------------------------------------------- limits


def test_too_many_events_are_told_with_how_far_it_came() -> None:
    kind, text = sentence(Failure.EVENT_LIMIT, cycle=1234.5, first=1000, second=7)
    assert kind is SimulationError
    assert text.startswith("test: 1000 events have not been enough: at cycle 1234 7 of 12 CTAs have exited")


def test_a_failure_that_nobody_foresaw_has_its_name() -> None:
    assert "BAD_BUFFER" in sentence(Failure.BAD_BUFFER)[1]
    assert "out of memory" in sentence(Failure.OUT_OF_MEMORY)[1]
