"""What a summary makes of a native run's sections is what it makes of the Python engine that they were taken from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gpusim import KERNEL_MODELS, GpuSpec, Launch, Result, load_gpu, simulate
from gpusim.errors import LaunchError
from gpusim.program.programs import Programs
from gpusim.program.records import (
    COUNTERS,
    OUTPUT_SECTIONS,
    SM_TOTALS,
    TOTALS,
    dtype_of,
)
from gpusim.simulate.buffers import read_buffer, write_buffer
from gpusim.simulate.engine import Engine
from gpusim.simulate.native import MET, SECTIONS, NativeRun
from gpusim.simulate.pack import trace_plan
from gpusim.simulate.plan import plan_launch
from gpusim.simulate.ran import Ran
from gpusim.simulate.run import clock_share
from gpusim.simulate.summary import activity_of, result_of
from gpusim.units import Clock
from gpusim.workload import ops

from .kernels import TOY, launch, role

MHZ = 1500.0


def sections_of(engine: Engine, programs: Programs) -> dict[str, np.ndarray[Any, Any]]:
    """A run of the Python engine as the sections of a result, through a buffer."""
    launch, timeline, sms = engine.launch, engine.timeline, engine.machine.sms
    roles = {item.name: idx for idx, item in enumerate(launch.roles)}
    stages = {place: idx for idx, place in enumerate(programs.stages)}
    barriers = {place: idx for idx, place in enumerate(programs.barriers)}
    tensors = {name: idx for idx, name in enumerate(programs.tensors)}
    totals = {
        "end_cycle": engine.end_cycle, "num_events": engine.num_events,
        "link_busy_cycles": engine.machine.l2.link_busy_cycles, **{f"has_{name}": name in engine.met for name in MET},
    }
    counted = engine.counted
    found: dict[str, Any] = {
        "totals": [float(totals.get(name, 0.0)) for name in TOTALS],
        "counters": [getattr(getattr(counted, part), name) for part, names in COUNTERS.items() for name in names],
        "role_totals": [engine.role_totals[item.name] for item in launch.roles],
        "epilogue_cycles": [engine.epilogue_cycles.get(item.name, -1.0) for item in launch.roles],
        "sm_totals": [
            [
                sm.active_cycles, sm.warp_scheduler.fma_pipe.busy_cycles, sm.warp_scheduler.issue_slots.busy_cycles,
                sm.smem.data.busy_cycles, sm.l1.unit.busy_cycles, 0.0 if sm.tma is None else sm.tma.engine.busy_cycles,
            ]
            for sm in sms
        ],
        "role_begins": [(item.cta_idx, roles[item.role], item.sm_idx) for item in timeline.roles],
        "role_states": [
            (item.cta_idx, roles[item.role], int(state), start, end)
            for item in timeline.roles for state, start, end in item.states
        ],
        "role_sections": [
            (item.cta_idx, roles[item.role], SECTIONS.index(span.name), span.start_cycle, span.end_cycle)
            for item in timeline.roles for span in item.sections
        ],
        "copy_spans": [
            (
                item.cta_idx, item.sm_idx, stages[item.buffer, item.stage], tensors[item.tensor], item.start_cycle,
                item.end_cycle, item.num_bytes, barriers[item.barrier, item.stage] if item.barrier else -1,
            )
            for item in timeline.copies
        ],
        "read_spans": [
            (
                item.cta_idx, item.sm_idx, roles[item.role], stages[item.buffer, item.stage], item.start_cycle,
                item.end_cycle,
            )
            for item in timeline.reads
        ],
        "mma_spans": [
            (item.cta_idx, item.sm_idx, roles[item.role], item.start_cycle, item.end_cycle, item.num_issues)
            for item in timeline.mmas
        ],
        "phase_flips": [
            (item.cta_idx, item.sm_idx, barriers[item.barrier, item.stage], item.cycle, item.parity)
            for item in timeline.flips
        ],
    }  # fmt: skip
    assert len(found["sm_totals"][0]) == len(SM_TOTALS)
    sections = {name: np.array(found.get(name, []), dtype=dtype_of(name)) for name in OUTPUT_SECTIONS}
    return read_buffer(write_buffer(sections, OUTPUT_SECTIONS), OUTPUT_SECTIONS)


def summary(ran: Ran, l2: str) -> Result:
    """All that is said of a run."""
    return result_of(
        ran, activity_of(ran), settings={"clock": MHZ, "l2": l2, "data": "random"}, mhz=MHZ, simulated_mhz=MHZ, mode="fixed",
        num_events=ran.num_events, wall_s=0.0,
    )


def both(launch: Launch, gpu: GpuSpec, l2: str = "cold", recorded: Sequence[int] = (0, 1)) -> tuple[Engine, NativeRun]:
    """The same run, as either engine has it."""
    clock, is_warm = Clock(sm_mhz=MHZ), l2 == "warm"
    engine = Engine(launch, gpu, clock=clock, is_warm=is_warm, skips=False, recorded_sms=frozenset(recorded))
    engine.run()
    plan = plan_launch(launch, gpu, is_warm=is_warm)
    programs = trace_plan(plan)
    run = NativeRun(plan=plan, programs=programs, clock=clock, ideals=frozenset(), results=sections_of(engine, programs))
    return engine, run


H200 = load_gpu("h200_sxm")
LAUNCHES: dict[str, tuple[str, dict[str, Any], GpuSpec]] = {
    "cooperative": ("gemm", {"m": 512, "n": 512, "k": 512}, H200),
    "pingpong, persistent": ("gemm", {"m": 2048, "n": 2048, "k": 128, "schedule": "pingpong"}, TOY),
    "multistage": ("gemm", {"m": 256, "n": 256, "k": 256, "schedule": "multistage", "tile": "128x128x32"}, TOY),
    "sgemm_naive": ("sgemm_naive", {"m": 128, "n": 128, "k": 64}, TOY),
    "elementwise": ("elementwise", {"elements": 1 << 16}, H200),
    "transpose": ("transpose", {"m": 256, "n": 256}, TOY),
    "softmax": ("softmax", {"rows": 64, "columns": 1024}, TOY),
}


@pytest.mark.parametrize("name", LAUNCHES)
@pytest.mark.parametrize("l2", ["cold", "warm"])
def test_a_summary_of_either_says_the_same(name: str, l2: str) -> None:
    kernel, options, gpu = LAUNCHES[name]
    engine, run = both(KERNEL_MODELS[kernel].params(**options).launch(gpu), gpu, l2)
    assert summary(run, l2) == summary(engine, l2)
    assert clock_share(run) == clock_share(engine)
    assert run.slots_to_run == engine.slots_to_run


def test_a_launch_that_says_nothing_of_what_it_touches_is_counted_as_well() -> None:
    def program(cta: Any) -> Any:
        yield ops.Fma(10.0)
        yield ops.TmaLoad("A", (0, cta.cta_idx), 4096, 4096, 32, "a", 0, "full")
        yield ops.MbarrierArriveExpectTx("full", 0, 4096)
        yield ops.MbarrierWait("full", 0, 0)

    engine, run = both(launch(role(program), num_ctas=6), TOY, "cold")
    assert not run.traffic and run.dram_bytes() == engine.dram_bytes() != (0.0, 0.0)
    assert summary(run, "cold") == summary(engine, "cold")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_sampled_sms": 2}, "num_sampled_sms is 2, the native engine simulates all SMs; wants None"),
        ({"quality": "quick"}, "quality is 'quick', the native engine simulates all; wants 'full'"),
        ({"engine": "fast"}, "engine 'fast' is unknown, wants one of python, native"),
    ],
)
def test_the_native_engine_refuses_what_leaves_something_out(options: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        simulate(launch(role(lambda cta: iter(()))), TOY, **{"engine": "native", **options})
