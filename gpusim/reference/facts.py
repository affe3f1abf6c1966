"""Facts and groups of them: what processes wait for.

simpy knows two kinds of waiting. ``env.timeout(cycles)`` ends at a cycle that is known when it begins. An event ends when
somebody says so, and simpy then queues it behind what is queued for that cycle already. Hardware that knows something
passes it on in the same cycle, so that here a third kind is used: a :class:`Fact`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from typing import Any

import simpy

Wait = Generator[simpy.Event, Any, None]
"""A process, or a part of one: it yields what it waits for."""

Sums = defaultdict[str, float]
"""Counters, or cycles, by name."""


class Fact(simpy.Event):
    """Something that becomes known; its value is the cycle at which it counts, the present or one to come.

    A memory that has sent the last byte of a tile knows when the mbarrier far up will count it. So it is known at once, to
    all who wait, in the order in which they came; they wait for the cycle themselves.
    """

    def tell(self, cycle: float) -> None:
        """It is known from now on."""
        self._ok, self._value = True, cycle
        waiting, self.callbacks = self.callbacks, None  # type: ignore[assignment]  # simpy marks processed events so
        for go_on in waiting:
            go_on(self)

    @property
    def cycle(self) -> float | None:
        """When it counts; None while that is not known."""
        return self._value if self.callbacks is None else None

    def then(self, call: Callable[[float], None]) -> None:
        """Call ``call(cycle)`` as soon as it is known: at once, where it is."""
        if self.callbacks is None:
            call(self._value)
        else:
            self.callbacks.append(lambda fact: call(fact.value))


class Group:
    """Copies that are committed together: complete when all of them are, and the group before it is."""

    def __init__(self, env: simpy.Environment, before: Group | None = None) -> None:
        """Without copies yet."""
        self._env = env
        self._num_pending, self._ready_at = 0, 0.0
        self._waiting: list[Fact] = []
        if before is not None:
            self.add(before.complete())

    def add(self, copy: Fact) -> None:
        """One more copy, and when it is complete."""
        self._num_pending += 1
        copy.then(self._over)

    def complete(self) -> Fact:
        """When all that is in the group now is complete."""
        fact = Fact(self._env)
        if self._num_pending:
            self._waiting.append(fact)
        else:
            fact.tell(self._ready_at)
        return fact

    def _over(self, cycle: float) -> None:
        self._num_pending -= 1
        self._ready_at = max(self._ready_at, cycle)
        if not self._num_pending:
            waiting, self._waiting = self._waiting, []
            for fact in waiting:
                fact.tell(self._ready_at)
