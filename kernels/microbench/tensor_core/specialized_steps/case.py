"""How long do k-steps, turns, tiles and parts of k of loops with a producer take on their own SMs, operands in L2?"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from gpusim import simulate
from gpusim.evidence.cases.case import Case, Config, Group, Outputs, kernel_folder, load_case
from gpusim.evidence.cases.launch_args import KernelLaunch, Output
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.paths import sass_figures
from gpusim.evidence.cases.tile_walk import grid_include
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec

gemms = sys.modules[load_case("hopper_gemm").launch.__module__]
"""Loops, tiles and answers are those of kernels/hopper_gemm."""

NUM_ROUNDS = 4
"""As in kernel.cu."""
FLAG_WORDS = 32 + 32 + 64 + 256
COLUMNS = (*gemms.COLUMNS, "ctas")
STEP = 64
"""Elements of k of a step."""
ALL_ACROSS = 1024
"""Raster group: tile idx is row idx % rows."""

PINGPONG = ("pp2_64x128x64_c1x1_d1_bf16", "pp2_64x256x64_c1x1_d1_bf16")
SPECIALIZED = ("ws1_64x64x64_c1x1_d1_bf16", "ws1_64x128x64_c1x1_d1_bf16", "ws1_128x128x64_c1x1_d1_bf16")
MULTISTAGE = ("ms1_64x64x64_c1x1_d0_bf16", "ms1_64x128x64_c1x1_d1_bf16", "ms2_128x128x64_c1x1_d1_bf16")
ENTRIES = (*PINGPONG, *SPECIALIZED, *MULTISTAGE)
SMS = (1, measured_gpu().num_sms)
STEPS = (8, 24, 40)
"""An odd number, so that every second config covers all of them."""


def config_of(kernel: str, *, ctas: int, steps: int, tiles: int = 1, parts: int = 1, **others: object) -> Config:
    """A config as text: CTAs with a row of tiles of D each, or with one of its parts of k."""
    rows, columns, _ = gemms.ENTRIES[kernel].tile
    refill = "after_wait" if kernel in MULTISTAGE else ""
    found: Config = gemms.config_of(
        kernel, (rows * (ctas // parts), columns * tiles, STEP * steps * parts), raster_group=ALL_ACROSS, split_k=parts,
        persistent="yes" if kernel in PINGPONG else "no", refill=refill,
        split_k_mode="in_kernel" if parts > 1 else "", **others,
    )  # fmt: skip
    return {**found, "ctas": str(ctas)}


def pingpong(_seed: int) -> list[Config]:
    """Two that take turns at tiles: one SM and all, tiles, steps, ways of D out."""
    return [
        config_of(kernel, ctas=ctas, steps=steps, tiles=tiles, stages=stages, epilogue=epilogue)
        for kernel, stages in zip(PINGPONG, (5, 4), strict=True) for ctas in SMS for epilogue in ("direct", "tma_store")
        for tiles in (1, 2, 6) for steps in STEPS
    ]  # fmt: skip


def alone(_seed: int) -> list[Config]:
    """A tile a CTA: one SM and all, stages, steps."""
    return [
        config_of(kernel, ctas=ctas, steps=steps, stages=stages, epilogue="direct")
        for kernel in (*SPECIALIZED, *MULTISTAGE) for ctas in SMS for stages in (2, 4) for steps in STEPS
    ]  # fmt: skip


def parts(_seed: int) -> list[Config]:
    """Parts of k that are added up in the kernel: tiles by parts."""
    return [
        config_of(kernel, ctas=tiles * num, steps=4, parts=num, stages=4, epilogue="direct")
        for kernel in (MULTISTAGE[0], SPECIALIZED[1], SPECIALIZED[2], MULTISTAGE[2])
        for num in (2, 4, 8) for tiles in (1, 4, 16)
    ]  # fmt: skip


COLD_STEPS = (40, 80, 120)
CYCLES = "sm__cycles_elapsed.max"


def cold(_seed: int) -> list[Config]:
    """One CTA, counted with caches flushed: steps whose operands memory gives alone, or with their neighbours."""
    rings = ((SPECIALIZED[0], 2), (SPECIALIZED[1], 2), (SPECIALIZED[1], 4), (PINGPONG[0], 5), (MULTISTAGE[0], 1),
             (MULTISTAGE[0], 2), (MULTISTAGE[1], 3))  # fmt: skip
    return [
        config_of(kernel, ctas=1, steps=steps, stages=stages, epilogue="direct", promotion=promotion)
        for kernel, stages in rings for promotion in ("128B", "256B") for steps in COLD_STEPS
    ]  # fmt: skip


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """The same launch under the profiler as without."""
    usual: KernelLaunch = gemms.launch(config, is_counted)
    ctas = int(config["ctas"])
    return replace(
        usual, grid=(ctas, 1, 1),
        arguments=(
            *usual.arguments, Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")),
            Output("told", np.full((ctas, NUM_ROUNDS), -1, dtype="<i8")),
        ),
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a CTA, of rounds that find code and operands; the first round's beside.

    Raises:
        WrongAnswer: CTAs that did not meet, a clock that stood still, a product that is wrong.
    """
    told = outputs["told"]
    wrong_if(outputs["flags"][1] or (told == -1).any(), "a wait was given up: CTAs did not meet")
    wrong_if((told <= 0).any(), "the clock stood still")
    gemms.check(config, outputs)
    later = told[:, 1:]
    return {
        "cycles": float(np.median(later.mean(axis=0))), "slowest_cycles": float(np.median(later.max(axis=0))),
        "first_cycles": float(told[:, 0].mean()),
    }  # fmt: skip


