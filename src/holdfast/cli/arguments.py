"""A task's arguments, typed by people as JSON."""

from __future__ import annotations

import inspect
from typing import Any

from holdfast.cli.reading import as_bytes
from holdfast.engine.definition import Bound, TaskDefinition, type_hints
from holdfast.model.canonical import parse
from holdfast.model.errors import CodecError, InvalidValue
from holdfast.model.restore import restore

_EXAMPLE = """write an array such as --args '["billing", 3]', or an object of named arguments"""


def bind_json(definition: TaskDefinition[..., Any], text: str) -> Bound[Any]:
    """Return the task with the arguments that ``text`` holds, each as its parameter's annotation wants it."""
    args, kwargs = _read(text)
    definition.bind(*args, **kwargs)  # what the function does not take is refused here, in the engine's words
    hints = type_hints(definition.function)
    given = inspect.signature(definition.function).bind(None, *args, **kwargs)
    context, *parameters = given.arguments
    del context
    for name in parameters:
        value, annotation, what = given.arguments[name], hints.get(name, Any), f"argument {name!r}"
        match given.signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                typed: Any = tuple(restore(one, annotation, name=what) for one in value)
            case inspect.Parameter.VAR_KEYWORD:
                typed = {key: restore(one, annotation, name=f"argument {key!r}") for key, one in value.items()}
            case _:
                typed = restore(value, annotation, name=what)
        given.arguments[name] = typed
    return definition.bind(*given.args[1:], **given.kwargs)


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
