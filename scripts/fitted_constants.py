"""Every constant of a twin's own code: as ``case.py`` states it, and as the calibrating half of the measured rows has it.

In: a GPU's name, and kernels or none for all. Out: a line each, on stdout; status 1 where the two differ.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpusim import load_gpu
from gpusim.errors import GpusimError
from gpusim.evidence.cases.case import case_names, load_case
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.validate.calibrate import fitted_constants


def main() -> int:
    """Print the constants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gpu")
    parser.add_argument("kernels", nargs="*")
    args = parser.parse_args()
    gpu, folder = load_gpu(args.gpu), Path("validation") / "measured" / args.gpu
    differ = 0
    for name in args.kernels or case_names():
        path = folder / f"{name}.csv"
        for line in fitted_constants(load_case(name), Table.read(path), gpu) if path.exists() else ():
            mark = "" if line.agrees else "  differs"
            print(f"{name:16}{line.constant.label:44}{line.stated:10.5g}{line.constant.value:12.5g}{mark}")
            print(f"    {line.constant.how}")
            differ += not line.agrees
    return 1 if differ else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except GpusimError as error:
        sys.stderr.write(f"fitted_constants: {error}\n")
        raise SystemExit(2) from None
