"""When are stores of several warps to shared memory over, and what does a fence behind them wait for? Every warp's clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted, slopes_of_pairs
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.launch import Buffer, Launch, RoleContext, WarpRole
from gpusim.workload.ops import Op, RangeEnd, RangeStart, Section
from gpusim.workload.smem.access import AccessPattern

OPS = {"b32": ("B32", 1, 4), "b64": ("B64", 4, 8), "b128": ("B128", 4, 16), "stmatrix": ("Matrix", 4, 16)}
"""Access: struct in kernel.cu, wavefronts, bytes a lane. 64 bits as an epilogue has them, two rows in the same banks."""
COUNTS = (2, 4, 8, 16, 32)
WARPS = (1, 2, 4, 8, 16)
ENDS = ("fence", "barrier")
MOST_WARPS, REGION_BYTES, NUM_LOOKS = 16, 1024, 4
"""As kernel.cu has them."""


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config.

    >>> Row("b64", 16, "fence", 4).kernel
    'store_b64_16_fence'
    """

    op: str
    count: int
    end: str
    warps: int

    @property
    def kernel(self) -> str:
        """The entry point."""
        return f"store_{self.op}_{self.count}_{self.end}"


def includes() -> dict[str, str]:
    """An entry point for each access, number of them and end."""
    lines = [
        f"STORE_KERNEL({row.kernel}, {OPS[row.op][0]}, {row.count}, {str(row.end == 'fence').lower()})"
        for row in Row.sweep(op=OPS, count=COUNTS, end=ENDS, warps=1)
    ]
    return {"shapes.inc": "\n".join(lines) + "\n"}


def stores() -> list[Row]:
    """Every access, number, end and number of warps."""
    return [Row(op, count, end, warps) for op in OPS for end in ENDS for warps in WARPS for count in COUNTS]


def offsets(op: str) -> NDArray[np.int64]:
    """Where the lanes of a warp store, int64[32] in bytes from its region; of ``stmatrix``: the rows' addresses."""
    lanes = np.arange(32)
    if op == "b32":
        return 4 * lanes
    if op == "b64":  # rows of 128 bytes, eight of them, chunks of 16 bytes XORed with the row
        return lanes // 4 * 128 + (lanes % 4 // 2 ^ lanes // 4) * 16 + lanes % 2 * 8
    return 16 * lanes


def values() -> NDArray[np.uint32]:
    """Four words of each lane, uint32[4, 32]."""
    return (np.arange(1, 129, dtype=np.uint64) * 0x9E3779B1 % 2**32).astype(np.uint32).reshape(4, 32)


def launch(config: Row) -> KernelLaunch:
    """One CTA."""
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(offsets(config.op).astype("<u4")), Input(values()),
            Output("times", np.zeros((MOST_WARPS, NUM_LOOKS), dtype=np.int64)),
            Output("dump", np.full(MOST_WARPS * REGION_BYTES // 4, 0xA5A5A5A5, dtype=np.uint32)),
        ),
        block=(32 * config.warps, 1, 1),
    )  # fmt: skip


