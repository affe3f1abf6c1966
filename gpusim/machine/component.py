"""What all parts of the machine have in common."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol

from gpusim.machine.timing import Done


class MemoryRequest:
    """A batch of sectors that one SM asks for at once: an operand tile of one k-step, or a warp's sectors."""

    __slots__ = (
        "asked_until", "come_along", "crossings", "issued_at", "late_cycles", "new_fraction", "num_alike", "num_bytes",
        "num_line_requests", "num_part_requests", "num_rows", "num_together", "num_turns", "num_warps", "reads",
        "request_sharing", "sharing", "sm_idx", "tensor", "tile", "wave",
    )

    def __init__(
        self, sm_idx: int, tensor: str, tile: Hashable, num_bytes: float, wave: int, issued_at: float, num_alike: float,
        num_rows: float = 1.0, come_along: tuple[Hashable, ...] = (), crossings: float = 1.0, reads: float = 1.0,
        sharing: float = 1.0, request_sharing: float = 1.0, num_line_requests: float = 0.0, num_warps: int = 1,
    ) -> None:
        """What is asked for, by whom, when."""
        self.sm_idx = sm_idx
        self.tensor = tensor
        self.tile = tile
        self.num_bytes = num_bytes
        """Bytes that are asked for."""
        self.wave = wave
        """How many-th work tile of its slot asks: tells a first touch from a later one."""
        self.issued_at = issued_at
        """Cycle at which the first byte is asked for, not before the present."""
        self.num_alike = num_alike
        """How many such requests this one stands for, where iterations are skipped."""
        self.num_rows = num_rows
        """Rows of memory that it touches at least, as far as the op tells."""
        self.come_along = come_along
        """Tiles of that tensor, as many bytes each, that L2 fetches with this one where it has to."""
        self.crossings = crossings
        """Bytes that cross the SM's port for each that is asked for."""
        self.reads = reads
        """Bytes that L2 reads for each that crosses."""
        self.sharing = sharing
        """Of what L2 reads what may come with a neighbour's request."""
        self.request_sharing = request_sharing
        """Of its requests of lines what may."""
        self.num_line_requests = num_line_requests
        """Requests of lines, whole or in part; 0: as few as its bytes need."""
        self.num_warps = num_warps
        """Warps that each wait for a part of it alone: it is answered when most have theirs."""
        self.new_fraction = 1.0
        """Of its rows those that begin a block of memory that L2 takes as a whole; others came with tiles before."""
        self.num_part_requests = 0.0
        """Instructions that ask for parts of lines each, where no more is asked for at once."""
        self.num_together = 1.0
        """Bytes that are waited for together, these and those asked for just before, over these."""
        self.num_turns = 0
        """Loads of a thread that ask for it, in turns with those of other warps; 0: it is asked for as a whole."""
        self.asked_until = 0.0
        """Cycle at which the last of these loads is issued."""
        self.late_cycles = 0.0
        """By how much the last of them has its part later, once it is answered."""

    def of_neighbour(self, tile: Hashable) -> MemoryRequest:
        """The same of a tile that comes along."""
        return MemoryRequest(
            self.sm_idx, self.tensor, tile, self.num_bytes, self.wave, self.issued_at, self.num_alike, self.num_rows, (),
            self.crossings, self.reads, self.sharing, self.request_sharing, self.num_line_requests,
        )


class Memory(Protocol):
    """A level of the hierarchy as the level above sees it."""

    def read(self, request: MemoryRequest, done: Done) -> None:
        """Fetch; ``done(cycle)`` says when the last byte is in the SM."""
        ...

    def write(self, request: MemoryRequest, done: Done, *, num_distinct_bytes: float) -> None:
        """Store; ``done(cycle)`` says when the last byte has left the SM and L2 has room for it."""
        ...


@dataclass(slots=True)
class Counters:
    """What a part counts. A field with an ``ncu`` entry in its metadata carries that Nsight Compute name."""

    def named(self) -> Iterator[tuple[str, float]]:
        """(Nsight Compute name, value) of every counter that has one."""
        for item in fields(self):
            name = item.metadata.get("ncu")
            if name:
                yield name, getattr(self, item.name)


class Component:
    """A part of the machine: a frozen Spec, Counters, behaviour; and Models, Ignores, Source in its docstring."""

    kind: ClassVar[str]
