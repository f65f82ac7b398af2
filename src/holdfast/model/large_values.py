"""Large values: encoded and decoded in pieces, so that the caller can let other code run between two pieces.

Each function here is a generator. It yields after each piece how many items that piece had, and returns what the
function of the same name in ``codec`` returns: the same bytes, the same values, the same errors. A piece is encoded in
one go, so code that changes a value meanwhile can mix old and new pieces, but never writes what cannot be restored.

Not divided: one long text, one set, one dict whose keys are not text, and what pydantic validates as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, get_origin

import msgspec

from holdfast.model import codec
from holdfast.model.canonical import parse, write, write_plain
from holdfast.model.errors import CodecError
from holdfast.model.flatten import Flat, Flattener, escape, restore_tags
from holdfast.model.limits import DEEPEST, DEFAULT_LIMITS, Limits, check_text, child_path
from holdfast.model.pieces import Pieces
from holdfast.model.restore import restore
from holdfast.model.task import JsonValue

PIECE: Final = 2_000
"""Items. To encode or decode one takes up to a few microseconds."""

PIECE_BYTES: Final = 16_000
"""Bytes of JSON that are read in one go: about as much work as a piece of items."""

_TEXT_LIKE_AN_ITEM: Final = 4_000
"""Characters."""

_AT_ONCE: Final = 256
"""Members of a container that are weighed together."""

_GUESSES: Final = 8
"""Places at which a list or an object is tried to be cut, before its members are looked for one by one."""

_FARTHEST: Final = 4 * PIECE_BYTES
"""Bytes after which no place is tried any more."""

_OPENING, _CLOSING = frozenset({b"[", b"{"}), frozenset({b"]", b"}"})

_LEAVES: Final = frozenset({str, bytes, int, float, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list, tuple, set, frozenset})

_split_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_split_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def is_large(value: object) -> bool:
    """Return whether a value has more items than a piece; looks at no more than those."""
    kind = type(value)
    return kind not in _LEAVES and _weigh([value], PIECE) >= PIECE


def is_large_encoded(data: bytes) -> bool:
    """Return whether stored bytes hold more items than a piece."""
    return len(data) > PIECE_BYTES and data.count(b",") + data.count(b"[") + data.count(b"{") > PIECE


def _weigh(level: list[Any], most: int) -> int:
    """Count the items in ``level`` and inside them, up to ``most``."""
    seen = 0
    while level:
        seen += len(level)
        deeper: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str or kind is bytes:
                seen += len(item) // _TEXT_LIKE_AN_ITEM
            elif kind not in _LEAVES:
                members = _members(item)
                if len(members) + seen >= most:
                    return most
                deeper += members
        if seen + len(deeper) >= most:
            return most
        level = deeper
    return seen


def _members(item: Any) -> Any:  # noqa: ANN401 - anything
    """Return what an object consists of, as far as that is cheap to know."""
    kind = type(item)
    if kind is dict:
        return item.values()
    if kind in _CONTAINERS:
        return item
    if is_dataclass(kind):
        return [getattr(item, one.name, None) for one in fields(kind)]
    if isinstance(item, tuple):
        return item
    members = getattr(item, "__dict__", None)
    return members.values() if type(members) is dict else ()


# Encoding


def round_trip(
    value: object, as_type: object = Any, *, limits: Limits = DEFAULT_LIMITS, name: str = "value"
) -> Pieces[tuple[bytes, Any]]:
    """Return the bytes to store and the value that a replay will see: codec.round_trip."""
    flat = None
    data = yield from write_in_pieces(value, limits)
    if data is not None:
        data = codec.untagged(data)
    else:
        flat = yield from _flatten(value, limits, name)
        envelope = codec.envelope_of(flat)
        data = yield from write_in_pieces(envelope, replace(limits, max_depth=min(limits.max_depth + 1, DEEPEST)))
        data = write(envelope) if data is None else data
    limits.check_size(len(data), name)
    restored = yield from decode(data, as_type, limits=limits, name=name)
    if flat is not None and flat.types and as_type is not codec.UNCHECKED:
        again = yield from _flatten(restored, limits, name)
        yield from _check_same(flat, again, name)
    return data, restored


def write_in_pieces(value: object, limits: Limits) -> Pieces[bytes | None]:
    """Return the canonical bytes if the value is simple plain data; None means "check it in full": see write_plain."""
    return _Writer(limits).write(value, 0)


class _Writer:
    """Writes plain data. Containers that share their items can be exponentially larger than they look."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._room = limits.max_bytes

    def write(self, value: Any, depth: int) -> Pieces[bytes | None]:  # noqa: ANN401 - any value
        """Write a value inside ``depth`` containers; None if it is not simple."""
        kind = type(value)
        if kind is not dict and kind is not list:
            return write_plain(value, self._limits)
        if depth == self._limits.max_depth:
            return None
        below = replace(self._limits, max_depth=self._limits.max_depth - depth)
        members = _sorted_members(value) if kind is dict else list(value)
        if members is None:
            return None
        parts: list[bytes] = []
        for group in _groups(members, _second if kind is dict else None):
            if group.is_heavy:
                part = yield from self._write_member(group.members[0], depth + 1, is_object=kind is dict)
            else:
                self._room -= group.weight
                part = write_plain(dict(group.members) if kind is dict else group.members, below)
                part = None if part is None else part[1:-1]
                yield group.weight
            if part is None or self._room < 0:
                return None
            parts.append(part)
        body = b",".join(parts)
        return b"{" + body + b"}" if kind is dict else b"[" + body + b"]"

    def _write_member(self, member: Any, depth: int, *, is_object: bool) -> Pieces[bytes | None]:  # noqa: ANN401
        if not is_object:
            return (yield from self.write(member, depth))
        key = write_plain(member[0], self._limits)
        written = yield from self.write(member[1], depth)
        return None if key is None or written is None else key + b":" + written


