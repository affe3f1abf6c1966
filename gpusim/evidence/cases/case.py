"""A measured CUDA kernel as data: its configs, launches, output checks and predictions.

``kernels/<name>/case.py`` defines ``CASE``, a :class:`Case`. Its functions need no GPU. They turn a config into data to
launch, and outputs into values, so that everything but the launch is tested without a GPU.

In: a folder of ``kernels/``. Out: :class:`Case`.

Words follow NVIDIA's nsight-python. A *config* is what varies. A *metric* is what the profiler counts. A *value* is what the
kernel itself measures. *derive* computes what follows from these.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import ConfigError, GpusimError, nearest
from gpusim.evidence.bench.timing import VALUES
from gpusim.evidence.cases import paths as places
from gpusim.evidence.cases.answers import Answer, Limit
from gpusim.evidence.cases.config_row import TAKE_A_CONFIG, ConfigRow, num_parameters, typed
from gpusim.evidence.cases.launch_args import (
    Argument,
    Input,
    KernelLaunch,
    MappedTensor,
    Operation,
    Output,
    Product,
    Repeated,
    Scratch,
    Watch,
    Windows,
    by_value,
)
from gpusim.evidence.cases.measured_gpu import MeasuredGpu, gpu_of_the_case_or, loading_for

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

__all__ = [
    "Answer",
    "Argument",
    "Input",
    "KernelLaunch",
    "Limit",
    "MappedTensor",
    "Operation",
    "Output",
    "Product",
    "Repeated",
    "Scratch",
    "Watch",
    "Windows",
    "by_value",
]
"""Names that a case imports: those of this module and those of its launch arguments."""

Config = Mapping[str, str]
"""Columns of a config as text, so that a row read from a file equals the config that was measured.

``kernel`` is the entry point."""

Outputs = Mapping[str, NDArray[Any]]
"""Output arrays of a launch, by name."""


Given = TypeVar("Given")
"""Return type of a case's function."""


class WrongAnswer(GpusimError):  # noqa: N818 - the error is the kernel's, not gpusim's
    """A kernel's output differs from the reference, so none of its numbers counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Configs that are measured together.

    Args:
        configs: maps a seed to all configs, in the same order every time and without duplicates. A sweep, the same for every
            seed, takes no argument.
        metrics: Nsight Compute metric names with their suffix. Empty: the profiler does not run.
        rank: groups of low rank come first when several kernels are measured.
        least_capability: lowest compute capability whose GPUs have the instructions.
        num_sms: the one number of SMs that the configs are made for; 0: they follow from the GPU.
        is_cold: flush all caches before each counted launch. Otherwise they keep what the previous launch left.
        times: protocols that time launches without the profiler and record the SM clock
            (:mod:`gpusim.evidence.bench.timing`): ``single``, ``sustained``.
    """

    configs: Callable[[int], Sequence[Config]] | Callable[[], Sequence[Config]]
    metrics: tuple[str, ...] = ()
    rank: int = 5
    least_capability: tuple[int, int] = (8, 0)
    num_sms: int = 0
    is_cold: bool = False
    times: tuple[Literal["single", "sustained"], ...] = ()

    def lacks(self, gpu: MeasuredGpu) -> str:
        """What ``gpu`` lacks to run the group; empty if nothing.

        >>> Group(configs=list, least_capability=(9, 0)).lacks(MeasuredGpu(capability=(8, 0)))
        'needs compute capability 9.0'
        >>> Group(configs=list, num_sms=132).lacks(MeasuredGpu(num_sms=114)), Group(configs=list).lacks(MeasuredGpu())
        ('is made for 132 SMs', '')
        """
        if gpu.capability < self.least_capability:
            return "needs compute capability {}.{}".format(*self.least_capability)
        return f"is made for {self.num_sms} SMs" if self.num_sms not in (0, gpu.num_sms) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A GPU parameter computed from measured rows.

    ``parameter`` is its name in ``GpuSpec.sources`` (``hbm.latency_ns``), in the unit that the name ends in. ``how`` says in
    a few words how the number follows from the rows ("median of the cluster", "slope over bytes").
    """

    parameter: str
    value: float
    how: str

    @classmethod
    def median(cls, parameter: str, values: Sequence[float], how: str) -> list[Fitted]:
        """Parameter that is the median of ``values``; empty without any."""
        return [cls(parameter=parameter, value=float(np.median(values)), how=how)] if values else []


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedConstant:
    """A constant in the code of a microbenchmark's model, fitted to the calibrating rows.

    ``name`` is the constant's name in ``case.py``. ``key`` holds the subscripts if it is a table or a tuple. ``how`` is as
    in :class:`Fitted`. The code states this number, rounded to as many digits as it shows.
    """

    name: str
    value: float
    how: str
    key: tuple[Any, ...] = ()

    @property
    def label(self) -> str:
        """Expression that names the constant in ``case.py``.

        >>> FittedConstant(name="LOOP_CYCLES", key=("1d",), value=215.0, how="").label
        "LOOP_CYCLES['1d']"
        """
        return self.name + "".join(f"[{key!r}]" for key in self.key)

    def agrees(self, stated: float) -> bool:
        """Whether ``stated`` is the value, rounded to as many digits as ``stated`` has.

        >>> fitted = FittedConstant(name="C", value=214.6, how="")
        >>> fitted.agrees(215.0), fitted.agrees(214.6), fitted.agrees(214.5)
        (True, True, False)
        """
        fraction = repr(float(stated)).partition(".")[2]
        return bool(round(self.value, 0 if fraction == "0" else len(fraction)) == stated)


def nothing_fitted(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Default of ``Case.fit``: the rows give no parameter and are used for judging only."""
    del rows
    return []


