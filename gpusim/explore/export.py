"""A static copy of the explorer: the same pages, with answers worked out beforehand for the choices that it offers.

An answer is a file of its own, a script that a page loads when it is asked: so it works from a folder on disk, too, and the
first page is small. Pictures lie beside it; those that are equal are one file.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpusim.errors import ConfigError
from gpusim.explore.answers import Answer, RefusedError, Shown
from gpusim.explore.forms import FORMS, OFFERED, Offered, grid, narrowed
from gpusim.explore.pages import (
    ASSETS,
    answer_document,
    answer_fragment,
    asset,
    form_page,
    index_page,
    refusal_document,
)
from gpusim.explore.worker import answered
from gpusim.report.words import count

MARK = ".gpusim-explore"
"""A file of this name says that a folder is an export, which another one may replace."""

ANSWERS, PICTURES = "answers", "pictures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How much was written."""

    num_answers: int
    num_refusals: int
    num_pictures: int
    num_bytes: int


def check_folder(folder: Path, flag: str) -> None:
    """Refuse what is no empty folder, nor a copy from before.

    Raises:
        ConfigError: it holds other files, or cannot be made.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{flag} {str(folder)!r} is no directory, wants an empty or a new one")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise ConfigError(f"{flag} {str(folder)!r} holds files that no export wrote, wants an empty or a new directory")
    if not folder.is_dir() and not folder.resolve().parent.is_dir():
        raise ConfigError(f"{flag} {str(folder)!r} lies in no directory; make {str(folder.parent)!r} first")
    if not os.access(folder if folder.is_dir() else folder.resolve().parent, os.W_OK):
        raise ConfigError(f"{flag} {str(folder)!r} cannot be written, wants a directory that you may write")


def export(
    folder: Path, *, jobs: int | None = None, offered: Mapping[str, Offered] = OFFERED,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Written:
    """Write a static copy to ``folder``, which :func:`check_folder` passed; ``tell`` hears how many answers are done.

    Raises:
        OSError: the disk is full, or a file cannot be written.
    """
    _clear(folder)
    tasks = [(page, key, words) for page in FORMS for key, words in grid(FORMS[page](), offered[page])]
    tell(0, len(tasks))
    num_answers = num_refusals = 0
    with _hands(min(jobs or os.cpu_count() or 1, len(tasks))) as ask:
        for done, (page, key, found) in enumerate(ask(tasks), start=1):
            if isinstance(found, Answer):
                num_answers += 1
            else:
                num_refusals += 1
            _write_answer(folder, page, key, found, offered)
            tell(done, len(tasks))
    said = f"{count(num_answers + num_refusals, 'answer')}, worked out beforehand"
    (folder / "index.html").write_text(index_page(copied=said), encoding="utf-8")
    for page, make in FORMS.items():
        form = narrowed(make(), offered[page])
        (folder / f"{page}.html").write_text(form_page(form, {}, copied=said), encoding="utf-8")
    for name in ASSETS:
        (folder / name).write_bytes(asset(name))
    files = [path for path in folder.rglob("*") if path.is_file()]
    return Written(
        num_answers=num_answers, num_refusals=num_refusals, num_pictures=len(list((folder / PICTURES).iterdir())),
        num_bytes=sum(path.stat().st_size for path in files),
    )


def _clear(folder: Path) -> None:
    """Make the folder, or remove what an export before wrote."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        why = f"cannot be made ({error.strerror}), wants a directory that you may write"
        raise ConfigError(f"--export {str(folder)!r} {why}") from None
    (folder / MARK).write_text("written by gpusim explore --export, which may replace it\n", encoding="utf-8")
    for pattern in (f"{ANSWERS}/*/*.js", f"{PICTURES}/*.svg"):
        for path in folder.glob(pattern):
            path.unlink()
    (folder / PICTURES).mkdir(exist_ok=True)
    for page in FORMS:
        (folder / ANSWERS / page).mkdir(parents=True, exist_ok=True)


def _write_answer(folder: Path, page: str, key: str, found: Answer | RefusedError, offered: Mapping[str, Offered]) -> None:
    def source_of(idx: int, shown: Shown) -> str:
        del idx
        content = shown.svg.encode()
        name = f"{PICTURES}/{hashlib.sha256(content).hexdigest()[:16]}.svg"
        (folder / name).write_bytes(content)
        return name

    if isinstance(found, Answer):
        kept = _offers_here(found, page, offered)
        document: dict[str, Any] = answer_document(kept, answer_fragment(kept, source_of))
    else:
        document = refusal_document(str(found), found.field)
    script = f"gpusimAnswer({json.dumps(key)}, {json.dumps(document)});\n"
    (folder / ANSWERS / page / f"{key}.js").write_text(script, encoding="utf-8")


def _offers_here(answer: Answer, page: str, offered: Mapping[str, Offered]) -> Answer:
    """Without offers that the copy has no answer for."""
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
    """Who answers: this process, or several."""
    if num == 1:
        yield lambda tasks: map(_answered, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(num, initializer=_deaf) as pool:  # leaving it ends the processes
        yield lambda tasks: pool.imap_unordered(_answered, tasks, chunksize=4)


def _deaf() -> None:
    """Ctrl-C is for who asks, not for those who answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
