"""Rows of a table by their numbers: what do short and long rows cost that lie anywhere, and rows that follow one another?"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Config, Group, Input, KernelLaunch, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.cases.validation_kernel import COUNTED, SIZES, pattern, validation_case, windows

THREADS = 256
ROWS_PER_BLOCK = {128: 128, 512: 32, 4096: 8}
"""By the bytes of a row."""
MOST_ROWS = 2**24
"""That are gathered: their numbers take 64 MiB."""
SHAPES = ((128, "random"), (512, "random"), (4096, "random"), (512, "sequential"))


def sizes(seed: int) -> list[Config]:
    """Every shape at every size of the table; as many rows as it has are gathered."""
    del seed  # a sweep, the same for every seed
    return [
        {
            "kernel": f"gather_{row_bytes}", "index": index, "row_bytes": str(row_bytes),
            "rows": str(min(size // row_bytes, MOST_ROWS)), "table_rows": str(size // row_bytes),
        }
        for row_bytes, index in SHAPES for size in SIZES
    ]  # fmt: skip


@cache
def rows_of(index: str, rows: int, table_rows: int) -> NDArray[np.int32]:
    """Numbers of the rows, int32[rows]: drawn with replacement, or one behind the other."""
    if index == "sequential":
        made = np.arange(rows, dtype=np.int32)
    else:
        made = np.random.default_rng([21, rows]).integers(0, table_rows, rows, dtype=np.int32)
    made.setflags(write=False)
    return made


def _table(config: Config) -> Repeated:
    return Repeated(pattern("fp32"), int(config["table_rows"]) * int(config["row_bytes"]))


def _index(config: Config) -> NDArray[np.int32]:
    return rows_of(config["index"], int(config["rows"]), int(config["table_rows"]))


def _out(config: Config) -> Windows:
    row_bytes = int(config["row_bytes"])
    num_bytes = int(config["rows"]) * row_bytes
    return Windows("out", num_bytes, windows(num_bytes, unit_bytes=row_bytes))


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """A block for 8 to 128 rows."""
    del is_counted  # the same launch
    num_blocks = int(config["rows"]) // ROWS_PER_BLOCK[int(config["row_bytes"])]
    return KernelLaunch(
        kernel=config["kernel"], arguments=(_table(config), Input(_index(config)), _out(config)),
        grid=(num_blocks, 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Windows of whole rows, every byte."""
    table, index, out, row_bytes = _table(config), _index(config), _out(config), int(config["row_bytes"])
    held = table.array.reshape(-1).view(np.uint8).reshape(-1, row_bytes)
    for (offset, num_bytes), raw in zip(out.windows, out.split(outputs["out"]), strict=True):
        first = offset // row_bytes
        asked = index[first : first + num_bytes // row_bytes]
        is_off = (raw.reshape(-1, row_bytes) != held[asked % len(held)]).any(axis=1)
        if is_off.any():
            place = int(np.argmax(is_off))
            raise WrongAnswer(f"row {first + place} is not row {asked[place]} of the table")
    return {}


def options(config: Config) -> dict[str, object]:
    """As ``gpusim predict gather`` takes them."""
    return {
        "rows": int(config["rows"]), "columns": int(config["row_bytes"]) // 4, "table_rows": int(config["table_rows"]),
        "index": config["index"], "threads": THREADS,
    }


CASE: Case = validation_case(
    Case(
        name="gather",
        question="What does it take to gather rows of a table, short and long ones, from anywhere or in order?",
        columns=("index", "row_bytes", "rows", "table_rows"),
        groups={"sizes": Group(configs=sizes, metrics=COUNTED, rank=4, is_cold=True)},
        launch=launch,
        check=check,
    ),
    model="gather",
    options=options,
)
