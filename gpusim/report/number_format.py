"""Number formats: units of GPU parameters by name, scaled bytes, times and percentages, counts with nouns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpusim.workload.compiled_code import CompiledCode

CLOCK_MODES: Mapping[str, str] = {
    "max": "the highest that the GPU has",
    "single": "predicted for one launch, over before the power limit bites fully",
    "sustained": "predicted for half a second back to back under the power limit",
    "fixed": "given with --clock",
}
"""Explanation of each way to choose a clock."""

UNITS: tuple[tuple[str, str], ...] = (
    ("_flops_per_cycle", "FLOP/cycle"),
    ("_bytes_per_cycle", "B/cycle"),
    ("_cycles_per_cta", "cycles/CTA"),
    ("_warp_cycles_per_wavefront", "warp cycles/wavefront"),
    ("_cycles_per_wavefront", "cycles/wavefront"),
    ("_pj_per_flop", "pJ/FLOP"),
    ("_pj_per_byte", "pJ/B"),
    ("_mhz_per_w", "MHz/W"),
    ("_mhz_us", "MHz us"),
    ("_gb_per_s", "GB/s"),
    ("_per_mb", "per MB"),
    ("_packets", "packets"),
    ("_per_cycle", "per cycle"),
    ("_per_thread", "per thread"),
    ("_flops_per_byte", "FLOP/B"),
    ("_tflops", "TFLOP/s"),
    ("_cycles", "cycles"),
    ("_bytes", "bytes"),
    ("_kib", "KiB"),
    ("_mib", "MiB"),
    ("_wavefronts", "wavefronts"),
    ("_sectors", "sectors"),
    ("_fraction", "fraction"),
    ("_mhz", "MHz"),
    ("_pct", "%"),
    ("_ns", "ns"),
    ("_us", "us"),
    ("_w", "W"),
)
"""Unit by the last words of a parameter's name; the longest comes first."""


def unit_of(parameter: str) -> str:
    """Unit of ``component.parameter`` or ``component.parameter.entry``, from its name; empty for a count.

    >>> unit_of("hbm.sustained_read_gb_per_s"), unit_of("device.peak_tflops.f16"), unit_of("device.num_sms")
    ('GB/s', 'TFLOP/s', '')
    """
    name = f"_{parameter.split('.')[1]}"
    return next((unit for ending, unit in UNITS if name.endswith(ending)), "")


CAPITALS: Mapping[str, str] = {
    "ctas": "CTAs", "cta": "CTA", "sms": "SMs", "sm": "SM", "l1": "L1", "l2": "L2", "hbm": "HBM", "dram": "DRAM",
    "tma": "TMA",
}
"""Words that are written in capitals."""


def with_unit(name: str) -> str:
    """Axis label of a quantity: its words, and the unit that its name ends in.

    >>> with_unit("time_us"), with_unit("stages"), with_unit("smem_bytes"), with_unit("cycles"), with_unit("num_ctas")
    ('time (us)', 'stages', 'smem (bytes)', 'cycles', 'number of CTAs')
    """
    if "__" in name:  # an Nsight Compute metric
        return name
    ending, unit = next(((ending, unit) for ending, unit in UNITS if f"_{name}".endswith(ending)), ("", ""))
    words = f"_{name}".removesuffix(ending).strip("_")
    words = f"number of {words[4:]}" if words.startswith("num_") else words
    words = " ".join(CAPITALS.get(word, word) for word in words.replace("_", " ").split())
    return f"{words} ({unit})" if words and unit else words or unit


