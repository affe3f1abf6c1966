"""Command line of gpusim. Bad input gives a one-sentence error and exit status 2.

Status 0 is success, 1 a mismatch, 2 bad input, 3 nothing to compare (``check``). Status 70 is a fault of gpusim itself, 130
an interruption, 141 a closed pipe (``gpusim gpus | head``), 143 an end from outside. Slow imports are in the commands that
need them. A new command is a new module here and one row in ``COMMANDS``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException
from typer.main import get_command

from gpusim.cli.advise import ADVISE
from gpusim.cli.banks import BanksCommand, banks_command
from gpusim.cli.check import CheckCommand, check_command
from gpusim.cli.coalesce import coalesce_command
from gpusim.cli.evidence import calibrate_command
from gpusim.cli.explore import explore_command
from gpusim.cli.gpus import gpus_command
from gpusim.cli.kernels import EXPLAIN, PREDICT
from gpusim.cli.layout import layout_command
from gpusim.cli.lint import lint_command
from gpusim.cli.measure import measure_command
from gpusim.cli.options import BAD_INPUT, CLOSED_PIPE, OK, Commands, PartOfResult, where
from gpusim.cli.raster import RASTER
from gpusim.cli.sass import sass_command
from gpusim.cli.sweep import SWEEP
from gpusim.cli.tiles import TILES
from gpusim.cli.validate import validate_command
from gpusim.errors import INTERRUPTED, GpusimError, fault, nearest, say

COMMANDS: tuple[tuple[str, typer.Typer | Callable[..., None]], ...] = (
    ("predict", PREDICT),
    ("explain", EXPLAIN),
    ("advise", ADVISE),
    ("sweep", SWEEP),
    ("banks", banks_command),
    ("coalesce", coalesce_command),
    ("layout", layout_command),
    ("tiles", TILES),
    ("raster", RASTER),
    ("lint", lint_command),
    ("explore", explore_command),
    ("measure", measure_command),
    ("calibrate", calibrate_command),
    ("validate", validate_command),
    ("check", check_command),
    ("sass", sass_command),
    ("gpus", gpus_command),
)
"""Commands by name, each a group or a function, in the order of the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    try:
        status = _all_commands().main(args=arguments, prog_name="gpusim", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        if not any(isinstance(each, BrokenPipeError) for each in (error, error.__context__)):  # typer and rich exit then
            return _refuse("Python code of the user's calls sys.exit(), wants code that returns or raises an exception")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except TyperException as error:
        return _refuse(_usage_sentence(error, sys.argv[1:] if arguments is None else arguments))
    except PartOfResult as part:
        say(str(part))
        return INTERRUPTED
    except GpusimError as error:
        return _refuse(str(error))
    except OSError as error:
        wanted = "is there" if isinstance(error, FileNotFoundError) else "can be read or written"
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}, wants a file that {wanted}")
    except Exception as error:  # noqa: BLE001  # nobody is to see a traceback, or take a fault for a mismatch
        return fault(error)
    if status == INTERRUPTED:  # what typer makes of KeyboardInterrupt
        return _interrupted()
    return status if isinstance(status, int) else OK


@cache
def _all_commands() -> Any:
    """The group of all commands; its options are read once a process."""
    return get_command(app)


def _refuse(sentence: str) -> int:
    say(sentence)
    return BAD_INPUT


def _interrupted() -> int:
    say("interrupted, nothing more is written")
    return INTERRUPTED


def _usage_sentence(error: TyperException, typed: Sequence[str]) -> str:
    """Error of the option parser, with a suggestion."""
    context: Any = getattr(error, "ctx", None)
    path = where(context)
    option: Any = getattr(error, "option_name", None)
    param: Any = getattr(error, "param", None)
    if option is not None and hasattr(error, "possibilities"):  # no such option
        options = [name for item in context.command.params for name in (*item.opts, *item.secondary_opts)]
        if getattr(context.command, "noun", "").startswith("kernel"):
            return f"{path}{option} stands before a kernel, wants it behind: {context.command_path} KERNEL {option} ..."
        return f"{path}{option} is unknown; {_nearest_option(option, [*options, '--help'])}"
    if option is not None:
        has_value = any(word.startswith(f"{option}=") for word in typed)
        return f"{option} {'takes no value, leave it out' if has_value else 'has no value, wants one'}"
    if param is None and hasattr(getattr(context, "command", None), "list_commands"):
        group = context.command
        return f"{path}a {group.noun} is missing, known: {', '.join(group.list_commands(context))}"
    if param is not None and hasattr(error, "param_type"):  # a missing parameter
        if param.param_type_name == "argument":
            return f"{path}{param.metavar} is missing, wants {param.help}"
        return f"{path}{param.opts[0]} is missing, wants {param.metavar or 'a value'} ({param.help})"
    if param is not None:
        return _value_sentence(path, param, error)
    message = error.format_message().rstrip(".")
    return f"{path}{message[:1].lower()}{message[1:]}"


def _value_sentence(path: str, param: Any, error: TyperException) -> str:
    """Error of an option whose value pydantic refuses; its kind tells what is wanted."""
    refusals: Any = getattr(error.__cause__, "errors", list)()
    kind, limits = (refusals[0]["type"], refusals[0].get("ctx", {})) if refusals else ("", {})
    if kind.startswith(("int_", "float_")):
        wanted = "a whole number" if kind.startswith("int_") else "a number"
        return f"{param.opts[0]} wants {wanted}{f' ({param.help})' if param.help else ''}"
    for limit, words in (("ge", "or more"), ("le", "or less")):
        if limit in limits:
            return f"{path}{param.opts[0]} wants {limits[limit]} {words}"
    return f"{path}{param.opts[0]}: {error.message}"


def _nearest_option(option: str, options: Iterable[str]) -> str:
    """Suggestion of an option, without a long list."""
    hint = nearest(option, options)
    return hint if hint.startswith("did you") else "--help lists the options"


class Root(Commands):
    """Group of all commands, in the order of ``COMMANDS``."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands."""
        return [name for name, _ in COMMANDS]


app = typer.Typer(
    name="gpusim", cls=Root, add_completion=False, rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """How fast a GPU kernel will be, and why, before it is written.

    Start with: gpusim predict gemm --m 4096 --n 4096 --k 4096 --gpu h200_sxm
    """
    if version:
        typer.echo(f"gpusim {_version()}")
        raise typer.Exit(OK)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("gpusim")
    except PackageNotFoundError:
        return "0 (not installed)"


OF_THEIR_OWN: dict[Any, type[TyperCommand]] = {banks_command: BanksCommand, check_command: CheckCommand}
"""Commands whose help or options are created on demand."""

for _name, _command in COMMANDS:
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name, cls=OF_THEIR_OWN.get(_command))(_command)
