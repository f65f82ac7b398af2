"""Events: facts on a channel, numbered, kept, read from any position."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.errors import Conflict, InvalidValue, NotFound
from holdfast.model.operations import ApplyPatch, Emit, RequireQuiet, SubmitChild, WriteStep
from holdfast.model.records import Event
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    COMPLETE,
    apply_outside,
    last_move,
    new_task,
    outside,
    running_task,
    send,
    step,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase


class EventsContract(ContractBase):
    """emit, events and position."""

    async def test_events_are_numbered_within_their_channel(self, store: StateStore, clock: ManualClock) -> None:
        """From 1, without gaps."""
        start = clock.now()
        first = await store.emit("news", {"n": 1}, actor="alice")
        clock.advance(1)
        second = await store.emit("news", [2], key="k")
        other = await store.emit("other", None)
        assert first == Event(channel="news", number=1, payload={"n": 1}, actor="alice", key=None, at=start)
        assert second == Event(channel="news", number=2, payload=[2], actor="emit", key="k", at=clock.now())
        assert other.number == 1
        assert await store.events("news") == [first, second]

    async def test_the_same_key_is_the_same_event(self, store: StateStore) -> None:
        """The first event is returned, even if the payload differs."""
        first = await store.emit("news", 1, key="k")
        assert await store.emit("news", 2, key="k", actor="another") == first
        assert await store.events("news") == [first]

    async def test_a_key_belongs_to_its_channel(self, store: StateStore) -> None:
        """The same key elsewhere is another event."""
        await store.emit("news", 1, key="k")
        assert (await store.emit("other", 1, key="k")).channel == "other"

    async def test_events_without_a_key_are_all_kept(self, store: StateStore) -> None:
        """Equal payloads are not the same event."""
        for _ in range(3):
            await store.emit("news", "again")
        assert [event.number for event in await store.events("news")] == [1, 2, 3]

    async def test_events_are_read_from_any_position(self, store: StateStore) -> None:
        """After a number, up to a limit."""
        for number in range(5):
            await store.emit("news", number)
        assert [event.number for event in await store.events("news", after=2)] == [3, 4, 5]
        assert [event.number for event in await store.events("news", after=1, limit=2)] == [2, 3]
        assert await store.events("news", after=5) == []
        assert await store.events("silent") == []

    async def test_an_event_of_a_commit(self, store: StateStore, clock: ManualClock) -> None:
        """In the name of the Commit's actor, and once."""
        await submit_one(store)
        commit = outside("task", Emit(channel="news", payload="from a task", key="k"))
        await send(store, commit)
        await send(store, commit)
        await apply_outside(store, "task", Emit(channel="news", payload="again", key="k"))
        assert await store.events("news") == [
            Event(channel="news", number=1, payload="from a task", actor="person", key="k", at=clock.now())
        ]

    async def test_several_events_of_one_commit(self, store: StateStore) -> None:
        """In the order of the Commit."""
        await submit_one(store)
        await apply_outside(store, "task", *(Emit(channel="news", payload=payload) for payload in "abc"))
        events = await store.events("news")
        assert [(event.number, event.payload) for event in events] == [(1, "a"), (2, "b"), (3, "c")]

    async def test_racing_events_get_different_numbers(self, store: StateStore) -> None:
        """For any number of concurrent emitters."""
        events = await asyncio.gather(*(store.emit("news", number) for number in range(20)))
        assert sorted(event.number for event in events) == list(range(1, 21))
        assert await store.events("news") == sorted(events, key=lambda event: event.number)

    async def test_racing_events_with_one_key_are_one(self, store: StateStore) -> None:
        """All get the same answer."""
        events = await asyncio.gather(*(store.emit("news", 1, key="k") for _ in range(10)))
        assert events == [events[0]] * 10
        assert await store.events("news") == [events[0]]

    async def test_where_to_begin_to_read(self, store: StateStore) -> None:
        """After the last event; 0 if there was none."""
        await store.emit("other", 0)
        assert await store.position("news") == 0
        for number in range(1, 4):
            await store.emit("news", number)
            assert await store.position("news") == number

    async def test_a_channel_no_store_could_hold_is_refused(self, store: StateStore) -> None:
        """Like every name."""
        for channel in ("", "a\x00b", "x" * 201):
            with pytest.raises(InvalidValue):
                await store.emit(channel, None)


