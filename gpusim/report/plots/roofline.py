"""Roofline plot of a GPU at a predicted clock, with kernels on it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import atan2, degrees, inf
from pathlib import Path
from typing import Any

from gpusim.errors import GpusimError
from gpusim.machine.config import GpuSpec
from gpusim.report.number_format import flag, number, percent
from gpusim.report.plots.figure import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot
from gpusim.simulate.constants import Shared
from gpusim.simulate.result import Result
from gpusim.units import SECTOR_BYTES, Clock

LOOKS = (
    (BLUE, "o"), (VERMILION, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (BLACK, "P"), (SKY, "X"), ("#606060", "*"),
)  # fmt: skip
"""Colour and marker of each kernel."""

CLASSES: Mapping[str, str] = {"16bit": "bf16, fp16", "tf32": "tf32", "fp8": "fp8", "int8": "int8", "fp32": "fp32"}


CLOSE = 1e-6
"""Relative difference below which two rates count as equal."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A kernel on the roofline."""

    name: str
    tflops: float
    dram_flops_per_byte: float
    """FLOP per DRAM byte; infinite without DRAM traffic."""
    l2_flops_per_byte: float
    peak_tflops: float
    """TFLOP/s of the arithmetic units that the kernel uses, at its clock."""
    mhz: float
    types: tuple[str, ...] = ()
    """Types that the kernel computes in, keys of :data:`CLASSES`.

    Several where their rates are equal, none where no unit has its rate."""

    def roof_tflops(self, hbm_gb_per_s: float) -> float:
        """TFLOP/s that the kernel's DRAM intensity allows at ``hbm_gb_per_s`` GB/s."""
        return min(self.peak_tflops or inf, self.dram_flops_per_byte * hbm_gb_per_s * 1e-3)


def plot_roofline(
    results: Result | Sequence[Result], gpu: GpuSpec, path: str | Path | None = None, *, names: Sequence[str] | None = None
) -> Picture:
    """Plot throughput over arithmetic intensity, with the roofs of DRAM and L2 and the ceilings of the types in use.

    A filled marker is a kernel over its predicted DRAM bytes. A hollow one is the kernel over its L2 bytes. Roofs are
    sustained rates, at the clock of the fastest of ``results``. ``names`` label the kernels.

    Raises:
        GpusimError: ``path`` is invalid, or there are no results, too many to distinguish, or another number of names. Also
            for a result of another GPU, without arithmetic, or without time.
        OSError: the file cannot be written.
    """
    check_plot(path)
    every = [results] if isinstance(results, Result) else list(results)
    placed = _placed(every, gpu, names)
    mhz = max(item.sm_clock_mhz for item in every)
    hbm = gpu.hbm.sustained_read_gb_per_s
    sentences = [
        f"{item.name} reaches {number(round(item.tflops, 1))} TFLOP/s at "
        f"{_per_byte(item.dram_flops_per_byte, 'FLOP per byte of memory')} and "
        f"{_per_byte(item.l2_flops_per_byte, 'per byte of L2')}, "
        f"{percent(item.tflops / item.roof_tflops(hbm))} of its roof"
        for item in placed
    ]
    alt = f"Roofline of {gpu.name} at {mhz:,.0f} MHz: {'; '.join(sentences)}."
    with settings():
        return picture_of(_draw(placed, gpu, mhz), alt, path)


def _per_byte(flops: float, words: str) -> str:
    """Intensity in the words of a sentence.

    >>> _per_byte(12.34, "per byte of L2"), _per_byte(inf, "per byte of L2")
    ('12.3 per byte of L2', 'no byte of L2')
    """
    return f"{number(round(flops, 1))} {words}" if flops < inf else f"no {words[words.index('byte') :]}"


def _placed(results: list[Result], gpu: GpuSpec, names: Sequence[str] | None) -> list[Placed]:
    if not 1 <= len(results) <= len(LOOKS):
        raise GpusimError(f"plot: a roofline of {len(results)} kernels, wants 1 to {len(LOOKS)}")
    if names is not None and len(names) != len(results):
        raise GpusimError(f"plot: {len(names)} names of {len(results)} kernels, wants one each")
    found = []
    for item, name in zip(results, names or names_of(results), strict=True):
        if item.gpu != gpu.name:
            raise GpusimError(f"plot: {name} was simulated on {item.gpu}, the roofline is of {gpu.name}; give one GPU's")
        flops = item.tflops * 1e6 * item.time_us
        if flops <= 0.0:
            raise GpusimError(f"plot: {name} has no arithmetic, or takes no time: it has no place on a roofline")
        dram = sum(item.counters.get(f"dram__bytes_{way}.sum", 0.0) for way in ("read", "write"))
        sectors = sum(item.counters.get(f"lts__t_sectors_srcunit_tex_op_{way}.sum", 0.0) for way in ("read", "write"))
        found.append(Placed(
            name=name, tflops=item.tflops, mhz=item.sm_clock_mhz, peak_tflops=item.peak_tflops_at_clock,
            types=types_of(item, gpu), dram_flops_per_byte=flops / dram if dram else inf,
            l2_flops_per_byte=flops / (sectors * SECTOR_BYTES) if sectors else inf,
        ))  # fmt: skip
    return found


