"""What a server's tool takes: its JSON Schema, as the model is shown it and as arguments are checked against it.

It was written by whoever wrote the server. It is cut to size for the model, and of what it asks to be checked, nothing
is followed that could reach out or never end: no reference to another document, no regular expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.agent.tool import BadArguments
from holdfast.model.canonical import canonical
from holdfast.model.errors import CodecError, InvalidValue
from holdfast.model.failure import storable
from holdfast.model.task import JsonValue

LONGEST_DESCRIPTION = 4_000
"""Characters of what a server says about a tool that a model is shown."""

LONGEST_REMARK = 1_000
"""... and about one parameter."""

MOST_SCHEMA_BYTES = 64 * 1024
_MOST_FAULTS = 5
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names that the server chose, and no keywords."""

_REMARKS = frozenset({"description", "title", "$comment"})
_PATTERNED = frozenset({"patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"})


class Form:
    """The parameters of one tool."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        """``tool`` is its name, for messages."""
        self._tool = tool
        self.shown = shown(tool, schema)
        """For the model."""
        self._validator = _validator(tool, checkable(dict(schema)))

    def check(self, arguments: Mapping[str, JsonValue]) -> None:
        """Raise BadArguments, in words a model can act on."""
        try:
            faults = [
                f"{'.'.join(map(str, fault.absolute_path)) or 'arguments'}: {storable(fault.message, 300)}"
                for _, fault in zip(range(_MOST_FAULTS), self._validator.iter_errors(arguments), strict=False)
            ]
        except Exception as error:  # noqa: BLE001 - whatever a schema makes of its validator
            # A reference to nowhere, or to itself: whatever the tool takes, the operator did not agree to a guess.
            raise BadArguments(f"the arguments of {self._tool} cannot be checked: {error!r}") from None
        if faults:
            raise BadArguments(f"the arguments of {self._tool} are wrong: {'; '.join(faults)}")


def shown(tool: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema as a model is shown it; refuse one that would fill the model's context."""
    cut: dict[str, Any] = _cut({key: value for key, value in schema.items() if key != "$schema"})
    try:
        size = len(canonical(cut, name=f"the schema of {tool}"))
    except CodecError as error:
        raise InvalidValue(f"{error}; leave the tool out with only=") from None
    if size > MOST_SCHEMA_BYTES:
        raise InvalidValue(
            f"the schema of the MCP tool {tool!r} takes {size} bytes, more than {MOST_SCHEMA_BYTES}; "
            "leave the tool out with only="
        )
    return {"type": "object", "properties": {}} | cut


def _cut(schema: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        return [_cut(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _cut(item) for name, item in value.items()}
        if key in _NAMED and isinstance(value, dict)
        else storable(value, LONGEST_REMARK)
        if key in _REMARKS and isinstance(value, str)
        else _cut(value)
        for key, value in schema.items()
    }


def checkable(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the part of a schema that is checked here: all but regular expressions, which can take for ever."""
    if isinstance(schema, list):
        return [checkable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = {"pattern", *(_PATTERNED if "patternProperties" in schema else ())}
    return {
        key: {name: checkable(item) for name, item in value.items()}
        if key in _NAMED and isinstance(value, dict)
        else value
        if key in {"const", "enum", "default", "examples"}
        else checkable(value)
        for key, value in schema.items()
        if key not in left_out
    }


def _validator(tool: str, schema: dict[str, Any]) -> Any:  # noqa: ANN401 - jsonschema has no types
    from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    draft = validator_for(schema, default=Draft202012Validator)
    try:
        draft.check_schema(schema)
    except SchemaError as error:
        raise InvalidValue(
            f"the MCP tool {tool!r} describes its parameters wrongly ({storable(error.message, 200)}); "
            "leave it out with only="
        ) from None
    # With an empty registry, for the usual one fetches what a reference names.
    return draft(schema, registry=Registry())
