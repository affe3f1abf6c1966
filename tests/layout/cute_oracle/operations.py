"""The operations that CuTe is asked about, and how many cases of each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from draw_cases import (
    Case,
    L,
    Sw,
    Tile,
    a_coord,
    a_layout,
    a_shape,
    a_size,
    a_swizzle,
    a_swizzled,
    a_tiler,
    call,
    compact,
    cpp,
    factor,
    fitting,
    leaves,
    mode,
    negated,
    rank,
    refill,
    size,
    text,
    with_holes,
)

Drawer = Callable[[random.Random], Case]

DIVIDES = ("logical_divide", "zipped_divide", "tiled_divide", "flat_divide")
PRODUCTS = ("logical_product", "zipped_product", "tiled_product", "flat_product")


def draw_composition(rng: random.Random) -> Case:
    """By layout, mostly admissible; negative strides now and then."""
    outer = a_layout(rng)
    inner = fitting(rng, outer) if rng.random() < 0.85 else a_layout(rng, 64)
    outer = negated(rng, outer) if rng.random() < 0.1 else outer
    return call("composition", outer, negated(rng, inner) if rng.random() < 0.05 else inner)


def draw_composition_by_mode(rng: random.Random) -> Case:
    """By tiler."""
    outer = a_layout(rng, rank=rng.choice([2, 3]))
    return call("composition", outer, a_tiler(rng, outer))


def draw_coalesce(rng: random.Random) -> Case:
    """With and without profile."""
    layout = a_layout(rng)
    layout = negated(rng, layout) if rng.random() < 0.1 else layout
    if rng.random() < 0.6 or not isinstance(layout.shape, tuple):
        return call("coalesce", layout)
    return call("coalesce", layout, (1,) * rng.randint(1, rank(layout)))


def draw_filter(rng: random.Random) -> Case:
    """Zeros are dropped."""
    layout = compact(rng, a_shape(rng), gaps=rng.random() < 0.5, zeros=True)
    return call(rng.choice(["filter", "filter", "filter_zeros", "nullspace"]), layout)


def draw_complement(rng: random.Random) -> Case:
    """With and without a bound."""
    layout = a_layout(rng, 128)
    if rng.random() < 0.3:
        return call("complement", layout)
    bound = rng.choice([24, 64, 96, 128, 512, size(layout.shape), 4 * size(layout.shape), 100])
    return call("complement", layout, bound)


def draw_inverse(rng: random.Random) -> Case:
    """Both sides."""
    return call(rng.choice(["right_inverse", "left_inverse", "left_inverse"]), a_layout(rng))


def draw_divide(rng: random.Random) -> Case:
    """All four, by layouts, shapes and tuples."""
    layout = a_layout(rng, rank=rng.choice([None, 2, 2, 3]))
    return call(rng.choice(DIVIDES), layout, a_tiler(rng, layout))


def draw_product(rng: random.Random) -> Case:
    """All four, by layouts, integers and tuples."""
    block = a_layout(rng, 64, rank=rng.choice([None, 2]))
    kind = rng.random()
    if kind < 0.5 or not isinstance(block.shape, tuple):
        tiler = a_layout(rng, 24)
    elif kind < 0.65:
        tiler = rng.choice([2, 3, 4])
    else:
        tiler = Tile(
            tuple(compact(rng, a_size(rng), rng.choice([1, 1, 2])) for _ in range(rng.randint(1, rank(block))))
        )
    return call(rng.choice(PRODUCTS), block, tiler)


def draw_rank_product(rng: random.Random) -> Case:
    """Blocked and raked."""
    return call(rng.choice(["blocked_product", "raked_product"]), a_layout(rng, 64), a_layout(rng, 24))


def draw_tile_to_shape(rng: random.Random) -> Case:
    """Orders given and not."""
    block = compact(rng, a_shape(rng, 64, 1, rank=rng.choice([1, 2, 2])), gaps=rng.random() < 0.2)
    modes = max(rank(block), rng.choice([2, 2, 3]))
    parts = [size(mode(block, i).shape) if i < rank(block) else 1 for i in range(modes)]
    target = tuple(part * rng.choice([1, 2, 4, 3]) for part in parts)
    if rng.random() < 0.05:
        target = (target[0] + 1, *target[1:])
    if rng.random() < 0.5:
        return call("tile_to_shape", block, target)
    return call("tile_to_shape", block, target, tuple(rng.sample(range(1, modes + 1), modes)))


def draw_crd2idx(rng: random.Random) -> Case:
    """Coordinates inside and past the end."""
    layout = a_layout(rng)
    coord = a_coord(rng, layout.shape, past=rng.random() < 0.3)
    return call("crd2idx", coord, layout)


def draw_crd2idx_of_shape(rng: random.Random) -> Case:
    """Colexicographical."""
    shape = a_shape(rng)
    return call("crd2idx", a_coord(rng, shape), shape)


def draw_idx2crd(rng: random.Random) -> Case:
    """By shape, and by shape and stride."""
    shape = a_shape(rng)
    if rng.random() < 0.5:
        return call("idx2crd", rng.randrange(2 * size(shape)), shape)
    layout = compact(rng, shape)
    return call("idx2crd", rng.randrange(size(shape)), shape, layout.stride)


def draw_get_coord(rng: random.Random) -> Case:
    """Inverse of a compact layout."""
    layout = compact(rng, a_shape(rng))
    name = rng.choice(["get_flat_coord", "get_hier_coord", "get_1d_coord"])
    index = rng.randrange(size(layout.shape))
    return Case(name, (text(layout), str(index)), f"{cpp(layout)}.{name}({cpp(index)})")


def draw_shape_arithmetic(rng: random.Random) -> Case:
    """On shapes alone."""
    a = a_shape(rng, depth=1)
    kind = rng.random()
    if kind < 0.4:
        other = rng.choice([1, 2, 4, 8, 12, 40]) if rng.random() < 0.5 else refill(map(_near(rng), leaves(a)), a)
        return call(rng.choice(["shape_div", "ceil_div"]), a, other)
    if kind < 0.6:
        return call("round_up", a, refill((rng.choice([1, 2, 4, 8]) for _ in leaves(a)), a))
    if kind < 0.8:
        return call(rng.choice(["congruent", "weakly_congruent", "compatible"]), a, _coarser(rng, a_shape(rng), a))
    return call(rng.choice(["product_each", "compact_col_major", "compact_row_major"]), a_shape(rng, rank=2))


def _near(rng: random.Random) -> Callable[[int], int]:
    return lambda number: rng.choice([1, 2, number, factor(rng, number)])


def _coarser(rng: random.Random, shape: object, other: object) -> object:
    return shape if rng.random() < 0.5 else other


def draw_ordered(rng: random.Random) -> Case:
    """Orders and likenesses."""
    if rng.random() < 0.6:
        shape = a_shape(rng, rank=rng.choice([2, 3]))
        return call("make_ordered_layout", shape, tuple(rng.sample(range(9), len(shape))))
    layout = compact(rng, a_shape(rng, rank=rng.choice([2, 3])), gaps=True, zeros=rng.random() < 0.5)
    return call(rng.choice(["make_layout_like", "make_fragment_like"]), layout)


def draw_common(rng: random.Random) -> Case:
    """Vectors, alignment, distribution."""
    kind = rng.random()
    if kind < 0.6:
        a = a_layout(rng, 64)
        b = L(a.shape, compact(rng, a.shape).stride) if rng.random() < 0.6 else a_layout(rng, 64)
        return call(rng.choice(["max_common_vector", "max_common_layout"]), a, b)
    if kind < 0.85:
        return call("max_alignment", a_layout(rng, 256))
    return call("domain_distribute", a_shape(rng), rng.choice([2, 4, 6, 8, 12]))


def draw_recast(rng: random.Random) -> Case:
    """Other units."""
    shape = a_shape(rng, rank=2)
    layout = compact(rng, shape, zeros=rng.random() < 0.3)
    kind = rng.random()
    if kind < 0.6:
        name, n = rng.choice(["upcast", "downcast"]), rng.choice([2, 2, 4, 8])
        return Case(name, (text(layout), str(n)), f"{name}<{n}>({cpp(layout)})")
    old, new = rng.sample([8, 16, 32, 64], 2)
    return Case(
        "recast_layout", (text(layout), str(old), str(new)), f"recast_layout<uint{old}_t,uint{new}_t>({cpp(layout)})"
    )


def draw_structure(rng: random.Random) -> Case:
    """Slices, dices, groups, selections."""
    layout = a_layout(rng, rank=rng.choice([2, 3]))
    modes = rank(layout)
    kind = rng.random()
    if kind < 0.5:
        coord = with_holes(rng, _full(rng, layout.shape), layout.shape)
        return call("slice" if all(c is None for c in leaves(coord)) else rng.choice(["slice", "dice"]), coord, layout)
    if kind < 0.65:
        begin = rng.randrange(modes)
        end = rng.randint(begin + 1, modes)
        name = rng.choice(["group", "take"])
        return Case(name, (text(layout), str(begin), str(end)), f"{name}<{begin},{end}>({cpp(layout)})")
    if kind < 0.8:
        picked = rng.sample(range(modes), rng.randint(1, modes))
        return Case("select", (text(layout), *map(str, picked)), f"select<{','.join(map(str, picked))}>({cpp(layout)})")
    return call(rng.choice(["flatten", "cosize", "coalesce"]), layout)


def _full(rng: random.Random, shape: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(a_coord(rng, part) for part in shape)


def draw_swizzle(rng: random.Random) -> Case:
    """A swizzle alone: applied, in another unit, made from masks, after another."""
    bits = a_swizzle(rng)
    kind = rng.random()
    if kind < 0.4:
        bits = (bits[0], bits[1], rng.choice([1, -1]) * bits[2])
        number = rng.randrange(4096)
        return Case("apply_swizzle", (text(Sw(bits)), str(number)), f"{cpp(Sw(bits))}({cpp(number)})")
    if kind < 0.7:
        name, n = rng.choice(["upcast", "downcast"]), rng.choice([2, 4, 8])
        return Case(name, (text(Sw(bits)), str(n)), f"{name}<{n}>({cpp(Sw(bits))})")
    low, width, gap = rng.randrange(5), rng.randint(1, 3), rng.randint(0, 3)
    y, z = ((1 << width) - 1) << (low + width + gap), ((1 << width) - 1) << low
    y, z = (z, y) if rng.random() < 0.3 else (y, z)
    return Case("make_swizzle", (str(y), str(z)), f"make_swizzle<{y},{z}>()")


def draw_swizzled(rng: random.Random) -> Case:
    """Operations on a swizzled layout, printed."""
    layout = a_swizzled(rng)
    kind = rng.random()
    assert layout.layout is not None
    if kind < 0.45:
        tiler = tuple(factor(rng, part) for part in layout.layout.shape)
        return call(rng.choice(DIVIDES), layout, tiler)
    if kind < 0.6:
        target = tuple(part * rng.choice([1, 2, 4]) for part in layout.layout.shape)
        return call("tile_to_shape", layout, target)
    if kind < 0.75:
        name, n = rng.choice(["upcast", "downcast"]), rng.choice([2, 4])
        return Case(name, (text(layout), str(n)), f"{name}<{n}>({cpp(layout)})")
    if kind < 0.9:
        return call(rng.choice(["coalesce", "right_inverse", "left_inverse", "max_alignment"]), layout)
    return call("composition", layout, Tile((factor(rng, layout.layout.shape[0]), None)))


def draw_swizzled_values(rng: random.Random) -> Case:
    """The offsets of a slice of a swizzled layout, whatever its form."""
    layout = a_swizzled(rng)
    assert layout.layout is not None
    rows, columns = layout.layout.shape
    coord = (rng.randrange(rows), None) if rng.random() < 0.5 else (None, rng.randrange(columns))
    return Case("swizzled_slice_offsets", (text(layout), text(coord)), f"offsets_of({cpp(layout)},{cpp(coord)})")


def draw_local(rng: random.Random) -> Case:
    """A CTA's tile or a thread's share, printed as offset and layout."""
    layout = compact(rng, (rng.choice([16, 32, 64]), rng.choice([16, 32, 64])), gaps=rng.random() < 0.3)
    if rng.random() < 0.5:
        tiler = (rng.choice([4, 8, 16]), rng.choice([4, 8, 16]))
        grid = tuple(s // t for s, t in zip(layout.shape, tiler, strict=True))
        coord = rng.choice(
            [rng.randrange(grid[0] * grid[1]), tuple(map(rng.randrange, grid)), (rng.randrange(grid[0]), None)]
        )
        name = rng.choice(["local_tile", "inner_partition"])
        return Case(
            name,
            (text(layout), text(tiler), text(coord)),
            f"place({name}(at({cpp(layout)}),{cpp(tiler)},{cpp(coord)}))",
        )
    threads = compact(rng, (rng.choice([2, 4]), rng.choice([4, 8])))
    index = rng.randrange(size(threads.shape))
    args = (text(layout), text(threads), str(index))
    return Case("local_partition", args, f"place(local_partition(at({cpp(layout)}),{cpp(threads)},{cpp(index)}))")


def draw_projected(rng: random.Random) -> Case:
    """With projections."""
    layout = compact(rng, (rng.choice([32, 64]), rng.choice([16, 32])))
    proj = rng.choice([(1, None, 1), (None, 1, 1), (1, 1, None)])
    if rng.random() < 0.5:
        tiler = (rng.choice([8, 16]), rng.choice([8, 16]), 4)
        coord = (rng.randrange(2), rng.randrange(2), None)
        args = (text(layout), text(tiler), text(coord), text(proj))
        return Case("local_tile", args, f"place(local_tile(at({cpp(layout)}),{cpp(tiler)},{cpp(coord)},{cpp(proj)}))")
    threads = L((2, 8, 1), rng.choice([(8, 1, 0), (1, 2, 0)]))
    index = rng.randrange(16)
    args = (text(layout), text(threads), str(index), text(proj))
    return Case(
        "local_partition", args, f"place(local_partition(at({cpp(layout)}),{cpp(threads)},{cpp(index)},{cpp(proj)}))"
    )


def draw_identity(rng: random.Random) -> Case:
    """Layouts that yield coordinates."""
    shape = a_shape(rng, rank=rng.choice([2, 3]))
    identity = f"make_identity_layout({cpp(shape)})"
    kind = rng.random()
    if kind < 0.3:
        return Case("make_identity_layout", (text(shape),), identity)
    if kind < 0.7:
        name = rng.choice(DIVIDES)
        tiler = tuple(factor(rng, size(part)) for part in shape)
        return Case(f"{name} of identity", (text(shape), text(tiler)), f"{name}({identity},{cpp(tiler)})")
    layout = L(shape, compact(rng, shape).stride)
    inner = rng.choice([tuple(factor(rng, size(part)) for part in shape)])
    args = (text(layout), text(shape), text(inner))
    return Case("compose after identity", args, f"composition({cpp(layout)},composition({identity},{cpp(inner)}))")


TABLE: dict[Drawer, int] = {
    draw_composition: 800,
    draw_composition_by_mode: 200,
    draw_coalesce: 250,
    draw_filter: 120,
    draw_complement: 300,
    draw_inverse: 300,
    draw_divide: 700,
    draw_product: 400,
    draw_rank_product: 200,
    draw_tile_to_shape: 150,
    draw_crd2idx: 250,
    draw_crd2idx_of_shape: 80,
    draw_idx2crd: 160,
    draw_get_coord: 120,
    draw_shape_arithmetic: 300,
    draw_ordered: 150,
    draw_common: 250,
    draw_recast: 250,
    draw_structure: 250,
    draw_swizzle: 150,
    draw_swizzled: 200,
    draw_swizzled_values: 80,
    draw_local: 150,
    draw_projected: 60,
    draw_identity: 100,
}


def draw_all(seed: int) -> Iterator[Case]:
    """All cases, each once."""
    rng = random.Random(seed)
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for draw, count in TABLE.items():
        found = tries = 0
        while found < count and tries < 20 * count:
            tries += 1
            case = draw(rng)
            if (case.op, case.args) not in seen:
                seen.add((case.op, case.args))
                found += 1
                yield case
