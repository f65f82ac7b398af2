"""What lives outside one task: artifacts, evidence; and how old things go."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.canonical import digest
from holdfast.model.effect import Evidence
from holdfast.model.errors import NotFound
from holdfast.model.queries import Pruned
from holdfast.model.records import Artifact, ArtifactLink
from holdfast.store.checks import check_age, check_limit, check_range
from holdfast.store.postgres.base import PostgresBase
from holdfast.store.postgres.parameters import ByteaArray
from holdfast.store.postgres.rows import RECORDS
from holdfast.store.upload import Uploading, chunks_of, cut_range, in_chunks, pruned_meanwhile


class Keeping(Uploading, PostgresBase):
    """See holdfast.store.base.Keeping."""

    async def _put_whole(self, content: bytes, media_type: str) -> Artifact:
        artifact_id = digest(content)
        # Asked first: bytes that are there already need not travel again.
        if renewed := await self._fetch("renew_artifact", artifact_id, self._at()):
            return RECORDS.artifact(renewed[0])
        chunks = ByteaArray(in_chunks(content))
        await self._fetch("put_artifact", artifact_id, len(content), media_type, self._at(), chunks)
        if (stored := await self.artifact(artifact_id)) is None:
            raise pruned_meanwhile(f"artifact {artifact_id}")
        return stored

    async def _begin_upload(self, upload: str) -> None:
        await self._fetch("begin_upload", upload, self._at())

    async def _stage(self, upload: str, number: int, piece: bytes) -> None:
        if not await self._fetch("stage", upload, self._at(), number, ByteaArray(in_chunks(piece))):
            raise pruned_meanwhile("the upload")

    async def _finish_upload(self, upload: str, artifact_id: str, size: int, media_type: str) -> Artifact:
        # Sent again after its answer was lost, it finds no upload but the artifact, and that is all that was wanted.
        finished = await self._fetch("finish_upload", upload, self._at(), artifact_id, size, media_type)
        stored = finished or await self._fetch("renew_artifact", artifact_id, self._at())
        if not stored:
            raise pruned_meanwhile("the upload")
        return RECORDS.artifact(stored[0])

    async def _discard_upload(self, upload: str) -> None:
        await self._fetch("discard_upload", upload)

    async def artifact(self, artifact_id: str) -> Artifact | None:
        """See Keeping."""
        found = await self._fetch("artifact", artifact_id)
        return RECORDS.artifact(found[0]) if found else None

    async def read_artifact(self, artifact_id: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """See Keeping."""
        check_range(offset, length)
        found = await self._fetch("read_artifact", artifact_id, *chunks_of(offset, length))
        if not found:
            raise NotFound("artifact", artifact_id)
        return cut_range([chunk for (chunk,) in found], offset, length)

    async def artifact_links(self, task_id: str) -> list[ArtifactLink]:
        """See Keeping."""
        return [RECORDS.link(row) for row in await self._fetch("artifact_links", task_id)]

    async def add_evidence(self, evidence: Evidence) -> None:
        """See Keeping."""
        values = (evidence.task_id, evidence.effect_id, evidence.fence, evidence.body, evidence.at, self._at())
        await self._fetch("add_evidence", *values, repeatable=False)
        self._publish({f"task:{evidence.task_id}"})

    async def prune(self, older_than: timedelta, *, limit: int = 1000) -> Pruned:
        """See Keeping."""
        check_age(older_than)
        [counts] = await self._fetch("prune", self._at(), older_than, check_limit(limit))
        tasks, events, artifacts, _ = counts
        return Pruned(tasks=tasks, events=events, artifacts=artifacts, more=limit in counts)
