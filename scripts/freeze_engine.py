"""Writes what the engine says of the launches in ``tests/engine/launches.py``: ``validation/frozen/launches.json``.

``python scripts/freeze_engine.py`` writes all; ``--check`` only says which differ, and fails where any does. Names after
that choose launches. Freeze anew only in the commit that changes the model on purpose.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def written(frozen: Mapping[str, Any]) -> str:
    """As a file: a launch a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in sorted(frozen.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="launches; all by default")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    given = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT))
    from tests.engine.launches import CASES, FROZEN, frozen_answers

    before = frozen_answers() if FROZEN.exists() else {}
    found = {name: answer for name, answer in before.items() if name in CASES}
    num_changed = 0
    for name in given.names or CASES:
        answer = CASES[name].answer().frozen()
        if answer != before.get(name):
            num_changed += 1
            print(f"{name}: {before.get(name)} -> {answer}")
        found[name] = answer
    print(f"{num_changed} of {len(given.names or CASES)} launches differ from what was frozen")
    if given.check:
        return int(num_changed > 0)
    FROZEN.write_text(written(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
