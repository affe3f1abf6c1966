"""How long does hopper_gemm take with clusters of four and eight, tiles of few columns, and no wgmma left in flight?"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from gpusim.evidence.cases.case import Case, Config, load_case
from gpusim.evidence.cases.gemm_case import problem_of
from gpusim.evidence.cases.paths import kernel_folder
from gpusim.evidence.cases.validation_kernel import GEMM_LIMITS, validation_case
from gpusim.workload.compiled_code import CompiledCode, code_from

hopper = import_module(load_case("hopper_gemm").launch.__module__)
"""Launches, checks and options of hopper_gemm, which take any entry point by its name."""

SEED = 20261203
"""Seed of all configs. It was chosen before any of them was predicted or measured."""

NAMES = (
    "co2_128x128x64_c2x2_d1_regs_bf16", "co2_128x128x64_c4x1_d1_regs_bf16", "co2_128x128x64_c1x4_d1_regs_bf16",
    "co2_128x128x64_c4x2_d1_regs_bf16", "co2_128x256x64_c2x2_d1_regs_bf16", "co2_128x256x64_c4x1_d1_regs_bf16",
    "co2_128x256x64_c2x4_d1_regs_bf16", "co2_128x256x64_c8x1_d1_regs_bf16", "ws1_64x128x64_c1x4_d1_bf16",
    "ws1_64x16x64_c1x1_d1_bf16", "ws1_64x32x64_c1x1_d1_bf16", "co2_128x128x64_c1x1_d0_regs_bf16",
    "co2_128x128x128_c2x2_d1_regs_fp8",
)  # fmt: skip
"""Entry points, named as those of hopper_gemm."""
ENTRIES = {name: hopper.Entry.named(name) for name in NAMES}
OF_ENTRY = 2
RESIDENT_RANKS = 2
"""Largest clusters of a persistent grid: larger ones do not fill all SMs, which the kernel takes for granted."""
FAMILIES = {True: "clusters", False: "others"}


def includes() -> dict[str, str]:
    """``hopper_gemm.inc``, the kernel, and ``shapes.inc``, its entry points."""
    kernel = (kernel_folder("hopper_gemm") / "kernel.cu").read_text(encoding="utf-8")
    return {"hopper_gemm.inc": kernel, "shapes.inc": hopper.shapes(list(ENTRIES.values()))}


def drawn(seed: int) -> list[Config]:
    """Two configs of each entry point; no other seed changes them."""
    del seed
    draw = random.Random(f"{SEED} hopper_knobs")
    evenly = hopper.Evenly(draw)
    entries = [entry for entry in ENTRIES.values() for _ in range(OF_ENTRY)]
    draw.shuffle(entries)
    return [hopper.drawn_for(entry, evenly, may_persist=entry.num_ranks <= RESIDENT_RANKS) for entry in entries]


@cache
def codes() -> Mapping[str, CompiledCode]:
    """Compiled code by entry point and epilogue, of ``code.toml``."""
    path = kernel_folder("hopper_knobs") / "code.toml"
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return {key: code_from(record, source="sass", origin=key) for key, record in found.items()}


def options(config: Config) -> dict[str, Any]:
    """Options of the GEMM model."""
    return {**hopper.options_without_code(config), "compiled_code": codes()[f"{config['kernel']} {config['epilogue']}"]}


def families(group: str, config: Config) -> tuple[str, ...]:
    """Clusters, and all others."""
    del group
    return (f"hopper_knobs {FAMILIES[hopper.entry_of(config).num_ranks > 1]}",)


CASE = replace(
    validation_case(
        Case(
            name="hopper_knobs",
            question=__doc__,
            columns=hopper.COLUMNS,
            groups={"drawn": hopper.group(drawn)},
            launch=hopper.launch,
            check=hopper.check,
            values={"error_share": "largest error of the sample, of what rounding allows"},
            limits=GEMM_LIMITS,
            families=families,
            problem=lambda config: problem_of(config, hopper.entry_of(config).dtype),
            includes=includes,
            checks_counted=False,
        ),
        model="gemm",
        options=options,
    ),
)
