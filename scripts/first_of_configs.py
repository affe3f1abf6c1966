"""First predictions of kernels whose configs say all: nothing of them was measured.

    python scripts/first_of_configs.py KERNEL OUT.csv [--gpu h200_sxm]

Counts and cycles of a single launch, times and clocks of both protocols, of every config of a GEMM's case.
``first_of_launches.py`` serves GEMMs that a library chooses.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.validation_kernel import unmeasured
from gpusim.evidence.validate.blind_predictions import COLUMNS
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu


def main() -> None:
    """Predict every config."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel")
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpu", default="h200_sxm")
    asked = parser.parse_args()
    case, gpu = load_case(asked.kernel), load_gpu(asked.gpu)
    if not case.is_validation or case.framework is not None:
        raise SystemExit(f"{case.name}: its configs do not say what is launched: use scripts/first_of_launches.py")
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for group in case.groups:
            for config in case.configs(group, 1):
                found = unmeasured(GemmParams.model_validate(case.model_options(config, gpu)).launch(gpu), {}, gpu)
                text = " ".join(f"{key}={value}" for key, value in config.items())
                for name, tier in case.tiers.items():
                    if name in found:
                        writer.writerow([case.name, group, text, name, tier, f"{found[name]:.6g}"])


if __name__ == "__main__":
    main()
