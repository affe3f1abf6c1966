"""Steady state: found while the kernel runs, and then skipped.

Time is moved ahead for the whole machine at once: every role's loop index by the same number of iterations, the reported
time by that many mean periods. What is in flight stays in flight. So nothing has to be restarted, and the start, the
warm-up and the end of each loop are always simulated.
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd, inf, lcm
from typing import TYPE_CHECKING

from gpusim.machine.numeric import sum_in_order
from gpusim.simulate.loops import Loop, TileLoop
from gpusim.simulate.waves import QUICK_WAVES, SAME_WAVES, common, settled

if TYPE_CHECKING:
    from gpusim.simulate.engine import Engine

TOLERANCE = 1e-3
"""Two successive blocks whose mean periods differ by no more are a steady state."""

LOOSE_TOLERANCE = 3e-3
"""The same for a loop that does not settle: three long stretches."""

NOISY_TOLERANCE = 5e-3
"""How far rounds may lie apart whose pace swings about a mean that stays; :data:`NOISY_ROUNDS` tell it to a fifth."""

NOISY_ROUNDS = 6
"""Rounds of a pace that swings; in both halves the mean must be the same within :data:`TOLERANCE`, and no CTA drift away."""

SWING = 3e-2
"""How far rounds may lie apart where CTAs' own means are the same: a sixth of it or less is left of it in the mean."""

SETTLING_ROUNDS = 3
"""Rounds of a wave after which its pace may be recognized, where it swings."""

PATIENT_ROUNDS = 40
"""Rounds of all loops after which what swings may swing twice as far, and so on: kernels without a pace must end, too."""

QUICK_LENIENCY = 5.0
"""What tolerances of paces that swing are multiplied by where an answer is to be quick."""

MOST_ROUNDS = 12
"""Rounds of a stretch at most that is looked at for whole swings."""

LONG_LOOP = 200
"""Iterations of a loop that may be skipped although its pace swings: a step more or less is half a percent."""

STRETCH = 5
"""Rounds of a long stretch."""

SPREAD_TOLERANCE = 1e-2
"""How far the slowest may be from the fastest, of a period: where CTAs keep paces of their own, time cannot move for all."""

KNOWN_TOLERANCE = 2e-3
"""How near a block must come to a period that an earlier wave settled at, for the loop to be taken as settled, too."""

OWN_PACES = 0.1
"""The same in a wave that others follow: who is late takes the next CTA late, and the mean is the grid's pace."""

LAST_PACES = 3e-3
"""The same where nothing follows: the slowest ends the kernel, and who falls behind goes on to.

A choice: at 1 % a kernel of one stage was 0.6 % off (validation/deviations.md, 2), and half a percent is allowed."""

EXACT = 1e-5
"""Spread of a round, of its period, below which all CTAs are taken to be bound by the same thing of their own."""

IN_STEP_ROUNDS = 3
"""Rounds in each of which all CTAs took the same time to the cycle, and as long as in the one before: they are in step."""

FEW_CTAS = 32
"""CTAs of which a single round in which all took the same time says too little."""

IDLE_HBM = 0.75
"""Share of its time that HBM may be busy for waves that fetch unlike parts from it to be left out: queues would grow."""

WORK_TOLERANCE = 2e-3
"""How much the bytes of a tensor that waves read or write may differ, tile by tile, for waves that are taken for alike."""

WRITE_BACK_TOLERANCE = 0.02
"""How much the bytes that leave L2 may differ, of what a wave touches, while waves run that are taken for alike."""

TRAFFIC_TOLERANCE = 0.1
"""How much the bytes from memory of waves may differ that are taken for alike."""

QUICK_TRAFFIC_TOLERANCE = 0.03
"""How much the mean bytes from memory may differ, of what a wave touches, where an answer is to be quick."""

QUICK_WORK_TOLERANCE = 0.1
"""How much the mean bytes of a tensor may differ, and what is written back, where an answer is to be quick.

A choice: without it split-K was 17 % off its full answer, as unlike waves were left out (validation/deviations.md, 3)."""

QUEUE_TOLERANCE = 2e-2
"""How much longer copies may take than in the block before, of a period: a ring that drains slowly looks steady else."""

DRAIN_TOLERANCE = 2e-3
"""By how much of a period each step's copies may take longer than the last one's: as much slower is what brings them."""

SLACK = 0.6
"""Copies that take less than this share of the time that the ring looks ahead are hidden behind the math."""

