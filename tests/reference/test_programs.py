"""Random programs: they are the same for a seed, and reach all that the reference has."""

from __future__ import annotations

import ast
import inspect
from collections import Counter

import pytest

from gpusim.errors import GpusimError
from gpusim.reference.core import BEYOND_CORE
from gpusim.workload import ops

from .plays import NUM_PROGRAMS, ROOM, play
from .programs import Case, case

PART_OF_PROGRAMS = 10
"""Of as many programs one reaches each op and each part at least: 50 of 500."""

OF_SENTENCES = 100
"""The same of each sentence with which a program can end, but for one: 4 of 500."""

NOT_PLAYED = {"core.core_only", "core.beyond_core", "cta.Declared.__missing__"}
"""Functions that no program calls by itself, and one that refuses what is no program of the generator's."""

ENDS = (
    "is refilled at cycle", "and was never written", "before it is full", "arrivals in a phase that expects",
    "it was declared for", "while mbarrier", "arrivals missing", "bytes announced,",
    "waits for barrier", "registers of the CTA's pool", "the cluster barrier",
)
"""Words of hazards, and of what roles wait for at deadlocks."""


def ops_of(found: Case) -> list[str]:
    """What the first CTA's roles yield as far as they need no answer, each op in words."""

    class Context:
        cta_idx, num_ctas, cta_rank = 0, 8, 0

        def loop(self, num_iterations: int) -> range:
            return range(num_iterations)

        def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> list[tuple[int, int]]:
            return [(turn, turn * 8) for turn in range(first, -(-num_tiles // 8), step)]

    return [repr(op) for role in found.launch.roles for op in role.program(Context())]


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_gives_the_same_program_each_time(seed: int) -> None:
    assert ops_of(case(seed)) == ops_of(case(seed))


def test_seeds_differ() -> None:
    assert len({tuple(ops_of(case(seed))) for seed in range(20)}) == 20


def counts() -> Counter[str]:
    """How many programs reach each op and each function."""
    return Counter(item for seed in range(NUM_PROGRAMS) for item in play(seed).reached)


def test_programs_reach_every_op_of_the_core() -> None:
    kinds = [kind for kind in vars(ops).values() if inspect.isclass(kind) and issubclass(kind, ops.Op)]
    wanted = {kind.__name__ for kind in kinds if kind not in (ops.Op, ops.ImadWide)}
    found = counts()
    assert {name: found[f"op {name}"] for name in wanted if found[f"op {name}"] * PART_OF_PROGRAMS < NUM_PROGRAMS} == {}
    assert ops.ImadWide in BEYOND_CORE


def test_programs_reach_every_part_of_the_reference() -> None:
    found = counts()
    wanted = functions_of_the_room() - NOT_PLAYED
    assert {name: found[name] for name in wanted if found[name] * PART_OF_PROGRAMS < NUM_PROGRAMS} == {}


def test_programs_end_in_every_way() -> None:
    ends = [play(seed).said.end for seed in range(NUM_PROGRAMS)]
    kinds = Counter(kind for kind, _ in ends)
    assert set(kinds) == {"", "DeadlockError", "HazardError"}
    assert min(kinds.values()) * PART_OF_PROGRAMS >= NUM_PROGRAMS
    found = {words: sum(words in sentence for _, sentence in ends) for words in ENDS}
    assert {words: num for words, num in found.items() if num < NUM_PROGRAMS // OF_SENTENCES - 1} == {}


def functions_of_the_room() -> set[str]:
    """Functions and methods of the reference, as ``module.Class.name``."""
    found = set()
    for path in ROOM.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                found.add(f"{path.stem}.{node.name}")
            if isinstance(node, ast.ClassDef):
                found |= {f"{path.stem}.{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("seed", range(40))
def test_programs_beyond_the_core_end_as_others_do(seed: int) -> None:
    """They are for engines alone; here they only have to be programs."""
    from tests.engine.answer import answer

    found = case(seed, is_core=False)
    assert answer(found.launch, found.gpu, mhz=1000.0).error in ("", "DeadlockError", "HazardError")


def test_the_reference_refuses_what_is_beyond_the_core() -> None:
    from gpusim.reference import simulate

    refused = 0
    for seed in range(40):
        found = case(seed, is_core=False)
        with pytest.raises(GpusimError, match="mechanisms beyond the core"):
            simulate(found.launch, found.gpu)
        refused += 1
    assert refused == 40
