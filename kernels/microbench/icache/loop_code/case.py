"""What does a turn of a loop take whose code is longer than a sub-core keeps, by its length, warps and SM?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from gpusim import GpuSpec, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.machine.config import load_gpu
from gpusim.machine.floorplan import SMS_PER_TPC
from gpusim.machine.sm.instruction_cache import INSTRUCTION_BYTES, LOOP_WAYS
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, WarpRole

PLAIN = (
    1024, 1536, 1792, 1920, 1984, 2016, 2048, 2080, 2112, 2144, 2176, 2240, 2304, 2368, 2432, 2496, 2560, 2624, 2688, 2816,
    3072, 3584, 4096, 6144,
)  # fmt: skip
READS = (
    1020, 1530, 1768, 1904, 2040, 2108, 2176, 2244, 2312, 2380, 2448, 2516, 2584, 2652, 2720, 2856, 3060, 3570, 4080, 6120,
)  # fmt: skip
"""Instructions of a loop: whole pairs of blocks of 16, and of 17."""
SHARED = (1024, 1536, 2048, 2176, 2304, 2432, 2560, 2816, 3072, 4096)
"""Of these with more than one warp a sub-core."""
OF_PLACES = {"none": (2304, 3072), "each_16": (2312, 3060)}
"""Of which every TPC is asked."""
LOOP_CODE = 4
"""Instructions that count a turn. Source: SASS of nvcc 13.0."""
BLOCK = 16
TURNS = (8, 40)
GPU = measured_gpu().description
NUM_SMS, ALL_SMS = measured_gpu().num_sms, (1 << 32) - 1
ALONE_SMEM_BYTES = 120 * 1024
"""So much that no two CTAs share an SM."""


def name_of(num: int, reads: str) -> str:
    """Of the entry point."""
    return f"loop_{num}" + ("_reads" if reads != "none" else "")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    instructions: int
    reads: str
    warps: int = 4
    late_cycles: int = 0
    sm: str = "0"

    @property
    def kernel(self) -> str:
        """Entry point."""
        return name_of(self.instructions, self.reads)


def lengths() -> list[Config]:
    """One warp a sub-core on one SM, every length; two and four, together and apart by a part of a turn."""
    return [
        *(Config(num, "none") for num in PLAIN),
        *(Config(num, "each_16") for num in READS),
        *(Config(num, "none", warps) for warps in (8, 16) for num in SHARED),
        *(Config(num, "none", 8, round(part * num)) for part in (0.25, 1.0, 1.75) for num in SHARED),
    ]


def places() -> list[Config]:
    """One SM of each TPC, alone; then all SMs at once."""
    return [
        *(Config(num, reads, sm=str(sm)) for reads, nums in OF_PLACES.items() for num in nums
          for sm in range(0, NUM_SMS, SMS_PER_TPC)),
        *(Config(num, reads, sm="all") for reads, nums in (("none", PLAIN), ("each_16", READS)) for num in nums),
    ]  # fmt: skip


def includes() -> dict[str, str]:
    """``shapes.inc``: an entry point for each length."""
    return {"shapes.inc": "".join(
        f"LOOP({name_of(num, reads)}, {num}, {str(reads != 'none').lower()})\n"
        for reads, nums in (("none", PLAIN), ("each_16", READS)) for num in nums
    )}  # fmt: skip


def num_fma(config: Config) -> int:
    """Of a turn."""
    num = config.instructions
    return num if config.reads == "none" else num * BLOCK // (BLOCK + 1)


def launch(config: Config) -> KernelLaunch:
    """A CTA on every SM, of which all run the loop, or one."""
    warps = config.warps
    sm = ALL_SMS if config.sm == "all" else int(config.sm)
    plan = np.array([*TURNS, round(float(config.late_cycles)), sm], dtype="<u4")
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(plan.view(np.uint8)), np.float32(1.0), np.float32(1.0),
            Output("spans", np.zeros((NUM_SMS, warps, 2, 2), dtype="<u4")),
            Output("sums", np.zeros((NUM_SMS, warps), dtype="<f4")),
        ),
        grid=(NUM_SMS, 1, 1), block=(32 * warps, 1, 1), smem_bytes=ALONE_SMEM_BYTES,
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a turn of all warps of an SM, over the SMs."""
    ran = outputs["sums"][:, 0] != 0
    sums, spans = outputs["sums"][ran], outputs["spans"][ran].astype(np.int64)
    if len(sums) != (NUM_SMS if config.sm == "all" else 1):
        raise WrongAnswer(f"{len(sums)} SMs ran the loop")
    wanted = BLOCK * (BLOCK - 1) / 2 + num_fma(config) * sum(TURNS)  # 0 + 1 + ... + 15 to begin with
    if (sums != wanted).any():
        raise WrongAnswer(f"a sum is {sums[sums != wanted][0]}, not {wanted}")
    spans = (spans - spans[:, :1, :, :1] + (1 << 31)) % (1 << 32) - (1 << 31)  # clocks have 32 bits
    took = spans[..., 1].max(axis=1) - spans[..., 0].min(axis=1)
    each = (took[:, 1] - took[:, 0]) / (TURNS[1] - TURNS[0])
    if (each <= 0).any():
        raise WrongAnswer(f"{TURNS[1]} turns take no longer than {TURNS[0]}")
    return {"turn_cycles": float(np.median(each)), "most_cycles": float(each.max()), "least_cycles": float(each.min())}


