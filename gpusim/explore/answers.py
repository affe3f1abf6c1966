"""Records of the explorer's requests and answers, independent of browser and server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from gpusim.errors import GpusimError
from gpusim.explore.svg_minify import squeeze
from gpusim.kernel_models.options import refusal_sentence
from gpusim.report.plots.picture import Picture

LONGEST_TEXT = 400
"""Most characters of one field."""


class RefusedError(GpusimError):
    """Request without an answer: one sentence, and the field of the form that it concerns."""

    def __init__(self, sentence: str, field: str = "") -> None:
        super().__init__(sentence)
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        return RefusedError, (str(self), self.field)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of an answer, which is compared with that of the previous answer."""

    label: str
    value: float
    unit: str
    digits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Small table; columns from ``left`` on hold numbers."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Picture as SVG, with a description for readers who cannot see it."""

    title: str
    alt: str
    svg: str

    @classmethod
    def of(cls, title: str, picture: Picture) -> Self:
        """Minified copy of a report's picture."""
        return cls(title=title, alt=picture.alt, svg=squeeze(picture.svg))


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Further request that the answer suggests."""

    label: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Contents of a page's answer."""

    page: str
    label: str
    """Summary of the request in a few words, for the comparison with the next one."""
    verdict: str
    command: str
    """Equivalent command line."""
    figures: tuple[Figure, ...]
    facts_title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    pictures: tuple[Shown, ...]
    remarks: tuple[str, ...]
    offers: tuple[Offer, ...] = ()
    launch: Mapping[str, Any] | None = None
    """Packed launch that the page runs. The page fills in the numbers, which are zeros here."""
    moved: str = ""
    """Remark that is shown if a slider of the page was moved."""


class Question(BaseModel):
    """Fields of a form, each validated separately; missing fields have their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=LONGEST_TEXT, str_strip_whitespace=True)

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Self:
        """Request from a query string; an empty field counts as missing.

        Raises:
            RefusedError: a value is invalid, or there is no such field.
        """
        try:
            return cls(**{name: text for name, text in words.items() if text.strip()})
        except ValidationError as error:
            first = error.errors()[0]
            field = str(first["loc"][0]) if first["loc"] else ""
            if first["type"] == "string_too_long":
                sentence = f"{field} has more than {LONGEST_TEXT} characters, wants fewer"
            else:
                known = list(cls.model_fields)
                sentence = refusal_sentence(first, known).removeprefix(f"--{field.replace('_', '-')} ")
                sentence = sentence.replace("is no option of this kernel", "is no field of this page")
                sentence = f"{field.replace('_', ' ')} {sentence}"
            raise RefusedError(sentence, field) from None

    def work(self, *, is_plain: bool) -> int:
        """Estimated work of the answer, in steps of a CTA that are simulated: 100,000 take about a second.

        ``is_plain``: for a browser without scripts, for which the server simulates.
        """
        del is_plain
        return 0

    def query(self) -> dict[str, str]:
        """Fields that differ from their defaults, as text."""
        found = {name: getattr(self, name) for name in type(self).model_fields}
        defaults = {name: item.default for name, item in type(self).model_fields.items()}
        return {name: _word(value) for name, value in found.items() if value != defaults[name]}


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def field_of(sentence: str, fields: Mapping[str, str]) -> str:
    """Form field that an error of the command line concerns, by the first option of ``fields`` in the text.

    >>> field_of("--stages 12: too many; use at most --stages 4", {"stages": "stages"}), field_of("gemm: no", {})
    ('stages', '')
    """
    for option in re.findall(r"--([a-z][a-z0-9-]*)", sentence):
        if option in fields:
            return fields[option]
    return ""
