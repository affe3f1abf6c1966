"""Advice in error messages of launches: completes it with all options that must change for the launch to be accepted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gpusim.errors import GpusimError
from gpusim.report.number_format import option_words
from gpusim.simulate.plan import check

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

MOST_STEPS = 5
"""Most refusals in a row that are followed."""

Change = Mapping[str, str | bool]
"""Options by name (with underscores), as text; flags as bool."""


def options_in(text: str) -> dict[str, str | bool]:
    """Options that an advice suggests; of alternatives the first.

    >>> options_in("use --math mma_sync or wgmma"), options_in("use at most --stages 4")
    ({'math': 'mma_sync'}, {'stages': '4'})
    >>> options_in("use --columns 1024 --per block, or another multiple of 128"), options_in("use --no-persistent")
    ({'columns': '1024', 'per': 'block'}, {'persistent': False})
    >>> options_in("use a smaller --cluster, for example 2x1"), options_in("use another tile")
    ({'cluster': '2x1'}, {})
    """
    found: dict[str, str | bool] = {}
    text = re.sub(r"^use a (?:smaller|larger) (--[\w-]+), for example ", r"use \1 ", text)
    pairs = re.match(r"use (?:at most )?((?:--[\w-]+(?: (?!or\b|and\b|--)[^\s,;()]+)? ?)+)", text)
    for name, value in re.findall(r"--([\w-]+)(?: (?!--)([^\s,;()]+))?", pairs[1] if pairs else ""):
        if value and value not in ("or", "and"):
            found[name.replace("-", "_")] = value.rstrip(".:")
        elif name.startswith("no-"):
            found[name[3:].replace("-", "_")] = False
        else:
            found[name.replace("-", "_")] = True
    return found


def complete_advice(sentence: str, params_of: Callable[[Change], Any], gpu: GpuSpec) -> str:
    """Refusal ``sentence`` of a kernel or its launch on ``gpu``, with all options that the launch needs to be accepted.

    ``params_of`` gives the kernel's parameters with some options changed.
    """
    def refusal_of(change: Change) -> str | None:
        try:
            check(params_of(change).resolved(gpu).launch(gpu), gpu)
        except GpusimError as error:
            return str(error)
        return None

    return advice_until_accepted(sentence, refusal_of)


def advice_until_accepted(sentence: str, refusal_of: Callable[[Change], str | None]) -> str:
    """Refusal ``sentence`` with all options that are needed until nothing is refused; unchanged where they are not found.

    ``refusal_of`` gives the refusal after some options are changed, or None.

    >>> refusals = {"a": "--x 3: too large; use --x 2", "b": "--y 1: not beside --x 2; use --y 0", "c": None}
    >>> advice_until_accepted(refusals["a"], lambda change: refusals["c" if "y" in change else "b"])
    '--x 3: too large; use --x 2 --y 0'
    """
    changes: dict[str, Any] = {}
    refusal: str | None = sentence
    for step in range(MOST_STEPS):
        before, mark, advice = (refusal or "").rpartition("use ")
        options = options_in(mark + advice) if before else {}
        if not options:
            return sentence
        changes |= options
        refusal = refusal_of(changes)
        if refusal is None:
            return sentence if not step else f"{sentence.rpartition('use ')[0]}use {' '.join(option_words(changes))}"
    return sentence
