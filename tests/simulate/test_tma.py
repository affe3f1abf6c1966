"""What a TMA copy costs: alone, in rings of one, two and three stages, and to many SMs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gpusim import Buffer, GpuSpec, Mbarrier
from gpusim.errors import LaunchError
from gpusim.simulate.timeline import WarpState
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .kernels import (
    TOY,
    changed,
    cycles,
    ends_of,
    expect,
    hit_cycles,
    load,
    miss_cycles,
    role,
    run,
    spans_of,
    store_cycles,
    wait,
)

SLOW = changed(
    tma={"issue_cycles": 3.0, "latency_cycles": 70.0, "row_cycles": 2.0},
    mbarrier={"arrive_cycles": 5.0, "try_wait_cycles": 7.0, "wake_cycles": 11.0},
    dispatcher={
        "launch_cycles": 1000.0,
        "dispatch_cycles_per_cta": 10.0,
        "cta_start_cycles": 40.0,
        "drain_cycles": 500.0,
    },
)


# ---------------------------------------------------------------------- one copy


def one_tile(num_bytes: int, num_rows: int = 1) -> Callable[[RoleContext], Iterator[ops.Op]]:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield expect(0, num_bytes)
        yield load(0, num_bytes, num_rows=num_rows)
        yield wait(0)

    return program


def one_tile_cycles(gpu: GpuSpec, from_memory: float, num_bytes: int, num_rows: int = 1) -> float:
    """Launch, the producer's instructions, memory, TMA latency, rows beyond their bytes, wake-up, drain."""
    assert gpu.tma is not None
    assert gpu.mbarrier is not None
    slowest = min(gpu.tma.bytes_per_cycle, gpu.xbar.sm_read_bytes_per_cycle)
    from_memory += max(0.0, num_rows * gpu.tma.row_cycles - num_bytes / slowest)
    start = (
        gpu.dispatcher.launch_cycles
        + gpu.dispatcher.dispatch_cycles_per_cta
        + gpu.dispatcher.cta_start_cycles
    )
    issue = gpu.mbarrier.arrive_cycles + gpu.tma.issue_cycles
    return (
        start
        + issue
        + from_memory
        + gpu.tma.latency_cycles
        + gpu.mbarrier.wake_cycles
        + gpu.dispatcher.drain_cycles
    )


@pytest.mark.parametrize("num_bytes", [16, 1024, 4096, 32768])
@pytest.mark.parametrize("gpu", [TOY, SLOW], ids=["toy", "slow"])
def test_a_tile_from_memory_costs_what_the_formula_says(gpu: GpuSpec, num_bytes: int) -> None:
    expected = one_tile_cycles(gpu, miss_cycles(num_bytes, gpu), num_bytes)
    assert cycles(one_tile(num_bytes), gpu=gpu, l2="cold") == pytest.approx(expected)


@pytest.mark.parametrize("num_bytes", [16, 1024, 4096, 32768])
@pytest.mark.parametrize("gpu", [TOY, SLOW], ids=["toy", "slow"])
def test_a_tile_from_l2_costs_what_the_formula_says(gpu: GpuSpec, num_bytes: int) -> None:
    expected = one_tile_cycles(gpu, hit_cycles(num_bytes, gpu), num_bytes)
    assert cycles(one_tile(num_bytes), gpu=gpu) == pytest.approx(expected)


@pytest.mark.parametrize("num_rows", [1, 32, 33, 64])
def test_rows_cost_what_their_bytes_do_not_hide(num_rows: int) -> None:
    """4096 bytes take the port 64 cycles; 32 rows of 2 cycles hide behind them."""
    expected = one_tile_cycles(SLOW, hit_cycles(4096, SLOW), 4096, num_rows)
    assert cycles(one_tile(4096, num_rows), gpu=SLOW) == pytest.approx(expected)


def test_a_wide_port_leaves_the_slices_as_the_limit() -> None:
    gpu = changed(xbar={"sm_read_bytes_per_cycle": 1024.0})
    assert cycles(one_tile(64 * 100), gpu=gpu) == 100 + 200 + 100


