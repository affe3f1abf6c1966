"""Write ``validation/held_out.toml`` anew, from rows that were judged.

    python scripts/held_out.py validation/judged/GPU.csv > validation/held_out.toml
    python scripts/held_out.py REPORT.json [more ...] > validation/held_out.toml

Shares of peaks come from ``validation/studies/judged_shares_GPU.csv``, which ``scripts/judge_shares.py`` writes.
A report is what ``gpusim validate --gpu NAME --tier 5,6 --json REPORT.json`` wrote.

Only rows of whole kernels count: those of each family, and of each kernel model all together. Matrix products of libraries,
and our own but for ``sgemm_naive``, are rows of the model ``gemm``.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.paths import ESTIMATED_CYCLES, kernels_dir
from gpusim.evidence.gate.tolerances import HELD_OUT_NAMES
from gpusim.evidence.nsight.metrics import JUDGED_SHARES
from gpusim.evidence.validate.expected_error import ranges_of, telling_options
from gpusim.evidence.validate.judge import quantile
from gpusim.evidence.validate.judged_rows import read_judged
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import load_gpu

MODELS = dict.fromkeys(
    ("tile_gemm", "library_gemm", "library_knobs", "hopper_gemm", "hopper_knobs", "hgemm", "sgemm"), "gemm"
)

CYCLES = "sm__cycles_elapsed.max"

HEAD = """\
# How far off predictions were of nine in ten rows of a whole kernel that nothing was fitted to (P90, percent; hit rates and
# shares of peaks in points): of each kernel model, which `gpusim check` takes as tolerances, and of each family of rows,
# which predictions are expected to keep. `rows`: least and most of all options of a family's rows (of words all that they
# have), outside of which nothing is expected. Written anew by `python scripts/held_out.py validation/judged/GPU.csv`."""


def read(path: Path) -> tuple[str, Sequence[Any]]:
    """(GPU, rows) of a report, or of a table of judged rows."""
    if path.suffix == ".csv":
        judged = read_judged(path.stem, path.parent)
        return judged.gpu, judged.rows
    document = json.loads(path.read_text(encoding="utf-8"))
    return document["gpu"], [SimpleNamespace(**row) for row in document["rows"]]


def options_of(kernel: str, config: dict[str, str], gpu: str) -> dict[str, Any]:
    """All options of a row's kernel, but for what its compiler made of it."""
    model = PROGRAMS.get(kernel, MODELS.get(kernel, kernel))
    case, spec = load_case(kernel), load_gpu(gpu)
    if kernel == "framework_rows":  # its configs have several models
        model = case.config_type.of(config).entry.model
    if model not in KERNEL_MODELS:
        return {}
    kind = KERNEL_MODELS[model].params
    if kernel == "library_knobs":  # its names say the rest
        given = {name: value for name, value in config.items() if name != "kernel"}
        typed = kind.model_validate(given).as_options()
        return telling_options(kind, {name: typed[name] for name in given})
    resolved = case.model_options(config, spec)
    if kernel in ("tile_gemm", "device_descriptors"):  # a framework's: what it launched says the rest
        told = sys.modules[case.launch.__module__].options(config, {}, spec)
        resolved = kind.model_validate(told).resolved(spec).as_options()
    named = {"kernel": model} if kernel == "framework_rows" else {}
    return named | telling_options(kind, resolved)


PROGRAMS = {
    "elementwise_shapes": "elementwise", "gather_block": "gather", "transpose_rowwise": "transpose",
    "device_descriptors": "gemm", "grid_reduction": "reduction", "framework_rows": "", "library_knobs": "gemm",
}  # fmt: skip
"""Models of kernels that are other programs than the one that their model's name stands for: families of their own.
Empty: of its configs each has a model."""


def names_of(row: Any) -> set[str]:
    """Model and family whose error a row counts for."""
    family = row.family or row.kernel
    return {family} if row.kernel in PROGRAMS else {MODELS.get(row.kernel, row.kernel), family}


def read_shares(gpu: str) -> Iterator[tuple[str, str, str, float]]:
    """(Family, kernel model, metric, error in points) of each judged share of a peak; none without a table."""
    path = kernels_dir().parent / "validation" / "studies" / f"judged_shares_{gpu}.csv"
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for row in (row for row in csv.DictReader(file) if row["name"] in JUDGED_SHARES):
                yield row["family"], row["kernel"], row["name"], abs(float(row["predicted"]) - float(row["measured"]))


def main(paths: list[str]) -> None:
    """Print the file."""
    errors: dict[str, dict[str, dict[str, list[float]]]] = {}  # by GPU, model or family, and metric
    told: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}  # by GPU, family and config
    for path in paths:
        gpu, rows = read(Path(path))
        for row in rows:
            if row.is_validation and row.name == CYCLES:
                found_options = options_of(row.kernel, dict(row.config), gpu)
                for who in names_of(row):
                    told.setdefault(gpu, {}).setdefault(who, {})[f"{row.kernel} {row.config}"] = found_options
            if row.is_validation and row.name in (*HELD_OUT_NAMES, ESTIMATED_CYCLES) and row.error_pct is not None:
                for who in names_of(row):
                    found = errors.setdefault(gpu, {}).setdefault(who, {})
                    found.setdefault(row.name, []).append(abs(row.error_pct))
    for gpu, of_gpu in errors.items():
        for family, kernel, name, error in read_shares(gpu):
            for who in {family, kernel} & set(of_gpu):
                of_gpu[who].setdefault(name, []).append(error)
    print(HEAD)
    for gpu, models in sorted(errors.items()):
        print(f'\n[{gpu}]\nsource = "gpusim validate --gpu {gpu} --tier 5,6, {datetime.now(UTC):%Y-%m-%d}"')
        for model, of_model in sorted(models.items()):
            print(f'\n[{gpu}."{model}"]' if " " in model else f"\n[{gpu}.{model}]")
            for name, found in sorted(of_model.items()):
                most = quantile(found, 0.9)
                if math.isinf(most):
                    print(f'# "{name}" has no P90: zero was counted in more than one of ten rows')
                    continue
                print(f'"{name}" = {math.ceil(10.0 * most) / 10.0}')  # up, so that it holds nine in ten
            if found_ranges := ranges_of(list(told[gpu].get(model, {}).values())):
                print(f'\n[{gpu}."{model}".rows]' if " " in model else f"\n[{gpu}.{model}.rows]")
                print("\n".join(f"{name} = {json.dumps(known)}" for name, known in found_ranges.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
