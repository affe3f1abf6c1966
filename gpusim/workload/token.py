"""The result of a load that is on its way. It knows no op, and no engine."""

from __future__ import annotations


class Token:
    """Names the result of an asynchronous load; ``Use(token)`` waits until the data is there.

    ``ready_cycle`` is None while nobody knows when that will be.
    """

    __slots__ = ("is_long", "late_before", "late_cycles", "num_meetings", "on_ready", "ready_cycle")

    def __init__(self, *, is_long: bool) -> None:
        """A pending result; ``is_long`` tells a load from memory (long scoreboard) from one from shared memory."""
        self.ready_cycle: float | None = None
        self.is_long = is_long
        self.on_ready: object | None = None
        self.late_before = self.late_cycles = 0.0
        """By how much the role's last warp was behind when it asked, and how much later its part comes."""
        self.num_meetings = 0
        """How often the role's warps had met."""
