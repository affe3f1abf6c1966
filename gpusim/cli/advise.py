"""``advise``: ranks the configurations of a kernel, and says the best in the words of CUTLASS, Triton and CuTe DSL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpusim.cli.kernel_command import Kernels, kernel_command, kernel_group
from gpusim.cli.options import console_for, find_gpu, name_of, spinner, write_json
from gpusim.cli.parameters import (
    given_options,
    json_option,
    kernel_parameters,
    option,
    output_paths,
    simulation_options,
    simulation_settings,
)
from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from gpusim.kernel_models import KernelModel


class Advices(Kernels):
    """``advise``."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Kernels that have a choice of configurations."""
        from gpusim.kernel_models import KERNEL_MODELS

        return [name for name, row in KERNEL_MODELS.items() if row.stated]

    def command_for(self, row: KernelModel, verb: str) -> Any:
        """``advise`` for one kernel."""
        def command(**values: Any) -> None:
            _advise(row, values)

        options = [
            *simulation_options("Simulation"),
            option("library", "Only configurations that it has: cutlass, triton or cute_dsl [default: all].", str, None,
                   metavar="NAME", panel="Output"),
            option("top", "Configurations that are listed.", int, 10, metavar="N", panel="Output"),
            json_option("Write bound, distance from it, first reason and next change as JSON."),
        ]
        return kernel_command(row, command, [*kernel_parameters(row), *options], f"Advise: {row.summary}")


ADVISE = kernel_group(Advices, "Choose a configuration, say why, and say it in the words of CUTLASS, Triton and CuTe DSL.")


def _advise(row: KernelModel, values: Mapping[str, Any]) -> None:
    given, outputs, top = given_options(row, values), output_paths(values), values["top"]
    if top < 1:
        raise ConfigError(f"--top {top} is too few, wants 1 or more")
    settings = simulation_settings(values)
    gpu = find_gpu(values["gpu"], "--gpu")

    from gpusim.analysis.advise import advise
    from gpusim.report.advise import render_advice

    with spinner(f"choosing a configuration of {row.name} for {gpu.name}"):
        advice = advise(row.name, gpu, library=values["library"], simulate_options=settings, **given)
    json_path = outputs["--json"]
    if json_path is not None:
        write_json(advice.as_dict(top=top), json_path)
    render_advice(advice, console_for(json_path), top=top, given=given, gpu_name=name_of(values["gpu"], gpu))
