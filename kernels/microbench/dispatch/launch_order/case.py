"""When does each CTA of a grid start, on which SM, and how soon after the one before it has left?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import MeasuredGpu, measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.simulate.timeline import WarpState
from gpusim.workload import ops
from gpusim.workload.launch import Launch, Mbarrier, RoleContext, WarpRole
from gpusim.workload.smem.access import AccessPattern

NUM_SMS = measured_gpu().num_sms
SMEM_PER_SM_BYTES, MOST_SMEM_BYTES = measured_gpu().smem_per_sm_bytes, measured_gpu().smem_per_cta_bytes
RESERVED_SMEM_BYTES = 1024
CLUSTERS = ((2, 132), (4, 120), (8, 120)) if measured_gpu() == MeasuredGpu() else ()
"""CTAs of a cluster, and CTAs in such clusters that are there at once; unknown of other GPUs."""
NUM_PAIRS = 8
STEP_CYCLES = 250
"""In such steps CTAs stay longer than others."""
NUM_ORDERED = NUM_SMS
"""CTAs whose SM is kept."""
CLUSTER_REGISTERS = 32
"""At most, of the kernels with clusters."""
APART_NS, STEP_NS = 200_000, 32
"""The two moments at which clocks are compared, as in kernel.cu; steps of the GPU's nanoseconds on an H200."""
BEHIND_MARK = 11
"""Instructions of a chain that take as long as a CTA's last clocks and the making of five stores, behind which it is out.
By hand: with the store itself 75 cycles, as CTAs that load a line and leave come and go 62 to 127 cycles sooner than without
(kernels/cta_turnover, h200_sxm, 2026-11-26); what it is made of: SASS."""
MARK_CYCLES, MARKS_CYCLES = 343.0, 358.0
"""Between the two marks of a CTA that does not stay, of one warp and of several: reading the nanoseconds is slow.

Cycles a CTA times CTAs at once, less the median gap, of rows of ``rate`` at even positions: 344.5, 341.8; 358, 358.5."""
FEWEST_STEPS = 30
"""Ramps of fewer steps of the nanoseconds are not told: two SMs' clocks are no closer than a step."""

Numbers = NDArray[np.float64]

METRICS = (
    "sm__cycles_elapsed.max", "sm__cycles_elapsed.min", "sm__cycles_elapsed.avg", "sm__cycles_active.max",
    "sm__cycles_active.min", "sm__cycles_active.avg", "gpc__cycles_elapsed.max", "gpu__time_duration.sum",
)  # fmt: skip


def smem_of(slots: int) -> int:
    """The most shared memory of which ``slots`` CTAs fit on an SM.

    >>> smem_of(1), smem_of(2)
    (232448, 115712)
    """
    return min(MOST_SMEM_BYTES, SMEM_PER_SM_BYTES // slots // 128 * 128 - RESERVED_SMEM_BYTES)


@dataclass(frozen=True)
class Config(ConfigRow):
    """``kernel`` is given where cluster and registers do not say it."""

    grid: int
    _: KW_ONLY
    threads: int = 32
    smem_bytes: int = field(init=False)
    slots: int = 1
    cluster: int = 1
    registers: int = 32
    stay_cycles: int = 0
    spread_cycles: int = 0
    aligned: int = 0
    first: int = 0
    repeat: int = 0
    kernel: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "smem_bytes", smem_of(self.slots))
        kernel = f"mark_c{self.cluster}" if self.cluster > 1 else f"mark_r{self.registers}"
        object.__setattr__(self, "kernel", self.kernel or kernel)


def start() -> list[Config]:
    """One wave that stays until all have come: who starts where and when."""
    found = [
        Config(NUM_SMS * slots, slots=slots, aligned=NUM_SMS * slots, repeat=repeat)
        for slots in (1, 2, 3, 4, 5, 8, 16) for repeat in (0, 1, 2)
    ]  # fmt: skip
    found += [
        Config(NUM_SMS, threads=threads, registers=registers, aligned=NUM_SMS, repeat=repeat)
        for threads, registers in ((128, 32), (256, 32), (384, 128), (512, 32), (256, 255), (1024, 64)) for repeat in (0, 1)
    ]  # fmt: skip
    found += [
        Config(grid, cluster=size, aligned=grid, repeat=repeat)
        for size, grid in CLUSTERS for repeat in (0, 1)
    ]  # fmt: skip
    return found


