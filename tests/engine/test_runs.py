"""A run of a module, whatever it computes: bytes go in and come back, slices are short, ends are told."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import wasmtime

from gpusim.errors import SimulationError
from gpusim.program.records import INPUT_SECTIONS, OUTPUT_SECTIONS, Failure, dtype_of
from gpusim.simulate import wasm_module as engine_room
from gpusim.simulate.buffers import write_buffer
from gpusim.simulate.wasm_module import LIBRARY_VARIABLE, EngineModule, EngineRun, WasmInstance, engine_module

ECHO = """
(module
  (memory (export "memory") 1)
  (global $events (mut f64) (f64.const 0))
  (global $section (mut f64) (f64.const -1))
  (func (export "allocate") (param i32) (result i32)
    (drop (memory.grow (i32.add (i32.shr_u (local.get 0) (i32.const 16)) (i32.const 1))))
    (i32.const 65536))
  (func (export "create") (param i32 i32) (result i32) {create})
  (func (export "run_slice") (param $most i32) (result i32) (local $left i32)
    (local.set $left (local.get $most))
    (loop $again
      (global.set $events (f64.add (global.get $events) (f64.const 1)))
      (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    {run})
  (func (export "progress") (param i32) (result f64)
    (if (i32.eq (local.get 0) (i32.const 4)) (then (return (global.get $section))))
    (if (i32.eq (local.get 0) (i32.const 3)) (then (return (f64.const 0))))
    (f64.mul (global.get $events) (f64.convert_i32_s (i32.add (local.get 0) (i32.const 1)))))
  (func (export "results") (result i32) {results})
  (func (export "numeric") (param i32 f64 f64) (result f64) (f64.mul (local.get 1) (local.get 2)))
  (func (export "evaluate") (param i32 f64 f64 f64 f64 f64) (result f64) (local.get 1)))
"""
"""An engine that gives back what it was given; it has three things to do otherwise."""

AFTER = "(i32.ge_u (i32.trunc_f64_u (global.get $events)) (i32.const {}))"
FULL = "(drop (memory.grow (i32.const 65400))) unreachable"


STOPPED = (
    rf"^test: the engine stopped \(.*cycle {2 * engine_room.FIRST_EVENTS}, "
    rf"{engine_room.FIRST_EVENTS} of 8 CTAs have exited\), "
    "which is a fault"
)


def echo(*, create: str = "i32.const 0", run: str = "i32.const 1", results: str = "i32.const 65536") -> EngineModule:
    """The engine, with other bodies of some functions."""
    engine = wasmtime.Engine()
    code = wasmtime.wat2wasm(ECHO.format(create=create, run=run, results=results))
    compiled = wasmtime.Module(engine, code)
    return EngineModule(lambda: WasmInstance(engine, compiled), "echo")


def result(**sections: Any) -> bytes:
    """A result buffer, empty but for some sections."""
    every = {name: np.zeros(0, dtype=dtype_of(name)) for name in OUTPUT_SECTIONS}
    return write_buffer({**every, **sections}, OUTPUT_SECTIONS)


def run(module: EngineModule, packed: bytes = b"", **options: Any) -> dict[str, Any]:
    """What comes back of a run."""
    return EngineRun(packed or result(), kernel="test", num_ctas=8, module=module).run(**options)


def test_what_goes_in_comes_back_as_it_was() -> None:
    totals, trace = np.arange(15.0), np.zeros(300_000, dtype=dtype_of("trace"))
    trace["cycle"] = np.arange(len(trace)) / 3.0
    found = run(echo(), result(totals=totals, trace=trace))
    assert found["totals"].tolist() == totals.tolist()
    assert (found["trace"] == trace).all()
    assert set(found) == set(OUTPUT_SECTIONS)
    assert sum(len(part) for part in found.values()) == len(totals) + len(trace)


def test_a_run_goes_on_in_slices_until_it_is_over_and_tells_how_far_it_is() -> None:
    told: list[tuple[int, int, float]] = []
    run(echo(run=AFTER.format(200_000_000)), on_progress=lambda *so_far: told.append(so_far))
    assert told == sorted(told)
    assert {num_ctas for _, num_ctas, _ in told} == {8}
    assert all(cycle == 2.0 * done for done, _, cycle in told)
    assert told[0][0] == engine_room.FIRST_EVENTS
    assert told[1][0] > 2 * told[0][0], "slices grow until they take long enough"


def test_slices_are_short_so_that_an_interruption_is_soon_heard() -> None:
    interrupted_at: list[float] = []

    def interrupt() -> None:
        interrupted_at.append(time.perf_counter())
        _thread.interrupt_main()

    timer = threading.Timer(0.3, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(echo(run="i32.const 0"))
    timer.join()
    assert time.perf_counter() - interrupted_at[0] < 10 * engine_room.SLICE_S


def test_a_run_that_failed_gives_its_results_too() -> None:
    failure = np.arange(10.0)
    assert run(echo(run="i32.const 2"), result(failure=failure))["failure"].tolist() == failure.tolist()


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ({"run": "unreachable"}, STOPPED),
        ({"run": "(i32.load (i32.const -8))"}, "^test: the engine stopped"),
        ({"run": FULL}, "^test: the engine is out of memory, of which it has up to 4 GiB"),
        ({"results": "i32.const 0"}, "^test: the engine is out of memory"),
        ({"results": "i32.const -16"}, "^test: the engine stopped .*do not lie in memory"),
        ({"create": f"i32.const {Failure.OUT_OF_MEMORY}"}, "^test: the engine is out of memory"),
        ({"create": f"i32.const {Failure.BAD_BUFFER}"}, r"^test: echo does not take the packed launch \(the header\)"),
        (
            {"create": f"(global.set $section (f64.const 3)) (i32.const {Failure.BAD_BUFFER})"},
            rf"^test: echo does not take the packed launch \({INPUT_SECTIONS[3]}\); it may be of another version$",
        ),
        ({"create": "unreachable"}, "^test: the engine stopped"),
    ],
)
def test_an_end_that_was_not_meant_is_one_sentence(bodies: dict[str, str], said: str) -> None:
    with pytest.raises(SimulationError, match=said) as caught:
        run(echo(**bodies))
    assert "\n" not in str(caught.value)


def test_runs_do_not_know_of_each_other() -> None:
    module = echo(run=AFTER.format(50_000))
    runs = [EngineRun(result(totals=np.full(15, float(idx))), kernel="test", num_ctas=1, module=module) for idx in range(3)]
    assert [item.run_slice(30_000) for item in runs] == [0, 0, 0]
    assert [item.run_slice(30_000) for item in runs] == [1, 1, 1]
    assert [item.results()["totals"][0] for item in runs] == [0.0, 1.0, 2.0]
    assert [item.num_ctas_done for item in runs] == [60_000] * 3  # as the echo counts them


def test_what_the_engine_computes_for_tests_can_be_asked_for() -> None:
    assert echo().numeric(0, 3.0, 4.0) == 12.0
    assert echo().evaluate(0, 5.0) == 5.0


def test_without_a_module_one_is_told_how_to_build_it(monkeypatch: Any, tmp_path: Any) -> None:
    with pytest.raises(SimulationError, match=r"engine.wasm is missing, wants: python scripts/build_engine.py"):
        EngineModule.of_wasm(tmp_path / "engine.wasm")
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path / "none.so"))
    with pytest.raises(SimulationError, match=r"GPUSIM_ENGINE_LIBRARY=.*none.so: .*wants what build_engine.py --native"):
        engine_module()


def test_without_a_folder_for_its_cache_the_module_is_compiled_all_the_same(monkeypatch: Any, tmp_path: Any) -> None:
    refused = []

    class Config(wasmtime.Config):
        def _refuse(self, enabled: bool) -> None:
            refused.append(enabled)
            raise wasmtime.WasmtimeError("failed to create cache directory")

        cache: Any = property(None, _refuse)

    code = ECHO.format(create="i32.const 0", run="i32.const 1", results="i32.const 0")
    (tmp_path / "echo.wasm").write_bytes(wasmtime.wat2wasm(code))
    monkeypatch.setattr(wasmtime, "Config", Config)
    assert EngineModule.of_wasm(tmp_path / "echo.wasm").numeric(0, 2.0, 3.0) == 6.0
    assert refused == [True]


@pytest.mark.parametrize("write", [bytes, bytearray])
def test_any_block_of_bytes_goes_in(write: Callable[[bytes], Any]) -> None:
    assert run(echo(), write(result(totals=np.ones(15))))["totals"].sum() == 15.0
