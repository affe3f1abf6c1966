"""Summary of a prediction on one screen: the verdict first, the next command last; ``--all`` prints the rest.

In: the JSON document of a prediction, so that both show equal numbers. Out: at most 25 lines of 80 to 100 columns, or 30
lines of a narrower terminal.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from gpusim.evidence.validate.expected_error import Expected
from gpusim.report.number_format import count, duration, energy, percent, scaled, size
from gpusim.report.predictions import occupancy_words, of_peak_memory

MOST_LINES, MOST_COLUMNS = 25, 100
NARROW, MOST_NARROW_LINES = 80, 30
"""Columns below which a terminal is narrow, and most lines there."""

LABEL_COLUMNS = 11
LEAST_TEXT_COLUMNS = 20
"""Columns of text next to the labels, however narrow the terminal is."""

MOST_COMMAND_LINES = 5
MOST_BUSY, MOST_COUNTERS, MOST_REMARKS = 4, 5, 3
FIRST_LEFT_OUT, LAST_LEFT_OUT = ("Busy", "Sources", "Power"), ("Compute", "Memory", "Grid", "Second", "Chosen")
"""Rows that are left out where lines are few: for remarks, too, and only if the rest would not fit."""

LEAST_COMPUTE_PCT = 10.0
"""Percent of peak FLOP/s below which a memory-bound kernel shows its bandwidth alone."""

LEAST_BUSY = 0.0005
"""Busy fraction below which a part is not listed."""

BYTES = ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"))
THOUSANDS = ((1e6, "M"), (1e9, "G"), (1e12, "T"))
"""Decimal prefixes, as in Nsight Compute."""

TILE_CHOSEN = "Chosen automatically. Rank alternatives with:"
NOT_VALIDATED = "Not validated here. Compare with a profile of Nsight Compute:"
"""Sentences above the next commands."""

COUNTERS: Mapping[str, str] = {
    "dram__bytes_read.sum": "B",
    "dram__bytes_write.sum": "B",
    "lts__t_sectors_srcunit_tex_op_read.sum": "sectors",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "wavefronts",
    "sm__inst_executed_pipe_tensor.sum": "instructions",
    "lts__t_sectors_srcunit_tex_op_write.sum": "sectors",
    "lts__t_sector_hit_rate.pct": "%",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "sectors",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "requests",
}
"""Counters by rank, with their units. The first nonzero ones are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A next command."""

    words: Sequence[str]
    why: str = ""
    """Sentence above the command."""

    def lines(self, width: int) -> list[str]:
        """Command that can be pasted, in lines of at most ``width`` columns; its first words if it is too long."""
        wrapped = command_lines(self.words, width)
        if not wrapped or len(wrapped) > MOST_COMMAND_LINES:
            wrapped = _filled(f"{shlex.join(self.words[:3])} with the same options (in full: --all)", width)
        return [*_filled(self.why, width), *wrapped]

    def short_lines(self, width: int) -> list[str]:
        """Lines with the sentence and the first words of the command."""
        return _filled(f"{self.why} {shlex.join(self.words[:2])}", width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A prediction, with information that its document lacks."""

    document: Mapping[str, Any]
    expected: Expected | None
    gpu_name: str
    """Name or path of the GPU, as typed."""
    problem: Sequence[str]
    """Command words of the kernel and the options that define the problem."""
    chosen: Sequence[str] = ()
    """Command words of options that the model chose."""
    second: str = ""
    """Configuration that came second in the choice, and its additional time."""
    steps: Sequence[Step] = ()

    def lines(self, columns: int) -> list[tuple[str, str]]:
        """(label, text) of each line, of at most ``columns`` columns together."""
        width = max(columns - LABEL_COLUMNS, LEAST_TEXT_COLUMNS)
        remarks = [one_line(remark, width) for remark in self.document["remarks"]]
        first = self.steps[0].lines(width) if self.steps else []
        rows = dict(self._rows(width))
        num_free = (MOST_LINES if columns >= NARROW else MOST_NARROW_LINES) - len(first) - sum(map(len, rows.values()))
        for label in (*FIRST_LEFT_OUT, *LAST_LEFT_OUT):
            if num_free < min(len(remarks), MOST_REMARKS if label in FIRST_LEFT_OUT else 1):
                num_free += len(rows.pop(label, ()))
        if len(remarks) > max(num_free, 0):
            kept = max(num_free - 1, 0)
            remarks = [*remarks[:kept], f"{count(len(remarks) - kept, 'remark')} more: --all"]
        num_free -= len(remarks)
        steps = list(first)
        for step in self.steps[1:]:
            for lines in (step.lines(width), step.short_lines(width)):
                if len(lines) <= num_free:
                    steps += lines
                    num_free -= len(lines)
                    break
        fixed = [line for label, texts in rows.items() for line in _labelled(label, texts)]
        return [*fixed, *_labelled("Remark", remarks, again=True), *_labelled("Next", steps)]

    def _rows(self, width: int) -> Iterator[tuple[str, list[str]]]:
        found = self.document
        yield "Verdict", _filled(self._verdict(), width)
        yield "Kernel", _cut(option_lines(self.problem, width), 2, width)
        yield "Time", _filled(
            f"{duration(found['time_us'] * 1e-6)}, {found['cycles']:,.0f} SM cycles; SM clock "
            f"{found['sm_clock_mhz']:,.0f} MHz ({_clock(found['clock_mode'])})", width
        )
        if not self._is_of_memory or found["pct_of_peak_at_clock"] >= LEAST_COMPUTE_PCT:
            yield "Compute", _filled(self._compute(), width)
        yield "Memory", _filled(self._memory(), width)
        yield "Bound by", _filled(_spaced(found["reason"].partition(";")[0]), width)
        if times := found["reason"].partition("; of the time: ")[2]:
            yield "Spent on", _filled(_spaced(times), width)
        busy = [(part, share) for part, share in found["busy"].items() if share >= LEAST_BUSY]
        if busy:
            busy.sort(key=lambda item: -item[1])
            parts = (f"{part} {percent(share)}" for part, share in busy[:MOST_BUSY])
            yield "Busy", _filled(f"{', '.join(parts)} of the cycles", width)
        yield "Error", _cut(_filled(self._error(), width), 2, width)
        if "compiled_code" in found["params"]:
            yield "Code", [one_line(found["params"]["compiled_code"], width)]
        yield "Occupancy", _filled(occupancy_words(found["occupancy"]), width)
        yield "Grid", _filled(self._grid(), width)
        yield "Power", _filled(self._power(), width)
        counters = self._counters(width)
        if counters:
            yield "Counters", counters
        if self.chosen:
            yield "Chosen", _cut(option_lines(self.chosen, width), 4, width)
        if self.second:
            yield "Second", _cut(_filled(self.second, width), 1, width)
        kinds = {"inferred": found["sources"].get("inferred", 0), "guessed": found["sources"].get("guess", 0)}
        if any(kinds.values()):
            which = ", ".join(f"{num} {kind}" for kind, num in kinds.items() if num)
            yield "Sources", _filled(f"Uses {count(sum(found['sources'].values()), 'GPU parameter')}: {which}", width)

    @property
    def _is_of_memory(self) -> bool:
        """Whether bandwidth is nearer to its peak than FLOP/s."""
        found = self.document
        return found["pct_of_peak_at_clock"] < found["pct_of_peak_memory"] or not found["peak_tflops_at_clock"]

    def _verdict(self) -> str:
        found = self.document
        speed = f"{found['tflops']:,.1f} TFLOP/s ({percent(found['pct_of_peak_at_clock'] / 100.0)} of peak)"
        if self._is_of_memory:
            speed = f"{found['memory_gb_per_s']:,.0f} GB/s of DRAM"
            speed += f" ({percent(found['pct_of_peak_memory'] / 100.0)} of peak)" if found["peak_memory_gb_per_s"] else ""
        return f"{duration(found['time_us'] * 1e-6)}, {speed}, bound by {found['bound_by']}"

    def _compute(self) -> str:
        found = self.document
        rate = f"{found['tflops']:,.1f} TFLOP/s: " if self._is_of_memory else ""  # otherwise the verdict has it
        of_clock, at_clock = percent(found["pct_of_peak_at_clock"] / 100.0), found["peak_tflops_at_clock"]
        text = f"{rate}{of_clock} of {at_clock:,.1f} TFLOP/s at this clock"
        of_sheet, peak = percent(found["pct_of_peak_datasheet"] / 100.0), found["peak_tflops_datasheet"]
        return f"{text}, {of_sheet} of {peak:,.1f} (data sheet)" if peak else text

    def _memory(self) -> str:
        found = self.document
        text = f"{found['memory_gb_per_s']:,.0f} GB/s of DRAM"
        if found["peak_memory_gb_per_s"]:
            peak = of_peak_memory(found["peak_memory_gb_per_s"], self.gpu_name)
            text += f": {percent(found['pct_of_peak_memory'] / 100.0)} of {peak}"
        return text

    def _error(self) -> str:
        expected = self.expected
        if expected is None:
            return str(self.document["expected_error_source"])
        rows = f"{'held-out ' if expected.is_held_out else ''}rows of {expected.family}"
        if expected.num_published:
            rows = f"of {count(expected.num_published, 'step')} of published {expected.family} ladders"
        code = f", {expected.code} code" if expected.code else ""
        return f"{expected.what} within {expected.p90_pct:g} % expected: nine in ten {rows}{code}"

    def _grid(self) -> str:
        found = self.document
        tiles = f" for {count(found['num_tiles'], 'tile')}" if found["num_tiles"] != found["num_ctas"] else ""
        smem = f"{size(found['smem_bytes'])} smem/CTA" if found["smem_bytes"] else "no shared memory"
        return (
            f"{count(found['num_ctas'], 'CTA')}{tiles}, {found['waves']:.2f} waves; {found['registers_per_thread']} "
            f"registers/thread, {smem}"
        )

    def _power(self) -> str:
        found = self.document
        text = f"{_watts(found['power_w'])}, {energy(found['energy_mj'] * 1e-3)} (board)"
        if found["clock_mode"] == "single" and found["power_w"] > found["power_limit_w"] * 1.005:
            text += f"; limit for launches back to back: {found['power_limit_w']:,.0f} W"
        return text

    def _counters(self, width: int) -> list[str]:
        """Counters with their expected errors; in a narrow terminal without the noun, which is in the name."""
        found = self.document
        shown = [name for name in COUNTERS if found["counters"].get(name)][:MOST_COUNTERS]
        errors = {
            name: f"{found['expected_errors'][name]:g} {'points' if name.endswith('.pct') else '%'}"
            for name in shown if name in found["expected_errors"]
        }
        values = {name: readable(found["counters"][name], COUNTERS[name]) for name in shown}
        within = {name: f"within {errors[name]}" if name in errors else "" for name in shown}
        lines = _columns((values[name], name, within[name]) for name in shown)
        if max(map(len, lines), default=0) <= width:
            return lines
        short = {
            name: value if COUNTERS[name] in ("%", "B") else value.removesuffix(f" {COUNTERS[name]}")
            for name, value in values.items()
        }
        lines = _columns((short[name], f"±{errors[name]}" if name in errors else "", name) for name in shown)
        fitting = [line for line in lines if len(line) <= width]
        return [*fitting, *([f"{len(lines) - len(fitting)} more: --all"] if len(fitting) < len(lines) else [])]


