"""Data for a page that runs a launch: the WebAssembly engine with the names of its records, and the packed launch.

In: a planned and traced launch. Out: JSON for the scripts in ``page/``. Buffer layouts, names of states and parts, and
colours of pictures are taken from their definitions in Python.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpusim.explore.sliders import SLIDERS, changed_words
from gpusim.machine.counters import COUNTERS
from gpusim.machine.exact_math import sum_in_order
from gpusim.program.programs import Programs
from gpusim.program.records import CONSTANTS, FAILURE, INPUT_SECTIONS, OUTPUT_SECTIONS, SM_TOTALS, TOTALS, Failure, dtype_of
from gpusim.report.plots import ring as plots_ring
from gpusim.report.plots import timeline as plots
from gpusim.report.plots import window
from gpusim.report.plots.figure import ORANGE, SKY
from gpusim.report.plots.timeline import Look
from gpusim.simulate import bottleneck
from gpusim.simulate.bottleneck import BUSY, COMPUTES, SENTENCES, TIMES, WAITS_FOR, Fixed
from gpusim.simulate.buffers import HEADER, PLACE
from gpusim.simulate.pack import pack
from gpusim.simulate.plan import LaunchPlan, peak_flops_per_cycle
from gpusim.simulate.settings import Settings
from gpusim.simulate.timeline import WarpState
from gpusim.simulate.wasm_module import MODULE
from gpusim.units import Clock


def engine_script() -> str:
    """Script that gives a page the engine's module, the layout of its buffers, and the words of its pictures."""
    found = {
        "records": {
            "header_bytes": HEADER.size, "place_bytes": PLACE.size, "input": _sections(INPUT_SECTIONS),
            "output": _sections(OUTPUT_SECTIONS),
            "numbers": {
                **{f"constants_{part}": names for part, names in CONSTANTS.items()},
                "totals": TOTALS, "sm_totals": SM_TOTALS, "failure": FAILURE,
                "counters": [f"{part}.{name}" for part, names in COUNTERS.items() for name in names],
            },
            "failures": [kind.name.lower().replace("_", " ") for kind in Failure],
        },
        "states": [{"name": state.label, **_look(plots.LOOKS[state])} for state in WarpState],
        "looks": {
            "copy": _look(plots.COPY), "mma": _look(plots.MMA), "own_mma": _look(plots.OWN_MMA),
            "limits": _look(Look("limits", ORANGE, "////")), "admits": _look(Look("admits more", SKY)),
            **{state.name.lower(): _look(look) for state, look in plots_ring.LOOKS.items()},
        },
        "busy": BUSY, "computes": COMPUTES, "waits": WAITS_FOR, "times": TIMES, "sentences": SENTENCES,
        "math": bottleneck.MATH, "work": bottleneck.WORK,
        "limits": {name: getattr(bottleneck, name.upper()) for name in ("notable", "saturated", "listed")},
        "most_ctas": plots.MAX_CTAS, "fills_shown": window.COPIES_SHOWN, "given_back": plots_ring.GIVEN_BACK,
        "module": b64encode(MODULE.read_bytes()).decode(),
    }  # fmt: skip
    return f"(globalThis.gpusim ??= {{}}).engine = {json.dumps(found)};\n"


def _sections(names: Sequence[str]) -> list[dict[str, Any]]:
    """Name and element bytes of each section; of tables also the fields as (name, kind): f8, i8."""
    found = []
    for name in names:
        dtype = dtype_of(name)
        fields = [(field, of[0].str.lstrip("<|")) for field, of in (dtype.fields or {}).items()]
        found.append({"name": name, "bytes": dtype.itemsize, "fields": fields})
    return found


def _look(look: Look) -> dict[str, str]:
    return {"label": look.label, "colour": look.colour, "hatch": look.hatch}


def launch_document(plan: LaunchPlan, programs: Programs, clock: Clock) -> dict[str, Any]:
    """JSON document of a packed launch: its buffer, the changes by sliders, and data for its results.

    Raises:
        LaunchError: the launch has ops that the GPU lacks.
    """
    launch, gpu = plan.launch, plan.gpu
    settings = Settings(recorded_sms="first")
    return {
        "buffer": b64encode(pack(plan, programs, clock, settings)).decode(),
        "sliders": {name: changed_words(name, plan, programs, clock, settings) for name in SLIDERS},
        "kernel": launch.kernel, "gpu": gpu.name, "num_ctas": plan.num_ctas, "num_sms": gpu.num_sms,
        "clock_mhz": clock.sm_mhz, "num_flops": launch.num_flops,
        "peak_tflops": peak_flops_per_cycle(launch, gpu) * clock.sm_mhz / 1e6,
        "planned_dram_bytes": None if not plan.traffic else [
            sum_in_order(item.read_miss_bytes for item in plan.traffic.values()),
            sum_in_order(item.written_back_bytes for item in plan.traffic.values()),
        ],
        "fixed": asdict(Fixed.of(plan)),
        "roles": [role.name for role in launch.roles], "stages": programs.stages, "barriers": programs.barriers,
        "limits": dict(plan.occupancy.limits),
    }  # fmt: skip
