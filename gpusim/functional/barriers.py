"""Barriers of a functional run: mbarriers with phases and bytes, and barriers that count threads."""

from __future__ import annotations

from gpusim.errors import HazardError


class MbarrierState:
    """One mbarrier: its phase, and the arrivals and bytes that the phase waits for."""

    def __init__(self, name: str, num_arrivals: int) -> None:
        """The barrier in its first phase."""
        self.name, self.phase, self._num_arrivals = name, 0, num_arrivals
        self._pending, self._bytes = num_arrivals, 0

    def arrive(self, count: int = 1, num_bytes: int = 0) -> None:
        """``count`` arrivals, and ``num_bytes`` more bytes to wait for.

        Raises:
            HazardError: more arrivals than the phase expects.
        """
        self._pending -= count
        self._bytes += num_bytes
        if self._pending < 0:
            raise HazardError(f"mbarrier {self.name} gets more than the {self._num_arrivals} arrivals of a phase")
        self._complete()

    def deliver(self, num_bytes: int) -> None:
        """``num_bytes`` have arrived."""
        self._bytes -= num_bytes
        self._complete()

    def _complete(self) -> None:
        if self._pending == 0 and self._bytes == 0:
            self.phase, self._pending = self.phase + 1, self._num_arrivals

    def has_passed(self, parity: int) -> bool:
        """Whether the phase with this parity has completed."""
        return self.phase & 1 != parity

    def __str__(self) -> str:
        """The barrier and what it waits for."""
        return f"mbarrier {self.name}, which lacks {self._pending} arrivals and {self._bytes} bytes"


class ThreadBarrier:
    """A barrier that completes when ``num_threads`` threads have arrived."""

    def __init__(self, name: str, num_threads: int) -> None:
        """The barrier without arrivals."""
        self.name, self.num_threads, self.generation, self._arrived = name, num_threads, 0, 0

    def arrive(self, num_threads: int) -> int:
        """Arrivals of ``num_threads`` threads. Returns the generation that they wait for."""
        waited = self.generation + 1
        self._arrived += num_threads
        if self._arrived >= self.num_threads:
            self._arrived -= self.num_threads
            self.generation = waited
        return waited

    def leave(self, num_threads: int) -> None:
        """Threads that exit count no longer."""
        self.num_threads -= num_threads
        if self.num_threads and self._arrived >= self.num_threads:
            self._arrived, self.generation = 0, self.generation + 1

    def __str__(self) -> str:
        """The barrier and who is missing."""
        return f"{self.name}, which lacks {self.num_threads - self._arrived} of {self.num_threads} threads"
