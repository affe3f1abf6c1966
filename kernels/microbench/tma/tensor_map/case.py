"""What does a tensor map cost that the kernel makes itself, what does its first use, and how many does an SM keep?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, WarpRole
from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Fitted, FittedConstant, Group, Outputs, WrongAnswer, key_of
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.microbenchmark import chained_code, range_cycles
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted, fitted_constant
from gpusim.evidence.cases.timing import spread
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

NUM_ROUNDS, MOST_ROUNDS, WARM_ROUNDS = 14, 16, 2
"""Maps that a launch of `build` makes; the first two, whose instructions are cold, do not count."""
MOST_MAPS = 512
NUM_TURNS = 4
MAP_BYTES = 128

WIDTH, HEIGHT, STRIDE_BYTES = 64, 8, 128
"""The host's tensor: elements of a row, rows, bytes from row to row. Its box is all of it."""
NEW_WIDTH, NEW_HEIGHT, NEW_STRIDE_BYTES, NEW_BOX_WIDTH, NEW_BOX_HEIGHT = 48, 6, 256, 32, 4
"""What fields become, so that every one of them shows in the data."""
SLICE_BYTES = 4096
SLOT_BYTES = 1024
ROW_BYTES = 128
"""A copy of `turns`."""
UNTOUCHED = 0xFF
FLUSH_BYTES = 128 << 20
"""Twice the L2 of an H200, read so that it forgets."""
LEAST_SMEM_BYTES = 49 * 1024
"""More than 48 KiB, so that the bench opts in, whatever the kernel itself takes."""

FIELDS = ("address", "width", "height", "stride", "box width", "box height")
STEPS = ("copy", "replace", "release", "acquire", "prefetch")
USES = ("first", "second", "third")
WORDS_OF_STEPS = 1 + len(STEPS) + 2 * len(USES)


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    _: KW_ONLY
    num_fields: int = 1
    prefetches: bool = False
    delay_cycles: int = 0
    num_maps: int = 1
    map_stride_bytes: int = MAP_BYTES
    flushes: bool = False


def build() -> list[Row]:
    """0 to 6 fields replaced, in shared memory or in global memory; used at once."""
    return Row.sweep(kernel=("build_shared", "build_global"), num_fields=range(len(FIELDS) + 1))


def prefetch() -> list[Row]:
    """The first use some cycles after the map was made, prefetched or not."""
    delays = (0, 50, 100, 200, 300, 400, 500, 600, 800, 1000, 1500, 2000)
    return Row.sweep(kernel="build_shared", prefetches=(False, True), delay_cycles=delays)


NUM_MAPS = (
    1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256, 384, 512,
)  # fmt: skip


def turns() -> list[Row]:
    """1 to 512 maps in turn: where a turn that is not the first becomes slow, no more are kept."""
    far = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256)
    return [
        *Row.sweep(kernel="turns", num_maps=NUM_MAPS),
        *Row.sweep(kernel="turns", map_stride_bytes=(256, 1024, 4096), num_maps=far),
        *Row.sweep(kernel="turns", num_maps=NUM_MAPS[::2], prefetches=True, delay_cycles=2000),
    ]


