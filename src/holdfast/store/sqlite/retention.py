"""What lives outside one task: artifacts, evidence; and how old things go."""

from __future__ import annotations

import json
from datetime import timedelta

from holdfast.model.canonical import digest
from holdfast.model.effect import Evidence
from holdfast.model.errors import NotFound
from holdfast.model.queries import Pruned
from holdfast.model.queue_settings import PRUNES_EVERY, PRUNES_ON_AFTER
from holdfast.model.records import Artifact, ArtifactLink
from holdfast.store.sqlite.limit_keys import Keys
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import micros
from holdfast.store.sqlite.write_transaction import WriteTransaction
from holdfast.store.upload import chunks_of, cut_range, in_chunks, pruned_meanwhile

_MICROSECOND = timedelta(microseconds=1)


def put_whole(tx: WriteTransaction, content: bytes, media_type: str) -> Artifact:
    """Store the bytes once."""
    artifact_id = digest(content)
    if not tx.changes("renew_artifact", artifact_id, tx.now):
        tx.run("insert_artifact", artifact_id, len(content), media_type, tx.now, artifact_id)
        _insert_chunks(tx, artifact_id, 0, content)
    return stored_artifact(tx, artifact_id)


def begin_upload(tx: WriteTransaction, upload: str) -> None:
    """Open an upload."""
    tx.run("insert_upload", upload, tx.now)


def stage(tx: WriteTransaction, upload: str, number: int, piece: bytes) -> None:
    """Keep a piece as chunks from ``number`` on."""
    if not tx.changes("renew_upload", upload, tx.now):
        raise pruned_meanwhile("the upload")
    _insert_chunks(tx, upload, number, piece)


def finish_upload(tx: WriteTransaction, upload: str, artifact_id: str, size: int, media_type: str) -> Artifact:
    """Make the upload an artifact; the chunks stay where they are. Where there is one already, they go."""
    if not tx.changes("delete_upload", upload):
        raise pruned_meanwhile("the upload")
    if tx.changes("renew_artifact", artifact_id, tx.now):
        tx.run("delete_chunks", upload)
    else:
        tx.run("insert_artifact", artifact_id, size, media_type, tx.now, upload)
    return stored_artifact(tx, artifact_id)


def discard_upload(tx: WriteTransaction, upload: str) -> None:
    """Drop an upload that did not come to its end; one that did is left alone."""
    if tx.changes("delete_upload", upload):
        tx.run("delete_chunks", upload)


def stored_artifact(tx: WriteTransaction, artifact_id: str) -> Artifact:
    """Describe an artifact that this transaction has stored or renewed."""
    [row] = tx.all("artifact", artifact_id)
    return RECORDS.artifact(*row)


def _insert_chunks(tx: WriteTransaction, content: str, first: int, data: bytes) -> None:
    tx.run_many("insert_chunk", [(content, number, chunk) for number, chunk in enumerate(in_chunks(data), first)])


def artifact(reader: Reader, artifact_id: str) -> Artifact | None:
    """See KeepVerbs."""
    return reader.first(RECORDS.artifact, "artifact", artifact_id)


def read_artifact(reader: Reader, artifact_id: str, offset: int, length: int | None) -> bytes:
    """See KeepVerbs. Touches only the chunks the range lies in."""
    first, last = chunks_of(offset, length)
    chunks = [chunk for (chunk,) in reader.rows("chunks", artifact_id, first, last)]
    if not chunks:
        raise NotFound("artifact", artifact_id)
    return cut_range(chunks, offset, length)


def artifact_links(reader: Reader, task_id: str) -> list[ArtifactLink]:
    """See KeepVerbs."""
    return reader.all(RECORDS.link, "artifact_links", task_id)


def add_evidence(tx: WriteTransaction, evidence: Evidence) -> None:
    """Keep a late result."""
    at = tx.now if evidence.at is None else micros(evidence.at)
    tx.run("insert_evidence", evidence.task_id, evidence.effect_id, evidence.fence, evidence.body, at)
    tx.hints.add(f"task:{evidence.task_id}")


def prune(tx: WriteTransaction, older_than: timedelta, limit: int) -> Pruned:
    """Delete what ended or was made before the cutoff, one bounded batch."""
    cutoff = tx.now - older_than // _MICROSECOND
    tasks = [task_id for (task_id,) in tx.all("prunable_tasks", cutoff, limit)]
    _delete_tasks(tx, tasks)
    events = tx.changes("prune_events", cutoff, limit)
    artifacts = tx.all("prune_artifacts", cutoff, limit)
    uploads = tx.all("prune_uploads", cutoff, limit)
    tx.run_many("delete_chunks", artifacts + uploads)
    tx.run("prune_workers", cutoff)
    Keys(tx).load(key for (key,) in tx.all("keys_with_uses_over", tx.now, limit))
    more = limit in (len(tasks), events, len(artifacts), len(uploads))
    return Pruned(tasks=len(tasks), events=events, artifacts=len(artifacts), more=more)


def prune_kept(tx: WriteTransaction, limit: int) -> int:
    """Delete ended tasks that their queues keep no longer, of the queues whose turn it is; return how many."""
    deleted = 0
    for queue, retention in tx.all("due_retentions", tx.now, limit, tx.now + PRUNES_EVERY // _MICROSECOND):
        for state, kept_for in json.loads(retention).items():
            if deleted < limit:
                deleted += _prune_queue(tx, queue, state, tx.now - kept_for, limit - deleted)
        pause = PRUNES_EVERY if deleted < limit else PRUNES_ON_AFTER
        tx.run("put_off_pruning", queue, tx.now + pause // _MICROSECOND)
        if deleted >= limit:
            break
    return deleted


def _prune_queue(tx: WriteTransaction, queue: str, state: str, cutoff: int, limit: int) -> int:
    tasks = [task_id for (task_id,) in tx.all("kept_no_longer", queue, state, cutoff, limit)]
    if not tasks:
        return 0
    gone = json.dumps(tasks)
    effects = json.dumps([effect_id for (effect_id,) in tx.all("effects_of_tasks", gone)])
    artifacts = json.dumps([artifact_id for (artifact_id,) in tx.all("artifacts_of_tasks", gone)])
    _delete_tasks(tx, tasks)
    tx.run("delete_own_events", gone, effects)
    tx.run_many("delete_chunks", tx.all("delete_unused_artifacts", artifacts, cutoff))
    return len(tasks)


def _delete_tasks(tx: WriteTransaction, task_ids: list[str]) -> None:
    for task_id in task_ids:
        tx.run("delete_task", task_id)  # its journal goes with it, by the foreign keys
        tx.run("delete_account", task_id)
        tx.run("delete_evidence", task_id)
