"""Turn a Python value into JSON data plus tags, and back: the two halves of the typed codec.

``flatten`` keeps what JSON cannot express beside the data, by JSON pointer: tags (always restored) and typed places,
that is dataclasses, pydantic models, enums, named tuples (written as plain data, restored only by a type the caller
names). Any other type is rejected with its place in the value.
"""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import InvalidOperation
from enum import Enum
from pathlib import PurePath
from typing import Any, Final

from holdfast.model.canonical import write
from holdfast.model.errors import CodecError
from holdfast.model.limits import Limits, check_int, check_text, child_path, describe, refuse_depth
from holdfast.model.pieces import Pieces, finish
from holdfast.model.tags import READERS, read_tagged, write_leaf
from holdfast.model.task import JsonValue

# Written as text, restored only by a type: their constructors accept exactly what they print.
_PRINTED: Final = (
    PurePath,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
)

_TAGS_IN_A_PIECE: Final = 500


@dataclass(slots=True)
class Flat:
    """JSON data and, by JSON pointer, what JSON cannot express."""

    data: JsonValue
    tags: dict[str, str] = field(default_factory=dict)
    types: dict[str, object] = field(default_factory=dict)
    """What only an annotation can restore: the class, and for pydantic models also the private attributes."""
    paths: dict[str, str] = field(default_factory=dict)
    """The places of the entries of ``types``, for messages."""


def flatten(value: object, limits: Limits, name: str) -> Flat:
    """Return ``value`` as JSON data, tags and typed places; CodecError names the first thing that cannot be stored."""
    flat = Flat(None)
    flat.data = Flattener(limits, name).visit(value, "", name, 0, flat)
    return flat


class Flattener:
    """One walk over one value. Recursion is bounded by ``limits.max_depth``, work by ``limits.max_bytes``."""

    def __init__(self, limits: Limits, name: str) -> None:
        self._limits = limits
        self._name = name
        self._seen = 0

    def visit(self, value: Any, pointer: str, path: str, depth: int, flat: Flat) -> JsonValue:  # noqa: ANN401, PLR0911
        """Return it as JSON data, and note its tags and typed places in ``flat``."""
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            check_text(value, path)
            return value
        if kind is int:
            check_int(value, path)
            return value
        if (leaf := write_leaf(value, path)) is not None:
            flat.tags[pointer], wire = leaf
            return wire
        if kind is float:
            return value
        if kind is dict:
            return self._visit_dict(value, pointer, path, depth, flat)
        if kind is list or kind is tuple:
            if kind is tuple:
                flat.tags[pointer] = "tuple"
            return self._visit_items(value, pointer, path, depth, flat)
        if kind is set or kind is frozenset:
            flat.tags[pointer] = kind.__name__
            return self._visit_set(value, pointer, path, depth, flat)
        return self._visit_typed(value, pointer, path, depth, flat)

    def _visit_typed(self, value: Any, pointer: str, path: str, depth: int, flat: Flat) -> JsonValue:  # noqa: ANN401
        kind = type(value)
        flat.types[pointer] = kind
        flat.paths[pointer] = path
        if isinstance(value, Enum):
            return self.visit(value.value, pointer, path, depth, flat)
        if is_dataclass(kind):
            members = {spec.name: _attribute(value, spec.name, path) for spec in fields(kind)}
            return self._visit_dict(members, pointer, path, depth, flat)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            flat.tags[pointer] = "tuple"
            return self._visit_items(value, pointer, path, depth, flat)
        if isinstance(value, _PRINTED):
            return str(value)
        # A pydantic value cannot exist before pydantic is imported, so there is no need to import it here.
        pydantic = sys.modules.get("pydantic")
        if pydantic is not None and isinstance(value, pydantic.BaseModel):
            flat.types[pointer] = (kind, value.__pydantic_private__)
            if isinstance(value, pydantic.RootModel):
                self.enter(1, path, depth)
                return self.visit(value.root, pointer, path, depth + 1, flat)
            members = {name: _attribute(value, name, path) for name in kind.model_fields}
            return self._visit_dict(members | (value.model_extra or {}), pointer, path, depth, flat)
        raise CodecError(
            f"{describe(value)} cannot be stored; return plain data, a dataclass or a pydantic model", path=path
        )

    def _visit_items(self, value: Any, pointer: str, path: str, depth: int, flat: Flat) -> JsonValue:  # noqa: ANN401
        self.enter(len(value), path, depth)
        return [
            self.visit(item, f"{pointer}/{index}", f"{path}[{index}]", depth + 1, flat)
            for index, item in enumerate(value)
        ]

    def _visit_dict(self, value: dict[Any, Any], pointer: str, path: str, depth: int, flat: Flat) -> JsonValue:
        if any(type(key) is not str for key in value):
            return self._visit_map(value, pointer, path, depth, flat)
        self.enter(len(value), path, depth)
        data = {}
        for key, member in value.items():
            check_text(key, path)
            data[key] = self.visit(member, f"{pointer}/{escape(key)}", child_path(path, key), depth + 1, flat)
        return data

    def _visit_set(self, value: Any, pointer: str, path: str, depth: int, flat: Flat) -> JsonValue:  # noqa: ANN401
        self.enter(len(value), path, depth)
        items = [self._visit_apart(item, f"{path}{{{item!r:.60}}}", depth + 1) for item in value]
        items.sort(key=_order)
        return [_place(item, f"{pointer}/{index}", flat) for index, item in enumerate(items)]

    def _visit_map(self, value: dict[Any, Any], pointer: str, path: str, depth: int, flat: Flat) -> JsonValue:
        """Write a dict with keys that are not text as a list of pairs."""
        self.enter(len(value), path, depth + 1)
        flat.tags[pointer] = "map"
        pairs = [
            (
                self._visit_apart(key, f"{path}.keys(){{{key!r:.60}}}", depth + 2),
                self._visit_apart(member, child_path(path, key), depth + 2),
            )
            for key, member in value.items()
        ]
        pairs.sort(key=lambda pair: _order(pair[0]))
        return [
            [_place(key, f"{pointer}/{index}/0", flat), _place(member, f"{pointer}/{index}/1", flat)]
            for index, (key, member) in enumerate(pairs)
        ]

    def _visit_apart(self, value: object, path: str, depth: int) -> Flat:
        """Flatten a member whose position, and so its pointer, is known only after sorting."""
        flat = Flat(None)
        flat.data = self.visit(value, "", path, depth, flat)
        return flat

    def enter(self, members: int, path: str, depth: int) -> None:
        """Note that a container is entered; CodecError if it is too deep, or if the whole is too large."""
        if depth >= self._limits.max_depth:
            refuse_depth(self._limits, path)
        # Containers that share their items can be exponentially larger than they look.
        self._seen += members
        self._limits.check_size(self._seen, self._name)


