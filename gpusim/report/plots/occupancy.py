"""Plot of occupancy: the resources that limit the resident CTAs of an SM, and the steps of the limit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec
from gpusim.machine.sm.occupancy import Occupancy, occupancy
from gpusim.report.number_format import count, size
from gpusim.report.plots.figure import BLUE, ORANGE, SKY, VERMILION, headline, name_right, new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot
from gpusim.simulate.plan import check
from gpusim.workload.launch import Launch

SMEM_STEPS = 512
"""Shared-memory sizes that are tried from zero to the most that a CTA may have."""

ROWS = {"registers": "registers", "smem": "shared memory", "threads": "threads", "warps": "warps", "ctas": "CTA slots"}
"""Rows of the picture, by the names of an Occupancy's limits."""


def plot_occupancy(launch: Launch, gpu: GpuSpec, path: str | Path | None = None) -> Picture:
    """Plot CTAs per SM that each resource alone admits, and the limit over registers per thread and shared memory per CTA.

    Raises:
        GpusimError: the suffix is unknown, or ``path`` cannot be written.
        LaunchError: this GPU cannot run the launch.
        OSError: the file cannot be written.
    """
    check_plot(path)
    held = check(launch, gpu)
    parts = [f"{ROWS[name]} {limit}" for name, limit in held.limits.items() if name in ROWS]
    alt = (
        f"An SM of {gpu.name} holds {count(held.ctas_per_sm, 'CTA')} of {launch.kernel}, limited by "
        f"{ROWS.get(held.limited_by, held.limited_by)}; CTAs that each would admit: {', '.join(parts)}; "
        f"{held.warps_per_sm} of {held.max_warps_per_sm} warps."
    )
    with settings():
        return picture_of(_draw(launch, gpu, held), alt, path)


def held_with(
    launch: Launch, gpu: GpuSpec, *, registers_per_thread: int | None = None, smem_bytes: int | None = None
) -> tuple[int, int]:
    """(CTAs per SM, CTAs per SM by that resource alone) with other registers per thread or bytes of shared memory.

    0 where none fits.
    """
    is_registers = registers_per_thread is not None
    try:
        found = occupancy(
            gpu, kernel=launch.kernel, num_threads=launch.num_threads,
            registers_per_thread=launch.registers_per_thread if registers_per_thread is None else registers_per_thread,
            smem_bytes=launch.smem_bytes if smem_bytes is None else smem_bytes,
        )
    except LaunchError:
        return 0, 0
    return found.ctas_per_sm, found.limits["registers" if is_registers else "smem"]


def _draw(launch: Launch, gpu: GpuSpec, held: Occupancy) -> Any:
    figure = new_figure(8.2, 5.4)
    axes: Mapping[str, Any] = figure.subplot_mosaic([["bars", "bars"], ["registers", "smem"]], height_ratios=[1.0, 1.15])
    _bars(axes["bars"], launch, gpu, held)
    most = gpu.register_file.max_registers_per_thread
    numbers = range(16, most + 1)
    _steps(
        axes["registers"], [float(number) for number in numbers],
        [held_with(launch, gpu, registers_per_thread=number) for number in numbers],
        (float(launch.registers_per_thread), held.ctas_per_sm), f"{launch.registers_per_thread} a thread",
        "registers a thread",
    )
    largest = gpu.device.smem_per_cta_bytes
    sizes = sorted({round(largest * step / SMEM_STEPS) for step in range(SMEM_STEPS + 1)} | {launch.smem_bytes})
    _steps(
        axes["smem"], [num_bytes / 1024 for num_bytes in sizes],
        [held_with(launch, gpu, smem_bytes=num_bytes) for num_bytes in sizes],
        (launch.smem_bytes / 1024, held.ctas_per_sm), size(launch.smem_bytes), "shared memory a CTA (KiB)",
    )
    handles, labels = axes["smem"].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    headline(figure, f"{launch.kernel} on {gpu.name}: {count(held.ctas_per_sm, 'CTA')} an SM, {held.warps_per_sm} of "
             f"{held.max_warps_per_sm} warps ({held.pct:.3g} %)")  # fmt: skip
    return figure


def _bars(axes: Any, launch: Launch, gpu: GpuSpec, held: Occupancy) -> None:
    device = gpu.device
    asks = {
        "registers": f"{launch.registers_per_thread} x {launch.num_threads} threads of {gpu.register_file.num_registers:,}",
        "smem": f"{size(launch.smem_bytes)} of {size(device.smem_per_sm_bytes)}, "
                f"{size(device.smem_reserved_per_cta_bytes)} more a CTA for the system",
        "threads": f"{launch.num_threads} of {device.max_threads_per_sm:,}",
        "warps": f"{launch.num_warps} of {device.max_warps_per_sm}", "ctas": f"1 of {device.max_ctas_per_sm}",
    }  # fmt: skip
    limits: Mapping[str, int] = {str(name): limit for name, limit in held.limits.items()}
    names = [name for name in ROWS if name in limits]
    most = min(max(limits[name] for name in names), max(8, 3 * held.ctas_per_sm))
    for row, name in enumerate(names):
        limit = limits[name]
        is_least = limit == held.ctas_per_sm
        axes.barh(
            row, min(limit, most), height=0.66, facecolor=ORANGE if is_least else SKY, hatch="////" if is_least else None,
            edgecolor="black", linewidth=0.6,
        )  # fmt: skip
        words = " limits" if is_least else ", bar cut" if limit > most else ""
        weight = "bold" if is_least else "normal"
        name_right(axes, min(limit, most), row, f"{limit}{words} ({asks[name]})", fontweight=weight)
    axes.axvline(held.ctas_per_sm, color="black", linestyle=":", linewidth=1.0)
    axes.set_yticks(range(len(names)), [ROWS[name] for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, most * 1.75)
    axes.set_xticks(_integer_ticks(most))
    axes.set_xlabel("CTAs an SM that each resource alone would admit")
    axes.tick_params(axis="y", length=0)


def _steps(
    axes: Any, places: list[float], found: list[tuple[int, int]], here: tuple[float, int], label: str, title: str
) -> None:
    together, alone = [both for both, _ in found], [one for _, one in found]
    most = max(4, min(max(together) + 1, 3 * here[1] + 6))
    axes.step(places, alone, where="post", color=VERMILION, linewidth=1.2, linestyle="--", label="this resource alone")
    axes.step(places, together, where="post", color=BLUE, linewidth=1.8, label="all resources")
    axes.plot(
        *here, marker="o", color=ORANGE, markeredgecolor="black", markersize=8, zorder=3, clip_on=False, linestyle="",
        label="this kernel",
    )  # fmt: skip
    is_right = here[0] > 0.75 * places[-1]
    axes.annotate(
        label, here, xytext=(-8 if is_right else 10, 9), textcoords="offset points", fontsize=8,
        ha="right" if is_right else "left", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
    )  # fmt: skip
    axes.set_xlabel(title)
    axes.set_ylabel("CTAs an SM")
    axes.set_xlim(places[0], places[-1])
    axes.set_ylim(0, most)
    axes.set_yticks(_integer_ticks(most))
    axes.grid(color="#D0D0D0", linewidth=0.5)


def _integer_ticks(most: int) -> list[int]:
    """Ticks at integers, some eight at most."""
    return list(range(0, most + 1, max(1, -(-most // 8))))