def cold() -> list[Row]:
    """The same few maps, which L2 has forgotten."""
    return [
        Row("turns", num_maps=num, flushes=True, prefetches=prefetches, delay_cycles=3000 if prefetches else 0)
        for prefetches in (False, True) for num in (1, 4, 16, 64)
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def data() -> NDArray[np.uint8]:
    """Random bytes, none of them 0 or 255; copied to the GPU once."""
    return read_only(np.random.default_rng(11).integers(1, 255, MOST_MAPS * SLICE_BYTES // 16, dtype=np.uint8))


@cache
def flush_array(num_bytes: int) -> NDArray[np.uint8]:
    """What is read so that L2 forgets; copied to the GPU once."""
    return read_only(np.zeros(max(16, num_bytes), dtype=np.uint8))


def host_map(config: Row) -> TensorMap:
    """The map that the kernel starts from."""
    is_turns = config.kernel == "turns"
    return TensorMap(
        dtype=BF16, global_dim=(WIDTH, HEIGHT), global_strides_bytes=(STRIDE_BYTES,),
        box_dim=(ROW_BYTES // BF16.num_bytes, 1) if is_turns else (WIDTH, HEIGHT), l2_promotion="none",
    )  # fmt: skip


def _made(config: Row) -> dict[str, int]:
    """What a map says once ``num_fields`` were replaced."""
    num = config.num_fields
    old, new = (WIDTH, HEIGHT, STRIDE_BYTES, WIDTH, HEIGHT), (
        NEW_WIDTH, NEW_HEIGHT, NEW_STRIDE_BYTES, NEW_BOX_WIDTH, NEW_BOX_HEIGHT,
    )  # fmt: skip
    names = ("width", "height", "stride_bytes", "box_width", "box_height")
    return {name: new[idx] if num > idx + 1 else old[idx] for idx, name in enumerate(names)}


def launch(config: Row) -> KernelLaunch:
    """Nothing is counted here: times come from the kernel."""
    num_times = 4 + max(MOST_ROUNDS * WORDS_OF_STEPS, 4 * MOST_MAPS)
    mapped = MappedTensor(data(), host_map(config))
    times = Output("times", np.full(num_times, 0xFFFFFFFF, dtype="<u4"))
    if config.kernel == "turns":
        num, stride = config.num_maps, config.map_stride_bytes
        flush = flush_array(FLUSH_BYTES if config.flushes else 0)
        num_flushed = flush.nbytes // 16 if config.flushes else 0
        plan = (num, stride, NUM_TURNS, ROW_BYTES, config.prefetches, config.delay_cycles, num_flushed)
        return KernelLaunch(
            kernel="turns",
            arguments=(
                by_value(np.array(plan, dtype="<u4")), mapped, Input(data()), Input(np.zeros(num * stride, dtype=np.uint8)),
                Input(flush), Output("smem", np.zeros(num * ROW_BYTES, dtype=np.uint8)), times,
            ),
            block=(1024, 1, 1), smem_bytes=max(LEAST_SMEM_BYTES, num * ROW_BYTES),
        )  # fmt: skip
    made = _made(config)
    build_plan = (
        NUM_ROUNDS, config.num_fields, NEW_WIDTH, NEW_HEIGHT, NEW_STRIDE_BYTES, NEW_BOX_WIDTH, NEW_BOX_HEIGHT,
        made["box_width"] * made["box_height"] * BF16.num_bytes, SLICE_BYTES, config.prefetches, config.delay_cycles,
    )  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(build_plan, dtype="<u4")), mapped, Input(data()),
            Input(np.zeros(NUM_ROUNDS * MAP_BYTES, dtype=np.uint8)),
            Output("smem", np.zeros(NUM_ROUNDS * SLOT_BYTES, dtype=np.uint8)), times,
        ),
        block=(32, 1, 1), smem_bytes=LEAST_SMEM_BYTES,
    )  # fmt: skip


def expected_smem(config: Row) -> NDArray[np.uint8]:
    """All slots as the copies must leave them."""
    if config.kernel == "turns":
        return np.asarray(data()[: config.num_maps * ROW_BYTES])
    made = _made(config)
    found = np.full((NUM_ROUNDS, SLOT_BYTES), UNTOUCHED, dtype=np.uint8)
    unit = BF16.num_bytes
    row, byte = np.arange(made["box_height"])[:, None], np.arange(made["box_width"] * unit)
    is_inside = (row < made["height"]) & (byte < made["width"] * unit)
    for idx in range(NUM_ROUNDS):
        begin = idx * SLICE_BYTES if config.num_fields else 0
        box = np.where(is_inside, data()[begin + row * made["stride_bytes"] + byte], 0).reshape(-1)
        found[idx, : box.size] = box
    return found.reshape(-1)


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of every step, if the copies brought what the new maps say.

    Raises:
        WrongAnswer: a wait was given up, other bytes came, or the clock did not run.
    """
    times = outputs["times"]
    wrong_if(times[0], "an mbarrier never completed, the wait was given up")
    wanted = expected_smem(config)
    if (outputs["smem"] != wanted).any():
        first = int(np.nonzero(outputs["smem"] != wanted)[0][0])
        raise WrongAnswer(f"a copy is not what its map says, first at byte {first}")
    values: dict[str, float] = {}
    if config.kernel == "turns":
        stamps = times[4 : 4 + 4 * MOST_MAPS].reshape(2, MOST_MAPS, 2)[:, : config.num_maps]
        cycles = (stamps[..., 1] - stamps[..., 0]).astype(np.int64)
        values |= spread("first_turn_cycles", cycles[0]) | spread("last_turn_cycles", cycles[1])
    else:
        rounds = times[4 : 4 + NUM_ROUNDS * WORDS_OF_STEPS].reshape(NUM_ROUNDS, -1)[WARM_ROUNDS:]
        steps = (rounds[:, 1 : 1 + len(STEPS)] - rounds[:, : len(STEPS)]).astype(np.int64)
        for idx, name in enumerate(STEPS):
            values |= spread(f"{name}_cycles", steps[:, idx])
        loads = rounds[:, 1 + len(STEPS) :].reshape(-1, len(USES), 2)
        cycles = (loads[..., 1] - loads[..., 0]).astype(np.int64)
        for idx, name in enumerate(USES):
            values |= spread(f"{name}_cycles", cycles[:, idx])
    if min(values.values()) < 0 or cycles.min() <= 0 or cycles.max() > 1e8:
        raise WrongAnswer(f"the clock says {int(cycles.min())} to {int(cycles.max())} cycles for a copy")
    return values


# ---------------------------------------------------------------------------------------------- the simulator's answer
def _simulated_load(
    gpu: GpuSpec, num_bytes: int, num_rows: int, *, is_first: bool = False, prefetched_before: float | None = None
) -> float:
    """One copy of a box that L2 has: from before its issue until the wait ends.

    Its map is known, or it ``is_first`` to use it; the map was perhaps prefetched that many cycles before.
    """

    def program(_cta: RoleContext) -> Iterator[Any]:
        if prefetched_before is not None:
            yield ops.PrefetchTensormap(("T",))
            yield chained_code(prefetched_before, gpu)
        yield ops.MbarrierArriveExpectTx("full", 0, num_bytes)
        yield ops.RangeStart(ops.Section.MAINLOOP)
        yield ops.TmaLoad("T", (0, 0), num_bytes, num_bytes, num_rows, "slot", 0, "full")
        yield ops.MbarrierWait("full", 0, 0)
        yield ops.RangeEnd()

    launch = Launch(
        kernel="tensor_map", num_ctas=1, num_tiles=1, roles=(WarpRole(name="user", num_warps=1, program=program),),
        buffers=(Buffer(name="slot", stage_bytes=num_bytes),), mbarriers=(Mbarrier(name="full", num_arrivals=1),),
        tensor_maps=("T",) if is_first else (),
    )  # fmt: skip
    return range_cycles(launch, gpu)["user"][0]


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """First and later copies through a map; the simulator has neither maps made in a kernel nor a cache of them."""
    if config.kernel == "turns":
        cycles = _simulated_load(gpu, ROW_BYTES, 1) + CODE_CYCLES["turns"]
        return {"last_turn_cycles": cycles} if config.num_maps == 1 else {}
    made = _made(config)
    box = made["box_width"] * made["box_height"] * BF16.num_bytes, made["box_height"]
    cycles = _simulated_load(gpu, *box) + CODE_CYCLES["build"]
    before = config.delay_cycles + PREFETCH_CYCLES if config.prefetches else None
    first = _simulated_load(gpu, *box, is_first=True, prefetched_before=before) + CODE_CYCLES["build"]
    return {"first_cycles": first, **dict.fromkeys(("second_cycles", "third_cycles"), cycles)}


PREFETCH_CYCLES = 16.0
"""From a prefetch's issue to the next reading of the clock, on an H200 (`prefetch_cycles` of maps in shared memory)."""


CODE_CYCLES = {"build": 13.0, "turns": 10.0}
"""What lies between the clock's two readings beside issue, copy and wait, on an H200."""


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What the code around a copy through a known map takes beyond the twin's copy."""
    left: dict[str, list[float]] = {}
    for row in rows:
        way = "turns" if row["kernel"] == "turns" else "build"
        left.setdefault(way, []).extend(
            float(row[name]) - cycles + CODE_CYCLES[way] for name, cycles in predict(Row.of(row), gpu).items()
            if row.get(name) and name != "first_cycles"
        )  # what stands there cancels
    how = "copies through a known map: cycles beyond the twin's, median"
    return [one for way, values in left.items() for one in fitted_constant("CODE_CYCLES", values, how, way)]


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What the first use of a map takes beyond the second, the mean of both sides of L2, and what of that a prefetch leaves.

    Maps lie on the near side or on the far one: the rows are two clusters. Prefetched rows count while the first use is
    still slow, and are those of one side: what that is farther than the mean is no prefetch's.
    """
    built = [row for row in rows if row["kernel"] != "turns" and row["flushes"] == "0"]
    late = {key_of(row): float(row["first_cycles"]) - float(row["second_cycles"]) for row in built}
    waits = [late[key_of(row)] for row in built if row["prefetches"] == "0"]
    if not waits:
        return []
    middle = (min(waits) + max(waits)) / 2
    sides = [float(np.median([wait for wait in waits if (wait > middle) is is_far])) for is_far in (False, True)]
    how = "first use less the second: mean of the sides"
    found = [Fitted(parameter="tma.tensormap_miss_cycles", value=float(np.mean(sides)), how=how)]
    taken = [
        late[key_of(row)] + float(row["delay_cycles"]) + float(row["prefetch_cycles"])
        for row in built if row["prefetches"] == "1" and late[key_of(row)] > STILL_LATE_CYCLES
    ]
    value = [float(np.median(taken)) - (sides[1] - float(np.mean(sides)))] if taken else []
    how = "prefetch, delay and what the first use still takes longer, median, less half of what the sides are apart"
    return found + fitted("tma.tensormap_prefetch_cycles", value, how)


STILL_LATE_CYCLES = 50.0
"""By which a first use is slower than the second while its prefetch is under way."""

_SPREAD = {"": "median", "min_": "least", "p90_": "90th percentile", "max_": "most"}
_MEANINGS = {
    "copy_cycles": "SM cycles to copy the host's map, 128 bytes, by a warp",
    "replace_cycles": "SM cycles to replace the fields, by one thread",
    "release_cycles": "SM cycles of tensormap.cp_fenceproxy, or of fence.proxy.tensormap release",
    "acquire_cycles": "SM cycles of fence.proxy.tensormap acquire",
    "prefetch_cycles": "SM cycles of issuing prefetch.tensormap; nothing but the clock where there is none",
    "first_cycles": "SM cycles of the first copy with the new map, from before its issue until it is there",
    "second_cycles": "the same of the second copy, of the same box",
    "third_cycles": "the same of the third",
    "first_turn_cycles": "SM cycles of a copy in the first turn, each through another map",
    "last_turn_cycles": "the same in the last turn",
}

CASE = Case(
    name="tensor_map",
    question="What does a tensor map cost that the kernel makes itself, what does its first use, and how many are kept?",
    config_type=Row, launch=launch, check=check, num_repeats=5, predict=predict, fit=fit, fitted_constants=fitted_constants,
    groups={
        name: Group(configs=configs, rank=4 if name == "cold" else 3, least_capability=(9, 0))
        for name, configs in (("build", build), ("prefetch", prefetch), ("turns", turns), ("cold", cold))
    },
    values={
        f"{label}{name}": f"{meaning}; {word} of a launch"
        for name, meaning in _MEANINGS.items() for label, word in _SPREAD.items()
    },
    tiers=dict.fromkeys(("first_cycles", "second_cycles", "third_cycles", "last_turn_cycles"), 2),
)  # fmt: skip
