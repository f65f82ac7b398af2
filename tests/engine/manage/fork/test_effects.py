"""What the origin did to the world is the origin's: a fork neither repeats nor undoes nor doubts it."""

# ruff: noqa: ARG001 - a compensation takes the result, whether it needs it or not

from pathlib import Path

import pytest

from holdfast import (
    Ask,
    Conflict,
    Context,
    Holdfast,
    Machine,
    NotHappened,
    Reached,
    StepFailed,
    TaskDefinition,
    TaskFailed,
    TaskState,
    Transaction,
)
from tests.engine.manage.fork.support import ONE_TRY, Ran, finish
from tests.engine.support import reaches, steps_of


async def test_what_was_done_once_is_not_done_again(hold: Holdfast) -> None:
    ran = Ran()

    @hold.task
    async def work(ctx: Context) -> list[str]:
        return [await ctx.step(key, lambda what: ran.note(ctx, what), key, effect="once") for key in ("pay", "ship")]

    origin = await hold.submit(work)
    [(paid, shipped)] = await finish(hold, origin)
    fork = await hold.fork(origin, at="pay")
    [(still_paid, shipped_again)] = await finish(hold, fork)
    assert paid == still_paid
    assert shipped != shipped_again
    assert (ran[origin], ran[fork]) == (["pay", "ship"], ["ship"])
    [effect] = await hold.store.effects(task_id=fork.id)
    assert effect.step_key == "ship"
    assert effect.effect_id not in {one.effect_id for one in await hold.store.effects(task_id=origin.id)}
    assert not (await fork.task()).must_undo


async def test_other_arguments_for_what_was_done_are_noticed(quick: Holdfast) -> None:
    ran = Ran()

    @quick.task
    async def work(ctx: Context, amount: int) -> None:
        await ctx.step("pay", lambda paid: ran.note(ctx, str(paid)), amount, effect="once")
        await ctx.step("b", ran.note, ctx, "b")

    origin = await quick.submit(work, 10)
    await finish(quick, origin)
    fork = await quick.fork(origin, at="pay", user_input=(20,))
    with pytest.raises(TaskFailed, match="The task that this one was forked from made it"):
        await finish(quick, fork)
    assert ran[fork] == []
    await finish(quick, await quick.fork(origin, at="pay", user_input=(10,)))


async def test_in_a_new_round_of_the_fork_it_is_still_done(hold: Holdfast) -> None:
    """A once effect outlives rounds; that another task did it does not allow a second one."""
    ran = Ran()

    @hold.task
    async def work(ctx: Context) -> str | None:
        await ctx.step("pay", lambda: ran.note(ctx, "pay"), effect="once")
        await ctx.step("look", ran.note, ctx, "look")
        return ctx.feedback

    @work.verify
    async def fine(ctx: Context, result: str | None) -> bool | str:
        return ctx.task.id == origin.id or (True if result else "once more")

    origin = await hold.submit(work)
    await finish(hold, origin)
    fork = await hold.fork(origin, at="pay")
    assert await finish(hold, fork) == ["once more"]
    assert ran[fork] == ["look", "look"]
    assert await hold.store.effects(task_id=fork.id) == []


async def test_what_an_earlier_round_of_the_origin_did_is_not_done_again(quick: Holdfast) -> None:
    """The fork begins before the step, in a round in which the origin has not come to it yet."""
    ran = Ran()

    @quick.task
    async def work(ctx: Context) -> str | None:
        await ctx.step("look", ran.note, ctx, "look")
        await ctx.step("pay", lambda: ran.note(ctx, "pay"), effect="once")
        return ctx.feedback

    @work.verify
    async def fine(ctx: Context, result: str | None) -> bool | str:
        return True if result else "once more"

    origin = await quick.submit(work)
    await finish(quick, origin)
    assert ran[origin] == ["look", "pay", "look"]
    fork = await quick.fork(origin, at="look")
    again = await quick.fork(fork, at="look")
    await finish(quick, fork, again)
    assert (ran[fork], ran[again]) == ([], [])


async def test_what_failed_for_the_origin_is_tried_again_under_an_id_of_the_forks_own(quick: Holdfast) -> None:
    """The origin handled the failure, the fork does not, and is resumed."""
    ids: list[str] = []

    def pay(effect_id: str) -> str:
        ids.append(effect_id)
        if len(ids) == 1:
            raise NotHappened("refused")
        return "paid"

    @quick.task(retry=ONE_TRY)
    async def work(ctx: Context, careful: bool) -> str:
        try:
            return await ctx.step("pay", pay, effect="once")
        except StepFailed:
            if not careful:
                raise
            return "not paid"

    origin = await quick.submit(work, True)  # noqa: FBT003
    assert await finish(quick, origin) == ["not paid"]
    fork = await quick.fork(origin, user_input=(False,))
    with pytest.raises(TaskFailed, match="refused"):
        await finish(quick, fork)
    await quick.resume(fork)
    assert await finish(quick, fork) == ["paid"]
    assert len(set(ids)) == 2