# ---------------------------------------------------------------------------------------------- the simulator's answer
def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Of plain loops whose warps keep together, on the SM that is asked for or on all; nothing of others."""
    if float(config.late_cycles) or config.reads != "none":
        return {}
    num = num_fma(config)

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        for _ in range(2):
            yield ops.RangeStart(ops.Section.MAINLOOP)
            yield ops.LoopBody(num, LOOP_CODE)
            yield ops.Fma(num)
            yield ops.RangeEnd()

    role = WarpRole(name="all", num_warps=config.warps, program=program)
    result = simulate(
        Launch(kernel="loop", num_ctas=gpu.num_sms, num_tiles=gpu.num_sms, roles=(role,)), gpu,
        clock="max", recorded_sms=range(gpu.num_sms), l2="warm",
    )  # fmt: skip
    spans = {record.sm_idx: record.sections[-1] for record in result.timeline.roles}
    cycles = {sm: span.end_cycle - span.start_cycle for sm, span in spans.items()}
    if config.sm != "all":
        return {"turn_cycles": cycles[int(config.sm)]}
    return {
        "turn_cycles": median(cycles.values()), "most_cycles": max(cycles.values()), "least_cycles": min(cycles.values()),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- parameters

SHORT_BYTES, LOST_BYTES = 30 << 10, 41 << 10
"""Of a loop's code: up to which nothing is lost; from where on all of it is."""
PARTLY = (33 << 10, 38 << 10)
"""Where a part is."""
FIRST_PLACE = 4
"""Of the TPC that runs a grid of one CTA: of the first GPC's lone ones the first (kernels/launch_order)."""


def code_bytes(row: Mapping[str, str]) -> int:
    """Of a turn."""
    return INSTRUCTION_BYTES * (int(row["instructions"]) + LOOP_CODE)


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Paces of lone SMs, one warp a sub-core, by the place of the TPC; what is kept, of one SM's loops that lose a part."""
    floorplan = load_gpu(GPU).floorplan
    alone = [row for row in rows if row.get("turn_cycles") and row["sm"] != "all" and row["warps"] == "4"]
    found: list[Fitted] = []
    paces: dict[int, float] = {}
    for row in alone:
        if row["reads"] == "none" and code_bytes(row) >= LOST_BYTES and row["group"] == "places":
            place, pace = floorplan.tpc_of_sm[int(row["sm"])], code_bytes(row) / float(row["turn_cycles"])
            paces[place] = min(pace, paces.get(place, pace))
    found += [
        Fitted(
            parameter=f"instruction_cache.loop_fetch_rate_by_tpc.{place}", value=pace / paces[FIRST_PLACE],
            how="loops of 48 KiB without loads, one warp a sub-core, lone SMs: the slowest TPC of that number of the GPCs "
            f"that calibrate, over that of number {FIRST_PLACE}, which runs a lone CTA",
        ) for place, pace in sorted(paces.items()) if FIRST_PLACE in paces
    ]  # fmt: skip
    kept = []
    for reads in OF_PLACES:
        here = [row for row in alone if row["group"] == "lengths" and row["reads"] == reads]
        own = [float(row["turn_cycles"]) / code_bytes(row) for row in here if code_bytes(row) <= SHORT_BYTES]
        lost = [code_bytes(row) / float(row["turn_cycles"]) for row in here if code_bytes(row) >= LOST_BYTES]
        for row in here:
            num_bytes = code_bytes(row)
            if own and lost and PARTLY[0] <= num_bytes <= PARTLY[1]:
                issued = median(own) * num_bytes
                share = (float(row["turn_cycles"]) - issued) / (num_bytes / median(lost) - issued)
                kept.append(num_bytes * (1 - share / (1 + LOOP_WAYS)))
    if kept:
        found.append(Fitted(
            parameter="instruction_cache.loop_kept_bytes", value=median(kept),
            how="loops of 33 to 38 KiB, one warp a sub-core: those without a fifth of what was lost, median",
        ))  # fmt: skip
    return found


CASE = Case(
    name="loop_code",
    question=__doc__ or "",
    config_type=Config,
    groups={"lengths": Group(configs=lengths, rank=3), "places": Group(configs=places, rank=3)},
    launch=launch, check=check,
    values={
        "turn_cycles": "SM cycles of a turn of all warps of an SM, from the first one's begin to the last one's end; "
        "of all SMs the median",
        "most_cycles": "the most of these SMs", "least_cycles": "the least",
    },
    num_repeats=3, predict=predict, tiers={"turn_cycles": 4, "most_cycles": 4}, fit=fit, includes=includes,
)  # fmt: skip
