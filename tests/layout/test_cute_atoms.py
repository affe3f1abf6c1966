"""Tiled copies and MMAs of real atoms: every answer of the real CuTe in the table, the same here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusim import layout as cute
from gpusim.errors import LayoutError
from gpusim.layout import CopyAtomTV, Layout, MmaAtomTV, Tensor, TiledCopy, TiledMma
from gpusim.layout import int_tuple as it

ROWS: list[list[str]] = [
    row
    for row in json.loads((Path(__file__).parent / "cute_oracle" / "cute_answers.json").read_text())
    if row[0].startswith("atoms:")
]


def rows_of(kind: str) -> list[list[str]]:
    return [row[1:] for row in ROWS if row[0] == f"atoms: {kind}"]


def parse(text: str) -> Any:
    return Layout.parse(text) if ":" in text else cute.parse_int_tuple(text)


def normal(answer: Any) -> Any:
    if isinstance(answer, Layout):
        return Layout(answer.shape, it.map_leaves(lambda s, d: 0 if s == 1 else d, answer.shape, answer.stride))
    return answer


def several(text: str) -> list[Any]:
    return [normal(parse(part)) for part in text.split(" ; ")]


def mma_atoms() -> dict[str, MmaAtomTV]:
    atoms = {}
    for name, answer in rows_of("mma"):
        shape, a, b, c, thr_id = several(answer)
        atoms[name] = MmaAtomTV(shape_mnk=shape, a=a, b=b, c=c, thr_id=thr_id)
    return atoms


def copy_atoms() -> dict[str, CopyAtomTV]:
    atoms = {}
    for name, answer in rows_of("copy"):
        src, dst, ref, thr_id = several(answer)
        atoms[name] = CopyAtomTV(src=src, dst=dst, ref=ref, thr_id=thr_id)
    return atoms


MMAS, COPIES = mma_atoms(), copy_atoms()


def tiled_mma(name: str, tile: str) -> TiledMma:
    return TiledMma(MMAS[name], parse(tile))


def tiled_copy(name: str, threads: str, values: str) -> TiledCopy:
    return cute.make_tiled_copy(COPIES[name], parse(threads), parse(values))


@pytest.mark.parametrize(("name", "tile", "answer"), rows_of("layouts of mma"))
def test_each_thread_holds_the_elements_that_cute_gives_it(name: str, tile: str, answer: str) -> None:
    mma = tiled_mma(name, tile)
    assert [normal(x) for x in (mma.layout_a_tv(), mma.layout_b_tv(), mma.layout_c_tv())] == several(answer)


@pytest.mark.parametrize("operand", "ABC")
def test_partitions_of_an_mma_are_cutes(operand: str) -> None:
    for name, tile, layout, thread, answer in rows_of(f"partition_{operand}"):
        share = getattr(tiled_mma(name, tile).get_slice(int(thread)), f"partition_{operand}")(Tensor(parse(layout)))
        offset, kept = answer.split(" o ")
        assert (share.offset, normal(share.layout)) == (int(offset), normal(parse(kept))), (name, tile, layout, thread)


@pytest.mark.parametrize(("name", "threads", "values", "answer"), rows_of("tiled copy"))
def test_a_tiled_copy_is_cutes(name: str, threads: str, values: str, answer: str) -> None:
    copy = tiled_copy(name, threads, values)
    assert [normal(x) for x in (copy.tiler, copy.layout_tv, copy.layout_s_tv(), copy.layout_d_tv())] == several(answer)


@pytest.mark.parametrize(("name", "offsets", "data", "answer"), rows_of("cotiled copy"))
def test_a_copy_tiled_by_offsets_is_cutes(name: str, offsets: str, data: str, answer: str) -> None:
    copy = cute.make_cotiled_copy(COPIES[name], parse(offsets), parse(data))
    assert [normal(x) for x in (copy.layout_tv, copy.layout_s_tv())] == several(answer)


@pytest.mark.parametrize("side", "SD")
def test_partitions_of_a_copy_are_cutes(side: str) -> None:
    for name, threads, values, layout, thread, answer in rows_of(f"copy_{side}"):
        share = getattr(tiled_copy(name, threads, values).get_slice(int(thread)), f"partition_{side}")(
            Tensor(parse(layout))
        )
        offset, kept = answer.split(" o ")
        assert (share.offset, normal(share.layout)) == (int(offset), normal(parse(kept)))


@pytest.mark.parametrize("operand", "ABC")
def test_a_copy_for_an_mma_and_its_fragments_are_cutes(operand: str) -> None:
    for name, tile, copy_name, layout, answer in rows_of(f"copy for {operand}"):
        mma = tiled_mma(name, tile)
        make = getattr(cute, f"make_tiled_copy_{operand}")
        if answer.startswith("refused"):
            with pytest.raises(LayoutError, match="do not divide into atoms"):
                make(COPIES[copy_name], mma)
            continue
        copy = make(COPIES[copy_name], mma)
        part = getattr(mma.get_slice(0), f"partition_{operand}")(Tensor(parse(layout)))
        fragment = copy.get_slice(0).retile_D(Layout(part.inner.shape))
        assert [normal(x) for x in (copy.layout_s_tv(), copy.layout_d_tv(), fragment)] == several(answer)


def test_threads_of_a_tiled_copy_move_each_element_once() -> None:
    copy = cute.make_tiled_copy(CopyAtomTV.vector(8), Layout((16, 8), (8, 1)), Layout((1, 8)))
    tensor = Tensor(Layout((128, 64), (64, 1)))
    moved = [
        share.offset + offset
        for thread in range(copy.num_threads)
        for share in [copy.get_slice(thread).partition_S(tensor)]
        for offset in cute.offsets(share.layout)
    ]
    assert sorted(moved) == list(range(128 * 64))


def test_lanes_of_an_mma_hold_each_accumulator_once() -> None:
    mma = TiledMma(MMAS["SM80_16x8x16"], Layout((2, 2, 1)))
    tensor = Tensor(Layout((64, 32), (32, 1)))
    shares = [mma.get_slice(thread).partition_C(tensor) for thread in range(mma.num_threads)]
    held = [share.offset + offset for share in shares for offset in cute.offsets(share.layout)]
    assert sorted(held) == list(range(64 * 32))


def test_a_thread_that_does_not_exist_is_refused() -> None:
    mma = TiledMma(MMAS["SM80_16x8x16"], Layout((2, 2, 1)))
    copy = cute.make_tiled_copy(CopyAtomTV.vector(8), Layout((16, 8), (8, 1)), Layout((1, 8)))
    mma.get_slice(127)
    copy.get_slice(127)
    for tiled in (mma, copy):
        with pytest.raises(LayoutError):
            tiled.get_slice(128)


def test_an_identity_tensor_tells_who_works_on_which_coordinate() -> None:
    mma = TiledMma(MMAS["SM80_16x8x16"])
    share = mma.get_slice(5).partition_C(cute.make_identity_tensor((16, 8)))
    assert [share(value) for value in range(4)] == [(1, 2), (1, 3), (9, 2), (9, 3)]  # PTX: row lane/4, column 2(lane%4)
