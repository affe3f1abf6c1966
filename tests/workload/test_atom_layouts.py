"""Atoms hold each element of their tile once, where PTX says; the addresses of tiled copies are those counted elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import KernelError, LayoutError
from gpusim.layout import (
    ByteLayout,
    Layout,
    MmaAtomTV,
    Swizzle,
    TiledCopy,
    TiledMma,
    make_tiled_copy_A,
    make_tiled_copy_B,
    make_tiled_copy_C,
    offsets,
    swizzle_mode,
)
from gpusim.workload.atoms import COPY_ATOMS, FFMA, MMA_ATOMS, CopyAtom, MmaAtom, copy_atom, legal_wgmma_n, mma_sync, wgmma
from gpusim.workload.atoms.mma import MmaKind
from gpusim.workload.dtypes import BF16, DTYPES, FP8, FP16, FP32, FP64, INT8, TF32, DType
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.operands import OperandTile, cp_async_fill, epilogue_store, ldmatrix_reads, stmatrix_writes
from gpusim.workload.smem.access import wavefronts
from gpusim.workload.tensor import MemRef
from gpusim.workload.tiled import mma_counts, num_copy_instructions, tiled_copy, tiled_mma, warp_addresses

TENSOR_DTYPES = (BF16, FP16, TF32, FP8, INT8)
MMA_SYNC = [atom for atom in MMA_ATOMS.values() if atom.kind == "mma_sync"]
WGMMA = [
    wgmma(n, operand, source)
    for operand in TENSOR_DTYPES
    for n in legal_wgmma_n(operand)
    for source in ("smem", "registers")
] + [wgmma(n, operand, accumulator=FP16) for operand in (FP16, FP8) for n in (8, 104, 256)]
BY_LANES = [atom for atom in COPY_ATOMS.values() if atom.bits_per_thread is not None]
MATRICES = [atom for atom in BY_LANES if atom.num_matrices]


def times_held(layout_tv: Layout, num_places: int) -> list[int]:
    """How many pairs of thread and value each place of the tile has."""
    counts = np.bincount(layout_tv(np.arange(layout_tv.size)), minlength=num_places)
    assert len(counts) == num_places, f"{layout_tv} reaches beyond {num_places}"
    return sorted(set(counts.tolist()))


# ---------------------------------------------------------------------- each element once


@pytest.mark.parametrize("atom", [*MMA_SYNC, *WGMMA], ids=lambda atom: atom.name)
def test_threads_of_an_mma_hold_each_element_once(atom: MmaAtom) -> None:
    """An operand in smem is seen by each thread as a whole."""
    tv = atom.tv
    assert tv.shape_mnk == (atom.m, atom.n, atom.k)
    assert tv.thr_id.size == atom.num_threads
    assert times_held(tv.a, atom.m * atom.k) == [atom.num_threads if atom.a_source == "smem" else 1]
    assert times_held(tv.b, atom.n * atom.k) == [atom.num_threads if atom.kind == "wgmma" else 1]
    assert times_held(tv.c, atom.m * atom.n) == [1]


def test_lanes_of_an_ffma_have_one_product_each_and_share_rows_and_columns() -> None:
    tv = FFMA.tv
    assert (times_held(tv.a, 4), times_held(tv.b, 8), times_held(tv.c, 32)) == ([8], [4], [1])
    for lane in range(32):
        assert tv.c(lane, 0) == tv.a(lane, 0) + 4 * tv.b(lane, 0)


@pytest.mark.parametrize("atom", BY_LANES, ids=lambda atom: atom.name)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)
def test_a_copy_reads_and_writes_each_element_once_or_is_refused(atom: CopyAtom, dtype: DType) -> None:
    widest = atom.bits_per_thread if not atom.num_matrices else 16 if atom.is_trans else 32
    if dtype.bits > widest:
        with pytest.raises(KernelError, match=f"units have {widest} bits, {dtype.name} has {dtype.bits}"):
            atom.tv(dtype)
        return
    tv = atom.tv(dtype)
    per_atom = atom.num_bytes if atom.num_matrices else atom.bytes_per_thread
    num_elements = per_atom // dtype.num_bytes
    repeats = 4 // atom.num_matrices if atom.num_matrices else 1  # lanes beyond the last row
    in_memory, in_registers = (tv.dst, tv.src) if atom.source == "registers" else (tv.src, tv.dst)
    assert times_held(in_memory, num_elements) == [repeats]
    assert times_held(in_registers, num_elements) == [1]
    assert not atom.num_matrices or tv.ref == in_registers


def test_the_law_finds_a_fragment_with_a_wrong_stride() -> None:
    """m16n8k16's A with 32 instead of 128 for its last mode: columns 2 to 7 twice, 10 to 15 never; 160 of 256 elements."""
    wrong = Layout(((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 32)))
    assert times_held(wrong, 256) == [0, 1, 2]
    assert len(set(offsets(wrong))) == 160
    right: MmaAtomTV = mma_sync(BF16).tv
    assert times_held(right.a, 256) == [1]


