"""How long does a load take that nothing hides: in L1, near and far in L2 and memory, and where pages are many?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Output, Outputs, Scratch, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LINE_BYTES = 128
PAGE_BYTES = 2 * MIB
"""What the driver maps a large allocation by."""
MOST_BYTES = 4 * GIB
FLUSH_BYTES = 256 * MIB
"""Four times the L2 of an H200."""
NUM_CTAS = measured_gpu().num_sms
MIDDLE_SM = NUM_CTAS // 2 - 1
NUM_THREADS = 1024
MOST_SAMPLES = 4096
SMEM_BYTES = 9224
"""What the kernel declares."""
NOBODY = 0xFFFFFFFF
LEAST_CLOCK_NS = 100_000
"""From here on nanoseconds that move in steps of some 32, or even of 1000, tell the clock."""

FOOTPRINTS_KIB = (16, 32, 64, 96, 128, 160, 192, 208, 224, 240, 256, 320, 512)
FOOTPRINTS_MIB = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 96, 128, 192, 256, 512, 1024,
                  2048, 4096)  # fmt: skip
FOOTPRINTS = (*(KIB * size for size in FOOTPRINTS_KIB), *(MIB * size for size in FOOTPRINTS_MIB))
NUM_PAGES = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512, 768, 1024, 1536, 2040)
PAGE_STRIDE_BYTES = PAGE_BYTES + 9 * LINE_BYTES
"""A page further, and some lines, so that nodes share no set."""

PASSES = ("first", "again")
QUANTILES = {"min": 0.0, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99, "max": 1.0}
NUM_CENTRES = 4

STATE = np.dtype([
    ("self", "<u8"), ("whole_cycles", "<i8"), ("whole_ns", "<i8"), ("ends", "<u8", 4), ("sum", "<u8"), ("arrived", "<u4", 4),
    ("has_failed", "<u4"), ("is_done", "<u4"), ("ctas_on_sm", "<u4", 256),
])  # fmt: skip
"""``State`` of kernel.cu."""


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """``warmed_by`` is ``none`` (cold), ``self`` or an SM, ``compared_with`` ``none`` or an SM."""

    kernel: str
    footprint_bytes: int
    _: KW_ONLY
    stride_bytes: int = LINE_BYTES
    order: str = "random"
    sm: int = 0
    warmed_by: str = "none"
    compared_with: str = "none"


def footprint_configs() -> list[Config]:
    """Every footprint, lines in random order: cached in L1 and not, warm and cold, from two SMs; warm in L2 from four."""
    sweeps = [
        ("chase_ca", "self", (0, MIDDLE_SM)), ("chase_cg", "self", (0, NUM_CTAS // 4, MIDDLE_SM, NUM_CTAS - 1)),
        ("chase_cg", "none", (0, MIDDLE_SM)),
        ("chase_ca", "none", (0,)),
    ]  # fmt: skip
    return [
        Config(kernel, size, sm=sm, warmed_by=warmed_by) for kernel, warmed_by, sms in sweeps for sm in sms
        for size in FOOTPRINTS
    ]  # fmt: skip


def side_configs() -> list[Config]:
    """From every SM: lines that SM 0 has brought into L2, the same lines from SM 0 again; and lines that memory has."""
    warm = [Config("chase_cg", MIB, sm=sm, warmed_by="0", compared_with="0") for sm in range(NUM_CTAS)]
    return warm + [Config("chase_cg", 64 * MIB, sm=sm, compared_with="0") for sm in range(NUM_CTAS)]


def page_configs() -> list[Config]:
    """One line in each of some pages, in L2 (or L1) all of them; then as many lines at other distances."""
    found = [
        Config(kernel, num_pages * PAGE_STRIDE_BYTES, stride_bytes=PAGE_STRIDE_BYTES, sm=sm, warmed_by="self")
        for kernel, sm in (("chase_cg", 0), ("chase_cg", MIDDLE_SM), ("chase_ca", 0)) for num_pages in NUM_PAGES
    ]  # fmt: skip
    for num_nodes in (64, 256, 1016):
        for distance in (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB):
            stride = distance + 11 * LINE_BYTES
            found.append(Config("chase_cg", num_nodes * stride, stride_bytes=stride, warmed_by="self"))
    return found


def order_configs() -> list[Config]:
    """Cold, node after node and in random order, at strides from a sector to a page: what a fill brings along."""
    strides = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 65536, 512 * KIB)
    return [
        Config("chase_cg", min(MOST_BYTES, 8192 * stride), stride_bytes=stride, order=order)
        for order in ("linear", "random") for stride in strides
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- the chain
def num_nodes(config: Config) -> int:
    """Nodes of the chain."""
    return config.footprint_bytes // config.stride_bytes


def num_samples(config: Config) -> int:
    """Loads of each pass: cold, the first two passes together see each node once at most."""
    return min(MOST_SAMPLES, num_nodes(config) // 2) if config.warmed_by == "none" else MOST_SAMPLES


def num_bits(config: Config) -> int:
    """Bits of the smallest power of two that is not less than the nodes."""
    return (num_nodes(config) - 1).bit_length()


def walk(config: Config, num_steps: int) -> list[int]:
    """The nodes that a chase visits from node 0 on, ``num_steps`` of them, as kernel.cu links them."""
    nodes = num_nodes(config)
    if config.order == "linear":
        return [(step + 1) % nodes for step in range(num_steps)]
    bits = num_bits(config)
    mask, half = (1 << bits) - 1, (bits + 1) // 2
    visited: list[int] = []
    x = 0
    while len(visited) < num_steps:
        x = (x * 1664525 + 1013904223) & mask
        node = x ^ (x >> half)
        node = (node * 0x9E3779B1) & mask
        node ^= node >> half
        if node < nodes:
            visited.append(node)
    return visited


# ---------------------------------------------------------------------------------------------- launch and check
def sm_named(name: str, config: Config) -> int:
    """The SM that ``none``, ``self`` or a number stands for."""
    return {"none": NOBODY, "self": config.sm}.get(name, NOBODY) if not name.isdigit() else int(name)


def launch(config: Config) -> KernelLaunch:
    """The same launch whether it is counted or not."""
    sizes = np.array([config.stride_bytes, MOST_BYTES, FLUSH_BYTES], dtype="<u8")
    numbers = np.array(
        [
            num_nodes(config), num_bits(config), config.order == "random", num_samples(config), config.sm,
            sm_named(config.warmed_by, config), sm_named(config.compared_with, config), 0,
        ],
        dtype="<u4",
    )  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.concatenate([sizes.view(np.uint8), numbers.view(np.uint8)])),
            Scratch("room", MOST_BYTES + FLUSH_BYTES),
            Output("state", np.zeros(1, dtype=STATE)), Output("times", np.zeros((4, MOST_SAMPLES), dtype="<u2")),
        ),
        grid=(NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1), carveout_pct=0,
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Latencies of the passes, where the chain ended where it must."""
    state, times = outputs["state"][0], outputs["times"]
    wrong_if(state["has_failed"], "the CTAs did not meet, the wait was given up")
    for name in (str(config.sm), config.warmed_by, config.compared_with):
        sm = sm_named(name, config)
        if sm != NOBODY and not (sm < len(state["ctas_on_sm"]) and state["ctas_on_sm"][sm]):
            raise WrongAnswer(f"no CTA came to SM {sm}, so nobody chases there")
    count = num_samples(config)
    visited = walk(config, 2 * count)
    stride = config.stride_bytes
    passes = ["whole", *PASSES, *(["reference"] if config.compared_with != "none" else [])]
    for idx, name in enumerate(passes):
        wanted = (visited[count - 1] if name == "whole" else visited[-1]) * stride
        if int(state["ends"][idx]) != wanted:
            raise WrongAnswer(f"pass {name} ended at byte {int(state['ends'][idx])}, not at {wanted}")
    if state["whole_cycles"] <= 0 or not times[: len(passes) - 1, :count].all() or not times[3, :count].all():
        raise WrongAnswer("the clock says 0 cycles, or stood still")
    values = values_of(float(state["whole_cycles"]) / count, times[:, :count].astype(np.int64), passes[1:])
    if state["whole_ns"] >= LEAST_CLOCK_NS:
        values["sm_clock_mhz"] = float(state["whole_cycles"]) / float(state["whole_ns"]) * 1e3
    return values


