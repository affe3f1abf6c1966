"""What rows of an H100 and of an H200 say of each parameter that both measured, as Markdown; for docs/hopper_fits.md.

In: the GPUs' descriptions, the tables that both have. Out: the page, on stdout.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import case_names, load_case
from gpusim.evidence.validate.calibrate import Line, calibrate, parameter
from gpusim.machine.config import GpuSpec, load_gpu

MEASURED = Path(__file__).resolve().parents[1] / "validation" / "measured"
FIRST, SECOND = "h100_sxm", "h200_sxm"
SAME_PCT = 5.0
"""Difference up to which one value fits both."""
UNSURE_PCT = 15.0
"""Difference between the halves of the rows from which a fit is no firm number."""

SLICES = "the L2 of the H100 has 80 slices, that of the H200 96"
MEMORY = "HBM3 in five stacks, HBM3e in six"
LATENCY = "by a latency that is published for the H100 and measured for the H200"
REASONS: Mapping[str, str] = {
    "l2.fabric_bytes_per_cycle": SLICES, "xbar.gpc_read_bytes_per_cycle": SLICES, "xbar.gpc_write_bytes_per_cycle": SLICES,
    "hbm.sustained_read_gb_per_s": MEMORY, "hbm.sustained_write_gb_per_s": MEMORY, "hbm.turnaround_fraction": MEMORY,
    "hbm.queued_turnaround_per_mb": MEMORY, "hbm.read_write_turnaround_wait_ns": MEMORY, "hbm.write_burst_ns": MEMORY,
    "hbm.queue_wait_at_half_load_ns": MEMORY, "hbm.partial_line_request_bytes": MEMORY, "l1.outstanding_bytes": LATENCY,
}
"""Why a parameter differs between the two."""
OF_SLICES = tuple(name for name, reason in REASONS.items() if reason == SLICES)

HEAD = """\
# One value for both Hoppers?

`python scripts/two_fits.py` writes this page. It fits each parameter twice, to the rows of an H100 SXM and to those of an
H200 (`gpusim calibrate`), where both measured it.

* *Difference* is the H100's fit over the H200's, less one.
* *Halves* is the fit to the rows that calibrate over that to the rows that judge, less one: how sure each fit is.
* *One value* is the geometric mean of both fits, and *error* what each is off from it.
* *Used* is what the two descriptions say. Where fits agree, each keeps its own: predictions of neither move.
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """One parameter, fitted to rows of both GPUs."""

    first: Line
    second: Line

    @property
    def name(self) -> str:
        """Its name, ``component.parameter``."""
        return self.first.parameter

    @property
    def difference_pct(self) -> float:
        """Difference of the fits in percent."""
        return 100.0 * (self.first.after / self.second.after - 1.0)

    @property
    def error_pct(self) -> float:
        """How far both are off from the value between them, in percent."""
        ratio = self.first.after / self.second.after
        return 100.0 * (math.sqrt(max(ratio, 1.0 / ratio)) - 1.0)

    @property
    def unsure_pct(self) -> float:
        """By how much the halves of the rows differ, on the GPU where it is more; 0 without a second half."""
        halves = (abs(line.judged_pct) for line in (self.first, self.second))
        return max((pct for pct in halves if not math.isnan(pct)), default=0.0)


def fits(first: GpuSpec, second: GpuSpec) -> tuple[list[Pair], list[str]]:
    """(Parameters that rows of both GPUs give, those that rows of one alone give) of the tables that both have."""
    names = {path.stem for path in (MEASURED / first.name).glob("*.csv")}
    names &= {path.stem for path in (MEASURED / second.name).glob("*.csv")}
    cases = [load_case(name) for name in case_names() if name in names]
    one, other = ({line.parameter: line for line in calibrate(cases, MEASURED / gpu.name, gpu)} for gpu in (first, second))
    return [Pair(one[name], other[name]) for name in one if name in other], sorted(set(one) ^ set(other))


def page(first: GpuSpec, second: GpuSpec) -> list[str]:
    """Lines of the page."""
    pairs, alone = fits(first, second)
    same = [pair for pair in pairs if abs(pair.difference_pct) <= SAME_PCT]
    known = [pair for pair in pairs if pair not in same and pair.name in REASONS]
    suspects = [pair for pair in pairs if pair not in same and pair.name not in REASONS]
    lines = [HEAD, f"## Properties of Hopper: within {SAME_PCT:g} %", ""]
    lines += _table(same, ("one value", "error"), lambda pair: (_number(_middle(pair)), f"{pair.error_pct:.1f} %"))
    lines += ["", "## Different GPUs", ""]
    lines += _table(known, ("why",), lambda pair: (REASONS[pair.name],))
    lines += ["", *_of_slices(pairs, first, second)]
    lines += ["", "## Suspects: they differ, and no difference between the GPUs says why", ""]
    lines += _table(suspects, ("error of one value",), lambda pair: (f"{pair.error_pct:.0f} %",))
    unsure = [pair for pair in pairs if pair.unsure_pct > UNSURE_PCT]
    lines += ["", f"## Suspects: the halves of the rows differ by more than {UNSURE_PCT:g} %", ""]
    lines += [f"* `{pair.name}`: {_percent(pair.first.judged_pct)} on {first.name}, {_percent(pair.second.judged_pct)} on "
              f"{second.name}" for pair in unsure]  # fmt: skip
    lines += [
        "", "## Given by rows of one GPU alone", "", "Tables of the other one lack groups of configs.", "",
    ]
    lines += [f"* `{name}`" for name in alone]
    lines += ["", "## Suspects: guesses on both, which no row has shown", ""]
    guesses = (name for name in first.sources if first.source_class(name) == second.source_class(name) == "guess")
    lines += [f"* `{name}`" for name in guesses]
    return lines


def _table(pairs: Sequence[Pair], titles: Sequence[str], ends: Callable[[Pair], Sequence[str]]) -> list[str]:
    """Rows of parameters, with further columns by ``ends``."""
    heads = ("Parameter", "H100", "H200", "used", "difference", "halves", *titles)
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for pair in pairs:
        one, other = pair.first, pair.second
        cells = (
            f"`{pair.name}`", _number(one.after), _number(other.after), f"{_number(one.before)}, {_number(other.before)}",
            f"{pair.difference_pct:+.1f} %", f"{_percent(one.judged_pct)}, {_percent(other.judged_pct)}", *ends(pair),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _of_slices(pairs: Sequence[Pair], first: GpuSpec, second: GpuSpec) -> list[str]:
    """What L2 and the ways to it give for each slice, on both."""
    slices = [parameter(gpu, "l2.num_slices") for gpu in (first, second)]
    lines = [f"For each slice ({slices[0]:g} and {slices[1]:g}), rates of L2 differ less:", ""]
    for pair in pairs:
        if pair.name in OF_SLICES:
            one, other = pair.first.after / slices[0], pair.second.after / slices[1]
            lines.append(f"* `{pair.name}`: {one:.2f} and {other:.2f} bytes a cycle, {100 * (one / other - 1):+.1f} %")
    return lines


def _middle(pair: Pair) -> float:
    return math.sqrt(pair.first.after * pair.second.after)


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.1f} %"


def main() -> None:
    """Print the page."""
    print("\n".join(page(load_gpu(FIRST), load_gpu(SECOND))))


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.stderr.write(f"two_fits: {error}\n")
        raise SystemExit(2) from None
