"""What do the pieces of a tile cost whose parts CTAs add up: additions in L2, their fence, sums read back, zeros?"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import check_words, wrong_if
from gpusim.evidence.cases.tile_walk import grid_include
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import RoleContext
from gpusim.workload.ops import Op, RangeEnd, RangeStart, Section, Token
from gpusim.workload.smem.access import AccessPattern

MEASURED = measured_gpu()
NUM_SMS = MEASURED.num_sms
NUM_ROUNDS, NUM_COLUMNS, NUM_SUMS, WARP_ROWS = 4, 16, 1024, 16
"""As in kernel.cu."""
FLAG_WORDS = 32 + 32 + 64 + 256
FIELDS = ("pitch_bytes", "num_turns", "num_parts", "num_across", "row_bytes", "tile_bytes")
WALK = np.dtype([(name, "<u4") for name in FIELDS])
"""Structure of kernel.cu."""
RED = "lts__t_sectors_op_red.sum"
READ, WRITE = "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum"
METRICS = (RED, READ, WRITE, "lts__t_sectors_srcunit_ltcfabric.sum", "sm__cycles_elapsed.max")

KINDS = ("red_4", "red_8", "red_16", "store_4", "store_8", "store_16", "load_4", "load_8", "load_16", "take_8", "finish_8")
GRIDS = (1, 16, NUM_SMS // 2, NUM_SMS)
OF_HOPPER = ("red_8", "red_16", "take_8", "finish_8")
"""Kernels that kernel.cu has for compute capability 9.0 alone."""
NUM_PIECES = 4
"""Of a turn, in the twin."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    num_warps: int
    num_turns: int = 1
    num_ctas: int = 1
    num_parts: int = 1
    """CTAs that walk one tile."""
    pitch_bytes: int = 4096
    """Bytes from row to row of a tile."""


def lane_bytes(config: Config) -> int:
    """Of an access."""
    return int(config.kernel.rsplit("_", 1)[1])


# ---------------------------------------------------------------------------------------------- configs
def _has(kernel: str) -> bool:
    return MEASURED.has_clusters or kernel not in OF_HOPPER


def own() -> list[Config]:
    """Each CTA its own tile: one SM, some, all; one turn, and two, so that a turn is their difference."""
    return [
        Config(kernel, num_warps=warps, num_ctas=ctas, num_turns=turns)
        for kernel, warps, ctas, turns in product(KINDS, (4, 8), GRIDS, (1, 2))
        if _has(kernel)
    ]  # fmt: skip


def shared() -> list[Config]:
    """Tiles that 2 to 128 CTAs add to, or read, at once; few CTAs and as many as one each."""
    return [
        Config(kernel, num_warps=warps, num_ctas=ctas, num_parts=parts)
        for kernel, warps, (ctas, parts) in product(
            ("red_4", "red_8", "red_16", "load_8"), (4, 8),
            ((2, 2), (8, 8), (32, 32), (64, 2), (64, 8), (128, 2), (128, 4), (128, 8), (128, 32), (128, 128)),
        ) if _has(kernel) and ctas <= NUM_SMS
    ]  # fmt: skip


