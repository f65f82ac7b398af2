"""The arguments of a tool: read once from the model's text, recorded, and restored from exactly that record.

    text of the model --read--> plain data, in the journal --restore--> what the function takes

A person approves the plain data, and ``restore`` makes the call from it, in any process and any version of the code. So
``read`` refuses arguments that could not be restored unchanged, and ``restore`` refuses to fill in defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError

from holdfast.agent.round_trip import in_order, is_same, never_comes_back
from holdfast.agent.tool_context import ToolContext
from holdfast.model.canonical import canonical
from holdfast.model.errors import CodecError, InvalidValue
from holdfast.model.failure import storable
from holdfast.model.task import JsonValue

_MOST_FAULTS: Final = 5
"""The most that one error lists: a model corrects a few things at a time, and could send thousands."""

_LONGEST_REASON: Final = 500
_OURS: Final = frozenset({"effect_id"})
_CONFIG: Final = ConfigDict(extra="forbid", ser_json_inf_nan="constants", validate_default=True)
"""Defaults are read like arguments, because they are recorded like arguments."""
_NAMELESS: Final = frozenset(
    {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY}
)


class Arguments:
    """The parameters of a tool. Every method raises InvalidValue with a message for the model."""

    def __init__(
        self,
        tool: str,
        parameters: Mapping[str, inspect.Parameter],
        hints: Mapping[str, Any],
        meanings: Mapping[str, str],
    ) -> None:
        """Make it from a function's signature; ``meanings`` are the parameters' descriptions in its docstring."""
        self._tool = tool
        self._model, self.schema = _make_model(tool, parameters, hints, meanings)
        self._fields = {name: field.alias or name for name, field in self._model.model_fields.items()}
        self.names = tuple(self._fields.values())

    def read(self, text: str) -> dict[str, JsonValue]:
        """Return the model's arguments, and the defaults of the missing ones, as plain data."""
        try:
            chosen = self._model.model_validate_json(text.strip() or "{}")
            _settle(chosen)
        except ValidationError as error:
            raise InvalidValue(f"the arguments of {self._tool} are wrong: {_explain(error)}") from None
        except Exception as error:  # a validator may raise anything
            raise InvalidValue(f"the arguments of {self._tool} cannot be read: {_reason(error)}") from error
        plain = self._write(chosen)
        self._check_comes_back(chosen, plain)
        return plain

    def restore(self, plain: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Convert recorded arguments to what the function takes, in its order."""
        unknown = [f"it does not take {name!r}" for name in plain if name not in self.names]
        missing = [f"it also takes {name!r}" for name in self.names if name not in plain]
        if unknown or missing:
            raise self._does_not_fit("; ".join((*unknown, *missing)))
        body = canonical(dict(plain), name="arguments")
        try:
            chosen = self._round_trip(body)
            lazy = _settle(chosen)
            again = self._write(chosen)
        except ValidationError as error:
            raise self._does_not_fit(_explain(error)) from None
        except Exception as error:  # a validator may raise anything
            raise self._does_not_fit(_reason(error)) from error
        if (other := _differing(plain, again)) is not None:
            raise self._does_not_fit(f"it would be called with another value of {other!r}")
        values = {name: getattr(chosen, name) for name in self._fields}
        return {
            parameter: iter(values[name]) if name in lazy else values[name] for name, parameter in self._fields.items()
        }

    def _round_trip(self, body: bytes) -> BaseModel:
        # Also by name: a pydantic model may read a field under one name and write it under another.
        return self._model.model_validate_json(body, by_alias=True, by_name=True)

    def _write(self, chosen: BaseModel) -> dict[str, JsonValue]:
        """Return arguments as plain data, the same in every process."""
        plain: dict[str, JsonValue] = {}
        for name, parameter in self._fields.items():
            try:
                dumped = chosen.model_dump(mode="json", by_alias=True, round_trip=True, include={name}, warnings=False)
            except Exception as error:  # a serializer may raise anything
                raise self._fails_round_trip(parameter, _reason(error)) from error
            plain[parameter] = in_order(getattr(chosen, name), dumped[parameter])
        try:
            canonical(plain, name="arguments")
        except CodecError as error:
            raise InvalidValue(f"the arguments of {self._tool} are wrong: {error}") from None
        return plain

    def _check_comes_back(self, chosen: BaseModel, plain: dict[str, JsonValue]) -> None:
        try:
            again = self._round_trip(canonical(plain))
            _settle(again)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            raise self._fails_round_trip(str(next(iter(fault["loc"]), "")), fault["msg"]) from None
        except Exception as error:  # a validator may raise anything
            raise self._fails_round_trip("", _reason(error)) from error
        for name, parameter in self._fields.items():
            if not is_same(getattr(chosen, name), getattr(again, name)):
                raise self._fails_round_trip(parameter, "it is restored as another value")
        if (other := _differing(plain, self._write(again))) is not None:
            raise self._fails_round_trip(other, "it is written in another way each time")

    def _fails_round_trip(self, parameter: str, why: str) -> InvalidValue:
        which = f"its parameter {parameter!r}" if parameter in self.names else "one of its parameters"
        return InvalidValue(
            f"the tool {self._tool} cannot be called with these arguments: {which} cannot be restored unchanged from "
            f"its record ({why}). The tool has to be changed; do not call it like this again"
        )

    def _does_not_fit(self, why: str) -> InvalidValue:
        return InvalidValue(
            f"the tool {self._tool} no longer takes the arguments that were recorded for this call: {why}. The tool "
            "was changed since then, or something that it checks them against"
        )


def _settle(chosen: BaseModel) -> set[str]:
    """Read all lazy values, such as an Iterable: only then are their items checked. Return the names of the fields."""
    lazy = {name for name in type(chosen).model_fields if isinstance(getattr(chosen, name), Iterator)}
    for name in lazy:
        setattr(chosen, name, list(getattr(chosen, name)))
    return lazy


def _differing(plain: Mapping[str, JsonValue], again: Mapping[str, JsonValue]) -> str | None:
    """Return the first parameter that is written differently; None if there is none."""
    return next((name for name, value in again.items() if canonical(value) != canonical(plain[name])), None)


def _reason(error: Exception) -> str:
    return storable(f"{type(error).__name__}: {error}", _LONGEST_REASON)


def _explain(error: ValidationError) -> str:
    """Return what is wrong, in words that a model can act on."""
    faults = [
        f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False)
    ]
    more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
    return f"{'; '.join(faults[:_MOST_FAULTS])}{more}"


def _make_model(
    name: str, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], meanings: Mapping[str, str]
) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return the pydantic model that reads the arguments, and their JSON Schema."""
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(parameters.values()):
        if parameter.name in _OURS or hints.get(parameter.name) is ToolContext:
            continue
        if parameter.kind in _NAMELESS:
            raise InvalidValue(f"tool {name!r} takes {parameter}; a model needs each parameter by name")
        hint = hints.get(parameter.name, Any)
        meaning = FieldInfo.from_annotation(hint).description or meanings.get(parameter.name)
        default: Any = ...
        if parameter.default is not inspect.Parameter.empty:
            default, hint = parameter.default, _with_default(name, parameter, hint)
        # Under an alias, because a field may not have every name that a parameter may: "copy", "_path", "model_name".
        _check_is_kept(name, parameter.name, hint)
        fields[f"parameter_{number}"] = (hint, Field(default, alias=parameter.name, description=meaning))
    try:
        form = create_model(name, __config__=_CONFIG, **fields)
        return form, _without_titles(form.model_json_schema())
    except (PydanticUserError, TypeError, NameError) as error:
        raise InvalidValue(
            f"tool {name!r} has a parameter without a possible JSON Schema: {error}. Annotate it with plain data "
            "(str, int, list, a dataclass, a pydantic model)"
        ) from error


def _check_is_kept(tool: str, parameter: str, hint: Any) -> None:  # noqa: ANN401 - an annotation
    """Refuse a parameter with a part that is never recorded."""
    try:
        why = never_comes_back(TypeAdapter(hint).core_schema)
    except (PydanticUserError, TypeError, NameError):
        return  # no schema can be made for it: the caller refuses that
    if why is not None:
        raise InvalidValue(
            f"tool {tool!r} has a parameter {parameter!r} that cannot be restored unchanged from its record: {why}. "
            "Take only what a person may see, and look up the rest in the function"
        )


def _with_default(name: str, parameter: inspect.Parameter, hint: Any) -> Any:  # noqa: ANN401 - an annotation
    """Return the type of a parameter, its default included: a default is recorded and read like any argument."""
    ways: tuple[Any, Any] = (hint, Union[hint, None])  # noqa: UP007 - "path: str = None" means it; a str has no "|"
    for allowed in ways:
        try:
            form: TypeAdapter[Any] = TypeAdapter(allowed)
            written = form.dump_python(parameter.default, mode="json", round_trip=True, warnings="error")
            read = form.validate_python(written)
            again = form.validate_python(form.dump_python(read, mode="json", round_trip=True, warnings=False))
        except PydanticUserError:
            return hint  # the caller refuses it, with or without a default
        except (PydanticSerializationError, ValidationError):
            continue
        if not isinstance(read, Iterator) and not is_same(read, again):
            raise InvalidValue(
                f"tool {name!r} takes {parameter}, and the default cannot be restored unchanged from its record: a "
                "validator or a serializer changes it each time"
            )
        return allowed
    raise InvalidValue(
        f"tool {name!r} takes {parameter}, and the default does not fit its type; annotate it with all possible types"
    )


def _without_titles(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Remove the titles that pydantic makes from the names: they cost tokens and mean nothing."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_titles(item) for name, item in value.items()}
        if key in {"properties", "$defs"}
        else _without_titles(value)
        for key, value in schema.items()
        if key != "title"
    }
