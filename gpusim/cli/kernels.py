"""``predict`` and ``explain``: one command per kernel model. A new kernel needs no change here."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.main import get_command

from gpusim.cli.command import CommandLine
from gpusim.cli.kernel_command import command_of
from gpusim.cli.options import (
    GPU_HELP,
    Commands,
    check_choice,
    console_for,
    find_gpu,
    name_of,
    output_path,
    refuse_same,
    spinner,
    write_json,
)
from gpusim.cli.parameters import checked_params, given_options, kernel_parameters, parameter
from gpusim.errors import ConfigError, GpusimError, KernelError, LaunchError, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel

    from gpusim.kernel_models import KernelModel
    from gpusim.machine.config import GpuSpec
    from gpusim.report.plots.picture import Picture

CLOCKS = ("max", "single", "sustained")
L2_STATES = ("cold", "warm", "flushed")
L2_HELP = (
    "L2 before the launch: cold, warm, or flushed as by Nsight Compute. flushed empties the instruction cache, too, which "
    "counts where code addresses are given (--producer-code-begin)."
)
DATA = ("random", "zeros")
ENGINES = ("native", "reference")
ENGINE_HELP = (
    "Simulator: native is the compiled engine. reference is the core of the model in simpy, for a GPU that has no more, or "
    "with --core-only."
)

PICTURES: Mapping[str, str] = {
    "plot": "Draw the pipeline of one SM over time.",
    "ring": "Draw the pipeline stages of one CTA over time: filling, full, being read.",
    "roofline": "Draw the kernel on the GPU's roofline.",
    "occupancy": "Draw what limits the resident CTAs of an SM.",
    "waterfall": "Draw the cycles that each fix would save.",
}
"""Options that draw a picture, each into a separate file, with their help."""

OF_EXPLAIN = ("waterfall",)
"""Pictures of ``explain`` only."""

OF_TIMELINE = ("plot", "ring")
"""Pictures that need a timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Checked arguments of ``predict`` or ``explain``."""

    row: KernelModel
    params: BaseModel
    given: Mapping[str, Any]
    """Options of the kernel that were typed."""
    gpu_name: str
    gpu: GpuSpec
    clock: str | float
    l2: str
    data: str
    engine: str
    core_only: bool
    max_events: int | None
    """Most events; None: the default of :func:`gpusim.simulate.run.simulate`."""
    json: Path | None
    trace: Path | None
    pictures: Mapping[str, Path]
    """Path of each requested picture of PICTURES."""
    window: tuple[float, float] | None
    """First and last cycle of pictures over time; None: the pictures choose."""
    shows_all: bool
    """Whether everything is printed instead of one screen."""

    @property
    def simulate_options(self) -> dict[str, Any]:
        """Arguments for :func:`gpusim.simulate.run.simulate`."""
        records = self.trace is not None or any(name in self.pictures for name in OF_TIMELINE)
        limits = {} if self.max_events is None else {"max_events": self.max_events}
        return {
            "clock": self.clock, "l2": self.l2, "data": self.data, "engine": self.engine, "core_only": self.core_only,
            "recorded_sms": "first" if records else frozenset(), **limits,
        }

    @property
    def line(self) -> CommandLine:
        """Command line of the kernel and its options, for use with other commands."""
        return CommandLine(
            kernel=self.row.name, given=self.given, gpu_name=self.gpu_name, clock=self.clock, l2=self.l2, data=self.data,
            engine=self.engine, core_only=self.core_only, max_events=self.max_events,
        )


def _common_parameters(names: Sequence[str], *, has_screen: bool) -> list[inspect.Parameter]:
    """Options that all kernels have. ``names``: keys of PICTURES; ``has_screen``: whether there is ``--all``."""
    prediction, output = "Simulation", "Output"
    choices = " or ".join
    return [
        parameter("gpu", str, typer.Option(
            "--gpu", help=GPU_HELP, metavar="NAME|TOML",
            rich_help_panel=prediction), inspect.Parameter.empty),
        parameter("clock", str, typer.Option(
            "--clock", help="SM clock: max, single (one launch, over before the power limit takes full effect), sustained "
            "(0.5 s back to back, under the limit), or MHz.", metavar="MODE|MHZ",
            rich_help_panel=prediction), "single"),
        parameter("l2_state", str, typer.Option(
            "--l2", help=L2_HELP, metavar="|".join(L2_STATES),
            rich_help_panel=prediction), "cold"),
        parameter("data", str, typer.Option(
            "--data", help=f"Values of the operands, for the power that they draw: {choices(DATA)}.", metavar="|".join(DATA),
            rich_help_panel=prediction), "random"),
        parameter("engine", str, typer.Option(
            "--engine", help=ENGINE_HELP, metavar="|".join(ENGINES), rich_help_panel=prediction), "native"),
        parameter("core_only", bool, typer.Option(
            "--core-only", help="Switch off what the GPU has beyond the model's core. A remark lists it.",
            rich_help_panel=prediction), False),
        parameter("max_events", int | None, typer.Option(
            "--max-events", min=1, metavar="N", help="Stop with an error after N events (about 0.6 us each).",
            rich_help_panel=prediction), None),
        *([parameter("shows_all", bool, typer.Option(
            "--all", help="Print everything: counters, warp states, options, sources and remarks.",
            rich_help_panel=output), False)] if has_screen else []),
        parameter("json_path", str | None, typer.Option(
            "--json", help="Write the result as JSON. - is stdout, tables then go to stderr.", metavar="FILE",
            rich_help_panel=output), None),
        parameter("trace_path", str | None, typer.Option(
            "--trace", help="Write a Perfetto trace of one SM, for ui.perfetto.dev.", metavar="FILE.pftrace",
            rich_help_panel=output), None),
        *(
            parameter(f"{name}_path", str | None, typer.Option(
                f"--{name}", help=PICTURES[name], metavar="FILE.png|svg", rich_help_panel=output), None)
            for name in names
        ),
        parameter("window", str | None, typer.Option(
            "--window", help="first and last cycle of --plot and --ring; by default --plot shows a steady part of the run, "
            "--ring its beginning", metavar="A,B", rich_help_panel=output), None),
    ]  # fmt: skip


def _request(row: KernelModel, values: Mapping[str, Any]) -> Request:
    """Check all that can be checked without a simulation."""
    given = given_options(row, values)
    outputs = {
        "--json": output_path(values["json_path"], "--json"),
        "--trace": output_path(values["trace_path"], "--trace", ".pftrace"),
        **{
            f"--{name}": output_path(values[f"{name}_path"], f"--{name}", ".png", ".svg")
            for name in PICTURES if f"{name}_path" in values
        },
    }  # fmt: skip
    refuse_same(outputs)
    window = parse_window(values["window"])
    if window is not None and not any(outputs[f"--{name}"] for name in OF_TIMELINE):
        raise ConfigError("--window is of pictures over time, and none is drawn; add --plot FILE or --ring FILE")
    gpu = find_gpu(values["gpu"], "--gpu")
    return Request(
        row=row, params=checked_params(row, given), given=given,
        gpu_name=name_of(values["gpu"], gpu), gpu=gpu,
        clock=parse_clock(values["clock"]), l2=check_choice("--l2", values["l2_state"], L2_STATES),
        data=check_choice("--data", values["data"], DATA), engine=check_choice("--engine", values["engine"], ENGINES),
        core_only=values["core_only"], max_events=values["max_events"], json=outputs["--json"], trace=outputs["--trace"],
        pictures={name: path for name in PICTURES if (path := outputs.get(f"--{name}")) is not None}, window=window,
        shows_all=values.get("shows_all", False),
    )


def _advised(refusal: str, row: KernelModel, values: Mapping[str, Any]) -> str:
    """Refusal of the kernel or its launch, with all options that its advice needs."""
    from gpusim.report.advice import advice_at_the_door

    given = given_options(row, values)
    try:
        gpu = find_gpu(values["gpu"], "--gpu")
    except GpusimError:
        return refusal
    return advice_at_the_door(refusal, lambda change: checked_params(row, {**given, **change}), gpu)


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
        raise ConfigError(f"--clock {text!r} wants a number of MHz from 1 to 100000, such as 1755")
    return mhz


def parse_window(text: str | None) -> tuple[float, float] | None:
    """First and last cycle of a picture.

    >>> parse_window("120e3, 140000")
    (120000.0, 140000.0)

    Raises:
        ConfigError: the text is not two numbers, the first from 0 on and the second larger.
    """
    if text is None:
        return None
    try:
        start, end = (float(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(f"--window {text!r} wants two numbers of cycles, for example 120000,140000") from None
    if not 0.0 <= start < end < inf:
        raise ConfigError(f"--window {text!r} wants a first cycle from 0 on and a later last one, for example 120000,140000")
    return start, end


class Kernels(Commands):
    """One command per row of KERNEL_MODELS; the models are imported when a command is used."""

    noun = "kernel"

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all kernels."""
        from gpusim.kernel_models import KERNEL_MODELS

        return list(KERNEL_MODELS)

    def hint(self, name: str, known: Sequence[str]) -> str:
        """Hint at the kernel that is meant, which may have further names."""
        from gpusim.kernel_models import KERNEL_MODELS

        called = [row.name for row in KERNEL_MODELS.values() if name.lower().replace("-", "_") in row.also]
        return f"did you mean {called[0]!r}?" if called else super().hint(name, known)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """``predict`` or ``explain`` for one kernel."""
        from gpusim.kernel_models import KERNEL_MODELS

        row = KERNEL_MODELS.get(cmd_name)
        return None if row is None else _kernel_command(row, ctx.info_name)


