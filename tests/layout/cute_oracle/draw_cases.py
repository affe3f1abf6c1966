"""Cases for the table, drawn by a seed. Knows nothing of gpusim: text for the table, and the C++ that asks CuTe."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Draw = Callable[[random.Random], "Case"]


@dataclass(frozen=True)
class Case:
    """One question: the operation, its arguments as the table has them, and a C++ expression that prints itself."""

    op: str
    args: tuple[str, ...]
    cpp: str


@dataclass(frozen=True)
class L:
    """A layout."""

    shape: Any
    stride: Any


@dataclass(frozen=True)
class Sw:
    """A swizzle, alone or over an offset and a layout."""

    bits: tuple[int, int, int]
    layout: L | None = None
    offset: int = 0


@dataclass(frozen=True)
class Tile:
    """A tiler of several parts."""

    parts: tuple[Any, ...]


def text(value: Any) -> str:
    """As the table has it."""
    if isinstance(value, L):
        return f"{text(value.shape)}:{text(value.stride)}"
    if isinstance(value, Sw):
        name = "Sw<{},{},{}>".format(*value.bits)
        return name if value.layout is None else f"{name} o {value.offset} o {text(value.layout)}"
    if isinstance(value, Tile):
        return f"<{','.join(map(text, value.parts))}>"
    if isinstance(value, tuple):
        return f"({','.join(map(text, value))})"
    return "_" if value is None else str(value)


def cpp_type(value: Any) -> str:
    """The static C++ type."""
    if isinstance(value, tuple):
        return f"cute::tuple<{','.join(map(cpp_type, value))}>"
    return "Underscore" if value is None else f"Int<{value}>"


def cpp(value: Any) -> str:
    """A C++ expression of static type."""
    if isinstance(value, L):
        return f"Layout<{cpp_type(value.shape)},{cpp_type(value.stride)}>{{}}"
    if isinstance(value, Sw):
        swizzle = "Swizzle<{},{},{}>{{}}".format(*value.bits)
        if value.layout is None:
            return swizzle
        return f"make_composed_layout({swizzle},Int<{value.offset}>{{}},{cpp(value.layout)})"
    if isinstance(value, Tile):
        return f"make_tile({','.join(map(cpp, value.parts))})"
    return f"{cpp_type(value)}{{}}"


def call(op: str, *args: Any, name: str | None = None, template: str = "") -> Case:
    """``op<template>(args)``."""
    return Case(name or op, tuple(map(text, args)), f"{op}{template}({','.join(map(cpp, args))})")


# Drawing values


def leaves(tree: Any) -> list[int]:
    """All leaves."""
    return [leaf for item in tree for leaf in leaves(item)] if isinstance(tree, tuple) else [tree]


def size(tree: Any) -> int:
    """All leaves multiplied."""
    result = 1
    for leaf in leaves(tree):
        result *= leaf
    return result


def refill(source: Iterator[int], profile: Any) -> Any:
    """The numbers in the profile."""
    return tuple(refill(source, item) for item in profile) if isinstance(profile, tuple) else next(source)


def a_size(rng: random.Random) -> int:
    """A mode's size, powers of two most often."""
    return rng.choice([1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 8, 8, 16])


def a_shape(rng: random.Random, most: int = 512, depth: int = 2, rank: int | None = None) -> Any:
    """A shape of at most ``most`` coordinates, nested now and then."""
    if rank is None and (depth == 0 or rng.random() < 0.25):
        return a_size(rng)
    while True:
        count = rank or rng.choice([1, 2, 2, 2, 3, 3])
        shape = tuple(
            a_shape(rng, most, depth - 1) if depth > 1 and rng.random() < 0.3 else a_size(rng) for _ in range(count)
        )
        if size(shape) <= most:
            return shape


def compact(rng: random.Random, shape: Any, start: int = 1, gaps: bool = False, zeros: bool = False) -> L:
    """A layout without overlap, its modes in a random order."""
    sizes = leaves(shape)
    strides = [0] * len(sizes)
    current = start
    for mode in rng.sample(range(len(sizes)), len(sizes)):
        if zeros and rng.random() < 0.25:
            continue
        if gaps and rng.random() < 0.3:
            current *= rng.choice([2, 3, 4])
        strides[mode] = current
        current *= sizes[mode]
    return L(shape, refill(iter(strides), shape))