def test_a_box_out_of_bounds_fetches_nothing_and_completes_after_the_latency() -> None:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield expect(0)
        yield load(0, num_fetched_bytes=0)
        yield wait(0)

    result = run(program)
    assert result.cycles == 100
    assert result.counters["l1tex__m_xbar2l1tex_read_bytes.sum"] == 0


def test_nor_does_it_end_before_it_begins_where_its_latency_is_less_than_that_of_a_load() -> None:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield expect(0)
        yield load(0, num_fetched_bytes=0)
        yield wait(0)

    (copy,) = run(program, gpu=changed(tma={"latency_cycles": -70.0})).timeline.copies
    assert copy.end_cycle == copy.start_cycle


def test_two_tiles_of_one_phase_cost_their_bytes_together() -> None:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield expect(0, 8192)
        yield load(0, step=0)
        yield load(0, step=1)
        yield wait(0)

    assert cycles(program, l2="cold") == pytest.approx(miss_cycles(8192) + 100)
    assert cycles(program) == pytest.approx(hit_cycles(8192) + 100)


def test_a_second_request_for_a_tile_in_flight_waits_for_the_fill() -> None:
    """Two SMs ask for the same slice: memory is read once, and both wait for it."""
    result = run(one_tile(4096), num_ctas=2, l2="cold")
    assert ends_of(result) == pytest.approx([miss_cycles(4096) + 100] * 2)
    assert result.counters["dram__bytes_read.sum"] == 4096
    assert result.counters["lts__t_sectors_srcunit_tex_op_read.sum"] == 2 * 128


def test_two_sms_share_the_slices() -> None:
    assert cycles(one_tile(6400), num_ctas=2) == pytest.approx(2 * 100 + 200 + 100)


def test_requests_of_neighbours_merge_and_cost_the_slices_once() -> None:
    merging = changed(xbar={"coalesce_scope": "tpc", "coalesce_max_requests": 2})
    result = run(one_tile(6400), num_ctas=2, gpu=merging)
    assert result.cycles == pytest.approx(100 + 200 + 100)
    assert result.counters["lts__t_sectors_srcunit_tex_op_read.sum"] == 200
    assert result.counters["l1tex__m_xbar2l1tex_read_bytes.sum"] == 2 * 6400


@pytest.mark.parametrize(
    ("num_ctas", "scope", "limit", "served"), [(4, "gpc", 2, 2), (4, "gpc", 4, 1), (4, "tpc", 4, 2), (4, "sm", 4, 4)]
)
def test_merging_has_a_limit_and_ends_at_the_groups_border(
    num_ctas: int, scope: str, limit: int, served: int
) -> None:
    gpu = changed(xbar={"coalesce_scope": scope, "coalesce_max_requests": limit})
    result = run(one_tile(6400), num_ctas=num_ctas, gpu=gpu)
    assert result.counters["lts__t_sectors_srcunit_tex_op_read.sum"] == served * 200


@pytest.mark.parametrize(("lag", "merges"), [(50, True), (51, False)])
def test_a_late_request_joins_within_the_window_and_not_after(lag: int, merges: bool) -> None:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        if cta.cta_idx:
            yield ops.Alu(lag / 2)  # one warp feeds a quarter of 64 lanes: half an instruction a cycle
        yield from one_tile(64)(cta)

    gpu = changed(xbar={"coalesce_scope": "tpc", "coalesce_max_requests": 2, "coalesce_window_cycles": 50.0})
    result = run(program, num_ctas=2, gpu=gpu)
    assert result.counters["lts__t_sectors_srcunit_tex_op_read.sum"] == (2 if merges else 4)


@pytest.mark.parametrize(("lag", "sectors"), [(30, 2.0), (40, 2.5), (50, 3.0), (70, 4.0)])
def test_lines_of_far_slices_can_be_joined_for_longer(lag: int, sectors: float) -> None:
    """From 30 cycles on for the nearest to 70 for the farthest: who is 50 late has one in two for itself."""

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        if cta.cta_idx:
            yield ops.Alu(lag / 2)
        yield from one_tile(64)(cta)

    gpu = changed(
        xbar={"coalesce_scope": "tpc", "coalesce_max_requests": 2, "coalesce_window_cycles": 50.0},
        l2={"slice_spread_cycles": 20.0},
    )
    result = run(program, num_ctas=2, gpu=gpu)
    assert result.counters["lts__t_sectors_srcunit_tex_op_read.sum"] == pytest.approx(sectors)


