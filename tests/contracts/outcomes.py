"""What becomes of a launch whose outputs are changed: refused with which words, seen in the values, or ignored.

In: right outputs of a case. Out: an outcome for each part of each output. Run as a module it writes ``outcomes.toml``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Config, Outputs, WrongAnswer, load_case

from .right_outputs import RIGHT, tests_of

EXPECTED = Path(__file__).with_name("outcomes.toml")
MOST_COLUMNS = 24
"""Longest last axis that is taken for columns of different meaning."""
SLOW = {
    "epilogue_pieces", "first_loads", "loads_beside_stores", "multicast_rings", "piece_order", "reads_beside_writes",
    "reduction", "scattered_reads", "sharers_apart", "store_drift", "tile_arrival", "tile_bursts", "tile_pitch",
    "tile_sharing", "wave_sharing",
}  # fmt: skip
"""Cases whose check works out much anew each time: fewer elements of each part are changed."""
REFERENCES = {
    "epilogue_pieces": "wanted_tiles", "piece_order": "expected", "scattered_reads": "expected", "reduction": "sums",
}  # fmt: skip
"""Functions that a case's check calls for its reference, and that take long: they are called once a config."""


def parts(name: str, array: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """(name, view) of each field of a structure, each column of a table, or the array itself."""
    if array.dtype.names is not None:
        for field in array.dtype.names:
            yield from parts(f"{name}.{field}", array[field])
    elif array.ndim > 1 and array.shape[-1] <= MOST_COLUMNS:
        for column in range(array.shape[-1]):
            yield f"{name}.{column}", array[..., column]
    else:
        yield name, array


def changes(array: NDArray[Any], is_slow: bool) -> Iterator[None]:
    """Change one element at a time; it is restored when the next one is asked for."""
    flat = array.reshape(-1)
    last = len(flat) - 1
    odd = int(np.argmax(flat != flat[last]))  # where most of an array is left as it was
    second = min(1, last)
    some = [(second, "bit"), (odd, "bit"), (odd, "zero")]
    for place, change in some if is_slow else [*some, (0, "bit"), (last, "bit"), (second, "zero"), (odd, "sign")]:
        at = np.unravel_index(place, array.shape)
        kept = array[at]
        raw = np.array([kept]).view(np.uint8)
        before = raw.tobytes()
        raw[0] ^= change == "bit"
        raw[-1] ^= 0x80 * (change == "sign" and array.dtype.kind == "f")
        raw[:] = 0 if change == "zero" else raw
        if raw.tobytes() != before:
            array[at] = raw.view(array.dtype)[0]
            yield
            array[at] = kept


def outcome(case: Case, config: Config, outputs: Outputs, right: dict[str, float]) -> str:
    """Words of the refusal without their fractions; else whether values differ from those of the right outputs."""
    try:
        with np.errstate(all="ignore"):
            values = case.check(config, outputs)
    except IndexError:
        return "IndexError"
    except WrongAnswer as error:
        return re.sub(r"-?\d+(\.\d+(e[+-]?\d+)?|e[+-]?\d+)", "#", str(error))[:100]
    return "ignored" if values == right else "other values"


@contextmanager
def remembered(case: Any, name: str) -> Iterator[None]:
    """Call the case's function of that name once for each of its arguments."""
    function, known = getattr(case, name), {}

    def call(*arguments: Any) -> Any:
        key = repr(arguments)
        if key not in known:
            known[key] = function(*arguments)
        return known[key]

    with mock.patch.object(case, name, call):
        yield


def outcomes_of(name: str) -> dict[str, list[Any]]:
    """Configs, values of their right outputs, and by part of an output what its changes lead to, config by config."""
    case, tests = load_case(name), tests_of(name)
    found: dict[str, list[Any]] = {"configs": [], "values": []}
    with remembered(tests.case, REFERENCES[name]) if name in REFERENCES else nullcontext():
        for idx, (config, outputs) in enumerate(RIGHT[name](tests)):
            held = {key: np.array(array) for key, array in outputs.items() if array is not None}
            given = {**outputs, **held}
            values = case.check(config, given)
            found["configs"].append(" ".join(config.values())[:60])
            found["values"].append(values)
            for key, array in held.items():
                for part, view in parts(key, array):
                    seen = {outcome(case, config, given, values) for _ in changes(view, name in SLOW)} if view.size else ()
                    of_part = found.setdefault(part, [""] * idx)
                    of_part.append(" | ".join(sorted(seen)))
            for texts in found.values():
                texts.extend([""] * (idx + 1 - len(texts)))
    return {key: each[:1] if len(set(map(str, each))) == 1 else each for key, each in found.items()}


def text_of(found: dict[str, dict[str, list[Any]]]) -> str:
    """TOML of the outcomes of all cases."""
    lines = ["# What changed outputs lead to, config by config. Written by: python -m tests.contracts.outcomes"]
    for name, told in found.items():
        lines.append(f"\n[{name}]")
        for key, each in told.items():
            texts = [toml_of(value) for value in each]
            lines += [f"{json.dumps(key)} = [{', '.join(texts)}]"] if key != "values" else ["values = [", *(
                f"    {text}," for text in texts
            ), "]"]
    return "\n".join(lines) + "\n"


def toml_of(value: str | dict[str, float]) -> str:
    """A string or a flat table as TOML.

    >>> toml_of({"cycles": 3.0}), toml_of("seen")
    ('{ cycles = 3.0 }', '"seen"')
    """
    if isinstance(value, str):
        return json.dumps(value)
    return f"{{ {', '.join(f'{name} = {float(number)!r}' for name, number in value.items())} }}" if value else "{}"


if __name__ == "__main__":
    EXPECTED.write_text(text_of({name: outcomes_of(name) for name in sorted(RIGHT)}), encoding="utf-8")
