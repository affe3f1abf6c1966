"""Memory of a functional run: tensors in global memory, and the bytes of a CTA's shared memory.

In: positions of elements. Out: their values. If a run is explained, each byte has a tag with its source and its writer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import DataError, LaunchError
from gpusim.functional.number_format import decode, encode, storage
from gpusim.workload.data_access import IntArray
from gpusim.workload.dtypes import DType
from gpusim.workload.launch import Launch
from gpusim.workload.tensor import MemRef

Array = NDArray[Any]
TAG = np.dtype([("source", "i8"), ("writer", "i4"), ("address", "i4")])
"""Tag of a byte: the tensor's element that it belongs to (:func:`source_of`), the copy that wrote it, its address."""
UNWRITTEN, COMPUTED, OUTSIDE = -1, -2, -3
"""Sources of bytes that nobody wrote, of results, and of zeros from outside of a tensor."""
TENSOR_SHIFT = 40
ALIGNMENT_BYTES = 1024


def source_of(tensor: int, index: IntArray) -> IntArray:
    """Source of elements of the ``tensor``-th tensor."""
    return np.where(index < 0, OUTSIDE, (tensor << TENSOR_SHIFT) + index)


class GlobalTensor:
    """A tensor in global memory."""

    def __init__(self, ref: MemRef, values: Any, number: int) -> None:
        """The tensor with ``values`` of its shape; None: not given, and 0.

        Raises:
            DataError: values of another shape.
        """
        self.ref, self.number, self.is_written, self.is_given = ref, number, False, values is not None
        size = int(np.max(self.positions, initial=-1)) + 1
        self.bits = np.zeros(size, dtype=storage(ref.dtype))
        self.stored = np.full((size, 3), -1, dtype=np.int32)
        """Store of each element, thread and value, if the run is explained."""
        if values is not None:
            values = np.asarray(values)
            if values.shape != self.shape:
                raise DataError(f"tensor {ref.name} has shape {values.shape}, the launch declares {self.shape}")
            self.bits[self.positions] = encode(values, ref.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        shape = self.ref.shape
        return tuple(shape) if isinstance(shape, tuple) else (shape,)  # type: ignore[arg-type]  # modes are flat

    @property
    def positions(self) -> IntArray:
        """Position of each element in memory, in elements: int64 of the tensor's shape."""
        coords = tuple(np.ogrid[tuple(slice(extent) for extent in self.shape)])
        addresses = self.ref.byte_addresses(coords) - self.ref.base_bytes
        return np.broadcast_to(addresses // self.ref.dtype.num_bytes, self.shape)

    @property
    def values(self) -> Array:
        """Values of all elements."""
        return decode(self.bits[self.positions], self.ref.dtype)

    def _check(self, index: IntArray) -> None:
        if np.max(index, initial=-1) >= len(self.bits):
            raise DataError(f"element {np.max(index)} of tensor {self.ref.name} is beyond its {len(self.bits)} elements")

    def read(self, index: IntArray) -> Array:
        """Bits of elements; 0 outside.

        Raises:
            DataError: a tensor that is neither given nor written, or an element beyond it.
        """
        if not (self.is_given or self.is_written):
            raise DataError(f"tensor {self.ref.name} is read, and data has no values for it")
        self._check(index)
        return np.where(index < 0, self.bits.dtype.type(0), self.bits[np.maximum(index, 0)])

    def write(self, index: IntArray, bits: Array, *, adds: bool = False) -> None:
        """Write bits of elements that are inside, or add their values.

        Raises:
            DataError: an element beyond the tensor.
        """
        self._check(index)
        self.is_written, inside = True, index >= 0
        index, bits = index[inside], np.broadcast_to(bits, inside.shape)[inside]
        if not adds:
            self.bits[index] = bits
            return
        _add(self.bits, index, decode(bits, self.ref.dtype), self.ref.dtype)


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
        self.bytes = np.zeros(most, dtype=np.uint8)
        self.tags = np.zeros(most if is_explained else 0, dtype=TAG)
        self.tags["source"] = self.tags["writer"] = UNWRITTEN
        self.tags["address"] = np.arange(len(self.tags))

    def addresses(self, buffer: str, stage: int, offsets: IntArray, width: int) -> IntArray:
        """Addresses of the bytes of elements that begin at ``offsets``: int64[..., width].

        Raises:
            DataError: bytes beyond the stage.
            LaunchError: an unknown stage.
        """
        begin, size, num_stages = self._stages.get(buffer, (0, 0, 0))
        if not -num_stages <= stage < num_stages:
            raise LaunchError(f"data access to stage {stage} of buffer {buffer!r}, which has {num_stages} stages")
        if np.max(offsets, initial=0) + width > size:
            raise DataError(f"byte {np.max(offsets) + width - 1} of a stage of buffer {buffer!r}, which has {size} bytes")
        return begin + stage % num_stages * size + offsets[..., None] + np.arange(width)

    def place_of(self, address: int) -> str:
        """Buffer, stage, byte and bank of an address."""
        for buffer, (begin, size, num_stages) in self._stages.items():
            if size and begin <= address < begin + size * num_stages:
                stage, offset = divmod(address - begin, size)
                return f"byte {offset} of stage {stage} of buffer {buffer!r} (bank {address // 4 % 32})"
        return f"byte {address}"

    def read(self, addresses: IntArray, kind: np.dtype[Any]) -> Array:
        """Elements of unsigned type ``kind`` whose bytes lie at ``addresses``."""
        return self.bytes[addresses].view(kind)[..., 0]

    def write(self, addresses: IntArray, bits: Array) -> None:
        """Write elements of an unsigned type."""
        self.bytes[addresses] = np.ascontiguousarray(bits)[..., None].view(np.uint8)

    def add(self, addresses: IntArray, values: Array, dtype: DType) -> None:
        """Add values to elements of a type, whose bytes lie at ``addresses``."""
        kind = storage(dtype)
        bits = self.bytes[: len(self.bytes) // kind.itemsize * kind.itemsize].view(kind)
        _add(bits, addresses[:, 0] // kind.itemsize, values, dtype)


def numbers(bits: Array, dtype: DType | None) -> Array:
    """Values of loaded elements; without a type the bits themselves."""
    return bits if dtype is None else decode(bits, dtype)
