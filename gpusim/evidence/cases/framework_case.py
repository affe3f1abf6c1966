"""Cases of tensor operations that torch launches: output checks and predictions from names and launches.

In: a case, and a function from a config and its launch to a kernel model and options. Out: a :class:`Case` whose rows judge
and never calibrate, as in :mod:`gpusim.evidence.cases.validation_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.errors import KernelError, LaunchError
from gpusim.evidence.cases import validation_kernel as whole
from gpusim.evidence.cases.case import Answer, Case, Config, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.gemm_case import TOLD, number_of, of_launches
from gpusim.evidence.cases.judged_metrics import tiers_of
from gpusim.evidence.toolchain.torch_kernels import ModelOptions
from gpusim.kernel_models import KERNEL_MODELS

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec
    from gpusim.workload.launch import Launch

ROUNDING = {"fp32": 2.0**-16, "bf16": 2.0**-7, "fp16": 2.0**-10}
"""Relative error that is allowed, by type: twice the rounding of the result, and more for arithmetic in fp32."""


def operation_group(configs: Callable[[], list[Config]]) -> Group:
    """Group of operations: counted with caches flushed, and timed in both protocols."""
    return Group(
        configs=configs, metrics=whole.COUNTED, rank=4, is_cold=True, times=("single", "sustained"),
    )  # fmt: skip


def check_sample(dtype: str, outputs: Outputs, *, absolute: float) -> dict[str, float]:
    """Largest error of the sample, as a fraction of the allowed error: ``absolute``, and the rounding of ``dtype``.

    Raises:
        WrongAnswer: an element is no number, or its error exceeds what is allowed.
    """
    found, reference = outputs["out"], outputs["reference"]
    if found.shape != reference.shape or not found.size:
        raise WrongAnswer(f"a sample of shape {found.shape} came, wants that of the reference, {reference.shape}")
    if not np.isfinite(found).all():
        raise WrongAnswer(f"{np.count_nonzero(~np.isfinite(found))} of {found.size} elements were not written")
    worst = float((np.abs(found - reference) / (absolute + ROUNDING[dtype] * np.abs(reference))).max())
    if worst > 1.0:
        raise WrongAnswer(f"an element is {worst:.1f} times further off than rounding explains")
    return {"error_share": worst}


def operation_case(case: Case, *, model_of: Callable[[Config, Mapping[str, str]], ModelOptions | None]) -> Case:
    """Case of operations that torch launches.

    Args:
        case: what :class:`Case` requires of any kernel; its ``values`` are added to those that all operations have.
        model_of: (config, its measured row or launch) to a kernel model and options; None where they say too little.
            Registers are those of the row.
    """

    def launched(config: Config, row: Mapping[str, str], gpu: GpuSpec) -> Launch | str:
        found = model_of(config, row) if row.get("launched") else None
        if found is None:
            return "no kernel model is known for its kernel's name and launch"
        options: dict[str, Any] = {**found.options, "registers": number_of(row, whole.REGISTERS)}
        params = KERNEL_MODELS[found.model].params
        try:
            return params.model_validate({key: options[key] for key in options if key in params.options()}).launch(gpu)
        except (KernelError, LaunchError) as error:
            return str(error)

    def predict_row(config: Config, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]) -> dict[str, Answer]:
        found = launched(config, row, gpu)
        return {} if isinstance(found, str) else whole.answers(found, row, gpu, names)

    judged = replace(
        case, values={"error_share": "largest error of the sample, of what is allowed", **TOLD, **case.values},
        predict_row=predict_row, **of_launches(launched), is_validation=True,
        limits={**whole.LIMITS, **case.limits},
    )  # fmt: skip
    return replace(judged, tiers=tiers_of(judged.names))
