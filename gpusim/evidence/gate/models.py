"""Kernel models of the gate: the launches of a profile that each predicts, and its options.

In: a TOML file of tables ``[[model]]``, or arguments of a command line. Out: :class:`Model`, checked.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from gpusim.errors import ConfigError, GpusimError, nearest
from gpusim.evidence.cases.validation_kernel import CLOCK, CYCLES, DURATION, row_clock_mhz
from gpusim.evidence.gate.tolerances import limits_of
from gpusim.evidence.nsight.launches import ProfiledLaunch
from gpusim.evidence.nsight.metrics import SAME
from gpusim.kernel_models import KERNEL_MODELS

if TYPE_CHECKING:
    from gpusim.kernel_models.options import KernelParams
    from gpusim.machine.config import GpuSpec
    from gpusim.workload.launch import Launch

L2 = Literal["flushed", "cold", "warm"]
"""States of the caches before a kernel; ``cold`` is a synonym of ``flushed``, the state that a profiler leaves."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
MODEL_TEXTS, MODEL_TABLES = ("kernel", "match", "regex"), ("options", "was", "tolerance", "worse")
MODEL_KEYS = ("match", "regex", "kernel", "options", "was", "l2", "tolerance", "worse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A kernel model and the launches that it predicts."""

    kernel: str
    """Key in ``KERNEL_MODELS``."""
    options: Mapping[str, Any]
    match: str = ""
    """Kernel name of the launches; if ``regex`` is empty, too: all launches."""
    regex: str = ""
    l2: L2 = "flushed"
    tolerances: Mapping[str, float] = field(default_factory=dict)
    """Allowed errors of predictions by class or metric, where they differ from the defaults."""
    worse: Mapping[str, float] = field(default_factory=dict)
    """Allowed increases over the baseline by class or metric."""
    was: Mapping[str, Any] = field(default_factory=dict)
    """Options that had other values when the baseline was taken."""
    source: str = ""
    """File that defines the model; empty without a file."""

    @property
    def awaited(self) -> str:
        """Launches of the model in the words of a sentence."""
        return self.match or self.regex or "any kernel"

    def covers(self, name: str) -> bool:
        """Whether it predicts launches of a kernel of that name."""
        if self.match:
            return name == self.match
        return not self.regex or re.search(self.regex, name) is not None

    def params(self, gpu: GpuSpec, changes: Mapping[str, Any] = NOTHING) -> KernelParams:
        """Parameters of the model with ``changes``, checked.

        Raises:
            GpusimError: there is no such model, or it refuses the options.
        """
        if self.kernel not in KERNEL_MODELS:
            where = f"{self.source}: " if self.source else ""
            raise ConfigError(f"{where}{self.kernel!r} is no kernel model; {nearest(self.kernel, KERNEL_MODELS)}")
        kind = KERNEL_MODELS[self.kernel].params
        try:
            given = {**kind.in_our_words(self.options), **kind.in_our_words(changes)}
            for name, value in given.items():
                _refuse_flag(kind, name, value)
            params: KernelParams = kind(**given)
            return params.resolved(gpu)
        except GpusimError as error:
            if not self.source:
                raise
            raise ConfigError(f"{self.source}: [[model]] of {self.kernel}: {error}") from None


def _in_our_words(kernel: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options of a file, which may have names of an earlier release."""
    return KERNEL_MODELS[kernel].params.in_our_words(options) if kernel in KERNEL_MODELS else options


def _refuse_flag(kind: type[KernelParams], option: str, value: Any) -> None:
    """Check that flags are bool and other options are not, although Python accepts one for the other."""
    taken = {item.alias or name: item.annotation for name, item in kind.model_fields.items()}.get(option)
    is_flag = taken is bool or bool in get_args(taken)
    if taken is not None and isinstance(value, bool) and not is_flag:
        raise ConfigError(f"--{option.replace('_', '-')} is {str(value).lower()}, wants a value: it is no flag")
    if is_flag and not isinstance(value, bool | None):
        raise ConfigError(f"--{option.replace('_', '-')} is {value!r}, wants true or false")


def read_models(path: Path) -> tuple[Model, ...]:
    """Models of a TOML file, one per table ``[[model]]``.

    Raises:
        ConfigError: there is no such file, or a key or value does not belong to a model; the text names it.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: is no file, wants tables [[model]]")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    if set(table) != {"model"} or not isinstance(table["model"], list) or not table["model"]:
        raise ConfigError(f"{path}: holds {', '.join(table) or 'nothing'}, wants tables [[model]] alone")
    try:
        return tuple(replace(_model(item), source=str(path)) for item in table["model"])
    except GpusimError as error:
        raise ConfigError(f"{path}: {error}") from None


def _model(item: Mapping[str, Any]) -> Model:
    for key in item:
        if key not in MODEL_KEYS:
            raise ConfigError(f"[[model]] key {key!r} is unknown; {nearest(key, MODEL_KEYS)}")
    for kind, words, keys in ((str, "a text", MODEL_TEXTS), (dict, "a table", MODEL_TABLES)):
        for key in keys:
            if key in item and not isinstance(item[key], kind):
                raise ConfigError(f"[[model]] {key} is {item[key]!r}, wants {words}")
    if "kernel" not in item:
        raise ConfigError("[[model]] lacks kernel, wants the name of a kernel model")
    if ("match" in item) == ("regex" in item):
        raise ConfigError(f"[[model]] of {item['kernel']} wants either match (a kernel's name) or regex")
    for key in ("match", "regex"):
        if item.get(key) == "":
            raise ConfigError(f"[[model]] {key} of {item['kernel']} is empty, wants a kernel's name (regex: a part of it)")
    try:
        re.compile(item.get("regex", ""))
    except re.error as error:
        raise ConfigError(f"[[model]] regex {item['regex']!r} is no regular expression: {error}") from None
    if item.get("l2", "flushed") not in get_args(L2):
        raise ConfigError(f"[[model]] l2 {item['l2']!r} is unknown; {nearest(str(item['l2']), get_args(L2))}")
    limits, worse = (limits_of(item.get(key, {})) for key in ("tolerance", "worse"))
    options, was = (_in_our_words(item["kernel"], item.get(key, {})) for key in ("options", "was"))
    return Model(
        kernel=item["kernel"], options=options, match=item.get("match", ""), regex=item.get("regex", ""),
        l2=item.get("l2", "flushed"), tolerances=limits, worse=worse, was=was,
    )


def state_of(model: Model) -> Literal["warm", "flushed"]:
    """State of the caches when the profiler starts a launch.

    Flushed, the instruction caches too, or as the previous launch left them.
    """
    return "warm" if model.l2 == "warm" else "flushed"


def model_for(launch: ProfiledLaunch, models: Sequence[Model]) -> Model | None:
    """Model of a launch: an exact name takes precedence over a regular expression.

    Raises:
        ConfigError: two models match equally well.
    """
    matching = [model for model in models if model.covers(launch.kernel)]
    matching = [model for model in matching if model.match] or matching
    if len(matching) > 1:
        names = " and ".join(f"{model.kernel} ({model.match or model.regex})" for model in matching[:2])
        raise ConfigError(f"launch {launch.idx}, {launch.kernel}: two models stand for it, {names}; wants one")
    return matching[0] if matching else None


def kernels_of_call(launch: Launch) -> tuple[Launch, ...]:
    """Kernels that a call launches in order, each as a separate launch, as a profiler runs them."""
    return (replace(launch, following=()), *launch.following)


def clock_of(launch: ProfiledLaunch, gpu: GpuSpec) -> tuple[float | None, str]:
    """(SM clock of a launch in MHz, where it comes from); None where the profile has no clock."""
    metrics = {SAME[name]: value for name, value in launch.metrics.items() if name in SAME} | dict(launch.metrics)
    row = {name: repr(metrics[name]) for name in (CLOCK, CYCLES, DURATION) if metrics.get(name)}
    if CLOCK not in row and not {CYCLES, DURATION} <= set(row):
        return None, "the model's own clock, as the profile tells none"
    mhz = row_clock_mhz(row, gpu)
    return mhz, f"{mhz:,.0f} MHz, {'its cycles per second' if CLOCK in row else 'its cycles over its duration'}"
