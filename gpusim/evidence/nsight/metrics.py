"""Metrics of Nsight Compute by name: the class that each is judged in, and names that mean the same.

In: a metric's name. Out: its class with the default limit, or None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpusim.evidence.cases.judged_metrics import CLOCK, CYCLES, DRAM, DURATION, HIT_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricClass:
    """Metrics that are judged by one limit."""

    name: str
    """Name of the class in ``--tolerance``."""
    pattern: str
    """Regular expression that matches the full name of a metric."""
    limit: float
    source: str
    baseline: float | None
    """Largest increase over the last run, percent or points; None: shown, never a failure by itself."""
    is_points: bool = False
    is_better_high: bool = False
    held_out: str = ""
    """Metric whose P90 is used for the class; empty: the metric itself."""
    is_of_family: bool = False
    """Whether a kernel's own P90 is its limit also where it is below ``limit``."""


ELAPSED = "avg.pct_of_peak_sustained_elapsed"
JUDGED_SHARES = (
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    *(f"{name}.{ELAPSED}" for name in (
        "gpu__dram_throughput", "sm__throughput", "l1tex__throughput", "lts__throughput", "lts__t_sectors",
        "lts__t_tag_requests", "lts__lts2xbar_cycles_active",
        "lts__xbar2lts_cycles_active", "lts__ltcfabric2ltc_cycles_active", "l1tex__m_l1tex2xbar_req_cycles_active",
        "l1tex__data_pipe_lsu_wavefronts",
    )),
)  # fmt: skip
"""Shares of peaks that ``scripts/judge_shares.py`` judges on measured rows."""

CLASSES: tuple[MetricClass, ...] = (
    MetricClass(name="cycles", pattern=r"(sm|gpc)__cycles_elapsed\.(max|avg)", limit=15.0, baseline=5.0, held_out=CYCLES,
                source="no row of that kernel was judged on this GPU"),
    MetricClass(name="time", pattern=r"gpu__time_duration\.(sum|avg|max)", limit=15.0, baseline=5.0, held_out=CYCLES,
                source="no row of that kernel was judged on this GPU"),
    MetricClass(name="hit_rate", pattern=re.escape(HIT_RATE), limit=3.0, baseline=3.0, is_points=True, is_better_high=True,
                source="validation/README.md, tier 5"),
    MetricClass(name="bytes", pattern=r"(dram|l1tex|lts)__\w*bytes\w*\.sum|dram__sectors\w*\.sum", limit=10.0, baseline=10.0,
                source="bytes, 10 %"),
    MetricClass(name="l2_sectors", pattern=r"lts__t_sectors_(srcunit_tex_op_(read|write)|op_(atom|red))\.sum", limit=10.0,
                baseline=10.0, source="as bytes, 10 %"),
    MetricClass(name="wavefronts", pattern=r"l1tex__data_pipe_lsu_wavefronts\w*\.sum", limit=1.0, baseline=1.0,
                source="counted exactly, but for validation/deviations/08_wavefronts.md"),
    MetricClass(name="sectors", pattern=r"l1tex__t_(sectors|requests)\w*\.sum", limit=1.0, baseline=1.0,
                source="counted exactly"),
    MetricClass(name="instructions", pattern=r"(smsp?__inst_executed_pipe|smsp__sass_inst_executed_op)\w*\.sum", limit=1.0,
                baseline=1.0, source="counted exactly, by opcode"),
    MetricClass(name="conflicts", limit=1.0, baseline=1.0, source="counted exactly; bank conflicts without TMA and wgmma",
                pattern=r"(derived__)?memory_l1_wavefronts_shared\w*|"
                        r"l1tex__data_bank_conflicts_pipe_lsu_mem_shared(_op_(ld|st))?\.sum"),
    MetricClass(name="occupancy", pattern=r"sm__warps_active\.avg\.pct_of_peak_sustained_\w+", limit=20.0, baseline=None,
                is_points=True, is_better_high=True, is_of_family=True, source="no row of that kernel was judged"),
    MetricClass(name="busiest_part", limit=math.inf, baseline=None, is_points=True, is_better_high=True, is_of_family=True,
                source="shown only: the largest of many parts, and no row of that kernel was judged",
                pattern=r"(sm|l1tex|lts)__throughput\.avg\.pct_of_peak_sustained_(elapsed|active)|"
                        r"(l1tex__m_l1tex2xbar_req_cycles_active|l1tex__data_pipe_lsu_wavefronts|lts__t_sectors|"
                        r"lts__t_tag_requests|lts__lts2xbar_cycles_active|lts__xbar2lts_cycles_active|lts__ltcfabric2ltc_cycles_active)\.avg\.pct_of_peak_sustained_elapsed"),
    MetricClass(name="throughput", limit=10.0, baseline=None, is_points=True, is_better_high=True,
                is_of_family=True, source="no row of that kernel was judged",
                pattern=r"(gpu__dram_|dram__)throughput\.avg\.pct_of_peak_sustained_elapsed|"
                        r"sm__pipe_tensor_(\w+_)?cycles_active\.avg\.pct_of_peak_sustained_(elapsed|active)"),
    MetricClass(name="launch", pattern=r"launch__(grid|block|cluster)_size", limit=0.0, baseline=None,
                source="the launch itself"),
    MetricClass(name="registers", pattern=r"launch__registers_per_thread", limit=15.0, baseline=None,
                source="a compiler's choice"),
)  # fmt: skip
"""Classes in order of precedence: the first match counts."""