class SubmissionContract(ContractBase):
    """position with before_task: which events are later than a submission. It does not depend on time."""

    async def test_events_after_the_submission_are_later(self, store: StateStore) -> None:
        """On each channel, also on one that did not exist; it works even if the clock stands still."""
        for number in range(4):
            await submit_one(store, f"t{number}")
            await store.emit("news", number)
            await store.emit("other", number)
        for number in range(4):
            for channel in ("news", "other"):
                assert await store.position(channel, before_task=f"t{number}") == number
        assert await store.position("silent", before_task="t3") == 0

    async def test_a_clock_that_steps_makes_no_difference(self, store: StateStore, clock: ManualClock) -> None:
        """Back or forward, before the submission or after it."""
        steps = (-7200, 7200, -1, 1, -86400, 86400)
        for seconds in steps:
            await store.emit("news", "before")
            clock.jump_wall(seconds)
            await submit_one(store, f"t{seconds}")
            clock.jump_wall(seconds)
            await store.emit("news", "later")
        found = [await store.position("news", before_task=f"t{seconds}") for seconds in steps]
        assert found == [1, 3, 5, 7, 9, 11]

    async def test_the_first_submission_counts(self, store: StateStore) -> None:
        """A submission that is sent again, by id or by key, does not move the position."""
        await store.emit("news", 1)
        await submit_one(store, "task", key="k")
        await store.emit("news", 2)
        for task_id in ("task", "another"):
            [answer] = await store.submit([new_task(task_id, key="k")])
            assert (answer.task_id, answer.created) == ("task", False)
        assert await store.position("news", before_task="task") == 1

    async def test_tasks_that_are_submitted_together(self, store: StateStore) -> None:
        """All have the same events before them."""
        await store.emit("news", 1)
        await store.submit([NewTask(id=f"t{number}", name="job", key=f"k{number % 2}") for number in range(4)])
        await store.emit("news", 2)
        assert [await store.position("news", before_task=f"t{number}") for number in range(2)] == [1, 1]

    async def test_a_child_stands_in_order_among_the_operations(self, store: StateStore) -> None:
        """Events that its parent's Commit emits before it are earlier, events after it are later."""
        await submit_one(store, "parent")
        await store.emit("news", 1)
        early, late = Emit(channel="news", payload=2), Emit(channel="news", payload=3)
        await apply_outside(store, "parent", early, SubmitChild(NewTask(id="child", name="job")), late)
        await store.emit("news", 4)
        assert await store.position("news", before_task="child") == 2

    async def test_commits_of_one_batch_stand_in_order(self, store: StateStore) -> None:
        """As if they had been sent one after the other; a refused Commit has no effect."""
        for task_id in ("a", "b", "c", "d"):
            await submit_one(store, task_id)
        emit = Emit(channel="news", payload=1)
        verdicts = await store.commit(
            [
                outside("a", emit),
                outside("b", emit, RequireQuiet(channel="news", after=0)),
                outside("c", SubmitChild(NewTask(id="child", name="job"))),
                outside("d", emit),
            ]
        )
        assert [verdict.refusal for verdict in verdicts] == [None, Refusal.CONFLICT, None, None]
        assert await store.position("news", before_task="child") == 1
        assert await store.position("news") == 2

    async def test_a_prune_takes_no_reader_back(self, store: StateStore, clock: ManualClock) -> None:
        """The first kept event is read next, whether or not it is the first after the submission."""
        await submit_one(store, "old")
        for number in range(3):
            await store.emit("news", number)
        await submit_one(store, "young")
        clock.advance(10)
        await store.emit("news", 3)
        clock.advance(10)
        await store.prune(timedelta(seconds=15))
        assert [event.number for event in await store.events("news")] == [4]
        for task_id in ("old", "young"):
            assert await store.position("news", before_task=task_id) == 3

    async def test_when_all_is_pruned(self, store: StateStore, clock: ManualClock) -> None:
        """The position is the last used number. The next event is later than every submission before it."""
        await submit_one(store, "old")
        for number in range(3):
            await store.emit("news", number)
            await store.emit("other", number)
        clock.advance(10)
        await store.prune(timedelta(seconds=5))
        await submit_one(store, "young")
        assert await store.position("news") == 3
        assert (await store.emit("news", 3)).number == 4
        for task_id in ("old", "young"):
            assert await store.position("news", before_task=task_id) == 3
            assert await store.position("other", before_task=task_id) == 3

    async def test_a_prune_that_leaves_older_numbers(self, store: StateStore, clock: ManualClock) -> None:
        """The clock stepped back, and the later event looks older: the next event is read in any case."""
        await store.emit("news", "before")
        await submit_one(store, "task")
        clock.jump_wall(timedelta(days=-2))
        await store.emit("news", "later")
        clock.jump_wall(timedelta(days=2))
        await store.prune(timedelta(days=1))
        assert [event.number for event in await store.events("news")] == [1]
        assert await store.position("news", before_task="task") == 1
        assert (await store.emit("news", "next")).number == 3

    async def test_no_such_task(self, store: StateStore) -> None:
        """There is no submission to start from."""
        with pytest.raises(NotFound):
            await store.position("news", before_task="stranger")


