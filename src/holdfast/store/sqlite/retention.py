"""Evidence, and how old things go: writes that belong to no Commit."""

from __future__ import annotations

from holdfast.model.effect import Evidence
from holdfast.model.queries import Pruned
from holdfast.store.sqlite.rows import micros
from holdfast.store.sqlite.transaction import Transaction


def add_evidence(tx: Transaction, evidence: Evidence) -> None:
    """Keep a late result."""
    at = tx.now if evidence.at is None else micros(evidence.at)
    tx.run("insert_evidence", evidence.task_id, evidence.effect_id, evidence.fence, evidence.body, at)
    tx.hints.add(f"task:{evidence.task_id}")


def prune(tx: Transaction, older_than: int, limit: int) -> Pruned:
    """Delete what ended or was made before the cutoff, one bounded batch."""
    cutoff = tx.now - older_than
    tasks = [task_id for (task_id,) in tx.all("prunable_tasks", cutoff, limit)]
    for task_id in tasks:
        tx.run("delete_task", task_id)  # its journal goes with it, by the foreign keys
        tx.run("delete_account", task_id)
        tx.run("delete_evidence", task_id)
    events = tx.changes("prune_events", cutoff, limit)
    artifacts = tx.all("prune_artifacts", cutoff, limit)
    uploads = tx.all("prune_uploads", cutoff, limit)
    tx.run_many("delete_chunks", artifacts + uploads)
    tx.run("prune_workers", cutoff)
    more = limit in (len(tasks), events, len(artifacts), len(uploads))
    return Pruned(tasks=len(tasks), events=events, artifacts=len(artifacts), more=more)
