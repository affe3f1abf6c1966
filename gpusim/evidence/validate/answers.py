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

from gpusim.errors import ConfigError, say
from gpusim.evidence.bench.timing import VALUES
from gpusim.evidence.cases.case import Answer, Case, asked, kernels_dir, key_of, load_case
from gpusim.evidence.cases.measured_gpu import MeasuredGpu
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
        sizes = MeasuredGpu.of(gpu)
        yield from _here(questions, gpu, {name: load_case(name, gpu=sizes) for name in {item.case for item in questions}})
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
    return answer(load_case(question.case, gpu=MeasuredGpu.of(_HERE["gpu"])), question, _HERE["gpu"])


# ---------------------------------------------------------------------------------------------- cache
@dataclass(slots=True)
class Kept:
    """Answers on disk: a file for each version of the sources and GPU, a line for each request.

    A change of the sources or of the GPU starts an empty file. A line has a checksum; a damaged one is simulated again. A
    file that cannot be read or written costs a remark, and nothing else.
    """

    path: Path
    _lines: dict[str, dict[str, Answer]] = field(default_factory=dict)
    _is_open: bool = True
    """Whether the file can be written, as far as known."""
    _is_cut: bool = False
    """Whether the last line of the file has no end."""

    @classmethod
    def of(cls, gpu: GpuSpec, folder: Path | None = None) -> Kept:
        """Cache of the current sources and ``gpu`` in ``folder``, by default :func:`kept_dir`, without damaged lines."""
        folder = folder or kept_dir()
        if folder is None:
            say("there is no folder for the cache of answers: set XDG_CACHE_HOME; all goes on as with --no-cache")
            return cls(Path(), _is_open=False)
        kept = cls(folder / f"{_hash(['checksums', source_hash(), str(gpu)])}.jsonl")
        try:
            content = kept.path.read_bytes()
        except FileNotFoundError:
            return kept
        except OSError as error:
            kept._stop("read", error)
            return kept
        *lines, last = content.split(b"\n")  # the last one is empty, or the unfinished line of a run
        kept._is_cut = bool(last)
        damaged = 0
        for line in lines:
            found = _read_line(line)
            if found is None:
                damaged += 1
            else:
                kept._lines[found[0]] = found[1]
        if damaged:
            say(f"{kept.path}: {damaged} of {len(lines)} lines are damaged; their rows are simulated again")
        return kept

    def get(self, question: Question) -> dict[str, Answer] | None:
        """Cached answers by name; None where there are none."""
        return self._lines.get(question.key)

    def put(self, question: Question, answers: Mapping[str, Answer]) -> None:
        """Cache ``answers`` and write them to disk at once."""
        self._lines[question.key] = dict(answers)
        if not self._is_open:
            return
        try:
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                others = sorted(self.path.parent.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
                for path in others[: max(0, len(others) - MOST_KEPT + 1)]:
                    path.unlink(missing_ok=True)
            with self.path.open("ab") as file:
                file.write(b"\n" * self._is_cut + _line(question.key, answers))
            self._is_cut = False
        except OSError as error:
            self._stop("written", error)

    def _stop(self, what: str, error: OSError) -> None:
        self._is_open = False
        say(f"{self.path}: the cache of answers cannot be {what} ({error.strerror}); all goes on as with --no-cache")


def _line(key: str, answers: Mapping[str, Answer]) -> bytes:
    """Line of a cache: a checksum, and what it stands for."""
    text = json.dumps([key, {name: asdict(item) for name, item in answers.items()}]).encode()
    return _checksum(text) + b" " + text + b"\n"


def _read_line(line: bytes) -> tuple[str, dict[str, Answer]] | None:
    """Key and answers of a line; None where it is damaged.

    >>> _read_line(_line("a", {}).rstrip()), _read_line(b"5")
    (('a', {}), None)
    """
    checksum, _, text = line.partition(b" ")
    if checksum != _checksum(text):
        return None
    try:
        key, answers = json.loads(text)
        return key, {name: Answer(**fields) for name, fields in answers.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()


def kept_dir() -> Path | None:
    """``gpusim/judged`` in the user's folder for caches (``XDG_CACHE_HOME``, else ``~/.cache``); None without a home."""
    for home in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(home):
            return Path(home) / "gpusim" / "judged"
    return None


def sources() -> list[Path]:
    """Files that answers depend on: the package without ``LOOK_ON``, its engine, and the kernels' cases."""
    package = Path(__file__).resolve().parents[2]
    found = [path for path in package.rglob("*.py") if not path.relative_to(package).as_posix().startswith(LOOK_ON)]
    return sorted([*found, package / "engine.wasm", *kernels_dir().rglob("*.py")])


@cache
def source_hash() -> str:
    """SHA-256 of the names and contents of :func:`sources`."""
    found, roots = hashlib.sha256(), (Path(__file__).resolve().parents[2], kernels_dir())
    for path in sources():
        root = next(root for root in roots if path.is_relative_to(root))
        found.update(path.relative_to(root.parent).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _hash(what: Any) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]
