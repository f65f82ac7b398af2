"""Submissions that meet a task with their key: replaced while it waits for its first claim, and debounced."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import Conflict, InvalidValue, QueueFull
from holdfast.model.operations import ApplyPatch, Move, Operation, RequestCancel, SubmitChild
from holdfast.model.queries import TaskFilter
from holdfast.model.records import Account
from holdfast.model.task import IfExists, NewTask, Submitted
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    apply_outside,
    claim,
    claimed_by,
    claimed_ids,
    enter,
    new_task,
    row,
    running_task,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.contract.hints import hints_of
from holdfast.testing.snapshot import all_tasks, snapshot

REPLACE = IfExists.REPLACE
LONGEST = timedelta(seconds=50)


async def submit(store: StateStore, task_id: str, **options: object) -> Submitted:
    """Submit a task with the key k; return the answer."""
    [answer] = await store.submit([new_task(task_id, key="k", **options)])
    return answer


def debounced(clock: ManualClock, task_id: str, user_input: object, seconds: float = 10) -> NewTask:
    """Describe a submission that puts the task off by some seconds."""
    return new_task(
        task_id,
        key="k",
        user_input=user_input,
        available_at=clock.now() + timedelta(seconds=seconds),
        debounce_max=LONGEST,
    )


class ReplaceContract(ContractBase):
    """if_exists: what a submission does to the task that has its key."""

    async def test_a_task_that_was_never_claimed_is_replaced(self, store: StateStore, clock: ManualClock) -> None:
        """Input, options, labels and time are the new ones; id, key, queue, schedule, round and history stay."""
        first = await submit_one(
            store,
            "first",
            key="k",
            queue="slow",
            schedule="nightly",
            user_input="one",
            labels={"tenant": "acme"},
            budget={"tokens": 5, "steps": 1},
        )
        history = await store.history("first")
        clock.advance(5)
        at, deadline = clock.now() + timedelta(seconds=30), clock.now() + timedelta(seconds=90)
        new = {
            "user_input": "two",
            "agent_id": "writer",
            "priority": 3,
            "labels": {"tenant": "globex", "kind": "x"},
            "available_at": at,
            "deadline": deadline,
        }
        answer = await submit(store, "second", if_exists=REPLACE, queue="slow", budget={"tokens": 7}, **new)
        assert answer == Submitted(task_id="first", created=False)
        assert await stored(store, "first") == replace(first, **new, updated_at=clock.now(), revision=2)  # type: ignore[arg-type]
        assert await store.get("second") is None
        assert await store.history("first") == history
        assert await store.accounts("first") == [
            Account(account="first", meter="steps", limit=None, spent=0, reserved=0),
            Account(account="first", meter="tokens", limit=7, spent=0, reserved=0),
        ]
        assert (await store.find(TaskFilter(text="one"))).items == ()
        assert [task.id for task in (await store.find(TaskFilter(text="writer"))).items] == ["first"]
        assert (await store.find(TaskFilter(labels={"tenant": "acme"}))).items == ()
        assert [task.id for task in (await store.find(TaskFilter(labels={"tenant": "globex"}))).items] == ["first"]
        await enter(store, lease=600)
        assert await claimed_ids(store, queues=("default", "slow")) == []
        clock.advance(30)
        await store.sweep()
        [claimed] = await claim(store, number=2, queues=("slow",))
        assert (claimed.task.id, claimed.task.user_input, claimed.fresh) == ("first", "two", False)

    async def test_a_delayed_task_may_be_replaced_by_one_that_is_due(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Workers that listen to its queue are notified."""
        await submit(store, "first", available_at=clock.now() + timedelta(days=1), queue="q")
        await hints_of(store, submit(store, "second", if_exists=REPLACE, queue="q"), "queue:q", "task:first")
        await enter(store)
        assert await claimed_ids(store, queues=("q",)) == ["first"]

    async def test_what_was_ever_claimed_is_never_replaced(self, store: StateStore, clock: ManualClock) -> None:
        """Nor what was changed in another way: then the answer is as without if_exists."""
        attempt = await running_task(store, "first", key="k", user_input=1)
        later = clock.now() + timedelta(seconds=60)
        for change in (None, Move(to=TaskState.PENDING, reason="later", available_at=later)):
            if change is not None:
                await attempt.apply(change)
            await self._is_kept(store, "first")
        await apply_outside(store, "first", CANCEL)
        await self._is_kept(store, "first")
        changes: tuple[Operation, ...] = (
            RequestCancel(reason="stop"),
            ApplyPatch(body=b"{}", author="a", reason="r"),
            CANCEL,
        )
        for number, operation in enumerate(changes):
            with row(operation):
                await store.submit([new_task(f"other-{number}", name=f"n{number}", key="k", user_input=1)])
                await apply_outside(store, f"other-{number}", operation)
                await self._is_kept(store, f"other-{number}", name=f"n{number}")

    async def _is_kept(self, store: StateStore, task_id: str, **options: object) -> None:
        before = await snapshot(store)
        for user_input, conflict in ((1, False), (2, True)):
            answer = await submit(store, "new", if_exists=REPLACE, user_input=user_input, priority=9, **options)
            assert answer == Submitted(task_id=task_id, created=False, conflict=conflict)
        assert await snapshot(store) == before

    async def test_a_replaced_task_stays_in_its_queue(self, store: StateStore) -> None:
        """Another one is refused, and nothing of the call is stored; the count of pending tasks stays right."""
        await store.set_queue("limited", max_pending=1)
        await store.set_queue("free")
        await submit(store, "first", queue="limited", user_input=1)
        before = await snapshot(store)
        for queue in ("free", "without settings"):
            for options in ({"if_exists": REPLACE}, {"debounce_max": LONGEST}):
                elsewhere = new_task("second", key="k", queue=queue, user_input=2, **options)
                with row(queue, options):
                    for tasks in ([elsewhere], [new_task("beside", queue="free"), elsewhere]):
                        with pytest.raises(
                            Conflict, match=f"first.* waits in queue 'limited' and is not moved to '{queue}'"
                        ):
                            await store.submit(tasks)
                    assert await snapshot(store) == before
        assert await self._pending(store) == {"limited": 1, "free": 0}
        for options in ({"if_exists": REPLACE}, {"debounce_max": LONGEST}):
            with row("full, and replaced", options):
                answer = await submit(store, "third", queue="limited", user_input=3, **options)
                assert answer == Submitted(task_id="first", created=False)
        assert await self._pending(store) == {"limited": 1, "free": 0}
        await enter(store, "w1")
        attempt = await claimed_by(store, "w1", queues=("limited",))
        assert await self._pending(store) == {"limited": 0, "free": 0}
        await submit_one(store, "other", queue="limited")
        with pytest.raises(QueueFull):
            await submit(store, "fourth", queue="limited", debounce_max=LONGEST)
        assert (await stored(store, "first")).key == "k"
        assert await submit(store, "fifth", queue="free", debounce_max=LONGEST) == Submitted(
            task_id="fifth", created=True
        )
        await attempt.apply(COMPLETE)
        assert await self._pending(store) == {"limited": 1, "free": 1}

    async def _pending(self, store: StateStore) -> dict[str, int]:
        return {settings.name: settings.pending for settings in await store.queue_settings()}

    async def test_a_paused_task_stays_paused(self, store: StateStore) -> None:
        """It is replaced as any other, and is claimed only when it is let go on."""
        await submit(store, "first", user_input=1)
        await store.pause("first", by="ann")
        answer = await submit(store, "second", if_exists=REPLACE, user_input=2)
        assert answer == Submitted(task_id="first", created=False)
        await enter(store)
        assert await claimed_ids(store) == []
        await store.unpause("first")
        [claimed] = await claim(store)
        assert (claimed.task.id, claimed.task.user_input) == ("first", 2)

    async def test_without_a_task_it_is_a_submission(self, store: StateStore) -> None:
        """With each value; and sent again, it is answered with its own task, and changes nothing more."""
        for if_exists in IfExists:
            task = new_task(f"{if_exists}", key=f"{if_exists}", user_input=1, if_exists=if_exists)
            assert await store.submit([task]) == [Submitted(task_id=task.id, created=True)]
            before = await snapshot(store)
            assert await store.submit([task]) == [Submitted(task_id=task.id, created=False)]
            assert await snapshot(store) == before

    async def test_sent_again_after_it_was_replaced_changes_nothing(self, store: StateStore) -> None:
        """The later submission won."""
        first = new_task("first", key="k", user_input=1, if_exists=REPLACE)
        await store.submit([first])
        await submit(store, "second", if_exists=REPLACE, user_input=2)
        before = await snapshot(store)
        assert await store.submit([first]) == [Submitted(task_id="first", created=False)]
        assert await snapshot(store) == before

    async def test_in_one_call_each_meets_the_one_before(self, store: StateStore) -> None:
        """The last one wins; tasks with other keys are not touched."""
        await submit_one(store, "other", key="o", user_input=0)
        tasks = [new_task(f"t{n}", key="k", user_input=n, if_exists=REPLACE) for n in range(3)]
        answers = await store.submit([*tasks, new_task("plain")])
        assert answers == [
            Submitted(task_id="t0", created=True),
            Submitted(task_id="t0", created=False),
            Submitted(task_id="t0", created=False),
            Submitted(task_id="plain", created=True),
        ]
        assert {task.id: task.user_input for task in await all_tasks(store)} == {"other": 0, "t0": 2, "plain": None}

    async def test_reject_stores_nothing(self, store: StateStore) -> None:
        """The answer names the task that has the key."""
        await submit_one(store, "first", key="k", user_input=1)
        before = await snapshot(store)
        for user_input in (1, 2):
            answer = await submit(store, "second", if_exists=IfExists.REJECT, user_input=user_input)
            assert (answer.task_id, answer.created) == ("first", False)
        assert await snapshot(store) == before

    async def test_what_could_not_mean_anything_is_refused(self, store: StateStore) -> None:
        """Without a key there is nothing to meet; a child is submitted under its parent's key."""
        for options, words in (
            ({"if_exists": REPLACE}, "give a key="),
            ({"debounce_max": LONGEST}, "give a key="),
            ({"if_exists": "replace", "key": "k"}, "IfExists.REPLACE"),
            ({"if_exists": REPLACE, "debounce_max": LONGEST, "key": "k"}, "leave out if_exists="),
            ({"if_exists": REPLACE, "state": TaskState.COMPLETED, "key": "k"}, "replaces none"),
        ):
            with row(options), pytest.raises(InvalidValue, match=words):
                new_task(**options)
        parent = await running_task(store)
        with pytest.raises(InvalidValue, match="a child is submitted once"):
            await parent.send(SubmitChild(new_task("child", key="k", if_exists=REPLACE)))


