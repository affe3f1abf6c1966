"""Options of a ``[[model]]`` that are computed from a launch: integer arithmetic over its grid, block, number and name.

In: an option's text, a launch of a profile, the expression that its name matches. Out: an integer, or a text with its parts
in braces replaced.

Ignores:

* anything but ``+ - * // %`` and parentheses: no calls, no powers, no comparisons
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, get_args

from gpusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from gpusim.evidence.nsight.launches import ProfiledLaunch
    from gpusim.kernel_models.options import KernelParams

OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = MappingProxyType({
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
})  # fmt: skip
AXES = tuple(f"{shape}_{axis}" for shape in ("grid", "block") for axis in "xyz")
NAMES = (*AXES, "launch")
"""Names of a launch's extents and number. Named groups of ``regex`` come on top."""
MOST_LETTERS, MOST = 200, 2**53
BRACES = re.compile(r"\{([^{}]*)\}")


def expressions_in(kind: type[KernelParams], options: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
    """Options that are computed, each with its text and whether it is one integer; others are texts with braces.

    >>> from gpusim.kernel_models import KERNEL_MODELS
    >>> gemm = KERNEL_MODELS["gemm"].params
    >>> expressions_in(gemm, {"m": "grid_x * 128", "n": "64", "tile": "{tm}x128x64", "dtype": "bf16"})
    {'m': ('grid_x * 128', True), 'tile': ('{tm}x128x64', False)}
    """
    types = {item.alias or name: item.annotation for name, item in kind.model_fields.items()}
    found = {}
    for name, value in options.items():
        is_integer = types.get(name) is int or set(get_args(types.get(name))) == {int, NoneType}
        if not isinstance(value, str):
            continue
        if BRACES.search(value):
            found[name] = value, False
        elif is_integer and not re.fullmatch(r"\s*[+-]?\d+\s*", value):
            found[name] = value, True
    return found


def computed(text: str, values: Mapping[str, int | str], where: str, *, is_integer: bool) -> int | str:
    """Value of an option: of all its text, or of each part in braces, where a name alone may be a text.

    >>> computed("(grid_x - 1) * 128", {"grid_x": 3}, "m", is_integer=True)
    256
    >>> computed("{tm}x{2 * tm}x64", {"tm": "64"}, "tile", is_integer=False)
    '64x128x64'

    Raises:
        ConfigError: the text is no arithmetic, a name is unknown, or the value is no integer within limits.
    """
    if is_integer:
        return _value(text, values, where)

    def part(found: re.Match[str]) -> str:
        name = found[1].strip()
        return str(values[name]) if name in values else str(_value(name, values, where))

    return BRACES.sub(part, text)


def names_in(text: str, where: str, *, is_integer: bool) -> set[str]:
    """Names that an option uses, with a check that it is arithmetic."""
    parts = [text] if is_integer else BRACES.findall(text)
    return {node.id for part in parts for node in ast.walk(_tree(part, where)) if isinstance(node, ast.Name)}


def values_of(launch: ProfiledLaunch, regex: str) -> dict[str, int | str]:
    """Values of the names in expressions: extents that the profile has, the launch's number, groups of the name."""
    values: dict[str, int | str] = {}
    for shape, extents in (("grid", launch.grid), ("block", launch.block)):
        if extents:
            values |= zip((f"{shape}_{axis}" for axis in "xyz"), (*extents, 1, 1, 1), strict=False)
    if launch.idx.isdecimal():
        values["launch"] = int(launch.idx)
    found = re.search(regex, launch.kernel) if regex else None
    return values | {name: text or "" for name, text in (found.groupdict() if found else {}).items()}


def refuse_unknown(used: Collection[str], known: Collection[str], where: str) -> None:
    """Check the names of an expression."""
    for name in sorted(set(used) - set(known)):
        raise ConfigError(f"{where}: {name!r} is unknown; {nearest(name, known)}")


def _tree(text: str, where: str) -> ast.expr:
    """Checked syntax tree of an expression."""
    wanted = f"{where}: {text!r} is no arithmetic, wants integers, names and + - * // % alone, for example grid_x * 128"
    if len(text) > MOST_LETTERS:
        raise ConfigError(f"{where}: an expression of {len(text)} letters, wants at most {MOST_LETTERS}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ConfigError(wanted) from None
    for node in ast.walk(tree):
        is_number = isinstance(node, ast.Constant) and type(node.value) is int and node.value <= MOST
        is_kind = isinstance(node, ast.Name | ast.Load | ast.BinOp | ast.UnaryOp | ast.USub | ast.UAdd)
        if not (is_number or is_kind or type(node) in OPERATORS):
            raise ConfigError(wanted)
    return tree


def _value(text: str, values: Mapping[str, int | str], where: str) -> int:
    """Value of an expression."""
    def value(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp):
            left, right = value(node.left), value(node.right)
            if isinstance(node.op, ast.FloorDiv | ast.Mod) and not right:
                raise ConfigError(f"{where}: {text!r} divides by zero")
            found = OPERATORS[type(node.op)](left, right)
        elif isinstance(node, ast.UnaryOp):
            found = -value(node.operand) if isinstance(node.op, ast.USub) else value(node.operand)
        elif isinstance(node, ast.Name):
            found = _number(node.id, values, where)
        else:
            found = node.value  # type: ignore[attr-defined]  # an integer: the tree is checked
        if abs(found) > MOST:
            raise ConfigError(f"{where}: {text!r} gives more than 2^53")
        return found

    return value(_tree(text, where))


def _number(name: str, values: Mapping[str, int | str], where: str) -> int:
    """Value of a name."""
    if name not in values:
        raise ConfigError(f"{where}: the launch has no {name}, its values are {', '.join(values) or 'none'}")
    number = values[name]
    if isinstance(number, str) and not re.fullmatch(r"\d{1,15}", number, re.ASCII):
        raise ConfigError(f"{where}: {name} is {number!r}, wants digits")
    return int(number)
