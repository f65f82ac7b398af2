"""SqliteStore: the contract on one SQLite file, through apsw, and which function does each verb."""

# ruff: noqa: ARG005, PLW0108 - how much work a verb is, is counted from all its arguments, by their names

from __future__ import annotations

from pathlib import Path

from holdfast.model.clock import Clock
from holdfast.model.queries import Vitals
from holdfast.store.backend import Backend
from holdfast.store.base import Capabilities
from holdfast.store.simple import SimpleInterface
from holdfast.store.sqlite import (
    commit,
    feed,
    flow,
    journals,
    lease,
    limits,
    memory,
    permits,
    queries,
    retention,
    schedules,
    submission,
    sweep,
)
from holdfast.store.sqlite.database import MANY, Database, quickly, slowly, written
from holdfast.store.sqlite.user_transaction import transact


class SqliteBackend(Database, Backend):
    """The verbs on SQLite: each beside the way in which it uses the database."""

    submit = written(submission.submit_all, items=lambda tasks: len(tasks))
    emit = submission.emit_event
    commit = commit.commit
    transact = transact
    load = journals.load
    sweep = written(sweep.sweep)

    pause = written(flow.pause)
    unpause = written(flow.unpause)
    pauses = quickly(flow.pauses)
    set_queue = written(flow.set_queue, items=lambda name, change: MANY)
    queue_settings = quickly(flow.queue_settings)
    set_limit = written(limits.set_limit, items=lambda limit: MANY)
    close_limit = written(limits.close_limit)
    take_permits = written(permits.take_permits, items=lambda requests: len(requests))
    return_permits = written(permits.return_permits, items=lambda returned: len(returned))

    register = written(lease.register)
    heartbeat = written(lease.heartbeat)
    drain = written(lease.drain)
    retire = lease.retire_worker
    claim = lease.claim_ready
    acquire = written(lease.acquire)
    has_suspect = quickly(lease.has_suspect)
    owned = quickly(lease.owned)

    get = quickly(queries.get)
    standing = quickly(queries.standing)
    revisions = quickly(queries.revisions)
    history = quickly(queries.history)
    evidence = quickly(queries.evidence)
    patches = quickly(queries.patches)
    checkpoints = quickly(queries.checkpoints)
    approval = quickly(queries.approval)
    accounts = quickly(queries.accounts)
    workers = quickly(queries.workers)
    events = quickly(queries.events)
    position = queries.position
    steps = quickly(journals.steps)
    step = quickly(journals.step)
    last_steps = quickly(journals.last_steps)

    find = slowly(queries.find)
    count = slowly(queries.count)
    summary = slowly(queries.summary)
    queues = slowly(queries.queues)
    limit_uses = slowly(limits.limit_uses)
    queued = slowly(queries.queued)
    ids = slowly(queries.ids)
    effects = slowly(queries.effects)
    approvals = slowly(queries.approvals)

    read_feed = slowly(feed.read_feed)
    set_feed_retention = written(feed.set_feed_retention)
    feed_retention = quickly(feed.feed_retention)

    put_schedule = written(schedules.put_schedule, items=lambda schedule, seen, tasks: 1 + len(tasks))
    delete_schedule = written(schedules.delete_schedule)
    schedule = quickly(schedules.schedule)
    due_schedules = quickly(schedules.due_schedules)
    schedules = slowly(schedules.schedules)

    put_whole = written(retention.put_whole, items=lambda content, media_type: 1 + (len(content) >> 16))
    begin_upload = written(retention.begin_upload)
    stage = written(retention.stage, items=lambda upload, number, piece: 1 + (len(piece) >> 16))
    finish_upload = written(retention.finish_upload)
    discard_upload = written(retention.discard_upload)
    artifact = quickly(retention.artifact)
    read_artifact = slowly(retention.read_artifact)
    artifact_links = quickly(retention.artifact_links)
    add_evidence = written(retention.add_evidence)
    prune = written(retention.prune, items=lambda older_than, limit: limit)

    remember = written(memory.remember, items=lambda facts, seen: len(facts))
    forget = written(memory.forget)
    fact = quickly(memory.fact)
    subject = quickly(memory.subject)
    recall = slowly(memory.recall)
    search = slowly(memory.search)

    limits = quickly(limits.limits)

    async def vitals(self, *, thorough: bool) -> Vitals:
        """See ReadVerbs."""
        file = Path(self.file)
        return await self.read_slowly(lambda reader: queries.vitals(reader, "SQLite", file=file, thorough=thorough))


class SqliteStore(SimpleInterface):
    """Tasks in one SQLite file. ``durable=False`` trades the last commits before a power cut for speed."""

    capabilities = Capabilities(
        durable=True, multi_process=True, multi_machine=False, precise_hints=False, transactions=True
    )
    _backend: SqliteBackend

    def __init__(self, path: str | Path, *, clock: Clock | None = None, durable: bool = True) -> None:
        """Name the file; ``open`` creates it where it is missing."""
        self.path = str(path)
        super().__init__(SqliteBackend(path, clock=clock, durable=durable))
