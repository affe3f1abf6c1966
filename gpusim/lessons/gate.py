"""What ``gpusim check`` says of a profile, as a table; and the profiles to try it with that lie in the tests."""

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
    """A profile of Nsight Compute's in ``tests/evidence/data``: by default of a copy of 67,108,864 floats on an H200.

    Raises:
        ConfigError: there is none, as in an installation without the tests.
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
    """Each metric of each launch in a profile beside what the model of ``kernel`` predicts.

    Columns ``measured``, ``predicted``, ``difference``, ``tolerance`` (both in percent, or points of metrics in percent) and
    ``passes`` (True, False, or None where it is shown and not judged).

    Args:
        profile: what ``ncu --csv`` wrote, or a report.
        kernel: the kernel model that stands for its launches; ``options`` are that model's.
        gpu: that it ran on.
        tolerance: limits by class or metric, such as ``{"cycles": "10%"}``, instead of what the model kept so far.
        options: of the model.

    Raises:
        GpusimError: a profile or options that are refused, or nothing that can be compared.
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