def pitches() -> list[Config]:
    """Rows of other distances, powers of two and not."""
    return [
        Config(kernel, num_warps=8, num_ctas=ctas, pitch_bytes=pitch)
        for kernel, ctas, pitch in product(("red_8", "store_8", "load_8"), (1, NUM_SMS), (1024, 2048, 8192, 2080, 8224))
        if _has(kernel)
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- what is launched
def is_finish(config: Config) -> bool:
    """Whether what is read leaves again, as half as many bytes."""
    return config.kernel == "finish_8"


def tiles_across(config: Config) -> int:
    """Tiles side by side in a row of the matrix."""
    return config.pitch_bytes // row_bytes(config)


def row_bytes(config: Config) -> int:
    """Of a tile."""
    return NUM_COLUMNS * 4 * lane_bytes(config)


def tile_rows(config: Config) -> int:
    """Of a tile."""
    return WARP_ROWS * config.num_warps * config.num_turns


def num_tiles(config: Config) -> int:
    """Of all CTAs."""
    return config.num_ctas // config.num_parts


def tile_bytes(config: Config) -> int:
    """From tile to tile below."""
    return tile_rows(config) * config.pitch_bytes


def launch(config: Config) -> KernelLaunch:
    """All CTAs begin at one time, four times."""
    ctas = config.num_ctas
    walk = (
        config.pitch_bytes, config.num_turns, config.num_parts, tiles_across(config), row_bytes(config), tile_bytes(config),
    )  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Output("room", np.zeros(num_bands(config) * tile_bytes(config) // 4, dtype="<f4")),
            by_value(np.array([walk], dtype=WALK)), Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")),
            Output("told", np.full((ctas, NUM_ROUNDS, 2), -1, dtype="<i8")),
            Output("sums", np.zeros(ctas * NUM_SUMS, dtype="<f4")),
            Output("out", np.zeros(num_bands(config) * tile_bytes(config) // 8 if is_finish(config) else 1, dtype="<f4")),
        ),
        grid=(ctas, 1, 1), block=(config.num_warps * 32, 1, 1),
    )  # fmt: skip


def num_bands(config: Config) -> int:
    """Rows of tiles."""
    return -(-num_tiles(config) // tiles_across(config))


def wanted(config: Config) -> NDArray[np.float32]:
    """What the room holds at the end: bands of tiles by rows by words of a row."""
    kind = config.kernel.split("_")[0]
    left = {"red": NUM_ROUNDS * config.num_parts, "load": 0}.get(kind, NUM_ROUNDS)
    held = np.zeros((num_bands(config), tile_rows(config), config.pitch_bytes // 4), dtype="<f4")
    across, words = tiles_across(config), row_bytes(config) // 4
    for tile in range(num_tiles(config)):
        held[tile // across, :, tile % across * words : (tile % across + 1) * words] = left
    return held


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Cycles of a CTA, of all rounds but the first."""
    told = outputs["told"]
    wrong_if(outputs["flags"][1] or (told == -1).any(), "a wait was given up: CTAs did not meet")
    wrong_if((told <= 0).any(), "the clock stood still")
    expected = wanted(config).reshape(-1)
    check_words(outputs["room"], expected)
    wrong_if(not config.kernel.startswith("take") and outputs["sums"].any(), "zeros that were read back have a sum")
    if is_finish(config):  # of the last round, which finds what the one before has left: two words of it
        pairs = expected.reshape(-1, 2)[:, 0]
        wrong_if((outputs["out"] != np.where(pairs, 2.0 * (NUM_ROUNDS - 1), 0.0)).any(), "what was read did not leave")
    issued, done = told[:, 1:, 0], told[:, 1:, 1]
    return {
        "issued_cycles": float(np.median(issued.mean(axis=0))), "done_cycles": float(np.median(done.mean(axis=0))),
        "slowest_cycles": float(np.median(done.max(axis=0))), "first_cycles": float(told[:, 0, 1].mean()),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- the twin
def accesses(config: Config, size: int, pitch: int) -> list[AccessPattern]:
    """Of all warps of a CTA in a turn, piece by piece, so many bytes a lane."""
    lane, warp = np.arange(32), np.arange(config.num_warps)[:, None, None]
    found = []
    for columns in np.split(np.arange(NUM_COLUMNS), NUM_PIECES):
        step = np.concatenate([columns * 4 * size, columns * 4 * size + 8 * pitch])[:, None]
        first = warp * WARP_ROWS * pitch + step + lane // 4 * pitch + lane % 4 * size
        found.append(global_access(first.reshape(-1, 32), size))
    return found


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """A turn in pieces, and a fence behind all turns."""
    ctas, parts = config.num_ctas, config.num_parts
    if gpu.num_sms < ctas:
        return {}
    kind, size, turns = config.kernel.split("_")[0], lane_bytes(config), config.num_turns
    pitch = config.pitch_bytes
    pieces, halves = accesses(config, size, pitch), accesses(config, max(4, size // 2), pitch // 2)
    alu = ops.Alu(2.0 * 2 * NUM_COLUMNS / NUM_PIECES)

    def read(tile: tuple[int, int], access: AccessPattern) -> Op:
        return ops.GlobalLoad("room", tile, access, allocates_in_l1=False)

    def program(cta: RoleContext) -> Generator[Op, Any, None]:
        yield RangeStart(Section.MAINLOOP)
        for turn in range(turns):
            tokens: list[Token] = []
            for idx, access in enumerate(pieces):
                tile = (cta.cta_idx // parts, turn * NUM_PIECES + idx)
                yield alu
                if kind == "store":
                    yield ops.GlobalStore("room", tile, access)
                elif kind == "red":
                    yield ops.GlobalAtomic("room", tile, access)
                else:
                    tokens.append((yield read(tile, access)))
            if kind in ("take", "finish"):
                for idx, access in enumerate(pieces):
                    yield alu
                    yield ops.GlobalStore("room", (cta.cta_idx // parts, turn * NUM_PIECES + idx), access)
            for token in tokens:
                yield ops.Use(token)
            if kind == "finish":
                for idx, access in enumerate(halves):
                    yield alu
                    yield ops.GlobalStore("out", (cta.cta_idx // parts, turn * NUM_PIECES + idx), access)
        yield ops.Syncthreads()
        yield RangeEnd()
        yield RangeStart(Section.EPILOGUE)
        yield ops.FenceAcqRel()
        yield ops.Syncthreads()
        yield RangeEnd()

    launched = Launch(
        kernel=config.kernel, num_ctas=ctas, num_tiles=ctas, registers_per_thread=168,
        roles=(WarpRole(name="walk", num_warps=config.num_warps, program=program),),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="warm", recorded_sms=range(gpu.num_sms))
    times = np.array([[span.end_cycle - span.start_cycle for span in item.sections] for item in result.timeline.roles])
    done = times.sum(axis=1)
    return {
        "issued_cycles": float(times[:, 0].mean()), "done_cycles": float(done.mean()), "slowest_cycles": float(done.max())
    }  # fmt: skip


CASE = Case(
    name="part_sums",
    question=__doc__,
    config_type=Config,
    groups={
        name: Group(configs=configs, metrics=METRICS, rank=3)
        for name, configs in (("own", own), ("shared", shared), ("pitches", pitches))
    },
    launch=launch, check=check,
    values={
        "issued_cycles": "SM cycles of a CTA until its last access is issued, all it reads there: mean, median of rounds",
        "done_cycles": "the same until the fence behind is over",
        "slowest_cycles": "the same of the slowest CTA",
        "first_cycles": "done_cycles of the first round",
    },
    num_repeats=3, predict=predict, tiers={"done_cycles": 4}, includes=grid_include,
)  # fmt: skip
