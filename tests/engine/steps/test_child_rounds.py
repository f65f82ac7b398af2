"""Children over rounds and retries of their parents: a child is begun again, never submitted a second time."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio

import pytest

from holdfast import Context, Holdfast, Retry, Task, TaskCancelled, TaskFailed, TaskFilter, TaskState
from holdfast.model.commit import Commit, Expect
from holdfast.model.operations import Move
from tests.engine.support import crash, ended, passes, reaches, steps_of, until

ONE_TRY = Retry(max_attempts=1)


class Bank:
    """Counts payments by what they are for, and not by their effect ids."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    async def pay(self, what: str) -> str:
        self.paid.append(what)
        return f"receipt for {what}"


async def children_of(hold: Holdfast, task_id: str) -> list[Task]:
    page = await hold.store.find(TaskFilter(parent_id=task_id), limit=100, newest_first=False)
    return list(page.items)


async def test_a_new_round_begins_the_same_children_in_a_round_of_their_own(hold: Holdfast) -> None:
    bank, heard = Bank(), []

    @hold.task
    async def grandchild(ctx: Context) -> str:
        heard.append(("grandchild", ctx.task.round, ctx.feedback))
        return await ctx.step("pay", bank.pay, "stamp", effect="once")

    @hold.task
    async def child(ctx: Context) -> str:
        heard.append(("child", ctx.task.round, ctx.feedback))
        await ctx.step("pay", bank.pay, "letter", effect="once")
        return await (await ctx.submit(grandchild)).result()

    @hold.task
    async def parent(ctx: Context) -> str:
        receipt = await (await ctx.submit(child)).result()
        return receipt if ctx.feedback is None else f"Please find enclosed: {receipt}"

    @parent.verify
    async def polite(ctx: Context, text: str) -> bool | str:
        return "Please" in text or "be polite"

    handle = await hold.submit(parent)
    async with hold.worker():
        assert await ended(handle) == "Please find enclosed: receipt for stamp"
    assert bank.paid == ["letter", "stamp"]
    assert {one for one in heard if one[1] == 2} == {("child", 2, "be polite"), ("grandchild", 2, "be polite")}
    [only] = await children_of(hold, handle.id)
    assert (only.round, only.state) == (2, TaskState.COMPLETED)
    reasons = [move.reason for move in await hold.store.history(only.id)]
    assert f"new round of its parent {handle.id}" in reasons


async def test_a_retry_by_hand_does_the_same(hold: Holdfast) -> None:
    bank, broken = Bank(), [True]

    @hold.task
    async def child(ctx: Context, number: int) -> str:
        return await ctx.step("pay", bank.pay, f"letter {number}", effect="once")

    @hold.task(retry=ONE_TRY)
    async def parent(ctx: Context) -> list[str]:
        submitted = [await ctx.submit(child, number) for number in range(3)]
        receipts = [await one.result() for one in submitted]
        if broken:
            raise RuntimeError("no paper")
        return receipts

    handle = await hold.submit(parent)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="no paper"):
            await ended(handle)
        broken.clear()
        await hold.retry(handle)
        assert await ended(handle) == [f"receipt for letter {number}" for number in range(3)]
    assert sorted(bank.paid) == [f"letter {number}" for number in range(3)]
    assert len(await children_of(hold, handle.id)) == 3


async def test_a_child_gets_other_input_and_its_effects_are_matched_by_their_arguments(hold: Holdfast) -> None:
    bank = Bank()

    @hold.task
    async def child(ctx: Context, things: list[str]) -> list[str]:
        return [await ctx.step("pay", bank.pay, thing, effect="once") for thing in things]

    @hold.task
    async def parent(ctx: Context) -> list[str]:
        things = ["book", "pen"] if ctx.task.round == 1 else ["pen", "ink", "book"]
        return await (await ctx.submit(child, things)).result()

    @parent.verify
    async def has_ink(ctx: Context, receipts: list[str]) -> bool:
        return len(receipts) == 3

    handle = await hold.submit(parent)
    async with hold.worker():
        assert await ended(handle) == ["receipt for pen", "receipt for ink", "receipt for book"]
    assert bank.paid == ["book", "pen", "ink"]
    [only] = await children_of(hold, handle.id)
    assert only.user_input == [["pen", "ink", "book"]]


