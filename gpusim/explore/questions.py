"""The pages that there are, and the question of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpusim.explore.answers import Answer, Question
from gpusim.explore.banks import BanksQuestion
from gpusim.explore.pipeline import PipelineQuestion

QUESTIONS: Mapping[str, type[BanksQuestion | PipelineQuestion]] = MappingProxyType(
    {"banks": BanksQuestion, "pipeline": PipelineQuestion}
)
"""A row a page."""


def question_of(page: str, words: Mapping[str, str]) -> BanksQuestion | PipelineQuestion:
    """What ``words`` ask on ``page``.

    Raises:
        RefusedError: words that the page does not know.
    """
    return QUESTIONS[page].of(words)


def answer_of(question: Question, *, is_plain: bool = False) -> Answer:
    """The answer; a plain one leaves nothing to scripts.

    Raises:
        RefusedError: there is none.
    """
    assert isinstance(question, BanksQuestion | PipelineQuestion)
    if is_plain and isinstance(question, PipelineQuestion):
        return question.plain_answer()
    return question.answer()