def values_of(whole_cycles: float, times: NDArray[np.int64], passes: Sequence[str]) -> dict[str, float]:
    """A row's values from int64[4, samples] cycles; the last row is the clock's own time, taken off the others."""
    overhead = float(np.median(times[3]))
    values = {"whole_cycles": whole_cycles, "overhead_cycles": overhead, "num_samples": float(times.shape[1])}
    net = times - overhead
    for idx, name in enumerate(passes):
        values[f"{name}_mean_cycles"] = float(net[idx].mean())
        for quantile, share in QUANTILES.items():
            values[f"{name}_{quantile}_cycles"] = float(np.quantile(net[idx], share, method="nearest"))
        for number, (centre, share) in enumerate(clusters(net[idx])):
            values[f"{name}_centre{number}_cycles"] = centre
            values[f"{name}_share{number}"] = share
    if "reference" in passes:
        again, reference = net[1], net[2]
        spread = float(again.std() * reference.std())
        shared = float(((again - again.mean()) * (reference - reference.mean())).mean())
        values["correlation"] = shared / spread if spread else 0.0
    return values


def clusters(
    cycles: NDArray[np.floating[Any]], *, bin_cycles: int = 8, least_share: float = 0.02
) -> list[tuple[float, float]]:
    """(median, share) of the heaps that latencies fall into, at most four, in order.

    Heaps are parted where the smoothed histogram falls to half the lower of two peaks or less; those of less than
    ``least_share`` are left out.

    >>> clusters(np.array([260.0] * 60 + [262.0] * 10 + [470.0] * 30))
    [(260.0, 0.7), (470.0, 0.3)]
    """
    bins = np.maximum(cycles, 0).astype(np.int64) // bin_cycles
    counts = np.bincount(bins, minlength=int(bins.max()) + 5).astype(np.float64)
    smooth = np.convolve(counts, np.array([1.0, 2.0, 3.0, 2.0, 1.0]) / 9.0, mode="same")
    peaks: list[int] = []
    valleys: list[int] = []
    for at in np.flatnonzero(smooth >= least_share * len(cycles) / 9.0).tolist():
        if not peaks:
            peaks.append(at)
            continue
        valley = peaks[-1] + int(np.argmin(smooth[peaks[-1] : at + 1]))
        if smooth[valley] <= 0.5 * min(smooth[peaks[-1]], smooth[at]):
            peaks.append(at)
            valleys.append(valley)
        elif smooth[at] > smooth[peaks[-1]]:
            peaks[-1] = at
    heaps = np.searchsorted(np.array(valleys, dtype=np.int64), bins, side="left")
    found = [
        (float(np.median(cycles[heaps == heap])), float(np.count_nonzero(heaps == heap)) / len(cycles))
        for heap in range(len(peaks)) if np.count_nonzero(heaps == heap) >= least_share * len(cycles)
    ]  # fmt: skip
    heaviest = sorted(found, key=lambda heap: -heap[1])[:NUM_CENTRES]
    return sorted(heaviest)


