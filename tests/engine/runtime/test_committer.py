"""The Commits of many attempts in one transaction: grouped, in order, refused alone, applied exactly once."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast import (
    Conflict,
    Context,
    Holdfast,
    InvalidValue,
    NewTask,
    Retry,
    Step,
    StepState,
    StoreUnavailable,
    TaskFailed,
    TaskState,
)
from holdfast.engine.runtime.committer import Committer
from holdfast.model.commit import Commit, Held, Refusal, Verdict
from holdfast.model.operations import Emit, SubmitChild, WriteStep
from holdfast.model.size import BATCH_BYTES, LARGEST_BYTES, commit_size
from holdfast.store.memory import MemoryStore
from tests.engine.support import Watched, reaches, settle, steps_of, until

Watch = Callable[[], list[Watched]]


def sequences(batches: list[list[Commit]]) -> dict[str, list[int]]:
    """Return the numbers under which each task's Commits were sent, in order."""
    sent: dict[str, list[int]] = defaultdict(list)
    for commit in (commit for batch in batches for commit in batch):
        if isinstance(commit.guard, Held):
            sent[commit.task_id].append(commit.guard.sequence)
    return sent


async def slowly(commits: Sequence[Commit]) -> None:
    del commits
    await asyncio.sleep(0.002)


async def test_commits_of_many_tasks_share_transactions_and_stay_in_order(watch: Watch) -> None:
    watches = watch()
    hold = Holdfast("memory://")

    @hold.task
    async def work(ctx: Context) -> int:
        return sum([await ctx.step("n", int, n) for n in range(5)])

    async with hold:
        watched = watches[-1]
        watched.before_commit = slowly
        handles = await hold.submit_many(work, [()] * 30)
        async with hold.worker(concurrency=30):
            assert [await handle.result(timeout=60) for handle in handles] == [10] * 30
    assert sum(watched.sizes) == 30 * 6
    assert max(watched.sizes) > 20
    assert len(watched.sizes) < 40
    assert all(numbers == list(range(1, 7)) for numbers in sequences(watched.batches).values())


async def test_parallel_steps_of_one_task_share_transactions_too(watch: Watch) -> None:
    watches = watch()
    hold = Holdfast("memory://")

    @hold.task
    async def work(ctx: Context) -> int:
        async def number(n: int) -> int:
            return n

        return sum(await asyncio.gather(*(ctx.step("n", number, n) for n in range(50))))

    async with hold:
        watched = watches[-1]
        watched.before_commit = slowly
        handle = await hold.submit(work)
        async with hold.worker():
            assert await handle.result(timeout=60) == sum(range(50))
    assert len(watched.sizes) <= 4
    assert sequences(watched.batches)[handle.id] == list(range(1, 52))


@pytest.mark.parametrize("when", ["before it was applied", "after it was applied"])
async def test_an_answer_that_is_lost_is_asked_for_again_and_applied_once(url: str, when: str, watch: Watch) -> None:
    watches = watch()
    hold = Holdfast(url)
    ran: list[int] = []
    lost = 0

    async def number(n: int) -> int:
        ran.append(n)
        return n

    async def lose(commits: Sequence[Commit], verdicts: Sequence[Verdict] = ()) -> None:
        nonlocal lost
        if any(isinstance(commit.guard, Held) for commit in commits) and lost % 3 < 2 and lost < 8:
            lost += 1
            raise StoreUnavailable("the connection was lost")
        lost += 1

    @hold.task
    async def work(ctx: Context) -> int:
        first = await ctx.step("alone", number, 100)
        rest = await asyncio.gather(*(ctx.step("n", number, n) for n in range(4)))
        child = await ctx.submit(nothing)
        await ctx.progress(1)
        return first + sum(rest) + (child.id != "")

    @hold.task(queue="nowhere")
    async def nothing(ctx: Context) -> None: ...

    async with hold:
        watched = watches[-1]
        if when == "before it was applied":
            watched.before_commit = lose
        else:
            watched.after_commit = lose
        handle = await hold.submit(work)
        assert await hold.run(handle) == 107
        assert sorted(ran) == [0, 1, 2, 3, 100]
        assert (await hold.store.count())[TaskState.PENDING] == 1
        assert len([event async for event in handle.events()]) == 1
        journal = await steps_of(hold, handle)
        assert {step.attempts for step in journal.values()} == {1}
    # What is sent again is the same: no number ever stands for two different Commits.
    meant: dict[tuple[str, int], Any] = {}
    for commit in (commit for batch in watched.batches for commit in batch):
        if isinstance(commit.guard, Held):
            assert meant.setdefault((commit.task_id, commit.guard.sequence), commit.operations) == commit.operations


