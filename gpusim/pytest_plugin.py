"""A fixture for tests of kernels: hold a profile of Nsight Compute against the model, or against an older profile.

.. code-block:: python

    def test_the_transpose_is_as_fast_as_it_should_be(gpusim_check):
        gpusim_check("profile.csv", gpu="h200_sxm", kernel="transpose", m=8192, n=8192, tolerance={"cycles": "10%"})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpusim.evidence.gate.verdicts import Report

GpusimCheck = Callable[..., "Report"]


def check(
    profile: str | Path,
    *,
    gpu: str,
    kernel: str | None = None,
    match: str = "",
    models: str | Path | None = None,
    tolerance: Mapping[str, float | str] | None = None,
    l2: str = "flushed",
    baseline: str | Path | None = None,
    worse: Mapping[str, float | str] | None = None,
    was: Mapping[str, Any] | None = None,
    strict: bool = False,
    decimal: str | None = None,
    **options: Any,
) -> Report:
    """What ``gpusim check`` does, for a test: fails it where something is out of tolerance or nothing can be compared.

    Args:
        profile: what ``ncu --csv`` wrote, or a report.
        gpu: a GPU's name, or a TOML file.
        kernel: the kernel model of its launches; ``options`` are that model's.
        match: a regular expression; launches alone whose kernel's name has it.
        models: a TOML file that says which model stands for which kernel, instead of ``kernel``.
        tolerance: limits by class or metric, in percent or points.
        l2: caches before the kernel, ``flushed`` (``cold`` says the same) or ``warm``.
        baseline: an older profile.
        worse: how much worse than the baseline, likewise.
        was: options that were others when the baseline was taken.
        decimal: the profile's decimal sign, ``point`` or ``comma``; found out by default.
        strict: fail also where a model has no launch, a launch no model, or neither cycles nor time.
        options: of the kernel model.

    Returns:
        What was compared.

    Raises:
        GpusimError: bad input; of the frames, a test's report shows its own alone.
        OSError: a file cannot be read, likewise.
    """
    __tracebackhide__ = True
    from gpusim.errors import GpusimError

    try:
        return _checked(
            profile, gpu=gpu, kernel=kernel, match=match, models=models, tolerance={} if tolerance is None else tolerance,
            l2=l2, baseline=baseline, worse={} if worse is None else worse, was={} if was is None else was, strict=strict,
            decimal=decimal, options=options,
        )
    except (GpusimError, OSError) as error:
        raise error.with_traceback(None) from None


def _checked(
    profile: str | Path, *, gpu: str, kernel: str | None, match: str, models: str | Path | None,
    tolerance: Mapping[str, float | str], l2: str, baseline: str | Path | None, worse: Mapping[str, float | str],
    was: Mapping[str, Any], strict: bool, decimal: str | None, options: Mapping[str, Any],
) -> Report:
    import re
    from io import StringIO

    from rich.console import Console

    from gpusim.errors import ConfigError, nearest
    from gpusim.evidence.gate.check import NotComparableError, check_profile
    from gpusim.evidence.gate.models import Model, read_models
    from gpusim.evidence.gate.tolerances import limits_of
    from gpusim.machine.config import load_gpu
    from gpusim.report.check import render_check

    if (kernel is None) == (models is None):
        given = "both are given" if kernel is not None else "neither is given"
        raise ConfigError(f"gpusim_check wants either kernel, with its options, or models, a TOML file; {given}")
    for name, limits in (("tolerance", tolerance), ("worse", worse)):
        if not isinstance(limits, Mapping):
            raise ConfigError(f'gpusim_check: {name} is {limits!r}, wants a mapping such as {{"cycles": "10%"}}')
    for name, value in (("worse", worse), ("was", was)):
        if value and baseline is None:
            raise ConfigError(f"gpusim_check: {name} goes with baseline, an older profile")
    told = [name for name, value in (("match", match), ("was", was), *options.items()) if value]
    if models is not None and (told or l2 == "warm"):
        raise ConfigError(f"gpusim_check: {', '.join(told) or 'l2'} goes with kernel; models says it for each model")
    try:
        re.compile(match)
    except (re.error, TypeError) as error:
        raise ConfigError(f"gpusim_check: match {match!r} is no regular expression: {error}") from None
    for name, path in (("profile", profile), ("models", models), ("baseline", baseline)):
        if (path is not None or name == "profile") and not isinstance(path, str | Path):
            raise ConfigError(f"gpusim_check: {name} is {path!r}, wants a file")
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"gpusim_check: {name} {str(path)!r} is no file, wants one that is there")
    if not isinstance(gpu, str | Path):
        raise ConfigError(f"gpusim_check: gpu is {gpu!r}, wants a name such as h200_sxm, or a TOML file")
    if decimal not in (None, "point", "comma"):
        raise ConfigError(f"gpusim_check: decimal {decimal!r} is unknown; {nearest(str(decimal), ('point', 'comma'))}")
    if l2 not in ("flushed", "cold", "warm"):
        raise ConfigError(f"gpusim_check: l2 {l2!r} is unknown; {nearest(l2, ('flushed', 'cold', 'warm'))}")
    if kernel is None:
        found = read_models(Path(models or ""))
    else:
        found = (
            Model(kernel=kernel, options=options, regex=match, l2=l2, was=was),  # type: ignore[arg-type]  # l2 is checked above
        )
    report, why = None, ""
    try:
        report = check_profile(
            Path(profile), gpu=load_gpu(gpu), models=found, tolerances=limits_of(tolerance),
            baseline=None if baseline is None else Path(baseline), worse=limits_of(worse, "worse"), is_strict=strict,
            decimal=decimal,  # type: ignore[arg-type]  # checked above
        )
    except NotComparableError as error:
        why = str(error)
    if report is None:
        pytest.fail(why, pytrace=False)
    if report.status:
        text = StringIO()
        render_check(report, Console(file=text, width=200, no_color=True))
        pytest.fail(text.getvalue(), pytrace=False)
    return report


@pytest.fixture
def gpusim_check() -> GpusimCheck:
    """A function that fails the test where a profile is not what its model predicts; see :func:`check`."""
    return check
