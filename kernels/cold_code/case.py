"""What does straight-line code cost that has not run yet? Sizes, what lies in which cache, one SM and all of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.case import Case, Config, Group, Input, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, WarpRole

SIZES_KIB = (4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 192)
"""As in kernel.cu; 16 bytes an instruction."""
INSTRUCTION_BYTES = 16
NUM_ROUNDS = 4
NUM_SMS = 132
ALONE_SMEM_BYTES = 120 * 1024
"""So much that no two CTAs share an SM."""
FLUSH_BYTES = 128 * 1024 * 1024
"""More than twice the L2 of any GPU that is described."""
STATES = ("launched", "evicted", "flushed")


def _config(kib: int, state: str, sms: int, warps: int) -> Config:
    return {"kernel": "straight", "kib": str(kib), "state": state, "sms": str(sms), "warps": str(warps)}


def sizes(seed: int) -> list[Config]:
    """Every size: as a launch finds it, out of the instruction caches, and out of L2, too."""
    del seed  # a sweep, the same for every seed
    return [
        _config(kib, state, sms, warps)
        for state in STATES for sms in (1, NUM_SMS) for warps in (1, 4, 16) for kib in SIZES_KIB
    ]  # fmt: skip


def num_instructions(config: Config) -> int:
    """FFMA between the two readings of the clock."""
    return int(config["kib"]) * 1024 // INSTRUCTION_BYTES


@cache
def flush_buffer() -> NDArray[np.uint8]:
    """What all CTAs read to empty L2; copied to the GPU once."""
    buffer = np.zeros(FLUSH_BYTES, dtype=np.uint8)
    buffer.setflags(write=False)
    return buffer


@cache
def no_buffer() -> NDArray[np.uint8]:
    """Nothing to read."""
    buffer = np.zeros(16, dtype=np.uint8)
    buffer.setflags(write=False)
    return buffer


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """A CTA on every SM; ``sms`` of them measure."""
    del is_counted
    is_flushed = config["state"] == "flushed"
    plan = [int(config["kib"]), int(config["state"] != "launched"), FLUSH_BYTES // 16 * is_flushed, int(config["sms"])]
    return KernelLaunch(
        kernel="straight",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Input(flush_buffer() if is_flushed else no_buffer()),
            np.float32(1.0), np.float32(1.0), Output("num_arrived", np.zeros(1, dtype="<u4")),
            Output("times", np.full((NUM_SMS, NUM_ROUNDS), -1, dtype="<i8")),
            Output("sums", np.full((NUM_SMS, NUM_ROUNDS), -1, dtype="<f4")),
        ),
        grid=(NUM_SMS, 1, 1),
        block=(32 * int(config["warps"]), 1, 1),
        smem_bytes=ALONE_SMEM_BYTES,
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of the first, second and last time, over the SMs that measured.

    Raises:
        WrongAnswer: another sum than one for each instruction, another number of SMs, or a time that is none.
    """
    num_sms = int(config["sms"])
    wanted = 28.0 + num_instructions(config)  # thread 0 begins with 0 + 1 + ... + 7
    sums, times = outputs["sums"][:num_sms], outputs["times"].astype(np.int64)
    if (sums != wanted).any():
        raise WrongAnswer(f"a sum is {sums[sums != wanted][0]}, not {wanted}")
    if (times[:num_sms] <= 0).any() or (times[num_sms:] != -1).any():
        raise WrongAnswer(f"{int((times[:, 0] > 0).sum())} SMs measured, not {num_sms}, or the CTAs did not meet")
    first, second, warm = times[:num_sms, 0], times[:num_sms, 1], times[:num_sms, -1]
    return {
        "first_cycles": float(np.median(first)), "least_first_cycles": float(first.min()),
        "p90_first_cycles": float(np.quantile(first, 0.9)), "most_first_cycles": float(first.max()),
        "second_cycles": float(np.median(second)), "warm_cycles": float(np.median(warm)),
        "most_warm_cycles": float(warm.max()),
    }  # fmt: skip


def derive(row: Config) -> dict[str, float]:
    """What being cold costs for each KiB."""
    if not (row.get("first_cycles") and row.get("warm_cycles")):
        return {}
    return {"cold_cycles_per_kib": (float(row["first_cycles"]) - float(row["warm_cycles"])) / int(row["kib"])}


def warm_cycles(num_instructions: int, num_warps: int, gpu: GpuSpec) -> float:
    """Cycles of so many FFMA of each warp, in the simulator."""

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield ops.Fma(num_instructions)

    role = WarpRole(name="all", num_warps=num_warps, program=program)
    result = simulate(
        Launch(kernel="straight", num_ctas=1, num_tiles=1, roles=(role,)), gpu, clock="max", recorded_sms="first"
    )
    (record,) = result.timeline.roles
    _, begin, end = record.states[-1]
    return end - begin


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Of code that is in the caches, on however many SMs; the simulator has none that could miss.

    Thread 0's clock is read, and the scheduler of its warp serves that one first, however many warps it has: 16 warps show
    what one shows, so one on each scheduler is asked for.
    """
    num_warps = min(int(config["warps"]), gpu.warp_scheduler.num_schedulers)
    return {"warm_cycles": warm_cycles(num_instructions(config), num_warps, gpu)}


CASE = Case(
    name="cold_code",
    question="What does straight-line code cost when it runs for the first time?",
    columns=("kib", "state", "sms", "warps"),
    groups={"sizes": Group(configs=sizes, rank=5, least_capability=(9, 0))},
    launch=launch,
    check=check,
    values={
        "first_cycles": "SM cycles of the first run, the median of the SMs that measured",
        "least_first_cycles": "the least of these SMs",
        "p90_first_cycles": "of these SMs",
        "most_first_cycles": "the most of these SMs",
        "second_cycles": "SM cycles of the second run, the median",
        "warm_cycles": "SM cycles of the fourth run, the median",
        "most_warm_cycles": "of the fourth run, the most",
    },
    num_repeats=3,
    predict=predict,
    tiers={"warm_cycles": 4},
    derive=derive,
)
