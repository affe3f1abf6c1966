"""What do events say of a kernel that does nothing, and the stopwatch's probe of one that knows its own clock and time?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if

NUM_SMS, NUM_THREADS = measured_gpu().num_sms, 1024
CTAS = (1, NUM_SMS, 8 * NUM_SMS)
BUSY_US = (2, 5, 10, 20, 50, 100, 250, 1000)
MARK = 0xC10C
METRICS = ("gpu__time_duration.sum",)


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    ctas: int
    run_us: int


def launches() -> list[Row]:
    """Nothing by grid; work of a known length on every SM."""
    return Row.sweep(kernel="nothing", ctas=CTAS, run_us=0) + Row.sweep(kernel="busy", ctas=NUM_SMS, run_us=BUSY_US)


def launch(config: Row) -> KernelLaunch:
    """A warp that stores a mark; or a CTA on every SM that multiplies for so long."""
    ctas = config.ctas
    if config.kernel == "nothing":
        return KernelLaunch(
            kernel="nothing", arguments=(Output("mark", np.zeros(1, dtype="<u4")), np.uint32(MARK)), grid=(ctas, 1, 1),
            block=(32, 1, 1),
        )  # fmt: skip
    return KernelLaunch(
        kernel="busy",
        arguments=(Output("done", np.zeros((ctas, 4), dtype="<u8")), np.uint64(1000 * config.run_us)),
        grid=(ctas, 1, 1), block=(NUM_THREADS, 1, 1),
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """What the CTAs read of their own clocks.

    Raises:
        WrongAnswer: no mark, a CTA that ended before its time, or two on one SM.
    """
    if config.kernel == "nothing":
        if outputs["mark"][0] != MARK:
            raise WrongAnswer(f"the mark is {int(outputs['mark'][0]):#x}")
        return {}
    cycles, nanoseconds, sms, _ = outputs["done"].astype(np.int64).T
    wrong_if(nanoseconds.min() < 1000 * config.run_us, f"a CTA ended after {nanoseconds.min()} ns")
    wrong_if(len(set(sms.tolist())) < len(sms), "two CTAs were on one SM")
    return {"own_mhz": float(np.median(cycles / nanoseconds)) * 1e3, "own_us": float(np.median(nanoseconds)) * 1e-3}


CASE = Case(
    name="clock_probe",
    question="What do two events and a probe of the clocks say of a kernel beside what it takes?",
    config_type=Row, launch=launch, check=check,
    groups={"launches": Group(configs=launches, metrics=METRICS, rank=4, times=("single", "sustained"))},
    values={"own_mhz": "cycles over nanoseconds of the median CTA, read by itself", "own_us": "its time"},
)  # fmt: skip
