"""Counts that a GPU gave are the simulator's, every one; without measured rows there is nothing to hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gpusim.evidence.case import case_names, load_case
from gpusim.evidence.validate import judge
from gpusim.machine.config import load_gpu

MEASURED = Path(__file__).resolve().parents[2] / "validation" / "measured"
EXACT = {
    "shared_access": ("sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum",),
    "wgmma_operands": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",),
}
"""What is an integer here and there; other values are held by tiers with tolerances."""

KNOWN_WRONG = {("h200_sxm", "shared_access"): {"ld_shared_b128": 7, "cp_async_b32": 51, "cp_async_b64": 47}}
"""Which ops are wrong, and how often: validation/deviations.md, 8."""

TABLES = [path for name in EXACT for path in sorted(MEASURED.glob(f"*/{name}.csv"))]


@pytest.mark.skipif(not TABLES, reason="validation/measured holds no counts yet")
@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_count_of_a_measured_table_is_ours(path: Path) -> None:
    found = judge([load_case(path.stem)], path.parent, load_gpu(path.parent.name), tiers=[3])
    assert {item.name for item in found} >= set(EXACT[path.stem])
    wrong = [item for item in found if item.name in EXACT[path.stem] and item.predicted != item.measured]
    assert Counter(item.config["kernel"] for item in wrong) == KNOWN_WRONG.get((path.parent.name, path.stem), {})


@pytest.mark.parametrize("name", EXACT)
def test_a_case_predicts_what_must_be_exact(name: str) -> None:
    case = load_case(name)
    metrics = {metric for group in case.groups.values() for metric in group.metrics}
    assert name in case_names()
    assert set(EXACT[name]) <= metrics
    group = next(iter(case.groups))
    assert set(EXACT[name]) <= set(case.predict(case.configs(group, 1)[0], load_gpu("toy")))
    assert {case.tiers[metric] for metric in EXACT[name]} == {3}
