"""How fast does memory move what plain grids of CTAs read and write, by bytes in flight and by the mixture of both?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Outputs, Repeated, Windows
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import check_windows
from gpusim.evidence.cases.validation_kernel import PATTERN_BYTES, pattern_words, windows
from gpusim.kernel_models.streaming import dense_access, share_footprint
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

MIB = 2**20
SIZES = (512 * MIB, 2048 * MIB)
"""Of one array. What a launch takes beside is the same in both, and not in the difference."""
SHAPES = {(1, 0): (1, 2, 4, 8), (0, 1): (1, 4), (1, 1): (1, 4), (2, 1): (1, 2), (1, 2): (1, 4)}
"""(arrays read, arrays written) to the vectors of each that a thread has under way."""
THREADS = (256, 1024)
VECTOR_BYTES, WARP_SIZE = 16, 32
METRICS = (
    "sm__cycles_elapsed.max", "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram__cycles_elapsed.avg.per_second",
)  # fmt: skip


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    reads: int
    writes: int
    unrolled: int
    threads: int
    array_bytes: int


def grids() -> list[Config]:
    """Both sizes of a way to move stand two apart, so that either half of the table has both."""
    found = []
    for (reads, writes), unrolls in SHAPES.items():
        for unrolled, size in product(unrolls, SIZES):
            found += Config.sweep(
                threads=THREADS, kernel=f"stream_r{reads}_w{writes}_u{unrolled}", reads=reads, writes=writes,
                unrolled=unrolled, array_bytes=size
            )  # fmt: skip
    return found


def words() -> NDArray[np.uint32]:
    """What the inputs repeat."""
    return pattern_words(41)


def _shape(config: Config) -> tuple[int, int, int]:
    return config.reads, config.writes, config.array_bytes


def _warp_bytes(config: Config) -> int:
    """That a warp reads of an array."""
    return WARP_SIZE * VECTOR_BYTES * config.unrolled


def _out(config: Config) -> Windows:
    _, writes, size = _shape(config)
    if not writes:
        num_bytes = 4 * (size // _warp_bytes(config))
        return Windows("out", num_bytes, windows(num_bytes))
    places = [(array * size + offset, num_bytes) for array in range(writes) for offset, num_bytes in windows(size)]
    return Windows("out", writes * size, tuple(places))


def launch(config: Config) -> KernelLaunch:
    """As many CTAs as an array has shares."""
    reads, _, size = _shape(config)
    threads = config.threads
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(Repeated(words(), max(1, reads) * size if reads else PATTERN_BYTES), _out(config),
                   np.uint32(size // VECTOR_BYTES)),
        grid=(size // (threads * config.unrolled * VECTOR_BYTES), 1, 1), block=(threads, 1, 1),
    )  # fmt: skip


def sums_of_warps(config: Config) -> NDArray[np.uint32]:
    """What warps leave of one pattern, in the order of warps, modulo 2^32."""
    threads, unrolled = config.threads, config.unrolled
    of_vectors = words().reshape(-1, unrolled, threads // WARP_SIZE, WARP_SIZE * VECTOR_BYTES // 4)
    return np.asarray(of_vectors.sum(axis=(1, 3), dtype=np.uint32)).reshape(-1)


def expected(config: Config, offset: int, num_bytes: int) -> NDArray[np.uint8]:
    """What lies in a window of the output."""
    reads, writes, size = _shape(config)
    if not writes:
        sums = sums_of_warps(config)
        return np.ascontiguousarray(sums[np.arange(offset // 4, (offset + num_bytes) // 4) % len(sums)]).view(np.uint8)
    array, start = divmod(offset, size)
    if reads:
        given = Repeated(words(), reads * size)
        parts = [given.window(number * size + start, num_bytes).view(np.uint32) for number in range(reads)]
        values = np.sum(parts, axis=0, dtype=np.uint32).reshape(-1, 4)
    else:
        at = np.arange(start // VECTOR_BYTES, (start + num_bytes) // VECTOR_BYTES, dtype=np.uint32)
        values = np.stack([at, ~at, np.full_like(at, 7), np.full_like(at, 9)], axis=1)
    values[:, 0] += np.uint32(array)
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Windows of what was written, every byte."""
    check_windows(_out(config), outputs["out"], partial(expected, config))
    return {}


# ---------------------------------------------------------------------------------------------- the simulator's answer

BEFORE_LOADS = 12
"""Instructions of a thread until its first load or store. Source: SASS, sm_90a."""
REGISTERS = {(1, 0, 1): 14, (1, 0, 2): 16, (1, 0, 4): 24, (1, 0, 8): 32, (0, 1, 1): 10, (0, 1, 4): 28, (1, 1, 1): 14,
             (1, 1, 4): 30, (2, 1, 1): 22, (2, 1, 2): 28, (1, 2, 1): 14, (1, 2, 4): 32}  # fmt: skip
"""Of a thread, by arrays read, arrays written and vectors. Source: ptxas, sm_90a."""


