"""Pages of the explorer, and the type of their requests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpusim.explore.answers import Answer, Question
from gpusim.explore.banks import BanksQuestion
from gpusim.explore.bytes import BytesQuestion
from gpusim.explore.pipeline import PipelineQuestion

AnyQuestion = BanksQuestion | BytesQuestion | PipelineQuestion

QUESTIONS: Mapping[str, type[AnyQuestion]] = MappingProxyType(
    {"banks": BanksQuestion, "pipeline": PipelineQuestion, "bytes": BytesQuestion}
)
"""Request types by page."""


def question_of(page: str, words: Mapping[str, str]) -> AnyQuestion:
    """Request of ``words``, the fields of ``page``.

    Raises:
        RefusedError: the page has no such field, or a value is invalid.
    """
    return QUESTIONS[page].of(words)


def answer_of(question: Question, *, is_plain: bool = False) -> Answer:
    """Answer to a request. ``is_plain``: for a browser without scripts.

    Raises:
        RefusedError: there is no answer.
    """
    assert isinstance(question, AnyQuestion)
    if is_plain and isinstance(question, PipelineQuestion):
        return question.plain_answer()
    return question.answer()