class DebounceContract(ContractBase):
    """debounce_max: the last submission before the claim wins, and no submission after it is lost."""

    async def test_each_submission_puts_the_task_off_but_not_for_ever(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Its start is that of the last one, and at the latest ``debounce_max`` after the first one was submitted."""
        start = clock.now()
        for number in range(8):
            with row(number):
                [answer] = await store.submit([debounced(clock, f"t{number}", number)])
                assert answer == Submitted(task_id="t0", created=number == 0)
                task = await stored(store, "t0")
                assert task.user_input == number
                assert task.created_at == start
                assert task.available_at == min(clock.now() + timedelta(seconds=10), start + LONGEST)
            clock.advance(9)
        await store.sweep()
        await enter(store)
        [claimed] = await claim(store)
        assert (claimed.task.id, claimed.task.user_input, claimed.task.key) == ("t0", 7, "k")

    async def test_after_the_claim_the_next_submission_is_a_new_task(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """It takes over the key, also with the same input, and whatever became of the task before."""
        for number, end in enumerate((None, COMPLETE, CANCEL)):
            with row(end):
                task = debounced(clock, f"t{number}", "same")
                assert await store.submit([task]) == [Submitted(task_id=task.id, created=True)]
                assert (await stored(store, task.id)).key == "k"
                clock.advance(10)
                await store.sweep()
                await enter(store, f"w{number}")
                attempt = await claimed_by(store, f"w{number}")
                assert attempt.task.id == task.id
                if end is not None:
                    await attempt.apply(end)
        assert [task.key for task in await all_tasks(store)] == [None, None, "k"]
        [found] = (await store.find(TaskFilter(name="job", key="k"))).items
        assert found.id == "t2"
        await submit_one(store, "plain", key="other")
        answer = await submit(store, "another", user_input="same")
        assert answer == Submitted(task_id="t2", created=False)

    async def test_a_task_that_ended_unclaimed_is_followed_by_a_new_one(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """A cancel, or a cancel that was requested, is about the task that there was."""
        await store.submit([debounced(clock, "t0", 1)])
        await apply_outside(store, "t0", CANCEL)
        assert await store.submit([debounced(clock, "t1", 2)]) == [Submitted(task_id="t1", created=True)]
        clock.advance(60)
        assert (await store.prune(timedelta(seconds=1))).tasks == 1
        assert await store.submit([debounced(clock, "t2", 3)]) == [Submitted(task_id="t1", created=False)]

    async def test_what_holds_the_task_before_goes_on(self, store: StateStore, clock: ManualClock) -> None:
        """Its worker does not notice that the key was taken over."""
        attempt = await running_task(store, "t0", key="k", user_input=1)
        await store.submit([debounced(clock, "t1", 2)])
        await attempt.apply(COMPLETE)
        assert (await stored(store, "t0")).state is TaskState.COMPLETED
        assert (await stored(store, "t1")).key == "k"
