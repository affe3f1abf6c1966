"""How much longer does a load from memory take beside reads and writes of memory?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Output, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import check_windows, wrong_if
from gpusim.evidence.cases.validation_kernel import WINDOW_BYTES, pattern_words, windows

"""Of whose peak rate reads and writes take their shares."""
MIB = 2**20
ARRAY_BYTES = 4096 * MIB
"""Read, and as much written: more than any launch comes to, so that each line is read or written once."""
FLUSH_BYTES = 256 * MIB
"""Of the array's end, read before, so that nothing else is in L2."""
NUM_SMS, CTAS_PER_SM = measured_gpu().num_sms, 2
NUM_CTAS = NUM_SMS * CTAS_PER_SM
SMEM_BYTES = min(110 * 1024, measured_gpu().smem_per_sm_bytes // CTAS_PER_SM - 2048)
"""With which two CTAs fit on an SM of 228 KiB."""
THREADS, WARP_SIZE, VECTOR_BYTES = 256, 32, 16
NUM_WARPS = NUM_CTAS // 2 * THREADS // WARP_SIZE
"""That read, and as many that write."""
SPAN_US, UNCOUNTED_US = 400, 20
READ_PAUSES = (4000, 1500, 500, 0)
"""Of which every second one calibrates."""
WRITE_PAUSES = (0, 8000, 3000, 1500, 700, 350, 150)
"""0: nobody writes."""
PIECE_BYTES = {"line": 128, "line_meet": 128, "vector": 512, "vector_meet": 512}
"""What a warp loads at once."""
STORED_BYTES = 512
RECORD = np.dtype([
    ("load_cycles", "<u8"), ("load_cycles_squared", "<u8"), ("met_cycles", "<u8"), ("run_cycles", "<u8"), ("run_ns", "<u8"),
    ("num_counted", "<u4"), ("num_turns", "<u4"), ("words_sum", "<u4"), ("sm", "<u4"),
])  # fmt: skip
"""Structure of kernel.cu, of a warp."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    read_pause_cycles: int
    write_pause_cycles: int


def mixes() -> list[Config]:
    """Each way to read, by the pauses of who writes, then of who reads: even places have the first and third of these."""
    return [
        Config(kernel=kernel, read_pause_cycles=read_pause, write_pause_cycles=write_pause)
        for kernel, write_pause, read_pause in product(PIECE_BYTES, WRITE_PAUSES, READ_PAUSES)
    ]


def words() -> NDArray[np.uint32]:
    """What the input repeats."""
    return pattern_words(43, 2**31)


def output() -> Windows:
    """Windows where the slowest writers come to, one where only fast ones do not, and the end, to which nobody comes."""
    ends = ((ARRAY_BYTES // 4 * 3, WINDOW_BYTES), (ARRAY_BYTES - WINDOW_BYTES, WINDOW_BYTES))
    return Windows("out", ARRAY_BYTES, (*windows(32 * MIB), *ends))


def launch(config: Config) -> KernelLaunch:
    """Two CTAs on each SM."""
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Repeated(words(), ARRAY_BYTES), output(), Output("state", np.zeros(2, dtype=np.uint32)),
            Output("records", np.zeros(2 * NUM_WARPS, dtype=RECORD)), np.uint32(ARRAY_BYTES // VECTOR_BYTES),
            np.uint32(FLUSH_BYTES // VECTOR_BYTES), np.uint32(config.read_pause_cycles),
            np.uint32(config.write_pause_cycles), np.uint32(SPAN_US * 1000), np.uint32(UNCOUNTED_US * 1000),
        ),
        grid=(NUM_CTAS, 1, 1), block=(THREADS, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- check
def parted(records: NDArray[np.void]) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """(who reads, who writes), warp by warp in the order of their pieces."""
    of_cta = records.reshape(NUM_CTAS, -1)
    return of_cta[1::2].reshape(-1), of_cta[::2].reshape(-1)


def sums_of_warps(kernel: str, num_turns: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Of all that each warp reads in so many turns, modulo 2^32."""
    of_piece = words().reshape(-1, PIECE_BYTES[kernel] // 4).sum(axis=1, dtype=np.uint32)
    most = int(num_turns.max())
    pieces = np.resize(of_piece, (most, NUM_WARPS)) if most else np.zeros((0, NUM_WARPS), dtype=np.uint32)
    sums = np.concatenate([np.zeros((1, NUM_WARPS), dtype=np.uint32), np.cumsum(pieces, axis=0, dtype=np.uint32)])
    return np.asarray(sums[num_turns, np.arange(NUM_WARPS)])


def expected(num_turns: NDArray[np.uint32], offset: int, num_bytes: int) -> NDArray[np.uint8]:
    """What lies in a window of the output behind so many turns of each warp that writes: vectors' numbers, or nothing."""
    at = np.arange(offset // VECTOR_BYTES, (offset + num_bytes) // VECTOR_BYTES, dtype=np.uint32)
    numbers = np.stack([at, ~at, np.full_like(at, 7), np.full_like(at, 9)], axis=1)
    turn, warp = np.divmod(at // WARP_SIZE, np.uint32(NUM_WARPS))
    numbers[turn >= num_turns[warp]] = 0xFFFFFFFF
    return np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Sums of all that was read, windows of what was written; then rates and times."""
    records = outputs["records"].view(RECORD).reshape(-1)
    num_of_sm = np.bincount(records["sm"].astype(np.int64)[:: THREADS // WARP_SIZE], minlength=NUM_SMS)
    if outputs["state"][1] or len(num_of_sm) != NUM_SMS or (num_of_sm != CTAS_PER_SM).any():
        raise WrongAnswer(f"CTAs were not there at once, {CTAS_PER_SM} on each of {NUM_SMS} SMs")
    readers, writers = parted(records)
    wrong = np.flatnonzero(readers["words_sum"] != sums_of_warps(config.kernel, readers["num_turns"]))
    if len(wrong):
        raise WrongAnswer(f"warp {wrong[0]} of those that read has read other words than are there")
    if writers["num_turns"].any() != (config.write_pause_cycles != 0):
        raise WrongAnswer("somebody wrote where nobody should, or nobody where all should")
    check_windows(output(), outputs["out"], partial(expected, writers["num_turns"]))
    return _summary(config, readers, writers)


def _summary(config: Config, readers: NDArray[np.void], writers: NDArray[np.void]) -> dict[str, float]:
    num_loads = int(readers["num_counted"].sum(dtype=np.int64))
    wrong_if(not num_loads, "no load was counted")
    counted_ns = (SPAN_US - UNCOUNTED_US) * 1e3
    mean = int(readers["load_cycles"].sum()) / num_loads
    squares = int(readers["load_cycles_squared"].sum()) / num_loads
    values = {
        "read_gb_per_s": num_loads * PIECE_BYTES[config.kernel] / counted_ns,
        "write_gb_per_s": int(writers["num_counted"].sum(dtype=np.int64)) * STORED_BYTES / counted_ns,
        "load_mean_cycles": mean, "load_deviation_cycles": max(0.0, squares - mean * mean) ** 0.5,
        "sm_clock_mhz": float(np.median(readers["run_cycles"] / readers["run_ns"])) * 1e3,
    }  # fmt: skip
    if config.kernel.endswith("meet"):
        first = readers[:: THREADS // WARP_SIZE]
        values["met_mean_cycles"] = int(first["met_cycles"].sum()) / int(first["num_counted"].sum(dtype=np.int64))
    return values


# ---------------------------------------------------------------------------------------------- what calibrates

MOST_TAKEN = 0.7
"""Of the peak rate by reads and writes: above, it is queues that loads wait in."""
LEAST_MEAN_NS, LEAST_WAIT_NS = 10.0, 50.0
"""Of waits whose mean tells something, and whose variance does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How much longer loads of a row take than those of the same reads with nobody writing."""

    kernel: str
    read_share: float
    write_share: float
    mean_ns: float
    variance_ns2: float
    """Of the wait, if it has nothing to do with what a load takes beside."""


def waits(rows: Sequence[Mapping[str, str]], peak: float) -> Iterator[Wait]:
    """Of rows that leave enough of the ``peak`` of memory (GB/s), where loads wait at all."""
    told = [row for row in rows if row.get("load_mean_cycles") and row.get("sm_clock_mhz")]
    alone = {(row["kernel"], row["read_pause_cycles"]): row for row in told if row["write_pause_cycles"] == "0"}
    for row in told:
        before = alone.get((row["kernel"], row["read_pause_cycles"]))
        if before is None or row is before:
            continue
        shares = float(row["read_gb_per_s"]) / peak, float(row["write_gb_per_s"]) / peak
        cycle_ns = 1e3 / float(row["sm_clock_mhz"])
        mean, squares = (
            float(row[name]) ** power - float(before[name]) ** power
            for name, power in (("load_mean_cycles", 1), ("load_deviation_cycles", 2))
        )
        if sum(shares) < MOST_TAKEN and mean > 0.0:
            yield Wait(
                kernel=row["kernel"], read_share=shares[0], write_share=shares[1], mean_ns=mean * cycle_ns,
                variance_ns2=squares * cycle_ns**2,
            )  # fmt: skip


def fit(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[Fitted]:
    """What a load waits for turns between reads and writes, and how unevenly."""
    told = list(waits(rows, gpu.hbm.peak_gb_per_s))
    alone = gpu.hbm.read_behind_write_wait_ns
    mixed = [
        (wait.mean_ns * (1.0 - wait.write_share) - alone * wait.write_share) / (wait.read_share * wait.write_share) ** 0.5
        for wait in told if wait.mean_ns > LEAST_MEAN_NS
    ]  # fmt: skip
    turns = [
        wait.variance_ns2 / wait.mean_ns for wait in told
        if wait.kernel in ("line", "vector") and wait.mean_ns > LEAST_WAIT_NS and wait.variance_ns2 > 0.0
    ]  # fmt: skip
    how_mixed = (
        "what a load takes more beside writes than beside reads alone, times the part of the peak rate that writes "
        "leave, less what a chase beside writes waits, over the root of the parts of reads and writes: median of rows "
        f"with less than {MOST_TAKEN:.0%} of the rate"
    )
    how_turns = "what the variance of a load's time grows by beside writes, over what its mean grows by: median of rows"
    how_turns += f" where that is more than {LEAST_WAIT_NS:g} ns"
    return [
        *Fitted.median("hbm.read_write_turnaround_wait_ns", mixed, how_mixed),
        *Fitted.median("hbm.write_burst_ns", turns, how_turns),
    ]


CASE = Case(
    name="reads_beside_writes",
    question="How much longer does a load from memory take beside reads and writes of memory?",
    config_type=Config,
    groups={"mixes": Group(configs=mixes, rank=4)},
    launch=launch, check=check,
    values={
        "read_gb_per_s": "10^9 bytes a second that all CTAs read, of the counted span",
        "write_gb_per_s": "the same of what they write",
        "load_mean_cycles": "SM cycles of a warp's load with both clock reads, mean",
        "load_deviation_cycles": "the same, standard deviation",
        "met_mean_cycles": "SM cycles from thread 0's load until it is past the barrier behind all warps' loads, mean",
        "sm_clock_mhz": "SM cycles over %globaltimer, median warp that reads",
    },
    num_repeats=3, fit=fit,
)  # fmt: skip
