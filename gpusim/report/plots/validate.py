"""Plot of predicted over measured Nsight Compute metrics: rows of validation kernels, by family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpusim.errors import GpusimError
from gpusim.evidence.cases.paths import held_out_families
from gpusim.evidence.cases.validation_kernel import CYCLES
from gpusim.evidence.validate.judge import Judgement
from gpusim.report.number_format import count
from gpusim.report.plots.figure import new_figure, picture_of, settings
from gpusim.report.plots.picture import Picture, check_plot

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours of Okabe and Ito, which a colour-blind reader can distinguish."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
"""Markers, which distinguish families of one colour."""

BANDS_PCT = (5.0, 10.0, 20.0)
"""Errors in percent of the shaded bands, from the inside."""
GREYS = ("#C8C8C8", "#DEDEDE", "#EFEFEF")


def plot_validation(found: Sequence[Judgement], path: str | Path | None = None, *, gpu: str, name: str = CYCLES) -> Picture:
    """Plot the predicted ``name`` of validation kernels over the measured one, both axes logarithmic; written to ``path``.

    Rows of families that are held out are left out, since nobody may look at single ones. The picture states how many.

    Raises:
        GpusimError: the suffix is unknown, ``path`` cannot be written, or no row of a validation kernel has that number.
        OSError: the file cannot be written.
    """
    check_plot(path)
    held_out, by_family, left_out = held_out_families(), dict[str, list[tuple[float, float]]](), Counter[str]()
    for item in found:
        family = item.family or item.kernel
        if not item.is_validation or item.name != name or min(item.measured, item.predicted) <= 0.0:
            continue
        if family in held_out:
            left_out[family] += 1
        else:
            by_family.setdefault(family, []).append((item.measured, item.predicted))
    if not by_family:
        but = " but of families that are held out" if left_out else ""
        raise GpusimError(f"plot: no row of a validation kernel has {name}{but}; judge tier 6, for example of transpose")
    note = f"Not drawn: {count(left_out.total(), 'row')} of {' and '.join(sorted(left_out))}, held out: nobody looks at "
    note = f"{note}single ones." if left_out else ""
    errors = [abs(model / real - 1.0) for of in by_family.values() for real, model in of]
    alt = (
        f"Predicted over measured {name} of {len(errors)} rows of {count(len(by_family), 'family', 'families')} of validation "
        f"kernels on {gpu}: mean error {sum(errors) / len(errors):.1%}, worst {max(errors):.1%}. {note}"
    ).strip()
    with settings():
        return picture_of(_draw(by_family, gpu, name, note), alt, path)


def _draw(by_family: dict[str, list[tuple[float, float]]], gpu: str, name: str, note: str) -> Any:
    figure = new_figure(9.6, 7.4)
    axes, errors = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    points = [point for of in by_family.values() for point in of]
    low, high = min(map(min, points)) / 1.5, max(map(max, points)) * 1.5
    for band, grey in reversed(list(zip(BANDS_PCT, GREYS, strict=True))):
        share = band / 100.0
        axes.fill_between(
            [low, high], [low * (1 - share), high * (1 - share)], [low * (1 + share), high * (1 + share)], color=grey,
            linewidth=0, zorder=1, label=f"within {band:g} %",
        )
        errors.axhspan(-band, band, color=grey, linewidth=0, zorder=1)
    axes.plot([low, high], [low, high], color="#404040", linewidth=0.8, zorder=2)
    errors.axhline(0.0, color="#404040", linewidth=0.8, zorder=2)
    for idx, (family, of) in enumerate(sorted(by_family.items())):
        measured, predicted = zip(*of, strict=True)
        mean = sum(abs(model / real - 1.0) for real, model in of) / len(of)
        look: dict[str, Any] = {
            "s": 22, "zorder": 3, "color": COLOURS[idx % len(COLOURS)], "marker": MARKERS[idx % len(MARKERS)],
            "linewidths": 0.4, "edgecolors": "white",
        }  # fmt: skip
        axes.scatter(measured, predicted, label=f"{family}: {len(of)} rows, {mean:.1%}", **look)
        errors.scatter(measured, [100.0 * (model / real - 1.0) for real, model in of], **look)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    unit = " (cycles)" if "cycles" in name else ""
    axes.set_ylabel(f"predicted{unit}")
    errors.set_ylabel("error: predicted over measured, less 1 (%)")
    errors.set_xlabel("\n".join(filter(None, (f"measured: {name}{unit}", note))))
    axes.set_title(
        f"Validation kernels on {gpu}: {len(points)} rows, mean error by family", fontsize=10, loc="left", fontweight="bold"
    )
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    return figure
