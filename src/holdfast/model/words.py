"""The words by which facts are found. Text is split here, so that every store finds the same facts.

Each database splits text in its own way, which depends on versions and locales. So a store gets words that are already
split and contain only letters, digits and marks: none of them can be syntax of a query language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from holdfast.model.records import MemoryFact
from holdfast.model.task import JsonValue

MOST_QUERY_WORDS = 32

_SEARCHED_VALUE = 10_000
"""Characters of a value. PostgreSQL could not index a megabyte, and no search needs words that far into a value."""
_LONGEST_WORD = 100
_WINDOW = 6
"""Characters of a script without spaces that are found together; a longer query is searched in parts."""
_UNSPACED = re.compile(
    # Han, kana, Hangul (words have endings), Thai, Lao, Burmese, Khmer, with the marks that belong to them.
    "[\u3005-\u3007\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\uac00-\ud7a3"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u104f\u1780-\u17d3]+"
)
_SIGN = re.compile(
    # Emoji, and the symbols that are shown as emoji. Not the modifiers, joiners and variation selectors around them.
    "[\u203c\u2049\u2139\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d"
    "\U0001f000-\U0001f0ff\U0001f1e6-\U0001f1ff\U0001f300-\U0001f3fa\U0001f400-\U0001faff]"
)
_SIGN_WORD = "\ua66e"
"""A letter found in a single manuscript: no other word begins with it, so a search for a word never finds emoji."""
_ACCENTS = dict.fromkeys(range(0x300, 0x370))


def words_of(text: str) -> tuple[str, ...]:
    """Return the different words of a text, without case and accents, in the order of their first use."""
    bare = unicodedata.normalize("NFKD", text).casefold().translate(_ACCENTS)
    text = unicodedata.normalize("NFKC", _SIGN.sub(_named, bare))
    spaced = "".join(c if _belongs_to_a_word(c) else " " for c in _UNSPACED.sub(r" \g<0> ", text))
    words = (word[:_LONGEST_WORD] for word in spaced.split() if any(map(str.isalnum, word)))
    return tuple(dict.fromkeys(words))


def fact_words(fact: MemoryFact) -> tuple[str, ...]:
    """Return the words by which a fact is found: those of its entity, its attribute and its value."""
    return words_about(fact.entity, fact.attribute, fact.value)


def words_about(entity: str, attribute: str, value: JsonValue) -> tuple[str, ...]:
    """See fact_words."""
    words = words_of(f"{entity} {attribute} {_readable(value)}")
    return tuple(dict.fromkeys(part for word in words for part in _findable(word)))


def query_words(text: str) -> tuple[str, ...]:
    """Return the words to search for; of a very long text, the first ones."""
    words = words_of(text[:_SEARCHED_VALUE])
    parts = (part for word in words for part in _looked_for(word))
    return tuple(dict.fromkeys(parts))[:MOST_QUERY_WORDS]


def _findable(word: str) -> Iterator[str]:
    """Yield the index entries of a word: the word; for scripts without spaces, a piece from each character on."""
    if _UNSPACED.fullmatch(word):
        yield from (word[at : at + _WINDOW] for at in range(len(word)))
    else:
        yield word


def _looked_for(word: str) -> Iterator[str]:
    """Yield the pieces of a word to search for; the last piece of a long word overlaps the one before."""
    if not _UNSPACED.fullmatch(word) or len(word) <= _WINDOW:
        yield word
        return
    yield from (word[at : at + _WINDOW] for at in range(0, len(word) - _WINDOW, _WINDOW))
    yield word[-_WINDOW:]


def _named(sign: re.Match[str]) -> str:
    # Each database splits at an emoji in its own way, but the emoji's number is one word for all of them. A joined
    # emoji is found by any of its parts, with and without colour and variation selector.
    return f" {_SIGN_WORD}{ord(sign[0]):x} "


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
    """Yield what a person would read in a value: text, numbers, and their keys."""
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
