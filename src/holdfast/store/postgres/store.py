"""PostgresStore: the contract on PostgreSQL, through psycopg, and which function does each verb."""

from __future__ import annotations

from holdfast.model.clock import Clock
from holdfast.store.backend import Backend
from holdfast.store.base import Capabilities
from holdfast.store.postgres import (
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
from holdfast.store.postgres.connections import APPLICATION
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.user_connection import submission_on
from holdfast.store.postgres.user_transaction import transact
from holdfast.store.simple import SimpleInterface


class PostgresBackend(Database, Backend):
    """The verbs on PostgreSQL."""

    submit = submission.submit
    submission_on = submission_on
    emit = submission.emit
    commit = commit.commit
    transact = transact
    load = journals.load
    sweep = sweep.sweep

    pause = flow.pause
    unpause = flow.unpause
    pauses = flow.pauses
    set_queue = flow.set_queue
    queue_settings = flow.queue_settings

    set_limit = limits.set_limit
    limit_uses = limits.limit_uses
    close_limit = limits.close_limit
    limits = limits.limits
    take_permits = permits.take_permits
    return_permits = permits.return_permits

    register = lease.register
    heartbeat = lease.heartbeat
    drain = lease.drain
    retire = lease.retire
    claim = lease.claim
    acquire = lease.acquire
    has_suspect = lease.has_suspect
    owned = lease.owned

    get = queries.get
    standing = queries.standing
    revisions = queries.revisions
    history = queries.history
    evidence = queries.evidence
    patches = queries.patches
    checkpoints = queries.checkpoints
    approval = queries.approval
    accounts = queries.accounts
    workers = queries.workers
    events = queries.events
    position = queries.position
    steps = journals.steps
    step = journals.step
    last_steps = journals.last_steps

    find = queries.find
    count = queries.count
    summary = queries.summary
    queues = queries.queues
    queued = queries.queued
    ids = queries.ids
    effects = queries.effects
    approvals = queries.approvals
    vitals = queries.vitals

    read_feed = feed.read_feed
    set_feed_retention = feed.set_feed_retention
    feed_retention = feed.feed_retention

    put_schedule = schedules.put_schedule
    delete_schedule = schedules.delete_schedule
    schedule = schedules.schedule
    due_schedules = schedules.due_schedules
    schedules = schedules.schedules

    put_whole = retention.put_whole
    begin_upload = retention.begin_upload
    stage = retention.stage
    finish_upload = retention.finish_upload
    discard_upload = retention.discard_upload
    artifact = retention.artifact
    read_artifact = retention.read_artifact
    artifact_links = retention.artifact_links
    add_evidence = retention.add_evidence
    prune = retention.prune

    remember = memory.remember
    forget = memory.forget
    fact = memory.fact
    subject = memory.subject
    recall = memory.recall
    search = memory.search


class PostgresStore(SimpleInterface):
    """Tasks in a PostgreSQL database that any number of machines share.

    ``schema`` holds all tables and functions; several stores can live in one database. ``migrate``: see
    ``migration.prepare``. ``prepare``: whether statements are prepared; None, the default, prepares them unless a
    pooler stands before the server. ``listen_url`` names the server directly where ``url`` leads to a pooler in
    transaction mode, which has no LISTEN. Both can also stand in the URL: ``?prepare=false&listen_url=...``.
    ``application_name`` is what the server shows of our connections, unless the URL or PGAPPNAME says otherwise.
    ``retry_for`` is how many seconds a verb keeps trying while the database is away.
    """

    capabilities = Capabilities(
        durable=True, multi_process=True, multi_machine=True, precise_hints=True, transactions=True
    )
    _backend: PostgresBackend

    def __init__(
        self,
        url: str,
        *,
        schema: str = "holdfast",
        clock: Clock | None = None,
        migrate: bool | None = None,
        pool_size: int = 4,
        prepare: bool | None = None,
        listen_url: str | None = None,
        application_name: str = APPLICATION,
        retry_for: float = 10.0,
    ) -> None:
        """Check the settings; ``open`` connects."""
        super().__init__(
            PostgresBackend(
                url,
                schema=schema,
                clock=clock,
                migrate=migrate,
                pool_size=pool_size,
                prepare=prepare,
                listen_url=listen_url,
                application_name=application_name,
                retry_for=retry_for,
            )
        )