SASS = sass_figures("specialized_steps")
"""Tables of ``sass.toml``, with their sources."""
CODE = SASS["code"]


def options(config: Config) -> dict[str, Any]:
    """The same loop to the model, with its own code."""
    code, usual = CODE[config["kernel"]], gemms.options(config)
    changed: dict[str, Any] = {
        "mainloop": {"chain_cycles": code["step"]}, "producer": {"chain_cycles": code["copy"]},
        "tile_scheduler": {
            "chain_cycles": code["tile"], "chain_during_wgmma_cycles": code["tile_beside"],
            "chain_after_turn_cycles": code["turn"], "imad_wide": code["tile_wide"],
        },
    }  # fmt: skip
    if config["epilogue"] == "direct":
        changed["epilogue"] = {
            "chain_cycles": code["store"], "chain_during_wgmma_cycles": code["store_beside"],
            "imad_wide": code["store_wide"],
        }  # fmt: skip
    return {**usual, "compiled_code": usual["compiled_code"].replaced(**changed)}


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """One round with operands in L2: from a CTA's first instruction to its last."""
    ctas = int(config["ctas"])
    if gpu.mbarrier is None or gpu.num_sms < ctas:
        return {}
    launched = replace(GemmParams.model_validate(options(config)).launch(gpu), num_ctas=ctas)
    result = simulate(launched, gpu, clock="max", l2="warm", recorded_sms=range(gpu.num_sms))
    begin: dict[int, float] = {}
    end: dict[int, float] = {}
    for role in result.timeline.roles:
        begin[role.cta_idx] = min(begin.get(role.cta_idx, np.inf), role.states[0][1])
        end[role.cta_idx] = max(end.get(role.cta_idx, 0.0), role.states[-1][2])
    cycles = np.array([end[cta] - begin[cta] for cta in begin])
    return {"cycles": float(cycles.mean()), "slowest_cycles": float(cycles.max())}


def includes() -> dict[str, str]:
    """The loops, their instructions, the entry points, and what kernels of several SMs share."""
    used = sorted({(gemms.ENTRIES[name].dtype, gemms.ENTRIES[name].tile[1]) for name in ENTRIES})
    kinds = sorted({kind for kind, _ in used})
    structs = "".join(f"template <int kN>\nstruct {kind};\n" for kind in kinds)
    structs += "".join(gemms._struct(*one) for one in used)
    entries = "".join(gemms._kernel(gemms.ENTRIES[name]).replace("HOPPER_GEMM(", "STEPS(") for name in ENTRIES)
    return {
        "shapes.inc": structs, "steps.inc": entries,
        "gemm.cuh": (kernel_folder("hopper_gemm") / "kernel.cu").read_text(encoding="utf-8"), **grid_include(),
    }  # fmt: skip


HOPPER = (9, 0)

CASE = Case(
    name="specialized_steps",
    question=__doc__,
    columns=COLUMNS,
    launch=launch, check=check, num_repeats=1, predict=predict, includes=includes,
    groups={
        name: Group(configs=configs, rank=3, least_capability=HOPPER)
        for name, configs in (("pingpong", pingpong), ("alone", alone), ("parts", parts))
    } | {"cold": Group(configs=cold, metrics=(CYCLES,), rank=2, least_capability=HOPPER, is_cold=True)},
    values={
        "cycles": "SM cycles of a CTA's tiles, from its start to its end: mean of the CTAs, median of three rounds",
        "slowest_cycles": "the same of the slowest CTA",
        "first_cycles": "of the first round, mean of the CTAs",
    },
    tiers={"cycles": 4},
)  # fmt: skip
