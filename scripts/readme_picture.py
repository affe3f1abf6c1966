"""Draws the README's picture: a predicted timeline, and beside it what Nsight Compute measured of the same kernel.

    python scripts/readme_picture.py [--out FILE.png]

All numbers come from one simulation and from one row of ``validation/measured/h200_sxm/hopper_gemm.csv``. The simulation has
the row's clock and flushed caches, as rows are judged. Prints the picture's sentence for those who cannot see it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.rows import Table, config_of, number_in
from gpusim.evidence.cases.validation_kernel import as_counted, row_clock_mhz
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu
from gpusim.report.plots.figure import BLUE, VERMILION, picture_of, settings
from gpusim.report.plots.picture import Picture
from gpusim.report.plots.ring import rings_of
from gpusim.report.plots.timeline import COPY, LOOKS, MMA, Bar, Lane, Look, lanes_of
from gpusim.report.plots.window import Window, of_sm, steady_window
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.simulate.timeline import Timeline

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "overview.png"
GPU, CASE = "h200_sxm", "hopper_gemm"
ROW = {"group": "best", "kernel": "pp2_64x256x64_c2x1_d1_regs_bf16", "m": "4096", "n": "4096", "k": "4096"}
"""What the row has in its columns."""

METRICS: Mapping[str, tuple[str, ...]] = {
    "cycles": ("sm__cycles_elapsed.max",),
    "DRAM bytes": ("dram__bytes_read.sum", "dram__bytes_write.sum"),
    "L2 sectors": ("lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum"),
    "shared wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
    "tensor instructions": ("sm__inst_executed_pipe_tensor.sum",),
}
"""Counters of Nsight Compute that each bar sums."""

SHARE_SHOWN = 0.8
"""Of the steady window, so that steps are wide."""

MARGIN = 0.12
"""How far the axis of ratios goes to either side of 1, at least."""

WIDTH_PX, INCHES, BYTES_AT_MOST = 1600, (12.8, 5.6), 200_000


@dataclass(frozen=True, slots=True)
class Compared:
    """One quantity, predicted and measured."""

    name: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured


def measured_row() -> Mapping[str, str]:
    """The row that :data:`ROW` names.

    Raises:
        SystemExit: none, or several.
    """
    table = Table.read(ROOT / "validation" / "measured" / GPU / f"{CASE}.csv")
    found = [row for row in table.rows if all(row[name] == text for name, text in ROW.items())]
    if len(found) != 1:
        raise SystemExit(f"{CASE}.csv: {len(found)} rows are {ROW}, wants one")
    return found[0]


def predicted(row: Mapping[str, str]) -> Result:
    """The row's kernel, simulated as the row was counted."""
    gpu, case = load_gpu(GPU), load_case(CASE)
    config = config_of(row, case.columns)
    params = GemmParams.model_validate(dict(case.model_options(config, gpu)))
    return simulate(params.launch(gpu), gpu, clock=row_clock_mhz(row, gpu), l2="flushed", recorded_sms="first")


def compared(row: Mapping[str, str], result: Result) -> list[Compared]:
    """Both numbers of each of :data:`METRICS`."""
    counters = as_counted(result.counters)
    return [
        Compared(name, sum(counters[each] for each in names), sum(number_in(row, each) for each in names))
        for name, names in METRICS.items()
    ]


def window_of(timeline: Timeline) -> Window:
    """The middle of the steady window."""
    start, end = steady_window(timeline)
    middle, half = (start + end) / 2, SHARE_SHOWN * (end - start) / 2
    return middle - half, middle + half


def lanes_shown(timeline: Timeline, window: Window) -> list[Lane]:
    """A lane a stage with the copies of both operands, the tensor core, and the roles."""
    cta_idx = min(item.cta_idx for item in timeline.copies)
    ring = max(rings_of(timeline, cta_idx), key=lambda ring: ring.num_stages)
    last = max(role.states[-1][2] for role in timeline.roles)
    stages = [
        Lane(f"stage {stage}", "stages", [
            Bar(fill.start_cycle, last if fill.full_cycle is None else fill.full_cycle, COPY) for fill in fills
        ])
        for stage, fills in sorted(ring.fills.items())
    ]  # fmt: skip
    others = [lane for lane in lanes_of(timeline, window) if lane.slot is None and lane.label != "stores"]
    return stages + others


def alt_of(result: Result, numbers: Sequence[Compared], window: Window) -> str:
    """The picture in words, with its numbers."""
    p = result.params
    said = ", ".join(f"{item.name} {item.ratio:.2f}" for item in numbers)
    return (
        f"Left: predicted timeline of one SM of {result.gpu}, cycles {window[0]:,.0f} to {window[1]:,.0f} of "
        f"{result.cycles:,.0f}, of a ping-pong GEMM of {p['m']} x {p['n']} x {p['k']} in bf16: copies into "
        f"{p['stages']} stages, the tensor core, one producer and two consumers, of which one takes over from the other. "
        f"Right: predicted over measured by Nsight Compute: {said}."
    )


