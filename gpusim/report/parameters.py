"""Meaning of each parameter of a GPU: the docstring below the field of its Spec.

In: the source of ``gpusim/machine``. Out: texts by ``component.parameter``, each with its microbenchmark.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Mapping
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from gpusim.errors import ConfigError
from gpusim.machine.config import COMPONENT_KINDS, GpuSpec
from gpusim.machine.description import parameter_hint
from gpusim.machine.floorplan import DeviceSpec

_ORIGIN = re.compile(r"(.*) \(([^()]+)\)\.")
NO_MICROBENCHMARKS = frozenset({"vendor", "paper", "inferred", "guess", "validation/studies"})
"""Origins of a parameter that no kernel measures."""
_MARKS = re.compile(r"(:\w+:)?`+")


class Meaning(NamedTuple):
    """A parameter in plain words, and what gives its number on an H200."""

    text: str
    origin: tuple[str, ...]
    """Microbenchmarks, or ``vendor``, ``paper``, ``inferred``, ``guess`` or ``validation/studies``."""


@cache
def meanings() -> Mapping[str, Meaning]:
    """Meanings of all parameters by ``component.parameter``.

    >>> meanings()["hbm.refresh_ns"]
    Meaning(text="Longest wait of a read for a bank's refresh.", origin=('pointer_chase',))
    """
    specs = {"device": DeviceSpec, **COMPONENT_KINDS}
    return {f"{part}.{name}": meaning for part, spec in specs.items() for name, meaning in _of_fields(spec).items()}


def meaning_of(parameter: str) -> Meaning:
    """Meaning of ``component.parameter`` or ``component.parameter.entry``; empty where its field has no docstring."""
    return meanings().get(".".join(parameter.split(".")[:2]), Meaning("", ()))


def unsettled(gpu: GpuSpec, given: Collection[str] = ()) -> dict[str, list[str]]:
    """Inferred and guessed parameters by the microbenchmark that gives them on an H200; ``given``: without these."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(".".join(name.split(".")[:2]) for name in gpu.parameters()):
        if name not in given and gpu.source_class(name) in ("inferred", "guess"):
            for origin in set(meaning_of(name).origin) - NO_MICROBENCHMARKS:
                found.setdefault(origin, []).append(name)
    return dict(sorted(found.items()))


def parameters_of(gpu: GpuSpec, wanted: str) -> list[str]:
    """Names of all parameters of a part (``hbm``), of one (``hbm.refresh_ns``), or of the entries of a table.

    >>> from gpusim import load_gpu
    >>> parameters_of(load_gpu("h200_sxm"), "device.gpcs")
    ['device.gpcs.16', 'device.gpcs.18']

    Raises:
        ConfigError: the GPU has no such part or parameter.
    """
    names = list(gpu.parameters())
    found = [name for name in names if f"{name}.".startswith(f"{wanted}.")]
    if not found:
        known = dict.fromkeys([*(name.split(".")[0] for name in names), *names])
        raise ConfigError(f"gpus: {gpu.name} has no parameter {wanted!r}; {parameter_hint(wanted, known)}")
    return found


def _of_fields(spec: type) -> dict[str, Meaning]:
    (owner,) = ast.parse(inspect.getsource(spec)).body
    assert isinstance(owner, ast.ClassDef)
    found = {}
    for item, text in pairwise(owner.body):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and isinstance(text, ast.Expr):
            found[item.target.id] = _meaning(ast.literal_eval(text.value))
    return found


def _meaning(docstring: str) -> Meaning:
    plain = _MARKS.sub("", " ".join(docstring.split()))
    parts = _ORIGIN.fullmatch(plain)
    return Meaning(f"{parts[1]}.", tuple(parts[2].split(", "))) if parts else Meaning(plain, ())
