"""Predict shares of peaks, active warps and stall reasons of measured rows, for the tolerances of ``gpusim check``.

    python scripts/judge_shares.py [DIR] > validation/studies/judged_shares_h200_sxm.csv

Measured GEMMs are those of ``validation/measured/h200_sxm``, or of DIR, where ``scripts/measure_shares.py`` wrote tables
with more shares. Rows of streaming kernels are those of ``validation/studies/nsight_shares_h200_sxm.csv``. No constant of
:mod:`gpusim.evidence.gate.throughputs` is fitted to any of them. Of a kernel without a table in DIR active warps
alone are judged, and a line says so. Launches of more than :data:`MOST_CYCLES` are left out, as they take long to simulate.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpusim.errors import GpusimError
from gpusim.evidence.cases.case import Case, load_case
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.cases.rows import Table, config_of
from gpusim.evidence.cases.validation_kernel import CYCLES, row_clock_mhz
from gpusim.evidence.gate.models import Model
from gpusim.evidence.gate.predictions import predictions
from gpusim.evidence.gate.stall_reasons import STALLED, stall_reasons
from gpusim.evidence.nsight.metrics import JUDGED_SHARES
from gpusim.evidence.toolchain import cublas_kernels
from gpusim.evidence.validate.answers import asked_rows
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.run import simulate

GPU = "h200_sxm"
VALIDATION = kernels_dir().parent / "validation"
MEASURED = VALIDATION / "measured" / GPU
STREAMING = ("elementwise", "transpose", "softmax", "smem_copy")
OWN = ("hopper_gemm", "hgemm", "sgemm", "sgemm_naive", "hopper_knobs")
LIBRARY = ("library_gemm",)
MOST_CYCLES = 600_000
COLUMNS = ("family", "kernel", "config", "name", "measured", "predicted")

Judged = tuple[str, Model, Mapping[str, str], dict[str, str], int]
"""Family, model, row, config, reads of ``SR_TID`` by each warp."""


def main(tables: Path) -> None:
    """Print the table."""
    gpu, out = load_gpu(GPU), csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)
    for family, model, row, config, thread_numbers in (*streaming(gpu), *own(gpu, tables), *library(gpu, tables)):
        try:
            launch = model.launch(gpu)
            result = simulate(launch, gpu, clock=row_clock_mhz(row, gpu), l2="flushed", data="random")
        except GpusimError as error:
            print(f"{family} {config}: {error}", file=sys.stderr)
            continue
        found = predictions(result, (), gpu=gpu, thread_numbers=thread_numbers) | stall_reasons(result, launch)
        text = " ".join(f"{name}={value}" for name, value in config.items())
        for name in found:
            if row.get(name) and (name in JUDGED_SHARES or name.startswith(STALLED)):
                out.writerow([family, model.kernel, text, name, row[name], f"{found[name]:.2f}"])


def streaming(gpu: GpuSpec) -> Iterator[Judged]:
    """Rows of the study, by kernel and grid."""
    with (VALIDATION / "studies" / f"nsight_shares_{GPU}.csv").open(encoding="utf-8", newline="") as file:
        rows = {(row["Kernel Name"], row["Grid Size"]): row for row in csv.DictReader(file)}
    for name in STREAMING:
        case = load_case(name)
        for config in _configs(case):
            launch = case.launch(config, True)  # type: ignore[misc]  # a kernel of ours has one
            row = rows.get((config["kernel"], str(tuple(launch.grid))), {})
            if row and float(row[CYCLES]) <= MOST_CYCLES:
                model, dimensions = _model(name, case.model_options(config, gpu)), 2 if name == "transpose" else 1
                yield name, model, row, config, dimensions


def own(gpu: GpuSpec, tables: Path) -> Iterator[Judged]:
    """Measured GEMMs of ours."""
    for name in OWN:
        case = load_case(name)
        for config, row in _measured(case, tables):
            kernel = "sgemm_naive" if name == "sgemm_naive" else "gemm"
            yield name, _model(kernel, case.model_options(config, gpu)), row, config, 1


def library(gpu: GpuSpec, tables: Path) -> Iterator[Judged]:
    """Measured GEMMs of cuBLAS, by the names of their kernels."""
    for name in LIBRARY:
        for config, row in _measured(load_case(name), tables):
            found = cublas_kernels.options(config, row, gpu)
            if found is not None:
                model = Model(kernel="gemm", options=found, num_idle_warps=cublas_kernels.idle_warps(found, row))
                yield name, model, row, config, 1


def _configs(case: Case) -> Iterator[dict[str, str]]:
    for group in case.groups:
        yield from (dict(config) for config in case.configs(group, 1))


def _model(kernel: str, options: Mapping[str, Any]) -> Model:
    return Model(kernel=kernel, options={name: value for name, value in options.items() if name in _known(kernel)})


def _known(kernel: str) -> set[str]:
    return {*KERNEL_MODELS[kernel].params.options(), *KERNEL_MODELS[kernel].params.model_fields}


def _measured(case: Case, tables: Path) -> Iterator[tuple[dict[str, str], Mapping[str, str]]]:
    path = tables / f"{case.name}.csv"
    if not path.exists():
        path = MEASURED / path.name
        print(f"{case.name}: no table with shares, active warps alone are judged", file=sys.stderr)
    table = Table.read(path)
    for row in asked_rows(case, [row for row in table.rows if row.get(JUDGED_SHARES[0])]):
        if float(row[CYCLES]) <= MOST_CYCLES and not math.isnan(float(row[JUDGED_SHARES[0]])):
            yield dict(config_of(row, case.columns)), row


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else MEASURED)