def wanted_region(op: str) -> NDArray[np.uint32]:
    """What a warp leaves in its region, uint32[256]."""
    made, words = np.zeros(REGION_BYTES // 4, dtype=np.uint32), values()
    if op == "stmatrix":  # matrix i: row r has the words of lanes 4 r to 4 r + 3, at the address of lane 8 i + r
        for matrix in range(4):
            for row in range(8):
                made[(matrix * 8 + row) * 4 : (matrix * 8 + row) * 4 + 4] = words[matrix, 4 * row : 4 * row + 4]
        return made
    num_words = OPS[op][2] // 4
    for lane, offset in enumerate(offsets(op)):
        made[offset // 4 : offset // 4 + num_words] = words[:num_words, lane]
    return made


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """When warps were where, from the first warp's begin.

    Raises:
        WrongAnswer: other words than were stored, or a clock that does not run.
    """
    num_warps = config.warps
    regions = outputs["dump"].reshape(MOST_WARPS, -1)
    if (regions[:num_warps] != wanted_region(config.op)).any() or regions[num_warps:].any():
        raise WrongAnswer("shared memory holds other words than were stored")
    times = outputs["times"][:num_warps].astype(np.int64)
    wrong_if((np.diff(times, axis=1) <= 0).any(), "the clock does not run")
    begun, issued, fenced, met = (times - times[:, 0].min()).T
    found = {
        "begun_last_cycles": begun.max(), "issued_first_cycles": issued.min(), "issued_last_cycles": issued.max(),
        "fenced_first_cycles": fenced.min(), "fenced_last_cycles": fenced.max(), "met_cycles": met.max(),
    }  # fmt: skip
    for warp in range(min(num_warps, 8)):
        found |= {f"issued_{warp}": issued[warp], f"fenced_{warp}": fenced[warp]}
    return {name: float(value) for name, value in found.items()}


# ---------------------------------------------------------------------------------------------- the simulator's answer
STORE_CYCLES = 4
"""From one store of a warp to the next, in SASS."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """When all have issued their stores, and when the barrier lets the last one go."""
    op, count, num_warps = config.op, config.count, config.warps
    if not {"stmatrix", "tma"} <= gpu.features:
        return {}
    _, each, lane_bytes = OPS[op]
    access = AccessPattern(num_requests=num_warps, num_wavefronts=num_warps * each, num_bytes=num_warps * 32 * lane_bytes)

    def program(_cta: RoleContext) -> Iterator[Op]:
        yield RangeStart(Section.PROLOGUE)
        for store in range(count):
            if store:
                yield ops.Alu((STORE_CYCLES - 1) / 4, is_chain=True)
            yield ops.Stmatrix(access, "buffer", 0) if op == "stmatrix" else ops.SharedStore(access, "buffer", 0)
        yield RangeEnd()
        yield RangeStart(Section.PROLOGUE)
        if config.end == "fence":
            yield ops.FenceProxyAsync()
        yield ops.Syncthreads()
        yield RangeEnd()

    asked = Launch(
        kernel=config.kernel, num_ctas=1, num_tiles=1,
        roles=(WarpRole(name="all", num_warps=num_warps, program=program),),
        buffers=(Buffer(name="buffer", stage_bytes=REGION_BYTES * MOST_WARPS),), registers_per_thread=32,
    )  # fmt: skip
    spans = simulate(asked, gpu, clock="max", l2="warm", recorded_sms=range(gpu.num_sms)).timeline.roles[0].sections
    begin = spans[0].start_cycle
    return {"issued_last_cycles": spans[0].end_cycle - begin, "met_cycles": spans[1].end_cycle - begin}


# ---------------------------------------------------------------------------------------------- parameters
Rows = Sequence[Mapping[str, str]]
FEW, MANY = (4, 8), (4, 8, 16)
"""Warps that keep the data stage busy; of those that first fence, as many as have their stores at most twice a scheduler."""
LEAST_WAVEFRONTS = 128
"""With which the data stage is behind, whatever issue takes."""


def served_cycles(row: Mapping[str, str]) -> float:
    """When the data stage has served all stores, from the first warp's begin."""
    return 1.0 + OPS[row["op"]][1] * int(row["count"]) * int(row["warps"])


def _fenced(rows: Rows, warps: tuple[int, ...], *, has_conflicts: bool | None = None) -> list[Mapping[str, str]]:
    """Rows with a fence, of so many warps, whose stores take the data stage longer than the warps."""
    return [
        row for row in rows
        if row["end"] == "fence" and int(row["warps"]) in warps and served_cycles(row) > LEAST_WAVEFRONTS
        and row["op"] != "b32" and has_conflicts in (None, row["op"] == "b64")
    ]  # fmt: skip


def fit(rows: Rows) -> list[Fitted]:
    """What fences wait for: the stores' way, conflicts that they do not wait for, and until copies see all of it."""
    fence, barrier = FENCE_CYCLES, BARRIER_CYCLES
    latencies = [
        float(row["fenced_last_cycles"]) - served_cycles(row) - fence for row in _fenced(rows, FEW, has_conflicts=False)
    ]  # fmt: skip
    latency = float(np.median(latencies)) if latencies else float("nan")
    replays = [
        served_cycles(row) + fence + latency - float(row["fenced_last_cycles"])
        for row in _fenced(rows, FEW, has_conflicts=True)
    ]  # fmt: skip
    seen = [
        (int(row["warps"]) - 1.0,
         float(row["met_cycles"]) - served_cycles(row) - latency - fence - barrier[0] - barrier[1] * int(row["warps"]))
        for row in _fenced(rows, MANY)
    ]  # fmt: skip
    found: dict[str, tuple[list[float], str]] = {
        "smem.store_latency_cycles": (
            latencies, "the last fence behind stores without conflicts, less their wavefronts and a fence, median"
        ),
        "smem.overtakable_wavefronts": (replays, "how much earlier fences behind stores with conflicts are over, median"),
    }
    if len({warps for warps, _ in seen}) > 1:
        each = float(np.median(slopes_of_pairs(seen)))
        how = "barriers behind stores and fences of 4 to 16 warps, less both"
        found["warp_scheduler.fence_warp_cycles"] = ([each], f"{how}: slope over warps")
        found["warp_scheduler.proxy_fence_visible_cycles"] = (
            [cycles - each * warps for warps, cycles in seen], f"{how}, as of one warp, median"
        )
    return [one for name, (values, how) in found.items() for one in fitted(name, values, how)]


FENCE_CYCLES, BARRIER_CYCLES = 8.286, (12.08, 1.919)
"""A proxy fence with nothing before it; a barrier, and what it takes for each warp. From ``kernels/barriers``."""

MEANINGS = {
    "begun_last_cycles": "the last warp begins",
    "issued_first_cycles": "the first warp has issued its stores",
    "issued_last_cycles": "the last warp has issued its stores",
    "fenced_first_cycles": "the first warp's fence is over",
    "fenced_last_cycles": "the last warp's fence is over",
    "met_cycles": "the barrier has let the last warp go",
}

CASE = Case(
    name="store_fence",
    question="When are stores of several warps to shared memory over, and what does a fence behind them wait for?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={"stores": Group(configs=stores, rank=4, least_capability=(9, 0))},
    values={name: f"SM cycles from the first warp's begin until {text}" for name, text in MEANINGS.items()}
    | {f"{what}_{warp}": f"SM cycles, the same of warp {warp}" for what in ("issued", "fenced") for warp in range(8)},
    tiers={"issued_last_cycles": 4, "met_cycles": 2},
)  # fmt: skip
