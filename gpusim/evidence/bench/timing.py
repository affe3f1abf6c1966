"""Launch times without a profiler, and the SM clock during them: single launches, or half a second of launches.

In: a callable that enqueues one launch on a stream. Out: microseconds by events, MHz by a probe kernel on every SM. This
module uses no kernel of a case, no PyCUDA and no framework. :class:`CudaDevice` calls the driver in the current context, so
that a library's stream can be timed, too (``Stopwatch(CudaDevice(cubin, stream=torch.cuda.current_stream().cuda_stream))``).

The measured clock is diluted. A probe reads it before and after the launch, and two ends of kernels and two events lie in
between. They take some 5 us at the clock of an idle GPU. For a launch of 50 us that is a tenth, in which a drop of 10 % is
measured as 9 %. Shorter launches get no clock. Half a second of launches has such gaps between all of them.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import ConfigError, GpusimError
from gpusim.evidence.bench.nvml import BoardPower

PROTOCOL = 2
"""Version of the protocol, raised when times are measured differently. Version 1 rested 2 ms before each launch, however
long it was, and not at all before the first. After long work the limiter then held the clock of the next launch."""
NUM_SINGLE = 20
"""Launches of the protocol ``single``."""
COOL_S = 0.5
"""Seconds of rest before the first launch, so that earlier work has no influence."""
REST_S, REST_SHARE = 2e-3, 4.0
"""Seconds of rest before each launch, or that multiple of its time, if longer. The GPU is busy a fifth of the time."""
HOLD_US = 300.0
"""Microseconds for which the stream is held, so that probe, events and launch follow at the GPU's pace, not the host's."""
LEAST_CLOCK_US = 50.0
"""Shortest launch, in us, whose clock is reported."""
HALF_S = 0.25
"""Seconds of ``sustained`` before the measurement, and seconds of the measurement."""
BATCH_US, MOST_IN_BATCH, BATCHES_AHEAD = 2_000.0, 100, 3
"""Microseconds and launches of a batch, and batches that the host may be ahead of the GPU."""
LEAST_WAIT = 0.05
"""Fraction of the measurement that the host must spend waiting for the GPU; with less the host sets the pace."""
POWER_PERIOD_S = 20e-3
"""Seconds between readings of the board's power; the driver has a new one every 20 to 100 ms."""
NUM_EMPTY = 400
"""Empty launches in a row; a stream takes 1024 without blocking the host."""
EMPTY_HOLD_US = 20_000.0

VALUES = {
    "single_us": "time of a launch by events, L2 flushed and the GPU at rest before it: median of 20",
    "single_clock_mhz": "clock64 over globaltimer from before such a launch to after it, median SM: median of 20",
    "sustained_us": "time a launch takes in the second quarter of a second, back to back",
    "sustained_power_w": "board power in that quarter of a second, by NVML: mean of readings 20 ms apart",
    "sustained_clock_mhz": "clock64 over globaltimer of that quarter of a second, median SM",
    "empty_single_us": "single_us of a kernel that does nothing, in the same process",
    "empty_sustained_us": "time that such a kernel takes, 400 of them back to back",
    **{f"single_{what}_{end}": f"the {word} of the 20" for what in ("us", "clock_mhz")
       for end, word in (("min", "least"), ("max", "most"))},
}  # fmt: skip
"""Descriptions of these columns for the table."""


UNTOLD = frozenset({"sustained_power_w"})
"""Columns that not every driver can provide."""


class DriverError(GpusimError):
    """The driver refuses a call: an earlier launch has crashed, or there is no context."""


def clock_mhz(before: NDArray[np.uint64], after: NDArray[np.uint64]) -> float:
    """MHz of the median SM between two readings, uint64[SM, 2] of cycles and nanoseconds. SMs without both are left out.

    >>> before = np.array([[0, 0], [1000, 500], [7, 9]], dtype=np.uint64)
    >>> clock_mhz(before, before + np.array([1500, 1000], dtype=np.uint64))
    1500.0

    Raises:
        DriverError: no SM has both readings.
    """
    seen = (before[:, 1] > 0) & (after[:, 1] > before[:, 1])
    if not seen.any():
        raise DriverError("no SM has a clock reading before and after: is the probe's cubin that of this GPU?")
    step = (after[seen] - before[seen]).astype(np.float64)
    return float(np.median(step[:, 0] / step[:, 1])) * 1e3


def spread(name: str, numbers: Sequence[float]) -> dict[str, float]:
    """Median, minimum and maximum, as columns.

    >>> spread("single_us", [3.0, 1.0, 2.0])
    {'single_us': 2.0, 'single_us_min': 1.0, 'single_us_max': 3.0}
    """
    return {name: median(numbers), f"{name}_min": min(numbers), f"{name}_max": max(numbers)}


