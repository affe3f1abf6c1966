"""What the engine says of its parts, names of counters, what no module does, how many lines there are."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

from gpusim.machine.component import Counters
from gpusim.machine.config import COMPONENT_KINDS
from gpusim.program.encode import ENCODERS
from gpusim.program.records import OpKind
from gpusim.workload import ops

from .prose import comments_of_classes
from .tree import ENGINE, MODULES, PACKAGE, nodes, parsed, text

SOURCES = [path for path in ENGINE if path.name != "records.h"]
"""Of the engine, what is written by hand."""

MOST_COLUMNS = 110
MOST_LINES = {"model": 6_790, "order check": 910, "reference": 1_280, "engine": 6_260}  # parts of stages, copies in L2
"""Of code: of machine, program, traffic, simulate and reference together, but for the order check; of the others alone."""

NCU_NAMES = {
    "lts__t_sectors_op_atom",
    "lts__t_sectors_op_red",
    "dram__bytes_read",
    "dram__bytes_write",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st",
    "l1tex__m_l1tex2xbar_write_bytes",
    "l1tex__m_l1tex2xbar_write_bytes_mem_dshared",
    "l1tex__m_xbar2l1tex_read_bytes",
    "l1tex__m_xbar2l1tex_read_bytes_mem_dshared",
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st",
    "lts__t_sectors_srcunit_tex_lookup_miss",
    "lts__t_sectors_srcunit_tex_op_read",
    "lts__t_sectors_srcunit_tex_op_write",
    "sm__inst_executed_pipe_tensor_op_gmma",
    "sm__inst_executed_pipe_tensor_op_hmma",
    "sm__inst_executed_pipe_tensor_op_imma",
    "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active",
    "sm__inst_executed_op_shared_stsm",
    "smsp__inst_executed_op_ldsm",
    "smsp__inst_executed_op_shared_ld",
    "smsp__inst_executed_op_shared_st",
    *(f"sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}" for op in ("ld", "ldsm", "st", "stsm", "ldgsts")),
    "smsp__sass_inst_executed_op_tma_ld",
    "smsp__sass_inst_executed_op_tma_st",
}
"""Base names of the metrics that our counters carry."""

NCU_STYLE = re.compile(
    r"(dram|fbpa|gpc|gpu|l1tex|lts|sm|smsp)__[a-z0-9]+(_[a-z0-9]+)*\.(sum|avg|max|min|pct)"
)


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def subclasses(of: type) -> Iterator[type]:
    """Those that their modules have: a dataclass with slots replaces its class, which lives on until it is collected."""
    for kind in of.__subclasses__():
        if vars(import_module(kind.__module__)).get(kind.__qualname__, kind) is kind:
            yield kind
            yield from subclasses(kind)


def every_module() -> None:
    """Import machine, so that all counters are known."""
    package = import_module("gpusim.machine")
    for item in walk_packages(package.__path__, "gpusim.machine."):
        import_module(item.name)


every_module()
COUNTERS = sorted(subclasses(Counters), key=lambda part: part.__name__)
OPS = {
    kind
    for kind in vars(ops).values()
    if inspect.isclass(kind) and issubclass(kind, ops.Op) and kind is not ops.Op
}


# ---------------------------------------------------------------------- ops


def test_every_op_becomes_a_record_of_its_own_kind() -> None:
    assert set(ENCODERS) == OPS
    assert {upper_case(kind.__name__) for kind in OPS} == {kind.name for kind in OpKind} - {"TURN"}


def upper_case(name: str) -> str:
    """``WgmmaFence`` as ``WGMMA_FENCE``."""
    special = {"SetMaxNReg": "SET_MAX_NREG", "FenceAcqRel": "FENCE_ACQ_REL"}
    return special.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def test_an_op_is_frozen_and_says_what_instruction_it_is() -> None:
    for kind in OPS:
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]  # every op is a dataclass
        assert kind.__doc__
        assert not kind.__doc__.startswith(f"{kind.__name__}("), (
            f"{kind.__name__} has only the docstring of a dataclass"
        )


# ---------------------------------------------------------------------- parts


COMMENTS = {name: comment for path in SOURCES for name, comment in comments_of_classes(path).items()}


def test_there_are_parts() -> None:
    parts = {
        "Hbm", "L2", "L2Link", "Crossbar", "StorePort", "L1", "SharedMemory", "MioQueue", "Tma", "Dsmem", "WarpScheduler",
        "TensorCore", "MmaArbiter", "Mbarrier", "InstructionCache", "Dispatcher", "Residency",
    }  # fmt: skip
    assert parts <= {name for name, comment in COMMENTS.items() if "Models:" in comment}


@pytest.mark.parametrize("name", [name for name, comment in COMMENTS.items() if re.search("Models|Ignores", comment)])
def test_a_part_says_what_it_models_and_ignores_and_its_source(name: str) -> None:
    found = re.findall(r"^(Models|Ignores|Source):(?: \S|\n\* )", COMMENTS[name], re.MULTILINE)
    assert found == ["Models", "Ignores", "Source"], COMMENTS[name]


def test_every_kind_is_in_its_table_and_every_spec_frozen() -> None:
    assert {"hbm", "l2", "tma", "mbarrier", "dispatcher", "clock"} < COMPONENT_KINDS.keys()
    for kind, spec in COMPONENT_KINDS.items():
        assert spec.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]  # every Spec is a dataclass


def test_every_memory_component_has_its_file_and_its_row() -> None:
    no_parts = {"__init__", "gpc_ports", "l2_capacity"}
    files = {path.stem for path in (PACKAGE / "machine" / "memory").glob("*.py")} - no_parts
    assert files == {name for name, kind in COMPONENT_KINDS.items() if ".memory." in kind.__module__}


# ---------------------------------------------------------------------- counters


@pytest.mark.parametrize("counters", COUNTERS, ids=lambda counters: counters.__name__)
def test_counters_carry_names_in_nsight_computes_style(counters: type) -> None:
    for item in fields(counters):
        name = item.metadata.get("ncu")
        if name is not None:
            assert NCU_STYLE.fullmatch(name), name
            assert name.split(".")[0] in NCU_NAMES, f"{name} is new: look it up, then add it here"


def test_no_two_counters_have_the_same_name() -> None:
    names = [
        item.metadata["ncu"] for counters in COUNTERS for item in fields(counters) if "ncu" in item.metadata
    ]
    assert len(names) == len(set(names))
    assert {name.split(".")[0] for name in names} == NCU_NAMES


# ---------------------------------------------------------------------- manners


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_module_does_nothing_behind_ones_back(path: Path) -> None:
    assert "print" not in [node.func.id for node in nodes(path, ast.Call) if isinstance(node.func, ast.Name)]
    assert not [node.lineno for node in nodes(path, ast.ExceptHandler) if node.type is None]
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text(path))
    assert not nodes(path, ast.Global)


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.name != "__init__.py" or path.stat().st_size > 1], ids=relative
)
def test_a_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(parsed(path))


def test_an_ignored_rule_has_its_reason_on_the_line() -> None:
    wrong = [
        f"{relative(path)}:{number}"
        for path in MODULES
        for number, line in enumerate(text(path).splitlines(), 1)
        if re.search(r"#\s*(noqa(: [A-Z]+\d+)?|type: ignore(\[[a-z-]+\])?)\s*$", line)
    ]
    assert wrong == []


def test_a_line_of_the_engine_fits() -> None:
    wrong = [
        f"{path.name}:{number}"
        for path in SOURCES
        for number, line in enumerate(text(path).splitlines(), 1)
        if len(line) > MOST_COLUMNS
    ]
    assert wrong == []


# ---------------------------------------------------------------------- how much there is


def lines_of_python(path: Path) -> int:
    """Lines that are no comment, no docstring and not empty."""
    no_code = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    }  # fmt: skip
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text(path)).readline):
        if token.type not in no_code:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in nodes(path, ast.Expr):
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def lines_of_room(room: str) -> int:
    return sum(lines_of_python(path) for path in MODULES if relative(path).startswith(f"{room}/"))


def lines_of_cpp(path: Path) -> int:
    lines = (line.strip() for line in text(path).splitlines())
    return sum(bool(line) and not line.startswith("//") for line in lines)


def test_the_model_is_no_longer_than_it_may_be() -> None:
    order_check = sum(lines_of_python(path) for path in MODULES if path.name.startswith("order"))
    found = {
        "model": sum(map(lines_of_room, ("machine", "program", "traffic", "simulate", "reference"))) - order_check,
        "order check": order_check,
        "reference": lines_of_room("reference"),
        "engine": sum(map(lines_of_cpp, SOURCES)),
    }
    assert {what: num for what, num in found.items() if num > MOST_LINES[what]} == {}
