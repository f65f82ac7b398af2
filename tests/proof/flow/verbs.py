"""The verbs that steer the flow of work, each with what it finds and what it answers: once, and sent again.

No two of them touch the same tasks, queues or schedules: all are prepared in one database and sent one after the other.
"""

# ruff: noqa: ANN401, ARG001 - options of the engine's verbs; a task takes its ctx, whether it needs it or not

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import Context, Holdfast, ManualClock, NewTask, TaskExists
from holdfast.engine.schedules.firer import Firer
from holdfast.model.queries import TaskFilter
from holdfast.model.schedule import StoredSchedule
from holdfast.model.worker import Claim, NewWorker

PREPARED_AT = datetime(2026, 1, 1, tzinfo=UTC)
SENT_AT = datetime(2026, 1, 1, 3, 30, tzinfo=UTC)
HOUR, YEAR = timedelta(hours=1), timedelta(days=365)

COUNTING = ("queues", "queue_changes")


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One verb of an application."""

    name: str
    prepare: Callable[[Holdfast], Awaitable[object]] | None = None
    send: Callable[[Holdfast], Awaitable[object]]
    first: object
    """What it answers."""
    again: object
    """What it answers where it was done before: by a process that did not live to hear its answer."""
    tables: tuple[str, ...]
    """The tables of PostgreSQL that it writes after it has begun, in this order: if another session has locked the
    table, it waits there. If the verb is one statement, it waits for the tables named in it before it begins: these are
    not listed."""
    locks_rows: bool = False
    """The other session locks the rows of the table: the verb is one statement, and no trigger writes another table."""


def application(url: str, at: datetime = SENT_AT) -> Holdfast:
    """Return an application on this store, at a time that stands still."""
    hold = Holdfast(url, clock=ManualClock(at))

    @hold.task
    async def job(ctx: Context, number: int) -> int:
        return number

    return hold


async def prepare_all(url: str) -> None:
    """Store what the verbs find."""
    async with application(url, PREPARED_AT) as hold:
        for verb in VERBS:
            if verb.prepare is not None:
                await verb.prepare(hold)


async def pause(hold: Holdfast, subject: str) -> str:
    paused = await hold.pause(subject, by="ann", reason="it moves")
    return f"{paused.subject} by {paused.by}: {paused.reason}"


async def set_queue(hold: Holdfast, name: str, most: int) -> tuple[int | None, int]:
    settings = await hold.queue(name, max_pending=most)
    return settings.max_pending, settings.pending


async def limit_at_work(hold: Holdfast, name: str, most: int) -> tuple[int | None, int]:
    settings = await hold.queue(name, concurrency=most)
    return settings.concurrency, settings.working


async def keep(hold: Holdfast, name: str, time: timedelta) -> object:
    return (await hold.queue(name, retention={"completed": time})).retention


async def submit(hold: Holdfast, key: str, number: int = 2, **options: Any) -> list[tuple[str | None, Any]]:
    """Submit to a queue of this name under this key; return key and arguments of all tasks in the queue."""
    try:
        await hold.submit("job", number, key=key, queue=key, **options)
    except TaskExists:
        return [("refused", key)]
    found = await hold.store.find(TaskFilter(queue=key), newest_first=False)
    return [(task.key, task.user_input) for task in found.items]


async def submit_and_claim(hold: Holdfast, key: str) -> None:
    await set_queue(hold, key, 1)
    await submit(hold, key, 1)
    await hold.store.register(NewWorker(id=key, lease=80_000.0))
    [_] = await hold.store.claim(Claim(worker_id=key, number=1, limit=1, queues=(key,), names=("job",)))


async def add_tasks(hold: Holdfast, queue: str, count: int, **options: Any) -> None:
    await hold.store.submit([NewTask(id=f"{queue} {n}", name="job", queue=queue, **options) for n in range(count)])


async def schedule(hold: Holdfast, name: str, number: int = 1, **options: Any) -> tuple[str, list[datetime]]:
    made = await hold.schedule(name, "job", number, queue=name, **{"every": YEAR, **options})
    return made.name, list(made.next[:1])


async def pause_schedule(hold: Holdfast, name: str) -> None:
    await schedule(hold, name)
    await hold.pause(f"schedule:{name}", by="bob")


async def trigger(hold: Holdfast, name: str) -> int:
    """Trigger it; return how many tasks it has submitted."""
    await hold.trigger(name)
    return len((await hold.store.find(TaskFilter(queue=name))).items)


async def fire(hold: Holdfast, name: str) -> list[str]:
    """Do what a worker does about this schedule; return the ticks of its tasks."""
    look = hold.store.due_schedules

    async def look_for_it(*, limit: int = 100) -> list[StoredSchedule]:
        return [one for one in await look(limit=limit) if one.name == name]

    vars(hold.store)["due_schedules"] = look_for_it
    try:
        await Firer(hold.services).fire_due()
    finally:
        del vars(hold.store)["due_schedules"]
    found = await hold.store.find(TaskFilter(queue=name))
    return sorted(
        (task.key or "").removeprefix(f"{name}@2026-01-01T").removesuffix(":00+00:00") for task in found.items
    )


VERBS = (
    Verb(
        name="pause a queue",
        prepare=lambda hold: hold.store.register(NewWorker(id="idle", lease=80_000.0)),
        send=lambda hold: pause(hold, "queue:one"),
        first="queue:one by ann: it moves",
        again="queue:one by ann: it moves",
        tables=("pauses", "workers"),
    ),
    Verb(
        name="pause all tasks of a name",
        send=lambda hold: pause(hold, "task:other"),
        first="task:other by ann: it moves",
        again="task:other by ann: it moves",
        tables=("pauses", "workers"),
    ),
    Verb(
        name="pause a task",
        prepare=lambda hold: add_tasks(hold, "to pause", 1),
        send=lambda hold: pause(hold, "to pause 0"),
        first="to pause 0 by ann: it moves",
        again="to pause 0 by ann: it moves",
        tables=("tasks", "pauses"),
    ),
    Verb(
        name="unpause a queue",
        prepare=lambda hold: hold.pause("queue:two"),
        send=lambda hold: hold.unpause("queue:two"),
        first=True,
        again=False,
        tables=("pauses",),
    ),
    Verb(
        name="unpause a task",
        prepare=lambda hold: pause_task(hold, "paused"),
        send=lambda hold: hold.unpause("paused 0"),
        first=True,
        again=False,
        tables=("tasks", "pauses"),
    ),
    Verb(
        name="set a queue for the first time",
        prepare=lambda hold: add_tasks(hold, "unset", 3),
        send=lambda hold: set_queue(hold, "unset", 5),
        first=(5, 3),
        again=(5, 3),
        tables=("tasks", "queues"),
    ),
    Verb(
        name="change a queue",
        prepare=lambda hold: set_queue_and_fill(hold, "set", 5, 2),
        send=lambda hold: set_queue(hold, "set", 1),
        first=(1, 2),
        again=(1, 2),
        tables=("queues",),
    ),
    Verb(
        name="limit the tasks at work",
        prepare=lambda hold: submit_and_claim(hold, "limited"),
        send=lambda hold: limit_at_work(hold, "limited", 2),
        first=(2, 1),
        again=(2, 1),
        tables=("tasks", "queue_slots"),
    ),
    Verb(
        name="set how long a queue keeps its tasks",
        prepare=lambda hold: set_queue(hold, "kept", 5),
        send=lambda hold: keep(hold, "kept", HOUR),
        first={"completed": HOUR},
        again={"completed": HOUR},
        tables=("retentions",),
    ),
    Verb(
        name="submit with a delay and labels",
        prepare=lambda hold: set_queue(hold, "delayed", 2),
        send=lambda hold: submit(hold, "delayed", delay=HOUR, labels={"tenant": "acme", "kind": "rare"}),
        first=[("delayed", [2])],
        again=[("delayed", [2])],
        tables=("task_labels", *COUNTING),
    ),
    Verb(
        name="submit what replaces nothing",
        prepare=lambda hold: set_queue(hold, "nothing", 2),
        send=lambda hold: submit(hold, "nothing", if_exists="replace"),
        first=[("nothing", [2])],
        again=[("nothing", [2])],
        tables=COUNTING,
    ),
    Verb(
        name="submit what replaces",
        prepare=lambda hold: submit(hold, "replaced", 1, labels={"tenant": "acme"}),
        send=lambda hold: submit(hold, "replaced", if_exists="replace", labels={"tenant": "globex"}, priority=7),
        first=[("replaced", [2])],
        again=[("replaced", [2])],
        tables=("task_labels", "accounts"),
    ),
    Verb(
        name="submit what is not to exist",
        prepare=lambda hold: set_queue(hold, "rejected", 1),
        send=lambda hold: submit(hold, "rejected", if_exists="reject"),
        first=[("rejected", [2])],
        again=[("refused", "rejected")],
        tables=COUNTING,
    ),
    Verb(
        name="debounce what waits",
        prepare=lambda hold: submit(hold, "bounced", 1, debounce=12 * HOUR),
        send=lambda hold: submit(hold, "bounced", debounce=12 * HOUR),
        first=[("bounced", [2])],
        again=[("bounced", [2])],
        tables=("accounts",),
    ),
    Verb(
        name="debounce what was claimed",
        prepare=lambda hold: submit_and_claim(hold, "at work"),
        send=lambda hold: submit(hold, "at work", debounce=12 * HOUR),
        first=[(None, [1]), ("at work", [2])],
        again=[(None, [1]), ("at work", [2])],
        tables=COUNTING,
    ),
    Verb(
        name="make a schedule",
        send=lambda hold: schedule(hold, "new"),
        first=("new", [SENT_AT + YEAR]),
        again=("new", [SENT_AT + YEAR]),
        tables=("schedules",),
    ),
    Verb(
        name="replace a schedule",
        prepare=lambda hold: schedule(hold, "old"),
        send=lambda hold: schedule(hold, "old", 2, every=2 * YEAR, priority=7),
        first=("old", [SENT_AT + 2 * YEAR]),
        again=("old", [SENT_AT + 2 * YEAR]),
        tables=("schedules",),
    ),
    Verb(
        name="pause a schedule",
        prepare=lambda hold: schedule(hold, "running"),
        send=lambda hold: pause(hold, "schedule:running"),
        first="schedule:running by ann: it moves",
        again="schedule:running by ann: it moves",
        tables=("schedules",),
    ),
    Verb(
        name="unpause a schedule",
        prepare=lambda hold: pause_schedule(hold, "standing"),
        send=lambda hold: hold.unpause("schedule:standing"),
        first=True,
        again=False,
        tables=("schedules",),
    ),
    Verb(
        name="trigger a schedule",  # each call submits a task: there is no sign of one whose answer was lost
        prepare=lambda hold: schedule_into_queue(hold, "by hand", 2),
        send=lambda hold: trigger(hold, "by hand"),
        first=1,
        again=2,
        tables=COUNTING,
    ),
    Verb(
        name="delete a schedule",
        prepare=lambda hold: schedule(hold, "unwanted"),
        send=lambda hold: hold.unschedule("unwanted"),
        first=True,
        again=False,
        tables=("schedules",),
        locks_rows=True,
    ),
    Verb(
        name="a tick",
        prepare=lambda hold: schedule(hold, "hourly", every=HOUR, labels={"tenant": "acme"}),
        send=lambda hold: fire(hold, "hourly"),
        first=["03:00"],
        again=["03:00"],
        tables=("schedules", "task_keys", "tasks", "task_labels", "inputs", "transitions"),
    ),
    Verb(
        name="ticks that are caught up",
        prepare=lambda hold: schedule_into_queue(hold, "late", 0, every=HOUR, overlap="all", catch_up="all"),
        send=lambda hold: fire(hold, "late"),
        first=["01:00", "02:00", "03:00"],
        again=["01:00", "02:00", "03:00"],
        tables=("schedules", "task_keys", "tasks", *COUNTING, "inputs", "transitions"),
    ),
)


async def pause_task(hold: Holdfast, queue: str) -> None:
    await add_tasks(hold, queue, 1)
    await hold.pause(f"{queue} 0", by="bob")


async def set_queue_and_fill(hold: Holdfast, queue: str, most: int, count: int) -> None:
    await set_queue(hold, queue, most)
    await add_tasks(hold, queue, count)


async def schedule_into_queue(hold: Holdfast, name: str, most: int, **options: Any) -> None:
    """Make a schedule for a queue that may be full: the queue refuses no task of a schedule, and counts it."""
    await schedule(hold, name, **options)
    await set_queue(hold, name, most)
