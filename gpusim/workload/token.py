"""Token: the pending result of an asynchronous load. The module knows neither ops nor the engine."""

from __future__ import annotations


class Token:
    """The pending result of an asynchronous load; ``Use(token)`` waits until the data have arrived."""

    __slots__ = ()
