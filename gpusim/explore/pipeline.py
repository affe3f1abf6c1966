"""Explorer page of GEMM pipelines: tile, stages and schedule; cycles, bottleneck, warp states, the timeline.

The page runs the packed launch in the browser. For a browser without scripts it runs on the server.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from gpusim.errors import ConfigError, GpusimError, KernelError, LaunchError, nearest
from gpusim.evidence.validate.expected_error import expected_error
from gpusim.explore.answers import Answer, Figure, Question, RefusedError, Shown, Table, field_of
from gpusim.explore.packed_launch import launch_document
from gpusim.explore.sliders import SLIDERS, scaled
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec, gpu_names, load_gpu
from gpusim.report.advice import Change, complete_advice
from gpusim.report.number_format import count, number, option_words, percent, size
from gpusim.report.plots.occupancy import plot_occupancy
from gpusim.report.plots.ring import plot_stage_ring
from gpusim.report.plots.timeline import plot_timeline
from gpusim.report.plots.window import of_sm, opening_window
from gpusim.report.predictions import error_words, full_occupancy_words, headline_rows, verdict_of
from gpusim.simulate.pack import trace_plan
from gpusim.simulate.plan import LaunchPlan, plan_launch
from gpusim.simulate.result import Result
from gpusim.simulate.run import estimate_clock, simulate
from gpusim.units import Clock

MOST_EXTENT = 32768
"""Largest m, n and k of a request. A request that takes a core too long is refused when its time is over."""

MOST_STAGES = 64

USUAL_TILE, FMA_WORK = ("128", "128", "64"), 8
"""Tile that estimates of work assume where none is given, and their factor for kernels on FMA units."""

FLAGS = ("m", "n", "k", "dtype", "tile", "stages", "schedule", "copy", "math", "cluster")
"""Fields that are options of ``gpusim predict gemm``."""

SHOWN = ("Throughput", "Of peak", "Memory", "Bound by")
"""First lines of a prediction that need a run."""

EXPECTED = "Expected error"
"""Fact that holds for unchanged GPUs only; left out if a slider was moved."""

LEAST_SHARE = 5e-4
"""Fraction of a role's life below which a state is left out."""

