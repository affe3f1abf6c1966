"""The launches that engines are held to reach the whole vocabulary, and their frozen answers are what is found today."""

from __future__ import annotations

import inspect
import json
import math
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusim.simulate.warp import GIVES_TOKEN
from gpusim.workload import ops
from gpusim.workload.launch import Launch

from .failing import DEADLOCKS, HAZARDS, REFUSALS
from .launches import CASES, frozen_answers
from .oracle import FNV_BASIS, main, trace_hash

VOCABULARY = {
    kind for _, kind in inspect.getmembers(ops, inspect.isclass) if issubclass(kind, ops.Op) and kind is not ops.Op
}


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
                    gives = type(op) in GIVES_TOKEN or getattr(op, "has_token", False)
                    sent = ops.Token(is_long=False) if gives else None
            except StopIteration:
                pass
    return found


def test_each_op_of_the_vocabulary_occurs_in_a_launch_that_ends() -> None:
    found: set[type[Any]] = set()
    for case in CASES.values():
        if not case.is_slow and not case.name.startswith(("deadlock", "hazard", "refusal")):
            launch = case.launch()
            found |= kinds_of(launch)
            for other in launch.following:
                found |= kinds_of(other)
    assert found == VOCABULARY


def test_answers_are_frozen_for_all_launches_and_no_others() -> None:
    assert set(frozen_answers()) == set(CASES)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.is_slow])
def test_a_launch_is_answered_as_it_was_when_it_was_frozen(name: str) -> None:
    assert CASES[name].answer().frozen() == frozen_answers()[name]


def test_what_goes_wrong_does_so_in_each_way() -> None:
    frozen = frozen_answers()
    for start, some, error in (("deadlock", DEADLOCKS, "DeadlockError"), ("hazard", HAZARDS, "HazardError"),
                               ("refusal", REFUSALS, "LaunchError")):  # fmt: skip
        assert {frozen[f"{start}_{name}"]["error"] for name in some} == {error}


def test_two_runs_say_the_same_and_the_hash_is_of_the_trace() -> None:
    first, second = array("d"), array("d")
    case = CASES["far_words_2"]
    assert case.answer(trace=first) == case.answer(trace=second)
    assert first == second and len(first) == case.answer().num_advances
    assert case.answer().trace_hash == f"{trace_hash(first):016x}"
    assert trace_hash([]) == FNV_BASIS
    assert math.isclose(first[-1], max(first))


def test_the_command_line_prints_an_answer_and_writes_its_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lone_readers", "--trace", str(tmp_path / "trace")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cycles"] == frozen_answers()["lone_readers"]["cycles"]
    cycles = struct.unpack(f"<{found['num_advances']}d", (tmp_path / "trace").read_bytes())
    assert f"{trace_hash(cycles):016x}" == found["trace_hash"]
