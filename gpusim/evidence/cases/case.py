"""What a measuring kernel is to the bench: its configs, what it launches for one, how its answer is checked.

``kernels/<name>/case.py`` defines ``CASE``, a :class:`Case`. Its functions know no GPU: they turn a config into data to
launch and outputs into values, so that all but the launch itself is tested without one.

In: a folder of ``kernels/``. Out: :class:`Case`. Words as in NVIDIA's nsight-python: a *config* is what varies, a *metric*
what the profiler counts, a *value* what the kernel itself measures, *derive* what follows from them.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from numpy.typing import NDArray

from gpusim.errors import ConfigError, GpusimError, nearest
from gpusim.evidence.bench.timing import VALUES
from gpusim.evidence.cases import paths as places
from gpusim.evidence.cases.launch_args import (
    Argument,
    Input,
    KernelLaunch,
    MappedTensor,
    Output,
    Product,
    Repeated,
    Scratch,
    Watch,
    Windows,
    by_value,
)

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

__all__ = [
    "Argument",
    "Input",
    "KernelLaunch",
    "MappedTensor",
    "Output",
    "Product",
    "Repeated",
    "Scratch",
    "Watch",
    "Windows",
    "by_value",
]
"""What is launched, beside what stands here."""

Config = Mapping[str, str]
"""What varies, as text, so that a row that is read back is the config that was measured; ``kernel`` is the entry point."""

Outputs = Mapping[str, NDArray[Any]]
"""What a launch left in its outputs, by name."""


Given = TypeVar("Given")
"""What a case's function gives."""


