"""What stays in L2 with which cache hints, what of a kernel's stores is in memory when it ends, what a miss fetches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import (
    Answer,
    Case,
    Fitted,
    Group,
    Input,
    KernelLaunch,
    Limit,
    Output,
    Outputs,
    Repeated,
    Windows,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import grid_include
from gpusim.evidence.cases.validation_kernel import FLOOR_SHARE, windows
from gpusim.machine.config import GpuSpec
from gpusim.machine.memory.l2 import other_lookups
from gpusim.simulate.plan import partition_of_cta
from gpusim.traffic.l2_plan import panel_traffic
from gpusim.traffic.panels import FootprintRow, PanelTraffic
from gpusim.units import SECTOR_BYTES

NUM_CTAS = measured_gpu().num_sms
"""One an SM."""
NUM_THREADS = 512
ONE_CTA_BYTES = 120 * 1024
"""Of shared memory, so that two CTAs find no room on one SM."""
MIB = 1 << 20
CHUNK_BYTES = 4096
FLAG_WORDS = 32 + 32 + 64 + 256
VECTOR_BYTES = 16
PATTERN_WORDS = MIB // 4

HINTS = ("evict_normal", "evict_first", "evict_last")
HIT_RATE = "lts__t_sector_hit_rate.pct"
READ_MISSES = "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum"
DRAM_READ, DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
WRITES, CROSSED = "lts__t_sectors_srcunit_tex_op_write.sum", "lts__t_sectors_srcunit_ltcfabric.sum"
METRICS = (
    DRAM_READ, DRAM_WRITE, "lts__t_sectors_srcunit_tex_op_read.sum", WRITES,
    "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum", READ_MISSES, "lts__t_sectors_srcunit_tex_op_write_lookup_hit.sum",
    "lts__t_sectors_srcunit_tex_op_write_lookup_miss.sum", CROSSED, "lts__t_sectors_lookup_miss_data_promoted.sum", HIT_RATE,
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    set_mib: int = 0
    stream_mib: int = 0
    set_hint: str = "evict_normal"
    stream_hint: str = "evict_normal"
    stream_op: str = "read"
    set_aside_mib: int = 0
    has_window: bool = False
    access_bytes: int = 0
    stride_bytes: int = 0


def hints() -> list[Config]:
    """A set, a stream of other lines, the set again: hints on either."""
    found = []
    for op, streams, pairs in (
        ("read", (16, 32, 64, 128), (("normal", "normal"), ("normal", "first"), ("first", "normal"), ("last", "normal"))),
        ("store", (16, 32, 64), (("normal", "normal"), ("normal", "first"), ("last", "normal"))),
    ):
        for of_set, of_stream in pairs:
            for stream in streams:
                found += Config.sweep(
                    set_mib=(8, 16, 24, 32), kernel="reuse", stream_mib=stream, set_hint=f"evict_{of_set}",
                    stream_hint=f"evict_{of_stream}", stream_op=op
                )  # fmt: skip
    return found


def persisting() -> list[Config]:
    """Room set aside for the set: by a window of its addresses, or by evict_last alone."""
    return [
        Config(
            "reuse", set_mib=size, stream_mib=128, set_hint="evict_normal" if has_window else "evict_last",
            set_aside_mib=aside, has_window=has_window,
        )
        for has_window in (True, False) for aside in (8, 16, 32) for size in (4, 8, 16, 24, 32)
    ]  # fmt: skip


FILLED_MIB = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 256, 1024, 4096)
COPIED_MIB = (4, 8, 12, 16, 20, 24, 32, 48, 64, 128, 1024)


def written() -> list[Config]:
    """One pass of stores, alone or of a copy: what is in memory when the kernel ends."""
    return [
        *(Config("fill", stream_mib=size, stream_op="store") for size in FILLED_MIB),
        *(Config("copy", set_mib=size, stream_mib=size, stream_op="store") for size in COPIED_MIB),
        *(
            Config("fill", stream_mib=size, stream_op="store", stream_hint=hint)
            for hint in HINTS[1:] for size in (16, 32, 64, 128)
        ),
    ]  # fmt: skip


def fetched() -> list[Config]:
    """Some bytes in every stride: what a miss fetches, and whether a store in part of a sector does."""
    return [
        Config("touch", stream_mib=size, stream_op=op, access_bytes=num_bytes, stride_bytes=stride)
        for size, strides in ((128, (32, 64, 128, 256, 512)), (16, (32, 128)))
        for op, num_bytes in (("read", 4), ("store", 4), ("store", 16), ("store", 32)) for stride in strides
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check
def bytes_of(config: Config, column: str) -> int:
    """A size of the config's."""
    return int(getattr(config, column)) * MIB