async def test_a_child_at_work_on_the_same_request_is_adopted(quick: Holdfast) -> None:
    begun, release = [], asyncio.Event()

    async def work() -> str:
        begun.append(1)
        await release.wait()
        return "done"

    @quick.task
    async def child(ctx: Context) -> str:
        return await ctx.step("work", work)

    @quick.task(retry=ONE_TRY)
    async def parent(ctx: Context) -> str:
        submitted = await ctx.submit(child)
        if ctx.task.round == 1:
            await until(lambda: begun)
            raise RuntimeError("cannot wait")
        release.set()
        return await submitted.result()

    handle = await quick.submit(parent)
    async with quick.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
        await quick.retry(handle)
        assert await ended(handle) == "done"
    assert begun == [1]
    [only] = await children_of(quick, handle.id)
    assert only.round == 1


async def test_a_child_ends_another_request_before_it_begins_again(quick: Holdfast) -> None:
    log: list[str] = []

    async def work(name: str) -> str:
        log.append(f"begins {name}")
        try:
            if name == "old":
                await asyncio.Event().wait()
        finally:
            log.append(f"ends {name}")
        return name

    @quick.task
    async def child(ctx: Context, name: str) -> str:
        return await ctx.step("work", work, name)

    @quick.task(retry=ONE_TRY)
    async def parent(ctx: Context) -> str:
        submitted = await ctx.submit(child, "old" if ctx.task.round == 1 else "new")
        if ctx.task.round == 1:
            await until(lambda: log)
            raise RuntimeError("cannot wait")
        return await submitted.result()

    handle = await quick.submit(parent)
    async with quick.worker(lease=3):
        with pytest.raises(TaskFailed):
            await ended(handle)
        await quick.retry(handle)
        assert await ended(handle) == "new"
    assert log == ["begins old", "ends old", "begins new", "ends new"]
    [only] = await children_of(quick, handle.id)
    assert (only.round, only.state) == (2, TaskState.COMPLETED)


async def test_resume_waits_again_for_an_event_that_did_not_come_in_time(hold: Holdfast) -> None:
    tries = []

    @hold.task(retry=Retry(max_attempts=2, initial=0.001))
    async def waits(ctx: Context) -> object:
        tries.append(ctx.attempt)
        return await ctx.wait_event("payment", timeout=0.05)

    handle = await hold.submit(waits)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="payment"):
            await ended(handle)
        history = await hold.store.history(handle.id)
        await hold.emit("payment", "42 EUR")
        await hold.resume(handle)
        assert await ended(handle) == "42 EUR"
    assert sorted(set(tries)) == [1, 2, 3]
    ends = [move.at for move in history if move.from_state is TaskState.RUNNING]
    assert (ends[-1] - ends[0]).total_seconds() >= 0.05, "each attempt waited for itself"


async def test_resume_of_a_parent_begins_its_failed_children_again_where_they_stopped(hold: Holdfast) -> None:
    bank, down = Bank(), [True]

    async def work() -> str:
        if down:
            raise ConnectionError("service down")
        return "work done"

    @hold.task(retry=ONE_TRY)
    async def grandchild(ctx: Context) -> str:
        await ctx.step("pay", bank.pay, "stamp", effect="once")
        return await ctx.step("work", work)

    @hold.task(retry=ONE_TRY)
    async def child(ctx: Context) -> str:
        await ctx.step("count", bank.pay, "letter")
        return await (await ctx.submit(grandchild)).result()

    @hold.task(retry=ONE_TRY)
    async def parent(ctx: Context) -> str:
        return await (await ctx.submit(child)).result()

    handle = await hold.submit(parent)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="service down"):
            await ended(handle)
        down.clear()
        await hold.resume(handle)
        assert await ended(handle) == "work done"
    assert bank.paid == ["letter", "stamp"], "what was completed replayed"
    [only] = await children_of(hold, handle.id)
    assert only.round == 1


async def test_a_child_that_was_resumed_by_hand_is_not_begun_again(quick: Holdfast) -> None:
    down, runs = [True], []

    @quick.task(retry=ONE_TRY)
    async def child(ctx: Context) -> str:
        runs.append(1)
        if down:
            raise ConnectionError("service down")
        return "child ok"

    @quick.task(retry=ONE_TRY)
    async def parent(ctx: Context) -> str:
        return await (await ctx.submit(child)).result()

    handle = await quick.submit(parent)
    async with quick.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
        down.clear()
        [only] = await children_of(quick, handle.id)
        await ended(await quick.resume(only.id))
        await quick.resume(handle)
        assert await ended(handle) == "child ok"
    assert len(runs) == 2


