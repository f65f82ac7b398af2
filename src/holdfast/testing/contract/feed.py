"""The feed: everything that happens, once and in order, from any place that is kept."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.effect import EffectState
from holdfast.model.errors import CursorLost, InvalidValue
from holdfast.model.feed import KINDS, OLDEST, FeedEvent, FeedRetention
from holdfast.model.operations import Emit, OpenApproval, SetLimits, WriteEffect, WriteStep
from holdfast.model.step import StepState
from holdfast.model.worker import WorkerState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    LEASE,
    apply_outside,
    claim,
    claimed_by,
    enter,
    new_task,
    outside,
    row,
    running_task,
    send,
    step,
    submit_one,
)
from holdfast.testing.contract.approvals import approve, asked
from holdfast.testing.contract.base import START, ContractBase
from holdfast.testing.contract.budget import reserve, settle
from holdfast.testing.contract.effects import effect

DAY = timedelta(days=1)


async def now_in(store: StateStore) -> str:
    """Return the place where the feed ends now."""
    page = await store.read_feed()
    assert page.events == []
    return page.cursor


async def events_of(store: StateStore, after: str | None = None, *, limit: int = 100) -> list[FeedEvent]:
    """Return everything behind a place, or everything that is kept, page by page."""
    cursor = after or (await store.read_feed(OLDEST)).cursor
    events: list[FeedEvent] = []
    while (page := await store.read_feed(cursor, limit=limit)).events:
        events += page.events
        cursor = page.cursor
        assert cursor == events[-1].cursor
    return events


class FeedContract(ContractBase):
    """read_feed, and how long the feed is kept."""

    async def test_the_life_of_a_task_is_in_the_feed(self, store: StateStore) -> None:
        """Every state that the task and its steps came into, each with a few values and never a payload."""
        begin = await now_in(store)
        attempt = await running_task(store, user_input="secret", labels={"tenant": "acme"})
        await attempt.apply(WriteStep(step(state=StepState.RUNNING)))
        await attempt.apply(WriteStep(step(output=b'"secret"', attempts=2)))
        await attempt.apply(Emit(channel="task:task", payload={"kind": "progress", "step": 1, "message": "half"}))
        await apply_outside(store, "task", Emit(channel="inbox:task", payload={"text": "secret"}))
        await attempt.apply(WriteStep(step("check", 2)), COMPLETE)

        events = [event for event in await events_of(store, begin) if event.task_id is not None]
        assert [event.kind for event in events] == [
            *("task.pending", "task.running", "step.running", "step.completed", "progress", "message"),
            *("step.completed", "task.completed"),
        ]
        assert {(event.name, event.queue, event.round, *event.labels.items()) for event in events} == {
            ("job", "queue of task", 1, ("tenant", "acme"))
        }
        assert [dict(event.data) for event in events] == [
            {"from": None, "reason": "submitted", "actor": "submit"},
            {"from": "pending", "reason": "claimed", "actor": "worker"},
            {"key": "collect", "kind": "step", "attempts": 1},
            {"key": "collect", "kind": "step", "attempts": 2},
            {"number": 1, "by": "worker", "step": 1, "message": "half"},
            {"number": 1, "by": "person"},
            {"key": "check", "kind": "step", "attempts": 1},
            {"from": "running", "reason": "the test says so", "actor": "worker"},
        ]
        assert "secret" not in str(events)
        assert {event.kind for event in events} <= set(KINDS)

    async def test_questions_doubts_and_budgets_are_in_the_feed(self, store: StateStore, clock: ManualClock) -> None:
        """When they begin, and what came of them."""
        attempt = await running_task(store, budget={"tokens": 100})
        begin = await now_in(store)
        await attempt.apply(OpenApproval(asked()), OpenApproval(asked("late", expires_at=START + DAY)))
        await attempt.apply(OpenApproval(asked("closed")))
        await apply_outside(store, "task", approve())
        for state in (EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN, EffectState.DONE):
            await attempt.apply(WriteEffect(effect(state)))
        for spent in (79, 1, 20):
            await attempt.apply(reserve(spent))
            await attempt.apply(settle(spent))
        await attempt.apply(SetLimits(account="task", limits={"tokens": 1000}))
        clock.advance(DAY.total_seconds())
        await store.sweep()
        await apply_outside(store, "task", CANCEL)

        found = [(event.kind, dict(event.data)) for event in await events_of(store, begin) if event.kind[:5] != "task."]
        question = {"step": "deploy", "kind": "approval", "risk": None}
        assert [entry for entry in found if entry[0] != "worker.dead"] == [
            ("approval.opened", {"approval_id": "ask", "state": "open", "by": "engine", **question}),
            ("approval.opened", {"approval_id": "late", "state": "open", "by": "engine", **question}),
            ("approval.opened", {"approval_id": "closed", "state": "open", "by": "engine", **question}),
            ("approval.decided", {"approval_id": "ask", "state": "approved", "by": "bob", **question}),
            ("doubt.opened", {"effect_id": "effect", "step": "apply", "state": "in_doubt"}),
            ("doubt.opened", {"effect_id": "effect", "step": "apply", "state": "needs_human"}),
            ("doubt.resolved", {"effect_id": "effect", "step": "apply", "state": "done"}),
            ("budget.pressure", {"meter": "tokens", "limit": 100, "spent": 80}),
            ("budget.exhausted", {"meter": "tokens", "limit": 100, "spent": 100}),
            ("approval.expired", {"approval_id": "late", "state": "expired", "by": None, **question}),
            ("approval.decided", {"approval_id": "closed", "state": "closed", "by": None, **question}),
        ]

    async def test_workers_are_in_the_feed(self, store: StateStore, clock: ManualClock) -> None:
        """They come, stop claiming, and end, in good order or not; a heartbeat is nothing to tell."""
        begin = await now_in(store)
        await enter(store, "one")
        await store.heartbeat("one")
        await store.drain("one")
        await store.retire("one")
        await enter(store, "two")
        clock.advance(LEASE)
        await store.sweep()
        events = await events_of(store, begin)
        assert [(event.kind.partition(".")[2], event.data["worker_id"]) for event in events] == [
            (WorkerState.LIVE, "one"),
            (WorkerState.DRAINING, "one"),
            (WorkerState.DEAD, "one"),
            (WorkerState.LIVE, "two"),
            (WorkerState.DEAD, "two"),
        ]
        assert {event.task_id for event in events} == {None}

    async def test_what_was_refused_is_not_in_the_feed(self, store: StateStore) -> None:
        """Neither is what changes nothing: a task that is submitted again, a Commit that is sent again."""
        attempt = await running_task(store)
        commit = attempt.commit(WriteStep(step()))
        await send(store, commit)
        begin = await now_in(store)
        assert not (await send(store, outside("task", COMPLETE))).applied
        assert (await send(store, commit)).duplicate
        await store.submit([new_task(queue=attempt.task.queue)])
        await store.heartbeat("worker")
        await store.sweep()
        assert await events_of(store, begin) == []

    async def test_pages_of_any_size_are_the_same_feed(self, store: StateStore) -> None:
        """Also where the events of one statement do not fit into a page."""
        begin = await now_in(store)
        for number in range(3):
            await store.submit([new_task(f"task {number} {place}") for place in range(5)])
            await claim(store, await enter(store, f"worker {number}"))
        whole = await events_of(store, begin)
        assert len(whole) == 3 + 2 * 15
        for limit in (1, 2, 7):
            with row("limit", limit):
                assert await events_of(store, begin, limit=limit) == whole
        for place, event in enumerate(whole):
            with row("behind", event.kind, place):
                assert await events_of(store, event.cursor) == whole[place + 1 :]

    async def test_without_a_place_it_begins_now(self, store: StateStore) -> None:
        """What was before, a reader gets that begins at the oldest."""
        assert await events_of(store) == []
        await submit_one(store, "before")
        begin = await now_in(store)
        assert await events_of(store, begin) == []
        await submit_one(store, "after")
        assert [event.task_id for event in await events_of(store, begin)] == ["after"]
        assert [event.task_id for event in await events_of(store)] == ["before", "after"]

    async def test_a_place_that_is_not_there_is_refused(self, store: StateStore) -> None:
        """With what to do; and what cannot be a place, before anything is read."""
        await submit_one(store)
        [event] = await events_of(store)
        number, rest = event.cursor.split(".", 1)
        for strange in (f"{int(number) + 1}.{rest}", event.cursor[:-2] + "zz"):
            with row(strange), pytest.raises(CursorLost, match="another store") as raised:
                await store.read_feed(strange)
            assert raised.value.cursor == strange
        for wrong in ("", "now", "1", "1.2.3", "1.2.x.a", "-1.0.0.a", f"{2**70}.0.0.a", "1.0.0.", "1.0.0.a b"):
            with row(wrong), pytest.raises(InvalidValue, match="not a cursor"):
                await store.read_feed(wrong)

    async def test_old_events_are_deleted_by_age(self, store: StateStore, clock: ManualClock) -> None:
        """By a sweep; a reader that is behind hears of it, one that is not goes on."""
        assert await store.feed_retention() == FeedRetention()
        await store.set_feed_retention(FeedRetention(age=DAY))
        assert await store.feed_retention() == FeedRetention(age=DAY)
        begin = await now_in(store)
        await submit_one(store, "old")
        await submit_one(store, "old too")
        [first, second] = await events_of(store, begin)
        clock.advance(DAY.total_seconds() / 2)
        await submit_one(store, "young")
        [young] = await events_of(store, second.cursor)
        await store.sweep()
        assert await events_of(store, begin) == [first, second, young]
        clock.advance(DAY.total_seconds() / 2 + 120)
        await store.sweep()
        for place in (begin, first.cursor):
            with row(place), pytest.raises(CursorLost, match="kept no longer"):
                await store.read_feed(place)
        assert await events_of(store) == [young]
        assert await events_of(store, young.cursor) == []
        await submit_one(store, "new")
        assert [event.task_id for event in await events_of(store, young.cursor)] == ["new"]

    async def test_the_newest_event_is_kept(self, store: StateStore, clock: ManualClock) -> None:
        """A reader at the end has missed nothing, however long nothing happens."""
        await submit_one(store)
        [event] = await events_of(store)
        clock.advance(30 * DAY.total_seconds())
        await store.sweep()
        assert await events_of(store, event.cursor) == []
        assert await events_of(store) == [event]

    async def test_old_events_are_deleted_by_number(self, store: StateStore, clock: ManualClock) -> None:
        """The newest stay."""
        await store.set_feed_retention(FeedRetention(rows=3))
        for number in range(10):
            await submit_one(store, f"task {number}")
            await events_of(store)
        for _ in range(3):
            clock.advance(61)
            await store.sweep()
        assert [event.task_id for event in await events_of(store)] == ["task 7", "task 8", "task 9"]

    async def test_events_of_a_task_that_was_pruned(self, store: StateStore, clock: ManualClock) -> None:
        """As far as the feed has it: without its name."""
        begin = await now_in(store)
        await submit_one(store, labels={"a": "b"})
        await apply_outside(store, "task", CANCEL)
        before = await events_of(store, begin)
        clock.advance(10)
        assert (await store.prune(timedelta(seconds=5))).tasks == 1
        after = await events_of(store, begin)
        assert [event.cursor for event in after] == [event.cursor for event in before]
        assert {(event.task_id, event.name, *event.labels) for event in after} == {("task", None)}

    async def test_a_move_by_the_sweep_is_in_the_feed(self, store: StateStore, clock: ManualClock) -> None:
        """Whatever moves a task: a death, a deadline, a timer, a hand-back."""
        attempt = await running_task(store)
        begin = await now_in(store)
        clock.advance(LEASE)
        await store.sweep()
        await enter(store, "next")
        await claimed_by(store, "next", queues=("queue of task",))
        await store.retire("next")
        await submit_one(store, "late", deadline=clock.now() + timedelta(seconds=1))
        clock.advance(2)
        await store.sweep()
        assert attempt.task.id == "task"
        moves = [(event.task_id, event.kind) for event in await events_of(store, begin) if event.task_id]
        assert [kind for task_id, kind in moves if task_id == "task"] == [
            "task.pending",
            "task.running",
            "task.pending",
        ]
        assert [kind for task_id, kind in moves if task_id == "late"] == ["task.pending", "task.failed"]
