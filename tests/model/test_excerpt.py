"""Excerpts and searches of a text, and the UTF-8 under both."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import InvalidValue
from holdfast.model.excerpt import excerpt, grep
from holdfast.model.line_search import LineSearch
from holdfast.model.utf8 import decode_anything, drop_cut_end, drop_cut_start, encode, is_text

NOTE = re.compile(r"\[\.\.\. (\d+) bytes left out \.\.\.\]")
# Characters of one to four bytes, a lone surrogate and line ends; nothing that a note is made of.
words = st.text(alphabet="ab é状🙂\ud800\n\r\u2028", min_size=1, max_size=12)
texts = words | st.builds(lambda word, count: word * count, words, st.integers(1, 100))
rooms = st.integers(64, 400)
shares = st.none() | st.integers(0, 400)


@given(texts, rooms, shares, shares)
def test_an_excerpt_is_never_too_large_and_says_what_is_missing(
    text: str, room: int, head: int | None, tail: int | None
) -> None:
    shown = excerpt(text, max_bytes=room, head=head, tail=tail)
    assert len(encode(shown)) <= room
    size = len(encode(text))
    if size <= room:
        assert shown == text
        return
    ((missing,), (first, last)) = NOTE.findall(shown)[:1], NOTE.split(shown)[::2]
    first, last = first.removesuffix("\n"), last.removeprefix("\n")
    assert text.startswith(first)
    assert text.endswith(last)
    assert len(encode(first)) + len(encode(last)) + int("".join(missing)) == size
    assert head is None or len(encode(first)) <= head
    assert tail is None or len(encode(last)) <= tail


def test_beginning_and_end_share_the_room() -> None:
    text = "".join(f"{number:04}\n" for number in range(1000))
    assert (
        excerpt(text, max_bytes=81)
        == "0000\n0001\n0002\n0003\n0004\n\n[... 4950 bytes left out ...]\n0995\n0996\n0997\n0998\n0999\n"
    )


def test_one_end_gets_what_the_other_does_not_want() -> None:
    text = "x" * 1000
    assert excerpt(text, max_bytes=100, tail=0) == f"{'x' * 69}\n[... 931 bytes left out ...]"
    assert excerpt(text, max_bytes=100, head=0) == f"[... 931 bytes left out ...]\n{'x' * 69}"
    assert excerpt(text, max_bytes=100, tail=9) == f"{'x' * 60}\n[... 931 bytes left out ...]\n{'x' * 9}"
    assert excerpt(text, max_bytes=100, head=9, tail=9) == f"{'x' * 9}\n[... 982 bytes left out ...]\n{'x' * 9}"


def test_room_for_nothing_is_refused() -> None:
    with pytest.raises(InvalidValue, match="lowest allowed is 64"):
        excerpt("x", max_bytes=63)
    with pytest.raises(InvalidValue, match="head is -1"):
        excerpt("x", max_bytes=64, head=-1)


LOG = "start\nread a\nERROR one\nread b\nread c\nread d\nerror two\nend"


def test_lines_that_contain_the_pattern_in_any_case() -> None:
    assert grep(LOG, "Error", max_bytes=500) == "3: ERROR one\n7: error two\n[2 of 8 lines contain the pattern]"


def test_lines_around_a_match() -> None:
    assert grep(LOG, "error", max_bytes=500, context=1).splitlines() == [
        "2- read a",
        "3: ERROR one",
        "4- read b",
        "--",
        "6- read d",
        "7: error two",
        "8- end",
        "[2 of 8 lines contain the pattern]",
    ]
    # Together where they touch, and none twice.
    assert [line[0] for line in grep(LOG, "error", max_bytes=500, context=3).splitlines()] == [*"12345678", "["]


def test_nothing_found() -> None:
    assert grep(LOG, "warning", max_bytes=500) == "[0 of 8 lines contain the pattern]"
    assert grep("", "x", max_bytes=500) == "[0 of 0 lines contain the pattern]"
    assert grep("x\n\n", "x", max_bytes=500) == "1: x\n[1 of 2 lines contain the pattern]"


def test_it_is_not_a_regular_expression() -> None:
    assert grep("a+\naa", "a+", max_bytes=500).startswith("1: a+\n[1 of 2")
    # As a regular expression this one would not end.
    assert grep("a" * 60 + "!", "(a+)+$", max_bytes=500) == "[0 of 1 lines contain the pattern]"


def test_when_there_is_no_more_room_it_says_where_it_stopped() -> None:
    text = "".join(f"match {number}\n" for number in range(100))
    *lines, note = grep(text, "match", max_bytes=256).splitlines()
    assert lines == [f"{number + 1}: match {number}" for number in range(len(lines))]
    assert len(lines) > 5
    left = len("".join(f"match {number}\n" for number in range(len(lines), 100)))
    assert note == f"[no room for more: stopped at line {len(lines) + 1}, {left} of {len(text)} bytes not searched]"


def test_of_a_long_line_the_part_around_the_match_is_shown() -> None:
    (shown, _) = grep("x" * 5000 + "NEEDLE" + "y" * 5000, "needle", max_bytes=4000).splitlines()
    assert re.fullmatch(r"1: \.\.\.x{100}NEEDLEy{194}\.\.\.", shown)


@pytest.mark.parametrize("at", [0, 65_000, 65_532, 65_536, 131_000, 200_000])
@pytest.mark.parametrize("filler", ["x", "é", "状"])
def test_a_line_without_an_end_is_searched_to_its_end_and_found_once(at: int, filler: str) -> None:
    size = len(filler.encode())
    line = filler * (at // size) + "NEEDLE" + filler * ((200_000 - at) // size)
    *found, note = grep(f"{line}\nsecond needle", "needle", max_bytes=4000).splitlines()
    assert ["NEEDLE" in shown for shown in found] == [True, False]
    assert note == "[2 of 2 lines contain the pattern]"


def test_a_line_without_an_end_is_one_line_of_context() -> None:
    endless = "x" * 200_000
    found = grep(f"needle\n{endless}\nneedle", "needle", max_bytes=4000, context=1).splitlines()
    assert [line[:2] for line in found] == ["1:", "2-", "3:", "[2"]
    found = grep(f"first\nsecond\n{endless}needle", "needle", max_bytes=4000, context=1).splitlines()
    assert [line[:2] for line in found] == ["2-", "3:", "[1"]


def test_a_match_that_does_not_fit_with_its_context_is_shown_alone() -> None:
    text = "\n".join([*["x" * 100] * 5, "needle", "z" * 100])
    assert grep(text, "needle", max_bytes=256, context=5).splitlines() == [
        "6: needle",
        f"7- {'z' * 28}...",
        "[1 of 7 lines contain the pattern]",
    ]


def test_a_long_line_is_not_held_in_memory() -> None:
    search = LineSearch("needle", max_bytes=4000)
    for _ in range(100):
        search.feed(b"x" * 100_000)
        assert len(search._parts._rest) <= 64 << 10
    search.feed(b"needle")
    assert search.finish(10_000_006).endswith("[1 of 1 lines contain the pattern]")


def test_windows_line_ends_are_not_shown() -> None:
    assert grep("a\r\nb\r\n", "b", max_bytes=500) == "2: b\n[1 of 2 lines contain the pattern]"


@pytest.mark.parametrize("pattern", ["", "x" * 201, "a\nb", "\0", "\ud800"])
def test_a_pattern_no_line_can_contain_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidValue, match="pattern"):
        grep("text", pattern, max_bytes=500)


@given(
    st.text(alphabet="ab é🙂\n\r", max_size=600),
    st.sampled_from(["a", "É", "b a"]),
    st.integers(256, 400),
    st.integers(0, 3),
)
def test_a_search_is_never_too_large_and_shows_only_lines_of_the_text(
    text: str, pattern: str, room: int, context: int
) -> None:
    *shown, note = grep(text, pattern, max_bytes=room, context=context).split("\n")
    assert len(encode("\n".join([*shown, note]))) <= room
    lines = text.split("\n")
    numbers = []
    for line in shown:
        if line == "--":
            continue
        number, mark, found = re.fullmatch(r"(\d+)([:-]) (.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
        numbers.append(int(number))
        original = lines[int(number) - 1]
        assert found.removeprefix("...").removesuffix("...") in original
        assert mark == ("-" if pattern.casefold() not in original.casefold() else ":")
    assert numbers == sorted(set(numbers))
    matching = [number for number, line in enumerate(lines, 1) if pattern.casefold() in line.casefold()]
    if note.startswith("[no room"):
        assert len(numbers) < len(matching) or context
    else:
        assert [number for number in numbers if number in matching] == matching


@given(st.binary(max_size=400), st.integers(1, 50), st.integers(0, 2))
def test_how_a_stream_is_cut_does_not_matter(data: bytes, step: int, context: int) -> None:
    def search(size: int) -> str:
        looking = LineSearch("a", max_bytes=300, context=context)
        for start in range(0, len(data), size):
            looking.feed(data[start : start + size])
        return looking.finish(len(data))

    assert search(step) == search(1000)


@given(st.text(alphabet="aé状🙂\ud800", max_size=8), st.integers(0, 32), st.integers(0, 32))
def test_a_cut_character_is_dropped_and_nothing_else(text: str, start: int, end: int) -> None:
    data = encode(text)
    kept = drop_cut_end(drop_cut_start(data[start:end]))
    bounds = {len(encode(text[:count])) for count in range(len(text) + 1)}
    inside = [bound for bound in bounds if start <= bound <= min(end, len(data))]
    expected = data[min(inside) : max(inside)] if inside else b""
    assert kept == expected or (not inside and len(kept) < 4)


@given(st.binary(max_size=100))
def test_anything_can_be_shown_in_no_more_room(data: bytes) -> None:
    shown = decode_anything(data)
    assert len(shown.encode()) <= len(data)
    assert "\0" not in shown


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", True),
        (b"plain\ttext\r\n", True),
        ("Größe: 5 µm 🙂".encode(), True),
        ("🙂🙂🙂".encode()[1:-1], True),
        (b"An old log with a latin-1 letter: Gr\xf6\xdfe", True),
        ("text".encode("utf-16"), False),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", False),
        (bytes(range(128, 256)), False),
    ],
)
def test_what_is_text(data: bytes, expected: bool) -> None:
    assert is_text(data) == expected
