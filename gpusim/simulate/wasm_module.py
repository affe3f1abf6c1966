"""The engine's module: ``gpusim/engine.wasm``, run by wasmtime.

In: a packed launch, as one block of bytes. Out: the sections that come back, or why there are none.

The module imports nothing. Each run has an instance of its own, in whose memory everything of it lies. For development
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
"""Built by ``scripts/build_engine.py``."""

LIBRARY_VARIABLE = "GPUSIM_ENGINE_LIBRARY"
"""Environment variable with the path of a shared library to use instead."""

SLICE_S = 0.05
"""Seconds that one slice of a run should take: an interruption waits so long."""

WATCHED_SLICE_S = 0.002
"""The same of a run that is watched, and may be given up."""

FIRST_EVENTS, LEAST_EVENTS, MOST_EVENTS = 5_000, 1_000, 2**31 - 1
"""Events of the first slice, and bounds of later ones."""

MOST_CHANGE = 8.0
"""Factor by which slices grow or shrink at most."""

MOST_BYTES = 2**32 - 2**24
"""Memory of an instance from which on a trap counts as out of memory: the last 16 MiB of what 32 bits reach."""

Progress = Callable[[int, int, float], None]
"""Told as a run goes on: CTAs that have exited, CTAs in all, the present cycle."""

WASM_EXPORTS = ("allocate", "create", "run_slice", "progress", "results", "numeric", "evaluate")
CONSTRUCTORS = "__wasm_call_ctors"
"""Runs the constructors of globals, once in each instance."""


class TrapError(Exception):
    """The engine stopped where no failure was foreseen."""


class WasmInstance:
    """An instance of the module in a store of its own."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module) -> None:
        """Nothing has been called but the constructors of globals.

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
            TrapError: it did not come back.
        """
        try:
            found: float = self._functions[name](self._store, *arguments)
        except self._traps as error:
            raise TrapError(str(error).splitlines()[0]) from None
        return found

    def pointer(self, name: str, *arguments: float) -> int:
        """Addresses have 32 bits, of which wasmtime makes signed numbers."""
        return int(self.call(name, *arguments)) & 0xFFFF_FFFF

    def write(self, pointer: int, data: NDArray[np.uint8]) -> None:
        """Copy ``data`` to ``pointer``."""
        self._bytes(pointer, len(data))[:] = data

    def read(self, pointer: int, num_bytes: int) -> bytes:
        """A copy of so many bytes at ``pointer``."""
        return self._bytes(pointer, num_bytes).tobytes()

    @property
    def is_full(self) -> bool:
        """Whether nearly all that 32 bits reach is taken."""
        return int(self._memory.data_len(self._store)) >= MOST_BYTES

    def _bytes(self, pointer: int, num_bytes: int) -> NDArray[np.uint8]:
        """A view of memory, until it grows.

        Raises:
            TrapError: it does not lie in memory.
        """
        if pointer + num_bytes > self._memory.data_len(self._store):
            raise TrapError(f"{num_bytes} bytes at {pointer} do not lie in memory")
        return np.frombuffer(self._memory.get_buffer_ptr(self._store, num_bytes, pointer), dtype=np.uint8)


