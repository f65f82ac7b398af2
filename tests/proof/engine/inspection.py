"""What must be true of a store at any moment, after any kill, and what must be true in the end."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from holdfast import StateStore, StepState, Task, TaskState
from holdfast.model.feed import OLDEST
from holdfast.model.transitions import is_legal
from holdfast.testing.snapshot import all_tasks
from tests.feed_truth import FeedWitness
from tests.proof.engine.evidence import Evidence, StepId, digest
from tests.proof.engine.workload import CHILDREN, expected_result


async def check_store(store: StateStore, evidence: Evidence) -> None:
    """Nothing acknowledged is lost, nothing acknowledged ran again, every history is a legal one."""
    tasks = {task.id: task for task in await all_tasks(store)}
    assert {line.words[0] for line in evidence.lines("submitted")} <= tasks.keys()
    journal = {
        (task_id, step.round, step.key): step
        for task_id in tasks
        for step in await store.steps(task_id)
        if step.state is StepState.COMPLETED
    }
    for line in evidence.lines("durable"):
        step = journal.get(line.step)
        assert step is not None, f"{line.step} was acknowledged to {line.pid} and is gone"
        assert digest(step) == line.words[3], f"{line.step} is not what was acknowledged to {line.pid}"
    evidence.check_nothing_ran_again()
    # A reader that goes on after every kill, where it stopped at the inspection before.
    feed = FeedWitness((await store.read_feed(OLDEST)).cursor, evidence.path.with_suffix(".feed"))
    assert not await feed.check(store)
    for task in tasks.values():
        await _check_history(store, task)
        assert task.state not in {TaskState.FAILED, TaskState.CANCELLED}, task.error


async def check_end(store: StateStore, evidence: Evidence) -> None:
    """All of that, and: every task completed with the right result, every step ran, nothing is held any more."""
    await check_store(store, evidence)
    runs, tasks = evidence.runs(), await all_tasks(store)
    children = Counter(task.parent_id for task in tasks)
    for task in tasks:
        assert task.state is TaskState.COMPLETED
        [number] = task.user_input
        assert task.result == expected_result(task.name, number), task.name
        assert children[task.id] == CHILDREN.get(task.name, 0), task.name
        assert task.owner is None
        assert not [account for account in await store.accounts(task.id) if account.reserved]
        for step in await store.steps(task.id):
            assert step.kind == "attempt" or step.state is StepState.COMPLETED, step
            assert step.kind != "step" or runs[task.id, step.round, step.key] >= 1, step
    _check_order(evidence, {task.id for task in tasks if task.name != "parallel"})
    assert not [lease for worker in await store.workers() for lease in await store.owned(worker.id)]


def _check_order(evidence: Evidence, task_ids: set[str]) -> None:
    """Within one process, a task goes on only when the step before is acknowledged."""
    under_way: dict[tuple[int, str], StepId] = {}
    for line in evidence.lines():
        here = (line.pid, line.words[0])
        if line.what == "ran" and line.words[0] in task_ids:
            assert under_way.get(here, line.step) == line.step, f"{line.step} began too soon"
            under_way[here] = line.step
        elif line.what == "durable" and under_way.get(here) == line.step:
            del under_way[here]


async def _check_history(store: StateStore, task: Task) -> None:
    history = await store.history(task.id)
    assert [move.number for move in history] == list(range(1, len(history) + 1))
    assert (history[0].from_state, history[-1].to_state) == (None, task.state)
    for before, move in pairwise(history):
        assert move.from_state is before.to_state
        assert is_legal(before.to_state, move.to_state, by_parent=task.parent_id is not None), (before, move)
        assert move.fence >= before.fence
