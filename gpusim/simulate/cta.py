"""CTAs and clusters while they run: barriers, stages of shared memory, the register pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusim.errors import HazardError, LaunchError, nearest
from gpusim.machine.build import Sm
from gpusim.machine.sm.mbarrier import Mbarrier
from gpusim.units import WARP_SIZE
from gpusim.workload.launch import Launch

if TYPE_CHECKING:
    from gpusim.simulate.role import Role

Resume = Callable[[float], None]


class Stage:
    """One slot of a buffer: when it was filled, until when it is read."""

    __slots__ = (
        "_buffer", "_idx", "_last_read_at", "full_at", "num_fills", "num_reads_pending", "num_writes_pending", "read_until",
    )

    def __init__(self, buffer: str, idx: int) -> None:
        """An empty slot of ``buffer``."""
        self._buffer = buffer
        self._idx = idx
        self.num_writes_pending = 0
        self.num_reads_pending = 0
        self.num_fills = 0
        self._last_read_at = 0.0
        self.full_at = 0.0
        self.read_until = 0.0

    @property
    def name(self) -> str:
        """For errors."""
        return f"{self._buffer}[{self._idx}]"

    def begin_write(self, at_cycle: float, who: str) -> None:
        """An asynchronous write was issued; refuses to overwrite what is still read."""
        if self.read_until > at_cycle + 1e-6:
            raise HazardError(
                f"{who}: {self.name} is refilled at cycle {at_cycle:.0f} while it is read until {self.read_until:.0f}; "
                f"wait for its readers first"
            )
        self.num_writes_pending += 1
        self.num_fills += 1

    def end_write(self, at_cycle: float) -> None:
        """An asynchronous write is complete."""
        self.num_writes_pending -= 1
        if at_cycle > self.full_at:
            self.full_at = at_cycle

    def is_full(self, at_cycle: float) -> bool:
        """Whether it was written, and all that was written into it is there."""
        return bool(self.num_fills) and not self.num_writes_pending and self.full_at <= at_cycle + 1e-6

    def read(self, at_cycle: float, until: float, who: str) -> None:
        """Something reads the slot; refuses what is not there yet."""
        if not self.num_fills:
            raise HazardError(f"{who}: {self.name} is read at cycle {at_cycle:.0f} and was never written")
        if self.num_writes_pending or self.full_at > at_cycle + 1e-6:
            raise HazardError(
                f"{who}: {self.name} is read at cycle {at_cycle:.0f} before it is full; wait for its barrier first"
            )
        if until > self.read_until:
            self.read_until = until

    def begin_read(self, at_cycle: float, who: str) -> None:
        """An asynchronous read was issued; nobody knows yet until when it lasts."""
        self.read(at_cycle, float("inf"), who)
        self.num_reads_pending += 1

    def end_read(self, at_cycle: float) -> None:
        """An asynchronous read is complete."""
        self.num_reads_pending -= 1
        if at_cycle > self._last_read_at:
            self._last_read_at = at_cycle
        if not self.num_reads_pending:
            self.read_until = self._last_read_at


class ThreadBarrier:
    """``bar.sync`` or ``barrier.cluster``: counts threads, releases all at the last arrival."""

    __slots__ = (
        "_arrived", "_going", "_latest", "_latest_threads", "_thread_cycles", "_waiting", "latency_cycles", "name",
        "num_threads",
    )

    def __init__(self, name: str, num_threads: int, latency_cycles: float, warp_cycles: float = 0.0) -> None:
        """Releases ``latency_cycles`` after the last of ``num_threads`` threads has arrived.

        And half of ``warp_cycles`` later for each warp that arrives last, and for each that goes on.
        """
        self.name = name
        self.num_threads = num_threads
        self.latency_cycles = latency_cycles
        self._thread_cycles = warp_cycles / 2 / WARP_SIZE
        self._arrived = 0
        self._going = 0
        self._latest = 0.0
        self._latest_threads = 0
        self._waiting: list[Resume] = []

    @property
    def num_missing(self) -> int:
        """Threads that have not arrived."""
        return self.num_threads - self._arrived

    def arrive(self, num_threads: int, at_cycle: float, *, waits: bool = True) -> float | None:
        """Arrive; returns the cycle of release if this was the last arrival, else None."""
        self._arrived += num_threads
        if waits:
            self._going += num_threads
        if at_cycle > self._latest:
            self._latest, self._latest_threads = at_cycle, num_threads
        elif at_cycle == self._latest:
            self._latest_threads += num_threads
        if self._arrived < self.num_threads:
            return None
        if self._arrived > self.num_threads:
            raise HazardError(
                f"barrier {self.name!r}: {self._arrived} threads arrived, it was declared for {self.num_threads}"
            )
        release = self._latest + self.latency_cycles + self._thread_cycles * (self._latest_threads + self._going)
        waiting, self._waiting = self._waiting, []
        self._arrived, self._going, self._latest, self._latest_threads = 0, 0, 0.0, 0
        for resume in waiting:
            resume(release)
        return release

    def wait(self, resume: Resume) -> None:
        """Call ``resume(cycle)`` at the next release."""
        self._waiting.append(resume)


class Cluster:
    """CTAs that share a cluster barrier and can reach one another's shared memory."""

    __slots__ = ("barrier", "ctas", "last_release", "num_running")

    def __init__(self, barrier: ThreadBarrier) -> None:
        """A cluster with its ``barrier``."""
        self.ctas: list[Cta] = []
        self.barrier = barrier
        self.num_running = 0
        self.last_release: dict[int, float] = {}


