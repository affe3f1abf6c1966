"""Questions about real atoms: their layouts, and tiled MMAs and copies built from them.

``atom_cases`` are those of ``cute_answers.json``, ``instruction_cases`` those of ``cute_instructions.json``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from draw_cases import Case, L, Tile, cpp, size, text

MMA_ATOMS = {
    "SM80_16x8x8": "SM80_16x8x8_F32F16F16F32_TN",
    "SM80_16x8x16": "SM80_16x8x16_F32F16F16F32_TN",
    "SM80_16x8x32": "SM80_16x8x32_S32S8S8S32_TN",
    "SM80_8x8x4_f64": "SM80_8x8x4_F64F64F64F64_TN",
    "SM70_8x8x4": "SM70_8x8x4_F32F16F16F32_TN",
    "SM75_8x8x16": "SM75_8x8x16_S32S8S8S32_TN",
}
COPY_ATOMS = {
    "universal_128": ("UniversalCopy<uint128_t>", "half_t"),
    "universal_32": ("UniversalCopy<uint32_t>", "half_t"),
    "universal_32f": ("UniversalCopy<uint32_t>", "float"),
    "ldsm_x4": ("SM75_U32x4_LDSM_N", "half_t"),
    "ldsm_x2": ("SM75_U32x2_LDSM_N", "half_t"),
    "ldsm_x1": ("SM75_U32x1_LDSM_N", "half_t"),
    "ldsm_x4_trans": ("SM75_U16x8_LDSM_T", "half_t"),
}
TILES = [L((1, 1, 1), (0, 0, 0)), L((2, 2, 1), (1, 2, 0)), L((4, 1, 1), (1, 0, 0)), L((1, 2, 2), (0, 2, 1))]


def atom_cases(seed: int) -> Iterator[Case]:
    """All cases about atoms."""
    rng = random.Random(seed)
    for name, mma in MMA_ATOMS.items():
        yield Case("atoms: mma", (name,), _mma_atom(mma))
        for tile in TILES:
            yield from _tiled_mma(rng, name, mma, tile)
    for name, (op, value) in COPY_ATOMS.items():
        yield Case("atoms: copy", (name,), _copy_atom(op, value))
    yield from _tiled_copies(rng)
    yield from _copies_for_mma()
    yield from _cotiled()


def _cotiled() -> Iterator[Case]:
    for offsets, data in [
        (L((32, 4), (4, 1)), L((16, 32), (32, 1))),
        (L((32, 8), (8, 1)), L((32, 16), (1, 32))),
        (L((16, 4), (1, 16)), L((8, 8), (8, 1))),
        (L((32, 2), (2, 1)), L((4, (8, 4)), (8, (1, 32)))),
    ]:
        made = f"make_cotiled_copy(Copy_Atom<UniversalCopy<uint32_t>,half_t>{{}},{cpp(offsets)},{cpp(data)})"
        asked = f"several(typename decltype({made})::TiledLayout_TV{{}},{made}.get_layoutS_TV())"
        yield Case("atoms: cotiled copy", ("universal_32", text(offsets), text(data)), asked)


def _mma_atom(mma: str) -> str:
    traits = f"MMA_Atom<{mma}>"
    parts = ("Shape_MNK", "LayoutA_TV", "LayoutB_TV", "LayoutC_TV", "ThrID")
    return f"several({','.join(f'{traits}::{part}{{}}' for part in parts)})"


def _copy_atom(op: str, value: str) -> str:
    traits = f"Copy_Atom<{op},{value}>"
    parts = ("ValLayoutSrc", "ValLayoutDst", "ValLayoutRef", "ThrID")
    return f"several({','.join(f'{traits}::{part}{{}}' for part in parts)})"


def _tiled_mma(rng: random.Random, name: str, mma: str, tile: L) -> Iterator[Case]:
    made = f"make_tiled_mma({mma}{{}},{cpp(tile)})"
    args = (name, text(tile))
    yield Case(
        "atoms: layouts of mma",
        args,
        f"several({made}.get_layoutA_TV(),{made}.get_layoutB_TV(),{made}.get_layoutC_TV())",
    )
    for operand, shape in (("A", (128, 64)), ("B", (64, 64)), ("C", (128, 64))):
        layout = L(shape, rng.choice([(1, shape[0]), (shape[1], 1)]))
        thread = rng.randrange(8)
        asked = f"place({made}.get_slice(Int<{thread}>{{}}).partition_{operand}(at({cpp(layout)})))"
        yield Case(f"atoms: partition_{operand}", (*args, text(layout), str(thread)), asked)


def _tiled_copies(rng: random.Random) -> Iterator[Case]:
    shapes = [
        ("universal_128", L((16, 8), (8, 1)), L((1, 8), (0, 1))),
        ("universal_128", L((32, 4), (4, 1)), L((1, 8), (0, 1))),
        ("universal_128", L((8, 16), (1, 8)), L((8, 1), (1, 0))),
        ("universal_32", L((16, 8), (8, 1)), L((1, 4), (0, 1))),
        ("universal_32", L((32, 4), (1, 32)), L((2, 2), (1, 2))),
        ("universal_32f", L((8, 4), (4, 1)), L((2, 3), (3, 1))),
        ("ldsm_x4", L((32, 1), (1, 0)), L((1, 8), (0, 1))),
        ("ldsm_x4", L((16, 4), (1, 16)), L((1, 8), (0, 1))),
        ("ldsm_x2", L((32, 2), (1, 32)), L((1, 8), (0, 1))),
    ]
    for name, threads, values in shapes:
        op, value = COPY_ATOMS[name]
        made = f"make_tiled_copy(Copy_Atom<{op},{value}>{{}},{cpp(threads)},{cpp(values)})"
        args = (name, text(threads), text(values))
        kind = f"decltype({made})"
        yield Case(
            "atoms: tiled copy",
            args,
            f"several(typename {kind}::Tiler_MN{{}},typename {kind}::TiledLayout_TV{{}},"
            f"{made}.get_layoutS_TV(),{made}.get_layoutD_TV())",
        )
        for side in "SD":
            layout = L((128, 128), rng.choice([(128, 1), (1, 128)]))
            thread = rng.randrange(32)
            asked = f"place({made}.get_slice({thread}).partition_{side}(at({cpp(layout)})))"
            yield Case(f"atoms: copy_{side}", (*args, text(layout), str(thread)), asked)


def _copies_for_mma() -> Iterator[Case]:
    wanted = [("ldsm_x4", "A"), ("ldsm_x2", "B"), ("ldsm_x1", "B"), ("universal_32", "C"), ("ldsm_x4_trans", "A")]
    for mma_name in ("SM80_16x8x16", "SM80_16x8x8"):
        for tile in TILES[1:]:
            for copy_name, operand in wanted:
                op, value = COPY_ATOMS[copy_name]
                mma = f"make_tiled_mma({MMA_ATOMS[mma_name]}{{}},{cpp(tile)})"
                made = f"make_tiled_copy_{operand}(Copy_Atom<{op},{value}>{{}},{mma})"
                layout = L((64, 64), (1, 64))
                fragment = f"make_layout(shape({mma}.get_slice(0).partition_{operand}(at({cpp(layout)})).layout()))"
                asked = (
                    f"several({made}.get_layoutS_TV(),{made}.get_layoutD_TV(),"
                    f"{made}.get_slice(0).retile_D(at({fragment})).layout())"
                )
                yield Case(f"atoms: copy for {operand}", (mma_name, text(tile), copy_name, text(layout)), asked)


# Instructions of sm_80 to sm_90 by CuTe's own names: the second table

MMA_SYNC = (
    "SM80_16x8x8_F32F16F16F32_TN",
    "SM80_16x8x16_F32F16F16F32_TN",
    "SM80_16x8x8_F16F16F16F16_TN",
    "SM80_16x8x16_F16F16F16F16_TN",
    "SM80_16x8x8_F32BF16BF16F32_TN",
    "SM80_16x8x16_F32BF16BF16F32_TN",
    "SM80_16x8x4_F32TF32TF32F32_TN",
    "SM80_16x8x8_F32TF32TF32F32_TN",
    "SM80_16x8x16_S32S8S8S32_TN",
    "SM80_16x8x32_S32S8S8S32_TN",
    "SM89_16x8x32_F32E4M3E4M3F32_TN",
    "SM89_16x8x32_F16E4M3E4M3F16_TN",
    "SM80_8x8x4_F64F64F64F64_TN",
    "SM90_16x8x4_F64F64F64F64_TN",
    "SM90_16x8x8_F64F64F64F64_TN",
    "SM90_16x8x16_F64F64F64F64_TN",
)
GMMA_K = {"F16F16F16": 16, "F32F16F16": 16, "F32BF16BF16": 16, "F32TF32TF32": 8, "F32E4M3E4M3": 32, "F16E4M3E4M3": 32}
GMMA_N = tuple(range(8, 257, 8))
GMMA_INT8_N = (8, 16, 24, *range(32, 257, 16))
MATRICES = {"SM75_U32x{}_LDSM_N": "x", "SM75_U16x{}_LDSM_T": "t", "SM90_U32x{}_STSM_N": "x", "SM90_U16x{}_STSM_T": "t"}
VALUES = {"half_t": 16, "float": 32, "uint8_t": 8, "double": 64}


def gmma(n: int, types: str, source: str, majors: str = "KK") -> str:
    """CuTe's name of a wgmma: ``SM90_64x64x16_F32F16F16_SS<GMMA::Major::K,GMMA::Major::K>``."""
    name = f"SM90_64x{n}x{GMMA_K.get(types, 32)}_{types}_{source}"
    if GMMA_K.get(types) == 16:
        return name + "<{}>".format(",".join(f"GMMA::Major::{'K' if major == 'K' else 'MN'}" for major in majors))
    return f"{name}_TN" + ("" if types == "S32S8S8" else "<>")


