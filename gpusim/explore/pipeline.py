"""The page of pipelines: a GEMM's tile, stages and schedule; cycles, what bounds it, who waits for what, the timeline."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from gpusim.errors import GpusimError, KernelError, LaunchError
from gpusim.evidence.expected import expected_error
from gpusim.explore.answers import Answer, Figure, Question, RefusedError, Shown, Table, field_of
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.report.advice import Change, advice_at_the_door
from gpusim.report.tables import headline_rows, verdict_of
from gpusim.report.words import number, percent
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.workload.launch import Launch

MOST_EXTENT = 16384
"""Of m, n and k, so that an answer takes seconds."""

MOST_STAGES = 64

FLAGS = ("m", "n", "k", "dtype", "tile", "stages", "schedule", "copy", "math", "cluster")
"""Fields that are options of ``gpusim predict gemm``."""

SHOWN = ("Time", "Cycles", "Expected error", "SM clock", "Throughput", "Of peak", "Memory", "Bound by", "Occupancy",
         "Registers", "Shared memory", "Grid")
"""Of a prediction's first lines, those that a page shows."""

LEAST_SHARE = 5e-4
"""States of less of a role's life are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What was simulated, of which kernel, on which GPU."""

    gpu: GpuSpec
    launch: Launch
    result: Result
    resolved: Mapping[str, Any]
    """Every option of the kernel, those that were chosen for the GPU, too."""


class PipelineQuestion(Question):
    """What the form of pipelines holds; ``auto`` is chosen for the GPU, as the command line does."""

    gpu: str = "h200_sxm"
    m: Annotated[int, Field(ge=1, le=MOST_EXTENT)] = 2048
    n: Annotated[int, Field(ge=1, le=MOST_EXTENT)] = 2048
    k: Annotated[int, Field(ge=1, le=MOST_EXTENT)] = 2048
    dtype: str = "bf16"
    tile: str = "128x128x64"
    stages: Annotated[int, Field(ge=1, le=MOST_STAGES)] | Literal["auto"] = 4
    schedule: Literal["auto", "multistage", "warp_specialized", "cooperative", "pingpong"] = "cooperative"
    copy_: Annotated[Literal["auto", "tma", "cp_async"], Field(alias="copy")] = "auto"
    math: Literal["auto", "wgmma", "mma_sync", "fma"] = "auto"
    cluster: str = "1x1"
    latency: Annotated[float, Field(ge=0.5, le=8.0, allow_inf_nan=False)] = 1.0

    def query(self) -> dict[str, str]:
        """The words that differ from their defaults."""
        return {name.rstrip("_"): text for name, text in super().query().items()}

    def options(self) -> dict[str, str]:
        """Options of ``gpusim predict gemm`` that are given."""
        found = {name: str(getattr(self, "copy_" if name == "copy" else name)) for name in FLAGS}
        usual = {"dtype": "bf16", "cluster": "1x1"}
        return {name: text for name, text in found.items() if text not in ("auto", usual.get(name))}

    def command(self) -> str:
        """The same question on the command line, but for the latency."""
        words = ["gpusim", "predict", "gemm"]
        for name, text in self.options().items():
            words += [f"--{name}", text]
        return shlex.join([*words, "--gpu", self.gpu, "--quality", "quick"])

    def label(self) -> str:
        """The question in a few words."""
        stages = f"{self.stages} stages" if self.stages != 1 else "1 stage"
        latency = "" if self.latency == 1.0 else f", {self.latency:g} x latency"
        return f"{self.m}x{self.n}x{self.k} in {self.tile}, {stages}, {self.schedule}, {self.gpu}{latency}"

    def answer(self) -> Answer:
        """Cycles, what bounds the kernel, and its timeline.

        Raises:
            RefusedError: what ``gpusim predict gemm`` refuses, in the same sentence.
        """
        return _answer(self, self.predict())

    def predict(self) -> Prediction:
        """What is simulated.

        Raises:
            RefusedError: what ``gpusim predict gemm`` refuses, in the same sentence.
        """
        fields = {"gpu": "gpu", **{name: name for name in FLAGS}}
        try:
            return _predict(self.options(), with_latency(_find_gpu(self.gpu), self.latency))
        except GpusimError as error:
            raise RefusedError(str(error), field_of(str(error), fields)) from None


def with_latency(gpu: GpuSpec, factor: float) -> GpuSpec:
    """``gpu`` whose memory answers ``factor`` times as late: what a miss waits for HBM, and a hit for L2's slices."""
    if factor == 1.0:
        return gpu
    return replace(
        gpu, hbm=replace(gpu.hbm, latency_ns=gpu.hbm.latency_ns * factor),
        l2=replace(
            gpu.l2, near_latency_cycles=gpu.l2.near_latency_cycles * factor,
            far_latency_cycles=gpu.l2.far_latency_cycles * factor,
        ),
    )


