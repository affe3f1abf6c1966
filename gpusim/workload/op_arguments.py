"""Arguments of ops: types and signs, by the fields that ``workload/ops.py`` declares.

In: an op. Out: a sentence with the op and the argument, where one has a wrong type or is below 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import MISSING, fields
from functools import cache
from numbers import Real
from operator import attrgetter
from typing import Any, get_args, get_type_hints

import numpy as np

from gpusim.errors import KernelError
from gpusim.workload import ops
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.data_access import DataAccess
from gpusim.workload.gmem.line_fetches import Fetches
from gpusim.workload.smem.access import AccessPattern

NUMBER, COUNT = "a number of 0 or more", "an integer of 0 or more"
MOST = 1e12
"""Number beyond which no op has instructions, bytes or cycles: infinity among them, which never ends."""


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | np.bool_) and 0.0 <= float(value) <= MOST


def _is_integer(value: Any) -> bool:
    return isinstance(value, Real | np.bool_) and float(value).is_integer()


def _is_count(value: Any) -> bool:
    return _is_integer(value) and bool(value >= 0)


def _is_tile(value: Any) -> bool:
    return isinstance(value, Hashable) and value is not None


def _is_tuple_of(is_item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple | list) and all(map(is_item, value))


def _is_a(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_stage(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and _is_count(value[1])


def _or_none(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_right(value)


Check = tuple[Callable[[Any], bool], str]
CHECKS: dict[Any, Check] = {
    str: (_is_a(str), "a name (str)"),
    bool: (lambda value: isinstance(value, bool | int) and value in (0, 1), "True or False"),
    int: (_is_count, COUNT), float: (_is_number, NUMBER),
    ops.Tile: (_is_tile, "a tile: (panel, step)"),
    AccessPattern: (_is_a(AccessPattern), "an AccessPattern, for example from global_access"),
    MmaAtom: (_is_a(MmaAtom), "an MmaAtom"),
    ops.Token: (_is_a(ops.Token), "the token that a load has given"),
    ops.Section: (_is_a(ops.Section), "a Section"),
    ops.Data | None: (
        lambda value: value is None or callable(value) or all(
            isinstance(item, DataAccess) for item in (value if isinstance(value, tuple) else (value,))
        ),
        "data accesses, or a function that returns them",
    ),
    Fetches | None: (_or_none(_is_a(Fetches)), "Fetches, or None"),
    int | None: (_or_none(_is_count), f"{COUNT}, or None"),
    tuple[int, ...]: (_is_tuple_of(_is_count), "a tuple of integers of 0 or more"),
    tuple[str, ...]: (_is_tuple_of(_is_a(str)), "a tuple of names"),
    tuple[ops.Tile, ...]: (_is_tuple_of(_is_tile), "a tuple of tiles"),
    tuple[tuple[str, int], ...]: (_is_tuple_of(_is_stage), "a tuple of pairs (buffer, stage)"),
}
"""Whether a value is right, and what is wanted, by the type of the field."""

UNKEYED = {AccessPattern, MmaAtom, ops.Token, ops.Tile, ops.Data | None, Fetches | None, tuple[ops.Tile, ...]}
"""Types of arguments that differ from op to op, or take long to hash: they are left out of :func:`key_of`."""


@cache
def _checks(kind: Any) -> tuple[tuple[str, Check], ...]:
    """Check of each field of an op."""
    found = []
    for name, hint in get_type_hints(kind).items():
        choices = get_args(hint)
        is_choice = bool(choices) and all(isinstance(choice, str) for choice in choices)
        check: Check = (choices.__contains__, f"one of {', '.join(choices)}") if is_choice else CHECKS[hint]
        found.append((name, check))
    return tuple(found)


@cache
def key_of(kind: Any) -> Callable[[Any], Any]:
    """Function that returns the arguments of an op that decide whether it is checked again."""
    names = [name for name, hint in get_type_hints(kind).items() if hint not in UNKEYED]
    return attrgetter(*names) if names else lambda op: None


def check_arguments(who: str, op: ops.Op) -> None:
    """Refuse an argument of a wrong type, or a negative number.

    >>> check_arguments("mine: role 'all' of CTA 0", ops.TmaStore("D", (0, 0), -1, 2, "a", 0))
    Traceback (most recent call last):
    ...
    gpusim.errors.KernelError: mine: role 'all' of CTA 0: TmaStore has num_bytes=-1, wants an integer of 0 or more

    Raises:
        KernelError: the first wrong argument, in the order of the fields.
    """
    for name, (is_right, wanted) in _checks(type(op)):  # type: ignore[arg-type]  # a class has a hash
        value = getattr(op, name)
        if not is_right(value):
            raise KernelError(f"{who}: {type(op).__name__} has {name}={value!r}, wants {wanted}")


def wrong_call(who: str, error: TypeError) -> KernelError | None:
    """Error for an op that is created with too few or unknown arguments. None where ``error`` comes from something else.

    >>> wrong_call("mine: role 'all' of CTA 0", TypeError("BulkWaitGroup.__init__() missing 1 required ..."))
    KernelError("mine: role 'all' of CTA 0: BulkWaitGroup missing 1 required ...; it takes num_pending[, read]")
    """
    found = re.match(r"(\w+)\.__init__\(\) (.*)", str(error), re.DOTALL)
    kind = vars(ops).get(found[1]) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, ops.Op)):
        return None
    names = [(item.name, item.default is MISSING) for item in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    needed, others = ([name for name, is_needed in names if is_needed is way] for way in (True, False))
    takes = ", ".join(needed) + "".join(f"[, {name}]" for name in others)
    return KernelError(f"{who}: {found[1]} {found[2]}; it takes {takes or 'no argument'}")
