"""Explanation of a wrong result: the first element that an MMA reads from a wrong place, and the copy that wrote it.

In: tags of the operands of each MMA (``memory.TAG``). Out: a sentence.

Models, of each MMA:

* Both operands have the same index along the contracted mode, for each k of the instruction.
* A row of an operand comes from one row of its tensor.
* No index along the contracted mode is multiplied twice for the same sums.
* All bytes were written.

Ignores: which rows of the tensors an MMA ought to read; operands that are results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import DataError
from gpusim.functional.memory import TENSOR_SHIFT, UNWRITTEN, GlobalTensor, SharedMemory
from gpusim.functional.mma import thread_and_value
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.data_access import IntArray

Tags = NDArray[Any]


def _most_frequent(indices: IntArray) -> int:
    """The most frequent index of 0 or more; -1: none."""
    known = indices[indices >= 0]
    return int(np.bincount(known).argmax()) if len(known) else -1


def _is_uniform(indices: IntArray) -> bool:
    """Whether all indices of 0 or more in a row are equal, in each row."""
    largest = indices.max(axis=1, keepdims=True)
    return bool(((indices < 0) | (indices == largest)).all())


class Watch:
    """Checks the operands of each MMA of a run, and keeps who wrote what."""

    def __init__(self, tensors: list[GlobalTensor]) -> None:
        """A watch of a run with these tensors."""
        self._tensors, self._coords, self.writers = tensors, dict[int, IntArray](), list[str]()
        self._multiplied: dict[Any, set[Any]] = {}

    def writer(self, name: str) -> int:
        """Number of a copy or a store."""
        self.writers.append(name)
        return len(self.writers) - 1

    def issued(self, role: Any, op: Any) -> None:
        """A role issues an op."""

    def begin(self, owner: tuple[Any, ...]) -> None:
        """The sums of ``owner`` begin at 0."""
        for key in [key for key in self._multiplied if key[: len(owner)] == owner]:
            del self._multiplied[key]

    def tensor_of(self, source: int) -> str:
        """Name of the tensor of an element."""
        return self._tensors[source >> TENSOR_SHIFT].ref.name

    def coordinates(self, source: IntArray) -> IntArray:
        """Coordinates of elements, int64[..., modes]: those of the last two modes; -1: unknown."""
        found = np.full((*source.shape, 2), -1, dtype=np.int64)
        for number, tensor in enumerate(self._tensors):
            here = (source >= 0) & (source >> TENSOR_SHIFT == number)
            if not here.any() or len(tensor.shape) < 2:
                continue
            if number not in self._coords:
                coords = np.stack(np.meshgrid(*map(np.arange, tensor.shape), indexing="ij"), axis=-1)
                table = np.full((len(tensor.bits), 2), -1, dtype=np.int64)
                table[tensor.positions.reshape(-1)] = coords.reshape(-1, len(tensor.shape))[:, -2:]
                self._coords[number] = table
            found[here] = self._coords[number][source[here] - (number << TENSOR_SHIFT)]
        return found

    def check(
        self, who: str, atom: MmaAtom, operands: tuple[Tags, Tags], contracted: tuple[int, int],
        sums: tuple[Any, ...], memory: SharedMemory,
    ) -> None:
        """Refuse operands from a wrong place: tags [m, k] of A and [n, k] of B of one instruction.

        ``sums``: key of the sums, which begins with their owner.

        Raises:
            DataError: names the first element, its copy, bank, thread and value.
        """
        coords = [self.coordinates(tags["source"]) for tags in operands]
        along = [found[..., 2 + mode] for found, mode in zip(coords, contracted, strict=True)]
        rows = [found[..., -1 - mode] for found, mode in zip(coords, contracted, strict=True)]
        every, multiplied = np.concatenate(along), self._multiplied.setdefault(sums, set())
        if all(map(_is_uniform, (every.T, *rows))) and not any((tags["source"] == UNWRITTEN).any() for tags in operands):
            indices = {index for index in every.max(axis=0).tolist() if index >= 0}
            if not indices & multiplied:
                multiplied |= indices
                return
        for k in range(atom.k):
            usual = _most_frequent(every[:, k])
            for name, tags, ks, row_of in zip("AB", operands, along, rows, strict=True):
                found = f"{who}: operand {name}, "
                for row in range(len(tags)):
                    usual_row = _most_frequent(row_of[row])
                    why = ""
                    if tags["source"][row, k] == UNWRITTEN:
                        why = "nobody wrote it"
                    elif ks[row, k] not in (-1, usual):
                        why = f"other rows have index {usual} along the contracted mode"
                    elif row_of[row, k] not in (-1, usual_row):
                        why = f"other elements of the row are of row {usual_row}"
                    if why:
                        raise DataError(f"{found}{self._element(atom, name, tags[row, k], (row, k), memory)}; {why}")
            if usual >= 0 and usual in multiplied:
                row = int((along[0][:, k] == usual).argmax())
                what = self._element(atom, "A", operands[0][row, k], (row, k), memory)
                raise DataError(f"{who}: operand A, {what}; it was multiplied before")
            multiplied.add(usual)

    def _element(self, atom: MmaAtom, name: str, tag: Any, at: tuple[int, int], memory: SharedMemory) -> str:
        """An element of an operand: its row and k, its lane and value in a fragment, its source, its bytes, its copy."""
        source, writer = int(tag["source"]), int(tag["writer"])
        words = [f"row {at[0]}, k {at[1]}"]
        if atom.kind == "mma_sync" or (name == "A" and atom.a_source == "registers"):
            lane, value = thread_and_value(atom, "a" if name == "A" else "b", *at)
            words[0] += f" (lane {lane}, value {value})"
        if source >= 0:
            row, column = self.coordinates(np.array([source]))[0].tolist()
            words[0] += f" is {self.tensor_of(source)}[{row}, {column}]"
        if tag["address"] >= 0:
            words.append(memory.place_of(int(tag["address"])))
        if writer >= 0:
            words.append(f"written by {self.writers[writer]}")
        return ", ".join(words)

    def stored(self, tensor: GlobalTensor, position: int) -> str:
        """The store of an element, with its thread and value."""
        writer, thread, value = tensor.stored[position].tolist()
        if writer < 0:
            return "which nobody stored"
        return f"stored by {self.writers[writer]}{f', thread {thread}, value {value}' if thread >= 0 else ''}"
