"""What a CTA prepares before it copies: tensor maps that it makes, and addresses of matrices that it reads.

Tensor maps: Triton's ``make_tensor_descriptor``, CUTLASS' grouped kernels. Addresses: cublasGemmBatched, CUTLASS kArray.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from gpusim.units import DEPENDENT_CYCLES
from gpusim.workload import ops
from gpusim.workload.ops import Op
from gpusim.workload.smem.access import AccessPattern

POINTER_BYTES = 8

FIELD_CYCLES = 585.0
"""Cycles of a thread that writes the fields of a map in shared memory, one after the other.

Source: SASS of Triton 3.6 for sm_90, eight GEMMs, median of 24 maps; a shared load takes 22 cycles."""


def make_tensor_maps(tensors: Iterable[str], meet: Iterable[Op], *, is_maker: bool = True) -> list[Op]:
    """Ops of a role: for each tensor, write the map, release it and ``meet``. A role that is no maker only meets.

    >>> [type(op).__name__ for op in make_tensor_maps("A", [ops.Syncthreads()])]
    ['Alu', 'FenceProxyTensormap', 'Syncthreads']
    """
    meeting, code = tuple(meet), ops.Alu(FIELD_CYCLES / DEPENDENT_CYCLES, is_chain=True)
    return [
        op for tensor in tensors
        for op in ((code, ops.FenceProxyTensormap((tensor,)), *meeting) if is_maker else meeting)
    ]  # fmt: skip


def read_pointers(batch: int, tensors: str) -> Generator[Op, Any, None]:
    """Ops that load the addresses of a batch's ``tensors``, and wait for them. Each array takes a sector.

    Functional runs find the matrices of a batch behind one another, and load no address.

    >>> [type(op).__name__ for op in read_pointers(0, "AB")]
    ['GlobalLoad', 'Use']
    """
    num = len(tensors)
    access = AccessPattern(num_requests=num, num_sectors=num, num_lines=num, num_bytes=num * POINTER_BYTES)
    token = yield ops.GlobalLoad("pointers", (batch, ord(tensors[0])), access, data=())
    yield ops.Use(token)
