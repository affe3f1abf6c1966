"""``banks``: bank conflicts of a warp's access to a shared-memory tile, and bank conflict fixes."""

from __future__ import annotations

import inspect
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from gpusim.cli.options import console_for, write_json
from gpusim.cli.parameters import REQUIRED, json_option, option, output_paths, plot_option
from gpusim.report.layout_arguments import BanksAsked, lanes_of

if TYPE_CHECKING:
    from gpusim.workload.smem.tile_access import TileAccess


class BanksCommand(TyperCommand):
    """Command whose help lists the known instructions; they are looked up only for the help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        from gpusim.workload.smem.smem_ops import smem_op_families

        families = ", ".join(smem_op_families().values()).replace("[", r"\[")
        shown = copy(self)
        shown.params = [copy(param) for param in self.params]
        for param in shown.params:
            if param.name == "access":
                param.help = f"{param.help}. Known: {families}"  # type: ignore[attr-defined]  # it is an option
        super(BanksCommand, shown).format_help(ctx, formatter)


def banks_command(**values: Any) -> None:
    """Count bank conflicts of a warp's access to shared memory, and find the swizzle or padding that removes them.

    Without --threads, ldmatrix and stmatrix access a fragment of A at --at.
    Lanes 8i to 8i+7 give the 8 rows of matrix i. For 16-bit elements, matrices
    start at (0,0), (8,0), (0,8), (8,8).
    In loads, stores, cp.async and atomics, lane i has the i-th vector along
    the contiguous mode, row after row.

    For example:
    gpusim banks --layout '(64,64):(64,1)' --dtype bf16 --access ldmatrix_x4
    """
    outputs, access = output_paths(values), values["access"]
    sources = values["sources"]
    asked = BanksAsked(
        access=tuple(access), threads=lanes_of(access, values["threads"]),
        sources=lanes_of(access, sources, "--sources", "adjacent ones") if sources else (),
        **{name: values[name] for name in ("layout", "dtype", "swizzle", "at")},
    )
    accesses = asked.accesses()
    if len(accesses) == 1:
        _write_one(accesses[0], asked, outputs["--json"], outputs["--plot"])
    else:
        _write_joint(accesses, asked, outputs["--json"], outputs["--plot"])
    if outputs["--plot"] is not None:
        console_for(Path("-")).print(f"Plot: {outputs['--plot']}", soft_wrap=True)


def _write_one(access: TileAccess, asked: BanksAsked, json_path: Path | None, plot_path: Path | None) -> None:
    from gpusim.report.banks import banks_document, render_banks
    from gpusim.workload.smem.bank_conflict_fixes import study

    found, dtype_name, remarks = study(access), asked.element.name, asked.remarks([access])
    if plot_path is not None:
        from gpusim.report.plots.banks import plot_banks

        plot_banks(found, plot_path)
    if json_path is not None:
        write_json(banks_document(found, dtype_name=dtype_name, remarks=remarks), json_path)
    fix = found.padding
    if found.swizzle is not None and (found.swizzle.census.is_free or fix is None):
        fix = found.swizzle
    following = None if found.census.is_free or fix is None else asked.fixed(fix).command()
    render_banks(found, console_for(json_path), dtype_name=dtype_name, remarks=remarks, next_command=following)


def _write_joint(accesses: list[TileAccess], asked: BanksAsked, json_path: Path | None, plot_path: Path | None) -> None:
    from gpusim.report.banks import joint_document, render_joint
    from gpusim.workload.smem.bank_conflict_fixes import study_jointly

    found, dtype_name, remarks = study_jointly(accesses), asked.element.name, asked.remarks(accesses)
    if plot_path is not None:
        from gpusim.report.plots.banks import plot_joint

        plot_joint(found, plot_path)
    if json_path is not None:
        write_json(joint_document(found, dtype_name=dtype_name, remarks=remarks), json_path)
    following = None if found.fix is None else asked.fixed(found.fix).command()
    render_joint(found, console_for(json_path), dtype_name=dtype_name, remarks=remarks, next_command=following)


banks_command.__signature__ = inspect.Signature([  # type: ignore[attr-defined]  # typer reads options from it
    option("layout", "The tile in shared memory, in CuTe's notation; with a swizzle, too.", default=REQUIRED,
           metavar="LAYOUT"),
    option("dtype", "Element type: bf16, fp32, fp8, ...", default=REQUIRED, metavar="NAME"),
    option("access", "The instruction; given several times, accesses to the same tile, all of which one swizzle or padding "
           "is to free", list[str], REQUIRED, metavar="NAME"),
    option("swizzle", "A swizzle over the layout: B,M,S in elements, or 32B, 64B, 128B of TMA and wgmma (in bytes).",
           metavar="B,M,S|MODE"),
    option("threads", "Layout from lane to the first element of its vector: the index in the tile (mode 0 counts first), or "
           "a coordinate. 32:1@0 is one lane a row. Lanes from the 33rd on are those of a second instruction: (32,2) is "
           "(lane,instruction). With several --access, one each in the same order, _ for the usual lanes.", list[str],
           metavar="LAYOUT"),
    option("sources", "For cp.async: layout from lane to the element of global memory from which it reads on. 32:16 is one "
           "vector of 8 in each 16. With several --access, one each, _ for adjacent ones.", list[str], metavar="LAYOUT"),
    option("at", "Where the access starts in the tile, for example (0,16).", metavar="COORD"),
    json_option("Write the result as JSON."),
    plot_option("Draw lanes and banks, as they are and mended."),
])  # fmt: skip
