"""A faster ``__init__`` for records that are created by the thousand. In: a frozen dataclass. Out: the same class."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def made_quickly(kind: type[Kind]) -> type[Kind]:
    """Give ``kind``, a frozen dataclass with slots, an ``__init__`` that sets slots directly. By name takes twice as long.

    >>> from gpusim.workload.ops import Use
    >>> Use(3), Use(token=3) == Use(3), hash(Use(3)) == hash(Use(3))
    (Use(token=3), True, True)

    Raises:
        TypeError: a class with ``__post_init__``, or with fields that are keyword-only or have a default factory.
    """
    items = fields(kind)  # type: ignore[arg-type]  # a dataclass by contract
    if hasattr(kind, "__post_init__") or any(item.kw_only or item.default_factory is not MISSING for item in items):
        raise TypeError(f"{kind.__name__}: made_quickly wants plain fields, and nothing to be done behind them")
    known: dict[str, Any] = {}
    given, lines = ["self"], []
    for item in items:
        known[f"set_{item.name}"] = getattr(kind, item.name).__set__
        known[f"default_{item.name}"] = item.default
        given.append(item.name if item.default is MISSING else f"{item.name}=default_{item.name}")
        lines.append(f"    set_{item.name}(self, {item.name})")
    source = "\n".join([f"def __init__({', '.join(given)}):", *lines])
    exec(source, known)  # as ``dataclasses`` does
    made = known["__init__"]
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    kind.__init__ = made  # type: ignore[method-assign]  # same arguments
    return kind
