"""What do flushed caches cost a counted launch for each byte of its code?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpusim.evidence.cases.case import (
    Case,
    Fitted,
    Group,
    KernelLaunch,
    Output,
    Outputs,
    WrongAnswer,
    kernel_folder,
    load_case,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, WarpRole

straight = sys.modules[load_case("cold_code").launch.__module__]
"""The kernel and what is launched of it are those of kernels/cold_code."""

CYCLES = "sm__cycles_elapsed.max"
METRICS = (CYCLES, "sm__cycles_elapsed.avg", "sm__cycles_active.avg", "dram__bytes_read.sum")
SIZES_KIB = (4, 6, 8, 12, 16, 20, 24, 32, 48)
"""Most of which the first level holds, so that three of four runs wait for nothing; an odd number of them."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    caches: str
    kib: int
    sms: int
    warps: int


ONCE_KIB = (8, 16, 32, 48, 56, 60, 64, 68, 72, 80, 96, 112, 128)
"""Of code that begins with its kernel, as in kernel.cu."""
NEAR_KIB, FAR_KIB = 56, 80
"""What a launch surely brings along, and what it surely does not."""


def _once(caches: str) -> list[Config]:
    """Code from its kernel's first instruction on, all SMs."""
    return [Config(f"once_{kib}", caches, kib, straight.NUM_SMS, warps=4) for kib in ONCE_KIB]


def _sizes(caches: str) -> list[Config]:
    """Every size, one SM and all."""
    return Config.sweep(kernel="straight", caches=caches, sms=(1, straight.NUM_SMS), warps=(1, 4), kib=SIZES_KIB)


def launch(config: Config) -> KernelLaunch:
    """The code as a launch finds it."""
    if config.kernel != "straight":
        sums = np.zeros(straight.NUM_SMS * 128, dtype="<f4")
        return KernelLaunch(
            kernel=config.kernel, arguments=(np.float32(1.0), np.float32(1.0), Output("sums", sums)),
            grid=(straight.NUM_SMS, 1, 1), block=(128, 1, 1),
        )  # fmt: skip
    found: KernelLaunch = straight.launch(straight.Config(config.kib, "launched", config.sms, config.warps))
    return found


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of the first and of the last time, in a launch that is not counted."""
    if config.kernel != "straight":
        wanted = 28.0 + straight.num_instructions(config)
        if (outputs["sums"] != wanted).any():
            raise WrongAnswer(f"a sum is {outputs['sums'][outputs['sums'] != wanted][0]}, not {wanted}")
        return {}
    found = straight.check(straight.Config(config.kib, "launched", config.sms, config.warps), outputs)
    return {name: found[name] for name in ("first_cycles", "warm_cycles")}


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The same code, out of memory where caches are flushed and at hand where they are not."""
    is_flushed, is_once = config.caches == "flushed", config.kernel != "straight"
    num_bytes, num_warps = config.kib * 1024, config.warps

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        if cta.cta_idx >= config.sms:
            return
        if is_once:
            yield ops.FetchColdCode(config.kernel, 0, num_bytes, num_bytes / straight.INSTRUCTION_BYTES)
            yield ops.Fma(num_bytes / straight.INSTRUCTION_BYTES)
            return
        for idx in range(straight.NUM_ROUNDS):
            if is_flushed or idx:
                yield ops.FetchCode("straight", num_bytes)
            yield ops.Fma(num_bytes / straight.INSTRUCTION_BYTES)

    launched = Launch(
        kernel="straight",
        num_ctas=straight.NUM_SMS,
        num_tiles=straight.NUM_SMS,
        roles=(WarpRole(name="all", num_warps=num_warps, program=program),),
    )
    result = simulate(launched, gpu, clock="max", l2="flushed" if is_flushed else "warm")
    return {CYCLES: float(result.counters[CYCLES])}


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What a launch brings along: where the line of code that it surely does meets that of code that it surely does not."""
    told = [
        (int(row["kib"]), float(row[CYCLES])) for row in rows
        if row["kernel"] != "straight" and row["caches"] == "flushed" and row.get(CYCLES)
    ]  # fmt: skip
    near = [each for each in told if each[0] <= NEAR_KIB]
    far = [each for each in told if each[0] >= FAR_KIB]
    if len({kib for kib, _ in near}) < 2 or len({kib for kib, _ in far}) < 2:
        return []
    (slope, begin), (steeper, other) = (np.polyfit(*np.array(each).T, 1) for each in (near, far))
    if steeper <= slope:
        return []
    return [
        Fitted(
            parameter="instruction_cache.launch_fetched_bytes", value=1024 * float((begin - other) / (steeper - slope)),
            how="flushed caches, code from a kernel's first instruction on, all SMs: where lines through up to 56 and from "
            "80 KiB meet",
        )
    ]  # fmt: skip


def includes() -> dict[str, str]:
    """The kernel."""
    return {"straight.cuh": (kernel_folder("cold_code") / "kernel.cu").read_text(encoding="utf-8")}


def _group(caches: str, configs: Callable[[str], list[Config]] = _sizes) -> Group:
    return Group(
        configs=partial(configs, caches), metrics=METRICS, rank=2, is_cold=caches == "flushed"
    )


CASE = Case(
    name="counted_code",
    question=__doc__,
    config_type=Config,
    groups={
        "flushed": _group("flushed"), "kept": _group("kept"),
        "once_flushed": _group("flushed", _once), "once_kept": _group("kept", _once),
    },
    launch=launch, check=check,
    values={
        "first_cycles": "SM cycles of the first run, a launch that is not counted, median of the SMs",
        "warm_cycles": "SM cycles of the fourth run, the same",
    },
    predict=predict, tiers={CYCLES: 6}, includes=includes, fit=fit,
)  # fmt: skip