async def test_a_refused_commit_harms_no_other_and_later_ones_are_renumbered(hold: Holdfast) -> None:
    refused: list[BaseException] = []

    @hold.task(queue="nowhere")
    async def other(ctx: Context, number: int) -> None: ...

    @hold.task
    async def work(ctx: Context, conflicts: bool) -> int:
        async def submit() -> None:
            child = NewTask(name="other", key="taken", user_input=[2], queue="nowhere")
            try:
                await ctx._attempt.outbox.commit(SubmitChild(child))
            except Conflict as error:
                refused.append(error)

        async def number(n: int) -> int:
            return n

        branches = [ctx.step("n", number, n) for n in range(6)]
        if conflicts:
            branches[3:3] = [submit(), submit()]  # type: ignore[list-item]
        found = await asyncio.gather(*branches)
        return sum(filter(None, found)) + await ctx.step("after", number, 100)

    await hold.submit(other, 1, key="taken")
    handles = [await hold.submit(work, number == 1) for number in range(3)]
    async with hold.worker():
        assert [await handle.result(timeout=60) for handle in handles] == [115] * 3
    assert len(refused) == 2
    for handle in handles:
        assert set(await steps_of(hold, handle)) == {"n", "n#2", "n#3", "n#4", "n#5", "n#6", "after"}


