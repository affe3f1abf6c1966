"""Store probe: times at which elements of a GEMM's D are written, read by a second kernel while the GEMM runs.

In: a GEMM on the GPU, the entry point of the probe (``kernels/tile_order``), a driver module (PyCUDA's, passed in). Out:
nanoseconds of every element of a lattice, run by run.

The probe kernel starts first, on a stream that the default stream does not wait for; D is NaN until then. It ends at its
limits of time and polls, so that a GEMM that writes nothing costs time but does not hang.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import Product

NON_BLOCKING = 1
"""Value of ``CU_STREAM_NON_BLOCKING``. Source: CUDA driver API."""

HEAD_START_S = 3e-4
"""Seconds between the two launches."""

MOST_NS, MOST_POLLS = 20_000_000, 200_000
"""Limits of the probe kernel: nanoseconds and polls."""

INFINITY = {"bf16": 0x7F80, "fp16": 0x7C00}
"""Bits of infinity by type; larger bits, without the sign, are NaN."""

NUM_CTAS = 16
WORDS = ("rows", "columns", "row_step", "column_step", "row_elements", "infinity", "most_polls", "pad")
LATTICE = np.dtype([*((name, "<u4") for name in WORDS), ("most_ns", "<u8")])
"""Layout of the structure in ``kernel.cu``."""


@dataclass(frozen=True, slots=True)
class OnGpu:
    """GEMM on the GPU: function that launches it, address of D, function that sets D to NaN and waits."""

    enqueue: Callable[[], None]
    d_address: int
    clear: Callable[[], None]


def lattice_of(product: Product) -> NDArray[Any]:
    """Structure argument of ``kernel.cu``, [1].

    >>> from gpusim.evidence.cases.case import Watch
    >>> found = lattice_of(Product(m=200, n=256, k=64, watch=Watch(kernel="look_on", row_step=64, column_step=128)))[0]
    >>> int(found["rows"]), int(found["columns"]), int(found["row_elements"])
    (4, 2, 256)

    Raises:
        ConfigError: the GEMM has no ``watch``.
    """
    watch = product.watch
    if watch is None:
        raise ConfigError("a product without a watch has no lattice: give it one")
    shape = (-(-product.m // watch.row_step), -(-product.n // watch.column_step))
    values = (*shape, watch.row_step, watch.column_step, product.n, INFINITY[product.dtype], MOST_POLLS, 0, MOST_NS)
    return np.array([values], dtype=LATTICE)


def watched(cuda: Any, function: Any, product: Product, on_gpu: OnGpu, wait: Callable[[], None]) -> dict[str, NDArray[Any]]:
    """Run the GEMM several times while ``function``, the probe kernel, reads D.

    Returns:
        ``seen_ns``, int64[runs, rows, columns] of the lattice, 0 for elements that were never seen; ``begin_ns``,
        int64[runs, CTAs]: start times of the probe's CTAs.
    """
    lattice = lattice_of(product)
    num_rows, num_columns = int(lattice["rows"][0]), int(lattice["columns"][0])
    assert product.watch is not None  # lattice_of has checked it
    num_runs = product.watch.num_runs
    seen = np.zeros((num_runs, num_rows * num_columns), dtype=np.int64)
    begin = np.zeros((num_runs, NUM_CTAS), dtype=np.int64)
    stream = cuda.Stream(NON_BLOCKING)
    function.set_attribute(cuda.function_attribute.PREFERRED_SHARED_MEMORY_CARVEOUT, 100)  # cannot change on an SM in use
    seen_at, begin_at = cuda.mem_alloc(seen[0].nbytes), cuda.mem_alloc(begin[0].nbytes)
    for run in range(num_runs):
        on_gpu.clear()
        cuda.memcpy_htod(seen_at, np.zeros_like(seen[run]))
        cuda.memcpy_htod(begin_at, np.zeros_like(begin[run]))
        wait()
        arguments = (np.uint64(on_gpu.d_address), np.void(lattice.tobytes()), seen_at, begin_at)
        function(*arguments, grid=(NUM_CTAS, 1, 1), block=(32, 1, 1), shared=0, stream=stream)
        time.sleep(HEAD_START_S)
        on_gpu.enqueue()
        wait()
        cuda.memcpy_dtoh(seen[run], seen_at)
        cuda.memcpy_dtoh(begin[run], begin_at)
    return {"seen_ns": seen.reshape(num_runs, num_rows, num_columns), "begin_ns": begin}


def right_runs(outputs: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """bool[runs]: whether all elements were seen, and none before the last CTA of the probe had started."""
    seen, begin = outputs["seen_ns"], outputs["begin_ns"]
    has_begun = (begin > 0).all(axis=1) & (seen.min(axis=(1, 2)) > begin.max(axis=1))
    return np.asarray((seen > 0).all(axis=(1, 2)) & has_begun, dtype=np.bool_)


def since_first_ns(outputs: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """int64[right runs, rows, columns]: time in ns at which each element was seen, from the first one of its run on."""
    seen: NDArray[np.int64] = outputs["seen_ns"][right_runs(outputs)]
    return seen - seen.min(axis=(1, 2), keepdims=True) if len(seen) else seen


TENTH_US = 100


def as_text(arrivals_ns: NDArray[np.int64]) -> str:
    """Text of the median over runs in tenths of a microsecond: spaces between numbers, slashes between rows of the lattice.

    >>> as_text(np.array([[[0, 220], [300, 140]]]))
    '0 2/3 1'
    """
    tenths = np.rint(np.median(arrivals_ns, axis=0) / TENTH_US).astype(int)
    return "/".join(" ".join(map(str, row)) for row in tenths.tolist())


def of_text(text: str) -> NDArray[np.int64]:
    """int64[rows, columns] from the text of :func:`as_text`, in tenths of a microsecond.

    >>> of_text("0 2/3 1").tolist()
    [[0, 2], [3, 1]]
    """
    return np.array([[int(word) for word in row.split()] for row in text.split("/")], dtype=np.int64)