def a_layout(rng: random.Random, most: int = 512, rank: int | None = None) -> L:
    """A layout of one of the kinds that occur: column-major, permuted, with gaps, with zeros, anything."""
    shape = a_shape(rng, most, rank=rank)
    kind = rng.random()
    if kind < 0.2:
        sizes = leaves(shape)
        return L(shape, refill(iter([size(tuple(sizes[:i])) for i in range(len(sizes))]), shape))
    if kind < 0.5:
        return compact(rng, shape)
    if kind < 0.75:
        return compact(rng, shape, start=rng.choice([1, 1, 2]), gaps=True)
    if kind < 0.88:
        return compact(rng, shape, gaps=rng.random() < 0.5, zeros=True)
    return L(shape, refill((rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 16, 100]) for _ in itertools.count()), shape))


def negated(rng: random.Random, layout: L) -> L:
    """With some strides negative."""
    return L(layout.shape, refill((d * rng.choice([1, -1]) for d in leaves(layout.stride)), layout.stride))


def factor(rng: random.Random, number: int) -> int:
    """A divisor."""
    return rng.choice([d for d in range(1, number + 1) if number % d == 0])


def fitting(rng: random.Random, outer: L, depth: int = 1) -> L:
    """A layout whose sizes and strides mostly fit the domain of ``outer``."""
    prefix = list(itertools.accumulate(leaves(outer.shape), lambda a, b: a * b, initial=1))
    total = prefix[-1]
    shape: list[int] = []
    stride: list[int] = []
    for _ in range(rng.choice([1, 1, 2, 2, 3])):
        base = rng.choice(prefix[:-1])
        step = base * factor(rng, max(total // base, 1)) if rng.random() < 0.8 else rng.randint(0, 9)
        room = max(total // max(step, 1), 1)
        shape.append(factor(rng, room) if rng.random() < 0.8 else a_size(rng))
        stride.append(step)
    if len(shape) == 1 and rng.random() < 0.6:
        return L(shape[0], stride[0])
    if depth and len(shape) == 3 and rng.random() < 0.5:
        return L((shape[0], tuple(shape[1:])), (stride[0], tuple(stride[1:])))
    return L(tuple(shape), tuple(stride))


def mode(layout: L, index: int) -> L:
    """One mode."""
    return L(layout.shape[index], layout.stride[index]) if isinstance(layout.shape, tuple) else layout


def rank(layout: L) -> int:
    """Number of modes."""
    return len(layout.shape) if isinstance(layout.shape, tuple) else 1


def a_tiler(rng: random.Random, layout: L) -> Any:
    """A layout, a shape or a tuple of layouts that mostly divides ``layout``."""
    kind = rng.random()
    if kind < 0.35:
        return fitting(rng, layout)
    count = rng.randint(1, rank(layout))
    parts = [factor(rng, size(mode(layout, i).shape)) for i in range(count)]
    if kind < 0.6 and isinstance(layout.shape, tuple):
        return tuple(parts)
    if kind < 0.7 or not isinstance(layout.shape, tuple):
        return parts[0] if rng.random() < 0.8 else a_size(rng)
    layouts = [
        p if rng.random() < 0.3 else (fitting(rng, mode(layout, i), 0) if rng.random() < 0.6 else L(p, 1))
        for i, p in enumerate(parts)
    ]
    return Tile(tuple(layouts))


def a_coord(rng: random.Random, shape: Any, past: bool = False) -> Any:
    """A coordinate into the shape, coarser than it now and then."""
    if not isinstance(shape, tuple) or rng.random() < 0.3:
        return rng.randrange(size(shape) * (2 if past else 1))
    return tuple(a_coord(rng, part, past and i == len(shape) - 1) for i, part in enumerate(shape))


def with_holes(rng: random.Random, coord: Any, shape: Any) -> Any:
    """With ``_`` for some modes, at least one."""
    if not isinstance(coord, tuple):
        return None
    flags = [rng.random() < 0.5 for _ in coord]
    if not any(flags):
        flags[rng.randrange(len(flags))] = True
    return tuple(
        (None if not isinstance(c, tuple) or rng.random() < 0.5 else with_holes(rng, c, s)) if hole else c
        for c, s, hole in zip(coord, shape, flags, strict=True)
    )


def a_swizzle(rng: random.Random) -> tuple[int, int, int]:
    """A swizzle as kernels use them."""
    num_bits = rng.choice([1, 2, 3, 3])
    return (num_bits, rng.choice([0, 2, 3, 3, 4]), rng.choice([3, 3, num_bits, 4]))


def a_swizzled(rng: random.Random) -> Sw:
    """A swizzle over a layout of powers of two."""
    rows, columns = rng.choice([8, 16, 4]), rng.choice([64, 32, 16])
    stride = (columns, 1) if rng.random() < 0.6 else (1, rows)
    return Sw(a_swizzle(rng), L((rows, columns), stride))
