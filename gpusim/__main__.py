"""``gpusim`` and ``python -m gpusim``: light enough that Ctrl-C is quiet while the command line is still being imported."""

import atexit
import gc
import os
import signal
from types import FrameType

from gpusim.errors import INTERRUPTED, fault, say

ENDED: list[int] = []
"""Signals that asked the process to end."""


def _end(number: int, frame: FrameType | None) -> None:
    """End as after Ctrl-C, with the workers. A second signal ends the process at once."""
    del frame
    signal.signal(number, signal.SIG_DFL)
    ENDED.append(number)
    raise KeyboardInterrupt


def run() -> int:
    """Run the command line; returns the exit status."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts threads else, for algebra that nobody does
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it looks through all that is installed for some
    gc.set_threshold(100_000, 20, 20)  # imports leave no circles worth looking for
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # Ctrl-C while Python ends has a traceback
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP
    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]  # nohup ignores it
    try:
        for number in taken:
            signal.signal(number, _end)
        from gpusim.cli import main

        status = main()
        if ENDED and status not in (0, INTERRUPTED):  # the exception is lost, and another error came of the signal
            say("interrupted")
        return 128 + ENDED[0] if ENDED else status
    except KeyboardInterrupt:
        say("interrupted")
        return 128 + ENDED[0] if ENDED else INTERRUPTED
    except Exception as error:  # noqa: BLE001  # of an import
        return fault(error)
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        exec("")  # Python forgets a Ctrl-C in a string that it ran, after which it ends by SIGINT
        gc.freeze()  # nobody looks for garbage among what ends with the process: a fifth of a second


if __name__ == "__main__":
    raise SystemExit(run())
