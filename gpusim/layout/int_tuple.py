"""IntTuples: integers, or tuples of IntTuples, as shapes, coordinates and (without bases) strides.

The structural functions also accept trees of anything: ``None`` in a coordinate, layouts in a tiler. Types are checked when
layouts are made.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

from gpusim.errors import LayoutError

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"
"""An integer, or a tuple of IntTuples."""

Coord: TypeAlias = "int | tuple[Coord, ...] | None"
"""An IntTuple in which ``None`` (CuTe's ``_``) stands for a full mode."""

Stride: TypeAlias = "int | ScaledBasis | tuple[Stride, ...]"
"""An IntTuple whose leaves may also be ``ScaledBasis``: the layout then yields coordinates."""

_: Final = None
"""CuTe's underscore: keeps the full mode."""

X: Final = None
"""CuTe's ``X`` in a projection: omits the mode."""


@dataclass(frozen=True, slots=True)
class ScaledBasis:
    """``value`` in the mode at ``modes``, and 0 in all other modes; CuTe prints ``E(1) * 4`` as ``4@1``.

    >>> print(4 * E(1), E(0, 1))
    4@1 1@1@0
    >>> as_coord(4 * E(1))
    (0, 4)
    """

    value: int
    modes: tuple[int, ...]

    def __mul__(self, factor: int) -> ScaledBasis:
        return ScaledBasis(self.value * factor, self.modes)

    __rmul__ = __mul__

    def __abs__(self) -> ScaledBasis:
        return ScaledBasis(abs(self.value), self.modes)

    def __str__(self) -> str:
        """CuTe's notation: the innermost mode first."""
        return str(self.value) + "".join(f"@{mode}" for mode in reversed(self.modes))

    def __repr__(self) -> str:
        basis = f"E({', '.join(map(str, self.modes))})"
        return basis if self.value == 1 else f"{self.value} * {basis}"


def E(*modes: int) -> ScaledBasis:  # noqa: N802 - CuTe's name
    """The basis element of the mode at ``modes``: ``E(1)`` is ``(0, 1)``.

    >>> E(1), 2 * E(1, 0)
    (E(1), 2 * E(1, 0))
    """
    return ScaledBasis(1, modes)


def as_coord(value: int | ScaledBasis) -> IntTuple:
    """A basis element as the tuple that it denotes. An integer is returned unchanged."""
    if isinstance(value, int):
        return value
    coord: IntTuple = value.value
    for mode in reversed(value.modes):
        coord = (*([0] * mode), coord)
    return coord


def add(a: Any, b: Any) -> Any:
    """Add mode by mode. The shorter tuple is padded with zeros, and 0 can be added to anything.

    >>> add((1, 2), (10,)), add(0, (0, 3))
    ((11, 2), (0, 3))

    Raises:
        LayoutError: a number other than 0 and a tuple.
    """
    if not isinstance(a, tuple) and not isinstance(b, tuple):
        return a + b
    if isinstance(a, tuple) and isinstance(b, tuple):
        longest = max(len(a), len(b))
        padded = ((*t, *([0] * (longest - len(t)))) for t in (a, b))
        return tuple(add(x, y) for x, y in zip(*padded, strict=True))
    number, coord = (b, a) if isinstance(a, tuple) else (a, b)
    if number != 0:
        raise LayoutError(f"cannot add {number} to the coordinate {show(coord)}: add coordinates, or offsets")
    return coord


def show(tree: Any) -> str:
    """A tree in CuTe's notation: no blanks, 1-tuples in parentheses, ``_`` for None.

    >>> show((2, (4, None), (8,)))
    '(2,(4,_),(8))'
    """
    if isinstance(tree, tuple):
        return f"({','.join(map(show, tree))})"
    return "_" if tree is None else str(tree)


def as_int_tuple(value: Any, what: str) -> Any:
    """``value`` with plain integers (or bases, or None) at its leaves.

    Raises:
        LayoutError: a leaf of another kind.
    """
    if isinstance(value, tuple | list):
        return tuple(as_int_tuple(item, what) for item in value)
    if value is None or isinstance(value, ScaledBasis):
        return value
    try:
        return operator.index(value)
    except TypeError:
        advice = "use parse_layout, or parse_int_tuple, which read text" if isinstance(value, str) else (
            "use integers and tuples of them")
        found = repr(value) if isinstance(value, str) else value
        raise LayoutError(f"{what}: {found} is no integer: {advice}") from None


# Structure


def rank(tree: Any) -> int:
    """Number of modes: 1 for an integer.

    >>> rank((2, (3, 4))), rank(7)
    (2, 1)
    """
    return len(tree) if isinstance(tree, tuple) else 1


def depth(tree: Any) -> int:
    """Levels of nesting: 0 for an integer.

    >>> depth(7), depth((2, (3, 4)))
    (0, 2)
    """
    return 1 + max((depth(item) for item in tree), default=0) if isinstance(tree, tuple) else 0


def get(tree: Any, *modes: int) -> Any:
    """The element at ``modes``; an integer is its own mode 0.

    >>> get((2, (3, 4)), 1, 0)
    3

    Raises:
        LayoutError: no such mode.
    """
    for mode in modes:
        if not 0 <= mode < rank(tree):
            raise LayoutError(f"{show(tree)} has no mode {mode}: use 0 to {rank(tree) - 1}")
        tree = tree[mode] if isinstance(tree, tuple) else tree
    return tree


def wrap(tree: Any) -> tuple[Any, ...]:
    """The tree as a tuple: an integer becomes a 1-tuple."""
    return tree if isinstance(tree, tuple) else (tree,)


def unwrap(tree: Any) -> Any:
    """The tree without outer 1-tuples.

    >>> unwrap(((3,),)), unwrap((3, 4))
    (3, (3, 4))
    """
    while isinstance(tree, tuple) and len(tree) == 1:
        tree = tree[0]
    return tree


def leaves(tree: Any) -> Iterator[Any]:
    """All leaves, from left to right."""
    if isinstance(tree, tuple):
        for item in tree:
            yield from leaves(item)
    else:
        yield tree


def flatten(tree: Any) -> Any:
    """All leaves as a tuple. An integer stays an integer.

    >>> flatten((2, (3, (4,)))), flatten(5)
    ((2, 3, 4), 5)
    """
    return tuple(leaves(tree)) if isinstance(tree, tuple) else tree


def unflatten(flat: Any, profile: Any) -> Any:
    """The leaves of ``flat`` in the profile of ``profile``: the inverse of ``flatten``.

    >>> unflatten((1, 2, 3), (0, (0, 0)))
    (1, (2, 3))

    Raises:
        LayoutError: different numbers of leaves.
    """
    found, wanted = len(wrap(flat)), sum(1 for _leaf in leaves(profile))
    if found != wanted:
        raise LayoutError(f"unflatten: {found} leaves for the profile {show(profile)}: use {wanted}")
    return _refill(iter(wrap(flat)), profile)


def _refill(source: Iterator[Any], profile: Any) -> Any:
    return tuple(_refill(source, item) for item in profile) if isinstance(profile, tuple) else next(source)


def map_leaves(function: Callable[..., Any], *trees: Any) -> Any:
    """``function`` applied to the leaves of congruent trees, in their profile."""
    if isinstance(trees[0], tuple):
        return tuple(map_leaves(function, *items) for items in zip(*trees, strict=True))
    return function(*trees)


def repeat_like(tree: Any, value: Any) -> Any:
    """A tree with the profile of ``tree`` and ``value`` at each leaf."""
    return map_leaves(lambda _leaf: value, tree)


def repeat(count: int, value: Any) -> Any:
    """A tuple of ``count`` times ``value``; ``value`` itself for a count of 1, as in CuTe."""
    return value if count == 1 else (value,) * count


def group(tree: Any, begin: int, end: int) -> Any:
    """Modes ``begin`` to ``end`` (exclusive; -1 for the last) as one mode.

    >>> group((1, 2, 3, 4), 1, 3)
    (1, (2, 3), 4)

    Raises:
        LayoutError: no such range.
    """
    modes = wrap(tree)
    end = len(modes) if end == -1 else end
    if not 0 <= begin <= end <= len(modes):
        raise LayoutError(f"group: modes {begin} to {end} of {show(tree)}: use 0 to {len(modes)}")
    return (*modes[:begin], *((modes[begin:end],) if begin < end else ()), *modes[end:])


def pad(tree: Any, count: int, value: Any) -> Any:
    """``tree`` with ``value`` appended until it has ``count`` modes (CuTe's ``append<N>``).

    Raises:
        LayoutError: it has more modes already.
    """
    missing = count - rank(tree)
    if missing < 0:
        raise LayoutError(f"append: {show(tree)} has {rank(tree)} modes already: ask for {rank(tree)} or more")
    return (*wrap(tree), *([value] * missing)) if missing else tree


def zip_modes(tree: Any) -> Any:
    """Transpose a tuple of tuples: ``((a,b),(x,y))`` becomes ``((a,x),(b,y))``.

    >>> zip_modes(((1, 2), (3, 4))), zip_modes((1, 2))
    (((1, 3), (2, 4)), ((1, 2),))

    Raises:
        LayoutError: modes of different ranks.
    """
    if not isinstance(tree, tuple) or not isinstance(tree[0], tuple):
        return (tree,) if isinstance(tree, tuple) else tree
    ranks = {rank(item) for item in tree}
    if len(ranks) > 1 or not all(isinstance(item, tuple) for item in tree):
        raise LayoutError(f"zip: the modes of {show(tree)} differ in rank: give each as many modes")
    return tuple(zip(*tree, strict=True))


def zip2_by(tree: Any, guide: Any) -> Any:
    """Gather the pairs at the leaves of ``guide``: ``((A,a),(B,b),c)`` by ``(X,X)`` is ``((A,B),(a,b,c))``.

    >>> zip2_by(((1, 2), (3, 4), 5), (None, None))
    ((1, 3), (2, 4, 5))
    """
    if not isinstance(guide, tuple):
        if rank(tree) != 2:
            raise LayoutError(f"zip: {show(tree)} is no pair of tile and rest: give this mode a tiler, not _")
        return tree
    split = [zip2_by(item, part) for item, part in zip(tree, guide, strict=False)]
    return tuple(a for a, _rest in split), (*(b for _tile, b in split), *tree[len(guide) :])


def has_none(tree: Any) -> bool:
    """Whether a leaf is ``None``, that is, a full mode is kept (CuTe's ``has_underscore``)."""
    return any(leaf is None for leaf in leaves(tree))


def slice_modes(coord: Any, tree: Any) -> Any:
    """The elements of ``tree`` where ``coord`` has ``None``.

    >>> slice_modes((None, 3, (None, 1)), (2, 4, (6, 8)))
    (2, 6)
    """
    return _keep(coord, tree, lambda leaf: leaf is None)


def dice_modes(coord: Any, tree: Any) -> Any:
    """The elements of ``tree`` where ``coord`` has a number: those that ``slice_modes`` omits.

    >>> dice_modes((None, 3, (None, 1)), (2, 4, (6, 8)))
    (4, 8)
    """
    return _keep(coord, tree, lambda leaf: leaf is not None)


def _keep(coord: Any, tree: Any, wanted: Callable[[Any], bool]) -> Any:
    if not isinstance(coord, tuple):
        return tree if wanted(coord) else ()
    return _lift(coord, tree, wanted)


def _lift(coord: Any, tree: Any, wanted: Callable[[Any], bool]) -> tuple[Any, ...]:
    if not isinstance(coord, tuple):
        return (tree,) if wanted(coord) else ()
    same_rank("slice", coord, tree)
    return tuple(kept for c, item in zip(coord, tree, strict=True) for kept in _lift(c, item, wanted))


def same_rank(where: str, a: Any, b: Any) -> None:
    """Refuse a tuple ``a`` whose number of modes differs from that of ``b``.

    Raises:
        LayoutError: the ranks differ.
    """
    if not isinstance(b, tuple) or len(a) != len(b):
        raise LayoutError(f"{where}: {show(a)} has {len(a)} modes, {show(b)} has {rank(b)}: use as many")


# Arithmetic


def product(tree: IntTuple) -> int:
    """The product of all leaves: the size of a shape.

    >>> product((2, (3, 4)))
    24
    """
    return math.prod(leaves(tree))


def product_each(tree: IntTuple) -> tuple[int, ...]:
    """The size of each mode.

    >>> product_each((2, (3, 4)))
    (2, 12)
    """
    return tuple(product(item) for item in wrap(tree))


def product_like(tree: IntTuple, guide: Any) -> Any:
    """The sizes of ``tree`` at the leaves of ``guide``.

    >>> product_like(((2, 3), (4, 5)), (0, (0, 0)))
    (6, (4, 5))
    """
    if not isinstance(guide, tuple):
        return product(tree)
    same_rank("product_like", guide, tree)
    return tuple(product_like(item, part) for item, part in zip(wrap(tree), guide, strict=True))


def inner_product(a: Any, b: Any) -> Any:
    """The sum of the products of corresponding leaves.

    >>> inner_product((1, (0, 3)), (3, (12, 1)))
    6
    """
    return reduce(add, (as_coord(x * y) for x, y in zip(leaves(a), leaves(b), strict=True)), 0)


def ceil_div(a: IntTuple, b: IntTuple) -> Any:
    """Number of ``b`` that cover ``a``, rounded up.

    * tuple by tuple: mode by mode; missing modes of ``b`` are 1.
    * tuple by integer: modes use up the integer from left to right.
    * integer by tuple: the integer by the tuple's size.

    >>> ceil_div(7, 2), ceil_div((4, 6), (3,)), ceil_div((4, 6), 8), ceil_div(24, (2, 4))
    (4, (2, 6), (1, 3), 3)

    Raises:
        LayoutError: ``b`` has more modes than ``a``, or a divisor is below 1.
    """
    return _divide(a, b, _ceil_div)


def _ceil_div(a: int, b: int) -> int:
    if b < 1:
        raise LayoutError(f"ceil_div: the divisor {b} is below 1: use 1 or more")
    return -(-a // b)


def shape_div(a: IntTuple, b: IntTuple) -> Any:
    """Divide a shape like ``ceil_div``, if one number divides the other.

    >>> shape_div((4, 5, 6), 40), shape_div((4, 6), (2, 3))
    ((1, 1, 3), (2, 2))

    Raises:
        LayoutError: two numbers of which neither divides the other, or different ranks.
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        same_rank("shape_div", a, b)
    return _divide(a, b, _shape_div)


def _shape_div(a: int, b: int) -> int:
    if b < 1 or (a % b and (a < 1 or b % a)):
        raise LayoutError(f"shape_div: neither of {a} and {b} divides the other: use multiples")
    return _ceil_div(a, b)


def _divide(a: IntTuple, b: IntTuple, divide: Callable[[int, int], int]) -> Any:
    if not isinstance(a, tuple):
        return divide(a, product(b))
    if isinstance(b, tuple):
        if len(a) < len(b):
            raise LayoutError(f"divide: {show(b)} has more modes than {show(a)}: use at most {len(a)}")
        return tuple(_divide(x, y, divide) for x, y in zip(a, pad(b, len(a), 1), strict=True))
    result = []
    for x in a:
        result.append(_divide(x, b, divide))
        b = divide(b, product(x))
    return tuple(result)


def round_up(a: IntTuple, b: IntTuple) -> Any:
    """The next multiple of ``b``, mode by mode.

    >>> round_up(7, 4), round_up((7, 5), (4,))
    (8, (8, 5))
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(round_up(x, y) for x, y in zip(a, pad(b, len(a), 1), strict=True))
    if isinstance(a, tuple) or isinstance(b, tuple):
        raise LayoutError(f"round_up: {show(a)} and {show(b)}: use two integers or two tuples")
    return _ceil_div(a, b) * b


# Comparing profiles


def congruent(a: Any, b: Any) -> bool:
    """Whether two trees have the same profile.

    >>> congruent((1, (2, 3)), (4, (5, 6))), congruent((1, 2), (1, (2, 3)))
    (True, False)
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(congruent, a, b))
    return not isinstance(a, tuple) and not isinstance(b, tuple)


def weakly_congruent(a: Any, b: Any) -> bool:
    """Whether ``b`` has the profile of ``a``, or refines it.

    >>> weakly_congruent((1, 2), (1, (2, 3))), weakly_congruent((1, (2, 3)), (1, 2))
    (True, False)
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(weakly_congruent, a, b))
    return not isinstance(a, tuple)


def compatible(a: IntTuple, b: IntTuple) -> bool:
    """Whether each coordinate of the shape ``a`` is also a coordinate of the shape ``b``, and the sizes are equal.

    >>> compatible(24, (4, 6)), compatible((4, 6), ((2, 2), 6)), compatible((4, 6), 24)
    (True, True, False)
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(compatible, a, b))
    return not isinstance(a, tuple) and a == product(b)


# Coordinates and indices


def truncated_divmod(a: Any, b: int) -> tuple[Any, Any]:
    """Quotient and remainder as in C++: a negative index counts backwards. Arrays must not be negative."""
    if isinstance(a, int) and a < 0:
        return -(-a // b), -(-a % b)
    return a // b, a % b


def crd2idx(coord: Any, shape: IntTuple, stride: Any = None) -> Any:
    """The index of a coordinate: the sum of each integer times its stride.

    An integer for a tuple of modes is first split colexicographically. **It may be past the end: it then continues in the
    last mode**, as in C++. Without ``stride`` the index is the colexicographical one. ``_`` counts as 0. Arrays of integers
    are accepted in place of integers.

    >>> crd2idx((1, (0, 3)), (3, (2, 3)), (3, (12, 1))), crd2idx(5, (3, (2, 3)), (3, (12, 1)))
    (6, 18)
    >>> crd2idx((1, (1, 2)), (3, (2, 3)))
    16
    >>> crd2idx(9, (4, 2), (2, 1))  # past the end: (1, 2)
    4

    Raises:
        LayoutError: a tuple where the shape has an integer, or another rank.
    """
    if stride is None:
        return _horner(coord, shape)
    if isinstance(coord, tuple):
        same_rank("crd2idx", coord, shape)
        return reduce(add, map(crd2idx, coord, wrap(shape), stride), 0)
    coord = 0 if coord is None else coord
    if not isinstance(shape, tuple):
        return as_coord(stride * coord) if isinstance(stride, ScaledBasis) else coord * stride
    total: Any = 0
    for part, step in zip(shape[:-1], stride[:-1], strict=True):
        coord, digit = truncated_divmod(coord, product(part))
        total = add(total, crd2idx(digit, part, step))
    return add(total, crd2idx(coord, shape[-1], stride[-1])) if shape else total


def _horner(coord: Any, shape: IntTuple) -> Any:
    if not isinstance(coord, tuple):
        return coord
    same_rank("crd2idx", coord, shape)
    total: Any = 0
    for c, s in zip(reversed(coord), reversed(wrap(shape)), strict=True):
        total = total * product(s) + _horner(c, s)
    return total


def idx2crd(index: Any, shape: IntTuple, stride: Any = None) -> Any:
    """The coordinate of an index, colexicographically. The last mode includes indices past the end.

    With ``stride``, each mode is ``index / stride % shape``: the coordinate that ``crd2idx`` maps to ``index`` if the layout
    is compact. ``Layout.get_hier_coord`` checks this.

    >>> idx2crd(5, (3, (2, 3))), idx2crd(16, (3, (2, 3)))
    ((2, (1, 0)), (1, (1, 2)))
    >>> idx2crd(20, (3, 4)), idx2crd(5, (2, 3), (3, 1))
    ((2, 6), (1, 2))

    Raises:
        LayoutError: a tuple where the shape has an integer, another rank, or a division by a stride of 0.
    """
    if isinstance(index, tuple):
        same_rank("idx2crd", index, shape)
        steps = stride if isinstance(stride, tuple) else (stride,) * len(index)
        return tuple(map(idx2crd, index, wrap(shape), steps))
    if stride is None:
        return _split(index, shape)
    if isinstance(shape, tuple):
        steps = stride if isinstance(stride, tuple) else compact_col_major(shape, stride)
        return tuple(idx2crd(index, s, d) for s, d in zip(shape, steps, strict=True))
    if shape == 1:
        return 0
    if stride == 0:
        raise LayoutError(f"idx2crd: a mode of size {shape} has stride 0: no index tells its coordinate")
    return truncated_divmod(truncated_divmod(index, abs(stride))[0], shape)[1] * (1 if stride > 0 else -1)


def _split(index: Any, shape: IntTuple) -> Any:
    if not isinstance(shape, tuple):
        return index
    coord = []
    for part in shape[:-1]:
        index, digit = truncated_divmod(index, product(part))
        coord.append(_split(digit, part))
    return (*coord, *(_split(index, part) for part in shape[-1:]))


def crd2crd(coord: Any, source: IntTuple, target: IntTuple) -> Any:
    """The coordinate in the shape ``target`` with the index of ``coord`` in the shape ``source``.

    >>> crd2crd((1, 2), (4, 3), (2, 6))
    (1, 4)

    Raises:
        LayoutError: shapes of different sizes.
    """
    if product(source) != product(target):
        raise LayoutError(f"crd2crd: {show(source)} and {show(target)} differ in size: use shapes of one size")
    return idx2crd(crd2idx(coord, source), target)


# Compact strides


def compact_col_major(shape: IntTuple, current: Any = 1) -> Any:
    """Compact strides, the leftmost mode first. Modes of size 1 have stride 0, as in CuTe.

    >>> compact_col_major((2, (3, 1), 4)), compact_col_major((2, 3), (10, 100))
    ((1, (2, 0), 6), (10, 100))
    """
    return _compact(shape, current, forward=True)


def compact_row_major(shape: IntTuple, current: Any = 1) -> Any:
    """Compact strides, the rightmost mode first.

    >>> compact_row_major((2, (3, 1), 4))
    (12, (4, 0), 1)
    """
    return _compact(shape, current, forward=False)


def _compact(shape: IntTuple, current: Any, *, forward: bool) -> Any:
    if isinstance(current, tuple):
        same_rank("compact", current, shape)
        return tuple(_compact(s, c, forward=forward) for s, c in zip(wrap(shape), current, strict=True))
    if not isinstance(shape, tuple):
        return 0 if shape == 1 else current
    strides: list[Any] = []
    for part in shape if forward else reversed(shape):
        strides.append(_compact(part, current, forward=forward))
        current = current * product(part)
    return tuple(strides if forward else reversed(strides))


def compact_order(shape: IntTuple, order: IntTuple) -> Any:
    """Compact strides, in ascending ``order`` of the modes. Modes of the same order overlap, as in CuTe.

    >>> compact_order((2, 2, 2, 2), (0, 2, 3, 1))
    (1, 4, 8, 2)

    Raises:
        LayoutError: ``order`` does not fit ``shape``.
    """
    if not weakly_congruent(order, shape):
        raise LayoutError(f"order {show(order)} does not fit the shape {show(shape)}: give each mode a number")
    places = list(zip(leaves(order), leaves(product_like(shape, order)), strict=True))
    return _compact_order(shape, order, places)


def _compact_order(shape: IntTuple, order: IntTuple, places: list[tuple[int, int]]) -> Any:
    if isinstance(order, tuple):
        return tuple(_compact_order(s, o, places) for s, o in zip(wrap(shape), order, strict=True))
    return compact_col_major(shape, math.prod(size for place, size in places if place < order))


def basis_like(shape: IntTuple, *modes: int) -> Any:
    """The basis element of each leaf (CuTe's ``make_basis_like``).

    >>> basis_like((2, (3, 4)))
    (E(0), (E(1, 0), E(1, 1)))
    """
    if isinstance(shape, tuple):
        return tuple(basis_like(part, *modes, i) for i, part in enumerate(shape))
    return ScaledBasis(1, modes) if modes else 1
