"""What a page is given to run: the launch that Python would run, at every stop of its sliders."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim.explore.packed_launch import engine_script, launch_document
from gpusim.explore.pipeline import PipelineQuestion
from gpusim.explore.sliders import SLIDERS, scaled
from gpusim.machine.config import gpu_names, load_gpu
from gpusim.program.records import INPUT_SECTIONS, OUTPUT_SECTIONS, dtype_of
from gpusim.simulate.pack import trace_plan
from gpusim.simulate.settings import Settings
from gpusim.simulate.wasm_module import MODULE, EngineRun
from tests.simulate.packed import pack_launch

SMALL = {"m": "512", "n": "512", "k": "512", "tile": "auto", "stages": "auto", "schedule": "auto"}


def launch_of(gpu: str) -> tuple[PipelineQuestion, dict[str, Any]]:
    question = PipelineQuestion.of({**SMALL, "gpu": gpu})
    found = question.planned()
    return question, launch_document(found.plan, trace_plan(found.plan), found.clock)


def moved(launch: dict[str, Any], **factors: float) -> bytes:
    """The launch's buffer with sliders moved, as ``page/run.js`` does it."""
    words: NDArray[np.uint64] = np.frombuffer(b64decode(launch["buffer"]), dtype="<u8").copy()
    for name, factor in factors.items():
        slider = launch["sliders"][name]
        table = np.frombuffer(b64decode(slider["words"]), dtype="<u8").reshape(len(slider["stops"]), -1)
        words[slider["places"]] = table[slider["stops"].index(f"{factor:g}")]
    return words.tobytes()


@pytest.mark.parametrize("gpu", gpu_names())
def test_a_moved_slider_is_a_launch_on_the_gpu_that_it_means(gpu: str) -> None:
    question, launch = launch_of(gpu)
    found = question.planned()
    settings = Settings(recorded_sms="first")

    def packed(**factors: float) -> bytes:
        return pack_launch(found.plan.launch, scaled(found.plan.gpu, factors), found.clock, settings).buffer

    assert moved(launch, **dict.fromkeys(SLIDERS, 1.0)) == packed() == b64decode(launch["buffer"])
    for name, slider in SLIDERS.items():
        for stop in (slider.least, slider.most):
            assert moved(launch, **{name: stop}) == packed(**{name: stop}) != packed()
    both = {"latency": 3.5, "hbm_bandwidth": 0.25, "l2_bandwidth": 1.75}
    assert moved(launch, **both) == packed(**both)
    for one, other in combinations(SLIDERS, 2):
        assert not set(launch["sliders"][one]["places"]) & set(launch["sliders"][other]["places"])


def test_what_runs_for_a_browser_without_scripts_is_what_the_page_runs() -> None:
    question, launch = launch_of("h200_sxm")
    question = question.model_copy(update={"latency": 2.0, "l2_bandwidth": 0.5})
    results = EngineRun(moved(launch, latency=2.0, l2_bandwidth=0.5), kernel="gemm", num_ctas=launch["num_ctas"]).run()
    result = question.run(question.planned())
    assert results["totals"][0] == result.cycles
    assert results["totals"][4] == result.num_events


def test_a_slider_scales_what_it_names_and_nothing_else() -> None:
    gpu = load_gpu("h200_sxm")
    assert scaled(gpu, {"latency": 1.0}) is gpu
    for name, slider in SLIDERS.items():
        there = scaled(gpu, {name: 2.0}).parameters()
        changed = {key: there[key] / value for key, value in gpu.parameters().items() if there[key] != value}
        assert changed == dict.fromkeys(slider.hint.split(", "), 2.0)


def test_the_script_has_the_module_and_every_record() -> None:
    found = re.fullmatch(r"\(globalThis\.gpusim \?\?= \{\}\)\.engine = (\{.*\});\n", engine_script())
    assert found is not None
    engine = json.loads(found[1])
    assert b64decode(engine["module"]) == MODULE.read_bytes()
    for way, names in (("input", INPUT_SECTIONS), ("output", OUTPUT_SECTIONS)):
        assert [section["name"] for section in engine["records"][way]] == list(names)
        for section in engine["records"][way]:
            dtype = dtype_of(section["name"])
            assert [name for name, _ in section["fields"]] == list(dtype.names or ())
            assert section["name"] == "ops" or section["bytes"] == 8 * max(1, len(dtype.names or ())) or not dtype.names
