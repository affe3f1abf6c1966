"""Times of launches without a profiler, and the SMs' clock beside: one launch alone, or half a second of them.

In: a callable that enqueues one launch on a stream. Out: microseconds by events, MHz by a probe kernel on every SM. Knows no
kernel, no PyCUDA and no framework: :class:`CudaDevice` talks to the driver in the context that is current, so that a
library's own stream can be timed, too (``Stopwatch(CudaDevice(cubin, stream=torch.cuda.current_stream().cuda_stream))``).

What dilutes the clock: a probe reads it before the launch and after it, and between are two ends of kernels and two events,
some 5 us at the clock of a GPU that has nothing to do. Of a launch of 50 us that is a tenth, in which a clock that falls by
10 % is seen to fall by 9; of shorter ones no clock is given. Half a second of launches has such gaps between them all.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import ConfigError, GpusimError
from gpusim.evidence.bench.nvml import BoardPower

PROTOCOL = 2
"""Raised when times are taken otherwise. 1 rested 2 ms before each launch, however long it was, and not at all before the
first: after long work the limiter held the clock of what came next."""
NUM_SINGLE = 20
"""Launches of the protocol ``single``."""
COOL_S = 0.5
"""Before the first of them, so that what ran before is forgotten."""
REST_S, REST_SHARE = 2e-3, 4.0
"""Before each of them, or so many times as long as one takes, whichever is longer: the GPU is busy a fifth of the time."""
HOLD_US = 300.0
"""How long the stream is held, so that probe, events and launch follow one another at the GPU's pace, not the host's."""
LEAST_CLOCK_US = 50.0
"""Of a launch whose clock is given."""
HALF_S = 0.25
"""``sustained``: so long before anything is read, and so long again."""
BATCH_US, MOST_IN_BATCH, BATCHES_AHEAD = 2_000.0, 100, 3
"""Launches that are enqueued at a time, and how many batches the host may be ahead of the GPU."""
LEAST_WAIT = 0.05
"""Share of the second half in which the host has to wait for the GPU; less, and the host sets the pace."""
POWER_PERIOD_S = 20e-3
"""From one reading of the board's power to the next; the driver has a new one every 20 to 100 ms."""
NUM_EMPTY = 400
"""Launches of nothing, one after the other; a stream takes 1024 without blocking its host."""
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
"""What a table says of these columns."""


UNTOLD = frozenset({"sustained_power_w"})
"""What not every driver tells."""


class DriverError(GpusimError):
    """The driver refuses a call: what was launched before has crashed, or there is no context."""


class Device(Protocol):
    """What a stopwatch asks of a GPU. All but ``wait``, ``readings`` and ``rest`` are enqueued, in order, on one stream."""

    def flush(self) -> None:
        """Leave nothing in L2 that a kernel asks for, nor anything that must be written back."""

    def hold(self, us: float) -> None:
        """Hold the stream for so long."""

    def nothing(self) -> None:
        """Launch a kernel that does nothing."""

    def probe(self, slot: int) -> None:
        """Read the clocks of all SMs into ``slot``."""

    def event(self) -> Any:
        """An event, recorded here."""

    def elapsed_us(self, first: Any, last: Any) -> float:
        """Time between two events, after the last one has come."""

    def wait(self, event: Any) -> None:
        """Wait until ``event`` has come."""

    def readings(self, num_slots: int) -> NDArray[np.uint64]:
        """Cycles and nanoseconds, uint64[slot, SM, 2], zero where an SM was not seen; then all are zero again."""

    def rest(self, seconds: float) -> None:
        """Wait until all is done, and so much longer."""

    def now_s(self) -> float:
        """The host's own clock."""

    def power_w(self) -> float | None:
        """What the board draws now; None where nobody tells."""


def clock_mhz(before: NDArray[np.uint64], after: NDArray[np.uint64]) -> float:
    """The median SM's clock between two readings, uint64[SM, 2] of cycles and nanoseconds; SMs not seen twice are left out.

    >>> before = np.array([[0, 0], [1000, 500], [7, 9]], dtype=np.uint64)
    >>> clock_mhz(before, before + np.array([1500, 1000], dtype=np.uint64))
    1500.0

    Raises:
        DriverError: no SM was seen twice.
    """
    seen = (before[:, 1] > 0) & (after[:, 1] > before[:, 1])
    if not seen.any():
        raise DriverError("no SM has told its clock before and after: is the probe's cubin that of this GPU?")
    step = (after[seen] - before[seen]).astype(np.float64)
    return float(np.median(step[:, 0] / step[:, 1])) * 1e3


def spread(name: str, numbers: Sequence[float]) -> dict[str, float]:
    """Median, least and most, as columns.

    >>> spread("single_us", [3.0, 1.0, 2.0])
    {'single_us': 2.0, 'single_us_min': 1.0, 'single_us_max': 3.0}
    """
    return {name: median(numbers), f"{name}_min": min(numbers), f"{name}_max": max(numbers)}


