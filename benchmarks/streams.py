"""Kernels that are bound by memory, by the bytes of their main input: what the benchmarks beside this file run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

MIB = 1 << 20
Options = Mapping[str, Any]


def extent_of(num_elements: int) -> tuple[int, int]:
    """Rows and columns of a matrix of so many elements (a power of two), nearly square."""
    columns = 1 << (int(math.log2(num_elements)) + 1) // 2
    return num_elements // columns, columns


def elementwise(op: str, **more: Any) -> Callable[[int], tuple[str, Options]]:
    """Of fp32, by the bytes of one tensor."""
    return lambda num_bytes: ("elementwise", {"op": op, "elements": num_bytes // 4, **more})


def matrix(model: str, element_bytes: int, **more: Any) -> Callable[[int], tuple[str, Options]]:
    """Of m x n elements, by their bytes."""

    def options(num_bytes: int) -> tuple[str, Options]:
        m, n = extent_of(num_bytes // element_bytes)
        return model, {"m": m, "n": n, **more}

    return options


def rows(model: str, columns: int, element_bytes: int = 4, **more: Any) -> Callable[[int], tuple[str, Options]]:
    """Rows of ``columns``, by the bytes of all."""
    return lambda num_bytes: (model, {"rows": num_bytes // element_bytes // columns, "columns": columns, **more})


def gather(index: str) -> Callable[[int], tuple[str, Options]]:
    """Rows of 1 KiB out of a table of as many."""

    def options(num_bytes: int) -> tuple[str, Options]:
        num_rows = num_bytes // 1024
        return "gather", {"rows": num_rows, "columns": 256, "table_rows": num_rows, "index": index}

    return options


STREAMS: dict[str, Callable[[int], tuple[str, Options]]] = {
    "copy": elementwise("copy"),
    "copy, 4 bytes a thread": elementwise("copy", vector_bytes=4),
    "copy, 4 vectors a thread": elementwise("copy", items_per_thread=4),
    "copy, 1024 threads": elementwise("copy", threads=1024),
    "copy, 64 threads": elementwise("copy", threads=64),
    "scale": elementwise("scale"),
    "add": elementwise("add"),
    "fill": elementwise("fill"),
    "smem_copy vectorized": matrix("smem_copy", 2, copy="vectorized"),
    "smem_copy cp_async": matrix("smem_copy", 2, copy="cp_async"),
    "smem_copy tma": matrix("smem_copy", 2, copy="tma", swizzle="128B"),
    "strided_copy": lambda num_bytes: ("strided_copy", {"elements": num_bytes // 16, "stride": 4}),
    "transpose padded": matrix("transpose", 4, smem="padded"),
    "transpose none": matrix("transpose", 4, smem="none"),
    "reduction of rows": rows("reduction", 4096),
    "reduction of columns": rows("reduction", 4096, axis="column"),
    "softmax warp": rows("softmax", 512, per="warp"),
    "softmax block": rows("softmax", 4096, per="block"),
    "layer_norm warp": rows("layer_norm", 512, per="warp"),
    "layer_norm block": rows("layer_norm", 4096, per="block"),
    "gather random": gather("random"),
    "gather sequential": gather("sequential"),
}
"""Kernels that are bound by memory, by the bytes of the main input."""
