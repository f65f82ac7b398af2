"""An agent that asks for work every few seconds changes no task that it may not claim, and misses none that it may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from holdfast import Context, Effect, Handle, Holdfast, TaskState
from holdfast.model.effect import EffectClass, EffectState
from holdfast.model.operations import WriteEffect
from holdfast.model.task import NewTask
from tests.engine.manage.state.support import write
from tests.engine.support import reaches
from tests.proof.engine.conditions import eventually
from tests.service.handover.support import Outside, everything, living_workers, task_of

BOTH = ("handover", "deploy")
POLLS = 5


async def undo(hold: Holdfast) -> str:
    """A task with a step that only its own worker can undo."""

    async def deploy(ctx: Context) -> None:
        await ctx.step("book", lambda: "seat 4", compensate=lambda _result: None)
        await ctx.approval("Fly?")

    hold.task(deploy)
    handle: Handle[Any] = await hold.submit("deploy")
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
    [asked] = await hold.approvals(handle.id)
    await hold.approve(asked.id, by="ann")
    assert (await handle.task()).must_undo
    return handle.id


def effect_in(*states: EffectState) -> Callable[[Holdfast], Awaitable[str]]:
    async def make(hold: Holdfast) -> str:
        """A task with a call of unknown outcome."""
        await hold.store.submit([NewTask(id="blocked", name="deploy", priority=9)])
        for state in states:
            effect = Effect(effect_id="effect", step_key="pay", effect_class=EffectClass.ONCE, state=state)
            await write(hold, "blocked", WriteEffect(effect))
        return "blocked"

    return make


NOT_FOR_THEM: dict[str, Callable[[Holdfast], Awaitable[str]]] = {
    "steps to undo": undo,
    "a call that may be under way": effect_in(EffectState.ARMED),
    "a call in doubt": effect_in(EffectState.ARMED, EffectState.IN_DOUBT),
    "a call a person has to settle": effect_in(EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN),
}


@pytest.mark.parametrize("why", NOT_FOR_THEM)
async def test_what_only_its_own_worker_may_go_on_with_is_only_looked_at(living: Holdfast, why: str) -> None:
    ada = Outside(living, "ada")
    task_id = await NOT_FOR_THEM[why](living)
    before = await everything(living, task_id), [worker.id for worker in await living.store.workers()]
    for _ in range(POLLS):
        assert await ada.ask(names=BOTH) is None
    assert (await everything(living, task_id), [worker.id for worker in await living.store.workers()]) == before


async def test_what_waits_under_other_names_is_only_looked_at(hold: Holdfast, ada: Outside) -> None:
    await hold.store.submit([NewTask(id="other", name="other")])
    before = await everything(hold, "other")
    for _ in range(POLLS):
        assert await ada.ask(names=BOTH) is None
    assert (await everything(hold, "other"), await hold.store.workers()) == (before, [])


async def test_many_tasks_of_other_names_hide_nothing_behind_them(hold: Holdfast, ada: Outside) -> None:
    await hold.store.submit([NewTask(id=f"other-{number}", name="other", priority=5) for number in range(60)])
    await hold.store.submit([NewTask(id="job", name="deploy")])
    assert (await ada.take(names=BOTH)).task.id == "job"


async def test_of_several_names_the_best_task_comes_first(hold: Holdfast, ada: Outside) -> None:
    for number, (name, priority) in enumerate([("deploy", 0), ("bill", 5), ("deploy", 9), ("bill", 2)]):
        await hold.store.submit([NewTask(id=f"{number}", name=name, priority=priority)])
    taken = [(await ada.take(names=["handover", "deploy", "bill"])).task.id for _ in range(4)]
    assert taken == ["2", "1", "3", "0"]


@pytest.mark.parametrize("by_id", [False, True])
async def test_a_claim_whose_caller_left_holds_nothing(
    living: Holdfast, monkeypatch: pytest.MonkeyPatch, *, by_id: bool
) -> None:
    """The protocol's server cancels a call by a scope, in which every further wait is cancelled too."""
    ada, reached = Outside(living, "ada"), asyncio.Event()
    task = await ada.offer()

    async def never(_: str) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch, anyio.CancelScope() as scope:
        patch.setattr(living.store, "load", never)

        async def leave() -> None:
            await reached.wait()
            scope.cancel()

        async with asyncio.TaskGroup() as group:
            group.create_task(leave())
            await ada.ask(task.id if by_id else None, seconds=3600)
    assert reached.is_set()

    async def is_free() -> bool:
        return await living_workers(living) == 0 and (await task_of(living, task.id)).owner is None

    await eventually("it is free", is_free)
    assert (await ada.take(task.id)).task.id == task.id