async def test_a_fork_that_fails_undoes_only_its_own(hold: Holdfast) -> None:
    done: list[str] = []

    def do(what: str) -> str:
        done.append(what)
        return what

    def undo(result: str, what: str) -> None:
        done.append(f"undo {what}")

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context, fails: bool) -> None:
        for key in ("a", "b"):
            await ctx.step(key, do, key, effect="once" if key == "a" else "idempotent", compensate=undo)
        await ctx.step("c", do, "c", compensate=undo)
        if fails:
            raise OSError("no disk")

    origin = await hold.submit(work, False)  # noqa: FBT003
    await finish(hold, origin)
    fork = await hold.fork(origin, at="b", user_input=(True,))
    with pytest.raises(TaskFailed):
        await finish(hold, fork)
    assert done == ["a", "b", "c", "c", "undo c"]
    assert await hold.doubts() == []


async def test_what_the_origin_has_undone_is_done_again(quick: Holdfast) -> None:
    done: list[str] = []

    def undo(result: None, what: str) -> None:
        done.append(f"undo {what}")

    @quick.task(retry=ONE_TRY)
    async def work(ctx: Context, fails: bool) -> None:
        await ctx.step("a", done.append, "a", compensate=undo)
        await ctx.step("b", done.append, "b")
        if fails:
            raise OSError("no disk")

    origin = await quick.submit(work, True)  # noqa: FBT003
    with pytest.raises(TaskFailed):
        await finish(quick, origin)
    assert done == ["a", "b", "undo a"]
    await finish(quick, await quick.fork(origin, user_input=(False,)))
    assert done == ["a", "b", "undo a", "a"]


async def test_an_approval_of_one_effect_is_not_one_of_another(quick: Holdfast) -> None:
    """It was given for the origin's call. The fork's own call is another, and needs its own approval."""
    ran = Ran()

    @quick.task
    async def work(ctx: Context) -> None:
        await ctx.step("look", ran.note, ctx, "look")
        await ctx.step("pay", lambda: ran.note(ctx, "pay"), effect="once", approval=Ask("Pay?"))

    origin = await quick.submit(work)
    async with quick.worker():
        await reaches(origin, TaskState.WAITING)
        [question] = await quick.approvals(origin)
        await quick.approve(question.id, by="alice")
        await origin.result(timeout=60)
        shares, asks = await quick.fork(origin), await quick.fork(origin, at="look")
        await shares.result(timeout=60)
        await reaches(asks, TaskState.WAITING)
        [question] = await quick.approvals(asks)
        await quick.approve(question.id, by="bob")
        await asks.result(timeout=60)
    assert (ran[shares], ran[asks]) == ([], ["pay"])
    lines = await steps_of(quick, shares)
    assert [key for key in lines if key.startswith("holdfast:")] == ["holdfast:fork"]


async def test_a_transaction_is_not_done_again(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:
        rows: list[str] = []

        async def insert(tx: Transaction, name: str) -> str:
            await tx.execute("CREATE TABLE IF NOT EXISTS mine (name TEXT)")
            await tx.execute("INSERT INTO mine VALUES (?)", name)
            rows.append(name)
            return name

        @hold.task
        async def work(ctx: Context) -> str | None:
            await ctx.transaction("book", insert, "seat")
            await ctx.step("b", lambda: None)
            return ctx.feedback

        @work.verify
        async def fine(ctx: Context, result: str | None) -> bool | str:
            return ctx.task.id == origin.id or (True if result else "once more")

        origin = await hold.submit(work)
        await finish(hold, origin)
        await finish(hold, await hold.fork(origin, at="book"))
        assert rows == ["seat"]


def order_machine() -> Machine[dict[str, int]]:
    return Machine(
        "order",
        initial="open",
        transitions={"open": ["paid"], "paid": ["sent"]},
        final="sent",
        data=dict[str, int],
        retry=ONE_TRY,
    )


def machine_on(hold: Holdfast, ran: Ran) -> TaskDefinition[[dict[str, int]], Reached[dict[str, int]]]:
    machine = order_machine()

    @machine.state("open")
    async def pay(ctx: Context, data: dict[str, int]) -> str:
        await ctx.step("pay", ran.note, ctx, "pay")
        return "paid"

    @machine.state("paid")
    async def send(ctx: Context, data: dict[str, int]) -> str:
        await ctx.step("pack", ran.note, ctx, "pack")
        await ctx.step("send", ran.note, ctx, "send")
        return "sent"

    return hold.register(machine)


async def test_a_machine_is_forked_within_a_state(hold: Holdfast) -> None:
    ran = Ran()
    task = machine_on(hold, ran)
    origin = await hold.submit(task, {"price": 10})
    await finish(hold, origin)
    fork = await hold.fork(origin, at="order:2/pack")
    [reached] = await finish(hold, fork)
    assert reached.state == "sent"
    assert reached.data == {"price": 10}
    assert ran[fork] == ["send"]


async def test_a_machine_whose_steps_were_undone_is_not_forked_behind_them(quick: Holdfast) -> None:
    machine = order_machine()

    @machine.state("open")
    async def pay(ctx: Context, data: dict[str, int]) -> str:
        await ctx.step("look", lambda: 1)
        await ctx.step("pay", lambda: 1, compensate=print)
        return "paid"

    @machine.state("paid")
    async def send(ctx: Context, data: dict[str, int]) -> str:
        raise OSError("no truck")

    task = quick.register(machine)
    origin = await quick.submit(task, {})
    with pytest.raises(TaskFailed):
        async with quick.worker():
            await origin.result(timeout=60)
    with pytest.raises(Conflict, match="was undone, and its machine has moved on since"):
        await quick.fork(origin)
    await quick.fork(origin, at="order:1/look")
