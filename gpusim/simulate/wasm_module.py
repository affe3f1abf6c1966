"""The compiled engine: ``gpusim/engine.wasm``, run by wasmtime.

In: a packed launch, as one block of bytes. Out: the sections that come back, or an error.

The module imports nothing. Each run has a separate instance, whose memory holds all its data. For development
``GPUSIM_ENGINE_LIBRARY`` names a shared library of the same sources (``scripts/build_engine.py --native``).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import SimulationError
from gpusim.program.records import INPUT_SECTIONS, OUTPUT_SECTIONS, Failure, dtype_of
from gpusim.simulate.buffers import HEADER, PLACE, read_buffer

if TYPE_CHECKING:
    import wasmtime

MODULE = Path(__file__).resolve().parents[1] / "engine.wasm"
"""Path of the module, which ``scripts/build_engine.py`` builds."""

LIBRARY_VARIABLE = "GPUSIM_ENGINE_LIBRARY"
"""Environment variable with the path of a shared library to use instead."""

SLICE_S = 0.05
"""Seconds that one slice of a run should take. An interruption waits for its end."""

WATCHED_SLICE_S = 0.002
"""Seconds of a slice of a run that is watched, and may be ended."""

FIRST_EVENTS, LEAST_EVENTS, MOST_EVENTS = 5_000, 1_000, 2**31 - 1
"""Events of the first slice, and bounds of later ones."""

MOST_CHANGE = 8.0
"""Factor by which slices grow or shrink at most."""

MOST_BYTES = 2**32 - 2**24
"""Memory of an instance from which on a trap counts as out of memory: the last 16 MiB below 4 GiB."""

Progress = Callable[[int, int, float], None]
"""Function called during a run with CTAs that have exited, CTAs in all, and the present cycle."""

WASM_EXPORTS = ("allocate", "create", "run_slice", "progress", "results", "numeric", "evaluate")
CONSTRUCTORS = "__wasm_call_ctors"
"""Name of the export that runs the constructors of globals, once in each instance."""


class TrapError(Exception):
    """The engine stopped for an unknown reason."""


class WasmInstance:
    """An instance of the module in a separate store."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module) -> None:
        """Instantiate the module, and run the constructors of its globals.

        Raises:
            SimulationError: the operating system has no memory for it.
        """
        import wasmtime

        self._traps = (wasmtime.Trap, wasmtime.WasmtimeError)
        self._store = wasmtime.Store(engine)
        try:
            exports = wasmtime.Instance(self._store, module, []).exports(self._store)
        except self._traps as error:
            raise SimulationError(f"the engine cannot begin: {str(error).splitlines()[0]}") from None
        self._functions: dict[str, Any] = {name: exports[name] for name in WASM_EXPORTS}
        self._memory: Any = exports["memory"]
        if CONSTRUCTORS in exports:
            self._functions[CONSTRUCTORS] = exports[CONSTRUCTORS]
            self.call(CONSTRUCTORS)

    def call(self, name: str, *arguments: float) -> float:
        """Call an export.

        Raises:
            TrapError: the call trapped.
        """
        try:
            found: float = self._functions[name](self._store, *arguments)
        except self._traps as error:
            raise TrapError(str(error).splitlines()[0]) from None
        return found

    def pointer(self, name: str, *arguments: float) -> int:
        """Call an export that returns an address: 32 bits, which wasmtime returns as a signed number."""
        return int(self.call(name, *arguments)) & 0xFFFF_FFFF

    def write(self, pointer: int, data: NDArray[np.uint8]) -> None:
        """Copy ``data`` to ``pointer``."""
        self._bytes(pointer, len(data))[:] = data

    def read(self, pointer: int, num_bytes: int) -> bytes:
        """Copy of ``num_bytes`` bytes at ``pointer``."""
        return self._bytes(pointer, num_bytes).tobytes()

    @property
    def is_full(self) -> bool:
        """Whether nearly all of the 32-bit address space is in use."""
        return int(self._memory.data_len(self._store)) >= MOST_BYTES

    def _bytes(self, pointer: int, num_bytes: int) -> NDArray[np.uint8]:
        """View of memory, valid until memory grows.

        Raises:
            TrapError: the view does not lie in memory.
        """
        if pointer + num_bytes > self._memory.data_len(self._store):
            raise TrapError(f"{num_bytes} bytes at {pointer} do not lie in memory")
        return np.frombuffer(self._memory.get_buffer_ptr(self._store, num_bytes, pointer), dtype=np.uint8)


