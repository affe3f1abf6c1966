"""Grids of CTAs that have nothing in common: what memory bounds, and stores that CTAs leave behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpusim import load_gpu, simulate
from gpusim.program.records import TOTALS
from gpusim.simulate.native_run import native_runs
from gpusim.simulate.plan import check, plan_launch
from gpusim.simulate.settings import Settings
from gpusim.simulate.timeline import WarpState
from gpusim.units import Clock
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

from .kernels import changed, launch
from .streams import stream

H200 = load_gpu("h200_sxm")
CLOCK = 1700.0


def test_a_stream_that_memory_bounds_takes_what_its_bytes_take_of_it() -> None:
    gpu = changed(H200, hbm={"sustained_read_gb_per_s": 1000.0})
    small, large = (simulate(stream(mib, stores=False), gpu, clock=CLOCK).cycles for mib in (64, 128))
    rate = Clock(sm_mhz=CLOCK).bytes_per_cycle(gb_per_s=1000.0)
    assert large - small == pytest.approx(64 * 2**20 / rate, rel=1e-3)


def test_ctas_store_no_faster_than_stores_leave_their_sm() -> None:
    """What CTAs have stored before another one starts on their SM has left it, but for what the queue and the way hold."""
    of = stream(32, num_inputs=0)
    result = simulate(of, H200, clock=CLOCK, recorded_sms=range(H200.num_sms))
    starts = sorted(
        next(end for state, _, end in item.states if state is WarpState.START) for item in result.timeline.roles
        if item.sm_idx == 0
    )  # fmt: skip
    each = 256 * 16
    held = each * (check(of, H200).ctas_per_sm + 8) + H200.xbar.store_in_flight_bytes
    rate = H200.xbar.sm_write_bytes_per_cycle
    for idx, cycle in enumerate(starts):
        assert idx * each <= rate * (cycle - starts[0]) + held


def test_a_kernel_ends_a_way_to_l2_after_a_cta_has_left_that_leaves_stores_behind() -> None:
    gpu = changed(dispatcher={"retire_cycles_per_cta": 5000.0})
    sector = AccessPattern(num_requests=1, num_sectors=1, num_lines=1, num_bytes=32)

    def stores(cta: RoleContext) -> Iterator[ops.Op]:
        yield ops.GlobalStore("out", (cta.cta_idx, 0), sector)

    def nothing(cta: RoleContext) -> Iterator[ops.Op]:
        yield ops.Alu(1)

    drain, way = gpu.dispatcher.drain_cycles, gpu.dispatcher.store_end_cycles
    for program, more in ((stores, way), (nothing, 0.0)):
        plan = plan_launch(launch(program), gpu, is_warm=False)
        ran = native_runs(plan, Settings(max_ops=10, max_events=1000))(Clock(sm_mhz=1000.0), None)
        assert ran.end_cycle == ran.results["totals"][TOTALS.index("last_exit_cycle")] + more + drain
