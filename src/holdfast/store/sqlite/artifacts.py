"""Artifacts in a SQLite store: bytes in chunks, put whole or piece by piece."""

from __future__ import annotations

from holdfast.model.canonical import digest
from holdfast.store.sqlite.transaction import Transaction
from holdfast.store.upload import in_chunks, pruned_meanwhile


def put_whole(tx: Transaction, content: bytes, media_type: str) -> str:
    """Store the bytes once; return their id."""
    artifact_id = digest(content)
    if not tx.changes("renew_artifact", artifact_id, tx.now):
        tx.run("insert_artifact", artifact_id, len(content), media_type, tx.now, artifact_id)
        _insert_chunks(tx, artifact_id, 0, content)
    return artifact_id


def begin(tx: Transaction, upload: str) -> None:
    """Open an upload."""
    tx.run("insert_upload", upload, tx.now)


def stage(tx: Transaction, upload: str, number: int, piece: bytes) -> None:
    """Keep a piece as chunks from ``number`` on."""
    if not tx.changes("renew_upload", upload, tx.now):
        raise pruned_meanwhile("the upload")
    _insert_chunks(tx, upload, number, piece)


def finish(tx: Transaction, upload: str, artifact_id: str, size: int, media_type: str) -> None:
    """Make the upload an artifact; the chunks stay where they are. Where there is one already, they go."""
    if not tx.changes("delete_upload", upload):
        raise pruned_meanwhile("the upload")
    if tx.changes("renew_artifact", artifact_id, tx.now):
        tx.run("delete_chunks", upload)
    else:
        tx.run("insert_artifact", artifact_id, size, media_type, tx.now, upload)


def discard(tx: Transaction, upload: str) -> None:
    """Drop an upload that did not come to its end; one that did is left alone."""
    if tx.changes("delete_upload", upload):
        tx.run("delete_chunks", upload)


def _insert_chunks(tx: Transaction, content: str, first: int, data: bytes) -> None:
    tx.run_many("insert_chunk", [(content, number, chunk) for number, chunk in enumerate(in_chunks(data), first)])
