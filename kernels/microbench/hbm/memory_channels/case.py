"""Does a burst out of memory end with the fullest of its channels, and which lines share one?"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
    Fitted,
    FittedConstant,
    Group,
    Input,
    KernelLaunch,
    Output,
    Outputs,
    Repeated,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.validation_kernel import pattern_words
from gpusim.kernel_models.streaming import dense_access, same, total
from gpusim.simulate.wasm_module import expected_max
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, RoleContext

MEASURED = measured_gpu()
NUM_SMS, NUM_WARPS = MEASURED.num_sms, 32
MIB, PAGE_BYTES, LINE_BYTES = 2**20, 2 * 2**20, 128
MEMORY_BYTES, FLUSH_BYTES = 4096 * MIB, 256 * MIB
"""From where lists are; read before each pass, so that nothing else is in L2."""
NUM_PASSES = 9
"""The first is not counted."""
LINES_PER_LOAD = 4
"""Of a warp: 8 lanes of 16 bytes each."""
NONE = 0xFFFFFFFF
STATE_WORDS = 256 + 4 * 32
SMEM_BYTES = 120 * 1024
"""So that an SM has one CTA."""
SIZES_KIB = (512, 1024, 2048, 4096, 8192, 16384)
SMALL_KIB = (64, 128, 256)
CHUNKS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
PAGES = ("touched", "flushed", "far")
VECTOR_BYTES = 16
UNIT_BYTES = 512
"""What a warp loads at once."""
MOST_SMALL_KIB, LEAST_KIB, MOST_CHUNK_BYTES = 256, 1024, 16384
"""Runs that are small; of what unevenness is told by, the least, and the largest chunk."""
MHZ, SUSTAINED_GB_PER_S = 1980.0, 4637.0
"""Of the H200's SMs in a short launch; what its memory gives long streams of reads (kernels/stream_grids)."""
REFRESH_FRACTION, REFRESH_NS = 0.1182, 268.3
"""Of a bank's time; the longest (kernels/pointer_chase)."""
PEAK_GB_PER_S, CHANNEL_GB_PER_S = 4917.0, 25.61
"""NVIDIA's data sheet; a pseudo-channel's part of it."""
MULTIPLES = (2, 3, 4, 8, 16, 32, 64, 128)
"""Of a chunk, from where one begins to where the next does."""
EVEN = "even"
"""Chunks that begin at equal distances, instead of a draw."""
LAGS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
SEED_COLUMNS = ("kernel", "total_kib", "source", "pages", "dealt", "chunk_bytes", "region_mib", "place")
"""Columns that seed the draw of the order of loads."""


@dataclass(frozen=True, kw_only=True)
class Config(ConfigRow):
    """``chunk_bytes`` lie side by side, 0: all of them. ``place`` draws which, or where they begin, or is EVEN."""

    source: str = "memory"
    pages: str = "touched"
    dealt: str = "mixed"
    chunk_bytes: int = 0
    total_kib: int = field(kw_only=False)
    region_mib: int = 256
    place: str = "0"

    @property
    def kernel(self) -> str:
        """The entry point: loads unrolled as far as the bytes allow."""
        per_load = NUM_SMS * NUM_WARPS * LINES_PER_LOAD * LINE_BYTES
        return f"lines_u{next((n for n in (1, 2, 4) if n * per_load >= self.total_kib * 1024), 8)}"


def chunks() -> list[Config]:
    """Chunks drawn out of 256 MiB, by size and total."""
    drawn = [Config(size, chunk_bytes=chunk) for chunk, size in product(CHUNKS, SIZES_KIB)]
    again = [Config(size, chunk_bytes=chunk, place="1") for chunk, size in product((512, 4096), SIZES_KIB)]
    other = [Config(size, chunk_bytes=chunk) for chunk, size in product((512, 4096), (*SMALL_KIB, 32768))]
    return drawn + again + other


def rows() -> list[Config]:
    """One run of lines, beginning at four places, by total."""
    runs = [Config(size, place=place) for size, place in product((*SMALL_KIB, *SIZES_KIB), "0123")]
    return [*runs, *(Config(32768, place=place) for place in "01")]


