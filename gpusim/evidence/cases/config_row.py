"""A config as a frozen dataclass: one field per column, in the table's order, and its CSV text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, wraps
from itertools import product
from typing import Any, Self, TypeVar

Given = TypeVar("Given")
"""Return type of a case's function."""

PARSERS: Mapping[Any, Callable[[str], Any]] = {
    "int": int, "float": float, "bool": "1".__eq__, "str": str,
}  # fmt: skip
"""Function that reads a column, by the annotation of its field. No other annotation is allowed."""


@dataclass(frozen=True)
class ConfigRow(Mapping[str, str]):
    """Base of the configs of one case: typed as attributes, and a mapping of columns to CSV text.

    ``kernel``, the entry point, is the first field or a property. True is 1 in the table, False is 0. A case's class is
    frozen and names its columns once: ``Case(config_type=...)`` derives ``columns`` and the parsing of rows from it.
    """

    @classmethod
    def names(cls) -> list[str]:
        """Columns, the kernel first."""
        return list(_columns(cls))

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Self:
        """Config of a row or of a config as text; further columns are ignored."""
        if isinstance(row, cls):
            return row
        config = object.__new__(cls)
        for item in fields(cls):
            object.__setattr__(config, item.name, PARSERS[item.type](row[item.name]))
        return config

    @classmethod
    def sweep(cls, **columns: Any) -> list[Self]:
        """Configs with each combination of values; the last column varies fastest, and text or a number is one value."""
        values = [item if isinstance(item, Iterable) and not isinstance(item, str) else (item,) for item in columns.values()]
        return [cls(**dict(zip(columns, combination, strict=True))) for combination in product(*values)]

    def text(self) -> Mapping[str, str]:
        """Config as text, the kernel first."""
        return dict(self)

    def __getitem__(self, name: str) -> str:
        if name not in _columns(type(self)):
            raise KeyError(name)
        value = getattr(self, name)
        return str(int(value) if isinstance(value, bool) else value)

    def __iter__(self) -> Iterator[str]:
        return iter(_columns(type(self)))

    def __len__(self) -> int:
        return len(_columns(type(self)))


@cache
def _columns(config_type: type[ConfigRow]) -> dict[str, None]:
    """Columns of a class, in order."""
    return dict.fromkeys(("kernel", *(item.name for item in fields(config_type))))


TAKE_A_CONFIG = (
    "launch", "check", "predict", "predict_row", "refused", "predict_launched", "families", "problem", "text_columns",
    "model_options",
)  # fmt: skip
"""Functions of a case that take a config. Those that take a row get text."""


def num_parameters(function: Callable[..., Any]) -> int:
    """Number of arguments that ``function`` takes."""
    return len(inspect.signature(function).parameters)


def typed(function: Callable[..., Given], config_type: type[ConfigRow] | None, *, place: int) -> Callable[..., Given]:
    """``function``, given the config at ``place`` as ``config_type`` and no more arguments than it takes."""
    num = num_parameters(function)

    @wraps(function)
    def called(*arguments: Any) -> Given:
        config = arguments[place] if config_type is None else config_type.of(arguments[place])
        return function(*arguments[:place], config, *arguments[place + 1 : num])

    return called