def _kernel_command(row: KernelModel, verb: str) -> Any:
    action = ACTIONS[verb]
    names = [name for name in PICTURES if verb == "explain" or name not in OF_EXPLAIN]

    def command(**values: Any) -> None:
        try:
            action(_request(row, values))
        except (KernelError, LaunchError) as error:
            raise type(error)(_advised(str(error), row, values)) from None

    own = kernel_parameters(row)
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # typer reads options from it
        [*own, *_common_parameters(names, has_screen=verb == "predict")]
    )
    single = typer.Typer(add_completion=False, rich_markup_mode="rich",
                         context_settings={"help_option_names": ["-h", "--help"]})
    single.command(name=row.name, help=row.summary, cls=command_of(row))(command)
    return get_command(single)


def _check_outputs(request: Request, launch: Any) -> None:
    """Check before the simulation that the engine and the launch have what the outputs need.

    Raises:
        ConfigError: the engine records no timeline, or there are no stages to draw, or no arithmetic.
    """
    over_time = [*(["trace"] if request.trace else []), *(name for name in OF_TIMELINE if name in request.pictures)]
    if request.engine == "reference" and over_time:
        raise ConfigError(f"--{over_time[0]} needs a timeline, and --engine reference records none; use --engine native")
    if "ring" in request.pictures and not {"tma", "cp_async"} & launch.features:
        raise ConfigError(f"--ring: {launch.kernel} copies nothing asynchronously (TMA, cp.async): it has no ring of stages")
    if "roofline" in request.pictures and not launch.num_flops:
        raise ConfigError(f"--roofline: {launch.kernel} has no arithmetic, and so no place on a roofline")


