"""What the fixture ``gpusim_check`` does: arguments are checked, a profile is held against its models.

Loaded when the fixture is first called, so that pytest starts fast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from gpusim.errors import ConfigError, nearest
from gpusim.evidence.gate.check import Limits, check_profile
from gpusim.evidence.gate.gpu_refusals import NotComparableError
from gpusim.evidence.gate.launch_file import launch_maker, made_launch
from gpusim.evidence.gate.library_models import library_models
from gpusim.evidence.gate.models import L2, Model, read_models, refuse_without_models
from gpusim.evidence.gate.tolerances import limits_of
from gpusim.evidence.gate.verdicts import Report
from gpusim.evidence.nsight.profiles import read_profile
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.report.check import render_check


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Arguments of a call, as :func:`gpusim.pytest_plugin.check` documents them; none is checked yet."""

    profile: str | Path
    gpu: str | Path | None
    kernel: str | None
    match: str
    models: str | Path | None
    launch: Any
    problem: str | None
    clock: float | None
    tolerance: Mapping[str, float | str]
    l2: str
    baseline: str | Path | None
    worse: Mapping[str, float | str]
    was: Mapping[str, Any]
    strict: bool
    decimal: str | None
    options: Mapping[str, Any]


def judged(asked: Asked) -> tuple[Report | None, str]:
    """A report, or None where nothing can be compared; and why the test fails, empty where it passes.

    Raises:
        GpusimError: bad input.
        OSError: a file cannot be read.
    """
    _refuse_combinations(asked)
    _refuse_values(asked)
    gpu = None if asked.gpu is None else load_gpu(asked.gpu)
    models = _models(asked, gpu)
    try:
        report = check_profile(
            Path(asked.profile), gpu=gpu, models=models,
            limits=Limits(
                tolerances=limits_of(asked.tolerance), worse=limits_of(asked.worse, "worse"), is_strict=asked.strict,
                clock_mhz=asked.clock, match=asked.match,
            ),
            baseline=None if asked.baseline is None else Path(asked.baseline),
            decimal=asked.decimal,  # type: ignore[arg-type]  # checked above
        )
    except NotComparableError as error:
        return None, str(error)
    text = StringIO()
    if report.status:
        render_check(report, Console(file=text, width=200, no_color=True))
    return report, text.getvalue()


def _models(asked: Asked, gpu: GpuSpec | None) -> tuple[Model, ...]:
    """Models by the one of four arguments that is given; none where a baseline is given alone."""
    l2: Any = asked.l2
    if asked.models is not None:
        return read_models(Path(asked.models))
    if asked.launch is not None:
        is_text = isinstance(asked.launch, str)
        make = launch_maker(asked.launch, "launch") if is_text else partial(made_launch, asked.launch)
        return (Model(kernel=asked.launch if is_text else "launch", options={}, regex=asked.match, l2=l2, make=make),)
    if asked.problem is not None and gpu is not None:
        profile = read_profile(Path(asked.profile), decimal=asked.decimal)  # type: ignore[arg-type]  # checked above
        return library_models(profile, asked.problem, gpu, match=asked.match, l2=l2, flag="problem")
    if asked.kernel is None:
        return ()
    return (Model(kernel=asked.kernel, options=asked.options, regex=asked.match, was=asked.was, l2=l2),)


def _refuse_combinations(asked: Asked) -> None:
    """Arguments that do not go together."""
    ways = [name for name in ("kernel", "models", "launch", "problem") if getattr(asked, name) is not None]
    if len(ways) > 1 or (not ways and asked.baseline is None):
        given = f"{' and '.join(ways)} are given" if ways else "none is given"
        raise ConfigError(f"gpusim_check wants one of kernel, models, launch and problem, or baseline alone; {given}")
    refuse_without_models(bool(ways), tolerance=asked.tolerance, clock=asked.clock)
    if ways and asked.gpu is None:
        raise ConfigError("gpusim_check: gpu is missing, wants the GPU that was profiled")
    if asked.options and asked.kernel is None and asked.models is None:
        raise ConfigError(f"gpusim_check: {', '.join(asked.options)} goes with kernel")
    for name, limits in (("tolerance", asked.tolerance), ("worse", asked.worse)):
        if not isinstance(limits, Mapping):
            raise ConfigError(f'gpusim_check: {name} is {limits!r}, wants a mapping like {{"cycles": "10%"}}')
    for name, value in (("worse", asked.worse), ("was", asked.was)):
        if value and asked.baseline is None:
            raise ConfigError(f"gpusim_check: {name} goes with baseline, an older profile")
    given_names = [name for name, value in (("match", asked.match), ("was", asked.was), *asked.options.items()) if value]
    if asked.models is not None and (given_names or asked.l2 == "warm"):
        raise ConfigError(f"gpusim_check: {', '.join(given_names) or 'l2'} goes with kernel; models says it for each model")


def _refuse_values(asked: Asked) -> None:
    """Arguments that are wrong by themselves."""
    try:
        re.compile(asked.match)
    except (re.error, TypeError) as error:
        raise ConfigError(f"gpusim_check: match {asked.match!r} is no regular expression: {error}") from None
    for name, path in (("profile", asked.profile), ("models", asked.models), ("baseline", asked.baseline)):
        if (path is not None or name == "profile") and not isinstance(path, str | Path):
            raise ConfigError(f"gpusim_check: {name} is {path!r}, wants a file")
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"gpusim_check: {name} {str(path)!r} is no file, wants one that is there")
    if not isinstance(asked.gpu, str | Path | None):
        raise ConfigError(f"gpusim_check: gpu is {asked.gpu!r}, wants a name (h200_sxm) or a TOML file")
    if asked.decimal not in (None, "point", "comma"):
        hint = nearest(str(asked.decimal), ("point", "comma"))
        raise ConfigError(f"gpusim_check: decimal {asked.decimal!r} is unknown; {hint}")
    if asked.l2 not in get_args(L2):
        raise ConfigError(f"gpusim_check: l2 {asked.l2!r} is unknown; {nearest(asked.l2, get_args(L2))}")
