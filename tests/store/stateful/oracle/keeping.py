"""Artifacts, evidence, prune."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.model.canonical import digest
from holdfast.model.effect import EffectState, Evidence
from holdfast.model.queries import Pruned
from holdfast.model.queue_settings import PRUNES_EVERY, PRUNES_ON_AFTER
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
        # A worker whose tasks are still to be taken back stays: without it they would not be found.
        if row.worker.state is WorkerState.DEAD and row.worker.seen_at < cutoff and worker_id not in owners:
            del tables.workers[worker_id]
    counts = (len(tasks), len(events), len(artifacts))
    return Pruned(tasks=counts[0], events=counts[1], artifacts=counts[2], more=limit in counts)


def prune_kept(tables: Tables, limit: int, now: datetime) -> int:
    """Delete what queues keep no longer, of those whose turn it is: whole trees by their roots, children first."""
    deleted = 0
    ahead = now + PRUNES_EVERY  # later than that only because the clock was set back
    due = {queue: min(at, now) for queue, at in tables.prunes_at.items() if at <= now or at > ahead}
    for _, queue in sorted((at, queue) for queue, at in due.items())[:limit]:
        for state, kept_for in (tables.queues[queue].retention or {}).items():
            gone = _kept_no_longer(tables, queue, state, now - kept_for)[: limit - deleted]
            _delete_with_belongings(tables, gone, now - kept_for)
            deleted += len(gone)
        tables.prunes_at[queue] = now + (PRUNES_EVERY if deleted < limit else PRUNES_ON_AFTER)
        if deleted == limit:
            break
    return deleted


def _kept_no_longer(tables: Tables, queue: str, state: str, cutoff: datetime) -> list[str]:
    rows = (row.task for row in tables.tasks.values())
    roots = [task for task in rows if task.parent_id is None and (task.queue, task.state) == (queue, state)]
    trees = [(root.finished_at, root.id, _levels_below(tables, root.id)) for root in roots]
    old = [
        (ended, root, levels)
        for ended, root, levels in trees
        if all(_is_old(tables, one, cutoff) for level in levels for one in level)
    ]
    return [task_id for _, _, levels in sorted(old) for level in reversed(levels) for task_id in level]


def _delete_with_belongings(tables: Tables, gone: list[str], cutoff: datetime) -> None:
    used = {artifact_id for task_id, artifact_id in tables.links if task_id in gone}
    effects = {effect_id for task_id, effect_id in tables.effects if task_id in gone}
    for task_id in gone:
        _delete_task(tables, task_id)
    effects -= {effect_id for _, effect_id in tables.effects}
    own = {f"{word}:{task_id}" for word in ("task", "inbox") for task_id in gone} | {f"taken:{one}" for one in effects}
    for channel in own & tables.events.keys():
        tables.events[channel] = ()
    for artifact_id in used - {artifact_id for _, artifact_id in tables.links}:
        if artifact_id in tables.artifacts and tables.artifacts[artifact_id][0].created_at < cutoff:
            del tables.artifacts[artifact_id]


def _old_tasks(tables: Tables, cutoff: datetime) -> list[str]:
    """Return what may go, in order: trees by the end of their roots, each from its root downwards."""
    roots = [row.task for row in tables.tasks.values() if row.task.parent_id not in tables.tasks]
    trees = [(root.finished_at, root.id, _tree_below(tables, root.id)) for root in roots]
    old = [(ended, root, tree) for ended, root, tree in trees if all(_is_old(tables, one, cutoff) for one in tree)]
    return [task_id for _, _, tree in sorted(old) for task_id in tree]


def _tree_below(tables: Tables, root: str) -> list[str]:
    return [task_id for level in _levels_below(tables, root) for task_id in level]


def _levels_below(tables: Tables, root: str) -> list[list[str]]:
    level, levels = [root], []
    while level:
        levels.append(level)
        level = sorted(row.task.id for row in tables.tasks.values() if row.task.parent_id in level)
    return levels


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
