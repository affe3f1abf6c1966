"""Element types: their width in memory, and the accumulator types of MMAs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

from gpusim.errors import KernelError, nearest


@dataclass(frozen=True, slots=True)
class DType:
    """An element type as stored in memory.

    ``bits`` is the storage width: TF32 has 19 significant bits and is stored in 32.

    >>> BF16.num_bytes
    2
    """

    name: str
    bits: int
    kind: Literal["float", "int"]

    def __post_init__(self) -> None:
        if self.bits <= 0 or self.bits % 8:
            raise KernelError(f"dtype {self.name}: {self.bits} bits are no whole bytes: use a multiple of 8")

    @property
    def num_bytes(self) -> int:
        """Bytes that one element occupies."""
        return self.bits // 8


BF16 = DType("bf16", 16, "float")
FP16 = DType("fp16", 16, "float")
TF32 = DType("tf32", 32, "float")
FP32 = DType("fp32", 32, "float")
FP8 = DType("fp8", 8, "float")
"""Type e4m3; e5m2 has the same size and rate."""
INT8 = DType("int8", 8, "int")
INT32 = DType("int32", 32, "int")
FP64 = DType("fp64", 64, "float")

DTYPES: Mapping[str, DType] = MappingProxyType({d.name: d for d in (BF16, FP16, TF32, FP32, FP8, INT8, INT32, FP64)})
"""Element types by name."""


STORED_DTYPES: Mapping[str, DType] = MappingProxyType({
    d.name: d
    for d in (
        DType("uint8", 8, "int"), DType("int16", 16, "int"), DType("uint16", 16, "int"), DType("uint32", 32, "int"),
        DType("int64", 64, "int"), DType("uint64", 64, "int"), DType("e5m2", 8, "float"),
    )
})
"""Types that are only stored: their width matters, and no kernel model computes with them."""

ALIASES: Mapping[str, str] = MappingProxyType({
    "float32": "fp32", "float": "fp32", "f32": "fp32", "float16": "fp16", "half": "fp16", "f16": "fp16",
    "bfloat16": "bf16", "float64": "fp64", "double": "fp64", "f64": "fp64", "tfloat32": "tf32", "e4m3": "fp8",
    "float8": "fp8", "s8": "int8", "i8": "int8", "s32": "int32", "i32": "int32",
})
"""Names of the types in CUDA, PTX, NumPy and PyTorch."""


@cache
def dtype(name: str) -> DType:
    """The element type with this name in any case, or with this alias (``ALIASES``).

    >>> dtype("fp8").bits, dtype("BF16").name, dtype("float32").name
    (8, 'bf16', 'fp32')

    Raises:
        KernelError: no such element type.
    """
    return _find(name, DTYPES)


def dtype_in_memory(name: str) -> DType:
    """The element type with this name, ``STORED_DTYPES`` included, for data of which only the width matters.

    >>> dtype_in_memory("uint16").bits, dtype_in_memory("half").name
    (16, 'fp16')

    Raises:
        KernelError: no such element type.
    """
    return _find(name, {**DTYPES, **STORED_DTYPES})


def _find(name: str, known: Mapping[str, DType]) -> DType:
    lowered = name.lower()
    found = known.get(ALIASES.get(lowered, lowered))
    if found is None:
        hints = (nearest(name, known), nearest(name, ALIASES), f"known: {', '.join(known)}")
        hint = next(hint for hint in hints if hint.startswith("did you") or hint is hints[-1])
        raise KernelError(f"dtype: {name!r} is unknown; {hint}")
    return found


def check_dtype(where: str, found: object) -> None:
    """Refuse a value that is no element type, for example its name.

    >>> check_dtype("wgmma", "bf16")
    Traceback (most recent call last):
    gpusim.errors.KernelError: wgmma: 'bf16' is no DType: use dtype('bf16')

    Raises:
        KernelError: the value is no :class:`DType`.
    """
    if not isinstance(found, DType):
        fix = f"dtype({found!r})" if isinstance(found, str) else "BF16, or dtype('bf16')"
        raise KernelError(f"{where}: {found!r} is no DType: use {fix}")


def accumulator_of(operand: DType) -> DType:
    """Default accumulator type of an MMA with ``operand`` elements: fp32 for floats, int32 for int8, fp64 for fp64.

    Source: PTX ISA, ``mma`` and ``wgmma``. The fp16 accumulator that PTX permits for fp16 and fp8 is never the default.

    >>> accumulator_of(BF16).name, accumulator_of(INT8).name
    ('fp32', 'int32')

    Raises:
        KernelError: no MMA has this operand type (int32, and those of ``STORED_DTYPES``).
    """
    if operand.name in STORED_DTYPES:
        raise KernelError(f"dtype {operand.name}: no MMA here takes it as an operand: use int8 or a float type")
    if operand.kind == "float":
        return FP64 if operand.bits == 64 else FP32
    if operand.bits == 8:
        return INT32
    raise KernelError(f"dtype {operand.name}: no MMA takes it as an operand: use int8 or a float type")
