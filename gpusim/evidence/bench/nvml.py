"""Board power of a GPU, by NVIDIA's management library (NVML).

In: the PCI bus ID of a GPU. Out: watts, or None where the driver has no reading.

Source: nvml.h of CUDA 13.0: ``nvmlFieldValue_t``, ``NVML_FI_DEV_POWER_INSTANT``. The power in nvidia-smi is an average over
a second, longer than the launches timed here.
"""

from __future__ import annotations

import ctypes
from typing import Any

POWER_INSTANT = 186
"""Field ``NVML_FI_DEV_POWER_INSTANT``, in milliwatts."""


class FieldValue(ctypes.Structure):
    """Structure ``nvmlFieldValue_t``."""

    _fields_ = (
        ("field_id", ctypes.c_uint), ("scope_id", ctypes.c_uint), ("timestamp_us", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong), ("value_type", ctypes.c_int), ("status", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    )  # fmt: skip


class BoardPower:
    """Power of one GPU's board.

    Args:
        bus_id: PCI bus ID from the driver, ``0000:07:00.0``.
    """

    def __init__(self, bus_id: str) -> None:
        self._nvml: Any = None
        self._device = ctypes.c_void_p()
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            is_there = not nvml.nvmlInit_v2() and not nvml.nvmlDeviceGetHandleByPciBusId_v2(
                bus_id.encode(), ctypes.byref(self._device)
            )
        except (OSError, AttributeError):
            return  # there is no such library, or it is older than these calls
        if is_there:
            self._nvml = nvml

    def watts(self) -> float | None:
        """Board power in watts now; None where the driver has no reading."""
        field = FieldValue(field_id=POWER_INSTANT)
        if self._nvml is None or self._nvml.nvmlDeviceGetFieldValues(self._device, 1, ctypes.byref(field)) or field.status:
            return None
        return float(field.value & 0xFFFF_FFFF) * 1e-3
