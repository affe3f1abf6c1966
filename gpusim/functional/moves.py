"""Moves of a functional run: which elements each op moves from where to where, in the order of the run.

In: a launch whose ops have data accesses, and arrays. Out: moves, and what the launch has written.

Ignores: mma.sync and FFMA, which move no bytes; zeros from outside of a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpusim.functional.explain import Watch
from gpusim.functional.memory import source_of
from gpusim.functional.role import Role
from gpusim.functional.run import results_of, run_all, tensors_of
from gpusim.functional.shared_instructions import UNIT
from gpusim.units import WAVEFRONT_BYTES
from gpusim.workload import ops
from gpusim.workload.data_access import Copy, GlobalElements, IntArray, SharedElements, WgmmaOperands
from gpusim.workload.launch import Launch


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Place:
    """A memory and places in it, int64[elements, 2].

    Of a tensor (row, column), of a stage (line of 128 bytes, byte in it), of registers (thread, value), of a tensor core
    (row, k).
    """

    memory: str
    kind: str
    """``tensor``, ``stage``, ``registers`` or ``tensor core``."""
    at: IntArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Move:
    """What one op moves. ``elements``: elements of ``tensor``, int64[elements, 2]; -1: results."""

    what: str
    source: Place
    target: Place
    width: int
    """Bytes of an element."""
    tensor: str
    elements: IntArray


class MoveWatch(Watch):
    """Watch that keeps the moves of a run."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.moves: list[Move] = []

    def check(self, *_arguments: Any) -> None:
        """Operands are not checked."""

    def issued(self, role: Role, op: Any) -> None:
        """Keep what an op moves."""
        data = op.data(op) if callable(getattr(op, "data", None)) else getattr(op, "data", None)
        for access in data if isinstance(data, tuple) else (data,):
            self._keep(role, op, access)

    def _keep(self, role: Role, op: Any, access: Any) -> None:
        if isinstance(access, Copy):
            chosen = (access.index >= 0) & (access.offsets >= 0)
            places = self._stage(op.buffer, op.stage, access.offsets[chosen])
            self._add(role, op, access.tensor, access.index[chosen], places, isinstance(op, ops.TmaStore))
        elif isinstance(access, GlobalElements):
            index = access.index(role.registers) if callable(access.index) else access.index
            registers = Place(memory=access.registers, kind="registers", at=np.argwhere(index >= 0))
            self._add(role, op, access.tensor, index[index >= 0], registers, not isinstance(op, ops.GlobalLoad))
        elif isinstance(access, SharedElements):
            chosen, width = access.offsets >= 0, (access.dtype or UNIT).num_bytes
            buffer, stage = (access.buffer, access.stage) if access.buffer else (op.buffer, op.stage)
            places = self._stage(buffer, stage, access.offsets[chosen])
            at = np.argwhere(chosen) + np.array([0, access.first])
            registers, tags = Place(memory=access.registers, kind="registers", at=at), role.tags.get(access.registers)
            if not isinstance(op, (ops.SharedStore, ops.Stmatrix)):
                tags = role.cta.memory.tags[role.cta.memory.addresses(buffer, stage, access.offsets[chosen], 1)]
                self._append(role, op, (places, registers), width, tags["source"])
                return
            sources = np.full(len(at), -1)
            if tags is not None and access.compute is None:
                sources = tags["source"][at[:, 0], at[:, 1] * width]
            self._append(role, op, (registers, places), width, sources)
        elif isinstance(access, WgmmaOperands):
            for name, (buffer, stage) in zip("ab", (access.a, access.b), strict=True):
                offsets = np.concatenate([getattr(issue, name) for issue in access.issues[0]], axis=1)
                tags = role.cta.memory.tags[role.cta.memory.addresses(buffer, stage, offsets, 1)].reshape(-1)
                core = Place(memory=f"operand {name.upper()}", kind="tensor core", at=np.argwhere(offsets >= 0))
                ends = (self._stage(buffer, stage, offsets.reshape(-1)), core)
                self._append(role, op, ends, op.atom.a_dtype.num_bytes, tags["source"])

    @staticmethod
    def _stage(buffer: str, stage: int, offsets: IntArray) -> Place:
        at = np.stack(np.divmod(offsets, WAVEFRONT_BYTES), axis=-1)
        return Place(memory=f"stage {stage} of {buffer}" if buffer else "scratch memory", kind="stage", at=at)

    def _add(self, role: Role, op: Any, name: str, index: IntArray, other: Place, is_store: bool) -> None:
        tensor = role.tensor(name)
        sources = source_of(tensor.number, index)
        at = self.coordinates(sources) if len(tensor.shape) > 1 else np.stack([0 * index, index], axis=-1)
        of_tensor = Place(memory=name, kind="tensor", at=at)
        self._append(
            role, op, (other, of_tensor) if is_store else (of_tensor, other), tensor.ref.dtype.num_bytes, sources
        )

    def _append(self, role: Role, op: Any, ends: tuple[Place, Place], width: int, sources: IntArray) -> None:
        names = {self.tensor_of(source) for source in np.unique(sources[sources >= 0]).tolist()}
        self.moves.append(Move(
            what=role.named(op), source=ends[0], target=ends[1], width=width, elements=self.coordinates(sources),
            tensor=names.pop() if len(names) == 1 else "",
        ))  # fmt: skip


def moves_of(launch: Launch, data: Mapping[str, ArrayLike]) -> tuple[list[Move], dict[str, NDArray[Any]]]:
    """Moves of a functional run in a fixed order, and the values of each tensor that it has written.

    Raises:
        DataError: as :func:`gpusim.functional.run.run_functional`.
    """
    tensors = tensors_of(launch, data)
    watch = MoveWatch(list(tensors.values()))
    run_all(launch, tensors, watch=watch, seed=None, num_ctas=None)
    return watch.moves, results_of(tensors)
