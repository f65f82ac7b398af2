from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import InvalidValue
from holdfast.model.tokens import ContextRoom, TextSize, estimate_tokens
from holdfast.model.utf8 import encode


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcdefg", 2),
        ("abcdefgh", 3),
        ("é", 1),
        ("привет", 6),
        ("状态", 3),
        ("🙂", 2),
        ("abcdefg状态", 5),
        ("\ud800", 2),
    ],
)
def test_what_is_estimated(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text())
def test_a_text_takes_at_least_one_token_and_at_most_one_a_byte(text: str) -> None:
    assert bool(text) <= estimate_tokens(text) <= len(encode(text))


@given(st.text(), st.text())
def test_texts_one_by_one_are_never_less_than_together(one: str, other: str) -> None:
    assert estimate_tokens(one + other) <= TextSize.of(one, other).tokens
    assert estimate_tokens(one) <= estimate_tokens(one + other)


def test_room_is_counted_in_both_units() -> None:
    size = TextSize.of("abcdefg", "é")
    assert size == TextSize(bytes=9, tokens=3)
    assert ContextRoom().holds(size)
    assert ContextRoom(max_bytes=9, max_tokens=3).holds(size)
    assert not ContextRoom(max_bytes=8).holds(size)
    assert not ContextRoom(max_bytes=9, max_tokens=2).holds(size)


def test_a_negative_room_is_refused() -> None:
    for wrong in ({"max_bytes": -1}, {"max_tokens": -1}):
        with pytest.raises(InvalidValue, match="lowest"):
            ContextRoom(**wrong)
