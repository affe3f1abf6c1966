"""Every answer of the real CuTe in ``cute_oracle/cute_answers.json``: the same here, or refused for a reason.

Strides of modes of size 1 are not compared: nothing depends on them. A refusal counts only if CuTe refuses too, or if
its answer breaks the operation's definition, checked here by brute force; where CuTe refuses and we answer, our
answer must fulfil it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusim import layout as cute
from gpusim.errors import LayoutError
from gpusim.layout import ComposedLayout, Layout, Swizzle
from gpusim.layout import int_tuple as it
from gpusim.layout.notation import parse_int_tuple

ROWS: list[list[str]] = json.loads((Path(__file__).parent / "cute_oracle" / "cute_answers.json").read_text())
OPS = sorted({row[0] for row in ROWS if not row[0].startswith("atoms:")})


def rows_of(op: str) -> list[list[str]]:
    return [row for row in ROWS if row[0] == op]


def parse(text: str) -> Any:
    """A layout, swizzle, tiler or IntTuple of the table."""
    if text.startswith("<"):
        return tuple(map(parse, split(text[1:-1])))
    if re.fullmatch(r"Sw<[^>]*>", text):
        return Swizzle(*map(int, text[3:-1].split(",")))
    if " o " in text or ":" in text:
        return Layout.parse(text)
    return parse_int_tuple(text)


def split(text: str) -> list[str]:
    """At the commas outside of all brackets."""
    parts, level = [""], 0
    for char in text:
        level += (char in "(<") - (char in ")>")
        if char == "," and not level:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def normal(answer: Any) -> Any:
    """With stride 0 where the size is 1."""
    if isinstance(answer, Layout):
        return Layout(answer.shape, it.map_leaves(lambda s, d: 0 if s == 1 else d, answer.shape, answer.stride))
    if isinstance(answer, ComposedLayout):
        return ComposedLayout(answer.layout_a, answer.offset, normal(answer.layout_b))
    if isinstance(answer, tuple):
        return tuple(map(normal, answer))
    return int(answer) if isinstance(answer, bool) else answer


def place(tensor: cute.Tensor) -> tuple[Any, Any]:
    return tensor.offset, tensor.layout


CALLS: dict[str, Callable[..., Any]] = {
    "apply_swizzle": lambda swizzle, number: swizzle(number),
    "compose after identity": lambda layout, shape, inner: cute.composition(
        layout, cute.composition(cute.make_identity_layout(shape), inner)
    ),
    "crd2idx": lambda coord, layout: layout(coord) if isinstance(layout, Layout) else cute.crd2idx(coord, layout),
    "get_1d_coord": lambda layout, index: layout.get_1d_coord(index),
    "get_flat_coord": lambda layout, index: layout.get_flat_coord(index),
    "get_hier_coord": lambda layout, index: layout.get_hier_coord(index),
    "group": cute.group_modes,
    "inner_partition": lambda *args: place(cute.inner_partition(*args)),
    "local_partition": lambda *args: place(cute.local_partition(*args)),
    "local_tile": lambda *args: place(cute.local_tile(*args)),
    "swizzled_slice_offsets": lambda layout, coord: tuple(cute.offsets(layout(coord))),
    **{
        f"{op} of identity": lambda shape, tiler, op=op: getattr(cute, op)(cute.make_identity_layout(shape), tiler)
        for op in ("logical_divide", "zipped_divide", "tiled_divide", "flat_divide")
    },
}


def ours(row: list[str]) -> Any:
    op, *args, _answer = row
    return CALLS.get(op, getattr(cute, op, None))(*map(parse, args))


def theirs(row: list[str]) -> Any:
    answer = row[-1]
    if row[0] in ("local_tile", "inner_partition", "local_partition"):
        offset, layout = answer.split(" o ", 1)
        return int(offset), parse(layout)
    return parse(answer)


# What an answer must fulfil: used where CuTe and we differ, to see who is right


def follows(lhs: Layout, rhs: Any, answer: Layout) -> bool:
    """``answer`` is ``lhs`` after ``rhs``; ``lhs`` runs on in its last mode."""
    if rhs is None:
        return True
    inner = rhs if isinstance(rhs, Layout) else Layout(rhs)
    return answer.size == inner.size and all(answer(i) == lhs(inner(i)) for i in range(inner.size))


def is_composition(lhs: Layout, rhs: Any, answer: Layout) -> bool:
    if isinstance(rhs, tuple):
        return all(is_composition(*modes) for modes in zip(lhs, rhs, answer, strict=False))
    return follows(lhs, rhs, answer)


def is_divide(layout: Layout, tiler: Any, answer: Layout) -> bool:
    """Tile j holds the offsets of the tiler's places, moved on; together the tiles hold all."""
    if tiler is None:
        return True
    tile = tiler if isinstance(tiler, Layout) else Layout(tiler)
    starts = fitting_places(tile, answer.size // tile.size)
    if any(i not in {p + start for p in cute.offsets(tile) for start in starts} for i in range(layout.size)):
        return False
    return all(
        answer(place + tile.size * j) == layout(tile(place) + start)
        for j, start in enumerate(starts)
        for place in range(tile.size)
    )


def fitting_places(block: Layout, count: int) -> list[int]:
    """The first ``count`` offsets at which copies of ``block`` lie without overlap, found one by one."""
    taken: set[int] = set()
    places: list[int] = []
    own = set(cute.offsets(block))
    start = 0
    while len(places) < count and start < 100_000:
        if not taken & {start + offset for offset in own}:
            taken |= {start + offset for offset in own}
            places.append(start)
        start += 1
    return places


def is_product(block: Layout, tiler: Any, answer: Layout) -> bool:
    """Copy j of the block starts at the place that the tiler gives it."""
    tile = tiler if isinstance(tiler, Layout) else Layout(tiler)
    places = fitting_places(block, tile.cosize)
    return all(
        answer(i + block.size * j) == block(i) + places[tile(j)] for i in range(block.size) for j in range(tile.size)
    )


def pairs(op: str, count: int, answer: Layout) -> list[Layout]:
    """(tile, rest) of each of ``count`` modes of a divide or product."""
    if op.startswith("logical"):
        return list(answer)[:count]
    if op.startswith("zipped"):
        first, second = list(answer[0]), list(answer[1])
    elif op.startswith("tiled"):
        first, second = list(answer[0]), list(answer)[1:]
    else:
        first, second = list(answer)[:count], list(answer)[count:]
    return [cute.make_layout(a, b) for a, b in zip(first, second, strict=False)][:count]


def by_mode(op: str, check: Callable[..., bool]) -> Callable[..., bool]:
    def checked(layout: Layout, tiler: Any, answer: Layout) -> bool:
        if not isinstance(tiler, tuple):
            return check(layout, tiler, answer)
        parts = pairs(op, len(tiler), answer)
        return all(check(mode, part, pair) for mode, part, pair in zip(layout, tiler, parts, strict=False))

    return checked


def is_rank_product(block: Layout, tiler: Layout, answer: Layout, *, raked: bool = False) -> bool:
    order = (1, 0) if raked else (0, 1)
    parts = [cute.make_layout(*(mode[i] for mode in answer)) for i in order]
    rank = max(block.rank, tiler.rank)
    return is_product(cute.append(block, rank=rank), cute.append(tiler, rank=rank), cute.make_layout(*parts))


def is_tiling(block: Layout, target: Any, *order_and_answer: Any) -> bool:
    *order, answer = order_and_answer
    padded = cute.append(block, rank=len(target))
    repeats = cute.ceil_div(target, it.product_each(padded.shape))
    return is_rank_product(padded, cute.make_ordered_layout(repeats, *(order or [cute.GenColMajor])), answer)


def is_complement(layout: Layout, *bound_and_answer: Any) -> bool:
    """Together they reach each offset once up to the bound."""
    *given, answer = bound_and_answer
    once = cute.filter(layout)
    bound = given[0] if given else once.cosize
    reached = sorted(a + b for a in cute.offsets(once) for b in cute.offsets(answer))
    return reached[:bound] == list(range(bound)) and len(set(reached)) == len(reached)


def is_left_inverse(layout: Layout, answer: Layout) -> bool:
    return all(layout(answer(layout(i))) == layout(i) for i in range(layout.size))


def is_right_inverse(layout: Any, answer: Any) -> bool:
    return all(layout(answer(i)) == i for i in range(answer.size))


def is_upcast(layout: Any, factor: int, _answer: Any) -> bool:
    """Whole elements fill whole units, and a swizzle keeps each unit in one piece."""
    if isinstance(layout, ComposedLayout):
        return is_upcast(layout.layout_a, factor, None) and is_upcast(layout.layout_b, factor, None)
    if isinstance(layout, Swizzle):
        return all(layout(x + part) == layout(x) + part for x in range(0, 4096, factor) for part in range(factor))
    return cute.filter(layout).size % factor == 0


def is_recast(layout: Layout, old_bits: int, new_bits: int, answer: Layout) -> bool:
    if new_bits < old_bits:
        return is_downcast(layout, old_bits // new_bits, answer)
    return is_upcast(layout, new_bits // old_bits, answer)


def is_local_tile(layout: Layout, tiler: Any, coord: Any, *proj_and_answer: Any) -> bool:
    """The coordinate lies in the grid of tiles."""
    *proj, _answer = proj_and_answer
    tiler, coord = (cute.dice(proj[0], part) if proj else part for part in (tiler, coord))
    grid = cute.ceil_div(layout.shape, tiler)
    return all(c is None or c < extent for c, extent in zip(it.wrap(coord), it.wrap(grid), strict=False))


def is_downcast(layout: Any, factor: int, answer: Any) -> bool:
    """Each element's parts, once each."""
    parts = sorted(offset * factor + part for offset in cute.offsets(layout) for part in range(factor))
    return sorted(cute.offsets(answer)) == parts


DEFINITIONS: dict[str, Callable[..., bool]] = {
    "composition": is_composition,
    "complement": is_complement,
    "left_inverse": is_left_inverse,
    "right_inverse": is_right_inverse,
    "upcast": is_upcast,
    "downcast": is_downcast,
    "recast_layout": is_recast,
    "local_tile": is_local_tile,
    "blocked_product": is_rank_product,
    "raked_product": lambda *args: is_rank_product(*args, raked=True),
    "tile_to_shape": is_tiling,
    **{f"{kind}_divide": by_mode(kind, is_divide) for kind in ("logical", "zipped", "tiled", "flat")},
    **{f"{kind}_product": by_mode(kind, is_product) for kind in ("logical", "zipped", "tiled", "flat")},
}


def fulfils(row: list[str], answer: Any) -> bool:
    op, *args, _answer = row
    return op in DEFINITIONS and DEFINITIONS[op](*map(parse, args), answer)


def verdict(row: list[str]) -> str:
    """How CuTe's answer and ours compare; "wrong" only if ours is not the better one."""
    cute_refuses = row[-1].startswith("refused")
    try:
        mine = ours(row)
    except LayoutError as error:
        if cute_refuses:
            return "both refuse"
        return f"wrong: {error}" if fulfils(row, theirs(row)) or row[0] not in DEFINITIONS else "only we refuse"
    if cute_refuses:
        return "only CuTe refuses" if fulfils(row, mine) else f"wrong: {mine}"
    if normal(mine) == normal(theirs(row)):
        return "same"
    return "only ours fulfils" if fulfils(row, mine) and not fulfils(row, theirs(row)) else f"wrong: {mine}"


@pytest.mark.parametrize("op", OPS)
def test_we_answer_as_cute_or_refuse_what_breaks_the_operations_definition(op: str) -> None:
    verdicts = [(row, verdict(row)) for row in rows_of(op)]
    wrong = [f"{row}: {found}" for row, found in verdicts if found.startswith("wrong")]
    assert not wrong, f"{len(wrong)} of {len(verdicts)}:\n" + "\n".join(wrong[:12])


def test_refusals_are_few() -> None:
    found = Counter(verdict(row) for row in ROWS if not row[0].startswith("atoms:"))
    assert found["same"] > 0.93 * found.total()
    assert found["only we refuse"] < 0.02 * found.total()
