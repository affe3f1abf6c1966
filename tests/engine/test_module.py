"""The module carries its sources' digest, and asks for nothing. ``build_engine.py --check`` compares it byte for byte."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import wasmtime

from gpusim.simulate.wasm_module import CONSTRUCTORS, MODULE, WASM_EXPORTS

ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    """``scripts/build_engine.py``, which is in no package."""
    spec = importlib.util.spec_from_file_location("build_engine", ROOT / "scripts" / "build_engine.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_engine"] = module
    spec.loader.exec_module(module)
    return module


BUILD = script()

needs_zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None or importlib.metadata.version("ziglang") != BUILD.ZIGLANG,
    reason=f"wants ziglang {BUILD.ZIGLANG}",
)

SMALL = {
    "api.h": "#pragma once\nint twice(int x);\n",
    "api.cpp": '#include "api.h"\nint twice(int x) { return 2 * x; }\n',
    "exports.cpp": """
#include <stdint.h>
#include "api.h"
struct Counter { Counter() { count++; } int count = 0; };
static Counter counter;
static uint8_t memory[64];
extern "C" {
uint8_t* allocate(uint32_t) { return memory; }
int32_t create(uint8_t*, uint32_t) { return 0; }
int32_t run_slice(uint32_t) { return 1; }
double progress(int32_t) { return counter.count; }
uint8_t* results() { return memory; }
double numeric(int32_t which, double x, double) { return which ? __builtin_sqrt(x) : twice(int(x)); }
double evaluate(int32_t, double a, double b, double c, double d, double e) { return a + b + c + d + e; }
}
""",
}
"""Sources of an engine that does nothing."""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder of them."""
    folder = tmp_path / "engine"
    folder.mkdir()
    for name, text in SMALL.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_the_module_is_of_these_sources() -> None:
    assert MODULE.is_file(), "there is no module: run python scripts/build_engine.py"
    found = BUILD.digest_of(MODULE.read_bytes())
    assert found == BUILD.digest(), "the module is stale: run python scripts/build_engine.py"


def test_the_module_imports_nothing_and_exports_what_it_must() -> None:
    module = wasmtime.Module(wasmtime.Engine(), MODULE.read_bytes())
    assert not list(module.imports)
    assert {item.name for item in module.exports} == {"memory", CONSTRUCTORS, *WASM_EXPORTS}
    assert BUILD.EXPORTS == WASM_EXPORTS and BUILD.CONSTRUCTORS == CONSTRUCTORS


@needs_zig
def test_globals_are_constructed_once_in_each_instance(sources: Path, tmp_path: Path) -> None:
    BUILD.build_module(tmp_path / "small.wasm", folder=sources)
    from gpusim.simulate.wasm_module import EngineModule

    module = EngineModule.of_wasm(tmp_path / "small.wasm")
    instance = module.new_instance()
    assert [instance.call("progress", 0) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert (module.numeric(0, 21.0), module.numeric(1, 2.0), module.evaluate(0, 1.0, 2.0)) == (42.0, 2.0**0.5, 3.0)


def test_the_digest_follows_names_and_texts_of_sources_and_not_line_ends(sources: Path) -> None:
    first = BUILD.digest(sources)
    (sources / "api.h").write_bytes(SMALL["api.h"].replace("\n", "\r\n").encode())
    assert BUILD.digest(sources) == first
    (sources / "api.cpp").rename(sources / "other.cpp")
    renamed = BUILD.digest(sources)
    (sources / "other.cpp").write_text("int twice(int x) { return x + x; }\n")
    assert len({first, renamed, BUILD.digest(sources)}) == 3


@pytest.mark.skipif(shutil.which("g++") is None, reason="wants g++")
def test_a_shared_library_of_the_same_sources_answers_alike(sources: Path, tmp_path: Path) -> None:
    from gpusim.simulate.wasm_module import EngineModule

    BUILD.build_native(tmp_path / "engine.so", folder=sources, flags=("-DNOTHING",))
    module = EngineModule.of_library(str(tmp_path / "engine.so"))
    assert (module.numeric(0, 21.0), module.numeric(1, 2.0), module.evaluate(0, 1.0, 2.0)) == (42.0, 2.0**0.5, 3.0)


@needs_zig
def test_sources_that_do_not_compile_leave_the_module_as_it_was(sources: Path, tmp_path: Path) -> None:
    (sources / "api.cpp").write_text("int twice(int x) { return y; }\n")
    output = tmp_path / "small.wasm"
    output.write_bytes(b"before")
    with pytest.raises(SystemExit, match="ended with status 1"):
        BUILD.build_module(output, folder=sources)
    assert output.read_bytes() == b"before"


def test_the_version_that_builds_it_is_the_one_that_is_installed_for_it() -> None:
    assert f'"ziglang=={BUILD.ZIGLANG}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
