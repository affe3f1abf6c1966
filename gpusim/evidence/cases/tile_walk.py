"""Shared parts of kernels whose SMs walk over tiles: data to read, SMs by GPC, the grid-wide barrier.

In: number of bytes, name of a GPU, shape of a ring. Out: arrays, tensor maps, lists of SMs, text of
``kernels/common/grid.cuh``, launches in the simulator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import WrongAnswer, kernels_dir
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.machine.dispatcher import first_sms
from gpusim.simulate.result import Result
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import Buffer, Launch, Mbarrier, RoleContext, WarpRole
from gpusim.workload.tma.boxes import TensorMap

MULTIPLIER, ADDEND = 0x9E3779B1, 0x7F4A7C15


@cache
def random_words(num_bytes: int) -> NDArray[np.uint32]:
    """Pseudo-random uint32 words, read-only: index times ``MULTIPLIER`` plus ``ADDEND``. Copied to the GPU once.

    >>> [hex(word) for word in random_words(8).tolist()]
    ['0x7f4a7c15', '0x1d81f5c6']
    """
    made = np.arange(num_bytes // 4, dtype=np.uint32)
    made *= np.uint32(MULTIPLIER)
    made += np.uint32(ADDEND)
    made.setflags(write=False)
    return made


@cache
def sms_by_gpc(gpu_name: str) -> list[list[int]]:
    """SMs of each GPC, in ascending order.

    >>> [len(sms) for sms in sms_by_gpc("toy")]
    [4]
    """
    floorplan = load_gpu(gpu_name).floorplan
    found: list[list[int]] = [[] for _ in floorplan.members]
    for sm, gpc in enumerate(floorplan.gpc_of_sm):
        found[gpc].append(sm)
    return found


@cache
def dealt_as_clusters(gpu_name: str) -> list[int]:
    """For each CTA of a simulated grid without clusters, one per SM: the CTA of a kernel with clusters of one on that SM.

    A kernel with ``__cluster_dims__(1)`` is distributed over GPCs in turn, one without fills one GPC after the other.

    >>> dealt_as_clusters("h200_sxm")[:10]
    [0, 12, 1, 13, 2, 14, 3, 15, 4, 16]
    """
    gpu = load_gpu(gpu_name)
    cta_of = {sm: cta for cta, sm in enumerate(gpu.floorplan.singles())}
    return [cta_of[sm] for sm in first_sms(gpu.dispatcher, gpu.floorplan)]


def grid_include() -> dict[str, str]:
    """Text of ``grid.cuh``, the barrier of all CTAs of a grid."""
    return {"grid.cuh": (kernels_dir() / "common" / "grid.cuh").read_text(encoding="utf-8")}


def operand_map(pitch_bytes: int, rows: int, box_rows: int) -> TensorMap:
    """Tensor map of a bf16 operand as a GEMM has it: boxes of ``box_rows`` rows of 128 bytes, 128B swizzle."""
    return TensorMap(
        dtype=BF16, global_dim=(pitch_bytes // 2, rows), global_strides_bytes=(pitch_bytes,), box_dim=(64, box_rows),
        swizzle="128B", l2_promotion="128B",
    )  # fmt: skip


def grouped_tile(cta: int, *, m_tiles: int, n_tiles: int, raster_group: int) -> tuple[int, int]:
    """(row, column) of a CTA's tile, in Triton's grouped order.

    >>> [grouped_tile(cta, m_tiles=3, n_tiles=2, raster_group=2) for cta in range(6)]
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    turn, rest = divmod(cta, raster_group * n_tiles)
    height = min(raster_group, m_tiles - turn * raster_group)
    return turn * raster_group + rest % height, rest // height