class QuietContract(ContractBase):
    """RequireQuiet: a Commit that applies only if no event was emitted meanwhile."""

    async def test_a_task_that_has_read_everything_may_end(self, store: StateStore) -> None:
        """Up to the last event."""
        attempt = await running_task(store)
        for number in range(3):
            await store.emit("inbox", number)
            await store.emit("other", number)
        await store.emit("other", "one more")
        await attempt.apply(RequireQuiet(channel="inbox", after=3), COMPLETE)
        assert (await stored(store)).state is TaskState.COMPLETED

    async def test_an_unread_event_refuses_the_whole_commit(self, store: StateStore) -> None:
        """Nothing of it is written, and the task continues."""
        attempt = await running_task(store)
        await store.emit("inbox", "read")
        await store.emit("inbox", "not read")
        before = await stored(store)
        verdict = await attempt.send(
            WriteStep(step()),
            ApplyPatch(body=b"{}", author="a"),
            RequireQuiet(channel="inbox", after=1),
            COMPLETE,
        )
        assert (verdict.refusal, verdict.state) == (Refusal.CONFLICT, TaskState.RUNNING)
        assert type(verdict.error()) is Conflict
        assert await stored(store) == before
        assert await store.steps("task") == []
        assert await store.patches("task") == []
        assert (await last_move(store)).to_state is TaskState.RUNNING

    async def test_after_a_refusal_it_is_tried_again_under_the_same_number(self, store: StateStore) -> None:
        """A refused Commit does not use its number."""
        attempt = await running_task(store)
        await store.emit("inbox", 1)
        assert not (await attempt.send(RequireQuiet(channel="inbox", after=0), COMPLETE)).applied
        attempt.sequence -= 1
        await attempt.apply(RequireQuiet(channel="inbox", after=1), COMPLETE)

    async def test_an_unused_channel_is_quiet(self, store: StateStore) -> None:
        """And the check emits nothing on it."""
        attempt = await running_task(store)
        await attempt.apply(RequireQuiet(channel="inbox", after=0))
        assert await store.position("inbox") == 0
        assert (await store.emit("inbox", 1)).number == 1

    async def test_an_event_that_was_pruned_was_there(self, store: StateStore, clock: ManualClock) -> None:
        """It was never read: the task must not end as if it had never been emitted."""
        attempt = await running_task(store)
        await store.emit("inbox", 1)
        clock.advance(10)
        await store.prune(timedelta(seconds=5))
        assert await store.events("inbox") == []
        assert (await attempt.send(RequireQuiet(channel="inbox", after=0))).refusal is Refusal.CONFLICT

    async def test_it_stands_in_order_among_the_operations(self, store: StateStore) -> None:
        """Events that the same Commit emits before it count, events after it do not."""
        await submit_one(store)
        emit, quiet = Emit(channel="inbox", payload=1), RequireQuiet(channel="inbox", after=0)
        assert (await send(store, outside("task", emit, quiet))).refusal is Refusal.CONFLICT
        assert await store.events("inbox") == []
        await apply_outside(store, "task", quiet, emit)
        assert [event.number for event in await store.events("inbox")] == [1]

    async def test_a_commit_earlier_in_the_batch_counts(self, store: StateStore) -> None:
        """As if they had been sent one after the other; the refused Commit does not affect the others."""
        for task_id in ("a", "b", "c", "d"):
            await submit_one(store, task_id)
        quiet, emit = RequireQuiet(channel="inbox", after=0), Emit(channel="inbox", payload=1)
        verdicts = await store.commit(
            [outside("a", quiet), outside("b", emit), outside("c", quiet), outside("d", WriteStep(step()))]
        )
        assert [verdict.refusal for verdict in verdicts] == [None, None, Refusal.CONFLICT, None]

    async def test_a_guard_that_does_not_hold_is_reported_first(self, store: StateStore) -> None:
        """A worker that lost the task gets that refusal, not the one about events."""
        attempt = await running_task(store)
        await store.emit("inbox", 1)
        await store.retire(attempt.worker_id)
        verdict = await attempt.send(RequireQuiet(channel="inbox", after=0))
        assert verdict.refusal is Refusal.SUPERSEDED

    async def test_a_race_with_an_emitter_has_one_order(self, store: StateStore) -> None:
        """Either the event came first and the end is refused, or the task had ended; also on new channels."""
        for number in range(10):
            task_id, channel = f"t{number}", f"inbox {number}"
            await submit_one(store, task_id)
            commit = outside(task_id, RequireQuiet(channel=channel, after=0), Emit(channel=channel, payload="ended"))
            verdict, event = await asyncio.gather(send(store, commit), store.emit(channel, "news"))
            events = [found.payload for found in await store.events(channel)]
            assert events == (["ended", "news"] if verdict.applied else ["news"])
            assert event.number == len(events)

    async def test_an_impossible_position_is_refused(self) -> None:
        """Before it reaches any store."""
        for channel, after in (("", 0), ("inbox", -1), ("inbox", True)):
            with pytest.raises(InvalidValue):
                RequireQuiet(channel=channel, after=after)
