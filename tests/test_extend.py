"""The examples of ``docs/extend.md``, applied to a copy of the tree and run there."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
MOST_LINES, MOST_COLUMNS = 150, 160
COPIED = ("gpusim", "configs", "engine", "scripts", "validation/held_out.toml")
HAS_COMPILER = any(map(shutil.which, ("g++", "clang++")))
HAS_ZIG = importlib.util.find_spec("ziglang") is not None


def sections() -> dict[str, list[tuple[str, str]]]:
    """For each section its blocks: (what stands behind the fence, text)."""
    parts = re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)[1:]
    block = re.compile(r"^```([^\n]+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return {title: block.findall(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}


SECTIONS = sections()


def patches(diff: str) -> Iterator[tuple[str, str, str]]:
    """(file, text, what replaces it) of each place; a line to remove behind one to add begins another place."""
    path, before, after, was_added = "", "", "", False
    for line in [*diff.splitlines(keepends=True), "+++ \n"]:
        mark = line[0]
        if line.startswith("+++ ") or (mark == "-" and was_added):
            if before or after:
                yield path, before, after
            before = after = ""
        if line.startswith("+++ "):
            path, was_added = line[4:].strip(), False
            continue
        before += line[1:] if mark in " -" else ""
        after += line[1:] if mark in " +" else ""
        was_added = mark == "+"


def files_of(title: str) -> list[str]:
    """The files that an example changes, in order."""
    found = [
        path
        for info, text in SECTIONS[title]
        for path in ([path for path, _, _ in patches(text)] if info == "diff" else [info.split()[1]])
    ]
    return list(dict.fromkeys(found))


def apply(tree: Path, info: str, text: str) -> None:
    """Write the file that a block is, or change those that it names."""
    if info != "diff":
        path = tree / info.split()[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    for name, before, after in patches(text):
        path = tree / name
        found = path.read_text(encoding="utf-8")
        assert found.count(before) == 1, f"docs/extend.md: {name} has {found.count(before)} times:\n{before}"
        path.write_text(found.replace(before, after), encoding="utf-8")


class Tree:
    """A copy of the tree with all examples of the page."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, root / name)
        for blocks in SECTIONS.values():
            for info, text in blocks:
                apply(root, info, text)
        self.env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        self.env.pop("GPUSIM_ENGINE_LIBRARY", None)

    def python(self, *arguments: str) -> str:
        """What Python prints in the copy."""
        ended = subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env=self.env, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def answers(self, questions: Mapping[str, str]) -> dict[str, Any]:
        """The values of expressions over names of :data:`BEFORE`, computed in the copy, by their names."""
        asked = ", ".join(f"{name!r}: {expression}" for name, expression in questions.items())
        found: dict[str, Any] = ast.literal_eval(self.python("-c", f"{BEFORE}\nprint({{{asked}}})"))
        return found


BEFORE = """
from dataclasses import replace
import numpy as np
from gpusim import KERNEL_MODELS, Launch, WarpRole, load_gpu, simulate
from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.machine.config import gpu_names
from gpusim.program.cta_classes import trace_launch
from gpusim.program.records import OpKind
from gpusim.reference import beyond_core
from gpusim.workload import ops
from gpusim.workload.smem.access import AccessPattern

MINE, H200, TOY = (load_gpu(name) for name in ("mine", "h200_sxm", "toy"))
CASE = load_case("ex2_chain")
ATOMIC = AccessPattern(num_requests=4, num_sectors=16, num_lines=4, num_wavefronts=4, num_bytes=512)

def launch(*program):
    roles = (WarpRole(name="all", num_warps=4, program=lambda cta: (op for op in program)),)
    return Launch(kernel="test", num_ctas=8, num_tiles=8, roles=roles)

def run(gpu, *program, engine="native"):
    return simulate(launch(*program), gpu, clock=1000.0, engine=engine)

def record(op):
    row = trace_launch(launch(op), num_ctas=8, panels_of={}, bytes_of={}).ops[0]
    return OpKind(row["kind"]).name, float(row["number"])

def exp2(gpu):
    return simulate(KERNEL_MODELS["exp2"].params(elements=1_000_000).launch(gpu), gpu, clock="max")

def sustained_mhz(gpu):
    params = KERNEL_MODELS["gemm"].params(m=2048, n=2048, k=2048, tile="128x128x64", stages=4)
    return simulate(params.launch(gpu), gpu, clock="sustained").sm_clock_mhz

def chain(length, gpu):
    return CASE.predict({"length": length}, gpu)["cycles"]

def with_latency(cycles):
    return replace(H200, warp_scheduler=replace(H200.warp_scheduler, mufu_latency_cycles=cycles))

def verdict(out):
    try:
        return CASE.check({}, {"out": np.float32([out]), "cycles": np.int64([512])})
    except WrongAnswer:
        return "refused"
"""
"""What every check in the copy begins with."""


LATENCY, ATOMICS = "warp_scheduler.mufu_latency_cycles", "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum"

WITHOUT_ENGINE = {
    "changed": "[name for name, value in MINE.parameters().items() if H200.parameters().get(name) != value]",
    "watts": "MINE.clock.power_limit_w",
    "gpus": "gpu_names()",
    "record": "record(ops.Popc(3.0))",
    "reference": "[run(TOY, *program, engine='reference').cycles for program in ([ops.Popc(96)], [ops.Mufu(96)], [])]",
    "latency": f"[{LATENCY!r} in names for names in (beyond_core(MINE), beyond_core(H200), H200.sources)]",
    "lengths": "[config['length'] for config in CASE.configs('all', 1)]",
    "entry": "CASE.launch(CASE.configs('all', 1)[0], False).kernel",
    "verdicts": "[verdict(np.inf), verdict(1.0)]",
}
"""What the copy is asked before its engine is built."""