@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A launch on an unchanged GPU, before anything runs."""

    plan: LaunchPlan
    resolved: Mapping[str, Any]
    """Options of the kernel, including those that were chosen for the GPU."""
    clock: Clock
    """Estimated clock of the launch, which sliders do not change."""


class PipelineQuestion(Question):
    """Fields of the form of pipelines; ``auto`` is chosen for the GPU, as on the command line."""

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
    hbm_bandwidth: Annotated[float, Field(ge=0.25, le=2.0, allow_inf_nan=False)] = 1.0
    l2_bandwidth: Annotated[float, Field(ge=0.25, le=2.0, allow_inf_nan=False)] = 1.0

    def work(self, *, is_plain: bool) -> int:
        """Steps of all tiles, where the server simulates them; else the tiles, which it plans alone."""
        found = re.fullmatch(r"(\d{1,9})x(\d{1,9})x(\d{1,9})", self.tile.strip())
        m, n, k = (max(1, int(part)) for part in (found.groups() if found else USUAL_TILE))
        num_tiles = -(-self.m // m) * -(-self.n // n)
        by_threads = self.math == "fma" or self.dtype == "fp32"  # an event for each group of instructions
        num_steps = -(-self.k // k) * (FMA_WORK if by_threads else 1)
        return num_tiles * (num_steps if is_plain else 1)

    def query(self) -> dict[str, str]:
        """Fields that differ from their defaults, as text."""
        return {name.rstrip("_"): text for name, text in super().query().items()}

    def options(self) -> dict[str, str]:
        """Options of ``gpusim predict gemm`` that are given."""
        found = {name: str(getattr(self, "copy_" if name == "copy" else name)) for name in FLAGS}
        usual = {"dtype": "bf16", "cluster": "1x1"}
        return {name: text for name, text in found.items() if text not in ("auto", usual.get(name))}

    def command(self, found: Planned | None = None) -> str:
        """Equivalent command line, without the sliders; with the options that the page chose and the clock of ``found``."""
        given = self.options()
        if found is None:
            chosen, at = {}, []
        else:
            stated = {name: found.resolved[name] for name in GemmParams.row.stated}
            chosen, at = {name: value for name, value in stated.items() if name not in given}, [f"{found.clock.sm_mhz:g}"]
        words = ["gpusim", "predict", GemmParams.row.name, *option_words({**given, **chosen}), "--gpu", self.gpu]
        return shlex.join([*words, *(["--clock", *at] if at else [])])

    def factors(self) -> dict[str, float]:
        """Factors of the sliders that were moved."""
        return {name: factor for name in SLIDERS if (factor := getattr(self, name)) != 1.0}

    def label(self) -> str:
        """Summary of the request in a few words."""
        stages = f"{self.stages} stages" if self.stages != 1 else "1 stage"
        moved = "".join(f", {factor:g} x {SLIDERS[name].word}" for name, factor in self.factors().items())
        return f"{self.m}x{self.n}x{self.k} in {self.tile}, {stages}, {self.schedule}, {self.gpu}{moved}"

    def answer(self) -> Answer:
        """Packed launch, which the page runs with the current sliders.

        Raises:
            RefusedError: ``gpusim predict gemm`` refuses the launch; the sentence is the same.
        """
        found = self.planned()
        document = launch_document(found.plan, trace_plan(found.plan), found.clock) | {"least_share": LEAST_SHARE}
        return _answer(self.model_copy(update=dict.fromkeys(SLIDERS, 1.0)), found, launch=document)

    def plain_answer(self) -> Answer:
        """Cycles, bottleneck and timeline of a run in this process.

        Raises:
            RefusedError: ``gpusim predict gemm`` refuses the launch; the sentence is the same.
        """
        found = self.planned()
        return _answer(self, found, result=self.run(found))

    def planned(self) -> Planned:
        """Plan of the launch, before anything runs.

        Raises:
            RefusedError: ``gpusim predict gemm`` refuses the launch; the sentence is the same.
        """
        fields = {"gpu": "gpu", **{name: name for name in FLAGS}}
        try:
            return _planned(self.options(), _find_gpu(self.gpu))
        except GpusimError as error:
            raise RefusedError(str(error), field_of(str(error), fields)) from None

    def run(self, found: Planned) -> Result:
        """Simulated result with the current sliders."""
        plan = found.plan
        gpu = scaled(plan.gpu, self.factors())
        return simulate(plan.launch, gpu, clock=found.clock.sm_mhz, recorded_sms="first")


def _find_gpu(name: str) -> GpuSpec:
    if name not in gpu_names():  # no paths: a page must not read files
        raise ConfigError(f"--gpu {name!r} is unknown; {nearest(name, gpu_names())}")
    return load_gpu(name)


def _planned(options: Mapping[str, str], gpu: GpuSpec) -> Planned:
    def params_of(change: Change) -> GemmParams:
        return GemmParams(**{**options, **change})  # type: ignore[arg-type]  # texts, as from the command line

    try:
        resolved = params_of({}).resolved(gpu)
        plan = plan_launch(resolved.launch(gpu), gpu, is_warm=False)
    except (KernelError, LaunchError) as error:
        raise type(error)(complete_advice(str(error), params_of, gpu)) from None
    mhz = estimate_clock(plan, mode="single", data="random")
    rounded_mhz = min(max(float(round(mhz)), gpu.clock.min_mhz), gpu.clock.max_mhz)  # can be typed
    return Planned(plan=plan, resolved=resolved.as_options(), clock=Clock(sm_mhz=rounded_mhz))


def _answer(
    question: PipelineQuestion, found: Planned, *, launch: Mapping[str, Any] | None = None, result: Result | None = None
) -> Answer:
    """Answer with all that is known before a run, and the results of the run if there was one."""
    gpu = found.plan.gpu
    is_moved = bool(question.factors())
    facts = [] if result is None else [row for row in headline_rows(result, None) if row[0] in SHOWN]
    facts += _facts(question, found)
    moved = (
        f"{gpu.name} with other latencies or bandwidths is no GPU that was built, so no measurement judges this answer; the "
        f"command line has no option for them: write a TOML file that extends {gpu.name}, with what is named below the "
        "sliders scaled, and name that file with --gpu"
    )
    return Answer(
        page="pipeline", label=question.label(), verdict="" if result is None else verdict_of(result),
        command=question.command(found), figures=_figures(result), facts_title="The prediction", facts=tuple(facts),
        tables=(_states(result), _busy(result)), pictures=() if result is None else _pictures(found.plan, result),
        remarks=(*found.plan.launch.remarks, *([moved] if is_moved else [])), launch=launch,
        moved="" if launch is None else moved,
    )


def _figures(result: Result | None) -> tuple[Figure, ...]:
    """Numbers of a run, or zeros that the page fills in. Tables are filled in this way, too."""
    values = (0.0,) * 5 if result is None else (
        result.cycles, result.time_us / 1e3, result.num_events, result.tflops, result.pct_of_peak_at_clock
    )  # fmt: skip
    texts = (("SM cycles", "", 0), ("time", "ms", 4), ("events", "", 0), ("throughput", "TFLOP/s", 1),
             ("of peak at this clock", "%", 1))  # fmt: skip
    return tuple(
        Figure(label=label, value=value, unit=unit, digits=digits)
        for (label, unit, digits), value in zip(texts, values, strict=True)
    )


def _facts(question: PipelineQuestion, found: Planned) -> list[tuple[str, str]]:
    plan, launch, gpu = found.plan, found.plan.launch, found.plan.gpu
    expected = expected_error(launch.kernel, gpu.name, launch.params)
    error = error_words(expected, launch.kernel, gpu.name, launch.params)
    given, resolved = question.options(), found.resolved
    chosen = [f"--{name} {resolved[name]}" for name in FLAGS if name in resolved and name not in given]
    return [
        *([] if question.factors() else [(EXPECTED, error)]),
        ("SM clock", f"{found.clock.sm_mhz:,.0f} MHz, estimated for this launch, whatever the sliders say"),
        ("Memory latency", f"L2's slices answer in {number(gpu.l2.near_latency_cycles)} (near) and "
                           f"{number(gpu.l2.far_latency_cycles)} cycles (far), HBM in {number(gpu.hbm.latency_ns)} ns; "
                           "times what the slider says"),
        ("Occupancy", full_occupancy_words(plan.occupancy)),
        ("Registers", f"{launch.registers_per_thread}/thread (estimated; {launch.registers_source or 'no rule stated'})"),
        ("Shared memory", f"{size(launch.smem_bytes)} a CTA"),
        ("Grid", f"{count(plan.num_ctas, 'CTA')} for {count(launch.num_tiles, 'tile')}, {plan.num_at_once} at once"),
        ("Chosen", ", ".join(chosen) if chosen else "nothing: all was said"),
    ]  # fmt: skip


def _pictures(plan: LaunchPlan, result: Result) -> tuple[Shown, ...]:
    opening = opening_window(of_sm(result.timeline, None))  # as the page draws it when a slider moves
    shown = [Shown.of("One SM's pipeline", plot_timeline(result, window=opening))]
    if result.timeline.copies:  # without asynchronous copies there is no ring
        shown.append(Shown.of("The ring of stages", plot_stage_ring(result)))
    return (*shown, Shown.of("What limits occupancy", plot_occupancy(plan.launch, plan.gpu)))


def _states(result: Result | None) -> Table:
    states = {} if result is None else result.states
    roles = list(states)
    most = {
        state: max(shares.get(state, 0.0) for shares in states.values())
        for state in dict.fromkeys(state for shares in states.values() for state in shares)
    }
    rows = [
        (state, *(percent(states[role][state]) if state in states[role] else "-" for role in roles))
        for state in sorted(most, key=lambda name: -most[name]) if most[state] >= LEAST_SHARE
    ]
    return Table(
        caption="Warp states: share of each role's life", columns=("state", *roles), rows=tuple(rows),
        notes=("A role in a wait_ or scoreboard state need not cost time. A consumer may wait at an mbarrier while its own "
               "wgmma run, and a producer waits until a stage is free. The first line says what fills the time.",),
    )


def _busy(result: Result | None) -> Table:
    busy = {} if result is None else result.busy
    rows = [
        (part, percent(share)) for part, share in sorted(busy.items(), key=lambda item: -item[1])
        if share >= LEAST_SHARE
    ]
    return Table(caption="Busy: share of the kernel's cycles", columns=("part", "share"), rows=tuple(rows))
