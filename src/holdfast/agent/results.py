"""Prepares a tool's result for the journal and for a model: large results become artifacts."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_jsonable_python

from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.runtime.store_retry import call_store
from holdfast.model.agent_state import ArtifactRef
from holdfast.model.canonical import canonical, parse
from holdfast.model.excerpt import excerpt
from holdfast.model.failure import storable
from holdfast.model.patch import StatePatch
from holdfast.model.task import JsonValue

INLINE_BYTES = 4_000
"""A result up to this size is shown to the model as it is; a larger one as an excerpt."""

_SUMMARY = 120
_LONG = 1 << 20
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"


def split_result(returned: Any) -> tuple[JsonValue, tuple[StatePatch, ...]]:  # noqa: ANN401 - whatever a tool returns
    """Return the data of a result, and its patch if it has one: ``return data, StatePatch(...)``."""
    if isinstance(returned, StatePatch):
        return "done", (returned,)
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], StatePatch):  # noqa: PLR2004
        return as_data(returned[0]), (returned[1],)
    return as_data(returned), ()


def as_data(value: Any) -> JsonValue:  # noqa: ANN401 - whatever a tool returns
    """Return it as plain data. The call was made: a result without an exact form is recorded as text."""
    if isinstance(value, bytes):
        return storable(value.decode("utf-8", "replace"), len(value) + 1)
    if isinstance(value, str) and len(value) > _LONG:
        return value  # it becomes an artifact as a whole, and is not part of the journal
    try:
        data = to_jsonable_python(value, fallback=str)
        canonical(data, name="result")
    except Exception:  # noqa: BLE001 - its objects may raise anything
        return storable(_in_words(value), 100_000)
    return data


def _in_words(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - __str__ may raise anything, and so does a number with too many digits
        return f"<{type(value).__name__}>"


async def keep_output(
    attempt: Attempt, tool: str, data: JsonValue, *, inline_bytes: int
) -> tuple[dict[str, JsonValue], ArtifactRef | None]:
    """Return what a tool's step records, and the artifact of a large result."""
    text = data if isinstance(data, str) else canonical(data).decode()
    body = text.encode("utf-8", "surrogatepass")
    if len(body) <= inline_bytes:
        return {"value": data}, None
    media_type = _TEXT if isinstance(data, str) else _JSON
    store = attempt.services.store
    artifact = await call_store(lambda: store.put_artifact(body, media_type=media_type))
    summary = " ".join(text[: 2 * _SUMMARY].split())[:_SUMMARY]
    kept = ArtifactRef(artifact_id=artifact.id, type=f"tool_result.{tool}", summary=summary, bytes=len(body))
    shown = excerpt(text, max_bytes=inline_bytes)
    return {"artifact": {"artifact_id": artifact.id, "bytes": len(body)}, "excerpt": shown}, kept


async def read_output(attempt: Attempt, output: Any) -> JsonValue:  # noqa: ANN401
    """Return the whole result that a step recorded, from its artifact if it is in one.

    An output without the form of such a record is the result itself: a person or a reconcile gave it.
    """
    if not isinstance(output, dict) or output.keys() not in ({"value"}, {"artifact", "excerpt"}):
        return output
    if "value" in output:
        return output["value"]
    store, artifact_id = attempt.services.store, output["artifact"]["artifact_id"]
    described = await call_store(lambda: store.artifact(artifact_id))
    body = await call_store(lambda: store.read_artifact(artifact_id))
    is_data = described is not None and described.media_type == _JSON
    return parse(body) if is_data else body.decode("utf-8", "surrogatepass")