class Cta:
    """A thread block on an SM."""

    __slots__ = (
        "barriers", "buffers", "cluster", "free_registers", "idx", "mbarriers", "num_alike", "num_roles_running", "rank",
        "register_waiters", "roles", "sm", "syncthreads", "wave", "weight",
    )

    def __init__(
        self, launch: Launch, *, idx: int, rank: int, wave: int, weight: float, sm: Sm, cluster: Cluster,
        num_threads: int, num_alike: int = 1,
    ) -> None:
        """CTA ``idx`` of ``launch``; stands for ``weight`` CTAs where waves are skipped or SMs stand for others.

        ``num_alike``: for how many that run at the same time, itself among them.
        """
        self.idx = idx
        self.num_alike = num_alike
        self.rank = rank
        self.wave = wave
        self.weight = weight
        self.sm = sm
        self.cluster = cluster
        self.roles: list[Role] = []
        self.num_roles_running = 0
        self.mbarriers = {
            ring.name: [Mbarrier(ring.name, stage, ring.num_arrivals) for stage in range(ring.num_stages)]
            for ring in launch.mbarriers
        }
        self.buffers = {
            buffer.name: [Stage(buffer.name, stage) for stage in range(buffer.num_stages)]
            for buffer in launch.buffers
        }
        scheduler = sm.warp_scheduler
        base_cycles, warp_cycles = scheduler.barrier_base_cycles, scheduler.barrier_warp_cycles
        self.barriers = {
            barrier.name: ThreadBarrier(barrier.name, barrier.num_threads, base_cycles, warp_cycles)
            for barrier in launch.named_barriers
        }
        self.syncthreads = ThreadBarrier("__syncthreads", num_threads, base_cycles, warp_cycles)
        self.free_registers = 0
        self.register_waiters: list[tuple[int, Resume]] = []

    def mbarrier(self, name: str, stage: int) -> Mbarrier:
        """Stage ``stage`` of the ring ``name``.

        Raises:
            LaunchError: the Launch declares no such ring or stage.
        """
        try:
            return self.mbarriers[name][stage]
        except (KeyError, IndexError):
            raise _undeclared("mbarrier", name, stage, {key: len(ring) for key, ring in self.mbarriers.items()}) from None

    def stage(self, name: str, stage: int) -> Stage:
        """Stage ``stage`` of the buffer ``name``.

        Raises:
            LaunchError: the Launch declares no such buffer or stage.
        """
        try:
            return self.buffers[name][stage]
        except (KeyError, IndexError):
            raise _undeclared("buffer", name, stage, {key: len(ring) for key, ring in self.buffers.items()}) from None


def _undeclared(kind: str, name: str, stage: int, declared: dict[str, int]) -> LaunchError:
    if name in declared:
        return LaunchError(f"{kind} {name!r} has {declared[name]} stages, stage {stage} was used")
    return LaunchError(f"{kind} {name!r} is not declared in the launch; {nearest(name, declared)}")
