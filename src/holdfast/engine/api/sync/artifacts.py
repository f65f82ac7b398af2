"""hold.sync.artifacts: hold.artifacts for blocking code."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.engine.api.sync.memory import Wait
from holdfast.engine.manage.artifact_sources import Source
from holdfast.engine.manage.artifacts import EXCERPT, MAX_BYTES, MAX_TEXT, PART, Artifacts, How
from holdfast.model.records import Artifact


class SyncArtifacts:
    """The calls of Artifacts, which block until they are done."""

    __slots__ = ("_artifacts", "_wait")

    def __init__(self, artifacts: Artifacts, wait: Wait) -> None:
        """Only SyncHoldfast creates this."""
        self._artifacts = artifacts
        self._wait = wait

    def write(
        self, source: Source, *, media_type: str | None = None, name: str | None = None, max_bytes: int = MAX_BYTES
    ) -> Artifact:
        """See Artifacts."""
        return self._wait(self._artifacts.write(source, media_type=media_type, name=name, max_bytes=max_bytes))

    def stat(self, artifact_id: str) -> Artifact:
        """See Artifacts."""
        return self._wait(self._artifacts.stat(artifact_id))

    def read(self, artifact_id: str) -> Iterator[bytes]:
        """See Artifacts."""
        size = self.stat(artifact_id).size
        for offset in range(0, size, PART):
            yield self.read_range(artifact_id, offset, PART)

    def read_range(self, artifact_id: str, offset: int, length: int) -> bytes:
        """See Artifacts."""
        return self._wait(self._artifacts.read_range(artifact_id, offset, length))

    def read_text(self, artifact_id: str, *, max_bytes: int = MAX_TEXT) -> str:
        """See Artifacts."""
        return self._wait(self._artifacts.read_text(artifact_id, max_bytes=max_bytes))

    def excerpt(
        self,
        artifact_id: str,
        how: How = "head_tail",
        *,
        pattern: str | None = None,
        max_bytes: int = EXCERPT,
        context: int = 0,
    ) -> str:
        """See Artifacts."""
        call = self._artifacts.excerpt(artifact_id, how, pattern=pattern, max_bytes=max_bytes, context=context)
        return self._wait(call)
