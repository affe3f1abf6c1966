"""What does memory lose where the halves of its lines are asked for by unlike instructions?"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.validation_kernel import pattern_words, windows
from gpusim.kernel_models.streaming import share_footprint
from gpusim.units import LINE_BYTES, SECTOR_BYTES
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

MIB = 2**20
SIZES = (512 * MIB, 2048 * MIB)
"""Of the array. What a launch takes beside is the same in both, and not in the difference."""
THREADS, SHARE_BYTES, UNDER_WAY, WARP_SIZE = 256, 16384, 32, 32
"""Of a CTA; bytes that it reads; of these a thread has under way; lanes."""
NUM_WARPS = THREADS // WARP_SIZE
NUM_CHECKED = 64
"""Sums of each window of them."""
WAYS = {2: ("near", "far", "turn"), 4: ("whole", "near", "far", "turn", "quarter")}
"""By bytes of a lane's load; the wider ones have what those of four bytes have."""
PARTS = {"whole": 1, "near": 2, "far": 2, "turn": 2, "quarter": 4}
"""Of a line, each asked for by an instruction of its own."""
METRICS = ("sm__cycles_elapsed.max", "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__cycles_elapsed.avg.per_second")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    array_bytes: int


def reads() -> list[Config]:
    """Two ways in one size, then in the other: one of two calibrates, in both sizes, the other judges."""
    names = [f"b{width}_{way}" for width in (2, 4, 8, 16) for way in WAYS.get(width, WAYS[4])]
    return [
        Config(kernel=name, array_bytes=size)
        for both in zip(names[::2], names[1::2], strict=True) for size in SIZES for name in both
    ]  # fmt: skip


def parts(config: Config) -> tuple[int, str]:
    """(bytes of a lane's load, who has the other parts of its lines).

    >>> parts(Config("b16_near", 0))
    (16, 'near')
    """
    width, way = config.kernel.split("_")
    return int(width[1:]), way


def words() -> NDArray[np.uint32]:
    """What the input repeats."""
    return pattern_words(44, 2**31)