class NativeInstance:
    """A shared library; ``create`` begins anew, so that one run is over before the next one begins."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """``library``: with the types of its functions."""
        self._library = library

    def call(self, name: str, *arguments: float) -> float:
        """Call a function; one that traps ends the process."""
        found: float = getattr(self._library, name)(*arguments)
        return found or 0

    def pointer(self, name: str, *arguments: float) -> int:
        """Call a function that returns an address."""
        return int(self.call(name, *arguments))

    def write(self, pointer: int, data: NDArray[np.uint8]) -> None:
        """Copy ``data`` to ``pointer``."""
        ctypes.memmove(pointer, data.ctypes.data, len(data))

    def read(self, pointer: int, num_bytes: int) -> bytes:
        """A copy of so many bytes at ``pointer``."""
        return ctypes.string_at(pointer, num_bytes)

    @property
    def is_full(self) -> bool:
        """Nobody knows."""
        return False


Instance = WasmInstance | NativeInstance
"""The memory and the functions of one run."""


class EngineModule:
    """The engine, compiled: what instances are made of."""

    def __init__(self, new_instance: Callable[[], Instance], where: str) -> None:
        """``where`` names it in errors."""
        self.new_instance = new_instance
        self.where = where

    def numeric(self, which: int, x: float, y: float = 0.0) -> float:
        """The engine's own mathematical function ``which``; see ``engine/numeric.h``."""
        return float(self._idle.call("numeric", which, x, y))

    def evaluate(self, which: int, *arguments: float) -> float:
        """One of memory's rare functions, of up to five arguments."""
        return float(self._idle.call("evaluate", which, *(*arguments, *(0.0,) * (5 - len(arguments)))))

    @cached_property
    def _idle(self) -> Instance:
        """An instance without a run."""
        return self.new_instance()

    @classmethod
    def of_wasm(cls, path: Path) -> EngineModule:
        """Compile the module, or take it from wasmtime's cache of compiled ones.

        Raises:
            SimulationError: there is no module, or no wasmtime to run it.
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
        except wasmtime.WasmtimeError:  # its folder cannot be made: compile each time
            config = wasmtime.Config()
        engine = wasmtime.Engine(config)
        module = wasmtime.Module(engine, code)
        return cls(lambda: WasmInstance(engine, module), str(path))

    @classmethod
    def of_library(cls, path: str) -> EngineModule:
        """Load a shared library of the engine's sources.

        Raises:
            SimulationError: it cannot be loaded, or is no engine.
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


atexit.register(_module.cache_clear)  # before wasmtime, which frees it, is gone itself


def engine_module() -> EngineModule:
    """The engine, compiled once in a process.

    Raises:
        SimulationError: there is none.
    """
    return _module(os.environ.get(LIBRARY_VARIABLE, ""))


def most_of(num: int) -> float:
    """How many standard deviations the largest of ``num`` normal numbers lies above their mean, on average."""
    return engine_module().evaluate(0, float(num))  # the engine takes no int


class EngineRun:
    """One run, from the packed launch to the sections that come back.

    Raises:
        SimulationError: the engine does not take the launch, or has no memory for it.
    """

    def __init__(self, packed: bytes | bytearray, *, kernel: str, num_ctas: int, module: EngineModule | None = None) -> None:
        """``kernel`` for errors, ``num_ctas`` for who is told of progress."""
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
        """The present."""
        return self._instance.call("progress", 1)

    def run_slice(self, max_events: int) -> int:
        """Go on for so many events; returns 0 while there is more to do, 1 at the end, 2 where the run has failed.

        Raises:
            SimulationError: it ran out of memory, or into a fault of the engine.
        """
        try:
            self.status = int(self._instance.call("run_slice", max_events))
        except TrapError as error:
            raise self._stopped(error) from None
        return self.status

    def run(self, on_progress: Progress | None = None, watch: Watch | None = None) -> dict[str, NDArray[Any]]:
        """Go on to the end; returns :meth:`results`, of a run that failed, too. What ``watch`` raises ends it.

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
        """Sections of the result buffer, by name; copies, which outlive the run.

        Raises:
            SimulationError: there was no memory for them.
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
        """One section of what the run would return now.

        Raises:
            SimulationError: there was no memory for it.
        """
        kind, place = dtype_of(name), HEADER.size + PLACE.size * OUTPUT_SECTIONS.index(name)
        try:
            pointer = self._instance.pointer("results")
            begin, count = PLACE.unpack(self._instance.read(pointer + place, PLACE.size))
            return np.frombuffer(self._instance.read(pointer + begin, count * kind.itemsize), dtype=kind)
        except TrapError as error:
            raise self._stopped(error) from None

    def _where(self) -> str:
        """How far the run has come."""
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
"""Asked after each slice of a run whether it goes on."""
