"""Questions about real atoms: their layouts, and tiled MMAs and copies built from them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from draw_cases import Case, L, cpp, text

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
