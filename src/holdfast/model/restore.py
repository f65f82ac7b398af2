"""Build typed values from plain data, by a type annotation of the caller. Never by a name found in data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from holdfast.model.errors import CodecError
from holdfast.model.limits import child_path

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_PLAIN: Final = frozenset({str, int, float, bool})


class _NotCheckable(CodecError):
    """An annotation that pydantic cannot use."""


def fit(value: object, as_type: object, *, name: str = "value") -> Any:  # noqa: ANN401 - an annotation and its value
    """Return an argument converted to its parameter's annotation; CodecError if that is not possible.

    The rules are pydantic's. A value with no annotation, or one that cannot be checked, stays unchanged.
    """
    kind = type(value)
    if as_type is Any or (kind is as_type and kind in _PLAIN):
        return value  # this also avoids the import of pydantic
    try:
        fitting = restore(value, as_type, name=name)
    except _NotCheckable:
        return value
    if isinstance(fitting, Iterator) and not isinstance(value, Iterator):
        # For an Iterable, pydantic checks each item only when it is read.
        try:
            return list(fitting)
        except ValueError as error:
            raise CodecError(f"does not fit {_display(as_type)}: {error}", path=name) from error
    return fitting


def restore(value: object, as_type: object, *, name: str = "value") -> Any:  # noqa: ANN401 - an annotation and its value
    """Return ``value`` as ``as_type``: dataclasses, pydantic models, enums, unions and containers of them.

    Used by the codec for stored values, and for the arguments of tasks. Fields are found by their names as well as by
    their pydantic aliases, because they are stored under their names.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - half of holdfast's import time, for typed values only

    try:
        adapter = _adapter(as_type)
    except CodecError as error:
        raise _NotCheckable(str(error), path=name) from error.__cause__
    except TypeError:  # an unhashable annotation, such as Annotated[..., []]
        adapter = _build_adapter(as_type)
    try:
        return adapter.validate_python(value, by_name=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = name
        for part in first["loc"]:
            path = child_path(path, part)
        raise CodecError(f"does not fit {_display(as_type)}: {first['msg']}", path=path) from error
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise CodecError(f"does not fit {_display(as_type)}: {error}", path=name) from error


@lru_cache(maxsize=1024)
def _adapter(as_type: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - an annotation
    return _build_adapter(as_type)


def _build_adapter(as_type: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - an annotation
    from pydantic import PydanticUserError, TypeAdapter  # noqa: PLC0415
    from pydantic.errors import PydanticUndefinedAnnotation  # noqa: PLC0415

    try:
        return TypeAdapter(as_type)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise _NotCheckable(
            f"{_display(as_type)} cannot be restored from stored data ({error}); use a dataclass or a pydantic model"
        ) from error


def _display(as_type: object) -> str:
    return as_type.__qualname__ if isinstance(as_type, type) else str(as_type)