WITH_ENGINE = {
    "clocks": "[sustained_mhz(MINE), sustained_mhz(H200)]",
    "native": "[run(TOY, *program).cycles for program in ([ops.Popc(96)], [])]",
    "latencies": "[run(gpu, ops.Mufu(4), ops.Mufu(4)).cycles for gpu in (H200, with_latency(0.0), with_latency(10.0))]",
    "atomics": f"run(H200, ops.GlobalAtomic('sum', (0, 0), ATOMIC, returns=True)).counters[{ATOMICS!r}]",
    "dram": "[exp2(H200).counters[f'dram__bytes{way}.sum'] for way in ('', '_read', '_write')]",
    "chains": "[chain('16', H200), chain('16', MINE), chain('32', H200)]",
}
"""What it is asked then."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The copy, with the engine as it was: its records are others now, so that only the reference runs."""
    return Tree(tmp_path_factory.mktemp("extended"))


@pytest.fixture(scope="module")
def said(tree: Tree) -> dict[str, Any]:
    """Answers without the engine."""
    return tree.answers(WITHOUT_ENGINE)


@pytest.fixture(scope="module")
def built(tree: Tree, said: dict[str, Any]) -> Tree:
    """The copy with its engine built: a library where a compiler is there, else the module."""
    if not (HAS_COMPILER or HAS_ZIG):
        pytest.skip("wants a C++ compiler, or ziglang")
    tree.python("scripts/engine_header.py")
    if HAS_COMPILER:
        tree.python("scripts/build_engine.py", "--native", "engine.so", "--", "-O0", "-g0")
        tree.env["GPUSIM_ENGINE_LIBRARY"] = str(tree.root / "engine.so")
    else:
        tree.python("scripts/build_engine.py")
    return tree


@pytest.fixture(scope="module")
def ran(built: Tree) -> dict[str, Any]:
    """Answers with the engine."""
    return built.answers(WITH_ENGINE)


# ---------------------------------------------------------------------------------------------- the page


def test_the_page_is_short() -> None:
    lines = PAGE.splitlines()
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= MOST_COLUMNS


@pytest.mark.parametrize(("title", "most"), {
    "A GPU": 1, "A kernel model": 2, "An op": 4, "A part of the machine": 4, "A counter": 3, "A measuring kernel": 2,
}.items())  # fmt: skip
def test_an_example_needs_no_more_files_than_the_table_says(title: str, most: int) -> None:
    assert 0 < len(files_of(title)) <= most


def test_the_table_names_the_files_in_the_order_of_the_examples() -> None:
    rows = dict(re.findall(r"^\| \[.*?\]\(#(.*?)\) \| (.*?) \|", PAGE, re.MULTILINE))
    for title in SECTIONS:
        named = re.findall(r"`((?:gpusim|engine|configs|kernels)/[^`]+)`", rows[title.lower().replace(" ", "-")])
        shapes = [re.sub(r"<\w+>", "*", name) for name in named]
        files = [re.sub(r"machine/\w+/", "machine/*/", path) for path in files_of(title)]
        assert len(files) == len(shapes)
        for path, shape in zip(files, shapes, strict=True):
            assert re.fullmatch(re.escape(shape).replace(r"\*", r".+"), path), (path, shape)


# ---------------------------------------------------------------------------------------------- without the engine


def test_the_gpu_loads_and_differs_where_the_page_says(said: dict[str, Any]) -> None:
    assert said["changed"] == [LATENCY, "clock.power_limit_w"]
    assert said["watts"] == 500.0
    assert "mine" in said["gpus"]


def test_the_op_is_recorded_and_the_reference_runs_it(said: dict[str, Any]) -> None:
    assert said["record"] == ("POPC", 3.0)
    popc, mufu, none = said["reference"]
    assert popc == mufu > none


def test_a_parameter_whose_default_is_off_is_beyond_the_core(said: dict[str, Any]) -> None:
    assert said["latency"] == [True, False, False]


def test_the_case_launches_and_refuses_a_wrong_answer(said: dict[str, Any]) -> None:
    assert said["lengths"] == ["16", "32", "64", "128", "256", "512"]
    assert said["entry"] == "chain"
    assert said["verdicts"] == [{"cycles": 512.0}, "refused"]


# ---------------------------------------------------------------------------------------------- with the engine


def test_the_kernel_model_predicts_by_name(built: Tree) -> None:
    text = built.python("-m", "gpusim", "predict", "exp2", "--gpu", "h200_sxm", "--elements", "1000000")
    assert re.search(r"exp2 .*h200_sxm", text, re.DOTALL) and "cycles" in text


def test_the_gpu_runs_within_its_power(ran: dict[str, Any]) -> None:
    mine, h200 = ran["clocks"]
    assert mine < h200


def test_both_engines_run_the_op_alike(said: dict[str, Any], ran: dict[str, Any]) -> None:
    popc, none = ran["native"]
    assert popc == pytest.approx(said["reference"][0])
    assert popc > none == pytest.approx(said["reference"][2])


def test_the_parameter_costs_its_cycles_and_nothing_where_it_is_left_out(ran: dict[str, Any]) -> None:
    left_out, zero, ten = ran["latencies"]
    assert left_out == zero
    assert ten - zero == pytest.approx(2 * 10.0)


def test_the_counters_are_in_the_result(ran: dict[str, Any]) -> None:
    assert ran["atomics"] == 8 * 4.0
    both, read, written = ran["dram"]
    assert both == read + written and read == 4e6


def test_the_case_predicts_what_the_parameter_adds(ran: dict[str, Any]) -> None:
    h200, mine, twice = ran["chains"]
    assert twice == pytest.approx(2 * h200)
    assert mine - h200 == pytest.approx(16 * 10.0)