def matrix_ops(value_bits: int) -> Iterator[str]:
    """ldmatrix and stmatrix for elements of ``value_bits``: 1, 2 and 4 matrices, plain and transposed."""
    for form, kind in MATRICES.items():
        for count in (1, 2, 4):
            if value_bits <= (32 if kind == "x" else 16):
                yield form.format(count if kind == "x" else 2 * count)


def instruction_cases(seed: int) -> Iterator[Case]:
    """All cases about instructions."""
    rng = random.Random(seed)
    for name in MMA_SYNC:
        yield Case("instructions: mma", (name,), _mma_atom(name))
    yield from _gmma_atoms()
    for op, value in _copy_ops():
        yield Case("instructions: copy", (op, value), _copy_atom(op, value))
    yield from _tiled_mmas(rng)
    yield from _copies_for_instructions(rng)


def _gmma_atoms() -> Iterator[Case]:
    for source in ("SS", "RS"):
        names = [gmma(n, types, source) for types in GMMA_K for n in GMMA_N]
        names += [gmma(n, "S32S8S8", source) for n in GMMA_INT8_N]
        names += [gmma(64, types, source, f"K{major}") for types in ("F32F16F16", "F32BF16BF16") for major in "M"]
        names += [gmma(64, "F32F16F16", source, f"M{major}") for major in "KM" if source == "SS"]
        yield from (Case("instructions: mma", (name,), _mma_atom(name)) for name in names)


