"""Calibration of GPU parameters from measured rows: every second config of a sweep is fitted, the others judge.

In: measured tables, the cases that interpret their rows, the GPU's description. Out: lines for ``configs/<gpu>.toml`` that a
person takes over, each with its source, and the value that the judging half of the rows gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.errors import ConfigError, nearest
from gpusim.evidence.cases.case import Case, Fitted, FittedConstant, asked, key_of
from gpusim.evidence.cases.rows import Row, Table, config_of
from gpusim.evidence.toolchain.cuda_toolkit import FOLDERS
from gpusim.machine.description import parameter_hint

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One parameter, before and after calibration.

    ``judged`` is the value from the other half of the rows; NaN if they give none.
    """

    parameter: str
    before: float
    after: float
    judged: float
    source_before: str
    source: str
    is_integer: bool = False
    """Whether the description has an integer there."""

    @property
    def text(self) -> str:
        """The number as a description has it."""
        return self._text(self.after)

    @property
    def text_before(self) -> str:
        """The number before, as many digits of it."""
        return self._text(self.before)

    def _text(self, value: float) -> str:
        return str(round(value)) if self.is_integer else _rounded(value)

    @property
    def change_pct(self) -> float:
        """Change of the parameter in percent."""
        return _percent(self.after, self.before)

    @property
    def judged_pct(self) -> float:
        """Difference from the value of the judging rows, in percent."""
        return _percent(self.after, self.judged)


def _percent(value: float, reference: float) -> float:
    return 100.0 * (value - reference) / reference if reference else float("nan")


def halves(case: Case, table: Table) -> tuple[list[Row], list[Row]]:
    """(rows that calibrate, rows that judge): configs at even and odd positions of their group, in the case's order.

    If there is nothing to calibrate, all rows judge.
    """
    if not case.calibrates:
        return [], list(table.rows)
    place: dict[tuple[str, str], dict[Any, int]] = {}
    sorted_out: tuple[list[Row], list[Row]] = ([], [])
    for row in table.rows:
        who = (row["group"], row["seed"])
        if who not in place:
            configs = case.configs(row["group"], int(row["seed"])) if row["group"] in case.groups else []
            place[who] = {key_of(config): idx for idx, config in enumerate(configs)}
        idx = place[who].get(key_of(config_of(row, case.columns)))
        sorted_out[1 if idx is None else idx % 2].append(row)  # configs that the case no longer has are not fitted
    return sorted_out


