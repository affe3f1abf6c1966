"""Measure shares of peaks and stall reasons of kernels on the GPU of this machine, with all that ``gpusim measure`` counts.

    python scripts/measure_shares.py DIR KERNEL [KERNEL ...]

Tables go to DIR, with a folder for each GPU. ``scripts/judge_shares.py DIR/h200_sxm`` judges them.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from gpusim.cli.measure import measure
from gpusim.evidence.bench.runner import Options
from gpusim.evidence.cases.case import load_case
from gpusim.evidence.gate.stall_reasons import NAME
from gpusim.evidence.gate.throughputs import ELAPSED, NO_RULE, PARTS
from gpusim.evidence.nsight.metrics import JUDGED_SHARES

REASONS = (
    "barrier", "gmma", "lg_throttle", "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "no_instruction",
    "not_selected", "selected", "short_scoreboard", "wait",
)  # fmt: skip
OF_SMS = (
    "sm__inst_executed", "sm__issue_active", "sm__inst_executed_pipe_lsu", "sm__mio_inst_issued",
    "sm__mio_pq_read_cycles_active", "sm__pipe_fma_cycles_active",
    "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active",
)  # fmt: skip
"""Further parts of ``sm__throughput``."""
EVERY_PART = (*OF_SMS, *(name for parts in (PARTS, NO_RULE) for names in parts.values() for name in names))
METRICS = (
    *JUDGED_SHARES, *(f"{name}.{ELAPSED}" for name in EVERY_PART), *(NAME.format(reason) for reason in REASONS),
    "l1tex__throughput.avg.pct_of_peak_sustained_active", "smsp__inst_executed.sum",
)  # fmt: skip


def main(folder: str, *names: str) -> None:
    """Measure the kernels."""
    options = Options(out=Path(folder), metrics=tuple(dict.fromkeys(METRICS)))
    measure([load_case(name) for name in names], options, None, math.inf)


if __name__ == "__main__":
    main(*sys.argv[1:])
