"""A max_cost without a known price would never be reached: every entry point refuses it before any change."""

from __future__ import annotations

import pytest

from holdfast import (
    Agent,
    Budget,
    Context,
    Holdfast,
    InvalidValue,
    Meter,
    Price,
    Retry,
    ScriptedModel,
    StatePatch,
    TaskFailed,
)
from holdfast.agent.scripted import call
from tests.agent.budget.support import PATIENCE, asked, books

LIMIT = Budget(max_cost=1)
PRICES = {"scripted": Price(1, 1)}


def asker(**options: object) -> Agent:
    model = ScriptedModel([call("ask_question", question="Where?"), "done"])
    return Agent("asker", model=model, retry=Retry(max_attempts=1), **options)  # type: ignore[arg-type]


async def test_no_door_takes_a_limit_of_what_has_no_price(database_url: str) -> None:
    async with Holdfast(database_url) as hold:
        plain_name = "plain"

        @hold.task(name=plain_name)
        async def plain(ctx: Context) -> None: ...

        free = hold.register(asker())
        task, other = await hold.submit(free, "go"), await hold.submit(plain)
        async with hold.worker():
            await asked(hold, task)
        version = (await task.task()).version
        with pytest.raises(
            InvalidValue, match=r"would never be reached: the price of scripted is not known; pass prices="
        ):
            await hold.extend_budget(task, LIMIT, by="ann")
        with pytest.raises(InvalidValue, match="would never be reached: it does not belong to an agent"):
            await hold.extend_budget(other, LIMIT, by="ann")
        with pytest.raises(InvalidValue, match="the price of scripted is not known"):
            await hold.patch_state(task, StatePatch(budget=LIMIT), version=version, by="ann")
        with pytest.raises(InvalidValue, match="the price of scripted is not known"):
            await hold.fork(task, patch=StatePatch(budget=LIMIT), by="ann")
    async with Holdfast(database_url) as elsewhere:  # as the command line opens it
        with pytest.raises(InvalidValue, match=r"the price of the model of 'asker' is not known here; set it from"):
            await elsewhere.extend_budget(task.id, LIMIT, by="ann")
        await elsewhere.extend_budget(task.id, Budget(max_steps=9), by="ann")
        assert Meter.COST_MICROS not in await books(elsewhere, task.id)
        assert (await elsewhere.store.get(task.id)).version == version  # type: ignore[union-attr]


async def test_where_there_is_a_price_every_door_takes_it(database_url: str) -> None:
    async with Holdfast(database_url) as hold:
        task = await hold.submit(hold.register(asker(prices=PRICES)), "go")
        async with hold.worker():
            await asked(hold, task)
        await hold.extend_budget(task, LIMIT, by="ann")
        version = (await task.task()).version
        await hold.patch_state(task, StatePatch(budget=Budget(max_cost=2)), version=version, by="ann")
    async with Holdfast(database_url) as elsewhere:
        await elsewhere.extend_budget(task.id, Budget(max_cost=3), by="ann")
        assert (await books(elsewhere, task.id))[Meter.COST_MICROS][0] == 3_000_000


async def test_an_agent_that_lost_its_prices_asks_no_model(database_url: str) -> None:
    """They were left out by a deploy, or the limit is that of a caller whose sub-agent another process runs."""
    async with Holdfast(database_url) as old:
        task = await old.submit(old.register(asker(prices=PRICES, budget=LIMIT)), "go")
    async with Holdfast(database_url) as new:
        bare = asker()
        new.register(bare)
        async with new.worker():
            with pytest.raises(TaskFailed, match=r"would never be reached: the price of scripted is not known"):
                await new.handle(task.id).result(timeout=PATIENCE)
        assert isinstance(bare.model, ScriptedModel)
        assert bare.model.requests == []
    async with Holdfast(database_url) as mended:
        mended.register(asker(prices=PRICES))
        async with mended.worker():
            await mended.resume(task.id)
            question = await asked(mended, mended.handle(task.id))
            await mended.answer(question.id, "here", by="ann")
            assert await mended.handle(task.id).result(timeout=PATIENCE) == "done"
