"""Large values in pieces: the same bytes, values and errors as in one go, and no piece that is large."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import codec, large_values
from holdfast.model.canonical import parse, write_plain
from holdfast.model.errors import CodecError
from holdfast.model.flatten import Flattener
from holdfast.model.large_values import is_large, is_large_encoded, write_in_pieces
from holdfast.model.limits import DEFAULT_LIMITS, Limits
from holdfast.model.pieces import Pieces, finish
from holdfast.model.restore import restore
from holdfast.testing.contract._support import row
from tests.everyday import FULL
from tests.model.test_codec import TYPED, Point, plain_text, shape, values

T = TypeVar("T")

EXAMPLES = 200 if FULL else 60


@contextmanager
def tiny_pieces() -> Iterator[None]:
    """Divide everything, so that small values go the way of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_values, "PIECE", 3)
        patch.setattr(large_values, "PIECE_BYTES", 12)
        patch.setattr(large_values, "_FARTHEST", 48)
        patch.setattr(large_values, "_AT_ONCE", 4)
        yield


def outcome(work: Callable[[], T]) -> T | str:
    """Return the result, or the words of the CodecError."""
    try:
        return work()
    except CodecError as error:
        return f"CodecError: {error}"


def same_both_ways(value: object, as_type: object) -> None:
    at_once = outcome(lambda: codec.round_trip(value, as_type))
    with tiny_pieces():
        in_pieces = outcome(lambda: finish(large_values.round_trip(value, as_type)))
    if isinstance(at_once, str) or isinstance(in_pieces, str):
        assert in_pieces == at_once
        return
    assert in_pieces[0] == at_once[0]
    if as_type is Any:
        assert shape(in_pieces[1]) == shape(at_once[1])
    else:
        assert in_pieces[1] == at_once[1]
        assert type(in_pieces[1]) is type(at_once[1])


@given(values | st.text(max_size=3) | st.lists(st.text(max_size=3)))
@settings(max_examples=EXAMPLES, deadline=None)
def test_untyped_values_are_the_same(value: object) -> None:
    same_both_ways(value, Any)


def test_typed_values_are_the_same() -> None:
    for as_type, strategy in TYPED:
        with row(str(as_type)):
            check_type(as_type, strategy)