class Stopwatch:
    """Times launches on a device.

    Args:
        device: a GPU.
    """

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self._empty: dict[str, float] = {}

    def times(self, launch: Callable[[], object], protocols: Sequence[str]) -> dict[str, float]:
        """Columns of ``protocols`` (``single``, ``sustained``) for ``launch``, which enqueues one launch and returns.

        They include the times of an empty kernel, measured once.

        Raises:
            ConfigError: a protocol is unknown.
            DriverError: a launch crashed.
        """
        ways = {"single": self.single, "sustained": self.sustained}
        if unknown := [name for name in protocols if name not in ways]:
            raise ConfigError(f"{unknown[0]!r} is no protocol of times, wants {' or '.join(ways)}")
        columns: dict[str, float] = {}
        for name in protocols:
            columns |= ways[name](launch)
        return columns | self.empty() if columns else columns

    def single(self, launch: Callable[[], object]) -> dict[str, float]:
        """``single_us`` and, for launches of at least 50 us, ``single_clock_mhz``; each with its minimum and maximum."""
        device, times = self.device, [0.0]
        launch()
        device.rest(COOL_S)
        device.readings(2 * NUM_SINGLE)
        for idx in range(NUM_SINGLE):
            device.flush()
            device.rest(max(REST_S, REST_SHARE * times[-1] * 1e-6))
            device.hold(HOLD_US)
            device.probe(2 * idx)
            first = device.event()
            launch()
            last = device.event()
            device.probe(2 * idx + 1)
            device.wait(last)
            times.append(device.elapsed_us(first, last))
        device.rest(0.0)
        columns = spread("single_us", times[1:])
        if columns["single_us"] >= LEAST_CLOCK_US:
            read = device.readings(2 * NUM_SINGLE)
            columns |= spread("single_clock_mhz", [clock_mhz(read[2 * i], read[2 * i + 1]) for i in range(NUM_SINGLE)])
        return columns

    def sustained(self, launch: Callable[[], object]) -> dict[str, float]:
        """``sustained_us``, ``sustained_clock_mhz`` and board power; empty if the host launches slower than the GPU runs."""
        device = self.device
        device.rest(0.0)
        device.readings(2)
        first = device.event()
        launch()
        last = device.event()
        device.wait(last)
        num = min(MOST_IN_BATCH, max(1, round(BATCH_US / max(device.elapsed_us(first, last), 1.0))))
        self._run(launch, num, until_s=device.now_s() + HALF_S)
        first = device.event()
        device.probe(0)
        began_s = device.now_s()
        watts: list[float] = []
        batches, waited_s = self._run(launch, num, until_s=began_s + HALF_S, watts=watts)
        ended_s = device.now_s()
        last = device.event()
        device.probe(1)
        device.rest(0.0)
        if waited_s < LEAST_WAIT * (ended_s - began_s):
            return {}
        read = device.readings(2)
        return {
            "sustained_us": device.elapsed_us(first, last) / (num * batches),
            "sustained_clock_mhz": clock_mhz(read[0], read[1]),
            **({"sustained_power_w": fmean(watts)} if watts else {}),
        }

    def _run(
        self, launch: Callable[[], object], num: int, *, until_s: float, watts: list[float] | None = None
    ) -> tuple[int, float]:
        """(number of batches, seconds that the host waited): enqueues batches of ``num`` launches until a host time.

        Readings of the board's power are appended to ``watts``.
        """
        device, next_s = self.device, 0.0
        ends: deque[Any] = deque()
        batches, waited_s = 0, 0.0
        while device.now_s() < until_s or not batches:
            for _ in range(num):
                launch()
            ends.append(device.event())
            batches += 1
            if len(ends) > BATCHES_AHEAD:
                began_s = device.now_s()
                device.wait(ends.popleft())
                waited_s += device.now_s() - began_s
            if watts is not None and device.now_s() >= next_s:
                next_s = device.now_s() + POWER_PERIOD_S
                if (power_w := device.power_w()) is not None:
                    watts.append(power_w)
        return batches, waited_s

    def empty(self) -> dict[str, float]:
        """``empty_single_us`` and ``empty_sustained_us``: the time of events and launches by themselves, measured once."""
        if not self._empty:
            device = self.device
            alone = self.single(device.nothing)["single_us"]
            device.hold(EMPTY_HOLD_US)
            first = device.event()
            for _ in range(NUM_EMPTY):
                device.nothing()
            last = device.event()
            device.wait(last)
            self._empty = {"empty_single_us": alone, "empty_sustained_us": device.elapsed_us(first, last) / NUM_EMPTY}
        return self._empty


# ---------------------------------------------------------------------------------------------- CUDA driver

NUM_SMS_ATTRIBUTE, L2_BYTES_ATTRIBUTE = 16, 38
"""Values of ``CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`` and ``_L2_CACHE_SIZE``. Source: cuda.h 13.0."""

MOST_SMS = 256
MOST_SLOTS = 2 * NUM_SINGLE
SWEEP_CTAS, SWEEP_THREADS, PROBE_THREADS = 1024, 512, 1024


class _Event:
    """CUDA event, destroyed with its last reference."""

    def __init__(self, handle: ctypes.c_void_p, cuda: ctypes.CDLL) -> None:
        self.handle, self._cuda = handle, cuda

    def __del__(self) -> None:
        self._cuda.cuEventDestroy_v2(self.handle)


