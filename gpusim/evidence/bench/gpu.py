"""Launches every config of a plan on a GPU through PyCUDA and checks its outputs.

In: a plan, as JSON. Out: a line of JSON for each config, written at once, so that a crash loses one launch only. ``gpusim
measure --launch-only PLAN`` runs it, alone or under Nsight Compute. No other module uses PyCUDA.
"""

from __future__ import annotations

import ctypes
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import ConfigError
from gpusim.evidence.bench import persisting_l2 as set_aside
from gpusim.evidence.bench.frameworks import Frameworks
from gpusim.evidence.bench.store_probe import as_text, since_first_ns, watched
from gpusim.evidence.bench.timing import CudaDevice, DriverError, Stopwatch
from gpusim.evidence.cases.case import (
    Argument,
    Case,
    Input,
    KernelLaunch,
    MappedTensor,
    Operation,
    Output,
    Product,
    Repeated,
    Scratch,
    Windows,
    WrongAnswer,
    load_case,
)
from gpusim.evidence.cases.measured_gpu import MeasuredGpu
from gpusim.workload.tma.boxes import TensorMap

if TYPE_CHECKING:
    from gpusim.evidence.bench.frameworks import PreparedLaunch

STATIC_SMEM_LIMIT_BYTES = 48 * 1024
"""Bytes of dynamic shared memory that need no opt-in. Source: CUDA programming guide."""

NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
"""Value of ``CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED``, for which PyCUDA has no name. Source: cuda.h 13.0."""

POISON = 0xFF
"""Byte that fills an output that is checked in windows, before a launch."""

MOST_BYTES_AT_ONCE = 2**30
"""Most bytes of one copy or fill, so that the length fits 32 bits."""

TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT_BYTES = 64
"""Bytes of a tensor map and its alignment. Source: CUDA driver API, ``CUtensorMap``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Launches of one process, in order; ``gpusim measure`` writes it for its child."""

    case: str
    cubin: str
    configs: Sequence[Mapping[str, str]]
    is_counted: bool
    """Mode under the profiler: every config is launched exactly once."""
    results: str
    """Path of the file of JSON lines."""
    times: tuple[str, ...] = ()
    """Protocols in which every config is timed."""
    probe: str = ""
    """Cubin of the stopwatch's kernels; empty where no config is timed."""
    gpu: MeasuredGpu = field(default_factory=MeasuredGpu)
    """The GPU that the configs are made for."""

    def write(self, path: Path) -> None:
        """Write the plan to ``path`` as JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Plan in a file that :meth:`write` wrote."""
        document = json.loads(path.read_text(encoding="utf-8"))
        of_gpu = document["gpu"] | {"capability": tuple(document["gpu"]["capability"])}
        return cls(**document | {"times": tuple(document["times"]), "gpu": MeasuredGpu(**of_gpu)})


def launch_plan(path: Path) -> None:
    """Launch all configs of the plan at ``path``.

    A line for each: ``{"idx": i, "values": {...}}`` (and ``"facts"``, text, where a framework reports any), ``{"idx": i,
    "wrong": reason}``, or ``{"idx": i, "crash": reason}``. After a crash the process can launch no more and ends.

    Raises:
        ConfigError: there is no PyCUDA, or no GPU that it can use.
    """
    plan = Plan.read(path)
    case = load_case(plan.case, gpu=plan.gpu)
    is_ours = case.framework is None
    cubin = Path(plan.cubin) if is_ours or plan.cubin.endswith(".cubin") else None
    gpu = Gpu(cubin) if is_ours else Gpu(cubin, frameworks_of=case)
    with Path(plan.results).open("w", encoding="utf-8") as file, gpu:
        _write_line(file, {"device": gpu.about()})
        stopwatch = Stopwatch(CudaDevice(Path(plan.probe))) if plan.times else None
        for idx, config in enumerate(plan.configs):
            answer = _answer(gpu, case, config, stopwatch, plan)
            _write_line(file, {"idx": idx, **answer})
            if "crash" in answer:
                return


def _write_line(file: IO[str], document: Mapping[str, Any]) -> None:
    file.write(json.dumps(document) + "\n")
    file.flush()


