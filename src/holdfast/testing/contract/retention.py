"""Retention: ended tasks that their queue keeps no longer are deleted by sweeps, in bounded batches."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import LinkArtifact, WriteEffect
from holdfast.model.queue_settings import KEEP, PRUNES_EVERY, PRUNES_ON_AFTER, QueueSettings
from holdfast.model.records import ArtifactLink
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import apply_outside, new_task, row, running_task, submit_one
from holdfast.testing.contract._support import move as moved
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import all_tasks, snapshot

QUEUE = "default"
DAY = timedelta(days=1)
MOMENT = timedelta(microseconds=1)


async def _ids(store: StateStore) -> set[str]:
    return {task.id for task in await all_tasks(store)}


class RetentionContract(ContractBase):
    """set_queue(retention=), and the sweeps that obey it."""

    async def test_a_retention_is_kept_changed_and_taken_away(self, store: StateStore) -> None:
        """As a whole: a state that is not named is kept. The same again changes nothing; what is not given stays."""
        kept = {"completed": 30 * DAY, "failed": 90 * DAY + MOMENT}
        set_up = QueueSettings(name=QUEUE, retention=kept)
        assert await store.set_queue(QUEUE, retention=kept) == set_up
        assert await store.set_queue(QUEUE, retention=dict(reversed(kept.items()))) == set_up
        assert await store.set_queue(QUEUE, retention=KEEP) == set_up
        assert await store.queue_settings() == [set_up]
        both = QueueSettings(name=QUEUE, max_pending=3, concurrency=2, retention={"cancelled": timedelta(0)})
        assert await store.set_queue(QUEUE, max_pending=3, concurrency=2, retention={"cancelled": timedelta(0)}) == both
        assert await store.set_queue(QUEUE, retention={}) == QueueSettings(name=QUEUE, max_pending=3, concurrency=2)
        assert (await store.set_queue(QUEUE, retention={"failed": 36_500 * DAY})).retention == {"failed": 36_500 * DAY}
        assert (await store.set_queue(QUEUE, retention=None)).retention is None

    async def test_a_retention_without_a_meaning_is_refused(self, store: StateStore) -> None:
        """At the door, and nothing changes."""
        for retention in (
            *({"pending": DAY}, {"done": DAY}, {"": DAY}, {1: DAY}, {("completed",): DAY}, {"completed": -MOMENT}),
            *({"completed": 30}, {"completed": None}, {"completed": "30d"}, {"completed": 36_500 * DAY + MOMENT}),
            *(30, "completed", DAY, True, [("completed", DAY)], {"failed": DAY, "completed": timedelta.max}),
        ):
            with row(retention), pytest.raises(InvalidValue, match="retention"):
                await store.set_queue(QUEUE, retention=retention)  # type: ignore[arg-type]
        assert await store.queue_settings() == []

    async def test_a_clock_that_was_set_back_puts_nothing_off(self, store: StateStore, clock: ManualClock) -> None:
        """A sweep in a wrong future has put the next look off until then; the next sweep looks all the same."""
        await store.set_queue(QUEUE, retention={"completed": timedelta(0)})
        clock.jump_wall(DAY)
        assert (await store.sweep()).pruned == 0
        clock.jump_wall(-DAY)
        await submit_one(store, "ended", state=TaskState.COMPLETED)
        clock.advance(MOMENT)
        assert (await store.sweep()).pruned == 1
        await submit_one(store, "later", state=TaskState.COMPLETED)
        clock.advance(MOMENT)
        assert (await store.sweep()).pruned == 0, "it looks as often as ever"

    async def test_ended_tasks_go_by_queue_and_state(self, store: StateStore, clock: ManualClock) -> None:
        """Each by its own setting, counted from the exact moment of its end. Open tasks stay, and other queues."""
        for queue in (QUEUE, "other"):
            for state in TaskState:
                await submit_one(store, f"{queue} {state}", queue=queue, state=state)
        every = await _ids(store)
        await store.set_queue(QUEUE, retention={"completed": DAY, "failed": 2 * DAY})
        clock.advance(DAY)
        assert (await store.sweep()).pruned == 0
        clock.advance(PRUNES_EVERY)
        assert (await store.sweep()).pruned == 1
        assert await _ids(store) == every - {"default completed"}
        clock.advance(DAY - PRUNES_EVERY)
        assert (await store.sweep()).pruned == 0, "a task stays at the very moment"
        clock.advance(PRUNES_EVERY)
        assert (await store.sweep()).pruned == 1
        assert await _ids(store) == every - {"default completed", "default failed"}
        await store.set_queue(QUEUE, retention={"cancelled": timedelta(0)})
        assert (await store.sweep()).pruned == 1, "a new setting is obeyed at once"
        await store.set_queue("other", retention={"cancelled": 9 * DAY})
        await store.set_queue("other", retention=None)
        clock.advance(30 * DAY)
        assert (await store.sweep()).pruned == 0
        assert len(await _ids(store)) == len(every) - 3

    async def test_a_sweep_deletes_a_bounded_batch_now_and_then(self, store: StateStore, clock: ManualClock) -> None:
        """Once a minute for each queue, once a second while there is more; and no sweep is asked to come sooner."""
        queues = ("a", "b", "c")
        for queue in queues:
            await store.submit([new_task(f"{queue}{n}", queue=queue, state=TaskState.FAILED) for n in range(3)])
            await store.set_queue(queue, retention={"failed": DAY})
        clock.advance(2 * DAY)
        for expected in (2, 2, 2, 2, 1, 0):
            swept = await store.sweep(limit=2)
            assert (swept.pruned, swept.more, swept.next_due) == (expected, False, None)
            if expected < 2:
                break
            clock.advance(PRUNES_ON_AFTER)
        assert await _ids(store) == set()
        await submit_one(store, "next", queue="a", state=TaskState.FAILED)
        clock.advance(DAY + PRUNES_EVERY)
        assert [(await store.sweep()).pruned for _ in range(2)] == [1, 0]

    async def test_what_changes_nothing_writes_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """A second look within the minute finds no work, also after the same setting was made again."""
        await store.set_queue(QUEUE, retention={"failed": timedelta(0)})
        await store.sweep()
        await submit_one(store, state=TaskState.FAILED)
        clock.advance(PRUNES_EVERY - MOMENT)
        await store.set_queue(QUEUE, retention={"failed": timedelta(0)})
        before = await snapshot(store)
        assert (await store.sweep()).pruned == 0
        assert await snapshot(store) == before
        clock.advance(MOMENT)
        assert (await store.sweep()).pruned == 1

    async def test_children_go_with_their_root(self, store: StateStore, clock: ManualClock) -> None:
        """By the setting of its queue, whatever theirs; all of the tree has to be as old."""
        await store.submit(
            [
                new_task("root", state=TaskState.COMPLETED),
                new_task("child", queue="keeps", parent_id="root", state=TaskState.FAILED),
                new_task("grandchild", queue="keeps", parent_id="child", state=TaskState.CANCELLED),
                new_task("kept", queue="keeps", state=TaskState.COMPLETED),
                new_task("its child", parent_id="kept", state=TaskState.COMPLETED),
                new_task("parent", state=TaskState.COMPLETED),
                new_task("open child", parent_id="parent"),
            ]
        )
        await store.set_queue(QUEUE, retention={"completed": DAY})
        clock.advance(2 * DAY)
        for left in ({"child", "root"}, {"root"}, set()):
            assert (await store.sweep(limit=1)).pruned == 1
            assert await _ids(store) == {*left, "kept", "its child", "parent", "open child"}
            clock.advance(PRUNES_ON_AFTER)
        assert (await store.sweep()).pruned == 0

    async def test_a_task_in_doubt_stays(self, store: StateStore, clock: ManualClock) -> None:
        """As prune leaves it: a person has to decide."""
        effect = Effect(effect_id="e", step_key="s", effect_class=EffectClass.ONCE, state=EffectState.ARMED)
        attempt = await running_task(store, queue=QUEUE)
        await attempt.apply(WriteEffect(effect))
        await attempt.apply(moved(TaskState.FAILED))
        await store.set_queue(QUEUE, retention={"failed": timedelta(0)})
        clock.advance(DAY)
        await submit_one(store, "decided", state=TaskState.FAILED)
        clock.advance(PRUNES_EVERY)
        assert (await store.sweep()).pruned == 1
        assert await _ids(store) == {"task"}

    async def test_what_belongs_to_a_task_goes_with_it(self, store: StateStore, clock: ManualClock) -> None:
        """Its key, journal, own events and artifacts. Other events and artifacts are left to prune."""
        used, shared, other = [await store.put_artifact(content) for content in (b"used", b"shared", b"other")]
        again = await store.put_artifact(b"stored again")
        links = [
            LinkArtifact(ArtifactLink(artifact_id=one.id, name="n", type="t", summary="", bytes=one.size))
            for one in (used, shared, again)
        ]
        await submit_one(store, "another", queue="keeps", state=TaskState.PENDING)
        await apply_outside(store, "another", links[1])
        attempt = await running_task(store, queue=QUEUE, key="k")
        effect = Effect(effect_id="e", step_key="s", effect_class=EffectClass.ONCE, state=EffectState.DONE)
        await attempt.apply(WriteEffect(effect), *links, moved(TaskState.COMPLETED, result="done"))
        own, others = ("task:task", "inbox:task", "taken:e"), ("news", "task", "inbox:another", "task:taskx")
        for channel in (*own, *others):
            await store.emit(channel, 1)
        await store.set_queue(QUEUE, retention={"completed": DAY})
        clock.advance(2 * DAY)
        await store.put_artifact(b"stored again")
        assert (await store.sweep()).pruned == 1
        assert [len(await store.events(channel)) for channel in (*own, *others)] == [0, 0, 0, 1, 1, 1, 1]
        kept = [await store.artifact(one.id) is not None for one in (used, shared, again, other)]
        assert kept == [False, True, True, True]
        assert await store.effects() == []
        assert await store.history("task") == []
        [answer] = await store.submit([new_task(key="k", user_input="new")])
        assert answer.created

    async def test_many_sweeps_at_once_delete_each_task_once(self, store: StateStore, clock: ManualClock) -> None:
        """Beside claims and submissions; none of them fails."""
        for queue in ("a", "b", "c", "d"):
            await store.submit([new_task(f"{queue}{n:02}", queue=queue, state=TaskState.FAILED) for n in range(30)])
        clock.advance(DAY)
        for queue in ("a", "b", "c", "d"):
            await store.set_queue(queue, retention={"failed": timedelta(0)})
        deleted = 0
        for number in range(20):
            sweeps = asyncio.gather(*(store.sweep(limit=20) for _ in range(8)))
            await store.submit([new_task(f"new {number}")])
            deleted += sum(swept.pruned for swept in await sweeps)
            clock.advance(PRUNES_ON_AFTER)
        assert deleted == 120
        assert len(await _ids(store)) == 20
