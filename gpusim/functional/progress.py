"""Progress of a functional run, and the time that it still takes.

In: roles and turns that end. Out: calls of a function, or one warning before a long run.

Models: the rest takes as long for each role as those that have ended. Turns of a persistent CTA count as parts of it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from math import inf

from gpusim.workload.launch import Launch

OnProgress = Callable[[int, int, float], None]
"""Called with CTAs that have ended, CTAs in all, and the seconds that are left, infinity while nothing has ended."""
FIRST_S, BETWEEN_S, LONG_S = 1.0, 0.2, 10.0
"""Seconds before the first call, between two calls, and of a run that is not silent."""


class Progress:
    """Progress of the grid of one launch."""

    def __init__(self, launch: Launch, num_ctas: int, on_progress: OnProgress | None) -> None:
        """The progress of a launch that begins now. None: a warning, where the run is long."""
        self._kernel, self._num_ctas, self._on_progress = launch.kernel, num_ctas, on_progress
        self._num_roles, self._num_turns = num_ctas * len(launch.roles), max(1, launch.num_tiles * len(launch.roles))
        self._num_ended = self._num_turns_ended = 0
        self._began = time.monotonic()
        self._next = self._began + FIRST_S

    def end_role(self) -> None:
        """A role has ended."""
        self._num_ended += 1

    def end_turn(self) -> None:
        """A role has ended a tile of a persistent CTA."""
        self._num_turns_ended += 1

    def look(self) -> None:
        """Report if it is time to."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next, elapsed = now + BETWEEN_S, now - self._began
        share = max(self._num_ended / self._num_roles, self._num_turns_ended / self._num_turns)
        left = elapsed * (1 - share) / share if share > 0 else inf
        num_ended = self._num_ended * self._num_ctas // self._num_roles
        if self._on_progress is not None:
            self._on_progress(num_ended, self._num_ctas, left)
        elif left > LONG_S and (share or elapsed > LONG_S):
            self._next = inf
            rest = f"about {left:.0f} s" if share else f"more than {LONG_S:.0f} s"
            warnings.warn(
                f"{self._kernel}: the functional run takes {rest} more, {num_ended} of {self._num_ctas} CTAs have ended; "
                "on_progress= shows how far it is", UserWarning, stacklevel=5,
            )  # fmt: skip
