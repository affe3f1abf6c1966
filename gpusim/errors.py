"""Exceptions of gpusim, and hints for misspelled names. Every message is one sentence: place, value found, value wanted."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final


class GpusimError(Exception):
    """Base of all refusals. The command line prints its message and exits with status 2."""


class ConfigError(GpusimError):
    """A GPU's description has a key that is unknown, missing, out of range or without a source."""


class LayoutError(GpusimError):
    """A layout, swizzle, box or access pattern that cannot exist."""


class KernelError(GpusimError):
    """Parameters of a kernel model that no kernel can have."""


class LaunchError(GpusimError):
    """A launch that this GPU cannot run."""


class SimulationError(GpusimError):
    """A kernel that went wrong while it ran."""


class DeadlockError(SimulationError):
    """Every role waits and nothing is in flight. The message names the roles, what they wait for, and since when."""


class HazardError(SimulationError):
    """A race in shared memory, or wrong mbarrier bytes.

    A stage is refilled while it is read, a stage is read before it is full, or announced and delivered bytes differ.
    """


class DataError(SimulationError):
    """A functional run that has no data for an op, or whose result is not the expected one."""


FAULT: Final = 70
"""Exit status of the command line where gpusim itself is at fault (``EX_SOFTWARE``)."""

INTERRUPTED: Final = 130
"""Exit status of the command line after Ctrl-C."""

_MOST_LETTERS: Final = 300


def say(sentence: str) -> None:
    """Write one line to stderr, if that can be written."""
    words = " ".join(sentence.split()).encode("utf-8", "backslashreplace").decode()
    with suppress(OSError, ValueError, AttributeError):  # full, closed, or none at all
        sys.stderr.write(f"gpusim: {words}\n")
        sys.stderr.flush()


def fault(error: BaseException) -> int:
    """Tell an error that nobody foresaw in one sentence; returns the exit status. ``GPUSIM_TRACEBACK=1``: also where."""
    if os.environ.get("GPUSIM_TRACEBACK", "0") not in ("", "0"):
        from traceback import format_exception

        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write("".join(format_exception(error)))
    words = " ".join(str(error).split())
    shown = f"{words[:_MOST_LETTERS]} ..." if len(words) > _MOST_LETTERS else words
    say(f"a fault of gpusim itself, {type(error).__name__}{f': {shown}' if shown else ''}; GPUSIM_TRACEBACK=1 shows where")
    return FAULT


MOST_LISTED: Final = 12
"""Number of known names up to which a hint lists them all."""

_MOST_MEANT: Final = 3


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown ``name``, to follow "is unknown; ": the likely names, or all known names if they are few.

    Likely names are, in this order:

    * The name in another case.
    * Names that begin with ``name``.
    * Names with few letters wrong, or whose beginning has few letters wrong.

    The hint has at most three of them.

    >>> nearest("h200", ["h200_sxm", "a100_sxm_40gb"]), nearest("BF17", ["bf16", "fp16", "fp32"])
    ("did you mean 'h200_sxm'?", "did you mean 'bf16'?")
    >>> nearest("a100_sxm", ["a100_sxm_40gb", "a100_sxm_80gb", "h100_sxm"])
    "did you mean 'a100_sxm_40gb' or 'a100_sxm_80gb'?"
    >>> nearest("256B", ["none", "32B", "64B", "128B"])
    'known: 128B, 32B, 64B, none'
    >>> nearest("100", ["64", "128"])
    'known: 64, 128'
    """
    choices = sorted(known)
    if all(choice.isdecimal() for choice in choices):
        choices.sort(key=int)
    typed = name.lower()
    lowered = [(choice, choice.lower()) for choice in choices]
    meant = [choice for choice, low in lowered if low == typed]
    meant = meant or [choice for choice, low in lowered if typed.strip("-") and low.startswith(typed)]
    meant = meant or _slips(typed, lowered)
    if meant:
        *front, last = map(repr, meant[:_MOST_MEANT])
        return f"did you mean {', '.join(front)}{' or ' if front else ''}{last}?"
    if len(choices) > MOST_LISTED:
        return f"none of the {len(choices)} known names is near"
    return f"known: {', '.join(choices)}" if choices else "none is known"


def _slips(typed: str, known: Iterable[tuple[str, str]]) -> list[str]:
    """Names of ``known`` (as they are, and in lower case) closest to ``typed``, with at most one letter in three wrong."""
    most = max(1, len(typed.strip("-")) // 3) if len(typed) > 1 else 0
    by_distance: dict[float, list[str]] = {}
    for choice, low in known:
        distance: float = _distance(typed, low)
        if len(typed) > _MOST_MEANT and distance > most and _distance(typed, low[: len(typed)]) == 1:
            distance = most + 0.5  # one wrong letter in the beginning of a longer name: only if no other name is near
        if distance <= most + 0.5:
            by_distance.setdefault(distance, []).append(choice)
    return by_distance[min(by_distance)] if by_distance else []


def _distance(a: str, b: str) -> int:
    """Edit distance of two words: letters inserted, deleted or changed, and neighbours swapped.

    >>> _distance("stagse", "stages"), _distance("bf17", "bf16"), _distance("gpu", "plot")
    (1, 1, 4)
    """
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, start=1):
        older, before, row = before, row, [i]
        for j, other in enumerate(b, start=1):
            best = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                best = min(best, older[j - 2] + 1)
            row.append(best)
    return row[-1]


def full_gpu_name(name: str, known: Iterable[str]) -> str:
    """The one of the ``known`` GPUs that ``name`` equals, or whose first words it is, in any case.

    >>> full_gpu_name("H200", ["h100_sxm", "h200_sxm"]), full_gpu_name("h100-sxm", ["h100_sxm", "h200_sxm"])
    ('h200_sxm', 'h100_sxm')

    H20 is another product than H200, and is refused.

    Raises:
        ConfigError: no name or several names begin so.
    """
    names, low = list(known), name.lower().replace("-", "_")
    meant = [each for each in names if each == low] or [each for each in names if each.startswith(f"{low}_")]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigError(f"gpu: {name!r} is the beginning of {len(meant)} names; wants one of {', '.join(meant)}")
    same_model = [each for each in names if each.partition("_")[0] == low.partition("_")[0]]
    hint = nearest(name, same_model) if same_model else f"known: {', '.join(names)}"  # another model is no misspelling
    raise ConfigError(f"gpu: {name!r} is unknown; {hint}")


def nearest_multiple(value: int, of: int) -> int:
    """The positive multiple of ``of`` nearest to ``value``; the larger one of two.

    >>> nearest_multiple(100, 64), nearest_multiple(96, 64), nearest_multiple(3, 64)
    (128, 128, 64)
    """
    return max(of, (2 * value + of) // (2 * of) * of)
