"""The bytes of artifacts: each in a file of its own, which is read when it is asked for.

    artifacts/<id>.json      what is known of it, as a document
    artifacts/<id>.bytes     its content

The content is written before the document, and deleted after it. So a content without a document is what a process left
that died between the two.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from holdfast.model.canonical import canonical
from holdfast.model.errors import StoreDamaged
from holdfast.store.jsonfile.files import TEMPORARY, remove, write_whole

_FOLDER, _ENDING = "artifacts", ".bytes"
_CHUNKS = "artifact_chunks"
"""Where a document had the content before it had a file of its own."""


def write_content(root: Path, artifact_id: str, content: bytes) -> None:
    """Store the bytes of an artifact."""
    write_whole(_path(root, artifact_id), content)


def read_content(root: Path, artifact_id: str, offset: int, length: int | None) -> bytes:
    """Return a range of the bytes of an artifact; StoreDamaged if they are missing."""
    path = _path(root, artifact_id)
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)
    except FileNotFoundError as error:
        raise StoreDamaged(f"{path}, the content of an artifact, is missing; restore it from a backup") from error


def delete_content(root: Path, artifact_id: str) -> None:
    """Delete the bytes of an artifact."""
    with suppress(OSError):  # the next open does it
        remove(_path(root, artifact_id))


def delete_all_but(root: Path, artifact_ids: Collection[str]) -> None:
    """Delete contents without a document, and what was never finished."""
    for path in (root / _FOLDER).glob("*"):
        if path.name.endswith(TEMPORARY) or (path.suffix == _ENDING and path.stem not in artifact_ids):
            path.unlink()


def extract_contents(root: Path) -> None:
    """Give every content a file of its own that still stands inside its document."""
    for path in (root / _FOLDER).glob("*.json"):
        document = json.loads(path.read_bytes())
        if isinstance(document, dict) and (chunks := document.pop(_CHUNKS, None)):
            [row] = document["artifacts"]
            write_content(root, row["id"], b"".join(map(_decoded, sorted(chunks, key=lambda chunk: chunk["number"]))))
            row["content"] = row["id"]
            write_whole(path, f"{json.dumps(document, indent=1)}\n".encode())


def _decoded(chunk: dict[str, dict[str, str]]) -> bytes:
    body = chunk["body"]
    if "json" in body:
        return canonical(body["json"])
    return base64.b64decode(body["base64"], validate=True)


def _path(root: Path, artifact_id: str) -> Path:
    return root / _FOLDER / f"{artifact_id}{_ENDING}"
