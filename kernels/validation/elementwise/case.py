"""How long does it take to copy, scale, add or fill tensors, by their size and the width of a thread's accesses?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusim.evidence.cases.case import Argument, Case, Config, Group, KernelLaunch, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.cases.validation_kernel import COUNTED, MIB, SIZES, pattern, validation_case, whole_group, windows

THREADS, ELEMENT_BYTES = 256, 4
VALUE = np.float32(1.5)
KERNELS = (
    *(f"copy_b{width}_i{items}" for items in (1, 4) for width in (4, 8, 16)),
    "scale_b16_i4", "add_b16_i1", "fill_b16_i1", "fill_b16_i4",
)  # fmt: skip
TIMED = tuple(
    (kernel, size)
    for kernel, sizes in (
        ("copy_b16_i1", (64, 256, 1024, 4096)), ("add_b16_i1", (64, 256, 1024, 4096)), ("scale_b16_i4", (256,)),
        ("fill_b16_i4", (256,)),
    )
    for size in sizes
)  # fmt: skip
"""Entry points, and MiB of a tensor, that are timed without the profiler, too."""


def config_of(kernel: str, elements: int) -> Config:
    """A config as text."""
    return {"kernel": kernel, "elements": str(elements)}


def parts(kernel: str) -> tuple[str, int, int]:
    """(operation, bytes of an access, accesses of a thread) of an entry point.

    >>> parts("copy_b16_i4")
    ('copy', 16, 4)
    """
    found = re.fullmatch(r"(\w+)_b(\d+)_i(\d+)", kernel)
    assert found, kernel
    return found[1], int(found[2]), int(found[3])


def share_elements(kernel: str) -> int:
    """Elements of a CTA."""
    _, width, items = parts(kernel)
    return THREADS * items * width // ELEMENT_BYTES


def sizes_configs(seed: int) -> list[Config]:
    """Every entry point at every size of a tensor, but for those that are timed."""
    del seed  # a sweep, the same for every seed
    return [
        config_of(kernel, size // ELEMENT_BYTES)
        for kernel in KERNELS
        for size in SIZES
        if (kernel, size // MIB) not in TIMED
    ]


def timed_configs(seed: int) -> list[Config]:
    """Those that are timed."""
    del seed
    return [config_of(kernel, size * MIB // ELEMENT_BYTES) for kernel, size in TIMED]


def tiny_configs(seed: int) -> list[Config]:
    """Grids of 1, 8 and 132 CTAs; and one CTA whose share is not full."""
    del seed
    found = [
        config_of(kernel, num_ctas * share_elements(kernel))
        for kernel in ("copy_b16_i1", "fill_b16_i1")
        for num_ctas in (1, 8, 132)
    ]
    return [*found, config_of("copy_b16_i1", share_elements("copy_b16_i1") - 25)]


def options(config: Config) -> Mapping[str, Any]:
    """The same kernel to the model."""
    op, width, items = parts(config["kernel"])
    return {
        "op": op, "elements": int(config["elements"]), "vector_bytes": width, "items_per_thread": items, "threads": THREADS,
        "dtype": "fp32", "tail": "elements",
    }  # fmt: skip


def inputs(config: Config) -> tuple[Repeated, Repeated]:
    """What a and b hold; what is not read has room for one vector."""
    op, num_bytes = parts(config["kernel"])[0], int(config["elements"]) * ELEMENT_BYTES
    sizes = {"add": (num_bytes, num_bytes), "fill": (16, 16)}.get(op, (num_bytes, 16))
    return Repeated(pattern("fp32", 0), sizes[0]), Repeated(pattern("fp32", 1), sizes[1])


def output(config: Config) -> Windows:
    """Where the result goes, and which parts of it are looked at."""
    num_bytes = int(config["elements"]) * ELEMENT_BYTES
    return Windows("out", num_bytes, windows(num_bytes, unit_bytes=ELEMENT_BYTES))


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One CTA for each share."""
    del is_counted
    elements = int(config["elements"])
    arguments: tuple[Argument, ...] = (*inputs(config), output(config), VALUE, np.uint64(elements))
    num_ctas = -(-elements // share_elements(config["kernel"]))
    return KernelLaunch(kernel=config["kernel"], arguments=arguments, grid=(num_ctas, 1, 1), block=(THREADS, 1, 1))


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Every window is the reference's to the last bit.

    Raises:
        WrongAnswer: one is not.
    """
    op, (a, b), out = parts(config["kernel"])[0], inputs(config), output(config)
    for (offset, num_bytes), found in zip(out.windows, out.split(outputs["out"]), strict=True):
        wanted = np.full(num_bytes // ELEMENT_BYTES, VALUE) if op == "fill" else a.window(offset, num_bytes).view("<f4")
        if op == "scale":
            wanted = wanted * VALUE
        elif op == "add":
            wanted = wanted + b.window(offset, num_bytes).view("<f4")
        wrong = np.flatnonzero(found.view("<u4") != wanted.view("<u4"))
        if len(wrong):
            at = offset // ELEMENT_BYTES + int(wrong[0])
            raise WrongAnswer(f"{config['kernel']}: element {at} is {found.view('<f4')[wrong[0]]}, wants {wanted[wrong[0]]}")
    return {}


CASE = validation_case(
    Case(
        name="elementwise",
        question="How long does it take to copy, scale, add or fill tensors, by size and width of accesses?",
        columns=("elements",),
        groups={
            "sizes": Group(configs=sizes_configs, metrics=COUNTED, rank=4, is_cold=True),
            "timed": whole_group(timed_configs),
            "tiny": Group(configs=tiny_configs, metrics=COUNTED, rank=4, is_cold=True),
        },
        launch=launch,
        check=check,
    ),
    model="elementwise",
    options=options,
)
