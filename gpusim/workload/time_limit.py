"""Time limit of a role's program between two ops: a program that loops and yields nothing is ended.

In: the role whose program runs. Out: an error with the role and the number of its op.

Models:

* A thread looks every second whether the role has another op. After some seconds of work without one it raises an
  exception in the tracing thread.

Ignores:

* Loops inside of one call of C code, for example ``sum(itertools.count())``: Python raises when the call returns.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from gpusim.errors import LaunchError

LOOK_S = 1.0
"""Seconds between two looks."""

MOST_LOOKS, LEAST_WORK = 10, 0.25
"""Looks without an op, and share of a core that the process uses meanwhile: a machine with other work gets more time."""

class _SilentError(BaseException):
    """The time is over. No program catches it by ``except Exception``."""


class WatchedRole(Protocol):
    """What is watched of a role."""

    who: str

    @property
    def num_ops(self) -> int:
        """Number of ops so far."""


class Watched:
    """Role whose program runs at present, and whether its time is over."""

    def __init__(self) -> None:
        """Begin without a role."""
        self.role: WatchedRole | None = None
        self.is_raised = False
        self._thread = threading.get_ident()
        self._is_over = threading.Event()
        self._change = threading.Lock()

    def look(self) -> None:
        """Look until the tracing ends, or the time of a role is over."""
        before, looks, began = None, 0, time.process_time()
        while not self._is_over.wait(LOOK_S):
            role = self.role
            found = (role, role.num_ops) if role is not None else None
            if found is None or found != before:
                before, looks, began = found, 0, time.process_time()
                continue
            looks += 1
            if looks >= MOST_LOOKS and time.process_time() - began >= LEAST_WORK * MOST_LOOKS * LOOK_S:
                with self._change:
                    if not self._is_over.is_set():
                        self.is_raised = True
                        thread, error = ctypes.c_ulong(self._thread), ctypes.py_object(_SilentError)
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)
                return

    def end(self) -> None:
        """End the looks."""
        with self._change:
            self._is_over.set()


@contextmanager
def time_limit() -> Iterator[Watched]:
    """Watch the roles whose programs run.

    Raises:
        LaunchError: a role has yielded nothing for too long.
    """
    watched = Watched()
    threading.Thread(target=watched.look, daemon=True).start()
    try:
        try:
            yield watched
        finally:
            watched.end()
            if watched.is_raised:
                time.sleep(LOOK_S / 10)  # an exception that is on its way comes here, and nowhere later
    except _SilentError:
        role = watched.role
        assert role is not None
        raise LaunchError(
            f"{role.who} has yielded nothing for {MOST_LOOKS * LOOK_S:.0f} s before op {role.num_ops + 1}: end its loop, "
            "or compute before the launch what takes so long"
        ) from None