class WrongAnswer(GpusimError):  # noqa: N818 - it is said of a kernel, and no fault of ours
    """A kernel's output is not the reference: no number of it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Configs that are measured together.

    Args:
        configs: all of them, by seed; in the same order every time, no two alike.
        metrics: what Nsight Compute is asked for; names with their suffix. Empty: it is not asked.
        rank: groups of low rank come first where several kernels are measured.
        least_capability: compute capability from which on the GPU has the instructions.
        is_cold: whether launches are counted with all caches flushed before; otherwise as the launch before left them.
        times: protocols in which launches are timed without the profiler, and the SMs' clock beside
            (:mod:`gpusim.evidence.bench.timing`): ``single``, ``sustained``.
    """

    configs: Callable[[int], Sequence[Config]]
    metrics: tuple[str, ...] = ()
    rank: int = 5
    least_capability: tuple[int, int] = (8, 0)
    is_cold: bool = False
    times: tuple[Literal["single", "sustained"], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A parameter of a GPU as measured rows have it.

    ``parameter`` is its name in ``GpuSpec.sources`` (``hbm.latency_ns``), in the unit that the name ends in; ``how`` says in
    a few words how the number comes from the rows ("median of the cluster", "slope over bytes"). A fraction of what a GPU's
    description states besides is given as the whole, and ``per`` says of what it is a part.
    """

    parameter: str
    value: float
    how: str
    per: Callable[[GpuSpec], float] | None = None

    def of(self, gpu: GpuSpec) -> float:
        """The parameter of ``gpu``, which gave the rows."""
        return self.value if self.per is None else self.value / self.per(gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinConstant:
    """A constant of a twin's own code, as the calibrating rows have it.

    ``name`` is what ``case.py`` calls it; of a table or a tuple, ``key`` are the subscripts. ``how`` as of :class:`Fitted`.
    The number in the code is this one, rounded to the digits that stand there.
    """

    name: str
    value: float
    how: str
    key: tuple[Any, ...] = ()

    @property
    def label(self) -> str:
        """As it is written.

        >>> TwinConstant(name="LOOP_CYCLES", key=("1d",), value=215.0, how="").label
        "LOOP_CYCLES['1d']"
        """
        return self.name + "".join(f"[{key!r}]" for key in self.key)

    def agrees(self, stated: float) -> bool:
        """Whether ``stated`` is the value, rounded to as many digits as ``stated`` has.

        >>> fitted = TwinConstant(name="C", value=214.6, how="")
        >>> fitted.agrees(215.0), fitted.agrees(214.6), fitted.agrees(214.5)
        (True, True, False)
        """
        fraction = repr(float(stated)).partition(".")[2]
        return bool(round(self.value, 0 if fraction == "0" else len(fraction)) == stated)


def nothing_fitted(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """The rows hold no parameter; they judge alone."""
    del rows
    return []


def no_twin_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[TwinConstant]:
    """The twin has no number of its own that rows gave."""
    del rows, gpu
    return []


def no_options(config: Config, gpu: GpuSpec) -> Mapping[str, Any]:
    """For kernels that no kernel model predicts."""
    del config, gpu
    return {}


def no_values(config: Config) -> dict[str, float]:
    """Nothing is derived."""
    del config
    return {}


def nothing_told(config: Config, facts: Mapping[str, str]) -> dict[str, str]:
    """Nothing follows."""
    del config, facts
    return {}


def nothing_predicted(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The simulator has no answer."""
    del config, gpu
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How close a family of rows must come; None: no limit. In percent, or in points where the numbers are percent."""

    mean_pct: float | None = None
    p90_pct: float | None = None
    worst_pct: float | None = None
    is_points: bool = False
    """Errors are differences, not shares of what was measured: of rates in percent."""

    @property
    def text(self) -> str:
        """In words.

        >>> Limit(mean_pct=6.0, worst_pct=25.0).text, Limit(mean_pct=3.0, is_points=True).text, Limit().text
        ('mean 6 %, worst 25 %', 'mean 3 points', 'no limit')
        """
        unit = "points" if self.is_points else "%"
        limits = (("mean", self.mean_pct), ("P90", self.p90_pct), ("worst", self.worst_pct))
        return ", ".join(f"{name} {most:g} {unit}" for name, most in limits if most is not None) or "no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the simulator says of one number of a row.

    Args:
        value: in the number's own unit.
        roofline: what the data sheet's peaks alone give, where that is a question.
        floor: the least that an error is taken relative to, where next to nothing may have been measured.
    """

    value: float
    roofline: float | None = None
    floor: float = 0.0


def never_refused(config: Config, row: Mapping[str, str], gpu: GpuSpec) -> str | None:
    """No row is refused."""
    del config, row, gpu
    return None


def no_families(group: str, config: Config) -> tuple[str, ...]:
    """All rows are of one."""
    del group, config
    return ()


def no_problem(config: Config) -> Hashable:
    """Rows are not ranked."""
    del config
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel that is measured.

    Args:
        name: its folder's.
        question: what its rows answer, in a sentence.
        columns: what a config says, beside ``kernel``; the columns of the table, in order.
        groups: by name.
        launch: (config, is_counted) to what is launched; ``is_counted``: under the profiler.
        check: (config, outputs) to the values that the kernel measured; raises WrongAnswer.
        values: every value's meaning and unit, by name.
        checks_counted: the counted launch's outputs are checked too; otherwise only those of the one before it, where
            the check would add to the counts.
        num_repeats: launches without the profiler, of which a value's median, least and most are kept.
        predict: (config, GPU) to metrics and values as the simulator has them; a name may be missing.
        refused: (config, the measured row, GPU) to why ``predict_row`` gives nothing for it; None where it does.
        predict_row: (config, the measured row, GPU, names that are asked for) to answers by name, in the place of
            ``predict``: where what is predicted depends on something measured beside it, as cycles do on the row's clock.
        predict_launched: (config, columns of text of a launch that nothing was measured of, GPU) to metrics and values,
            where a framework chooses the kernel; nothing of one that the model cannot be.
        tiers: the tier (validation/README.md) at which a metric or value is judged, by name; others are not.
        limits: how close the rows of a name must come, where that is not what its tier wants.
        is_whole: whether it is a whole kernel, whose rows judge the model and calibrate nothing
            (:func:`gpusim.evidence.cases.validation_kernel.whole_kernel`).
        families: (group, config) to names under which the row is summed up: the family that it is of, then others, which cut
            across families and count in no total. None: all rows are of one family, called as the kernel is.
        problem: a config to what it computes (m, n, k and a type): rows of one problem are ranked among each other; None
            where they are not.
        derived: numbers that are judged and follow from several columns of a row, by name; None where it lacks one.
        fit: rows to parameters of the machine. A case that has it, or ``twin_constants``, is calibrated with every second
            config and judged by the others.
        twin_constants: (rows, the GPU that gave them) to the constants of ``predict``'s own code that were read off rows:
            what the kernel does beside what it measures. They come from the calibrating half, as ``fit``'s do. What comes
            from SASS, from print or from the kernel's definition is none.
        derive: a whole row to quantities that follow from it.
        includes: texts that ``kernel.cu`` includes, by file name, where they are generated.
        framework: ``torch`` or ``triton`` where that launches, and ``launch`` gives a :class:`Product`; there is no
            ``kernel.cu`` then. Such rows have columns of text, too: the kernels that ran (``launched``; what is counted is
            the sum of theirs), grid and block of the longest, what the framework tells.
        told: (config, these columns) to further columns of text that follow from them.
        model_options: (config, GPU) to all options of the kernel model that predicts it; empty where a row tells them.
        followers: entry points that are launched behind those of configs (``KernelLaunch.following``), by no config itself.
    """

    name: str
    question: str
    columns: tuple[str, ...]
    groups: Mapping[str, Group]
    launch: Callable[[Config, bool], KernelLaunch | Product]
    check: Callable[[Config, Outputs], dict[str, float]]
    values: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    checks_counted: bool = True
    num_repeats: int = 1
    predict: Callable[[Config, GpuSpec], dict[str, float]] = nothing_predicted
    predict_row: Callable[[Config, Mapping[str, str], GpuSpec, Collection[str]], Mapping[str, Answer]] | None = None
    refused: Callable[[Config, Mapping[str, str], GpuSpec], str | None] = never_refused
    predict_launched: Callable[[Config, Mapping[str, str], GpuSpec], dict[str, float]] | None = None
    tiers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    limits: Mapping[str, Limit] = field(default_factory=lambda: MappingProxyType({}))
    is_whole: bool = False
    families: Callable[[str, Config], tuple[str, ...]] = no_families
    problem: Callable[[Config], Hashable] = no_problem
    derived: Mapping[str, Callable[[Mapping[str, str]], float | None]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    fit: Callable[[Sequence[Mapping[str, str]]], Sequence[Fitted]] = nothing_fitted
    twin_constants: Callable[[Sequence[Mapping[str, str]], GpuSpec], Sequence[TwinConstant]] = no_twin_constants
    derive: Callable[[Config], dict[str, float]] = no_values
    includes: Callable[[], dict[str, str]] = dict
    framework: Literal["torch", "triton"] | None = None
    told: Callable[[Config, Mapping[str, str]], Mapping[str, str]] = nothing_told
    model_options: Callable[[Config, GpuSpec], Mapping[str, Any]] = no_options
    followers: tuple[str, ...] = ()

    def answers(self, config: Config, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]) -> Mapping[str, Answer]:
        """What the simulator says of a measured row, by name; a name may be missing."""
        if self.predict_row is not None:
            return self.predict_row(config, row, gpu, names)
        return {name: Answer(value=value) for name, value in self.predict(config, gpu).items()}

    @property
    def calibrates(self) -> bool:
        """Whether parameters or constants come from its rows, so that only every second one judges."""
        return self.fit is not nothing_fitted or self.twin_constants is not no_twin_constants

    def stated(self, constant: TwinConstant) -> float:
        """What ``case.py`` has there.

        Raises:
            ConfigError: nothing of that name, or nothing under that key.
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
        """Every metric of any group, each once."""
        return tuple(dict.fromkeys(metric for group in self.groups.values() for metric in group.metrics))

    @property
    def names(self) -> frozenset[str]:
        """All that its rows may hold beside their configs: metrics, values, times."""
        is_timed = any(group.times for group in self.groups.values())
        return frozenset((*self.metrics, *self.values, *self.derived, *(VALUES if is_timed else ())))

    def __post_init__(self) -> None:
        """A whole kernel calibrates nothing.

        Raises:
            ConfigError: it would.
        """
        if self.is_whole and self.calibrates:
            raise ConfigError(f"{self.name}: is a whole kernel, whose rows judge: leave fit and twin_constants out")

    def configs(self, group: str, seed: int) -> list[Config]:
        """The configs of a group.

        Raises:
            ConfigError: a config does not say what the columns want, or says what another one said.
        """
        wanted = {"kernel", *self.columns}
        configs = list(self.groups[group].configs(seed))
        for config in configs:
            if set(config) != wanted:
                raise ConfigError(f"{self.name}: a config of {group!r} has {sorted(config)}: use {sorted(wanted)}")
        if len({key_of(config) for config in configs}) != len(configs):
            raise ConfigError(f"{self.name}: group {group!r} has the same config twice: use a column that tells them apart")
        return configs


def key_of(config: Config) -> tuple[tuple[str, str], ...]:
    """What tells configs apart, hashable.

    >>> key_of({"kernel": "k", "n": "8"})
    (('kernel', 'k'), ('n', '8'))
    """
    return tuple(sorted(config.items()))


kernels_dir, kernel_folder, kernel_path = places.kernels_dir, places.kernel_folder, places.kernel_path


def case_names(folder: Path | None = None) -> list[str]:
    """Every kernel that can be measured: folders with a ``case.py``.

    >>> "shared_access" in case_names()
    True
    """
    return sorted(path.name for path in places.kernel_folders(folder or kernels_dir()) if (path / "case.py").exists())


def asked(case: Case, what: str, function: Callable[..., Given], *arguments: Any) -> Given:
    """What a case's own function ``what`` answers to ``arguments``.

    Raises:
        ConfigError: it fails; says where. What gpusim itself refuses passes.
    """
    try:
        return function(*arguments)
    except GpusimError:
        raise
    except Exception as error:
        raise ConfigError(f"{kernel_path(case.name)}/case.py: {what} fails: {_where(error)}") from error


def _where(error: BaseException) -> str:
    """An error with the innermost line that it came from.

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


@cache
def load_case(name: str, folder: Path | None = None) -> Case:
    """``CASE`` of ``kernels/<name>/case.py``.

    >>> load_case("shared_access").name
    'shared_access'

    Raises:
        ConfigError: no such kernel, or its ``case.py`` defines no ``CASE`` of that name.
    """
    folder = folder or kernels_dir()
    if name not in case_names(folder):
        hint = "wants its name alone" if "/" in name else nearest(name, case_names(folder))
        hint += " (gpusim measure lists them)"
        raise ConfigError(f"{name!r} is no kernel with a case.py in {folder}; {hint}")
    spec = importlib.util.spec_from_file_location(f"gpusim_kernels_{name}", kernel_folder(name, folder) / "case.py")
    if spec is None or spec.loader is None:
        raise ConfigError(f"{kernel_path(name)}/case.py: cannot be imported, wants a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except GpusimError:
        raise
    except Exception as error:
        raise ConfigError(f"{kernel_path(name)}/case.py: cannot be imported: {_where(error)}") from error
    case = getattr(module, "CASE", None)
    if not isinstance(case, Case) or case.name != name:
        raise ConfigError(f"{kernel_path(name)}/case.py: defines no CASE named {name!r}, wants one")
    return case