def _predict(request: Request) -> None:
    with spinner(_simulating(request)) as status:
        from gpusim.evidence.validate.expected_error import expected_error, unknown
        from gpusim.report.predictions import Options, render_prediction
        from gpusim.report.summary import NOT_VALIDATED, TILE_CHOSEN, Step, Summary, render_summary
        from gpusim.simulate.run import simulate

        params: Any = request.params
        resolved = params.resolved(request.gpu)
        launch = resolved.launch(request.gpu)
        _check_outputs(request, launch)
        result = simulate(launch, request.gpu, on_progress=status.show_progress, **request.simulate_options)
    _write_outputs(request, launch, result)
    expected = expected_error(result.kernel, result.gpu, result.params)
    document = {
        **result.as_dict(),
        "expected_error_pct": None if expected is None else expected.p90_pct,
        "expected_errors": {} if expected is None else dict(expected.counters),
        "expected_error_source": unknown(result.kernel, result.gpu, result.params) if expected is None else expected.text,
    }
    if request.json is not None:
        write_json(document, request.json)
    options = resolved.as_options()
    steps = [Step(words=request.line.words("explain"))]
    open_choices = [name for name in ("tile", "stages", "schedule") if name in options and name not in request.given]
    if "tile" in open_choices and result.kernel == "gemm":
        steps.append(Step(why=TILE_CHOSEN, words=request.line.sweep_words(open_choices)))
    elif expected is None and "toy" not in result.sources:
        steps.append(Step(why=NOT_VALIDATED, words=request.line.check_words()))
    console = console_for(request.json)
    if request.shows_all:
        shown = Options(
            values=options, defaults=[name for name in options if name not in request.given],
            none_texts={name: resolved.meaning_of_none(name) for name in options},
        )
        lines = [(step.why, shlex.join(step.words)) for step in steps]
        render_prediction(result, console, shown, steps=lines, expected=expected)
        return
    kind = request.row.params
    needed = [option for option, name in kind.options().items() if kind.model_fields[name].is_required()]
    summary = Summary(
        document=document, expected=expected, gpu_name=request.gpu_name,
        problem=request.line.problem_words(options, needed), steps=steps,
        chosen=request.line.chosen_words(options, params.as_options()),
    )
    render_summary(summary, console)