class CudaDevice:
    """GPU of the current context, through the CUDA driver API. All work is enqueued on one stream, in order.

    Args:
        cubin: of ``kernels/clock_probe``, for this GPU.
        stream: handle of the stream of the launches; 0 is the default stream.

    Raises:
        DriverError: there is no driver or no context, or the driver refuses a call.
    """

    def __init__(self, cubin: Path, *, stream: int = 0) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DriverError(f"no CUDA driver ({error}), wants a machine with an NVIDIA GPU") from None
        self._stream = ctypes.c_void_p(stream)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(context))
        if not context.value:
            raise DriverError("no CUDA context is current, wants one: launch something first")
        self._call("cuCtxGetDevice", ctypes.byref(device))
        self._num_sms, self._l2_bytes = (self._attribute(which, device) for which in (NUM_SMS_ATTRIBUTE, L2_BYTES_ATTRIBUTE))
        bus_id = ctypes.create_string_buffer(32)
        self._call("cuDeviceGetPCIBusId", bus_id, ctypes.c_int(len(bus_id)), device)
        self._power = BoardPower(bus_id.value.decode())
        self._module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self._module), cubin.read_bytes())
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._readings = self._memory(MOST_SLOTS * MOST_SMS * 16)
        self._buffer = self._memory(2 * self._l2_bytes)
        self._other = self._memory(2 * self._l2_bytes)
        self._out = self._memory(16)
        self._call("cuMemsetD8_v2", self._other, ctypes.c_ubyte(1), ctypes.c_size_t(2 * self._l2_bytes))
        self._call("cuMemsetD8_v2", self._readings, ctypes.c_ubyte(0), ctypes.c_size_t(MOST_SLOTS * MOST_SMS * 16))
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(status, ctypes.byref(text))
            raise DriverError(f"{name} fails: {(text.value or b'status ' + str(status).encode()).decode()}")

    def _attribute(self, which: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(which), device)
        return value.value

    def _memory(self, num_bytes: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(num_bytes))
        return address

    def _launch(self, kernel: str, grid: int, block: int, *arguments: Any) -> None:
        if kernel not in self._functions:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
            self._functions[kernel] = function
        packed = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        shape = [ctypes.c_uint(number) for number in (grid, 1, 1, block, 1, 1, 0)]
        self._call("cuLaunchKernel", self._functions[kernel], *shape, self._stream, packed, None)

    def flush(self) -> None:
        """Write twice L2's size, then read as much of other memory: this evicts the written lines and leaves clean ones."""
        self._call("cuMemsetD8Async", self._buffer, ctypes.c_ubyte(0), ctypes.c_size_t(2 * self._l2_bytes), self._stream)
        num = ctypes.c_uint64(2 * self._l2_bytes // 16)
        self._launch("sweep", SWEEP_CTAS, SWEEP_THREADS, self._other, num, self._out)

    def hold(self, us: float) -> None:
        """Hold the stream for ``us`` microseconds: one thread spins."""
        self._launch("spin", 1, 1, ctypes.c_uint64(round(us * 1e3)))

    def nothing(self) -> None:
        """Launch a warp that stores a word."""
        self._launch("nothing", 1, 32, self._out, ctypes.c_uint32(0))

    def probe(self, slot: int) -> None:
        """Launch a CTA on every SM that reads the clocks into ``slot``."""
        at = ctypes.c_uint64(self._readings.value + slot * MOST_SMS * 16)
        self._launch("probe", self._num_sms, PROBE_THREADS, at)

    def event(self) -> _Event:
        """New event, recorded on the stream."""
        handle = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(handle), ctypes.c_uint(0))
        self._call("cuEventRecord", handle, self._stream)
        return _Event(handle, self._cuda)

    def elapsed_us(self, first: _Event, last: _Event) -> float:
        """Time in us between two complete events."""
        ms = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(ms), first.handle, last.handle)
        return ms.value * 1e3

    def wait(self, event: _Event) -> None:
        """Wait on the host until ``event`` is complete."""
        self._call("cuEventSynchronize", event.handle)

    def readings(self, num_slots: int) -> NDArray[np.uint64]:
        """Cycles and nanoseconds, uint64[slot, SM, 2], zero for SMs without a reading; then all are reset to zero."""
        came = np.zeros((MOST_SLOTS, MOST_SMS, 2), dtype=np.uint64)
        self._call("cuStreamSynchronize", self._stream)
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(came.ctypes.data), self._readings, ctypes.c_size_t(came.nbytes))
        self._call("cuMemsetD8_v2", self._readings, ctypes.c_ubyte(0), ctypes.c_size_t(came.nbytes))
        self._call("cuCtxSynchronize")
        return came[:num_slots]

    def rest(self, seconds: float) -> None:
        """Wait until all work is done, and ``seconds`` longer."""
        self._call("cuStreamSynchronize", self._stream)
        if seconds:
            time.sleep(seconds)

    def now_s(self) -> float:
        """Seconds of a monotonic clock."""
        return time.perf_counter()

    def power_w(self) -> float | None:
        """Board power in watts, by NVML; None where it is unknown."""
        return self._power.watts()