@pytest.mark.parametrize("name", ["tma_load", "tma_load_multicast", "tma_store"])
def test_what_moves_boxes_has_no_threads_to_speak_of(name: str) -> None:
    with pytest.raises(KernelError, match=r"use tma\.TmaBox"):
        copy_atom(name).tv(BF16)


# ---------------------------------------------------------------------- where PTX says

Place = Callable[[int, int, int], tuple[int, int]]
"""(groupID, threadID_in_group, i) to (row, column) of the i-th element of a lane."""

# PTX ISA, matrix fragments for mma.m16n8k4 to m16n8k32, as its formulas stand; B's row is its k, its column its n.
PTX_A: dict[tuple[int, int], Place] = {
    (16, 8): lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    (16, 16): lambda g, t, i: (g if i in (0, 1, 4, 5) else g + 8, t * 2 + (i & 1) + (8 if i >= 4 else 0)),
    (32, 4): lambda g, t, i: (g if i == 0 else g + 8, t),
    (32, 8): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
    **{(64, k): lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)) for k in (4, 8, 16)},
    (8, 16): lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
    (8, 32): lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (16 if i >= 8 else 0)),
}
PTX_B: dict[tuple[int, int], Place] = {
    (16, 8): lambda g, t, i: (t * 2 + i, g),
    (16, 16): lambda g, t, i: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g),
    (32, 4): lambda g, t, i: (t, g),
    (32, 8): lambda g, t, i: (t if i == 0 else t + 4, g),
    **{(64, k): lambda g, t, i: (t + 4 * i, g) for k in (4, 8, 16)},
    (8, 16): lambda g, t, i: (t * 4 + i, g),
    (8, 32): lambda g, t, i: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g),
}


def ptx_c(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8, t * 2 + (i & 1))


def by_formula(place: Place, num_values: int, *, num_warps: int = 1) -> dict[tuple[int, int], tuple[int, int]]:
    """(row, column) to (thread, value); each warp of a warpgroup has sixteen rows."""
    found = {}
    for thread in range(32 * num_warps):
        warp, lane = thread // 32, thread % 32
        for value in range(num_values):
            row, column = place(lane >> 2, lane % 4, value)
            found[row + 16 * warp, column] = (thread, value)
    return found


