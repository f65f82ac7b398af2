"""What a tool answered, as plain data: for the journal, and for a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.model.failure import storable
from holdfast.model.task import JsonValue
from holdfast.redaction import redacted_data

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

_LONGEST_ERROR = 4_000


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """A result."""

    data: JsonValue
    is_error: bool = False
    """The tool reported a failure."""

    @property
    def error(self) -> str:
        """Its error text."""
        return storable(self.data if isinstance(self.data, str) else str(self.data), _LONGEST_ERROR)


def read_answer(result: CallToolResult) -> CallAnswer:
    """Return a result as plain data: structured content as it is, texts as text, and for anything else a description.

    A credential that the server repeats is replaced. The bytes of images, sounds and files are left out: no model reads
    them as text, and they do not belong in the journal.
    """
    blocks = [_plain(block) for block in result.content]
    attached = [block for block in blocks if not isinstance(block, str)]
    structured: JsonValue = result.structured_content
    data: JsonValue = blocks if attached else "\n".join(blocks)
    if structured is not None and structured != {"result": data}:  # which is the same text in a wrapper
        data = {"data": structured, "attached": attached} if attached else structured
    return CallAnswer(redacted_data(data), result.is_error)


def _plain(block: ContentBlock) -> Any:  # noqa: ANN401 - JSON
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return _left_out(block.type, block.mime_type, block.data)
        case "resource_link":
            return {"type": "resource_link", "uri": block.uri, "name": block.name, "media_type": block.mime_type}
        case "resource":
            held = block.resource
            if hasattr(held, "text"):
                return {"type": "resource", "uri": held.uri, "media_type": held.mime_type, "text": held.text}
            return {"uri": held.uri} | _left_out("resource", held.mime_type, held.blob)


def _left_out(kind: str, media_type: str | None, encoded: str) -> dict[str, JsonValue]:
    size = len(encoded) * 3 // 4 - encoded[-2:].count("=")
    return {"type": kind, "media_type": media_type, "bytes": size, "note": "the bytes are left out"}
