"""Fit the constants of :mod:`gpusim.evidence.gate.throughputs` to two microbenchmarks, and print what their rows settle.

    python scripts/fit_shares.py

Rows are those of ``stream_grids`` and ``sector_parts`` in ``validation/studies``. Each constant has its mean over rows,
their number, and the least and the most. A wide range means that the rows do not settle it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from gpusim.evidence.cases.judged_metrics import CYCLES, DURATION
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.gate.throughputs import ELAPSED, L2_MHZ, L2_SLICES, RETURN_CYCLES, SECTORS_OF_LINE, saturated
from gpusim.machine.config import load_gpu

GPU = "h200_sxm"
STUDIES = kernels_dir().parent / "validation" / "studies"
SECTORS = ("lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum")
WARP_VECTOR_BYTES = 512
FULL_WORDS, FULL_LINE, FEW_CTAS = "8", "1111", 1024
LINK_GRID = (np.arange(1.8, 3.01, 0.05), np.arange(1.5, 2.51, 0.1), (4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0, 40.0),
             (0.0, 0.25, 0.5, 0.7, 0.85, 1.0))  # fmt: skip
"""Tried cycles of a loaded and of a stored sector, exponents, and fractions of idle time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A constant, and the values of it that rows give."""

    name: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the rows."""
        return sum(self.values) / len(self.values)


@dataclass(frozen=True, slots=True)
class Row:
    """A row with its counts and L2 cycles of all slices."""

    columns: Mapping[str, str]
    slice_cycles: float
    crossing: float

    def __getitem__(self, name: str) -> float:
        return float(self.columns[name])

    def busy(self, part: str) -> float:
        """L2 cycles of all slices in which a part was busy."""
        return self[f"{part}.{ELAPSED}"] / 100.0 * self.slice_cycles

    @property
    def loaded(self) -> float:
        """Sectors that SMs read from L2."""
        return self[SECTORS[0]]

    @property
    def stored(self) -> float:
        """Sectors that SMs wrote to L2."""
        return self[SECTORS[1]]

    @property
    def idle(self) -> float:
        """Fraction of the time in which an SM has no CTA."""
        return 1.0 - self["sm__cycles_active.avg"] / self[CYCLES]


def streams() -> list[Row]:
    """Rows with times. Crossing sectors follow from the sectors of the tag stage, of which it takes three a cycle."""
    found = []
    for columns in _read("share_streams"):
        cycles = L2_SLICES[GPU] * float(columns[DURATION]) * L2_MHZ[GPU] * 1e-3
        row = Row(columns, cycles, 0.0)
        found.append(Row(columns, cycles, 3.0 * row.busy("lts__t_sectors") - row.loaded - row.stored))
    return found


def sector_parts() -> list[Row]:
    """Rows with crossing sectors. Their L2 cycles follow from the sectors of the tag stage.

    Stores of parts of sectors that miss are left out, as their fills count there, too.
    """
    found = []
    for columns in _read("share_sectors"):
        crossing = float(columns["lts__t_sectors_srcunit_ltcfabric.sum"])
        sectors = sum(float(columns[name]) for name in SECTORS) + crossing
        found.append(Row(columns, sectors / 3.0 / float(columns[f"lts__t_sectors.{ELAPSED}"]) * 100.0, crossing))
    return [row for row in found if row.loaded or row.columns["words"] == FULL_WORDS or row["num_ctas"] < FEW_CTAS]


def fits() -> list[Fit]:
    """Constants by rows."""
    mixed = [row for row in streams() if row["reads"] and row["writes"]]
    reading = [row for row in streams() if row["reads"]]
    storing = [row for row in streams() if not row["reads"]]
    lines = [row for row in sector_parts() if row.loaded and row.columns["sectors"] == FULL_LINE]
    slices = L2_SLICES[GPU]
    return [
        Fit(name="L2_SLICES, by stored sectors", values=tuple(
            slices * row.stored / row.busy("lts__xbar2lts_cycles_active") for row in storing)),
        Fit(name="L2_SLICES, by loaded sectors", values=tuple(
            slices * RETURN_CYCLES * row.loaded / row.busy("lts__lts2xbar_cycles_active") for row in reading)),
        Fit(name="SECTOR_CYCLES", values=tuple(_sector_cycles(row) for row in lines)),
        Fit(name="LINE_PORT_CYCLES", values=tuple(
            (row.busy("lts__xbar2lts_cycles_active") - row.stored) / row.loaded * SECTORS_OF_LINE for row in mixed)),
        Fit(name="LINK_LOOKUPS", values=tuple(
            (row.busy("lts__t_tag_requests") * SECTORS_OF_LINE - row.loaded) / row.crossing for row in lines)),
        Fit(name="LOAD_WAVEFRONTS", values=tuple(map(_load_wavefronts, reading))),
    ]  # fmt: skip


def _sector_cycles(row: Row) -> float:
    share = row[f"lts__t_sectors.{ELAPSED}"] / row[f"lts__lts2xbar_cycles_active.{ELAPSED}"]
    return share * RETURN_CYCLES * row.loaded / (row.loaded + row.crossing)


def _load_wavefronts(row: Row) -> float:
    """Wavefronts of a line that misses: those of the data stage, less reads of thread numbers and those of stores."""
    wavefronts = row[f"l1tex__data_pipe_lsu_wavefronts.{ELAPSED}"] / 100.0 * load_gpu(GPU).num_sms * row[CYCLES]
    warps = row["array_bytes"] / WARP_VECTOR_BYTES / row["unrolled"]
    stored_lines = row.stored / SECTORS_OF_LINE if row["writes"] else warps
    return (wavefronts - warps - stored_lines) / (row.loaded / SECTORS_OF_LINE)


def link() -> tuple[float, tuple[float, ...]]:
    """(Mean error of the link's share, its four constants), fitted to accesses of full lines."""
    rows = streams() + [row for row in sector_parts() if row.columns["sectors"] == FULL_LINE]
    of_stores, load, idle, share = (np.array(list(each)) for each in (
        (row.stored / (row.stored + row.loaded) for row in rows), (row.crossing / row.slice_cycles for row in rows),
        (row.idle for row in rows), (row[f"lts__ltcfabric2ltc_cycles_active.{ELAPSED}"] / 100.0 for row in rows),
    ))  # fmt: skip
    best: tuple[float, tuple[float, ...]] = (math.inf, ())
    for loaded, stored, power, fraction in product(*LINK_GRID):
        window = 1.0 - fraction * idle
        found = window * saturated((loaded * (1.0 - of_stores) + stored * of_stores) * load / window, power)
        best = min(best, (float(np.abs(found - share).mean()), (loaded, stored, power, fraction)))
    return best[0], tuple(map(float, best[1]))


def _read(name: str) -> Iterator[dict[str, str]]:
    with (STUDIES / f"{name}_{GPU}.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def main() -> None:
    """Print the constants."""
    for fit in fits():
        print(f"{fit.name}: {fit.mean:.3f}, {len(fit.values)} rows, {min(fit.values):.3f} to {max(fit.values):.3f}")
    error, constants = link()
    print(f"LINK: {', '.join(f'{each:g}' for each in constants)}; mean error {100.0 * error:.1f} points")


if __name__ == "__main__":
    main()
