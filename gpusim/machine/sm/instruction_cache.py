"""Where an SM's instructions come from, and how long straight-line code waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.errors import LaunchError
from gpusim.machine.component import Component
from gpusim.machine.numeric import sum_in_order

INSTRUCTION_BYTES = 16
"""Of every instruction since Volta."""
LOOP_WAYS = 4
"""Lines of a loop that lie at one place: where one more wants to, all of them come anew each turn. Source:
kernels/loop_code, h100_sxm, 2026-11-27: what is lost grows from 31 to 32 KiB on to all of the loop at 39 to 40."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionCacheSpec:
    """Two levels in front of L2, and what is fetched ahead."""

    l0_bytes: float
    """Of code that each sub-core keeps and issues at full rate."""
    l1_bytes: float
    """Of code that the level behind it keeps."""
    l1_latency_cycles: float
    prefetched_bytes: float
    """Of straight-line code on the way at a time."""
    loop_kept_bytes: float
    """Of a loop's code that a sub-core keeps from turn to turn: for each byte more five are lost (:data:`LOOP_WAYS`)."""
    loop_bytes_per_cycle: float
    """At which what it has lost comes to it, ahead of the warps, where :attr:`loop_paces` has 1."""
    loop_paces: Mapping[str, float]
    """Of that, by the number of the SM's TPC in its GPC; a description has all of them, a machine made of one with other
    GPCs the mean for those that it lacks."""
    launch_fetched_bytes: float
    """Of a kernel's code, from its first instruction on, what its launch brings into L1 where all caches were flushed."""


class FetchedCode:
    """When the first SM began to fetch each stretch of a kernel's code out of memory; shared by all SMs."""

    def __init__(self) -> None:
        """Nothing has been fetched."""
        self._since: dict[str, float] = {}

    def since(self, name: str, cycle: float) -> float:
        """Of the stretch ``name``, which an SM begins to fetch at ``cycle``."""
        return self._since.setdefault(name, cycle)


