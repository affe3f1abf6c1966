"""What the roles of a CTA share: stages of shared memory, mbarriers, barriers of threads, registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import simpy

from gpusim.errors import HazardError, LaunchError, nearest
from gpusim.reference.facts import Fact, Wait

if TYPE_CHECKING:
    from gpusim.reference.kernel import Kernel
    from gpusim.reference.role import Role
    from gpusim.reference.sm import Sm

Item = TypeVar("Item")

EPSILON_CYCLES = 1e-6
"""By how much a read may come before what it reads."""


class Stage:
    """One slot of a buffer. It takes no time; it refuses what would be a race on a GPU.

    Who writes or reads says from when on, and until when, as far as that is known.
    """

    def __init__(self, name: str) -> None:
        """Nothing was written yet."""
        self.name = name
        self._was_written = False
        self._num_writes = self._num_reads = 0
        """Under way; when they end is not known."""
        self._full_at = self._read_until = 0.0

    def begin_write(self, at: float, who: str) -> None:
        """A write begins."""
        until = float("inf") if self._num_reads else self._read_until
        if until > at + EPSILON_CYCLES:
            raise HazardError(
                f"{who}: {self.name} is refilled at cycle {at:.0f} while it is read until {until:.0f}; "
                f"wait for its readers first"
            )
        self._num_writes += 1
        self._was_written = True

    def end_write(self, at: float) -> None:
        """A write ends at a cycle that is known now."""
        self._num_writes -= 1
        self._full_at = max(self._full_at, at)

    def read(self, at: float, until: float, who: str) -> None:
        """A read that lasts until a cycle that is known."""
        if not self._was_written:
            raise HazardError(f"{who}: {self.name} is read at cycle {at:.0f} and was never written")
        if self._num_writes or self._full_at > at + EPSILON_CYCLES:
            raise HazardError(
                f"{who}: {self.name} is read at cycle {at:.0f} before it is full; wait for its barrier first"
            )
        self._read_until = max(self._read_until, until)

    def begin_read(self, at: float, who: str) -> None:
        """A read that goes on by itself."""
        self.read(at, at, who)
        self._num_reads += 1

    def end_read(self, at: float) -> None:
        """It ends at a cycle that is known now."""
        self._num_reads -= 1
        self._read_until = max(self._read_until, at)


class Mbarrier:
    """One mbarrier: a phase is over when its arrivals are there and its bytes, those that were announced."""

    def __init__(self, env: simpy.Environment, name: str, stage: int, num_arrivals: int) -> None:
        """In its first phase, whose parity is 0."""
        self._env = env
        self.name, self.stage, self.num_arrivals = name, stage, num_arrivals
        self.num_pending = num_arrivals
        self.num_announced = self.num_delivered = self.num_open_bytes = 0
        self.parity = 0
        self._latest = self.completed_at = 0.0
        self.phase = Fact(env)
        """The end of the present one."""

    def arrive(self, count: int, at: float) -> None:
        """So many arrivals, which count at cycle ``at``."""
        self.num_pending -= count
        if self.num_pending < 0:
            raise HazardError(
                f"mbarrier {self.name}[{self.stage}] got {self.num_arrivals - self.num_pending} arrivals in a phase that "
                f"expects {self.num_arrivals}"
            )
        self._counts(at)

    def announce(self, num_bytes: int) -> None:
        """``expect_tx``."""
        self.num_open_bytes += num_bytes
        self.num_announced += num_bytes

    def deliver(self, num_bytes: int, at: float) -> None:
        """``complete_tx``: they are there at cycle ``at``."""
        self.num_open_bytes -= num_bytes
        self.num_delivered += num_bytes
        self._counts(at)

    def _counts(self, at: float) -> None:
        self._latest = max(self._latest, at)
        if self.num_pending or self.num_open_bytes:
            return
        self.parity ^= 1
        self.num_pending, self.num_announced, self.num_delivered = self.num_arrivals, 0, 0
        self.completed_at = self._latest
        over, self.phase = self.phase, Fact(self._env)
        over.tell(self.completed_at)

    def missing(self) -> str:
        """What has not come in this phase, for a deadlock's sentence."""
        parts = [f"{self.num_pending} of {self.num_arrivals} arrivals missing"] if self.num_pending else []
        if self.num_open_bytes:
            parts.append(f"{self.num_announced} bytes announced, {self.num_delivered} delivered")
        return ", ".join(parts)


