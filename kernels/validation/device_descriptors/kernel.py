"""One launch multiplies: D[m, n] = A[m, k] B[n, k]^T in fp32, rounded to A's type; every CTA makes its own tensor maps.

Both operands lie with K contiguous. Tiles are numbered through bands of ``GROUP_M`` rows of tiles: down the rows of a band
first, then on to its next column. Edges are not looked at: m, n and k are multiples of the tile's extents.
"""

from __future__ import annotations

import triton
import triton.language as tl

PERSISTENT = ("persistent",)
"""Kernels that are launched with a CTA for each SM."""


@triton.jit
def one_tile(
    a, b, d, m, n, k,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """A CTA computes one tile. The compiler does not know that the loop runs at least once."""
    a_map, b_map, d_map = _maps(a, b, d, m, n, k, TILE_M, TILE_N, TILE_K)
    row, column = _tile_of(tl.program_id(0), m // TILE_M, n // TILE_N, GROUP_M)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for step in range(k // TILE_K):
        a_tile = a_map.load([row * TILE_M, step * TILE_K])
        b_tile = b_map.load([column * TILE_N, step * TILE_K])
        total = tl.dot(a_tile, b_tile.T, total)
    d_map.store([row * TILE_M, column * TILE_N], total.to(d.dtype.element_ty))


@triton.jit
def one_tile_assumed(
    a, b, d, m, n, k,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """A CTA computes one tile. The compiler knows that the loop runs at least once."""
    tl.assume(k >= TILE_K)
    a_map, b_map, d_map = _maps(a, b, d, m, n, k, TILE_M, TILE_N, TILE_K)
    row, column = _tile_of(tl.program_id(0), m // TILE_M, n // TILE_N, GROUP_M)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for step in range(k // TILE_K):
        a_tile = a_map.load([row * TILE_M, step * TILE_K])
        b_tile = b_map.load([column * TILE_N, step * TILE_K])
        total = tl.dot(a_tile, b_tile.T, total)
    d_map.store([row * TILE_M, column * TILE_N], total.to(d.dtype.element_ty))


@triton.jit
def persistent(
    a, b, d, m, n, k,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """A CTA for each SM makes its maps once and computes every ``num_programs``-th tile."""
    a_map, b_map, d_map = _maps(a, b, d, m, n, k, TILE_M, TILE_N, TILE_K)
    num_rows, num_columns = m // TILE_M, n // TILE_N
    for place in range(tl.program_id(0), num_rows * num_columns, tl.num_programs(0)):
        row, column = _tile_of(place, num_rows, num_columns, GROUP_M)
        total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
        for step in range(k // TILE_K):
            a_tile = a_map.load([row * TILE_M, step * TILE_K])
            b_tile = b_map.load([column * TILE_N, step * TILE_K])
            total = tl.dot(a_tile, b_tile.T, total)
        d_map.store([row * TILE_M, column * TILE_N], total.to(d.dtype.element_ty))


@triton.jit
def _maps(a, b, d, m, n, k, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):  # noqa: N803 - as above
    """Tensor maps of A, B and D."""
    return (
        tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[TILE_M, TILE_K]),
        tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[TILE_N, TILE_K]),
        tl.make_tensor_descriptor(d, shape=[m, n], strides=[n, 1], block_shape=[TILE_M, TILE_N]),
    )


@triton.jit
def _tile_of(place, num_rows, num_columns, GROUP_M: tl.constexpr):  # noqa: N803 - as above
    """(row, column) of tile ``place``; the last band may be narrower."""
    per_band = GROUP_M * num_columns
    first = place // per_band * GROUP_M
    width = min(num_rows - first, GROUP_M)
    within = place % per_band
    return first + within % width, within // width
