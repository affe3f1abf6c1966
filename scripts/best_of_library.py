"""How near our fastest matrix product comes to the library's: both measured in one run of one GPU.

    python scripts/best_of_library.py [FOLDER]

FOLDER holds `hopper_gemm.csv` and `library_gemm.csv` of that run (validation/measured/h200_sxm/beside_library). Measured
anew by `gpusim measure library_gemm --only large --out DIR` and `gpusim measure hopper_gemm --only best --out DIR`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).resolve().parent.parent / "validation" / "measured" / "h200_sxm" / "beside_library"
PROTOCOLS = {
    "single_us": "one launch",
    "sustained_us": "half a second of launches",
    "sm__cycles_elapsed.max": "cycles, counted",
}
SHAPE = ["m", "n", "k"]


def ratios(folder: Path = FOLDER) -> pd.DataFrame:
    """Of every bf16 product that both tables have: the library's time over that of our fastest kernel, by protocol.

    The library has one way with a product (of rows that differ in the layout of operands the fastest counts). Columns:
    m, n, k, and one a protocol; above 1 ours is faster.
    """
    ours, library = (pd.read_csv(folder / f"{name}.csv") for name in ("hopper_gemm", "library_gemm"))
    fastest = [
        table.groupby(SHAPE)[list(PROTOCOLS)].min()
        for table in (ours[ours["kernel"].str.endswith("_bf16")], library[library["dtype"] == "bf16"])
    ]
    both = fastest[1].div(fastest[0]).dropna()
    if both.empty:
        raise SystemExit(f"{folder}: no bf16 product is in both tables")
    return both.rename(columns=PROTOCOLS).reset_index()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    asked = parser.parse_args()
    missing = [name for name in ("hopper_gemm.csv", "library_gemm.csv") if not (asked.folder / name).is_file()]
    if missing:
        raise SystemExit(f"{asked.folder}: there is no {' and no '.join(missing)}")
    print(ratios(asked.folder).round(3).to_string(index=False))
