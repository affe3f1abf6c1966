"""What the fixture ``gpusim_check`` does: arguments are checked, a profile is held against its models.

Loaded when the fixture is first called, so that pytest starts fast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from gpusim.errors import ConfigError, nearest
from gpusim.evidence.gate.check import Limits, NotComparableError, check_profile
from gpusim.evidence.gate.models import Model, read_models
from gpusim.evidence.gate.tolerances import limits_of
from gpusim.evidence.gate.verdicts import Report
from gpusim.machine.config import load_gpu
from gpusim.report.check import render_check


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Arguments of a call, as :func:`gpusim.pytest_plugin.check` documents them; none is checked yet."""

    profile: str | Path
    gpu: str
    kernel: str | None
    match: str
    models: str | Path | None
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
    if asked.kernel is None:
        models = read_models(Path(asked.models or ""))
    else:
        models = (
            Model(
                kernel=asked.kernel, options=asked.options, regex=asked.match, was=asked.was,
                l2=asked.l2,  # type: ignore[arg-type]  # checked above
            ),
        )
    try:
        report = check_profile(
            Path(asked.profile), gpu=load_gpu(asked.gpu), models=models,
            limits=Limits(
                tolerances=limits_of(asked.tolerance), worse=limits_of(asked.worse, "worse"), is_strict=asked.strict
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


def _refuse_combinations(asked: Asked) -> None:
    """Arguments that do not go together."""
    if (asked.kernel is None) == (asked.models is None):
        given = "both are given" if asked.kernel is not None else "neither is given"
        raise ConfigError(f"gpusim_check wants either kernel, with its options, or models, a TOML file; {given}")
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
    if not isinstance(asked.gpu, str | Path):
        raise ConfigError(f"gpusim_check: gpu is {asked.gpu!r}, wants a name (h200_sxm) or a TOML file")
    if asked.decimal not in (None, "point", "comma"):
        hint = nearest(str(asked.decimal), ("point", "comma"))
        raise ConfigError(f"gpusim_check: decimal {asked.decimal!r} is unknown; {hint}")
    if asked.l2 not in ("flushed", "cold", "warm"):
        raise ConfigError(f"gpusim_check: l2 {asked.l2!r} is unknown; {nearest(asked.l2, ('flushed', 'cold', 'warm'))}")
