"""How many bytes a second come out of memory in pieces that lie anywhere, by the size of a piece and of what they lie in?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Group, KernelLaunch, Output, Outputs, Repeated, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.validation_kernel import pattern_words

THREADS, NUM_CTAS = 1024, 2 * measured_gpu().num_sms
"""Two CTAs on each SM."""
PIECES = (32, 64, 128, 256, 512, 1024, 2048)
FOOTPRINTS = (2**26, 2**28, 2**30, 2**32, 2**34)
ORDERED_FOOTPRINT = 2**32
LOADS_AT_ONCE, VECTOR_BYTES = 4, 16
STEP_BYTES = NUM_CTAS * THREADS * LOADS_AT_ONCE * VECTOR_BYTES
NUM_STEPS = 40
"""Of each thread: 692 MB a launch, 150 us of all memory's rate."""
METRICS = (
    "sm__cycles_elapsed.max", "gpu__time_duration.sum", "dram__bytes_read.sum", "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_lookup_miss.sum", "dram__cycles_elapsed.avg.per_second",
)  # fmt: skip


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    piece_bytes: int
    footprint_bytes: int
    order: str

    @property
    def kernel(self) -> str:
        """Entry point."""
        return f"scattered_{self.piece_bytes}"


def pieces() -> list[Config]:
    """Every piece by every footprint; neighbours in the list share neither half of calibrating and judging rows."""
    return Config.sweep(piece_bytes=PIECES, footprint_bytes=FOOTPRINTS, order="random")


def ordered() -> list[Config]:
    """The same where pieces follow one another."""
    return Config.sweep(piece_bytes=PIECES, footprint_bytes=ORDERED_FOOTPRINT, order="ordered")


def words() -> NDArray[np.uint32]:
    """What the buffer repeats."""
    return pattern_words(31)


@cache
def sums_of_pieces(piece_bytes: int) -> NDArray[np.uint32]:
    """Sum of each piece of the pattern, modulo 2^32."""
    return np.asarray(words().reshape(-1, piece_bytes // 4).sum(axis=1, dtype=np.uint32))


def mixed(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """As the kernel mixes numbers."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x85EBCA6B)
    x = x ^ (x >> np.uint32(13))
    x = x * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def num_pieces(config: Config) -> int:
    """That a launch reads."""
    return NUM_STEPS * STEP_BYTES // config.piece_bytes


def expected(config: Config) -> int:
    """Sum of all that is read, modulo 2^32."""
    piece_bytes = config.piece_bytes
    in_buffer = config.footprint_bytes // piece_bytes
    sums = sums_of_pieces(piece_bytes)
    numbers = np.arange(num_pieces(config), dtype=np.uint32)
    places = numbers if config.order == "ordered" else mixed(numbers)
    return int(sums[places & np.uint32(min(in_buffer, len(sums)) - 1)].sum(dtype=np.uint32))


def launch(config: Config) -> KernelLaunch:
    """Two CTAs an SM."""
    in_buffer = config.footprint_bytes // config.piece_bytes
    question = np.array([NUM_STEPS, in_buffer - 1, config.order == "ordered"], dtype="<u4")
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Repeated(words(), config.footprint_bytes), by_value(question), Output("sum", np.zeros(1, dtype="<u4")),
            Output("times", np.full((NUM_CTAS, 2), -1, dtype="<i8")),
        ),
        grid=(NUM_CTAS, 1, 1), block=(THREADS, 1, 1),
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """GB/s from the first CTA's start to the last one's end, if the sum is right."""
    found, wanted = int(outputs["sum"][0]), expected(config)
    wrong_if(found != wanted, f"the sum of what was read is {found}, wants {wanted}")
    times = outputs["times"]
    wrong_if((times <= 0).any() or (times[:, 1] <= times[:, 0]).any(), "a CTA has not told when it started and ended")
    return {"gb_per_s": NUM_STEPS * STEP_BYTES / float(times[:, 1].max() - times[:, 0].min())}


CASE = Case(
    name="scattered_reads",
    question="How many bytes a second come out of memory in pieces that lie anywhere?",
    config_type=Config,
    groups={
        "pieces": Group(configs=pieces, metrics=METRICS, rank=3), "ordered": Group(configs=ordered, metrics=METRICS, rank=3),
    },
    launch=launch, check=check,
    values={"gb_per_s": "bytes read over the time from the first CTA's start to the last one's end"},
    num_repeats=3,
)  # fmt: skip