def _answer(gpu: Gpu, case: Case, config: Mapping[str, str], stopwatch: Stopwatch | None, plan: Plan) -> dict[str, Any]:
    """JSON fields of a config's launches: values and times, or the reason why there are none."""
    launch = case.launch(config, plan.is_counted)
    seen: list[dict[str, float]] = []
    times: dict[str, float] = {}
    try:
        for _ in range(1 if plan.is_counted else case.num_repeats):
            outputs = gpu.launch(launch, is_counted=plan.is_counted)
            if case.checks_counted or not plan.is_counted:
                seen.append(case.check(config, outputs))
        if stopwatch is not None:
            prepared = gpu.prepare(launch)  # keeps the memory of the last launch alive
            times = stopwatch.times(prepared.enqueue, plan.times)
    except WrongAnswer as error:
        return {"wrong": str(error)}
    except gpu.errors as error:
        return {"crash": " ".join(str(error).split()) or type(error).__name__}
    return {"values": summary(seen) | times, **({"facts": gpu.facts} if gpu.facts else {})}


def summary(seen: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Median of each value; with more than one launch also its minimum and maximum.

    >>> summary([{"cycles": 20.0}, {"cycles": 19.0}, {"cycles": 25.0}])
    {'cycles': 20.0, 'cycles_min': 19.0, 'cycles_max': 25.0}
    >>> summary([{"cycles": 20.0}])
    {'cycles': 20.0}
    """
    values: dict[str, float] = {}
    for name in seen[0] if seen else ():
        numbers = [item[name] for item in seen]
        values[name] = float(statistics.median(numbers))
        if len(numbers) > 1:
            values |= {f"{name}_min": float(min(numbers)), f"{name}_max": float(max(numbers))}
    return values


def pieces(num_bytes: int) -> list[tuple[int, int]]:
    """(offset, bytes) of the parts that one copy or fill handles.

    >>> pieces(5), pieces(MOST_BYTES_AT_ONCE + 1)
    ([(0, 5)], [(0, 1073741824), (1073741824, 1)])
    """
    starts = range(0, num_bytes, MOST_BYTES_AT_ONCE)
    return [(start, min(MOST_BYTES_AT_ONCE, num_bytes - start)) for start in starts]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A launch whose arguments are on the GPU, so that it can be enqueued many times."""

    enqueue: Callable[[], None]
    """Function that enqueues the launch on the default stream without waiting."""
    outputs: tuple[tuple[Output | Windows, Any], ...]
    held: tuple[Any, ...]
    """GPU memory that lives as long as this object."""
    product: PreparedLaunch | None = None
    """Launch that a framework has prepared, which fetches its outputs itself."""
    watched: Product | None = None
    """Launch that a second kernel observes while it runs."""


class Gpu:
    """First GPU, with one cubin loaded or with the frameworks that a case needs; a context manager.

    Raises:
        ConfigError: there is no PyCUDA, no such framework, or no GPU that they can use.
    """

    def __init__(self, cubin: Path | None, *, frameworks_of: Case | None = None) -> None:
        try:
            import pycuda.driver as cuda
        except ImportError as error:
            raise ConfigError(f"measure: PyCUDA cannot be imported ({error}), wants pip install -e '.[cuda]'") from None
        self._cuda = cuda
        self.errors: tuple[type[Exception], ...] = (cuda.Error, DriverError)
        try:
            cuda.init()
            self._device = cuda.Device(0)
            if frameworks_of is None:
                self._context = self._device.make_context()
            else:  # the frameworks' context, to share streams, events and memory
                self._context = self._device.retain_primary_context()
                self._context.push()
        except cuda.Error as error:
            raise ConfigError(f"measure: no GPU can be used ({error}), wants one that is free and visible") from None
        self._frameworks: Frameworks | None = None
        self.facts: dict[str, str] = {}
        """Facts that a framework reported about the kernel that it prepared last."""
        if frameworks_of is not None:
            self._frameworks = Frameworks(frameworks_of)
            self.errors = (cuda.Error, *self._frameworks.errors)
        self._module = None if cubin is None else cuda.module_from_file(str(cubin))
        self._kept: dict[int, tuple[NDArray[Any], Any]] = {}
        self._scratches: dict[str, tuple[int, Any]] = {}
        self._has_set_aside = False

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._kept.clear()
            self._scratches.clear()
            self._context.pop()
        except self.errors:
            return  # after a crash, reported already, there is nothing to free

    def about(self) -> dict[str, Any]:
        """Properties of the GPU as the driver reports them: name, SMs, L2 bytes, driver, frameworks."""
        attribute = self._cuda.device_attribute
        return {
            "device": self._device.name(),
            "num_sms": self._device.get_attribute(attribute.MULTIPROCESSOR_COUNT),
            "l2_bytes": self._device.get_attribute(attribute.L2_CACHE_SIZE),
            "cuda_driver_version": self._cuda.get_driver_version(),
            **(self._frameworks.about() if self._frameworks else {}),
        }

    def launch(self, launch: KernelLaunch | Product | Operation, *, is_counted: bool = False) -> dict[str, NDArray[Any]]:
        """Outputs of one launch, by name; waits for it."""
        prepared = self.prepare(launch)
        if is_counted and prepared.product is not None:
            prepared.product.enqueue_counted()
        else:
            prepared.enqueue()
        return self.outputs(prepared)

    def prepare(self, launch: KernelLaunch | Product | Operation) -> Prepared:
        """Launch with all its arguments on the GPU."""
        if isinstance(launch, (Product, Operation)):
            assert self._frameworks is not None  # the case names its framework
            product = self._frameworks.prepare(launch)
            self.facts = dict(product.facts)
            watched_gemm = launch if isinstance(launch, Product) and launch.watch and self._module else None
            return Prepared(product.enqueue, (), (), product, watched_gemm)
        assert self._module is not None
        function = self._module.get_function(launch.kernel)
        self._opt_in(function, launch)
        held: list[Any] = []
        outputs: list[tuple[Output | Windows, Any]] = []
        arguments = [self._argument(argument, held, outputs) for argument in launch.arguments]
        stream = self._persisting(launch, arguments)
        if stream is not None:
            held.append(stream)
        following = [self.prepare(other) for other in launch.following]
        for other in following:
            outputs += other.outputs
            held.append(other)

        def enqueue() -> None:
            function(*arguments, grid=launch.grid, block=launch.block, shared=launch.smem_bytes, stream=stream)
            for other in following:
                other.enqueue()

        return Prepared(enqueue, tuple(outputs), tuple(held))

    def _persisting(self, launch: KernelLaunch, arguments: Sequence[Any]) -> Any:
        """Reserve L2 for persisting accesses, or free it; the stream whose window persists, None for the default stream."""
        if launch.set_aside_bytes or self._has_set_aside:
            set_aside.set_aside(launch.set_aside_bytes)
            self._has_set_aside = bool(launch.set_aside_bytes)
        if launch.window is None:
            return None
        argument, num_bytes = launch.window
        stream = self._cuda.Stream()
        set_aside.window(stream.handle, int(arguments[argument]), num_bytes)
        return stream

    def outputs(self, prepared: Prepared) -> dict[str, NDArray[Any]]:
        """Outputs of what was enqueued, by name; waits for it."""
        self._context.synchronize()
        if prepared.product is not None:
            return {**prepared.product.fetch(), **self._seen(prepared)}
        came: dict[str, NDArray[Any]] = {}
        for output, pointer in prepared.outputs:
            if isinstance(output, Windows):
                came[output.name] = self._windows(output, int(pointer))
            else:
                came[output.name] = np.empty_like(output.array)
                self._cuda.memcpy_dtoh(came[output.name], pointer)
        return came

    def _seen(self, prepared: Prepared) -> dict[str, NDArray[Any]]:
        """Outputs of the kernel that observes a framework's launch; empty where none does."""
        product, of = prepared.product, prepared.watched
        if product is None or of is None or of.watch is None or self._module is None:
            return {}
        function = self._module.get_function(of.watch.kernel)
        assert product.on_gpu is not None  # a GEMM has it
        outputs = watched(self._cuda, function, of, product.on_gpu, self._context.synchronize)
        arrivals = since_first_ns(outputs)
        if len(arrivals):
            self.facts["arrivals"] = as_text(arrivals)
        return outputs

    def _windows(self, output: Windows, address: int) -> NDArray[np.uint8]:
        came = np.empty(sum(num_bytes for _, num_bytes in output.windows), dtype=np.uint8)
        for part, (offset, _) in zip(output.split(came), output.windows, strict=True):
            self._cuda.memcpy_dtoh(part, address + offset)
        return came

    def _opt_in(self, function: Any, launch: KernelLaunch) -> None:
        """Set the function attributes that a launch requires."""
        attribute = self._cuda.function_attribute
        if launch.smem_bytes and launch.smem_bytes + function.shared_size_bytes > STATIC_SMEM_LIMIT_BYTES:
            function.set_attribute(attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.smem_bytes)
        if launch.carveout_pct is not None:
            function.set_attribute(attribute.PREFERRED_SHARED_MEMORY_CARVEOUT, launch.carveout_pct)
        if launch.has_large_cluster:
            function.set_attribute(attribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED), 1)

    def _argument(self, argument: Argument, held: list[Any], outputs: list[tuple[Output | Windows, Any]]) -> Any:
        if isinstance(argument, Input):
            return self._input(argument.array, held)
        if isinstance(argument, Repeated):
            held.append(self._repeated(argument))
            return held[-1]
        if isinstance(argument, Windows):
            pointer = self._cuda.mem_alloc(argument.num_bytes)
            for offset, num_bytes in pieces(argument.num_bytes):
                self._cuda.memset_d8(int(pointer) + offset, POISON, num_bytes)
            outputs.append((argument, pointer))
            return pointer
        if isinstance(argument, Output):
            pointer = self._copied(argument.array)
            outputs.append((argument, pointer))
            return pointer
        if isinstance(argument, Scratch):
            return self._scratch(argument)
        if isinstance(argument, MappedTensor):
            array = argument.array
            tensor = self._argument(Input(array) if isinstance(array, np.ndarray) else array, held, outputs)
            held.append(self._copied(encode_tensor_map(argument.tensor_map, int(tensor))))
            return held[-1]
        return argument

    def _repeated(self, repeated: Repeated) -> Any:
        """New buffer, filled from the array's copy by doubling."""
        kept: list[Any] = []  # keeps the copy of a writable array until its bytes are spread
        source = self._input(repeated.array, kept)
        pointer = self._cuda.mem_alloc(repeated.num_bytes)
        own = repeated.array.nbytes
        most = max(1, MOST_BYTES_AT_ONCE // own) * own  # bytes of one copy, a multiple of the array
        done = min(own, repeated.num_bytes)
        self._cuda.memcpy_dtod(pointer, source, done)
        while done < repeated.num_bytes:
            num_bytes = min(done, repeated.num_bytes - done, most)
            self._cuda.memcpy_dtod(int(pointer) + done, pointer, num_bytes)
            done += num_bytes
        self._context.synchronize()
        return pointer

    def _scratch(self, scratch: Scratch) -> Any:
        """Buffer of that name, allocated and zeroed at its first use."""
        buffer = self._scratches.get(scratch.name)
        if buffer is None or buffer[0] < scratch.num_bytes:
            pointer = self._cuda.mem_alloc(scratch.num_bytes)
            self._cuda.memset_d8(pointer, 0, scratch.num_bytes)
            buffer = self._scratches[scratch.name] = (scratch.num_bytes, pointer)
        return buffer[1]

    def _input(self, array: NDArray[Any], held: list[Any]) -> Any:
        """Pointer to a copy of ``array``; a read-only array is copied once."""
        if array.flags.writeable:
            held.append(self._copied(array))
            return held[-1]
        if id(array) not in self._kept:
            self._kept[id(array)] = (array, self._copied(array))  # holds the array, so that its id stays unique
        return self._kept[id(array)][1]

    def _copied(self, array: NDArray[Any]) -> Any:
        pointer = self._cuda.mem_alloc(max(array.nbytes, 1))
        if array.nbytes:
            self._cuda.memcpy_htod(pointer, np.ascontiguousarray(array))
        return pointer


def encode_tensor_map(tensor_map: TensorMap, address: int) -> NDArray[np.uint8]:
    """uint8[128]: the driver's encoding of a tensor map, for a tensor at ``address``.

    Raises:
        ConfigError: the driver does not support tensor maps.
        WrongAnswer: the driver refuses this tensor map.
    """
    dtype, rank, _, dims, strides, box, steps, interleave, swizzle, promotion, fill = tensor_map.arguments
    try:
        encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise ConfigError(f"measure: the driver encodes no tensor maps ({error}), wants one of CUDA 12 or later") from None
    buffer = (ctypes.c_uint8 * (TENSOR_MAP_BYTES + TENSOR_MAP_ALIGNMENT_BYTES))()
    start = -ctypes.addressof(buffer) % TENSOR_MAP_ALIGNMENT_BYTES
    u32, u64 = ctypes.c_uint32, ctypes.c_uint64
    status = encode(
        ctypes.c_void_p(ctypes.addressof(buffer) + start), ctypes.c_int(dtype), u32(rank), ctypes.c_void_p(address),
        (u64 * rank)(*dims), (u64 * max(1, rank - 1))(*strides), (u32 * rank)(*box), (u32 * rank)(*steps),
        ctypes.c_int(interleave), ctypes.c_int(swizzle), ctypes.c_int(promotion), ctypes.c_int(fill),
    )  # fmt: skip
    if status:
        raise WrongAnswer(f"the driver refuses the tensor map with status {status}")
    return np.frombuffer(bytes(buffer)[start : start + TENSOR_MAP_BYTES], dtype=np.uint8).copy()
