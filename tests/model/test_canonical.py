from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.canonical import canonical, digest, parse, write, write_plain
from holdfast.model.errors import CodecError, InvalidValue
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from tests.everyday import FULL

text = st.text(st.characters(exclude_categories=["Cs"]))
atoms = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
json_values = st.recursive(atoms, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20)


@given(json_values)
@settings(max_examples=200 if FULL else 100)
def test_one_value_has_one_spelling(value: object) -> None:
    data = canonical(value)
    assert data == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert canonical(parse(data)) == data
    assert repr(parse(data)) == repr(json.loads(data))


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | text)
@settings(max_examples=300 if FULL else 100)
def test_the_fast_writer_agrees_with_the_standard_library(value: object) -> None:
    assert write_plain([value], DEFAULT_LIMITS) == write([value])


@pytest.mark.parametrize("number", [1e-4, 9.999999e-5, 1e16, 9999999999999998.0, -0.0, 5e-324, 1.7976931348623157e308])
def test_floats_at_the_edges_of_the_shortcut_are_spelled_as_python_spells_them(number: float) -> None:
    assert canonical(number) == repr(number).encode()
    assert math.copysign(1, parse(canonical(number))) == math.copysign(1, number)


def test_the_order_of_keys_does_not_matter() -> None:
    assert canonical({"b": 1, "a": {"z": 1, "ä": 2}}) == canonical({"a": {"ä": 2, "z": 1}, "b": 1})
    assert canonical({"b": 1, "a": "ä"}) == '{"a":"ä","b":1}'.encode()


def test_lone_surrogates_are_escaped_so_that_the_bytes_are_utf_8() -> None:
    data = canonical({"\udc00": "x\ud800y"})
    assert data == b'{"\\udc00":"x\\ud800y"}'
    assert parse(data) == {"\udc00": "x\ud800y"}


def test_a_split_character_is_refused_because_it_would_come_back_joined() -> None:
    with pytest.raises(CodecError, match="surrogates") as refused:
        canonical({"a": ["\ud83d\ude00"]})
    assert refused.value.path == "value.a[0]"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, math.nan]}, "value.a[1]"),
        ({"a": {"b c": (1,)}}, "value.a['b c']"),
        ({"a": {1: 2}}, "value.a"),
        ([{1, 2}], "value[0]"),
        ({"a": 10**4300}, "value.a"),
        ({"a": object()}, "value.a"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(value: object, path: str) -> None:
    with pytest.raises(CodecError) as refused:
        canonical(value)
    assert refused.value.path == path
    assert str(refused.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a":1,"a":1}', "twice"),
        (b'[{"x":{"a":1,"b":2,"a":3}}]', "twice"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"-Infinity", "Infinity"),
        (b"1e999", "too large"),
        (b"1 2", "not JSON"),
        (b'{"a":1}x', "not JSON"),
        (b"", "not JSON"),
        (b'"\xff"', "not JSON"),
        (b"\xef\xbb\xbf1", "not JSON"),
        (b"[1,]", "not JSON"),
        (b"9" * 4301, "not JSON"),
        (b"[" * 100_000, "deep"),
        (b'{"a":' * 100_000, "deep"),
        (b"[" * 65 + b"]" * 65, "64 levels"),
    ],
)
def test_parse_is_strict(data: bytes, why: str) -> None:
    with pytest.raises(CodecError, match=why) as refused:
        parse(data, name="body")
    assert refused.value.path == "body"


def test_spaces_and_escapes_are_read_although_we_would_not_write_them() -> None:
    assert parse(b' { "a" : "\\u00e4" , "b":[1e2]} ') == {"a": "ä", "b": [100.0]}


def test_depth_is_counted_alike_on_every_way() -> None:
    limits = Limits(max_depth=3)
    for leaf in (1, "\ud800", math.pi * 1e30):
        assert parse(canonical([[[leaf]]], limits=limits), limits=limits) == [[[leaf]]]
        with pytest.raises(CodecError, match="3 levels"):
            canonical([[[[leaf]]]], limits=limits)
    with pytest.raises(CodecError, match="3 levels"):
        canonical([[[{}]]], limits=limits)
    with pytest.raises(CodecError, match="3 levels"):
        parse(b"[[[[]]]]", limits=limits)
    # Brackets inside strings are not levels.
    assert parse(b'["[[[[[[["]', limits=limits) == ["[[[[[[["]


def test_size_is_limited_and_the_message_says_what_to_do() -> None:
    limits = Limits(max_bytes=10)
    assert canonical("x" * 8, limits=limits)
    with pytest.raises(CodecError, match=r"11 bytes.*artifact"):
        canonical("x" * 9, limits=limits)
    with pytest.raises(CodecError, match="11 bytes"):
        parse(b'"xxxxxxxxx"', limits=limits)


def test_a_value_that_contains_itself_is_refused() -> None:
    cycle: list[Any] = []
    cycle += [cycle, cycle]
    with pytest.raises(CodecError, match="contain itself"):
        canonical(cycle)


def test_shared_items_cannot_blow_up_memory() -> None:
    value: list[Any] = ["x"]
    for _ in range(50):
        value = [value, value]
    with pytest.raises(CodecError, match="bytes"):
        canonical(value, limits=Limits(max_bytes=100_000))


@pytest.mark.parametrize("bad", [{"max_bytes": 0}, {"max_depth": 0}, {"max_depth": 201}])
def test_limits_that_make_no_sense_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(InvalidValue):
        Limits(**bad)


def test_digest_is_sha256() -> None:
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
