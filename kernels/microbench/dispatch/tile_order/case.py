"""In which order does the library behind torch.matmul make the tiles of D: along which side, in bands of what width?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpusim.evidence.bench.store_probe import right_runs, since_first_ns
from gpusim.evidence.cases import gemm_case as products
from gpusim.evidence.cases.case import Case, Group, Outputs, Product, Watch
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_waves import num_at_once, seen_waves, shape_of_waves
from gpusim.evidence.toolchain.cublas_names import parse_name

SHAPES = (
    (3072, 3072, 3072, "bf16", "tn"), (5120, 5120, 4096, "bf16", "tt"),
    (7168, 7168, 2048, "bf16", "tn"), (6400, 6400, 3072, "bf16", "tn"),
    (1536, 14336, 2048, "bf16", "tn"), (14336, 1536, 2048, "bf16", "tn"),
    (3584, 10240, 4096, "bf16", "tt"), (10240, 3584, 4096, "bf16", "tn"),
    (192, 28672, 4096, "bf16", "tn"), (384, 20480, 5120, "bf16", "tt"),
    (2304, 2304, 16384, "bf16", "tn"), (4600, 3400, 3000, "bf16", "tn"),
    (12288, 12288, 1536, "bf16", "tn"), (6656, 6656, 6656, "fp16", "tn"),
    (20480, 640, 3072, "bf16", "tt"), (2688, 8064, 2688, "fp16", "tt"),
)  # fmt: skip
"""M, N, K, type, layout: of these no product of ``library_gemm`` is. Even places are read, odd ones judge."""

LONE_SHAPES = (
    (1024, 1152, 2048, "bf16", "tn"), (896, 1024, 3072, "bf16", "tt"),
    (2048, 1920, 2048, "bf16", "tn"), (1536, 2560, 1536, "bf16", "tn"),
    (1280, 1024, 2048, "bf16", "tn"), (1024, 4096, 1024, "bf16", "tt"),
    (320, 4096, 4096, "bf16", "tn"), (192, 8192, 2048, "bf16", "tt"),
    (512, 4096, 2048, "bf16", "tn"), (96, 8192, 4096, "bf16", "tn"),
    (640, 768, 1024, "bf16", "tn"), (768, 1536, 2048, "fp16", "tn"),
    (4096, 320, 4096, "bf16", "tn"), (1152, 1536, 3072, "bf16", "tn"),
)  # fmt: skip
"""Of so few tiles that most grids have one for each CTA."""

WIDE_STEP, NARROW_STEP = 128, 64
NARROW = 1024
"""Sides up to here are looked at every :data:`NARROW_STEP` elements, others every :data:`WIDE_STEP`."""

SHAPE = ("wave_rows", "wave_columns")

METRICS = ("launch__registers_per_thread", "launch__shared_mem_per_block_dynamic")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    m: int
    n: int
    k: int
    dtype: str
    layout: str
    row_step: int
    column_step: int


def configs() -> list[Config]:
    """One a shape, in an order that does not matter."""
    step = {side: NARROW_STEP if side <= NARROW else WIDE_STEP for shape in SHAPES for side in shape[:2]}
    return [Config("look_on", m, n, k, dtype, layout, step[m], step[n]) for m, n, k, dtype, layout in SHAPES]


def lone() -> list[Config]:
    """The same of shapes with few tiles: clusters whose SMs the watchers hold come late, and so show where they are."""
    return [Config("look_on", *shape, NARROW_STEP, NARROW_STEP) for shape in LONE_SHAPES]


def launch(config: Config, is_counted: bool) -> Product:
    """The product, watched where it is not counted."""
    watch = Watch(kernel=config.kernel, row_step=config.row_step, column_step=config.column_step)
    return Product(
        m=config.m, n=config.n, k=config.k, dtype=config.dtype, layout=config.layout,  # type: ignore[arg-type]
        watch=None if is_counted else watch,
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """D is right, and every point of the lattice was seen to be written."""
    found = products.check(config, outputs)
    wrong_if("seen_ns" not in outputs, "nobody looked on: wants the cubin beside the framework")
    num_right = int(right_runs(outputs).sum())
    wrong_if(not num_right, "in no run all elements were seen to be written after those that look on had begun")
    arrivals = since_first_ns(outputs)
    return {
        **found, "right_runs": float(num_right), "span_us": float(np.median(arrivals.max(axis=(1, 2)))) * 1e-3,
        "spread_us": float(np.median(np.ptp(arrivals, axis=0))) * 1e-3,
    }  # fmt: skip


def told(config: Config, facts: Mapping[str, str]) -> dict[str, str]:
    """What the name says, in the library's order, and how many rows and columns of clusters a wave has."""
    kernel = parse_name(facts.get("launched", ""))
    if kernel is None:
        return {}
    found = {"library_tile": "x".join(map(str, kernel.tile)), "library_cluster": "x".join(map(str, kernel.cluster))}
    waves = seen_waves(config, facts)
    if waves is None:
        return found
    shape = shape_of_waves(waves, num_at_once(facts))
    return {**found, **{name: f"{number:.6g}" for name, number in zip(SHAPE, shape, strict=True)}}


CASE = Case(
    name="tile_order",
    question=__doc__,
    framework="torch", config_type=Config,
    groups={
        "order": Group(configs=configs, metrics=METRICS, rank=5, least_capability=(9, 0)),
        "lone": Group(configs=lone, metrics=METRICS, rank=5, least_capability=(9, 0)),
    },
    launch=launch, check=check, checks_counted=False, text_columns=told,
    values={
        "error_share": "largest error of the sample, of what rounding allows", **products.TOLD,
        "arrivals": "when each point of the lattice was seen to be written, 0.1 us from the first on, median of the right "
        "runs; rows of D apart by slashes",
        "right_runs": "of three, those whose watchers had begun before and saw everything",
        "span_us": "from the first to the last of them",
        "spread_us": "of a point's times, least to most over the runs: median of the points",
        "wave_rows": "rows of clusters of D that a full wave has any of, mean over waves; as they were stored, and the "
        "watchers hold some SMs, so that the first wave is no whole one",
        "wave_columns": "columns of them",
        "library_tile": "M, N, K of its tile, in the library's order: its M is our N",
        "library_cluster": "CTAs of a cluster along its M and N",
    },
)  # fmt: skip
