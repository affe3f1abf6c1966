"""TOML description of a GPU, joined with the descriptions that it extends.

In: a TOML file. Out: a table with every number; the source of an inherited number names the GPU it comes from.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusim.errors import ConfigError, nearest

NO_NUMBERS = {"kind", "below", "source"}
"""Keys of a part's table that are no parameters."""

KEPT = ("inferred", "guess")
"""Classes of sources that an inherited number keeps, as it is known equally well on both GPUs."""


def chain_of(path: Path, folder: Path, children: tuple[str, ...] = ()) -> tuple[tuple[str, str], ...]:
    """Name and text of the description at ``path``, then of the one in ``folder`` that it extends, and so on.

    Raises:
        ConfigError: a file is not valid TOML, extends an unknown GPU, or extends itself through others.
    """
    try:
        text = path.read_text(encoding="utf-8")
        parent = _parsed(text).get("extends")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name}: not valid TOML: {error}") from None
    if parent is None:
        return ((path.name, text),)
    names = sorted(item.stem for item in folder.glob("*.toml"))
    if parent not in names:
        raise ConfigError(f"{path.name}: extends is {parent!r}, which is no GPU; {nearest(str(parent), names)}")
    if parent in children:
        raise ConfigError(f"{path.name}: extends {parent!r}, which extends it in turn; one of them must not")
    return (path.name, text), *chain_of(folder / f"{parent}.toml", folder, (*children, parent))


def parameter_hint(name: str, known: Collection[str]) -> str:
    """What to write instead of the unknown parameter ``name``, with or without its part: today's name, or the nearest."""
    part, dot, parameter = name.rpartition(".")
    renamed = tomllib.loads((Path(__file__).parent / "renamed_parameters.toml").read_text(encoding="utf-8"))
    today = f"{part}{dot}{renamed.get(parameter)}"
    return f"it is called {today} today" if today in known else nearest(name, known)


@lru_cache(maxsize=16)
def _parsed(text: str) -> Mapping[str, Any]:
    return tomllib.loads(text)


def sections(where: str, table: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The tables of numbers in a description: ``device``, and each part by its name.

    Raises:
        ConfigError: a section is no table.
    """
    parts = table.get("component", {})
    if not isinstance(parts, Mapping):
        raise ConfigError(f"{where}: component is {parts!r}, wants a table for each part")
    for path, section in {"device": table.get("device", {}), **{f"component.{name}": parts[name] for name in parts}}.items():
        if not isinstance(section, Mapping):
            raise ConfigError(f"{where}: {path} is {section!r}, wants a table")
        if not isinstance(section.get("source", {}), Mapping):
            raise ConfigError(f"{where}: {path}.source is {section['source']!r}, wants a table")
    return {"device": table.get("device", {}), **parts}


def flat_table(chain: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    """Table of a description with everything it inherits. A stated number needs a source; a source may stand alone.

    Raises:
        ConfigError: the description overrides no number of its parent.
    """
    where, child = chain[0][0], _parsed(chain[0][1])
    if len(chain) == 1:
        return child
    parent, merged = flat_table(chain[1:]), sections(where, child)
    if not any(set(section) - NO_NUMBERS for section in merged.values()):
        raise ConfigError(f"{where}: overrides no number of {child['extends']}, wants one that differs")
    for name, its in sections(where, parent).items():
        mine = merged.get(name, {})
        sources = {key: inherited_source(text, parent["name"]) for key, text in its["source"].items() if key not in mine}
        merged[name] = {**its, **mine, "source": {**sources, **mine.get("source", {})}}
    return {**child, "device": merged.pop("device"), "component": merged}


def inherited_source(source: str, parent: str) -> str:
    """Source of a number that a GPU inherits from ``parent``, whose own source is ``source``.

    >>> inherited_source("measured: kernels/math_rate, h200_sxm, 2026-11-20: median", "h200_sxm")
    'inferred: h200_sxm (measured: kernels/math_rate, h200_sxm, 2026-11-20: median)'
    >>> inherited_source("inferred: a100_sxm_80gb, 64 B a cycle and slice", "h200_sxm")
    'inferred: a100_sxm_80gb, 64 B a cycle and slice'
    """
    return source if source.partition(":")[0] in KEPT else f"inferred: {parent} ({source})"
