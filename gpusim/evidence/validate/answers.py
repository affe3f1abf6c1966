"""Simulated answers for measured GPU rows: in this process, in worker processes, or from a cache on disk.

In: cases, their measured tables, a GPU. Out: answers by request. A request (:class:`Question`) holds the numbers of one row
that one simulation answers, so that work spreads evenly and nothing is simulated twice. The cache key covers everything that
answers depend on: the sources that compute them, the GPU's description, and the row.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.errors import ConfigError
from gpusim.evidence.bench.timing import VALUES
from gpusim.evidence.cases.case import Answer, Case, asked, kernels_dir, key_of, load_case
from gpusim.evidence.cases.rows import Row, Table, config_of
from gpusim.evidence.toolchain.cuda_toolkit import FOLDERS
from gpusim.evidence.validate.calibrate import halves
from gpusim.workers import processes

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

LOOK_ON = (
    "cli", "lessons", "report", "evidence/bench", "evidence/gate", "evidence/nsight",
    *(
        f"evidence/validate/{name}.py"
        for name in (
            "accuracy_summary", "answers", "blind_predictions", "calibrate", "expected_error", "judge", "published",
            "ranking",
        )
    ),
)  # fmt: skip
"""Paths below ``gpusim/`` that no answer depends on."""

MOST_KEPT = 12
"""Cache files that are kept, the latest ones: one for each version of the sources and GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Numbers of one row that are requested together."""

    case: str
    path: Path
    """Path of the row's table."""
    row: Row
    names: tuple[str, ...]

    @property
    def key(self) -> str:
        """Cache key of the row and the names, independent of where the table lies."""
        row = {name: text for name, text in sorted(self.row.items()) if name not in ("run",)}
        return _hash([self.case, row, sorted(self.names)])


# ---------------------------------------------------------------------------------------------- requests
def questions_of(case: Case, folder: Path, gpu: GpuSpec, tiers: Iterable[int]) -> list[Question]:
    """Requests for the rows of ``case`` in ``folder`` at ``tiers``: judging rows of configs that the case asks for.

    Raises:
        ConfigError: there is no table, or it lacks a column of its case's configs.
    """
    path, wanted = folder / f"{case.name}.csv", set(tiers)
    if not wanted & set(case.tiers.values()) or not path.exists():
        return []
    table = Table.read(path)
    table.check_gpu(gpu.base_name, FOLDERS)
    try:
        rows = asked_rows(case, halves(case, table)[1])
    except ConfigError as error:
        raise ConfigError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    return [
        Question(case=case.name, path=path, row=row, names=names)
        for row in rows for together in _together(case)
        if (names := tuple(name for name in together if row.get(name) or name in case.derived))
        and any(case.tiers[name] in wanted for name in together)
    ]  # fmt: skip


def _together(case: Case) -> list[tuple[str, ...]]:
    """Names grouped by the simulation that answers them.

    A validation kernel has one group for the counted launch and one for each protocol that times it.
    """
    if not case.is_validation:
        return [tuple(case.tiers)]
    kinds: dict[str, list[str]] = {}
    for name in case.tiers:
        kinds.setdefault(name.partition("_")[0] if name in VALUES else "", []).append(name)
    return [tuple(names) for names in kinds.values()]


def asked_rows(case: Case, rows: Sequence[Row]) -> list[Row]:
    """Rows whose config is one that the case asks for, in the same group."""
    wanted: dict[tuple[str, str], set[Any]] = {}
    for row in rows:
        who = (row["group"], row["seed"])
        if who not in wanted:
            configs = case.configs(row["group"], int(row["seed"])) if row["group"] in case.groups else []
            wanted[who] = {key_of(config) for config in configs}
    return [row for row in rows if key_of(config_of(row, case.columns)) in wanted[row["group"], row["seed"]]]


# ---------------------------------------------------------------------------------------------- simulation
def answer(case: Case, question: Question, gpu: GpuSpec) -> dict[str, Answer]:
    """Simulator's answers for ``question``, by name; a name may be missing.

    Raises:
        ConfigError: the case's function fails, or a field of the row holds no number.
    """
    try:
        config = config_of(question.row, case.columns)
        found = asked(case, "predict", case.answers, config, question.row, gpu, set(question.names))
    except ConfigError as error:
        raise ConfigError(f"{question.path}: {str(error).removeprefix(f'{question.path}: ')}") from None
    return {name: found[name] for name in question.names if name in found}


