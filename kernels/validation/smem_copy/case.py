"""How long does it take to copy a matrix through shared memory, by the way that its tiles go?"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gpusim.evidence.cases.case import (
    Argument,
    Case,
    Config,
    Group,
    KernelLaunch,
    MappedTensor,
    Outputs,
    Repeated,
    Windows,
    WrongAnswer,
)
from gpusim.evidence.cases.validation_kernel import COUNTED, SIZES, pattern, validation_case, windows
from gpusim.workload.dtypes import BF16
from gpusim.workload.tma.boxes import TensorMap

ROWS, COLUMNS, ELEMENT_BYTES = 128, 64, 2
"""Of a tile."""
WIDTH = 4096
"""Columns of the matrix: rows of 8 KiB."""
THREADS, TMA_THREADS = 256, 32
BY_THREADS = ("scalar_none", "vectorized_none", "vectorized_128B", "cp_async_none")
SMALL_CTAS = ("scalar_none_64", "vectorized_none_32", "cp_async_none_32")
ALONG_M = "_along_m"
LADDER = (*SMALL_CTAS, *(f"{name}{ALONG_M}" for name in (*SMALL_CTAS, "vectorized_none", "cp_async_none")))
LADDER_EXTENTS = (4096, 8192, 16384)
NAME = re.compile(r"(?P<way>scalar|vectorized|cp_async|tma)(_(none|128B))?(_(?P<threads>\d+))?(?P<along_m>_along_m)?")


def config_of(kernel: str, size: int) -> Config:
    """A config as text."""
    swizzle = "128B" if kernel in ("tma", "vectorized_128B") else "none"
    return {"kernel": kernel, "m": str(size // (WIDTH * ELEMENT_BYTES)), "n": str(WIDTH), "swizzle": swizzle}


def sizes_configs(seed: int) -> list[Config]:
    """Every way of threads at every size."""
    del seed  # a sweep, the same for every seed
    return [config_of(kernel, size) for kernel in BY_THREADS for size in SIZES]


def tma_configs(seed: int) -> list[Config]:
    """TMA at every size."""
    del seed
    return [config_of("tma", size) for size in SIZES]


def ladder_configs(seed: int) -> list[Config]:
    """The copies of introductions to CuTe: one warp, two of the scalar one, tiles along n first and along m first."""
    del seed
    return [
        {"kernel": kernel, "m": str(extent), "n": str(extent), "swizzle": "none"}
        for kernel in LADDER for extent in LADDER_EXTENTS
    ]  # fmt: skip


def options(config: Config) -> dict[str, Any]:
    """The same kernel to the model."""
    name = NAME.fullmatch(config["kernel"])
    assert name is not None
    return {
        "m": int(config["m"]), "n": int(config["n"]), "tile": (ROWS, COLUMNS), "copy": name["way"], "dtype": "bf16",
        "swizzle": config["swizzle"], "threads": int(name["threads"] or THREADS),
        "raster": "along_m" if name["along_m"] else "along_n",
    }  # fmt: skip


def tensors(config: Config) -> tuple[Repeated, Windows]:
    """What is copied, and where to."""
    num_bytes = int(config["m"]) * int(config["n"]) * ELEMENT_BYTES
    return Repeated(pattern("bf16"), num_bytes), Windows("out", num_bytes, windows(num_bytes))


def tensor_map(config: Config) -> TensorMap:
    """Of either matrix: boxes of a tile."""
    m, n = int(config["m"]), int(config["n"])
    return TensorMap(
        dtype=BF16, global_dim=(n, m), global_strides_bytes=(n * ELEMENT_BYTES,), box_dim=(COLUMNS, ROWS),
        swizzle=config["swizzle"],
    )  # fmt: skip


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA for each tile."""
    del is_counted
    m, n = int(config["m"]), int(config["n"])
    source, target = tensors(config)
    by_tma = config["kernel"] == "tma"
    arguments: tuple[Argument, ...] = (source, target, np.int32(m), np.int32(n))
    if by_tma:
        arguments = (MappedTensor(source, tensor_map(config)), MappedTensor(target, tensor_map(config)))
    asked, across, down = options(config), -(-n // COLUMNS), -(-m // ROWS)
    grid = (across, down, 1) if asked["raster"] == "along_n" else (down, across, 1)
    threads = TMA_THREADS if by_tma else asked["threads"]
    return KernelLaunch(kernel=config["kernel"], arguments=arguments, grid=grid, block=(threads, 1, 1))


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Every window is as it was.

    Raises:
        WrongAnswer: one is not.
    """
    source, target = tensors(config)
    for (offset, num_bytes), found in zip(target.windows, target.split(outputs["out"]), strict=True):
        wrong = np.flatnonzero(found != source.window(offset, num_bytes))
        if len(wrong):
            raise WrongAnswer(f"{config['kernel']}: byte {offset + int(wrong[0])} is not what was copied")
    return {}


CASE = validation_case(
    Case(
        name="smem_copy",
        question="How long does it take to copy a matrix through shared memory, by the way that its tiles go?",
        columns=("m", "n", "swizzle"),
        groups={
            "sizes": Group(configs=sizes_configs, metrics=COUNTED, rank=4, is_cold=True),
            "ladder": Group(configs=ladder_configs, metrics=COUNTED, rank=4, is_cold=True),
            "tma": Group(configs=tma_configs, metrics=COUNTED, rank=4, least_capability=(9, 0), is_cold=True),
        },
        launch=launch,
        check=check,
    ),
    model="smem_copy",
    options=options,
)
