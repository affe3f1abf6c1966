"""Kernel models of the gate: the launches of a profile that each predicts, and its options.

In: a TOML file of tables ``[[model]]``, or arguments of a command line. Out: :class:`Model`, checked.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from gpusim.errors import ConfigError, GpusimError, nearest
from gpusim.evidence.cases.validation_kernel import CLOCK, CYCLES, DURATION, row_clock_mhz
from gpusim.evidence.gate.expressions import NAMES, computed, expressions_in, names_in, refuse_unknown, values_of
from gpusim.evidence.gate.tolerances import limits_of
from gpusim.evidence.nsight.launches import ProfiledLaunch
from gpusim.evidence.nsight.metrics import SAME
from gpusim.kernel_models import KERNEL_MODELS

if TYPE_CHECKING:
    from gpusim.kernel_models.options import KernelParams
    from gpusim.machine.config import GpuSpec
    from gpusim.workload.launch import Launch

L2 = Literal["flushed", "cold", "warm", "stored"]
"""States of the caches before a kernel; ``cold`` is a synonym of ``flushed``, the state that a profiler leaves."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
MODEL_TEXTS, MODEL_TABLES = ("kernel", "match", "regex"), ("options", "was", "tolerance", "worse")
SELECTORS = ("match", "regex", "launch", "grid", "block")
MODEL_KEYS = (*SELECTORS, "kernel", "options", "was", "l2", "tolerance", "worse")
MOST_AXES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A kernel model and the launches that it predicts."""

    kernel: str
    """Key in ``KERNEL_MODELS``, or where a launch in Python is defined."""
    options: Mapping[str, Any]
    match: str = ""
    """Kernel name of the launches; if ``regex`` is empty, too: all launches."""
    regex: str = ""
    launch_ids: tuple[str, ...] = ()
    """IDs of the launches in the profile; empty: any."""
    grid: tuple[int, ...] = ()
    """Grid of the launches; empty: any."""
    block: tuple[int, ...] = ()
    make: Callable[[GpuSpec], Launch] | None = None
    """Function that makes a launch written in Python; None for models of ``KERNEL_MODELS``."""
    kernel_idx: int | None = None
    """Index of its kernel among those that a call launches; None: the one whose CTAs and threads are the launch's."""
    num_idle_warps: int = 0
    """Warps of each CTA that have no role."""
    l2: L2 = "flushed"
    tolerances: Mapping[str, float] = field(default_factory=dict)
    """Allowed errors of predictions by class or metric, where they differ from the defaults."""
    worse: Mapping[str, float] = field(default_factory=dict)
    """Allowed increases over the baseline by class or metric."""
    was: Mapping[str, Any] = field(default_factory=dict)
    """Options that had other values when the baseline was taken."""
    source: str = ""
    """File that defines the model; empty without a file."""
    doubt: str = ""
    """Remark on launches whose names contradict the options; empty without one."""

    @property
    def awaited(self) -> str:
        """Launches of the model in the words of a sentence."""
        shapes = [f"{name} {'x'.join(map(str, shape))}" for name, shape in self._shapes if shape]
        launches = [f"launch {', '.join(self.launch_ids)}"] if self.launch_ids else []
        names = [name for name in (self.match or self.regex,) if name]
        return ", ".join([*names, *launches, *shapes]) or "any kernel"

    @property
    def _shapes(self) -> tuple[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...]]]:
        return ("grid", self.grid), ("block", self.block)

    @property
    def precedence(self) -> tuple[bool, bool, bool]:
        """Precedence among models of a launch: its ID, then grid or block, then an exact name."""
        return bool(self.launch_ids), bool(self.grid or self.block), bool(self.match)

    @property
    def is_for_all(self) -> bool:
        """Whether it selects no launches, and thus predicts all."""
        return self.precedence == (False, False, False) and not self.regex

    def covers(self, launch: ProfiledLaunch) -> bool:
        """Whether it predicts a launch: by name, ID, grid and block."""
        found = {"grid": _extents(launch.grid), "block": _extents(launch.block)}
        if self.launch_ids and launch.idx not in self.launch_ids:
            return False
        if any(shape and found[name] != _extents(shape) for name, shape in self._shapes):
            return False
        return self.is_named(launch.kernel)

    def is_named(self, kernel: str) -> bool:
        """Whether its launches may be of a kernel of that name."""
        if self.match:
            return kernel == self.match
        return not self.regex or re.search(self.regex, kernel) is not None

    @property
    def computed(self) -> dict[str, tuple[str, bool]]:
        """Options that are computed from the launch, with their texts and whether each is an integer."""
        return expressions_in(KERNEL_MODELS[self.kernel].params, self.options) if self.kernel in KERNEL_MODELS else {}

    def refuse_expressions(self) -> None:
        """Check computed options before there is a launch.

        Raises:
            ConfigError: one is no arithmetic, or has an unknown name.
        """
        groups = re.compile(self.regex).groupindex
        for name in set(groups) & set(NAMES):
            raise ConfigError(f"{self._where('regex')}: a group has the name {name!r}, which a launch has; wants another")
        for name, (text, is_integer) in self.computed.items():
            used = names_in(text, self._where(name), is_integer=is_integer)
            refuse_unknown(used, (*NAMES, *groups), self._where(name))

    def of(self, launch: ProfiledLaunch) -> Model:
        """Model with the options that are computed from ``launch``.

        Raises:
            ConfigError: an option cannot be computed; the text names it and the launch.
        """
        if not self.computed:
            return self
        values = values_of(launch, self.regex)
        return replace(self, options=dict(self.options) | {
            name: computed(text, values, f"{self._where(name)}, launch {launch.idx}", is_integer=is_integer)
            for name, (text, is_integer) in self.computed.items()
        })

    def _where(self, name: str) -> str:
        return f"{self.source + ': ' if self.source else ''}[[model]] {name} of {self.kernel}"

    def launch(self, gpu: GpuSpec, changes: Mapping[str, Any] = NOTHING) -> Launch:
        """Launch of the model with ``changes`` of its options.

        Raises:
            GpusimError: there is no such model, or it refuses the options.
        """
        made = self.params(gpu, changes).launch(gpu) if self.make is None else self.make(gpu)
        if not self.num_idle_warps:
            return made
        *others, last = made.roles
        return replace(made, roles=(*others, replace(last, num_idle_warps=last.num_idle_warps + self.num_idle_warps)))

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
    if {"match", "regex"} <= set(item) or not set(SELECTORS) & set(item):
        raise ConfigError(
            f"[[model]] of {item['kernel']} wants either match (a kernel's name) or regex, or launch, grid or block"
        )
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
        launch_ids=tuple(map(str, _numbers(item, "launch", least=0))),
        grid=_numbers(item, "grid"), block=_numbers(item, "block"),
    )


