"""Memory of a functional run: tensors in global memory, and the bytes of a CTA's shared memory.

In: positions of elements. Out: their values. If a run is explained, each byte has a tag with its source and its writer.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import DataError, LaunchError
from gpusim.functional.number_format import decode, encode, largest, storage
from gpusim.workload.data_access import IntArray
from gpusim.workload.dtypes import DType
from gpusim.workload.launch import Launch
from gpusim.workload.tensor import MemRef

Array = NDArray[Any]
TAG = np.dtype([("source", "i8"), ("writer", "i4"), ("address", "i4")])
"""Tag of a byte: the tensor's element that it belongs to (:func:`source_of`), the copy that wrote it, its address."""
LEFT_OUT = -1
"""Offset or index of an element that an access leaves out."""
UNWRITTEN, COMPUTED, OUTSIDE = -1, -2, -3
"""Sources of bytes that nobody wrote, of results, and of zeros from outside of a tensor."""
TENSOR_SHIFT = 40
ALIGNMENT_BYTES, WORD_BYTES = 1024, 8
"""Alignment of a buffer; ``WORD_BYTES``: of the bytes of the largest element."""


def source_of(tensor: int, index: IntArray) -> IntArray:
    """Source of elements of the ``tensor``-th tensor."""
    return np.where(index < 0, OUTSIDE, (tensor << TENSOR_SHIFT) + index)


