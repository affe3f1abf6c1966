"""Command-line options of a kernel, created from the fields of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer

from gpusim.cli.options import GPU_HELP, check_choice, output_path, refuse_same
from gpusim.errors import ConfigError, KernelError, nearest

if TYPE_CHECKING:
    from gpusim.kernel_models import KernelModel
    from gpusim.kernel_models.options import KernelParams

CHOSEN = "chosen for GPU and tile"

REQUIRED: Any = inspect.Parameter.empty

CLOCKS = ("max", "single", "sustained")
L2_STATES = ("cold", "warm", "stored", "flushed")
DATA = ("random", "zeros")

SASS_HELP = (
    "Cubin or executable whose SASS has the compiled code of the kernel, with its registers, instead of --compiled-code."
)

SUFFIXES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "--json": (), "--csv": (".csv",), "--trace": (".pftrace",), "--junit": (".xml",),
    "--latex": (".tex",),
})
"""Suffixes of the files of each output; other outputs are pictures."""

PICTURE_SUFFIXES = (".png", ".svg")


def parameter(name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
    """Option of a command that is created at run time, as a signature parameter for typer."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default)


def option(name: str, text: str, kind: Any = str, default: Any = None, *, flag: str = "", **look: Any) -> inspect.Parameter:
    """Option of a command with its help; by default its flag is the name without ``_path`` and ``_state``.

    ``look``: metavar and panel of the help, and limits of the value.
    """
    flag = flag or f"--{name.removesuffix('_path').removesuffix('_state').replace('_', '-')}"
    shown = typer.Option(flag, help=text, rich_help_panel=look.pop("panel", None), **look)
    return parameter(name, kind | None if default is None else kind, shown, default)


def gpu_option(panel: str) -> inspect.Parameter:
    """``--gpu``."""
    return option("gpu", GPU_HELP, default=REQUIRED, metavar="NAME|TOML", panel=panel)


def simulation_options(panel: str) -> list[inspect.Parameter]:
    """``--gpu`` and the options of :func:`simulation_settings`."""
    return [
        gpu_option(panel),
        option("clock", "SM clock: max, single (one launch, over before the power limit takes full effect), sustained (0.5 "
               "s back to back, under the limit), or MHz.", default="single", metavar="MODE|MHZ", panel=panel),
        option("l2_state", "L2 before the launch: cold (empty), warm (holds what fits of the operands), stored (the launch "
               "before stored the operands), or flushed as by Nsight Compute. flushed empties the instruction cache, too, "
               "which counts where the code's layout is known (--compiled-code).", default="cold",
               metavar="|".join(L2_STATES), panel=panel),
        option("data", f"Values of the operands, for the power that they draw: {' or '.join(DATA)}.", default="random",
               metavar="|".join(DATA), panel=panel),
    ]  # fmt: skip


def simulation_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Clock, state of L2 and data as :func:`gpusim.simulate.run.simulate` takes them.

    Raises:
        ConfigError: a value is unknown.
    """
    return {
        "clock": parse_clock(values["clock"]), "l2": check_choice("--l2", values["l2_state"], L2_STATES),
        "data": check_choice("--data", values["data"], DATA),
    }


def parse_clock(text: str) -> str | float:
    """Clock mode, or MHz.

    Raises:
        ConfigError: the text is neither.
    """
    if text in CLOCKS:
        return text
    try:
        mhz = float(text)
    except ValueError:
        raise ConfigError(f"--clock {text!r} is no number of MHz and no mode; {nearest(text, CLOCKS)}") from None
    if not 1.0 <= mhz <= 1e5:
        raise ConfigError(f"--clock {text!r} wants a number of MHz from 1 to 100000, for example 1755")
    return mhz


def json_option(text: str) -> inspect.Parameter:
    """``--json``."""
    return option("json_path", f"{text} - is stdout, tables then go to stderr.", metavar="FILE", panel="Output")


def plot_option(text: str, name: str = "plot") -> inspect.Parameter:
    """``--plot``, or the option of another picture."""
    return option(f"{name}_path", text, metavar="FILE.png|svg", panel="Output")


def output_paths(
    values: Mapping[str, Any], inputs: Mapping[str, str | None] = MappingProxyType({})
) -> dict[str, Path | None]:
    """Path of each output by its flag, from values whose names end in ``_path``; ``inputs``: files that are read, by flag.

    Raises:
        GpusimError: a file cannot be written, or two of them are one file.
    """
    flags = {f"--{name.removesuffix('_path')}": text for name, text in values.items() if name.endswith("_path")}
    paths = {flag: output_path(text, flag, *SUFFIXES.get(flag, PICTURE_SUFFIXES)) for flag, text in flags.items()}
    refuse_same(paths, inputs)
    return paths


def kernel_parameters(row: KernelModel, *, takes_lists: bool = False) -> list[inspect.Parameter]:
    """Options for the fields of the parameters' model. All but flags are text here; the model validates them.

    With ``takes_lists`` flags are text, too: on, off, or both.
    """
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
            rich_help_panel=panel,
        )
        kind: Any = bool if is_flag else str
        default: Any = inspect.Parameter.empty if item.is_required() else None
        found.append(parameter(name, kind if item.is_required() else kind | None, info, default))
        if option == "compiled_code":
            found.append(parameter("sass", str | None, typer.Option("--sass", metavar="FILE[:ENTRY]", help=SASS_HELP,
                                                                    show_default=False, rich_help_panel=panel), None))
    return found


def help_text(kind: type[KernelParams], option: str, choices: tuple[Any, ...]) -> str:
    """Help of an option: description, values, requirements and default.

    >>> from gpusim.kernel_models.gemm import GemmParams
    >>> help_text(GemmParams, "consumer_split", ("m", "n"))
    'Tile dimension that the consumer warpgroups divide: m or n. Needs --math wgmma, --schedule multistage or \
warp_specialized or cooperative. [default: chosen for GPU and tile]'
    """
    from gpusim.kernel_models.applicability import typed

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
    if isinstance(item.default, bool) and not choices:
        return f"{text}. [default: {typed(option, item.default)}]"
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
    """Options of the kernel that were typed, with today's names. Compiled code is read from the file of ``--sass``.

    Raises:
        ConfigError: compiled code is given twice, or cannot be read.
    """
    given = row.params.in_our_words({
        option: values[name] for option, name in row.params.options().items() if values.get(name) is not None
    })
    if values.get("sass") is not None:
        if "compiled_code" in given:
            raise ConfigError("--sass and --compiled-code both give the compiled code; leave one out")
        from gpusim.evidence.toolchain.compiled_code import code_in_file

        given["compiled_code"] = code_in_file(values["sass"], epilogue=given.get("epilogue", "direct"))
    return given


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
