"""Static copy of the explorer: its pages, with answers computed in advance for the choices that it offers.

Each answer is a separate file, a script that the page loads on demand. So the copy works from a folder on disk, and the
first page is small. Pictures are files next to it; equal ones are stored once. A copy is built in a folder inside its
target, and replaces the last one when it is complete. An interrupted export continues.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpusim.errors import ConfigError
from gpusim.explore.answers import Answer, RefusedError, Shown
from gpusim.explore.forms import FORMS, OFFERED, Offered, grid, narrowed
from gpusim.explore.pages import ASSETS, answer_document, answer_fragment, asset, form_page, index_page, refusal_document
from gpusim.explore.worker import answered
from gpusim.machine.config import configs_dir
from gpusim.report.number_format import count
from gpusim.report.output import resolved, write_whole
from gpusim.workers import deaf_to_ctrl_c

MARK = ".gpusim-explore"
"""Name of a file that marks a folder as an export, which another export may replace."""

ANSWERS, PICTURES = "answers", "pictures"

NEXT, LAST = f"{MARK}-next", f"{MARK}-last"
"""Folders inside a copy's folder: where the next copy is built, and where the previous one is moved."""

STAMP = "stamp"
"""Name of a file in NEXT with a hash of the sources and choices of its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Amounts that an export wrote."""

    num_answers: int
    num_refusals: int
    num_pictures: int
    num_bytes: int
    num_kept: int
    """Answers that an interrupted export had computed."""


