"""Sentences of docstrings, help and messages."""

from __future__ import annotations

import pytest

from .prose import long_sentences, num_words, sentences
from .ratchet import hold


@pytest.mark.parametrize("texts", ["docstrings", "engine", "help", "messages"])
def test_a_sentence_has_at_most_25_words(texts: str) -> None:
    hold(f"sentences_of_{texts}")


def test_models_and_ignores_are_lists() -> None:
    hold("lists_of_models")


def test_a_docstring_stands_alone() -> None:
    hold("docstrings_that_need_the_line_above")


def test_an_attributes_docstring_begins_with_a_noun_or_a_unit() -> None:
    hold("attributes_without_a_noun")


PROSE = """Bytes, e.g. of a line. A second one?

Args:
    first: one item
        that goes on
    second: another

* a bullet
* and one more

>>> code(1, 2)
3

As in::

    literal text

The end
"""


def test_prose_is_split_into_sentences() -> None:
    assert list(sentences(PROSE)) == [
        "Bytes, e.g. of a line.", "A second one?", "Args:", "first: one item that goes on", "second: another", "* a bullet",
        "* and one more", "As in::", "The end",
    ]  # fmt: skip


def test_marks_are_no_words() -> None:
    assert num_words("a -> b: ``c + d`` + 1, 2.5 %") == 5
    assert long_sentences("word " * 25) == []
    assert len(long_sentences("word " * 26)) == 1
