"""How long does it take to transpose a matrix, by the way that its tiles go?"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any

import numpy as np

from gpusim.evidence.cases.case import Case, Config, Group, KernelLaunch, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.cases.validation_kernel import COUNTED, SIZES, pattern, validation_case, windows

TILE, HEIGHT, ELEMENT_BYTES = 32, 8, 4
WAYS = ("none", "naive", "padded", "swizzled")


def sizes_configs(seed: int) -> list[Config]:
    """Every way at every size, square."""
    del seed  # a sweep, the same for every seed
    sides = [str(isqrt(size // ELEMENT_BYTES)) for size in SIZES]
    return [{"kernel": f"transpose_{way}", "m": side, "n": side} for way in WAYS for side in sides]


def options(config: Config) -> Mapping[str, Any]:
    """The same kernel to the model."""
    way = config["kernel"].removeprefix("transpose_")
    return {"m": int(config["m"]), "n": int(config["n"]), "smem": way, "dtype": "fp32"}


def tensors(config: Config) -> tuple[Repeated, Windows]:
    """What is read, and where it goes."""
    num_bytes = int(config["m"]) * int(config["n"]) * ELEMENT_BYTES
    return Repeated(pattern("fp32"), num_bytes), Windows("out", num_bytes, windows(num_bytes, unit_bytes=ELEMENT_BYTES))


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA for each tile."""
    del is_counted
    m, n = int(config["m"]), int(config["n"])
    return KernelLaunch(
        kernel=config["kernel"], arguments=(*tensors(config), np.int32(m), np.int32(n)),
        grid=(-(-n // TILE), -(-m // TILE), 1), block=(TILE, HEIGHT, 1),
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Every window has the elements that it should.

    Raises:
        WrongAnswer: one has not.
    """
    m, n = int(config["m"]), int(config["n"])
    source, target = tensors(config)
    held = source.array.reshape(-1).view("<u4")
    for (offset, num_bytes), found in zip(target.windows, target.split(outputs["out"]), strict=True):
        column, row = np.divmod(offset // ELEMENT_BYTES + np.arange(num_bytes // ELEMENT_BYTES, dtype=np.int64), m)
        wrong = np.flatnonzero(found.view("<u4") != held[(row * n + column) % len(held)])
        if len(wrong):
            raise WrongAnswer(f"{config['kernel']}: out[{column[wrong[0]]}][{row[wrong[0]]}] is not the input's")
    return {}


CASE = validation_case(
    Case(
        name="transpose",
        question="How long does it take to transpose a matrix, by the way that its tiles go?",
        columns=("m", "n"),
        groups={"sizes": Group(configs=sizes_configs, metrics=COUNTED, rank=4, is_cold=True)},
        launch=launch,
        check=check,
    ),
    model="transpose",
    options=options,
    thread_numbers=2,
)
