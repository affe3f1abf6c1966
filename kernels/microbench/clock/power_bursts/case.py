"""At what clock does the SM run when tensor cores work in bursts, short or long, and rest between, briefly or long?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np

from gpusim.evidence.cases.case import Answer, Case, Fitted, Group, Outputs, load_case
from gpusim.evidence.cases.clock_parameters import limiter
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.rows import number_in
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec

steps = import_module(load_case("power_mma").launch.__module__)
"""Operands, steps and their sums are those of kernels/power_mma; clocks and wgmma those of kernels/power_clock."""
loads = steps.loads

SHORT_US, RUN_US = 250, 1_000
BARRIER_BYTES = 16


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    run_us: int
    num_warps: int
    duty: int
    grain: int
    data: str


def _config(kernel: str, duty: int, grain: int, *, data: str = "random", warps: int = 16, run_us: int = RUN_US) -> Row:
    return Row(kernel, run_us, 4 if kernel == "wgmma_bf16" else warps, duty, grain, data)


def bursts() -> list[Row]:
    """By length of burst and duty; zeros; few warps; by length of launch."""
    found = [_config("feed_bf16", duty, grain) for duty in (50, 25, 75, 100) for grain in (1, 2, 4, 8, 16, 64)]
    found += [_config("wgmma_bf16", duty, grain) for duty in (50, 25, 75, 100) for grain in (1, 2, 4, 8, 16)]
    found += [_config("feed_bf16", duty, grain) for duty in (10, 3) for grain in (1, 4, 16, 64)]
    found += [_config("wgmma_bf16", duty, grain, data="zeros") for duty in (100, 50, 25) for grain in (16, 1, 4)]
    found += [_config("mma_bf16", 100, 64, warps=warps) for warps in (1, 2)]
    found += [_config("mma_bf16", duty, 4, warps=1) for duty in (25, 10)]
    found += [_config("wgmma_bf16", 10, grain) for grain in (1, 16)]
    found += [_config("feed_bf16", duty, grain, data="zeros") for duty in (50, 10) for grain in (4, 16)]
    found += [_config(kernel, 50, grain) for kernel in ("mma_bf16", "fma_fp32") for grain in (4, 16)]
    return found + [_config("feed_bf16", duty, 64, run_us=run_us) for duty in (100, 50) for run_us in (50, SHORT_US, 3_000)]


def includes() -> dict[str, str]:
    """wgmma, as in power_clock."""
    return dict(loads.includes())


def launch(config: Row) -> KernelLaunch:
    """A CTA on every SM, for so long."""
    kernel, is_wgmma = config.kernel, config.kernel == "wgmma_bf16"
    plan = loads.plan_of(config, config.duty, config.grain, config.num_warps, loads.num_samples(config))
    return KernelLaunch(
        kernel=kernel,
        arguments=(
            plan, Input(steps.operands(kernel, config.data)),
            Output("samples", np.zeros((steps.NUM_SMS, loads.num_samples(config), 2), dtype="<u8")),
            Output("done", np.zeros((steps.NUM_SMS, steps.MOST_WARPS + 2), dtype="<u8")),
            Output("d", np.full((128, 128) if is_wgmma else (64, 512), np.nan, dtype="<f4")),
        ),
        grid=(steps.NUM_SMS, 1, 1), block=(steps.WGMMA_THREADS if is_wgmma else steps.NUM_THREADS, 1, 1),
        smem_bytes=(loads.SMEM_BYTES if is_wgmma else steps.SMEM_BYTES) + BARRIER_BYTES,
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Clocks over time and over SMs, and how much was done.

    Raises:
        WrongAnswer: as kernels/power_mma has it, or a wait that was given up.
    """
    wrong_if(outputs["done"][:, steps.MOST_WARPS].any(), "a warp waited too long for the others")
    found: dict[str, float] = steps.check(config, outputs)
    return found


# ---------------------------------------------------------------------------------------------- the machine's answer
def work_of(row: Mapping[str, str]) -> Activity:
    """What a launch of a row did, at its own clock: a burst takes ``duty`` percent of the time from one to the next."""
    activity: Activity = steps.work_of(row, number_in(row, "mhz"))
    if row["duty"] == "100" or row["kernel"] == "fma_fp32":
        return activity
    is_wgmma = row["kernel"] == "wgmma_bf16"
    warps = steps.NUM_SMS * (1 if is_wgmma else int(row["num_warps"]))
    flops_per_burst = warps * int(row["grain"]) * steps.FLOPS_PER_STEP["wgmma" if is_wgmma else "mma"]
    return replace(activity, tensor_share=int(row["duty"]) / 100, num_tensor_bursts=activity.num_flops / flops_per_burst)


def predict_row(config: Row, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]) -> dict[str, Answer]:
    """The clock of a launch by the machine's rule, of the work that was done."""
    if "mhz" not in names or not number_in(row, "mhz"):
        return {}
    mhz = PowerLimiter(gpu.clock).clock_mhz(work_of(row), mode="single", data=loads.as_modelled(config.data))
    return {"mhz": Answer(value=mhz)}


# ---------------------------------------------------------------------------------------------- parameters

OF_OTHERS = {
    "voltage_slope": 0.6173, "tensor_burst_mhz_us": 684.3, "load_line_mhz_per_w": 0.1724, "single_power_w": 886.8,
    "tensor_mhz": 1809.6, "mma_sync_extra_fraction": 0.253, "smem_pj_per_byte": 4.307,
}  # fmt: skip
"""What kernels/power_clock and power_mma give: as described of the H200."""
TENSOR_PJ_PER_FLOP = {"tensor_pj_per_flop.16bit": 0.9288}
RESTS_US = np.arange(0.25, 3.0, 0.25)
LEAST_MHZ = np.arange(1600.0, 1810.0, 10.0)
MAX_MHZ = 1980.0


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Which rests are none, and what bursts leave of the clock: the least squares over the clocks of all bursts."""
    ran = [row for row in rows if row.get("mhz") and row["kernel"] != "fma_fp32"]
    if len(ran) < 8:
        return []
    found = [(_square(ran, rest_us, least_mhz), rest_us, least_mhz) for rest_us in RESTS_US for least_mhz in LEAST_MHZ]
    _, rest_us, least_mhz = min(found)
    how = f"least squares over the clocks of {len(ran)} launches, with what kernels/power_clock and power_mma give"
    return [
        Fitted(parameter="clock.tensor_rest_us", value=float(rest_us), how=how),
        Fitted(parameter="clock.tensor_min_mhz", value=float(least_mhz), how=how),
    ]


def _square(rows: Sequence[Mapping[str, str]], rest_us: float, least_mhz: float) -> float:
    given = loads.POWER_LIMIT | loads.OF_WATTS | OF_OTHERS | TENSOR_PJ_PER_FLOP
    model = limiter(MAX_MHZ, given | {"tensor_rest_us": rest_us, "tensor_min_mhz": least_mhz})
    off = [model.clock_mhz(work_of(row), mode="single", data=row["data"]) / number_in(row, "mhz") - 1.0 for row in rows]
    return float(np.square(off).sum())


CASE = Case(
    name="power_bursts",
    question="At what clock does the SM run when tensor cores work in bursts, and rest between?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict_row=predict_row, fit=fit, includes=includes,
    groups={"bursts": Group(configs=bursts, rank=4, least_capability=(9, 0))},
    values=steps.CASE.values,
    tiers={"mhz": 4},
)  # fmt: skip