async def test_what_is_queued_behind_a_refused_commit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent later, it could stand in the place of another one and pass for a repetition of it."""
    gate = asyncio.Event()
    sent: list[list[int]] = []

    async def commit(commits: Sequence[Commit]) -> list[Verdict]:
        sent.append([commit.guard.sequence for commit in commits if isinstance(commit.guard, Held)])
        await gate.wait()
        return [
            Verdict(task_id=commit.task_id, refusal=Refusal.KEY if commit.guard == first.guard else None, sequence=4)
            for commit in commits
        ]

    store = MemoryStore()
    monkeypatch.setattr(store, "commit", commit)
    committer = Committer(store)
    first, second = (Commit(task_id="a", guard=Held("w", 1, n), operations=()) for n in (5, 6))
    other = Commit(task_id="b", guard=Held("w", 1, 9), operations=())
    waiting = [asyncio.create_task(committer.put(one)) for one in (first,)]
    await asyncio.sleep(0)
    waiting += [asyncio.create_task(committer.put(one)) for one in (second, other)]
    await asyncio.sleep(0)
    gate.set()
    verdicts = await asyncio.gather(*waiting)
    assert [verdict.refusal for verdict in verdicts] == [Refusal.KEY, Refusal.OUT_OF_ORDER, None]
    assert sent == [[5], [9]]


async def test_what_no_store_takes_fails_its_caller_alone(hold: Holdfast) -> None:
    refused: list[BaseException] = []

    @hold.task
    async def work(ctx: Context, number: int) -> int:
        total = await ctx.step("before", int, number)
        try:
            if number == 1:
                await ctx._attempt.outbox.commit(Emit(channel="c", payload={"a set": {1}}))
        except InvalidValue as error:
            refused.append(error)
        return total + await ctx.step("after", int, number)

    handles = [await hold.submit(work, number) for number in range(4)]
    async with hold.worker():
        assert [await handle.result(timeout=60) for handle in handles] == [0, 2, 4, 6]
    assert len(refused) == 1
    assert await hold.store.events("c") == []


async def test_a_caller_that_stops_waiting_neither_loses_nor_doubles_a_commit(watch: Watch) -> None:
    watches = watch()
    hold = Holdfast("memory://")
    gate, under_way = asyncio.Event(), asyncio.Event()

    async def hold_up(commits: Sequence[Commit]) -> None:
        del commits
        under_way.set()
        await gate.wait()

    @hold.task
    async def work(ctx: Context) -> int:
        first = asyncio.create_task(ctx.step("first", int, 1))
        await under_way.wait()
        second = asyncio.create_task(ctx.step("second", int, 2))
        await asyncio.sleep(0)
        first.cancel()
        gate.set()
        await asyncio.wait([first])  # when it is known what became of its Commit
        return await second + await ctx.step("third", int, 3)

    async with hold:
        watches[-1].before_commit = hold_up
        handle = await hold.submit(work)
        async with hold.worker():
            assert await handle.result(timeout=60) == 5
        assert set(await steps_of(hold, handle)) == {"first", "second", "third"}
    numbers = sequences(watches[-1].batches)[handle.id]
    assert sorted(set(numbers)) == [1, 2, 3, 4]


async def test_a_lone_task_commits_in_its_own_turn(watch: Watch) -> None:
    watches = watch()
    hold = Holdfast("memory://")
    committing: list[object] = []
    running: list[object] = []

    async def note(commits: Sequence[Commit]) -> None:
        del commits
        committing.append(asyncio.current_task())

    @hold.task
    async def work(ctx: Context) -> None:
        running.append(asyncio.current_task())
        await ctx.step("one", lambda: None)
        await ctx.step("two", lambda: None)

    async with hold:
        watches[-1].before_commit = note
        handle = await hold.submit(work)
        async with hold.worker():
            await handle.result(timeout=60)
    assert committing == running * 3


async def test_submissions_made_together_are_stored_together_and_once(watch: Watch) -> None:
    watches = watch()
    hold = Holdfast("memory://")

    @hold.task
    async def work(ctx: Context, number: int) -> int:
        return number

    async with hold:
        handles = await asyncio.gather(*(hold.submit(work, n) for n in range(100)))
        assert watches[-1].calls["submit"] <= 2
        assert len({handle.id for handle in handles}) == 100
        assert (await hold.summary()).tasks == {TaskState.PENDING: 100}


async def test_work_goes_on_when_the_store_comes_back(watch: Watch) -> None:
    watches = watch()
    hold = Holdfast("memory://")
    away = True

    async def be_away(commits: Sequence[Commit]) -> None:
        del commits
        if away:
            raise StoreUnavailable("gone for a while")

    @hold.task
    async def work(ctx: Context, number: int) -> int:
        return await ctx.step("one", int, number)

    async with hold:
        watched = watches[-1]
        watched.before_commit = be_away
        handles = [await hold.submit(work, n) for n in range(3)]
        async with hold.worker():
            await until(lambda: len(watched.batches) > 4)
            assert [(await handle.task()).state for handle in handles] == [TaskState.RUNNING] * 3
            away = False
            for handle in handles:
                await reaches(handle, TaskState.COMPLETED)


class Weighed(MemoryStore):
    """Notes how many bytes each batch brings, and refuses what the others do."""

    def __init__(self) -> None:
        super().__init__()
        self.brought: list[int] = []
        self.gate = asyncio.Event()

    async def commit(self, commits: Sequence[Commit]) -> list[Verdict]:
        self.brought.append(sum(map(commit_size, commits)))
        await self.gate.wait()
        return [Verdict(task_id=commit.task_id, sequence=1) for commit in commits]


def large(task_id: str, *bodies: bytes) -> Commit:
    lines = [
        Step(key=f"k{n}", kind="step", position=n, state=StepState.COMPLETED, output=body)
        for n, body in enumerate(bodies, 1)
    ]
    return Commit(task_id=task_id, guard=Held("w", 1, 1), operations=tuple(map(WriteStep, lines)))


async def test_a_batch_is_bounded_by_bytes_and_one_that_is_larger_goes_alone() -> None:
    """PostgreSQL takes no message above 1 GB: such a batch would be sent again for ever."""
    store = Weighed()
    committer = Committer(store)
    part, whole = b"x" * (BATCH_BYTES // 4), b"x" * (BATCH_BYTES + 1)
    sent = [large("first", b"x"), *(large(f"t{n}", part) for n in range(6)), large("whole", whole), large("last", part)]
    waiting = [asyncio.create_task(committer.put(sent[0]))]
    await settle()
    waiting += [asyncio.create_task(committer.put(one)) for one in sent[1:]]
    await settle()
    store.gate.set()
    assert [verdict.task_id for verdict in await asyncio.gather(*waiting)] == [one.task_id for one in sent]
    assert store.brought == [1, 4 * len(part), 2 * len(part), len(whole), len(part)]


async def test_what_is_too_large_fails_its_task_alone_and_says_what_to_do(hold: Holdfast) -> None:
    body = b'"' + b"x" * (LARGEST_BYTES // 40) + b'"'  # one object, however often it stands there
    gate = asyncio.Event()

    @hold.task
    async def work(ctx: Context, size: str) -> str:

        async def wait() -> str:
            await gate.wait()
            return "done"

        if size == "large":
            gate.set()
            await ctx._attempt.outbox.commit(*large(ctx.task_id, *[body] * 41).operations)
        return await ctx.step("wait", wait)

    async with hold.worker():
        innocent = [await hold.submit(work, "small") for _ in range(3)]
        guilty = await hold.submit(work, "large")
        assert [await handle.result(timeout=60) for handle in innocent] == ["done"] * 3
        with pytest.raises(TaskFailed, match=r"takes \d{3},\d{3},\d{3} bytes in 41 operations.*as artifacts"):
            await guilty.result(timeout=60)
        assert await (await hold.submit(work, "small")).result(timeout=60) == "done"


async def test_a_submission_that_is_too_large_says_what_to_do(hold: Holdfast) -> None:
    body = "x" * (LARGEST_BYTES // 40)
    with pytest.raises(InvalidValue, match=r"41 tasks take .* submit them in parts"):
        await hold.store.submit([NewTask(name="work", user_input=body) for _ in range(41)])
    assert await hold.store.count() == {}


async def test_a_note_that_a_step_is_under_way_never_follows_its_result(
    hold: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused as out of order, it is sent again. By then the step may be done, and be recorded."""
    runs: list[str] = []
    began, go_on = asyncio.Event(), asyncio.Event()

    async def long() -> None:
        runs.append("long")
        began.set()
        await go_on.wait()

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("long", long)
        await ctx.sleep(0.05)

    async with hold.worker(grace=0.0) as worker:
        handle = await hold.submit(work)
        await asyncio.wait_for(began.wait(), 60)
        attempt = worker._host.attempts[handle.id]
        [line] = attempt.under_way._lines.values()
        committer = attempt.services.committer
        refused = asyncio.Event()

        async def refuse_once(commit: Commit) -> Verdict:
            assert isinstance(commit.guard, Held)
            monkeypatch.undo()
            refused.set()
            await until(lambda: attempt.journal.get("long") is not None, patience=60)
            return Verdict(task_id=commit.task_id, refusal=Refusal.OUT_OF_ORDER, sequence=attempt.outbox._acknowledged)

        monkeypatch.setattr(committer, "put", refuse_once)
        noting = asyncio.create_task(attempt.under_way.note_running(line))
        await asyncio.wait_for(refused.wait(), 60)
        attempt.outbox._sequence -= 1  # as the refusal will do, so that the step's own Commit is the next one
        go_on.set()
        await noting
        await handle.result(timeout=60)
    assert runs == ["long"]
    assert (await steps_of(hold, handle))["long"].state is StepState.COMPLETED