def tail() -> list[Config]:
    """One wave that does not fill all slots: which SMs get one more."""
    return [
        Config(NUM_SMS * whole + rest, slots=slots, stay_cycles=10_000, first=NUM_SMS * whole, repeat=repeat)
        for slots in (2, 3, 4, 5) for whole in range(1, slots) for rest in (1, 16, NUM_SMS // 2, 100) for repeat in (0, 1)
    ]  # fmt: skip


def refill() -> list[Config]:
    """Waves: how soon a freed slot has its next CTA, which one, and where the last ones go."""
    found = []
    for stay, spread in ((2000, 0), (2000, 3000), (8000, 0), (8000, 6000)):
        for slots in (1, 2, 3, 4, 5, 6, 8, 16):
            grid = NUM_SMS * slots * 4 + 40
            found.append(
                Config(grid, slots=slots, stay_cycles=stay, spread_cycles=spread, aligned=NUM_SMS * slots, first=grid - 40)
            )
    for threads, registers in ((128, 128), (256, 128), (384, 128), (512, 64), (1024, 64), (256, 255)):
        grid = NUM_SMS * 4 + 40
        found.append(
            Config(
                grid,
                threads=threads,
                registers=registers,
                stay_cycles=4000,
                spread_cycles=2000,
                aligned=NUM_SMS,
                first=grid - 40,
            )
        )
    for size, at_once in CLUSTERS:
        grid = at_once * 4 + size * 5
        row = Config(grid, cluster=size, stay_cycles=4000, spread_cycles=2000, aligned=at_once, first=grid - size * 5)
        found.append(row)
    return found


def rate() -> list[Config]:
    """Many CTAs that leave at once: how many start a cycle, and what that depends on."""
    grid = NUM_SMS * 64
    found = Config.sweep(threads=(32, 64, 96, 128, 192, 256, 384, 512, 768, 1024), grid=grid, slots=32)
    found += Config.sweep(slots=(1, 2, 3, 4, 6, 8, 12, 16, 24), grid=grid, threads=32)
    found += Config.sweep(registers=(32, 64, 128, 255), grid=grid, slots=4, threads=128)
    found += Config.sweep(slots=(1, 4), cluster=[size for size, _ in CLUSTERS], grid=grid, threads=128)
    return found


def ramp() -> list[Config]:
    """Grids of all sizes under the profiler: what a kernel costs before its first and after its last CTA."""
    grids = (1, 2, 8, NUM_SMS // 4, NUM_SMS // 2, *(NUM_SMS << turn for turn in range(7)))
    found = Config.sweep(grid=grids, slots=32, kernel="empty")
    found += Config.sweep(grid=grids, slots=32)
    found += Config.sweep(grid=(NUM_SMS, 8 * NUM_SMS), threads=(128, 512, 1024), slots=1, kernel="empty")
    found += Config.sweep(grid=(1, *grids[4:7]), slots=1, threads=384, registers=128, stay_cycles=1000)
    return found


# ---------------------------------------------------------------------------------------------- launch and check
def stays(config: Config) -> NDArray[np.int64]:
    """Cycles that each CTA stays, int64[grid]."""
    ctas = np.arange(config.grid, dtype=np.uint64)
    mixed = (ctas * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)) >> np.uint64(16)
    steps = config.spread_cycles // STEP_CYCLES
    return config.stay_cycles + STEP_CYCLES * (mixed % np.uint64(steps + 1)).astype(np.int64)


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """One launch; clocks are not compared where it is counted."""
    grid, aligned = config.grid, 0 if is_counted else config.aligned
    steps = config.spread_cycles // STEP_CYCLES
    plan = np.array([config.stay_cycles, steps, aligned, 0], dtype="<u4")
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(plan), Output("marks", np.full((grid, 5), -1, dtype="<i8")),
            Output("pairs", np.full((max(aligned, 1), NUM_PAIRS, 2), -1, dtype="<i8")),
        ),
        grid=(grid, 1, 1), block=(config.threads, 1, 1), smem_bytes=config.smem_bytes, carveout_pct=100,
    )  # fmt: skip


