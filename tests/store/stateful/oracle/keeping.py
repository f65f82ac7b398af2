"""Artifacts, evidence, prune."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.model.canonical import digest
from holdfast.model.effect import EffectState, Evidence
from holdfast.model.queries import Pruned
from holdfast.model.records import Artifact, Event
from holdfast.model.worker import WorkerState
from tests.store.stateful.oracle.tables import Tables

_IN_DOUBT = frozenset({EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN})


def put_artifact(tables: Tables, content: bytes, media_type: str, now: datetime) -> Artifact:
    artifact = Artifact(id=digest(content), size=len(content), media_type=media_type, created_at=now)
    if artifact.id in tables.artifacts:
        artifact = replace(tables.artifacts[artifact.id][0], created_at=now)
    tables.artifacts[artifact.id] = (artifact, content)
    return artifact


def add_evidence(tables: Tables, evidence: Evidence, now: datetime) -> None:
    key = (evidence.task_id, evidence.effect_id)
    tables.evidence[key] = (*tables.evidence.get(key, ()), replace(evidence, at=evidence.at or now))


def prune(tables: Tables, older_than: timedelta, limit: int, now: datetime) -> Pruned:
    cutoff = now - older_than
    tasks = _old_tasks(tables, cutoff)[:limit]
    for task_id in tasks:
        _delete_task(tables, task_id)
    events = _old_events(tables, cutoff)[:limit]
    for event in events:
        tables.events[event.channel] = tuple(kept for kept in tables.events[event.channel] if kept != event)
    linked = {artifact_id for _, artifact_id in tables.links}
    old_artifacts = [artifact for artifact, _ in tables.artifacts.values() if artifact.created_at < cutoff]
    unused = [artifact for artifact in old_artifacts if artifact.id not in linked]
    artifacts = sorted(unused, key=lambda artifact: (artifact.created_at, artifact.id))[:limit]
    for artifact in artifacts:
        del tables.artifacts[artifact.id]
    owners = {row.task.owner for row in tables.tasks.values()}
    for worker_id, row in list(tables.workers.items()):
        # One whose tasks are still to be taken back stays: without it nobody would find them.
        if row.worker.state is WorkerState.DEAD and row.worker.seen_at < cutoff and worker_id not in owners:
            del tables.workers[worker_id]
    counts = (len(tasks), len(events), len(artifacts))
    return Pruned(tasks=counts[0], events=counts[1], artifacts=counts[2], more=limit in counts)


def _old_tasks(tables: Tables, cutoff: datetime) -> list[str]:
    """Return what may go, in order: trees by the end of their roots, each from its root downwards."""
    roots = [row.task for row in tables.tasks.values() if row.task.parent_id not in tables.tasks]
    trees = [(root.finished_at, root.id, _tree_below(tables, root.id)) for root in roots]
    old = [(ended, root, tree) for ended, root, tree in trees if all(_is_old(tables, one, cutoff) for one in tree)]
    return [task_id for _, _, tree in sorted(old) for task_id in tree]


def _tree_below(tables: Tables, root: str) -> list[str]:
    level, tree = [root], []
    while level:
        tree += level
        level = sorted(row.task.id for row in tables.tasks.values() if row.task.parent_id in level)
    return tree


def _is_old(tables: Tables, task_id: str, cutoff: datetime) -> bool:
    ended = tables.task(task_id).finished_at
    is_reserved_on = any(account == task_id for _, account, *_ in tables.reservations)
    is_in_doubt = any(owner == task_id and effect.state in _IN_DOUBT for (owner, _), effect in tables.effects.items())
    return ended is not None and ended < cutoff and not is_reserved_on and not is_in_doubt


def _old_events(tables: Tables, cutoff: datetime) -> list[Event]:
    every = [event for events in tables.events.values() for event in events]
    old = [event for event in every if event.at < cutoff and not _is_needed(tables, event.channel)]
    return sorted(old, key=lambda event: (event.at, event.channel, event.number))


def _is_needed(tables: Tables, channel: str) -> bool:
    """Say whether a channel belongs to an open task, or to an effect that is stored."""
    _, colon, owner = channel.partition(":")
    is_open = owner in tables.tasks and tables.task(owner).finished_at is None
    return bool(colon) and (is_open or any(effect_id == owner for _, effect_id in tables.effects))


def _delete_task(tables: Tables, task_id: str) -> None:
    del tables.tasks[task_id]
    tables.pauses.pop(task_id, None)
    for by_task in (tables.transitions, tables.waits, tables.patches):
        by_task.pop(task_id, None)
    approvals = [approval.id for approval in tables.approvals.values() if approval.task_id == task_id]
    for approval_id in approvals:
        del tables.approvals[approval_id]
    by_task_first: tuple[dict[Any, Any], ...] = (
        tables.joins,
        tables.steps,
        tables.effects,
        tables.evidence,
        tables.checkpoints,
        tables.accounts,
        tables.reservations,
        tables.requests,
        tables.links,
    )
    for table in by_task_first:
        for key in list(table):
            if key[0] == task_id:
                del table[key]
