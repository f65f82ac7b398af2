"""An agent whose last call was never answered makes it again: it gets the current situation; nothing is done twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Conflict, Context, Handle, Holdfast, TaskState
from holdfast.engine.outside import LeaseHolder
from holdfast.model.errors import LeaseLost
from holdfast.testing.contract._support import row
from tests.service.handover.support import Outside, everything, facts, living_workers

ENDINGS: dict[str, Callable[[LeaseHolder], Awaitable[object]]] = {
    "finish": lambda holding: holding.finish("done"),
    "finish otherwise": lambda holding: holding.finish("done otherwise"),
    "give_up": lambda holding: holding.give_up("no disk"),
    "give_up otherwise": lambda holding: holding.give_up("no time"),
    "release": lambda holding: holding.release("mind the logs", facts(largest="/var/log")),
    "release otherwise": lambda holding: holding.release("mind the cache"),
    "ask": lambda holding: holding.ask("Which disk?"),
    "ask otherwise": lambda holding: holding.ask("Which file?"),
}


@pytest.mark.parametrize("ending", ["finish", "give_up", "release"])
async def test_a_repetition_is_reported(hold: Holdfast, ada: Outside, ending: str) -> None:
    task = await ada.offer()
    holding = ada.holding((await ada.take()).lease)
    first: Any = await ENDINGS[ending](holding)
    before = await everything(hold, task.id)
    again: Any = await ENDINGS[ending](holding)
    assert (first.replayed, again.replayed) == (False, True)
    assert (again.task, await everything(hold, task.id)) == (first.task, before)
    assert await living_workers(hold) == 0


@pytest.mark.parametrize("ending", ENDINGS)
async def test_another_end_under_the_same_lease_is_refused(hold: Holdfast, ada: Outside, ending: str) -> None:
    task = await ada.offer()
    holding = ada.holding((await ada.take()).lease)
    await ENDINGS[ending](holding)
    before = await everything(hold, task.id)
    for other in ENDINGS.keys() - {ending}:
        with row(other):
            with pytest.raises((Conflict, LeaseLost)):
                await ENDINGS[other](holding)
            assert await everything(hold, task.id) == before


async def test_another_result_is_not_called_unwritten(ada: Outside) -> None:
    await ada.offer()
    holding = ada.holding((await ada.take()).lease)
    await holding.finish(1)
    for other in (2, None, True, "1"):
        with pytest.raises(Conflict, match="was finished under this lease before, with another result; that one stand"):
            await holding.finish(other)
    assert (await holding.finish(1)).replayed


@pytest.mark.parametrize("ending", ENDINGS)
async def test_another_holder_of_the_same_lease_learns_that_it_is_over(
    hold: Holdfast, ada: Outside, bob: Outside, ending: str
) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    await ENDINGS[ending](ada.holding(lease))
    before = await everything(hold, task.id)
    with pytest.raises(LeaseLost, match="stop working on it"):
        await ENDINGS[ending](bob.holding(lease))
    assert await everything(hold, task.id) == before


async def test_nor_does_a_cancel_tell_them_apart(hold: Holdfast, ada: Outside, bob: Outside) -> None:
    """Its reason is that of the caller that cancelled, and names no agent."""
    task = await ada.offer()
    lease = (await ada.take()).lease
    await hold.cancel(task.id, "not wanted", by="ann")
    await ada.holding(lease).release("bye")
    assert (await ada.holding(lease).release("bye")).replayed
    with pytest.raises(LeaseLost, match="stop working on it"):
        await bob.holding(lease).release("bye")


async def test_handing_back_again_takes_nothing_from_who_has_it_now(hold: Holdfast, ada: Outside, bob: Outside) -> None:
    task = await ada.offer()
    holding = ada.holding((await ada.take()).lease)
    await holding.release("bye", facts(disk="92%"))
    fresh = (await bob.take(task.id)).lease
    before = await everything(hold, task.id)
    again = await holding.release("bye", facts(disk="92%"))
    assert (again.replayed, again.task.state, again.task.owner) == (True, TaskState.RUNNING, fresh.worker_id)
    assert await everything(hold, task.id) == before
    assert (await bob.holding(fresh).finish("bob's")).task.result == "bob's"


async def test_asking_again_brings_the_question_that_was_asked(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    first = ada.holding((await ada.take()).lease)
    asked = await first.ask("Which disk?")
    assert (await first.ask("Which disk?")).id == asked.id
    assert len(await hold.approvals(task.id)) == 1
    await hold.answer(asked.id, "sdb", by="ann")
    assert (await first.ask("Which disk?")).answer == "sdb"
    second = ada.holding((await ada.take()).lease)
    once_more = await second.ask("Which disk?")  # under a lease of its own it is a question of its own
    assert once_more.id != asked.id
    assert (await second.ask("Which disk?")).id == once_more.id


async def test_a_result_that_was_verified_meanwhile(living: Holdfast) -> None:
    async def deploy(ctx: Context) -> str:
        del ctx
        return "up"

    living.task(deploy)
    ada = Outside(living, "ada")
    handle: Handle[Any] = await living.submit("deploy")
    holding = ada.holding((await ada.take(names=["deploy"])).lease)
    assert (await holding.finish("by hand")).task.state is TaskState.REVIEW
    assert (await holding.finish("by hand")).replayed
    async with living.worker():
        assert await handle.result(60) == "by hand"
    again = await holding.finish("by hand")
    assert (again.replayed, again.task.state) == (True, TaskState.COMPLETED)
