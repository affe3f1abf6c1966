"""How long does a transpose without tiles take, by matrix, element, CTA size and elements a thread?"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Config, KernelLaunch, Outputs, Repeated, Windows
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import check_windows
from gpusim.evidence.cases.validation_kernel import pattern, validation_case, whole_group, windows

EXTENTS = (500, 1000, 1024, 2048, 3000, 4096, 8192)
KERNELS = ("transpose_b32_i1", "transpose_b32_i2", "transpose_b32_i4", "transpose_b16_i2", "transpose_b16_i4")
NUM_DRAWN = 15


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config: rows and columns of the input, threads of a CTA."""

    kernel: str
    _: KW_ONLY
    rows: int
    columns: int
    threads: int

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return 4 if "_b32_" in self.kernel else 2

    @property
    def num_items(self) -> int:
        """Elements of a thread."""
        return int(self.kernel.rpartition("_i")[2])


def drawn(seed: int) -> list[Config]:
    """Matrices of 16 and 32 bits, square and not, aligned and not."""
    draw = random.Random(f"{seed} transpose_rowwise")
    return [
        Row(
            KERNELS[place % len(KERNELS)], rows=draw.choice(EXTENTS), columns=draw.choice(EXTENTS),
            threads=draw.choice((128, 256, 512)),
        )
        for place in range(NUM_DRAWN)
    ]  # fmt: skip


def options(given: Config) -> Mapping[str, Any]:
    """Options of the transpose model."""
    config = Row.of(given)
    return {
        "m": config.rows, "n": config.columns, "dtype": "fp32" if config.element_bytes == 4 else "bf16", "smem": "none",
        "coalesced": "stores", "threads": config.threads, "items_per_thread": config.num_items,
    }  # fmt: skip


def source(config: Row) -> Repeated:
    """Input."""
    return Repeated(pattern("fp32"), config.rows * config.columns * config.element_bytes)


def target(config: Row) -> Windows:
    """Output, and the windows that are checked."""
    num_bytes = config.rows * config.columns * config.element_bytes
    return Windows("out", num_bytes, windows(num_bytes, unit_bytes=config.element_bytes))


def launch(config: Row) -> KernelLaunch:
    """A CTA for each share of the output."""
    num_ctas = -(-config.rows * config.columns // (config.threads * config.num_items))
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(source(config), target(config), np.uint32(config.rows), np.uint32(config.columns)),
        grid=(num_ctas, 1, 1), block=(config.threads, 1, 1),
    )  # fmt: skip


def expected(config: Row, offset: int, num_bytes: int) -> NDArray[np.uint8]:
    """Bytes of a window of the output."""
    held, width = source(config).array.reshape(-1).view(np.uint8), config.element_bytes
    column, row = np.divmod(offset // width + np.arange(num_bytes // width, dtype=np.int64), config.rows)
    first = (row * config.columns + column) * width
    return np.asarray(held[(first[:, None] + np.arange(width)) % len(held)].reshape(-1))


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Every byte of the windows is the reference's.

    Raises:
        WrongAnswer: a byte differs.
    """
    check_windows(target(config), outputs["out"], partial(expected, config), config.kernel)
    return {}


CASE = validation_case(
    Case(
        name="transpose_rowwise", question=__doc__, config_type=Row, groups={"drawn": whole_group(drawn)}, launch=launch,
        check=check,
    ),
    model="transpose",
    options=options,
)
