"""The arguments of a tool: read once from what the model wrote, written down, and brought back from exactly that.

    what the model wrote --read--> plain data, in the journal --restore--> what the function takes

A person agrees to the plain data, and ``restore`` makes the call of it, in whichever process and version of the code.
So ``read`` refuses arguments that would not come back as they are, and ``restore`` refuses to fill anything in.
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
"""Told at once: a model mends a few things at a time, and could send thousands."""

_LONGEST_REASON: Final = 500
_OURS: Final = frozenset({"effect_id"})
_CONFIG: Final = ConfigDict(extra="forbid", ser_json_inf_nan="constants", validate_default=True)
"""Defaults are read like arguments, because they are written down like arguments."""
_NAMELESS: Final = frozenset(
    {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY}
)


class Arguments:
    """What a tool takes. Everything here raises InvalidValue, in words for the model."""

    def __init__(
        self,
        tool: str,
        parameters: Mapping[str, inspect.Parameter],
        hints: Mapping[str, Any],
        meanings: Mapping[str, str],
    ) -> None:
        """Make it of a function's signature; ``meanings`` is what its docstring says of the parameters."""
        self._tool = tool
        self._model, self.schema = _make_model(tool, parameters, hints, meanings)
        self._fields = {name: field.alias or name for name, field in self._model.model_fields.items()}
        self.names = tuple(self._fields.values())

    def read(self, text: str) -> dict[str, JsonValue]:
        """Return what the model wrote, and the defaults of what it left out, as plain data."""
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
        """Return what was written down as what the function takes, in its order."""
        unknown = [f"it does not take {name!r}" for name in plain if name not in self.names]
        missing = [f"it takes {name!r} too" for name in self.names if name not in plain]
        if unknown or missing:
            raise self._does_not_fit("; ".join((*unknown, *missing)))
        body = canonical(dict(plain), name="arguments")
        try:
            chosen = self._bring_back(body)
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

    def _bring_back(self, body: bytes) -> BaseModel:
        # Also by name: a model may read a field under another name than the one it writes it under.
        return self._model.model_validate_json(body, by_alias=True, by_name=True)

    def _write(self, chosen: BaseModel) -> dict[str, JsonValue]:
        """Return arguments as plain data, the same in every process."""
        plain: dict[str, JsonValue] = {}
        for name, parameter in self._fields.items():
            try:
                dumped = chosen.model_dump(mode="json", by_alias=True, round_trip=True, include={name}, warnings=False)
            except Exception as error:  # a serializer may raise anything
                raise self._does_not_come_back(parameter, _reason(error)) from error
            plain[parameter] = in_order(getattr(chosen, name), dumped[parameter])
        try:
            canonical(plain, name="arguments")
        except CodecError as error:
            raise InvalidValue(f"the arguments of {self._tool} are wrong: {error}") from None
        return plain

    def _check_comes_back(self, chosen: BaseModel, plain: dict[str, JsonValue]) -> None:
        try:
            again = self._bring_back(canonical(plain))
            _settle(again)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            raise self._does_not_come_back(str(next(iter(fault["loc"]), "")), fault["msg"]) from None
        except Exception as error:  # a validator may raise anything
            raise self._does_not_come_back("", _reason(error)) from error
        for name, parameter in self._fields.items():
            if not is_same(getattr(chosen, name), getattr(again, name)):
                raise self._does_not_come_back(parameter, "it comes back as another value")
        if (other := _differing(plain, self._write(again))) is not None:
            raise self._does_not_come_back(other, "it is written in another way each time")

    def _does_not_come_back(self, parameter: str, why: str) -> InvalidValue:
        which = f"its parameter {parameter!r}" if parameter in self.names else "one of its parameters"
        return InvalidValue(
            f"the tool {self._tool} cannot be called with these arguments: {which} does not come back, from what is "
            f"written down of it, as it went in ({why}). The tool has to be changed; do not call it like this again"
        )

    def _does_not_fit(self, why: str) -> InvalidValue:
        return InvalidValue(
            f"the tool {self._tool} does not take the arguments any more that were written down for this call: {why}. "
            "It was changed since then, or it checks them against something that was"
        )


