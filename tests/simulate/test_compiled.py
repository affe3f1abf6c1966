"""Compiled modules: the same to the last bit, and only while the sources are what was compiled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpusim.cli import main
from gpusim.compiled import (
    PACKAGE,
    SWITCH,
    CompiledFinder,
    home,
    is_current,
    manifest_of,
    read_manifest,
)
from gpusim.compiling import build, clean_up, files_to_compile, missing_tools, prepare
from gpusim.errors import ConfigError

LAUNCHES = Path(__file__).with_name("compiled_launches.py")


def predictions(root: Path, *, interpreted: bool) -> dict[str, Any]:
    """What the package in ``root`` predicts, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"}
    environment.pop(SWITCH, None)
    if interpreted:
        environment[SWITCH] = "1"
    ran = subprocess.run(
        [sys.executable, str(LAUNCHES)], env=environment, capture_output=True, text=True, check=False, cwd=root
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.fixture(scope="module")
def compiled_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a compiled package: this one, if it is, else a copy."""
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    manifest = read_manifest()
    if manifest is not None and is_current(manifest):
        return PACKAGE.parent
    root = tmp_path_factory.mktemp("compiled")
    shutil.copytree(PACKAGE, root / "gpusim", ignore=shutil.ignore_patterns("__pycache__", "_compiled"))
    for name in ("configs", "kernels", "validation"):
        if not (root / "gpusim" / name).exists():
            (root / name).symlink_to(PACKAGE.parent / name)
    build(root / "gpusim")
    return root


def test_a_prediction_is_the_same_to_the_last_bit(compiled_root: Path) -> None:
    compiled = predictions(compiled_root, interpreted=False)
    plain = predictions(compiled_root, interpreted=True)
    assert (compiled["state"], plain["state"]) == ("compiled", "interpreted")
    assert len(plain["answers"]) > 50
    for gpu in ("h200_sxm", "toy"):
        assert plain["answers"][f"{gpu} stuck 2"].startswith("DeadlockError: stuck: deadlock: role")
        assert plain["answers"][f"{gpu} stuck 1"]["cycles"] > 0
    for name, answer in plain["answers"].items():
        assert json.dumps(compiled["answers"][name]) == json.dumps(answer), name  # 1 is not 1.0


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with one module that claims to be compiled."""
    package = tmp_path / "gpusim"
    (package / "machine").mkdir(parents=True)
    (package / "units.py").write_text("SECTOR_BYTES = 32\n")
    (package / "machine" / "timing.py").write_text("x = 1\n")
    home(package).mkdir(parents=True)
    manifest = manifest_of(package, {"gpusim.machine.timing": "timing.so"})
    (home(package) / "manifest.json").write_text(json.dumps(manifest))
    return package


def is_used(package: Path) -> bool:
    manifest = read_manifest(package)
    return manifest is not None and is_current(manifest, package)


def test_compiled_modules_are_used_while_sources_stay(package: Path) -> None:
    assert is_used(package)
    os.utime(package / "units.py", (1, 1))  # as a checkout does
    assert is_used(package)


def test_an_edit_makes_them_outdated(package: Path) -> None:
    (package / "machine" / "timing.py").write_text("x = 2\n")
    assert not is_used(package)


def test_an_edit_that_leaves_size_and_time_makes_them_outdated(package: Path) -> None:
    path = package / "machine" / "timing.py"
    before = path.stat()
    path.write_text("x = 3\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert not is_used(package)


def test_a_manifest_that_lists_something_else_is_not_used(package: Path) -> None:
    manifest = read_manifest(package)
    assert manifest is not None
    assert not is_current({**manifest, "sources": []}, package)


def test_a_new_module_makes_them_outdated(package: Path) -> None:
    (package / "machine" / "more.py").write_text("")
    assert not is_used(package)


def test_those_of_another_python_are_not_used(package: Path) -> None:
    manifest = read_manifest(package)
    assert manifest is not None
    assert not is_current({**manifest, "tag": ".cpython-27.so"}, package)


def test_a_broken_manifest_is_none(package: Path) -> None:
    (home(package) / "manifest.json").write_text("{")
    assert read_manifest(package) is None


def test_without_a_compiler_there_is_one_sentence(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install|install gcc"):
        build(package)
    assert is_used(package)  # what was there stays
    monkeypatch.setattr("gpusim.compiled.read_manifest", lambda: None)  # whether or not this tree is compiled
    assert main(["compile"]) == 2
    assert capsys.readouterr().err.startswith("gpusim: compile: ")


def test_they_can_be_forgotten(package: Path) -> None:
    clean_up(package)
    assert read_manifest(package) is None
    assert (package / "machine" / "timing.py").exists()


def test_a_variable_switches_them_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    finder = CompiledFinder(tmp_path, {"gpusim.machine.timing": "timing.so"})
    monkeypatch.delenv(SWITCH, raising=False)
    assert finder.find_spec("gpusim.machine.timing", None) is None  # nothing is there
    (tmp_path / "timing.so").touch()
    spec = finder.find_spec("gpusim.machine.timing", None)
    assert spec is not None
    assert spec.origin == str(tmp_path / "timing.so")
    assert finder.find_spec("gpusim.machine.build", None) is None
    monkeypatch.setenv(SWITCH, "1")
    assert finder.find_spec("gpusim.machine.timing", None) is None


def test_what_is_compiled_is_there_and_caches_nothing_that_mypyc_would_not() -> None:
    files = files_to_compile()
    assert {"machine/timing.py", "machine/memory/xbar.py", "simulate/role.py", "simulate/engine.py"} <= set(files)
    assert not any("cached_property" in (PACKAGE / file).read_text(encoding="utf-8") for file in files)


def test_a_spec_keeps_its_annotations_and_counters_lose_their_slots() -> None:
    source = (
        "from dataclasses import dataclass\n\n"
        "@dataclass(frozen=True, slots=True)\nclass Spec:\n    rate: float\n\n"
        "@dataclass(slots=True)\nclass Counts:\n    num: float = 0.0\n"
    )
    lines = prepare(source).splitlines()
    assert lines[lines.index("class Spec:") - 1] == "@_as_written({'rate': 'float'})"
    assert lines[lines.index("class Counts:") - 1] == "@dataclass"


def test_what_next_returns_is_an_object() -> None:
    prepared = prepare("class Loop:\n    def __next__(self) -> int:\n        return 1\n")
    assert "def __next__(self) -> _Any:" in prepared


def test_states_are_looked_up_once() -> None:
    prepared = prepare("from gpusim.simulate.timeline import WarpState\n\ndef wait():\n    return WarpState.LSU\n")
    assert "_STATE_LSU: _Final = WarpState.LSU\n" in prepared
    assert "    return _STATE_LSU\n" in prepared