def render_summary(summary: Summary, console: Console) -> None:
    """Print one screen."""
    for label, text in summary.lines(min(console.width, MOST_COLUMNS)):
        style = "bold yellow" if label == "Remark" else "bold"
        body = (text, "bold" if label == "Verdict" else "")
        console.print(Text.assemble((f"{label:<{LABEL_COLUMNS}}", style), body), soft_wrap=True)


def readable(value: float, unit: str) -> str:
    """Counter with its unit, to four digits.

    >>> readable(170917888.0, "B"), readable(42826717.4, "sectors"), readable(79.4009, "%"), readable(512.0, "requests")
    ('170.9 MB', '42.83 M sectors', '79.4 %', '512 requests')
    """
    if unit == "%":
        return f"{value:.1f} %"
    if unit == "B":
        return scaled(value, BYTES)
    return f"{round(value):,} {unit}" if value < THOUSANDS[0][0] else f"{scaled(value, THOUSANDS)} {unit}"


def option_lines(words: Sequence[str], width: int) -> list[str]:
    """Options that can be pasted; an option that is longer than a line is broken."""
    return command_lines(words, width, indent="") or _filled(shlex.join(words), width)


def command_lines(words: Sequence[str], width: int, *, indent: str = "  ") -> list[str]:
    r"""Command that can be pasted, in lines of at most ``width`` columns; empty if an option is longer than a line.

    >>> command_lines(["gpusim", "explain", "gemm", "--m", "256", "--n", "256"], 24)
    ['gpusim explain gemm \\', '  --m 256 --n 256']
    """
    groups: list[list[str]] = []
    for word in words:
        if not groups or word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    lines = [""]
    for group in map(shlex.join, groups):
        if len(group) > width - 4:
            return []
        if len(lines[-1]) + 1 + len(group) > width - 2:
            lines[-1] += " \\"
            lines.append(f"{indent}{group}")
        else:
            lines[-1] += f" {group}" if lines[-1] else group
    return lines


