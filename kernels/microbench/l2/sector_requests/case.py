"""How fast does an SM send requests for lines that L2 holds, by sectors of a line and by number of SMs?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value

SPAN_BYTES, LINE_BYTES, IN_FLIGHT, WARP = 16 << 20, 128, 4, 32
NUM_ROUNDS = 64
SECTORS = (1, 2, 4)


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    _: KW_ONLY
    num_ctas: int
    threads: int

    @property
    def sectors(self) -> int:
        """Sectors of a line that a warp's load touches."""
        return int(self.kernel.rpartition("_")[2])

    @property
    def num_requests(self) -> int:
        """Requests for lines of a CTA in one pass."""
        return NUM_ROUNDS * IN_FLIGHT * self.threads // WARP * (WARP // self.sectors)


def rates() -> list[Row]:
    """One SM, half of them, and all; one CTA each; few and many warps."""
    return [
        Row(f"lines_of_{sectors}", num_ctas=num_ctas, threads=threads)
        for sectors in SECTORS for num_ctas in (1, 16, 66, 132) for threads in (256, 1024)
    ]  # fmt: skip


@cache
def data() -> NDArray[np.uint32]:
    """Random words; copied to the GPU once."""
    return read_only(np.random.default_rng(13).integers(0, 2**32, SPAN_BYTES // 4, dtype=np.uint32))


def launch(config: Row) -> KernelLaunch:
    """Times come from the kernel; nothing is counted."""
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array((SPAN_BYTES // LINE_BYTES, NUM_ROUNDS), dtype="<u4")), Input(data()),
            Output("sums", np.zeros(config.num_ctas, dtype="<u4")),
            Output("cycles", np.full(config.num_ctas, 0xFFFFFFFF, dtype="<u4")),
        ),
        grid=(config.num_ctas, 1, 1), block=(config.threads, 1, 1),
    )  # fmt: skip


def mixed(number: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Hash of the kernel, uint32."""
    number = number ^ number >> np.uint32(16)
    number = number * np.uint32(0x7FEB352D)
    number = number ^ number >> np.uint32(15)
    number = number * np.uint32(0x846CA68B)
    return np.asarray(number ^ number >> np.uint32(16))


def expected_sums(config: Row) -> NDArray[np.uint32]:
    """Sums of the words that each CTA reads, uint32[num_ctas]."""
    own_lines = SPAN_BYTES // LINE_BYTES // config.num_ctas
    lines = mixed(np.arange(config.num_requests, dtype=np.uint32)) % np.uint32(own_lines)
    sectors = np.arange(config.sectors) * 8
    first = np.arange(config.num_ctas)[:, None] * own_lines
    sums = [int(data()[(lines[:, None] + cta) * 32 + sectors].sum(dtype=np.uint64)) for cta in first[:, 0]]
    return np.array([2 * each % 2**32 for each in sums], dtype=np.uint32)


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of an SM for a request, over the CTAs.

    Raises:
        WrongAnswer: a CTA read other words, or the clock did not run.
    """
    if (outputs["sums"] != expected_sums(config)).any():
        raise WrongAnswer(f"CTA {int(np.argmax(outputs['sums'] != expected_sums(config)))} read other words")
    cycles = outputs["cycles"].astype(np.float64)
    if cycles.min() <= 0 or cycles.max() > 1e8:
        raise WrongAnswer(f"the clock shows {int(cycles.min())} to {int(cycles.max())} cycles")
    return {
        "request_cycles": float(np.median(cycles)) / config.num_requests,
        "max_request_cycles": float(cycles.max()) / config.num_requests,
    }


CASE = Case(
    name="sector_requests",
    question=__doc__,
    config_type=Row, launch=launch, check=check, num_repeats=5,
    groups={"rates": Group(configs=rates, rank=3)},
    values={
        "request_cycles": "SM cycles for each request for a line; median over CTAs",
        "max_request_cycles": "SM cycles for each request for a line; slowest CTA",
    },
)  # fmt: skip
