"""HTML pages and answers of the explorer, from templates; every value is escaped."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpusim.explore.answers import Answer, Shown
from gpusim.explore.forms import FORMS, Form
from gpusim.explore.packed_launch import engine_script

ENGINE = "engine.js"
"""Name of a script with the engine's module, generated on demand."""

ASSETS = {
    "explore.css": "text/css", "icon.svg": "image/svg+xml",
    **dict.fromkeys(("draw.js", ENGINE, "run.js", "timeline.js", "pipeline.js", "explore.js"), "text/javascript"),
}
"""Files next to the pages, with their media types."""

SCRIPTS = "'self' 'wasm-unsafe-eval'"
"""Content policy of pages: scripts next to them, and WebAssembly modules (the engine)."""


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("gpusim.explore", "page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )


def asset(name: str) -> bytes:
    """Content of a file in ``ASSETS``."""
    if name == ENGINE:
        return engine_script().encode()
    return resources.files("gpusim.explore").joinpath("page", name).read_bytes()


def index_page(*, copied: str = "", pages: Collection[str] = FORMS) -> str:
    """First page. ``copied``: contents of a static copy, empty for a server; ``pages``: the existing pages."""
    return _templates().get_template("index.html").render(
        forms=_forms(pages), page="index", copied=copied, pages=pages, policy=SCRIPTS,
    )


def form_page(
    form: Form, words: Mapping[str, str], *, answer: Answer | None = None, refusal: tuple[str, str] | None = None,
    copied: str = "", pages: Collection[str] = FORMS,
) -> str:
    """Page of a form, filled with ``words``; with an answer (or an error and its field) for browsers without JavaScript.

    ``copied``: contents of a static copy, empty for a server; ``pages``: the existing pages.
    """
    drawn = None if answer is None else answer_fragment(answer)
    return _templates().get_template("form.html").render(
        forms=_forms(pages), page=form.page, form=form, words=words, answer=drawn, refusal=refusal, copied=copied,
        policy=SCRIPTS,
    )


def answer_fragment(answer: Answer, source_of: Callable[[int, Shown], str] | None = None) -> str:
    """HTML of an answer without its page; ``source_of`` gives a picture's address. Without it pictures are in the page."""
    give = source_of or (lambda idx, shown: _inline(shown))
    sources = [give(idx, shown) for idx, shown in enumerate(answer.pictures)]
    return _templates().get_template("answer.html").render(answer=answer, sources=sources, page=answer.page)


def answer_document(answer: Answer, html: str) -> dict[str, Any]:
    """Document for the page's script: HTML to show, and numbers to compare with those of the next answer."""
    return {
        "html": html, "label": answer.label, "launch": answer.launch,
        "figures": [
            {"label": figure.label, "value": figure.value, "unit": figure.unit, "digits": figure.digits}
            for figure in answer.figures
        ],
    }


def refusal_document(sentence: str, field: str) -> dict[str, Any]:
    """Document for the page's script, of a request without an answer."""
    return {"refusal": sentence, "field": field}


def _forms(pages: Collection[str]) -> list[tuple[str, str]]:
    return [(name, make().title) for name, make in FORMS.items() if name in pages]


def _inline(shown: Shown) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(shown.svg.encode()).decode()}"