MIN_BLOCK = 4
"""Iterations of a block at least."""

FEWEST = 4
"""Iterations that are worth a skip."""

FIRST_AGAIN = 2
"""Iteration from which on a loop's pace is looked at where one has settled before: in the first of all the ring fills."""

TAIL = 2
"""Iterations that are simulated at the end of a loop at least; more where one role loads ahead of its own math."""


MOST_TOLD = 0.9
"""Of all that report, those who have to in a round: some drift ahead by a report, where none waits for others."""


class Pace:
    """Means of what all CTAs report: one round is one report of each."""

    __slots__ = (
        "_fastest", "_history", "_latest", "_round_count", "_round_sum", "_slowest", "_told", "_took", "_wobble",
        "means", "num_live", "num_untold", "slowest", "spreads", "wobbles",
    )

    def __init__(self) -> None:
        """Nothing reported."""
        self._latest: dict[int, float] = {}
        self._history: dict[int, list[float]] = {}
        self.means: list[float] = []
        self.spreads: list[float] = []
        """For each round the slowest report less the fastest."""
        self.slowest: list[float] = []
        """For each round the slowest report."""
        self.wobbles: list[float] = []
        """For each round by how much a report differs from the same CTA's last, on average."""
        self._took: dict[int, float] = {}
        self._told: set[int] = set()
        """Who has reported in this round."""
        self.num_live = self.num_untold = 0
        """How many CTAs report; how many did not in the last round."""
        self._begin_round()

    def _begin_round(self) -> None:
        self._told = set()
        self._round_sum, self._round_count = 0.0, 0
        self._fastest, self._slowest = float("inf"), 0.0
        self._wobble = 0.0

    def reset(self) -> None:
        """Forget everything: the population has changed, or time has jumped."""
        self._latest.clear()
        self._history.clear()
        self.means.clear()
        self.spreads.clear()
        self.slowest.clear()
        self.wobbles.clear()
        self._took.clear()
        self._begin_round()

    def restart(self, key: int) -> None:
        """``key`` begins anew: its next report begins an interval."""
        self._latest.pop(key, None)
        self._history.pop(key, None)
        self._told.discard(key)

    def report(self, key: int, cycle: float, num_steps: int) -> bool:
        """Somebody has made ``num_steps`` steps by ``cycle``; true when this closes a round.

        A round has a report of each, on average; where some go first, and others wait for them, it is none before nearly
        all have reported.
        """
        before = self._latest.get(key)
        self._latest[key] = cycle
        if before is None:
            return False
        took = (cycle - before) / num_steps
        self._told.add(key)
        self._history.setdefault(key, []).append(took)
        self._round_sum += took
        self._wobble += abs(took - self._took.get(key, 0.0))
        self._took[key] = took
        self._round_count += 1
        if took < self._fastest:
            self._fastest = took
        if took > self._slowest:
            self._slowest = took
        if self._round_count < self.num_live or len(self._told) < MOST_TOLD * self.num_live:
            return False
        self.num_untold = self.num_live - len(self._told)
        self.means.append(self._round_sum / self._round_count)
        self.spreads.append(self._slowest - self._fastest)
        self.slowest.append(self._slowest)
        self.wobbles.append(self._wobble / self._round_count)
        self._begin_round()
        return True

    def slowest_period(self, num_rounds: int) -> float | None:
        """The period of the slowest, if each CTA kept its own pace in the last ``num_rounds`` rounds; else None."""
        recent = self.slowest[-num_rounds:]
        if len(recent) < num_rounds or max(recent) - min(recent) > TOLERANCE * recent[-1]:
            return None
        if max(self.wobbles[1 - num_rounds :]) > TOLERANCE * recent[-1]:
            return None
        return recent[-1]

    def period(self, num_rounds: int, num_steps: int = LONG_LOOP) -> float | None:
        """The mean period if the last ``num_rounds`` rounds agree, and all CTAs keep the same pace; else None.

        Rounds that keep changing are taken for steady when three long stretches of them agree, in a loop of many
        ``num_steps``: moving time then may be off by a part of a swing, which is about a step.
        """
        means = self.means
        if len(means) < num_rounds:
            return None
        recent = means[-num_rounds:]
        mean = sum_in_order(recent) / num_rounds
        if max(recent) - min(recent) <= TOLERANCE * mean and self.spreads[-1] <= SPREAD_TOLERANCE * mean:
            return mean
        if len(means) >= 3 * STRETCH and num_steps >= LONG_LOOP:
            stretches = [
                sum_in_order(means[-end - STRETCH : len(means) - end]) / STRETCH for end in (0, STRETCH, 2 * STRETCH)
            ]  # fmt: skip
            if max(stretches) - min(stretches) <= LOOSE_TOLERANCE * stretches[0]:
                return sum_in_order(stretches) / 3
        return None

    def swinging_period(self, apart: float, leniency: float = 1.0) -> float | None:
        """The mean of rounds that swing about it, if it stays and CTAs' own are at most ``apart`` of it apart; else None.

        It stays where two stretches of as many rounds have the same; what swings by little tells it soon, what swings by
        much over some rounds when a stretch holds whole swings. ``leniency`` is what tolerances are multiplied by.
        """
        for num_rounds in range(NOISY_ROUNDS // 2, MOST_ROUNDS + 1):
            recent = self.means[-2 * num_rounds :]
            if len(recent) < 2 * num_rounds:
                return None
            mean = sum_in_order(recent) / len(recent)
            if num_rounds == NOISY_ROUNDS // 2 and max(recent) - min(recent) > leniency * NOISY_TOLERANCE * mean:
                continue
            apart_cycles = abs(sum_in_order(recent[num_rounds:]) - sum_in_order(recent[:num_rounds]))
            if apart_cycles > leniency * TOLERANCE * mean * num_rounds:
                continue
            if num_rounds > NOISY_ROUNDS // 2 and num_rounds < NOISY_ROUNDS:
                continue
            own = [
                sum_in_order(took[-len(recent) :]) / len(recent)
                for took in self._history.values() if len(took) >= len(recent)
            ]  # fmt: skip
            if len(own) >= self.num_live and max(own) - min(own) <= leniency * apart * mean:
                return mean
        return None

    def is_in_step(self) -> bool:
        """Whether every CTA took the same time to the cycle in the last rounds, and as long in each."""
        if len(self.means) < IN_STEP_ROUNDS or self.num_live <= FEW_CTAS:
            return False
        limit = EXACT * self.means[-1]
        return max(self.spreads[-IN_STEP_ROUNDS:]) <= limit and max(self.wobbles[1 - IN_STEP_ROUNDS :]) <= limit

    def common_period(self, num_rounds: int, apart: float) -> float | None:
        """The mean of ``num_rounds`` rounds that swing about it, if all CTAs have kept it on average; else None.

        On average: CTAs' own means are at most ``apart`` of it apart.

        Where none drifts away from the others, who shares what with whom stays, and so does the mean.
        """
        recent = self.means[-num_rounds:]
        if len(recent) < num_rounds:
            return None
        mean, half = sum_in_order(recent) / num_rounds, num_rounds // 2
        if max(recent) - min(recent) > SWING * mean:
            return None
        if abs(sum_in_order(recent[:half]) - sum_in_order(recent[-half:])) > LOOSE_TOLERANCE * mean * half:
            return None
        own = [sum_in_order(took[-num_rounds:]) / num_rounds for took in self._history.values() if len(took) >= num_rounds]
        return mean if len(own) >= self.num_live and max(own) - min(own) <= apart * mean else None


class SteadyState:
    """Watches the loops of all live CTAs and skips what would only repeat."""

    def __init__(self, engine: Engine, *, enabled: bool, is_quick: bool = False) -> None:
        """``enabled`` false simulates every iteration and wave; ``is_quick`` takes the first waves' mean for the rest."""
        self._engine = engine
        self.enabled, self._is_quick = enabled, is_quick
        self._iterations = Pace()
        self._turns = Pace()
        self._wave_ends: list[float] = []
        self._mean_ends: list[float] = []
        """For each wave the mean of its CTAs' exits: a sample's come in bursts, the last of which tells little."""
        self._exits_before = 0.0
        self.num_iterations_skipped = 0
        self.num_waves_skipped = 0
        self._rank = {role.name: idx for idx, role in enumerate(engine.launch.roles)}
        self._num_reporting = 0
        self._latencies: list[float] = []
        self._seen = (0.0, 0)
        self._known: list[tuple[float, float, float]] = []
        """(period, cycles of a copy, bytes from memory of the wave) of loops that have settled."""
        self._num_rounds = 0
        self._may_leap = False
        """Whether loops have begun that may be moved by the pace of those before, once all CTAs are in theirs."""
        self._most_live = 0
        self._asked = self._asked_before = (0.0, 0.0, 0.0)
        self._window = self._asked
        """What had been asked for when the stretch began that stands for what is left out."""
        self._asked_at_ends: list[tuple[float, float, float]] = []
        """For each wave what had been asked of L2 when it ended, what was left out included."""
        self._of_waves: tuple[tuple[float, float, float], tuple[float, float, float]] | None = None
        """The same before and after the waves that stand for those that were left out."""
        self._swings = False
        """Whether a loop has settled whose pace swings: the first rounds of a wave tell less then."""
        self._period = engine.launch.parity_period
        self._unit = 1 if engine.launch.has_own_slots else self._period
        """Iterations that can be skipped are a multiple of it."""
        half = self._period // 2
        self._block = -(-MIN_BLOCK // half) * half
        is_specialized = len({type(role.program) for role in engine.launch.roles}) > 1  # teams load ahead of their own math
        self._tail = TAIL if is_specialized else TAIL + half

    @property
    def num_skipped(self) -> int:
        """Iterations and waves that others stood for."""
        return self.num_iterations_skipped + self.num_waves_skipped

    # ------------------------------------------------------------------------------------------ iterations of a loop

    def watch(self, loop: Loop) -> None:
        """A role has begun a loop. All but the first of several roles (the loader, which runs ahead) set the pace."""
        role = loop.role
        if not self.enabled or len(role.loops) > 1 or loop.num_iterations < 3 * self._block + self._unit:
            return
        if len(self._rank) > 1 and not self._rank[role.spec.name]:
            return
        self._num_reporting += 1
        self._may_leap = True
        first = FIRST_AGAIN if self._known else self._block + 1
        loop.report(first, self._block, self._on_block)

    def unwatch(self, loop: Loop) -> None:
        """A loop that reported has ended."""
        self._num_reporting -= 1
        self.settle_requests()
        self._iterations.restart(id(loop))

    def _on_block(self, loop: Loop) -> None:
        engine = self._engine
        pace = self._iterations
        if self._num_reporting != pace.num_live:
            pace.reset()
            pace.num_live = self._num_reporting
            self._latencies.clear()
            self._seen = (engine.copy_cycles, engine.num_copies)
            self._note_requests()
        misses = engine.miss_bytes_of_wave(loop.role.wave)
        closes_round = pace.report(id(loop), loop.role.t, self._block)
        if engine.has_own_paces and not self._is_quick:
            return  # sharers of tiles drift apart, and what merges with it: no stretch stands for another
        if closes_round:
            self._may_leap = False
            self._num_rounds += 1
            self._note_requests()
            period = self._steady_period(misses, loop.num_iterations)
        else:
            period = self._period_of_waves_before(misses)
        if period is None:
            return
        num_left = engine.fewest_iterations_left(wants_all=not closes_round)
        if num_left is None:
            return
        num_skipped = (num_left - self._tail) // self._unit * self._unit
        if num_skipped < max(self._unit, FEWEST):
            return
        if not self._latencies:
            self._latencies.append(self._known[-1][1])
        self._known.append((period, self._latencies[-1], misses))
        for role in engine.live_roles():
            for of_role in role.loops:
                of_role.skip(num_skipped)
        self._may_leap = False
        self.num_iterations_skipped += num_skipped
        self.settle_requests()
        self._window = self._asked_before
        engine.skip(num_skipped * period, f"{num_skipped} iterations")
        pace.reset()
        self._latencies.clear()

    def _period_of_waves_before(self, misses: float) -> float | None:
        """The period of loops that have settled, where math alone sets it and as many CTAs are in one again.

        How they come up to it is then seen in the iterations that are left; not where copies wait behind stores of the
        wave before, which sets sharers apart.
        """
        engine = self._engine
        if not self._may_leap or self._swings or engine.launch.num_ctas is None or not self._math_sets_the_pace():
            return None
        if engine.machine.xbar.has_late_copies:
            return None
        is_whole = self._num_reporting >= self._most_live or (engine.is_last_wave and engine.occupancy.ctas_per_sm == 1)
        if not is_whole or misses > self._known[-1][2] * (1.0 + TRAFFIC_TOLERANCE):
            return None
        return self._known[-1][0]

    def _note_requests(self) -> None:
        """What has been asked of L2."""
        self._asked_before, self._asked = self._asked, self._engine.machine.xbar.asked

    def settle_requests(self) -> None:
        """Requests that were left out have merged as those around them: from the round before a skip to the loop's end.

        Those of waves that were left out as in the waves whose time stands for theirs.
        """
        xbar = self._engine.machine.xbar
        if self._of_waves is not None:
            xbar.stand_for_rest(*self._of_waves)
        else:
            xbar.stand_for_rest(self._window, xbar.asked)
        self._window = xbar.asked

    def _steady_period(self, misses: float, num_iterations: int) -> float | None:
        """The period, once it repeats and the queues do not grow: copies take no longer than before.

        ``misses``: bytes that the present wave fetches from memory. A loop that comes up to the period of an earlier wave,
        which fetched as much, has settled.
        """
        engine, pace = self._engine, self._iterations
        cycles, num_copies = engine.copy_cycles - self._seen[0], engine.num_copies - self._seen[1]
        self._seen = (engine.copy_cycles, engine.num_copies)
        self._latencies.append(cycles / num_copies if num_copies else 0.0)
        latencies, last = self._latencies, pace.means[-1]
        self._most_live = max(self._most_live, pace.num_live)
        is_crowd = 2 * pace.num_live >= self._most_live or len(pace.means) > IN_STEP_ROUNDS  # else it is cheap to look on
        is_unsure = not is_crowd or (self._swings and len(pace.means) < SETTLING_ROUNDS)
        is_apart = not engine.has_waves_to_come and pace.spreads[-1] > LAST_PACES * last  # the slowest will end the kernel
        if engine.has_elders and (pace.num_untold > 0 or pace.spreads[-1] > SPREAD_TOLERANCE * last):
            return None  # CTAs wait for others, which go at a pace of their own
        for period, latency, known_misses in () if is_unsure or is_apart else self._known:
            if abs(last - period) <= KNOWN_TOLERANCE * period and (
                misses <= known_misses * (1.0 + TRAFFIC_TOLERANCE)
                or latencies[-1] <= latency + QUEUE_TOLERANCE * period
            ):
                return period
        is_hidden = self._hides_copies(last, latencies[-1])
        if is_hidden and is_crowd and pace.spreads[-1] <= EXACT * last and self._is_as_fast_as_ever(last):
            return last  # every CTA took the same time to the cycle: its own math alone sets the pace
        if pace.is_in_step() and latencies[-1] - latencies[-2] <= DRAIN_TOLERANCE * self._block * last:
            return last
        num_rounds = 2 if is_hidden else 5
        # nothing follows, some SMs hold fewer CTAs than others: the fullest are the slowest, and end the kernel
        slowest_ends = engine.is_last_wave and engine.occupancy.ctas_per_sm > 1
        settled = pace.period(num_rounds, 0 if slowest_ends else num_iterations)
        if settled is None and slowest_ends:
            settled = pace.slowest_period(num_rounds)
        elif settled is None:
            follow = engine.has_waves_to_come
            settled = pace.swinging_period(OWN_PACES if follow else LAST_PACES, self._leniency)
            if settled is None:
                settled = pace.common_period(NOISY_ROUNDS, SPREAD_TOLERANCE if follow else LAST_PACES)
            self._swings |= settled is not None
        if settled is None or len(latencies) < 2 or abs(latencies[-1] - latencies[-2]) > (
            QUEUE_TOLERANCE * (QUICK_LENIENCY if self._is_quick else 1.0) * last
        ):
            return None
        return settled

    def _hides_copies(self, period: float, latency: float) -> bool:
        """Whether copies are there well before they are needed, so that the pace is set by the math alone."""
        return latency < SLACK * (self._period // 2 - 1) * period

    def _is_as_fast_as_ever(self, period: float) -> bool:
        """Whether no round before was quicker, as none can be that math bounds; few CTAs may agree by chance once."""
        means = self._iterations.means
        if len(means) == 1:
            return self._iterations.num_live > FEW_CTAS
        return period <= min(means) * (1.0 + TOLERANCE)

    @property
    def _leniency(self) -> float:
        return max(QUICK_LENIENCY if self._is_quick else 1.0, self._num_rounds / PATIENT_ROUNDS)

    def _math_sets_the_pace(self) -> bool:
        """Whether loops have settled, and all that have hide their copies."""
        return bool(self._known) and all(self._hides_copies(period, latency) for period, latency, _ in self._known)

    # ------------------------------------------------------------------------------------------ turns of persistent CTAs

    def watch_tiles(self, loop: TileLoop) -> None:
        """A role of a persistent CTA has begun its outer loop."""
        if self.enabled and self._rank[loop.role.spec.name] == 0:
            loop.on_turn = self._on_turn

    def _on_turn(self, loop: TileLoop) -> None:
        engine = self._engine
        pace = self._turns
        if engine.num_live_ctas != pace.num_live:
            pace.reset()
            pace.num_live = engine.num_live_ctas
        if not pace.report(loop.role.cta_idx, engine.reported_cycle, loop.step):
            return
        period = pace.period(2 if self._math_sets_the_pace() else 3)
        if self._is_quick and period is None and len(pace.means) > QUICK_WAVES:
            period = sum_in_order(pace.means[-QUICK_WAVES:]) / QUICK_WAVES
        steps = engine.steps_per_turn
        if period is None or not steps:
            return
        loops = [role.tile_loop for role in engine.live_roles()]
        if any(of_role is None for of_role in loops):
            return
        fewest = min(of_role.num_turns_left for of_role in loops if of_role is not None)
        own_turns = [2 * of_role.step for of_role in loops if of_role is not None]  # a barrier that flips once a turn
        unit = lcm(self._period // gcd(self._period, steps), *own_turns)
        num_skipped = (fewest - 2) // unit * unit
        if num_skipped < 1:
            return
        turns = [of_role.turn for of_role in loops if of_role is not None]
        tolerance = TRAFFIC_TOLERANCE if self._math_sets_the_pace() else WORK_TOLERANCE
        if not self._is_quick and not engine.are_waves_alike(max(0, min(turns) - 3), max(turns) + num_skipped, tolerance):
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
        engine = self._engine
        ends = self._wave_ends
        ends.append(engine.reported_cycle)
        self._mean_ends.append((engine.exit_cycles - self._exits_before) / engine.slots_to_run)
        self._exits_before = engine.exit_cycles
        self._asked_at_ends.append(engine.machine.xbar.told)
        waves = [later - earlier for earlier, later in pairwise(ends)]
        duration = common(waves[-SAME_WAVES:], SAME_WAVES, 2 * TOLERANCE)
        if duration is None:
            duration = settled(waves, self._leniency)
        begun = -(-engine.next_cta // engine.slots_to_run)  # waves of which a CTA has started
        num_waves = engine.num_to_run // engine.slots_to_run - begun - 1
        is_quick = duration is None and self._is_quick
        if is_quick:
            duration = self._mean_of_waves(begun, num_waves)
        if duration is None:
            return 0
        while num_waves >= 1 and not (
            self._do_as_much(begun, num_waves) if is_quick else self._may_leave_out(begun, num_waves, duration)
        ):
            num_waves //= 2  # those at the end may differ
        if num_waves < 1:
            return 0
        self.num_waves_skipped += num_waves
        self.settle_requests()
        self._of_waves = self._asked_at_ends[-1 - min(QUICK_WAVES, len(waves))], self._asked_at_ends[-1]
        engine.skip(num_waves * duration, f"{num_waves} waves", is_of_waves=True)
        ends.clear()
        self._mean_ends.clear()
        self._asked_at_ends.clear()
        return num_waves

    def _mean_of_waves(self, begun: int, num_waves: int) -> float | None:
        """The mean of the last waves, if they fetch from memory what those to come do; else it is better to look on."""
        first = begun - 1 - QUICK_WAVES
        ends = self._mean_ends
        if len(ends) <= QUICK_WAVES or num_waves < 1 or first < 0:
            return None
        if not self._engine.is_traffic_alike(first, begun - 1, begun + num_waves, QUICK_TRAFFIC_TOLERANCE):
            return None
        return (ends[-1] - ends[-1 - QUICK_WAVES]) / QUICK_WAVES

    def _do_as_much(self, begun: int, num_waves: int) -> bool:
        """Whether ``num_waves`` from the ``begun``-th on read and write about as much as those before them, on average."""
        first = begun - 1 - QUICK_WAVES
        return self._engine.are_means_alike(first, begun - 1, begun + num_waves, QUICK_WORK_TOLERANCE)

    def _may_leave_out(self, begun: int, num_waves: int, duration: float) -> bool:
        """Whether ``num_waves`` from the ``begun``-th on do what the three before them do, each in ``duration`` cycles."""
        engine = self._engine
        first, last = max(0, begun - 3), begun + num_waves
        hides_memory = self._math_sets_the_pace() and engine.hbm_share_at_most(first, last, duration) <= IDLE_HBM
        return engine.are_waves_alike(first, last, inf if hides_memory else WORK_TOLERANCE)
