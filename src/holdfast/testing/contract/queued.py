"""queued: the tasks in the queue, in the order in which they will be claimed."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import Release, RequireUndo
from holdfast.model.queries import Page
from holdfast.model.task import AGEING
from holdfast.model.transitions import TaskState
from holdfast.model.worker import ALONE_AFTER
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    LEASE,
    acquired_by,
    apply_outside,
    claimed_ids,
    enter,
    move,
    new_task,
    row,
    running_task,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import START, ContractBase
from holdfast.testing.snapshot import snapshot

QUEUES = ("one", "two", "three")
NAMES = ("job", "another job")


async def in_line(store: StateStore, queue: str | None = None) -> list[str]:
    """Return the ids of all queued tasks, which must fit on one page."""
    page = await store.queued(queue=queue)
    assert page.next is None
    return [task.id for task in page.items]


async def page_by_page(store: StateStore, limit: int, *, queue: str | None = None, after: str | None = None) -> str:
    """Return the ids of all tasks queued after a cursor, joined; every page but the last must be full."""
    seen: list[str] = []
    while True:
        page = await store.queued(queue=queue, limit=limit, after=after)
        seen += [task.id for task in page.items]
        after = page.next
        if after is None:
            assert len(page.items) <= limit
            return " ".join(seen)
        assert len(page.items) == limit
        assert len(seen) == len(set(seen)), "a task came twice"  # and the loop would never end


async def make_suspect(
    store: StateStore,
    clock: ManualClock,
    task_id: str,
    **options: Any,  # noqa: ANN401 - the fields of NewTask
) -> None:
    """Submit a task whose workers die, until the store hands it out only alone."""
    await submit_one(store, task_id, **options)
    for number in range(ALONE_AFTER):
        await enter(store, f"victim-{number}")
        assert await claimed_ids(store, f"victim-{number}") == [task_id]
        clock.advance(LEASE + 1)
        await store.sweep()


def cursor_of(text: str) -> str:
    """Encode a text like a cursor."""
    return urlsafe_b64encode(text.encode()).decode()


BAD_CURSORS = [
    "",
    "x",
    "ü",
    "'; DROP TABLE tasks",
    cursor_of("not json"),
    cursor_of("[" * 100_000),
    cursor_of("[]"),
    cursor_of("{}"),
    cursor_of("[1, 2, 3, 4]"),
    cursor_of(f'["{START}", 1, "{START}", "a"]'),
    cursor_of(f'["{START}", false, "{START}", 7]'),
    cursor_of(f'["{START}", false, "{START}", "\\u0000"]'),
    cursor_of(f'["{START}", true, "{START}", "\\ud800"]'),
    cursor_of(f'["{START}", true, "2026-01-01", "a"]'),
    cursor_of(f'["2026-01-01", true, "{START}", "a"]'),
    cursor_of(f'["{START}", true, "9999-12-31T23:59:59-23:59", "a"]'),
    cursor_of(f'["{START}", false, "{START}", "a", "b"]'),
]


class QueuedContract(ContractBase):
    """queued."""

    async def test_nothing_is_queued_in_an_empty_store(self, store: StateStore) -> None:
        """And nothing in a queue that was never used."""
        assert await store.queued() == Page(items=(), next=None)
        assert await store.queued(queue="nowhere") == Page(items=(), next=None)

    async def test_queued_tasks_come_whole(self, store: StateStore) -> None:
        """With their payloads; and reading changes nothing."""
        task = await submit_one(store, user_input={"a": [1]}, priority=3, key="k")
        before = await snapshot(store)
        assert await store.queued() == Page(items=(task,), next=None)
        assert await snapshot(store) == before

    async def test_queued_in_the_order_of_a_claim(self, store: StateStore, clock: ManualClock) -> None:
        """Priority, ageing, and ids where all else is equal; across queues and names."""
        priorities = (0, 2, -1, 0, 1, 3, 0, -2, 1)
        for number, priority in enumerate(priorities):
            options = {"queue": QUEUES[number % 3], "name": NAMES[number % 2], "priority": priority}
            await store.submit([new_task(f"{number}b", **options), new_task(f"{number}a", **options)])
            clock.advance(AGEING / 2)
        listed = await in_line(store)
        assert listed == [f"{number}{letter}" for number in (1, 5, 0, 4, 3, 2, 6, 8, 7) for letter in "ab"]
        of_queues = {queue: await in_line(store, queue) for queue in QUEUES}
        await enter(store)
        assert await claimed_ids(store, queues=QUEUES, names=NAMES, limit=100) == listed
        for number, queue in enumerate(QUEUES):
            assert of_queues[queue] == [task_id for task_id in listed if int(task_id[0]) % 3 == number]

    async def test_delayed_tasks_are_queued_last(self, store: StateStore, clock: ManualClock) -> None:
        """By when they become due; their priority does not count until then."""
        for task_id, seconds, priority in (("c", 30, 9), ("a", 10, 0), ("d", 30, 0), ("b", 20, 99)):
            await submit_one(store, task_id, available_at=clock.now() + timedelta(seconds=seconds), priority=priority)
        await submit_one(store, "ready", priority=-5)
        assert await in_line(store) == ["ready", "a", "b", "c", "d"]

    async def test_a_task_is_queued_as_due_when_its_time_comes(self, store: StateStore, clock: ManualClock) -> None:
        """With or without a sweep, it is at the place from which the next claim takes it."""
        await submit_one(store, "ready")
        await submit_one(store, "urgent", available_at=clock.now() + timedelta(seconds=5), priority=1)
        await submit_one(store, "late", available_at=clock.now() + timedelta(seconds=5))
        clock.advance(4.999_999)
        assert await in_line(store) == ["ready", "late", "urgent"]
        clock.advance(0.000_001)
        assert await in_line(store) == ["urgent", "ready", "late"]
        assert await page_by_page(store, 1) == "urgent ready late"
        assert await in_line(store, "elsewhere") == []
        await store.sweep()
        assert await in_line(store) == ["urgent", "ready", "late"]
        await enter(store)
        assert await claimed_ids(store) == ["urgent", "ready", "late"]

    async def test_a_suspect_is_queued_at_its_rank(self, store: StateStore, clock: ManualClock) -> None:
        """Although the store hands it out alone."""
        await make_suspect(store, clock, "suspect", priority=1)
        await submit_one(store, "before", priority=2)
        await submit_one(store, "behind")
        await enter(store, "well")
        assert await in_line(store) == ["before", "suspect", "behind"]
        assert await in_line(store, "elsewhere") == []
        assert await page_by_page(store, 1) == "before suspect behind"
        assert await claimed_ids(store, "well") == ["before", "behind"]
        assert await in_line(store) == ["suspect"]

    async def test_what_is_not_pending_is_not_queued(self, store: StateStore, clock: ManualClock) -> None:
        """Running, in review, ended or waiting: none of these is queued."""
        for number, state in enumerate((None, TaskState.REVIEW, TaskState.COMPLETED, TaskState.FAILED)):
            attempt = await running_task(store, f"task-{number}", f"worker-{number}")
            if state is not None:
                release = () if state.is_terminal else (Release(),)
                await attempt.apply(move(state), *release)
        for task_id, seconds in (("due", 0), ("delayed", 60)):
            await submit_one(store, task_id, available_at=clock.now() + timedelta(seconds=seconds))
            await apply_outside(store, task_id, CANCEL)
        assert await in_line(store) == []

    async def test_a_held_task_is_not_queued(self, store: StateStore, clock: ManualClock) -> None:
        """Even if it is still pending, due or delayed; when it is released, it is queued again."""
        await submit_one(store, "due")
        await submit_one(store, "delayed", available_at=clock.now() + timedelta(seconds=60))
        await enter(store)
        held = [await acquired_by(store, task_id, "worker") for task_id in ("due", "delayed")]
        assert (await stored(store, "due")).state is TaskState.PENDING
        assert await in_line(store) == []
        clock.advance(1)
        for attempt in held:
            await attempt.apply(Release())
        assert await in_line(store) == ["due", "delayed"]

    async def test_a_task_that_returns_is_queued_again(self, store: StateStore, clock: ManualClock) -> None:
        """A retry is at the end, or among the delayed tasks."""
        retried = await running_task(store, "retried", queue="default")
        later = await running_task(store, "later", "other", queue="default")
        clock.advance(1)
        await submit_one(store, "newer")
        await submit_one(store, "delayed", available_at=clock.now() + timedelta(seconds=3))
        clock.advance(1)
        await retried.apply(move(TaskState.PENDING))
        await later.apply(move(TaskState.PENDING, available_at=clock.now() + timedelta(seconds=3)))
        assert await in_line(store) == ["newer", "retried", "delayed", "later"]

    async def test_what_is_too_late_is_not_queued(self, store: StateStore, clock: ManualClock) -> None:
        """No claim takes it, due, suspect or delayed, unless it has to undo its steps."""
        hour = timedelta(hours=1)
        at_once, soon, end = clock.now(), clock.now() + hour, clock.now() + 2 * hour
        await make_suspect(store, clock, "suspect", deadline=end)
        attempt = await running_task(store, "undoing", queue="default", deadline=end, priority=9)
        await attempt.apply(RequireUndo(required=True), move(TaskState.PENDING))
        for task_id, available_at in (("due", at_once), ("overdue", soon), ("delayed", end + hour)):
            await submit_one(store, task_id, available_at=available_at, deadline=end)
        assert await in_line(store) == ["undoing", "due", "suspect", "overdue", "delayed"]
        clock.advance(2 * hour)
        assert await in_line(store) == ["undoing"]

    async def test_pages_of_a_queue_cover_it_once(self, store: StateStore, clock: ManualClock) -> None:
        """Also if many tasks share a moment; the delayed tasks come after the due ones."""
        expected: dict[str, list[str]] = {queue: [] for queue in QUEUES}
        for number in range(6):
            queue = QUEUES[number % 3]
            options = {"queue": queue, "name": NAMES[number % 2]}
            await submit_one(store, f"due-{number}", **options)
            expected[queue].append(f"due-{number}")
        clock.advance(1)
        for number in range(6):
            queue = QUEUES[number % 3]
            due = clock.now() + timedelta(seconds=1 + number // 4)
            await submit_one(store, f"later-{number}", queue=queue, available_at=due, priority=-number)
            expected[queue].append(f"later-{number}")
        together = [f"{part}-{number}" for part in ("due", "later") for number in range(6)]
        for limit in (1, 2, 3, 4, 5, 11, 12, 13):
            with row(f"limit {limit}"):
                for queue in QUEUES:
                    assert await page_by_page(store, limit, queue=queue) == " ".join(expected[queue])
                assert await page_by_page(store, limit) == " ".join(together)

    async def test_the_last_page_of_a_queue_has_no_next(self, store: StateStore, clock: ManualClock) -> None:
        """Even if it is full, at any size."""
        await submit_one(store, "a")
        await submit_one(store, "b", available_at=clock.now() + timedelta(seconds=1))
        assert (await store.queued(limit=2)).next is None
        first = await store.queued(limit=1)
        assert first.next is not None
        assert (await store.queued(limit=1, after=first.next)).next is None

    async def test_claims_between_pages_shift_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """Seen tasks may go and new ones may come before them: the next page begins where the last one ended."""
        for task_id in "abcde":
            await submit_one(store, task_id)
            clock.advance(1)
        first = await store.queued(limit=2)
        assert [task.id for task in first.items] == ["a", "b"]
        await enter(store)
        assert await claimed_ids(store, limit=1) == ["a"]
        await apply_outside(store, "b", CANCEL)
        await apply_outside(store, "d", CANCEL)
        await submit_one(store, "front", priority=9)
        await submit_one(store, "behind")
        assert await page_by_page(store, 2, after=first.next) == "c e behind"

    async def test_time_between_pages_moves_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """A task that becomes due between two pages is still found at its old place."""
        for task_id in ("a", "b"):
            await submit_one(store, task_id)
        for seconds in (1, 2, 3):
            await submit_one(
                store, f"later-{seconds}", available_at=clock.now() + timedelta(seconds=seconds), priority=seconds
            )
        first = await store.queued(limit=1)
        clock.advance(2)
        second = await store.queued(limit=2, after=first.next)
        assert [task.id for task in second.items] == ["b", "later-1"]
        clock.advance(10)
        assert await page_by_page(store, 1, after=second.next) == "later-2 later-3"
        assert await in_line(store) == ["later-3", "later-2", "later-1", "a", "b"]

    async def test_a_sweep_between_pages_shows_nothing_twice(self, store: StateStore, clock: ManualClock) -> None:
        """A task that a sweep made ready has moved forward; it is found if its new place is not passed yet."""
        await submit_one(store, "a")
        clock.advance(1)
        await submit_one(store, "b")
        due = clock.now() + timedelta(seconds=1)
        await submit_one(store, "seen", available_at=due)
        await submit_one(store, "urgent", available_at=due + timedelta(seconds=1), priority=9)
        first = await store.queued(limit=1)
        third = await store.queued(limit=2, after=first.next)
        assert [task.id for task in third.items] == ["b", "seen"]
        clock.advance(10)
        assert (await store.sweep()).due == 2
        assert await page_by_page(store, 1, after=first.next) == "b seen"
        assert await page_by_page(store, 1, after=third.next) == ""

    async def test_a_place_in_a_queue_survives_its_task(self, store: StateStore, clock: ManualClock) -> None:
        """A pruned task still marks its place."""
        for task_id in ("a", "b", "c"):
            await submit_one(store, task_id)
        first = await store.queued(limit=2)
        await apply_outside(store, "b", CANCEL)
        clock.advance(10)
        assert (await store.prune(timedelta(seconds=5))).tasks == 1
        assert await page_by_page(store, 2, after=first.next) == "c"

    async def test_a_place_in_no_queue_is_refused(self, store: StateStore) -> None:
        """Instead of returning a wrong page."""
        await submit_one(store)
        for cursor in BAD_CURSORS:
            with row(cursor[:40]), pytest.raises(InvalidValue, match="is not a cursor"):
                await store.queued(after=cursor)

    async def test_a_cursor_belongs_to_its_listing(self, store: StateStore) -> None:
        """Neither listing accepts a cursor of the other."""
        for task_id in ("a", "b"):
            await submit_one(store, task_id)
        found, queued = await store.find(limit=1), await store.queued(limit=1)
        with pytest.raises(InvalidValue, match="is not a cursor"):
            await store.queued(after=found.next)
        with pytest.raises(InvalidValue, match="is not a cursor"):
            await store.find(after=queued.next)

    @pytest.mark.parametrize("limit", [0, -1, 10_001])
    async def test_no_page_of_a_queue_has_such_a_size(self, store: StateStore, limit: int) -> None:
        """Such a limit is always a mistake."""
        with pytest.raises(InvalidValue, match="limit"):
            await store.queued(limit=limit)

    @pytest.mark.parametrize("queue", ["", "\0", "\ud800", "x" * 201])
    async def test_a_queue_that_no_task_could_be_in_is_refused(self, store: StateStore, queue: str) -> None:
        """It is a mistake, not an empty queue."""
        with pytest.raises(InvalidValue, match="queue"):
            await store.queued(queue=queue)

    @pytest.mark.parametrize("queue", ["%", "default ", "Default", "defaul", "defaultx", "é"])
    async def test_a_queue_is_named_in_full(self, store: StateStore, queue: str) -> None:
        """Nothing in its name is a pattern, and only the same name matches."""
        await submit_one(store, "a")
        assert await in_line(store, queue) == []
        await submit_one(store, "b", queue=queue)
        assert await in_line(store, queue) == ["b"]
        assert await in_line(store, "default") == ["a"]
