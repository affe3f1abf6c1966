"""Kernels of torch's tensor operations: from a kernel's name and launch to one of our kernel models and its options.

In: an operation and what was launched, as text. Out: :class:`ModelOptions`, or None where name and launch say too little.

Models: softmax by warps and by blocks, layer norm and RMS norm of aligned rows, sums, element-wise kernels, transposes of
matrices, embeddings.
Ignores: rows of at most 128 columns, of which a warp takes two. Rows that begin off the vectors. Blocks of several rows with
more than 32 threads each.
Source: PyTorch 2.11, ``aten/src/ATen/native/cuda``: ``SoftMax.cu``, ``PersistentSoftmax.cuh``, ``layer_norm_kernel.cu``,
``Reduce.cuh``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpusim.units import WARP_SIZE
from gpusim.workload.dtypes import dtype

BLOCKS: Mapping[str, Any] = {"combine": "first_warp", "arithmetic": "ieee"}
"""Options of softmax by blocks: three barriers for each reduction, and no fast math."""
NORMS: Mapping[str, Any] = {"unroll": 1, "weight_loads": "element"}
"""Options of norms: loops that are not unrolled, weights that are loaded element by element. Source: their SASS."""
VECTOR_BYTES = 16
NORM_ELEMENTS = 4
"""Elements of a vector of layer norm and RMS norm, whatever the type."""
ROW_SUM_CODE, COLUMN_SUM_CODE = 145, 240
"""Instructions of a thread of ``reduce_kernel`` besides those of plain loops: of sums of rows and of all, and of columns.
Source: inferred from ``smsp__inst_executed.sum`` over warps of ``framework_ops``, less loads, sums and shuffles."""
MOST_SCALAR_INPUTS = 128
"""Elements of a sum up to which threads load one by one. Source: ``setReduceConfig`` of ``Reduce.cuh``, ``dim0 > 128``."""
MOST_OF_TWO_ROWS = 128
"""Most columns of which a warp takes two rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """A key of ``KERNEL_MODELS``, and options of that kernel model."""

    model: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchLaunch:
    """What torch launched for an operation on an array of ``rows`` x ``columns``."""

    operation: str
    rows: int
    columns: int
    dtype: str
    name: str
    """Name of the kernel, with template arguments."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return dtype(self.dtype).num_bytes

    def of_rows(self, model: str, **options: Any) -> ModelOptions:
        """Options of a kernel model that works on the rows."""
        shape = {"rows": self.rows, "columns": self.columns, "dtype": self.dtype, "threads": self.threads}
        return ModelOptions(model=model, options={**shape, **options})

    def by_block(self, model: str, keep: str, vector_bytes: int, **options: Any) -> ModelOptions | None:
        """Options of a kernel with a block a row; None where the grid differs."""
        if self.grid != (self.rows, 1, 1):
            return None
        return self.of_rows(model, per="block", keep=keep, vector_bytes=vector_bytes, **options)


def _softmax_warp(launch: TorchLaunch) -> ModelOptions | None:
    """A warp a row, element by element, all in flight at once."""
    if launch.columns <= MOST_OF_TWO_ROWS or launch.block[0] != WARP_SIZE:
        return None
    return launch.of_rows("softmax", per="warp", vector_bytes=launch.width, arithmetic="ieee", pad=True)


def _softmax_registers(launch: TorchLaunch) -> ModelOptions | None:
    """A block a row, element by element, in registers."""
    return launch.by_block("softmax", "registers", launch.width, recompute=True, **BLOCKS)


def _softmax_smem(launch: TorchLaunch) -> ModelOptions | None:
    """A block a row, by vectors, in shared memory."""
    return launch.by_block("softmax", "smem", VECTOR_BYTES, unroll=1, **BLOCKS)


def _softmax_reread(launch: TorchLaunch) -> ModelOptions | None:
    """A block a row, by vectors, read three times."""
    return launch.by_block("softmax", "reread", VECTOR_BYTES, unroll=1, **BLOCKS)


def _norm(launch: TorchLaunch) -> ModelOptions | None:
    """A block a row, by vectors of four elements, read twice. Weights are loaded element by element."""
    if launch.operation == "rms_norm":
        return launch.by_block("rms_norm", "reread", NORM_ELEMENTS * launch.width, **NORMS)
    return launch.by_block("layer_norm", "reread", NORM_ELEMENTS * launch.width, algorithm="welford", **NORMS)


def _sum(launch: TorchLaunch) -> ModelOptions | None:
    """A reduction. Its name has the elements that a thread sums of several outputs, in flight, and of a vector."""
    outputs = re.search(r"reduce_kernel<\d+, (\d+),", launch.name)
    ends = re.search(r"(\d+), (\d+)>\s*>*$", launch.name)
    unroll, vector = (int(ends[1]), int(ends[2])) if ends else (4, 4)
    parts = launch.grid[1]
    finish = "last_cta" if parts > 1 else "atomic"
    elements = {"vector_bytes": launch.width * vector, "unroll": 1, "overhead": ROW_SUM_CODE}  # if the sum is long
    if launch.columns * (launch.rows if launch.operation == "sum_all" else 1) <= MOST_SCALAR_INPUTS:
        elements = {"vector_bytes": launch.width, "unroll": unroll, "overhead": ROW_SUM_CODE}
    if launch.operation == "sum_all" and launch.grid[0] == 1:
        return launch.of_rows("reduction", axis="all", ctas_per_sum=parts, finish=finish, **elements)
    if launch.operation == "sum_rows":
        if launch.grid[0] == launch.rows:
            return launch.of_rows("reduction", axis="row", ctas_per_sum=parts, finish=finish, **elements)
        if parts == 1 and launch.block[0] == WARP_SIZE and launch.grid[0] == -(-launch.rows // launch.block[1]):
            return launch.of_rows("reduction", axis="row", per="warp", **elements)
    if launch.operation == "sum_columns" and outputs and launch.block[0] == WARP_SIZE:
        num_outputs = int(outputs[1])
        if launch.grid[0] * WARP_SIZE * num_outputs == launch.columns:
            return launch.of_rows(
                "reduction", axis="column", rows_per_cta=-(-launch.rows // parts), finish=finish, unroll=unroll,
                vector_bytes=launch.width * num_outputs, overhead=COLUMN_SUM_CODE, code="torch",
            )  # fmt: skip
    return None


ELEMENTWISE = {"mul": "scale", "cast": "copy", "add_bias": "add"}
"""Operations of the element-wise model that torch calls otherwise."""
RUN_TIME_TYPE_CODE, OFFSET_CODE = 34.0, 22.0
"""Instructions of the ALU and branch units for each element. ``RUN_TIME_TYPE_CODE``: of a type that is known at run time.
``OFFSET_CODE``: of the offsets of a tensor that is not contiguous. Source: inferred from ``smsp__inst_executed.sum`` over
elements of ``framework_ops``, PyTorch 2.11 for sm_90: casts of bf16 to fp32, and ``add_bias``."""
INDEX_BYTES, GATHER_THREADS = 8, 256


def _elementwise(launch: TorchLaunch, vector: int, items: int, **options: Any) -> ModelOptions:
    """Options of the element-wise model."""
    if launch.operation == "cast":
        options["out_dtype"] = "bf16" if launch.dtype == "fp32" else "fp32"
    if launch.operation == "add_bias":
        options |= {"broadcast": "row", "columns": launch.columns}
    return ModelOptions(model="elementwise", options={
        "op": ELEMENTWISE.get(launch.operation, launch.operation), "elements": launch.rows * launch.columns,
        "dtype": launch.dtype, "threads": launch.threads, "vector_bytes": vector * launch.width,
        "items_per_thread": items, **options,
    })  # fmt: skip


def _elements_of_thread(launch: TorchLaunch) -> int:
    """Elements of a thread: the power of two that the grid has."""
    each = launch.rows * launch.columns / (launch.grid[0] * launch.threads)
    return 1 << max(0, math.ceil(math.log2(each)))


def _vectorized(launch: TorchLaunch) -> ModelOptions | None:
    """Vectors of contiguous tensors. The name has the elements of a vector."""
    found = re.search(r"vectorized_elementwise_kernel<(?:\(int\))?(\d+),", launch.name)
    if found is None or launch.operation == "transpose":
        return None
    vector = int(found[1])
    return _elementwise(launch, vector, max(1, _elements_of_thread(launch) // vector))


def _unrolled(launch: TorchLaunch) -> ModelOptions | None:
    """Elements of contiguous tensors whose types are known at run time."""
    return _elementwise(launch, 1, _elements_of_thread(launch), address_instructions=RUN_TIME_TYPE_CODE)


def _strided(launch: TorchLaunch) -> ModelOptions | None:
    """Elements of tensors that are not contiguous, each stored before the next is loaded. The name has their number."""
    found = re.search(r"elementwise_kernel<(?:\(int\))?\d+, (?:\(int\))?(\d+),", launch.name)
    if found is None:
        return None
    if launch.operation == "transpose":
        return ModelOptions(model="transpose", options={
            "m": launch.rows, "n": launch.columns, "dtype": launch.dtype, "smem": "none", "coalesced": "stores",
            "threads": launch.threads, "items_per_thread": int(found[1]),
        })  # fmt: skip
    return _elementwise(launch, 1, int(found[1]), loads="serial", address_instructions=OFFSET_CODE)


def _gather(launch: TorchLaunch) -> ModelOptions | None:
    """A block a row of the table, or a slice of a longer row."""
    options = {
        "rows": launch.grid[0], "columns": launch.columns, "table_rows": launch.rows, "dtype": launch.dtype, "per": "block",
        "index_bytes": INDEX_BYTES, "threads": GATHER_THREADS,
    }  # fmt: skip
    vectors = launch.columns * launch.width // VECTOR_BYTES
    is_known = launch.threads == min(GATHER_THREADS, -(-vectors // WARP_SIZE) * WARP_SIZE)
    if not is_known or launch.grid[1] != -(-vectors // launch.threads):
        return None
    return ModelOptions(model="gather", options=options)


RULES: Mapping[str, Callable[[TorchLaunch], ModelOptions | None]] = {
    "softmax_warp_forward": _softmax_warp,
    "cunn_SoftMaxForwardReg": _softmax_registers,
    "cunn_SoftMaxForwardSmem": _softmax_smem,
    "cunn_SoftMaxForward": _softmax_reread,
    "vectorized_layer_norm_kernel": _norm,
    "reduce_kernel": _sum,
    "vectorized_elementwise_kernel": _vectorized,
    "unrolled_elementwise_kernel": _unrolled,
    "elementwise_kernel": _strided,
    "vectorized_gather_kernel": _gather,
}
"""Functions from a launch to a kernel model, by the kernel's name without namespaces and template arguments."""


def function_of(name: str) -> str:
    """Name of a kernel without its namespaces, template arguments and return type.

    >>> function_of("void at::native::<unnamed>::cunn_SoftMaxForwardReg<float, float, at::Epilogue, long, 4>")
    'cunn_SoftMaxForwardReg'
    """
    return next((key for key in sorted(RULES, key=len, reverse=True) if re.search(rf"\b{key}\b", name)), "")


def model_of(operation: str, shape: tuple[int, int], dtype_name: str, facts: Mapping[str, str]) -> ModelOptions | None:
    """Kernel model and options of a launch.

    Args:
        operation: name of the operation.
        shape: rows and columns of the input.
        dtype_name: type of its elements.
        facts: text columns ``launched``, ``grid`` and ``block`` of the row.
    """
    name = facts.get("launched", "")
    key = function_of(name)
    if not key or " + " in name:
        return None
    grid, block = (tuple(map(int, facts[of].split("x"))) for of in ("grid", "block"))
    rows, columns = shape
    return RULES[key](TorchLaunch(
        operation=operation, rows=rows, columns=columns, dtype=dtype_name, name=name,
        grid=(grid[0], grid[1], grid[2]), block=(block[0], block[1], block[2]),
    ))  # fmt: skip
