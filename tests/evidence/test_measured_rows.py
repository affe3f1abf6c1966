"""Counts that a GPU gave are the simulator's, every one; without measured rows there is nothing to hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.evidence.bench import agreements
from gpusim.evidence.case import case_names, load_case
from gpusim.evidence.rows import Table

MEASURED = Path(__file__).resolve().parents[2] / "validation" / "measured"
EXACT = {
    "shared_access": ("sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum",),
    "wgmma_operands": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",),
}
"""What is an integer here and there; other values are held by tiers with tolerances."""

TABLES = [path for name in EXACT for path in sorted(MEASURED.glob(f"*/{name}.csv"))]


@pytest.mark.skipif(not TABLES, reason="validation/measured holds no counts yet")
@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_count_of_a_measured_table_is_ours(path: Path) -> None:
    found = [
        agreement
        for agreement in agreements(load_case(path.stem), Table.read(path))
        if agreement.name in EXACT[path.stem]
    ]
    assert found
    for agreement in found:
        assert agreement.num_equal == agreement.num_rows, agreement


@pytest.mark.parametrize("name", EXACT)
def test_a_case_predicts_what_must_be_exact(name: str) -> None:
    case = load_case(name)
    metrics = {metric for group in case.groups.values() for metric in group.metrics}
    assert name in case_names()
    assert set(EXACT[name]) <= metrics
    group = next(iter(case.groups))
    assert set(EXACT[name]) <= set(case.predict(case.configs(group, 1)[0]))
