"""What is asked and answered: records that know neither browser nor server."""

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
"""Characters that one field may have."""


class RefusedError(GpusimError):
    """A question without an answer: one sentence, and the field of the form that it concerns."""

    def __init__(self, sentence: str, field: str = "") -> None:
        super().__init__(sentence)
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        return RefusedError, (str(self), self.field)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of an answer, which is compared with that of the last answer."""

    label: str
    value: float
    unit: str
    digits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A small table; of columns from ``left`` on, numbers."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A picture as SVG, with a sentence for those who do not see it."""

    title: str
    alt: str
    svg: str

    @classmethod
    def of(cls, title: str, picture: Picture) -> Self:
        """As the report drew it, in fewer bytes."""
        return cls(title=title, alt=picture.alt, svg=squeeze(picture.svg))


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Another question that the answer suggests."""

    label: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All that a page shows."""

    page: str
    label: str
    """The question in a few words, for the comparison with the next."""
    verdict: str
    command: str
    """The same question on the command line."""
    figures: tuple[Figure, ...]
    facts_title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    pictures: tuple[Shown, ...]
    remarks: tuple[str, ...]
    offers: tuple[Offer, ...] = ()
    launch: Mapping[str, Any] | None = None
    """A packed launch that the page is to run: it fills in the numbers, which are zeros here."""
    moved: str = ""
    """A remark that holds where one of the page's sliders was moved."""


class Question(BaseModel):
    """Words of a form, each checked by itself; what is left out has its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=LONGEST_TEXT, str_strip_whitespace=True)

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Self:
        """The question that a query asks; an empty word is one that is left out.

        Raises:
            RefusedError: a word that is none of the field's, or a field that there is not.
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

    def query(self) -> dict[str, str]:
        """The words that differ from their defaults."""
        found = {name: getattr(self, name) for name in type(self).model_fields}
        defaults = {name: item.default for name, item in type(self).model_fields.items()}
        return {name: _word(value) for name, value in found.items() if value != defaults[name]}


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def field_of(sentence: str, fields: Mapping[str, str]) -> str:
    """The field that a sentence of the command line concerns, by the first option of ``fields`` that it names.

    >>> field_of("--stages 12: too many; use at most --stages 4", {"stages": "stages"}), field_of("gemm: no", {})
    ('stages', '')
    """
    for option in re.findall(r"--([a-z][a-z0-9-]*)", sentence):
        if option in fields:
            return fields[option]
    return ""