class Stopwatch:
    """Times launches on a device.

    Args:
        device: a GPU.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._empty: dict[str, float] = {}

    def times(self, launch: Callable[[], object], protocols: Sequence[str]) -> dict[str, float]:
        """The columns of ``protocols`` (``single``, ``sustained``) for ``launch``, which enqueues one launch and returns.

        With them what a kernel that does nothing takes, measured once.

        Raises:
            ConfigError: another protocol.
            DriverError: a launch crashed.
        """
        ways = {"single": self.single, "sustained": self.sustained}
        if unknown := [name for name in protocols if name not in ways]:
            raise ConfigError(f"{unknown[0]!r} is no protocol of times, wants {' or '.join(ways)}")
        found: dict[str, float] = {}
        for name in protocols:
            found |= ways[name](launch)
        return found | self.empty() if found else found

    def single(self, launch: Callable[[], object]) -> dict[str, float]:
        """``single_us`` and, of launches of at least 50 us, ``single_clock_mhz``; each with its least and most."""
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
        found = spread("single_us", times[1:])
        if found["single_us"] >= LEAST_CLOCK_US:
            read = device.readings(2 * NUM_SINGLE)
            found |= spread("single_clock_mhz", [clock_mhz(read[2 * i], read[2 * i + 1]) for i in range(NUM_SINGLE)])
        return found

    def sustained(self, launch: Callable[[], object]) -> dict[str, float]:
        """``sustained_us`` and ``sustained_clock_mhz``; nothing where the host cannot launch as fast as the GPU works."""
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
        """Batches of ``num`` launches until a time of the host's; returns how many, and how long the host has waited.

        Readings of the board's power go to ``watts``.
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
        """``empty_single_us`` and ``empty_sustained_us``: what events and launches cost by themselves; measured once."""
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


# ---------------------------------------------------------------------------------------------- the driver

NUM_SMS_ATTRIBUTE, L2_BYTES_ATTRIBUTE = 16, 38
"""``CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`` and ``_L2_CACHE_SIZE``. Source: cuda.h 13.0."""

MOST_SMS = 256
MOST_SLOTS = 2 * NUM_SINGLE
SWEEP_CTAS, SWEEP_THREADS, PROBE_THREADS = 1024, 512, 1024


class _Event:
    """An event of the driver's, given back when nobody holds it."""

    def __init__(self, handle: ctypes.c_void_p, cuda: ctypes.CDLL) -> None:
        self.handle, self._cuda = handle, cuda

    def __del__(self) -> None:
        self._cuda.cuEventDestroy_v2(self.handle)


class CudaDevice:
    """The GPU of the context that is current, by the driver's own interface.

    Args:
        cubin: of ``kernels/clock_probe``, for this GPU.
        stream: handle of the stream that launches go to; 0 is the default one.

    Raises:
        DriverError: no driver, no context, or it refuses a call.
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
        """Write twice L2's size, then read as much of other memory: what was written leaves, and what stays is clean."""
        self._call("cuMemsetD8Async", self._buffer, ctypes.c_ubyte(0), ctypes.c_size_t(2 * self._l2_bytes), self._stream)
        num = ctypes.c_uint64(2 * self._l2_bytes // 16)
        self._launch("sweep", SWEEP_CTAS, SWEEP_THREADS, self._other, num, self._out)

    def hold(self, us: float) -> None:
        """One thread waits."""
        self._launch("spin", 1, 1, ctypes.c_uint64(round(us * 1e3)))

    def nothing(self) -> None:
        """A warp that stores a word."""
        self._launch("nothing", 1, 32, self._out, ctypes.c_uint32(0))

    def probe(self, slot: int) -> None:
        """A CTA on every SM."""
        at = ctypes.c_uint64(self._readings.value + slot * MOST_SMS * 16)
        self._launch("probe", self._num_sms, PROBE_THREADS, at)

    def event(self) -> _Event:
        """A new event."""
        handle = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(handle), ctypes.c_uint(0))
        self._call("cuEventRecord", handle, self._stream)
        return _Event(handle, self._cuda)

    def elapsed_us(self, first: _Event, last: _Event) -> float:
        """By the driver."""
        ms = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(ms), first.handle, last.handle)
        return ms.value * 1e3

    def wait(self, event: _Event) -> None:
        """On the host."""
        self._call("cuEventSynchronize", event.handle)

    def readings(self, num_slots: int) -> NDArray[np.uint64]:
        """A copy; SMs beyond those that there are stay zero."""
        came = np.zeros((MOST_SLOTS, MOST_SMS, 2), dtype=np.uint64)
        self._call("cuStreamSynchronize", self._stream)
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(came.ctypes.data), self._readings, ctypes.c_size_t(came.nbytes))
        self._call("cuMemsetD8_v2", self._readings, ctypes.c_ubyte(0), ctypes.c_size_t(came.nbytes))
        self._call("cuCtxSynchronize")
        return came[:num_slots]

    def rest(self, seconds: float) -> None:
        """Sleeps on the host."""
        self._call("cuStreamSynchronize", self._stream)
        if seconds:
            time.sleep(seconds)

    def now_s(self) -> float:
        """A clock that never goes back."""
        return time.perf_counter()

    def power_w(self) -> float | None:
        """By NVML."""
        return self._power.watts()