def answers_to(
    questions: Sequence[Question], gpu: GpuSpec, cases: Mapping[str, Case] | None = None, *, kept: Kept | None = None,
    num_processes: int | None = None,
) -> Iterator[tuple[Question, dict[str, Answer]]]:
    """(request, answers) pairs as they become available: cached ones first.

    Args:
        questions: requests.
        gpu: the GPU to simulate.
        cases: cases by name, all simulated in this process. None: the cases of ``kernels/``, in worker processes.
        kept: cache of answers.
        num_processes: most worker processes at once; by default one per core.
    """
    left = []
    for question in questions:
        known = None if kept is None else kept.get(question)
        if known is None:
            left.append(question)
        else:
            yield question, known
    here = _here(left, gpu, cases) if cases is not None else _simulated(left, gpu, num_processes or os.cpu_count() or 1)
    for question, found in here:
        if kept is not None:
            kept.put(question, found)
        yield question, found


def _here(
    questions: Sequence[Question], gpu: GpuSpec, cases: Mapping[str, Case]
) -> Iterator[tuple[Question, dict[str, Answer]]]:
    for question in questions:
        yield question, answer(cases[question.case], question, gpu)


def _simulated(
    questions: Sequence[Question], gpu: GpuSpec, num_processes: int
) -> Iterator[tuple[Question, dict[str, Answer]]]:
    num_processes = min(len(questions), num_processes)
    if num_processes <= 1:
        yield from _here(questions, gpu, {name: load_case(name) for name in {item.case for item in questions}})
        return
    with processes(num_processes, _remember, (gpu,)) as (pool, _):
        futures = {pool.submit(_answer_here, question): question for question in questions}
        for future in as_completed(futures):
            yield futures[future], future.result()


_HERE: dict[str, Any] = {}
"""State of a worker process: the GPU."""


def _remember(gpu: GpuSpec) -> None:
    _HERE["gpu"] = gpu


def _answer_here(question: Question) -> dict[str, Answer]:
    return answer(load_case(question.case), question, _HERE["gpu"])


# ---------------------------------------------------------------------------------------------- cache
@dataclass(slots=True)
class Kept:
    """Answers on disk: a file for each version of the sources and GPU, a line for each request.

    A change of the sources or of the GPU starts an empty file.
    """

    path: Path
    _lines: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, gpu: GpuSpec, folder: Path | None = None) -> Kept:
        """Cache of the current sources and ``gpu`` in ``folder``, by default :func:`kept_dir`, without unfinished lines."""
        folder = folder or kept_dir()
        kept = cls(folder / f"{_hash([source_hash(), str(gpu)])}.jsonl")
        if kept.path.exists():
            for line in kept.path.read_text(encoding="utf-8").splitlines():
                try:
                    key, answers = json.loads(line)
                except ValueError:
                    continue  # the unfinished last line of a run
                kept._lines[key] = answers
        return kept

    def get(self, question: Question) -> dict[str, Answer] | None:
        """Cached answers by name; None where there are none."""
        found = self._lines.get(question.key)
        return None if found is None else {name: Answer(**fields) for name, fields in found.items()}

    def put(self, question: Question, answers: Mapping[str, Answer]) -> None:
        """Cache ``answers`` and write them to disk at once."""
        fields = {name: asdict(item) for name, item in answers.items()}
        self._lines[question.key] = fields
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            others = sorted(self.path.parent.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
            for path in others[: max(0, len(others) - MOST_KEPT + 1)]:
                path.unlink(missing_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([question.key, fields]) + "\n")


def kept_dir() -> Path:
    """``gpusim/judged`` in the user's folder for caches (``XDG_CACHE_HOME``, else ``~/.cache``)."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "gpusim" / "judged"


def sources() -> list[Path]:
    """Files that answers depend on: the package without ``LOOK_ON``, its engine, and the kernels' cases."""
    package = Path(__file__).resolve().parents[2]
    found = [path for path in package.rglob("*.py") if not path.relative_to(package).as_posix().startswith(LOOK_ON)]
    return sorted([*found, package / "engine.wasm", *kernels_dir().rglob("*.py")])


@cache
def source_hash() -> str:
    """SHA-256 of the names and contents of :func:`sources`."""
    found = hashlib.sha256()
    for path in sources():
        found.update(f"{path.parent.name}/{path.name}".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _hash(what: Any) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]