def one_line(text: str, width: int) -> str:
    """Text in one line; if it is longer, its first words and a pointer to the rest."""
    return _cut(_filled(text, width), 1, width)[0]


def _columns(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Lines of a table without titles; the first column is of numbers."""
    cells = list(rows)
    first, second, _ = (max(map(len, column)) for column in zip(*cells, strict=True)) if cells else (0, 0, 0)
    return [f"{one:>{first}}  {f'{two:<{second}}  ' if second else ''}{three}".rstrip() for one, two, three in cells]


def _cut(lines: list[str], most: int, width: int) -> list[str]:
    if len(lines) <= most:
        return lines
    ending = " ... (--all)"
    last = _filled(lines[most - 1], width - len(ending))[0]
    return [*lines[: most - 1], last + ending]


def _filled(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(text.replace(" %", "\0%"), width, break_on_hyphens=False)  # a number stays with its sign
    return [line.replace("\0", " ") for line in lines]


def _labelled(label: str, lines: Iterable[str], *, again: bool = False) -> list[tuple[str, str]]:
    return [(label if again or not idx else "", line) for idx, line in enumerate(lines)]


def _spaced(text: str) -> str:
    """Text with spaces before percent signs, as elsewhere on the screen."""
    return re.sub(r"(?<=\d)%", " %", text)


def _watts(power: float) -> str:
    return f"{power:,.0f} W" if power >= 10.0 else f"{power:.2g} W"


def _clock(mode: str) -> str:
    return "given with --clock" if mode == "fixed" else f"--clock {mode}"
