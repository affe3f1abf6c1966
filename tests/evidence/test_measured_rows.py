"""Counts that a GPU gave are the simulator's, every one; without measured rows there is nothing to hold."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gpusim.evidence.cases.case import case_names, load_case
from gpusim.evidence.cases.rows import Table, config_of
from gpusim.evidence.validate.judge import judge
from gpusim.machine.config import load_gpu
from gpusim.workload.smem.access import wavefronts
from gpusim.workload.tma.boxes import tma_wavefronts

MEASURED = Path(__file__).resolve().parents[2] / "validation" / "measured"
SHARED = "sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum"
DATA_LOADS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
OF_LINES = ("t_requests", "t_sectors", "t_output_wavefronts")
EXACT = {
    "shared_access": (SHARED, DATA_LOADS),
    "cp_async_access": (SHARED,),
    "global_access": tuple(f"l1tex__{what}_pipe_lsu_mem_global_op_{op}.sum" for what in OF_LINES for op in ("ld", "st")),
    "tma_writes": (
        "l1tex__data_bank_writes.sum", "lts__t_sectors_srcunit_tex_op_read.sum", "smsp__sass_inst_executed_op_tma_ld.sum",
        "row_pitch_bytes",
    ),
    "wgmma_operands": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",),
}  # fmt: skip
"""What is an integer here and there; other values are held by tiers with tolerances."""

KNOWN_WRONG = {
    ("h200_sxm", "shared_access"): {"cp_async_b32": 44, "cp_async_b64": 30},
    ("h200_sxm", "cp_async_access"): {"cp_async_b32": 31, "cp_async_b64": 33, "cp_async_b128": 31},
    ("h200_sxm", "tma_writes"): {"tma_load_2d": 3},
}
"""Which ops are wrong, and how often: validation/deviations/08_wavefronts.md."""

NUM_JUDGED = {
    ("h200_sxm", "shared_access"): 9000 + 3840,
    ("h200_sxm", "cp_async_access"): 1215,
    ("h200_sxm", "global_access"): 3 * 3660,
    ("h200_sxm", "tma_writes"): 4 * 278,
    ("h200_sxm", "wgmma_operands"): 224,
}
"""Counts that the simulator predicts and the table has."""

TABLES = [path for name in EXACT for path in sorted(MEASURED.glob(f"*/{name}.csv"))]


@pytest.mark.skipif(not TABLES, reason="validation/measured holds no counts yet")
@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_count_of_a_measured_table_is_ours(path: Path) -> None:
    found = judge([load_case(path.stem)], path.parent, load_gpu(path.parent.name), tiers=[3])
    assert {item.name for item in found} >= set(EXACT[path.stem])
    judged = [item for item in found if item.name in EXACT[path.stem]]
    wrong = [item for item in judged if item.predicted != item.measured]
    assert len(judged) == NUM_JUDGED[path.parent.name, path.stem]
    assert Counter(item.config["kernel"] for item in wrong) == KNOWN_WRONG.get((path.parent.name, path.stem), {})


@pytest.mark.parametrize("name", EXACT)
def test_a_case_predicts_what_must_be_exact(name: str) -> None:
    case = load_case(name)
    metrics = {metric for group in case.groups.values() for metric in group.metrics}
    assert name in case_names()
    assert set(EXACT[name]) <= metrics | set(case.values)
    answers = [case.predict(case.configs(group, 1)[0], load_gpu("h200_sxm")) for group in case.groups]
    assert set(EXACT[name]) <= {metric for answer in answers for metric in answer}
    assert {case.tiers[metric] for metric in EXACT[name]} == {3}


@pytest.mark.parametrize("path", sorted(MEASURED.glob("*/shared_access.csv")), ids=lambda path: path.parent.name)
def test_loops_that_values_may_end_take_the_simulators_count_at_most(path: Path) -> None:
    """Minima, maxima, ands and ors of 64 bits: words that need no change are not swapped, which addresses cannot tell."""
    case = sys.modules[load_case("shared_access").launch.__module__]
    rows = [row for row in Table.read(path).rows if row["kernel"] in case.VALUED_ATOMICS]
    assert len(rows) >= 480
    least = most = 0
    for row in rows:
        pattern = case.pattern_of(load_case("shared_access").config_type.of(row))
        counted, said = int(row[SHARED]), int(wavefronts(pattern.op, pattern.addresses, pattern.active))
        assert int(wavefronts("ld_shared_b64", pattern.addresses, pattern.active)) <= counted <= said
        least += counted < said
        most += counted == said
    assert least and most


def test_cp_async_is_exact_from_one_run_and_never_less_than_predicted() -> None:
    """Who goes first is not known where sources and destinations both conflict: it takes as long, or longer."""
    found = judge([load_case("cp_async_access")], MEASURED / "h200_sxm", load_gpu("h200_sxm"), tiers=[3])
    assert all(item.measured >= item.predicted for item in found)
    of_runs = [item for item in found if item.config["source"] in ("packed", "shifted", "rows_128")]
    assert len(of_runs) >= 600 and all(item.measured == item.predicted for item in of_runs)


def test_a_busy_data_stage_takes_the_time_of_its_own_count_and_not_of_the_instructions() -> None:
    rows = Table.read(MEASURED / "h200_sxm" / "wavefront_cycles.csv").rows
    case = load_case("wavefront_cycles")
    found = [(case.derive(config_of(row, case.columns)), float(row["cycles_per_access"])) for row in rows]
    differing = [(said, cycles) for said, cycles in found if said["num_wavefronts"] != said["num_data_wavefronts"]]
    assert len(found) == 600 and len(differing) >= 100
    off = {
        name: float(np.mean([abs(said[name] - cycles) / cycles for said, cycles in differing]))
        for name in ("num_wavefronts", "num_data_wavefronts")
    }
    assert off["num_data_wavefronts"] < 0.5 * off["num_wavefronts"]


def test_a_full_queue_takes_narrow_boxes_at_the_pace_of_their_wavefronts() -> None:
    """The thread issues a box every 78 cycles; box i waits until box i - 7 has been written, 10 cycles after the first."""
    case = load_case("tma_writes")
    rows = [row for row in Table.read(MEASURED / "h200_sxm" / "tma_writes.csv").rows if row["group"] == "narrow"]
    off = []
    for row in rows:
        config = case.config_type.of(row)
        box = sys.modules[case.launch.__module__].tensor_map(config).box
        at = 0
        for idx in range(1, int(config["num_boxes"])):
            at = max(at + 78, 10 + (idx - 6) * tma_wavefronts(box))
        if abs(173 + at - int(row["issue_cycles"])) > 2:
            off.append((config["kernel"], config["inner_bytes"], config["swizzle"]))
    assert len(rows) == 16
    assert sorted(off) == [("tma_load_2d", "80", "none"), ("tma_load_3d", "16", "none")]
