"""Write ``tests/evidence/data/*.csv``: measured rows of an H200 as Nsight Compute would print them.

    python scripts/example_profiles.py

The numbers are rows of ``validation/measured/h200_sxm``; pages, units, separators and columns are those of ncu 2025.3.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from gpusim.evidence.cases.case import load_case

ROOT = Path(__file__).resolve().parent.parent
MEASURED, OUT = ROOT / "validation" / "measured" / "h200_sxm", ROOT / "tests" / "evidence" / "data"
LAUNCH = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
          "Device", "CC")
RULES = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")
DEVICE = {"device__attribute_compute_capability_major": "9", "device__attribute_compute_capability_minor": "0",
          "device__attribute_display_name": "NVIDIA H200", "device__attribute_multiprocessor_count": "132"}
"""Of what a raw page says of the GPU, whatever was asked for."""
UNITS = {"sm__cycles_elapsed.max": "cycle", "sm__cycles_active.avg": "cycle", "gpu__time_duration.sum": "ns",
         "smsp__inst_executed.sum": "inst", "launch__registers_per_thread": "register/thread",
         "lts__t_sector_hit_rate.pct": "%", "dram__cycles_elapsed.avg.per_second": "hz"}
SCALED = {"gpu__time_duration.sum": ("us", 1e3), "dram__bytes_read.sum": ("Mbyte", 1e6),
          "dram__bytes_write.sum": ("Mbyte", 1e6), "dram__cycles_elapsed.avg.per_second": ("Ghz", 1e9)}


def row_of(table: str, **wanted: str) -> dict[str, str]:
    """A measured row."""
    with (MEASURED / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return next(row for row in csv.DictReader(file) if all(row[name] == value for name, value in wanted.items()))


def unit_of(metric: str) -> str:
    """Nsight Compute's, unscaled."""
    kinds = ((".pct", "%"), ("per_second", "hz"), ("bytes", "byte"), ("sectors", "sector"), ("wavefronts", ""),
             ("cycles_", "cycle"))
    return UNITS.get(metric) or next((unit for word, unit in kinds if word in metric), "")


def shown(value: float, digits: int = 2) -> str:
    """A number with thousands separators."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.{digits}f}"


def launch_cells(idx: int, table: str, row: dict[str, str]) -> list[str]:
    """The first columns."""
    if row.get("launched"):  # a library's kernel: the row has what was launched
        name, parts = row["launched"], [row["block"].split("x"), row["grid"].split("x")]
    else:
        case = load_case(table)
        launch = case.launch({column: row[column] for column in ("kernel", *case.columns)}, True)
        name, parts = row["kernel"], [list(map(str, part)) for part in (launch.block, launch.grid)]
    shape = [f"({', '.join(part)})" for part in parts]
    return [str(idx), "4711", "kernels", "127.0.0.1", name, "1", "7", *shape, "0", "9.0"]


def metrics_of(row: dict[str, str]) -> dict[str, float]:
    """Nsight Compute's columns."""
    return {name: float(value) for name, value in row.items() if "__" in name and value}


def write(name: str, rows: list[list[str]], said: str) -> None:
    """One file, each field quoted."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    (OUT / name).write_text(said + text.getvalue(), encoding="utf-8")


def raw(name: str, launches: list[tuple[str, dict[str, str]]], called: str = "") -> None:
    """A launch a line, base units; ``called`` takes the place of the kernel's name."""
    names = list(dict.fromkeys(metric for _, row in launches for metric in metrics_of(row)))
    rows = [[*LAUNCH, *DEVICE, *names], ["" for _ in (*LAUNCH, *DEVICE)] + [unit_of(metric) for metric in names]]
    for idx, (table, row) in enumerate(launches):
        found = metrics_of(row)
        first = launch_cells(idx, table, row)
        first[4] = called or first[4]
        rows.append([*first, *DEVICE.values(), *(shown(found[metric]) if metric in found else "" for metric in names)])
    told = "".join(
        f'==PROF== Profiling "{called or row.get("launched") or row["kernel"]}" - {idx}: 0%....50%....100% - 6 passes\n'
        for idx, (_, row) in enumerate(launches)
    )
    write(name, rows, f"==PROF== Connected to process 4711 (/kernels)\n{told}==PROF== Disconnected from process 4711\n")


def details(name: str, launches: list[tuple[str, dict[str, str]]]) -> None:
    """A metric a line, scaled units, labels of the sections and lines of rules."""
    labels = (("GPU Speed Of Light Throughput", "DRAM Frequency", "dram__cycles_elapsed.avg.per_second"),
              ("GPU Speed Of Light Throughput", "Elapsed Cycles", "sm__cycles_elapsed.max"),
              ("GPU Speed Of Light Throughput", "Duration", "gpu__time_duration.sum"),
              ("GPU Speed Of Light Throughput", "SM Active Cycles", "sm__cycles_active.avg"),
              ("Memory Workload Analysis", "L2 Hit Rate", "lts__t_sector_hit_rate.pct"),
              ("Launch Statistics", "Registers Per Thread", "launch__registers_per_thread"))
    rows = [[*LAUNCH, "Section Name", "Metric Name", "Metric Unit", "Metric Value", *RULES]]
    for idx, (table, row) in enumerate(launches):
        found, first = metrics_of(row), launch_cells(idx, table, row)
        for section, label, metric in labels:
            unit, scale = SCALED.get(metric, (unit_of(metric), 1.0))
            rows.append([*first, section, label, unit, shown(found[metric] / scale), *("" for _ in RULES)])
        for metric in ("dram__bytes_read.sum", "dram__bytes_write.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"):
            unit, scale = SCALED.get(metric, (unit_of(metric), 1.0))
            told = ["Command line profiler metrics", metric, unit, shown(found[metric] / scale)]
            rows.append([*first, *told, *("" for _ in RULES)])
        rule = ("AchievedOccupancy", "OPT", 'Warps wait, "long scoreboard".', "global", "12.5")
        rows.append([*first, "Occupancy", "", "", "", *rule])
    write(name, rows, "==PROF== Connected to process 4711 (/kernels)\n")


def main() -> None:
    """Write all of them."""
    OUT.mkdir(exist_ok=True)
    copy = "elementwise", row_of("elementwise", kernel="copy_b16_i1", elements=str(2**26))
    padded, naive, none = (
        ("transpose", row_of("transpose", kernel=f"transpose_{way}", m="8192")) for way in ("padded", "naive", "none")
    )
    raw("copy_raw.csv", [copy])
    raw("gemm_raw.csv", [("library_gemm", row_of("library_gemm", m="2048", n="2048", k="2048", dtype="bf16", layout="tn"))])
    raw("transposes_raw.csv", [padded, none, copy])
    details("transpose_details.csv", [padded])
    for name, launch in (("padded_raw.csv", padded), ("naive_raw.csv", naive)):  # one kernel, before and after
        raw(name, [launch], called="transpose_fp32")


if __name__ == "__main__":
    main()
