"""Cases of GEMMs that frameworks launch: output checks and predictions.

In: a case's folder, its configs, a function from a row to options of the GEMM model. Out: a :class:`Case` whose rows judge
and never calibrate, as in :mod:`gpusim.evidence.cases.validation_kernel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.errors import KernelError, LaunchError
from gpusim.evidence.cases import validation_kernel as whole
from gpusim.evidence.cases.case import Answer, Case, Config, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.known_options import without_compiled, without_registers
from gpusim.kernel_models.gemm import GemmParams

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec
    from gpusim.workload.launch import Launch

METRICS = (
    whole.CYCLES,
    whole.DURATION,
    *whole.DRAM,
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_tex_lookup_miss.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum",
    whole.HIT_RATE,
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "lts__cycles_elapsed.avg.per_second",
    "dram__cycles_elapsed.avg.per_second",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_dynamic",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    "launch__waves_per_multiprocessor",
)
"""Metrics counted for every GEMM, besides the other cycle counts of every row."""

JUDGED = (
    *whole.DRAM, "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum", whole.HIT_RATE,
    whole.CYCLES, whole.ESTIMATED_CYCLES, *whole.SINGLE, *whole.SUSTAINED, whole.TENSOR, whole.REGISTERS,
    whole.CTAS_OF_SM,
)  # fmt: skip

TIERS: Mapping[str, int] = MappingProxyType(
    {key: {**whole.TIERS, **whole.PRODUCT_TIERS, whole.TENSOR: 5}[key] for key in JUDGED}
)

ROUNDING = 2.0**-7
"""Relative error of a sum that is rounded to bf16 twice. It covers split-K parts that a library adds in bf16."""

TOLD = {
    "launched": "the kernels that ran, one after the other; what is counted is the sum over them",
    "grid": "CTAs of the longest of them",
    "block": "its threads",
}


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Largest error of the sample, as a fraction of the allowed error.

    Raises:
        WrongAnswer: an element was not written, or its error exceeds what rounding explains.
    """
    return check_sums(outputs, spare=ROUNDING * 0.25 * math.sqrt(int(config["k"])))


def check_sums(outputs: Outputs, *, spare: float) -> dict[str, float]:
    """Largest error of the sample, as a fraction of the allowed error: :data:`ROUNDING` of an element, and ``spare``.

    Raises:
        WrongAnswer: an element was not written, or its error exceeds what rounding explains.
    """
    found, reference = outputs["d"].astype(np.float64), outputs["reference"].astype(np.float64)
    if found.shape != reference.shape or not found.size:
        raise WrongAnswer(f"a sample of shape {found.shape} came, wants that of the reference, {reference.shape}")
    if not np.isfinite(found).all():
        raise WrongAnswer(f"{np.count_nonzero(~np.isfinite(found))} of {found.size} elements were not written")
    allowed = ROUNDING * np.abs(reference) + spare
    worst = float((np.abs(found - reference) / allowed).max())
    if worst > 1.0:
        raise WrongAnswer(f"an element of D is {worst:.1f} times further off than rounding explains")
    return {"error_share": worst}


def product_group(configs: Callable[[int], list[Config]], *, rank: int = 4) -> Group:
    """Group of GEMMs: counted with caches flushed, and timed in both protocols."""
    return whole.whole_group(configs, rank=rank, metrics=METRICS, least_capability=(9, 0))


def product_case(
    case: Case,
    *,
    options: Callable[[Config, Mapping[str, str], GpuSpec], Mapping[str, Any] | None],
    dtype: Callable[[Config], str] = lambda config: "bf16",
) -> Case:
    """Case of a framework's GEMMs.

    Args:
        case: what :class:`Case` requires of any kernel. Its columns have ``k``; its groups come from :func:`product_group`.
            Its check is :func:`check`. Its ``values`` are added to those that all GEMMs have.
        options: (config, its measured row, which may be empty, GPU) to options of ``gpusim predict gemm``; None where the
            row has too little information. Kernels outside the model's range are not predicted either.
        dtype: type of a config.
    """

    def launched(
        config: Config, row: Mapping[str, str], gpu: GpuSpec,
        known: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
    ) -> Launch | str:
        found = options(config, row, gpu)
        if found is None:
            return "its kernel's name tells too little"
        try:
            return GemmParams.model_validate(known(found)).launch(gpu)
        except (KernelError, LaunchError) as error:
            return str(error)

    def predict_row(config: Config, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]) -> dict[str, Answer]:
        found = launched(config, row, gpu)
        if isinstance(found, str):
            return {}
        said = whole.answers(found, row, gpu, names)
        if {whole.REGISTERS, whole.CTAS_OF_SM} & set(names):
            alone = launched(config, row, gpu, without_registers)
            said |= {} if isinstance(alone, str) else whole.by_rule(alone, gpu)
        if whole.ESTIMATED_CYCLES in names:
            unwritten = launched(config, row, gpu, without_compiled)
            said |= {} if isinstance(unwritten, str) else whole.before_written(unwritten, row, gpu)
        return said

    return replace(
        case, values={"error_share": "largest error of the sample, of what rounding allows", **TOLD, **case.values},
        predict_row=predict_row, **of_launches(launched), is_validation=True, tiers=TIERS,
        limits={key: limit for key, limit in whole.GEMM_LIMITS.items() if key in JUDGED},
        problem=lambda config: problem_of(config, dtype(config)), derived=whole.DERIVED,
    )


def of_launches(launched: Callable[[Config, Mapping[str, str], GpuSpec], Launch | str]) -> dict[str, Any]:
    """``predict_launched`` and ``refused`` of a case by its launches, or the sentences why there is none."""

    def predict_launched(config: Config, row: Mapping[str, str], gpu: GpuSpec) -> dict[str, float]:
        found = launched(config, row, gpu)
        return {} if isinstance(found, str) else whole.unmeasured(found, row, gpu)

    def refused(config: Config, row: Mapping[str, str], gpu: GpuSpec) -> str | None:
        found = launched(config, row, gpu)
        return found if isinstance(found, str) else None

    return {"predict_launched": predict_launched, "refused": refused}


def problem_of(config: Config, dtype: str) -> tuple[str, ...]:
    """Problem of a GEMM: m, n, k and its type.

    >>> problem_of({"kernel": "k", "m": "64", "n": "128", "k": "32", "tile": "1"}, "bf16")
    ('64', '128', '32', 'bf16')
    """
    return (*(config[name] for name in "mnk"), dtype)


def number_of(row: Mapping[str, str], name: str) -> int | None:
    """Integer in a column of a row; None where it is missing.

    >>> number_of({"registers": "168"}, "registers"), number_of({}, "registers")
    (168, None)
    """
    text = row.get(name, "")
    return int(float(text)) if text else None
