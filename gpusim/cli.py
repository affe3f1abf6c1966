"""The command line: predict, explain, gpus. Bad input costs one sentence and status 2.

Status 0 is success, 1 a mismatch, 2 bad input, 130 an interruption. Whatever is slow to import is imported by the
command that needs it. The options of a kernel are generated from its parameters' model, so a new kernel needs no edit
here.
"""

from __future__ import annotations

import inspect
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from gpusim.errors import ConfigError, GpusimError, KernelError, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails
    from rich.console import Console

    from gpusim.kernel_models import KernelModel
    from gpusim.machine.config import GpuSpec

OK, MISMATCH, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""What the process leaves with."""

CLOCKS = ("max", "single", "sustained")
L2_STATES = ("cold", "warm")
DATA = ("random", "zeros")


# ---------------------------------------------------------------------------------------------- the way in


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    command = get_command(app)
    try:
        status = command.main(args=arguments, prog_name="gpusim", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the reader has gone (`gpusim gpus | head`); typer and rich exit then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except TyperException as error:
        return _refuse(_usage_sentence(error))
    except GpusimError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}, wants a file that can be written")
    if status == INTERRUPTED:
        return _interrupted()
    return status if isinstance(status, int) else OK


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"gpusim: {' '.join(sentence.split())}\n")
    return BAD_INPUT


def _interrupted() -> int:
    sys.stderr.write("gpusim: interrupted, nothing more is written\n")
    return INTERRUPTED


def _usage_sentence(error: TyperException) -> str:
    """An error of the option parser, with the nearest right thing."""
    context: Any = getattr(error, "ctx", None)
    path = _where(context)
    option = getattr(error, "option_name", None)
    param: Any = getattr(error, "param", None)
    message = error.format_message().rstrip(".")
    if option is not None and "No such option" in message:
        options = [name for item in context.command.params for name in (*item.opts, *item.secondary_opts)]
        return f"{path}{option} is unknown; {_nearest_option(option, [*options, '--help'])}"
    if option is not None:
        what = "takes no value, leave it out" if "does not take" in message else "has no value, wants one"
        return f"{option} {what}"
    if message == "Missing command":
        group = context.command
        return f"{path}a {group.noun} is missing, known: {', '.join(group.list_commands(context))}"
    if param is not None and message.startswith("Missing"):
        return f"{path}{param.opts[0]} is missing, wants {param.metavar or 'a value'} ({param.help})"
    if param is not None:
        return f"{path}{param.opts[0]}: {error.message}"
    return f"{path}{message[0].lower()}{message[1:]}"


def _where(context: Any) -> str:
    """``predict gemm: `` for errors below a command, empty at the root."""
    words = context.command_path.split()[1:] if context is not None else []
    return f"{' '.join(words)}: " if words else ""


def _nearest_option(option: str, options: Iterable[str]) -> str:
    """A hint without a list of fifty."""
    hint = nearest(option, options)
    return hint if hint.startswith("did you") else "--help lists the options"


class Commands(TyperGroup):
    """A group that names the nearest command."""

    noun = "command"

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that ``args`` begin with."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            raise ConfigError(f"{_where(ctx)}{args[0]!r} is no {self.noun}; {nearest(args[0], known)}")
        return super().resolve_command(ctx, args)

class Root(Commands):
    """All commands, in the order in which one meets them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """``predict`` first."""
        names = super().list_commands(ctx)
        return [name for name in FIRST if name in names] + [name for name in names if name not in FIRST]


FIRST = ("predict", "explain", "gpus")

