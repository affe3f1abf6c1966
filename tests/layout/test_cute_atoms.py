"""Tiled copies and MMAs of real atoms: every answer of the real CuTe in both tables, the same here.

The first table's rows are answered from CuTe's own atoms, the second table's from the atoms of ``gpusim.workload``. Layouts
are compared exactly, save for strides of modes of size 1; atoms also without modes of size 1, which CuTe keeps for
wgmma's accumulators of eight columns and for nothing else.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpusim import layout as cute
from gpusim.errors import LayoutError
from gpusim.layout import CopyAtomTV, Layout, MmaAtomTV, Tensor, TiledCopy, TiledMma
from gpusim.layout import int_tuple as it
from gpusim.workload.atoms import MMA_ATOMS, CopyAtom, MmaAtom, atom_of, copy_atom, legal_wgmma_n, wgmma
from gpusim.workload.dtypes import BF16, FP8, FP16, FP32, FP64, INT8, INT32, TF32
from gpusim.workload.tiled import tiled_mma as tiled_mma_of

ORACLE = Path(__file__).parent / "cute_oracle"
ROWS: list[list[str]] = [
    row for row in json.loads((ORACLE / "cute_answers.json").read_text()) if row[0].startswith("atoms:")
]
INSTRUCTIONS: list[list[str]] = json.loads((ORACLE / "cute_instructions.json").read_text())


def rows_of(kind: str) -> list[list[str]]:
    return [row[1:] for row in ROWS if row[0] == f"atoms: {kind}"]


def instructions_of(kind: str) -> list[list[str]]:
    return [row[1:] for row in INSTRUCTIONS if row[0] == f"instructions: {kind}"]


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


# ---------------------------------------------------------------------- our own atoms

TYPES = {"F16": FP16, "BF16": BF16, "TF32": TF32, "E4M3": FP8, "S8": INT8, "F32": FP32, "F64": FP64, "S32": INT32}
ELEMENTS = {"half_t": FP16, "float": FP32, "uint8_t": INT8, "double": FP64}


def types_in(text: str) -> list[Any]:
    return [TYPES[name] for name in re.findall("|".join(sorted(TYPES, key=len, reverse=True)), text)]


def our_mma(name: str) -> MmaAtom:
    """``SM80_16x8x16_F32F16F16F32_TN`` or ``SM90_64x64x16_F32F16F16_SS<...>`` by its name here."""
    found = re.match(r"SM\d+_(\d+)x(\d+)x(\d+)_([A-Z0-9]+)_(TN|SS|RS)", name)
    assert found
    m, n, k = (int(found[i]) for i in (1, 2, 3))
    acc, a, *_ = types_in(found[4])
    if m < 64:
        return MMA_ATOMS[f"mma_sync_m{m}n8k{k}_{a.name}_{acc.name}"]
    atom = wgmma(n, a, "smem" if found[5] == "SS" else "registers", accumulator=acc)
    assert atom.k == k
    return atom


def our_copy(name: str) -> CopyAtom:
    """``SM75_U32x4_LDSM_N``, ``SM80_CP_ASYNC_CACHEALWAYS<uint32_t>`` or ``UniversalCopy<uint128_t>`` by its name here."""
    if found := re.fullmatch(r"SM\d+_U(32|16)x(\d)_(LDSM|STSM)_([NT])", name):
        verb, trans = "ldmatrix" if found[3] == "LDSM" else "stmatrix", "_trans" if found[4] == "T" else ""
        return copy_atom(f"{verb}_x{int(found[2]) * int(found[1]) // 32}{trans}")
    found = re.fullmatch(r"(\w+)<uint(\d+)_t>", name)
    assert found
    verb = {
        "UniversalCopy": "ld_shared",
        "SM80_CP_ASYNC_CACHEALWAYS": "cp_async_ca",
        "SM80_CP_ASYNC_CACHEGLOBAL": "cp_async_cg",
    }[found[1]]
    return copy_atom(f"{verb}_b{found[2]}")


def our_tiled_mma(name: str, tile: str, permutation: str) -> TiledMma:
    given: Any = (None, None, None)
    if permutation != "-":
        parts = re.findall(r"\([^:]*\):\([^)]*\)|\d+", permutation)
        given = tuple(parse(part) if ":" in part else int(part) for part in parts)
    return tiled_mma_of(our_mma(name), parse(tile), given)


def without_ones(answer: Any) -> Any:
    """The same layout without modes of size 1 inside its modes."""
    if not isinstance(answer, Layout):
        return answer
    kept = [[mode for mode in part.modes if mode[0] > 1] or [(1, 0)] for part in answer]
    shape, stride = (tuple(it.unwrap(tuple(mode[i] for mode in part)) for part in kept) for i in (0, 1))
    return Layout(it.unwrap(shape), it.unwrap(stride))


def place_of(tensor: Tensor) -> tuple[int, Layout]:
    return tensor.offset, normal(tensor.layout)


def place(text: str) -> tuple[int, Layout]:
    offset, layout = text.split(" o ")
    return int(offset), normal(parse(layout))


def test_every_row_of_the_second_table_is_asked() -> None:
    kinds = {row[0].removeprefix("instructions: ") for row in INSTRUCTIONS}
    asked = {"mma", "copy", "layouts of mma", *(f"{what}{x}" for what in ("partition_", "copy for ") for x in "ABC")}
    assert kinds == asked


def test_the_second_table_asks_about_every_mma_of_ours() -> None:
    asked = {our_mma(name).name for name, _ in instructions_of("mma")}
    of_wgmma = {
        wgmma(n, operand, source).name
        for operand in (BF16, FP16, TF32, FP8, INT8)
        for n in legal_wgmma_n(operand)
        for source in ("smem", "registers")
    }
    only_since_ptx_8_7 = {"mma_sync_m16n8k16_fp8_fp32", "mma_sync_m16n8k16_fp8_fp16"}  # CuTe 4.2 has none of them
    assert (set(MMA_ATOMS) | of_wgmma) - asked == {"ffma"} | only_since_ptx_8_7


def test_cutes_names_are_understood_by_the_parser() -> None:
    for name, _ in instructions_of("mma"):
        assert atom_of(name) == our_mma(name), name
    for name, _, _ in instructions_of("copy"):
        if not name.startswith("UniversalCopy"):
            assert atom_of(name) == our_copy(name), name


@pytest.mark.parametrize(("name", "answer"), instructions_of("mma"))
def test_our_mma_atoms_are_cutes(name: str, answer: str) -> None:
    atom = our_mma(name).tv
    ours = [atom.shape_mnk, atom.a, atom.b, atom.c, atom.thr_id]
    assert [without_ones(normal(x)) for x in ours] == [without_ones(x) for x in several(answer)]


@pytest.mark.parametrize(("name", "element", "answer"), instructions_of("copy"))
def test_our_copy_atoms_are_cutes(name: str, element: str, answer: str) -> None:
    atom = our_copy(name).tv(ELEMENTS[element])
    assert [normal(x) for x in (atom.src, atom.dst, atom.ref, atom.thr_id)] == several(answer)


@pytest.mark.parametrize(("name", "tile", "permutation", "answer"), instructions_of("layouts of mma"))
def test_our_tiled_mmas_give_each_thread_what_cute_gives_it(
    name: str, tile: str, permutation: str, answer: str
) -> None:
    mma = our_tiled_mma(name, tile, permutation)
    assert [normal(x) for x in (mma.layout_a_tv(), mma.layout_b_tv(), mma.layout_c_tv())] == several(answer)


@pytest.mark.parametrize("operand", "ABC")
def test_partitions_by_our_tiled_mmas_are_cutes(operand: str) -> None:
    for name, tile, permutation, layout, thread, answer in instructions_of(f"partition_{operand}"):
        share = our_tiled_mma(name, tile, permutation).get_slice(int(thread))
        ours = getattr(share, f"partition_{operand}")(Tensor(parse(layout)))
        assert place_of(ours) == place(answer), (name, tile, permutation, layout, thread)


@pytest.mark.parametrize("operand", "ABC")
def test_our_copies_for_an_mma_are_cutes(operand: str) -> None:
    """Their layouts, the fragment of thread 0 as they take it, and one thread's part of smem."""
    for name, tile, permutation, copy_name, element, text, thread, answer in instructions_of(f"copy for {operand}"):
        mma, atom = our_tiled_mma(name, tile, permutation), our_copy(copy_name).tv(ELEMENTS[element])
        make = getattr(cute, f"make_tiled_copy_{operand}")
        if answer.startswith("refused"):
            with pytest.raises(LayoutError, match="do not divide into atoms"):
                make(atom, mma)
            continue
        copy, tensor = make(atom, mma), Tensor(parse(text))
        of_smem, of_registers = ("S", "D") if "LDSM" in copy_name else ("D", "S")
        part = getattr(mma.get_slice(0), f"partition_{operand}")(tensor)
        fragment = getattr(copy.get_slice(0), f"retile_{of_registers}")(Layout(part.inner.shape))
        in_smem = getattr(copy.get_slice(int(thread)), f"partition_{of_smem}")(tensor)
        *layouts, share = answer.split(" ; ")
        ours = [normal(x) for x in (copy.layout_s_tv(), copy.layout_d_tv(), fragment)]
        assert ours == [normal(parse(x)) for x in layouts], (name, tile, copy_name)
        assert place_of(in_smem) == place(share), (name, tile, copy_name, text, thread)
