"""What a person asks of a whole store: its queues, an id from a few of its characters, its health."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from holdfast.model.approval import Approval
from holdfast.model.clock import ManualClock
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import OpenApproval, UntilTime, WriteEffect, WriteStep
from holdfast.model.queries import Noun, QueueCounts
from holdfast.model.records import MemoryFact
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    Attempt,
    acquired_by,
    apply_outside,
    claimed_by,
    enter,
    move,
    row,
    running_task,
    step,
    submit_one,
)
from holdfast.testing.contract.base import START, ContractBase


def effect(effect_id: str) -> Effect:
    """Describe a call that is under way."""
    return Effect(effect_id=effect_id, step_key="s", effect_class=EffectClass.ONCE, state=EffectState.ARMED)


class QueuesContract(ContractBase):
    """queues."""

    async def test_a_store_without_tasks_has_no_queues(self, store: StateStore) -> None:
        """A queue is where tasks are."""
        assert await store.queues() == []

    async def test_each_open_task_is_counted_once(self, store: StateStore, clock: ManualClock) -> None:
        """By queue and by what it does next; ended tasks are not counted."""
        await enter(store)
        for number, state in enumerate((TaskState.WAITING, TaskState.REVIEW, TaskState.COMPLETED, None), start=1):
            await submit_one(store, f"slow {number}", queue="slow")
            attempt = await claimed_by(store, "worker", number, queues=("slow",))
            if state is TaskState.WAITING:
                waits = (UntilTime(key="timer", at=clock.now() + timedelta(days=1)),)
                await attempt.apply(move(state, waits=waits))
            elif state is not None:
                await attempt.apply(move(state))
        for _ in range(2):
            clock.advance(1)
            await submit_one(store, f"at {clock.now()}", queue="slow")
        await submit_one(store, "later", queue="slow", available_at=clock.now() + timedelta(hours=1))
        await submit_one(store, "elsewhere", queue="Fast", available_at=clock.now() + timedelta(microseconds=1))
        await submit_one(store, "over", queue="empty")
        await apply_outside(store, "over", CANCEL)
        assert await store.queues() == [
            QueueCounts(name="Fast", ready=0, delayed=1, running=0, waiting=0, review=0, oldest_ready_at=None),
            QueueCounts(
                name="slow",
                ready=2,
                delayed=1,
                running=1,
                waiting=1,
                review=1,
                oldest_ready_at=START + timedelta(seconds=1),
            ),
        ]

    async def test_a_delayed_task_is_ready_when_its_time_comes(self, store: StateStore, clock: ManualClock) -> None:
        """With or without a sweep; it counts as due since that time, not since its submission."""
        due = clock.now() + timedelta(seconds=5)
        await submit_one(store, available_at=due)
        clock.advance(4.999_999)
        [before] = await store.queues()
        assert (before.ready, before.delayed, before.oldest_ready_at) == (0, 1, None)
        clock.advance(0.000_001)
        [after] = await store.queues()
        assert (after.ready, after.delayed, after.oldest_ready_at) == (1, 0, due)

    async def test_a_held_task_counts_by_its_state(self, store: StateStore) -> None:
        """A pending task that is leased without a move is still counted."""
        await submit_one(store)
        await enter(store)
        await acquired_by(store, "task", "worker")
        [queue] = await store.queues()
        assert (queue.ready, queue.running) == (1, 0)


class IdsContract(ContractBase):
    """ids."""

    async def test_ids_that_begin_with_it(self, store: StateStore) -> None:
        """Sorted; a complete id as well."""
        for task_id in ("abc", "ab", "abd", "b-ab", "a", "aB"):
            await submit_one(store, task_id)
        assert await store.ids(Noun.TASK, "ab") == ["ab", "abc", "abd"]
        assert await store.ids(Noun.TASK, "abd") == ["abd"]
        assert await store.ids(Noun.TASK, "abde") == []

    async def test_ids_that_end_with_it_if_none_begins_so(self, store: StateStore) -> None:
        """A match at the beginning takes precedence, because people read that first."""
        for task_id in ("019a-7f3c", "019b-7f3c", "019c-0001"):
            await submit_one(store, task_id)
        assert await store.ids(Noun.TASK, "7f3c") == ["019a-7f3c", "019b-7f3c"]
        assert await store.ids(Noun.TASK, "019c-0001") == ["019c-0001"]
        assert await store.ids(Noun.TASK, "and much more than 019c-0001") == []
        assert await store.ids(Noun.TASK, "9a") == []
        await submit_one(store, "7f3c-0000")
        assert await store.ids(Noun.TASK, "7f3c") == ["7f3c-0000"]

    async def test_ids_whose_last_eight_characters_begin_with_it(self, store: StateStore) -> None:
        """These are what a table shows of an id, and people type the first few characters they see."""
        await submit_one(store, "01a1e0d2-a099-71b8-bc4c-c81f5dc248eb")
        assert await store.ids(Noun.TASK, "5dc2") == ["01a1e0d2-a099-71b8-bc4c-c81f5dc248eb"]
        assert await store.ids(Noun.TASK, "dc24") == []
        assert await store.ids(Noun.TASK, "f5dc") == []

    async def test_at_most_so_many(self, store: StateStore) -> None:
        """The first ones, whether they begin or end so."""
        for number in range(12):
            await submit_one(store, f"begin-{number:02}-end")
        assert await store.ids(Noun.TASK, "begin") == [f"begin-{number:02}-end" for number in range(10)]
        assert await store.ids(Noun.TASK, "begin", limit=2) == ["begin-00-end", "begin-01-end"]
        assert await store.ids(Noun.TASK, "end", limit=2) == ["begin-00-end", "begin-01-end"]

    async def test_nothing_in_it_is_a_pattern(self, store: StateStore) -> None:
        """It matches only itself."""
        await submit_one(store, "abc")
        parts = ("%", "_", "*", "?", "[a-z]", "^", "\\", "a%", "%c", "a_c", ".", "'", "$1", "{id}")
        for part in parts:
            with row(part):
                assert await store.ids(Noun.TASK, part) == []
        for part in parts:
            await submit_one(store, f"{part} first")
            await submit_one(store, f"last {part}")
        for part in parts:
            with row(part):
                begun = sorted(f"{other} first" for other in parts if other.startswith(part))
                assert await store.ids(Noun.TASK, part) == begun
                assert await store.ids(Noun.TASK, f" {part}") == [f"last {part}"]

    async def test_letters_of_all_kinds(self, store: StateStore) -> None:
        """In the order of their code points, up to the last one."""
        names = ["aé", "a名", "a名前", "a\U0001f980", "az", "b"]
        for name in names:
            await submit_one(store, name)
        assert await store.ids(Noun.TASK, "a") == sorted(names)[:-1]
        for letter in ("z", "é", "\ud7ff", "\ue000", "\uffff", "名", "\U0001f980", "\U0010ffff"):
            with row(ascii(letter)):
                begun = sorted(name for name in names if name.startswith(f"a{letter}"))
                assert await store.ids(Noun.TASK, f"a{letter}") == begun
                assert await store.ids(Noun.TASK, letter) == sorted(name for name in names if name.endswith(letter))

    async def test_everything_that_people_name_by_an_id(self, store: StateStore) -> None:
        """Each among its own kind; an effect id that two tasks share is one id."""
        first = await running_task(store, "x-task", "x-worker")
        second = await running_task(store, "y-task", "y-worker")
        for attempt in (first, second):
            await attempt.apply(WriteEffect(effect("x-effect")))
        await first.apply(OpenApproval(Approval(task_id="x-task", question="?", step_key="s", id="x-approval")))
        await store.remember(MemoryFact(entity="e", attribute="a", value=1, id="x-fact"))
        for noun in Noun:
            assert await store.ids(noun, "x-") == [f"x-{noun}"]
        assert await store.ids(Noun.EFFECT, "effect") == ["x-effect"]
        assert await store.ids(Noun.WORKER, "worker") == ["x-worker", "y-worker"]

    @pytest.mark.parametrize("part", ["", "a\0", "\ud800", None])
    async def test_what_is_no_part_of_an_id(self, store: StateStore, part: str) -> None:
        """It is rejected: every id begins with the empty text."""
        await submit_one(store)
        with pytest.raises(InvalidValue, match="part of an id"):
            await store.ids(Noun.TASK, part)

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_no_ids_at_all_are_asked_for(self, store: StateStore, limit: int) -> None:
        """Such a limit is always a mistake."""
        with pytest.raises(InvalidValue, match="limit"):
            await store.ids(Noun.TASK, "t", limit=limit)

    async def test_a_noun_is_one_of_them(self, store: StateStore) -> None:
        """A plain string with the same value is rejected."""
        with pytest.raises(InvalidValue, match="noun"):
            await store.ids("task", "t")  # type: ignore[arg-type]


class VitalsContract(ContractBase):
    """vitals."""

    ROWS = frozenset({"tasks", "steps", "events", "artifacts", "facts", "workers"})

    @pytest.mark.parametrize("thorough", [False, True])
    async def test_a_sound_store_is_well(self, store: StateStore, *, thorough: bool) -> None:
        """It names its kind and counts its content."""
        await self._fill(await running_task(store))
        vitals = await store.vitals(thorough=thorough)
        assert vitals.backend
        assert vitals.version[0].isdigit()
        assert vitals.schema >= 1
        assert vitals.bytes >= 0
        assert vitals.problems == ()
        assert set(vitals.rows) == self.ROWS
        assert min(vitals.rows.values()) >= 0
        assert all(isinstance(value, str) for value in vitals.settings.values())

    async def test_rows_are_counted_or_said_to_be_estimated(self, store: StateStore) -> None:
        """A count is exact; an estimate is at least plausible, even for a table that was never analysed."""
        empty = await store.vitals()
        await self._fill(await running_task(store))
        full = await store.vitals()
        if full.exact_rows:
            assert dict(empty.rows) == dict.fromkeys(self.ROWS, 0)
            assert dict(full.rows) == {"tasks": 1, "steps": 2, "events": 3, "artifacts": 1, "facts": 1, "workers": 1}
        else:
            assert min(*empty.rows.values(), *full.rows.values()) >= 0

    async def test_what_is_kept_takes_room(self, store: StateStore) -> None:
        """On disk, if the store is on disk."""
        content = os.urandom(1 << 20)  # not compressible
        await store.put_artifact(content)
        vitals = await store.vitals()
        if store.capabilities.durable:
            assert vitals.bytes > len(content)
        else:
            assert vitals.bytes == 0

    @staticmethod
    async def _fill(attempt: Attempt) -> None:
        for position in (1, 2):
            await attempt.apply(WriteStep(step(f"step {position}", position)))
        for number in range(3):
            await attempt.store.emit("news", number)
        await attempt.store.put_artifact(b"bytes")
        await attempt.store.remember(MemoryFact(entity="e", attribute="a", value=1))
