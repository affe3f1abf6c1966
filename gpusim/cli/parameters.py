"""Command-line options of a kernel, created from the fields of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer

from gpusim.errors import KernelError

if TYPE_CHECKING:
    from gpusim.kernel_models import KernelModel
    from gpusim.kernel_models.options import KernelParams

CHOSEN = "by GPU and tile"


def parameter(name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
    """Option of a command that is created at run time, as a signature parameter for typer."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default
    )


def kernel_parameters(row: KernelModel, *, takes_lists: bool = False) -> list[inspect.Parameter]:
    """Options for the fields of the parameters' model. All but flags are text here; the model validates them.

    With ``takes_lists`` flags are text, too: on, off, or both.
    """
    from gpusim.kernel_models.options import COMPILER_OUTPUT
    from gpusim.kernel_models.spelling import choices_of

    found = []
    for option, name in row.params.options().items():
        item, panel = row.params.model_fields[name], row.params.panel_of(option)
        flag = f"--{option.replace('_', '-')}"
        is_flag, choices = _is_flag(item.annotation), choices_of(item.annotation)
        if takes_lists and is_flag:
            is_flag, choices = False, ("on", "off")
        declaration = f"{flag}/--no-{flag[2:]}" if is_flag else flag
        info = typer.Option(
            declaration, help=help_text(row.params, option, choices).replace("[", r"\["), show_default=False,
            metavar=None if is_flag else "WORD" if choices else _metavar(item.annotation),
            rich_help_panel=panel, hidden=panel == COMPILER_OUTPUT,
        )
        kind: Any = bool if is_flag else str
        default: Any = inspect.Parameter.empty if item.is_required() else None
        found.append(parameter(name, kind if item.is_required() else kind | None, info, default))
    return found


def help_text(kind: type[KernelParams], option: str, choices: tuple[Any, ...]) -> str:
    """Help of an option: description, values, requirements and default.

    >>> from gpusim.kernel_models.gemm import GemmParams
    >>> help_text(GemmParams, "consumer_split", ("m", "n"))
    'Tile dimension that the consumer warpgroups divide: m or n. Needs --math wgmma, --schedule multistage or \
warp_specialized or cooperative. [default: by GPU and tile]'
    """
    item = kind.model_fields[kind.options()[option]]
    text = item.description or option
    if choices:
        words = [str(choice) for choice in choices]
        listed = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
        text += f". Values: {listed}" if ". " in text else f": {listed}"
    for values, needs in kind.applies_when(option).items():
        text += f". {values} needs {needs}" if values else f". Needs {needs}"
    if item.is_required():
        return text
    if "by default" in text.lower():
        return f"{text}."
    return f"{text}. [default: {_default_text(item.default)}]"


def _is_flag(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return all(member in (bool, NoneType) for member in get_args(annotation))
    return annotation is bool


def _metavar(annotation: Any) -> str:
    text = str(annotation)
    for word, metavar in (("tuple[int, int, int]", "NxNxN"), ("tuple[int, int]", "NxN"), ("int", "N"), ("float", "X")):
        if word in text:
            return metavar
    return "TEXT"


def _default_text(default: Any) -> str:
    """Text of a default as typed; words where the model chooses it."""
    if default is None:
        return CHOSEN
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        return "x".join(str(part) for part in default)
    return f"{default:g}" if isinstance(default, float) else str(default)


def given_options(row: KernelModel, values: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the kernel that were typed, with today's names."""
    return row.params.in_our_words({
        option: values[name] for option, name in row.params.options().items() if values.get(name) is not None
    })


def checked_params(row: KernelModel, given: Mapping[str, Any]) -> KernelParams:
    """Validated parameters of the kernel.

    Raises:
        KernelError: an option is refused; the text has the first one with its flag.
    """
    try:
        return row.params(**given)
    except KernelError as error:
        from gpusim.kernel_models.sweep_values import SEVERAL

        for key, value in given.items():
            if isinstance(value, str) and SEVERAL.search(value) and str(error).startswith(f"--{key.replace('_', '-')} "):
                raise KernelError(f"{error}; several values, ranges and auto are for gpusim sweep") from None
        raise
