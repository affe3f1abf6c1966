"""Write ``validation/held_out.toml`` anew, from rows that were judged.

    python scripts/held_out.py validation/judged/GPU.csv > validation/held_out.toml
    python scripts/held_out.py REPORT.json [more ...] > validation/held_out.toml

A report is what ``gpusim validate --gpu NAME --tier 5,6 --json REPORT.json`` wrote.

Only rows of whole kernels count: those of each family, and of each kernel model all together. Matrix products of libraries,
and our own but for ``sgemm_naive``, are rows of the model ``gemm``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpusim.evidence.judged import read_judged
from gpusim.evidence.tolerances import HELD_OUT_NAMES
from gpusim.evidence.validate import quantile

MODELS = dict.fromkeys(("tile_gemm", "library_gemm", "hopper_gemm", "hgemm", "sgemm"), "gemm")

HEAD = """\
# How far off predictions were of nine in ten rows of a whole kernel that nothing was fitted to (P90, percent; hit rates in
# points): of each kernel model, which `gpusim check` takes as tolerances, and of each family of rows, which predictions
# are expected to keep. Written anew by `python scripts/held_out.py validation/judged/GPU.csv`."""


def read(path: Path) -> tuple[str, Sequence[Any]]:
    """(GPU, rows) of a report, or of a table of judged rows."""
    if path.suffix == ".csv":
        judged = read_judged(path.stem, path.parent)
        return judged.gpu, judged.rows
    document = json.loads(path.read_text(encoding="utf-8"))
    return document["gpu"], [SimpleNamespace(**row) for row in document["rows"]]


def main(paths: list[str]) -> None:
    """Print the file."""
    errors: dict[str, dict[str, dict[str, list[float]]]] = {}  # by GPU, model or family, and metric
    for path in paths:
        gpu, rows = read(Path(path))
        for row in rows:
            if row.is_whole and row.name in HELD_OUT_NAMES and row.error_pct is not None:
                for who in {MODELS.get(row.kernel, row.kernel), row.family or row.kernel}:
                    found = errors.setdefault(gpu, {}).setdefault(who, {})
                    found.setdefault(row.name, []).append(abs(row.error_pct))
    print(HEAD)
    for gpu, models in sorted(errors.items()):
        print(f'\n[{gpu}]\nsource = "gpusim validate --gpu {gpu} --tier 5,6, {datetime.now(UTC):%Y-%m-%d}"')
        for model, of_model in sorted(models.items()):
            print(f'\n[{gpu}."{model}"]' if " " in model else f"\n[{gpu}.{model}]")
            for name, found in sorted(of_model.items()):
                print(f'"{name}" = {math.ceil(10.0 * quantile(found, 0.9)) / 10.0}')  # up, so that it holds nine in ten


if __name__ == "__main__":
    main(sys.argv[1:])
