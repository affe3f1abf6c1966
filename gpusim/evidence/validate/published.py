"""Published kernels (``<kernel>_ladder_<gpu>.csv``), predicted step by step.

    python -m gpusim.evidence.validate.published predict   # validation/published/*.csv -> the next predictions_N.csv
    python -m gpusim.evidence.validate.published compare   # the table of residuals, and whether steps come in order

Predictions are written and committed before anybody looks at a residual. No parameter is changed for them. Later predictions
are written to further files next to the earlier ones.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gpusim.errors import GpusimError
from gpusim.evidence.validate.expected_error import LADDER, published_us
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.gemm import GemmParams
from gpusim.kernel_models.options import KernelParams
from gpusim.machine.config import load_gpu
from gpusim.simulate.run import simulate

PARAMETERS = (
    "m", "n", "k", "dtype", "out_dtype", "layout", "tile", "stages", "copy", "math", "schedule", "warps", "consumers",
    "split", "cluster", "persistent", "raster", "raster_group", "swizzle", "epilogue", "setmaxnreg", "wgmma_depth",
    "arrivals",
)
"""Columns of the ladders, which have options' names of an earlier release."""

KEYS = ["ladder", "step", "m", "n", "k"]
PREDICTIONS = "predictions*.csv"
"""Pattern of the tables of predictions, whose names sort by date. None is ever rewritten."""

APART = 0.10
"""Fraction by which published speeds of two steps must differ for their order to count."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Measurement protocol of the authors, as options of a simulation."""

    clock: str | float
    l2: str


PROTOCOLS = {
    "h100_sxm": Protocol(clock="single", l2="warm"), "a100_sxm_40gb": Protocol(clock="sustained", l2="cold"),
    "a100_sxm_80gb": Protocol(clock="max", l2="cold"),
}  # fmt: skip
"""Protocols by GPU. Rows with a clock are from Nsight Compute, which flushes caches.

fast.cu rests five seconds and times eight launches on the same matrices (``matmul.cu``). They take 1.5 to 11 ms and are over
before the limit of half a second applies (some 20 ms). learn-cuda uses a benchmark that flushes L2 between launches."""


def published_dir() -> Path:
    """Folder of the published ladders: next to the package in a checkout, inside it when installed."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "validation" / "published"
    return inside if inside.is_dir() else package.parent / "validation" / "published"


def read_ladders(folder: Path | None = None) -> pd.DataFrame:
    """Rows of all ladders, one per step and size, with the ``kernel`` that the file's name begins with."""
    folder = folder or published_dir()
    tables = [
        pd.read_csv(path, dtype=str, keep_default_na=False).assign(kernel=path.name.partition(LADDER)[0])
        for path in sorted(folder.glob(f"*{LADDER}*.csv"))
    ]
    return pd.concat(tables, ignore_index=True).fillna("")


def protocol_of(row: Mapping[Any, Any]) -> Protocol:
    """Protocol of a ladder's row."""
    return Protocol(clock=float(row["mhz"]), l2="flushed") if row["mhz"] else PROTOCOLS[row["gpu"]]


def params_of(row: dict[str, Any]) -> KernelParams:
    """Parameters of the kernel model for a ladder's row; empty fields keep their defaults.

    Raises:
        KernelError: the row describes an impossible kernel.
    """
    if row["kernel"] != "gemm":
        kind = KERNEL_MODELS[row["kernel"]].params
        return kind.model_validate({name: row[name] for name in kind.options() if row.get(name, "") != ""})
    options = GemmParams.in_our_words({name: row[name] for name in PARAMETERS if row.get(name, "") != ""})
    options["persistent"] = options.get("persistent") == "yes"
    options.setdefault("setmaxnreg", "none")
    if options.get("math") == "wgmma":
        options.pop("warps", None)
        options.setdefault("consumer_warpgroups", "1")
    return GemmParams.model_validate(options)


