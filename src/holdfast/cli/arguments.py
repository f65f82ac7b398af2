"""A task's arguments, typed by people as JSON."""

from __future__ import annotations

from typing import Any

from holdfast import TaskDefinition
from holdfast.cli.json_input import as_bytes
from holdfast.model.canonical import parse
from holdfast.model.errors import CodecError, InvalidValue
from holdfast.service.service import Bound

_EXAMPLE = """write an array such as --args '["billing", 3]', or an object of named arguments"""


def bind_json(definition: TaskDefinition[..., Any], text: str) -> Bound[Any]:
    """Return the task with the arguments that ``text`` holds, each as its parameter's annotation wants it."""
    args, kwargs = _read(text)
    return definition.bind(*args, **kwargs)


def _read(text: str) -> tuple[list[Any], dict[str, Any]]:
    try:
        data = parse(as_bytes(text), name="--args")
    except CodecError as error:
        raise InvalidValue(f"{error}; {_EXAMPLE}") from None
    match data:
        case list():
            return data, {}
        case dict():
            return [], data
    raise InvalidValue(f"--args is neither an array nor an object; {_EXAMPLE}")
