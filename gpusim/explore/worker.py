"""Worker processes of the explorer, with limits of work and time for each answer and a cache of answers.

Small questions have a process, and large ones several, so that no small one waits for a large one.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Empty, LifoQueue
from typing import Any, Final

from gpusim.errors import GpusimError
from gpusim.explore.answers import Answer, RefusedError
from gpusim.explore.questions import answer_of, question_of
from gpusim.workers import deaf_to_ctrl_c

PATIENCE_S: Final = 30.0
"""Seconds that one answer may take, and that a question waits for a process."""

KEPT: Final = 64
"""Answers that are cached, so that going back is immediate."""


LOOK_S: Final = 0.1
"""Seconds between looks whether who asks has left."""

SHORT_S: Final = 2.0
"""Seconds up to which an answer is finished though nobody waits for it: to start another process takes as long."""

MOST_SMALL: Final = 100_000
"""Work of a question from which on it is large, as :meth:`gpusim.explore.answers.Question.work`."""

MOST_WORK: Final = 4_000_000
"""Work beyond which a question is refused beforehand: a core would take about half a minute."""

NUM_LARGE: Final = max(2, min(4, os.cpu_count() or 1))
"""Large questions that are answered at once."""

Gone = Callable[[], bool]


def NEVER() -> bool:  # noqa: N802  # a constant
    """Whether who asks has left: no."""
    return False


LEFT: Final = "nobody waits for the answer any more"


class Workers:
    """A worker for small questions, and some for large ones."""

    def __init__(self) -> None:
        self.small, self.large = Pool(), Pool(num=NUM_LARGE)

    def ask(self, page: str, words: Mapping[str, str], is_plain: bool = False, gone: Gone = NEVER) -> Answer:
        """Answer, as :meth:`Pool.ask`.

        Raises:
            RefusedError: there is no answer, or it would take too long.
        """
        work = question_of(page, words).work(is_plain=is_plain)
        if work > MOST_WORK:
            times = f"{work / MOST_WORK:.1f} times as much work"
            raise RefusedError(f"this is {times} as one answer may take: ask for less, or use the command line")
        return (self.large if work > MOST_SMALL else self.small).ask(page, words, is_plain, gone)

    def end(self) -> None:
        """Stop all."""
        self.small.end()
        self.large.end()


class Pool:
    """Workers of which any idle one answers. A cached answer needs none."""

    def __init__(self, patience_s: float = PATIENCE_S, num: int = 1) -> None:
        self.workers = tuple(Worker() for _ in range(num))
        self._patience_s = patience_s
        self._idle: LifoQueue[Worker] = LifoQueue()  # the last one is used again: its process runs
        for worker in reversed(self.workers):
            self._idle.put(worker)
        self._kept: OrderedDict[tuple[str, bool, tuple[tuple[str, str], ...]], Answer | RefusedError] = OrderedDict()

    def ask(self, page: str, words: Mapping[str, str], is_plain: bool = False, gone: Gone = NEVER) -> Answer:
        """Answer to ``words`` on ``page``. ``is_plain``: for a browser without scripts. ``gone``: whether who asks has left.

        Raises:
            RefusedError: there is no answer, it takes too long, or nobody waits for it.
        """
        key = (page, is_plain, tuple(sorted(words.items())))
        until = time.monotonic() + self._patience_s
        while (found := self._kept.get(key)) is None:
            if gone():
                raise RefusedError(LEFT)
            if time.monotonic() > until:
                raise RefusedError("other questions are being answered, ask again")
            with suppress(Empty):
                worker = self._idle.get(timeout=LOOK_S)
                try:
                    if key not in self._kept:  # the same question may have been answered meanwhile
                        self._kept[key] = worker.ask(page, words, is_plain, gone, self._patience_s)
                finally:
                    self._idle.put(worker)
        with suppress(KeyError):  # other threads forget answers
            self._kept.move_to_end(key)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        if isinstance(found, RefusedError):
            raise RefusedError(str(found), found.field)
        return found

    def end(self) -> None:
        """Stop: current requests are refused, and no process is started any more."""
        for worker in self.workers:
            worker.end()


class Worker:
    """A process that answers one request after the other. One that takes too long is ended, and another is started."""

    def __init__(self) -> None:
        self._change = threading.Lock()  # guards the process, which is ended only when it has started completely
        self._is_over = False
        self._process: Any = None
        self._ours: Connection | None = None

    def ask(
        self, page: str, words: Mapping[str, str], is_plain: bool, gone: Gone, patience_s: float
    ) -> Answer | RefusedError:
        """Answer, or the reason why there is none.

        Raises:
            RefusedError: it takes too long, nobody waits for it, or the process has ended.
        """
        connection = self._connection()
        began = time.monotonic()
        try:
            connection.send((page, dict(words), is_plain))
            while not connection.poll(min(LOOK_S, patience_s)) and time.monotonic() < began + patience_s:
                if time.monotonic() > began + SHORT_S and gone():
                    self._end_process()
                    raise RefusedError(LEFT)
            if not connection.poll(0):
                self._end_process()
                seconds = f"{patience_s:g} seconds"  # raised, not cached: a busy machine may have time next time
                raise RefusedError(f"this takes longer than {seconds}: ask for less, or use the command line")
            found: Answer | RefusedError = connection.recv()
        except (EOFError, OSError):
            self._end_process()
            raise RefusedError("the process that answers has ended: ask again, or use the command line") from None
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
