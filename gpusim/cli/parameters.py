"""Options of a kernel, made from its parameters' model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from gpusim.errors import KernelError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from gpusim.kernel_models import KernelModel


def parameter(name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
    """One option of a command that is made at run time, as typer reads it from a signature."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default
    )


def option_name(name: str, item: FieldInfo) -> str:
    """What a field is called on the command line."""
    return item.alias or name


def kernel_parameters(row: KernelModel, *, takes_lists: bool = False) -> list[inspect.Parameter]:
    """One option a field of the parameters' model. All but flags are text here: the model checks them.

    With ``takes_lists`` flags are text, too: on, off, or both.
    """
    found = []
    for name, item in row.params.model_fields.items():
        option = f"--{option_name(name, item).replace('_', '-')}"
        is_flag, choices = _shape(item.annotation)
        if takes_lists and is_flag:
            is_flag, choices = False, ("on", "off")
        description = item.description or name
        description += f": {', '.join(str(choice) for choice in choices)}" if choices else ""
        default: Any = inspect.Parameter.empty if item.is_required() else None
        if not item.is_required() and "by default" not in description:
            description += f" [default: {_default_text(item.default)}]"
        declaration = f"{option}/--no-{option[2:]}" if is_flag else option
        metavar = None if is_flag else "CHOICE" if choices else _metavar(item.annotation)
        info = typer.Option(
            declaration, help=description.replace("[", r"\["), metavar=metavar, show_default=False,
            rich_help_panel=f"Kernel: {row.name}",
        )
        kind: Any = bool if is_flag else str
        found.append(parameter(name, kind if item.is_required() else kind | None, info, default))
    return found


def _shape(annotation: Any) -> tuple[bool, tuple[Any, ...]]:
    """(is a flag, choices) of a field's type, None aside."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        rest = [member for member in get_args(annotation) if member is not NoneType]
        shapes = [_shape(member) for member in rest]
        choices = tuple(choice for _, of_member in shapes for choice in of_member)
        return all(flag for flag, _ in shapes), choices
    if get_origin(annotation) is Literal:
        return False, get_args(annotation)
    return annotation is bool, ()


def _metavar(annotation: Any) -> str:
    text = str(annotation)
    for word, metavar in (("tuple[int, int, int]", "NxNxN"), ("tuple[int, int]", "NxN"), ("int", "N"), ("float", "X")):
        if word in text:
            return metavar
    return "TEXT"


def _default_text(default: Any) -> str:
    """A default as it would be typed; ``auto`` for one that the model chooses."""
    if default is None:
        return "chosen for the GPU and the tile"
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        return "x".join(str(part) for part in default)
    return str(default)


def checked_params(row: KernelModel, given: Mapping[str, Any]) -> BaseModel:
    """The parameters' model.

    Raises:
        KernelError: the first thing that it refuses, as a sentence with the flag's name.
    """
    typed: dict[str, Any] = dict(given)
    for name, item in row.params.model_fields.items():
        key = option_name(name, item)
        for choice in _shape(item.annotation)[1]:  # choices that are no texts
            if key in typed and not isinstance(choice, str) and str(choice) == typed[key]:
                typed[key] = choice
    try:
        return row.params(**typed)
    except KernelError as error:
        from gpusim.kernel_models.sweep_values import SEVERAL

        for key, value in given.items():
            if isinstance(value, str) and SEVERAL.search(value) and str(error).startswith(f"--{key.replace('_', '-')} "):
                raise KernelError(f"{error}; several values, ranges and auto are for gpusim sweep") from None
        raise