class NativeInstance:
    """A shared library. ``create`` discards the previous run, so only one run at a time is possible."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Wrap ``library``, whose functions have types."""
        self._library = library

    def call(self, name: str, *arguments: float) -> float:
        """Call a function. A trap in it ends the process."""
        found: float = getattr(self._library, name)(*arguments)
        return found or 0

    def pointer(self, name: str, *arguments: float) -> int:
        """Call a function that returns an address."""
        return int(self.call(name, *arguments))

    def write(self, pointer: int, data: NDArray[np.uint8]) -> None:
        """Copy ``data`` to ``pointer``."""
        ctypes.memmove(pointer, data.ctypes.data, len(data))

    def read(self, pointer: int, num_bytes: int) -> bytes:
        """Copy of ``num_bytes`` bytes at ``pointer``."""
        return ctypes.string_at(pointer, num_bytes)

    @property
    def is_full(self) -> bool:
        """False: unknown for a library."""
        return False


Instance = WasmInstance | NativeInstance
"""Memory and functions of one run."""


class EngineModule:
    """The compiled engine, from which instances are made."""

    def __init__(self, new_instance: Callable[[], Instance], where: str) -> None:
        """Keep the constructor of instances; ``where`` names the module in errors."""
        self.new_instance = new_instance
        self.where = where

    def numeric(self, which: int, x: float, y: float = 0.0) -> float:
        """Value of the engine's mathematical function ``which``; see ``engine/numeric.h``."""
        return float(self._idle.call("numeric", which, x, y))

    def evaluate(self, which: int, *arguments: float) -> float:
        """Value of one of the memory model's rare functions, of up to five arguments."""
        return float(self._idle.call("evaluate", which, *(*arguments, *(0.0,) * (5 - len(arguments)))))

    @cached_property
    def _idle(self) -> Instance:
        """An instance without a run."""
        return self.new_instance()

    @classmethod
    def of_wasm(cls, path: Path) -> EngineModule:
        """Compile the module, or take it from wasmtime's cache of compiled modules.

        Raises:
            SimulationError: the module or wasmtime is missing.
        """
        try:
            import wasmtime
        except ImportError as error:
            raise SimulationError(f"the native engine needs wasmtime: {error}; use --engine reference without it") from None
        try:
            code = path.read_bytes()
        except FileNotFoundError:
            raise SimulationError(
                f"{path} is missing, wants: python scripts/build_engine.py, or --engine reference"
            ) from None
        try:
            config = wasmtime.Config()
            config.cache = True
        except wasmtime.WasmtimeError:  # the cache folder cannot be made: compile each time
            config = wasmtime.Config()
        engine = wasmtime.Engine(config)
        module = wasmtime.Module(engine, code)
        return cls(lambda: WasmInstance(engine, module), str(path))

    @classmethod
    def of_library(cls, path: str) -> EngineModule:
        """Load a shared library of the engine's sources.

        Raises:
            SimulationError: the library cannot be loaded, or is no engine.
        """
        pointer, number, real = ctypes.c_void_p, ctypes.c_int32, ctypes.c_double
        types: dict[str, tuple[Any, tuple[Any, ...]]] = {
            "allocate": (pointer, (ctypes.c_uint32,)), "create": (number, (pointer, ctypes.c_uint32)),
            "run_slice": (number, (ctypes.c_uint32,)), "progress": (real, (number,)), "results": (pointer, ()),
            "numeric": (real, (number, real, real)), "evaluate": (real, (number, *(real,) * 5)),
        }
        try:
            library = ctypes.CDLL(path)
            for name, (result, arguments) in types.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise SimulationError(f"{LIBRARY_VARIABLE}={path}: {error}; wants what build_engine.py --native makes") from None
        return cls(lambda: NativeInstance(library), path)


@cache
def _module(library: str) -> EngineModule:
    return EngineModule.of_library(library) if library else EngineModule.of_wasm(MODULE)


atexit.register(_module.cache_clear)  # frees the module while wasmtime is still loaded


def engine_module() -> EngineModule:
    """The engine, compiled once per process.

    Raises:
        SimulationError: no engine can be loaded.
    """
    return _module(os.environ.get(LIBRARY_VARIABLE, ""))


def expected_max(num: int) -> float:
    """Mean of the largest of ``num`` standard normal numbers, in standard deviations."""
    return engine_module().evaluate(0, float(num))  # the engine takes no int


