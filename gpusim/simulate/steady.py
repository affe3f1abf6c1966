"""Steady state: found while the kernel runs, and then skipped.

Time is moved ahead for the whole machine at once: every role's loop index by the same number of iterations, the reported
time by that many mean periods. What is in flight stays in flight. So nothing has to be restarted, and the start, the
warm-up and the end of each loop are always simulated.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from gpusim.simulate.loops import Loop, TileLoop

if TYPE_CHECKING:
    from gpusim.simulate.run import Engine

TOLERANCE = 1e-3
"""Two successive blocks whose mean periods differ by no more are a steady state."""

LOOSE_TOLERANCE = 3e-3
"""The same for a loop that does not settle: two halves of a long stretch."""

MIN_BLOCK = 4
"""Iterations of a block at least."""


class Pace:
    """Means of what all CTAs report: one round is one report of each."""

    __slots__ = ("_latest", "_round_count", "_round_sum", "means", "num_live")

    def __init__(self) -> None:
        """Nothing reported."""
        self._latest: dict[int, float] = {}
        self.means: list[float] = []
        self._round_sum = 0.0
        self._round_count = 0
        self.num_live = 0

    def reset(self) -> None:
        """Forget everything: the population has changed."""
        self._latest.clear()
        self.means.clear()
        self._round_sum = 0.0
        self._round_count = 0

    def report(self, key: int, cycle: float, num_steps: int) -> bool:
        """Somebody has made ``num_steps`` steps by ``cycle``; true when this closes a round."""
        before = self._latest.get(key)
        self._latest[key] = cycle
        if before is None:
            return False
        self._round_sum += (cycle - before) / num_steps
        self._round_count += 1
        if self._round_count < self.num_live:
            return False
        self.means.append(self._round_sum / self._round_count)
        self._round_sum, self._round_count = 0.0, 0
        return True

    def forget_times(self) -> None:
        """Time has jumped: intervals that span the jump mean nothing."""
        self._latest.clear()
        self._round_sum, self._round_count = 0.0, 0
        self.means.clear()

    def period(self) -> float | None:
        """The mean period if the last rounds agree, else None."""
        means = self.means
        if len(means) < 2:
            return None
        last, before = means[-1], means[-2]
        if abs(last - before) <= TOLERANCE * last:
            return (last + before) / 2
        if len(means) >= 6:
            recent, earlier = sum(means[-3:]) / 3, sum(means[-6:-3]) / 3
            if abs(recent - earlier) <= LOOSE_TOLERANCE * recent:
                return (recent + earlier) / 2
        return None


class SteadyState:
    """Watches the loops of all live CTAs and skips what would only repeat."""

    def __init__(self, engine: Engine, *, enabled: bool) -> None:
        """``enabled`` false simulates every iteration and wave."""
        self._engine = engine
        self.enabled = enabled
        self._iterations = Pace()
        self._turns = Pace()
        self._wave_ends: list[float] = []
        self.num_iterations_skipped = 0
        self.num_waves_skipped = 0
        self._pace_role = engine.launch.roles[0].name
        rings = engine.launch.parity_period
        self._period = rings
        self._block = max(MIN_BLOCK, rings // 2)
        while self._block % (rings // 2):
            self._block += 1

    # ------------------------------------------------------------------------------------------ iterations of a loop

    def watch(self, loop: Loop) -> None:
        """A role has begun a loop."""
        if not self.enabled or loop.role.spec.name != self._pace_role or len(loop.role.loops) > 1:
            return
        if loop.num_iterations >= 3 * self._block + self._tail + self._period:
            loop.report(self._block, self._on_block)

    @property
    def _tail(self) -> int:
        """Iterations that are always simulated at the end of a loop."""
        return self._period // 2 + 2

    def _on_block(self, loop: Loop) -> None:
        engine = self._engine
        pace = self._iterations
        if engine.num_live_ctas != pace.num_live:
            pace.reset()
            pace.num_live = engine.num_live_ctas
        if not pace.report(loop.role.cta_idx, engine.env.now, self._block):
            return
        period = pace.period()
        if period is None:
            return
        num_left = engine.fewest_iterations_left()
        if num_left is None:
            return
        num_skipped = (num_left - self._tail) // self._period * self._period
        if num_skipped < self._period:
            return
        for role in engine.live_roles():
            for of_role in role.loops:
                of_role.skip(num_skipped)
        self.num_iterations_skipped += num_skipped
        engine.skip(num_skipped * period, f"{num_skipped} iterations")
        pace.reset()

    # ------------------------------------------------------------------------------------------ turns of persistent CTAs

    def watch_tiles(self, loop: TileLoop) -> None:
        """A role of a persistent CTA has begun its outer loop."""
        if self.enabled and loop.role.spec.name == self._pace_role:
            loop.on_turn = self._on_turn

    def _on_turn(self, loop: TileLoop) -> None:
        engine = self._engine
        pace = self._turns
        if engine.num_live_ctas != pace.num_live:
            pace.reset()
            pace.num_live = engine.num_live_ctas
        if not pace.report(loop.role.cta_idx, engine.reported_cycle, loop.step):
            return
        period = pace.period()
        steps = engine.steps_per_turn
        if period is None or not steps:
            return
        loops = [role.tile_loop for role in engine.live_roles()]
        if any(of_role is None for of_role in loops):
            return
        fewest = min(of_role.num_turns_left for of_role in loops if of_role is not None)
        unit = self._period // gcd(self._period, steps)
        for of_role in loops:
            if of_role is not None and unit % of_role.step:
                unit *= of_role.step
        num_skipped = (fewest - 2) // unit * unit
        if num_skipped < 1:
            return
        for of_role in loops:
            if of_role is not None:
                of_role.skip(num_skipped)
        self.num_waves_skipped += num_skipped
        engine.skip(num_skipped * period, f"{num_skipped} tiles of each CTA")
        pace.reset()

    # ------------------------------------------------------------------------------------------ waves of CTAs

    def wave_ended(self) -> int:
        """As many CTAs have ended as run at once; returns how many waves to leave out now."""
        if not self.enabled:
            return 0
        ends = self._wave_ends
        ends.append(self._engine.reported_cycle)
        if len(ends) < 3:
            return 0
        last, before = ends[-1] - ends[-2], ends[-2] - ends[-3]
        is_steady = abs(last - before) <= 2 * TOLERANCE * last
        if not is_steady and len(ends) >= 5:
            recent, earlier = (ends[-1] - ends[-3]) / 2, (ends[-3] - ends[-5]) / 2
            is_steady = abs(recent - earlier) <= 2 * LOOSE_TOLERANCE * recent
            last, before = recent, earlier
        if not is_steady:
            return 0
        num_waves = self._engine.num_full_waves_left() - 1
        if num_waves < 1:
            return 0
        self.num_waves_skipped += num_waves
        self._engine.skip(num_waves * (last + before) / 2, f"{num_waves} waves")
        ends.clear()
        return num_waves
