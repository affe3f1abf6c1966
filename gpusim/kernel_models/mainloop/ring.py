"""Ring of stages: the mbarriers and the ops with which copies and math hand stages to each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gpusim.workload import ops
from gpusim.workload.launch import Mbarrier
from gpusim.workload.ops import Op


@dataclass(frozen=True)
class Ring:
    """Stages that are filled and released in turn. Lists of ops are by stage; waits are by stage and parity."""

    num_stages: int
    stage_bytes: int = 0
    """Bytes that TMA copies to a stage."""
    polls_by_lane: bool = False
    """Whether one lane waits for empty stages: it polls less often than full warps do."""

    def mbarriers(self, num_filling: int, num_releasing: int = 0) -> tuple[Mbarrier, ...]:
        """``full`` with ``num_filling`` arrivals a phase, and ``empty`` with ``num_releasing``, if there are any."""
        full = Mbarrier(name="full", num_arrivals=num_filling, num_stages=self.num_stages)
        empty = Mbarrier(name="empty", num_arrivals=num_releasing, num_stages=self.num_stages)
        return (full, empty) if num_releasing else (full,)

    @cached_property
    def wait_full(self) -> list[tuple[Op, Op]]:
        """Waits of the math."""
        return [(ops.MbarrierWait("full", s, 0), ops.MbarrierWait("full", s, 1)) for s in range(self.num_stages)]

    @cached_property
    def wait_empty(self) -> list[tuple[Op, Op]]:
        """Waits of the producer."""
        lane = self.polls_by_lane
        return [
            (ops.MbarrierWait("empty", s, 0, by_lane=lane), ops.MbarrierWait("empty", s, 1, by_lane=lane))
            for s in range(self.num_stages)
        ]  # fmt: skip

    @cached_property
    def expect(self) -> list[Op]:
        """Announcements of a stage's bytes, before its TMA copies."""
        return [ops.MbarrierArriveExpectTx("full", s, self.stage_bytes) for s in range(self.num_stages)]

    def place_of(self, k_step: int) -> tuple[int, int]:
        """Stage of a k-step, and the parity that the math waits for.

        >>> [Ring(2).place_of(k_step) for k_step in range(5)]
        [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)]
        """
        rounds, stage = divmod(k_step, self.num_stages)
        return stage, rounds & 1
