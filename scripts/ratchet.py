"""Lower tests/house/ratchet.toml to what the tree is today.

In: nothing, or --as-is. Out: the file; status 1 where something is worse than listed, which --as-is takes over.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from house import ratchet, rules


def main() -> int:
    """Rewrite the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as-is", action="store_true", help="take over the tree as it is, also what is new or worse")
    as_is = parser.parse_args().as_is
    found = {rule: offenders() for rule, offenders in rules.RULES.items()}
    listed = ratchet.read()
    words = set(ratchet.read_words())
    wrong = [
        f"{rule}: {name}: {num}, listed {listed.get(rule, {}).get(name, 0)}"
        for rule, offenders in found.items()
        for name, num in ratchet.worse(offenders, listed.get(rule, {})).items()
    ]
    wrong += [f"module_words: {word}" for word in sorted(rules.module_words() - words)]
    for line in wrong:
        print(line)
    if as_is:
        ratchet.write({rule: offenders for rule, offenders in found.items() if offenders})
        ratchet.write_words(rules.module_words())
    else:
        lower = {rule: ratchet.lowered(found.get(rule, {}), offenders) for rule, offenders in listed.items()}
        ratchet.write({rule: offenders for rule, offenders in lower.items() if offenders})
        ratchet.write_words(words & rules.module_words())
    return bool(wrong) and not as_is


if __name__ == "__main__":
    sys.exit(main())
