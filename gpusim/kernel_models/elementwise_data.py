"""Data accesses and arithmetic of elementwise kernels, in fp32.

In: options of the kernel, threads of a role. Out: accesses of ``workload/data_access.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import erf
from typing import Any, Protocol

import numpy as np

from gpusim.kernel_models.stream_data import LOADED, loaded, nothing, shares, stored
from gpusim.kernel_models.streaming import IntArray
from gpusim.workload import ops
from gpusim.workload.data_access import GlobalElements, Registers

FACTOR, FILLED = 2.0, 1.0
"""Factor of ``scale`` in functional runs. ``FILLED``: value of ``fill``."""
HALF_GELU = float(np.sqrt(2 / np.pi))
FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "copy": lambda x: x, "scale": lambda x: np.float32(FACTOR) * x, "relu": lambda x: np.maximum(x, 0), "exp": np.exp,
    "silu": lambda x: x / (1 + np.exp(-x)), "gelu": lambda x: 0.5 * x * (1 + np.vectorize(erf, otypes="f")(x / 2**0.5)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(HALF_GELU * (x + 0.044715 * x**3))),
}  # fmt: skip
"""Operation of each element in functional runs."""


class Elementwise(Protocol):
    """Options of an elementwise kernel."""

    elements: int
    threads: int
    columns: int | None

    @property
    def op(self) -> str:
        """Operation."""

    @property
    def broadcast(self) -> str:
        """What the second input is as large as."""

    @property
    def vector_elements(self) -> int:
        """Elements of a vector."""

    @property
    def share_elements(self) -> int:
        """Elements of a CTA."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Input tensors."""


class ElementwiseData:
    """Data accesses of ``threads`` threads of a CTA, from ``first_thread`` on, with ``each`` vectors in a group."""

    def __init__(self, params: Elementwise, threads: int, first_thread: int, each: int) -> None:
        self._params, self._threads, self._first, self._each = params, threads, first_thread, each

    def _elements(self, panel: int, group: int) -> IntArray:
        """Elements of each thread in a group of vectors."""
        params, vector = self._params, self._params.vector_elements
        begin = panel * params.share_elements + (group * self._each * params.threads + self._first) * vector
        return shares(begin, params.elements, self._threads, self._each, vector, step=params.threads)

    def load(self, panel: int, group: int, name: str, number: int, _op: ops.Op) -> GlobalElements:
        """The ``number``-th load of an input in a group. The first takes all of a thread's elements."""
        params = self._params
        if number:
            return nothing(name)
        index = self._elements(panel, group)
        if name == "b" and params.columns:
            place = index % params.columns if params.broadcast == "row" else index // params.columns
            index = np.where(index < 0, -1, place)
        return loaded(name, index, name)

    def store(self, panel: int, group: int, _op: ops.Op) -> GlobalElements:
        """The store of a group of vectors."""
        shape = self._threads, self._each * self._params.vector_elements
        return stored("out", self._elements(panel, group), LOADED, partial(_compute, self._params, shape))

    def one(self, panel: int, begin: int, name: str, _op: ops.Op) -> GlobalElements:
        """One element a thread, from element ``begin`` of a CTA on."""
        params = self._params
        index = shares(panel * params.share_elements + begin, params.elements, self._threads, 1)
        if name == "out":
            return stored(name, index, LOADED, partial(_compute, params, (self._threads, 1)))
        return loaded(name, index, name)


def _compute(params: Elementwise, shape: tuple[int, int], registers: Registers) -> None:
    """The operation in fp32 on elements of (threads, values)."""
    if params.op == "fill":
        registers[LOADED] = np.full(shape, FILLED, dtype=np.float32)
        return
    x = registers[params.inputs[0]]
    registers[LOADED] = x + registers["b"] if params.op == "add" else FUNCTIONS[params.op](x)