async def test_an_answer_that_is_heard_late_takes_nothing_back(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to the note that a step is under way may be heard after the one to its result."""
    runs: list[str] = []
    began, go_on, noted = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def long() -> None:
        runs.append("long")
        began.set()
        await go_on.wait()

    @hold.task
    async def work(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.step("long", long)
            runs.append("outer")
            await noted.wait()
            if runs.count("outer") == 1:
                raise ConnectionError("once more")

        await ctx.step("outer", outer, retry=Retry(max_attempts=2, initial=0.01))

    async with hold.worker(grace=0.0) as worker:
        handle = await hold.submit(work)
        await asyncio.wait_for(began.wait(), 60)
        attempt = worker._host.attempts[handle.id]
        [line] = [line for line in attempt.under_way._lines.values() if line.key.endswith("long")]
        committer = attempt.services.committer
        put = committer.put

        async def heard_late(commit: Commit) -> Verdict:
            monkeypatch.undo()
            verdict = await put(commit)
            go_on.set()
            await until(lambda: "outer" in runs, patience=60)
            return verdict

        monkeypatch.setattr(committer, "put", heard_late)
        await attempt.under_way.note_running(line)
        noted.set()
        await handle.result(timeout=60)
    assert runs == ["long", "outer", "outer"]


async def test_what_was_not_written_rides_again_unless_it_has_gone_on(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> list[str]:
        attempt = ctx._attempt
        ctx.now(key="first")
        ctx.now(key="second")
        first, second = attempt.outbox._buffered
        attempt.outbox.forget_buffered()
        assert isinstance(first, WriteStep)
        attempt.journal.note(replace(first.step, attempts=7))
        attempt.outbox._put_back((first, second))
        kept = attempt.outbox._buffered
        return [one.step.key for one in kept if isinstance(one, WriteStep)]

    async with hold.worker(grace=0.0):
        kept = await (await hold.submit(work)).result(timeout=60)
    assert [key.rpartition(":")[2] for key in kept] == ["second"]
