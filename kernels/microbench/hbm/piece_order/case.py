"""How fast does memory move the same bytes in another order?"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Outputs, Repeated, Windows, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import check_windows
from gpusim.evidence.cases.validation_kernel import PATTERN_BYTES, pattern_words, windows
from gpusim.kernel_models.streaming import dense_access, share_footprint
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

TOTAL_BITS = 31
"""2 GiB of each array."""
THREADS, VECTOR_BYTES, VECTOR_BITS, WARP_SIZE = 256, 16, 4, 32
ALONG = (0, 0)
PIECES = (ALONG, *((piece, stride) for stride in (13, 15, 17, 20) for piece in (7, 9, 11) if piece < stride))
"""Logarithms of a piece's bytes, and of those from one row to the next; ALONG: one byte after the other."""
METRICS = (
    "sm__cycles_elapsed.max", "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum",
)  # fmt: skip


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    way: str
    unrolled: int
    piece_bits: int
    stride_bits: int


def orders() -> list[Config]:
    """Reads, writes, and copies that read along and write down, by piece and stride."""
    return [
        Config(kernel=f"{way}_u{unrolled}", way=way, unrolled=unrolled, piece_bits=piece, stride_bits=stride)
        for way in ("read", "write", "copy") for unrolled in (1, 4) for piece, stride in PIECES
    ]  # fmt: skip


def words() -> NDArray[np.uint32]:
    """What the input repeats."""
    return pattern_words(47)


def _order(piece_bits: int, stride_bits: int) -> tuple[int, int, int]:
    """Of vectors: bits of a piece, of a row, of the rows."""
    if not piece_bits:
        return 0, 0, 0
    return piece_bits - VECTOR_BITS, stride_bits - VECTOR_BITS, TOTAL_BITS - stride_bits


def place(vectors: NDArray[np.int64], order: tuple[int, int, int]) -> NDArray[np.int64]:
    """Where the vectors lie, in the order in which they are moved."""
    piece_bits, stride_bits, row_bits = order
    if not piece_bits:
        return vectors
    piece, within = vectors >> piece_bits, vectors & ((1 << piece_bits) - 1)
    return ((piece & ((1 << row_bits) - 1)) << stride_bits) + ((piece >> row_bits) << piece_bits) + within


def moved(vectors: NDArray[np.int64], order: tuple[int, int, int]) -> NDArray[np.int64]:
    """Which vector is moved there: the inverse of :func:`place`."""
    piece_bits, stride_bits, row_bits = order
    if not piece_bits:
        return vectors
    row, rest = vectors >> stride_bits, vectors & ((1 << stride_bits) - 1)
    return ((((rest >> piece_bits) << row_bits) + row) << piece_bits) + (rest & ((1 << piece_bits) - 1))


def _orders(config: Config) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """How it reads and how it writes."""
    order = _order(config.piece_bits, config.stride_bits)
    return (order, order) if config.way != "copy" else ((0, 0, 0), order)


