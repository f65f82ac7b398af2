"""The short way for frequent Commits answers and leaves behind exactly what the general one would."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.model.approval import Approval
from holdfast.model.clock import ManualClock
from holdfast.model.commit import Commit, Held, Verdict
from holdfast.model.operations import (
    Move,
    OpenApproval,
    Operation,
    Reserve,
    UntilChildren,
    UntilTime,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.step import Step, StepState
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import commit as committing
from holdfast.store.sqlite import plain
from holdfast.testing.snapshot import snapshot
from tests.everyday import FULL

TASKS = ("plain", "other", "child", "sibling", "asks", "reserves", "reviewed", "parent", "late")
"""One of each kind the short way must tell apart."""

OPERATIONS: tuple[Operation, ...] = (
    WriteStep(Step(key="a", kind="step", position=1, state=StepState.COMPLETED, output=b"1")),
    WriteStep(Step(key="a", kind="step", position=2, state=StepState.FAILED, error=b"2")),
    WriteStep(Step(key="b", kind="step", position=3, state=StepState.RUNNING)),
    WriteOutcome(result="so far"),
)
MOVES: tuple[Move, ...] = (
    Move(to=TaskState.COMPLETED, reason="done"),
    Move(to=TaskState.COMPLETED, reason="done", result={"n": 1}),
    Move(to=TaskState.FAILED, reason="gave up", error="why"),
    Move(to=TaskState.FAILED, reason="gave up", counts_attempt=True, feedback=""),
    Move(to=TaskState.CANCELLED, reason="cancelled"),
    Move(to=TaskState.PENDING, reason="later"),
)

commits = st.lists(
    st.tuples(
        st.sampled_from(TASKS),
        st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        st.sampled_from([0, 0, 0, 0, 0, 1]),
        st.lists(st.sampled_from(OPERATIONS[:3]) | st.sampled_from(OPERATIONS), max_size=3),
        st.none() | st.sampled_from(MOVES),
    ),
    min_size=1,
    max_size=10,
)


@given(commits)
@example([("plain", 1, 0, [], None), ("plain", -1, 0, [], None)])  # the second would pass, had it come first
@settings(max_examples=150 if FULL else 50, deadline=None)
def test_the_short_way_is_the_general_way(drawn: list[tuple[str, int, int, list[Operation], Move | None]]) -> None:
    assert asyncio.run(_outcome(drawn, plain.split_batch)) == asyncio.run(_outcome(drawn, _nothing_fits))


async def test_the_most_frequent_commits_take_it() -> None:
    async with MemoryStore(clock=ManualClock()) as store:
        await _prepare(store, ManualClock())
        tasks = [task for task in (await store.find()).items if task.id in {"plain", "other"}]
        sent = [Commit(task_id=t.id, guard=Held("w", t.fence, 1), operations=(OPERATIONS[0], MOVES[1])) for t in tasks]
        with patch.object(committing, "_judge_and_apply") as general:
            assert all(verdict.applied for verdict in await store.commit(sent))
        general.assert_not_called()


Split = Callable[[Sequence[Commit]], Iterator[tuple[Sequence[Commit], list[plain.PlainCommit]]]]


def _nothing_fits(commits: Sequence[Commit]) -> Iterator[tuple[Sequence[Commit], list[plain.PlainCommit]]]:
    return (((commit,), []) for commit in commits)


async def _outcome(
    drawn: list[tuple[str, int, int, list[Operation], Move | None]], split: Split
) -> tuple[list[Verdict], frozenset[str], dict[str, Any]]:
    clock = ManualClock()
    async with MemoryStore(clock=clock) as store, store.listen() as listener:
        await _prepare(store, clock)
        await listener.wait(0)
        tasks = {task.id: task for task in (await store.find()).items}
        sent: Counter[str] = Counter()
        batch = []
        for task_id, skipped, newer, operations, move in drawn:
            sent[task_id] += 1
            sequence = max(1, tasks[task_id].sequence + sent[task_id] + skipped)
            guard = Held("w", tasks[task_id].fence + newer, sequence)
            batch.append(
                Commit(task_id=task_id, guard=guard, operations=(*operations, *([move] if move else [])), actor="w")
            )
        with patch.object(committing, "split_batch", split):
            verdicts = await store.commit(batch)
        return verdicts, await listener.wait(0.001), await snapshot(store, accounts=["shared"])


async def _prepare(store: MemoryStore, clock: ManualClock) -> None:
    """Bring about one task of each kind, all held by one worker but the parent."""
    await store.submit([NewTask(id=task_id, name="job") for task_id in TASKS])
    await store.register(NewWorker(id="w"))
    await store.claim(Claim(worker_id="w", number=1, limit=len(TASKS), names=("job",)))
    first: dict[str, Operation] = {
        "asks": OpenApproval(Approval(id="ask", task_id="asks", step_key="a", question="?")),
        "reserves": Reserve(account="shared", step_key="a", amounts={"steps": 3}),
        "reviewed": Move(to=TaskState.REVIEW, reason="work done", result="draft"),
        "parent": Move(
            to=TaskState.WAITING,
            reason="children",
            waits=(UntilChildren(key="all", children=("child", "sibling")),),
        ),
        "late": Move(
            to=TaskState.WAITING, reason="timer", waits=(UntilTime(key="t", at=clock.now() + timedelta(seconds=5)),)
        ),
    }
    verdicts = await store.commit(
        [Commit(task_id=task_id, guard=Held("w", 1, 1), operations=(op,)) for task_id, op in first.items()]
    )
    assert all(verdict.applied for verdict in verdicts)
    await store.acquire("late", "w")
    clock.advance(10)
