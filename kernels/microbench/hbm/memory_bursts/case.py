"""What does a burst take that all SMs ask for at once, of reads, of stores, of both, out of memory or out of L2?"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import (
    Case,
    Fitted,
    Group,
    KernelLaunch,
    Output,
    Outputs,
    Repeated,
    Windows,
    WrongAnswer,
    by_value,
)
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.validation_kernel import pattern_words, windows
from gpusim.kernel_models.streaming import dense_access, same
from gpusim.machine.memory.l2 import L2Spec
from gpusim.simulate.wasm_module import expected_max
from gpusim.units import LINE_BYTES
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, RoleContext

"""Whose link between L2's sides copies are held against."""
NUM_SMS = measured_gpu().num_sms
FLUSH_BYTES = 256 * 2**20
"""Read before, so that nothing else is in L2."""
VECTOR_BYTES, WARP_SIZE = 16, 32
SHAPES = ((1, 256, 1), (1, 512, 1), (1, 1024, 1), (2, 1024, 1), (2, 1024, 2), (2, 1024, 4), (1, 256, 4), (1, 1024, 4))
"""CTAs an SM, threads, vectors of a thread: 4 to 128 KiB an SM and round."""
ROUNDS = (1, 2, 4)
MOST_BYTES = 20 * 2**20
"""Of all rounds, of reads or writes: so that both fit into one side of L2."""
STATE_WORDS, TIME_WORDS = 4 + 256, 8
WAYS: dict[str, tuple[int, int, int, int, int]] = {
    "read": (1, 0, 0, 0, 0), "read_warm": (1, 0, 0, 1, 0), "write": (0, 1, 0, 0, 0), "write_warm": (0, 1, 0, 0, 1),
    "copy": (1, 1, 0, 0, 0), "copy_warm": (1, 1, 0, 1, 1), "copy_read_warm": (1, 1, 0, 1, 0),
    "copy_write_warm": (1, 1, 0, 0, 1),
    "turns": (1, 1, 1, 0, 0), "turns_read_warm": (1, 1, 1, 1, 0), "tpcs": (1, 1, 2, 0, 0), "tpcs_read_warm": (1, 1, 2, 1, 0),
}  # fmt: skip
"""What CTAs do: whether they read and write, how they split (by turns on an SM, by TPCs), what is in L2 before."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    way: str
    ctas_per_sm: int
    threads: int
    unrolled: int
    rounds: int


def bursts() -> list[Config]:
    """Every way by shape and rounds."""
    return [
        Config(kernel=f"burst_u{unrolled}", way=way, ctas_per_sm=ctas, threads=threads, unrolled=unrolled, rounds=rounds)
        for way, (ctas, threads, unrolled), rounds in product(WAYS, SHAPES, ROUNDS)
        if NUM_SMS * ctas * threads * unrolled * VECTOR_BYTES * rounds <= MOST_BYTES and (WAYS[way][2] != 1 or ctas > 1)
    ]  # fmt: skip


def words() -> NDArray[np.uint32]:
    """What is there to read repeats them."""
    return pattern_words(43)


def num_ctas(config: Config) -> int:
    """All are there at once."""
    return NUM_SMS * config.ctas_per_sm


def num_bytes(config: Config) -> int:
    """Of all CTAs and rounds."""
    return num_ctas(config) * config.threads * config.unrolled * VECTOR_BYTES * config.rounds


def launch(config: Config) -> KernelLaunch:
    """A CTA for each place."""
    reads, writes, split, warms_reads, warms_writes = WAYS[config.way]
    threads, size = config.threads, num_bytes(config)
    plan = np.array(
        [FLUSH_BYTES // VECTOR_BYTES, 0, config.rounds, reads, writes, split, warms_reads, warms_writes], dtype="<u4"
    )
    num_warps = num_ctas(config) * threads // WARP_SIZE
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            Repeated(words(), size), Windows("out", size, windows(size)), Repeated(words(), FLUSH_BYTES),
            Output("state", np.zeros(STATE_WORDS, dtype=np.uint32)),
            Output("times", np.zeros((num_warps, TIME_WORDS), dtype=np.uint32)), by_value(plan),
        ),
        grid=(num_ctas(config), 1, 1), block=(threads, 1, 1),
    )  # fmt: skip


def sums_of_warps(config: Config) -> NDArray[np.uint32]:
    """Of all that each warp reads, modulo 2^32."""
    rounds, ctas, unrolled = config.rounds, num_ctas(config), config.unrolled
    given = words()[: num_bytes(config) // 4].reshape(rounds, ctas, unrolled, config.threads // WARP_SIZE, -1)
    return np.asarray(given.sum(axis=(0, 2, 4), dtype=np.uint32)).reshape(-1)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Sums of who read, windows of what was written by whom; then the cycles."""
    reads, writes, split, _, warms_writes = WAYS[config.way]
    loaded, stored, fenced, sums, sms, role, *_ = outputs["times"].reshape(-1, TIME_WORDS).astype(np.int64).T
    per_cta = config.threads // WARP_SIZE
    on_sm = np.bincount(sms[::per_cta], minlength=NUM_SMS)
    wrong_if(len(on_sm) != NUM_SMS or (on_sm != config.ctas_per_sm).any(), "CTAs were not spread evenly over the SMs")
    has_read, has_written = (role != 1) & bool(reads), (role != 0) & bool(writes)
    wrong = np.flatnonzero(sums != np.where(has_read, sums_of_warps(config), 0))
    if len(wrong):
        raise WrongAnswer(f"warp {wrong[0]} read other words than are there")
    out = outputs["out"]
    place, share = 0, config.threads * config.unrolled * VECTOR_BYTES
    for offset, size in windows(num_bytes(config)):
        came = out[place : place + size].view(np.uint32).reshape(-1, 4)
        place += size
        at = np.arange(offset // VECTOR_BYTES, (offset + size) // VECTOR_BYTES, dtype=np.uint32)
        writer = has_written[(at.astype(np.int64) * VECTOR_BYTES // share) % num_ctas(config) * per_cta]
        numbers = np.stack([at, *(np.full_like(at, number) for number in (5, 6, 7))], axis=1)
        before = np.stack([at, *(np.full_like(at, number) for number in (1, 2, 3))], axis=1)
        if not warms_writes:
            before[:] = 0xFFFFFFFF
        given = Repeated(words(), num_bytes(config)).window(offset, size).view(np.uint32).reshape(-1, 4)
        wanted = np.where(writer[:, None], given if reads and not split else numbers, before)
        if (came != wanted).any():
            raise WrongAnswer(f"vector {at[np.argmax((came != wanted).any(axis=1))]} of the output is not what it should be")
    return _summary(loaded, stored, fenced, sms, has_read, has_written)


def _summary(
    loaded: NDArray[np.int64],
    stored: NDArray[np.int64],
    fenced: NDArray[np.int64],
    sms: NDArray[np.int64],
    has_read: NDArray[np.bool_],
    has_written: NDArray[np.bool_],
) -> dict[str, float]:
    """Quantiles over warps; ends of SMs."""
    values: dict[str, float] = {}
    for name, cycles, of in (
        ("loaded", loaded, has_read), ("read_end", stored, has_read), ("stored", stored, has_written),
        ("fenced", fenced, has_written),
    ):  # fmt: skip
        for quantile in (0, 10, 50, 90, 100):
            values[f"{name}_p{quantile}_cycles"] = float(np.percentile(cycles[of], quantile)) if of.any() else 0.0
    ends = np.zeros(NUM_SMS, dtype=np.int64)
    np.maximum.at(ends, sms, fenced)
    values["first_sm_cycles"], values["middle_sm_cycles"] = float(ends.min()), float(np.median(ends))
    values["cycles"] = float(ends.max())
    return values


# ---------------------------------------------------------------------------------------------- what calibrates

COPIES = ("copy", "copy_write_warm")
"""Whose reads come out of memory and cross, half of them, beside half of the stores."""
LEAST_BURST_BYTES, LEAST_ROUND_BYTES = 4 * 2**20, 16 * 2**10
"""Of all SMs' bursts, and of an SM's rounds: below, latency says how long they take."""


def fit(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[Fitted]:
    """What copies take of the link beyond what as many bytes read and stored take of it alone, in lanes that are unlike."""
    told = [
        (num_bytes(Config.of(row)), float(row["middle_sm_cycles"])) for row in rows
        if row["way"] in COPIES and row.get("middle_sm_cycles") and num_bytes(Config.of(row)) >= LEAST_BURST_BYTES
        and num_bytes(Config.of(row)) >= LEAST_ROUND_BYTES * NUM_SMS * int(row["rounds"])
    ]  # fmt: skip
    if len({size for size, _ in told}) < 2:
        return []
    sizes, cycles = np.array(told).T
    l2 = gpu.l2
    ways = 4 * l2.fabric_bytes_per_cycle  # half of the bytes cross, half of these each way
    late = [late_cycles(size, l2) for size in sizes]
    return [
        Fitted(
            parameter="l2.fabric_turnaround_fraction", value=float(np.polyfit(sizes, cycles - late, 1)[0]) * ways - 2.0,
            how="copies of 4 MiB and more, 16 KiB an SM and round: slope of the median SM's end, less what its last line "
            "waits for unlike lanes, over bytes, over what the link takes of reads and of stores alone, beyond 2",
        )
    ]  # fmt: skip


def late_cycles(num_bytes: float, l2: L2Spec) -> float:
    """What the last line of an SM waits longer for the fullest lane, of all that a copy of so many bytes passes each way."""
    lanes = l2.num_slices / l2.num_partitions
    deviation = np.sqrt(num_bytes / 2 * LINE_BYTES * lanes) / l2.fabric_bytes_per_cycle  # each line on a lane as if drawn
    return float(expected_max(round(lanes)) * deviation)


# ---------------------------------------------------------------------------------------------- the simulator's answer
def twin(config: Config, *, is_empty: bool = False) -> Launch:
    """The rounds alone; a CTA of 1024 threads is a role, what is in L2 before is read, or written, by CTAs before them."""
    reads, writes, split, _, _ = WAYS[config.way]
    threads, unrolled, rounds = config.threads, config.unrolled, config.rounds
    access = dense_access(0, threads, VECTOR_BYTES).scaled(unrolled)
    ctas = num_ctas(config)
    share = threads * unrolled * VECTOR_BYTES

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        if is_empty:
            return
        half = (cta.cta_idx // NUM_SMS if split == 1 else cta.cta_idx // 2) % 2 if split else 2
        for number in range(rounds):
            if reads and half != 1:
                yield ops.Use((yield ops.GlobalLoad("in", (cta.cta_idx, number), access)))
            if writes and half != 0:
                yield ops.GlobalStore("out", (cta.cta_idx, number), access)

    return Launch(
        kernel=config.kernel, num_ctas=ctas, num_tiles=ctas,
        roles=(WarpRole(name="all", num_warps=threads // WARP_SIZE, program=program),), registers_per_thread=32,
        footprints=tuple(
            Footprint(
                tensor=name, access=access_of,  # type: ignore[arg-type]  # words
                panel_of=same, panel_bytes=lambda tiles: np.full_like(tiles, share * rounds), num_steps=rounds,
            )
            for name, access_of, is_there in (("in", "read", reads), ("out", "write", writes)) if is_there
        ),
    )  # fmt: skip


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Cycles of the rounds, beside a launch that does nothing; nothing of what was in L2 before."""
    if "warm" in config.way:
        return {}
    cycles = [simulate(twin(config, is_empty=is_empty), gpu, clock="max").cycles for is_empty in (False, True)]
    return {"cycles": cycles[0] - cycles[1]}


QUANTILES = {f"_p{number}_cycles": f"P{number} over warps, cycles from the start" for number in (0, 10, 50, 90, 100)}

CASE = Case(
    name="memory_bursts",
    question="What does a burst take that all SMs ask for at once, of reads, stores or both, from memory or L2?",
    config_type=Config,
    groups={"bursts": Group(configs=bursts, rank=3)},
    launch=launch, check=check, num_repeats=3,
    values={
        **{
            f"{name}{end}": f"{what}: {text}"
            for name, what in (
                ("loaded", "the first round's loads have come"), ("read_end", "who reads has issued its last"),
                ("stored", "the last store is issued"), ("fenced", "a fence behind it is over"),
            )
            for end, text in QUANTILES.items()
        },
        "first_sm_cycles": "the first SM's last warp is done, cycles from the start",
        "middle_sm_cycles": "the median SM's", "cycles": "the last SM's",
    },
    predict=predict, fit=fit,
)  # fmt: skip
