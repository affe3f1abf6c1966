"""``gpusim`` and ``python -m gpusim``: light enough that Ctrl-C is quiet while the command line is still being imported."""

import gc
import os
import sys


def run() -> int:
    """Run the command line; returns the exit status."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts threads else, for algebra that nobody does
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it looks through all that is installed for some
    gc.set_threshold(100_000, 20, 20)  # imports leave no circles worth looking for
    try:
        from gpusim.cli import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("gpusim: interrupted\n")
        return 130
    finally:
        gc.freeze()  # nobody looks for garbage among what ends with the process: a fifth of a second


if __name__ == "__main__":
    raise SystemExit(run())
