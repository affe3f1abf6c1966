"""What the reference and the engine say of a program, and what of the reference it has reached."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from gpusim import GpuSpec, Launch, reference
from gpusim.errors import GpusimError
from gpusim.simulate.timeline import WarpState
from tests.engine.answer import answer

from .programs import case

NUM_PROGRAMS = int(os.environ.get("GPUSIM_REFERENCE_PROGRAMS", "100"))
"""That the reference is compared on; 500 are as many as the counts of ``test_programs.py`` were made for."""

ROOM = Path(reference.__file__).parent

MOST_APART = 1e-6
"""Cycles, and parts of a counter."""

NOT_COUNTED = {
    "l2.promoted_sectors", "xbar.asked_bytes", "xbar.carried_bytes", "xbar.passed_bytes", "xbar.served_bytes",
}
"""Counters that the core does not have: they tell what merges."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What comes of a launch."""

    cycles: float = 0.0
    counters: Mapping[str, float] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Cycles of each role in each state."""
    end: tuple[str, str] = ("", "")
    """Type and sentence of an error."""


def by_reference(launch: Launch, gpu: GpuSpec, *, is_warm: bool = False) -> Said:
    """What the reference says."""
    try:
        found = reference.simulate(launch, gpu, is_warm=is_warm)
    except GpusimError as error:
        return Said(end=(type(error).__name__, str(error)))
    return Said(cycles=found.cycles, counters=found.counters, states=found.states)


def by_engine(launch: Launch, gpu: GpuSpec, *, is_warm: bool = False) -> Said:
    """What the engine says."""
    found = answer(launch, gpu, mhz=gpu.clock.max_mhz, l2="warm" if is_warm else "cold")
    if found.error:
        return Said(end=(found.error, found.sentence))
    counters = {
        f"{part}.{name}": number for part, numbers in found.rest["counters"].items() for name, number in numbers.items()
    }
    reads = counters["xbar.served_bytes"] / counters["xbar.asked_bytes"] if counters["xbar.asked_bytes"] else 0.0
    counters["l2.read_sectors"] = counters["xbar.read_bytes"] * reads / 32
    states = {
        role: {state.label: cycles for state, cycles in zip(WarpState, every, strict=True)}
        for role, every in found.rest["role_totals"].items()
    }
    return Said(cycles=found.cycles, counters=counters, states=states)


def differences(mine: Said, others: Said) -> list[str]:
    """Where two do not say the same."""
    found = [] if mine.end == others.end else [f"{mine.end} for {others.end}"]
    if mine.end != ("", "") or found:
        return found
    apart = [("cycles", mine.cycles, others.cycles)]
    for name in sorted({*mine.counters, *others.counters} - NOT_COUNTED):
        apart.append((name, mine.counters.get(name, 0.0), others.counters.get(name, 0.0)))
    for role in sorted({*mine.states, *others.states}):
        mine_of, others_of = mine.states.get(role, {}), others.states.get(role, {})
        for state in sorted({*mine_of, *others_of}):
            apart.append((f"{role} {state}", mine_of.get(state, 0.0), others_of.get(state, 0.0)))
    return found + [
        f"{name}: {one} for {other}" for name, one, other in apart
        if abs(one - other) > MOST_APART * (1.0 if name == "cycles" else max(1.0, abs(other)))
    ]


def cycles_of(launch: Launch, gpu: GpuSpec, *, is_warm: bool = False) -> float:
    """What a launch takes, as the reference and the engine both say."""
    found = by_reference(launch, gpu, is_warm=is_warm)
    assert differences(found, by_engine(launch, gpu, is_warm=is_warm)) == []
    assert found.end == ("", "")
    return found.cycles


@dataclass(frozen=True)
class Play:
    """A program that the reference has played."""

    said: Said
    reached: frozenset[str]
    """Functions of the reference, such as ``memory.Memory.read``, and ops, such as ``op Fma``."""


@cache
def play(seed: int) -> Play:
    """The program of a seed."""
    found = case(seed)
    with _watched() as reached:
        said = by_reference(found.launch, found.gpu, is_warm=found.is_warm)
    return Play(said, frozenset(reached))


@contextmanager
def _watched() -> Iterator[set[str]]:
    """Notes which functions of the reference are called, and which ops are carried out."""
    reached: set[str] = set()
    room, before = str(ROOM), sys.gettrace()
    known: dict[int, CodeType] = {}  # by identity: codes of two files may be equal

    def note(frame: FrameType, event: str, arg: Any) -> None:
        del event, arg  # it is told of calls alone, as it wants no lines
        code = frame.f_code
        if id(code) in known:
            return
        is_ours = code.co_filename.startswith(room)
        if is_ours:
            reached.add(f"{Path(code.co_filename).stem}.{code.co_qualname}")
        if is_ours and code.co_name == "carry_out":
            reached.add(f"op {type(frame.f_locals['op']).__name__}")
        else:
            known[id(code)] = code

    sys.settrace(note)
    try:
        yield reached
    finally:
        sys.settrace(before)
