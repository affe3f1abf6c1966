"""What does Nsight Compute count as wavefronts of shared memory, beside loads and stores there?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Group, Input, KernelLaunch, MappedTensor, Output, Outputs
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import check_words
from gpusim.evidence.cases.validation_kernel import SHARED, as_counted
from gpusim.workload import ops
from gpusim.workload.dtypes import dtype
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tma.boxes import TensorMap

MORE = 5
THREADS = 256
KINDS = (
    "shuffle_idx", "shuffle_bfly", "shuffle_half", "redux", "vote", "match", "barrier", "load", "store", "atomic",
    "arrive_lane", "arrive_warp", "try", "global_load", "global_store", "cp4", "cp16", "bulk1k", "bulk8k", "tile1k",
    "tile8k", "bulk_store",
)  # fmt: skip
TIMES = (8, 32)
BLOCKS = ((32, 1, 1), (256, 1, 1), (1024, 1, 1), (32, 8, 1), (16, 16, 1), (1, 256, 1), (8, 8, 4), (32, 1, 8))
IDS = ("ids_none", "ids_x", "ids_xyz")
GRIDS = (1, 1056)
LOADS, STORES = (f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{word}.sum" for word in ("ld", "st"))
METRICS = (
    SHARED, LOADS, STORES,
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_{word}.sum" for word in ("op_atom", "op_misc", "cmd_read", "cmd_write")),
    "l1tex__data_pipe_lsu_wavefronts.sum", "smsp__inst_executed.sum",
)  # fmt: skip
FILLS = ("load", "atomic", "bulk_store")
"""Kinds whose threads each store a word before."""
READS = ("store", "atomic", "cp4", "cp16", "bulk1k", "bulk8k", "tile1k", "tile8k")
"""Kinds whose threads each load a word at the end."""
NUM_WORDS = 2048
SHUFFLES = ("shuffle_idx", "shuffle_bfly", "shuffle_half")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    block: str
    num_ctas: int


def kinds() -> list[Config]:
    """Every kind of instruction, two numbers of them, two grids."""
    names = ["nothing_0", *(f"{kind}_{many}" for kind in KINDS for many in TIMES)]
    return Config.sweep(kernel=names, num_ctas=GRIDS, block=f"{THREADS}x1x1")


def blocks() -> list[Config]:
    """Every shape of a block that reads none, one or all of its threads' numbers."""
    return [
        Config(kernel=name, block="x".join(map(str, block)), num_ctas=grid)
        for name in IDS for block in BLOCKS for grid in GRIDS if name != "ids_x" or block[1:] == (1, 1)
    ]  # fmt: skip


def block_of(config: Config) -> tuple[int, int, int]:
    """Threads of a block along x, y and z.

    >>> block_of(Config("ids_x", "32x8x1", 1))
    (32, 8, 1)
    """
    x, y, z = (int(size) for size in config.block.split("x"))
    return x, y, z


def parts(config: Config) -> tuple[str, int]:
    """(kind, how many).

    >>> parts(Config("shuffle_idx_32", "256x1x1", 1))
    ('shuffle_idx', 32)
    """
    kind, _, many = config.kernel.rpartition("_")
    return kind, int(many)


def given() -> NDArray[np.uint32]:
    """What is there to load: 8 KiB."""
    words = np.random.default_rng(11).integers(0, 1 << 20, NUM_WORDS, dtype=np.uint32)
    words.setflags(write=False)
    return words


def tensor_map(config: Config) -> TensorMap:
    """Rows of 128 bytes, 8 or 64 of them a box."""
    rows = 64 if config.kernel.startswith("tile8k") else 8
    return TensorMap(dtype=dtype("fp32"), global_dim=(32, NUM_WORDS // 32), global_strides_bytes=(128,), box_dim=(32, rows))


def launch(config: Config) -> KernelLaunch:
    """So many CTAs of a block."""
    block, grid = block_of(config), config.num_ctas
    num_words = grid if config.kernel == "ids_none" else grid * int(np.prod(block))
    words = given()
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Input(words), MappedTensor(words.reshape(-1, 32), tensor_map(config)),
            Output("out", np.zeros(num_words, dtype=np.uint32)), np.uint32(MORE),
        ),
        grid=(grid, 1, 1), block=block, smem_bytes=4 * NUM_WORDS,
    )  # fmt: skip


