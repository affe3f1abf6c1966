"""What the simulator says of measured rows, question by question: in this process, in several, or as it was kept before.

In: cases, their measured tables, a GPU. Out: answers, by question. A *question* are the numbers of one row that one
simulation answers, so that work spreads evenly and nothing is simulated twice. Answers are kept on disk under all that they
can depend on: the sources that make them, the GPU's description, and the row.
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
"""Parts of the package that no answer depends on."""

MOST_KEPT = 12
"""Files of answers that are kept, the latest: one for each tree and GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Numbers of one row that are asked for together."""

    case: str
    path: Path
    """Of the table."""
    row: Row
    names: tuple[str, ...]

    @property
    def key(self) -> str:
        """Of the row and the names, wherever the row's table lies."""
        row = {name: text for name, text in sorted(self.row.items()) if name not in ("run",)}
        return _hash([self.case, row, sorted(self.names)])


# ---------------------------------------------------------------------------------------------- what is asked


def questions_of(case: Case, folder: Path, gpu: GpuSpec, tiers: Iterable[int]) -> list[Question]:
    """All that rows of ``case`` in ``folder`` are asked at ``tiers``: those that judge, of configs that it asks for.

    Raises:
        ConfigError: the table is none, or lacks a column of its case's configs.
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
    """Names that one simulation answers: of a whole kernel what was counted, and each way in which it was timed."""
    if not case.is_whole:
        return [tuple(case.tiers)]
    kinds: dict[str, list[str]] = {}
    for name in case.tiers:
        kinds.setdefault(name.partition("_")[0] if name in VALUES else "", []).append(name)
    return [tuple(names) for names in kinds.values()]


def asked_rows(case: Case, rows: Sequence[Row]) -> list[Row]:
    """Those of configs that the case asks for, in their group."""
    wanted: dict[tuple[str, str], set[Any]] = {}
    for row in rows:
        who = (row["group"], row["seed"])
        if who not in wanted:
            configs = case.configs(row["group"], int(row["seed"])) if row["group"] in case.groups else []
            wanted[who] = {key_of(config) for config in configs}
    return [row for row in rows if key_of(config_of(row, case.columns)) in wanted[row["group"], row["seed"]]]


# ---------------------------------------------------------------------------------------------- who answers


def answer(case: Case, question: Question, gpu: GpuSpec) -> dict[str, Answer]:
    """What the simulator says, by name; a name may be missing.

    Raises:
        ConfigError: the case's own code fails, or the row holds no number where one is wanted.
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
    """Each question with its answers, as they come: first those that are kept, then the others.

    Args:
        questions: what is asked.
        gpu: of whom.
        cases: who asks, by name: all in this process. None: the cases of ``kernels/``, in several processes.
        kept: where answers are kept.
        num_processes: at most so many at once; by default one for each core.
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
    with processes(num_processes, _remember, (gpu,)) as (pool, drop):
        futures = {pool.submit(_answer_here, question): question for question in questions}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            drop()
            raise


_HERE: dict[str, Any] = {}
"""Of a process that answers: the GPU, and who asks."""


def _remember(gpu: GpuSpec) -> None:
    _HERE["gpu"], _HERE["parent"] = gpu, os.getppid()


def _answer_here(question: Question) -> dict[str, Answer]:
    if os.getppid() != _HERE["parent"]:
        os._exit(1)  # who asked is gone, and others' questions would still be answered
    return answer(load_case(question.case), question, _HERE["gpu"])


# ---------------------------------------------------------------------------------------------- what is kept


@dataclass(slots=True)
class Kept:
    """Answers on disk: a file for each tree and GPU, a line for each question. Whoever changes either finds an empty one."""

    path: Path
    _lines: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, gpu: GpuSpec, folder: Path | None = None) -> Kept:
        """Those of this tree and ``gpu`` in ``folder``, by default :func:`kept_dir`; older trees' are forgotten."""
        folder = folder or kept_dir()
        kept = cls(folder / f"{_hash([source_hash(), str(gpu)])}.jsonl")
        if kept.path.exists():
            for line in kept.path.read_text(encoding="utf-8").splitlines():
                try:
                    key, answers = json.loads(line)
                except ValueError:
                    continue  # the end of a line that a run did not finish
                kept._lines[key] = answers
        return kept

    def get(self, question: Question) -> dict[str, Answer] | None:
        """What was answered; None where nothing is kept."""
        found = self._lines.get(question.key)
        return None if found is None else {name: Answer(**fields) for name, fields in found.items()}

    def put(self, question: Question, answers: Mapping[str, Answer]) -> None:
        """Keep it, at once."""
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
    """All that answers come from: the package with its engine, but for what only looks on, and the kernels' cases."""
    package = Path(__file__).resolve().parents[2]
    found = [path for path in package.rglob("*.py") if not path.relative_to(package).as_posix().startswith(LOOK_ON)]
    return sorted([*found, package / "engine.wasm", *kernels_dir().rglob("*.py")])


@cache
def source_hash() -> str:
    """Of :func:`sources`."""
    found = hashlib.sha256()
    for path in sources():
        found.update(f"{path.parent.name}/{path.name}".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _hash(what: Any) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]