def unflatten(data: JsonValue, tags: Any, name: str) -> object:  # noqa: ANN401 - tags from a store, of any shape
    """Put the tagged types back into ``data``, which is changed in place."""
    return finish(restore_tags(data, tags, name))


def restore_tags(data: JsonValue, tags: Any, name: str) -> Pieces[object]:  # noqa: ANN401 - tags from a store
    """Do what unflatten does, some tags at a time."""
    if type(tags) is not dict:
        raise CodecError("has tags that are not an object", path=name)
    root = [data]
    # The innermost first: a container is converted after everything in it.
    for done, pointer in enumerate(sorted(tags, key=lambda text: text.count("/"), reverse=True), start=1):
        if done % _TAGS_IN_A_PIECE == 0:
            yield _TAGS_IN_A_PIECE
        tag = tags[pointer]
        if type(tag) is not str or tag not in READERS:
            raise CodecError(f"the tag {tag!r} is unknown; it was written by a newer version", path=name)
        if pointer and pointer[0] != "/":
            raise CodecError(f"the tag place {pointer!r} is not a JSON pointer", path=name)
        holder: Any = root
        place: Any = 0
        try:
            for part in pointer.split("/")[1:]:
                holder = holder[place]
                place = int(part) if type(holder) is list else part.replace("~1", "/").replace("~0", "~")
            holder[place] = read_tagged(tag, holder[place])
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, InvalidOperation) as error:
            raise CodecError(f"the value stored at {pointer!r} is not a valid {tag}: {error}", path=name) from error
    return root[0]


def _attribute(value: object, name: str, path: str) -> object:
    try:
        return getattr(value, name)
    except AttributeError:
        raise CodecError("the field was never set; give it a value", path=child_path(path, name)) from None


def escape(key: str) -> str:
    """Return a key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


def _order(flat: Flat) -> tuple[bytes, list[tuple[str, str]]]:
    # Two members may have the same text, such as b"x" and "eA=="; then their tags decide.
    return write(flat.data), sorted(flat.tags.items())


def _place(part: Flat, pointer: str, flat: Flat) -> JsonValue:
    for name in ("tags", "types", "paths"):
        getattr(flat, name).update({pointer + inner: entry for inner, entry in getattr(part, name).items()})
    return part.data
