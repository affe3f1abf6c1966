"""Results of ``gpusim check`` for an Nsight Compute profile as a table, and example profiles from the tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.errors import ConfigError
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.gate.check import Limits, check_profile
from gpusim.evidence.gate.models import Model
from gpusim.evidence.gate.tolerances import limits_of
from gpusim.machine.config import load_gpu

if TYPE_CHECKING:
    import pandas as pd


def example_profile(name: str = "copy_raw.csv") -> Path:
    """Path of an Nsight Compute profile in ``tests/evidence/data``: by default of a copy of 67,108,864 floats on an H200.

    Raises:
        ConfigError: there is none, for example in an installation without the tests.
    """
    folder = kernels_dir().parent / "tests" / "evidence" / "data"
    path = folder / name
    if not path.is_file():
        known = ", ".join(sorted(item.name for item in folder.glob("*.csv"))) or "none; they come with a checkout"
        raise ConfigError(f"no profile is called {name!r}, there are: {known}")
    return path


def check_table(
    profile: str | Path, kernel: str, *, gpu: str = "h200_sxm", tolerance: dict[str, str] | None = None, **options: Any
) -> pd.DataFrame:
    """Table of each metric of each launch in a profile, with the prediction of the model of ``kernel``.

    Columns are ``measured``, ``predicted``, ``difference``, ``tolerance`` and ``passes``. Difference and tolerance are in
    percent, or in points for metrics in percent. ``passes`` is True, False, or None where the metric is shown and not
    judged.

    Args:
        profile: output of ``ncu --csv``, or a report.
        kernel: kernel model of the launches.
        gpu: GPU that was profiled.
        tolerance: limits by class or metric, for example ``{"cycles": "10%"}``, instead of the model's known errors.
        options: options of the model.

    Raises:
        GpusimError: the profile or the options are refused, or nothing can be compared.
    """
    import pandas as pd

    model = Model(kernel=kernel, options=options)
    limits = Limits(tolerances=limits_of(tolerance or {}))
    report = check_profile(Path(profile), gpu=load_gpu(gpu), models=(model,), limits=limits)
    rows = {
        (launch.launch.kernel, item.metric): {
            "measured": item.measured, "predicted": item.predicted, "difference": item.difference,
            "tolerance": item.tolerance.limit if item.tolerance else None, "passes": item.passes,
        }
        for launch in report.launches for item in launch.comparisons
    }  # fmt: skip
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(["kernel", "metric"])
    table.attrs["verdict"] = report.verdict
    return table
