"""Token: the pending result of an asynchronous load. The module knows neither ops nor the engine."""

from __future__ import annotations


class Token:
    """The pending result of an asynchronous load; ``Use(token)`` waits until the data have arrived.

    ``ready_cycle`` is None until the arrival is known.
    """

    __slots__ = ("is_long", "late_before", "late_cycles", "num_meetings", "on_ready", "ready_cycle")

    def __init__(self, *, is_long: bool) -> None:
        """A pending result. ``is_long``: True for a load from global memory (long scoreboard), False for shared memory."""
        self.ready_cycle: float | None = None
        self.is_long = is_long
        self.on_ready: object | None = None
        self.late_before = self.late_cycles = 0.0
        """Cycles by which the role's slowest warp trailed at the request, and by which its part arrives later."""
        self.num_meetings = 0
        """Number of barriers that the role's warps had passed."""
