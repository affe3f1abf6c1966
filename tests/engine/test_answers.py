"""The engine's answers are the frozen ones: cycles, events and the trace to the last bit, counters by ten digits."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from gpusim.workload import ops
from gpusim.workload.launch import Launch

from .failing import DEADLOCKS, HAZARDS, REFUSALS
from .launches import CASES, frozen_answers

VOCABULARY = {
    kind for _, kind in inspect.getmembers(ops, inspect.isclass) if issubclass(kind, ops.Op) and kind is not ops.Op
}
GIVES_TOKEN = (ops.GlobalLoad, ops.GlobalAtomic, ops.SharedLoad, ops.SharedAtomic, ops.Ldmatrix, ops.DsmemLoad)

EVENTS = {
    "gemm_4096": 181_188, "gemm_cooperative_cluster_gpc": 8_877, "gemm_pingpong": 8_707, "gemm_triton_pointers": 6_943,
    "gemm_hgemm": 6_655, "gemm_sgemm_ring": 5_939, "gemm_split_k": 3_946, "gemm_small_tiles": 108_335,
    "elementwise_large": 80_321, "softmax_block": 5_194, "conflicts_shared_sms": 11_081, "revisits": 47_813,
}  # fmt: skip
"""How many it took of launches of each kind when this was written."""


@pytest.mark.parametrize("name", CASES)
def test_the_engine_says_what_is_frozen(name: str) -> None:
    found, frozen = CASES[name].answer().frozen(), frozen_answers()[name]
    for what in ("error", "cycles", "num_events", "trace_hash"):
        assert found.get(what) == frozen.get(what), what
    assert found == frozen


def test_answers_are_frozen_for_all_launches_and_no_others() -> None:
    assert set(frozen_answers()) == set(CASES)


def test_launches_take_no_more_events_than_they_took() -> None:
    """Whoever freezes answers anew meets this, too: ten in a hundred more need a reason, and a line in the changelog."""
    frozen = frozen_answers()
    grown = {name: (most, found) for name, most in EVENTS.items() if (found := frozen[name]["num_events"]) > 1.1 * most}
    assert not grown


def test_what_goes_wrong_does_so_in_each_way() -> None:
    frozen = frozen_answers()
    for start, some, error in (("deadlock", DEADLOCKS, "DeadlockError"), ("hazard", HAZARDS, "HazardError"),
                               ("refusal", REFUSALS, "LaunchError")):  # fmt: skip
        assert {frozen[f"{start}_{name}"]["error"] for name in some} == {error}


class Context:
    """What a program sees of a CTA that is not run."""

    def __init__(self, launch: Launch, cta_idx: int) -> None:
        self.cta_idx, self.num_ctas, self.cta_rank = cta_idx, launch.num_ctas or 8, cta_idx % launch.cluster_size

    def loop(self, num_iterations: int) -> Iterator[int]:
        return iter(range(num_iterations))

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
        for turn in range(first, -(-(num_tiles - self.cta_idx) // self.num_ctas), step):
            yield turn, self.cta_idx + turn * self.num_ctas


def kinds_of(launch: Launch) -> set[type[Any]]:
    """The ops of CTAs 0 and 1, without running them."""
    found: set[type[Any]] = set()
    for cta_idx in range(min(2, launch.num_ctas or 2)):
        for role in launch.roles:
            program = role.program(Context(launch, cta_idx))
            sent: Any = None
            try:
                while True:
                    op = program.send(sent)
                    found.add(type(op))
                    gives = isinstance(op, GIVES_TOKEN) or getattr(op, "has_token", False)
                    sent = ops.Token() if gives else None
            except StopIteration:
                pass
    return found


def test_each_op_of_the_vocabulary_occurs_in_a_launch_that_ends() -> None:
    found: set[type[Any]] = set()
    for case in CASES.values():
        if not case.name.startswith(("deadlock", "hazard", "refusal", "gemm_4096", "elementwise_large")):
            launch = case.launch()
            found = found.union(kinds_of(launch), *(kinds_of(other) for other in launch.following))
    assert found == VOCABULARY