def twin(config: Config) -> Launch:
    """The launch in the simulator's words."""
    reads, writes, size = _shape(config)
    threads, unrolled = config.threads, config.unrolled
    share = threads * unrolled * VECTOR_BYTES
    access = dense_access(0, threads, VECTOR_BYTES).scaled(unrolled)
    inputs, outputs = [f"in {array}" for array in range(reads)], [f"out {array}" for array in range(writes)]
    num_warps = threads // WARP_SIZE
    word_bytes = 0 if writes else 4 * num_warps
    left = AccessPattern(num_requests=num_warps, num_sectors=num_warps, num_lines=num_warps, num_bytes=word_bytes)

    def program(cta: RoleContext) -> Any:
        yield ops.Alu(BEFORE_LOADS, is_chain=True)
        tokens = []
        for name in inputs:
            tokens.append((yield ops.GlobalLoad(name, (cta.cta_idx, 0), access)))
        for token in tokens:
            yield ops.Use(token)
        for name in outputs:
            yield ops.GlobalStore(name, (cta.cta_idx, 0), access)
        if not outputs:
            yield ops.GlobalStore("sums", (cta.cta_idx, 0), left)

    num_ctas = size // share
    written = outputs or ["sums"]
    return Launch(
        kernel=config.kernel, num_ctas=num_ctas, num_tiles=num_ctas,
        roles=(WarpRole(name="all", num_warps=num_warps, program=program),),
        registers_per_thread=REGISTERS[reads, writes, unrolled],
        footprints=(
            *(share_footprint(name, "read", num_bytes=size, share_bytes=share) for name in inputs),
            *(
                share_footprint(name, "write", num_bytes=num_ctas * (word_bytes or share), share_bytes=word_bytes or share)
                for name in written
            ),
        ),
        has_uniform_programs=True,
    )  # fmt: skip


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Time of the launch, at the highest clock: memory's own, but for the first and last microseconds."""
    return {"gpu__time_duration.sum": simulate(twin(config), gpu, clock="max").time_us * 1e3}


# ---------------------------------------------------------------------------------------------- parameters
def slopes(rows: Sequence[Mapping[str, str]]) -> dict[tuple[str, ...], tuple[float, float, float]]:
    """For each way to move (reads, writes, unrolled, threads) bytes from memory, to it, and ns: large less small."""
    found: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
    for row in sorted(rows, key=lambda row: int(row["array_bytes"])):
        names = ("dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum")
        if all(row.get(name) for name in names):
            key = tuple(row[name] for name in ("reads", "writes", "unrolled", "threads"))
            found.setdefault(key, []).append(tuple(float(row[name]) for name in names))
    differences = {key: tuple(b - a for a, b in zip(*both, strict=True)) for key, both in found.items() if len(both) == 2}
    return {key: each for key, each in differences.items() if each[2] > 0.0}  # type: ignore[misc]  # of three


NUM_SMS, SM_THREADS, SM_REGISTERS = measured_gpu().num_sms, 2048, 65536
LATENCY_NS = 346.0
"""Of a load out of memory, in which what it asks for does not wait: ``hbm.latency_ns`` of h200_sxm."""


def waiting_mb(way: tuple[str, ...], read_bytes: float, ns: float) -> float:
    """1e6 bytes of reads that wait for memory: what all SMs have under way, less what comes in a latency.

    >>> round(waiting_mb(("1", "1", "4", "256"), 2.0e9, 1.0e6), 1)  # 128 KiB an SM
    16.6
    """
    reads, writes, unrolled, threads = (int(part) for part in way)
    registers = -(-REGISTERS[reads, writes, unrolled] // 8) * 8
    num_ctas = min(SM_THREADS // threads, SM_REGISTERS // (registers * threads))
    under_way = NUM_SMS * num_ctas * threads * unrolled * VECTOR_BYTES * reads
    return max(0.0, under_way - read_bytes / ns * LATENCY_NS) / 1e6


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Rates of reads alone and of writes alone, and what a byte that is written takes more beside reads."""
    ways = slopes(rows)
    reads = [read / ns for (_, writes, *_), (read, _, ns) in ways.items() if writes == "0"]
    stores = [written / ns for (arrays, *_), (_, written, ns) in ways.items() if arrays == "0"]
    how = "2 GiB less 512 MiB of each array, bytes of memory over time"
    found = []
    if reads:
        found.append(Fitted(parameter="hbm.sustained_read_gb_per_s", value=max(reads), how=f"reads alone, {how}: the most"))
    if stores:
        found.append(
            Fitted(parameter="hbm.sustained_write_gb_per_s", value=max(stores), how=f"writes alone, {how}: the most")
        )
    if reads and stores:
        told = [
            (waiting_mb(way, read, ns), (ns - read / max(reads) - written / max(stores)) / (written / max(stores)))
            for way, (read, written, ns) in ways.items() if way[0] != "0" and way[1] != "0"
        ]  # fmt: skip
        if len({waiting for waiting, _ in told}) > 1:
            slope, least = np.polyfit(*np.array(told).T, 1)
            how = (
                "both at once, 2 GiB less 512 MiB of each array, time beyond that of reads and writes alone, over that of "
                "the writes: line over the reads that wait, under way less a latency's"
            )
            found += [
                Fitted(parameter="hbm.turnaround_fraction", value=max(0.0, float(least)), how=f"{how}, at none"),
                Fitted(parameter="hbm.queued_turnaround_per_mb", value=max(0.0, float(slope)), how=f"{how}, slope"),
            ]  # fmt: skip
    return found


CASE = Case(
    name="stream_grids",
    question="How fast does memory move what plain grids of CTAs read and write?",
    config_type=Config,
    groups={"grids": Group(configs=grids, metrics=METRICS, rank=3, is_cold=True)},
    launch=launch, check=check, predict=predict, tiers={"gpu__time_duration.sum": 4}, fit=fit,
)  # fmt: skip
