"""The words by which facts are found. Split here, once, so that every store finds the same.

Databases split text each in its own way, which depends on versions and locales. They are given words that are split
already, made of letters, digits and marks alone: nothing in them could be the syntax of any query language.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from holdfast.model.records import MemoryFact
from holdfast.model.task import JsonValue

MOST_QUERY_WORDS = 32

_SEARCHED_VALUE = 10_000
"""Characters of a value. PostgreSQL could not index a megabyte, and nobody looks for a fact by its ten-thousandth."""
_LONGEST_WORD = 100
_ACCENTS = dict.fromkeys(range(0x300, 0x370))


def words_of(text: str) -> tuple[str, ...]:
    """Return the different words of a text, without case and accents, in the order of their first use."""
    bare = unicodedata.normalize("NFKD", text).casefold().translate(_ACCENTS)
    spaced = "".join(c if _belongs_to_a_word(c) else " " for c in unicodedata.normalize("NFKC", bare))
    words = (word[:_LONGEST_WORD] for word in spaced.split() if any(map(str.isalnum, word)))
    return tuple(dict.fromkeys(words))


def fact_words(fact: MemoryFact) -> tuple[str, ...]:
    """Return the words by which a fact is found: those of its entity, its attribute and its value."""
    return words_of(f"{fact.entity} {fact.attribute} {_readable(fact.value)}")


def query_words(text: str) -> tuple[str, ...]:
    """Return the words to look for; of a very long text, the first ones."""
    return words_of(text[:_SEARCHED_VALUE])[:MOST_QUERY_WORDS]


def _belongs_to_a_word(character: str) -> bool:
    # Marks are the vowels of many scripts.
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _readable(value: JsonValue) -> str:
    texts, length = [], 0
    for text in _texts(value):
        texts.append(text)
        length += len(text)
        if length > _SEARCHED_VALUE:
            break
    return " ".join(texts)[:_SEARCHED_VALUE]


def _texts(value: JsonValue) -> Iterator[str]:
    """Yield what a person would read in a value: text, numbers, and the keys they stand under."""
    pending = [value]
    while pending:
        match pending.pop():
            case str(text):
                yield text
            case bool() | None:
                pass
            case int() | float() as number:
                yield repr(number)
            case list(items):
                pending += reversed(items)
            case dict(members):
                for key, member in reversed(members.items()):
                    pending += (member, key)
