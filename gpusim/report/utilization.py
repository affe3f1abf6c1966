"""Utilization of the parts of a GPU as a verdict: which marks a launch misses, and what to do about each.

In: metrics of a launch under Nsight Compute's names, measured or predicted. Out: sentences, one for each mark.

Ignores:

* L2, whose throughput has no mark

Source: the marks that tutorials give for GEMMs on Hopper. Tensor cores above 80 %, HBM below 60 %, no bank conflicts, and
SMs above 95 %. A product whose memory is more than 80 % busy is bound by memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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


def utilization(metrics: Mapping[str, float]) -> list[str]:
    """Sentences on the marks of a launch; none where the metrics of a mark are missing.

    >>> names = (TENSOR[0], MEMORY[0], "sm__cycles_active.avg", CYCLES[0])
    >>> for sentence in utilization(dict(zip(names, (62.0, 20.0, 990.0, 1000.0)))):
    ...     print(sentence)
    Tensor cores 62.0 %, below 80 %: not saturated; use a larger tile or a shorter epilogue
    HBM 20.0 %, below 60 %: as of a kernel that arithmetic bounds
    SMs 99.0 %, above 95 %: hardly one is idle
    """
    return list(_sentences(metrics))


def _first(metrics: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((metrics[name] for name in names if name in metrics), None)


def _sentences(metrics: Mapping[str, float]) -> Iterator[str]:
    tensor, memory, conflicts, cycles = (_first(metrics, names) for names in (TENSOR, MEMORY, CONFLICTS, CYCLES))
    if tensor:
        yield f"Tensor cores {tensor:.1f} %, " + (
            f"above {LEAST_TENSOR:.0f} %: saturated" if tensor > LEAST_TENSOR
            else f"below {LEAST_TENSOR:.0f} %: not saturated; use a larger tile or a shorter epilogue"
        )
    if memory is not None:
        if memory > BOUND_MEMORY:
            advice = "use a larger tile, so that more is reused" if tensor else "only fewer bytes make it faster"
            yield f"HBM {memory:.1f} %, above {BOUND_MEMORY:.0f} %: memory bounds it; {advice}"
        elif memory < MOST_MEMORY:
            kind = "as of a kernel that arithmetic bounds" if tensor else "not saturated; keep more bytes in flight"
            yield f"HBM {memory:.1f} %, below {MOST_MEMORY:.0f} %: {kind}"
        else:
            yield f"HBM {memory:.1f} %, between {MOST_MEMORY:.0f} and {BOUND_MEMORY:.0f} %: near what bounds a kernel"
    if conflicts is not None:
        yield f"Bank conflicts {conflicts:,.0f}" + ("" if not conflicts else ": check the swizzle with gpusim banks")
    active = metrics.get("sm__cycles_active.avg")
    if active is not None and cycles:
        share = min(100.0, 100.0 * active / cycles)
        yield f"SMs {share:.1f} %, " + (
            f"above {LEAST_SMS:.0f} %: hardly one is idle" if share > LEAST_SMS
            else f"below {LEAST_SMS:.0f} %: SMs idle; check the grid's size and its last wave"
        )
