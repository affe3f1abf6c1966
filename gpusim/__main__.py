"""``gpusim`` and ``python -m gpusim``: light enough that Ctrl-C is quiet while the command line is still being imported."""

import os
import sys


def run() -> int:
    """Run the command line; returns the exit status."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts threads else, for algebra that nobody does
    try:
        from gpusim.cli import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("gpusim: interrupted\n")
        return 130


if __name__ == "__main__":
    raise SystemExit(run())