def _numbers(item: Mapping[str, Any], key: str, *, least: int = 1) -> tuple[int, ...]:
    """Integers of a key, one or a list; empty without the key."""
    if key not in item:
        return ()
    given = item[key] if isinstance(item[key], list) else [item[key]]
    if not given or any(type(each) is not int or each < least for each in given):
        raise ConfigError(f"[[model]] {key} is {item[key]!r}, wants integers from {least} on, for example [64, 1, 1]")
    if key != "launch" and len(given) > MOST_AXES:
        raise ConfigError(f"[[model]] {key} is {item[key]!r}, wants at most {MOST_AXES} numbers: x, y and z")
    return tuple(given)


def _extents(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Extents along x, y and z, which are 1 if not given; empty for a shape that is unknown."""
    return (*shape, *(1,) * (MOST_AXES - len(shape))) if shape else ()


def state_of(model: Model) -> Literal["warm", "stored", "flushed"]:
    """State of the caches when the profiler starts a launch.

    Flushed, the instruction caches too, or as the previous launch left them.
    """
    return model.l2 if model.l2 in ("warm", "stored") else "flushed"


def model_for(launch: ProfiledLaunch, models: Sequence[Model]) -> Model | None:
    """Model of a launch: its ID takes precedence over a shape, and that over an exact name, and that over an expression.

    Raises:
        ConfigError: two models match equally well.
    """
    matching = [model for model in models if model.covers(launch)]
    best = max((model.precedence for model in matching), default=None)
    matching = [model for model in matching if model.precedence == best]
    if len(matching) > 1:
        names = " and ".join(f"{model.kernel} ({model.awaited})" for model in matching[:2])
        raise ConfigError(f"launch {launch.idx}, {launch.kernel}: two models stand for it, {names}; wants one")
    return matching[0] if matching else None


def kernels_of_call(launch: Launch) -> tuple[Launch, ...]:
    """Kernels that a call launches in order, each as a separate launch, as a profiler runs them."""
    return (replace(launch, following=()), *launch.following)


def refuse_without_models(has_models: bool, *, tolerance: object, clock: object, mark: str = "") -> None:
    """Check that arguments of predictions do not come with a baseline alone; ``mark``: what is before their names."""
    if not has_models and tolerance:
        raise ConfigError(f"{mark}tolerance limits errors of predictions; against a baseline alone use {mark}worse")
    if not has_models and clock is not None:
        raise ConfigError(f"{mark}clock is of predictions, and a baseline alone has none: leave it out")


def clock_of(launch: ProfiledLaunch, gpu: GpuSpec, given_mhz: float | None = None) -> tuple[float | None, str]:
    """(SM clock of a launch in MHz, where it comes from). ``given_mhz`` or None where the profile has no clock."""
    metrics = {SAME[name]: value for name, value in launch.metrics.items() if name in SAME} | dict(launch.metrics)
    row = {name: repr(metrics[name]) for name in (CLOCK, CYCLES, DURATION) if metrics.get(name)}
    if CLOCK not in row and not {CYCLES, DURATION} <= set(row):
        if given_mhz is not None:
            return given_mhz, f"{given_mhz:,.0f} MHz, as given"
        return None, "the model's own clock, as the profile tells none"
    mhz = row_clock_mhz(row, gpu)
    return mhz, f"{mhz:,.0f} MHz, {'its cycles per second' if CLOCK in row else 'its cycles over its duration'}"