async def test_the_next_attempt_of_a_parent_begins_its_failed_child_again(quick: Holdfast) -> None:
    runs = []

    @quick.task(retry=ONE_TRY)
    async def child(ctx: Context) -> int:
        runs.append(1)
        if len(runs) < 3:
            raise ConnectionError("service down")
        return len(runs)

    @quick.task(retry=Retry(max_attempts=3, initial=0.001))
    async def parent(ctx: Context) -> int:
        return await (await ctx.submit(child)).result()

    handle = await quick.submit(parent)
    async with quick.worker():
        assert await ended(handle) == 3
    assert len(await children_of(quick, handle.id)) == 1


async def test_the_next_try_of_a_step_begins_the_failed_child_inside_it_again(quick: Holdfast) -> None:
    runs = []

    @quick.task(retry=ONE_TRY)
    async def child(ctx: Context) -> int:
        runs.append(1)
        if len(runs) < 3:
            raise ConnectionError("service down")
        return len(runs)

    @quick.task(retry=ONE_TRY)
    async def parent(ctx: Context) -> int:
        async def outer() -> int:
            return await (await ctx.submit(child)).result()

        return await ctx.step("outer", outer, retry=Retry(max_attempts=3, initial=0.001))

    handle = await quick.submit(parent)
    async with quick.worker():
        assert await ended(handle) == 3
    assert len(await children_of(quick, handle.id)) == 1


async def test_a_failure_that_is_final_for_a_child_is_not_repeated_by_its_parent(quick: Holdfast) -> None:
    @quick.task
    async def child(ctx: Context) -> None:
        await ctx.approval("Really?")

    @quick.task(retry=Retry(max_attempts=5, initial=0.001))
    async def parent(ctx: Context) -> None:
        await (await ctx.submit(child)).result()

    handle = await quick.submit(parent)
    async with quick.worker():
        await until(quick.approvals)
        [asked] = await quick.approvals()
        await quick.reject(asked.id, by="anna", note="no")
        with pytest.raises(TaskFailed, match="no"):
            await ended(handle)
        assert await quick.approvals() == [], "the person is not asked again"
        assert (await handle.task()).attempts == 1


async def test_a_child_that_a_person_cancelled_stays_cancelled(quick: Holdfast) -> None:
    @quick.task
    async def child(ctx: Context) -> None:
        await ctx.wait_event("never")

    @quick.task(retry=ONE_TRY)
    async def parent(ctx: Context) -> None:
        await (await ctx.submit(child)).result()

    handle = await quick.submit(parent)
    async with quick.worker():
        await reaches(handle, TaskState.WAITING)
        [only] = await children_of(quick, handle.id)
        await quick.cancel(only.id, reason="not wanted", by="anna")
        for _ in range(2):
            with pytest.raises(TaskFailed, match="not wanted"):
                await ended(handle)
            await quick.resume(handle)
        with pytest.raises(TaskFailed, match="not wanted"):
            await ended(handle)
        with pytest.raises(TaskCancelled):
            await ended(quick.handle(only.id))


async def test_a_fork_never_touches_the_children_of_its_origin(quick: Holdfast) -> None:
    bank = Bank()

    @quick.task
    async def child(ctx: Context) -> str:
        return await ctx.step("pay", bank.pay, "letter", effect="once")

    @quick.task(retry=ONE_TRY)
    async def parent(ctx: Context) -> str:
        receipt = await (await ctx.submit(child)).result()
        if ctx.task.round == 1:
            raise RuntimeError("once more")
        return receipt

    handle = await quick.submit(parent)
    async with quick.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
        fork = await quick.fork(handle)
        with pytest.raises(TaskFailed):
            await ended(fork)
        await quick.retry(fork)
        assert await ended(fork) == "receipt for letter"
    [origins] = await children_of(quick, handle.id)
    assert origins.round == 1
    assert bank.paid == ["letter"], "what the child of the origin has done stands for the fork as well"
    assert await children_of(quick, fork.id) == []