def others() -> list[Config]:
    """The same in L2; by which pages were touched; dealt as kernels do."""
    in_l2 = [Config(size, chunk_bytes=chunk, source="l2") for chunk, size in product((0, 512), SIZES_KIB)]
    cold = [
        Config(size, chunk_bytes=chunk, pages=pages, region_mib=region)
        for chunk, region, pages, size in product((0, 4096), (32, 256, 2048), PAGES, (1024, 4096, 16384))
        if (region == 256 or chunk) and (region, pages) != (256, "touched")
    ]  # fmt: skip
    dealt = [
        Config(size, chunk_bytes=chunk, dealt=dealt, place=place)
        for chunk, dealt, size, place in product((0, 4096), ("side_by_side", "kept"), SIZES_KIB, "01")
    ]
    return in_l2 + cold + dealt


def strides() -> list[Config]:
    """Chunks at equal distances, by size, distance and total."""
    return [
        Config(size, chunk_bytes=chunk, region_mib=size * times // 1024, place=EVEN)
        for chunk, times, size in product((128, 512, 4096), MULTIPLES, (1024, 4096, 16384))
    ]  # fmt: skip


def words() -> NDArray[np.uint32]:
    """What is there to read repeats them."""
    return pattern_words(47)


def loads(config: Config) -> int:
    """Of a warp, in a pass."""
    unrolled = int(config.kernel.rpartition("_u")[2])
    per_round = NUM_SMS * NUM_WARPS * LINES_PER_LOAD * LINE_BYTES * unrolled
    return unrolled * -(-config.total_kib * 1024 // per_round)


def generator(*texts: str) -> np.random.Generator:
    """The same draws for the same texts."""
    return np.random.default_rng(zlib.crc32(" ".join(texts).encode()))


def lines(config: Config) -> NDArray[np.int64]:
    """Which are loaded in each pass, in order of addresses."""
    total, chunk, region = config.total_kib, config.chunk_bytes, config.region_mib
    drawn = generator(*map(str, (total, chunk, region, config.place)))
    num, per_chunk = total * 1024 // LINE_BYTES, chunk // LINE_BYTES
    if not chunk:
        first = drawn.integers(0, (region * MIB - total * 1024) // 65536 + 1) * 65536 // LINE_BYTES
        return first + np.arange(num, dtype=np.int64)
    if config.place == EVEN:
        apart = region * MIB // (total * 1024) * per_chunk
        return np.asarray((np.arange(num // per_chunk)[:, None] * apart + np.arange(per_chunk)).reshape(-1), dtype=np.int64)
    first = np.sort(drawn.choice(region * MIB // chunk, num // per_chunk, replace=False)) * per_chunk
    return np.asarray((first[:, None] + np.arange(per_chunk)).reshape(-1), dtype=np.int64)


@lru_cache(maxsize=2)
def lists(config: Config) -> NDArray[np.uint32]:
    """uint32[passes, SMs, loads, warps, 4]: lines, or NONE.

    ``mixed``: units of at most 512 bytes, anew in each pass; ``side_by_side``: each SM a run of them, in order;
    ``kept``: the same, in an order of its own in each pass.
    """
    num_loads, wanted = loads(config), lines(config)
    places = np.full((NUM_PASSES, NUM_SMS, num_loads, NUM_WARPS, LINES_PER_LOAD), NONE, dtype=np.uint32)
    unit = LINES_PER_LOAD if config.chunk_bytes in (0, *CHUNKS[2:]) else config.chunk_bytes // LINE_BYTES
    units = wanted.reshape(-1, unit)
    drawn = generator(*(config[name] for name in SEED_COLUMNS))
    if config.dealt != "mixed":
        shares = np.array_split(units, NUM_SMS)
    for at in range(NUM_PASSES):
        if config.dealt == "mixed":
            shares = [drawn.permuted(share, axis=0) for share in _dealt(drawn.permutation(units))]
        elif config.dealt == "kept":
            shares = [drawn.permutation(share) for share in shares]
        for sm, share in enumerate(shares):
            places[at, sm].reshape(-1)[: share.size] = share.reshape(-1)
    return places


def _dealt(units: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """One SM's after the other's, as evenly as they go."""
    return (units[sm::NUM_SMS] for sm in range(NUM_SMS))


def launch(config: Config) -> KernelLaunch:
    """A CTA for each SM."""
    held, num_loads = lists(config), loads(config)
    unrolled = int(config.kernel.rpartition("_u")[2])
    num_pages = MEMORY_BYTES // PAGE_BYTES
    inside = config.region_mib * MIB // PAGE_BYTES
    touched = {"touched": (0, inside, 0, 0), "flushed": (0, 0, 0, 0), "far": (inside, num_pages - inside, 0, 0)}
    plan = np.zeros(1, dtype=[("flush", "<u8"), ("rest", "<u4", 8)])
    plan["flush"] = FLUSH_BYTES // 16
    slots = num_loads * NUM_WARPS * LINES_PER_LOAD
    plan["rest"] = (NUM_PASSES, num_loads // unrolled, slots, config.source == "l2", *touched[config.pages])
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Repeated(words(), MEMORY_BYTES), Repeated(words(), FLUSH_BYTES), Input(held),
            Output("state", np.zeros(STATE_WORDS, dtype=np.uint32)),
            Output("times", np.zeros(held.shape[:-1], dtype=np.uint32)),
            Output("sums", np.zeros((NUM_SMS, NUM_WARPS), dtype=np.uint32)), by_value(plan),
        ),
        grid=(NUM_SMS, 1, 1), block=(NUM_WARPS * 32, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


def sums_of_warps(config: Config) -> NDArray[np.uint32]:
    """uint32[SMs, warps] of all words that each loads, modulo 2^32."""
    held = lists(config)
    of_lines = np.append(words().reshape(-1, LINE_BYTES // 4).sum(axis=1, dtype=np.uint32), np.uint32(0))
    at = np.where(held == NONE, len(of_lines) - 1, held % (len(of_lines) - 1))
    return np.asarray(of_lines[at].sum(axis=(0, 2, 4), dtype=np.uint32))


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Sums of what each warp loaded; then when it came."""
    state = outputs["state"]
    wrong_if((state[:NUM_SMS] != 1).any(), "CTAs were not spread evenly over the SMs")
    wrong_if((state[256:].reshape(-1, 4)[:NUM_PASSES, 1] != 1).any(), "CTAs did not meet")
    wrong = np.argwhere(outputs["sums"].reshape(NUM_SMS, NUM_WARPS) != sums_of_warps(config))
    if len(wrong):
        raise WrongAnswer(f"warp {wrong[0][1]} of CTA {wrong[0][0]} read other words than are there")
    held = lists(config)
    times = outputs["times"].reshape(held.shape[:-1])[1:].astype(float)
    return {**_quantiles(times, held[1:]), **_shares(times, held[1:])}


def _quantiles(times: NDArray[np.float64], held: NDArray[np.uint32]) -> dict[str, float]:
    """Means over passes."""
    is_there = held[..., 0] != NONE
    values = {}
    came = [times[at][is_there[at]] for at in range(len(times))]
    for quantile in (0, 10, 50, 90, 99):
        values[f"p{quantile}_cycles"] = float(np.mean([np.percentile(pass_, quantile) for pass_ in came]))
    values["cycles"] = float(np.mean([pass_.max() for pass_ in came]))
    values["deviation_cycles"] = float(np.std([pass_.max() for pass_ in came]))
    ends = np.where(is_there, times, 0.0).max(axis=(2, 3))[:, is_there.any(axis=(0, 2, 3))]
    values["first_sm_cycles"] = float(np.mean(ends.min(axis=1)))
    values["middle_sm_cycles"] = float(np.mean(np.median(ends, axis=1)))
    return values


def _shares(times: NDArray[np.float64], held: NDArray[np.uint32]) -> dict[str, float]:
    """How much of the variance of arrivals is of the unit that is loaded, of its neighbours, of the SM.

    Of covariances of even with odd passes, so that what varies from pass to pass is no part of them.
    """
    values = {"unit_pct": 0.0, "sm_pct": 0.0, "deviation_of_lines_cycles": 0.0, "unit_p99_cycles": 0.0}
    values |= {f"lag_{lag}_pct": 0.0 for lag in LAGS}
    is_there = held[..., 0] != NONE
    values["deviation_of_lines_cycles"] = float(np.mean([times[at][is_there[at]].std() for at in range(len(times))]))
    variance = values["deviation_of_lines_cycles"] ** 2 or 1.0
    of_sms = np.where(is_there, times, 0.0).sum(axis=(2, 3)) / np.maximum(1, is_there.sum(axis=(2, 3)))
    of_sms -= of_sms.mean(axis=1, keepdims=True)
    values["sm_pct"] = 100.0 * float((of_sms[::2].mean(axis=0) * of_sms[1::2].mean(axis=0)).mean()) / variance
    if is_there.sum(axis=(1, 2, 3)).min() * LINES_PER_LOAD < (held != NONE).sum(axis=(1, 2, 3, 4)).max():
        return values
    units, late = held[0][..., 0][is_there[0]] // LINES_PER_LOAD, []
    units = np.sort(units.astype(np.int64))
    if (np.diff(units) == 0).any():
        return values  # smaller than a unit
    for at in range(len(times)):
        mine = held[at][..., 0][is_there[at]] // LINES_PER_LOAD
        came = times[at][is_there[at]][np.argsort(mine)]
        late.append(came - came.mean())
    even, odd = np.mean(late[::2], axis=0), np.mean(late[1::2], axis=0)
    own = float((even * odd).mean())
    values["unit_pct"] = 100.0 * own / variance
    values["unit_p99_cycles"] = float(np.percentile((even + odd) / 2.0, 99.0))
    for lag in LAGS:
        found = np.searchsorted(units, units + lag // UNIT_BYTES)
        has = (found < len(units)) & (units[np.minimum(found, len(units) - 1)] == units + lag // UNIT_BYTES)
        if has.sum() >= len(units) // 8 and own > 0.0:
            pairs = (even[has] * odd[found[has]] + odd[has] * even[found[has]]).mean() / 2.0
            values[f"lag_{lag}_pct"] = 100.0 * float(pairs) / own
    return values


# ---------------------------------------------------------------------------------------------- the simulator's answer
CODE_CYCLES = 434.7
"""Of a pass, beside the loads."""


def twin(config: Config, *, is_empty: bool = False) -> Launch:
    """The loads alone; the CTA of 1024 threads is a role, and each SM has as much."""
    share = config.total_kib * 1024 // NUM_SMS // VECTOR_BYTES
    unrolled, chunk = int(config.kernel.rpartition("_u")[2]), config.chunk_bytes
    threads = NUM_WARPS * 32
    counts = [min(threads, share - begin) for begin in range(0, share, threads)]
    rounds = [
        total(dense_access(0, num, VECTOR_BYTES) for num in counts[begin : begin + unrolled])
        for begin in range(0, len(counts), unrolled)
    ]

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        if is_empty:
            return
        for number, access in enumerate(rounds):
            yield ops.Use((yield ops.GlobalLoad("in", (cta.cta_idx, number), access)))

    return Launch(
        kernel=config.kernel, num_ctas=NUM_SMS, num_tiles=NUM_SMS,
        roles=(WarpRole(name="all", num_warps=-(-max(counts) // 32), program=program),), registers_per_thread=32,
        footprints=(
            Footprint(
                tensor="in", access="read", panel_of=same,
                panel_bytes=lambda tiles: np.full_like(tiles, share * VECTOR_BYTES), num_steps=len(rounds),
                piece_bytes=chunk, piece_stride_bytes=config.region_mib * 1024 // config.total_kib * chunk
                if config.place == EVEN else 0,
            ),
        ),
    )  # fmt: skip


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Cycles of the loads, beside a launch that does nothing; nothing of what is in L2 before."""
    if config.source != "memory":
        return {}
    cycles = [simulate(twin(config, is_empty=is_empty), gpu, clock="max").cycles for is_empty in (False, True)]
    return {"cycles": cycles[0] - cycles[1] + CODE_CYCLES}


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What a launch does between the common start and a load, and behind it."""
    latency = (gpu.l2.near_latency_cycles + gpu.l2.far_latency_cycles) / 2.0
    found = [float(row["p50_cycles"]) - latency for row in rows if row["source"] == "l2" and row["total_kib"] == "512"]
    if not found:
        return []
    how = "median line of 512 KiB in L2, less the mean latency: median"
    return [FittedConstant(name="CODE_CYCLES", value=float(np.median(found)), how=how)]


# ---------------------------------------------------------------------------------------------- the machine's numbers
def lateness(rows: Sequence[Mapping[str, str]]) -> tuple[float, float]:
    """(what a line takes that nobody else asks for, how much later than the median one the last comes), of small runs."""
    small = [row for row in rows if row["group"] == "rows" and int(row["total_kib"]) <= MOST_SMALL_KIB]
    alone = [float(row["p50_cycles"]) for row in small if row["total_kib"] == "64"]
    last = [float(row["cycles"]) - float(row["p50_cycles"]) for row in small]
    return float(np.mean(alone)), float(np.mean(last))


def unevenness(rows: Sequence[Mapping[str, str]], group: str) -> float:
    """Squared cycles by a byte by which the last line is late for its channel: what refresh does is taken off."""
    alone, refresh = lateness(rows)
    of = [row for row in rows if row["group"] == group and int(row["total_kib"]) >= LEAST_KIB]
    of = [row for row in of if row["chunk_bytes"] == "0" or UNIT_BYTES <= int(row["chunk_bytes"]) <= MOST_CHUNK_BYTES]
    size = np.array([float(row["total_kib"]) * 1024.0 for row in of])
    late = np.array([float(row["cycles"]) for row in of]) - alone - size / (SUSTAINED_GB_PER_S * 1e3 / MHZ)
    return float((np.maximum(late, 0.0) ** 2 - refresh**2).sum() / size.sum())


def bytes_of_a_wait(rows: Sequence[Mapping[str, str]]) -> float:
    """What waits for a refresh together: of so many the last is as late as an SM's last line is beyond the median one."""
    found = []
    for row in rows:
        if row["group"] == "rows" and row["total_kib"] in ("256", "512"):
            late = float(row["middle_sm_cycles"]) - float(row["p50_cycles"])
            late = late / (REFRESH_NS * MHZ / 1e3) + REFRESH_FRACTION / 2
            num = np.arange(1.0, 64.0, 0.01)
            last = 1.0 - (1.0 - (1.0 - REFRESH_FRACTION) ** (num + 1.0)) / (REFRESH_FRACTION * (num + 1.0))
            found.append(int(row["total_kib"]) * 1024 / NUM_SMS / float(np.interp(late, last, num)))
    return float(np.median(found))


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """How unlike channels are loaded: by chunks that lie anywhere, and by runs of lines."""
    groups = {row["group"] for row in rows}
    if not {"rows", "chunks"} <= groups or not MEASURED.has_clusters:  # clock and rates above are Hopper's
        return []
    apart, together = unevenness(rows, "chunks"), unevenness(rows, "rows")
    deviations = expected_max(round(PEAK_GB_PER_S / CHANNEL_GB_PER_S))
    per_byte = apart / deviations**2 * CHANNEL_GB_PER_S * PEAK_GB_PER_S * 1e6 / MHZ**2
    how = "the last arrival beyond latency and sustained rate, squared, less refresh's"
    return [
        Fitted(
            parameter="hbm.channel_bytes", value=per_byte,
            how=f"chunks of 512 bytes to 16 KiB: {how}: over bytes, as the fullest of all channels has it",
        ),
        Fitted(
            parameter="hbm.refresh_granularity_bytes", value=bytes_of_a_wait(rows),
            how="runs of 256 and 512 KiB: an SM's last line beyond the median one, as the last of so many that may wait for "
            "a refresh: median",
        ),
        Fitted(
            parameter="hbm.interleaved_variance_fraction", value=together / apart, how=f"runs of lines over chunks: {how}"
        ),
    ]  # fmt: skip


CASE = Case(
    name="memory_channels",
    question="Does a burst out of memory end with the fullest of its channels, and which lines share one?",
    config_type=Config,
    groups={
        "rows": Group(configs=rows, rank=3),
        "chunks": Group(configs=chunks, rank=3),
        "others": Group(configs=others, rank=4),
        "strides": Group(configs=strides, rank=4),
    },
    launch=launch, check=check, predict=predict, fit=fit, fitted_constants=fitted_constants, tiers={"cycles": 4},
    num_repeats=1,
    values={
        **{f"p{number}_cycles": f"P{number} of arrivals, cycles from the start" for number in (0, 10, 50, 90, 99)},
        "cycles": "the last arrival, mean of passes",
        "deviation_cycles": "its deviation from pass to pass",
        "first_sm_cycles": "the first SM has all",
        "middle_sm_cycles": "the median SM has all",
        "deviation_of_lines_cycles": "deviation of arrivals within a pass",
        "unit_pct": "of their variance, what is of the 512 bytes that are loaded, in every pass; 0 of smaller chunks",
        "sm_pct": "of their variance, what is of the SM, in every pass",
        "unit_p99_cycles": "P99 of how much later than the mean 512 bytes come, mean of passes",
        **{f"lag_{lag}_pct": f"what 512 bytes share of it with those {lag} bytes further" for lag in LAGS},
    },
)  # fmt: skip