class ThreadBarrier:
    """``bar.sync`` or ``barrier.cluster``: all its threads go on together, some cycles behind the last that arrives."""

    def __init__(self, env: simpy.Environment, name: str, num_threads: int, latency_cycles: float) -> None:
        """Nobody has arrived."""
        self._env, self.name, self._num_threads, self._latency = env, name, num_threads, latency_cycles
        self._num_arrived, self._latest = 0, 0.0
        self._release = Fact(env)

    def arrive(self, num_threads: int, at: float) -> Fact:
        """So many threads arrive at cycle ``at``; known is, in time, when they may go on."""
        self._num_arrived += num_threads
        self._latest = max(self._latest, at)
        if self._num_arrived > self._num_threads:
            raise HazardError(
                f"barrier {self.name!r}: {self._num_arrived} threads arrived, it was declared for {self._num_threads}"
            )
        release = self._release
        if self._num_arrived == self._num_threads:
            at, self._num_arrived, self._latest = self._latest + self._latency, 0, 0.0
            self._release = Fact(self._env)
            release.tell(at)
        return release


class Cluster:
    """CTAs that reach one another's shared memory."""

    def __init__(self, barrier: ThreadBarrier) -> None:
        """Without CTAs yet."""
        self.barrier = barrier
        self.ctas: list[Cta] = []


class Cta:
    """A thread block on an SM. Its process waits for its roles, and then leaves."""

    def __init__(self, kernel: Kernel, sm: Sm, cluster: Cluster, *, idx: int, rank: int) -> None:
        """CTA ``idx`` of the grid, of that rank in its cluster."""
        env, launch = kernel.env, kernel.launch
        self.kernel, self.sm, self.cluster, self.idx, self.rank = kernel, sm, cluster, idx, rank
        self.mbarriers = {
            ring.name: [Mbarrier(env, ring.name, stage, ring.num_arrivals) for stage in range(ring.num_stages)]
            for ring in launch.mbarriers
        }
        self.buffers = {
            ring.name: [Stage(f"{ring.name}[{stage}]") for stage in range(ring.num_stages)] for ring in launch.buffers
        }
        latency = kernel.gpu.warp_scheduler.barrier_base_cycles
        self.barriers = {
            barrier.name: ThreadBarrier(env, barrier.name, barrier.num_threads, latency)
            for barrier in launch.named_barriers
        }
        self.syncthreads = ThreadBarrier(env, "__syncthreads", launch.num_threads, latency)
        self.roles: list[Role] = []
        self.num_free_registers = 0
        self.waits_for_registers: list[tuple[int, Fact]] = []
        """How many, in the order in which they were asked for."""
        self.ended = Fact(env)
        env.process(self._life())

    def role_ended(self) -> None:
        """When it was the last, all its roles have ended by the latest of their cursors."""
        if all(role.is_done for role in self.roles):
            self.ended.tell(max(role.t for role in self.roles))

    def _life(self) -> Wait:
        """Until all roles have ended; bytes that an mbarrier still waits for would be written over somebody else's."""
        ended_at = yield self.ended
        yield self.kernel.until(ended_at)
        for ring in self.mbarriers.values():
            for barrier in ring:
                if barrier.num_open_bytes:
                    raise HazardError(
                        f"{self.kernel.launch.kernel}: CTA {self.idx} exits while mbarrier {barrier.name}[{barrier.stage}] "
                        f"has {barrier.num_announced} bytes announced and {barrier.num_delivered} delivered"
                    )
        self.kernel.cta_exits(self)

    def mbarrier(self, name: str, stage: int) -> Mbarrier:
        """Stage ``stage`` of the ring ``name``."""
        return _declared("mbarrier", self.mbarriers, name, stage)

    def stage(self, name: str, stage: int) -> Stage:
        """Stage ``stage`` of the buffer ``name``."""
        return _declared("buffer", self.buffers, name, stage)

    def hand_out_registers(self, at: float) -> None:
        """Give what is free to those who wait for it."""
        while self.waits_for_registers and self.waits_for_registers[0][0] <= self.num_free_registers:
            needed, fact = self.waits_for_registers.pop(0)
            self.num_free_registers -= needed
            fact.tell(at)


def _declared(kind: str, rings: Mapping[str, list[Item]], name: str, stage: int) -> Item:
    """What a launch declares by that name."""
    ring = rings.get(name)
    if ring is None:
        raise LaunchError(f"{kind} {name!r} is not declared in the launch; {nearest(name, rings)}")
    if not -len(ring) <= stage < len(ring):
        raise LaunchError(f"{kind} {name!r} has {len(ring)} stages, stage {stage} was used")
    return ring[stage]
