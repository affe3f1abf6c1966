"""Meanings of parameters, and the page of the H200's, which says what description and docstrings say."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from gpusim.machine.config import COMPONENT_KINDS, gpu_names, load_gpu
from gpusim.machine.floorplan import DeviceSpec
from gpusim.report.parameters import Meaning, meaning_of, meanings

from .prose import long_sentences, sentences

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("parameter_table", ROOT / "scripts" / "parameter_table.py")
assert SPEC is not None and SPEC.loader is not None
parameter_table = importlib.util.module_from_spec(SPEC)
sys.modules["parameter_table"] = parameter_table
SPEC.loader.exec_module(parameter_table)

PAGE = ROOT / "docs" / "h200_parameters.md"
LINES = PAGE.read_text(encoding="utf-8").splitlines()
GPU = load_gpu("h200_sxm")
MICROBENCHMARKS = {path.parent.name for path in (ROOT / "kernels" / "microbench").glob("*/*/case.py")}
DOCUMENTS = ("vendor", "paper", "inferred", "guess")
STUDIES = "validation/studies"
FIELDS = {
    f"{part}.{field.name}": meaning_of(f"{part}.{field.name}")
    for part, spec in {"device": DeviceSpec, **COMPONENT_KINDS}.items() for field in fields(spec)
}  # fmt: skip


def rows() -> dict[str, list[str]]:
    """Cells of the page behind the name of each parameter."""
    found: dict[str, list[str]] = {}
    part = ""
    for line in LINES:
        if line.startswith("## "):
            part = line.removeprefix("## ")
        elif line.startswith("| `"):
            name, *cells = (cell.strip("` ") for cell in line.strip("|").split(" | "))
            found[f"{part}.{name}"] = cells
    return found


# ------------------------------------------------------------------------------------------ meanings


def test_every_parameter_has_a_meaning() -> None:
    assert meanings() == FIELDS
    assert [name for name, meaning in FIELDS.items() if not (meaning.text and meaning.origin)] == []


@pytest.mark.parametrize("name", FIELDS)
def test_a_meaning_has_at_most_two_short_sentences(name: str) -> None:
    text, origin = FIELDS[name]
    docstring = f"{text.removesuffix('.')} ({', '.join(origin)})."
    assert long_sentences(docstring) == []
    assert len(list(sentences(docstring))) <= 2
    assert set(origin) <= MICROBENCHMARKS | {*DOCUMENTS, STUDIES}


@pytest.mark.parametrize("name", GPU.sources)
def test_a_meaning_names_what_the_source_names(name: str) -> None:
    source, origin = GPU.sources[name], FIELDS[name].origin
    kind, cited = source.partition(":")[0], re.findall(r"kernels/(\w+)", source)
    if kind == "measured" and STUDIES not in source:
        assert origin[0] == cited[0]
        assert set(origin) <= set(cited) & MICROBENCHMARKS
    elif origin != (kind,):
        assert kind in ("measured", "inferred")
        assert set(origin) <= set(cited) | ({STUDIES} if STUDIES in source else set())


# ------------------------------------------------------------------------------------------ the page


def test_the_page_has_every_parameter_with_its_value_and_meaning() -> None:
    shown = rows()
    assert set(shown) == set(GPU.sources)
    for name, (value, text, origin) in shown.items():
        part, field = name.split(".")
        assert value == parameter_table.value_text(getattr(GPU.component(part), field))
        meaning = FIELDS[name]
        parts = tuple(origin.split(", "))
        assert Meaning(text, parts if len(parts) == 1 else tuple(each for each in parts if each != "inferred")) == meaning


def test_a_row_shows_the_class_that_the_simulator_counts() -> None:
    shown = {"vendor": "published", "paper": "published", "inferred": "inferred", "guess": "guess"}
    for name, (*_, origin) in rows().items():
        assert shown.get(origin.split(", ")[0], "measured") == GPU.source_class(name)


def test_the_page_counts_every_gpu_as_it_is_today() -> None:
    kinds = ("published", "measured", "inferred", "guess")
    assert "| Parameters | " + " | ".join(kinds) + " | all |" in LINES
    for name in gpu_names():
        if name != "toy":
            gpu = load_gpu(name)
            classes = [gpu.source_class(parameter) for parameter in gpu.sources]
            counts = [*(classes.count(kind) for kind in kinds), len(classes)]
            assert f"| {name} | " + " | ".join(map(str, counts)) + " |" in LINES


def test_the_page_is_what_the_script_writes() -> None:
    others = [load_gpu(name) for name in gpu_names() if name not in ("h200_sxm", "toy")]
    assert "\n".join(parameter_table.page(GPU, others)).splitlines() == LINES
