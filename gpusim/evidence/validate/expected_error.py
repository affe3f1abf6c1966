"""Expected error of a prediction: the P90 of its family's measured rows (``validation/held_out.toml``).

No row of a validation kernel was used for fitting. For families that are held out, nobody looked at a row, either. Their
error is the one to expect of a kernel that nobody has measured.

Errors of one GPU are never used for another. If no row of a GPU was judged, steps of published GEMM ladders on it are used.
Without these its predictions are outside of what was validated.
"""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpusim.errors import ConfigError
from gpusim.evidence.cases.paths import CYCLES, ESTIMATED_CYCLES, held_out_families, kernels_dir
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.options import KernelParams

SIZES: tuple[str, ...] = ("m", "n", "k", "elements", "rows", "columns", "table_rows")
"""Problem sizes, which may be twice as large or half as small as those of all rows. Other numbers lie within their range."""

EXTENTS: tuple[str, ...] = ("tile",)
"""Words of numbers joined by x, each of which must lie within its range. Other words are those of a row."""

COMPILED: tuple[str, ...] = ("compiled_code", "registers", "setmaxnreg")
"""Options that follow from a kernel's tile and its compiler."""

LADDER = "_ladder_"
"""Between kernel and GPU in the names of files of published kernels."""

ALIKE: Mapping[str, str] = MappingProxyType({"fp16": "bf16"})
"""Types with the size and rate of a type that rows have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Expected error: P90 of a family's cycles, or of the time of published steps."""

    p90_pct: float
    gpu: str
    """GPU of the judged rows."""
    family: str
    """Family of the judged rows."""
    is_held_out: bool = False
    """Whether nobody has looked for mechanisms in that family's rows."""
    num_published: int = 0
    """Number of judged steps of published ladders, whose speeds others measured; 0 where measured rows were judged."""
    code: str = ""
    """Code of the judged rows: ``own`` (the kernel's own, from its SASS) or ``estimated``; empty where no kernel has any."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """P90 of those rows' counters, by Nsight Compute metric: percent of the measured value, hit rates in points."""

    @property
    def what(self) -> str:
        """Quantity of the error: cycles, or time where speeds were published."""
        return "time" if self.num_published else "cycles"

    @property
    def text(self) -> str:
        """Explanation of the error in words."""
        if self.num_published:
            steps = f"{self.num_published} step{'s' * (self.num_published > 1)}"
            return f"nine in ten of {steps} of published {self.family} ladders on {self.gpu} were closer"
        kind = "held-out family" if self.is_held_out else "family"
        code = {"own": ", with their own code,", "estimated": ", with estimated code,"}.get(self.code, "")
        return f"nine in ten rows of the {kind} {self.family} on {self.gpu}{code} were closer"


def expected_error(kernel: str, gpu: str, params: Mapping[str, Any] | None = None) -> Expected | None:
    """Expected error of a prediction of ``kernel`` on ``gpu`` with ``params``; None where nothing judged it.

    Rows of the prediction's family come first, then rows of all families of the kernel, then published ladders. Where one
    option is unlike those rows, rows of a family in which it differs are taken.
    """
    of_gpu, params = _measured().get(gpu, {}), _with_derived(kernel, params)
    for first in dict.fromkeys((family_of(kernel, params), kernel)):
        family, of_family = first, of_gpu.get(first, {})
        if CYCLES in of_family and outside_rows(of_family, kernel, params):
            family = knob_family(of_gpu, of_family, kernel, params)
            of_family = of_gpu.get(family, {})
            if not family:
                return None
        code = code_of(of_family, params)
        p90 = of_family.get(ESTIMATED_CYCLES if code == "estimated" else CYCLES)
        if p90 is not None:
            return Expected(
                p90_pct=float(p90), gpu=gpu, family=family, is_held_out=family in held_out_families(), code=code,
                counters={name: float(value) for name, value in of_family.items() if name not in ("rows", ESTIMATED_CYCLES)},
            )
    errors = sorted(_published_errors(kernel, gpu))
    if not errors or outside(_published_ranges(kernel, gpu), params):
        return None
    p90 = errors[math.ceil(0.9 * len(errors)) - 1]
    return Expected(p90_pct=math.ceil(1000.0 * p90) / 10.0, gpu=gpu, family=kernel, num_published=len(errors))