def check_type(as_type: object, strategy: st.SearchStrategy[object]) -> None:
    @given(strategy)
    @settings(max_examples=EXAMPLES // 6, deadline=None)
    def check(value: object) -> None:
        same_both_ways(value, as_type)

    check()


REFUSED: dict[str, tuple[object, object]] = {
    "an object in a list": ([1, 2, 3, [4, 5, object()]], Any),
    "a key of an object": ({"a": [1, 2, 3, 4], "b": {"c": object()}}, Any),
    "another type": ([Point(1, 2)] * 9, list[str]),
    "another type deeper": ({"a": [Point(1, 2)] * 9}, dict[str, list[str]]),
    "one of a list": ([*[Point(1.0, 2.0)] * 9, "x"], list[Point]),
    "too deep": (
        reduce(lambda inner, _: [inner, 1, 2, 3, 4], range(80), list[object]([0] * 9)),
        Any,
    ),
}


def test_what_is_refused_is_refused_in_the_same_words() -> None:
    for name, (value, as_type) in REFUSED.items():
        with row(name):
            same_both_ways(value, as_type)


numbers = st.sampled_from(["1", "-0", "1.50", "1e300", "1E+2", "1e999", "0.1"])
texts = st.sampled_from(['"a"', '"},{"', '"],["', '"\\"', '","', '"\\ud800"', '"\\u00e9"', '"é"', '"a,b"'])
json_texts = st.recursive(
    numbers | texts | st.sampled_from(["true", "null", "NaN"]),
    lambda inner: (
        st.lists(inner, max_size=6).map(lambda some: "[" + ",".join(some) + "]")
        | st.lists(inner, max_size=6).map(lambda some: "[" + " , ".join(some) + " ]")
        | st.lists(st.tuples(texts, inner), max_size=6).map(
            lambda some: "{" + ",".join(f"{key}:{member}" for key, member in some) + "}"
        )
    ),
    max_leaves=30,
)


@given(
    json_texts, st.sampled_from(['{"data":%s,"schema":1}', '{"schema":1,"data":%s}', "%s", '{"data":%s,"schema":1}}'])
)
@settings(max_examples=EXAMPLES * 3, deadline=None)
def test_stored_bytes_of_any_spelling_are_read_the_same(text: str, form: str) -> None:
    data = (form % text).encode()
    at_once = outcome(lambda: codec.decode(data))
    with tiny_pieces():
        in_pieces = outcome(lambda: finish(large_values.decode(data)))
    assert repr(in_pieces) == repr(at_once)


@given(
    st.recursive(
        st.integers() | plain_text | st.floats(), lambda inner: st.lists(inner) | st.dictionaries(plain_text, inner)
    )
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_plain_data_is_written_the_same(value: object) -> None:
    with tiny_pieces():
        assert finish(write_in_pieces(value, DEFAULT_LIMITS)) == write_plain(value, DEFAULT_LIMITS)


def test_no_piece_is_large() -> None:
    """Counted from outside: how many items are encoded or decoded between two breaks."""
    when = datetime(2026, 1, 1, tzinfo=UTC)
    rows = 20_000
    cases: dict[str, tuple[object, object]] = {
        "dicts": ([{"id": number, "name": f"row {number}"} for number in range(rows)], Any),
        "in a dict": ({"rows": [{"id": number, "tags": [[1], [2]]} for number in range(rows)], "total": rows}, Any),
        "members": ({f"key {number}": [number] for number in range(rows)}, Any),
        "lists of lists": ([[[number, [number]] for _ in range(100)] for number in range(200)], Any),
        "times": ([(number, when) for number in range(rows)], Any),
        "typed": ([Point(number, 1.0) for number in range(rows)], list[Point]),
    }
    for name, (value, as_type) in cases.items():
        with row(name), pytest.MonkeyPatch.context() as patch:
            most = Most()
            patch.setattr(large_values, "write_plain", most.counting(write_plain, items_in))
            patch.setattr(large_values, "parse", most.counting(parse, lambda data: data.count(b",")))
            patch.setattr(large_values, "restore", most.counting(restore, items_in))
            patch.setattr(Flattener, "visit", most.counting_visits(Flattener.visit))
            data, back = most.drive(large_values.round_trip(value, as_type))
            assert back == value
            assert is_large(value)
            assert is_large_encoded(data)
            assert most.total > rows
            assert most.at_once <= 3 * large_values.PIECE, name


def test_small_values_are_not_large() -> None:
    for value in (1, "x" * 1_000_000, [1] * 100, {"a": {"b": [1, 2]}}, Point(1, 2), None, object(), b"x" * 100_000):
        assert not is_large(value)
    again: list[object] = []
    again.append(again)
    assert is_large(again)  # one that contains itself is refused on the way of large values
    with pytest.raises(CodecError, match="nested more than"):
        finish(large_values.round_trip(again))


def test_what_shares_its_items_is_refused_before_it_is_written() -> None:
    value: Any = [1, 2]
    for _ in range(40):
        value = [value, value]
    with pytest.raises(CodecError, match="bytes or more"):
        finish(large_values.round_trip(value, limits=Limits(max_bytes=100_000)))


def items_in(value: Any) -> int:  # noqa: ANN401
    if isinstance(value, dict):
        return sum(1 + items_in(member) for member in value.values())
    if isinstance(value, list | tuple):
        return sum(1 + items_in(member) for member in value)
    return 0


class Most:
    """Counts the items that are worked on between two breaks of a work in pieces."""

    def __init__(self) -> None:
        self.at_once = self.total = self._now = self._deep = 0

    def drive(self, work: Pieces[T]) -> T:
        while True:
            self._now = 0
            try:
                next(work)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                self.at_once = max(self.at_once, self._now)

    def counting(self, function: Callable[..., Any], size: Callable[[Any], int]) -> Callable[..., Any]:
        def counted(value: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
            self._add(size(value))
            return function(value, *args, **options)

        return counted

    def counting_visits(self, visit: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:  # noqa: ANN401
            self._add(1)
            return visit(*args)

        return counted

    def _add(self, items: int) -> None:
        self._now += items
        self.total += items
