"""Grids of CTAs that have nothing in common: SMs stand for others, waves are left out, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusim import GemmParams, Launch, load_gpu, simulate
from gpusim.kernel_models.transpose import TransposeParams
from gpusim.machine.memory.links import are_gpcs_one, like_gpcs
from gpusim.simulate.door import check, count_slots
from gpusim.simulate.engine import Engine
from gpusim.simulate.representatives import MOST_OF_GPCS, MOST_STOOD_FOR, Draw, representatives
from gpusim.simulate.timeline import WarpState
from gpusim.simulate.uses import Uses
from gpusim.units import Clock
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.launch import RoleContext

from .kernels import TOY, changed, launch
from .streams import stream
from .test_skipping import hold_together

H200 = load_gpu("h200_sxm")
CLOCK = 1700.0
KINDS: dict[str, dict[str, Any]] = {
    "copy": {}, "add": {"num_inputs": 2}, "fill": {"num_inputs": 0}, "sum": {"stores": False},
    "copy of 64 threads": {"threads": 64}, "copy of 1024 threads": {"threads": 1024}, "copy by turns": {"num_steps": 2},
}  # fmt: skip
MOVED = (
    "dram__bytes_read.sum", "dram__bytes_write.sum", "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1tex__m_l1tex2xbar_write_bytes.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
)  # fmt: skip
"""Counters that no timing can move."""


def stood_for(of: Launch) -> dict[int, int]:
    """SMs that are simulated, and for how many."""
    held = check(of, H200)
    assert of.num_ctas is not None
    return dict(representatives(
        of, H200, held, Uses.of(of, H200), num_slots=count_slots(of, H200, held), num_ctas=of.num_ctas
    ))


# ---------------------------------------------------------------------- who stands for whom


@pytest.mark.parametrize("threads", [64, 256, 1024])
def test_every_sm_is_stood_for_once_by_one_of_its_gpc(threads: int) -> None:
    alike = stood_for(stream(0.5 * threads, threads=threads))  # 32,768 CTAs
    plan = H200.floorplan
    assert len(alike) < H200.num_sms and max(alike.values()) <= MOST_STOOD_FOR
    for gpc_idx in range(len(plan.members)):
        mine = [num for sm_idx, num in alike.items() if plan.gpc_of_sm[sm_idx] == gpc_idx]
        assert sum(mine) == plan.gpc_of_sm.count(gpc_idx)
    assert sum(num for sm_idx, num in alike.items() if sm_idx in plan.lone) == len(plan.lone)


@pytest.mark.parametrize("threads", [64, 256, 1024])
def test_in_a_grid_of_many_ctas_like_gpcs_of_a_side_are_one(threads: int) -> None:
    alike, fewer = (stood_for(stream(share * threads, threads=threads)) for share in (0.5, 0.75))
    plan, first = H200.floorplan, like_gpcs(H200.floorplan)
    assert len(fewer) < len(alike) and max(fewer.values()) <= MOST_OF_GPCS
    assert are_gpcs_one(plan, fewer) and not are_gpcs_one(plan, alike)
    for gpc_idx in set(first):
        sides = {plan.side_of_sm[sm_idx] for sm_idx, of_sm in enumerate(first) if of_sm == gpc_idx}
        assert len(sides) == 1
        assert sum(num for sm_idx, num in fewer.items() if first[sm_idx] == gpc_idx) == first.count(gpc_idx)
    assert sum(num for sm_idx, num in fewer.items() if sm_idx in plan.lone) == len(plan.lone)


def test_in_a_grid_of_less_than_a_wave_sms_stand_for_those_with_as_many_ctas() -> None:
    of = replace(stream(4, threads=64), num_ctas=3000, num_tiles=3000)  # 22 or 23 an SM, of 32 that fit
    engine = Engine(of, H200, clock=Clock(sm_mhz=CLOCK))
    counts = dict.fromkeys(range(H200.num_sms), 0)
    for (sm_idx,) in engine.machine.dispatcher.slots[:3000]:
        counts[sm_idx] += 1
    assert set(counts.values()) == {22, 23} and 1 < len(engine.alike) < H200.num_sms
    assert sum(num * counts[sm_idx] for sm_idx, num in engine.alike.items()) == 3000


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(stream(2), id="a small grid"),
        pytest.param(stream(64, shared_by=2), id="two CTAs read the same"),
        pytest.param(GemmParams(m=8192, n=8192, k=512).launch(H200), id="gemm"),
    ],
)
def test_nobody_stands_for_others_in(of: Launch) -> None:
    assert not stood_for(of)


def test_who_asks_for_sms_gets_all_of_them_and_who_asks_for_the_first_gets_that_of_cta_0() -> None:
    of = stream(32)
    assert not any("stands for" in remark for remark in simulate(of, H200, clock=CLOCK, recorded_sms={5}).remarks)
    result = simulate(of, H200, clock=CLOCK, recorded_sms="first")
    assert any("stands for" in remark for remark in result.remarks)
    assert 0 in {item.cta_idx for item in result.timeline.roles}


# ---------------------------------------------------------------------- and nothing else changes


SWINGS = pytest.mark.xfail(
    strict=True, reason="0.95 % at this clock, 0.4 at 1690 and 1710 MHz (validation/deviations.md, 2)"
)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=SWINGS if kind == "copy by turns" else ()) for kind in KINDS])
def test_sms_that_stand_for_others_come_near_all_of_them(kind: str) -> None:
    """Within 0.6 %, at four waves (validation/deviations.md, 3)."""
    of = stream(32 * KINDS[kind].get("num_steps", 1), **KINDS[kind])
    whole = simulate(of, H200, clock=CLOCK, num_sampled_sms=H200.num_sms, skips=False)
    some = simulate(of, H200, clock=CLOCK, skips=False)
    assert some.num_events < whole.num_events / 2
    assert some.cycles == pytest.approx(whole.cycles, rel=6e-3)
    assert {name: some.counters[name] for name in MOVED} == pytest.approx(
        {name: whole.counters[name] for name in MOVED}, rel=1e-3
    )
    for part, share in whole.busy.items():
        assert some.busy[part] == pytest.approx(share, abs=0.01), part


@pytest.mark.parametrize("extents", [(4097, 6001), (1056, 40001)])
def test_edge_tiles_are_drawn_in_proportion(extents: tuple[int, int]) -> None:
    """The last row and column of tiles are thin: a line of one, 17 of 32 of the other. What is moved is counted rightly."""
    of = TransposeParams(m=extents[0], n=extents[1]).launch(H200)
    whole = simulate(of, H200, clock=CLOCK, num_sampled_sms=H200.num_sms, skips=False)
    some = simulate(of, H200, clock=CLOCK)
    assert some.num_events < whole.num_events / 5
    assert some.cycles == pytest.approx(whole.cycles, rel=5e-3)
    assert {name: some.counters[name] for name in MOVED} == pytest.approx(
        {name: whole.counters[name] for name in MOVED}, rel=2e-3
    )


def test_each_kind_is_drawn_as_often_as_it_is_there() -> None:
    """One in ten is an edge, nine in a row of a hundred: whoever stands for 7 owes nobody more than twice that."""
    kinds = np.array([int(idx % 10 == 3) + 2 * (idx % 100 > 90) for idx in range(7000)])
    draw, found = Draw(kinds), np.zeros(kinds.max() + 1)
    drawn = [draw.draw(first, 7, 7.0) for first in range(0, 7000, 7)]
    np.add.at(found, kinds[drawn], 7.0)
    assert len(set(drawn)) == len(drawn)
    assert np.abs(found - np.bincount(kinds)).max() <= 14.0


@pytest.mark.parametrize("kind", KINDS)
def test_waves_of_strangers_are_left_out_rightly(kind: str) -> None:
    mib = 192 * KINDS[kind].get("num_steps", 1)  # forty-five waves
    assert hold_together(stream(mib, **KINDS[kind]), H200).num_skipped_cycles > 0


def test_waves_are_left_out_rightly_where_all_sms_are_simulated() -> None:
    hold_together(stream(64, num_inputs=0, threads=1024), H200, num_sampled_sms=H200.num_sms)


@pytest.mark.parametrize("kind", ["copy", "add", "fill", "sum"])
def test_the_cost_of_a_prediction_does_not_grow_with_the_stream(kind: str) -> None:
    """A fill by all SMs fills and empties a queue of a thousand stores, GPC by GPC, from when L2 holds no more of it on."""
    small, most = (1024, 100000 if kind == "fill" else 60000)
    events = [simulate(stream(mib, **KINDS[kind]), H200, clock=CLOCK).num_events for mib in (small, 8192)]
    assert events[1] < 1.5 * events[0]
    assert events[1] < most


def test_a_stream_twice_as_long_takes_twice_as_long_beyond_its_begin_and_end() -> None:
    cycles = [simulate(stream(mib, stores=False), H200, clock=CLOCK).cycles for mib in (1024, 2048, 4096)]
    assert (cycles[2] - cycles[1]) / (cycles[1] - cycles[0]) == pytest.approx(2.0, rel=5e-3)


# ---------------------------------------------------------------------- stores


def test_ctas_store_no_faster_than_stores_leave_their_sm() -> None:
    """What CTAs have stored before another one starts on their SM has left it, but for what the queue and the way hold."""
    of = stream(32, num_inputs=0)
    result = simulate(of, H200, clock=CLOCK, recorded_sms=range(H200.num_sms), skips=False)
    starts = sorted(
        next(end for state, _, end in item.states if state is WarpState.START) for item in result.timeline.roles
        if item.sm_idx == 0
    )  # fmt: skip
    each = 256 * 16
    held = each * (check(of, H200).ctas_per_sm + 8) + H200.xbar.store_way_bytes
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

    engines = [Engine(launch(program), gpu, clock=Clock(sm_mhz=1000.0)) for program in (stores, nothing)]
    for engine in engines:
        engine.run()
    drain, way = gpu.dispatcher.drain_cycles, gpu.dispatcher.store_end_cycles
    assert engines[0].end_cycle == engines[0].last_exit + way + drain
    assert engines[1].end_cycle == engines[1].last_exit + drain


def test_toys_small_grids_are_simulated_whole() -> None:
    assert not Engine(stream(1), TOY, clock=Clock(sm_mhz=1000.0)).alike


def test_waves_that_memory_bounds_take_what_their_bytes_take_of_it() -> None:
    gpu = changed(H200, hbm={"sustained_read_gb_per_s": 1000.0})
    result = simulate(stream(256, stores=False), gpu, clock=CLOCK)
    (left_out,) = result.timeline.skips
    num_ctas = int(left_out.what.split()[0]) * result.ctas_at_once
    rate = Clock(sm_mhz=CLOCK).bytes_per_cycle(gb_per_s=1000.0)
    assert left_out.num_cycles == pytest.approx(num_ctas * 4096 / rate, rel=1e-9)  # 256 threads, 16 bytes each
    assert left_out.at_cycle < 8 * result.ctas_at_once * 4096 / rate  # and not when as many have ended that it shows
