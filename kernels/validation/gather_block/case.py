"""How long does a gather take whose CTAs copy a row each, by bytes of a row and by size of the table?"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Config, Input, KernelLaunch, Outputs, Repeated, Windows
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import check_windows
from gpusim.evidence.cases.validation_kernel import pattern, validation_case, whole_group, windows

VECTOR_BYTES, WARP, MOST_THREADS, INDEX_BYTES = 16, 32, 256, 8
ROW_BYTES = (32, 128, 256, 512, 1536, 2048, 4096, 8192, 16384, 24576)
TABLE_BYTES = (2**22, 2**26, 2**28, 2**31)
ROWS = (1000, 4096, 16384, 65536)
NUM_DRAWN = 16


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config: gathered rows, bytes of a row, rows of the table."""

    kernel: str
    _: KW_ONLY
    rows: int
    row_bytes: int
    table_rows: int


def drawn(seed: int) -> list[Config]:
    """Rows of 32 bytes to 24 KiB out of tables of 4 MiB to 2 GiB."""
    draw = random.Random(f"{seed} gather_block")
    row_bytes = [*ROW_BYTES, *draw.sample(ROW_BYTES, NUM_DRAWN - len(ROW_BYTES))]
    return [
        Row("gather_block", rows=draw.choice(ROWS), row_bytes=size, table_rows=draw.choice(TABLE_BYTES) // size)
        for size in row_bytes
    ]  # fmt: skip


def options(given: Config) -> Mapping[str, Any]:
    """Options of the gather model."""
    config = Row.of(given)
    return {
        "rows": config.rows, "columns": config.row_bytes // 4, "table_rows": config.table_rows, "per": "block",
        "index_bytes": INDEX_BYTES, "threads": MOST_THREADS,
    }  # fmt: skip


@cache
def index_of(rows: int, table_rows: int) -> NDArray[np.int64]:
    """Indices of the gathered rows, int64[rows], drawn with replacement."""
    drawn_rows = np.random.default_rng([22, rows]).integers(0, table_rows, rows, dtype=np.int64)
    drawn_rows.setflags(write=False)
    return drawn_rows


def source(config: Row) -> Repeated:
    """Table."""
    return Repeated(pattern("fp32"), config.table_rows * config.row_bytes)


def target(config: Row) -> Windows:
    """Gathered rows, and the windows that are checked."""
    num_bytes = config.rows * config.row_bytes
    return Windows("out", num_bytes, windows(num_bytes, unit_bytes=config.row_bytes))


def launch(config: Row) -> KernelLaunch:
    """A CTA for each slice of a row."""
    vectors = config.row_bytes // VECTOR_BYTES
    threads = min(MOST_THREADS, -(-vectors // WARP) * WARP)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(source(config), Input(index_of(config.rows, config.table_rows)), target(config), np.uint32(vectors)),
        grid=(config.rows, -(-vectors // threads), 1), block=(threads, 1, 1),
    )  # fmt: skip


def expected(config: Row, offset: int, num_bytes: int) -> NDArray[np.uint8]:
    """Bytes of a window of the output."""
    held = source(config).array.reshape(-1).view(np.uint8)
    rows = index_of(config.rows, config.table_rows)[offset // config.row_bytes : (offset + num_bytes) // config.row_bytes]
    at = rows[:, None] * config.row_bytes + np.arange(config.row_bytes)
    return np.asarray(held[at.reshape(-1) % len(held)])


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Every byte of the windows is the reference's.

    Raises:
        WrongAnswer: a byte differs.
    """
    check_windows(target(config), outputs["out"], partial(expected, config), config.kernel)
    return {}


CASE = validation_case(
    Case(
        name="gather_block", question=__doc__, config_type=Row, groups={"drawn": whole_group(drawn)}, launch=launch,
        check=check,
    ),
    model="gather",
    options=options,
)
