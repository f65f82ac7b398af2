"""Random sequences of all writing verbs, sent to a store and to the oracle, whose every answer must be equal."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.strategies import DataObject

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Commit, Expect, Held, Verdict
from holdfast.model.effect import EffectState, Evidence
from holdfast.model.errors import HoldfastError
from holdfast.model.feed import OLDEST, FeedRetention
from holdfast.model.flow_limit import Limit, LimitUse, PermitReturn
from holdfast.model.memory import Subject
from holdfast.model.operations import Operation
from holdfast.model.queries import Loaded, Noun, Page
from holdfast.model.queue_settings import KEEP, Keep
from holdfast.model.task import FLAT_KEYS, SCOPED_KEYS, NewTask, Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, Claimed, NewWorker, WorkerState
from holdfast.store.simple import SimpleInterface
from holdfast.store.sqlite.store import SqliteBackend
from holdfast.testing.snapshot import snapshot
from tests.store.limit_counters import check_counters
from tests.store.stateful import strategies as make
from tests.store.stateful.oracle import limiting
from tests.store.stateful.oracle.tables import READY_ALONE, TaskRow
from tests.store.stateful.oracle_store import OracleStore

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
ENDS = ["completed", "failed", "cancelled"]
AGES = [timedelta(0), timedelta(seconds=20), timedelta(seconds=45)]

Ask = Callable[[SimpleInterface], Awaitable[Any]]


class StoreMachine(RuleBasedStateMachine):
    """One example: an empty store, an empty oracle, one clock for both."""

    def __init__(self, make_store: Callable[[ManualClock], SimpleInterface]) -> None:
        super().__init__()
        self.clock = ManualClock(START)
        self.runner = asyncio.Runner()
        self.opened = AsyncExitStack()
        oracle = OracleStore(self.clock)
        self.oracle = oracle._backend.oracle
        self.stores = self.run(self._open(make_store(self.clock), oracle))
        self.requests = 0
        self.workers = 2
        self.seen: dict[tuple[SimpleInterface, str | None], Subject] = {}
        """Of each store, how a subject was when it was looked at last."""

    async def _open(self, *stores: SimpleInterface) -> tuple[SimpleInterface, ...]:
        return tuple([await self.opened.enter_async_context(store) for store in stores])

    def teardown(self) -> None:
        try:
            self.the_feed_is_the_same()
        finally:
            self.run(self.opened.aclose())
            self.runner.close()

    def the_feed_is_the_same(self) -> None:
        """What happened to one thing, in order. Events of several things in one verb may be in another order."""
        found, expected = (self.run(_feed(store)) for store in self.stores)
        assert found.keys() == expected.keys()
        for thing, events in expected.items():
            # Of two lines of one Commit under one key, PostgreSQL writes the last one.
            is_fine = _is_part(found[thing], events) if thing[1] == "step" else found[thing] == events
            assert is_fine, (thing, found[thing], events)

    def run(self, awaitable: Awaitable[Any]) -> Any:  # noqa: ANN401 - whatever the verb answers
        async def wait() -> Any:  # noqa: ANN401 - as above
            return await awaitable

        return self.runner.run(wait())

    def both(self, ask: Ask, *, but: str | None = None) -> Any:  # noqa: ANN401 - as above
        """Ask the store and the oracle the same; return the answer, which must be one, but for a field of it."""
        answer, expected = (self.run(_answer(ask, store)) for store in self.stores)
        if but is not None and hasattr(answer, but):
            answer = replace(answer, **{but: getattr(expected, but)})
        assert answer == expected
        return answer

    def waiting(self) -> list[TaskRow]:
        """Return the tasks that stand in the line of a limit."""
        return list(limiting.waiting_tasks(self.oracle.tables))

    def now(self) -> datetime:
        return self.clock.now()

    def task(self, task_id: str) -> Task | None:
        return self.oracle.get(task_id)

    # What the rules are about: mostly what is there, sometimes what is not

    def draw_task(self, data: DataObject) -> str:
        return data.draw(make.now_and_then(sorted(self.oracle.tables.tasks) or ["t1"], list(make.TASKS)))

    def draw_worker(self, data: DataObject) -> str:
        workers = self.oracle.workers()
        living = [worker.id for worker in workers if worker.state is not WorkerState.DEAD]
        gone = [worker.id for worker in workers if worker.state is WorkerState.DEAD]
        return data.draw(make.now_and_then(living or ["unknown"], [*gone, "unknown"]))

    # Tasks

    @initialize(tasks=st.lists(make.new_tasks(START), min_size=2, max_size=5))
    def begin(self, tasks: list[NewTask]) -> None:
        """Some work and two workers that have begun it, so that something can go wrong."""
        self.both(lambda store: store.set_feed_retention(FeedRetention(age=timedelta(days=36500))))
        for limit in make.FIRST_LIMITS:
            self.set_limit(limit)
        self.both(lambda store: store.submit(tasks))
        for worker_id in ("w1", "w2"):
            self._register(NewWorker(id=worker_id, lease=30))
            self._claim(Claim(worker_id=worker_id, number=1, limit=2, queues=make.QUEUES, names=make.NAMES))

    @rule(data=st.data())
    def submit(self, data: DataObject) -> None:
        tasks = data.draw(st.lists(make.new_tasks(self.now()), min_size=1, max_size=3))
        self.both(lambda store: store.submit(tasks))

    @rule(data=st.data())
    def save(self, data: DataObject) -> None:
        """Store a task by hand, or bring a stored one to another state."""
        stored = self.task(self.draw_task(data))
        if stored is None or data.draw(st.sampled_from([False, False, True])):
            new = data.draw(make.new_tasks(self.now()))
            stored = Task(id=new.id, name=new.name, user_input=new.user_input, key=new.key, priority=new.priority)
        task = replace(stored, state=data.draw(st.sampled_from(make.SAVED_STATES)), result="by hand")
        self.both(lambda store: store.save(task))

    # Workers

    @rule(data=st.data(), lease=st.sampled_from([10.0, 30.0]))
    def register(self, data: DataObject, lease: float) -> None:
        """A fresh incarnation, or now and then one that registered before."""
        self.workers += 1
        worker_id = data.draw(make.now_and_then([f"w{self.workers}"], ["w1", "w2"]))
        self._register(NewWorker(id=worker_id, lease=lease, details={"pid": self.workers}))

    def _register(self, worker: NewWorker) -> None:
        self.both(lambda store: store.register(worker))

    @rule(data=st.data(), verb=st.sampled_from(["heartbeat", "heartbeat", "heartbeat", "drain", "retire"]))
    def tell(self, data: DataObject, verb: str) -> None:
        """A worker lives on, or begins to leave, or leaves."""
        worker_id = self.draw_worker(data)
        limited_suspects = any(row.ready == READY_ALONE for row in self.waiting())  # known at the next look
        self.both(lambda store: getattr(store, verb)(worker_id), but="suspects" if limited_suspects else None)

    @rule(data=st.data(), ahead=st.sampled_from([1, 1, 1, 1, 0, -1, 3]), limit=st.sampled_from([10, 10, 2, 1, 0]))
    def claim(self, data: DataObject, ahead: int, limit: int) -> None:
        """Claim under the next number, or repeat an earlier one, or leave some out."""
        worker_id = self.draw_worker(data)
        worker = next((found for found in self.oracle.workers() if found.id == worker_id), None)
        queues, names = data.draw(st.sampled_from(_CLAIMED))
        self._claim(
            Claim(
                worker_id=worker_id,
                number=max(1, (worker.claims if worker else 0) + ahead),
                limit=limit,
                queues=queues,
                names=names,
                alone=data.draw(st.booleans()) if self._has_suspects() else False,
                key_form=data.draw(make.now_and_then([SCOPED_KEYS], [FLAT_KEYS])),
            )
        )

    def _claim(self, asked: Claim) -> None:
        """Ask for tasks; of those with limits only if all of them are about the same.

        One that no claim of this form, or none at all, can get until the next sweep keeps its place in its line.
        """
        if any(row.task.deadline is not None and row.task.deadline <= self.now() for row in self.waiting()):
            self._sweep(100)
        if any(row.task.limits for row in self.oracle.tables.tasks.values()):
            asked = replace(asked, key_form=SCOPED_KEYS)
        self.both(lambda store: store.claim(asked))

    def _has_suspects(self) -> bool:
        return any(row.ready == READY_ALONE for row in self.oracle.tables.tasks.values())

    @rule(data=st.data())
    def acquire(self, data: DataObject) -> None:
        task_id, worker_id = self.draw_task(data), self.draw_worker(data)
        key_form = data.draw(make.now_and_then([SCOPED_KEYS], [FLAT_KEYS]))
        self.both(lambda store: store.acquire(task_id, worker_id, key_form=key_form))

    # Pauses

    @rule(data=st.data(), begins=st.booleans())
    def pause(self, data: DataObject, begins: bool) -> None:
        """Pause a queue, a name or a task, or unpause what is paused, or is not."""
        task_id = self.draw_task(data)
        of_limits = ["limit:openai", "limit:tenant", "limit:tenant:a", "limit:unknown"]
        subjects = [
            task_id,
            task_id,
            f"queue:{make.QUEUES[0]}",
            f"task:{make.NAMES[0]}",
            data.draw(st.sampled_from(of_limits)),
        ]
        subject = data.draw(st.sampled_from(subjects))
        if begins:
            self.both(lambda store: store.pause(subject, by="ann", reason=None))
        else:
            paused = [pause.subject for pause in self.oracle.pauses()]
            ended = data.draw(make.now_and_then(paused or [subject], [subject]))
            self.both(lambda store: store.unpause(ended))

    @rule(
        queue=st.sampled_from(make.QUEUES),
        retention=st.none() | st.dictionaries(st.sampled_from(ENDS), st.sampled_from(AGES)),
    )
    def keep_ended_tasks(self, queue: str, retention: dict[str, timedelta] | None) -> None:
        """Let a queue keep its ended tasks only so long."""
        self.both(lambda store: store.set_queue(queue, retention=retention))

    @rule(pending=st.sampled_from([KEEP, None, 0, 2, 5]), working=st.sampled_from([KEEP, None, 1, 1, 2]))
    def limit_queue(self, pending: int | Keep | None, working: int | Keep | None) -> None:
        """Let a queue refuse submissions from a number of pending tasks on, and let no more than so many be at work."""
        self.both(lambda store: store.set_queue(make.QUEUES[0], max_pending=pending, concurrency=working))

    @rule(queue=st.sampled_from(make.QUEUES), label=st.sampled_from([None, "tenant", "tenant", "tenant", "kind"]))
    def take_turns(self, queue: str, label: str | None) -> None:
        """Let the tasks of a queue take turns by a label, or not."""
        self.both(lambda store: store.set_queue(queue, fair_by=label))

    # Limits

    @rule(limit=make.new_limits())
    def change_limit(self, limit: Limit) -> None:
        self.set_limit(limit)

    def set_limit(self, limit: Limit) -> None:
        self.both(lambda store: store.set_limit(limit))

    @rule(keys=st.lists(st.sampled_from(make.LIMIT_KEYS), min_size=1, max_size=2), seconds=st.sampled_from([-1, 3, 10]))
    def close_limit(self, keys: list[str], seconds: int) -> None:
        until = self.now() + timedelta(seconds=seconds)
        self.both(lambda store: store.close_limit(keys, until))

    @rule(data=st.data())
    def take_permits(self, data: DataObject) -> None:
        """Ask for some, new ones and the same again."""
        worker_id, task_id = self.draw_worker(data), self.draw_task(data)
        requests = data.draw(st.lists(make.permit_requests(worker_id, task_id), min_size=1, max_size=3))
        self.both(lambda store: store.take_permits(requests))

    @rule(ids=st.lists(st.sampled_from(make.PERMITS), min_size=1, max_size=2), tokens=st.sampled_from([None, 0, 3, 20]))
    def return_permits(self, ids: list[str], tokens: int | None) -> None:
        returned = [PermitReturn(id=permit_id, tokens=tokens) for permit_id in ids]
        self.both(lambda store: store.return_permits(returned))

    # Commits

    @rule(data=st.data())
    def go_on(self, data: DataObject) -> None:
        """A worker goes on with a task it holds."""
        held = [row.task for row in self.oracle.tables.tasks.values() if row.task.owner is not None]
        if held:
            task = data.draw(st.sampled_from(held))
            guard = Held(owner=task.owner or "", fence=max(1, task.fence), sequence=task.sequence + 1)
            commit = self._commit(data, task.id, guard)
            self.both(lambda store: store.commit([commit]))

    @rule(data=st.data())
    def raise_children(self, data: DataObject) -> None:
        """A parent begins a child again, with whatever else it commits; or gets one that has ended."""
        held = [row.task for row in self.oracle.tables.tasks.values() if row.task.owner is not None]
        if not held:
            return
        parent = data.draw(st.sampled_from([task for task in held if self._ended_children(task.id)] or held))
        guard = Held(owner=parent.owner or "", fence=max(1, parent.fence), sequence=parent.sequence + 1)
        children = self._ended_children(parent.id)
        if not children:
            free = sorted(set(make.TASKS) - set(self.oracle.tables.tasks))
            born = data.draw(make.ended_children(self.now(), free or list(make.TASKS)))
            commit = Commit(task_id=parent.id, guard=guard, operations=(born,), actor="alice")
            self.both(lambda store: store.commit([commit]))
            return
        reopening: Operation = data.draw(make.reopenings(children, self.now()))
        besides = data.draw(make.now_and_then([False], [True]))
        commit = (
            self._commit(data, parent.id, guard) if besides else Commit(task_id=parent.id, guard=guard, operations=())
        )
        commits = [replace(commit, operations=(reopening, *commit.operations))]
        if data.draw(st.booleans()):
            commits.append(self._guarded_commit(data, Counter({parent.id: 1})))
        self.both(lambda store: store.commit(commits))
        if data.draw(st.booleans()):
            self.both(lambda store: store.commit(commits))

    def _ended_children(self, parent_id: str) -> list[Task]:
        tasks = (row.task for row in self.oracle.tables.tasks.values())
        return [task for task in tasks if task.parent_id == parent_id and task.state.is_terminal]

    @rule(data=st.data())
    def intervene(self, data: DataObject) -> None:
        """Another caller changes a task."""
        commit = self._commit(data, self.draw_task(data), self._fresh_request())
        self.both(lambda store: store.commit([commit]))

    @rule(data=st.data(), lost=st.booleans())
    def commit(self, data: DataObject, *, lost: bool) -> None:
        """A batch of Commits of any tasks, under guards of all kinds; sent again if the answer is lost."""
        sent: Counter[str] = Counter()
        commits = [self._guarded_commit(data, sent) for _ in range(data.draw(st.integers(2, 4)))]
        self.both(lambda store: store.commit(commits))
        if lost:
            self.both(lambda store: store.commit(commits))

    def _guarded_commit(self, data: DataObject, sent: Counter[str]) -> Commit:
        task_id = self.draw_task(data)
        task = self.task(task_id)
        if task is None or task.owner is None:
            return self._commit(data, task_id, self._expect(data, task))
        sent[task_id] += 1
        return self._commit(data, task_id, _held(data, task, sent[task_id]))

    def _commit(self, data: DataObject, task_id: str, guard: Held | Expect) -> Commit:
        one = make.operations(task_id, self.now(), held=isinstance(guard, Held))
        operations: list[Operation] = data.draw(st.lists(one, max_size=4))
        if data.draw(st.booleans()):
            task = self.task(task_id)
            move = data.draw(make.moves(task_id, task.state if task else TaskState.PENDING, self.now()))
            operations.insert(data.draw(st.integers(0, len(operations))), move)
        actor = data.draw(st.sampled_from(["alice", "bob"]))
        return Commit(task_id=task_id, guard=guard, operations=tuple(operations), actor=actor)

    def _expect(self, data: DataObject, task: Task | None) -> Expect:
        revision, version, state = (task.revision, task.version, task.state) if task else (1, 0, TaskState.PENDING)
        fresh = self._fresh_request()
        return data.draw(
            make.now_and_then(
                [
                    fresh,
                    replace(fresh, revision=revision),
                    replace(fresh, version=version),
                    replace(fresh, states=frozenset({state, TaskState.PENDING})),
                    replace(fresh, request="again"),
                ],
                [
                    replace(fresh, revision=revision + 1),
                    replace(fresh, version=version + 1),
                    replace(fresh, states=frozenset({TaskState.CANCELLED})),
                ],
            )
        )

    def _fresh_request(self) -> Expect:
        self.requests += 1
        return Expect(request=f"request {self.requests}")

    @rule(data=st.data(), payload=st.sampled_from(make.PAYLOADS), key=st.sampled_from([None, None, "k1"]))
    def emit(self, data: DataObject, payload: object, key: str | None) -> None:
        channel = data.draw(st.sampled_from(make.CHANNELS))
        self.both(lambda store: store.emit(channel, payload, key=key))

    # Time

    @rule(seconds=st.sampled_from([0.001, 1, 5, 5, 10, 30]), limit=st.sampled_from([100, 100, 2, 1]))
    def let_time_pass(self, seconds: float, limit: int) -> None:
        self.clock.advance(seconds)
        self._sweep(limit)

    def _sweep(self, limit: int) -> None:
        # When a store looks at a line again, depends on what it let out of it before.
        self.both(lambda store: store.sweep(limit), but="next_due" if self.waiting() else None)

    @rule(seconds=st.sampled_from([1, 5, 30]))
    def let_time_pass_unnoticed(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # Everything else

    @rule(data=st.data(), age=st.sampled_from([0, 30, 60]), limit=st.sampled_from([1000, 1000, 1, 2]))
    def keep(self, data: DataObject, age: int, limit: int) -> None:
        """Store and prune what lives outside one task."""
        content = data.draw(st.sampled_from(make.CONTENTS))
        evidence = Evidence(task_id=self.draw_task(data), effect_id="e1", fence=1, body=b"late")
        chosen: Ask = data.draw(
            st.sampled_from(
                [
                    lambda store: store.put_artifact(content, media_type="text/plain"),
                    lambda store: store.add_evidence(evidence),
                    lambda store: store.prune(timedelta(seconds=age), limit=limit),
                ]
            )
        )
        self.both(chosen)

    # Memory

    @rule(other=st.sampled_from(make.OTHERS), also=st.sets(st.sampled_from(make.FACTS), max_size=2))
    def look(self, other: str | None, also: set[str]) -> None:
        """Read a subject, and remember how each store showed it."""
        self.both(lambda store: store.subject("alice", "likes", other=other, also=also))
        for store in self.stores:
            self.seen[store, other] = self.run(store.subject("alice", "likes", other=other))

    @rule(data=st.data(), as_seen=st.booleans())
    def remember(self, data: DataObject, as_seen: bool) -> None:
        """Change a subject, or two at once, with or without the version that was read."""
        facts = data.draw(st.lists(make.facts(self.now()), min_size=1, max_size=3))
        other = facts[0].other
        self.both(lambda store: store.remember(*facts, seen=self.seen.get((store, other)) if as_seen else None))

    @rule(fact_id=st.sampled_from(make.FACTS), text=st.sampled_from(make.SEARCHED), contested=st.booleans())
    def recollect(self, fact_id: str, text: str, contested: bool) -> None:
        """Ask about facts what a snapshot does not."""
        after = self.both(lambda store: store.fact(fact_id))
        self.both(lambda store: store.search(text))
        self.both(lambda store: store.recall("alice", live=True, contested=contested, after=after, limit=2))
        self.both(lambda store: store.recall(attribute="likes", other="bob"))

    @rule(fact_id=st.sampled_from(make.FACTS))
    def forget(self, fact_id: str) -> None:
        self.both(lambda store: store.forget(fact_id))

    @rule(data=st.data(), newest_first=st.booleans())
    def ask(self, data: DataObject, *, newest_first: bool) -> None:
        """Ask what a snapshot does not."""
        channel = data.draw(st.sampled_from(make.CHANNELS))
        task_id = self.draw_task(data)
        self.both(lambda store: store.position(channel))
        self.both(lambda store: store.position(channel, before_task=task_id))
        where = data.draw(make.filters(self.now()))
        self.both(lambda store: store.find(where, limit=2, newest_first=newest_first))
        self.both(lambda store: store.count(where))
        noun = data.draw(st.sampled_from(list(Noun)))
        part = data.draw(st.sampled_from(["t", "w", "e", "f", "1", "2", "t1"]))
        self.both(lambda store: store.ids(noun, part, limit=2))
        self.both(lambda store: store.queues())
        queue = data.draw(st.none() | st.sampled_from(make.QUEUES))
        first = self.both(lambda store: store.queued(queue=queue, limit=2))
        self.both(lambda store: store.queued(queue=queue, limit=2, after=first.next))
        self.both(lambda store: store.load(task_id, after=10))
        states = data.draw(st.sets(st.sampled_from(list(EffectState)), max_size=3))
        self.both(lambda store: store.effects(effect_id="e1"))
        self.both(lambda store: store.effects(states=states))

    @invariant()
    def everything_is_the_same(self) -> None:
        self.both(_everything)

    @invariant()
    def every_counter_is_true(self) -> None:
        """What SQLite keeps beside the rows of tasks, permits and uses."""
        backend = self.stores[0]._backend
        if isinstance(backend, SqliteBackend) and backend.reader is not None:
            check_counters(backend.reader.connection)


_CLAIMED: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (make.QUEUES, make.NAMES),
    (make.QUEUES, make.NAMES),
    (make.QUEUES, make.NAMES),
    (("slow", "fast", "none"), ("deploy",)),
    (("fast",), make.NAMES),
    (make.QUEUES, ()),
]


def _held(data: DataObject, task: Task, number: int) -> Held:
    """Guard the Commit by the lease that stands, or by something close to it."""
    guard = Held(owner=task.owner or "", fence=max(1, task.fence), sequence=task.sequence + number)
    wrong = [
        replace(guard, owner="thief"),
        replace(guard, fence=max(1, guard.fence - 1)),
        replace(guard, sequence=guard.sequence + 1),
        replace(guard, sequence=max(1, guard.sequence - 1)),
    ]
    return data.draw(make.now_and_then([guard], wrong))


async def _answer(ask: Ask, store: SimpleInterface) -> object:
    try:
        return _comparable(await ask(store))
    except HoldfastError as error:
        return type(error)


_Happened = tuple[str, tuple[tuple[str, Any], ...]]


async def _feed(store: SimpleInterface) -> dict[tuple[str | None, str, Any], list[_Happened]]:
    """Return what the feed has, in order, by task, family of kinds, and what the kinds are about."""
    cursor = (await store.read_feed(OLDEST)).cursor
    found: dict[tuple[str | None, str, Any], list[_Happened]] = {}
    while (page := await store.read_feed(cursor)).events:
        for event in page.events:
            family, data = event.kind.partition(".")[0], event.data
            about = (event.round, data["key"]) if family == "step" else data.get("approval_id")
            about = about or data.get("effect_id") or data.get("meter") or data.get("worker_id")
            found.setdefault((event.task_id, family, about), []).append((event.kind, tuple(sorted(data.items()))))
        cursor = page.cursor
    return found


def _is_part(found: list[_Happened], events: list[_Happened]) -> bool:
    """Say whether what was found is among the events, in their order, with the last of them."""
    rest = iter(events)
    return all(one in rest for one in found) and found[-1] == events[-1]


async def _everything(store: SimpleInterface) -> dict[str, Any]:
    return await snapshot(store, accounts=(make.SHARED_ACCOUNT,), channels=make.CHANNELS, artifacts=make.ARTIFACTS)


def _comparable(answer: Any) -> Any:  # noqa: ANN401, PLR0911 - whatever the verb answers; one case a kind
    """Leave out what may differ: words for people, and the identity of exceptions."""
    match answer:
        case Task():
            # In which line a task with several limits stands, depends on when a store looked at it.
            assert answer.waits_for in {None, *answer.limits}
            return replace(answer, waits_for=None)
        case Claimed() | Loaded():
            answer = replace(answer, task=_comparable(answer.task))
            if isinstance(answer, Loaded):
                answer = replace(answer, reservations=tuple(sorted(answer.reservations, key=repr)))
            return answer
        case Page():
            return replace(answer, items=tuple(_comparable(item) for item in answer.items))
        case [LimitUse(), *_]:
            # A key that nothing uses may be noted by one store, and not by another.
            known = (use for use in answer if use != LimitUse(key=use.key, limit=use.limit))
            uses = sorted((replace(use, waiting=0) for use in known), key=lambda use: use.key)
            return uses, sum(use.waiting for use in answer)
        case Verdict():
            refusals = (answer.budget, answer.full, answer.no_place)
            plain = replace(answer, detail="", budget=None, full=None, no_place=None)
            return plain, *(one and vars(one) for one in refusals)
        case Subject():
            return replace(answer, mark=None if answer.mark is None else "some mark")
        case list():
            return [_comparable(item) for item in answer]
        case dict():
            return {key: _comparable(item) for key, item in answer.items()}
        case _:
            return answer