def code_of(of_family: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Code of the judged rows that are like a prediction; empty where the family was judged with one kind alone.

    >>> code_of({CYCLES: 8.9, ESTIMATED_CYCLES: 10.8}, {"compiled_code": "estimated"})
    'estimated'
    >>> code_of({CYCLES: 8.9}, {"compiled_code": "estimated"}), code_of({CYCLES: 8.9, ESTIMATED_CYCLES: 10.8}, {})
    ('', '')
    """
    if ESTIMATED_CYCLES not in of_family or "compiled_code" not in params:
        return ""
    return "estimated" if params["compiled_code"] == "estimated" else "own"


def knob_family(
    of_gpu: Mapping[str, Mapping[str, Any]], of_family: Mapping[str, Any], kernel: str, params: Mapping[str, Any]
) -> str:
    """Family whose rows set the options in which a kernel differs from those of ``of_family``; empty if there is none.

    With usual values of these options the kernel must be like the rows of ``of_family``.
    """
    model = KERNEL_MODELS.get(kernel)
    knobs = model.knobs(params) if model else {}
    usual = {name: value for family in knobs.values() for name, value in family.items()}
    if outside_rows(of_family, kernel, {**params, **usual}):
        return ""
    return next((name for name in knobs if name in of_gpu and not outside(of_gpu[name].get("rows", {}), params)), "")


def outside_rows(of_family: Mapping[str, Any], kernel: str, params: Mapping[str, Any]) -> str:
    """Parameter of a prediction that is unlike all judged rows of a family, in words; empty if there is none.

    >>> outside_rows({"rows": {"m": [64, 8192]}}, "gemm", {"m": 64, "ctas": 132, "unroll": None})
    'ctas is 132, no row sets it'
    """
    rows = of_family.get("rows", {})
    if not rows:
        return ""
    if why := outside(rows, {"kernel": kernel, **params}):
        return why
    unset = (name for name in params if name not in (*rows, *COMPILED) and params[name] is not None)
    return next((f"{name} is {params[name]}, no row sets it" for name in unset), "")


def outside(rows: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Parameter that is unlike all rows, in words; empty if all lie within ``rows``, the ranges of a family's options.

    >>> outside({"m": [64, 8192], "dtype": ["bf16"]}, {"m": 1, "dtype": "bf16"})
    'm is 1, rows have 64 to 8192'
    >>> outside({"m": [64, 8192], "dtype": ["bf16"]}, {"m": 16384, "dtype": "int8"})
    'dtype is int8, rows have bf16'
    >>> outside({"tile": ["64x64x64", "256x128x64"]}, {"tile": "128x256x64"})
    'tile is 128x256x64, rows have 64x64x64 to 256x128x64'
    """
    for name, known in rows.items():
        value = params.get(name)
        if value is None:
            continue
        if name in EXTENTS:
            least, most, extents = (tuple(map(int, str(text).split("x"))) for text in (*known, value))
            if not all(low <= extent <= high for low, extent, high in zip(least, extents, most, strict=True)):
                return f"{name} is {value}, rows have {known[0]} to {known[1]}"
        elif isinstance(known[0], int | float) and not isinstance(known[0], bool):
            least, most = known
            slack = 2.0 if name in SIZES else 1.0
            if not least / slack <= float(value) <= most * slack:
                return f"{name} is {value}, rows have {least}" + (f" to {most}" if most != least else "")
        elif ALIKE.get(str(value), value) not in known:
            return f"{name} is {value}, rows have {', '.join(map(str, known))}"
    return ""


def unknown(kernel: str, gpu: str, params: Mapping[str, Any] | None = None) -> str:
    """Reason why :func:`expected_error` has no answer.

    >>> unknown("softmax", "toy")
    'outside of what was validated: no softmax was measured on toy'
    """
    of_gpu, params = _measured().get(gpu, {}), _with_derived(kernel, params)
    for family in dict.fromkeys((family_of(kernel, params), kernel)):
        of_family = of_gpu.get(family, {})
        if CYCLES in of_family and (why := outside_rows(of_family, kernel, params)):
            return f"outside of what was validated: of the family {family} on {gpu} {why}"
    if _published_errors(kernel, gpu) and (why := outside(_published_ranges(kernel, gpu), params)):
        return f"outside of what was validated: of published ladders on {gpu} {why}"
    if gpu in _measured():
        return f"not known: no measured row on {gpu} is like it"
    return f"outside of what was validated: no {kernel} was measured on {gpu}"


def _with_derived(kernel: str, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Parameters, and what follows from them."""
    row = KERNEL_MODELS.get(kernel)
    return {**(params or {}), **(row.params.derived_of(params or {}) if row else {})}


def _measured() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    return _read(kernels_dir().parent / "validation" / "held_out.toml")


@cache
def _read(path: Path) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: cut off, or no TOML ({error}); install gpusim anew") from None


def _published_rows(kernel: str, gpu: str) -> list[dict[str, str]]:
    """Steps of published ladders of ``kernel`` on ``gpu``."""
    paths = sorted(path for path in _published().glob("*.csv") if path.name.startswith(f"{kernel}{LADDER}"))
    return [row for path in paths for row in _rows(path) if row["gpu"] == gpu]


def _published() -> Path:
    return kernels_dir().parent / "validation" / "published"


def _published_errors(kernel: str, gpu: str) -> list[float]:
    """Absolute relative errors of the time of every step of published ladders on ``gpu``, by the latest predictions."""
    keys = ("ladder", "step", "m", "n", "k")
    latest = sorted(_published().glob("predictions_*.csv"))[-1:]
    predicted = {
        tuple(row[key] for key in keys): float(row["time_us"])
        for path in latest for row in _rows(path) if row["time_us"]
    }
    return [
        abs(predicted[key] / published_us(row) - 1.0)
        for row in _published_rows(kernel, gpu) if (key := tuple(row[name] for name in keys)) in predicted
    ]


def published_us(row: Mapping[Any, str]) -> float:
    """Published time of a step: from TFLOP/s, from bytes that a copy of 2-byte elements moves, or from cycles at a clock.

    >>> published_us({"m": "1000", "n": "1000", "k": "1000", "tflops": "100"})
    20.0
    """
    if row.get("tflops"):
        return 2.0 * int(row["m"]) * int(row["n"]) * int(row["k"]) / float(row["tflops"]) / 1e6
    if row.get("gb_per_s"):
        return 4.0 * int(row["m"]) * int(row["n"]) / float(row["gb_per_s"]) / 1e3
    return float(row["cycles"]) / float(row["mhz"])


def _published_ranges(kernel: str, gpu: str) -> dict[str, list[Any]]:
    """Ranges of options in published ladders on ``gpu``, in the form of a family's rows."""
    kind, found = KERNEL_MODELS[kernel].params, []
    for row in _published_rows(kernel, gpu):
        if row.get("expressible", "yes") == "yes":
            given = kind.in_our_words({name: value for name, value in row.items() if value})
            options = kind.model_validate({name: value for name, value in given.items() if name in kind.options()})
            found.append(telling_options(kind, options.as_options()))
    return ranges_of(found)


def telling_options(kind: type[KernelParams], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that make a kernel another kernel: all that have a value, but for what a compiler made of it.

    What follows from them comes last.
    """
    names = [name for name in kind.options() if name not in COMPILED]
    return {name: options[name] for name in names if options.get(name) is not None} | dict(kind.derived_of(options))


def ranges_of(kernels: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Ranges of the options of ``kernels``: of numbers the least and the most, of words all.

    >>> ranges_of([{"m": 8, "tile": "64x32", "bias": False}, {"m": 4, "tile": "32x64", "bias": False, "copy": "tma"}])
    {'m': [4, 8], 'tile': ['32x32', '64x64'], 'bias': [False], 'copy': ['tma']}
    """
    found: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for options in kernels for name in options):
        values = [options[name] for options in kernels if name in options]
        if name in EXTENTS:
            extents = list(zip(*(map(int, str(value).split("x")) for value in values), strict=True))
            found[name] = ["x".join(str(end(of_one)) for of_one in extents) for end in (min, max)]
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            found[name] = [min(values), max(values)]
        else:
            found[name] = sorted(set(values), key=str)
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def family_of(kernel: str, params: Mapping[str, Any]) -> str:
    """Family of measured rows that a prediction belongs to; ``kernel`` itself where there is none.

    >>> family_of("softmax", {})
    'softmax'
    """
    row = KERNEL_MODELS.get(kernel)
    return kernel if row is None or row.family is None else row.family(params) or kernel
