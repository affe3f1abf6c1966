"""What can go wrong, by name. Every message is one sentence: where, what was found, what would do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class GpusimError(Exception):
    """Base of all refusals; the command line prints its message and leaves with status 2."""


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
    """Every role waits and nothing is in flight: says who waits for what, since when."""


class HazardError(SimulationError):
    """A stage refilled while it is read, read before it is full, or bytes that do not add up."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown ``name``: its closest match in ``known``, or all that there is.

    >>> nearest("h200", ["h200_sxm", "a100_sxm_40gb"])
    "did you mean 'h200_sxm'?"
    """
    choices = sorted(known)
    close = get_close_matches(name, choices, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(choices)}"


def nearest_multiple(value: int, of: int) -> int:
    """The positive multiple of ``of`` nearest to ``value``; the larger of two.

    >>> nearest_multiple(100, 64), nearest_multiple(96, 64), nearest_multiple(3, 64)
    (128, 128, 64)
    """
    return max(of, (2 * value + of) // (2 * of) * of)