def by_layout(layout_tv: Layout, num_rows: int, num_columns: int) -> dict[tuple[int, int], tuple[int, int]]:
    """The inverse of a layout that holds each place once."""
    num_threads = layout_tv[0].size
    places = layout_tv(np.arange(num_rows * num_columns)).tolist()
    return {
        (place % num_rows, place // num_rows): (index % num_threads, index // num_threads)
        for index, place in enumerate(places)
    }


@pytest.mark.parametrize("atom", MMA_SYNC, ids=lambda atom: atom.name)
def test_an_element_of_an_mma_sync_is_where_ptx_says(atom: MmaAtom) -> None:
    key = (atom.a_dtype.bits, atom.k)
    assert by_layout(atom.tv.a, atom.m, atom.k) == by_formula(PTX_A[key], atom.m * atom.k // 32)
    of_b = by_formula(PTX_B[key], 8 * atom.k // 32)
    assert by_layout(atom.tv.b, 8, atom.k) == {(n, k): holder for (k, n), holder in of_b.items()}
    assert by_layout(atom.tv.c, atom.m, 8) == by_formula(ptx_c, atom.m * 8 // 32)


OF_EACH_KIND = [atom for atom in WGMMA if atom.a_dtype == BF16 or atom.n in (8, 24, 256)]
"""The accumulator depends on n alone, A on its type alone."""


@pytest.mark.parametrize("atom", OF_EACH_KIND, ids=lambda atom: atom.name)
def test_an_element_of_a_wgmma_is_where_ptx_says(atom: MmaAtom) -> None:
    """Each warp has sixteen rows; its accumulator is one of m16n8 after the other, A as that of mma.sync."""

    def accumulator(g: int, t: int, i: int) -> tuple[int, int]:
        row, column = ptx_c(g, t, i % 4)
        return row, column + 8 * (i // 4)

    assert by_layout(atom.tv.c, 64, atom.n) == by_formula(accumulator, atom.n // 2, num_warps=4)
    if atom.a_source == "registers":
        formula = PTX_A[atom.a_dtype.bits, atom.k]
        assert by_layout(atom.tv.a, 64, atom.k) == by_formula(formula, 16 * atom.k // 32, num_warps=4)


@pytest.mark.parametrize("atom", MATRICES, ids=lambda atom: atom.name)
def test_an_element_of_ldmatrix_and_stmatrix_is_where_ptx_says(atom: CopyAtom) -> None:
    """Lanes 8j to 8j + 7 address the rows of matrix j; lane i's register has row i / 4, columns 2 (i % 4) and next."""
    tv = atom.tv(BF16)
    in_memory, in_registers = (tv.dst, tv.src) if atom.source == "registers" else (tv.src, tv.dst)
    for lane in range(8 * atom.num_matrices):
        matrix, row = divmod(lane, 8)
        assert [in_memory(lane, column) for column in range(8)] == [64 * matrix + 8 * row + c for c in range(8)]
    for lane in range(32):
        for value in range(2 * atom.num_matrices):
            matrix, half = divmod(value, 2)
            row, column = lane // 4, 2 * (lane % 4) + half
            if atom.is_trans:
                row, column = column, row
            assert in_registers(lane, value) == 64 * matrix + 8 * row + column


def test_what_ldmatrix_brings_is_what_mma_sync_wants() -> None:
    """x4 brings A of m16n8k16: its matrices are the quarters of A, upper left, lower left, upper right, lower right."""
    loaded, wanted = copy_atom("ldmatrix_x4").tv(BF16).dst, mma_sync(BF16).tv.a
    for lane in range(32):
        for value in range(8):
            matrix, within = divmod(loaded(lane, value), 64)
            row, column = within // 8 + 8 * (matrix % 2), within % 8 + 8 * (matrix // 2)
            assert wanted(lane, value) == row + 16 * column


# ---------------------------------------------------------------------- addresses of tiled copies


def k_major(tile: OperandTile) -> MemRef:
    """The same tile as a tensor: panels side by side, each as wide as the swizzle's span."""
    panel = tile.panel_bytes // tile.dtype.num_bytes
    layout = Layout((tile.rows, (panel, tile.k // panel)), (panel, (1, tile.rows * panel)))
    swizzled = ByteLayout(swizzle_mode(tile.swizzle), layout, element_bits=tile.dtype.bits)
    return MemRef(name="tile", layout=swizzled, dtype=tile.dtype, space="smem")


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("dtype", [BF16, FP8, TF32], ids=lambda dtype: dtype.name)
def test_ldmatrix_of_a_tiled_mma_meets_the_banks_that_operand_tiles_count(dtype: DType, swizzle: str) -> None:
    tile = OperandTile(rows=128, k=256 // dtype.num_bytes, dtype=dtype, is_k_major=True, swizzle=swizzle)
    atom, mma = copy_atom("ldmatrix_x4"), tiled_mma(mma_sync(dtype), Layout((4, 1, 1)))
    copy = make_tiled_copy_A(atom.tv(dtype), mma)
    counted = wavefronts(atom.smem_op, warp_addresses(copy, k_major(tile), "src"))
    reads = [ldmatrix_reads(tile, rows_per_warp=128, k_step_idx=step) for step in range(8)]
    assert counted.size == sum(read.num_requests for read in reads)
    assert counted.sum() == sum(read.num_wavefronts for read in reads)


def mn_major(tile: OperandTile) -> MemRef:
    """As ``k_major``, with panels of neighbouring rows."""
    panel = tile.panel_bytes // tile.dtype.num_bytes
    layout = Layout(((panel, tile.rows // panel), tile.k), ((1, tile.k * panel), panel))
    swizzled = ByteLayout(swizzle_mode(tile.swizzle), layout, element_bits=tile.dtype.bits)
    return MemRef(name="tile", layout=swizzled, dtype=tile.dtype, space="smem")


@pytest.mark.parametrize("swizzle", ["none", "32B", "128B"])
@pytest.mark.parametrize("num_matrices", [1, 2, 4])
def test_transposing_ldmatrix_meets_the_banks_that_operand_tiles_count(num_matrices: int, swizzle: str) -> None:
    """The wavefronts are those of the matrices, whichever way they are split among instructions."""
    tile = OperandTile(rows=128, k=64, dtype=BF16, is_k_major=False, swizzle=swizzle)
    atom, mma = copy_atom(f"ldmatrix_x{num_matrices}_trans"), tiled_mma(mma_sync(BF16), Layout((2, 1, 1)))
    copy = make_tiled_copy_A(atom.tv(BF16), mma)
    counted = wavefronts(atom.smem_op, warp_addresses(copy, mn_major(tile), "src"))
    reads = [ldmatrix_reads(tile, rows_per_warp=128, k_step_idx=step) for step in range(4)]
    assert counted.size * num_matrices == 128 * 64 // 64
    assert counted.sum() == sum(read.num_wavefronts for read in reads)


@pytest.mark.parametrize(("num_matrices", "permuted_n"), [(1, None), (2, None), (4, 32)])
def test_b_comes_by_four_matrices_only_where_a_permutation_widens_n(num_matrices: int, permuted_n: int | None) -> None:
    """A warp's part of B is 8 x 16, two matrices; two such parts are four."""
    tile = OperandTile(rows=64, k=64, dtype=BF16, is_k_major=True, swizzle="128B")
    mma = tiled_mma(mma_sync(BF16), Layout((1, 2, 1)), (None, permuted_n, None))
    atom = copy_atom(f"ldmatrix_x{num_matrices}")
    addresses = warp_addresses(make_tiled_copy_B(atom.tv(BF16), mma), k_major(tile), "src")
    assert addresses.shape == (32 // num_matrices, 2, 32)
    assert wavefronts(atom.smem_op, addresses).sum() == 64  # one for each matrix of 8 rows: no conflicts
    if num_matrices == 4:
        with pytest.raises(LayoutError, match="do not divide into atoms"):
            make_tiled_copy_B(atom.tv(BF16), tiled_mma(mma_sync(BF16), Layout((1, 2, 1))))


@pytest.mark.parametrize("swizzle", ["none", "128B"])
def test_stmatrix_of_a_tiled_wgmma_meets_the_banks_that_output_tiles_count(swizzle: str) -> None:
    atom, mma = copy_atom("stmatrix_x4"), tiled_mma(wgmma(64, BF16), Layout((2, 1, 1)))
    copy = make_tiled_copy_C(atom.tv(BF16), mma)
    out = k_major(OperandTile(rows=128, k=128, dtype=BF16, is_k_major=True, swizzle=swizzle))
    counted = wavefronts(atom.smem_op, warp_addresses(copy, out, "dst"))
    written = stmatrix_writes(128, 128, BF16, swizzle)
    assert (counted.size, counted.sum()) == (written.num_requests, written.num_wavefronts)


@given(log_threads=st.integers(5, 8), swizzle=st.sampled_from(["none", "64B", "128B"]), panels=st.integers(1, 2))
def test_cp_async_row_by_row_meets_the_banks_and_sectors_that_fills_count(
    log_threads: int, swizzle: str, panels: int
) -> None:
    tile = OperandTile(rows=64, k=64 * panels, dtype=BF16, is_k_major=True, swizzle=swizzle)
    chunks = 8 * panels
    threads = Layout((2**log_threads // chunks, chunks), (chunks, 1))
    atom = copy_atom("cp_async_cg_b128")
    copy = tiled_copy(atom, BF16, threads, Layout((1, 8)))
    fill = cp_async_fill(tile, 2**log_threads)
    read = global_access(warp_addresses(copy, MemRef.row_major("gA", (64, 64 * panels), BF16), "src"), 16)
    assert (read.num_requests, read.num_sectors, read.num_bytes) == (
        fill.num_requests,
        fill.num_sectors,
        fill.num_bytes,
    )
    assert wavefronts(atom.smem_op, warp_addresses(copy, k_major(tile), "dst")).sum() == fill.num_wavefronts
    assert num_copy_instructions(copy, (64, 64 * panels)) * copy.num_threads // 32 == fill.num_requests


@pytest.mark.parametrize(
    ("mma", "kind"),
    [(tiled_mma(wgmma(64, BF16), Layout((2, 1, 1))), "wgmma"), (tiled_mma(mma_sync(BF16), Layout((2, 2, 1))), "mma_sync")],
    ids=["wgmma", "mma_sync"],
)
@pytest.mark.parametrize("dtype", [BF16, FP32], ids=lambda dtype: dtype.name)
def test_accumulators_stored_to_global_memory_touch_the_sectors_that_the_epilogue_counts(
    mma: TiledMma, kind: MmaKind, dtype: DType
) -> None:
    bits = 2 * dtype.bits  # two neighbours of a thread
    copy = make_tiled_copy_C(copy_atom(f"st_global_b{bits}").tv(dtype), mma)
    out = MemRef.row_major("D", (128, 64), dtype)
    stored = global_access(warp_addresses(copy, out, "dst"), bits // 8)
    counted = epilogue_store(128, 64, dtype.num_bytes, kind)
    assert (stored.num_requests, stored.num_sectors, stored.num_bytes) == (
        counted.num_requests,
        counted.num_sectors,
        counted.num_bytes,
    )


@given(
    rows=st.sampled_from([8, 16, 32]),
    vector=st.sampled_from([1, 2, 4, 8]),
    is_row_major=st.booleans(),
    times=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    base_bytes=st.integers(0, 8).map(lambda n: 1024 * n),
)
def test_instructions_of_a_tiled_copy_touch_each_byte_once(
    rows: int, vector: int, is_row_major: bool, times: tuple[int, int], base_bytes: int
) -> None:
    atom = copy_atom(f"ld_global_b{16 * vector}")
    threads = Layout((rows, 64 // rows), (64 // rows, 1) if is_row_major else (1, rows))
    values = Layout((1, vector)) if is_row_major else Layout((vector, 1))
    copy = tiled_copy(atom, FP16, threads, values)
    shape = tuple(extent * repeat for extent, repeat in zip(copy.tiler, times, strict=True))
    make = MemRef.row_major if is_row_major else MemRef.column_major
    tensor = make("A", shape, FP16, base_bytes=base_bytes)
    addresses = warp_addresses(copy, tensor, "src")
    assert addresses.shape == (num_copy_instructions(copy, shape), 2, 32)
    touched = (addresses[..., None] + np.arange(2 * vector)).ravel()
    assert sorted(touched.tolist()) == list(range(base_bytes, base_bytes + tensor.num_bytes))


def test_addresses_are_those_of_cutes_partition() -> None:
    """Lane 9 of warp 1 is thread 41: row 5, column 8 of a tile of 16 x 64; the third instruction's tile begins at row 32."""
    copy = tiled_copy(copy_atom("cp_async_cg_b128"), BF16, Layout((16, 8), (8, 1)), Layout((1, 8)))
    tensor = MemRef.row_major("A", (128, 64), BF16)
    row, column = 32 + 41 // 8, 8 * (41 % 8)
    assert warp_addresses(copy, tensor, "src")[2, 1, 9] == 2 * (64 * row + column)
    share = copy.get_slice(41).partition_S(tensor.layout)
    assert share((0, 0), 2, 0) == 64 * row + column


# ---------------------------------------------------------------------- refusals


def cp_async_copy(num_rows: int = 16) -> TiledCopy:
    return tiled_copy(copy_atom("cp_async_cg_b128"), BF16, Layout((num_rows, 8), (8, 1)), Layout((1, 8)))


def test_a_side_in_registers_has_no_addresses() -> None:
    copy = make_tiled_copy_A(copy_atom("ldmatrix_x4").tv(BF16), tiled_mma(mma_sync(BF16)))
    tensor = MemRef.row_major("sA", (16, 16), BF16, "smem")
    assert warp_addresses(copy, tensor, "src").shape == (1, 1, 32)
    with pytest.raises(LayoutError, match="in registers, without addresses: use 'src'"):
        warp_addresses(copy, tensor, "dst")


def test_values_that_are_not_neighbours_in_memory_are_refused() -> None:
    warp_addresses(cp_async_copy(), MemRef.row_major("A", (16, 64), BF16), "src")
    with pytest.raises(LayoutError, match="8 values do not lie one after the other in A"):
        warp_addresses(cp_async_copy(), MemRef.column_major("A", (16, 64), BF16), "src")


def test_a_swizzle_that_tears_a_vector_apart_is_refused() -> None:
    """Swizzle<3,3,3> on bytes moves 8 bytes: fewer than the 16 of a vector."""
    for base in (4, 3):
        layout = ByteLayout(Swizzle(3, base, 3), Layout((16, 64), (64, 1)), element_bits=16)
        tile = MemRef(name="sA", layout=layout, dtype=BF16, space="smem")
        if base == 4:
            warp_addresses(cp_async_copy(), tile, "dst")
            continue
        with pytest.raises(LayoutError, match="one after the other"):
            warp_addresses(cp_async_copy(), tile, "dst")


def test_tiles_that_do_not_divide_a_tensor_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"tiles of \(16, 64\) do not divide \(24, 64\)"):
        warp_addresses(cp_async_copy(), MemRef.row_major("A", (24, 64), BF16), "src")
    with pytest.raises(LayoutError, match="do not divide"):
        num_copy_instructions(cp_async_copy(), (16, 96))


def test_threads_that_are_no_whole_warps_are_refused() -> None:
    with pytest.raises(KernelError, match="24 threads are no full warps: use 32"):
        cp_async_copy(num_rows=3)
    one_thread = TiledCopy(copy_atom("ld_shared_b128").tv(BF16), Layout((8, 8), (8, 1)), (8, 8))
    with pytest.raises(LayoutError, match="8 threads are no full warps: use 32"):
        warp_addresses(one_thread, MemRef.row_major("A", (8, 8), BF16), "src")


def test_fp64_fits_vectors_and_not_matrices() -> None:
    assert copy_atom("ld_shared_b128").tv(FP64).src.size == 2
    with pytest.raises(KernelError, match="fp64 has 64: use a narrower type"):
        copy_atom("ldmatrix_x4").tv(FP64)


# ---------------------------------------------------------------------- counts


@given(
    units=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    times=st.tuples(st.integers(1, 4), st.integers(1, 8), st.integers(1, 4)),
    atom=st.sampled_from([mma_sync(BF16), mma_sync(FP8), wgmma(64, BF16), wgmma(24, TF32, "registers"), FFMA]),
)
def test_the_instructions_of_all_units_do_the_work_of_the_tile(
    units: tuple[int, int], times: tuple[int, int, int], atom: MmaAtom
) -> None:
    mma = tiled_mma(atom, Layout((*units, 1)))
    tile = tuple(step * repeat for step, repeat in zip(mma.tile_shape, times, strict=True))
    counts = mma_counts(mma, tile)
    num_units = units[0] * units[1]
    assert mma.num_threads == num_units * atom.num_threads
    assert counts.num_instructions * num_units * atom.num_flops == 2 * tile[0] * tile[1] * tile[2]
    assert counts.num_accumulators * num_units * atom.m * atom.n == tile[0] * tile[1]


def test_two_warpgroups_share_a_tile_of_128_rows() -> None:
    atom = wgmma(256, BF16)
    counts = mma_counts(tiled_mma(atom, Layout((2, 1, 1))), (128, 256, 64))
    assert (counts.num_instructions, counts.num_accumulators * atom.accumulator_registers) == (4, 128)


def test_a_permutation_of_n_changes_who_has_a_column_and_not_how_many() -> None:
    plain = tiled_mma(mma_sync(BF16), Layout((2, 2, 1)))
    permuted = tiled_mma(mma_sync(BF16), Layout((2, 2, 1)), (32, 32, 16))
    assert mma_counts(plain, (128, 128, 32)) == mma_counts(permuted, (128, 128, 32))
    assert (plain.tile_shape, permuted.tile_shape) == ((32, 16, 16), (32, 32, 16))


def test_a_tile_that_a_tiled_mma_does_not_divide_is_refused_with_the_nearest() -> None:
    mma = tiled_mma(mma_sync(BF16), Layout((2, 1, 1)))
    with pytest.raises(LayoutError, match="tile_m=100 is no multiple of its 32: use 96"):
        mma_counts(mma, (100, 64, 16))
    with pytest.raises(LayoutError, match="tile_k=8 is no multiple of its 16: use 16"):
        mma_counts(mma, (32, 64, 8))


@pytest.mark.parametrize("thread", [-1, 32, 40])
def test_a_thread_that_a_tiled_mma_lacks_is_named(thread: int) -> None:
    with pytest.raises(LayoutError, match=f"no thread {thread}: use 0 to 31"):
        tiled_mma(mma_sync(BF16)).get_slice(thread)
