"""One launch multiplies: D[m, n] = A[m, k] B[n, k]^T in fp32, rounded to A's type. A CTA makes one tile of D.

Both operands lie with K contiguous. CTAs are numbered through bands of ``GROUP_M`` rows of tiles: down the rows of a band
first, then on to its next column. Edges are not looked at: m, n and k are multiples of the tile's sides.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def by_pointers(
    a, b, d, m, n, k,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Operands come by cp.async."""
    row, column = _tile_of(tl.program_id(0), m // TILE_M, n // TILE_N, GROUP_M)
    rows = row * TILE_M + tl.arange(0, TILE_M)
    columns = column * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    a_tile = a + rows[:, None].to(tl.int64) * k + depth[None, :]
    b_tile = b + columns[None, :].to(tl.int64) * k + depth[:, None]
    tl.assume(k >= TILE_K)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for _ in range(k // TILE_K):
        total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
        a_tile += TILE_K
        b_tile += TILE_K
    tl.store(d + rows[:, None].to(tl.int64) * n + columns[None, :], total.to(d.dtype.element_ty))


@triton.jit
def by_descriptors(
    a, b, d, m, n, k,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Operands come and D leaves by TMA: a, b and d are tensor descriptors of whole tiles."""
    row, column = _tile_of(tl.program_id(0), m // TILE_M, n // TILE_N, GROUP_M)
    tl.assume(k >= TILE_K)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for step in range(k // TILE_K):
        a_tile = a.load([row * TILE_M, step * TILE_K])
        b_tile = b.load([column * TILE_N, step * TILE_K])
        total = tl.dot(a_tile, b_tile.T, total)
    d.store([row * TILE_M, column * TILE_N], total.to(d.dtype))


@triton.jit
def _tile_of(place, num_rows, num_columns, GROUP_M: tl.constexpr):  # noqa: N803 - as above
    """(row, column) of the tile that CTA ``place`` makes; the last band may be narrower."""
    per_band = GROUP_M * num_columns
    first = place // per_band * GROUP_M
    width = min(num_rows - first, GROUP_M)
    within = place % per_band
    return first + within % width, within // width
