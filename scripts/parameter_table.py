"""Every parameter of the H200 with its value, its meaning and what gives it, as Markdown; for docs/h200_parameters.md.

In: the GPUs of ``configs/``, and the docstrings of their Specs. Out: the page, on stdout.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gpusim.errors import ConfigError
from gpusim.machine.config import SOURCE_CLASSES, GpuSpec, gpu_names, load_gpu
from gpusim.report.parameters import meaning_of

CLASSES = tuple(dict.fromkeys(kind for kind in SOURCE_CLASSES.values() if kind != "toy"))
SHOWN = "h200_sxm"
HEAD = """\
# The H200's parameters

`python scripts/parameter_table.py` writes this page. `gpusim gpus h200_sxm --explain hbm` shows how each number was
taken from its microbenchmark, and `configs/h200_sxm.toml` holds those texts.

* A name ends in its unit; a name without one is a count or a word.
* *From* names the microbenchmark in `kernels/microbench/` that measures the number.
* *vendor* and *paper* are published numbers; *inferred* ones come from a related GPU; the source of a *guess* says what
  would settle it.
* Before any measurement, at revision c0513c6, the H200 had 91 parameters: 33 published, 4 measured, 24 inferred, 30 guesses.
"""


def main() -> None:
    """Print the page."""
    print("\n".join(page(load_gpu(SHOWN), [load_gpu(name) for name in gpu_names() if name not in (SHOWN, "toy")])))


def page(gpu: GpuSpec, others: Sequence[GpuSpec]) -> list[str]:
    """Lines of the page: parameters of each class, of other GPUs too, and a row for each parameter."""
    lines = [HEAD, f"| Parameters | {' | '.join(CLASSES)} | all |", f"|---|{'---|' * (len(CLASSES) + 1)}"]
    for each in (gpu, *others):
        counts = Counter(map(each.source_class, each.sources))
        lines.append(f"| {each.name} | {' | '.join(str(counts[kind]) for kind in CLASSES)} | {len(each.sources)} |")
    for part, names in groupby(in_order(gpu), key=lambda name: name.split(".")[0]):
        lines += ["", f"## {part}", "", "| Parameter | Value | Meaning | From |", "|---|---|---|---|"]
        lines += [row(gpu, name) for name in names]
    return lines


def in_order(gpu: GpuSpec) -> list[str]:
    """``component.parameter`` of all parameters, tables as one, in the order of their Specs."""
    return list(dict.fromkeys(".".join(name.split(".")[:2]) for name in gpu.parameters()))


def row(gpu: GpuSpec, name: str) -> str:
    """Row of a parameter."""
    part, field = name.split(".")
    meaning, kind = meaning_of(name), gpu.source_class(name)
    origin = meaning.origin if kind != "inferred" else tuple(dict.fromkeys((kind, *meaning.origin)))
    return f"| `{field}` | {value_text(getattr(gpu.component(part), field))} | {meaning.text} | {', '.join(origin)} |"


def value_text(value: Any) -> str:
    """A number, or the entries of a table."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {number:.10g}" for name, number in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.stderr.write(f"parameter_table: {error}\n")
        raise SystemExit(2) from None
