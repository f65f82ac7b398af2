"""Artifacts, memory facts, evidence, and how old things go: the writes that belong to no Commit."""

from __future__ import annotations

from dataclasses import replace

from holdfast.model.canonical import canonical, digest
from holdfast.model.effect import Evidence
from holdfast.model.queries import Pruned
from holdfast.model.records import MemoryFact
from holdfast.model.task import fact_search_text
from holdfast.store.sqlite.reading import CHUNK
from holdfast.store.sqlite.rows import micros, micros_or_none, moment
from holdfast.store.sqlite.transaction import Transaction


def put_artifact(tx: Transaction, content: bytes, media_type: str) -> str:
    """Store the bytes once, in chunks; return their id."""
    artifact_id = digest(content)
    if tx.first("artifact", artifact_id) is None:
        tx.run("insert_artifact", artifact_id, len(content), media_type, tx.now)
        starts = range(0, len(content), CHUNK)
        tx.run_many("insert_chunk", [(artifact_id, n, content[at : at + CHUNK]) for n, at in enumerate(starts)])
    else:
        tx.run("renew_artifact", artifact_id, tx.now)
    return artifact_id


def remember(tx: Transaction, fact: MemoryFact) -> MemoryFact:
    """Store or replace the fact by its id; return it as it stands now."""
    created_at = tx.now if fact.created_at is None else micros(fact.created_at)
    value = canonical(fact.value, name="value")
    tx.run("delete_fact", fact.id)  # it may have been another entity's: the entity leads the primary key
    tx.run(
        "insert_fact",
        fact.entity,
        fact.id,
        fact.attribute,
        value,
        fact.confidence,
        fact.source,
        created_at,
        micros_or_none(fact.verified_at),
        fact.superseded_by,
        fact_search_text(fact.entity, fact.attribute, fact.value, value),
    )
    return replace(fact, created_at=moment(created_at))


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
    artifacts = tx.changes("prune_artifacts", cutoff, limit)
    tx.run("prune_workers", cutoff)
    more = limit in (len(tasks), events, artifacts)
    return Pruned(tasks=len(tasks), events=events, artifacts=artifacts, more=more)