SAME: Mapping[str, str] = MappingProxyType(
    {
        "gpc__cycles_elapsed.max": CYCLES,
        "gpc__cycles_elapsed.avg": CYCLES,
        "sm__cycles_elapsed.avg": CYCLES,
        "gpc__cycles_elapsed.avg.per_second": CLOCK,
        "dram__bytes_op_read.sum": DRAM[0],
        "dram__bytes_op_write.sum": DRAM[1],
        "gpu__time_duration.avg": DURATION,
        "gpu__time_duration.max": DURATION,
    }
)
"""Metrics that are another one under the name of a unit or version.

GPCs run at the clock of their SMs, and a section of Nsight Compute shows their cycles as a launch's. The average over the
SMs is within 2 % of the maximum in nine of ten measured rows."""

RAW_COUNTS: tuple[MetricClass, ...] = (
    MetricClass(name="instructions", pattern=r"smsp?__inst_executed\.sum", limit=1.0, baseline=5.0, source="counted"),
    MetricClass(name="l2_sectors", pattern=r"lts__t_sectors\w*\.sum", limit=10.0, baseline=10.0, source="counted"),
)
"""Classes that are not predicted or never judged on rows, but compared with the last run."""


def same_as(metric: str) -> str:
    """Name under which gpusim knows ``metric``.

    >>> same_as("gpc__cycles_elapsed.max"), same_as("dram__bytes.sum")
    ('sm__cycles_elapsed.max', 'dram__bytes.sum')
    """
    return SAME.get(metric, metric)


def class_of(metric: str) -> MetricClass | None:
    """Class that a metric is judged in; None where it has none.

    >>> class_of("dram__bytes_read.sum").name, class_of("gpu__time_duration.sum").name, class_of("sm__cycles_active.avg")
    ('bytes', 'time', None)
    """
    return next((item for item in (*CLASSES, *RAW_COUNTS) if re.fullmatch(item.pattern, metric)), None)


def is_needed(metric: str) -> bool:
    """Whether a metric can fail a check or tells the clock; others never refuse a profile.

    >>> is_needed("dram__bytes_read.sum"), is_needed("derived__lts__lts2xbar_bytes.sum.per_second")
    (True, False)
    """
    return class_of(metric) is not None or same_as(metric) == CLOCK


def in_points(metric: str) -> bool:
    """Whether differences of a metric are in points, since the metric is in percent."""
    return metric.endswith(".pct") or ".pct_of_" in metric
