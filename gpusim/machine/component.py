"""What all parts of the machine have in common."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple, Protocol

from gpusim.machine.timing import Done


class MemoryRequest(NamedTuple):
    """A batch of sectors that one SM asks for at once: an operand tile of one k-step, or a warp's sectors."""

    sm_idx: int
    tensor: str
    tile: Hashable
    num_bytes: float
    """Bytes that are asked for."""
    wave: int
    """How many-th work tile of its slot asks: tells a first touch from a later one."""
    issued_at: float
    """Cycle at which the first byte is asked for, not before the present."""
    num_alike: float
    """How many such requests this one stands for, where iterations are skipped."""
    num_receivers: int = 1
    """SMs that a multicast delivers to."""
    num_rows: float = 1.0
    """Rows of memory that it touches at least, as far as the op tells."""
    come_along: tuple[Hashable, ...] = ()
    """Tiles of that tensor, as many bytes each, that L2 fetches with this one where it has to."""
    crossings: float = 1.0
    """Bytes that cross the SM's port for each that is asked for."""
    reads: float = 1.0
    """Bytes that L2 reads for each that crosses."""
    sharing: float = 1.0
    """Of what L2 reads what may come with a neighbour's request."""
    request_sharing: float = 1.0
    """Of its requests of lines what may."""
    num_line_requests: float = 0.0
    """Requests of lines, whole or in part; 0: as few as its bytes need."""


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
