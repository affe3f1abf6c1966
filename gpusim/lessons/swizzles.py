"""Swizzles in lessons: positions of a row's 16-byte chunks, and the address bits that choose them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpusim.errors import LayoutError
from gpusim.layout import ByteLayout, Layout, parse_swizzle, swizzle_mode
from gpusim.lessons.answers import error_table
from gpusim.lessons.rows import judged
from gpusim.workload.dtypes import dtype_in_memory

if TYPE_CHECKING:
    import pandas as pd

CHUNK_BYTES = 16
"""Bytes that ldmatrix, wide loads and TMA's swizzles keep together."""


def chunk_positions(dtype: str, swizzle: str | None = None, *, row_bytes: int = 128, num_rows: int = 8) -> pd.DataFrame:
    """Positions of the 16-byte chunks of each row, in chunks from the row's start: one line per row, one column per chunk.

    >>> chunk_positions("bf16", "3,3,3").loc[5].tolist()
    [5, 4, 7, 6, 1, 0, 3, 2]
    >>> chunk_positions("bf16").loc[5].tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]

    Args:
        dtype: element type, whose size is the unit of ``B,M,S``.
        swizzle: ``B,M,S`` in elements, or a mode of TMA; None for a plain tile.
        row_bytes: bytes from row to row, a multiple of 16.
        num_rows: number of rows.

    Raises:
        LayoutError: the swizzle splits chunks, or moves them to another row.
    """
    import pandas as pd

    element = dtype_in_memory(dtype)
    moved = swizzle_mode("none") if swizzle is None else parse_swizzle(swizzle, element.bits)
    bytes_of = np.asarray(moved(np.arange(num_rows * row_bytes))).reshape(num_rows, -1, CHUNK_BYTES)
    starts = bytes_of[:, :, 0]
    is_complete = (bytes_of == starts[:, :, None] + np.arange(CHUNK_BYTES)).all() and (starts % CHUNK_BYTES == 0).all()
    if not is_complete or (starts // row_bytes != np.arange(num_rows)[:, None]).any():
        raise LayoutError(f"swizzle {swizzle} tears chunks of {CHUNK_BYTES} bytes, or moves them to other rows: use another")
    table = pd.DataFrame(starts % row_bytes // CHUNK_BYTES)
    return table.rename_axis(index="row", columns="chunk")


def swizzle_bits(swizzle: str, dtype: str, offset: int) -> pd.DataFrame:
    """Table of ``B,M,S`` on an offset in elements, bit by bit: the offset, bits that choose, bits that change, the result.

    >>> swizzle_bits("3,3,3", "bf16", 5 * 64 + 3 * 8)["bits"].tolist()
    ['101 011 000', '101 --- ---', '--- 101 ---', '101 110 000']

    Args:
        swizzle: in elements.
        dtype: element type.
        offset: in elements, below 2^(B+M+S).

    Raises:
        LayoutError: the fields of the swizzle are not adjacent (S is not B), or the offset exceeds them.
    """
    import pandas as pd

    element = dtype_in_memory(dtype)
    moved = parse_swizzle(swizzle, element.bits).to_units(element.num_bytes)
    count, base, shift = moved.num_bits, moved.base, moved.shift
    if shift != count or not 0 <= offset < 1 << (base + shift + count):
        raise LayoutError(f"swizzle {swizzle}, offset {offset}: wants S equal to B, and an offset of B+M+S bits")
    top, low, rest = offset >> (base + shift), offset >> base & (1 << count) - 1, offset & (1 << base) - 1
    found = int(moved(offset))
    rows = {
        "offset": (_bits(top, count), _bits(low, count), _bits(rest, base), offset),
        f"{count} bits from bit {base + shift}": (_bits(top, count), "-" * count, "-" * base, None),
        f"... added without carry from bit {base}": ("-" * count, _bits(top, count), "-" * base, None),
        "swizzled": (_bits(top, count), _bits(found >> base & (1 << count) - 1, count), _bits(rest, base), found),
    }
    table = pd.DataFrame({name: {"bits": " ".join(filter(None, row[:3])), "number": row[3]} for name, row in rows.items()}).T
    return table.fillna("")


def _bits(value: int, count: int) -> str:
    return f"{value:0{count}b}" if count else ""


def box_cycles(num_bytes: int, *, num_rows: int = 64, gpu: str = "h200_sxm") -> pd.DataFrame:
    """Cycles of a TMA load of ``num_bytes`` to one SM, by swizzle mode (``kernels/copy_rate``).

    A box has ``num_rows`` rows as wide as its mode allows (32, 64, 128 bytes), so that narrower modes need more boxes.

    >>> box_cycles(32768)["boxes"].to_dict()
    {'32B': 16, '64B': 8, '128B': 4}

    Raises:
        ConfigError: no such rows were measured.
    """
    widths = {"32B": 32, "64B": 64, "128B": 128}
    rows = {
        mode: judged(
            "copy_rate", "cycles", gpu=gpu, group="load_train", kernel="train_load_2d", dtype="bf16", swizzle=mode,
            inner_bytes=width, outer=num_rows, num_copies=num_bytes // num_rows // width,
        ).iloc[0]
        for mode, width in widths.items()
    }
    table = error_table(
        {mode: row["predicted (cycles)"] for mode, row in rows.items()},
        {mode: row["measured (cycles)"] for mode, row in rows.items()}, "cycles", index="mode",
    )
    table.insert(0, "boxes", [int(row["num_copies"]) for row in rows.values()])
    return table.assign(fitted=[row["fitted"] for row in rows.values()])


def mode_tile(mode: str, *, num_rows: int = 64, dtype: str = "bf16") -> str:
    """TMA box of one mode in CuTe's notation, with rows as wide as the mode's span (16 bytes for "none").

    >>> mode_tile("64B")
    'Sw<2,4,3>_smem_ptr[16b] o (64,32):(32,1)'

    Raises:
        LayoutError: there is no such mode.
    """
    element = dtype_in_memory(dtype)
    moved = swizzle_mode(mode)
    columns = (CHUNK_BYTES << moved.num_bits) // element.num_bytes
    return str(ByteLayout(moved, Layout((num_rows, columns), (columns, 1)), element_bits=element.bits))
