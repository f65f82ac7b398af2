"""What a server's tool takes: its JSON Schema, as the model is shown it and as arguments are checked against it.

The author of the server wrote it, so it is not trusted. It is cut to size for the model, and it is checked within
bounds: see validator.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from holdfast.agent.tool import BadArguments
from holdfast.model.canonical import canonical
from holdfast.model.errors import CodecError, InvalidValue
from holdfast.model.failure import storable
from holdfast.model.task import JsonValue

LONGEST_DESCRIPTION = 4_000
"""Characters of a server's description of a tool that a model is shown."""

LONGEST_REMARK = 1_000
"""The same for one parameter."""

MOST_SCHEMA_BYTES = 64 * 1024
_MOST_FAULTS = 5
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names that the server chose, not keywords."""

_REMARKS = frozenset({"description", "title", "$comment"})
_DATA = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are not schemas."""


class Form:
    """The parameters of one tool."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        """``tool`` is its name, for messages."""
        from holdfast.mcp.client.validator import TooDeep, TooMuchWork, Validator  # noqa: PLC0415 - jsonschema is an extra

        self._tool = tool
        self._out_of_work = TooMuchWork
        self.shown, size = shown(tool, schema)
        """For the model."""
        wrong: str | None = None
        try:
            self._validator = Validator(self.shown, size, draft=schema.get("$schema"))
            for fault in islice(self._validator.faults_of_schema(), 1):
                wrong = fault.message
        except (TooMuchWork, TooDeep):
            pass  # its mistakes show when it is used
        except Exception as error:  # noqa: BLE001 - whatever a schema makes of its validator
            wrong = repr(error)
        if wrong is not None:
            raise InvalidValue(
                f"the MCP tool {tool!r} describes its parameters wrongly ({storable(wrong, 200)}); "
                "leave it out with only="
            )

    def check(self, arguments: Mapping[str, JsonValue]) -> None:
        """Raise BadArguments, with a message that a model can act on."""
        faults: list[str] = []
        try:
            size = len(canonical(dict(arguments), name="arguments"))
            for fault in islice(self._validator.faults(arguments, size), _MOST_FAULTS):
                where = ".".join(map(str, fault.absolute_path)) or "arguments"
                faults.append(f"{where}: {storable(fault.message, 300)}")
        except self._out_of_work:
            pass  # the rest is for the server to check
        except Exception as error:  # noqa: BLE001 - whatever a schema makes of its validator
            # A reference to nowhere, or to itself: what the tool takes is not known, and must not be guessed.
            raise BadArguments(f"the arguments of {self._tool} cannot be checked: {error!r}") from None
        if faults:
            raise BadArguments(f"the arguments of {self._tool} are wrong: {'; '.join(faults)}")


def shown(tool: str, schema: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a schema as a model is shown it, and its size; refuse one that would fill the model's context."""
    cut = _cut({key: value for key, value in schema.items() if key != "$schema"})
    try:
        size = len(canonical(cut, name=f"the schema of {tool}"))
    except CodecError as error:
        raise InvalidValue(f"{error}; leave the tool out with only=") from None
    if size > MOST_SCHEMA_BYTES:
        raise InvalidValue(
            f"the schema of the MCP tool {tool!r} takes {size} bytes, more than {MOST_SCHEMA_BYTES}; "
            "leave the tool out with only="
        )
    return {"type": "object", "properties": {}} | cut, size


def _cut(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _cut_value(key, value) for key, value in schema.items()}


def _cut_value(key: str, value: Any) -> Any:  # noqa: ANN401 - JSON
    if key in _DATA:
        return value
    if key in _REMARKS and isinstance(value, str):
        return storable(value, LONGEST_REMARK)
    if key in _NAMED and isinstance(value, dict):
        return {name: _cut_value("", item) for name, item in value.items()}
    if isinstance(value, list):
        return [_cut_value("", item) for item in value]
    return _cut(value) if isinstance(value, dict) else value
