"""A task's arguments, given as plain JSON by people and programs that have no Python values."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.engine.definition import Bound, TaskDefinition, type_hints
from holdfast.model.restore import restore
from holdfast.model.task import JsonValue


def bind_plain(
    definition: TaskDefinition[..., Any], args: Sequence[JsonValue], kwargs: Mapping[str, JsonValue]
) -> Bound[Any]:
    """Return the task with these arguments, each as its parameter's annotation wants it. Raises InvalidValue."""
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