def predict(folder: Path | None = None) -> pd.DataFrame:
    """Predictions for every step that the model can express: cycles, clock, time, bottleneck. Reads no speeds."""
    rows = []
    for row in read_ladders(folder).to_dict("records"):
        if row["expressible"] != "yes":
            continue
        protocol = protocol_of(row)
        gpu = load_gpu(row["gpu"])
        base = {key: row[key] for key in KEYS} | {"gpu": gpu.name, "clock": protocol.clock, "l2": protocol.l2}
        try:
            result = simulate(params_of(row).launch(gpu), gpu, clock=protocol.clock, l2=protocol.l2)  # type: ignore[arg-type]  # the table's words
        except GpusimError as error:
            rows.append(base | {"refused": str(error)})
            continue
        rows.append(base | {
            "cycles": round(result.cycles), "sm_clock_mhz": round(result.sm_clock_mhz), "time_us": round(result.time_us, 2),
            "tflops_predicted": round(result.tflops, 1), "bound_by": result.bound_by, "refused": "",
        })  # fmt: skip
    return pd.DataFrame(rows)


def prediction_tables(folder: Path | None = None) -> list[Path]:
    """Paths of all tables of predictions, the latest last."""
    return sorted((folder or published_dir()).glob(PREDICTIONS))


def compare(folder: Path | None = None) -> pd.DataFrame:
    """Published speeds and the latest predictions, one row per step; ``error`` is predicted over published, minus one."""
    folder = folder or published_dir()
    latest = prediction_tables(folder)[-1]
    predictions = pd.read_csv(latest, dtype=dict.fromkeys(KEYS, str)).drop(columns="gpu")
    table = read_ladders(folder)
    table["us"] = [published_us(row) for row in table.to_dict("records")]
    table = table[[*KEYS, "kernel", "gpu", "us", "expressible", "why_not"]].merge(predictions, on=KEYS, how="left")
    table["error"] = table["us"] / table["time_us"] - 1.0
    return table


def out_of_order(table: pd.DataFrame) -> list[tuple[str, str, str]]:
    """(ladder and size, slower step, faster step) of pairs that differ by at least 10 % and are predicted in reverse."""
    wrong = []
    predicted = table[table["time_us"].notna()]
    for (ladder, m), steps in predicted.groupby(["ladder", "m"], sort=False):
        records = steps.to_dict("records")
        for slow in records:
            for fast in records:
                is_faster = slow["us"] >= fast["us"] * (1.0 + APART)
                if is_faster and fast["time_us"] >= slow["time_us"]:
                    wrong.append((f"{ladder} {m}", str(slow["step"]), str(fast["step"])))
    return wrong


def main(arguments: Sequence[str]) -> int:
    """Run ``predict`` or ``compare``; the exit status."""
    if list(arguments) == ["predict"]:
        table = predict()
        path = published_dir() / f"predictions_{len(prediction_tables()) + 1}.csv"
        partial = path.with_suffix(".part")
        table.to_csv(partial, index=False)
        partial.replace(path)
        sys.stdout.write(f"{len(table)} predictions in {path.name}\nNext: commit them, then compare\n")
        return 0
    if list(arguments) == ["compare"]:
        table = compare()
        shown = table[["ladder", "step", "m", "us", "time_us", "error", "bound_by", "why_not"]]
        sys.stdout.write(shown.to_string(index=False, na_rep="") + "\n")
        error = table["error"].dropna().abs()
        wrong = out_of_order(table)
        for where, slow, fast in wrong:
            sys.stdout.write(f"out of order: {where}: {fast} should be faster than {slow}\n")
        sys.stdout.write(
            f"{len(error)} steps: mean error {error.mean():.1%}, worst {error.max():.1%}; {len(wrong)} pairs out of order\n"
        )
        return 0
    sys.stderr.write(f"published: {' '.join(arguments) or 'nothing'} was asked for, wants predict or compare\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
