"""What do tensor maps cost that all CTAs of a grid make at the same time, and what do their first uses?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, WarpRole
from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Fitted, FittedConstant, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.microbenchmark import chained_code, range_cycles
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted, fitted_constant
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.tma.boxes import TensorMap

MOST_MAPS, MAP_BYTES, NUM_SLICES, SLICE_BYTES = 4, 128, 16, 4096
WIDTH, HEIGHT, STRIDE_BYTES, BOX_WIDTH, BOX_HEIGHT = 48, 6, 256, 32, 4
"""New fields of each map: elements of a row, rows, bytes from row to row, and the box."""
BOX_BYTES = BOX_WIDTH * BOX_HEIGHT * BF16.num_bytes
HOST_WIDTH, HOST_HEIGHT, HOST_STRIDE_BYTES = 64, 8, 128
"""Fields of the host's map, all of which are replaced."""
WORDS = 2 + 1 + MOST_MAPS + 4 * MOST_MAPS + 1
NUM_SMS = measured_gpu().num_sms
GRIDS = ((1, 1), (NUM_SMS // 2, 1), (NUM_SMS, 1), (2 * NUM_SMS, 2), (4 * NUM_SMS, 4), (4 * NUM_SMS, 1))
"""CTAs, and how many of them an SM has."""
SMEM_OF_CTAS = {1: 200 * 1024, 2: 100 * 1024, 4: 50 * 1024}
"""Dynamic shared memory, by the CTAs that an SM then has."""


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    _: KW_ONLY
    num_ctas: int
    num_maps: int
    ctas_per_sm: int


def grid() -> list[Row]:
    """One CTA, one an SM, and several an SM; one to four maps; more CTAs than fit at once."""
    return [
        Row("build_all", num_ctas=num_ctas, num_maps=num_maps, ctas_per_sm=per_sm)
        for num_ctas, per_sm in GRIDS for num_maps in (1, 2, 3, 4)
    ]  # fmt: skip


@cache
def data() -> NDArray[np.uint8]:
    """Random bytes; copied to the GPU once."""
    return read_only(np.random.default_rng(12).integers(1, 255, NUM_SLICES * MOST_MAPS * SLICE_BYTES, dtype=np.uint8))


def launch(config: Row) -> KernelLaunch:
    """Times come from the kernel; nothing is counted."""
    plan = (config.num_maps, WIDTH, HEIGHT, STRIDE_BYTES, BOX_WIDTH, BOX_HEIGHT, BOX_BYTES, SLICE_BYTES)
    host = TensorMap(
        dtype=BF16, global_dim=(HOST_WIDTH, HOST_HEIGHT), global_strides_bytes=(HOST_STRIDE_BYTES,),
        box_dim=(HOST_WIDTH, HOST_HEIGHT), l2_promotion="none",
    )  # fmt: skip
    return KernelLaunch(
        kernel="build_all",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), MappedTensor(data(), host), Input(data()),
            Input(np.zeros(config.num_ctas * MOST_MAPS * MAP_BYTES, dtype=np.uint8)),
            Output("times", np.full(config.num_ctas * WORDS, 0xFFFFFFFF, dtype="<u4")),
            Output("sums", np.zeros(config.num_ctas, dtype="<u4")),
        ),
        grid=(config.num_ctas, 1, 1), block=(128, 1, 1), smem_bytes=SMEM_OF_CTAS[config.ctas_per_sm],
    )  # fmt: skip


