"""Timeline of a run: the state of each warp over time, copies in flight, and mbarrier phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class WarpState(IntEnum):
    """State of a role. The states of a role follow one another without gaps."""

    START = 0
    ISSUE = 1
    TENSOR = 2
    WAIT_MBARRIER = 3
    WAIT_WGMMA = 4
    WAIT_BARRIER = 5
    WAIT_CLUSTER = 6
    WAIT_CP_ASYNC = 7
    WAIT_BULK = 8
    LONG_SCOREBOARD = 9
    SHORT_SCOREBOARD = 10
    LSU = 11
    MATH_PIPE = 12
    WAIT_REGISTERS = 13
    NO_INSTRUCTION = 14

    @property
    def label(self) -> str:
        """Name of the state in lower case."""
        return self.name.lower()

    @property
    def stall_reason(self) -> str:
        """Names of Nsight Compute's stall reasons that count the state, or :data:`NOT_KNOWN`."""
        return STALL_REASONS.get(self, NOT_KNOWN)


NOT_KNOWN = "n/a"
"""Stall reason of states that a profile counts under another reason; which one was not measured."""

STALL_REASONS: Mapping[WarpState, str] = {
    WarpState.ISSUE: "selected, not_selected, wait",
    WarpState.TENSOR: "wait, barrier, mio_throttle",
    WarpState.WAIT_WGMMA: "barrier",
    WarpState.WAIT_BARRIER: "barrier", WarpState.WAIT_CLUSTER: "barrier, membar",
    WarpState.WAIT_MBARRIER: "long_scoreboard",
    WarpState.WAIT_CP_ASYNC: "long_scoreboard", WarpState.WAIT_BULK: "long_scoreboard",
    WarpState.LONG_SCOREBOARD: "long_scoreboard", WarpState.SHORT_SCOREBOARD: "short_scoreboard",
    WarpState.LSU: "long_scoreboard, short_scoreboard, lg_throttle, mio_throttle, membar",
    WarpState.MATH_PIPE: "math_pipe_throttle", WarpState.NO_INSTRUCTION: "no_instruction",
}  # fmt: skip
"""Stall reasons of Nsight Compute (``smsp__average_warps_issue_stalled_..._per_issue_active.ratio``) by our states.

A state may show as several reasons. ``lg_throttle`` and ``mio_throttle`` appear only where queues of loads are full.

Source: measured: kernels/probes/stall_reasons, h200_sxm, 2026-11-29; Nsight Compute's Kernel Profiling Guide for
``math_pipe_throttle``, ``lg_throttle``, ``mio_throttle``.
"""


@dataclass(frozen=True, slots=True)
class Span:
    """A named interval, in reported cycles."""

    start_cycle: float
    end_cycle: float
    name: str


@dataclass(slots=True)
class RoleTimeline:
    """One role of one CTA."""

    role: str
    cta_idx: int
    sm_idx: int
    num_warps: int
    states: list[tuple[WarpState, float, float]] = field(default_factory=list)
    sections: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class CopySpan:
    """One asynchronous copy. Copies overlap, so each (buffer, stage) has a track."""

    cta_idx: int
    sm_idx: int
    buffer: str
    stage: int
    tensor: str
    start_cycle: float
    end_cycle: float
    num_bytes: float
    barrier: str = ""


@dataclass(slots=True)
class ReadSpan:
    """One op that reads a stage of shared memory: a load, ldmatrix, or wgmma from its first operand on."""

    cta_idx: int
    sm_idx: int
    role: str
    buffer: str
    stage: int
    start_cycle: float
    end_cycle: float


@dataclass(slots=True)
class MemorySpan:
    """A load or store of global memory in flight: a load until its data are in registers, a store until L2 has it."""

    cta_idx: int
    sm_idx: int
    role: str
    is_store: bool
    start_cycle: float
    end_cycle: float
    num_bytes: float
    """Bytes of the sectors that the access touches."""


@dataclass(slots=True)
class MmaSpan:
    """One batch of MMAs in the pipe of a tensor core."""

    cta_idx: int
    sm_idx: int
    role: str
    start_cycle: float
    end_cycle: float
    num_issues: int


@dataclass(slots=True)
class PhaseFlip:
    """Completion of a phase of an mbarrier."""

    cta_idx: int
    sm_idx: int
    barrier: str
    stage: int
    cycle: float
    parity: int = 0
    """Parity of the completed phase, which ``try_wait.parity`` asked for."""


@dataclass(slots=True)
class Timeline:
    """Spans of a trace or plot, for the CTAs of the recorded SMs."""

    roles: list[RoleTimeline] = field(default_factory=list)
    copies: list[CopySpan] = field(default_factory=list)
    mmas: list[MmaSpan] = field(default_factory=list)
    flips: list[PhaseFlip] = field(default_factory=list)
    reads: list[ReadSpan] = field(default_factory=list)
    memory: list[MemorySpan] = field(default_factory=list)
    """Loads and stores of warps, and stores by TMA; asynchronous copies are in ``copies``."""