def _find_gpu(name: str) -> GpuSpec:
    from gpusim.errors import ConfigError, nearest
    from gpusim.machine.config import gpu_names

    if name not in gpu_names():  # no paths: a page reads no files
        raise ConfigError(f"--gpu {name!r} is unknown; {nearest(name, gpu_names())}")
    return load_gpu(name)


def _predict(options: Mapping[str, str], gpu: GpuSpec) -> Prediction:
    def params_of(change: Change) -> GemmParams:
        return GemmParams(**{**options, **change})  # type: ignore[arg-type]  # texts, as the command line gives them

    try:
        resolved = params_of({}).resolved(gpu)
        launch = resolved.launch(gpu)
        result = simulate(launch, gpu, quality="quick", recorded_sms="first")
    except (KernelError, LaunchError) as error:
        raise type(error)(advice_at_the_door(str(error), params_of, gpu)) from None
    return Prediction(gpu=gpu, launch=launch, result=result, resolved=resolved.as_options())


def _answer(question: PipelineQuestion, found: Prediction) -> Answer:
    gpu, result, resolved = found.gpu, found.result, found.resolved
    is_real = question.latency == 1.0
    facts = [row for row in headline_rows(result, expected_error(result.kernel, result.gpu, result.params))
             if row[0] in SHOWN and (is_real or row[0] != "Expected error")]
    chosen = [f"--{name} {resolved[name]}" for name in FLAGS if name in resolved and name not in question.options()]
    facts.append(("Chosen", ", ".join(chosen) if chosen else "nothing: all was said"))
    facts.append(("Memory latency", _latency_words(gpu, question.latency)))
    remarks = list(result.remarks)
    if not is_real:
        remarks.append(f"{gpu.name} with another latency is no GPU that was built, so no measurement judges this answer")
    note = "" if is_real else (
        f"The command line has no option for the latency: copy configs/{gpu.name}.toml, change hbm.latency_ns, "
        "l2.near_latency_cycles and l2.far_latency_cycles, and name that file with --gpu."
    )
    return Answer(
        page="pipeline", label=question.label(), verdict=verdict_of(result), command=question.command(),
        command_note=note,
        figures=(
            Figure(label="SM cycles", value=result.cycles, unit=""),
            Figure(label="time", value=result.time_us, unit="us", digits=2),
            Figure(label="throughput", value=result.tflops, unit="TFLOP/s", digits=1),
            Figure(label="of peak at this clock", value=result.pct_of_peak_at_clock, unit="%", digits=1),
        ),
        facts_title="The prediction", facts=tuple(facts), tables=(_states(result), _busy(result)),
        pictures=_pictures(found), remarks=tuple(remarks),
    )


def _pictures(found: Prediction) -> tuple[Shown, ...]:
    from gpusim.report.plots import plot_timeline
    from gpusim.report.plots_occupancy import plot_occupancy
    from gpusim.report.plots_ring import plot_stage_ring

    shown = [Shown.of("One SM's pipeline", plot_timeline(found.result))]
    if found.result.timeline.copies:  # without asynchronous copies there is no ring
        shown.append(Shown.of("The ring of stages", plot_stage_ring(found.result)))
    return (*shown, Shown.of("What limits occupancy", plot_occupancy(found.launch, found.gpu)))


def _latency_words(gpu: GpuSpec, factor: float) -> str:
    l2 = gpu.l2
    told = (
        f"L2's slices {number(l2.near_latency_cycles)} (near) and {number(l2.far_latency_cycles)} cycles (far), HBM "
        f"{number(gpu.hbm.latency_ns)} ns more"
    )
    return told if factor == 1.0 else f"{told}: {factor:g} times what {gpu.name} has"


def _states(result: Result) -> Table:
    roles = list(result.states)
    most = {
        state: max(shares.get(state, 0.0) for shares in result.states.values())
        for state in dict.fromkeys(state for shares in result.states.values() for state in shares)
    }
    rows = [
        (state, *(percent(result.states[role][state]) if state in result.states[role] else "-" for role in roles))
        for state in sorted(most, key=lambda name: -most[name]) if most[state] >= LEAST_SHARE
    ]
    return Table(
        caption="Stalls and states: share of each role's life", columns=("state", *roles), rows=tuple(rows),
        notes=("wait_ and scoreboard states are stalls: wait_mbarrier waits for a full or empty stage, wait_wgmma for "
               "products that are under way.",),
    )


def _busy(result: Result) -> Table:
    rows = [
        (part, percent(share)) for part, share in sorted(result.busy.items(), key=lambda item: -item[1])
        if share >= LEAST_SHARE
    ]
    return Table(caption="Busy: share of the kernel's cycles", columns=("part", "share"), rows=tuple(rows))
