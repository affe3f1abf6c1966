"""Accepted spellings of options and values: any case, other names of a type, and names of an earlier release.

In: the user's text. Out: the name and the value in the parameters' model. The model refuses invalid ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from gpusim.errors import nearest

ALIASES: Mapping[str, str] = MappingProxyType({
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "f16": "fp16", "float32": "fp32", "float": "fp32", "f32": "fp32",
    "tfloat32": "tf32", "float8_e4m3": "fp8", "float8_e4m3fn": "fp8", "fp8_e4m3": "fp8", "e4m3": "fp8",
    "float8_e5m2": "fp8", "fp8_e5m2": "fp8", "e5m2": "fp8", "ldgsts": "cp_async", "kernelmultistage": "multistage",
    "kerneltmawarpspecialized": "warp_specialized", "kerneltmawarpspecializedcooperative": "cooperative",
    "kerneltmawarpspecializedpingpong": "pingpong",
})
"""Names of types, copies and schedules in PyTorch, PTX, SASS and CUTLASS, in lower case."""

HINTS: Mapping[str, str] = MappingProxyType({
    "kernelcpasyncwarpspecialized": "use --schedule warp_specialized --copy cp_async",
})
"""Hint at the options that stand for one name of CUTLASS, in lower case."""


def hint_at(text: str, known: Sequence[str]) -> str:
    """Hint at the value that an unknown ``text`` means."""
    return HINTS.get(text.lower()) or nearest(text, known)


@dataclass(frozen=True, slots=True)
class Renamed:
    """New name of an option of an earlier release. Former names are accepted for one release."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """New values by former value, if they changed."""


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """Values of a field with a fixed set of them.

    >>> choices_of(Literal["m", "n"] | None), choices_of(int)
    (('m', 'n'), ())
    """
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) not in (Annotated, Union, UnionType):
        return ()
    return tuple(choice for member in get_args(annotation) if not isinstance(member, str) for choice in choices_of(member))


def as_choice(value: Any, choices: Sequence[Any]) -> Any:
    """The choice that a text denotes, in any case, with or without underscores. Other values are returned unchanged.

    >>> as_choice("torch.bfloat16", ["bf16"]), as_choice("Warp-Specialized", ["warp_specialized"]), as_choice("64", [64])
    ('bf16', 'warp_specialized', 64)
    """
    if not isinstance(value, str) or value in choices:
        return value
    low = value.strip().lower().replace("-", "_").removeprefix("torch.")
    low = ALIASES.get(low, low).replace("_", "")
    return next((choice for choice in choices if str(choice).lower().replace("_", "") == low), value)


def in_new_words(renamed: Mapping[str, Renamed], option: str, value: Any) -> tuple[str, Any]:
    """The current name and value of an option.

    >>> in_new_words({"refill": Renamed("prefetch", {"before_math": "before_mma"})}, "refill", "before_math")
    ('prefetch', 'before_mma')
    """
    change = renamed.get(option) or next((each for each in renamed.values() if each.name == option), Renamed(option))
    if isinstance(value, str):
        value = change.values.get(value.lower().replace("-", "_"), value)
    return change.name, value
