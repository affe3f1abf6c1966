"""The page of the H200's parameters says what the description says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from gpusim.machine.config import gpu_names, load_gpu

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("parameter_table", ROOT / "scripts" / "parameter_table.py")
assert SPEC is not None and SPEC.loader is not None
parameter_table = importlib.util.module_from_spec(SPEC)
sys.modules["parameter_table"] = parameter_table
SPEC.loader.exec_module(parameter_table)

PAGE = ROOT / "docs" / "h200_parameters.md"
AFTER = parameter_table.parameters(ROOT / "configs" / "h200_sxm.toml")
ROWS = {
    cells[0].strip("` "): cells[1:]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `") and (cells := [cell.strip() for cell in line.strip("|").split("|")])
}


def test_the_page_has_every_parameter_with_its_value_of_today() -> None:
    shown = {name: (cells[2], cells[4]) for name, cells in ROWS.items() if cells[2]}
    assert shown == {name: (value, source.replace("|", "\\|")) for name, (value, source) in AFTER.items()}


def test_classes_are_those_that_the_simulator_counts() -> None:
    gpu = load_gpu("h200_sxm")
    assert set(AFTER) == set(gpu.sources)
    for name, source in gpu.sources.items():
        assert parameter_table.class_of(source) == gpu.source_class(name) == ROWS[name][3]


def test_the_page_counts_every_gpu_as_it_is_today() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    kinds = ("published", "measured", "inferred", "guess")
    assert "| | " + " | ".join(kinds) + " | all |" in lines
    for name in gpu_names():
        if name != "toy":
            label = "after" if name == "h200_sxm" else name
            classes = [parameter_table.class_of(source) for source in load_gpu(name).sources.values()]
            counts = [*(classes.count(kind) for kind in kinds), len(classes)]
            assert f"| {label} | " + " | ".join(map(str, counts)) + " |" in lines