def number(value: Any) -> str:
    """Text of a value with at most six digits and thousands separators.

    >>> number(1234567), number(0.71), number(3352.0), number("cp_async"), number(1234.5678)
    ('1,234,567', '0.71', '3,352', 'cp_async', '1,234.57')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-" if value is None else str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.2f}"
    return f"{value:.6g}"


LONGEST = 48
"""Most characters of a value in a table."""


def shortened(text: str) -> str:
    """Value that fits into a table: of a long list its first items, and their number.

    >>> shortened("0,2,1,3"), shortened(",".join(map(str, range(132))))
    ('0,2,1,3', '0,1,2,3,4,5,6,7,8,9,10,11,12,13,... (132 places)')
    """
    if len(text) <= LONGEST:
        return text
    beginning = text[: LONGEST - 16].rpartition(",")[0]
    return f"{beginning},... ({text.count(',') + 1} places)" if beginning else text


def scaled(value: float, units: Iterable[tuple[float, str]]) -> str:
    """``value`` in the largest of ``units`` (factor, name; ascending) that leaves 1 or more, to four digits."""
    ladder = list(units)
    factor, name = ladder[0]
    for size, unit in ladder:
        if abs(value) >= size:
            factor, name = size, unit
    amount = value / factor
    digits = 0 if amount == int(amount) else 3 if abs(amount) < 10 else 2 if abs(amount) < 100 else 1
    return f"{amount:,.{digits}f} {name}"


def duration(seconds: float) -> str:
    """Seconds in a suitable unit.

    >>> duration(0.0000123), duration(0.25), duration(3e-9), duration(12.5)
    ('12.30 us', '250 ms', '3 ns', '12.50 s')
    """
    return scaled(seconds, [(1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s")])


def energy(joules: float) -> str:
    """Joules in a suitable unit."""
    return scaled(joules, [(1e-6, "uJ"), (1e-3, "mJ"), (1.0, "J")])


def size(num_bytes: float) -> str:
    """Bytes in a suitable unit.

    >>> size(232448), size(100), size(50 * 2**20)
    ('227 KiB', '100 B', '50 MiB')
    """
    return scaled(num_bytes, [(1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB")])


def percent(share: float) -> str:
    """Fraction as percent with one decimal; a positive value that would round to 0.0 % is "<0.1 %".

    >>> percent(0.8312), percent(0.0), percent(0.0001)
    ('83.1 %', '0.0 %', '<0.1 %')
    """
    return "<0.1 %" if 0.0 < share < 0.0005 else f"{100.0 * share:.1f} %"


def count(amount: float, one: str, many: str = "") -> str:
    """Amount with its noun.

    >>> count(1, "CTA"), count(12345, "event")
    ('1 CTA', '12,345 events')
    """
    return f"{number(amount)} {one if amount == 1 else many or one + 's'}"


def flag(option: str) -> str:
    """Option as it is typed.

    >>> flag("out_dtype")
    '--out-dtype'
    """
    return f"--{option.strip('-').rstrip('_').replace('_', '-')}"


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options as command-line words; None is left out.

    >>> option_words({"m": 256, "out_dtype": "bf16", "persistent": True, "bias": False, "tile": None})
    ['--m', '256', '--out-dtype', 'bf16', '--persistent', '--no-bias']
    """
    words: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(flag(name) if value else f"--no-{flag(name)[2:]}")
        elif isinstance(value, CompiledCode):
            words += ["--sass" if value.source == "sass" else flag(name), value.origin]
        elif value is not None:
            words += [flag(name), str(value)]
    return words


USUAL_SETTINGS: Mapping[str, str] = {"clock": "single", "l2": "cold", "data": "random", "engine": "native"}
"""Defaults of a simulation's settings on the command line."""


def setting_words(settings: Mapping[str, Any]) -> list[str]:
    """Settings that differ from USUAL_SETTINGS as command-line words.

    >>> setting_words({"clock": 1755.0, "l2": "cold"})
    ['--clock', '1755']
    """
    given = {name: settings.get(name, usual) for name, usual in USUAL_SETTINGS.items()}
    texts = {name: f"{value:g}" if isinstance(value, float) else value for name, value in given.items()}
    return option_words({name: text for name, text in texts.items() if text != USUAL_SETTINGS[name]})
