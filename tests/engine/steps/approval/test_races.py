"""Several who decide, cancel, expire and redeploy at the same moment: one wins, and the task does as it says."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from holdfast import (
    Approval,
    ApprovalState,
    Ask,
    Conflict,
    Context,
    Decided,
    Handle,
    Holdfast,
    Task,
    TaskCancelled,
    TaskFailed,
    TaskState,
    make_store,
)
from holdfast.model.commit import Commit
from holdfast.model.operations import ConsumeApproval, Decide
from tests.engine.steps.approval.support import ONE_TRY, all_approvals, question_of, stored
from tests.engine.support import Watched, ended, reaches, until

CONTESTS = 6
KINDS = 3
"""Of ends, that there have to be: who is faster depends on the machine, so there are more contests until there are."""
MORE_SEEDS = 200


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[Holdfast, Holdfast]]:
    """Two Holdfasts on one store, as two processes would have them; the same one twice where a store has only one."""
    async with Holdfast(url) as one:
        if not make_store(url).capabilities.multi_process:
            yield one, one
            return
        async with Holdfast(url) as other:
            yield one, other


async def test_of_many_who_decide_at_once_one_is_heard(url: str) -> None:
    async with two(url) as (one, other):

        async def work(ctx: Context) -> str | None:
            return (await ctx.approval("Go on?")).by

        for hold in {one, other}:
            hold.task(retry=ONE_TRY)(work)
        async with one.worker(), other.worker():
            for _ in range(5):
                handle: Handle[str] = await one.submit("work")
                approval = await question_of(one, handle)
                calls = [
                    (decide, f"{decide.__name__} {number}")
                    for number in range(4)
                    for decide in (one.approve, other.reject)
                ]
                answers = await asyncio.gather(
                    *(decide(approval.id, by=by) for decide, by in calls), return_exceptions=True
                )
                heard = [answer for answer in answers if isinstance(answer, Approval)]
                assert len(heard) == 1, answers
                assert all(isinstance(answer, Conflict) for answer in answers if answer is not heard[0]), answers
                record = await stored(one, approval)
                assert record == heard[0]
                assert record.decided_by is not None
                if record.state is ApprovalState.APPROVED:
                    assert record.decided_by.startswith("approve")
                    assert await ended(handle) == record.decided_by
                else:
                    assert (record.state, record.decided_by[:6]) == (ApprovalState.REJECTED, "reject")
                    with pytest.raises(TaskFailed, match=f"rejected by {record.decided_by}"):
                        await ended(handle)


@dataclass
class Contest:
    """One task, and everything that comes over it at once."""

    number: int
    random: Random
    version: int = 1
    """What the code asks about at the moment."""
    edited: bool = False
    cancelled: bool = False
    heard: list[tuple[str, str]] = field(default_factory=list)
    """Who decided what, and got the answer that it counts."""

    def __post_init__(self) -> None:
        self.default = self.random.choice(["approved", "rejected"])
        self.expires = self.random.choice([None, None, 0.01, 0.02, 0.04, 0.5])

    async def run(self, one: Holdfast, other: Holdfast, handle: Handle[Any]) -> None:
        await until(lambda: all_approvals(one, handle))  # though it may have expired already
        [approval, *_] = await all_approvals(one, handle)

        async def decide(hold: Holdfast, verb: str) -> None:
            await self.pause()
            try:
                await getattr(hold, verb)(approval.id, by=verb)
            except Conflict:
                return
            self.heard.append((approval.id, verb))

        async def cancel() -> None:
            await self.pause()
            self.cancelled = True
            await one.cancel(handle.id, "enough")

        async def redeploy() -> None:
            await self.pause()
            self.version, self.edited = 2, True
            await other.emit(f"deployed:{self.number}")

        for_it, against = self.random.sample([one, other], 2)  # one of them may have more to do, and be slower
        chosen = [decide(for_it, "approve"), decide(against, "reject")]
        if self.random.random() < 0.4:
            chosen.append(cancel())
        if self.random.random() < 0.6:
            chosen.append(redeploy())
        self.random.shuffle(chosen)
        await asyncio.gather(*chosen)
        await one.emit(f"deployed:{self.number}")

    async def pause(self) -> None:
        await asyncio.sleep(self.random.choice([0, 0.001, 0.005, 0.015, 0.05]))

    def check(self, task: Task, records: list[Approval]) -> str:
        """Pass if the task and its records tell the same story; return how the first question ended."""
        by_id = {record.id: record for record in records}
        assert all(record.state is not ApprovalState.OPEN for record in records)
        assert len({identifier for identifier, _ in self.heard}) == len(self.heard), "two decisions on one approval"
        for identifier, verb in self.heard:
            expected = {"approve": ApprovalState.APPROVED, "reject": ApprovalState.REJECTED}[verb]
            assert (by_id[identifier].state, by_id[identifier].decided_by) == (expected, verb)
        match task.state:
            case TaskState.COMPLETED:
                used = by_id[task.result["approval"]]
                assert used.arguments == {"version": task.result["version"]}, "approved for other details"
                assert said_yes(used)
            case TaskState.FAILED:
                assert task.error["type"] == "holdfast.Rejected"
                assert any(not said_yes(record) for record in records if record.state is not ApprovalState.VOID)
            case _:
                assert self.cancelled
        first = records[0]
        if not (self.edited or self.cancelled):
            assert len(records) == 1
            assert task.state is (TaskState.COMPLETED if said_yes(first) else TaskState.FAILED)
        return first.state.value


def said_yes(record: Approval) -> bool:
    holds = record.default if record.state is ApprovalState.EXPIRED else record.state
    return holds is ApprovalState.APPROVED


async def test_approve_reject_cancel_expire_and_redeploy_at_once(url: str, seeds: Sequence[int]) -> None:
    ends: Counter[str] = Counter()
    async with two(url) as (one, other):
        contests: dict[int, Contest] = {}

        async def work(ctx: Context, number: int) -> dict[str, object]:
            contest = contests[number]
            version = contest.version
            leave = ctx.approval(
                "Go on?", details={"version": version}, expires=contest.expires, default=contest.default
            )
            decided: Decided
            decided, _ = await asyncio.gather(leave, ctx.wait_event(f"deployed:{number}"))
            return {"approval": decided.approval_id, "version": version}

        for hold in {one, other}:
            hold.task(retry=ONE_TRY)(work)
        for seed in itertools.count(seeds[0]):
            if seed not in seeds and len(ends) >= KINDS:
                break
            assert seed < seeds[-1] + MORE_SEEDS, f"hardly a contest: {ends}"
            numbers = [seed * CONTESTS + offset for offset in range(CONTESTS)]
            contests |= {number: Contest(number, Random(number)) for number in numbers}
            async with one.worker(), other.worker():
                handles: list[Handle[Any]] = await one.submit_many("work", [(number,) for number in numbers])
                running = zip(numbers, handles, strict=True)
                await asyncio.gather(*(contests[number].run(one, other, handle) for number, handle in running))
                await decide_what_is_left(one, handles)
            for number, handle in zip(numbers, handles, strict=True):
                records = await all_approvals(one, handle)
                ends[contests[number].check(await handle.task(), records)] += 1


async def decide_what_is_left(hold: Holdfast, handles: Sequence[Handle[Any]]) -> None:
    async def have_ended() -> bool:
        for handle in handles:
            for approval in await hold.approvals(handle):
                await asyncio.gather(hold.approve(approval.id, by="the last"), return_exceptions=True)
        return all([(await handle.task()).state.is_terminal for handle in handles])

    await until(have_ended)


# The same, with the moment chosen


def decides(commits: Sequence[Commit], state: ApprovalState) -> bool:
    operations = [operation for commit in commits for operation in commit.operations]
    return any(isinstance(operation, Decide) and operation.state is state for operation in operations)


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_a_decision_in_the_moment_in_which_a_question_is_taken_back(
    watch: Callable[[], list[Watched]], verb: str
) -> None:
    """The code asks about other details. Right before it takes the old question back, a person decides that."""
    watches = watch()
    version = 1
    async with Holdfast("memory://") as hold:

        @hold.task(retry=ONE_TRY)
        async def work(ctx: Context) -> str:
            leave = ctx.approval("Go on?", details={"version": version})
            decided: Decided
            decided, _ = await asyncio.gather(leave, ctx.wait_event("deployed"))
            return decided.approval_id

        handle = await hold.submit(work)
        decided: list[Approval] = []
        is_decided = asyncio.Event()

        async def be_faster(commits: Sequence[Commit]) -> None:
            if decides(commits, ApprovalState.VOID) and not decided:
                decided.append(first)
                await getattr(hold, verb)(first.id, by="anna")
                is_decided.set()

        async with hold.worker():
            first = await question_of(hold, handle)
            await reaches(handle, TaskState.WAITING)
            watches[-1].before_commit = be_faster
            version = 2
            await hold.emit("deployed")
            await asyncio.wait_for(is_decided.wait(), 60)
            second = await question_of(hold, handle)
            assert (second.id != first.id, second.arguments) == (True, {"version": 2})
            await hold.approve(second.id, by="bert")
            assert await ended(handle) == second.id
        assert (await stored(hold, first)).decided_by == "anna"


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_cancel_in_the_moment_in_which_an_approval_is_used(
    watch: Callable[[], list[Watched]], effect: str
) -> None:
    watches = watch()
    paid: list[int] = []
    async with Holdfast("memory://") as hold:

        async def pay(amount: int) -> None:
            paid.append(amount)

        @hold.task(retry=ONE_TRY)
        async def work(ctx: Context) -> None:
            await ctx.step("pay", pay, 5, effect=effect, approval=Ask("Pay?"))

        handle = await hold.submit(work)
        cancelled: list[TaskState] = []

        async def be_faster(commits: Sequence[Commit]) -> None:
            operations = [operation for commit in commits for operation in commit.operations]
            if any(isinstance(operation, ConsumeApproval) for operation in operations) and not cancelled:
                cancelled.append(TaskState.RUNNING)
                cancelled.append(await handle.cancel("enough"))

        async with hold.worker():
            watches[-1].before_commit = be_faster
            approval = await question_of(hold, handle)
            await hold.approve(approval.id, by="anna")
            with pytest.raises(TaskCancelled):
                await ended(handle)
        assert cancelled == [TaskState.RUNNING, TaskState.RUNNING]
        assert paid == []
        assert await hold.doubts() == []