def test_who_asks_late_where_the_slices_are_busy_reads_the_lines_that_are_gone_and_ends_with_whom_it_joins() -> None:
    """Four SMs of two TPCs share 64 B a cycle: two transfers run at 32, and half of one is gone when its neighbour asks."""

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        if cta.cta_idx % 2:
            yield ops.Alu(100 / 2)
        yield expect(0, 6400)
        yield ops.TmaLoad("A", (cta.cta_idx // 2, 0), 6400, 6400, 50, "a", 0, "full")
        yield wait(0, 0)

    gpu = changed(xbar={"coalesce_scope": "tpc", "coalesce_max_requests": 2})
    result = run(program, num_ctas=4, gpu=gpu)
    sectors = result.counters["lts__t_sectors_srcunit_tex_op_read.sum"]
    assert 2 * 200 < sectors < 4 * 200  # some of the lines of each pair are read twice
    ends = ends_of(result)
    assert ends[1] == pytest.approx(ends[0], rel=0.2) and ends[3] == pytest.approx(ends[2], rel=0.2)


@pytest.mark.parametrize(("part", "lag", "sectors"), [(1.0, 40, 200), (0.5, 30, 200), (0.5, 31, 202), (0.5, 40, 220)])
def test_lines_can_be_joined_for_their_part_of_a_wait(part: float, lag: int, sectors: int) -> None:
    """Each of two SMs has 1,600 bytes of its own first: 50 cycles, of which half count, and the window of 5."""

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        if cta.cta_idx:
            yield ops.Alu(lag / 2)
        yield expect(0, 8000)
        yield ops.TmaLoad("A", (1 + cta.cta_idx, 0), 1600, 1600, 50, "a", 0, "full")
        yield ops.TmaLoad("B", (0, 0), 6400, 6400, 50, "a", 0, "full")
        yield wait(0, 0)

    gpu = changed(
        xbar={"coalesce_scope": "tpc", "coalesce_max_requests": 2, "coalesce_window_cycles": 5.0,
              "coalesce_wait_fraction": part},
    )
    read = run(program, num_ctas=2, gpu=gpu).counters["lts__t_sectors_srcunit_tex_op_read.sum"]
    assert read == pytest.approx(2 * 50 + sectors)


def test_rows_outside_of_a_tensor_take_the_slices_time_and_cross_the_port() -> None:
    """50 rows, half of them zeros: the engine walks all, and the zeros' time of the slices is theirs."""

    def program(num_fetched_bytes: int, num_zero_rows: int) -> Callable[[RoleContext], Iterator[ops.Op]]:
        def copy(cta: RoleContext) -> Iterator[ops.Op]:
            yield expect(0, 6400)
            yield ops.TmaLoad(
                "A", (cta.cta_idx, 0), 6400, num_fetched_bytes, 50, "a", 0, "full", num_zero_rows=num_zero_rows
            )
            yield wait(0, 0)

        return copy

    free, dear = (changed(tma={"oob_row_bytes": each, "oob_box_row_bytes": each}) for each in (0.0, 1280.0))
    whole = cycles(program(6400, 0), gpu=dear)
    assert cycles(program(3200, 25), gpu=free) == pytest.approx(whole)  # zeros cross the port, too
    assert cycles(program(3200, 25), gpu=dear) > whole + 25 * 1280 / 64 / 2
    assert cycles(program(0, 50), gpu=dear) > cycles(program(3200, 25), gpu=dear)
    read = [
        run(program(*told), gpu=free).counters["lts__t_sectors_srcunit_tex_op_read.sum"] for told in ((3200, 0), (3200, 25))
    ]
    assert read[1] - read[0] == pytest.approx(3200 / 32 / free.xbar.coalesce_max_requests)


def test_more_rows_outside_than_there_are_is_refused() -> None:
    def copy(num_fetched_bytes: int, num_zero_rows: int) -> Callable[[RoleContext], Iterator[ops.Op]]:
        def program(cta: RoleContext) -> Iterator[ops.Op]:
            yield expect(0, 6400)
            yield ops.TmaLoad(
                "A", (cta.cta_idx, 0), 6400, num_fetched_bytes, 50, "a", 0, "full", num_zero_rows=num_zero_rows
            )

        return program

    for fetched, zeros, why in ((0, 51, "51 of them outside"), (6400, 25, "25 lie outside")):
        with pytest.raises(LaunchError, match=why):
            run(copy(fetched, zeros))


def test_zeros_of_a_multicast_are_read_once_and_cross_every_port() -> None:
    """Two CTAs of a cluster: half of the rows, or all of them, lie outside."""

    def program(num_fetched_bytes: int, num_zero_rows: int) -> Callable[[RoleContext], Iterator[ops.Op]]:
        def copy(cta: RoleContext) -> Iterator[ops.Op]:
            yield expect(0, 6400)
            yield ops.ClusterArrive()
            yield ops.ClusterWait()
            if cta.cta_rank == 0:
                yield ops.TmaLoad(
                    "A", (0, 0), 6400, num_fetched_bytes, 50, "a", 0, "full", multicast=(0, 1), num_zero_rows=num_zero_rows
                )
            yield wait(0)

        return copy

    gpu = changed(xbar={"coalesce_max_requests": 2}, tma={"oob_row_bytes": 128.0, "oob_box_row_bytes": 128.0})
    for fetched, zeros in ((3200, 25), (0, 50)):
        result = run(program(fetched, zeros), num_ctas=2, cluster_size=2, gpu=gpu)
        assert result.counters["l1tex__m_xbar2l1tex_read_bytes.sum"] == 2 * 6400
        sectors = result.counters["lts__t_sectors_srcunit_tex_op_read.sum"]
        assert sectors == pytest.approx(fetched / 32 + zeros * 128 / 32 / 2)


def test_rows_of_boxes_all_outside_cost_their_own_price() -> None:
    """Four boxes of 16 rows, one of which has 8 inside: 8 rows at the first price, 48 at the other."""

    def copy(num_outside_rows: int) -> Callable[[RoleContext], Iterator[ops.Op]]:
        def program(cta: RoleContext) -> Iterator[ops.Op]:
            yield expect(0, 8192)
            yield ops.TmaLoad(
                "A", (cta.cta_idx, 0), 8192, 1024, 64, "a", 0, "full", num_boxes=4, num_zero_rows=56,
                num_outside_rows=num_outside_rows,
            )
            yield wait(0)

        return program

    gpu = changed(tma={"oob_row_bytes": 1280.0, "oob_box_row_bytes": 640.0})
    dear, cheap = (cycles(copy(num), gpu=gpu) for num in (0, 48))
    assert dear - cheap == pytest.approx(48 * 640 / 64)


def test_boxes_pay_for_their_bytes_and_bulk_copies_without_rows_for_more() -> None:
    gpu = changed(xbar={"bulk_read_fraction": 0.5})

    def program(num_rows: int) -> Callable[[RoleContext], Iterator[ops.Op]]:
        def copy(cta: RoleContext) -> Iterator[ops.Op]:
            yield expect(0, 6400)
            yield ops.TmaLoad("A", (cta.cta_idx, 0), 6400, 6400, num_rows, "a", 0, "full")
            yield wait(0, 0)

        return copy

    box, bulk = (cycles(program(num_rows), num_ctas=2, gpu=gpu) for num_rows in (50, 1))
    assert box == pytest.approx(cycles(program(50), num_ctas=2))
    assert bulk == pytest.approx(box + 200)


# ---------------------------------------------------------------------- rings


MATH = 4  # warps of the consumer: as many instructions of each warp as cycles


def ring_roles(
    num_stages: int, num_steps: int, math_cycles: int, num_bytes: int = 4096
) -> tuple[object, ...]:
    """A producer and a consumer that hand ``num_stages`` slots back and forth."""

    def producer(cta: RoleContext) -> Iterator[ops.Op]:
        for k in range(num_steps):
            yield wait(k % num_stages, k // num_stages & 1 ^ 1, "empty")
            yield expect(k % num_stages, num_bytes)
            yield load(k % num_stages, num_bytes, step=cta.cta_idx * num_steps + k)

    def consumer(cta: RoleContext) -> Iterator[ops.Op]:
        for k in range(num_steps):
            yield wait(k % num_stages, k // num_stages & 1)
            yield ops.Fma(math_cycles)
            yield ops.MbarrierArrive("empty", k % num_stages)

    return role(producer, "producer"), role(consumer, "consumer", MATH)


def ring(num_stages: int, num_steps: int, math_cycles: int, *, l2: str = "warm", **fields: object) -> float:
    num_bytes = fields.pop("num_bytes", 4096)
    return cycles(*ring_roles(num_stages, num_steps, math_cycles, num_bytes), l2=l2, **fields)  # type: ignore[arg-type]


def pipelined(num_stages: int, num_steps: int, *, transfer: float, latency: float, math: float) -> float:
    """A slot is asked for when it is free, moved when the wire is, multiplied when it is there."""
    wire, done = 0.0, [0.0] * num_stages
    for _ in range(num_steps):
        wire = max(wire, done[-num_stages]) + transfer
        done.append(max(wire + latency, done[-1]) + math)
    return done[-1]


@pytest.mark.parametrize("math", [10, 100, 400, 1000])
@pytest.mark.parametrize("num_steps", [1, 2, 3, 12])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 4])
def test_a_ring_costs_what_the_pipelining_formula_says(num_stages: int, num_steps: int, math: int) -> None:
    expected = pipelined(num_stages, num_steps, transfer=4096 / 64, latency=200 + 100, math=math)
    assert ring(num_stages, num_steps, math) == pytest.approx(expected)


def test_one_stage_overlaps_nothing() -> None:
    assert ring(1, 10, 50) == 10 * (64 + 300 + 50)


@pytest.mark.parametrize("num_stages", [1, 2, 3])
def test_where_latency_bounds_stages_divide_it(num_stages: int) -> None:
    """Each further round of the ring costs one trip: transfer, latency, math."""
    rounds = 5
    assert ring(num_stages, (rounds + 1) * num_stages, 20) - ring(
        num_stages, rounds * num_stages, 20
    ) == pytest.approx(64 + 300 + 20)


@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_where_math_bounds_only_the_first_load_shows(num_stages: int) -> None:
    assert ring(num_stages, 20, 1000) == 64 + 300 + 20 * 1000


def test_where_the_port_bounds_only_the_last_math_shows() -> None:
    """16 KiB take 256 cycles: four stages cover 300 of latency."""
    assert ring(4, 20, 10, num_bytes=16384) == pytest.approx(20 * 256 + 300 + 10)


def test_where_memory_bounds_its_bytes_set_the_pace() -> None:
    assert ring(4, 20, 10, num_bytes=16384, l2="cold") == pytest.approx(20 * 16384 / 32 + 400 + 100 + 10)


def test_one_sm_draws_no_more_than_its_share_of_memory() -> None:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield expect(0, 4 * 6400)
        for step in range(4):
            yield load(0, 6400, step=step)
        yield wait(0)

    assert cycles(program, gpu=changed(hbm={"sm_gb_per_s": 8.0}), l2="cold") == pytest.approx(
        4 * 6400 / 8 + 500
    )


def test_one_stage_of_all_sms_shares_memory() -> None:
    """Each trip takes what all four transfers take together."""
    assert ring(1, 5, 10, num_ctas=4, l2="cold") == pytest.approx(5 * (4 * 4096 / 32 + 400 + 100 + 10))


def test_all_sms_share_memory() -> None:
    """Four SMs stream slices of their own."""
    expected = 4 * 20 * 16384 / 32 + 400 + 100 + 10
    assert ring(4, 20, 10, num_bytes=16384, l2="cold", num_ctas=4) == pytest.approx(expected, rel=1e-3)


def test_waves_of_ctas_follow_one_another() -> None:
    assert ring(
        1, 3, 50, num_ctas=4 * 3, registers_per_thread=255, extra_smem_bytes=100_000
    ) == pytest.approx(3 * pipelined(1, 3, transfer=4 * 64, latency=300, math=50))


# ---------------------------------------------------------------------- multicast


def multicast_program(ranks: tuple[int, ...]) -> Callable[[RoleContext], Iterator[ops.Op]]:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield expect(0, 6400)
        yield ops.ClusterArrive()
        yield ops.ClusterWait()
        if cta.cta_rank == 0:
            yield load(0, 6400, multicast=ranks)
        yield wait(0)

    return program


@pytest.mark.parametrize("size", [2, 4])
def test_a_multicast_delivers_to_every_rank_and_costs_the_slices_once(size: int) -> None:
    result = run(multicast_program(tuple(range(size))), num_ctas=size, cluster_size=size, l2="cold")
    assert ends_of(result) == pytest.approx([1 + miss_cycles(6400) + 100] * size)
    assert result.counters["dram__bytes_read.sum"] == 6400
    assert result.counters["lts__t_sectors_srcunit_tex_op_read.sum"] == 200
    assert result.counters["l1tex__m_xbar2l1tex_read_bytes.sum"] == size * 6400


def test_two_multicasts_of_halves_cost_each_port_the_whole() -> None:
    """Each rank loads its half for both: the slices serve the tile once, each port takes all of it."""

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield expect(0, 12800)
        yield ops.ClusterArrive()
        yield ops.ClusterWait()
        yield load(0, 6400, step=cta.cta_rank, multicast=(0, 1))
        yield wait(0)

    result = run(program, num_ctas=2, cluster_size=2)
    assert result.cycles == pytest.approx(1 + 12800 / 64 + 200 + 100, rel=0.01)
    assert result.counters["lts__t_sectors_srcunit_tex_op_read.sum"] == 400


# ---------------------------------------------------------------------- stores


def filled(num_bytes: int) -> Iterator[ops.Op]:
    """Fill slot 0, so that a store has something to read."""
    yield expect(0, num_bytes)
    yield load(0, num_bytes)
    yield wait(0)


@pytest.mark.parametrize("read", [True, False])
def test_a_store_is_complete_when_its_source_is_read(read: bool) -> None:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield from filled(6400)
        yield ops.TmaStore("D", (0, 0), 6400, 1, "a", 0)
        yield ops.BulkCommitGroup()
        yield ops.BulkWaitGroup(0, read=read)

    gpu = changed(tma={"issue_cycles": 3.0, "store_latency_cycles": 30.0})
    there = 3 + hit_cycles(6400) + 100
    result = run(program, gpu=gpu)
    waited = spans_of(result, WarpState.WAIT_BULK)
    assert waited == [(there + 3, pytest.approx(there + 3 + store_cycles(6400) + 30))]


def test_the_kernel_ends_when_its_last_store_has_arrived() -> None:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield from filled(6400)
        yield ops.TmaStore("D", (0, 0), 6400, 1, "a", 0)

    assert cycles(program) == pytest.approx(hit_cycles(6400) + 100 + store_cycles(6400) + 200)


def test_wait_group_n_leaves_the_latest_n_stores_in_flight() -> None:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield from filled(4096)
        for idx in range(3):
            yield ops.TmaStore("D", (0, idx), 6400, 1, "a", 0)
            yield ops.BulkCommitGroup()
        yield ops.BulkWaitGroup(2)
        yield ops.BulkWaitGroup(0)

    there = hit_cycles(4096) + 100
    waits = spans_of(run(program), WarpState.WAIT_BULK)
    # three stores of one SM share its way out; equal ones end together
    assert waits[-1][1] == pytest.approx(there + 300)


def test_a_small_group_behind_a_large_one_is_not_complete_before_it() -> None:
    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield from filled(4096)
        for idx, num_bytes in enumerate((64000, 64)):
            yield ops.TmaStore("D", (0, idx), num_bytes, 1, "a", 0)
            yield ops.BulkCommitGroup()
        yield ops.BulkWaitGroup(0)

    ((_, end),) = spans_of(run(program), WarpState.WAIT_BULK)
    assert end == pytest.approx(hit_cycles(4096) + 100 + store_cycles(64064))


def test_a_ring_with_one_slot_holds_as_many_as_are_declared() -> None:
    result = run(
        one_tile(1024),
        buffers=(Buffer(name="a", stage_bytes=1024),),
        mbarriers=(Mbarrier(name="full", num_arrivals=1),),
    )
    assert result.smem_bytes == 1024 + 8
