"""What lives outside one task: artifacts, evidence; and how old things go."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.canonical import digest
from holdfast.model.effect import Evidence
from holdfast.model.errors import NotFound
from holdfast.model.queries import Pruned
from holdfast.model.records import Artifact, ArtifactLink
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.parameters import ByteaArray
from holdfast.store.postgres.records import RECORDS
from holdfast.store.upload import chunks_of, cut_range, in_chunks, pruned_meanwhile


async def put_whole(db: Database, content: bytes, media_type: str) -> Artifact:
    """Store bytes that are all there, in one transaction."""
    artifact_id = digest(content)
    # Asked first: bytes that are there already need not travel again.
    if renewed := await db.fetch("renew_artifact", artifact_id, db.at()):
        return RECORDS.artifact(*renewed[0])
    chunks = ByteaArray(in_chunks(content))
    await db.fetch("put_artifact", artifact_id, len(content), media_type, db.at(), chunks)
    if (stored := await artifact(db, artifact_id)) is None:
        raise pruned_meanwhile(f"artifact {artifact_id}")
    return stored


async def begin_upload(db: Database, upload: str) -> None:
    """Open an upload."""
    await db.fetch("begin_upload", upload, db.at())


async def stage(db: Database, upload: str, number: int, piece: bytes) -> None:
    """Keep a piece as chunks from ``number`` on."""
    if not await db.fetch("stage", upload, db.at(), number, ByteaArray(in_chunks(piece))):
        raise pruned_meanwhile("the upload")


async def finish_upload(db: Database, upload: str, artifact_id: str, size: int, media_type: str) -> Artifact:
    """Make the upload the artifact, or drop it if that is there already."""
    # Sent again after its answer was lost, it finds no upload but the artifact, and that is all that was wanted.
    finished = await db.fetch("finish_upload", upload, db.at(), artifact_id, size, media_type)
    stored = finished or await db.fetch("renew_artifact", artifact_id, db.at())
    if not stored:
        raise pruned_meanwhile("the upload")
    return RECORDS.artifact(*stored[0])


async def discard_upload(db: Database, upload: str) -> None:
    """Drop an upload and its chunks."""
    await db.fetch("discard_upload", upload)


async def artifact(db: Database, artifact_id: str) -> Artifact | None:
    """See KeepVerbs."""
    return await db.first(RECORDS.artifact, "artifact", artifact_id)


async def read_artifact(db: Database, artifact_id: str, offset: int, length: int | None) -> bytes:
    """See KeepVerbs."""
    found = await db.fetch("read_artifact", artifact_id, *chunks_of(offset, length))
    if not found:
        raise NotFound("artifact", artifact_id)
    return cut_range([chunk for (chunk,) in found], offset, length)


async def artifact_links(db: Database, task_id: str) -> list[ArtifactLink]:
    """See KeepVerbs."""
    return await db.all(RECORDS.link, "artifact_links", task_id)


async def add_evidence(db: Database, evidence: Evidence) -> None:
    """See KeepVerbs."""
    values = (evidence.task_id, evidence.effect_id, evidence.fence, evidence.body, evidence.at, db.at())
    await db.fetch("add_evidence", *values, repeatable=False)
    db.publish({f"task:{evidence.task_id}"})


async def prune(db: Database, older_than: timedelta, limit: int) -> Pruned:
    """See KeepVerbs."""
    [counts] = await db.fetch("prune", db.at(), older_than, limit)
    tasks, events, artifacts, _ = counts
    return Pruned(tasks=tasks, events=events, artifacts=artifacts, more=limit in counts)