def _copy_ops() -> Iterator[tuple[str, str]]:
    for value, bits in VALUES.items():
        yield from ((op, value) for op in matrix_ops(bits))
        for width, word in ((8, "uint8_t"), (16, "uint16_t"), (32, "uint32_t"), (64, "uint64_t"), (128, "uint128_t")):
            if width < bits:
                continue
            yield f"UniversalCopy<{word}>", value
            if width >= 32:
                yield f"SM80_CP_ASYNC_CACHEALWAYS<{word}>", value
        yield "SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>", value


def _tiled_mmas(rng: random.Random) -> Iterator[Case]:
    asked = [
        (gmma(n, types, source), tile, None)
        for types, n in (("F32BF16BF16", 64), ("F32BF16BF16", 256), ("F32F16F16", 24), ("F32TF32TF32", 128))
        for source in ("SS", "RS")
        for tile in (L((1, 1, 1), (0, 0, 0)), L((2, 1, 1), (1, 0, 0)), L((1, 2, 1), (0, 1, 0)))
    ]
    asked += [
        (gmma(n, types, source), L((2, 1, 1), (1, 0, 0)), None)
        for types, n in (("F32E4M3E4M3", 128), ("F16E4M3E4M3", 32), ("S32S8S8", 96), ("F16F16F16", 40))
        for source in ("SS", "RS")
    ]
    asked += [(name, L((2, 2, 1), (1, 2, 0)), None) for name in MMA_SYNC]
    asked += [
        (name, tile, permutation)
        for name in ("SM80_16x8x16_F32BF16BF16F32_TN", "SM89_16x8x32_F32E4M3E4M3F32_TN")
        for tile, permutation in (
            (L((2, 2, 1), (1, 2, 0)), (32, 32, 32)),
            (L((4, 1, 1), (1, 0, 0)), (64, 16, 32)),
            (L((1, 2, 1), (0, 1, 0)), (16, L((8, 2, 2), (1, 16, 8)), 32)),
        )
    ]
    for name, tile, permutation in asked:
        yield from _asked_mma(rng, name, tile, permutation)


