"""Whose mma.sync an SM's tensor cores take, where several roles multiply so.

In: roles that want to multiply, and what does it for one of them. Out: roles that wait, and go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusim.simulate.timeline import WarpState

if TYPE_CHECKING:
    from gpusim.simulate.role import Role

GREEDY_CYCLES = 16.0
"""For how long who multiplies may do something else, as reading fragments, and still goes on before others. A choice, not
measured: a cursor may run ahead so far before a load from shared memory (``role.SHARED_SYNC_CYCLES``); less would hand turns
over for that alone."""

Multiply = Callable[[], float]
"""Queues a role's mma.sync in the tensor cores; returns when the last of them has been issued."""


class Turns:
    """One SM's.

    Models: who multiplies goes on until it stops, to copy, to meet or for what it reads; then the one that has waited
    longest does. So warps of a sub-core, in step behind a barrier, fall apart until the next, and what one does beside its
    math hides behind another's.
    Ignores: that another's mma.sync fill the cycles between (:data:`GREEDY_CYCLES` at most are lost, and given back to who
    waits); that warps of one role are not all done at one time.
    Source: kernels/mma_loops, h200_sxm, 2026-11-22: with two warps a sub-core and double fragments 241 cycles more for the
    384 rows of a step's copies, where one warp takes 258 more for 256.
    """

    __slots__ = ("_is_watched", "_owner", "_until", "_waiting")

    def __init__(self) -> None:
        """Nobody's turn."""
        self._owner: Role | None = None
        self._until = 0.0
        """When the last mma.sync so far will have been issued."""
        self._waiting: deque[tuple[Role, Multiply]] = deque()
        self._is_watched = False

    def take(self, role: Role, multiply: Multiply) -> bool:
        """Multiply now if it is the role's turn; else the role must wait (:meth:`wait`)."""
        goes_on = role.t <= self._until + GREEDY_CYCLES
        is_free = goes_on if self._owner is role else not goes_on and not self._waiting
        if is_free:
            self._owner, self._until = role, multiply()
        return is_free

    def wait(self, role: Role, multiply: Multiply) -> Role:
        """Until the one that multiplies stops; then do so and go on."""
        self._waiting.append((role, multiply))
        if not self._is_watched:
            self._watch(role)
        return role.block(WarpState.TENSOR, "the tensor cores")

    def _watch(self, role: Role) -> None:
        self._is_watched = True
        agenda = role.agenda
        agenda.later(max(0.0, self._until + GREEDY_CYCLES - agenda.cycle), self._look)

    def _look(self) -> None:
        """Has the one that multiplies stopped?"""
        role, multiply = self._waiting[0]
        self._is_watched = False
        if role.agenda.cycle < self._until + GREEDY_CYCLES - 1e-6:
            self._watch(role)
            return
        self._waiting.popleft()
        role.spend(WarpState.TENSOR, self._until)
        self._owner, self._until = role, multiply()
        role.fire(0.0)
        if self._waiting:
            self._watch(role)
