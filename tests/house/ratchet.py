"""The list of today's offenders against each rule: it may only shrink."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from .rules import RULES, Offenders

LIST = Path(__file__).with_name("ratchet.toml")
WORDS = Path(__file__).with_name("module_words.txt")

HEAD = """\
# Offenders against the rules of tests/house/rules.py, and how many or how large. The list may only shrink:
# scripts/ratchet.py lowers what has become better; nothing raises it but scripts/ratchet.py --as-is.
"""


def read() -> dict[str, Offenders]:
    return tomllib.loads(LIST.read_text(encoding="utf-8")) if LIST.exists() else {}


def write(listed: Mapping[str, Offenders]) -> None:
    """One line an entry, sorted; reasons of entries stay."""
    lines = [HEAD]
    before = LIST.read_text(encoding="utf-8") if LIST.exists() else ""
    reasons = dict(re.findall(r'^"(.+)" = \d+ +(# \w.*)$', before, re.MULTILINE))
    for rule, offenders in sorted(listed.items()):
        entries = (f'"{name}" = {num} {reasons.get(name, "")}'.rstrip() for name, num in sorted(offenders.items()))
        lines += [f"[{rule}]", *entries, ""]
    LIST.write_text("\n".join(lines), encoding="utf-8")


def read_words() -> list[str]:
    return WORDS.read_text(encoding="utf-8").split() if WORDS.exists() else []


def write_words(words: set[str]) -> None:
    WORDS.write_text("".join(f"{word}\n" for word in sorted(words)), encoding="utf-8")


def worse(found: Offenders, listed: Offenders) -> Offenders:
    """Offenders that are new, and those that have become worse."""
    return {name: num for name, num in found.items() if num > listed.get(name, 0)}


def better(found: Offenders, listed: Offenders) -> Offenders:
    """Entries of the list that are too high now, with what they may become."""
    return {name: found.get(name, 0) for name, num in listed.items() if found.get(name, 0) < num}


def lowered(found: Offenders, listed: Offenders) -> Offenders:
    """The list without what has become better; what has become worse stays as it is listed."""
    lower = {name: min(num, found.get(name, 0)) for name, num in listed.items()}
    return {name: num for name, num in lower.items() if num}


def hold(rule: str) -> None:
    """Fail where the tree and the list differ.

    Raises:
        AssertionError: names of offenders that are worse than listed, or of entries that can be lowered.
    """
    found, listed = RULES[rule](), read().get(rule, {})
    wrong, old = worse(found, listed), better(found, listed)
    assert not wrong, f"{rule}: new or worse than in {LIST.name}: {wrong}"
    assert not old, f"{rule}: better than in {LIST.name}: {old}; run scripts/ratchet.py"


def raised(listed: Mapping[str, Offenders], before: Mapping[str, Offenders], text: str) -> list[str]:
    """Entries above their number ``before``, or new; an entry whose line gives a reason behind ``#`` may be so."""
    excused = set(re.findall(r'^"(.+)" = \d+ +# \w+', text, re.MULTILINE))
    return [
        f"{rule}: {name}" for rule, offenders in listed.items()
        for name in worse(offenders, before.get(rule, {})) if name not in excused
    ]