def calibrate(cases: Iterable[Case], folder: Path, gpu: GpuSpec) -> list[Line]:
    """Parameters fitted from the tables in ``folder``, in the order of the cases.

    Raises:
        ConfigError: a case fits a parameter that the GPU's description lacks, or two cases fit the same one.
    """
    lines: dict[str, Line] = {}
    for case in cases:
        path = folder / f"{case.name}.csv"
        if not case.calibrates or not path.exists():
            continue
        table = Table.read(path)
        table.check_gpu(gpu.base_name, FOLDERS)
        fitting, judging = halves(case, table)
        others = {fitted.parameter: fitted.value for fitted in case.fitted(judging, gpu)}
        for fitted in case.fitted(fitting, gpu):
            if fitted.parameter in lines:
                raise ConfigError(f"{case.name}: fits {fitted.parameter}, as another kernel does: let one of them do it")
            lines[fitted.parameter] = _line(case, fitted, table, others, gpu)
    return list(lines.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantLine:
    """A constant of a microbenchmark's model: as stated in the code, and as fitted to the calibrating half of the rows."""

    kernel: str
    constant: FittedConstant
    stated: float

    @property
    def agrees(self) -> bool:
        """Whether the code states the fitted value."""
        return self.constant.agrees(self.stated)


def fitted_constants(case: Case, table: Table, gpu: GpuSpec) -> list[ConstantLine]:
    """Constants of the model of ``case``, fitted to the calibrating half of ``table``, which ``gpu`` gave.

    Raises:
        ConfigError: the case's code has no such constant.
    """
    fitting, _ = halves(case, table)
    return [
        ConstantLine(kernel=case.name, constant=constant, stated=case.stated(constant))
        for constant in asked(case, "fitted_constants", case.fitted_constants, fitting, gpu)
    ]


def _line(case: Case, fitted: Fitted, table: Table, others: Mapping[str, float], gpu: GpuSpec) -> Line:
    before = parameter(gpu, fitted.parameter)
    is_integer = isinstance(_value(gpu, fitted.parameter), int)
    date = max((str(run.get("date", ""))[:10] for run in table.runs), default="")
    return Line(
        parameter=fitted.parameter, before=before, after=fitted.value, judged=others.get(fitted.parameter, float("nan")),
        source_before=gpu.sources[".".join(fitted.parameter.split(".")[:2])],
        source=f"measured: kernels/{case.name}, {gpu.name}, {date}: {fitted.how}", is_integer=is_integer,
    )  # fmt: skip


def parameter(gpu: GpuSpec, name: str) -> float:
    """Number in a GPU's description by ``component.parameter``, or ``component.parameter.class`` if it has classes.

    >>> from gpusim.machine.config import load_gpu
    >>> parameter(load_gpu("toy"), "hbm.latency_ns") > 0, parameter(load_gpu("h200_sxm"), "device.peak_tflops.fp32")
    (True, 67.0)

    Raises:
        ConfigError: there is no such parameter, or it is no number.
    """
    value = _value(gpu, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{gpu.name}: {name} is no number: fit one of its parts")
    return float(value)


def _value(gpu: GpuSpec, name: str) -> Any:
    parameter_name = ".".join(name.split(".")[:2])
    if parameter_name not in gpu.sources:
        raise ConfigError(f"{gpu.name} has no parameter {name!r}; {parameter_hint(name, gpu.sources)}")
    component, key, *of_class = name.split(".")
    value = getattr(getattr(gpu, component), key)
    if of_class and isinstance(value, Mapping):
        if of_class[0] not in value:
            raise ConfigError(f"{gpu.name}: {parameter_name} has no {of_class[0]!r}; {nearest(of_class[0], value)}")
        value = value[of_class[0]]
    return value


def toml_lines(lines: Sequence[Line], gpu: GpuSpec | None = None) -> str:
    """TOML lines to take over, by component, numbers first and sources after them.

    If a parameter has a number for each class, the classes without rows keep the numbers of ``gpu``.
    """
    return "\n\n".join(
        "\n".join([f"[{section}]", *(f"{key} = {value}" for key, value in values.items())])
        for section, values in statements(lines, gpu).items()
    )


def statements(lines: Sequence[Line], gpu: GpuSpec | None = None) -> dict[str, dict[str, str]]:
    """Values in TOML by section of a description and key: numbers of a component, then their sources."""
    found: dict[str, dict[str, str]] = {}
    classes: dict[tuple[str, str], dict[str, str]] = {}
    for line in lines:
        component, key, *of_class = line.parameter.split(".")
        title = component if component == "device" else f"component.{component}"
        values, sources = found.setdefault(title, {}), found.setdefault(f"{title}.source", {})
        values[key] = line.text
        if of_class:
            kept = _value(gpu, f"{component}.{key}") if gpu else {}
            numbers = classes.setdefault((component, key), {_key(name): repr(value) for name, value in kept.items()})
            numbers[_key(of_class[0])] = line.text
            values[key] = f"{{ {', '.join(f'{name} = {number}' for name, number in numbers.items())} }}"
        sources.setdefault(key, f'"{_quoted(line.source)}"')
    return found


def _rounded(value: float) -> str:
    """TOML number with four significant digits.

    >>> _rounded(273.46), _rounded(0.0123456), _rounded(132.0), _rounded(4917.3)
    ('273.5', '0.01235', '132.0', '4917.0')
    """
    return repr(float(f"{value:.4g}"))


def _key(name: str) -> str:
    """TOML key, quoted if necessary."""
    return name if name.replace("_", "").isalpha() else f'"{name}"'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
