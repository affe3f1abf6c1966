"""Thread-value layouts of instruction operands: the rules that all atoms share.

Each function returns a layout of (thread, value). For a matrix its values are ``row + num_rows * column``; for ``ldmatrix``
and ``stmatrix`` they are bits. Lane i has ``groupID = i / 4`` and ``threadID_in_group = i % 4``, as in PTX.

Source: PTX ISA 8.x, matrix fragments of ``mma``, ``wgmma.mma_async``, ``ldmatrix`` and ``stmatrix``.
"""

from __future__ import annotations

from gpusim.layout import Layout
from gpusim.units import WARP_SIZE

QUAD = 4
"""Number of adjacent lanes in a row of a fragment."""

GROUPS = 8
"""Number of rows that the quads of a warp hold, one each."""

MATRIX_ROW_BITS = 128
"""Bits of a row of ldmatrix's 8 x 8 16-bit elements, which one lane's address refers to."""


def fragment(num_rows: int, num_columns: int, *, vector: int, num_threads: int = WARP_SIZE) -> Layout:
    """A matrix in registers: each lane holds ``vector`` adjacent elements of a row, four lanes a row, eight rows at a time.

    All warps have the same number of rows, one warp below the other. A thread's values advance along its vector, then down
    by eight rows, then along the row. For operands the vector fills 32 bits; accumulators of any type have two adjacent
    elements.

    >>> print(fragment(16, 8, vector=2))  # the accumulator of m16n8
    ((4,8),(2,2)):((32,1),(16,8))
    >>> print(fragment(64, 256, vector=2, num_threads=128))  # of wgmma m64n256
    ((4,8,4),(2,2,32)):((128,1,16),(64,8,512))
    """
    num_warps = num_threads // WARP_SIZE
    warp_rows = num_rows // num_warps
    threads = [(QUAD, vector * num_rows), (GROUPS, 1), (num_warps, warp_rows)]
    values = [(vector, num_rows), (warp_rows // GROUPS, GROUPS), (num_columns // (QUAD * vector), QUAD * vector * num_rows)]
    return _layout(threads, values)


def shared_operand(num_rows: int, num_columns: int, *, num_threads: int) -> Layout:
    """A matrix in shared memory that an instruction reads by descriptor: each thread accesses the full matrix.

    >>> print(shared_operand(64, 16, num_threads=128))
    (128,(64,16)):(0,(1,64))
    """
    return Layout((num_threads, (num_rows, num_columns)), (0, (1, num_rows)))


def outer_product(m: int, n: int) -> tuple[Layout, Layout, Layout]:
    """A, B and C of one FMA for each lane: lane i has row ``i / n`` and column ``i % n`` of the m x n product.

    >>> a, b, c = outer_product(8, 4)
    >>> a(13, 0), b(13, 0), c(13, 0)  # row 3, column 1, column-major
    (3, 1, 11)
    """
    lanes = ((n, m), 1)
    return Layout(lanes, ((0, 1), 0)), Layout(lanes, ((1, 0), 0)), Layout(lanes, ((m, 1), 0))


def matrix_rows(num_matrices: int) -> Layout:
    """Layout from (lane, bit) to a bit of ldmatrix's matrices in memory. Lane i addresses row i; surplus lanes repeat rows.

    >>> print(matrix_rows(2))
    ((16,2),128):((128,0),1)
    """
    num_rows = GROUPS * num_matrices
    return _layout([(num_rows, MATRIX_ROW_BITS), (WARP_SIZE // num_rows, 0)], [(MATRIX_ROW_BITS, 1)])


def matrix_registers(num_matrices: int, *, is_trans: bool) -> Layout:
    """Layout from (lane, bit) to a bit of ldmatrix's matrices in registers, one register for each matrix.

    A lane holds 32 bits of row ``i / 4``; transposed, two units of 16 bits of column ``i / 4``.

    >>> print(matrix_registers(4, is_trans=False), matrix_registers(1, is_trans=True))
    (32,(32,4)):(32,(1,1024)) ((4,8),(16,2)):((256,16),(1,128))
    """
    matrices = (num_matrices, GROUPS * MATRIX_ROW_BITS)
    if is_trans:
        threads = [(QUAD, 2 * MATRIX_ROW_BITS), (GROUPS, 16)]
        return _layout(threads, [(16, 1), (2, MATRIX_ROW_BITS), matrices])
    return _layout([(WARP_SIZE, 32)], [(32, 1), matrices])


def _layout(threads: list[tuple[int, int]], values: list[tuple[int, int]]) -> Layout:
    """Layout from the (size, stride) modes of threads and of values. Modes of size 1 are omitted."""
    shapes, strides = zip(_mode(threads), _mode(values), strict=True)
    return Layout(shapes, strides)


def _mode(parts: list[tuple[int, int]]) -> tuple[int | tuple[int, ...], int | tuple[int, ...]]:
    kept = [part for part in parts if part[0] > 1] or [(1, 0)]
    if len(kept) == 1:
        return kept[0]
    return tuple(extent for extent, _ in kept), tuple(step for _, step in kept)
