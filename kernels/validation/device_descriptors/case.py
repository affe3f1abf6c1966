"""How long does a GEMM of Triton take that makes its tensor maps in the kernel (``make_tensor_descriptor``)?"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpusim.evidence.cases.case import Case, Config, Product
from gpusim.evidence.cases.gemm_case import check, number_of, product_case, product_group
from gpusim.evidence.cases.paths import sass_figures
from gpusim.workload.compiled_code import NO_CODE, CompiledCode

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

SHAPES = (
    (1024, 1024, 1024), (2048, 2048, 4096), (4096, 4096, 4096), (8192, 8192, 1024), (2048, 16384, 2048), (16384, 4096, 1024),
)  # fmt: skip
"""M, N, K."""
BUILDS = (
    ((64, 64, 64), 4, 4), ((128, 64, 64), 4, 3), ((64, 128, 128), 4, 2), ((128, 128, 64), 4, 3), ((128, 128, 64), 8, 3),
    ((128, 128, 64), 8, 4), ((128, 256, 64), 8, 3), ((256, 128, 64), 8, 3),
)  # fmt: skip
"""Tiles, warps, stages that an SM has shared memory for."""
KERNELS = ("one_tile", "one_tile_assumed", "persistent")
RASTER_GROUPS = (1, 4, 8, 16)
EACH = 10
SASS, LEAST_STAGES = sass_figures("tile_gemm"), 2
"""Compiler figures by tile, warps and stages; stages of the first figure."""
ENDS = 2
"""Waits of a build that is not serialized: of the loop, and behind it."""
COLUMNS = ("m", "n", "k", "tile", "num_stages", "num_warps", "raster_group")


def drawn(seed: int) -> list[Config]:
    """Each kernel with shapes, builds and raster groups in drawn orders."""
    draw = random.Random(f"{seed} device_descriptors")
    found: list[Config] = []
    for kernel in KERNELS:
        orders = [draw.sample(values, len(values)) for values in (SHAPES, BUILDS, RASTER_GROUPS)]
        for shape, (tile, warps, stages), group in itertools.islice(zip(*map(itertools.cycle, orders), strict=False), EACH):
            found.append({
                "kernel": kernel, **dict(zip("mnk", map(str, shape), strict=True)), "tile": "x".join(map(str, tile)),
                "num_stages": str(stages), "num_warps": str(warps), "raster_group": str(group),
            })  # fmt: skip
    return found


def tile_of(config: Config) -> tuple[int, int, int]:
    """M, N, K of a CTA's tile."""
    m, n, k = map(int, config["tile"].split("x"))
    return m, n, k


def launch(config: Config) -> Product:
    """GEMM by Triton, with and without the profiler."""
    m, n, k = (int(config[name]) for name in "mnk")
    return Product(
        m=m, n=n, k=k, kernel=config["kernel"], tile=tile_of(config), num_stages=int(config["num_stages"]),
        num_warps=int(config["num_warps"]), raster_group=int(config["raster_group"]),
    )  # fmt: skip


def code_of(config: Config, row: Mapping[str, str]) -> CompiledCode:
    """Figures of the build with maps from the host, in ``sass.toml`` of tile_gemm; waits and registers are the row's own."""
    waits = row.get("wgmma_waits", "").split()
    registers = number_of(row, "launch__registers_per_thread") or number_of(row, "registers")
    cycles = SASS["step"][f"{config['tile']} {config['num_warps']}"][int(config["num_stages"]) - LEAST_STAGES]
    return NO_CODE.replaced(
        source="sass", origin=f"{config['kernel']} of Triton", registers=registers,
        mainloop={
            "chain_cycles": cycles, "wgmma_depth": int(waits[0]) if waits else None,
            "wgmma_serialized": len(waits) > ENDS and set(waits) == {"0"},
        },
        producer={"chain_cycles": SASS["all"]["copy_cycles"]},
    )  # fmt: skip


def options(config: Config, row: Mapping[str, str], gpu: GpuSpec) -> dict[str, Any]:
    """Options of the GEMM model; registers and waits are those of the compiled kernel, where the row has them.

    Triton's loop waits for the slot, issues the math, waits, and loads into the slot that the wait has freed. D goes through
    shared memory to TMA.
    """
    del gpu
    return {
        **{name: int(config[name]) for name in "mnk"}, "layout": "tn", "tile": config["tile"],
        "stages": int(config["num_stages"]), "schedule": "multistage", "math": "wgmma", "copy": "tma",
        "consumer_warpgroups": int(config["num_warps"]) // 4, "consumer_split": "m", "epilogue": "tma_store",
        "wgmma_depth": 1, "prefetch": "after_wait", "raster": "along_n", "compiled_code": code_of(config, row),
        "swizzle_size": int(config["raster_group"]), "prefetch_tensormap": False, "tensormaps": "device",
        "persistent": config["kernel"] == "persistent",
    }  # fmt: skip


def families(group: str, config: Config) -> tuple[str, ...]:
    """Family of each kernel, and of all."""
    del group
    return ("device_descriptors", f"device_descriptors {config['kernel']}")


CASE = product_case(
    Case(
        name="device_descriptors",
        question=__doc__,
        framework="triton",
        columns=COLUMNS,
        groups={"drawn": product_group(drawn)},
        launch=launch,
        text_columns=lambda config, facts: {},
        families=families,
        values={
            "smem_bytes": "shared memory of a CTA, as Triton reports",
            "registers": "registers of a thread, of the compiled kernel",
            "spills": "loads and stores of local memory, in its SASS",
            "wgmma": "shapes of wgmma in its SASS, with their number",
            "wgmma_waits": "groups that each wait leaves in flight, in order, in its SASS",
            "cp_async_waits": "groups of cp.async that each wait leaves in flight",
            "opcodes": "copies and stores in its SASS",
        },
        check=check,
    ),
    options=options,
)
