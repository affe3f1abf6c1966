"""How long does it take to copy a matrix through shared memory, by the way that its tiles go?"""

from __future__ import annotations

from collections.abc import Mapping
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


def config_of(kernel: str, size: int) -> Config:
    """A config as text."""
    swizzle = "128B" if kernel == "tma" else kernel.rpartition("_")[2]
    return {"kernel": kernel, "m": str(size // (WIDTH * ELEMENT_BYTES)), "n": str(WIDTH), "swizzle": swizzle}


def sizes_configs(seed: int) -> list[Config]:
    """Every way of threads at every size."""
    del seed  # a sweep, the same for every seed
    return [config_of(kernel, size) for kernel in BY_THREADS for size in SIZES]


def tma_configs(seed: int) -> list[Config]:
    """TMA at every size."""
    del seed
    return [config_of("tma", size) for size in SIZES]


def options(config: Config) -> Mapping[str, Any]:
    """The same kernel to the model."""
    way = config["kernel"].removesuffix("_none").removesuffix("_128B")
    return {
        "m": int(config["m"]), "n": int(config["n"]), "tile": (ROWS, COLUMNS), "copy": way, "swizzle": config["swizzle"],
        "dtype": "bf16",
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
    return KernelLaunch(
        kernel=config["kernel"], arguments=arguments, grid=(-(-n // COLUMNS), -(-m // ROWS), 1),
        block=(TMA_THREADS if by_tma else THREADS, 1, 1),
    )  # fmt: skip


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
            "tma": Group(configs=tma_configs, metrics=COUNTED, rank=4, least_capability=(9, 0), is_cold=True),
        },
        launch=launch,
        check=check,
    ),
    model="smem_copy",
    options=options,
)