def _simulating(request: Request) -> str:
    return f"simulating {request.row.name} on {request.gpu.name}"


def _explain(request: Request) -> None:
    with spinner(_simulating(request)) as status:
        from gpusim.analysis.explain import explain, render_explanation

        params: Any = request.params
        resolved = params.resolved(request.gpu)

        def build(more_stages: int) -> Any:
            if not more_stages:
                return resolved.launch(request.gpu)
            stages = getattr(resolved, "stages", None)
            if stages is None:
                return None
            return resolved.model_copy(update={"stages": stages + more_stages}).launch(request.gpu)

        def tell(title: str) -> None:
            status.update(f"{_simulating(request)}: {title}")

        launch = resolved.launch(request.gpu)
        _check_outputs(request, launch)
        explanation = explain(
            build, request.gpu, progress=tell, on_progress=status.show_progress, **request.simulate_options
        )
    _write_outputs(request, launch, explanation.result, explanation)
    if request.json is not None:
        write_json(explanation.as_dict(), request.json)
    best = explanation.best
    changes = {} if best is None else resolved.answer_to(best.name)
    if changes:
        following = shlex.join(request.line.words("predict", **changes))
    else:
        following = shlex.join([*request.line.words("predict"), "--plot", f"{request.row.name}.png"])
    render_explanation(explanation, console_for(request.json), next_command=following)


ACTIONS: Mapping[str, Callable[[Request], None]] = {"predict": _predict, "explain": _explain}
"""Function of each command for a kernel."""


def _group(summary: str) -> typer.Typer:
    return typer.Typer(cls=Kernels, help=summary, rich_markup_mode="rich")


PREDICT = _group("Predict time, cycles, throughput and what bounds a kernel.")
EXPLAIN = _group("Say what each fix would buy: simulate again with one thing made free at a time.")


def _write_outputs(request: Request, launch: Any, result: Any, explanation: Any = None) -> None:
    chatter = console_for(Path("-"))
    if request.trace is not None:
        from gpusim.report.perfetto import write_pftrace

        write_pftrace(result, request.trace)
        chatter.print(f"Trace: {request.trace} (open it at https://ui.perfetto.dev)", highlight=False, soft_wrap=True)
    for name, path in request.pictures.items():
        try:
            picture = _draw(name, request, launch, result, explanation)
        except GpusimError as error:
            raise type(error)(str(error).replace("plot:", f"--{name}:", 1)) from None
        picture.save(path)
        chatter.print(f"{name.capitalize()}: {path}", highlight=False, soft_wrap=True)


def _draw(name: str, request: Request, launch: Any, result: Any, explanation: Any) -> Picture:
    """Picture with that name in PICTURES."""
    if name == "plot":
        from gpusim.report.plots.timeline import plot_timeline

        return plot_timeline(result, window=request.window)
    if name == "ring":
        from gpusim.report.plots.ring import plot_stage_ring

        return plot_stage_ring(result, window=request.window)
    if name == "roofline":
        from gpusim.report.plots.roofline import plot_roofline

        return plot_roofline(result, request.gpu)
    if name == "occupancy":
        from gpusim.report.plots.occupancy import plot_occupancy

        return plot_occupancy(launch, request.gpu)
    from gpusim.report.plots.waterfall import plot_waterfall

    return plot_waterfall(explanation)
