"""Hold the choice of configurations against full simulations, a library's measured times, and measured rankings."""

from __future__ import annotations

import argparse
import csv
import random
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpusim import GemmParams, load_gpu, simulate
from gpusim.analysis.choose import choose
from gpusim.analysis.sweep import SweepSettings, run_sweep
from gpusim.analysis.trial import Trial
from gpusim.errors import GpusimError
from gpusim.evidence.cases.case import Case, load_case
from gpusim.evidence.cases.rows import config_of
from gpusim.evidence.validate.ranking import ranking
from gpusim.machine.config import GpuSpec

STUDIES = {
    "quick": "regret of the quick ranking against full simulations, at drawn shapes",
    "all": "regret of the choice against a sweep of all configurations (minutes)",
    "library": "cycles of the default choice over those of cuBLAS, by shape alone",
    "knobs": "cycles of the default choice for all configs of library_knobs, measured or not",
    "rank": "tau and regret over problems with several measured configurations",
}

ROOT = Path(__file__).resolve().parents[1]
LARGE = 1024
SEED, NUM_DRAWN, NUM_FULL = 20261129, 24, 12
MHZ = 1700.0
NUM_SWEPT, MOST_SWEPT = 4, 1 << 29
"""Shapes of the study of all configurations, and the most multiply-adds that they have."""


def shapes(seed: int) -> Iterator[tuple[int, int, int]]:
    """Shapes with extents drawn evenly by their logarithm, as multiples of 8. None has more than 2^36 multiply-adds."""
    draw = random.Random(seed)
    num = 0
    while num < NUM_DRAWN:
        m, n, k = (8 * round(2.0 ** draw.uniform(lowest, 10.5)) for lowest in (1.0, 5.0, 5.0))
        if m * n * k <= 1 << 36:
            num += 1
            yield m, n, k


def quick(path: str | None) -> None:
    """Regret and tau of the quick ranking against full simulations of all configurations that it rated."""
    gpu = load_gpu("h200_sxm")
    rows: list[dict[str, Any]] = []
    for m, n, k in shapes(SEED):
        began = time.process_time()
        chosen = choose(GemmParams(m=m, n=n, k=k), gpu)
        seconds = time.process_time() - began
        rated = chosen.rated[:NUM_FULL]
        full = [simulate(item.params.launch(gpu), gpu, clock=MHZ).cycles for item in rated]
        scores = ranking([item.cycles for item in rated], full)
        tile = "x".join(map(str, chosen.params.tile or ()))  # type: ignore[attr-defined]  # options of a GEMM
        error_pct = 100.0 * (rated[0].cycles / full[0] - 1.0)
        rows.append({
            "m": m, "n": n, "k": k, "rated": len(chosen.rated), "full": len(full), "chosen": tile,
            "tau": round(scores.tau, 3), "regret_pct": round(100.0 * scores.regret, 2),
            "estimate_error_pct": round(error_pct, 2), "cpu_s": round(seconds, 2),
        })  # fmt: skip
        print_row(rows[-1])
    print_row({name: round(sum(row[name] for row in rows) / len(rows), 3) for name in ("tau", "regret_pct", "cpu_s")})
    write(path, rows)


def write(path: str | None, rows: list[dict[str, Any]]) -> None:
    """Write a table, if a path is given."""
    if path is not None:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def all_configurations() -> None:
    """Regret of the choice against a sweep of a library's configurations, at one clock; the first small shapes drawn."""
    gpu, regrets = load_gpu("h200_sxm"), []
    small = [shape for shape in shapes(SEED) if shape[0] * shape[1] * shape[2] <= MOST_SWEPT]
    for m, n, k in small[:NUM_SWEPT]:
        chosen: Any = choose(GemmParams(m=m, n=n, k=k), gpu).params
        best = run_sweep("gemm", {"m": m, "n": n, "k": k, "tile": "auto"}, gpu, SweepSettings(top=1)).entries[0]
        assert best.result is not None  # the first one was simulated
        found = simulate(chosen.launch(gpu), gpu, simulated_mhz=best.result.simulated_mhz).time_us
        regrets.append(100.0 * (found / best.time_us - 1.0))
        print_row({"m": m, "n": n, "k": k, "chosen": chosen.tile, "best": best.choice.options["tile"],
                   "regret_pct": round(regrets[-1], 2)})
    print_row({"shapes": len(regrets), "regret_pct": round(sum(regrets) / len(regrets), 2)})


def print_row(row: Mapping[str, Any]) -> None:
    """Write one line."""
    sys.stdout.write(" ".join(f"{name}={value}" for name, value in row.items()) + "\n")
    sys.stdout.flush()


