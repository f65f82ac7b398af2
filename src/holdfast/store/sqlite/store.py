"""SqliteStore: the contract on one SQLite file, through apsw.

Never open the file with Python's own ``sqlite3`` in the same process: closing it drops every POSIX lock apsw holds,
and another process can then overwrite what a COMMIT has acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self, TypeVar

import apsw

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.checks import check_name, check_text
from holdfast.model.clock import Clock
from holdfast.model.commit import Commit, Verdict
from holdfast.model.effect import Effect, EffectState, Evidence
from holdfast.model.errors import InvalidValue, StoreBusy, StoreClosed, StoreError
from holdfast.model.memory import Subject
from holdfast.model.operations import Emit
from holdfast.model.queries import Loaded, Noun, Page, Pruned, QueueCounts, Summary, TaskFilter, Vitals
from holdfast.model.records import Account, Artifact, ArtifactLink, Checkpoint, Event, MemoryFact, PatchRecord
from holdfast.model.size import check_submission_size
from holdfast.model.step import Step
from holdfast.model.task import SCOPED_KEYS, JsonValue, NewTask, Submitted, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Claim, Claimed, Heartbeat, Lease, NewWorker, Swept, Worker
from holdfast.process_fork import watch
from holdfast.store.base import ANYTHING, Capabilities, Listener
from holdfast.store.checks import (
    check_age,
    check_commits,
    check_event_key,
    check_limit,
    check_payload,
    check_queue,
    check_range,
    check_task,
)
from holdfast.store.clock import SystemClock
from holdfast.store.facts import check_facts
from holdfast.store.handles import NoHandleLeft
from holdfast.store.hints import Hints
from holdfast.store.idparts import check_part
from holdfast.store.privacy import create_file
from holdfast.store.simple import SimpleInterface
from holdfast.store.sqlite import artifacts, lease, memory, retention, submission, user_transaction
from holdfast.store.sqlite import commit as committing
from holdfast.store.sqlite import sweep as sweeping
from holdfast.store.sqlite.connection import BUSY_TIMEOUT_MS, check_path, connect, translated
from holdfast.store.sqlite.gate import Gate, file_gate
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.place import FilePlace, look_before
from holdfast.store.sqlite.probe import ChangeProbe
from holdfast.store.sqlite.queries import Reader
from holdfast.store.sqlite.transaction import Transaction
from holdfast.store.sqlite.writer import MOST_HERE, Writer
from holdfast.store.transaction import Work
from holdfast.store.upload import Uploading, pruned_meanwhile

T = TypeVar("T")

_OPEN_AGAIN = (0.01, 0.05)
"""Seconds until a file that others are opening is tried again: at least, and at most."""

LOOK_EVERY = 1.0
"""Seconds after which a read also sees whether the store is still where it was opened; every write does."""

MANY = MOST_HERE + 1
"""Items of a write that may be long: it does not run on the event loop."""

HAND_BACK = 5
"""How much more a task costs that is handed back than one that is written."""

YIELD_EVERY = 0.002
"""Seconds of inline work after which the event loop gets a turn."""


class SqliteStore(Uploading, SimpleInterface):
    """Tasks in one SQLite file. ``durable=False`` trades the last commits before a power cut for speed."""

    capabilities = Capabilities(
        durable=True, multi_process=True, multi_machine=False, precise_hints=False, transactions=True
    )

    def __init__(self, path: str | Path, *, clock: Clock | None = None, durable: bool = True) -> None:
        """Name the file; ``open`` creates it where it is missing."""
        self.path = str(path)
        self._clock = clock or SystemClock()
        self._durable = durable
        self._hints = Hints()
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._slow_reader: Reader | None = None
        self._slow_thread: ThreadPoolExecutor | None = None
        self._probe: ChangeProbe | None = None
        self._file = str(Path(path).absolute())  # the working directory may change
        self._yielded = self._looked = time.monotonic()

    async def open(self) -> Self:
        """See StateStore. SQLite files migrate when they are opened."""
        self._check_not_open()
        check_path(Path(self._file))
        connections, place, gate = await self._open_patiently()
        self._reader, self._slow_reader = Reader(connections[1]), Reader(connections[2])
        self._slow_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-reader")
        self._writer = Writer(connections[0], self._file, gate, self._clock, place=place)
        self._probe = ChangeProbe(self._writer.foreign_version, self._hints)
        watch(self)
        return self

    async def _open_patiently(self) -> tuple[list[apsw.Connection], FilePlace, Gate]:
        """Open the file, and wait while others open it or this process has no file handle left, as for any lock.

        SQLite's own busy timeout does not cover all of opening: of many processes that make a new file into a store at
        once, it refuses some at once, because two of them could wait for each other.
        """
        give_up_at = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                with translated(self.path):
                    return self._open_files()
            except (StoreBusy, NoHandleLeft):
                if time.monotonic() > give_up_at:
                    raise
            await asyncio.sleep(random.uniform(*_OPEN_AGAIN))  # noqa: S311 - no secret, only not all at once

    def _open_files(self) -> tuple[list[apsw.Connection], FilePlace, Gate]:
        with ExitStack() as opened:
            create_file(self._file)
            before = look_before(self._file)
            connections = [opened.enter_context(closing(self._connect())) for _ in range(3)]
            migrate(connections[0], self.path)
            place = opened.enter_context(closing(FilePlace(self._file, connections, before)))
            if not place.is_certain:
                raise StoreBusy(f"{self.path} was replaced as it was opened; try again")
            gate = file_gate(self._file)
            opened.pop_all()  # from here on close() looks after them
        return connections, place, gate

    def _check_not_open(self) -> None:
        if self._writer is not None:
            self._writer.owner.check()
            raise StoreError(f"{self.path} is open already; use this store, or close it first")

    def _connect(self) -> apsw.Connection:
        return connect(self._file, durable=self._durable)

    async def close(self) -> None:
        """See StateStore."""
        writer = self._writer
        if writer is None or writer.owner.is_other:  # what is the parent's, a forked child must not close
            return
        self._writer = None
        with ExitStack() as closing_all:  # from the last line to the first, whatever one of them raises
            closing_all.callback(self._hints.publish, {ANYTHING})  # whoever still listens finds out by asking
            closing_all.callback(writer.close)
            for reader in (self._reader, self._slow_reader):
                if reader is not None:
                    closing_all.callback(reader.close)
            if self._slow_thread is not None:
                closing_all.callback(self._slow_thread.shutdown)
            if self._probe is not None:
                await self._probe.close()

    # Inside

    def _open_writer(self) -> Writer:
        if self._writer is None:
            raise StoreClosed(f"the store {self.path} is not open; use it inside `async with store:`")
        self._writer.owner.check()
        return self._writer

    def let_go(self) -> None:
        """Leave the connections to the parent, in a forked child; see inherited.py."""
        for holder in (self._writer, self._reader, self._slow_reader):
            if holder is not None:
                holder.let_go()

    async def _write(self, work: Callable[[Transaction], T], *, items: int = 1) -> T:
        writer = self._open_writer()
        with translated(self.path):
            result, hints = await writer.write(work, items=items)
        if hints:
            self._hints.publish(hints)
        await self._let_others_run()
        return result

    async def _read(self, question: Callable[[Reader], T]) -> T:
        """Answer from the loop's own thread: for questions that read a few rows by key."""
        await self._open_writer().settled()
        assert self._reader is not None  # noqa: S101 - open() makes both
        with translated(self.path):
            answer = question(self._reader)
        await self._let_others_run()
        return answer

    async def _read_slowly(self, question: Callable[[Reader], T]) -> T:
        """Answer from a thread: for questions that may look at very many rows."""
        self._open_writer()
        if self._slow_reader is None or self._slow_thread is None:
            return await self._read(question)
        with translated(self.path):
            return await asyncio.get_running_loop().run_in_executor(self._slow_thread, question, self._slow_reader)

    def check_place(self) -> None:
        """See StateStore."""
        self._open_writer().check_place()

    async def _read_apart(self, question: Callable[[Reader], T]) -> T:
        """Answer from a thread also where one connection does everything: this is known to take long."""
        writer, reader = self._open_writer(), self._reader
        if reader is None or self._slow_reader is not None:
            return await self._read_slowly(question)
        with translated(self.path):
            return await writer.work_apart(lambda: question(reader))

    async def _let_others_run(self) -> None:
        """Yield now and then: a loop of calls that all run inline would starve heartbeats and timeouts."""
        now = time.monotonic()
        if now - self._looked > LOOK_EVERY:
            self._looked = now
            if self._writer is not None:
                self._writer.check_place()
        if now - self._yielded > YIELD_EVERY:
            await asyncio.sleep(0)
            self._yielded = time.monotonic()

    # Work

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        """See WorkVerbs."""
        check_submission_size(tasks)
        for task in tasks:
            check_task(task)
        return await self._write(lambda tx: submission.submit_all(tx, tasks), items=len(tasks))

    async def register(self, worker: NewWorker) -> Worker:
        """See WorkVerbs."""
        return await self._write(lambda tx: lease.register(tx, worker))

    async def heartbeat(self, worker_id: str) -> Heartbeat:
        """See WorkVerbs."""
        return await self._write(lambda tx: lease.heartbeat(tx, worker_id))

    async def drain(self, worker_id: str) -> None:
        """See WorkVerbs."""
        await self._write(lambda tx: lease.drain(tx, worker_id))

    async def retire(self, worker_id: str) -> list[str]:
        """See WorkVerbs."""
        held = await self._read(lambda reader: len(reader.owned(worker_id)))
        return await self._write(lambda tx: lease.retire(tx, worker_id), items=max(held * HAND_BACK, 1))

    async def claim(self, claim: Claim) -> list[Claimed]:
        """See WorkVerbs."""
        return await self._write(lambda tx: lease.claim(tx, claim), items=claim.limit)

    async def has_suspect(self, claim: Claim) -> bool:
        """See WorkVerbs."""
        return await self._read(lambda reader: reader.has_suspect(claim))

    async def acquire(self, task_id: str, worker_id: str, *, key_form: int = SCOPED_KEYS) -> Claimed:
        """See WorkVerbs."""
        return await self._write(lambda tx: lease.acquire(tx, task_id, worker_id, key_form=key_form))

    async def owned(self, worker_id: str) -> list[Lease]:
        """See WorkVerbs."""
        return await self._read(lambda reader: reader.owned(worker_id))

    async def sweep(self, limit: int = 100) -> Swept:
        """See WorkVerbs."""
        check_limit(limit)

        def work(tx: Transaction) -> Swept:
            stalled = self._writer.stalled_until if self._writer else None
            return sweeping.sweep(tx, limit, stalled_until=None if stalled is None else round(stalled * 1_000_000))

        return await self._write(work)

    async def commit(self, commits: Sequence[Commit]) -> list[Verdict]:
        """See WorkVerbs."""
        check_commits(commits)
        items = await self._items_of(commits)
        try:
            return await self._write(lambda tx: committing.apply_all(tx, commits), items=items)
        except (apsw.ConstraintError, InvalidValue):
            # Something the database itself refuses: send them again, each behind a savepoint of its own.
            return await self._write(lambda tx: committing.apply_all(tx, commits, one_by_one=True), items=items)

    async def _items_of(self, commits: Sequence[Commit]) -> int:
        """Say how much work the Commits are: an event wakes everybody who waits for it."""
        channels = {op.channel for commit in commits for op in commit.operations if type(op) is Emit}
        for channel in channels:
            if await self._read(lambda reader, channel=channel: reader.has_many_waiting(channel)):  # type: ignore[misc]
                return MANY
        return len(commits)

    async def transact(self, work: Work[T], *, timeout: float) -> tuple[T, Verdict | None]:
        """See StateStore."""
        value, verdict, hints = await user_transaction.transact(self._open_writer(), self.path, work, timeout)
        self._hints.publish(hints)
        return value, verdict

    async def load(self, task_id: str, *, after: int = 0) -> Loaded:
        """See WorkVerbs."""
        if await self._read(lambda reader: reader.is_long(task_id)):
            return await self._read_apart(lambda reader: reader.load(task_id, after))
        return await self._read(lambda reader: reader.load(task_id, after))

    async def emit(self, channel: str, payload: JsonValue, *, key: str | None = None, actor: str = "emit") -> Event:
        """See WorkVerbs."""
        check_name("channel", channel)
        check_text("actor", actor)
        check_event_key(key)
        check_payload("payload", payload)
        items = MANY if await self._read(lambda reader: reader.has_many_waiting(channel)) else 1
        return await self._write(lambda tx: submission.emit(tx, channel, payload, key=key, actor=actor), items=items)

    # Reads

    async def get(self, task_id: str) -> Task | None:
        """See Reads."""
        return await self._read(lambda reader: reader.get(task_id))

    async def standing(self, task_id: str) -> Task | None:
        """See Reads."""
        return await self._read(lambda reader: reader.standing(task_id))

    async def find(
        self,
        where: TaskFilter | None = None,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = True,
    ) -> Page[Task]:
        """See Reads."""
        check_limit(limit)
        return await self._read_slowly(
            lambda reader: reader.find(where or TaskFilter(), limit=limit, after=after, newest_first=newest_first)
        )

    async def count(self, where: TaskFilter | None = None) -> dict[TaskState, int]:
        """See Reads."""
        return await self._read_slowly(lambda reader: reader.count(where or TaskFilter()))

    async def summary(self) -> Summary:
        """See Reads."""
        return await self._read_slowly(lambda reader: reader.summary())

    async def queues(self) -> list[QueueCounts]:
        """See Reads."""
        return await self._read_slowly(lambda reader: reader.queues(self._clock.now()))

    async def queued(self, *, queue: str | None = None, limit: int = 50, after: str | None = None) -> Page[Task]:
        """See Reads."""
        check_queue(queue)
        check_limit(limit)
        return await self._read_slowly(
            lambda reader: reader.queued(self._clock.now(), queue=queue, limit=limit, after=after)
        )

    async def ids(self, noun: Noun, part: str, *, limit: int = 10) -> list[str]:
        """See Reads."""
        check_part(noun, part)
        check_limit(limit)
        return await self._read_slowly(lambda reader: reader.ids(noun, part, limit))

    async def vitals(self, *, thorough: bool = False) -> Vitals:
        """See Reads."""
        file = Path(self._file)
        return await self._read_slowly(lambda reader: reader.vitals("SQLite", file=file, thorough=thorough))

    async def history(self, task_id: str) -> list[Transition]:
        """See Reads."""
        return await self._read(lambda reader: reader.history(task_id))

    async def steps(self, task_id: str) -> list[Step]:
        """See Reads."""
        return await self._read(lambda reader: reader.steps(task_id))

    async def revisions(self, task_ids: Collection[str]) -> dict[str, int]:
        """See Reads."""
        return await self._read(lambda reader: reader.revisions(task_ids))

    async def step(self, task_id: str, key: str, *, of_round: int) -> Step | None:
        """See Reads."""
        return await self._read(lambda reader: reader.step(task_id, key, of_round))

    async def last_steps(self, task_ids: Collection[str]) -> dict[str, Step]:
        """See Reads."""
        return await self._read(lambda reader: reader.last_steps(task_ids))

    async def effects(
        self,
        *,
        task_id: str | None = None,
        effect_id: str | None = None,
        states: Collection[EffectState] | None = None,
        limit: int = 100,
    ) -> list[Effect]:
        """See Reads."""
        check_limit(limit)
        return await self._read_slowly(
            lambda reader: reader.effects(task_id=task_id, effect_id=effect_id, states=states, limit=limit)
        )

    async def evidence(self, task_id: str, effect_id: str) -> list[Evidence]:
        """See Reads."""
        return await self._read(lambda reader: reader.evidence(task_id, effect_id))

    async def patches(self, task_id: str, *, after: int = 0) -> list[PatchRecord]:
        """See Reads."""
        return await self._read(lambda reader: reader.patches(task_id, after))

    async def checkpoints(self, task_id: str) -> list[Checkpoint]:
        """See Reads."""
        return await self._read(lambda reader: reader.checkpoints(task_id))

    async def approvals(
        self, *, task_id: str | None = None, states: Collection[ApprovalState] | None = None, limit: int = 100
    ) -> list[Approval]:
        """See Reads."""
        check_limit(limit)
        return await self._read_slowly(lambda reader: reader.approvals(task_id, states, limit))

    async def approval(self, approval_id: str) -> Approval | None:
        """See Reads."""
        return await self._read(lambda reader: reader.approval(approval_id))

    async def accounts(self, account: str) -> list[Account]:
        """See Reads."""
        return await self._read(lambda reader: reader.accounts(account))

    async def workers(self) -> list[Worker]:
        """See Reads."""
        return await self._read(lambda reader: reader.workers())

    async def events(self, channel: str, *, after: int = 0, limit: int = 100) -> list[Event]:
        """See Reads."""
        check_limit(limit)
        return await self._read(lambda reader: reader.events(channel, after, limit))

    async def position(self, channel: str, *, before_task: str | None = None) -> int:
        """See Reads."""
        if before_task is None:
            return await self._read(lambda reader: reader.position(channel))
        return await self._read_slowly(lambda reader: reader.position_at_submission(channel, before_task))

    # Keeping

    async def _put_whole(self, content: bytes, media_type: str) -> Artifact:
        items = 1 + (len(content) >> 16)
        artifact_id = await self._write(lambda tx: artifacts.put_whole(tx, content, media_type), items=items)
        return await self._stored_artifact(artifact_id)

    async def _begin_upload(self, upload: str) -> None:
        await self._write(lambda tx: artifacts.begin(tx, upload))

    async def _stage(self, upload: str, number: int, piece: bytes) -> None:
        items = 1 + (len(piece) >> 16)
        await self._write(lambda tx: artifacts.stage(tx, upload, number, piece), items=items)

    async def _finish_upload(self, upload: str, artifact_id: str, size: int, media_type: str) -> Artifact:
        await self._write(lambda tx: artifacts.finish(tx, upload, artifact_id, size, media_type))
        return await self._stored_artifact(artifact_id)

    async def _discard_upload(self, upload: str) -> None:
        await self._write(lambda tx: artifacts.discard(tx, upload))

    async def _stored_artifact(self, artifact_id: str) -> Artifact:
        if (artifact := await self.artifact(artifact_id)) is None:
            raise pruned_meanwhile(f"artifact {artifact_id}")
        return artifact

    async def artifact(self, artifact_id: str) -> Artifact | None:
        """See Keeping."""
        return await self._read(lambda reader: reader.artifact(artifact_id))

    async def read_artifact(self, artifact_id: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """See Keeping."""
        check_range(offset, length)
        return await self._read_slowly(lambda reader: reader.read_artifact(artifact_id, offset, length))

    async def artifact_links(self, task_id: str) -> list[ArtifactLink]:
        """See Keeping."""
        return await self._read(lambda reader: reader.artifact_links(task_id))

    async def remember(self, *facts: MemoryFact, seen: Subject | None = None) -> list[MemoryFact]:
        """See Keeping."""
        check_facts(facts, seen)
        return await self._write(lambda tx: memory.remember(tx, facts, seen), items=len(facts))

    async def fact(self, fact_id: str) -> MemoryFact | None:
        """See Keeping."""
        return await self._read(lambda reader: reader.fact(fact_id))

    async def subject(
        self, entity: str, attribute: str, *, other: str | None = None, also: Collection[str] = ()
    ) -> Subject:
        """See Keeping."""
        return await self._read(lambda reader: reader.subject(entity, attribute, other, also, self._clock.now()))

    async def recall(
        self,
        entity: str | None = None,
        attribute: str | None = None,
        *,
        other: str | None = None,
        live: bool = False,
        contested: bool = False,
        after: MemoryFact | None = None,
        limit: int = 100,
    ) -> list[MemoryFact]:
        """See Keeping."""
        check_limit(limit)
        return await self._read_slowly(
            lambda reader: reader.recall(
                entity=entity,
                attribute=attribute,
                other=other,
                live=live,
                contested=contested,
                after=after,
                limit=limit,
            )
        )

    async def search(self, text: str, *, limit: int = 100) -> list[MemoryFact]:
        """See Keeping."""
        check_limit(limit)
        return await self._read_slowly(lambda reader: reader.search(text, limit))

    async def forget(self, fact_id: str) -> bool:
        """See Keeping."""
        return await self._write(lambda tx: memory.forget(tx, fact_id))

    async def add_evidence(self, evidence: Evidence) -> None:
        """See Keeping."""
        await self._write(lambda tx: retention.add_evidence(tx, evidence))

    async def prune(self, older_than: timedelta, *, limit: int = 1000) -> Pruned:
        """See Keeping."""
        check_limit(limit)
        check_age(older_than)
        microseconds = older_than // timedelta(microseconds=1)
        return await self._write(lambda tx: retention.prune(tx, microseconds, limit), items=limit)

    # Notice

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Listener]:
        """See StateStore."""
        self._open_writer()
        async with self._hints.listening() as listener:
            if self._probe is not None:
                self._probe.wake()
            yield listener

    async def now(self) -> datetime:
        """See StateStore."""
        if self._writer is not None:
            self._writer.owner.check()
        return self._clock.now()
