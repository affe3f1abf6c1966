"""Names of modules, and one word for one concept."""

from __future__ import annotations

from .ratchet import WORDS, hold, read_words
from .rules import BANNED_IN_MODULES, GLOSSARY, module_words


def test_no_module_is_named_after_a_metaphor() -> None:
    hold("module_names")


def test_a_new_word_in_a_modules_name_is_looked_at() -> None:
    """Hardware, an instruction, a term of CUDA, CuTe or Nsight, or a plain verb: else the module wants another name."""
    assert sorted(module_words() - {*read_words()}) == [], f"if the word is one of these, add it to {WORDS.name}"
    assert sorted({*read_words()} - module_words()) == [], "run scripts/ratchet.py"
    assert not module_words() & BANNED_IN_MODULES


def test_a_forbidden_synonym_does_not_spread() -> None:
    hold("synonyms")


def test_a_word_is_forbidden_for_one_concept_alone() -> None:
    words = [word for table in ("concepts", "plain_english") for forbidden in GLOSSARY[table].values() for word in forbidden]
    assert len(words) == len(set(words))
    assert GLOSSARY["elsewhere"].keys() <= set(words)