def measured(name: str, gpu: str) -> list[dict[str, str]]:
    """Rows of a validation kernel."""
    with (ROOT / "validation" / "measured" / gpu / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def knobs(path: str | None) -> None:
    """Cycles of a single launch of the default choice for every config of library_knobs, by its options alone."""
    case, gpu = load_case("library_knobs"), load_gpu("h200_sxm")
    rows: list[dict[str, Any]] = []
    for group in case.groups:
        for config in case.configs(group, 1):
            asked = {name: value for name, value in config.items() if name != "kernel"}
            params: Any = choose(GemmParams.model_validate(asked), gpu).params
            result = simulate(params.launch(gpu), gpu, clock="single", l2="flushed")
            rows.append({
                "group": group, **asked, "tile": "x".join(map(str, params.tile)), "math": params.resolved(gpu).math,
                "copy": params.resolved(gpu).copy_, "split_k": params.split_k, "swap": params.swap_operands,
                "cycles": round(result.cycles), "single_us": round(result.time_us, 2),
            })  # fmt: skip
            print_row(rows[-1])
    write(path, rows)


def library() -> None:
    """Cycles of the default choice over those of cuBLAS, at the measured clock."""
    gpu = load_gpu("h200_sxm")
    errors: list[tuple[bool, float]] = []
    for row in measured("library_gemm", "h200_sxm"):
        m, n, k = (int(row[name]) for name in "mnk")
        cycles = float(row["sm__cycles_elapsed.max"])
        mhz = cycles / float(row["gpu__time_duration.sum"]) * 1e3
        params: Any = choose(GemmParams(m=m, n=n, k=k, dtype=row["dtype"], layout=row["layout"]), gpu).params
        found = simulate(params.launch(gpu), gpu, clock=mhz, l2="flushed").cycles
        errors.append((min(m, n, k) >= LARGE, found / cycles - 1.0))
        print_row({
            "shape": f"{m}x{n}x{k}", "layout": row["layout"], "tile": "x".join(map(str, params.tile)),
            "schedule": params.schedule, "swap": params.swap_operands, "split_k": params.split_k,
            "library": row["library_tile"], "cluster": row["library_cluster"], "error_pct": round(100.0 * errors[-1][1], 1),
        })
    for what, chosen in (("large", [error for large, error in errors if large]), ("all", [error for _, error in errors])):
        print_row({"rows": what, "num": len(chosen), "mean_abs_pct": round(100.0 * sum(map(abs, chosen)) / len(chosen), 2),
                   "mean_pct": round(100.0 * sum(chosen) / len(chosen), 2)})


PROBLEM = ("m", "n", "k", "dtype", "layout")


def options_of(case: Case, row: Mapping[str, str], gpu: GpuSpec) -> Any:
    """Options of the GEMM model for a row of a validation kernel."""
    module: Any = sys.modules[f"gpusim_kernels_{case.name}"]
    config = config_of(row, case.columns)
    found = module.options(config, row, gpu) if case.framework else module.options(config)
    return GemmParams.model_validate(dict(found))


def rank() -> None:
    """Tau and regret of full predictions and of quick ratings over measured problems with several configurations."""
    gpu = load_gpu("h200_sxm")
    for name in ("tile_gemm", "hopper_gemm", "hgemm", "sgemm"):
        case = load_case(name)
        problems: dict[tuple[str, ...], list[tuple[float, float]]] = {}
        for row in measured(name, "h200_sxm"):
            try:
                params = options_of(case, row, gpu)
                cycles = Trial.of(params.row.resolve(params, gpu), gpu, is_warm=False).cycles(MHZ)[0]
            except GpusimError:
                continue
            key = tuple(str(getattr(params, part)) for part in PROBLEM)
            problems.setdefault(key, []).append((cycles, float(row["sm__cycles_elapsed.max"])))
        taus, regrets = [], []
        for key, pairs in problems.items():
            if len(pairs) > 2:
                scores = ranking([first for first, _ in pairs], [second for _, second in pairs])
                taus.append(scores.tau)
                regrets.append(scores.regret)
                print_row({"case": name, "problem": "x".join(key), "num": len(pairs), "tau": round(scores.tau, 2),
                           "clear_tau": round(scores.clear_tau, 2), "regret_pct": round(100.0 * scores.regret, 1)})
        if taus:
            print_row({"case": name, "problems": len(taus), "tau": round(sum(taus) / len(taus), 3),
                       "regret_pct": round(100.0 * sum(regrets) / len(regrets), 2)})


def main() -> int:
    """Run one study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=STUDIES, help="; ".join(f"{name}: {what}" for name, what in STUDIES.items()))
    parser.add_argument("--csv", help="table of the studies quick and knobs")
    given = parser.parse_args()
    if given.study in ("quick", "knobs"):
        {"quick": quick, "knobs": knobs}[given.study](given.csv)
    else:
        {"all": all_configurations, "library": library, "rank": rank}[given.study]()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
