"""Checks whether the arguments of a tool can be restored unchanged from their record.

A call may be made by another process than the one that read the model's answer. That process has only the bytes. So the
restored value must equal the value that was read, in every type and every field. Otherwise a person would approve one
call, and another one would be made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import datetime, time
from decimal import Decimal
from typing import Any, Final

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from holdfast.model.canonical import canonical
from holdfast.model.task import JsonValue

_SECRETS: Final = (SecretStr, SecretBytes, Secret)
_BY_NAME: Final = frozenset({"fields", "choices"})
"""Keys of a schema whose parts have names that the tool's author chose."""
_NO_SCHEMAS: Final = frozenset({"default", "metadata", "serialization"})
_OVERRIDES: Final = frozenset({"function-plain", "function-wrap"})


def is_same(one: Any, other: Any) -> bool:  # noqa: ANN401 - arguments of any kind
    """Return whether two values are the same in type and content. Values that cannot be compared are not the same."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, set | frozenset):
        return {(type(item), item) for item in one} == {(type(item), item) for item in other}
    mine, others = _parts(one), _parts(other)
    if mine is None or others is None:
        return _is_equal(one, other)
    is_alike = mine.keys() == others.keys() and (not isinstance(one, dict) or _is_equal(one, other))
    return is_alike and all(is_same(value, others[name]) for name, value in mine.items())


def _parts(value: Any) -> dict[Any, Any] | None:  # noqa: ANN401
    """Return the parts of a value; None if it has none."""
    if isinstance(value, BaseModel):
        # A tool may use all of it: fields, extra fields, private attributes.
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        return {"fields": fields, "extra": value.__pydantic_extra__, "private": value.__pydantic_private__}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    has_no_equality = getattr(type(value), "__eq__", None) is getattr(object, "__eq__", None)
    return vars(value) if has_no_equality and hasattr(value, "__dict__") else None


def _is_equal(one: Any, other: Any) -> bool:  # noqa: ANN401
    if isinstance(one, float | Decimal):
        return repr(one) == repr(other)  # 1.0 and 1.00 are equal but not the same, like 0.0 and -0.0
    try:
        equal = bool(one == other)
    except Exception:  # noqa: BLE001 - the code of another author
        return False
    return equal and (not isinstance(one, datetime | time) or one.utcoffset() == other.utcoffset())


def in_order(value: Any, plain: JsonValue) -> JsonValue:  # noqa: ANN401 - an argument, and its record
    """Return the record of a value with the items of every set sorted: their own order differs by process."""
    if isinstance(plain, list):
        if not isinstance(value, list | tuple | set | frozenset) or len(value) != len(plain):
            return plain
        items = [in_order(item, written) for item, written in zip(value, plain, strict=True)]
        return sorted(items, key=canonical) if isinstance(value, set | frozenset) else items
    if isinstance(plain, dict):
        members = _members(value)
        if isinstance(value, Mapping):
            members = dict(zip(plain, value.values(), strict=False)) if len(value) == len(plain) else {}
        return {key: in_order(members[key], item) if key in members else item for key, item in plain.items()}
    return plain


def _members(value: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the fields of a model or dataclass under the names of their record."""
    if isinstance(value, BaseModel):
        fields: Mapping[str, Any] = type(value).model_fields
    elif dataclasses.is_dataclass(value):
        own = {at.name: None for at in dataclasses.fields(value)}
        fields = own | dict(getattr(type(value), "__pydantic_fields__", {}))
    else:
        return {}
    return {getattr(field, "serialization_alias", None) or name: getattr(value, name) for name, field in fields.items()}


def never_comes_back(schema: Any) -> str | None:  # noqa: ANN401 - a schema of pydantic's core
    """Return what in the schema of a parameter is left out of the record or masked in it; None if nothing is."""
    for node in _nodes(schema):
        if node.get("serialization_exclude") is True:
            return "a field with exclude=True is not recorded"
        kind = node.get("cls")
        if node.get("type") == "is-instance" and isinstance(kind, type) and issubclass(kind, _SECRETS):
            return f"a {kind.__name__} is recorded as asterisks"
    return None


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """Yield the parts of a schema, except below a serializer of the tool's author, which may write anything."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, list | tuple):
            pending += node
        elif isinstance(node, dict):
            written = node.get("serialization")
            if isinstance(written, dict) and written.get("type") in _OVERRIDES:
                function = written.get("function")
                if not str(getattr(function, "__module__", "")).startswith("pydantic."):
                    continue
            yield node
            for name, part in node.items():
                if name in _BY_NAME and isinstance(part, dict):
                    pending += part.values()
                elif name not in _NO_SCHEMAS:
                    pending.append(part)
