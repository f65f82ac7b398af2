"""crash_everywhere: the same scenario with a crash at every Commit, and what it finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from holdfast import Context, Holdfast, TaskDefinition, Transaction
from holdfast.testing import CrashChangedResult, CrashDidNotHappen, Sandbox, crash_everywhere, sandbox

hold = Holdfast("memory://")


class Bank:
    """Keeps what it was asked for under a key, as payment services do."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}

    async def charge(self, amount: int, effect_id: str) -> int:
        self.charges[effect_id] = amount
        return amount

    async def charge_blindly(self, amount: int) -> int:
        self.charges[f"charge {len(self.charges)}"] = amount
        return amount


bank = Bank()


async def note(tx: Transaction, amount: int) -> int:
    await tx.execute("INSERT INTO notes VALUES ($1)", amount)
    return amount


@hold.task
async def bookkeeping(ctx: Context) -> int:
    return await ctx.transaction("one", note, 1) + await ctx.transaction("two", note, 2)


async def create_notes(tx: Transaction) -> None:
    await tx.execute("CREATE TABLE notes (amount INTEGER)")


async def read_notes(tx: Transaction) -> list[int]:
    return [amount for (amount,) in await tx.execute("SELECT amount FROM notes ORDER BY amount")]


@hold.task
async def careful(ctx: Context, amount: int) -> str:
    paid = await ctx.step("charge", bank.charge, amount)
    await ctx.sleep(timedelta(days=1))
    return f"paid {paid}"


@hold.task
async def careless(ctx: Context, amount: int) -> str:
    return f"paid {await ctx.step('charge', bank.charge_blindly, amount)}"


@hold.task
async def without_a_journal(ctx: Context, amount: int) -> str:
    paid = await bank.charge_blindly(amount)
    return await ctx.step("note", lambda: f"paid {paid}", returns=str)


def scenario_of(task: TaskDefinition[[int], str]) -> Callable[[Sandbox], Awaitable[tuple[str, int]]]:
    async def scenario(box: Sandbox) -> tuple[str, int]:
        bank.charges.clear()
        handle = await box.hold.submit(task, 5)
        return await handle.result(), sum(bank.charges.values())

    return scenario


async def test_a_careful_task_survives_a_crash_at_every_commit() -> None:
    survived = await crash_everywhere(hold, scenario_of(careful))
    assert survived.result == ("paid 5", 5)
    # The charge, going to sleep, waking up and the end: before and after each.
    assert survived.crashes == 8


@pytest.mark.parametrize("task", [careless, without_a_journal], ids=lambda task: task.name)
async def test_a_task_that_pays_twice_is_found_out(task: TaskDefinition[[int], str]) -> None:
    with pytest.raises(CrashChangedResult, match=r"crash before commit 1 the scenario gave \('paid 5', 10\)"):
        await crash_everywhere(hold, scenario_of(task))


async def test_a_scenario_that_raises_under_a_crash_is_found_out() -> None:
    app = Holdfast("memory://")
    calls: list[int] = []

    @app.task
    async def hasty(ctx: Context) -> None:
        await ctx.step("only", lambda: None)

    async def scenario(box: Sandbox) -> None:
        calls.append(1)
        await (await app.submit(hasty)).result()
        assert box.elapsed < timedelta(seconds=30), "it takes too long"

    with pytest.raises(CrashChangedResult, match="before commit 1 the scenario raised AssertionError") as caught:
        await crash_everywhere(app, scenario)
    assert isinstance(caught.value.__cause__, AssertionError)
    assert len(calls) == 2


async def test_a_scenario_that_changes_its_ways_is_found_out() -> None:
    app = Holdfast("memory://")
    calls: list[int] = []

    @app.task
    async def shrinking(ctx: Context) -> None:
        if len(calls) < 2:
            await ctx.step("only at first", lambda: None)

    async def scenario(box: Sandbox) -> None:
        calls.append(1)
        await (await box.hold.submit(shrinking)).result()

    with pytest.raises(CrashDidNotHappen):
        await crash_everywhere(app, scenario)


async def test_transactions_are_crashed_like_any_commit() -> None:
    async def scenario(box: Sandbox) -> tuple[int, list[int]]:
        await box.hold.transaction(create_notes)
        result = await (await hold.submit(bookkeeping)).result()
        return result, await box.hold.transaction(read_notes)

    survived = await crash_everywhere(hold, scenario)
    assert survived.result == (3, [1, 2])
    assert survived.crashes == 2 * 3  # before and after: each transaction, and the end of the task


async def test_a_crash_at_a_transaction_happens() -> None:
    runs = {"before_effect": 1, "after_effect": 2, "after_commit": 1}
    for when, expected in runs.items():
        async with sandbox(hold) as box:
            await hold.transaction(create_notes)
            crash = box.crash("one", when=when)  # type: ignore[arg-type]
            handle = await hold.submit(bookkeeping)
            assert await handle.result() == 3, when
            assert crash.happened == 1, when
            assert (await box.trace(handle)).runs["one"] == expected, when
            assert await hold.transaction(read_notes) == [1, 2], when
            assert box.commits == 3 + (when == "after_effect"), when