def word_at(idx: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The words that the kernel makes up."""
    return np.asarray(idx * np.uint32(0x9E3779B1) + np.uint32(0x7F4A7C15))


def pattern() -> NDArray[np.uint32]:
    """1 MiB of words that tell their places."""
    made = word_at(np.arange(PATTERN_WORDS, dtype=np.uint32))
    made.setflags(write=False)
    return made


PATTERN = pattern()


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    arguments, grid = {"reuse": _reuse, "fill": _fill, "copy": _copy, "touch": _touch}[config.kernel](config)
    is_reuse = config.kernel == "reuse"
    return KernelLaunch(
        kernel=config.kernel, arguments=arguments, grid=(grid, 1, 1), block=(NUM_THREADS, 1, 1),
        smem_bytes=ONE_CTA_BYTES if is_reuse else 0, set_aside_bytes=bytes_of(config, "set_aside_mib"),
        window=(2, bytes_of(config, "set_mib")) if config.has_window else None,
    )  # fmt: skip


def _stored(config: Config) -> Windows:
    num_bytes = bytes_of(config, "stream_mib")
    return Windows("stored", num_bytes, windows(num_bytes))


def _reuse(config: Config) -> tuple[tuple[object, ...], int]:
    sizes = [bytes_of(config, "set_mib"), bytes_of(config, "stream_mib")]
    is_store = config.stream_op == "store"
    plan = [
        *(size // CHUNK_BYTES for size in sizes), HINTS.index(config.set_hint), HINTS.index(config.stream_hint),
        int(is_store),
    ]  # fmt: skip
    return (
        by_value(np.array(plan, dtype="<u4")), Input(np.zeros(FLAG_WORDS, dtype="<u4")), Repeated(PATTERN, sizes[0]),
        _stored(config) if is_store else Repeated(PATTERN, sizes[1]), Output("told", np.zeros((NUM_CTAS, 4), dtype="<u4")),
    ), NUM_CTAS  # fmt: skip


def _fill(config: Config) -> tuple[tuple[object, ...], int]:
    num = bytes_of(config, "stream_mib") // VECTOR_BYTES // NUM_THREADS
    return (_stored(config), np.uint32(HINTS.index(config.stream_hint))), num


def _copy(config: Config) -> tuple[tuple[object, ...], int]:
    num = bytes_of(config, "stream_mib") // VECTOR_BYTES // NUM_THREADS
    return (Repeated(PATTERN, bytes_of(config, "set_mib")), _stored(config)), num


def num_accesses(config: Config) -> int:
    """Places that ``touch`` touches."""
    return bytes_of(config, "stream_mib") // config.stride_bytes


def _touch(config: Config) -> tuple[tuple[object, ...], int]:
    is_store, num_bytes = config.stream_op == "store", config.access_bytes
    size = bytes_of(config, "stream_mib")
    place = Windows("stored", size, ((0, 4096), (size - 4096, 4096))) if is_store else Repeated(PATTERN, size)
    sums = Output("sums", np.zeros(1024, dtype="<u4"))
    shape = (np.uint32(num_bytes), np.uint32(config.stride_bytes), np.uint32(is_store))
    return (place, *shape, sums), num_accesses(config) * (2 if num_bytes == 32 else 1) // NUM_THREADS


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """What the two readings of a set took."""
    if config.stream_op == "store":
        _check_stores(config, outputs)
    if config.kernel == "touch" and config.stream_op == "read":
        places = np.arange(num_accesses(config), dtype=np.int64) * config.stride_bytes // 4
        _check_sum(int(outputs["sums"].sum(dtype=np.uint64)), int(PATTERN[places % PATTERN_WORDS].sum(dtype=np.uint64)))
    if config.kernel != "reuse":
        return {}
    told = outputs["told"]
    of_pattern = int(PATTERN.sum(dtype=np.uint64))
    wanted = 2 * of_pattern * config.set_mib
    if config.stream_op == "read":
        wanted += of_pattern * config.stream_mib
    _check_sum(int(told[:, 0].sum(dtype=np.uint64)), wanted)
    names = ("first_cycles", "stream_cycles", "second_cycles")
    return {name: float(told[:, idx + 1].max()) for idx, name in enumerate(names)}


def _check_sum(total: int, wanted: int) -> None:
    wrong_if((total - wanted) % 2**32, f"the words read sum up to {total % 2**32}, not {wanted % 2**32}")


def _check_stores(config: Config, outputs: Outputs) -> None:
    size = bytes_of(config, "stream_mib")
    if config.kernel == "touch":
        each, stride = config.access_bytes, config.stride_bytes
        places = ((0, 4096), (size - 4096, 4096))
        for (begin, length), came in zip(places, np.split(outputs["stored"], 2), strict=True):
            wanted = np.full(length, 0xFF, dtype=np.uint8)
            for at in range(0, length, stride):
                vectors = -(-each // VECTOR_BYTES)
                first = (begin + at) // stride * vectors * (1 if each == 4 else 4)
                words = word_at(np.arange(first, first + each // 4, dtype=np.uint32)).view(np.uint8)
                wanted[at : at + each] = words
            _check_bytes(came, wanted)
        return
    for (begin, length), came in zip(
        windows(size), Windows("stored", size, windows(size)).split(outputs["stored"]), strict=True
    ):
        idx = (begin // 4 + np.arange(length // 4)).astype(np.uint32)
        words = PATTERN[idx % PATTERN_WORDS] if config.kernel == "copy" else word_at(idx)
        _check_bytes(came, words.view(np.uint8))


def _check_bytes(came: NDArray[np.uint8], wanted: NDArray[np.uint8]) -> None:
    if not np.array_equal(came, wanted):
        raise WrongAnswer(f"{int((came != wanted).sum())} of {len(wanted)} bytes looked at are not what was stored")


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Of the set, what came from memory again; of the stores, what is there; bytes fetched for each access."""
    derived = {}
    if row.get(DRAM_READ) and row["kernel"] == "reuse":
        config = Config.of(row)
        once = bytes_of(config, "set_mib") + (bytes_of(config, "stream_mib") if row["stream_op"] == "read" else 0)
        derived["refetched_fraction"] = (float(row[DRAM_READ]) - once) / bytes_of(config, "set_mib")
    if row.get(DRAM_WRITE) and row["kernel"] in ("fill", "copy"):
        derived["written_fraction"] = float(row[DRAM_WRITE]) / bytes_of(Config.of(row), "stream_mib")
    if row.get(DRAM_READ) and row["kernel"] == "touch":
        derived["fetched_bytes"] = float(row[DRAM_READ]) / num_accesses(Config.of(row))
    return derived


# ---------------------------------------------------------------------------------------------- the simulator's answer
def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Bytes of memory by the rule of residency; nothing of accesses in part of a sector.

    A set and a stream are waves: of one CTA an SM where they are read again, of as many as are there where stores come once.
    """
    if gpu.num_sms != NUM_CTAS:
        return {}
    if config.kernel == "touch":
        return {}
    is_reuse = config.kernel == "reuse"
    found = reuse_traffic(config, gpu) if is_reuse else stream_traffic(config, gpu)
    values = {DRAM_READ: sum(item.read_miss_bytes for item in found.values())}
    if config.stream_op == "store":
        values[DRAM_WRITE] = found["stream" if is_reuse else "y"].written_back_bytes
    if config.set_hint == "evict_last" or config.stream_hint == "evict_last":
        return values  # to give lines back at the end is looked up, too
    reads = (2 if is_reuse else 1) * bytes_of(config, "set_mib")
    stream = bytes_of(config, "stream_mib")
    writes = stream if config.stream_op == "store" else 0
    reads += stream - writes
    misses = sum(item.lookup_miss_bytes for item in found.values())
    crossing = sum(item.crossing_bytes for item in found.values()) + writes * (1.0 - 1.0 / gpu.l2.num_partitions)
    crossing_misses = sum(item.crossing_miss_bytes for item in found.values())
    values[READ_MISSES] = misses / SECTOR_BYTES
    crossing += gpu.l2.dirty_fabric_fraction * max(0.0, writes - values.get(DRAM_WRITE, 0.0))
    crossing *= gpu.l2.fabric_lookup_sectors
    others, found_by_others = other_lookups(gpu.l2, (reads + writes) / SECTOR_BYTES, NUM_CTAS)
    sectors = (reads + writes + crossing) / SECTOR_BYTES
    hits = sectors - (misses + crossing_misses) / SECTOR_BYTES + found_by_others
    values[HIT_RATE] = min(100.0, 100.0 * hits / (sectors + others))
    return values


def predict_row(config: Config, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]) -> dict[str, Answer]:
    """The same; errors of memory's bytes are never taken relative to less than a quarter of what is touched."""
    del row, names
    touched = FLOOR_SHARE * (bytes_of(config, "set_mib") + bytes_of(config, "stream_mib"))
    return {
        name: Answer(value=value, floor=touched if name in (DRAM_READ, DRAM_WRITE) else 0.0)
        for name, value in predict(config, gpu).items()
    }


def reuse_traffic(config: Config, gpu: GpuSpec) -> dict[str, PanelTraffic]:
    """Of the set, read in a first wave and a last one, and the stream in the waves between, 1 MiB each."""
    sizes = [bytes_of(config, "set_mib"), bytes_of(config, "stream_mib")]
    num_between = config.stream_mib
    tiles = np.arange((num_between + 2) * NUM_CTAS, dtype=np.int64)
    waves, ctas = np.divmod(tiles, NUM_CTAS)
    is_set = (waves == 0) | (waves == num_between + 1)
    sides = partition_of_cta(gpu)[:NUM_CTAS]
    footprints = [
        FootprintRow(
            tensor="set", is_write=False, panel_of_tile=ctas, bytes_of_tile=np.where(is_set, sizes[0] // NUM_CTAS, 0),
            cache_hint="evict_last" if config.has_window else config.set_hint,
        ),
        FootprintRow(
            tensor="stream", is_write=config.stream_op == "store", panel_of_tile=tiles,
            bytes_of_tile=np.where(is_set, 0, MIB // NUM_CTAS), cache_hint=config.stream_hint,
        ),
    ]  # fmt: skip
    held = gpu.l2_partitions
    if aside := bytes_of(config, "set_aside_mib"):
        held = replace(held, last_bytes=aside / held.num)
    return panel_traffic(footprints, waves, l2=held, partition_of_tile=sides[ctas], is_warm=False)


def stream_traffic(config: Config, gpu: GpuSpec) -> dict[str, PanelTraffic]:
    """One pass, of CTAs of 8 KiB, four an SM."""
    tiles = np.arange(bytes_of(config, "stream_mib") // (VECTOR_BYTES * NUM_THREADS), dtype=np.int64)
    each = np.full(len(tiles), VECTOR_BYTES * NUM_THREADS)
    stored = FootprintRow(tensor="y", is_write=True, panel_of_tile=tiles, bytes_of_tile=each, cache_hint=config.stream_hint)
    footprints = [stored]
    if config.kernel == "copy":
        footprints.append(FootprintRow(tensor="x", is_write=False, panel_of_tile=tiles, bytes_of_tile=each))
    sides = np.resize(partition_of_cta(gpu)[:NUM_CTAS], len(tiles))
    return panel_traffic(footprints, tiles // (4 * NUM_CTAS), l2=gpu.l2_partitions, partition_of_tile=sides, is_warm=False)


# ---------------------------------------------------------------------------------------------- what the rows settle
LEAST_WRITTEN_MIB = 64
"""Of fills that show how much stays dirty."""
LITTLE = 0.1
ALONE_BYTES = 128
"""From one sector to the next where each is alone in its line."""


def fit(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[Fitted]:
    """What may stay dirty and crosses by that, what is kept for evict_last, what comes with a sector that is read alone."""
    capacity = gpu.l2.capacity_bytes
    dirty = [
        bytes_of(Config.of(row), "stream_mib") - float(row[DRAM_WRITE]) for row in rows
        if row["kernel"] == "fill" and row["stream_hint"] == HINTS[0] and int(row["stream_mib"]) >= LEAST_WRITTEN_MIB
    ]  # fmt: skip
    kept = [
        bytes_of(Config.of(row), "set_mib") for row in rows
        if row["group"] == "hints" and row["set_hint"] == "evict_last" and row["stream_op"] == "read"
        and int(row["stream_mib"]) >= LEAST_WRITTEN_MIB and derive(row)["refetched_fraction"] < LITTLE
    ]  # fmt: skip
    alone = [
        float(row[DRAM_READ]) * int(row["stride_bytes"]) / bytes_of(Config.of(row), "stream_mib") for row in rows
        if row["group"] == "fetched" and row["stream_op"] == "read" and int(row["stride_bytes"]) >= ALONE_BYTES
    ]  # fmt: skip
    crossed = [
        (float(row[CROSSED]) - stored / 2.0) / (stored - float(row[DRAM_WRITE]) / SECTOR_BYTES) for row in rows
        if row["kernel"] == "fill" and row["stream_hint"] == HINTS[0] and (stored := float(row[WRITES]))
    ]  # fmt: skip
    found = []
    if crossed:
        found.append(Fitted(
            parameter="l2.dirty_fabric_fraction", value=median(crossed),
            how="one pass of stores: what crosses beyond half of them, over what is not in memory at its end, median",
        ))  # fmt: skip
    if dirty:
        found.append(Fitted(
            parameter="l2.dirty_fraction", value=median(dirty) / capacity,
            how="one pass of stores of 64 MiB and more: what is not in memory at its end, over the capacity, median",
        ))  # fmt: skip
    if kept:
        found.append(Fitted(
            parameter="l2.evict_last_fraction", value=max(kept) / capacity,
            how="the largest set hinted evict_last of which less than a tenth is fetched again behind 64 MiB and more of "
            "other reads, nothing set aside, over the capacity",
        ))  # fmt: skip
    if alone:
        found.append(Fitted(
            parameter="l2.fetch_bytes", value=2.0 ** round(float(np.log2(median(alone)))),
            how="memory's bytes for each sector read alone, a line apart and more: median, to a power of two",
        ))  # fmt: skip
    return found


CASE = Case(
    name="cache_hints",
    question="What stays in L2 with which cache hints, what of a kernel's stores is in memory at its end, what does a miss "
    "fetch?", config_type=Config,
    groups={
        "hints": Group(configs=hints, metrics=METRICS, rank=3, is_cold=True),
        "persisting": Group(configs=persisting, metrics=METRICS, rank=4, is_cold=True),
        "written": Group(configs=written, metrics=METRICS, rank=3, is_cold=True),
        "fetched": Group(configs=fetched, metrics=METRICS, rank=3, is_cold=True),
    },
    launch=launch, check=check,
    values={
        "first_cycles": "SM cycles of the slowest SM's first reading of the set, until all have met",
        "stream_cycles": "the same of the stream between",
        "second_cycles": "the same of the second reading of the set, until its own words are there",
    },
    predict=predict, predict_row=predict_row, fit=fit, tiers={DRAM_READ: 5, DRAM_WRITE: 5, READ_MISSES: 5, HIT_RATE: 5},
    limits={HIT_RATE: Limit(mean_pct=3.0, is_points=True)}, derive=derive, includes=grid_include,
)  # fmt: skip