def expected_sums(config: Row) -> NDArray[np.uint32]:
    """Sum of the words that the maps of each CTA bring, uint32[num_ctas]."""
    rows = np.arange(BOX_HEIGHT)[:, None] * STRIDE_BYTES + np.arange(BOX_WIDTH * BF16.num_bytes)
    boxes = data().reshape(NUM_SLICES, MOST_MAPS, SLICE_BYTES)[:, : config.num_maps][:, :, rows]
    words = np.ascontiguousarray(boxes).reshape(NUM_SLICES, -1).view("<u4")
    return np.asarray(words.sum(axis=1, dtype=np.uint32)[np.arange(config.num_ctas) % NUM_SLICES])


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles to build a map, and of first and second uses, over all CTAs.

    Raises:
        WrongAnswer: a wait was given up, a copy brought other bytes, or the clock did not run.
    """
    times = outputs["times"].reshape(config.num_ctas, WORDS)
    wrong_if(int(times[:, 0].max()), "an mbarrier never completed, the wait was given up")
    if (outputs["sums"] != expected_sums(config)).any():
        raise WrongAnswer(f"CTA {int(np.argmax(outputs['sums'] != expected_sums(config)))} received other bytes")
    num = config.num_maps
    built = times[:, 2 : 3 + num].astype(np.int64)
    issued, done = (times[:, begin : begin + 2 * num].astype(np.int64) for begin in (7, 15))
    uses = (done - issued) % 2**32
    parts = {
        "build_cycles": np.diff(built, axis=1) % 2**32, "all_cycles": (built[:, -1:] - built[:, :1]) % 2**32,
        "first_cycles": uses[:, :num], "second_cycles": uses[:, num:],
    }  # fmt: skip
    values: dict[str, float] = {}
    for name, cycles in parts.items():
        if cycles.min() <= 0 or cycles.max() > 1e7:
            raise WrongAnswer(f"the clock shows {int(cycles.min())} to {int(cycles.max())} {name}")
        values |= {name: float(np.median(cycles)), f"p90_{name}": float(np.percentile(cycles, 90))}
    return values


CODE_CYCLES = {"build": 150.0, "use": 81.44873290361849}
"""Cycles of instructions besides those of the model: copying and replacing six fields; around a copy. Source of ``build``:
kernels/tensor_map, h200_sxm: ``copy_cycles`` and ``replace_cycles``."""
BUILD_CODE_BYTES = 1344
"""Instructions of the loop that makes maps, which the first CTA of an SM has to fetch. Source: SASS of CUDA 13.0."""
BARRIER_CYCLES = 26.0
"""Cycles of ``__syncthreads`` of four warps, of which three wait. Source: kernels/barriers, h200_sxm."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """Median over CTAs, by the simulator: CTAs that make maps at the same time, and use each one twice."""
    names = tuple("ABCD"[: config.num_maps])

    def program(cta: RoleContext) -> Iterator[Any]:
        for name in names:
            yield ops.RangeStart(ops.Section.PROLOGUE)
            yield ops.FetchCode("maps", BUILD_CODE_BYTES)
            yield chained_code(CODE_CYCLES["build"], gpu)
            yield ops.FenceProxyTensormap((name,))
            yield ops.Syncthreads()
            yield ops.RangeEnd()
        for use in range(2):
            for idx, name in enumerate(names):
                yield ops.MbarrierArriveExpectTx("full", 0, BOX_BYTES)
                yield ops.RangeStart(ops.Section.EPILOGUE if use else ops.Section.MAINLOOP)
                yield ops.TmaLoad(name, (cta.cta_idx % NUM_SLICES, idx), BOX_BYTES, BOX_BYTES, BOX_HEIGHT, "slot", 0, "full")
                yield ops.MbarrierWait("full", 0, (use * len(names) + idx) % 2)
                yield ops.RangeEnd()

    launch = Launch(
        kernel="tensor_map_grid", num_ctas=config.num_ctas, num_tiles=config.num_ctas,
        roles=(WarpRole(name="user", num_warps=4, program=program),),
        buffers=(Buffer(name="slot", stage_bytes=SMEM_OF_CTAS[config.ctas_per_sm]),),
        mbarriers=(Mbarrier(name="full", num_arrivals=1),),
    )  # fmt: skip
    cycles = np.array(range_cycles(launch, gpu)["user"]).reshape(config.num_ctas, 3 * config.num_maps)
    built, first, second = np.split(cycles, 3, axis=1)
    uses = {"first_cycles": first + CODE_CYCLES["use"], "second_cycles": second + CODE_CYCLES["use"]}
    parts = {"build_cycles": built, "all_cycles": built.sum(axis=1), **uses}
    return {name: float(np.median(values)) for name, values in parts.items()}


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Cycles of release and acquire, where all SMs make maps: of a further map, without its other instructions.

    The first map's instructions are cold. Half of the maps are near and half are far, so medians over CTAs are in between.
    """
    all_cycles: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.get("all_cycles") and int(row["num_ctas"]) >= NUM_SMS:
            which = f"{row['num_ctas']} {row['ctas_per_sm']}"
            all_cycles.setdefault(which, {})[int(row["num_maps"])] = float(row["all_cycles"])
    values = [
        (taken[max(taken)] - taken[min(taken)]) / (max(taken) - min(taken)) - CODE_CYCLES["build"] - BARRIER_CYCLES
        for taken in all_cycles.values() if len(taken) > 1
    ]  # fmt: skip
    how = "CTAs on all SMs: cycles of a further map less those of copy, replace and barrier, median"
    return fitted("tma.tensormap_release_cycles", values, how)


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What the code around a copy through a known map takes beyond the model's copy."""
    values = [
        float(row["second_cycles"]) - predict(Row.of(row), gpu)["second_cycles"] + CODE_CYCLES["use"] for row in rows
    ]  # fmt: skip
    return fitted_constant("CODE_CYCLES", values, "copies through a known map: cycles beyond the model's, median", "use")


_MEANINGS = {
    "build_cycles": "SM cycles to copy, replace, release and acquire a map, until all warps have met",
    "all_cycles": "SM cycles for all maps of a CTA",
    "first_cycles": "SM cycles of the first copy through a new map, from its issue until it has arrived",
    "second_cycles": "SM cycles of the second copy of the same box",
}

CASE = Case(
    name="tensor_map_grid",
    question=__doc__,
    config_type=Row, launch=launch, check=check, num_repeats=5, predict=predict, fit=fit,
    fitted_constants=fitted_constants,
    groups={"grid": Group(configs=grid, rank=3, least_capability=(9, 0))},
    values={
        f"{label}{name}": f"{meaning}; {word} over CTAs and maps"
        for name, meaning in _MEANINGS.items() for label, word in (("", "median"), ("p90_", "90th percentile"))
    },
    tiers=dict.fromkeys(("build_cycles", "all_cycles", "first_cycles", "second_cycles"), 2),
)  # fmt: skip
