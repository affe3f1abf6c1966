"""What does memory lose where it is read and written at once, by what a warp stores in a row?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Outputs, Repeated, Windows
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import check_windows
from gpusim.evidence.cases.validation_kernel import pattern_words, windows
from gpusim.kernel_models.streaming import dense_access, share_footprint
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

MIB = 2**20
SIZES = (512 * MIB, 2048 * MIB)
"""Of the array. What a launch takes beside is the same in both, and not in the difference."""
THREADS = (128, 256, 512, 1024)
UNTOUCHED = 0xFF
SMEM_BYTES = measured_gpu().smem_per_sm_bytes
SMEM_OF_CTAS = {0: 0, **{1 << turn: min(200 * 1024 >> turn, (SMEM_BYTES >> turn) - 2048) for turn in range(3)}}
"""CTAs that an SM has at most (0: as many as there is room for) to the dynamic shared memory that sees to it, in bytes."""
PAUSES = (500, 2000)
NUM_SMS = measured_gpu().num_sms
WARP_SIZE = 32
METRICS = (
    "sm__cycles_elapsed.max", "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
    "dram__cycles_elapsed.avg.per_second",
)  # fmt: skip


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    threads: int
    ctas_per_sm: int
    pause_cycles: int
    array_bytes: int


def grains() -> list[Config]:
    """Each way to copy, in both sizes, one behind the other."""
    ways = [(f"strided_b16_u{unrolled}", threads, 0, 0) for unrolled in (1, 2, 4, 8) for threads in THREADS]
    ways += [(f"strided_b16_u{unrolled}", 256, ctas, 0) for unrolled in (1, 2, 4, 8) for ctas in (4, 2)]
    ways += [(f"strided_b{width}_u{unrolled}", 256, 0, 0) for width in (8, 4) for unrolled in (1, 4, 8)]
    ways += [(f"dense_b16_u{unrolled}", 256, 0, 0) for unrolled in (2, 4, 8)]
    ways += [(f"paused_b16_u{unrolled}", 256, 0, pause) for unrolled in (1, 4, 8) for pause in PAUSES]
    ways += [("by_one_b16_u4", threads, 0, 0) for threads in (256, 1024)]
    ways += [("strided_b16_u1", threads, 1, 0) for threads in (256, 512, 1024)]
    ways += [(f"{kind}_b16_u1", 256, ctas, 0) for kind in ("read", "write", "loop") for ctas in (4, 2, 1)]
    ways += [("loop_b16_u1", threads, 1, 0) for threads in (512, 1024)]
    return [
        Config(kernel=kernel, threads=threads, ctas_per_sm=ctas, pause_cycles=pause, array_bytes=size)
        for kernel, threads, ctas, pause in ways for size in SIZES
    ]  # fmt: skip


def parts(config: Config) -> tuple[str, int, int]:
    """(kind, bytes of a vector, vectors of a thread).

    >>> parts(Config("by_one_b16_u4", 256, 0, 0, 0))
    ('by_one', 16, 4)
    """
    found = re.fullmatch(r"(\w+)_b(\d+)_u(\d+)", config.kernel)
    assert found is not None  # all are called so
    return found[1], int(found[2]), int(found[3])


def words() -> NDArray[np.uint32]:
    """What the input repeats."""
    return pattern_words(43, 2**31)


def _out(config: Config) -> Windows:
    size = config.array_bytes
    return Windows("out", size, windows(size))


def num_ctas(config: Config) -> int:
    """Of the grid: one a share, or those that an SM has at most."""
    kind, width, unrolled = parts(config)
    if kind == "loop":
        return NUM_SMS * config.ctas_per_sm
    return config.array_bytes // (config.threads * unrolled * width)


def launch(config: Config) -> KernelLaunch:
    """As many CTAs as the array has shares."""
    size, threads = config.array_bytes, config.threads
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Repeated(words(), size), _out(config), np.uint32(config.pause_cycles), np.uint32(size // parts(config)[1]),
        ),
        grid=(num_ctas(config), 1, 1), block=(threads, 1, 1), smem_bytes=SMEM_OF_CTAS[config.ctas_per_sm],
    )  # fmt: skip


def expected(config: Config, offset: int, num_bytes: int) -> NDArray[np.uint8]:
    """What lies in a window of the output: one more in each vector's first word; numbers; nothing."""
    kind, width, _ = parts(config)
    if kind == "read":
        return np.full(num_bytes, UNTOUCHED, dtype=np.uint8)
    if kind == "write":
        at = np.arange(offset // width, (offset + num_bytes) // width, dtype=np.uint32)
        numbers = np.stack([at, ~at, np.full_like(at, 7), np.full_like(at, 9)], axis=1)
        return np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)
    values = Repeated(words(), config.array_bytes).window(offset, num_bytes).view(np.uint32).copy()
    values[:: width // 4] += np.uint32(1)
    return values.view(np.uint8)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Windows of what was written, every byte."""
    check_windows(_out(config), outputs["out"], partial(expected, config))
    return {}


# ---------------------------------------------------------------------------------------------- the simulator's answer

BEFORE_LOADS = 14
"""Instructions of a thread until its first load. Source: SASS, sm_90a."""
REGISTERS = {("strided", 16): (14, 16, 28, 52), ("strided", 8): (10, 14, 22, 32), ("strided", 4): (10, 14, 22, 32),
             ("dense", 16): (14, 16, 24, 42), ("by_one", 16): (14, 14, 14, 14), ("paused", 16): (14, 16, 30, 56),
             ("read", 16): (10,), ("write", 16): (10,), ("loop", 16): (14,)}  # fmt: skip
"""Of a thread with 1, 2, 4 and 8 vectors. Source: ptxas, sm_90a."""


def twin(config: Config) -> Launch:
    """The launch in the simulator's words."""
    kind, width, unrolled = parts(config)
    size, threads = config.array_bytes, config.threads
    num_rounds = unrolled if kind == "by_one" else 1
    access = dense_access(0, threads, width).scaled(unrolled // num_rounds)
    share = threads * unrolled * width
    num_shares, grid = size // share, num_ctas(config)

    def move(idx: int) -> Any:
        for step in range(num_rounds):
            if kind != "write":
                token = yield ops.GlobalLoad("in", (idx, step), access)
                yield ops.Use(token)
            if kind != "read":
                yield ops.GlobalStore("out", (idx, step), access)

    def program(cta: RoleContext) -> Any:
        yield ops.Alu(BEFORE_LOADS, is_chain=True)
        if kind != "loop":
            yield from move(cta.cta_idx)
            return
        for _, idx in cta.tiles(num_shares):
            yield from move(idx)

    footprints = [
        share_footprint(name, way, num_bytes=size, share_bytes=share)
        for name, way, other in (("in", "read", "write"), ("out", "write", "read")) if kind != other
    ]  # fmt: skip
    return Launch(
        kernel=config.kernel,
        num_ctas=grid,
        num_tiles=num_shares,
        roles=(WarpRole(name="all", num_warps=threads // WARP_SIZE, program=program),),
        registers_per_thread=REGISTERS[kind, width][unrolled.bit_length() - 1],
        extra_smem_bytes=SMEM_OF_CTAS[config.ctas_per_sm],
        footprints=tuple(footprints),
        has_uniform_programs=True,
    )


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Time of the launch, at the highest clock: memory's own, but for the first and last microseconds. None with a pause."""
    if config.pause_cycles != 0:
        return {}
    return {"gpu__time_duration.sum": simulate(twin(config), gpu, clock="max").time_us * 1e3}


CASE = Case(
    name="copy_grains",
    question="What does memory lose where it is read and written at once, by what a warp stores in a row?",
    config_type=Config,
    groups={"grains": Group(configs=grains, metrics=METRICS, rank=3, is_cold=True)},
    launch=launch, check=check, predict=predict, tiers={"gpu__time_duration.sum": 4},
)  # fmt: skip