def check_folder(folder: Path, flag: str) -> None:
    """Check that ``folder`` is empty, new, or an earlier copy.

    Raises:
        ConfigError: it holds other files, or cannot be created.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{flag} {str(folder)!r} is no directory, wants an empty or a new one")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise ConfigError(f"{flag} {str(folder)!r} holds files that no export wrote, wants an empty or a new directory")
    if not folder.is_dir() and not resolved(folder).parent.is_dir():
        raise ConfigError(f"{flag} {str(folder)!r} lies in no directory; make {str(folder.parent)!r} first")
    if not os.access(folder if folder.is_dir() else resolved(folder).parent, os.W_OK):
        raise ConfigError(f"{flag} {str(folder)!r} cannot be written, wants a directory that you may write")


def export(
    folder: Path, *, jobs: int | None = None, offered: Mapping[str, Offered] = OFFERED,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Written:
    """Write a static copy to ``folder``, which :func:`check_folder` passed; ``tell`` gets the number of finished answers.

    The old contents stay until all is written. After an interruption, the same export continues where it stopped.

    Args:
        folder: target folder.
        jobs: processes; by default one per core.
        offered: choices of each page; the copy has these pages.
        tell: gets (done, total) of answers.

    Raises:
        OSError: the disk is full, or a file cannot be written.
    """
    new = _begun(folder, offered)
    pages = [page for page in FORMS if page in offered]
    tasks = [(page, key, words) for page in pages for key, words in grid(FORMS[page](), offered[page])]
    kept = _kept(new)
    open_tasks = [task for task in tasks if task[:2] not in kept]
    open_tasks.sort(key=lambda task: hashlib.sha256(task[1].encode()).digest())  # mixed, so that the rate is steady
    done, num_refusals = len(tasks) - len(open_tasks), sum(kept.values())
    tell(done, len(tasks))
    with _hands(min(jobs or os.cpu_count() or 1, max(1, len(open_tasks)))) as ask:
        for page, key, found in ask(open_tasks):
            num_refusals += isinstance(found, RefusedError)
            _write_answer(new, page, key, found, offered)
            done += 1
            tell(done, len(tasks))
    remark = f"{count(len(tasks), 'answer')}, worked out beforehand"
    (new / "index.html").write_text(index_page(copied=remark, pages=pages), encoding="utf-8")
    for page in pages:
        form = narrowed(FORMS[page](), offered[page])
        (new / f"{page}.html").write_text(form_page(form, {}, copied=remark, pages=pages), encoding="utf-8")
    for name in ASSETS:
        (new / name).write_bytes(asset(name))
    _take_place(new, folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    return Written(
        num_answers=len(tasks) - num_refusals, num_refusals=num_refusals, num_kept=len(tasks) - len(open_tasks),
        num_pictures=len(list((folder / PICTURES).iterdir())), num_bytes=sum(path.stat().st_size for path in files),
    )


def left_over(folder: Path, offered: Mapping[str, Offered] = OFFERED) -> str:
    """Remark on an interrupted export into ``folder``; empty if none was."""
    new = folder / NEXT
    if not new.is_dir():
        return ""
    remark = f"the last export into {str(folder)!r} was interrupted"
    if not _is_of(new, offered):
        return f"{remark}, with another gpusim or other choices: begun anew"
    return f"{remark}: goes on with the {count(len(_kept(new)), 'answer')} that it had"


def _begun(folder: Path, offered: Mapping[str, Offered]) -> Path:
    """Folder NEXT in ``folder``, empty or with the answers of an interrupted export."""
    new, last = folder / NEXT, folder / LAST
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        why = f"cannot be made ({error.strerror}), wants a directory that you may write"
        raise ConfigError(f"--export {str(folder)!r} {why}") from None
    (folder / MARK).write_text("written by gpusim explore --export, which may replace it\n", encoding="utf-8")
    if last.is_dir():  # an export ended between two renames
        for path in last.iterdir():
            if not (folder / path.name).exists():
                path.rename(folder / path.name)
        shutil.rmtree(last)
    if new.is_dir() and not _is_of(new, offered):
        shutil.rmtree(new)
    (new / PICTURES).mkdir(parents=True, exist_ok=True)
    for page in offered:
        (new / ANSWERS / page).mkdir(parents=True, exist_ok=True)
    (new / STAMP).write_text(_stamp(offered), encoding="utf-8")
    return new


def _take_place(new: Path, folder: Path) -> None:
    """Move the contents of ``new`` to the place of the last copy; other files that a user has put there stay."""
    (new / STAMP).unlink()
    last = folder / LAST
    last.mkdir()
    for name in (ANSWERS, PICTURES, *ASSETS, *(f"{page}.html" for page in FORMS), "index.html"):
        if (folder / name).exists():
            (folder / name).rename(last / name)
        if (new / name).exists():
            (new / name).rename(folder / name)
    new.rmdir()
    shutil.rmtree(last)


def _is_of(new: Path, offered: Mapping[str, Offered]) -> bool:
    stamp = new / STAMP
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == _stamp(offered)


def _stamp(offered: Mapping[str, Offered]) -> str:
    """SHA-256 of everything that answers come from: the package, the descriptions of GPUs, and the choices."""
    package = Path(__file__).resolve().parent.parent
    found = hashlib.sha256(json.dumps({page: dict(of) for page, of in offered.items()}).encode())
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.html"), *configs_dir().glob("*.toml")]):
        found.update(path.name.encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _kept(new: Path) -> dict[tuple[str, str], bool]:
    """(page, key) of existing answers, with whether they are refusals."""
    found = {}
    for path in new.glob(f"{ANSWERS}/*/*.js"):
        key = path.name.removesuffix(".js")
        with path.open(encoding="utf-8") as file:
            head = f'gpusimAnswer({json.dumps(key)}, {{"refusal"'
            found[path.parent.name, key] = file.read(len(head)) == head
    return found


def _write_answer(folder: Path, page: str, key: str, found: Answer | RefusedError, offered: Mapping[str, Offered]) -> None:
    def source_of(idx: int, shown: Shown) -> str:
        del idx
        content = shown.svg.encode()
        name = f"{PICTURES}/{hashlib.sha256(content).hexdigest()[:16]}.svg"
        if not (folder / name).exists():
            write_whole(folder / name, content)
        return name

    if isinstance(found, Answer):
        kept = _offers_here(found, page, offered)
        document: dict[str, Any] = answer_document(kept, answer_fragment(kept, source_of))
    else:
        document = refusal_document(str(found), found.field)
    script = f"gpusimAnswer({json.dumps(key)}, {json.dumps(document)});\n"
    write_whole(folder / ANSWERS / page / f"{key}.js", script.encode())  # an existing answer is complete


def _offers_here(answer: Answer, page: str, offered: Mapping[str, Offered]) -> Answer:
    """Answer without offers that the copy has no answer for."""
    here = tuple(
        offer for offer in answer.offers
        if all(text in offered[page].get(name, ()) for name, text in offer.query.items())
    )
    return replace(answer, offers=here)


Task = tuple[str, str, dict[str, str]]


def _answered(task: Task) -> tuple[str, str, Answer | RefusedError]:
    page, key, words = task
    return page, key, answered(page, words)


@contextmanager
def _hands(num: int) -> Iterator[Callable[[list[Task]], Iterator[tuple[str, str, Answer | RefusedError]]]]:
    """Function that answers tasks, in this process or in several."""
    if num == 1:
        yield lambda tasks: map(_answered, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with deaf_to_ctrl_c():
        pool = context.Pool(num)
    with pool:  # leaving it ends the processes
        yield lambda tasks: pool.imap_unordered(_answered, tasks, chunksize=4)