def common_cycles(
    sms: NDArray[np.int64], clocks: NDArray[np.int64], nanoseconds: NDArray[np.int64], is_exact: NDArray[np.bool_]
) -> tuple[float, dict[int, float]]:
    """Cycles a nanosecond, and for each SM what its clock is ahead, from readings of both clocks side by side.

    The nanoseconds move in steps, so a reading is late by up to a step and never early: the least difference is the truest.
    Readings that were taken as the nanoseconds changed are exact to some cycles; an SM that has such needs no others.
    """
    base = int(nanoseconds.min())
    of_sm: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
    for sm in np.unique(sms):
        mine = sms == sm
        if (mine & is_exact).any():
            mine &= is_exact
        of_sm[int(sm)] = clocks[mine], nanoseconds[mine] - base
    slopes, spans = [], []
    for cycles, ns in of_sm.values():
        first, last = np.argmin(cycles), np.argmax(cycles)
        if ns[last] > ns[first]:
            slopes.append(float(cycles[last] - cycles[first]) / float(ns[last] - ns[first]))
            spans.append(float(ns[last] - ns[first]))
    if not slopes:
        return float("nan"), {}
    order = np.argsort(slopes)
    weights = np.cumsum(np.array(spans)[order])
    rate = float(np.array(slopes)[order][np.searchsorted(weights, weights[-1] / 2)])
    return rate, {sm: float((cycles - rate * ns).min()) for sm, (cycles, ns) in of_sm.items()}


def facts(sms: NDArray[np.int64], starts: Numbers, ends: Numbers, *, first: int) -> dict[str, float]:
    """What is asked, of CTAs in order of their index: their SMs, starts and exits in cycles that all share."""
    grid = len(sms)
    counts = np.bincount(sms, minlength=NUM_SMS)[:NUM_SMS]
    one_each = np.arange(min(grid, NUM_SMS))
    by_tpc = np.concatenate([np.arange(0, NUM_SMS, 2), np.arange(1, NUM_SMS, 2)])
    found = {
        "ramp_cycles": float(starts.max() - starts.min()),
        "cycles_per_cta": float((starts.max() - starts.min()) / max(1, grid - 1)),
        "in_order_pct": 100.0 * float((np.diff(starts) >= 0).mean()) if grid > 1 else 100.0,
        "breadth_first_pct": 100.0 * float((sms[one_each] == one_each).mean()),
        "tpc_first_pct": 100.0 * float((sms[one_each] == by_tpc[one_each]).mean()),
        "num_sms": float((counts > 0).sum()), "most_ctas": float(counts.max()),
        "least_ctas": float(counts.min()), "most_at_once": 0.0,
    }  # fmt: skip
    gaps, matches = _refills(sms, starts, ends)
    found["most_at_once"] = float(matches.pop("most_at_once"))
    if len(gaps):
        found |= {
            "num_refills": float(len(gaps)), "gap_cycles": float(np.median(gaps)), "least_gap_cycles": float(gaps.min()),
            "p90_gap_cycles": float(np.quantile(gaps, 0.9)), "most_gap_cycles": float(gaps.max()), **matches,
        }  # fmt: skip
    found |= {f"sm_of_cta_{idx}": float(sm) for idx, sm in enumerate(sms[first : first + NUM_ORDERED])}
    return found


