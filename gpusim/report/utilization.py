"""Utilization of the parts of a GPU as a verdict: which marks a launch misses, and what to do about each.

In: metrics of a launch under Nsight Compute's names, measured or predicted, and what bounds it in the model. Out: sentences,
one for each mark.

Ignores:

* L2, whose throughput has no mark

Source: the marks that tutorials give for GEMMs on Hopper. Tensor cores above 80 %, HBM below 60 %, no bank conflicts, and
SMs above 95 %. A product whose memory is more than 80 % busy is bound by memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpusim.simulate.bottleneck import BUSY

ELAPSED, ACTIVE = "avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active"
TENSOR = tuple(
    f"sm__pipe_tensor_{kind}cycles_active.{ELAPSED}"
    for kind in ("type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_", "", "op_hmma_type_hmma_hgmma_qgmma_", "op_hmma_")
)
MEMORY = (f"gpu__dram_throughput.{ELAPSED}", f"dram__throughput.{ELAPSED}")
CONFLICTS = ("derived__memory_l1_wavefronts_shared_excessive",)
CYCLES = ("sm__cycles_elapsed.max", "gpc__cycles_elapsed.max", "sm__cycles_elapsed.avg")

LEAST_TENSOR, MOST_MEMORY, BOUND_MEMORY, LEAST_SMS = 80.0, 60.0, 80.0, 95.0
"""Marks in percent: of tensor cores, memory, memory of a kernel that it bounds, and SMs."""


def utilization(metrics: Mapping[str, float], bound_by: str = "") -> list[str]:
    """Sentences on the marks of a launch; none where the metrics of a mark are missing.

    ``bound_by``: :attr:`gpusim.simulate.result.Result.bound_by` of its model, empty without one.

    >>> utilization({MEMORY[0]: 20.0})
    ['HBM 20.0 %, below 60 %: not saturated; keep more bytes in flight']
    >>> utilization({MEMORY[0]: 20.0}, "smem")[0]
    'HBM 20.0 %, below 60 %: not saturated, as shared memory is busy'
    """
    tensor, memory, conflicts, cycles = (
        next((metrics[name] for name in names if name in metrics), None) for names in (TENSOR, MEMORY, CONFLICTS, CYCLES)
    )
    lines = []
    if tensor:
        is_good = tensor > LEAST_TENSOR
        lines.append(f"Tensor cores {tensor:.1f} %, {_against(tensor, LEAST_TENSOR)}: " + (
            "saturated" if is_good else "not saturated; use a larger tile or a shorter epilogue"))
    if memory is not None and memory > BOUND_MEMORY:
        advice = "use a larger tile, so that more is reused" if tensor else "only fewer bytes make it faster"
        lines.append(f"HBM {memory:.1f} %, above {BOUND_MEMORY:.0f} %: memory bounds it; {advice}")
    elif memory is not None and memory < MOST_MEMORY:
        kind = "as of a kernel that arithmetic bounds" if tensor else "not saturated" + (
            f", as {BUSY[bound_by]} busy" if bound_by in BUSY and bound_by != "hbm" else "; keep more bytes in flight")
        lines.append(f"HBM {memory:.1f} %, below {MOST_MEMORY:.0f} %: {kind}")
    elif memory is not None:
        lines.append(f"HBM {memory:.1f} %, between {MOST_MEMORY:.0f} and {BOUND_MEMORY:.0f} %: near what bounds a kernel")
    if conflicts is not None:
        lines.append(f"Bank conflicts {conflicts:,.0f}" + (": check the swizzle with gpusim banks" if conflicts else ""))
    elif bound_by == "smem":
        lines.append("Bank conflicts not counted, shared memory bounds the kernel: gpusim explain shows what they cost")
    if cycles and "sm__cycles_active.avg" in metrics:
        share = min(100.0, 100.0 * metrics["sm__cycles_active.avg"] / cycles)
        lines.append(f"SMs {share:.1f} %, {_against(share, LEAST_SMS)}: " + (
            "hardly one is idle" if share > LEAST_SMS else "SMs idle; check the grid's size and its last wave"))
    return lines


def _against(share: float, mark: float) -> str:
    return f"{'above' if share > mark else 'below'} {mark:.0f} %"
