"""What do stores of tensor cores' fragments cost, eight rows of four lanes each, by width, pitch and what they fall into?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Outputs, Windows, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.validation_kernel import windows
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import Footprint, RoleContext
from gpusim.workload.smem.access import AccessPattern

MIB = 1 << 20
THREADS, WORD_BYTES, TILE_ROWS = 256, 4, 128
NUM_CTAS, TILE_BYTES = measured_gpu().num_sms, 256
STORED_BYTES = 64 * MIB
"""Of all rounds together."""
WALK = np.dtype([(name, "<u4") for name in ("pitch_words", "tile_words", "num_m", "num_tiles", "num_rounds")])
"""Structure of kernel.cu."""
MIX = 0x9E3779B1

CYCLES = "sm__cycles_elapsed.max"
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
WRITTEN = "lts__t_sectors_srcunit_tex_op_write.sum"
METRICS = (
    *DRAM, WRITTEN, "lts__t_requests_srcunit_tex_op_write.sum", "lts__t_sectors_srcunit_ltcfabric.sum",
    "l1tex__m_l1tex2xbar_write_bytes.sum", CYCLES,
)  # fmt: skip
ALU_OF_STORE = 2.0
"""Integer instructions beside a store. Source: SASS, sm_90a."""
PITCHES, SPANS, LANE_BYTES = (4096, 8192, 10240, 16384), (4 * MIB, 16 * MIB, 64 * MIB), (4, 8, 16)


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    lane_bytes: int
    rows: int
    pitch_bytes: int
    num_ctas: int
    num_rounds: int

    @property
    def kernel(self) -> str:
        """The entry point."""
        return f"store_{self.lane_bytes}"


def config_of(*, lane_bytes: int, pitch: int, span: int, num_ctas: int = NUM_CTAS) -> Row:
    """A matrix of about ``span`` bytes, stored into as often as makes 64 MiB."""
    rows = span // pitch // TILE_ROWS * TILE_ROWS
    return Row(lane_bytes, rows, pitch, num_ctas, max(1, round(STORED_BYTES / (rows * pitch))))


def configs() -> list[Row]:
    """Widths, pitches, sizes; one CTA an SM, and two."""
    return [
        config_of(lane_bytes=lane_bytes, pitch=pitch, span=span, num_ctas=num_ctas)
        for num_ctas in (NUM_CTAS, 2 * NUM_CTAS) for span in SPANS for pitch in PITCHES for lane_bytes in LANE_BYTES
    ]


def num_tiles(config: Row) -> int:
    """Of the matrix."""
    return config.rows // TILE_ROWS * (config.pitch_bytes // TILE_BYTES)


def matrix_of(config: Row) -> Windows:
    """What is stored into."""
    num_bytes = config.rows * config.pitch_bytes
    return Windows("matrix", num_bytes, windows(num_bytes))


def launch(config: Row) -> KernelLaunch:
    """All tiles, by so many CTAs."""
    fields = (
        config.pitch_bytes // WORD_BYTES, TILE_BYTES // WORD_BYTES, config.rows // TILE_ROWS,
        num_tiles(config), config.num_rounds,
    )  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel, arguments=(matrix_of(config), by_value(np.array([fields], dtype=WALK))),
        grid=(config.num_ctas, 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Every word says where it lies."""
    out = matrix_of(config)
    for (offset, num_bytes), came in zip(out.windows, out.split(outputs["matrix"]), strict=True):
        words = offset // WORD_BYTES + np.arange(num_bytes // WORD_BYTES, dtype=np.int64)
        wrong = np.flatnonzero(came.view("<u4") != words * MIX % (1 << 32))
        if len(wrong):
            raise WrongAnswer(f"word {int(words[wrong[0]])} is {came.view('<u4')[wrong[0]]}, wants its own number, mixed")
    return {}


# ---------------------------------------------------------------------------------------------- the twin
def addresses(config: Row) -> NDArray[np.int64]:
    """Bytes that the lanes of a tile's stores begin at: int64[stores, 32]."""
    lane_bytes, pitch = config.lane_bytes, config.pitch_bytes
    lane = np.arange(32)
    rows = np.arange(THREADS // 32)[:, None, None, None] * 16 + 8 * np.arange(2)[None, None, :, None] + lane // 4
    columns = np.arange(TILE_BYTES // (4 * lane_bytes))[None, :, None, None] * 4 * lane_bytes + lane % 4 * lane_bytes
    return (rows * pitch + columns).reshape(-1, 32)


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """A tile is a store of all its fragments."""
    access: AccessPattern = global_access(addresses(config), config.lane_bytes)
    num_ctas, tiles, rounds = config.num_ctas, num_tiles(config), config.num_rounds
    alu = ops.Alu(ALU_OF_STORE * access.num_requests / (THREADS // 32))

    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in range(rounds):
            for tile in range(cta.cta_idx, tiles, num_ctas):
                yield alu
                yield ops.GlobalStore("matrix", (tile, 0), access)

    def panel_bytes(panels: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full_like(panels, config.rows * config.pitch_bytes // num_ctas)

    launched = Launch(
        kernel="fragment_stores", num_ctas=num_ctas, num_tiles=num_ctas, registers_per_thread=32,
        roles=(WarpRole(name="store", num_warps=THREADS // 32, program=program),),
        footprints=(
            Footprint(tensor="matrix", access="write", panel_of=lambda ctas: ctas, panel_bytes=panel_bytes, num_steps=1),
        ),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max")
    return {name: float(result.counters[name]) for name in (*DRAM, WRITTEN, CYCLES) if name in result.counters}


CASE = Case(
    name="fragment_stores",
    question=__doc__,
    config_type=Row, launch=launch, check=check, predict=predict,
    groups={"sizes": Group(configs=configs, metrics=METRICS, rank=3, is_cold=True)},
    tiers={WRITTEN: 5, CYCLES: 6},
)  # fmt: skip