def names_of(results: Sequence[Result]) -> list[str]:
    """Label of each kernel: its name, and the parameters that differ where several have one name.

    Kernels with equal parameters are numbered.
    """
    names = []
    for item in results:
        same_kernel = [other for other in results if other.kernel == item.kernel]
        differ = [key for key in item.params if len({str(other.params.get(key)) for other in same_kernel}) > 1]
        words = [f"{flag(key)} {item.params[key]}" for key in differ[:3]]
        names.append(" ".join([item.kernel, *words]))
    return [f"{name} ({names[: idx + 1].count(name)})" if names.count(name) > 1 else name for idx, name in enumerate(names)]


def l2_gb_per_s(gpu: GpuSpec, mhz: float) -> float:
    """GB/s that the L2 slices sustain at an SM clock. L2 has a separate clock, which falls less than the SM clock."""
    return Shared.of(gpu, Clock(sm_mhz=mhz)).slices_bytes_per_cycle * mhz * 1e-3


def types_of(result: Result, gpu: GpuSpec) -> tuple[str, ...]:
    """Keys of :data:`CLASSES` whose rate in the fastest unit is the kernel's; the kernel's class where several match."""
    core, per_sm = gpu.tensor_core, result.peak_tflops_at_clock * 1e6 / (result.sm_clock_mhz or inf) / gpu.num_sms
    rates = {**(core.wgmma_flops_per_cycle or core.mma_sync_flops_per_cycle), "fp32": 2.0 * gpu.warp_scheduler.fp32_lanes}
    found = tuple(name for name, rate in rates.items() if rate > 0.0 and abs(per_sm / rate - 1.0) < CLOSE)
    return (result.activity.rate_class,) if result.activity.rate_class in found else found


def ceilings(gpu: GpuSpec, mhz: float, types: Collection[str] = ()) -> dict[str, float]:
    """TFLOP/s of the full device at an SM clock, by unit and types. Units with equal rates share a line.

    ``types``: the types to include; all if empty.
    """
    core = gpu.tensor_core
    per_cycle: dict[str, float] = {}
    for kind, rates in (("wgmma", core.wgmma_flops_per_cycle), ("mma.sync", core.mma_sync_flops_per_cycle)):
        for name, flops in rates.items():
            if not types or name in types:
                per_cycle[f"{kind} {CLASSES.get(name, name)}"] = flops
    if not types or "fp32" in types:
        per_cycle["FMA fp32"] = 2.0 * gpu.warp_scheduler.fp32_lanes
    by_rate: dict[float, list[str]] = {}
    for name, flops in per_cycle.items():
        by_rate.setdefault(flops, []).append(name)
    return {joined(names): flops * gpu.num_sms * mhz * 1e-6 for flops, names in by_rate.items() if flops > 0.0}


def joined(names: Sequence[str]) -> str:
    """Label of one ceiling, with each unit named once.

    >>> joined(["wgmma fp8", "wgmma int8", "mma.sync fp8"])
    'wgmma fp8, int8; mma.sync fp8'
    """
    units: dict[str, list[str]] = {}
    for name in names:
        unit, _, types = name.partition(" ")
        units.setdefault(unit, []).append(types)
    return "; ".join(f"{unit} {', '.join(types)}" for unit, types in units.items())


