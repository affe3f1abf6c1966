"""Worker process of the explorer, with a time limit for each answer and a cache of answers."""

from __future__ import annotations

import multiprocessing
import threading
from collections import OrderedDict
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Final

from gpusim.errors import GpusimError
from gpusim.explore.answers import Answer, RefusedError
from gpusim.explore.questions import answer_of, question_of
from gpusim.workers import deaf_to_ctrl_c

PATIENCE_S: Final = 30.0
"""Seconds that one answer may take."""

KEPT: Final = 64
"""Answers that are cached, so that going back is immediate."""


class Worker:
    """A process that answers one request after the other. One that takes too long is ended, and another is started."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._turn = threading.Lock()
        self._change = threading.Lock()  # guards the process, which is ended only when it has started completely
        self._is_over = False
        self._process: Any = None
        self._ours: Connection | None = None
        self._kept: OrderedDict[tuple[str, bool, tuple[tuple[str, str], ...]], Answer | RefusedError] = OrderedDict()

    def ask(self, page: str, words: Mapping[str, str], is_plain: bool = False) -> Answer:
        """Answer to ``words`` on ``page``. ``is_plain``: for a browser without scripts.

        Raises:
            RefusedError: there is no answer, or it takes too long.
        """
        key = (page, is_plain, tuple(sorted(words.items())))
        if not self._turn.acquire(timeout=self._patience_s):
            raise RefusedError("other questions are being answered, ask again")
        try:
            found = self._kept.get(key)
            if found is None:
                found = self._kept[key] = self._asked(page, words, is_plain)
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(key)
        finally:
            self._turn.release()
        if isinstance(found, RefusedError):
            raise RefusedError(str(found), found.field)
        return found

    def end(self) -> None:
        """Stop: the current request is refused, and no process is started any more."""
        self._is_over = True
        self._end_process()

    def _end_process(self) -> None:
        with self._change:
            if self._process is not None:
                self._process.terminate()
                self._process.join(5.0)
            self._process = self._ours = None

    def _connection(self) -> Connection:
        with self._change:
            if self._is_over:
                raise RefusedError("no more questions are answered")
            if self._ours is None or self._process is None or not self._process.is_alive():
                context = multiprocessing.get_context("spawn")
                self._ours, theirs = context.Pipe()
                self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
                with deaf_to_ctrl_c():
                    self._process.start()
                theirs.close()
            return self._ours

    def _asked(self, page: str, words: Mapping[str, str], is_plain: bool) -> Answer | RefusedError:
        connection = self._connection()
        try:
            connection.send((page, dict(words), is_plain))
            if not connection.poll(self._patience_s):
                self._end_process()
                seconds = f"{self._patience_s:g} seconds"  # raised, not cached: a busy machine may have time next time
                raise RefusedError(f"this takes longer than {seconds}: ask for less, or use the command line")
            found: Answer | RefusedError = connection.recv()
        except (EOFError, OSError):
            self._end_process()
            raise RefusedError("the process that answers has ended: ask again, or use the command line") from None
        return found


def answered(page: str, words: Mapping[str, str], is_plain: bool = False) -> Answer | RefusedError:
    """Answer, or the reason why there is none."""
    try:
        return answer_of(question_of(page, words), is_plain=is_plain)
    except RefusedError as refusal:
        return refusal
    except GpusimError as error:
        return RefusedError(" ".join(str(error).split()))


def _serve(connection: Connection) -> None:
    """Answer requests until the connection is closed."""
    while True:
        try:
            page, words, is_plain = connection.recv()
        except EOFError:
            return
        connection.send(answered(page, words, is_plain))