def _settle(chosen: BaseModel) -> set[str]:
    """Read what is read lazily, as an Iterable is: its items are checked only then. Return which fields were."""
    lazy = {name for name in type(chosen).model_fields if isinstance(getattr(chosen, name), Iterator)}
    for name in lazy:
        setattr(chosen, name, list(getattr(chosen, name)))
    return lazy


def _differing(plain: Mapping[str, JsonValue], again: Mapping[str, JsonValue]) -> str | None:
    """Return the first parameter that is written in another way."""
    return next((name for name, value in again.items() if canonical(value) != canonical(plain[name])), None)


def _reason(error: Exception) -> str:
    return storable(f"{type(error).__name__}: {error}", _LONGEST_REASON)


def _explain(error: ValidationError) -> str:
    """Say what is wrong in words a model can act on."""
    faults = [
        f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False)
    ]
    more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
    return f"{'; '.join(faults[:_MOST_FAULTS])}{more}"


def _make_model(
    name: str, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], meanings: Mapping[str, str]
) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return what reads the arguments, and their JSON Schema."""
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(parameters.values()):
        if parameter.name in _OURS or hints.get(parameter.name) is ToolContext:
            continue
        if parameter.kind in _NAMELESS:
            raise InvalidValue(f"tool {name!r} takes {parameter}; a model has to be told each parameter by name")
        hint = hints.get(parameter.name, Any)
        said = FieldInfo.from_annotation(hint).description or meanings.get(parameter.name)
        default: Any = ...
        if parameter.default is not inspect.Parameter.empty:
            default, hint = parameter.default, _with_default(name, parameter, hint)
        # Under an alias, because a field may not be called what a parameter may: "copy", "_path", "model_name".
        _check_is_kept(name, parameter.name, hint)
        fields[f"parameter_{number}"] = (hint, Field(default, alias=parameter.name, description=said))
    try:
        form = create_model(name, __config__=_CONFIG, **fields)
        return form, _without_titles(form.model_json_schema())
    except (PydanticUserError, TypeError, NameError) as error:
        raise InvalidValue(
            f"tool {name!r} has a parameter no JSON Schema can be made for: {error}. Annotate it with plain data "
            "(str, int, list, a dataclass, a pydantic model)"
        ) from error


def _check_is_kept(tool: str, parameter: str, hint: Any) -> None:  # noqa: ANN401 - an annotation
    """Refuse a parameter of which some part is in no case written down."""
    try:
        why = never_comes_back(TypeAdapter(hint).core_schema)
    except (PydanticUserError, TypeError, NameError):
        return  # no schema can be made for it, which is refused as such
    if why is not None:
        raise InvalidValue(
            f"tool {tool!r} has a parameter {parameter!r} that would not come back, from what is written down of it, "
            f"as it went in: {why}. Take only what a person may see, and look the rest up in the function"
        )


def _with_default(name: str, parameter: inspect.Parameter, hint: Any) -> Any:  # noqa: ANN401 - an annotation
    """Return what a parameter may be, its default included: that is written down and read like any argument."""
    ways: tuple[Any, Any] = (hint, Union[hint, None])  # noqa: UP007 - "path: str = None" means it; a text takes no "|"
    for allowed in ways:
        try:
            form: TypeAdapter[Any] = TypeAdapter(allowed)
            written = form.dump_python(parameter.default, mode="json", round_trip=True, warnings="error")
            read = form.validate_python(written)
            again = form.validate_python(form.dump_python(read, mode="json", round_trip=True, warnings=False))
        except PydanticUserError:
            return hint  # which is refused as a whole, default or not
        except (PydanticSerializationError, ValidationError):
            continue
        if not isinstance(read, Iterator) and not is_same(read, again):
            raise InvalidValue(
                f"tool {name!r} takes {parameter}, and the default does not come back, from what is written down of "
                "it, as it went in: a validator or a serializer changes it each time"
            )
        return allowed
    raise InvalidValue(f"tool {name!r} takes {parameter}, and the default does not fit; annotate it with all it may be")


def _without_titles(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Leave out the titles pydantic makes of the names: they cost tokens and say nothing."""
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
