"""Element types as bits: values to bits, with the rounding of each type, and back."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.workload.dtypes import DType

Array = NDArray[Any]
TF32_BITS = 13
"""Bits of an fp32 mantissa that tf32 lacks."""


def storage(dtype: DType) -> np.dtype[Any]:
    """The unsigned type of numpy with the width of ``dtype``."""
    return np.dtype(f"u{dtype.num_bytes}")


def decode(bits: Array, dtype: DType) -> Array:
    """Values of elements: float32 (fp64: float64), or int64.

    >>> decode(np.array([0x3F80, 0xC000], dtype=np.uint16), DType("bf16", 16, "float")).tolist()
    [1.0, -2.0]
    """
    bits = np.ascontiguousarray(bits)
    if dtype.kind == "int":
        kind = "u" if dtype.name.startswith("u") else "i"
        return bits.view(f"{kind}{dtype.num_bytes}").astype(np.int64)
    if dtype.name == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if dtype.bits == 8:
        return _values_of_8_bits(dtype.name)[bits]
    if dtype.name == "tf32":
        return (bits >> TF32_BITS << TF32_BITS).view(np.float32)
    return bits.view(f"f{dtype.num_bytes}").astype(np.float32 if dtype.bits <= 32 else np.float64)


def encode(values: Array, dtype: DType) -> Array:
    """Bits of the elements that are nearest to ``values`` of float64 or less; ties go to even, for tf32 away from 0.

    Each value is rounded once. int8 and fp8 saturate, as cvt does with ``.sat`` and ``.satfinite``. Other integers wrap
    around.

    >>> encode(np.array([1.0, 1.00390625, 1.01171875]), DType("bf16", 16, "float")).tolist()
    [16256, 16256, 16258]
    >>> decode(encode(np.array([17.0, 19.0, 1000.0]), DType("fp8", 8, "float")), DType("fp8", 8, "float")).tolist()
    [16.0, 20.0, 448.0]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _encode(np.asarray(values), dtype)


def _encode(values: Array, dtype: DType) -> Array:
    unsigned = storage(dtype)
    if dtype.kind == "int":
        integers = values if values.dtype.kind in "iub" else np.rint(values)
        if dtype.name == "int8":
            integers = np.clip(integers, -128, 127)
        return integers.astype(np.int64).astype(unsigned)
    if dtype.bits == 8:
        return _encode_8_bits(values, dtype.name)
    if dtype.name in ("bf16", "tf32"):
        bits = _round_to_odd(values)
        is_nan = np.isnan(values)
        if dtype.name == "tf32":
            return np.where(is_nan, bits, bits + np.uint32(1 << TF32_BITS - 1) >> TF32_BITS << TF32_BITS)
        rounded = bits + np.uint32(0x7FFF) + (bits >> 16 & 1) >> 16
        return np.where(is_nan, np.uint32(0x7FFF), rounded).astype(np.uint16)
    return np.ascontiguousarray(values, dtype=f"f{dtype.num_bytes}").view(unsigned)


def _round_to_odd(values: Array) -> NDArray[np.uint32]:
    """Bits of fp32 towards 0, the last bit set where values are inexact: they can be rounded again to fewer bits."""
    nearest = np.ascontiguousarray(values, dtype=np.float32)
    bits = nearest.view(np.uint32)
    if values.dtype == np.float32:
        return bits
    is_inexact = np.isfinite(values) & (nearest != values)
    return np.asarray(bits - (np.abs(nearest) > np.abs(values)) | is_inexact)


def largest(dtype: DType) -> float:
    """The largest finite value of an element.

    >>> largest(DType("fp16", 16, "float")), largest(DType("fp8", 8, "float")), largest(DType("int8", 8, "int"))
    (65504.0, 448.0, 127.0)
    """
    if dtype.kind == "int":
        return 2.0 ** (dtype.bits - (not dtype.name.startswith("u"))) - 1
    bits = encode(np.array(np.inf), dtype)
    found = decode(np.array([bits - 1, bits], dtype=bits.dtype), dtype)
    return float(found[np.isfinite(found)].max())


def rounded(values: Array, dtype: DType) -> Array:
    """The values that elements of ``dtype`` hold for ``values``."""
    return decode(encode(values, dtype), dtype)


@cache
def _values_of_8_bits(name: str) -> NDArray[np.float32]:
    """Value of each code: e4m3 has NaN instead of infinity, e5m2 is the upper half of fp16."""
    code = np.arange(256)
    if name == "e5m2":
        return (code.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    exponent, mantissa = code >> 3 & 15, code & 7
    size = np.where(exponent, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0**-9)
    size = np.where(code & 127 == 127, np.nan, size)
    return np.where(code & 128, -size, size).astype(np.float32)


def _encode_8_bits(values: Array, name: str) -> Array:
    positive = _values_of_8_bits(name)[:128]
    finite = positive[np.isfinite(positive)].astype(np.float64)
    middles, size = (finite[1:] + finite[:-1]) / 2, np.abs(values)
    below = np.searchsorted(middles, size)
    is_tie = (below < len(middles)) & (middles[np.minimum(below, len(middles) - 1)] == size)
    code: Array = np.where(np.isnan(values), 127, below + (is_tie & (below % 2 == 1)))
    return np.asarray(code + 128 * np.signbit(values), dtype=np.uint8)