def _sorted_members(value: Any) -> list[tuple[str, Any]] | None:  # noqa: ANN401 - a dict
    """Return the members of an object in the order in which they are written; None for keys that are not text."""
    members = dict(value)  # a copy: the value may be changed between two pieces
    if members and set(map(type, members)) != {str}:
        return None
    return [(key, members[key]) for key in sorted(members)]


class _Group:
    """Members of a container that are encoded in one go; or one that has to be divided itself."""

    __slots__ = ("is_heavy", "members", "weight")

    def __init__(self, members: list[Any], weight: int, *, is_heavy: bool = False) -> None:
        self.members, self.weight, self.is_heavy = members, weight, is_heavy


def _groups(members: list[Any], value_of: Callable[[Any], Any] | None) -> Iterator[_Group]:
    """Divide members into groups of about a piece."""
    ready: list[Any] = []
    weight, at, count = 0, 0, _AT_ONCE
    while at < len(members):
        some = members[at : at + count]
        weighs = _weigh(some if value_of is None else list(map(value_of, some)), PIECE)
        if weighs >= PIECE and len(some) > 1:
            count = len(some) // 2
            continue
        at += len(some)
        if weighs >= PIECE and type(some[0] if value_of is None else value_of(some[0])) not in _LEAVES:
            if ready:
                yield _Group(ready, weight)
            yield _Group(some, weighs, is_heavy=True)
            ready, weight = [], 0
        else:
            ready += some
            weight += weighs
            if weight >= PIECE // 2:
                yield _Group(ready, weight)
                ready, weight = [], 0
        count = min(count * 2, _AT_ONCE)
    if ready or not members:
        yield _Group(ready, weight)


def _flatten(value: object, limits: Limits, name: str) -> Pieces[Flat]:
    walk = _Flattening(limits, name)
    walk.flat.data = yield from walk.visit(value, "", name, 0)
    return walk.flat


class _Flattening:
    """One walk over one value: see Flattener."""

    def __init__(self, limits: Limits, name: str) -> None:
        self.flat = Flat(None)
        self._small = Flattener(limits, name)

    def visit(self, value: Any, pointer: str, path: str, depth: int) -> Pieces[JsonValue]:  # noqa: ANN401
        """Go member by member where a list, a tuple or a dict is large; the rest is flattened as it is always."""
        kind = type(value)
        is_object = kind is dict and set(map(type, value)) <= {str}
        if not (is_object or kind is list or kind is tuple):
            return self._small.visit(value, pointer, path, depth, self.flat)
        self._small.enter(len(value), path, depth)
        if kind is tuple:
            self.flat.tags[pointer] = "tuple"
        data: dict[Any, JsonValue] = {}
        for group in _groups(list(value.items() if is_object else enumerate(value)), _second):
            for key, member in group.members:
                if is_object:
                    check_text(key, path)
                place = child_path(path, key) if is_object else f"{path}[{key}]"
                below = f"{pointer}/{escape(key) if is_object else key}"
                if group.is_heavy:
                    data[key] = yield from self.visit(member, below, place, depth + 1)
                else:
                    data[key] = self._small.visit(member, below, place, depth + 1, self.flat)
            yield group.weight
        return data if is_object else list(data.values())


def _second(pair: tuple[Any, Any]) -> Any:  # noqa: ANN401
    return pair[1]


def _check_same(flat: Flat, again: Flat, name: str) -> Pieces[None]:
    for number, (pointer, kind) in enumerate(flat.types.items(), start=1):
        if again.types.get(pointer) != kind:
            break
        if number % PIECE == 0:
            yield PIECE
    else:
        if (yield from _is_same(flat.data, again.data)) and again.types == flat.types and again.tags == flat.tags:
            return
    codec.check_same(flat, again, name)  # it gives the reason


def _is_same(one: Any, other: Any) -> Pieces[bool]:  # noqa: ANN401 - JSON data
    if type(one) is not type(other) or type(one) not in _CONTAINERS or len(one) != len(other):
        return codec.is_same(one, other)
    pairs = [(one[key], other.get(key)) for key in one] if type(one) is dict else list(zip(one, other, strict=True))
    if type(one) is dict and one.keys() != other.keys():
        return False
    for group in _groups(pairs, lambda pair: pair[0]):
        for first, second in group.members:
            if not ((yield from _is_same(first, second)) if group.is_heavy else codec.is_same(first, second)):
                return False
        yield group.weight
    return True