def _refills(sms: NDArray[np.int64], starts: Numbers, ends: Numbers) -> tuple[Numbers, dict[str, float]]:
    """Cycles from each exit to the start that follows in its slot; how far starts follow exits in order."""
    gaps: list[float] = []
    freed: list[tuple[float, int]] = []
    refilled: list[tuple[int, int]] = []
    most = 0
    for sm in np.unique(sms):
        mine = np.flatnonzero(sms == sm)
        mine = mine[np.argsort(starts[mine], kind="stable")]
        left = np.sort(ends[mine])
        slots = int((np.arange(1, len(mine) + 1) - np.searchsorted(left, starts[mine], side="left")).max())
        most = max(most, slots)
        later = mine[slots:]
        gaps += list(starts[later] - left[: len(later)])
        freed += [(float(end), int(sm)) for end in left[: len(later)]]
        refilled += [(int(cta), int(sm)) for cta in later]
    freed.sort()
    refilled.sort()
    same = [sm == of for (_, of), (_, sm) in zip(freed, refilled, strict=True)]
    return np.array(gaps), {"most_at_once": most, "fifo_pct": 100.0 * float(np.mean(same)) if same else 0.0}


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Starts, order and gaps of the launch."""
    marks = outputs["marks"].astype(np.int64)
    if config.kernel == "empty":
        wrong_if((marks != -1).any(), "the empty kernel has written something")
        return {}
    sms, begins, ends, begins_ns, ends_ns = marks.T
    if (marks < 0).any() or (sms >= NUM_SMS).any():
        raise WrongAnswer(f"CTA {int(np.flatnonzero((marks < 0).any(axis=1) | (sms >= NUM_SMS))[0])} left no mark")
    if (ends - begins < stays(config)).any():
        raise WrongAnswer(f"CTA {int(np.flatnonzero(ends - begins < stays(config))[0])} stayed too short")
    pairs = outputs["pairs"].astype(np.int64)[: config.aligned]
    of_pairs = np.repeat(sms[: len(pairs)], NUM_PAIRS)
    every = np.concatenate([sms, sms, of_pairs])
    clocks = np.concatenate([begins, ends, pairs[:, :, 0].reshape(-1)])
    nanoseconds = np.concatenate([begins_ns, ends_ns, pairs[:, :, 1].reshape(-1)])
    is_exact = np.arange(len(every)) >= 2 * len(sms)
    keep = clocks >= 0  # a counted launch compares no clocks
    rate, ahead = common_cycles(every[keep], clocks[keep], nanoseconds[keep], is_exact[keep])
    if not ahead:
        return {"span_ns": float(ends_ns.max() - begins_ns.min())}
    shift = np.array([ahead.get(sm, np.nan) for sm in range(NUM_SMS)])[sms]
    wrong_if(np.isnan(shift).any(), "an SM's clock was never compared")
    found = facts(sms, begins - shift, ends - shift, first=config.first)
    if found["most_at_once"] > config.slots:
        raise WrongAnswer(f"{found['most_at_once']:.0f} CTAs at once on an SM that has room for {config.slots}")
    return found | {"sm_mhz": rate * 1e3, "span_ns": float(ends_ns.max() - begins_ns.min())}


# ---------------------------------------------------------------------------------------------- the simulator's answer
MARKS = AccessPattern(num_requests=5, num_sectors=5, num_lines=5, num_bytes=40)
"""What a CTA's first thread stores as it leaves, eight bytes at a time; the kernel ends when all of it has arrived."""


def stay_of_marks(config: Config) -> float:
    """Cycles between the marks of a CTA that neither compares clocks nor stays longer than others."""
    if config.kernel == "empty":
        return 0.0
    return max(MARK_CYCLES if config.threads == 32 else MARKS_CYCLES, float(config.stay_cycles))


def staying(config: Config, gpu: GpuSpec) -> GpuSpec:
    """The GPU with three ops, which share nothing, as clocks.

    A CTA stays by ``__syncthreads`` as long as all do, by a fence a step longer, by a wait on an mbarrier as long as clocks
    are compared.
    """
    assert gpu.mbarrier is not None  # of compute capability 9.0
    compared_cycles = (APART_NS + NUM_PAIRS * STEP_NS) * gpu.clock.max_mhz / 1e3
    return replace(
        gpu,
        warp_scheduler=replace(
            gpu.warp_scheduler, fence_cycles=float(STEP_CYCLES), barrier_base_cycles=stay_of_marks(config),
            barrier_warp_cycles=0.0,
        ),
        mbarrier=replace(gpu.mbarrier, try_wait_cycles=compared_cycles),
    )  # fmt: skip


