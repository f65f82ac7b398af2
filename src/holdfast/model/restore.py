"""Build typed values from plain data, by a type annotation the caller holds. Never by a name found in data."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import CodecError
from holdfast.model.limits import child_path

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def restore(value: object, as_type: object, *, name: str = "value") -> Any:  # noqa: ANN401 - an annotation and its value
    """Return ``value`` as ``as_type``: dataclasses, pydantic models, enums, unions and containers of them.

    Used by the codec for what it stored, and by front ends for arguments that people typed as JSON. Fields are found
    by their names, not by pydantic aliases, because that is how they are stored.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - half of holdfast's import time, for typed values only

    try:
        adapter = _adapter(as_type)
    except CodecError as error:
        raise CodecError(str(error), path=name) from error.__cause__
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
        raise CodecError(
            f"{_display(as_type)} cannot be restored from stored data ({error}); use a dataclass or a pydantic model"
        ) from error


def _display(as_type: object) -> str:
    return as_type.__qualname__ if isinstance(as_type, type) else str(as_type)