class EngineRun:
    """One run, from the packed launch to the sections that come back.

    Raises:
        SimulationError: the engine does not take the launch, or has no memory for it.
    """

    def __init__(self, packed: bytes | bytearray, *, kernel: str, num_ctas: int, module: EngineModule | None = None) -> None:
        """Load a packed launch. ``kernel`` names it in errors; ``num_ctas`` is passed to progress callbacks."""
        self._module = module or engine_module()
        self._instance = self._module.new_instance()
        self._kernel, self._num_ctas = kernel, num_ctas
        self.status = 0
        data = np.frombuffer(packed, dtype=np.uint8)
        try:
            pointer = self._instance.pointer("allocate", len(data))
            if not pointer:
                raise self._out_of_memory()
            self._instance.write(pointer, data)
            refused = int(self._instance.call("create", pointer, len(data)))
        except TrapError as error:
            raise self._stopped(error) from None
        if refused:
            raise self._refused(refused)

    @property
    def num_ctas_done(self) -> int:
        """CTAs that have exited."""
        return int(self._instance.call("progress", 0))

    @property
    def cycle(self) -> float:
        """Present cycle of the simulation."""
        return self._instance.call("progress", 1)

    def run_slice(self, max_events: int) -> int:
        """Run at most ``max_events`` events; returns 0 while events are left, 1 at the end, 2 after a failure.

        Raises:
            SimulationError: the engine is out of memory, or trapped.
        """
        try:
            self.status = int(self._instance.call("run_slice", max_events))
        except TrapError as error:
            raise self._stopped(error) from None
        return self.status

    def run(self, on_progress: Progress | None = None, watch: Watch | None = None) -> dict[str, NDArray[Any]]:
        """Run to the end; returns :meth:`results`, also of a run that failed.

        An exception that ``watch`` raises ends the run.

        Raises:
            SimulationError: as :meth:`run_slice`.
        """
        slice_s = SLICE_S if watch is None else WATCHED_SLICE_S
        num_events = FIRST_EVENTS
        while True:
            began = time.perf_counter()
            if self.status or self.run_slice(num_events):
                return self.results()
            took = time.perf_counter() - began
            change = min(max(slice_s / max(took, 1e-6), 1.0 / MOST_CHANGE), MOST_CHANGE)
            num_events = int(min(max(num_events * change, LEAST_EVENTS), MOST_EVENTS))
            if on_progress is not None:
                on_progress(self.num_ctas_done, self._num_ctas, self.cycle)
            if watch is not None:
                watch(self)

    def results(self) -> dict[str, NDArray[Any]]:
        """Sections of the result buffer, by name. They are copies, which outlive the run.

        Raises:
            SimulationError: no memory was left for them.
        """
        try:
            pointer = self._instance.pointer("results")
            if not pointer:
                raise self._out_of_memory()
            *_, total_bytes = HEADER.unpack(self._instance.read(pointer, HEADER.size))
            return read_buffer(self._instance.read(pointer, total_bytes), OUTPUT_SECTIONS)
        except TrapError as error:
            raise self._stopped(error) from None

    def section(self, name: str) -> NDArray[Any]:
        """One section of the result at the present cycle.

        Raises:
            SimulationError: no memory was left for it.
        """
        kind, place = dtype_of(name), HEADER.size + PLACE.size * OUTPUT_SECTIONS.index(name)
        try:
            pointer = self._instance.pointer("results")
            begin, count = PLACE.unpack(self._instance.read(pointer + place, PLACE.size))
            return np.frombuffer(self._instance.read(pointer + begin, count * kind.itemsize), dtype=kind)
        except TrapError as error:
            raise self._stopped(error) from None

    def _where(self) -> str:
        """Progress of the run in words."""
        try:
            return f"cycle {self.cycle:.0f}, {self.num_ctas_done} of {self._num_ctas} CTAs have exited"
        except TrapError:
            return "its state is lost"

    def _refused(self, number: int) -> SimulationError:
        if number == Failure.OUT_OF_MEMORY:
            return self._out_of_memory()
        place = int(self._instance.call("progress", 4))
        what = INPUT_SECTIONS[place] if 0 <= place < len(INPUT_SECTIONS) else "the header"
        return SimulationError(
            f"{self._kernel}: {self._module.where} does not take the packed launch ({what}); it may be of another version"
        )

    def _stopped(self, trap: TrapError) -> SimulationError:
        try:
            is_full = self._instance.is_full or int(self._instance.call("progress", 3)) == Failure.OUT_OF_MEMORY
        except TrapError:
            is_full = self._instance.is_full
        if is_full:
            return self._out_of_memory()
        return SimulationError(f"{self._kernel}: the engine stopped ({trap}; {self._where()}), which is a fault of gpusim's")

    def _out_of_memory(self) -> SimulationError:
        return SimulationError(
            f"{self._kernel}: the engine is out of memory, of which it has up to 4 GiB ({self._where()}); wants fewer CTAs "
            "or shorter loops"
        )


Watch = Callable[[EngineRun], None]
"""Function called after each slice of a run. An exception that it raises ends the run."""