# Decoding


def decode(data: bytes, as_type: object = Any, *, limits: Limits = DEFAULT_LIMITS, name: str = "value") -> Pieces[Any]:
    """Return the value that was encoded to ``data``: codec.decode."""
    if len(data) > limits.max_bytes:
        limits.check_size(len(data), name)
    middle = codec.middle_of(data)
    if middle is not None:
        try:
            return (yield from _Reader(limits, name).read(middle, limits.max_depth))
        except CodecError:
            pass  # not the untagged form; read the whole envelope
    try:
        envelope = yield from _Reader(limits, name).read(data, limits.max_depth + 1)
    except CodecError:
        envelope = parse(data, limits=limits, name=name, wrapping=1)  # for an error with the right place
    known = codec.check_envelope(envelope, name)
    value = yield from restore_tags(known["data"], known.get("tags", {}), name)
    if known.get("typed") is True and as_type is not Any:
        return (yield from _restore(value, as_type, name))
    return value


def _restore(value: object, as_type: object, name: str) -> Pieces[Any]:
    """Restore a list of typed values some at a time; anything else as a whole."""
    if get_origin(as_type) is not list or type(value) is not list:
        return restore(value, as_type, name=name)
    restored: list[Any] = []
    for group in _groups(value, None):
        try:
            restored += restore(group.members, as_type, name=name)
        except CodecError:
            return restore(value, as_type, name=name)  # for an error with the right place
        yield group.weight
    return restored


class _Reader:
    """Reads JSON: what canonical.parse reads."""

    def __init__(self, limits: Limits, name: str) -> None:
        self._limits, self._name = limits, name

    def read(self, data: bytes, depth: int) -> Pieces[JsonValue]:
        """Read a value that may have ``depth`` levels."""
        opening = data[:1]
        if len(data) <= PIECE_BYTES or opening not in _OPENING:
            yield 1 + len(data) * PIECE // PIECE_BYTES
            return self._parse(data, depth)
        items: list[Any] = []
        members: dict[str, Any] = {}
        at, end = 1, len(data) - 1
        while at < end:
            found = self._cut(data, at, depth)
            if found is None:  # its members are large, too
                rest, at = (yield from self._read_members(opening + data[at:], depth)), end
            else:
                rest, at = found
                yield PIECE
            if isinstance(rest, list):
                items += rest
            elif isinstance(rest, dict):
                if not members.keys().isdisjoint(rest):
                    return self._parse(data, depth)  # a key is there twice: the strict reader says which
                members.update(rest)
        return items if opening == b"[" else members

    def _parse(self, data: bytes, depth: int) -> JsonValue:
        return parse(data, limits=self._limits, name=self._name, wrapping=depth - self._limits.max_depth)

    def _cut(self, data: bytes, at: int, depth: int) -> tuple[JsonValue, int] | None:
        """Read about a piece of members from ``at`` on. Return them, and where the next ones begin.

        The place of the cut is guessed. What can be read up to there has all of its brackets and quotes, so a wrong
        place does not pass for a right one.
        """
        start, end = at + PIECE_BYTES, len(data) - 1
        for place in [end] if start >= end else _places(data, start):
            piece = data[:1] + data[at:place] + data[end:]
            if len(piece) > _FARTHEST:
                return None
            if not _is_balanced(piece):
                continue
            try:
                return self._parse(piece, depth), place + 1
            except CodecError:
                continue
        return None

    def _read_members(self, data: bytes, depth: int) -> Pieces[JsonValue]:
        """Read a list or an object with large members, member by member."""
        is_object = data[:1] == b"{"
        try:
            members: Any = _split_object(data) if is_object else dict(enumerate(_split_list(data)))
        except (ValueError, RecursionError):
            return self._parse(data, depth)  # the strict reader gives the reason, or accepts it
        if is_object and data != b"{" + b",".join(write(key) + b":" + raw for key, raw in members.items()) + b"}":
            return self._parse(data, depth)  # not as Holdfast writes it: perhaps a key is there twice
        yield len(members)
        for key, raw in members.items():
            members[key] = yield from self.read(bytes(raw), depth - 1)
        return members if is_object else list(members.values())


def _is_balanced(piece: bytes) -> bool:
    """Return whether it may be one value. Brackets in texts count, too: then the members are looked for one by one."""
    return piece.count(b"[") == piece.count(b"]") and piece.count(b"{") == piece.count(b"}")


def _places(data: bytes, start: int) -> Iterator[int]:
    """Return the commas after ``start`` that may divide two members: those between two like the last one, first."""
    quote, end = (b'"' if data[:1] == b"{" else b""), len(data) - 1
    last = data[end - 1 : end]  # members of one container are mostly of one kind
    separators = [last + b"," + quote, b"," + quote] if last in _CLOSING else [b"," + quote]
    for separator in separators:
        place = start
        for _ in range(_GUESSES):
            place = data.find(separator, place, end)
            if place < 0:
                break
            yield place + separator.index(b",")
            place += 1
