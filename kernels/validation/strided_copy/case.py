"""How long does it take to gather every n-th element of a tensor?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusim.evidence.cases.case import Case, Config, Group, KernelLaunch, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.cases.validation_kernel import COUNTED, SIZES, pattern, validation_case, windows

THREADS, ELEMENT_BYTES = 256, 4
STRIDES = (2, 8, 32)
"""Elements: half of each sector, one of each sector, one of each line."""


def sizes_configs(seed: int) -> list[Config]:
    """Every stride at every size of what the input spans; one element a thread."""
    del seed  # a sweep, the same for every seed
    return [
        {"kernel": "strided_copy_i1", "elements": str(size // ELEMENT_BYTES // stride), "stride": str(stride)}
        for stride in STRIDES
        for size in SIZES
    ]


def items_of(kernel: str) -> int:
    """Elements of a thread.

    >>> items_of("strided_copy_i4")
    4
    """
    return int(kernel.rpartition("_i")[2])


def options(config: Config) -> Mapping[str, Any]:
    """The same kernel to the model."""
    return {
        "elements": int(config["elements"]), "stride": int(config["stride"]), "items_per_thread": items_of(config["kernel"]),
        "threads": THREADS, "dtype": "fp32",
    }  # fmt: skip


def tensors(config: Config) -> tuple[Repeated, Windows]:
    """What is read, and where its elements go."""
    num_bytes = int(config["elements"]) * ELEMENT_BYTES
    return (
        Repeated(pattern("fp32"), num_bytes * int(config["stride"])),
        Windows("out", num_bytes, windows(num_bytes, unit_bytes=ELEMENT_BYTES)),
    )


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA for each share."""
    del is_counted
    elements = int(config["elements"])
    return KernelLaunch(
        kernel=config["kernel"],
        arguments=(*tensors(config), np.uint64(elements), np.uint64(int(config["stride"]))),
        grid=(-(-elements // (THREADS * items_of(config["kernel"]))), 1, 1),
        block=(THREADS, 1, 1),
    )


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Every window has the elements that it should.

    Raises:
        WrongAnswer: one has not.
    """
    source, target = tensors(config)
    held = source.array.reshape(-1).view("<u4")
    for (offset, num_bytes), found in zip(target.windows, target.split(outputs["out"]), strict=True):
        at = offset // ELEMENT_BYTES + np.arange(num_bytes // ELEMENT_BYTES, dtype=np.int64)
        wrong = np.flatnonzero(found.view("<u4") != held[at * int(config["stride"]) % len(held)])
        if len(wrong):
            raise WrongAnswer(f"{config['kernel']}: element {int(at[wrong[0]])} is not the input's")
    return {}


CASE = validation_case(
    Case(
        name="strided_copy",
        question="How long does it take to gather every n-th element of a tensor?",
        columns=("elements", "stride"),
        groups={"sizes": Group(configs=sizes_configs, metrics=COUNTED, rank=4, is_cold=True)},
        launch=launch,
        check=check,
    ),
    model="strided_copy",
    options=options,
)
