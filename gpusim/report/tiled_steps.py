"""Two levels of tiles of a GEMM as text and JSON: CTA tile, shared memory, fragments, and the steps that cut the tile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from gpusim.kernel_models.gemm.tiled_steps import TilePartition
from gpusim.report.tables import facts_table, plain_table
from gpusim.workload.atoms import cute_name

UNIT = {"wgmma": "warpgroup"}
"""Unit that issues the math, where that is no warp."""


def shown_partition(partition: TilePartition) -> dict[str, Any]:
    """JSON document of a partition."""
    config, mma = partition.config, partition.mma
    return {
        "tile": list(config.tile), "stages": config.stages, "math": config.math, "copy": config.copy_,
        "schedule": config.schedule, "epilogue": config.epilogue,
        "atom_layout_mnk": str(mma.atom_layout_mnk), "part_mn": list(config.partition.warp_tile),
        "shared_memory": {
            name: str(operand.smem_layout) for name, operand in zip("AB", config.mainloop.operands, strict=True)
        },
        "fragments": partition.fragments(), "slice_columns": partition.slice_columns,
        "steps": [
            {"step": step.name, "tensor": step.what, "atom": step.atom.name, "cute": cute_name(step.atom),
             "num_threads": step.num_threads, "part": list(step.extents), "tile": list(step.tile),
             "repeats": list(step.repeats), "num_instructions": step.num_instructions,
             "layout_tv": None if step.layout_tv is None else str(step.layout_tv)}
            for step in partition.steps
        ],
    }  # fmt: skip


def render_partition(shown: Mapping[str, Any], console: Console) -> None:
    """Print a partition."""
    unit, (rows, columns) = UNIT.get(shown["math"], "warp"), shown["part_mn"]
    facts = [
        ("CTA tile", f"{_by(shown['tile'])} (M x N x K), {shown['stages']} stages"),
        (f"{unit.capitalize()}s", f"{shown['atom_layout_mnk']}, each with {rows} x {columns} adjacent elements of D"),
        *((f"s{name}", f"{layout}, a stage") for name, layout in shown["shared_memory"].items()),
        *((f"r{name}", f"{shape} of a thread") for name, shape in shown["fragments"].items()),
    ]
    facts += dict.fromkeys((step["step"], step["cute"] or step["atom"]) for step in shown["steps"])
    if shown["slice_columns"]:
        facts.append(("D", f"leaves in slices of {shown['slice_columns']} columns; r2s and s2g are those of a slice"))
    console.print(facts_table(facts))
    console.print()
    table = plain_table("", "Step", "Threads", "Part", "Tile", "Repeats", "Instructions")
    for step in shown["steps"]:
        table.add_row(
            f"{step['step']} {step['tensor']}".rstrip(), str(step["num_threads"]),
            *(_by(step[name]) for name in ("part", "tile", "repeats")), str(step["num_instructions"]),
        )  # fmt: skip
    table.title = None
    console.print(table)
    console.print()
    console.print(
        "Tile: what one instruction of each thread covers, or a box of TMA. Instructions: of a warp, a warpgroup, "
        "or the thread that issues TMA. g: global memory, s: shared memory, r: registers. --json: TV layouts."
    )


def _by(extents: list[int]) -> str:
    return "x".join(map(str, extents))
