"""``tiles``: how a kernel cuts its CTA tile into the tiles of CuTe's tiled MMA and tiled copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpusim.cli.kernel_command import Kernels, kernel_command, kernel_group
from gpusim.cli.options import console_for, find_gpu, spinner, write_json
from gpusim.cli.parameters import checked_params, given_options, gpu_option, json_option, kernel_parameters, output_paths

if TYPE_CHECKING:
    from gpusim.kernel_models import KernelModel


class Tiles(Kernels):
    """One command for each kernel whose CTA tile is cut among warps and instructions."""

    noun = "kernel with CTA tiles"

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of kernels with options for the tile and its warps."""
        from gpusim.kernel_models import KERNEL_MODELS

        return [name for name, row in KERNEL_MODELS.items() if {"tile", "warps"} <= row.params.model_fields.keys()]

    def command_for(self, row: KernelModel, verb: str) -> Any:
        """``tiles`` for one kernel."""
        def command(**values: Any) -> None:
            _tiles(row, values)

        options = [gpu_option("Tiles"), json_option("Write the steps as JSON.")]
        text = f"Tiled copies and tiled MMA of each step, as in CuTe: {row.summary}"
        return kernel_command(row, command, [*kernel_parameters(row), *options], text)


TILES = kernel_group(Tiles, "Show how copies and math cut a CTA tile: CuTe's tiled copies and tiled MMA, without time.")


def _tiles(row: KernelModel, values: Mapping[str, Any]) -> None:
    (json_path,) = output_paths(values).values()
    params: Any = checked_params(row, given_options(row, values))
    gpu = find_gpu(values["gpu"], "--gpu")

    from gpusim.analysis.choose import choose
    from gpusim.kernel_models.gemm.resolve import resolve
    from gpusim.kernel_models.gemm.tiled_steps import TilePartition
    from gpusim.report.tiled_steps import render_partition, shown_partition

    with spinner(f"choosing a configuration of {row.name} for {gpu.name}"):
        chosen: Any = choose(params, gpu).params
        partition = TilePartition(resolve(chosen, gpu), gpu)
    shown = shown_partition(partition)
    if json_path is not None:
        write_json(shown, json_path)
    render_partition(shown, console_for(json_path))