class InstructionCache(Component):
    """L0 of the sub-cores, which run the same code, and L1, for code that goes straight on.

    Models: what a launch behind flushed caches brings along, from a kernel's first instruction on; code beyond that, which
    the first SM that comes to it fetches out of memory, and others out of L2 behind it; levels that keep each line at one
    place, by its address: what code is longer than a level evicts as much of what it began with, and both have to come
    again, so that code twice as long as a level misses wholly. A miss waits for the level behind, whose latency is spread
    over the bytes that are fetched ahead. L2 has it at the latency of the near side, since all SMs read it and both sides
    keep it; what has run once is in L2. A loop's code that a sub-core does not keep comes at a pace
    that goes with the place of the SM's TPC in its GPC, whoever else fetches (kernels/loop_code: one warp a sub-core takes
    129 to 178 cycles a KiB from 40 KiB on, where FFMA take 64); two warps get it sooner, and issue meanwhile.
    Ignores: that what is lost comes while warps wait for something else; what two warps a sub-core lose (4 to 7 %, begun
    apart up to 12) and four (3 to 16); that of CTAs which take turns each waits for its own code; which TPCs of a GPC a
    chip lacks, so that a place has another pace in another GPC; that SMs which stand for others have places of their own;
    that what a launch brings along has yet to come from L1 into L0; branches; warps that are not together, and so evict from
    one another; constants, which share L1; the traffic of instructions in L2 and memory.
    Source: the GPU's description; the levels as published for Volta and Turing; what a launch brings along:
    kernels/counted_code; loops: kernels/loop_code.
    """

    kind = "instruction_cache"

    def __init__(self, spec: InstructionCacheSpec, *, fetched: FetchedCode | None = None, tpc: int = 0) -> None:
        """Empty; ``fetched`` is shared by all SMs; ``tpc``: the number of the SM's TPC in its GPC."""
        self.spec = spec
        paces = spec.loop_paces
        mean_pace = sum_in_order(paces.values()) / len(paces)
        self._loop_bytes_per_cycle = spec.loop_bytes_per_cycle * paces.get(str(tpc), mean_pace)
        self._fetched = fetched or FetchedCode()
        self._there_at: dict[str, float] = {}
        """When what lies far from the kernel's first instruction is there, of each stretch that has been asked for."""
        self._ran: dict[str, float] = {}
        """Bytes of each stretch, the one that ran last at the end."""

    def wait_cycles(
        self, name: str, num_bytes: float, *, l2_cycles: float, first_cycles: float, num_warps_each: float
    ) -> float:
        """How long warps stand still for a stretch of code, beyond issuing it; it then is the latest in the caches.

        Args:
            name: of the stretch.
            num_bytes: its length.
            l2_cycles: latency of L2, which has all that ran before.
            first_cycles: latency of what has it the first time, L2 or memory.
            num_warps_each: warps of a sub-core that run it together.

        Raises:
            LaunchError: a stretch of no bytes, or of another length than before.
        """
        before = self._ran.get(name)
        if num_bytes <= 0 or before not in (None, num_bytes):
            raise LaunchError(f"code {name!r} has {num_bytes:g} bytes and had {before or 0:g}, wants one length above 0")
        from_l1, from_below, below_cycles = 0.0, 1.0, first_cycles
        if before is not None:
            since, below_cycles = 0.0, l2_cycles
            for other in reversed(self._ran):
                since += self._ran[other]
                if other == name:
                    break
            from_below = self._missing(since, self.spec.l1_bytes)
            from_l1 = max(0.0, self._missing(since, self.spec.l0_bytes) - from_below)
            del self._ran[name]
        self._ran[name] = num_bytes
        issued = num_warps_each / INSTRUCTION_BYTES
        waits = (
            share * max(0.0, latency / self.spec.prefetched_bytes - issued)
            for share, latency in ((from_l1, self.spec.l1_latency_cycles), (from_below, below_cycles))
        )
        return num_bytes * sum_in_order(waits)

    def loop_cycles(self, num_instructions: float, *, own_cycles: float) -> float:
        """How much longer a turn of a loop takes than the ``own_cycles`` in which a scheduler issues it, for its code."""
        num_bytes = num_instructions * INSTRUCTION_BYTES
        if num_bytes <= self.spec.loop_kept_bytes:
            return 0.0
        lost = min(1.0, (1 + LOOP_WAYS) * (num_bytes - self.spec.loop_kept_bytes) / num_bytes)
        return lost * max(0.0, num_bytes / self._loop_bytes_per_cycle - own_cycles)

    def late_cycles(
        self, name: str, begin_bytes: float, end_bytes: float, *, at_cycle: float, own_cycles: float, l2_cycles: float,
        first_cycles: float,
    ) -> float:
        """How much longer a stretch of a kernel takes than ``own_cycles``, behind flushed caches, begun at ``at_cycle``.

        Args:
            name: of the stretch, the same on all SMs.
            begin_bytes: from the kernel's first instruction to the stretch's.
            end_bytes: from there to its end.
            at_cycle: when it begins.
            own_cycles: what its instructions take where they are there; they run while the next ones are fetched.
            l2_cycles: latency of L2, which has what another SM has fetched.
            first_cycles: latency of memory.
        """
        far = end_bytes - max(begin_bytes, self.spec.launch_fetched_bytes)
        if far <= 0.0:
            return 0.0
        there_at = self._there_at.get(name)
        if there_at is None:
            since, turns = self._fetched.since(name, at_cycle), far / self.spec.prefetched_bytes
            there_at = max(at_cycle + turns * l2_cycles, since + turns * first_cycles)
            self._there_at[name] = there_at
        return max(0.0, there_at - at_cycle - own_cycles * far / (end_bytes - begin_bytes))

    def _missing(self, num_bytes: float, capacity_bytes: float) -> float:
        """Part of code that a level no longer has, if ``num_bytes`` of code ran since, its own included."""
        return min(1.0, max(0.0, 2.0 * (num_bytes - capacity_bytes) / num_bytes))