async def test_a_worker_that_dies_while_it_restarts_children_is_followed_by_another(hold: Holdfast) -> None:
    bank, rejected = Bank(), asyncio.Event()
    hang = [True]

    @hold.task
    async def child(ctx: Context, number: int) -> str:
        return await ctx.step("pay", bank.pay, f"letter {number}", effect="once")

    @hold.task
    async def parent(ctx: Context) -> int:
        first = await ctx.submit(child, 1)
        if ctx.task.round == 2 and hang:
            rejected.set()
            await asyncio.Event().wait()
        second = await ctx.submit(child, 2)
        await first.result()
        await second.result()
        return ctx.task.round

    @parent.verify
    async def second_round(ctx: Context, number: int) -> bool:
        return number == 2

    handle = await hold.submit(parent)
    worker = await hold.worker().__aenter__()
    await rejected.wait()
    hang.clear()
    await crash(hold, worker)
    async with hold.worker():
        assert await ended(handle) == 2
    assert sorted(bank.paid) == ["letter 1", "letter 2"]
    assert sorted(one.round for one in await children_of(hold, handle.id)) == [2, 2]
    assert len([key for key in await steps_of(hold, handle) if key.startswith("submit:child")]) == 4
    await passes(hold, handle, TaskState.COMPLETED, times=1)


# Which earlier call is it


async def pays_over_rounds(hold: Holdfast, rounds: list[list[str]], how: str) -> list[str]:
    """Let a child pay for other things in each round of its parent; return what was paid for in the end."""
    bank = Bank()

    async def notify(what: str) -> str:
        bank.paid.append(f"notice of {what}")
        return f"notified {what}"

    @hold.task(name=f"child-{how}")
    async def child(ctx: Context, things: list[str]) -> list[str]:
        async def order(what: str) -> str:
            if ctx.task.round == 1:
                await ctx.step("notify", notify, what, effect="once")
            return await ctx.step("pay", bank.pay, what, effect="once")

        match how:
            case "loop":
                return [await ctx.step("pay", bank.pay, thing, effect="once") for thing in things]
            case "keys":
                return [
                    await ctx.step("pay", bank.pay, thing, effect="once", key=f"pay-{number}")
                    for number, thing in enumerate(things)
                ]
            case "nested":
                return [await ctx.step("order", order, thing) for thing in things]
            case _:
                paying = [
                    ctx.step("pay", bank.pay, thing, effect="once", key=f"pay-{number}")
                    for number, thing in enumerate(things)
                ]
                return list(await asyncio.gather(*paying))

    @hold.task(name=f"parent-{how}")
    async def parent(ctx: Context) -> list[str]:
        return await (await ctx.submit(child, rounds[ctx.task.round - 1])).result()

    @parent.verify
    async def last_round(ctx: Context, receipts: list[str]) -> bool:
        assert receipts == [f"receipt for {thing}" for thing in rounds[ctx.task.round - 1]]
        return ctx.task.round == len(rounds)

    handle = await hold.submit(parent)
    async with hold.worker():
        await ended(handle)
    return sorted(what for what in bank.paid if "notice" not in what)


@pytest.mark.parametrize("how", ["loop", "keys", "nested", "gather"])
async def test_a_call_with_the_same_arguments_is_the_same_call_in_every_later_round(quick: Holdfast, how: str) -> None:
    for rounds, paid in (
        ([["a", "b"], ["b"]], ["a", "b"]),
        ([["a", "b"], ["b"], ["b", "a"]], ["a", "b"]),
        ([["a"], ["b"], ["a"]], ["a", "b"]),
        ([["a"], ["a", "a"]], ["a", "a"]),
        ([["a", "b", "c"], ["c", "a"]], ["a", "b", "c"]),
    ):
        async with Holdfast("memory://") as hold:
            assert await pays_over_rounds(hold, rounds, how) == paid, rounds


async def test_children_without_keys_are_matched_by_their_input(quick: Holdfast) -> None:
    bank = Bank()

    @quick.task
    async def child(ctx: Context, what: str) -> str:
        return await ctx.step("pay", bank.pay, what, effect="once")

    @quick.task
    async def parent(ctx: Context) -> int:
        for what in ["a", "b", "c"] if ctx.task.round == 1 else ["b", "c"]:
            await (await ctx.submit(child, what)).result()
        return ctx.task.round

    @parent.verify
    async def second_round(ctx: Context, number: int) -> bool:
        return number == 2

    handle = await quick.submit(parent)
    async with quick.worker():
        assert await ended(handle) == 2
    assert bank.paid == ["a", "b", "c"]


