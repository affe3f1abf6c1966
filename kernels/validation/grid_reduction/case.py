"""Sums in two steps, and of rows by a warp each: what do parts, counters and second launches cost?"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, Repeated, Scratch, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.validation_kernel import COUNTED, MIB, PATTERN_BYTES, WIDTHS, floats, pattern, validation_case
from gpusim.units import WARP_SIZE

DRAWN = 20261130
"""Seed of the shapes, drawn before anything was predicted or measured."""
SECOND_THREADS = 256
TOLERANCE = 1e-5
"""Error relative to the sum of sizes: sums in fp32, in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """An entry point: what it sums, and options of the model."""

    axis: str
    dtype: str
    options: Mapping[str, Any]


def kernel(axis: str, dtype: str, vector_bytes: int, threads: int, registers: int, **more: Any) -> Kernel:
    """An entry point with its registers (ptxas, sm_90a)."""
    options = {"vector_bytes": vector_bytes, "threads": threads, "registers": registers, **more}
    return Kernel(axis=axis, dtype=dtype, options=options)


LAST, TWICE = {"finish": "last_cta"}, {"finish": "second_launch"}
KERNELS: Mapping[str, Kernel] = {
    "sum_rows_fp32_v16_u4": kernel("row", "fp32", 16, 512, 32, per="warp"),
    "sum_rows_bf16_v8_u1": kernel("row", "bf16", 8, 512, 20, per="warp", unroll=1),
    "sum_long_last_fp32_v16_u4": kernel("long", "fp32", 16, 512, 40, **LAST),
    "sum_long_last_bf16_v8_u1": kernel("long", "bf16", 8, 512, 24, unroll=1, **LAST),
    "sum_long_twice_fp32_v16_u1": kernel("long", "fp32", 16, 512, 26, unroll=1, **TWICE),
    "sum_long_twice_bf16_v16_u4": kernel("long", "bf16", 16, 512, 64, **TWICE),
    "sum_columns_last_fp32_v16_u4": kernel("column", "fp32", 16, 512, 38, **LAST),
    "sum_columns_last_bf16_v8_u4": kernel("column", "bf16", 8, 512, 40, **LAST),
    "sum_columns_twice_fp32_v16_u4": kernel("column", "fp32", 16, 256, 40, **TWICE),
    "sum_columns_twice_bf16_v16_u4": kernel("column", "bf16", 16, 256, 62, **TWICE),
}
SIZES = (4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
"""Bytes of the array; three are drawn for each entry point."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of a config. ``parts``: CTAs that share a row, or the rows of a group of columns."""

    kernel: str
    rows: int
    columns: int
    dtype: str
    parts: int

    @property
    def entry(self) -> Kernel:
        """Its entry point."""
        return KERNELS[self.kernel]

    @property
    def width(self) -> int:
        """Columns that a warp reads at once."""
        return WARP_SIZE * int(self.entry.options["vector_bytes"]) // WIDTHS[self.dtype]


def drawn(name: str) -> list[Config]:
    """Configs of an entry point. Numbers of elements are powers of two, as those of the pattern's repetition."""
    of, numbers = KERNELS[name], random.Random(f"{DRAWN} {name}")
    found: list[Config] = []
    for size in numbers.sample(SIZES, 3):
        elements = size // WIDTHS[of.dtype]
        if of.axis == "row":
            columns, parts = 2 ** numbers.randint(8, 13), 1
        elif of.axis == "long":
            columns, parts = elements >> numbers.choice((0, 0, 3, 6)), 0
            parts = max(2, min(528 * columns // elements, columns // 4096))
        else:
            columns = 2 ** numbers.randint(10, 13)
            parts = max(2, min(numbers.randint(264, 528) * WARP_SIZE * 4 // columns, elements // columns // 64))
        found.append(Config(kernel=name, rows=elements // columns, columns=columns, dtype=of.dtype, parts=parts))
    return found


def rows() -> list[Config]:
    """Rows by a warp each, and long rows that blocks share; a single row is the entire array."""
    return [config for name, of in KERNELS.items() if of.axis != "column" for config in drawn(name)]


def columns() -> list[Config]:
    """Columns whose rows blocks share."""
    return [config for name, of in KERNELS.items() if of.axis == "column" for config in drawn(name)]


def launch(config: Config) -> KernelLaunch:
    """The sums, and a second launch of the parts where the first has no last block."""
    threads = int(config.entry.options["threads"])
    given = Repeated(pattern(config.dtype), config.rows * config.columns * WIDTHS[config.dtype])  # type: ignore[arg-type]
    is_column, axis = config.entry.axis == "column", config.entry.axis
    num_sums = config.columns if is_column else config.rows
    out = Output("out", np.full(num_sums, np.nan, dtype="<f4"))
    if axis == "row":
        return KernelLaunch(
            kernel=config.kernel, arguments=(given, out, np.int32(config.rows), np.int32(config.columns)),
            grid=(-(-config.rows // (threads // WARP_SIZE)), 1, 1), block=(threads, 1, 1),
        )  # fmt: skip
    parts, counters = Scratch("parts", 4 * num_sums * config.parts), Scratch("counters", 4 * num_sums)
    extents = (np.int32(config.rows), np.int32(config.columns)) if is_column else (np.int64(config.columns),)
    second = KernelLaunch(
        kernel="sum_column_parts" if is_column else "sum_parts",
        arguments=(parts, out, np.int32(num_sums), np.int32(config.parts)),
        grid=(-(-num_sums // (SECOND_THREADS if is_column else SECOND_THREADS // WARP_SIZE)), 1, 1),
        block=(SECOND_THREADS, 1, 1),
    )  # fmt: skip
    is_twice = config.entry.options["finish"] == "second_launch"
    return KernelLaunch(
        kernel=config.kernel, arguments=(given, out, parts, counters, *extents),
        grid=(num_sums // (config.width if is_column else 1), config.parts, 1), block=(threads, 1, 1),
        following=(second,) if is_twice else (),
    )  # fmt: skip


@cache
def sums(axis: str, dtype: str, num_rows: int, num_columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(sums, sums of sizes) of all rows or columns, float64, from one repetition of the pattern."""
    values = floats(np.ascontiguousarray(pattern(dtype)).view(np.uint8), dtype)  # type: ignore[arg-type]  # one of its words
    there = PATTERN_BYTES // WIDTHS[dtype]
    if num_rows * num_columns > there:
        times, shape = num_rows * num_columns // there, (max(1, there // num_columns), min(there, num_columns))
    else:
        times, shape = 1, (num_rows, num_columns)
    block = values[: shape[0] * shape[1]].reshape(shape)
    along = 0 if axis == "column" else 1
    found = block.sum(axis=along), np.abs(block).sum(axis=along)
    if axis == "column":
        return found[0] * times, found[1] * times
    repeats = num_rows // shape[0]
    return np.tile(found[0], repeats) * (times // repeats), np.tile(found[1], repeats) * (times // repeats)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """All sums."""
    wanted, sizes = sums(config.entry.axis, config.dtype, config.rows, config.columns)
    found = outputs["out"].astype(np.float64)
    is_off = ~(np.abs(found - wanted) <= TOLERANCE * sizes)  # NaN is off, too
    if is_off.any():
        place = int(np.argmax(is_off))
        raise WrongAnswer(f"sum {place} is {found[place]:g}, wants {wanted[place]:g}")
    return {}


def options(config: Config) -> dict[str, object]:
    """As ``gpusim predict reduction`` takes them."""
    rows, columns = config.rows, config.columns
    more: dict[str, object] = {"axis": "row", "ctas_per_sum": config.parts}
    if config.entry.axis == "column":
        more = {"axis": "column", "rows_per_cta": -(-config.rows // config.parts)}
    elif rows == 1:  # all elements, as more rows
        more["axis"], rows, columns = "all", columns // 1024, 1024
    return {**config.entry.options, "rows": rows, "columns": columns, "dtype": config.dtype, **more}


CASE: Case = validation_case(
    Case(
        name="grid_reduction",
        question="What do sums take whose parts a counter's last block or a second launch sums?",
        config_type=Config,
        groups={
            name: Group(configs=configs, metrics=COUNTED, rank=4, is_cold=True, times=("single",))
            for name, configs in (("rows", rows), ("columns", columns))
        },
        launch=launch,
        check=check,
        families=lambda group, config: (f"grid_reduction {group}",),
        followers=("sum_parts", "sum_column_parts"),
    ),
    model="reduction",
    options=options,
)
