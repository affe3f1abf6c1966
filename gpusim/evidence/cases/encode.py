"""Operands of tensor cores: numbers drawn for a type, and the bits of their elements.

In: shape, name of a type. Out: numbers as the type has them, elements as unsigned integers, and back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def draw(rows: int, num_k: int, dtype: str, salt: int) -> NDArray[np.float64]:
    """Normal numbers as the type has them, float64[rows, num_k], the same every time."""
    drawn = np.random.default_rng([rows, num_k, salt]).normal(size=(rows, num_k))
    if dtype == "int8":
        return np.rint(40.0 * drawn).clip(-127, 127)
    return decode(encode(drawn, dtype), dtype)


def encode(values: NDArray[np.float64], dtype: str) -> NDArray[Any]:
    """Numbers as the bits of elements, fractions cut off: uint8, uint16 or uint32[rows, k]."""
    words32 = values.astype("<f4").view("<u4")
    if dtype == "bf16":
        return np.asarray((words32 >> 16).astype("<u2"))
    if dtype == "fp16":
        return np.asarray(values.astype("<f2").view("<u2"))
    if dtype == "tf32":
        return np.asarray(words32 & np.uint32(0xFFFFE000))
    if dtype == "int8":
        return np.asarray(values.astype("i1").view("u1"))
    exponent = (words32 >> 23 & 0xFF).astype(np.int64) - 127 + 7
    code = np.where(exponent < 1, 0, exponent << 3 | (words32 >> 20 & 7))
    return np.asarray((code | words32 >> 31 << 7).astype("u1"))


def decode(bits: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """What :func:`encode` gave, as numbers."""
    if dtype == "bf16":
        return (bits.astype("<u4") << 16).view("<f4").astype(np.float64)
    if dtype == "fp16":
        return bits.view("<f2").astype(np.float64)
    if dtype == "tf32":
        return bits.view("<f4").astype(np.float64)
    if dtype == "int8":
        return bits.view("i1").astype(np.float64)
    size = (1 + (bits & 7) / 8) * 2.0 ** ((bits >> 3 & 15).astype(np.float64) - 7)
    return np.where(bits & 0x7F == 0, 0.0, np.where(bits & 0x80, -size, size))