def _out(config: Config) -> Windows:
    if config.way == "read":
        size = 4 * ((1 << TOTAL_BITS) // (WARP_SIZE * VECTOR_BYTES * config.unrolled))
        return Windows("out", size, windows(size))
    return Windows("out", 1 << TOTAL_BITS, windows(1 << TOTAL_BITS))


def launch(config: Config) -> KernelLaunch:
    """As many CTAs as it takes."""
    reading, writing = _orders(config)
    along = (TOTAL_BITS - VECTOR_BITS, TOTAL_BITS - VECTOR_BITS, 0)
    size = 1 << TOTAL_BITS if config.way != "write" else PATTERN_BYTES
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Repeated(words(), size), _out(config),
            *(by_value(np.array(order if order[0] else along, dtype="<u4")) for order in (reading, writing)),
        ),
        grid=((1 << TOTAL_BITS) // (THREADS * VECTOR_BYTES * config.unrolled), 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


def expected(config: Config, offset: int, num_bytes: int) -> NDArray[np.uint8]:
    """What lies in a window of the output."""
    reading, writing = _orders(config)
    unrolled = config.unrolled
    pattern = words().reshape(-1, 4)
    if config.way == "read":
        warp = np.arange(offset // 4, (offset + num_bytes) // 4, dtype=np.int64)
        cta, of_cta = np.divmod(warp, THREADS // WARP_SIZE)
        first = cta * THREADS * unrolled + of_cta * WARP_SIZE
        vectors = pattern.sum(axis=1, dtype=np.uint32)
        sums = np.zeros(len(warp), dtype=np.uint32)
        for of_warp in np.add.outer(THREADS * np.arange(unrolled), np.arange(WARP_SIZE)).flat:
            sums += vectors[place(first + of_warp, reading) % len(vectors)]
        return sums.view(np.uint8)
    at = moved(np.arange(offset // VECTOR_BYTES, (offset + num_bytes) // VECTOR_BYTES, dtype=np.int64), writing)
    if config.way == "copy":
        values = pattern[place(at, reading) % len(pattern)]
    else:
        low = at.astype(np.uint32)
        values = np.stack([low, ~low, np.full_like(low, 7), np.full_like(low, 9)], axis=1)
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Windows of what was written, every byte."""
    check_windows(_out(config), outputs["out"], partial(expected, config))
    return {}


# ---------------------------------------------------------------------------------------------- the simulator's answer

BEFORE_LOADS = {("read", 1): 31, ("read", 4): 80, ("write", 1): 35, ("write", 4): 95, ("copy", 1): 32, ("copy", 4): 151}
"""Instructions of a thread until its first load or store. Source: SASS, sm_90a."""
REGISTERS = {("read", 1): 16, ("read", 4): 26, ("write", 1): 14, ("write", 4): 28, ("copy", 1): 16, ("copy", 4): 31}
"""Of a thread. Source: ptxas, sm_90a."""


def twin(config: Config) -> Launch:
    """The launch in the simulator's words, which know how long pieces are, and not how far apart."""
    way, unrolled, size = config.way, config.unrolled, 1 << TOTAL_BITS
    share = THREADS * unrolled * VECTOR_BYTES
    access = dense_access(0, THREADS, VECTOR_BYTES).scaled(unrolled)
    num_warps, num_ctas = THREADS // WARP_SIZE, size // share
    left = AccessPattern(num_requests=num_warps, num_sectors=num_warps, num_lines=num_warps, num_bytes=4 * num_warps)

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        yield ops.Alu(BEFORE_LOADS[way, unrolled], is_chain=True)
        if way != "write":
            yield ops.Use((yield ops.GlobalLoad("in", (cta.cta_idx, 0), access)))
        yield ops.GlobalStore("out", (cta.cta_idx, 0), access if way != "read" else left)

    piece = 1 << config.piece_bits if config.piece_bits != 0 else 0
    read_piece = piece if way == "read" else 0
    out_share = share if way != "read" else 4 * num_warps
    return Launch(
        kernel=config.kernel, num_ctas=num_ctas, num_tiles=num_ctas,
        roles=(WarpRole(name=way, num_warps=num_warps, program=program),), registers_per_thread=REGISTERS[way, unrolled],
        footprints=(
            *(
                (replace(share_footprint("in", "read", num_bytes=size, share_bytes=share), piece_bytes=read_piece),)
                if way != "write" else ()
            ),
            replace(
                share_footprint("out", "write", num_bytes=num_ctas * out_share, share_bytes=out_share),
                piece_bytes=piece if way != "read" else 0,
            ),
        ),
        has_uniform_programs=True,
    )  # fmt: skip


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Time of the launch, at the highest clock: memory's own."""
    return {"gpu__time_duration.sum": simulate(twin(config), gpu, clock="max").time_us * 1e3}


# ---------------------------------------------------------------------------------------------- parameters
def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What a piece takes beside its bytes, of the shortest ones."""
    found: list[Fitted] = []
    for way, name in (("read", "hbm.row_open_read_bytes"), ("write", "hbm.row_open_write_bytes")):
        times = [
            (int(row["piece_bits"]), float(row["gpu__time_duration.sum"]))
            for row in rows
            if row["way"] == way and row["unrolled"] == "1" and row.get("gpu__time_duration.sum")
        ]
        along = [ns for piece, ns in times if not piece]
        least = min((piece for piece, _ in times if piece), default=0)
        more = [(ns / along[0] - 1.0) * 2**piece for piece, ns in times if piece == least] if along else []
        how = (
            f"pieces of {2**least} bytes by one vector a thread, time over that of the same bytes in a row, less "
            f"one, times {2**least}: median"
        )
        found += Fitted.median(name, more, how)
    return found


CASE = Case(
    name="piece_order",
    question="How fast does memory move the same bytes in another order?",
    config_type=Config,
    groups={"orders": Group(configs=orders, metrics=METRICS, rank=3, is_cold=True)},
    launch=launch, check=check, predict=predict, tiers={"gpu__time_duration.sum": 4}, fit=fit,
)  # fmt: skip
