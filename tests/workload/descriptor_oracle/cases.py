"""What is asked of CuTe: atoms and tiles of shared memory, wgmma descriptors, tensor maps. Knows nothing of gpusim."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MODES = {"none": "INTER", "32B": "SW32", "64B": "SW64", "128B": "SW128"}
SPAN_BYTES = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
NUM_BITS = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
TYPES = {8: "uint8_t", 16: "half_t", 32: "tfloat32_t"}


@dataclass(frozen=True)
class Case:
    """One question: its kind and arguments as they are written down, and the C++ statement that prints the answer.

    ``layout`` is an expression of a layout in shared memory whose text is put at the place of the argument "layout".
    """

    kind: str
    args: tuple[Any, ...]
    cpp: str
    layout: str = ""


def static(value: Any) -> str:
    """An IntTuple of static integers."""
    return f"make_shape({','.join(map(static, value))})" if isinstance(value, tuple) else f"Int<{value}>{{}}"


def dynamic(value: Any) -> str:
    """An IntTuple of integers of the run time."""
    return f"make_tuple({','.join(map(dynamic, value))})" if isinstance(value, tuple) else f"int64_t({value})"


def strides(value: Any) -> str:
    """Strides of the run time, but for 1, which is static wherever CuTe's own code has it so."""
    if isinstance(value, tuple):
        return f"make_tuple({','.join(map(strides, value))})"
    return "Int<1>{}" if value == 1 else dynamic(value)


def text(value: Any) -> str:
    """CuTe's notation of an IntTuple."""
    return f"({','.join(map(text, value))})" if isinstance(value, tuple) else str(value)


def atom(major: str, mode: str, bits: int) -> str:
    return f"GMMA::Layout_{major}_{MODES[mode]}_Atom<{TYPES[bits]}>{{}}"


def tile(major: str, mode: str, bits: int, shape: tuple[int, ...], order: tuple[int, ...] = ()) -> str:
    steps = f", Step<{','.join(f'_{i}' for i in order)}>{{}}" if order else ""
    return f"tile_to_shape({atom(major, mode, bits)}, {static(shape)}{steps})"


def plain(bits: int, shape: Any, stride: Any, num_bits: int = 0, base: int = 4, shift: int = 3) -> str:
    layout = f"make_layout({static(shape)}, {static(stride)})"
    return f"composition(Swizzle<{num_bits},{base},{shift}>{{}}, smem_ptr_flag_bits<{bits}>{{}}, {layout})"


def all_cases(seed: int) -> Iterator[Case]:
    """Every question, in a fixed order."""
    draw = random.Random(seed)
    yield from atoms()
    yield from tiles()
    yield from descriptors(draw)
    yield from refused_descriptors()
    yield from tensor_maps(draw)
    yield from unusual_tensor_maps()
    yield from refused_tensor_maps()
    yield from tma_partitions()


def atoms() -> Iterator[Case]:
    for major in ("K", "MN"):
        for mode in MODES:
            for bits in TYPES:
                yield Case("atom", (major, mode, bits), f"print({atom(major, mode, bits)});")