def _asked_mma(rng: random.Random, name: str, tile: L, permutation: Any) -> Iterator[Case]:
    made, args = _made_mma(name, tile, permutation)
    views = ",".join(f"{made}.get_layout{operand}_TV()" for operand in "ABC")
    yield Case("instructions: layouts of mma", args, f"several({views})")
    num_threads = size(tile.shape) * (128 if name.startswith("SM90") else 32)
    n = 960 if 512 % int(name.split("x")[1]) else 512  # 24, 40 and 96 divide the one, powers of two the other
    for operand, shape in (("A", (256, 64)), ("B", (n, 64)), ("C", (256, n))):
        layout = L(shape, rng.choice([(1, shape[0]), (shape[1], 1)]))
        thread = rng.randrange(num_threads)
        share = f"place({made}.get_slice(Int<{thread}>{{}}).partition_{operand}(at({cpp(layout)})))"
        yield Case(f"instructions: partition_{operand}", (*args, text(layout), str(thread)), share)


def _made_mma(name: str, tile: L, permutation: Any) -> tuple[str, tuple[str, ...]]:
    if permutation is None:
        return f"make_tiled_mma({name}{{}},{cpp(tile)})", (name, text(tile), "-")
    tiler = Tile(tuple(permutation))
    return f"make_tiled_mma({name}{{}},{cpp(tile)},{cpp(tiler)})", (name, text(tile), text(tiler))


def _copies_for_instructions(rng: random.Random) -> Iterator[Case]:
    one, two = L((1, 1, 1), (0, 0, 0)), L((2, 1, 1), (1, 0, 0))
    wide = ("SM80_16x8x16_F32BF16BF16F32_TN", L((2, 2, 1), (1, 2, 0)), (32, 32, 16))
    stores = [op for op in matrix_ops(16) if "STSM" in op]
    loads = [op for op in matrix_ops(16) if "LDSM" in op]
    asked: list[tuple[tuple[str, L, Any], str, str, str]] = []
    for n in (8, 16, 64, 128):
        for tile in (one, two):
            into = (gmma(n, "F32F16F16", "SS"), tile, None)
            asked += [(into, "C", op, "half_t") for op in (*stores, "UniversalCopy<uint32_t>")]
    for tile in (one, two):
        asked += [((gmma(64, "F32F16F16", "RS"), tile, None), "A", op, "half_t") for op in loads]
    for op in (f"SM75_U32x{count}_LDSM_N" for count in (1, 2, 4)):
        asked += [((gmma(64, "F32E4M3E4M3", "RS"), two, None), "A", op, "uint8_t")]
        asked += [((gmma(64, "F32TF32TF32", "RS"), two, None), "A", op, "float")]
    asked += [(wide, operand, op, "half_t") for operand in "AB" for op in loads]
    asked += [(wide, "C", op, "half_t") for op in stores]
    for (name, tile, permutation), operand, op, value in asked:
        mma, args = _made_mma(name, tile, permutation)
        made = f"make_tiled_copy_{operand}(Copy_Atom<{op},{value}>{{}},{mma})"
        layout = L((256, 128), rng.choice([(1, 256), (128, 1)]))
        num_threads = size(tile.shape) * (128 if name.startswith("SM90") else 32)
        thread = rng.randrange(num_threads)
        side = "S" if "LDSM" in op else "D"
        fragment = f"make_layout(shape({mma}.get_slice(0).partition_{operand}(at({cpp(layout)})).layout()))"
        answers = (
            f"{made}.get_layoutS_TV()",
            f"{made}.get_layoutD_TV()",
            f"{made}.get_slice(0).retile_{'D' if side == 'S' else 'S'}(at({fragment})).layout()",
            f"place({made}.get_slice({thread}).partition_{side}(at({cpp(layout)})))",
        )
        yield Case(
            f"instructions: copy for {operand}",
            (*args, op, value, text(layout), str(thread)),
            f"several({','.join(answers)})",
        )