app = typer.Typer(
    name="gpusim", cls=Root, add_completion=False, rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
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


# ---------------------------------------------------------------------------------------------- what kernels share


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked of ``predict`` or ``explain``, checked before anything is simulated."""

    row: KernelModel
    params: BaseModel
    given: Mapping[str, Any]
    """Options of the kernel that were typed."""
    gpu_name: str
    gpu: GpuSpec
    clock: str | float
    l2: str
    data: str
    skips: bool
    num_sampled_sms: int | None
    json: Path | None
    trace: Path | None
    plot: Path | None

    @property
    def simulate_options(self) -> dict[str, Any]:
        """For :func:`gpusim.simulate.run.simulate`."""
        records = self.trace is not None or self.plot is not None
        return {
            "clock": self.clock, "l2": self.l2, "data": self.data, "skips": self.skips,
            "num_sampled_sms": self.num_sampled_sms, "recorded_sms": frozenset({0} if records else ()),
        }

    def command(self, verb: str, *more: str, **changes: Any) -> str:
        """The same request as a line to type, under another command."""
        from gpusim.report.words import flag

        words = ["gpusim", verb, self.row.name]
        for name, value in {**self.given, **changes}.items():
            if isinstance(value, bool):
                words.append(flag(name) if value else f"--no-{flag(name)[2:]}")
            else:
                words += [flag(name), str(value)]
        words += ["--gpu", self.gpu_name]
        clock = f"{self.clock:g}" if isinstance(self.clock, float) else self.clock
        for name, text, default in (("clock", clock, "single"), ("l2", self.l2, "cold"), ("data", self.data, "random")):
            words += [] if text == default else [f"--{name}", text]
        if not self.skips:
            words.append("--no-skip")
        if self.num_sampled_sms is not None:
            words += ["--sample-sms", str(self.num_sampled_sms)]
        return shlex.join([*words, *more])


def _common_parameters() -> list[inspect.Parameter]:
    """Options that all kernels have."""
    prediction, output = "Prediction", "Output"
    choices = " or ".join
    return [
        _parameter("gpu", str, typer.Option(
            "--gpu", help="a GPU's name (gpusim gpus lists them) or a TOML file", metavar="NAME|TOML",
            rich_help_panel=prediction), inspect.Parameter.empty),
        _parameter("clock", str, typer.Option(
            "--clock", help=f"SM clock: {', '.join(CLOCKS)} or a number of MHz", metavar="MODE|MHZ",
            rich_help_panel=prediction), "single"),
        _parameter("l2_state", str, typer.Option(
            "--l2", help=f"L2 before the launch: {choices(L2_STATES)}", metavar="|".join(L2_STATES),
            rich_help_panel=prediction), "cold"),
        _parameter("data", str, typer.Option(
            "--data", help=f"operands, for the power that they draw: {choices(DATA)}", metavar="|".join(DATA),
            rich_help_panel=prediction), "random"),
        _parameter("no_skip", bool, typer.Option(
            "--no-skip", help="simulate every iteration and wave", rich_help_panel=prediction), False),
        _parameter("sample_sms", int | None, typer.Option(
            "--sample-sms", help="simulate so many SMs instead of all, with what they share scaled (some ten times as "
            "quick, mostly within a few percent)", metavar="N", rich_help_panel=prediction), None),
        _parameter("json_path", str | None, typer.Option(
            "--json", help="write the result as JSON; - is stdout (tables then go to stderr)", metavar="FILE",
            rich_help_panel=output), None),
        _parameter("trace_path", str | None, typer.Option(
            "--trace", help="write a Perfetto trace of one SM, for ui.perfetto.dev", metavar="FILE.pftrace",
            rich_help_panel=output), None),
        _parameter("plot_path", str | None, typer.Option(
            "--plot", help="draw the pipeline of one SM", metavar="FILE.png|svg", rich_help_panel=output), None),
    ]


def _parameter(name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default
    )


def _request(row: KernelModel, values: Mapping[str, Any]) -> Request:
    """Check everything that can be checked without simulating."""
    names = {name: _option_name(name, item) for name, item in row.params.model_fields.items()}
    given = {names[name]: values[name] for name in names if values.get(name) is not None}
    outputs = {
        "--json": _output(values["json_path"], "--json"),
        "--trace": _output(values["trace_path"], "--trace", ".pftrace"),
        "--plot": _output(values["plot_path"], "--plot", ".png", ".svg"),
    }
    _refuse_same(outputs)
    return Request(
        row=row, params=_params(row, given), given=given, gpu_name=values["gpu"], gpu=_gpu(values["gpu"], "--gpu"),
        clock=_clock(values["clock"]), l2=_choice("--l2", values["l2_state"], L2_STATES),
        data=_choice("--data", values["data"], DATA), skips=not values["no_skip"],
        num_sampled_sms=_sample(values["sample_sms"]), json=outputs["--json"],
        trace=outputs["--trace"], plot=outputs["--plot"],
    )


def _choice(name: str, found: str, known: Sequence[str]) -> str:
    if found not in known:
        raise ConfigError(f"{name} {found!r} is unknown; {nearest(found, known)}")
    return found


def _clock(text: str) -> str | float:
    if text in CLOCKS:
        return text
    try:
        mhz = float(text)
    except ValueError:
        raise ConfigError(f"--clock {text!r} is no number of MHz and no mode; {nearest(text, CLOCKS)}") from None
    if not 1.0 <= mhz <= 1e5:
        raise ConfigError(f"--clock {text!r} wants a number of MHz from 1 to 100000, such as 1755")
    return mhz


def _sample(count: int | None) -> int | None:
    if count is not None and count < 1:
        raise ConfigError(f"--sample-sms {count} wants a number of SMs from 1 on, such as 16")
    return count


def _gpu(name: str, flag: str) -> GpuSpec:
    """A GPU by name or path; errors that concern its name carry the flag."""
    from gpusim.machine.config import gpu_names, load_gpu

    if name.endswith(".toml") and not Path(name).is_file():
        raise ConfigError(f"{flag} {name!r} is no file, wants a TOML file or one of {', '.join(gpu_names())}")
    try:
        return load_gpu(name)
    except ConfigError as error:
        raise ConfigError(f"{flag} {str(error).removeprefix('gpu: ')}") from None
    except OSError as error:
        raise ConfigError(f"{flag} {name!r} cannot be read: {error.strerror}, wants a readable TOML file") from None


def _output(text: str | None, flag: str, *suffixes: str) -> Path | None:
    from gpusim.report.output import check_output

    if text is None or (text == "-" and flag == "--json"):
        return None if text is None else Path("-")
    if not text or text.startswith("-"):
        raise ConfigError(f"{flag} {text!r} looks like an option, wants the name of a file")
    check_output(Path(text), flag=flag, suffixes=suffixes)
    return Path(text)


def _refuse_same(outputs: Mapping[str, Path | None]) -> None:
    taken: dict[Path, str] = {}
    for flag, path in outputs.items():
        if path is not None:
            other = taken.setdefault(path.resolve(), flag)
            if other != flag:
                raise ConfigError(f"{flag} {str(path)!r} is the file of {other}, too; wants another name")


# ---------------------------------------------------------------------------------------------- options from a model


def _option_name(name: str, item: FieldInfo) -> str:
    return item.alias or name


def _kernel_parameters(row: KernelModel) -> list[inspect.Parameter]:
    """One option a field of the parameters' model. All but flags are text here: the model checks them."""
    found = []
    for name, item in row.params.model_fields.items():
        option = f"--{_option_name(name, item).replace('_', '-')}"
        is_flag, choices = _shape(item.annotation)
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
        found.append(_parameter(name, (bool if is_flag else str) if item.is_required() else
                                (bool | None if is_flag else str | None), info, default))
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


def _params(row: KernelModel, given: Mapping[str, Any]) -> BaseModel:
    """The parameters' model.

    Raises:
        KernelError: the first thing that it refuses, as a sentence with the flag's name.
    """
    from pydantic import ValidationError

    typed: dict[str, Any] = dict(given)
    for name, item in row.params.model_fields.items():
        key = _option_name(name, item)
        for choice in _shape(item.annotation)[1]:  # choices that are no texts
            if key in typed and not isinstance(choice, str) and str(choice) == typed[key]:
                typed[key] = choice
    try:
        return row.params(**typed)
    except ValidationError as error:
        raise KernelError(_model_sentence(error.errors()[0])) from None


def _model_sentence(error: ErrorDetails) -> str:
    """What a model refused: flag, found, wanted, nearest."""
    place = [str(part) for part in error["loc"]]
    flag = f"--{place[0].rstrip('_').replace('_', '-')}" if place else "parameters"
    found, context = error["input"], error.get("ctx", {})
    kind = error["type"]
    if kind == "literal_error":
        choices = [choice.strip("'") for choice in str(context["expected"]).replace(" or ", ", ").split(", ")]
        hint = nearest(str(found), choices)
        rest = f" (known: {', '.join(choices)})" if hint.startswith("did you") else ""
        return f"{flag} {str(found)!r} is unknown; {hint}{rest}"
    if kind.startswith(("int_", "float_")):
        return f"{flag} is {found!r}, wants a {'whole ' if kind.startswith('int_') else ''}number"
    if kind == "finite_number":
        return f"{flag} is {found!r}, wants a finite number"
    bounds = {"greater_than_equal": ("ge", "{} or more"), "greater_than": ("gt", "more than {}"),
              "less_than_equal": ("le", "at most {}"), "less_than": ("lt", "less than {}")}
    if kind in bounds:
        key, text = bounds[kind]
        return f"{flag} is {found}, wants {text.format(context[key])}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if message.startswith(("is ", "wants ", "has ")):
        return f"{flag} {message}"
    if message.startswith("--") or not place:
        return message
    return f"{flag} is {found!r}: {message[0].lower()}{message[1:]}"


# ---------------------------------------------------------------------------------------------- predict, explain


class Kernels(Commands):
    """A command a row of KERNEL_MODELS; they are imported when one is asked for."""

    noun = "kernel"

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all kernels."""
        from gpusim.kernel_models import KERNEL_MODELS

        return list(KERNEL_MODELS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """``predict`` or ``explain`` for one kernel."""
        from gpusim.kernel_models import KERNEL_MODELS

        row = KERNEL_MODELS.get(cmd_name)
        return None if row is None else _kernel_command(row, ACTIONS[ctx.info_name])


def _kernel_command(row: KernelModel, action: Callable[[Request], None]) -> Any:
    def command(**values: Any) -> None:
        action(_request(row, values))

    own = _kernel_parameters(row)
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # typer reads options from it
        [*own, *_common_parameters()]
    )
    single = typer.Typer(add_completion=False, rich_markup_mode="rich",
                         context_settings={"help_option_names": ["-h", "--help"]})
    single.command(name=row.name, help=row.summary)(command)
    return get_command(single)


def _predict(request: Request) -> None:
    from gpusim.report.tables import render_prediction
    from gpusim.simulate.run import simulate

    params: Any = request.params
    resolved = params.resolved(request.gpu)
    launch = resolved.launch(request.gpu)
    with _status(f"simulating {request.row.name} on {request.gpu.name}"):
        result = simulate(launch, request.gpu, **request.simulate_options)
    _write_outputs(request, result)
    if request.json is not None:
        _write_json(result.as_dict(), request.json)
    options = resolved.as_options()
    defaults = [name for name in options if name not in request.given]
    render_prediction(result, _console(request.json), options, defaults, next_command=request.command("explain"))


def _explain(request: Request) -> None:
    from gpusim.report.explain import explain, render_explanation

    params: Any = request.params
    resolved = params.resolved(request.gpu)

    def build(more_stages: int) -> Any:
        if not more_stages:
            return resolved.launch(request.gpu)
        stages = getattr(resolved, "stages", None)
        if stages is None:
            return None
        return resolved.model_copy(update={"stages": stages + more_stages}).launch(request.gpu)

    with _status(f"simulating {request.row.name} on {request.gpu.name}") as status:

        def tell(title: str) -> None:
            if status is not None:
                status.update(f"simulating {request.row.name} on {request.gpu.name}: {title}")

        explanation = explain(build, request.gpu, progress=tell, **request.simulate_options)
    _write_outputs(request, explanation.result)
    if request.json is not None:
        _write_json(explanation.as_dict(), request.json)
    best = explanation.best
    if best is not None and best.name == "stage":
        following = request.command("predict", stages=resolved.stages + 1)
    else:
        following = request.command("predict", "--plot", f"{request.row.name}.png")
    render_explanation(explanation, _console(request.json), next_command=following)


ACTIONS: Mapping[str | None, Callable[[Request], None]] = {"predict": _predict, "explain": _explain}
"""What each command does with a kernel."""


for _verb, _summary in (
    ("predict", "Predict time, cycles, throughput and what bounds a kernel."),
    ("explain", "Say what each fix would buy: simulate again with one thing made free at a time."),
):
    app.add_typer(typer.Typer(cls=Kernels, help=_summary, rich_markup_mode="rich"), name=_verb)


def _write_outputs(request: Request, result: Any) -> None:
    chatter = _console(Path("-"))
    if request.trace is not None:
        from gpusim.report.perfetto import write_pftrace

        write_pftrace(result, request.trace)
        chatter.print(f"Trace: {request.trace} (open it at https://ui.perfetto.dev)", highlight=False, soft_wrap=True)
    if request.plot is not None:
        from gpusim.report.plots import plot_timeline

        plot_timeline(result, request.plot)
        chatter.print(f"Plot: {request.plot}", highlight=False, soft_wrap=True)


def _write_json(document: Any, path: Path) -> None:
    import json

    from gpusim.report.output import write_whole

    text = json.dumps(_finite(document), indent=2, allow_nan=False) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        write_whole(path, text.encode())


def _finite(value: Any) -> Any:
    """``value`` as JSON can hold it: numpy's numbers as Python's, infinity and NaN as null, anything else as text."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _console(json_path: Path | None) -> Console:
    """Where tables go: stdout, or stderr when stdout is the JSON document's."""
    from rich.console import Console

    return Console(stderr=json_path is not None and str(json_path) == "-")


def _status(text: str) -> AbstractContextManager[Any]:
    """A spinner on stderr while one waits; nothing where that is no terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(text) if console.is_terminal else nullcontext()


# ---------------------------------------------------------------------------------------------- gpus


@app.command("gpus")
def _gpus(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[A [B]]", help="none lists all, one shows it, two compares them")
    ] = None,
    json_path: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="write the table as JSON; - is stdout")
    ] = None,
) -> None:
    """List the GPUs, show one with the source of every number, or compare two."""
    from gpusim.machine.config import gpu_names
    from gpusim.report import tables

    names = names or []
    if len(names) > 2:
        raise ConfigError(f"gpus: {len(names)} names are given, wants none, one or two")
    output = _output(json_path, "--json")
    gpus = [_gpu(name, "gpus:") for name in names or gpu_names()]
    console = _console(output)
    document: Any
    if not names:
        document = [tables.gpu_row(gpu) for gpu in gpus]
    elif len(names) == 1:
        document = tables.gpu_document(gpus[0])
    else:
        document = tables.compare_gpus(gpus[0], gpus[1])
    if output is not None:
        _write_json(document, output)
    if not names:
        tables.render_gpus_list(gpus, console)
    elif len(names) == 1:
        tables.render_gpu(gpus[0], console)
    else:
        tables.render_gpu_comparison(gpus[0], gpus[1], console)


if __name__ == "__main__":
    raise SystemExit(main())