def behind_mark(gpu: GpuSpec) -> float:
    """Cycles of what a CTA does behind its last clock."""
    return BEHIND_MARK * gpu.warp_scheduler.dependent_cycles


def twin(config: Config) -> Launch:
    """The same grid in the simulator's words; there is none for staying, so that other ops stand for it."""
    longer = (stays(config) - config.stay_cycles) // STEP_CYCLES
    num_aligned = config.aligned
    stay = stay_of_marks(config)

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        if cta.cta_idx < num_aligned:
            yield ops.MbarrierWait("compared", 0, 1)
        if stay:
            yield ops.Syncthreads()
        for _ in range(int(longer[cta.cta_idx])):
            yield ops.FenceProxyAsync()
        if config.kernel != "empty":
            yield ops.Alu(BEHIND_MARK, is_chain=True)
            yield ops.GlobalStore("marks", (cta.cta_idx, 0), MARKS)

    grid = config.grid
    return Launch(
        kernel=config.kernel, num_ctas=grid, num_tiles=grid, cluster_size=config.cluster,
        registers_per_thread=config.registers, extra_smem_bytes=config.smem_bytes - 8,
        mbarriers=(Mbarrier(name="compared", num_arrivals=1),),
        roles=(WarpRole(name="all", num_warps=config.threads // 32, program=program),),
    )  # fmt: skip


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """What the dispatcher does with the grid, and of that what marks tell.

    Nothing for a GPU of another number of SMs, whose waves would be others than the grids are made for.
    """
    if gpu.num_sms != NUM_SMS:
        return {}
    result = simulate(twin(config), staying(config, gpu), clock="max", l2="warm", recorded_sms=range(NUM_SMS))
    roles = sorted(result.timeline.roles, key=lambda item: item.cta_idx)
    sms = np.array([item.sm_idx for item in roles], dtype=np.int64)
    starts = np.array([next(end for state, _, end in item.states if state is WarpState.START) for item in roles])
    ends = np.array([item.states[-1][2] for item in roles])
    if config.kernel != "empty":  # the last clock is read before what makes and issues the stores
        ends -= behind_mark(gpu) + MARKS.num_requests
    found = facts(sms, starts, ends, first=config.first)
    found |= {"span_ns": float(ends.max() - starts.min()) / gpu.clock.max_mhz * 1e3, **result.counters}
    wanted = (set(CASE.values) | set(METRICS)) - untold(config, found, gpu)
    return {name: number for name, number in found.items() if name in wanted}


GAPS = {"gap_cycles", "least_gap_cycles", "p90_gap_cycles", "most_gap_cycles", "fifo_pct", "num_refills"}


def untold(config: Config, found: Mapping[str, float], gpu: GpuSpec) -> set[str]:
    """What the marks of a launch do not tell, whatever they say.

    Starts on different SMs lie side by side to a step of the nanoseconds at best, and where clocks were compared 200 us
    apart they drift: by these, 132 CTAs start within 800 to 1000 cycles, while the whole kernel takes no more than 200
    longer than one CTA. Whether all slots are seen taken at once, and so which CTA has followed which, is told only if a
    CTA stays until the others have come.
    """
    if config.kernel == "empty":
        return set(CASE.values)
    hidden: set[str] = set()
    is_aligned = config.aligned != 0
    if is_aligned:
        hidden |= {"span_ns", *METRICS, "ramp_cycles", "cycles_per_cta", "in_order_pct"}
    step_cycles = STEP_NS * gpu.clock.max_mhz / 1e3
    if found["ramp_cycles"] < FEWEST_STEPS * step_cycles:
        hidden |= {"ramp_cycles", "cycles_per_cta"}
    if not is_aligned and config.stay_cycles == 0:
        hidden |= GAPS | {"most_at_once"}
    return hidden


# ---------------------------------------------------------------------------------------------- parameters

ELAPSED = "sm__cycles_elapsed.max"
EXIT_SHARE, DRAIN_SHARE = 0.25, 0.2
"""What of a refill is put down as the exit, and of launch and drain as the drain: the rows show the sums alone."""


def fit(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[Fitted]:
    """Rates in and out; a refill, and what a kernel takes beside its CTAs, each parted in two by a convention."""
    found: list[Fitted] = []
    each, noted = _each_cta(rows), _each_exit(rows)
    if each is None or noted is None:
        return found
    found.append(_fitted("dispatch_cycles_per_cta", each, "ramp of one wave of 132 CTAs and more over CTAs, median slope"))
    how = "empty and other grids of 1056 CTAs and more: sm__cycles_elapsed.max over CTAs, median slope"
    found.append(_fitted("retire_cycles_per_cta", noted, how))
    of_clusters = [
        float(row["cycles_per_cta"]) for row in rows
        if row["group"] == "rate" and row["cluster"] != "1" and row["slots"] != "1" and row.get("cycles_per_cta")
    ]  # fmt: skip
    if of_clusters:
        how = "rate of clusters with four CTAs an SM, median"
        found.append(_fitted("cluster_retire_cycles_per_cta", float(np.median(of_clusters)), how))
    gaps, medians = _refill_gaps(rows)
    if not gaps:
        return found
    how = "twice the median time from exit to start in a slot less the least, where CTAs leave at different times, median"
    found.append(_fitted("round_cycles", 2.0 * float(np.median([median - least for median, least in medians])), how))
    least = float(np.median(gaps))
    refill = least - each - noted
    how = (
        "least time from exit to start in a slot, median, less a dispatch and the note of an exit, is their sum; a "
        "quarter is put down as exit"
    )
    behind = behind_mark(gpu) + gpu.dispatcher.store_exit_cycles
    found.append(_fitted("cta_exit_cycles", max(0.0, EXIT_SHARE * refill - behind), f"{how}, less what is behind the mark"))
    found.append(_fitted("cta_start_cycles", (1.0 - EXIT_SHARE) * refill, how))
    clusters, _ = _refill_gaps(rows, is_cluster=True)
    if clusters:
        how = "least time from exit to start in a slot of clusters, median, less that of CTAs"
        found.append(_fitted("cluster_start_cycles", max(0.0, float(np.median(clusters)) - least), how))
    fixed = _fixed_cycles(rows)
    if fixed is not None:
        both = fixed - (1.0 - EXIT_SHARE) * refill
        how = "empty grids at no CTA, less the start, is their sum; a fifth is put down as drain"
        found.append(_fitted("launch_cycles", (1.0 - DRAIN_SHARE) * both, how))
        found.append(_fitted("drain_cycles", DRAIN_SHARE * both, how))
    return found


def _fitted(parameter: str, value: float, how: str) -> Fitted:
    return Fitted(parameter=f"dispatcher.{parameter}", value=value, how=how)


def _refill_gaps(
    rows: Sequence[Mapping[str, str]], *, is_cluster: bool = False
) -> tuple[list[float], list[tuple[float, float]]]:
    """(the least gap of each row, (median, least) of rows whose CTAs leave at different times)."""
    mine = [
        row for row in rows
        if row["group"] == "refill" and (row["cluster"] != "1") == is_cluster and row.get("least_gap_cycles")
    ]  # fmt: skip
    return [float(row["least_gap_cycles"]) for row in mine], [
        (float(row["gap_cycles"]), float(row["least_gap_cycles"])) for row in mine if row["spread_cycles"] != "0"
    ]


def _slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The median slope of all pairs of points."""
    found = [(b - a) / (y - x) for x, a in points for y, b in points if y > x]
    return float(np.median(found)) if found else None


def _each_cta(rows: Sequence[Mapping[str, str]]) -> float | None:
    """One wave that fills all SMs, of CTAs that compare no clocks."""
    return _slope([
        (float(row["grid"]), float(row["ramp_cycles"])) for row in rows
        if row["group"] in ("ramp", "tail") and row["cluster"] == "1" and row["threads"] == "32"
        and NUM_SMS <= int(row["grid"]) <= NUM_SMS * int(row["slots"]) and row.get("ramp_cycles")
    ])  # fmt: skip


def _each_exit(rows: Sequence[Mapping[str, str]]) -> float | None:
    """Grids whose CTAs leave at once: what the kernel takes longer for each."""
    found = [
        _slope([
            (float(row["grid"]), float(row[ELAPSED])) for row in rows
            if row["group"] == "ramp" and row["kernel"] == kernel and row["slots"] == "32" and row["stay_cycles"] == "0"
            and int(row["grid"]) >= 8 * NUM_SMS and row.get(ELAPSED)
        ])
        for kernel in ("empty", "mark_r32")
    ]  # fmt: skip
    slopes = [slope for slope in found if slope is not None]
    return float(np.median(slopes)) if slopes else None


def _fixed_cycles(rows: Sequence[Mapping[str, str]]) -> float | None:
    """What an empty grid takes beside its CTAs: the intercept at the median slope of all pairs of grids."""
    points = [
        (float(row["grid"]), float(row[ELAPSED])) for row in rows
        if row["group"] == "ramp" and row["kernel"] == "empty" and row["slots"] == "32" and row.get(ELAPSED)
    ]  # fmt: skip
    slopes = [(b - a) / (y - x) for x, a in points for y, b in points if y > x]
    if not slopes:
        return None
    slope = float(np.median(slopes))
    return float(np.median([cycles - slope * grid for grid, cycles in points]))


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """What the kernel takes beyond its first start and last mark."""
    if not (row.get("span_ns") and row.get("gpu__time_duration.sum")):
        return {}
    return {"outside_ns": float(row["gpu__time_duration.sum"]) - float(row["span_ns"])}


def _meanings() -> dict[str, Any]:
    found = {
        "ramp_cycles": "SM cycles from the first CTA's first instruction to the last one's",
        "cycles_per_cta": "ramp_cycles over the CTAs after the first",
        "in_order_pct": "CTAs that start no sooner than the one before them",
        "breadth_first_pct": "of the first CTAs, one an SM, those that SMs 0, 1, 2, ... have in order",
        "tpc_first_pct": "of the first CTAs, one an SM, those that SMs 0, 2, 4, ..., 1, 3, 5, ... have in order",
        "num_sms": "SMs that had a CTA",
        "most_ctas": "CTAs of the SM that had most",
        "least_ctas": "CTAs of the SM that had fewest",
        "most_at_once": "CTAs at once on an SM, by their marks",
        "num_refills": "CTAs that started in a slot that another one had left",
        "gap_cycles": "from a CTA's last instruction to the first one of the next in its slot, the median",
        "least_gap_cycles": "the least such gap",
        "p90_gap_cycles": "of these gaps",
        "most_gap_cycles": "the most such gap",
        "fifo_pct": "refills, in order of CTAs, whose SM is that of the exit of the same number, in order of time",
        "sm_mhz": "SM cycles a microsecond",
        "span_ns": "from the first mark to the last, by the GPU's nanoseconds",
    }
    return found | {f"sm_of_cta_{idx}": f"the SM of CTA first + {idx}" for idx in range(NUM_ORDERED)}


CASE = Case(
    name="launch_order",
    question="When does each CTA of a grid start, on which SM, and how soon after the one before it has left?",
    config_type=Config,
    groups={
        "start": Group(configs=start, rank=1),
        "refill": Group(configs=refill, rank=1),
        "ramp": Group(configs=ramp, metrics=METRICS, rank=1),
        "rate": Group(configs=rate, rank=3),
        "tail": Group(configs=tail, rank=5),
    },
    launch=launch, check=check, values=_meanings(), predict=predict,
    tiers={"most_at_once": 3, "num_sms": 3, "cycles_per_cta": 4, "least_gap_cycles": 2, ELAPSED: 6}, fit=fit,
    derive=derive,
)  # fmt: skip
