"""What records say of ops: tokens and their slots, turns, tiles and columns, lists that are kept once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim import Launch, WarpRole
from gpusim.program.records import OpKind, Section, StoreKind
from gpusim.program.role_rows import token_slots
from gpusim.workload import ops
from gpusim.workload.atoms import MMA_ATOMS, wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.gmem.line_fetches import Fetches
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

from .facts import facts_in, said_by
from .launches import ACCESS, footprint, launch, ops_of, records, traced

MATH = wgmma(64, BF16)
MMA = next(iter(MMA_ATOMS.values()))


def other(num: int) -> AccessPattern:
    return AccessPattern(num_requests=num, num_wavefronts=num, num_bytes=128 * num)


def every_op(cta: RoleContext) -> Iterator[Any]:
    """All words of the vocabulary, with numbers that differ from their defaults in some."""
    mine, fetched = cta.cta_idx, Fetches(num_bytes=64, num_crossing=3, num_reads=2, num_requests=1)
    long = yield ops.GlobalLoad("A", (mine, 3), ACCESS, allocates_in_l1=False)
    yield ops.GlobalStore("B", (mine + 1, 0), ACCESS)
    yield ops.GlobalAtomic("C", (7, -2), other(2))
    summed = yield ops.GlobalAtomic("C", (7, 1), other(2), returns=True)
    yield ops.Use(long)
    yield ops.Use(summed)
    yield ops.Use(long)
    yield ops.CpAsync("A", (mine, 4), ACCESS, "a", 2, num_rows=3, num_between=1.5, num_passes=2.0, fetches=fetched)
    yield ops.CpAsync("A", (mine, 5), ACCESS, "a", 3, allocates_in_l1=True, promoted_tiles=((mine, 6), (mine + 9, 7)))
    yield ops.CpAsyncCommitGroup(is_held=True)
    yield ops.CpAsyncCommitGroup()
    yield ops.CpAsyncWaitGroup(1)
    yield ops.CpAsyncMbarrierArrive("full", 1)
    yield ops.PrefetchTensormap(("A", "Z"))
    yield ops.FenceProxyTensormap(("A",))
    yield ops.TmaLoad("A", (mine, 8), 128, 64, 4, "a", 1, "full", num_boxes=2, num_zero_rows=2, num_outside_rows=1)
    yield ops.TmaLoad(
        "A", (mine, 9), 128, 128, 4, "a", 1, "full", multicast=(0, 1), promoted_tiles=((mine, 10),), new_fraction=0.5,
        fetches=fetched,
    )  # fmt: skip
    yield ops.TmaStore("D", (mine, 0), 64, 2, "a", 0, num_boxes=3, reduce=True)
    yield ops.TmaStore("D", (mine, 1), 64, 2, "", 0)
    yield ops.BulkCommitGroup()
    yield ops.BulkWaitGroup(2, read=False)
    yield ops.BulkWaitGroup(0)
    yield ops.MbarrierInit("empty")
    yield ops.MbarrierArrive("empty", 3, 5)
    yield ops.MbarrierArrive("empty", 3, 1, 1 - cta.cta_rank)
    yield ops.MbarrierArrive("empty", 3, 1, cta.cta_rank)
    yield ops.MbarrierArriveExpectTx("full", 2, 4096)
    yield ops.MbarrierWait("full", 0, 1)
    yield ops.MbarrierWait("full", 0, 0, by_lane=True)
    yield ops.BarSync("math")
    yield ops.BarArrive("math")
    yield ops.Syncthreads()
    yield ops.ClusterArrive()
    yield ops.ClusterWait()
    yield ops.FenceProxyAsync()
    yield ops.FenceMbarrierInit()
    yield ops.FenceAcqRel()
    loaded = yield ops.SharedLoad(other(3), "a", 2, num_parts=4)
    scratch = yield ops.SharedLoad(other(3))
    stored = yield ops.SharedStore(other(4), "a", 1, has_token=True)
    yield ops.SharedStore(other(4))
    swapped = yield ops.SharedAtomic(other(5), "b", 9)  # whose buffer nobody looks at
    read = yield ops.Ldmatrix(other(6), "a", 0)
    written = yield ops.Stmatrix(other(7), "a", 0, has_token=True)
    yield ops.Stmatrix(other(7))
    far = yield ops.DsmemLoad(1, 48)
    for token in (loaded, scratch, stored, swapped, read, written, far):
        yield ops.Use(token)
    yield ops.DsmemStore(0, 49)
    yield ops.StAsync(1, 50, "empty", 0)
    yield ops.MmaSync(MMA, 6)
    yield ops.WgmmaFence()
    yield ops.Wgmma(MATH, 3, (("a", 1), ("a", 0)), 2.5)
    yield ops.WgmmaCommitGroup()
    yield ops.WgmmaWaitGroup(1)
    yield ops.FetchCode("loop", 160)
    yield ops.FetchColdCode("way out", 10, 20, 1.5)
    yield ops.LoopBody(64.0, 8.0, 1.25)
    yield ops.Fma(3.5)
    yield ops.Fma(3, is_chain=True, bank_reads=1.5, num_runs=2, by_age=True)
    yield ops.Alu(4)
    yield ops.Alu(4, is_chain=True, num_beside=2.0, num_more=1.0)
    yield ops.ImadWide(5, is_interleaved=True)
    yield ops.ImadWide(5, sets_pace=True)
    yield ops.Mufu(6)
    yield ops.Shfl(7)
    yield ops.Shfl(7, is_chain=True, num_warps=1)
    yield ops.SetMaxNReg(24, "dec")
    yield ops.SetMaxNReg(40, "inc")
    for section in ops.Section:
        yield ops.RangeStart(section)
        yield ops.RangeEnd()
    for turn, tile in cta.tiles(12):
        yield ops.GlobalStore("B", (tile, turn), ACCESS)




def test_records_say_all_that_ops_say() -> None:
    of = launch(every_op, every_op, num_ctas=4, cluster_size=2)
    programs = traced(of)
    assert set(programs.ops["kind"].tolist()) == set(OpKind)
    for cta_idx in range(4):
        for role_idx, role in enumerate(of.roles):
            assert facts_in(programs, cta_idx, role_idx) == said_by(of, role, cta_idx=cta_idx, num_ctas=4)


def test_roles_of_other_sizes_have_other_stores_and_wgmma() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.GlobalStore("out", (0, 0), ACCESS)
        yield ops.Wgmma(MATH, 2)
        yield ops.Shfl(1)

    roles = [WarpRole(name=f"role{idx}", num_warps=num, program=program) for idx, num in enumerate((4, 8, 4))]
    programs = traced(launch(*roles))
    assert [(store.access, store.num_warps, store.kind) for store in programs.costs.stores.items] == [
        (0, 4, StoreKind.ST), (0, 8, StoreKind.ST),
    ]  # fmt: skip
    assert [(batch.num_warpgroups, batch.num_warps) for batch in programs.costs.wgmmas.items] == [(1, 4), (2, 8)]
    assert programs.class_programs.tolist() == [[0, 1, 2]]
    assert [row["number"] for row in (ops_of(programs, 0, idx)[0] for idx in range(3))] == [0, 1 << 32, 2 << 32]
    assert [row["barrier"] for row in (ops_of(programs, 0, 0)[1], ops_of(programs, 0, 1)[1])] == [2, 4]


def test_an_op_that_is_yielded_again_has_the_same_record() -> None:
    op = ops.MbarrierWait("full", 2, 1)
    programs = traced(launch(lambda cta: (op for _ in range(5))))
    assert len({row.tobytes() for row in ops_of(programs, 0, 0)}) == 1
    assert programs.programs["num_ops"].tolist() == [5]


def test_arrivals_that_name_their_own_cta_differ_by_rank() -> None:
    op = ops.MbarrierArrive("full", 0, 1, 1)
    programs = traced(launch(lambda cta: (op for _ in range(1)), num_ctas=4, cluster_size=2))
    assert [ops_of(programs, cta_idx, 0)["cost"].tolist() for cta_idx in range(4)] == [[1], [-1], [1], [-1]]
    assert programs.cta_class.tolist() == [0, 1, 0, 1]


# ---------------------------------------------------------------------- tokens


EVENTS = st.lists(st.integers(0, 9), max_size=60)


@given(wishes=EVENTS)
def test_a_token_has_the_lowest_slot_that_is_free_until_its_last_use(wishes: list[int]) -> None:
    """Even wishes give a token, odd ones use one of those that were given."""
    places: list[tuple[int, int]] = []
    num_given = 0
    for place, wish in enumerate(wishes):
        if wish % 2 and num_given:
            places.append((place, ~(wish * 7919 % num_given)))
        else:
            places.append((place, num_given))
            num_given += 1
    slots = token_slots(places)
    uses: dict[int, list[int]] = {number: [] for number in range(num_given)}
    for idx, (_, number) in enumerate(places):
        uses[number if number >= 0 else ~number].append(idx)
    lives = {number: (at[0], at[-1]) for number, at in uses.items()}
    for number, at in uses.items():
        assert {slots[idx] for idx in at} == {slots[at[0]]}
        begin = lives[number][0]
        taken = {
            slots[first] for other_number, (first, last) in lives.items()
            if other_number != number and first < begin < last
        }  # fmt: skip
        assert slots[begin] == min(set(range(len(slots) + 1)) - taken)


def test_a_program_has_as_many_slots_as_tokens_live_at_once() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in range(10):
            first = yield ops.GlobalLoad("A", (0, 0), ACCESS)
            second = yield ops.SharedLoad(ACCESS)
            yield ops.Use(first)
            yield ops.Use(second)
        yield ops.SharedLoad(ACCESS)  # which nobody uses
        yield ops.SharedLoad(ACCESS)

    programs = traced(launch(program))
    assert programs.programs["num_tokens"].tolist() == [2]
    last = ops_of(programs, 0, 0)[-2:]
    assert last["extra"].tolist() == [0, 0]


def test_a_program_without_tokens_has_no_slots() -> None:
    assert traced(launch(lambda cta: (ops.Fma(1) for _ in range(3)))).programs["num_tokens"].tolist() == [0]


# ---------------------------------------------------------------------- turns


def test_each_turn_leaves_a_record_before_its_first_op_and_none_where_it_has_no_op() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Fma(1)
        for turn, _ in cta.tiles(24):
            if turn not in (1, 2, 5):
                yield ops.Fma(2)
                yield ops.Fma(3)

    programs = traced(launch(program, num_ctas=4))
    seen = [(row["kind"], row["extra"]) for row in records(programs) if row["kind"] != OpKind.FMA]
    assert seen == [(OpKind.TURN, turn) for turn in (0, 3, 4)]
    assert programs.num_ops_traced == 4 * 7


def test_turns_are_those_of_the_context_that_runs() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for turn, tile in cta.tiles(11, first=1, step=2):
            yield ops.GlobalStore("out", (tile, turn), ACCESS)

    of = launch(program, num_ctas=3)
    programs = traced(of)
    for cta_idx in range(3):
        assert facts_in(programs, cta_idx, 0) == said_by(of, of.roles[0], cta_idx=cta_idx, num_ctas=3)


def test_what_is_named_in_another_turn_has_a_column_of_its_own() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for _, tile in cta.tiles(6):
            yield ops.GlobalLoad("A", (tile, 0), ACCESS)
            yield ops.GlobalLoad("B", (0, 0), ACCESS)
            yield ops.GlobalLoad("A", (tile, 1), ACCESS)

    programs = traced(launch(program, program, num_ctas=2))
    assert programs.cta_panels.shape[1] == 6  # three turns, two tensors; both roles name the same panels
    assert programs.cta_panels.tolist() == [[0, 0, 2, 0, 4, 0], [1, 0, 3, 0, 5, 0]]
    assert len(programs.programs) == 1


@pytest.mark.parametrize(
    ("num", "indices"),
    [(3, [0, 1, 2]), (2.5, [0, 1, 2]), (np.int64(2), [0, 1]), (np.float64(2.0), [0, 1]), (0, []), (-1, [])],
)
def test_a_loop_counts_up_to_its_number(num: Any, indices: list[int]) -> None:
    seen: list[int] = []

    def program(cta: RoleContext) -> Iterator[Any]:
        for idx in cta.loop(num):
            seen.append(idx)
            yield ops.Fma(1)

    traced(launch(program))
    assert seen == indices


# ---------------------------------------------------------------------- tiles


def test_panels_are_numbered_in_the_order_in_which_a_cta_names_them() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for panel in (5, 3, 5, 4, 3):
            yield ops.GlobalStore("out", (cta.cta_idx + panel, panel), ACCESS)

    programs = traced(launch(program, num_ctas=3))
    assert ops_of(programs, 0, 0)["panel"].tolist() == [0, 1, 0, 2, 1]
    assert programs.cta_panels.tolist() == [[5, 3, 4], [6, 4, 5], [7, 5, 6]]
    assert len(programs.class_programs) == 1


def test_ctas_whose_panels_coincide_otherwise_have_other_programs() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.GlobalStore("out", (0, 0), ACCESS)
        yield ops.GlobalStore("out", (cta.cta_idx, 0), ACCESS)

    programs = traced(launch(program, num_ctas=3))
    assert programs.cta_class.tolist() == [0, 1, 1]
    assert programs.cta_panels.tolist() == [[0, 0], [0, 1], [0, 2]]


@pytest.mark.parametrize("tile", ["here", ("x", 3), (1, 2, 3), (-1, 4), (0.5, 1), 7, None, (1 << 40, 0), (0, 1 << 40)])
def test_a_tile_that_is_no_pair_of_numbers_has_a_panel_below_0_of_its_own(tile: Any) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.GlobalStore("out", (4, 1), ACCESS)
        yield ops.GlobalStore("out", tile, ACCESS)
        yield ops.GlobalStore("out", "there", ACCESS)  # type: ignore[arg-type]  # anything hashable
        yield ops.GlobalStore("out", tile, ACCESS)

    programs = traced(launch(program))
    assert programs.cta_panels.tolist() == [[4, -1, -2]]
    assert [(row["panel"], row["step"]) for row in records(programs)] == [(0, 1), (1, 0), (2, 0), (1, 0)]


@pytest.mark.parametrize("tile", [(np.int64(4), 1), (4, np.int32(1)), (4.0, 1), (4, np.float32(1.0))])
def test_tiles_that_are_equal_are_one(tile: Any) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.GlobalStore("out", (4, 1), ACCESS)
        yield ops.GlobalStore("out", tile, ACCESS)

    programs = traced(launch(program))
    first, second = ops_of(programs, 0, 0)
    assert first.tolist()[:-1] == second.tolist()[:-1]
    assert (first["number"], second["number"]) == (0, 1)


def test_stores_in_a_row_to_one_tile_store_its_parts_and_later_ones_the_same_again() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for step in (0, 0, 1, 0, 0, 0):
            yield ops.GlobalStore("out", (4, step), ACCESS)
            yield ops.GlobalStore("other", (4, 0), ACCESS)

    rows = ops_of(traced(launch(program)), 0, 0)
    assert [row["number"] for row in rows[::2]] == [0, 1, 0, 0, 1, 2]
    assert [row["number"] for row in rows[1::2]] == [0, 1, 2, 3, 4, 5]


def test_steps_may_be_below_0() -> None:
    programs = traced(launch(lambda cta: iter_of(ops.GlobalStore("out", (0, -5), ACCESS))))
    assert records(programs)[0]["step"] == -5


def iter_of(*some: ops.Op) -> Any:
    yield from some


# ---------------------------------------------------------------------- names and lists


def test_tensors_of_footprints_come_first() -> None:
    same = np.array
    of = launch(
        lambda cta: iter_of(ops.GlobalStore("own", (0, 0), ACCESS), ops.GlobalStore("B", (0, 0), ACCESS)),
        footprints=tuple(footprint(name, same, np.ones_like) for name in ("A", "B")),
    )
    assert traced(of).tensors == ("A", "B", "own")


def test_stages_and_barriers_are_numbered_as_declared() -> None:
    programs = traced(launch(lambda cta: iter_of(ops.Fma(1))))
    assert programs.stages == tuple(("a", stage) for stage in range(4))
    assert programs.barriers == tuple((ring, stage) for ring in ("full", "empty") for stage in range(4))
    assert programs.named_barriers == ("math",)


def test_lists_that_are_equal_are_kept_once() -> None:
    reads = (("a", 0), ("a", 1))
    programs = traced(
        launch(
            lambda cta: iter_of(
                ops.Wgmma(MATH, 1, reads), ops.Wgmma(MATH, 2, reads), ops.Wgmma(MATH, 2, reads[::-1]),
                ops.PrefetchTensormap(("A", "B")), ops.Wgmma(MATH, 2),
            )
        )
    )
    assert programs.lists.tolist() == [0, 1, 1, 0]
    assert ops_of(programs, 0, 0)["extra"].tolist()[:3] == [0, 0, 2]


def test_what_costs_alike_is_one_row_whoever_says_it() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for stage in range(4):
            yield ops.TmaLoad("A", (0, stage), 64, 64, 1, "a", stage, "full")
            yield ops.TmaLoad("B", (0, stage), 64, 64, 1, "a", stage, "empty", fetches=Fetches(num_bytes=64))
            yield ops.Fma(4, is_chain=bool(stage % 2))
            yield ops.Alu(4, is_chain=bool(stage % 2))
            yield ops.SharedLoad(AccessPattern(num_requests=4))
            yield ops.TmaStore("D", (0, stage), 64, 1, "a", stage)

    programs = traced(launch(program, program))
    costs = programs.costs
    tables = costs.tma_loads, costs.fmas, costs.alus, costs.accesses, costs.tma_stores, costs.fetches
    assert [len(table.items) for table in tables] == [2, 1, 1, 1, 1, 1]


def test_marks_carry_their_section() -> None:
    starts = [ops.RangeStart(section) for section in (ops.Section.EPILOGUE, ops.Section.PROLOGUE)]
    programs = traced(launch(lambda cta: iter_of(*starts, ops.RangeEnd(), ops.RangeEnd())))
    assert ops_of(programs, 0, 0)["extra"].tolist()[:2] == [Section.EPILOGUE, Section.PROLOGUE]


def test_a_launch_without_ops_has_empty_programs() -> None:
    of: Launch = launch(lambda cta: iter_of(), num_ctas=3)
    programs = traced(of)
    assert len(programs.ops) == 0 and programs.cta_panels.shape[1] == 0
    assert programs.cta_panels.shape == (3, 0)
    assert programs.class_programs.tolist() == [[0]]