def no_fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """Default of ``Case.fitted_constants``: the microbenchmark's model has no fitted constant."""
    del rows, gpu
    return []


def no_options(config: Config, gpu: GpuSpec) -> Mapping[str, Any]:
    """Default of ``Case.model_options``: no kernel model predicts the kernel."""
    del config, gpu
    return {}


def no_values(config: Config) -> dict[str, float]:
    """Default of ``Case.derive``: nothing is derived."""
    del config
    return {}


def no_text_columns(config: Config, facts: Mapping[str, str]) -> dict[str, str]:
    """Default of ``Case.text_columns``: no further columns follow."""
    del config, facts
    return {}


def nothing_predicted(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Default of ``Case.predict``: the simulator predicts nothing."""
    del config, gpu
    return {}


def never_refused(config: Config, row: Mapping[str, str], gpu: GpuSpec) -> str | None:
    """Default of ``Case.refused``: no row is refused."""
    del config, row, gpu
    return None


def no_families(group: str, config: Config) -> tuple[str, ...]:
    """Default of ``Case.families``: all rows belong to one family."""
    del group, config
    return ()


def no_problem(config: Config) -> Hashable:
    """Default of ``Case.problem``: rows are not ranked."""
    del config
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel that is measured.

    Args:
        name: name of its folder.
        question: what its rows answer, in one sentence.
        config_type: dataclass of its configs. Functions that take a config get it as that; None: they get text.
        columns: columns of a config besides ``kernel``, in the order of the table; left out with ``config_type``.
        groups: groups of configs, by name.
        launch: (config, is_counted) to what is launched; ``is_counted``: under the profiler. May take the config alone.
        check: (config, outputs) to the values that the kernel measured; raises WrongAnswer.
        values: meaning and unit of every value, by name.
        checks_counted: check the outputs of the counted launch too. Otherwise only the previous launch is checked, because
            the check would add to the counts.
        num_repeats: launches without the profiler. Their median, minimum and maximum of a value are kept.
        predict: (config, GPU) to predicted metrics and values; a name may be missing.
        refused: (config, measured row, GPU) to the reason why ``predict_row`` gives nothing for the row; None: it does.
        predict_row: (config, measured row, GPU, requested names) to answers by name. Replaces ``predict`` where a prediction
            depends on another measured number, for example cycles on the row's clock.
        predict_launched: (config, text columns of a launch that was not measured, GPU) to metrics and values. Used where a
            framework chooses the kernel. Kernels outside the model's range give nothing.
        tiers: tier (validation/README.md) at which a metric or value is judged, by name; other names are not judged.
        limits: limits by name, where they differ from those of the tier.
        is_validation: a validation kernel, whose rows judge the model and calibrate nothing
            (:func:`gpusim.evidence.cases.validation_kernel.validation_case`).
        families: (group, config) to names under which the row is summarized. The first is its family. The others cut across
            families and count in no total. Empty: all rows belong to one family with the kernel's name.
        problem: config to what it computes (m, n, k and a type), so that rows of one problem are ranked; None: not ranked.
        derived: judged numbers that follow from several columns of a row, by name; None where the row lacks a column.
        fit: rows, or (rows, their GPU), to parameters of the GPU. A case with ``fit`` or ``fitted_constants`` is calibrated
            with every second config and judged by the others.
        fitted_constants: (rows, their GPU) to constants in the code of ``predict`` that were read off rows. They describe
            what the kernel does besides the operation that it measures, and come from the calibrating half, as ``fit``'s do.
            Numbers from SASS, from publications or from the kernel's definition do not belong here.
        derive: config to quantities that follow from it.
        includes: generated texts that ``kernel.cu`` includes, by file name.
        framework: ``torch`` or ``triton`` if the framework launches the kernel. Then ``launch`` gives a :class:`Product` or
            an :class:`Operation`, and there is no ``kernel.cu``. Its rows also have text columns: the kernels that ran
            (``launched``), grid and block of the longest, and what the framework reports. Counts are summed over these
            kernels.
        text_columns: (config, these text columns) to further text columns that follow from them.
        model_options: (config, GPU) to all options of the kernel model that predicts it; empty where the row has them.
        followers: entry points launched after those of configs (``KernelLaunch.following``), never by a config itself.
    """

    name: str
    question: str
    config_type: type[ConfigRow] | None = None
    columns: tuple[str, ...] = ()
    groups: Mapping[str, Group]
    launch: Callable[..., KernelLaunch | Product | Operation]
    check: Callable[[Any, Outputs], dict[str, float]]
    values: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    checks_counted: bool = True
    num_repeats: int = 1
    predict: Callable[[Any, GpuSpec], dict[str, float]] = nothing_predicted
    predict_row: Callable[[Any, Mapping[str, str], GpuSpec, Collection[str]], Mapping[str, Answer]] | None = None
    refused: Callable[[Any, Mapping[str, str], GpuSpec], str | None] = never_refused
    predict_launched: Callable[[Any, Mapping[str, str], GpuSpec], dict[str, float]] | None = None
    tiers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    limits: Mapping[str, Limit] = field(default_factory=lambda: MappingProxyType({}))
    is_validation: bool = False
    families: Callable[[str, Any], tuple[str, ...]] = no_families
    problem: Callable[[Any], Hashable] = no_problem
    derived: Mapping[str, Callable[[Mapping[str, str]], float | None]] = field(default_factory=lambda: MappingProxyType({}))
    fit: Callable[..., Sequence[Fitted]] = nothing_fitted
    fitted_constants: Callable[[Sequence[Mapping[str, str]], GpuSpec], Sequence[FittedConstant]] = no_fitted_constants
    derive: Callable[[Config], dict[str, float]] = no_values
    includes: Callable[[], dict[str, str]] = dict
    framework: Literal["torch", "triton"] | None = None
    text_columns: Callable[[Any, Mapping[str, str]], Mapping[str, str]] = no_text_columns
    model_options: Callable[[Any, GpuSpec], Mapping[str, Any]] = no_options
    followers: tuple[str, ...] = ()

    def answers(self, config: Config, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]) -> Mapping[str, Answer]:
        """Predictions for a measured row, by name; a name may be missing."""
        if self.predict_row is not None:
            return self.predict_row(config, row, gpu, names)
        return {name: Answer(value=value) for name, value in self.predict(config, gpu).items()}

    def fitted(self, rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> Sequence[Fitted]:
        """Parameters that rows of ``gpu`` give."""
        return asked(self, "fit", self.fit, *(rows, gpu)[: len(signature(self.fit).parameters)])

    @property
    def calibrates(self) -> bool:
        """Whether parameters or constants are fitted to its rows, so that only every second row judges."""
        return self.fit is not nothing_fitted or self.fitted_constants is not no_fitted_constants

    def stated(self, constant: FittedConstant) -> float:
        """Value of ``constant`` that ``case.py`` states.

        Raises:
            ConfigError: ``case.py`` has no such name or key.
        """
        try:
            found = getattr(sys.modules[self.launch.__module__], constant.name)
            for key in constant.key:
                found = found[key]
        except (AttributeError, LookupError):
            raise ConfigError(f"{self.name}: case.py has no {constant.label}, which its rows are fitted for") from None
        return float(found)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of all groups, without duplicates."""
        return tuple(dict.fromkeys(metric for group in self.groups.values() for metric in group.metrics))

    @property
    def names(self) -> frozenset[str]:
        """Names of all metrics, values, derived numbers and times that a row may hold besides its config."""
        is_timed = any(group.times for group in self.groups.values())
        return frozenset((*self.metrics, *self.values, *self.derived, *(VALUES if is_timed else ())))

    def __post_init__(self) -> None:
        """Let its functions take the config as ``config_type``; check that a validation kernel calibrates nothing.

        Raises:
            ConfigError: it has ``fit`` or ``fitted_constants``.
        """
        if self.config_type is not None:
            object.__setattr__(self, "columns", tuple(self.config_type.names()[1:]))
        for name in TAKE_A_CONFIG:
            if (function := getattr(self, name)) is not None:
                object.__setattr__(self, name, typed(function, self.config_type, place=name == "families"))
        if self.is_validation and self.calibrates:
            raise ConfigError(f"{self.name}: is a whole kernel, whose rows judge: leave fit and fitted_constants out")

    def configs(self, group: str, seed: int) -> list[Config]:
        """Configs of a group, drawn with ``seed``.

        Raises:
            ConfigError: a config's columns differ from ``columns``, or two configs are equal.
        """
        wanted = {"kernel", *self.columns}
        function = self.groups[group].configs
        configs = list(function(*(seed,)[: num_parameters(function)]))
        for config in configs:
            if set(config) != wanted:
                raise ConfigError(f"{self.name}: a config of {group!r} has {sorted(config)}: use {sorted(wanted)}")
        if len({key_of(config) for config in configs}) != len(configs):
            raise ConfigError(f"{self.name}: group {group!r} has the same config twice: use a column that tells them apart")
        return configs


def key_of(config: Config) -> tuple[tuple[str, str], ...]:
    """Hashable key of a config.

    >>> key_of({"kernel": "k", "n": "8"})
    (('kernel', 'k'), ('n', '8'))
    """
    return tuple(sorted(config.items()))


kernels_dir, kernel_folder, kernel_path = places.kernels_dir, places.kernel_folder, places.kernel_path


def case_names(folder: Path | None = None) -> list[str]:
    """Names of all kernels that can be measured: folders with a ``case.py``.

    >>> "shared_access" in case_names()
    True
    """
    return sorted(path.name for path in places.kernel_folders(folder or kernels_dir()) if (path / "case.py").exists())


def asked(case: Case, what: str, function: Callable[..., Given], *arguments: Any) -> Given:
    """Result of ``function(*arguments)``, a case's function; errors name it as ``what``.

    Raises:
        ConfigError: the function fails; the text names the line. Errors of gpusim pass unchanged.
    """
    try:
        return function(*arguments)
    except GpusimError:
        raise
    except Exception as error:
        raise ConfigError(f"{kernel_path(case.name)}/case.py: {what} fails: {_where(error)}") from error


def _where(error: BaseException) -> str:
    """Text of an error with the innermost line that raised it.

    >>> try:
    ...     {}["n"]
    ... except KeyError as error:
    ...     _where(error).split(" at ")[0]
    "KeyError 'n'"
    """
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    hint = ": nothing of that name is there, was a column renamed?" if isinstance(error, KeyError) else ""
    return f"{type(error).__name__} {error}{at}{hint}"


def load_case(name: str, folder: Path | None = None, *, gpu: MeasuredGpu | None = None) -> Case:
    """``CASE`` of ``kernels/<name>/case.py``, whose configs and launches are made for ``gpu``.

    >>> load_case("shared_access").name
    'shared_access'

    Raises:
        ConfigError: there is no such kernel, or its ``case.py`` defines no ``CASE`` of that name.
    """
    return _loaded(name, folder or kernels_dir(), gpu or gpu_of_the_case_or(MeasuredGpu()))


@cache
def _loaded(name: str, folder: Path, gpu: MeasuredGpu) -> Case:
    if name not in case_names(folder):
        hint = "wants its name alone" if "/" in name else nearest(name, case_names(folder))
        hint += " (gpusim measure lists them)"
        raise ConfigError(f"{name!r} is no kernel with a case.py in {folder}; {hint}")
    other = "" if gpu == MeasuredGpu() else f"_for_{abs(hash(gpu))}"  # one module for each GPU
    spec = importlib.util.spec_from_file_location(f"gpusim_kernels_{name}{other}", kernel_folder(name, folder) / "case.py")
    if spec is None or spec.loader is None:
        raise ConfigError(f"{kernel_path(name)}/case.py: cannot be imported, wants a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with loading_for(gpu):
            spec.loader.exec_module(module)
    except GpusimError:
        raise
    except Exception as error:
        raise ConfigError(f"{kernel_path(name)}/case.py: cannot be imported: {_where(error)}") from error
    case = getattr(module, "CASE", None)
    if not isinstance(case, Case) or case.name != name:
        raise ConfigError(f"{kernel_path(name)}/case.py: defines no CASE named {name!r}, wants one")
    return case