async def test_a_child_is_found_again_though_the_step_around_it_has_another_number(quick: Holdfast) -> None:
    """A later round that takes another way counts the steps without a key otherwise."""
    bank = Bank()

    @quick.task
    async def child(ctx: Context, what: str) -> str:
        return await ctx.step("pay", bank.pay, what, effect="once")

    @quick.task
    async def parent(ctx: Context, names: list[str]) -> list[str]:
        receipts = []

        async def order(name: str, what: str) -> str:
            return await (await ctx.submit(child, what, key=name)).result()

        for name, what in zip(names, ("pen", "ink", "paper"), strict=True):
            if ctx.task.round == 2:
                await ctx.step("order", asyncio.sleep, 0)
            receipts.append(await ctx.step("order", order, name, what))
        return receipts

    @parent.verify
    async def second(ctx: Context, receipts: list[str]) -> bool:
        return ctx.task.round == 2

    for names in (["first", "second", "third"], ["same", "same", "same"]):
        bank.paid.clear()
        handle = await quick.submit(parent, names)
        async with quick.worker():
            assert await ended(handle) == ["receipt for pen", "receipt for ink", "receipt for paper"]
        assert bank.paid == ["pen", "ink", "paper"]
        assert [one.round for one in await children_of(quick, handle.id)] == [2, 2, 2]


async def test_children_that_restart_at_the_same_time_are_distinguished(hold: Holdfast) -> None:
    bank = Bank()

    @hold.task
    async def child(ctx: Context, what: str) -> str:
        return await ctx.step("pay", bank.pay, what, effect="once")

    @hold.task
    async def parent(ctx: Context) -> int:
        async def one(number: int) -> None:
            await (await ctx.submit(child, f"{number + 2 * ctx.task.round}", key=f"{ctx.task.round}-{number}")).result()

        async def unnamed(what: str) -> None:
            await (await ctx.submit(child, what)).result()

        await asyncio.gather(*(one(number) for number in range(4)))
        await unnamed("last")
        return ctx.task.round

    @parent.verify
    async def second_round(ctx: Context, number: int) -> bool:
        return number == 2

    handle = await hold.submit(parent)
    async with hold.worker():
        assert await ended(handle) == 2
    rounds = sorted(one.round for one in await children_of(hold, handle.id))
    assert len(bank.paid) == len(set(bank.paid)) + 2, "5 and 6 are asked for by new children"
    assert rounds == [1] * 8 + [2]


async def test_one_resume_begins_all_children_again_that_had_failed(quick: Holdfast) -> None:
    down, runs = [True], []

    @quick.task(retry=ONE_TRY)
    async def child(ctx: Context, number: int) -> int:
        runs.append(number)
        if down:
            raise ConnectionError("service down")
        return number

    @quick.task(retry=ONE_TRY)
    async def parent(ctx: Context) -> int:
        submitted = [await ctx.submit(child, number) for number in range(4)]
        return sum([await one.result() for one in submitted])

    handle = await quick.submit(parent)
    async with quick.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)

        async def all_failed() -> bool:
            return all(one.state is TaskState.FAILED for one in await children_of(quick, handle.id))

        await until(all_failed)
        down.clear()
        await quick.resume(handle)
        assert await ended(handle) == 6
    assert sorted(runs) == sorted([*range(4), *range(4)])


async def test_a_poisoned_child_is_not_begun_again_by_its_parent(quick: Holdfast) -> None:
    poison = {"type": "Poison", "message": "its workers died"}

    @quick.task(retry=ONE_TRY)
    async def child(ctx: Context) -> None:
        raise AssertionError("never claimed")

    @quick.task(retry=Retry(max_attempts=3, initial=0.001))
    async def parent(ctx: Context) -> None:
        submitted = await ctx.submit(child, queue="elsewhere")
        move = Move(to=TaskState.FAILED, reason="poison", error=poison)
        await quick.store.commit([Commit(task_id=submitted.id, guard=Expect(), operations=(move,))])
        await submitted.result()

    handle = await quick.submit(parent)
    async with quick.worker(queues=["default"]):
        with pytest.raises(TaskFailed, match="its workers died"):
            await ended(handle)
    assert (await handle.task()).attempts == 1
