"""Many submissions with one key beside claims: each task runs with one input, and no debounced submission is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Move
from holdfast.model.queries import TaskFilter
from holdfast.model.task import IfExists, NewTask, Submitted, Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.base import StateStore
from holdfast.store.url import make_store

SUBMITTERS, ROUNDS = 64, 3


@pytest.fixture
def two(database_url: str) -> tuple[StateStore, StateStore]:
    """Two stores on the same data: one for the submitters, one for the worker."""
    return make_store(database_url), make_store(database_url)


async def work(store: StateStore, stop: asyncio.Event) -> list[Task]:
    """Claim and complete whatever there is, until asked to stop and nothing is left."""
    await store.register(NewWorker(id="w", lease=600))
    done: list[Task] = []
    number = 0
    while True:
        is_last = stop.is_set()
        number += 1
        claimed = await store.claim(Claim(worker_id="w", number=number, limit=10, names=("job",)))
        for one in claimed:
            guard = Held("w", one.task.fence, 1)
            move = Move(to=TaskState.COMPLETED, reason="done", result=one.task.user_input)
            await store.commit([Commit(task_id=one.task.id, guard=guard, operations=(move,))])
            done.append(one.task)
        if not claimed:
            if is_last:
                return done
            await asyncio.sleep(0)


async def submit_all(store: StateStore, **options: object) -> list[tuple[int, Submitted]]:
    """Let all submitters submit a few times each; return their inputs with the answers."""

    async def submitter(number: int) -> list[tuple[int, Submitted]]:
        answers = []
        for turn in range(ROUNDS):
            user_input = number * ROUNDS + turn
            [answer] = await store.submit([NewTask(name="job", key="k", user_input=user_input, **options)])  # type: ignore[arg-type]
            answers.append((user_input, answer))
        return answers

    return [answer for answers in await asyncio.gather(*map(submitter, range(SUBMITTERS))) for answer in answers]


async def race(
    two: tuple[StateStore, StateStore], **options: object
) -> tuple[list[tuple[int, Submitted]], list[Task], list[Task]]:
    submitting, working = two
    async with submitting, working:
        stop = asyncio.Event()
        worker = asyncio.create_task(work(working, stop))
        answers = await submit_all(submitting, **options)
        stop.set()
        done = await worker
        return answers, done, list((await submitting.find(TaskFilter(name="job"), limit=1000)).items)


async def test_a_debounced_submission_is_never_lost(two: tuple[StateStore, StateStore]) -> None:
    """Each one that was answered with a task is in it or was replaced in it before the claim: nothing ran twice."""
    answers, done, stored = await race(two, debounce_max=timedelta(seconds=60))
    ran = Counter(task.id for task in done)
    assert set(ran.values()) == {1}
    assert set(ran) == {task.id for task in stored} == {answer.task_id for _, answer in answers}
    given = {task.id: {value for value, answer in answers if answer.task_id == task.id} for task in stored}
    assert all(task.user_input in given[task.id] for task in done)
    assert sum(answer.created for _, answer in answers) == len(stored)
    assert [task.key for task in stored].count("k") == 1
    assert not any(answer.conflict for _, answer in answers)


async def test_a_claim_runs_what_was_there_when_it_came(two: tuple[StateStore, StateStore]) -> None:
    """One task, claimed once; later submitters learn that the key is taken, unless the input is the same."""
    answers, [task], [stored] = await race(two, if_exists=IfExists.REPLACE)
    assert sum(answer.created for _, answer in answers) == 1
    assert {answer.task_id for _, answer in answers} == {task.id} == {stored.id}
    replaced = {value for value, answer in answers if not answer.conflict}
    assert stored.user_input == stored.result == task.user_input
    assert task.user_input in replaced


async def test_of_many_that_ask_for_a_new_task_one_gets_it(two: tuple[StateStore, StateStore]) -> None:
    answers, _, [stored] = await race(two, if_exists=IfExists.REJECT)
    assert [value for value, answer in answers if answer.created] == [stored.user_input]


async def test_a_debounced_submission_is_not_lost_to_a_prune(two: tuple[StateStore, StateStore]) -> None:
    """What ran is pruned at once, with its key: the next submission finds neither, or both."""
    submitting, working = two
    async with submitting, working:
        stop = asyncio.Event()
        worker = asyncio.create_task(work(working, stop))
        pruner = asyncio.create_task(prune_until(working, stop))
        answers = await submit_all(submitting, debounce_max=timedelta(seconds=60))
        stop.set()
        done, pruned = await worker, await pruner
        pruned += (await working.prune(timedelta(0))).tasks
        assert pruned == len(done)
        assert list((await submitting.find()).items) == []
    ran = {task.id: task.user_input for task in done}
    assert len(ran) == len(done)
    given = {task_id: {value for value, answer in answers if answer.task_id == task_id} for task_id in ran}
    assert set(ran) == {answer.task_id for _, answer in answers}
    assert all(ran[task_id] in given[task_id] for task_id in ran)


async def prune_until(store: StateStore, stop: asyncio.Event) -> int:
    pruned = 0
    while not stop.is_set():
        pruned += (await store.prune(timedelta(0))).tasks
        await asyncio.sleep(0)
    return pruned
