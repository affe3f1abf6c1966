"""A pipeline written by hand: one CTA, a TMA producer, one consumer, a ring of three stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpusim.machine.clock import Activity
from gpusim.machine.sm.occupancy import Occupancy
from gpusim.simulate.bottleneck import Bottleneck
from gpusim.simulate.result import Result
from gpusim.simulate.timeline import CopySpan, MmaSpan, PhaseFlip, ReadSpan, RoleTimeline, Span, Timeline, WarpState

STAGES, STEPS = 3, 12
COPY_CYCLES, MATH_CYCLES, START, WAKE = 700.0, 256.0, 1000.0, 20.0


def pipeline() -> Timeline:
    """Each k-step's copies take 700 cycles, its math 256; the producer refills a stage when its math is over."""
    timeline = Timeline()
    producer = RoleTimeline("producer", 0, 0, 1)
    consumer = RoleTimeline("consumer0", 0, 0, 4)
    timeline.roles += [producer, consumer]
    for role in (producer, consumer):
        role.states.append((WarpState.START, 0.0, START))
    at_producer = at_consumer = START
    math_ends: list[float] = []
    for step in range(STEPS):
        stage = step % STAGES
        if step >= STAGES and math_ends[step - STAGES] > at_producer:
            producer.states.append((WarpState.WAIT_MBARRIER, at_producer, math_ends[step - STAGES]))
            at_producer = math_ends[step - STAGES]
        producer.states.append((WarpState.ISSUE, at_producer, at_producer + 8.0))
        at_producer += 8.0
        landed = at_producer + COPY_CYCLES
        for buffer in "AB":
            timeline.copies.append(CopySpan(0, 0, buffer, stage, buffer, at_producer, landed, 16384.0, "full"))
        timeline.flips.append(PhaseFlip(0, 0, "full", stage, landed, step // STAGES % 2))
        if landed + WAKE > at_consumer:
            consumer.states.append((WarpState.WAIT_MBARRIER, at_consumer, landed + WAKE))
            at_consumer = landed + WAKE
        timeline.reads += [
            ReadSpan(0, 0, "consumer0", buffer, stage, at_consumer, at_consumer + MATH_CYCLES) for buffer in "AB"
        ]
        timeline.mmas.append(MmaSpan(0, 0, "consumer0", at_consumer, at_consumer + MATH_CYCLES, 4))
        consumer.states.append((WarpState.TENSOR, at_consumer, at_consumer + 100.0))
        consumer.states.append((WarpState.WAIT_WGMMA, at_consumer + 100.0, at_consumer + MATH_CYCLES))
        at_consumer += MATH_CYCLES
        math_ends.append(at_consumer)
    consumer.sections.append(Span(START, at_consumer, "mainloop"))
    consumer.sections.append(Span(at_consumer, at_consumer + 900.0, "epilogue"))
    consumer.states.append((WarpState.LSU, at_consumer, at_consumer + 900.0))
    return timeline


def make_result(**changes: Any) -> Result:
    """A prediction with round numbers: 20,000 cycles at 1,000 MHz, 50 % of peak."""
    result = Result(
        kernel="gemm", gpu="toy", params={"m": 256, "tile": "128x256x64"}, cycles=20000.0, sm_clock_mhz=1000.0,
        settings={"clock": "single", "l2": "cold", "data": "random"},
        clock_mode="single", time_us=20.0, tflops=50.0, peak_tflops_at_clock=100.0, peak_tflops_datasheet=200.0,
        bottleneck=Bottleneck(bound_by="latency", reason="role 'consumer0' waits for loads 60% of its life"),
        occupancy=Occupancy(
            ctas_per_sm=1, warps_per_sm=12, max_warps_per_sm=64, limited_by="smem", limits={"smem": 1, "registers": 2},
        ),
        num_ctas=6, num_tiles=6, ctas_at_once=4, waves=1.5, registers_per_thread=168, registers_source="probe: rule 3",
        smem_bytes=100 * 1024, power_w=400.0, power_limit_w=700.0,
        activity=Activity(
            cycles=20000.0, num_flops=1e9, rate_class="f16", l2_bytes=1e6, hbm_bytes=1e6, busy_fraction=1.0
        ),
        counters={
            "sm__cycles_elapsed.max": 20000.0, "dram__bytes_read.sum": 1048576.0,
            "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 4096.0, "launch__grid_size": 6.0,
        },
        busy={"tensor": 0.5, "hbm": 0.0001, "tma": 0.0},
        states={
            "producer": {"issue": 0.25, "wait_mbarrier": 0.75}, "consumer0": {"tensor": 0.4, "wait_mbarrier": 0.6},
        },
        sources={"measured": 60, "published": 30, "inferred": 4, "guess": 7},
        guesses=tuple(f"l2.guess_{idx}_cycles" for idx in range(7)), num_events=12345, wall_s=0.25,
        remarks=("K = 100 is padded to 128.",), timeline=pipeline(),
    )
    named = {name: changes.pop(name) for name in ("bound_by", "reason", "time_shares") if name in changes}
    return replace(result, bottleneck=replace(result.bottleneck, **named), **changes)


@pytest.fixture
def result() -> Result:
    """A prediction with round numbers and a hand-made timeline."""
    return make_result()


@pytest.fixture(name="make_result")
def make_result_fixture() -> Callable[..., Result]:
    """Makes one with fields changed."""
    return make_result