def _sums(config: Config) -> Windows:
    size = 4 * NUM_WARPS * (config.array_bytes // SHARE_BYTES)
    return Windows("sums", size, windows(size))


def launch(config: Config) -> KernelLaunch:
    """As many CTAs as the array has shares."""
    size = config.array_bytes
    return KernelLaunch(
        kernel=config.kernel, arguments=(Repeated(words(), size), _sums(config)), grid=(size // SHARE_BYTES, 1, 1),
        block=(THREADS, 1, 1),
    )  # fmt: skip


def places(config: Config) -> NDArray[np.int64]:
    """Where the loads of a CTA's warps lie in its share: int[warp, load, lane], in bytes."""
    width, way = parts(config)
    part_bytes = LINE_BYTES // PARTS[way]
    lanes = part_bytes // width
    rows = WARP_SIZE // lanes
    warp, num, lane = np.meshgrid(
        np.arange(NUM_WARPS), np.arange(SHARE_BYTES // THREADS // width), np.arange(WARP_SIZE), indexing="ij"
    )
    part, row, num_rows = {
        "whole": (0 * warp, warp, 8), "near": (warp % 2, warp // 2, 4), "far": (warp // 4, warp % 4, 4),
        "turn": (num % 2, warp, 8), "quarter": (warp % 4, warp // 4, 2),
    }[way]  # fmt: skip
    if way == "turn":
        num = num // 2
    found: NDArray[np.int64] = (
        ((num * num_rows + row) * rows + lane // lanes) * LINE_BYTES + part * part_bytes + lane % lanes * width
    )
    return found


def expected(config: Config, warps: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The sums of these warps."""
    width, _ = parts(config)
    cta, of_cta = np.divmod(warps, NUM_WARPS)
    numbers = words().view(np.uint16) if width == 2 else words()
    each = max(1, width // 4)
    first = places(config)[of_cta].reshape(len(warps), -1) + cta[:, None] * SHARE_BYTES
    sums = np.zeros(len(warps), dtype=np.uint64)
    for word in range(each):
        at = (first // numbers.itemsize + word) % len(numbers)
        sums += numbers[at].astype(np.uint64).sum(axis=1)
    return sums.astype(np.uint32)


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Some sums of each window, the first and the last among them."""
    out = _sums(config)
    for (offset, num_bytes), came in zip(out.windows, out.split(outputs["sums"]), strict=True):
        some = np.unique(np.linspace(0, num_bytes // 4 - 1, NUM_CHECKED).astype(np.int64))
        is_off = came.view(np.uint32)[some] != expected(config, offset // 4 + some)
        if is_off.any():
            raise WrongAnswer(f"sum {offset // 4 + int(some[np.argmax(is_off)])} is not what it should be")
    return {}


# ---------------------------------------------------------------------------------------------- the simulator's answer

BEFORE_LOADS, IN_LOOP, BEHIND = 24, 12, 12
"""Instructions of a thread until its first load, beside the loads of a round, and for its sum. Source: SASS, sm_90a."""
REGISTERS = 24
"""Of a thread. Source: ptxas, sm_90a."""


def twin(config: Config) -> Launch:
    """The launch in the simulator's words, which know parts of lines, and not who has the others."""
    width, way = parts(config)
    size, num = config.array_bytes, NUM_WARPS * UNDER_WAY // width
    num_bytes = num * WARP_SIZE * width
    access = AccessPattern(
        num_requests=num, num_sectors=num_bytes // SECTOR_BYTES, num_lines=num_bytes * PARTS[way] // LINE_BYTES
        if width > 2 else num, num_wavefronts=num_bytes // LINE_BYTES, num_bytes=num_bytes,
    )  # fmt: skip
    left = AccessPattern(num_requests=NUM_WARPS, num_sectors=1, num_lines=1, num_bytes=4 * NUM_WARPS)
    num_ctas, num_rounds = size // SHARE_BYTES, SHARE_BYTES // num_bytes

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        yield ops.Alu(BEFORE_LOADS, is_chain=True)
        for step in range(num_rounds):
            token = yield ops.GlobalLoad("in", (cta.cta_idx, step), access)
            yield ops.Alu(IN_LOOP)
            yield ops.Use(token)
        yield ops.Alu(BEHIND, is_chain=True)
        yield ops.GlobalStore("sums", (cta.cta_idx, 0), left)

    return Launch(
        kernel=config.kernel, num_ctas=num_ctas, num_tiles=num_ctas,
        roles=(WarpRole(name="read", num_warps=NUM_WARPS, program=program),), registers_per_thread=REGISTERS,
        footprints=(
            share_footprint("in", "read", num_bytes=size, share_bytes=SHARE_BYTES, num_steps=num_rounds),
            share_footprint("sums", "write", num_bytes=4 * NUM_WARPS * num_ctas, share_bytes=4 * NUM_WARPS),
        ),
        has_uniform_programs=True,
    )  # fmt: skip


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Time of the launch, at the highest clock: memory's own."""
    return {"gpu__time_duration.sum": simulate(twin(config), gpu, clock="max").time_us * 1e3}


# ---------------------------------------------------------------------------------------------- parameters
def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What a request takes that has half of its lines, of those whose other halves the warps beside have."""
    times: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.get("gpu__time_duration.sum"):
            times.setdefault(row["kernel"], {})[int(row["array_bytes"])] = float(row["gpu__time_duration.sum"])
    more = {name: found[SIZES[1]] - found[SIZES[0]] for name, found in times.items() if len(found) == len(SIZES)}
    whole = [ns for name, ns in more.items() if name.endswith("_whole")]
    found = [
        (more[name] / float(np.median(whole)) - 1.0) * WARP_SIZE * width
        for width in (2, 4, 8, 16) if whole and (name := f"b{width}_near") in more
    ]  # fmt: skip
    if not found:
        return []
    return [Fitted(
        parameter="hbm.partial_line_request_bytes", value=max(0.0, float(np.median(found))),
        how="2 GiB less 512 MiB, halves of lines by warps side by side: time over that of whole lines, less one, times a "
        f"request's bytes: median of {len(found)} widths",
    )]  # fmt: skip


CASE = Case(
    name="line_halves",
    question="What does memory lose where the halves of its lines are asked for by unlike instructions?",
    config_type=Config,
    groups={"reads": Group(configs=reads, metrics=METRICS, rank=3, is_cold=True)},
    launch=launch, check=check, predict=predict, tiers={"gpu__time_duration.sum": 4}, fit=fit,
)  # fmt: skip
