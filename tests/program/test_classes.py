"""CTAs that share programs are found from a few of them, or from all; both give the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim import Launch
from gpusim.program.cta_sorts import in_order, members_of, sorts_of_ctas
from gpusim.program.programs import Programs
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .facts import facts_in, said_by
from .launches import ACCESS, Int64Array, all_traced, arguments, differences, footprint, launch, traced

NUM = 60
Names = Callable[[RoleContext], Iterator[tuple[str, Any]]]
"""(tensor, panel) of each access of a CTA."""


def stores(names: Names) -> Any:
    """A program that stores to what a CTA names."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for tensor, panel in names(cta):
            yield ops.GlobalStore(tensor, (panel, 0), ACCESS)

    return program


def whole(tiles: Int64Array) -> Int64Array:
    return np.full_like(tiles, 128)


def edge(tiles: Int64Array) -> Int64Array:
    """The last tile has fewer bytes."""
    return np.where(tiles == tiles.max(initial=0), 64, 128)


def uniform(names: Names, *, num_ctas: int = NUM, **more: Any) -> Launch:
    """A launch that says so, with footprints of ``A`` (rows of ten tiles) and ``B`` (columns)."""
    bytes_of = more.pop("bytes_of", whole)
    prints = footprint("A", lambda tiles: tiles // 10, whole), footprint("B", lambda tiles: tiles % 10, bytes_of)
    more.setdefault("footprints", prints)
    return launch(stores(names), num_ctas=num_ctas, has_uniform_programs=True, **more)


def checked(of: Launch, *, is_classed: bool) -> Programs:
    """Its programs, held against those of all CTAs; whether few CTAs were traced."""
    some, others = traced(of), all_traced(of)
    assert differences(some, others) == []
    if is_classed:
        assert some.num_ops_traced < others.num_ops_traced / 2
    else:  # some for nothing, then all
        assert some.num_ops_traced >= others.num_ops_traced
    return some


# ---------------------------------------------------------------------- what gives panels


@pytest.mark.parametrize(
    "names",
    [
        lambda cta: [("A", cta.cta_idx // 10)],
        lambda cta: [("B", cta.cta_idx % 10), ("A", cta.cta_idx // 10)],
        lambda cta: [("A", cta.cta_idx)],
        lambda cta: [("own", cta.cta_idx), ("one", 0), ("other", 17)],
        lambda cta: [("own", cta.cta_idx // 10), ("A", cta.cta_idx % 10)],  # the other one's footprint
        lambda cta: [("A", 3), ("A", cta.cta_idx // 10 + 0)] if cta.cta_idx // 10 != 3 else [("A", 3), ("A", 3)],
    ],
)
def test_panels_come_from_footprints_the_index_or_nothing_that_differs(names: Names) -> None:
    of = uniform(names)
    some, others = traced(of), all_traced(of)
    assert differences(some, others) == []


def test_few_ctas_are_enough() -> None:
    programs = checked(uniform(lambda cta: [("A", cta.cta_idx // 10), ("B", cta.cta_idx % 10)]), is_classed=True)
    assert programs.cta_panels.tolist() == [[idx // 10, idx % 10] for idx in range(NUM)]
    assert len(programs.class_programs) == 1


@pytest.mark.parametrize(
    "names",
    [
        lambda cta: [("A", cta.cta_idx * 7 % 11)],  # nothing gives it
        lambda cta: [("A", "here")] if cta.cta_idx < 3 else [("A", "there")],
        lambda cta: [("A", ("own", cta.cta_idx))],
        lambda cta: [("A", 0)] * (1 + (cta.cta_idx == NUM - 1)),  # the last one does more
        lambda cta: [("A", 0)] * (1 + (cta.cta_idx == NUM // 2)),  # or one in the middle
    ],
)
def test_a_launch_that_is_not_as_uniform_as_it_says_is_traced_whole(names: Names) -> None:
    checked(uniform(names), is_classed=False)


def test_a_launch_that_says_nothing_is_traced_whole() -> None:
    of = replace(uniform(lambda cta: [("A", cta.cta_idx // 10)]), has_uniform_programs=False)
    assert traced(of).num_ops_traced == NUM


# ---------------------------------------------------------------------- what sorts CTAs


def test_ctas_of_other_bytes_may_do_something_else() -> None:
    def names(cta: RoleContext) -> Any:
        return [("A", cta.cta_idx // 10)] * (2 if cta.cta_idx == NUM - 1 else 1)

    programs = checked(uniform(names, bytes_of=edge), is_classed=True)
    assert programs.cta_class.tolist() == [0] * (NUM - 1) + [1]


def test_ctas_of_other_ranks_may_do_something_else() -> None:
    def names(cta: RoleContext) -> Any:
        return [("A", cta.cta_idx // 10)] * (1 + cta.cta_rank)

    programs = checked(uniform(names, cluster_size=2, num_ctas=60), is_classed=True)
    assert programs.cta_class.tolist() == [0, 1] * 30


def test_sorts_that_do_the_same_are_one_class() -> None:
    programs = checked(uniform(lambda cta: [("A", cta.cta_idx // 10)], bytes_of=edge, cluster_size=2), is_classed=True)
    assert len(programs.class_programs) == 1 and not programs.cta_class.any()


def test_a_column_that_a_cta_does_not_use_is_0() -> None:
    def names(cta: RoleContext) -> Any:
        return [("A", cta.cta_idx // 10), *([("B", cta.cta_idx % 10)] if cta.cta_idx == NUM - 1 else [])]

    programs = checked(uniform(names, bytes_of=edge), is_classed=True)
    assert programs.cta_panels[:-1, 1].tolist() == [0] * (NUM - 1)
    assert programs.cta_panels[-1].tolist() == [5, 9]


@pytest.mark.parametrize("num_tiles", [200, 193, 181])
@pytest.mark.parametrize("cluster_size", [1, 2])
def test_persistent_ctas_are_sorted_by_all_their_tiles(num_tiles: int, cluster_size: int) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for turn, tile in cta.tiles(num_tiles):
            yield ops.GlobalStore("A", (tile // 10, turn), ACCESS)
            yield ops.GlobalStore("B", (tile % 10, 0), ACCESS)
            yield ops.GlobalStore("own", (tile, 0), ACCESS)
            yield ops.GlobalStore("mine", (cta.cta_idx, 0), ACCESS)
            if tile == num_tiles - 1:
                yield ops.GlobalStore("A", (0, 0), ACCESS)

    prints = (footprint("A", lambda tiles: tiles // 10, whole), footprint("B", lambda tiles: tiles % 10, edge))
    of = launch(
        program, num_ctas=None, num_tiles=num_tiles, footprints=prints, has_uniform_programs=True, cluster_size=cluster_size,
        extra_smem_bytes=100_000,
    )  # fmt: skip
    some, others = traced(of), all_traced(of)
    assert differences(some, others) == []
    num_ctas = arguments(of)["num_ctas"]
    assert num_tiles > num_ctas
    for cta_idx in range(num_ctas):
        assert facts_in(some, cta_idx, 0) == said_by(of, of.roles[0], cta_idx=cta_idx, num_ctas=num_ctas)


def test_a_grid_with_more_ctas_than_tiles_is_traced_too() -> None:
    of = uniform(lambda cta: [("own", cta.cta_idx), ("A", 0)], num_ctas=60, num_tiles=10)
    assert differences(traced(of), all_traced(of)) == []


# ---------------------------------------------------------------------- determinism


def test_two_traces_are_the_same() -> None:
    def made() -> Programs:
        return traced(uniform(lambda cta: [("A", cta.cta_idx // 10), ("B", cta.cta_idx % 10)], bytes_of=edge))

    first = made()
    kept = [object() for _ in range(1000)]  # other addresses
    assert differences(first, made()) == []
    assert kept


# ---------------------------------------------------------------------- sorts


@given(values=st.lists(st.integers(-3, 20), max_size=80))
def test_values_are_numbered_as_they_first_occur(values: list[int]) -> None:
    numbers: dict[int, int] = {}
    expected = [numbers.setdefault(value, len(numbers)) for value in values]
    assert in_order(np.array(values, dtype=np.int64)).tolist() == expected


@given(
    bytes_of=st.lists(st.lists(st.integers(0, 3), min_size=24, max_size=24), max_size=3),
    num_ctas=st.sampled_from([8, 12, 24]), cluster_size=st.sampled_from([1, 2, 4]), num_tiles=st.integers(1, 24),
)  # fmt: skip
def test_ctas_are_of_one_sort_exactly_if_tiles_and_rank_are_alike(
    bytes_of: list[list[int]], num_ctas: int, cluster_size: int, num_tiles: int
) -> None:
    keys: dict[Any, int] = {}
    expected = []
    for cta_idx in range(num_ctas):
        tiles = range(cta_idx, num_tiles, num_ctas)
        key = cta_idx % cluster_size, len(tiles), tuple(of[tile] for of in bytes_of for tile in tiles)
        expected.append(keys.setdefault(key, len(keys)))
    found = sorts_of_ctas(
        [np.array(of[:num_tiles]) for of in bytes_of], num_ctas=num_ctas, num_tiles=num_tiles, cluster_size=cluster_size
    )
    assert found.tolist() == expected


@given(sorts=st.lists(st.integers(0, 30), min_size=1, max_size=100))
def test_members_are_the_ctas_of_each_sort(sorts: list[int]) -> None:
    of_cta = in_order(np.array(sorts))
    for sort, members in enumerate(members_of(of_cta)):
        assert members.tolist() == np.flatnonzero(of_cta == sort).tolist()
