"""What does the board draw under tensor work, streams and both, and at what clock, when they go on?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any

from gpusim.evidence.cases.case import Answer, Case, Fitted, Group, Limit, kernel_folder, load_case
from gpusim.evidence.cases.clock_parameters import least_squares, limiter
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.rows import number_in
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec

POWER_CLOCK = load_case("power_clock")
loads = import_module(POWER_CLOCK.launch.__module__)
"""The search of energies is that of kernels/power_clock."""
RUN_US, MAX_MHZ = 1000, 1980.0
POWER, CLOCK = "sustained_power_w", "sustained_clock_mhz"


def mixes() -> list[ConfigRow]:
    """Nothing; streams by duty; tensor work by duty; both. Random data and zeros."""
    row, streams = loads.Row, ("hbm", "l2")
    found = [row(RUN_US)]
    for data in ("random", "zeros"):
        found += row.sweep(run_us=RUN_US, tensor_duty=0, stream=streams, stream_duty=(25, 50, 75, 100), data=data)
        found += row.sweep(run_us=RUN_US, tensor_duty=(12, 25, 50, 75, 100), data=data)
    return [*found, *row.sweep(run_us=RUN_US, stream=streams, tensor_duty=(12, 25, 50, 100), stream_duty=100)]


def includes() -> dict[str, str]:
    """The kernel of power_clock, and what it includes."""
    source = (kernel_folder("power_clock") / "kernel.cu").read_text(encoding="utf-8")
    return {"work.inc": source, **POWER_CLOCK.includes()}


def work_of(row: Mapping[str, str]) -> Activity:
    """What a launch of a row did, at the rates of the one that was checked; arithmetic follows the clock."""
    mhz, run_s = number_in(row, CLOCK), RUN_US * 1e-6
    is_idle = row["tensor_duty"] == "0" and row["stream"] == "none"
    flops = float(row.get("tflops") or 0.0) * 1e12 * run_s * mhz / number_in(row, "mhz")
    num_bytes = float(row.get("gb_per_s") or 0.0) * 1e9 * run_s
    return Activity(
        cycles=mhz * RUN_US, num_flops=flops, rate_class="16bit", l2_bytes=num_bytes,
        hbm_bytes=num_bytes if row["stream"] == "hbm" else 0.0, busy_fraction=0.0 if is_idle else 1.0,
    )  # fmt: skip


def predict_row(config: Any, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]) -> dict[str, Answer]:
    """What the machine's energies say of the work that was done, at the clock that it ran at; for random data or zeros."""
    if POWER not in names or not row.get(POWER):
        return {}
    power_w = PowerLimiter(gpu.clock).power_w(work_of(row), mhz=number_in(row, CLOCK), data=config.data)
    return {POWER: Answer(value=power_w)}


# ---------------------------------------------------------------------------------------------- parameters

BEGIN = {
    "idle_power_w": 100.0, "sm_busy_w": 50.0, "l2_pj_per_byte": 40.0, "l2_zeros_fraction": 0.5, "hbm_pj_per_byte": 60.0,
    "hbm_zeros_fraction": 0.5, "tensor_zeros_fraction": 0.3, "tensor_pj_per_flop.16bit": 0.8,
}  # fmt: skip
"""What is searched together, and where it begins."""
OF_OTHERS = ("tensor_pj_per_flop.16bit",)
"""Of these, what kernels/power_clock gives: clocks far below the highest tell it and the voltage together."""
VOLTAGE_SLOPE = 0.6
"""About what kernels/power_clock gives; no row here is far from the highest clock."""
FREE = 0.95
"""A clock over that of one launch, below which a limit has lowered it: the board's power then swings about."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Energies of bytes and zeros, idle power, that of busy SMs: by the watts of all rows at once that no limit binds."""
    told = [row for row in rows if row.get(POWER) and row.get(CLOCK)]
    ran = [row for row in told if number_in(row, CLOCK) >= FREE * number_in(row, "mhz")]

    solved = least_squares(
        BEGIN, limiter_of, lambda model, row: (
            model.power_w(work_of(row), mhz=number_in(row, CLOCK), data=row["data"]) / number_in(row, POWER) - 1.0
        ), ran,
    )  # fmt: skip
    how = f"least squares over the power of {len(ran)} rows, relative, where no limit lowers the clock"
    return [
        Fitted(parameter=f"clock.{name}", value=value, how=how) for name, value in solved.items() if name not in OF_OTHERS
    ]


def limiter_of(values: Mapping[str, float]) -> PowerLimiter:
    """The machine's part with these values of ``BEGIN``; what sets a clock is of no account."""
    return limiter(MAX_MHZ, {"voltage_slope": VOLTAGE_SLOPE, **values})


CASE = Case(
    name="board_power",
    question="What does the board draw under tensor work, streams and both, when they go on?",
    config_type=loads.Row, launch=POWER_CLOCK.launch, check=POWER_CLOCK.check, predict_row=predict_row,
    groups={"mixes": Group(configs=mixes, rank=4, least_capability=(9, 0), times=("sustained",))},
    values=POWER_CLOCK.values,
    tiers={POWER: 7},
    limits={POWER: Limit(mean_pct=10.0)}, fit=fit, includes=includes,
)  # fmt: skip
