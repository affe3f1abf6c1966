"""Random programs never hang or crash, and take times that are numbers; ``GPUSIM_FUZZ_PROGRAMS`` says how many."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any

import pytest

from .answer import Answer, answer
from .fuzz import drawn

NUM_PROGRAMS = int(os.environ.get("GPUSIM_FUZZ_PROGRAMS", "304"))
PART = 8
"""Of each kind one a test."""
MOST_EVENTS = 2_000_000
"""A program that takes more has no end."""
ENDS = ("", "DeadlockError", "HazardError")
"""A trap and a run without an end are other errors."""


def numbers_of(value: Any) -> Iterator[float]:
    """All numbers in it."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from numbers_of(each)
    elif isinstance(value, int | float):
        yield value


def wrong_of(found: Answer) -> str:
    """What is wrong with an answer."""
    if found.error not in ENDS:
        return f"{found.error}: {found.sentence}"
    if found.error:
        return "" if "nan" not in found.sentence and "inf " not in found.sentence else found.sentence
    bad = [each for each in (found.cycles, *numbers_of(found.rest)) if not (math.isfinite(each) and each >= 0.0)]
    if not found.cycles > 0.0 or bad:
        return f"{found.cycles} cycles, {bad}: {json.dumps(found.rest)[:2000]}"
    return ""


@pytest.mark.parametrize("first", range(0, NUM_PROGRAMS, PART))
def test_random_programs_end_as_programs_do(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.engine.answer.MOST_EVENTS", MOST_EVENTS)
    for seed in range(first, min(first + PART, NUM_PROGRAMS)):
        it = drawn(seed)
        found = answer(it.launch, it.gpu, mhz=it.mhz, l2="warm" if it.is_warm else "cold")
        assert wrong_of(found) == "", f"seed {seed} on {it.gpu.name}"
