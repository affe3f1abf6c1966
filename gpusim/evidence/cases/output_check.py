"""Checks of outputs that many cases share; each raises ``WrongAnswer`` with the first place that is wrong.

In: outputs of a launch, expected values. Out: nothing, or an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import WrongAnswer
from gpusim.evidence.cases.launch_args import Windows


def wrong_if(is_wrong: object, text: str) -> None:
    """Refuse outputs that are wrong.

    Raises:
        WrongAnswer: ``text``, if ``is_wrong``.
    """
    if is_wrong:
        raise WrongAnswer(text)


def _of(kernel: str) -> str:
    return f"{kernel}: " if kernel else ""


def check_words(found: NDArray[Any], wanted: NDArray[Any], kernel: str = "") -> None:
    """Compare words one by one; an error names ``kernel``.

    >>> check_words(np.array([1, 2]), np.array([1, 3]))
    Traceback (most recent call last):
    gpusim.evidence.cases.case.WrongAnswer: word 1 is 2, wants 3

    Raises:
        WrongAnswer: a word differs.
    """
    wrong = np.flatnonzero(found != wanted)
    if len(wrong):
        raise WrongAnswer(f"{_of(kernel)}word {wrong[0]} is {found[wrong[0]]}, wants {wanted[wrong[0]]}")


def check_windows(
    out: Windows, came: NDArray[np.uint8], expected: Callable[[int, int], NDArray[np.uint8]], kernel: str = ""
) -> None:
    """Compare all bytes of an output's windows; ``expected`` returns those of (offset, number of bytes).

    Raises:
        WrongAnswer: a byte differs.
    """
    for (offset, num_bytes), window in zip(out.windows, out.split(came), strict=True):
        is_off = window != expected(offset, num_bytes)
        if is_off.any():
            raise WrongAnswer(f"{_of(kernel)}byte {offset + int(np.argmax(is_off))} of the output is not what it should be")
