"""A tensor as a kernel's argument: its shape, element type, order and where it lives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gpusim.errors import LayoutError
from gpusim.workload.atoms.copy import Space
from gpusim.workload.dtypes import DType

Order = Literal["row_major", "column_major"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A dense tensor without padding.

    ``order`` says which mode is contiguous: the last for row_major, the first for column_major.

    >>> from gpusim.workload.dtypes import BF16
    >>> a = Tensor(name="A", shape=(4096, 512), dtype=BF16, order="row_major", space="global")
    >>> a.num_bytes, a.strides
    (4194304, (512, 1))

    Raises:
        LayoutError: no mode, or a mode without elements.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    order: Order = "row_major"
    space: Space = "global"

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1:
            raise LayoutError(
                f"tensor {self.name}: shape {self.shape}: use at least one mode, each of 1 or more"
            )

    @property
    def num_elements(self) -> int:
        """Elements of all modes together."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes that the tensor occupies."""
        return self.num_elements * self.dtype.num_bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index of a mode to the next."""
        if self.order == "column_major":
            return tuple(math.prod(self.shape[:i]) for i in range(len(self.shape)))
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))