def shapes(major: str, mode: str, bits: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Tiles that the atom divides, with the order of its repeats."""
    span = SPAN_BYTES[mode] * 8 // bits
    deep = max(span, 256 // bits)
    for mn in (64, 128, 192):
        for k in (deep, 2 * deep):
            wide = mn if major == "K" else -(-mn // span) * span
            yield (wide, k if major == "K" else 32), ()
            yield (wide, k if major == "K" else 64), (2, 1)
    yield (128, 2 * deep if major == "K" else 64, 4), ()
    yield (128, 2 * deep if major == "K" else 64, 3), (2, 1, 3)


def tiles() -> Iterator[Case]:
    for major, widths in (("K", TYPES), ("MN", (16,))):
        for mode in MODES:
            for bits in widths:
                for shape, order in sorted(set(shapes(major, mode, bits))):
                    yield Case(
                        "tile",
                        (major, mode, bits, text(shape), text(order) if order else ""),
                        f"print({tile(major, mode, bits, shape, order)});",
                    )


def descriptor(layout: str, major: str, bits: int, mn: int, place: tuple[int, ...], base: int) -> Case:
    """The descriptor of one instruction's operand: ``mn`` by 32 bytes of k, at ``place`` (mn, k, stage) of the tile."""
    stage = f"(_,_,{place[2]})" if len(place) == 3 else ""
    box = f"make_shape(Int<{mn}>{{}}, Int<{256 // bits}>{{}})"
    cpp = (
        f"auto smem = make_tensor(make_smem_ptr(reinterpret_cast<{TYPES[bits]}*>({base}ull)), {layout}){stage}; "
        f"auto part = local_tile(smem, {box}, make_coord({place[0]}, {place[1]})); "
        f'std::printf("0x%016llx", (unsigned long long)uint64_t(GMMA::make_gmma_desc<GMMA::Major::{major}>(part)));'
    )
    return Case("descriptor", (major, "layout", mn, text(place), base), cpp, layout)


def descriptors(draw: random.Random) -> Iterator[Case]:
    for major, widths in (("K", TYPES), ("MN", (16,))):
        for mode in MODES:
            for bits in widths:
                step, span = 256 // bits, SPAN_BYTES[mode] * 8 // bits
                for shape, order in sorted(set(shapes(major, mode, bits))):
                    layout = tile(major, mode, bits, shape, order)
                    rows = [mn for mn in (8, 64, 128, 192) if shape[0] % mn == 0 and (major == "K" or mn % span == 0)]
                    for mn in draw.sample(rows, min(2, len(rows))):
                        last = (shape[0] // mn - 1, shape[1] // step - 1, *(s - 1 for s in shape[2:]))
                        place = tuple(draw.choice((0, end, draw.randint(0, end))) for end in last)
                        yield descriptor(layout, major, bits, mn, place, 1024 * draw.randint(0, 60))


def refused_descriptors() -> Iterator[Case]:
    for mode, mn, place in (("128B", 32, (0, 0)), ("128B", 32, (1, 2)), ("128B", 16, (3, 1)), ("64B", 16, (1, 3))):
        yield descriptor(tile("MN", mode, 16, (128, 64)), "MN", 16, mn, place, 2048)  # part of a span, and so answered
    for layout, major, bits, mn in (
        (plain(16, (64, 64), (64, 1)), "K", 16, 64),  # plain row-major: rows are no core matrices
        (plain(16, (64, 64), (1, 64)), "MN", 16, 64),
        (plain(16, (64, 64), (72, 1), 3), "K", 16, 64),  # padded rows
        (plain(16, (64, 64), (64, 1), 2), "K", 16, 64),  # 128-byte rows with the swizzle of 64
        (plain(16, (64, 32), (32, 1), 3), "K", 16, 64),  # 64-byte rows with the swizzle of 128
        (plain(16, (64, 64), (1, 64), 2), "MN", 16, 64),
        (plain(16, (64, 64), (64, 1), 3, 5, 3), "K", 16, 64),  # no swizzle of the hardware
        (plain(16, (64, 64), (64, 1), 3, 4, 4), "K", 16, 64),
        (tile("K", "128B", 16, (64, 64)), "MN", 16, 64),  # the other major mode
        (tile("MN", "128B", 16, (64, 64)), "K", 16, 64),
        (tile("MN", "128B", 16, (192, 64)), "MN", 16, 96),  # one and a half of a swizzle's span
        (tile("K", "128B", 16, (64, 64)), "K", 16, 4),  # half of a core matrix
        (plain(16, ((8, 2, 4), 16), ((16, 128, 512), 1), 1), "K", 16, 64),  # groups of rows at two distances
        (plain(16, ((8, 8), 16), ((64, 512), 1), 3), "K", 16, 64),  # canonical, and so answered
        (plain(16, ((8, 8), (8, 2)), ((8, 128), (1, 64))), "K", 16, 64),
        (plain(16, ((8, 8), (8, 2)), ((8, 72), (1, 4096))), "K", 16, 64),
        (plain(16, ((8, 8), (8, 2)), ((1, 64), (8, 512))), "MN", 16, 64),
    ):
        yield descriptor(layout, major, bits, mn, (0, 0), 0)


def tensor_map(
    ctype: str,
    gmem: tuple[Any, Any],
    smem: str,
    tiler: Any = None,
    multicast: int = 1,
    address: int = 4096,
    is_staged: bool = False,
) -> Case:
    """The arguments with which CuTe calls the driver for a tensor in global memory and a tile in shared memory.

    Of a tile with stages the first is taken. CuTe prints the slice as if its swizzle were in elements, but means bytes.
    """
    shape, stride = gmem
    op = "SM90_TMA_LOAD{}" if multicast == 1 else "SM90_TMA_LOAD_MULTICAST{}"
    cta = static(tiler) if tiler is not None else "product_each(shape(smem))"
    cpp = (
        f"auto gmem = make_tensor(make_gmem_ptr(reinterpret_cast<{ctype}*>({address}ull)), "
        f"make_layout({dynamic(shape)}, {strides(stride)})); auto smem = {smem}{'(_,_,Int<0>{})' if is_staged else ''}; "
        f"auto copy = make_tma_copy({op}, gmem, smem, {cta}, Int<{multicast}>{{}}); "
        "print(typename decltype(copy.aux_params_)::TmaGmemBasis{});"
    )
    tiler_text = text(tiler) if tiler is not None else ""
    args = (ctype, f"{text(shape)}:{text(stride)}", address, "layout", tiler_text, multicast)
    return Case("tensor map", args, cpp, f"first_stage({smem})" if is_staged else smem)


def tensor_maps(draw: random.Random) -> Iterator[Case]:
    """Tiles in the layouts of wgmma, K-major and MN-major, with and without stages, a batch, multicast."""
    names = {8: ("uint8_t", "float_e4m3_t"), 16: ("half_t", "bfloat16_t"), 32: ("tfloat32_t", "float")}
    for major, widths in (("K", TYPES), ("MN", (16,))):
        for mode in MODES:
            for bits in widths:
                for shape, order in sorted(set(shapes(major, mode, bits))):
                    smem = tile(major, mode, bits, shape, order)
                    m, k = 256 * draw.randint(1, 32), 256 * draw.randint(1, 32)
                    two = ((m, k), (k, 1)) if major == "K" else ((m, k), (1, m))
                    three = ((m, k, 5), (*two[1], m * k))
                    multicast = draw.choice((1, 1, 2, 4))
                    ctype = draw.choice(names[bits])
                    gmem = draw.choice((two, three))
                    # The last box mode has 8 or more rows, which 2, 4 and 8 divide.
                    yield tensor_map(ctype, gmem, smem, shape[:2], multicast, 256 * draw.randint(1, 99), len(shape) == 3)


def unusual_tensor_maps() -> Iterator[Case]:
    """Plain tiles, more modes than two, nested modes, more than five."""
    yield tensor_map("float", ((1024, 256), (256, 1)), "make_layout(make_shape(Int<64>{},Int<32>{}), GenRowMajor{})")
    yield tensor_map("half_t", ((1024, 256), (1, 1024)), "make_layout(make_shape(Int<64>{},Int<32>{}))")
    yield tensor_map("double", ((1024, 256), (256, 1)), "make_layout(make_shape(Int<16>{},Int<4>{}), GenRowMajor{})")
    yield tensor_map("bfloat16_t", ((4096,), (1,)), "make_layout(make_shape(Int<256>{}))")
    yield tensor_map("bfloat16_t", ((4096, 64), (64, 1)), "make_layout(make_shape(Int<1>{},Int<64>{}), GenRowMajor{})")
    yield tensor_map(
        "float",
        ((1024, 32, 512), (64, 1, 65536)),
        "make_layout(make_shape(Int<16>{},Int<8>{},Int<2>{}), make_stride(Int<16>{},Int<1>{},Int<8>{}))",
    )
    yield tensor_map(
        "half_t", ((512, 64, 8, 3), (64, 1, 32768, 262144)), tile("K", "128B", 16, (64, 64, 2)), (64, 64, 2)
    )
    small = tile("K", "128B", 16, (64, 64))
    yield tensor_map("half_t", ((512, 64, 8, 3, 2), (64, 1, 32768, 262144, 786432)), small, (64, 64))
    yield tensor_map(
        "half_t",
        ((512, 64, 8, 3, 2, 6), (64, 1, 32768, 262144, 786432, 1572864)),
        tile("K", "128B", 16, (64, 64)),
        (64, 64),
    )
    yield tensor_map(
        "half_t",
        ((512, 64, 8, 3, 2, 6, 5), (64, 1, 32768, 262144, 1048576, 1572864, 33554432)),
        tile("K", "64B", 16, (64, 64)),
        (64, 64),
    )
    yield tensor_map(
        "half_t", (((32, 40), 64), ((64, 4096), 1)), plain(16, ((32, 2), 64), ((64, 2048), 1), 3), ((32, 2), 64)
    )
    row_major = "make_layout(make_shape(Int<16>{},Int<8>{}), GenRowMajor{})"
    yield tensor_map("float", ((64, (8, 128)), (8192, (1, 64))), row_major, (16, (8, 1)))
    for batch in ((1, 0), (1, 524288), (7, 0)):  # one, as CUTLASS has it and with a stride; the same matrix seven times
        yield tensor_map("half_t", ((1024, 512, batch[0]), (512, 1, batch[1])), small, (64, 64))
    many = ((512, 64, 8, 3, 1, 1), (64, 1, 32768, 262144, 0, 0))
    yield tensor_map("half_t", many, small, (64, 64))
    yield tensor_map("half_t", ((512, 64, 8, 3, 1, 9), (64, 1, 32768, 262144, 0, 786432)), small, (64, 64))
    yield tensor_map("half_t", ((1024, 512), (512, 1)), tile("K", "128B", 16, (256, 64)), (256, 64), 8)
    yield tensor_map("half_t", ((1024, 512), (512, 1)), tile("K", "128B", 16, (128, 64)), (128, 64), 16)
    yield tensor_map("half_t", ((1024, 512), (1, 1024)), tile("MN", "128B", 16, (64, 64)), (64, 64), 8)
    yield tensor_map("half_t", ((512, 64, 8), (64, 1, 32768)), tile("K", "128B", 16, (64, 64, 2)), (64, 64, 2), 4)
    yield tensor_map("half_t", ((1000, 520), (520, 1)), tile("K", "128B", 16, (128, 64)))  # the tile reaches out
    yield tensor_map("half_t", ((1000, 520), (4096, 1)), tile("K", "128B", 16, (128, 64)))  # padded rows in global memory
    yield tensor_map("half_t", ((512, 64), (64, 1)), plain(16, (64, 32), (32, 1), 3), (64, 32))  # half of the span
    yield tensor_map("half_t", ((512, 64), (64, 1)), plain(16, (64, 64), (72, 1)), (64, 64))  # padded shared memory
    yield tensor_map("half_t", ((512, 4096), (1, 512)), plain(16, ((64, 2), 64), ((1, 4096), 64), 3), (128, 64))


def refused_tensor_maps() -> Iterator[Case]:
    k_tile, mn_tile = tile("K", "128B", 16, (128, 64)), tile("MN", "128B", 16, (128, 64))
    yield tensor_map("half_t", ((1024, 512), (1, 1024)), k_tile)  # the other major mode
    yield tensor_map("half_t", ((1024, 512), (512, 1)), mn_tile)
    yield tensor_map("half_t", ((1024, 511), (511, 1)), k_tile)  # rows at no multiple of 16 bytes
    yield tensor_map("half_t", ((1024, 512), (512, 1)), k_tile, address=4104)
    yield tensor_map("half_t", ((1024, 512), (512, 2)), k_tile)  # no contiguous mode
    yield tensor_map("half_t", ((1024, 512), (1 << 39, 1)), k_tile)  # a stride of 2^40 bytes
    yield tensor_map("half_t", ((1024, 512), ((1 << 39) - 8, 1)), k_tile)  # the largest, and so answered
    yield tensor_map("half_t", (((1 << 32) + 1, 512), (512, 1)), k_tile)
    yield tensor_map("half_t", (((1 << 32), 512), (512, 1)), k_tile)  # the largest, and so answered
    yield tensor_map("half_t", ((1024, 512), (512, 1)), tile("K", "128B", 16, (512, 64)))  # a box of 512 rows
    yield tensor_map("half_t", ((1024, 512), (512, 1)), tile("K", "128B", 16, (192, 64)), (192, 64), 128)
    yield tensor_map("half_t", ((1024, 512), (512, 1)), plain(16, (64, 64), (64, 1), 3, 5, 3), (64, 64))
    yield tensor_map("half_t", ((1024, 512), (512, 1)), plain(16, (64, 64), (64, 1), 4, 4, 4), (64, 64))


def tma_partition(gmem: tuple[Any, Any], smem: str, tiler: tuple[Any, ...], multicast: int, cta: int) -> Case:
    """Coordinates of a tensor as TMA takes them, and what a CTA of a multicast copies of all tiles and stages.

    The tiles are cut by ``local_tile``; ``get_slice`` cuts them, then ``tma_partition`` does. A tile with stages has a mode
    more than the tiler.
    """
    shape, stride = gmem
    op = "SM90_TMA_LOAD{}" if multicast == 1 else "SM90_TMA_LOAD_MULTICAST{}"
    every = ",".join("_" for _ in tiler)
    group = f"group_modes<0,{len(tiler)}>"
    cpp = (
        f"auto gmem = make_tensor(make_gmem_ptr(reinterpret_cast<half_t*>(4096ull)), "
        f"make_layout({dynamic(shape)}, {strides(stride)})); auto smem = {smem}; auto tiler = {static(tiler)}; "
        f"auto stage = first_modes<{len(tiler)}>(smem); auto copy = make_tma_copy({op}, gmem, stage, tiler, "
        f"Int<{multicast}>{{}}); auto sA = make_tensor(make_smem_ptr(reinterpret_cast<half_t*>(1024ull)), smem); "
        f"auto mA = copy.get_tma_tensor(shape(gmem)); auto gA = local_tile(mA, tiler, make_coord({every})); "
        f"auto part = copy.get_slice({cta}); "
        f"auto [tAgA, tAsA] = tma_partition(copy, {cta}, Layout<Int<{multicast}>>{{}}, {group}(sA), {group}(gA)); "
        'print(mA.layout()); place(part.partition_S(gA), sA); place(part.partition_D(sA), sA); place(tAgA, sA); '
        "place(tAsA, sA);"
    )
    return Case("tma partition", (f"{text(shape)}:{text(stride)}", "layout", text(tiler), multicast, cta), cpp, smem)


def tma_partitions() -> Iterator[Case]:
    """Tiles of wgmma of both major modes, with stages, batches and multicast, and tiles of modes that are nested or many."""
    for mode in MODES:
        for multicast, cta in ((1, 0), (2, 1), (4, 0), (4, 3)):
            k_tile, mn_tile = tile("K", mode, 16, (128, 64, 3), (1, 2, 3)), tile("MN", mode, 16, (128, 64, 2), (2, 1, 3))
            yield tma_partition(((1024, 512), (512, 1)), k_tile, (128, 64), multicast, cta)
            yield tma_partition(((1024, 512, 5), (1, 1024, 524288)), mn_tile, (128, 64), multicast, cta)
    small = tile("K", "128B", 16, (64, 64))
    yield tma_partition(((1000, 520), (520, 1)), tile("K", "128B", 16, (128, 128, 4)), (128, 128), 2, 1)  # tiles reach out
    yield tma_partition(((1024, 256), (1, 1024)), "make_layout(make_shape(Int<64>{},Int<32>{}))", (64, 32), 1, 0)
    yield tma_partition(((4096,), (1,)), "make_layout(make_shape(Int<256>{}))", (256,), 1, 0)
    yield tma_partition(
        ((512, 64, 8, 3), (64, 1, 32768, 262144)), tile("K", "128B", 16, (64, 64, 2)), (64, 64, 2), 4, 2
    )
    yield tma_partition(
        ((512, 64, 8, 3, 2, 6), (64, 1, 32768, 262144, 786432, 1572864)), small, (64, 64), 1, 0
    )  # the last two modes are one of the map
    nested = plain(16, ((32, 2), 64), ((64, 2048), 1), 3)
    yield tma_partition((((32, 40), 64), ((64, 4096), 1)), nested, ((32, 2), 64), 1, 0)
    yield tma_partition(((1024, 512, 1), (512, 1, 0)), small, (64, 64), 2, 1)  # a batch of one
