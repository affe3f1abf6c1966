"""Write `validation/frozen/GPU.csv` anew: of each judged row of a whole kernel what is predicted, and how far off that is.

    python scripts/freeze_rows.py [GPU]          from validation/judged/GPU.csv, which gpusim validate made
    python scripts/freeze_rows.py [GPU] --check  simulate all rows, and say which have moved by more than 1 %

The suite simulates the quick ones of these rows (`tests/evidence/test_frozen.py`). A change that moves a row wants a line in
CHANGELOG.md, and this file written anew.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.paths import CYCLES
from gpusim.evidence.cases.rows import config_of
from gpusim.evidence.validate.answers import Question, answer, questions_of
from gpusim.evidence.validate.judged_rows import read_judged
from gpusim.machine.config import GpuSpec, load_gpu

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("kernel", "group", "config", "measured", "predicted", "error_pct")
MOST_MOVED_PCT = 1.0
TIERS = (5, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A judged row, as it was predicted: cycles."""

    kernel: str
    group: str
    config: str
    measured: float
    predicted: float

    @property
    def error_pct(self) -> float:
        """How far off the prediction is, with its sign."""
        return 100.0 * (self.predicted / self.measured - 1.0)


def path_of(gpu_name: str) -> Path:
    """Where a GPU's rows are frozen."""
    return ROOT / "validation" / "frozen" / f"{gpu_name}.csv"


def read_frozen(gpu_name: str) -> list[Frozen]:
    """All rows of a GPU."""
    with path_of(gpu_name).open(encoding="utf-8", newline="") as file:
        return [
            Frozen(
                kernel=row["kernel"], group=row["group"], config=row["config"], measured=float(row["measured"]),
                predicted=float(row["predicted"]),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def moved(rows: Iterable[Frozen], gpu: GpuSpec) -> Iterator[tuple[Frozen, float]]:
    """Rows that are now predicted otherwise by more than 1 %, each with its new prediction.

    Raises:
        KeyError: a frozen row is measured no more.
    """
    questions = {}
    wanted = list(rows)
    for name in dict.fromkeys(row.kernel for row in wanted):
        case = load_case(name)
        for question in questions_of(case, ROOT / "validation" / "measured" / gpu.name, gpu, TIERS):
            if CYCLES in question.names:
                config = " ".join(f"{key}={value}" for key, value in config_of(question.row, case.columns).items())
                questions[name, question.row["group"], config] = question
    for row in wanted:
        question = questions[row.kernel, row.group, row.config]
        only = Question(case=question.case, path=question.path, row=question.row, names=(CYCLES,))
        now = answer(load_case(row.kernel), only, gpu)[CYCLES].value
        if abs(now / row.predicted - 1.0) > MOST_MOVED_PCT / 100.0:
            yield row, now


def sentence(row: Frozen, now: float) -> str:
    """How a row has moved."""
    return (
        f"{row.kernel} {row.group} {row.config}: {100.0 * (now / row.predicted - 1.0):+.2f} %, off by "
        f"{row.error_pct:+.1f} % before and {100.0 * (now / row.measured - 1.0):+.1f} % now"
    )


def freeze(gpu_name: str) -> None:
    """Write the rows of ``validation/judged``."""
    rows = [item for item in read_judged(gpu_name).rows if item.name == CYCLES]
    path_of(gpu_name).parent.mkdir(exist_ok=True)
    with path_of(gpu_name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for item in rows:
            error = 100.0 * (item.predicted / item.measured - 1.0)
            config = " ".join(f"{name}={value}" for name, value in item.config.items())
            writer.writerow((item.kernel, item.group, config, item.measured, f"{item.predicted:.2f}", f"{error:.2f}"))


def main(arguments: list[str]) -> int:
    """As the module's docstring says."""
    names = [text for text in arguments if not text.startswith("-")]
    gpu_name = names[0] if names else "h200_sxm"
    if "--check" not in arguments:
        freeze(gpu_name)
        return 0
    found = [sentence(row, now) for row, now in moved(read_frozen(gpu_name), load_gpu(gpu_name))]
    print("\n".join(found) or "no row has moved")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
