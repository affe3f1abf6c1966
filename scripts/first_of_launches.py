"""First predictions of operations whose kernels are known by name and launch alone: nothing of them was measured.

    python scripts/first_of_launches.py KERNEL LAUNCHES.csv OUT.csv [--gpu h200_sxm]

LAUNCHES.csv is what ``gpusim measure KERNEL --names-only`` wrote. Goes on where it stopped, the smallest first; a
kernel that the model cannot be has no line. What events take beside a kernel, as empty ones show, may be given.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from math import prod
from pathlib import Path

from gpusim.evidence.bench.framework_launches import read_launches
from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.rows import config_of
from gpusim.machine.config import load_gpu

COLUMNS = ("kernel", "group", "config", "launched", "grid", "name", "tier", "predicted")


def size_of(config: Mapping[str, str]) -> int:
    """Product of a config's numbers: m, n and k, or rows and columns."""
    return prod(int(text) for text in config.values() if text.isdecimal())


def main() -> None:
    """Predict every launch that has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel")
    parser.add_argument("launches", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpu", default="h200_sxm")
    parser.add_argument("--empty-single-us", default="")
    parser.add_argument("--empty-sustained-us", default="")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th line from I on")
    asked = parser.parse_args()
    case, gpu = load_case(asked.kernel), load_gpu(asked.gpu)
    if case.predict_launched is None:
        raise SystemExit(f"{case.name}: tells its own launches: gpusim predict knows them without names")
    done = set()
    if asked.out.exists():
        with asked.out.open(encoding="utf-8", newline="") as file:
            done = {line["config"] for line in csv.DictReader(file)}
    first, num = map(int, asked.part.split("/"))
    lines = sorted(read_launches(asked.launches), key=lambda line: size_of(config_of(line, case.columns)))
    with asked.out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not done and not file.tell():
            writer.writerow(COLUMNS)
        for line in lines[first::num]:
            config = config_of(line, case.columns)
            text = " ".join(f"{key}={value}" for key, value in config.items())
            if text in done:
                continue
            beside = {"empty_single_us": asked.empty_single_us, "empty_sustained_us": asked.empty_sustained_us}
            said = case.predict_launched(config, {**line, **beside}, gpu)
            for name, tier in case.tiers.items():
                if name in said:
                    own = (case.name, line["group"], text, line["launched"], line["grid"])
                    writer.writerow([*own, name, tier, f"{said[name]:.6g}"])
            file.flush()


if __name__ == "__main__":
    main()
