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
    gpu: str | Path | None = None,
    kernel: str | None = None,
    match: str = "",
    models: str | Path | None = None,
    launch: Any = None,
    problem: str | None = None,
    clock: float | None = None,
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
        gpu: a GPU's name, or a TOML file. A baseline alone does without.
        kernel: the kernel model of its launches; ``options`` are that model's.
        match: a regular expression; launches alone whose kernel's name has it.
        models: a TOML file that says which model stands for which kernel, instead of ``kernel``.
        launch: a Launch, a function of a GPU or of nothing that returns one, or ``FILE.py:NAME``, instead of ``kernel``.
        problem: ``MxNxK[:TYPE][:LAYOUT]``, a GEMM of cuBLAS whose options names of kernels have, instead of ``kernel``.
        clock: the SM clock of launches whose profile tells none, in MHz.
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
    from gpusim.pytest_check import Asked, judged

    asked = Asked(
        profile=profile, gpu=gpu, kernel=kernel, match=match, models=models, l2=l2, baseline=baseline, strict=strict,
        launch=launch, problem=problem, clock=clock,
        tolerance={} if tolerance is None else tolerance, worse={} if worse is None else worse,
        was={} if was is None else was, decimal=decimal, options=options,
    )
    try:
        report, why = judged(asked)
    except (GpusimError, OSError) as error:
        raise error.with_traceback(None) from None
    if report is None or why:
        pytest.fail(why, pytrace=False)
    return report


@pytest.fixture
def gpusim_check() -> GpusimCheck:
    """A function that fails the test where a profile is not what its model predicts; see :func:`check`."""
    return check