def expected(config: Config) -> NDArray[np.uint32]:
    """What a CTA of 256 threads leaves, int[256]."""
    kind, many = parts(config)
    thread = np.arange(THREADS, dtype=np.int64)
    word, lane, words = thread + MORE, thread % 32, given().astype(np.int64)
    each = np.arange(many)[:, None]
    if kind == "shuffle_idx":
        word = thread - lane + (lane + many) % 32 + MORE + many
    elif kind == "redux":
        word = thread - lane + 31 + MORE + many
    elif kind in ("shuffle_bfly", "vote", "match", "barrier", "arrive_lane", "arrive_warp", "try"):
        word = word + many
    elif kind == "shuffle_half":
        word = word + np.where(lane < 16, many, 0)
    elif kind == "load":
        word = word + ((thread ^ each) + MORE).sum(axis=0)
    elif kind == "store":
        word = 2 * word + many - 1
    elif kind == "atomic":
        word = 2 * word + many * word + (thread | 1) * (many * (many - 1) // 2 + many)
    elif kind == "global_load":
        word = word + words[thread ^ each].sum(axis=0)
    elif kind == "global_store":
        word = word + many - 1
    elif kind.startswith(("cp", "bulk1k", "bulk8k", "tile")):
        word = word + words[:THREADS]
    return (word % (1 << 32)).astype(np.uint32)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Every thread's word is what its instructions should have made."""
    grid, threads = config.num_ctas, int(np.prod(block_of(config)))
    if config.kernel == "ids_none":
        wanted = np.arange(grid, dtype=np.uint32) + MORE
    elif config.kernel in IDS:
        wanted = np.tile(np.arange(threads, dtype=np.uint32) + MORE, grid)
    else:
        wanted = np.tile(expected(config), grid)
    check_words(outputs["out"], wanted, config.kernel)
    return {}


UNTOLD = ("barrier", "arrive_lane", "arrive_warp", "try", "bulk1k", "bulk8k", "tile1k", "tile8k", "bulk_store")
"""Kinds of which no instruction counts, but some of what goes with them: one to five wavefronts a CTA, not predicted."""
NUMBERS = {"ids_none": 0, "ids_xyz": 3}
"""Numbers that a thread asks for, where not one."""


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """All kinds in the vocabulary whose instructions count, or have nothing about them that does."""
    (x, y, z), num_ctas = block_of(config), config.num_ctas
    num_warps = -(-x * y * z // 32)
    kind, many = ("ids", 0) if config.kernel in IDS else parts(config)
    if kind in UNTOLD:
        return {}
    line = AccessPattern(num_requests=num_warps, num_wavefronts=num_warps, num_bytes=128 * num_warps)
    width = 16 if kind == "cp16" else 4
    copied = AccessPattern(
        num_requests=num_warps, num_sectors=width * num_warps, num_lines=num_warps * width // 4,
        num_wavefronts=num_warps * width // 4, num_bytes=32 * width * num_warps,
    )  # fmt: skip

    def program(cta: RoleContext) -> Iterator[Any]:
        if kind in FILLS:
            yield ops.SharedStore(line)
        if kind in SHUFFLES:
            yield ops.Shfl(many, is_chain=True)
        for _ in range(many):
            if kind == "load":
                yield ops.Use((yield ops.SharedLoad(line)))
            elif kind == "store":
                yield ops.SharedStore(line)
            elif kind == "atomic":
                yield ops.Use((yield ops.SharedAtomic(line)))
            elif kind in ("cp4", "cp16"):
                yield ops.CpAsync("from", (0, 0), copied, "words", 0, allocates_in_l1=kind == "cp4")
        if kind in ("cp4", "cp16"):
            yield ops.CpAsyncCommitGroup()
            yield ops.CpAsyncWaitGroup(0)
            yield ops.Syncthreads()
        if kind in READS:
            yield ops.Use((yield ops.SharedLoad(line)))

    launched = Launch(
        kernel="shared_counter", num_ctas=num_ctas, num_tiles=num_ctas,
        buffers=(Buffer(name="words", stage_bytes=4 * NUM_WORDS),),
        roles=(WarpRole(name="warps", num_warps=num_warps, program=program),),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="warm")
    counters = as_counted(result.counters, NUMBERS.get(config.kernel, 1))
    return {SHARED: counters[SHARED], LOADS: counters[LOADS]}


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Wavefronts of a warp."""
    num_warps = -(-int(np.prod(block_of(Config.of(row)))) // 32) * int(row["num_ctas"])
    return {"wavefronts_per_warp": float(row[SHARED]) / num_warps} if row.get(SHARED) else {}


CASE = Case(
    name="shared_counter",
    question="What does Nsight Compute count as wavefronts of shared memory, beside loads and stores there?",
    config_type=Config,
    groups={
        "blocks": Group(configs=blocks, metrics=METRICS, rank=5, least_capability=(9, 0)),
        "kinds": Group(configs=kinds, metrics=METRICS, rank=5, least_capability=(9, 0)),
    },
    launch=launch, check=check, predict=predict, derive=derive, tiers={SHARED: 5, LOADS: 5},
)  # fmt: skip