# ---------------------------------------------------------------------------------------------- the simulator's answer

NUM_LUMPS = 256
"""Into so many parts a footprint falls, each of which stays in a cache or leaves it as one."""


def twin(config: Config, num_chased: int, *, is_warmed: bool) -> Launch:
    """One thread that loads, lump after lump, what it is to find, and then ``num_chased`` nodes, one after the other."""
    in_l1 = config.kernel == "chase_ca"
    lump_sectors = max(1, config.footprint_bytes // NUM_LUMPS // 32)

    def chaser(cta: RoleContext) -> Iterator[Any]:
        del cta
        for lump in range(NUM_LUMPS if is_warmed else 0):
            whole = AccessPattern(num_requests=1, num_sectors=lump_sectors, num_lines=1, num_bytes=32 * lump_sectors)
            token = yield ops.GlobalLoad("nodes", (0, lump), whole, allocates_in_l1=in_l1)
            yield ops.Use(token)
        for step in range(num_chased):
            node = AccessPattern(num_requests=1, num_sectors=1, num_lines=1, num_bytes=8)
            token = yield ops.GlobalLoad("nodes", (0, step * 73 % NUM_LUMPS), node, allocates_in_l1=in_l1)
            yield ops.Use(token)

    def bystander(cta: RoleContext) -> Iterator[Any]:
        """The kernel's other warps: they only keep further CTAs, and their shared memory, off the SM."""
        del cta
        yield from ()

    roles = (
        WarpRole(name="chaser", num_warps=1, program=chaser),
        WarpRole(name="bystanders", num_warps=NUM_THREADS // 32 - 1, program=bystander),
    )
    return Launch(kernel=config.kernel, num_ctas=1, num_tiles=1, roles=roles, extra_smem_bytes=SMEM_BYTES)


def latency_cycles(config: Config, gpu: GpuSpec) -> float:
    """Cycles from one load to the next in the simulator: what the chain adds to the warming alone."""
    is_warm = config.warmed_by != "none"
    ends = [
        simulate(twin(config, num_chased, is_warmed=is_warm), gpu, clock="max", l2="cold").cycles
        for num_chased in (0, NUM_LUMPS)
    ]
    return (ends[1] - ends[0]) / NUM_LUMPS


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The mean latency, at the highest clock.

    Nothing where the simulator has no such thing: which SM is near, pages, fills beyond a sector.
    """
    stride = config.stride_bytes
    is_plain = config.warmed_by in ("none", "self") and config.compared_with == "none"
    if not is_plain or stride != LINE_BYTES or config.order == "linear":
        return {}
    return {"whole_cycles": latency_cycles(config, gpu), "sm_clock_mhz": gpu.clock.max_mhz}


# ---------------------------------------------------------------------------------------------- parameters
ISSUE_CYCLES = 1.0
"""Of a load, which the simulator counts beside the latency."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Latencies of L1, L2 and memory, and how they spread: plateaus of the footprints, far lines of the sides; medians."""
    warm = [row for row in rows if row["group"] == "footprint" and row["warmed_by"] == "self"]
    cold = [row for row in rows if row["group"] == "footprint" and row["warmed_by"] == "none"]
    in_l1 = [
        float(row["whole_cycles"]) - ISSUE_CYCLES for row in warm
        if row["kernel"] == "chase_ca" and _is_between(row, 0, 128 * KIB) and row.get("whole_cycles")
    ]  # fmt: skip
    in_l2 = [row for row in warm if row["kernel"] == "chase_cg" and _is_between(row, MIB, 16 * MIB)]
    near = [float(row["whole_cycles"]) - ISSUE_CYCLES for row in in_l2 if row.get("whole_cycles")]
    spread = [
        float(row["again_p99_cycles"]) - float(row["again_mean_cycles"]) for row in in_l2 if row.get("again_p99_cycles")
    ]  # fmt: skip
    in_memory = [
        float(row["whole_cycles"]) / float(row["sm_clock_mhz"]) * 1e3 for row in cold
        if _is_between(row, 64 * MIB, 256 * MIB) and row.get("whole_cycles") and row.get("sm_clock_mhz")
    ]  # fmt: skip
    waits = [
        _refresh(*(float(row[f"first_p{pct}_cycles"]) / float(row["sm_clock_mhz"]) * 1e3 for pct in (75, 90, 99)))
        for row in cold if _is_between(row, 64 * MIB, 256 * MIB) and row.get("first_p99_cycles") and row.get("sm_clock_mhz")
    ]  # fmt: skip
    found = {
        "l1.hit_latency_cycles": (in_l1, "median of the bare chains in L1 of up to 128 KiB, less the issue of a load"),
        "l2.near_latency_cycles": (
            near,
            "bare chains of lines that the SM itself has brought into L2, 1 to 16 MiB, less the issue of a load: median",
        ),
        "l2.far_latency_cycles": (
            _far(rows),
            "first chains over lines that an SM of the other side has brought, of which half are far: twice the mean less "
            "that of the second chain, less the issue, median",
        ),
        "l2.slice_spread_cycles": (spread, "P99 less mean of loads that hit near, 1 to 16 MiB, median"),
        "hbm.latency_ns": (in_memory, "bare cold chains of 64 to 256 MiB over the clock, median"),
        "hbm.refresh_fraction": (
            [share for share, _ in waits],
            "P75, P90 and P99 of cold chains of 64 to 256 MiB: the line through the last two meets the first at this share",
        ),
        "hbm.refresh_ns": ([longest for _, longest in waits], "slope of that line, over the share and the clock"),
    }
    return [
        Fitted(parameter=name, value=float(np.median(values)), how=how) for name, (values, how) in found.items() if values
    ]


def _is_between(row: Mapping[str, str], least_bytes: int, most_bytes: int) -> bool:
    return least_bytes <= int(row["footprint_bytes"]) <= most_bytes


LEAST_FAR_CYCLES = 40
"""By which a chain over the other side's lines is slower, where half of them are far."""


def _far(rows: Sequence[Mapping[str, str]]) -> list[float]:
    """What a far line takes, from each SM on the other side than the one that has warmed L2."""
    found = []
    for row in rows:
        if row["group"] == "side" and row["warmed_by"] != "none" and row.get("again_mean_cycles"):
            mean, near = float(row["whole_cycles"]), float(row["again_mean_cycles"])
            if float(row["first_mean_cycles"]) > near + LEAST_FAR_CYCLES:
                found.append(2 * mean - near - ISSUE_CYCLES)
    return found


def _refresh(p75: float, p90: float, p99: float) -> tuple[float, float]:
    """(share of the loads that wait, longest wait) where those that wait do so evenly, and the others take ``p75`` at most.

    >>> _refresh(350.0, 370.0, 460.0)
    (0.12, 120.0)
    """
    slope = (p99 - p90) / 0.09
    share = 0.1 + (p90 - p75) / slope
    return round(share, 9), round(share * slope, 9)


def _values() -> dict[str, str]:
    """What the values mean, by name."""
    found = {
        "whole_cycles": "SM cycles a load, mean of a pass over num_samples nodes without a clock in it",
        "sm_clock_mhz": "SM cycles a microsecond over that pass, where it lasts 100 microseconds or more",
        "overhead_cycles": "SM cycles between the two clocks without a load; taken off all below",
        "num_samples": "loads of each pass",
        "correlation": "of the latencies of pass again and pass reference, load by load: 1 for SMs of one side",
    }
    of = {
        "first": "the num_samples nodes behind those of whole_cycles, each load timed",
        "again": "the same nodes at once again",
        "reference": "the same nodes from SM compared_with",
    }
    for name, meaning in of.items():
        found[f"{name}_mean_cycles"] = f"SM cycles, mean; {meaning}"
        for quantile, share in QUANTILES.items():
            found[f"{name}_{quantile}_cycles"] = f"SM cycles, quantile {share:g}; {meaning}"
        for number in range(NUM_CENTRES):
            found[f"{name}_centre{number}_cycles"] = f"SM cycles, middle of heap {number} of the latencies; {meaning}"
            found[f"{name}_share{number}"] = f"part of the loads in heap {number}; {meaning}"
    return found


CASE = Case(
    name="pointer_chase",
    question="How long does a load take that nothing hides: in L1, near and far in L2 and memory, and where pages are many?",
    config_type=Config,
    groups={
        "footprint": Group(configs=footprint_configs, rank=1), "side": Group(configs=side_configs, rank=4),
        "page": Group(configs=page_configs, rank=5), "order": Group(configs=order_configs, rank=6),
    },
    launch=launch, check=check, values=_values(), predict=predict, tiers={"whole_cycles": 2}, fit=fit,
)  # fmt: skip
