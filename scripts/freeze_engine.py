"""Writes what the engine says of the launches in ``tests/engine/launches.py``: ``validation/frozen/launches.json``.

``python scripts/freeze_engine.py`` writes all; ``--check`` only says which differ, and fails where any does. Names after
that choose launches. Freeze anew only in the commit that changes the model on purpose. Where all are frozen, digests of
the predictions in ``tests/engine/predictions.py`` are written, too: ``validation/frozen/predictions.json``.
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
    from tests.engine.predictions import FROZEN as PREDICTED
    from tests.engine.predictions import PREDICTIONS, fingerprint, frozen_fingerprints

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
    predictions = {} if given.names else {name: fingerprint(name) for name in PREDICTIONS}
    if predictions:
        said = frozen_fingerprints() if PREDICTED.exists() else {}
        moved = [name for name, digests in predictions.items() if digests != said.get(name)]
        num_changed += len(moved)
        print(f"{len(moved)} of {len(predictions)} predictions differ from what was frozen: {' '.join(moved)}".rstrip(": "))
    if given.check:
        return int(num_changed > 0)
    FROZEN.write_text(written(found), encoding="utf-8")
    if predictions:
        PREDICTED.write_text(written(predictions), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