def _draw(placed: list[Placed], gpu: GpuSpec, mhz: float) -> Any:
    from matplotlib.lines import Line2D

    tops = ceilings(gpu, mhz, {name for item in placed for name in item.types} if all(item.types for item in placed) else ())
    hbm, l2 = gpu.hbm.sustained_read_gb_per_s, l2_gb_per_s(gpu, mhz)
    finite = [value for item in placed for value in (item.dram_flops_per_byte, item.l2_flops_per_byte) if value < inf]
    highest = max(tops.values())
    left = min([*finite, 1e3 * min(tops.values()) / l2]) / 3.0
    right = max([*finite, 1e3 * highest / hbm]) * 3.0
    bottom = min([*(item.tflops for item in placed), min(tops.values())]) / 3.0
    figure = new_figure(8.2, 5.4)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, highest * 2.2)
    used = {round(item.peak_tflops / item.mhz, 9) for item in placed}
    ridges = []
    for tflops in tops.values():
        is_used = round(tflops / mhz, 9) in used
        ridges += [tflops] if is_used else []
        axes.plot(
            [1e3 * tflops / l2, right], [tflops, tflops], color="black" if is_used else "#808080",
            linewidth=1.8 if is_used else 0.9, zorder=1,
        )  # fmt: skip
    roofs = []
    for words, gb_per_s, line in (("HBM", hbm, "-"), ("L2", l2, "--")):
        end = 1e3 * highest / gb_per_s
        axes.plot([left, end], [left * gb_per_s * 1e-3, highest], color="black", linestyle=line, linewidth=1.8, zorder=2)
        at = max(left * 1.25, bottom * 1.6e3 / gb_per_s)
        roofs.append(axes.text(
            at, at * gb_per_s * 1.06e-3, f"{words} {gb_per_s:,.0f} GB/s", fontsize=8, rotation_mode="anchor", va="bottom",
        ))  # fmt: skip
    _mark_ridges(axes, ridges, hbm, l2)
    for item, (colour, marker) in zip(placed, LOOKS, strict=False):
        ends = [value for value in (item.l2_flops_per_byte, item.dram_flops_per_byte) if value < inf]
        axes.plot(ends, [item.tflops] * len(ends), color=colour, linewidth=0.8, linestyle=":", zorder=3)
        for value, is_full in ((item.dram_flops_per_byte, True), (item.l2_flops_per_byte, False)):
            if value < inf:
                axes.plot(
                    value, item.tflops, color=colour, marker=marker, markersize=8, linestyle="", zorder=4,
                    markerfacecolor=colour if is_full else "white", markeredgecolor=colour, markeredgewidth=1.4,
                )  # fmt: skip
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=8, linestyle="", label=(
            f"{item.name}: {number(round(item.tflops, 1))} TFLOP/s, {percent(item.tflops / item.roof_tflops(hbm))} of its "
            "roof"
        ))
        for item, (colour, marker) in zip(placed, LOOKS, strict=False)
    ]  # fmt: skip
    grey: Mapping[str, Any] = {"color": "#606060", "marker": "o", "markersize": 8, "linestyle": ""}
    handles.append(Line2D([], [], label="full: per byte of memory", **grey))
    handles.append(Line2D([], [], label="hollow: per byte of L2", markerfacecolor="white", **grey))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    axes.set_xlabel("arithmetic intensity (FLOP/B)")
    is_one = len({round(item.mhz) for item in placed}) == 1
    axes.set_ylabel(f"throughput (TFLOP/s{')' if is_one else '); ceilings and L2'} at {mhz:,.0f} MHz")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: number(round(float(value), 6)))
        axis.set_minor_formatter(lambda value, _: number(round(float(value), 6)) if f"{value:e}"[0] in "25" else "")
    axes.grid(which="major", color="#DDDDDD", linewidth=0.5)
    axes.set_title(f"Roofline of {gpu.name}: sustained rates of memory and L2", loc="left", fontweight="bold")
    _name_ceilings(axes, figure, tops, right)
    _name_points(axes, figure, placed)
    figure.draw_without_rendering()  # places the axes, which gives the angle of the roofs
    (x0, y0), (x1, y1) = axes.transData.transform([(1.0, 1.0), (10.0, 10.0)])
    for text in roofs:
        text.set_rotation(degrees(atan2(y1 - y0, x1 - x0)))
    return figure


def _mark_ridges(axes: Any, peaks: Sequence[float], hbm: float, l2: float) -> None:
    """Mark where a roof meets a ceiling in use, with its FLOP per byte."""
    for peak in peaks:
        for gb_per_s, side in ((hbm, "left"), (l2, "right")):
            at = 1e3 * peak / gb_per_s
            axes.scatter([at], [peak], marker="|", s=90, color="black", linewidths=1.4, zorder=3)
            axes.annotate(
                f"ridge {number(round(at, 1))}", (at, peak), xytext=(0.0, 6.0), textcoords="offset points", ha=side,
                va="bottom", fontsize=7.5,
            )


def _name_points(axes: Any, figure: Any, placed: Sequence[Placed]) -> None:
    """Label each point with the kernel's name and throughput; labels of close points are stacked."""
    height, at = 8.0 * 1.4 / 72.0 * figure.dpi, inf
    for item in sorted(placed, key=lambda item: -item.tflops):
        x = item.dram_flops_per_byte if item.dram_flops_per_byte < inf else item.l2_flops_per_byte
        if x == inf:
            continue
        here = float(axes.transData.transform((x, item.tflops))[1])
        at = min(here - height, at - height)
        axes.annotate(
            f"{item.name}: {item.tflops:,.1f} TFLOP/s", (x, item.tflops),
            xytext=(0.0, (at - here) * 72.0 / figure.dpi), textcoords="offset points", ha="center", va="center", fontsize=8,
            zorder=5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8},
        )  # fmt: skip


def _name_ceilings(axes: Any, figure: Any, tops: Mapping[str, float], right: float) -> None:
    """Label each ceiling at its right end; labels of close ceilings are stacked."""
    figure.draw_without_rendering()
    height = 7.5 * 1.35 / 72.0 * figure.dpi
    at = inf
    for name in sorted(tops, key=lambda name: -tops[name]):
        here = float(axes.transData.transform((right, tops[name]))[1])
        at = min(here, at - height)
        axes.annotate(
            f"{name}: {tops[name]:,.0f}", (right, tops[name]), xytext=(14.0, (at - here) * 72.0 / figure.dpi),
            textcoords="offset points", ha="left", va="center", fontsize=7.5, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "#808080", "linewidth": 0.6, "shrinkA": 1.0, "shrinkB": 0.0,
                        "relpos": (0.0, 0.5)},
        )  # fmt: skip