def sum_of_random_words(first: NDArray[np.int64], each: int) -> int:
    """Sum, modulo 2^32, of ``each`` words of :func:`random_words` from every word of ``first`` on.

    >>> sum_of_random_words(np.array([0]), 2) == int(random_words(8).astype(np.uint64).sum()) % 2**32
    True
    """
    idx = int(first.sum()) * each + first.size * (each * (each - 1) // 2)
    return (idx * MULTIPLIER + first.size * each * ADDEND) % 2**32


def sum_of_words(num_bytes: int, first_byte: int = 0) -> int:
    """Sum, modulo 2^32, of the words of :func:`random_words` in ``num_bytes`` from ``first_byte`` on.

    >>> sum_of_words(8, 4) == ((MULTIPLIER + ADDEND) + (2 * MULTIPLIER + ADDEND)) % 2**32
    True
    """
    return sum_of_random_words(np.array([first_byte // 4]), num_bytes // 4)


def shot_quantiles(name: str, cycles: NDArray[np.int64]) -> dict[str, float]:
    """P10, median and P90 of all shots."""
    found = np.quantile(cycles, (0.1, 0.5, 0.9))
    return {f"{name}_p{pct}_cycles": float(value) for pct, value in zip((10, 50, 90), found, strict=True)}


def sum_of_box(words: NDArray[np.uint32], first_row: int, num_rows: int, *, pitch_bytes: int, column: int) -> int:
    """Sum of the words of a box of 128-byte rows in a tensor that repeats ``words``; ``column`` counts boxes."""
    starts = np.arange(first_row, first_row + num_rows) * (pitch_bytes // 4) + column * 32
    return int(words[(starts[:, None] + np.arange(32)) % len(words)].astype(np.uint64).sum())


def check_tile_sums(
    tiles: list[tuple[int, int]], checksums: list[int], sum_of: Callable[[str, int], int], what: str = "the stages of tile"
) -> None:
    """Check the sum of the words of each CTA's last stages; ``sum_of``: (operand, panel) to its part, modulo 2^32.

    Raises:
        WrongAnswer: a sum differs.
    """
    sums = [{panel: sum_of("ab"[place], panel) for panel in {tile[place] for tile in tiles}} for place in range(2)]
    for (m, n), checksum in zip(tiles, checksums, strict=True):
        if checksum != (sums[0][m] + sums[1][n]) % 2**32:
            raise WrongAnswer(f"{what} {m}, {n} have words that sum up to {checksum}")


def times_of_sharers(gpu_name: str, sms: list[int], panels: list[int], times: NDArray[np.float64]) -> list[list[float]]:
    """Times of the CTAs of each GPC and panel, in ascending order."""
    gpc_of = load_gpu(gpu_name).floorplan.gpc_of_sm
    groups: dict[tuple[int, int], list[float]] = defaultdict(list)
    for sm, panel, time in zip(sms, panels, times.tolist(), strict=True):
        groups[gpc_of[sm], panel].append(time)
    return [sorted(found) for found in groups.values()]


def gaps_between(groups: list[list[float]]) -> list[float]:
    """Time from each CTA to the one before it of its group.

    >>> gaps_between(times_of_sharers("h200_sxm", [0, 16, 2], [5, 5, 5], np.array([100.0, 30.0, 0.0])))
    [70.0]
    """
    return [later - earlier for found in groups for earlier, later in pairwise(found)]


def num_reads(groups: list[list[float]], window: float, most_merged: int = 4) -> int:
    """Reads of sharers, where all within ``window`` of the first get the data with that, ``most_merged`` at most.

    >>> num_reads([[0.0, 70.0, 100.0]], 80.0), num_reads([[0.0] * 5], 80.0)
    (2, 2)
    """
    reads = 0
    for found in groups:
        first, num = -np.inf, 0
        for time in found:
            if time - first > window or num == most_merged:
                first, num = time, 0
                reads += 1
            num += 1
    return reads


def read_fraction(row: Mapping[str, str]) -> dict[str, float]:
    """Fraction of the bytes that CTAs asked for which L2 was read for; empty where a row lacks either."""
    read = row.get("lts__t_sectors_srcunit_tex_op_read.sum")
    return {"read_fraction": float(read) * 32 / float(row["asked_bytes"])} if read and row.get("asked_bytes") else {}


def code_of(num_cycles: float, gpu: GpuSpec) -> ops.Alu:
    """Code that takes a warp so long, most of it waiting for itself."""
    return ops.Alu(num_cycles / gpu.warp_scheduler.dependent_cycles, is_chain=True)


def start_cycle(cta: int, gpu: GpuSpec) -> float:
    """Cycle at which a CTA's first instruction is issued."""
    spec = gpu.dispatcher
    dispatched = spec.launch_cycles + (cta + 1) * spec.dispatch_cycles_per_cta + spec.wait_cycles(cta)
    return dispatched + spec.cta_start_cycles


def section_cycles(result: Result) -> NDArray[np.float64]:
    """Cycles of each section of each recorded role."""
    return np.array([span.end_cycle - span.start_cycle for role in result.timeline.roles for span in role.sections])


START_CYCLES, GOLDEN = 50.0, 0.6180339887498949
"""Cycles from the first to the last SM that sees the time at which all go on, a guess; fraction of them by CTA."""


def start_waits(num_ctas: int, gpu: GpuSpec, *, cluster_size: int = 1) -> list[float]:
    """Cycles that each CTA waits from its first instruction until all CTAs go on at one time."""
    starts = [start_cycle(cta, gpu) for cta in range(num_ctas)]
    last = max(starts)
    return [last - start + START_CYCLES * (cta // cluster_size * GOLDEN % 1.0) for cta, start in enumerate(starts)]


Program = Callable[[RoleContext], Iterator[Any]]


def ring_launch(
    kernel: str, programs: tuple[Program, Program], ring: Buffer, *, num_ctas: int, least_smem_bytes: int,
    cluster_size: int = 1,
) -> Launch:  # fmt: skip
    """Launch of a producer and a consumer warp that pass stages of ``ring`` through the mbarriers ``full`` and ``empty``.

    Shared memory is filled up to ``least_smem_bytes``. All CTAs of a cluster free a stage.
    """
    stages = ring.num_stages
    rest = Buffer(name="rest", stage_bytes=max(0, least_smem_bytes - ring.stage_bytes * stages))
    produce, consume = (
        WarpRole(name=name, num_warps=1, program=program)
        for name, program in zip(("producer", "consumer"), programs, strict=True)
    )
    return Launch(
        kernel=kernel, num_ctas=num_ctas, num_tiles=num_ctas, cluster_size=cluster_size, roles=(produce, consume),
        buffers=(ring, rest),
        mbarriers=(
            Mbarrier(name="full", num_arrivals=1, num_stages=stages),
            Mbarrier(name="empty", num_arrivals=cluster_size, num_stages=stages),
        ),
        features=frozenset({"tma", "mbarrier", "cluster"} if cluster_size > 1 else {"tma", "mbarrier"}),
    )  # fmt: skip
