"""Every parameter of a GPU before and after measuring, as a Markdown table; for docs/h200_parameters.md.

In: two descriptions, the older first (``git show REVISION:configs/h200_sxm.toml``); GPUs beside the newer are counted too.
Out: the page, on stdout.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusim.errors import ConfigError
from gpusim.machine.description import chain_of, flat_table

CLASSES = {
    "vendor": "published", "paper": "published", "measured": "measured", "fitted": "measured", "inferred": "inferred",
    "guess": "guess",
}  # fmt: skip

Parameter = tuple[str, str]
"""A value as text, and its source."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    args = parser.parse_args()
    before, after = parameters(args.before), parameters(args.after)
    others = [path for path in sorted(args.after.parent.glob("*.toml")) if path.stem not in (args.after.stem, "toy")]
    print(table(before, after, {path.stem: parameters(path) for path in others}))


def parameters(path: Path) -> dict[str, Parameter]:
    """Every parameter by ``component.parameter``, with inherited ones; without checks, as old descriptions lack new keys."""
    document = flat_table(chain_of(path, path.parent))
    found: dict[str, Parameter] = {}
    for name, section in {"device": document["device"], **document["component"]}.items():
        for key, source in section["source"].items():
            found[f"{name}.{key}"] = (value_text(section[key]), " ".join(source.split()))
    return found


def value_text(value: Any) -> str:
    """A number, or the entries of a table."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number:g}" for name, number in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def class_of(source: str) -> str:
    """What a source counts as."""
    return CLASSES[source.partition(":")[0]]


def table(
    before: Mapping[str, Parameter], after: Mapping[str, Parameter], others: Mapping[str, Mapping[str, Parameter]]
) -> str:
    """The page: how many are of each class, of other GPUs' too, and a row for each parameter."""
    lines = [
        "# The H200's parameters, before and after measuring",
        "",
        "Made by `scripts/parameter_table.py`; `gpusim gpus h200_sxm` prints the parameters of today with their units,",
        "and counts a parameter that has a number for each class of instructions once a class. Before: as of revision",
        "c0513c6, when no GPU had been asked for anything but counts. The other GPUs, of which little was measured,",
        "are counted as they are today.",
        "",
        "| | " + " | ".join(dict.fromkeys(CLASSES.values())) + " | all |",
        "|---|" + "---|" * (len(set(CLASSES.values())) + 1),
    ]
    for label, found in (("before", before), ("after", after), *others.items()):
        counts = Counter(class_of(source) for _, source in found.values())
        numbers = [counts[kind] for kind in dict.fromkeys(CLASSES.values())]
        lines.append(f"| {label} | " + " | ".join(map(str, numbers)) + f" | {len(found)} |")
    lines += ["", "| Parameter | Before | | After | | Source |", "|---|---|---|---|---|---|"]
    none = ("", "")
    for name in (*after, *(name for name in before if name not in after)):
        old, new = before.get(name, none), after.get(name, none)
        kinds = [class_of(source) if source else "" for _, source in (old, new)]
        source = (new[1] or "no longer a parameter").replace("|", "\\|")
        lines.append(f"| `{name}` | {old[0]} | {kinds[0]} | {new[0]} | {kinds[1]} | {source} |")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.stderr.write(f"parameter_table: {error.filename}: {error.strerror}, wants two descriptions of a GPU\n")
        raise SystemExit(2) from None
    except (ConfigError, KeyError) as error:
        sys.stderr.write(f"parameter_table: no description of a GPU ({type(error).__name__} {error}), wants two of them\n")
        raise SystemExit(2) from None