def draw(result: Result, numbers: Sequence[Compared]) -> Picture:
    """Both halves."""
    from matplotlib.figure import Figure

    timeline = of_sm(result.timeline, None)
    window = window_of(timeline)
    with settings():
        figure = Figure(figsize=INCHES, layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.4, 1.0])
        _draw_timeline(left, result, lanes_shown(timeline, window), window)
        _draw_ratios(right, numbers)
    return picture_of(figure, alt_of(result, numbers, window), dpi=round(WIDTH_PX / INCHES[0]))


def _draw_timeline(axes: Any, result: Result, lanes: Sequence[Lane], window: Window) -> None:
    from matplotlib.patches import Patch

    seen: dict[Look, None] = {}
    for place, lane in enumerate(lanes):
        axes.axhspan(place - 0.4, place + 0.4, facecolor="#F4F4F4", linewidth=0, zorder=0)
        height = 0.5 if lane.own_math else 0.8
        for bars, bottom, tall in ((lane.bars, place - 0.4, height), (lane.own_math, place + 0.14, 0.26)):
            for bar in bars:
                start, end = max(bar.start_cycle, window[0]), min(bar.end_cycle, window[1])
                if end > start:
                    axes.broken_barh(
                        [(start, end - start)], (bottom, tall), facecolor=bar.look.colour, hatch=bar.look.hatch or None,
                        edgecolor="white", linewidth=0.5, zorder=2,
                    )  # fmt: skip
                    seen[MMA if bar in lane.own_math else bar.look] = None
    axes.set(xlim=window, ylim=(len(lanes) - 0.5, -0.6), xlabel="SM cycles since the launch")
    axes.set_yticks(range(len(lanes)), [lane.label for lane in lanes], fontsize=13)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=12)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.label.set_size(13)
    axes.spines["left"].set_visible(False)
    p = result.params
    axes.set_title(
        f"Predicted: one SM of an H200, ping-pong GEMM,\n{p['m']} x {p['n']} x {p['k']} bf16, tile {p['tile']}", loc="left",
        fontsize=14, fontweight="bold",
    )  # fmt: skip
    order = {look: place for place, look in enumerate((COPY, MMA, *LOOKS.values()))}
    handles = [
        Patch(facecolor=look.colour, hatch=look.hatch or None, edgecolor="white", label=look.label)
        for look in sorted(seen, key=lambda look: order[look])
    ]
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, frameon=False, fontsize=12,
        handlelength=1.4, columnspacing=1.0,
    )  # fmt: skip


def _draw_ratios(axes: Any, numbers: Sequence[Compared]) -> None:
    for place, item in enumerate(numbers):
        colour = VERMILION if item.ratio > 1.0 else BLUE
        axes.barh(place + 0.14, item.ratio - 1.0, left=1.0, height=0.3, color=colour, zorder=2)
        axes.plot([item.ratio], [place + 0.14], marker="o", markersize=8, color="black", zorder=3)
        axes.text(
            0.0, place - 0.22, item.name, transform=axes.get_yaxis_transform(), fontsize=13, fontweight="bold", va="center",
        )
        axes.text(
            1.0, place - 0.22, f"{_short(item.predicted)} / {_short(item.measured)} = {item.ratio:.2f}",
            transform=axes.get_yaxis_transform(), fontsize=12.5, va="center", ha="right",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )
    most = max([MARGIN, *(1.15 * abs(item.ratio - 1.0) for item in numbers)])
    axes.axvline(1.0, color="black", linewidth=1.2, zorder=1)
    axes.set(xlim=(1.0 - most, 1.0 + most), ylim=(len(numbers) - 0.5, -0.6), xlabel="predicted / measured")
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize=12)
    axes.xaxis.label.set_size(13)
    axes.grid(axis="x", color="#D8D8D8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.set_title("The same kernel, predicted over\nmeasured by Nsight Compute", loc="left", fontsize=14, fontweight="bold")


def _short(value: float) -> str:
    """A count in millions where it is large.

    >>> _short(332074.0), _short(1048576.0), _short(50138800.0)
    ('332,074', '1.05 M', '50.1 M')
    """
    return f"{value:,.0f}" if value < 1e6 else f"{value / 1e6:#.3g} M".replace(". M", " M")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PICTURE)
    asked = parser.parse_args()
    row = measured_row()
    result = predicted(row)
    picture = draw(result, compared(row, result))
    if len(picture.png) > BYTES_AT_MOST:
        raise SystemExit(f"the picture has {len(picture.png):,} bytes, wants at most {BYTES_AT_MOST:,}")
    picture.save(asked.out)
    print(picture.alt)


if __name__ == "__main__":
    main()
