"""What a tool returned, made fit for the journal and for a model: large outputs become artifacts."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_jsonable_python

from holdfast.engine.attempt import Attempt
from holdfast.engine.patience import insist
from holdfast.model.agent_state import ArtifactRef
from holdfast.model.canonical import canonical
from holdfast.model.errors import CodecError
from holdfast.model.excerpt import excerpt
from holdfast.model.failure import storable
from holdfast.model.patch import StatePatch
from holdfast.model.records import ArtifactLink
from holdfast.model.task import JsonValue

INLINE_BYTES = 4_000
"""A result up to this size is shown to the model as it is; of a larger one, an excerpt."""

_SUMMARY = 120


def split_result(returned: Any) -> tuple[JsonValue, tuple[StatePatch, ...]]:  # noqa: ANN401 - whatever a tool returns
    """Return the data of a result, and the patch that may stand beside it: ``return data, StatePatch(...)``."""
    if isinstance(returned, StatePatch):
        return "done", (returned,)
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], StatePatch):  # noqa: PLR2004
        return as_data(returned[0]), (returned[1],)
    return as_data(returned), ()


def as_data(value: Any) -> JsonValue:  # noqa: ANN401 - whatever a tool returns
    """Return it as plain data. It has happened: what cannot be written down exactly is written down as text."""
    if isinstance(value, bytes):
        return storable(value.decode("utf-8", "replace"), len(value) + 1)
    try:
        data = to_jsonable_python(value, fallback=str)
        canonical(data, name="result")
    except (ValueError, CodecError):
        return storable(str(value), 100_000)
    return data


async def keep_output(
    attempt: Attempt, tool: str, data: JsonValue, *, inline_bytes: int
) -> tuple[dict[str, JsonValue], ArtifactRef | None]:
    """Return what a tool's step records, and the artifact it is kept in if it is large."""
    text = data if isinstance(data, str) else canonical(data).decode()
    body = text.encode("utf-8", "surrogatepass")
    if len(body) <= inline_bytes:
        return {"value": data}, None
    media_type = "text/plain; charset=utf-8" if isinstance(data, str) else "application/json"
    store = attempt.services.store
    artifact = await insist(lambda: store.put_artifact(body, media_type=media_type))
    summary = " ".join(text[: 2 * _SUMMARY].split())[:_SUMMARY]
    kept = ArtifactRef(artifact_id=artifact.id, type=f"tool_result.{tool}", summary=summary, bytes=len(body))
    shown = excerpt(text, max_bytes=inline_bytes)
    return {"artifact": {"artifact_id": artifact.id, "bytes": len(body)}, "excerpt": shown}, kept


def link_to(artifact: ArtifactRef) -> ArtifactLink:
    """Return the other way round: what the store notes of an artifact that the state mentions."""
    return ArtifactLink(
        artifact_id=artifact.artifact_id,
        name=artifact.summary[:_SUMMARY],
        type=artifact.type,
        summary=artifact.summary,
        bytes=artifact.bytes,
        step=artifact.step,
    )
