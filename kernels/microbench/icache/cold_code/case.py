"""What does straight-line code cost that has not run yet? Sizes, what lies in which cache, one SM and all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Fitted, Group, Input, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, WarpRole

SIZES_KIB = (4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 192)
"""As in kernel.cu; 16 bytes an instruction."""
INSTRUCTION_BYTES = 16
NUM_ROUNDS = 4
NUM_SMS = measured_gpu().num_sms
ALONE_SMEM_BYTES = 120 * 1024
"""So much that no two CTAs share an SM."""
FLUSH_BYTES = 128 * 1024 * 1024
"""More than twice the L2 of any GPU that is described."""
STATES = ("launched", "evicted", "flushed")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kib: int
    state: str
    sms: int
    warps: int
    kernel: str = "straight"


def sizes() -> list[Config]:
    """Every size: as a launch finds it, out of the instruction caches, and out of L2, too."""
    return Config.sweep(state=STATES, sms=(1, NUM_SMS), warps=(1, 4, 16), kib=SIZES_KIB)


def num_instructions(config: Config) -> int:
    """FFMA between the two readings of the clock."""
    return config.kib * 1024 // INSTRUCTION_BYTES


@cache
def buffer(num_bytes: int) -> NDArray[np.uint8]:
    """Zeros; copied to the GPU once."""
    zeros = np.zeros(num_bytes, dtype=np.uint8)
    zeros.setflags(write=False)
    return zeros


def launch(config: Config) -> KernelLaunch:
    """A CTA on every SM; ``sms`` of them measure."""
    is_flushed = config.state == "flushed"
    plan = [config.kib, int(config.state != "launched"), FLUSH_BYTES // 16 * is_flushed, config.sms]
    return KernelLaunch(
        kernel="straight",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Input(buffer(FLUSH_BYTES if is_flushed else 16)),
            np.float32(1.0), np.float32(1.0), Output("num_arrived", np.zeros(1, dtype="<u4")),
            Output("times", np.full((NUM_SMS, NUM_ROUNDS), -1, dtype="<i8")),
            Output("sums", np.full((NUM_SMS, NUM_ROUNDS), -1, dtype="<f4")),
        ),
        grid=(NUM_SMS, 1, 1), block=(32 * config.warps, 1, 1), smem_bytes=ALONE_SMEM_BYTES,
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of the first, second and last time, over the SMs that measured."""
    num_sms = config.sms
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


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """What being cold costs for each KiB."""
    if not (row.get("first_cycles") and row.get("warm_cycles")):
        return {}
    return {"cold_cycles_per_kib": (float(row["first_cycles"]) - float(row["warm_cycles"])) / int(row["kib"])}


def rounds(config: Config, gpu: GpuSpec) -> list[float]:
    """Cycles of each run of the code, in the simulator: the first as cold as the config says, if L2 has it at least."""
    num_warps = min(config.warps, gpu.warp_scheduler.num_schedulers)
    num_bytes = config.kib * 1024

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        for _ in range(NUM_ROUNDS):
            yield ops.RangeStart(ops.Section.MAINLOOP)
            yield ops.FetchCode("straight", num_bytes)
            yield ops.Fma(num_instructions(config))
            yield ops.RangeEnd()

    role = WarpRole(name="all", num_warps=num_warps, program=program)
    result = simulate(
        Launch(kernel="straight", num_ctas=1, num_tiles=1, roles=(role,)), gpu, clock="max", recorded_sms="first",
        l2="cold" if config.state == "flushed" else "warm",
    )  # fmt: skip
    (record,) = result.timeline.roles
    return [span.end_cycle - span.start_cycle for span in record.sections]


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same on one SM as on all; the first run where it is known what lies where: not as a launch finds it.

    Thread 0's clock is read, and the scheduler of its warp serves that one first, however many warps it has: 16 warps show
    what one shows, so one on each scheduler is asked for.
    """
    cycles = rounds(config, gpu)
    found = {"warm_cycles": cycles[-1]}
    return found if config.state == "launched" else found | {"first_cycles": cycles[0]}


# ---------------------------------------------------------------------------------------------- parameters

NEAR_L2_CYCLES = 280.0
"""Latency of L2's near side (``l2.near_latency_cycles`` of an H200): a price of a KiB tells bytes a latency, not both."""
ISSUED = 1024 / INSTRUCTION_BYTES
"""Cycles of a KiB that nothing holds up."""
OF_L1, PART_OF_L0, PART_OF_L1 = (48, 64), 32, 128
"""Sizes that L0 lacks and L1 has; one that L0 has in part; one that L1 has in part."""
MOST_WARPS = 4
"""One on each scheduler: more drift apart, and evict from one another."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Bytes on the way from what L2 delivers, L1's latency from what it does, capacities from sizes that miss in part."""
    alike = [row for row in rows if int(row["warps"]) <= MOST_WARPS]

    def price(name: str, *sizes: int, state: str = "") -> float:
        """Cycles of a KiB, median; NaN of none."""
        found = [
            float(row[name]) / int(row["kib"]) for row in alike
            if row.get(name) and (not sizes or int(row["kib"]) in sizes) and (not state or row["state"] == state)
        ]  # fmt: skip
        return median(found) if found else float("nan")

    from_l2, from_l1 = price("first_cycles", state="evicted"), price("warm_cycles", *OF_L1)
    in_part, deep_in_part = price("warm_cycles", PART_OF_L0), price("warm_cycles", PART_OF_L1)
    on_the_way = 1024 * NEAR_L2_CYCLES / from_l2
    missing, deep_missing = (in_part - ISSUED) / (from_l1 - ISSUED), (deep_in_part - from_l1) / (from_l2 - from_l1)
    ahead = "median of a KiB, for the bytes on the way"
    found = {
        "prefetched_bytes": (on_the_way, f"first runs out of L2, median of a KiB: bytes in {NEAR_L2_CYCLES:.0f} cycles"),
        "l1_latency_cycles": (from_l1 * on_the_way / 1024, f"warm runs of 48 and 64 KiB, {ahead}"),
        "l0_bytes": (PART_OF_L0 * 1024 * (1 - missing / 2), "warm runs of 32 KiB: those without half of what misses"),
        "l1_bytes": (PART_OF_L1 * 1024 * (1 - deep_missing / 2), "warm runs of 128 KiB: those without half of what misses"),
    }
    return [
        Fitted(parameter=f"instruction_cache.{name}", value=value, how=how)
        for name, (value, how) in found.items() if np.isfinite(value)
    ]  # fmt: skip


CASE = Case(
    name="cold_code",
    question="What does straight-line code cost when it runs for the first time?",
    config_type=Config,
    groups={"sizes": Group(configs=sizes, rank=5)},
    launch=launch, check=check,
    values={
        "first_cycles": "SM cycles of the first run, the median of the SMs that measured",
        "least_first_cycles": "the least of these SMs",
        "p90_first_cycles": "of these SMs",
        "most_first_cycles": "the most of these SMs",
        "second_cycles": "SM cycles of the second run, the median",
        "warm_cycles": "SM cycles of the fourth run, the median",
        "most_warm_cycles": "of the fourth run, the most",
    },
    num_repeats=3, predict=predict, tiers={"warm_cycles": 4, "first_cycles": 4}, derive=derive, fit=fit,
)  # fmt: skip