def numbers_of(what: str, values: Any) -> Array:
    """An array of integers or floating-point numbers. ``what`` names it.

    Raises:
        DataError: values that are no real numbers.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise DataError(f"{what} is no array: its rows have different lengths") from None
    if not np.can_cast(array.dtype, np.float64, "same_kind"):
        raise DataError(f"{what} has data of type {array.dtype}, wants real numbers")
    return array


class GlobalTensor:
    """A tensor in global memory."""

    def __init__(self, ref: MemRef, values: Any, number: int) -> None:
        """The tensor with ``values`` of its shape; None: not given, and 0.

        Raises:
            DataError: values of another shape.
        """
        self.ref, self.number, self.is_written, self.is_given = ref, number, False, values is not None
        self.bits = np.zeros(int(np.max(self.positions, initial=-1)) + 1, dtype=storage(ref.dtype))
        if values is not None:
            values = numbers_of(f"tensor {ref.name}", values)
            if values.shape != self.shape:
                raise DataError(f"tensor {ref.name} has shape {values.shape}, the launch declares {self.shape}")
            self._check_range(values)
            self.bits[self.positions] = encode(values, ref.dtype)

    @cached_property
    def stored(self) -> Array:
        """Store of each element, thread and value, if the run is explained."""
        return np.full((len(self.bits), 3), -1, dtype=np.int32)

    def _check_range(self, values: Array) -> None:
        """Refuse values that the type does not hold, not even rounded. Floating-point types hold infinity and NaN."""
        dtype, most = self.ref.dtype, largest(self.ref.dtype)
        if dtype.kind == "int":
            is_unsigned = dtype.name.startswith("u")
            is_wrong = ~((values >= (0 if is_unsigned else -most - 1)) & (values <= most) & (np.rint(values) == values))
        else:
            is_wrong = np.isfinite(values) & (np.abs(values) > most)
        if is_wrong.any():
            at = tuple(np.argwhere(is_wrong)[0].tolist())
            what = f"integers from {'0' if is_unsigned else f'{-most - 1:.0f}'} to {most:.0f}" if dtype.kind == "int" else ""
            raise DataError(
                f"tensor {self.ref.name} is {dtype.name}, and {list(at)} of its data is {values[at]}: use "
                f"{what or f'values up to {most:.6g}'}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        shape = self.ref.shape
        return tuple(shape) if isinstance(shape, tuple) else (shape,)  # type: ignore[arg-type]  # modes are flat

    @cached_property
    def positions(self) -> IntArray:
        """Position of each element in memory, in elements: int64 of the tensor's shape."""
        coords = tuple(np.ogrid[tuple(slice(extent) for extent in self.shape)])
        addresses = self.ref.byte_addresses(coords) - self.ref.base_bytes
        return np.broadcast_to(addresses // self.ref.dtype.num_bytes, self.shape)

    @property
    def values(self) -> Array:
        """Values of all elements."""
        return decode(self.bits[self.positions], self.ref.dtype)

    def _has_outside(self, index: IntArray) -> bool:
        """Whether some elements are outside, which is -1."""
        first, last = int(index.min(initial=0)), int(index.max(initial=-1))
        if last >= len(self.bits) or first < -1:
            beyond = last if last >= len(self.bits) else first
            raise DataError(f"element {beyond} of tensor {self.ref.name} is beyond its {len(self.bits)} elements")
        return first < 0

    def read(self, index: IntArray) -> Array:
        """Bits of elements; 0 outside.

        Raises:
            DataError: a tensor that is neither given nor written, or an element beyond it.
        """
        if not (self.is_given or self.is_written):
            raise DataError(f"tensor {self.ref.name} is read, and data has no values for it")
        has_outside, found = self._has_outside(index), self.bits.take(index, mode="wrap")
        return np.where(index < 0, self.bits.dtype.type(0), found) if has_outside else found

    def write(self, index: IntArray, bits: Array, *, adds: bool = False) -> None:
        """Write bits of elements that are inside, or add their values.

        Raises:
            DataError: an element beyond the tensor.
        """
        self.is_written = True
        if self._has_outside(index):
            inside = index >= 0
            index, bits = index[inside], np.broadcast_to(bits, inside.shape)[inside]
        if not adds:
            self.bits[index] = bits
            return
        added = np.broadcast_to(decode(bits, self.ref.dtype), index.shape)
        _add(self.bits, index.reshape(-1), added.reshape(-1), self.ref.dtype)


def _add(bits: Array, index: IntArray, added: Array, dtype: DType) -> None:
    """Add values to elements, one after the other: an element may occur more than once."""
    while len(index):
        _, first = np.unique(index, return_index=True)
        here = index[first]
        bits[here] = encode(decode(bits[here], dtype) + added[first], dtype)
        index, added = np.delete(index, first), np.delete(added, first)


class SharedMemory:
    """Bytes of a CTA's shared memory. Overlays share the bytes of the other buffers."""

    def __init__(self, launch: Launch, *, is_explained: bool) -> None:
        """Memory for the launch's buffers, filled with 0."""
        self._stages: dict[str, tuple[int, int, int]] = {}
        end = most = 0
        for buffer in launch.buffers:
            begin = 0 if buffer.is_overlay else end
            stop = begin + buffer.stage_bytes * buffer.num_stages
            self._stages[buffer.name] = begin, buffer.stage_bytes, buffer.num_stages
            most = max(most, stop)
            if not buffer.is_overlay:
                end = -(-stop // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._stages[""] = end, launch.extra_smem_bytes, 1  # scratch memory
        most = max(most, end + launch.extra_smem_bytes)
        self.bytes = np.zeros(-(-most // WORD_BYTES) * WORD_BYTES, dtype=np.uint8)
        self.tags = np.zeros(most if is_explained else 0, dtype=TAG)
        self.tags["source"] = self.tags["writer"] = UNWRITTEN
        self.tags["address"] = np.arange(len(self.tags))

    def addresses(self, buffer: str, stage: int, offsets: IntArray, width: int) -> IntArray:
        """Addresses of elements of ``width`` bytes that begin at ``offsets``.

        Raises:
            DataError: bytes beyond the stage, or elements that are not aligned.
            LaunchError: an unknown stage.
        """
        begin, size, num_stages = self._stages.get(buffer, (0, 0, 0))
        if not 0 <= stage < num_stages:
            raise LaunchError(f"data access to stage {stage} of buffer {buffer!r}, which has {num_stages} stages")
        first, last = int(offsets.min(initial=0)), int(offsets.max(initial=0))
        if first < 0 or last + width > size:
            beyond = first if first < 0 else last + width - 1
            raise DataError(f"byte {beyond} of a stage of buffer {buffer!r}, which has {size} bytes")
        addresses = begin + stage * size + offsets
        if (wrong := addresses & width - 1).any():
            offset = offsets[wrong != 0].flat[0]
            raise DataError(f"an element of {width} bytes at byte {offset} of buffer {buffer!r} is not aligned")
        return addresses

    def place_of(self, address: int) -> str:
        """Buffer, stage, byte and bank of an address."""
        for buffer, (begin, size, num_stages) in self._stages.items():
            if size and begin <= address < begin + size * num_stages:
                stage, offset = divmod(address - begin, size)
                return f"byte {offset} of stage {stage} of buffer {buffer!r} (bank {address // 4 % 32})"
        return f"byte {address}"

    def read(self, addresses: IntArray, kind: np.dtype[Any]) -> Array:
        """Elements of unsigned type ``kind`` that begin at ``addresses``."""
        return self.bytes.view(kind).take(addresses // kind.itemsize)

    def write(self, addresses: IntArray, bits: Array) -> None:
        """Write elements of an unsigned type."""
        self.bytes.view(bits.dtype)[addresses // bits.dtype.itemsize] = bits

    def add(self, addresses: IntArray, values: Array, dtype: DType) -> None:
        """Add values to elements of a type that begin at ``addresses``."""
        kind = storage(dtype)
        _add(self.bytes.view(kind), addresses // kind.itemsize, values, dtype)

    def tags_of(self, addresses: IntArray, width: int) -> Array:
        """Tags of the bytes of elements: (..., width)."""
        return np.asarray(self.tags[addresses[..., None] + np.arange(width)])


def numbers(bits: Array, dtype: DType | None) -> Array:
    """Values of loaded elements; without a type the bits themselves."""
    return bits if dtype is None else decode(bits, dtype)
