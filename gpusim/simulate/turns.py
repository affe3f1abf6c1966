"""Whose mma.sync an SM's tensor cores take, or whose FFMA its schedulers, where several roles multiply so.

In: roles that want to multiply, and what does it for one of them; roles that want to copy meanwhile. Out: roles that wait,
and go on.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from gpusim.simulate.timeline import WarpState

if TYPE_CHECKING:
    from gpusim.simulate.role import Role

GREEDY_CYCLES = 16.0
"""For how long who multiplies may do something else, as reading fragments, and still goes on before others. A choice, not
measured: a cursor may run ahead so far before a load from shared memory (``role.SHARED_SYNC_CYCLES``); less would hand turns
over for that alone."""

MOST_RUNS = 256
"""Of which their beginnings are known: k-steps of four CTAs of the deepest."""

EPSILON_CYCLES = 1e-6
"""What rounding may leave of a wait."""

Multiply = Callable[[], float]
"""Queues a role's math; returns when the last of it has been issued."""


class CopyPass(Enum):
    """Whether a role that has waited for who multiplies may copy, however long others multiply by then."""

    NONE = 0
    ONCE = 1
    UNTIL_COMMIT = 2


class Turns:
    """One SM's.

    Models: who multiplies goes on until it stops, to copy, to meet or for what it reads; then the one that has waited
    longest does. So warps of a sub-core, in step behind a barrier, fall apart until the next, and what one does beside its
    math hides behind another's. FFMA leave a scheduler's other warps no turns either: cp.async of other roles wait until
    they stop, or, where each has one warp on a scheduler, each of a warp's copies for as many runs as there are CTAs that
    multiply, whose warps must all wait for what they read; behind the last one's stop they all go before they commit. So a
    CTA that has no math to do while it copies loses what it copies beside others' math. CTAs of rings of two slots and more,
    whose k-steps seldom wait for copies (``by_age``), are served by age: the older one multiplies as soon as the younger's
    run ends, its copies wait for that run alone, and the younger's for it; so an SM's CTAs end one by one, and SMs take as
    many more.
    Ignores: that copies slip in within what is asked for at once (some runs), and more than 256 runs by any but a stop;
    CTAs of fewer warps than schedulers, which multiply side by side; that another's math fills the cycles between
    (:data:`GREEDY_CYCLES` at most are lost, and given back to who waits); that warps of one role are not all done at one
    time; what other instructions than copies wait beside FFMA; that warps of one CTA come to copy one by one; why CTAs of
    one slot end together, within 4 %; that of four CTAs the oldest two get less than told, and the third more.
    Source: mma.sync: kernels/mma_loops, h200_sxm, 2026-11-22: with two warps a sub-core and double fragments 241 cycles more
    for the 384 rows of a step's copies, where one warp takes 258 more for 256. FFMA: kernels/fma_loops, h200_sxm,
    2026-11-23, and its ``pairs``, h100_sxm, 2026-11-27: two CTAs an SM of one slot, 8 x 8 sums, eight warps, copies of four
    bytes take 3,511 and 3,510 cycles a step, math alone 2,540; copies alone, in a study of the same loop, 1,025. Three and
    four CTAs: validation/studies/sgemm_h100_sxm.csv, 2026-11-27. By age: validation/studies/cta_ends_h100_sxm.csv,
    2026-11-27: of two CTAs of a ring the first ends at 0.64 to 0.67 of the second's time, of four at 0.52 to 0.72.
    """

    __slots__ = ("_by_age", "_held", "_owner", "_runs", "_state", "_until", "_waiting", "_watched_at", "_what", "has_held")

    def __init__(self, state: WarpState = WarpState.TENSOR, what: str = "the tensor cores") -> None:
        """Nobody's turn; who waits for one is in ``state``, and waits for ``what``."""
        self._state, self._what = state, what
        self._owner: Role | None = None
        self._until = 0.0
        """When the last of the math so far will have been issued."""
        self._waiting: deque[tuple[Role, Multiply, int]] = deque()
        self._held: list[tuple[Role, float, float]] = []
        """Who wants to copy, since when, and how many runs of others it waits for where these have stops."""
        self._runs: deque[float] = deque(maxlen=MOST_RUNS)
        """When runs of products began, or will: cursors run ahead of the clock."""
        self._watched_at = inf
        """When who waits is looked at again."""
        self._by_age = False
        """Whether older CTAs go first."""
        self.has_held = False
        """Whether copies have ever waited: CTAs do not go at one pace then."""

    def ask(self, role: Role, multiply: Multiply, num_runs: int = 1, *, by_age: bool = False) -> Role | None:
        """Multiply now, ``num_runs`` times, or wait for the role's turn and do so then; ``by_age``: older CTAs first."""
        self._by_age = by_age
        return None if self.take(role, multiply, num_runs) else self.wait(role, multiply, num_runs)

    def take(self, role: Role, multiply: Multiply, num_runs: int = 1) -> bool:
        """Multiply now if it is the role's turn; else the role must wait (:meth:`wait`)."""
        goes_on = role.t <= self._until + GREEDY_CYCLES
        if self._owner is role:
            is_free = goes_on and not (self._by_age and self._waiting and self._num_older(role))
        else:
            is_free = not goes_on and not self._waiting
        if is_free:
            self._begin(role, multiply, num_runs)
        return is_free

    def _begin(self, role: Role, multiply: Multiply, num_runs: int) -> None:
        since = role.t
        self._owner, self._until = role, multiply()
        each = (self._until - since) / num_runs
        self._runs.extend(since + idx * each for idx in range(num_runs))

    def wait(self, role: Role, multiply: Multiply, num_runs: int = 1) -> Role:
        """Until the one that multiplies stops; then do so and go on."""
        self._waiting.append((role, multiply, num_runs))
        self._watch()
        return role.block(self._state, self._what)

    def hold(self, role: Role, num_copies: float) -> Role | None:
        """Until another one that multiplies lets a role issue ``num_copies`` of each of its warps; then ask again."""
        if role.copy_pass is not CopyPass.NONE:
            if role.copy_pass is CopyPass.ONCE:
                role.copy_pass = CopyPass.NONE
            return None
        if self._owner is role and self._waiting:
            self._next()
        if self._owner is role or self._owner is None or role.t > self._until + GREEDY_CYCLES:
            return None
        self._held.append((role, role.t, num_copies))
        self.has_held = True
        self._watch()
        role.must_retry = True
        return role.block(WarpState.ISSUE, "its turn at the schedulers")

    def _watch(self) -> None:
        agenda = (self._waiting[0] if self._waiting else self._held[0])[0].agenda
        now, at = agenda.cycle, self._until + GREEDY_CYCLES
        if self._held:
            at = min((run for run in self._runs if run > now + EPSILON_CYCLES), default=at)
        if at < self._watched_at:
            self._watched_at = at
            agenda.later(max(0.0, at - now), self._look)

    def _look(self) -> None:
        """Has the one that multiplies stopped?"""
        if not self._waiting and not self._held:
            self._watched_at = inf
            return
        agenda = (self._waiting[0] if self._waiting else self._held[0])[0].agenda
        if agenda.cycle < self._watched_at - EPSILON_CYCLES:
            return  # an earlier look has been here, and wants the next one later
        self._watched_at = inf
        goes_on = agenda.cycle < self._until + GREEDY_CYCLES - EPSILON_CYCLES
        self._let_copy(agenda.cycle, goes_on)
        if not goes_on and self._waiting:
            self._next()
        if self._waiting or self._held:
            self._watch()

    def _let_copy(self, now: float, goes_on: bool) -> None:
        owner = self._owner
        if owner is None or not self._held:
            return
        has_stops = owner.num_warps <= owner.sm.warp_scheduler.spec.num_schedulers
        is_busy, num_multiplying = goes_on or bool(self._waiting), 1 + len(self._waiting)
        held, self._held = self._held, []
        for role, since, num in held:
            passed = sum(1 for run in self._runs if since < run <= now + EPSILON_CYCLES)
            is_first, wanted = False, num * num_multiplying
            if self._by_age:
                num_older = self._num_older(role)
                is_first, wanted = not num_older, num * (1 + num_older) if num_older else 1.0
            if is_busy and (passed < wanted or not (has_stops or is_first)):
                self._held.append((role, since, num))
            else:
                role.copy_pass = CopyPass.ONCE if is_busy else CopyPass.UNTIL_COMMIT
                role.fire(0.0)

    def _num_older(self, role: Role) -> int:
        """CTAs older than a role's that multiply or want to."""
        mine, owner = role.cta.idx, self._owner
        is_older = owner is not None and owner is not role and owner.cta.idx < mine
        return is_older + sum(1 for other, _, _ in self._waiting if other is not owner and other.cta.idx < mine)

    def _next(self) -> None:
        """The turn of who has waited longest, or of the oldest."""
        first = 0
        if self._by_age:
            first = min(range(len(self._waiting)), key=lambda place: self._waiting[place][0].cta.idx)
        role, multiply, num_runs = self._waiting[first]
        del self._waiting[first]
        role.spend(self._state, self._until)
        self._begin(role, multiply, num_runs)
        role.fire(0.0)


def turns_of_sms() -> tuple[defaultdict[int, Turns], defaultdict[int, Turns]]:
    """(by SM, of its tensor cores; of its FMA pipe), each made at its first use."""
    return defaultdict(Turns), defaultdict(partial(Turns, WarpState.MATH_PIPE, "the FMA pipe"))
