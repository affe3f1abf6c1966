"""``predict`` and ``explain``: one command per kernel model. A new kernel needs no change here."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.cli.command import CommandLine
from gpusim.cli.kernel_command import Kernels, kernel_command, kernel_group
from gpusim.cli.options import check_choice, console_for, find_gpu, name_of, spinner, write_json
from gpusim.cli.parameters import (
    checked_params,
    given_options,
    json_option,
    kernel_parameters,
    option,
    output_paths,
    plot_option,
    simulation_options,
    simulation_settings,
)
from gpusim.errors import ConfigError, GpusimError, KernelError, LaunchError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from gpusim.kernel_models import KernelModel
    from gpusim.machine.config import GpuSpec
    from gpusim.report.plots.picture import Picture

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

ALSO_SHOWN = ("math", "copy")
"""Options that are shown as chosen although they follow from others."""

OF_EXPLAIN = ("waterfall",)
"""Pictures of ``explain`` only."""

OF_TIMELINE = ("plot", "ring")
"""Pictures that need a timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Checked arguments of ``predict`` or ``explain``."""

    row: KernelModel
    params: BaseModel
    line: CommandLine
    """Kernel, its options that were typed, and the settings of the simulation."""
    gpu: GpuSpec
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
        line = self.line
        return {
            "clock": line.clock, "l2": line.l2, "data": line.data, "engine": line.engine, "core_only": line.core_only,
            "recorded_sms": "first" if records else frozenset(),
            **({} if line.max_events is None else {"max_events": line.max_events}),
        }


def _options(names: Sequence[str], *, has_screen: bool) -> list[inspect.Parameter]:
    """Options that all kernels have. ``names``: keys of PICTURES; ``has_screen``: whether there is ``--all``."""
    simulation, output = "Simulation", "Output"
    return [
        *simulation_options(simulation),
        option("engine", ENGINE_HELP, default="native", metavar="|".join(ENGINES), panel=simulation),
        option("core_only", "Switch off what the GPU has beyond the model's core. A remark lists it.", bool, False,
               panel=simulation),
        option("max_events", "Stop with an error after N events (about 0.6 us each).", int, metavar="N", panel=simulation,
               min=1),
        *([option("shows_all", "Print everything: counters, warp states, options, sources and remarks.", bool, False,
                  panel=output, flag="--all")] if has_screen else []),
        json_option("Write the result as JSON."),
        option("trace_path", "Write a Perfetto trace of one SM, for ui.perfetto.dev.", metavar="FILE.pftrace", panel=output),
        *(plot_option(PICTURES[name], name) for name in names),
        option("window", "First and last cycle of --plot and --ring. By default --plot shows a steady part of the run, "
               "--ring its beginning.", metavar="A,B", panel=output),
    ]  # fmt: skip


def _request(row: KernelModel, values: Mapping[str, Any]) -> Request:
    """Check all that can be checked without a simulation."""
    given, outputs = given_options(row, values), output_paths(values)
    window = parse_window(values["window"])
    if window is not None and not any(outputs[f"--{name}"] for name in OF_TIMELINE):
        raise ConfigError("--window is of pictures over time, and none is drawn; add --plot FILE or --ring FILE")
    gpu = find_gpu(values["gpu"], "--gpu")
    line = CommandLine(
        kernel=row.name, given=given, gpu_name=name_of(values["gpu"], gpu), **simulation_settings(values),
        engine=check_choice("--engine", values["engine"], ENGINES), core_only=values["core_only"],
        max_events=values["max_events"],
    )
    return Request(
        row=row, params=checked_params(row, given), line=line, gpu=gpu, json=outputs["--json"], trace=outputs["--trace"],
        pictures={name: path for name in PICTURES if (path := outputs.get(f"--{name}")) is not None}, window=window,
        shows_all=values.get("shows_all", False),
    )


def _advised(refusal: str, row: KernelModel, values: Mapping[str, Any]) -> str:
    """Refusal of the kernel or its launch, with all options that its advice needs."""
    from gpusim.report.advice import complete_advice

    given = given_options(row, values)
    try:
        gpu = find_gpu(values["gpu"], "--gpu")
    except GpusimError:
        return refusal
    return complete_advice(refusal, lambda change: checked_params(row, {**given, **change}), gpu)


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


class Predictions(Kernels):
    """``predict`` or ``explain``."""

    def command_for(self, row: KernelModel, verb: str) -> Any:
        """``predict`` or ``explain`` for one kernel."""
        def command(**values: Any) -> None:
            try:
                ACTIONS[verb](_request(row, values))
            except (KernelError, LaunchError) as error:
                raise type(error)(_advised(str(error), row, values)) from None

        names = [name for name in PICTURES if verb == "explain" or name not in OF_EXPLAIN]
        options = _options(names, has_screen=verb == "predict")
        return kernel_command(row, command, [*kernel_parameters(row), *options], row.summary)


def _check_outputs(request: Request, launch: Any) -> None:
    """Check before the simulation that the engine and the launch have what the outputs need.

    Raises:
        ConfigError: the engine records no timeline, or there are no stages to draw, or no arithmetic.
    """
    over_time = [*(["trace"] if request.trace else []), *(name for name in OF_TIMELINE if name in request.pictures)]
    if request.line.engine == "reference" and over_time:
        raise ConfigError(f"--{over_time[0]} needs a timeline, and --engine reference records none; use --engine native")
    if "ring" in request.pictures and not {"tma", "cp_async"} & launch.features:
        raise ConfigError(f"--ring: {launch.kernel} copies nothing asynchronously (TMA, cp.async): it has no ring of stages")
    if "roofline" in request.pictures and not launch.num_flops:
        raise ConfigError(f"--roofline: {launch.kernel} has no arithmetic, and so no place on a roofline")


def _predict(request: Request) -> None:
    with spinner(_simulating(request)) as status:
        from gpusim.analysis.choose import Chosen, choose
        from gpusim.evidence.gate.throughputs import with_throughputs
        from gpusim.evidence.validate.expected_error import expected_error, unknown
        from gpusim.report.predictions import Options, render_prediction
        from gpusim.report.summary import NOT_VALIDATED, TILE_CHOSEN, Step, Summary, render_summary
        from gpusim.simulate.run import simulate

        params: Any = request.params
        status.update(f"choosing a configuration of {request.row.name} for {request.gpu.name}")
        choice = choose(params, request.gpu, l2=request.line.l2) if request.line.has_full_model else Chosen(params=params)
        resolved = choice.params.resolved(request.gpu)
        status.update(_simulating(request))
        launch = resolved.launch(request.gpu)
        _check_outputs(request, launch)
        result = simulate(launch, request.gpu, on_progress=status.show_progress, **request.simulate_options)
        result = with_throughputs(result, request.gpu)
    _write_outputs(request, launch, result)
    expected = expected_error(result.kernel, result.gpu, result.params)
    document = {
        **result.as_dict(), "expected_error_pct": None if expected is None else expected.p90_pct,
        "expected_errors": {} if expected is None else dict(expected.counters),
        "expected_error_source": unknown(result.kernel, result.gpu, result.params) if expected is None else expected.text,
        "second_best": choice.second_best,
    }
    if request.json is not None:
        write_json(document, request.json)
    options = resolved.as_options()
    steps = [Step(words=request.line.words("explain"))]
    if choice.rated and "tile" not in request.line.given:
        steps.append(Step(why=TILE_CHOSEN, words=request.line.advise_words()))
    elif expected is None and "toy" not in result.sources:
        steps.append(Step(why=NOT_VALIDATED, words=request.line.check_words()))
    console = console_for(request.json)
    if request.shows_all:
        shown = Options(
            values=options, defaults=[name for name in options if name not in request.line.given],
            none_texts={name: resolved.meaning_of_none(name) for name in options},
        )
        lines = [(step.why, shlex.join(step.words)) for step in steps]
        render_prediction(result, console, shown, steps=lines, expected=expected)
        return
    kind, deciding = request.row.params, request.row.deciding
    needed = [option for option, name in kind.options().items() if kind.model_fields[name].is_required()]
    summary = Summary(
        document=document, expected=expected, gpu_name=request.line.gpu_name,
        problem=request.line.problem_words(options, needed), steps=steps,
        second=choice.second_words,
        chosen=request.line.chosen_words(options, params.as_options(), deciding and (*ALSO_SHOWN, *deciding)),
    )
    render_summary(summary, console)


def _simulating(request: Request) -> str:
    return f"simulating {request.row.name} on {request.gpu.name}"


def _explain(request: Request) -> None:
    with spinner(_simulating(request)) as status:
        from gpusim.analysis.changes import StatedKernel
        from gpusim.analysis.choose import Chosen, choose
        from gpusim.analysis.explain import explain_kernel, explain_launch
        from gpusim.report.explain import render_explanation

        params: Any = request.params
        choice = choose(params, request.gpu, l2=request.line.l2) if request.line.has_full_model else Chosen(params=params)

        def tell(title: str) -> None:
            status.update(f"{_simulating(request)}: {title}")

        def words(changed: Mapping[str, Any]) -> str:
            return shlex.join(request.line.words("predict", **{**choice.decisions, **changed}))

        launch = choice.params.resolved(request.gpu).launch(request.gpu)
        _check_outputs(request, launch)
        settings = {"progress": tell, "on_progress": status.show_progress, **request.simulate_options}
        if request.line.has_full_model:
            stated = {**request.line.given, **choice.decisions}
            kernel = StatedKernel(first=params, asked=choice.params, stated=stated, words=words)
            explanation = explain_kernel(kernel, request.gpu, **settings)
        else:
            explanation = explain_launch(launch, request.gpu, **settings)
    _write_outputs(request, launch, explanation.result, explanation)
    if request.json is not None:
        write_json(explanation.as_dict(), request.json)
    following = shlex.join([*request.line.words("predict"), "--plot", f"{request.row.name}.png"])
    render_explanation(explanation, console_for(request.json), next_command=following)


ACTIONS: Mapping[str, Callable[[Request], None]] = {"predict": _predict, "explain": _explain}
"""Function of each command for a kernel."""


PREDICT = kernel_group(Predictions, "Predict time, cycles, throughput and what bounds a kernel.")
EXPLAIN = kernel_group(
    Predictions, "Say what bounds a kernel, what each change of its options would save, and what each part of the GPU costs."
)


def _write_outputs(request: Request, launch: Any, result: Any, explanation: Any = None) -> None:
    chatter = console_for(Path("-"))
    if request.trace is not None:
        from gpusim.report.perfetto import write_pftrace

        write_pftrace(result, request.trace)
        chatter.print(f"Trace: {request.trace} (open it at https://ui.perfetto.dev)", soft_wrap=True)
    for name, path in request.pictures.items():
        try:
            picture = _draw(name, request, launch, result, explanation)
        except GpusimError as error:
            raise type(error)(str(error).replace("plot:", f"--{name}:", 1)) from None
        picture.save(path)
        chatter.print(f"{name.capitalize()}: {path}", soft_wrap=True)


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
