"""A tensor in memory: base address, layout, element type and memory space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError
from gpusim.layout import ByteLayout, ComposedLayout, IntTuple, Layout, LayoutLeft, LayoutRight, size
from gpusim.workload.atoms.copy import Space
from gpusim.workload.dtypes import DType, check_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class MemRef:
    """A tensor in memory: base address, layout, element type and memory space, like MLIR's ``memref`` in CuTe DSL.

    ``layout.Tensor`` has neither type nor space. A swizzle applies to offsets if the layout is a ``ComposedLayout``, and to
    addresses if it is a ``ByteLayout``. In the second case the base must be a multiple of the swizzle's period, so that both
    are equivalent.

    >>> from gpusim.layout import Swizzle
    >>> from gpusim.workload.dtypes import BF16
    >>> a = MemRef.row_major("A", (4096, 512), BF16)
    >>> a.shape, a.num_bytes, print(a.layout)
    (4096,512):(512,1)
    ((4096, 512), 4194304, None)
    >>> tile = MemRef(
    ...     name="sA",
    ...     layout=ByteLayout(Swizzle(3, 4, 3), Layout((8, 64), (64, 1)), element_bits=16),
    ...     dtype=BF16,
    ...     space="smem",
    ...     base_bytes=1024,
    ... )
    >>> tile.byte_addresses((np.arange(3), 0)).tolist()
    [1024, 1168, 1312]

    Raises:
        LayoutError: a base that is negative or not aligned to elements and swizzle. Also: a layout with another element
            width, or one that does not yield offsets.
        KernelError: ``dtype`` is no element type, for example its name.
    """

    name: str
    layout: Layout | ComposedLayout | ByteLayout
    dtype: DType
    space: Space = "global"
    base_bytes: int = 0

    def __post_init__(self) -> None:
        check_dtype(f"memref {self.name}", self.dtype)
        inner = self.layout if isinstance(self.layout, Layout) else self.layout.inner
        if inner.has_basis or min((step for _, step in inner.modes), default=0) < 0:
            raise LayoutError(f"memref {self.name}: {self.layout}: use strides that are integers of 0 or more")
        if isinstance(self.layout, ByteLayout) and self.layout.element_bits != self.dtype.bits:
            raise LayoutError(
                f"memref {self.name}: {self.layout} has elements of {self.layout.element_bits} bits, {self.dtype.name} "
                f"has {self.dtype.bits}: use element_bits={self.dtype.bits}"
            )
        if self.base_bytes < 0 or self.base_bytes % self.alignment_bytes:
            raise LayoutError(
                f"memref {self.name}: base {self.base_bytes}: use a multiple of {self.alignment_bytes} bytes, 0 or more"
            )

    @classmethod
    def row_major(cls, name: str, shape: IntTuple, dtype: DType, space: Space = "global", base_bytes: int = 0) -> Self:
        """A dense tensor whose last mode is contiguous.

        >>> from gpusim.workload.dtypes import FP8
        >>> print(MemRef.row_major("A", (3, 5, 7), FP8).layout)
        (3,5,7):(35,7,1)

        Raises:
            LayoutError: the errors of the class, or a mode without elements.
        """
        return cls(name=name, layout=Layout(shape, LayoutRight), dtype=dtype, space=space, base_bytes=base_bytes)

    @classmethod
    def column_major(cls, name: str, shape: IntTuple, dtype: DType, space: Space = "global", base_bytes: int = 0) -> Self:
        """A dense tensor whose first mode is contiguous.

        >>> from gpusim.workload.dtypes import FP8
        >>> print(MemRef.column_major("A", (3, 5, 7), FP8).layout)
        (3,5,7):(1,3,15)

        Raises:
            LayoutError: the errors of the class, or a mode without elements.
        """
        return cls(name=name, layout=Layout(shape, LayoutLeft), dtype=dtype, space=space, base_bytes=base_bytes)

    @property
    def shape(self) -> IntTuple:
        """Extents of the modes."""
        return self.layout.shape

    @property
    def num_elements(self) -> int:
        """Number of coordinates. Holes in the layout do not count."""
        return self.layout.size

    @property
    def alignment_bytes(self) -> int:
        """Alignment of the base in bytes: an element, and the period of a swizzle of addresses."""
        period = self.layout.swizzle.period if isinstance(self.layout, ByteLayout) else 1
        return max(self.dtype.num_bytes, period)

    @property
    def num_bytes(self) -> int:
        """Bytes from the base to the end of the last element, holes included: the layout's cosize.

        >>> from gpusim.workload.dtypes import BF16
        >>> MemRef(name="padded", layout=Layout((8, 64), (72, 1)), dtype=BF16, space="smem").num_bytes
        1136
        """
        if isinstance(self.layout, Layout):
            return self.layout.cosize * self.dtype.num_bytes
        last = self.byte_addresses(np.arange(self.num_elements)).max() - self.base_bytes
        return int(last) + self.dtype.num_bytes

    def byte_addresses(self, coords: Any) -> NDArray[np.int64]:
        """Byte addresses of elements, int64 of the coordinates' common shape.

        Args:
            coords: integers, or int64 arrays, that count colexicographically through all modes. Or a tuple with one of these
                for each mode (nested like the shape), which are broadcast together.

        >>> from gpusim.workload.dtypes import FP32
        >>> b = MemRef.row_major("B", (4, 8), FP32, base_bytes=256)
        >>> b.byte_addresses((np.arange(2)[:, None], np.arange(3))).tolist()
        [[256, 260, 264], [288, 292, 296]]

        Raises:
            LayoutError: a coordinate outside of the tensor, or of another profile.
        """
        whole = _inside(self.name, coords, self.shape)
        offsets = np.asarray(self.layout(whole), dtype=np.int64)
        scale = 1 if isinstance(self.layout, ByteLayout) else self.dtype.num_bytes
        return self.base_bytes + scale * offsets


def _inside(name: str, coords: Any, shape: IntTuple) -> Any:
    """The coordinates as int64 arrays; refuses coordinates outside of their modes."""
    if isinstance(coords, tuple):
        parts = shape if isinstance(shape, tuple) else (shape,)
        if len(coords) != len(parts):
            raise LayoutError(f"memref {name}: a coordinate of {len(coords)} modes: use {len(parts)}, as in {shape}")
        return tuple(_inside(name, coord, part) for coord, part in zip(coords, parts, strict=True))
    array = np.asarray(coords)
    if not np.issubdtype(array.dtype, np.integer):
        raise LayoutError(f"memref {name}: coordinates are {array.dtype}: use integers")
    extent = size(shape)
    if array.size and (array.min() < 0 or array.max() >= extent):
        bad = array.min() if array.min() < 0 else array.max()
        raise LayoutError(f"memref {name}: no coordinate {bad} in a mode of {extent}: use 0 to {extent - 1}")
    return array.astype(np.int64)
