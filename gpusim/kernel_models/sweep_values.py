"""Configurations of a kernel: all combinations of its options' values that a GPU can launch.

In: values to try for each option, as typed. Out: resolved parameters, and refusals with their reasons. Knows no time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any, Literal, get_args, get_origin

from gpusim.errors import GpusimError, KernelError, nearest
from gpusim.kernel_models.options import KernelParams
from gpusim.kernel_models.spelling import as_choice, choices_of, hint_at, in_new_words
from gpusim.workload.launch import Launch, Target

AUTO = "auto"
"""Placeholder for the usual values of an option."""

MOST_COUNTED = 16
"""Maximum size of a range that counts in steps of one; longer ranges double."""

MOST_CHOICES = 50_000
"""Maximum number of combinations; more take minutes to be listed."""

TELL_EVERY = 100
"""Number of combinations between two progress reports."""

Mapped = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""Function like ``map``: applies a function to each item, in order."""

SEVERAL = re.compile(r"[,;]|\.\.|^auto$")
"""Pattern of a text that denotes several values."""

_RANGE = re.compile(r"(\d+)\.\.(\d+)(?:\+(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One configuration."""

    options: Mapping[str, Any]
    """Options with several values, and their values in this configuration."""
    params: KernelParams
    """Parameters of the configuration, resolved for the GPU."""
    kept: Any = None
    """Result of ``keep`` for the configuration's launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Configurations that are invalid for one reason, in general or on this GPU."""

    reason: str
    """Reason of the first of them."""
    num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Configurations that a sweep may try."""

    varied: tuple[str, ...]
    """Options with several values."""
    num_tried: int
    legal: tuple[Choice, ...]
    num_same: int
    """Number of configurations that equal another one after their defaults are filled in."""
    refusals: tuple[Refusal, ...]


def values_of(kind: type[KernelParams], option: str, text: str, *, fixed: Mapping[str, Any], gpu: Target) -> tuple[Any, ...]:
    """Values of one option as typed: ``a,b,c`` (``;`` if a value has commas), ``2..6``, ``1024..4096+512``, ``auto``.

    A range of up to 16 numbers counts in steps of one; a longer one doubles. ``fixed``: options with a single value.

    Raises:
        KernelError: a text that denotes no values.
    """
    flag = f"--{option.replace('_', '-')}"
    if text == AUTO:
        annotation = kind.model_fields[kind.options()[option]].annotation
        usual = kind.row.sweep_values(option, fixed, gpu) or kind.row.tuned.get(option)
        usual = usual or ((False, True) if _is_flag(annotation) else choices_of(annotation))
        if not usual:
            raise KernelError(f"{flag} auto: nothing is usual here; wants values, such as {flag} 1,2,4 or {flag} 2..6")
        return tuple(usual)
    parts = [part.strip() for part in re.split(";" if ";" in text else ",", text)]
    values: list[Any] = []
    for part in parts:
        if not part:
            raise KernelError(f"{flag} {text!r} has an empty value; wants values joined by commas")
        _refuse_slip(kind, option, part)
        values += _range(flag, part) if ".." in part else [_word(kind, option, part)]
    return tuple(dict.fromkeys(values))


def _refuse_slip(kind: type[KernelParams], option: str, part: str) -> None:
    """Refuse a text that looks like a range or ``auto``, but is neither."""
    flag = f"--{option.replace('_', '-')}"
    if span := re.fullmatch(r"(\d+)-(\d+)", part):
        raise KernelError(f"{flag} {part!r} is no range; wants {span[1]}..{span[2]}")
    words = [str(choice) for choice in choices_of(kind.model_fields[kind.options()[option]].annotation)]
    if part == AUTO and part not in words:
        raise KernelError(f"{flag}: {AUTO} stands for all usual values, wants no others beside it")
    if part.isalpha() and len(part) >= len(AUTO) - 1 and part not in words and "did you mean" in nearest(part, (AUTO,)) and (
        "did you mean" not in nearest(part, words)
    ):
        raise KernelError(f"{flag} {part!r} is unknown; {nearest(part, (AUTO,))}")


def _range(flag: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise KernelError(f"{flag} {text!r} is no range; wants 2..6, or 1024..4096+512 with a step")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 0)
    if last < first or first < 1 or match[3] == "0":
        raise KernelError(f"{flag} {text!r} is no range; wants one that grows from 1 or more, such as 2..6")
    if step or last - first < MOST_COUNTED:
        count = range(first, last + 1, step or 1)
        if len(count) > MOST_CHOICES:
            raise KernelError(f"{flag} {text!r} has {len(count)} numbers; wants at most {MOST_CHOICES}")
        return [str(number) for number in count]
    numbers = []
    while first <= last:
        numbers.append(str(first))
        first *= 2
    return numbers


def _word(kind: type[KernelParams], option: str, text: str) -> Any:
    """A value in the model's type: flags are on and off, numeric choices are numbers.

    A value that is invalid for all GPUs and sizes is an error here, not one refused configuration among others.
    """
    item, flag = kind.model_fields[kind.options()[option]], f"--{option.replace('_', '-')}"
    if _is_flag(item.annotation):
        if text not in ("on", "off"):
            raise KernelError(f"{flag} {text!r} is unknown; {nearest(text, ('on', 'off'))}")
        return text == "on"
    known = choices_of(item.annotation)
    text = as_choice(in_new_words(kind.renamed, option, text)[1], known)
    if text in known:
        return text
    members = (item.annotation,) if get_origin(item.annotation) is Literal else get_args(item.annotation)
    if known and not item.metadata and all(get_origin(each) is Literal or each is type(None) for each in members):
        words = [str(choice) for choice in known]
        raise KernelError(f"{flag} {text!r} is unknown; {hint_at(text, words)}")
    if item.annotation is int and not _is_whole(text):
        raise KernelError(f"{flag} is {text!r}, wants a whole number")
    return text


def _is_whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _is_flag(annotation: Any) -> bool:
    return annotation is bool or bool in get_args(annotation)


def choices(
    kind: type[KernelParams], given: Mapping[str, Any], gpu: Target, *, keep: Callable[[Launch], Any] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None, mapped: Mapped = map,
) -> Choices:
    """All combinations of the ``given`` values that ``gpu`` can launch.

    Args:
        kind: class of the kernel's parameters.
        given: for each option a text, one value, or a sequence of values.
        gpu: the GPU.
        keep: function of each launch, whose result is kept; it may refuse the launch.
        progress: function of the number of combinations that have been examined, and of all.
        mapped: function like ``map``.
    """
    given = kind.in_our_words(given)
    is_open = bool(kind.row.stated) and given.get(kind.row.stated[0]) == AUTO
    values = _values(kind, {name: value for name, value in given.items() if not is_open or value != AUTO
                            or name not in kind.row.deciding}, gpu)
    number = prod(len(of_option) for of_option in values.values())
    if number > MOST_CHOICES:
        sizes = " x ".join(f"{len(some)} {name}" for name, some in values.items() if len(some) > 1)
        raise KernelError(f"{number} configurations ({sizes}), gpusim tries at most {MOST_CHOICES}; give fewer values")
    varied = tuple(name for name, of_option in values.items() if len(of_option) > 1)
    _refuse_what_is_no_value(kind, given, values)
    legal: dict[KernelParams, Choice] = {}
    refused: dict[str, list[str]] = {}
    num_legal, fields = 0, kind.options()
    combinations: Iterable[dict[str, Any]] = (dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))
    if is_open:
        combinations = [options for combination in combinations for options in _opened(kind, combination, gpu)]
        number = len(combinations)
        differing = {name: len({str(options.get(name)) for options in combinations}) for name in fields}
        varied = tuple(name for name in fields if name in varied or (name in kind.row.deciding and differing[name] > 1))
    look = partial(_looked_at, kind=kind, gpu=gpu, keep=keep)
    for done, seen in enumerate(mapped(look, combinations)):
        if not done % TELL_EVERY:
            progress(done, number)
        if isinstance(seen, str):
            _note(refused, seen)
            continue
        params, kept = seen
        num_legal += 1
        resolved = params.as_options()
        chosen = {name: resolved[fields[name].rstrip("_")] for name in varied}
        legal.setdefault(params, Choice(options=chosen, params=params, kept=kept))
    refusals = [Refusal(reason=reasons[0], num=len(reasons)) for reasons in refused.values()]
    refusals.sort(key=lambda item: -item.num)
    if not legal:
        reason = refusals[0].reason if refusals else "there are no values"
        raise KernelError(reason if number == 1 else f"none of {number} configurations can run: {reason}")
    return Choices(
        varied=varied, num_tried=number, legal=tuple(legal.values()), num_same=num_legal - len(legal),
        refusals=tuple(refusals),
    )


def _opened(kind: type[KernelParams], combination: Mapping[str, Any], gpu: Target) -> list[dict[str, Any]]:
    """Options of all configurations that a library has with the options of ``combination``."""
    try:
        made = list(kind.row.configurations(kind(**combination), gpu))
    except GpusimError:
        made = []
    options = [
        {option: getattr(each, name) for option, name in kind.options().items() if name in each.model_fields_set}
        for each in made
    ]
    return options or [dict(combination)]  # whose refusal has the reason


def _looked_at(
    options: Mapping[str, Any], *, kind: type[KernelParams], gpu: Target, keep: Callable[[Launch], Any] | None
) -> tuple[KernelParams, Any] | str:
    """One combination, resolved, with the result of ``keep``; or the reason of its refusal."""
    try:
        params, launch = kind.row.usual(kind(**options), gpu).planned(gpu)
        return params, None if keep is None else keep(launch)
    except GpusimError as error:
        return str(error)


def _refuse_what_is_no_value(
    kind: type[KernelParams], given: Mapping[str, Any], values: Mapping[str, Sequence[Any]]
) -> None:
    """Refuse a value that its option can never have: it is a typing error, not one refused configuration among others.

    Numbers of a range are not typed one by one. Numbers beyond a bound are therefore refused like other configurations.
    """
    firsts = {name: of_option[0] for name, of_option in values.items()}
    for name, of_option in values.items():
        is_range = isinstance(given[name], str) and ".." in given[name]
        for value in of_option if len(of_option) > 1 and not is_range else ():
            try:
                kind(**{**firsts, name: value})
            except KernelError as error:
                if str(error).startswith(f"--{name.replace('_', '-')} "):
                    raise


def _values(kind: type[KernelParams], given: Mapping[str, Any], gpu: Target) -> dict[str, tuple[Any, ...]]:
    names = kind.options()
    fixed = {
        name: value for name, value in given.items()
        if not isinstance(value, list | tuple) and not (isinstance(value, str) and SEVERAL.search(value))
    }
    chosen: dict[str, tuple[Any, ...]] = {}
    for name, value in given.items():
        if name not in names:
            raise KernelError(f"--{name.replace('_', '-')} is unknown; {nearest(name, names)}")
        if isinstance(value, str):
            chosen[name] = values_of(kind, name, value, fixed=fixed, gpu=gpu)
        else:
            chosen[name] = tuple(value) if isinstance(value, list | tuple) else (value,)
        if not chosen[name]:
            raise KernelError(f"--{name.replace('_', '-')} has no values, wants one or more")
    return chosen


def _note(refused: dict[str, list[str]], reason: str) -> None:
    """Record a reason. Reasons that differ only in numbers are counted together."""
    refused.setdefault(re.sub(r"\d[\dx]*", "N", reason.split("; use", maxsplit=1)[0]), []).append(reason)
