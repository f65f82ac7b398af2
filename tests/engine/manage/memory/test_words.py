"""The words of a text, the same for every store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.records import MemoryFact
from holdfast.model.words import MOST_QUERY_WORDS, fact_words, query_words, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Green TEA, green tea!", ("green", "tea")),
        ("user_name-2.5", ("user", "name", "2", "5")),
        ("Straße café CAFE\u0301 Ñandú", ("strasse", "cafe", "nandu")),
        ("नमस्ते दुनिया", ("नमस्ते", "दुनिया")),
        ("東京都 가나다", ("東京都", "가나다")),
        ("\ufe0f \u0301 %_*\"'\\", ()),
        ("\u2764\ufe0f \u2764", ("\ua66e2764",)),
        ("\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd", ("\ua66e1f469", "\ua66e1f467", "\ua66e1f44d")),
        ("abc東京", ("abc", "東京")),
        ("ﬁne ①", ("fine", "1")),
        ("x" * 300, ("x" * 100,)),
        ("\ud800tea\x00", ("tea",)),
        ("", ()),
    ],
)
def test_a_text_has_words(text: str, words: tuple[str, ...]) -> None:
    assert words_of(text) == words


@given(st.text())
def test_no_word_holds_anything_but_letters_digits_and_marks(text: str) -> None:
    """Nothing that any database could take for syntax, or split further."""
    for word in words_of(text):
        assert words_of(word) == (word,)
        assert not set(word) & set(" \t\n\"'\\*:&|!()<>-^+{}[]%_.,;/\x00")
        assert all(c.isalnum() for c in word if c.isascii())
        word.encode()


@given(st.text())
def test_case_does_not_matter(text: str) -> None:
    assert words_of(text.casefold()) == words_of(text)


def test_all_that_a_person_would_read_in_a_fact_is_found() -> None:
    value = {"brand": ["Earl\nGrey", {"cups": 3, "sugar": None, "hot": True}], "price": 2.5}
    fact = MemoryFact(entity="Alice", attribute="tea", value=value)
    assert fact_words(fact) == ("alice", "tea", "brand", "earl", "grey", "cups", "3", "sugar", "hot", "price", "2", "5")


def test_of_very_much_the_beginning_is_looked_at() -> None:
    fact = MemoryFact(entity="e", attribute="a", value=[f"w{n}" for n in range(100_000)])
    assert 1000 < len(fact_words(fact)) < 10_000
    assert len(query_words(" ".join(f"w{n}" for n in range(100_000)))) == MOST_QUERY_WORDS
