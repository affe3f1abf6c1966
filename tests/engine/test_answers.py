"""The native engine's answers are the frozen ones: cycles, events and the trace to the last bit, counters by ten digits."""

from __future__ import annotations

import pytest

from .launches import CASES, MHZ, frozen_answers
from .native import native_answer


@pytest.mark.parametrize("name", CASES)
def test_the_native_engine_says_what_is_frozen(name: str) -> None:
    case = CASES[name]
    gpu = case.spec
    found = native_answer(case.make(gpu), gpu, mhz=case.mhz or MHZ[case.gpu], l2=case.l2, ideals=case.ideals)
    assert found.frozen() == frozen_answers()[name]
