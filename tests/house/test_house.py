"""The house keeps its order: who imports whom, what the engine says of its parts, what no module does, how much there is."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import gpusim
from gpusim.machine.component import Counters
from gpusim.machine.config import COMPONENT_KINDS
from gpusim.program.encode import ENCODERS
from gpusim.program.records import OpKind
from gpusim.workload import ops

PACKAGE = Path(gpusim.__file__).resolve().parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ENGINE = PACKAGE.parent / "engine"
SOURCES = sorted(path for path in (*ENGINE.glob("*.h"), *ENGINE.glob("*.cpp")) if path.name != "records.h")
"""Of the engine, what is written by hand."""

MOST_COLUMNS = 110
MOST_LINES = {"model": 6_453, "reference": 1_200, "engine": 6_000}
"""Of code: of machine, program, traffic, simulate and reference together; of the reference alone; of the engine."""

MAY_IMPORT = {
    "errors": set(),
    "units": set(),
    "layout": {"errors", "units"},
    "workload": {"errors", "units", "layout"},
    "kernel_models": {"errors", "units", "layout", "workload"},
    "machine": {"errors", "units"},
    "program": {"errors", "units", "workload"},
    "reference": {"errors", "units", "workload", "machine", "traffic"},
    "traffic": {"errors", "units", "workload", "machine"},
    "simulate": {"errors", "units", "workload", "machine", "program", "reference", "traffic"},
}
"""Which rooms a room may use, itself aside; ``report``, ``evidence``, ``lessons`` and ``cli`` come after these."""

LIVES_IN = {
    "simpy": ("reference/",),
    "matplotlib": ("report/plots/",),
    "pycuda": ("evidence/bench/gpu.py",),
    "torch": ("evidence/bench/frameworks.py",),
    "triton": ("evidence/bench/frameworks.py",),
    "starlette": ("explore/app.py",),
    "uvicorn": ("explore/app.py",),
    "jinja2": ("explore/pages.py",),
    "wasmtime": ("simulate/wasm_module.py",),
}
"""Where each of these may be imported."""

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


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Dotted names of all that a module imports, wherever it does, and for the type checker, too."""
    package = ["gpusim", *path.relative_to(PACKAGE).parts[:-1]]
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, node.module] if node.module else base)
            names += (module, *(f"{module}.{alias.name}" for alias in node.names))
    return tuple(names)


def rooms(path: Path) -> set[str]:
    """Rooms of gpusim that a module imports."""
    known = {
        item.stem for item in PACKAGE.iterdir() if item.suffix == ".py" or (item / "__init__.py").is_file()
    }
    return {name.split(".")[1] for name in imports(path) if name.startswith("gpusim.")} & known


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


# ---------------------------------------------------------------------- imports


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_rooms_to_its_left(room: str) -> None:
    of_room = [
        path for path in MODULES if relative(path) == f"{room}.py" or relative(path).startswith(f"{room}/")
    ]
    assert of_room
    wrong = {relative(path): found for path in of_room if (found := rooms(path) - MAY_IMPORT[room] - {room})}
    assert wrong == {}


def test_nobody_imports_the_command_line() -> None:
    wrong = [
        relative(path)
        for path in MODULES
        if "cli" in rooms(path) and relative(path) != "__main__.py" and not relative(path).startswith("cli/")
    ]
    assert wrong == []


def test_nobody_imports_the_lessons() -> None:
    wrong = [relative(path) for path in MODULES if "lessons" in rooms(path) and not relative(path).startswith("lessons/")]
    assert wrong == []


def test_only_the_command_line_imports_the_explorer() -> None:
    users = [relative(path) for path in MODULES if "explore" in rooms(path)]
    wrong = [user for user in users if not user.startswith(("cli/", "explore/"))]
    assert wrong == []


@pytest.mark.parametrize("library", LIVES_IN)
def test_a_library_lives_in_its_own_place(library: str) -> None:
    users = [
        relative(path) for path in MODULES if any(name.split(".")[0] == library for name in imports(path))
    ]
    assert [user for user in users if not user.startswith(LIVES_IN[library])] == []


def test_a_type_checkers_import_counts_as_one() -> None:
    """The net has no hole: a relative import, and one under TYPE_CHECKING, are both found."""
    assert "gpusim.workload.launch" in set(imports(PACKAGE / "__init__.py"))


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


def told(path: Path) -> dict[str, str]:
    """What stands above each class of a file of the engine."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(r"((?:^//.*\n)+)(?:template .*\n)?(?:class|struct) (\w+)", text, re.MULTILINE)
    return {name: re.sub(r"^// ?", "", comment, flags=re.MULTILINE) for comment, name in found}


TOLD = {name: comment for path in SOURCES for name, comment in told(path).items()}


def test_there_are_parts() -> None:
    parts = {
        "Hbm", "L2", "L2Link", "Crossbar", "StorePort", "L1", "SharedMemory", "MioQueue", "Tma", "Dsmem", "WarpScheduler",
        "TensorCore", "MmaArbiter", "Mbarrier", "InstructionCache", "Dispatcher", "Residency",
    }  # fmt: skip
    assert parts <= {name for name, comment in TOLD.items() if "Models:" in comment}


@pytest.mark.parametrize("name", [name for name, comment in TOLD.items() if re.search("Models|Ignores", comment)])
def test_a_part_says_what_it_models_and_ignores_and_its_source(name: str) -> None:
    found = re.findall(r"^(Models|Ignores|Source):(?: \S|\n\* )", TOLD[name], re.MULTILINE)
    assert found == ["Models", "Ignores", "Source"], TOLD[name]


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
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    calls = [
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert "print" not in calls
    assert not [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", source)
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Global)]


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.name != "__init__.py" or path.stat().st_size > 1], ids=relative
)
def test_a_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_an_ignored_rule_has_its_reason_on_the_line() -> None:
    wrong = [
        f"{relative(path)}:{number}"
        for path in MODULES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"#\s*(noqa(: [A-Z]+\d+)?|type: ignore(\[[a-z-]+\])?)\s*$", line)
    ]
    assert wrong == []


def test_a_line_of_the_engine_fits() -> None:
    wrong = [
        f"{path.name}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MOST_COLUMNS
    ]
    assert wrong == []


# ---------------------------------------------------------------------- how much there is


def lines_of_python(path: Path) -> int:
    """Lines that are no comment, no docstring and not empty."""
    text = path.read_text(encoding="utf-8")
    no_code = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    }  # fmt: skip
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in no_code:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def lines_of_room(room: str) -> int:
    return sum(lines_of_python(path) for path in MODULES if relative(path).startswith(f"{room}/"))


def lines_of_cpp(path: Path) -> int:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return sum(bool(line) and not line.startswith("//") for line in lines)


def test_the_model_is_no_longer_than_it_may_be() -> None:
    found = {
        "model": sum(map(lines_of_room, ("machine", "program", "traffic", "simulate", "reference"))),
        "reference": lines_of_room("reference"),
        "engine": sum(map(lines_of_cpp, SOURCES)),
    }
    assert {what: num for what, num in found.items() if num > MOST_LINES[what]} == {}
