"""Schemas for models: every client sends all of them with every conversation, so they say nothing twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NULL = {"type": "null"}


def slim(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out that an optional parameter may be null, and is by default: whoever has nothing to say leaves it out."""
    properties = schema.get("properties", {})
    return {**schema, "properties": {name: _slim(one) for name, one in properties.items()}}


def _slim(schema: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in schema.items() if not (name == "default" and value is None)}
    others = [one for one in kept.get("anyOf", ()) if one != _NULL]
    if len(others) == 1 and _NULL in kept["anyOf"]:
        del kept["anyOf"]
        kept = {**others[0], **kept}
    return kept
