"""Persisting L2 accesses through the CUDA driver API: the part of L2 to set aside, and the access policy window of a stream.

PyCUDA has neither. ``set_aside`` acts on the current context, ``window`` on one stream.
"""

from __future__ import annotations

import ctypes
from typing import Any

from gpusim.evidence.bench.timing import DriverError

LIMIT_PERSISTING_L2 = 0x06
"""Value of ``CU_LIMIT_PERSISTING_L2_CACHE_SIZE``. Source: cuda.h 13.0, also for the next two."""
ATTRIBUTE_ACCESS_POLICY_WINDOW = 1
"""Value of ``CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW``."""
ACCESS_NORMAL, ACCESS_PERSISTING = 0, 2
"""Values of ``CUaccessProperty``: normal, persisting."""
ATTRIBUTE_BYTES = 64
"""Bytes of a launch attribute's value, of any kind."""


class _Window(ctypes.Structure):
    """Structure ``CUaccessPolicyWindow``."""

    _fields_ = (
        ("base_ptr", ctypes.c_void_p), ("num_bytes", ctypes.c_size_t), ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int), ("miss", ctypes.c_int),
    )  # fmt: skip


class _Value(ctypes.Union):
    _fields_ = (("window", _Window), ("padding", ctypes.c_uint8 * ATTRIBUTE_BYTES))


def set_aside(num_bytes: int) -> None:
    """Set aside ``num_bytes`` of L2 for persisting lines (the driver may give less), and reset the lines that persist now.

    Raises:
        DriverError: the driver refuses.
    """
    _call("cuCtxResetPersistingL2Cache")
    _call("cuCtxSetLimit", ctypes.c_int(LIMIT_PERSISTING_L2), ctypes.c_size_t(num_bytes))


def window(stream: int, address: int, num_bytes: int) -> None:
    """Make lines from ``address`` on persist if kernels of ``stream`` access them without a cache hint.

    Raises:
        DriverError: the driver refuses.
    """
    value = _Value()
    value.window = _Window(address, num_bytes, 1.0, ACCESS_PERSISTING, ACCESS_NORMAL)
    _call("cuStreamSetAttribute", ctypes.c_void_p(stream), ctypes.c_int(ATTRIBUTE_ACCESS_POLICY_WINDOW), ctypes.byref(value))


def _call(name: str, *arguments: Any) -> None:
    try:
        status = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    except (OSError, AttributeError) as error:
        raise DriverError(f"{name}: {error}, wants a CUDA driver that has it") from None
    if status:
        raise DriverError(f"{name}: the driver refuses with status {status}")
